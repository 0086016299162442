"""The header of a bundle, which every hop reads: its topic, its kind, and the positions of its events."""

from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Number, WireId

HALF_BYTES = ID_BYTES // 2  # of a nodeId, in a term
OF_SOURCES = 1 << 60  # counters from here on are those of sources: far above all that roots may reach
SESSION_TERMS = 1 << 32  # counters of a topic's session: those of the next one are above them
RELIABLE_TERMS = SESSION_TERMS >> 1  # from here on, within a session, if that is reliable; not of roots of the first
RELIABLE_STREAMS = OF_SOURCES + RELIABLE_TERMS  # ... and those of sources in the first session
Guarantee = tuple[int, bool]
"""A session, and whether it is reliable: of two that have the same number, beyond a partition, that is the later one.

Always False for the first session, because its guarantee may be another than first use had assumed.
"""


class Term(NamedTuple):
    """The time of one root of a topic. It grows with every change of root (docs/delivery.md, *Roots that move*).

    `node` is the first half of the root's nodeId, then its incarnation. So a root that was restarted and remembers
    nothing cannot mistake its own old term for a new one. The last bit of a root's `node` says instead whether that
    root knew an owner of the topic. Each term belongs to one session of the topic, and those of a later session are
    above those of earlier ones, even if their roots differ. They also tell whether that session is reliable, unless it
    is the first. Where each source numbers its own events (`admission = source`), a term is that of one source's
    stream, which began in a session, and says of each whether it is reliable. Such terms stand side by side, and none
    follows another within a session.
    """

    counter: Number
    node: WireId

    @property
    def session(self) -> int:
        """The session of a root's term, or the one in which a source's stream began (docs/sessions.md)."""
        return self.counter % OF_SOURCES // SESSION_TERMS

    @property
    def best_effort(self) -> bool:
        """Does it say that its session is best-effort? Nobody looks for what is missing of it.

        A root's term of the first session does not say: that one may have begun by default settings.
        """
        return self.counter >= SESSION_TERMS and self.counter % SESSION_TERMS < RELIABLE_TERMS

    @property
    def guarantee(self) -> Guarantee:
        """The session, and whether the term says that it is reliable."""
        return self.session, self.session > 0 and self.counter % SESSION_TERMS >= RELIABLE_TERMS

    @property
    def of_source(self) -> bool:
        """Is it a source's stream, rather than the time of a root?"""
        return self.counter >= OF_SOURCES

    @property
    def number(self) -> int:
        """Which one it is among the streams of its process."""
        return self.counter % RELIABLE_TERMS

    def precedes(self, other: "Term", *, streams_first: bool = False) -> bool:
        """Were its events admitted before those of another term?

        Within a session, sources number events after a root did; `streams_first`: or a root took over from them.
        """
        if self.session != other.session:
            return self.session < other.session
        return self.of_source if streams_first and self.of_source != other.of_source else self < other

    def is_of(self, node: bytes) -> bool:
        """Is this the nodeId of its root or source?"""
        return self.node[:HALF_BYTES] == node[:HALF_BYTES]

    def shares_root(self, other: "Term") -> bool:
        """Is it of the same process as another root's term?"""
        return self.node[:-1] == other.node[:-1]

    def was_followed_by(self, other: "Term") -> bool:
        """Is another root's term a later one of the same process? Then this one was over when that began."""
        return self < other and self.shares_root(other)

    @property
    def owned(self) -> bool:
        """Did the root, whose term it is, know an owner of the topic?"""
        return bool(self.node[-1] & 1)

    def noting(self, *, owned: bool) -> "Term":
        """A root's term that tells whether the root knows an owner."""
        return self._replace(node=self.node[:-1] + bytes([self.node[-1] & 0xFE | owned]))


AnyTerm = Annotated[Term, "a root's or a source's"]
"""In messages: where a source's term may stand. A plain `Term` is that of a root (`topics.state.plausible`)."""


class Position(NamedTuple):
    """The place that the root gave an event, in one numbering per topic for all publishers."""

    term: Term
    index: int  # type: ignore[assignment]  # also the name of a tuple's method, which nobody calls on a position


SERIALS = 1 << 16
NO_TERM = Term(0, bytes(16))
new_tuple = tuple.__new__
"""Creates a `Term` or `Position` from all its fields. Every bundle needs some; this takes a third of the time."""


class Kind(IntEnum):
    """What a bundle is for: going up to be admitted, going down the tree, or filling a gap."""

    UP = 1
    DOWN = 2
    REPAIR = 3


UP, DOWN, REPAIR = Kind  # read for every bundle; reading them from the class would take as long as two calls


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What hops read and may rewrite. Fixed or short, and never signed.

    On the way up, `first` is the publisher's floor: its lowest sequence that is not stable. On the way down and in
    repairs, it is the index of the first event in `term`; the other events of the blocks follow without gaps.
    """

    topic: bytes
    kind: Kind
    term: Term = NO_TERM
    first: int = 0
    session: int = 0
    record: bytes = b""
    """Routing record: a list of (origin, current) pairs, one per scope level, as the forwarding layer encodes it."""
    tags: bytes = b""
    """What filters have noted on the bundle, as the forwarding layer encodes it."""
    serial: int = 0
    """The number of this bundle among those of its term, modulo `SERIALS`: filters divide bundles by it."""
