"""A clock that ticks with a precision of some microseconds, by a kernel timer (Linux, timerfd), for measuring delays.

Timers of event loops have a precision of a millisecond: at 1,000 events per second a quarter of the ticks would come in
pairs.
"""

import asyncio
import ctypes
import os
import time

_COUNT_BYTES = 8


class _Interval(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("period_s", ctypes.c_long), ("period_ns", ctypes.c_long),
        ("first_s", ctypes.c_long), ("first_ns", ctypes.c_long),
    )  # fmt: skip


class Beat:
    """Ticks `rate` times a second from the moment it is entered, as `async with Beat(rate) as beat`.

    If the kernel has no such timer, the event loop's timer is used. Raises `OSError` if there are no file descriptors
    left.
    """

    def __init__(self, rate: float) -> None:
        self._period_ns = int(1e9 / rate)
        self._due = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timer: int | None = None
        self._ticking: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "Beat":
        loop, libc = asyncio.get_running_loop(), ctypes.CDLL(None, use_errno=True)
        if hasattr(libc, "timerfd_create"):
            self._timer = self._timer_of(libc)
            loop.add_reader(self._timer, self._struck)
        else:
            self._tick(loop, loop.time())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._timer is not None:
            asyncio.get_running_loop().remove_reader(self._timer)
            os.close(self._timer)
        if self._ticking is not None:
            self._ticking.cancel()

    async def next(self) -> None:
        """Wait for the next tick. If one was missed, the event loop still runs once, so that other tasks go ahead."""
        if self._due:
            await asyncio.sleep(0)
        else:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._due -= 1

    def _timer_of(self, libc: ctypes.CDLL) -> int:
        timer: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        every = divmod(self._period_ns, 10**9)
        if timer >= 0 and libc.timerfd_settime(timer, 0, ctypes.byref(_Interval(*every, *every)), None) == 0:
            return timer
        problem = OSError(ctypes.get_errno(), "the kernel provides no timer")
        if timer >= 0:
            os.close(timer)
        raise problem

    def _struck(self) -> None:
        assert self._timer is not None
        self._strike(int.from_bytes(os.read(self._timer, _COUNT_BYTES), "little"))

    def _tick(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        def strike() -> None:
            self._strike(1)
            self._tick(loop, due)

        due = now + self._period_ns / 1e9
        self._ticking = loop.call_at(due, strike)

    def _strike(self, count: int) -> None:
        self._due += count
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
