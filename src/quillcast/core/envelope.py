"""The header of a bundle, which every hop reads: its topic, its kind, and the positions of its events."""

from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from quillcast.core.ids import ID_BYTES
from quillcast.core.messages import Number, WireId

HALF_BYTES = ID_BYTES // 2  # of a nodeId, in a term
OF_SOURCES = 1 << 60  # counters from here on belong to sources: far above all that roots may reach
SESSION_TERMS = 1 << 32  # counters per session of a topic; those of the next session are above them
RELIABLE_TERMS = SESSION_TERMS >> 1  # from here on in a reliable session; not for roots of the first
RELIABLE_STREAMS = OF_SOURCES + RELIABLE_TERMS  # ... for sources in the first session
Guarantee = tuple[int, bool]
"""A session, and whether it is reliable. If a partition led to two with the same number, the reliable one is the later.

Always False for the first session, because its guarantee may differ from what first use had assumed.
"""


class Term(NamedTuple):
    """The time of one root of a topic. It grows with every change of root (docs/delivery.md, *Roots that move*).

    `node` is the first half of the root's nodeId, followed by its incarnation. So a root that was restarted and
    remembers nothing cannot mistake its own old term for a new one. The last bit of a root's `node` is not part of
    that: it says whether the root knew an owner of the topic. Each term belongs to one session of the topic, and terms
    of a later session are above those of earlier ones, even if their roots differ. A term also says whether its session
    is reliable, unless that is the first one. If each source numbers its own events (`admission = source`), a term is
    that of one source's stream, which began in a session; it says for every session whether that is reliable. Such
    terms exist side by side, and within a session none follows another.
    """

    counter: Number
    node: WireId

    @property
    def session(self) -> int:
        """The session of a root's term, or the one in which a source's stream began (docs/sessions.md)."""
        return self.counter % OF_SOURCES // SESSION_TERMS

    @property
    def best_effort(self) -> bool:
        """Whether it says that its session is best-effort: then nobody searches for its missing events.

        A root's term of the first session does not say this: that session may have begun with default settings.
        """
        return self.counter >= SESSION_TERMS and self.counter % SESSION_TERMS < RELIABLE_TERMS

    @property
    def guarantee(self) -> Guarantee:
        """The session, and whether the term says that the session is reliable."""
        return self.session, self.session > 0 and self.counter % SESSION_TERMS >= RELIABLE_TERMS

    @property
    def of_source(self) -> bool:
        """Whether it is a source's stream, not the time of a root."""
        return self.counter >= OF_SOURCES

    @property
    def number(self) -> int:
        """Its number among the streams of its process."""
        return self.counter % RELIABLE_TERMS

    def precedes(self, other: "Term", *, streams_first: bool = False) -> bool:
        """Whether its events were admitted before those of another term.

        Within a session, sources number events after a root did; with `streams_first`, a root took over from them.
        """
        if self.session != other.session:
            return self.session < other.session
        return self.of_source if streams_first and self.of_source != other.of_source else self < other

    def is_of(self, node: bytes) -> bool:
        """Whether this is the nodeId of its root or source."""
        return self.node[:HALF_BYTES] == node[:HALF_BYTES]

    def shares_root(self, other: "Term") -> bool:
        """Whether it belongs to the same process as another root's term."""
        return self.node[:-1] == other.node[:-1]

    def was_followed_by(self, other: "Term") -> bool:
        """Whether another root's term is a later one of the same process: then this term ended before that began."""
        return self < other and self.shares_root(other)

    @property
    def owned(self) -> bool:
        """Whether the root of this term knew an owner of the topic."""
        return bool(self.node[-1] & 1)

    def noting(self, *, owned: bool) -> "Term":
        """The same root's term, with the information whether the root knows an owner."""
        return self._replace(node=self.node[:-1] + bytes([self.node[-1] & 0xFE | owned]))


AnyTerm = Annotated[Term, "a root's or a source's"]
"""In messages: may be a source's term. A plain `Term` is that of a root (`topics.known.plausible`)."""


class Position(NamedTuple):
    """The place that the root gave an event, in one numbering per topic for all publishers."""

    term: Term
    index: int  # type: ignore[assignment]  # also a method of tuples, which is never called on a position


SERIALS = 1 << 16
NO_TERM = Term(0, bytes(16))
new_tuple = tuple.__new__
"""Creates a `Term` or `Position` from all its fields, in a third of the time. Every bundle needs some."""


class Kind(IntEnum):
    """The purpose of a bundle: going up to be admitted, going down the tree, or filling a gap."""

    UP = 1
    DOWN = 2
    REPAIR = 3


UP, DOWN, REPAIR = Kind  # read for every bundle; reading them from the class would take as long as two calls


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The part of a bundle that hops read and may rewrite. Its fields are short and never signed.

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
    """The tags that filters put on the bundle, as the forwarding layer encodes them."""
    serial: int = 0
    """The number of this bundle among those of its term, modulo `SERIALS`: filters divide bundles by it."""
