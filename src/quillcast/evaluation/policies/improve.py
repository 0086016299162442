"""Continuous improvement: peers look for better parents among those named by their parents (docs/design.md).

A parent's heartbeats name a peer's grandparent, its siblings and its parent's siblings. The peer moves to the one with
the greatest gain, if there is room. The gain counts how near the parent is, because a near parent saves links, and how
late events arrive below. Distances count by their logarithm: choosing the nearest of near peers saves a link just as
choosing a nearer one far away does, and costs less delay. In a large group lateness counts less, because its copies
crowd the links that all groups share, until events are late on average: then it counts as in a small group. Reports up
the tree add up the members with their delays, actual and direct; heartbeats carry the root's sums down. A peer does not
leave a scope that it shares with its parent, unless events reach a peer below it too late for the group.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Flags, Floats, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import Load, Modifier
from quillcast.evaluation.policies.remover import family, shed_farthest, with_parents
from quillcast.evaluation.policies.scoped import DOMAIN, scope_of
from quillcast.evaluation.routing.pastry import Ms, Tables, Whole, delay, inner

ROUNDS = 8
DISTANCE_WEIGHT = 0.2  # found by experiment, like `delay_percent` and the values below
LARGE_MEMBERS = 40


class Improve(Modifier):
    """Moves peers until no known parent is better, or for `ROUNDS` rounds. No peer has more than `children` children.

    Args:
        children: the most children of a peer in one group; a peer with more sheds the farthest first.
        delay_percent: the weight of a later event against a nearer parent, in groups of fewer than `LARGE_MEMBERS`.
    Members below count by their square root.
        reach_percent: no move makes the latest member's delay longer than this share of the longest direct one, and
    members that are later take any parent that makes them earlier.
        delay_percent_large: the same as `delay_percent` for all other groups, but `delay_percent` once the members'
    mean delay is more than `mean_percent` of the mean direct one.
        mean_percent: see above.
    """

    def __init__(
        self,
        children: int = 16,
        delay_percent: int = 100,
        reach_percent: int = 125,
        delay_percent_large: int = 20,
        mean_percent: int = 140,
    ) -> None:
        if children < 2:
            raise LocalError(f"improve({children}): a tree of peers with fewer than 2 children is a chain")
        self.children_max = children
        self.aims = Aims(children, delay_percent / 100, delay_percent / 100, reach_percent / 100, mean_percent / 100)
        self.aims_large = self.aims._replace(delay_weight=delay_percent_large / 100)

    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree after the last round."""
        room = np.full(len(tree.nodes), self.aims.children, np.int32)
        parent, moves = shed_farthest(tables, tree.nodes, tree.parent, room)
        aims = self.aims if np.count_nonzero(tree.member) < LARGE_MEMBERS else self.aims_large
        _improve(tables, tree.nodes, parent, tree.member, moves, aims)
        return with_parents(tree, parent, moves)


class Improving(NamedTuple):
    """A tree that changes; arrays by node. `first` and `following` are linked lists of children."""

    nodes: Ints
    parent: Ints
    first: Ints
    following: Ints
    degree: Ints
    below: Ints
    """Members in the subtree, including the node."""
    late_ms: Floats
    """Delay from the root to this node."""
    height_ms: Floats
    """Delay from this node to the latest member below it."""


class Aims(NamedTuple):
    """The weights for choosing a parent: see `Improve`. As an argument, maxima are multiples of direct delays.

    `mean_ms_max` is for the sum over members; above it `delay_weight_late` applies.
    """

    children: int
    delay_weight: float
    delay_weight_late: float
    late_ms_max: float
    mean_ms_max: float


@njit(cache=True)
def _improve(tables: Tables, nodes: Ints, parent: Ints, member: Flags, moves: Ints, wished: Aims) -> None:
    """Change `parent` in rounds from the root down, and count each node's moves."""
    count = len(nodes)
    direct_ms, direct_sum_ms = np.float32(0), 0.0
    for node in range(1, count):
        if member[node]:
            apart = delay(tables, nodes[0], nodes[node])
            direct_ms = max(direct_ms, apart)
            direct_sum_ms += apart
    late_ms_max, mean_ms_max = float(wished.late_ms_max * direct_ms), wished.mean_ms_max * direct_sum_ms
    weight = wished.delay_weight
    whole, real = np.zeros(count, np.int32), np.zeros(count, np.float32)
    for _ in range(ROUNDS):
        first, following = family(parent)
        tree = Improving(nodes, parent, first, following, whole.copy(), whole.copy(), real.copy(), real.copy())
        order = _down(first, following)
        if _measure(tables, tree, member, order) > mean_ms_max:
            weight = wished.delay_weight_late  # to the end, or moves would alternate
        aims = Aims(wished.children, weight, weight, late_ms_max, mean_ms_max)
        moved = 0
        for node in order[1:]:
            above = parent[node]
            tree.late_ms[node] = tree.late_ms[above] + delay(tables, nodes[above], nodes[node])
            if tables.place[nodes[node]] == tables.place[nodes[above]]:
                continue  # no parent is nearer
            better = _best_parent(tables, tree, node, aims)
            if better >= 0:
                _move(tables, tree, node, better)
                moves[node] += 1
                moved += 1
        if moved == 0:
            break


