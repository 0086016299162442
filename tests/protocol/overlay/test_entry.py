"""Peers without a place in the ring: they reach it through entry points, and nobody there counts on them."""

import pytest

from quillcast.protocol.overlay.entry import EntryPoints
from quillcast.protocol.overlay.messages import LeafSetProbe
from tests.protocol.overlay.world import CODEC, Note, TestPeer, World, ring_of


def outsider(world: World, *entries: TestPeer) -> TestPeer:
    """A new peer with these entry points."""
    peer = world.add()
    peer.overlay.enter([entry.contact for entry in entries])
    return peer


def test_its_messages_arrive_at_the_closest_member_and_name_it_as_their_source() -> None:
    world = ring_of(20)
    entry, stand_by = world.members()[:2]
    peer = outsider(world, entry, stand_by)
    for number in range(30):
        key = world.random.randbytes(16)
        peer.overlay.route(Note(f"note {number}"), key)
        world.run(1.0)
        closest = world.closest(key)
        assert world.receivers(f"note {number}") == [closest]
        assert (f"note {number}", peer.contact) in closest.delivered
        assert (f"note {number}" in entry.trail) == (closest is not entry), "its entry point is on the way"


def test_what_it_routes_before_it_has_entry_points_waits() -> None:
    world = ring_of(5)
    peer = world.add()
    peer.overlay.route(Note("early"), peer.me)
    world.run(1.0)
    assert world.arrived == []
    peer.overlay.enter([world.members()[0].contact])
    world.run(1.0)
    assert world.arrived == ["early"]


def test_no_key_is_its_own_and_no_member_takes_it_for_one() -> None:
    world = ring_of(12)
    peer = outsider(world, *world.members()[:3])
    assert not peer.overlay.is_closest(peer.me)
    assert peer.overlay.closest(peer.me, 3) == []
    world.route(peer, peer.me, "to its own id")
    world.run(200.0)  # several rounds of maintenance
    assert world.wrong() == []
    for member in world.members():
        assert peer.contact not in member.overlay.remembered()
    assert peer not in world.receivers("to its own id")


def test_it_answers_no_member_that_wants_it_in_its_leaf_set() -> None:
    world = ring_of(5)
    member = world.members()[0]
    peer = outsider(world, member)
    world.send(member, peer.contact, CODEC.encode(LeafSetProbe(())))
    world.run(5.0)
    assert len(peer.overlay.leaf_set) == 0
    assert world.wrong() == []


def test_a_stand_by_takes_over_when_the_entry_point_is_silent() -> None:
    world = ring_of(12)
    entry, stand_by = world.members()[:2]
    peer = outsider(world, entry, stand_by)
    world.crash(entry)
    key = world.random.randbytes(16)
    world.route(peer, key, "around")
    world.run(10.0)
    assert world.receivers("around") == [world.closest(key)]


def test_it_can_be_given_other_entry_points() -> None:
    world = ring_of(12)
    first, second = world.members()[:2]
    peer = outsider(world, first)
    world.crash(first)
    peer.overlay.enter([second.contact])
    world.route(peer, second.me, "through the other")
    world.run(1.0)
    assert world.receivers("through the other") == [second]
    assert peer.overlay.remembered()[0] == second.contact


def test_a_member_of_the_ring_cannot_enter_it_and_nobody_can_without_entry_points() -> None:
    world = ring_of(3)
    with pytest.raises(ValueError, match="1 entry points for a peer in the ring"):
        world.members()[0].overlay.enter([world.members()[1].contact])
    with pytest.raises(ValueError, match="0 entry points"):
        world.add().overlay.enter([])


def test_suspected_and_silent_entry_points_are_passed_over_until_none_is_left() -> None:
    world = ring_of(3)
    a, b, c = (peer.contact for peer in world.members())
    suspected = {a.node_id}
    entries = EntryPoints([a, b, c], suspected.__contains__)
    key = bytes(16)
    assert entries.to(key) == b
    assert entries.around(key, (b.node_id,)) == c
    assert entries.around(key, (b.node_id, c.node_id)) is None
    suspected.update((b.node_id, c.node_id))
    assert entries.to(key) == a, "one of them is tried in any case"


def test_whom_a_new_peer_asks_outside_the_ring_names_its_entry_points() -> None:
    world = ring_of(5)
    peer = outsider(world, *world.members()[:2])
    joiner = world.join(contacts=[peer.contact])
    world.run(30.0)
    assert joiner.overlay.active
    assert joiner.overlay.leaf_set
    assert world.wrong() == []


@pytest.mark.parametrize("may_be_first", [True, False])
def test_a_peer_that_knows_only_some_that_wait_outside_begins_the_network_if_it_may(may_be_first: bool) -> None:
    world = World()
    waiting = [world.add(), world.add()]
    for peer in waiting:
        peer.overlay.stay_outside()
    joiner = world.add()
    joiner.overlay.join([peer.contact for peer in waiting], may_be_first=may_be_first)
    world.run(30.0)
    assert joiner.overlay.active == may_be_first
