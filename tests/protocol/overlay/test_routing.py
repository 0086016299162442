"""Routing hop by hop: acknowledged, around silent hops, delivered once and by the closest peer."""

from collections.abc import Collection
from typing import Any

import pytest

from quillcast.core.messages import Contact
from quillcast.core.trace import Rerouted
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.messages import Routed, RoutedAck
from quillcast.protocol.overlay.nexthop import NextHop
from tests.ids import from_number
from tests.protocol.overlay.world import CODEC, Note, TestPeer, World, ring_of

SMALL = OverlayConfig(digit_bits=2, leaf_set_size=4)


class Always(NextHop):
    """Sends everything to one peer."""

    def __init__(self, contact: Contact) -> None:
        self.contact = contact

    def covers(self, key: bytes) -> bool:
        return True

    def to(self, key: bytes, but: Collection[bytes] = ()) -> Contact:
        return self.contact


def long_way(world: World) -> tuple[TestPeer, TestPeer, bytes]:
    """A peer, its next hop and a key, with another hop after that."""
    for _ in range(1000):
        peer, key = world.random.choice(world.alive()), world.random.randbytes(16)
        hop = peer.overlay.next_hop(key)
        if hop is not None and not peer.overlay.routes.hops.covers(key):
            onward = world.peers[hop.node_id].overlay.next_hop(key)
            if onward is not None and world.peers[onward.node_id].overlay.next_hop(key) is None:
                return peer, world.peers[hop.node_id], key
    raise AssertionError("no route has more than one hop")


def test_a_message_to_a_key_of_this_peer_is_delivered_at_once() -> None:
    world = World()
    peer = world.join(contacts=[])
    peer.overlay.route(Note("here"), peer.me)
    assert peer.delivered == [("here", peer.contact)]
    assert peer.trail == [], "there was no hop"


def test_a_message_arrives_once_and_every_hop_between_sees_it() -> None:
    world = ring_of(40, config=SMALL)
    peer, hop, key = long_way(world)
    world.route(peer, key, "note")
    world.run(2)
    assert world.receivers("note") == [world.closest(key)]
    assert [there for there in world.alive() if "note" in there.trail] == [hop], (
        "neither at its source nor at its destination"
    )
    assert world.closest(key).delivered == [("note", peer.contact)]
    assert world.routed()[-1].hops == 2


def test_a_hop_may_change_a_message() -> None:
    world = ring_of(40, config=SMALL)
    peer, hop, key = long_way(world)
    hop.forward = lambda message, key, next_hop, source: (Note("changed"), next_hop)  # type: ignore[method-assign]
    world.route(peer, key, "note")
    world.run(2)
    assert (world.receivers("note"), world.receivers("changed")) == ([], [world.closest(key)])


def test_a_hop_may_stop_a_message() -> None:
    world = ring_of(40, config=SMALL)
    peer, hop, key = long_way(world)
    hop.forward = lambda message, key, next_hop, source: None  # type: ignore[method-assign]
    world.route(peer, key, "note")
    world.run(5)
    assert world.receivers("note") == []
    assert "route_given_up" not in world.marks


def test_a_hop_may_redirect_a_message() -> None:
    world = ring_of(40, config=SMALL)
    peer, hop, key = long_way(world)
    usual = world.peers[hop.overlay.next_hop(key).node_id]  # type: ignore[union-attr]
    end = world.closest(key)
    others = [there for there in world.alive() if there not in (peer, hop, usual)]
    other = next(
        there for there in others if there.overlay.next_hop(key) == end.contact
    )  # does not lead back to the hop
    seen: list[Contact] = []

    def redirect(message: Note, key: bytes, next_hop: Contact, source: Contact) -> Any:
        seen.append(next_hop)
        return message, other.contact

    hop.forward = redirect  # type: ignore[method-assign]
    world.route(peer, key, "note")
    world.run(3)
    assert seen == [usual.contact]
    assert "note" in other.trail
    assert world.receivers("note") == [end]


def test_a_message_bypasses_a_silent_hop() -> None:
    world = ring_of(40, config=SMALL)
    peer, hop, key = long_way(world)
    world.crash(hop)
    world.route(peer, key, "note")
    world.run(1.0)
    assert world.receivers("note") == [world.closest(key)], "long before any peer detects that the hop is dead"
    assert 0.0 < world.closest(key).waited_s[0] < 1.0, "it knows for how long it was sent in vain"
    assert Rerouted(key, hop.me) in [record for _, _, record in world.records]
    assert world.marks["rerouted"] >= 1
    world.run(10)
    assert hop.me not in peer.overlay.routing_table, "the failure detector learned of the silence"


def test_a_suspected_hop_is_bypassed_if_there_is_another_way() -> None:
    world = ring_of(40, 2, config=SMALL)
    peer, hop, key = long_way(world)
    overlay = peer.overlay
    overlay.routes.hops.suspected = lambda node_id: node_id == hop.me
    other = overlay.next_hop(key)
    assert other is not None
    assert other != hop.contact
    overlay.routes.hops.suspected = lambda node_id: True
    assert overlay.next_hop(key) == hop.contact


