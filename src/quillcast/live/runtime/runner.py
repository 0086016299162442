"""Runs a program on the event loop that is best for nodes."""

import asyncio
import ctypes
import gc
import resource
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from quillcast.core.errors import LocalError

T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 64 << 20  # of freed memory that the process may keep; a peer's buffers may be as large
_BLOCK_BYTES_MAX = 4 << 20  # larger than any block in ordinary use: such memory still returns to the system at once
_FILES_MAX = 1 << 16  # a guess: a descriptor for each link, and two for each exported block
_YOUNG_MAX = 10_000  # new objects minus freed ones before a collection; a guess: the events of a few reports

ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # like Ctrl-C, these ask a program to end; a closed terminal sends SIGHUP

_unsettled = False  # whether the first node of the running program has yet to join


class EndedByCtrlC(SystemExit, KeyboardInterrupt):
    """Ctrl-C ended a program that `run` started. Unless the program catches it, it ends without a traceback."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop (uvloop if it is installed).

    Ctrl-C, SIGTERM and a closed terminal (SIGHUP) cancel it, so that its nodes leave gracefully. Then this raises
    `SystemExit` with 128 plus the signal's number, as shells report it; after Ctrl-C that is also a
    `KeyboardInterrupt`. Signals that the program handles or ignores itself are not changed. Memory allocation, the
    limit of open files and the garbage collector are tuned for a peer. Raises `LocalError` for anything except a
    coroutine.
    """
    if not asyncio.iscoroutine(main):
        raise LocalError(f"run takes a coroutine, not {type(main).__name__}; call the function: quillcast.run(main())")
    try:
        return run_until(main, [number for number in ENDINGS if signal.getsignal(number) is signal.SIG_DFL])
    except KeyboardInterrupt:
        raise EndedByCtrlC(128 + signal.SIGINT) from None


def run_until(main: Coroutine[Any, Any, T], endings: Sequence[signal.Signals]) -> T:
    """Run a coroutine as `run` does. `endings` are the signals that cancel it, if this is the main thread."""
    global _unsettled
    keep_freed_memory()
    allow_many_files()
    told: list[signal.Signals] = []
    endings = endings if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.getsignal(number) for number in endings}
    threshold, _unsettled = gc.get_threshold(), True
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_cancelled_by(endings, main, told))
    except asyncio.CancelledError:
        if told:
            raise SystemExit(128 + told[0]) from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # uvloop's handlers would stay and do nothing
        if not _unsettled:
            gc.unfreeze()
            gc.set_threshold(*threshold)
        _unsettled = False


async def _cancelled_by(
    endings: Sequence[signal.Signals], main: Coroutine[Any, Any, T], told: list[signal.Signals]
) -> T:
    """Await `main`; each of these signals cancels it and is recorded in `told`."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def end(number: signal.Signals) -> None:
        told.append(number)
        task.cancel()

    for number in endings:
        loop.add_signal_handler(number, end, number)
    try:
        return await main
    finally:
        for number in endings:
            loop.remove_signal_handler(number)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of event loops: uvloop's, or None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def keep_freed_memory() -> None:
    """Make glibc reuse the memory of freed blocks.

    Otherwise it is returned to the system a few hundred times a second, and comes back page by page, zeroed. Measured,
    this takes a tenth of a busy peer's CPU time. Without glibc, nothing changes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES_MAX)


def allow_many_files() -> None:
    """Let the process open as many files as allowed. The usual limit of 1,024 is for programs that use select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def settle() -> None:
    """After the program's first node has joined, exclude everything that exists now from garbage collection.

    Otherwise a collection would stop the peer for 25 ms after some seconds of work. Most objects of an event are freed
    before `_YOUNG_MAX` new ones exist. A program that `run` did not start keeps its own settings.
    """
    global _unsettled
    if _unsettled:
        _unsettled = False
        gc.collect()
        gc.freeze()
        gc.collect()  # little is left, and later growth is compared with that
        gc.set_threshold(_YOUNG_MAX)
