"""Scribe with the tree's root at the creator."""

import numpy as np

from quillcast.pipeline.evaluate.network import Group, Tree
from quillcast.pipeline.evaluate.policies.policy import Base, Load, tree_of
from quillcast.pipeline.evaluate.policies.scribe import union_of_routes
from quillcast.pipeline.evaluate.routing import Tables
from quillcast.pipeline.evaluate.workload import creator


class CreatorRooted(Base):
    """Scribe, section 3.1, topic management: a topicId chosen so that the creator is the rendezvous point.

    The key is the creator's nodeId, and everything else is as in `Scribe`.
    """

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree, the union of the members' routes to the creator."""
        key = np.uint64(tables.ids[creator(group)])
        return [tree_of(*union_of_routes(tables, key, group.members, self.scratch.where(len(tables.ids))))]
