"""Each part of the overlay alone: one input, then the messages sent and the effects yielded."""

from typing import Any

import pytest

from quillcast.core.messages import Contact, Message
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.agreement import Agreement, ProbesDue
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.effects import (
    Activate,
    FirstState,
    Introduced,
    JoinThrough,
    MembersChanged,
    SearchRing,
    Settled,
)
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.joinhelp import JoinHelp
from quillcast.protocol.overlay.joining import JoinLate, OverlayJoin, look_up
from quillcast.protocol.overlay.lazyrepair import LazyRepair
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.lostpeers import LostPeers, ProbeLost
from quillcast.protocol.overlay.messages import (
    Joined,
    JoinReply,
    JoinRequest,
    LeafSetProbe,
    LeafSetReply,
    MemberLost,
    Routed,
    RoutedAck,
    RowRequest,
    State,
    StateRequest,
)
from quillcast.protocol.overlay.neighbourhood import NeighbourhoodSet
from quillcast.protocol.overlay.nexthop import NextHop
from quillcast.protocol.overlay.router import Router
from quillcast.protocol.overlay.routes import Routes
from quillcast.protocol.overlay.routingtable import RoutingTable
from quillcast.protocol.overlay.seats import Seats
from quillcast.protocol.overlay.tables import Tables
from tests.protocol.overlay.world import CODEC, Note
from tests.protocol.recording import ALICE, BOB, CAROL, RecordingHost

CONFIG = OverlayConfig()


class Host(RecordingHost):
    """Answers measurements at once: every peer is ten milliseconds away."""

    def __init__(self) -> None:
        super().__init__()
        self.near: dict[bytes, float] = {}
        self.closed: list[bytes] = []

    def proximity(self, node: bytes) -> float | None:
        return self.near.get(node)

    def disconnect(self, node: bytes) -> None:
        self.closed.append(node)


class Above:
    """An application that records its upcalls."""

    def __init__(self) -> None:
        self.delivered: list[Any] = []

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        self.delivered.append(message)

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        return message, next_hop

    def leaf_set_changed(self) -> None: ...


class Parts:
    """The state of Alice, and the parts that maintain it."""

    def __init__(self) -> None:
        self.host, self.lifecycle = Host(), Lifecycle()
        self.neighbours = Neighbours(self.host, NeighbourConfig())
        self.leaf_set = LeafSet(ALICE.node_id, 4)
        self.table = RoutingTable(ALICE.node_id, CONFIG.digit_bits)
        self.neighbourhood = NeighbourhoodSet(4)
        self.tables = Tables(self.leaf_set, self.table, self.neighbourhood)
        self.links, self.repair = IdleLinks(self.neighbours), LazyRepair(self.host, self.table)
        self.distances = Distances(self.host, self.neighbours, self.table)
        self.acquaintances: dict[str, Contact] = {}
        self.lost_peers = LostPeers(self.host, CONFIG, self.lifecycle, self.leaf_set)

    def agreement(self) -> Agreement:
        return Agreement(
            self.host, CONFIG, self.neighbours, self.tables, self.lost_peers, self.distances, self.lifecycle
        )

    def joining(self) -> OverlayJoin:
        return OverlayJoin(
            self.host, CONFIG, self.lifecycle, self.leaf_set, self.distances, self.links, self.acquaintances
        )

    def help(self) -> JoinHelp:
        return JoinHelp(self.host, self.lifecycle, self.tables, self.links, (CAROL,))

    def router(self, above: Above) -> Router:
        next_hop = NextHop(ALICE, CONFIG.digit_bits, self.tables, self.neighbours.suspected)
        routes = Routes(next_hop, Seats(self.host, self.neighbours, CONFIG.keep_alive_s))
        rest = self.distances, self.repair, self.links, self.help()
        router = Router(self.host, CONFIG, CODEC, self.lifecycle, routes, *rest)
        router.application = above
        return router


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_a_peer_without_contacts_is_the_first(parts: Parts) -> None:
    assert list(parts.joining().start([])) == [Activate()]


