"""Scopes as members of a scope, on whole peers: a campus with sites, each of which has its own policy."""

from collections.abc import Sequence
from functools import partial

import pytest

from quillcast.protocol.scopes.channels import Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import ScopeConfig
from tests.protocol.test_scoping import LEASE_S, Network
from tests.protocol.topics.village import Reader

TOPIC = "news/today"


class Campus:
    """Machine 1 runs the managers of all scopes: the campus, its sites, and a laboratory in the first site."""

    def __init__(
        self, campus: ScopePolicy, sites: ScopePolicy, laboratory: ScopePolicy | None = None, peers: int = 0,
        **config: int | bool,
    ) -> None:  # fmt: skip
        self.village, self.saved = Network(2), dict[str, bytes]()
        self.manager = self.village.world.machines[1]
        self.configs = {"campus": self._config(campus, config), "north": self._config(sites, config)}
        self.configs["south"] = self.configs["north"]
        self.owners = {"campus": (), "north": ("campus",), "south": ("campus",)}
        if laboratory is not None:
            self.configs["laboratory"], self.owners["laboratory"] = self._config(laboratory, config), ("north",)
        for name in self.configs:
            self.manage(name)
        self.members = {name: [self.add(name) for _ in range(4)] for name in self.configs if name != "campus"}
        self.members["campus"] = [self.add("campus") for _ in range(peers)]
        self.village.run(15)

    def _config(self, policy: ScopePolicy, config: dict[str, int | bool]) -> ScopeConfig:
        return ScopeConfig(lambda topic: policy, LEASE_S, **config)

    def party(self, name: str) -> Party:
        return Party(scope_id(name.encode()), self.manager.contact, managed=True, name=name)

    def manage(self, name: str) -> None:
        config, saved = self.configs[name], self.saved.get(name)
        owners = map(self.party, self.owners[name])
        manager = ScopeManager.restored(saved, config) if saved else ScopeManager.new(self.party(name), owners, config)
        self.village.act(1, lambda peer: peer.scoping.manage(manager, partial(self.save, name)))

    def save(self, name: str, state: bytes) -> bool:
        self.saved[name] = state
        return True

    def add(self, scope: str) -> int:
        machine = self.village.world.add()
        self.village.world.start(machine)
        self.village.act(machine.number, lambda peer: peer.scoping.join([self.party(scope)], LEASE_S))
        return machine.number

    def everybody(self) -> list[int]:
        return [number for members in self.members.values() for number in members]

    def subscribe(self, numbers: Sequence[int]) -> dict[int, Reader]:
        readers = {number: Reader() for number in numbers}
        for number, reader in readers.items():
            self.village.subscribe(number, TOPIC, reader)
        self.village.run(30)
        return readers

    def publish(self, count: int) -> list[bytes]:
        publisher, sent = self.village.publisher(0, TOPIC), [b"%d" % number for number in range(count)]
        for payload in sent:
            self.village.publish(0, publisher, payload)
            self.village.run(0.02)
        self.village.run(0.3)
        return sent

    def parents(self) -> dict[int, int | None]:
        numbers = {machine.node_id: machine.number for machine in self.village.world.machines}
        here = [number for number in self.everybody() if number in self.village.alive()]
        trees = {number: self.village.tree(number, TOPIC) for number in here}
        return {n: numbers[t.parent.node_id] for n, t in trees.items() if t is not None and t.parent is not None}

    def entered(self, scope: str) -> list[int]:
        """The peers in the span of a scope whose parent is outside of it."""
        span = {*self.members[scope], *(self.members.get("laboratory", ()) if scope == "north" else ())}
        return [number for number, parent in self.parents().items() if number in span and parent not in span]

    def crossings(self) -> list[int]:
        """The edges of the topic's tree that lead into each scope below the campus."""
        return [len(self.entered(scope)) for scope in self.configs if scope != "campus"]


POLICIES = [
    (Chain(), Star()), (KAry(), Ring()), (Ring(), Star()), (Mesh(), Stripes(stripes=3)),
    (Star(), Mesh()),
]  # fmt: skip


@pytest.mark.parametrize(("campus", "sites"), POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("peers", [0, 3])
def test_a_bundle_goes_through_scopes_in_scopes_as_each_of_them_wants(
    campus: ScopePolicy, sites: ScopePolicy, peers: int
) -> None:
    nested = Campus(campus, sites, Chain(), peers)
    readers = nested.subscribe(nested.everybody())
    assert nested.crossings() == [1, 1, 1]
    sent = nested.publish(30)
    assert all(reader.payloads == sent for reader in readers.values())
    marks = nested.village.world.journal.marks
    assert "asked_for_range" not in marks
    assert "misrouted" not in marks


@pytest.mark.parametrize(
    "config",
    [{"entry_points": 2}, {"replicas": 2}, {"entry_points": 2, "replicas": 2, "split": True}],
    ids="+".join,
)
def test_several_entry_points_and_delegates_share_the_bundles(config: dict[str, int | bool]) -> None:
    nested = Campus(Chain(), Ring(), Star(), 3, **config)
    readers = nested.subscribe(nested.everybody())
    assert nested.crossings() == [1, 1, 1]
    sent = nested.publish(30)
    assert all(reader.payloads == sent for reader in readers.values())
    assert "asked_for_range" not in nested.village.world.journal.marks


@pytest.mark.parametrize("silently", [False, True])
def test_data_goes_on_when_an_entry_point_and_all_managers_die(silently: bool) -> None:
    nested = Campus(Star(), Ring(), Chain(), 3)
    readers = nested.subscribe(nested.everybody())
    (entry,) = nested.entered("north")
    nested.village.kill(1)
    nested.village.kill(entry, silently=silently)
    del readers[entry]
    nested.village.run(6)
    sent = nested.publish(30)
    nested.village.run(5)
    assert {n: len(reader.payloads) for n, reader in readers.items()} == dict.fromkeys(readers, len(sent))
    nested.village.world.start(nested.manager)
    for name in nested.configs:
        nested.manage(name)
    nested.village.run(40)
    assert nested.crossings() == [1, 1, 1]
