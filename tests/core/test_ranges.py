"""Range sets: the cases that matter, by name (properties in tests/properties/test_ranges.py)."""

import pytest

from quillcast.core.ranges import RangeSet


def test_a_stream_in_order_is_one_range() -> None:
    ranges = RangeSet()
    for first in range(0, 1000, 10):
        assert ranges.add(first, first + 10)
    assert ranges.ranges() == [(0, 1000)]


def test_a_repeat_is_not_new() -> None:
    ranges = RangeSet([(0, 10)])
    assert not ranges.add(2, 5)
    assert not ranges.add(0, 10)
    assert ranges.add(9, 11)


def test_what_fills_a_gap_joins_its_neighbours() -> None:
    ranges = RangeSet([(0, 3), (5, 8), (9, 12)])
    assert ranges.add(3, 9)
    assert ranges.ranges() == [(0, 12)]


def test_taking_out_of_the_middle_leaves_two() -> None:
    ranges = RangeSet([(0, 10)])
    ranges.discard(3, 5)
    assert ranges.ranges() == [(0, 3), (5, 10)]


def test_gaps_are_named_in_order() -> None:
    assert RangeSet([(2, 4), (6, 8)]).missing(0, 10) == [(0, 2), (4, 6), (8, 10)]
    assert RangeSet([(2, 4), (6, 8)]).within(3, 7) == [(3, 4), (6, 7)]


def test_what_ends_where_a_question_begins_has_no_part_in_it() -> None:
    assert RangeSet([(2, 4), (6, 8)]).within(4, 7) == [(6, 7)]
    assert RangeSet([(2, 4), (6, 8)]).within(3, 6) == [(3, 4)]


@pytest.mark.parametrize(("first", "last"), [(5, 5), (9, 2)])
def test_an_empty_range_changes_nothing_and_is_always_covered(first: int, last: int) -> None:
    ranges = RangeSet([(0, 3)])
    assert not ranges.add(first, last)
    ranges.discard(first, last)
    assert ranges.ranges() == [(0, 3)]
    assert ranges.covers(first, last)
    assert ranges.missing(first, last) == ranges.within(first, last) == []


def test_numbers_may_be_as_large_as_positions() -> None:
    top = 2**63 - 1
    ranges = RangeSet([(top - 5, top)])
    assert (ranges.count, ranges.end, top - 1 in ranges, top in ranges) == (5, top, True, False)


def test_it_says_what_it_holds() -> None:
    assert repr(RangeSet([(0, 3), (5, 6)])) == "RangeSet([(0, 3), (5, 6)])"
    assert RangeSet([(0, 3)]) != [(0, 3)]


def test_a_broken_set_is_noticed() -> None:
    ranges = RangeSet([(0, 3), (5, 6)])
    ranges._ends[0] = 5
    with pytest.raises(AssertionError):
        ranges.check()
