"""A topic's tree as recovery sees it (`TreeGroups`): what it asks, and what it tells."""

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.reliability.group import PeerGroup
from quillcast.protocol.reliability.messages import FetchFromRoot
from quillcast.protocol.topics.groups import TreeGroups
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import StreamUp
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, block, down
from tests.protocol.topics.parts import BY_SOURCE, STREAM, Parts

DAVE = Contact(b"d" * 16, "127.0.0.1:4")
HELD = ((FIRST, 2, ((0, 2),), 0, None),)


def between(world: Parts) -> tuple[TreeGroups, Tree, PeerGroup]:
    """Bob passes the topic on to this peer, which passes it on to Carol."""
    groups, tree = world.recovery.groups, world.tree()
    tree.flow.begin(FIRST, 0, 0.0, 0)
    tree.parent, tree.path = BOB, (BOB.node_id,)
    world.child(tree, CAROL)
    group = groups.find(tree.topic)
    assert group is not None
    return groups, tree, group


def test_a_topic_without_a_place_here_has_no_group(world: Parts) -> None:
    assert world.recovery.groups.find(PAUL) is None


def test_the_holders_are_the_parent_and_the_children_that_keep_ended_terms(world: Parts) -> None:
    _, tree, group = between(world)
    assert list(group.repairers.holders()) == []
    tree.leases.children[CAROL.node_id].held = HELD
    assert [holder.contact for holder in group.repairers.holders()] == [CAROL]
    tree.parent_held = HELD
    assert [holder.contact for holder in group.repairers.holders()] == [BOB, CAROL]


def test_events_of_the_present_term_are_asked_of_the_parent_then_of_those_that_may_stand_in_for_it(
    world: Parts,
) -> None:
    _, tree, group = between(world)
    tree.fallbacks = (DAVE,)
    assert (group.upper.upstream(FIRST), group.repairers.peers(FIRST).inside) == (BOB, [BOB, DAVE])


def test_events_of_a_past_term_are_asked_of_all_neighbours(world: Parts) -> None:
    _, tree, group = between(world)
    assert group.repairers.peers(SECOND).inside == list(tree.neighbours()) == [BOB, CAROL]


@pytest.mark.parametrize("at_root", [True, False])
def test_all_neighbours_are_asked_about_a_stream_whose_source_is_gone(world: Parts, at_root: bool) -> None:
    """None of them may have any of it, and one may know for how long it has been there."""
    groups, tree = world.recovery.groups, world.root(BY_SOURCE)
    carol, dave = (SourcesChild(world.host, each, 0, FIRST, 0, sends_only=False) for each in (CAROL, DAVE))
    tree.enter(carol)
    tree.enter(dave)
    group = groups.find(tree.topic)
    assert group is not None
    world.source_streams.learn(tree, STREAM, 0)
    state = tree.sources.states[STREAM]
    state.went_to(5)
    if not at_root:
        tree.root, tree.parent = None, BOB
        assert group.repairers.peers(STREAM).inside == [BOB], "it may go on, as far as is known here"
        state.take_end(5, is_alive=False)
    assert group.repairers.peers(STREAM).inside == [*tree.neighbours()]
    carol.note_stream(STREAM, StreamUp(0, 0, 5, alive=True))
    state.take_end(5, is_alive=True)
    assert DAVE not in group.repairers.peers(STREAM).inside, "its source is below Carol"


def test_who_is_no_member_is_outside_also_where_the_root_above_it_is_a_member(world: Parts) -> None:
    """Dave is the root and an entry point of this peer's scope. Bob, between them, is in no scope, and Carol in it."""
    _, tree, group = between(world)
    tree.path, tree.fallbacks = (DAVE.node_id, BOB.node_id), (DAVE,)
    world.ring.entry_points = (DAVE,)
    assert group.repairers.peers(FIRST).inside == [BOB, DAVE], "as long as no manager has said who is a member"
    world.placement.know({tree.topic: {DAVE.node_id, CAROL.node_id}})
    peers = group.repairers.peers(FIRST)
    assert (peers.inside, peers.above) == ([DAVE], [BOB])
    tree.leases.children[CAROL.node_id].held = tree.parent_held = HELD
    assert [holder.contact for holder in group.repairers.holders()] == [CAROL, BOB]


def test_the_root_is_asked_over_the_ring(world: Parts) -> None:
    groups, tree, group = between(world)
    message = FetchFromRoot(tree.topic, FIRST, [(0, 1)], ALICE)
    groups.ask_root(group, message)
    assert world.ring.routed == [(message, tree.topic)]


def test_what_a_child_lacks_is_looked_for_and_what_an_outsider_lacks_is_not(world: Parts) -> None:
    groups, tree, group = between(world)
    tree.flow.move(down(FIRST, 2, block(PAUL, 2)), tree.flow.current)
    assert not groups.asked_for(group, FIRST, [(0, 2)], DAVE.node_id)
    assert groups.asked_for(group, FIRST, [(0, 2)], CAROL.node_id)


def test_repairs_are_taken_and_others_go_on_while_there_is_room(world: Parts) -> None:
    _, tree, _ = between(world)
    assert (world.flow_control.is_pressed, world.flow_control.takes_repairs) == (False, True)
    world.host.rooms[CAROL.node_id] = 0
    assert world.flow_control.room_for_repairs(CAROL, tree.topic) <= 0
