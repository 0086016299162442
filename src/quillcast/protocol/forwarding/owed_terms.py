"""What a subscription is owed of each term, by position: from where on, and whether gaps delay what follows."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from enum import IntEnum

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.forwarding.channels import Sink
from quillcast.protocol.forwarding.cursors import (
    DELIVERED_RANGES_MAX,
    BestEffortCursor,
    EarlierTermCursor,
    TermCursor,
)
from quillcast.protocol.forwarding.ledger import Run, RunsByTerm, within


class Readmits(IntEnum):
    """Whether an owed event may come again in another term."""

    NO = 0
    BY_SETTINGS = 1
    """As long as the topic's settings stay as they are."""
    FOR_GOOD = 2
    """It is owed events of terms that readmit, whatever the settings are now."""
    STREAMS_TOO = 3
    """... and a root numbers events again that their sources had numbered."""


class OwedTerms(Sink):
    """The terms in which a subscription takes part, and its place in each of them."""

    __slots__ = ("latest", "older", "ordered", "over", "owed_in_part", "readmits", "since")

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.readmits = Readmits.BY_SETTINGS  # does a new term readmit what is not stable? Not in a best-effort topic
        self.since: Term | None = None  # the term in which the subscription began
        self.owed_in_part = NO_TERM  # the latest term up to that one of which it is owed only the last part
        self.latest: TermCursor | None = None  # of the term that began last
        self.older: dict[Term, TermCursor] = EMPTY  # of the terms before, the oldest first
        self.over: dict[Term, int] = EMPTY  # where this began in streams that have ended, if they had come that far

    @abstractmethod
    def prolong_holes(self) -> None:
        """A term that begins may bring what is missing before publishers' known events."""

    def _is_only(self, term: Term) -> bool:
        """Are a publisher's events of a term in no other, and none missing in it? Its source numbers them."""
        return self.ordered and (not self.readmits or (term.of_source and self.readmits < Readmits.STREAMS_TOO))

    def waiting(self, term: Term) -> Iterable[Bundle]:
        term_cursor = self.term_cursor(term)
        return term_cursor.waiting.values() if term_cursor is not None else ()

    def gaps_before(self, term: Term, last: int) -> list[Range]:
        term_cursor = self.term_cursor(term)
        if term_cursor is None:
            return []
        here = RangeSet((first, bundle.last) for first, bundle in term_cursor.waiting.items())
        return here.missing(term_cursor.next, last)

    def begin(self, term: Term, start: int, *, owed: bool = True, went_on: bool = False, fills: bool = True) -> None:
        """Take a term from this index on. It may fill holes (`fills`), unless it is a root's and sources number events.

        `went_on`: its number is lower, and yet it had not ended when this subscription began.
        """
        if self.since is None:
            self.since = term
        if self.term_cursor(term) is None:
            begun = self.over.pop(term, start) if self.over else start
            start = max(start, begun)
            if start > 0 and term <= self.since:
                self.owed_in_part = max(self.owed_in_part, term)
            if self.latest is not None:
                self.older = self.older or {}
                self.older[self.latest.term] = self.latest
            earlier = term < self.since and not went_on
            kind = EarlierTermCursor if earlier else TermCursor if owed else BestEffortCursor
            self.latest = (BestEffortCursor if term.best_effort else kind)(term, start, start=begun)
            if fills:
                self.prolong_holes()

    def term_cursor(self, term: Term) -> TermCursor | None:
        """The cursor of a term, if this subscription takes part in it."""
        if self.latest is not None and self.latest.term == term:
            return self.latest
        return self.older.get(term)

    def term_cursors(self) -> list[TermCursor]:
        """The cursors of all terms, the oldest first."""
        return [*self.older.values(), self.latest] if self.latest is not None else []

    def owe(self, term: Term, end: int, stable: int) -> None:
        """An earlier term is known up to `end`. Its events are owed; to a newer subscription, only those beyond `end`.

        The term may continue on the other side of a partition, or its end may not be known here yet.
        """
        if self.since is not None:
            self.begin(term, 0 if self.since < term else end)
            self.settle(term, stable)

    def settle(self, term: Term, stable: int) -> None:
        term_cursor = self.term_cursor(term)
        if isinstance(term_cursor, EarlierTermCursor):
            term_cursor.settle(stable)

    def went_on(self, term: Term) -> None:
        """An earlier term had not ended when this began: all of its events are owed that are not known to be older.

        This includes what its publisher may have sent again before, because the publisher may have discarded that.
        """
        known = self.term_cursor(term)
        if not isinstance(known, EarlierTermCursor):
            return
        self._replace(TermCursor, known)

    def _replace(self, kind: type[TermCursor], known: TermCursor) -> TermCursor:
        """Replace a cursor by one of another kind at the same place."""
        cursor = kind(known.term, known.next, known.given_up, known.waiting, known.start, known.old)
        if self.latest is known:
            self.latest = cursor
        else:
            self.older[known.term] = cursor
        return cursor

    def may_be_owed(self, term: Term) -> bool:
        return self.since is not None and term < self.since and self.term_cursor(term) is None

    def lacking(self, term: Term, seen: RangeSet, end: int) -> list[Range]:
        term_cursor = self.term_cursor(term)
        if term_cursor is None or not (self.readmits and term_cursor.owed):
            return []
        return [r for gap in seen.missing(term_cursor.next, end) for r in term_cursor.given_up.missing(*gap)]

    def waits_in(self, term_cursor: TermCursor) -> bool:
        """Whether a gap of this term delays later events, although gaps of the present term do not."""
        return False

    def _waits_for_gaps(self, term_cursor: TermCursor) -> bool:
        return (self.ordered and term_cursor.owed) or self.waits_in(term_cursor)

    def _in_order(self, term: Term) -> bool:
        """Whether the order of this term's events is kept, or was in an earlier session."""
        term_cursor = self.term_cursor(term)
        return self.ordered or (term_cursor is not None and self.waits_in(term_cursor))

    def _is_owed_late(self, term: Term) -> bool:
        """Whether an event of this term that comes after a later one of its publisher is reported lost."""
        term_cursor = self.term_cursor(term)
        return self.ordered or (bool(self.readmits) and term_cursor is not None and term_cursor.owed)

    def _owed(self, lost: Term, others: RunsByTerm) -> Iterator[Run]:
        """The owed parts of runs of later terms: not what stood there before the subscription began."""
        for term, runs in others.items():
            if lost.precedes(term):
                yield from within(runs, [(self._start(term), NUMBER_MAX)]) if self._start(term) else runs

    def _not_owed(self, lost: Term, others: RunsByTerm) -> Iterator[Run]:
        """The runs of the subscription's first term, if that is earlier, that stood there before it began.

        A place in a term before that, which may have been learned later, does not say which came first.
        """
        if self.since is not None and self.since < lost and self._start(self.since):
            yield from within(others.get(self.since, ()), [(0, self._start(self.since))])

    def _old(self, term: Term) -> int:
        """Where a stream begins that it is owed in full. Before that, later events show what is owed, unless it ended.

        A source that has begun another stream for a later session numbers no more events in this one.
        """
        term_cursor = self.term_cursor(term)
        if term_cursor is None or not term_cursor.old:
            return 0
        ended = any(each.term.node == term.node and each.term.session > term.session for each in self.term_cursors())
        return 0 if ended else term_cursor.old

    def _expected(self, term: Term) -> list[Range]:
        """The positions of a root's term that this subscription waits for. A source's stream may end unnoticed."""
        term_cursor = self.term_cursor(term)
        if term_cursor is None or term.of_source or not self._waits_for_gaps(term_cursor):
            return []
        return term_cursor.given_up.missing(max(term_cursor.next, term_cursor.old), NUMBER_MAX)

    def _start(self, term: Term) -> int:
        term_cursor = self.term_cursor(term)
        return term_cursor.start if term_cursor is not None else 0

    def _precedes(self, term: Term, other: Term) -> bool:
        """Were a term's events admitted before another's? Those of sources were, if a root took over from them."""
        return term.precedes(other, streams_first=self.readmits is Readmits.STREAMS_TOO)

    def _forget_given_up(self, term_cursor: TermCursor) -> None:
        """Of the positions given up before the next one, remember only the latest, and only if they may arrive late."""
        given_up = term_cursor.given_up
        if self._waits_for_gaps(term_cursor):
            term_cursor.forget_given_up()
        while len(given_up) > DELIVERED_RANGES_MAX and given_up.starts[1] < term_cursor.next:
            given_up.join_first()
