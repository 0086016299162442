"""The subscriber's edge: order per publisher, and the last check for repeats (docs/delivery.md, *Ids*).

The positions of each term are taken in order and without gaps. Across terms an event may arrive twice, because a new
root readmits what was not known to be stable. The publisher's sequence detects such repeats.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, Position, Term, new_tuple
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.loss import Loss
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection
from quillcast.core.trace import Delivered, Mark, Repeated
from quillcast.protocol.forwarding.channels import Sink
from quillcast.protocol.forwarding.cursors import (
    DELIVERED_RANGES_MAX,
    BestEffortCursor,
    EarlierTermCursor,
    PublisherCursor,
    TermCursor,
    Waiting,
)
from quillcast.protocol.forwarding.doubts import Doubts
from quillcast.protocol.forwarding.ledger import Gone, Run, RunsByTerm, runs_of, sequences_of, within
from quillcast.protocol.forwarding.loss_reports import LossReports
from quillcast.protocol.forwarding.subscriber import Subscriber

SILENT_MAX = 1024  # silent publishers that an edge remembers; a guess: 200 kB


class Readmits(IntEnum):
    """May an event that a subscription is owed come again under another term?"""

    NO = 0
    BY_SETTINGS = 1
    """As long as the topic's settings stay as they are."""
    FOR_GOOD = 2
    """It is owed events of terms that readmit, whatever the settings are now."""
    STREAMS_TOO = 3
    """... and a root numbers events again that their sources had numbered."""


