"""The control interface of scopes: one for the three relations of figure 7.

Both sides tell each other their whole state under a number that grows, and from time to time the number alone. So a
message may be lost or repeated: a party that gets a number without its state is told that state again.

relation       towards the owner, receiver, host      back
============== ====================================== =========================================
member-owner   Registration, Alive, Deregistration,   Orders, Heard, RegistrationRefused,
               Measured, OuterParent                   MeasureRoundTrips
client-host    Registration (`client`), Alive,        Orders, Heard, RegistrationRefused
               Deregistration
sender-receiver ChannelRequest                        ChannelAnswer
============== ====================================== =========================================

Between peers they travel inside `Control`, which names their party. `ServeClient` is between a client's host and the
peer that will serve the client directly (`direct`). `ScopeAt` to `ScopeSays` are for questions from commands
(`protocol.scoping.questions`).
=======
=============== ==================================== ====================================
relation        towards the owner, receiver          back
=============== ==================================== ====================================
member-owner    Registration, Alive, Deregistration, Orders, Heard, RegistrationRefused,
                Measured, OuterParent                MeasureRoundTrips
client-host     Registration, Alive, Deregistration  Orders, Heard, RegistrationRefused
sender-receiver ChannelRequest                       ChannelAnswer
=============== ==================================== ====================================

The member that is a client's host speaks for it. Between peers the messages travel inside `Control`, which names the
party that they are for. `ServeClient` is between a client's host and the peer that is to serve the client directly
(`direct`). `ScopeAt` to `ScopeSays` are for questions from commands (`protocol.scoping.questions`).
"""

from typing import Annotated, Literal

from msgspec import Meta

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact, Message, Number, WireId
from quillcast.protocol.scopes import patterns
from quillcast.protocol.scopes.channels import INVITATION_BYTES, KEY_BYTES, ChannelOrder, Party, Rate, Spec
from quillcast.protocol.scopes.filters import Filter
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.labels import Depth, Label
from quillcast.protocol.scopes.operators import ORDER_MAX
from quillcast.protocol.scopes.uses import DIGEST_BYTES, Doing
from quillcast.protocol.security.access import PublicKey, Signature

RecoveryName = Literal["tree", "gossip", "ring", "srm"]
ClientRights = Literal["both", "publish", "subscribe", "none"]
"""What clients may do in a topic."""
SHOWN_MAX = 255  # characters of a name or filter that people are shown; a guess
WHY_MAX = 255  # characters of a reason

INVITATIONS_MAX = 16  # that one request shows: of so many owners of the receiver
InvitationId = Annotated[bytes, Meta(max_length=INVITATION_BYTES)]


class Role(Message, frozen=True):
    """A party's part in a topic, for itself and everything in its span."""

    topic: WireId
    root: WireId = OVERLAY
    publishes: bool = False
    subscribes: bool = False
    name: Annotated[str, Meta(max_length=255)] = ""
    """The topic's name: policies are chosen by it. Empty: not told."""
    tree_only: bool = False
    """Must its bundles keep to the topic's tree?"""
    reliable: bool = False
    """Is each subscriber owed every event?"""
    has_publishers: bool = False
    """Does it count among the publishers, where a scope bounds them? Bundles of a topic with a root begin there."""
    direct: tuple[Doing, ...] = ()
    """What a client does there through another peer than its host."""
    head: Contact | None = None
    """Of a scope: the peer that speaks for it in the recovery domain of its superscope, which is its entry point."""
    unusable: Annotated[str, Meta(max_length=WHY_MAX)] = ""
    """Why a peer cannot use a filter that it was ordered; empty if it can."""

    @property
    def takes_part(self) -> bool:
        """Does the member take part? A scope that no longer does keeps a role as long as it forwards for others."""
        return self.publishes or self.subscribes or self.has_publishers


class Succession(Message, frozen=True, tag=101):
    """This peer runs the scope's manager since this epoch. A peer that runs it under an earlier one has to end."""

    scope: WireId
    epoch: Number
    contact: Contact
    key: PublicKey
    """The scope's key, which signed the rest."""
    signature: Signature = b""

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of two managers the one of the higher rank stays."""
        return self.epoch, self.contact.node_id


class RootScope(Message, frozen=True):
    """A scope that is the root scope of topics, and its seats: the peers that may be their rendezvous points."""

    scope: WireId
    name: Annotated[str, Meta(max_length=64)]
    rules: tuple[tuple[Annotated[str, Meta(max_length=255)], bool], ...]
    """Patterns of names, and whether the scope is the topic's root scope; the first that fits a topic decides."""
    seats: tuple[Contact, ...] = ()

    def covers(self, topic: str) -> bool:
        """Is it the root scope of this topic?"""
        return next((is_root for pattern, is_root in self.rules if patterns.covers(pattern, topic)), False)


