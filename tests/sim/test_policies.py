"""Another forwarding policy than Scribe's tree: the promises are the same, for no policy can take them away."""

from collections.abc import Container

import pytest

from quillcast.core.envelope import NO_TERM
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.policy import ChannelSpec, Place
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.policy.channels import install
from quillcast.protocol.topics.policy.scribe_tree import ScribeTree
from quillcast.protocol.topics.state.holders import Child
from quillcast.protocol.topics.state.tree import Tree
from quillcast.sim.chance import drawn
from quillcast.sim.hard import hard
from quillcast.sim.simulation import Simulation
from tests.protocol.recording import RecordingHost

long = pytest.mark.long
SEEDS = [281, 393, 500, 503, 504, *(pytest.param(seed, marks=long) for seed in (156, 505, 506, 508, 509, 510, 512))]
HARD_SEEDS = [*range(500_000, 500_010), *(pytest.param(seed, marks=long) for seed in range(0, 500, 10))]


class Chain:
    """The members of a topic in one line: each serves the one that came after it."""

    def intercepts(self, place: Place | None) -> bool:
        """Newcomers go to the root, at the head of the line, and from there to its end."""
        return False

    def refer(self, place: Place, newcomer: Contact, unresponsive: Container[bytes] = ()) -> tuple[Contact, ...]:
        known = any(contact.node_id == newcomer.node_id for contact in place.below)
        return () if known else place.below

    def stand_ins(self, place: Place) -> tuple[Contact, ...]:
        return (place.above,) if place.above is not None else ()

    def channels(self, place: Place) -> tuple[ChannelSpec, ...]:
        return tuple(ChannelSpec(contact) for contact in place.below)


def shape(simulation: Simulation) -> list[int]:
    """How many children each peer has, in each topic, at the end."""
    trees = [tree for _, peer in simulation.running() for tree in peer.topics.trees.values()]
    return [len(tree.leases.children) for tree in trees]


class OnlyFirst(ScribeTree):
    """A tree whose peers serve one child only: the others repair what they miss from their neighbours."""

    def channels(self, place: Place) -> tuple[ChannelSpec, ...]:
        return super().channels(place)[:1]


class OnlyLast(ScribeTree):
    """The same with the child that came last, so that channels close and open again."""

    def channels(self, place: Place) -> tuple[ChannelSpec, ...]:
        return super().channels(place)[-1:]


@pytest.mark.parametrize("policy", [OnlyFirst, OnlyLast])
@pytest.mark.parametrize("seed", [504, 505])
def test_a_peer_without_a_channel_is_served_by_repairs(policy: type[ScribeTree], seed: int) -> None:
    simulation = Simulation(drawn(seed, 20), seed, policy=policy(16, 4))
    simulation.run()
    for _, peer in simulation.running():
        for tree in peer.topics.trees.values():
            served = [child.channel in tree.flow.channels for child in tree.leases.children.values()]
            assert sum(served) == min(1, len(served))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_chain_holds_the_drawn_fault_histories(seed: int) -> None:
    simulation = Simulation(drawn(seed, 20), seed, policy=Chain())
    simulation.run()
    assert max(shape(simulation)) <= 1


@pytest.mark.parametrize("seed", HARD_SEEDS)
def test_a_chain_holds_the_hard_fault_histories(seed: int) -> None:
    Simulation(hard(seed), seed, policy=Chain()).run()


CONTACTS = tuple(Contact(bytes([number]) * 16, f"127.0.0.1:{number}") for number in range(4))


def test_scribes_tree_takes_newcomers_in_up_to_its_bound_and_then_refers_them_to_its_children() -> None:
    tree, topic = ScribeTree(children_max=2, stand_ins_max=2), bytes(16)
    above, *below, newcomer = CONTACTS
    assert tree.intercepts(None)
    assert tree.refer(Place(topic, above, tuple(below[:1])), newcomer) == ()
    assert tree.refer(Place(topic, above, tuple(below)), newcomer) == tuple(below)
    assert tree.refer(Place(topic, above, tuple(below)), below[0]) == (), "it is one of them"
    assert tree.stand_ins(Place(topic, above, tuple(below))) == (above, below[0])
    assert tree.channels(Place(topic, above, tuple(below))) == (ChannelSpec(below[0]), ChannelSpec(below[1]))


def test_the_channels_that_a_policy_wants_are_installed_and_no_others() -> None:
    tree = Tree(described("weather").topic, described("weather"), Budget(1 << 20))
    children = [Child(RecordingHost(), contact, 0, NO_TERM, 0) for contact in CONTACTS[:3]]
    for child in children:
        tree.enter(child)
    install(tree, [ChannelSpec(child.contact) for child in children[:2]])
    first, second = tree.flow.channels
    assert [first, second] == [child.channel for child in children[:2]]
    install(tree, [ChannelSpec(children[1].contact, filter=lambda bundle: None), ChannelSpec(children[2].contact)])
    assert tree.flow.channels == (second, children[2].channel), "what stands is left as it is, but for its filter"
    assert second.filter is not None
    with pytest.raises(ValueError, match="which are not children here"):
        install(tree, [ChannelSpec(CONTACTS[3])])
