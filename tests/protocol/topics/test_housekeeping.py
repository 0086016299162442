"""Becoming root, forgetting, and what time brings."""

import msgspec

from quillcast.core.envelope import NO_TERM
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.known.forgetting import Forgetting
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.messages import Accepted, Leave
from quillcast.protocol.topics.policy.channels import take_out
from quillcast.protocol.topics.root_messages import FindRoot, NotRoot, RecordState, StateDigest
from quillcast.protocol.topics.state.effects import (
    GapNoticed,
    LeaveIfIdle,
    PlaceTaken,
    RefuseRequest,
    RootHere,
    TermChosen,
)
from quillcast.protocol.topics.state.link_reports import ParentReport, encode
from quillcast.protocol.topics.state.schedule import HousekeepingDue
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, WEATHER, Notes
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts


def test_a_candidate_that_is_alone_becomes_root_and_answers_waiting_requests(world: Parts) -> None:
    world.alone()
    tree = world.tree()
    world.terms.keep(tree)
    world.candidacies.wait(tree.topic, FindRoot(tree.topic, BOB, DESCRIPTOR, NO_TERM))
    assert tree.root is not None
    assert world.ordered == [TermChosen(tree.topic, tree.term), PlaceTaken(tree.topic), RootHere(tree.topic)]
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
    assert world.ordered == [GapNoticed(tree.topic), LeaveIfIdle(tree.topic, anyway=True)]
    assert world.timers == [HousekeepingDue()] * 2


def test_no_round_of_housekeeping_follows_if_nothing_is_due(world: Parts) -> None:
    world.schedule.begin()
    world.housekeeping.housekeep()
    assert not world.schedule.round_set
    assert world.schedule.paused_from == float("inf"), "no round is late"


def test_an_expired_lease_is_ended_and_reported(world: Parts) -> None:
    tree = world.root()
    housekeeping = world.housekeeping
    child = world.child(tree, BOB)
    tree.open_leases().orphan(child, 1.0, [BOB.node_id])
    world.schedule.wake(tree)
    world.host.time = 2.0
    housekeeping.housekeep()
    assert tree.leases.orphaned == {}
    assert tree.topic in world.schedule.dirty


def test_leases_that_a_peer_names_as_it_leaves_end_as_if_it_had_stayed(world: Parts) -> None:
    tree = world.root()
    world.children.enter(tree, BOB, 0)
    named = (CAROL.node_id, PAUL)
    world.children.left(BOB, Leave(tree.topic, True, named, lives=(0, 0), left_s=(5.0, 2 * CONFIG.lease_s)))
    world.schedule.begin()
    world.schedule.wake(tree)
    still_named = []
    while tree.leases.orphaned:
        world.host.time += 1.0
        still_named.append(world.membership.last_word(tree.topic).leases)
        world.housekeeping.housekeep()
    assert still_named == [named] * 4 + [(PAUL,)] * 25 + [()]


def test_no_named_lease_ends_during_a_pause(world: Parts) -> None:
    tree = world.root()
    world.children.enter(tree, BOB, 0)
    world.children.left(BOB, Leave(tree.topic, True, (CAROL.node_id,), lives=(0,), left_s=(5.0,)))
    lease = tree.leases.orphaned[BOB.node_id]
    assert lease.until == world.host.time + 5.0
    lease.prolong(100.0)
    assert lease.ends_at(CAROL.node_id) == 100.0


def test_a_root_that_alone_keeps_its_state_takes_no_topic_for_new_before_a_lease_has_passed() -> None:
    parts = Parts()
    began_at = parts.host.now()
    alone = ReplicaSet(parts.host, msgspec.structs.replace(CONFIG, replicas=1), parts.overlay, parts.neighbours)
    assert alone.doubt(WEATHER, parts.host.me).until == began_at + CONFIG.lease_s
    assert parts.replica_set.doubt(WEATHER, parts.host.me).until == 0.0


def test_the_end_of_a_lease_of_a_child_of_old_that_now_stands_above_is_reported(world: Parts) -> None:
    """The parent's path need not have changed, and without that word nothing would become stable any more."""
    tree = world.root(described("weather"))
    child = world.child(tree, CAROL)
    tree.root, tree.parent, tree.path = None, BOB, (CAROL.node_id, BOB.node_id)
    take_out(tree, CAROL.node_id)
    tree.open_leases().orphan(child, CONFIG.lease_s, (CAROL.node_id,), leaf=True)
    world.schedule.take()
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(tree.term, 0, 0, tree.path, ())))
    assert tree.leases.orphaned == {}
    assert tree.topic in world.schedule.dirty


def test_a_lease_of_more_than_one_goes_on_if_nobody_knows_whether_its_child_was_restarted(world: Parts) -> None:
    """It stands above now, and was taken back here without a Join. What was below it before may be nowhere yet."""
    tree = world.root(described("weather"))
    child = world.child(tree, CAROL)
    assert not child.number
    tree.root, tree.parent, tree.path = None, BOB, (CAROL.node_id, BOB.node_id)
    take_out(tree, CAROL.node_id)
    tree.open_leases().orphan(child, CONFIG.lease_s, (CAROL.node_id,))
    world.reporting.changed(BOB, tree.topic, encode(ParentReport(tree.term, 0, 0, tree.path, ())))
    assert list(tree.leases.orphaned[CAROL.node_id].awaited) == [CAROL.node_id]
