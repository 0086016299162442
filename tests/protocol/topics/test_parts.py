"""Parts of the topics layer by themselves: one input, then what was sent, set, and ordered of parts above."""

from typing import Any

import msgspec
import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, NO_TERM, OF_SOURCES, UP, Envelope, Position, Term
from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.membership.membership import JoinTimeout
from quillcast.protocol.topics.messages import (
    Accepted,
    Closed,
    Create,
    CutLeases,
    FindRoot,
    Join,
    Leave,
    NotRoot,
    Orphaned,
    Receipts,
    Recorded,
    RecordState,
    Refused,
    Rejoin,
    RootIs,
    StateAnswer,
    StateDigest,
    StateQuery,
    StillOpen,
    StreamsEnded,
    Survey,
    TopicEntry,
    TransferLeadership,
)
from quillcast.protocol.topics.root.admissions import Admissions
from quillcast.protocol.topics.root.intake import Acknowledge, Seal
from quillcast.protocol.topics.root.replication import RivalDue
from quillcast.protocol.topics.state.admitter import PublisherState
from quillcast.protocol.topics.state.cut import Cut
from quillcast.protocol.topics.state.effects import (
    AllStable,
    AwaitRoot,
    BecomeRoot,
    FindParent,
    GapNoticed,
    LeaseEnded,
    LeaveIfIdle,
    NeighbourLost,
    Outdone,
    ParentAccepted,
    PlaceTaken,
    RefuseRequest,
    Resign,
    RoomAgain,
    RootHere,
)
from quillcast.protocol.topics.state.flow_control import FlowControl, PatienceOver
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.link_reports import ChildReport, ParentReport, encode
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.replica_set import ReplicaSet
from quillcast.protocol.topics.state.schedule import HousekeepingDue, ReportDue
from quillcast.protocol.topics.state.scribe_tree import ScribeTree
from quillcast.protocol.topics.state.sources import NO_SOURCES
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.successors import Successors
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, WEATHER, Notes, block, down, up
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts


@pytest.fixture
def world() -> Parts:
    return Parts()


# ---- small tables


def test_a_touched_topic_is_reported_at_once_and_then_at_its_rate(world: Parts) -> None:
    tree = world.tree()
    world.schedule.touch(tree)
    world.schedule.touch(tree)
    assert world.host.timers == [(ReportDue(), 0.0)]
    assert world.schedule.take() == [tree.topic]
    assert world.schedule.take() == []
    world.schedule.touch(tree)
    assert world.host.timers[1:] == [(ReportDue(), CONFIG.report_s)]


def test_a_topic_that_is_forgotten_is_not_reported(world: Parts) -> None:
    tree = world.tree()
    world.schedule.touch(tree)
    world.schedule.forget(tree)
    assert world.schedule.take() == []


def test_one_timer_serves_all_topics_that_are_due(world: Parts) -> None:
    world.schedule.wake(world.tree())
    world.schedule.begin()
    world.schedule.begin()
    assert world.host.timers == [(HousekeepingDue(), CONFIG.housekeeping_s)]
    world.schedule.stop()
    world.schedule.begin()
    assert world.timers == [HousekeepingDue()] * 2


def test_a_former_root_remembers_the_latest_successors_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.protocol.topics.state.successors.TOPICS_MAX", 2)
    successors = Successors()
    for topic in (b"1", b"2", b"1", b"3"):
        successors.note(topic, BOB)
    assert list(successors.by_topic) == [b"1", b"3"]
    successors.forget(b"1")
    assert (successors.of(b"1"), successors.of(b"3")) == (None, BOB)


def test_an_answer_goes_straight_and_over_the_overlay_when_it_is_asked_for_again(world: Parts) -> None:
    answers, message = Answers(world.host, world.ring, world.dispatch), NotRoot(WEATHER, None)
    heard: list[Contact] = []
    world.dispatch.on_message(NotRoot, lambda sender, _: heard.append(sender))
    answers.tell(BOB, message, again=False)
    answers.tell(BOB, message, again=True)
    answers.tell(ALICE, message, again=True)
    assert world.host.sent == [(BOB, message), (BOB, message)]
    assert world.ring.routed == [(message, BOB.node_id)]
    assert heard == [ALICE]
    world.ring.seats = {WEATHER: None}
    answers.tell(BOB, message, again=True)
    assert world.ring.routed == [(message, BOB.node_id)], "what is rooted at a scope stays there"


def test_children_of_a_root_are_named_the_next_root_and_their_siblings(world: Parts) -> None:
    placement, tree = Placement(ALICE.node_id, world.ring, ScribeTree(16, 3)), world.root()
    world.child(tree, CAROL)
    world.child(tree, BOB)
    assert placement.stand_ins(tree) == (BOB, CAROL)


def test_children_of_a_forwarder_are_named_their_grandparent_first() -> None:
    world = Parts()
    tree = world.tree()
    tree.parent = CAROL
    world.child(tree, BOB)
    assert Placement(ALICE.node_id, world.ring, ScribeTree(16, 3)).stand_ins(tree) == (CAROL, BOB)
    assert Placement(ALICE.node_id, world.ring, ScribeTree(16, 1)).stand_ins(tree) == (CAROL,)


# ---- terms


@pytest.fixture
def terms(world: Parts) -> Terms:
    return world.terms


def test_a_root_that_learns_of_a_later_term_is_outdated(world: Parts, terms: Terms) -> None:
    tree = world.root()
    terms.heard_of(tree, FIRST)
    assert world.ordered == []
    terms.heard_of(tree, SECOND)
    assert world.ordered == [Outdone(tree)]
    assert tree.heard == SECOND


