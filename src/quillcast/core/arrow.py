"""Write Arrow streams of record batches with one schema, without pyarrow (docs/decisions/nanoarrow.md).

`nanoarrow` encodes the schema and a sample batch of one row. A batch consists of a header (a flatbuffer) and the memory
of its columns. The headers of one stream differ only in numbers: the row count and the offset of each buffer. So the
stream keeps the header of the sample, and writes new numbers into it for each further batch.
"""

from array import array
from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import accumulate, chain
from struct import Struct, unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import nanoarrow

Buffer = bytes | memoryview
"""The memory of a column, counted in bytes."""

END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end-of-stream mark."""

KINDS = ("int64", "double", "binary", "string", "ids")
"""The types of columns. `ids` is a list of binary."""

_PADDING = [bytes(-size % 8) for size in range(8)]
_INT64 = Struct("<q")


class Field(NamedTuple):
    """A column of the schema; `kind` is one of `KINDS`."""

    name: str
    kind: str
    nullable: bool


class Column(NamedTuple):
    """The values of a column: counts of rows and nulls (for a list, also of its items), and the buffers."""

    nodes: tuple[int, ...]
    buffers: tuple[Buffer, ...]


def numbers(memory: Buffer, count: int) -> Column:
    """A column of the first `count` 8-byte numbers in this memory."""
    return Column((count, 0), (b"", memory[: 8 * count]))


def binaries(offsets: Buffer, memory: Buffer, size: int, count: int) -> Column:
    """A column of the first `count` values of `size` bytes each in this memory."""
    return Column((count, 0), (b"", offsets[: 4 * (count + 1)], memory[: size * count]))


def values_of(kind: str, values: Sequence[Any]) -> Column:
    """A column of Python numbers, `bytes` (also encoded strings), or tuples of `bytes`."""
    count = len(values)
    if kind in ("int64", "double"):
        return numbers(array("q" if kind == "int64" else "d", values).tobytes(), count)
    offsets = offsets_of(values)
    if kind == "ids":
        items = values_of("binary", list(chain.from_iterable(values)))
        return Column((count, 0, *items.nodes), (b"", offsets, *items.buffers))
    return Column((count, 0), (b"", offsets, b"".join(values)))


def offsets_of(values: Iterable[Any]) -> bytes:
    """The Arrow offsets of values that are stored one after the other."""
    return array("i", accumulate(map(len, values), initial=0)).tobytes()


def nulls(kind: str, count: int) -> Column:
    """A column of nulls."""
    valid = bytes((count + 7) // 8)
    if kind in ("int64", "double"):
        return Column((count, count), (valid, bytes(8 * count)))
    offsets = bytes(4 * (count + 1))
    if kind == "ids":
        return Column((count, count, 0, 0), (valid, offsets, b"", bytes(4), b""))
    return Column((count, count), (valid, offsets, b""))


class Stream:
    """Encodes the schema and the batches of one stream."""

    def __init__(self, fields: Sequence[Field]) -> None:
        encoded = _encoded(fields)
        schema_bytes = 8 + unpack_from("<i", encoded, 4)[0]
        self.schema = encoded[:schema_bytes]
        """The first bytes of the stream."""
        header = encoded[schema_bytes:]
        self._header = header[: 8 + unpack_from("<i", header, 4)[0]]
        message = _follow(header, 8)
        batch = _follow(header, _field(header, message, 2))
        self._body_bytes_at, self._rows_at = _field(header, message, 3), _field(header, batch, 0)
        self._nodes_at, nodes = _vector(header, _field(header, batch, 1))
        self._buffers_at, buffers = _vector(header, _field(header, batch, 2))
        self._nodes, self._buffers = Struct(f"<{2 * nodes}q"), Struct(f"<{2 * buffers}q")

    def batch(self, count: int, columns: Iterable[Column]) -> bytes:
        """Encode a batch of `count` rows, with one column per field of the schema."""
        nodes: list[int] = []
        places: list[int] = []
        parts: list[bytes | bytearray | memoryview] = [b""]
        body_bytes = 0
        for column in columns:
            nodes += column.nodes
            for buffer in column.buffers:
                size = len(buffer)
                places += (body_bytes, size)
                parts += (buffer, _PADDING[size % 8])
                body_bytes += size + -size % 8
        header = bytearray(self._header)
        self._nodes.pack_into(header, self._nodes_at, *nodes)
        self._buffers.pack_into(header, self._buffers_at, *places)
        _INT64.pack_into(header, self._rows_at, count)
        _INT64.pack_into(header, self._body_bytes_at, body_bytes)
        parts[0] = header
        return b"".join(parts)


def _encoded(fields: Sequence[Field]) -> bytes:
    """The schema and a batch of one row, as nanoarrow encodes them. An empty batch would omit the row count."""
    import nanoarrow
    from nanoarrow.ipc import StreamWriter

    types = {field.name: _type(field.kind, nullable=field.nullable) for field in fields}
    row = [_array(type_, field.kind) for type_, field in zip(types.values(), fields, strict=True)]
    file = BytesIO()
    with StreamWriter.from_writable(file) as writer:
        batch = nanoarrow.c_array_from_buffers(nanoarrow.struct(types), 1, [None], null_count=0, children=row)
        writer.write_stream(batch)
    return file.getvalue()


def _type(kind: str, *, nullable: bool) -> "nanoarrow.Schema":
    import nanoarrow

    if kind == "ids":
        return nanoarrow.list_(nanoarrow.binary(nullable=False), nullable=nullable)
    types = {"int64": nanoarrow.int64, "double": nanoarrow.float64}
    types |= {"binary": nanoarrow.binary, "string": nanoarrow.string}
    return types[kind](nullable=nullable)


def _array(type_: "nanoarrow.Schema", kind: str) -> Any:
    """A null of this type."""
    import nanoarrow

    column = nulls(kind, 1)
    items = [nanoarrow.c_array_from_buffers(nanoarrow.binary(), 0, column.buffers[2:])] if kind == "ids" else []
    buffers = column.buffers[:2] if items else column.buffers
    return nanoarrow.c_array_from_buffers(type_, 1, buffers, null_count=1, children=items)


def _follow(data: Buffer, at: int) -> int:
    """The offset that the flatbuffers reference at `at` points to."""
    return at + int(unpack_from("<I", data, at)[0])


def _field(data: Buffer, table: int, number: int) -> int:
    """The offset of a field of a flatbuffers table."""
    known = table - unpack_from("<i", data, table)[0]
    return table + int(unpack_from("<H", data, known + 4 + 2 * number)[0])


def _vector(data: Buffer, at: int) -> tuple[int, int]:
    """The offset of the first item, and the length, of the vector that the reference at `at` points to."""
    start = _follow(data, at)
    return start + 4, int(unpack_from("<I", data, start)[0])
