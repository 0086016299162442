"""Parts of the topics layer by themselves: one input, then what was sent, set, and ordered of parts above."""

from typing import Any

import pytest

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.admissions import Admissions
from quillcast.protocol.topics.changes import SettingsChanges
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.due import DueTopics, HousekeepingDue
from quillcast.protocol.topics.effects import Effect, LeaseEnded, Outdone
from quillcast.protocol.topics.fallbacks import Fallbacks
from quillcast.protocol.topics.flow_control import FlowControl, PatienceOver
from quillcast.protocol.topics.forgetting import Forgetting
from quillcast.protocol.topics.messages import (
    Closed,
    Created,
    CutLeases,
    FindRoot,
    RootIs,
    StillOpen,
)
from quillcast.protocol.topics.publisher import Publisher
from quillcast.protocol.topics.reports import ReportDue, Reports
from quillcast.protocol.topics.ring import Answers
from quillcast.protocol.topics.root import Admission, Root
from quillcast.protocol.topics.successors import Successors
from quillcast.protocol.topics.terms import Terms
from quillcast.protocol.topics.tree import Child, Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, RecordingHost, block, down

CONFIG = TopicConfig()
DESCRIPTOR = described("weather")


class Line:
    """A ring on which peers stand in a fixed order for every key; what is routed is noted."""

    def __init__(self, *contacts: Contact, active: bool = True) -> None:
        self.contacts, self.active = list(contacts), active
        self.routed: list[tuple[Message, bytes]] = []

    def route(self, message: Message, key: bytes) -> None:
        self.routed.append((message, key))

    def is_closest(self, key: bytes) -> bool:
        return self.contacts[0] == ALICE

    def closest(self, key: bytes, count: int) -> list[Contact]:
        return self.contacts[:count]


class World:
    """What every part is given: a host that notes its orders, and a list of what is ordered of parts above."""

    def __init__(self, *ring: Contact) -> None:
        self.host, self.ring, self.dispatch = RecordingHost(), Line(*(ring or (BOB, ALICE, CAROL))), Dispatch()
        self.ordered: list[Effect] = []
        self.budget = Budget(1 << 20)
        self.trees: dict[bytes, Tree] = {}
        self.reports, self.due = Reports(self.host, CONFIG.report_s), DueTopics(self.host, CONFIG.housekeeping_s)
        self.forgetting = Forgetting({}, CONFIG.idle_topics_max)

    @property
    def timers(self) -> list[Any]:
        return [timer for timer, _ in self.host.timers]

    def tree(self, descriptor: Descriptor = DESCRIPTOR) -> Tree:
        tree = self.trees[descriptor.topic] = Tree(descriptor.topic, descriptor, self.budget)
        return tree

    def root(self, descriptor: Descriptor = DESCRIPTOR) -> Tree:
        """A tree whose root is here."""
        tree = self.tree(descriptor)
        tree.root = Root(self.host, CONFIG, descriptor, FIRST, 0.0)
        tree.begin(FIRST, 0, 0.0, 0)
        return tree

    def child(self, tree: Tree, contact: Contact, acknowledged: int = 0) -> Child:
        child = Child(self.host, contact, 0, tree.term, acknowledged)
        tree.enter(child)
        return child


@pytest.fixture
def world() -> World:
    return World()


# ---- small tables


def test_a_touched_topic_is_reported_at_once_and_then_at_its_rate(world: World) -> None:
    tree = world.tree()
    world.reports.touch(tree)
    world.reports.touch(tree)
    assert world.host.timers == [(ReportDue(), 0.0)]
    assert world.reports.take() == [tree.topic]
    assert world.reports.take() == []
    world.reports.touch(tree)
    assert world.host.timers[1:] == [(ReportDue(), CONFIG.report_s)]


def test_a_topic_that_is_forgotten_is_not_reported(world: World) -> None:
    tree = world.tree()
    world.reports.touch(tree)
    world.reports.forget(tree)
    assert world.reports.take() == []


