"""Two ends of one link. Tests control every message and timer between them."""

from random import Random
from typing import Any

from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Record
from quillcast.protocol import wire
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.streams import Streams

Flight = tuple[str, Contact, bytes | tuple[int, bytes]]
"""Receiver, sender, and the message as bytes or the mark of a heartbeat."""


class End:
    """One peer: the host of its streams, and a listener that replays the changes."""

    def __init__(self, link: "Link", name: str, life: int) -> None:
        self.link, self.name = link, name
        self.me = name.encode() * 16
        self.contact = Contact(self.me, f"{name}:{life}")
        self.incarnation = Random(f"{name}{life}").randbytes(8)
        self.sent: list[Message] = []
        self.timers: list[tuple[float, Any]] = []
        self.traced: list[Record] = []
        self.heard: dict[bytes, bytes] = {}
        self.removed: list[bytes] = []
        self.streams = Streams(self, link.config, self)  # type: ignore[arg-type]

    @property
    def other(self) -> "End":
        return self.link.ends["b" if self.name == "a" else "a"]

    # Calls of the streams to their host

    def now(self) -> float:
        return self.link.now

    def send(self, to: Contact, message: Message) -> None:
        assert to.node_id == self.other.me
        self.sent.append(message)
        self.link.flights.append((self.other.name, self.contact, wire.encode(message)))

    def set_timer(self, timer: Any, delay_s: float) -> None:
        assert delay_s > 0
        self.timers.append((self.link.now + delay_s, timer))

    def trace(self, record: Record) -> None:
        self.traced.append(record)

    # Calls of the streams to their listener

    def kept(self, key: bytes) -> bytes:
        return key

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        assert sender.node_id == self.other.me
        if value is None:
            self.removed.append(key)
            self.heard.pop(key, None)
        else:
            assert self.heard.get(key) != value, "the listener was told of a change that is none"
            self.heard[key] = value

    # Calls of tests

    def put(self, key: bytes, value: bytes) -> None:
        self.streams.put(self.other.contact, key, value)

    def drop(self, key: bytes) -> None:
        self.streams.drop(self.other.contact, key)

    def forget(self) -> None:
        self.streams.forget(self.other.me)
        self.heard = {}

    def heartbeat(self) -> None:
        self.link.flights.append((self.other.name, self.contact, self.streams.mark(self.other.me)))

    def told(self) -> dict[bytes, bytes]:
        """The map that it has received."""
        return dict(self.streams.told(self.other.me))

    def telling(self) -> dict[bytes, bytes]:
        return dict(self.streams.telling(self.other.me))

    def marks(self) -> list[str]:
        return [record.name for record in self.traced if isinstance(record, Mark)]


class Link:
    """The ends a and b, the time, and the messages in transit between them."""

    def __init__(self, **config: Any) -> None:
        self.config = StreamConfig(**config)
        self.now = 100.0
        self.flights: list[Flight] = []
        self.lives = 0
        self.ends: dict[str, End] = {}
        self.restart("a")
        self.restart("b")

    @property
    def a(self) -> End:
        return self.ends["a"]

    @property
    def b(self) -> End:
        return self.ends["b"]

    def restart(self, name: str) -> None:
        """Restart that end. What it sent before is still in transit."""
        self.lives += 1
        self.ends[name] = End(self, name, self.lives)

    def deliver(self, at: int = 0) -> None:
        """Deliver the message at that place of those in transit."""
        to, sender, what = self.flights.pop(at)
        streams = self.ends[to].streams
        if isinstance(what, bytes):
            streams.receive(sender, wire.decode(what))
        else:
            streams.compare(sender, *what)

    def deliver_all(self) -> None:
        while self.flights:
            self.deliver()

    def deliver_all_to(self, name: str) -> None:
        """Deliver all messages in transit to one end, but none that follow from them."""
        for flight in [flight for flight in self.flights if flight[0] == name]:
            self.deliver(self.flights.index(flight))

    def lose_all(self) -> None:
        self.flights.clear()

    def advance(self, seconds: float) -> None:
        """Let time pass, and deliver the timers that are due."""
        self.now += seconds
        for end in self.ends.values():
            due = [timer for at, timer in end.timers if at <= self.now]
            end.timers = [(at, timer) for at, timer in end.timers if at > self.now]
            for timer in due:
                end.streams.timer(timer)

    def heal(self) -> None:
        """Let time pass without faults: four heartbeats, everything that follows from them, and all timers."""
        for _ in range(4):
            self.advance(self.config.flush_s)
            self.a.heartbeat()
            self.b.heartbeat()
            self.deliver_all()
            self.advance(20 * self.config.ask_again_s)
            self.deliver_all()

    def check(self) -> None:
        for end in self.ends.values():
            end.streams.check()
            assert end.heard == end.told(), "the listener's map differs from the copy"

    def check_equal(self) -> None:
        self.check()
        for end in self.ends.values():
            assert end.told() == end.other.telling()
