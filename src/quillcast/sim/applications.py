"""Simulated programs on a peer: they write to topics, read from topics, and remember what they saw.

A payload names its writer and its number. So a reader's log is the truth about delivery, whatever the protocols report.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.ids import topic_id
from quillcast.core.loss import Loss
from quillcast.core.ranges import RangeSet
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.sim.host import SimHost

READER_BYTES = 4096  # payload bytes that may wait for a slow reader; a guess, small so that slowness shows soon


class Event(NamedTuple):
    """What a payload says about itself: its writer, and its number among the writer's events (from 0)."""

    writer: str
    number: int

    def payload(self, size_bytes: int) -> bytes:
        """The event's payload, padded to `size_bytes`."""
        return f"{self.writer} {self.number} ".encode().ljust(size_bytes, b".")

    @classmethod
    def of(cls, payload: bytes) -> "Event":
        """Parse a payload."""
        writer, number, _ = payload.split(b" ", 2)
        return cls(writer.decode(), int(number))


class Heard(NamedTuple):
    """A reader received an event."""

    at: float
    event: Event
    recovered: bool = False


class Told(NamedTuple):
    """A reader got a report that it lost these events (`core.loss.Loss`)."""

    at: float
    term: Term
    first: int
    last: int
    why: str
    publisher: bytes = b""


class Reader:
    """A subscription of a simulated program. It is fast unless `slow_down` was called."""

    def __init__(
        self, host: SimHost, topic: str, number: int, told: "Callable[[Reader, Told], None] | None" = None,
        start: str = "now", warrant: Warrant | None = None,
    ) -> None:  # fmt: skip
        """`told` is called with every loss report that the reader gets."""
        self.host, self.topic, self.number = host, topic, number
        self.earliest = start == "earliest"  # loss reports then include events from before its start
        self._told = told
        self.name = f"{host.machine.number}.{host.machine.starts}.r{number}"
        self.asked_at = host.world.now
        self.started_at: float | None = None
        self.start: Position | None = None
        self.knew: dict[Term, int] = {}  # other terms that its peer knew at the start, and their ends then
        self.waits_for_nothing_in: Term | None = None  # its first term, if a best-effort session was known to follow
        self.ended_at: float | None = None
        self.log: list[Heard | Told] = []
        self.heard: set[Event] = set()
        self.failures: list[QuillcastError] = []
        self.slow: list[tuple[float, float]] = []  # when it did not keep up: from, to
        self._bytes_per_s: float | None = None  # None while it is fast
        self._queued = 0.0
        self._looked_at = 0.0
        self._waited_for = False
        self.sessions: dict[int, tuple[float, int]] = {}
        """The sessions of received events: when each one's first event came, and the session its peer knew then."""
        self._subscription: Subscription = peer_of(host).subscribe(topic, self, start=start, warrant=warrant)

    # --- called by the peer

    def started(self, position: Position) -> None:
        self.started_at, self.start = self.host.world.now, position
        topics = peer_of(self.host).topics
        tree = topics.trees[topic_id(self.topic)]
        self.knew = {term: each.end for term, each in tree.flow.past.items()}
        self.knew |= dict(topics.source_streams.begin_at(tree, earliest=False))
        known = tree.descriptor
        if position.term.session < known.session and not known.settings.reliable:
            self.waits_for_nothing_in = position.term

    def owed_from(self, term: Term) -> int:
        """The index from which on it is owed the events of a term."""
        assert self.start is not None
        if term == self.start.term:
            return self.start.index
        return self.knew.get(term, 0) if term < self.start.term or term.of_source else 0

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        now = self.host.world.now
        if not position.term.of_source:
            known = peer_of(self.host).topics.descriptors[topic_id(self.topic)]
            self.sessions.setdefault(position.term.session, (now, known.session))
        for payload in block.payloads()[skip:stop]:
            event = Event.of(payload)
            self.log.append(Heard(now, event, recovered))
            self.heard.add(event)
            if self._bytes_per_s is not None:
                self._queued += len(payload)

    def lost(self, loss: Loss) -> None:
        told = Told(self.host.world.now, loss.term, loss.first, loss.last, loss.why, loss.publisher)
        self.log.append(told)
        if self._told is not None:
            self._told(self, told)

    def failed(self, error: QuillcastError) -> None:
        self.failures.append(error)
        self.ended_at = self.host.world.now if self.ended_at is None else self.ended_at

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

    @property
    def waits(self) -> str:
        """The bound of a scope that it waits for, in a sentence; empty if it need not wait."""
        return peer_of(self.host).topics.subscribing.bounds().get(topic_id(self.topic), "")

    def end(self) -> None:
        """Its process has ended."""
        self.ended_at = self.host.world.now

    # --- called by the program

    def stop(self) -> None:
        """Unsubscribe."""
        if self.ended_at is None and self.host.alive:
            self.ended_at = self.host.world.now
            peer_of(self.host).unsubscribe(self._subscription)

    def slow_down(self, bytes_per_s: float, for_s: float) -> None:
        """Process only this many bytes per second for a while; 0 means none."""
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
            peer_of(self.host).drained(self._subscription)