def test_one_timer_serves_all_topics_that_are_due(world: World) -> None:
    world.due.wake(world.tree())
    world.due.begin()
    world.due.begin()
    assert world.host.timers == [(HousekeepingDue(), CONFIG.housekeeping_s)]
    world.due.stop()
    world.due.begin()
    assert world.timers == [HousekeepingDue()] * 2


def test_a_former_root_remembers_the_latest_successors_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quillcast.protocol.topics.successors.TOPICS_MAX", 2)
    successors = Successors()
    for topic in (b"1", b"2", b"1", b"3"):
        successors.note(topic, BOB)
    assert list(successors.by_topic) == [b"1", b"3"]
    successors.forget(b"1")
    assert (successors.of(b"1"), successors.of(b"3")) == (None, BOB)


def test_an_answer_goes_straight_and_over_the_overlay_when_it_is_asked_for_again(world: World) -> None:
    answers, message = Answers(world.host, world.ring, world.dispatch), StillOpen([])
    heard: list[Contact] = []
    world.dispatch.on_message(StillOpen, lambda sender, _: heard.append(sender))
    answers.tell(BOB, message, again=False)
    answers.tell(BOB, message, again=True)
    answers.tell(ALICE, message, again=True)
    assert world.host.sent == [(BOB, message)]
    assert world.ring.routed == [(message, BOB.node_id)]
    assert heard == [ALICE]


def test_children_of_a_root_are_named_the_next_root_and_their_siblings(world: World) -> None:
    fallbacks, tree = Fallbacks(ALICE.node_id, world.ring, 3), world.root()
    world.child(tree, CAROL)
    world.child(tree, BOB)
    assert fallbacks.of(tree) == (BOB, CAROL)


def test_children_of_a_forwarder_are_named_their_grandparent_first() -> None:
    world = World()
    tree = world.tree()
    tree.parent = CAROL
    world.child(tree, BOB)
    assert Fallbacks(ALICE.node_id, world.ring, 3).of(tree) == (CAROL, BOB)
    assert Fallbacks(ALICE.node_id, world.ring, 1).of(tree) == (CAROL,)


# ---- terms


@pytest.fixture
def terms(world: World) -> Terms:
    return Terms(world.host, CONFIG.past_terms_s, world.reports, world.due, world.ordered.append)


def test_a_root_that_hears_of_a_later_term_is_outdone(world: World, terms: Terms) -> None:
    tree = world.root()
    terms.heard_of(tree, FIRST)
    assert world.ordered == []
    terms.heard_of(tree, SECOND)
    assert world.ordered == [Outdone(tree)]
    assert tree.heard == SECOND


def test_a_peer_that_is_no_root_only_notes_a_later_term(world: World, terms: Terms) -> None:
    tree = world.tree()
    terms.heard_of(tree, SECOND)
    assert (tree.heard, world.ordered) == (SECOND, [])


def test_a_new_term_is_reported_and_the_one_before_it_is_kept_to_its_end(world: World, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 0)
    terms.note_end(tree.topic, FIRST, 7)
    terms.enter(tree, SECOND, 0)
    assert (tree.term, tree.past[FIRST].end) == (SECOND, 7)
    assert world.timers == [ReportDue()]


def test_a_peer_stays_in_the_tree_for_a_term_that_is_over(world: World, terms: Terms) -> None:
    tree = world.tree()
    assert not tree.needed
    terms.keep(tree)
    assert tree.needed
    assert list(world.due.topics) == [tree.topic]


# ---- flow control


@pytest.fixture
def flow_control(world: World) -> FlowControl:
    return FlowControl(
        world.host, CONFIG, world.trees, world.budget, world.reports, world.dispatch, world.ordered.append
    )


def fill(world: World, tree: Tree, events: int = 3) -> None:
    """The tree keeps as much as the whole budget, and a byte more."""
    for index in range(events):
        tree.move(down(FIRST, index, block(PAUL, index)))
    world.budget.limit_bytes = world.budget.used_bytes - 1


def test_credit_goes_back_at_once_while_there_is_room(world: World, flow_control: FlowControl) -> None:
    flow_control.release(BOB.node_id, 10)
    assert world.host.released == [(BOB.node_id, 10)]


