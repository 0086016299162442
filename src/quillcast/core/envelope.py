"""What a bundle says about itself, for every hop to read: its topic, what it is doing, and where its events stand."""

from enum import IntEnum
from typing import NamedTuple

import msgspec

from quillcast.core.messages import Number, WireId


class Term(NamedTuple):
    """A term of one root over one topic: grows with every change of root (docs/delivery.md, *Roots that move*).

    `node` is the first half of the root's nodeId and then its incarnation, so that a root that was restarted and
    remembers nothing cannot take its own old term for a new one.
    """

    counter: Number
    node: WireId


class Position(NamedTuple):
    """Where the root put an event: one line of numbers per topic, whoever published."""

    term: Term
    index: int  # type: ignore[assignment]  # also the name of a tuple's method, which nobody calls on a position


NO_TERM = Term(0, bytes(16))
new_tuple = tuple.__new__
"""Makes a `Term` or `Position` of all its fields: on the path of every bundle, for a third of the price."""


class Kind(IntEnum):
    """What a bundle is doing: on its way up to be admitted, down the tree, or answering who lacked it."""

    UP = 1
    DOWN = 2
    REPAIR = 3


UP, DOWN, REPAIR = Kind  # on the path of every bundle: to ask the class for one takes as long as two calls


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What hops read and may rewrite; fixed or short, never signed.

    On the way up `first` is the publisher's floor: its lowest sequence that is not stable. On the way down and in
    repairs it is the index, in `term`, of the first event; the blocks' events follow one another from there.
    """

    topic: bytes
    kind: Kind
    term: Term = NO_TERM
    first: int = 0
    session: int = 0
    record: bytes = b""
    """Routing record: a list of (origin, current) pairs, one per scope level, as the forwarding layer encodes it."""
    tags: bytes = b""
    """What filters on the way noted on the bundle, as the forwarding layer encodes it."""
