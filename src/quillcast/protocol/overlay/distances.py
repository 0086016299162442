"""The distances of other peers, and the time-outs that follow from them."""

from quillcast.core.host import Host
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.routingtable import UNKNOWN, RoutingTable


class Distances:
    """Round-trip times measured by the host, seen by the failure detector, or reported by other peers."""

    __slots__ = ("_host", "_neighbours", "_table")

    def __init__(self, host: Host, neighbours: Neighbours, table: RoutingTable) -> None:
        self._host, self._neighbours, self._table = host, neighbours, table

    def to(self, node_id: bytes) -> float:
        """The round-trip time to a peer in seconds, from the host or the failure detector; otherwise `UNKNOWN`."""
        measured = self._host.proximity(NodeId(node_id))
        if measured is None:
            measured = self._neighbours.round_trip(node_id)
        return UNKNOWN if measured is None else measured

    def timeout(self, node_id: bytes) -> float:
        """How long an answer of this peer may take in seconds, by measured or reported round trips."""
        return self._neighbours.timeout(node_id, self._table.reported_proximity(node_id))

    def answered(self, node_id: bytes, round_trip_s: float) -> None:
        """Take the round-trip time of an answer into account for the time-out."""
        self._neighbours.answered(node_id, round_trip_s)

    def doubt(self, contact: Contact) -> None:
        """Probe a peer, with the time-out that its distance requires."""
        self._neighbours.probe(contact, self._table.reported_proximity(contact.node_id))
