"""The data path's view of a topic at a peer: the ranges that arrived, a log of what is kept, and the channels out."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, REPAIR, Term
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import NO_RANGES, Range, RangeSet
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.ledger import NO_LEDGER, RUNS_MAX, Gone, Ledger, Run, runs_of, sequences_of, within
from quillcast.protocol.forwarding.log import Budget, Log

TERMS_KEPT_MAX = 16  # past terms that are kept for repair; a guess: several may follow within seconds after a partition
_ALL = [(0, NUMBER_MAX)]
FORGOTTEN_MAX = 256  # past terms that were discarded for good; a guess: more than neighbours may report


class Past:
    """A term that has ended: what arrived of it, how far it is known to have gone, and what is still kept for others.

    Its root declared it stable below `stable`, as far as this is known: nobody needs those events. The live publishers
    sent the events beyond it again, to a later root.
    """

    __slots__ = ("asked", "bundles", "end", "ledger", "seen", "stable", "until")

    def __init__(
        self, seen: RangeSet, end: int, bundles: list[Bundle], until: float, ledger: Ledger, stable: int = 0
    ) -> None:
        self.seen, self.end, self.bundles, self.until = seen, max(end, seen.end), bundles, until
        self.ledger, self.stable = ledger, stable
        self.asked = NO_RANGES  # indexes that neighbours asked for and that never arrived here

    def ask(self, ranges: Iterable[Range]) -> None:
        """Neighbours miss these indexes. This peer misses or has discarded them, and now wants them on their behalf."""
        self.asked = self.asked or RangeSet()
        for first, last in ranges:
            self.asked.add(first, last)
            self.seen.discard(first, last)

    def wanted(self) -> list[Range]:
        """The indexes that neighbours asked for and that are still missing."""
        return [piece for first, last in self.asked for piece in self.seen.missing(first, last)] if self.asked else []

    def kept(self) -> list[Range]:
        """The indexes of what is kept, as ranges."""
        return RangeSet((bundle.envelope.first, bundle.last) for bundle in self.bundles).ranges()


class Verdict(NamedTuple):
    """A flow's answer to a peer that misses ranges of a term."""

    held: list[Bundle]
    released: list[Range]
    """Discarded or given up: this peer will not have them again."""
    missing: list[Range]
    """Missing here, but may still arrive."""


