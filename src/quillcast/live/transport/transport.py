"""How one connection carries frames: the interface of all transports.

A connection gets its transport when it is made, and nothing else asks which one that is:

- `sockets.TcpTransport` and `sockets.UnixTransport`: everything travels in the socket's stream;
- `tls.TlsTransport`, over one of these: what is written is encrypted;
- `shared_transport.SharedMemoryTransport`, over any of these: places of large blocks travel, and the blocks stay.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from quillcast.core.bundle import BUNDLE_BYTES, Bundle
from quillcast.core.errors import Malformed
from quillcast.live.transport.framing import BUNDLE, HEADER_BYTES, FrameType, header

Part = bytes | memoryview

DATA = attrgetter("data")  # of a block


@dataclass(frozen=True, slots=True)
class OtherEnd:
    """What the operating system says about the other end of a connection."""

    name: str = "an unauthenticated peer"
    """Its address or process, as text."""
    pid: int = 0
    """Its process, if that is on this machine."""
    own_pid: int = 0
    """The same, if the process is also of this user."""


class TransportLost(Exception):
    """Something that the other side sent cannot be had any more: as if the connection had ended before."""


class Transport(Protocol):
    """Carries frames to and from the other end of one connection."""

    stream: asyncio.Transport
    """The socket's. It says how much waits to be sent and whether it is closing; only the transport writes to it."""
    end: OtherEnd

    @property
    def certificate(self) -> bytes | None:
        """The other side's certificate, whose key is proven; None if it showed none."""
        ...

    def write(self, parts: list[Part], /) -> None:
        """Send these bytes, in order. They are whole frames."""
        ...

    def pack(self, bundle: Bundle, parts: list[Part], /) -> int:
        """Append the frame that carries a bundle to `parts`; returns how many bytes that is."""
        ...

    def unpack(self, type_: FrameType, content: bytes, /) -> Bundle | None:
        """Process a frame of this kind of transport; returns the bundle, if it carries one.

        Raises `Malformed` if the frame is not of this kind of transport, and `TransportLost`.
        """
        ...

    def finish(self, close: Callable[[], None], /) -> None:
        """Call `close` when the other side has taken all that does not travel in the stream; or after a while."""
        ...

    def close(self) -> None:
        """Close the stream when everything written has been sent, and release what is kept for the other side."""
        ...


class StreamTransport:
    """Everything travels in the stream."""

    stream: asyncio.Transport
    end: OtherEnd

    def __init__(self, stream: asyncio.Transport, end: OtherEnd) -> None:
        self.stream, self.end = stream, end

    @property
    def certificate(self) -> bytes | None:
        return None

    def write(self, parts: list[Part], /) -> None:
        self.stream.writelines(parts)

    def pack(self, bundle: Bundle, parts: list[Part], /) -> int:
        head = bundle.head
        size = len(head) + bundle.size - BUNDLE_BYTES
        parts.append(header(size, BUNDLE) + head)
        parts += map(DATA, bundle.blocks)
        return HEADER_BYTES + size

    def unpack(self, type_: FrameType, content: bytes, /) -> Bundle | None:
        raise Malformed(f"a {type_.name} frame of {len(content)} bytes came out of turn")

    def finish(self, close: Callable[[], None], /) -> None:
        close()

    def close(self) -> None:
        self.stream.close()
