"""Neighbours on the ring compare the root state that both should keep, and send each other what differs.

There is one digest per neighbour, in `BUCKETS` parts, over the topics to which both are among the k closest. It is sent
when it is new: a topic's state or the leaf set changed, or this process has just started. It is repeated ever more
slowly until the neighbour answers with the same digest. So a quiet network compares nothing, and a peer that returns
with a known nodeId and no memory gets everything that it should keep.

A peer that is no longer among the k closest gives what it keeps to those that are, until all of them have it: if
several are new, they cannot help each other. It does so again when none of them is left, as after a partition.
"""

from collections.abc import Iterable
from hashlib import blake2b

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.forgetting import Forgetting
from quillcast.protocol.topics.known.records import TopicRecords, send_entries
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.root_messages import StateDigest

BUCKETS = 16  # with a thousand topics, some sixty are sent if one differs; a guess
ENTRIES_MAX = 2048  # sent for one digest; the next one shows what else differs
_MARK_BYTES = 7  # a Python integer of 7 bytes takes 32 bytes, one of 8 takes 48; there is one per topic
_FIRST_S, _MAX_S = 1.0, 30.0  # from one try to the next; a guess


class CompareDue(Timer, frozen=True):
    """Compare with neighbours whose digest has not agreed."""

    number: int


