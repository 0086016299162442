"""Domains as members of the tree: each has one entry point, and is a tree of its own inside.

Registering cascades (QuickSilver, section 3): a domain joins once, however many of its peers subscribe. Inside, places
are scopes again, so an event crosses a link inside a domain about once.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Flags, Floats, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel, tree_of
from quillcast.evaluation.routing.pastry import Tables, Truth, Whole, Word, delay, inner, root_of

CHILDREN_MIN = 8  # so that each level has room of its own
EVERYTHING, REGION, DOMAIN, PLACE = 0, 1, 2, 3


class Scoped(PolicyKernel):
    """A tree of regions, of trees of domains, of trees of places, of trees of peers.

    A region consists of the domains whose traffic leaves through the same router, as a traceroute shows. Without a
    graph, each domain is a region.

    A joining node starts at the root of its scope's tree, and moves to the nearest child as long as that is nearer and
    makes the path from the root at most `stretch_percent` longer than the direct one. There it becomes a child. If
    there is no room, it moves on to the child that gives the shortest path to the root.

    Args:
        children: the most children of a peer. Some are kept for the domain's own places, some for the place's own
    peers.
        stretch_percent: see above.
    """

    def __init__(self, children: int = 16, stretch_percent: int = 30) -> None:
        super().__init__()
        if children < CHILDREN_MIN:
            raise LocalError(f"scoped({children}): with fewer than {CHILDREN_MIN} children no level has room")
        self.children_max: int = children
        self.stretch = 1 + stretch_percent / 100

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        return [tree_of(*_build(tables, np.uint64(group.key), group.members, self.children_max, self.stretch))]


class _Builder(NamedTuple):
    """A tree under construction; arrays by index in the tree. `first` and `following` are linked lists of children."""

    nodes: Ints
    parent: Ints
    first: Ints
    following: Ints
    degree: Ints
    late_ms: Floats


@njit(cache=True)
def _build(tables: Tables, key: Word, members: Ints, children: Whole, stretch: float) -> tuple[Ints, Ints, Flags]:
    root = root_of(tables, key)
    tree = _new_tree(len(members) + 1, root)
    joined = np.zeros(len(members), np.bool_)
    member_root = False
    for at in range(len(members)):
        joined[at] = members[at] == root
        member_root |= joined[at]
    count = 1
    for level in range(1, PLACE + 1):
        room = children - (PLACE + 1 - level) * children // 8
        count = _build_level(tables, tree, count, key, members, joined, level, room, stretch)
    count = _build_peers(tables, tree, count, members, joined, children)
    member = np.ones(count, np.bool_)
    member[0] = member_root
    return tree.nodes[:count].copy(), tree.parent[:count].copy(), member


@njit(cache=True)
def _build_level(
    tables: Tables,
    tree: _Builder,
    count: Whole,
    key: Word,
    members: Ints,
    joined: Flags,
    level: Whole,
    room: Whole,
    stretch: float,
) -> Whole:
    """Each scope without a node joins below its outer scope's entry point, through its member nearest to the root."""
    root = tree.nodes[0]
    entry = _first_nodes(tables, tree.nodes[:count], members, level)
    outer = _first_nodes(tables, tree.nodes[:count], members, level - 1)
    best = np.full(len(entry), -1, np.int32)
    best_ms = np.full(len(entry), np.inf, np.float32)
    for at in range(len(members)):
        scope = scope_of(tables, members[at], level)
        if entry[scope] < 0:
            apart = delay(tables, root, members[at])
            if apart < best_ms[scope] or (apart == best_ms[scope] and _before(key, members[at], members[best[scope]])):
                best[scope], best_ms[scope] = at, apart
    for scope in _shuffled(best, key):
        at = best[scope]
        start = outer[scope_of(tables, members[at], level - 1)]
        _join(tables, tree, count, members[at], start, level - 1, room, stretch)
        joined[at] = True
        count += 1
    return count


