"""The event pump hands inputs to a peer, one at a time. It never calls into a peer during a step of that peer.

Inputs that arrive together form a turn: the frames of one read, a call of the application, the timers that are due. All
inputs of a turn are handled before anything is written, so an event passes through a peer in one turn, and a link
writes once per turn. A turn has five phases; work that can wait comes late:

       frames of one read     call()     soon()     timers
                |               |          |           |
                v               v          v           v
    1  STEPS    the peer handles each input                        hand()
                |
                |   .---------------------------------------.
                v   v                                       |
    2  SETTLE   inputs that earlier steps deferred          |      defer(): the root seals, then sends receipts
                |                                           |
    3  WRITE    the links write, those with events first    |      `write`
                |                                           |
                +--- phase 2 deferred more? yield the CPU --'
                |
    4  DELIVER  the application's handlers run                     after()
                |
    5  REST     the journal is written; the CPU is yielded;        `at_rest`, later()
                due timers run, as a turn of their own

Phase 5 is skipped if the last WRITE sent events: the processes that they woke may be waiting for this CPU. Timers then
wait for the next turn, for `SLACK_S` at most. Handlers in phase 4 may publish: that is a turn within this one, without
phases 4 and 5. When to yield is a separate policy (`live.runtime.yielding`).

There are four queues: for phase 2, for phase 4, for the event loop's next iteration, and for phase 5.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from quillcast.core.host import Inputs
from quillcast.live.runtime.yielding import Yielding

T = TypeVar("T")
DelayedCall = tuple[Callable[..., object], tuple[Any, ...]]

SLACK_S = 0.005  # how long a timer waits for the end of a turn; a guess: no time-out is that precise


class Pump:
    """One peer's inputs, in order, in turns. The docstring of the module draws the phases of a turn."""

    inputs: Inputs
    """The peer, set before the first input."""

    def __init__(self, loop: asyncio.AbstractEventLoop, yielding: Yielding | None = None) -> None:
        self.loop, self.monotonic = loop, time.monotonic
        self.write: Callable[[], bool] = _nothing
        """Makes the links write; returns whether events were sent."""
        self.at_rest: Callable[[], object] = _nothing
        """Called in phase 5, when no other peer waits for this one."""
        self._yield_cpu = (yielding or Yielding()).yield_cpu
        self._deferred: deque[DelayedCall] = deque()
        self._deliveries: deque[Callable[[], None]] = deque()
        self._soon: deque[DelayedCall] = deque()
        self._due: deque[DelayedCall] = deque()
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}
        self._delivering = False
        self.turning = False
        """Whether a turn is in phase 1 or 2: the links will write. Its beginner must end it, even after an error."""
        self.stepping = False
        """Whether a step of the peer is in progress."""
        self.closed = False
        """Whether the peer accepts no more inputs."""

    def serve(self, inputs: Inputs) -> None:
        """Set the peer."""
        self.inputs = inputs

    def write_by(self, write: Callable[[], bool]) -> None:
        """Set the function that makes the links write in phase 3."""
        self.write = write

    def rest_by(self, at_rest: Callable[[], object]) -> None:
        """Set the function that is called in phase 5."""
        self.at_rest = at_rest

    # --- a turn

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call into the peer as one step; outside of a turn, also as a turn. Never call this within a step."""
        if self.stepping:
            raise RuntimeError(f"{function} was called from within a step of the peer: schedule it with call_soon")
        alone, self.turning, self.stepping = not self.turning, True, True
        try:
            result = function(*args)
        finally:
            self.stepping = False
            if alone:
                self.end_turn()
        if self._waiting:
            self._wake()
        return result

    def begin_turn(self) -> None:
        """Begin a turn, which `end_turn` must end, even after an error."""
        self.turning = True

    def end_turn(self) -> None:
        """Phases 2 to 5."""
        write = self.write
        while True:
            try:
                if self._deferred:  # inputs deferred by these wait until the links have written
                    self.turning = True
                    for _ in range(len(self._deferred)):
                        handler, args = self._deferred.popleft()
                        if not self.closed:
                            self.call(handler, *args)
            finally:
                self.turning = False
                events_left = write()
            if not self._deferred:
                break
            if events_left and not self._deliveries:  # the application comes before other processes
                self._yield_cpu()
        if self._delivering:
            return  # the turn around this one continues
        if self._deliveries:
            self._deliver()
        if not events_left:
            self.at_rest()
            if self._due:  # timers get a separate turn
                self._yield_cpu()
                self._turn_of(self._due)

    def _deliver(self) -> None:
        """Run handlers in order. If one publishes and adds handlers, those come last."""
        self._delivering = True
        try:
            while self._deliveries:
                self._deliveries.popleft()()
        finally:
            self._delivering = False

    def _turn_of(self, waiting: deque[DelayedCall]) -> None:
        """Run everything in this queue as one turn. An error of one call only delays the others."""
        if not waiting:
            return
        self.turning = True
        try:
            for _ in range(len(waiting)):
                function, args = waiting.popleft()
                function(*args)
        finally:
            if waiting:
                self.loop.call_soon(self._turn_of, waiting)
            self.end_turn()

    # --- what waits for its phase

    def hand(self, handler: Callable[..., None], *args: Any) -> None:
        """Pass an input to the peer: now, or if a step is in progress, at the end of this turn."""
        if self.stepping:
            self._deferred.append((handler, args))
        elif not self.closed:
            self.call(handler, *args)

    def defer(self, handler: Callable[..., None], *args: Any) -> None:
        """Pass an input to the peer at the end of this turn."""
        if self.turning:
            self._deferred.append((handler, args))
        else:
            self.loop.call_soon(self.hand, handler, *args)

    def after(self, function: Callable[[], None]) -> None:
        """Call a function after this turn, when the links have written. It must handle its own errors."""
        if self.turning:
            self._deliveries.append(function)
        else:
            self.loop.call_soon(function)

    def soon(self, function: Callable[[], None]) -> None:
        """Call a function in the next iteration of the event loop, in one turn with all others in this queue."""
        if not self._soon:
            self.loop.call_soon(self._turn_of, self._soon)
        self._soon.append((function, ()))

    def later(self, delay_s: float, function: Callable[..., object], *args: Any) -> None:
        """Call a function after a delay: at the next turn that does not end by sending events, or `SLACK_S` later.

        Timed work takes a while and is not urgent, so it should not delay events.
        """
        self.loop.call_later(delay_s, self._fall_due, function, args)

    def _fall_due(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self._due:
            self.loop.call_later(SLACK_S, self._turn_of, self._due)
        self._due.append((function, args))

    # --- waiting for the peer

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

    def close(self) -> None:
        """Accept no more inputs."""
        self.closed = True


def _nothing() -> bool:
    return False
