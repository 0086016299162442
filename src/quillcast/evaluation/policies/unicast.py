"""Naive unicast: the publisher sends directly to each member."""

import numpy as np

from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.members import first, tree_of_members
from quillcast.evaluation.routing.pastry import Tables
from quillcast.evaluation.workload import creator


class Unicast(PolicyKernel):
    """One message per member from the creator, which is the source and keeps the list.

    The yardstick that Chu, Rao and Zhang call naive unicast ("A case for end system multicast", SIGMETRICS 2000,
    section 2).
    """

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree: the creator, and the other members below it."""
        nodes = first(creator(group), group.members)
        parent = np.zeros(len(nodes), np.int32)
        parent[0] = -1
        return [tree_of_members(nodes, parent)]
