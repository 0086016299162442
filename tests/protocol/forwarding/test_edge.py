"""The subscriber's edge: order per publisher, no repeats, and reports of every loss."""

from random import Random

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import RELIABLE_STREAMS, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.ranges import RangeSet
from quillcast.core.trace import Repeated
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.cursors import DELIVERED_RANGES_MAX, Waiting
from quillcast.protocol.forwarding.doubts import OLD_LOOKS
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.ledger import Gone, Run
from quillcast.protocol.forwarding.log import Budget, Log
from quillcast.protocol.forwarding.owed_terms import Readmits
from tests.protocol.recording import FIRST, PAUL, PAULA, SECOND, WEATHER, Notes, RecordingHost, block, down

THIRD = Term(3, FIRST.node)
STREAM = Term(RELIABLE_STREAMS, FIRST.node)
BESIDE = Term(RELIABLE_STREAMS, b"t" * 16)
NOTHING: tuple[Bundle, ...] = ()


def an_edge(*, ordered: bool = True, since: Term = FIRST, start: int = 0) -> tuple[Edge, Notes, RecordingHost]:
    host, notes = RecordingHost(), Notes()
    edge = Edge(host, WEATHER, notes, ordered=ordered)
    notes.turn_over = edge.tell_losses
    edge.begin(since, start)
    return edge, notes, host


def test_bundles_that_arrive_out_of_order_are_delivered_in_order() -> None:
    edge, notes, _ = an_edge()
    for index in (1, 2, 0):
        edge.take(down(FIRST, index, block(PAUL, index)))
    assert notes.got == [b"0", b"1", b"2"]


def test_all_bundles_behind_a_gap_are_delivered_in_order_once_it_is_filled() -> None:
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
    assert (line.next, line.waiting, line.waiting.firsts) == (1000, {}, [])


def test_an_event_that_a_new_root_readmits_is_delivered_once() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1")))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAUL, 2)))
    assert notes.got == [b"0", b"1", b"2"]
    assert Repeated(WEATHER, "edge", 1) in host.records


def test_events_behind_a_hole_in_a_publishers_sequence_wait_until_it_is_filled() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2), block(PAULA, 0, b"a")))
    assert notes.got == [b"0", b"a"], "only that publisher's events wait"
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"a", b"1", b"2"]


def test_a_hole_that_is_never_filled_becomes_void() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert notes.got == [b"0", b"2"]
    assert [why for *_, why in notes.lost_] == ["void"]


def test_a_hole_before_events_that_were_reported_lost_becomes_void_too() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 2)], "unavailable", [Run(0, PAUL, 5, 2)])
    edge.skip(SECOND, [(2, 3)], "unavailable", [Run(2, PAUL, 8, 1)])
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(5, 7), (8, 9)]
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert [(first, last, why) for _, first, last, why in notes.lost_][2:] == [(1, 5, "void"), (7, 8, "void")]
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert len(notes.lost_) == 4


def test_events_of_a_term_learned_late_are_reported_lost_if_later_ones_were_delivered() -> None:
    edge, notes, _ = an_edge()
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 2)))
    edge.owe(SECOND, 0, 0)
    edge.take(down(SECOND, 0, block(PAULA, 0, b"a"), block(PAUL, 0, b"0", b"1", b"2")))
    assert notes.got == [b"2", b"a"]
    assert notes.lost_ == [(2, 0, 2, "late")], "by sequence"


def test_a_loss_before_a_publishers_first_event_is_not_reported_again_on_readmission() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 4)], "cut", [Run(0, PAUL, 0, 4)])
    edge.take(down(FIRST, 4, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 6)], "cut", [Run(0, PAUL, 0, 6)])
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 0, 4, "cut"), (2, 5, 6, "cut")]


def test_a_later_subscription_gets_no_report_of_events_admitted_before_and_readmitted() -> None:
    """A paused root admits events that waited for it; publishers have long since sent them to the next root."""
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 0, 1)
    edge.take(down(SECOND, 5, block(PAUL, 4)))
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1, b"1", b"2", b"3", b"4")))
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 0, 1, "late")], "nobody sent again what the root declared stable"


def test_nor_does_it_get_a_report_if_those_events_are_gone() -> None:
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 0, 1)
    edge.take(down(SECOND, 5, block(PAUL, 4)))
    edge.skip(FIRST, [(0, 5)], "unavailable", [Run(0, PAUL, 0, 3), Run(3, PAULA, 7, 2)])
    assert notes.lost_ == [(1, 0, 1, "unavailable"), (1, 7, 9, "unavailable")], (
        "nothing arrived from the other publisher"
    )


def test_it_gets_one_of_a_term_that_went_on_after_it_began_whatever_its_own_term_had_before() -> None:
    """Beyond a cut, the publisher discarded events at a bound, and sent only the next one to the later root."""
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.begin(FIRST, 0, went_on=True)
    edge.take(down(SECOND, 5, block(PAUL, 4)))
    edge.skip(FIRST, [(0, 4)], "unavailable", [Run(0, PAUL, 0, 4)])
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 0, 4, "unavailable")]


def test_it_gets_one_of_those_for_which_its_own_term_had_no_room_before_it_began() -> None:
    edge, notes, _ = an_edge(since=SECOND, start=2)
    edge.owe(FIRST, 0, 0)
    edge.take(down(SECOND, 2, block(PAUL, 9)))
    edge.skip(FIRST, [(0, 9)], "unavailable", [Run(0, PAUL, 0, 9)])
    assert notes.lost_ == [(1, 0, 7, "unavailable")], "two events may have been there: the last ones"


def test_but_it_gets_one_if_no_later_term_can_have_admitted_them_before_it_began() -> None:
    """Their publisher discarded them: otherwise the later terms, of which it is owed all, would have had them."""
    edge, notes, _ = an_edge(since=SECOND)
    edge.owe(FIRST, 3, 1)
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 4)))
    edge.take(down(FIRST, 3, block(PAUL, 3)))
    assert notes.got == [b"4"]
    assert notes.lost_ == [(1, 3, 4, "late")]