def test_a_near_contact_is_asked_for_its_peers_before_joining_through_it(parts: Parts) -> None:
    parts.host.near[BOB.node_id] = 0.01
    joining = parts.joining()
    assert list(joining.start([BOB])) == []
    assert parts.host.sent == [(BOB, StateRequest())]
    assert list(joining.state(BOB, State(True, (), (), ()))) == [JoinThrough(BOB, JoinRequest(ALICE, 1))]


def test_peers_that_spoke_to_this_one_are_tried_too(parts: Parts) -> None:
    parts.acquaintances[CAROL.address] = CAROL
    parts.host.near |= {BOB.node_id: 0.02, CAROL.node_id: 0.01}
    list(parts.joining().start([BOB]))
    assert parts.host.sent == [(CAROL, StateRequest())]


def test_measurements_of_peers_have_one_time_out_that_each_answer_prolongs(parts: Parts) -> None:
    def late() -> list[JoinLate]:
        return [timer for timer, _ in parts.host.timers if isinstance(timer, JoinLate)]

    joining, others = parts.joining(), [Contact(bytes([number]) * 16, f"{number}") for number in range(1, 6)]
    list(joining.start([BOB, CAROL, *others]))
    before = len(late())
    for contact in (BOB, *others):
        parts.host.near[contact.node_id] = 0.01
        list(joining.measured(contact))
        parts.host.time += CONFIG.join_timeout_s / 8
    timers = late()
    assert len(timers) == before + 1
    assert list(joining.late(timers[-1])) == []
    assert (late(), parts.host.sent) == ([*timers, timers[-1]], []), "it still waits for Carol"
    parts.host.time += CONFIG.join_timeout_s / 4
    list(joining.late(timers[-1]))
    assert parts.host.sent == [(others[0], StateRequest())]


def test_the_answer_to_a_join_request_is_the_first_state(parts: Parts) -> None:
    parts.host.near[BOB.node_id] = 0.01
    joining = parts.joining()
    list(joining.start([BOB]))
    assert list(joining.reply(CAROL, JoinReply(1, (CAROL,), ()))) == [FirstState((CAROL,), (BOB,))]
    assert list(joining.reply(CAROL, JoinReply(7, (CAROL,), ()))) == [], "the reply belongs to another attempt"


def test_an_active_peer_that_looks_up_its_place_is_introduced(parts: Parts) -> None:
    parts.lifecycle.activate()
    attempt = look_up(ALICE).attempt
    assert list(parts.joining().reply(BOB, JoinReply(attempt, (CAROL,), ()))) == [Introduced((CAROL,))]


def test_contacts_that_never_answered_are_returned_on_activation(parts: Parts) -> None:
    joining = parts.joining()
    list(joining.start([BOB, CAROL]))
    parts.host.near[CAROL.node_id] = 0.01
    assert joining.done() == [BOB]


def test_the_time_out_of_an_earlier_attempt_is_ignored(parts: Parts) -> None:
    joining = parts.joining()
    list(joining.start([BOB]))
    assert list(joining.late(JoinLate(0, 0))) == []


def test_a_prober_gets_a_reply_and_becomes_a_member(parts: Parts) -> None:
    agreement = parts.agreement()
    assert list(agreement.probed(BOB, LeafSetProbe(()))) == [MembersChanged()]
    assert parts.host.sent == [(BOB, LeafSetReply((), joining=True))]
    assert list(agreement.probed(BOB, LeafSetProbe(()))) == [], "it is a member already"


def test_the_leaf_set_is_settled_by_the_last_reply(parts: Parts) -> None:
    agreement = parts.agreement()
    agreement.consider((BOB, CAROL))
    assert list(agreement.replied(BOB, LeafSetReply(()))) == [MembersChanged()]
    assert list(agreement.replied(CAROL, LeafSetReply(()))) == [MembersChanged(), Settled()]


