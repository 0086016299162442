"""What peers say to each other about topics. Tags 40 to 69 and 110 to 119 are this layer's."""

from typing import Annotated

import msgspec

from quillcast.core.envelope import NO_TERM, AnyTerm, Term
from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.scopes.channels import INVITATION_BYTES
from quillcast.protocol.security.access import SourceWarrant, Warrant
from quillcast.protocol.topics.descriptor import Descriptor

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Words = Annotated[str, msgspec.Meta(max_length=1024)]
"""For people to read."""
PAGE_TOPICS_MAX = 128  # topics in one message; with long access lists it stays below a frame's size
NEWCOMERS_MAX = 64  # peers named that came lately; a guess: as many as move when a few forwarders leave at once
BELOW_MAX = 64  # children that a peer names to one that looks for a parent; a guess
FOLLOWED_MAX = 16  # terms that a transfer names as its own line; a guess: more than begin within a lease
StreamEnd = tuple[AnyTerm, Number, ToldMilestones]
"""The stream of a source that is over, where it ended, and how long ago it had come how far."""
Ends = Annotated[tuple[StreamEnd, ...], msgspec.Meta(max_length=ENDS_TOLD_MAX)]
AgedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number | None], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far terms went that are over, and for how many seconds that has been there at least; None: it is not known."""
DatedEnds = Annotated[tuple[tuple[AnyTerm, Number, Number], ...], msgspec.Meta(max_length=2 * ENDS_TOLD_MAX)]
"""How far terms had come, and for how many seconds these events have been there at least."""


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
    earliest events, and these are not kept any more; None: you did not. `frontier` is how far the term came to me: your
    subscriptions that begin now begin there. `streams`: of each source, from where on its events will come, and how far
    they came to me.
    """

    topic: WireId
    term: Term
    start: Number
    path: tuple[WireId, ...]
    fallbacks: tuple[Contact, ...]
    descriptor: Descriptor | None = None
    past: AgedEnds = ()
    gone: tuple[Gone, ...] | None = None
    frontier: Number = 0
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
    unwarranted: bool = False
    """Your Join showed no warrant: one that does may be accepted."""


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

    If so, answer `SpeaksElsewhere`, and have your parent name you to those above (`NameAgain`). Where nobody needs the
    topic, answer `LeaseOver`.
    """

    leases: Annotated[list[tuple[WireId, Number, tuple[WireId, ...]]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    """topic, the number by which you had come to me (`Join.number`), the path from the root to me"""


class SpeaksElsewhere(Message, frozen=True, tag=117):
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


class Create(Message, frozen=True, tag=47):
    """Routed to the topic. The root enters the descriptor and answers Created."""

    descriptor: Descriptor
    creator: Contact
    again: bool = False
    """An answer did not come: send this one over the overlay, for the way between the two may be cut."""
    number: Number = 0
    """The creator's, for the answer."""
    term: Term = NO_TERM
    """The latest under which the creator's peer used the topic: then it is not new."""


class Created(Message, frozen=True, tag=48):
    """The topic stands with this descriptor, maybe an earlier one."""

    descriptor: Descriptor
    holders: Number = 0
    """How many peers hold the topic's state."""
    number: Number = 0
    """Of the `Create` that this answers."""


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
    spoke_s: Seconds | None = None
    """How long ago the root of that term spoke; None if none did."""
    settled: DatedEnds = ()
    """Terms that were stable below an index, as roots told the peer. A peer whose lease was cut may not know all."""
    dropped: DatedEnds = ()
    """Terms that admitted events which publishers here discarded before these were stable, and up to which index."""
    root_scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The root scope that the topic has for the publisher's peer, which need not show a descriptor."""


class RootIs(Message, frozen=True, tag=50):
    """The sender is the topic's root under this term."""

    term: Term
    descriptor: Descriptor
    held_back: bool = False
    """Send nothing new for now (`Receipts.held_back`)."""


class NotRoot(Message, frozen=True, tag=51):
    """The sender is not the topic's root, whatever its address once was; `root` may be, else ask the overlay."""

    topic: WireId
    root: Contact | None
    unknown: bool = False
    """Nobody created the topic, and this network creates none on first use."""
    why: Words = ""
    """Why the topic cannot be used as the sender of the request wants to, in a sentence."""


class Receipts(Message, frozen=True, tag=52):
    """From the root, for each publisher: all below `admitted` has positions, below `stable` all leases acknowledged it.

    It speaks of what its term admitted; what the publisher discarded before that, the publisher knows itself. A
    publisher that sent more than `admitted` goes back to there when `again` is set.
    """

    topic: WireId
    term: AnyTerm
    marks: list[tuple[bytes, Number, Number, bool]]
    """publisher, admitted, stable, again"""
    partitioned: bool = False
    """The root does not reach most of the topic's replicas: there may be another root beyond a partition."""
    version: Number = 0
    """Of the topic's descriptor: a peer that knows an earlier one asks for the root, and gets this one."""
    settled: Number = 0
    """The index below which the term is stable."""
    held_back: bool = False
    """The topic waits for slow subscribers, and buffers have no more room for it: send nothing new until I say so."""
    index: Number = 0
    """The index that the term has come up to: what was admitted stands below it."""


