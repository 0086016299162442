"""How trace records are laid out as Arrow: one typed table, one row per record (docs/journal.md).

A journal is a plain Arrow stream, readable by anything that reads Arrow. Every record type shares the table: a field
stands in the column that `COLUMN_OF_FIELD` names, and the columns that a type does not use are null. One batch holds
records of one type, so what a flush costs grows with what happened and not with the width of the table.

pyarrow is imported by the functions that need it and never with this module.
"""

from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, chain
from operator import attrgetter
from struct import Struct, calcsize
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.errors import Malformed
from quillcast.core.ids import ID_BYTES
from quillcast.core.trace import Admitted, AnyRecord, Delivered, Published, Record

if TYPE_CHECKING:
    import pyarrow

END = b"\xff\xff\xff\xff\0\0\0\0"
"""Arrow's mark for the end of a stream: a journal that was closed ends with it, one that was cut does not."""

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
"""Name, type and meaning of every column, in order."""

COLUMN_OF_FIELD = {
    "key": "topic",
    "node": "other", "silent": "other", "to": "other", "parent": "other", "child": "other",
    "leaf_set": "number", "hops": "number", "depth": "number", "children": "number", "size": "number",
    "version": "number",
    "silent_s": "seconds",
    "address": "text", "kind": "text", "name": "text", "how": "text", "why": "text", "where": "text", "source": "text",
}  # fmt: skip
"""Where a record's field stands, if not in the column of its own name. `term` takes two columns."""


class Entry(NamedTuple):
    """One record of a journal, with what the journal adds."""

    peer: bytes
    started_ns: int
    entry: int
    at_ns: int
    record: Record


KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in get_args(AnyRecord)}


def _columns(kind: type[Record]) -> dict[str, str]:
    """The column of each field; `term` stays whole here."""
    fields = [field.name for field in msgspec.structs.fields(kind)]
    columns = {field: COLUMN_OF_FIELD.get(field, field) for field in fields}
    if len(set(columns.values())) < len(columns) or not COLUMNS.keys() | {"term"} >= set(columns.values()):
        raise TypeError(f"{kind.__name__} does not fit the journal's columns: {columns}; see COLUMN_OF_FIELD")
    return columns


_COLUMNS = {kind: _columns(kind) for kind in KINDS.values()}


def _cells(kind: type[Record]) -> dict[str, str]:
    """Where in a record the value of each column stands; a term fills two."""
    term = {"term_counter": "term.counter", "term_node": "term.node"}
    cells: dict[str, str] = {}
    for field, column in _COLUMNS[kind].items():
        cells |= term if column == "term" else {column: field}
    return cells


_CELLS = {kind: _cells(kind) for kind in KINDS.values()}
_FORMATS = {"int64": "q", "binary": f"{ID_BYTES}s"}

RUNS = (Published, Admitted, Delivered)
"""What a peer notes for every run of events: these are many, all other records few."""


@cache
def schema() -> "pyarrow.Schema":
    """The journal's Arrow schema."""
    import pyarrow as pa

    types = {"binary": pa.binary(), "int64": pa.int64(), "double": pa.float64(), "string": pa.string()}
    types["ids"] = pa.list_(pa.field("item", pa.binary(), nullable=False))
    always = ("peer", "started_ns", "entry", "at_ns", "record")
    return pa.schema([pa.field(name, types[kind], name not in always) for name, (kind, _) in COLUMNS.items()])


def beginning() -> bytes:
    """What every journal file begins with: the schema."""
    return bytes(schema().serialize())


