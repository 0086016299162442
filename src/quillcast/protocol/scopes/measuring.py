"""What a manager has its members measure, and which topics it composes again because of the results.

Entry points are chosen by their round trips to senders, and to the scope's parent in the overlay's tree. Some policies
use round trips between members.

A member that is a scope has no place of its own. The peer that is its entry point for the topic, its head, measures and
is measured for it: the scope's manager passes on to the head what to measure, and upwards what it found. A scope that
gets another head is measured again.

The entry point decides which peer is the scope's parent, and the parent decides which member is the entry point. So two
members could take turns for ever, each nearer to the other's parent than the other is. A new parent therefore counts at
once only if the last change was long ago. Otherwise there is a pause, which doubles each time, and then the parent of
that moment counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.effects import ScopeEffect, Send
from quillcast.protocol.scopes.members import Members
from quillcast.protocol.scopes.membership import Owner
from quillcast.protocol.scopes.messages import Measured, MeasureRoundTrips, OuterParent
from quillcast.protocol.scopes.receiver import Receiver
from quillcast.protocol.scopes.roundtrips import RoundTripTable
from quillcast.protocol.scopes.state import Member, ScopeState

ASKED_MAX = 1024  # round trips that superscopes wait for; a guess that limits what a faulty one costs
NO_TOPIC = bytes(ID_BYTES)  # of a peer it does not matter in which topic it measures
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
        self.again: list[bytes] = []  # peers that are to measure again
        self.again_at = 0.0
        self.asked: dict[tuple[bytes, bytes], dict[bytes, None]] = {}
        """By member and party: the superscopes that want to know the way between them."""

    def begin(self, now: float) -> None:
        """Measurements from before this manager began are lost."""
        self.again_at = now + AGAIN_S

    # ---- what comes in: each returns the topics to compose again

    def heard(self, message: Measured) -> Iterable[bytes]:
        """Senders' round trips count at once. Those between members count later, because many arrive together."""
        member = self.members.find(message.member)
        if member is None:
            return ()
        by = message.by if member.party.managed else message.member
        if not self.round_trips.note(by, message.to, message.seconds):
            return ()
        other = self.members.find(message.to)
        topics = (*member.roles, *(other.roles if other is not None else ()))
        self.measured |= {topic: None for topic in topics if topic in self.asking}
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

    def forget_member(self, id_: bytes) -> None:
        """A member is gone."""
        self.round_trips.forget_peer(id_)
        self.round_trips.forget_party(id_)
        self.asked = {pair: owners for pair, owners in self.asked.items() if pair[0] != id_}

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

    def measure(self, topic: bytes) -> Iterator[ScopeEffect]:
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
            member = self.state.members[label]
            if (head := member.head(topic)) is not None:
                unmeasured = self.round_trips.unmeasured(head.node_id, senders)
                yield from self._have_measured(member, topic, unmeasured, senders)
        if topic in self.asking:
            using = [each.label for each in self.members.using(topic) if topic in each.roles]
            taking = [self.state.members[label] for label in sorted({*using, *entries})]
            heads = {each.label: head for each in taking if (head := each.head(topic)) is not None}
            peers = {label: head.node_id for label, head in heads.items()}
            parties = {head.node_id: _party(self.state.members[label], head) for label, head in heads.items()}
            for label in peers:
                unmeasured = self.round_trips.unmeasured_among(label, peers, entries)
                yield from self._have_measured(self.state.members[label], topic, unmeasured, parties)

    def measure_again(self, now: float) -> Iterator[ScopeEffect]:
        """Paths change: from time to time, one member after another repeats its measurements."""
        if not self.again and now >= self.again_at:
            self.again, self.again_at = [*self.round_trips.seconds], now + AGAIN_S
        if self.again:
            peer, speaking = self.again.pop(), dict(self._speaking())
            parties = {id_: _party(member, head) for id_, (member, _, head) in speaking.items()} | self.parents.ids()
            parties |= {each.party.id: each.party for each in self.state.senders.values()}
            known = self.round_trips.keep(peer, parties if peer in speaking else ())
            if known:
                member, topic, _ = speaking[peer]
                yield from self._have_measured(member, topic, known, parties)

    def _speaking(self) -> Iterator[tuple[bytes, tuple[Member, bytes, Contact]]]:
        """The peers that are members or heads of members, each for whom and in which topic."""
        for member in self.state.members.values():
            for topic in member.roles if member.party.managed else (NO_TOPIC,):
                if (head := member.head(topic)) is not None:
                    yield head.node_id, (member, topic, head)

    def _have_measured(
        self, member: Member, topic: bytes, to: Iterable[bytes], parties: Mapping[bytes, Party]
    ) -> Iterator[ScopeEffect]:
        if told := tuple(parties[id_] for id_ in to):
            yield Send(member.party, MeasureRoundTrips(self.state.scope.id, told, topic))

    # ---- for the scopes above

    def ordered(self, message: MeasureRoundTrips) -> Iterator[ScopeEffect]:
        """A superscope wants to know the round trips from this scope: its entry point measures them."""
        kept = self.state.topics.get(message.topic)
        for label in kept.entries[:1] if kept is not None else ():
            member = self.state.members[label].party
            for party in message.to[: ASKED_MAX - len(self.asked)]:
                self.asked.setdefault((member.id, party.id), {})[message.owner] = None
            yield Send(member, MeasureRoundTrips(self.state.scope.id, message.to, message.topic))

    def pass_on(self, message: Measured, owners: Mapping[bytes, Owner]) -> Iterator[ScopeEffect]:
        """A member measured something: tell the superscopes that wanted to know."""
        member = self.members.find(message.member)
        if member is not None:
            by = message.by if member.party.managed else message.member
            for id_ in self.asked.pop((message.member, message.to), ()):
                if id_ in owners:
                    told = Measured(id_, self.state.scope.id, message.to, message.seconds, by)
                    yield Send(owners[id_].party, told)


def _party(member: Member, head: Contact) -> Party:
    """Whom others measure for a member."""
    return Party(head.node_id, head) if member.party.managed else member.party
