"""What a part of this layer orders of a part above it. `Scribe` carries each order out at once.

An order is a value: a test of a part compares the orders that one input leads to.
"""

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.errors import QuillcastError
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.root_messages import Create, FindRoot


class FindParent(msgspec.Struct, frozen=True):
    """The tree has no parent here and needs one: join; `fault` if that follows the loss of a parent."""

    topic: bytes
    fault: bool = False


class Invited(msgspec.Struct, frozen=True):
    """This peer is to be the child of another one in these topics."""

    topics: tuple[bytes, ...]
    parent: Contact


class LeaveIfIdle(msgspec.Struct, frozen=True):
    """Something that needed the topic is gone: leave the tree unless something else needs it.

    `anyway`: also where others may be owed what only this peer has.
    """

    topic: bytes
    anyway: bool = False


class BecomeRoot(msgspec.Struct, frozen=True):
    """This peer is the closest to the topic: be its root. `publishers` are told once that is settled.

    `session`: it is the next one that begins, and nobody here has learned of it yet.
    """

    topic: bytes
    how: str
    publishers: tuple[Contact, ...] = ()
    session: Descriptor | None = None


class LaterTermExists(msgspec.Struct, frozen=True):
    """A later term exists than that of this root."""

    topic: bytes


class RivalKnown(msgspec.Struct, frozen=True):
    """A child of a root that has outbid a rival says that a later term exists."""

    topic: bytes
    term: Term


class RoomAgain(msgspec.Struct, frozen=True):
    """There is room for more of a topic: tell its publishers, which were held back."""

    topic: bytes


class Resign(msgspec.Struct, frozen=True):
    """Another peer is to be the topic's root: transfer it."""

    topic: bytes


class ParentAccepted(msgspec.Struct, frozen=True):
    """A parent took this peer in: believe the report that it may have sent before."""

    topic: bytes
    parent: Contact


class ChildEntered(msgspec.Struct, frozen=True):
    """A child was entered in the table: believe what it may have reported of streams before."""

    topic: bytes
    child: Contact


class StreamsBegin(msgspec.Struct, frozen=True):
    """The topic was not known to have streams of sources: children that joined so are to join anew."""

    topic: bytes


class ChildIsParent(msgspec.Struct, frozen=True):
    """A child of this peer becomes its parent: it is none of its children any more."""

    topic: bytes
    node: bytes


class NobodyAnswers(msgspec.Struct, frozen=True):
    """This peer finds no parent. Maybe only those below it reach one: they are to join for themselves."""

    topic: bytes


class PlaceTaken(msgspec.Struct, frozen=True):
    """This peer has a parent or is root: the children that it took in meanwhile, and local subscriptions, begin.

    `gone` is what the parent does not keep any more, if it was asked for the earliest events.
    """

    topic: bytes
    gone: tuple[Gone, ...] | None = None


class TopicFailed(msgspec.Struct, frozen=True):
    """The topic cannot be had: tell the local subscribers and those below."""

    topic: bytes
    error: QuillcastError


class WarrantRefused(msgspec.Struct, frozen=True):
    """The topic's list does not let this credential (empty: nobody who shows none) subscribe; others here may."""

    topic: bytes
    key: bytes
    error: QuillcastError


class GapNoticed(msgspec.Struct, frozen=True):
    """Events of the topic are missing here: look for them."""

    topic: bytes


class CameFromSource(msgspec.Struct, frozen=True):
    """A bundle came straight from its source, whose publishers wait for the word that another peer has it."""

    topic: bytes
    term: Term
    source: bytes


class FrontFilled(msgspec.Struct, frozen=True):
    """A repair brought the first missing event of a term: look for the next one."""

    topic: bytes
    term: Term


class Restored(msgspec.Struct, frozen=True):
    """A neighbour brought a bundle of an ended term: others may have asked for it."""

    bundle: Bundle
    sender: bytes


class ProcessPaused(msgspec.Struct, frozen=True):
    """This process stood still: another peer may be the topic's root by now, if this one was."""

    topic: bytes


class LeaseEnded(msgspec.Struct, frozen=True):
    """A lease or a doubt ended at a root: what it held back may be stable now."""

    topic: bytes


class AllStable(msgspec.Struct, frozen=True):
    """All that this root admitted is stable, and it is about to transfer the topic: it waits for nothing more."""

    topic: bytes


class NeighbourLost(msgspec.Struct, frozen=True):
    """A neighbour is out of reach: publishers here may need another root, and its own publishers may be gone."""

    node: bytes


class AwaitRoot(msgspec.Struct, frozen=True):
    """Somebody asked for the topic's root, and this peer is to be it: answer once it is."""

    topic: bytes
    request: Join | FindRoot | Create


class RefuseRequest(msgspec.Struct, frozen=True):
    """Nobody created the topic that somebody asked for, and this network creates none on first use.

    `why`: it cannot be used as they want to, in a sentence.
    """

    request: Join | FindRoot | Create
    why: str = ""


class RootHere(msgspec.Struct, frozen=True):
    """This peer became the topic's root: its own publishers use it."""

    topic: bytes


class SettingsLearned(msgspec.Struct, frozen=True):
    """This peer goes by another descriptor of a topic than before.

    `lists`: it has another access list. `first`: by that only some may subscribe, and everybody could before.
    """

    descriptor: Descriptor
    lists: bool = False
    first: bool = False


class RivalLearned(msgspec.Struct, frozen=True):
    """This peer knows another descriptor of the topic, too: terms may be of that one's sessions."""

    topic: bytes


class SettingsEntered(msgspec.Struct, frozen=True):
    """The root entered settings, and most of those who keep its state noted them: tell the tree and the publishers."""

    topic: bytes


class OpenSession(msgspec.Struct, frozen=True):
    """Somebody asked this root for settings that open a session, or while one is being opened."""

    topic: bytes
    request: Create


class SeekNearerParent(msgspec.Struct, frozen=True):
    """There may be a parent nearer to the root of this topic."""

    topic: bytes


class RoomTowards(msgspec.Struct, frozen=True):
    """Channels to a peer that waited for room go on."""

    contact: Contact


class RootScopesChanged(msgspec.Struct, frozen=True):
    """Topics go by other root scopes, or by other peers of them."""


class SayFarewell(msgspec.Struct, frozen=True):
    """This peer leaves, and has no parent that it could tell whose leases go on."""

    topic: bytes


class FarewellRefused(msgspec.Struct, frozen=True):
    """A peer that was told that this one leaves cannot tell anybody."""

    topic: bytes
    sender: Contact


PlaceEffect = (
    FindParent
    | LeaveIfIdle
    | SayFarewell
    | FarewellRefused
    | ParentAccepted
    | ChildIsParent
    | NobodyAnswers
    | PlaceTaken
    | TopicFailed
    | WarrantRefused
)
ArrivalEffect = ChildEntered | StreamsBegin | LeaseEnded | AllStable | RoomAgain
RootEffect = (
    BecomeRoot | RootHere | ProcessPaused | LaterTermExists | RivalKnown | Resign | SettingsEntered | OpenSession
)
GapEffect = GapNoticed | FrontFilled | Restored | CameFromSource
RequestEffect = AwaitRoot | RefuseRequest | SettingsLearned | RivalLearned
LinkEffect = Invited | NeighbourLost | SeekNearerParent | RoomTowards | RootScopesChanged
Effect = PlaceEffect | ArrivalEffect | RootEffect | GapEffect | RequestEffect | LinkEffect