class Ledger:
    """What a process noted and has not laid out yet.

    Args:
        peer: nodeId of the writer.
        started_ns: when its process opened the journal, nanoseconds since 1970 UTC.
        rows_max: records that may be noted before they are laid out.
    """

    def __init__(self, peer: bytes, started_ns: int, rows_max: int) -> None:
        self.noted = 0
        """Records since the beginning, and so the number of the next one."""
        self.waiting = 0
        """Records since the last lay-out."""
        self._constant = {"peer": peer, "started_ns": started_ns}
        self._sheets: dict[type[Record], Sheet] = {kind: Sheet(kind, self._constant, rows_max) for kind in RUNS}
        self._others: dict[type[Record], list[tuple[int, int, Record]]] = {}

    def note(self, at_ns: int, record: Record) -> None:
        """Take a record of what happened at `at_ns`, nanoseconds since 1970 UTC."""
        sheet = self._sheets.get(type(record))
        if sheet is None or not sheet.note(self.noted, at_ns, record):
            self._others.setdefault(type(record), []).append((self.noted, at_ns, record))
        self.noted += 1
        self.waiting += 1

    def lay_out(self) -> list["pyarrow.Buffer"]:
        """What waits, as Arrow messages: one per type of record, or two if some of its ids are odd."""
        self.waiting = 0
        others, self._others = self._others, {}
        sheets = [sheet.lay_out() for sheet in self._sheets.values() if sheet.count]
        return sheets + [self._message(kind, *zip(*noted, strict=True)) for kind, noted in others.items()]

    def _message(self, kind: type[Record], *noted: Sequence[Any]) -> "pyarrow.Buffer":
        """Records of one type that waited as they came: their numbers, their times and they themselves."""
        entries, times, records = noted
        columns: dict[str, Sequence[Any]] = {
            column: list(map(attrgetter(path), records)) for column, path in _CELLS[kind].items()
        }
        for name in ("text", "delivery"):
            if name in columns:
                columns[name] = list(map(str.encode, columns[name]))
        columns |= {"entry": entries, "at_ns": times}
        arrays = {name: _array(values, schema().field(name).type) for name, values in columns.items()}
        return _batch(kind, self._constant, arrays, len(records)).serialize()


class Sheet:
    """Rows of one of the types in `RUNS`, as words of 8 bytes, until they are laid out.

    Records that waited as they came would keep their numbers and ids all over memory, and every event would have to
    take some that the processor has forgotten. The rows become columns word by word; the batch is made once, over the
    memory of the columns, so that laying out takes one call of pyarrow for any number of rows.
    """

    def __init__(self, kind: type[Record], constant: dict[str, Any], rows_max: int) -> None:
        formats = {name: _FORMATS[COLUMNS[name][0]] for name in ("entry", "at_ns", *_CELLS[kind])}
        row = Struct("=" + "".join(formats.values()))
        self.count = 0
        self._values, self._pack, self._row_bytes = attrgetter(*_CELLS[kind].values()), row.pack_into, row.size
        self._rows = bytearray(rows_max * row.size)
        self._moves: list[tuple[memoryview, memoryview]] = []  # to a column, from the rows
        words, arrays = memoryview(self._rows).cast("q"), {}
        for name, format_ in formats.items():
            width = calcsize(format_) // 8
            column = bytearray(rows_max * width * 8)
            for word in range(width):
                place = len(self._moves)
                self._moves.append((memoryview(column).cast("q")[word::width], words[place :: row.size // 8]))
            arrays[name] = _array_over(column, width, rows_max)
        self._batch = _batch(kind, constant, arrays, rows_max)

    def note(self, entry: int, at_ns: int, record: Any) -> bool:
        """Take a row. Not if an id has not the 16 bytes that all have: it would be cut, or filled up."""
        if len(record.topic) != ID_BYTES or len(record.publisher) != ID_BYTES:
            return False
        self._pack(self._rows, self.count * self._row_bytes, entry, at_ns, *self._values(record))
        self.count += 1
        return True

    def lay_out(self) -> "pyarrow.Buffer":
        """The rows as an Arrow message; the sheet is empty again."""
        count, self.count = self.count, 0
        for column, words in self._moves:
            column[:count] = words[:count]
        return self._batch.slice(0, count).serialize()


def _batch(
    kind: type[Record], constant: dict[str, Any], arrays: dict[str, "pyarrow.Array"], count: int
) -> "pyarrow.RecordBatch":
    """A batch of these columns, of those that hold one value, and of nulls in all others."""
    import pyarrow as pa

    constant = constant | {"record": kind.__name__.encode()}

    def column(name: str, type_: "pyarrow.DataType") -> "pyarrow.Array":
        if name in arrays:
            return arrays[name]
        return _array([constant[name]] * count, type_) if name in constant else _nulls(count, type_)

    return pa.RecordBatch.from_arrays([column(field.name, field.type) for field in schema()], schema=schema())


def _nulls(count: int, kind: "pyarrow.DataType") -> "pyarrow.Array":
    """Nulls of which a slice is as short as it can be; pyarrow's own of lists keep the items of all."""
    import pyarrow as pa

    if not pa.types.is_list(kind):
        return pa.nulls(count, kind)
    none, offsets = pa.py_buffer(bytes(count // 8 + 1)), pa.py_buffer(bytes(4 * (count + 1)))
    return pa.Array.from_buffers(kind, count, [none, offsets], children=[pa.nulls(0, kind.value_type)])


def _array_over(column: bytearray, width: int, count: int) -> "pyarrow.Array":
    """An array whose values are what stands in this memory at the time: numbers, or ids of two words."""
    import pyarrow as pa

    values = pa.py_buffer(column)
    if width == 1:
        return pa.Array.from_buffers(pa.int64(), count, [None, values])
    offsets = pa.py_buffer(array("i", range(0, ID_BYTES * count + 1, ID_BYTES)))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, values])


def _array(values: Sequence[Any], kind: "pyarrow.DataType") -> "pyarrow.Array":
    """Values as an Arrow array, laid out here: pyarrow's own conversion loads pandas, which stops a peer for 0.4 s."""
    import pyarrow as pa

    if kind in (pa.int64(), pa.float64()):
        numbers = array("q" if kind == pa.int64() else "d", values)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])
    offsets = pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))
    if pa.types.is_list(kind):
        items = _array(list(chain.from_iterable(values)), kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, offsets], children=[items])
    return pa.Array.from_buffers(kind, len(values), [None, offsets, pa.py_buffer(b"".join(values))])


