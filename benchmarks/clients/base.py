"""The interface of every client, and the counting and timing of received events."""

import asyncio
import importlib.metadata
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

STRIDE = 256  # events between two looks at the clock, or at the queue
PATIENCE_S = 60.0
LOSSY_PATIENCE_S = 1.0  # if events may be lost: after this long without events, no more will come
MARKS, MARK_EVERY_S = 20, 0.02  # if a mark may be lost

Handler = Callable[[bytes], None]
Publish = Callable[[bytes], Any]
"""Publishes a payload. The result is awaited if the client's `waits`."""


class Counter:
    """Counts the payloads that a handler is called with, and measures the time from the first counted one to the last.

    Args:
        patience_s: how long to wait for the next event before the missing ones count as lost; `PATIENCE_S` by default.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._marked, self._done = threading.Event(), threading.Event()
        self._count = self._left = 0
        self._began_s = self._seconds = 0.0

    def take(self, payload: bytes) -> None:
        """Handle a payload. An empty one is a mark and is not counted."""
        if not payload:
            self._marked.set()
        elif self._left:
            if self._left == self._count:
                self._began_s = time.perf_counter()
            self._left -= 1
            if not self._left:
                self._seconds = time.perf_counter() - self._began_s
                self._done.set()

    async def until_marked(self) -> None:
        """Wait for a mark."""
        await asyncio.to_thread(self._marked.wait)
        self._marked.clear()

    def expect(self, count: int) -> None:
        """Count payloads from now on."""
        self._done.clear()
        self._count = self._left = count

    async def taken(self) -> dict[str, Any]:
        """Wait until all expected payloads came, or none for a while. Returns the rate, and how many are missing."""
        before, changed_s = self._left, time.perf_counter()
        while not self._done.is_set() and time.perf_counter() - changed_s < self._patience_s:
            await asyncio.sleep(0.01)
            if self._left != before:
                before, changed_s = self._left, time.perf_counter()
        lost, self._left = self._left, 0
        seconds = self._seconds if not lost else changed_s - self._began_s
        return {"events_per_s": (self._count - lost - 1) / seconds, "lost": lost}


class Client(ABC):
    """The interface of a system. Each system implements `connect`, `subscribe`, `open` and `close`."""

    library: ClassVar[str]
    waits: ClassVar[bool] = True
    loses: ClassVar[bool] = False
    """Whether it may drop events at full speed."""

    def version(self) -> str:
        """The library's version."""
        return importlib.metadata.version(self.library)

    @abstractmethod
    async def connect(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Connect with the options of `network`. Returns the settings that are worth reporting."""

    @abstractmethod
    async def subscribe(self, topic: str, handler: Handler) -> None:
        """Call the handler with every payload. Returns when the subscription is established, if that is reported."""

    @abstractmethod
    async def open(self, topic: str) -> Publish:
        """Open a publisher. Returns when it is connected with the topic's subscribers, if that is reported."""

    @abstractmethod
    async def close(self) -> None:
        """Leave."""

    async def pour(self, publish: Publish, payload: bytes, count: int) -> None:
        """Publish at full speed."""
        if self.waits:
            for _ in range(count):
                await publish(payload)
        else:
            for _ in range(count):
                publish(payload)

    async def mark(self, publish: Publish) -> None:
        """Publish a mark."""
        for _ in range(MARKS if self.loses else 1):
            await self.pour(publish, b"", 1)
            if self.loses:
                await asyncio.sleep(MARK_EVERY_S)

    async def count(self, topic: str) -> Any:
        """Subscribe only to count events. Returns a `Counter`, its handler, or an object with the same interface."""
        counter = Counter(LOSSY_PATIENCE_S if self.loses else None)
        await self.subscribe(topic, counter.take)
        return counter
