"""What a peer knows of the sources of one topic, beside what it has of their streams (`forwarding.Flow.others`)."""

from collections.abc import Container, Iterable
from enum import Enum
from math import inf
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.interning import EMPTY
from quillcast.protocol.forwarding.channels import Channel, Filter
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.security.access import SourceWarrant
from quillcast.protocol.topics.state.link_reports import StreamDown
from quillcast.protocol.topics.state.source import Source


class Right(Enum):
    """May the source of a stream publish, by the topic's list?"""

    MAY = 1
    COULD = 2
    """By an earlier list. What it published then is owed to subscribers."""
    NEVER = 3


class SourceState:
    """What is known of a stream that goes on, or has ended and is not over yet."""

    __slots__ = (
        "above", "came_at", "closed", "elsewhere", "end", "gone_since", "heard_end", "known_to", "right", "warrant",
    )  # fmt: skip

    def __init__(
        self, warrant: SourceWarrant | None = None, came_at: float = 0.0, right: Right = Right.MAY
    ) -> None:  # fmt: skip
        self.right = right
        self.warrant = warrant  # the source's, where a list says who may publish
        self.came_at = came_at  # when its last event came, or else word of it
        self.known_to = 0  # how far neighbours said that it has gone
        self.above: StreamDown | None = None  # what the parent reported last
        self.elsewhere = 0  # who may come below may have it up to here
        self.end: int | None = None
        self.closed = False  # the source said so itself
        self.heard_end = 0  # where others took it for ended, beyond a partition
        self.gone_since: float | None = None  # when a root missed the source

    def hear_above(self, report: StreamDown | None) -> None:
        """What the parent reports; None: there is no parent any more."""
        self.above = report

    def join_above(self, report: StreamDown) -> None:
        """What a new parent says: others may come below who have as much."""
        self.above, self.elsewhere = report, max(self.elsewhere, report.reach)

    def is_news(self, reach: int) -> bool:
        """A neighbour says how far it has gone. True if no neighbour said that before."""
        before, self.known_to = self.known_to, max(self.known_to, reach)
        return reach > before

    def went_to(self, end: int) -> None:
        """Others took it for ended there, beyond a partition."""
        self.heard_end = end

    def show(self, warrant: SourceWarrant) -> None:
        """By this warrant, its source may publish."""
        self.warrant, self.right = warrant, Right.MAY

    def judge(self, right: Right) -> None:
        """May its source publish, by another list?"""
        self.right = right

    def is_back(self) -> bool:
        """Its source is there. True if the stream was taken for ended."""
        before, self.end, self.gone_since = self.end, None, None
        return before is not None

    def miss(self, now: float) -> float:
        """Its source is gone. Returns since when."""
        self.gone_since = now if self.gone_since is None else self.gone_since
        return self.gone_since

    def end_at(self, end: int) -> None:
        """The root takes it for ended."""
        self.end = end

    def close(self, end: int) -> None:
        """The source said where its stream ends."""
        self.end, self.closed = end, True

    def take_end(self, end: int | None, *, is_alive: bool) -> None:
        """The root took the stream for ended at an index, or takes it back; the peer of the source knows better."""
        if not self.closed:
            self.end = None if is_alive else end


