"""What a peer makes of its neighbours' reports on the streams of sources: one report, then what was concluded."""

import contextlib

import pytest
from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, RELIABLE_STREAMS, Envelope, Term
from quillcast.core.errors import Implausible
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.forwarding.channels import PeerSink
from quillcast.protocol.forwarding.ordered import Ordered, Way
from quillcast.protocol.forwarding.policy import ChannelSpec
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.neighbours.stream_messages import Changes
from quillcast.protocol.scopes.records import encode as encode_record
from quillcast.protocol.scopes.records import originated
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.membership.stream_reports import ConcludeTurn, TurnOver
from quillcast.protocol.topics.messages import Accepted, CutLeases, Denied, StreamsEnded
from quillcast.protocol.topics.policy.channels import install
from quillcast.protocol.topics.state.cut import Cut
from quillcast.protocol.topics.state.effects import CameFromSource, GapNoticed, LeaveIfIdle, StreamsBegin
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import (
    StreamDown,
    StreamReport,
    StreamUp,
    decode_stream,
    encode,
    stream_key,
)
from quillcast.protocol.topics.state.source import source_term
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import FROM_ABOVE
from quillcast.protocol.topics.streams.stream_ways import comes_from, direction, known_end, towards
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, block
from tests.protocol.topics.parts import BY_SOURCE, CONFIG, Parts

OWNER, FRIEND = Credentials.new(), Credentials.new()
DORA, PEGGY = Contact(b"d" * 16, "127.0.0.1:4"), Contact(b"g" * 16, "127.0.0.1:5")
STREAM = Term(RELIABLE_STREAMS + 1, BOB.node_id[:8] + b"12345678")  # Bob's


def below(world: Parts, parent: Contact = BOB) -> Tree:
    """A tree in which this peer has a parent that took it in."""
    tree = world.tree(BY_SOURCE)
    tree.parent = parent
    tree.flow.begin(FIRST, 0, 0.0, 0)
    return tree


def child(world: Parts, tree: Tree, contact: Contact = CAROL) -> SourcesChild:
    entered = SourcesChild(world.host, contact, 0, tree.term, 0, sends_only=False)
    tree.enter(entered)
    world.placement.install(tree)
    return entered


def events(world: Parts, tree: Tree, count: int) -> None:
    """So many events of the stream come from their source."""
    world.source_streams.learn(tree, STREAM, 0)
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0, *[b"event"] * count),)))
    del world.ordered[:]


def report(world: Parts, tree: Tree, sender: Contact, value: StreamReport | None, term: Term = STREAM) -> None:
    encoded = encode(value) if value is not None else None
    world.stream_reporting.changed(sender, stream_key(tree.topic, term), encoded)


@pytest.mark.parametrize(("beside", "alive", "sent"), [(False, True, 0), (False, False, 1), (True, False, 0)])
def test_no_source_is_sent_its_own_stream_whatever_scopes_order(
    world: Parts, *, beside: bool, alive: bool, sent: int
) -> None:
    """A child that does not say that it is the source may have been restarted. Past the tree, nothing is owed."""
    tree = below(world, CAROL)
    child(world, tree, DORA if beside else BOB)
    enters = Way(PeerSink(world.host, BOB), lambda bundle: bundle, lambda bundle: bundle)
    install(tree, [ChannelSpec(contact) for contact in (DORA if beside else BOB,)], Ordered({BOB.node_id: enters}))
    world.source_streams.learn(tree, STREAM, 0)
    if not beside:
        report(world, tree, BOB, StreamUp(0, 0, 0, alive=alive))
    record = encode_record(originated(2, 1))
    envelope = Envelope(tree.topic, DOWN, STREAM, 0, record=record)
    world.table.arrive(CAROL, Bundle(envelope, (block(PAUL, 0, b"event"),)))
    assert sum(to == BOB for to, _ in world.host.carried) == sent


def test_a_parents_report_on_a_stream_makes_it_known_and_its_missing_events_looked_for(world: Parts) -> None:
    tree = below(world)
    report(world, tree, BOB, StreamDown(3, 5, 0))
    assert tree.sources.states[STREAM].above == StreamDown(3, 5, 0)
    assert world.ordered == [GapNoticed(tree.topic)]


