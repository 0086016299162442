"""What peers of the ring say to each other (tags 20-39)."""

from typing import Annotated

from msgspec import Meta

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Contact, Message, Number

Contacts = tuple[Contact, ...]
Key = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Proximity = Annotated[float, Meta(ge=0.0, le=3600.0)]
"""Seconds of round trip; whoever says more than an hour is mistaken."""


class Routed(Message, frozen=True, tag=20):
    """Acknowledge at once; then hand `payload` to `forward` and send it on, or to `deliver` if no peer is closer."""

    key: Key
    source: Contact
    """The peer that called `route`; with `number` it names the message, so that no peer delivers it twice."""
    number: Number
    hops: Number
    payload: bytes
    """The message inside, encoded; only the upcalls look at it."""


class RoutedAck(Message, frozen=True, tag=21):
    """The sender took the routed message over: forget it."""

    source: Key
    number: Number


class Direct(Message, frozen=True, tag=22):
    """Deliver the message inside: it was sent to this peer by address (Pastry's `send`)."""

    payload: bytes


class JoinRequest(Message, frozen=True, tag=23):
    """Travels inside `Routed` to the joiner's id.

    Each hop adds the rows of its table that the joiner can use, from the first that no hop before it gave; the last one
    answers the joiner with a `JoinReply`.
    """

    joiner: Contact
    attempt: Number
    rows: Contacts = ()
    rows_given: Number = 0


class JoinReply(Message, frozen=True, tag=24):
    """From the peer closest to the joiner: its leaf set and itself, and the rows met on the way.

    Probe those that belong in the leaf set, measure the others.
    """

    attempt: Number
    leaf_set: Contacts
    rows: Contacts


class LeafSetProbe(Message, frozen=True, tag=25):
    """The sender lives and believes in this leaf set. Take it in, answer with yours, probe whom it introduces."""

    leaf_set: Contacts
    joining: bool = False
    """The sender answers for no keys yet."""


class LeafSetReply(Message, frozen=True, tag=26):
    """Answer to a `LeafSetProbe`: the sender's leaf set before it took the prober in."""

    leaf_set: Contacts
    joining: bool = False
    """The sender answers for no keys yet."""


class LeafSetDigest(Message, frozen=True, tag=27):
    """From the left-hand neighbour, over those that both leaf sets must hold. Where it differs, probe the sender."""

    digest: bytes


class MemberLost(Message, frozen=True, tag=28):
    """The sender lost a member of its leaf set. Whoever has it too asks it for a sign of life at once."""

    node_id: Key


class Leaving(Message, frozen=True, tag=29):
    """The sender leaves in good order; its leaf set is here to close the gap with."""

    leaf_set: Contacts


class StateRequest(Message, frozen=True, tag=30):
    """Answer with a `State`: the sender looks for a nearby peer to join through."""


class State(Message, frozen=True, tag=31):
    """What a peer knows. An inactive peer's contacts are those that it tries itself."""

    active: bool
    leaf_set: Contacts
    table: Contacts
    neighbourhood: Contacts


class Announce(Message, frozen=True, tag=32):
    """The sender is active and has this peer in its routing table, `proximity_s` away: maybe it belongs in yours."""

    proximity_s: Proximity


class RowRequest(Message, frozen=True, tag=33):
    """Answer with that row of the routing table."""

    row: Number


class Row(Message, frozen=True, tag=34):
    """One row of the sender's table. Measure those that could be nearer than what the receiver has."""

    row: Number
    contacts: Contacts


MESSAGES: tuple[type[Message], ...] = (
    Routed, RoutedAck, Direct, JoinRequest, JoinReply, LeafSetProbe, LeafSetReply, LeafSetDigest, MemberLost, Leaving,
    StateRequest, State, Announce, RowRequest, Row,
)  # fmt: skip
