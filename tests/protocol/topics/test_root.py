"""The root: admission in sequence, sealing, stability and receipts."""

import pytest

from quillcast.core.envelope import NO_TERM, RELIABLE_STREAMS, SERIALS, Term
from quillcast.protocol.topics.config import LACKS_MAX, TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.state.admitter import TURN_TIMES
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.root import Root
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, PAULA, WEATHER, RecordingHost, block, up


def a_root(settings: Settings = Settings(), **config: int) -> Root:  # noqa: B008  it has no state
    limits = TopicConfig(**config)
    early = EarlyBlocks(limits.window_bytes)
    return Root(RecordingHost(), limits, Descriptor("weather", settings), FIRST, hold_until=0.0, early=early)


def test_events_of_many_publishers_are_sealed_into_one_bundle_with_positions_in_a_row() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0, b"a", b"b")))
    root.admit(CAROL, up(0, block(PAULA, 0, b"c")))
    (bundle,) = root.seal()
    assert (bundle.envelope.first, bundle.last, bundle.envelope.term) == (0, 3, FIRST)
    assert [b.publisher for b in bundle.blocks] == [PAUL, PAULA]
    assert root.receipts() == {BOB: [(PAUL, 2, 0, ())], CAROL: [(PAULA, 1, 0, ())]}


def test_bundles_are_numbered_whatever_the_positions_of_their_events() -> None:
    root = a_root()
    serials = list[int]()
    for sequence in range(3):
        root.admit(BOB, up(0, block(PAUL, sequence)))
        serials += [bundle.envelope.serial for bundle in root.seal()]
    root.serial = SERIALS - 1
    root.admit(BOB, up(0, block(PAUL, 3)))
    root.seal()
    assert serials == [0, 1, 2]
    assert root.serial == 0


def test_a_publisher_is_admitted_in_sequence_and_sends_again_what_is_missing_only() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(0, block(PAUL, 2)))
    assert root.receipts() == {BOB: [(PAUL, 1, 0, ((1, 2),))]}
    root.admit(BOB, up(0, block(PAUL, 1)))
    root.admit(BOB, up(0, block(PAUL, 1)))
    assert [(each.first, each.last) for each in root.waiting] == [(0, 1), (1, 2), (2, 3)]
    assert root.receipts() == {BOB: [(PAUL, 3, 0, ())]}
    assert (root.early.waiting, root.early.used_bytes) == ({}, 0)


def test_each_gap_is_asked_for_when_it_is_noticed_and_what_is_left_of_all_after_a_pause() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    asked = []
    for sequence in (2, 3, 4, 7, 8, 7, 10):
        root.admit(BOB, up(0, block(PAUL, sequence)))
        asked += root.receipts().get(BOB, [])
    assert asked == [(PAUL, 1, 0, (gap,)) for gap in [(1, 2), (5, 7), (9, 10)]], "it hears nothing new of the others"
    root.admit(BOB, up(0, block(PAUL, 1), block(PAUL, 6)))
    assert root.receipts() == {BOB: [(PAUL, 5, 0, ())]}
    root.host.time += root.config.gap_s
    root.admit(BOB, up(0, block(PAUL, 11)))
    assert root.receipts() == {BOB: [(PAUL, 5, 0, ((5, 6), (9, 10)))]}, "what it sent again was lost"
    root.admit(BOB, up(0, block(PAUL, 12), block(PAUL, 5), block(PAUL, 9)))
    assert root.receipts() == {BOB: [(PAUL, 13, 0, ())]}
    root.admit(BOB, up(0, block(PAUL, 14)))
    assert root.receipts() == {BOB: [(PAUL, 13, 0, ((13, 14),))]}, "another gap is asked for at once"


def test_a_root_asks_for_so_many_gaps_at_a_time() -> None:
    root = a_root()
    for sequence in range(1, 2 * LACKS_MAX + 3, 2):
        root.admit(BOB, up(0, block(PAUL, sequence)))
    ((_, _, _, lacks),) = root.receipts()[BOB]
    assert lacks == tuple((first, first + 1) for first in range(0, 2 * LACKS_MAX, 2))


def test_a_publisher_that_discarded_what_is_missing_goes_on_from_its_floor() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(0, block(PAUL, 3)))
    root.admit(BOB, up(3, block(PAUL, 5)))
    assert root.receipts() == {BOB: [(PAUL, 4, 0, ((4, 5),))]}
    root.admit(BOB, up(3, block(PAUL, 4)))
    assert [(each.first, each.last) for each in root.waiting] == [(0, 1), (3, 4), (4, 5), (5, 6)]


