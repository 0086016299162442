"""The messages between peers of the ring (tags 20-39)."""

from typing import Annotated

from msgspec import Meta

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact, Message, Number

Contacts = tuple[Contact, ...]
RingKey = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Proximity = Annotated[float, Meta(ge=0.0, le=3600.0)]
"""A round-trip time in seconds. More than an hour is an error."""


WireScopeName = Annotated[str, Meta(max_length=64)]


class Routed(Message, frozen=True, tag=20):
    """Acknowledge at once. Then pass `payload` to `forward` and send it on, or to `deliver` if no peer is closer."""

    key: RingKey
    source: Contact
    """The peer that called `route`. With `number` it identifies the message, so that no peer delivers it twice."""
    number: Number
    hops: Number
    payload: bytes
    """The encoded inner message. Only the upcalls decode it."""
    scope: WireScopeName = ""
    """The root scope of the topic with this key, whose seats alone route it; empty: it is routed over the ring."""


class Relay(Message, frozen=True, tag=36):
    """Route the payload onwards: the sender has no place in the ring, and must not be taken for a member."""

    key: RingKey
    source: Contact
    number: Number
    hops: Number
    payload: bytes
    scope: WireScopeName = ""


class RoutedAck(Message, frozen=True, tag=21):
    """The sender accepted the routed message: forget it."""

    source: RingKey
    number: Number


class Direct(Message, frozen=True, tag=22):
    """Deliver the inner message: it was sent to this peer by address (Pastry's `send`)."""

    payload: bytes


class JoinRequest(Message, frozen=True, tag=23):
    """Travels inside `Routed` to the joiner's id.

    Each hop adds the rows of its table that the joiner can use, from the first row that no earlier hop provided. The
    last hop answers the joiner with a `JoinReply`.
    """

    joiner: Contact
    attempt: Number
    rows: Contacts = ()
    rows_given: Number = 0


class JoinReply(Message, frozen=True, tag=24):
    """From the peer closest to the joiner: its leaf set and itself, and the rows collected on the path.

    Probe the peers that belong in the leaf set, and measure the others.
    """

    attempt: Number
    leaf_set: Contacts
    rows: Contacts


class LeafSetProbe(Message, frozen=True, tag=25):
    """The sender is alive and has this leaf set. Add it, reply with yours, and probe the peers it introduces."""

    leaf_set: Contacts
    joining: bool = False
    """The sender is still joining and does not answer for keys."""


class LeafSetReply(Message, frozen=True, tag=26):
    """The reply to a `LeafSetProbe`: the sender's leaf set before it added the prober."""

    leaf_set: Contacts
    joining: bool = False
    """The sender is still joining and does not answer for keys."""


class LeafSetDigest(Message, frozen=True, tag=27):
    """The left-hand neighbour's digest of the members that both leaf sets must have. If yours differs, probe it."""

    digest: bytes


class MemberLost(Message, frozen=True, tag=28):
    """The sender lost a member of its leaf set. If you have it too, probe it at once."""

    node_id: RingKey


class Leaving(Message, frozen=True, tag=29):
    """The sender leaves in an orderly way, or has no place in the ring. Use its leaf set to close the gap."""

    leaf_set: Contacts
    seat: bool = False
    """It leaves its seat in a scope; otherwise, it leaves the ring."""


class StateRequest(Message, frozen=True, tag=30):
    """Answer with a `State`: the sender looks for a nearby peer to join through."""


class State(Message, frozen=True, tag=31):
    """The peers that the sender knows. The contacts of an inactive peer are those that it tries itself."""

    active: bool
    leaf_set: Contacts
    table: Contacts
    neighbourhood: Contacts
    outside: bool = False
    """Whether the sender has no place in the ring, and waits for none. Then its leaf set are its entry points."""


class Announce(Message, frozen=True, tag=32):
    """The sender is active and has this peer in its routing table, `proximity_s` away: it may belong in yours."""

    proximity_s: Proximity


class RowRequest(Message, frozen=True, tag=33):
    """Answer with that row of the routing table."""

    row: Number


class Row(Message, frozen=True, tag=34):
    """One row of the sender's table. Measure the peers that could be nearer than those in yours."""

    contacts: Contacts


class Joined(Message, frozen=True, tag=35):
    """The sender was joining and is active now: it answers for its keys."""


MESSAGES: tuple[type[Message], ...] = (
    Routed, RoutedAck, Direct, JoinRequest, JoinReply, LeafSetProbe, LeafSetReply, LeafSetDigest, MemberLost, Leaving,
    StateRequest, State, Announce, RowRequest, Row, Joined,
    Relay,
)  # fmt: skip
