"""The rendezvous point's own state: admits publishers' events in sequence, gives positions, says what is stable."""

from collections import deque

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import DOWN, Envelope, Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Admitted, Dropped, Repeated
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor


class Admission:
    """A publisher as its topic's root knows it under the present term."""

    __slots__ = ("contact", "expected", "runs", "stable")

    def __init__(self, contact: Contact, expected: int) -> None:
        self.contact = contact
        self.expected = expected
        self.stable = expected  # a floor is the publisher's own word on what is stable
        self.runs: deque[tuple[int, int]] = deque()  # (one past the index, one past the sequence) of admitted runs


class Root:
    """One reign: a term, the next index, and where each publisher stands."""

    def __init__(self, host: Host, config: TopicConfig, descriptor: Descriptor, term: Term, hold_until: float) -> None:
        self.host, self.config, self.term = host, config, term
        self.topic = descriptor.topic
        self.adapt(descriptor)
        self.hold_until = hold_until
        self.index = 0
        self.sealed = 0  # what lies below this index is on its way down
        self.stable = 0
        self.admissions: dict[bytes, Admission] = {}
        self.marks: dict[bytes, bool] = {}  # publishers owed a receipt; True asks them to go back
        self.waiting: list[Block] = []
        self.sealing = False
        self.closing = False  # the topic is about to be handed over: nothing more is admitted
        self.turned_away: dict[bytes, Contact] = {}  # publishers that sent something meanwhile
        self.frontiers: dict[bytes, int] = {}  # what the root before knew to be stable, of publishers not heard of yet
        self.awaited: dict[bytes, None] = {}  # who is waited for after a hand-over; each speaks for all below it
        self.awaited_until = 0.0  # ... but for those that the root before waited for itself
        self.noted = descriptor  # what most of those who keep the topic's state hold
        self.holders = 1  # ... and how many they are, this one among them

    def adapt(self, descriptor: Descriptor) -> None:
        """Go by this descriptor from now on."""
        self.descriptor, self.reliable = descriptor, descriptor.settings.reliable

    def admit(self, sender: Contact, bundle: Bundle) -> None:
        """Admit what a publisher sent, in sequence; it waits to be sealed."""
        for block in bundle.blocks:
            floor = bundle.envelope.first
            if self.frontiers:
                floor = max(floor, self.frontiers.pop(block.publisher, 0))
            admission = self.admissions.get(block.publisher)
            if admission is None or (not admission.runs and admission.expected < floor):
                admission = self.admissions[block.publisher] = Admission(sender, floor)
            admission.contact = sender
            if not self.reliable:
                admission.expected = max(admission.expected, block.first)
            self.marks.setdefault(block.publisher, False)
            if block.last <= admission.expected:
                self.host.trace(Repeated(self.topic, "root", block.count))
            elif block.first > admission.expected:
                self.marks[block.publisher] = True
            else:
                index, self.index = self.index, self.index + block.count
                admission.expected = block.last
                admission.runs.append((self.index, block.last))
                self.waiting.append(block)
                self.host.trace(Admitted(self.topic, block.publisher, block.first, block.count, self.term, index))

    def seal(self) -> list[Bundle]:
        """What was admitted since the last call, as few bundles under this term."""
        self.sealing = False
        bundles: list[Bundle] = []
        blocks: list[Block] = []
        size, first, self.sealed = 0, self.sealed, self.index
        for block in self.waiting:
            if blocks and size + block.size > self.config.bundle_bytes:
                bundles.append(Bundle(Envelope(self.topic, DOWN, self.term, first), tuple(blocks)))
                first, blocks, size = bundles[-1].last, [], 0
            blocks.append(block)
            size += block.size
        if blocks:
            bundles.append(Bundle(Envelope(self.topic, DOWN, self.term, first), tuple(blocks)))
        self.waiting = []
        return bundles

    def covered(self, index: int, now: float) -> bool:
        """All live leases cover the term below `index`. True if the stable position moved."""
        if now < self.hold_until or index <= self.stable:
            return False
        self.stable = index
        for publisher, admission in self.admissions.items():
            moved = False
            while admission.runs and admission.runs[0][0] <= index:
                admission.stable = admission.runs.popleft()[1]
                moved = True
            if moved:
                self.marks.setdefault(publisher, False)
        return True

    def turn_away(self, sender: Contact, bundle: Bundle) -> None:
        """Admit nothing of what a publisher sent: it will send it again, to the next root or here (`reopen`)."""
        self.host.trace(Dropped(self.topic, bundle.count, "not_root"))
        self.turned_away |= {block.publisher: sender for block in bundle.blocks}

    def reopen(self) -> None:
        """The topic stays here: whoever was turned away is to send again."""
        self.closing = False
        for publisher, contact in self.turned_away.items():
            if publisher not in self.admissions:
                self.admissions[publisher] = Admission(contact, self.frontiers.pop(publisher, 0))
            self.marks[publisher] = True
        self.turned_away.clear()

    def stable_frontiers(self) -> dict[bytes, int]:
        """Per publisher, one past the last event that all leases are known to cover."""
        return self.frontiers | {publisher: admission.stable for publisher, admission in self.admissions.items()}

    def receipts(self) -> dict[Contact, list[tuple[bytes, int, int, bool]]]:
        """What publishers are owed, gathered per peer."""
        owed: dict[Contact, list[tuple[bytes, int, int, bool]]] = {}
        for publisher, again in self.marks.items():
            admission = self.admissions[publisher]
            owed.setdefault(admission.contact, []).append((publisher, admission.expected, admission.stable, again))
        self.marks.clear()
        return owed

    def check(self) -> None:
        """Raise AssertionError unless positions and publishers' marks agree."""
        assert self.stable <= self.index
        assert self.sealed + sum(block.count for block in self.waiting) == self.index
        for admission in self.admissions.values():
            assert admission.stable <= admission.expected
            assert all(index <= self.index for index, _ in admission.runs)