def test_events_from_before_a_subscription_that_are_sent_again_are_not_reported_lost() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 1)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0), block(PAUL, 1)))
    assert notes.got == [b"1"]
    assert notes.lost_ == []


def test_a_best_effort_event_overtaken_in_another_term_is_reported_lost_and_not_a_repeat() -> None:
    """Order forbids its delivery, and this subscriber never got it (docs/delivery.md: drops are reported)."""
    edge, notes, host = an_edge(ordered=False)
    edge.readmits = Readmits.NO
    edge.take(down(FIRST, 0, block(PAUL, 1)))
    edge.take(down(FIRST, 1, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3", b"4", b"5")))
    assert notes.got == [b"1", b"4", b"5"]
    assert notes.lost_ == [(2, 0, 1, "overtaken"), (2, 2, 4, "overtaken")]
    assert Repeated(WEATHER, "edge", 2) in host.records


def test_events_readmitted_from_before_a_best_effort_subscription_are_not_reported_lost() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 4)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3", b"4")))
    assert notes.got == [b"2", b"4"]
    assert notes.lost_ == [(2, 3, 4, "overtaken")]


def test_an_overtaken_event_is_reported_lost_once_however_many_terms_admit_it() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 1, block(PAUL, 3)))
    for term in (SECOND, THIRD):
        edge.begin(term, 0)
        edge.take(down(term, 0, block(PAUL, 1), block(PAUL, 2), block(PAUL, 3)))
        edge.tell_losses()
        assert notes.lost_ == [(2, 1, 3, "overtaken")]


def test_a_best_effort_loss_reported_by_name_is_not_reported_again_by_position() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.skip(FIRST, [(2, 4)], "cut", [Run(2, PAUL, 2, 2)])
    edge.take(down(FIRST, 6, block(PAUL, 6)))
    edge.tell_losses()
    assert notes.lost_ == [(1, 2, 4, "cut"), (1, 0, 2, "dropped"), (1, 4, 6, "dropped")]


def test_nor_is_it_reported_again_when_another_term_admits_it_behind_a_later_event() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 3)], "cut", [Run(1, PAUL, 1, 2)])
    edge.take(down(FIRST, 3, block(PAUL, 3)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    edge.tell_losses()
    assert notes.lost_ == [(1, 1, 3, "cut")]


def test_late_events_reported_lost_by_position_are_not_reported_by_name() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2")))
    edge.tell_losses()
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "dropped")]


def test_missing_events_of_an_earlier_term_are_reported_lost_after_later_ones() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5)))
    edge.skip(FIRST, [(1, 4)], "unavailable", [Run(1, PAUL, 1, 3)])
    edge.skip(FIRST, [(1, 4)], "unavailable", [Run(1, PAUL, 1, 3)])
    edge.tell_losses()
    assert notes.lost_ == [(1, 1, 4, "unavailable")]


def test_a_best_effort_subscriber_of_a_reliable_topic_learns_of_the_end_of_a_past_term() -> None:
    edge, _, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    seen = RangeSet([(0, 1)])
    assert edge.lacking(FIRST, seen, 3) == [(1, 3)]
    edge.readmits = Readmits.NO
    assert edge.lacking(FIRST, seen, 3) == [], "a best-effort topic does not request it"


def test_the_remembered_gaps_of_a_best_effort_subscriber_are_bounded() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.readmits = Readmits.NO
    for index in range(DELIVERED_RANGES_MAX + 1):
        edge.take(down(FIRST, index, block(PAUL, 2 * index)))
    assert len(edge.publishers[PAUL].delivered) == DELIVERED_RANGES_MAX
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAUL, 3)))
    assert notes.lost_ == [(2, 3, 4, "overtaken")], "the oldest gap is forgotten"


def test_losses_that_lie_behind_a_subscriber_are_not_remembered_where_gaps_delay_what_follows() -> None:
    edge, notes, _ = an_edge()
    for index in range(0, 200, 2):
        edge.take(down(FIRST, index, block(PAUL, index)))
        edge.skip(FIRST, [(index + 1, index + 2)], "cut", [Run(index + 1, PAUL, index + 1, 1)])
        edge.tell_losses()
    line = edge.term_cursor(FIRST)
    assert line is not None
    assert (line.next, line.given_up.ranges()) == (200, [])
    assert (len(notes.got), len(notes.lost_)) == (100, 100)


def test_where_gaps_delay_nothing_the_latest_losses_are_remembered_and_what_lies_between_later_ones_still_comes() -> (
    None
):
    edge, notes, _ = an_edge(ordered=False)
    last = 4 * DELIVERED_RANGES_MAX
    edge.skip(FIRST, [(last, last + 1), (last + 2, last + 3)], "unavailable")
    for index in range(0, last, 4):
        edge.take(down(FIRST, index, block(PAUL, index, b"one", b"two")))
    edge.take(down(FIRST, last + 1, block(PAUL, last + 1)))
    line = edge.term_cursor(FIRST)
    assert line is not None
    assert len(line.given_up) <= DELIVERED_RANGES_MAX + 1
    assert notes.got[-1] == b"%d" % (last + 1)


def test_where_gaps_delay_nothing_what_comes_of_an_earlier_term_behind_a_later_event_is_reported() -> None:
    edge, notes, _ = an_edge(ordered=False, since=SECOND)
    edge.take(down(SECOND, 0, block(PAUL, 5)))
    edge.begin(FIRST, 0, went_on=True)
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1")))
    edge.tell_losses()
    assert notes.got == [b"5"]
    assert notes.lost_ == [(1, 0, 2, "overtaken")]


def test_positions_that_no_peer_has_are_reported_and_skipped() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 3, block(PAUL, 3)))
    edge.skip(FIRST, [(0, 3)], "unavailable")
    assert notes.got == [b"3"]
    assert notes.lost_ == [(1, 0, 3, "unavailable")]


