"""A connection that carries frames: what arrives goes to the link that it serves, once that is established."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from quillcast.core.bundle import Bundle
from quillcast.core.errors import RemoteError
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.framing import BUNDLE, FRAME_BYTES_MAX, FramePool, FrameReader, FrameType, Unfinished
from quillcast.live.transport.transport import UNKNOWN, Transport

T = TypeVar("T")


class FrameMemoryFull(Exception):
    """Incomplete frames take too much memory, and this connection has waited longest."""


class Receiver(Protocol):
    """What an authenticated connection serves: a link."""

    def arrives(self, size_bytes: int, /) -> None:
        """Part of a bundle of this size has arrived. Raises `Malformed` if it overdraws the credit."""

    def pause(self) -> None:
        """The socket accepts no more bytes for now."""

    def resume(self) -> None:
        """The socket accepts bytes again."""


@dataclass(frozen=True, slots=True)
class FramedContext:
    """What all connections of a peer share."""

    pump: Pump
    plain: Callable[[asyncio.Transport], Transport]
    """Makes the transport of a socket."""
    spare: FramePool
    unfinished: Unfinished


class Framed(asyncio.BufferedProtocol):
    """A socket. Before it serves a link, each kind of connection identifies its two ends in its own way."""

    transport: Transport
    receiver: Receiver | None = None
    end = UNKNOWN

    def __init__(self, shared: FramedContext, frame_bytes_max: int) -> None:
        """Before it serves, frames have at most this many bytes."""
        self.shared = shared
        self._loop = shared.pump.loop
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.closing = self._made = False
        self._reader = FrameReader(frame_bytes_max, shared.spare, self)

    # --- what each kind does in its own way

    def made(self, transport: Transport) -> None:
        """The connection has its transport."""
        raise NotImplementedError

    def refuse(self, problem: RemoteError) -> None:
        """The other side broke the protocol: close."""
        raise NotImplementedError

    def crowded_out(self, problem: FrameMemoryFull) -> None:
        """The connection is closed, because other links need the memory of its incomplete frame."""
        raise NotImplementedError

    def _began(self, count: int) -> None:
        """The first bytes of the first frame have arrived. Raises `RemoteError` if they are not of this protocol."""

    def _before_serving(self, type_: FrameType, content: bytes) -> None:
        """A frame arrived before this serves a link. Raises `RemoteError`."""
        raise NotImplementedError

    def lost(self, problem: Exception) -> None:
        """The connection has ended."""
        raise NotImplementedError

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made(self.shared.plain(cast("asyncio.Transport", transport)))

    def connection_lost(self, problem: Exception | None) -> None:
        self._reader.release()  # connection and link form a reference cycle, which may be collected late
        self.transport.close()
        resolve(self.ended, None)
        self.lost(problem or ConnectionResetError("it closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, count: int) -> None:
        pump = self.shared.pump
        pump.begin_turn()
        try:
            if self.receiver is None:
                self._began(count)
            for type_, content in self._reader.frames(count):
                if self.receiver is None:
                    self._before_serving(type_, bytes(content))
                elif type_ is BUNDLE:
                    bundle_came = self._bundle_came  # Python calls a variable faster than an attribute
                    bundle_came(self.receiver, Bundle.decode(content))
                else:
                    frame_came = self._frame_came
                    frame_came(self.receiver, type_, bytes(content))
                if self.closing:
                    break
        except RemoteError as problem:
            self.refuse(problem)
        finally:
            pump.end_turn()

    def pause_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.pause()

    def resume_writing(self) -> None:
        if self.receiver is not None:
            self.receiver.resume()

    # --- called by the reader of frames

    def holds(self, type_: FrameType, size_bytes: int) -> None:
        """A frame that has not fully arrived takes this much memory. Raises `Malformed` if that is too much."""
        if type_ is BUNDLE and self.receiver is not None:
            self.receiver.arrives(size_bytes)
        self.shared.unfinished.hold(self, size_bytes)

    def crowd_out(self, held_bytes: int) -> None:
        """Close, because other links need the memory of an incomplete frame here, which has waited longest."""
        self._reader.release()
        self.crowded_out(
            FrameMemoryFull(
                f"a part of a frame takes {held_bytes} bytes and has waited longest for the rest; "
                f"all parts may take {self.shared.unfinished.bytes_max} bytes (live.unfinished_bytes_max)"
            ),
        )
        self.abort()

    # --- called by its owner

    def serve(
        self,
        receiver: Receiver,
        transport: Transport,
        bundle_came: Callable[[Any, Bundle], None],
        frame_came: Callable[[Any, FrameType, bytes], None],
    ) -> None:
        """Serve this link from now on, over this transport; both functions are called with the link."""
        self.transport, self.receiver = transport, receiver
        self._bundle_came, self._frame_came = bundle_came, frame_came
        self._reader.take_up_to(FRAME_BYTES_MAX)

    def hand_over(self, to: "Framed") -> None:
        """Let another connection use the socket from now on. The other side sends nothing before it is told."""
        self.closing = True
        self._reader.release()
        resolve(self.ended, None)
        self.transport.hand_over(to)
        to.made(self.transport)

    def close(self) -> None:
        """Close the connection after everything written has been sent."""
        self.closing = True
        self.transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self.closing = True
        if self._made:
            self.transport.stream.abort()


def resolve(waited_for: asyncio.Future[T], result: T) -> None:
    """Give the result to the waiters, unless they gave up: awaiting with a time limit cancels the future."""
    if not waited_for.done():
        waited_for.set_result(result)
