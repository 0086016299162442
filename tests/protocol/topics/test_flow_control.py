"""Buffers of a peer, its credit, and the leases that it cuts."""

import msgspec
import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, UP, Envelope, Position
from quillcast.core.host import RESERVED_EIGHTHS
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.channels import PeerSink, nothing_enters
from quillcast.protocol.forwarding.log import Log
from quillcast.protocol.forwarding.ordered import Ordered, Way
from quillcast.protocol.forwarding.policy import ChannelSpec
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.memory.flow_control import FlowControl, PatienceOver
from quillcast.protocol.topics.memory.retention import acknowledged_position, catch_up, end_lease, shed
from quillcast.protocol.topics.memory.small_topics import LITTLE_PARTS
from quillcast.protocol.topics.messages import CutLeases
from quillcast.protocol.topics.policy.channels import install, take_out
from quillcast.protocol.topics.root.sealing import Acknowledge, Seal
from quillcast.protocol.topics.root_messages import Receipts, RootIs
from quillcast.protocol.topics.state.cut import CATCH_UP_S, ROOM_PARTS, Cut
from quillcast.protocol.topics.state.effects import (
    LeaseEnded,
    RoomAgain,
)
from quillcast.protocol.topics.state.link_reports import ChildReport, Move, encode
from quillcast.protocol.topics.state.moves import arrivals, newcomers
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, PAULA, SECOND, WINDOW_BYTES, Notes, block, down, up
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

TOPIC = DESCRIPTOR.topic


@pytest.fixture
def flow_control(world: Parts) -> FlowControl:
    return world.flow_control


def fill(world: Parts, tree: Tree, events: int = 3) -> None:
    """The tree keeps as much as the whole budget, and a byte more."""
    for index in range(events):
        tree.flow.move(down(FIRST, index, block(PAUL, index)), tree.flow.current)
    world.budget.limit_bytes = world.budget.used_bytes - 1


def keep(world: Parts, tree: Tree, size_bytes: int) -> None:
    """The tree keeps so many bytes, whatever they are."""
    tree.flow.log = Log(world.budget)
    tree.flow.log.size_bytes = size_bytes
    world.budget.used_bytes += size_bytes


def test_credit_goes_back_at_once_while_there_is_room(world: Parts, flow_control: FlowControl) -> None:
    flow_control.release(BOB.node_id, 10, TOPIC)
    assert world.host.released == [(BOB.node_id, 10)]


def test_credit_is_held_back_while_the_buffers_are_over_their_budget(world: Parts, flow_control: FlowControl) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    flow_control.release(BOB.node_id, 10, TOPIC)
    assert world.host.released == []
    assert world.timers == [PatienceOver()]
    world.budget.limit_bytes *= 2
    flow_control.relieved()
    assert world.host.released == [(BOB.node_id, 10)]


def test_credit_goes_back_at_once_where_a_look_at_full_buffers_makes_room(
    world: Parts, flow_control: FlowControl
) -> None:
    """Copies that nobody needs go. A link whose credit is used up would stand still until the peer looks again."""
    tree = world.root()
    fill(world, tree, events=20)
    tree.flow.current.settle(20)
    flow_control.release(BOB.node_id, 10, TOPIC)
    assert not flow_control.is_pressed
    assert tree.flow.kept_bytes > flow_control.small.bound_bytes
    assert world.host.released == [(BOB.node_id, 10)]


def test_full_buffers_take_a_repair_whatever_was_in_transit_when_they_filled_up(
    world: Parts, flow_control: FlowControl
) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    world.budget.limit_bytes = world.budget.used_bytes - CONFIG.window_bytes - 10
    assert not flow_control.takes_repairs
    flow_control.release(BOB.node_id, 10, TOPIC)
    assert flow_control.takes_repairs


def test_full_buffers_return_the_credit_of_what_publishers_send_that_are_held_back(
    world: Parts, flow_control: FlowControl
) -> None:
    """What an earlier root admitted fills a gap as a repair does, and full buffers may wait for just that."""
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    flow_control.release_admitted([(BOB.node_id, 10)], tree.topic)
    assert world.host.released == []
    flow_control.held_back[tree.topic] = None
    flow_control.release_admitted([(BOB.node_id, 11)], tree.topic)
    assert world.host.released == [(BOB.node_id, 11)]