def test_what_came_before_a_subscription_is_passed_by_without_a_report() -> None:
    edge, notes, _ = an_edge()
    edge.begin(STREAM, 0)
    edge.take(down(STREAM, 4, block(PAUL, 4)))
    assert edge.pass_by(STREAM, 2)
    assert not edge.pass_by(STREAM, 2)
    edge.skip(STREAM, [(0, 4)], "unavailable")
    assert notes.got == [b"4"]
    assert notes.lost_ == [(STREAM.counter, 2, 4, "unavailable")]


def test_but_not_between_events_that_came() -> None:
    edge, notes, _ = an_edge()
    edge.begin(STREAM, 0)
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    assert not edge.pass_by(STREAM, 3)
    edge.skip(STREAM, [(1, 3)], "unavailable")
    edge.take(down(STREAM, 3, block(PAUL, 3)))
    assert notes.got == [b"0", b"3"]
    assert notes.lost_ == [(STREAM.counter, 1, 3, "unavailable")]


def test_nor_behind_events_that_came_before_the_stream_was_over_for_a_while() -> None:
    edge, notes, _ = an_edge()
    edge.readmits = Readmits.NO
    edge.begin(STREAM, 0)
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    edge.end(STREAM, 1)
    edge.begin(STREAM, 1)
    assert not edge.pass_by(STREAM, 3)
    edge.skip(STREAM, [(1, 6)], "unavailable")
    edge.take(down(STREAM, 6, block(PAUL, 6)))
    edge.take(down(STREAM, 8, block(PAUL, 8)))
    edge.skip(STREAM, [(7, 8)], "unavailable")
    assert notes.got == [b"0", b"6", b"8"]
    told = [(STREAM.counter, 3, 6), (STREAM.counter, 1, 3), (STREAM.counter, 7, 8)]
    assert notes.lost_ == [(*each, "unavailable") for each in told], "the older ones by their sequences, each once"


def test_nor_is_what_other_publishers_sent_before_it_reported_once_an_old_event_came() -> None:
    edge, notes, _ = an_edge()
    edge.readmits = Readmits.NO
    edge.begin(STREAM, 0)
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    assert not edge.pass_by(STREAM, 6)
    edge.skip(STREAM, [(1, 8)], "unavailable", [Run(1, PAUL, 1, 1), Run(2, PAULA, 5, 3), Run(7, PAULA, 8, 1)])
    edge.take(down(STREAM, 8, block(PAULA, 9)))
    assert notes.got == [b"0", b"9"]
    lost = sorted((first, last) for _, first, last, _ in notes.lost_)
    assert lost == [(1, 2), (6, 7), (8, 9)], "Paula's 5 to 7 are older, and so is what stood at 5 and is not known"


def test_a_gap_that_was_given_up_early_is_skipped_when_it_is_next() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(1, 2)], "cut")
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "cut")]


def test_a_subscription_that_started_within_a_bundle_gets_the_rest_of_it() -> None:
    host, notes = RecordingHost(), Notes()
    edge = Edge(host, WEATHER, notes, ordered=True)
    edge.begin(FIRST, 1)
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1", b"2")))
    assert notes.got == [b"1", b"2"]


def test_a_best_effort_subscriber_continues_at_once_gets_a_report_and_sees_no_repeat() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"2"]
    assert notes.lost_ == [(1, 1, 2, "dropped")]


def test_events_held_behind_a_hole_are_not_delivered_and_not_acknowledged() -> None:
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


# --- events that arrive although they may have been reported lost


def a_doubting_edge() -> tuple[Edge, Notes]:
    """It got Paul's first event and a report that the two positions behind it are lost, with unknown publishers."""
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 3)], "unavailable")
    assert notes.lost_ == [(1, 1, 3, "unavailable")]
    return edge, notes


def test_events_that_may_have_been_reported_lost_are_marked_when_another_term_readmits_them() -> None:
    edge, notes = a_doubting_edge()
    edge.begin(SECOND, 0)
    edge.take(
        down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3"), block(PAULA, 7, b"a"), block(PAULA, 8, b"b", b"c"))
    )
    assert notes.got == [b"0", b"1", b"2", b"3", b"a", b"b", b"c"]
    assert notes.recovered == [b"1", b"2", b"a", b"b"], "two events of each publisher may have been there"
    edge.take(down(SECOND, 7, block(PAUL, 4), block(PAULA, 10)))
    assert len(notes.recovered) == 4


def test_so_are_those_of_a_sources_stream_where_a_root_readmits_them() -> None:
    edge, notes, _ = an_edge(since=STREAM)
    edge.readmits = Readmits.STREAMS_TOO
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    edge.skip(STREAM, [(1, 3)], "unavailable")
    edge.begin(FIRST, 0)
    edge.take(down(FIRST, 0, *[block(PAUL, number) for number in range(1, 6)]))
    assert notes.got == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert notes.recovered == [b"1", b"2"]


@pytest.mark.parametrize("brings", [True, False])
def test_so_are_those_of_a_clients_publisher_that_goes_on_at_another_source(brings: bool) -> None:
    edge, notes, host = an_edge(since=STREAM)
    edge.readmits = Readmits.NO
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    edge.begin(BESIDE, 0)
    edge.skip(STREAM, [(1, 3)], "unavailable")
    first = 1 if brings else 3
    edge.take(down(BESIDE, 0, block(PAULA, 0, b"a"), *[block(PAUL, number) for number in range(first, 5)]))
    assert edge.give_up_holes(host.now() + 1, NOTHING) is not brings
    edge.tell_losses()
    assert notes.got == [b"0", b"a", *[b"%d" % number for number in range(first, 5)]]
    assert not brings or notes.recovered == [b"1", b"2"]
    assert notes.lost_ == [(STREAM.counter, 1, 3, "unavailable")], "what it discarded before is not reported twice"


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_source_had_discarded_before_it_numbered_its_events_may_come_in_the_term_of_a_root(kept: bool) -> None:
    edge, notes, host = an_edge()
    edge.begin(STREAM, 0)
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    edge.take(down(STREAM, 1, block(PAUL, 3)))
    assert notes.got == [b"0"]
    if kept:
        edge.take(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1), block(PAUL, 2)))
        assert notes.got == [b"0", b"1", b"2", b"3"]
    else:
        assert edge.give_up_holes(host.now() + 1, NOTHING)
        edge.tell_losses()
        assert notes.got == [b"0", b"3"]
        assert notes.lost_ == [(STREAM.counter, 1, 3, "void")]


