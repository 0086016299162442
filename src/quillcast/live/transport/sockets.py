"""TCP and Unix sockets: which of them a connection gets, and what each knows of its other end."""

import asyncio
import os
import socket
from collections.abc import Callable

from quillcast.live.config import LiveConfig
from quillcast.live.transport import addresses, local_ipc
from quillcast.live.transport.transport import OtherEnd, Transport


class TcpTransport(Transport):
    """A TCP connection. Bytes that stay unacknowledged for too long end it."""

    def __init__(self, stream: asyncio.Transport, config: LiveConfig) -> None:
        """Raises `OSError` if the connection has ended already."""
        peer = stream.get_extra_info("peername")  # none if it has gone already
        super().__init__(stream, OtherEnd(addresses.written(*peer[:2])) if peer else OtherEnd())
        own = stream.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * config.unanswered_timeout_s))


class UnixTransport(Transport):
    """A Unix socket to a process of this machine, whose number and user the kernel tells."""

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
        stream.abort()  # its protocol is told next that it ended
        return Transport(stream, OtherEnd())


async def connect(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    local: bool,
) -> None:
    """Connect to an address: if `local`, by a Unix socket where a peer of this machine has one. Raises `OSError`."""
    own = local_ipc.connected(addresses.written(host, port)) if local else None
    if own is None:
        await loop.create_connection(protocol, host, port)
    else:
        await local_ipc.serve(loop, protocol, own)
