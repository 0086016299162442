"""How a peer follows its roots: one input, then what was sent, set, and ordered of parts above."""

import pytest

from quillcast.core.envelope import Position, Term
from quillcast.protocol.forwarding.discarding import discard_past, lose
from quillcast.protocol.forwarding.event_places import learn_runs
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.forwarding.milestones import Milestones
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.messages import Accepted, Join
from quillcast.protocol.topics.root_messages import TransferLeadership
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.effects import (
    LaterTermExists,
)
from quillcast.protocol.topics.state.owing import owe
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.schedule import ReportDue
from quillcast.protocol.topics.state.sources import NO_SOURCES
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, PAULA, SECOND, Notes, block, down
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, STREAM, Parts

BEST_EFFORT = Settings(delivery="best_effort")


@pytest.fixture
def terms(world: Parts) -> Terms:
    return world.terms


def test_a_root_that_learns_of_a_later_term_is_outdated(world: Parts, terms: Terms) -> None:
    tree = world.root()
    terms.heard_of(tree, FIRST)
    assert world.ordered == []
    terms.heard_of(tree, SECOND)
    assert world.ordered == [LaterTermExists(tree.topic)]
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


BEYOND = Term(1, CAROL.node_id)
"""An earlier term, of a root beyond a partition."""


def a_subscription_since_the_second_term(
    world: Parts, descriptor: Descriptor = DESCRIPTOR
) -> tuple[Tree, Subscription]:
    tree = world.tree(descriptor)
    world.terms.enter(tree, SECOND, 3)
    return tree, a_subscription(world, tree, 3)


def a_subscription(world: Parts, tree: Tree, start: int) -> Subscription:
    """It began ten seconds ago, in the present term."""
    subscription = Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, None))
    subscription.adapt(tree.descriptor)
    subscription.begin(tree.term, start)
    for past in tree.flow.past.values():
        owe(tree, subscription, past)
    subscription.begin_now()
    tree.start(subscription)
    world.host.time += 10.0
    return subscription


@pytest.mark.parametrize(("there_ms", "owed"), [(12_000, []), (9_000, [(0, 5)]), (None, [])])
def test_an_earlier_term_is_owed_unless_it_was_over_when_the_subscription_began(
    world: Parts, terms: Terms, there_ms: int | None, owed: list[tuple[int, int]]
) -> None:
    """It may have gone on beyond a partition. Nothing is decided before somebody says for how long it has been over."""
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 5)
    assert tree.flow.owed(BEYOND).ranges() == []
    terms.recall(tree, BEYOND, 5, there_ms)
    assert tree.flow.owed(BEYOND).ranges() == owed
    assert (subscription.term_cursor(BEYOND) is None) == (there_ms is None)


def test_what_came_of_an_earlier_term_before_it_is_known_to_be_owed_is_delivered_or_reported(
    world: Parts, terms: Terms
) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 5)
    tree.flow.restore(down(BEYOND, 0, block(PAUL, 0)))
    tree.flow.restore(down(BEYOND, 1, block(PAUL, 1)))
    lose(tree.flow, BEYOND, [(2, 3)])
    terms.recall(tree, BEYOND, 5, 0)
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.got, notes.lost_) == ([b"0", b"1"], [(BEYOND.counter, 2, 3, "unavailable")])
    assert tree.flow.owed(BEYOND).ranges() == [(3, 5)]


@pytest.mark.parametrize(
    ("settings", "lost"), [(Settings(), [(BEYOND.counter, 0, 5, "unavailable")]), (BEST_EFFORT, [])]
)
def test_an_earlier_term_is_reported_in_the_end_if_nobody_says_for_how_long_it_has_been_over(
    world: Parts, terms: Terms, settings: Settings, lost: list[tuple[int, int, int, str]]
) -> None:
    """All peers that had been in its tree are gone: only a publisher knows how far it went."""
    tree, subscription = a_subscription_since_the_second_term(world, described("weather", settings))
    terms.recall(tree, BEYOND, 5)
    world.schedule.wake(tree)
    world.host.time += CONFIG.past_terms_s
    world.schedule.note_round(world.host.time)
    world.housekeeping.housekeep()
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert notes.lost_ == lost
    assert BEYOND in tree.flow.past.forgotten


