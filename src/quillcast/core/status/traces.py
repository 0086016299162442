"""The trace of one bundle."""

from quillcast.core.status.base import PeerContact, Status, TopicScope


class TraceWay(PeerContact, frozen=True):
    """A channel from one peer to another, and its effect on a bundle."""

    why: str
    """Why the bundle was not sent: `waits` (for credit), `came from there`, `its filter`, ... Empty if it was."""
    channel: str
    """The label of the channel, if it belongs to a scope."""
    filter: str
    """The channel's filter, as text."""
    record: str
    """The routing record of the sent bundle: origin and current member per level of scopes."""


class TraceHop(PeerContact, frozen=True):
    """A peer that a bundle reached, and what it did with the bundle."""

    sender: str | None
    """NodeId of the peer that sent it. None where the bundle began: at the root, or at its source."""
    at_ms: float
    """When it arrived, milliseconds after its first event was published, by each peer's own clock."""
    scope: str
    """The scope that the peer is a member of."""
    record: str
    """The routing record with which it arrived."""
    stopped: str
    """Why it ended here: `repeat` (another copy came before), `misrouted` and more. Empty if it continued."""
    repair: bool
    """Whether it arrived as a repair."""
    subscriptions: int
    """Subscriptions of the peer that got it."""
    waiting: int
    """Subscriptions of the peer in which it waits for room or behind a gap."""
    ways: tuple[TraceWay, ...]
    """The channels from here."""
    scopes: tuple[TopicScope, ...] = ()
    """That scope and those around it, innermost first, with their policies."""


class TraceStatus(Status, frozen=True):
    """The trace of one bundle of a topic."""

    topic: str
    """The topic's name."""
    known: bool
    """Whether the topic exists."""
    complete: bool
    """Whether a bundle came, and all peers that were sent it have answered."""
    events: int
    """Events in the bundle; 0 if none came in time."""
    size_bytes: int
    """Its size."""
    term: str
    """The term of its events."""
    first: int
    """The index of its first event in that term."""
    serial: int
    """The bundle's number, by which filters divide bundles."""
    published_ns: int
    """When its first event was published, by the publisher's clock: nanoseconds since 1970 UTC."""
    publisher: PeerContact | None
    """The peer that published its first events."""
    hops: tuple[TraceHop, ...]
    """The peers that it reached, in order of time."""
    unresponsive: tuple[PeerContact, ...]
    """Peers of the tree that do not answer, and peers that were sent the bundle and did not answer."""
    not_reached: tuple[PeerContact, ...]
    """Peers of the tree that it had not reached in time."""
