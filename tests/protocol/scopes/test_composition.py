"""Random hierarchies of unequal depth: bundles travel by their records alone, and a naive oracle says who gets them."""

import random
from collections.abc import Mapping, Sequence

import pytest

from quillcast.protocol.scopes.hierarchy import NoWayToRoot
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import Circle
from quillcast.protocol.scopes.policies import BUILT_IN, IpMulticast
from quillcast.protocol.scopes.policy import ScopePolicy
from tests.params import rest_long
from tests.protocol.scopes.hierarchy import Hierarchy, NamedScope
from tests.protocol.scopes.network import LEASE_S, Network, Tree, peer, scope, topic

SEEDS = 30
CHANGED_S = 4 * LEASE_S  # channels have changed by then: twice, if members came and went during the first change
TREES = (
    *(Tree(1), Tree(2), Tree(8), IpMulticast()),  # these datagrams are not lost
    *(policy() for policy in BUILT_IN.values() if policy.delivery == "tree"),
)
REDUNDANT = tuple(policy() for policy in BUILT_IN.values() if policy.delivery == "redundant")


class Composition:
    """A network, and beside it who takes part in what."""

    def __init__(self, seed: int, policies: Sequence[ScopePolicy] = TREES) -> None:
        self.random = random.Random(seed)
        self.policies, self.protocols = policies, random.Random(f"recovery {seed}")
        self.network = Network(seed)
        self.hierarchy = Hierarchy()
        self.roles: dict[tuple[str, bytes], tuple[bool, bool]] = {}
        self.scopes = [f"s{at}" for at in range(self.random.randint(1, 7))]
        for at, name in enumerate(self.scopes):
            self.hierarchy.add(NamedScope(name))
            above = self.random.sample(self.scopes[:at], min(at, self.random.choice((1, 1, 2))))
            for owner in above:
                self.hierarchy.join(scope(name).id, scope(owner).id)
            self.network.add_scope(name, above, **self._config())
        self.topics = {topic(f"t{at}"): self.random.choice(self.scopes) for at in range(3)}
        for topic_, root in self.topics.items():
            self.hierarchy.set_root(topic_, scope(root).id)
        self.names = [f"p{at}" for at in range(self.random.randint(2, 14))]
        for name in self.names:
            self.join(name)

    def _config(self) -> dict[str, object]:
        policy, recovery = self.random.choice(self.policies), self.protocols.choice(("tree", "gossip", "ring", "srm"))
        return {
            "recovery": lambda topic: recovery,
            "policy": lambda topic: policy,
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
        """Each publisher's bundles reach each other subscriber, also while channels change.

        When they have changed, they do so once over trees, and reach nobody who takes no part.
        """
        self._check_deliveries(changing=True)
        self.network.passed(CHANGED_S)
        for controller in self.network.peers.values():
            controller.misrouted = 0  # who turned to another of its scopes drops what comes under its former label
        published = self._check_deliveries(changing=False)
        self.network.check()
        self.check_domains()
        return published

    def _check_deliveries(self, *, changing: bool) -> int:
        published = 0
        for topic_ in self.topics:
            roles = {name: role for (name, of), role in self.roles.items() if of == topic_ and any(role)}
            for name in [name for name, (publishes, _) in roles.items() if publishes]:
                wanted = {each for each, (_, subscribes) in roles.items() if subscribes} - {name}
                for serial in range(6):
                    got = self.network.publish(name, topic_, serial)
                    assert wanted <= got.keys(), (name, topic_, serial)
                    assert changing or got.keys() <= roles.keys(), (name, topic_, serial)
                    once = changing or self.policies is not TREES or set(got.values()) <= {1}
                    assert once, (name, topic_, serial, got)
                    published += 1
        return published

    def check_domains(self) -> None:
        """In each recovery domain there are agents of all members: peers, and the entry points of scopes.

        They know each other. A peer's domains are those of its scope and of the scopes around it.
        """
        ordered = {name: self.network.peers[peer(name).id].membership.domains() for name in self.names}
        for topic_ in self.topics:
            for name, domains in ordered.items():
                scopes = [each.scope for each in domains.get(topic_, ())]
                path = [*self.hierarchy.path(peer(name).id, topic_), scope(self.topics[topic_]).id] if scopes else []
                assert scopes == path[1 : len(scopes) + 1]
            for name in self.scopes:
                self._check_domain(name, topic_, {each: told.get(topic_, ()) for each, told in ordered.items()})

    def _check_domain(self, name: str, topic_: bytes, ordered: Mapping[str, Sequence[Circle]]) -> None:
        manager = self.network.managers[scope(name).id]
        parts = {label: parts[topic_] for label, parts in manager.orders.parts.items() if topic_ in parts}
        members = [label for label, part in parts.items() if part.assignment.recovery]
        heads = {self._head(manager, label, topic_) for label in members}
        circles = {each: circle for each, told in ordered.items() for circle in told if circle.scope == scope(name).id}
        if heads:
            assert circles.keys() == heads, (name, topic_)
            known = [frozenset((*circle.others, peer(each).contact)) for each, circle in circles.items()]
            assert len({*known}) == 1
            assert known[0] >= {peer(each).contact for each in heads}

    def _head(self, manager: ScopeManager, label: int, topic_: bytes) -> str:
        """The peer that a member is, or through which it takes part."""
        party = manager.state.members[label].party
        if not party.managed:
            return party.name
        inner = self.network.managers[party.id]
        return self._head(inner, inner.state.topics[topic_].entries[0], topic_)

    def lose_manager(self) -> None:
        """A manager crashes amidst changes, and comes back from its disk; some of its messages are lost."""
        name = self.random.choice(self.scopes)
        self.change_roles()
        self.network.settle(self.random.randint(0, 30))
        self.network.crash_manager(name)
        self.network.settle()
        self.network.restore_manager(name)


@pytest.mark.parametrize("seed", rest_long(range(SEEDS), 10))
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


@pytest.mark.parametrize("seed", rest_long(range(SEEDS), 10))
def test_so_it_does_after_managers_crashed_and_messages_were_lost(seed: int) -> None:
    composition = Composition(seed)
    for _ in range(3):
        composition.network.loss = 0.1
        composition.lose_manager()
        composition.network.settle()
        composition.network.loss = 0.0
        composition.network.passed(3 * LEASE_S)
        composition.check()


@pytest.mark.parametrize("seed", rest_long(range(SEEDS), 10))
def test_redundant_policies_compose_with_trees_at_any_level(seed: int) -> None:
    composition = Composition(seed, (*REDUNDANT, *REDUNDANT, *TREES))
    composition.change_roles()
    composition.network.settle()
    composition.check()


def test_a_redundant_policy_around_a_tree_for_each_origin_reaches_all() -> None:
    """A bundle that came back into its own scope would be passed on over another tree, and end where it was before."""
    network, of = Network(), topic("t")
    network.add_scope("X", policy=lambda topic: BUILT_IN["mesh"]())
    network.add_scope("P", ["X"], policy=lambda topic: Tree(2))
    names = [*(f"p{at}" for at in range(8)), *(f"q{at}" for at in range(4))]
    for name in names:
        network.add_peer(name, ["P" if name < "q" else "X"])
        network.role(name, of, "X", publishes=name == "p5", subscribes=True)
        network.settle()
    for _ in range(50):
        assert network.publish("p5", of).keys() | {"p5"} == {*names}


def test_a_member_that_turned_to_another_of_its_scopes_passes_on_what_comes_to_its_new_place() -> None:
    """What comes to its former place ends there, and is no earlier copy of what comes to its new one."""
    network, of = Network(), topic("t")
    network.add_scope("X", policy=lambda topic: Tree(8))
    network.add_scope("P", ["X"], policy=lambda topic: Tree(1))
    network.cut.add(scope("P").id)
    for name, owners in {"A": ["X"], "D": ["X"], "B": ["P", "X"]}.items():
        network.add_peer(name, owners)
        network.role(name, of, "X", publishes=name in "AD", subscribes=True)
    network.settle()
    assert network.publish("A", of).keys() == {"B", "D"}
    network.cut.clear()
    network.passed(LEASE_S / 3)
    network.add_peer("C", ["P"])
    network.role("C", of, "X", subscribes=True)
    network.settle()
    leading = {str(each.label) for each in network.installed[peer("A").id] if each.spec.peer == peer("B").contact}
    assert leading == {"2-4", "2-3:1"}, "those to its former place stay until no bundle takes them"
    for _ in range(50):
        assert network.publish("A", of).keys() == {"B", "C", "D"}


def test_bundles_of_a_multicast_group_are_for_the_members_of_its_scope() -> None:
    """B has the group's key for another topic, and takes part in this one in another of its scopes."""
    network, (of, other) = Network(), (topic("t"), topic("u"))
    network.add_scope("X", policy=lambda topic: Tree(2))
    for name in "PQ":
        network.add_scope(name, ["X"], policy=lambda topic: IpMulticast())
    network.settle()
    for name, owners in {"A": ["X"], "B": ["Q", "P"], "C": ["P"], "D": ["P"], "E": ["Q"]}.items():
        network.add_peer(name, owners)
        network.role(name, of, "X", publishes=name == "A", subscribes=name != "A")
        if name in "BCD":
            network.role(name, other, "P", publishes=name == "C", subscribes=True)
        network.settle()
    network.passed(CHANGED_S)
    assert network.publish("C", other) == dict.fromkeys("BD", 1)
    for _ in range(20):
        assert network.publish("A", of) == dict.fromkeys("BCDE", 1)


def test_compositions_are_deep_and_have_several_publishers() -> None:
    """What the oracle is asked about is not trivial."""
    checked, depths = 0, set[int]()
    for seed in range(SEEDS):
        composition = Composition(seed)
        composition.change_roles()
        composition.network.settle()
        checked += composition.check()
        depths |= {len([*composition.hierarchy.path(peer(name).id, of)]) for name, of in composition.roles}
    assert checked > 500
    assert depths >= {1, 2, 3, 4}
