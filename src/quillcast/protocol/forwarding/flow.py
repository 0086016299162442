"""The data path's view of a topic at a peer: its streams, a log of what is kept of them, and the channels out.

A flow has a stream for each live term, and remembers terms that have ended (`past_terms.py`). A control plane
begins and ends them, opens and closes channels, and says what may be discarded. Where a method takes no term, it means
the current one: that of the topic's root. The others are those of sources that number their own events.

See also: which events stand where in its terms (`event_places.py`), the answer to a peer that misses some
(`answers.py`), and what is discarded of ended terms or given up, and which sinks are told (`discarding.py`).
"""

from collections.abc import Iterable, Iterator, Mapping

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Term, new_tuple
from quillcast.core.interning import EMPTY
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.forwarding.channels import Channel, offer
from quillcast.protocol.forwarding.ledger import runs_of
from quillcast.protocol.forwarding.log import Budget, Log
from quillcast.protocol.forwarding.milestones import NO_ARRIVAL, Came
from quillcast.protocol.forwarding.past_terms import NO_PAST, AgedEnd, PastTerms
from quillcast.protocol.forwarding.stream import (
    EndedStream,
    HeldTerms,
    OwnSourceStream,
    RootStream,
    SourceStream,
    Stream,
    told_age,
)


class Flow:
    """A topic's entry in the forwarding table.

    A reliable flow keeps its log until nobody needs it (`release`); a best-effort flow keeps nothing.
    """

    __slots__ = ("channels", "current", "keeps", "log", "others", "past", "restricted", "topic")

    def __init__(self, topic: bytes, budget: Budget, *, keeps: bool = True) -> None:
        self.topic = topic
        self.keeps = keeps
        self.current = Stream(NO_TERM)
        self.others: dict[Term, SourceStream] = EMPTY  # other live streams
        self.past: PastTerms = NO_PAST
        self.restricted = False  # does a list name publishers?
        self.log = budget.empty
        self.channels: tuple[Channel, ...] = ()

    def restrict(self, *, restricted: bool) -> None:
        """Set whether a list names publishers from now on."""
        self.restricted = restricted

    def keep(self, *, keeps: bool) -> bool:
        """Set whether arriving bundles are kept until nobody needs them. Returns whether they were until now."""
        kept, self.keeps = self.keeps, keeps
        return kept

    # ---- streams

    @property
    def term(self) -> Term:
        """The current term."""
        return self.current.term

    @property
    def begun(self) -> bool:
        """Whether this peer knows a term of the topic."""
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
        """Whether a live term is of a reliable session. A source's stream may have begun before the present one."""
        stream = self.others.get(term)
        return self.keeps if stream is None else stream.keeps

    @property
    def earliest(self) -> int:
        """The first index of the current term from which everything is kept, or in transit."""
        return self.kept_from(self.term)

    def kept_of(self, term: Term) -> RangeSet:
        """The indexes of a live term whose bundles are kept."""
        return RangeSet((bundle.envelope.first, bundle.last) for bundle in self.log.of(term))

    def kept_from(self, term: Term) -> int:
        """The first index of a live term from which everything is kept, or in transit."""
        frontier = self.front(term) or 0
        kept = self.kept_of(term).within(0, frontier)
        return kept[-1][0] if kept and kept[-1][1] == frontier else frontier

    def kept_before(self, term: Term, index: int) -> int:
        """Where the events of a live term that are kept, or in transit, up to an index without a gap begin.

        A peer that is ahead of this one may have discarded these bundles itself: it will get them from here.
        """
        first, frontier = self.kept_from(term), self.front(term) or 0
        return min(index, first) if first < frontier or index <= frontier else index

    def live_terms(self) -> tuple[Term, ...]:
        """The live terms, the current one last."""
        return (*self.others, self.term)

    def live_streams(self) -> tuple[Stream, ...]:
        """The live streams, the current one last."""
        return (*self.others.values(), self.current)

    def live(self, term: Term) -> Stream | None:
        """The stream of a live term."""
        if term == self.current.term:
            return self.current
        return self.others.get(term)

    def stream(self, term: Term) -> Stream | None:
        """The stream of a live term, or of an ended one that is kept or wanted."""
        return self.live(term) or self.past.get(term)

    def open_past(self) -> PastTerms:
        """The ended terms, in an object of the flow's own from now on."""
        if self.past is NO_PAST:
            self.past = PastTerms()
        return self.past

    def stable_below(self, term: Term) -> int:
        """The index of a live term below which its root declared it stable."""
        stream = self.live(term)
        return stream.stable if stream is not None else 0

    def disowns(self, term: Term) -> bool:
        """Is this the term of a root that did not know the topic's owner, although a list names publishers?

        Its events are neither accepted nor passed on. Publishers on the list send what is not stable to a later root.
        """
        return self.restricted and not (term.owned or term.of_source)

    def denies(self, bundle: Bundle, stream: Stream | None, sender: bytes) -> bool:
        """Whether a neighbour's bundle, of a live stream or none, is from a peer that may not publish."""
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
        """Another term begins beside the current one. `here`: this peer numbers its events."""
        if self.live(term) is not None:
            raise ValueError(f"{term} goes on already")
        self.others = self.others or {}
        self.others[term] = stream = (OwnSourceStream if here else SourceStream)(
            term, start, keeps=not term.best_effort
        )
        return stream

    def conclude(self, term: Term, end: int) -> None:
        """A term beside the current one has ended at `end`, and none of its events are needed any longer."""
        self.drop(term)
        self.open_past().note_over(term, end)

    def drop(self, term: Term) -> None:
        """Discard a term beside the current one, which this peer no longer needs."""
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
        came = self.log.came if stream is self.current else NO_ARRIVAL
        self.open_past().add(EndedStream.of(stream, max(stream.start, known_end), bundles, until, came))
        self.settle(term, stream.stable)
        self.log.budget.use(sum(bundle.size for bundle in bundles))  # they stay in memory
        if stream is self.current:
            self.current = Stream(NO_TERM)
            if came is not NO_ARRIVAL:
                self.log.note_came(NO_ARRIVAL)
        else:
            del self.others[term]
            self.others = self.others or EMPTY

    def note_came(self, at: float) -> None:
        """All that is known of the current term had arrived, here or before this peer began, by a time.

        The same holds for unread events of terms that have ended.
        """
        for past in [past for past in self.past.values() if past.unread]:
            past.date_unread(at)
        end = max(self.current.start, self.current.seen.end) if self.log.end else self.current.start
        if end > self.log.came.end:
            self.log.note_came(new_tuple(Came, (end, at)))

    def there_for(self, now: float) -> int:
        """The least number of milliseconds for which all known events of the current term have existed."""
        came = self.log.came
        return told_age(now - came.at) if 0 < self.current.seen.end <= came.end else 0

    def may_recall(self, term: Term, end: int) -> bool:
        """Whether this is an ended term that was not yet discarded up to that end."""
        return term < self.term and self.live(term) is None and end > self.past.forgotten.get(term, -1)

    def settle(self, term: Term, stable: int) -> bool:
        """Record the index below which the root of an ended term declared it stable. True if that was news."""
        past = self.past.get(term)
        if past is None or stable <= past.stable:
            return False
        past.settle(stable)
        for channel in self.channels:
            channel.sink.settle(term, stable)
        return True

    @property
    def kept_bytes(self) -> int:
        """The size of all that is kept of live and ended terms."""
        return self.log.size_bytes + self.past.kept_bytes

    def note_forgotten(self, ends: Iterable[AgedEnd], now: float) -> None:
        """Record ended terms that are no longer wanted, and how far they went. What is known here stays."""
        new = [each for each in ends if self.may_recall(*each[:2]) and each[0] not in self.past]
        if new:
            self.open_past().note_forgotten(new, now)

    def knows(self, term: Term) -> bool:
        """Whether this peer remembers this term, live or ended."""
        return self.live(term) is not None or term in self.past or term in self.past.forgotten

    def held(self, now: float) -> HeldTerms:
        """How far the latest ended terms went and what is kept of them, for neighbours that miss some events."""
        return self.past.held(now, self.disowns) if self.past else ()

    # ---- the way of a bundle

    def note_way(self, bundle: Bundle, sender: bytes) -> None:
        """A source's bundle came from a neighbour, or `BESIDE`: its stream comes that way, unless this is a repeat."""
        stream = self.others.get(bundle.envelope.term)
        if stream is not None and not stream.seen.covers(bundle.envelope.first, bundle.last):
            stream.come_from(sender)

    def move(self, bundle: Bundle, stream: Stream) -> bool:
        """Send a bundle of a live term to every channel, each at its own pace. False for a repeat.

        A flow that keeps nothing must discard the bundle afterwards (`discard_unkept`).
        """
        if not stream.add(bundle):
            return False
        if self.log.end == 0:
            self.log = Log(self.log.budget)  # its first bundle
        log = self.log
        log.append(bundle)
        offer(self.channels, bundle, log)
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
        """Add a channel, which starts at its cursor, or at the first kept bundle after it."""
        channel.pass_to(self.log.base)
        self.channels = (*self.channels, channel)

    def close(self, channel: Channel) -> None:
        """Remove a channel."""
        self.channels = tuple([other for other in self.channels if other is not channel])

    def serve(self, channel: Channel) -> bool:
        """A channel's sink has room again, or it has just begun: pass on what waits. False if it is closed."""
        if channel not in self.channels:
            return False
        channel.advance(self.log)
        return True

    def first_over(self, index: int) -> int:
        """The serial at which a channel starts that needs the current term from an index on."""
        return self.log.first_over(self.term, index)

    def first_beyond(self, frontiers: Mapping[Term, int]) -> int:
        """The serial at which a channel starts that needs each term from an index on, and other terms in full."""
        for serial, bundle in self.log.entries():
            if bundle.last > frontiers.get(bundle.envelope.term, 0):
                return serial
        return self.log.end

    # ---- what is discarded

    def discard_unkept(self) -> int:
        """Discard what is in the log of best-effort terms. Returns how many channels missed it for lack of room.

        Streams of sources that began in a reliable session stay until they end.
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
            first = channel.pass_to(log.base)  # also past what other terms discarded before
            if first <= gone[-1][0]:
                channel.pass_over(stream.term, [bundle for serial, bundle in gone if serial >= first])
        return before - log.size_bytes

    # ---- what is owed and what is kept

    def owed(self, term: Term) -> RangeSet:
        """The events of an ended term that sinks here are owed, or neighbours requested, and that never arrived."""
        past = self.past[term]
        owed = RangeSet(past.wanted())
        for channel in self.channels:
            owed.update(channel.sink.lacking(term, past.seen, past.end))
        return owed

    def undated(self) -> dict[Term, list[Range]]:
        """The first events of streams that sinks missed, and that may be older than they are."""
        missed: dict[Term, list[Range]] = {}
        for channel in self.channels:
            for term, (piece, _) in channel.sink.undated.items():
                missed.setdefault(term, []).append(piece)
        return {term: RangeSet(ranges).ranges() for term, ranges in missed.items()}

    def front(self, term: Term) -> int | None:
        """The first missing index of a term; of an ended one, only if it is owed here or a neighbour asked for it."""
        current = self.current
        stream = current if term == current.term else self.others.get(term)
        if stream is not None:
            return self._frontier(stream)
        owed = self.owed(term) if term in self.past else None
        return owed.start if owed else None

    def waits_for(self, term: Term) -> bool:
        """Whether a channel keeps bundles of an ended term, for lack of room or behind a gap."""
        return any(channel.waits_for(term) for channel in self.channels)

    def reopen(self, term: Term, start: int) -> None:
        """A live term is wanted from an index on: what this peer discarded of it counts as missing."""
        stream = self.live(term)
        if stream is None:
            return
        for first, last in self.kept_of(term).missing(start, self.kept_from(term)):
            stream.miss(first, last)
        stream.serve_from(start)

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
