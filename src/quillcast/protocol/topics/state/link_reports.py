"""Link reports: what a tree link says per topic. A change stream keeps both ends equal (docs/design.md, decision 4)."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from quillcast.core.envelope import AnyTerm, Term
from quillcast.core.errors import Malformed
from quillcast.core.ids import ID_BYTES
from quillcast.core.interning import interned
from quillcast.core.messages import Contact, Number, WireId, decoded
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.forwarding.past_terms import HELD_RANGES_MAX, TERMS_KEPT_MAX
from quillcast.protocol.security.access import SourceWarrant
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import NEWCOMERS_MAX

PATH_MAX = 1024  # peers from the root to a parent: a longer path counts as a loop; a guess
HeldReport = Annotated[
    tuple[
        tuple[AnyTerm, Number, Annotated[tuple[Range, ...], Meta(max_length=HELD_RANGES_MAX)], Number, Number | None],
        ...,
    ],
    Meta(max_length=TERMS_KEPT_MAX),
]
"""Past terms: the end of each and its stable position, as far as known, and the ranges that are kept.

The last number is the minimum age of all its events in milliseconds. None: unknown.
"""


LIVES_MAX = 1 << 16  # of one process: it leaves leases of others behind at most so often; a guess
LIVES_TOLD_APART_MAX = 1024  # topics in which a peer has left others behind: 100 kB; a guess
COUNT_BITS = 24  # of a move's number; the others are the life of its peer; a guess: enough parents for any peer


class Move(NamedTuple):
    """A peer and the number of its parent, by its own count: it has left parents with lower numbers of the same life.

    Peers pass it on up to `up_to`, the lowest peer above both parents. Empty: up to the root.
    """

    peer: WireId
    number: Number
    up_to: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""

    def follows(self, other: "Move") -> bool:
        """Whether this is a later move of the same peer in the same life, so that it still knows the peers below it."""
        return self.peer == other.peer and same_life(self.number, other.number) and self.number > other.number


class MoveCount:
    """Counts this peer's parents in all topics together, and its lives in each topic (`Move`)."""

    __slots__ = ("asked", "first", "life", "life_in", "lives", "me", "moves")

    def __init__(self, me: bytes, incarnation: bytes) -> None:
        self.me, self.first = me, first_number(incarnation)
        self.moves = self.lives = 0
        self.asked = 0  # the highest count that a Join has named
        self.life = 0  # in all topics except those in `life_in`
        self.life_in: dict[bytes, int] = {}

    def of(self, topic: bytes) -> int:
        """Return the number of its last move, as it counts in a topic."""
        return self.first + (self.life_in.get(topic, self.life) << COUNT_BITS) + self.moves

    def latest(self, topic: bytes) -> Move:
        """Return its last move, as it counts in a topic."""
        return Move(self.me, self.of(topic))

    def next(self, topic: bytes) -> int:
        """Return the number to name in a Join: that of the requested move."""
        self.asked = self.moves + 1
        return self.of(topic) + 1

    def come(self) -> None:
        """Count a parent that accepted this peer."""
        self.moves += 1

    def settle(self, topic: bytes) -> int:
        """Give up a place, so that the next request gets a higher number than all former ones. Return the last one."""
        self.moves = max(self.moves, self.asked)
        return self.of(topic)

    def count(self, topic: bytes, number: int) -> None:
        """Count a requested move that did not happen, because peers that heard of it wait for no other move.

        A number that this peer never requested is invented, and might lead to another life.
        """
        self.moves = max(self.moves, min(self.asked, self.moves + number - self.of(topic)))

    def begin_life(self, topic: bytes) -> None:
        """Begin a life in a topic: this peer no longer reports for all the peers that were below it."""
        self.lives += 1
        self.life_in[topic] = self.lives
        if len(self.life_in) > LIVES_TOLD_APART_MAX:  # begin a life in every topic
            self.lives += 1
            self.life, self.life_in = self.lives, {}


def same_life(number: int, other: int) -> bool:
    """Whether a peer gave both numbers in one life: it neither restarted nor left others behind. 0: no life."""
    return number > 0 and number >> COUNT_BITS == other >> COUNT_BITS


def reaches(number: int, other: int) -> bool:
    """Whether the move `number` is the move `other` or a later one of the same life. True if either is unknown (0).

    The number of a child that was taken back without a Join is unknown until the child names it. If that child was
    restarted, and its parent after it, the result may be wrong for peers below it (docs/delivery.md, *Not promised*).
    """
    return 0 in (number, other) or (same_life(number, other) and number >= other)


def of_another_life(number: int, other: int) -> bool:
    """Whether the peer was restarted, or left others behind, between these two moves. False if either is unknown.

    Also false if the second is known to be the earlier one: it says nothing about that life.
    """
    return 0 not in (number, other) and not same_life(number, other) and not joined_since(number, other)


def joined_since(number: int, left: int) -> bool:
    """Whether a peer joined with this number after it left with number `left` (0: unknown).

    Numbers from before a restart are not compared: they are far away.
    """
    return left > 0 and 0 < number - left < LIVES_MAX << COUNT_BITS


def first_number(incarnation: bytes) -> int:
    """Return the number from which a peer counts its parents in this run."""
    return int.from_bytes(incarnation[:4], "big") << COUNT_BITS


def is_of_run(number: int, incarnation: bytes) -> bool:
    """Whether this run of a peer gave the number, in any of its lives. False if the run is unknown."""
    return bool(incarnation) and 0 <= number - first_number(incarnation) < LIVES_MAX << COUNT_BITS


def lowest_above_both(path: Sequence[bytes], other: Sequence[bytes]) -> bytes:
    """Return the last common peer of two paths from the root, as far as these are known. Empty if there is none."""
    common = takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    return next(reversed([here for here, _ in common]), b"")