def test_a_parent_says_where_a_stream_ended(world: Parts) -> None:
    tree = below(world)
    report(world, tree, BOB, StreamDown(0, 0, 0, end=7))
    state = tree.sources.states[STREAM]
    assert (state.end, state.closed) == (7, False)
    report(world, tree, BOB, StreamDown(0, 0, 0, end=5, closed=True))
    assert (state.end, state.closed) == (5, True), "its source itself knows"


def test_a_stream_that_is_over_here_does_not_begin_again_for_a_report_of_no_more_than_its_end(world: Parts) -> None:
    tree = below(world)
    tree.flow.open_past().note_over(STREAM, 7)
    report(world, tree, BOB, StreamDown(7, 7, 7, end=7))
    assert tree.sources.states == {}


def test_it_goes_on_if_later_events_are_known_than_the_end_that_was_declared(world: Parts) -> None:
    tree = below(world)
    tree.flow.open_past().note_over(STREAM, 7)
    report(world, tree, BOB, StreamDown(7, 9, 7, end=7))
    assert world.source_streams.finished(tree, [STREAM]) == []
    assert known_end(tree, STREAM) == 9


def test_the_end_of_a_stream_moves_when_a_child_knows_of_later_events(world: Parts) -> None:
    """It comes from the other side of a partition, where the source was."""
    tree = world.root(BY_SOURCE)
    events(world, tree, 3)
    state = tree.sources.states[STREAM]
    for world.host.time in (0.0, 2 * CONFIG.lease_s):
        world.source_streams.advance(tree, [STREAM])
    assert state.end == 3
    child(world, tree)
    report(world, tree, CAROL, StreamUp(3, 3, 5))
    assert world.source_streams.finished(tree, [STREAM]) == []
    world.source_streams.advance(tree, [STREAM])
    assert state.end == 3, "the source may be back, too, and say when these came"
    world.host.time += CONFIG.lease_s
    world.source_streams.advance(tree, [STREAM])
    assert state.end == 5


