"""What is owed a topic's events at a peer, and so holds back stability: children, and leases of lost peers.

Local subscriptions do so as well (`subscription.py`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import Channel, PeerSink
from quillcast.protocol.forwarding.stream import Held
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.state.cut import CATCH_UP_S, Cut
from quillcast.protocol.topics.state.link_reports import (
    ChildReport,
    Move,
    StreamUp,
    joined_since,
    of_another_life,
    reaches,
    same_life,
)


class LeaseHolder(Protocol):
    """Somebody who is owed a topic's events: a local subscription, a child, or a lease of a child that is gone."""

    @property
    def is_cut(self) -> bool:
        """Was its lease ended because it could not keep up?"""
        ...

    def needed_from(self, term: Term) -> int:
        """The index from which on it needs a term. A word on another term, even a later one, says nothing of it."""
        ...

    def kept_from(self, term: Term, *, at_root: bool) -> int | None:
        """The index from which on this peer keeps a term for it where room is scarce; None: it keeps nothing."""
        ...

    def is_stalled(self, now: float) -> bool:
        """Has its position not moved lately?"""
        ...


NEVER, BEFORE, SINCE = range(3)
"""When a child spoke last: never, or before or since it was entered in the children table."""


class Others(NamedTuple):
    """Of whom a child speaks besides itself (`ChildReport`)."""

    newcomers: tuple[bytes, ...] = ()
    arrivals: tuple[Move, ...] = ()
    departures: tuple[Move, ...] = ()

    @property
    def nodes(self) -> tuple[bytes, ...]:
        """Those that came below it lately, whether or not they count their parents."""
        return (*self.newcomers, *[move.peer for move in self.arrivals]) if self.arrivals else self.newcomers


NO_OTHERS = Others()


UNKNOWN_PEER = bytes(16)
"""Awaited in place of those of whom nobody knows who they are: until the lease has passed."""

BARRED = Warrant(b"", b"")
"""The right of a child that had one, until another access list came."""


def _acknowledged(holder: "Child | OrphanedLease", term: Term) -> int:
    if holder.acknowledged_term == term:
        return holder.acknowledged
    report = holder.streams.get(term)
    return report.acknowledged if report is not None else 0


class CutRequest(NamedTuple):
    """A child was asked to end the leases below it that have not come up to an index (`CutLeases`)."""

    to: int
    since: float
    """When it was asked first."""
    at: float
    """When it was asked last: a message may be lost."""


