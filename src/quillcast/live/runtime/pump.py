"""The pump hands inputs to a peer one at a time; it never calls into a peer in the midst of that peer's step."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from quillcast.core.host import Inputs

T = TypeVar("T")

SLACK_S = 0.005  # what is timed waits for the end of a turn so long; a guess: no time-out is that exact
AWAY_S = 0.001  # a guess: whom an event woke is done with it by then
AWAYS = 2  # in a row that took longer: then somebody wants the whole processor; one alone may be laying out its journal
UNYIELDING_S = 1.0  # a guess: how long a peer then keeps what it has of the processor


class Pump:
    """One peer's inputs, in order, in turns.

    A turn is what comes together: the frames of one read, a timer, a call of the application. What a step of the peer
    gives rise to here (a message to itself, say) follows at the step's end; what was put off to the end of the turn is
    done there; and then `at_end` has the links write, so that an event goes through a peer in one turn. What is done
    at the end of a turn may put off more: that comes when the links have written, for it can wait and events cannot.
    Then the application hears what came (`after`).

    Before what can wait, a peer gives way to those whom its events woke: the kernel has them queue for the processor of
    whom it takes to sleep next, and a chain of peers that stays on one processor is faster than one that wakes another.
    """

    inputs: Inputs
    """The peer; whoever composes host and peer sets it before the first input."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sched_yield: Callable[[], None] = os.sched_yield,
    ) -> None:
        self.loop, self.monotonic, self._sched_yield = loop, monotonic, sched_yield
        self.at_end: Callable[[], bool] = _nothing
        """What is to be done at the end of every turn; it says whether events left."""
        self.at_rest: Callable[[], object] = _nothing
        """What is best done where nobody waits for this peer: behind a turn, unless the last it did was to send events
        on. Whom they woke may be queueing for this very processor."""
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._put_off: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._soon: deque[Callable[[], None]] = deque()
        self._after: deque[Callable[[], None]] = deque()
        self._telling = False
        self._due: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}
        self._aways = 0  # in a row that were long
        self._unyielding_until = 0.0
        self.turning = False
        """Inputs follow that belong together. Whoever sets this ends the turn, whatever happens."""
        self.closed = False
        """The peer takes no more inputs."""
        self.stepping = False
        """A step of the peer is under way."""

    def end_turn(self) -> None:
        """Do what was put off, and have the links write; what that puts off in its turn is done when they have."""
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
                self._give_way()
        if not self._telling:
            if self._after:
                self._tell()
            if not events_left:
                self.at_rest()
        if self._due and not events_left:  # else whom they woke may be queueing: the next turn is soon enough
            self._give_way()
            self._do_due()

    def _give_way(self) -> None:
        """Let others run on this processor first, unless somebody keeps it for long whenever that is done."""
        now = self.monotonic()
        if now >= self._unyielding_until:
            self._sched_yield()
            self._aways = self._aways + 1 if self.monotonic() - now > AWAY_S else 0
            if self._aways >= AWAYS:
                self._aways, self._unyielding_until = 0, now + UNYIELDING_S

    def after(self, function: Callable[[], None]) -> None:
        """Call a function when this turn is over and the links have written. It deals with its own errors."""
        if self.turning or self.stepping:
            self._after.append(function)
        else:
            self.loop.call_soon(function)

    def _tell(self) -> None:
        """Tell one after the other: what one of them publishes may have more to tell, and that comes behind it."""
        self._telling = True
        try:
            while self._after:
                self._after.popleft()()
        finally:
            self._telling = False

    def soon(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop's next turn, and all that were given here until then in one turn."""
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
        """Call a function when a time has passed: behind the next turn that sent no events last, or `SLACK_S` on.

        What is timed takes a while and is in no hurry: so it comes behind an event, and not in front of one.
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
        """Hand an input in at the end of this turn."""
        if self.turning or self.stepping:
            self._put_off.append((handler, args))
        else:
            self.loop.call_soon(self.hand, handler, *args)

    def hand(self, handler: Callable[..., None], *args: Any) -> None:
        """Hand one input in: now, or where a step is under way, right after it."""
        if self.stepping:
            self._inbox.append((handler, args))
        elif not self.closed:
            self.call(handler, *args)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """An application's call into the peer, and then what it gave rise to. Never from within a step."""
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
