"""Policies of other packages, each in its own process that can be killed.

Such a policy may raise, loop, use too much memory, or give invalid answers. Then it is stopped, and the caller gets the
reason in one line. A separate process protects the peer from mistakes, not from attacks: a policy runs with the rights
of the peer's user, so install only what you trust, and pin files by their hash.
"""

import time
from typing import TypeVar

from quillcast.core.errors import LocalError, Malformed
from quillcast.live.scopes import orders
from quillcast.live.scopes.framing import encoded, left_until, receive
from quillcast.live.scopes.process import ANSWER_LIMIT_S, MEMORY_BYTES_MAX, START_LIMIT_S, ConfinedProcess
from quillcast.protocol.scopes.conformance import Nonconforming, check_channels, check_mechanism
from quillcast.protocol.scopes.policy import Delivery, Group, PolicyStopped, RoundTrips, WantedChannel

A = TypeVar("A")


class ConfinedPolicy:
    """A `ScopePolicy` in its own process, whose caller waits for answers. Peers use `PolicyBeside`, which does not.

    Close it, or use it in a `with` statement.
    """

    delivery: Delivery
    about: str
    """The first line of its class's docstring."""
    mechanism: str
    """Its multicast mechanism, if it has one."""

    def __init__(
        self,
        make: orders.Make,
        *,
        answer_limit_s: float = ANSWER_LIMIT_S,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        hash_seed: int = 0,
    ) -> None:
        """Start the process and make the policy. Raises `PolicyStopped`.

        `hash_seed` is that of the process: with the same seed, mistakes with the order of sets are reproducible.
        """
        self.name, self.limit_s = make.name, answer_limit_s
        self._stopped, self._what = "", "cannot be made"
        self.process = ConfinedProcess(
            "quillcast.live.scopes.child", START_LIMIT_S + answer_limit_s, memory_bytes_max, hash_seed
        )
        self._line = self.process.line
        made = self._ask(make, orders.Made, START_LIMIT_S)
        self.delivery, self.about, self.mechanism = made.delivery, made.about, made.mechanism
        if self.mechanism:
            try:
                check_mechanism(self.mechanism)
            except Nonconforming as broken:
                raise self.stop(str(broken)) from None
        self._what = "was stopped"

    def fan_out_max(self, group: Group) -> int:
        """Ask the policy. Raises `PolicyStopped`."""
        return self._ask(orders.AskFanOut(group), orders.FanOutIs, self.limit_s).bound

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        """Ask the policy, and check the answer. Raises `PolicyStopped`."""
        answer = self._ask(orders.AskChannels(group, present), orders.ChannelsAre, self.limit_s, (group, round_trips))
        try:
            check_channels(group, answer.channels, answer.bound, self.mechanism)
        except Nonconforming as broken:
            raise self.stop(str(broken)) from None
        return answer.channels

    def _ask(
        self, order: orders.Order, kind: type[A], limit_s: float, group: tuple[Group, RoundTrips] | None = None
    ) -> A:
        """Get an order answered; meanwhile the policy may ask for round trips."""
        if self._stopped:
            raise PolicyStopped(self._stopped)
        deadline = time.monotonic() + limit_s
        try:
            while isinstance(answer := self._exchange(order, deadline), orders.AskRoundTrips) and group is not None:
                order = orders.RoundTripsAre(row(answer.source, *group))
        except TimeoutError:
            raise self.stop(too_long(limit_s)) from None
        except (EOFError, OSError):
            raise self.stop(self.process.ended()) from None
        except Malformed as error:
            raise self.stop(f"it sent an invalid answer: {error}") from None
        except LocalError as error:
            raise self.stop(str(error)) from None
        if isinstance(answer, orders.PolicyFailed):
            raise self.stop(answer.why)
        if not isinstance(answer, kind):
            raise self.stop(f"it answers {type(answer).__name__} when asked for {kind.__name__}")
        return answer

    def _exchange(self, order: orders.Order, deadline: float) -> orders.OrderAnswer:
        self._line.settimeout(left_until(deadline))
        self._line.sendall(encoded(order))
        return receive(self._line, orders.ANSWERS, deadline)

    def stop(self, why: str) -> PolicyStopped:
        """End the process because of a fault."""
        self.close()
        named = why.startswith(f"policy {self.name}")
        self._stopped = why if named else f"policy {self.name} {self._what}: {why}"
        return PolicyStopped(self._stopped)

    def close(self) -> None:
        """End the process."""
        self._stopped = self._stopped or f"policy {self.name} is closed"
        self.process.close()

    def __enter__(self) -> "ConfinedPolicy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def row(source: int, group: Group, round_trips: RoundTrips) -> tuple[float | None, ...]:
    """The round trips from one member to all, in the order of the group."""
    known = source in group.members
    return tuple(round_trips(source, each) if known else None for each in group.members)


def too_long(limit_s: float) -> str:
    """Why a policy was stopped that did not answer in time."""
    return f"it took longer than {limit_s:g} s; make it faster, or the scope smaller"
