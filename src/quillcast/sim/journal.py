"""The trace records of all peers of a simulation, in order."""

from collections.abc import Callable

from quillcast.core.trace import Mark, Record


class Journal:
    """Trace records with their time and machine number. `keep` limits which kinds are kept."""

    def __init__(self, keep: frozenset[type[Record]] | None = None) -> None:
        self.records: list[tuple[float, int, Record]] = []
        self.marks: dict[str, int] = {}
        self.listeners: list[Callable[[float, int, Record], None]] = []
        self._keep = keep

    def listen(self, listener: Callable[[float, int, Record], None]) -> None:
        """Pass each record to a listener from now on."""
        self.listeners.append(listener)

    def note(self, at: float, machine: int, record: Record) -> None:
        """Record it, and pass it on to all listeners."""
        if isinstance(record, Mark):
            self.marks[record.name] = self.marks.get(record.name, 0) + 1
        if self._keep is None or type(record) in self._keep:
            self.records.append((at, machine, record))
        for listener in self.listeners:
            listener(at, machine, record)
