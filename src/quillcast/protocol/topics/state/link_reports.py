"""What a tree link says per topic, kept equal on both sides by its change stream (docs/design.md, decision 4)."""

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

PATH_MAX = 1024  # peers from the root to a parent: a longer path is taken for a loop; a guess
Held = Annotated[
    tuple[
        tuple[AnyTerm, Number, Annotated[tuple[Range, ...], Meta(max_length=HELD_RANGES_MAX)], Number, Number | None],
        ...,
    ],
    Meta(max_length=TERMS_KEPT_MAX),
]
"""Past terms: each one's end and what of it was stable, as far as these are known, and what is kept of it.

The last number says for how many milliseconds all its events have been there at least; None: that is not known.
"""


LIVES_MAX = 1 << 16  # of one process; a guess: it leaves leases of others behind at most so often
LIVES_TOLD_APART_MAX = 1024  # topics in which a peer has left others behind; a guess: 100 kB
COUNT_BITS = 24  # of the number of a move; the others say in which life of its peer; a guess: enough parents for any


class Move(NamedTuple):
    """A peer and the number of its parent, by its own count: it has left those with lower numbers of the same life.

    Peers pass it on up to `up_to`, the lowest one that is above both parents. Empty: up to the root.
    """

    peer: WireId
    number: Number
    up_to: Annotated[bytes, msgspec.Meta(max_length=ID_BYTES)] = b""

    def follows(self, other: "Move") -> bool:
        """Did the same peer move so after another time? After a restart it does not know who was below it then."""
        return self.peer == other.peer and same_life(self.number, other.number) and self.number > other.number


class MoveCount:
    """How many parents this peer has had, in all topics, and in which life in each (`Move`)."""

    def __init__(self, me: bytes, incarnation: bytes) -> None:
        self.me, self.first = me, first_number(incarnation)
        self.moves = self.lives = 0
        self.asked = 0  # the highest count that a Join has named
        self.life = 0  # in all topics but these
        self.life_in: dict[bytes, int] = {}

    def of(self, topic: bytes) -> int:
        """The number of its last move, as it counts in a topic."""
        return self.first + (self.life_in.get(topic, self.life) << COUNT_BITS) + self.moves

    def latest(self, topic: bytes) -> Move:
        """Its last move, as it counts in a topic."""
        return Move(self.me, self.of(topic))

    def next(self, topic: bytes) -> int:
        """The number to name in a Join: of the move that it asks for."""
        self.asked = self.moves + 1
        return self.of(topic) + 1

    def settle(self, topic: bytes) -> int:
        """It gives up a place. All that it has asked for so far is over: what it asks for next has a higher number."""
        self.moves = max(self.moves, self.asked)
        return self.of(topic)

    def count(self, topic: bytes, number: int) -> None:
        """It was to move by this number. It did not, but nobody who heard of that waits for another move.

        A number for which it never asked is somebody else's invention, and might lead to another life.
        """
        self.moves = max(self.moves, min(self.asked, self.moves + number - self.of(topic)))

    def begin_life(self, topic: bytes) -> None:
        """From now on it does not speak in a topic any more for all those that were below it."""
        self.lives += 1
        self.life_in[topic] = self.lives
        if len(self.life_in) > LIVES_TOLD_APART_MAX:  # it speaks for nobody from before in any topic
            self.lives += 1
            self.life, self.life_in = self.lives, {}


def same_life(number: int, other: int) -> bool:
    """Did a peer give both numbers without a restart in between, and without leaving anybody behind? 0: of none."""
    return number > 0 and number >> COUNT_BITS == other >> COUNT_BITS


def reaches(number: int, other: int) -> bool:
    """Is the move of one number that of the other, or a later one of the same life? 0: it is not known, and may be.

    It is not known of a child that was taken back without a Join, until that names its number. If it was restarted, and
    its parent after it, this says too much of those that were below it before (docs/delivery.md, *Not promised*).
    """
    return 0 in (number, other) or (same_life(number, other) and number >= other)


def of_another_life(number: int, other: int) -> bool:
    """Was the peer restarted between the move of one number and that of the other, as far as both are known?

    Or did it leave others behind? Not if the second is known to be the earlier one: it says nothing of that life.
    """
    return 0 not in (number, other) and not same_life(number, other) and not joined_since(number, other)


def joined_since(number: int, left: int) -> bool:
    """Did a peer join by this number after it had left, having had so many parents (0: it is not known)?

    The numbers that it gave before a restart are not compared: those are far away.
    """
    return left > 0 and 0 < number - left < LIVES_MAX << COUNT_BITS