Moves = Annotated[tuple[Move, ...], Meta(max_length=NEWCOMERS_MAX)]


class ChildReport(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A child to its parent: I and all peers below me have everything of `term` below `acknowledged`.

    - `heard`: the highest term known here or below.
    - `newcomers`: peers that came below me lately from another parent. `acknowledged` covers them and all below them.
    - `frontier`: how far I have the term without a gap. If that is ahead of `acknowledged`, a peer below me is behind.
    - `leaf`: nobody is below me. If I die, no lease continues.
    - `arrivals`: newcomers that count their parents.
    - `departures`: moved to a parent elsewhere. Their leases continue below me until I hear that they have arrived.
    - `used_up`: here or below, the topic has used up its share of a peer's buffers (`shares.py`).
    - `reach`: no peer here or below is known to have later events of the term.
    """

    term: Term
    acknowledged: Number
    heard: Term
    held: HeldReport = ()
    newcomers: Annotated[tuple[WireId, ...], Meta(max_length=NEWCOMERS_MAX)] = ()
    frontier: Number = 0
    leaf: bool = False
    arrivals: Moves = ()
    departures: Moves = ()
    used_up: bool = False
    reach: Number = 0


class ParentReport(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A parent to each child: my frontier, the stable position, the path from the root to me, and fallbacks.

    Three fields pass on what the root says. `stable`: the stable position, 0 while it is unknown here. `held_back`: the
    root holds publishers back, or has no place for one, so their events come later. `descriptor`: the latest one, if
    the child may not have it. `arrivals` are departures that children reported and that have arrived: my reports
    include them.
    """

    term: Term
    frontier: Number
    stable: Number
    path: Annotated[tuple[WireId, ...], Meta(max_length=PATH_MAX)]
    fallbacks: tuple[Contact, ...]
    held: HeldReport = ()
    held_back: bool = False
    descriptor: Descriptor | None = None
    arrivals: Moves = ()


class StreamUp(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A child to its parent on the stream of a source: I and all peers below me have it below `acknowledged`.

    I have it below `frontier`, and a peer here or below has events up to `reach`. `alive`: its source is here or below.
    `end`: where the source said that it ends. `warrant`: the source's, if an access list says who may publish.
    `milestones`: sent by the source at the end, because it may be gone when asked.
    """

    acknowledged: Number
    frontier: Number
    reach: Number
    alive: bool = False
    end: Number | None = None
    warrant: SourceWarrant | None = None
    milestones: ToldMilestones = ()


class StreamDown(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A parent to its child on the stream of a source: I have it below `frontier`, and know of events up to `reach`.

    `stable`: the stable position that the root declared. `partitioned`: the root is cut off from most replicas. `end`:
    where the stream ended, as the root declared; `closed`: the source said so. `warrant`: the source's. `milestones`:
    sent by a parent that is the source and may no longer publish.
    """

    frontier: Number
    reach: Number
    stable: Number
    end: Number | None = None
    closed: bool = False
    partitioned: bool = False
    warrant: SourceWarrant | None = None
    milestones: ToldMilestones = ()


LinkReport = ChildReport | ParentReport
StreamReport = StreamUp | StreamDown
_decoder: msgspec.msgpack.Decoder[LinkReport] = msgspec.msgpack.Decoder(LinkReport)
_stream_decoder: msgspec.msgpack.Decoder[StreamReport] = msgspec.msgpack.Decoder(StreamReport)
_TOPIC_BYTES, _COUNTER_BYTES = 16, 8
_KEY_BYTES = _TOPIC_BYTES + _COUNTER_BYTES + 16


def stream_key(topic: bytes, term: Term) -> bytes:
    """Return the key under which a link reports on a source's stream in a topic."""
    return topic + term.counter.to_bytes(_COUNTER_BYTES, "big") + term.node


def is_topic(key: bytes) -> bool:
    """Whether this is the key of a topic, not of a stream in one."""
    return len(key) == _TOPIC_BYTES


def stream_of(key: bytes) -> tuple[bytes, Term]:
    """Return the topic and the stream that a key names. Raises `Malformed`."""
    if len(key) != _KEY_BYTES:
        raise Malformed(f"a key of {len(key)} bytes names no stream")
    counter = int.from_bytes(key[_TOPIC_BYTES : _TOPIC_BYTES + _COUNTER_BYTES], "big")
    return key[:_TOPIC_BYTES], Term(counter, key[_TOPIC_BYTES + _COUNTER_BYTES :])


def decode_stream(data: bytes) -> StreamReport:
    """Decode a report on a stream. Raises `Malformed`."""
    return decoded(_stream_decoder, data, "report on a stream")


def encode(report: LinkReport | StreamReport) -> bytes:
    """Encode a report."""
    return msgspec.msgpack.encode(report)


def decode(data: bytes) -> LinkReport:
    """Decode a report on a topic. Values that occur in several reports are shared. Raises `Malformed`."""
    match decoded(_decoder, data, "report on a topic"):
        case ChildReport(
            term, acknowledged, heard, held, newcomers, frontier, leaf, arrivals, departures, used_up, reach
        ):  # fmt: skip
            return ChildReport(
                interned(term), acknowledged, interned(heard), held, newcomers, frontier, leaf, arrivals, departures,
                used_up, reach,
            )  # fmt: skip
        case ParentReport(term, frontier, stable, path, fallbacks, held, held_back, descriptor, arrivals):
            return ParentReport(
                interned(term), frontier, stable, interned(path), interned(fallbacks), held, held_back, descriptor,
                arrivals,
            )  # fmt: skip
