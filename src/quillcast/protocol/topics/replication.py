"""Root state on the k closest peers: descriptors and terms, for whoever is root next (Scribe, section 3.2).

Whoever is about to become root asks these peers what they know of the topic, then has them note its term; what a root
enters later they note as well. Each question goes on until everybody who is alive has answered, or most have and the
others had their time: a majority of k, or all that are alive, if they are fewer. Copies that were missed, by a peer
that came back with the same nodeId and knows nothing, show when neighbours compare (`comparing.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Timer
from quillcast.core.interning import interned
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics.comparing import Comparing
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Recorded, RecordState, StateAnswer, StateQuery, TopicEntry

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe

T = TypeVar("T")
PAGE_TOPICS_MAX = 128  # topics in one message; with long access lists it stays below a frame's size


class RoundsDue(Timer, frozen=True):
    """Send what is new to be asked; ask those again who did not answer."""

    again: bool


class Round:
    """A question to the peers that keep a topic's state, or something for them to note."""

    def __init__(self, topic: bytes, note: tuple[Descriptor, Term] | None, began_at: float) -> None:
        self.topic, self.note, self.began_at = topic, note, began_at
        self.answers: dict[bytes, TopicEntry] = {}
        self.asked: dict[bytes, None] = {}
        self.joining: dict[bytes, None] = {}  # those that cannot know what they were asked
        self.doubtful_until = 0.0  # the topic may have been in use until then, as those who were asked say
        self.then: list[Callable[[Round], None]] = []

    @property
    def holders(self) -> int:
        """How many peers hold what was to be noted, this one among them."""
        assert self.note is not None
        descriptor, term = self.note
        return 1 + sum(entry.term == term and entry.descriptor == descriptor for entry in self.answers.values())


