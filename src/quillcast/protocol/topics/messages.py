"""What neighbours in a topic's tree say to each other. Tags 40 to 69 and 110 to 129 are this layer's.

`root_messages` and `query_messages` have the rest of them.
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
from quillcast.protocol.security.access import Key, SourceWarrant, Warrant
from quillcast.protocol.topics.descriptor import Descriptor

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Words = Annotated[str, msgspec.Meta(max_length=1024)]
"""For people to read."""
PAGE_TOPICS_MAX = 128  # topics in one message; with long access lists it stays below a frame's size
NEWCOMERS_MAX = 64  # peers named that came lately; a guess: as many as move when a few forwarders leave at once
BELOW_MAX = 64  # children that a peer names to one that looks for a parent; a guess
StreamEnd = tuple[AnyTerm, Number, ToldMilestones]
"""The stream of a source that is over, where it ended, and how long ago it had come how far."""
Ends = Annotated[tuple[StreamEnd, ...], msgspec.Meta(max_length=ENDS_TOLD_MAX)]
AgedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number | None], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far terms went that are over, and for how many milliseconds that has been there; None: it is not known."""
DatedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far terms had come, and for how many milliseconds these events have been there at least."""


class Have(Message, frozen=True, tag=40):
    """What a peer has of a topic when it joins (again): its term, and from where it needs that term's events.

    `own`: it was here before, and speaks for those that were below it. A peer new to the tree says what its first
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
    """Start as far back as the parent's buffer reaches, not at its frontier. A child may ask for that later, too."""
    note: bytes = b""
    """What the application's fault handler added (Scribe, section 3.2)."""
    warrant: Warrant | None = None
    """On whose behalf the child subscribes."""
    moved: bool = False
    """The child left a parent, which may hold its lease: tell those above that it came."""
    again: bool = False
    """An answer did not come: send this one over the overlay, for the way between the two may be cut."""
    sends_only: bool = False
    """The child publishes, and wants no events: forward none to it."""
    streams: tuple[tuple[AnyTerm, Number, Number], ...] = ()
    """The streams of sources that it knows: how far each came to it without a gap, and below where it is stable."""
    ended: Ends = ()
    """The streams that are over, as far as it remembers."""
    warrants: tuple[SourceWarrant, ...] = ()
    """Those of the sources of these streams, where a list says who may publish."""
    number: Number = 0
    """Of this parent, by the child's count: the next one has a higher number. 0: it does not count."""
    path: tuple[WireId, ...] = ()
    """From the root to the parent that it left, if it moved."""
    unresponsive: tuple[WireId, ...] = ()
    """Those that it was referred to and that did not answer: refer it to others, or take it in."""
    milestones: tuple[ToldMilestones, ...] = ()
    """For each of `streams`, in their order: how long ago it had come how far to the child."""

    @property
    def is_new(self) -> bool:
        """Is the child new to the tree, or was it restarted? Then it knows nothing of those that were below it."""
        return self.have is None or not self.have.own

    def aged(self, by_s: float) -> "Join":
        """The same after it waited: events have been there for longer."""
        if not (self.milestones or self.ended):
            return self
        ended = tuple((term, end, older(told, by_s)) for term, end, told in self.ended)
        return replace(self, milestones=tuple(older(told, by_s) for told in self.milestones), ended=ended)


class Rejoin(Message, frozen=True, tag=42):
    """Sent straight to a parent known beforehand: take `child` in for all these topics, whose parent `lost` is gone."""

    child: Contact
    lost: bytes
    joins: list[Join]


class Invite(Message, frozen=True, tag=55):
    """Who plans these topics' trees wants you to be my child: ask me with a `Rejoin`. Keep your parent until then.

    `invitation` shows that: the manager of the receiver's scope gave it to those that are to invite the receiver.
    """

    topics: list[WireId]
    invitation: Annotated[bytes, msgspec.Meta(max_length=INVITATION_BYTES)] = b""


class Accepted(Message, frozen=True, tag=43):
    """You are my child. Enter me as parent: events of `term` from `start` on will come from me.

    `path` leads from the root to me. `fallbacks` are parents to turn to should I be lost, best first. `past` says how
    far earlier terms went, as far as is known here: what else there is of them is owed too. `gone`: you asked for the
    earliest events, and these are not kept any more; None: you did not. `newest` is how far the term has gone, as far
    as I know: your subscriptions that begin now begin there. `streams`: of each source, from where on its events will
    come, and how far they came to me.
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
    """You asked for no events: none will come."""
    ended: Ends = ()
    """The streams of sources that are over, as far as it remembers."""
    warrants: tuple[SourceWarrant, ...] = ()
    """Those of the sources of `streams`, where a list says who may publish."""
    version: Number = 0
    """Of the topic's descriptor: a child that knows an earlier one has restarted since its Join, and asks again."""
    milestones: tuple[ToldMilestones, ...] = ()
    """For each of `streams`, in their order: how long ago it had come how far to me."""
    number: Number = 0
    """How many parents I have had (`Move`): it tells a former parent of mine whether I was restarted since."""