def first_number(incarnation: bytes) -> int:
    """From which number on a peer counts its parents in this life."""
    return int.from_bytes(incarnation[:4], "big") << COUNT_BITS


def is_of_run(number: int, incarnation: bytes) -> bool:
    """Did this run of a peer, if it is known, give the number in any of its lives?"""
    return bool(incarnation) and 0 <= number - first_number(incarnation) < LIVES_MAX << COUNT_BITS


def lowest_above_both(path: Sequence[bytes], other: Sequence[bytes]) -> bytes:
    """Where two paths from the root part: the last peer on both, as far as these are known. Empty if there is none."""
    common = takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    return next(reversed([here for here, _ in common]), b"")


Moves = Annotated[tuple[Move, ...], Meta(max_length=NEWCOMERS_MAX)]


class ChildReport(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A child to its parent: I and all below me have everything of `term` below `acknowledged`.

    `heard` is the highest term known here or below. `newcomers` are those that came below me lately from another
    parent: `acknowledged` speaks for them and all below them. `frontier` is how far the term came to me without a gap:
    where it is ahead of `acknowledged`, somebody below me holds that back. A `leaf` has nobody below it: if it dies, no
    lease continues. `arrivals` are newcomers too, those that say by which parent they came. `departures` moved to a
    parent elsewhere, and their leases go on below me until I hear that they have arrived. `used_up`:
    here or below, the topic keeps its share of a peer's buffers (`shares.py`). `reach`: I know of nobody here or below
    who has later events of the term.
    """

    term: Term
    acknowledged: Number
    heard: Term
    held: Held = ()
    newcomers: Annotated[tuple[WireId, ...], Meta(max_length=NEWCOMERS_MAX)] = ()
    frontier: Number = 0
    leaf: bool = False
    arrivals: Moves = ()
    departures: Moves = ()
    used_up: bool = False
    reach: Number = 0


class ParentReport(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A parent to each child: my frontier and the stable position, the path from the root to me, whom to turn to.

    `stable` is the root's word, passed on: 0 while it has not come to me. So is `held_back`: the root holds publishers
    back, or has no place for one, and what they keep comes later; and so is the `descriptor`, if the child may not have
    the latest one. `arrivals` are departures that children reported and that have arrived: what I report includes them.
    """

    term: Term
    frontier: Number
    stable: Number
    path: Annotated[tuple[WireId, ...], Meta(max_length=PATH_MAX)]
    fallbacks: tuple[Contact, ...]
    held: Held = ()
    held_back: bool = False
    descriptor: Descriptor | None = None
    arrivals: Moves = ()


class StreamUp(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A child to its parent on the stream of a source: I and all below me have everything of it below `acknowledged`.

    I have it below `frontier`, and somebody here or below has events up to `reach`. `alive`: its source is here or
    below. `end`: the source said that this is where it ends. `warrant` is the source's, where a list says who may
    publish. `milestones`: the source says at the end how long ago it had come how far, for it may be gone when asked.
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

    It is `stable` below there, as the root declared it, which may be `partitioned` from most replicas. `end`: it ended,
    as the root declared; `closed` if its source said so. `warrant` is the source's. `milestones`: the parent is the
    source, which may not publish any more, and says how long ago its stream had come how far.
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
    """The key under which a link tells of a source's stream in a topic."""
    return topic + term.counter.to_bytes(_COUNTER_BYTES, "big") + term.node


def is_topic(key: bytes) -> bool:
    """Is this the key of a topic, rather than of a stream in one?"""
    return len(key) == _TOPIC_BYTES


def stream_of(key: bytes) -> tuple[bytes, Term]:
    """The topic and the stream that a key names. Raises `Malformed`."""
    if len(key) != _KEY_BYTES:
        raise Malformed(f"a key of {len(key)} bytes names no stream")
    counter = int.from_bytes(key[_TOPIC_BYTES : _TOPIC_BYTES + _COUNTER_BYTES], "big")
    return key[:_TOPIC_BYTES], Term(counter, key[_TOPIC_BYTES + _COUNTER_BYTES :])


def decode_stream(data: bytes) -> StreamReport:
    """The report on a stream in these bytes. Raises `Malformed`."""
    return decoded(_stream_decoder, data, "report on a stream")


def encode(report: LinkReport | StreamReport) -> bytes:
    """The report as bytes."""
    return msgspec.msgpack.encode(report)


def decode(data: bytes) -> LinkReport:
    """The report in these bytes. Values that other reports have as well are shared. Raises `Malformed`."""
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
