"""A host that records its orders, and a subscriber that records its upcalls."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind, Position, Term
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Record
from quillcast.protocol.topics.publishing.publisher import Publisher

ALICE = Contact(b"a" * 16, "127.0.0.1:1")
BOB = Contact(b"b" * 16, "127.0.0.1:2")
CAROL = Contact(b"c" * 16, "127.0.0.1:3")
WEATHER = b"w" * 16
WINDOW_BYTES = 1 << 20
PAUL, PAULA = b"p" * 16, b"q" * 16
FIRST, SECOND = Term(1, ALICE.node_id), Term(2, BOB.node_id)


class RecordingHost:
    """Orders as values, in order. The test sets the time."""

    incarnation = b"12345678"

    def __init__(self, me: Contact = ALICE) -> None:
        self.me, self.contact, self.random = me.node_id, me, Random(0)
        self.time = 0.0
        self.sent: list[tuple[Contact, Message]] = []
        self.carried: list[tuple[Contact, Bundle]] = []
        self.released: list[tuple[bytes, int]] = []
        self.timers: list[tuple[Any, float]] = []
        self.records: list[Record] = []
        self.rooms: dict[bytes, int] = {}
        self.proximities: dict[bytes, float] = {}
        self.measured: list[Contact] = []
        self.disk: Any = None

    def now(self) -> float:
        return self.time

    def wall_ns(self) -> int:
        return int(self.time * 1e9)

    def send(self, to: Contact, message: Message) -> None:
        self.sent.append((to, message))

    def carry(self, to: Contact, bundle: Bundle) -> None:
        self.carried.append((to, bundle))
        self.rooms[to.node_id] = self.room(to) - bundle.size

    def room(self, to: Contact, reserved_eighths: int = 0) -> int:
        return self.rooms.get(to.node_id, WINDOW_BYTES) - WINDOW_BYTES * reserved_eighths // 8

    def release(self, sender: bytes, size_bytes: int) -> None:
        self.released.append((sender, size_bytes))

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.timers.append((timer, delay_s))

    def proximity(self, node: bytes) -> float | None:
        return self.proximities.get(node)

    def measure(self, to: Contact) -> None:
        self.measured.append(to)

    def multicast(self, groups: Mapping[str, bytes]) -> None: ...
    def disconnect(self, node: bytes) -> None: ...
    def trace(self, record: Record) -> None:
        self.records.append(record)


class Notes:
    """A subscriber that records what it receives."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.recovered: list[bytes] = []
        self.told: list[tuple[int, int, int, str]] = []
        self.turn_over: Callable[[], None] = lambda: None
        self.space = 1 << 20

    def started(self, position: Position) -> None: ...
    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        self.got += block.payloads()[skip:stop]
        if recovered:
            self.recovered += block.payloads()[skip:stop]

    def lost(self, loss: Loss) -> None:
        self.told.append((loss.term.counter, loss.first, loss.last, loss.why))

    @property
    def lost_(self) -> list[tuple[int, int, int, str]]:
        """The losses reported, after the turn is over."""
        self.turn_over()
        return self.told

    def failed(self, error: Exception) -> None: ...
    def room(self) -> int:
        return self.space


def block(publisher: bytes, first: int, *payloads: bytes) -> Block:
    return Block.seal(publisher, first, payloads or (b"%d" % first,), time_ns=0)


def down(term: Term, index: int, *blocks: Block, kind: Kind = Kind.DOWN) -> Bundle:
    return Bundle(Envelope(WEATHER, kind, term, index), blocks)


def up(floor: int, *blocks: Block) -> Bundle:
    return Bundle(Envelope(WEATHER, Kind.UP, first=floor), blocks)


def is_stable(publisher: Publisher, sequence: int) -> bool:
    """Did a root say that every live lease has acknowledged this event?"""
    return sequence < publisher.stable and sequence not in publisher.dropped
