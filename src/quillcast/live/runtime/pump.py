"""The event pump hands inputs to a peer, one at a time. It never calls into a peer during a step of that peer.

Inputs that arrive together form a turn: the frames of one read, a call of the application, the timers that are due. All
of a turn's inputs are handled before anything is written, so an event passes through a peer in one turn, and a link
writes once per turn. A turn has five phases; what can wait comes late:

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

Phase 5 is skipped if the last WRITE sent events: the processes that they woke may be queueing for this CPU. Timers then
wait for the next turn, for `SLACK_S` at most. Handlers in phase 4 may publish: that is a turn within this one, without
phases 4 and 5. Yielding is a policy of its own (`live.runtime.yielding`).

Four queues hold what waits: for phase 2, for phase 4, for the event loop's next iteration, and for phase 5.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from quillcast.core.host import Inputs
from quillcast.live.runtime.yielding import Yielding

T = TypeVar("T")
Call = tuple[Callable[..., object], tuple[Any, ...]]

SLACK_S = 0.005  # how long a timer waits for the end of a turn; a guess: no time-out is that exact


class Pump:
    """One peer's inputs, in order, in turns. The module's text draws the phases of a turn."""

    inputs: Inputs
    """The peer. It is set before the first input."""

    def __init__(self, loop: asyncio.AbstractEventLoop, yielding: Yielding | None = None) -> None:
        self.loop, self.monotonic = loop, time.monotonic
        self.write: Callable[[], bool] = _nothing
        """Has the links write; returns whether events were sent."""
        self.at_rest: Callable[[], object] = _nothing
        """Called in phase 5, when nobody waits for this peer."""
        self._yield_cpu = (yielding or Yielding()).yield_cpu
        self._deferred: deque[Call] = deque()
        self._deliveries: deque[Callable[[], None]] = deque()
        self._soon: deque[Call] = deque()
        self._due: deque[Call] = deque()
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}
        self._delivering = False
        self.turning = False
        """A turn is in phase 1 or 2: the links will write. Who begins one must end it, even after an error."""
        self.stepping = False
        """A step of the peer is under way."""
        self.closed = False
        """The peer takes no more inputs."""

    def serve(self, inputs: Inputs) -> None:
        """This is the peer."""
        self.inputs = inputs

    def write_by(self, write: Callable[[], bool]) -> None:
        """This has the links write in phase 3."""
        self.write = write

    def rest_by(self, at_rest: Callable[[], object]) -> None:
        """This is called in phase 5."""
        self.at_rest = at_rest

    # --- a turn

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """One step: call into the peer; outside of a turn, a turn by itself. Never call this from within a step."""
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

    def end_turn(self) -> None:
        """Phases 2 to 5."""
        write = self.write
        while True:
            try:
                if self._deferred:  # what these defer waits until the links have written
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
            if self._due:  # timers are a turn of their own
                self._yield_cpu()
                self._turn_of(self._due)

    def _deliver(self) -> None:
        """Run handlers in order. One that publishes may add more; those come last."""
        self._delivering = True
        try:
            while self._deliveries:
                self._deliveries.popleft()()
        finally:
            self._delivering = False

    def _turn_of(self, waiting: deque[Call]) -> None:
        """One turn of everything that waits in this queue. An error of one call delays the others, no more."""
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
        """Hand in an input: now, or if a step is under way, at the end of this turn."""
        if self.stepping:
            self._deferred.append((handler, args))
        elif not self.closed:
            self.call(handler, *args)

    def defer(self, handler: Callable[..., None], *args: Any) -> None:
        """Hand in an input at the end of this turn."""
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
        """Call a function in the next iteration of the event loop, in one turn with all others that wait for it."""
        if not self._soon:
            self.loop.call_soon(self._turn_of, self._soon)
        self._soon.append((function, ()))

    def later(self, delay_s: float, function: Callable[..., object], *args: Any) -> None:
        """Call a function after a delay: at the next turn that does not end with sending events, or `SLACK_S` later.

        Timed work takes a while and is not urgent, so it must not delay an event.
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
        """The peer takes no more inputs."""
        self.closed = True


def _nothing() -> bool:
    return False
