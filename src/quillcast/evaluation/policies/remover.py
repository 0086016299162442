"""The bottleneck remover: a peer with too many children sheds its farthest (Scribe, section 5.3)."""

from typing import NamedTuple

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Group, Ints, Tree
from quillcast.evaluation.policies.kernel import LOAD_STEPS, Load, Modifier, children_counts, tree_of
from quillcast.evaluation.routing.pastry import Tables, Whole, delay


class Remover(Modifier):
    """No peer has more children than a limit over all groups.

    A peer over the limit cuts its largest children tables first. A dropped child joins the sibling that gives the least
    total delay to their parent; a sibling over its own limit sheds in turn.

    Groups are processed separately, so a peer's limit is divided among its groups beforehand. The load of all groups
    determines the largest table size, a power of two, for an overloaded peer, and the remaining room is shared evenly.
    A peer that forwards in more groups than its limit keeps one child in each, and so stays over the limit. So does a
    peer that has no child with room for another, which happens only with limits near the mean.
    """

    needs_load = True

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise LocalError(f"remover({limit}): use a limit of at least 1")
        self.children_max: int = limit

    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree after all shedding."""
        if load is None:
            raise ValueError("the remover needs the load of all groups")
        room = allowances(tree, load, self.children_max)
        parent, shed = shed_farthest(tables, tree.nodes, tree.parent, room)
        return with_parents(tree, parent, shed)


def allowances(tree: Tree, load: Load, limit: int) -> Ints:
    """The most children of each node in this tree, so that no peer exceeds the limit over all groups."""
    children = children_counts(tree).astype(np.int64)
    entries, trees = load.entries[tree.nodes], load.trees[tree.nodes]
    capped = load.capped[tree.nodes]
    fits = capped <= limit
    step = np.where(fits.any(axis=1), LOAD_STEPS - 1 - fits[:, ::-1].argmax(axis=1), 0)
    cut = entries > limit
    kept = np.where(cut, np.minimum(children, 1 << step), children)
    used = np.where(cut, capped[np.arange(len(step)), step], entries)
    spare = np.maximum(limit - used, 0) // np.maximum(trees, 1)
    return np.asarray(kept + spare, np.int32)


def with_parents(tree: Tree, parent: Ints, moves: Ints) -> Tree:
    """The tree with other parents. Each node that moved sent further Joins, which its new parents handled."""
    extra_joins = tree.joins + np.bincount(parent[1:], moves[1:], minlength=len(parent)).astype(np.int32)
    made = tree_of(tree.nodes, parent, tree.member, weight=tree.weight, joins=extra_joins)
    return made._replace(extra=tree.extra, source=tree.source)


class Family(NamedTuple):
    """Children as linked lists: the first child and the next sibling of each node; -1 ends a list."""

    first: Ints
    following: Ints


@njit(cache=True)
def family(parent: Ints) -> Family:
    """The children of each node."""
    first = np.full(len(parent), -1, np.int32)
    following = np.full(len(parent), -1, np.int32)
    for node in range(len(parent) - 1, 0, -1):
        following[node] = first[parent[node]]
        first[parent[node]] = node
    return Family(first, following)


@njit(cache=True)
def shed_farthest(tables: Tables, nodes: Ints, parent: Ints, room: Ints) -> tuple[Ints, Ints]:
    """Parents such that no node has more children than its room, and how often each node was shed.

    From the root down: a node with too many children keeps its nearest. The others move, the farthest first, below the
    kept sibling that gives the shortest distance to the node. At least one kept child has room.
    """
    count = len(nodes)
    parent, shed = parent.copy(), np.zeros(count, np.int32)
    first, following = family(parent)
    queue, apart, children = np.empty(count, np.int32), np.empty(count, np.float32), np.empty(count, np.int32)
    queue[0] = 0
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        size = 0
        child = first[node]
        while child >= 0:
            children[size], apart[size] = child, delay(tables, nodes[node], nodes[child])
            size += 1
            child = following[child]
        kept = size
        if size > room[node]:
            _sort(apart, children, size)
            kept = max(1, room[node])
            _keep_one_with_room(children[:size], apart[:size], kept, room)
            _move_below(tables, nodes, parent, first, following, children[:size], apart[:size], kept, room)
            shed[children[kept:size]] += 1
            first[node] = -1
            for at in range(kept - 1, -1, -1):
                following[children[at]] = first[node]
                first[node] = children[at]
        for at in range(kept):
            queue[tail] = children[at]
            tail += 1
    return parent, shed


@njit(cache=True)
def _sort(apart: Floats, children: Ints, size: Whole) -> None:
    """Order the first `size` children by distance, then by number (Shell sort: no array, fast to compile)."""
    gap = 1
    while gap < size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for start in range(gap, size):
            child, far, at = children[start], apart[start], start
            while at >= gap and (apart[at - gap] > far or (apart[at - gap] == far and children[at - gap] > child)):
                children[at], apart[at] = children[at - gap], apart[at - gap]
                at -= gap
            children[at], apart[at] = child, far
        gap //= 3


@njit(cache=True)
def _keep_one_with_room(children: Ints, apart: Floats, kept: Whole, room: Ints) -> None:
    """If no kept child has room, replace the farthest kept one by the nearest with room."""
    for at in range(len(children)):
        if room[children[at]] > 0:
            if at >= kept:
                children[kept - 1], children[at] = children[at], children[kept - 1]
                apart[kept - 1], apart[at] = apart[at], apart[kept - 1]
            return


@njit(cache=True)
def _move_below(
    tables: Tables,
    nodes: Ints,
    parent: Ints,
    first: Ints,
    following: Ints,
    children: Ints,
    apart: Floats,
    kept: Whole,
    room: Ints,
) -> None:
    """Move those that are not kept below kept siblings, the farthest first."""
    for at in range(len(children) - 1, kept - 1, -1):
        child, best, best_ms, best_full = children[at], np.int32(-1), np.float32(np.inf), True
        for sibling_at in range(kept):
            sibling = children[sibling_at]
            through_ms = apart[sibling_at] + delay(tables, nodes[sibling], nodes[child])
            full = room[sibling] <= 0
            if (best_full and not full) or (full == best_full and through_ms < best_ms):
                best, best_ms, best_full = sibling, through_ms, full
        parent[child] = best
        following[child] = first[best]
        first[best] = child
