"""A topic's settings and sessions at its root: one input, then what was recorded, answered and ordered."""

import pytest
from msgspec.structs import replace

from quillcast.core.trace import Mark
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.security.access import entry
from quillcast.protocol.topics.descriptor import Descriptor, Settings, takes_off
from quillcast.protocol.topics.root.replication import RoundsDue
from quillcast.protocol.topics.root.sessions import FlushDue
from quillcast.protocol.topics.root_messages import Create, Created
from quillcast.protocol.topics.state.effects import (
    AwaitRoot,
    BecomeRoot,
    LaterTermExists,
    OpenSession,
    Resign,
    SettingsEntered,
    SettingsLearned,
)
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.session import SessionState
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, SECOND, block, up
from tests.protocol.topics.parts import CONFIG, DESCRIPTOR, Parts

SLOWER = Descriptor("weather", Settings(slow="wait"), version=2)
NEXT = Descriptor("weather", Settings(partition="wait"), version=2, session=1)
LISTED = replace(NEXT, access=("publish:ann",))
OWNER = Credentials.new()
CLAIMED = OWNER.own(replace(DESCRIPTOR, version=1, access=(entry("publish", OWNER.principal),)))
BEST_EFFORT = Descriptor("weather", Settings(delivery="best_effort"), version=2, session=1)


def rooted(world: Parts) -> tuple[Tree, Root]:
    tree = world.root()
    assert tree.root is not None
    return tree, tree.root


def listed(*who: str) -> Descriptor:
    return replace(NEXT, access=("subscribe:zoe", *(f"publish:{one}" for one in who)))


@pytest.mark.parametrize(
    ("before", "after", "taken_off"),
    [
        ((), (), False), (("ann",), (), False), (("ann",), ("ann", "bob"), False),
        ((), ("ann",), True), (("ann", "bob"), ("ann",), True), (("ann",), ("bob",), True),
    ],
)  # fmt: skip
def test_who_loses_a_right_with_another_list(before: tuple[str, ...], after: tuple[str, ...], taken_off: bool) -> None:
    assert takes_off(listed(*before), listed(*after), "publish") is taken_off


# ---- settings


def test_a_request_for_settings_waits_until_this_peer_is_root(world: Parts) -> None:
    request = Create(SLOWER, BOB)
    world.root_settings.create(request)
    assert world.ordered == [AwaitRoot(SLOWER.topic, request)]


def test_a_root_hears_from_who_asks_for_settings_of_a_later_term_and_that_the_topic_is_not_new(world: Parts) -> None:
    """The creator's peer is in another root's tree, and may have subscribers there."""
    tree, root = rooted(world)
    root.hold_until, root.after = 0.0, None
    world.root_settings.create(Create(DESCRIPTOR, BOB, term=SECOND))
    assert LaterTermExists(tree.topic) in world.ordered
    assert root.held_until == root.began_at + CONFIG.lease_s


def test_settings_that_stand_are_answered_at_once(world: Parts) -> None:
    tree, root = rooted(world)
    root.holders = 3
    world.root_settings.create(Create(DESCRIPTOR, BOB, number=7))
    assert world.host.sent == [(BOB, Created(DESCRIPTOR, 3, 7))]
    assert (tree.descriptor, world.ordered) == (DESCRIPTOR, [])


