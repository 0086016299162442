"""A balanced k-ary tree of the members."""

from typing import Literal

import numpy as np

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import check_argument, first, in_random_order, planned
from quillcast.evaluation.routing.pastry import Tables
from quillcast.evaluation.workload import creator

CHILDREN = 16  # children_per_topic_max, as everywhere in this project


class Kary(PolicyKernel):
    """The creator at the top, and each level filled before the next: node i is a child of node (i - 1) / k.

    A scope manager that knows its members but not their delays can do this (docs/design.md, section 5).
    Simplified: all members are known before the tree is built.

    Args:
        k: children of a node.
        order: `random`, or `id`: members in the order of their nodeIds.
    """

    def __init__(self, k: int = CHILDREN, order: Literal["random", "id"] = "random") -> None:
        super().__init__()
        self.children_max: int = check_argument("k of k_ary", k, 1, 1 << 30)
        if order not in ("random", "id"):
            raise LocalError(f"the order of k_ary is {order}; it must be random or id")
        self.order = order

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree."""
        source = creator(group)
        nodes = first(source, group.members) if self.order == "id" else in_random_order(group, source)
        return [planned(nodes, ((np.arange(len(nodes)) - 1) // self.children_max).astype(np.int32))]
