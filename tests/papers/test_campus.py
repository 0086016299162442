"""QuickSilver, *Constructing the Dissemination Structure*: the campus example, figures 15 to 19.

X is the campus, P, Q and R are departments, A to E laptops. The topic t is rooted at X. A publishes, all others
subscribe.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Envelope
from quillcast.core.messages import Contact, by_distance
from quillcast.protocol.scopes.channels import KEY_BYTES, ChannelOrder, Party
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.labels import Path
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.records import Record, decode
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.sim.host import Machine, SimHost
from tests.protocol.scopes.network import Network, Tree, beginning, came, peer, scope, topic
from tests.protocol.test_scoping import LEASE_S
from tests.protocol.test_scoping import Network as Village
from tests.protocol.topics.village import Reader
from tests.transcripts.transcript import compare

T = topic("t")
DEPARTMENTS = {"P": "BA", "Q": "CD", "R": "E"}


class Shown(ABC):
    """Figure 19 as lines: what happens to a bundle from a laptop on."""

    @abstractmethod
    def member(self, owner: str, label: int) -> str:
        """The letter of the member with this label."""

    @abstractmethod
    def copies(self, at: str, record: bytes) -> Iterator[tuple[ChannelOrder, str, bytes]]:
        """The copies of a bundle that leave a laptop, to which one, and their records."""

    def name(self, at: str, path: Path, depth: int) -> str:
        """A path in letters: labels mean something in the scope that gave them only."""
        names = list[str]()
        for label in path:
            owner = "X" if depth + len(names) == 1 else names[-1] if names else self.department(at)
            names.append(self.member(owner, label))
        return ":".join(names)

    def department(self, laptop: str) -> str:
        return next(department for department, laptops in DEPARTMENTS.items() if laptop in laptops)

    def shown(self, at: str, record: Record) -> str:
        levels = enumerate(record.pairs, record.top)
        return ", ".join("-".join(self.name(at, (label,), depth) for label in pair[:2]) for depth, pair in levels)

    def travel(self, at: str, record: bytes) -> list[str]:
        lines = [f"{at}  t,k,({self.shown(at, decode(record))})"]
        for channel, to, changed in self.copies(at, record):
            (_, depth, origin, *_), *_ = channel.constraints
            ends = f"{self.name(at, channel.label.source, depth)}-{self.name(to, channel.label.target, depth)}"
            lines.append(f"   channel {ends}, t:{self.name(at, (origin,), depth)}")
            lines += self.travel(to, changed)
        return lines


class Campus(Network, Shown):
    """Figure 15, as managers and controllers; the laptops register in the order in which they are named."""

    def __init__(self) -> None:
        super().__init__()
        chain = {"policy": lambda topic: Tree(1)}
        self.add_scope("X", **chain)
        for department, laptops in DEPARTMENTS.items():
            self.add_scope(department, ["X"], **chain)
            self.settle()
            for laptop in laptops:
                self.add_peer(laptop, [department])
                self.role(laptop, T, "X", publishes=laptop == "A", subscribes=laptop != "A")
                self.settle()

    def member(self, owner: str, label: int) -> str:
        return self.managers[scope(owner).id].state.members[label].party.name

    def copies(self, at: str, record: bytes) -> Iterator[tuple[ChannelOrder, str, bytes]]:
        for channel, changed in came(self.peers[peer(at).id], T, record):
            yield channel, channel.spec.peer.node_id[:1].decode(), changed

    def publish_at_a(self) -> list[str]:
        return self.travel("A", beginning(self.peers[peer("A").id], T))


class Peers(Shown):
    """The same on whole peers: t is rooted at X, at the laptop B, and A numbers what it publishes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.village = Village(1, None)
        self.managers = {name: self.manage(name, ["X"] if name != "X" else []) for name in ("X", *DEPARTMENTS)}
        self.laptops = dict[str, Machine]()
        for department, laptops in DEPARTMENTS.items():
            for laptop in laptops:
                self.laptops[laptop] = self.add(department)
        self.topic = self.rooted_at("B")
        settings, self.readers = Settings(admission="source"), {laptop: Reader() for laptop in "BCDE"}
        self.village.act(self.laptops["A"].number, lambda it: it.create(self.topic, settings, lambda answer: None))
        self.village.run(5)
        self.publisher = self.village.publisher(self.laptops["A"].number, self.topic)
        for laptop, reader in self.readers.items():
            self.village.subscribe(self.laptops[laptop].number, self.topic, reader)
            self.village.run(5)
        self.village.run(20)
        self.carried, carry = list[tuple[bytes, bytes, Envelope]](), SimHost.carry

        def noted(host: SimHost, to: Contact, bundle: Bundle) -> None:
            self.carried.append((host.me, to.node_id, bundle.envelope))
            carry(host, to, bundle)

        monkeypatch.setattr(SimHost, "carry", noted)

    def party(self, name: str) -> Party:
        return Party(scope_id(name.encode()), self.village.world.machines[1].contact, managed=True, name=name)

    def manage(self, name: str, owners: list[str]) -> ScopeManager:
        roots = (("#", name == "X"),)
        config = ScopeConfig(lambda topic: Chain(), LEASE_S, roots=roots)
        manager = ScopeManager.new(self.party(name), map(self.party, owners), config)
        manager.state.secret = bytes(KEY_BYTES)
        self.village.act(1, lambda it: it.scoping.manage(manager, lambda state: True))
        return manager

    def add(self, department: str) -> Machine:
        machine = self.village.world.add()
        self.village.world.start(machine)
        self.village.act(machine.number, lambda it: it.scoping.join([self.party(department)], LEASE_S))
        self.village.run(5)
        return machine

    def rooted_at(self, laptop: str) -> str:
        """A topic of which this laptop is the rendezvous point."""
        contacts = [machine.contact for machine in self.laptops.values()]
        names = (f"t{number}" for number in range(200))
        wanted = self.laptops[laptop].contact
        return next(name for name in names if by_distance(contacts, described(name).topic)[0] == wanted)

    def letter(self, node: bytes) -> str:
        return next(letter for letter, machine in self.laptops.items() if machine.node_id == node)

    def member(self, owner: str, label: int) -> str:
        party = self.managers[owner].state.members[label].party
        return party.name or self.letter(party.id)

    def controller(self, laptop: str) -> LocalController:
        controller = self.village.peers[self.laptops[laptop].number].scoping.controller
        assert controller is not None
        return controller

    def copies(self, at: str, record: bytes) -> Iterator[tuple[ChannelOrder, str, bytes]]:
        """What left a laptop, over the channel to there that makes that of the record."""
        here, topic = self.laptops[at].node_id, described(self.topic).topic
        for to, changed in [(to, envelope.record) for node, to, envelope in self.carried if node == here]:
            orders = [each for each in self.controller(at).channels if each.spec.peer.node_id == to]
            made = {order: order.route(topic, decode(record)) for order in orders}
            yield next(order for order in made if made[order] == decode(changed)), self.letter(to), changed

    def publish_at_a(self) -> list[str]:
        self.carried.clear()
        self.village.publish(self.laptops["A"].number, self.publisher, b"k")
        self.village.run(5)
        return self.travel("A", beginning(self.controller("A"), described(self.topic).topic))


