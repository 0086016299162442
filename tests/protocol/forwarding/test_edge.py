"""The subscriber's edge: order per publisher, no repeats, and what is lost is told."""

from random import Random

from quillcast.core.envelope import Term
from quillcast.core.ranges import RangeSet
from quillcast.core.trace import Repeated
from quillcast.protocol.forwarding.edge import DELIVERED_RANGES_MAX, Edge
from quillcast.protocol.forwarding.flow import Past
from quillcast.protocol.forwarding.ledger import NO_LEDGER, Run
from quillcast.protocol.forwarding.log import Budget, Log
from tests.protocol.recording import FIRST, PAUL, PAULA, SECOND, WEATHER, Notes, RecordingHost, block, down

THIRD = Term(3, FIRST.node)
NO_LOG = Log(Budget(0))


def an_edge(*, ordered: bool = True, since: Term = FIRST, start: int = 0) -> tuple[Edge, Notes, RecordingHost]:
    host, notes = RecordingHost(), Notes()
    edge = Edge(host, WEATHER, notes, 0, ordered=ordered)
    notes.turn_over = edge.tell_losses
    edge.begin(since, start)
    return edge, notes, host


def test_bundles_that_overtook_each_other_are_delivered_in_order() -> None:
    edge, notes, _ = an_edge()
    for index in (1, 2, 0):
        edge.take(down(FIRST, index, block(PAUL, index)))
    assert notes.got == [b"0", b"1", b"2"]


def test_any_number_of_bundles_behind_a_gap_come_in_order_once_it_is_filled() -> None:
    edge, notes, _ = an_edge()
    indices = list(range(1, 1000))
    Random(1).shuffle(indices)
    for index in [*indices, *indices[:100]]:
        edge.take(down(FIRST, index, block(PAUL, index)))
    assert notes.got == []
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    assert notes.got == [b"%d" % index for index in range(1000)]
    line = edge.term_cursor(FIRST)
    assert line is not None
    assert (line.next, line.waiting, line.firsts) == (1000, {}, [])


def test_an_event_that_a_new_root_admits_again_is_delivered_once() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1")))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAUL, 2)))
    assert notes.got == [b"0", b"1", b"2"]
    assert Repeated(WEATHER, "edge", 1) in host.records


def test_events_behind_a_hole_in_a_publishers_sequence_wait_for_what_fills_it() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2), block(PAULA, 0, b"a")))
    assert notes.got == [b"0", b"a"], "only that publisher's events wait"
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"a", b"1", b"2"]


def test_a_hole_that_nobody_fills_is_void_in_the_end() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    assert notes.got == [b"0", b"2"]
    assert [why for *_, why in notes.lost_] == ["void"]


def test_a_hole_before_events_that_were_told_lost_is_void_in_the_end_too() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 2)], "unavailable", [Run(0, PAUL, 5, 2)])
    edge.skip(SECOND, [(2, 3)], "unavailable", [Run(2, PAUL, 8, 1)])
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(5, 7), (8, 9)]
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    edge.give_up_holes(1.0, NO_LOG)
    edge.tell_losses()
    assert [(first, last, why) for _, first, last, why in notes.lost_][2:] == [(1, 5, "void"), (7, 8, "void")]
    edge.give_up_holes(1.0, NO_LOG)
    edge.tell_losses()
    assert len(notes.lost_) == 4


def test_events_of_a_term_that_became_known_late_are_told_lost_if_later_ones_went_out_before() -> None:
    edge, notes, _ = an_edge()
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 2)))
    edge.owe(SECOND, 0, 0)
    edge.take(down(SECOND, 0, block(PAULA, 0, b"a"), block(PAUL, 0, b"0", b"1", b"2")))
    assert notes.got == [b"2", b"a"]
    assert notes.lost_ == [(2, 0, 2, "late")], "by sequence"


