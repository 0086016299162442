from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.live.transport.framing import (
    BUNDLE,
    CONTROL_BYTES_MAX,
    FRAME_BYTES_MAX,
    FramePool,
    FrameReader,
    FrameType,
    Unfinished,
    frame,
    header,
)  # fmt: skip
from tests.fuzz.memory import kept_bytes, peak_bytes

contents = st.binary(max_size=300)
frames = st.lists(st.tuples(st.sampled_from(FrameType), contents), max_size=30)


def feed(reader: FrameReader, data: bytes, step_bytes: int) -> list[tuple[FrameType, bytes]]:
    """What a reader finds when a socket yields at most `step_bytes` at a time."""
    return [(type_, bytes(content)) for type_, content in pieces(reader, data, step_bytes)]


def pieces(reader: FrameReader, data: bytes, step_bytes: int) -> Iterator[tuple[FrameType, Any]]:
    """The same, as it is."""
    at = 0
    while at < len(data):
        space = reader.buffer()
        part = data[at : at + min(step_bytes, len(space))]
        space[: len(part)] = part
        at += len(part)
        yield from reader.frames(len(part))


@given(frames, st.integers(1, 1000))
def test_frames_are_read_as_written_for_any_chunks_of_the_stream(sent: list[Any], step_bytes: int) -> None:
    stream = b"".join(frame(type_, content) for type_, content in sent)
    assert feed(FrameReader(), stream, step_bytes) == sent


@pytest.mark.parametrize("step_bytes", [1 << 12, 1 << 16, 1 << 22])
def test_a_frame_larger_than_the_buffer_comes_out_whole_and_the_buffer_shrinks_again(step_bytes: int) -> None:
    large = bytes(range(256)) * 12_000
    sent = [(FrameType.CREDIT, b"before"), (FrameType.BUNDLE, large), (FrameType.CREDIT, b"after")]
    reader = FrameReader()
    assert feed(reader, b"".join(frame(type_, content) for type_, content in sent), step_bytes) == sent
    assert len(reader.buffer()) <= 512 << 10


def test_a_frame_over_the_limit_is_refused_by_its_header_alone() -> None:
    with pytest.raises(Malformed, match="a frame of 1001 bytes came, at most 1000 are allowed"):
        feed(FrameReader(frame_bytes_max=1000), header(1001, FrameType.BUNDLE), 100)


def test_what_a_frame_held_stays_as_it_is_while_others_are_read() -> None:
    sent = [(FrameType.BUNDLE, bytes([number]) * size) for number, size in enumerate([10, 300_000, 70_000, 20, 65_528])]
    found = list(pieces(FrameReader(), b"".join(frame(type_, content) for type_, content in sent), 1 << 22))
    assert [(type_, bytes(content)) for type_, content in found] == sent
    assert [type(content) for _, content in found] == [bytes, memoryview, memoryview, bytes, memoryview]


def test_memory_of_large_frames_is_reused_once_they_are_released() -> None:
    spare = FramePool()
    reader = FrameReader(spare=spare)
    sent = [bytes([number]) * 100_000 for number in range(5)]
    stream = [frame(FrameType.BUNDLE, content) for content in sent]
    held = [content for _, content in pieces(reader, b"".join(stream[:3]), 1 << 16)]
    assert held == sent[:3]
    let_go = id(held.pop(0).obj)
    held += [content for _, content in pieces(reader, b"".join(stream[3:]), 1 << 16)]
    assert held == sent[1:]
    assert let_go in [id(content.obj) for content in held]


def test_frames_that_are_held_for_long_take_what_they_need() -> None:
    reader = FrameReader()
    stream = frame(FrameType.BUNDLE, bytes(100_000)) * 1000
    held = [content for _, content in pieces(reader, stream, 1 << 16)]
    assert len({id(one.obj) for one in held}) == 1000
    assert sum(len(one.obj) for one in held) < 1.2 * sum(map(len, held))


NONE_TO_SPARE = FramePool()
HELD = list(iter(lambda: NONE_TO_SPARE.take(1), None))
"""All memory that a peer keeps for large frames."""