def test_what_went_on_is_reported_though_its_publisher_sent_the_next_event_to_the_subscriptions_own_root(
    world: Parts, terms: Terms
) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    tree.flow.move(down(SECOND, 3, block(PAUL, 2)), tree.flow.current)
    terms.recall(tree, BEYOND, 2, 0)
    learn_runs(tree.flow, BEYOND, [Run(0, PAUL, 0, 2)])
    lose(tree.flow, BEYOND, [(0, 2)])
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.got, notes.lost_) == ([b"2"], [(BEYOND.counter, 0, 2, "unavailable")])


def test_what_a_known_term_had_when_it_went_on_is_reported_whatever_the_subscriptions_own_term_had_before(
    world: Parts, terms: Terms
) -> None:
    """Beyond a cut, the publisher discarded events at a bound, and sent only the next one to the later root."""
    tree = world.tree()
    terms.enter(tree, BEYOND, 0)
    tree.flow.move(down(BEYOND, 0, block(PAULA, 0)), tree.flow.current)
    terms.enter(tree, SECOND, 3)
    subscription = a_subscription(world, tree, 3)
    tree.flow.move(down(SECOND, 3, block(PAUL, 2)), tree.flow.current)
    terms.recall(tree, BEYOND, 3, 0)
    learn_runs(tree.flow, BEYOND, [Run(1, PAUL, 0, 2)])
    lose(tree.flow, BEYOND, [(1, 3)])
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.got, notes.lost_) == ([b"2"], [(BEYOND.counter, 0, 2, "unavailable")])


def test_what_was_discarded_before_of_an_earlier_term_is_not_owed_when_it_turns_out_to_have_gone_on(
    world: Parts, terms: Terms
) -> None:
    tree, _ = a_subscription_since_the_second_term(world)
    tree.flow.open_past().note_over(BEYOND, 2)
    terms.recall(tree, BEYOND, 5, 0)
    assert tree.flow.owed(BEYOND).ranges() == [(2, 5)]


def test_a_peer_says_for_how_long_all_events_of_an_earlier_term_have_been_there(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, BEYOND, 0)
    tree.flow.move(down(BEYOND, 0, block(PAUL, 0)), tree.flow.current)
    world.progress.tell(tree)
    world.host.time += 5.0
    terms.enter(tree, SECOND, 0)
    world.host.time += 8.9
    assert tree.flow.held(world.host.now()) == ((BEYOND, 1, ((0, 1),), 0, 12_000),), "less than the 13.9 s of its event"
    terms.recall(tree, BEYOND, 3)
    assert tree.flow.held(world.host.now())[0][-1] is None, "of the later ones it does not know"


def test_a_term_of_the_same_process_was_over_when_a_later_one_began_whatever_others_say(
    world: Parts, terms: Terms
) -> None:
    """But another process of the same peer may have been root later, beyond a partition, and knew no term then."""
    tree, subscription = a_subscription_since_the_second_term(world)
    of_same, of_restarted = Term(1, SECOND.node), Term(1, SECOND.node[:8] + b"restart!")
    terms.recall(tree, of_restarted, 3, 0)
    assert tree.flow.owed(of_restarted).ranges() == [(0, 3)]
    terms.recall(tree, of_same, 5, 0)
    terms.recall(tree, of_same, 7, 0)
    assert tree.flow.owed(of_same).ranges() == []
    lose(tree.flow, of_same, [(0, 7)])
    subscription.tell_losses()
    assert isinstance(subscription.subscriber, Notes)
    assert subscription.subscriber.told == []


def test_a_peer_knows_that_its_own_terms_of_before_were_over_when_its_process_began(world: Parts, terms: Terms) -> None:
    tree, _ = a_subscription_since_the_second_term(world)
    of_before = Term(1, world.host.me[:8] + b"earlier!")
    terms.recall(tree, of_before, 5, 0)
    assert tree.flow.owed(of_before).ranges() == []
    assert tree.flow.held(world.host.now())[0][-1] == 10_000, "others are told"


@pytest.mark.parametrize(("came", "told"), [(0, []), (1, []), (3, [(1, 3, 5, "unavailable")])])
def test_what_seemed_to_be_owed_is_not_if_a_peer_had_it_earlier(
    world: Parts, terms: Terms, came: int, told: list[tuple[int, int, int, str]]
) -> None:
    """Nor what came before it, as far as it is known; but what follows an event of the same publisher is."""
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 5, 3_000)
    assert tree.flow.owed(BEYOND).ranges() == [(0, 5)]
    if came:
        lose(tree.flow, BEYOND, [(0, came - 1)])
        subscription.tell_losses()
        tree.flow.restore(down(BEYOND, came - 1, block(PAUL, came - 1)))
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    before = len(notes.told)
    terms.recall(tree, BEYOND, 5, 12_000)
    learn_runs(tree.flow, BEYOND, [Run(came, PAULA if came == 1 else PAUL, came, 5 - came)])
    assert tree.flow.owed(BEYOND).ranges() == ([(came, 5)] if came else [])
    lose(tree.flow, BEYOND, [(came, 5)])
    subscription.tell_losses()
    assert notes.told[before:] == told