class Refused(Message, frozen=True, tag=44):
    """I cannot be your parent in this topic.

    `why` is loop, orphan, leaving, full (ask one of `instead`), unknown, describe, denied (by `rule`, to anybody), or
    unusable: it has another root scope, or I am in too many topics, as `rule` says.
    """

    topic: WireId
    why: str
    instead: tuple[Contact, ...] = ()
    rule: str = ""
    key: Key = b""
    """Denied: the credential of the warrant that your Join showed; empty: it showed none. Others may be accepted."""


class Leave(Message, frozen=True, tag=45):
    """Take me out of your children table. `moved`: my lease, or those of others that I spoke for, go on elsewhere."""

    topic: WireId
    moved: bool = False
    leases: tuple[WireId, ...] = ()
    """Whose they are, each with all below it; none named: mine."""
    up_to: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""
    """The lowest peer above both you and my new parent, as far as I know: no other need hear that I moved."""
    number: Number = 0
    """How many parents I have had. If I have joined you again since (`Join.number`), this is old. 0: it is not."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, in their order, the number of its last move that I know: it tells a restart. 0: of none."""
    left_s: tuple[Seconds, ...] = ()
    """For each of them, how much longer it goes on."""
    run: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""
    """My incarnation, if it began within a lease: where I came to you in an earlier one, leases go on below me."""
    declined: bool = False
    """Another's answer to my Join came first, so yours made me no child. What you wait for of me goes on as before."""


UpTo = Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)]


class LeaseHeld(Message, frozen=True, tag=114):
    """I lost you as a child in these topics, and your lease holds back what I report. Are you elsewhere now?

    If so, answer `HasOtherParent`, and have your parent name you to those above (`NameAgain`). Where nobody needs the
    topic, answer `LeaseOver`.
    """

    leases: Annotated[list[tuple[WireId, Number, tuple[WireId, ...]]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the number by which you had come to me (`Join.number`), the path from the root to me"""


class HasOtherParent(Message, frozen=True, tag=117):
    """Another is my parent in these topics. Tell those above that you wait for me: they may know that I came there."""

    topics: Annotated[list[tuple[WireId, UpTo]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the lowest peer above us both, as far as I know"""


class LeaseOver(Message, frozen=True, tag=116):
    """I was your child in these topics, in this life of mine. Neither I nor anybody who was below me needs them."""

    leases: Annotated[list[tuple[WireId, Number]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the number by which you asked"""


class NameAgain(Message, frozen=True, tag=115):
    """From a child: another peer still holds my lease in these topics. Tell those above you again that I came."""

    topics: Annotated[list[tuple[WireId, UpTo]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the lowest peer that needs to hear of it; empty: the root"""
    number: Number = 0
    """How many parents I have had by now: for you, if you took me back without a Join, and so do not know (`Move`)."""


class Orphaned(Message, frozen=True, tag=46):
    """I am no longer your parent in these topics (leaving, or I do not know you as a child): join again, best there."""

    topics: list[WireId]
    instead: tuple[Contact, ...] = ()


class StreamsEnded(Message, frozen=True, tag=56):
    """To all neighbours in the tree, after a partition: these streams of sources went further than they had known.

    Peers that are owed what lies beyond have lost it. They pass on what is news to them.
    """

    topic: WireId
    ends: Ends


class CutLeases(Message, frozen=True, tag=68):
    """From a parent with full buffers: end leases below you that have not acknowledged this position (slow = cut)."""

    topic: WireId
    term: AnyTerm
    index: Number
    slow: bool = False
    """Only those of subscribers without room for what their peer has: the session is to end, and buffers have room."""


class Denied(Message, frozen=True, tag=61):
    """What you published was not admitted, by this descriptor's list. Show a warrant that it names.

    From the root, or from a neighbour of a source.
    """

    descriptor: Descriptor
    full: bool = False
    """Not by the list: the topic has as many sources as it may have. Come again later."""


class Farewell(Message, frozen=True, tag=120):
    """I leave, and have no parent: nobody need wait for me. `moved`: leases of others that I spoke for go on."""

    topic: WireId
    moved: bool = False
    leases: tuple[WireId, ...] = ()
    """As in `Leave`; none named: there are too many."""
    lives: tuple[Number, ...] = ()
    left_s: tuple[Seconds, ...] = ()
    number: Number = 0
    """How many parents I have had."""


class FarewellHeard(Message, frozen=True, tag=121):
    """You may go: I wait for those whom you named, and tell those above me of you."""

    topic: WireId


MESSAGES: tuple[type[Message], ...] = (
    Have, Join, Rejoin, Invite, Accepted, Refused, Leave, Orphaned, Denied, StreamsEnded, CutLeases, LeaseHeld,
    HasOtherParent, LeaseOver, NameAgain, Farewell, FarewellHeard,
)  # fmt: skip
