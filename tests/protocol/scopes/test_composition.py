"""Random hierarchies of unequal depth: bundles travel by their records alone, and a naive oracle says who gets them."""

import random

import pytest

from quillcast.protocol.scopes.hierarchy import Hierarchy, NamedScope, NoWayToRoot
from tests.protocol.scopes.network import LEASE_S, Network, Tree, peer, scope, topic

SEEDS = 40


class Composition:
    """A network, and beside it who takes part in what."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.network = Network(seed)
        self.hierarchy = Hierarchy()
        self.roles: dict[tuple[str, bytes], tuple[bool, bool]] = {}
        self.scopes = [f"s{at}" for at in range(self.random.randint(1, 7))]
        for at, name in enumerate(self.scopes):
            self.hierarchy.add(NamedScope(name, name.encode()))
            above = self.random.sample(self.scopes[:at], min(at, self.random.choice((1, 1, 2))))
            for owner in above:
                self.hierarchy.join(scope(name).id, scope(owner).id)
            self.network.add_scope(name, above, **self._config())
        self.names = [f"p{at}" for at in range(self.random.randint(2, 14))]
        for name in self.names:
            self.join(name)
        self.topics = {topic(f"t{at}"): self.random.choice(self.scopes) for at in range(3)}
        for topic_, root in self.topics.items():
            self.hierarchy.set_root(topic_, scope(root).id)

    def _config(self) -> dict[str, object]:
        fan_out = self.random.choice((1, 2, 8))
        return {
            "policy": lambda topic: Tree(fan_out),
            "entry_points": self.random.choice((1, 1, 2)),
            "replicas": self.random.choice((1, 1, 2, 3)),
            "split": self.random.random() < 0.3,
        }

    def join(self, name: str) -> None:
        owners = self.random.sample(self.scopes, min(len(self.scopes), self.random.choice((1, 1, 2))))
        for owner in owners:
            self.hierarchy.join(peer(name).id, scope(owner).id)
        self.network.add_peer(name, owners)

    def change_roles(self) -> None:
        for name in self.names:
            for topic_, root in self.topics.items():
                if self.random.random() < 0.6 and self.reaches(name, topic_):
                    publishes, subscribes = self.random.random() < 0.4, self.random.random() < 0.6
                    self.roles[name, topic_] = publishes, subscribes
                    self.network.role(name, topic_, root, publishes=publishes, subscribes=subscribes)

    def reaches(self, name: str, topic_: bytes) -> bool:
        try:
            return bool([*self.hierarchy.path(peer(name).id, topic_)])
        except NoWayToRoot:
            return False

    def lose(self, *, crash: bool) -> None:
        name = self.names.pop(self.random.randrange(len(self.names)))
        self.roles = {key: role for key, role in self.roles.items() if key[0] != name}
        (self.network.crash if crash else self.network.leave)(name)

    def check(self) -> int:
        """Each publisher's bundles reach each other subscriber once, and nobody who has no part in the topic."""
        self.network.check()
        published = 0
        for (name, topic_), (publishes, _) in self.roles.items():
            for serial in range(6) if publishes else ():
                got = self.network.publish(name, topic_, serial)
                wanted = {each for (each, of), role in self.roles.items() if of == topic_ and role[1]} - {name}
                assert {each: got[each] for each in wanted} == dict.fromkeys(wanted, 1), (name, topic_, serial)
                outside = {each for each in got if not any(self.roles.get((each, topic_), (False, False)))}
                assert not outside, (name, topic_, outside)
                assert set(got.values()) <= {1}, got
                published += 1
        return published


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_bundle_reaches_each_subscriber_once_through_any_composition(seed: int) -> None:
    composition = Composition(seed)
    composition.change_roles()
    composition.network.settle()
    composition.check()
    for crash in (False, True):
        if len(composition.names) > 1:
            composition.lose(crash=crash)
        composition.network.passed(3 * LEASE_S)
        composition.check()
    composition.change_roles()
    composition.network.settle()
    composition.check()