def test_also_behind_events_from_before_the_subscription_that_the_root_brings() -> None:
    edge, notes, _ = an_edge(since=STREAM)
    edge.readmits = Readmits.STREAMS_TOO
    edge.pass_by(STREAM, 2)
    edge.skip(STREAM, [(2, 3)], "unavailable")
    edge.begin(FIRST, 0)
    edge.take(down(FIRST, 0, *[block(PAUL, number) for number in range(5)]))
    assert notes.recovered == [b"0", b"1", b"2"], "nobody knows which of them had stood there"


def test_they_are_marked_no_matter_how_long_they_waited_behind_a_gap() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    edge.take(down(FIRST, 1, block(PAUL, 0)))
    edge.skip(SECOND, [(0, 2)], "unavailable")
    for _check in range(OLD_LOOKS):
        edge.forget_publishers()
    edge.skip(FIRST, [(0, 1)], "unavailable")
    assert notes.recovered == [b"0"]


def test_an_uncertain_report_precedes_the_delivery_of_the_event_under_another_term() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    edge.skip(FIRST, [(0, 2)], "unavailable")
    edge.take(down(SECOND, 0, block(PAUL, 0)))
    assert notes.told == [(1, 0, 2, "unavailable")], "the turn has not ended"
    assert notes.recovered == [b"0"]


def test_so_is_one_of_a_stream_that_a_later_sessions_root_numbers_again() -> None:
    later = Term(SESSION_TERMS + 1, FIRST.node)
    edge, notes, _ = an_edge()
    edge.readmits = Readmits.NO
    edge.begin(STREAM, 2)
    edge.miss([Gone(STREAM, ((0, 2),), (), True)])
    edge.begin(later, 0)
    edge.take(down(later, 0, block(PAUL, 0, b"0", b"1", b"2")))
    assert (notes.got, notes.recovered) == ([b"0", b"1", b"2"], [b"0", b"1"])


@pytest.mark.parametrize(("again", "recovered"), [(True, [b"0", b"1"]), (False, [])])
def test_an_event_from_before_the_start_that_comes_again_is_marked_as_recovered(
    again: bool, recovered: list[bytes]
) -> None:
    edge, notes, host = an_edge(since=SECOND)
    edge.miss([Gone(FIRST, ((0, 2),), (), again)])
    assert notes.told == [(1, 0, 2, "start")]
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2")))
    assert notes.recovered == recovered
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 5)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert notes.lost_[1:] == [(3, 3, 5, "void")], "no missing event was there: nothing is owed from before the start"


def test_a_best_effort_subscriber_is_told_what_it_missed_before_a_stream_ended() -> None:
    edge, notes, _ = an_edge(ordered=False, since=STREAM)
    edge.take(down(STREAM, 0, block(PAUL, 0)))
    edge.end(STREAM, 3)
    edge.tell_losses()
    assert notes.lost_ == [(STREAM.counter, 1, 3, "dropped")]


def test_a_stream_that_was_taken_for_ended_is_owed_from_where_the_subscription_began_in_it() -> None:
    edge, notes, _ = an_edge()
    edge.readmits = Readmits.NO
    edge.begin(STREAM, 5)
    edge.end(STREAM, 0)
    edge.begin(STREAM, 0)
    edge.skip(STREAM, [(0, 6)], "unavailable")
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(5, 6)]


def test_what_is_owed_is_not_reported_as_lost_before_the_start_though_the_parent_does_not_keep_it() -> None:
    edge, notes, _ = an_edge(start=3)
    edge.miss([Gone(FIRST, ((0, 5),), ())])
    assert notes.lost_ == [(1, 0, 3, "start")]


def test_a_publisher_with_an_event_behind_the_lost_positions_has_none_at_them() -> None:
    edge, notes = a_doubting_edge()
    edge.take(down(FIRST, 3, block(PAUL, 2)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 3, b"3", b"4"), block(PAULA, 0, b"a")))
    assert notes.got == [b"0", b"2", b"3", b"4", b"a"]
    assert notes.recovered == [b"a"]


def test_only_the_event_at_a_reported_position_is_marked() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(1, 3)], "cut")
    assert notes.lost_ == [(1, 1, 3, "cut")]
    edge.take(down(FIRST, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    assert notes.got == [b"0", b"1", b"2", b"3"]
    assert notes.recovered == [b"1", b"2"]


def test_missing_events_before_lost_positions_may_count_as_lost() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(2, 3)], "cut")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0, b"0", b"1", b"2", b"3")))
    assert notes.recovered == [b"0", b"1", b"2"], "it may arrive in the first term before or after"


def test_no_event_is_marked_for_a_loss_whose_events_are_known() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 2)], "cut", [Run(0, PAUL, 0, 2)])
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1, b"1", b"2", b"3")))
    assert notes.got == [b"2", b"3"]
    assert notes.recovered == []
    assert edge.doubts is None


def test_no_event_is_marked_once_publishers_keep_none_of_them_or_the_term_is_forgotten() -> None:
    edge, notes = a_doubting_edge()
    edge.begin(SECOND, 0)
    edge.forget_publishers()
    edge.take(down(SECOND, 0, block(PAUL, 1)))
    edge.forget_publishers()
    edge.take(down(SECOND, 1, block(PAUL, 2)))
    assert notes.recovered == [b"1"]
    edge.forget(lambda term: term != FIRST)
    assert edge.doubts is None


def test_an_event_that_waited_behind_a_hole_is_marked_however_late_it_is_delivered() -> None:
    edge, notes = a_doubting_edge()
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    edge.forget_publishers()
    edge.forget_publishers()
    edge.take(down(SECOND, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"1", b"2"]
    assert notes.recovered == [b"1", b"2"]


def test_a_dropped_event_that_arrives_under_another_term_is_marked() -> None:
    edge, notes, _ = an_edge(ordered=False)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAULA, 0, b"a")))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAULA, 1, b"b"), block(PAUL, 2)))
    assert notes.lost_ == [(1, 1, 2, "dropped")]
    assert notes.recovered == [b"1"]


