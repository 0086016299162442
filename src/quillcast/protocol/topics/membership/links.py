"""The tree links of a peer: in how many topics a neighbour is its parent, or its child (docs/design.md, decision 4)."""

from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.neighbours import Neighbours


class TreeLinks:
    """Neighbours by the number of topics in which they have this part. However many those are, each is watched once.

    Which topics these are is not kept twice: of each the neighbour is told something (`Streams.telling`).
    """

    def __init__(self, neighbours: Neighbours, user: str, heartbeat_s: float) -> None:
        """`user` names to the failure detector what these neighbours are here: parent or child."""
        self.neighbours, self.user, self.heartbeat_s = neighbours, user, heartbeat_s
        self.counts: dict[bytes, int] = {}

    def add(self, contact: Contact) -> None:
        """The neighbour has this part in one more topic."""
        count = self.counts.get(contact.node_id, 0)
        self.counts[contact.node_id] = count + 1
        if count == 0:
            self.neighbours.watch(contact, self.user, self.heartbeat_s)

    def remove(self, node: bytes) -> None:
        """The neighbour has this part in one topic less."""
        self.counts[node] -= 1
        if self.counts[node] == 0:
            del self.counts[node]
            self.neighbours.unwatch(node, self.user)
