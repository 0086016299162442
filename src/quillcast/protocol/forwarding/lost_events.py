"""Which events a subscription has lost, by publisher and sequence, and which losses are reported.

A loss is reported once, and only if the event was owed and not delivered. If nobody knows which events stood at
lost positions, the positions are reported (`doubts`).
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Position, Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.loss import Loss
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.cursors import EarlierTermCursor, PublisherCursor, TermCursor
from quillcast.protocol.forwarding.doubts import Doubts
from quillcast.protocol.forwarding.ledger import Gone, Run, RunsByTerm, runs_of, sequences_of, within
from quillcast.protocol.forwarding.loss_reports import LossReports
from quillcast.protocol.forwarding.owed_terms import OwedTerms
from quillcast.protocol.forwarding.subscriber import Subscriber


class LostEvents(OwedTerms):
    """The place of a subscription in the events of each publisher, and what it missed of them."""

    __slots__ = ("doubts", "holes", "host", "losses", "number", "publishers", "subscriber", "topic")

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, *, ordered: bool, number: int = 0) -> None:
        """`number` distinguishes the subscriptions of one peer in trace records."""
        super().__init__(ordered=ordered)
        self.number = number
        self.host, self.topic, self.subscriber = host, topic, subscriber
        self.publishers: dict[bytes, PublisherCursor] = EMPTY
        self.holes: dict[bytes, float] = EMPTY  # publishers with a hole, and since when
        self.doubts: Doubts | None = None  # lost positions whose events are unknown
        self.losses: LossReports | None = None  # losses that the subscriber has not been told of yet

    @abstractmethod
    def _release(self, cursor: PublisherCursor) -> None:
        """A hole was filled or given up: continue with what was held behind it, up to the next hole."""

    # ---- losses

    def _lose(
        self, term: Term, holes: Sequence[Range], why: str, runs: Iterable[Run], others: RunsByTerm = EMPTY
    ) -> list[Range]:
        """Positions of a term are lost: report known events by publisher, and return the other positions."""
        gone = within(runs, holes) if holes else []
        known = RangeSet((run.at, run.at + run.events) for run in gone)
        again = sequences_of(self._owed(term, others) if gone else ())
        coming = sequences_of(self._coming(term, others) if gone else ())
        earlier = sequences_of(self._not_owed(term, others) if gone else ())
        lost = sequences_of(gone)
        for run in gone:
            lost[run.publisher].discard(*self._older(run.publisher, term, run.at, (run.first, run.first + run.events)))
        for publisher, sequences in lost.items():
            cursor = self.publishers.get(publisher) or self._meet(publisher)
            before = cursor.began[1] if cursor.began is not None else NUMBER_MAX
            older = RangeSet(earlier[publisher].within(0, before)) if publisher in earlier else NO_RANGES
            those = RangeSet(difference(sequences, older))
            later = difference(again.get(publisher, NO_RANGES), cursor.awaited)
            may_come = coming.get(publisher, NO_RANGES).within(0 if cursor.began is None else before, NUMBER_MAX)
            elsewhere = RangeSet(difference([*later, *may_come], cursor.passed_over))
            cursor.await_again(intersection(those, elsewhere))
            self._lose_events(publisher, difference(those, elsewhere), term, why)
        old = self._old(term)
        return [piece for first, last in holes for piece in known.missing(max(first, min(old, last)), last)]

    def _coming(self, lost: Term, others: RunsByTerm) -> Iterator[Run]:
        """What is not lost although one term lost it: it waits here, or another term will bring or lose it."""
        yield from self._here()
        for term, runs in others.items():
            yield from within(runs, self._expected(term)) if term != lost else ()

    def _here(self) -> Iterator[Run]:
        """What has arrived and waits, behind a gap of its term or a hole of its publisher."""
        for term_cursor in self.term_cursors():
            yield from runs_of(*term_cursor.waiting.values())
        for publisher, cursor in self.publishers.items():
            for block, place in cursor.held:
                yield Run(place.index, publisher, block.first, block.count)

    def _lose_events(self, publisher: bytes, lost: list[Range], term: Term, why: str) -> None:
        """Events of a publisher are lost: report those that were not delivered, and continue behind them."""
        cursor = self.publishers.get(publisher) or self._meet(publisher)
        for first, last in lost:
            self._lose_before(cursor, publisher, (first, last), term, why)
            known = cursor.next if cursor.began is not None else None  # else it is one that is awaited
            ahead = cursor.lost.missing(max(first, known or 0), last)
            for hole in (*self._never_delivered(cursor, first, min(last, cursor.next or 0)), *ahead):
                self._report(Loss(term, *hole, why, publisher))
            cursor.lose(first, last)
            self._note_reported(cursor, first, last)
        if cursor.next is not None:
            cursor.pass_lost(cursor.next)
        if cursor.held:
            self._release(cursor)
        self._look_for_hole(publisher, cursor)

    def _lose_before(self, cursor: PublisherCursor, publisher: bytes, sequences: Range, term: Term, why: str) -> None:
        """Report the sequences before a publisher's first event here: they would be delivered out of order."""
        first, last = sequences
        if term >= self.owed_in_part:
            cursor.owe_from(first)
        if cursor.began is None or first >= (last := min(last, cursor.began[1])):
            return
        for hole in cursor.before.missing(first, last):
            self._report(Loss(term, *hole, why, publisher))
        cursor.lose_before(first, last)
        self._look_for_hole(publisher, cursor)

    def _older(self, publisher: bytes, term: Term, at: int, sequences: Range) -> Range:
        """The part of a run at a position that is older than this subscription.

        In a source's stream that is known (`pass_by`), and nothing is owed before the publisher's first event here. So
        it may be in an earlier term. In another one, the publisher sent whatever its root had not declared stable to
        the later roots, in order. So these events were also in a later term, before the publisher's first event here:
        at most as many as it is not owed of those terms. If its first event here is of a term that is owed in full, it
        may have been on the other side of a partition before.
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

    def _never_delivered(self, cursor: PublisherCursor, first: int, last: int) -> list[Range]:
        """Sequences before the next one that are owed, and that were neither delivered nor reported lost.

        If later terms readmit events, an unordered subscriber is owed those from the publisher's first one on. An
        ordered one has them all, except for what seemed not to be owed and turns out to be.
        """
        if self.ordered:
            return cursor.passed_over.within(first, last)
        if cursor.delivered is None or cursor.began is None:
            return []
        return cursor.delivered.missing(max(first, cursor.began[1]) if self.readmits else first, last)

    def _note_reported(self, cursor: PublisherCursor, first: int, last: int) -> None:
        """Sequences before the next one were reported lost."""
        cursor.pass_over_no_more(first, last)
        if not self.ordered:
            cursor.note_delivered(first, last)

    def miss(self, gone: Iterable[Gone]) -> None:
        """The subscription starts with the earliest events: report those that are no longer kept."""
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

    def _doubt(self, loss: Loss, term_cursor: TermCursor) -> None:
        """Report lost positions whose events are unknown. Those events may still arrive in a later term."""
        self._report(loss)
        if self.readmits or (self.ordered and loss.term.of_source):
            self.doubts = self.doubts or Doubts()
            start = max(term_cursor.start, term_cursor.old) if loss.term.of_source else 0
            begun = [publisher for publisher, cursor in self.publishers.items() if cursor.began is not None]
            numbered = [each for each in begun if loss.term.of_source and self.publishers[each].term == loss.term]
            self.doubts.note(loss.term, loss.first, loss.last, term_cursor.next, start, begun, numbered)

    def _overtake(self, cursor: PublisherCursor, publisher: bytes, before: int, term: Term) -> None:
        """An event of a best-effort stream arrived: nothing waits for the source's earlier reliable stream.

        That one has ended here, so its losses are not reported. Sequences from `before` on may be in the later one.
        """
        former, expected = cursor.term, cursor.next
        if self.ordered or former is None or expected is None or former == term:
            return
        is_later = former.node == term.node and former.session < term.session
        if is_later and not former.best_effort and self.term_cursor(former) is None and expected < before:
            self._lose_events(publisher, cursor.lost.missing(expected, before), former, "overtaken")

    def _was_told(self, publisher: bytes, missing: Range, before: Position) -> bool:
        """Whether a publisher's missing events before one at a position were reported by their positions."""
        cursor = self.publishers[publisher]
        if self.doubts is None or cursor.awaited.within(*missing):
            return False
        return self.doubts.account_for(publisher, missing, before, cursor.term or NO_TERM)

    def date(self, term: Term, start: int = 0) -> None:
        """A stream's events from an index on are younger than this: report which of its first ones were missed."""
        missed = self.losses.take_undated(term) if self.losses is not None else None
        if missed is not None:
            first, last = missed
            if max(first, start) < last:
                self._report(Loss(term, max(first, start), last, "dropped"))

    @property
    def undated(self) -> Mapping[Term, tuple[Range, float]]:  # type: ignore[override]
        return self.losses.undated if self.losses is not None else EMPTY

    def _report(self, loss: Loss) -> None:
        self._loss_reports().add(loss)

    def _loss_reports(self) -> LossReports:
        self.losses = self.losses or LossReports(self.host, self.topic, self.subscriber, self.number)
        return self.losses

    def tell_losses(self) -> None:
        """Report the collected losses to the subscriber."""
        if self.losses is not None:
            self.losses.tell_all()

    def _meet(self, publisher: bytes) -> PublisherCursor:
        """Create the cursor of a new publisher."""
        self.publishers = self.publishers or {}
        self.publishers[publisher] = cursor = PublisherCursor()
        return cursor

    # ---- holes

    def give_up_holes(self, before: float, untaken: Iterable[Bundle]) -> bool:
        """Give up holes that are older than a time, because nothing will fill them. Returns whether there were any.

        Holes are kept that what waits for room (`untaken`) will fill.
        """
        for term in [term for term, (_, since) in self.undated.items() if since < before]:
            self.date(term, self._old(term))
        old = [publisher for publisher, since in self.holes.items() if since < before]
        waiting = sequences_of([*runs_of(*untaken), *self._here()]) if old else {}
        for publisher in old:
            self.host.trace(Mark("void_hole"))
            since = self.holes[publisher]
            self._void(publisher, self.publishers[publisher], waiting.get(publisher, NO_RANGES))
            if publisher in self.holes:  # another hole of the same age
                self.holes[publisher] = since
        return bool(old)

    def void_holes(self) -> None:
        """Gaps delay nothing from the next term on: give up what they waited for."""
        for publisher in list(self.holes):
            self._void(publisher, self.publishers[publisher], NO_RANGES)

    def prolong_holes(self) -> None:
        """Restart the time of holes: what fills them may come in a new term, or wait to be read after a pause."""
        self.holes = dict.fromkeys(self.holes, self.host.now()) or EMPTY

    def _void(self, publisher: bytes, cursor: PublisherCursor, waiting: RangeSet) -> None:
        """Report what is missing before a known event as lost, unless it was reported by its positions."""
        for first, last in difference(self._holes_before(cursor), waiting):
            if self._was_told(publisher, (first, last), Position(cursor.term or NO_TERM, NUMBER_MAX)):
                cursor.lose_before(first, last)
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
                cursor.lose(next_, end)
            self._lose_events(publisher, [(next_, end)], place.term, "void")
            cursor.pass_over(older)

    def _may_be_older(self, cursor: PublisherCursor, term: Term, missing: Iterable[Range]) -> bool:
        """May the term in which this began have had a publisher's missing events before, as many as there was room for?

        The event before them is of an earlier term, and the next one, in `term`, of a later one.
        """
        if cursor.term is None or self.since is None or not cursor.term < self.since <= term:
            return False
        return sum(last - first for first, last in missing) <= self._start(self.since)

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
