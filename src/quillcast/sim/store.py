"""A disk with realistic faults: on power loss, bytes that were not synced may be lost, torn or flipped."""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from quillcast.core.errors import DiskFailed
from quillcast.sim.process import Process

APPEND_S = 0.0001  # into the page cache; a guess
SYNC_S = 0.005  # a flush of a common SSD; a guess


class DiskFaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What power loss does to bytes that were not synced; probabilities from 0 to 1, for each file."""

    lost: float = 0.5
    """All of them are lost."""
    torn: float = 0.3
    """They end somewhere in the middle."""
    flipped: float = 0.1
    """One of their bits is flipped."""


class Files:
    """One machine's files, which outlive its processes. `synced[name]` bytes of `content[name]` are safe."""

    __slots__ = ("capacity_bytes", "content", "slowness", "synced")

    def __init__(self) -> None:
        self.content: dict[str, bytearray] = {}
        self.synced: dict[str, int] = {}
        self.capacity_bytes: int | None = None
        """The capacity of the disk; None means no limit."""
        self.slowness = 1.0
        """Orders take this many times as long."""

    def copy(self) -> "Files":
        """The files as they are now."""
        other = Files()
        other.content = {name: bytearray(data) for name, data in self.content.items()}
        other.synced = dict(self.synced)
        other.capacity_bytes, other.slowness = self.capacity_bytes, self.slowness
        return other

    def power_lost(self, random: Random, faults: DiskFaults) -> None:
        """Apply the faults to everything that was not synced."""
        for name, data in self.content.items():
            safe = self.synced.get(name, 0)
            if safe == len(data):
                continue
            fate = random.random()
            if fate < faults.lost:
                del data[safe:]
            elif fate < faults.lost + faults.torn:
                del data[random.randrange(safe, len(data)) :]
            elif fate < faults.lost + faults.torn + faults.flipped:
                data[random.randrange(safe, len(data))] ^= 1 << random.randrange(8)
            self.synced[name] = len(data)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.content.values()))


class SimDisk:
    """`core.host.Disk` for one process. Orders are executed one after another, and each is answered when done."""

    __slots__ = ("_files", "_free_at", "_process")

    def __init__(self, process: Process, files: Files) -> None:
        self._process, self._files = process, files
        self._free_at = 0.0

    def append(self, name: str, data: bytes, token: Any) -> None:
        self._order(APPEND_S, token, lambda: self._append(name, data))

    def sync(self, name: str, token: Any) -> None:
        self._order(SYNC_S, token, lambda: self._sync(name))

    def read(self, name: str, offset: int, size_bytes: int, token: Any) -> None:
        self._order(APPEND_S, token, lambda: bytes(self._file(name)[offset : offset + size_bytes]))

    def truncate(self, name: str, size_bytes: int, token: Any) -> None:
        self._order(APPEND_S, token, lambda: self._truncate(name, size_bytes))

    def _order(self, seconds: float, token: Any, work: Callable[[], bytes | int]) -> None:
        world = self._process.world
        self._free_at = max(self._free_at, world.now) + seconds * self._files.slowness
        world.at(self._free_at, self._carry_out, (token, work))

    def _carry_out(self, order: tuple[Any, Callable[[], bytes | int]]) -> None:
        """The kernel executes orders even while the process is paused. Orders of a dead process are dropped."""
        token, work = order
        if not self._process.alive:
            return
        result: bytes | int | DiskFailed
        try:
            result = work()
        except DiskFailed as error:
            result = error
        self._process.disk_done((token, result))

    def _append(self, name: str, data: bytes) -> int:
        files = self._files
        if files.capacity_bytes is not None and files.size_bytes + len(data) > files.capacity_bytes:
            raise DiskFailed(f"the disk is full: {name} cannot take {len(data)} bytes more; make room")
        file = self._file(name)
        file += data
        return len(file) - len(data)

    def _sync(self, name: str) -> int:
        self._files.synced[name] = len(self._file(name))
        return self._files.synced[name]

    def _truncate(self, name: str, size_bytes: int) -> int:
        del self._file(name)[size_bytes:]
        self._files.synced[name] = min(size_bytes, self._files.synced.get(name, 0))
        return size_bytes

    def _file(self, name: str) -> bytearray:
        return self._files.content.setdefault(name, bytearray())
