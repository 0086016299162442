"""The way between peers of one machine: a Unix socket beside the TCP port, named by the same address.

Whoever connects tries it first. Bytes go from one process to the other without passing TCP, which takes half the time.
The names are abstract (unix(7)): they are as much a network namespace's own as its loopback, and end with the process.
Loopback is open to every user of a machine, and so may anybody take such a name: who connects looks whose it is.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

BUFFER_BYTES = 2 << 20  # what the kernel keeps of what is sent; with a quarter of it TCP is faster; measured
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: `struct ucred` of unix(7)

_ACCEPTS = 0x10000  # __SO_ACCEPTCON: the socket listens
_SHOWN = "@quillcast "  # how /proc/net/unix shows the beginning of `_name`


def listener(address: str) -> socket.socket:
    """A socket bound to the name of an address, `host:port`. Raises `OSError` if somebody has it."""
    own = _new()
    try:
        own.bind(_name(address))
    except OSError:
        own.close()
        raise
    return own


def connected(address: str) -> socket.socket | None:
    """A socket to the peer of this machine that listens at an address; None where TCP is the way.

    That is if nobody has the name, or a user whom this process need not trust; or if the kernel grants too little
    memory (net.core.wmem_max).
    """
    own = _new()
    with contextlib.suppress(OSError):
        own.connect(_name(address))
        if widen(own) and process(own)[1] in (os.geteuid(), 0):
            return own
    own.close()
    return None


async def transport(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], asyncio.BaseProtocol], own: socket.socket
) -> None:
    """Serve a connected socket by a protocol.

    uvloop takes the descriptor alone and closes it. If the connection ends before this returns, uvloop leaves the
    number in the socket object, which would close it once more when it goes: by then it is some other connection's.
    """
    try:
        await loop.create_unix_connection(protocol, sock=own)
    finally:
        if not isinstance(loop, asyncio.BaseEventLoop):  # asyncio's own loops keep the object, and close it
            own.detach()


def listening() -> list[str]:
    """The addresses that peers of this machine listen at, whoever runs them and whatever network they are of."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    fields = (line.split(maxsplit=7) for line in lines)
    names = (field[7] for field in fields if len(field) == 8 and int(field[3], 16) & _ACCEPTS)
    return sorted({name.removeprefix(_SHOWN) for name in names if name.startswith(_SHOWN)})


def widen(own: socket.socket) -> bool:
    """Give the socket its memory; False if the kernel grants less."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= BUFFER_BYTES


def process(own: socket.socket) -> tuple[int, int]:
    """The process at the other end, 0 if this one cannot see it; and its user."""
    credentials = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(credentials)
    return pid, user


async def has_ended(pid: int, within_s: float) -> bool:
    """Has a process of this machine ended, or does it within a time? False too where the kernel cannot tell."""
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