def test_what_comes_too_early_is_kept_up_to_a_bound_and_the_oldest_of_others_makes_room() -> None:
    size = block(PAUL, 0).size
    early = EarlyBlocks(3 * size)
    for kept in (block(PAUL, 4), block(PAUL, 2), block(PAUL, 2), block(PAULA, 3)):
        early.keep(WEATHER, kept)
        early.check()
    assert early.missing(WEATHER, PAUL, 1, 6) == [(1, 2), (3, 4), (5, 6)]
    early.keep(WEATHER, block(PAULA, 4))
    assert early.missing(WEATHER, PAUL, 1, 6) == [(1, 6)], "it came first"
    early.keep(WEATHER, block(PAULA, 5))
    early.keep(WEATHER, block(PAULA, 6))
    assert early.missing(WEATHER, PAULA, 2, 7) == [(2, 3), (6, 7)]
    assert [each.first for each in early.take(WEATHER, PAULA, 4)] == [4, 5]
    early.check()
    assert (early.waiting, early.used_bytes) == ({}, 0)


def test_what_finds_no_room_in_any_case_takes_none_from_others() -> None:
    size = block(PAUL, 0).size
    early = EarlyBlocks(3 * size)
    for kept in (block(PAUL, 1), block(PAULA, 1), block(PAULA, 2), block(PAULA, 3, bytes(2 * size))):
        early.keep(WEATHER, kept)
        early.check()
    assert (early.missing(WEATHER, PAUL, 0, 2), early.missing(WEATHER, PAULA, 0, 4)) == ([(0, 1)], [(0, 1), (3, 4)])


def test_what_is_missing_is_asked_for_even_while_no_receipts_are_given() -> None:
    root = a_root()
    root.admit(CAROL, up(0, block(PAULA, 0)))
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(0, block(PAUL, 2)))
    assert root.requests() == {BOB: [(PAUL, 1, 0, ((1, 2),))]}
    assert root.requests() == {}
    assert root.receipts() == {CAROL: [(PAULA, 1, 0, ())], BOB: [(PAUL, 1, 0, ())]}, "they stay owed"


def test_a_publisher_keeps_its_place_until_it_was_told_what_is_stable() -> None:
    root = a_root(admissions_max=1)
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.seal()
    root.acknowledge_to(1, 0.0)
    root.admit(CAROL, up(0, block(PAULA, 0)))
    assert list(root.admissions) == [PAUL], "it would send its event again, and that would be admitted twice"
    root.receipts()
    root.admit(CAROL, up(0, block(PAULA, 0)))
    assert list(root.admissions) == [PAULA]


def test_a_publisher_has_no_place_until_what_others_have_sent_is_stable() -> None:
    root = a_root(admissions_max=1)
    assert not root.is_full
    assert root.admit(BOB, up(0, block(PAUL, 0)))
    assert not root.admit(CAROL, up(0, block(PAULA, 0)))
    assert root.is_full
    root.seal()
    root.acknowledge_to(1, 0.0)
    root.receipts()
    assert not root.is_full
    assert root.admit(CAROL, up(0, block(PAULA, 0)))


def test_publishers_that_wait_for_a_place_get_one_in_their_order_while_they_ask() -> None:
    root = a_root(admissions_max=1)
    assert isinstance(root.host, RecordingHost)

    waiting, later = b"waiting".ljust(16), b"later".ljust(16)
    assert root.admit(BOB, up(0, block(PAUL, 0)))
    assert not root.admit(CAROL, up(0, block(PAULA, 0)))
    assert not root.admit(CAROL, up(0, block(waiting, 0)))
    root.seal()
    root.acknowledge_to(1, 0.0)
    root.receipts()
    assert not root.admit(BOB, up(0, block(later, 0))), "there is a place, but others have waited for longer"
    assert not root.admit(CAROL, up(0, block(waiting, 0)))
    root.host.time = TURN_TIMES * root.config.receipt_timeout_s - 0.1
    assert not root.admit(CAROL, up(0, block(waiting, 0)))
    root.host.time += 0.2
    assert root.admit(CAROL, up(0, block(waiting, 0))), "the first did not ask again in time"
    assert list(root.queue) == []


def test_a_new_root_takes_a_publishers_floor_for_where_to_begin() -> None:
    root = a_root()
    root.admit(BOB, up(7, block(PAUL, 9)))
    assert root.receipts() == {BOB: [(PAUL, 7, 0, ((7, 9),))]}
    root.admit(BOB, up(7, block(PAUL, 7), block(PAUL, 8), block(PAUL, 9)))
    assert root.index == 3


def test_what_all_leases_cover_is_stable_once_the_root_holds_it_back_no_more() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0), block(PAUL, 1)))
    root.receipts()
    root.hold_until = 10.0
    assert not root.acknowledge_to(2, now=9.0)
    assert root.acknowledge_to(1, now=11.0)
    assert root.receipts() == {BOB: [(PAUL, 2, 1, ())]}
    assert not root.acknowledge_to(1, now=12.0)