def test_word_of_an_event_does_not_put_off_the_end_of_its_stream_when_it_is_repeated(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    events(world, tree, 3)
    child(world, tree)
    for acknowledged in range(3):  # each report says again what nobody here has
        report(world, tree, CAROL, StreamUp(acknowledged, 3, 5))
        world.source_streams.advance(tree, [STREAM])
        world.host.time += CONFIG.lease_s / 2
    world.source_streams.advance(tree, [STREAM])
    assert tree.sources.states[STREAM].end == 5


def test_what_was_said_of_the_end_by_an_earlier_parent_is_passed_on_to_the_next(world: Parts) -> None:
    tree = below(world)
    events(world, tree, 3)
    world.source_streams.learn_ends(tree, [(STREAM, 5, ())], BOB)
    tree.parent = CAROL
    world.source_streams.news.tell_parent(tree, CAROL, STREAM)
    told = decode_stream(world.streams.telling(CAROL.node_id)[stream_key(tree.topic, STREAM)])
    assert told == StreamUp(3, 3, 5)


def test_a_stream_is_taken_up_again_until_the_root_hears_that_everybody_has_it(world: Parts) -> None:
    """It was over here by the word of another root, to which others had reported."""
    tree = below(world)
    tree.flow.open_past().note_over(STREAM, 7)
    report(world, tree, BOB, StreamDown(7, 7, 4, end=7))
    world.source_streams.news.tell_parent(tree, BOB, STREAM)
    told = decode_stream(world.streams.telling(BOB.node_id)[stream_key(tree.topic, STREAM)])
    assert told == StreamUp(7, 7, 7)
    assert world.source_streams.finished(tree, [STREAM]) == []
    report(world, tree, BOB, StreamDown(7, 7, 7, end=7))
    assert tree.flow.past.forgotten == {STREAM: 7}


@pytest.mark.parametrize(("said", "goes_on"), [(StreamDown(5, 7, 4), True), (StreamDown(5, 9, 4, end=9), False)])
def test_so_is_one_of_this_peers_own_but_it_goes_no_further_than_it_went(
    world: Parts, said: StreamDown, *, goes_on: bool
) -> None:
    tree, mine = below(world), source_term(world.host, 1)
    tree.flow.open_past().note_over(mine, 7)
    with contextlib.nullcontext() if goes_on else pytest.raises(Implausible):
        report(world, tree, BOB, said, mine)
    assert [(state.end, state.closed) for state in tree.sources.states.values()] == [(7, True)] * goes_on


def test_a_child_that_speaks_of_a_stream_no_more_needs_nothing_of_it_up_to_the_end_that_it_was_told(
    world: Parts,
) -> None:
    tree = below(world)
    events(world, tree, 5)
    entered = child(world, tree)
    report(world, tree, CAROL, StreamUp(2, 2, 2))
    report(world, tree, CAROL, None)
    assert entered.needed_from(STREAM) == 0, "it was told of no end"
    report(world, tree, CAROL, StreamUp(2, 2, 2))
    report(world, tree, BOB, StreamDown(5, 5, 4, end=5))
    world.source_streams.news.tell_one(tree, STREAM)
    report(world, tree, CAROL, None)
    assert entered.needed_from(STREAM) == 4, "what is not stable is not over"


def test_reports_on_streams_count_from_neighbours_only(world: Parts) -> None:
    tree = below(world)
    report(world, tree, CAROL, StreamDown(0, 5, 0))
    assert tree.sources.states == {}
    assert world.ordered == []


def test_a_parent_may_speak_of_the_first_stream_that_a_topic_is_known_to_have(world: Parts) -> None:
    """Peers came below the parent from the other side of a partition, where sources number the events."""
    tree = world.tree(described("elsewhere"))
    tree.parent = BOB
    report(world, tree, BOB, StreamDown(0, 5, 0))
    assert list(tree.sources.states) == [STREAM]
    assert StreamsBegin(tree.topic) in world.ordered, "children are to join anew, with streams"


def test_a_stream_that_was_over_here_goes_on_where_the_parent_says_so_also_in_a_topic_whose_root_numbers_the_events(
    world: Parts,
) -> None:
    """The root took over from sources, and waits for those who had concluded their streams beyond a partition."""
    tree = world.tree(described("elsewhere"))
    tree.parent = BOB
    world.child(tree, CAROL)
    tree.flow.open_past().note_over(STREAM, 7)
    report(world, tree, BOB, StreamDown(7, 7, 7, end=7))
    assert world.ordered == [], "that is over"
    report(world, tree, BOB, StreamDown(9, 9, 4, end=9, closed=True))
    assert [(state.end, state.closed) for state in tree.sources.states.values()] == [(9, True)]
    assert StreamsBegin(tree.topic) in world.ordered, "children are to join anew, with streams"


def test_children_join_anew_where_one_speaks_of_the_first_stream_that_a_topic_is_known_to_have(
    world: Parts,
) -> None:
    """Peers came below it from the other side of a partition, where sources number the events."""
    tree, over = world.root(described("elsewhere")), STREAM._replace(counter=STREAM.counter + 1)
    world.child(tree, CAROL)
    tree.flow.open_past().note_over(over, 7)
    report(world, tree, CAROL, StreamUp(7, 7, 7), over)
    assert (tree.sources.states, world.ordered) == ({}, []), "that is over"
    report(world, tree, CAROL, StreamUp(18, 21, 21, alive=True))
    assert list(tree.sources.states) == [STREAM]
    assert world.ordered == [StreamsBegin(tree.topic)]


def test_a_childs_report_is_noted_and_judged_at_the_end_of_the_turn(world: Parts) -> None:
    tree = below(world)
    entered = child(world, tree)
    events(world, tree, 2)
    report(world, tree, CAROL, StreamUp(1, 2, 4))
    assert entered.streams == {STREAM: StreamUp(1, 2, 4)}
    assert world.ordered == [GapNoticed(tree.topic)]
    assert TurnOver() in world.timers
    assert entered.events == 0
    world.stream_reporting.conclude_turn()
    assert (entered.acknowledged_events, entered.events) == (1, 2)
    report(world, tree, CAROL, None)
    assert entered.streams == {}


def test_a_child_says_that_its_source_closed_a_stream(world: Parts) -> None:
    tree = below(world)
    child(world, tree)
    report(world, tree, CAROL, StreamUp(4, 4, 4, alive=True, end=4))
    assert tree.flow.others[STREAM].via == CAROL.node_id, "its source is there"
    state = tree.sources.states[STREAM]
    assert (state.end, state.closed) == (4, True)


def test_a_source_says_at_the_end_for_how_long_its_events_have_been_there_and_nobody_says_it_for_it(
    world: Parts,
) -> None:
    tree = below(world)
    for contact in (CAROL, BOB):
        child(world, tree, contact)
    tree.parent = None
    for sender, known in ((CAROL, ((4, 0.0),)), (BOB, ((3, 20.0), (4, 5.0)))):
        report(world, tree, sender, StreamUp(0, 4, 4, end=4, milestones=((3, 20.0), (4, 5.0))))
        assert world.source_streams.dates.milestones(tree, STREAM, (0, 4)) == known


def test_events_have_been_there_since_they_or_word_of_them_came_however_late_the_next_report_is(world: Parts) -> None:
    tree = below(world)
    events(world, tree, 2)
    world.host.time += 3.0
    report(world, tree, BOB, StreamDown(2, 3, 0))
    world.host.time += 4.0
    world.source_streams.news.tell(tree)
    assert world.source_streams.dates.milestones(tree, STREAM, (0, 3)) == ((2, 7.0), (3, 4.0))


@pytest.mark.parametrize(("source", "came"), [(ALICE, 5), (BOB, 0)])
def test_what_a_former_process_of_this_peer_published_is_older_than_it(
    world: Parts, source: Contact, came: int
) -> None:
    """However late it comes to be known how far that came: no subscription of this process began before."""
    assert world.host.contact == ALICE
    tree, term = below(world), Term(RELIABLE_STREAMS + 1, source.node_id[:8] + b"before..")
    world.source_streams.learn(tree, term, 0)
    began_at = world.host.time
    world.host.time += 1.0
    report(world, tree, BOB, StreamDown(3, 5, 0), term)
    assert world.source_streams.dates.came_before(tree, term, began_at) == came


@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("lie", [StreamUp(0, 2, 1 << 60), StreamUp(0, 1 << 60, 1 << 60)])
def test_subscriptions_do_not_begin_at_an_event_that_only_a_child_far_from_the_source_names(
    world: Parts, lie: StreamUp, alive: bool
) -> None:
    tree = below(world)
    child(world, tree)
    events(world, tree, 2)
    report(world, tree, BOB, StreamDown(2, 2, 0))
    report(world, tree, CAROL, replace(lie, alive=alive))
    world.source_streams.news.tell(tree)
    world.source_streams.dates.learn_milestones(
        tree, STREAM, ((1 << 60, 1000.0),), near=False
    )  # it is asked for them, too
    assert world.source_streams.begin_at(tree, earliest=False) == [(STREAM, 2)]
    world.host.time += 2.0
    report(world, tree, BOB, StreamDown(2, 3, 0))
    world.source_streams.news.tell(tree)
    assert world.source_streams.begin_at(tree, earliest=False) == [(STREAM, 3)]
    assert world.source_streams.dates.milestones(tree, STREAM, (2, 1 << 60)) == ((3, 0.0),)
    told = world.streams.telling(CAROL.node_id)[stream_key(tree.topic, STREAM)]
    assert told == encode(StreamDown(2, 3, 0)), "nor at those below its other neighbours"


def test_of_children_that_say_that_a_source_is_below_them_the_source_itself_counts_most(world: Parts) -> None:
    tree = below(world, DORA)
    for contact in (CAROL, BOB):
        child(world, tree, contact)
        report(world, tree, contact, StreamUp(0, 0, 0, alive=True))
    assert towards(tree, STREAM) == BOB


def test_a_source_that_is_not_known_here_is_looked_for_above(world: Parts) -> None:
    assert towards(below(world), STREAM) == BOB


def test_of_others_that_counts_from_whom_the_events_come(world: Parts) -> None:
    tree, far = below(world), Term(RELIABLE_STREAMS + 1, PAUL)
    for contact in (CAROL, DORA):
        child(world, tree, contact)
        report(world, tree, contact, StreamUp(0, 1, 1, alive=True), far)
    assert towards(tree, far) == CAROL, "nothing came yet"
    world.table.arrive(DORA, Bundle(Envelope(tree.topic, DOWN, far, 0), (block(PAUL, 0),)))
    assert towards(tree, far) == DORA
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, far, 1), (block(PAUL, 1),)))
    assert direction(tree, far) == BOB, "the source has moved to the other side of the parent"
    assert towards(tree, far) == CAROL, "or it has moved back, and nothing came from there yet"


