"""The state of a gap is kept per range and source."""

from quillcast.core.envelope import Term
from quillcast.core.ranges import RangeSet, difference, intersection
from quillcast.protocol.reliability.gaps import Gap

PARENT, SIBLING = b"parent", b"sibling"


def a_gap() -> Gap:
    gap = Gap(0.0, 1.0)
    gap.look([(0, 4), (8, 12)], 0.0)
    gap.ask_among([PARENT, SIBLING], 0.0)
    return gap


def test_ranges_missing_at_one_check_only_may_be_in_transit() -> None:
    gap = a_gap()
    assert gap.confirmed == []
    gap.look([(0, 4), (8, 16)], 0.5)
    assert gap.confirmed == [(0, 4), (8, 12)]


def test_every_range_is_requested_from_one_source_at_a_time() -> None:
    gap = a_gap()
    assert gap.to_ask(PARENT, [(0, 4), (8, 12)], 0.5) == [(0, 4), (8, 12)]
    assert gap.to_ask(SIBLING, [(0, 4), (8, 12)], 0.5) == []


def test_a_refusal_passes_only_its_range_to_the_next_source() -> None:
    gap = a_gap()
    gap.to_ask(PARENT, [(0, 4), (8, 12)], 0.5)
    gap.refused(PARENT, [(8, 10)], [])
    assert gap.to_ask(SIBLING, [(0, 4), (8, 12)], 0.6) == [(8, 10)]


def test_ranges_that_make_no_progress_are_requested_again() -> None:
    gap = a_gap()
    gap.to_ask(PARENT, [(0, 4)], 0.0)
    gap.refused(PARENT, [(0, 4)], [])
    gap.look([(0, 4), (8, 12)], 0.5)
    assert gap.to_ask(PARENT, [(0, 4)], 0.5) == []
    gap.look([(0, 4), (8, 12)], 1.0)
    assert gap.to_ask(PARENT, [(0, 4)], 1.0) == [(0, 4)]


def test_ranges_that_every_source_has_refused_for_long_enough_are_gone() -> None:
    gap = a_gap()
    gap.refused(PARENT, [(0, 4)], [(0, 4)])
    assert gap.nobody_has([(0, 4)], 1.0, 0.0, 5.0) == [], "the sibling has not answered"
    gap.refused(SIBLING, [(0, 2)], [])
    assert gap.nobody_has([(0, 4)], 2.0, 3.0, 5.0) == []
    assert gap.nobody_has([(0, 4)], 5.0, 3.0, 5.0) == [(0, 2)]


def test_what_is_settled_is_gone_sooner() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 1.0, 30.0, 5.0, [(0, 3)]) == []
    assert gap.nobody_has([(0, 4)], 6.0, 30.0, 5.0, [(0, 3)]) == [(0, 3)]
    assert gap.nobody_has([(0, 4)], 31.0, 30.0, 5.0, [(0, 3)]) == [(0, 4)]


def test_while_there_is_no_room_for_answers_nobodys_silence_counts_for_a_while() -> None:
    gap = a_gap()
    gap.refused(SIBLING, [(0, 4)], [])
    gap.to_ask(PARENT, [(0, 4)], 1.0)
    for now in (6.0, 11.0):
        gap.excuse_silence(now, 30.0)
        assert gap.nobody_has([(0, 4)], now, 0.0, 5.0) == []
    gap.excuse_silence(40.0, 30.0)
    assert gap.nobody_has([(0, 4)], 40.0, 0.0, 5.0) == [(0, 4)], "nothing came for 30 s"


def test_the_time_of_a_pause_counts_against_nobody() -> None:
    gap = a_gap()
    assert gap.to_ask(PARENT, [(0, 4)], 1.0) == [(0, 4)]
    gap.refused(SIBLING, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 6.0, 30.0, 4.0) == []
    gap.start_anew(50.0)
    assert not gap.is_silent(PARENT, 54.0, 4.0)
    assert gap.nobody_has([(0, 4)], 55.0, 30.0, 4.0) == []
    assert gap.nobody_has([(0, 4)], 84.0, 30.0, 4.0) == []
    assert gap.nobody_has([(0, 4)], 86.0, 30.0, 4.0) == [(0, 4)]


