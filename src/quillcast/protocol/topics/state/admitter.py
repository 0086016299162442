"""Numbers a topic's events: admits publishers' events in sequence and gives them positions in a stream.

The root of a topic does this (`root.py`), or each of its sources (`source.py`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import DOWN, SERIALS, Envelope, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.ranges import Range
from quillcast.core.trace import Admitted, Dropped, Repeated
from quillcast.protocol.topics.config import LACKS_MAX, TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.state.early import EarlyBlocks

_NO_BLOCKS: list[Block] = []  # shared by all admitters with nothing to seal
_COUNT: Callable[[Block], int] = attrgetter("count")
Told = tuple[bytes, int, int, tuple[Range, ...]]
"""One publisher's entry in `Receipts.marks`."""
TURN_TIMES = 3  # receipt times within which a waiting publisher asks again, or loses its turn; a guess


class PublisherState:
    """What is known about a publisher where its events are admitted."""

    __slots__ = (
        "active", "asked_until", "closed", "contact", "expected", "gone_at", "idle_since", "reach", "runs", "stable",
    )  # fmt: skip

    def __init__(self, contact: Contact, stable: int, now: float) -> None:
        self.contact = contact
        self.expected = self.stable = stable
        self.runs: deque[tuple[int, int]] = deque()  # (one past the index, one past the sequence) of admitted runs
        self.active = True  # has it sent anything since the last housekeeping?
        self.idle_since = now
        self.gone_at: float | None = None  # when its peer was lost
        self.closed = False  # has it said that it has ended?
        self.reach = 0  # events missing below were asked for
        self.asked_until = now  # they are not asked for again before this time

    def lose(self, now: float) -> None:
        """Note that its peer is lost."""
        self.gone_at, self.active = now, False

    def gaps(self, until: int, now: float, pause_s: float) -> Range:
        """Return the bounds within which to ask for missing events now, after events up to `until` came too early.

        Each gap is asked for when it is noticed, and remaining gaps again after a pause when more events come.
        """
        first, self.reach = max(self.expected, self.reach), max(self.reach, until)
        if now >= self.asked_until:
            first, self.asked_until = self.expected, now + pause_s
        return first, self.reach

    def rest(self, now: float) -> None:
        """Note that it has been active until now."""
        self.active, self.idle_since, self.gone_at = False, now, None


