"""What a peer knows about the sources of one topic. Their streams themselves are in `forwarding.Flow.others`."""

from collections.abc import Container, Iterable
from enum import Enum
from math import inf
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.interning import EMPTY
from quillcast.protocol.forwarding.channels import BundleFilter, Channel
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.security.access import SourceWarrant
from quillcast.protocol.topics.state.link_reports import StreamDown
from quillcast.protocol.topics.state.source import Source


class Right(Enum):
    """Whether the topic's access list lets the source of a stream publish."""

    MAY = 1
    COULD = 2
    """An earlier list allowed it. Subscribers get what it published then."""
    NEVER = 3


class SourceState:
    """What is known about a stream that is live, or that has ended but is not over yet."""

    __slots__ = (
        "above", "came_at", "closed", "elsewhere", "end", "gone_since", "heard_end", "known_to", "right", "warrant",
    )  # fmt: skip

    def __init__(
        self, warrant: SourceWarrant | None = None, came_at: float = 0.0, right: Right = Right.MAY
    ) -> None:  # fmt: skip
        self.right = right
        self.warrant = warrant  # the source's, if an access list says who may publish
        self.came_at = came_at  # when its last event came, or a report of it
        self.known_to = 0  # its end as far as neighbours reported
        self.above: StreamDown | None = None  # what the parent reported last
        self.elsewhere = 0  # peers that may come below may have it up to here
        self.end: int | None = None
        self.closed = False  # the source itself said that it ended
        self.heard_end = 0  # the end that the other side of a partition assumed
        self.gone_since: float | None = None  # since when the root misses the source

    def came(self, now: float) -> None:
        """Note that its events came, or a report of them."""
        self.came_at = now

    def hear_above(self, report: StreamDown | None) -> None:
        """Note what the parent reports. None: there is no longer a parent."""
        self.above = report

    def join_above(self, report: StreamDown) -> None:
        """Note what a new parent says. Peers that have as much may come below."""
        self.above, self.elsewhere = report, max(self.elsewhere, report.reach)

    def is_news(self, reach: int) -> bool:
        """Note how far a neighbour says the stream reaches. Return whether that is news."""
        before, self.known_to = self.known_to, max(self.known_to, reach)
        return reach > before

    def went_to(self, end: int) -> None:
        """Note the end that the other side of a partition assumed."""
        self.heard_end = end

    def show(self, warrant: SourceWarrant) -> None:
        """Note the warrant by which its source may publish."""
        self.warrant, self.right = warrant, Right.MAY

    def judge(self, right: Right) -> None:
        """Set whether its source may publish, according to a new list."""
        self.right = right

    def is_back(self) -> bool:
        """Note that its source is present. Return whether the stream was taken for ended."""
        before, self.end, self.gone_since = self.end, None, None
        return before is not None

    def miss(self, now: float) -> float:
        """Note that its source is gone. Return since when."""
        self.gone_since = now if self.gone_since is None else self.gone_since
        return self.gone_since

    def end_at(self, end: int) -> None:
        """End the stream by decision of the root."""
        self.end = end

    def close(self, end: int) -> None:
        """Note where the source said that its stream ends."""
        self.end, self.closed = end, True

    def take_end(self, end: int | None, *, is_alive: bool) -> None:
        """Note that the root ended the stream at an index, or withdrew that. If the source closed it, that prevails."""
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
        self.changed: dict[Term, None] = {}  # to be reported to the neighbours
        self.own: Source | None = None  # the stream of this peer's publishers
        self.mine: dict[Term, None] = {}  # that one, and earlier ones that are not over
        self.over = 0  # events of streams that are over
        self.milestones: dict[Term, Milestones] = {}  # of streams that are over
        self.told: dict[Term, tuple[bytes, Milestones]] = EMPTY  # of such streams, as new neighbours told
        self.up: Channel | None = None  # the channel to the parent
        self.partitioned = False  # as the root says
        self.listed_at = -inf  # when this peer learned of another list of publishers
        self.left_out_at = -inf  # when there was no room for a stream that a neighbour has
        self.denied = False  # a neighbour reported a stream whose source might not publish; it does not repeat that
        self.served = True  # whether the parent sends the topic's events here; not if this peer only publishes

    def begin_own(self, own: Source) -> None:
        """Begin the stream of this peer's publishers."""
        self.own = own
        self.mine[own.term] = None

    def close_own(self) -> None:
        """Note that this peer no longer publishes."""
        self.own = None

    def disown(self, term: Term) -> None:
        """Give up an ended stream of this peer: the parent has all of it."""
        del self.mine[term]

    def enter(self, term: Term, state: SourceState) -> None:
        """Enter a stream that begins or resumes here."""
        self.states[term] = state

    def drop(self, term: Term) -> None:
        """Drop another source's stream that nothing here or below needs any longer."""
        del self.states[term]

    def conclude(self, term: Term, end: int) -> SourceState:
        """Remove a stream that is over. Return what was known about it."""
        if self.own is not None and self.own.term == term:
            self.own = None
        self.mine.pop(term, None)
        self.over += end
        return self.states.pop(term)

    def resume(self, term: Term, end: int) -> Milestones | None:
        """Resume a stream that was over. Return its milestones."""
        self.over -= end
        return self.milestones.pop(term, None)

    def remember(self, term: Term, milestones: Milestones, ends: Container[Term], most: int) -> None:
        """Keep the milestones of a stream that is over, for as long as its end is known; at most `most` of them."""
        self.milestones[term] = milestones
        if len(self.milestones) > most:
            self.milestones = {term: each for term, each in self.milestones.items() if term in ends}

    def note_told(self, term: Term, node: bytes, milestones: Milestones, most: int) -> None:
        """Keep what a new neighbour said about a stream that is over here; at most `most` such statements."""
        self.told = self.told or {}
        self.told[term] = (node, milestones)
        if len(self.told) > most:
            del self.told[next(iter(self.told))]

    def take_told(self, term: Term, node: bytes) -> Milestones | None:
        """Take out what that neighbour said."""
        told = self.told.get(term)
        if told is None or told[0] != node:
            return None
        del self.told[term]
        return told[1]

    def note_changed(self, term: Term) -> None:
        """Mark a stream as having news for the neighbours."""
        if term in self.states:
            self.changed[term] = None

    def take_changed(self) -> Iterable[Term]:
        """Take out the streams with news for the neighbours."""
        changed, self.changed = self.changed, {}
        return changed

    def connect(self, up: Channel) -> None:
        """Set the channel to the parent."""
        self.up = up

    def disconnect(self) -> None:
        """Remove the channel to the parent."""
        self.up = None

    def note_served(self, *, served: bool) -> None:
        """Set whether the parent sends the topic's events here, or this peer is root."""
        self.served = served

    def note_partitioned(self, *, partitioned: bool) -> bool:
        """Set whether the topic is partitioned, as the root says. Return whether that is news."""
        before, self.partitioned = self.partitioned, partitioned
        return before != partitioned

    def note_denied(self) -> None:
        """Note that a neighbour reported a stream whose source might not publish."""
        self.denied = True

    def note_left_out(self, now: float) -> None:
        """Note that there was no room for a stream that a neighbour has."""
        self.left_out_at = now

    def list_learned(self, now: float) -> None:
        """Note that another list of publishers became known."""
        self.listed_at = now

    def is_due(self, flow: Flow) -> bool:
        """Whether housekeeping is needed: something is not stable, a stream has ended, or a source is gone."""
        return any(
            state.end is not None
            or state.gone_since is not None
            or (state.right is not Right.MAY and not stream.barred)
            or stream.stable < max(stream.seen.end, state.above.reach if state.above is not None else 0)
            for state, stream in ((state, flow.others[term]) for term, state in self.states.items())
        )

    def touch(self) -> None:
        """Mark all streams as having news."""
        self.changed |= dict.fromkeys(self.states)

    def filter_to(self, node: bytes, flow: Flow, inner: BundleFilter | None = None) -> BundleFilter:
        """Return a filter for the channel to a neighbour. It stops bundles whose stream comes from there."""

        def enters(bundle: Bundle) -> Bundle | None:
            if came_from(node, flow, bundle):
                return None
            return bundle if inner is None else inner(bundle)

        return enters


def came_from(node: bytes, flow: Flow, bundle: Bundle) -> bool:
    """Whether a bundle's stream comes from a neighbour. False with a routing record, which says where it goes."""
    stream = flow.others.get(bundle.envelope.term)
    return stream is not None and stream.via == node and not bundle.envelope.record


class NoSources(Sources):
    """For topics whose root numbers the events. All peers of a process share it, so writing to it is an error."""

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
        """Do nothing: there are no streams."""


NO_SOURCES = NoSources()
