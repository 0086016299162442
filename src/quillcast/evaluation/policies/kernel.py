"""The interfaces of evaluated policies and modifiers, and the load of all groups that they may use."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.routing.pastry import Tables

LOAD_STEPS = 7  # tables of children are counted up to 1, 2, 4 ... 64


class Load(NamedTuple):
    """The load of each peer in all groups together, before any modifier that needs to know it.

    Loads of some groups can be added, so partitions may count separately.

    Args:
        entries: in the peer's children tables, int64 [peers].
        trees: the number of trees that it is in, int32 [peers].
        capped: the entries if no table had more than 2**step, int32 [peers, LOAD_STEPS].
    """

    entries: npt.NDArray[np.int64]
    trees: Ints
    capped: Ints

    @classmethod
    def none(cls, peers: int) -> Self:
        """The load of no groups."""
        return cls(np.zeros(peers, np.int64), np.zeros(peers, np.int32), np.zeros((peers, LOAD_STEPS), np.int32))

    def add(self, tree: Tree) -> None:
        """Add one tree."""
        _add_load(tree.nodes, tree.parent, self.entries, self.trees, self.capped)

    def put(self, peers: Ints, entries: npt.NDArray[np.int64], trees: Ints, capped: Sequence[Ints]) -> None:
        """Enter the loads of these peers; `capped` has one array a step."""
        self.entries[peers], self.trees[peers] = entries, trees
        for step, column in enumerate(capped):
            self.capped[peers, step] = column

    def __add__(self, other: object) -> "Load":
        if not isinstance(other, Load):
            return NotImplemented
        return Load(self.entries + other.entries, self.trees + other.trees, self.capped + other.capped)


class Scratch:
    """An int32 per peer, all -1 between uses, where kernels record each peer's index in a tree."""

    def __init__(self) -> None:
        self._where = np.empty(0, np.int32)

    def where(self, peers: int) -> Ints:
        """The array for this many peers. Users must restore every -1 that they overwrite."""
        if len(self._where) != peers:
            self._where = np.full(peers, -1, np.int32)
        return self._where


class PolicyKernel(ABC):
    """A policy by itself: it builds a group's trees from scratch."""

    needs_load = False
    """Whether `trees` needs the load of all groups."""

    children_max: int | None = None
    """The most children of a peer in one group, independent of its size; None: no bound."""

    def __init__(self) -> None:
        self.scratch = Scratch()

    @abstractmethod
    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """The trees for the group's events: one tree, or several that carry a share each."""


class Splittable(PolicyKernel):
    """A policy whose tree is the union of its members' routes, so that a group can be processed in parts."""

    @abstractmethod
    def routes(self, tables: Tables, group: Group, members: Ints) -> tuple[Ints, Ints]:
        """The peers on the routes of some of the group's members, and the next hop of each; -1 for the root."""

    @abstractmethod
    def joined(self, tables: Tables, group: Group, nodes: Ints, parents: Ints) -> Tree:
        """The tree from the routes of all parts in the order of the members: the same as for the whole group."""


class Modifier(ABC):
    """A policy's part after a `+`: it changes an existing tree."""

    needs_load = False
    """Whether `change` needs the load of all groups, as it is without this modifier."""

    children_max: int | None = None
    """The most children of a peer in one group after the change; None: no more than before."""

    def groups(self, tables: Tables, group: Group) -> list[Group]:
        """The groups to build trees for in place of this one."""
        return [group]

    @abstractmethod
    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The changed tree."""


def tree_of(
    nodes: Ints,
    parent: Ints,
    member: Flags,
    *,
    weight: float = 1.0,
    state: Ints | None = None,
    joins: Ints | None = None,
) -> Tree:
    """A tree whose nodes keep an entry for each child and handle a message for each child that joins, as in Scribe.

    `nodes`, `parent` and `member` are as in `Tree`, in any order with the root first. `state` and `joins` override the
    numbers of entries and messages.
    """
    nodes, parent, member, turned = _parents_first(nodes, parent, member)
    children = np.bincount(parent[1:], minlength=len(nodes)).astype(np.int32)
    return Tree(
        nodes=nodes,
        parent=parent,
        member=member,
        weight=weight,
        extra=np.empty((0, 2), np.int32),
        state=children if state is None else state[turned],
        joins=children if joins is None else joins[turned],
    )


def children_counts(tree: Tree) -> Ints:
    """The number of children of each node, int32 [nodes]."""
    return np.bincount(tree.parent[1:], minlength=len(tree.nodes)).astype(np.int32)


@njit(cache=True)
def _parents_first(nodes: Ints, parent: Ints, member: Flags) -> tuple[Ints, Ints, Flags, Ints]:
    """Order nodes by depth; also returns their former indexes."""
    count = len(nodes)
    depth = np.full(count, -1, np.int32)
    depth[0] = 0
    path = np.empty(count, np.int32)
    deepest = 0
    for node in range(count):
        length, at = 0, node
        while depth[at] < 0:
            path[length] = at
            length += 1
            at = parent[at]
        below = depth[at]
        for step in range(length - 1, -1, -1):
            below += 1
            depth[path[step]] = below
        deepest = max(deepest, below)
    starts = np.zeros(deepest + 2, np.int32)
    for node in range(count):
        starts[depth[node] + 1] += 1
    for level in range(deepest + 1):
        starts[level + 1] += starts[level]
    turned, place = np.empty(count, np.int32), path
    for node in range(count):
        place[node] = starts[depth[node]]
        turned[place[node]] = node
        starts[depth[node]] += 1
    up = np.empty(count, np.int32)
    up[0] = -1
    for node in range(1, count):
        up[place[node]] = place[parent[node]]
    return nodes[turned], up, member[turned], turned


@njit(cache=True)
def _add_load(nodes: Ints, parent: Ints, entries: npt.NDArray[np.int64], trees: Ints, capped: Ints) -> None:
    children = np.zeros(len(nodes), np.int32)
    for node in range(1, len(nodes)):
        children[parent[node]] += 1
    for node in range(len(nodes)):
        peer = nodes[node]
        entries[peer] += children[node]
        trees[peer] += 1
        for step in range(LOAD_STEPS):
            capped[peer, step] += min(children[node], 1 << step)
