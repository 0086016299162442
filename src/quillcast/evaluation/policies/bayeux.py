"""Bayeux over Tapestry's routes.

S. Zhuang, B. Zhao, A. Joseph, R. Katz and J. Kubiatowicz, "Bayeux: An architecture for scalable and fault-tolerant
wide-area data dissemination", NOSSDAV 2001, section 3 (JOIN travels to the root, which keeps every member and answers
with TREE; each router on the path of TREE keeps the members that it serves). B. Zhao, J. Kubiatowicz and A. Joseph,
"Tapestry", UCB/CSD-01-1141, 2001, section 3 (one digit per hop; surrogate routing: if no node has the next digit, the
next higher digit is taken, cyclically, so that a key has the same root from every starting point).

Simplified: digits are resolved from the first to the last, as in Pastry, so that both systems use the same tables
(Tapestry began with the last; ids are random, so the result is the same). The session's root is the surrogate of the
topic's key. There is one root, without the paper's replicated roots and receiver groups; nodes do not fail. Nodes that
pass on a JOIN and are not in the tree have no place in a `Tree`, so their messages are not counted.
"""

import numpy as np
from numba import njit

from quillcast.evaluation.chance import Word
from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel, tree_of
from quillcast.evaluation.routing.pastry import Tables, Whole, cell, digit, inner, prefix_range


class Bayeux(PolicyKernel):
    """The union of Tapestry's routes from the root to the members."""

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        where = self.scratch.where(len(tables.ids))
        nodes, parent, member, state, joins = _routes(tables, np.uint64(group.key), group.members, where)
        return [tree_of(nodes, parent, member, state=state, joins=joins)]


@inner
def surrogate(tables: Tables, key: Word) -> Whole:
    """The root of a key, where surrogate routing ends from every starting point."""
    level, low, high = np.int64(0), np.int64(0), len(tables.ids)
    while high - low > 1:
        low, high = _next_range(tables, low, level, digit(key, level, tables.digit_bits))
        level += 1
    return low


@inner
def tapestry_hop(tables: Tables, peer: Whole, level: Whole, key: Word) -> tuple[Whole, Whole]:
    """The next hop of a message to the key, and how many digits are resolved there; the peer itself if it is the root.

    `level` is how many digits of the surrogate's id the peer is known to share.
    """
    while True:
        low, high = _range(tables, peer, level)
        if high - low == 1:
            return peer, level
        low, high = _next_range(tables, low, level, digit(key, level, tables.digit_bits))
        if not low <= peer < high:
            hop = np.int64(cell(tables, peer, level, digit(tables.ids[low], level, tables.digit_bits)))
            return (hop if hop >= 0 else low), level + 1  # a hole in a given table; Tapestry has none
        level += 1


@inner
def _range(tables: Tables, peer: Whole, level: Whole) -> tuple[Whole, Whole]:
    """The peers that share this many digits with this peer."""
    if level == 0:
        return np.int64(0), np.int64(len(tables.ids))
    bits = level * tables.digit_bits
    low, high = prefix_range(tables, tables.ids[peer] >> np.uint64(64 - bits), bits)
    return np.int64(low), np.int64(high)


@inner
def _next_range(tables: Tables, peer: Whole, level: Whole, wanted: Whole) -> tuple[Whole, Whole]:
    """Of the peers that share this many digits, those with the wanted next digit, or the next existing digit."""
    digits = 1 << tables.digit_bits
    bits = (level + 1) * tables.digit_bits
    prefix = (tables.ids[peer] >> np.uint64(64 - bits)) & ~np.uint64(digits - 1)
    low, high = np.int64(0), np.int64(0)
    for step in range(digits):
        first, last = prefix_range(tables, prefix | np.uint64((wanted + step) % digits), bits)
        low, high = np.int64(first), np.int64(last)
        if low < high:
            break
    return low, high


@njit(cache=True)
def _routes(tables: Tables, key: Word, members: Ints, where: Ints) -> tuple[Ints, Ints, Flags, Ints, Ints]:
    """The tree, and the load of its nodes: nodes (the root first), parents, members, state, joins.

    There is only one path to a node: the peer that serves a prefix is in the table of the peer that serves the shorter
    prefix, or is that peer itself.
    """
    root = np.int64(surrogate(tables, key))
    nodes = np.empty(2 * len(members) + 64, np.int32)
    parent = np.empty(len(nodes), np.int32)
    state = np.zeros(len(nodes), np.int32)
    nodes[0], parent[0] = root, -1
    where[root] = 0
    count = 1
    for member in members:
        at, level, target = root, np.int64(0), tables.ids[member]
        while at != member:
            state[where[at]] += 1
            hop, level = tapestry_hop(tables, at, level, target)
            if where[hop] < 0:
                if count == len(nodes):
                    nodes, parent, state = _twice(nodes), _twice(parent), _twice(state)
                nodes[count], parent[count], state[count] = hop, where[at], 0
                where[hop] = count
                count += 1
            at = hop
    joins = state[:count].copy()  # a TREE for each member below
    for member in members:
        at, level = np.int64(member), np.int64(0)
        while at != root:
            at, level = tapestry_hop(tables, at, level, key)
            if where[at] >= 0:
                joins[where[at]] += 1
    flags = np.zeros(count, np.bool_)
    for member in members:
        flags[where[member]] = True
    for node in range(count):
        where[nodes[node]] = -1
    return nodes[:count], parent[:count], flags, state[:count], joins


@njit(cache=True)
def _twice(array: Ints) -> Ints:
    larger = np.zeros(2 * len(array), np.int32)
    larger[: len(array)] = array
    return larger