def test_credit_is_held_back_while_the_buffers_are_over_their_budget(world: World, flow_control: FlowControl) -> None:
    tree = world.root()
    world.child(tree, CAROL)
    fill(world, tree)
    flow_control.release(BOB.node_id, 10)
    assert world.host.released == []
    assert world.timers == [PatienceOver()]
    world.budget.limit_bytes *= 2
    flow_control.relieved()
    assert world.host.released == [(BOB.node_id, 10)]


def test_when_patience_is_over_the_lease_that_holds_back_the_most_is_cut(
    world: World, flow_control: FlowControl
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


def test_a_child_that_keeps_up_itself_is_asked_to_cut_those_below_it(world: World, flow_control: FlowControl) -> None:
    tree = world.root(Descriptor("weather", Settings(slow="cut")))
    child = world.child(tree, CAROL)
    fill(world, tree)
    child.frontier = tree.frontier
    world.dispatch.message(BOB, CutLeases(tree.topic, FIRST, tree.frontier))
    assert world.host.sent == [(CAROL, CutLeases(tree.topic, FIRST, tree.frontier))]
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


def admitting(world: World) -> tuple[Admissions, Neighbours]:
    neighbours = Neighbours()
    return Admissions(world.host, CONFIG, world.trees, NoPublishers(), neighbours, world.dispatch), neighbours


def test_a_publisher_that_says_it_closed_is_forgotten(world: World) -> None:
    admitting(world)
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions[PAUL] = _settled(BOB)
    world.dispatch.message(BOB, Closed([(tree.topic, PAUL), (b"?" * 16, PAUL)]))
    assert tree.root.admissions == {}


def test_the_peer_of_a_silent_publisher_is_asked_for_it(world: World) -> None:
    admissions, neighbours = admitting(world)
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions[PAUL] = _settled(BOB)
    for _ in range(2):
        world.host.time += CONFIG.lease_s
        admissions.housekeep(world.host.time)
    assert neighbours.probed == [BOB]
    assert world.host.sent == [(BOB, StillOpen([(tree.topic, PAUL)]))]


def _settled(contact: Contact) -> Admission:
    """A publisher of whom all is stable."""
    return Admission(contact, 0, 0.0)


# ---- changes of settings


def changing(world: World) -> SettingsChanges:
    return SettingsChanges(
        world.host, CONFIG.receipt_timeout_s, world.ring, world.trees, dict[bytes, dict[bytes, Publisher]](),
        world.due, world.forgetting,
    )  # fmt: skip


def test_who_changes_settings_asks_for_the_root_until_it_answers(world: World) -> None:
    changes = changing(world)
    changes.ask("weather", {"slow": "wait"}, lambda answer: None)
    asked = (FindRoot(DESCRIPTOR.topic, ALICE, None, NO_TERM), DESCRIPTOR.topic)
    assert world.ring.routed == [asked]
    assert world.timers == [HousekeepingDue()]
    changes.housekeep(CONFIG.receipt_timeout_s)
    assert world.ring.routed == [asked, asked]


def test_the_next_version_is_offered_to_the_root_that_answers(world: World) -> None:
    changes = changing(world)
    answers: list[Any] = []
    changes.ask("weather", {"slow": "wait"}, answers.append)
    offer = changes.root_found(DESCRIPTOR)
    assert offer is not None
    assert (offer[0].settings.slow, offer[0].version) == ("wait", 2)
    assert changes.root_found(DESCRIPTOR) is None
    assert answers == []


def test_what_cannot_change_is_refused_without_asking_the_root_further(world: World) -> None:
    changes = changing(world)
    answers: list[Any] = []
    changes.ask("weather", {"delivery": "best_effort"}, answers.append)
    assert changes.root_found(DESCRIPTOR) is None
    assert [type(answer) for answer in answers] == [LocalError]


def test_a_root_tells_publishers_and_children_of_a_change(world: World) -> None:
    tree = world.root()
    assert tree.root is not None
    tree.root.admissions[PAUL] = _settled(BOB)
    world.child(tree, CAROL)
    changing(world).entered(tree)
    assert world.host.sent == [(BOB, RootIs(FIRST, DESCRIPTOR)), (CAROL, Created(DESCRIPTOR))]
