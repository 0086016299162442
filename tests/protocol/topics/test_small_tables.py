"""Small tables of the topics layer: what is to be reported, who took over, who stands in for a parent."""

import pytest

from quillcast.core.dispatch import Dispatch
from quillcast.core.messages import Contact
from quillcast.protocol.topics.known.successors import Successors
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.policy.scribe_tree import ScribeTree
from quillcast.protocol.topics.root_messages import NotRoot
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.schedule import HousekeepingDue, ReportDue
from tests.protocol.recording import ALICE, BOB, CAROL, WEATHER
from tests.protocol.topics.parts import CONFIG, Parts


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
    monkeypatch.setattr("quillcast.protocol.topics.known.successors.TOPICS_MAX", 2)
    successors = Successors()
    for topic in (b"1", b"2", b"1", b"3"):
        successors.note(topic, BOB)
    assert list(successors.by_topic) == [b"1", b"3"]
    successors.forget(b"1")
    assert (successors.of(b"1"), successors.of(b"3")) == (None, BOB)


def test_an_answer_goes_straight_and_over_the_overlay_when_it_is_asked_for_again(world: Parts) -> None:
    dispatch = Dispatch()
    answers, message = Answers(world.host, world.ring, dispatch), NotRoot(WEATHER, None)
    heard: list[Contact] = []
    dispatch.on_message(NotRoot, lambda sender, _: heard.append(sender))
    answers.tell(BOB, message, again=False)
    answers.tell(BOB, message, again=True)
    answers.tell(ALICE, message, again=True)
    assert world.host.sent == [(BOB, message), (BOB, message)]
    assert world.ring.routed == [(message, BOB.node_id)]
    assert heard == [ALICE]
    world.overlay.seats.note(WEATHER, "site")
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