def test_events_readmitted_by_a_later_term_are_not_lost_with_an_earlier_one() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    gone, again = [Run(0, PAUL, 0, 4)], [Run(0, PAUL, 1, 2)]
    edge.skip(FIRST, [(0, 4)], "unavailable", gone, {SECOND: again})
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(0, 1), (3, 4)]


def test_what_an_earlier_term_may_still_bring_is_not_lost_with_a_later_one() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    earlier, later = [Run(0, PAUL, 0, 3)], [Run(0, PAUL, 1, 4)]
    edge.skip(SECOND, [(0, 4)], "unavailable", later, {FIRST: earlier})
    edge.tell_losses()
    assert notes.lost_ == [(2, 3, 5, "unavailable")]
    edge.take(down(SECOND, 4, block(PAUL, 5)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    assert notes.got == [b"0"], "what follows waits for them"
    edge.skip(FIRST, [(1, 2)], "unavailable", earlier, {SECOND: later})
    edge.tell_losses()
    assert notes.lost_[1:] == [(1, 1, 2, "unavailable")], "the later term will not bring it either"
    assert notes.got == [b"0", b"2", b"5"]


@pytest.mark.parametrize("why", ["unavailable", "cut"])
def test_what_waits_behind_a_gap_of_another_term_is_not_lost(why: str) -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 3)], why, [Run(0, PAUL, 1, 3)])
    edge.take(down(SECOND, 3, block(PAUL, 4)))
    edge.skip(FIRST, [(1, 2)], "unavailable", [Run(1, PAUL, 1, 1)])
    edge.tell_losses()
    assert notes.got == [b"0", b"2", b"4"]
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(1, 2), (3, 4)]


def test_what_waits_behind_a_hole_of_its_publisher_is_not_lost_with_another_term() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.begin(THIRD, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    edge.skip(THIRD, [(0, 3)], "unavailable", [Run(0, PAUL, 1, 3)])
    edge.take(down(THIRD, 3, block(PAUL, 4)))
    edge.tell_losses()
    assert notes.got == [b"0", b"2", b"4"]
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(1, 2), (3, 4)]


def test_a_hole_is_not_void_while_what_fills_it_waits_behind_a_gap() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.take(down(FIRST, 2, block(PAUL, 1)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    assert edge.holes
    host.time = 100.0
    edge.give_up_holes(50.0, [])
    edge.skip(FIRST, [(1, 2)], "unavailable")
    edge.tell_losses()
    assert notes.got == [b"0", b"1", b"2"]
    assert notes.lost_ == [(1, 1, 2, "unavailable")]


def test_of_a_stream_that_was_over_no_more_is_remembered_than_the_peer_knows() -> None:
    edge, _, _ = an_edge(start=3)
    edge.end(FIRST, 1)
    edge.forget({FIRST}.__contains__)
    assert edge.over == {FIRST: 3}
    edge.forget({SECOND}.__contains__)
    assert edge.over == {}


def test_positions_of_an_ended_term_are_not_waited_for_if_their_events_came_in_another() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 2, block(PAULA, 0, b"a")))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 0)))
    seen, runs = RangeSet([(2, 3)]), [Run(0, PAUL, 0, 2)]
    assert edge.pass_had(FIRST, seen, 3, runs)
    assert edge.lacking(FIRST, seen, 3) == [(1, 2)], "that event may come yet"
    assert not edge.pass_had(FIRST, seen, 3, runs)
    edge.take(down(SECOND, 1, block(PAUL, 1)))
    assert edge.pass_had(FIRST, seen, 3, runs)
    edge.tell_losses()
    assert (notes.got, notes.lost_) == ([b"0", b"1", b"a"], [])


def test_events_before_the_first_one_of_a_publisher_and_those_passed_over_are_waited_for() -> None:
    edge, _, _ = an_edge()
    edge.take(down(FIRST, 1, block(PAUL, 3)))
    edge.begin(SECOND, 0)
    assert not edge.pass_had(FIRST, RangeSet([(1, 2)]), 2, [Run(0, PAUL, 2, 1)]), "none of its events came yet"
    edge.take(down(SECOND, 0, block(PAUL, 3)))
    assert not edge.pass_had(FIRST, RangeSet([(1, 2)]), 2, [Run(0, PAUL, 2, 1)])
    edge.publishers[PAUL].begin(SECOND, 1)
    edge.publishers[PAUL].passed_over = RangeSet([(2, 3)])
    assert not edge.pass_had(FIRST, RangeSet([(1, 2)]), 2, [Run(0, PAUL, 2, 1)])


def test_events_of_a_term_learned_late_are_reported_if_their_publisher_was_not_in_the_term_owed_in_part() -> None:
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 2, 2)
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 3)))
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    assert notes.lost_ == [(1, 2, 3, "late")], "beyond a partition, it need not have sent this one again before"


def test_events_that_stood_in_an_earlier_term_before_the_subscription_began_are_not_lost_with_a_later_one() -> None:
    edge, notes, _ = an_edge(start=10)
    edge.begin(SECOND, 0)
    edge.skip(SECOND, [(0, 8)], "unavailable", [Run(0, PAUL, 5, 8)], {FIRST: [Run(0, PAUL, 0, 10)]})
    assert notes.lost_ == [(SECOND.counter, 10, 13, "unavailable")]


def test_they_are_lost_if_an_event_before_them_was_delivered() -> None:
    edge, notes, _ = an_edge(start=10)
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 4)))
    edge.skip(SECOND, [(1, 9)], "unavailable", [Run(1, PAUL, 5, 8)], {FIRST: [Run(0, PAUL, 0, 10)]})
    assert notes.lost_ == [(SECOND.counter, 5, 13, "unavailable")]


