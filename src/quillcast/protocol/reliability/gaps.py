"""What lacks of one term of one topic, and for each range of it: who was asked, and who refused it since when.

State is kept per range and per source. A refusal is one source's word on some ranges at one time: it counts until the
source says something else, and is void when the neighbours change. `Released` is a stronger word: the source had the
range and let it go, or gave it up, and will not get it again.
"""

from collections.abc import Iterable

from quillcast.core.ranges import NO_RANGES, Range, RangeSet, difference, intersection

RANGES_MAX = 64  # ranges in one Ask; the rest follows when these are filled
WAIT_S_MAX = 4.0  # longest wait before the same is asked for again; a guess


class Source:
    """Somebody who may have what lacks: what it was asked for in this round, and what it said of it, last or ever."""

    __slots__ = ("answered", "asked", "lacks", "offers", "released", "unanswered_since")

    def __init__(self) -> None:
        self.asked, self.answered = RangeSet(), RangeSet()
        self.lacks, self.released = RangeSet(), RangeSet()
        self.offers = NO_RANGES  # what it says, by its reports, that it keeps
        self.unanswered_since: float | None = None

    def under_way(self, ranges: Iterable[Range]) -> list[Range]:
        """What of these it was asked for and has not refused."""
        return difference(intersection(ranges, self.asked), self.answered)

    def ask_anew(self) -> None:
        """A new round begins; its last word counts until the next."""
        self.asked, self.answered = RangeSet(), RangeSet()


class Gap:
    """The ranges of a term that lack, from the first look at them to the last.

    What was asked for is under way as long as less and less lacks: it is asked for again, of anybody, only when that
    has stood still for `wait_s`, which doubles each time. Else a slow link would fill up with answers to one question.
    """

    __slots__ = ("_first_wait_s", "_hopeless", "_lacking", "_looked_at", "_moved_at", "_wait_s", "confirmed", "sources")

    def __init__(self, now: float, wait_s: float) -> None:
        self.confirmed: list[Range] = []  # what lacked at two looks in a row: it is not just on its way
        self.sources: dict[bytes, Source] = {}
        self._moved_at = now
        self._wait_s = self._first_wait_s = wait_s
        self._looked_at, self._lacking = RangeSet(), 0
        self._hopeless: list[tuple[float, RangeSet]] = []  # what nobody has, and since when that stands

    def look(self, ranges: list[Range], now: float) -> None:
        """These lack now."""
        if difference(self._looked_at, RangeSet(ranges)):
            self._hopeless = []  # something came, and so may more
        lacking = sum(last - first for first, last in ranges)
        if lacking < self._lacking:
            self._moved_at, self._wait_s = now, self._first_wait_s
            for source in self.sources.values():
                source.unanswered_since = None
        elif self.sources and now - self._moved_at >= self._wait_s:
            for source in self.sources.values():
                source.ask_anew()
            self._moved_at, self._wait_s = now, min(2 * self._wait_s, WAIT_S_MAX)
        self._lacking = lacking
        self.confirmed, self._looked_at = intersection(ranges, self._looked_at), RangeSet(ranges)

    def ask_among(self, names: Iterable[bytes]) -> None:
        """Who is to be asked now. With somebody new among them nothing is hopeless, and no refusal counts any more."""
        names = dict.fromkeys(names)
        if any(name not in self.sources for name in names):
            self._hopeless = []
            for source in self.sources.values():
                source.ask_anew()
                source.lacks = RangeSet()
        self.sources = {name: self.sources.get(name) or Source() for name in names}
        for source in self.sources.values():
            source.offers = NO_RANGES

    def to_ask(self, name: bytes, ranges: Iterable[Range], now: float) -> list[Range]:
        """What of the ranges to ask a source for now, since nobody is about to send it; it counts as asked for."""
        source = self.sources[name]
        wanted = difference(difference(ranges, source.asked), source.released)
        for other in self.sources.values():
            wanted = difference(wanted, RangeSet(other.under_way(wanted)))
        wanted = wanted[:RANGES_MAX]
        source.asked.update(wanted)
        if wanted and source.unanswered_since is None:
            source.unanswered_since = now
        return wanted

    def offered(self, name: bytes, ranges: list[Range]) -> None:
        """A source says that it keeps these, whatever it said before."""
        source = self.sources.get(name)
        if source is not None:
            source.offers = RangeSet(ranges)
            for first, last in ranges:
                source.lacks.discard(first, last)
                source.released.discard(first, last)

    def refused(self, name: bytes, ranges: list[Range], released: Iterable[Range]) -> None:
        """A source does not have these; of the released ones it says that it never will again."""
        source = self.sources.get(name)
        if source is not None:
            source.lacks.update(ranges)
            source.answered.update(ranges)
            source.released.update(released)
            source.unanswered_since = None

    def nobody_has(self, ranges: Iterable[Range], now: float, for_s: float, silent_s: float) -> list[Range]:
        """What of the ranges every source has refused for so long, in which nothing came that lacked.

        A source that said nothing for `silent_s` has nothing, but for what it says in its reports that it keeps.
        """
        left = list(ranges)
        for source in self.sources.values():
            spoken = [*intersection(left, source.lacks), *intersection(left, source.released)]
            if source.unanswered_since is not None and now - source.unanswered_since > silent_s:
                spoken += intersection(difference(left, source.offers), source.asked)
            left = RangeSet(spoken).ranges()
        return self._stood_for(left, now, for_s)

    def give_up(self, ranges: Iterable[Range]) -> None:
        """These lack no more, though they did not come."""
        for first, last in ranges:
            self._looked_at.discard(first, last)

    def _stood_for(self, hopeless: list[Range], now: float, for_s: float) -> list[Range]:
        """What was hopeless at every look for so long."""
        known = RangeSet()
        still: list[tuple[float, RangeSet]] = []
        for since, ranges in self._hopeless:
            if kept := intersection(hopeless, ranges):
                still.append((since, RangeSet(kept)))
                known.update(kept)
        if fresh := difference(hopeless, known):
            still.append((now, RangeSet(fresh)))
        self._hopeless = still
        return [r for since, ranges in still if now - since >= for_s for r in ranges]
