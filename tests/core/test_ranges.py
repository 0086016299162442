"""Range sets: the important cases (for properties see tests/properties/test_ranges.py)."""

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


def test_filling_a_gap_merges_its_neighbours() -> None:
    ranges = RangeSet([(0, 3), (5, 8), (9, 12)])
    assert ranges.add(3, 9)
    assert ranges.ranges() == [(0, 12)]


def test_discarding_the_middle_leaves_two_ranges() -> None:
    ranges = RangeSet([(0, 10)])
    ranges.discard(3, 5)
    assert ranges.ranges() == [(0, 3), (5, 10)]


def test_missing_ranges_are_in_order() -> None:
    assert RangeSet([(2, 4), (6, 8)]).missing(0, 10) == [(0, 2), (4, 6), (8, 10)]
    assert RangeSet([(2, 4), (6, 8)]).within(3, 7) == [(3, 4), (6, 7)]


def test_a_range_that_ends_at_the_first_index_is_not_within() -> None:
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


def test_ranges_hold_the_largest_positions() -> None:
    top = 2**63 - 1
    ranges = RangeSet([(top - 5, top)])
    assert (ranges.count, ranges.end, top - 1 in ranges, top in ranges) == (5, top, True, False)


def test_its_repr_lists_its_ranges() -> None:
    assert repr(RangeSet([(0, 3), (5, 6)])) == "RangeSet([(0, 3), (5, 6)])"
    assert RangeSet([(0, 3)]) != [(0, 3)]


def test_check_detects_an_inconsistent_set() -> None:
    ranges = RangeSet([(0, 3), (5, 6)])
    ranges._ends[0] = 5
    with pytest.raises(AssertionError):
        ranges.check()
