"""The orders of each member of a scope, and which of them it was sent."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

import msgspec

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import superimposed
from quillcast.protocol.scopes.composition import Part
from quillcast.protocol.scopes.effects import Send
from quillcast.protocol.scopes.messages import (
    OTHERS_MAX,
    Around,
    Bounds,
    Circle,
    GroupKey,
    Orders,
    RootScope,
    Succession,
)
from quillcast.protocol.scopes.state import ScopeState


class Common(NamedTuple):
    """The part of `Orders` that is the same for all members."""

    above: tuple[bytes, ...]
    ring: tuple[Contact, ...]
    roots: tuple[RootScope, ...]
    bounds: tuple[Bounds, ...]
    ring_above: bool


class OrderBook:
    """The orders of one scope: a part per member and topic. Orders of one epoch have numbers that only grow."""

    def __init__(self, state: ScopeState) -> None:
        self.state = state
        self.succession: Succession | None = None  # the proof that the manager runs here
        self.parts: dict[int, dict[bytes, Part]] = {label: {} for label in state.members}
        self.told: dict[int, Orders] = {}
        self.owed: dict[int, None] = dict.fromkeys(state.members)  # members that must be sent orders
        self.numbers = count(1)
        self.labels: dict[bytes, dict[int, None]] = {}  # by topic: the members that have a part in it
        self.agents: dict[int, Heads] = {}  # by member: its agents in the recovery domain
        self.circle: dict[int, tuple[Contact, ...]] = {}  # members of the recovery domain: the peers with agents
        self.circle_order: list[int] = []  # these members, in their order

    def prove(self, succession: Succession | None) -> None:
        """Keep the proof that the manager runs here."""
        self.succession = succession

    def owe(self, labels: Iterable[int]) -> None:
        """Mark these members, who may be new, to be sent their orders."""
        for label in labels:
            self.parts.setdefault(label, {})
            self.owed[label] = None

    def remove(self, label: int) -> None:
        """A member is gone."""
        for topic in self.parts.get(label, ()):
            self._forget_part(topic, label)
        for held in (self.told, self.owed, self.parts, self.agents):
            held.pop(label, None)
        self._enter_circle([label])

    def _forget_part(self, topic: bytes, label: int) -> None:
        self.labels[topic].pop(label)
        if not self.labels[topic]:
            del self.labels[topic]

    def owe_keys(self) -> None:
        """Mark the members of multicast groups to be sent the changed keys."""
        self.owe([label for label, told in self.told.items() if told.groups])

    def update(self, topic: bytes, parts: Mapping[int, Part]) -> bool:
        """Replace all parts in a topic. Returns whether anything changed."""
        former = {label: self.parts[label][topic] for label in self.labels.get(topic, ())}
        concerned = sorted({*former, *(label for label in parts if label in self.parts)})
        changed = [label for label in concerned if former.get(label) != parts.get(label)]
        for label in changed:
            self.owed[label] = None
            if label in parts:
                self.parts[label][topic] = parts[label]
                self.labels.setdefault(topic, {})[label] = None
            else:
                del self.parts[label][topic]
                self._forget_part(topic, label)
        self._enter_circle([label for label in concerned if self._note_agent(topic, label)])
        return bool(changed)

    def _note_agent(self, topic: bytes, label: int) -> bool:
        """Record which peer has a member's agent for a topic: itself, or a scope's head. True if that changed."""
        member, who = self.state.members.get(label), None
        if member is not None and _has_agent(self.parts[label].get(topic)):
            who = member.head(topic)
        return self.agents.setdefault(label, Heads()).set(topic, who)

    def numbers_in(self, topic: bytes) -> dict[int, int]:
        """The members with a part in a topic, with the number of the orders that each was sent last."""
        return {label: self.told[label].number for label in sorted(self.labels.get(topic, ()))}

    def settle(self, common: Common) -> Iterator[Send]:
        """Send orders to the marked members."""
        owed, self.owed = self.owed, {}
        return (self._tell(label, common) for label in owed)

    def _enter_circle(self, labels: Iterable[int]) -> None:
        """The recovery of these may have changed: see that members of the domain know who comes next."""
        found = {label: self._with_agents(label) for label in labels}
        if any(peers != self.circle.get(label, ()) for label, peers in found.items()):
            self.circle = {label: peers for label, peers in sorted((self.circle | found).items()) if peers}
            self.circle_order = [*self.circle]
            told = [(label, self.told[label].others) for label in self.circle if label in self.told]
            self.owe([label for label, others in told if others != self._others(label)])

    def _with_agents(self, label: int) -> tuple[Contact, ...]:
        """The peers that have a member's agents: itself, or the heads of a scope."""
        return tuple(self.agents[label].counts) if label in self.agents else ()

    def _others(self, label: int) -> tuple[Contact, ...]:
        """The next peers of the recovery domain after a member. A scope's own come first."""
        if label not in self.circle:
            return ()
        own, at, count = self.circle[label], bisect_left(self.circle_order, label), len(self.circle_order)
        following = (self.circle_order[(at + step) % count] for step in range(1, count))
        contacts = dict[Contact, None]()
        for contact in (each for other in following for each in self.circle[other]):
            if len(contacts) == OTHERS_MAX:
                break
            if contact not in own:
                contacts[contact] = None  # scopes may have heads in common
        heads = own if self.state.members[label].party.managed else ()
        return (*heads, *contacts)

    def repeat(self, label: int, held: tuple[int, int]) -> Iterator[Send]:
        """A member has the orders of this epoch and number: send its latest orders again, if it lacks them."""
        told = self.told[label]
        if held != (told.epoch, told.number):
            yield Send(self.state.members[label].party, told)

    def _tell(self, label: int, common: Common) -> Send:
        member, told, parts = self.state.members[label], self.told.get(label), self.parts[label].values()
        channels = superimposed(channel for part in parts for channel in part.channels)
        assignments = tuple(part.assignment for part in parts)
        number = told.number if told is not None else 0
        mechanisms = dict.fromkeys(mechanism for part in parts for mechanism in part.mechanisms)
        groups = tuple(GroupKey(mechanism, self.state.key(mechanism)) for mechanism in mechanisms)
        scope, epoch = self.state.scope, self.state.epoch
        orders = Orders(
            scope, epoch, number, member.serial, label, common.above, assignments, channels, common.ring, groups,
            self.succession, self._others(label), common.roots, common.bounds, self.state.invitation(member.party.id),
            tuple(_around(parts)), self.state.invitation(member.party.id, enters=True), common.ring_above,
            tuple(dict.fromkeys(invitation for part in parts for invitation in part.invitations)),
        )  # fmt: skip
        if orders != told:
            orders = self.told[label] = msgspec.structs.replace(orders, number=next(self.numbers))
        return Send(member.party, orders)

    def check(self) -> None:
        """Raise AssertionError unless the tables agree with the parts."""
        assert self.circle_order == sorted(self.circle)
        parts = {(topic, label) for label, held in self.parts.items() for topic in held}
        assert parts == {(topic, label) for topic, labels in self.labels.items() for label in labels}
        for heads in self.agents.values():
            assert heads.counts == Counter(heads.of_topic.values())


class Heads:
    """The peers that have a member's agents, by topic, and the number of topics of each."""

    def __init__(self) -> None:
        self.of_topic: dict[bytes, Contact] = {}
        self.counts = Counter[Contact]()

    def set(self, topic: bytes, who: Contact | None) -> bool:
        """This peer has the agent for a topic from now on; None: no peer. Returns whether that changed."""
        former = self.of_topic.pop(topic, None)
        if who is not None:
            self.of_topic[topic] = who
            self.counts[who] += 1
        if former is not None:
            self.counts[former] -= 1
            if not self.counts[former]:
                del self.counts[former]
        return former != who


def _has_agent(part: Part | None) -> bool:
    """Is a member with this part in a topic in the scope's recovery domain?"""
    return part is not None and part.assignment.recovery != ""


def _around(parts: Iterable[Part]) -> Iterator[Around]:
    """The domains in which a member is its scope's head: one for all topics that share it."""
    topics = dict[tuple[int, Circle], list[bytes]]()
    for part in parts:
        for level, circle in enumerate(part.around):
            topics.setdefault((level, circle), []).append(part.assignment.topic)
    return (Around(each[1], tuple(topics[each])) for each in sorted(topics, key=lambda each: each[0]))
