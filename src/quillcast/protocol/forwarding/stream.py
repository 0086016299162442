"""A stream: the events of one term of one topic, numbered by one root or source. A peer knows which of them arrived."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, intersection
from quillcast.protocol.forwarding.ledger import NO_LEDGER, Ledger, Run
from quillcast.protocol.forwarding.milestones import NO_ARRIVAL, Came, Milestones

GAPS_MAX = 64
"""Gaps that are remembered where nothing is kept; a guess. What comes late into an older one passes for a repeat."""
AGE_BITS = 3  # of an age that others are told: it is accurate to a quarter, at worst
AGE_UNIT_MS = 125  # or to this, if that is more; a guess, so that not every report has another age

HeldTerms = tuple[tuple[Term, int, tuple[Range, ...], int, int | None], ...]
"""Ended terms: how far each went and what of it was stable, as far as these are known, and what is kept of it.

The last number says for how many milliseconds all its events have been there at least; None: that is not known.
"""


def told_age(seconds: float) -> int:
    """An age in milliseconds as others are told: rounded down to three binary digits, so that it seldom changes."""
    units = max(0, int(seconds * 1000)) // AGE_UNIT_MS
    spare = max(0, units.bit_length() - AGE_BITS)
    return (units >> spare << spare) * AGE_UNIT_MS


class Stream(msgspec.Struct, gc=False, eq=False):
    """A live term. Its bundles are in the flow's log.

    `start` is the first index that this peer is responsible for. `seen` holds the indexes that arrived or were given
    up. `stable` is the index below which all leases are served, as declared by the topic's root (0 until then). The
    `ledger` says which events were in discarded bundles.
    """

    term: Term
    start: int = 0
    stable: int = 0
    seen: RangeSet = NO_RANGES
    ledger: Ledger = NO_LEDGER

    numbered_here: ClassVar[bool] = False
    """Is it this peer that numbers the events? Then it has them all, and takes none from others."""
    barred: ClassVar[bool] = False
    """Whether only events before the last known one are accepted from the source itself."""

    def add(self, bundle: Bundle) -> bool:
        """Record a bundle's range. False for a repeat."""
        if self.seen is NO_RANGES:
            self.seen = RangeSet()
        return self.seen.add(bundle.envelope.first, bundle.last)

    def miss(self, first: int, last: int) -> None:
        """These indexes arrived, and are wanted again."""
        self.seen.discard(first, last)

    def is_beyond(self, sender: bytes, bundle: Bundle) -> bool:
        """Whether a bundle comes straight from the source, and goes further than everything before."""
        return self.term.is_of(sender) and bundle.last > self.seen.end

    @property
    def frontier(self) -> int:
        """One past the end of the contiguous run from the start."""
        return self.seen.contiguous_from(self.start)

    def missing(self, end: int) -> list[Range]:
        """The missing ranges, up to an index."""
        return self.seen.missing(self.start, max(end, self.seen.end))

    def give_up(self, ranges: Iterable[Range]) -> None:
        """Treat ranges that nobody has as if they had arrived, so that later events can proceed."""
        if self.seen is NO_RANGES:
            self.seen = RangeSet()
        self.seen.update(ranges)

    def serve_from(self, start: int) -> None:
        """This peer is responsible for it from this index on, or from an earlier one as before."""
        self.start = min(self.start, start)

    def settle(self, stable: int) -> None:
        """The root declared it stable below an index."""
        self.stable = stable

    def forget_gaps(self) -> None:
        """Nothing is kept, and nobody looks for missing events: remember only the latest gaps."""
        while len(self.seen) > GAPS_MAX:
            self.seen.join_first()

    def note_runs(self, runs: Iterable[Run]) -> None:
        """Keep runs of events whose bundles are not kept here."""
        if self.ledger is NO_LEDGER:
            self.ledger = Ledger()
        self.ledger.add(runs)


class RootStream(Stream, gc=False, eq=False):
    """This peer's own term, as the root."""

    numbered_here: ClassVar[bool] = True


BESIDE = b"*"
"""Instead of a neighbour: a stream comes over channels that lead past the tree, which say nothing of its source."""


