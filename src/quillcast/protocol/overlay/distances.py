"""How far away other peers are, and how long to wait for them."""

from quillcast.core.host import Host
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.routingtable import UNKNOWN, RoutingTable


class Distances:
    """Round trips as the host measured them, as the failure detector saw them, and as peers of the table told them."""

    __slots__ = ("_host", "_neighbours", "_table")

    def __init__(self, host: Host, neighbours: Neighbours, table: RoutingTable) -> None:
        self._host, self._neighbours, self._table = host, neighbours, table

    def to(self, node_id: bytes) -> float:
        """Seconds of round trip to a peer, as measured by the host or by the failure detector; else `UNKNOWN`."""
        measured = self._host.proximity(NodeId(node_id))
        if measured is None:
            measured = self._neighbours.round_trip(node_id)
        return UNKNOWN if measured is None else measured

    def timeout(self, node_id: bytes) -> float:
        """How long an answer of this peer may take, measured here or told."""
        return self._neighbours.timeout(node_id, self._table.told(node_id))

    def answered(self, node_id: bytes, round_trip_s: float) -> None:
        """A peer answered so quickly, which teaches the time-out."""
        self._neighbours.answered(node_id, round_trip_s)

    def doubt(self, contact: Contact) -> None:
        """Ask a peer for a sign of life, with the patience that its distance takes."""
        self._neighbours.probe(contact, self._table.told(contact.node_id))
