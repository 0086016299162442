"""A tree for each publishing peer, with that peer as its root."""

import numpy as np

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, Modifier
from quillcast.evaluation.policies.members import publishers
from quillcast.evaluation.routing.pastry import Tables


class Source(Modifier):
    """The policy's tree, once for each publisher: events do not take the way to a rendezvous point first.

    The key of each tree is the publisher's nodeId, so the publisher is its root (Scribe, section 3.1, topic management:
    the creator can choose a topicId that makes it the root). A peer keeps children for each tree that it is in.
    """

    def groups(self, tables: Tables, group: Group) -> list[Group]:
        """A group with its own key for each publisher."""
        return [group._replace(key=int(tables.ids[peer]), publishers=np.array([peer])) for peer in publishers(group)]

    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree, marked as the publisher's own."""
        (source,) = group.publishers.tolist()
        if tree.nodes[0] != source:
            raise LocalError("+source needs a policy whose tree has its root at the group's key, such as scribe")
        return tree._replace(source=source)
