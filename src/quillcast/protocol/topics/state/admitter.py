"""The numbering of a topic's events: publishers' events are admitted in sequence, and get positions in a stream.

For one kind of topic that is its root (`root.py`), for the other every source (`source.py`).
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

_NO_BLOCKS: list[Block] = []  # shared by all that have nothing to seal
_COUNT: Callable[[Block], int] = attrgetter("count")
Told = tuple[bytes, int, int, tuple[Range, ...]]
"""What a publisher is told: as in `Receipts.marks`."""
TURN_TIMES = 3  # a publisher that waits for a place asks again within so many receipt times, or loses its turn; a guess


class PublisherState:
    """What is known of a publisher where its events are admitted."""

    __slots__ = (
        "active", "asked_until", "closed", "contact", "expected", "gone_at", "idle_since", "reach", "runs", "stable",
    )  # fmt: skip

    def __init__(self, contact: Contact, stable: int, now: float) -> None:
        self.contact = contact
        self.expected = self.stable = stable
        self.runs: deque[tuple[int, int]] = deque()  # (one past the index, one past the sequence) of admitted runs
        self.active = True  # did it send anything since it was last looked at?
        self.idle_since = now
        self.gone_at: float | None = None  # when its peer was lost
        self.closed = False  # has it said that it publishes no more?
        self.reach = 0  # what is missing below was asked for
        self.asked_until = now  # ... and is not asked for again before

    def lose(self, now: float) -> None:
        """Its peer is out of reach."""
        self.gone_at, self.active = now, False

    def gaps(self, until: int, now: float, pause_s: float) -> Range:
        """Events came too early: within which bounds is what is missing before `until` to be asked for now?

        Each gap is asked for when it is noticed, and all that are left after a pause, if something comes then.
        """
        first, self.reach = max(self.expected, self.reach), max(self.reach, until)
        if now >= self.asked_until:
            first, self.asked_until = self.expected, now + pause_s
        return first, self.reach

    def rest(self, now: float) -> None:
        """It has sent something until now, and may send nothing more."""
        self.active, self.idle_since, self.gone_at = False, now, None


class Admitter:
    """One stream: its term, the next index, and where each publisher stands."""

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
        self.marks: dict[bytes, Sequence[Range]] = EMPTY  # publishers owed a receipt, and what they are to send again
        self.queue: dict[bytes, float] = EMPTY  # publishers without a place, in order, and when each asked last
        self.waiting: list[Block] = _NO_BLOCKS  # admitted, and not sealed yet
        self.sealing = False
        self.held_back = False  # are publishers to send nothing for now?
        self.closing = False  # is nothing more admitted?
        self.turned_away: dict[bytes, Contact] = EMPTY  # publishers that sent something meanwhile
        self.frontiers: dict[bytes, int] = EMPTY  # the root before left nothing open below; of those to come

    def adapt(self, descriptor: Descriptor) -> None:
        """Go by this descriptor from now on, unless it is for another session than this stream's."""
        if descriptor.guarantee == self.descriptor.guarantee:
            self.descriptor = descriptor

    def admit(self, sender: Contact, bundle: Bundle) -> bool:
        """Admit what a publisher sent, in sequence; it waits to be sealed. False if a publisher found no place."""
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
                admission.expected = floor  # the publisher has nothing below that any more
            if block.last <= admission.expected:
                self.host.trace(Repeated(self.topic, "root", block.count))
            elif block.first <= admission.expected:
                self._number(admission, block)
            else:
                self.early.keep(self.topic, block)
            if self.early.lines:
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
        """A block came too early: ask for what is missing before it, and for the block itself if it was not kept."""
        first, last = admission.gaps(block.last, self.host.now(), self.config.gap_s)
        if missing := self.early.missing(self.topic, block.publisher, first, last):
            self.marks[block.publisher] = (*self.marks.get(block.publisher, ()), *missing)

    def _enter(self, contact: Contact, publisher: bytes) -> PublisherState | None:
        """A publisher that this root does not know yet; None if there are too many with events that are not stable.

        Those that have waited for longer go first.
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
        """How many go first, of those that wait for a place? Who has not asked again in time waits no more."""
        now, before = self.host.now(), self.host.now() - TURN_TIMES * self.config.receipt_timeout_s
        self.queue = {each: now if each == publisher else at for each, at in self.queue.items() if at >= before}
        return list(self.queue).index(publisher) if publisher in self.queue else len(self.queue)

    @property
    def is_full(self) -> bool:
        """Is there no place for one more publisher before events of others are stable?"""
        known = self.admissions.values()
        return len(known) >= self.config.admissions_max and all(each.runs for each in known)

    def _make_places(self, wanted: int) -> None:
        """Forget those that were silent for longest and know that all is stable: coming back, they name their floor."""
        settled = [
            (known.idle_since, publisher)
            for publisher, known in self.admissions.items()
            if not known.runs and publisher not in self.marks
        ]
        settled.sort()
        for _, publisher in settled[: max(wanted, self.config.admissions_max // 8 + 1)]:
            self.forget(publisher)

    def forget(self, publisher: bytes) -> None:
        """A publisher is gone, or its place is needed."""
        self.admissions.pop(publisher, None)
        self.marks.pop(publisher, None)

    def stop(self) -> None:
        """Admit nothing more: the topic is about to be transferred, or the stream to end."""
        self.closing = True

    def hold_back(self) -> None:
        """Publishers are to send nothing for now: buffers have no more room for the topic."""
        self.held_back = True

    def close(self, publisher: bytes) -> None:
        """A publisher said that it publishes no more."""
        self.frontiers.pop(publisher, None)
        admission = self.admissions.get(publisher)
        if admission is not None:
            admission.closed = True
            if not admission.runs:
                self.forget(publisher)

    @property
    def sealed(self) -> int:
        """What lies below this index is on its way down."""
        return self.index - sum(map(_COUNT, self.waiting))

    def begin_sealing(self) -> None:
        """Something was admitted, and is to be sealed with what else comes in this turn."""
        self.sealing = True

    def seal(self) -> list[Bundle]:
        """What was admitted since the last call, as few bundles under this term."""
        self.sealing = False
        waiting = self.waiting
        if len(waiting) == 1:  # as nearly always: one publisher's
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
        """All live leases have acknowledged the stream below `index`: publishers are owed that word."""
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
        """Up to where leases have to acknowledge for a publisher's events before `sequence` to be stable.

        Of those that are not admitted: for anything more than now to be stable.
        """
        admission = self.admissions.get(publisher)
        if admission is not None and sequence <= admission.stable:
            return self.stable
        places = [index for index, last in admission.runs if last >= sequence] if admission is not None else []
        return places[0] if places else min(self.stable + 1, self.index)

    def turn_away(self, sender: Contact, bundle: Bundle) -> None:
        """Admit nothing of what a publisher sent: it will send it again, to the next root or here (`reopen`)."""
        self.host.trace(Dropped(self.topic, bundle.count, "not_root"))
        self.turned_away = self.turned_away | {block.publisher: sender for block in bundle.blocks}

    def reopen(self) -> None:
        """The topic stays here: publishers that were turned away are to send again."""
        self.closing = False
        self.marks = self.marks or {}
        for publisher, contact in self.turned_away.items():
            admission = self.admissions.get(publisher) or self._enter(contact, publisher)
            if admission is not None:
                self.marks[publisher] = self.early.missing(self.topic, publisher, admission.expected, NUMBER_MAX)
        self.turned_away = EMPTY

    def go_on(self) -> None:
        """Publishers that were held back may send again: all are owed a receipt that says so."""
        self.held_back = False
        self.marks = dict.fromkeys(self.admissions, ()) | self.marks

    def _acknowledged(self, admission: PublisherState) -> int:
        """Up to where a publisher's events are acknowledged as admitted."""
        return admission.expected

    def receipts(self) -> dict[Contact, list[Told]]:
        """What publishers are owed, gathered per peer."""
        marks, self.marks = self.marks, EMPTY
        owed: dict[Contact, list[Told]] = {}
        for publisher, missing in marks.items():
            admission = self.admissions[publisher]
            lacks = tuple([each for each in missing if each[1] > admission.expected][:LACKS_MAX]) if missing else ()
            told = publisher, self._acknowledged(admission), admission.stable, lacks
            owed.setdefault(admission.contact, []).append(told)
        return owed

    def requests(self) -> dict[Contact, list[Told]]:
        """The same for those that are to send something again only. They are still owed a receipt, without that."""
        marks, lacking = self.marks, {publisher: missing for publisher, missing in self.marks.items() if missing}
        self.marks = lacking
        owed = self.receipts()
        self.marks = {**marks, **dict.fromkeys(lacking, ())} if lacking else marks
        return owed

    def check(self) -> None:
        """Raise AssertionError unless positions and publishers' marks agree."""
        assert self.stable <= self.sealed
        assert len(self.admissions) <= self.config.admissions_max
        for admission in self.admissions.values():
            assert admission.stable <= admission.expected
            assert all(index <= self.index for index, _ in admission.runs)