def test_a_child_ends_no_stream_that_comes_from_elsewhere(world: Parts) -> None:
    tree = below(world)
    child(world, tree)
    events(world, tree, 2)
    report(world, tree, CAROL, StreamUp(1, 1, 1, end=1))
    assert tree.sources.states[STREAM].end is None
    report(world, tree, BOB, StreamDown(2, 2, 0, end=2, closed=True))
    assert tree.sources.states[STREAM].end == 2


def test_where_channels_lead_past_the_tree_a_child_ends_a_stream_whose_source_was_below_it(world: Parts) -> None:
    tree = below(world, DORA)
    child(world, tree)
    world.source_streams.learn(tree, STREAM, 0)
    record = encode_record(originated(2, 1))
    world.table.recorded = lambda bundle: bundle
    world.table.arrive(PEGGY, Bundle(Envelope(tree.topic, DOWN, STREAM, 0, record=record), (block(PAUL, 0),)))
    assert direction(tree, STREAM) == DORA, "nobody below says that the source is there"
    assert comes_from(tree, STREAM, DORA)
    report(world, tree, CAROL, StreamUp(1, 1, 1, end=1))
    assert tree.sources.states[STREAM].end is None
    report(world, tree, CAROL, StreamUp(1, 1, 1, alive=True))
    assert direction(tree, STREAM) == CAROL
    assert not comes_from(tree, STREAM, DORA)
    report(world, tree, CAROL, StreamUp(1, 1, 1, end=1))
    assert tree.sources.states[STREAM].end == 1


