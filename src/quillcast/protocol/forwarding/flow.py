"""One topic at one peer as the data path sees it: what came (ranges), what is kept (a log), where it goes."""

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, REPAIR, Term
from quillcast.core.ranges import NO_RANGES, Range, RangeSet
from quillcast.core.sparing import NOTHING
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.log import Budget, Log

TERMS_KEPT_MAX = 16  # past reigns that are kept for repair; a guess: after a split some follow within seconds
FORGOTTEN_MAX = 256  # past reigns that were let go and are not taken up again; a guess: more than neighbours may claim


class Past:
    """A reign that is over: what came of it, how far it is known to have gone, and what is still kept for others."""

    __slots__ = ("bundles", "end", "seen", "until")

    def __init__(self, seen: RangeSet, end: int, bundles: list[Bundle], until: float) -> None:
        self.seen, self.end, self.bundles, self.until = seen, max(end, seen.end), bundles, until

    def kept(self) -> list[Range]:
        """What is kept, as ranges of indexes."""
        return RangeSet((bundle.envelope.first, bundle.last) for bundle in self.bundles).ranges()


class Flow:
    """A topic's entry in the forwarding table.

    `seen` holds the indexes of the current term that came or were given up; `start` is where this peer's duty
    begins in it. A reliable flow keeps its log until `stable`; a best-effort one keeps nothing.
    """

    __slots__ = ("channels", "forgotten", "keeps", "log", "past", "seen", "stable", "start", "term", "topic")

    def __init__(self, topic: bytes, budget: Budget, *, keeps: bool = True) -> None:
        self.topic = topic
        self.keeps = keeps
        self.term = NO_TERM
        self.start = 0
        self.stable = 0
        self.seen = NO_RANGES
        self.log = Log(budget)
        self.past: dict[Term, Past] = NOTHING
        self.forgotten: dict[Term, int] = NOTHING  # past terms that were let go, and how far they went
        self.channels: tuple[Channel, ...] = ()

    @property
    def frontier(self) -> int:
        """One past the last index of the unbroken run from the start; where nothing is kept, nothing lacks."""
        return self.seen.contiguous_from(self.start) if self.keeps else max(self.start, self.seen.end)

    @property
    def earliest(self) -> int:
        """The first index of this term from which on everything is kept, or on its way."""
        oldest = self.log.at(self.log.base) if len(self.log) else None
        return min(oldest.envelope.first, self.frontier) if oldest is not None else self.frontier

    @property
    def begun(self) -> bool:
        """Has this peer heard of any term of the topic?"""
        return self.term != NO_TERM

    def begin(self, term: Term, start: int, until: float, known_end: int = 0) -> None:
        """Enter a new term. The one before went up to `known_end`; what is kept of it stays until the time `until`."""
        if self.begun:
            self._note_past(
                self.term, Past(self.seen or RangeSet(), max(self.start, known_end), self.log.bundles(), until)
            )
            self.log.budget.used_bytes += self.log.size_bytes  # they stay in memory, now as the past's
            self.log.drop(len(self.log))
        for channel in self.channels:
            channel.cursor = self.log.end
        self.term, self.start, self.stable, self.seen = term, start, start, NO_RANGES

    def may_recall(self, term: Term, end: int) -> bool:
        """Is this a past term that was not let go already, as far as it went?"""
        return term < self.term and end > self.forgotten.get(term, -1)

    def recall(self, term: Term, end: int, until: float) -> bool:
        """Learn how far a past reign went, be it that it was slept through; what lacks of it is wanted until a time.

        True if that was news.
        """
        past = self.past.get(term)
        if past is None:
            settled = self.forgotten.pop(term, 0)
            self._note_past(term, Past(RangeSet([(0, settled)] if settled else []), end, [], until))
        elif end > past.end:
            past.end, past.until = end, max(past.until, until)
        else:
            return False
        return True

    def _note_past(self, term: Term, past: Past) -> None:
        self.past = self.past or {}
        self.past[term] = past

    def thin(self, term: Term) -> None:
        """Keep no bundles of a past term any more, only what is known of it."""
        past = self.past[term]
        self.log.budget.used_bytes -= sum(bundle.size for bundle in past.bundles)
        past.bundles = []

    def overdue(self, now: float) -> list[Term]:
        """Past terms that are to be let go: kept for long enough, or too many."""
        terms = sorted(self.past)
        return [term for term in terms if self.past[term].until <= now or term in terms[:-TERMS_KEPT_MAX]]

    def forget(self, term: Term) -> None:
        """Let a past term go for good."""
        self.thin(term)
        self.forgotten = self.forgotten or {}
        self.forgotten[term] = self.past.pop(term).end
        if len(self.forgotten) > FORGOTTEN_MAX:
            del self.forgotten[next(iter(self.forgotten))]

    def move(self, bundle: Bundle) -> bool:
        """Hand a bundle of the current term to every channel, at each one's pace. False for a repeat: it ends here.

        A flow that keeps nothing is to let go of it (`let_go`).
        """
        if self.seen is NO_RANGES:
            self.seen = RangeSet()
        if not self.seen.add(bundle.envelope.first, bundle.last):
            return False
        log = self.log
        log.append(bundle)
        for channel in self.channels:
            channel.advance(log)
        return True

    def let_go(self) -> int:
        """Keep nothing of what was moved; returns how many channels had to be passed over for want of room."""
        passed_over = 0
        for channel in self.channels:
            passed_over += channel.cursor < self.log.end
            channel.cursor = self.log.end
        self.log.drop(len(self.log))
        return passed_over

    def restore(self, bundle: Bundle) -> bool:
        """Take in a bundle of a past term that came by repair. False if nothing of it was lacking."""
        past = self.past.get(bundle.envelope.term)
        if past is None or not past.seen.add(bundle.envelope.first, bundle.last):
            return False
        past.bundles.append(bundle)
        past.end = max(past.end, bundle.last)
        self.log.budget.used_bytes += bundle.size
        return True

    def lacking(self, end: int) -> list[Range]:
        """What lacks of the present term, up to an index."""
        return self.seen.missing(self.start, max(end, self.seen.end))

    def holding(self, term: Term, ranges: list[Range]) -> list[Bundle]:
        """The kept bundles of a term that hold any of the ranges, as addressed answers."""
        if term == self.term:
            found = self.log.overlapping(ranges)
        else:
            past = self.past.get(term)
            kept = past.bundles if past else []
            found = [b for b in kept if any(b.envelope.first < last and first < b.last for first, last in ranges)]
        return [bundle.under(msgspec.structs.replace(bundle.envelope, kind=REPAIR)) for bundle in found]

    def give_up(self, term: Term, ranges: list[Range]) -> None:
        """Treat ranges that nobody has as if they had come, so that what follows goes on."""
        past = self.past.get(term)
        self.seen = self.seen or RangeSet()
        seen = self.seen if term == self.term else past.seen if past else None
        if seen is not None:
            seen.update(ranges)

    def open(self, channel: Channel) -> None:
        """Serve one more channel from its cursor on."""
        self.channels = (*self.channels, channel)

    def close(self, channel: Channel) -> None:
        """Serve a channel no more."""
        self.channels = tuple([other for other in self.channels if other is not channel])

    def check(self) -> None:
        """Raise AssertionError unless the flow's parts agree with each other."""
        self.seen.check()
        assert self.log.size_bytes == sum(bundle.size for bundle in self.log.bundles())
        assert all(term < self.term for term in self.past), (self.term, list(self.past))
        assert all(channel.cursor <= self.log.end for channel in self.channels)
        held = RangeSet((b.envelope.first, b.last) for b in self.log.bundles())
        assert all(self.seen.covers(first, last) for first, last in held)
