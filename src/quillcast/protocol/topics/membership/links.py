"""The tree links of a peer: in how many topics a neighbour is its parent or its child (docs/design.md, decision 4)."""

from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.state.link_reports import ChildReport, LinkReport, decode


class TreeLinks:
    """Neighbours by the number of topics in which they have this role. Each is watched once, however many those are.

    The topics themselves are not stored twice: the neighbour is told something about each (`Streams.telling`).
    """

    def __init__(self, neighbours: Neighbours, streams: Streams, user: str, heartbeat_s: float) -> None:
        """`user` names these neighbours' role to the failure detector: parent or child."""
        self.neighbours, self.streams, self.user, self.heartbeat_s = neighbours, streams, user, heartbeat_s
        self.counts: dict[bytes, int] = {}

    def add(self, contact: Contact) -> None:
        """The neighbour has this role in one more topic."""
        count = self.counts.get(contact.node_id, 0)
        self.counts[contact.node_id] = count + 1
        if count == 0:
            self.neighbours.watch(contact, self.user, self.heartbeat_s)

    def remove(self, node: bytes) -> None:
        """The neighbour has this role in one topic less."""
        self.counts[node] -= 1
        if self.counts[node] == 0:
            del self.counts[node]
            self.neighbours.unwatch(node, self.user)

    def told(self, node: bytes, topic: bytes) -> LinkReport | None:
        """Return the neighbour's latest report on a topic."""
        report = self.streams.told(node).get(topic)
        return decode(report) if report is not None else None

    def run_of(self, node: bytes) -> bytes:
        """Return the incarnation of all the neighbour's reports here; empty if more of it was asked for."""
        return self.streams.run_of(node)

    def ask_anew(self, contact: Contact, topic: bytes) -> None:
        """Have the neighbour report its present state of a topic again."""
        self.streams.ask_anew(contact, topic)

    def is_leaf(self, node: bytes, topic: bytes) -> bool:
        """Whether a child reports that nobody is below it."""
        report = self.told(node, topic)
        return isinstance(report, ChildReport) and report.leaf

    def crowded(self, node: bytes) -> bool:
        """Whether there is no room for reports on one more topic."""
        return self.streams.crowded(node)

    def drop(self, contact: Contact, topic: bytes) -> None:
        """Stop reporting on a topic in which the neighbour no longer has this role."""
        self.streams.drop(contact, topic)