def test_a_source_is_told_what_came_past_the_tree_from_it_if_it_is_a_neighbour(world: Parts) -> None:
    tree = below(world)
    world.source_streams.learn(tree, STREAM, 0)
    record = encode_record(originated(2, 1))
    world.table.recorded = lambda bundle: bundle
    world.table.arrive(PEGGY, Bundle(Envelope(tree.topic, DOWN, STREAM, 0, record=record), (block(PAUL, 0),)))
    assert CameFromSource(tree.topic, STREAM, BOB.node_id) in world.ordered


def test_nobody_ends_this_peers_own_stream(world: Parts) -> None:
    tree = below(world)
    child(world, tree)
    own = world.source_streams.open(tree, None)
    assert own is not None
    report(world, tree, CAROL, StreamUp(0, 0, 5, end=5), own.term)
    report(world, tree, BOB, StreamDown(0, 0, 0, end=5, closed=True), own.term)
    world.stream_reporting._ended(BOB, StreamsEnded(tree.topic, ((own.term, 5, ()),)))
    state = tree.sources.states[own.term]
    assert (state.end, state.closed, state.heard_end) == (None, False, 0)


def test_what_a_child_says_of_the_end_of_a_stream_that_goes_on_is_for_the_root_to_judge(world: Parts) -> None:
    tree = below(world, DORA)
    child(world, tree)
    events(world, tree, 2)
    word = StreamsEnded(tree.topic, ((STREAM, 9, ((9, 100.0),)),))
    world.stream_reporting._ended(CAROL, word)
    assert tree.sources.states[STREAM].heard_end == 0
    assert [sent for sent in world.host.sent if isinstance(sent[1], StreamsEnded)] == [(DORA, word)]
    assert world.source_streams.begin_at(tree, earliest=False) == [(STREAM, 2)], "nor do its milestones count"
    world.stream_reporting._ended(DORA, word)
    assert tree.sources.states[STREAM].heard_end == 9
    assert world.host.sent[-1] == (CAROL, word)


