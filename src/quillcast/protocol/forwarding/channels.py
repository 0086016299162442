"""Channels: the ways out of a flow. A channel is a cursor into the flow's log that advances while its sink has room."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import RESERVED_EIGHTHS, Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.forwarding.ledger import Run, RunsByTerm, runs_of
from quillcast.protocol.forwarding.log import Log

BundleFilter = Callable[[Bundle], Bundle | None]
"""Decides per bundle, from its envelope: the bundle (or a copy with tags) enters, or None stops it."""


def nothing_enters(bundle: Bundle) -> Bundle | None:
    """The filter of a channel to a peer that may receive nothing more."""
    return None


_NO_BACKLOG: deque[Bundle] = deque()  # shared by all channels that took everything before a term ended


class OwedEvents:
    """What is asked of a sink about ended terms. Only one that is owed every event has answers."""

    __slots__ = ()

    owed = False
    """Is it owed every event of every term? A peer is not: it detects what it misses, and requests a repair."""

    undated: Mapping[Term, tuple[Range, float]] = EMPTY
    """What it missed first of streams, and may have been there before it began (`Edge.date`)."""

    def skip(
        self, term: Term, ranges: list[Range], why: str, runs: Iterable[Run] = (), others: RunsByTerm = EMPTY
    ) -> None:
        """These positions of a term will not arrive. `runs` tell which events were there (`Edge.skip`)."""

    def settle(self, term: Term, stable: int) -> None:
        """The root of an ended term declared it stable below an index."""

    def may_be_owed(self, term: Term) -> bool:
        """Whether it is still unknown if it is owed an ended term."""
        return False

    def lacking(self, term: Term, seen: RangeSet, end: int) -> list[Range]:
        """The positions of an ended term, up to `end`, that it is owed and that never arrived here."""
        return []

    def pass_had(self, term: Term, seen: RangeSet, end: int, runs: Iterable[Run]) -> bool:
        """Do not wait for those of these positions whose event it got in another term. True if there was one."""
        return False


class HeldBundles:
    """What is asked of a sink about what waits in it behind gaps. Only one that is owed every event has such."""

    __slots__ = ()

    def waiting(self, term: Term) -> Iterable[Bundle]:
        """The bundles of a term that wait in it behind a gap."""
        return ()

    def gaps_before(self, term: Term, last: int) -> list[Range]:
        """The positions of a term before `last` that it waits for."""
        return []


class BundleTaker(ABC):
    """What takes the bundles of a channel."""

    __slots__ = ()

    contact: Contact | None = None
    """The peer that it leads to; None: it is a subscriber of this one."""

    @abstractmethod
    def room(self, bundle: Bundle) -> int:
        """The bytes that it accepts now, if this bundle comes next."""

    @abstractmethod
    def take(self, bundle: Bundle) -> None:
        """Take a bundle: the same bytes, by reference. It must not open or close channels, nor end a term."""

    def wait(self, *, waits: bool) -> None:  # noqa: B027
        """May its topic fill buffers from now on? Only links to other peers need to know."""

    def count(self, bundle: Bundle) -> None:  # noqa: B027
        """A bundle goes there as a repair, past this sink: it counts for the rates of channels to that peer."""

    def plain(self) -> "Sink":
        """The same sink, without conditions that others added."""
        return cast("Sink", self)

    def exclude(self, bundle: Bundle) -> None:  # noqa: B027
        """The channel's filter stopped this bundle: it is not owed."""


class Sink(BundleTaker, OwedEvents, HeldBundles):
    """Where a channel leads: another peer or a local subscriber. Channels differ in nothing else."""

    __slots__ = ()


class PeerSink(Sink):
    """Another peer: a child in a topic's tree, or whatever else a forwarding policy makes it."""

    __slots__ = ("contact", "host", "waits")

    contact: Contact

    def __init__(self, host: Host, contact: Contact, *, waits: bool = False) -> None:
        """`waits`: its topic may fill buffers, because it waits for slow subscribers."""
        self.host, self.contact, self.waits = host, contact, waits

    def wait(self, *, waits: bool) -> None:
        self.waits = waits

    def room(self, bundle: Bundle) -> int:
        """What its link accepts. Topics that wait leave a part of that to the others, as publishers do."""
        return self.host.room(self.contact, RESERVED_EIGHTHS[True] if self.waits else 0)

    def take(self, bundle: Bundle) -> None:
        self.host.carry(self.contact, bundle)


