"""A topic's sources number its events in one session, and its root in the next, or the other way round."""

import pytest
from msgspec.structs import replace

from quillcast.core.envelope import RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.protocol.forwarding.event_places import gone_before
from quillcast.protocol.topics.descriptor import Descriptor, Settings, opens_session
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root.sessions import FlushDue
from quillcast.protocol.topics.state.effects import AllStable
from quillcast.protocol.topics.state.holders import SourcesChild
from quillcast.protocol.topics.state.link_reports import StreamUp, encode, stream_key
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.session import SessionState
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.stream_ways import is_alive
from tests.protocol.recording import BOB, FIRST, PAUL, block, down
from tests.protocol.topics.parts import BY_SOURCE, STREAM, Parts
from tests.protocol.topics.test_changes import NAME, settings_at
from tests.protocol.topics.test_own_streams import publisher
from tests.protocol.topics.test_sessions import deep, session_at
from tests.protocol.topics.village import Reader, Village

BY_ROOT = replace(BY_SOURCE, settings=Settings(), version=2, session=1)
ABOUT_TO_CHANGE = replace(BY_SOURCE, upcoming=BY_ROOT)


# ---- a source


def own_stream(world: Parts) -> Tree:
    tree = world.tree(BY_SOURCE)
    term = world.own_streams.open(publisher(world))
    assert term is not None
    return tree


def test_a_source_ends_its_stream_when_a_session_is_about_to_begin_in_which_a_root_numbers_the_events(
    world: Parts,
) -> None:
    tree = own_stream(world)
    own = tree.sources.own
    assert own is not None
    tree.adapt(ABOUT_TO_CHANGE)
    world.own_streams.settings_learned(tree)
    state = tree.sources.states[own.term]
    assert (own.closing, state.closed, state.end) == (True, True, 0)
    assert not is_alive(tree, own.term)
    assert not world.own_streams.goes_on(tree.topic)
    tree.adapt(BY_ROOT)
    world.own_streams.settings_learned(tree)
    assert tree.sources.own is None


def test_another_stream_begins_only_in_the_next_session_that_sources_number(world: Parts) -> None:
    tree = world.tree(BY_SOURCE)
    tree.adapt(ABOUT_TO_CHANGE)
    assert world.own_streams.open(publisher(world)) is None
    assert world.own_streams.crowded == {}
    tree.adapt(replace(BY_SOURCE, version=3, session=2))
    term = world.own_streams.open(publisher(world))
    assert term is not None
    assert (term.session, term.of_source, term.number) == (2, True, 1)


def test_a_source_goes_on_with_another_stream_if_the_session_is_called_off(world: Parts) -> None:
    tree = own_stream(world)
    own = tree.sources.own
    assert own is not None
    tree.adapt(ABOUT_TO_CHANGE)
    world.own_streams.settings_learned(tree)
    tree.adapt(replace(BY_SOURCE, version=3))
    world.own_streams.settings_learned(tree)
    assert tree.sources.own is None
    following = world.own_streams.open(publisher(world))
    assert following is not None
    assert following > own.term


def test_a_source_that_leaves_numbers_its_last_events_before_another_session(world: Parts) -> None:
    tree = own_stream(world)
    assert tree.sources.own is not None
    world.open_trees.closing = True
    tree.adapt(ABOUT_TO_CHANGE)
    world.own_streams.settings_learned(tree)
    assert not tree.sources.own.closing


def test_streams_go_on_in_sessions_in_which_sources_number_the_events_as_before(world: Parts) -> None:
    tree = own_stream(world)
    waits = replace(BY_SOURCE, settings=replace(BY_SOURCE.settings, partition="wait"), version=2, session=1)
    for descriptor in (replace(BY_SOURCE, upcoming=waits), waits):
        tree.adapt(descriptor)
        world.own_streams.settings_learned(tree)
        assert world.own_streams.goes_on(tree.topic)


# ---- the root


def flushing(world: Parts) -> tuple[Tree, Root]:
    tree = world.root(BY_SOURCE)
    root = tree.root
    assert root is not None
    world.source_streams.begin(tree, STREAM, 0, None)
    tree.flow.move(down(STREAM, 0, block(PAUL, 0, b"a", b"b", b"c", b"d")), tree.flow.others[STREAM])
    root.session_state, root.closing, root.noted = SessionState.FLUSHING, True, ABOUT_TO_CHANGE
    tree.adapt(ABOUT_TO_CHANGE)
    return tree, root


def test_a_session_ends_when_its_streams_have_ended_and_everybody_has_them(world: Parts) -> None:
    tree, _ = flushing(world)
    assert not tree.is_flushed
    tree.sources.states[STREAM].close(4)
    assert not tree.is_flushed
    tree.flow.others[STREAM].stable = 4
    assert tree.is_flushed


