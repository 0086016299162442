"""Which events may have stood at lost positions of which nobody knows what they were: if they come, they are marked.

Nobody knows whose events a subscriber lost there. What is known is how many positions those are, and that a term admits
each publisher's events in order. So in the same term an event that stood there is told by its position. In other terms
it is one of the next events of its publisher, as many as the positions at most, unless the publisher had an event
behind those positions, for then all before that one were passed over. No clock is asked, as those of peers differ.
"""

from collections.abc import Callable, Collection

from quillcast.core.envelope import Term
from quillcast.core.ranges import Range, RangeSet

OLD_LOOKS = 2
"""So often has a subscription looked which publishers are silent, and no event comes of another term any more."""


class Doubt:
    """The lost positions of a term of which it is not known what stood there."""

    __slots__ = ("looks", "met", "most", "open", "positions")

    def __init__(self) -> None:
        self.positions = RangeSet()
        self.most = 0  # as many events of one publisher may have stood there and not gone out yet
        self.open = 0  # for so many positions no event has come, nor been found to lack
        self.met: dict[bytes, int] = {}  # by publisher, how many of its next events came since, that may be those
        self.looks = 0  # since the last of them was reported (`age`)


class Doubts:
    """A subscription's doubts, by term."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        self.terms: dict[Term, Doubt] = {}

    def note(self, term: Term, first: int, last: int, taken: int) -> None:
        """Positions [first, last) were reported as lost; all below `taken` went out or were lost before."""
        doubt = self.terms.setdefault(term, Doubt())
        doubt.most += last - min(first, max(taken, doubt.positions.end))
        doubt.open += last - first
        doubt.positions.discard(0, taken)  # nothing comes there any more
        doubt.positions.add(first, last)
        doubt.looks = 0

    def may_be(self, publisher: bytes, term: Term, index: int, count: int) -> list[Range]:
        """Of a publisher's next `count` events, which stand from a position on, those that may have stood at lost ones.

        They are counted from 0; each event is asked for once.
        """
        found = RangeSet()
        for doubted, doubt in self.terms.items():
            known = doubt.met.get(publisher, 0)
            if doubted == term and index >= doubt.positions.end:
                known = doubt.most
            elif doubted == term:
                here = doubt.positions.within(index, index + count)
                doubt.open = max(0, doubt.open - sum(last - first for first, last in here))
                found.update((first - index, last - index) for first, last in here)
                known = doubt.most if index + count >= doubt.positions.end else known
            elif doubt.looks < OLD_LOOKS:
                found.add(0, min(doubt.most - known, count))
                known = min(known + count, doubt.most) if doubted < term else known
            doubt.met[publisher] = known
        return found.ranges()

    def stood_in(self, term: Term, events: int) -> bool:
        """So many events of a publisher lack within a term: may they have stood at its doubted positions?"""
        doubt = self.terms.get(term)
        if doubt is None or events > doubt.most:
            return False
        doubt.open = max(0, doubt.open - events)
        return True

    def account_for(self, term: Term, events: int) -> bool:
        """So many events of a publisher lack before one of a term: were they reported by their positions?

        Each position stands for one event. They stood in that term, or in one before it.
        """
        doubts = [self.terms[doubted] for doubted in sorted(self.terms, reverse=True) if doubted <= term]
        if events > sum(doubt.open for doubt in doubts):
            return False
        for doubt in doubts:
            events -= (here := min(events, doubt.open))
            doubt.open -= here
        return True

    def age(self, publishers: Collection[bytes]) -> None:
        """Between two calls publishers let go of what they had published before: then they send it no more.

        Of all but these `publishers` nothing is remembered.
        """
        for doubt in self.terms.values():
            doubt.looks += 1
            doubt.met = {publisher: count for publisher, count in doubt.met.items() if publisher in publishers}

    def keep(self, keep: Callable[[Term], bool]) -> None:
        """Forget the terms of which nobody keeps anything any more."""
        self.terms = {term: doubt for term, doubt in self.terms.items() if keep(term)}