def test_a_peer_that_is_not_root_only_records_a_later_term(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.heard_of(tree, SECOND)
    assert (tree.heard, world.ordered) == (SECOND, [])


def test_a_new_term_is_reported_and_the_one_before_it_is_kept_to_its_end(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 0)
    tree.inherited = Position(FIRST, 7)
    terms.enter(tree, SECOND, 0)
    assert (tree.term, tree.flow.past[FIRST].end) == (SECOND, 7)
    assert world.timers == [ReportDue()]


def test_a_peer_stays_in_the_tree_for_a_term_that_is_over(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    assert not tree.needed
    terms.keep(tree)
    assert tree.needed
    assert list(world.schedule.due) == [tree.topic]


def test_peers_without_sources_share_an_object_that_none_of_them_can_write_to() -> None:
    with pytest.raises(TypeError, match="served"):
        NO_SOURCES.served = False
    with pytest.raises(TypeError):
        NO_SOURCES.milestones[STREAM] = Milestones()
    assert NO_SOURCES.served


# ---- flow control


@pytest.fixture
def flow_control(world: Parts) -> FlowControl:
    return world.flow_control


def fill(world: Parts, tree: Tree, events: int = 3) -> None:
    """The tree keeps as much as the whole budget, and a byte more."""
    for index in range(events):
        tree.flow.move(down(FIRST, index, block(PAUL, index)), tree.flow.current)
    world.budget.limit_bytes = world.budget.used_bytes - 1


def test_credit_goes_back_at_once_while_there_is_room(world: Parts, flow_control: FlowControl) -> None:
    flow_control.release(BOB.node_id, 10)
    assert world.host.released == [(BOB.node_id, 10)]


def test_credit_is_held_back_while_the_buffers_are_over_their_budget(world: Parts, flow_control: FlowControl) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    flow_control.release(BOB.node_id, 10)
    assert world.host.released == []
    assert world.timers == [PatienceOver()]
    world.budget.limit_bytes *= 2
    flow_control.relieved()
    assert world.host.released == [(BOB.node_id, 10)]


def test_full_buffers_take_a_repair_whatever_was_in_transit_when_they_filled_up(
    world: Parts, flow_control: FlowControl
) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    world.budget.limit_bytes = world.budget.used_bytes - CONFIG.window_bytes - 10
    assert not flow_control.takes_repairs
    flow_control.release(BOB.node_id, 10)
    assert flow_control.takes_repairs


def test_full_buffers_return_the_credit_of_what_publishers_send_that_are_held_back(
    world: Parts, flow_control: FlowControl
) -> None:
    """What an earlier root admitted fills a gap as a repair does, and full buffers may wait for just that."""
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    flow_control.release_admitted(BOB.node_id, 10, tree.topic)
    assert world.host.released == []
    flow_control.held_back[tree.topic] = None
    flow_control.release_admitted(BOB.node_id, 11, tree.topic)
    assert world.host.released == [(BOB.node_id, 11)]


def test_full_buffers_discard_copies_although_a_repair_filled_them(world: Parts) -> None:
    tree = world.root()
    tree.root = None
    fill(world, tree)
    world.arrivals.taken(BOB.node_id, down(FIRST, 3, block(PAUL, 3)), is_due=True)
    assert Mark("shed_copies") in world.host.records
    assert not world.budget.over


def test_the_peer_that_a_term_was_transferred_to_discards_only_what_is_stable(world: Parts) -> None:
    tree = world.root()
    tree.root, tree.inherited = None, Position(tree.term, 3)
    fill(world, tree)
    tree.flow.current.stable = 1
    tree.shed(0.0, 0, tree.term)
    assert tree.flow.earliest == 1


def test_when_patience_is_over_the_lease_that_holds_back_the_most_is_cut(
    world: Parts, flow_control: FlowControl
) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    flow_control.hold_back()
    world.host.time = CONFIG.patience_s
    world.dispatch.timer(PatienceOver())
    assert child.cut is not None
    assert LeaseEnded(tree) in world.ordered
    assert Mark("lease_cut") in world.host.records


def test_a_child_that_keeps_up_itself_is_asked_to_cut_those_below_it(world: Parts, flow_control: FlowControl) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    child.frontier = tree.frontier
    cut = CutLeases(tree.topic, FIRST, tree.frontier)
    world.dispatch.message(CAROL, cut)
    assert not world.host.sent, "it is not the parent"
    tree.parent = BOB
    world.dispatch.message(BOB, cut)
    assert world.host.sent == [(CAROL, CutLeases(tree.topic, FIRST, tree.frontier))]
    assert child.cut is None


def test_a_child_whose_reports_lag_behind_an_admission_is_not_considered_slow(
    world: Parts, flow_control: FlowControl
) -> None:
    """No child reports what was admitted just now. If it moved on lately, whoever holds back is below it."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    flow_control.hold_back()
    world.host.time = CONFIG.patience_s
    child.note_report(ChildReport(FIRST, 0, FIRST, frontier=tree.frontier - 1))
    world.dispatch.timer(PatienceOver())
    assert world.host.sent == [(CAROL, CutLeases(tree.topic, FIRST, tree.frontier))]
    assert child.cut is None


def test_those_below_are_told_while_a_topic_that_waits_holds_its_publishers_back(
    world: Parts, flow_control: FlowControl
) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    fill(world, tree)
    flow_control.hold_back_publishers(tree)
    assert tree.topic in world.schedule.held_back
    assert tree.topic in world.schedule.dirty
    world.budget.limit_bytes *= 4
    flow_control.relieved()
    assert tree.topic not in world.schedule.held_back
    world.host.time += 9
    assert world.schedule.held_back.lately(tree.topic, 10.0)
    world.host.time += 1
    assert not world.schedule.held_back.lately(tree.topic, 10.0)


def test_publishers_of_a_topic_without_room_are_told_and_their_credit_goes_back(world: Parts) -> None:
    """Other topics use the same link: a topic that waits must not keep its credit."""
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    intake = world.intake
    intake.up(BOB, Bundle(Envelope(tree.topic, UP), (block(PAUL, 0),)))
    world.budget.limit_bytes = 0
    intake.seal(Seal(tree.topic))
    intake.acknowledge(Acknowledge(tree.topic))
    assert [message.held_back for _, message in world.host.sent if isinstance(message, Receipts)] == [True]
    world.budget.limit_bytes = 10 * world.budget.used_bytes
    world.flow_control.relieved()
    assert len(world.host.released) == 1
    assert RoomAgain(tree) in world.ordered
    intake.room_again(tree)
    assert [message.held_back for _, message in world.host.sent if isinstance(message, Receipts)] == [True, False]


def test_publishers_that_only_asked_for_the_root_are_told_too_when_there_is_room_again(world: Parts) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    assert tree.root is not None
    tree.root.note_asked(BOB)
    world.intake.room_again(tree)
    assert world.host.sent == [(BOB, RootIs(FIRST, tree.descriptor))]


def test_a_root_holds_publishers_back_while_a_peer_below_has_no_room_for_the_topic(world: Parts) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    world.child(tree, BOB)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST, used_up=True)))
    world.progress.tell(tree)
    assert world.flow_control.waiting == [tree.topic]
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST)))
    assert world.flow_control.waiting == []
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST, used_up=True)))
    world.progress.tell(tree)
    tree.children.clear()
    world.flow_control.housekeep(0.0, paused=False)
    assert world.flow_control.waiting == [], "it is no child any more"


def test_a_peer_tells_its_parent_that_it_has_no_room_for_a_topic_and_when_it_has_again(world: Parts) -> None:
    tree = world.tree(Descriptor("weather", Settings(slow="wait")))
    tree.flow.begin(FIRST, 0, 0.0, 0)
    fill(world, tree)
    assert world.flow_control.shares.tell(tree)
    world.schedule.take()
    world.budget.limit_bytes *= 4
    world.flow_control.relieved()
    assert world.schedule.take() == [tree.topic]
    assert not world.flow_control.shares.tell(tree)


def test_a_cut_receiver_has_a_lease_again_once_it_catches_up() -> None:
    cut = Cut(mark=10, at=0.0)
    assert not cut.is_over(9, 20, now=0.5)
    assert not cut.is_over(10, 20, now=5.0), "that took too long: now it has to reach 20 soon"
    assert not cut.is_over(19, 30, now=5.5)
    assert cut.is_over(20, 30, now=5.5)


def test_a_cut_requested_in_one_term_does_not_apply_to_the_next(world: Parts) -> None:
    child = world.child(world.root(), CAROL)
    child.cut_requested_to = 50
    child.note_report(ChildReport(FIRST, 5, FIRST))
    assert child.cut_requested_to == 50
    child.note_report(ChildReport(SECOND, 5, SECOND))
    assert child.cut_requested_to == 0


def test_a_child_that_caught_up_is_asked_to_cut_those_below_it_that_did_not(world: Parts) -> None:
    """Otherwise all others below it would have no lease for as long as one of them is behind."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    mark = tree.frontier
    tree.end_lease(child, world.host.now())
    for frontier in (mark - 1, mark, mark):
        world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, 1, FIRST, frontier=frontier)))
    assert world.host.sent == [(CAROL, CutLeases(tree.topic, FIRST, mark))]
    world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, mark, FIRST, frontier=mark)))
    assert child.cut is None


