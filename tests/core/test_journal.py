"""The layout of the journal: every record type can be read back, and truncation loses nothing before it."""

from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core import journal
from quillcast.core.envelope import Term
from quillcast.core.errors import Malformed
from quillcast.core.trace import AnyRecord, Attached, Delivered, Mark, Record, Stopped
from quillcast.pipeline import reading

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: INT64,
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=20),
    str: st.text(max_size=20),
    tuple[bytes, ...]: st.lists(st.binary(max_size=16), max_size=3).map(tuple),
    Term: st.builds(Term, INT64, st.binary(min_size=16, max_size=16)),
}


def records_of(kind: type[Record], ids: st.SearchStrategy[bytes] = VALUES[bytes]) -> st.SearchStrategy[Record]:
    hints, values = get_type_hints(kind), VALUES | {bytes: ids}
    return st.builds(kind, **{field.name: values[hints[field.name]] for field in msgspec.structs.fields(kind)})


ANY_RECORDS = st.lists(st.one_of([records_of(kind) for kind in get_args(AnyRecord)]), max_size=20)
SOME = [Stopped(), Delivered(b"t" * 16, b"p" * 16, 5, 3, 77, Term(2, b"n" * 16), 9), Mark("here"), Stopped()]


def file_of(*flushes: list[Record]) -> bytes:
    parts, ledger = [journal.beginning()], journal.RecordBuffer(b"peer", 1, 20)
    for records in flushes:
        ledger.note(list(enumerate(records, 1000 + ledger.noted)))
        parts += ledger.lay_out()
    return b"".join(parts)


def read(data: bytes) -> list[journal.Entry]:
    found = [entry for batch in reading.batches(data) for entry in reading.entries(batch)]
    return sorted(found, key=lambda entry: entry.entry)


ID = st.binary(min_size=16, max_size=16)
ANY_RUNS = st.lists(
    st.one_of([records_of(kind, ID) for kind in journal.RUNS] + [records_of(kind) for kind in journal.RUNS]),
    max_size=20,
)


@given(ANY_RECORDS | ANY_RUNS)
def test_every_record_is_read_back_unchanged(records: list[Record]) -> None:
    expected = [journal.Entry(b"peer", 1, n, 1000 + n, record) for n, record in enumerate(records)]
    assert read(file_of(records)) == expected


def test_a_sheet_holds_its_rows_and_is_empty_after_encoding() -> None:
    ledger, size = journal.RecordBuffer(b"peer", 1, 1000), len(file_of(SOME[1:2])) - len(file_of())
    for round_ in range(3):
        ledger.note((n, SOME[1]) for n in range(round_, 1 + 2 * round_))
        data = b"".join([journal.beginning(), *ledger.lay_out()])
        assert [entry.at_ns for entry in read(data)] == list(range(round_, 1 + 2 * round_))
        assert len(data) - len(file_of()) <= (1 + round_) * size
    assert not ledger.lay_out()


def test_the_file_is_a_plain_arrow_stream() -> None:
    table = pa.ipc.open_stream(file_of(SOME, SOME) + journal.END).read_all()
    assert table.num_rows == 8
    assert table.column_names == list(journal.COLUMNS)


def test_a_truncated_journal_keeps_its_complete_batches_and_counts_the_bytes_after_them() -> None:
    flushes = [SOME[:1], SOME[1:2], SOME[2:3]]  # one type each, so one batch each
    data = file_of(*flushes)
    ends = [len(file_of(*flushes[:n])) for n in range(4)]
    for size in range(len(data)):
        whole_bytes = max((end for end in ends if end <= size), default=0)
        assert reading.whole(data[:size]) == reading.Whole(whole_bytes, size - whole_bytes, False)
        assert (
            read(data[:size]) == read(data)[: max(0, ends.index(whole_bytes))] if whole_bytes else not read(data[:size])
        )


def test_a_closed_journal_has_an_end_mark() -> None:
    data = file_of(SOME) + journal.END
    assert reading.whole(data) == reading.Whole(len(data), 0, True)


@given(st.data())
def test_a_damaged_journal_is_read_up_to_the_damage(draw: st.DataObject) -> None:
    data = bytearray(file_of(SOME, [Attached(b"t", b"p", "joined", 1)], SOME))
    at = draw.draw(st.integers(len(file_of(SOME)), len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    tables = list(reading.batches(bytes(data)))
    assert sum(table.num_rows for table in tables) >= len(SOME)


def test_another_arrow_stream_is_not_a_journal() -> None:
    with pytest.raises(Malformed, match="other columns"):
        list(reading.batches(pa.schema([("a", pa.int64())]).serialize()))


def test_a_record_type_that_does_not_fit_the_columns_is_rejected_when_declared() -> None:
    class Odd(Record, frozen=True):
        parent: bytes
        child: bytes

    with pytest.raises(TypeError, match="Odd does not fit"):
        journal._columns(Odd)