def test_a_message_waits_for_a_silent_destination_until_it_is_lost_or_speaks() -> None:
    world = ring_of(20)
    key = world.random.randbytes(16)
    peer, last = world.alive()[0], world.closest(key)
    last.paused_until = world.now + 1.0
    world.route(peer, key, "patience")
    world.run(3)
    assert world.receivers("patience") == [last]
    world.crash(last)
    world.route(peer, key, "death")
    world.run(15)
    assert world.receivers("death") == [world.closest(key)]


def test_a_message_that_is_sent_again_is_delivered_once() -> None:
    world = ring_of(20)
    peer, key = world.alive()[0], world.alive()[9].me
    drop = {"left": 3}
    send = world.send

    def without_acknowledgements(sender: TestPeer, to: Contact, wire: bytes) -> None:
        if isinstance(CODEC.decode(wire), RoutedAck) and drop["left"]:
            drop["left"] -= 1
        else:
            send(sender, to, wire)

    world.send = without_acknowledgements  # type: ignore[method-assign]
    world.route(peer, key, "once")
    world.run(10)
    assert drop["left"] == 0
    assert world.receivers("once") == [world.closest(key)]
    peer.overlay.check()


def test_messages_lost_on_the_way_are_sent_again() -> None:
    world = ring_of(40, config=SMALL)
    world.loss = 0.2
    keys = [world.random.randbytes(16) for _ in range(50)]
    for index, key in enumerate(keys):
        world.route(world.random.choice(world.alive()), key, str(index))
    world.run(70)
    for index, _ in enumerate(keys):
        assert len(world.receivers(str(index))) >= 1, index
        assert len(world.receivers(str(index))) == len(set(map(id, world.receivers(str(index))))), (
            "delivered twice at one peer"
        )


def test_a_message_that_passes_again_is_forwarded_but_not_delivered_twice() -> None:
    world = ring_of(3)
    peer, other = world.alive()[:2]
    note = CODEC.encode(Note("note"))
    for hops in (1, 1, 5, 3):
        peer.message((other.contact, CODEC.encode(Routed(peer.me, other.contact, 77, hops, note))))
        peer.message((other.contact, CODEC.encode(Routed(other.me, other.contact, 78, hops, note))))
    assert [text for text, _ in peer.delivered] == ["note"]
    assert peer.trail == ["note", "note"], "it passed again with more hops"
    world.run(2)
    assert [text for text, _ in other.delivered] == ["note"]


def test_a_message_in_a_loop_is_dropped() -> None:
    world = ring_of(2, config=OverlayConfig(hops_max=10))
    a, b = world.alive()
    b.overlay.routes.hops = Always(a.contact)
    a.overlay.routes.hops = Always(b.contact)
    world.route(a, bytes(16), "round")
    world.run(5)
    assert world.marks["hop_limit"] == 1


def test_a_message_that_no_hop_accepts_is_given_up() -> None:
    world = ring_of(2, config=OverlayConfig(route_patience_s=10.0))
    a, b = world.alive()
    b.overlay.lifecycle.active = False  # it is alive but never becomes active
    world.route(a, b.me, "never")
    world.run(30)
    assert world.marks["route_given_up"] == 1
    a.overlay.check()


def test_the_bounds_of_the_router_hold() -> None:
    world = ring_of(3, config=OverlayConfig(pending_max=5, seen_max=5))
    a, b, _ = world.alive()
    world.loss = 1.0
    for index in range(20):
        world.route(a, b.me, str(index))
    assert world.marks["pending_full"] == 15
    world.loss = 0.0
    world.run(5)
    for peer in world.alive():
        peer.overlay.check()


def test_a_peer_can_be_sent_a_message_by_address() -> None:
    world = ring_of(3)
    a, b, _ = world.alive()
    keys: list[bytes] = []
    b.deliver = lambda message, key, source: keys.append(key)  # type: ignore[method-assign]
    a.overlay.send(Note("direct"), b.contact)
    world.run(1)
    assert keys == [b.me]


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_is_closest_names_one_peer_per_key(count: int) -> None:
    world = ring_of(count)
    for _ in range(50):
        key = world.random.randbytes(16)
        assert [peer for peer in world.alive() if peer.overlay.is_closest(key)] == [world.closest(key)]
        ranked = world.closest(key).overlay.closest(key, 3)
        assert ranked[0] == world.closest(key).contact
        assert len(ranked) == min(3, count)


def test_an_inactive_peer_is_closest_to_no_key() -> None:
    world = World()
    assert not world.add(from_number(1)).overlay.is_closest(from_number(1))


def test_a_restarted_process_uses_new_message_numbers() -> None:
    world = ring_of(3)
    a, b, _ = world.alive()
    world.route(a, b.me, "before")
    world.run(1)
    again = world.restart(a)
    world.run(10)
    world.route(again, b.me, "after")
    world.run(1)
    assert [text for text, _ in b.delivered] == ["before", "after"]