def test_what_was_told_lost_before_a_publishers_first_event_is_not_told_again_when_another_root_admits_it() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 4)], "cut", [Run(0, PAUL, 0, 4)])
    edge.take(down(FIRST, 4, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 6)], "cut", [Run(0, PAUL, 0, 6)])
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 0, 4, "cut"), (2, 5, 6, "cut")]


def test_a_subscription_that_begins_later_is_not_told_of_what_a_root_of_before_admitted_and_a_later_one_again() -> None:
    """A root that stood still admits what waited for it; publishers have sent that to the next root long since."""
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 0, 1)
    edge.take(down(SECOND, 5, block(PAUL, 4)))
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1, b"1", b"2", b"3", b"4")))
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 0, 1, "late")], "what the root called stable nobody sent again"


def test_nor_is_it_told_where_nobody_keeps_that_any_more() -> None:
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 0, 1)
    edge.take(down(SECOND, 5, block(PAUL, 4)))
    edge.skip(FIRST, [(0, 5)], "unavailable", [Run(0, PAUL, 0, 3), Run(3, PAULA, 7, 2)])
    assert notes.lost_ == [(1, 0, 1, "unavailable"), (1, 7, 9, "unavailable")], "of the other publisher nothing came"


def test_what_a_publisher_sends_again_from_before_a_subscription_is_not_told_lost() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 1)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0), block(PAUL, 1)))
    assert notes.got == [b"1"]
    assert notes.lost_ == []


def test_a_best_effort_event_that_a_later_one_overtook_in_another_term_is_told_lost_and_no_repeat() -> None:
    """Order forbids it, and nobody gave it to this subscriber before (docs/delivery.md: drops counted and told)."""
    edge, notes, host = an_edge(ordered=False)
    edge.readmits = False
    edge.take(down(FIRST, 0, block(PAUL, 1)))
    edge.take(down(FIRST, 1, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3", b"4", b"5")))
    assert notes.got == [b"1", b"4", b"5"]
    assert notes.lost_ == [(2, 0, 1, "overtaken"), (2, 2, 4, "overtaken")]
    assert Repeated(WEATHER, "edge", 2) in host.records


def test_what_a_reliable_topic_admits_again_from_before_a_best_effort_subscription_is_not_told_lost() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3", b"4")))
    assert notes.got == [b"2", b"4"]
    assert notes.lost_ == [(2, 3, 4, "overtaken")]


def test_an_overtaken_event_is_told_lost_once_however_many_terms_admit_it() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 1, block(PAUL, 3)))
    for term in (SECOND, THIRD):
        edge.begin(term, 0)
        edge.take(down(term, 0, block(PAUL, 1), block(PAUL, 2), block(PAUL, 3)))
        edge.tell_losses()
        assert notes.lost_ == [(2, 1, 3, "overtaken")]


def test_what_a_best_effort_subscriber_was_told_lost_by_name_is_not_told_again_by_position() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.skip(FIRST, [(2, 4)], "cut", [Run(2, PAUL, 2, 2)])
    edge.take(down(FIRST, 6, block(PAUL, 6)))
    edge.tell_losses()
    assert notes.lost_ == [(1, 2, 4, "cut"), (1, 0, 2, "dropped"), (1, 4, 6, "dropped")]


def test_nor_is_it_told_again_when_another_term_admits_it_behind_a_later_event() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 3)], "cut", [Run(1, PAUL, 1, 2)])
    edge.take(down(FIRST, 3, block(PAUL, 3)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    edge.tell_losses()
    assert notes.lost_ == [(1, 1, 3, "cut")]


def test_what_came_late_was_told_lost_by_position_and_is_not_told_by_name() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2")))
    edge.tell_losses()
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "dropped")]


def test_what_nobody_has_of_an_earlier_term_is_told_lost_though_a_later_one_went_ahead() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5)))
    edge.skip(FIRST, [(1, 4)], "unavailable", [Run(1, PAUL, 1, 3)])
    edge.skip(FIRST, [(1, 4)], "unavailable", [Run(1, PAUL, 1, 3)])
    edge.tell_losses()
    assert notes.lost_ == [(1, 1, 4, "unavailable")]


