"""Scribe: a group's tree is the union of its members' routes to the key's root (Scribe, section 3)."""

import numpy as np
from numba import njit

from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, Splittable, tree_of
from quillcast.evaluation.routing.pastry import Tables, Word, next_hop, root_of


class Scribe(Splittable):
    """The overlay's own policy."""

    def key(self, tables: Tables, group: Group) -> Word:
        """The key to which the members' Joins are routed."""
        return np.uint64(group.key)

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree. Every peer on a Join's route accepts the child, so the order of joins does not matter."""
        where = self.scratch.where(len(tables.ids))
        return [tree_of(*union_of_routes(tables, self.key(tables, group), group.members, where))]

    def routes(self, tables: Tables, group: Group, members: Ints) -> tuple[Ints, Ints]:
        """As `Splittable`."""
        where = self.scratch.where(len(tables.ids))
        nodes, parent, _ = union_of_routes(tables, self.key(tables, group), members, where)
        return nodes, np.where(parent >= 0, nodes[parent], -1).astype(np.int32)

    def joined(self, tables: Tables, group: Group, nodes: Ints, parents: Ints) -> Tree:
        """As `Splittable`: a peer on the routes of several parts has the same next hop in each."""
        where = self.scratch.where(len(tables.ids))
        return tree_of(*union_of_parts(nodes, parents, group.members, where))


@njit(cache=True)
def union_of_routes(tables: Tables, key: Word, members: Ints, where: Ints) -> tuple[Ints, Ints, Flags]:
    """Peers on the members' routes to the key, the root first; the index of each one's parent; membership."""
    nodes = np.empty(2 * len(members) + 64, np.int32)
    parent = np.empty(len(nodes), np.int32)
    nodes[0], parent[0] = root_of(tables, key), -1
    where[nodes[0]] = 0
    count = 1
    for peer in members:
        below = -1
        while where[peer] < 0:
            if count == len(nodes):
                nodes, parent = _twice(nodes), _twice(parent)
            nodes[count] = peer
            where[peer] = count
            if below >= 0:
                parent[below] = count
            below = count
            count += 1
            peer = next_hop(tables, peer, key)  # noqa: PLW2901
            if peer < 0:
                raise AssertionError("a route ended before the root: leaf sets are wrong")
        if below >= 0:
            parent[below] = where[peer]
    member = np.zeros(count, np.bool_)
    for peer in members:
        member[where[peer]] = True
    for node in range(count):
        where[nodes[node]] = -1
    return nodes[:count], parent[:count], member


@njit(cache=True)
def _twice(array: Ints) -> Ints:
    larger = np.empty(2 * len(array), np.int32)
    for at in range(len(array)):  # numba takes seconds to compile a slice
        larger[at] = array[at]
    return larger


@njit(cache=True)
def union_of_parts(nodes: Ints, parents: Ints, members: Ints, where: Ints) -> tuple[Ints, Ints, Flags]:
    """The result of `union_of_routes` for all members, from its results for parts of them, one after another."""
    kept, next_hops = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
    count = 0
    for at in range(len(nodes)):
        if where[nodes[at]] < 0:
            where[nodes[at]] = count
            kept[count], next_hops[count] = nodes[at], parents[at]
            count += 1
    for node in range(count):
        if next_hops[node] >= 0:
            next_hops[node] = where[next_hops[node]]
    member = np.zeros(count, np.bool_)
    for peer in members:
        member[where[peer]] = True
    for node in range(count):
        where[kept[node]] = -1
    return kept[:count].copy(), next_hops[:count].copy(), member
