"""Changes of a topic's channels in two phases, so that bundles in transit find their channels until they arrive.

Channels change when the policy does, and when members come and go.

1. *Installing.* Every member that takes part gets the new channels beside the present ones. Bundles do not start on
   them yet. A member that does not acknowledge its orders within a lease ends a change of the policy, which names it.
   A change of members continues without it.
2. *Switched.* From now on bundles start on the new channels, and their records have the new version. Once all members
   have acknowledged that, nothing starts on the old channels any longer.
3. *Draining.* The old channels carry bundles in transit until every member reports that it has all that it knew of
   since then, or for `DRAIN_S` at most. Then they are removed.

A manager that returns installs again, or lets the old channels drain. It knows only the channels of the old policy
(`Kept`). If its file names another policy than before, that is a change, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

import msgspec

from quillcast.protocol.scopes.policy import (
    Delivery,
    Group,
    NoAnswer,
    PolicyStopped,
    RoundTrips,
    ScopePolicy,
    WantedChannel,
    mechanism_of,
)
from quillcast.protocol.scopes.records import VERSIONS
from quillcast.protocol.scopes.state import Basis, Change, Topic

DRAIN_S = 30.0  # a guess: as long as a lease in a topic


class Phase(Enum):
    """The phase of a change."""

    INSTALLING = "new channels are being installed"
    SWITCHED = "new channels are in use"
    DRAINING = "old channels are draining"


class Kept(msgspec.Struct, frozen=True):
    """A policy of which only the channels are known. They stay between those that are still members."""

    of: Basis

    def __repr__(self) -> str:
        return self.of.policy

    @property
    def delivery(self) -> Delivery:
        return self.of.delivery

    @property
    def mechanism(self) -> str:
        return self.of.mechanism

    def fan_out_max(self, group: Group) -> int:
        return len(group.members)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        return present


def basis(policy: ScopePolicy) -> Basis:
    """What a manager must know of a policy after a crash."""
    return policy.of if isinstance(policy, Kept) else Basis(repr(policy), policy.delivery, mechanism_of(policy))


class Swap(msgspec.Struct):
    """A change in progress: the next or former policy, which may be the present one, and its channels."""

    other: ScopePolicy
    version: int
    since: float
    phase: Phase = Phase.INSTALLING
    channels: tuple[WantedChannel, ...] = ()
    told: dict[int, int] | None = None
    """By member: the number of the orders that it was sent in this phase; None: they have not been sent yet."""
    awaited: dict[int, int] = {}
    """Those who have not answered yet."""
    renews: bool = False
    """Does the policy stay the same, for other members?"""
    unanswered: NoAnswer | None = None
    """Why the policy that is to be in force does not say which channels it wants."""

    @property
    def begins_later(self) -> bool:
        """Are its channels not in use yet?"""
        return self.phase is Phase.INSTALLING

    def carry_by(self, channels: tuple[WantedChannel, ...], unanswered: NoAnswer | None = None) -> None:
        """Set the other policy's channels. If they change before they are used, members acknowledge them again."""
        if self.begins_later and (channels != self.channels or unanswered is not None):
            self.told = None
        self.channels, self.unanswered = channels, unanswered


