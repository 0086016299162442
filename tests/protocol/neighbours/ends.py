"""Two ends of one link, with every message and timer between them in the test's hands."""

from random import Random
from typing import Any

from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Record
from quillcast.protocol import wire
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.streams import Streams

Flight = tuple[str, Contact, bytes | tuple[int, bytes]]
"""To whom, from whom, and the message as bytes or a heartbeat's mark."""


class End:
    """One peer: the host that its streams see, and the listener that replays what it hears."""

    def __init__(self, link: "Link", name: str, life: int) -> None:
        self.link, self.name = link, name
        self.me = name.encode() * 16
        self.contact = Contact(self.me, f"{name}:{life}")
        self.incarnation = Random(f"{name}{life}").randbytes(8)
        self.sent: list[Message] = []
        self.timers: list[tuple[float, Any]] = []
        self.traced: list[Record] = []
        self.heard: dict[bytes, bytes] = {}
        self.streams = Streams(self, link.config, self)  # type: ignore[arg-type]

    @property
    def other(self) -> "End":
        return self.link.ends["b" if self.name == "a" else "a"]

    # What the streams ask of their host

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

    # What they tell their listener

    def kept(self, key: bytes) -> bytes:
        return key

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        assert sender.node_id == self.other.me
        assert self.heard.get(key) != value, "told of a change that is none"
        if value is None:
            del self.heard[key]
        else:
            self.heard[key] = value

    # What tests do with it

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
        """What it is told."""
        return dict(self.streams.told(self.other.me))

    def telling(self) -> dict[bytes, bytes]:
        return dict(self.streams.telling(self.other.me))

    def marks(self) -> list[str]:
        return [record.name for record in self.traced if isinstance(record, Mark)]


class Link:
    """Ends a and b, the time, and what is under way between them."""

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
        """A new life of that end; what it sent before is still under way."""
        self.lives += 1
        self.ends[name] = End(self, name, self.lives)

    def deliver(self, at: int = 0) -> None:
        """Hand over what is under way at that place."""
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
        """Hand over what is under way to one end, and nothing that follows from it."""
        for flight in [flight for flight in self.flights if flight[0] == name]:
            self.deliver(self.flights.index(flight))

    def lose_all(self) -> None:
        self.flights.clear()

    def advance(self, seconds: float) -> None:
        """Let time pass, and hand in what timers are due."""
        self.now += seconds
        for end in self.ends.values():
            due = [timer for at, timer in end.timers if at <= self.now]
            end.timers = [(at, timer) for at, timer in end.timers if at > self.now]
            for timer in due:
                end.streams.timer(timer)

    def heal(self) -> None:
        """A while without faults: four heartbeats, all that follows from them, and all timers."""
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
            assert end.heard == end.told(), "the listener knows something else"

    def check_equal(self) -> None:
        self.check()
        for end in self.ends.values():
            assert end.told() == end.other.telling()