class TopicBounds(Message, frozen=True):
    """Who must wait for the manager's permission in the topics of a pattern."""

    pattern: Annotated[str, Meta(max_length=255)]
    publishes: bool = False
    """Members that are about to publish."""
    subscribes: bool = False
    """Members that are about to subscribe."""
    clients: bool = False
    """Clients that are about to do either."""

    @property
    def wait(self) -> bool:
        """Must anybody wait?"""
        return self.publishes or self.subscribes or self.clients


class Bounds(Message, frozen=True):
    """Where members and clients of a scope wait for its manager's permission; the first fitting rule decides."""

    rules: tuple[TopicBounds, ...]

    def apply(self, topic: str, who: Doing | Literal["clients"]) -> bool:
        """Must parties, or clients, wait that are about to do this in a topic?"""
        found = next((rule for rule in self.rules if patterns.covers(rule.pattern, topic)), None)
        return found is not None and (found.clients if who == "clients" else does(found, who))


class Registration(Message, frozen=True, tag=90):
    """Enter the party with these roles and no others; answer with `Orders`, or why not.

    It is a member, or a client of one: its id tells which (`clients.is_client_of`).
    """

    owner: WireId
    member: Party
    serial: Number
    roles: tuple[Role, ...] = ()
    token: Annotated[str, Meta(max_length=64)] = ""
    """The one-time token of a join line of the scope."""
    succession: Succession | None = None
    """That a scope's manager runs where it says."""
    seats: tuple[Contact, ...] = ()
    """Peers of a scope that may be rendezvous points of topics that are rooted at the owner, or above it."""


class Alive(Message, frozen=True, tag=91):
    """The member lives, and has the orders of this epoch and number; answer `Heard`."""

    owner: WireId
    member: Party
    epoch: Number
    number: Number
    behind: bool = False
    """Does it, or a member of it, miss bundles of a topic whose policy changes?"""


class Deregistration(Message, frozen=True, tag=92):
    """Remove the member."""

    owner: WireId
    member: WireId


class Carrier(Message, frozen=True):
    """A scope that carries a topic, and by which policy, for people to see."""

    scope: Annotated[str, Meta(max_length=64)]
    policy: Annotated[str, Meta(max_length=SHOWN_MAX)]


class ShownChannel(Message, frozen=True):
    """A channel from here, for people to see."""

    to: Contact
    """The peer that it leads to, or the multicast mechanism."""
    label: Annotated[str, Meta(max_length=SHOWN_MAX)]
    filter: Annotated[str, Meta(max_length=SHOWN_MAX)] = ""
    """In words."""


class Assignment(Message, frozen=True):
    """A member's part in a topic, as its owner assigns it."""

    topic: WireId
    depth: Depth | None = None
    """The member's distance from the root scope; None: it has no part yet, and `why` says what it waits for."""
    rank: Number | None = None
    """0: it is the scope's entry point for the topic; from 1: a stand-by of the entry point."""
    ring: Number | None = None
    """Its rank among those through which the scope takes part in the overlay's tree, where that is the root scope."""
    why: str = ""
    filter: Filter | None = None
    """What this member lets in of the bundles that come from the overlay."""
    rates: tuple[Rate, ...] = ()
    """What it keeps to when it passes them on inside."""
    leaving: tuple[Rate, ...] = ()
    """What it keeps to when it sends to peers outside of all scopes: up the overlay's tree, or to children there."""
    records: bool = False
    """Do bundles take channels with records here? Otherwise, the topic's tree is all there is."""
    recovery: Annotated[str, Meta(max_length=32)] = ""
    """The recovery protocol of the topic's domain in the scope; empty: the member is not in that."""
    begins: bool = False
    """Is it the rendezvous point of a topic that is rooted at a managed scope, so that all bundles begin there?"""
    publishes: bool = False
    """May it begin to publish where that is bounded, as it registered? If not, `why` says for what it waits."""
    subscribes: bool = False
    """The same for subscribing."""
    entry: Contact | None = None
    """The scope's entry point for the topic, where that is another than the first of those in the ring."""
    forwards: bool = False
    """Does it pass bundles of others on? Then it has to receive them, whether it subscribes or not."""
    servers: tuple[Contact, ...] = ()
    """Who may serve a client that wants to be served directly, the preferred one first."""
    refusals: tuple[tuple[Doing, str], ...] = ()
    """What the member has no right to, of what it registered for, and why: a sentence each."""
    carriers: tuple[Carrier, ...] = ()
    """The owner, and the scopes around it up to the root scope."""


