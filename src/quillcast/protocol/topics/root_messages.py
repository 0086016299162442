"""Messages of peers, publishers, replicas and successors to a topic's root, and of the root to them."""

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

LOST_TOLD_MAX = 16  # lost peers that would know a topic; a guess: more than keep its state
FOLLOWED_MAX = 16  # terms that a transfer names as its own line; a guess: more than begin within a lease


class Create(Message, frozen=True, tag=47):
    """Routed to the topic. Enter the descriptor and answer Created."""

    descriptor: Descriptor
    creator: Contact
    again: bool = False
    """An answer did not arrive: send this one over the overlay, because the path between the two may be cut."""
    number: Number = 0
    """The creator's number, for the answer."""
    term: Term = NO_TERM
    """The latest term in which the creator's peer used the topic: then it is not new."""


class Created(Message, frozen=True, tag=48):
    """The topic exists with this descriptor, maybe an earlier one."""

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
    """An answer did not arrive: send this one over the overlay, because the path between the two may be cut."""
    spoke_s: Seconds | None = None
    """How long ago the root of that term was heard from; None: never."""
    settled: DatedEnds = ()
    """Terms that were stable up to an index, as roots told the peer. A peer whose lease was cut may not know all."""
    dropped: DatedEnds = ()
    """Terms whose events publishers here discarded before they were stable, and up to which index."""
    root_scope: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """The topic's root scope as the publisher's peer knows it. That peer need not show a descriptor."""

    def aged(self, by_s: float) -> "FindRoot":
        """Return the same message after it waited: the root spoke earlier, and events have existed for longer."""
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
    """The sender is not the topic's root, whatever its address once was. `root` may be; otherwise ask the overlay."""

    topic: WireId
    root: Contact | None
    unknown: bool = False
    """Nobody created the topic, and this network does not create topics on first use."""
    why: Words = ""
    """Why the sender of the request cannot use the topic as it wants, in a sentence."""


class Receipts(Message, frozen=True, tag=52):
    """From the root, for each publisher: all below `admitted` has positions, all below `stable` is acknowledged by all.

    Both concern what the root's term admitted; what the publisher discarded before that, the publisher itself knows.
    Send again what the root `lacks`: it received later events of the publisher, and keeps most of them.
    """

    topic: WireId
    term: AnyTerm
    marks: list[tuple[bytes, Number, Number, Annotated[tuple[Range, ...], msgspec.Meta(max_length=LACKS_MAX)]]]
    """publisher, admitted, stable, lacks"""
    partitioned: bool = False
    """The root does not reach most of the topic's replicas: there may be another root across a partition."""
    version: Number = 0
    """Of the topic's descriptor: a peer that knows an earlier one asks for the root, and gets this one."""
    settled: Number = 0
    """The index below which the term is stable."""
    held_back: bool = False
    """The topic waits for slow subscribers, and buffers are full: send nothing new until the root says so."""
    index: Number = 0
    """The index that the term has reached: all admitted events are below it."""


class TransferLeadership(Message, frozen=True, tag=53):
    """You are closer to this topic than I: be its root under a later term. My buffer follows as repairs.

    My term was `term`, it went up to `index`, and all leases had acknowledged it below `stable`.
    """

    descriptor: Descriptor
    term: Term
    index: Number
    stable: Number
    heard: Term = NO_TERM
    """The highest term that I know of."""
    hold_s: Seconds = 0.0
    """For how much longer I would have declared nothing stable."""
    leases: tuple[WireId, ...] = ()
    """The peers to wait for before anything is declared stable: me, with all below me; if I leave, those below me."""
    frontiers: tuple[tuple[WireId, Number], ...] = ()
    """Per publisher: its admitted events below that sequence are stable, and must not be admitted again."""
    ended: Annotated[tuple[WireId, ...], msgspec.Meta(max_length=NEWCOMERS_MAX)] = ()
    """Peers that left in good order lately: a peer that names a lease of theirs does not know that yet."""
    past: AgedEnds = ()
    """How far earlier terms went of which I still keep or want something."""
    forgotten: AgedEnds = ()
    """... and those of which nobody wants anything any more."""
    streams: Ends = ()
    """The ended streams of sources: only I may know how far they went."""
    rival: Descriptor | None = None
    """As in `TopicEntry`."""
    followed: Annotated[tuple[Term, ...], msgspec.Meta(max_length=FOLLOWED_MAX)] = ()
    """The terms that were transferred one to the next, up to mine."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, as in `Leave`."""
    there_ms: Number = 0
    """For how many milliseconds at least all events of my term have existed."""
    ended_by: tuple[Number, ...] = ()
    """For each of `ended`, the number of its last move; 0: unknown."""


class Transferred(Message, frozen=True, tag=69):
    """I now know what the root of this term knew: if you leave, you need not tell any other peer."""

    topic: WireId
    term: Term


class AnotherFollows(Message, frozen=True, tag=118):
    """To the root that transferred its term to me: I will not be the next root. Tell this peer what you told me.

    Name these peers as well, to be waited for.
    """

    topic: WireId
    term: Term
    root: Contact
    leases: tuple[WireId, ...] = ()
    """Me, with all below me, if there are any."""
    lives: tuple[Number, ...] = ()
    """For each of `leases`, as in `Leave`."""


class RecordState(Message, frozen=True, tag=54):
    """Keep these descriptors and terms in case their root dies (Scribe, section 3.2: the k closest peers do).

    Answer `Recorded`, or `StateAnswer` if you know better.
    """

    entries: Annotated[list[tuple[Descriptor, Term]], msgspec.Meta(max_length=PAGE_TOPICS_MAX)]


class TopicEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a peer knows of a topic; nothing, if there is neither a descriptor nor a term."""

    topic: WireId
    descriptor: Descriptor | None
    term: Term
    """The highest one that it knows of."""
    is_root: bool = False
    """It is the topic's root."""
    doubtful_s: Seconds = 0.0
    """For how long a topic that it does not know may have been in use: most peers that would know were lost lately."""
    rival: Descriptor | None = None
    """It has no owner, so it loses to `descriptor`, but terms belong to its session, which is a later one."""
    has_closer: bool = False
    """It knows another peer that is closer to the topic than the asker."""
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
    """It has just started and was told nothing yet: that it does not know a topic means nothing."""
    number: Number = 0
    """That of the question."""


class Recorded(Message, frozen=True, tag=64):
    """The sender keeps these, as requested: topic, term, the descriptor's digest."""

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

    It also tells them of changed settings, if the message about a change was lost, including publishers without events.
    """

    publishers: list[tuple[WireId, WireId]]
    """topic, publisher"""
    versions: tuple[tuple[WireId, Number], ...] = ()
    """Of topics whose settings were changed."""


class Closed(Message, frozen=True, tag=66):
    """To a root: these publishers of mine have ended, and no event of theirs waits for an answer of yours."""

    publishers: list[tuple[WireId, WireId]]
    """topic, publisher"""


def _older(ends: DatedEnds, by_s: float) -> DatedEnds:
    return tuple((term, end, min(NUMBER_MAX, there_ms + int(1000 * by_s))) for term, end, there_ms in ends)


MESSAGES: tuple[type[Message], ...] = (
    Create, Created, FindRoot, RootIs, NotRoot, Receipts, TransferLeadership, Transferred, RecordState, Closed,
    StillOpen, StateQuery, StateAnswer, Recorded, StateDigest, Confirmed, AnotherFollows, TransferRefused,
)  # fmt: skip
