"""The pump hands inputs to a peer one at a time; it never calls into a peer in the midst of that peer's step."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from quillcast.core.host import Inputs

T = TypeVar("T")


class Pump:
    """One peer's inputs, in order. What a step gives rise to here (a message to itself, say) follows at its end."""

    inputs: Inputs
    """The peer; whoever composes host and peer sets it before the first input."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._stepping = False
        self._closed = False

    def hand(self, handler: Callable[..., None], *args: Any) -> None:
        """Hand one input in: now, or where a step is under way, right after it."""
        if self._stepping:
            self._inbox.append((handler, args))
        elif not self._closed:
            self.call(handler, *args)

    def call(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """An application's call into the peer, and then what it gave rise to. Never from within a step."""
        if self._stepping:
            raise RuntimeError(f"{function} was called from within a step of the peer: schedule it with call_soon")
        self._stepping = True
        try:
            result = function(*args, **options)
            while self._inbox:
                handler, inputs = self._inbox.popleft()
                handler(*inputs)
        finally:
            self._stepping = False
        if self._waiting:
            self._wake()
        return result

    def close(self) -> None:
        """The peer takes no more inputs."""
        self._closed = True
        self._inbox.clear()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds at the end of a step."""
        if condition():
            return
        waiter = self.loop.create_future()
        self._waiting[waiter] = condition
        try:
            await waiter
        finally:
            del self._waiting[waiter]

    def _wake(self) -> None:
        for waiter, condition in self._waiting.items():
            if not waiter.done() and condition():
                waiter.set_result(None)
