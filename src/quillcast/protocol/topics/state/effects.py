"""Orders from a part of this layer to a part above it. A router (`orders.py`) has each one carried out at once.

An order is a value, so a test of a part can compare the orders that one input leads to.
"""

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.errors import QuillcastError
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ledger import Gone
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.root_messages import Create, FindRoot, TransferLeadership


class FindParent(msgspec.Struct, frozen=True):
    """Join, because the tree needs a parent here. `fault`: the former parent was lost."""

    topic: bytes
    fault: bool = False


class Invited(msgspec.Struct, frozen=True):
    """Become the child of another peer in these topics."""

    topics: tuple[bytes, ...]
    parent: Contact


class LeaveIfIdle(msgspec.Struct, frozen=True):
    """Leave the tree unless something here still needs the topic.

    `anyway`: even if others may need what only this peer has.
    """

    topic: bytes
    anyway: bool = False


class BecomeRoot(msgspec.Struct, frozen=True):
    """Become the topic's root, because this peer is the closest to it. `publishers` are told once that is settled.

    `session`: the next session begins, and nothing at this peer knows it yet.
    """

    topic: bytes
    how: str
    publishers: tuple[Contact, ...] = ()
    session: Descriptor | None = None


class LaterTermExists(msgspec.Struct, frozen=True):
    """A term exists that is later than this root's."""

    topic: bytes


class RivalKnown(msgspec.Struct, frozen=True):
    """A child reports a later term to a root that has outbid a rival."""

    topic: bytes
    term: Term


class RoomAgain(msgspec.Struct, frozen=True):
    """Tell publishers that were held back that there is room for more events of the topic."""

    topic: bytes


class Resign(msgspec.Struct, frozen=True):
    """Transfer the topic to another peer, which is to be its root."""

    topic: bytes


class TermChosen(msgspec.Struct, frozen=True):
    """This peer chose the term in which it is to be the topic's root. Others will know it."""

    topic: bytes
    term: Term


class TellNextRoot(msgspec.Struct, frozen=True):
    """Tell the peer that is to be the topic's root what this one knows."""

    topic: bytes
    to: Contact
    message: TransferLeadership


class ParentAccepted(msgspec.Struct, frozen=True):
    """A parent accepted this peer: use the report that it may have sent before."""

    topic: bytes
    parent: Contact


class ChildEntered(msgspec.Struct, frozen=True):
    """A child was entered in the table: use what it may have reported about streams before."""

    topic: bytes
    child: Contact


class StreamsBegin(msgspec.Struct, frozen=True):
    """The topic turned out to have streams of sources: children that joined before are to join anew."""

    topic: bytes


class ChildIsParent(msgspec.Struct, frozen=True):
    """A child of this peer becomes its parent, and is no longer its child."""

    topic: bytes
    node: bytes


class NobodyAnswers(msgspec.Struct, frozen=True):
    """This peer finds no parent. Its children are to join for themselves, because they may reach one."""

    topic: bytes


class PlaceTaken(msgspec.Struct, frozen=True):
    """This peer has a parent or is root: begin for the children accepted meanwhile, and for local subscriptions.

    `gone` is what the parent no longer keeps, if it was asked for the earliest events.
    """

    topic: bytes
    gone: tuple[Gone, ...] | None = None


class TopicFailed(msgspec.Struct, frozen=True):
    """The topic is not available: tell the local subscribers and the children."""

    topic: bytes
    error: QuillcastError


class WarrantRefused(msgspec.Struct, frozen=True):
    """The topic's list denies this credential (empty: a subscriber without one). Others here may subscribe."""

    topic: bytes
    key: bytes
    error: QuillcastError


class GapNoticed(msgspec.Struct, frozen=True):
    """Look for events of the topic that are missing here."""

    topic: bytes


class CameFromSource(msgspec.Struct, frozen=True):
    """A bundle came directly from its source: confirm it, because publishers there wait until a second peer has it."""

    topic: bytes
    term: Term
    source: bytes


