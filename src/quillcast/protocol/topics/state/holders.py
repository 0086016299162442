"""Lease holders at a peer, which hold back stability: children, and the leases of lost peers.

Local subscriptions are lease holders too (`subscription.py`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import Channel, PeerSink
from quillcast.protocol.forwarding.stream import HeldTerms
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
    """Anything that is owed a topic's events: a local subscription, a child, or the lease of a child that is gone."""

    @property
    def is_cut(self) -> bool:
        """Whether its lease was ended because it could not keep up."""
        ...

    def needed_from(self, term: Term) -> int:
        """The index from which it needs a term. A report on another term, even a later one, says nothing about this."""
        ...

    def kept_from(self, term: Term, *, at_root: bool) -> int | None:
        """The index from which this peer keeps a term for it when memory is short. None: it keeps nothing."""
        ...

    def is_stalled(self, now: float) -> bool:
        """Whether its position has not moved lately."""
        ...


NEVER, BEFORE, SINCE = range(3)
"""When a child last reported: never, before it was entered in the children table, or since."""


class Others(NamedTuple):
    """The other peers that a child's report names (`ChildReport`)."""

    newcomers: tuple[bytes, ...] = ()
    arrivals: tuple[Move, ...] = ()
    departures: tuple[Move, ...] = ()

    @property
    def nodes(self) -> tuple[bytes, ...]:
        """The peers that came below it lately, whether or not they count their parents."""
        return (*self.newcomers, *[move.peer for move in self.arrivals]) if self.arrivals else self.newcomers


NO_OTHERS = Others()


UNKNOWN_PEER = bytes(16)
"""Awaited in place of unknown peers, until the lease has ended."""

BARRED = Warrant(b"", b"")
"""The right of a child that a later access list took away."""


def _acknowledged(holder: "Child | OrphanedLease", term: Term) -> int:
    if holder.acknowledged_term == term:
        return holder.acknowledged
    report = holder.streams.get(term)
    return report.acknowledged if report is not None else 0


class CutRequest(NamedTuple):
    """The request to a child to end the leases below it that have not reached an index (`CutLeases`)."""

    to: int
    since: float
    """When it was first asked."""
    at: float
    """When it was last asked: a message may be lost."""


