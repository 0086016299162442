"""Bytes that came as a bundle or a block: a value or `Malformed`, and no more memory than they earn."""

import struct
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind, Term
from quillcast.core.errors import Malformed
from quillcast.core.messages import NUMBER_MAX
from quillcast.live.edges.subscription import events
from tests.fuzz.bytes import ANY_BYTES, FUZZ, PLACE, damaged
from tests.fuzz.memory import peak_bytes

IDS = st.binary(min_size=16, max_size=16)
TIMES = st.integers(-(2**63), 2**63 - 1)
READERS = {
    "payloads": Block.payloads,
    "times": Block.times,
    "keys": Block.keys,
    "attributes": Block.attributes,
    "authors": lambda block: list(zip(*block.publishers(), strict=True)),
    "arrow": lambda block: block.arrow().validate(full=True),
}


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Blocks with events of one size or of many, and any of the optional columns."""
    count = draw(st.integers(1, 40))
    size = draw(st.none() | st.integers(0, 12))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    def perhaps(values: st.SearchStrategy[Any]) -> list[Any] | None:
        return column(values) if draw(st.booleans()) else None

    payloads = st.binary(max_size=20) if size is None else st.binary(min_size=size, max_size=size)
    return Block.seal(
        draw(IDS),
        draw(st.integers(0, NUMBER_MAX - 100)),
        column(payloads),
        time_ns=draw(TIMES),
        times=perhaps(TIMES),
        keys=perhaps(st.binary(max_size=4)),
        attributes=perhaps(st.binary(max_size=4)),
        runs=draw(
            st.none() | st.just([(bytes(16), number, 1) for number in range(count)]) | st.just([(b"p" * 16, 7, count)])
        ),
    )


ENVELOPES = st.builds(
    Envelope,
    IDS,
    st.sampled_from(Kind),
    st.builds(Term, st.integers(0, NUMBER_MAX), IDS),
    st.integers(0, NUMBER_MAX - 1000),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=20),
    st.binary(max_size=20),
)
BUNDLES = st.builds(Bundle, ENVELOPES, st.lists(blocks(), min_size=1, max_size=3).map(tuple))


def read(block: Block) -> None:
    """Every column is a list with one entry per event, or malformed."""
    for name, reader in READERS.items():
        with suppress(Malformed):
            values = reader(block)
            assert values is None or len(values) == block.count, name


def read_bundle(data: bytes) -> None:
    try:
        bundle = Bundle.decode(memoryview(data))
    except Malformed:
        return
    assert bundle.count == sum(block.count for block in bundle.blocks)
    for block in bundle.blocks:
        read(block)
    forwarded = bundle.under(bundle.envelope)
    assert Bundle.decode(forwarded.encode()).blocks == bundle.blocks


@FUZZ
@given(ANY_BYTES)
@example(b"")
@example(b"\x01" + bytes(67))
def test_any_bytes_are_a_bundle_or_malformed(data: bytes) -> None:
    read_bundle(data)


@FUZZ
@given(damaged(BUNDLES.map(Bundle.encode)))
def test_a_damaged_bundle_is_another_or_malformed(data: bytes) -> None:
    read_bundle(data)


@FUZZ
@given(damaged(blocks().map(lambda block: block.data)))
def test_a_damaged_block_is_another_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        read(Block.parse(data))


@FUZZ
@given(blocks(), PLACE, st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 60))
def test_a_damaged_column_is_another_or_malformed(block: Block, place: int, value: int) -> None:
    """Damage behind the header, where only columns stand: any offset may be any number."""
    data = bytearray(block.data)
    struct.pack_into("<i", data, 48 + place % (len(data) - 48) // 4 * 4, value)
    read(Block.parse(bytes(data)))


@FUZZ
@given(st.lists(st.binary(max_size=30), min_size=1, max_size=5))
@example([b"\x81\xa1a" + b"\x91" * 100_000])
@example([b"\x81\xa1\xff\x01"])
def test_attributes_that_are_not_a_map_are_malformed(attributes: list[bytes]) -> None:
    block = Block.seal(bytes(16), 0, [b""] * len(attributes), time_ns=0, attributes=attributes)
    with suppress(Malformed):
        assert all(type(event.attributes) in (dict, type(None)) for event in events("topic", block, 0, block.count)[0])


@FUZZ
@given(blocks(), st.integers(1, 60), st.integers(0, 2**32 - 1) | st.integers(0, 700), st.integers(0, 31))
def test_a_header_that_lies_about_its_columns_is_found_out(block: Block, count: int, size: int, flags: int) -> None:
    data = bytearray(block.data)
    data[5] = flags
    struct.pack_into("<II", data, 40, count, size)
    with suppress(Malformed):
        read(Block.parse(bytes(data)))


def header(count: int, payload_bytes: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<IBBH16sqqII", 64, 1, flags, 0, bytes(16), 0, 0, count, payload_bytes) + bytes(16)


@pytest.mark.parametrize("count", [4, 1 << 20, (1 << 32) - 1])
def test_announced_events_that_do_not_exist_cost_no_memory(count: int) -> None:
    def claimed() -> None:
        with pytest.raises(Malformed):
            Block.parse(header(count))

    assert peak_bytes(claimed) < 1 << 16


@pytest.mark.parametrize("flags", [0, 1, 2, 4, 7, 15, 16, 31])
def test_announced_bytes_that_do_not_exist_cost_no_memory(flags: int) -> None:
    block = Block.parse(header(2, (1 << 32) - 1, flags))
    assert peak_bytes(lambda: read(block)) < 1 << 16


def test_a_bundle_that_announces_many_blocks_costs_no_memory() -> None:
    data = struct.pack("<BBHI16sQ16sqIIHH", 2, 0, 0, 0, bytes(16), 0, bytes(16), 0, 4, 4096, 65535, 65535)
    assert peak_bytes(lambda: read_bundle(data)) < 1 << 16


def test_events_of_no_bytes_cost_in_proportion_to_their_offsets() -> None:
    block = Block.seal(bytes(16), 0, [b""] * 10_000, time_ns=0)
    assert peak_bytes(block.payloads) < 50 * block.size


@FUZZ
@given(IDS, st.binary(max_size=600), st.integers(0, NUMBER_MAX - 1), st.data())
def test_a_bundle_of_one_event_is_read_as_any_other(
    publisher: bytes, payload: bytes, first: int, data: st.DataObject
) -> None:
    """It takes a shorter way, which a bundle whose blocks lie elsewhere may not take: both come to the same."""
    envelope = Envelope(bytes(16), Kind.DOWN, Term(data.draw(st.integers(0, NUMBER_MAX)), bytes(16)), first)
    whole = Bundle(envelope, (Block.seal(publisher, first, [payload], time_ns=0),)).encode()
    came = data.draw(st.just(whole) | damaged(st.just(whole)))

    def cut(content: bytes | memoryview, at: int, sizes: tuple[int, ...]) -> tuple[Block, ...]:
        if at + sum(sizes) != len(content):
            raise Malformed("sizes")
        ends = accumulate(sizes, initial=at)
        return tuple(Block.parse(bytes(content[start:end])) for start, end in pairwise(ends))

    try:
        expected = Bundle.decode(came, cut)
    except Malformed:
        with pytest.raises(Malformed):
            Bundle.decode(came)
        return
    found = Bundle.decode(came)
    assert found == expected
    assert found.encode() == expected.encode()
    assert (found.topic, found.count, found.last, found.size) == (
        expected.topic, expected.count, expected.last, expected.size,
    )  # fmt: skip
    for name in ("publisher", "first", "last", "count", "size", "time_ns"):
        assert getattr(found.blocks[0], name) == getattr(expected.blocks[0], name)