class Child(PeerSink):
    """An entry of the children table, where the channel to that child leads."""

    __slots__ = (
        "acknowledged", "acknowledged_term", "channel", "cut", "cut_request", "frontier", "frontier_moved_at",
        "held", "moved_at", "named_until", "number", "others", "outdated", "right", "spoken", "up_to",
    )  # fmt: skip

    sends_only = False
    """Does it publish, and is owed nothing?"""
    streams: Mapping[Term, StreamUp] = EMPTY
    """What it reports of the streams of sources."""

    def __init__(
        self, host: Host, contact: Contact, cursor: int, term: Term, acknowledged: int, right: Warrant | None = None
    ) -> None:
        """`cursor` is the serial in the flow's log at which its channel starts."""
        super().__init__(host, contact)
        self.channel = Channel(self, cursor)
        self.cut: Cut | None = None
        self.acknowledged_term, self.acknowledged = term, acknowledged
        self.held: Held = ()
        self.spoken = NEVER  # is this its own word?
        self.others = NO_OTHERS  # of whom it speaks besides itself
        self.number, self.up_to = 0, b""  # of its move to this peer (`Move`); 0: it does not count them
        self.outdated: tuple[bytes, ...] = ()  # of these, who spoke as this peer's own child since they were named
        self.frontier = acknowledged  # how far it came itself, even if those below it are behind
        self.moved_at = self.frontier_moved_at = host.now()  # when `acknowledged` and `frontier` last moved
        self.cut_request: CutRequest | None = None  # it was asked to end the leases below it that are behind
        self.right = right  # on whose behalf it joined; `BARRED`: it may have nothing more
        self.named_until = 0.0  # it came here from another parent: those above are told so until then

    @property
    def barred(self) -> bool:
        """May it have nothing more, by the topic's list?"""
        return self.right is BARRED

    def bar(self) -> None:
        """By another access list it may have nothing more."""
        self.right = BARRED

    def cut_off(self, cut: Cut | None) -> None:
        """Its lease ends, because it cannot keep up; None: it keeps up again."""
        self.cut = cut

    def continue_from(self, former: "Child | OrphanedLease", start: int) -> None:
        """It was a child here before: what it has itself says nothing of those below it."""
        if former.acknowledged_term == self.acknowledged_term:
            self.acknowledged = min(start, former.acknowledged)

    def came_by(self, number: int, up_to: bytes) -> None:
        """The number of its move to this peer, and up to which peer that is to be told."""
        self.number, self.up_to = number, up_to

    def come_again(self, number: int) -> None:
        """It has asked other parents since: it is named by a later move once it has spoken."""
        self.number, self.spoken = number, BEFORE

    def name(self, until: float, up_to: bytes | None = None) -> None:
        """It came from another parent: those above are told so until then, up to a peer or to the root."""
        self.named_until = until
        if up_to is not None:
            self.up_to = up_to

    def expire(self, now: float) -> bool:
        """Is the time over in which it is to be named?"""
        is_over = 0.0 < self.named_until <= now
        if is_over:
            self.named_until = 0.0
        return is_over

    def outdate(self, node: bytes) -> None:
        """A peer that it names is this peer's own child: from now on its word says nothing of that."""
        if node in self.others.nodes and node not in self.outdated:
            self.outdated = (*self.outdated, node)

    def request_cut(self, mark: int) -> None:
        """It is asked to end the leases below it that have not come up to here."""
        now, former = self.host.now(), self.cut_request
        self.cut_request = CutRequest(mark, now if former is None else former.since, now)

    def _complied(self) -> None:
        """Has it ended them, or have they come so far?"""
        if self.cut_request is not None and self.progress[0] >= self.cut_request.to:
            self.cut_request = None

    def note_report(self, report: ChildReport) -> None:
        """What the child says holds."""
        if (report.term, report.acknowledged) > (self.acknowledged_term, self.acknowledged):
            self.moved_at = self.host.now()
        if report.term != self.acknowledged_term:
            self.cut_request = None
        self.acknowledged_term, self.acknowledged, self.held = report.term, report.acknowledged, report.held
        others = report.newcomers, report.arrivals, report.departures
        self.others = Others(*others) if any(others) else NO_OTHERS
        if self.outdated:
            self.outdated = tuple(node for node in self.outdated if node in self.others.nodes)
        frontier = max(report.acknowledged, report.frontier)
        if frontier > self.frontier:
            self.frontier_moved_at = self.host.now()
        self.frontier = frontier
        self._complied()
        self.spoken = SINCE

    @property
    def progress(self) -> tuple[int, int]:
        """How far all below it came, and how far it came itself."""
        return self.acknowledged, self.frontier

    def reach(self, term: Term) -> int:
        """How far a term came to it, or below it."""
        if self.acknowledged_term == term:
            return self.frontier
        report = self.streams.get(term)
        return report.reach if report is not None else 0

    def keeps_up(self, frontier: int, now: float) -> bool:
        """Does the child itself keep up? Its reports are a moment behind, so it counts that it moved on lately."""
        return self.progress[1] >= frontier or now - self.frontier_moved_at < CATCH_UP_S

    def take_up(self, report: ChildReport) -> None:
        """It reported this before it was entered here: that speaks for nobody, but it may have somebody below it.

        It may have been restarted since, or elsewhere, and have taken in others.
        """
        known_to_have = self.acknowledged if report.term == self.acknowledged_term else report.acknowledged
        self.note_report(report)
        self.acknowledged, self.spoken = min(report.acknowledged, known_to_have), BEFORE
        self.others = Others(departures=report.departures) if report.departures else NO_OTHERS

    @property
    def is_cut(self) -> bool:
        return self.cut is not None

    needed_from = _acknowledged

    def kept_from(self, term: Term, *, at_root: bool) -> int:
        """Except at the root, it needs no copy of what it has itself, even if a peer below it does not have that."""
        if at_root:
            return self.needed_from(term)
        report = self.streams.get(term)
        if report is not None:
            return report.frontier
        return self.frontier if self.acknowledged_term == term else 0

    def is_stalled(self, now: float) -> bool:
        return now - self.moved_at >= CATCH_UP_S

    @property
    def speaks_for(self) -> tuple[Move, ...]:
        """The moves of the peers that its last report names: itself, and those that arrived below it lately.

        But not of those that have spoken as this peer's own children since. A number that is not known is 0.
        """
        if self.spoken != SINCE:
            return ()
        uncounted = [Move(node, 0) for node in self.word.newcomers]
        moves = Move(self.contact.node_id, self.number, self.up_to), *uncounted, *self.word.arrivals
        return tuple([move for move in moves if move.peer not in self.outdated]) if self.outdated else moves

    @property
    def word(self) -> Others:
        """Of whom it speaks, but for those that came below it while its lease is cut.

        What it says they need holds nothing then, so their leases elsewhere go on until it has its own again.
        """
        return self.others if self.cut is None else Others(departures=self.others.departures)

    @property
    def move(self) -> Move | None:
        """Its move to this peer, if it counts its parents."""
        return Move(self.contact.node_id, self.number, self.up_to) if self.number else None

    @property
    def arrived(self) -> tuple[Move, ...]:
        """The moves that its last report includes: its own, if that was lately, and those that it names."""
        own = self.move if self.spoken == SINCE and self.named_until else None
        return (own, *self.word.arrivals) if own is not None else self.word.arrivals


