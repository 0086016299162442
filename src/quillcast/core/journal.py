"""The layout of trace records in Arrow: one typed table, one row per record (docs/journal.md).

A journal is a plain Arrow stream that any Arrow library can read. All record types share the table: `COLUMN_OF_FIELD`
names the column of a field, and columns that a type does not use are null. A batch holds records of one type, so the
cost of a flush depends on the number of records, not on the width of the table.

`quillcast.pipeline.reading` reads journals.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import attrgetter
from struct import Struct, calcsize, pack
from typing import Any, NamedTuple, get_args

import msgspec

from quillcast.core import arrow
from quillcast.core.arrow import Column
from quillcast.core.ids import ID_BYTES
from quillcast.core.trace import Admitted, AnyRecord, Delivered, Published, Record

END = arrow.END
"""The last bytes of a journal that was closed. A truncated journal ends without them."""

COLUMNS: dict[str, tuple[str, str]] = {
    "peer": ("binary", "nodeId of the peer that wrote the record"),
    "started_ns": ("int64", "when the writing process opened its journal: one peer, many lives"),
    "entry": (
        "int64",
        "number of the record in its process's journal, from 0 without holes: their order",
    ),
    "at_ns": ("int64", "when, nanoseconds since 1970 UTC by the peer's own clock"),
    "record": ("string", "the record's type, as in quillcast.core.trace"),
    "topic": ("binary", "topicId; for routed messages their key"),
    "publisher": ("binary", "PublisherId"),
    "first": ("int64", "sequence of a run's first event; of Lost without a publisher: the first index"),
    "count": ("int64", "events in a run, or how many times something happened"),
    "last": ("int64", "of Lost: one past the last sequence, or the last index"),
    "term_counter": ("int64", "counter of the term of a position"),
    "term_node": ("binary", "root and incarnation of the term of a position"),
    "index": ("int64", "index of a run's first event in its term"),
    "published_ns": ("int64", "publish time of a run's first event, by its publisher's clock"),
    "other": ("binary", "the other peer: parent, child, neighbour, new root"),
    "number": ("int64", "depth, children, hops, bytes, members, version, or which subscription, by the record's type"),
    "seconds": ("double", "of Suspected: how long the neighbour was silent"),
    "delivery": ("string", "guarantee of a topic or of a subscription: best_effort or reliable"),
    "text": ("string", "how, why, where, source, kind, name or address, by the record's type"),
    "joined": ("ids", "of LeafSetChanged: peers that entered"),
    "left": ("ids", "of LeafSetChanged: peers that left"),
}
"""The name, type and meaning of every column, in order."""

COLUMN_OF_FIELD = {
    "key": "topic",
    "node": "other", "unresponsive": "other", "to": "other", "parent": "other", "child": "other",
    "leaf_set": "number", "hops": "number", "depth": "number", "children": "number", "size": "number",
    "version": "number",
    "heard_s": "seconds",
    "address": "text", "kind": "text", "name": "text", "how": "text", "why": "text", "where": "text", "source": "text",
}  # fmt: skip
"""The column of a record's field, if it is not the column of the same name. `term` takes two columns."""


class Entry(NamedTuple):
    """One record of a journal, with the fields that the journal adds."""

    peer: bytes
    started_ns: int
    entry: int
    at_ns: int
    record: Record


KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in get_args(AnyRecord)}


def _columns(kind: type[Record]) -> dict[str, str]:
    """The column of each field. Here `term` is not split."""
    fields = [field.name for field in msgspec.structs.fields(kind)]
    columns = {field: COLUMN_OF_FIELD.get(field, field) for field in fields}
    if len(set(columns.values())) < len(columns) or not COLUMNS.keys() | {"term"} >= set(columns.values()):
        raise TypeError(f"{kind.__name__} does not fit the journal's columns: {columns}; see COLUMN_OF_FIELD")
    return columns


COLUMNS_OF = {kind: _columns(kind) for kind in KINDS.values()}
"""The column of each field of a record type, in order. `term` fills two columns."""


def _cells(kind: type[Record]) -> dict[str, str]:
    """The path within a record to the value of each column. A term fills two columns."""
    term = {"term_counter": "term.counter", "term_node": "term.node"}
    cells: dict[str, str] = {}
    for field, column in COLUMNS_OF[kind].items():
        cells |= term if column == "term" else {column: field}
    return cells


_CELLS = {kind: _cells(kind) for kind in KINDS.values()}
_FORMATS = {"int64": "q", "binary": f"{ID_BYTES}s"}

RUNS = (Published, Admitted, Delivered)
"""The records that a peer writes for every run of events: many, compared to all others."""


ALWAYS = ("peer", "started_ns", "entry", "at_ns", "record")
"""The columns without nulls."""


@cache
def stream() -> arrow.Stream:
    """The encoder of the journal's batches. The first call takes some milliseconds and loads nanoarrow."""
    return arrow.Stream([arrow.Field(name, kind, name not in ALWAYS) for name, (kind, _) in COLUMNS.items()])


def beginning() -> bytes:
    """The first bytes of every journal file: the schema."""
    return stream().schema


