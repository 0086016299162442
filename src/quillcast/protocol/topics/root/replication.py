"""Root state on the k closest peers: descriptors and terms, for the next root (Scribe, section 3.2).

A candidate asks these replicas what they know of the topic, then has them record its term; they also record what a root
enters later. Each query continues until every live replica has answered, or most have and the others had their time: a
majority of k, or all live ones if they are fewer. Missing copies, at a peer that returned with the same nodeId and
knows nothing, are found when neighbours compare (`comparing.py`).
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.comparing import Comparing
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.records import pages, send_entries
from quillcast.protocol.topics.known.replica_set import ReplicaSet, TopicDoubt
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.root_messages import (
    LOST_TOLD_MAX,
    Recorded,
    RecordState,
    StateAnswer,
    StateQuery,
    TopicEntry,
)
from quillcast.protocol.topics.state.tree import Tree


class RoundsDue(Timer, frozen=True):
    """Send new queries; repeat those that were not answered."""

    again: bool


class RivalDue(Timer, frozen=True):
    """A root's replicas know a later term than its own, which it was to keep for a while."""

    topic: bytes


class Round:
    """A query to the peers that keep a topic's state, or something for them to record."""

    def __init__(self, topic: bytes, note: tuple[Descriptor, Term] | None, began_at: float, after: int = 0) -> None:
        """Answers to queries with a number below `after` do not count: they may be read only now."""
        self.topic, self.note, self.began_at, self.after = topic, note, began_at, after
        self.answers: dict[bytes, TopicEntry] = {}
        self.asked: dict[bytes, None] = {}
        self.joining: dict[bytes, None] = {}  # peers that cannot know the answer
        self.between: dict[Contact, None] = {}  # peers that know another peer that may be root
        self.doubts: list[TopicDoubt] = []  # of the peers asked
        self.then: list[Callable[[Round], None]] = []

    @property
    def holders(self) -> int:
        """How many peers recorded it, including this one."""
        assert self.note is not None
        descriptor, term = self.note
        return 1 + sum(entry.term == term and entry.descriptor == descriptor for entry in self.answers.values())

    def is_answered(self, entry: TopicEntry, number: int) -> bool:
        """Whether an entry answers this, given to a query of this number. Better knowledge answers a record."""
        return number >= self.after if self.note is None else _better(entry, *self.note)


