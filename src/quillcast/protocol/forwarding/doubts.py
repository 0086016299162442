"""Which events may have been at lost positions whose events are unknown. Such an event is marked if it arrives later.

Nobody knows which events a subscriber lost there. What is known is the number of positions, and that a term admits the
events of each publisher in order. So in the same term, an event that was there is recognised by its position. In other
terms, it is one of the next events of its publisher, at most as many as the positions. But if the publisher had an
event behind those positions, all its events before that one were passed over. Clocks are not used, because those of
peers differ.

A source never resends what another source numbered in the same session. But the publisher of a client may continue
at another peer, which numbers again what was not stable (`live.clients.direct`). It is known to have moved if its
latest event before the loss stood in the former stream.
"""

from collections.abc import Callable, Collection, Iterable

from quillcast.core.envelope import NO_TERM, Position, Term
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import Range, RangeSet

OLD_LOOKS = 2
"""After so many checks for silent publishers, no event of another term arrives any more."""
LOST_RANGES_MAX = 1024  # per term; the oldest are forgotten, and holes there are reported again; a guess: 16 kB


class Doubt:
    """The lost positions of a term whose events are unknown."""

    __slots__ = ("before", "came", "holed", "looks", "lost", "met", "most", "numbered", "open", "positions")

    def __init__(self) -> None:
        self.lost = RangeSet()
        self.positions = RangeSet()  # those of them at which an event may still arrive
        self.came: dict[bytes, tuple[int, int]] = {}  # by publisher: its last event of this term, and where that stood
        self.numbered: dict[bytes, None] = {}  # publishers whose latest event was of this term, which is a source's
        self.before = 0  # positions up to the last lost one from before the start, whose events another term may bring
        self.most = 0  # how many events of one publisher may have been there and were not delivered yet
        self.open = 0  # positions for which no event has arrived, nor been found missing
        self.met: dict[bytes, int] = {}  # by publisher: how many of its next events arrived since that may be those
        self.holed: dict[bytes, None] = {}  # publishers that missing events there were ascribed to
        self.looks = 0  # checks since the last of them was reported (`age`)

    def places(self, publisher: bytes, first: int, end: int) -> int:
        """The number of lost positions below an index that a publisher's events from a sequence on may have had.

        A term admits events in order: so after the last earlier one of the publisher, or before a later one.
        """
        came, at = self.came.get(publisher, (0, 0))
        return _size(self.lost.within(at, end) if came <= first else self.lost.within(0, min(at, end)))

    def has_moved(self, publisher: bytes, term: Term, other: Term) -> bool:
        """Whether this term's source numbered a publisher that another one numbers now, in the same session."""
        return publisher in self.numbered and not _may_bring(term, other)

    def stands_at(self, publisher: bytes, index: int) -> None:
        """An event of this term arrives: earlier ones of other terms can only have had earlier lost positions."""
        if publisher in self.met:
            self.met[publisher] = min(self.met[publisher], self.before + _size(self.lost.within(0, index)))


