"""Blocks and bundles: decoding returns what was encoded, the layout is as documented, and columns are not copied."""

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quillcast.core.bundle import BLOCK_COUNT_MAX, EVENT_COUNT_MAX, Block, Bundle, Run
from quillcast.core.envelope import NO_TERM, SERIALS, Envelope, Kind, Position, Term
from quillcast.core.errors import LocalError, Malformed
from quillcast.core.messages import NUMBER_MAX

PUBLISHER, TOPIC, NODE = b"publisher-------", b"topic-----------", b"node------------"
INT64 = st.integers(-(2**63), 2**63 - 1)
IDS = st.binary(min_size=16, max_size=16)
PAYLOADS = st.lists(st.binary(max_size=40), min_size=1, max_size=30)
ALIKE = st.tuples(st.integers(0, 40), st.integers(1, 40)).flatmap(
    lambda shape: st.lists(st.binary(min_size=shape[0], max_size=shape[0]), min_size=shape[1], max_size=shape[1])
)


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of `Block.seal`, with any choice of the optional columns."""
    payloads = draw(PAYLOADS | ALIKE)

    def column(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | st.lists(values, min_size=len(payloads), max_size=len(payloads)))

    counts: list[int] = []
    while sum(counts) < len(payloads):
        counts.append(draw(st.integers(1, len(payloads) - sum(counts))))
    runs = [(draw(IDS), draw(st.integers(0, NUMBER_MAX - 100)), count) for count in counts]

    return {
        "publisher": draw(IDS),
        "first": draw(st.integers(0, NUMBER_MAX - 100)),
        "payloads": payloads,
        "time_ns": draw(INT64),
        "times": column(INT64),
        "keys": column(st.binary(max_size=12)),
        "attributes": column(st.dictionaries(st.text(max_size=5), st.integers()).map(msgspec_map)),
        "runs": draw(st.sampled_from([None, runs])),
    }


def msgspec_map(value: dict[str, int]) -> bytes:
    return msgspec.msgpack.encode({key: str(number) for key, number in value.items()})


def sealed(payloads: list[bytes], **columns: Any) -> Block:
    return Block.seal(PUBLISHER, columns.pop("first", 7), payloads, time_ns=1_000, **columns)


def spelt_out(runs: list[Run]) -> list[tuple[bytes, int]]:
    """Publisher and sequence of each event."""
    return [(publisher, first + number) for publisher, first, count in runs for number in range(count)]


FULL = sealed([b"a", b"", b"ccc"], times=[1, 2, 3], keys=[b"k", b"l", b""], attributes=[b"\x80"] * 3)


# Encoding and decoding


@given(events())
def test_a_block_returns_what_was_sealed(given_events: dict[str, Any]) -> None:
    block = Block.parse(Block.seal(**given_events).data)
    count = len(given_events["payloads"])
    assert (block.publisher, block.first, block.count) == (given_events["publisher"], given_events["first"], count)
    assert block.last == block.first + count
    assert block.payloads() == given_events["payloads"]
    assert block.times() == (given_events["times"] or [given_events["time_ns"]] * count)
    assert block.keys() == given_events["keys"]
    assert block.attributes() == given_events["attributes"]
    assert block.runs() == (given_events["runs"] or [(block.publisher, block.first, count)])
    assert list(zip(*block.publishers(), strict=True)) == spelt_out(block.runs())
    assert block.size == len(block.data) == len(block.data) // 8 * 8


@given(st.lists(events(), min_size=1, max_size=4), IDS, st.sampled_from(Kind), IDS, st.data())
def test_a_bundle_returns_what_was_encoded(
    runs: list[dict[str, Any]], topic: bytes, kind: Kind, node: bytes, data: st.DataObject
) -> None:
    blocks = tuple(Block.seal(**run) for run in runs)
    envelope = Envelope(
        topic,
        kind,
        Term(data.draw(st.integers(0, NUMBER_MAX)), node),
        data.draw(st.integers(0, NUMBER_MAX - 1000)),
        data.draw(st.integers(0, 2**32 - 1)),
        data.draw(st.binary(max_size=50)),
        data.draw(st.binary(max_size=50)),
        data.draw(st.integers(0, SERIALS - 1)),
    )
    bundle = Bundle(envelope, blocks)
    again = Bundle.decode(bundle.encode())
    assert again == bundle
    assert again.count == sum(len(run["payloads"]) for run in runs)
    assert (again.topic, again.size, again.last) == (topic, bundle.size, envelope.first + bundle.count)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 100, 4096, 4097])
@pytest.mark.parametrize("size", [0, 1, 8, 100])
def test_events_of_one_size_decode_like_others(count: int, size: int) -> None:
    alike = [bytes([number % 251]) * size for number in range(count)]
    different = [*alike[:-1], alike[-1] + b"x"]
    assert sealed(alike).payloads() == alike
    assert sealed(different).payloads() == different
    moved = [b"", *alike[2:], alike[0] + alike[-1]] if count > 2 else alike
    assert sealed(moved).payloads() == moved, "the same number of bytes, split differently"


def test_the_largest_block_can_be_decoded() -> None:
    block = sealed([b""] * EVENT_COUNT_MAX)
    assert Block.parse(block.data).payloads() == [b""] * EVENT_COUNT_MAX


def test_a_bundle_carries_up_to_the_maximum_of_blocks() -> None:
    bundle = Bundle(Envelope(TOPIC, Kind.DOWN), (sealed([b"x"]),) * BLOCK_COUNT_MAX)
    assert Bundle.decode(bundle.encode()) == bundle
    larger = Bundle(bundle.envelope, bundle.blocks + bundle.blocks[:1])
    with pytest.raises(Malformed, match="4097 blocks"):
        Bundle.decode(larger.encode())


# The documented layout


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 100_000])
def test_a_single_event_is_sealed_like_others(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    lone = Block.seal(b"p" * 16, 5, [payload], time_ns=7)
    timed = Block.seal(b"p" * 16, 5, [payload], time_ns=7, times=[7])
    for block in (lone, Block.parse(lone.data)):
        assert (block.publisher, block.first, block.last, block.count) == (b"p" * 16, 5, 6, 1)
        assert (block.payloads(), block.times(), block.keys(), block.attributes()) == ([payload], [7], None, None)
        assert block.size == len(lone.data) == timed.size - 8
        assert (block.shared, block.has_attributes) == (False, False)
    assert lone.data[6:] == timed.data[6 : lone.size]


def test_the_layout_of_a_block_is_as_documented() -> None:
    data = FULL.data
    assert struct.unpack_from("<IBBH16sqqII", data) == (len(data), 1, 1 | 2 | 4, 0, PUBLISHER, 7, 1_000, 3, 4)
    assert data[48:72] == struct.pack("<4i", 0, 1, 1, 4) + b"accc\0\0\0\0"
    assert data[72:96] == struct.pack("<3q", 1, 2, 3)
    assert data[96:120] == struct.pack("<4i", 0, 1, 2, 2) + b"kl\0\0\0\0\0\0"
    assert data[120:] == struct.pack("<4i", 0, 1, 2, 3) + b"\x80\x80\x80\0\0\0\0\0"


def test_the_runs_of_a_shared_block_follow_all_other_columns() -> None:
    runs = [(NODE, 5, 1), (TOPIC, 0, 2)]
    block = sealed([b"a", b"", b"ccc"], keys=[b"k", b"l", b""], runs=runs)
    assert block.data[5] == 2 | 16
    assert block.data[96:] == struct.pack("<II16s16sqqii", 2, 0, NODE, TOPIC, 5, 0, 1, 2)
    assert block.publishers() == ([NODE, TOPIC, TOPIC], [5, 0, 1])


def test_a_bundle_is_its_head_followed_by_unchanged_blocks() -> None:
    bundle = Bundle(Envelope(TOPIC, Kind.REPAIR, Term(3, NODE), 99, 5, b"record", b"tag", 7), (FULL, sealed([b"x"])))
    head = struct.pack(
        "<BBHI16sQ16sqIIHH", 3, 0, 7, 5, TOPIC, 3, NODE, 99, 4, 2, len(b"record"), len(b"tag")
    ) + struct.pack("<2I", FULL.size, 64)
    head += b"recordtag"
    assert bundle.head == head + bytes(-len(head) % 8)
    assert bundle.encode() == bundle.head + FULL.data + bundle.blocks[1].data


@given(events())
def test_every_column_is_aligned_to_eight_bytes(given_events: dict[str, Any]) -> None:
    bundle = Bundle(Envelope(TOPIC, Kind.UP, record=b"odd"), (Block.seal(**given_events),) * 2)
    assert len(bundle.head) % 8 == 0
    block = bundle.blocks[0]
    start = pa.py_buffer(block.data).address
    assert [(buffer.address - start) % 8 for buffer in lying_in(block)] == [0] * len(lying_in(block))


# Columns are read in place


def lying_in(block: Block) -> list[pa.Buffer]:
    """The Arrow buffers within the block's own bytes."""
    whole = pa.py_buffer(block.data)
    buffers = [buffer for column in block.arrow().columns for buffer in column.buffers() if buffer is not None]
    return [
        buffer
        for buffer in buffers
        if whole.address <= buffer.address and buffer.address + buffer.size <= whole.address + whole.size
    ]