# ---- publishers, as their root knows them


class Neighbours:
    def __init__(self) -> None:
        self.probed: list[Contact] = []

    def probe(self, contact: Contact) -> None:
        self.probed.append(contact)


class NoPublishers:
    def not_here(self, publishers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        return publishers


def admitting(world: Parts) -> tuple[Admissions, Neighbours]:
    neighbours = Neighbours()
    return Admissions(world.host, CONFIG, world.trees, NoPublishers(), neighbours, world.dispatch), neighbours


def test_a_publisher_that_says_it_closed_is_forgotten(world: Parts) -> None:
    admitting(world)
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions = {PAUL: _settled(BOB)}
    world.dispatch.message(BOB, Closed([(tree.topic, PAUL), (b"?" * 16, PAUL)]))
    assert tree.root.admissions == {}


def test_the_peer_of_a_silent_publisher_is_queried(world: Parts) -> None:
    admissions, neighbours = admitting(world)
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions = {PAUL: _settled(BOB)}
    for _ in range(2):
        world.host.time += CONFIG.lease_s
        admissions.housekeep(world.host.time)
    assert neighbours.probed == [BOB]
    assert world.host.sent == [(BOB, StillOpen([(tree.topic, PAUL)]))]


def _settled(contact: Contact) -> PublisherState:
    """A publisher of whom all is stable."""
    return PublisherState(contact, 0, 0.0)


# ---- changes of settings


def test_a_change_of_settings_is_sent_to_the_root_until_it_answers(world: Parts) -> None:
    changes = world.changes
    changes.ask("weather", {"slow": "wait"}, lambda answer: None)
    asked = (FindRoot(DESCRIPTOR.topic, ALICE, None, NO_TERM), DESCRIPTOR.topic)
    assert world.ring.routed == [asked]
    assert world.timers == [HousekeepingDue()]
    changes.housekeep(CONFIG.receipt_timeout_s)
    assert world.ring.routed == [asked, asked]


def test_the_next_version_is_offered_to_the_root_that_answers(world: Parts) -> None:
    changes = world.changes
    answers: list[Any] = []
    changes.ask("weather", {"slow": "wait"}, answers.append)
    changes.root_found(DESCRIPTOR)
    changes.root_found(DESCRIPTOR)
    offers = [message.descriptor for message, _ in world.ring.routed if isinstance(message, Create)]
    assert [(offer.settings.slow, offer.version) for offer in offers] == [("wait", 2)]
    assert answers == []


def test_what_cannot_change_is_refused_without_asking_the_root_further(world: Parts) -> None:
    changes = world.changes
    answers: list[Any] = []
    changes.ask("weather", {"admission": "source"}, answers.append)
    changes.root_found(DESCRIPTOR)
    assert [type(answer) for answer in answers] == [LocalError]
    assert [type(message) for message, _ in world.ring.routed] == [FindRoot]


def test_a_root_tells_publishers_of_a_change_and_reports_it_to_children(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions = {PAUL: _settled(BOB)}
    world.child(tree, CAROL)
    assert tree.parent_report(ALICE.node_id, (), held_back=False).descriptor is None
    newer = Descriptor("weather", Settings(slow="wait"), version=2)
    tree.adapt(newer)
    assert tree.parent_report(ALICE.node_id, (), held_back=False).descriptor == DESCRIPTOR  # the replicas know no other
    tree.root.noted = newer
    world.changes.entered(tree)
    assert world.host.sent == [(BOB, RootIs(FIRST, newer))]
    assert tree.parent_report(ALICE.node_id, (), held_back=False).descriptor == newer


# ---- what is known of topics


def test_newer_settings_are_learned_and_passed_to_the_tree(world: Parts) -> None:
    tree = world.tree()
    newer = Descriptor("weather", Settings(slow="wait"), version=1)
    world.known.learn(newer)
    assert tree.descriptor == world.known.descriptors[tree.topic] == newer
    world.known.learn(DESCRIPTOR)
    assert tree.descriptor == newer


def test_assumptions_about_a_topic_are_not_knowledge(world: Parts) -> None:
    world.known.learn(DESCRIPTOR)
    assert world.known.entry(DESCRIPTOR.topic).descriptor is None
    world.known.enter(DESCRIPTOR.topic, FIRST)
    entry = world.known.entry(DESCRIPTOR.topic)
    assert (entry.descriptor, entry.term) == (DESCRIPTOR, FIRST)


def test_a_replica_answers_what_it_knows_and_records_what_it_receives(world: Parts) -> None:
    assert world.replication.comparing is world.comparing
    world.dispatch.message(BOB, RecordState([(DESCRIPTOR, FIRST)]))
    assert world.known.terms == {DESCRIPTOR.topic: FIRST}
    assert (BOB, Recorded([(DESCRIPTOR.topic, FIRST, DESCRIPTOR.digest)])) in world.host.sent
    world.dispatch.message(CAROL, StateQuery([DESCRIPTOR.topic]))
    assert (CAROL, "StateAnswer") in world.sent


def test_a_root_whose_term_a_replica_answers_with_a_later_one_begins_one_later_still(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    world.host.time = CONFIG.lease_s / 2
    world.dispatch.message(CAROL, StateAnswer([TopicEntry(tree.topic, DESCRIPTOR, SECOND)]))
    assert world.known.terms[tree.topic] == SECOND
    assert world.ordered == [Outdone(tree)]


def test_a_root_that_began_just_now_first_declares_nothing_stable(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    world.host.time = 1.0
    world.dispatch.message(CAROL, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == []
    assert tree.root is not None
    assert tree.root.held_until == 1.0 + CONFIG.lease_s
    assert (RivalDue(tree.topic), CONFIG.lease_s / 2 - 1.0) in world.host.timers
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [Outdone(tree)]
    del world.trees[tree.topic]
    world.dispatch.timer(RivalDue(tree.topic))
    assert world.ordered == [Outdone(tree)]


def test_a_rival_that_is_heard_itself_is_outbid_at_once(world: Parts) -> None:
    tree = world.root()
    assert world.replication.trees is world.trees
    rival = Contact(SECOND.node[:8] + bytes(8), "rival")
    world.dispatch.message(rival, RecordState([(DESCRIPTOR, SECOND)]))
    assert world.ordered == [Outdone(tree)]


def test_a_tree_is_opened_once_and_its_leases_are_found_again(world: Parts) -> None:
    tree = world.open_trees.open(DESCRIPTOR)
    assert world.open_trees.open(DESCRIPTOR) is tree
    child = world.child(tree, BOB)
    tree.orphan_lease(child, 10.0, [BOB.node_id])
    leases = tree.orphaned_leases
    world.open_trees.leave_behind(tree.topic, leases)
    tree.flow.close(child.channel)
    world.open_trees.forget(tree)
    assert (world.trees, world.schedule.dirty, world.schedule.due) == ({}, {}, {})
    assert world.open_trees.open(DESCRIPTOR).orphaned_leases == leases


# ---- tree membership


def test_a_subscription_without_a_tree_looks_for_a_parent(world: Parts) -> None:
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    assert world.ordered == [FindParent(tree)]
    world.subscribing.unsubscribe(subscription)
    assert world.ordered == [FindParent(tree), LeaveIfIdle(tree)]


def test_a_subscription_that_begins_before_a_gap_is_told_what_was_given_up_beyond_it(world: Parts) -> None:
    world.subscribing.subscribe("weather", Notes())
    tree, notes = world.trees[DESCRIPTOR.topic], Notes()
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    tree.flow.move(down(FIRST, 2, block(PAUL, 2)), tree.flow.current)
    tree.flow.lose(FIRST, [(1, 2)])
    notes.turn_over = world.subscribing.subscribe("weather", notes).tell_losses
    assert notes.lost_ == [(1, 1, 2, "unavailable")]
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    assert notes.got == [b"0", b"2"]


def test_a_peer_that_was_accepted_by_the_settings_of_a_former_start_asks_for_the_present_ones(world: Parts) -> None:
    world.subscribing.subscribe("weather", Notes())
    accepted = Accepted(DESCRIPTOR.topic, FIRST, 0, (BOB.node_id,), (), version=DESCRIPTOR.version)
    world.membership.accepted(BOB, accepted)
    assert (BOB, "Rejoin") not in world.sent
    world.membership.accepted(BOB, msgspec.structs.replace(accepted, version=DESCRIPTOR.version + 1))
    assert (BOB, "Rejoin") in world.sent


def test_a_forwarder_that_takes_a_child_in_looks_for_a_parent_itself(world: Parts) -> None:
    world.joins.adopt(Join(DESCRIPTOR.topic, BOB, None, b"", DESCRIPTOR))
    tree = world.trees[DESCRIPTOR.topic]
    assert (world.ordered, list(tree.waiting)) == ([FindParent(tree)], [BOB.node_id])
    assert world.host.sent == []


def test_a_root_accepts_a_child_at_once(world: Parts) -> None:
    tree = world.root()
    world.joins.adopt(Join(tree.topic, BOB, None, DESCRIPTOR.digest))
    assert list(tree.children) == [BOB.node_id]
    assert (BOB, "Accepted") in world.sent


def test_a_source_asks_for_events_while_it_speaks_for_a_lease_of_a_peer_that_is_gone(world: Parts) -> None:
    tree = world.tree(Descriptor("weather", Settings(admission="source")))
    assert world.membership.join_message(tree, fault=False).sends_only
    child = world.child(tree, BOB)
    tree.take_out(BOB.node_id)
    tree.orphan_lease(child, 30.0, (BOB.node_id,))
    assert not world.membership.join_message(tree, fault=False).sends_only


def test_a_newcomer_learns_which_streams_are_over(world: Parts) -> None:
    """Else another parent would tell it later, and it would take that for a loss."""
    tree = world.root(Descriptor("weather", Settings(admission="source")))
    over = Term(OF_SOURCES, bytes(16))
    tree.flow.note_over(over, 5)
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest))
    (accepted,) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert accepted.ended == ((over, 5, ()),)


def test_a_newcomer_learns_for_how_long_the_events_of_streams_have_been_there(world: Parts) -> None:
    tree, streams = world.root(BY_SOURCE), [STREAM, STREAM._replace(counter=STREAM.counter + 1)]
    for term in streams:
        world.source_streams.learn(tree, term, 0)
        tree.flow.others[term].give_up([(0, 2)])
    tree.flow.others[STREAM].milestones.note(2, world.host.time)
    world.host.time += 20.0
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest))
    (accepted,) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert accepted.milestones == (((2, 20.0),), ())


def test_however_many_streams_there_are_a_newcomer_is_told_few_milestones(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    for number in range(300):
        world.source_streams.learn(tree, STREAM._replace(counter=STREAM.counter + number), 0)
    for stream in tree.flow.others.values():
        stream.give_up([(0, 9)])
        for index in range(10):
            stream.milestones.note(index, 2.0 * index)
    world.host.time = 18.0
    told = world.source_streams.milestones_below(tree, world.source_streams.starts(tree, {}, new=True, earliest=False))
    assert [len(each) for each in told] == [2] * 300


def test_a_join_is_routed_to_the_topic_until_a_parent_answers(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.join(tree)
    world.membership.timed_out(JoinTimeout(tree.topic, tree.attempt))
    assert [type(message) for message, _ in world.ring.routed] == [Join, Join]
    assert [type(timer) for timer in world.timers] == [JoinTimeout, JoinTimeout]


def test_the_peer_that_is_the_closest_itself_becomes_root() -> None:
    world = Parts(ALICE, BOB)
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.join(tree)
    assert world.ordered == [BecomeRoot(tree, "created")]
    assert world.ring.routed == []


def test_an_accepted_child_tells_its_parent_and_looks_at_what_that_reported(world: Parts) -> None:
    tree = world.tree()
    world.terms.keep(tree)
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    assert (tree.parent, tree.term) == (BOB, FIRST)
    assert world.ordered == [PlaceTaken(tree), ParentAccepted(tree, BOB)]


def test_a_supposed_child_that_needs_nothing_says_so(world: Parts) -> None:
    membership, world.host.time = world.membership, 2 * CONFIG.lease_s  # else it may have been restarted
    membership.accepted(BOB, Accepted(DESCRIPTOR.topic, FIRST, 0, (BOB.node_id,), ()))
    assert world.host.sent == [(BOB, Leave(DESCRIPTOR.topic))]


def test_a_child_report_of_a_later_term_outdoes_the_root(world: Parts) -> None:
    tree = world.root()
    world.child(tree, BOB)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, SECOND)))
    assert world.ordered == [Outdone(tree)]


