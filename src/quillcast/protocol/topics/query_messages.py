"""Queries of peers about a topic or the overlay, for people and tools to read, and the answers."""

from typing import Annotated

import msgspec

from quillcast.core.envelope import NO_TERM, AnyTerm, Term
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.protocol.scopes.messages import Carrier, ShownChannel
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import (
    BELOW_MAX,
    Seconds,
    Words,
)


class Laggards(Message, frozen=True, tag=57):
    """Walk down the tree: which peers have not acknowledged this position? Each answers Lagging to `asker`.

    Each passes it on to those children that have not acknowledged it. The root takes the position of the event of
    `publisher` before `sequence`; if that has none, the first position that is not stable.
    """

    topic: WireId
    term: AnyTerm
    index: Number
    asker: Contact
    number: Number = 0
    publisher: WireId = bytes(16)
    sequence: Number = 0
    up: bool = False
    """It is in transit from the event's source to the root, where the walk begins."""
    warrants: tuple[Warrant, ...] = ()
    """On whose behalf the asker takes part, if the topic limits who subscribes: no other peer is told who does."""


class Lagging(Message, frozen=True, tag=58):
    """What holds the position back at the sender. Maybe nothing does, and its parent does not know that yet."""

    topic: WireId
    number: Number
    behind: bool
    """The sender has not acknowledged it."""
    orphaned_leases: list[tuple[WireId, Seconds]]
    """Lost peers, and how much longer their leases last."""
    asked: list[Contact]
    """The children that the walk continues to."""
    hold_s: Seconds = 0.0
    """The sender is the root, and declares nothing stable for this long."""
    withheld: bool = False
    """The topic's list does not name the asker, so it is not told who holds the position back."""
    former: Term = NO_TERM
    """With `hold_s`: the term before mine, whose subscribers may still have to join me."""
    began_s: Seconds = 0.0
    """With `hold_s`: how long ago my term began."""
    paused: bool = False
    """With `hold_s`: because my process was paused, and another peer may have become root."""


class Survey(Message, frozen=True, tag=59):
    """Walk up to the root and down the whole tree: every peer in it answers Branch to `asker`.

    Routed to the topic if the asker has no part in its tree. A query creates no topic and no root: if there is no root,
    the peer closest to the topic answers in a Branch what it knows.
    """

    topic: WireId
    asker: Contact
    number: Number
    down: bool = False
    trace_s: Seconds = 0.0
    """Mark the next bundle that starts within this time: every peer that it reaches sends a Hop to `asker`."""
    warrants: tuple[Warrant, ...] = ()
    """On whose behalf the asker takes part, if the topic limits who subscribes."""
    root_scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The topic's root scope as the asker knows it. Peers that know another one do not answer."""


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """A local subscription, and how far it is behind. An event counts until the application is done with it."""

    name: str
    """The name that the application gave it."""
    number: Number
    taken: Number
    """One past the last position of the peer's term that the application's queue received without a gap."""
    owed: Number = 0
    """Events of earlier terms that it has still to receive."""
    waiting: Number = 0
    """Events in the application's queue, and the one that it is processing."""
    waiting_bytes: Number = 0
    behind_s: Seconds = 0.0
    """The age of the oldest event that its peer has and that it has not processed, by this peer's clock."""
    stalled_s: Seconds = 0.0
    """For how long it has taken nothing although events wait."""


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """What a child acknowledged, with all below it. `lost`: the child is gone, and its lease continues."""

    node: WireId
    term: AnyTerm
    acknowledged: Number
    lost: bool = False
    owed: Number = 0
    """Events of sources' streams that it has not acknowledged."""
    behind_s: float = 0.0
    """Age of the oldest event that it has not acknowledged."""


class Branch(Message, frozen=True, tag=60):
    """The sender's place in the topic's tree, for people to see. Without parent and not `root`: it is in no tree."""

    topic: WireId
    number: Number
    parent: bytes
    children: list[Contact]
    subscribers: Number
    term: AnyTerm
    frontier: Number
    root: bool = False
    readers: tuple[Reader, ...] = ()
    """The local subscriptions, furthest behind first; if there are many, only these."""
    leases: tuple[Lease, ...] = ()
    events: Number = 0
    """Events that the topic is known to have had, including earlier terms. None is counted twice."""
    descriptor: Descriptor | None = None
    """The topic, as its root or the peer closest to it knows it."""
    streams: Number = 0
    """The live streams of sources here."""
    source: bool = False
    """Whether it numbers the events of its own publishers."""
    scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The name of the scope that it is a member of."""
    readmitted: Number = 0
    """Events that a later term admitted again, as far as the sender knows."""
    changing: bool = False
    """Whether the topic's policy is being changed in its scope, so that channels of two policies are here."""
    carriers: tuple[Carrier, ...] = ()
    """The scopes that carry the topic at the sender, the innermost first."""
    channels: tuple[ShownChannel, ...] = ()
    """The channels from here that bundles take by their records; if there are many, only some."""


class WayOut(msgspec.Struct, frozen=True, array_like=True):
    """A channel to another peer, and what it did with a bundle."""

    to: Contact
    why: Words = ""
    """Why the bundle did not take it: `waits` for credit, or what stopped it. Empty: it took it."""
    channel: Words = ""
    """The label of the channel, if a scope ordered it."""
    filter: Words = ""
    """A description of its filter."""
    record: bytes = b""
    """The routing record that the bundle had when it left."""


class Hop(Message, frozen=True, tag=110):
    """What the sender did with the bundle that a Survey had marked, for people to see."""

    topic: WireId
    number: Number
    term: AnyTerm
    first: Number
    count: Number
    size_bytes: Number
    at_ns: int
    """When it did, by the sender's clock, nanoseconds since 1970 UTC."""
    published_ns: int
    """When its first event was published, by the publisher's clock."""
    ways: tuple[WayOut, ...]
    sender: bytes = b""
    """The peer that the bundle came from; empty: it started here."""
    publisher: Contact | None = None
    """The peer of the publisher of its first events, if the bundle started here."""
    stopped: Words = ""
    """Why it ended here and was not passed on: `repeat`, `misrouted` and more."""
    record: bytes = b""
    """The routing record with which it arrived."""
    taken: Number = 0
    """Local subscriptions that took it."""
    waiting: Number = 0
    """Local subscriptions in which it waits for room, or behind a gap."""
    repair: bool = False
    """Whether it came as a repair."""
    scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The name of the scope that the sender is a member of."""
    serial: Number = 0
    carriers: tuple[Carrier, ...] = ()
    """The scopes that carry the topic at the sender, the innermost first."""


class PlaceQuery(Message, frozen=True, tag=111):
    """From a peer that looks for a parent nearer to the root: who is below you? Answer `PlaceAnswer`.

    At first routed to the topic: the root answers.
    """

    topic: WireId
    asker: Contact
    warrant: Warrant | None = None
    """On whose behalf the asker subscribes, if a list says who may."""


class PlaceAnswer(Message, frozen=True, tag=112):
    """Whether I would adopt you, and my children, with the time that an event takes to each."""

    topic: WireId
    has_room: bool
    below: Annotated[tuple[tuple[Contact, Seconds], ...], msgspec.Meta(max_length=BELOW_MAX)] = ()
    is_root: bool = False
    only_forwards: bool = False
    """The sender leaves the tree once it has no children."""


MESSAGES: tuple[type[Message], ...] = (
    Laggards, Lagging, Survey, Branch, Hop, PlaceQuery, PlaceAnswer,
)  # fmt: skip