class SourcesChild(Child):
    """A child in a topic whose events are numbered by their sources."""

    __slots__ = ("acknowledged_events", "events", "sends_only", "streams")

    def __init__(
        self, host: Host, contact: Contact, cursor: int, term: Term, acknowledged: int, right: Warrant | None = None,
        *, sends_only: bool,
    ) -> None:  # fmt: skip
        super().__init__(host, contact, cursor, term, acknowledged, right)
        self.streams: dict[Term, StreamUp] = EMPTY
        self.sends_only = sends_only
        self.acknowledged_events = self.events = 0

    def begin_streams(self, streams: dict[Term, StreamUp]) -> None:
        """It was entered in the table, and is owed these streams."""
        self.streams = streams

    def forget_stream(self, term: Term) -> bool:
        """It is asked of a stream no more. Did it report anything?"""
        return bool(self.streams) and self.streams.pop(term, None) is not None

    def note_stream(self, term: Term, report: StreamUp) -> None:
        """What it reports of a stream."""
        self.streams = self.streams or {}
        self.streams[term] = report

    def note_streams(self, acknowledged: int, events: int) -> None:
        """So many events of all streams reached everybody below the child, and the child itself (`retention.total`)."""
        now = self.host.now()
        if acknowledged > self.acknowledged_events:
            self.moved_at = now
        if events > self.events:
            self.frontier_moved_at = now
        self.acknowledged_events, self.events = acknowledged, events
        self._complied()

    @property
    def progress(self) -> tuple[int, int]:
        return self.acknowledged_events, self.events


class Ended(NamedTuple):
    """Somebody left in good order, and is named to those above for a while: they may wait for a lease of it."""

    until: float
    move: Move | None = None
    """Its last one, if it counted its parents."""