def test_a_lost_member_is_reported_and_its_side_repaired(parts: Parts) -> None:
    agreement = parts.agreement()
    for contact in (BOB, CAROL):
        list(agreement.probed(contact, LeafSetProbe(())))
    parts.host.sent.clear()
    assert list(agreement.lost(CAROL)) == [MembersChanged()]
    assert parts.host.sent == [(BOB, MemberLost(CAROL.node_id)), (BOB, LeafSetProbe((BOB,), joining=True))]


def test_a_joining_member_learns_of_a_loss_that_others_already_know(parts: Parts) -> None:
    agreement, dave = parts.agreement(), Contact(b"d" * 16, "dave")
    for contact, joining in ((BOB, False), (CAROL, False), (dave, True)):
        list(agreement.probed(contact, LeafSetProbe((), joining=joining)))
    list(agreement.loss_reported(BOB, MemberLost(CAROL.node_id)))
    parts.host.sent.clear()
    list(agreement.lost(CAROL))
    assert [(to, it) for to, it in parts.host.sent if isinstance(it, MemberLost)] == [(dave, MemberLost(CAROL.node_id))]


def test_a_peer_that_is_reported_lost_is_probed_once_more(parts: Parts) -> None:
    agreement = parts.agreement()
    agreement.consider((BOB,))
    list(agreement.loss_reported(CAROL, MemberLost(BOB.node_id)))
    for _ in range(2):
        parts.host.time += 60.0
        list(agreement.due(ProbesDue()))
    assert agreement.settled


def test_a_member_is_no_longer_joining_after_it_says_so(parts: Parts) -> None:
    agreement = parts.agreement()
    assert list(agreement.probed(BOB, LeafSetProbe((), joining=True))) == [MembersChanged()]
    assert list(agreement.probed(BOB, LeafSetProbe((), joining=True))) == []
    assert list(agreement.joining) == [BOB.node_id]
    assert list(agreement.replied(BOB, LeafSetReply(()))) == [MembersChanged(), Settled()]
    assert not agreement.joining


def test_a_member_that_joins_again_counts_as_joining_until_it_is_active(parts: Parts) -> None:
    agreement = parts.agreement()
    list(agreement.probed(BOB, LeafSetProbe(())))
    assert list(agreement.probed(BOB, LeafSetProbe((), joining=True))) == []
    assert list(agreement.joining) == [BOB.node_id]
    assert list(agreement.member_joined(BOB, Joined())) == [MembersChanged()]
    assert list(agreement.member_joined(BOB, Joined())) == []
    assert not agreement.joining


def test_a_member_that_another_should_know_and_does_not_is_probed(parts: Parts) -> None:
    agreement = parts.agreement()
    for contact in (BOB, CAROL):
        list(agreement.replied(contact, LeafSetReply(())))
    parts.lifecycle.activate()
    parts.host.sent.clear()
    parts.host.time += CONFIG.keep_alive_s
    list(agreement.probed(BOB, LeafSetProbe((parts.host.contact, CAROL))))
    assert [to for to, message in parts.host.sent if isinstance(message, LeafSetProbe)] == []
    list(agreement.probed(BOB, LeafSetProbe((parts.host.contact,))))
    assert [to for to, message in parts.host.sent if isinstance(message, LeafSetProbe)] == [CAROL]


def test_a_member_that_has_just_told_its_leaf_set_is_not_probed_for_each_set_that_lacks_it(parts: Parts) -> None:
    agreement = parts.agreement()
    parts.lifecycle.activate()
    for contact in (BOB, CAROL):
        list(agreement.replied(contact, LeafSetReply((parts.host.contact, BOB, CAROL))))

    def probed_for(leaf_set: tuple[Contact, ...]) -> list[Contact]:
        parts.host.sent.clear()
        list(agreement.probed(BOB, LeafSetProbe(leaf_set)))
        return [to for to, message in parts.host.sent if isinstance(message, LeafSetProbe)]

    assert probed_for((parts.host.contact,)) == []
    list(agreement.probed(Contact(b"d" * 16, "dave"), LeafSetProbe((parts.host.contact, BOB, CAROL))))
    assert probed_for((parts.host.contact,)) == [CAROL], "it may not know the new member, which has just told its own"


