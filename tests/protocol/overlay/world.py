"""A small world for overlays: a queue, delays, loss, crashes and partitions, all from one seed."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Union

import msgspec

from quillcast.core import trace
from quillcast.core.ids import ID_BYTES, closer
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark, Record
from quillcast.protocol.neighbours import messages as neighbour_messages
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.neighbours import Neighbours, SilenceCheckDue
from quillcast.protocol.overlay import messages as overlay_messages
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.messages import Routed, StateRequest
from quillcast.protocol.overlay.pastry import Pastry


class Note(Message, frozen=True, tag=100):
    """The message that tests route."""

    text: str
    waited_s: float = 0.0

    def aged(self, by_s: float) -> "Note":
        return msgspec.structs.replace(self, waited_s=self.waited_s + by_s)


MESSAGES = (*neighbour_messages.MESSAGES, *overlay_messages.MESSAGES, Note)
NEIGHBOUR = neighbour_messages.MESSAGES


class LayersCodec:
    """Stands for `protocol.wire` with these two layers and the note."""

    def __init__(self) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(Union[MESSAGES]).decode  # type: ignore[var-annotated]  # noqa: UP007


CODEC = LayersCodec()


class TestPeer:
    """Host and peer in one: it carries out the orders of its two layers and passes inputs to them."""

    __test__ = False

    def __init__(self, world: "World", node_id: bytes, place: Any, starts: int) -> None:
        self.world, self.me, self.place = world, node_id, place
        self.contact = Contact(node_id, f"at {node_id.hex()}")
        self.random = Random(f"{world.seed} {self.contact.address} {starts}")
        self.incarnation = self.random.randbytes(8)
        self.known: dict[bytes, float] = {}
        self.delivered: list[tuple[str, Contact]] = []
        self.waited_s: list[float] = []  # those messages, on their way
        self.trail: list[str] = []
        self.asked: list[str] = []  # addresses of the peers asked for help with joining
        self.alive, self.paused_until = True, 0.0
        self.neighbours = Neighbours(self, world.neighbour_config)
        self.overlay = Pastry(self, world.config, self.neighbours, CODEC)
        self.overlay.serve(self)
        self.neighbours.tell(self.overlay)

    # Host
    def now(self) -> float:
        return self.world.now

    def send(self, to: Contact, message: Message) -> None:
        if isinstance(message, StateRequest | Routed):
            self.asked.append(to.address)
        self.world.send(self, to, CODEC.encode(message))

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.world.after(delay_s, self, self.fire, timer)

    def proximity(self, node: bytes) -> float | None:
        return self.known.get(node)

    def measure(self, to: Contact) -> None:
        there = self.world.peers.get(to.node_id)
        if there is None or not there.alive or self.world.cut(self, there):
            self.world.after(1.0, self, self._measured, (to, None))
        else:
            round_trip_s = 2 * self.world.delay(self, there)
            self.world.after(round_trip_s, self, self._measured, (to, round_trip_s))

    def disconnect(self, node: bytes) -> None: ...

    def trace(self, record: Record) -> None:
        self.world.records.append((self.world.now, self.me, record))
        if isinstance(record, Mark):
            self.world.marks[record.name] = self.world.marks.get(record.name, 0) + 1

    # Inputs
    def message(self, arrived: tuple[Contact, bytes]) -> None:
        sender, wire = arrived
        self.neighbours.heard(sender, self.now())
        message = CODEC.decode(wire)
        self.overlay.heard(sender)
        (self.neighbours if isinstance(message, NEIGHBOUR) else self.overlay).receive(sender, message)

    def fire(self, timer: Any) -> None:
        (self.neighbours if isinstance(timer, SilenceCheckDue) else self.overlay).timer(timer)

    def _measured(self, answer: tuple[Contact, float | None]) -> None:
        if answer[1] is not None:
            self.known[answer[0].node_id] = answer[1]
        self.overlay.measured(*answer)

    # Application
    def deliver(self, message: Note, key: bytes, source: Contact) -> None:
        assert self.overlay.active, "an inactive peer delivers"
        self.world.arrived.append(message.text)
        closest = self.world.closest(key)
        if closest is not self and closest.overlay.active:
            self.world.misplaced.append(message.text)
        self.delivered.append((message.text, source))
        self.waited_s.append(message.waited_s)

    def forward(self, message: Note, key: bytes, next_hop: Contact, source: Contact) -> Any:
        self.trail.append(message.text)
        return message, next_hop

    def leaf_set_changed(self) -> None: ...


class World:
    """All peers, the clock and the network. `delay` returns the seconds from one peer to another."""

    def __init__(self, seed: int = 0, config: OverlayConfig | None = None, *, loss: float = 0.0, checked: bool = True):
        self.seed, self.loss, self.checked = seed, loss, checked
        self.config = config or OverlayConfig()
        self.neighbour_config = NeighbourConfig()
        self.random = Random(seed)
        self.now, self.steps = 0.0, 0
        self.queue: list[tuple[float, int, TestPeer, Callable[[Any], None], Any]] = []
        self.peers: dict[bytes, TestPeer] = {}
        self.starts: dict[bytes, int] = {}
        self.records: list[tuple[float, bytes, Record]] = []
        self.marks: dict[str, int] = {}
        self.arrived: list[str] = []  # every delivered note, once for each delivery
        self.misplaced: list[str] = []  # notes delivered although an active peer was closer
        self.side: Callable[[bytes], Any] = lambda node_id: 0

    def delay(self, a: TestPeer, b: TestPeer) -> float:
        return 0.01 + 0.05 * abs(a.place - b.place)

    def cut(self, a: TestPeer, b: TestPeer) -> bool:
        return bool(self.side(a.me) != self.side(b.me))

    def after(self, delay_s: float, peer: TestPeer, action: Callable[[Any], None], argument: Any) -> None:
        self.steps += 1
        heappush(self.queue, (self.now + delay_s, self.steps, peer, action, argument))

    def send(self, sender: TestPeer, to: Contact, wire: bytes) -> None:
        there = self.peers.get(to.node_id)
        if there is None or there.contact != to or self.cut(sender, there) or self.random.random() < self.loss:
            return
        delay_s = self.delay(sender, there) * self.random.uniform(1.0, 1.2)  # so that some messages overtake others
        self.after(delay_s, there, there.message, (sender.contact, wire))

    def add(self, node_id: bytes | None = None, place: Any = None) -> TestPeer:
        node_id = node_id or self.random.randbytes(ID_BYTES)
        starts = self.starts[node_id] = self.starts.get(node_id, 0) + 1
        peer = self.peers[node_id] = TestPeer(self, node_id, self.random.random() if place is None else place, starts)
        return peer

    def join(self, node_id: bytes | None = None, contacts: Any = None, place: Any = None) -> TestPeer:
        """A new peer that joins through the given contacts, or through up to three active ones."""
        active = [peer.contact for peer in self.peers.values() if peer.alive and peer.overlay.active]
        peer = self.add(node_id, place)
        if contacts is None:
            contacts = self.random.sample(active, min(3, len(active)))
        peer.overlay.join(contacts)
        return peer

    def crash(self, peer: TestPeer) -> None:
        peer.alive = False
        if self.peers[peer.me] is peer:
            del self.peers[peer.me]

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.queue and self.queue[0][0] <= until:
            at, order, peer, action, argument = heappop(self.queue)
            if not peer.alive:
                continue
            if peer.paused_until > at:
                heappush(self.queue, (peer.paused_until, order, peer, action, argument))
                continue
            self.now = at
            action(argument)
            if self.checked:
                peer.neighbours.check()
                peer.overlay.check()
        self.now = until

    # The expected state
    def alive(self) -> list[TestPeer]:
        return sorted((peer for peer in self.peers.values() if peer.alive), key=lambda peer: peer.me)

    def members(self) -> list[TestPeer]:
        return [peer for peer in self.alive() if not peer.overlay.outside]

    def closest(self, key: bytes) -> TestPeer:
        best = self.members()[0]
        for peer in self.members():
            if closer(peer.me, best.me, key):
                best = peer
        return best

    def wrong(self) -> list[str]:
        """Peers that are not active, or have a wrong leaf set."""
        ring = self.members()
        half, faults = self.config.leaf_set_size // 2, []
        for at, peer in enumerate(ring):
            others = [ring[(at + step) % len(ring)].me for step in range(1, len(ring))]
            right, left = others[:half], others[::-1][:half]
            leaf_set = peer.overlay.leaf_set
            if not peer.overlay.active:
                faults.append(f"{peer.me.hex()[:8]} is not active")
            for side, there, truth in (("right", leaf_set.right, right), ("left", leaf_set.left, left)):
                if [contact.node_id for contact in there] != truth:
                    names = [[id_.hex()[:8] for id_ in ids] for ids in ([c.node_id for c in there], truth)]
                    faults.append(f"{peer.me.hex()[:8]} {side}: {names[0]}, in truth {names[1]}")
        return faults

    def route(self, peer: TestPeer, key: bytes, text: str) -> None:
        peer.overlay.route(Note(text), key)

    def restart(self, peer: TestPeer, contacts: Any = None, down_s: float = 0.0) -> TestPeer:
        """Crash a peer and restart it, with the contacts it remembered unless others are given."""
        contacts = peer.overlay.remembered() if contacts is None else contacts
        self.crash(peer)
        self.run(down_s)
        return self.join(peer.me, contacts, peer.place)

    def routed(self, kind: str = "Note") -> list[trace.Routed]:
        """The delivered messages of a kind, in order."""
        return [record for _, _, record in self.records if isinstance(record, trace.Routed) and record.kind == kind]

    def receivers(self, text: str) -> list[TestPeer]:
        """The peers that received a note, once for each delivery."""
        return [peer for peer in self.alive() for got, _ in peer.delivered if got == text]

    def at_place(self, place: float) -> TestPeer:
        return next(peer for peer in self.alive() if peer.place == place)


def ring_of(count: int, seed: int = 1, config: OverlayConfig | None = None) -> World:
    """A world with a ring of `count` peers that has settled."""
    world = World(seed, config)
    for _ in range(count):
        world.join()
        world.run(0.5)
    world.run(10)
    assert world.wrong() == []
    return world


def spread(count: int, bits: int = 128) -> list[bytes]:
    """Ids evenly spaced on the ring."""
    return [((index << bits) // count << (128 - bits)).to_bytes(ID_BYTES, "big") for index in range(count)]
