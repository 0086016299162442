"""The journal: writes a peer's actions as typed Arrow records to files (docs/journal.md).

Records are noted when the peer has nothing else to do. They wait for at most `FLUSH_S`, are encoded together and
written with one `write` a turn later. So if the process is killed, the records of that time are lost, and at most the
last batch is torn.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quillcast.core import journal
from quillcast.core.errors import DiskFailed
from quillcast.core.ids import short
from quillcast.core.trace import Record

FLUSH_S = 0.25  # a kill loses at most this; with half of it, one event in a hundred would wait for a flush
ROWS_MAX = 1024  # records encoded in one step: about a millisecond in which the peer does nothing else
FILE_BYTES_MAX = 64 << 20  # a guess: 300,000 records, one task of the audit
BYTES_MAX = 1 << 30  # a guess: what a peer may write to a disk by default
NOTED_TOGETHER = 32  # records noted in one step; a guess: it takes 20 us, and 25 us one by one
SUFFIX = ".arrows"  # the registered ending of Arrow streams

log = logging.getLogger(__name__)


class Journal:
    """Writes one process's trace records into its own files in a folder.

    Args:
        folder: folder of the files; created if missing. Any number of peers can share it.
        peer: nodeId of the peer that writes.
        call_later: `Pump.later` of the peer, which then flushes `FLUSH_S` after a record was added; without it, the
            caller flushes.
        file_bytes_max: size at which the next file begins.
        bytes_max: size of all files of this peer in the folder, including former processes; the oldest are removed.
        on_problem: called with a line if the files were removed.

    Raises `DiskFailed` if the first file cannot be created. After that, a failing disk ends the journal with one
    warning (`failed` says why), but never the peer. Removed files are noticed at the next flush: a new file begins at
    once, or when the folder is back. The folder is not created again, because a disk may be mounted there.
    """

    def __init__(
        self,
        folder: Path | str,
        peer: bytes,
        *,
        call_later: Callable[[float, Callable[[], None]], Any] | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        bytes_max: int = BYTES_MAX,
        on_problem: Callable[[str], object] | None = None,
    ) -> None:
        self.folder, self.peer, self.started_ns = Path(folder), peer, time.time_ns()
        self.failed: str | None = None
        self.removed_count = 0
        """How often its file was removed."""
        self.missed_count = 0
        """Records that were not written because there was no folder."""
        self._away = False  # the folder is gone, but may come back
        self._settled = 0  # records that were written or missed
        self._call_later, self._on_problem = call_later, on_problem
        self._file_bytes_max, self._bytes_max = file_bytes_max, bytes_max
        self._came: list[tuple[int, Record]] = []
        self._ledger = journal.RecordBuffer(peer, self.started_ns, ROWS_MAX)
        self._laid_out: list[bytes] = []
        self._part = self._size = 0
        self._file: int | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise DiskFailed(f"no journal in {self.folder}: {error.strerror}; name another folder") from error

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self.folder / f"{self._stem}-{self.started_ns}-{self._part:04d}{SUFFIX}"

    def trace(self, record: Record, at_ns: int | None = None) -> None:
        """Record an action now, or at `at_ns` (nanoseconds since 1970 UTC)."""
        if self._file is None and not self._away:
            return
        if not self._came and not self._ledger.waiting and self._call_later is not None:
            self._call_later(FLUSH_S, self._flush_in_steps)
        self._came.append((time.time_ns() if at_ns is None else at_ns, record))
        if len(self._came) >= ROWS_MAX:
            self.flush()

    def note(self) -> None:
        """Note the new records if there are enough of them. The caller does this when the peer is idle."""
        if len(self._came) >= NOTED_TOGETHER:
            self._note()

    def _note(self) -> None:
        if self._ledger.waiting + len(self._came) > ROWS_MAX:
            self._laid_out += self._ledger.lay_out()
        came, self._came = self._came, []
        self._ledger.note(came)

    def flush(self) -> None:
        """Write all waiting records in one call."""
        self._lay_out()
        self._write_out()

    def _flush_in_steps(self) -> None:
        """The same as `flush`, with a turn of the peer between encoding and writing, because each blocks it."""
        self._lay_out()
        if self._call_later is not None:
            self._call_later(0.0, self._write_out)

    def _lay_out(self) -> None:
        self._note()
        self._laid_out += self._ledger.lay_out()

    def _write_out(self) -> None:
        laid_out, self._laid_out = self._laid_out, []
        if not laid_out:
            return
        news, self._settled = self._ledger.noted - self._settled, self._ledger.noted
        if not self.stands():
            self.missed_count += news
            return
        try:
            self._write(b"".join(laid_out))
            if self._size >= self._file_bytes_max:
                self._rotate()
        except OSError as error:
            self._stop(error)

    def stands(self) -> bool:
        """Whether there is a file to write to. If it was removed, begin another one, if the folder exists."""
        try:
            if self._file is not None and not self._is_there():
                os.close(self._file)
                self._file, self._away = None, True
                self.removed_count += 1
                self._part += 1
                self._begin_again()
                self._tell_removed()
            elif self._away:
                self._begin_again()
        except OSError as error:
            self._stop(error)
        return self._file is not None

    def close(self) -> None:
        """Write all waiting records, and mark the file as complete."""
        self.flush()
        try:
            self._finish()
        except OSError as error:
            self._stop(error)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _is_there(self) -> bool:
        """Whether the file still exists under its name."""
        assert self._file is not None
        try:
            named = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(named, os.fstat(self._file))

    def _begin_again(self) -> None:
        """Open the next file, if the folder exists."""
        if self.folder.is_dir():
            self._open()
            self.failed, self._away = None, False
        else:
            self.failed = f"the folder {self.folder} was removed; nothing is written until it is back"

    def _tell_removed(self) -> None:
        problem = f"its journal was removed: {self.failed or f'it continues in {self.path}'}"
        log.warning("peer %s: %s", short(self.peer), problem)
        if self._on_problem is not None:
            self._on_problem(problem)

    @property
    def _stem(self) -> str:
        return self.peer[:8].hex()

    def _open(self) -> None:
        self._size = 0
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._write(journal.beginning())
        self._prune()

    def _rotate(self) -> None:
        self._finish()
        self._part += 1
        self._open()

    def _finish(self) -> None:
        if self._file is not None:
            self._write(journal.END)
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        """Append all of `data`; the size grows only when it is complete."""
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            written = os.write(self._file, rest)
            rest = rest[written:]
        self._size += len(data)

    def _stop(self, error: OSError) -> None:
        """The disk failed: keep complete records, log it once, and let the peer continue."""
        self.failed = f"the journal ends at record {self._ledger.noted}: {self.path}: {error.strerror}"
        self._came, self._laid_out, self._away = [], [], False
        if self._file is not None:
            os.ftruncate(self._file, self._size)
            os.close(self._file)
            self._file = None
        log.warning("peer %s continues without a journal: %s", short(self.peer), self.failed)

    def _prune(self) -> None:
        """Remove the oldest files of this peer until the others are within the limit."""
        files = [file for file in sorted(self.folder.glob(f"{self._stem}-*{SUFFIX}")) if file != self.path]
        sizes = [file.stat().st_size for file in files]
        while files and sum(sizes) + self._file_bytes_max > self._bytes_max:
            files.pop(0).unlink()
            sizes.pop(0)
