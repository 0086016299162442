"""The tree links of a peer: in which topics a neighbour is its parent, or its child (DESIGN.md, decision 4)."""

from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.neighbours import Neighbours


class TreeLinks:
    """Topics by neighbour. However many there are, each neighbour is watched once."""

    def __init__(self, neighbours: Neighbours, user: str, heartbeat_s: float) -> None:
        """`user` names to the failure detector what these neighbours are here: parent or child."""
        self.neighbours, self.user, self.heartbeat_s = neighbours, user, heartbeat_s
        self.topics: dict[bytes, dict[bytes, None]] = {}

    def add(self, contact: Contact, topic: bytes) -> None:
        """The neighbour has this part in one more topic."""
        if contact.node_id not in self.topics:
            self.topics[contact.node_id] = {}
            self.neighbours.watch(contact, self.user, self.heartbeat_s)
        self.topics[contact.node_id][topic] = None

    def remove(self, node: bytes, topic: bytes) -> None:
        """The neighbour has this part in the topic no more."""
        topics = self.topics.get(node)
        if topics is None:
            return
        topics.pop(topic, None)
        if not topics:
            del self.topics[node]
            self.neighbours.unwatch(node, self.user)

    @property
    def pairs(self) -> set[tuple[bytes, bytes]]:
        """Neighbour and topic, for checks."""
        return {(node, topic) for node, topics in self.topics.items() for topic in topics}
