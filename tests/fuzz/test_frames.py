"""Frames, hellos and proofs from a socket: any bytes in any chunks give a value or a `RemoteError`."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quillcast.core.errors import Malformed, RemoteError
from quillcast.live.transport import hello
from quillcast.live.transport.framing import FRAME_BYTES_MAX, HEADER_BYTES, FrameReader, FrameType, Unfinished, frame
from quillcast.live.transport.hello import Hello, Identity
from tests.fuzz.bytes import ANY_BYTES, FUZZ, damaged, values
from tests.fuzz.memory import peak_bytes

Frame = tuple[FrameType, bytes]

FRAMES = st.lists(st.tuples(st.sampled_from(FrameType), st.binary(max_size=60)), max_size=6)
CUTS = st.lists(st.integers(1, 80), min_size=1, max_size=20)
HELLOS = values(Hello)
IDENTITY = Identity.of_secret(bytes(32))
MINE = Hello("net", IDENTITY.public_key, "127.0.0.1:1", bytes(32), bytes(8), 1)


def stream(frames: list[Frame]) -> bytes:
    return b"".join(frame(type_, content) for type_, content in frames)


def read(reader: FrameReader, data: bytes, cuts: list[int]) -> list[Frame]:
    """Feed the reader piece by piece, as sockets do."""
    found: list[Frame] = []
    at = turn = 0
    while at < len(data):
        buffer = reader.buffer()
        piece = data[at : at + min(cuts[turn % len(cuts)], len(buffer))]
        buffer[: len(piece)] = piece
        found += [(type_, bytes(content)) for type_, content in reader.frames(len(piece))]
        at, turn = at + len(piece), turn + 1
    return found


def sound(data: bytes, cuts: list[int]) -> None:
    """Whatever is read as frames is what the bytes say, from their beginning on."""
    reader = FrameReader(1 << 16)
    with suppress(Malformed):
        assert data.startswith(stream(read(reader, data, cuts)))


@FUZZ
@given(FRAMES, CUTS)
def test_frames_are_read_as_written_for_any_chunks(frames: list[Frame], cuts: list[int]) -> None:
    assert read(FrameReader(), stream(frames), cuts) == frames


@FUZZ
@given(ANY_BYTES, CUTS)
def test_any_bytes_are_frames_or_malformed(data: bytes, cuts: list[int]) -> None:
    sound(data, cuts)


@FUZZ
@given(damaged(FRAMES.map(stream)), CUTS)
def test_damaged_frames_are_others_or_malformed(data: bytes, cuts: list[int]) -> None:
    sound(data, cuts)


@pytest.mark.parametrize("claimed", [FRAME_BYTES_MAX + 1, (1 << 32) - 1])
def test_a_frame_that_only_announces_its_size_costs_no_memory(claimed: int) -> None:
    def claim() -> None:
        with pytest.raises(Malformed, match="at most"):
            read(FrameReader(), claimed.to_bytes(4, "little") + frame(FrameType.BUNDLE)[4:], [HEADER_BYTES])

    assert peak_bytes(claim) < 1 << 16


class Meter:
    """A connection that notes what its unfinished frame takes."""

    def __init__(self) -> None:
        self.unfinished = Unfinished(1 << 30)

    def holds(self, type_: FrameType, size_bytes: int) -> None:
        self.unfinished.hold(self, size_bytes)

    def crowd_out(self, held_bytes: int) -> None:
        raise AssertionError("nothing else takes memory")


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, 1_500_000), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(1, 300_000), min_size=1, max_size=5),
    st.integers(0, 2_000_000),
)
def test_large_frames_come_out_as_they_went_in_and_only_the_last_one_still_takes_memory(
    sizes: list[tuple[int, int]], cuts: list[int], cut_off: int
) -> None:
    frames = [(FrameType.BUNDLE, bytes([byte]) * size) for size, byte in sizes]
    meter = Meter()
    reader = FrameReader(holder=meter)
    data = stream(frames)
    found = read(reader, data[: max(0, len(data) - cut_off)], cuts)
    assert found == frames[: len(found)]
    unfinished = [len(content) for _, content in frames[len(found) :]]
    assert meter.unfinished.bytes <= (unfinished[0] if unfinished else 0)
    reader.release()
    assert meter.unfinished.bytes == 0


def heard(content: bytes) -> None:
    """A hello, and what follows from it, or a reason to refuse it."""
    with suppress(RemoteError):
        theirs = hello.decode(content)
        hello.check(MINE, theirs, None)
        hello.verify(MINE, theirs, bytes(64))


@FUZZ
@given(HELLOS)
def test_a_hello_comes_back_as_it_was_said(said: Hello) -> None:
    assert hello.decode(hello.encode(said)) == said


@FUZZ
@given(ANY_BYTES | ANY_BYTES.map(lambda data: hello.encode(MINE)[:11] + data))
@example(hello.encode(MINE)[:11] + b"\x96\xa1\xff" + b"\xc0" * 5)
@example(hello.encode(MINE)[:11] + b"\x91" * 4000)
def test_any_bytes_are_a_hello_or_refused(content: bytes) -> None:
    heard(content)


@FUZZ
@given(damaged(HELLOS.map(hello.encode) | st.just(hello.encode(MINE))))
def test_a_damaged_hello_is_another_or_refused(content: bytes) -> None:
    heard(content)


@FUZZ
@given(st.binary(max_size=100), st.binary(max_size=40))
def test_random_bytes_are_not_a_proof(proof: bytes, key: bytes) -> None:
    theirs = Hello("net", key, "127.0.0.1:2", bytes(32), bytes(8), 1)
    with pytest.raises(RemoteError):
        hello.verify(MINE, theirs, proof)