def test_arrow_copies_no_column_except_the_sequence() -> None:
    buffers = [buffer for column in FULL.arrow().columns for buffer in column.buffers() if buffer is not None]
    assert len(buffers) == 1 + 1 + 2 + 2 + 2  # seq; time; payload, key and attributes with offsets and data
    assert len(lying_in(FULL)) == 7


def test_arrow_creates_times_only_if_a_block_has_one_time_for_all() -> None:
    assert len(lying_in(sealed([b"a", b"b"]))) == 2
    assert len(lying_in(sealed([b"a", b"b"], times=[1, 2]))) == 3


@given(events())
@example({"publisher": PUBLISHER, "first": NUMBER_MAX - 2, "payloads": [b"", b""], "time_ns": 0})
def test_arrow_returns_what_was_sealed(given_events: dict[str, Any]) -> None:
    block = Block.seal(**given_events)
    batch = block.arrow()
    batch.validate(full=True)
    assert batch.column("seq").to_pylist() == [sequence for _, sequence in spelt_out(block.runs())]
    assert ("publisher" in batch.schema.names) == block.shared
    if block.shared:
        assert batch.column("publisher").to_pylist() == [publisher for publisher, _ in spelt_out(block.runs())]
    assert batch.column("time").cast(pa.int64()).to_pylist() == block.times()
    assert batch.column("payload").to_pylist() == block.payloads()
    for name, values in (("key", block.keys()), ("attributes", block.attributes())):
        assert (batch.column(name).to_pylist() if name in batch.schema.names else None) == values


