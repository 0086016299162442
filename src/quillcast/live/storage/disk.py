"""Append-only files with checksums: the `Disk` of a live host, on its own thread.

A file is a sequence of records: size of the data, CRC-32 of the data, CRC-32 of these 8 bytes (4 bytes each, little
endian), then the data. Offsets and sizes of the `Disk` count data only. An incomplete record at the end of a file was
never confirmed by a sync: it is removed when the file is opened. Any other damage is left as it is and raises
`DiskFailed`.
"""

import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from quillcast.core.errors import DiskFailed, LocalError
from quillcast.live.runtime.pump import Pump

_RECORD = struct.Struct("<III")
_SUMMED_BYTES = 8  # of a record's header


class RecordFile:
    """An append-only file. Offsets count the bytes of data, without record headers.

    Raises `OSError`, and `DiskFailed` if a checksum does not match.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._starts: list[int] = []  # where each record's data begins, counted in data
        self._places: list[int] = []  # where each record begins in the file
        self.size_bytes = self._end = 0
        self._scan()

    def append(self, data: bytes) -> int:
        """Append a record atomically. Returns the offset of its data."""
        record = _header(data) + data
        try:
            written = 0
            while written < len(record):
                written += os.pwrite(self._file, record[written:], self._end + written)
        except OSError:
            os.ftruncate(self._file, self._end)
            raise
        return self._note(len(data))

    def sync(self) -> int:
        """Flush everything appended to the medium; returns the number of bytes of data."""
        os.fdatasync(self._file)
        return self.size_bytes

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` of data from `offset`; fewer only at the end of the file."""
        stop = min(offset + size_bytes, self.size_bytes)
        parts = []
        while offset < stop:
            record = bisect_right(self._starts, offset) - 1
            data = self._data(record)[offset - self._starts[record] :][: stop - offset]
            parts.append(data)
            offset += len(data)
        return b"".join(parts)

    def truncate(self, size_bytes: int) -> int:
        """Truncate to `size_bytes` of data, between records or within one."""
        if size_bytes >= self.size_bytes:
            return self.size_bytes
        record = bisect_right(self._starts, size_bytes) - 1
        kept = self._data(record)[: size_bytes - self._starts[record]]
        self._cut(self._places[record])
        self.size_bytes = self._starts[record]
        del self._starts[record:], self._places[record:]
        if kept:
            self.append(kept)
        return self.size_bytes

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _note(self, size_bytes: int) -> int:
        offset = self.size_bytes
        self._starts.append(offset)
        self._places.append(self._end)
        self.size_bytes += size_bytes
        self._end += _RECORD.size + size_bytes
        return offset

    def _data(self, record: int) -> bytes:
        place = self._places[record]
        stop = self._starts[record + 1] if record + 1 < len(self._starts) else self.size_bytes
        size_bytes = stop - self._starts[record]
        raw = os.pread(self._file, _RECORD.size + size_bytes, place)
        data = raw[_RECORD.size :]
        if len(data) != size_bytes or raw[: _RECORD.size] != _header(data):
            raise self._damaged(place)
        return data

    def _scan(self) -> None:
        """Find the records, and remove an incomplete one at the end."""
        whole = os.fstat(self._file).st_size
        while self._end + _RECORD.size <= whole:
            header = os.pread(self._file, _RECORD.size, self._end)
            size_bytes, _, header_sum = _RECORD.unpack(header)
            if header_sum != zlib.crc32(header[:_SUMMED_BYTES]):
                if any(os.pread(self._file, whole - self._end, self._end)):
                    raise self._damaged(self._end)
                break  # zeros: the file grew before a power loss, but its bytes were not written
            if self._end + _RECORD.size + size_bytes > whole:
                break
            self._note(size_bytes)
        if self._starts and not self._last_is_sound():
            self._end = self._places.pop()
            self.size_bytes = self._starts.pop()
        if self._end < whole:
            self._cut(self._end)

    def _last_is_sound(self) -> bool:
        try:
            self._data(len(self._starts) - 1)
        except DiskFailed:
            return False
        return True

    def _damaged(self, place: int) -> DiskFailed:
        return DiskFailed(f"{self.path} is damaged at byte {place}: the checksum does not match")

    def _cut(self, end: int) -> None:
        os.ftruncate(self._file, end)
        self._end = end


class FileDisk:
    """The `Disk` of a live peer: orders go to one worker thread, completions come back through the pump, in order.

    Without a folder (a peer with a temporary identity) every order is answered with `DiskFailed`.
    """

    def __init__(self, pump: Pump, folder: Path | None) -> None:
        self._pump, self._folder = pump, folder
        self._files: dict[str, RecordFile] = {}
        self._orders: SimpleQueue[tuple[Callable[[], Any], Any] | None] = SimpleQueue()
        self._worker: Thread | None = None

    def append(self, name: str, data: bytes, token: Any) -> None:
        self._order(lambda: self._open(name).append(data), token)

    def sync(self, name: str, token: Any) -> None:
        self._order(lambda: self._open(name).sync(), token)

    def read(self, name: str, offset: int, size_bytes: int, token: Any) -> None:
        self._order(lambda: self._open(name).read(offset, size_bytes), token)

    def truncate(self, name: str, size_bytes: int, token: Any) -> None:
        self._order(lambda: self._open(name).truncate(size_bytes), token)

    def close(self) -> None:
        """Finish all orders and close the files."""
        if self._worker is not None:
            self._orders.put(None)
            self._worker.join()

    def _order(self, work: Callable[[], Any], token: Any) -> None:
        if self._worker is None:
            self._worker = Thread(target=self._work, name="quillcast-disk", daemon=True)
            self._worker.start()
        self._orders.put((work, token))

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            work, token = order
            try:
                result = work()
            except OSError as problem:
                result = DiskFailed(
                    f"{problem.filename or self._folder}: {problem.strerror}; data stored before is kept"
                )
            except (DiskFailed, LocalError) as problem:
                result = problem
            self._pump.loop.call_soon_threadsafe(self._pump.hand, self._pump.inputs.disk_done, token, result)
        for file in self._files.values():
            file.close()

    def _open(self, name: str) -> RecordFile:
        """The file of this name, created if missing; runs on the worker thread."""
        if self._folder is None:
            raise DiskFailed(f"{name} cannot be stored: the node has no data folder; give it one with data=...")
        file = self._files.get(name)
        if file is None:
            path = self._folder / name
            if not path.resolve().is_relative_to(self._folder.resolve()):
                raise DiskFailed(f"{name!r} would lie outside of the data folder {self._folder}")
            path.parent.mkdir(parents=True, exist_ok=True)
            file = self._files[name] = RecordFile(path)
        return file


def _header(data: bytes) -> bytes:
    """The header of a record that holds `data`."""
    size_and_sum = struct.pack("<II", len(data), zlib.crc32(data))
    return size_and_sum + zlib.crc32(size_and_sum).to_bytes(4, "little")