def test_a_report_of_what_is_missing_here_makes_this_peer_look_for_it(world: Parts) -> None:
    tree = world.tree()
    tree.parent = BOB
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(FIRST, 5, 0, (BOB.node_id,), ())))
    assert (tree.term, tree.parent_frontier) == (FIRST, 5)
    assert world.ordered == [GapNoticed(tree.topic)]


def test_a_supposed_child_of_a_peer_without_a_tree_is_rejected(world: Parts) -> None:
    world.reporting.changed(BOB, DESCRIPTOR.topic, encode(ChildReport(FIRST, 0, FIRST)))
    assert world.host.sent == [(BOB, Orphaned([DESCRIPTOR.topic], ()))]


@pytest.mark.parametrize(("parents_term", "stays"), [(FIRST, True), (SECOND, False)])
def test_a_peer_stays_that_holds_events_of_a_later_term_than_its_parent_knows(
    world: Parts, monkeypatch: pytest.MonkeyPatch, parents_term: Term, stays: bool
) -> None:
    """It may be the last that has them: the parent may be owed them once it hears of the term."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, SECOND, 0, (BOB.node_id,), ()))
    tree.flow.move(down(SECOND, 0, block(PAUL, 0)), tree.flow.current)
    report = ParentReport(parents_term, 0, 0, (BOB.node_id,), ())
    monkeypatch.setattr(world.membership.parents, "told", lambda node, topic: report)
    world.subscribing.unsubscribe(subscription)
    world.membership.leave_if_idle(tree)
    assert (tree.keeping_until is not None) == stays
    if stays:
        tree.keeping_until = None
        world.membership.leave_if_idle(tree, anyway=True)
    assert tree.topic not in world.trees


@pytest.mark.parametrize(("stable", "held", "stays"), [(0, (), True), (1, (), False), (0, ((0, 1),), False)])
def test_a_peer_stays_that_holds_unstable_events_of_an_ended_term_that_its_parent_lacks(
    world: Parts, stable: int, held: tuple[tuple[int, int], ...], stays: bool
) -> None:
    """The parent became root without them, and may be owed them."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), ()))
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    world.terms.enter(tree, SECOND, 0)
    tree.flow.settle(FIRST, stable)
    tree.parent_held = ((FIRST, 1, held, 0),)
    world.subscribing.unsubscribe(subscription)
    world.membership.leave_if_idle(tree)
    assert (tree.keeping_until is not None, tree.topic in world.trees) == (stays, stays)