def test_a_flushed_session_is_told_of_as_soon_as_its_last_stream_is_stable(world: Parts) -> None:
    tree, _ = flushing(world)
    tree.sources.states[STREAM].close(4)
    world.progress.advance_streams(tree)
    assert AllStable(tree.topic) in world.ordered


def test_a_source_that_says_nothing_delays_the_next_session_for_a_while_only(world: Parts) -> None:
    tree, root = flushing(world)
    root.flush_until = world.host.now() + 1
    world.sessions.due(FlushDue(tree.topic, root.term))
    assert root.session_state is SessionState.FLUSHING
    world.host.time += 1
    world.sessions.due(FlushDue(tree.topic, root.term))
    assert root.session_state is SessionState.CLOSED


# ---- what comes late


def test_a_report_on_a_stream_that_was_over_counts_although_a_root_numbers_the_events_now(world: Parts) -> None:
    tree = world.root(BY_SOURCE)
    child = SourcesChild(world.host, BOB, 0, tree.term, 0, sends_only=False)
    tree.enter(child)
    tree.flow.open_past().note_over(STREAM, 2)
    tree.adapt(BY_ROOT)
    world.stream_reporting.changed(BOB, stream_key(tree.topic, STREAM), encode(StreamUp(5, 5, 5, False, 5)))
    assert tree.by_source
    assert (tree.sources.states[STREAM].end, child.streams[STREAM].frontier) == (5, 5)


def test_a_roots_events_never_go_up_the_tree(world: Parts) -> None:
    tree = world.tree(BY_SOURCE)
    tree.parent = BOB
    world.source_streams.attached(tree, BOB, (), (), (), whole=True, served=True)
    assert tree.sources.up is not None
    assert tree.sources.up.filter is not None
    assert tree.sources.up.filter(down(FIRST, 0, block(PAUL, 0))) is None
    assert tree.sources.up.filter(down(STREAM, 0, block(PAUL, 0))) is not None


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (STREAM, Term(SESSION_TERMS + 1, bytes(16))),
        (Term(1, bytes(16)), STREAM),
        (STREAM, Term(STREAM.counter + SESSION_TERMS, bytes(16))),
        (Term(SESSION_TERMS + 1, bytes(16)), Term(STREAM.counter + 2 * SESSION_TERMS, bytes(16))),
    ],
)
def test_terms_of_a_later_session_follow_whoever_numbered_the_events(earlier: Term, later: Term) -> None:
    assert earlier.precedes(later)
    assert not later.precedes(earlier)


def test_within_a_session_a_root_may_have_followed_sources_or_they_a_root() -> None:
    root = Term(1, bytes(16))
    assert STREAM.precedes(root, streams_first=True)
    assert not root.precedes(STREAM, streams_first=True)


def test_a_peer_that_only_published_as_a_source_gets_a_roots_events_once_it_wants_them(world: Parts) -> None:
    tree = world.tree(BY_SOURCE)
    tree.parent = BOB
    world.source_streams.attached(tree, BOB, (), (), (), whole=True, served=False)
    assert not tree.served
    tree.adapt(BY_ROOT)
    world.source_streams.attached(tree, BOB, (), (), (), whole=True, served=True)
    assert tree.served


@pytest.mark.parametrize(("later", "again"), [(SESSION_TERMS + 1, True), (FIRST.counter + 1, False)])
def test_what_a_stream_had_may_come_again_in_a_later_session_though_it_is_over(
    world: Parts, later: int, again: bool
) -> None:
    tree = world.root(BY_SOURCE)
    tree.flow.open_past().note_over(STREAM, 4)
    tree.flow.begin(Term(later, FIRST.node), 0, 0.0)
    (gone,) = [each for each in gone_before(tree.flow, 0) if each.term == STREAM]
    assert (gone.ranges, gone.again) == (((0, 4),), again)


# ---- a guarantee that changes where sources number the events


BEST_EFFORT = replace(BY_SOURCE, settings=Settings(admission="source", delivery="best_effort"), version=2, session=1)


def test_a_source_has_a_stream_for_each_guarantee(world: Parts) -> None:
    tree = own_stream(world)
    first = tree.sources.own
    assert first is not None
    tree.adapt(replace(BY_SOURCE, upcoming=BEST_EFFORT))
    world.own_streams.settings_learned(tree)
    assert not world.own_streams.goes_on(tree.topic)
    tree.adapt(BEST_EFFORT)
    world.own_streams.settings_learned(tree)
    term = world.own_streams.open(publisher(world))
    assert term is not None
    assert (first.term.best_effort, term.best_effort, term.session) == (False, True, 1)
    assert (tree.flow.is_reliable(first.term), tree.flow.is_reliable(term)) == (True, False)


