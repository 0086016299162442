"""The subscriber's edge: order per publisher, and the last check against repeats (docs/delivery.md, *Ids*).

Each term is a line of positions, taken without gaps. Across terms an event may come twice, for a new root admits again
what was not known to be stable; the publisher's sequence tells.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, Position, Term, new_tuple
from quillcast.core.errors import QuillcastError
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.loss import Loss
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference
from quillcast.core.trace import Delivered, Lost, Mark, Repeated
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.doubts import Doubts
from quillcast.protocol.forwarding.flow import Past
from quillcast.protocol.forwarding.ledger import Gone, Run, runs_of, sequences_of, within
from quillcast.protocol.forwarding.log import Log


class Subscriber(Protocol):
    """The application's side of a subscription. Upcalls must not call back into the peer."""

    def started(self, position: Position) -> None:
        """The subscription stands: every event from this position on will come."""
        ...

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        """Events `skip` to `stop` (exclusive) of a block, in order; `position` is that of event `skip`.

        `recovered`: an uncertain report may have told the subscriber that it lost them (`core.loss.Loss`).
        """
        ...

    def lost(self, loss: Loss) -> None:
        """These events will not come."""
        ...

    def failed(self, error: QuillcastError) -> None:
        """The subscription cannot stand."""
        ...

    def room(self) -> int:
        """Bytes the application's queue takes now. When it was not positive and is again, tell the peer (`drained`)."""
        ...


class TellLosses(Timer, frozen=True):
    """A turn in which a subscriber lost something is over."""

    topic: bytes
    number: int


_NO_BACKLOG: deque[Bundle] = deque()
_NO_FIRSTS: list[int] = []


SILENT_MAX = 1024  # publishers that an edge remembers though nothing comes of them; a guess: 200 kB
DELIVERED_RANGES_MAX = 64  # gaps that are remembered per publisher; a guess: terms overlap for seconds


class TermCursor:
    """One term as an edge takes it: the next index, and what came beyond a gap. `older` is the line begun before.

    `firsts` is a heap of the first indices of what waits.
    """

    __slots__ = ("firsts", "given_up", "next", "older", "term", "waiting")

    def __init__(self, term: Term, start: int, older: "TermCursor | None") -> None:
        self.term, self.next, self.older = term, start, older
        self.given_up = NO_RANGES
        self.waiting: dict[int, Bundle] = EMPTY
        self.firsts = _NO_FIRSTS


class EarlierTermCursor(TermCursor):
    """The line of a term from before the subscription. Below `stable` its root called it stable."""

    __slots__ = ("stable",)

    def __init__(self, term: Term, start: int, older: TermCursor | None) -> None:
        super().__init__(term, start, older)
        self.stable = 0


class PublisherCursor:
    """A publisher as an edge hears it."""

    __slots__ = ("before", "began", "delivered", "held", "looked_at_next", "lost", "next", "owed_from", "term")

    def __init__(self) -> None:
        self.next: int | None = None  # one past the last sequence that went out, or was told lost
        self.lost = NO_RANGES  # sequences beyond that which the subscriber was told it lost
        self.before = NO_RANGES  # sequences from before its first event here which the subscriber was told it lost
        self.owed_from: int | None = None  # the first sequence told lost of the subscription's term or a later one
        self.looked_at_next: int | None = -1  # `next`, at the last look (`forget_publishers`)
        self.term: Term | None = None  # of its last event
        self.began: tuple[Term, int] | None = None  # term and sequence of its first event here
        self.delivered: RangeSet | None = None  # sequences that went out or were told lost, where gaps hold up nothing
        self.held: list[tuple[Block, Position]] = []  # behind a hole

    def begin(self, term: Term, first: int) -> None:
        """Its first event here goes out; what the subscriber was told that it lost lies before that."""
        self.began = (term, first)
        if self.lost:
            self.before = RangeSet(self.lost.within(0, first))