@njit(cache=True)
def _build_peers(tables: Tables, tree: _Builder, count: Whole, members: Ints, joined: Flags, room: Whole) -> Whole:
    """All other peers join below the first peer of their place that has room."""
    taker = _first_nodes(tables, tree.nodes[:count], members, PLACE)
    newest, following = taker.copy(), np.full(len(members) + 1, -1, np.int32)
    for at in range(len(members)):
        if joined[at]:
            continue
        place = tables.place[members[at]]
        while tree.degree[taker[place]] >= room:
            taker[place] = following[taker[place]]
        _attach(tables, tree, count, members[at], taker[place])
        following[newest[place]] = count
        newest[place] = count
        count += 1
    return count


@njit(cache=True)
def _first_nodes(tables: Tables, nodes: Ints, members: Ints, level: Whole) -> Ints:
    """The first node of each scope of a level; -1 if there is none."""
    scopes = scope_of(tables, nodes[0], level) + 1
    for peer in members:
        scopes = max(scopes, scope_of(tables, peer, level) + 1)
    first = np.full(scopes, -1, np.int32)
    for node in range(len(nodes) - 1, -1, -1):
        first[scope_of(tables, nodes[node], level)] = node
    return first


@inner
def scope_of(tables: Tables, peer: Whole, level: Whole) -> Whole:
    """The number of a peer's scope at a level: everything, its region, its domain, its place."""
    if level == EVERYTHING:
        return np.int32(0)
    if level == REGION:
        return tables.region[tables.place[peer]]
    return tables.domain[peer] if level == DOMAIN else tables.place[peer]


@inner
def _before(key: Word, peer: Whole, other: Whole) -> Truth:
    """Whether the first of two equally near peers serves this group."""
    return mix(key, 0, peer) < mix(key, 0, other)


@njit(cache=True)
def _new_tree(size: Whole, root: Whole) -> _Builder:
    """A tree of the root only, with room for more nodes."""
    none = np.full(size, -1, np.int32)
    tree = _Builder(none.copy(), none.copy(), none.copy(), none, np.zeros(size, np.int32), np.zeros(size, np.float32))
    tree.nodes[0] = root
    return tree


@njit(cache=True)
def _shuffled(entry: Ints, key: Word) -> Ints:
    """Scopes with an entry point, in an order that depends on the group, so that no scope is always first."""
    scopes = np.empty(len(entry), np.int32)
    count = 0
    for scope in range(len(entry)):
        if entry[scope] >= 0:
            scopes[count] = scope
            count += 1
    for last in range(count - 1, 0, -1):
        other = below(mix(key, 1, last), last + 1)
        scopes[last], scopes[other] = scopes[other], scopes[last]
    return scopes[:count]


@inner
def _join(
    tables: Tables, tree: _Builder, node: Whole, peer: Whole, start: Whole, outer: Whole, room: Whole, stretch: float
) -> None:
    """Attach a peer below the nearest node on the path down from `start`, inside its scope of level `outer`."""
    late_ms_max = delay(tables, tree.nodes[0], peer) * stretch
    at = start
    while True:
        near: Whole = np.int32(-1)
        quick: Whole = np.int32(-1)
        near_ms, quick_ms = delay(tables, tree.nodes[at], peer), np.float32(np.inf)
        child = tree.first[at]
        while child >= 0:
            if scope_of(tables, tree.nodes[child], outer) == scope_of(tables, peer, outer):
                apart = delay(tables, tree.nodes[child], peer)
                late_ms = tree.late_ms[child] + apart
                if apart < near_ms and late_ms <= late_ms_max:
                    near, near_ms = child, apart
                if late_ms < quick_ms:
                    quick, quick_ms = child, late_ms
            child = tree.following[child]
        if near < 0 and tree.degree[at] < room:
            _attach(tables, tree, node, peer, at)
            return
        at = near if near >= 0 else quick


@inner
def _attach(tables: Tables, tree: _Builder, node: Whole, peer: Whole, parent: Whole) -> None:
    tree.nodes[node], tree.parent[node] = peer, parent
    tree.following[node] = tree.first[parent]
    tree.first[parent] = node
    tree.degree[parent] += 1
    tree.late_ms[node] = tree.late_ms[parent] + delay(tables, tree.nodes[parent], peer)