class Replication:
    """What this peer keeps for other roots, and what others keep for it."""

    __slots__ = (
        "_absent", "_again_set", "_between", "_new", "_rounds", "comparing", "config", "host", "known", "number",
        "overlay", "replica_set", "terms", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, replica_set: ReplicaSet, known: KnownTopics,
        trees: Mapping[bytes, Tree], terms: Terms, comparing: Comparing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.replica_set = host, config, overlay, replica_set
        self.known, self.trees, self.terms, self.comparing = known, trees, terms, comparing
        self._rounds: dict[tuple[bytes, bool], Round] = {}  # by topic, and whether something is to be recorded
        self.number = 0  # of the latest query
        self._new: list[Round] = []
        self._again_set = False
        self._absent: dict[bytes, dict[bytes, None]] = EMPTY  # of topics that seemed new: peers that may know better
        self._between: dict[bytes, dict[Contact, None]] = {}  # peers that may reach a rival and tell it the next term
        known.forget_too(self._between)
        dispatch.on_message(StateQuery, self._asked)
        dispatch.on_message(RecordState, self._keep)
        dispatch.on_message(StateAnswer, self._answered)
        dispatch.on_message(Recorded, self._answered)
        dispatch.on_timer(RoundsDue, self.due)
        dispatch.on_timer(RivalDue, self.rival_due)

    # ---- asking and noting

    def _others(self, round_: Round) -> list[Contact]:
        """Return the peers that a round has still to hear from, without suspected ones.

        A query covers the k closest others, because this peer may be new. Joining peers are new as well, and may have
        taken the places of peers that know, so those are asked too.
        """
        if round_.note is not None:
            return self.replica_set.recorders(round_.topic)
        in_doubt = self.doubtful_until(round_) > self.host.now()
        return self.replica_set.informants(round_.topic, round_.joining, in_doubt=in_doubt)

    def ask(self, topic: bytes, then: Callable[[Round], None], *, anew: bool = False) -> None:
        """Ask the replicas what they know of a topic; `then` gets their answers.

        `anew`: earlier answers do not count.
        """
        self._begin(topic, None, then, anew=anew)

    def note(
        self, descriptor: Descriptor, term: Term, then: Callable[[Round], None], between: Iterable[Contact] = ()
    ) -> None:
        """Have the replicas record this; `then` is called when most have, or when one of them knows better.

        Peers `between` this one and a root that it may not reach record it too, and tell that root.
        """
        self.known.enter(descriptor.topic, term)
        self._tell_between(descriptor, term, between)
        self._begin(descriptor.topic, (descriptor, term), then)

    def awaited(self, topic: bytes) -> list[Contact]:
        """Return the peers that were asked about a topic, or to record something, and have not answered."""
        rounds = [round_ for about, round_ in self._rounds.items() if about[0] == topic]
        asked = {contact: round_ for round_ in rounds for contact in self._others(round_)}
        return [contact for contact, round_ in asked.items() if contact.node_id not in round_.answers]

    def _begin(
        self, topic: bytes, note: tuple[Descriptor, Term] | None, then: Callable[[Round], None], *, anew: bool = False
    ) -> None:
        key = (topic, note is not None)
        round_ = self._rounds.get(key)
        if round_ is None or round_.note != note or anew:
            waiting = round_.then if round_ is not None else []
            self.number += 1
            after = self.number if anew else 0
            round_ = self._rounds[key] = Round(topic, note, self.host.now(), after)
            round_.then += waiting
            if not self._new:
                self.host.set_timer(RoundsDue(again=False), 0.0)
            self._new.append(round_)
        round_.then.append(then)
        self._look(round_)

    def _look(self, round_: Round) -> None:
        """End this round if it is settled."""
        key = (round_.topic, round_.note is not None)
        if self._rounds.get(key) is not round_ or not self._settled(round_):
            return
        del self._rounds[key]
        for then in round_.then:
            then(round_)

    def _settled(self, round_: Round) -> bool:
        """Whether all live peers answered, or most of k after time for the others, or one knows better."""
        note = round_.note
        if note is not None and any(_better(entry, *note) for entry in round_.answers.values()):
            return True
        asked = self._others(round_)
        others = [contact for contact in asked if contact.node_id not in round_.joining]
        answered = sum(contact.node_id in round_.answers for contact in others)
        if answered == len(others):
            return True
        if note is not None:
            return 1 + answered >= self.replica_set.majority
        answered = sum(
            contact.node_id in round_.answers for contact in others if contact in asked[: self.replica_set.count]
        )
        return self.host.now() - round_.began_at >= self.config.ask_patience_s and answered >= self.replica_set.majority

    def doubtful_until(self, round_: Round) -> float:
        """Return until when a topic that is new here and to all peers asked may have been in use."""
        here = self.replica_set.doubt(round_.topic, self.host.me, round_.answers).until
        answered = round_.answers.keys() - round_.joining.keys()
        told = (doubt.until for doubt in round_.doubts if not self.replica_set.is_dispelled(doubt, answered))
        return max(here, max(told, default=0.0))

    def has_suspected(self, round_: Round) -> bool:
        """Whether any peers that would know are suspected, and so were not asked."""
        return self.replica_set.has_suspected(round_.topic, round_.answers)

    def has_answers_of_all(self, round_: Round) -> bool:
        """Whether all peers answered that would know of a later term."""
        return self.replica_set.are_all(round_.topic, round_.answers)

    def due(self, timer: RoundsDue) -> None:
        """Send the pending queries, batched per peer."""
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
            send_entries(
                self.host, contact, [round_.note for round_ in its if round_.note is not None], self.known.rivals
            )
            for topics in pages([round_.topic for round_ in its if round_.note is None]):
                self.host.send(contact, StateQuery(topics, self.number))

    def leaf_set_changed(self) -> None:
        """Other peers may keep a topic's state now: look at all rounds."""
        self.comparing.leaf_set_changed()
        rounds = list(self._rounds.values())
        for round_ in rounds:
            self._look(round_)
        self._send(rounds)
        self._ask_returned()

    def took_for_new(self, topic: bytes) -> None:
        """This peer is root of a topic that seemed new. Absent peers may know better: ask them, now and later."""
        if absent := self.replica_set.absent(topic):
            self._absent = self._absent or {}
            self._absent[topic] = absent
            self._ask_absent([topic])

    def _ask_returned(self) -> None:
        self._absent = {topic: absent for topic, absent in self._absent.items() if self._is_root(topic)}
        if self._absent:
            self._ask_absent(self._absent)

    def _ask_absent(self, among: Iterable[bytes]) -> None:
        """Ask those of them in the leaf set: they are back, or were only suspected."""
        for contact in self.overlay.leaf_set:
            topics = [topic for topic in among if contact.node_id in self._absent[topic]]
            for page in pages(topics):
                self.host.send(contact, StateQuery(page))

    def _is_root(self, topic: bytes) -> bool:
        tree = self.trees.get(topic)
        return tree is not None and tree.root is not None

    # ---- questions and answers

    def _asked(self, sender: Contact, message: StateQuery) -> None:
        """Answer a peer that may be root soon."""
        entries = [self._known_to(sender, interned(topic)) for topic in message.topics]
        self.host.send(sender, StateAnswer(entries, not self.overlay.active, message.number))

    def _known_to(self, asker: Contact, topic: bytes) -> TopicEntry:
        """Return what this peer knows of a topic; if nothing, for how long lost peers may have known it."""
        has_closer = self.replica_set.has_closer(topic, asker.node_id)
        entry = msgspec.structs.replace(self.known.entry(topic), has_closer=has_closer)
        if entry.term != NO_TERM:
            return entry
        until, lost = self.replica_set.doubt(topic, asker.node_id)
        return msgspec.structs.replace(entry, doubtful_s=max(0.0, until - self.host.now()), lost=lost[:LOST_TOLD_MAX])

    def _keep(self, sender: Contact, message: RecordState) -> None:
        """Record these, as one of the peers closest to their topics; answer what this peer knows better."""
        kept: list[tuple[bytes, Term, bytes]] = []
        better: list[TopicEntry] = []
        for descriptor, term in message.entries:
            topic = interned(descriptor.topic)
            if self.known.misplaced(descriptor):
                better.append(self.known.placed(descriptor))
                continue
            if self.known.crowded(topic):
                continue
            self.known.learn(descriptor, joining=not self.overlay.active)
            self._heard_of(sender, topic, term)
            mine = self.known.entry(topic)
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
        """Handle a replica's answer."""
        rounds: list[Round] = []
        if isinstance(message, Recorded):
            self.comparing.kept(sender, [(topic, term) for topic, term, _ in message.topics])
            for topic, term, digest in message.topics:
                round_ = self._rounds.get((topic, True))
                if round_ is not None and round_.note is not None:
                    descriptor = round_.note[0]
                    if (term, digest) == (round_.note[1], descriptor.digest):
                        round_.answers[sender.node_id] = TopicEntry(topic, descriptor, term)
                        rounds.append(round_)
        else:
            self.comparing.kept(sender, [(entry.topic, entry.term) for entry in message.entries])
            rounds = self._answered_state(sender, message)
        for round_ in rounds:
            self._look(round_)
        if isinstance(message, StateAnswer) and (message.joining or any(entry.doubtful_s for entry in message.entries)):
            self._send(rounds)

    def _answered_state(self, sender: Contact, message: StateAnswer) -> list[Round]:
        """Learn what another peer knows of topics. Return the rounds that this answers."""
        rounds: list[Round] = []
        for entry in message.entries:
            if entry.descriptor is not None and entry.topic in self.trees:
                self.known.learn(entry.descriptor)  # its terms may be of a session that was unknown here
                if entry.rival is not None:
                    self.known.learn(entry.rival)
            self._absent.get(entry.topic, {}).pop(sender.node_id, None)
            is_own = entry.topic in self.known.terms and entry.term.is_of(sender.node_id)
            if is_own or self._has_rival(entry.topic, entry.term):
                self._heard_of(sender, entry.topic, entry.term)
            for noting in (False, True):
                round_ = self._rounds.get((entry.topic, noting))
                if round_ is not None and round_.is_answered(entry, message.number):
                    round_.answers[sender.node_id] = entry
                    if message.joining:
                        round_.joining[sender.node_id] = None
                    if entry.has_closer:
                        round_.between[sender] = None
                    if entry.doubtful_s:
                        until = self.host.now() + min(entry.doubtful_s, self.config.lease_s)
                        round_.doubts.append(TopicDoubt(until, entry.lost))
                    rounds.append(round_)
        return rounds

    # ---- rivals that do not reach each other

    def _has_rival(self, topic: bytes, term: Term) -> bool:
        """Whether this peer is root under an earlier term."""
        tree = self.trees.get(topic)
        return tree is not None and tree.root is not None and term > tree.root.term

    def _heard_of(self, sender: Contact, topic: bytes, term: Term) -> None:
        """Another peer knows of this term: its own as a root, or another peer's."""
        self._tell_former(sender, topic, term)
        if term.node[:8] != sender.node_id[:8]:
            if self._has_rival(topic, term) or (topic, True) in self._rounds:
                self._between.setdefault(topic, {})[sender] = None
            self.heard_of_rival(topic, term)
            return
        self.known.enter(topic, term)
        if topic in self._between:  # of a root that followed this one
            self._tell_between(self.known.descriptors[topic], term)
        tree = self.trees.get(topic)
        if tree is not None:
            self.terms.heard_of(tree, term)
            if self.host.contact not in self.replica_set.of(topic):  # the tree's root compares nothing with this peer
                self.terms.schedule.touch(tree)

    def _tell_between(self, descriptor: Descriptor, term: Term, others: Iterable[Contact] = ()) -> None:
        """Have peers that may reach a rival record this term, and tell the rival of it."""
        for contact in self._between.pop(descriptor.topic, {}) | dict.fromkeys(others):
            send_entries(self.host, contact, [(descriptor, term)], self.known.rivals)

    def _tell_former(self, sender: Contact, topic: bytes, term: Term) -> None:
        """Tell the root of the latest term known here of a rival's term, if it compares nothing with this peer."""
        former = self.known.terms.get(topic, NO_TERM)
        if not NO_TERM < former < term or former.shares_root(term):
            return
        replicas = self.replica_set.of(topic)
        for contact in self.overlay.leaf_set:
            if former.is_of(contact.node_id) and contact != sender and contact not in replicas:
                send_entries(self.host, contact, [(self.known.descriptors[topic], term)], self.known.rivals)

    def heard_of_rival(self, topic: bytes, term: Term) -> None:
        """A peer other than its root knows of this term. A root under an earlier term begins a later one.

        While two roots reach the same replicas but not each other, each outbids the other. Unless the rival itself
        reports its term, a root keeps its own for half a lease, so that few terms come to be known, and none outlives
        the lease that holds its stability back. Until then it declares nothing stable.
        """
        self.known.enter(topic, term)
        tree = self.trees.get(topic)
        if tree is None:
            return
        root, now = tree.root, self.host.now()
        if root is not None and term > root.term:
            until = root.began_at + self.config.lease_s / 2
            if now < until:
                self.host.trace(Mark("rival_known"))
                root.hold(now + self.config.lease_s)
                self.host.set_timer(RivalDue(topic), until - now)
                return
        self.terms.heard_of(tree, term)

    def rival_due(self, timer: RivalDue) -> None:
        """The root has had its term for long enough: begin a later one than the rival's."""
        tree = self.trees.get(timer.topic)
        if tree is not None:
            self.terms.heard_of(tree, self.known.terms.get(timer.topic, NO_TERM))


def _better(entry: TopicEntry, descriptor: Descriptor, term: Term) -> bool:
    """Whether this entry has a later term, a later descriptor, or another root scope."""
    known = entry.descriptor
    if known is None or known == descriptor:
        return entry.term > term
    return entry.term > term or known.supersedes(descriptor) or known.elsewhere(descriptor)
