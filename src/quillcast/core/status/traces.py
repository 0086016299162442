"""The way of one bundle."""

from quillcast.core.status.base import PeerContact, Status, TopicScope


class TraceWay(PeerContact, frozen=True):
    """A channel from one peer to another, and what it made of a bundle."""

    why: str
    """Why the bundle did not take it: `waits` (for credit), `came from there`, `its filter`, ... Empty: it went."""
    channel: str
    """The label of the channel, if a scope ordered it."""
    filter: str
    """The channel's filter, in words."""
    record: str
    """The routing record with which the bundle went: origin and current member per level of scopes."""


class TraceHop(PeerContact, frozen=True):
    """A peer to which a bundle came, and what it did with it."""

    sender: str | None
    """NodeId of the peer that it came from. None where it began its way: at the root, or at its source."""
    at_ms: float
    """When it came, milliseconds after its first event was published. Each peer tells that by its own clock."""
    scope: str
    """The scope that the peer is a member of."""
    record: str
    """The routing record with which it came."""
    stopped: str
    """Why it ended here: `repeat` (another copy came before), `misrouted` and more. Empty: it went on."""
    repair: bool
    """Whether it came as a repair."""
    subscriptions: int
    """Subscriptions of the peer that took it."""
    waiting: int
    """Subscriptions of the peer in which it waits for room, or behind a gap."""
    ways: tuple[TraceWay, ...]
    """The channels from here."""
    scopes: tuple[TopicScope, ...] = ()
    """That scope and those around it, the innermost first, with their policies."""


class TraceStatus(Status, frozen=True):
    """The way of one bundle of a topic."""

    topic: str
    """The topic's name."""
    known: bool
    """Whether there is such a topic."""
    complete: bool
    """Whether a bundle came, and all that it went to told of it."""
    events: int
    """Events in the bundle; 0 if none came in time."""
    size_bytes: int
    """Its size."""
    term: str
    """The term of its events."""
    first: int
    """The index of its first event in that term."""
    serial: int
    """The bundle's number, which filters divide bundles by."""
    published_ns: int
    """When its first event was published, by the publisher's clock: nanoseconds since 1970 UTC."""
    publisher: PeerContact | None
    """The peer that published its first events."""
    hops: tuple[TraceHop, ...]
    """In the order of their times."""
    unresponsive: tuple[PeerContact, ...]
    """Peers of the tree that do not answer, and those to which it went and that did not tell of it."""
    not_reached: tuple[PeerContact, ...]
    """Peers of the tree that it had not reached in time."""
