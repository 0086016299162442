"""Trace records: a peer's actions as typed values. Stories, journals, displays and the audit read the same records.

A record contains neither time nor peer: its consumer (a journal, the simulator) adds `at` and `peer`. Records count
runs of events, never single events.
"""

import msgspec

from quillcast.core.envelope import NO_TERM, Term


class Record(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Something that happened at a peer."""


class Started(Record, frozen=True):
    """The peer started."""

    address: str


class Activated(Record, frozen=True):
    """The peer's leaf set agreed that it is a member: it is part of the overlay."""

    leaf_set: int


class Stopped(Record, frozen=True):
    """The peer left gracefully."""


class Suspected(Record, frozen=True):
    """A neighbour did not respond for too long, or its link broke."""

    node: bytes
    heard_s: float
    """Seconds since it was last heard from."""


class Recovered(Record, frozen=True):
    """A suspected neighbour was heard from again."""

    node: bytes


class LeafSetChanged(Record, frozen=True):
    """A peer entered or left the leaf set."""

    joined: tuple[bytes, ...] = ()
    left: tuple[bytes, ...] = ()


class Routed(Record, frozen=True):
    """A routed message reached the peer responsible for its key."""

    key: bytes
    kind: str
    hops: int


class Rerouted(Record, frozen=True):
    """A hop did not respond, so the message took another route."""

    key: bytes
    unresponsive: bytes


class Named(Record, frozen=True):
    """A peer's view of a topic: name and guarantee, by this version of its descriptor. The highest version counts.

    Written once per peer and topic, and again if the peer learns a different guarantee.
    """

    topic: bytes
    name: str
    delivery: str = "reliable"
    version: int = 0


class BecameRoot(Record, frozen=True):
    """The peer became the topic's root in this term. `how`: created, took_over, transferred, merged."""

    topic: bytes
    term: Term
    how: str


class ResignedRoot(Record, frozen=True):
    """The peer is no longer the topic's root; `to` is."""

    topic: bytes
    to: bytes


class Attached(Record, frozen=True):
    """A parent accepted this peer. `how`: joined, fallback, routed. `depth` is 0 at the root."""

    topic: bytes
    parent: bytes
    how: str
    depth: int


class Detached(Record, frozen=True):
    """The peer lost its parent or left it. `why`: lost, left, refused, loop, closer_root."""

    topic: bytes
    parent: bytes
    why: str


class ChildAdded(Record, frozen=True):
    """A child was added to the topic's children table."""

    topic: bytes
    child: bytes
    children: int


class ChildRemoved(Record, frozen=True):
    """A child was removed from the children table. `why`: left, lost, expired, moved."""

    topic: bytes
    child: bytes
    why: str


class Subscribed(Record, frozen=True):
    """A local subscription is established. It will receive every event from this position on.

    `number` distinguishes a peer's subscriptions to one topic, also in `Unsubscribed`, `Delivered` and `Lost`.
    `delivery` is the guarantee of the subscription: the topic's guarantee, or a lower one on request.
    """

    topic: bytes
    term: Term
    index: int
    number: int = 0
    delivery: str = "reliable"


class StreamOwed(Record, frozen=True):
    """A new local subscription must receive a source's stream from this index on, and later streams completely."""

    topic: bytes
    term: Term
    index: int
    number: int = 0


class Unsubscribed(Record, frozen=True):
    """A local subscription ended."""

    topic: bytes
    number: int = 0


class Published(Record, frozen=True):
    """A local publisher sealed a run of events."""

    topic: bytes
    publisher: bytes
    first: int
    count: int
    size: int


class Admitted(Record, frozen=True):
    """The root gave a run of a publisher's events their positions, from `index` on."""

    topic: bytes
    publisher: bytes
    first: int
    count: int
    term: Term
    index: int


class Delivered(Record, frozen=True):
    """A run of events was delivered to a local subscriber. `published_ns` is the publish time of the first event."""

    topic: bytes
    publisher: bytes
    first: int
    count: int
    published_ns: int
    term: Term = NO_TERM
    index: int = 0
    number: int = 0


class Repeated(Record, frozen=True):
    """Copies were detected as repeats and dropped. `where`: range, edge, root."""

    topic: bytes
    where: str
    count: int


class Repaired(Record, frozen=True):
    """Missing events arrived by repair. `source`: parent, child, sibling, root."""

    topic: bytes
    source: str
    count: int


class Lost(Record, frozen=True):
    """A loss of events was reported to a subscriber (`core.loss.Loss`).

    `first` and `last` are sequences of the publisher; without a publisher, they are positions in the term.
    """

    topic: bytes
    term: Term
    first: int
    last: int
    why: str
    number: int = 0
    publisher: bytes = b""


class Dropped(Record, frozen=True):
    """Events were dropped in transit. `why`: no_room, budget, stale_term, malformed, not_root, link_lost."""

    topic: bytes
    count: int
    why: str


class Mark(Record, frozen=True):
    """A code path that tests want to see executed."""

    name: str


AnyRecord = (
    Started | Activated | Stopped | Suspected | Recovered | LeafSetChanged | Routed | Rerouted | Named | BecameRoot
    | ResignedRoot | Attached | Detached | ChildAdded | ChildRemoved | Subscribed | StreamOwed | Unsubscribed
    | Published | Admitted | Delivered | Repeated | Repaired | Lost | Dropped | Mark
)  # fmt: skip
