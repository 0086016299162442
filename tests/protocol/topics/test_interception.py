"""Which Joins end at a peer that they pass by, and which requests a rendezvous point refuses at once."""

from msgspec.structs import replace

from quillcast.core.envelope import NO_TERM
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.messages import Join, Refused
from quillcast.protocol.topics.root_messages import Create, FindRoot, NotRoot
from quillcast.protocol.topics.state.effects import LeaveIfIdle
from tests.protocol.recording import BOB, CAROL
from tests.protocol.topics.parts import BY_SOURCE, DESCRIPTOR, Parts

JOIN = Join(DESCRIPTOR.topic, CAROL, None, b"", DESCRIPTOR)
WARRANT = Warrant(bytes(32), bytes(64))


def test_a_peer_outside_the_tree_becomes_a_forwarder_for_who_subscribes_alone(world: Parts) -> None:
    assert not world.interception.take(replace(JOIN, sends_only=True))
    assert not world.interception.take(replace(JOIN, warrant=WARRANT)), "it may not be allowed to have the events"
    assert world.trees == {}
    assert world.interception.take(JOIN)
    assert list(world.trees[JOIN.topic].waiting) == [CAROL.node_id]


def test_a_peer_of_the_tree_takes_in_who_sends_or_shows_a_warrant_unless_it_may_have_nothing_more(
    world: Parts,
) -> None:
    tree = world.root()
    assert world.interception.take(replace(JOIN, sends_only=True))
    tree.end_root()
    tree.attach(BOB, (), ())
    tree.note_denied(denied=True)
    assert not world.interception.take(replace(JOIN, warrant=WARRANT))


def test_a_peer_below_the_child_lets_its_join_pass(world: Parts) -> None:
    tree = world.tree()
    tree.attach(BOB, (), (CAROL.node_id, BOB.node_id))
    assert not world.interception.take(JOIN)


def test_a_peer_that_leaves_or_knows_too_many_topics_lets_a_join_pass(world: Parts) -> None:
    world.forgetting.topics_max = 0
    assert not world.interception.take(JOIN)
    world.root()
    assert world.interception.take(JOIN)
    world.open_trees.leave()
    assert not world.interception.take(JOIN)
    assert world.host.sent != []


def test_a_rendezvous_point_without_room_refuses_topics_that_are_new_to_it(world: Parts) -> None:
    world.forgetting.topics_max = 0
    for request in (JOIN, FindRoot(JOIN.topic, CAROL, DESCRIPTOR, NO_TERM), Create(DESCRIPTOR, CAROL)):
        assert world.rendezvous.refuses_for_room(request)
    (_, refused), (_, first), (_, second) = world.host.sent
    assert isinstance(refused, Refused)
    assert (refused.why, isinstance(first, NotRoot), isinstance(second, NotRoot)) == ("unusable", True, True)
    world.root()
    assert not world.rendezvous.refuses_for_room(FindRoot(JOIN.topic, CAROL, None, NO_TERM))


def test_a_rendezvous_point_refuses_no_topic_that_has_its_root_in_this_scope(world: Parts) -> None:
    assert not world.rendezvous.refuses_scope(JOIN)
    assert not world.rendezvous.refuses_scope(FindRoot(JOIN.topic, CAROL, None, NO_TERM))


def test_a_peer_that_leaves_ends_its_part_in_every_tree(world: Parts) -> None:
    tree = world.tree()
    tree.attach(BOB, (), ())
    child = world.child(tree, CAROL)
    world.membership.parents.add(BOB)
    world.children.links.add(CAROL)
    world.leaving.begin()
    assert world.open_trees.leaving
    assert [kind for to, kind in world.sent if to == child.contact] == ["Orphaned"]
    world.leaving.end()
    assert list(tree.leases.children) == []
    assert world.ordered[-1] == LeaveIfIdle(tree.topic, anyway=True)


def test_a_source_that_leaves_ends_its_stream(world: Parts) -> None:
    tree = world.tree(BY_SOURCE)
    tree.attach(BOB, (), ())
    world.source_streams.open(tree, None)
    world.leaving.begin()
    assert tree.sources.own is None or tree.sources.own.closing