class FrontFilled(msgspec.Struct, frozen=True):
    """Look for the next missing event of a term, after a repair brought the first."""

    topic: bytes
    term: Term


class Restored(msgspec.Struct, frozen=True):
    """A neighbour sent a bundle of an ended term: others may have asked for it."""

    bundle: Bundle
    sender: bytes


class ProcessPaused(msgspec.Struct, frozen=True):
    """This process was paused: if this peer was root, another may be the topic's root by now."""

    topic: bytes


class LeaseEnded(msgspec.Struct, frozen=True):
    """A lease or a doubt ended at a root: events that it held back may be stable now."""

    topic: bytes


class AllStable(msgspec.Struct, frozen=True):
    """All events that this root admitted are stable: it can now transfer the topic."""

    topic: bytes


class NeighbourLost(msgspec.Struct, frozen=True):
    """A neighbour is lost with its reports: publishers here may need another root, and its own may be gone."""

    node: bytes


class AwaitRoot(msgspec.Struct, frozen=True):
    """Answer this request for the topic's root once this peer has become root."""

    topic: bytes
    request: Join | FindRoot | Create


class RefuseRequest(msgspec.Struct, frozen=True):
    """Refuse a request for a topic that nobody created, because this network creates none on first use.

    `why`: another reason to refuse it, in a sentence.
    """

    request: Join | FindRoot | Create
    why: str = ""


class RootHere(msgspec.Struct, frozen=True):
    """This peer became the topic's root: its own publishers use it directly."""

    topic: bytes


class SettingsLearned(msgspec.Struct, frozen=True):
    """This peer now uses another descriptor of a topic.

    `lists`: its access list differs. `first`: it restricts who may subscribe, and the former one did not.
    """

    descriptor: Descriptor
    lists: bool = False
    first: bool = False


class RivalLearned(msgspec.Struct, frozen=True):
    """This peer knows another descriptor of the topic, too: terms may belong to sessions of that one."""

    topic: bytes


class SettingsEntered(msgspec.Struct, frozen=True):
    """Tell the tree and the publishers of new settings, which most replicas have recorded."""

    topic: bytes


class OpenSession(msgspec.Struct, frozen=True):
    """This root was asked for settings that open a session, or was asked while one is being opened."""

    topic: bytes
    request: Create


class EnterOverlay(msgspec.Struct, frozen=True):
    """Ask the overlay for a parent, if this peer waits for an invitation: it is the entry point, and gets none."""

    topic: bytes


class SeekNearerParent(msgspec.Struct, frozen=True):
    """Look for a parent nearer to the root of this topic."""

    topic: bytes


class RoomTowards(msgspec.Struct, frozen=True):
    """Continue the channels to a peer that waited for room."""

    contact: Contact


class RootScopesChanged(msgspec.Struct, frozen=True):
    """Topics have other root scopes, or these have other peers."""


class SayFarewell(msgspec.Struct, frozen=True):
    """This peer leaves, and has no parent that it could tell which leases continue."""

    topic: bytes


class FarewellRefused(msgspec.Struct, frozen=True):
    """A peer refused this peer's farewell: it cannot pass it on."""

    topic: bytes
    sender: Contact


PlaceEffect = FindParent | LeaveIfIdle | EnterOverlay | SayFarewell | FarewellRefused
ChildEffect = ChildIsParent | NobodyAnswers | PlaceTaken | StreamsBegin | TopicFailed | WarrantRefused
ArrivalEffect = ParentAccepted | ChildEntered | LeaseEnded | RoomAgain
GapEffect = GapNoticed | FrontFilled | Restored
RootEffect = BecomeRoot | ProcessPaused | LaterTermExists | RivalKnown
RequestEffect = AwaitRoot | RefuseRequest
TransferEffect = Resign | TermChosen | TellNextRoot
SessionEffect = RootHere | AllStable | SettingsEntered | OpenSession