class RecordBuffer:
    """The noted records of a process that are not yet encoded, at most `rows_max`.

    `started_ns` is when the process opened the journal, in nanoseconds since 1970 UTC.
    """

    def __init__(self, peer: bytes, started_ns: int, rows_max: int) -> None:
        self.noted = 0
        """The number of records since the beginning, which is the number of the next record."""
        self.waiting = 0
        """The number of records since the last call of `lay_out`."""
        self._life = {"peer": peer, "started_ns": pack("=q", started_ns)}
        self._columns: dict[type[Record], ColumnBuffer] = {
            kind: ColumnBuffer(kind, self._life, rows_max) for kind in RUNS
        }
        self._others: dict[type[Record], list[tuple[int, int, Record]]] = {}

    def note(self, came: Iterable[tuple[int, Record]]) -> None:
        """Add records, each with its time in nanoseconds since 1970 UTC."""
        for at_ns, record in came:
            buffer = self._columns.get(type(record))
            if buffer is None or not buffer.note(self.noted, at_ns, record):
                self._others.setdefault(type(record), []).append((self.noted, at_ns, record))
            self.noted += 1
            self.waiting += 1

    def lay_out(self) -> list[bytes]:
        """Encode the waiting records as Arrow messages: one per record type, or two if some ids have another size."""
        self.waiting = 0
        others, self._others = self._others, {}
        buffers = [buffer.lay_out() for buffer in self._columns.values() if buffer.count]
        return buffers + [self._message(kind, *zip(*noted, strict=True)) for kind, noted in others.items()]

    def _message(self, kind: type[Record], *noted: Sequence[Any]) -> bytes:
        """Encode records of one type that were kept as objects, given their numbers, times and the records."""
        entries, times, records = noted
        count = len(records)
        columns: dict[str, Sequence[Any]] = {
            column: list(map(attrgetter(path), records)) for column, path in _CELLS[kind].items()
        }
        for name in ("text", "delivery"):
            if name in columns:
                columns[name] = list(map(str.encode, columns[name]))
        columns |= {"entry": entries, "at_ns": times}
        constant = _constant(self._life, kind)

        def column(name: str, type_: str) -> Column:
            if name in constant:
                return _column_over(type_, memoryview(constant[name] * count), count)(count)
            return arrow.values_of(type_, columns[name]) if name in columns else arrow.nulls(type_, count)

        return stream().batch(count, [column(name, type_) for name, (type_, _) in COLUMNS.items()])


class ColumnBuffer:
    """The rows of one of the types in `RUNS`, as 8-byte words, until they are encoded.

    If records were kept as objects, their numbers and ids would be scattered over memory, and encoding would miss the
    processor's caches for every event. Here the rows become columns word by word, in reused memory, and the batch is
    made from that memory. No value becomes an object again.
    """

    def __init__(self, kind: type[Record], life: dict[str, bytes], rows_max: int) -> None:
        formats = {name: _FORMATS[COLUMNS[name][0]] for name in ("entry", "at_ns", *_CELLS[kind])}
        widths = {name: calcsize(format_) // 8 for name, format_ in formats.items()}
        row = Struct("=" + "".join(formats.values()))
        self.count = 0
        self._values, self._pack, self._row_bytes = attrgetter(*_CELLS[kind].values()), row.pack_into, row.size
        self._rows = bytearray(rows_max * row.size)
        memory = {name: memoryview(value * rows_max) for name, value in _constant(life, kind).items()}
        memory |= {name: memoryview(bytearray(calcsize(format_) * rows_max)) for name, format_ in formats.items()}
        words = memoryview(self._rows).cast("q")
        moves = [memory[name].cast("q")[n::width] for name, width in widths.items() for n in range(width)]
        self._moves = [(column, words[place :: len(moves)]) for place, column in enumerate(moves)]
        self._columns = [
            _column_over(type_, memory[name], rows_max) if name in memory else partial(arrow.nulls, type_)
            for name, (type_, _) in COLUMNS.items()
        ]

    def note(self, entry: int, at_ns: int, record: Any) -> bool:
        """Add a row. Returns False if an id does not have 16 bytes, because it would be truncated or padded."""
        if len(record.topic) != ID_BYTES or len(record.publisher) != ID_BYTES:
            return False
        values = self._values
        self._pack(self._rows, self.count * self._row_bytes, entry, at_ns, *values(record))
        self.count += 1
        return True

    def lay_out(self) -> bytes:
        """Encode the rows as an Arrow message, and clear the buffer."""
        count, self.count = self.count, 0
        for column, words in self._moves:
            column[:count] = words[:count]
        return stream().batch(count, [column(count) for column in self._columns])


def _constant(life: dict[str, bytes], kind: type[Record]) -> dict[str, bytes]:
    """The columns that have the same value in all rows of such a batch, with the value's bytes."""
    return life | {"record": kind.__name__.encode()}


def _column_over(kind: str, memory: memoryview, rows_max: int) -> Callable[[int], Column]:
    """Return a function that makes a column of any number of rows over this memory: numbers, or values of one size."""
    size = len(memory) // rows_max
    if kind == "int64":
        return partial(arrow.numbers, memory)
    offsets = arrow.offsets_of([memory[:size]] * rows_max)
    return partial(arrow.binaries, memoryview(offsets), memory, size)
