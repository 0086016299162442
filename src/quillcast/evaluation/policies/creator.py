"""Scribe with the tree's root at the creator."""

import numpy as np

from quillcast.evaluation.network import Group
from quillcast.evaluation.policies.scribe import Scribe
from quillcast.evaluation.routing.pastry import Tables, Word
from quillcast.evaluation.workload import creator


class CreatorRooted(Scribe):
    """Scribe, section 3.1, topic management: a topicId chosen so that the creator is the rendezvous point.

    The key is the creator's nodeId; everything else is as in `Scribe`.
    """

    def key(self, tables: Tables, group: Group) -> Word:
        """The creator's nodeId."""
        return np.uint64(tables.ids[creator(group)])