@inner
def _measure(tables: Tables, tree: Improving, member: Flags, order: Ints) -> Ms:
    """Compute the delays of every node and of its subtree; returns the sum of the members' delays."""
    sum_ms = 0.0
    for at in range(1, len(order)):
        node, above = order[at], tree.parent[order[at]]
        tree.degree[above] += 1
        tree.late_ms[node] = tree.late_ms[above] + delay(tables, tree.nodes[above], tree.nodes[node])
        if member[node]:
            sum_ms += tree.late_ms[node]
    for at in range(len(order) - 1, 0, -1):
        node, above = order[at], tree.parent[order[at]]
        tree.below[node] += member[node]
        tree.below[above] += tree.below[node]
        reach_ms = tree.height_ms[node] + tree.late_ms[node] - tree.late_ms[above]
        tree.height_ms[above] = max(tree.height_ms[above], reach_ms)
    return sum_ms


@inner
def _best_parent(tables: Tables, tree: Improving, node: Whole, aims: Aims) -> Whole:
    """The known peer with the greatest gain; -1 if the current parent is best."""
    above = tree.parent[node]
    best: Whole = np.int32(-1)
    best_gain = np.float32(1e-3)
    for relatives in range(2):
        if relatives == 1 and above == 0:
            break
        if relatives == 1:
            grandparent = tree.parent[above]
            gain = _gain(tables, tree, node, grandparent, aims)
            if gain > best_gain:
                best, best_gain = grandparent, gain
        candidate = tree.first[above] if relatives == 0 else tree.first[tree.parent[above]]
        while candidate >= 0:
            gain = _gain(tables, tree, node, candidate, aims)
            if gain > best_gain:
                best, best_gain = candidate, gain
            candidate = tree.following[candidate]
    return best


@inner
def _gain(tables: Tables, tree: Improving, node: Whole, candidate: Whole, aims: Aims) -> Ms:
    """The gain of a node below another parent; negative if it must not move there."""
    above = tree.parent[node]
    if candidate in (node, above) or tree.degree[candidate] >= aims.children:
        return np.float32(-1)
    peer, parent, other = tree.nodes[node], tree.nodes[above], tree.nodes[candidate]
    now_ms, then_ms = tree.late_ms[node] - tree.late_ms[above], delay(tables, other, peer)
    later_ms = tree.late_ms[candidate] + then_ms - tree.late_ms[node]
    latest_ms = tree.late_ms[node] + tree.height_ms[node]
    if latest_ms > aims.late_ms_max and later_ms < 0:
        return np.float32(aims.late_ms_max - later_ms)
    level = DOMAIN  # only nodes that are too late leave a scope that they share with their parent
    while scope_of(tables, parent, level) != scope_of(tables, peer, level):
        level -= 1
    if scope_of(tables, other, level) != scope_of(tables, peer, level):
        return np.float32(-1)
    if later_ms > 0 and latest_ms + later_ms > aims.late_ms_max:
        return np.float32(-1)
    nearer = DISTANCE_WEIGHT * aims.late_ms_max * np.log((now_ms + 1e-6) / (then_ms + 1e-6))
    return np.float32(nearer - aims.delay_weight * np.sqrt(tree.below[node]) * later_ms)


@inner
def _move(tables: Tables, tree: Improving, node: Whole, better: Whole) -> None:
    """Move a node below another parent: its grandparent, a sibling, or its parent's sibling."""
    above = tree.parent[node]
    if tree.first[above] == node:
        tree.first[above] = tree.following[node]
    else:
        at = tree.first[above]
        while tree.following[at] != node:
            at = tree.following[at]
        tree.following[at] = tree.following[node]
    tree.following[node] = tree.first[better]
    tree.first[better] = node
    tree.degree[above] -= 1
    tree.degree[better] += 1
    if tree.parent[better] != above:
        tree.below[above] -= tree.below[node]
    if above == 0 or better != tree.parent[above]:
        tree.below[better] += tree.below[node]
    tree.parent[node] = better
    apart_ms = delay(tables, tree.nodes[better], tree.nodes[node])
    tree.late_ms[node] = tree.late_ms[better] + apart_ms
    tree.height_ms[better] = max(tree.height_ms[better], tree.height_ms[node] + apart_ms)


@njit(cache=True)
def _down(first: Ints, following: Ints) -> Ints:
    """Nodes by depth."""
    order = np.empty(len(first), np.int32)
    order[0] = 0
    tail = 1
    for head in range(len(order)):
        child = first[order[head]]
        while child >= 0:
            order[tail] = child
            tail += 1
            child = following[child]
    return order
