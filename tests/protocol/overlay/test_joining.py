"""How peers join the ring."""

import pytest

from quillcast.core.errors import LocalError, NotJoined
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Activated
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.messages import (
    JoinReply,
    JoinRequest,
    LeafSetDigest,
    LeafSetReply,
    Routed,
    State,
    StateRequest,
)
from quillcast.protocol.peer import Peer
from quillcast.sim.host import SimHost
from tests.protocol.overlay.world import CODEC, Note, TestPeer, World, ring_of, spread
from tests.protocol.topics.village import Village


def test_the_first_peer_is_active_at_once() -> None:
    world = World()
    assert world.join(contacts=[]).overlay.active
    assert world.wrong() == []


def test_a_peer_that_is_its_own_only_contact_is_the_first() -> None:
    world = World()
    peer = world.add()
    peer.overlay.join([peer.contact])
    assert peer.overlay.active


@pytest.mark.parametrize("count", [2, 3, 4, 9, 17, 18, 40])
@pytest.mark.parametrize(("digit_bits", "leaf_set_size"), [(4, 16), (1, 2), (1, 4)])
def test_rings_of_every_size_agree(count: int, digit_bits: int, leaf_set_size: int) -> None:
    world = World(count, OverlayConfig(digit_bits=digit_bits, leaf_set_size=leaf_set_size))
    for _ in range(count):
        world.join()
        world.run(0.2)
    world.run(10)
    assert world.wrong() == []
    for text in range(30):
        key = world.random.randbytes(16)
        world.route(world.random.choice(world.alive()), key, str(text))
        world.run(3)
        assert world.receivers(str(text)) == [world.closest(key)]


def test_peers_that_join_at_once_through_one_contact_form_a_correct_ring() -> None:
    world = World(3)
    first = world.join()
    for _ in range(30):
        world.join(contacts=[first.contact])
    world.run(20)
    assert world.wrong() == []


def test_a_ring_at_rest_keeps_nothing_of_its_joins() -> None:
    world = ring_of(8)
    world.run(30)
    for peer in world.alive():
        join, agreement, maintenance = peer.overlay.joining, peer.overlay.agreement, peer.overlay.maintenance
        of_the_join = (join._met, join._measuring, join._inactive, join._outside, join._failures)
        assert all(each is EMPTY for each in (*of_the_join, agreement._probes, maintenance._measuring))


def test_a_peer_is_not_active_before_every_member_has_answered() -> None:
    world = ring_of(8)
    mute = world.alive()[3]
    late: list[bytes] = []
    send = world.send

    def without_its_answers(sender: TestPeer, to: Contact, wire: bytes) -> None:
        if sender is mute and to == joiner.contact and isinstance(CODEC.decode(wire), LeafSetReply):
            late.append(wire)
        else:
            send(sender, to, wire)

    world.send = without_its_answers  # type: ignore[method-assign]
    joiner = world.join()
    world.run(1.2)
    assert len(late) >= 1
    assert not joiner.overlay.active
    assert len(joiner.overlay.leaf_set) == 7, "all the others"
    world.send = send  # type: ignore[method-assign]
    world.run(4)
    assert joiner.overlay.active


def test_messages_for_a_joining_peer_wait_until_it_is_active() -> None:
    world = ring_of(4)
    joiner = world.add()
    joiner.message((world.alive()[0].contact, CODEC.encode(Routed(joiner.me, world.alive()[0].contact, 1, 1, NOTE))))
    assert joiner.delivered == []
    world.run(2)
    joiner.overlay.join([world.alive()[0].contact])
    joiner.overlay.route(Note("own"), joiner.me)
    world.run(5)
    assert [text for text, _ in joiner.delivered] == ["held", "own"]
    first, second = joiner.waited_s
    assert second > 0.0, "they know for how long"
    assert first == pytest.approx(second + 2.0)


NOTE = CODEC.encode(Note("held"))


def test_the_number_of_messages_that_wait_for_activation_is_bounded() -> None:
    world = World(config=OverlayConfig(held_max=3))
    peer = world.add()
    for number in range(3):
        peer.overlay.route(Note("x"), bytes([number]) * 16)
    with pytest.raises(NotJoined, match="3 messages already wait"):
        peer.overlay.route(Note("x"), bytes(16))
    for number in range(5):
        peer.message((peer.contact, CODEC.encode(Routed(bytes(16), peer.contact, number, 1, NOTE))))
    peer.overlay.check()


def test_a_join_request_is_not_held_by_a_joining_peer() -> None:
    """Two peers that wait for each other's answer would wait forever."""
    world = World()
    peer, other = world.add(), world.add()
    request = CODEC.encode(JoinRequest(other.contact, 1))
    peer.message((other.contact, CODEC.encode(Routed(other.me, other.contact, 1, 1, request))))
    peer.overlay.join([])
    world.run(5)
    assert world.routed("JoinRequest") == []


