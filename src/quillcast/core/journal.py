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
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from quillcast.core.bundle import Term
from quillcast.core.errors import Malformed
from quillcast.core.trace import AnyRecord, Record

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
    "first": ("int64", "sequence of a run's first event; of Lost: the first index"),
    "count": ("int64", "events in a run, or how many times something happened"),
    "last": ("int64", "of Lost: one past the last index"),
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


def encode(
    peer: bytes, started_ns: int, first_entry: int, times: Sequence[int], records: Sequence[Record]
) -> list["pyarrow.Buffer"]:
    """Lay records out as Arrow messages, one per record type among them.

    `times` holds each record's nanoseconds since 1970 UTC; the records are numbered from `first_entry`.
    """
    by_kind: dict[type[Record], list[int]] = {}
    for place, record in enumerate(records):
        by_kind.setdefault(type(record), []).append(place)
    return [
        _batch(
            {"peer": peer, "started_ns": started_ns, "record": kind.__name__.encode()},
            {"entry": [first_entry + place for place in places], "at_ns": [times[place] for place in places]}
            | _values(kind, [records[place] for place in places]),
            len(places),
        ).serialize()
        for kind, places in by_kind.items()
    ]


def _values(kind: type[Record], records: list[Record]) -> dict[str, Sequence[Any]]:
    """The columns that records of one type fill."""
    columns: dict[str, Sequence[Any]] = {
        column: list(map(attrgetter(field), records)) for field, column in _COLUMNS[kind].items()
    }
    for name in ("text", "delivery"):
        if name in columns:
            columns[name] = list(map(str.encode, columns[name]))
    if "term" in columns:
        terms = columns.pop("term")
        columns["term_counter"], columns["term_node"] = [term[0] for term in terms], [term[1] for term in terms]
    return columns


def _batch(constant: dict[str, Any], varying: dict[str, Sequence[Any]], count: int) -> "pyarrow.RecordBatch":
    """A batch of columns that hold one value, columns that hold many, and nulls in all others."""
    import pyarrow as pa

    def column(name: str, kind: "pyarrow.DataType") -> "pyarrow.Array":
        if name in varying:
            return _array(varying[name], kind)
        return _array([constant[name]] * count, kind) if name in constant else pa.nulls(count, kind)

    return pa.RecordBatch.from_arrays([column(field.name, field.type) for field in schema()], schema=schema())


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
