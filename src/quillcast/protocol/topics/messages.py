"""Messages between neighbours in a topic's tree. Tags 40 to 69 and 110 to 129 are this layer's.

The others are in `root_messages` and `query_messages`.
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from quillcast.core.envelope import AnyTerm, Term
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.forwarding.milestones import ToldMilestones, older
from quillcast.protocol.scopes.channels import INVITATION_BYTES
from quillcast.protocol.security.access import PublicKey, SourceWarrant, Warrant
from quillcast.protocol.topics.descriptor import Descriptor

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Words = Annotated[str, msgspec.Meta(max_length=1024)]
"""Text for people to read."""
PAGE_TOPICS_MAX = 128  # topics in one message; with long access lists it stays below a frame's size
NEWCOMERS_MAX = 64  # peers named that arrived lately; a guess: as many as move when a few forwarders leave at once
BELOW_MAX = 64  # children that a peer names to a peer that looks for a parent; a guess
StreamEnd = tuple[AnyTerm, Number, ToldMilestones]
"""The stream of a source that has ended, its end, and its milestones."""
Ends = Annotated[tuple[StreamEnd, ...], msgspec.Meta(max_length=ENDS_TOLD_MAX)]
AgedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number | None], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far ended terms went, and for how many milliseconds the events up to there have existed; None: unknown."""
DatedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far terms had come, and for how many milliseconds at least these events have existed."""


class Have(Message, frozen=True, tag=40):
    """What a peer has of a topic when it joins (again): its term, and from where it needs that term's events.

    `own`: it was here before, and speaks for the peers that were below it. A peer new to the tree says what its first
    children have.
    """

    term: Term
    frontier: Number
    own: bool = True


class Join(Message, frozen=True, tag=41):
    """Routed to the topic. Add `child` to the children table; a peer new to the tree sends its own Join onwards."""

    topic: WireId
    child: Contact
    have: Have | None = None
    digest: bytes = b""
    descriptor: Descriptor | None = None
    earliest: bool = False
    """Start as far back as the parent's buffer reaches, not at its frontier. A child may also ask for that later."""
    note: bytes = b""
    """The note that the application's fault handler added (Scribe, section 3.2)."""
    warrant: Warrant | None = None
    """On whose behalf the child subscribes."""
    moved: bool = False
    """The child left a parent, which may hold its lease: tell the peers above that it arrived."""
    again: bool = False
    """An answer did not arrive: send this one over the overlay, because the path between the two may be cut."""
    sends_only: bool = False
    """The child only publishes: forward no events to it."""
    streams: tuple[tuple[AnyTerm, Number, Number], ...] = ()
    """The streams of sources that it knows: how far it has each without a gap, and up to where each is stable."""
    ended: Ends = ()
    """The ended streams that it remembers."""
    warrants: tuple[SourceWarrant, ...] = ()
    """Those of the sources of these streams, if a list says who may publish."""
    number: Number = 0
    """Of this parent, by the child's count: the next one has a higher number. 0: the child does not count."""
    path: tuple[WireId, ...] = ()
    """From the root to the child's former parent, if it moved."""
    unresponsive: tuple[WireId, ...] = ()
    """Peers that it was referred to and that did not answer: refer it to others, or adopt it."""
    milestones: tuple[ToldMilestones, ...] = ()
    """For each of `streams`, in order: the child's milestones."""

    @property
    def is_new(self) -> bool:
        """Whether the child is new to the tree or was restarted: then it does not know who was below it."""
        return self.have is None or not self.have.own

    def aged(self, by_s: float) -> "Join":
        """Return the same message after it waited: its events have existed for longer."""
        if not (self.milestones or self.ended):
            return self
        ended = tuple((term, end, older(told, by_s)) for term, end, told in self.ended)
        return replace(self, milestones=tuple(older(told, by_s) for told in self.milestones), ended=ended)


class Rejoin(Message, frozen=True, tag=42):
    """Sent directly to a parent known beforehand: adopt `child` in all these topics, whose parent `lost` is gone."""

    child: Contact
    lost: bytes
    joins: list[Join]


class Invite(Message, frozen=True, tag=55):
    """The planner of these topics' trees wants you to be my child: send me a `Rejoin`. Keep your parent until then.

    `invitation` proves that: the manager of the receiver's scope gave it to the peers that are to invite the receiver.
    """

    topics: list[WireId]
    invitation: Annotated[bytes, msgspec.Meta(max_length=INVITATION_BYTES)] = b""


class Accepted(Message, frozen=True, tag=43):
    """You are my child. Enter me as parent: events of `term` from `start` on will come from me.

    `path` leads from the root to me. `fallbacks` are parents to turn to if I am lost, best first. `past` says how far
    earlier terms went, as far as I know: you are to get the rest of them too. `gone`: you asked for the earliest
    events, and these are no longer kept; None: you did not ask. `newest` is how far the term has gone, as far as I
    know: your subscriptions that begin now begin there. `streams`: for each source, from where on its events will come,
    and how far I have them.
    """

    topic: WireId
    term: Term
    start: Number
    path: tuple[WireId, ...]
    fallbacks: tuple[Contact, ...]
    descriptor: Descriptor | None = None
    past: AgedEnds = ()
    gone: tuple[Gone, ...] | None = None
    newest: Number = 0
    streams: tuple[tuple[AnyTerm, Number, Number], ...] = ()
    sends_only: bool = False
    """You asked for no events, so none will come."""
    ended: Ends = ()
    """The ended streams of sources that I remember."""
    warrants: tuple[SourceWarrant, ...] = ()
    """Those of the sources of `streams`, if a list says who may publish."""
    version: Number = 0
    """Of the topic's descriptor: a child that knows an earlier one has restarted since its Join, and asks again."""
    milestones: tuple[ToldMilestones, ...] = ()
    """For each of `streams`, in order: my milestones."""
    number: Number = 0
    """How many parents I have had (`Move`). It tells a former parent of mine whether I was restarted since."""
    child_number: Number = 0
    """The number of your move by which you are in my table (`Join.number`). 0: unknown. If you left me since, I will
    remove you once I hear of it."""


