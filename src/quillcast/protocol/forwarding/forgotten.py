"""The terms of a topic that a peer has discarded for good."""

from collections.abc import Iterable
from operator import itemgetter

from quillcast.core.envelope import Term
from quillcast.core.interning import EMPTY

ENDS_TOLD_MAX = 1024  # of terms that were discarded for good: as many streams as a partition may end in a topic at once
FORGOTTEN_MAX = 2 * ENDS_TOLD_MAX
"""So many of these a peer remembers: more than others tell it, so that it takes none for news that it knew once."""


class Forgotten(dict[Term, int]):
    """How far each of them went, the latest last, and for some, by when all their events existed (`since`)."""

    __slots__ = ("since",)

    def __init__(self, ends: Iterable[tuple[Term, int]] = ()) -> None:
        super().__init__(ends)
        self.since: dict[Term, float] = EMPTY

    def note(self, term: Term, end: int, since: float | None = None) -> None:
        """One more term has ended."""
        self[term] = end
        self._date(term, since)
        if len(self) > FORGOTTEN_MAX:
            oldest = next(iter(self))
            del self[oldest]
            self._date(oldest, None)

    def and_before(self, ends: Iterable[tuple[Term, int, float | None]]) -> "Forgotten":
        """The same, with terms that others discarded. These count as older, whatever their numbers."""
        dated = {term: (end, since) for term, end, since in sorted(ends, key=itemgetter(0, 1))}
        told = [(term, end) for term, (end, _) in dated.items()]
        both = Forgotten([*told, *self.items()][-FORGOTTEN_MAX:])
        for term in both:
            both._date(term, self.since.get(term) if term in self else dated[term][1])
        return both

    def _date(self, term: Term, since: float | None) -> None:
        if since is not None:
            self.since = self.since or {}
            self.since[term] = since
        elif self.since:
            self.since.pop(term, None)