class OrphanedLease:
    """A child that was lost or moved: its last report holds stability back until its lease has passed.

    Or until those speak for themselves below this peer again whose leases it was: its own, or of those it named.
    """

    __slots__ = (
        "acknowledged", "acknowledged_term", "asked_at", "awaited", "contact", "ends", "leaf", "move", "named_from",
        "numbers", "streams", "until",
    )  # fmt: skip

    def __init__(
        self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False, move: Move | None = None,
        numbers: Mapping[bytes, int] = EMPTY, named_from: float = 0.0,
    ) -> None:  # fmt: skip
        """`move`: the child's to this peer, if it is only the child's lease, which said that it moves elsewhere.

        `numbers`: of the moves by which others of those awaited had come, where they are known. These have been sent
        to other parents, and the peers above hear of them from a time on: most will have come below this one by then.
        """
        self.acknowledged_term, self.acknowledged, self.until = child.acknowledged_term, child.acknowledged, until
        self.streams, self.contact = child.streams, child.contact
        self.ends: Mapping[bytes, float] = EMPTY  # of those awaited whose leases began earlier, and end before this one
        self.awaited: dict[bytes, Move | None] = {
            node: Move(node, numbers[node]) if numbers.get(node) else move for node in awaited
        }
        self.named_from = named_from
        self.leaf = leaf  # it is the child's own lease only
        self.move = child.move  # by which that had come here
        self.numbers: Mapping[bytes, int] = (
            {**numbers, child.contact.node_id: child.number} if child.number else numbers
        )
        self.asked_at = child.host.now()  # when the child was asked where it is, or was lost

    def end_at(self, ends: Mapping[bytes, float]) -> None:
        """Leases of others that are awaited end at these times."""
        if ends:
            self.ends = {**self.ends, **ends}
            self.until = max([self.ends_at(node) for node in self.awaited], default=self.until)

    def ends_at(self, node: bytes) -> float:
        """When the lease of one of those awaited ends."""
        return min(self.until, self.ends.get(node, self.until))

    def end_some(self, now: float) -> bool:
        """Wait no longer for those whose leases have ended. True if none is left."""
        for node in [node for node, until in self.ends.items() if until <= now]:
            self.awaited.pop(node, None)
        return self.until <= now or (bool(self.ends) and not self.awaited)

    def prolong(self, until: float) -> None:
        """No lease ends before a time, because this process was paused."""
        self.until, self.ends = max(self.until, until), EMPTY

    def expire(self, now: float) -> bool:
        """Is it time for the peers above to hear of those that are waited for?"""
        begins = 0.0 < self.named_from <= now
        if begins:
            self.named_from = 0.0
        return begins

    def arrived(self, move: Move) -> None:
        """A peer speaks for itself again, or has left, by a move: not by one before that by which it was here or named.

        Such a word is older than this lease. After a restart a leaf has no other lease that goes on.
        """
        number = self.numbers.get(move.peer, 0)
        if reaches(move.number, number) or (self.leaf and not joined_since(number, move.number)):
            self.awaited.pop(move.peer, None)

    def forgot(self, node: bytes, number: int) -> None:
        """A peer comes again that knows nothing of those that were below it, unless in the life of this number."""
        if node in self.awaited and not self.leaf and not same_life(self.numbers.get(node, 0), number):
            del self.awaited[node]
            self.awaited[UNKNOWN_PEER] = None

    def end_by(self, arrivals: Iterable[Move]) -> None:
        """Peers have moved elsewhere, and arrived there."""
        for node, move in list(self.awaited.items()):
            if move is not None and any(arrival.follows(move) for arrival in arrivals):
                del self.awaited[node]

    def is_of_another_life(self, move: Move) -> bool:
        """Is one of those awaited who was restarted since, before it moved so?"""
        return move.peer in self.awaited and of_another_life(self.numbers.get(move.peer, 0), move.number)

    def ask(self, now: float, every_s: float) -> Move | None:
        """If it is time to ask the child where it is: by which move it had come here.

        A child that does not count its parents is not asked, nor one that is not waited for.
        """
        if self.move is None or self.move.peer not in self.awaited or now - self.asked_at < every_s:
            return None
        self.asked_at = now
        return self.move

    def follow_path(self, path: Iterable[bytes]) -> bool:
        """The path from the root to this peer leads through these. True if that is news of one that was waited for.

        One that stands above speaks for itself, but not for those that were below it if it was restarted since. That it
        says itself: peers up to it are told by which move it had come. If that is not known, as it was taken back
        without a Join, nobody can tell, and its lease goes on to the end. A leaf speaks for nobody else.
        """
        news = False
        for node in [node for node in path if node in self.awaited]:
            number = self.numbers.get(node, 0)
            if self.leaf:
                del self.awaited[node]
                news = True
            elif number:
                asked = Move(node, number - 1, node)
                news = news or asked != self.awaited[node]
                self.awaited[node] = asked
        return news

    def is_elsewhere(self, up_to: bytes) -> None:
        """The child has another parent. Peers up to one are told by which move it had come, and know of a later one.

        Or of one with the same number: it asked both before either answered, and took the other.
        """
        if self.move is not None and self.move.peer in self.awaited:
            self.awaited[self.move.peer] = self.move._replace(number=self.move.number - 1, up_to=up_to)

    def continue_from(self, former: "OrphanedLease") -> None:
        """It came back and goes again: it need not have spoken for those that it named then, nor have what they lack.

        So of a stream that either says nothing of, all is needed.
        """
        self.awaited, self.numbers = {**former.awaited, **self.awaited}, {**former.numbers, **self.numbers}
        self.ends = former.ends
        self.leaf = self.leaf and former.leaf
        self.acknowledged_term, self.acknowledged = min(
            (self.acknowledged_term, self.acknowledged), (former.acknowledged_term, former.acknowledged)
        )
        self.streams = {
            term: replace(report, acknowledged=min(report.acknowledged, former.streams[term].acknowledged))
            for term, report in self.streams.items()
            if term in former.streams
        }

    @property
    def is_cut(self) -> bool:
        return False

    needed_from = _acknowledged

    def kept_from(self, term: Term, *, at_root: bool) -> int | None:
        """A peer that takes the place of a lost one finds it at the root."""
        return self.needed_from(term) if at_root else None

    def is_stalled(self, now: float) -> bool:
        return True
