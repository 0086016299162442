"""What peers ask each other about a topic or the overlay, for people and tools to read, and the answers."""

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

    It goes on to those children that have not acknowledged it. The root takes the position of the event of
    `publisher` before `sequence`; where that has none, the first one that is not stable.
    """

    topic: WireId
    term: AnyTerm
    index: Number
    asker: Contact
    number: Number = 0
    publisher: WireId = bytes(16)
    sequence: Number = 0
    up: bool = False
    """It is on its way from the event's source to the root, where the walk begins."""
    warrants: tuple[Warrant, ...] = ()
    """On whose behalf the asker takes part, if the topic limits who subscribes: nobody else is told who does."""


class Lagging(Message, frozen=True, tag=58):
    """What holds the position back at the sender: maybe nothing, for its parent need not have heard of that yet."""

    topic: WireId
    number: Number
    behind: bool
    """The sender has not acknowledged it."""
    orphaned_leases: list[tuple[WireId, Seconds]]
    """Peers that are gone, and how much longer their leases go on."""
    asked: list[Contact]
    """The children that the walk goes on to."""
    hold_s: Seconds = 0.0
    """The sender is the root, and calls nothing stable for so long."""
    withheld: bool = False
    """The topic's list does not name the asker, so it is not told who holds the position back."""
    former: Term = NO_TERM
    """With `hold_s`: the term before mine, whose subscribers may have yet to come to me."""
    began_s: Seconds = 0.0
    """With `hold_s`: my term began so long ago."""
    paused: bool = False
    """With `hold_s`: because my process was paused, and another peer may have become root."""


class Survey(Message, frozen=True, tag=59):
    """Walk up to the root and down the whole tree: every peer in it answers Branch to `asker`.

    Routed to the topic where the asker has no part in its tree. A question makes no topic and no root: where nobody is
    root, the peer closest to the topic says in a Branch what it knows.
    """

    topic: WireId
    asker: Contact
    number: Number
    down: bool = False
    trace_s: Seconds = 0.0
    """Mark the next bundle that begins its way within this time: every peer that it comes to tells `asker` in a Hop."""
    warrants: tuple[Warrant, ...] = ()
    """On whose behalf the asker takes part, if the topic limits who subscribes."""
    root_scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The root scope that the topic has where the asker is. Peers of a topic with another one tell nothing of it."""


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """A local subscription, and how far it is behind. An event counts until the application is done with it."""

    name: str
    """As the application named it."""
    number: Number
    taken: Number
    """One past the last position of the peer's term that was handed to the application's queue without a gap."""
    owed: Number = 0
    """Events of earlier terms that were not handed to it."""
    waiting: Number = 0
    """Events in the application's queue, and the one that it is at."""
    waiting_bytes: Number = 0
    behind_s: Seconds = 0.0
    """The age of the oldest event that its peer has and that it has not processed, by this peer's clock."""
    stalled_s: Seconds = 0.0
    """For how long it has taken nothing, though something waits."""


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """What a child acknowledged, with all below it; `lost`: it is gone, and its lease goes on."""

    node: WireId
    term: AnyTerm
    acknowledged: Number
    lost: bool = False
    owed: Number = 0
    """Events of the streams of sources that it has not acknowledged."""
    behind_s: float = 0.0
    """Age of the oldest event that it has not acknowledged."""


class Branch(Message, frozen=True, tag=60):
    """The sender's place in the topic's tree, for people to see. No parent and not `root`: it is in none."""

    topic: WireId
    number: Number
    parent: bytes
    children: list[Contact]
    subscribers: Number
    term: AnyTerm
    frontier: Number
    root: bool = False
    readers: tuple[Reader, ...] = ()
    """The local subscriptions, those that are furthest behind first; of many only these."""
    leases: tuple[Lease, ...] = ()
    events: Number = 0
    """Events that the topic is known to have had, of earlier terms too. None is counted twice."""
    descriptor: Descriptor | None = None
    """The topic, as its root or the peer closest to it knows it."""
    streams: Number = 0
    """The streams of sources that go on here."""
    source: bool = False
    """Does it number the events of publishers of its own?"""
    scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The name of the scope that it is a member of."""
    readmitted: Number = 0
    """Events that a later term admitted again, as far as the sender knows."""
    changing: bool = False
    """Is the topic's policy being changed in its scope, so that channels of two policies are here?"""
    carriers: tuple[Carrier, ...] = ()
    """The scopes that carry the topic where the sender is, the innermost first."""
    channels: tuple[ShownChannel, ...] = ()
    """The channels from here that bundles take by their records; of many only some."""


class WayOut(msgspec.Struct, frozen=True, array_like=True):
    """A channel to another peer, and what it made of a bundle."""

    to: Contact
    why: Words = ""
    """Why the bundle did not take it: `waits` for credit, or what stopped it. Empty: it went."""
    channel: Words = ""
    """The label of the channel, if a scope ordered it."""
    filter: Words = ""
    """Its filter, in words."""
    record: bytes = b""
    """The routing record with which the bundle went."""


class Hop(Message, frozen=True, tag=110):
    """What the sender did with the bundle that a Survey had marked, for people to see."""

    topic: WireId
    number: Number
    term: AnyTerm
    first: Number
    count: Number
    size_bytes: Number
    at_ns: int
    """When, by the sender's clock, nanoseconds since 1970 UTC."""
    published_ns: int
    """When its first event was published, by the publisher's clock."""
    ways: tuple[WayOut, ...]
    sender: bytes = b""
    """Whom the bundle came from; empty: it began its way here."""
    publisher: Contact | None = None
    """The peer of the publisher of its first events, where it began its way."""
    stopped: Words = ""
    """Why it ended here, without having been passed on: `repeat`, `misrouted` and more."""
    record: bytes = b""
    """The routing record with which it arrived."""
    taken: Number = 0
    """Local subscriptions that took it."""
    waiting: Number = 0
    """Local subscriptions in which it waits for room, or behind a gap."""
    repair: bool = False
    """Did it come as a repair?"""
    scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The name of the scope that the sender is a member of."""
    serial: Number = 0
    carriers: tuple[Carrier, ...] = ()
    """The scopes that carry the topic there, the innermost first."""


class PlaceQuery(Message, frozen=True, tag=111):
    """From a peer that looks for a parent nearer to the root: who is below you? Answer `PlaceAnswer`.

    Routed to the topic at first: the root answers.
    """

    topic: WireId
    asker: Contact
    warrant: Warrant | None = None
    """On whose behalf the asker subscribes, where a list says who may."""


class PlaceAnswer(Message, frozen=True, tag=112):
    """Whether I take you in as a child, and who my children are, with the time that an event takes to each."""

    topic: WireId
    has_room: bool
    below: Annotated[tuple[tuple[Contact, Seconds], ...], msgspec.Meta(max_length=BELOW_MAX)] = ()
    is_root: bool = False
    only_forwards: bool = False
    """The sender leaves the tree once it has no children."""


MESSAGES: tuple[type[Message], ...] = (
    Laggards, Lagging, Survey, Branch, Hop, PlaceQuery, PlaceAnswer,
)  # fmt: skip