def test_a_request_for_settings_that_end_the_roots_term_goes_to_the_next_root(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Parts()
    tree, _ = rooted(world)
    monkeypatch.setattr(world.known, "learn", lambda _: setattr(tree, "root", None))
    request = Create(SLOWER, BOB)
    world.root_settings.create(request)
    assert world.ring.routed == [(request, tree.topic)]


def test_new_settings_are_answered_once_the_replicas_have_recorded_them() -> None:
    world = Parts(ALICE)
    tree, root = rooted(world)
    world.root_settings.create(Create(SLOWER, BOB, number=7))
    assert world.ordered == [SettingsLearned(SLOWER)]
    assert (tree.descriptor, root.noted) == (SLOWER, DESCRIPTOR)
    assert RoundsDue(again=False) in world.timers
    assert world.host.sent == []
    world.root_settings.learned(tree)
    world.replication.due(RoundsDue(again=False))  # nobody else keeps the topic's state
    assert world.ordered[1:] == [SettingsEntered(tree.topic)]
    assert (root.noted, root.holders) == (SLOWER, 1)


def test_a_request_is_routed_again_if_this_peer_is_no_root_by_the_time_the_replicas_have_recorded_it() -> None:
    world = Parts(ALICE)
    tree, _ = rooted(world)
    request = Create(SLOWER, BOB, number=7)
    world.root_settings.create(request)
    tree.root = None
    world.replication.due(RoundsDue(again=False))
    assert world.ring.routed == [(request, tree.topic)]
    assert world.host.sent == []


def test_an_earlier_version_changes_nothing_and_is_answered_with_the_one_that_stands(world: Parts) -> None:
    tree = world.root(SLOWER)
    world.root_settings.create(Create(DESCRIPTOR, BOB, number=7))
    assert world.host.sent == [(BOB, Created(SLOWER, 1, 7))]
    assert tree.descriptor == SLOWER


@pytest.mark.parametrize("known", [DESCRIPTOR, replace(DESCRIPTOR, upcoming=NEXT)])
def test_settings_of_a_next_session_and_all_that_come_while_one_is_being_opened_open_a_session(
    world: Parts, known: Descriptor
) -> None:
    tree = world.root(known)
    request = Create(NEXT if known.upcoming is None else SLOWER, BOB)
    world.root_settings.create(request)
    assert world.ordered == [OpenSession(tree.topic, request)]


def test_a_root_of_an_earlier_session_is_outdone_by_the_settings_of_a_later_one(world: Parts) -> None:
    tree, _ = rooted(world)
    tree.descriptor = NEXT
    world.root_settings.learned(tree)
    assert world.ordered == [LaterTermExists(tree.topic)]


@pytest.mark.parametrize("owned", [True, False])
def test_a_root_that_learns_of_an_owner_and_a_list_of_publishers_is_outdone_if_it_knew_of_none(
    world: Parts, owned: bool
) -> None:
    tree, root = rooted(world)
    root.term = root.term.noting(owned=owned)
    tree.adapt(CLAIMED)
    world.root_settings.learned(tree)
    assert (LaterTermExists(tree.topic) in world.ordered) is not owned


def test_a_topic_that_everybody_used_gets_a_list_of_publishers_with_the_next_term_at_once() -> None:
    world = Parts(ALICE, BOB, CAROL)
    tree, _ = rooted(world)
    request = Create(CLAIMED, BOB)
    world.root_settings.create(request)
    assert world.ordered == [OpenSession(tree.topic, request)]
    world.sessions.asked(tree, request)
    assert world.ordered[1:] == [BecomeRoot(tree.topic, "transferred", (), CLAIMED)]
    assert world.ring.routed == [(request, tree.topic)]
    world.known.learn(CLAIMED)
    assert world.root_terms.next_term(tree, world.known.latest(tree)).owned


def test_a_root_that_is_not_the_closest_any_more_leaves_the_first_list_to_the_one_that_is(world: Parts) -> None:
    tree, _ = rooted(world)
    world.sessions.asked(tree, request := Create(CLAIMED, BOB))
    assert world.ordered == [Resign(tree.topic)]
    assert world.ring.routed == [(request, tree.topic)]


# ---- sessions


def active(world: Parts) -> tuple[Tree, Root]:
    tree, root = rooted(world)
    world.sessions.root_here(tree)
    assert root.session_state is SessionState.ACTIVE
    return tree, root


def ending(world: Parts, upcoming: Descriptor = NEXT, events: int = 1) -> tuple[Tree, Root]:
    """A root whose replicas have recorded the next session, with events that are not stable."""
    tree, root = active(world)
    root.admit(BOB, up(0, block(PAUL, 0, *[b"event"] * events)))
    root.seal()
    root.noted = replace(root.noted, upcoming=upcoming)
    world.sessions.recorded(tree)
    return tree, root


def test_the_first_request_for_a_session_has_it_recorded_and_later_ones_wait(world: Parts) -> None:
    tree, root = active(world)
    first, second = Create(NEXT, BOB), Create(BEST_EFFORT, CAROL)
    world.sessions.asked(tree, first)
    world.sessions.asked(tree, second)
    assert world.ordered == [SettingsLearned(replace(DESCRIPTOR, upcoming=NEXT))]
    assert root.session_state is SessionState.PREPARE
    assert root.sessions_asked == {BOB.node_id: first, CAROL.node_id: second}


def test_a_new_root_routes_the_requests_that_waited_for_it_again(world: Parts) -> None:
    tree, root = rooted(world)
    request = Create(NEXT, BOB)
    world.sessions.asked(tree, request)
    assert (root.session_state, world.ordered) == (SessionState.CLOSED, [])
    world.sessions.root_here(tree)
    assert world.ring.routed == [(request, tree.topic)]
    assert root.sessions_asked == {}


def test_settings_without_a_next_session_end_none(world: Parts) -> None:
    tree, root = active(world)
    world.sessions.recorded(tree)
    assert (root.session_state, root.closing, world.ordered) == (SessionState.ACTIVE, False, [])


def test_a_session_whose_events_are_stable_ends_at_once_and_the_closest_peer_begins_the_next() -> None:
    world = Parts(ALICE, BOB, CAROL)
    tree, root = active(world)
    request = Create(NEXT, BOB)
    world.sessions.asked(tree, request)
    root.noted = tree.descriptor
    del world.ordered[:]
    world.sessions.recorded(tree)
    assert world.ordered == [BecomeRoot(tree.topic, "transferred", (), NEXT)]
    assert Mark("session_ended") in world.host.records
    assert world.ring.routed == [(request, tree.topic)]


def test_a_root_that_is_not_the_closest_any_more_leaves_the_next_session_to_the_one_that_is(world: Parts) -> None:
    tree, root = active(world)
    root.noted = replace(DESCRIPTOR, upcoming=NEXT)
    world.sessions.recorded(tree)
    assert world.ordered == [Resign(tree.topic)]
    assert Mark("session_ended") not in world.host.records


def test_a_session_admits_nothing_more_while_its_events_are_awaited_at_the_subscribers(world: Parts) -> None:
    tree, root = ending(world)
    assert (root.session_state, root.closing) == (SessionState.FLUSHING, True)
    assert world.host.timers[-1] == (FlushDue(tree.topic, FIRST), CONFIG.linger_s)
    assert world.ordered == []
    world.sessions.all_stable(tree)
    assert world.ordered == [Resign(tree.topic)]


@pytest.mark.parametrize(("term", "ordered"), [(FIRST, True), (SECOND, False)])
def test_a_session_ends_after_its_time_and_no_other_sessions_timer_ends_it(
    world: Parts, term: object, ordered: bool
) -> None:
    tree, _ = ending(world)
    world.host.time += CONFIG.linger_s
    world.sessions.due(FlushDue(tree.topic, term))
    assert world.ordered == ([Resign(tree.topic)] if ordered else [])


@pytest.mark.parametrize("following", [BEST_EFFORT, LISTED])
def test_before_a_session_in_which_something_is_not_sent_again_subscribers_have_until_their_leases_end(
    world: Parts, following: Descriptor
) -> None:
    tree, root = ending(world, following)
    assert world.host.timers[-1] == (FlushDue(tree.topic, FIRST), CONFIG.lease_s)
    assert root.closing


@pytest.mark.parametrize("holds", [True, False], ids=["after a crash", "after a leadership transfer"])
def test_before_a_best_effort_session_publishers_first_send_again_what_earlier_terms_left(
    world: Parts, *, holds: bool
) -> None:
    tree, root = active(world)
    if holds:
        root.hold(4.0)
    else:
        root.after = FIRST
    root.noted = replace(DESCRIPTOR, upcoming=BEST_EFFORT)
    world.sessions.recorded(tree)
    assert world.host.timers[-1] == (FlushDue(tree.topic, FIRST), 4.0)
    assert (root.closing, world.ordered) == (False, [])
    world.host.time = 4.0
    world.sessions.due(FlushDue(tree.topic, FIRST))
    assert world.ordered == [Resign(tree.topic)]
