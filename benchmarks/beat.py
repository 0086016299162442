"""A beat that is kept to some microseconds, by a timer of the kernel (Linux, timerfd).

The timers of event loops go by the millisecond: at a thousand events a second a quarter of them would come in pairs.
"""

import asyncio
import ctypes
import os
import time
from types import TracebackType

_COUNT_BYTES = 8


class _Interval(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("period_s", ctypes.c_long), ("period_ns", ctypes.c_long),
        ("first_s", ctypes.c_long), ("first_ns", ctypes.c_long),
    )  # fmt: skip


class Beat:
    """Strikes `rate` times a second from the moment it is entered, as `async with Beat(rate) as beat`."""

    def __init__(self, rate: float) -> None:
        self._period_ns = int(1e9 / rate)
        self._due = 0
        self._waiter: asyncio.Future[None] | None = None

    async def __aenter__(self) -> "Beat":
        libc = ctypes.CDLL(None, use_errno=True)
        self._timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        every = divmod(self._period_ns, 10**9)
        if self._timer < 0 or libc.timerfd_settime(self._timer, 0, ctypes.byref(_Interval(*every, *every)), None):
            raise OSError(ctypes.get_errno(), "a timer of the kernel could not be had")
        asyncio.get_running_loop().add_reader(self._timer, self._struck)
        return self

    async def __aexit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.get_running_loop().remove_reader(self._timer)
        os.close(self._timer)

    async def next(self) -> None:
        """Wait for the next stroke. Where one was missed the event loop runs once, so that nothing is held up."""
        if self._due:
            await asyncio.sleep(0)
        else:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._due -= 1

    def _struck(self) -> None:
        self._due += int.from_bytes(os.read(self._timer, _COUNT_BYTES), "little")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