class Ledger:
    """A connection that notes what its frame takes, and what becomes of it."""

    def __init__(self, unfinished: Unfinished | None = None) -> None:
        self.unfinished = unfinished or Unfinished(1 << 30)
        self.held_bytes, self.crowded_out = 0, False

    def holds(self, type_: FrameType, size_bytes: int) -> None:
        self.held_bytes = size_bytes
        self.unfinished.hold(self, size_bytes)

    def crowd_out(self, held_bytes: int) -> None:
        self.crowded_out, self.held_bytes = True, 0


def put(reader: FrameReader, data: bytes) -> None:
    """Have the reader take all of it; no frame becomes whole."""
    assert feed(reader, data, 1 << 16) == []


def test_a_header_alone_takes_little_memory() -> None:
    def claim() -> None:
        put(FrameReader(spare=NONE_TO_SPARE), header(FRAME_BYTES_MAX, FrameType.BUNDLE))

    assert peak_bytes(claim) < 300 << 10


@pytest.mark.parametrize("step_bytes", [1, 999])
def test_memory_of_a_frame_follows_what_has_arrived(step_bytes: int) -> None:
    ledger, size = Ledger(), 3_000_000 if step_bytes > 1 else 300_000
    reader = FrameReader(spare=NONE_TO_SPARE, holder=ledger)
    data, most = frame(FrameType.BUNDLE, bytes(size)), []
    for at in range(0, len(data) - step_bytes, step_bytes):
        put(reader, data[at : at + step_bytes])
        most.append(ledger.held_bytes <= max(256 << 10, 4 * (at + step_bytes)))
    assert all(most)
    assert 0 < ledger.held_bytes == ledger.unfinished.bytes <= size
    assert feed(reader, data[at + step_bytes :], step_bytes) == [(FrameType.BUNDLE, bytes(size))]
    assert ledger.held_bytes == ledger.unfinished.bytes == 0


def test_a_frame_that_arrives_byte_by_byte_is_what_was_sent() -> None:
    content = bytes(range(256)) * 500
    stream = frame(FrameType.CREDIT, b"before") + frame(FrameType.BUNDLE, content) + frame(FrameType.CREDIT, b"after")
    found = feed(FrameReader(spare=NONE_TO_SPARE), stream, 1)
    assert found == [(FrameType.CREDIT, b"before"), (FrameType.BUNDLE, content), (FrameType.CREDIT, b"after")]


def test_a_reader_that_is_released_keeps_nothing() -> None:
    ledger, kept = Ledger(), []

    def read() -> None:
        reader = FrameReader(spare=NONE_TO_SPARE, holder=ledger)
        put(reader, header(4 << 20, FrameType.BUNDLE) + bytes(3 << 20))
        assert ledger.unfinished.bytes >= 3 << 20
        reader.release()
        kept.append(reader)

    assert kept_bytes(read) < 64 << 10
    assert ledger.unfinished.bytes == 0


def test_control_has_a_bound_of_its_own() -> None:
    with pytest.raises(Malformed, match=f"at most {CONTROL_BYTES_MAX} are allowed"):
        feed(FrameReader(), header(CONTROL_BYTES_MAX + 1, FrameType.CONTROL), 100)
    put(FrameReader(), header(CONTROL_BYTES_MAX, FrameType.CONTROL))


def test_if_incomplete_frames_take_too_much_the_oldest_link_closes() -> None:
    unfinished = Unfinished(1000)
    ledgers = [Ledger(unfinished) for _ in range(3)]
    ledgers[0].holds(BUNDLE, 400)
    ledgers[1].holds(BUNDLE, 400)
    ledgers[0].holds(BUNDLE, 400)  # more came
    ledgers[2].holds(BUNDLE, 400)
    assert [ledger.crowded_out for ledger in ledgers] == [False, True, False]
    assert unfinished.bytes == 800
    ledgers[2].holds(BUNDLE, 1000)
    assert [ledger.crowded_out for ledger in ledgers] == [True, True, False]
    with pytest.raises(Malformed, match="a part of a frame takes 1001 bytes, and all may take 1000"):
        ledgers[2].holds(BUNDLE, 1001)
    assert unfinished.bytes == 0
