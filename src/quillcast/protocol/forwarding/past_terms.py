"""The ended terms of a topic: what is kept of them for others, and how far the discarded ones went."""

from collections.abc import Callable, Iterable
from typing import Final

from quillcast.core.bundle import Block
from quillcast.core.envelope import Term
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX, Forgotten
from quillcast.protocol.forwarding.ledger import runs_of, sequences_of
from quillcast.protocol.forwarding.stream import EndedStream, HeldTerms, Stream, told_age

TERMS_KEPT_MAX = 16  # ended terms that are kept for repair; a guess: several may follow soon after a partition
HELD_RANGES_MAX = 8  # ranges named per ended term; more are told as the first ones are repaired
AgedEnd = tuple[Term, int, int | None]
"""How far a term went that is over, and for how many milliseconds its events have been there, if that is known."""


class PastTerms(dict[Term, EndedStream]):
    """The ended terms that are kept or wanted. `forgotten` are those that were discarded since, the latest last."""

    __slots__ = ("forgotten", "readmitted")

    def __init__(self) -> None:
        self.forgotten = Forgotten()
        self.readmitted = 0  # events of discarded terms that a later one admitted again

    def add(self, past: EndedStream) -> None:
        """A term has ended."""
        self[past.term] = past

    def recall(self, term: Term, end: int, until: float) -> bool:
        """Record how far an ended term went, even one that this peer missed. Want its missing events until `until`.

        True if that was news.
        """
        past = self.get(term)
        if past is None:
            missed = Stream(term, settled := self.take_forgotten(term))
            if settled:
                missed.give_up([(0, settled)])
            self.add(EndedStream.of(missed, end, [], until))
        elif end > past.end:
            past.go_on(end, until)
        else:
            return False
        return True

    def forget(self, term: Term, readmitted: int) -> None:
        """Discard an ended term for good. A later one admitted so many of its events again."""
        past = self.pop(term)
        self.readmitted += readmitted
        self.forgotten.note(term, past.end, past.came.at if past.is_dated else None)

    def take_forgotten(self, term: Term) -> int:
        """A discarded term is wanted, or live, again. Returns how far it went, as far as that is remembered."""
        return self.forgotten.pop(term, 0)

    def note_over(self, term: Term, end: int) -> None:
        """A term has ended at `end`: none of its events are kept, and its end is remembered for a while."""
        self.forgotten.note(term, end)

    def note_over_before(self, ends: Iterable[tuple[Term, int]]) -> None:
        """The same for terms that ended before all remembered ones, if there is room."""
        self.forgotten = self.forgotten.and_before((term, end, None) for term, end in ends)

    def note_forgotten(self, ends: Iterable[AgedEnd], now: float) -> None:
        """The same for terms that others discarded, and whose age they know."""
        dated = [(term, end, None if there_ms is None else now - there_ms / 1000) for term, end, there_ms in ends]
        self.forgotten = self.forgotten.and_before(dated)

    def overdue(self, now: float) -> list[Term]:
        """The terms to discard, because they were kept long enough or there are too many."""
        terms = sorted(self)
        spare = len(terms) - TERMS_KEPT_MAX
        return [term for place, term in enumerate(terms) if self[term].until <= now or place < spare]

    @property
    def kept_bytes(self) -> int:
        """The size of all that is kept of them."""
        return sum(bundle.size for past in self.values() for bundle in past.bundles)

    def holds(self, blocks: Iterable[Block]) -> bool:
        """Whether these events are kept."""
        kept = sequences_of(run for past in self.values() for run in runs_of(*past.bundles))
        return all(
            block.publisher in kept and kept[block.publisher].covers(block.first, block.last) for block in blocks
        )

    # ---- what others are told

    def forgotten_lately(self) -> tuple[tuple[Term, int], ...]:
        """The discarded terms that others are told about, and how far they went: those discarded last."""
        return tuple(self.forgotten.items())[-ENDS_TOLD_MAX:]

    def ends(self) -> tuple[tuple[Term, int], ...]:
        """How far each term went: those that are kept or wanted, and those discarded last."""
        ends = {**dict(self.forgotten_lately()), **{term: past.end for term, past in self.items()}}
        return tuple(sorted(ends.items()))

    def aged(self, ends: Iterable[tuple[Term, int]], now: float) -> tuple[AgedEnd, ...]:
        """The same, with how long all events of each term have existed, in milliseconds, if that is known."""
        return tuple((term, end, self._there_for(term, now)) for term, end in ends)

    def _there_for(self, term: Term, now: float) -> int | None:
        if term in self:
            return self[term].there_for(now)
        since = self.forgotten.since.get(term)
        return None if since is None else told_age(now - since)

    def held(self, now: float, disowns: Callable[[Term], bool]) -> HeldTerms:
        """How far the latest terms went and what is kept of them, except for terms that this peer disowns."""

        def offered(past: EndedStream) -> tuple[Range, ...]:
            return () if disowns(past.term) else tuple(past.kept()[:HELD_RANGES_MAX])

        latest = sorted(self.items())[-TERMS_KEPT_MAX:]
        return tuple([(term, past.end, offered(past), past.stable, past.there_for(now)) for term, past in latest])


NO_PAST: Final = PastTerms()
"""The shared empty one of flows whose first term goes on. Nothing is ever added to it."""
