"""What lacks of a term is kept range by range and source by source."""

from quillcast.core.ranges import RangeSet, difference, intersection
from quillcast.protocol.reliability.gaps import Gap

PARENT, SIBLING = b"parent", b"sibling"


def a_gap() -> Gap:
    gap = Gap(0.0, 1.0)
    gap.look([(0, 4), (8, 12)], 0.0)
    gap.ask_among([PARENT, SIBLING])
    return gap


def test_what_lacks_at_one_look_only_may_be_on_its_way() -> None:
    gap = a_gap()
    assert gap.confirmed == []
    gap.look([(0, 4), (8, 16)], 0.5)
    assert gap.confirmed == [(0, 4), (8, 12)]


def test_every_gap_is_asked_for_and_of_one_source_at_a_time() -> None:
    gap = a_gap()
    assert gap.to_ask(PARENT, [(0, 4), (8, 12)], 0.5) == [(0, 4), (8, 12)]
    assert gap.to_ask(SIBLING, [(0, 4), (8, 12)], 0.5) == []


def test_a_refusal_is_of_its_range_alone_and_sends_that_to_the_next() -> None:
    gap = a_gap()
    gap.to_ask(PARENT, [(0, 4), (8, 12)], 0.5)
    gap.refused(PARENT, [(8, 10)], [])
    assert gap.to_ask(SIBLING, [(0, 4), (8, 12)], 0.6) == [(8, 10)]


def test_what_stands_still_is_asked_for_again() -> None:
    gap = a_gap()
    gap.to_ask(PARENT, [(0, 4)], 0.0)
    gap.refused(PARENT, [(0, 4)], [])
    gap.look([(0, 4), (8, 12)], 0.5)
    assert gap.to_ask(PARENT, [(0, 4)], 0.5) == []
    gap.look([(0, 4), (8, 12)], 1.0)
    assert gap.to_ask(PARENT, [(0, 4)], 1.0) == [(0, 4)]


def test_nobody_has_what_all_have_refused_for_long_enough() -> None:
    gap = a_gap()
    gap.refused(PARENT, [(0, 4)], [(0, 4)])
    assert gap.nobody_has([(0, 4)], 1.0, 0.0, 5.0) == [], "the sibling has not spoken"
    gap.refused(SIBLING, [(0, 2)], [])
    assert gap.nobody_has([(0, 4)], 2.0, 3.0, 5.0) == []
    assert gap.nobody_has([(0, 4)], 5.0, 3.0, 5.0) == [(0, 2)]


def test_a_source_that_never_answers_has_nothing() -> None:
    gap = a_gap()
    gap.refused(PARENT, [(0, 4)], [])
    gap.to_ask(SIBLING, [(0, 4)], 1.0)
    assert gap.nobody_has([(0, 4)], 5.0, 0.0, 5.0) == []
    assert gap.nobody_has([(0, 4)], 6.5, 0.0, 5.0) == [(0, 4)]


def test_a_source_whose_answers_are_lost_still_has_what_it_reports_to_keep() -> None:
    gap = Gap(0.0, 1.0)
    gap.look([(0, 4)], 0.0)
    gap.ask_among([PARENT])
    gap.offered(PARENT, [(0, 2)])
    gap.to_ask(PARENT, [(0, 4)], 0.0)
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(2, 4)]
    gap.ask_among([PARENT])
    assert RangeSet(gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0)).ranges() == [(0, 4)], "it reports them no more"


def test_somebody_new_makes_refusals_void() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(0, 4)]
    gap.ask_among([PARENT, SIBLING, b"another"])
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == []


def test_while_something_comes_nothing_is_hopeless() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [])
    assert gap.nobody_has([(0, 4)], 1.0, 3.0, 5.0) == []
    gap.look([(0, 4), (9, 12)], 3.0)
    assert gap.nobody_has([(0, 4)], 3.0, 3.0, 5.0) == [], "8 came"
    gap.give_up([(9, 12)])
    gap.look([(0, 4)], 6.0)
    assert gap.nobody_has([(0, 4)], 6.0, 3.0, 5.0) == [(0, 4)], "and what was given up did not come"


def test_who_claims_what_it_refused_has_it() -> None:
    gap = a_gap()
    for name in (PARENT, SIBLING):
        gap.refused(name, [(0, 4)], [(0, 4)])
    gap.offered(SIBLING, [(0, 2)])
    assert gap.nobody_has([(0, 4)], 9.0, 0.0, 5.0) == [(2, 4)]
    assert gap.to_ask(SIBLING, [(0, 4)], 9.0) == [(0, 2)]


def test_ranges_in_common_and_apart() -> None:
    assert intersection([(0, 10)], [(2, 4), (8, 12)]) == [(2, 4), (8, 10)]
    assert difference([(0, 10)], RangeSet([(2, 4), (8, 12)])) == [(0, 2), (4, 8)]
