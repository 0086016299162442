"""Empty cells of the routing table, filled when a message needs them (Pastry's lazy repair)."""

from quillcast.core.host import Host
from quillcast.core.ids import number
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.messages import RowRequest
from quillcast.protocol.overlay.routingtable import RoutingTable


class LazyRepair:
    """Asks the next hop for the row in which a cell is empty, once a round for each row."""

    __slots__ = ("_asked", "_host", "_table")

    def __init__(self, host: Host, table: RoutingTable) -> None:
        self._host, self._table = host, table
        self._asked: dict[int, None] = {}  # rows that were asked for since the last round

    def lacks(self, key: bytes, hop: Contact) -> None:
        """If no peer is known with a longer prefix of the key, the next hop may have a row that knows one."""
        value = number(key)
        row = self._table.shared(value)
        if self._table.lookup(value) is None and row not in self._asked:
            self._asked[row] = None
            self._host.trace(Mark("lazy_repair"))
            self._host.send(hop, RowRequest(row))

    def end_round(self) -> None:
        """Rows may be asked for again."""
        self._asked.clear()