class Whole(NamedTuple):
    """How much of a journal file can be read."""

    whole_bytes: int
    """Where the last complete batch ends; what comes after it was torn off by a crash, or is damaged."""
    dropped_bytes: int
    closed: bool
    """The writer closed the file in good order."""


def whole(data: Any) -> Whole:
    """How much of a journal file can be read. See `batches`."""
    size = len(memoryview(data))
    at = max((end for _, end in _messages(data)), default=0)
    closed = bytes(memoryview(data)[at : at + len(END)]) == END
    at += len(END) if closed else 0
    return Whole(at, size - at, closed)


def batches(data: Any) -> Iterator["pyarrow.RecordBatch"]:
    """The complete batches of a journal file, in order; what a crash tore off is left out.

    `data` is anything with the buffer protocol (bytes, a memory map): a file's content, or what came after
    `Whole.whole_bytes` of it since. Raises `Malformed` if it is no journal.
    """
    for batch, _ in _messages(data):
        if batch is not None:
            yield batch


def _messages(data: Any) -> Iterator[tuple["pyarrow.RecordBatch | None", int]]:
    """Each complete batch (None for the schema at the start of the file) and where it ends, up to the first damage."""
    import pyarrow as pa

    source = pa.BufferReader(data)
    while True:
        batch, ours = None, True
        try:
            message = pa.ipc.read_message(source)
            if message.type == "record batch":
                batch = pa.ipc.read_record_batch(message, schema())
                batch.validate(full=True)
            else:
                ours = pa.ipc.read_schema(message).equals(schema())
        except (EOFError, OSError, pa.ArrowInvalid):
            return
        if not ours:
            raise Malformed("an Arrow stream with other columns than a quillcast journal of this version has")
        yield batch, source.tell()


def entries(batch: "pyarrow.RecordBatch") -> Iterator[Entry]:
    """The records of a batch, as they were noted."""
    for row in batch.to_pylist():
        kind = KINDS[row["record"]]
        row["term"] = Term(row["term_counter"], row["term_node"])
        row["joined"], row["left"] = tuple(row["joined"] or ()), tuple(row["left"] or ())
        record = kind(*(row[column] for column in _COLUMNS[kind].values()))
        yield Entry(row["peer"], row["started_ns"], row["entry"], row["at_ns"], record)
