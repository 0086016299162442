"""What peers say to each other about topics. Tags 40 to 69 are this layer's."""

from typing import Annotated

import msgspec

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor


class Have(Message, frozen=True, tag=40):
    """What a peer has of a topic when it joins (again): its term, and from where it needs that term's events."""

    term: Term
    frontier: Number


class Join(Message, frozen=True, tag=41):
    """Routed to the topic. Add `child` to the children table; a peer new to the tree sends its own Join onwards."""

    topic: WireId
    child: Contact
    have: Have | None = None
    digest: bytes = b""
    descriptor: Descriptor | None = None
    earliest: bool = False
    """Start as far back as the parent's buffer reaches, not at its frontier."""
    note: bytes = b""
    """What the application's fault handler added (Scribe, section 3.2)."""
    warrant: Warrant | None = None
    """On whose behalf the child subscribes."""
    moved: bool = False
    """The child left a parent, which may hold its lease: tell those above that it came."""
    again: bool = False
    """An answer did not come: send this one over the overlay, for the way between the two may be cut."""


class Rejoin(Message, frozen=True, tag=42):
    """Sent straight to a parent known beforehand: take `child` in for all these topics, whose parent `lost` is gone."""

    child: Contact
    lost: bytes
    joins: list[Join]


class Accepted(Message, frozen=True, tag=43):
    """You are my child. Enter me as parent: events of `term` from `start` on will come from me.

    `path` leads from the root to me. `fallbacks` are parents to turn to should I be lost, best first. `past` says how
    far earlier terms went, as far as is known here: what else there is of them is owed too.
    """

    topic: WireId
    term: Term
    start: Number
    path: tuple[WireId, ...]
    fallbacks: tuple[Contact, ...]
    descriptor: Descriptor | None = None
    past: tuple[tuple[Term, Number], ...] = ()


class Refused(Message, frozen=True, tag=44):
    """I cannot be your parent in this topic.

    `why` is loop, orphan, leaving, full (ask one of `instead`), unknown, describe, denied (by `rule`, to anybody).
    """

    topic: WireId
    why: str
    instead: tuple[Contact, ...] = ()
    rule: str = ""


class Leave(Message, frozen=True, tag=45):
    """Take me out of your children table. `moved`: my lease, or those of others that I spoke for, go on elsewhere."""

    topic: WireId
    moved: bool = False
    leases: tuple[WireId, ...] = ()
    """Whose they are, each with all below it; none named: mine."""


class Orphaned(Message, frozen=True, tag=46):
    """I am no longer your parent in these topics (leaving, or I do not know you as a child): join again, best there."""

    topics: list[WireId]
    instead: tuple[Contact, ...] = ()


class Create(Message, frozen=True, tag=47):
    """Routed to the topic. The root enters the descriptor and answers Created."""

    descriptor: Descriptor
    creator: Contact
    again: bool = False
    """An answer did not come: send this one over the overlay, for the way between the two may be cut."""


class Created(Message, frozen=True, tag=48):
    """The topic stands with this descriptor, maybe an earlier one. Changed settings go down the tree in it too."""

    descriptor: Descriptor
    holders: Number = 0
    """How many peers hold the topic's state; to the creator only."""


class FindRoot(Message, frozen=True, tag=49):
    """Routed to the topic. The root answers RootIs to the publisher's peer; `term` is the highest it has seen."""

    topic: WireId
    publisher: Contact
    descriptor: Descriptor | None
    term: Term
    warrants: tuple[Warrant, ...] = ()
    """On whose behalf the peer publishes."""
    again: bool = False
    """An answer did not come: send this one over the overlay, for the way between the two may be cut."""


class RootIs(Message, frozen=True, tag=50):
    """The sender is the topic's root under this term."""

    term: Term
    descriptor: Descriptor


class NotRoot(Message, frozen=True, tag=51):
    """The sender is not the topic's root, whatever its address once was; `root` may be, else ask the overlay."""

    topic: WireId
    root: Contact | None
    unknown: bool = False
    """Nobody created the topic, and this network creates none on first use."""


