"""The tables of a Pastry node about other nodes (Pastry, section 2.1)."""

from typing import NamedTuple

from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.neighbourhood import NeighbourhoodSet
from quillcast.protocol.overlay.routingtable import RoutingTable


class Tables(NamedTuple):
    """The three tables of a Pastry node."""

    leaf_set: LeafSet
    routing_table: RoutingTable
    neighbourhood: NeighbourhoodSet
