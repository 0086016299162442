"""What simulated programs do with a peer: write to topics and read from them, and remember what they saw.

A payload names its writer and its number, so a reader's log is the truth about delivery, whatever the protocols say.
"""

from collections.abc import Callable
from typing import NamedTuple

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.ids import topic_id
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.publisher import Publisher
from quillcast.protocol.topics.subscription import Subscription
from quillcast.sim.host import SimHost

READER_BYTES = 4096  # of payload that wait for a reader that is slow; a guess, small so that slowness shows soon


class Event(NamedTuple):
    """What a payload says of itself: whose it is, and the how manieth (counted from 0)."""

    writer: str
    number: int

    def payload(self, size_bytes: int) -> bytes:
        """The event's payload, padded to a size."""
        return f"{self.writer} {self.number} ".encode().ljust(size_bytes, b".")

    @classmethod
    def of(cls, payload: bytes) -> "Event":
        """The event of a payload."""
        writer, number, _ = payload.split(b" ", 2)
        return cls(writer.decode(), int(number))


class Heard(NamedTuple):
    """A reader was given an event."""

    at: float
    event: Event


class Told(NamedTuple):
    """A reader was told that it lost positions [first, last) of a term."""

    at: float
    term: Term
    first: int
    last: int
    why: str


class Reader:
    """A subscription of a simulated program. It is quick unless `slow_down` says otherwise."""

    def __init__(self, host: SimHost, topic: str, number: int) -> None:
        self.host, self.topic, self.number = host, topic, number
        self.name = f"{host.machine.number}.{host.machine.starts}.r{number}"
        self.asked_at = host.world.now
        self.started_at: float | None = None
        self.start: Position | None = None
        self.knew: frozenset[Term] = frozenset()  # the earlier reigns that its peer knew the extent of at the start
        self.ended_at: float | None = None
        self.log: list[Heard | Told] = []
        self.failures: list[QuillcastError] = []
        self.slow: list[tuple[float, float]] = []  # from when to when it did not keep up
        self._bytes_per_s: float | None = None  # None while it is quick
        self._queued = 0.0
        self._looked_at = 0.0
        self._waited_for = False
        self._subscription: Subscription = _peer(host).subscribe(topic, self)

    # --- what the peer calls

    def started(self, position: Position) -> None:
        self.started_at, self.start = self.host.world.now, position
        self.knew = frozenset(_peer(self.host).scribe.trees[topic_id(self.topic)].past)

    def deliver(self, block: Block, skip: int, stop: int, position: Position) -> None:
        now = self.host.world.now
        for payload in block.payloads()[skip:stop]:
            self.log.append(Heard(now, Event.of(payload)))
            if self._bytes_per_s is not None:
                self._queued += len(payload)

    def lost(self, term: Term, first: int, last: int, why: str) -> None:
        self.log.append(Told(self.host.world.now, term, first, last, why))

    def failed(self, error: QuillcastError) -> None:
        self.failures.append(error)

    def room(self) -> int:
        if self._bytes_per_s is None:
            return READER_BYTES
        now = self.host.world.now
        self._queued = max(0.0, self._queued - self._bytes_per_s * (now - self._looked_at))
        self._looked_at = now
        room = int(READER_BYTES - self._queued)
        if room <= 0 and self._bytes_per_s and not self._waited_for:
            self._waited_for = True
            self.host.world.after((1 - room) / self._bytes_per_s, self._drain, None)
        return room

    # --- what the program does

    def stop(self) -> None:
        """Unsubscribe."""
        if self.ended_at is None and self.host.alive:
            self.ended_at = self.host.world.now
            _peer(self.host).unsubscribe(self._subscription)

    def slow_down(self, bytes_per_s: float, for_s: float) -> None:
        """Take only so much for a while; 0 is nothing."""
        now = self.host.world.now
        self._bytes_per_s, self._queued, self._looked_at = bytes_per_s, 0.0, now
        self.slow.append((now, now + for_s))
        self.host.world.after(for_s, self._quicken, None)

    def _quicken(self, _: None) -> None:
        self._bytes_per_s, self._queued = None, 0.0
        self._drain(None)

    def _drain(self, _: None) -> None:
        self._waited_for = False
        self.host.act(self._drained)

    def _drained(self) -> None:
        if self.ended_at is None:
            _peer(self.host).drained(self._subscription)


class Writer:
    """A publisher of a simulated program."""

    def __init__(
        self, host: SimHost, topic: str, number: int, payload_bytes: int, acknowledged: Callable[[str], None]
    ) -> None:
        self.host, self.topic, self.payload_bytes = host, topic, payload_bytes
        self._acknowledged, self._admitted = acknowledged, 0
        self._opened = False
        self.name = f"{host.machine.number}.{host.machine.starts}.w{number}"
        self.written: list[float] = []  # when each event was offered
        self.held_back = 0
        self.failures: list[QuillcastError] = []
        self.publisher: Publisher = _peer(host).publisher(topic, self)
        self._opened = True

    # --- what the peer calls

    def progressed(self) -> None:
        if self._opened and self.publisher.admitted > self._admitted:
            self._admitted = self.publisher.admitted
            self._acknowledged(self.topic)

    def dropped(self, block: Block) -> None: ...

    def failed(self, error: QuillcastError) -> None:
        self.failures.append(error)

    # --- what the program does

    def write(self, count: int) -> None:
        """Offer so many events at once, unless there is no room: then the program would wait."""
        if self.publisher.room() <= 0:
            self.held_back += 1
            return
        first = len(self.written)
        self.written += [self.host.world.now] * count
        numbers = range(first, first + count)
        self.publisher.offer([Event(self.name, number).payload(self.payload_bytes) for number in numbers])

    @property
    def lives(self) -> bool:
        """Does the process that wrote still run?"""
        return self.host.alive


def _peer(host: SimHost) -> Peer:
    peer = host.peer
    assert isinstance(peer, Peer)
    return peer