def test_an_arrow_batch_keeps_its_bytes_alive() -> None:
    column = sealed([b"x" * 1000] * 10).arrow().column("payload")
    assert column.to_pylist() == [b"x" * 1000] * 10


def test_a_decoded_bundle_uses_the_received_bytes() -> None:
    large = sealed([bytes(1000)] * 10)
    came = Bundle(Envelope(TOPIC, Kind.UP), (large, large)).encode()
    bundle = Bundle.decode(came)
    assert bundle.blocks == (large, large)
    assert all(isinstance(block.data, memoryview) and block.data.obj is came for block in bundle.blocks)
    assert all(block.payloads() == large.payloads() for block in bundle.blocks)


def test_small_blocks_are_copied_out_of_their_bundle() -> None:
    bundle = Bundle.decode(memoryview(Bundle(Envelope(TOPIC, Kind.UP), (FULL, FULL)).encode()))
    assert bundle.blocks == (FULL, FULL)
    assert all(type(block.data) is bytes for block in bundle.blocks)


def test_an_envelope_can_be_replaced_without_touching_the_blocks() -> None:
    bundle = Bundle(Envelope(TOPIC, Kind.UP), (FULL,))
    admitted = bundle.under(Envelope(TOPIC, Kind.DOWN, Term(1, NODE), 500))
    assert admitted.blocks is bundle.blocks
    assert (admitted.last, bundle.last) == (503, 3)
    assert admitted.head != bundle.head


