"""What peers, publishers, replicas and successors say to a topic's root, and it to them."""

from typing import Annotated

import msgspec

from quillcast.core.envelope import NO_TERM, AnyTerm, Term
from quillcast.core.messages import NUMBER_MAX, Contact, Message, Number, WireId
from quillcast.core.ranges import Range
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.config import LACKS_MAX
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import (
    NEWCOMERS_MAX,
    PAGE_TOPICS_MAX,
    AgedEnds,
    DatedEnds,
    Ends,
    Seconds,
    Words,
)

LOST_TOLD_MAX = 16  # peers that would know a topic and are lost; a guess: more than keep its state
FOLLOWED_MAX = 16  # terms that a transfer names as its own line; a guess: more than begin within a lease


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

    def aged(self, by_s: float) -> "FindRoot":
        """The same after it waited: the root spoke earlier, and events have been there for longer."""
        spoke_s = None if self.spoke_s is None else self.spoke_s + by_s
        settled, dropped = (_older(each, by_s) for each in (self.settled, self.dropped))
        return msgspec.structs.replace(self, spoke_s=spoke_s, settled=settled, dropped=dropped)


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

    It speaks of what its term admitted; what the publisher discarded before that, the publisher knows itself. What the
    root `lacks` is to be sent again: later events of the publisher were here, and most of them are kept.
    """

    topic: WireId
    term: AnyTerm
    marks: list[tuple[bytes, Number, Number, Annotated[tuple[Range, ...], msgspec.Meta(max_length=LACKS_MAX)]]]
    """publisher, admitted, stable, lacks"""
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
    there_ms: Number = 0
    """For how many milliseconds all that my term had has been there at least."""
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
    lost: Annotated[tuple[WireId, ...], msgspec.Meta(max_length=LOST_TOLD_MAX)] = ()
    """The lost peers that are the reason for `doubtful_s`. The asker may have reached them."""


class StateQuery(Message, frozen=True, tag=62):
    """The sender may be the root of these topics soon. Answer `StateAnswer`."""

    topics: Annotated[list[WireId], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    number: Number = 0
    """0: the answer is news to the sender, and nothing waits for it."""


class StateAnswer(Message, frozen=True, tag=63):
    """What the sender knows of topics that it was asked about, or knows better than the sender of a record."""

    entries: Annotated[list[TopicEntry], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]
    joining: bool = False
    """It has just started and nobody told it anything yet: that it does not know a topic says nothing."""
    number: Number = 0
    """That of the question."""


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


def _older(ends: DatedEnds, by_s: float) -> DatedEnds:
    return tuple((term, end, min(NUMBER_MAX, there_ms + int(1000 * by_s))) for term, end, there_ms in ends)


MESSAGES: tuple[type[Message], ...] = (
    Create, Created, FindRoot, RootIs, NotRoot, Receipts, TransferLeadership, Transferred, RecordState, Closed,
    StillOpen, StateQuery, StateAnswer, Recorded, StateDigest, Confirmed, AnotherFollows, TransferRefused,
)  # fmt: skip
