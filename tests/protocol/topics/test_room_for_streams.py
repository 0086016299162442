"""How many streams of sources a peer takes: more from neighbours that speak of others' than from a source itself."""

import pytest
from msgspec.structs import replace

from quillcast.core.envelope import RELIABLE_STREAMS, Term
from quillcast.core.errors import Implausible
from quillcast.core.messages import Contact
from quillcast.protocol.topics.messages import Denied, Join
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import StreamDown, StreamReport, StreamUp, encode, stream_key
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, Parts

BOUND = 3
NEW, CLOSED = StreamUp(1, 1, 1, alive=True), StreamUp(1, 1, 1, end=1)


@pytest.fixture
def tree(world: Parts) -> Tree:
    """This peer is between a parent, Bob, and a child, Carol."""
    world.source_streams.config = replace(CONFIG, streams_max=BOUND)
    tree = world.tree(BY_SOURCE)
    tree.parent = BOB
    tree.flow.begin(FIRST, 0, 0.0, 0)
    tree.enter(SourcesChild(world.host, CAROL, 0, tree.term, 0, sends_only=False))
    world.placement.install(tree)
    return tree


def stream(number: int, source: bytes = PAUL) -> Term:
    return Term(RELIABLE_STREAMS + number, source[:8] + b"12345678")


def report(world: Parts, tree: Tree, sender: Contact, term: Term, value: StreamReport) -> None:
    world.stream_reporting.changed(sender, stream_key(tree.topic, term), encode(value))


@pytest.mark.parametrize(
    ("sender", "source", "value", "most"),
    [
        pytest.param(CAROL, CAROL.node_id, NEW, BOUND, id="a source that can wait"),
        pytest.param(CAROL, CAROL.node_id, CLOSED, 2 * BOUND, id="a source that has closed"),
        pytest.param(CAROL, PAUL, NEW, 2 * BOUND, id="a child that has others' streams"),
        pytest.param(BOB, PAUL, StreamDown(1, 1, 0), 4 * BOUND, id="the parent"),
        pytest.param(BOB, BOB.node_id, StreamDown(1, 1, 0), 4 * BOUND, id="the parent as a source"),
    ],
)
def test_who_names_a_stream_decides_how_many_there_may_be(
    world: Parts, tree: Tree, sender: Contact, source: bytes, value: StreamReport, most: int
) -> None:
    for number in range(1, most + 1):
        report(world, tree, sender, stream(number, source), value)
    with pytest.raises(Implausible, match="no room yet"):
        report(world, tree, sender, stream(most + 1, source), value)
    assert len(tree.sources.states) == most
    world.source_streams.conclude(tree, stream(1, source), 1)
    report(world, tree, sender, stream(most + 1, source), value)
    assert stream(most + 1, source) in tree.sources.states, "there is room again"


def test_what_waits_or_is_left_out_for_want_of_room_is_shown(world: Parts, tree: Tree) -> None:
    def fill(to: int) -> str:
        for number in range(len(tree.sources.states) + 1, to + 1):
            report(world, tree, BOB, stream(number), StreamDown(1, 1, 0))
        return world.source_streams.bound(tree)

    has = "topic weather has {} streams of sources here (streams_max is 3)"
    assert fill(BOUND) == ""
    assert fill(BOUND + 1) == f"{has.format(BOUND + 1)}: further sources wait until some have ended"
    fill(4 * BOUND)
    with pytest.raises(Implausible):
        fill(4 * BOUND + 1)
    left_out = f"{has.format(4 * BOUND)}, and no room for others: events of these do not come here"
    assert world.source_streams.bound(tree) == left_out
    world.host.time += CONFIG.lease_s
    assert world.source_streams.bound(tree) != left_out


def test_a_source_next_to_this_peer_is_told_that_it_waits_and_asked_again(world: Parts, tree: Tree) -> None:
    """It may not be able to wait, because others have some of its stream."""
    for number in range(BOUND):
        world.source_streams.begin(tree, stream(number), 0, None)
    with pytest.raises(Implausible, match="no room yet"):
        report(world, tree, CAROL, stream(1, CAROL.node_id), NEW)
    assert world.host.sent == [(CAROL, Denied(tree.descriptor, full=True))]


@pytest.mark.parametrize("stable", [0, 1])
def test_a_child_that_comes_with_its_own_stream_can_wait_unless_some_of_it_is_stable(
    world: Parts, tree: Tree, stable: int
) -> None:
    for number in range(BOUND):
        world.source_streams.begin(tree, stream(number), 0, None)
    own = stream(1, CAROL.node_id)
    join = Join(tree.topic, CAROL, None, tree.descriptor.digest, streams=((own, 2, stable),), milestones=((),))
    world.joins.adopt(join)
    assert (own in tree.sources.states) == (stable > 0)


def test_a_stream_that_was_over_goes_on_beyond_the_bound(world: Parts, tree: Tree) -> None:
    """Its source was beyond a partition, where others have its events."""
    for number in range(BOUND):
        world.source_streams.begin(tree, stream(number), 0, None)
    own = stream(1, CAROL.node_id)
    tree.flow.open_past().note_over(own, 1)
    report(world, tree, CAROL, own, StreamUp(3, 3, 3, alive=True))
    assert own in tree.sources.states


def test_a_new_publisher_here_waits_at_the_bound(world: Parts, tree: Tree) -> None:
    for number in range(BOUND):
        report(world, tree, BOB, stream(number), StreamDown(1, 1, 0))
    assert world.source_streams.open(tree, None) is None
