"""Check the trees of policies from other packages. The tests check those of our own."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from quillcast.evaluation import plugins
from quillcast.evaluation.metrics import carried
from quillcast.evaluation.network import Group, Tree


def checked(part: object, made: Any, group: Group, peers: int) -> list[Tree]:
    """Return the result of a policy or modifier. Raises ValueError for its author if it is not a tree.

    Checks only those of other packages.
    """
    if plugins.is_foreign(part):
        if not isinstance(made, list) or not made or not all(isinstance(tree, Tree) for tree in made):
            raise ValueError("it must return a list of Tree, and with at least one")
        for tree in made:
            for fault in _faults(tree, group, peers):
                raise ValueError(f"{fault}; tree_of makes sound trees")
        for source in {tree.source for tree in made}:
            if not np.isclose(sum(tree.weight for tree in carried(made, source)), 1):
                raise ValueError("the weights of the trees that carry a source's events must add up to 1")
    trees: list[Tree] = made
    return trees


def _faults(tree: Tree, group: Group, peers: int) -> Iterator[str]:
    """List the faults of a tree, the most basic first."""
    count = len(tree.nodes)
    kinds = {"nodes": np.int32, "parent": np.int32, "member": np.bool_, "state": np.int32, "joins": np.int32}
    for name, kind in kinds.items():
        array = getattr(tree, name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != (count,):
            yield f"{name} must be an array of {np.dtype(kind).name}, one for each node"
    if tree.extra.dtype != np.int32 or tree.extra.ndim != 2:
        yield "extra must be pairs of peers, an array of int32"
    if not count or tree.nodes.min() < 0 or tree.nodes.max() >= peers or len(np.unique(tree.nodes)) != count:
        yield f"nodes must be different peers, numbers from 0 to {peers - 1}"
    if tree.parent[0] != -1 or (tree.parent[1:] < 0).any() or (tree.parent[1:] >= np.arange(1, count)).any():
        yield "parent must be -1 for the root, the first node, and for others the index of an earlier node"
    if not np.array_equal(np.sort(tree.nodes[tree.member]), group.members):
        yield "member must be true for each of the group's members, and no other node"