class Comparing:
    """This peer's digests of what it keeps, and the neighbours' answers."""

    __slots__ = (
        "_agreed", "_changed", "_digests", "_due_at", "_entered", "_given", "_number", "_strays", "_wait_s", "config",
        "forgetting", "host", "overlay", "records", "replica_set", "stopped",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, replica_set: ReplicaSet, records: TopicRecords,
        forgetting: Forgetting, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.replica_set = host, config, overlay, replica_set
        self.records, self.forgetting = records, forgetting
        self.stopped = False
        self._digests: dict[bytes, list[int]] = EMPTY  # by neighbour, one per bucket
        self._entered: dict[bytes, int] = EMPTY  # the marks of topics as they are in the digests
        self._changed: dict[bytes, None] = {}  # topics to enter (again)
        self._agreed: dict[bytes, bytes] = {}
        self._strays: dict[bytes, dict[bytes, None]] = EMPTY  # topics that others are to keep, and which of them do
        self._given: dict[bytes, tuple[int, list[Contact]]] = EMPTY  # marks of topics given to others, and to whom
        self._wait_s = _FIRST_S
        self._number = 0
        self._due_at: float | None = None
        dispatch.on_message(StateDigest, self.compared)
        dispatch.on_timer(CompareDue, self.due)

    # ---- what changes

    def changed(self, topic: bytes) -> None:
        """Note that the state of a topic changed, if it is kept here."""
        if topic in self.records.terms:
            self._changed[topic] = None
            self._soon(self.config.compare_s)

    def leaf_set_changed(self) -> None:
        """Build all digests anew, because other neighbours now keep the same topics as this peer."""
        self._digests.clear()
        self._entered.clear()
        self._changed = dict.fromkeys(self.records.terms)
        members = self.overlay.leaf_set.members
        self._agreed = {node: digest for node, digest in self._agreed.items() if node in members}
        self._soon(self.config.ask_s)

    def _soon(self, delay_s: float) -> None:
        self._wait_s = _FIRST_S
        if self._due_at is None or self.host.now() + delay_s < self._due_at:
            self._arm(delay_s)

    def _arm(self, delay_s: float) -> None:
        self._number += 1
        delay_s *= 0.75 + self.host.random.random() / 2  # neighbours that saw the same change do not ask at once
        self._due_at = self.host.now() + delay_s
        self.host.set_timer(CompareDue(self._number), delay_s)

    # ---- comparing

    def due(self, timer: CompareDue) -> None:
        """Send each neighbour its digest, if it has not agreed on it."""
        if timer.number != self._number:
            return
        self._due_at = None
        if not self.overlay.active or self.stopped:
            return
        again = False
        for contact in self._near():
            digest = self._digest(contact.node_id)
            if self._agreed.get(contact.node_id) != digest:
                self.host.send(contact, StateDigest(digest))
                again = True
        if self._pass_on() or again:
            self._arm(self._wait_s)
            self._wait_s = min(2 * self._wait_s, _MAX_S)

    def _near(self) -> list[Contact]:
        """Return the neighbours that may be among the k closest to a topic together with this peer."""
        leaf_set, reach = self.overlay.leaf_set, self.replica_set.count - 1
        near = [*leaf_set.right[:reach], *leaf_set.left[:reach]]
        return list({contact.node_id: contact for contact in near}.values())

    def compared(self, sender: Contact, theirs: StateDigest) -> None:
        """Compare a neighbour's digest: send it what may be news to it, and answer with this peer's."""
        mine = self._digest(sender.node_id)
        if mine == theirs.digest:
            self._agreed[sender.node_id] = mine
        else:
            self._tell(sender, _differing(mine, theirs.digest))
        if not theirs.answer:
            self.host.send(sender, StateDigest(mine, answer=True))

    def _tell(self, to: Contact, buckets: set[int]) -> None:
        self.host.trace(Mark("root_state_differed"))
        terms, descriptors = self.records.terms, self.records.descriptors
        in_question = [topic for topic in self._entered if _bucket(topic) in buckets]
        topics = [topic for topic in in_question if to.node_id in self._others(self.replica_set.of(topic))]
        send_entries(
            self.host, to, [(descriptors[topic], terms[topic]) for topic in topics[:ENTRIES_MAX]], self.records.rivals
        )

    # ---- what others are to keep

    def _pass_on(self) -> bool:
        """Give what this peer no longer has to keep to those that should. False if they have it."""
        self._enter_changed()
        entries: dict[Contact, list[tuple[Descriptor, Term]]] = {}
        given: list[bytes] = []
        for topic, holders in list(self._strays.items()):
            replicas = self.replica_set.of(topic)
            lacking = [contact for contact in replicas if contact.node_id not in holders]
            if not lacking:
                del self._strays[topic]
                self._given = self._given or {}
                self._given[topic] = self._entered[topic], replicas
                given.append(topic)
            for contact in lacking:
                entry = self.records.descriptors[topic], self.records.terms[topic]
                entries.setdefault(contact, []).append(entry)
        for topic in given:
            self.forgetting.note(topic)
        for contact, its in entries.items():
            send_entries(self.host, contact, its[:ENTRIES_MAX], self.records.rivals)
        return bool(entries)

    def stop(self) -> None:
        """Stop comparing, because this peer leaves."""
        self.stopped = True

    def may_forget(self, topic: bytes) -> bool:
        """Whether a topic's state is not kept here, or only others should keep it and all have its present state."""
        return topic not in self.records.terms or (topic in self._given and topic not in self._changed)

    def forget(self, topic: bytes) -> None:
        """Stop keeping a topic's state. It is in no digest, because others keep it."""
        self.records.keep_no_longer(topic)
        self._given.pop(topic, None)
        self._entered.pop(topic, None)

    def kept(self, sender: Contact, topics: Iterable[tuple[bytes, Term]]) -> None:
        """Note that another peer keeps the state of these topics, with these terms or later ones."""
        for topic, term in topics if self._strays else ():
            if topic in self._strays and term >= self.records.terms[topic]:
                self._strays[topic][sender.node_id] = None

    # ---- digests

    def _digest(self, node: bytes) -> bytes:
        """Return the digest of what this peer and that one should both keep."""
        self._enter_changed()
        parts = self._digests.get(node, ())
        return b"".join(part.to_bytes(_MARK_BYTES) for part in parts) if any(parts) else b""

    def _enter_changed(self) -> None:
        if not self._changed:
            return
        changed, self._changed = self._changed, {}
        for topic in changed:
            self._enter(topic)
        for topic in changed:
            if topic in self._given:  # others keep its present state, so it may be forgotten here again
                self.forgetting.note(topic)

    def _enter(self, topic: bytes) -> None:
        new = self._mark(topic)
        change = self._entered.get(topic, 0) ^ new
        self._entered = self._entered or {}
        self._entered[topic] = new
        replicas = self.replica_set.of(topic)
        if self.host.contact in replicas:
            self._strays.pop(topic, None)
            self._given.pop(topic, None)
        elif not self._others_keep(topic, new, replicas):
            self._given.pop(topic, None)
            if change:
                self._strays = self._strays or {}
                self._strays[topic] = {}  # what they keep is outdated
        for node in self._others(replicas):
            self._digests = self._digests or {}
            parts = self._digests.setdefault(node, [0] * BUCKETS)
            parts[_bucket(topic)] ^= change

    def _others_keep(self, topic: bytes, mark: int, replicas: list[Contact]) -> bool:
        """Whether this peer gave a topic's state to others, and one of them is left to give it to newer replicas."""
        given, holders = self._given.get(topic, (0, []))
        return given == mark and any(contact in replicas for contact in holders)

    def _others(self, replicas: list[Contact]) -> list[bytes]:
        """Return the other replicas of a topic; none if this peer is not a replica."""
        nodes = [contact.node_id for contact in replicas]
        return [node for node in nodes if node != self.host.me] if self.host.me in nodes else []

    def _mark(self, topic: bytes) -> int:
        """Return a topic's part of a digest. With two owners, descriptors are left out: peers may keep either one."""
        term = self.records.terms[topic]
        known = b"" if topic in self.records.rivals else self.records.descriptors[topic].digest
        what = topic + term.counter.to_bytes(8) + term.node + known
        return int.from_bytes(blake2b(what, digest_size=_MARK_BYTES).digest())


def _bucket(topic: bytes) -> int:
    return topic[-1] % BUCKETS


def _differing(mine: bytes, theirs: bytes) -> set[int]:
    size = BUCKETS * _MARK_BYTES
    ours, others = mine.ljust(size, b"\0"), theirs.ljust(size, b"\0")
    marks = [slice(at, at + _MARK_BYTES) for at in range(0, size, _MARK_BYTES)]
    return {number for number, mark in enumerate(marks) if ours[mark] != others[mark]}
