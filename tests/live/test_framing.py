from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed
from quillcast.live.framing import FrameReader, FrameType, Spare, frame, header

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
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[Any], step_bytes: int) -> None:
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


@given(st.binary(min_size=8, max_size=2000), st.integers(1, 100))
def test_any_bytes_are_frames_or_malformed(stream: bytes, step_bytes: int) -> None:
    try:
        found = feed(FrameReader(frame_bytes_max=500), stream, step_bytes)
    except Malformed:
        return
    assert stream.startswith(b"".join(frame(type_, content) for type_, content in found))


def test_what_a_frame_held_stays_as_it_is_while_others_are_read() -> None:
    sent = [(FrameType.BUNDLE, bytes([number]) * size) for number, size in enumerate([10, 300_000, 70_000, 20, 65_528])]
    found = list(pieces(FrameReader(), b"".join(frame(type_, content) for type_, content in sent), 1 << 22))
    assert [(type_, bytes(content)) for type_, content in found] == sent
    assert [type(content) for _, content in found] == [bytes, memoryview, memoryview, bytes, memoryview]


def test_memory_of_large_frames_is_used_again_once_nobody_holds_them() -> None:
    spare = Spare()
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
    spare = Spare()
    held = [spare.take(100_000) for _ in range(1000)]
    assert len({id(one.obj) for one in held}) == 1000
    assert sum(len(one.obj) for one in held) < 1.2 * sum(map(len, held))
