"""Time-outs that count only while the event loop listens.

A process may be suspended, get no CPU for seconds, or open a thousand links at once. When it continues, every time-out
that expired meanwhile would fire before the process has read what the other side sent long ago. A plain time-out would
blame the other side, and the new attempts would keep the loop just as busy. So a wait is counted in parts, each in its
own iteration: a loop that was busy for the whole time has missed only one part.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_PARTS = 4  # a guess: the number of messages in a handshake


class Patience:
    """Calls a function after a delay that counts only while the event loop listens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, time_s: float, function: Callable[[], object]) -> None:
        self._loop, self._part_s, self._function = loop, time_s / _PARTS, function
        self._left = _PARTS
        self._timer = loop.call_later(self._part_s, self._passed)

    def end(self) -> None:
        """Stop waiting."""
        self._timer.cancel()

    def _passed(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._part_s, self._passed)
        else:
            self._function()


async def within(time_s: float, work: Awaitable[T]) -> T:
    """Wait for something, but at most this long. Raises `TimeoutError`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as bound:
        patience = Patience(loop, time_s, lambda: bound.reschedule(loop.time()))
        try:
            return await work
        finally:
            patience.end()
