"""The upcalls of the layers below: one upcall, then which part took it."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, Envelope
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.root_messages import NotRoot
from quillcast.protocol.topics.state.effects import AwaitRoot
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, block
from tests.protocol.topics.parts import DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic
JOIN = Join(TOPIC, CAROL, descriptor=DESCRIPTOR)


def test_a_join_on_its_way_to_the_root_ends_at_a_peer_that_adopts_the_child(world: Parts) -> None:
    world.child(world.root(), BOB)
    assert world.scribe.forward(JOIN, TOPIC, BOB, CAROL) is None
    assert (CAROL, "Accepted") in world.sent


def test_a_join_of_this_peer_itself_goes_on(world: Parts) -> None:
    own = Join(TOPIC, ALICE, descriptor=DESCRIPTOR)
    assert world.scribe.forward(own, TOPIC, BOB, ALICE) == (own, BOB)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_join_that_arrives_is_taken_unless_this_peer_leaves(*, leaving: bool) -> None:
    world = Parts(ALICE, BOB)
    if leaving:
        world.open_trees.leave()
    world.scribe.deliver(JOIN, TOPIC, CAROL)
    assert world.ordered == ([] if leaving else [AwaitRoot(TOPIC, JOIN)])


def test_a_change_of_the_leaf_set_is_news_to_the_parts_that_depend_on_it(world: Parts) -> None:
    tree = world.root()
    world.scribe.leaf_set_changed()
    assert tree.root is None, "Bob is closer"


def test_an_answer_goes_over_the_overlay_too_if_a_peer_asks_again(world: Parts) -> None:
    answer = NotRoot(TOPIC, None)
    world.answers.tell(CAROL, answer, again=False)
    assert (world.host.sent, world.ring.routed) == ([(CAROL, answer)], [])
    world.answers.tell(CAROL, answer, again=True)
    assert (world.host.sent, world.ring.routed) == ([(CAROL, answer)] * 2, [(answer, CAROL.node_id)])


def test_a_lost_parent_is_replaced(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    world.streams.put(BOB, TOPIC, b"report")
    world.membership.parents.add(BOB)
    world.links.lost(BOB)
    assert tree.parent is None


def test_a_channel_that_waited_goes_on_when_its_peer_has_credit_again(world: Parts) -> None:
    tree = world.root()
    world.streams.put(BOB, TOPIC, b"report")
    world.child(tree, BOB)
    world.host.rooms[BOB.node_id] = 0
    bundle = Bundle(Envelope(TOPIC, DOWN, FIRST, 0), (block(PAUL, 0),))
    world.table.move(tree.flow, bundle)
    world.host.rooms[BOB.node_id] = 1 << 20
    world.resumption.room(CAROL)
    assert world.host.carried == []
    world.resumption.room(BOB)
    assert world.host.carried == [(BOB, bundle)]


def test_a_key_of_a_neighbour_is_kept_as_the_tree_stores_it(world: Parts) -> None:
    tree = world.tree()
    assert world.links.kept(bytes(bytearray(TOPIC))) is tree.topic