def test_neighbours_that_restart_together_do_not_wait_for_each_other() -> None:
    world = ring_of(12)
    for peer in world.alive()[3:6]:
        world.restart(peer)
    world.run(60)
    assert world.wrong() == []


def test_a_peer_joins_through_the_nearest_peer_it_finds() -> None:
    world = World(5)
    for place in range(40):
        world.join(place=place / 40)
        world.run(1)
    far, farther = world.at_place(0.975), world.at_place(0.8)
    asked: list[str] = []
    joiner = world.join(contacts=[far.contact, farther.contact], place=0.012)
    joiner.asked = asked
    world.run(10)
    assert asked[0] == farther.contact.address, "the nearer of the two"
    via = world.peers[bytes.fromhex(asked[-1].removeprefix("at "))]
    assert via.place < 0.1, "it joined through a near peer"
    assert world.wrong() == []


def test_joins_succeed_despite_message_loss() -> None:
    world = World(8, loss=0.3)
    first = world.join(contacts=[])
    for _ in range(12):
        world.join(contacts=[first.contact])
        world.run(1)
    world.run(120)
    world.loss = 0
    world.run(120)
    assert world.marks["join_retry"] > 0
    assert world.wrong() == []


def test_a_join_request_is_repeated_while_an_attempt_lasts() -> None:
    world, lost = ring_of(5), list[JoinReply]()
    send = world.send

    def lose_three_answers(sender: TestPeer, to: Contact, wire: bytes) -> None:
        message = CODEC.decode(wire)
        if isinstance(message, JoinReply) and len(lost) < 3:
            lost.append(message)
        else:
            send(sender, to, wire)

    world.send = lose_three_answers  # type: ignore[method-assign]
    joiner = world.join()
    world.run(12)
    assert len(lost) == 3
    assert joiner.overlay.active, "three attempts alone would have taken 16 s or more"


def test_a_state_request_is_repeated_while_an_attempt_lasts() -> None:
    world, lost = ring_of(5), list[State]()
    send = world.send

    def lose_two_answers(sender: TestPeer, to: Contact, wire: bytes) -> None:
        message = CODEC.decode(wire)
        if isinstance(message, State) and len(lost) < 2:
            lost.append(message)
        else:
            send(sender, to, wire)

    world.send = lose_two_answers  # type: ignore[method-assign]
    joiner = world.join()
    world.run(7.5)
    assert len(lost) == 2
    assert joiner.overlay.active, "two attempts alone would have taken 8 s or more"


def test_a_joining_peer_whose_contacts_are_dead_tries_peers_that_spoke_to_it() -> None:
    world = ring_of(5)
    contact, other = world.alive()[:2]
    joiner = world.add()
    joiner.overlay.join([contact.contact])
    world.crash(contact)
    world.run(5)
    other.send(joiner.contact, StateRequest())
    world.run(20)
    assert joiner.overlay.active


def test_a_peer_whose_address_another_one_has_taken_is_forgotten() -> None:
    world = ring_of(1)
    first, former, latter = world.alive()[0], world.join(), world.add()
    world.run(5.0)
    assert former.contact.address in first.overlay.acquaintances
    former.overlay.leave()
    world.run(0.5)
    world.crash(former)
    latter.contact = Contact(latter.me, former.contact.address)
    latter.overlay.join([first.contact])
    world.run(5.0)
    assert list(first.overlay.acquaintances.values()) == [latter.contact]


def test_a_peer_remembers_the_last_senders_of_two_leaf_sets() -> None:
    peer = ring_of(1).alive()[0]
    senders = [Contact(bytes([number] * 16), f"peer {number}") for number in range(40)]
    for sender in senders:
        peer.overlay.receive(sender, LeafSetDigest(b""))
    assert list(peer.overlay.acquaintances.values()) == senders[-32:]


def test_a_dead_contact_is_skipped() -> None:
    world = ring_of(5)
    dead, alive = world.alive()[0], world.alive()[1]
    world.crash(dead)
    joiner = world.join(contacts=[dead.contact, alive.contact])
    world.run(30)
    assert joiner.overlay.active


def test_a_contact_that_dies_after_its_measurement_is_skipped() -> None:
    world = ring_of(6)
    near, alive = world.alive()[:2]
    joiner = world.add(place=near.place)
    joiner.known[near.me] = 0.0
    world.crash(near)
    joiner.overlay.join([near.contact, alive.contact])
    world.run(30)
    assert joiner.overlay.active
    assert "join_retry" in world.marks


def test_a_contact_whose_link_breaks_is_asked_no_longer_than_a_time_out() -> None:
    world = ring_of(6)
    *dead, alive = world.alive()[:5]
    joiner, send = world.add(place=dead[0].place), world.send
    for peer in dead:
        joiner.known[peer.me] = 0.0  # measured before it died
        world.crash(peer)

    def refuse(sender: TestPeer, to: Contact, wire: bytes) -> None:
        if to in [peer.contact for peer in dead]:
            sender.overlay.link_lost(to)
        send(sender, to, wire)

    world.send = refuse  # type: ignore[method-assign]
    joiner.overlay.join([*(peer.contact for peer in dead), alive.contact])
    world.run(18)
    assert joiner.overlay.active, "the patience of four attempts takes 22 s or more"


