"""Shared-memory transfer: peers of one machine pass large blocks by reference, without copying them.

The exporter writes a block to an anonymous memory file (memfd_create(2)). If the other process can open the file, the
link sends its place instead of the block: the descriptor's number, and the expected content. The importer opens the
file for reading through `/proc/PID/fd`, maps it, and may pass it on in the same way. The exporter keeps the file until
the importer has confirmed it.

Files keep their size, so that no reader can fail. They are reused when no other process has them open. The kernel tells
this: it grants a lease (fcntl(2)) only on files that nobody else has open, however they obtained them. A file begins
with a use count, which a place also contains: a place that arrives late does not match.
"""

import errno
import fcntl
import mmap
import os
import resource
import signal
import struct
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import ClassVar

from quillcast.core.bundle import Block, Bundle
from quillcast.core.errors import Malformed
from quillcast.live.transport.framing import FRAME_BYTES_MAX
from quillcast.live.transport.transport import TransportLost

SHARED_BYTES_MIN = 64 << 10
"""Smaller blocks are sent: a copy is cheaper than the system calls; a guess."""

_POSSIBLE = hasattr(os, "memfd_create")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW if _POSSIBLE else 0
_PLACE = struct.Struct("<QQQ")  # descriptor, inode, use
_USE = struct.Struct("<Q")
_SIZE = attrgetter("size")  # of a block
_MEMORY_BYTES = 832 << 10  # a batch with its columns; larger blocks get their own memory, which is not reused
_MEMORIES_MAX = 84  # 68 MiB at most, per node: what a publisher keeps until it is stable, and one more window
_UNHELD = 2  # what `getrefcount` returns for an object that only the deque holds
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Released(TransportLost):
    """The exporter has released the block, usually because its process has ended."""


class OutOfDescriptors(Released):
    """This process has no descriptors or memory left to import blocks."""


