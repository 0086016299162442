"""Time-outs that count only while the event loop listens.

A process may get no processor for seconds, or be stopped, or have a thousand links to make at once. What was due
meanwhile is due at once when it goes on, before it has read a byte of what the others have long sent: a plain time-out
would blame them, and the new attempts would keep the loop as busy. So a wait is counted in parts, each in a turn of its
own: a loop that was away for all of the time has missed one part.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_PARTS = 4  # a guess: as many messages as two sides need to know each other


class Patience:
    """Calls a function when a time has passed that the event loop listened for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time_s: float, function: Callable[[], object]) -> None:
        self._loop, self._part_s, self._function = loop, time_s / _PARTS, function
        self._left = _PARTS
        self._timer = loop.call_later(self._part_s, self._passed)

    def end(self) -> None:
        """There is nothing to wait for any more."""
        self._timer.cancel()

    def _passed(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._part_s, self._passed)
        else:
            self._function()


async def within(time_s: float, work: Awaitable[T]) -> T:
    """Wait for something, for so long at most. Raises `TimeoutError`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as bound:
        patience = Patience(loop, time_s, lambda: bound.reschedule(loop.time()))
        try:
            return await work
        finally:
            patience.end()