def test_a_best_effort_subscriber_of_a_reliable_topic_is_owed_word_of_the_end_of_a_past_term() -> None:
    edge, _, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    past = Past(RangeSet([(0, 1)]), 3, [], 0.0, NO_LEDGER)
    assert edge.lacking(FIRST, past) == [(1, 3)]
    edge.readmits = False
    assert edge.lacking(FIRST, past) == [], "a best-effort topic asks nobody for it"


def test_gaps_of_a_best_effort_subscriber_are_remembered_to_a_bound() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.readmits = False
    for index in range(DELIVERED_RANGES_MAX + 1):
        edge.take(down(FIRST, index, block(PAUL, 2 * index)))
    assert len(edge.publishers[PAUL].delivered) == DELIVERED_RANGES_MAX
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAUL, 3)))
    assert notes.lost_ == [(2, 3, 4, "overtaken")], "the oldest gap is forgotten"


def test_positions_that_nobody_has_are_told_and_passed_over() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 3, block(PAUL, 3)))
    edge.skip(FIRST, [(0, 3)], "unavailable")
    assert notes.got == [b"3"]
    assert notes.lost_ == [(1, 0, 3, "unavailable")]


def test_a_gap_in_the_middle_given_up_early_is_passed_over_when_its_turn_comes() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(1, 2)], "cut")
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "cut")]


def test_a_subscription_that_started_in_the_middle_of_a_bundle_gets_the_rest_of_it() -> None:
    host, notes = RecordingHost(), Notes()
    edge = Edge(host, WEATHER, notes, 0, ordered=True)
    edge.begin(FIRST, 1)
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1", b"2")))
    assert notes.got == [b"1", b"2"]


def test_a_best_effort_subscriber_goes_on_at_once_is_told_and_sees_no_repeat() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "dropped")]


def test_what_is_held_behind_a_hole_has_not_gone_out_and_is_not_covered() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 1, block(PAUL, 2)))
    edge.take(down(FIRST, 2, block(PAULA, 0)))
    assert notes.got == [b"0", b"0"]
    assert edge.frontier(FIRST) == 1
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1)))
    assert notes.got == [b"0", b"0", b"1", b"2"]
    assert edge.frontier(FIRST) == 3


# --- events that come though they may have been reported lost


def a_doubting_edge() -> tuple[Edge, Notes]:
    """It was given Paul's first event and told that the two positions behind are lost, of whom is not known."""
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 3)], "unavailable")
    assert notes.lost_ == [(1, 1, 3, "unavailable")]
    return edge, notes


def test_events_that_may_have_been_reported_lost_are_marked_when_another_term_admits_them() -> None:
    edge, notes = a_doubting_edge()
    edge.begin(SECOND, 0)
    edge.take(
        down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3"), block(PAULA, 7, b"a"), block(PAULA, 8, b"b", b"c"))
    )
    assert notes.got == [b"0", b"1", b"2", b"3", b"a", b"b", b"c"]
    assert notes.recovered == [b"1", b"2", b"a", b"b"], "two of each publisher may have stood there"
    edge.take(down(SECOND, 7, block(PAUL, 4), block(PAULA, 10)))
    assert len(notes.recovered) == 4


def test_a_report_that_an_event_may_be_lost_is_told_before_the_event_goes_out_under_another_term() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    edge.skip(FIRST, [(0, 2)], "unavailable")
    edge.take(down(SECOND, 0, block(PAUL, 0)))
    assert notes.told == [(1, 0, 2, "unavailable")], "the turn is not over"
    assert notes.recovered == [b"0"]