def test_a_stream_that_was_said_to_be_over_before_it_began_begins_where_its_source_says(world: Parts) -> None:
    tree = below(world, DORA)
    for contact in (CAROL, BOB):
        child(world, tree, contact)
    world.stream_reporting._ended(CAROL, StreamsEnded(tree.topic, ((STREAM, 1 << 40, ()),)))
    report(world, tree, BOB, StreamUp(0, 0, 1, alive=True))
    world.table.arrive(BOB, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0),)))
    assert tree.flow.front(STREAM) == 1


def test_all_reports_of_a_turn_are_judged_together(world: Parts) -> None:
    tree = below(world)
    child(world, tree)
    for reach in (1, 2):
        report(world, tree, CAROL, StreamUp(0, reach, reach, alive=True))
    assert world.timers.count(TurnOver()) == 1
    world.dispatch.timer(TurnOver())
    assert world.timers[-1] == ConcludeTurn()


def test_a_child_that_caught_up_is_asked_to_cut_those_below_it_that_did_not(world: Parts) -> None:
    tree = below(world)
    entered = child(world, tree)
    events(world, tree, 4)
    entered.cut = Cut(mark=3, at=0.0)
    report(world, tree, CAROL, StreamUp(0, 4, 4))
    world.stream_reporting.conclude_turn()
    assert [type(message) for to, message in world.host.sent if to == CAROL] == [CutLeases]


def test_a_source_that_the_topics_list_does_not_name_is_told_so_and_its_stream_not_taken(world: Parts) -> None:
    tree = below(world)
    tree.descriptor = OWNER.own(replace(BY_SOURCE, access=(entry("publish", FRIEND.principal),)))
    report(world, tree, BOB, StreamDown(0, 1, 0))
    assert world.host.sent == [(BOB, Denied(tree.descriptor, full=False))]
    assert tree.sources.states == {}


def test_what_a_neighbour_reported_before_it_became_one_is_taken_up(world: Parts) -> None:
    tree = below(world, CAROL)
    told = (stream_key(tree.topic, STREAM), encode(StreamDown(2, 2, 0)))
    world.streams.receive(BOB, Changes(bytes(12), 0, 1, (told,)))
    tree.parent = BOB
    world.stream_reporting.take_up(tree, BOB)
    assert tree.sources.states[STREAM].above == StreamDown(2, 2, 0)


def test_so_is_the_first_stream_of_a_topic_once_a_list_lets_its_source_publish(world: Parts) -> None:
    """The root took over from sources beyond a partition, and the parent knew the list before."""
    tree = world.tree(described("elsewhere"))
    tree.parent = BOB
    listed = OWNER.own(replace(tree.descriptor, access=(entry("publish", FRIEND.principal),)))
    tree.descriptor, open_to_all = listed, tree.descriptor
    told = (stream_key(tree.topic, STREAM), encode(StreamDown(0, 2, 0)))
    world.streams.receive(BOB, Changes(bytes(12), 0, 1, (told,)))
    world.stream_reporting.changed(BOB, *told)
    assert tree.sources.states == {}
    tree.descriptor = open_to_all
    world.stream_reporting.take_up(tree, BOB)
    assert tree.sources.states[STREAM].above == StreamDown(0, 2, 0)


def test_a_stream_for_which_there_is_no_room_is_asked_for_again(world: Parts) -> None:
    """Its source may be far away and not hear of it, and neighbours say nothing twice."""
    tree, far = below(world, CAROL), Term(RELIABLE_STREAMS + 1, PAUL)
    world.source_streams.config = replace(CONFIG, streams_max=1)
    for number in range(FROM_ABOVE):
        world.source_streams.begin(tree, STREAM._replace(counter=STREAM.counter + number), 0, None)
    told = (stream_key(tree.topic, far), encode(StreamDown(2, 2, 0)))
    world.streams.receive(CAROL, Changes(bytes(12), 0, 1, (told,)))
    with pytest.raises(Implausible, match="no room yet"):
        world.stream_reporting.changed(CAROL, *told)
    world.stream_reporting.take_up(tree, CAROL)
    assert told[0] not in world.streams.told(CAROL.node_id), "so that its next mark tells that it differs"
    world.source_streams.conclude(tree, STREAM, 0)
    world.stream_reporting.changed(CAROL, *told)
    assert far in tree.sources.states