def does(said: Role | TopicBounds | Assignment, doing: Doing) -> bool:
    """What is said of publishing, or of subscribing."""
    return said.publishes if doing == "publishes" else said.subscribes


class GroupKey(Message, frozen=True):
    """A multicast mechanism of the scope, and the key with which its members encrypt what they send over it."""

    mechanism: Annotated[str, Meta(max_length=255)]
    key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


OTHERS_MAX = 16  # members of a recovery domain that a member knows; a guess: that many may fail at a time


class Circle(Message, frozen=True):
    """The recovery domain of a scope, as one of its members sees it."""

    scope: WireId
    recovery: Annotated[str, Meta(max_length=32)]
    """Its protocol."""
    others: tuple[Contact, ...] = ()
    """The peers that come next in the circle of those with agents; not all of many."""


class Around(Message, frozen=True):
    """A recovery domain around the owner's, in which the member is the owner's head in these topics."""

    circle: Circle
    topics: tuple[WireId, ...]


class Orders(Message, frozen=True, tag=93):
    """Keep these channels and no others of this owner. Orders of a lower epoch, or number within it, are not obeyed."""

    owner: Party
    epoch: Number
    number: Number
    serial: Number
    """The registration that this answers."""
    label: Label
    above: tuple[WireId, ...] = ()
    """The scopes that the owner lies below."""
    assignments: tuple[Assignment, ...] = ()
    channels: tuple[ChannelOrder, ...] = ()
    ring: tuple[Contact, ...] = ()
    """The members with a place in the overlay's ring, through which the others reach it."""
    groups: tuple[GroupKey, ...] = ()
    """The multicast mechanisms that the member is to take part in, and no others."""
    succession: Succession | None = None
    """That the manager runs where it says."""
    others: tuple[Contact, ...] = ()
    """The peers of its recovery domain that come after the member in their circle; not all of many.

    For a member that is a scope, they are those that come after its own heads, which stand in front of them.
    """
    roots: tuple[RootScope, ...] = ()
    """The scopes that topics of the member may be rooted at: the owner, and those above it."""
    bounds: tuple[Bounds, ...] = ()
    """What the owner bounds, and what the scopes above it do."""
    invitation: InvitationId = b""
    """A peer inside the scope that shows this is to be the member's parent in a tree, by the manager's order."""
    around: tuple[Around, ...] = ()
    """The recovery domains around the owner's in which it is the owner's head, for each topic the nearest first."""
    entrance: InvitationId = b""
    """The same for a peer outside, where the member is the scope's entry point."""
    ring_above: bool = False
    """Does the `ring` begin with peers of a scope above the owner?"""
    invitations: tuple[InvitationId, ...] = ()
    """Of a member that is a scope: those of the parties that are to send to it now."""


class Heard(Message, frozen=True, tag=94):
    """The owner lives, and has the registration of this serial; 0: it does not know the member."""

    owner: WireId
    epoch: Number
    serial: Number


class RegistrationRefused(Message, frozen=True, tag=95):
    """The registration cannot be accepted; `why` is a sentence for users.

    Epoch 0: the manager does not run where it was asked, or not yet. Members that have its orders ignore this.
    """

    owner: WireId
    epoch: Number
    why: str


class ChannelRequest(Message, frozen=True, tag=96):
    """Specify the channels that lead into the receiver for these topics, and again when they change; none: forget me.

    `rates` are the most that the sender will send, by the rules of its own scopes; none: it has no limit. `invitations`
    show that owners of the receiver ordered these channels (`Ask`); one that is valid is enough.
    """

    receiver: WireId
    sender: Party
    serial: Number
    topics: tuple[WireId, ...] = ()
    rates: tuple[Rate, ...] = ()
    invitations: Annotated[tuple[InvitationId, ...], Meta(max_length=INVITATIONS_MAX)] = ()


