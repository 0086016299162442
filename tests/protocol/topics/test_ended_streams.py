"""Streams of sources that are over, and when their events had come."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, RELIABLE_TERMS, Envelope, Term
from quillcast.protocol.forwarding.discarding import lose
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.memory.retention import total
from quillcast.protocol.topics.messages import Accepted, Join, Refused, Rejoin, StreamsEnded
from quillcast.protocol.topics.policy.channels import take_out
from quillcast.protocol.topics.root_messages import TransferLeadership
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import StreamDown, StreamUp, decode_stream, encode, stream_key
from quillcast.protocol.topics.state.source import source_term
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, Notes, block, down
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, STREAM, Parts


def a_subscription_to_sources(world: Parts, start: str = "now") -> tuple[Tree, Notes]:
    """It began at 10 s, below a parent that knew of no stream."""
    tree, notes = world.root(BY_SOURCE), Notes()
    tree.root, tree.parent, world.host.time = None, BOB, 10.0
    subscription = world.subscribing.subscribe("weather", notes, start=start)
    notes.turn_over = subscription.tell_losses
    world.subscribing.start_waiting(tree, ())
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


@pytest.mark.parametrize("ago_s", [25.0, 15.0])
def test_but_between_two_of_its_events_every_one_is_reported_although_the_stream_was_over_meanwhile(
    world: Parts, ago_s: float
) -> None:
    tree, notes = a_subscription_to_sources(world)
    world.source_streams.learn(tree, STREAM, 0)
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0),)))
    world.source_streams.conclude(tree, STREAM, 1)
    world.source_streams.learn_ends(tree, [(STREAM, 5, ((3, 25.0), (5, ago_s)))], BOB)
    world.source_streams.resume(tree, STREAM, None)
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 5), (block(PAUL, 5),)))
    notes.turn_over()
    assert notes.got == [b"0", b"5"]
    lost = {number for _, first, last, _ in notes.lost_ for number in range(first, last)}
    assert lost == {1, 2, 3, 4}
    assert sum(last - first for _, first, last, _ in notes.lost_) == 4, "each once"


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
    assert world.source_streams.ended(tree) == ((STREAM, 2, ((1, 8.0), (2, 6.0))),)


def test_a_reliable_stream_is_kept_although_its_topic_seems_to_be_best_effort(world: Parts) -> None:
    tree, notes = world.root(described("weather", Settings(delivery="best_effort", admission="source"))), Notes()
    subscription = world.subscribing.subscribe("weather", notes)
    notes.turn_over, notes.space = subscription.tell_losses, 0
    dropped = Term(STREAM.counter - RELIABLE_TERMS, STREAM.node)
    for term in (STREAM, dropped, STREAM):
        stream = world.source_streams.learn(tree, term, 0)
        assert stream is not None
        tree.flow.move(down(term, stream.seen.end, block(PAUL, 0)), stream)
        tree.flow.discard_unkept()
    assert [bundle.envelope.term for bundle in tree.flow.log.bundles()] == [STREAM, STREAM]
    tree.adapt(BY_SOURCE)
    tree.flow.check()
    notes.space = 10
    tree.flow.serve(subscription.channel)
    assert notes.lost_ == [(dropped.counter, 0, 1, "dropped")]
    assert [subscription.frontier(STREAM), subscription.frontier(dropped)] == [2, 1]


@pytest.mark.parametrize(("start", "lost"), [("now", [(STREAM.counter, 3, 5, "unavailable")]), ("earliest", [])])
def test_of_a_stream_that_is_learned_late_only_what_came_since_it_began_is_lost_to_a_subscription(
    world: Parts, start: str, lost: list[object]
) -> None:
    tree, notes = a_subscription_to_sources(world, start)
    world.source_streams.learn(tree, STREAM, 0)
    tree.sources.states[STREAM].heard_end = 5
    world.source_streams.dates.learn_milestones(tree, STREAM, ((2, 25.0), (3, 20.0), (5, 12.0)))
    lose(tree.flow, STREAM, [(0, 5)])
    notes.turn_over()
    assert notes.lost_ == (lost or [(STREAM.counter, 0, 5, "unavailable")])


def test_a_stream_whose_source_is_gone_ends_where_it_is_known_to_have_come_though_who_knew_that_has_left(
    world: Parts,
) -> None:
    tree = world.root(BY_SOURCE)
    world.source_streams.learn(tree, STREAM, 0)
    child = SourcesChild(world.host, CAROL, 0, FIRST, 0, sends_only=False)
    tree.enter(child)
    child.note_stream(STREAM, StreamUp(0, 0, 5))
    world.source_streams.news.heard_of(tree, STREAM, 5)
    take_out(tree, CAROL.node_id)
    for _ in range(2):
        world.source_streams.advance(tree, [STREAM])
        world.host.time += CONFIG.lease_s
    assert tree.sources.states[STREAM].end == 5


def test_a_peer_that_joins_late_passes_on_for_how_long_the_events_before_have_been_there(world: Parts) -> None:
    """Its stream begins behind them; if that ends, subscriptions below may have begun later than these events."""
    tree, _ = a_subscription_to_sources(world)
    world.source_streams.attached(tree, BOB, ((STREAM, 2, 2),), (), (((2, 25.0), (9, 20.0)),), whole=False, served=True)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 2)) == ((2, 25.0),)
    world.host.time = 40.0
    world.source_streams.conclude(tree, STREAM, 2)
    assert world.source_streams.ended(tree) == ((STREAM, 2, ((2, 35.0),)),)


def test_a_subscription_begins_at_nothing_that_is_known_only_from_a_peer_that_made_it_up(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    stream = world.source_streams.learn(tree, STREAM, 0)
    assert stream is not None
    stream.give_up([(0, 3)])
    world.source_streams.dates.learn_milestones(tree, STREAM, ((1 << 62, 12.0),))
    assert world.source_streams.begin_at(tree, earliest=False) == [(STREAM, 3)]


def test_the_streams_that_are_over_are_handed_to_the_next_root_whose_subscribers_may_have_lost_their_ends(
    world: Parts,
) -> None:
    """The root that goes may be all there was on its side of a partition, and may leave the tree."""
    gone = world.root(described("news", Settings(admission="source")))
    gone.flow.open_past().note_over(STREAM, 5)
    world.overlay.leaf_set.add(BOB)
    world.resigning.resign(gone)
    (handed,) = [message for _, message in world.host.sent if isinstance(message, TransferLeadership)]
    assert handed.streams == ((STREAM, 5, ()),)
    tree, notes = a_subscription_to_sources(world)
    message = TransferLeadership(BY_SOURCE, FIRST, 0, 0, streams=((STREAM, 5, ((3, 25.0), (5, 15.0))),))
    world.next_root.received(CAROL, message)
    assert notes.lost_ == [(STREAM.counter, 3, 5, "unavailable")]
    assert tree.flow.past.forgotten == {STREAM: 5}


def test_a_child_that_is_named_as_the_next_root_does_not_ask_itself_when_its_parent_is_below_it() -> None:
    world = Parts(BOB, ALICE, CAROL)
    tree = world.tree()
    tree.begin_later(Subscription(world.host, tree.topic, Notes(), 1, Wish("now", None, None)))
    tree.await_root()
    tree.may_turn_to((CAROL, ALICE))
    world.repair._refused(CAROL, Refused(tree.topic, "loop"))
    assert world.host.sent == []
    assert [type(message) for message, _ in world.ring.routed] == [Join]


def test_a_source_that_left_the_tree_learns_again_where_its_stream_ended(world: Parts) -> None:
    """Peers that join below it lost that stream, and hear so from nobody else."""
    tree, notes = a_subscription_to_sources(world)
    world.source_streams.count = 1
    mine, later = source_term(world.host, 1), source_term(world.host, 2)
    ends = [(mine, 5, ((3, 25.0), (5, 15.0))), (later, 5, ())]
    world.source_streams.learn_ends(tree, ends, BOB)
    assert tree.flow.past.forgotten == {mine: 5}, "it never began the other"
    assert notes.lost_ == [(mine.counter, 3, 5, "unavailable")]
    world.source_streams.learn_ends(tree, [(mine, 9, ())], BOB)
    assert tree.flow.past.forgotten == {mine: 5}, "now it knows best"


def test_events_of_a_stream_that_ended_unseen_are_recovered_where_a_root_numbers_them_again(world: Parts) -> None:
    """The root took over from the sources, and the subscriber has been told of positions of their stream."""
    tree, notes = world.tree(), Notes()
    world.terms.enter(tree, FIRST, 0)
    tree.parent = BOB
    subscription = world.subscribing.subscribe("weather", notes)
    notes.turn_over = subscription.tell_losses
    world.source_streams.learn_ends(tree, [(STREAM, 5, ())], BOB)
    assert notes.lost_ == [(STREAM.counter, 0, 5, "unavailable")]
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, FIRST, 0), (block(PAUL, 3),)))
    assert notes.recovered == [b"3"]


@pytest.mark.parametrize("sends_only", [False, True])
def test_where_a_root_numbers_the_events_every_child_gets_them_and_hears_of_streams_that_are_over(
    world: Parts, *, sends_only: bool
) -> None:
    """A child that wants none yet may take in others before its next Join."""
    tree = world.root()
    tree.flow.open_past().note_over(STREAM, 5)
    world.joins.adopt(Join(tree.topic, BOB, None, tree.descriptor.digest, sends_only=sends_only))
    (accepted,) = [message for _, message in world.host.sent if isinstance(message, Accepted)]
    assert not accepted.sends_only
    assert accepted.ended == ((STREAM, 5, ()),)


def test_a_child_that_is_sent_no_events_knows_that_also_without_a_stream_of_its_own(world: Parts) -> None:
    tree = world.tree()
    tree.keeping_until = 100.0
    world.membership.accepted(BOB, Accepted(tree.topic, FIRST, 0, (BOB.node_id,), (), sends_only=True))
    assert not tree.served
    world.subscribing.subscribe("weather", Notes())
    del world.host.sent[:]
    world.membership.join(tree)
    ((to, rejoin),) = world.host.sent
    assert isinstance(rejoin, Rejoin)
    assert (to, rejoin.joins[0].sends_only) == (BOB, False)


def test_neighbours_hear_when_events_of_a_stream_came_that_this_peer_has_yet_to_get(world: Parts) -> None:
    """Else subscriptions there were told that they lost events from before they began."""
    tree, _ = a_subscription_to_sources(world)
    told = ((2, 25.0), (9, 15.0))
    world.source_streams.attached(tree, BOB, ((STREAM, 0, 0),), (), (told,), whole=True, served=True)
    assert tree.subscriptions[0].term_cursor(STREAM).next == 2
    assert world.source_streams.dates.milestones_known(tree, [(STREAM, 0, 0)]) == (told,)


def test_a_root_learns_from_a_child_when_events_of_a_stream_came_that_the_child_has_yet_to_get(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    digest, told = tree.descriptor.digest, ((2, 25.0), (9, 15.0))
    world.joins.adopt(Join(tree.topic, BOB, None, digest, streams=((STREAM, 0, 0),), milestones=(told,)))
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 9)) == told


def test_what_a_peer_says_while_it_waits_to_be_taken_in_gets_older(world: Parts) -> None:
    """Else subscriptions that began meanwhile were told that they lost events from before they began."""
    tree = world.tree(BY_SOURCE)
    tree.flow.begin(FIRST, 0, 0.0, 0)
    ended, told = Term(STREAM.counter + 1, PAUL), ((2, 25.0), (9, 15.0))
    join = Join(
        tree.topic, BOB, None, tree.descriptor.digest, streams=((STREAM, 0, 0),), milestones=(told,),
        ended=((ended, 4, ((4, 3.0),)),),
    )  # fmt: skip
    world.host.time = 100.0
    world.joins.adopt(join)
    assert tree.waiting
    world.host.time = 105.0
    assert world.source_streams.dates.milestones_known(tree, [(STREAM, 0, 0)]) == (((2, 30.0), (9, 20.0)),)
    report = encode(StreamUp(0, 12, 12, alive=True))
    world.stream_reporting.changed(BOB, stream_key(tree.topic, STREAM), report)
    world.host.time = 107.0
    tree.parent = CAROL
    world.joins.accept_waiting(tree, ())
    world.stream_reporting.changed(BOB, stream_key(tree.topic, STREAM), report)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 20)) == ((2, 32.0), (9, 22.0), (12, 2.0))
    assert world.source_streams.ended(tree) == ((ended, 4, ((4, 10.0),)),)


@pytest.mark.parametrize("above", [True, False], ids=["a parent", "a child"])
def test_what_a_neighbour_said_of_a_stream_that_was_over_here_counts_once_that_goes_on(
    world: Parts, *, above: bool
) -> None:
    """Else subscriptions here were told that they lost events from before they began."""
    tree, _ = a_subscription_to_sources(world)
    tree.flow.open_past().note_over(STREAM, 2)
    told = ((2, 25.0), (5, 22.0), (9, 5.0))
    world.host.time -= 1.0
    if above:
        world.source_streams.attached(tree, BOB, ((STREAM, 0, 9),), (), (told,), whole=True, served=True)
    else:
        digest = tree.descriptor.digest
        world.joins.adopt(Join(tree.topic, CAROL, None, digest, streams=((STREAM, 0, 0),), milestones=(told,)))
    world.host.time += 1.0
    report = StreamDown(7, 7, 0) if above else StreamUp(0, 7, 7, alive=True)
    world.stream_reporting.changed(BOB if above else CAROL, stream_key(tree.topic, STREAM), encode(report))
    known = world.source_streams.dates.milestones(tree, STREAM, (0, 9))
    assert known == ((2, 26.0), (5, 23.0), (7, 6.0)), "it goes no further than that neighbour reports"
    assert tree.subscriptions[0].term_cursor(STREAM).next == 5, "that began later"


def test_nobody_else_is_taken_at_its_word(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    tree.flow.open_past().note_over(STREAM, 2)
    digest, told = tree.descriptor.digest, ((9, 25.0),)
    world.joins.adopt(Join(tree.topic, CAROL, None, digest, streams=((STREAM, 0, 0),), milestones=(told,)))
    report = encode(StreamDown(7, 7, 0))
    world.stream_reporting.changed(BOB, stream_key(tree.topic, STREAM), report)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 9)) == ((2, 0.0), (7, 0.0))


def test_the_events_of_a_stream_that_is_over_and_goes_on_count_once(world: Parts) -> None:
    tree, _ = a_subscription_to_sources(world)
    world.source_streams.learn(tree, STREAM, 0)
    for index in range(2):
        world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, index), (block(PAUL, index),)))
        world.source_streams.conclude(tree, STREAM, index + 1)
        assert total(tree) == index + 1
        world.source_streams.resume(tree, STREAM, None)
        assert total(tree) == index + 1


@pytest.mark.parametrize(("end", "hears"), [(3, True), (5, False)], ids=["earlier", "there"])
def test_a_child_that_joins_just_before_a_stream_is_over_hears_its_end_if_it_took_it_for_over_earlier(
    world: Parts, end: int, *, hears: bool
) -> None:
    """It comes from beyond a partition, and all is stable here: nobody would tell it later what it lost."""
    tree = world.root(BY_SOURCE)
    world.source_streams.learn(tree, STREAM, 0)
    world.joins.adopt(Join(tree.topic, CAROL, None, tree.descriptor.digest, ended=((STREAM, end, ()),)))
    world.source_streams.conclude(tree, STREAM, 5)
    assert told_end(world, tree) == (5 if hears else None)


def test_a_child_hears_the_end_of_a_stream_that_was_over_here_and_went_on_for_less_than_a_report_takes(
    world: Parts,
) -> None:
    tree, _ = a_subscription_to_sources(world)
    tree.flow.open_past().note_over(STREAM, 3)
    tree.enter(SourcesChild(world.host, CAROL, 0, FIRST, 0, sends_only=False))
    world.source_streams.resume(tree, STREAM, None)
    world.source_streams.conclude(tree, STREAM, 5)
    assert told_end(world, tree) == 5


def told_end(world: Parts, tree: Tree) -> int | None:
    """Where a stream ended, as Carol was told; None: nothing."""
    report = world.streams.telling(CAROL.node_id).get(stream_key(tree.topic, STREAM))
    down = decode_stream(report) if report is not None else None
    return down.end if isinstance(down, StreamDown) else None