def test_ends_of_streams_are_learned_from_neighbours_only(world: Parts) -> None:
    tree = below(world)
    ends = StreamsEnded(tree.topic, ((STREAM, 5, ((5, 1.0),)),))
    world.stream_reporting._ended(CAROL, ends)
    assert tree.flow.past.forgotten == {}
    world.stream_reporting._ended(BOB, ends)
    assert tree.flow.past.forgotten == {STREAM: 5}


def test_a_source_next_to_this_peer_is_told_in_the_same_turn_that_its_events_are_here(world: Parts) -> None:
    tree = below(world)
    events(world, tree, 1)
    world.stream_reporting.came(tree.topic, STREAM, BOB.node_id)
    world.stream_reporting.conclude_turn()
    told = world.streams.telling(BOB.node_id)
    assert told[stream_key(tree.topic, STREAM)] == encode(StreamUp(1, 1, 1))


def test_a_source_too_many_for_what_two_peers_tell_each_other_waits(world: Parts) -> None:
    tree = below(world)
    world.streams.config = StreamConfig(map_bytes_max=100)
    world.streams.put(BOB, b"another topic...", bytes(59))
    assert world.source_streams.open(tree, None) is None
    assert world.host.records[-1] == Mark("streams_full")
    world.streams.drop(BOB, b"another topic...")
    assert world.source_streams.open(tree, None) is not None


@pytest.mark.parametrize(("front", "stays"), [(1, True), (2, False)])
def test_who_has_events_of_a_source_that_its_parent_has_yet_to_report_stays_in_the_tree(
    world: Parts, front: int, *, stays: bool
) -> None:
    """Nobody here or below wants the topic any more, and nobody else may have these events."""
    tree = world.tree(BY_SOURCE)
    world.terms.keep(tree)
    world.membership.accepted(CAROL, Accepted(tree.topic, FIRST, 0, (CAROL.node_id,), ()))
    events(world, tree, 2)
    report(world, tree, CAROL, StreamDown(front, 2, 0))
    tree.keep_no_longer()
    world.membership.leave_if_idle(tree)
    assert (tree.topic in world.trees) == stays


def test_a_child_hears_of_a_later_end_also_if_its_last_word_on_the_stream_crosses_that(world: Parts) -> None:
    """It took the stream for over at an earlier event, and drops its report as its parent has done with the stream."""
    tree, over = world.root(BY_SOURCE), encode(StreamDown(5, 5, 5, 5))
    events(world, tree, 5)
    child(world, tree).cut_off(Cut(0, 0.0, 1.0))
    report(world, tree, CAROL, StreamUp(3, 3, 3))
    world.streams.put(CAROL, tree.topic, b"another change, so that the next is not sent at once")
    world.source_streams.conclude(tree, STREAM, 5)
    report(world, tree, CAROL, None)
    changes = [message.changes for _, message in world.host.sent if isinstance(message, Changes)]
    assert [change for some in changes for change in some][-1] == (stream_key(tree.topic, STREAM), over)


@pytest.mark.parametrize("must_leave", [True, False])
def test_a_peer_stays_until_its_parent_has_what_came_of_a_stream_from_elsewhere(
    world: Parts, *, must_leave: bool
) -> None:
    tree = below(world)
    world.source_streams.learn(tree, STREAM, 0)
    world.table.arrive(CAROL, Bundle(Envelope(tree.topic, DOWN, STREAM, 0), (block(PAUL, 0, b"event"),)))
    tree.flow.others[STREAM].come_from(CAROL.node_id)
    world.membership.parents.add(BOB)
    world.open_trees.leaving = must_leave
    world.membership.leave_if_idle(tree)
    for front in (0, 1):
        del world.ordered[:]
        assert tree.topic in world.trees
        assert tree.keeping_until is not None
        report(world, tree, BOB, StreamDown(front, 1, 0))
        assert LeaveIfIdle(tree.topic) in world.ordered
        world.membership.leave_if_idle(tree)
    assert tree.topic not in world.trees