def test_but_not_beyond_a_window_where_much_came_at_once_as_after_a_pause(
    world: Parts, flow_control: FlowControl
) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    world.child(tree, CAROL)
    fill(world, tree)
    world.budget.limit_bytes = world.budget.used_bytes - CONFIG.window_bytes - 15
    flow_control.held_back[tree.topic] = None
    flow_control.release_admitted([(BOB.node_id, size_bytes) for size_bytes in (10, 11, 12)], tree.topic)
    assert world.host.released == [(BOB.node_id, 12)]
    world.budget.limit_bytes += 10
    flow_control.relieved()
    assert world.host.released == [(BOB.node_id, 12), (BOB.node_id, 10)]


def test_topics_that_keep_little_together_go_on_while_another_keeps_the_buffers_full(
    world: Parts, flow_control: FlowControl
) -> None:
    tree, other = world.root(), world.root(described("another"))
    world.budget.limit_bytes = LITTLE_PARTS * CONFIG.window_bytes
    keep(world, tree, world.budget.limit_bytes + CONFIG.window_bytes)
    for topic, size in ((tree.topic, 10), (other.topic, 11)):
        flow_control.release(BOB.node_id, size, topic)
    assert world.host.released == [(BOB.node_id, 11)]
    keep(world, other, CONFIG.window_bytes)
    keep(world, world.root(described("a fourth")), 1)
    world.host.time += CONFIG.report_s
    flow_control.release(BOB.node_id, 12, other.topic)
    assert world.host.released == [(BOB.node_id, 11)], "two of them keep more than little"
    other.flow.log.size_bytes -= 1
    world.host.time += CONFIG.report_s
    flow_control.housekeep(world.host.time, paused=False)
    assert world.host.released == [(BOB.node_id, 11), (BOB.node_id, 12)]
    world.budget.used_bytes += CONFIG.window_bytes + 10
    flow_control.release(BOB.node_id, 13, other.topic)
    assert world.host.released == [(BOB.node_id, 11), (BOB.node_id, 12)], "the budget is exceeded by as much as may be"


def test_a_topic_that_waits_leaves_a_part_of_a_childs_credit_to_others(world: Parts) -> None:
    cut, waiting = world.root(), world.root(Descriptor("slow", Settings(slow="wait")))
    here, there = world.child(cut, CAROL), world.child(waiting, CAROL)
    bundle = up(0, block(PAUL, 0))
    assert here.room(bundle) - there.room(bundle) == WINDOW_BYTES * RESERVED_EIGHTHS[True] // 8
    waiting.adapt(msgspec.structs.replace(waiting.descriptor, settings=Settings(slow="cut")))
    assert here.room(bundle) == there.room(bundle)


