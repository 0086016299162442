"""Fills empty cells of the routing table when a message needs them (Pastry's lazy repair)."""

from quillcast.core.host import Host
from quillcast.core.ids import number
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.messages import RowRequest
from quillcast.protocol.overlay.routingtable import RoutingTable


class LazyRepair:
    """Asks the next hop for the row with an empty cell, at most once per round for each row."""

    __slots__ = ("_asked", "_host", "_table")

    def __init__(self, host: Host, table: RoutingTable) -> None:
        self._host, self._table = host, table
        self._asked: dict[int, None] = EMPTY  # rows requested since the last round

    def request_row(self, key: bytes, hop: Contact) -> None:
        """If no known peer shares a longer prefix with `key`, ask the next hop for its row, which may contain one."""
        value = number(key)
        row = self._table.shared(value)
        if self._table.lookup(value) is None and row not in self._asked:
            self._asked = self._asked or {}
            self._asked[row] = None
            self._host.trace(Mark("lazy_repair"))
            self._host.send(hop, RowRequest(row))

    def end_round(self) -> None:
        """Allow further requests for each row."""
        self._asked.clear()