class MemoryFile(mmap.mmap):
    """A mapped memory file. It is closed when nothing refers to it."""

    held: ClassVar[int] = 0
    """How many of them this process has."""

    descriptor: int = -1
    inode: int = 0

    def __new__(cls, descriptor: int, inode: int, content_bytes: int, access: int = mmap.PROT_READ) -> "MemoryFile":
        """Raises `OSError`; otherwise this object owns the descriptor."""
        made = super().__new__(cls, descriptor, _USE.size + content_bytes, mmap.MAP_SHARED, access)
        made.descriptor, made.inode = descriptor, inode
        MemoryFile.held += 1
        return made

    @classmethod
    def new(cls, content_bytes: int) -> "MemoryFile":
        """Create a file of this process. Raises `OSError`."""
        made = os.memfd_create("quillcast", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        own = -1
        try:
            os.ftruncate(made, _USE.size + content_bytes)
            fcntl.fcntl(made, fcntl.F_ADD_SEALS, _SEALS)
            own = os.open(f"/proc/self/fd/{made}", os.O_RDWR | os.O_CLOEXEC)  # leases are granted on opened files
            return cls(own, os.fstat(own).st_ino, content_bytes, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError:
            if own >= 0:
                os.close(own)
            raise
        finally:
            os.close(made)

    @property
    def use(self) -> int:
        """How often it was used before."""
        use: int = _USE.unpack_from(self)[0]
        return use

    @property
    def place(self) -> bytes:
        """The place of its content, for processes that can open it."""
        return _PLACE.pack(self.descriptor, self.inode, *_USE.unpack_from(self))

    def fill(self, parts: Sequence[bytes | memoryview]) -> memoryview:
        """Write these bytes; returns a view of them."""
        self.seek(_USE.size)
        size = sum(map(self.write, parts))
        return memoryview(self)[_USE.size : _USE.size + size]

    def take_back(self) -> bool:
        """Begin another use of the file; False if another process has it open."""
        fcntl.fcntl(self.descriptor, fcntl.F_SETSIG, signal.SIGURG)  # harmless if it is opened meanwhile
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:
            return False
        _USE.pack_into(self, 0, self.use + 1)
        fcntl.fcntl(self.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def __del__(self) -> None:
        if self.descriptor >= 0:
            MemoryFile.held -= 1
            os.close(self.descriptor)


class SharedMemory:
    """The memory files that a node exports from."""

    def __init__(self) -> None:
        self._all: deque[MemoryFile] = deque()
        _POOLS.add(self)

    def lay(self, parts: Sequence[bytes | memoryview]) -> memoryview | None:
        """Join these bytes in a memory file.

        None if they are too few to be worth it, or if this process cannot export more for now.
        """
        size = sum(map(len, parts))
        if size < SHARED_BYTES_MIN:
            return None
        try:
            memory = self._unused() if size <= _MEMORY_BYTES else _new(size)
        except OSError:  # no descriptor left
            return None
        return None if memory is None else memory.fill(parts)

    def sample(self, content: bytes) -> memoryview | None:
        """A small exported block, with which other processes test whether they can open this process's memory.

        None if this process cannot export, or if the kernel does not tell whether a file is open elsewhere.
        """
        if not _POSSIBLE:
            return None
        try:
            memory = MemoryFile.new(len(content))
            other = os.open(f"/proc/self/fd/{memory.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            told = not memory.take_back()
            os.close(other)
        except OSError:  # a container's rules may forbid it
            return None
        return memory.fill([content]) if told and memory.take_back() else None

    def places(self, blocks: Sequence[Block]) -> bytes | None:
        """The places of these blocks, moved to memory files if necessary; None if the blocks must be sent."""
        if min(map(_SIZE, blocks)) < SHARED_BYTES_MIN:
            return None
        places = list[bytes]()
        for block in blocks:
            found = place(block.data)
            if not found:
                exported = self.lay([block.data])
                if exported is None:
                    return None
                block.move_to(exported)
                found = place(exported)
            places.append(found)
        return b"".join(places)

    def retire(self) -> None:
        """Never reuse the memory files that are now in use."""
        self._all.clear()

    def _unused(self) -> MemoryFile | None:
        for _ in range(min(len(self._all), 2)):  # the oldest is usually free; if not, it may be in use for long
            self._all.rotate(-1)
            if sys.getrefcount(self._all[-1]) == _UNHELD and self._all[-1].take_back():
                return self._all[-1]
        made = _new(_MEMORY_BYTES) if len(self._all) < _MEMORIES_MAX else None
        if made is not None:
            self._all.append(made)
        return made


_POOLS: weakref.WeakSet[SharedMemory] = weakref.WeakSet()


def _retire_all() -> None:
    for shared_memory in _POOLS:
        shared_memory.retire()


os.register_at_fork(before=_retire_all)  # parent and child share open files, which the kernel counts once


def held_max() -> int:
    """Beyond this number of files, blocks are copied: each takes two descriptors, and half are left for other uses."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4


def _new(size_bytes: int) -> MemoryFile | None:
    return MemoryFile.new(size_bytes) if MemoryFile.held < held_max() else None


def place(data: bytes | memoryview) -> bytes:
    """The place of these bytes, if they are the whole content of a memory file; otherwise empty."""
    memory = data.obj if isinstance(data, memoryview) else None
    return memory.place if isinstance(memory, MemoryFile) else b""


def open_bundle(content: bytes, pid: int) -> Bundle:
    """Read a bundle that has places instead of blocks, as another process of this machine sent it.

    Raises `Released` or `Malformed`.
    """

    def open_all(data: bytes | memoryview, at: int, sizes: tuple[int, ...]) -> tuple[Block, ...]:
        if len(data) != at + len(sizes) * _PLACE.size:
            raise Malformed(f"a bundle exports {len(sizes)} blocks, and {len(data) - at} bytes name their places")
        if not min(sizes) or sum(sizes) > FRAME_BYTES_MAX:
            raise Malformed(f"a bundle exports blocks of {min(sizes)} bytes or more, {sum(sizes)} together")
        starts = range(at, len(data), _PLACE.size)
        return tuple(
            [Block.parse(open_block(pid, data[i : i + _PLACE.size], n)) for i, n in zip(starts, sizes, strict=True)]
        )

    return Bundle.decode(content, open_all)


def may_open(pid: int, place: bytes, content: bytes) -> bool:
    """Whether this process can open the memory of that one, which exports this content at this place as a test."""
    try:
        return len(place) == _PLACE.size and len(content) > 0 and open_block(pid, place, len(content)) == content
    except (Released, Malformed):
        return False


def open_block(pid: int, place: bytes | memoryview, size_bytes: int) -> memoryview:
    """Open a block of another process. Raises `Released`, or `Malformed` if the place is not an exported block."""
    descriptor, inode, use = _PLACE.unpack(place)
    own = -1
    try:
        own = os.open(
            f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        )  # from now on it is not reused
        found = os.fstat(own)
        if found.st_ino != inode:
            raise Released(f"process {pid} no longer exports this block")
        if fcntl.fcntl(own, fcntl.F_GET_SEALS) & _SEALS != _SEALS or found.st_size < _USE.size + size_bytes:
            raise Malformed(f"process {pid} exports {size_bytes} bytes, but holds something else")
        if MemoryFile.held < held_max():
            whole = memoryview(MemoryFile(own, inode, size_bytes))
            own = -1
        else:
            whole = memoryview(os.pread(own, _USE.size + size_bytes, 0))
        if _USE.unpack_from(whole)[0] != use:
            raise Released(f"process {pid} no longer exports this block")
        return whole[_USE.size :]
    except (FileNotFoundError, ProcessLookupError, BlockingIOError) as problem:  # the last one while it is taken back
        raise Released(f"process {pid} no longer exports this block") from problem
    except OSError as problem:
        if problem.errno in _SHORTAGES:
            raise OutOfDescriptors(f"what process {pid} exports cannot be opened: {problem.strerror}") from problem
        raise Malformed(f"what process {pid} exports cannot be opened: {problem.strerror}") from problem
    finally:
        if own >= 0:
            os.close(own)
