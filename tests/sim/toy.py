"""A peer small enough to read: it notes what is handed in, and echoes what it is asked to."""

from typing import Any

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.sim.host import Machine
from quillcast.sim.network import UNDISTURBED, Network, Quality
from quillcast.sim.topology import Constant
from quillcast.sim.world import World, derived

DELAY_S = 0.01


class Say(Message, frozen=True, tag=1):
    text: str


class Ask(Message, frozen=True, tag=2):
    text: str


class ToyCodec:
    def __init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(Say | Ask)

    def encode(self, message: Message) -> bytes:
        return msgspec.msgpack.encode(message)

    def decode(self, data: bytes) -> Any:
        return self._decoder.decode(data)


class Toy:
    """Every input becomes an entry of `seen`: what it was and when."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.seen: list[tuple[Any, ...]] = []
        self.bundles: list[Bundle] = []

    def _note(self, *what: Any) -> None:
        self.seen.append((round(self.host.world.now, 6), *what))  # type: ignore[attr-defined]

    def message(self, sender: Contact, message: Any) -> None:
        self._note("message", sender.address, message.text)
        if isinstance(message, Ask):
            self.host.send(sender, Say(message.text))

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        self._note("bundle", sender.address, bundle.size)
        self.bundles.append(bundle)

    def timer(self, timer: Any) -> None:
        self._note("timer", timer)

    def link_up(self, contact: Contact) -> None:
        self._note("link_up", contact.address)

    def link_lost(self, contact: Contact) -> None:
        self._note("link_lost", contact.address)

    def died(self, contact: Contact) -> None:
        self._note("died", contact.address)

    def room(self, contact: Contact) -> None:
        self._note("room", contact.address)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        self._note("measured", contact.address, proximity)

    def disk_done(self, token: Any, result: Any) -> None:
        self._note("disk", token, result)

    def got(self, kind: str) -> list[Any]:
        """The inputs of one kind, without times and senders."""
        return [entry[-1] for entry in self.seen if entry[1] == kind]

    def when(self, kind: str) -> list[float]:
        return [entry[0] for entry in self.seen if entry[1] == kind]


def toys(
    count: int, *, quality: Quality = UNDISTURBED, datagrams: bool = False, seed: int = 1, **options: Any
) -> World:
    network = Network(Constant(DELAY_S), derived(seed, "network"), quality=quality, datagrams=datagrams)
    world = World(seed, network, Toy, ToyCodec(), **options)
    for _ in range(count):
        world.start(world.add())
    return world


def peer(world: World, number: int) -> Toy:
    host = world.machines[number].host
    assert host is not None
    return host.peer  # type: ignore[return-value]


def say(world: World, sender: int, receiver: int, *texts: str, ask: bool = False) -> None:
    for text in texts:
        peer(world, sender).host.send(world.machines[receiver].contact, Ask(text) if ask else Say(text))


def machine(world: World, number: int) -> Machine:
    return world.machines[number]
