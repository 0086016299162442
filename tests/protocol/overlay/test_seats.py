"""The seats of root scopes: which topics are rooted there, and who is closest among those who have one."""

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.seats import LEAVING_S, REMEMBERED_S, Seats
from quillcast.protocol.scopes.hierarchy import TwoRootScopes
from quillcast.protocol.scopes.messages import RootScope
from tests.protocol.recording import ALICE, BOB, CAROL, WEATHER, RecordingHost

SITE, CAMPUS = b"site".ljust(16), b"campus".ljust(16)


def root(*seats: Contact, name: str = "site", pattern: str = "news/#") -> RootScope:
    return RootScope(SITE if name == "site" else CAMPUS, name, ((pattern, True),), seats)


def seats_of(host: RecordingHost, *named: RootScope) -> Seats:
    seats = Seats(host, Neighbours(host, NeighbourConfig()), 5.0)
    seats.follow(named)
    return seats


def test_the_first_rule_that_fits_says_whether_a_scope_is_the_root_scope() -> None:
    seats = seats_of(RecordingHost(), RootScope(SITE, "site", (("news/old", False), ("news/#", True))))
    assert [seats.root_scope(name) for name in ("news/today", "news/old", "sport")] == ["site", "", ""]


def test_two_scopes_that_claim_a_topic_are_both_named() -> None:
    seats = seats_of(RecordingHost(), root(), root(name="campus", pattern="#"))
    with pytest.raises(
        TwoRootScopes, match="news/today is rooted at scope site, and cannot be rooted at scope campus too"
    ):
        seats.root_scope("news/today")
    assert seats.root_scope("sport") == "campus"


def test_the_closest_with_a_seat_is_the_rendezvous_point_until_it_is_lost_and_again_when_it_speaks() -> None:
    seats = seats_of(RecordingHost(ALICE), root(ALICE, BOB, CAROL))
    seats.note(WEATHER, "site")
    assert seats.of(WEATHER) == [CAROL, BOB, ALICE], "w is closest to c"
    assert seats.lost(CAROL.node_id)
    assert (seats.of(WEATHER), seats.to(WEATHER, "site")) == ([BOB, ALICE], BOB)
    assert not seats.lost(CAROL.node_id)
    assert seats.heard(CAROL.node_id)
    assert seats.of(WEATHER) == [CAROL, BOB, ALICE]


def test_a_message_has_arrived_at_the_closest() -> None:
    seats = seats_of(RecordingHost(CAROL), root(ALICE, BOB, CAROL))
    assert seats.to(WEATHER, "site") is None
    assert seats.of(WEATHER) == [CAROL, BOB, ALICE], "what was routed among seats is rooted there"


def test_of_other_scopes_and_of_topics_that_are_rooted_elsewhere_nothing_is_taken() -> None:
    seats = seats_of(RecordingHost(), root(ALICE, BOB), root(BOB, name="campus", pattern="sport"))
    seats.note(WEATHER, "site")
    assert [seats.takes(WEATHER, scope) for scope in ("site", "campus", "attic")] == [True, False, False]
    assert seats.of(BOB.node_id) is None, "the overlay's"


def test_a_seat_that_the_manager_takes_away_counts_as_lost_for_a_while() -> None:
    host = RecordingHost()
    seats = seats_of(host, root(ALICE, BOB))
    seats.note(WEATHER, "site")
    host.time = 10.0
    assert seats.follow([root(ALICE, CAROL)])
    assert seats.lately(WEATHER, 5.0) == [(CAROL, None), (BOB, 10.0), (ALICE, None)]
    assert seats.lately(WEATHER, 11.0) == [(CAROL, None), (ALICE, None)]
    assert not seats.follow([root(ALICE, CAROL)])
    host.time += REMEMBERED_S
    seats.follow([root(ALICE)])
    assert seats.lately(WEATHER, 0.0) == [(CAROL, host.time), (ALICE, None)]


def test_one_that_leaves_is_not_lost_and_what_it_still_says_does_not_bring_it_back() -> None:
    host = RecordingHost()
    seats = seats_of(host, root(ALICE, BOB))
    seats.note(WEATHER, "site")
    assert seats.left(BOB.node_id)
    assert not seats.heard(BOB.node_id)
    assert seats.lately(WEATHER, 0.0) == [(ALICE, None)]
    host.time = LEAVING_S + 1
    assert seats.heard(BOB.node_id), "it was started again, and the manager did not notice that it was away"
    assert seats.of(WEATHER) == [BOB, ALICE]


@pytest.mark.parametrize(("me", "watched"), [(ALICE, [BOB, CAROL]), (Contact(b"d" * 16, "127.0.0.1:4"), [])])
def test_those_with_a_seat_watch_each_other_and_nobody_else_does(me: Contact, watched: list[Contact]) -> None:
    host = RecordingHost(me)
    seats = Seats(host, neighbours := Neighbours(host, NeighbourConfig()), 5.0)
    seats.follow([root(ALICE, BOB, CAROL)])
    assert [contact for contact in (ALICE, BOB, CAROL) if contact.node_id in neighbours._links] == watched
