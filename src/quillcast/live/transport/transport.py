"""How one connection carries frames: the interface of all transports, TCP and Unix sockets."""

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from quillcast.core.bundle import BUNDLE_BYTES, Bundle
from quillcast.core.errors import Malformed
from quillcast.live.config import LiveConfig
from quillcast.live.transport import addresses, local_ipc
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
    """The same, if the process also belongs to this user."""


UNKNOWN = OtherEnd()


class TransportLost(Exception):
    """Something that the other side sent can no longer be obtained: as if the connection had ended earlier."""


class Transport:
    """Carries frames to and from the other end of a connection, which gets it when it is made.

    In this class everything travels in the socket's stream, as for `TcpTransport` and `UnixTransport`. TLS encrypts
    what is written (`live.transport.tls`). Between processes of one user, large blocks stay in shared memory
    (`live.transport.shared_transport`).
    """

    certificate: bytes | None = None
    """The other side's certificate, once its key is proven."""
    write: Callable[[list[Part]], None]
    """Sends these bytes, which are whole frames, in order."""

    def __init__(self, stream: asyncio.Transport, end: OtherEnd = UNKNOWN) -> None:
        self.stream, self.end = stream, end
        """The socket's stream: knows how much waits, and whether it is closing. Only the transport writes to it."""
        self.write = stream.writelines

    def pack(self, bundle: Bundle, parts: list[Part]) -> int:
        """Append the frame that carries a bundle to `parts`; returns its size in bytes."""
        head = bundle.head
        size = len(head) + bundle.size - BUNDLE_BYTES
        parts.append(header(size, BUNDLE) + head)
        parts += map(DATA, bundle.blocks)
        return HEADER_BYTES + size

    def unpack(self, type_: FrameType, content: bytes) -> Bundle | None:
        """Process a frame of this kind of transport; returns the bundle if it carries one.

        Raises `Malformed` if the frame is not of this kind of transport, and `TransportLost`.
        """
        raise Malformed(f"a {type_.name} frame of {len(content)} bytes came out of turn")

    def hand_over(self, protocol: asyncio.BufferedProtocol) -> None:
        """Pass what arrives from now on to this protocol."""
        self.stream.set_protocol(protocol)

    def finish(self, close: Callable[[], None]) -> None:
        """Call `close` when the other side has everything that does not travel in the stream, or after a time-out."""
        close()

    def close(self) -> None:
        """Close the stream when everything written has been sent, and release what is kept for the other side."""
        self.stream.close()


class TcpTransport(Transport):
    """A TCP connection. It ends if bytes stay unacknowledged for too long."""

    def __init__(self, stream: asyncio.Transport, config: LiveConfig) -> None:
        """Raises `OSError` if the connection has ended already."""
        peer = stream.get_extra_info("peername")  # None if it has already gone
        super().__init__(stream, OtherEnd(addresses.written(*peer[:2])) if peer else UNKNOWN)
        own = stream.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * config.unanswered_timeout_s))


class UnixTransport(Transport):
    """A Unix socket to a process of this machine; the kernel tells its process id and user."""

    def __init__(self, stream: asyncio.Transport, config: LiveConfig) -> None:
        """Raises `OSError` if the connection has ended already."""
        own = stream.get_extra_info("socket")
        local_ipc.widen(own)
        pid, user = local_ipc.process(own)
        super().__init__(stream, OtherEnd(f"process {pid} of this machine", pid, pid if user == os.geteuid() else 0))


def transport_of(stream: asyncio.Transport, config: LiveConfig) -> Transport:
    """The transport of a socket that was just connected or accepted."""
    made = UnixTransport if stream.get_extra_info("socket").family == socket.AF_UNIX else TcpTransport
    stream.set_write_buffer_limits(high=config.write_bytes_max)
    try:
        return made(stream, config)
    except OSError:
        stream.abort()  # its protocol is then told that it ended
        return Transport(stream)


async def connect(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    local: bool,
) -> None:
    """Connect to an address: if `local`, by Unix socket if a peer of this machine has one. Raises `OSError`."""
    own = local_ipc.connected(addresses.written(host, port)) if local else None
    if own is None:
        await loop.create_connection(protocol, host, port)
    else:
        await local_ipc.serve(loop, protocol, own)
