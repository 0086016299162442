"""What peers did in a simulation, in the order in which they did it."""

from collections.abc import Callable

from quillcast.core.trace import Mark, Record


class Journal:
    """What peers did: records with the time and the number of the machine. `keep` limits which kinds are kept."""

    def __init__(self, keep: frozenset[type[Record]] | None = None) -> None:
        self.records: list[tuple[float, int, Record]] = []
        self.marks: dict[str, int] = {}
        self.listeners: list[Callable[[float, int, Record], None]] = []
        self._keep = keep

    def note(self, at: float, machine: int, record: Record) -> None:
        """Take a record down and pass it on to whoever listens."""
        if isinstance(record, Mark):
            self.marks[record.name] = self.marks.get(record.name, 0) + 1
        if self._keep is None or type(record) in self._keep:
            self.records.append((at, machine, record))
        for listener in self.listeners:
            listener(at, machine, record)
