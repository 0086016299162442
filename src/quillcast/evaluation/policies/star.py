"""The rendezvous point sends directly to each member."""

import numpy as np

from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, PolicyKernel
from quillcast.evaluation.policies.unicast import star
from quillcast.evaluation.routing.pastry import Tables, root_of


class Star(PolicyKernel):
    """Scribe without trees: the topic's root (Scribe, section 3.1) keeps the list of members and sends to all.

    Simplified: members know the root's address, so a join is one message.
    """

    def trees(self, tables: Tables, group: Group, load: Load | None) -> list[Tree]:
        """One tree: the root, and the members below it."""
        return [star(int(root_of(tables, np.uint64(group.key))), group)]