class ChannelAnswer(Message, frozen=True, tag=97):
    """Use these channels from now on, and keep the agreed rates in their specifications."""

    receiver: WireId
    epoch: Number
    number: Number
    specs: tuple[tuple[WireId, Spec], ...] = ()


class MeasureRoundTrips(Message, frozen=True, tag=98):
    """Measure the round trips to these parties, and answer with `Measured` for each.

    For a scope, its entry point for the topic measures them.
    """

    owner: WireId
    to: tuple[Party, ...]
    topic: WireId = bytes(ID_BYTES)


class Measured(Message, frozen=True, tag=99):
    """The round trip from a member to a party. For a scope, its entry point `by` measured it."""

    owner: WireId
    member: WireId
    to: WireId
    seconds: Annotated[float, Meta(ge=0)]
    by: WireId = bytes(ID_BYTES)


class OuterParent(Message, frozen=True, tag=105):
    """The member, as the scope's entry point for a topic, has this parent outside. Choose the nearest to it."""

    owner: WireId
    member: WireId
    topic: WireId
    parent: Contact


ControlMessage = (
    Registration
    | Alive
    | Deregistration
    | Orders
    | Heard
    | RegistrationRefused
    | ChannelRequest
    | ChannelAnswer
    | MeasureRoundTrips
    | Measured
    | OuterParent
    | Succession
)


class Control(Message, frozen=True, tag=100):
    """A message of the control interface, for a party at the receiver: the peer itself, or a scope that it manages."""

    to: WireId
    message: ControlMessage


class ServeClient(Message, frozen=True, tag=106):
    """A client of the sender will show a secret with this digest: let it do this in this topic. Answer."""

    number: Number
    client: WireId
    name: Annotated[str, Meta(max_length=64)]
    digest: Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    topic: Annotated[str, Meta(max_length=255)]
    doing: Doing


class ServesClient(Message, frozen=True, tag=107):
    """The answer to `ServeClient` of this number: it may come. Or `why` it may not, in a sentence."""

    number: Number
    why: Annotated[str, Meta(max_length=300)] = ""


class EndClient(Message, frozen=True, tag=108):
    """A client of the sender may do nothing further: stop serving it."""

    client: WireId


class Reach(Message, frozen=True, tag=102):
    """A channel leads to the receiver: answer `Reached`, so that the link is there before bundles take it."""


class Reached(Message, frozen=True, tag=103):
    """The link is there."""


RING_SHOWN = 3  # members with a place in the ring; there are no more
ANSWER_MAX = 1 << 20  # bytes of an answer, compressed; a guess: a scope of 20,000 members
WHY_MAX = 2000  # characters of the reason for no answer; a guess
AskedOf = Literal["status", "known", "change"]
"""The scope as its manager knows it; what a member last knew; to change it as an operator signed."""


class ScopeAt(Message, frozen=True, tag=130):
    """Routed to the scope's id: remember for a while where its manager runs, and its ring members (`FindScope`)."""

    succession: Succession
    ring: Annotated[tuple[Contact, ...], Meta(max_length=RING_SHOWN)] = ()


class FindScope(Message, frozen=True, tag=131):
    """Routed to the scope's id: where does its manager run? The closest peer answers `asker` with `ScopeFound`.

    If it comes directly, from a peer that is no part of the network yet, route it.
    """

    scope: WireId
    asker: Contact
    number: Number


class ScopeFound(Message, frozen=True, tag=132):
    """The answer to `FindScope` of this number. None: no such scope is known."""

    number: Number
    at: ScopeAt | None = None


class AskScope(Message, frozen=True, tag=133):
    """To the peer that runs a scope's manager, or to a member. Answer with `ScopeSays`."""

    scope: WireId
    number: Number
    what: AskedOf
    body: Annotated[bytes, Meta(max_length=ORDER_MAX)] = b""


class ScopeSays(Message, frozen=True, tag=134):
    """The answer to `AskScope` of this number. Or `why` there is none, in a sentence."""

    number: Number
    body: Annotated[bytes, Meta(max_length=ANSWER_MAX)] = b""
    why: Annotated[str, Meta(max_length=WHY_MAX)] = ""


MESSAGES: tuple[type[Message], ...] = (
    Control, ServeClient, ServesClient, EndClient, Reach, Reached, ScopeAt, FindScope, ScopeFound, AskScope, ScopeSays,
)  # fmt: skip
"""What travels between peers. The others are inside `Control`, and have tags of their own."""
