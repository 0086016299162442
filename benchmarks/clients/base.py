"""What every client offers, and how what a subscriber is handed is counted and timed."""

import asyncio
import importlib.metadata
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

STRIDE = 256  # events between two looks at the clock, or at what waits
PATIENCE_S = 60.0
LOSSY_PATIENCE_S = 1.0  # nothing came for so long where events may be lost: no more will
MARKS, MARK_EVERY_S = 20, 0.02  # where a mark may be lost

Handler = Callable[[bytes], None]
Publish = Callable[[bytes], Any]
"""Publishes a payload; what it returns is awaited if the client's `waits`."""


class Counter:
    """Counts what a handler is called with, and times it from the first that counts to the last.

    Args:
        patience_s: how long to wait for the next event before the missing ones count as lost; `PATIENCE_S` by default.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._marked, self._done = threading.Event(), threading.Event()
        self._count = self._left = 0
        self._began_s = self._seconds = 0.0

    def take(self, payload: bytes) -> None:
        """The handler; an empty payload is a mark, and counts for nothing."""
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
        """What comes from now on counts."""
        self._done.clear()
        self._count = self._left = count

    async def taken(self) -> dict[str, Any]:
        """Wait until all that is expected came, or nothing more has for a while: events per second, how many lack."""
        before, changed_s = self._left, time.perf_counter()
        while not self._done.is_set() and time.perf_counter() - changed_s < self._patience_s:
            await asyncio.sleep(0.01)
            if self._left != before:
                before, changed_s = self._left, time.perf_counter()
        lost, self._left = self._left, 0
        seconds = self._seconds if not lost else changed_s - self._began_s
        return {"events_per_s": (self._count - lost - 1) / seconds, "lost": lost}


class Client(ABC):
    """What the benchmarks ask of a system; `connect`, `subscribe`, `open` and `close` are each system's own."""

    library: ClassVar[str]
    waits: ClassVar[bool] = True
    loses: ClassVar[bool] = False
    """May it drop events at full speed?"""

    def version(self) -> str:
        """The library's version."""
        return importlib.metadata.version(self.library)

    @abstractmethod
    async def connect(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Connect with the options of `network`; what is worth telling about the settings."""

    @abstractmethod
    async def subscribe(self, topic: str, handler: Handler) -> None:
        """Have the handler called with every payload; returns when the subscription stands, where that is told."""

    @abstractmethod
    async def open(self, topic: str) -> Publish:
        """A publisher of a topic; returns when it is connected with the topic's subscribers, where that is told."""

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
        """A subscription that only counts: a `Counter` as its handler, or what can do the same."""
        counter = Counter(LOSSY_PATIENCE_S if self.loses else None)
        await self.subscribe(topic, counter.take)
        return counter
