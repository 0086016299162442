"""Naive unicast: the publisher sends to each member itself."""

import numpy as np

from quillcast.pipeline.evaluate.network import Group, Tree
from quillcast.pipeline.evaluate.policies.members import first, tree_of_members
from quillcast.pipeline.evaluate.policies.policy import Base, Load
from quillcast.pipeline.evaluate.routing import Tables
from quillcast.pipeline.evaluate.workload import creator


class Unicast(Base):
    """One message per member from the creator, which is the source and keeps the list.

    The yardstick that Chu, Rao and Zhang call naive unicast ("A case for end system multicast", SIGMETRICS 2000,
    section 2).
    """

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree, of the creator and the other members below it."""
        nodes = first(creator(group), group.members)
        parent = np.zeros(len(nodes), np.int32)
        parent[0] = -1
        return [tree_of_members(nodes, parent)]