def test_a_source_that_hears_of_another_guarantee_late_ends_its_stream_all_the_same(world: Parts) -> None:
    tree = own_stream(world)
    own = tree.sources.own
    assert own is not None
    tree.adapt(BEST_EFFORT)
    world.own_streams.settings_learned(tree)
    assert tree.sources.own is None
    assert tree.sources.states[own.term].closed


def test_who_had_a_best_effort_stream_holds_nobody_up_once_it_is_over_there(world: Parts) -> None:
    reliable = replace(BEST_EFFORT, settings=Settings(admission="source"), version=3, session=2)
    tree = world.root(reliable)
    dropped = Term(STREAM.counter + SESSION_TERMS - RELIABLE_TERMS, bytes(16))
    world.source_streams.begin(tree, dropped, 0, None)
    assert not tree.flow.is_reliable(dropped)
    child = SourcesChild(world.host, BOB, 0, tree.term, 0, sends_only=False)
    tree.enter(child)
    child.note_stream(dropped, StreamUp(2, 2, 2, False))
    tree.sources.states[dropped].close(5)
    world.source_streams.news.tell_one(tree, dropped)
    world.source_streams.let_go(tree, child, dropped)
    assert child.streams[dropped].frontier == 5


def test_who_numbers_the_events_and_what_they_are_owed_change_one_after_the_other() -> None:
    both = replace(BY_ROOT, settings=Settings(delivery="best_effort"))
    assert opens_session(BY_SOURCE, BY_ROOT)
    assert opens_session(BY_SOURCE, BEST_EFFORT)
    assert not opens_session(BY_SOURCE, both)


# ---- whole peers


SOURCES = Settings(admission="source")
TO_ROOT, TO_SOURCES = {"admission": "root"}, {"admission": "source"}


def loaded(before: Settings) -> tuple[Village, dict[int, Reader], list[tuple[int, Publisher]]]:
    village, readers = deep(settings=before)
    publishers = [(peer, village.publisher(peer, NAME)) for peer in (13, 14, 15) if peer != village.root(NAME)]
    village.run(1)
    return village, readers, publishers


def publish(village: Village, publishers: list[tuple[int, Publisher]], first: int, count: int) -> None:
    for index in range(first, first + count):
        for peer, each in publishers:
            village.publish(peer, each, b"%d of %d" % (index, peer))
        village.run(0.05)


def check_all_came(readers: dict[int, Reader], publishers: list[tuple[int, Publisher]], count: int) -> None:
    for reader in readers.values():
        for peer, _ in publishers:
            mine = [payload for payload in reader.payloads if payload.endswith(b"of %d" % peer)]
            assert mine == [b"%d of %d" % (index, peer) for index in range(count)], reader.losses


@pytest.mark.parametrize(("before", "wanted"), [(SOURCES, TO_ROOT), (Settings(), TO_SOURCES)])
def test_a_root_that_dies_while_it_changes_who_numbers_the_events_loses_none(
    before: Settings, wanted: dict[str, str]
) -> None:
    village, readers, publishers = loaded(before)
    publish(village, publishers, 0, 10)
    answers: list[object] = []
    village.act(publishers[0][0], lambda peer: peer.change(NAME, wanted, answers.append))
    root = village.root(NAME)
    for _ in range(400):
        village.run(0.005)
        if session_at(village, root)[1] is SessionState.FLUSHING:
            break
    publish(village, publishers, 10, 1)
    village.kill(root)
    readers.pop(root, None)
    publish(village, publishers, 11, 20)
    village.run(40)
    assert session_at(village, village.root(NAME)) == (1, SessionState.ACTIVE)
    assert settings_at(village, village.root(NAME)).admission == wanted["admission"]
    check_all_came(readers, publishers, 31)


def test_a_session_begins_although_a_source_died_and_the_others_lose_nothing() -> None:
    village, readers, publishers = loaded(SOURCES)
    publish(village, publishers, 0, 10)
    village.run(1)
    dead = publishers.pop()
    village.kill(dead[0], silently=True)
    readers.pop(dead[0], None)
    answers: list[object] = []
    village.act(publishers[0][0], lambda peer: peer.change(NAME, TO_ROOT, answers.append))
    publish(village, publishers, 10, 100)
    village.run(5)
    assert [type(answer) for answer in answers] == [Descriptor]
    check_all_came(readers, publishers, 110)
    village.run(30)
    trees = [tree for peer in village.alive() if (tree := village.tree(peer, NAME)) is not None]
    assert not any(tree.sources.states for tree in trees), "the stream of the dead source is over"
