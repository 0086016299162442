"""Overcast, by delay.

J. Jannotti, D. Gifford, K. Johnson, M. F. Kaashoek and J. O'Toole, "Overcast: Reliable multicasting with an overlay
network", OSDI 2000: section 4.2 (the tree protocol), 4.3 (the up/down protocol).

A node that joins starts at the root. It moves down below a child as long as the delay from the root stays about as good
as the direct one (within 10 %, section 4.2); of several such children it takes the closest. Later it checks again: it
moves below a sibling if that is as good, or up to the grandparent if its place is no longer good.

Simplified: by delay, where Overcast uses bandwidth. Bandwidths along a path do not add up and delays do, so each step
compares with the direct delay from the root, not with the node's last place. Nodes check again in turns, a fixed number
of times, and none fails. Relocations are reported to the old and the new parent only: higher up Overcast suppresses
what is already known.
"""

import numpy as np
from numba import njit

from quillcast.evaluation.network import Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import in_random_order, tree_of_members
from quillcast.evaluation.routing.pastry import Ms, Tables, Whole, delay, inner
from quillcast.evaluation.workload import creator

SLACK = 1.1  # section 4.2: bandwidths within 10 % of each other count as equal
ROUNDS = 3  # a guess: how often each node checks again


class Overcast(PolicyKernel):
    """Each member as far below the creator, which is the source, as its delay allows; no limit on children."""

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        nodes = in_random_order(group, creator(group))
        parent, joins = _build(tables, nodes, SLACK, ROUNDS)
        return [tree_of_members(nodes, parent, state=_descendants(parent), joins=joins)]


@njit(cache=True)
def _build(tables: Tables, nodes: Ints, slack: Ms, rounds: Whole) -> tuple[Ints, Ints]:
    """Nodes join below node 0 in order; then each checks again, in the same order, for this many rounds.

    Returns each node's parent and the messages that it handled, int32 [nodes]: one for each probe that measured it, a
    birth certificate at every ancestor of a new node, and messages at the old and new parents of a node that moves.
    """
    count = len(nodes)
    parent, handled = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    front, after, before = np.full(count, -1, np.int32), np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    for node in range(1, count):
        limit = slack * np.float64(delay(tables, nodes[0], nodes[node]))
        at, depth = np.int64(0), 0.0
        handled[0] += 1
        while True:
            below, below_ms = _closest(tables, nodes, front, after, handled, node, at, depth, limit)
            if below < 0:
                break
            at, depth = below, below_ms
        _attach(parent, front, after, before, node, at)
        while at >= 0:
            handled[at] += 1
            at = np.int64(parent[at])
    for _ in range(rounds):
        for node in range(1, count):
            _look_again(tables, nodes, parent, front, after, before, handled, node, slack)
    return parent, handled


@inner
def _look_again(
    tables: Tables,
    nodes: Ints,
    parent: Ints,
    front: Ints,
    after: Ints,
    before: Ints,
    handled: Ints,
    node: Whole,
    slack: Ms,
) -> None:
    """Move below a sibling if that is good, else up if the current place is not."""
    limit = slack * np.float64(delay(tables, nodes[0], nodes[node]))
    at: Whole = parent[node]
    depth = _depth(tables, nodes, parent, at)
    handled[at] += 1
    target, _ = _closest(tables, nodes, front, after, handled, node, at, depth, limit)
    if target < 0 and at > 0:
        above = parent[at]
        handled[above] += 1
        here = depth + np.float64(delay(tables, nodes[at], nodes[node]))
        there = _depth(tables, nodes, parent, above) + np.float64(delay(tables, nodes[above], nodes[node]))
        if here > limit and there < here:
            target = above
    if target >= 0:
        _detach(parent, front, after, before, node)
        _attach(parent, front, after, before, node, target)
        handled[at] += 1
        handled[target] += 1


@inner
def _closest(
    tables: Tables,
    nodes: Ints,
    front: Ints,
    after: Ints,
    handled: Ints,
    node: Whole,
    at: Whole,
    depth: Ms,
    limit: Ms,
) -> tuple[Whole, Ms]:
    """The closest child of `at` below which the node is good, and the child's own delay from the root; -1 if none is.

    All children are measured.
    """
    best: Whole = -1
    best_ms, best_depth = np.inf, 0.0
    child = front[at]
    while child >= 0:
        if child != node:
            handled[child] += 1
            child_depth = depth + np.float64(delay(tables, nodes[at], nodes[child]))
            apart = np.float64(delay(tables, nodes[child], nodes[node]))
            if child_depth + apart <= limit and (apart < best_ms or (apart == best_ms and child < best)):
                best, best_ms, best_depth = child, apart, child_depth
        child = after[child]
    return best, best_depth


@inner
def _depth(tables: Tables, nodes: Ints, parent: Ints, node: Whole) -> Ms:
    """Delay from the root along the tree."""
    total = 0.0
    while node > 0:
        total += np.float64(delay(tables, nodes[parent[node]], nodes[node]))
        node = parent[node]
    return total


@inner
def _attach(parent: Ints, front: Ints, after: Ints, before: Ints, node: Whole, to: Whole) -> None:
    parent[node] = to
    before[node], after[node] = -1, front[to]
    if front[to] >= 0:
        before[front[to]] = node
    front[to] = node


@inner
def _detach(parent: Ints, front: Ints, after: Ints, before: Ints, node: Whole) -> None:
    if before[node] >= 0:
        after[before[node]] = after[node]
    else:
        front[parent[node]] = after[node]
    if after[node] >= 0:
        before[after[node]] = before[node]


@njit("int32[::1](int32[::1])", cache=True)
def _descendants(parent: Ints) -> Ints:
    """The number of nodes below each node, as in Overcast's status tables (section 4.3)."""
    count = len(parent)
    waiting, below = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for node in range(1, count):
        waiting[parent[node]] += 1
    for leaf in range(1, count):
        node = leaf
        while node > 0 and waiting[node] == 0:  # all its children are counted
            waiting[node] = -1
            above = parent[node]
            below[above] += below[node] + 1
            waiting[above] -= 1
            node = above
    return below