class Child(PeerSink):
    """An entry of the children table, and the sink of the channel to that child."""

    __slots__ = (
        "acknowledged", "acknowledged_term", "channel", "cut", "cut_request", "frontier", "frontier_moved_at",
        "held", "moved_at", "named_until", "number", "others", "outdated", "right", "spoken", "up_to",
    )  # fmt: skip

    sends_only = False
    """Whether it only publishes, and is owed nothing."""
    streams: Mapping[Term, StreamUp] = EMPTY
    """What it reports about the streams of sources."""

    def __init__(
        self, host: Host, contact: Contact, cursor: int, term: Term, acknowledged: int, right: Warrant | None = None
    ) -> None:
        """`cursor` is the serial in the flow's log at which its channel starts."""
        super().__init__(host, contact)
        self.channel = Channel(self, cursor)
        self.cut: Cut | None = None
        self.acknowledged_term, self.acknowledged = term, acknowledged
        self.held: HeldTerms = ()
        self.spoken = NEVER  # when it last reported
        self.others = NO_OTHERS  # other peers that its report names
        self.number, self.up_to = 0, b""  # of its move to this peer (`Move`); 0: it does not count moves
        self.outdated: tuple[bytes, ...] = ()  # of `others`: those that have since reported as this peer's own children
        self.frontier = acknowledged  # how far it has the term itself, even if peers below it are behind
        self.moved_at = self.frontier_moved_at = host.now()  # when `acknowledged` and `frontier` last moved
        self.cut_request: CutRequest | None = None  # set while it is asked to end the leases below it that are behind
        self.right = right  # on whose behalf it joined; `BARRED`: it may get no more events
        self.named_until = 0.0  # until then, peers above are told that it came here from another parent

    @property
    def barred(self) -> bool:
        """Whether the topic's access list denies it further events."""
        return self.right is BARRED

    def bar(self) -> None:
        """Deny it further events, as a new access list demands."""
        self.right = BARRED

    def cut_off(self, cut: Cut | None) -> None:
        """End its lease, because it cannot keep up. None: it keeps up again."""
        self.cut = cut

    def continue_from(self, former: "Child | OrphanedLease", start: int) -> None:
        """Continue from its former entry. What the child itself has says nothing about peers below it."""
        if former.acknowledged_term == self.acknowledged_term:
            self.acknowledged = min(start, former.acknowledged)

    def came_by(self, number: int, up_to: bytes) -> None:
        """Set the number of its move to this peer, and the peer up to which the move is reported."""
        self.number, self.up_to = number, up_to

    def come_again(self, number: int) -> None:
        """Set the number of a later move: it has asked other parents since. It is named once it has reported."""
        self.number, self.spoken = number, BEFORE

    def name(self, until: float, up_to: bytes | None = None) -> None:
        """Report until then, up to a peer or the root, that it came from another parent."""
        self.named_until = until
        if up_to is not None:
            self.up_to = up_to

    def expire(self, now: float) -> bool:
        """Stop naming it when the time for that is over. Return whether it is."""
        is_over = 0.0 < self.named_until <= now
        if is_over:
            self.named_until = 0.0
        return is_over

    def outdate(self, node: bytes) -> None:
        """Disregard from now on what it says about a peer that it names, which is this peer's own child."""
        if node in self.others.nodes and node not in self.outdated:
            self.outdated = (*self.outdated, node)

    def request_cut(self, mark: int) -> None:
        """Note that it is asked to end the leases below it that have not reached this index."""
        now, former = self.host.now(), self.cut_request
        self.cut_request = CutRequest(mark, now if former is None else former.since, now)

    def _complied(self) -> None:
        """Forget the request if those leases have ended or reached the index."""
        if self.cut_request is not None and self.progress[0] >= self.cut_request.to:
            self.cut_request = None

    def note_report(self, report: ChildReport) -> None:
        """Take over a report of the child."""
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
        """How far all peers below it came, and how far it came itself."""
        return self.acknowledged, self.frontier

    def reach(self, term: Term) -> int:
        """The index that a term reached at it or below."""
        if self.acknowledged_term == term:
            return self.frontier
        report = self.streams.get(term)
        return report.reach if report is not None else 0

    def keeps_up(self, frontier: int, now: float) -> bool:
        """Whether the child itself keeps up. Its reports are a moment old, so it suffices that it moved lately."""
        return self.progress[1] >= frontier or now - self.frontier_moved_at < CATCH_UP_S

    def take_up(self, report: ChildReport) -> None:
        """Take over a report from before it was entered here. It speaks for nobody, but peers may be below the child.

        The child may have restarted or been elsewhere since, and have accepted other children.
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
        """Except at the root, it needs no copy of what it has itself, even if a peer below it lacks that."""
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
        """The moves of the peers that its last report covers: itself, and peers that arrived below it lately.

        Peers that have since reported as this peer's own children are left out. An unknown number is 0.
        """
        if self.spoken != SINCE:
            return ()
        uncounted = [Move(node, 0) for node in self.word.newcomers]
        moves = Move(self.contact.node_id, self.number, self.up_to), *uncounted, *self.word.arrivals
        return tuple([move for move in moves if move.peer not in self.outdated]) if self.outdated else moves

    @property
    def word(self) -> Others:
        """The peers that its report names. While its lease is cut, without peers that came below it.

        A cut lease holds nothing back for them, so their leases elsewhere continue until the child has its own again.
        """
        return self.others if self.cut is None else Others(departures=self.others.departures)

    @property
    def move(self) -> Move | None:
        """Its move to this peer, if it counts its parents."""
        return Move(self.contact.node_id, self.number, self.up_to) if self.number else None

    @property
    def arrived(self) -> tuple[Move, ...]:
        """The moves that its last report includes: its own, if it was recent, and those that it names."""
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
        """Set the streams that it is owed when it is entered in the table."""
        self.streams = streams

    def forget_stream(self, term: Term) -> bool:
        """Forget its report on a stream. Return whether there was one."""
        return bool(self.streams) and self.streams.pop(term, None) is not None

    def note_stream(self, term: Term, report: StreamUp) -> None:
        """Note its report on a stream."""
        self.streams = self.streams or {}
        self.streams[term] = report

    def note_streams(self, acknowledged: int, events: int) -> None:
        """Note how many events of all streams reached all peers below it, and the child itself (`retention.total`)."""
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
    """A peer that left in good order. Peers above are told for a while, because they may wait for its lease."""

    until: float
    move: Move | None = None
    """Its last move, if it counted its parents."""


class OrphanedLease:
    """The lease of a child that was lost or moved: its last report holds back stability until the lease ends.

    It also ends when the awaited peers (the child, or peers that it named) are heard from below this peer again.
    """

    __slots__ = (
        "acknowledged", "acknowledged_term", "asked_at", "awaited", "contact", "ends", "leaf", "move", "named_from",
        "numbers", "streams", "until",
    )  # fmt: skip

    sends_only = False
    """Whether it only publishes: no lease of such a child is kept."""

    def __init__(
        self, child: Child, until: float, awaited: Iterable[bytes], *, leaf: bool = False, move: Move | None = None,
        numbers: Mapping[bytes, int] = EMPTY, named_from: float = 0.0,
    ) -> None:  # fmt: skip
        """`move`: the child's move to this peer, if the lease is only its own and it said that it moves elsewhere.

        `numbers`: the numbers of the moves by which other awaited peers had come, if known. These peers were sent to
        other parents. Peers above hear of them only from `named_from` on: most will be below this peer again by then.
        """
        self.acknowledged_term, self.acknowledged, self.until = child.acknowledged_term, child.acknowledged, until
        self.streams, self.contact = child.streams, child.contact
        self.ends: Mapping[bytes, float] = EMPTY  # of awaited peers whose leases end before this one
        self.awaited: dict[bytes, Move | None] = {
            node: Move(node, numbers[node]) if numbers.get(node) else move for node in awaited
        }
        self.named_from = named_from
        self.leaf = leaf  # it is only the child's own lease
        self.move = child.move  # by which the child had come here
        self.numbers: Mapping[bytes, int] = (
            {**numbers, child.contact.node_id: child.number} if child.number else numbers
        )
        self.asked_at = child.host.now()  # when the child was asked where it is, or was lost

    def end_at(self, ends: Mapping[bytes, float]) -> None:
        """Set the times at which leases of awaited peers end."""
        if ends:
            self.ends = {**self.ends, **ends}
            self.until = max([self.ends_at(node) for node in self.awaited], default=self.until)

    def ends_at(self, node: bytes) -> float:
        """Return when the lease of an awaited peer ends."""
        return min(self.until, self.ends.get(node, self.until))

    def end_some(self, now: float) -> bool:
        """Stop waiting for peers whose leases have ended. Return whether none is left."""
        for node in [node for node, until in self.ends.items() if until <= now]:
            self.awaited.pop(node, None)
        return self.until <= now or (bool(self.ends) and not self.awaited)

    def prolong(self, until: float) -> None:
        """Let no lease end before a time, because this process was paused."""
        self.until, self.ends = max(self.until, until), EMPTY

    def expire(self, now: float) -> bool:
        """Return whether it is now time to name the awaited peers to the peers above."""
        begins = 0.0 < self.named_from <= now
        if begins:
            self.named_from = 0.0
        return begins

    @property
    def is_lost(self) -> bool:
        """Whether its child is lost, and did not move in good order."""
        node = self.contact.node_id
        return node in self.awaited and self.awaited[node] is None

    def arrived(self, move: Move) -> None:
        """Stop waiting for a peer that reports for itself again, or has left, by a move that is not an earlier one.

        A report of an earlier move is older than this lease. A leaf that restarted has no other lease that continues.
        """
        number = self.numbers.get(move.peer, 0)
        if reaches(move.number, number) or (self.leaf and not joined_since(number, move.number)):
            self.awaited.pop(move.peer, None)

    def forgot(self, node: bytes, number: int) -> None:
        """Wait for unknown peers instead of a returning peer, unless this number is of the same life.

        A peer in another life knows nothing about the peers that were below it.
        """
        if node in self.awaited and not self.leaf and not same_life(self.numbers.get(node, 0), number):
            del self.awaited[node]
            self.awaited[UNKNOWN_PEER] = None

    def end_by(self, arrivals: Iterable[Move]) -> None:
        """Stop waiting for peers that moved elsewhere and have arrived there."""
        for node, move in list(self.awaited.items()):
            if move is not None and any(arrival.follows(move) for arrival in arrivals):
                del self.awaited[node]

    def is_of_another_life(self, move: Move) -> bool:
        """Whether the move is that of an awaited peer that has restarted since."""
        return move.peer in self.awaited and of_another_life(self.numbers.get(move.peer, 0), move.number)

    def ask(self, now: float, every_s: float) -> Move | None:
        """Return the child's move to this peer, if it is time to ask where the child is now.

        Only a child that counts its parents and is still awaited is asked.
        """
        if self.move is None or self.move.peer not in self.awaited or now - self.asked_at < every_s:
            return None
        self.asked_at = now
        return self.move

    def follow_path(self, path: Iterable[bytes]) -> bool:
        """Note the peers on the path from the root. Return whether that is news about an awaited peer.

        A peer above reports for itself, but after a restart not for the peers that were below it. Only that peer knows
        whether it restarted, so the peers up to it are told by which move it had come here. If the move is unknown,
        because it was taken back without a Join, its lease continues to the end. A leaf reports for nobody else.
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
        """Note that the child has another parent. Peers up to `up_to` are told by which move it had come here.

        They know of a later move, or of one with the same number: the child asked both parents before either answered.
        """
        if self.move is not None and self.move.peer in self.awaited:
            self.awaited[self.move.peer] = self.move._replace(number=self.move.number - 1, up_to=up_to)

    def continue_from(self, former: "OrphanedLease") -> None:
        """Merge the former lease of a child that came back and left again.

        In between it need not have reported for the peers that it named then, nor have what they lack. So all of a
        stream is needed that either lease does not mention.
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
        """Only the root keeps events for it: a peer that replaces the lost one fetches them there."""
        return self.needed_from(term) if at_root else None

    def is_stalled(self, now: float) -> bool:
        return True
