"""Transports by themselves, over a stream that notes what is written: no socket and no peer."""

import asyncio
import os
import socket
from collections import Counter
from typing import Any

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.live.config import LiveConfig
from quillcast.live.transport.framing import NUMBER_BYTES, FrameReader, FrameType, frame
from quillcast.live.transport.shared_memory import Released, SharedMemory
from quillcast.live.transport.shared_transport import SharedMemoryTransport, Sharing
from quillcast.live.transport.transport import (
    OtherEnd,
    Part,
    Transport,
    TransportLost,
    UnixTransport,
    transport_of,
)
from tests.live.toys import bundle

LARGE, SMALL = 100_000, 100
HERE = OtherEnd("this process", os.getpid(), os.getpid())
ELSEWHERE = OtherEnd("192.0.2.1:4000")
INCARNATION = b"8 bytes."


class Stream(asyncio.Transport):
    """Notes what is written to it."""

    def __init__(self, own: socket.socket | None = None) -> None:
        super().__init__(extra={"socket": own})
        self.written, self.closed, self.aborted = b"", False, False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It takes everything."""

    def abort(self) -> None:
        self.aborted = True

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def close(self) -> None:
        self.closed = True


def sharing() -> Sharing:
    return Sharing(SharedMemory(), INCARNATION, LiveConfig(), Counter())


def sample_of(other: Sharing) -> tuple[bytes, bytes]:
    return other.sample_place, INCARNATION


def pair() -> tuple[SharedMemoryTransport, SharedMemoryTransport]:
    """The transports of both ends of a connection, each of which knows that the other can open its memory."""
    one, other = sharing(), sharing()
    ends = (
        one.over(Transport(Stream(), HERE), *sample_of(other)),
        other.over(Transport(Stream(), HERE), *sample_of(one)),
    )
    for end, far in (ends, ends[::-1]):
        assert isinstance(end, SharedMemoryTransport)
        assert carried(far, end) == []
    return ends  # type: ignore[return-value]  # checked above


def carried(sender: Transport, receiver: Transport) -> list[Bundle]:
    """Have what was written at one end arrive at the other; the bundles among it that did not travel in the stream."""
    written, sender.stream.written = sender.stream.written, b""  # type: ignore[attr-defined]
    reader, came = FrameReader(), []
    while written:
        buffer = reader.buffer()
        count = min(len(buffer), len(written))
        buffer[:count] = written[:count]
        written = written[count:]
        came += [receiver.unpack(type_, bytes(content)) for type_, content in reader.frames(count)]
    return [each for each in came if each is not None]


def packed(transport: Transport, sent: Bundle) -> bytes:
    parts: list[Part] = []
    size = transport.pack(sent, parts)
    assert size == sum(map(len, parts))
    transport.write(parts)
    return b"".join(parts)


def test_a_socket_that_ended_before_it_had_a_transport_is_aborted() -> None:
    """Its protocol is told by the event loop; until then it writes to a stream that takes nothing."""
    own, other = socket.socketpair()
    for each in (own, other):
        each.close()
    stream = Stream(own)
    assert type(transport_of(stream, LiveConfig())) is Transport
    assert stream.aborted


def test_a_unix_socket_knows_the_process_at_its_other_end() -> None:
    own, other = socket.socketpair()
    with own, other:
        transport = transport_of(Stream(own), LiveConfig())
    assert isinstance(transport, UnixTransport)
    assert transport.end == OtherEnd(f"process {os.getpid()} of this machine", os.getpid(), os.getpid())


def test_small_bundles_travel_the_same_way_by_every_transport() -> None:
    shared, _ = pair()
    sent = bundle(SMALL)
    expected = frame(FrameType.BUNDLE, sent.head + b"".join(block.data for block in sent.blocks))
    assert packed(Transport(Stream(), ELSEWHERE), sent) == packed(shared, sent) == expected


def test_of_large_bundles_the_places_travel() -> None:
    one, other = pair()
    sent = bundle(LARGE)
    assert len(packed(one, sent)) < 500
    assert carried(one, other) == [sent]


def test_memory_is_shared_with_processes_of_this_user_that_can_be_opened() -> None:
    here, below = sharing(), Transport(Stream(), ELSEWHERE)
    assert here.over(below, *sample_of(here)) is below
    one_way = here.over(Transport(Stream(), HERE), b"", INCARNATION)
    with pytest.raises(Malformed, match="a SHARED_BUNDLE frame of 4 bytes came out of turn"):
        one_way.unpack(FrameType.SHARED_BUNDLE, b"what")


def test_a_stream_takes_no_frames_of_shared_memory() -> None:
    plain = Transport(Stream(), ELSEWHERE)
    for type_ in (FrameType.SHARED_MEMORY, FrameType.SHARED_BUNDLE, FrameType.OPENED):
        with pytest.raises(Malformed, match="came out of turn"):
            plain.unpack(type_, b"")


def test_a_transport_is_finished_when_the_other_side_has_confirmed_what_it_opened() -> None:
    async def scenario() -> list[str]:
        said: list[str] = []
        one, other = pair()
        packed(one, bundle(LARGE))
        one.finish(lambda: said.append("closed"))
        assert said == []
        packed_here = one.stream.written  # type: ignore[attr-defined]
        assert packed_here.endswith(frame(FrameType.PING, bytes(NUMBER_BYTES)))
        one.stream.written = packed_here[: -len(frame(FrameType.PING, bytes(NUMBER_BYTES)))]  # type: ignore[attr-defined]
        assert len(carried(one, other)) == 1
        other.write([])
        assert carried(other, one) == []
        return said

    assert asyncio.run(scenario()) == ["closed"]


def test_a_stream_is_finished_at_once() -> None:
    said: list[str] = []
    Transport(Stream(), ELSEWHERE).finish(lambda: said.append("closed"))
    assert said == ["closed"]


def test_a_bundle_whose_exporter_has_closed_is_lost_with_the_transport() -> None:
    one, other = pair()
    sent = bundle(LARGE)
    packed(one, sent)
    one._sharing.memory.retire()
    one.close()
    assert one.stream.closed  # type: ignore[attr-defined]
    del sent
    assert issubclass(Released, TransportLost)
    with pytest.raises(TransportLost):
        carried(one, other)