class WriterListener(Protocol):
    """Hears of a writer's progress at the same time as the writer."""

    def acknowledged(self, writer: "Writer") -> None:
        """Events of the writer have positions."""
        ...

    def told_stable(self, writer: "Writer", before: int) -> None:
        """The writer learned that its events from number `before` up to its publisher's mark are stable."""
        ...


class Writer:
    """A publisher of a simulated program."""

    def __init__(
        self, host: SimHost, topic: str, number: int, payload_bytes: int, listener: "WriterListener",
        warrant: Warrant | None = None, *, listed: bool = False,
    ) -> None:  # fmt: skip
        """`listed`: whether the topic's access list limits who may publish."""
        self.listed = listed
        self.host, self.topic, self.payload_bytes, self.warrant = host, topic, payload_bytes, warrant
        self._listener, self._admitted, self._stable = listener, 0, 0
        self._opened = False
        self.name = f"{host.machine.number}.{host.machine.starts}.w{number}"
        self.written: list[float] = []  # when each event was published
        self.never_stable = RangeSet()  # events that the publisher reported as dropped, or as published best effort
        self._stable_at: list[tuple[float, int]] = []  # when it learned that this many are stable
        self.held_back = 0
        self.failures: list[QuillcastError] = []
        self.publisher: Publisher = peer_of(host).publisher(topic, self, warrant)
        self._opened = True

    # --- called by the peer

    def progressed(self) -> None:
        if self._opened and self.publisher.admitted > self._admitted:
            self._admitted = self.publisher.admitted
            self._listener.acknowledged(self)
        if self._opened and self.publisher.stable > self._stable:
            before, self._stable = self._stable, self.publisher.stable
            self._stable_at.append((self.host.world.now, self._stable))
            self._listener.told_stable(self, before)

    def dropped(self, block: Block) -> None:
        self.never_stable.add(block.first, block.last)

    def stops_keeping(self) -> None: ...

    def was_best_effort(self, first: int, last: int) -> None:
        self.never_stable.add(first, last)

    def failed(self, error: QuillcastError) -> None:
        self.failures.append(error)

    # --- called by the program

    def write(self, count: int) -> None:
        """Publish this many events at once, unless there is no room: then a real program would wait."""
        if self.failures:
            return
        if self.publisher.room() <= 0:
            self.held_back += 1
            return
        first = len(self.written)
        self.written += [self.host.world.now] * count
        numbers = range(first, first + count)
        self.publisher.offer([Event(self.name, number).payload(self.payload_bytes) for number in numbers])

    @property
    def waits(self) -> str:
        """The bound that it waits for, in a sentence; empty if it need not wait."""
        return peer_of(self.host).bound(self.publisher.topic) if self.host.alive else ""

    def knows_stable(self, number: int) -> bool:
        """Whether the writer learned that the event is stable."""
        return number < self.publisher.stable and number not in self.never_stable

    def stable_by(self, at: float) -> int:
        """The number below which, as it knew at a time, all its events were stable."""
        return max((end for learned_at, end in self._stable_at if learned_at <= at), default=0)

    @property
    def unsettled(self) -> list[int]:
        """The numbers of the events that are not known to be stable or dropped."""
        waits = self.never_stable.missing(self.publisher.stable, self.publisher.next)
        return [number for first, last in waits for number in range(first, last)]

    @property
    def may_publish(self) -> bool:
        """Whether the topic's access list, if there is one, lets it publish."""
        return not self.listed or self.warrant is not None

    def ended_at(self, now: float) -> float:
        """When its process ended; now if it is running."""
        return self.host.ended_at if self.host.ended_at is not None else now

    @property
    def lives(self) -> bool:
        """Whether the process that wrote is still running."""
        return self.host.alive


def peer_of(host: SimHost) -> Peer:
    """The peer that a host runs."""
    peer = host.peer
    assert isinstance(peer, Peer)
    return peer
