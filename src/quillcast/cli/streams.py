"""Standard input and output for an event loop that must not block on them: each has its own thread.

The threads read and write the file descriptors directly. They are daemons, so a command can end even while a terminal
or a pipe blocks one of them.
"""

import asyncio
import errno
import os
import queue
import select
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from quillcast.cli.endings import ReaderGone
from quillcast.core.errors import DiskFailed, EventTooLarge

READ_BYTES = 1 << 16
CHUNKS_MAX = 4  # reads ahead of the loop; a guess
LINE_BYTES_MAX = 1 << 24  # the largest event that any topic may take
WAITING_BYTES_MAX = 4 << 20  # unwritten bytes beyond which writers wait for a slow reader; a guess


class Writer:
    """Writes to a file descriptor whose reader may be slow: `async with Writer() as writer`.

    The block ends with `ReaderGone` as soon as the reader has gone, whatever it is waiting for. It ends with
    `DiskFailed` if the output cannot be stored.
    """

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._written = asyncio.Event()
        self._problem: OSError | None = None
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[Any] | None

    async def __aenter__(self) -> "Writer":
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        threading.Thread(target=self._work, daemon=True).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._problem is not None and isinstance(problem, asyncio.CancelledError) and task is not None:
            task.uncancel()
            if _is_end(self._problem, self._fd):
                raise ReaderGone from None
            raise DiskFailed(f"the output cannot be written: {self._problem.strerror}") from self._problem

    async def write(self, data: bytes) -> None:
        """Write `data`. Waits only while more than `WAITING_BYTES_MAX` are unwritten."""
        self._waiting_bytes += len(data)
        self._lines.put(data)
        await self._until(WAITING_BYTES_MAX)

    async def drain(self) -> None:
        """Wait until everything is written."""
        await self._until(0)

    async def _until(self, bytes_max: int) -> None:
        while self._waiting_bytes > bytes_max:
            self._written.clear()
            await self._written.wait()

    def _work(self) -> None:
        problem = None
        while problem is None:
            data = self._gather()
            problem = self._put(data)
            with suppress(RuntimeError):  # the loop has ended, and nobody is waiting any more
                self._loop.call_soon_threadsafe(self._wrote, len(data), problem)

    def _gather(self) -> bytes:
        lines = [self._lines.get()]
        with suppress(queue.Empty):
            while True:
                lines.append(self._lines.get_nowait())
        return b"".join(lines)

    def _put(self, data: bytes) -> OSError | None:
        """Write all data; returns the error that prevented it."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process has set the descriptor to non-blocking
                select.select([], [self._fd], [])
            except OSError as problem:
                return problem
        return None

    def _wrote(self, size: int, problem: OSError | None) -> None:
        if problem is None:
            self._waiting_bytes -= size
            self._written.set()
        elif self._task is not None:
            self._problem = problem
            self._task.cancel()


async def lines_of(fd: int = 0) -> AsyncIterator[list[bytes]]:
    """The lines of a file descriptor without line ends, as they arrive: all lines of one read together.

    Raises `EventTooLarge` for a line that is too large for any topic.
    """
    begun = b""
    async for chunk in _chunks(os.dup(fd)):
        *whole, begun = (begun + chunk).split(b"\n")
        if whole:
            yield whole
        if len(begun) > LINE_BYTES_MAX:
            raise EventTooLarge(f"a line of the input has more than {LINE_BYTES_MAX} bytes; send it in parts")
    if begun:
        yield [begun]


async def whole_of(fd: int) -> bytes:
    """Everything that a file descriptor delivers. Raises `EventTooLarge` if it is too large for any topic."""
    parts, size = [], 0
    async for chunk in _chunks(os.dup(fd)):
        parts.append(chunk)
        size += len(chunk)
        if size > LINE_BYTES_MAX:
            raise EventTooLarge(f"the input has more than {LINE_BYTES_MAX} bytes; send it in parts")
    return b"".join(parts)


async def _chunks(fd: int) -> AsyncIterator[bytes]:
    """Read a file descriptor in chunks until its end, then close it. Raises `OSError`."""
    loop, chunks, room = asyncio.get_running_loop(), asyncio.Queue[bytes | OSError](), threading.Semaphore(CHUNKS_MAX)

    def work() -> None:
        data: bytes | OSError = b"begin"
        try:
            while data and not isinstance(data, OSError) and room.acquire():
                data = _read(fd)
                loop.call_soon_threadsafe(chunks.put_nowait, data)
        except RuntimeError:
            pass  # the loop has ended, and nobody is waiting any more
        finally:
            os.close(fd)

    threading.Thread(target=work, daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk


def _read(fd: int) -> bytes | OSError:
    """The next chunk; empty at the end, or if the terminal is gone."""
    while True:
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:  # another process has set the descriptor to non-blocking
            select.select([fd], [], [])
        except OSError as problem:
            return b"" if _is_end(problem, fd) else OSError(problem.errno, problem.strerror, "the input")


def _is_end(problem: OSError, fd: int) -> bool:
    """Whether the other end is gone, as opposed to a failure."""
    return isinstance(problem, BrokenPipeError) or (problem.errno == errno.EIO and os.isatty(fd))