def test_nothing_before_a_publishers_first_event_is_owed_of_a_term_that_was_over_before(
    world: Parts, terms: Terms
) -> None:
    """Some of it had come before that was known, and all of it had been stable."""
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 5, 3_000)
    tree.flow.settle(BEYOND, 5)
    tree.flow.restore(down(BEYOND, 0, block(PAULA, 0)))
    tree.flow.move(down(SECOND, 3, block(PAUL, 4)), tree.flow.current)
    terms.recall(tree, BEYOND, 5, 12_000)
    learn_runs(tree.flow, BEYOND, [Run(1, PAUL, 0, 4)])
    lose(tree.flow, BEYOND, [(1, 5)])
    subscription.tell_losses()
    assert isinstance(subscription.subscriber, Notes)
    assert (subscription.subscriber.got, subscription.subscriber.told) == ([b"0", b"4"], [])


def test_what_came_late_to_be_known_of_a_term_is_not_owed_if_it_was_there_before(world: Parts, terms: Terms) -> None:
    """A subscription begins at a frontier in each term that its peer knows, which may be behind."""
    tree, subscription = a_subscription_since_the_second_term(world)
    subscription.owe(BEYOND, 2, 0)
    terms.recall(tree, BEYOND, 5, 9_000)
    assert tree.flow.owed(BEYOND).ranges() == [(2, 5)]
    terms.recall(tree, BEYOND, 5, 12_000)
    assert tree.flow.owed(BEYOND).ranges() == []
    terms.recall(tree, BEYOND, 6)
    assert tree.flow.owed(BEYOND).ranges() == [(5, 6)], "of more, nobody has said so"


def test_of_a_term_of_which_nothing_is_known_but_that_it_was_nothing_is_decided(world: Parts, terms: Terms) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 0)
    assert tree.flow.held(world.host.now())[0][-1] is None
    terms.recall(tree, BEYOND, 5)
    assert subscription.term_cursor(BEYOND) is None


def test_what_may_be_owed_is_kept_until_that_is_decided_and_reported_if_there_is_no_room(
    world: Parts, terms: Terms
) -> None:
    tree, subscription = a_subscription_since_the_second_term(world)
    terms.recall(tree, BEYOND, 3)
    tree.flow.settle(BEYOND, 3)
    for index in range(3):
        tree.flow.restore(down(BEYOND, index, block(PAUL, index)))
    assert discard_past(tree.flow, BEYOND, 1, needless_only=True) == 0
    assert discard_past(tree.flow, BEYOND, 1) == 1
    terms.recall(tree, BEYOND, 3, 0)
    subscription.tell_losses()
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    assert (notes.told, notes.got) == ([(BEYOND.counter, 0, 1, "unavailable")], [b"1", b"2"])
    assert discard_past(tree.flow, BEYOND, 1, needless_only=True) == 1


def paused_with_unread_event(world: Parts, terms: Terms) -> Tree:
    """This process was paused for 60 s, and reads an event that was sent within the first 20 s."""
    tree = world.tree()
    terms.enter(tree, BEYOND, 0)
    tree.parent = CAROL
    tree.doubt()
    world.host.time += 60.0
    world.schedule.sent_by = world.host.time - 40.0
    tree.flow.move(down(BEYOND, 0, block(PAUL, 0)), tree.flow.current)
    return tree


def test_what_waited_to_be_read_during_a_pause_was_sent_before_others_lost_this_peer(
    world: Parts, terms: Terms
) -> None:
    tree = paused_with_unread_event(world, terms)
    world.progress.tell(tree)
    assert tree.flow.log.came.end == 0, "the parent may have kept it, and the event may be new"
    tree.parent = None
    terms.enter(tree, SECOND, 0)
    assert tree.flow.held(world.host.now()) == ((BEYOND, 1, ((0, 1),), 0, 40_000),)


