"""Runs a program of nodes on the event loop that suits them best."""

import asyncio
import ctypes
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 64 << 20  # of freed memory that the process may keep; a peer's buffers may have as much
_BLOCK_BYTES_MAX = 4 << 20  # what is larger than any block in ordinary use still goes back to the system at once


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop, uvloop's where that can be had; Ctrl-C cancels it, and its nodes leave."""
    keep_freed_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes event loops: uvloop, or None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def keep_freed_memory() -> None:
    """Have glibc keep the memory of blocks that are gone for the next ones.

    Otherwise it goes back to the system a few hundred times a second, and comes again page by page, zeroed: measured, a
    tenth of a busy peer's processor time. Where there is no glibc nothing is changed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES_MAX)