class Refused(Message, frozen=True, tag=44):
    """I cannot be your parent in this topic.

    `why` is loop, orphan, leaving, full (ask one of `instead`), unknown, describe, denied (by `rule`, to anybody), or
    unusable: the topic has another root scope, or I am in too many topics, as `rule` says.
    """

    topic: WireId
    why: str
    instead: tuple[Contact, ...] = ()
    rule: str = ""
    key: PublicKey = b""
    """Denied: the credential of the warrant in your Join; empty: it had none. Others may be accepted."""


class JoinWithdrawn(Message, frozen=True, tag=122):
    """I no longer wait for you to be my parent in this topic. `number`: of my last Join that this is about."""

    topic: WireId
    number: Number


class Leave(Message, frozen=True, tag=45):
    """Remove me from your children table. `moved`: my lease, or others that I spoke for, continue elsewhere."""

    topic: WireId
    moved: bool = False
    leases: tuple[WireId, ...] = ()
    """The peers with these leases, each with all below it; empty: only me."""
    up_to: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""
    """The lowest peer above both you and my new parent, as far as I know: no peer above needs to hear that I moved."""
    number: Number = 0
    """How many parents I have had. If I have joined you again since (`Join.number`), this is old. 0: it is not."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, in order, the number of its last move that I know, which shows a restart. 0: unknown."""
    left_s: tuple[Seconds, ...] = ()
    """For each of them, how much longer it lasts."""
    run: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""
    """My incarnation, if it began within a lease. If I came to you in an earlier one, leases continue below me."""
    declined: bool = False
    """Another answer to my Join came first, so yours made me no child. You still wait for me as before, if you did."""


UpTo = Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)]


class LeaseHeld(Message, frozen=True, tag=114):
    """I lost you as a child in these topics, and your lease holds back what I report. Are you elsewhere now?

    If so, answer `HasOtherParent`, and have your parent name you to the peers above it (`NameAgain`). For topics that
    nobody needs, answer `LeaseOver`.
    """

    leases: Annotated[list[tuple[WireId, Number, tuple[WireId, ...]]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the number with which you had joined me (`Join.number`), the path from the root to me"""


class HasOtherParent(Message, frozen=True, tag=117):
    """I have another parent in these topics. Tell the peers above that you wait for me: they may know of my move."""

    topics: Annotated[list[tuple[WireId, UpTo]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the lowest peer above us both, as far as I know"""


class LeaseOver(Message, frozen=True, tag=116):
    """I was your child in these topics, in this incarnation. Neither I nor any peer that was below me needs them."""

    leases: Annotated[list[tuple[WireId, Number]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the number that you asked with"""


class NameAgain(Message, frozen=True, tag=115):
    """From a child: another peer still holds my lease in these topics. Tell the peers above you again about me."""

    topics: Annotated[list[tuple[WireId, UpTo]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the lowest peer that must hear of it; empty: the root"""
    number: Number = 0
    """How many parents I have had by now. You do not know it if you took me back without a Join (`Move`)."""


class Orphaned(Message, frozen=True, tag=46):
    """I am no longer your parent in these topics (leaving, or I do not know you as a child): join again, best there."""

    topics: list[WireId]
    instead: tuple[Contact, ...] = ()


class StreamsEnded(Message, frozen=True, tag=56):
    """To all neighbours in the tree, after a partition: these streams of sources went further than neighbours knew.

    Peers that should have received the events beyond have lost them. Pass on what is news to you.
    """

    topic: WireId
    ends: Ends


class CutLeases(Message, frozen=True, tag=68):
    """From a parent with full buffers: end leases below you that have not acknowledged this position (slow = cut)."""

    topic: WireId
    term: AnyTerm
    index: Number
    slow: bool = False
    """Only leases of subscribers without room for what their peer has: the session is to end, and buffers have room."""


class Denied(Message, frozen=True, tag=61):
    """Your events were not admitted, because of this descriptor's list. Show a warrant that it names.

    From the root, or from a neighbour of a source.
    """

    descriptor: Descriptor
    full: bool = False
    """The reason is not the list: the topic has as many sources as it may have. Try again later."""


class Farewell(Message, frozen=True, tag=120):
    """I leave and have no parent: nobody needs to wait for me. `moved`: leases of others that I spoke for continue."""

    topic: WireId
    moved: bool = False
    leases: tuple[WireId, ...] = ()
    """As in `Leave`; empty: there are too many."""
    lives: tuple[Number, ...] = ()
    left_s: tuple[Seconds, ...] = ()
    number: Number = 0
    """How many parents I have had."""


class FarewellHeard(Message, frozen=True, tag=121):
    """You may go: I wait for the peers that you named, and tell the peers above me about you."""

    topic: WireId


MESSAGES: tuple[type[Message], ...] = (
    Have, Join, Rejoin, Invite, Accepted, Refused, JoinWithdrawn, Leave, Orphaned, Denied, StreamsEnded, CutLeases,
    LeaseHeld, HasOtherParent, LeaseOver, NameAgain, Farewell, FarewellHeard,
)  # fmt: skip
