"""A small simulated network of whole peers, with applications that write down what they are told."""

from random import Random
from typing import Any

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.loss import Loss
from quillcast.core.trace import Dropped
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.wire import WireCodec
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.journal import Journal
from quillcast.sim.network import Network
from quillcast.sim.topology import Constant, Topology
from quillcast.sim.world import World


class Reader:
    """A subscriber: what came, in order, and what it was told."""

    def __init__(self, room_bytes: int = 1 << 20) -> None:
        self.payloads: list[bytes] = []
        self.start: Position | None = None
        self.gone: list[tuple[Term, int, int, str]] = []
        self.losses: list[Loss] = []
        self.error: QuillcastError | None = None
        self.room_bytes = room_bytes

    def started(self, position: Position) -> None:
        self.start = position

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        self.payloads += block.payloads()[skip:stop]

    def lost(self, loss: Loss) -> None:
        self.losses.append(loss)
        self.gone.append((loss.term, loss.first, loss.last, loss.why))

    def failed(self, error: QuillcastError) -> None:
        self.error = error

    def room(self) -> int:
        return self.room_bytes


class Writer:
    """A publisher's listener."""

    def __init__(self) -> None:
        self.error: QuillcastError | None = None
        self.steps = 0

    def progressed(self) -> None:
        self.steps += 1

    def dropped(self, block: Block) -> None: ...

    def stops_keeping(self) -> None: ...

    def was_best_effort(self, first: int, last: int) -> None: ...

    def failed(self, error: QuillcastError) -> None:
        self.error = error


class Village:
    """Peers on one simulated network, and what one does with them."""

    def __init__(
        self, count: int, *, seed: int = 1, config: Config | None = None, topology: Topology | None = None, **world: Any
    ) -> None:
        self.config = config or Config()
        network = Network(topology or Constant(0.01), Random(seed))
        self.world = World(seed, network, self._start, WireCodec(), journal=Journal(), **world)
        self.peers: dict[int, Peer] = {}
        for _ in range(count):
            self.add()

    def _start(self, host: SimHost) -> Peer:
        peer = Peer(host, self.config)
        self.peers[host.machine.number] = peer
        contacts = [m.contact for m in self.world.machines if m.host is not None and m is not host.machine][:1]
        self.world.at(self.world.now, lambda _: host.act(lambda: peer.join(contacts)), None)
        return peer

    def add(self, node_id: bytes | None = None) -> Machine:
        """One more peer, and time for it to join."""
        machine = self.world.add(node_id)  # type: ignore[arg-type]
        self.world.start(machine)
        self.run(2)
        return machine

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.world.run(self.world.now + seconds)

    def act(self, number: int, call: Any) -> Any:
        """Make a call at a peer, as an application would, and return its answer."""
        host = self.world.machines[number].host
        answer: list[Any] = []
        assert host is not None
        host.act(lambda: answer.append(call(self.peers[number])))
        return answer[0]

    def subscribe(self, number: int, name: str, reader: Reader, **options: Any) -> Subscription:
        return self.act(number, lambda peer: peer.subscribe(name, reader, **options))

    def publisher(self, number: int, name: str) -> Publisher:
        return self.act(number, lambda peer: peer.publisher(name, Writer()))

    def publish(self, number: int, publisher: Publisher, *payloads: bytes) -> None:
        self.act(number, lambda peer: publisher.offer(list(payloads)))

    def tree(self, number: int, name: str) -> Tree | None:
        peer = self.peers[number]
        return peer.topics.trees.get(peer.topics.known.describe(name).topic)

    def unaware(self, number: int, name: str) -> bool:
        """Did the peer never hear of the topic?"""
        peer = self.peers[number]
        return peer.topics.known.describe(name).topic not in peer.topics.descriptors

    def root(self, name: str) -> int:
        """The one live peer that is the topic's root."""
        trees = {number: self.tree(number, name) for number in self.alive()}
        roots = [number for number, tree in trees.items() if tree is not None and tree.root is not None]
        assert len(roots) == 1, f"roots of {name}: {roots}"
        return roots[0]

    def alive(self) -> list[int]:
        return [m.number for m in self.world.machines if m.host is not None]

    def kill(self, number: int, *, silently: bool = False) -> None:
        self.world.stop(self.world.machines[number], silently=silently)

    def tell_of_death(self, dead: int) -> None:
        """All others are told by their hosts that a peer has ended."""
        for number in self.alive():
            self.act(number, lambda peer: peer.died(self.world.machines[dead].contact))

    def dropped(self, why: str) -> int:
        """How many bundles were dropped for this reason."""
        return sum(isinstance(each, Dropped) and each.why == why for *_, each in self.world.journal.records)

    @property
    def marks(self) -> dict[str, int]:
        return self.world.journal.marks