class Replication:
    """What this peer keeps for other roots, and what others keep for it."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        self.terms: dict[bytes, Term] = {}  # of the topics whose state is kept here
        self.comparing = Comparing(scribe, self)
        self._rounds: dict[tuple[bytes, bool], Round] = {}  # by topic, and whether something is to be noted
        self._new: list[Round] = []
        self._again_set = False
        scribe.dispatch.on_message(StateQuery, self._asked)
        scribe.dispatch.on_message(RecordState, self._keep)
        scribe.dispatch.on_message(StateAnswer, self._answered)
        scribe.dispatch.on_message(Recorded, self._answered)
        scribe.dispatch.on_timer(RoundsDue, self.due)

    # ---- who keeps a topic's state

    @property
    def count(self) -> int:
        """How many (k): where the leaf set does not hold the whole ring, no more than all of these peers agree on."""
        leaf_set = self.overlay.leaf_set
        return self.config.replicas if len(leaf_set) < leaf_set.size else min(self.config.replicas, leaf_set.size // 2)

    @property
    def majority(self) -> int:
        """So many of k are most of them."""
        return self.count // 2 + 1

    def keepers(self, topic: bytes) -> list[Contact]:
        """The peers that keep a topic's state, as far as this one knows: the k closest to it."""
        return self.overlay.closest(topic, self.count)

    def _others(self, round_: Round) -> list[Contact]:
        """The peers that a round still has to hear from; suspected ones are skipped.

        Asking covers the k closest others, for this peer may be new. Those that are joining are new as well, and may
        have taken the places of those who know: these are asked, too.
        """
        suspected = self.scribe.neighbours.suspected
        if round_.note is None:
            closest = self.overlay.closest(round_.topic, 1 + len(self.overlay.leaf_set))
        else:
            closest = self.keepers(round_.topic)
        others = [contact for contact in closest if contact.node_id != self.host.me]
        there = [number for number, contact in enumerate(others, 1) if contact.node_id not in round_.joining]
        asked = others[: there[self.count - 1]] if len(there) >= self.count else others
        return [contact for contact in asked if not suspected(contact.node_id)]

    def doubtful_until(self, topic: bytes, asker: bytes) -> float:
        """Until when a topic that is new to all who were asked may have been in use: most who would know are gone.

        The peer that asks would not know, nor those that are joining.
        """
        since = self.host.now() - self.config.lease_s
        closest = self.overlay.closest_lately(topic, 1 + len(self.overlay.leaf_set) + self.count, since)
        there = [(c, at) for c, at in closest if c.node_id != asker and not self.overlay.is_joining(c)]
        lately = there[: self.count]
        lost = [at for _, at in lately if at is not None]
        if len(lately) < self.count or len(lately) - len(lost) >= self.majority:
            return 0.0
        return max(lost) + self.config.lease_s

    def partitioned(self, topic: bytes) -> bool:
        """Is this peer kept from most of the topic's keepers? Those that it lost count for as long as a lease.

        A peer that it only heard of, and that never answered, may have left long ago.
        """
        since = self.host.now() - self.config.lease_s
        neighbours = self.scribe.neighbours
        if self.overlay.lost_peers.latest <= since and not neighbours.doubting:
            return False
        lately = self.overlay.closest_lately(topic, self.count, since, met=True)
        reached = [c for c, lost_at in lately if lost_at is None and not neighbours.suspected(c.node_id)]
        return 2 * len(reached) <= len(lately)

    def all_answered(self, round_: Round) -> bool:
        """Did all answer who would know of a later term, those among them that were lost within a lease's time?"""
        since = self.host.now() - self.config.lease_s
        lately = self.overlay.closest_lately(round_.topic, self.count + 1, since)
        return all(contact.node_id in {self.host.me, *round_.answers} for contact, _ in lately)

    # ---- what is kept here

    def enter(self, topic: bytes, term: Term) -> None:
        """A term of the topic that this peer knows of, be it in no tree of it."""
        topic = interned(topic)
        if term > self.terms.get(topic, NO_TERM):
            self.terms[topic] = interned(term)
            self.comparing.changed(topic)

    def may_forget(self, topic: bytes) -> bool:
        """Is a topic's state not kept here, or kept by all who should, of whom this peer is none?"""
        return topic not in self.terms or self.comparing.others_keep(topic)

    def forget(self, topic: bytes) -> None:
        """This peer need not keep a topic's state."""
        self.terms.pop(topic, None)
        self.comparing.forget(topic)

    def known(self, topic: bytes) -> TopicEntry:
        """What this peer knows of a topic. What it only assumes, for somebody asked for it, is no knowledge."""
        tree, term = self.scribe.trees.get(topic), self.terms.get(topic, NO_TERM)
        if tree is not None:
            term = max(term, tree.heard, tree.term)
        descriptor = self.scribe.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and term == NO_TERM:
            descriptor = None
        return TopicEntry(topic, descriptor, term, tree is not None and tree.root is not None)

    # ---- asking and noting

    def ask(self, topic: bytes, then: Callable[[Round], None]) -> None:
        """StateQuery the keepers what they know of a topic; `then` gets their answers."""
        self._begin(topic, None, then)

    def note(self, descriptor: Descriptor, term: Term, then: Callable[[Round], None]) -> None:
        """Have the keepers note this; `then` hears when most have, or when one of them knows better."""
        self.enter(descriptor.topic, term)
        self._begin(descriptor.topic, (descriptor, term), then)

    def _begin(self, topic: bytes, note: tuple[Descriptor, Term] | None, then: Callable[[Round], None]) -> None:
        key = (topic, note is not None)
        round_ = self._rounds.get(key)
        if round_ is None or round_.note != note:
            waiting = round_.then if round_ is not None else []
            round_ = self._rounds[key] = Round(topic, note, self.host.now())
            round_.then += waiting
            if not self._new:
                self.host.set_timer(RoundsDue(again=False), 0.0)
            self._new.append(round_)
        round_.then.append(then)
        self._look(round_)

    def _look(self, round_: Round) -> None:
        """Is this round over?"""
        key = (round_.topic, round_.note is not None)
        if self._rounds.get(key) is not round_ or not self._settled(round_):
            return
        del self._rounds[key]
        for then in round_.then:
            then(round_)

    def _settled(self, round_: Round) -> bool:
        """Did all answer who are alive, or most of k, with time for the others? One that knows better ends it, too."""
        note = round_.note
        if note is not None and any(_better(entry, *note) for entry in round_.answers.values()):
            return True
        asked = self._others(round_)
        others = [contact for contact in asked if contact.node_id not in round_.joining]
        answered = sum(contact.node_id in round_.answers for contact in others)
        if answered == len(others):
            return True
        if note is not None:
            return 1 + answered >= self.majority
        answered = sum(contact.node_id in round_.answers for contact in others if contact in asked[: self.count])
        return self.host.now() - round_.began_at >= self.config.ask_patience_s and answered >= self.majority

    def due(self, timer: RoundsDue) -> None:
        """Send what is to be asked, gathered per peer."""
        if not timer.again:
            rounds, self._new = self._new, []
        else:
            self._again_set = False
            rounds = list(self._rounds.values())
            for round_ in rounds:
                round_.asked.clear()
        for round_ in rounds:
            self._look(round_)
        self._send(rounds)
        if self._rounds and not self._again_set:
            self._again_set = True
            self.host.set_timer(RoundsDue(again=True), self.config.ask_s)

    def _send(self, rounds: Iterable[Round]) -> None:
        asked: dict[Contact, list[Round]] = {}
        for round_ in rounds:
            if self._rounds.get((round_.topic, round_.note is not None)) is not round_:
                continue
            for contact in self._others(round_):
                if contact.node_id not in round_.answers and contact.node_id not in round_.asked:
                    round_.asked[contact.node_id] = None
                    asked.setdefault(contact, []).append(round_)
        for contact, its in asked.items():
            self.send_entries(contact, [round_.note for round_ in its if round_.note is not None])
            for topics in _pages([round_.topic for round_ in its if round_.note is None]):
                self.host.send(contact, StateQuery(topics))

    def send_entries(self, contact: Contact, entries: Sequence[tuple[Descriptor, Term]]) -> None:
        """Have a peer keep these."""
        for page in _pages(entries):
            self.host.send(contact, RecordState(page))

    def leaf_set_changed(self) -> None:
        """Others may keep a topic's state now."""
        self.comparing.leaf_set_changed()
        rounds = list(self._rounds.values())
        for round_ in rounds:
            self._look(round_)
        self._send(rounds)

    # ---- questions and answers

    def _asked(self, sender: Contact, message: StateQuery) -> None:
        """A peer that may be root soon asks."""
        entries = [self._known_to(sender, interned(topic)) for topic in message.topics]
        self.host.send(sender, StateAnswer(entries, joining=not self.overlay.active))

    def _known_to(self, asker: Contact, topic: bytes) -> TopicEntry:
        entry = self.known(topic)
        if entry.term != NO_TERM:
            return entry
        doubtful_s = max(0.0, self.doubtful_until(topic, asker.node_id) - self.host.now())
        return msgspec.structs.replace(entry, doubtful_s=doubtful_s)

    def _keep(self, sender: Contact, message: RecordState) -> None:
        """Keep these, as one of the closest to their topics; where this peer knows better, say what."""
        kept: list[tuple[bytes, Term, bytes]] = []
        better: list[TopicEntry] = []
        for descriptor, term in message.entries:
            topic = interned(descriptor.topic)
            self.scribe.learn(descriptor)
            self.enter(topic, term)
            tree = self.scribe.trees.get(topic)
            if tree is not None:
                self.scribe.terms.heard_of(tree, term)
            mine = self.known(topic)
            if _better(mine, descriptor, term):
                better.append(mine)
            else:
                kept.append((topic, term, descriptor.digest))
        if better:
            self.host.trace(Mark("replica_knew_better"))
            self.host.send(sender, StateAnswer(better))
        if kept:
            self.host.send(sender, Recorded(kept))
        self.overlay.introduce(sender)

    def _answered(self, sender: Contact, message: StateAnswer | Recorded) -> None:
        """One of the keepers answered."""
        rounds: list[Round] = []
        if isinstance(message, Recorded):
            self.comparing.kept(sender, [topic for topic, _, _ in message.topics])
            for topic, term, digest in message.topics:
                round_ = self._rounds.get((topic, True))
                if round_ is not None and round_.note is not None:
                    descriptor = round_.note[0]
                    if (term, digest) == (round_.note[1], descriptor.digest):
                        round_.answers[sender.node_id] = TopicEntry(topic, descriptor, term)
                        rounds.append(round_)
        else:
            self.comparing.kept(sender, [entry.topic for entry in message.entries if entry.term != NO_TERM])
            for entry in message.entries:
                for noting in (False, True):
                    round_ = self._rounds.get((entry.topic, noting))
                    if round_ is not None and (round_.note is None or _better(entry, *round_.note)):
                        round_.answers[sender.node_id] = entry
                        if message.joining:
                            round_.joining[sender.node_id] = None
                        round_.doubtful_until = max(round_.doubtful_until, self.host.now() + entry.doubtful_s)
                        rounds.append(round_)
        for round_ in rounds:
            self._look(round_)
        if isinstance(message, StateAnswer) and message.joining:
            self._send(rounds)


def _better(entry: TopicEntry, descriptor: Descriptor, term: Term) -> bool:
    """Does this entry know of a later term, or of a later word on the topic?"""
    known = entry.descriptor
    return entry.term > term or (known is not None and known != descriptor and known.supersedes(descriptor))


def _pages(what: Sequence[T]) -> Iterator[list[T]]:
    for first in range(0, len(what), PAGE_TOPICS_MAX):
        yield list(what[first : first + PAGE_TOPICS_MAX])