def test_a_publisher_that_had_an_event_behind_the_lost_positions_has_none_to_come() -> None:
    edge, notes = a_doubting_edge()
    edge.take(down(FIRST, 3, block(PAUL, 2)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 3, b"3", b"4"), block(PAULA, 0, b"a")))
    assert notes.got == [b"0", b"2", b"3", b"4", b"a"]
    assert notes.recovered == [b"a"]


def test_an_event_that_comes_at_a_position_that_was_reported_is_marked_and_its_neighbours_are_not() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(1, 3)], "cut")
    assert notes.lost_ == [(1, 1, 3, "cut")]
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    assert notes.got == [b"0", b"1", b"2", b"3"]
    assert notes.recovered == [b"1", b"2"]


def test_what_stood_before_lost_positions_and_never_came_may_be_taken_for_lost() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(2, 3)], "cut")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    assert notes.recovered == [b"0", b"1", b"2"], "the first term may bring it before or after"


def test_nothing_is_marked_for_a_loss_whose_events_are_known() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 2)], "cut", [Run(0, PAUL, 0, 2)])
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1, b"1", b"2", b"3")))
    assert notes.got == [b"2", b"3"]
    assert notes.recovered == []
    assert edge.doubts is None


def test_nothing_is_marked_once_publishers_keep_nothing_of_that_time_or_the_term_is_forgotten() -> None:
    edge, notes = a_doubting_edge()
    edge.begin(SECOND, 0)
    edge.forget_publishers()
    edge.take(down(SECOND, 0, block(PAUL, 1)))
    edge.forget_publishers()
    edge.take(down(SECOND, 1, block(PAUL, 2)))
    assert notes.recovered == [b"1"]
    edge.forget(lambda term: term != FIRST)
    assert edge.doubts is None


def test_a_best_effort_subscriber_is_told_which_dropped_event_came_under_another_term() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAULA, 0, b"a")))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAULA, 1, b"b"), block(PAUL, 2)))
    assert notes.lost_ == [(1, 1, 2, "dropped")]
    assert notes.recovered == [b"1"]


def test_what_a_later_term_admitted_again_is_not_lost_with_an_earlier_one() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    gone, again = [Run(0, PAUL, 0, 4)], [Run(0, PAUL, 1, 2)]
    edge.skip(FIRST, [(0, 4)], "unavailable", gone, again)
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(0, 1), (3, 4)]


def test_a_hole_waits_anew_for_what_another_term_may_bring() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    host.time = 31.0
    edge.begin(THIRD, 0)
    assert not edge.give_up_holes(1.0, NO_LOG)
    assert notes.lost_ == []
    host.time = 70.0
    assert edge.give_up_holes(32.0, NO_LOG)
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(1, 2)]


def test_nothing_is_waited_for_that_was_admitted_before_the_subscription() -> None:
    edge, notes, _ = an_edge()
    edge = Edge(edge.host, WEATHER, notes, 0, ordered=True)
    edge.begin(SECOND, 5)
    edge.begin(FIRST, 2)  # that term is known to have gone so far, and goes further
    edge.take(down(FIRST, 2, block(PAUL, 0)))
    edge.take(down(SECOND, 5, block(PAUL, 9)))
    assert notes.got == [b"0", b"9"]
    assert notes.lost_ == []


def test_losses_that_follow_one_another_are_one_report_whatever_else_goes_out_between() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 1)], "unavailable", [Run(0, PAUL, 0, 1)])
    edge.take(down(FIRST, 1, block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 3)], "unavailable", [Run(2, PAUL, 1, 1)])
    edge.take(down(FIRST, 3, block(PAUL, 2)))
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(0, 2)]
    assert notes.got == [b"a", b"2"]


def test_what_lies_between_losses_and_the_first_event_that_came_is_lost_too() -> None:
    edge, notes, host = an_edge()
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 9)))
    edge.skip(FIRST, [(0, 3)], "unavailable", [Run(0, PAUL, 2, 3)])
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 5)]
    host.time = 31.0
    assert edge.give_up_holes(1.0, NO_LOG)
    assert [(first, last, why) for _, first, last, why in notes.lost_][1:] == [(5, 9, "void")]
    assert not edge.holes