@pytest.mark.parametrize("unstable", [True, False])
def test_an_idle_peer_that_loses_its_parent_stays_if_it_holds_events_that_are_not_stable(
    world: Parts, monkeypatch: pytest.MonkeyPatch, unstable: bool
) -> None:
    """The parent took its copies with it, and those who seek another parent are owed them."""
    subscription = world.subscribing.subscribe("weather", Notes())
    tree = world.trees[DESCRIPTOR.topic]
    world.membership.accepted(BOB, Accepted(tree.topic, SECOND, 0, (BOB.node_id,), ()))
    if unstable:
        tree.flow.move(down(SECOND, 0, block(PAUL, 0)), tree.flow.current)
    tree.keeping_until = 1.0
    world.subscribing.unsubscribe(subscription)
    tree.keeping_until = None
    monkeypatch.setattr(world.open_trees, "linked", lambda node: [tree])
    world.repair.lost(BOB)
    assert (tree.topic in world.trees, tree.joining) == (unstable, unstable)


def test_orphans_turn_to_their_fallback_in_one_message(world: Parts) -> None:
    for name in ("weather", "sport"):
        tree = world.tree(described(name))
        world.terms.keep(tree)
        world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (CAROL,)))
    del world.host.sent[:], world.ordered[:]
    world.repair.lost(BOB)
    assert world.ordered == [NeighbourLost(BOB.node_id)]
    ((to, message),) = world.host.sent
    assert isinstance(message, Rejoin)
    assert (to, len(message.joins)) == (CAROL, 2)


