"""A tree for each publishing peer, with that peer as its root."""

import numpy as np

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Group, Tree
from quillcast.evaluation.policies.kernel import Load, Modifier
from quillcast.evaluation.policies.members import publishers
from quillcast.evaluation.routing.pastry import Tables


class Source(Modifier):
    """The policy's tree, once for each publisher: events do not travel to a rendezvous point first.

    The key of each tree is the publisher's nodeId, so the publisher is its root (Scribe, section 3.1, topic management:
    the creator can choose a topicId that makes it the root). A peer keeps children for each tree that it is in.
    """

    def groups(self, tables: Tables, group: Group) -> list[Group]:
        """For each publisher a group that it created, with its nodeId as the key."""
        return [
            group._replace(key=int(tables.ids[peer]), publishers=np.array([peer]), creator=peer)
            for peer in publishers(group)
        ]

    def change(self, tables: Tables, group: Group, tree: Tree, load: Load | None) -> Tree:
        """The tree, marked as the publisher's own."""
        (source,) = group.publishers.tolist()
        if tree.nodes[0] != source:
            raise LocalError("+source needs a policy whose tree has its root at the group's key or its creator")
        member = tree.member.copy()
        member[0] = source in group.members  # policies of members only take their root for one
        return tree._replace(member=member, source=source)