class Swaps:
    """The policies in force in a scope, and how they change."""

    def __init__(self, lease_s: float, version: Callable[[bytes], int], name: Callable[[int], str]) -> None:
        """`version` is that of a topic's policy now, and `name` what people call a member."""
        self.lease_s, self.version, self.name = lease_s, version, name
        self.in_force: dict[bytes, ScopePolicy] = {}
        self.running: dict[bytes, Swap] = {}
        self.refused: dict[bytes, tuple[ScopePolicy, str]] = {}  # changes that ended, and why
        self.restored: dict[bytes, Topic] = {}  # as they were before a crash, until they are composed again
        self.held: dict[int, int] = {}  # by member: the number of the orders that it acknowledged last

    # ---- wanted policies

    def want(self, topic: bytes, wanted: ScopePolicy | None, now: float) -> None:
        """Use this policy in a topic; None: the scope does not carry it."""
        if wanted is not None and topic in self.restored:
            self._resume(topic, self.restored.pop(topic), wanted, now)
        present, swap = self.in_force.get(topic), self.running.get(topic)
        if wanted is None or present is None:
            self.forget(topic)
            if wanted is not None:
                self.in_force[topic] = wanted
        elif swap is not None and not swap.begins_later:
            pass  # one after the other
        elif wanted == present:
            if swap is not None and not swap.renews:
                del self.running[topic]
            self.refused.pop(topic, None)
        elif self._is_new(topic, wanted):
            self.refused.pop(topic, None)
            self.running[topic] = Swap(wanted, (self.version(topic) + 1) % VERSIONS, now)

    def renew(self, topic: bytes, channels: tuple[WantedChannel, ...], now: float) -> bool:
        """Members came or went, and the policy wants these channels now: begin that change.

        False while another one is in progress. Then all that came and went meanwhile become one change.
        """
        if topic in self.running:
            return False
        version = (self.version(topic) + 1) % VERSIONS
        self.running[topic] = Swap(self.in_force[topic], version, now, channels=channels, renews=True)
        return True

    def restore(self, topics: Mapping[bytes, Topic]) -> None:
        """The manager returned: these are the topics as it saved them."""
        self.restored = {topic: kept for topic, kept in topics.items() if kept.of is not None}

    def _resume(self, topic: bytes, kept: Topic, wanted: ScopePolicy, now: float) -> None:
        assert kept.of is not None
        self.in_force[topic] = wanted if kept.of == basis(wanted) else Kept(kept.of)
        if (change := kept.change) is not None and change.switched:
            self.running[topic] = Swap(
                Kept(change.of), change.version, now, Phase.SWITCHED, change.channels, renews=change.of == kept.of
            )

    def saved(self, topic: bytes) -> tuple[Basis | None, Change | None]:
        """What `restore` needs of a topic: the policy in force, and the change in progress."""
        policy, swap = self.in_force.get(topic), self.running.get(topic)
        change = None
        if swap is not None:
            change = Change(not swap.begins_later, basis(swap.other), swap.version, swap.channels)
        return basis(policy) if policy is not None else None, change

    def _is_new(self, topic: bytes, wanted: ScopePolicy) -> bool:
        swap, refused = self.running.get(topic), self.refused.get(topic)
        return wanted != (swap.other if swap is not None else refused[0] if refused is not None else None)

    def ends_unanswered(self, topic: bytes) -> bool:
        """Was the policy stopped that a topic changes to? Then the change is over."""
        swap = self.running.get(topic)
        if swap is None or not isinstance(swap.unanswered, PolicyStopped):
            return False
        self._abort(topic, str(swap.unanswered))
        return True

    def retry(self) -> None:
        """An operator set policies again: changes that ended may start again."""
        self.refused = {}

    def forget(self, topic: bytes) -> None:
        """No member takes part in a topic any longer."""
        for known in (self.in_force, self.running, self.refused, self.restored):
            known.pop(topic, None)

    def story(self, topic: bytes) -> str:
        """The state of a topic's change, in a sentence; empty if there is none."""
        swap, refused = self.running.get(topic), self.refused.get(topic)
        if swap is None:
            return refused[1] if refused is not None else ""
        waits, what = ", ".join(map(self.name, swap.awaited)), "channels" if swap.renews else "the policy"
        waits = str(swap.unanswered or waits)
        return f"changing {what}: {swap.phase.value}" + (f", waiting for {waits}" if waits else "")

    # ---- what members do

    def told(self, topic: bytes, numbers: dict[int, int]) -> None:
        """The members that take part were sent orders of these numbers."""
        swap = self.running.get(topic)
        if swap is not None and swap.told is None and swap.unanswered is None:
            swap.told = numbers
            swap.awaited = {label: number for label, number in numbers.items() if self.held.get(label, -1) < number}

    def heard(self, label: int, number: int, now: float, *, behind: bool) -> None:
        """A member has the orders of a number. `behind`: it lacks bundles that it knew of at its last keep-alive."""
        self.held[label] = number
        for swap in self.running.values():
            drained = not behind and now - swap.since >= self.lease_s / 2  # that was two keep-alives ago
            if number >= swap.awaited.get(label, number + 1) and (drained or swap.phase is not Phase.DRAINING):
                del swap.awaited[label]

    def gone(self, label: int, why: str) -> list[bytes]:
        """A member is gone; `why` if that was not in good order. The topics whose change ends by that."""
        self.held.pop(label, None)
        for swap in self.running.values():
            (swap.told or {}).pop(label, None)
        missed = [topic for topic, swap in self.running.items() if swap.awaited.pop(label, None) is not None]
        ended = [
            topic for topic in missed if why and self.running[topic].begins_later and not self.running[topic].renews
        ]
        for topic in ended:
            self._abort(topic, why)
        return ended

    def passed(self, now: float) -> Iterator[tuple[bytes, Swap | None]]:
        """The topics whose channels change, with the policy in force from now on, or None if a change has ended."""
        for topic, swap in list(self.running.items()):
            if swap.unanswered is not None:
                swap.since = now  # it has members install nothing yet
            answered, overdue = swap.told is not None and not swap.awaited, now - swap.since > self.lease_s
            if swap.begins_later and (answered or (overdue and swap.renews)):
                former, self.in_force[topic] = self.in_force[topic], swap.other
                self.running[topic] = Swap(former, self.version(topic), now, Phase.SWITCHED, renews=swap.renews)
                yield topic, swap
            elif swap.begins_later and overdue:
                self._abort(topic, _silent(map(self.name, swap.awaited)))
                yield topic, None
            elif swap.phase is Phase.SWITCHED and answered:
                swap.phase, swap.since, swap.awaited = Phase.DRAINING, now, dict(swap.told or {})
            elif not swap.begins_later and (answered or now - swap.since >= DRAIN_S):
                del self.running[topic]
                yield topic, None

    def _abort(self, topic: bytes, why: str) -> None:
        self.refused[topic] = self.running.pop(topic).other, f"the policy stays as it was: {why}"


def _silent(names: Iterable[str]) -> str:
    return f"{', '.join(names)} did not acknowledge the new channels"
