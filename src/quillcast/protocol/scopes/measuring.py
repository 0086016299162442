"""What a manager has its members measure, and which topics it composes again because of the results.

Entry points are chosen by their round trips to senders, and to the scope's parent in the overlay's tree. Some policies
use round trips between members.

The entry point decides which peer is the scope's parent, and the parent decides which member is the entry point. So two
members could take turns for ever, each nearer to the other's parent than the other is. A new parent therefore counts at
once only if the last change was long ago. Otherwise there is a pause, which doubles each time, and then the parent of
that moment counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.effects import Effect, Send
from quillcast.protocol.scopes.members import Members
from quillcast.protocol.scopes.messages import Measured, MeasureRoundTrips, OuterParent
from quillcast.protocol.scopes.receiver import Receiver
from quillcast.protocol.scopes.roundtrips import RoundTripTable
from quillcast.protocol.scopes.state import ScopeState

AGAIN_S = 300.0  # at least, until a member measures round trips again; a guess: paths seldom change


class Pause(NamedTuple):
    """Until when the manager keeps a topic's parent, and how long the next pause is."""

    until: float
    next_s: float


class Parents:
    """A scope's parents in the overlay's trees, by topic."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.heeded: dict[bytes, Party] = {}
        self.told: dict[bytes, Party] = {}  # by the entry point, later than that
        self.pauses: dict[bytes, Pause] = {}

    def hear(self, topic: bytes, parent: Party, now: float) -> bool:
        """The entry point has this parent. True: it is new, and counts from now on."""
        self.told[topic] = parent
        return self._heed(topic, now)

    def passed(self, now: float) -> list[bytes]:
        """The topics whose parent changes now that their pause is over."""
        return [topic for topic in [*self.told] if self._heed(topic, now)]

    def _heed(self, topic: bytes, now: float) -> bool:
        pause = self.pauses.get(topic, Pause(now, self.lease_s))
        if now < pause.until:
            return False
        parent = self.told.pop(topic)
        if parent == self.heeded.get(topic):
            return False
        next_s = pause.next_s if now < pause.until + AGAIN_S else self.lease_s
        self.heeded[topic], self.pauses[topic] = parent, Pause(now + next_s, min(2 * next_s, AGAIN_S))
        return True

    def forget(self, topic: bytes) -> None:
        """The scope no longer takes part in it."""
        for held in (self.heeded, self.told, self.pauses):
            held.pop(topic, None)

    def ids(self) -> dict[bytes, Party]:
        """The parents that count, by their ids."""
        return {parent.id: parent for parent in self.heeded.values()}


class Measuring:
    """Which members measure what in one scope, and the results."""

    def __init__(self, state: ScopeState, lease_s: float, members: Members, receiver: Receiver) -> None:
        self.state, self.members, self.receiver = state, members, receiver
        self.round_trips = RoundTripTable()
        self.parents = Parents(lease_s)
        self.asking: dict[bytes, None] = {}  # topics whose policies use round trips between members
        self.measured: dict[bytes, None] = {}  # topics for which more is known than when they were composed
        self.again: list[int] = []  # members that are to measure again
        self.again_at = 0.0

    def begin(self, now: float) -> None:
        """Measurements from before this manager began are lost."""
        self.again_at = now + AGAIN_S

    # ---- what comes in: each returns the topics to compose again

    def heard(self, message: Measured) -> Iterable[bytes]:
        """Senders' round trips count at once. Those between members count later, because many arrive together."""
        member = self.members.find(message.member)
        if member is None or not self.round_trips.note(member.label, message.to, message.seconds):
            return ()
        if (other := self.members.find(message.to)) is not None:
            self.measured |= {topic: None for topic in (*member.roles, *other.roles) if topic in self.asking}
        of_parent = [topic for topic, parent in self.parents.heeded.items() if parent.id == message.to]
        return (*member.roles, *of_parent) if message.to in self.state.senders else of_parent

    def outer_parent(self, message: OuterParent, now: float) -> Iterable[bytes]:
        """The entry point has this parent outside: find which of the three is nearest to it."""
        topic, member = message.topic, self.members.find(message.member)
        kept = self.state.topics.get(topic)
        if kept is None or member is None or member.label not in kept.entries[:1]:
            return ()
        former = self.parents.ids()
        if not self.parents.hear(topic, Party(message.parent.node_id, message.parent), now):
            return ()
        self._forget_parents(former)
        return (topic,)

    def passed(self, now: float) -> Iterable[bytes]:
        """Time passed."""
        former, (measured, self.measured) = self.parents.ids(), (self.measured, {})
        moved = self.parents.passed(now)
        self._forget_parents(former)
        return dict.fromkeys((*measured, *moved))

    def _forget_parents(self, former: Iterable[bytes]) -> None:
        left = self.parents.ids()
        for id_ in former:
            if id_ not in left:
                self.round_trips.forget_party(id_)

    def forget_topic(self, topic: bytes) -> None:
        """No member takes part in it any longer."""
        former = self.parents.ids()
        self.parents.forget(topic)
        self.asking.pop(topic, None)
        self._forget_parents(former)

    def forget_member(self, label: int, id_: bytes) -> None:
        """A member is gone."""
        self.round_trips.forget_member(label)
        self.round_trips.forget_party(id_)

    # ---- what goes out

    def parent(self, topic: bytes) -> bytes | None:
        """The scope's parent outside in a topic, if it is known."""
        parent = self.parents.heeded.get(topic)
        return parent.id if parent is not None else None

    def asks(self, topic: bytes, *, between_members: bool) -> None:
        """A topic was composed again: does its policy use round trips between members?"""
        if between_members:
            self.asking[topic] = None
        else:
            self.asking.pop(topic, None)

    def measure(self, topic: bytes) -> Iterator[Effect]:
        """The entry point and its stand-bys measure round trips to the senders, or to the parent in the overlay's tree.

        No other member measures anything outside.

        If the topic's policy uses round trips, members measure those between them.
        """
        if topic not in self.state.topics:
            return
        senders = {sender.party.id: sender.party for sender in self.receiver.of(topic)}
        if (parent := self.parents.heeded.get(topic)) is not None:
            senders[parent.id] = parent
        entries = self.state.topics[topic].entries
        for label in entries if senders else ():
            yield from self._have_measured(label, self.round_trips.unmeasured(label, senders), senders)
        if topic in self.asking:
            using = [each.label for each in self.members.using(topic) if topic in each.roles]
            taking = [self.state.members[label] for label in sorted({*using, *entries})]
            peers = {each.label: each.party.id for each in taking if not each.party.managed}
            parties = {each.party.id: each.party for each in taking}
            for label in peers:
                unmeasured = self.round_trips.unmeasured_among(label, peers, entries)
                yield from self._have_measured(label, unmeasured, parties)

    def measure_again(self, now: float) -> Iterator[Effect]:
        """Paths change: from time to time, one member after another repeats its measurements."""
        if not self.again and now >= self.again_at:
            self.again, self.again_at = [*self.round_trips.seconds], now + AGAIN_S
        if self.again and (label := self.again.pop()) in self.state.members:
            parties = self.parents.ids()
            parties |= {each.party.id: each.party for each in self.state.senders.values()}
            parties |= {each.party.id: each.party for each in self.state.members.values()}
            known = self.round_trips.seconds.get(label, {})
            yield from self._have_measured(label, [id_ for id_ in known if id_ in parties], parties)

    def _have_measured(self, label: int, to: Iterable[bytes], parties: Mapping[bytes, Party]) -> Iterator[Effect]:
        member, told = self.state.members[label].party, tuple(parties[id_] for id_ in to)
        if told and not member.managed:
            yield Send(member, MeasureRoundTrips(self.state.scope.id, told))
