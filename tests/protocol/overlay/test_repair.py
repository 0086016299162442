"""Leaf sets and tables after peers died, left, were paused, or were cut off."""

from random import Random
from typing import Any

import pytest

from quillcast.core.ids import number
from quillcast.core.messages import Contact
from quillcast.core.trace import LeafSetChanged
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.messages import (
    Announce,
    LeafSetDigest,
    LeafSetProbe,
    Leaving,
    MemberLost,
    Row,
    RowRequest,
)
from tests.ids import from_number
from tests.protocol.overlay.world import CODEC, TestPeer, World, ring_of


def overheard(world: World, *kinds: type) -> list[tuple[bytes, bytes, Any]]:
    """All later messages of these kinds: sender, receiver and message."""
    heard: list[tuple[bytes, bytes, Any]] = []
    send = world.send

    def listen(sender: TestPeer, to: Contact, wire: bytes) -> None:
        message = CODEC.decode(wire)
        if isinstance(message, kinds):
            heard.append((sender.me, to.node_id, message))
        send(sender, to, wire)

    world.send = listen  # type: ignore[method-assign]
    return heard


@pytest.mark.parametrize("leaf_set_size", [2, 4, 16])
def test_a_dead_member_is_replaced(leaf_set_size: int) -> None:
    world = ring_of(40, config=OverlayConfig(leaf_set_size=leaf_set_size))
    world.crash(world.alive()[5])
    world.run(20)
    assert world.wrong() == []
    assert world.marks["leaf_repair"] >= 1


def test_one_less_than_half_of_a_leaf_set_may_die_at_once() -> None:
    world = ring_of(60)
    for peer in world.alive()[10:17]:
        world.crash(peer)
    world.run(40)
    assert world.wrong() == []


def test_more_than_half_of_a_leaf_set_may_die_at_once_if_routing_tables_help() -> None:
    world = ring_of(60)
    for peer in world.alive()[10:22]:
        world.crash(peer)
    world.run(120)
    assert world.wrong() == []


def test_a_loss_is_reported_to_the_other_members_which_probe_before_they_believe_it() -> None:
    world = ring_of(20)
    told = overheard(world, MemberLost)
    dead = world.alive()[3]
    world.crash(dead)
    world.run(15)
    assert {message.node_id for _, _, message in told} == {dead.me}
    rumour = CODEC.encode(MemberLost(world.alive()[4].me))
    for peer in world.alive()[5:9]:
        peer.message((world.alive()[0].contact, rumour))
    world.run(15)
    assert world.wrong() == [], "live peers are not lost when others report them"


def test_the_farthest_member_on_the_side_of_the_gap_is_asked() -> None:
    world = ring_of(40)
    ring = world.alive()
    asked = overheard(world, LeafSetProbe)
    world.crash(ring[20])
    for beside in (ring[19], ring[21]):  # before others report it
        beside.overlay.lost(ring[20].contact)
    by = {sender: to for sender, to, _ in asked}
    assert by[ring[19].me] == ring[19 + 8].me, "the gap is on its right"
    assert by[ring[21].me] == ring[21 - 8].me, "the gap is on its left"


def test_a_peer_that_leaves_is_replaced_at_once() -> None:
    world = ring_of(40)
    leaver = world.alive()[7]
    leaver.overlay.leave()
    world.run(0.5)
    world.crash(leaver)
    assert world.wrong() == []
    assert (world.marks["member_left"], world.marks.get("neighbour_lost", 0)) == (16, 0)
    assert not leaver.overlay.active


def test_a_peer_that_left_sends_nothing() -> None:
    world = ring_of(3)
    leaver, other = world.alive()[:2]
    leaver.overlay.leave()
    said = overheard(world, object)
    leaver.overlay.receive(other.contact, LeafSetProbe(()))
    leaver.overlay.lost(other.contact)
    leaver.overlay.recovered(other.contact)
    leaver.overlay.measured(other.contact, 0.1)
    leaver.overlay.timer(None)
    assert said == []


def test_differing_digests_lead_to_an_exchange() -> None:
    world = ring_of(30)
    ring = world.alive()
    ring[4].overlay.agreement.remove(ring[7].me)
    assert world.wrong() != []
    said = overheard(world, LeafSetDigest)
    world.run(80)
    assert world.wrong() == []
    assert world.marks["digests_differ"] >= 1
    assert {to for sender, to, _ in said if sender == ring[4].me} == {ring[5].me}, (
        "only the right-hand neighbour compares"
    )