class Flow:
    """A topic's entry in the forwarding table.

    `seen` holds the indexes of the current term that arrived or were given up. `start` is the first index that this
    peer is responsible for. `stable` is the position below which all leases are served, as declared by the term's root
    (0 until then). A reliable flow keeps its log until nobody needs it (`release`); a best-effort flow keeps nothing.
    """

    __slots__ = ("channels", "forgotten", "keeps", "ledger", "log", "past", "seen", "stable", "start", "term", "topic")

    def __init__(self, topic: bytes, budget: Budget, *, keeps: bool = True) -> None:
        self.topic = topic
        self.keeps = keeps
        self.term = NO_TERM
        self.start = 0
        self.stable = 0
        self.seen = NO_RANGES
        self.log = Log(budget)
        self.ledger = NO_LEDGER
        self.past: dict[Term, Past] = EMPTY
        self.forgotten: dict[Term, int] = EMPTY  # past terms that were discarded, and how far they went
        self.channels: tuple[Channel, ...] = ()

    @property
    def frontier(self) -> int:
        """One past the end of the contiguous run from the start. If nothing is kept, nothing counts as missing."""
        return self.seen.contiguous_from(self.start) if self.keeps else max(self.start, self.seen.end)

    @property
    def earliest(self) -> int:
        """The first index of this term from which everything is kept, or in transit."""
        oldest = self.log.at(self.log.base) if len(self.log) else None
        return min(oldest.envelope.first, self.frontier) if oldest is not None else self.frontier

    @property
    def begun(self) -> bool:
        """Does this peer know any term of the topic?"""
        return self.term != NO_TERM

    def begin(self, term: Term, start: int, until: float, known_end: int = 0) -> None:
        """Begin a new term. The previous one went up to `known_end`; what is kept of it stays until `until`."""
        if self.begun:
            end = max(self.start, known_end)
            seen, kept = self.seen or RangeSet(), self.log.bundles()
            self._note_past(self.term, Past(seen, end, kept, until, self.ledger))
            self.settle(self.term, self.stable)
            self.log.budget.used_bytes += self.log.size_bytes  # they stay in memory, as part of the past term
            self.log.drop(len(self.log))
        for channel in self.channels:
            channel.cursor, channel.cut = self.log.end, None
        self.term, self.start, self.stable, self.seen, self.ledger = term, start, 0, NO_RANGES, NO_LEDGER

    def may_recall(self, term: Term, end: int) -> bool:
        """Is this a past term that was not discarded already, as far as it went?"""
        return term < self.term and end > self.forgotten.get(term, -1)

    def recall(self, term: Term, end: int, until: float) -> bool:
        """Record how far a past term went, even one this peer missed. Its missing events are wanted until `until`.

        True if that was news.
        """
        past = self.past.get(term)
        if past is None:
            settled = self.forgotten.pop(term, 0)
            seen = RangeSet([(0, settled)] if settled else [])
            self._note_past(term, Past(seen, end, [], until, NO_LEDGER))
        elif end > past.end:
            past.end, past.until = end, max(past.until, until)
        else:
            return False
        return True

    def settle(self, term: Term, stable: int) -> bool:
        """Record the index below which the root of a past term declared it stable. True if that was news."""
        past = self.past.get(term)
        if past is None or stable <= past.stable:
            return False
        past.stable = stable
        for channel in self.channels:
            channel.settle(term, stable)
        return True

    def _note_past(self, term: Term, past: Past) -> None:
        self.past = self.past or {}
        self.past[term] = past

    def discard_past(self, term: Term, wanted_bytes: int | None = None, *, stable_only: bool = False) -> int:
        """Discard the oldest bundles of a past term: a number of bytes or all, of what is stable or of everything.

        Returns the number of discarded events. Only their runs are kept. Channels that wait for them are told.
        """
        past = self.past[term]
        gone, kept, freed_bytes = list[Bundle](), list[Bundle](), 0
        for bundle in past.bundles:
            enough = wanted_bytes is not None and freed_bytes >= wanted_bytes
            if enough or (stable_only and bundle.last > past.stable):
                kept.append(bundle)
            else:
                gone.append(bundle)
                freed_bytes += bundle.size
        if gone:
            past.bundles = kept
            self.log.budget.used_bytes -= freed_bytes
            past.ledger = _noted(past.ledger, gone)
            later = self.later_runs(term)
            for channel in self.channels:
                channel.discard_past(term, gone, past.ledger, later)
        return sum(bundle.count for bundle in gone)

    def overdue(self, now: float) -> list[Term]:
        """The past terms to discard, because they were kept for long enough or there are too many."""
        terms = sorted(self.past)
        return [term for term in terms if self.past[term].until <= now or term in terms[:-TERMS_KEPT_MAX]]

    def forget(self, term: Term) -> None:
        """Discard a past term for good."""
        self.discard_past(term)
        self.forgotten = self.forgotten or {}
        self.forgotten[term] = self.past.pop(term).end
        if len(self.forgotten) > FORGOTTEN_MAX:
            del self.forgotten[next(iter(self.forgotten))]

    def note_forgotten(self, ends: Iterable[tuple[Term, int]]) -> None:
        """Record past terms that nobody wants any more, and how far they went. What is known here stays."""
        new = {term: end for term, end in ends if term < self.term and term not in self.past}
        if new:
            self.forgotten = dict(sorted({**new, **self.forgotten}.items())[-FORGOTTEN_MAX:])

    def past_ends(self) -> tuple[tuple[Term, int], ...]:
        """How far each past term went: of terms that are kept or wanted, and of discarded ones."""
        ends = {**self.forgotten, **{term: past.end for term, past in self.past.items()}}
        return tuple(sorted(ends.items()))

    def move(self, bundle: Bundle) -> bool:
        """Send a bundle of the current term to every channel, each at its own pace. False for a repeat.

        A flow that keeps nothing must discard the bundle afterwards (`discard_all`).
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

    def discard_all(self) -> int:
        """Discard everything in the log. Returns how many channels were passed over because they had no room."""
        passed_over = 0
        for channel in self.channels:
            passed_over += channel.cursor < self.log.end
            channel.cursor = self.log.end
        self.log.drop(len(self.log))
        return passed_over

    def release(self, below: int, goal_bytes: int = 0) -> int:
        """Discard the oldest bundles below an index, until at most `goal_bytes` are left. Returns the discarded bytes.

        Only this method removes bundles from the log of a reliable flow. It tells the channels that had not taken them.
        """
        log, before = self.log, self.log.size_bytes
        gone = log.trim(below, goal_bytes)
        if not gone:
            return 0
        self.ledger = _noted(self.ledger, gone)
        for channel in self.channels:
            if channel.cursor < log.base:
                missed, channel.cursor = gone[channel.cursor - log.base :], log.base
                channel.pass_over(self.term, missed)
        return before - log.size_bytes

    def restore(self, bundle: Bundle) -> bool:
        """Add a bundle of a past term that arrived by repair. False if nothing of it was missing."""
        past = self.past.get(bundle.envelope.term)
        if past is None or not past.seen.add(bundle.envelope.first, bundle.last):
            return False
        past.bundles.append(bundle)
        past.end = max(past.end, bundle.last)
        self.log.budget.used_bytes += bundle.size
        return True

    def missing(self, end: int) -> list[Range]:
        """The missing ranges of the current term, up to an index."""
        return self.seen.missing(self.start, max(end, self.seen.end))

    def holding(self, term: Term, ranges: list[Range]) -> list[Bundle]:
        """The kept bundles of a term that overlap any of the ranges, as repairs."""
        if term == self.term:
            found = self.log.overlapping(ranges)
        else:
            past = self.past.get(term)
            kept = past.bundles if past else []
            found = [b for b in kept if any(b.envelope.first < last and first < b.last for first, last in ranges)]
        return [bundle.under(msgspec.structs.replace(bundle.envelope, kind=REPAIR)) for bundle in found]

    def verdict(self, term: Term, ranges: list[Range]) -> Verdict:
        """The answer to a peer that misses these ranges of a term."""
        held = self.holding(term, ranges)
        here = RangeSet((bundle.envelope.first, bundle.last) for bundle in held)
        absent = [piece for first, last in ranges for piece in here.missing(first, last)]
        seen = self._seen_of(term)
        return Verdict(
            held,
            [piece for first, last in absent for piece in seen.within(first, last)],
            [piece for first, last in absent for piece in seen.missing(first, last)],
        )

    def _seen_of(self, term: Term) -> RangeSet:
        if term == self.term:
            return self.seen
        past = self.past.get(term)
        return past.seen if past is not None else RangeSet([(0, self.forgotten.get(term, 0))])

    def runs(self, term: Term, ranges: Iterable[Range]) -> list[Run]:
        """The runs of events at these ranges of a term, as far as they are known here."""
        past, wanted = self.past.get(term), list(ranges)
        if term == self.term:
            ledger, kept = self.ledger, self.log.bundles()
        elif past is not None:
            ledger, kept = past.ledger, past.bundles
        else:
            return []
        return within([*ledger, *(run for bundle in kept for run in runs_of(bundle))], wanted)

    def later_runs(self, term: Term) -> list[Run]:
        """The runs of events that later terms hold or held: events admitted again are not lost with an earlier term."""
        later = [other for other in self.past if other > term]
        runs = [run for other in later for run in self.runs(other, _ALL)]
        return runs + self.runs(self.term, _ALL) if self.term > term else runs

    def may_be_readmitted(self, term: Term, ranges: Iterable[Range]) -> RangeSet:
        """The positions of a past term whose events may be admitted again: nothing later came from their publishers.

        No publisher sends events again that the root declared stable.
        """
        later = sequences_of(self.later_runs(term))
        awaited = RangeSet()
        for run in self.runs(term, ranges):
            reached = later[run.publisher].end if run.publisher in later else 0
            awaited.add(min(run.at + max(0, reached - run.first), run.at + run.events), run.at + run.events)
        if term in self.past:
            awaited.discard(0, self.past[term].stable)
        return awaited

    def gone(self, first: int) -> tuple[Gone, ...]:
        """What is no longer kept before an index of the current term: positions of this term and of the past ones.

        Events that a new term admitted again and that are kept there are not gone.
        """
        kept: dict[bytes, int] = {}  # lowest sequence by publisher
        for run in (run for bundle in self.log.bundles() if bundle.last > first for run in runs_of(bundle)):
            kept[run.publisher] = min(run.first, kept.get(run.publisher, run.first))
        ends = {**self.forgotten, **{term: past.end for term, past in self.past.items()}, self.term: first}
        return tuple([self._gone(term, ends[term], kept) for term in sorted(ends) if ends[term]])

    def _gone(self, term: Term, end: int, kept: dict[bytes, int]) -> Gone:
        runs, again = self.runs(term, [(0, end)]), RangeSet()
        for at, publisher, first, events in runs:
            again.add(at + max(0, kept.get(publisher, first + events) - first), at + events)
        ranges = again.missing(0, end)
        return Gone(term, tuple(ranges), tuple(within(runs, ranges)[-RUNS_MAX:]))

    def learn_runs(self, term: Term, runs: Iterable[Run]) -> None:
        """Keep runs at lost positions that a neighbour knows and this peer does not."""
        known = RangeSet((run.at, run.at + run.events) for run in self.runs(term, _ALL))
        runs = [run for run in runs if not known.covers(run.at, run.at + run.events)]
        past = self.past.get(term)
        if term == self.term:
            self.ledger = _with(self.ledger, runs)
        elif past is not None:
            past.ledger = _with(past.ledger, runs)

    def give_up(self, term: Term, ranges: list[Range]) -> None:
        """Treat ranges that nobody has as if they had arrived, so that later events can proceed."""
        past = self.past.get(term)
        self.seen = self.seen or RangeSet()
        seen = self.seen if term == self.term else past.seen if past else None
        if seen is not None:
            seen.update(ranges)

    def open(self, channel: Channel) -> None:
        """Add a channel, which starts at its cursor."""
        self.channels = (*self.channels, channel)

    def close(self, channel: Channel) -> None:
        """Remove a channel."""
        self.channels = tuple([other for other in self.channels if other is not channel])

    def check(self) -> None:
        """Raise AssertionError unless the parts of the flow agree."""
        self.seen.check()
        assert self.log.size_bytes == sum(bundle.size for bundle in self.log.bundles())
        assert all(term < self.term for term in self.past), (self.term, list(self.past))
        assert all(channel.cursor <= self.log.end for channel in self.channels)
        if self.keeps:
            assert all(channel.cursor >= self.log.base for channel in self.channels), (
                "bundles were discarded without telling a channel"
            )
        for past in self.past.values():
            kept = [(bundle.envelope.first, bundle.last) for bundle in past.bundles]
            assert len(kept) == len({*kept}), f"a bundle is kept twice: {kept}"
        held = RangeSet((b.envelope.first, b.last) for b in self.log.bundles())
        assert all(self.seen.covers(first, last) for first, last in held)


def _noted(ledger: Ledger, gone: Iterable[Bundle]) -> Ledger:
    return _with(ledger, (run for bundle in gone for run in runs_of(bundle)))


def _with(ledger: Ledger, runs: Iterable[Run]) -> Ledger:
    """The ledger with more runs; a new ledger if it was the shared empty one."""
    if ledger is NO_LEDGER:
        ledger = Ledger()
    for run in runs:
        ledger.add(run)
    return ledger