@pytest.mark.parametrize("number", [0, (1 << 61) - 1, 1 << 61, NUMBER_MAX - 1])
def test_a_lone_event_has_any_valid_number(number: int) -> None:
    sent = Bundle(
        Envelope(b"t" * 16, Kind.DOWN, Term(number, b"n" * 16), number, 3, b"", b"", 9),
        (Block.lone(b"p" * 16, number, b"payload", 7),),
    )
    assert Bundle.decode(sent.encode()) == sent


def test_the_head_is_encoded_once() -> None:
    bundle = Bundle(Envelope(TOPIC, Kind.UP), (FULL,))
    assert bundle.head is bundle.head


# Invalid input


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"payloads": []}, "0 events"),
        ({"payloads": [b""] * (EVENT_COUNT_MAX + 1)}, "holds 1 to 1048576"),
        ({"payloads": [b"a"], "keys": [b"k", b"l"]}, "column has 2 values for 1 events"),
        ({"payloads": [b"a"], "attributes": []}, "column has 0 values for 1 events"),
        ({"payloads": [b"a"], "times": [1, 2]}, "2 times given for 1 events"),
        ({"payloads": [b"a"], "times": [1 << 63]}, "64-bit"),
        ({"payloads": [bytes(1 << 20)] * 1025}, "at most 1073741824"),
        ({"payloads": [b"a", b"b"], "runs": [(NODE, 0, 1)]}, "in a block of 2;"),
        ({"payloads": [b"a"], "runs": [(NODE, 0, 0), (TOPIC, 0, 1)]}, "must be in one run"),
    ],
)
def test_events_that_fit_no_block_are_a_local_error(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(LocalError, match=text):
        sealed(**columns)


def patched(offset: int, layout: str, *values: int) -> bytes:
    data = bytearray(FULL.data)
    struct.pack_into(layout, data, offset, *values)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "shorter than its header"),
        (FULL.data[:47], "shorter than its header"),
        (FULL.data[:-8], "gives 144 bytes"),
        (bytes(FULL.data) + bytes(8), "152 bytes arrived"),
        (patched(0, "<I", 40), "gives 40 bytes"),
        (patched(4, "<B", 2), "layout 2"),
        (patched(5, "<B", 32), "layout 1"),
        (patched(6, "<H", 1), "layout 1"),
        (patched(24, "<q", -1), "from sequence -1"),
        (patched(24, "<q", NUMBER_MAX - 2), "3 events from sequence"),
        (patched(40, "<I", 0), "0 events"),
        (patched(40, "<I", EVENT_COUNT_MAX + 1), "1048577 events"),
        (patched(40, "<I", 24), "too short for 24 events"),
    ],
)
def test_an_invalid_header_is_malformed(data: bytes, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        Block.parse(data)


READERS: list[Callable[[Block], object]] = [Block.payloads, Block.times, Block.keys, Block.attributes, Block.arrow]


@pytest.mark.parametrize(
    ("data", "readers", "text"),
    [
        (patched(44, "<I", 5), {Block.payloads, Block.arrow}, "gives 5 bytes of payload, but its offsets give 4"),
        (patched(44, "<I", 1 << 31), set(READERS), "exceed|of payload"),
        (patched(60, "<i", 1 << 30), {Block.payloads, Block.arrow}, "exceeds"),
        (patched(60, "<i", -1), {Block.payloads, Block.arrow}, "exceeds"),
        (patched(48, "<i", 1), {Block.payloads, Block.arrow}, "do not increase from 0"),
        (patched(52, "<i", 9), {Block.payloads, Block.arrow}, "do not increase from 0"),
        (patched(52, "<i", -9), {Block.payloads, Block.arrow}, "do not increase from 0"),
        (patched(108, "<i", 99), {Block.keys, Block.attributes, Block.arrow}, "exceeds"),
        (patched(132, "<i", 99), {Block.attributes, Block.arrow}, "exceeds"),
        (patched(40, "<I", 15), set(READERS), "offsets|exceed"),
    ],
)
def test_inconsistent_columns_are_malformed(data: bytes, readers: set[Callable[[Block], object]], text: str) -> None:
    block = Block.parse(data)
    for reader in readers:
        with pytest.raises(Malformed, match=text):
            reader(block)
    for reader in set(READERS) - readers:
        reader(block)


@pytest.mark.parametrize(
    ("offset", "layout", "value", "text"),
    [
        (0, "<I", 0, "cannot have 0 runs"),
        (0, "<I", 4, "cannot have 4 runs"),
        (0, "<I", 3, "cannot have 3 runs"),
        (40, "<q", -1, "from sequence -1"),
        (48, "<q", NUMBER_MAX, "2 runs of 3 events from"),
        (56, "<i", 2, "2 runs of 4"),
        (56, "<ii", (-1, 4), "2 runs of 3"),
    ],
)
def test_inconsistent_runs_are_malformed(offset: int, layout: str, value: Any, text: str) -> None:
    data = bytearray(sealed([b"a", b"b", b"c"], runs=[(NODE, 5, 1), (TOPIC, 0, 2)]).data)
    struct.pack_into(layout, data, 72 + offset, *(value if isinstance(value, tuple) else (value,)))
    block = Block.parse(bytes(data))
    assert block.payloads() == [b"a", b"b", b"c"]
    with pytest.raises(Malformed, match=text):
        block.publishers()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data[:67], "shorter than its head"),
        (lambda data: data[:-8], "blocks have 144 bytes according to its head, but 136 arrived"),
        (lambda data: data + bytes(8), "blocks have 144 bytes according to its head, but 152 arrived"),
        (lambda data: b"\x09" + data[1:], "kind 9"),
        (lambda data: data[:56] + b"\x04" + data[57:], "gives 4 events, but its blocks hold 3"),
        (lambda data: data[:60] + bytes(4) + data[64:], "0 blocks"),
        (lambda data: data[:60] + b"\xff\x0f" + data[62:], "head gives"),
        (lambda data: data[:64] + b"\xff\xff" + data[66:], "head gives"),
        (lambda data: data[:55] + b"\x80" + data[56:], "from index -"),
        (lambda data: data[:48] + (NUMBER_MAX - 2).to_bytes(8, "little") + data[56:], "from index 4611686018427387902"),
        (lambda data: data[:31] + b"\xff" + data[32:], "of term 18374686479671623680"),
    ],
)
def test_an_invalid_bundle_is_malformed(change: Callable[[bytes], bytes], text: str) -> None:
    data = Bundle(Envelope(TOPIC, Kind.UP), (FULL,)).encode()
    with pytest.raises(Malformed, match=text):
        Bundle.decode(change(data))


# Terms and positions


def test_terms_grow_with_every_change_of_root() -> None:
    low, high = Term(1, b"\xff" * 16), Term(2, bytes(16))
    assert NO_TERM < low < Term(1, b"\xff" * 16 + b"\0") < high
    assert Position(low, 99) < Position(high, 0) < Position(high, 1)