def test_they_are_lost_if_the_later_term_readmitted_them_before_the_subscription_began() -> None:
    edge, notes, _ = an_edge(since=THIRD)
    edge.owe(SECOND, 2, 0)
    edge.owe(FIRST, 0, 0)
    edge.skip(FIRST, [(0, 4)], "unavailable", [Run(0, PAUL, 0, 4)], {SECOND: [Run(0, PAUL, 0, 3)]})
    assert notes.lost_ == [(1, 0, 2, "unavailable"), (1, 3, 4, "unavailable")]


def test_events_that_a_later_term_brings_are_waited_for_though_others_were_reported_by_their_positions() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.skip(FIRST, [(1, 2), (3, 4)], "cut", [Run(1, PAUL, 1, 1)], {SECOND: [Run(0, PAUL, 1, 1)]})
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    assert notes.got == [b"0"]
    edge.take(down(SECOND, 0, block(PAUL, 1)))
    assert notes.got == [b"0", b"1", b"2"]
    assert notes.lost_ == [(1, 3, 4, "cut")]


def test_the_first_events_of_a_publisher_are_waited_for_too() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    edge.skip(FIRST, [(0, 1)], "cut", [Run(0, PAUL, 0, 1)], {SECOND: [Run(0, PAUL, 0, 1)]})
    edge.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == []
    edge.take(down(SECOND, 0, block(PAUL, 0)))
    assert notes.got == [b"0", b"1"]
    assert notes.lost_ == []


def test_the_first_event_of_a_publisher_waits_for_those_behind_a_gap_of_an_earlier_term() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 2, block(PAUL, 7)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 8), block(PAULA, 3, b"a"), block(PAUL, 9)))
    assert notes.got == [b"a"], "only that publisher's events wait"
    edge.take(down(FIRST, 0, block(PAUL, 5), block(PAUL, 6)))
    assert (notes.got, notes.lost_) == ([b"a", b"5", b"6", b"7", b"8", b"9"], [])


def test_all_that_waits_is_looked_through_once_only_for_what_a_publishers_first_event_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edge, notes, _ = an_edge()
    looks = list[int]()
    monkeypatch.setattr(Waiting, "values", lambda self: looks.append(len(self)) or dict.values(self), raising=False)
    for at in range(2, 8):
        edge.take(down(FIRST, at, block(PAUL, at)))
    edge.begin(SECOND, 0)
    for at in range(6):
        edge.take(down(SECOND, at, block(PAUL, 8 + at)))
    assert (notes.got, looks) == ([], [6])
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAUL, 1)))
    assert notes.got == [b"%d" % sequence for sequence in range(14)]


def test_the_lowest_sequence_that_waits_is_known_in_whatever_order_bundles_come_and_go() -> None:
    waiting = Waiting()
    for at, first in ((5, 25), (3, 23)):
        waiting.add(down(FIRST, at, block(PAUL, first)))
    assert (waiting.lowest(PAUL), waiting.lowest(PAULA)) == (23, None)
    for at, publisher, first in ((2, PAUL, 22), (7, PAULA, 4), (6, PAUL, 26)):
        waiting.add(down(FIRST, at, block(publisher, first)))
    assert (waiting.lowest(PAUL), waiting.lowest(PAULA)) == (22, 4)
    waiting.take_next(3)
    waiting.take_next(3)
    assert (waiting.lowest(PAUL), waiting.lowest(PAULA)) == (25, 4)
    for _ in range(3):
        waiting.take_next(7)
    assert (waiting.lowest(PAUL), waiting.sequences) == (None, {})
    waiting.add(down(FIRST, 9, block(PAUL, 30)))
    waiting.take_next(9)
    assert waiting.sequences is None, "nothing is kept where nothing waits"


@pytest.mark.parametrize("runs", [(), (Run(0, PAUL, 5, 2),)])
def test_once_nobody_has_what_is_missing_there_they_are_delivered(runs: tuple[Run, ...]) -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 2, block(PAUL, 7)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 8)))
    edge.skip(FIRST, [(0, 2)], "unavailable", runs)
    edge.tell_losses()
    lost = (1, 5, 7, "unavailable") if runs else (1, 0, 2, "unavailable")
    assert (notes.got, notes.lost_) == ([b"7", b"8"], [lost])
    assert not edge.holes


def test_it_does_not_wait_for_events_that_may_have_been_sent_again_before_the_subscription_began() -> None:
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 2, 0)
    edge.take(down(FIRST, 3, block(PAUL, 7)))
    edge.take(down(SECOND, 5, block(PAUL, 8)))
    assert notes.got == [b"8"]


def test_a_hole_waits_again_when_another_term_begins() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 2)))
    host.time = 31.0
    edge.begin(THIRD, 0)
    assert not edge.give_up_holes(1.0, NOTHING)
    assert notes.lost_ == []
    host.time = 70.0
    assert edge.give_up_holes(32.0, NOTHING)
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(1, 2)]


def test_events_admitted_before_the_subscription_are_not_waited_for() -> None:
    edge, notes, _ = an_edge()
    edge = Edge(edge.host, WEATHER, notes, ordered=True)
    edge.begin(SECOND, 5)
    edge.begin(FIRST, 2)  # that term is known up to here, and continues
    edge.take(down(FIRST, 2, block(PAUL, 0)))
    edge.take(down(SECOND, 5, block(PAUL, 9)))
    assert notes.got == [b"0", b"9"]
    assert notes.lost_ == []


def test_events_that_only_a_term_before_its_own_admitted_are_reported_between_others_that_came() -> None:
    """Its own term had none of them before the subscription began, which was with the first event of that term."""
    edge, notes, host = an_edge(since=SECOND, start=0)
    edge.owe(FIRST, 2, 0)
    edge.take(down(FIRST, 2, block(PAUL, 0)))
    edge.take(down(SECOND, 0, block(PAUL, 9)))
    host.time = 31.0
    assert edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert (notes.got, notes.lost_) == ([b"0", b"9"], [(2, 1, 9, "void")])


