"""The event pump hands inputs to a peer, one at a time. It never calls into a peer during a step of that peer."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from quillcast.core.host import Inputs

T = TypeVar("T")

SLACK_S = 0.005  # how long a timer waits for the end of a turn; a guess: no time-out is that exact
AWAY_S = 0.001  # a guess: a process that an event woke is done with it by then
AWAYS = 2  # long yields in a row: another process wants the whole CPU; a single one may be writing its journal
UNYIELDING_S = 1.0  # a guess: how long a peer does not yield after that


class Pump:
    """One peer's inputs, in order, in turns.

    A turn is a group of inputs that arrive together: the frames of one read, a timer, a call of the application. It
    has these phases:

    1. Steps of the peer. Inputs that a step causes here, such as a message to itself, follow at the end of that step.
    2. Deferred inputs (`put_off`).
    3. `at_end`: the links write, so that an event passes through a peer in one turn.
    4. Inputs that phase 2 deferred. They wait for the links, because they are less urgent than events.
    5. `after`: the application receives what arrived.
    6. `at_rest` and timers that are due, unless events have just left.

    Before less urgent work the peer yields the CPU to the processes that its events woke. The kernel queues them for a
    CPU that is about to become idle, and a chain of peers that stays on one CPU is faster than one that wakes another.
    """

    inputs: Inputs
    """The peer. It is set before the first input."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sched_yield: Callable[[], None] = os.sched_yield,
    ) -> None:
        self.loop, self.monotonic, self._sched_yield = loop, monotonic, sched_yield
        self.at_end: Callable[[], bool] = _nothing
        """Called at the end of every turn; returns whether events were sent."""
        self.at_rest: Callable[[], object] = _nothing
        """Called after a turn that did not end with sending events. Then nobody waits for this peer; otherwise the
        processes that were woken may be queueing for this CPU."""
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._put_off: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self._after: deque[Callable[[], None]] = deque()
        self._telling = False
        self._due: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}
        self._aways = 0  # long yields in a row
        self._unyielding_until = 0.0
        self.turning = False
        """A turn is open. The code that sets this must also call `end_turn`, even after an error."""
        self.closed = False
        """The peer takes no more inputs."""
        self.stepping = False
        """A step of the peer is under way."""

    def end_turn(self) -> None:
        """Process deferred inputs, have the links write, and process what was deferred meanwhile."""
        put_off = self._put_off
        while True:
            self.turning = True
            try:
                for _ in range(len(put_off)):
                    handler, args = put_off.popleft()
                    if not self.closed:
                        self.call(handler, *args)
            finally:
                self.turning = False
                events_left = self.at_end()
            if not put_off:
                break
            if events_left and not self._after:
                self._yield()
        if not self._telling:
            if self._after:
                self._tell()
            if not events_left:
                self.at_rest()
        if self._due and not events_left:  # otherwise woken processes may be queueing: the next turn is soon enough
            self._yield()
            self._do_due()

    def _yield(self) -> None:
        """Yield the CPU, unless other processes recently kept it for long."""
        now = self.monotonic()
        if now >= self._unyielding_until:
            self._sched_yield()
            self._aways = self._aways + 1 if self.monotonic() - now > AWAY_S else 0
            if self._aways >= AWAYS:
                self._aways, self._unyielding_until = 0, now + UNYIELDING_S

    def after(self, function: Callable[[], None]) -> None:
        """Call a function after this turn, when the links have written. It must handle its own errors."""
        if self.turning or self.stepping:
            self._after.append(function)
        else:
            self.loop.call_soon(function)

    def _tell(self) -> None:
        """Call them in order. One that publishes may add more; those are called last."""
        self._telling = True
        try:
            while self._after:
                self._after.popleft()()
        finally:
            self._telling = False

    def soon(self, function: Callable[[], None]) -> None:
        """Call a function in the next iteration of the event loop, together with all others that wait for it."""
        if not self._soon:
            self.loop.call_soon(self._together)
        self._soon.append(function)

    def _together(self) -> None:
        self.turning = True
        try:
            while self._soon:
                self._soon.popleft()()
        finally:
            if self._soon:
                self.loop.call_soon(self._together)
            self.end_turn()

    def later(self, delay_s: float, function: Callable[..., object], *args: Any) -> None:
        """Call a function after a delay: at the next turn that does not end with sending events, or `SLACK_S` later.

        Timed work takes a while and is not urgent, so it must not delay an event.
        """
        self.loop.call_later(delay_s, self._fall_due, function, args)

    def _fall_due(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self._due:
            self.loop.call_later(SLACK_S, self._do_due)
        self._due.append((function, args))

    def _do_due(self) -> None:
        if not self._due:
            return
        self.turning = True
        try:
            for _ in range(len(self._due)):
                function, args = self._due.popleft()
                function(*args)
        finally:
            self.end_turn()

    def put_off(self, handler: Callable[..., None], *args: Any) -> None:
        """Hand in an input at the end of this turn."""
        if self.turning or self.stepping:
            self._put_off.append((handler, args))
        else:
            self.loop.call_soon(self.hand, handler, *args)

    def hand(self, handler: Callable[..., None], *args: Any) -> None:
        """Hand in an input: now, or right after the step that is under way."""
        if self.stepping:
            self._inbox.append((handler, args))
        elif not self.closed:
            self.call(handler, *args)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call into the peer, then process the inputs that this caused. Never call it from within a step."""
        if self.stepping:
            raise RuntimeError(f"{function} was called from within a step of the peer: schedule it with call_soon")
        self.stepping = True
        try:
            result = function(*args)
            while self._inbox:
                handler, inputs = self._inbox.popleft()
                handler(*inputs)
        finally:
            self.stepping = False
            if not self.turning:
                self.end_turn()
        if self._waiting:
            self._wake()
        return result

    def close(self) -> None:
        """The peer takes no more inputs."""
        self.closed = True
        self._inbox.clear()
        self._put_off.clear()

    async def until(self, condition: Callable[[], object]) -> None:
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


def _nothing() -> bool:
    return False