def test_a_source_that_never_answers_has_nothing() -> None:
    gap = a_gap()
    gap.refused(PARENT, [(0, 4)], [])
    gap.to_ask(SIBLING, [(0, 4)], 1.0)
    assert gap.nobody_has([(0, 4)], 5.0, 0.0, 5.0) == []
    assert gap.nobody_has([(0, 4)], 6.5, 0.0, 5.0) == [(0, 4)]


def test_a_source_whose_answers_are_lost_still_has_what_it_reports_to_keep() -> None:
    gap = Gap(0.0, 1.0)
    gap.look([(0, 4)], 0.0)
    gap.ask_among([PARENT], 0.0)
    gap.offered(PARENT, [(0, 2)])
    gap.to_ask(PARENT, [(0, 4)], 0.0)
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(2, 4)]
    gap.ask_among([PARENT], 9.0)
    assert RangeSet(gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0)).ranges() == [(0, 4)], "it does not report them any more"


def test_a_new_source_makes_refusals_void() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(0, 4)]
    gap.ask_among([PARENT, SIBLING, b"another"], 9.0)
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == []


def test_new_sources_that_come_one_by_one_have_the_others_asked_anew_once() -> None:
    gap, names, asked = a_gap(), [PARENT, SIBLING], list[float]()
    for tenth in range(20, 40):
        now = tenth / 10
        names.append(f"{tenth}".encode())
        gap.ask_among(names, now)
        for name in names:
            if gap.to_ask(name, [(0, 4)], now) and name == PARENT:
                asked.append(now)
            gap.refused(name, [(0, 4)], [])
        assert gap.nobody_has([(0, 4)], now, 0.0, 5.0) == ([(0, 4)] if now in asked else []), "they may have it by now"
    assert asked == [2.0, 3.0]


def test_so_does_a_new_term() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    gap.ask_among([PARENT, SIBLING], 9.0, Term(2, bytes(16)))
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == []
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    gap.ask_among([PARENT, SIBLING], 9.0, Term(2, bytes(16)))
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(0, 4)]


def test_nothing_is_hopeless_while_something_arrives() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 1.0, 3.0, 5.0) == []
    gap.look([(0, 4), (9, 12)], 3.0)
    assert gap.nobody_has([(0, 4)], 3.0, 3.0, 5.0) == [], "8 arrived"
    gap.give_up([(9, 12)])
    gap.look([(0, 4)], 6.0)
    assert gap.nobody_has([(0, 4)], 6.0, 3.0, 5.0) == [(0, 4)], "giving up is not an arrival"


def test_a_new_source_gives_a_silent_one_time_again() -> None:
    gap = a_gap()
    gap.to_ask(PARENT, [(0, 4)], 0.0)
    gap.ask_among([PARENT, b"grandparent"], 9.0)
    gap.refused(b"grandparent", [(0, 4)], [])
    gap.to_ask(PARENT, [(0, 4)], 10.0)
    assert gap.nobody_has([(0, 4)], 11.0, 0.0, silent_s=2.0) == []
    assert gap.nobody_has([(0, 4)], 13.0, 0.0, silent_s=2.0) == [(0, 4)]


def test_a_source_that_reports_ranges_it_refused_has_them() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [(0, 4)])
    gap.offered(SIBLING, [(0, 2)])
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(2, 4)]
    assert gap.to_ask(SIBLING, [(0, 4)], 9.0) == [(0, 2)]


def test_a_source_that_got_what_it_had_refused_is_asked_at_once_and_once_only() -> None:
    gap = a_gap()
    assert gap.to_ask(PARENT, [(0, 4)], 0.5) == [(0, 4)]
    gap.refused(PARENT, [(0, 4)], [])
    for reported, asked in ([(0, 2)], [(0, 2)]), ([(0, 2)], []), ([(0, 3)], [(2, 3)]):
        gap.ask_among([PARENT, SIBLING], 0.6)
        gap.offered(PARENT, reported)
        assert gap.to_ask(PARENT, reported, 0.6) == asked


def test_intersection_and_difference_of_ranges() -> None:
    assert intersection([(0, 10)], [(2, 4), (8, 12)]) == [(2, 4), (8, 10)]
    assert difference([(0, 10)], RangeSet([(2, 4), (8, 12)])) == [(0, 2), (4, 8)]
