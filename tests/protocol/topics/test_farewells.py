"""A peer without a parent leaves: one input, then whom it tells, and when it goes."""

from quillcast.protocol.topics.membership.farewells import FarewellDue
from quillcast.protocol.topics.messages import Farewell, FarewellHeard, Refused
from tests.protocol.recording import BOB, CAROL
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic


def test_a_peer_tells_its_fallback_first_and_once(world: Parts) -> None:
    tree = world.tree()
    tree.may_turn_to((CAROL,))
    for _ in range(2):
        world.farewells.say(tree)
    assert world.sent == [(CAROL, "Farewell")]
    assert world.host.timers[-1] == (FarewellDue(TOPIC, CAROL.node_id), CONFIG.join_timeout_s)


def test_a_peer_that_is_refused_or_hears_nothing_tells_the_next_and_goes_when_nobody_is_left(world: Parts) -> None:
    tree = world.tree()
    world.farewells.say(tree)
    world.farewells.refused(tree, BOB)
    assert world.sent == [(BOB, "Farewell"), (CAROL, "Farewell")]
    world.dispatch.timer(FarewellDue(TOPIC, BOB.node_id))
    assert TOPIC in world.trees, "Carol was told meanwhile"
    world.dispatch.timer(FarewellDue(TOPIC, CAROL.node_id))
    assert TOPIC not in world.trees


def test_a_peer_that_was_heard_goes(world: Parts) -> None:
    tree = world.tree()
    world.farewells.say(tree)
    world.dispatch.message(BOB, FarewellHeard(TOPIC))
    assert TOPIC not in world.trees


def test_a_root_hears_a_farewell_and_a_stranger_to_the_topic_refuses_it(world: Parts) -> None:
    world.dispatch.message(BOB, Farewell(TOPIC))
    world.child(world.root(), CAROL)
    world.dispatch.message(BOB, Farewell(TOPIC))
    assert world.host.sent == [(BOB, Refused(TOPIC, "orphan")), (BOB, FarewellHeard(TOPIC))]