def test_so_was_what_waited_of_a_term_over_which_the_next_one_waited_as_well(world: Parts, terms: Terms) -> None:
    tree = paused_with_unread_event(world, terms)
    terms.enter(tree, SECOND, 0)
    assert tree.flow.held(world.host.now()) == ((BEYOND, 1, ((0, 1),), 0, None),), "the event may be new"
    tree.parent = None
    world.progress.tell(tree)
    assert tree.flow.held(world.host.now()) == ((BEYOND, 1, ((0, 1),), 0, 40_000),)


def test_what_a_paused_root_admits_at_first_was_sent_before_publishers_lost_it(world: Parts, terms: Terms) -> None:
    """They sent it again to the next root, and a subscription that began there meanwhile is not owed it."""
    tree = world.root()
    world.host.time += 60.0
    world.schedule.sent_by = world.host.time - 40.0
    tree.doubt()
    world.schedule.read_by = world.host.time + 5.0
    tree.flow.move(down(tree.term, 0, block(PAUL, 0)), tree.flow.current)
    former = tree.term
    world.progress.tell(tree)
    terms.enter(tree, Term(former.counter + 1, former.node), 0, here=True)
    assert [(each[0], each[-1]) for each in tree.flow.held(world.host.now())] == [(former, 40_000)]


THIRD = Term(3, FIRST.node)
AGES = [(12_000, []), (9_000, [(0, 5)])]


@pytest.mark.parametrize(("there_ms", "owed"), AGES)
def test_a_new_parent_says_for_how_long_earlier_terms_have_been_over(
    world: Parts, there_ms: int, owed: list[tuple[int, int]]
) -> None:
    tree, _ = a_subscription_since_the_second_term(world)
    accepted = Accepted(tree.topic, SECOND, 0, (BOB.node_id,), (), past=((BEYOND, 5, there_ms),))
    world.membership.accepted(BOB, accepted)
    assert tree.flow.owed(BEYOND).ranges() == owed


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("there_ms", "owed"), AGES)
def test_a_root_says_so_when_it_transfers_the_topic_also_of_its_own_term(
    world: Parts, there_ms: int, owed: list[tuple[int, int]], own: bool
) -> None:
    tree, _ = a_subscription_since_the_second_term(world)
    message = TransferLeadership(DESCRIPTOR, BEYOND, 5, 0, there_ms=there_ms)
    if not own:
        message = TransferLeadership(DESCRIPTOR, THIRD, 0, 0, past=((BEYOND, 5, there_ms),))
    world.next_root.received(BOB, message)
    assert tree.flow.owed(BEYOND).ranges() == owed


def test_what_a_parent_and_a_root_say_of_the_past_has_its_age(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 0)
    tree.flow.move(down(FIRST, 0, block(PAUL, 0)), tree.flow.current)
    tree.root = Root(world.host, CONFIG, DESCRIPTOR, SECOND, 0.0, early=EarlyBlocks(0))
    terms.enter(tree, SECOND, 0, here=True)
    tree.flow.move(down(SECOND, 0, block(PAUL, 1)), tree.flow.current)
    world.schedule.note_came(tree, world.host.now())
    world.host.time += 4.0
    world.joins.adopt(Join(tree.topic, CAROL))
    accepted = next(message for _, message in world.host.sent if isinstance(message, Accepted))
    assert accepted.past == ((FIRST, 1, 4000),)
    words = world.last_words.of(tree, tree.root)
    assert (words.past, words.there_ms) == (((FIRST, 1, 4000),), 4000)


def test_what_a_peer_began_behind_in_a_term_was_there_when_it_began(world: Parts, terms: Terms) -> None:
    tree = world.tree()
    terms.enter(tree, FIRST, 32)
    world.host.time += 8.0
    terms.enter(tree, SECOND, 0)
    assert tree.flow.held(world.host.now()) == ((FIRST, 32, (), 0, 8000),)


def test_a_subscription_does_not_wait_in_a_term_that_turned_out_to_be_best_effort(world: Parts) -> None:
    """The peer had taken the topic for reliable, as first use does. Nobody looks for what is missing any more."""
    tree, subscription = a_subscription_since_the_second_term(world)
    tree.flow.move(down(SECOND, 5, block(PAUL, 2)), tree.flow.current)
    notes = subscription.subscriber
    assert isinstance(notes, Notes)
    notes.turn_over = subscription.tell_losses
    assert (notes.got, notes.lost_) == ([], [])
    tree.adapt(described("weather", BEST_EFFORT))
    assert (notes.lost_, notes.got) == ([(SECOND.counter, 3, 5, "dropped")], [b"2"])