def test_a_hole_across_the_term_in_which_the_subscription_began_is_not_reported() -> None:
    """That term may have had the events before the subscription began: what it lost later was reported by itself."""
    edge, notes, host = an_edge(since=SECOND, start=8)
    edge.owe(FIRST, 2, 0)
    edge.take(down(FIRST, 2, block(PAUL, 0)))
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 9)))
    assert notes.got == [b"0"], "those between may still come in the second term"
    host.time = 31.0
    assert edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert (notes.got, notes.lost_) == ([b"0", b"9"], [])
    edge.take(down(THIRD, 1, block(PAUL, 11)))
    host.time = 70.0
    edge.give_up_holes(40.0, NOTHING)
    edge.tell_losses()
    assert notes.lost_ == [(3, 10, 11, "void")]
    edge.take(down(FIRST, 3, block(PAUL, 1)))
    edge.tell_losses()
    assert [(first, why) for _, first, _, why in notes.lost_] == [(10, "void"), (1, "late")], "this one is owed"


def an_edge_that_passed_over_events() -> tuple[Edge, Notes]:
    """It got Paul's first event from an earlier term, and the one numbered 9 from its own: the others seem not owed."""
    edge, notes, _ = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 2, 0)
    edge.take(down(FIRST, 2, block(PAUL, 0)))
    edge.take(down(SECOND, 5, block(PAUL, 9)))
    return edge, notes


def test_but_they_are_reported_if_they_arrive_after_later_ones() -> None:
    edge, notes = an_edge_that_passed_over_events()
    edge.take(down(FIRST, 3, block(PAUL, 1), block(PAUL, 2)))
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 2), block(PAUL, 3)))
    assert notes.got == [b"0", b"9"]
    assert notes.lost_ == [(1, 1, 4, "late")], "each once"


def test_or_if_no_peer_has_them_any_more() -> None:
    edge, notes = an_edge_that_passed_over_events()
    edge.skip(FIRST, [(3, 5)], "unavailable", [Run(3, PAUL, 1, 2)], {SECOND: [Run(0, PAUL, 2, 8)]})
    assert notes.lost_ == [(1, 1, 3, "unavailable")], "its own term held one of them, but before it began"


def test_adjacent_losses_are_one_report_whatever_is_delivered_between() -> None:
    edge, notes, _ = an_edge()
    edge.skip(FIRST, [(0, 1)], "unavailable", [Run(0, PAUL, 0, 1)])
    edge.take(down(FIRST, 1, block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 3)], "unavailable", [Run(2, PAUL, 1, 1)])
    edge.take(down(FIRST, 3, block(PAUL, 2)))
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(0, 2)]
    assert notes.got == [b"a", b"2"]


def test_losses_that_follow_from_one_another_are_one_report() -> None:
    """Buffers with room again take the next events, which may fill them up in the next turn."""
    edge, notes, host = an_edge()
    edge.skip(FIRST, [(0, 2)], "cut", [Run(0, PAUL, 0, 2)])
    ((_, delay_s),) = host.timers
    assert delay_s > 0, "later than the turns that come at once"
    edge.skip(FIRST, [(2, 3)], "cut", [Run(2, PAUL, 2, 1)])
    assert len(host.timers) == 1
    assert notes.lost_ == [(1, 0, 3, "cut")]


def test_events_between_losses_and_the_first_delivered_event_are_lost_too() -> None:
    edge, notes, host = an_edge()
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 9)))
    edge.skip(FIRST, [(0, 3)], "unavailable", [Run(0, PAUL, 2, 3)])
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 5)]
    host.time = 31.0
    assert edge.give_up_holes(1.0, NOTHING)
    assert [(first, last, why) for _, first, last, why in notes.lost_][1:] == [(5, 9, "void")]
    assert not edge.holes


def test_a_hole_is_not_void_while_its_events_wait_for_the_subscriber() -> None:
    edge, notes, host = an_edge()
    log, channel = Log(Budget(1 << 20)), Channel(edge, 0)
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    log.append(down(FIRST, 1, block(PAUL, 1)))
    edge.skip(FIRST, [(2, 3)], "unavailable", [Run(2, PAUL, 2, 1)])
    host.time = 31.0
    edge.give_up_holes(1.0, channel.untaken(log))
    channel.advance(log)
    assert notes.got == [b"0", b"1"]
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 3)]


def test_an_uncertain_loss_does_not_hide_a_larger_hole() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 2)], "unavailable")
    edge.take(down(FIRST, 2, block(PAUL, 2)))
    assert notes.got == [b"0", b"2"], "this may have been the lost event"
    edge.take(down(FIRST, 3, block(PAUL, 9)))
    assert notes.got == [b"0", b"2"]
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(1, 2, "unavailable"), (3, 9, "void")]
    assert notes.got == [b"0", b"2", b"9"]


def test_events_reported_by_position_are_not_reported_again_as_a_void_hole() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 9)], "unavailable")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5), block(PAULA, 4, b"e")))
    assert notes.got == [b"0", b"a"]
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert notes.got == [b"0", b"a", b"5", b"e"]
    assert notes.lost_ == [(1, 2, 9, "unavailable")], "four events of one publisher, and three of the other"


def test_nor_if_later_events_of_the_same_term_were_reported_lost_by_name() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 8)], "unavailable", [Run(5, PAUL, 5, 3)])
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.take(down(FIRST, 8, block(PAUL, 8)))
    assert notes.got == [b"0", b"8"]
    edge.tell_losses()
    assert sorted(notes.lost_) == [(1, 1, 5, "unavailable"), (1, 5, 8, "unavailable")]


def test_what_is_lost_before_the_first_event_of_a_publisher_is_reported_while_that_is_awaited() -> None:
    edge, notes, _ = an_edge()
    edge.begin(SECOND, 0)
    edge.skip(FIRST, [(0, 2)], "unavailable", [Run(0, PAUL, 5, 2)], {SECOND: [Run(3, PAUL, 5, 2)]})
    edge.take(down(FIRST, 2, block(PAUL, 7)))
    edge.skip(SECOND, [(0, 3)], "unavailable", [Run(0, PAUL, 2, 3)])
    edge.skip(FIRST, [(3, 4)], "unavailable", [Run(3, PAUL, 2, 1)])
    edge.take(down(SECOND, 3, block(PAUL, 5), block(PAUL, 6)))
    edge.tell_losses()
    assert notes.got == [b"5", b"6", b"7"]
    assert notes.lost_ == [(2, 2, 5, "unavailable")]