class Sources:
    """The streams of a topic whose events are numbered by their sources."""

    __slots__ = (
        "changed", "denied", "left_out_at", "listed_at", "milestones", "mine", "over", "own",
        "partitioned", "served", "states", "told", "up",
    )  # fmt: skip

    def __init__(self) -> None:
        self.states: dict[Term, SourceState] = {}
        self.changed: dict[Term, None] = {}  # to be told to the neighbours
        self.own: Source | None = None  # the stream of this peer's publishers
        self.mine: dict[Term, None] = {}  # that one, and those it had before that are not over
        self.over = 0  # events of streams that are over
        self.milestones: dict[Term, Milestones] = {}  # of these
        self.told: dict[Term, tuple[bytes, Milestones]] = EMPTY  # of streams, as neighbours told that came since
        self.up: Channel | None = None  # the channel to the parent
        self.partitioned = False  # as the root says
        self.listed_at = -inf  # when another list of publishers came to be known; long ago, if it was there before
        self.left_out_at = -inf  # when there was no room for a stream that a neighbour has
        self.denied = False  # did a neighbour speak of a stream whose source might not publish? It does not repeat that
        self.served = True  # does the parent send the topic's events here? Not if this peer only publishes

    def begin_own(self, own: Source) -> None:
        """This peer's publishers have a stream."""
        self.own = own
        self.mine[own.term] = None

    def close_own(self) -> None:
        """This peer publishes no more."""
        self.own = None

    def disown(self, term: Term) -> None:
        """The parent has what a stream of this peer held, which has ended."""
        del self.mine[term]

    def enter(self, term: Term, state: SourceState) -> None:
        """A stream begins here, or goes on."""
        self.states[term] = state

    def drop(self, term: Term) -> None:
        """Nobody here or below wants another source's stream any more."""
        del self.states[term]

    def conclude(self, term: Term, end: int) -> SourceState:
        """A stream is over. Returns what was known of it."""
        if self.own is not None and self.own.term == term:
            self.own = None
        self.mine.pop(term, None)
        self.over += end
        return self.states.pop(term)

    def resume(self, term: Term, end: int) -> Milestones | None:
        """A stream that was over goes on: it counts among those again. Returns by when it had come how far."""
        self.over -= end
        return self.milestones.pop(term, None)

    def remember(self, term: Term, milestones: Milestones, ends: Container[Term], most: int) -> None:
        """By when a stream that is over had come how far, for as long as its end is known, of at most so many."""
        self.milestones[term] = milestones
        if len(self.milestones) > most:
            self.milestones = {term: each for term, each in self.milestones.items() if term in ends}

    def note_told(self, term: Term, node: bytes, milestones: Milestones, most: int) -> None:
        """A neighbour that came said this of a stream that is over here; at most so many such words are kept."""
        self.told = self.told or {}
        self.told[term] = (node, milestones)
        if len(self.told) > most:
            del self.told[next(iter(self.told))]

    def take_told(self, term: Term, node: bytes) -> Milestones | None:
        """What that neighbour said."""
        told = self.told.get(term)
        if told is None or told[0] != node:
            return None
        del self.told[term]
        return told[1]

    def take_changed(self) -> Iterable[Term]:
        """The streams of which there are news for the neighbours."""
        changed, self.changed = self.changed, {}
        return changed

    def connect(self, up: Channel) -> None:
        """Events go up to the parent."""
        self.up = up

    def disconnect(self) -> None:
        """There is no parent any more."""
        self.up = None

    def note_served(self, *, served: bool) -> None:
        """Does the parent send the topic's events here, or is this the root?"""
        self.served = served

    def note_partitioned(self, *, partitioned: bool) -> bool:
        """Is the topic partitioned, as the root says? True if that is news."""
        before, self.partitioned = self.partitioned, partitioned
        return before != partitioned

    def note_denied(self) -> None:
        """A neighbour spoke of a stream whose source might not publish."""
        self.denied = True

    def note_left_out(self, now: float) -> None:
        """There was no room for a stream that a neighbour has."""
        self.left_out_at = now

    def list_learned(self, now: float) -> None:
        """Another list of publishers came to be known."""
        self.listed_at = now

    def is_due(self, flow: Flow) -> bool:
        """Will time change anything: is something not stable, has a stream ended, or is a source gone?"""
        return any(
            state.end is not None
            or state.gone_since is not None
            or (state.right is not Right.MAY and not stream.barred)
            or stream.stable < max(stream.seen.end, state.above.reach if state.above is not None else 0)
            for state, stream in ((state, flow.others[term]) for term, state in self.states.items())
        )

    def touch(self) -> None:
        """All streams may have news."""
        self.changed |= dict.fromkeys(self.states)

    def filter_to(self, node: bytes, flow: Flow, inner: Filter | None = None) -> Filter:
        """A filter for the channel to a neighbour: nothing goes back to where its stream comes from."""

        def enters(bundle: Bundle) -> Bundle | None:
            if came_from(node, flow, bundle):
                return None
            return bundle if inner is None else inner(bundle)

        return enters


def came_from(node: bytes, flow: Flow, bundle: Bundle) -> bool:
    """Does a bundle's stream come from a neighbour? Where it has a routing record, that says where it goes."""
    stream = flow.others.get(bundle.envelope.term)
    return stream is not None and stream.via == node and not bundle.envelope.record


class NoSources(Sources):
    """For topics whose root numbers the events: shared by all peers of a process, so writing to it is an error."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        for name in ("states", "changed", "mine", "milestones", "told"):
            super().__setattr__(name, EMPTY)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise TypeError(f"cannot set {name!r} of the shared object for topics without sources")
        super().__setattr__(name, value)

    def touch(self) -> None:
        """There are no streams."""


NO_SOURCES = NoSources()