# ---- this peer as a root


def test_a_bundle_with_a_gap_before_it_is_moved_and_the_gap_noticed(world: Parts) -> None:
    tree = world.root()
    assert world.table.move(tree.flow, Bundle(Envelope(tree.topic, DOWN, FIRST, 0), (block(PAUL, 0),)))
    assert world.ordered == []
    assert world.table.move(tree.flow, Bundle(Envelope(tree.topic, DOWN, FIRST, 2), (block(PAUL, 2),)))
    assert world.ordered == [GapNoticed(tree.topic)]


def test_a_bundle_of_a_later_term_that_ends_a_peers_part_in_the_topic_is_dropped(world: Parts) -> None:
    """A root that hears of a later term hands over, and may have no more use for the topic."""
    tree = world.root()
    bundle = Bundle(Envelope(tree.topic, DOWN, SECOND, 0), (block(PAUL, 0),))
    world.ordered = Forgetful(world, tree)
    world.table.arrive(BOB, bundle)
    assert (world.table.flows, world.budget.used_bytes) == ({}, 0)
    assert world.host.released == [(BOB.node_id, bundle.size)]


class Forgetful(list[object]):
    """Carries out the first order in the shortest way: the topic is forgotten."""

    def __init__(self, world: Parts, tree: Tree) -> None:
        self.world, self.tree = world, tree

    def append(self, effect: object) -> None:
        self.world.open_trees.forget(self.tree)


def test_publishers_hear_what_is_stable_once_all_leases_cover_it(world: Parts) -> None:
    tree = world.root()
    assert tree.root is not None
    tree.root.admit(BOB, up(0, block(PAUL, 0)))
    for bundle in tree.root.seal():
        world.table.move(tree.flow, bundle)
    tree.root.closing = True
    world.progress.advance_stable(tree, world.host.now())
    assert tree.flow.current.stable == 1
    assert world.sent == [(BOB, "Receipts")]
    assert world.ordered == [AllStable(tree)]


def test_a_peer_that_is_not_root_returns_credit_and_names_the_likely_root(world: Parts) -> None:
    world.intake.successors.note(WEATHER, CAROL)
    bundle = up(0, block(PAUL, 0))
    world.intake.up(BOB, bundle)
    assert world.host.released == [(BOB.node_id, bundle.size)]
    assert world.host.sent == [(BOB, NotRoot(WEATHER, CAROL))]


def test_a_root_admits_events_and_seals_them_at_the_end_of_the_turn(world: Parts) -> None:
    tree = world.root(described("weather"))
    assert world.intake.trees.by_topic[tree.topic] is tree
    world.intake.publish_here(tree, up(0, block(PAUL, 0)))
    world.dispatch.timer(Seal(tree.topic))
    assert tree.frontier == 1
    assert [type(timer) for timer in world.timers if isinstance(timer, (Seal, Acknowledge))] == [Seal, Acknowledge]


def test_a_root_with_an_outdated_term_begins_a_later_one_or_transfers_leadership() -> None:
    for ring, ordered in ((ALICE, BecomeRoot), (BOB, Resign)):
        world = Parts(ring, CAROL)
        tree = world.root()
        world.root_terms.outdone(tree)
        assert [type(effect) for effect in world.ordered] == [ordered]
        assert (tree.root is None) == (ordered is BecomeRoot)


def test_a_request_for_a_root_that_this_peer_is_not_yet_waits(world: Parts) -> None:
    message = FindRoot(DESCRIPTOR.topic, BOB, None, NO_TERM)
    world.rendezvous.find(message)
    assert world.ordered == [AwaitRoot(DESCRIPTOR.topic, message)]


def test_a_topic_that_is_handed_to_a_peer_that_is_not_the_closest_is_kept(world: Parts) -> None:
    world.transfer.received(BOB, TransferLeadership(DESCRIPTOR, FIRST, 0, 0, FIRST, 0.0))
    assert list(world.transfer.offers) == [DESCRIPTOR.topic]
    assert world.known.terms == {DESCRIPTOR.topic: FIRST}
    assert world.ordered == []


# ---- publishers and queries


