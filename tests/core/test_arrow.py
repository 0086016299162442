"""pyarrow reads back every value from batches that use the layout of nanoarrow's sample, and finds them valid."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core import arrow
from quillcast.core.arrow import Column, Field

FIELDS = [Field(f"{kind}{n}", kind, kind != "int64") for n in range(2) for kind in arrow.KINDS]
STREAM = arrow.Stream(FIELDS)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "binary": st.binary(max_size=20),
    "string": st.text(max_size=20),
    "ids": st.lists(st.binary(max_size=20), max_size=3),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, dict[str, list[Any] | None]]:
    """A row count, and the values of each field; None for nulls."""
    count = draw(st.integers(0, 20))
    columns = {field: st.lists(VALUES[field.kind], min_size=count, max_size=count) for field in FIELDS}
    return count, {
        field.name: draw(values | st.none() if field.nullable else values) for field, values in columns.items()
    }


def column(kind: str, values: list[Any] | None, count: int) -> Column:
    if values is None:
        return arrow.nulls(kind, count)
    return arrow.values_of(kind, [value.encode() for value in values] if kind == "string" else values)


@given(st.lists(tables(), max_size=3))
def test_pyarrow_reads_what_was_written(drawn: list[tuple[int, dict[str, list[Any] | None]]]) -> None:
    batches = [
        STREAM.batch(count, [column(field.kind, values[field.name], count) for field in FIELDS])
        for count, values in drawn
    ]
    read = pa.ipc.open_stream(b"".join([STREAM.schema, *batches, arrow.END])).read_all()
    read.validate(full=True)
    for field in FIELDS:
        expected = [each for count, values in drawn for each in values[field.name] or [None] * count]
        assert read[field.name].to_pylist() == expected
        assert read[field.name].null_count == expected.count(None)


def test_buffers_are_aligned_to_eight_bytes_and_padded_with_zeros() -> None:
    values = [[b"abc"] * 3 if field.kind == "binary" else None for field in FIELDS]
    columns = [column(field.kind, each, 3) for field, each in zip(FIELDS, values, strict=True)]
    body = pa.ipc.read_message(STREAM.batch(3, columns)).body
    assert body.size % 8 == 0
    assert body.to_pybytes().count(b"abc" * 3 + bytes(7)) == 2


def test_columns_over_memory_are_read_when_the_batch_is_made() -> None:
    memory, stream = bytearray(32), arrow.Stream([Field("n", "int64", False), Field("id", "binary", False)])
    ids = memoryview(b"aabbccdd")
    memory[8] = 7
    columns = [
        arrow.numbers(memoryview(memory), 2),
        arrow.binaries(memoryview(arrow.offsets_of([b"aa"] * 4)), ids, 2, 2),
    ]
    batch = stream.batch(2, columns)
    memory[8] = 9
    rows = pa.ipc.open_stream(stream.schema + batch).read_all().to_pylist()
    assert rows == [{"n": 0, "id": b"aa"}, {"n": 7, "id": b"bb"}]