class Doubts:
    """The doubted positions of a subscription, by term."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        self.terms: dict[Term, Doubt] = {}

    def note(
        self, term: Term, first: int, last: int, taken: int, start: int = 0, begun: Iterable[bytes] = (),
        numbered: Iterable[bytes] = (),
    ) -> None:  # fmt: skip
        """Record that positions [first, last) were reported lost. All below `taken` were delivered or lost before.

        The stream of a source is owed from `start` on. So another term may also bring what stood before that, ahead of
        those positions' events. Not of publishers whose events have `begun` to come. The latest events of some stood in
        that stream (`numbered`).
        """
        doubt = self.terms.setdefault(term, Doubt())
        doubt.numbered |= dict.fromkeys(numbered)
        doubt.before = max(doubt.before, start)
        doubt.met = {**dict.fromkeys(begun, doubt.before), **doubt.met} if doubt.before else doubt.met
        doubt.most += last - min(first, max(taken, doubt.positions.end))
        doubt.open += last - first
        doubt.lost.add(first, last)
        if len(doubt.lost) > LOST_RANGES_MAX:
            doubt.lost.discard(0, doubt.lost.starts[1])
        doubt.positions.discard(0, taken)  # no further event can arrive there
        doubt.positions.add(first, last)
        doubt.looks = 0

    def note_start(self, term: Term, count: int) -> None:
        """Record that positions from before the subscription's start were reported lost, the last of `count`.

        A publisher's first event that arrives may have been at any of them. Nothing is owed there, so no event
        that is missing later is ascribed to them.
        """
        doubt = self.terms.setdefault(term, Doubt())
        doubt.before = count
        doubt.looks = 0

    def may_be(self, publisher: bytes, term: Term, index: int, count: int) -> list[Range]:
        """Which of a publisher's next `count` events, from position `index` on, may have been at doubted positions.

        The result counts them from 0. Each event must be asked for once.
        """
        found = RangeSet()
        if term in self.terms:
            self.terms[term].stands_at(publisher, index)
        for doubted, doubt in self.terms.items():
            known, most = doubt.met.get(publisher, 0), doubt.before + doubt.most
            if doubted == term and index >= doubt.positions.end:
                known = most
            elif doubted == term:
                here = doubt.positions.within(index, index + count)
                doubt.open = max(0, doubt.open - _size(here))
                found.update((first - index, last - index) for first, last in here)
                known = most if index + count >= doubt.positions.end else known
            elif doubt.looks < OLD_LOOKS and (_may_bring(term, doubted) or publisher in doubt.numbered):
                marked = max(0, min(most - known, count))
                found.add(0, marked)
                if publisher not in doubt.holed:  # otherwise those were the missing ones, rather than these
                    doubt.open = max(0, doubt.open - marked)
                is_later = doubt.has_moved(publisher, term, doubted) or doubted.precedes(term, streams_first=True)
                known = min(known + count, most) if is_later else known
            doubt.met[publisher] = known
        return found.ranges()

    def note_came(self, publisher: bytes, term: Term, end: int, index: int) -> None:
        """A publisher's events arrived at positions of a term below an index, the last below the sequence `end`."""
        doubt = self.terms.get(term)
        if doubt is not None and index > doubt.came.get(publisher, (0, 0))[1]:
            doubt.came[publisher] = end, index

    def stood_in(self, term: Term, positions: Range, events: int) -> bool:
        """Whether `events` missing events of a publisher may have been at doubted ones of these positions of a term."""
        doubt = self.terms.get(term)
        if doubt is None or events > _size(doubt.lost.within(*positions)):
            return False
        doubt.open = max(0, doubt.open - events)
        return True

    def account_for(self, publisher: bytes, missing: Range, before: Position, after: Term = NO_TERM) -> bool:
        """Were missing events of a publisher, before one at a position, reported by their positions?

        Each position accounts for one event. The events were in that term or in an earlier one, and in no stream of
        another source than this event or the one `after` which they are missing, unless their publisher has moved.
        """
        first, last = missing
        events, found = last - first, list[tuple[Doubt, int]]()
        here = before.term
        moved = [each for each, doubt in self.terms.items() if doubt.has_moved(publisher, each, here)]
        earlier = [each for each in self.terms if each == here or each.precedes(here)]
        shared = [each for each in earlier if _may_share_source(each, here) and _may_share_source(each, after)]
        for term in sorted(dict.fromkeys((*moved, *shared)), key=lambda each: (each.session, each), reverse=True):
            doubt, end = self.terms[term], before.index if term == before.term else NUMBER_MAX
            found.append((doubt, min(events, doubt.open, doubt.places(publisher, first, end))))
            events -= found[-1][1]
        if events:
            return False
        for doubt, count in found:
            doubt.open -= count
            if count:
                doubt.holed[publisher] = None
        return True

    def age(self, publishers: Collection[bytes]) -> None:
        """Between two calls, publishers discard what they had published before, so they will not send it again.

        Everything about publishers that are not in `publishers` is forgotten.
        """
        for doubt in self.terms.values():
            doubt.looks += 1
            doubt.met = {publisher: count for publisher, count in doubt.met.items() if publisher in publishers}
            doubt.came = {publisher: last for publisher, last in doubt.came.items() if publisher in publishers}
            doubt.numbered = {publisher: None for publisher in doubt.numbered if publisher in publishers}
            doubt.holed = {publisher: None for publisher in doubt.holed if publisher in publishers}

    def keep(self, keep: Callable[[Term], bool]) -> None:
        """Forget terms of which no peer keeps events."""
        self.terms = {term: doubt for term, doubt in self.terms.items() if keep(term)}


def _size(ranges: Iterable[Range]) -> int:
    return sum(last - first for first, last in ranges)


def _may_bring(term: Term, doubted: Term) -> bool:
    """May a term contain events of another term? A source's never those of another source in the same session."""
    return not (term.of_source and doubted.of_source) or term.session != doubted.session


def _may_share_source(term: Term, other: Term) -> bool:
    """May one publisher's events stand in both, if it has not moved? A source numbers those of its own process."""
    return not (term.of_source and other.of_source) or term.node == other.node
