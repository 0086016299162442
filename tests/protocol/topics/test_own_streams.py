"""A peer's streams as a source: one input, and what was ordered of the parts above."""

import msgspec

from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.state.effects import FindParent, LeaveIfIdle
from tests.protocol.recording import BOB, CAROL, PAUL
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, STREAM, Parts
from tests.protocol.topics.test_publisher import Listener, uplink

TOPIC = BY_SOURCE.topic


def publisher(world: Parts) -> Publisher:
    return Publisher(world.host, CONFIG, BY_SOURCE, PAUL, Listener(), uplink(world.host))


def test_all_publishers_of_a_topic_share_one_stream(world: Parts) -> None:
    term = world.own_streams.open(publisher(world))
    assert term is not None
    assert term.of_source
    assert world.own_streams.open(publisher(world)) == term


def test_a_stream_needs_a_parent_unless_its_peer_has_one_or_looks_for_one(world: Parts) -> None:
    streams, tree = world.own_streams, world.tree(BY_SOURCE)
    streams.open(publisher(world))
    streams.take_place(TOPIC)
    assert world.ordered == [FindParent(tree.topic)]
    tree.begin_attempt()
    streams.take_place(TOPIC)
    assert world.ordered == [FindParent(tree.topic)]


def test_where_there_are_too_many_streams_a_source_waits_until_its_events_are_admitted(world: Parts) -> None:
    streams = world.own_streams
    streams.source_streams.config = msgspec.structs.replace(CONFIG, streams_max=1)
    streams.source_streams.begin(world.tree(BY_SOURCE), STREAM, 0, None)
    assert streams.open(publisher(world)) is None
    assert streams.crowded == {TOPIC: None}
    streams.note_admitted(TOPIC)
    assert streams.crowded == {}


def test_a_stream_that_nobody_has_yet_gives_way_to_others(world: Parts) -> None:
    streams, tree = world.own_streams, world.tree(BY_SOURCE)
    streams.open(publisher(world))
    assert streams.withdraw(TOPIC)
    assert streams.crowded == {TOPIC: None}
    assert tree.sources.own is None
    streams.leave_place(TOPIC)
    assert world.ordered == [LeaveIfIdle(tree.topic)]


def test_a_stream_that_another_peer_has_some_of_does_not_give_way(world: Parts) -> None:
    streams, tree = world.own_streams, world.tree(BY_SOURCE)
    streams.open(publisher(world))
    assert tree.sources.own is not None
    tree.sources.own.held = 1
    assert not streams.withdraw(TOPIC)
    assert streams.crowded == {}


def test_only_neighbours_in_the_tree_of_an_own_stream_are_beside_it(world: Parts) -> None:
    streams, tree = world.own_streams, world.tree(BY_SOURCE)
    world.child(tree, BOB)
    assert not streams.is_beside(TOPIC, BOB), "this peer is no source"
    streams.open(publisher(world))
    assert [streams.is_beside(TOPIC, each) for each in (BOB, CAROL)] == [True, False]


def test_the_stream_ends_with_the_last_publisher(world: Parts) -> None:
    streams, tree = world.own_streams, world.tree(BY_SOURCE)
    streams.end(TOPIC)
    term = streams.open(publisher(world))
    assert term is not None
    streams.end(TOPIC)
    assert tree.sources.own is None
    assert tree.sources.states[term].closed
