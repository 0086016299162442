"""Local IPC: links between peers of one machine over a Unix socket, named by the same address as the TCP port.

A connecting peer tries it first, because it takes half the time of TCP. The names are abstract (unix(7)): like
loopback, they belong to a network namespace, and they end with the process. Any user of the machine can take such a
name, so the connecting peer checks its owner.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

BUFFER_BYTES = 2 << 20  # the kernel's buffer; with a quarter of it TCP is faster; measured
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: `struct ucred` of unix(7)

_ACCEPTS = 0x10000  # __SO_ACCEPTCON: the socket listens
_SHOWN = "@quillcast "  # how /proc/net/unix shows the beginning of `_name`


def listener(address: str) -> socket.socket:
    """A socket bound to the name of an address, `host:port`. Raises `OSError` if the name is taken."""
    own = _new()
    try:
        own.bind(_name(address))
    except OSError:
        own.close()
        raise
    return own


def connected(address: str) -> socket.socket | None:
    """A socket to the peer of this machine that listens at an address; None if TCP must be used.

    That is the case if nobody has the name, or a user that this process does not trust, or if the kernel grants too
    little memory (net.core.wmem_max).
    """
    own = _new()
    with contextlib.suppress(OSError):
        own.connect(_name(address))
        if widen(own) and process(own)[1] in (os.geteuid(), 0):
            return own
    own.close()
    return None


async def serve(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], asyncio.BaseProtocol], own: socket.socket
) -> None:
    """Serve a connected socket with a protocol.

    uvloop takes only the descriptor and closes it. If the connection ends before this returns, uvloop leaves the number
    in the socket object, which would close it again when it is deleted: by then it belongs to another connection.
    """
    try:
        await loop.create_unix_connection(protocol, sock=own)
    finally:
        if not isinstance(loop, asyncio.BaseEventLoop):  # asyncio's own loops keep the object and close it
            own.detach()


def listening() -> list[str]:
    """The addresses at which peers of this machine listen, of all users and networks."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    fields = (line.split(maxsplit=7) for line in lines)
    names = (field[7] for field in fields if len(field) == 8 and int(field[3], 16) & _ACCEPTS)
    return sorted({name.removeprefix(_SHOWN) for name in names if name.startswith(_SHOWN)})


def widen(own: socket.socket) -> bool:
    """Enlarge the socket's buffers; False if the kernel grants less."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= BUFFER_BYTES


def process(own: socket.socket) -> tuple[int, int]:
    """The process at the other end, 0 if it is not visible to this one, and its user."""
    credentials = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return pid, user


async def has_ended(pid: int, within_s: float) -> bool:
    """Whether a process of this machine ends within this time. False also if the kernel cannot tell."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(within_s):
            await ended.wait()
    except TimeoutError:
        return False
    else:
        return True
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _new() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)


def _name(address: str) -> str:
    return f"\0quillcast {address}"