class Receipts(Message, frozen=True, tag=52):
    """From the root, for each publisher: all below `admitted` has positions, below `stable` all leases cover it.

    A publisher that sent more than `admitted` goes back to there when `again` is set.
    """

    topic: WireId
    term: Term
    marks: list[tuple[bytes, Number, Number, bool]]
    """publisher, admitted, stable, again"""
    partitioned: bool = False
    """The root does not reach most of those who keep the topic's state: there may be another one beyond a split."""


class HandOver(Message, frozen=True, tag=53):
    """You are closer to this topic than I: be its root under a later term. My buffer follows as repairs.

    My reign was `term`, it went up to `index`, and below `stable` all leases covered it.
    """

    descriptor: Descriptor
    term: Term
    index: Number
    stable: Number
    heard: Term = NO_TERM
    """The highest term I heard of."""
    hold_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """I would have called nothing stable for so long yet."""
    leases: tuple[WireId, ...] = ()
    """Whom to wait for before anything is called stable: me, with all below me; if I leave, those below me."""
    frontiers: tuple[tuple[WireId, Number], ...] = ()
    """Per publisher: all events of it below that sequence are stable, and are not to be admitted again."""


class Replicas(Message, frozen=True, tag=54):
    """Keep these descriptors and terms in case their root dies (Scribe, section 3.2: the k closest peers do).

    Answer `Kept`, or `Known` where you know better.
    """

    entries: list[tuple[Descriptor, Term]]


class Laggards(Message, frozen=True, tag=57):
    """Walk down the tree: who below you does not cover this position? Each answers Lagging to `asker`."""

    topic: WireId
    term: Term
    index: Number
    asker: Contact


class Lagging(Message, frozen=True, tag=58):
    """The sender, or a child it has not heard of, does not cover the position asked for."""

    topic: WireId
    index: Number
    peers: list[WireId]


class Survey(Message, frozen=True, tag=59):
    """Walk up to the root and down the whole tree: every peer in it answers Branch to `asker`."""

    topic: WireId
    asker: Contact
    number: Number
    down: bool = False


class Branch(Message, frozen=True, tag=60):
    """The sender's place in the topic's tree, for people to see."""

    topic: WireId
    number: Number
    parent: bytes
    children: list[Contact]
    subscribers: Number
    term: Term
    frontier: Number


class Denied(Message, frozen=True, tag=61):
    """From the root: what you published was not admitted, by this descriptor's list. Show a warrant that it names."""

    descriptor: Descriptor


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What a peer knows of a topic: nothing at all, if there is neither a descriptor nor a term."""

    topic: WireId
    descriptor: Descriptor | None
    term: Term
    """The highest one that it heard of."""
    reigns: bool = False
    """It is the topic's root."""


class Ask(Message, frozen=True, tag=62):
    """The sender may be the root of these topics soon. Answer `Known`."""

    topics: list[WireId]


class Known(Message, frozen=True, tag=63):
    """What the sender knows of topics that it was asked about, or better than whoever wanted something kept."""

    entries: list[Entry]
    joining: bool = False
    """It has just started and nobody told it anything yet: that it does not know a topic says nothing."""


class Kept(Message, frozen=True, tag=64):
    """The sender keeps these, as it was told: topic, term, the descriptor's digest."""

    topics: list[tuple[WireId, Term, bytes]]


class StateDigest(Message, frozen=True, tag=65):
    """Over the root state that both peers should keep. Send what may be news to the sender, and answer with yours."""

    digest: bytes
    answer: bool = False


MESSAGES: tuple[type[Message], ...] = (
    Have, Join, Rejoin, Accepted, Refused, Leave, Orphaned, Create, Created, FindRoot, RootIs, NotRoot, Receipts,
    HandOver, Replicas, Laggards, Lagging, Survey, Branch, Denied,
    Ask, Known, Kept, StateDigest,
)  # fmt: skip