def test_events_after_reported_losses_are_delivered_at_once() -> None:
    edge, notes, _ = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.skip(FIRST, [(1, 8)], "unavailable", [Run(5, PAUL, 5, 3)])
    edge.take(down(FIRST, 8, block(PAUL, 8)))
    assert notes.got == [b"0", b"8"]
    assert not edge.holes


def test_each_lost_position_accounts_for_one_event() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 9)], "unavailable")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 5), block(PAULA, 5, b"f")))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(2, 9, "unavailable"), (1, 5, "void")]


@pytest.mark.parametrize(
    ("publisher", "sequence", "void"),
    [(PAULA, 0, []), (PAUL, 9, []), (PAUL, 3, [(5, 7, "void")])],
    ids=["nothing is known of their order", "a later event came behind the positions", "an earlier one came there"],
)
def test_a_hole_is_ascribed_to_lost_positions_if_the_order_of_their_term_allows_it(
    publisher: bytes, sequence: int, void: list[tuple[int, int, str]]
) -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0)))
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1, b"1", b"2", b"3", b"4"), block(PAUL, 7)))
    edge.skip(FIRST, [(1, 3)], "unavailable")
    edge.take(down(FIRST, 3, block(publisher, sequence)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    lost = sorted((first, last, why) for _, first, last, why in notes.lost_ if first < 7)
    assert lost == [(1, 3, "unavailable"), *void]


def test_a_hole_within_a_term_is_ascribed_to_lost_positions_between_its_ends_only() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(1, 3)], "unavailable")
    edge.take(down(FIRST, 3, block(PAUL, 0), block(PAUL, 2)))
    assert notes.got == [b"a", b"0"], "another term may bring it"
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(1, 3, "unavailable"), (1, 2, "void")]


@pytest.mark.parametrize(
    ("came", "void"), [(STREAM, [(1, 4, "void")]), (FIRST, [])], ids=["its own stream", "no stream"]
)
def test_no_hole_is_ascribed_to_lost_positions_of_another_sources_stream(
    came: Term, void: list[tuple[int, int, str]]
) -> None:
    """A later session's root admits the publisher's events again, without those that are lost."""
    beside, later = Term(RELIABLE_STREAMS, b"t" * 16), Term(SESSION_TERMS + RELIABLE_TERMS + 1, FIRST.node)
    edge, notes, host = an_edge()
    edge.readmits = Readmits.STREAMS_TOO
    for term in (STREAM, beside, later):
        edge.begin(term, 0)
    edge.take(down(came, 0, block(PAUL, 0)))
    edge.skip(beside, [(0, 3)], "unavailable")
    edge.take(down(later, 0, block(PAUL, 4)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert notes.got == [b"0", b"4"]
    assert sorted((first, last, why) for _, first, last, why in notes.lost_) == [(0, 3, "unavailable"), *void]


def test_an_event_that_another_term_recovers_accounts_for_one_too() -> None:
    edge, notes, host = an_edge()
    edge.take(down(FIRST, 0, block(PAUL, 0), block(PAULA, 0, b"a")))
    edge.skip(FIRST, [(2, 4)], "unavailable")
    edge.begin(SECOND, 0)
    edge.take(down(SECOND, 0, block(PAUL, 1), block(PAUL, 2), block(PAULA, 2, b"c")))
    assert notes.recovered == [b"1", b"2"]
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(2, 4, "unavailable"), (1, 2, "void")]


def test_events_possibly_from_before_the_subscription_are_not_a_hole_after_losses_of_earlier_terms() -> None:
    edge, notes, host = an_edge(since=SECOND, start=5)
    edge.owe(FIRST, 7, 0)
    edge.skip(FIRST, [(7, 8)], "unavailable", [Run(7, PAUL, 2, 1)])
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 5)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert notes.lost_ == [(1, 2, 3, "unavailable")], "the second term may have admitted the others before its fifth"
    assert notes.got == [b"5"]


def test_nor_what_a_term_between_may_have_admitted_before_the_subscription_began() -> None:
    edge, notes, host = an_edge(since=THIRD)
    edge.owe(FIRST, 3, stable=5)
    edge.owe(SECOND, 5, stable=0)
    edge.take(down(THIRD, 0, block(PAUL, 9)))
    edge.skip(FIRST, [(3, 5)], "unavailable", [Run(3, PAUL, 2, 2)])
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    assert notes.lost_ == [(1, 2, 4, "unavailable")], "the second term may have admitted the others before its fifth"


def test_but_it_is_one_behind_losses_that_the_subscription_was_owed_of_its_own_term() -> None:
    edge, notes, host = an_edge(since=SECOND, start=5)
    edge.skip(SECOND, [(5, 6)], "unavailable", [Run(5, PAUL, 2, 1)])
    edge.begin(THIRD, 0)
    edge.take(down(THIRD, 0, block(PAUL, 5)))
    host.time = 31.0
    edge.give_up_holes(1.0, NOTHING)
    edge.tell_losses()
    assert [(first, last, why) for _, first, last, why in notes.lost_] == [(2, 3, "unavailable"), (3, 5, "void")]


def test_events_admitted_before_the_subscription_began_are_not_a_hole() -> None:
    edge, notes, _ = an_edge()
    edge = Edge(edge.host, WEATHER, notes, ordered=True)
    edge.begin(SECOND, 7)
    edge.take(down(SECOND, 7, block(PAUL, 9)))
    edge.owe(FIRST, 0, stable=3)
    edge.skip(FIRST, [(0, 3)], "unavailable", [Run(0, PAUL, 2, 3)])
    edge.tell_losses()
    assert [(first, last) for _, first, last, _ in notes.lost_] == [(2, 5)]
    assert not edge.holes, "5 to 9 were admitted before its start"