class Channel:
    """One way out of a flow. Each advances at its own pace, so that a slow one never delays the others."""

    __slots__ = ("backlog", "cursor", "filter", "sink")

    def __init__(self, sink: Sink, cursor: int, filter_: BundleFilter | None = None) -> None:
        """`cursor` is the serial in the log at which the channel starts."""
        self.sink, self.cursor, self.filter = sink, cursor, filter_
        self.backlog = _NO_BACKLOG  # bundles of ended terms that the sink is owed and had no room for

    def begin_at(self, cursor: int) -> None:
        """It starts at a serial in the log."""
        self.cursor = cursor

    def pass_to(self, cursor: int) -> int:
        """Skip what stands before a serial in the log: it is gone, or is not for this channel. Returns where it was."""
        before, self.cursor = self.cursor, max(self.cursor, cursor)
        return before

    def lead(self, sink: Sink, filter_: BundleFilter | None) -> None:
        """Where it leads from now on, and what enters."""
        self.sink, self.filter = sink, filter_

    def advance(self, log: Log) -> None:
        """Pass on what waits, the backlog first, while there is room."""
        room, take = self.sink.room, self.sink.take if self.filter is None else self._pass
        while self.backlog and room(self.backlog[0]) > 0:
            take(self.backlog.popleft())
        while self.cursor < log.end and not self.backlog:
            bundle = log.at(self.cursor)
            if bundle is not None and room(bundle) <= 0:
                return
            self.cursor += 1
            if bundle is not None:
                take(bundle)

    def _pass(self, bundle: Bundle) -> None:
        entering = bundle if self.filter is None else self.filter(bundle)
        if entering is not None:
            self.sink.take(entering)
        else:
            self.sink.exclude(bundle)

    def restore(self, bundle: Bundle) -> None:
        """A repair of an ended term arrived: if the sink is owed it, pass it on after what waits before it."""
        if not self.sink.owed:
            return
        if self.backlog:
            self.backlog = deque(sorted((*self.backlog, bundle), key=_position))
        else:
            self._pass(bundle)

    def end_term(self, log: Log, term: Term) -> None:
        """A term ends, and its bundles leave the log: keep those that the sink is owed and had no room for."""
        if self.sink.owed and (late := [bundle for bundle in log.after(self.cursor) if bundle.envelope.term == term]):
            self.backlog = self.backlog or deque()
            self.backlog.extend(late)

    def pass_over(self, term: Term, gone: list[Bundle]) -> None:
        """The log discarded these bundles before this channel took them."""
        if not self.sink.owed:
            return
        owed = list[Bundle]()
        for bundle in gone:
            if self.filter is None or self.filter(bundle) is not None:
                owed.append(bundle)
            else:
                self.sink.exclude(bundle)
        self.sink.skip(term, [(bundle.envelope.first, bundle.last) for bundle in owed], "cut", runs_of(*owed))

    def discard_past(self, term: Term, gone: list[Bundle], runs: Iterable[Run], others: RunsByTerm) -> None:
        """These bundles of an ended term were discarded, and must not wait here.

        What waits for room is lost. What waits behind a gap is delivered now, without the missing events. `runs`
        tell which events the term held, and `others` which events other terms hold.
        """
        freed = RangeSet((bundle.envelope.first, bundle.last) for bundle in gone)

        def is_gone(bundle: Bundle) -> bool:
            return bundle.envelope.term == term and freed.covers(bundle.envelope.first, bundle.last)

        lost = [(b.envelope.first, b.last) for b in self.backlog if is_gone(b)]
        if lost:
            self.backlog = deque(bundle for bundle in self.backlog if not is_gone(bundle))
        if waiting := [bundle.last for bundle in self.sink.waiting(term) if is_gone(bundle)]:
            lost += self.sink.gaps_before(term, max(waiting))
        if lost:
            self.sink.skip(term, sorted(lost), "cut", runs, others)

    def waits_for(self, term: Term) -> bool:
        """Whether anything of an ended term waits here, for room or behind a gap."""
        return any(True for _ in self.waiting(term))

    def waiting(self, term: Term) -> Iterator[Bundle]:
        """What of an ended term waits here, behind a gap or for room."""
        yield from self.sink.waiting(term)
        yield from (bundle for bundle in self.backlog if bundle.envelope.term == term)

    def untaken(self, log: Log) -> Iterator[Bundle]:
        """What waits for room: the backlog, and what is in the log."""
        yield from self.backlog
        yield from log.after(self.cursor)


def offer(channels: Iterable[Channel], bundle: Bundle, log: Log) -> None:
    """Pass the log's latest bundle on to each channel, after what waits there before it."""
    serial = log.end - 1
    for channel in channels:
        if channel.cursor != serial or channel.filter is not None or channel.backlog:
            channel.advance(log)
        elif channel.sink.room(bundle) > 0:  # the common case, at less than half the cost
            channel.cursor = serial + 1
            channel.sink.take(bundle)


def _position(bundle: Bundle) -> tuple[Term, int]:
    return bundle.envelope.term, bundle.envelope.first