class Edge(Sink):
    """The sink of a channel to one local subscriber. Most of its state is created by the first event."""

    __slots__ = (
        "doubts",
        "holes",
        "host",
        "latest",
        "losses",
        "number",
        "older",
        "ordered",
        "over",
        "owed_in_part",
        "publishers",
        "readmits",
        "since",
        "subscriber",
        "topic",
    )  # fmt: skip

    owed = True
    begins_now = False
    """Is it owed of a source's stream only what came after it began, and not what its peer finds there?"""

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, *, ordered: bool, number: int = 0) -> None:
        """`number` distinguishes the subscriptions of one peer in trace records."""
        self.number = number
        self.host, self.topic, self.subscriber, self.ordered = host, topic, subscriber, ordered
        self.readmits = Readmits.BY_SETTINGS  # does a new term readmit what is not stable? Not in a best-effort topic
        self.since: Term | None = None  # the term in which the subscription began
        self.owed_in_part = NO_TERM  # the latest term up to that one of which it is owed the last part only
        self.latest: TermCursor | None = None  # of the term that began last
        self.older: dict[Term, TermCursor] = EMPTY  # of the terms before, the oldest first
        self.over: dict[Term, int] = EMPTY  # streams that ended before where this began in them, and where that was
        self.publishers: dict[bytes, PublisherCursor] = EMPTY
        self.holes: dict[bytes, float] = EMPTY  # publishers with a hole, and since when
        self.doubts: Doubts | None = None  # lost positions whose events are unknown
        self.losses: LossReports | None = None  # losses that the subscriber has not been told of yet

    def _is_only(self, term: Term) -> bool:
        """Is what a publisher has in a term in no other, and nothing missing in it? Its source numbers it."""
        return self.ordered and (not self.readmits or (term.of_source and self.readmits < Readmits.STREAMS_TOO))

    def room(self) -> int:
        return self.subscriber.room()

    def waiting(self, term: Term) -> Iterable[Bundle]:
        term_cursor = self.term_cursor(term)
        return term_cursor.waiting.values() if term_cursor is not None else ()

    def gaps_before(self, term: Term, last: int) -> list[Range]:
        term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return []
        here = RangeSet((first, bundle.last) for first, bundle in term_cursor.waiting.items())
        return here.missing(term_cursor.next, last)

    def begin(self, term: Term, start: int, *, owed: bool = True, went_on: bool = False) -> None:
        """Take a term from this index on. Any new term may fill holes.

        `went_on`: by its number it is an earlier one, and yet it was not over when this subscription began.
        """
        if self.since is None:
            self.since = term
        if self.term_cursor(term) is None:
            start = max(start, self.over.get(term, 0))
            if start > 0 and term <= self.since:
                self.owed_in_part = max(self.owed_in_part, term)
            if self.latest is not None:
                self.older = self.older or {}
                self.older[self.latest.term] = self.latest
            earlier = term < self.since and not went_on
            kind = EarlierTermCursor if earlier else TermCursor if owed else BestEffortCursor
            self.latest = (BestEffortCursor if term.best_effort else kind)(term, start, start=start)
            for publisher in self.holes:
                self.holes[publisher] = self.host.now()

    def term_cursor(self, term: Term) -> TermCursor | None:
        """The cursor of a term, if this subscription takes part in it."""
        if self.latest is not None and self.latest.term == term:
            return self.latest
        return self.older.get(term)

    def term_cursors(self) -> list[TermCursor]:
        """The cursors of all terms, the oldest first."""
        return [*self.older.values(), self.latest] if self.latest is not None else []

    def owe(self, term: Term, end: int, stable: int) -> None:
        """An earlier term is known up to `end`. Its events are owed, or to a newer subscription those beyond `end`.

        The term may continue beyond a partition, or its end may not be known here yet.
        """
        if self.since is not None:
            self.begin(term, 0 if self.since < term else end)
            self.settle(term, stable)

    def settle(self, term: Term, stable: int) -> None:
        term_cursor = self.term_cursor(term)
        if isinstance(term_cursor, EarlierTermCursor):
            term_cursor.stable = max(term_cursor.stable, stable)

    def went_on(self, term: Term) -> None:
        """An earlier term had more events when this began, and was not over: all that is not known to be older is owed.

        Not even what its publisher may have sent again before: it may have discarded that.
        """
        known = self.term_cursor(term)
        if not isinstance(known, EarlierTermCursor):
            return
        cursor = TermCursor(term, known.next, known.given_up, known.waiting, known.start, known.old)
        if self.latest is known:
            self.latest = cursor
        else:
            self.older[term] = cursor

    def may_be_owed(self, term: Term) -> bool:
        return self.since is not None and term < self.since and self.term_cursor(term) is None

    def lacking(self, term: Term, seen: RangeSet, end: int) -> list[Range]:
        term_cursor = self.term_cursor(term)
        if term_cursor is None or not (self.readmits and term_cursor.owed):
            return []
        return [r for gap in seen.missing(term_cursor.next, end) for r in term_cursor.given_up.missing(*gap)]

    def pass_had(self, term: Term, seen: RangeSet, end: int, runs: Iterable[Run]) -> bool:
        gone = within(runs, self.lacking(term, seen, end))
        had = [
            (run.at + first - run.first, run.at + last - run.first)
            for run in gone
            for first, last in self._had(run.publisher, run.first, run.first + run.events)
        ]
        if had:
            self.skip(term, had, "unavailable", gone)
        return bool(had)

    def _had(self, publisher: bytes, first: int, last: int) -> list[Range]:
        """The sequences of a publisher that were delivered, or reported lost by name, from its first event here on."""
        cursor = self.publishers.get(publisher)
        if cursor is None or cursor.began is None:
            return []
        if cursor.delivered is not None:
            return cursor.delivered.within(max(first, cursor.began[1]), last)
        return cursor.passed_over.missing(max(first, cursor.began[1]), min(last, cursor.next or 0))

    def end(self, term: Term, end: int) -> None:
        """A source's stream is over, as far as is known. Nothing of it is owed, unless its source comes back.

        Where gaps delay nothing, no later event tells any more what was missed before the end.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is not None and not self.ordered:
            self._drop(term, term_cursor, end)
        if term_cursor is not None and term_cursor.start > end:
            self.over = {**self.over, term: term_cursor.start}
        if self.older.pop(term, None) is None and self.latest is not None and self.latest.term == term:
            self.latest = self.older.popitem()[1] if self.older else None

    def forget(self, keep: Callable[[Term], bool]) -> None:
        """Forget the cursors of terms that nobody keeps any more."""
        for term in [term for term in self.undated if not keep(term)]:
            self.date(term)
        kept = [term_cursor for term_cursor in self.term_cursors() if keep(term_cursor.term)]
        self.latest = kept.pop() if kept else None
        self.older = {term_cursor.term: term_cursor for term_cursor in kept} or EMPTY
        self.over = {term: start for term, start in self.over.items() if keep(term)} or EMPTY
        if self.doubts is not None:
            self.doubts.keep(keep)
            self.doubts = self.doubts if self.doubts.terms else None

    def frontier(self, term: Term) -> int:
        """One past the last index of a term up to which everything was delivered: nothing is missing or held."""
        term_cursor = self.latest
        if term_cursor is None or term_cursor.term != term:
            term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return 0
        if not self.holes:
            return term_cursor.next
        held = [place.index for id_ in self.holes for _, place in self.publishers[id_].held if place.term == term]
        return min([term_cursor.next, *held])

    def take(self, bundle: Bundle) -> None:
        """Deliver a bundle that is next in its term, or keep one that is beyond a gap."""
        term = bundle.envelope.term
        term_cursor = self.latest
        if term_cursor is None or term_cursor.term != term:
            term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return
        in_order = (self.ordered and term_cursor.owed) or self.waits_in(term_cursor)  # `_waits_for_gaps`, inline
        if bundle.envelope.first < term_cursor.next and not in_order:
            self._came_late(bundle, term_cursor)
        if bundle.last <= term_cursor.next:
            return
        if bundle.envelope.first > term_cursor.next:
            if in_order:
                term_cursor.waiting = term_cursor.waiting or Waiting()
                term_cursor.waiting.add(bundle)
                return
            self._drop(term, term_cursor, bundle.envelope.first)
        self._run(bundle, term_cursor)
        if term_cursor.waiting or term_cursor.given_up is not NO_RANGES:
            self._resume(term_cursor)

    def waits_in(self, term_cursor: TermCursor) -> bool:
        """Does a gap of this term delay what follows, although the present term's do not?"""
        return False

    def _waits_for_gaps(self, term_cursor: TermCursor) -> bool:
        return (self.ordered and term_cursor.owed) or self.waits_in(term_cursor)

    def _in_order(self, term: Term) -> bool:
        """Do events of this term come in order, or did they in an earlier session?"""
        term_cursor = self.term_cursor(term)
        return self.ordered or (term_cursor is not None and self.waits_in(term_cursor))

    def _is_owed_late(self, term: Term) -> bool:
        """Is what comes of this term behind a later event of its publisher to be reported, though it is not given?"""
        term_cursor = self.term_cursor(term)
        return self.ordered or (bool(self.readmits) and term_cursor is not None and term_cursor.owed)

    def _drop(self, term: Term, term_cursor: TermCursor, before: int) -> None:
        """Report what did not arrive before an index as lost, unless reported before. Gaps delay nothing here.

        Of the first events of a stream, those are lost that came after this began: its source knows which (`date`).
        """
        if term.of_source and self.begins_now and term_cursor.start == term_cursor.next < before:
            missed = term_cursor.next, before
            self._loss_reports().undated[term] = missed, self.host.now()
            term_cursor.given_up = RangeSet([*term_cursor.given_up, missed])
            return
        lost = term_cursor.given_up.missing(term_cursor.next, before)
        term_cursor.given_up = term_cursor.given_up or RangeSet()
        for first, last in lost:
            self._doubt(Loss(term, first, last, "dropped"), term_cursor)
            term_cursor.given_up.add(first, last)
        self._forget_given_up(term_cursor)

    def date(self, term: Term, start: int = 0) -> None:
        """What came of a stream after this began stands from an index on: report what was missed of that at first."""
        if self.losses is not None and term in self.losses.undated:
            (first, last), _ = self.losses.undated.pop(term)
            if max(first, start) < last:
                self._report(Loss(term, max(first, start), last, "dropped"))

    @property
    def undated(self) -> Mapping[Term, tuple[Range, float]]:  # type: ignore[override]
        return self.losses.undated if self.losses is not None else EMPTY

    def _came_late(self, bundle: Bundle, term_cursor: TermCursor) -> None:
        """Positions that were reported lost arrived late, where gaps delay nothing. Now their events are known.

        They must not be reported by name when another term readmits them behind a later event.
        """
        for run in within(runs_of(bundle), term_cursor.given_up):
            cursor = self.publishers.get(run.publisher) or self._meet(run.publisher)
            cursor.note_delivered(run.first, run.first + run.events)

    def skip(
        self, term: Term, ranges: list[Range], why: str, runs: Iterable[Run] = (), others: RunsByTerm = EMPTY
    ) -> None:
        """Report positions that will not arrive, and continue behind them.

        `runs` tell which events were there, and `others` those of other terms. Events that a later term readmitted
        arrive with that, or are lost there. What stood in an earlier one before this began is not owed, unless an event
        before it was delivered.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return
        term_cursor.given_up = term_cursor.given_up or RangeSet()
        holes = [
            hole for first, last in ranges for hole in term_cursor.given_up.missing(max(first, term_cursor.next), last)
        ]
        term_cursor.given_up.update(ranges)
        for first, last in self._lose(term, holes, why, runs, others):
            self._doubt(Loss(term, first, last, why), term_cursor)
        self._resume(term_cursor)

    def pass_by(self, term: Term, index: int) -> bool:
        """What stood below an index of a term came before this began, and is not owed. True if it begins later now.

        If an event of it came or was reported, only those of its publisher are owed from there on.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is None or index <= term_cursor.start:
            return False
        if term_cursor.next > term_cursor.start or self.was_given(term):
            term_cursor.old = max(term_cursor.old, index)
            return False
        term_cursor.start = term_cursor.next = index
        if self.since is not None and term <= self.since:
            self.owed_in_part = max(self.owed_in_part, term)
        self._resume(term_cursor)
        return True

    def was_given(self, term: Term) -> bool:
        """Is an event of a term the last one of its publisher here? It may be a stream that was over in between."""
        return any(cursor.term == term for cursor in self.publishers.values())

    def exclude(self, bundle: Bundle) -> None:
        term_cursor = self.term_cursor(bundle.envelope.term)
        if term_cursor is None:
            return
        for run in runs_of(bundle):  # later events of the publisher do not wait for these
            cursor = self.publishers.get(run.publisher) or self._meet(run.publisher)
            cursor.lost = cursor.lost or RangeSet()
            cursor.lost.add(run.first, run.first + run.events)
            if cursor.next is not None:
                cursor.pass_lost(cursor.next)
        term_cursor.given_up = term_cursor.given_up or RangeSet()
        term_cursor.given_up.add(bundle.envelope.first, bundle.last)
        self._resume(term_cursor)

    def miss(self, gone: Iterable[Gone]) -> None:
        """The subscriber asked for the earliest events: report those that are no longer kept."""
        before = 0  # positions of terms whose events may come again
        for term, discarded, runs, again in gone:
            term_cursor = self.term_cursor(term)
            start = term_cursor.start if term_cursor is not None else NUMBER_MAX
            ranges = intersection(discarded, [(0, start)])  # beyond that it is owed
            unknown = self._lose(term, ranges, "start", runs)
            for first, last in unknown:
                self._report(Loss(term, first, last, "start"))
            if unknown and again and (self.readmits or (self.ordered and term.of_source)):
                self.doubts = self.doubts or Doubts()
                self.doubts.note_start(term, unknown[-1][1] + (0 if term.of_source else before))
            before += ranges[-1][1] if ranges and again and not term.of_source else 0
        self.tell_losses()

    def prolong_holes(self) -> None:
        """This process was paused: holes count from now on, for what fills them may wait to be read."""
        self.holes = dict.fromkeys(self.holes, self.host.now()) or EMPTY

    def give_up_holes(self, before: float, untaken: Iterable[Bundle]) -> bool:
        """Give up holes that are older than a time, because nothing will fill them. Returns whether there were any.

        Holes that are filled by what waits for room (`untaken`) are kept.
        """
        for term in [term for term, (_, since) in self.undated.items() if since < before]:
            self.date(term, self._old(term))
        old = [publisher for publisher, since in self.holes.items() if since < before]
        waiting = sequences_of(runs_of(*untaken)) if old else {}
        for publisher in old:
            self.host.trace(Mark("void_hole"))
            since = self.holes[publisher]
            self._void(publisher, self.publishers[publisher], waiting.get(publisher, NO_RANGES))
            if publisher in self.holes:  # another hole of the same age
                self.holes[publisher] = since
        return bool(old)

    def _void(self, publisher: bytes, cursor: PublisherCursor, waiting: RangeSet) -> None:
        """Report what is missing before a known event as lost, unless it was reported by its positions."""
        for first, last in difference(self._holes_before(cursor), waiting):
            if self._was_told(publisher, (first, last), Position(cursor.term or NO_TERM, NUMBER_MAX)):
                cursor.before.add(first, last)
            self._lose_before(cursor, publisher, (first, last), cursor.term or NO_TERM, "void")
        next_ = cursor.next or 0
        known = [(block.first, place) for block, place in cursor.held]
        lost = [first for first, _ in cursor.lost.within(next_, cursor.lost.end)]
        known += [(first, Position(cursor.term or NO_TERM, NUMBER_MAX)) for first in lost]
        if known and not waiting.within(next_, min(known)[0]):
            end, place = min(known)
            missing = cursor.lost.missing(next_, end)
            older = missing if self._may_be_older(cursor, place.term, missing) else []
            if older or self._was_told(publisher, (next_, end), place):
                cursor.lost = RangeSet([(next_, end), *cursor.lost])
            self._lose_events(publisher, [(next_, end)], place.term, "void")
            cursor.passed_over = RangeSet([*cursor.passed_over, *older]) or NO_RANGES

    def _may_be_older(self, cursor: PublisherCursor, term: Term, missing: Iterable[Range]) -> bool:
        """May the term in which this began have had missing events of a publisher before, as many as there was room?

        The event before them is of an earlier term, and the next one, in `term`, of a later one.
        """
        if cursor.term is None or self.since is None or not cursor.term < self.since <= term:
            return False
        return sum(last - first for first, last in missing) <= self._start(self.since)

    def void_holes(self) -> None:
        """Gaps delay nothing from the next term on: give up what they waited for."""
        for publisher in list(self.holes):
            self._void(publisher, self.publishers[publisher], NO_RANGES)

    def note_delivered(self) -> None:
        """What came so far came in order, but for what was passed over. From now on, what came is noted by sequence."""
        for cursor in self.publishers.values():
            if cursor.began is not None and cursor.next is not None:
                cursor.delivered = RangeSet(cursor.passed_over.missing(cursor.began[1], cursor.next))
                cursor.passed_over = NO_RANGES

    def note_passed_over(self) -> None:
        """From now on, events come in order. What did not come so far may still be owed."""
        for cursor in self.publishers.values():
            if cursor.delivered is not None and cursor.began is not None and cursor.next is not None:
                missing = cursor.delivered.missing(cursor.began[1], cursor.next)
                cursor.passed_over = RangeSet([*cursor.passed_over, *missing]) or NO_RANGES
                cursor.delivered = None

    def forget_publishers(self) -> None:
        """Check all publishers, and forget those that were silent since the last check, except for some.

        The checks are so far apart that a silent publisher has nothing in transit, unless it is beyond a partition.
        Therefore the last `SILENT_MAX` publishers are remembered no matter how long they are silent. Events that wait
        behind a hole or a gap arrived before, and are delivered later: until then, they may be at doubted positions.
        """
        silent = [id_ for id_, cursor in self.publishers.items() if cursor.looked_at_next == cursor.next]
        for publisher in silent[: max(0, len(silent) - SILENT_MAX)]:
            if publisher not in self.holes:
                del self.publishers[publisher]
        for cursor in self.publishers.values():
            cursor.looked_at_next = cursor.next
            cursor.awaited = cursor.awaited if cursor.awaited.end > (cursor.next or 0) else NO_RANGES
        if self.doubts is not None and not self._waits():
            self.doubts.age(self.publishers)

    def _waits(self) -> bool:
        """Does anything wait behind a hole of its publisher, or behind a gap of its term?"""
        held = any(cursor.held for cursor in self.publishers.values())
        return held or any(term_cursor.waiting for term_cursor in self.term_cursors())

    # ---- losses

    def _lose(
        self, term: Term, holes: Sequence[Range], why: str, runs: Iterable[Run], others: RunsByTerm = EMPTY
    ) -> list[Range]:
        """Positions of a term are lost: report known events by publisher, and return the other positions."""
        gone = within(runs, holes) if holes else []
        known = RangeSet((run.at, run.at + run.events) for run in gone)
        again = sequences_of(self._owed(term, others) if gone else ())
        earlier = sequences_of(self._not_owed(term, others) if gone else ())
        lost = sequences_of(gone)
        for run in gone:
            lost[run.publisher].discard(*self._older(run.publisher, term, run.at, (run.first, run.first + run.events)))
        for publisher, sequences in lost.items():
            cursor = self.publishers.get(publisher) or self._meet(publisher)
            before = cursor.began[1] if cursor.began is not None else NUMBER_MAX
            older = RangeSet(earlier[publisher].within(0, before)) if publisher in earlier else NO_RANGES
            those = RangeSet(difference(sequences, older))
            elsewhere = RangeSet(difference(again.get(publisher, NO_RANGES), cursor.passed_over))
            cursor.awaited = RangeSet([*cursor.awaited, *intersection(those, elsewhere)]) or NO_RANGES
            self._lose_events(publisher, difference(those, elsewhere), term, why)
        old = self._old(term)
        return [piece for first, last in holes for piece in known.missing(max(first, min(old, last)), last)]

    def _owed(self, lost: Term, others: RunsByTerm) -> Iterator[Run]:
        """The parts of runs of later terms that this subscription is owed: not what stood there before it began."""
        for term, runs in others.items():
            if lost.precedes(term):
                yield from within(runs, [(self._start(term), NUMBER_MAX)]) if self._start(term) else runs

    def _not_owed(self, lost: Term, others: RunsByTerm) -> Iterator[Run]:
        """The runs of the term in which this subscription began, if that is earlier, that stood there before it did.

        A place in a term before that, which may have been learned later, says nothing of which came first.
        """
        if self.since is not None and self.since < lost and self._start(self.since):
            yield from within(others.get(self.since, ()), [(0, self._start(self.since))])

    def _old(self, term: Term) -> int:
        term_cursor = self.term_cursor(term)
        return term_cursor.old if term_cursor is not None else 0

    def _start(self, term: Term) -> int:
        term_cursor = self.term_cursor(term)
        return term_cursor.start if term_cursor is not None else 0

    def _doubt(self, loss: Loss, term_cursor: TermCursor) -> None:
        """Report lost positions whose events are unknown. Those events may still arrive in a later term."""
        self._report(loss)
        if self.readmits or (self.ordered and loss.term.of_source):
            self.doubts = self.doubts or Doubts()
            start = max(term_cursor.start, term_cursor.old) if loss.term.of_source else 0
            begun = [publisher for publisher, cursor in self.publishers.items() if cursor.began is not None]
            self.doubts.note(loss.term, loss.first, loss.last, term_cursor.next, start, begun)

    def _lose_events(self, publisher: bytes, lost: list[Range], term: Term, why: str) -> None:
        """Events of a publisher are lost: report those that were not delivered, and continue behind them."""
        cursor = self.publishers.get(publisher) or self._meet(publisher)
        cursor.lost = cursor.lost or RangeSet()
        for first, last in lost:
            self._lose_before(cursor, publisher, (first, last), term, why)
            known = cursor.next if cursor.began is not None else None  # else it is one that is awaited
            ahead = cursor.lost.missing(max(first, known or 0), last)
            for hole in (*self._never_delivered(cursor, first, min(last, cursor.next or 0)), *ahead):
                self._report(Loss(term, *hole, why, publisher))
            cursor.lost.add(first, last)
            self._note_reported(cursor, first, last)
        if cursor.next is not None:
            cursor.pass_lost(cursor.next)
        if cursor.held:
            self._release(cursor)
        self._look_for_hole(publisher, cursor)

    def _lose_before(self, cursor: PublisherCursor, publisher: bytes, sequences: Range, term: Term, why: str) -> None:
        """Report the sequences before a publisher's first event here: order forbids their delivery."""
        first, last = sequences
        if term >= self.owed_in_part:
            cursor.owed_from = first if cursor.owed_from is None else min(first, cursor.owed_from)
        if cursor.began is None or first >= (last := min(last, cursor.began[1])):
            return
        cursor.before = cursor.before or RangeSet()
        for hole in cursor.before.missing(first, last):
            self._report(Loss(term, *hole, why, publisher))
        cursor.before.add(first, last)
        self._look_for_hole(publisher, cursor)

    def _precedes(self, term: Term, other: Term) -> bool:
        """Were events of a term admitted before those of another? Those of sources were, from whom a root took over."""
        return term.precedes(other, streams_first=self.readmits is Readmits.STREAMS_TOO)

    def _older(self, publisher: bytes, term: Term, at: int, sequences: Range) -> Range:
        """The part of a run at a position that is older than this subscription.

        In a source's stream, that is known (`pass_by`), and nothing is owed before the publisher's first event here. So
        it may be in an earlier term. In another one, the publisher sent whatever its root had not declared stable to
        the later roots, in order. So these events were also in a later term, before the publisher's first event here:
        at most as many as it is not owed of those terms. If its first event here is of a term that is owed whole, it
        may have been beyond a partition before.
        """
        cursor, term_cursor = self.publishers.get(publisher), self.term_cursor(term)
        first, last = sequences
        begun = cursor.began[1] if cursor is not None and cursor.began is not None else NUMBER_MAX
        is_known = begun == NUMBER_MAX or not term.of_source
        if is_known and term_cursor is not None and at < term_cursor.old:
            return first, max(first, min(last, begun, first + term_cursor.old - at))
        if cursor is None or cursor.began is None or term >= self.owed_in_part or cursor.began[0] > self.owed_in_part:
            return first, first
        if not isinstance(term_cursor, EarlierTermCursor):
            return first, first
        room = sum(later.start for later in self.term_cursors() if term < later.term <= self.owed_in_part)
        first = min(last, max(first, first + term_cursor.stable - at, cursor.began[1] - room))
        return first, max(first, min(last, cursor.began[1]))

    def _report(self, loss: Loss) -> None:
        self._loss_reports().add(loss)

    def _loss_reports(self) -> LossReports:
        self.losses = self.losses or LossReports(self.host, self.topic, self.subscriber, self.number)
        return self.losses

    def tell_losses(self) -> None:
        """Report the collected losses to the subscriber."""
        if self.losses is not None:
            self.losses.tell_all()

    def _resume(self, term_cursor: TermCursor) -> None:
        term_cursor.next = term_cursor.given_up.contiguous_from(term_cursor.next)
        while (bundle := term_cursor.waiting.take_next(term_cursor.next)) is not None:
            if bundle.last > term_cursor.next:
                self._run(bundle, term_cursor)
            term_cursor.next = term_cursor.given_up.contiguous_from(term_cursor.next)
        self._forget_given_up(term_cursor)

    def _forget_given_up(self, term_cursor: TermCursor) -> None:
        """Of what was given up before the next position, remember only the latest, and only where it may come late."""
        given_up = term_cursor.given_up
        if self._waits_for_gaps(term_cursor):
            given_up.discard(0, term_cursor.next)
            term_cursor.given_up = given_up or NO_RANGES
        while len(given_up) > DELIVERED_RANGES_MAX and given_up.starts[1] < term_cursor.next:
            given_up.join_first()

    def _run(self, bundle: Bundle, term_cursor: TermCursor) -> None:
        term, index = bundle.envelope.term, bundle.envelope.first
        for block in bundle.blocks:
            done = max(0, term_cursor.next - index)  # events of the block that came before
            if done < block.count:
                self._sequence(block, done, term, index)
            index += block.count
        term_cursor.next = bundle.last

    def _sequence(self, block: Block, done: int, term: Term, index: int) -> None:
        """Check for repeats: the events of a publisher are delivered once each, in order of sequence.

        The block begins at `index` of a term; `done` of its events came before.
        """
        cursor = self.publishers.get(block.publisher) or self._meet(block.publisher)
        expected = self._expect(cursor, block.publisher, block.first + done, term)
        if block.first > expected and self._may_come(cursor, block, Position(term, index), expected):
            self._hold(cursor, block, term, index)
            return
        cursor.term, cursor.index, began = term, index + block.count, cursor.began
        if began is not None and term != began[0] and self._precedes(term, began[0]) and self._is_owed_late(term):
            late = (block.first + done, block.last)
            begin, end = self._older(block.publisher, term, index + done, late)
            for piece in ((late[0], begin), (end, late[1])):
                self._lose_before(cursor, block.publisher, piece, term, "late" if self._in_order(term) else "overtaken")
        # A term admits in sequence: what is missing before this was reported lost.
        skip = max(expected - block.first, done)
        if skip > done:
            self._pass_over(cursor, block, done, min(skip, block.count))
        if skip >= block.count:
            return
        first = block.first + skip
        if not self.ordered:
            cursor.note_delivered(first, block.last)
        if began is None:
            cursor.begin(term, first)
        if cursor.lost.starts:
            self._deliver_pieces(cursor, block, first, term, index)
        else:
            cursor.next = block.last
            self._deliver(block, skip, block.count, term, index + skip)
        if cursor.held:
            self._release(cursor)
        if self.holes or cursor.before is not NO_RANGES:
            if not self._holes_before(cursor):
                self.holes.pop(block.publisher, None)  # any further hole begins now
            self._look_for_hole(block.publisher, cursor)

    def _deliver(self, block: Block, skip: int, stop: int, term: Term, index: int) -> None:
        if self.losses is not None and self.losses.pending:
            self.losses.tell_before(block.publisher, block.first + skip, term, index)
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
        """Mark events that an uncertain loss report may have included."""
        term, index = position
        doubts.note_came(block.publisher, term, block.first + stop, index + stop - skip)
        recovered = doubts.may_be(block.publisher, term, index, stop - skip)
        if not recovered:
            self.subscriber.deliver(block, skip, stop, position)
            return
        if self.losses is not None:
            self.losses.tell_uncertain()
        others = RangeSet(recovered).missing(0, stop - skip)
        for first, last in sorted([*recovered, *others]):
            place = Position(term, index + first)
            self.subscriber.deliver(block, skip + first, skip + last, place, (first, last) not in others)

    def _deliver_pieces(self, cursor: PublisherCursor, block: Block, first: int, term: Term, index: int) -> None:
        """Deliver a block from a sequence on, without the events that were reported lost."""
        for start, end in cursor.lost.missing(first, block.last):
            self._deliver(block, start - block.first, end - block.first, term, index + start - block.first)
        cursor.pass_lost(block.last)

    def _meet(self, publisher: bytes) -> PublisherCursor:
        """Create the cursor of a new publisher."""
        self.publishers = self.publishers or {}
        self.publishers[publisher] = cursor = PublisherCursor()
        return cursor

    def _expect(self, cursor: PublisherCursor, publisher: bytes, first: int, term: Term) -> int:
        """The sequence of a publisher that is due when the one at `first` arrives in a term.

        If its last event was of a term before the one in which the subscription began, and this event is of that term,
        then what lies between was admitted before the subscription, and is not owed. Nor is it if the last event was of
        a best-effort session. It is remembered, because another term may turn out to hold it. The first event of a
        publisher waits for those that a later term brings, or that wait in an earlier one behind a gap; what fills that
        may bring still earlier ones.
        """
        if cursor.began is None:
            due = [*cursor.awaited.starts[:1], *self._behind_gaps(publisher, term)]
            due += [cursor.next] if cursor.next is not None else []
            cursor.next = min(first, *due) if due else None
        expected = cursor.next
        if expected is None or not (self.ordered or self._in_order(term)):
            expected = max(first, expected or 0)
        elif first > expected and self._begins_anew(cursor, term):
            cursor.passed_over = RangeSet([*cursor.passed_over, *cursor.lost.missing(expected, first)])
            expected = first
        return cursor.lost.contiguous_from(expected) if cursor.lost.starts else expected

    def _behind_gaps(self, publisher: bytes, term: Term) -> Iterator[int]:
        """The lowest sequences of a publisher that wait in each of the earlier terms, and are owed (`_older`)."""
        for each in self.term_cursors():
            is_owed = term > self.owed_in_part or not isinstance(each, EarlierTermCursor)
            earlier = each.term.session < term.session or (each.term < term and not each.term.of_source)
            if is_owed and earlier and each.waiting:
                lowest = each.waiting.lowest(publisher)
                yield from () if lowest is None else (lowest,)

    def _begins_anew(self, cursor: PublisherCursor, term: Term) -> bool:
        """Is a publisher's event of a term owed, and those between its last one here and this one are not?

        Where the subscription began with the first event of that term, none of them was there before it began.
        """
        if cursor.term is None or not cursor.term.precedes(term):
            return False
        if term == self.since and self._start(term):
            return True
        return term.best_effort or isinstance(self.term_cursor(cursor.term), BestEffortCursor)

    def _may_come(self, cursor: PublisherCursor, block: Block, place: Position, expected: int) -> bool:
        """May events of a publisher, from the expected one on, that are missing before a block come in another term?

        Not if they may have been at doubted positions of this one. If they are in no other term, they were at positions
        that were reported lost, or were not if some of those were older than this subscription. A source that had
        fewer positions for them had discarded some that only a root had numbered.
        """
        (term, index), missing = place, (expected, block.first)
        if cursor.term != term:
            return True
        events = sum(last - first for first, last in cursor.lost.missing(*missing))
        if self._is_only(term):
            if self.readmits and events > index - cursor.index:
                return True
            if untold := self._untold(cursor, term, missing):
                self._lose_events(block.publisher, untold, term, "unavailable")
            return False
        if self.doubts is None or cursor.awaited.within(*missing):
            return True
        return not self.doubts.stood_in(term, (cursor.index, index), events)

    def _untold(self, cursor: PublisherCursor, term: Term, missing: Range) -> list[Range]:
        """The missing events of a publisher that may have been older than this subscription.

        No report of positions included them. They are the first ones, at most as many as there are such positions
        behind the publisher's last event.
        """
        most, untold = self._old(term) - cursor.index, list[Range]()
        for first, last in cursor.lost.missing(*missing):
            if most > 0:
                untold.append((first, min(last, first + most)))
            most -= last - first
        return untold

    def _was_told(self, publisher: bytes, missing: Range, before: Position) -> bool:
        """Were missing events of a publisher, before one at a position, reported by their positions?"""
        if self.doubts is None or self.publishers[publisher].awaited.within(*missing):
            return False
        return self.doubts.account_for(publisher, missing, before)

    def _hold(self, cursor: PublisherCursor, block: Block, term: Term, index: int) -> None:
        """Keep a block behind a hole, because the missing events may be in transit under another term.

        Where gaps delay nothing any more, they are lost: behind a later event they would not be delivered.
        """
        cursor.held.append((block, Position(term, index)))
        if self.ordered:
            self._look_for_hole(block.publisher, cursor)
        else:
            self._void(block.publisher, cursor, NO_RANGES)

    def _pass_over(self, cursor: PublisherCursor, block: Block, start: int, stop: int) -> None:
        """Drop events before the publisher's next one here: they are repeats, unless a later event overtook them."""
        first, last = block.first + start, block.first + stop
        if self.doubts is not None and cursor.term is not None:
            self.doubts.note_came(block.publisher, cursor.term, last, cursor.index - (block.last - last))
        overtaken = self._never_delivered(cursor, first, last)
        repeats = last - first - sum(end - begin for begin, end in overtaken)
        if repeats:
            self.host.trace(Repeated(self.topic, "edge", repeats))
        for begin, end in overtaken:
            why = "late" if self.ordered else "overtaken"
            self._report(Loss(cursor.term or NO_TERM, begin, end, why, block.publisher))
            self._note_reported(cursor, begin, end)

    def _note_reported(self, cursor: PublisherCursor, first: int, last: int) -> None:
        """Sequences before the next one were reported lost."""
        if cursor.passed_over:
            cursor.passed_over.discard(first, last)
        if not self.ordered:
            cursor.note_delivered(first, last)

    def _never_delivered(self, cursor: PublisherCursor, first: int, last: int) -> list[Range]:
        """Sequences before the next one that are owed, and that were neither delivered nor reported lost.

        An unordered subscriber is owed, if later terms readmit events, those from the publisher's first one on. An
        ordered one has them all, except for what seemed not to be owed and turns out to be.
        """
        if self.ordered:
            return cursor.passed_over.within(first, last)
        if cursor.delivered is None or cursor.began is None:
            return []
        return cursor.delivered.missing(max(first, cursor.began[1]) if self.readmits else first, last)

    def _release(self, cursor: PublisherCursor) -> None:
        """A hole was filled or given up: continue with what was held behind it, up to the next hole."""
        held, cursor.held = cursor.held, []
        for block, position in sorted(held, key=_sequence_of):
            self._sequence(block, 0, *position)

    def _holes_before(self, cursor: PublisherCursor) -> list[Range]:
        """The sequences between those reported lost before its first event here, and that event.

        The first of them was owed, and so were those that followed, unless they were admitted between, in the part of a
        term that is not owed. This may be if the publisher's first event here is of that term, or if those reported
        lost are of earlier terms alone.
        """
        if not cursor.before or cursor.began is None or cursor.owed_from is None:
            return []
        if cursor.began[0] == self.owed_in_part or self._is_only(cursor.began[0]):
            return []
        return cursor.before.missing(cursor.owed_from, cursor.began[1])

    def _look_for_hole(self, publisher: bytes, cursor: PublisherCursor) -> None:
        """Record whether an event of a publisher is missing before a known one (held, lost, or the first)."""
        if cursor.held or (cursor.lost and cursor.next is not None) or self._holes_before(cursor):
            self.holes = self.holes or {}
            self.holes.setdefault(publisher, self.host.now())
        else:
            self.holes.pop(publisher, None)


def _sequence_of(held: tuple[Block, Position]) -> int:
    first: int = held[0].first
    return first
