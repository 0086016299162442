"""The data path's view of a topic at a peer: its streams, a log of what is kept of them, and the channels out.

A flow has one live stream per term that goes on, and remembers those that have ended. A control plane begins and ends
them, opens and closes channels, and says what may be discarded. Where a method takes no term, it means the current
one: that of the topic's root. The others are those of sources that number their own events.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import NO_TERM, REPAIR, Term, new_tuple
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX
from quillcast.core.ranges import NO_RANGES, Range, RangeSet
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX, Forgotten
from quillcast.protocol.forwarding.ledger import RUNS_MAX, Gone, Run, runs_of, sequences_of, within
from quillcast.protocol.forwarding.log import Budget, Log
from quillcast.protocol.forwarding.milestones import NOTHING_CAME, Came
from quillcast.protocol.forwarding.stream import (
    EndedStream,
    Held,
    OwnSourceStream,
    RootStream,
    SourceStream,
    Stream,
    told_age,
)

TERMS_KEPT_MAX = 16  # ended terms that are kept for repair; a guess: several may follow soon after a partition
HELD_RANGES_MAX = 8  # ranges named per ended term; more are told as the first ones are repaired
RESTRICTED, READMITTED = 1, 2
_ALL = [(0, NUMBER_MAX)]
AgedEnd = tuple[Term, int, int | None]
"""How far a term went that is over, and for how many milliseconds its events have been there, if that is known."""


class Verdict(msgspec.Struct, frozen=True):
    """A flow's answer to a peer that misses ranges of a term.

    `released` was discarded or given up: this peer will not have it again. `missing` is missing here, but may arrive.
    """

    held: list[Bundle]
    released: list[Range]
    missing: list[Range]


class Flow:
    """A topic's entry in the forwarding table.

    A reliable flow keeps its log until nobody needs it (`release`); a best-effort flow keeps nothing.
    """

    __slots__ = ("channels", "counted", "current", "forgotten", "keeps", "log", "others", "past", "topic")

    def __init__(self, topic: bytes, budget: Budget, *, keeps: bool = True) -> None:
        self.topic = topic
        self.keeps = keeps
        self.current = Stream(NO_TERM)
        self.others: dict[Term, SourceStream] = EMPTY  # other live streams
        self.past: dict[Term, EndedStream] = EMPTY
        self.forgotten: dict[Term, int] = EMPTY  # ended terms that were discarded, the latest last: how far they went
        self.counted = 0  # `restricted` and above it `readmitted_before`, in one: another takes 8 bytes per topic
        self.log = budget.empty
        self.channels: tuple[Channel, ...] = ()

    @property
    def restricted(self) -> bool:
        """Does a list say who may publish?"""
        return bool(self.counted & RESTRICTED)

    def restrict(self, *, restricted: bool) -> None:
        """Does a list say from now on who may publish?"""
        self.counted = self.counted & ~RESTRICTED | RESTRICTED * restricted

    def keep(self, *, keeps: bool) -> bool:
        """Is what comes from now on kept until nobody needs it? Returns whether it was until now."""
        kept, self.keeps = self.keeps, keeps
        return kept

    @property
    def readmitted_before(self) -> int:
        """Events of discarded terms that a later one admitted again."""
        return self.counted // READMITTED

    # ---- streams

    @property
    def term(self) -> Term:
        """The current term."""
        return self.current.term

    @property
    def begun(self) -> bool:
        """Does this peer know any term of the topic?"""
        return self.current.term != NO_TERM

    @property
    def frontier(self) -> int:
        """How far the current term came without a gap. If nothing is kept, nothing counts as missing."""
        seen, start = self.current.seen, self.current.start  # as in `_frontier`: each report asks for it several times
        return seen.contiguous_from(start) if self.keeps else max(start, seen.end)

    def _frontier(self, stream: Stream) -> int:
        seen, start = stream.seen, stream.start
        keeps = self.keeps if stream is self.current else self.is_reliable(stream.term)
        return seen.contiguous_from(start) if keeps else max(start, seen.end)  # `Stream.frontier`, inline

    def is_reliable(self, term: Term) -> bool:
        """Is a live term of a reliable session? A source's stream may have begun in an earlier one than goes on."""
        stream = self.others.get(term)
        return self.keeps if stream is None else stream.keeps

    @property
    def earliest(self) -> int:
        """The first index of the current term from which everything is kept, or in transit."""
        return self.kept_from(self.term)

    def kept_from(self, term: Term) -> int:
        """The first index of a live term from which everything is kept, or in transit."""
        frontier = self.front(term) or 0
        kept = RangeSet((b.envelope.first, b.last) for b in self.log.of(term)).within(0, frontier)
        return kept[-1][0] if kept and kept[-1][1] == frontier else frontier

    def kept_before(self, term: Term, index: int) -> int:
        """From where on all of a live term below an index is kept. The index itself, if not all of that came here."""
        return min(index, self.kept_from(term)) if (self.front(term) or 0) >= index else index

    def live_terms(self) -> tuple[Term, ...]:
        """The terms that go on, the current one last."""
        return (*self.others, self.term)

    def live_streams(self) -> tuple[Stream, ...]:
        """The streams that go on, the current one last."""
        return (*self.others.values(), self.current)

    def live(self, term: Term) -> Stream | None:
        """The stream of a term that goes on."""
        if term == self.current.term:
            return self.current
        return self.others.get(term)

    def _stream(self, term: Term) -> Stream | None:
        return self.live(term) or self.past.get(term)

    def stable_below(self, term: Term) -> int:
        """The index of a live term below which its root declared it stable."""
        stream = self.live(term)
        return stream.stable if stream is not None else 0

    def disowns(self, term: Term) -> bool:
        """Is this a root's term that knew no owner, though a list says who may publish, as beyond a partition?

        Nothing of it is taken or passed on. Publishers on the list send again what is not stable, to a later root.
        """
        return self.restricted and not (term.owned or term.of_source)

    def denies(self, bundle: Bundle, stream: Stream | None, sender: bytes) -> bool:
        """Is a neighbour's bundle, of a live stream or none, from somebody who may not publish?"""
        return self.disowns(bundle.envelope.term) or (
            stream is not None and stream.barred and stream.is_beyond(sender, bundle)
        )

    def begin(
        self, term: Term, start: int, until: float, known_end: int = 0, *, here: bool = False
    ) -> EndedStream | None:
        """A new term follows the current one, if any, which went up to `known_end` and is kept until `until`.

        `here`: this peer numbers its events.
        """
        former = self.term
        if self.begun:
            self.end(former, until, known_end)
        self.current = RootStream(term, start) if here else Stream(term, start)
        return self.past.get(former)

    def begin_beside(self, term: Term, start: int, *, here: bool = False) -> SourceStream:
        """Another term begins beside the current one, which goes on. `here`: this peer numbers its events."""
        if self.live(term) is not None:
            raise ValueError(f"{term} goes on already")
        self.others = self.others or {}
        self.others[term] = stream = (OwnSourceStream if here else SourceStream)(term, start)
        stream.keeps = not term.best_effort
        return stream

    def conclude(self, term: Term, end: int) -> None:
        """A term beside the current one is over: nobody needs anything of it any more. It went up to `end`."""
        self.drop(term)
        self.note_over(term, end)

    def drop(self, term: Term) -> None:
        """A term beside the current one is nobody's concern here any more: nothing of it is kept."""
        self.release(self.others[term].seen.end, term=term)
        del self.others[term]
        self.others = self.others or EMPTY

    def end(self, term: Term, until: float, known_end: int = 0) -> None:
        """A live term ends, which went up to `known_end`. What is kept of it stays until `until`."""
        stream = self.live(term)
        if stream is None:
            return
        for channel in self.channels:
            channel.end_term(self.log, term)
        bundles = self.log.drop(term)
        for channel in self.channels:
            channel.pass_to(self.log.base)
        came = self.log.came if stream is self.current else NOTHING_CAME
        self._note_past(EndedStream.of(stream, max(stream.start, known_end), bundles, until, came))
        self.settle(term, stream.stable)
        self.log.budget.use(sum(bundle.size for bundle in bundles))  # they stay in memory
        if stream is self.current:
            self.current = Stream(NO_TERM)
            if came is not NOTHING_CAME:
                self.log.came = NOTHING_CAME
        else:
            del self.others[term]
            self.others = self.others or EMPTY

    def note_came(self, at: float) -> None:
        """What is known of the current term was there by a time: what came, and what this peer began behind.

        So was what had not been read of terms that have ended.
        """
        for past in [past for past in self.past.values() if past.unread]:
            past.date_unread(at)
        end = max(self.current.start, self.current.seen.end) if self.log.end else self.current.start
        if end > self.log.came.end:
            self.log.came = new_tuple(Came, (end, at))

    def there_for(self, now: float) -> int:
        """For how many milliseconds all that is known of the current term has been there at least."""
        came = self.log.came
        return told_age(now - came.at) if 0 < self.current.seen.end <= came.end else 0

    def may_recall(self, term: Term, end: int) -> bool:
        """Is this an ended term that was not discarded already, as far as it went?"""
        return term < self.term and self.live(term) is None and end > self.forgotten.get(term, -1)

    def recall(self, term: Term, end: int, until: float) -> bool:
        """Record how far an ended term went, even one this peer missed. Its missing events are wanted until `until`.

        True if that was news.
        """
        past = self.past.get(term)
        if past is None:
            missed = Stream(term, settled := self.forgotten.pop(term, 0))
            if settled:
                missed.give_up([(0, settled)])
            self._note_past(EndedStream.of(missed, end, [], until))
        elif end > past.end:
            past.go_on(end, until)
        else:
            return False
        return True

    def settle(self, term: Term, stable: int) -> bool:
        """Record the index below which the root of an ended term declared it stable. True if that was news."""
        past = self.past.get(term)
        if past is None or stable <= past.stable:
            return False
        past.settle(stable)
        for channel in self.channels:
            channel.sink.settle(term, stable)
        return True

    def _note_past(self, past: EndedStream) -> None:
        self.past = self.past or {}
        self.past[past.term] = past

    def holds_past(self, blocks: Iterable[Block]) -> bool:
        """Are these events kept of ended terms?"""
        kept = sequences_of(run for past in self.past.values() for run in runs_of(*past.bundles))
        return all(
            block.publisher in kept and kept[block.publisher].covers(block.first, block.last) for block in blocks
        )

    def overdue(self, now: float) -> list[Term]:
        """The ended terms to discard, because they were kept for long enough or there are too many."""
        terms = sorted(self.past)
        spare = len(terms) - TERMS_KEPT_MAX
        return [term for place, term in enumerate(terms) if self.past[term].until <= now or place < spare]

    @property
    def kept_bytes(self) -> int:
        """The size of all that is kept: of live terms and of ended ones."""
        return self.log.size_bytes + sum(bundle.size for past in self.past.values() for bundle in past.bundles)

    def forget(self, term: Term) -> None:
        """Discard an ended term for good."""
        self.counted += READMITTED * self._readmitted(term)
        self.discard_past(term)
        past = self.past.pop(term)
        self._forgotten().note(term, past.end, past.came.at if past.is_dated else None)

    def _forgotten(self) -> Forgotten:
        if not isinstance(self.forgotten, Forgotten):
            self.forgotten = Forgotten()
        return self.forgotten

    def note_over(self, term: Term, end: int) -> None:
        """A term is over, and went up to `end`: nothing of it is kept, and its end is remembered for a while."""
        self._forgotten().note(term, end)

    def note_over_before(self, ends: Iterable[tuple[Term, int]]) -> None:
        """The same of terms that were over before all others that are remembered, as far as there is room for them."""
        self.forgotten = self._forgotten().and_before((term, end, None) for term, end in ends)

    def note_forgotten(self, ends: Iterable[AgedEnd], now: float) -> None:
        """Record ended terms that nobody wants any more, and how far they went. What is known here stays."""
        new = [each for each in ends if self.may_recall(*each[:2]) and each[0] not in self.past]
        if new:
            dated = [(term, end, None if there_ms is None else now - there_ms / 1000) for term, end, there_ms in new]
            self.forgotten = self._forgotten().and_before(dated)

    def forgotten_lately(self) -> tuple[tuple[Term, int], ...]:
        """The discarded terms of which others are told, and how far they went: those discarded last."""
        return tuple(self.forgotten.items())[-ENDS_TOLD_MAX:]

    def knows(self, term: Term) -> bool:
        """Is this a term that goes on, or has ended, as far as this peer remembers?"""
        return self.live(term) is not None or term in self.past or term in self.forgotten

    def past_ends(self) -> tuple[tuple[Term, int], ...]:
        """How far each ended term went: of terms that are kept or wanted, and of those discarded last."""
        ends = {**dict(self.forgotten_lately()), **{term: past.end for term, past in self.past.items()}}
        return tuple(sorted(ends.items()))

    def aged(self, ends: Iterable[tuple[Term, int]], now: float) -> tuple[AgedEnd, ...]:
        """The same, with for how many milliseconds all events of each term have been there, if that is known."""
        return tuple((term, end, self._there_for(term, now)) for term, end in ends)

    def _there_for(self, term: Term, now: float) -> int | None:
        if term in self.past:
            return self.past[term].there_for(now)
        since = self._forgotten().since.get(term)
        return None if since is None else told_age(now - since)

    def held(self, now: float) -> Held:
        """How far the latest ended terms went and what is kept of them, for neighbours that miss some of it."""
        if not self.past:
            return ()
        past_terms = sorted(self.past.items())[-TERMS_KEPT_MAX:]
        return tuple(
            [(term, past.end, self._offered(past), past.stable, past.there_for(now)) for term, past in past_terms]
        )

    def _offered(self, past: EndedStream) -> tuple[Range, ...]:
        return () if self.disowns(past.term) else tuple(past.kept()[:HELD_RANGES_MAX])

    # ---- the way of a bundle

    def note_way(self, bundle: Bundle, sender: bytes) -> None:
        """A bundle of a source came from a neighbour, or `BESIDE`: so its stream comes, unless this is a repeat."""
        stream = self.others.get(bundle.envelope.term)
        if stream is not None and not stream.seen.covers(bundle.envelope.first, bundle.last):
            stream.via = sender

    def move(self, bundle: Bundle, stream: Stream) -> bool:
        """Send a bundle of a live term to every channel, each at its own pace. False for a repeat.

        A flow that keeps nothing must discard the bundle afterwards (`discard_unkept`).
        """
        seen = stream.seen
        is_new = stream.add(bundle) if seen is NO_RANGES else seen.add(bundle.envelope.first, bundle.last)
        if not is_new:
            return False
        if self.log.end == 0:
            self.log = Log(self.log.budget)  # its first bundle
        log = self.log
        serial = log.end
        log.append(bundle)
        for channel in self.channels:
            if channel.cursor != serial or channel.filter is not None or channel.backlog:
                channel.advance(log)
            elif channel.sink.room() > 0:  # the common case, at less than half the cost
                channel.cursor = serial + 1
                channel.sink.take(bundle)
        return True

    def restore(self, bundle: Bundle) -> bool:
        """Keep a bundle of an ended term that arrived by repair. False if nothing of it was missing.

        It goes to the sinks that are owed every event; peers that miss it will ask.
        """
        past = self.past.get(bundle.envelope.term)
        if past is None or not past.add(bundle):
            return False
        past.keep(bundle)
        self.log.budget.use(bundle.size)
        for channel in self.channels:
            channel.restore(bundle)
        return True

    # ---- channels

    def open(self, channel: Channel) -> None:
        """Add a channel, which starts at its cursor, or at what is left after it."""
        channel.pass_to(self.log.base)
        self.channels = (*self.channels, channel)

    def close(self, channel: Channel) -> None:
        """Remove a channel."""
        self.channels = tuple([other for other in self.channels if other is not channel])

    def serve(self, channel: Channel) -> bool:
        """A channel's sink has room again, or the channel has just begun: pass on what waits. False if it is closed."""
        if channel not in self.channels:
            return False
        channel.advance(self.log)
        return True

    def first_over(self, index: int) -> int:
        """The serial at which a channel starts that needs the current term from an index on."""
        return self.log.first_over(self.term, index)

    def first_beyond(self, frontiers: Mapping[Term, int]) -> int:
        """The serial at which a channel starts that needs each term from an index on, and other terms whole."""
        for serial, bundle in self.log.entries():
            if bundle.last > frontiers.get(bundle.envelope.term, 0):
                return serial
        return self.log.end

    # ---- what is discarded

    def discard_unkept(self) -> int:
        """Discard what is in the log of best-effort terms. Returns how many channels were passed over for want of room.

        Streams of sources that began in a reliable session stay, until they are over.
        """
        entries = self.log.entries()  # as nearly always, only the bundle that has just come
        if any(self.is_reliable(bundle.envelope.term) for _, bundle in entries):
            gone = [entry for entry in entries if not self.is_reliable(entry[1].envelope.term)]
            passed_over = sum(any(channel.cursor <= serial for serial, _ in gone) for channel in self.channels)
            self.log.take_out(gone)
            for channel in self.channels:
                channel.pass_to(self.log.base)
            return passed_over
        passed_over = 0
        for channel in self.channels:
            if channel.cursor < self.log.end:
                channel.pass_to(self.log.end)
                passed_over += 1
        self.log.clear()
        return passed_over

    def release(self, below: int, goal_bytes: int = 0, *, term: Term | None = None) -> int:
        """Discard the oldest bundles of a term below an index, until at most `goal_bytes` are left in the log.

        Returns the discarded bytes. Only this method removes bundles of a live term from the log of a reliable flow. It
        tells the channels that had not taken them.
        """
        log, before = self.log, self.log.size_bytes
        stream = self.current if term is None else self.live(term)
        gone = log.trim(stream.term, below, goal_bytes) if stream is not None else []
        if stream is None or not gone:
            return 0
        stream.note_runs(runs_of(*[bundle for _, bundle in gone]))
        for channel in self.channels:
            first = channel.cursor
            channel.cursor = max(first, log.base)  # past what other terms discarded before, too
            if first <= gone[-1][0]:
                channel.pass_over(stream.term, [bundle for serial, bundle in gone if serial >= first])
        return before - log.size_bytes

    def discard_past(self, term: Term, wanted_bytes: int | None = None, *, needless_only: bool = False) -> int:
        """Discard the oldest bundles of an ended term: a number of bytes or all, of what nobody needs or of everything.

        Returns the number of discarded events. Only their runs are kept. Channels that wait for them are told.
        """
        past = self.past[term]
        gone, kept, freed_bytes = list[Bundle](), list[Bundle](), 0
        needed = self._needed(past) if needless_only and past.bundles else None
        for bundle in past.bundles:
            enough = wanted_bytes is not None and freed_bytes >= wanted_bytes
            if enough or (needed is not None and needed(bundle)):
                kept.append(bundle)
            else:
                gone.append(bundle)
                freed_bytes += bundle.size
        if gone:
            past.keep_only(kept)
            self.log.budget.free(freed_bytes)
            past.note_runs(runs_of(*gone))
            others = self.runs_of_others(term)
            for channel in self.channels:
                channel.discard_past(term, gone, past.ledger, others)
        return sum(bundle.count for bundle in gone)

    def _needed(self, past: EndedStream) -> Callable[[Bundle], bool]:
        """Which bundles of an ended term somebody may need.

        Those that wait in a channel here, and all while it is not known whether a sink is owed them. Of the others,
        those that are not stable and that no later term admitted again: subscribers that are owed them are owed that
        term too.
        """
        if any(channel.sink.may_be_owed(past.term) for channel in self.channels):
            return lambda bundle: True
        channels, again = self.channels, self._admitted_later(past.term)
        waiting = RangeSet((b.envelope.first, b.last) for channel in channels for b in channel.waiting(past.term))

        def needed(bundle: Bundle) -> bool:
            if waiting.within(bundle.envelope.first, bundle.last):
                return True
            return bundle.last > past.stable and not all(
                run.publisher in again and again[run.publisher].covers(run.first, run.first + run.events)
                for run in runs_of(bundle)
            )

        return needed

    def lose(self, term: Term, ranges: list[Range]) -> None:
        """No peer has these ranges: continue without them, and report them to the sinks that are owed them."""
        runs, others = self.runs(term, ranges), self.runs_of_others(term)
        stream = self._stream(term)
        if stream is not None:
            stream.give_up(ranges)
        for channel in self.channels:
            channel.sink.skip(term, ranges, "unavailable", runs, others)

    def give_up_owed(self, term: Term) -> None:
        """Tell each sink that what it is owed of an ended term will not arrive."""
        past = self.past[term]
        for channel in self.channels:
            if lacking := channel.sink.lacking(term, past.seen, past.end):
                channel.sink.skip(term, lacking, "unavailable", self.runs(term, lacking), self.runs_of_others(term))

    # ---- what is owed and what is kept

    def owed(self, term: Term) -> RangeSet:
        """What sinks here are owed of an ended term, or neighbours requested, and never arrived."""
        past = self.past[term]
        owed = RangeSet(past.wanted())
        for channel in self.channels:
            owed.update(channel.sink.lacking(term, past.seen, past.end))
        return owed

    def pass_had(self, term: Term) -> bool:
        """Sinks wait no more for positions of an ended term whose events they had from another. True if one did."""
        past = self.past[term]
        lacking = [r for channel in self.channels for r in channel.sink.lacking(term, past.seen, past.end)]
        runs = self.runs(term, RangeSet(lacking)) if lacking else []
        sinks = [channel.sink for channel in self.channels] if runs else []
        return sum(sink.pass_had(term, past.seen, past.end, runs) for sink in sinks) > 0

    def undated(self) -> dict[Term, list[Range]]:
        """What sinks missed first of streams, and may have been there before they began."""
        missed: dict[Term, list[Range]] = {}
        for channel in self.channels:
            for term, (piece, _) in channel.sink.undated.items():
                missed.setdefault(term, []).append(piece)
        return {term: RangeSet(ranges).ranges() for term, ranges in missed.items()}

    def front(self, term: Term) -> int | None:
        """The first missing index of a term: of an ended one, of what is owed here or a neighbour asked for."""
        current = self.current
        stream = current if term == current.term else self.others.get(term)
        if stream is not None:
            return self._frontier(stream)
        owed = self.owed(term) if term in self.past else None
        return owed.start if owed else None

    def waits_for(self, term: Term) -> bool:
        """Does a channel keep something of an ended term, for want of room or because of what is missing before it?"""
        return any(channel.waits_for(term) for channel in self.channels)

    def holding(self, term: Term, ranges: list[Range]) -> list[Bundle]:
        """The kept bundles of a term that overlap any of the ranges, as repairs, if others may have them."""
        past = self.past.get(term)
        if self.disowns(term):
            return []
        if past is None:
            found = self.log.overlapping(term, ranges)
        else:
            kept = past.bundles
            found = [b for b in kept if any(b.envelope.first < last and first < b.last for first, last in ranges)]
        return [bundle.under(msgspec.structs.replace(bundle.envelope, kind=REPAIR, record=b"")) for bundle in found]

    def verdict(self, term: Term, ranges: list[Range]) -> Verdict:
        """The answer to a peer that misses these ranges of a term."""
        held = self.holding(term, ranges)
        here = RangeSet((bundle.envelope.first, bundle.last) for bundle in held)
        absent = [piece for first, last in ranges for piece in here.missing(first, last)]
        stream = self._stream(term)
        seen = stream.seen if stream is not None else RangeSet([(0, self.forgotten.get(term, 0))])
        return Verdict(
            held,
            [piece for first, last in absent for piece in seen.within(first, last)],
            [piece for first, last in absent for piece in seen.missing(first, last)],
        )

    def given_up(self, term: Term, first: int) -> list[Range]:
        """The positions of a live term, from an index on, that were given up here, beyond a gap perhaps."""
        stream, kept = self.live(term), RangeSet((b.envelope.first, b.last) for b in self.log.of(term))
        beyond = stream.seen.within(first, stream.seen.end) if stream is not None else []
        return [piece for begin, end in beyond for piece in kept.missing(begin, end)]

    # ---- which events were where

    def runs(self, term: Term, ranges: Iterable[Range]) -> list[Run]:
        """The runs of events at these ranges of a term, as far as they are known here."""
        stream, past = self._stream(term), self.past.get(term)
        if stream is None:
            return []
        kept = past.bundles if past is not None else self.log.of(term)
        return within([*stream.ledger, *runs_of(*kept)], ranges)

    def runs_of_others(self, term: Term) -> dict[Term, list[Run]]:
        """The runs of events that other terms hold or held: an event may stand in several."""
        others = [other for other in (*self.past, *self.others, self.term) if other != term]
        if term.of_source:  # what a source numbered, nobody admits again before another session
            others = [other for other in others if other.session > term.session]
        return {other: self.runs(other, _ALL) for other in others}

    def may_be_readmitted(self, term: Term, ranges: Iterable[Range]) -> RangeSet:
        """The positions of an ended term whose events may be admitted again: nothing later came from their publishers.

        No publisher sends events again that the root declared stable.
        """
        later, awaited = self._admitted_later(term), RangeSet()
        for run in self.runs(term, ranges):
            reached = later[run.publisher].end if run.publisher in later else 0
            awaited.add(min(run.at + max(0, reached - run.first), run.at + run.events), run.at + run.events)
        if term in self.past:
            awaited.discard(0, self.past[term].stable)
        return awaited

    def readmitted(self) -> int:
        """Events of ended terms that a later one admitted again, as far as it is known here which events they are."""
        return self.readmitted_before + sum(map(self._readmitted, self.past))

    def _admitted_later(self, term: Term) -> dict[bytes, RangeSet]:
        """The sequences that later terms admitted, by publisher, as far as they are known here."""
        others = self.runs_of_others(term)
        return sequences_of(run for other, runs in others.items() if term.precedes(other) for run in runs)

    def admitted_again(self, term: Term, ranges: Iterable[Range]) -> RangeSet:
        """The positions of an ended term whose events a later one admitted again, as far as they are known here."""
        later, again = self._admitted_later(term), RangeSet()
        for run in self.runs(term, ranges) if later else ():
            sequences = later.get(run.publisher, NO_RANGES).within(run.first, run.first + run.events)
            again.update((run.at + first - run.first, run.at + last - run.first) for first, last in sequences)
        return again

    def _readmitted(self, term: Term) -> int:
        return sum(last - first for first, last in self.admitted_again(term, _ALL))

    def gone(self, first: int, starts: Mapping[Term, int] = EMPTY) -> tuple[Gone, ...]:
        """What is no longer kept before an index of the current term, of other live terms and of ended ones.

        `starts` has these indexes of other live terms; else it is where what is kept of them begins. Events that a new
        term admitted again and that are kept there are not gone.
        """
        kept: dict[bytes, int] = {}  # lowest sequence by publisher
        for run in runs_of(*[bundle for bundle in self.log.of(self.term) if bundle.last > first]):
            kept[run.publisher] = min(run.first, kept.get(run.publisher, run.first))
        others = {term: starts[term] if term in starts else self.kept_from(term) for term in self.others}
        ends = {**dict(self.past_ends()), self.term: first, **others}
        return tuple([self._gone(term, ends[term], kept) for term in sorted(ends) if ends[term]])

    def _gone(self, term: Term, end: int, kept: dict[bytes, int]) -> Gone:
        runs, again = self.runs(term, [(0, end)]), RangeSet()
        for at, publisher, first, events in runs:
            again.add(at + max(0, kept.get(publisher, first + events) - first), at + events)
        ranges = again.missing(0, end)
        sent_again = term.of_source and term.session < self.term.session  # their source may not have known it stable
        may_come = sent_again or term not in self.forgotten
        return Gone(term, tuple(ranges), tuple(within(runs, ranges)[-RUNS_MAX:]), may_come)

    def reopen(self, term: Term, start: int) -> None:
        """A live term is wanted from an index on: what this peer had of that and discarded counts as missing."""
        stream, kept = self.live(term), RangeSet((b.envelope.first, b.last) for b in self.log.of(term))
        if stream is None:
            return
        for first, last in kept.missing(start, self.kept_from(term)):
            stream.seen.discard(first, last)
        stream.serve_from(start)

    def gone_there(self, gone: Iterable[Gone], first: int) -> tuple[Gone, ...]:
        """What another peer keeps no more, with the events that are known here at these positions.

        Of the streams that this peer numbers itself nothing comes back: there its own buffer counts.
        """
        mine = {stream.term for stream in self.live_streams() if stream.numbered_here}
        there = [each for each in gone if each.term not in mine]
        here = [each for each in self.gone(first) if each.term in mine]
        both = [*[each._replace(runs=(*each.runs, *self.runs(each.term, each.ranges))) for each in there], *here]
        return tuple(sorted(both, key=lambda each: each.term))

    def learn_runs(self, term: Term, runs: Iterable[Run]) -> list[Run]:
        """Keep runs at lost positions that a neighbour knows and this peer does not. Returns these."""
        stream = self._stream(term)
        if stream is None or not runs:
            return []
        known = RangeSet((run.at, run.at + run.events) for run in self.runs(term, _ALL))
        news = [run for run in runs if not known.covers(run.at, run.at + run.events)]
        stream.note_runs(news)
        return news

    # ---- consistency

    def check(self) -> None:
        """Raise AssertionError unless the parts of the flow agree."""
        kept = self.log.bundles()
        assert self.log.size_bytes == sum([bundle.size for bundle in kept])
        assert not any(self.live(term) for term in self.past), (self.term, list(self.past))
        assert all(channel.cursor <= self.log.end for channel in self.channels)
        if self.keeps:
            assert all(channel.cursor >= self.log.base for channel in self.channels), (
                "bundles were discarded without telling a channel"
            )
        for past in self.past.values():
            ranges = [(bundle.envelope.first, bundle.last) for bundle in past.bundles]
            assert len(ranges) == len({*ranges}), f"a bundle is kept twice: {ranges}"
        for stream in self.live_streams():
            stream.seen.check()
        for term, first, last in _runs(kept):
            live = self.live(term)
            assert live is None or live.seen.covers(first, last)


def _runs(bundles: Iterable[Bundle]) -> Iterator[tuple[Term, int, int]]:
    """The ranges of bundles by term; those that follow each other are one."""
    term, first, last = NO_TERM, 0, 0
    for bundle in bundles:
        envelope = bundle.envelope
        if envelope.first != last or envelope.term != term:
            yield term, first, last
            term, first = envelope.term, envelope.first
        last = bundle.last
    yield term, first, last