class Told(Village):
    """Each new peer knows all others, as on one machine."""

    def _start(self, host: SimHost) -> Peer:
        peer = self.peers[host.machine.number] = Peer(host, self.config)
        contacts = [machine.contact for machine in self.world.machines if machine is not host.machine]
        self.world.at(self.world.now, lambda _: host.act(lambda: peer.join(contacts)), None)
        return peer


def test_a_peer_joins_quickly_although_some_contacts_are_paused() -> None:
    village = Told(8)
    village.run(10)
    for number in (2, 5):
        host = village.world.machines[number].host
        assert host is not None
        host.pause()
    village.run(20)
    newcomer = village.world.add(None)
    village.world.start(newcomer)
    village.run(5)
    assert village.peers[newcomer.number].overlay.active


def test_after_one_measurement_a_peer_does_not_wait_long_for_the_others() -> None:
    village = Village(6)
    village.run(10)
    for number in range(1, 6):
        host = village.world.machines[number].host
        assert host is not None
        host.pause()
    newcomer = village.world.add(None)
    village.world.start(newcomer)
    joining = village.peers[newcomer.number].overlay.joining
    village.run(0.5)
    assert len(joining._measuring) == 5, "the paused peers that its contact knows"
    village.run(village.config.overlay.join_timeout_s / 4)
    assert not joining._measuring
    assert joining._near is not None


def test_a_network_whose_peers_all_start_at_once_forms() -> None:
    world = World(11)
    peers = [world.add() for _ in range(6)]
    for index, peer in enumerate(peers):  # each knows the next one only, and none is active
        peer.overlay.join([peers[(index + 1) % 6].contact])
    world.run(120)
    assert world.marks["cold_start"] >= 1
    assert world.wrong() == []


def test_a_peer_restarts_with_the_contacts_it_remembered() -> None:
    world = ring_of(30)
    peer = world.alive()[7]
    before = {contact.node_id for contact in peer.overlay.leaf_set}
    remembered = peer.overlay.remembered()
    assert before <= {contact.node_id for contact in remembered}
    assert len(remembered) <= world.config.remembered_max
    world.crash(peer)
    world.run(30)
    again = world.join(peer.me, remembered, peer.place)
    world.run(10)
    assert again.overlay.active
    assert {contact.node_id for contact in again.overlay.leaf_set} == before
    assert world.wrong() == []


def test_a_peer_that_restarts_at_another_address_is_found_there() -> None:
    world = ring_of(12)
    peer = world.alive()[7]
    world.crash(peer)
    moved = world.add(peer.me, peer.place)
    moved.contact = Contact(peer.me, "elsewhere")
    moved.overlay.join([world.alive()[0].contact])
    world.run(30)
    assert world.wrong() == []
    for other in world.alive():
        known = [*other.overlay.leaf_set, *other.overlay.routing_table, *other.overlay.neighbourhood]
        assert {contact.address for contact in known if contact.node_id == peer.me} <= {"elsewhere"}


def test_a_peer_that_never_became_active_remembers_its_contacts() -> None:
    world = World()
    peer = world.add()
    there = [Contact(bytes([n]) * 16, f"at {n}") for n in range(3)]
    peer.overlay.join(there)
    assert peer.overlay.remembered() == there


def test_an_inactive_peer_answers_with_its_own_contacts() -> None:
    world = World()
    peer = world.add()
    other = Contact(b"o" * 16, "other")
    peer.overlay.join([other])
    world.run(0.1)
    sent: list[State] = []
    peer.send = lambda to, message: sent.append(message)  # type: ignore[method-assign, assignment]
    peer.overlay.join_help.requested(other, None)  # type: ignore[arg-type]
    assert sent == [State(False, (other,), (), ())]


def test_activation_is_traced_with_the_size_of_the_leaf_set() -> None:
    world = ring_of(5)
    noted = [record.leaf_set for _, _, record in world.records if isinstance(record, Activated)]
    assert noted == [0, 1, 2, 3, 4]


def test_a_ring_of_evenly_spaced_ids_forms() -> None:
    world = World(1, OverlayConfig(digit_bits=1, leaf_set_size=2))
    for node_id in spread(16, bits=4):
        world.join(node_id)
        world.run(1)
    world.run(10)
    assert world.wrong() == []


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(LocalError, match=r"digit_bits is 3; use 1, 2, 4 or 8"):
        OverlayConfig(digit_bits=3)
    with pytest.raises(LocalError, match="leaf_set_size is 5; use an even number"):
        OverlayConfig(leaf_set_size=5)


def test_nobody_counts_as_joining_once_it_has_joined() -> None:
    world = ring_of(12)
    assert not any(peer.overlay.agreement.joining for peer in world.alive())
