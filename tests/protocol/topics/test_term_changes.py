"""How a peer follows its roots: one input, then what was sent, set, and ordered of parts above."""

import pytest

from quillcast.core.envelope import Position
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.topics.state.effects import (
    Outdone,
)
from quillcast.protocol.topics.state.schedule import ReportDue
from quillcast.protocol.topics.state.sources import NO_SOURCES
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import FIRST, PAUL, SECOND, Notes, block, down
from tests.protocol.topics.parts import STREAM, Parts


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


def a_subscription_since_the_second_term(world: Parts) -> tuple[Tree, Subscription]:
    tree = world.tree()
    world.terms.enter(tree, SECOND, 3)
    subscription = Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, None))
    subscription.begin(SECOND, 3)
    subscription.begin_now()
    tree.start(subscription)
    world.host.time += 10.0
    return tree, subscription


@pytest.mark.parametrize(("there_s", "owed"), [(12, []), (9, [(0, 5)]), (None, [])])
def test_an_earlier_term_is_owed_unless_it_was_over_when_the_subscription_began(
    world: Parts, terms: Terms, there_s: int | None, owed: list[tuple[int, int]]
) -> None:
    """It may have gone on beyond a partition. Nothing is decided before somebody says for how long it has been over."""
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, FIRST, 5)
    assert tree.flow.owed(FIRST).ranges() == []
    terms.recall(tree, FIRST, 5, there_s)
    assert tree.flow.owed(FIRST).ranges() == owed
    assert (subscription.term_cursor(FIRST) is None) == (there_s is None)


def test_what_came_of_an_earlier_term_before_it_is_known_to_be_owed_is_delivered_or_reported(
    world: Parts, terms: Terms
) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, FIRST, 5)
    tree.flow.restore(down(FIRST, 0, block(PAUL, 0)))
    tree.flow.restore(down(FIRST, 1, block(PAUL, 1)))
    tree.flow.lose(FIRST, [(2, 3)])
    terms.recall(tree, FIRST, 5, 0)
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.got, notes.lost_) == ([b"0", b"1"], [(FIRST.counter, 2, 3, "unavailable")])
    assert tree.flow.owed(FIRST).ranges() == [(3, 5)]


def test_what_went_on_is_reported_though_its_publisher_sent_the_next_event_to_the_subscriptions_own_root(
    world: Parts, terms: Terms
) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    tree.flow.move(down(SECOND, 3, block(PAUL, 2)), tree.flow.current)
    terms.recall(tree, FIRST, 2, 0)
    tree.flow.learn_runs(FIRST, [Run(0, PAUL, 0, 2)])
    tree.flow.lose(FIRST, [(0, 2)])
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.got, notes.lost_) == ([b"2"], [(FIRST.counter, 0, 2, "unavailable")])


def test_what_was_discarded_before_of_an_earlier_term_is_not_owed_when_it_turns_out_to_have_gone_on(
    world: Parts, terms: Terms
) -> None:
    tree, _ = a_subscription_since_the_second_term(world)
    tree.flow.note_over(FIRST, 2)
    terms.recall(tree, FIRST, 5, 0)
    assert tree.flow.owed(FIRST).ranges() == [(2, 5)]


def test_a_peer_says_for_how_long_all_events_of_an_earlier_term_have_been_there(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 0)
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    world.progress.tell(tree)
    world.host.time += 5.0
    terms.enter(tree, SECOND, 0)
    world.host.time += 8.9
    assert tree.flow.held(world.host.now()) == ((FIRST, 1, ((0, 1),), 0, 12),), "less than the 13.9 s of its event"
    terms.recall(tree, FIRST, 3)
    assert tree.flow.held(world.host.now())[0][-1] is None, "of the later ones it does not know"