@pytest.mark.parametrize("term", [NO_TERM, FIRST, Term(RELIABLE_STREAMS + 1, bytes(16)), Term(1, bytes(15) + b"1")])
@pytest.mark.parametrize("new", [True, False])
def test_a_topic_that_was_taken_for_new_is_held_once_an_earlier_term_of_it_is_heard_of(new: bool, term: Term) -> None:
    """Its subscribers may be beyond a partition. No term, this one, and a stream of a source tell of no other root."""
    root = a_root()
    root.after = None if new else NO_TERM
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.seal()
    root.was_used(term)
    held = new and term.counter == 1 and term != FIRST
    assert root.acknowledge_to(1, now=TopicConfig().lease_s - 1) == (not held)
    assert root.acknowledge_to(1, now=TopicConfig().lease_s) == held


def test_a_best_effort_publisher_has_nothing_before_what_it_sends() -> None:
    root = a_root(Settings(delivery="best_effort"))
    root.admit(BOB, up(5, block(PAUL, 5)))
    assert root.receipts() == {BOB: [(PAUL, 6, 0, ())]}


def test_a_floor_does_not_imply_stability() -> None:
    """The publisher may have discarded what lies below it."""
    root = a_root()
    root.frontiers = {PAULA: 4}
    root.admit(BOB, up(7, block(PAUL, 7)))
    root.admit(CAROL, up(6, block(PAULA, 6)))
    assert root.receipts() == {BOB: [(PAUL, 8, 0, ())], CAROL: [(PAULA, 7, 4, ())]}
    assert root.stable_frontiers() == {PAULA: 4}
    root.acknowledge_to(1, now=0.0)
    assert root.receipts() == {BOB: [(PAUL, 8, 8, ())]}


def test_a_root_skips_events_that_their_publisher_discarded() -> None:
    """Else it would ask the publisher back for good to what that has no more."""
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(3, block(PAUL, 3)))
    assert root.receipts() == {BOB: [(PAUL, 4, 0, ())]}
    assert root.index == 2


def test_the_place_of_an_event_is_what_leases_have_to_cover() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0, b"a", b"b")))
    root.admit(CAROL, up(0, block(PAULA, 0, b"c")))
    root.admit(BOB, up(0, block(PAUL, 2, b"d")))
    assert [root.place_of(PAUL, sequence) for sequence in (1, 2, 3)] == [2, 2, 4]
    root.acknowledge_to(2, now=0.0)
    assert root.place_of(PAUL, 2) == 2
    assert root.place_of(PAUL, 9) == 3, "what was not admitted waits for anything more to be stable"


def test_a_publisher_that_closes_is_forgotten_when_all_of_it_is_stable() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(0, block(PAULA, 0)))
    root.acknowledge_to(1, now=0.0)
    for publisher in (PAUL, PAULA):
        root.close(publisher)
    assert list(root.admissions) == [PAULA]
    root.acknowledge_to(2, now=0.0)
    root.housekeep(30.0)
    root.housekeep(60.0)
    assert not root.admissions


def test_publishers_of_a_lost_peer_are_remembered_for_a_lease_unless_they_come_back() -> None:
    root = a_root()
    host = root.host
    assert isinstance(host, RecordingHost)
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(CAROL, up(0, block(PAULA, 0)))
    root.acknowledge_to(2, now=0.0)
    root.housekeep(1.0)
    host.time = 5.0
    for contact in (BOB, CAROL):
        root.lost(contact.node_id)
    root.admit(CAROL, up(1, block(PAULA, 1)))
    assert list(root.housekeep(31.0)) == [BOB], "it was silent for a lease, and is asked for a sign of life"
    assert list(root.admissions) == [PAUL, PAULA]
    root.housekeep(36.0)
    assert list(root.admissions) == [PAULA]


def test_a_publisher_that_is_lost_again_after_it_came_back_is_forgotten_too() -> None:
    root = a_root()
    host = root.host
    assert isinstance(host, RecordingHost)
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.lost(BOB.node_id)
    root.admit(BOB, up(1, block(PAUL, 1)))
    root.acknowledge_to(2, now=0.0)
    host.time = 5.0
    root.lost(BOB.node_id)
    root.housekeep(36.0)
    assert not root.admissions


def test_publishers_are_bounded_and_the_longest_silent_are_forgotten_first() -> None:
    root = a_root(admissions_max=8)
    assert isinstance(root.host, RecordingHost)
    for number in range(8):
        root.host.time = float(number)
        root.admit(BOB, up(0, block(b"%016d" % number, 0)))
    root.admit(CAROL, up(0, block(PAUL, 0)))
    root.seal()
    root.check()
    assert PAUL not in root.admissions, "all others have events that are not stable: this one has to send again"
    assert PAUL not in {mark[0] for marks in root.receipts().values() for mark in marks}
    root.acknowledge_to(2, now=8.0)
    root.receipts()
    root.admit(CAROL, up(0, block(PAUL, 0)))
    root.seal()
    root.check()
    assert b"%016d" % 0 not in root.admissions
    assert PAUL in root.admissions


def test_what_the_root_before_knew_is_kept_for_a_lease() -> None:
    root = a_root()
    root.frontiers = {PAULA: 4}
    root.housekeep(29.0)
    assert root.frontiers
    root.housekeep(30.0)
    assert not root.frontiers