def test_an_active_peer_tells_its_leaf_set(parts: Parts) -> None:
    agreement = parts.agreement()
    list(agreement.probed(BOB, LeafSetProbe(())))
    parts.host.sent.clear()
    agreement.activate()
    assert parts.host.sent == [(BOB, Joined())]


def test_a_peer_that_lost_its_last_member_searches_the_ring(parts: Parts) -> None:
    agreement = parts.agreement()
    list(agreement.probed(BOB, LeafSetProbe(())))
    parts.table.remove(BOB.node_id)
    assert list(agreement.lost(BOB)) == [MembersChanged(), SearchRing(), Settled()]


def test_an_active_peer_without_members_searches_the_ring_while_it_probes_lost_peers(parts: Parts) -> None:
    parts.lost_peers.remember(BOB)
    assert list(parts.lost_peers.due(ProbeLost())) == [], "it is still joining"
    parts.lifecycle.activate()
    assert list(parts.lost_peers.due(ProbeLost())) == [SearchRing()]
    assert parts.host.sent == [(BOB, LeafSetProbe((), joining=joining)) for joining in (True, False)]


def test_a_joining_peer_answers_with_its_contacts_and_an_active_one_with_known_peers(parts: Parts) -> None:
    help_ = parts.help()
    help_.requested(BOB, StateRequest())
    parts.lifecycle.activate()
    parts.leaf_set.add(BOB)
    help_.requested(BOB, StateRequest())
    assert parts.host.sent == [(BOB, State(False, (CAROL,), (), ())), (BOB, State(True, (BOB,), (), ()))]


def test_the_closest_peer_answers_a_joiner_with_its_leaf_set(parts: Parts) -> None:
    parts.leaf_set.add(BOB)
    parts.help().answer(JoinRequest(CAROL, 3))
    assert parts.host.sent == [(CAROL, JoinReply(3, (ALICE, BOB), (ALICE,)))]


def test_a_message_for_this_peer_is_acknowledged_and_delivered_once(parts: Parts) -> None:
    above, note = Above(), Note("note")
    router = parts.router(above)
    parts.lifecycle.activate()
    for _ in range(2):
        router.accept(BOB, Routed(ALICE.node_id, CAROL, 1, 2, CODEC.encode(note)))
    assert above.delivered == [note]
    assert parts.host.sent == [(BOB, RoutedAck(CAROL.node_id, 1))] * 2


def test_the_row_of_an_empty_cell_is_requested_once_per_round(parts: Parts) -> None:
    for _ in range(2):
        parts.repair.request_row(bytes(16), BOB)
    assert parts.host.sent == [(BOB, RowRequest(0))]
    parts.repair.end_round()
    parts.repair.request_row(bytes(16), BOB)
    assert len(parts.host.sent) == 2


def test_a_link_that_is_unused_for_a_round_is_released(parts: Parts) -> None:
    parts.links.visited(BOB.node_id)
    parts.links.end_round()
    assert parts.host.closed == []
    parts.links.end_round()
    assert parts.host.closed == [BOB.node_id]


def test_the_next_hop_is_the_closest_member_if_the_leaf_set_covers_the_key(parts: Parts) -> None:
    next_hop = NextHop(ALICE, 4, parts.tables, lambda node_id: False)
    assert next_hop.to(BOB.node_id) is None, "no other peer is known"
    parts.leaf_set.add(BOB)
    assert next_hop.to(BOB.node_id) == BOB
    assert next_hop.to(BOB.node_id, but=(BOB.node_id,)) is None
    assert next_hop.closest(CAROL.node_id, 2) == [BOB, ALICE]