class TransferLeadership(Message, frozen=True, tag=53):
    """You are closer to this topic than I: be its root under a later term. My buffer follows as repairs.

    My term was `term`, it went up to `index`, and below `stable` all leases had acknowledged it.
    """

    descriptor: Descriptor
    term: Term
    index: Number
    stable: Number
    heard: Term = NO_TERM
    """The highest term I heard of."""
    hold_s: Seconds = 0.0
    """I would have called nothing stable for so long yet."""
    leases: tuple[WireId, ...] = ()
    """The peers to wait for before anything is declared stable: me, with all below me; if I leave, those below me."""
    frontiers: tuple[tuple[WireId, Number], ...] = ()
    """Per publisher: what was admitted of it below that sequence is stable, and is not to be admitted again."""
    ended: Annotated[tuple[WireId, ...], msgspec.Meta(max_length=NEWCOMERS_MAX)] = ()
    """Peers that left in good order lately: a peer that names a lease of theirs does not know that yet."""
    past: AgedEnds = ()
    """How far earlier terms went that I still keep something of, or want something of."""
    forgotten: AgedEnds = ()
    """... and those of which nobody wants anything any more."""
    streams: Ends = ()
    """The streams of sources that are over: only I may know how far they went."""
    rival: Descriptor | None = None
    """As in `TopicEntry`."""
    followed: Annotated[tuple[Term, ...], msgspec.Meta(max_length=FOLLOWED_MAX)] = ()
    """The terms that were transferred one to the next, up to mine."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, as in `Leave`."""
    there_s: Number = 0
    """For how many seconds all that my term had has been there at least."""
    ended_by: tuple[Number, ...] = ()
    """For each of `ended`, the number of its last move; 0: it is not known."""


class Transferred(Message, frozen=True, tag=69):
    """I know now what the root of this term knew: if you leave, you need not tell anybody else."""

    topic: WireId
    term: Term


class AnotherFollows(Message, frozen=True, tag=118):
    """To the root that transferred its term to me: I shall not be the next root. Tell this peer what you told me.

    Name these to be waited for, too.
    """

    topic: WireId
    term: Term
    root: Contact
    leases: tuple[WireId, ...] = ()
    """Me, with all below me, if anybody is."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, as in `Leave`."""


class RecordState(Message, frozen=True, tag=54):
    """Keep these descriptors and terms in case their root dies (Scribe, section 3.2: the k closest peers do).

    Answer `Recorded`, or `StateAnswer` if you know better.
    """

    entries: Annotated[list[tuple[Descriptor, Term]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]


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


class TopicEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a peer knows of a topic: nothing at all, if there is neither a descriptor nor a term."""

    topic: WireId
    descriptor: Descriptor | None
    term: Term
    """The highest one that it heard of."""
    is_root: bool = False
    """It is the topic's root."""
    doubtful_s: Seconds = 0.0
    """For so long may a topic that it does not know have been in use: most who would know were lost lately."""
    rival: Descriptor | None = None
    """Of no owner, and so it does not stand beside `descriptor`; but terms are of its session, which is a later one."""
    has_closer: bool = False
    """It knows another peer that is closer to the topic than the one that asked."""


class StateQuery(Message, frozen=True, tag=62):
    """The sender may be the root of these topics soon. Answer `StateAnswer`."""

    topics: Annotated[list[WireId], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]


class StateAnswer(Message, frozen=True, tag=63):
    """What the sender knows of topics that it was asked about, or knows better than the sender of a record."""

    entries: Annotated[list[TopicEntry], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    joining: bool = False
    """It has just started and nobody told it anything yet: that it does not know a topic says nothing."""


class Recorded(Message, frozen=True, tag=64):
    """The sender keeps these, as it was told: topic, term, the descriptor's digest."""

    topics: Annotated[list[tuple[WireId, Term, bytes]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]


class Confirmed(Message, frozen=True, tag=113):
    """To a source, from the entry point of a scope below it: a second peer has your stream of the topic up to here."""

    topic: WireId
    term: Term
    front: Number


class TransferRefused(Message, frozen=True, tag=119):
    """To a peer that transferred a topic: I leave as well. Tell another peer."""

    topic: WireId
    term: Term


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


class StateDigest(Message, frozen=True, tag=65):
    """Over the root state that both peers should keep. Send what may be news to the sender, and answer with yours."""

    digest: bytes
    answer: bool = False


class StillOpen(Message, frozen=True, tag=67):
    """From a root: these publishers of yours are silent. Answer Closed for those that your process does not have.

    They hear of changed settings by this, if the word of a change was lost. So do those who published nothing yet.
    """

    publishers: list[tuple[WireId, WireId]]
    """topic, publisher"""
    versions: tuple[tuple[WireId, Number], ...] = ()
    """Of topics whose settings were changed."""


class Closed(Message, frozen=True, tag=66):
    """To a root: these publishers of mine publish no more, and nothing of theirs waits for your word."""

    publishers: list[tuple[WireId, WireId]]
    """topic, publisher"""


MESSAGES: tuple[type[Message], ...] = (
    Have, Join, Rejoin, Invite, Accepted, Refused, Leave, Orphaned, Create, Created, FindRoot, RootIs, NotRoot,
    Receipts, TransferLeadership, Transferred, RecordState, Laggards, Lagging, Survey, Branch, Hop, Denied,
    StreamsEnded, CutLeases, Closed, StillOpen, StateQuery, StateAnswer, Recorded, StateDigest,
    PlaceQuery, PlaceAnswer, Confirmed, LeaseHeld, SpeaksElsewhere,
    LeaseOver, NameAgain, AnotherFollows, TransferRefused, Farewell, FarewellHeard,
)  # fmt: skip