def test_so_do_its_channels_that_a_scope_ordered(world: Parts) -> None:
    tree, host = world.root(Descriptor("slow", Settings(slow="wait"))), world.host
    world.child(tree, CAROL)
    ways = {contact.node_id: Way(PeerSink(host, contact), nothing_enters, nothing_enters) for contact in (BOB, CAROL)}
    install(tree, [ChannelSpec(CAROL)], Ordered(ways))
    left = [channel.sink.room(up(0, block(PAUL, 0))) for channel in tree.flow.channels]
    assert left == [host.room(to) - WINDOW_BYTES * RESERVED_EIGHTHS[True] // 8 for to in (CAROL, BOB)]


def test_a_small_topic_that_waits_is_not_held_back_because_another_one_keeps_the_buffers_full(world: Parts) -> None:
    shares, wait = world.flow_control.shares, Settings(slow="wait")
    large, small, other = [world.root(Descriptor(name, wait)) for name in ("large", "small", "other")]
    world.budget.limit_bytes = LITTLE_PARTS * CONFIG.window_bytes
    keep(world, large, world.budget.limit_bytes - CONFIG.window_bytes)
    keep(world, small, CONFIG.window_bytes)
    assert [shares.is_used_up(tree) for tree in (large, small, other)] == [True, False, False]
    keep(world, other, 1)
    world.host.time += CONFIG.report_s
    assert [shares.is_used_up(tree) for tree in (large, small, other)] == [True, True, True], "they keep more together"
    keep(world, small, CONFIG.window_bytes + 1)
    world.host.time += CONFIG.report_s
    assert [shares.is_used_up(tree) for tree in (large, small, other)] == [True, True, False]


def test_what_a_topic_that_waits_keeps_of_past_terms_is_a_part_of_its_share(world: Parts) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    fill(world, tree, 3)
    tree.flow.end(FIRST, 60.0)
    kept_bytes = tree.flow.kept_bytes
    assert kept_bytes > tree.flow.log.size_bytes == 0
    for limit_bytes, used_up in ((2 * kept_bytes, False), (2 * kept_bytes - 1, True)):
        world.budget.limit_bytes = limit_bytes
        assert world.flow_control.shares.is_used_up(tree) == used_up


def test_leases_of_topics_that_keep_little_do_not_end_while_topics_that_wait_fill_the_buffers(
    world: Parts, flow_control: FlowControl
) -> None:
    waiting, cut = world.root(Descriptor("slow", Settings(slow="wait"))), world.root()
    world.child(cut, CAROL)
    fill(world, cut)
    world.budget.limit_bytes = 2 * LITTLE_PARTS * cut.flow.log.size_bytes
    keep(world, waiting, 2 * world.budget.limit_bytes)
    world.host.time = CONFIG.patience_s
    flow_control.cut()
    assert Mark("lease_cut") not in world.host.records
    cut.flow.end(FIRST, 60.0)
    flow_control.cut()
    assert cut.flow.past[FIRST].bundles, "nor is what they keep of past terms discarded"
    world.budget.limit_bytes //= 4
    flow_control.cut()
    assert not cut.flow.past[FIRST].bundles


def test_a_root_without_room_takes_of_publishers_that_are_held_back_what_it_keeps_of_a_past_term(world: Parts) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    tree.flow.begin(SECOND, 0, 60.0)
    world.flow_control.held_back[tree.topic] = None
    world.budget.limit_bytes = LITTLE_PARTS * CONFIG.window_bytes
    kept, another = (Bundle(Envelope(tree.topic, UP), (block(publisher, 0),)) for publisher in (PAUL, PAULA))
    world.budget.used_bytes = world.budget.limit_bytes + CONFIG.window_bytes
    for bundle, taken in ((another, 1), (another, 1), (kept, 2)):
        world.intake.up(BOB, bundle)
        assert len(world.sealing.unsealed[tree.topic]) == taken
    world.intake.publish_here(another)
    world.budget.used_bytes += CONFIG.window_bytes
    world.intake.up(BOB, kept)
    assert len(world.sealing.unsealed[tree.topic]) == 2, "nor of its own, nor beyond a bound"
    assert world.host.released == [(BOB.node_id, another.size), (BOB.node_id, kept.size)]


def test_full_buffers_discard_copies_although_a_repair_filled_them(world: Parts) -> None:
    tree = world.root()
    tree.root = None
    fill(world, tree)
    bundle = Bundle(Envelope(TOPIC, DOWN, FIRST, 3), (block(PAUL, 3),))
    world.arrivals.taken(tree.flow, BOB.node_id, bundle, is_due=True)
    assert Mark("shed_copies") in world.host.records
    assert not world.budget.over


def test_the_peer_that_a_term_was_transferred_to_discards_only_what_is_stable(world: Parts) -> None:
    tree = world.root()
    tree.root, tree.inherited = None, Position(tree.term, 3)
    fill(world, tree)
    tree.flow.current.stable = 1
    shed(tree, 0.0, 0, tree.term)
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
    assert LeaseEnded(tree.topic) in world.ordered
    assert Mark("lease_cut") in world.host.records


@pytest.mark.parametrize("lost", [True, False], ids=["a lost peer", "a child that stands still"])
def test_a_lease_that_ends_for_lack_of_memory_ends_in_the_peers_other_topics_that_may_be_cut(
    world: Parts, flow_control: FlowControl, *, lost: bool
) -> None:
    trees = [world.root(Descriptor(name, Settings(slow=slow))) for name, slow in
             (("weather", "cut"), ("news", "cut"), ("orders", "wait"))]  # fmt: skip
    for tree in trees:
        child = world.child(tree, CAROL)
        fill(world, tree, events=20 if tree is trees[0] else 1)
        if lost:
            take_out(tree, CAROL.node_id)
            tree.open_leases().orphan(child, CONFIG.lease_s, (CAROL.node_id,))
    flow_control.release(BOB.node_id, 10, trees[0].topic)
    world.host.time += CONFIG.patience_s
    world.dispatch.timer(PatienceOver())
    held = [bool(tree.leases.orphaned) if lost else not tree.leases.children[CAROL.node_id].is_cut for tree in trees]
    assert held == [False, False, True]


def test_a_lease_ends_in_other_topics_only_if_its_peer_is_lost_and_behind_there(
    world: Parts, flow_control: FlowControl
) -> None:
    short, news = [world.root(Descriptor(name, Settings(slow="cut"))) for name in ("weather", "news")]
    children = [world.child(tree, CAROL) for tree in (short, news)]
    for tree, child, events in zip((short, news), children, (20, 1), strict=True):
        fill(world, tree, events=events)
        take_out(tree, CAROL.node_id)
        move = Move(CAROL.node_id, 7) if tree is short else None
        tree.open_leases().orphan(child, CONFIG.lease_s, (CAROL.node_id,), move=move)
    flow_control.release(BOB.node_id, 10, short.topic)
    world.host.time += CONFIG.patience_s
    world.dispatch.timer(PatienceOver())
    assert not short.leases.orphaned
    assert news.leases.orphaned, "it moved, and may have arrived elsewhere"


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


def test_a_child_that_keeps_up_is_asked_again_before_its_own_lease_ends(
    world: Parts, flow_control: FlowControl
) -> None:
    """The first message may have been lost."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    flow_control.hold_back()
    for _ in range(2):
        world.host.time += CONFIG.patience_s * 0.9
        child.note_report(ChildReport(FIRST, 0, FIRST, frontier=tree.frontier))
        flow_control.cut()
        assert child.cut is None
    assert world.host.sent == 2 * [(CAROL, CutLeases(tree.topic, FIRST, tree.frontier))]
    world.host.time += CONFIG.patience_s / 2
    flow_control.cut()
    assert child.cut is not None


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
    world.sealing.seal(Seal(tree.topic))
    world.sealing.acknowledge(Acknowledge(tree.topic))
    assert [message.held_back for _, message in world.host.sent if isinstance(message, Receipts)] == [True]
    world.budget.limit_bytes = 10 * world.budget.used_bytes
    world.flow_control.relieved()
    assert len(world.host.released) == 1
    assert RoomAgain(tree.topic) in world.ordered
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
    assert world.flow_control.held_back.keys() == {tree.topic}
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST)))
    assert not world.flow_control.held_back
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST, used_up=True)))
    world.progress.tell(tree)
    tree.leases.children.clear()
    world.flow_control.housekeep(0.0, paused=False)
    assert not world.flow_control.held_back, "it is no child any more"


def test_a_root_goes_on_when_a_child_comes_back_that_has_room_again(world: Parts) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="wait")))
    world.child(tree, BOB)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST, used_up=True)))
    assert world.flow_control.shares.is_used_up(tree)
    take_out(tree, BOB.node_id)
    world.reporting.changed(BOB, tree.topic, encode(ChildReport(FIRST, 0, FIRST)))
    assert BOB.node_id in tree.leases.children
    assert not world.flow_control.shares.is_used_up(tree)


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
    assert not cut.is_over(9, 20, 0.5)
    assert not cut.is_over(10, 20, 5.0), "that took too long: now it has to reach 20 soon"
    assert not cut.is_over(19, 30, 5.5)
    assert cut.is_over(20, 30, 5.5)


def test_or_once_what_a_peer_misses_leaves_room_in_the_buffers(world: Parts) -> None:
    """It has half of the events by repairs, for instance, and is as far behind for good."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    world.budget.limit_bytes = world.budget.used_bytes * ROOM_PARTS // (ROOM_PARTS - 1)

    def is_cut(acknowledged: int) -> bool:
        child.cut_off(Cut(mark=1, at=world.host.now() - 10.0))
        child.note_report(ChildReport(FIRST, acknowledged, FIRST))
        catch_up(tree, child, world.host.now())
        return child.is_cut

    child.channel.cursor = tree.flow.log.end - 1
    assert is_cut(1), "some of what is here waits for it: it is slow"
    child.channel.cursor += 1
    assert is_cut(0), "and it must have what came before its lease ended"
    world.budget.limit_bytes -= ROOM_PARTS
    assert is_cut(1), "and there must be room for what it is behind by"
    world.budget.limit_bytes += 2 * ROOM_PARTS
    assert not is_cut(1)


def test_who_came_below_a_child_whose_lease_is_cut_is_waited_for_elsewhere(world: Parts) -> None:
    """What such a child reports holds nothing, not even for those that keep up and came from another parent."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child, former = world.child(tree, CAROL), world.child(tree, BOB, 2)
    fill(world, tree)
    end, newcomer = tree.frontier, Move(PAUL, 7)
    end_lease(tree, child, world.host.now())
    take_out(tree, BOB.node_id)
    tree.open_leases().orphan(former, CONFIG.lease_s, (PAUL,), move=Move(PAUL, 6))
    report = ChildReport(FIRST, 1, FIRST, newcomers=(PAUL,), arrivals=(newcomer,))
    world.reporting.changed(CAROL, tree.topic, encode(report))
    assert acknowledged_position(tree, world.host.now()) == 2
    assert (newcomers(tree.leases, 0.0), arrivals(tree.leases, CAROL.node_id)) == ((), ()), "those above wait, too"
    child.note_report(msgspec.structs.replace(report, acknowledged=end, frontier=end))
    catch_up(tree, child, world.host.now())
    assert acknowledged_position(tree, world.host.now()) == end
    assert (newcomers(tree.leases, 0.0), arrivals(tree.leases, CAROL.node_id)) == ((PAUL,), (newcomer,))


def test_a_subscription_that_was_cut_for_what_its_peer_missed_has_a_lease_again_when_that_came(world: Parts) -> None:
    """Its queue was never full, so that nothing else would tell."""
    tree = world.tree(Descriptor("weather", Settings(slow="cut")))
    tree.flow.begin(FIRST, 0, 0.0, 0)
    tree.parent = CAROL
    subscription = Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, None))
    subscription.adapt(tree.descriptor)
    subscription.begin(FIRST, 0)
    tree.start(subscription)
    world.dispatch.message(CAROL, CutLeases(tree.topic, FIRST, 3))
    assert subscription.is_cut
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    world.progress.tell(tree)
    assert not subscription.is_cut


def test_a_cut_requested_in_one_term_does_not_apply_to_the_next(world: Parts) -> None:
    child = world.child(world.root(), CAROL)
    child.request_cut(50)
    child.note_report(ChildReport(FIRST, 5, FIRST))
    assert child.cut_request is not None
    child.note_report(ChildReport(SECOND, 5, SECOND))
    assert child.cut_request is None


def test_a_child_that_caught_up_is_asked_to_cut_those_below_it_that_did_not(world: Parts) -> None:
    """Otherwise all others below it would have no lease for as long as one of them is behind."""
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    mark = tree.frontier
    end_lease(tree, child, world.host.now())
    for frontier in (mark - 1, mark, mark):
        world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, 1, FIRST, frontier=frontier)))
    assert world.host.sent == [(CAROL, CutLeases(tree.topic, FIRST, mark))]
    world.host.time += CATCH_UP_S
    world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, 1, FIRST, frontier=mark + 1)))
    assert world.host.sent == 2 * [(CAROL, CutLeases(tree.topic, FIRST, mark))], "the message may have been lost"
    world.reporting.changed(CAROL, tree.topic, encode(ChildReport(FIRST, mark, FIRST, frontier=mark)))
    assert child.cut is None