class Admitter:
    """One stream: its term, the next index, and the state of each publisher."""

    __slots__ = (
        "admissions", "closing", "config", "descriptor", "early", "frontiers", "held_back", "host", "index", "marks",
        "queue", "sealing", "serial", "session", "stable", "term", "topic", "turned_away", "waiting",
    )  # fmt: skip

    def __init__(self, host: Host, config: TopicConfig, descriptor: Descriptor, term: Term, early: EarlyBlocks) -> None:
        self.host, self.config, self.term, self.early = host, config, term, early
        self.topic, self.descriptor, self.session = descriptor.topic, descriptor, descriptor.session
        self.index = 0
        self.stable = 0
        self.serial = 0  # of the next bundle
        self.admissions: dict[bytes, PublisherState] = EMPTY
        self.marks: dict[bytes, Sequence[Range]] = EMPTY  # publishers due a receipt, and what they are to send again
        self.queue: dict[bytes, float] = EMPTY  # publishers without a place, in order, and when each last asked
        self.waiting: list[Block] = _NO_BLOCKS  # admitted, and not sealed yet
        self.sealing = False
        self.held_back = False  # are publishers told to send nothing for now?
        self.closing = False  # has it stopped admitting?
        self.turned_away: dict[bytes, Contact] = EMPTY  # publishers that sent something after it stopped
        self.frontiers: dict[bytes, int] = EMPTY  # where the former root stood, of publishers not seen yet

    def adapt(self, descriptor: Descriptor) -> None:
        """Use this descriptor from now on, unless it belongs to another session than this stream."""
        if descriptor.guarantee == self.descriptor.guarantee:
            self.descriptor = descriptor

    def admit(self, sender: Contact, bundle: Bundle) -> bool:
        """Admit a bundle of publishers in sequence; it waits to be sealed.

        Publishers that are due a receipt are marked, and `Progress.send_receipts` sends it. Returns False if the topic
        has as many publishers as it may have, and one of these was not among them.
        """
        floor, placed = bundle.envelope.first, True
        self.marks, self.waiting = self.marks or {}, self.waiting or []
        for block in bundle.blocks:
            admission = self.admissions.get(block.publisher) or self._enter(sender, block.publisher)
            if admission is None:
                self.host.trace(Dropped(self.topic, block.count, "admissions_full"))
                placed = False
                continue
            admission.contact, admission.active, admission.gone_at = sender, True, None
            if admission.expected < floor:
                admission.expected = floor  # the publisher no longer has earlier events
            if block.last <= admission.expected:
                self.host.trace(Repeated(self.topic, "root", block.count))
            elif block.first <= admission.expected:
                self._number(admission, block)
            else:
                self.early.keep(self.topic, block)
            if self.early.waiting:
                for each in self.early.take(self.topic, block.publisher, admission.expected):
                    self._number(admission, each)
            if block.first > admission.expected:
                self._lack(admission, block)
            else:
                self.marks.setdefault(block.publisher, ())
        return placed

    def _number(self, admission: PublisherState, block: Block) -> None:
        index, self.index = self.index, self.index + block.count
        admission.expected = block.last
        admission.runs.append((self.index, block.last))
        self.waiting.append(block)
        self.host.trace(Admitted(self.topic, block.publisher, block.first, block.count, self.term, index))

    def _lack(self, admission: PublisherState, block: Block) -> None:
        """Ask for events missing before a block that came too early, and for the block itself unless it was kept."""
        first, last = admission.gaps(block.last, self.host.now(), self.config.gap_s)
        if missing := self.early.missing(self.topic, block.publisher, first, last):
            self.marks[block.publisher] = (*self.marks.get(block.publisher, ()), *missing)

    def _enter(self, contact: Contact, publisher: bytes) -> PublisherState | None:
        """Enter a new publisher. None if too many publishers have events that are not stable.

        Publishers that have waited longer go first.
        """
        ahead = self._wait_for_turn(publisher) if self.queue else 0
        if len(self.admissions) + ahead >= self.config.admissions_max:
            self._make_places(ahead + 1)
        if len(self.admissions) + ahead >= self.config.admissions_max:
            self.queue = self.queue or {}
            if len(self.queue) < self.config.admissions_max:
                self.queue[publisher] = self.host.now()
            return None
        if self.queue:
            self.queue.pop(publisher, None)
        admission = PublisherState(contact, self.frontiers.pop(publisher, 0), self.host.now())
        self.admissions = self.admissions or {}
        self.admissions[publisher] = admission
        return admission

    def _wait_for_turn(self, publisher: bytes) -> int:
        """Return how many waiting publishers go first. A publisher that has not asked again in time loses its turn."""
        now, before = self.host.now(), self.host.now() - TURN_TIMES * self.config.receipt_timeout_s
        self.queue = {each: now if each == publisher else at for each, at in self.queue.items() if at >= before}
        return list(self.queue).index(publisher) if publisher in self.queue else len(self.queue)

    @property
    def is_full(self) -> bool:
        """Whether there is no place for another publisher until events of others are stable."""
        known = self.admissions.values()
        return len(known) >= self.config.admissions_max and all(each.runs for each in known)

    def _make_places(self, wanted: int) -> None:
        """Forget the publishers silent longest that know that all is stable. If they return, they name their floor."""
        settled = [
            (known.idle_since, publisher)
            for publisher, known in self.admissions.items()
            if not known.runs and publisher not in self.marks
        ]
        settled.sort()
        for _, publisher in settled[: max(wanted, self.config.admissions_max // 8 + 1)]:
            self.forget(publisher)

    def forget(self, publisher: bytes) -> None:
        """Forget a publisher that is gone, or whose place is needed."""
        self.admissions.pop(publisher, None)
        self.marks.pop(publisher, None)

    def stop(self) -> None:
        """Stop admitting, because the topic is about to be transferred or the stream to end."""
        self.closing = True

    def hold_back(self) -> None:
        """Tell publishers to send nothing for now, because buffers have no more room for the topic."""
        self.held_back = True

    def close(self, publisher: bytes) -> None:
        """Note that a publisher has said that it has ended."""
        self.frontiers.pop(publisher, None)
        admission = self.admissions.get(publisher)
        if admission is not None:
            admission.closed = True
            if not admission.runs:
                self.forget(publisher)

    @property
    def sealed(self) -> int:
        """The index below which all events have been sealed."""
        return self.index - sum(map(_COUNT, self.waiting))

    def begin_sealing(self) -> None:
        """Note that something was admitted, and is to be sealed at the end of this turn."""
        self.sealing = True

    def seal(self) -> list[Bundle]:
        """Return what was admitted since the last call, in as few bundles of this term as possible."""
        self.sealing = False
        waiting = self.waiting
        if len(waiting) == 1:  # the usual case: one publisher
            self.waiting = _NO_BLOCKS
            return [self._bundle(self.index - waiting[0].count, waiting)]
        first, self.waiting = self.sealed, _NO_BLOCKS
        bundles: list[Bundle] = []
        blocks: list[Block] = []
        size = 0
        for block in waiting:
            if blocks and size + block.size > self.config.bundle_bytes:
                bundles.append(self._bundle(first, blocks))
                first, blocks, size = bundles[-1].last, [], 0
            blocks.append(block)
            size += block.size
        if blocks:
            bundles.append(self._bundle(first, blocks))
        return bundles

    def _bundle(self, first: int, blocks: list[Block]) -> Bundle:
        envelope = Envelope(self.topic, DOWN, self.term, first, self.session, serial=self.serial)
        self.serial = (self.serial + 1) % SERIALS
        return Bundle(envelope, tuple(blocks))

    def _settle(self, index: int) -> None:
        """Declare the stream stable below `index`, and mark the publishers that get a receipt about it."""
        self.stable = index
        self.marks = self.marks or {}
        for publisher, admission in self.admissions.items():
            runs, settled = admission.runs, 0
            while runs and runs[0][0] <= index:
                settled = runs.popleft()[1]
            if settled:
                admission.stable = settled
                self.marks.setdefault(publisher, ())

    def place_of(self, publisher: bytes, sequence: int) -> int:
        """Return the index that leases must acknowledge before a publisher's events before `sequence` are stable.

        For events that are not admitted: the index for anything more than now to be stable.
        """
        admission = self.admissions.get(publisher)
        if admission is not None and sequence <= admission.stable:
            return self.stable
        places = [index for index, last in admission.runs if last >= sequence] if admission is not None else []
        return places[0] if places else min(self.stable + 1, self.index)

    def turn_away(self, sender: Contact, bundle: Bundle) -> None:
        """Reject a bundle of publishers. They will send it again, to the next root or here (`reopen`)."""
        self.host.trace(Dropped(self.topic, bundle.count, "not_root"))
        self.turned_away = self.turned_away | {block.publisher: sender for block in bundle.blocks}

    def reopen(self) -> None:
        """Admit again, because the topic stays here. Rejected publishers are asked to send again."""
        self.closing = False
        self.marks = self.marks or {}
        for publisher, contact in self.turned_away.items():
            admission = self.admissions.get(publisher) or self._enter(contact, publisher)
            if admission is not None:
                self.marks[publisher] = self.early.missing(self.topic, publisher, admission.expected, NUMBER_MAX)
        self.turned_away = EMPTY

    def go_on(self) -> None:
        """Let publishers that were held back send again: all get a receipt that says so."""
        self.held_back = False
        self.marks = dict.fromkeys(self.admissions, ()) | self.marks

    def _acknowledged(self, admission: PublisherState) -> int:
        """The sequence up to which a publisher's events are acknowledged as admitted."""
        return admission.expected

    def receipts(self) -> dict[Contact, list[Told]]:
        """Take out the due receipts, gathered per peer."""
        marks, self.marks = self.marks, EMPTY
        owed: dict[Contact, list[Told]] = {}
        for publisher, missing in marks.items():
            admission = self.admissions[publisher]
            lacks = tuple([each for each in missing if each[1] > admission.expected][:LACKS_MAX]) if missing else ()
            told = publisher, self._acknowledged(admission), admission.stable, lacks
            owed.setdefault(admission.contact, []).append(told)
        return owed

    def requests(self) -> dict[Contact, list[Told]]:
        """Take out requests to send events again, gathered per peer. A receipt without the request stays due."""
        marks, lacking = self.marks, {publisher: missing for publisher, missing in self.marks.items() if missing}
        self.marks = lacking
        owed = self.receipts()
        self.marks = {**marks, **dict.fromkeys(lacking, ())} if lacking else marks
        return owed

    def check(self) -> None:
        """Raise AssertionError unless positions and publishers' states are consistent."""
        assert self.stable <= self.sealed
        assert len(self.admissions) <= self.config.admissions_max
        for admission in self.admissions.values():
            assert admission.stable <= admission.expected
            assert max(admission.runs, default=(0, 0))[0] <= self.index