def test_figure_19_the_records_of_a_bundle_before_and_after_d_leaves() -> None:
    campus = Campus()
    lines = ["# A publishes", *campus.publish_at_a(), ""]
    campus.leave("D")
    campus.settle()
    lines += ["# D leaves, and A publishes again", *campus.publish_at_a()]
    compare("figure-19.txt", "\n".join(lines) + "\n")


def test_figure_19_at_whole_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines, of the bundles that travel: nothing else does."""
    campus = Peers(monkeypatch)
    lines = ["# A publishes", *campus.publish_at_a(), ""]
    assert len(campus.carried) == 4
    campus.village.act(campus.laptops["D"].number, lambda it: it.leave())
    campus.village.run(20)
    lines += ["# D leaves, and A publishes again", *campus.publish_at_a()]
    assert len(campus.carried) == 3
    compare("figure-19.txt", "\n".join(lines) + "\n")
    assert [len(campus.readers[laptop].payloads) for laptop in "BCDE"] == [2, 2, 1, 2]


def test_figure_18_what_each_laptop_keeps() -> None:
    campus = Campus()
    assert {controller.me.name: len(controller.channels) for controller in campus.peers.values()} == {
        "A": 1,
        "B": 1,
        "C": 1,
        "D": 1,
        "E": 0,
    }
    assert campus.publish("A", T) == {"B": 1, "C": 1, "D": 1, "E": 1}
