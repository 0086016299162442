"""The subscriber's edge: order per publisher, and the last check for repeats (docs/delivery.md, *Ids*).

The positions of each term are taken in order and without gaps. Across terms an event may arrive twice, because a new
root readmits what was not known to be stable. The publisher's sequence detects such repeats.
"""

from collections.abc import Callable, Iterable, Iterator

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, Position, Term, new_tuple
from quillcast.core.interning import EMPTY
from quillcast.core.loss import Loss
from quillcast.core.ranges import NO_RANGES, Range, RangeSet
from quillcast.core.trace import Delivered, Repeated
from quillcast.protocol.forwarding.cursors import (
    BestEffortCursor,
    EarlierTermCursor,
    PublisherCursor,
    TermCursor,
)
from quillcast.protocol.forwarding.doubts import Doubts
from quillcast.protocol.forwarding.ledger import Run, RunsByTerm, runs_of, within
from quillcast.protocol.forwarding.lost_events import LostEvents

SILENT_MAX = 1024  # silent publishers that an edge remembers; a guess: 200 kB


class Edge(LostEvents):
    """The sink of a channel to one local subscriber. Most of its state is created by the first event."""

    __slots__ = ()

    owed = True
    begins_now = False
    """Whether it is owed only what came of a source's stream after it began, and not what its peer finds there."""

    def room(self, bundle: Bundle) -> int:
        return self.subscriber.room()

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
        """A publisher's sequences that were delivered, or reported lost by name, from its first event here on."""
        cursor = self.publishers.get(publisher)
        if cursor is None or cursor.began is None:
            return []
        if cursor.delivered is not None:
            return cursor.delivered.within(max(first, cursor.began[1]), last)
        return cursor.passed_over.missing(max(first, cursor.began[1]), min(last, cursor.next or 0))

    def end(self, term: Term, end: int) -> None:
        """As far as is known, a source's stream has ended. Nothing in it is owed, unless the source returns.

        If gaps delay nothing, no later event shows what was missed before the end.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is not None and not self.ordered:
            self._drop(term, term_cursor, end)
        if term_cursor is not None and not end >= term_cursor.start == term_cursor.next:
            self.over = self.over or {}
            self.over[term] = term_cursor.start
        if self.older.pop(term, None) is None and self.latest is not None and self.latest.term == term:
            self.latest = self.older.popitem()[1] if self.older else None

    def forget(self, keep: Callable[[Term], bool]) -> None:
        """Forget the cursors of terms that no peer keeps any longer."""
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
        if bundle.envelope.first != term_cursor.next and not self._continues(bundle, term_cursor):
            return
        self._run(bundle, term_cursor)
        if term_cursor.waiting or term_cursor.given_up is not NO_RANGES:
            self._resume(term_cursor)

    def _continues(self, bundle: Bundle, term_cursor: TermCursor) -> bool:
        """Is a bundle with another first index to be delivered now? Beyond a gap it may have to wait."""
        in_order = self._waits_for_gaps(term_cursor)
        if bundle.envelope.first < term_cursor.next:
            if not in_order:
                self._came_late(bundle, term_cursor)
            return bundle.last > term_cursor.next
        if in_order:
            term_cursor.keep(bundle)
            return False
        self._drop(bundle.envelope.term, term_cursor, bundle.envelope.first)
        return True

    def owe_no_more(self, term: Term) -> None:
        """A term turned out to belong to a best-effort session: its gaps no longer delay anything."""
        known = self.term_cursor(term)
        if known is None or not known.owed:
            return
        term_cursor = self._replace(BestEffortCursor, known)
        while term_cursor.waiting:
            self._drop(term, term_cursor, min(term_cursor.waiting))
            self._resume(term_cursor)

    def _drop(self, term: Term, term_cursor: TermCursor, before: int) -> None:
        """Report what did not arrive before an index as lost, once. Gaps delay nothing here.

        Of a stream's first events, those after the subscription's start are lost: its source knows which (`date`).
        """
        if term.of_source and self.begins_now and term_cursor.start == term_cursor.next < before:
            missed = term_cursor.next, before
            self._loss_reports().note_undated(term, missed)
            term_cursor.give_up([missed])
            return
        for first, last in term_cursor.given_up.missing(term_cursor.next, before):
            self._doubt(Loss(term, first, last, "dropped"), term_cursor)
            term_cursor.give_up([(first, last)])
        self._forget_given_up(term_cursor)

    def _came_late(self, bundle: Bundle, term_cursor: TermCursor) -> None:
        """Positions reported lost arrived late, and gaps delay nothing. Now their events are known.

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
        arrive there, or are lost there. Events of an earlier term from before this began are not owed, unless an event
        before it was delivered.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return
        holes = [
            hole for first, last in ranges for hole in term_cursor.given_up.missing(max(first, term_cursor.next), last)
        ]
        term_cursor.give_up(ranges)
        for first, last in self._lose(term, holes, why, runs, others):
            self._doubt(Loss(term, first, last, why), term_cursor)
        self._resume(term_cursor)

    def pass_by(self, term: Term, index: int) -> bool:
        """Events below an index of a term are older than this, and not owed. True if its start moves up.

        If one of them was delivered or reported, later events of its publisher are still owed.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is None or index <= term_cursor.start:
            return False
        if term_cursor.next > term_cursor.start or self.was_given(term):
            term_cursor.note_old(index)
            return False
        term_cursor.begin_at(index)
        if self.since is not None and term <= self.since:
            self.owed_in_part = max(self.owed_in_part, term)
        self._resume(term_cursor)
        return True

    def was_given(self, term: Term) -> bool:
        """Was an event of a stream delivered, or one of an earlier stream of its source?

        Streams may have ended in between, for example with a session.
        """
        given = (cursor.term for cursor in self.publishers.values() if cursor.term is not None)
        return term in self.over or any(each.node == term.node and not term.precedes(each) for each in given)

    def exclude(self, bundle: Bundle) -> None:
        term_cursor = self.term_cursor(bundle.envelope.term)
        if term_cursor is None:
            return
        for run in runs_of(bundle):  # later events of the publisher do not wait for these
            cursor = self.publishers.get(run.publisher) or self._meet(run.publisher)
            cursor.lose(run.first, run.first + run.events)
            if cursor.next is not None:
                cursor.pass_lost(cursor.next)
        term_cursor.give_up([(bundle.envelope.first, bundle.last)])
        self._resume(term_cursor)

    def note_delivered(self) -> None:
        """Earlier events arrived in order, except those skipped. From now on, record arrivals by sequence."""
        for cursor in self.publishers.values():
            cursor.delay_nothing()

    def note_passed_over(self) -> None:
        """Keep the order from now on. Events that have not arrived may still be owed."""
        for cursor in self.publishers.values():
            cursor.keep_order()

    def forget_publishers(self) -> None:
        """Check all publishers, and forget those that were silent since the last check, except for some.

        The checks are so far apart that a silent publisher has nothing in transit, except across a partition.
        Therefore the last `SILENT_MAX` publishers are remembered no matter how long they are silent. Events that wait
        behind a hole or a gap arrived before, and are delivered later: until then, they may be at doubted positions.
        """
        silent = [id_ for id_, cursor in self.publishers.items() if cursor.looked_at_next == cursor.next]
        for publisher in silent[: max(0, len(silent) - SILENT_MAX)]:
            if publisher not in self.holes:
                del self.publishers[publisher]
        for cursor in self.publishers.values():
            cursor.look_over()
        if self.doubts is not None and not self._waits():
            self.doubts.age(self.publishers)

    def _waits(self) -> bool:
        """Whether anything waits behind a hole of its publisher, or behind a gap of its term."""
        held = any(cursor.held for cursor in self.publishers.values())
        return held or any(term_cursor.waiting for term_cursor in self.term_cursors())

    def _resume(self, term_cursor: TermCursor) -> None:
        term_cursor.pass_given_up()
        while (bundle := term_cursor.waiting.take_next(term_cursor.next)) is not None:
            if bundle.last > term_cursor.next:
                self._run(bundle, term_cursor)
            term_cursor.pass_given_up()
        self._forget_given_up(term_cursor)

    def _run(self, bundle: Bundle, term_cursor: TermCursor) -> None:
        term, index = bundle.envelope.term, bundle.envelope.first
        for block in bundle.blocks:
            done = term_cursor.next - index if term_cursor.next > index else 0  # events of the block that came before
            if done < block.count:
                self._sequence(block, done, term, index)
            index += block.count
        term_cursor.go_on(bundle.last)

    def _sequence(self, block: Block, done: int, term: Term, index: int) -> None:
        """Check for repeats: the events of a publisher are delivered once each, in order of sequence.

        The block begins at `index` of a term; `done` of its events came before.
        """
        cursor = self.publishers.get(block.publisher) or self._meet(block.publisher)
        expected = block.first + done
        if cursor.next != expected or cursor.began is None or cursor.lost.starts:  # else it is the expected one
            self._overtake(cursor, block.publisher, block.first - index, term)
            expected = self._expect(cursor, block.publisher, expected, term)
        if block.first > expected and self._may_come(cursor, block, Position(term, index), expected):
            self._hold(cursor, block, term, index)
            return
        began = cursor.began
        cursor.note_place(term, index + block.count)
        if began is not None and term != began[0] and self._precedes(term, began[0]) and self._is_owed_late(term):
            late = (block.first + done, block.last)
            begin, end = self._older(block.publisher, term, index + done, late)
            for piece in ((late[0], begin), (end, late[1])):
                self._lose_before(cursor, block.publisher, piece, term, "late" if self._in_order(term) else "overtaken")
        # A term admits in sequence: what is missing before this was reported lost.
        skip = expected - block.first
        if skip > done:
            self._pass_over(cursor, block, done, min(skip, block.count))
        else:
            skip = done
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
            cursor.expect(block.last)
            self._deliver(block, skip, block.count, term, index + skip)
        if cursor.held:
            self._release(cursor)
        if self.holes or cursor.before is not NO_RANGES:
            self._look_again(block.publisher, cursor)

    def _look_again(self, publisher: bytes, cursor: PublisherCursor) -> None:
        """Return whether there is still a hole in what arrived of a publisher, after more of it was delivered."""
        if not self._holes_before(cursor):
            self.holes.pop(publisher, None)  # any further hole begins now
        self._look_for_hole(publisher, cursor)

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

    def _expect(self, cursor: PublisherCursor, publisher: bytes, first: int, term: Term) -> int:
        """The sequence of a publisher that is expected when the one at `first` arrives in a term.

        If its last event was of a term before the one in which the subscription began, and this event is of that term,
        then what lies between was admitted before the subscription, and is not owed. Nor is it if the last event was of
        a best-effort session. It is remembered, because another term may turn out to hold it. The first event of a
        publisher waits for those that a later term brings, or that wait in an earlier one behind a gap; what fills that
        may bring still earlier ones.
        """
        if cursor.began is None:
            due = [*cursor.awaited.starts[:1], *self._behind_gaps(publisher, term)]
            due += [cursor.next] if cursor.next is not None else []
            cursor.expect(min(first, *due) if due else None)
        expected = cursor.next
        if expected is None or not (self.ordered or self._in_order(term)):
            expected = max(first, expected or 0)
        elif first > expected and self._begins_anew(cursor, term):
            cursor.pass_over(cursor.lost.missing(expected, first))
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
        """Is a publisher's event of a term owed, but not those between its last one here and this one?

        If the subscription began with the term's first event, none of them was older than the subscription.
        """
        if cursor.term is None or not cursor.term.precedes(term):
            return False
        if term == self.since and self._start(term):
            return True
        dropped = cursor.term.best_effort or isinstance(self.term_cursor(cursor.term), BestEffortCursor)
        return term.best_effort or dropped

    def _may_come(self, cursor: PublisherCursor, block: Block, place: Position, expected: int) -> bool:
        """May a publisher's events that are missing before a block, from the expected one on, arrive in another term?

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

    def _hold(self, cursor: PublisherCursor, block: Block, term: Term, index: int) -> None:
        """Keep a block behind a hole, because the missing events may be in transit under another term.

        If gaps no longer delay anything, they are lost: they could not be delivered after a later event.
        """
        cursor.hold(block, Position(term, index))
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

    def _release(self, cursor: PublisherCursor) -> None:
        """A hole was filled or given up: continue with what was held behind it, up to the next hole."""
        for block, position in sorted(cursor.take_held(), key=_sequence_of):
            self._sequence(block, 0, *position)


def _sequence_of(held: tuple[Block, Position]) -> int:
    first: int = held[0].first
    return first
