"""When a peer yields the CPU to the processes that its events woke (docs/decisions/yielding.md).

The kernel queues a woken process for a CPU that is about to become idle, and a chain of peers is faster on one CPU than
if each wakes another CPU. But on a busy machine, a peer that yields loses its turn to every waiting process.
"""

import math
import os
import time
from collections.abc import Callable

LONG_S = 0.001  # a guess: a process that an event woke has processed it by then
LONG_MAX = 2  # after this many long yields in a row, another process wants the whole CPU, not only to write its journal
PAUSE_S = 1.0  # a guess: how long a peer does not yield after that


class Yielding:
    """Yields the CPU on request, unless other processes recently kept it for long; never if `enabled` is false."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        clock: Callable[[], float] = time.monotonic,
        sched_yield: Callable[[], None] = os.sched_yield,
    ) -> None:
        self._clock, self._sched_yield = clock, sched_yield
        self._long = 0  # long yields in a row
        self._paused_until = 0.0 if enabled else math.inf

    def yield_cpu(self) -> None:
        """Let other processes run first, if they need only a moment."""
        clock, sched_yield = self._clock, self._sched_yield
        now = clock()
        if now < self._paused_until:
            return
        sched_yield()
        self._long = self._long + 1 if clock() - now > LONG_S else 0
        if self._long >= LONG_MAX:
            self._long, self._paused_until = 0, now + PAUSE_S
