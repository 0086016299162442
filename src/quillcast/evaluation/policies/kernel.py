"""What every policy and modifier of an evaluation is, and what they know of all groups together."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.network import Flags, Group, Ints, Tree
from quillcast.evaluation.routing.pastry import Tables

LOAD_STEPS = 7  # tables of children are counted up to 1, 2, 4 ... 64


class Load(NamedTuple):
    """How much each peer has to do in all groups together, before any modifier that needs to know has acted.

    Loads of parts of the groups add up to the load of all, so partitions may count on their own.

    Args:
        entries: in the peer's children tables, int64 [peers].
        trees: how many trees it is in, int32 [peers].
        capped: the entries if no table had more than 2**step, int32 [peers, LOAD_STEPS].
    """

    entries: npt.NDArray[np.int64]
    trees: Ints
    capped: Ints

    @classmethod
    def none(cls, peers: int) -> Self:
        """Of no group."""
        return cls(np.zeros(peers, np.int64), np.zeros(peers, np.int32), np.zeros((peers, LOAD_STEPS), np.int32))

    def add(self, tree: Tree) -> None:
        """Count one more tree."""
        _add_load(tree.nodes, tree.parent, self.entries, self.trees, self.capped)

    def __add__(self, other: object) -> "Load":
        if not isinstance(other, Load):
            return NotImplemented
        return Load(self.entries + other.entries, self.trees + other.trees, self.capped + other.capped)


class Scratch:
    """An int32 per peer, all -1 between uses: kernels note there where in a tree a peer stands."""

    def __init__(self) -> None:
        self._where = np.empty(0, np.int32)

    def where(self, peers: int) -> Ints:
        """The array for so many peers. Whoever writes there writes -1 back."""
        if len(self._where) != peers:
            self._where = np.full(peers, -1, np.int32)
        return self._where


class PolicyKernel(ABC):
    """A policy by itself: it makes a group's trees from nothing."""

    needs_load = False
    """Must `trees` be told the load of all groups?"""

    children_max: int | None = None
    """The most children of a peer in one group, however large it is; None: no bound."""

    def __init__(self) -> None:
        self.scratch = Scratch()

    @abstractmethod
    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """How the group's events travel: one tree, or several that carry a share each."""


class Splittable(PolicyKernel):
    """A policy whose tree is the union of its members' routes, so that parts of a group may be worked on apart."""

    @abstractmethod
    def routes(self, tables: Tables, group: Group, members: Ints) -> tuple[Ints, Ints]:
        """The peers on the routes of some of the group's members, and the next hop of each, -1 for the root."""

    @abstractmethod
    def joined(self, tables: Tables, group: Group, nodes: Ints, parents: Ints) -> Tree:
        """The tree, out of the routes of all parts in the order of the members: the same as of the whole group."""


class Modifier(ABC):
    """What follows a `+`: it changes a tree that is there."""

    needs_load = False
    """Must `change` be told the load of all groups, as it is without this modifier?"""

    children_max: int | None = None
    """The most children of a peer in one group that it leaves; None: no more than there were."""

    def __init__(self) -> None:
        self.scratch = Scratch()

    @abstractmethod
    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree as the modifier leaves it."""


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

    `nodes`, `parent` and `member` as in `Tree`; in any order, except that the root is first. `state` and `joins`
    replace what is kept and handled.
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
    """How many children each node has, int32 [nodes]."""
    return np.bincount(tree.parent[1:], minlength=len(tree.nodes)).astype(np.int32)


@njit(cache=True)
def _parents_first(nodes: Ints, parent: Ints, member: Flags) -> tuple[Ints, Ints, Flags, Ints]:
    """Order nodes by depth; also gives where each stood before."""
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