def test_a_publisher_looks_for_the_root(world: Parts) -> None:
    world.publishing.open("weather", Listener())
    ((message, key),) = world.ring.routed
    assert isinstance(message, FindRoot)
    assert key == DESCRIPTOR.topic
    world.dispatch.message(CAROL, RootIs(FIRST, DESCRIPTOR))
    assert world.publishing.roots == {DESCRIPTOR.topic: CAROL}


class Listener:
    def progressed(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


def test_a_peer_outside_the_tree_routes_queries_about_it(world: Parts) -> None:
    number = world.inspection.survey("weather")
    assert [type(message) for message, _ in world.ring.routed] == [Survey]
    assert world.inspection.surveys == {number: {}}


def test_a_root_answers_for_itself_and_asks_its_children(world: Parts) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    assert world.inspection.surveys == {}
    world.dispatch.message(BOB, Survey(tree.topic, BOB, 1))
    assert world.sent == [(BOB, "Branch"), (CAROL, "Survey")]


# ---- becoming root, forgetting, and what time brings


def test_a_candidate_that_is_alone_becomes_root_and_answers_waiting_requests(world: Parts) -> None:
    world.alone()
    tree = world.tree()
    world.terms.keep(tree)
    assert world.rendezvous.trees is world.trees
    world.candidacies.wait(tree.topic, FindRoot(tree.topic, BOB, DESCRIPTOR, NO_TERM))
    assert tree.root is not None
    assert world.ordered == [PlaceTaken(tree), RootHere(tree)]
    assert (BOB, "RootIs") in world.sent
    assert world.candidacies.by_topic == {}


def test_a_topic_that_was_never_created_gets_no_root(world: Parts) -> None:
    world.alone()
    message = FindRoot(DESCRIPTOR.topic, BOB, None, NO_TERM)
    world.candidacies.wait(DESCRIPTOR.topic, message)
    assert world.ordered == [RefuseRequest(message)]
    world.rendezvous.refuse(message)
    assert world.host.sent == [(BOB, NotRoot(DESCRIPTOR.topic, None, unknown=True))]
    assert world.trees == {}


def test_a_neighbour_whose_digest_is_the_same_is_only_answered(world: Parts) -> None:
    world.comparing.compared(BOB, StateDigest(b""))
    assert world.host.sent == [(BOB, StateDigest(b"", answer=True))]


class Keeping:
    """Keeps the state of some topics for others."""

    def __init__(self, *topics: bytes) -> None:
        self.topics = {*topics}

    def may_forget(self, topic: bytes) -> bool:
        return topic not in self.topics

    def forget(self, topic: bytes) -> None:
        self.topics.discard(topic)


def test_idle_topics_are_forgotten_beyond_a_bound_but_for_those_in_use_or_kept() -> None:
    known = {bytes([number]): described(f"topic/{number}") for number in range(10)}
    beside = dict.fromkeys(known, 0)
    forgetting = Forgetting(known, idle_topics_max=2, topics_max=100)
    forgetting.spare({b"\0": 0})
    forgetting.keep_for_others(Keeping(b"\1"))
    forgetting.forget_too(beside)
    for _ in range(4):
        forgetting.note(b"?")
    assert list(known) == list(beside) == [b"\0", b"\1", b"\x08", b"\x09"]


def test_a_parent_that_knows_only_earlier_settings_is_told_the_latest(world: Parts) -> None:
    """All peers that kept them may have died."""
    newer = Descriptor("weather", Settings(slow="wait"), version=2)
    world.subscribing.subscribe("weather", Notes())
    world.known.learn(newer)
    world.membership.accepted(BOB, Accepted(newer.topic, FIRST, 0, (BOB.node_id,), (), DESCRIPTOR))
    assert (BOB, RecordState([(newer, NO_TERM)])) in world.host.sent


def test_a_round_of_housekeeping_looks_at_topics_that_are_due_and_comes_again(world: Parts) -> None:
    tree = world.root()
    world.housekeeping.housekeep()
    assert world.ordered == []
    world.schedule.wake(tree)
    world.housekeeping.housekeep()
    assert world.ordered == [GapNoticed(tree.topic), LeaveIfIdle(tree, anyway=True)]
    assert world.timers == [HousekeepingDue()] * 2


def test_no_round_of_housekeeping_follows_if_nothing_is_due(world: Parts) -> None:
    world.schedule.begin()
    world.housekeeping.housekeep()
    assert not world.schedule.round_set


def test_an_expired_lease_is_ended_and_reported(world: Parts) -> None:
    tree = world.root()
    housekeeping = world.housekeeping
    child = world.child(tree, BOB)
    tree.orphan_lease(child, 1.0, [BOB.node_id])
    world.schedule.wake(tree)
    world.host.time = 2.0
    housekeeping.housekeep()
    assert tree.orphaned_leases == {}
    assert tree.topic in world.schedule.dirty


def test_a_root_that_alone_keeps_its_state_takes_no_topic_for_new_before_a_lease_has_passed() -> None:
    parts = Parts()
    began_at = parts.host.now()
    alone = ReplicaSet(parts.host, msgspec.structs.replace(CONFIG, replicas=1), parts.overlay, parts.neighbours)
    assert alone.doubtful_until(WEATHER, parts.host.me) == began_at + CONFIG.lease_s
    assert parts.replica_set.doubtful_until(WEATHER, parts.host.me) == 0.0


def test_the_end_of_a_lease_of_a_child_of_old_that_now_stands_above_is_reported(world: Parts) -> None:
    """The parent's path need not have changed, and without that word nothing would become stable any more."""
    tree = world.root(described("weather"))
    child = world.child(tree, CAROL)
    tree.root, tree.parent, tree.path = None, BOB, (CAROL.node_id, BOB.node_id)
    tree.take_out(CAROL.node_id)
    tree.orphan_lease(child, CONFIG.lease_s, (CAROL.node_id,))
    world.schedule.take()
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(tree.term, 0, 0, tree.path, ())))
    assert tree.orphaned_leases == {}
    assert tree.topic in world.schedule.dirty