def test_a_hole_is_not_void_while_what_fills_it_waits_for_the_subscriber() -> None:
    edge, notes, host = an_edge()
    log = Log(Budget(1 << 20))
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    log.append(down(FIRST, 1, block(PAUL, 1)))
    edge.skip(FIRST, [(2, 3)], "unavailable", [Run(2, PAUL, 2, 1)])
    host.time = 31.0
    edge.give_up_holes(1.0, log)
    edge.advance(log)
    assert notes.got == [b"0", b"1"]
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 3)]


def test_an_uncertain_loss_hides_no_hole_that_is_larger() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 2)], "unavailable")
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    assert notes.got == [b"0", b"2"], "that may have been the lost one"
    edge.take(down(FIRST, 3, block(PAUL, 9)))
    assert notes.got == [b"0", b"2"]
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(1, 2, "unavailable"), (3, 9, "void")]
    assert notes.got == [b"0", b"2", b"9"]


def test_what_was_reported_by_its_positions_is_not_told_again_by_name_as_a_void_hole() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 9)], "unavailable")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5), block(PAULA, 4, b"e")))
    assert notes.got == [b"0", b"a"]
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    assert notes.got == [b"0", b"a", b"5", b"e"]
    assert notes.lost_ == [(1, 2, 9, "unavailable")], "four of the one, and three of the other"


def test_nor_where_later_ones_of_the_same_term_were_told_lost_by_name() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 8)], "unavailable", [Run(5, PAUL, 5, 3)])
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    edge.take(down(FIRST, 8, block(PAUL, 8)))
    assert notes.got == [b"0", b"8"]
    edge.tell_losses()
    assert sorted(notes.lost_) == [(1, 1, 5, "unavailable"), (1, 5, 8, "unavailable")]


def test_what_follows_positions_that_were_told_lost_and_events_that_were_goes_out_at_once() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 8)], "unavailable", [Run(5, PAUL, 5, 3)])
    edge.take(down(FIRST, 8, block(PAUL, 8)))
    assert notes.got == [b"0", b"8"]
    assert not edge.holes


def test_lost_positions_account_for_one_event_each() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 9)], "unavailable")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5), block(PAULA, 5, b"f")))
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(2, 9, "unavailable"), (1, 5, "void")]


def test_what_may_have_been_admitted_before_the_subscription_began_is_no_hole_behind_losses_of_earlier_terms() -> None:
    edge, notes, host = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 7, 0)
    edge.skip(FIRST, [(7, 8)], "unavailable", [Run(7, PAUL, 2, 1)])
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 5)))
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    edge.tell_losses()
    assert notes.lost_ == [(1, 2, 3, "unavailable")], "the second term may have admitted the others before its fifth"
    assert notes.got == [b"5"]


def test_but_it_is_one_behind_losses_that_the_subscription_was_owed_of_its_own_term() -> None:
    edge, notes, host = an_edge(since=SECOND, start=5)
    edge.skip(SECOND, [(5, 6)], "unavailable", [Run(5, PAUL, 2, 1)])
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 5)))
    host.time = 31.0
    edge.give_up_holes(1.0, NO_LOG)
    edge.tell_losses()
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(2, 3, "unavailable"), (3, 5, "void")]


def test_what_the_subscription_s_term_admitted_before_it_began_is_no_hole() -> None:
    edge, notes, _ = an_edge()
    edge = Edge(edge.host, WEATHER, notes, 0, ordered=True)
    edge.begin(SECOND, 7)
    edge.take(down(SECOND, 7, block(PAUL, 9)))
    edge.owe(FIRST, 0, stable=3)
    edge.skip(FIRST, [(0, 3)], "unavailable", [Run(0, PAUL, 2, 3)])
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 5)]
    assert not edge.holes, "5 to 9 came before its start"