class SourceStream(Stream, gc=False, eq=False):
    """The stream of a source. It comes from a neighbour, `via`, and its events never return there.

    `keeps`: the session in which it began is reliable. `milestones`: how far it had come here at which times. `barred`:
    its source may no longer publish.
    """

    via: bytes = b""
    keeps: bool = True
    barred: bool = False  # type: ignore[misc]
    milestones: Milestones = msgspec.field(default_factory=Milestones)

    def come_from(self, neighbour: bytes) -> None:
        """A neighbour sends it here; empty: nobody does any longer."""
        self.via = neighbour

    def bar(self, *, barred: bool) -> bool:
        """Its source may no longer publish, or may again. True if that is news."""
        before, self.barred = self.barred, barred
        return before != barred

    def resume(self, milestones: Milestones | None) -> None:
        """It had ended here, and continues. It is known when its events arrived."""
        if milestones is not None:
            self.milestones = milestones


class OwnSourceStream(SourceStream, gc=False, eq=False):
    """This peer's own stream, as a source."""

    numbered_here: ClassVar[bool] = True


class EndedStream(Stream, gc=False, eq=False, kw_only=True):
    """A term that has ended: how far it is known to have gone, and what is still kept of it for others.

    Nobody needs the events below `stable`. The live publishers sent the events beyond it again, to a later root.
    `asked` holds indexes that neighbours asked for and that never arrived here. It is kept until a time, `until`.
    `came` is how far it had come at which time. `unread` is how far it went in data that a paused process had not read:
    it is not known yet when that was sent.
    """

    end: int
    bundles: list[Bundle]
    until: float
    asked: RangeSet = NO_RANGES
    came: Came = NO_ARRIVAL
    unread: int = 0

    @classmethod
    def of(cls, live: Stream, end: int, bundles: list[Bundle], until: float, came: Came = NO_ARRIVAL) -> "EndedStream":
        """A stream that ends now, or ended elsewhere. The caller tells the channels how far it was stable."""
        seen, end = live.seen or RangeSet(), max(end, live.seen.end)
        return cls(
            live.term, live.start, seen=seen, ledger=live.ledger, end=end, bundles=bundles, until=until, came=came
        )

    def prolong(self, until: float) -> None:
        """This process was paused: keep it until then, or longer."""
        self.until = max(self.until, until)

    def keep(self, bundle: Bundle) -> None:
        """Keep a bundle of it that arrived late."""
        self.bundles.append(bundle)
        self.end = max(self.end, bundle.last)

    def keep_only(self, bundles: list[Bundle]) -> None:
        """Discard all other bundles."""
        self.bundles = bundles

    def go_on(self, end: int, until: float) -> None:
        """It went further than was known: keep it until then, or longer."""
        self.end, self.until = end, max(self.until, until)

    def date_unread(self, at: float) -> None:
        """What this process had not read existed by a time."""
        self.learn_came(self.unread, at)
        self.unread = 0

    def note_unread(self) -> None:
        """All of it arrived, or may have, in data that this process did not read while it was paused."""
        self.unread = self.end

    def learn_came(self, end: int, at: float) -> bool:
        """All events below an index existed at a time. True if that is more than was known, or earlier."""
        if (end, -at) <= (self.came.end, -self.came.at):
            return False
        self.came = Came(end, at)
        return True

    def was_there(self, at: float) -> bool:
        """Whether it is known that all its events existed by a time."""
        return self.is_dated and self.came.at <= at

    @property
    def is_dated(self) -> bool:
        """Whether a peer has said since when all its events have existed."""
        return 0 < self.end <= self.came.end

    def there_for(self, now: float) -> int | None:
        """The least number of milliseconds, rounded, for which all its events have existed; None: unknown."""
        return told_age(now - self.came.at) if self.is_dated else None

    def ask(self, ranges: Iterable[Range]) -> bool:
        """Neighbours miss these indexes. This peer lacks them too, and now wants them on their behalf.

        Indexes beyond the known end are left out. A peer that knows of events there reports them, and only then is it
        decided who is owed them. True if any indexes are wanted.
        """
        wanted = intersection(ranges, [(0, self.end)])
        self.asked = self.asked or RangeSet()
        for first, last in wanted:
            self.asked.add(first, last)
            self.seen.discard(first, last)
        return bool(wanted)

    def wanted(self) -> list[Range]:
        """The indexes that neighbours asked for and that are still missing."""
        return [piece for first, last in self.asked for piece in self.seen.missing(first, last)] if self.asked else []

    def kept(self) -> list[Range]:
        """The indexes of what is kept, as ranges."""
        return RangeSet((bundle.envelope.first, bundle.last) for bundle in self.bundles).ranges()