# ---- streams of sources that are over


STREAM = Term(OF_SOURCES + 1, bytes(16))
BY_SOURCE = described("weather", Settings(admission="source"))


def a_subscription_to_sources(world: Parts, start: str = "now") -> tuple[Tree, Notes]:
    """It began at 10 s, below a parent that knew of no stream."""
    tree, notes = world.root(BY_SOURCE), Notes()
    tree.root, tree.parent, world.host.time = None, BOB, 10.0
    subscription = world.subscribing.subscribe("weather", notes, start=start)
    notes.turn_over = subscription.tell_losses
    world.host.time = 30.0
    return tree, notes


@pytest.mark.parametrize(("ago_s", "lost"), [(25.0, []), (15.0, [(STREAM.counter, 3, 5, "unavailable")])])
def test_who_subscribed_when_a_streams_last_event_had_come_did_not_lose_that_stream(
    world: Parts, ago_s: float, lost: list[object]
) -> None:
    tree, notes = a_subscription_to_sources(world)
    world.child(tree, CAROL)
    world.source_streams.learn_ends(tree, [(STREAM, 5, ((3, 25.0), (5, ago_s)))], BOB)
    assert notes.lost_ == lost
    passed_on = StreamsEnded(tree.topic, ((STREAM, 5, ((3, 25.0), (5, ago_s))),))
    assert world.host.sent[-1] == (CAROL, passed_on), "others began earlier"
    world.host.time = 31.0
    assert world.source_streams.ended(tree)[0][2][-1] == (5, ago_s + 1.0)


def test_the_last_event_of_a_stream_came_when_a_bundle_did_or_word_of_one_that_did_not(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    world.source_streams.learn(tree, STREAM, 0)
    world.host.time = 32.0
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0),)))
    state = tree.sources.states[STREAM]
    assert state.came_at == 32.0
    world.host.time = 35.0
    world.source_streams.learn_ends(tree, [(STREAM, 2, ((2, 1.0),))], BOB)
    assert state.came_at == 35.0
    world.source_streams.conclude(tree, STREAM, 2)
    world.host.time = 40.0
    assert world.source_streams.ended(tree) == ((STREAM, 2, ((2, 6.0),)),)


@pytest.mark.parametrize(("start", "lost"), [("now", [(STREAM.counter, 3, 5, "unavailable")]), ("earliest", [])])
def test_of_a_stream_that_is_learned_late_only_what_came_since_it_began_is_lost_to_a_subscription(
    world: Parts, start: str, lost: list[object]
) -> None:
    tree, notes = a_subscription_to_sources(world, start)
    world.source_streams.learn(tree, STREAM, 0)
    tree.sources.states[STREAM].heard_end = 5
    world.source_streams.learn_milestones(tree, STREAM, ((2, 25.0), (3, 20.0), (5, 12.0)))
    tree.flow.lose(STREAM, [(0, 5)])
    notes.turn_over()
    assert notes.lost_ == (lost or [(STREAM.counter, 0, 5, "unavailable")])


def test_a_peer_that_joins_late_passes_on_for_how_long_the_events_before_have_been_there(world: Parts) -> None:
    """Its stream begins behind them; if that ends, subscriptions below may have begun later than these events."""
    tree, _ = a_subscription_to_sources(world)
    world.source_streams.attached(tree, BOB, ((STREAM, 2, 2),), (), (((2, 25.0), (9, 20.0)),), whole=False, served=True)
    assert world.source_streams.milestones(tree, STREAM, (0, 2)) == ((2, 25.0),)
    world.host.time = 40.0
    world.source_streams.conclude(tree, STREAM, 2)
    assert world.source_streams.ended(tree) == ((STREAM, 2, ((2, 35.0),)),)


def test_a_subscription_begins_at_nothing_that_is_known_only_from_a_peer_that_made_it_up(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    stream = world.source_streams.learn(tree, STREAM, 0)
    assert stream is not None
    stream.give_up([(0, 3)])
    world.source_streams.learn_milestones(tree, STREAM, ((1 << 62, 12.0),))
    assert world.source_streams.begin_at(tree, earliest=False) == [(STREAM, 3)]


def test_what_came_is_noted_once_per_report(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    world.source_streams.learn(tree, STREAM, 0)
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0),)))
    world.host.time = 32.0
    world.source_streams.tell(tree)
    world.host.time = 40.0
    assert world.source_streams.milestones(tree, STREAM, (0, 1)) == ((1, 8.0),)


def test_the_streams_that_are_over_are_handed_to_the_next_root_whose_subscribers_may_have_lost_their_ends(
    world: Parts,
) -> None:
    """The root that goes may be all there was on its side of a partition, and may leave the tree."""
    gone = world.root(described("news", Settings(admission="source")))
    gone.flow.note_over(STREAM, 5)
    world.overlay.leaf_set.add(BOB)
    world.transfer.resign(gone)
    (handed,) = [message for _, message in world.host.sent if isinstance(message, TransferLeadership)]
    assert handed.streams == ((STREAM, 5, ()),)
    tree, notes = a_subscription_to_sources(world)
    message = TransferLeadership(BY_SOURCE, FIRST, 0, 0, streams=((STREAM, 5, ((3, 25.0), (5, 15.0))),))
    world.transfer.received(CAROL, message)
    assert notes.lost_ == [(STREAM.counter, 3, 5, "unavailable")]
    assert tree.flow.forgotten == {STREAM: 5}


def test_a_child_that_is_named_as_the_next_root_does_not_ask_itself_when_its_parent_is_below_it() -> None:
    world = Parts(BOB, ALICE, CAROL)
    tree = world.tree()
    tree.begin_later(Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, None)))
    tree.fallbacks, tree.joining = (CAROL, ALICE), True
    world.repair._refused(CAROL, Refused(tree.topic, "loop"))
    assert world.host.sent == []
    assert [type(message) for message, _ in world.ring.routed] == [Join]