class Edge(Channel):
    """The channel to one local subscriber. Most of what it keeps is made by its first event."""

    __slots__ = (
        "backlog",
        "doubts",
        "holes",
        "host",
        "latest",
        "losses",
        "number",
        "ordered",
        "publishers",
        "readmits",
        "since",
        "start",
        "subscriber",
        "topic",
    )  # fmt: skip

    def __init__(
        self, host: Host, topic: bytes, subscriber: Subscriber, cursor: int, *, ordered: bool, number: int = 0
    ) -> None:
        """`number` tells the subscriptions of one peer apart in its trace records."""
        super().__init__(cursor)
        self.number = number
        self.host, self.topic, self.subscriber, self.ordered = host, topic, subscriber, ordered
        self.readmits = True  # is what is not stable admitted again by a new term? Not in a best-effort topic
        self.since: Term | None = None  # the term in which the subscription began
        self.start = 0  # its first position there
        self.latest: TermCursor | None = None
        self.publishers: dict[bytes, PublisherCursor] = EMPTY
        self.holes: dict[bytes, float] = EMPTY  # publishers that lack one before a later known one: since
        self.backlog = _NO_BACKLOG  # of earlier terms, for want of room
        self.doubts: Doubts | None = None  # lost positions whose events are unknown
        self.losses: dict[tuple[bytes | Term, str], tuple[Loss, RangeSet]] = EMPTY  # still to be told, with the first

    def turn(self, log: Log) -> None:
        """The log turns to a new term: keep by what of the old one was not taken for want of room."""
        for serial in range(self.cursor, log.end):
            bundle = log.at(serial)
            if bundle is not None:
                if self.backlog is _NO_BACKLOG:
                    self.backlog = deque()
                self.backlog.append(bundle)
        self.cursor = log.end

    def advance(self, log: Log) -> None:
        """Take what waits, the backlog first."""
        room = self.subscriber.room
        while self.backlog and room() > 0:
            self.take(self.backlog.popleft())
        while not self.backlog and self.cursor < log.end and room() > 0:
            bundle = log.at(self.cursor)
            self.cursor += 1
            if bundle is not None:
                self.take(bundle)

    def pass_over(self, term: Term, gone: list[Bundle]) -> None:
        """What was not taken is lost, and told so at once: the buffer was full, and this subscriber behind."""
        runs = [run for bundle in gone for run in runs_of(bundle)]
        self.skip(term, [(bundle.envelope.first, bundle.last) for bundle in gone], "cut", runs)

    def discard_past(self, term: Term, gone: list[Bundle], runs: Iterable[Run], later: Iterable[Run]) -> None:
        """What waits here for room is lost; what waits for what lacks before it goes out now."""
        line = self.term_cursor(term)
        if line is None:
            return
        freed = {id(bundle): None for bundle in gone}
        lost = [(b.envelope.first, b.last) for b in self.backlog if id(b) in freed]
        if lost:
            self.backlog = deque(bundle for bundle in self.backlog if id(bundle) not in freed)
        waiting = [(first, bundle.last) for first, bundle in line.waiting.items() if id(bundle) in freed]
        if waiting:
            here = RangeSet((first, bundle.last) for first, bundle in line.waiting.items())
            lost += here.missing(line.next, max(last for _, last in waiting))
        if lost:
            self.skip(term, sorted(lost), "cut", runs, later)

    def waits_for(self, term: Term) -> bool:
        """Does anything of a past term wait here?"""
        line = self.term_cursor(term)
        return line is not None and (bool(line.waiting) or any(b.envelope.term == term for b in self.backlog))

    def begin(self, term: Term, start: int) -> None:
        """Take a term from this index on. Another term, past or present, may bring what holes are waiting for."""
        if self.since is None:
            self.since, self.start = term, start
        if self.term_cursor(term) is None:
            kind = EarlierTermCursor if term < self.since else TermCursor
            self.latest = kind(term, start, self.latest)
            for publisher in self.holes:
                self.holes[publisher] = self.host.now()

    def term_cursor(self, term: Term) -> TermCursor | None:
        """The line of a term, if this subscription has part in it."""
        line = self.latest
        while line is not None and line.term != term:
            line = line.older
        return line

    def owe(self, term: Term, end: int, stable: int) -> None:
        """An earlier term is known now up to `end`: its events are owed, or to a later subscription what lies beyond.

        That term may go on beyond a cut, or its end may not be known here yet.
        """
        if self.since is not None:
            self.begin(term, 0 if self.since < term else end)
            self.settle(term, stable)

    def settle(self, term: Term, stable: int) -> None:
        line = self.term_cursor(term)
        if isinstance(line, EarlierTermCursor):
            line.stable = max(line.stable, stable)

    def lacking(self, term: Term, past: Past) -> list[Range]:
        """What this subscriber is owed of a past term and never came."""
        line = self.term_cursor(term)
        if line is None or not self.readmits:
            return []
        return [r for gap in past.seen.missing(line.next, past.end) for r in line.given_up.missing(*gap)]

    def forget(self, keep: Callable[[Term], bool]) -> None:
        """Let the lines of terms go that nobody keeps any more."""
        line, kept, self.latest = self.latest, list[TermCursor](), None
        while line is not None:
            if keep(line.term):
                kept.append(line)
            line = line.older
        for line in reversed(kept):
            line.older, self.latest = self.latest, line
        if self.doubts is not None:
            self.doubts.keep(keep)
            self.doubts = self.doubts if self.doubts.terms else None

    def frontier(self, term: Term) -> int:
        """One past the last index of a term up to which all has gone out: nothing lacks, and nothing is held."""
        line = self.term_cursor(term)
        if line is None:
            return 0
        held = [place.index for id_ in self.holes for _, place in self.publishers[id_].held if place.term == term]
        return min([line.next, *held]) if held else line.next

    def take(self, bundle: Bundle) -> None:
        """Deliver a bundle that is next in its term's line; keep one that came beyond a gap."""
        term = bundle.envelope.term
        line = self.latest
        if line is None or line.term != term:
            line = self.term_cursor(term)
        if line is None:
            return
        if bundle.envelope.first < line.next and not self.ordered:
            self._came_late(bundle, line)
        if bundle.last <= line.next:
            return
        if bundle.envelope.first > line.next:
            if self.ordered:
                _wait(line, bundle)
                return
            self._drop(term, line, bundle.envelope.first)
        self._run(bundle, line)
        if line.waiting or line.given_up is not NO_RANGES:
            self._resume(line)

    def _drop(self, term: Term, line: TermCursor, before: int) -> None:
        """What has not come before an index is lost, where gaps hold up nothing; some may have been reported before."""
        lost = line.given_up.missing(line.next, before)
        line.given_up = line.given_up or RangeSet()
        for first, last in lost:
            self._doubt(Loss(term, first, last, "dropped"), line)
            line.given_up.add(first, last)
        if len(line.given_up) > DELIVERED_RANGES_MAX:
            line.given_up.join_closest()

    def _came_late(self, bundle: Bundle, line: TermCursor) -> None:
        """What was reported lost by its position, where gaps hold up nothing, came: now it is known whose it is.

        It is not reported again by name when another term admits it behind a later event.
        """
        for run in within(runs_of(bundle), line.given_up):
            _note_delivered(
                self.publishers.get(run.publisher) or self._meet(run.publisher), run.first, run.first + run.events
            )

    def skip(
        self, term: Term, ranges: list[Range], why: str, runs: Iterable[Run] = (), later: Iterable[Run] = ()
    ) -> None:
        """Positions that will not come: tell the subscriber, and go on behind them.

        `runs` say what stood there. What `later` terms admitted again comes with those, or is told lost there.
        """
        line = self.term_cursor(term)
        if line is None:
            return
        line.given_up = line.given_up or RangeSet()
        holes = [hole for first, last in ranges for hole in line.given_up.missing(max(first, line.next), last)]
        line.given_up.update(ranges)
        for first, last in self._lose(term, holes, why, runs, later):
            self._doubt(Loss(term, first, last, why), line)
        self._resume(line)

    def miss(self, gone: Iterable[Gone]) -> None:
        """The subscriber asked for the earliest events: tell it which of them are not kept any more."""
        for term, ranges, runs in gone:
            for first, last in self._lose(term, ranges, "start", runs, ()):
                self._report(Loss(term, first, last, "start"))
        self.tell_losses()

    def give_up_holes(self, before: float, log: Log) -> bool:
        """Give up holes that have stood since before a time: nothing will fill them. Returns whether there were any.

        But not those that are filled by what waits for the subscriber, here or in the log.
        """
        old = [publisher for publisher, since in self.holes.items() if since < before]
        waiting = sequences_of(run for bundle in self._waiting(log) for run in runs_of(bundle)) if old else {}
        for publisher in old:
            self.host.trace(Mark("void_hole"))
            since = self.holes[publisher]
            self._void(publisher, self.publishers[publisher], waiting.get(publisher, NO_RANGES))
            if publisher in self.holes:  # another one, which stood as long
                self.holes[publisher] = since
        return bool(old)

    def _waiting(self, log: Log) -> Iterator[Bundle]:
        yield from self.backlog
        yield from (bundle for serial in range(self.cursor, log.end) if (bundle := log.at(serial)) is not None)

    def _void(self, publisher: bytes, cursor: PublisherCursor, waiting: RangeSet) -> None:
        """What lacks before a known event is lost, and told so if it was not reported by its positions before."""
        for first, last in difference(self._holes_before(cursor), waiting):
            if self._was_told(cursor.term or NO_TERM, last - first):
                cursor.before.add(first, last)
            self._lose_before(cursor, publisher, (first, last), cursor.term or NO_TERM, "void")
        next_ = cursor.next or 0
        known = [(block.first, place.term) for block, place in cursor.held]
        known += [(first, cursor.term or NO_TERM) for first, _ in cursor.lost.within(next_, cursor.lost.end)]
        if known and not waiting.within(next_, min(known)[0]):
            end, term = min(known)
            if self._was_told(term, end - next_):
                cursor.lost = RangeSet([(next_, end), *cursor.lost])
            self._lose_events(publisher, [(next_, end)], term, "void")

    def forget_publishers(self) -> None:
        """One look at all publishers: those of whom nothing came since the look before are forgotten, but for some.

        The caller's looks are so far apart that a publisher that sent nothing in between has nothing under way, unless
        it is beyond a cut; that is why the last `SILENT_MAX` are remembered however long they are silent.
        """
        silent = [id_ for id_, cursor in self.publishers.items() if cursor.looked_at_next == cursor.next]
        for publisher in silent[: max(0, len(silent) - SILENT_MAX)]:
            if publisher not in self.holes:
                del self.publishers[publisher]
        for cursor in self.publishers.values():
            cursor.looked_at_next = cursor.next
        if self.doubts is not None:
            self.doubts.age(self.publishers)

    # ---- losses

    def _lose(
        self, term: Term, holes: Sequence[Range], why: str, runs: Iterable[Run], later: Iterable[Run] = ()
    ) -> list[Range]:
        """Positions of a term are lost: report those of known events by publisher, and return the others."""
        gone = within(runs, holes) if holes else []
        known, again = RangeSet((run.at, run.at + run.events) for run in gone), sequences_of(later if gone else ())
        lost = sequences_of(gone)
        for run in gone:
            lost[run.publisher].discard(*self._older(run.publisher, term, run.at, (run.first, run.first + run.events)))
        for publisher, those in lost.items():
            self._lose_events(publisher, difference(those, again.get(publisher, NO_RANGES)), term, why)
        return [piece for hole in holes for piece in known.missing(*hole)]

    def _doubt(self, loss: Loss, line: TermCursor) -> None:
        """Report lost positions whose events nobody knows. Those events may still arrive in a later term."""
        self._report(loss)
        if self.readmits:
            self.doubts = self.doubts or Doubts()
            self.doubts.note(loss.term, loss.first, loss.last, line.next)

    def _lose_events(self, publisher: bytes, lost: list[Range], term: Term, why: str) -> None:
        """Events of a publisher are lost: report what did not come, and go on behind it."""
        cursor = self.publishers.get(publisher) or self._meet(publisher)
        cursor.lost = cursor.lost or RangeSet()
        for first, last in lost:
            self._lose_before(cursor, publisher, (first, last), term, why)
            ahead = cursor.lost.missing(max(first, cursor.next or 0), last)
            for hole in (*self._never_delivered(cursor, first, min(last, cursor.next or 0)), *ahead):
                self._report(Loss(term, *hole, why, publisher))
            cursor.lost.add(first, last)
            if not self.ordered:
                _note_delivered(cursor, first, last)
        if cursor.next is not None:
            self._pass_lost(cursor, cursor.next)
        if cursor.held:
            self._release(cursor)
        self._look_for_hole(publisher, cursor)

    def _lose_before(self, cursor: PublisherCursor, publisher: bytes, sequences: Range, term: Term, why: str) -> None:
        """Of these sequences, those from before a publisher's first event here will not go out: order forbids them."""
        first, last = sequences
        if self.since is not None and term >= self.since:
            cursor.owed_from = first if cursor.owed_from is None else min(first, cursor.owed_from)
        if cursor.began is None or first >= (last := min(last, cursor.began[1])):
            return
        cursor.before = cursor.before or RangeSet()
        for hole in cursor.before.missing(first, last):
            self._report(Loss(term, *hole, why, publisher))
        cursor.before.add(first, last)
        self._look_for_hole(publisher, cursor)

    def _older(self, publisher: bytes, term: Term, at: int, sequences: Range) -> Range:
        """Of a run that begins at a position of a term from before this subscription: what is older than that.

        Whatever the term's root had not called stable its publisher sent to the roots that followed, in order. So it
        stood in a later term, too, and before the publisher's first event here.
        """
        cursor, line = self.publishers.get(publisher), self.term_cursor(term)
        first, last = sequences
        if cursor is None or cursor.began is None or not isinstance(line, EarlierTermCursor):
            return first, first
        first = min(last, max(first, first + line.stable - at))
        return first, max(first, min(last, cursor.began[1]))

    def _pass_lost(self, cursor: PublisherCursor, at: int) -> None:
        """The next event of a publisher is the one at a sequence, or the first that is not lost from there on."""
        cursor.next = cursor.lost.contiguous_from(at)
        if cursor.lost and cursor.lost.end <= cursor.next:
            cursor.lost = NO_RANGES

    def _report(self, loss: Loss) -> None:
        """Tell of a loss before what follows it goes out, at the end of this turn at the latest: so ranges merge."""
        if not self.losses:
            self.losses = {}
            self.host.set_timer(TellLosses(self.topic, self.number), 0.0)
        place = (loss.publisher, "") if loss.publisher else (loss.term, loss.why)
        _, ranges = self.losses.setdefault(place, (loss, RangeSet()))
        ranges.add(loss.first, loss.last)

    def tell_losses(self) -> None:
        """Tell the subscriber what it lost."""
        losses, self.losses = self.losses, EMPTY
        for loss, ranges in losses.values():
            self._tell(loss, ranges)

    def _tell_before(self, publisher: bytes, sequence: int, term: Term, index: int) -> None:
        """An event goes out: tell first what was lost before it, of its publisher or of its term's positions."""
        for place, (loss, ranges) in list(self.losses.items()):
            follows = sequence if loss.publisher == publisher else index if loss.term == term and loss.uncertain else 0
            if ranges.start < follows:
                del self.losses[place]
                self._tell(loss, ranges)

    def _tell_uncertain(self) -> None:
        """An event goes out that may be one of those lost: tell first what it may be one of."""
        for place, (loss, ranges) in list(self.losses.items()):
            if loss.uncertain:
                del self.losses[place]
                self._tell(loss, ranges)

    def _tell(self, loss: Loss, ranges: RangeSet) -> None:
        for first, last in ranges:
            self.host.trace(Lost(self.topic, loss.term, first, last, loss.why, self.number, loss.publisher))
            self.subscriber.lost(msgspec.structs.replace(loss, first=first, last=last))

    def _resume(self, line: TermCursor) -> None:
        line.next = line.given_up.contiguous_from(line.next)
        while line.firsts and line.firsts[0] <= line.next:
            bundle = line.waiting.pop(heappop(line.firsts))
            if bundle.last > line.next:
                self._run(bundle, line)
            line.next = line.given_up.contiguous_from(line.next)

    def _run(self, bundle: Bundle, line: TermCursor) -> None:
        term, index = bundle.envelope.term, bundle.envelope.first
        for block in bundle.blocks:
            done = max(0, line.next - index)  # events of the block that came before
            if done < block.count:
                self._sequence(block, done, term, index)
            index += block.count
        line.next = bundle.last

    def _sequence(self, block: Block, done: int, term: Term, index: int) -> None:
        """The last check: a publisher's events go out once each, in order of their sequence.

        The block begins at `index` of a term; `done` of its events came before.
        """
        cursor = self.publishers.get(block.publisher) or self._meet(block.publisher)
        expected = self._expected(cursor, block.first + done, term)
        if block.first > expected and (cursor.term != term or not self._stood_in(cursor, expected, block.first)):
            self._hold(cursor, block, term, index)
            return
        cursor.term, began = term, cursor.began
        if began is not None and term < began[0] and self.ordered:
            late = (block.first + done, block.last)
            begin, end = self._older(block.publisher, term, index + done, late)
            for piece in ((late[0], begin), (end, late[1])):
                self._lose_before(cursor, block.publisher, piece, term, "late")
        skip = max(expected - block.first, done)  # a term admits in sequence: what lacks before this was told lost
        if skip > done:
            self._pass_over(cursor, block, done, min(skip, block.count))
        if skip >= block.count:
            return
        first = block.first + skip
        if not self.ordered:
            _note_delivered(cursor, first, block.last)
        if began is None:
            cursor.begin(term, first)
        if cursor.lost:
            self._deliver_pieces(cursor, block, first, term, index)
        else:
            cursor.next = block.last
            self._deliver(block, skip, block.count, term, index + skip)
        if cursor.held:
            self._release(cursor)
        if self.holes or cursor.before is not NO_RANGES:
            if not self._holes_before(cursor):
                self.holes.pop(block.publisher, None)  # the next one, if there is any, has stood since now
            self._look_for_hole(block.publisher, cursor)

    def _deliver(self, block: Block, skip: int, stop: int, term: Term, index: int) -> None:
        if self.losses:
            self._tell_before(block.publisher, block.first + skip, term, index)
        if self.doubts is not None:
            self._deliver_doubted(self.doubts, block, skip, stop, Position(term, index))
        else:
            self.subscriber.deliver(block, skip, stop, new_tuple(Position, (term, index)))
        self.host.trace(
            Delivered(
                self.topic, block.publisher, block.first + skip, stop - skip, block.time_ns, term, index, self.number
            )
        )

    def _deliver_doubted(self, doubts: Doubts, block: Block, skip: int, stop: int, position: Position) -> None:
        """Mark those that an uncertain report may have meant."""
        term, index = position
        recovered = doubts.may_be(block.publisher, term, index, stop - skip)
        if not recovered:
            self.subscriber.deliver(block, skip, stop, position)
            return
        self._tell_uncertain()
        others = RangeSet(recovered).missing(0, stop - skip)
        for first, last in sorted([*recovered, *others]):
            place = Position(term, index + first)
            self.subscriber.deliver(block, skip + first, skip + last, place, (first, last) not in others)

    def _deliver_pieces(self, cursor: PublisherCursor, block: Block, first: int, term: Term, index: int) -> None:
        """Of a block from a sequence on, what the subscriber was not told that it lost."""
        for start, end in cursor.lost.missing(first, block.last):
            self._deliver(block, start - block.first, end - block.first, term, index + start - block.first)
        self._pass_lost(cursor, block.last)

    def _meet(self, publisher: bytes) -> PublisherCursor:
        """A publisher that was not heard here before."""
        self.publishers = self.publishers or {}
        self.publishers[publisher] = cursor = PublisherCursor()
        return cursor

    def _expected(self, cursor: PublisherCursor, first: int, term: Term) -> int:
        """Which sequence of a publisher is due when the one at `first` comes in a term.

        Where its last event was of a term before that in which the subscription began, and this one is of that term,
        what lies between was admitted before the subscription, and is not owed.
        """
        expected = cursor.next
        if expected is None or not self.ordered:
            expected = max(first, expected or 0)
        elif term == self.since and cursor.term is not None and cursor.term < term:
            expected = max(first, expected)
        return cursor.lost.contiguous_from(expected) if cursor.lost else expected

    def _stood_in(self, cursor: PublisherCursor, first: int, last: int) -> bool:
        """May events that lack between two of a publisher's in a term have stood at its doubted positions?"""
        if self.doubts is None or cursor.term is None:
            return False
        return self.doubts.stood_in(cursor.term, sum(end - begin for begin, end in cursor.lost.missing(first, last)))

    def _was_told(self, term: Term, events: int) -> bool:
        """Were so many events of a publisher, which lack before one of a term, reported by their positions?"""
        return self.doubts is not None and self.doubts.account_for(term, events)

    def _hold(self, cursor: PublisherCursor, block: Block, term: Term, index: int) -> None:
        """There is a hole before it: it waits, for what lacks may be on its way under another term."""
        cursor.held.append((block, Position(term, index)))
        self._look_for_hole(block.publisher, cursor)

    def _pass_over(self, cursor: PublisherCursor, block: Block, start: int, stop: int) -> None:
        """Events from before the publisher's next one here: repeats, but for those that a later one overtook."""
        first, last = block.first + start, block.first + stop
        overtaken = self._never_delivered(cursor, first, last)
        repeats = last - first - sum(end - begin for begin, end in overtaken)
        if repeats:
            self.host.trace(Repeated(self.topic, "edge", repeats))
        for begin, end in overtaken:
            self._report(Loss(cursor.term or NO_TERM, begin, end, "overtaken", block.publisher))
            _note_delivered(cursor, begin, end)

    def _never_delivered(self, cursor: PublisherCursor, first: int, last: int) -> list[Range]:
        """Sequences that an unordered subscriber was owed, and neither delivered nor told lost.

        Where later terms admit again it is owed them from the publisher's first one on.
        """
        if self.ordered or cursor.delivered is None or cursor.began is None:
            return []
        return cursor.delivered.missing(max(first, cursor.began[1]) if self.readmits else first, last)

    def _release(self, cursor: PublisherCursor) -> None:
        """A hole was filled or delivered up: what was held behind it goes on, or waits for the next one."""
        held, cursor.held = cursor.held, []
        for block, position in sorted(held, key=_sequence_of):
            self._sequence(block, 0, *position)

    def _holes_before(self, cursor: PublisherCursor) -> list[Range]:
        """What lies between the sequences from before its first event here that were told lost, and that event.

        The first of them was owed, and so were those that followed it. But where the publisher's first event here is of
        the term in which the subscription began, after that had admitted others, what lies just before it was admitted
        there before the subscription began, and is not owed. So may be what follows the losses of earlier terms alone.
        """
        if not cursor.before or cursor.began is None or (self.start > 0 and cursor.began[0] == self.since):
            return []
        first = cursor.before.start if self.start == 0 else cursor.owed_from
        return cursor.before.missing(first, cursor.began[1]) if first is not None else []

    def _look_for_hole(self, publisher: bytes, cursor: PublisherCursor) -> None:
        """Does an event of a publisher lack here before one that is known, as held, lost or the first that came?"""
        if cursor.held or (cursor.lost and cursor.next is not None) or self._holes_before(cursor):
            self.holes = self.holes or {}
            self.holes.setdefault(publisher, self.host.now())
        else:
            self.holes.pop(publisher, None)


def _wait(line: TermCursor, bundle: Bundle) -> None:
    """Keep a bundle until what lacks before it has come."""
    first = bundle.envelope.first
    if not line.waiting:
        line.waiting, line.firsts = {}, []
    if first not in line.waiting:
        heappush(line.firsts, first)
    line.waiting[first] = bundle


def _note_delivered(cursor: PublisherCursor, first: int, last: int) -> None:
    if cursor.delivered is None:  # until now it may have waited at gaps
        cursor.delivered = RangeSet([(cursor.began[1], cursor.next or 0)] if cursor.began is not None else [])
    cursor.delivered.add(first, last)
    if len(cursor.delivered) > DELIVERED_RANGES_MAX:  # the oldest gap is taken for no gap
        (_, gap), (end, _) = cursor.delivered.ranges()[:2]
        cursor.delivered.add(gap, end)


def _sequence_of(held: tuple[Block, Position]) -> int:
    first: int = held[0].first
    return first