def test_a_paused_peer_returns_to_its_place() -> None:
    world = ring_of(20)
    peer = world.alive()[3]
    peer.paused_until = world.now + 30
    world.run(29)
    assert all(peer.me not in other.overlay.leaf_set for other in world.alive() if other is not peer)
    lost = world.marks["neighbour_lost"]
    world.run(15)
    assert world.wrong() == []
    assert world.marks["neighbour_lost"] == lost, "it declared no neighbour lost"
    assert world.marks["process_paused"] >= 1


@pytest.mark.parametrize("seconds", [15, 60, 300])
def test_a_partitioned_ring_becomes_one_again(seconds: int) -> None:
    world = ring_of(30)
    world.checked = False
    there = {peer.me for peer in world.alive()[::3]}
    world.side = lambda node_id: node_id in there
    world.run(seconds)
    joined = [world.join(contacts=[peer.contact]) for peer in world.alive()[:2]]
    there |= {joined[0].me}
    world.run(10)
    world.side = lambda node_id: 0
    world.run(90)
    assert world.wrong() == []
    assert world.marks["ring_merge"] >= 1


@pytest.mark.parametrize(("count", "apart"), [(2, 1), (4, 1), (12, 6), (30, 3)])
def test_a_partitioned_ring_is_one_again_within_five_seconds(count: int, apart: int) -> None:
    world = ring_of(count)
    world.checked = False
    there = {peer.me for peer in world.alive()[:: count // apart]}
    world.side = lambda node_id: node_id in there
    world.run(70)
    assert len(world.alive()[0].overlay.leaf_set) < min(count - 1, 16)
    world.side = lambda node_id: 0
    world.run(5)
    assert world.wrong() == []


@pytest.mark.parametrize("seed", range(20))
def test_each_side_of_a_partition_soon_is_a_ring_of_its_own(seed: int) -> None:
    """Some lose every member on one side of their leaf sets at once, and with it the way to the next peer."""
    world = ring_of(20, seed, OverlayConfig(leaf_set_size=4))
    world.checked = False
    ring = [peer.me for peer in world.alive()]
    there = set(Random(seed).sample(ring, 10))
    world.side = lambda node_id: node_id in there
    world.run(20)
    for side in ([me for me in ring if me in there], [me for me in ring if me not in there]):
        after = dict(zip(side, [*side[1:], side[0]], strict=True))
        rights = {peer.me: peer.overlay.leaf_set.right[0].node_id for peer in world.alive() if peer.me in after}
        assert rights == after


def test_each_round_probes_a_few_lost_peers_in_turn() -> None:
    world = ring_of(16)
    dead = world.alive()[3:13]
    for peer in dead:
        world.crash(peer)
    world.run(30)
    names = {peer.me for peer in dead}
    said = overheard(world, LeafSetProbe)
    world.run(60)
    asker = world.alive()[0]
    asked = [to for sender, to, _ in said if sender == asker.me and to in names]
    assert len(asker.overlay.lost_peers) == len(dead)
    assert len(asked) <= 4 * 60 / (0.75 * OverlayConfig().probe_lost_s) + 4
    counts = [asked.count(name) for name in names]
    assert min(counts) >= 10, "each in turn, including those lost first"


def test_a_lost_peer_named_by_another_is_probed_at_once_but_not_repeatedly() -> None:
    world = ring_of(12, config=OverlayConfig(probe_lost_s=100.0))
    dead, peer = world.alive()[3:5]
    world.crash(dead)
    world.run(10)
    asked = overheard(world, LeafSetProbe)
    peer.overlay.agreement.consider([dead.contact])
    assert asked == [], "others may not have detected its death yet"
    world.run(110)
    asked.clear()
    for _ in range(3):
        peer.overlay.agreement.consider([dead.contact])
    assert len([to for sender, to, _ in asked if (sender, to) == (peer.me, dead.me)]) <= 2


def test_two_rings_that_forgot_each_other_merge_through_an_old_contact() -> None:
    world = ring_of(8)
    world.checked = False
    there = {peer.me for peer in world.alive()[::2]}
    world.side = lambda node_id: node_id in there
    world.run(60)
    for peer in world.alive():
        for contact in list(peer.overlay.lost_peers):
            peer.overlay.lost_peers.forget(contact.node_id)
    world.side = lambda node_id: 0
    world.run(150)
    assert world.wrong() == []


def test_a_lost_peer_is_forgotten_when_another_answers_at_its_address() -> None:
    world = ring_of(4)
    dead, peer = world.alive()[1:3]
    world.crash(dead)
    world.run(20)
    assert dead.me in peer.overlay.lost_peers
    newcomer = Contact(bytes(16), dead.contact.address)
    peer.overlay.receive(newcomer, LeafSetProbe(()))
    assert dead.me not in peer.overlay.lost_peers


@pytest.mark.parametrize("leaves", [True, False])
def test_a_peer_that_left_is_not_lost_when_others_still_name_it(leaves: bool) -> None:
    """Others name it for a while. That it does not answer them does not mean a partition."""
    world = ring_of(4)
    gone, peer = world.alive()[1:3]
    if leaves:
        gone.overlay.leave()
        world.run(1)
    world.crash(gone)
    peer.overlay.maintenance.meet([gone.contact])  # its distance is still known
    peer.overlay.agreement.consider([gone.contact])
    peer.neighbours.probe(gone.contact)
    world.run(20)
    lost = [contact.node_id for contact, _ in peer.overlay.lost_peers.since(0.0, met=True)]
    assert lost == ([] if leaves else [gone.me])


def test_peers_that_left_are_not_looked_for() -> None:
    """The last peer of a ring waits for others to come, and does not call those that said that they leave."""
    world = ring_of(4)
    last, *others = world.alive()
    for peer in others:
        peer.overlay.leave()
        world.run(1)
        world.crash(peer)
    asked = overheard(world, object)
    world.run(120)
    assert len(last.overlay.leaf_set) == 0
    assert asked == []


def test_a_peer_that_left_and_speaks_again_is_a_member_at_once() -> None:
    world = ring_of(4)
    gone, peer = world.alive()[1:3]
    peer.overlay.receive(gone.contact, Leaving(()))
    assert peer.overlay.lost_peers.has_left(gone.me)
    peer.overlay.receive(gone.contact, LeafSetProbe(()))
    assert not peer.overlay.lost_peers.has_left(gone.me)
    assert gone.me in peer.overlay.leaf_set


def test_a_peer_that_never_answered_is_probed_but_was_not_lost() -> None:
    world = ring_of(4)
    peer, stranger = world.alive()[0], Contact(bytes(16), "nowhere")
    peer.overlay.agreement.consider([stranger])
    world.run(20)
    assert stranger.node_id in peer.overlay.lost_peers
    assert list(peer.overlay.lost_peers.since(0.0, met=True)) == []


def test_the_number_of_remembered_peers_is_bounded() -> None:
    world = ring_of(12, config=OverlayConfig(remembered_max=3))
    for peer in world.alive()[2:10]:
        world.crash(peer)
    world.run(40)
    for peer in world.alive():
        assert len(peer.overlay.lost_peers) <= 3
        assert len(peer.overlay.remembered()) <= 3


def test_dead_peers_are_not_added_again_when_others_name_them() -> None:
    world = ring_of(12)
    dead, peer, other = world.alive()[3:6]
    world.crash(dead)
    world.run(15)
    asked = overheard(world, LeafSetProbe)
    peer.overlay.agreement.consider([dead.contact])
    assert (asked, dead.me in peer.overlay.leaf_set) == ([], False)
    world.run(60)
    peer.overlay.agreement.consider([dead.contact])
    assert dead.me not in peer.overlay.leaf_set, "not before it has answered"
    world.run(60)
    assert dead.me not in peer.overlay.leaf_set
    assert other.overlay.active


def test_a_peer_without_members_searches_the_ring() -> None:
    world = ring_of(12, config=OverlayConfig(leaf_set_size=2))
    peer = world.alive()[4]
    for contact in list(peer.overlay.leaf_set):
        world.crash(world.peers[contact.node_id])
    for contact in list(peer.overlay.routing_table):
        peer.overlay.routing_table.remove(contact.node_id)
    world.run(150)
    assert world.wrong() == []
    assert world.marks["ring_searched"] >= 1


def test_the_cell_of_a_lost_peer_is_refilled_from_known_peers() -> None:
    world = ring_of(60)
    peer = world.alive()[0]
    table = peer.overlay.routing_table
    entry = next(e for e in table.entries() if e.contact.node_id not in peer.overlay.leaf_set)
    spare = from_number(number(entry.contact.node_id) ^ 1)
    peer.overlay.neighbourhood.consider(Contact(spare, "spare"), 0.001)
    peer.known[spare] = 0.001
    dead = world.peers[entry.contact.node_id]
    world.crash(dead)
    peer.overlay.lost(dead.contact)
    assert table.lookup(number(dead.me)).contact.node_id == spare  # type: ignore[union-attr]
    assert world.marks["row_repair"] >= 1


def test_the_row_of_an_empty_cell_is_requested_when_needed() -> None:
    world = ring_of(
        60, config=OverlayConfig(digit_bits=2, leaf_set_size=2, maintenance_s=1e6)
    )  # without rounds in between
    random = Random(1)
    for peer in world.alive():
        for entry in list(peer.overlay.routing_table.entries()):
            if random.random() < 0.5:
                peer.overlay.routing_table.remove(entry.contact.node_id)
    asked, before = overheard(world, RowRequest), world.marks["lazy_repair"]
    for index in range(100):
        world.route(random.choice(world.alive()), random.randbytes(16), str(index))
        world.run(0.05)
    assert world.marks["lazy_repair"] - before == len(asked) >= 1
    world.run(3)
    assert all(len(world.receivers(str(index))) == 1 for index in range(100))


def test_routing_tables_fill_with_nearer_peers_over_time() -> None:
    world = World(4)
    for _ in range(60):
        world.join()
        world.run(0.05)
    world.run(2)
    missing, farther = quality(world)
    world.checked = False
    world.run(400)
    assert world.marks["row_maintenance"] > 60
    assert quality(world) <= (missing, farther)
    assert quality(world)[0] < 0.01
    assert quality(world)[1] < 1.2


def quality(world: World) -> tuple[float, float]:
    """For the first rows: the share of cells that could be filled but are not, and how much farther the known peers are
    than the nearest peer for their cells.
    """
    missing, known, ideal = 0, 0.0, 0.0
    for peer in world.alive():
        table = peer.overlay.routing_table
        nearest: dict[int, float] = {}
        for other in world.alive():
            row, cell = table.place(number(other.me)) if other is not peer else (1, 0)
            if row == 0:
                nearest[cell] = min(nearest.get(cell, 9.9), world.delay(peer, other))
        held = {c.node_id[0] >> 4: world.delay(peer, world.peers[c.node_id]) for c in table.row(0)}
        missing += len(nearest) - len(held)
        known += sum(held.values())
        ideal += sum(nearest[cell] for cell in held)
    return missing / len(world.alive()) / 15, known / ideal


def test_requests_for_any_row_are_answered() -> None:
    world = ring_of(5)
    peer, other = world.alive()[:2]
    said = overheard(world, Row)
    for row in (0, 31, 1 << 40):
        peer.overlay.receive(other.contact, RowRequest(row))
    assert len(said) == 3


def test_a_member_that_did_not_send_its_row_is_probed() -> None:
    world = ring_of(30)
    peer = world.alive()[0]
    beyond = [contact.node_id for contact in peer.overlay.routing_table if contact.node_id not in peer.overlay.leaf_set]
    asked = overheard(world, RowRequest)
    world.crash(world.peers[beyond[0]])
    world.checked = False
    while not any((sender, to) == (peer.me, beyond[0]) for sender, to, _ in asked):
        world.run(10)
    assert beyond[0] in peer.overlay.routing_table
    world.run(120)
    assert beyond[0] not in peer.overlay.routing_table


def test_announcements_are_added_to_the_tables_unless_out_of_bounds() -> None:
    world = ring_of(2)
    peer, _ = world.alive()
    stranger = Contact(from_number(number(peer.me) ^ (1 << 127)), "stranger:1")
    peer.overlay.receive(stranger, Announce(0.0001))
    assert stranger.node_id in peer.overlay.routing_table
    other = Contact(from_number(number(peer.me) ^ (1 << 126)), "other")
    peer.overlay.receive(other, Announce(float("nan")))
    assert other.node_id not in peer.overlay.routing_table
    for absurd in (-1.0, float("inf")):
        with pytest.raises(ValueError, match="Expected `float`"):
            CODEC.decode(CODEC.encode(Announce(absurd)))


def test_changes_of_the_leaf_set_are_traced() -> None:
    world = ring_of(3)
    a, b, c = world.alive()
    world.records.clear()
    world.crash(c)
    world.run(15)
    noted = [(me, record) for _, me, record in world.records if isinstance(record, LeafSetChanged)]
    assert sorted(noted) == [(a.me, LeafSetChanged((), (c.me,))), (b.me, LeafSetChanged((), (c.me,)))]
