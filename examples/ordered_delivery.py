"""Ordered, reliable delivery on top of a best-effort topic, with nothing but the paper's upcalls.

Scribe, section 3.2, *Providing additional guarantees*: the root assigns a sequence number to each event; root and
forwarders buffer recent events; the fault handler adds the last number delivered to the message that repairs the tree,
and the subscribe handler sends the new child the events that it lacks. (quillcast's topics are reliable by default and
do not need this. The example shows what the upcalls are for.)

Run it: in a simulated network, a forwarder dies while events flow, first with the handlers, then without.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Kind
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Settings
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.wire import WireCodec
from quillcast.sim.host import SimHost
from quillcast.sim.network import Network
from quillcast.sim.topology import Constant
from quillcast.sim.world import World

TOPIC = "market/prices"


class OrderedDelivery:
    """One peer's handlers: numbers travel in the envelope's tags, first number of the bundle, 8 bytes."""

    def __init__(self, deliver: Callable[[bytes], None], buffered: int = 1000) -> None:
        self.deliver = deliver
        self.next = 0  # the number to deliver next
        self.assigned = 0  # the number the root assigns next
        self.early: dict[int, Bundle] = {}
        self.buffer: deque[Bundle] = deque(maxlen=buffered)  # must outlast the longest repair

    def forward_handler(self, bundle: Bundle, *, is_root: bool) -> Bundle | None:
        if is_root:
            tags = self.assigned.to_bytes(8, "big")
            bundle = bundle.under(msgspec.structs.replace(bundle.envelope, tags=tags))
            self.assigned += bundle.count
        number = int.from_bytes(bundle.envelope.tags, "big")
        if number < self.next or number in self.early:
            return None  # delivered before
        self.early[number] = bundle
        self.buffer.append(bundle)
        while self.next in self.early:
            ready = self.early.pop(self.next)
            self.next += ready.count
            for block in ready.blocks:
                for payload in block.payloads():
                    self.deliver(payload)
        return bundle

    def fault_handler(self, join: Join) -> Join:
        return msgspec.structs.replace(join, note=self.next.to_bytes(8, "big"))

    def subscribe_handler(self, join: Join) -> Iterable[Bundle]:
        if not join.note:
            return []
        lacking = int.from_bytes(join.note, "big")
        recent = [bundle for bundle in self.buffer if int.from_bytes(bundle.envelope.tags, "big") >= lacking]
        return [bundle.under(msgspec.structs.replace(bundle.envelope, kind=Kind.REPAIR)) for bundle in recent]


class Silent:
    """An application that only listens through its handlers, or counts plain deliveries."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def started(self, position: object) -> None: ...
    def deliver(self, block: object, skip: int, stop: int, position: object, recovered: bool = False) -> None:
        self.payloads += block.payloads()[skip:stop]  # type: ignore[attr-defined]

    def lost(self, loss: object) -> None: ...
    def failed(self, error: Exception) -> None: ...
    def progressed(self) -> None: ...
    def dropped(self, block: object) -> None: ...
    def room(self) -> int:
        return 1 << 20


def run(*, handlers: bool, peers: int = 16, events: int = 200, seed: int = 3) -> tuple[int, dict[int, list[bytes]]]:
    """Publish while an inner forwarder is killed. Returns the number of events, and the survivors' deliveries."""
    config = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))  # deep trees in a small network
    running: dict[int, Peer] = {}

    def start(host: SimHost) -> Peer:
        running[host.machine.number] = Peer(host, config)
        return running[host.machine.number]

    world = World(seed, Network(Constant(0.01), Random(seed)), start, WireCodec())
    for number in range(peers):
        host = world.start(world.add())
        known = [world.machines[0].contact] if number else []
        host.act(lambda peer=host.peer, known=known: peer.join(known))  # type: ignore[misc]
        world.run(world.now + 2)

    settings = Settings(delivery="best_effort")
    act = {machine.number: machine.host.act for machine in world.machines if machine.host is not None}
    act[0](lambda: running[0].create(TOPIC, settings, lambda answer: None))
    world.run(world.now + 2)
    got: dict[int, list[bytes]] = {number: [] for number in range(1, peers)}
    for number, payloads in got.items():
        plain = Silent()
        if handlers:
            running[number].handle(TOPIC, OrderedDelivery(payloads.append))
        else:
            plain.payloads = payloads
        act[number](lambda n=number, app=plain: running[n].subscribe(TOPIC, app))  # type: ignore[misc]
    running[0].handle(TOPIC, OrderedDelivery(lambda payload: None)) if handlers else None
    world.run(world.now + 3)
    publisher = running[0].publisher(TOPIC, Silent())
    world.run(world.now + 1)
    for number in range(events):
        act[0](lambda n=number: publisher.offer([b"%d" % n]))  # type: ignore[misc]
        world.run(world.now + 0.05)
        if number == events // 3:
            del got[kill_a_forwarder(world, running)]
    world.run(world.now + 20)
    return events, got


def kill_a_forwarder(world: World, running: dict[int, Peer]) -> int:
    """Kill the peer with the most children of those that have a parent. Returns its number."""
    topic = running[0].topics.known.describe(TOPIC).topic
    trees = {number: peer.topics.trees[topic] for number, peer in running.items() if number}
    inner = {number: len(tree.leases.children) for number, tree in trees.items() if tree.parent is not None}
    victim = max(inner, key=lambda number: (inner[number], number))
    world.stop(world.machines[victim], silently=True)
    return victim


def main() -> None:
    """Show both runs side by side."""
    for handlers in (False, True):
        events, got = run(handlers=handlers)
        whole = sum(payloads == [b"%d" % n for n in range(events)] for payloads in got.values())
        with_or_without = "with the handlers   " if handlers else "without the handlers"
        print(f"{with_or_without}: {whole} of {len(got)} subscribers got all {events} events in order")


if __name__ == "__main__":
    main()
