"""Range sets against Python's own sets: whatever is added and taken out, both say the same."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from quillcast.core.ranges import Range, RangeSet

END = 40
NUMBERS = st.integers(0, END)
RANGES = st.tuples(NUMBERS, NUMBERS)
MANY = st.lists(RANGES, max_size=12)


def members(ranges: Iterable[Range]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last)}


def as_ranges(numbers: set[int]) -> list[Range]:
    """The naive way: where a member has no neighbour below a range begins, where none above it ends."""
    firsts = [number for number in sorted(numbers) if number - 1 not in numbers]
    lasts = [number + 1 for number in sorted(numbers) if number + 1 not in numbers]
    return list(zip(firsts, lasts, strict=True))


class Ranging(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranges, self.numbers = RangeSet(), set[int]()

    @rule(bounds=RANGES)
    def add(self, bounds: Range) -> None:
        new = members([bounds]) - self.numbers
        assert self.ranges.add(*bounds) == bool(new)
        self.numbers |= new

    @rule(count=st.integers(1, 5))
    def grow_at_the_end(self, count: int) -> None:
        first = self.ranges.end
        assert self.ranges.add(first, first + count)
        self.numbers |= members([(first, first + count)])

    @rule(bounds=RANGES)
    def discard(self, bounds: Range) -> None:
        self.ranges.discard(*bounds)
        self.numbers -= members([bounds])

    @rule(many=MANY)
    def update(self, many: list[Range]) -> None:
        self.ranges.update(many)
        self.numbers |= members(many)

    @rule(bounds=RANGES)
    def ask_about(self, bounds: Range) -> None:
        asked = members([bounds])
        assert self.ranges.covers(*bounds) == (asked <= self.numbers)
        assert self.ranges.missing(*bounds) == as_ranges(asked - self.numbers)
        assert self.ranges.within(*bounds) == as_ranges(asked & self.numbers)

    @rule(number=NUMBERS)
    def ask_about_one(self, number: int) -> None:
        assert (number in self.ranges) == (number in self.numbers)
        run_end = number
        while run_end in self.numbers:
            run_end += 1
        assert self.ranges.contiguous_from(number) == run_end

    @invariant()
    def same(self) -> None:
        self.ranges.check()
        assert self.ranges.ranges() == list(self.ranges) == as_ranges(self.numbers)
        assert self.ranges.count == len(self.numbers)
        assert len(self.ranges) == len(as_ranges(self.numbers))
        assert bool(self.ranges) == bool(self.numbers)
        assert self.ranges.start == min(self.numbers, default=0)
        assert self.ranges.end == max(self.numbers, default=-1) + 1


TestRanging = Ranging.TestCase


@given(MANY)
def test_the_order_of_adding_does_not_matter(many: list[Range]) -> None:
    assert RangeSet(many) == RangeSet(reversed(many)) == RangeSet(as_ranges(members(many)))


@given(MANY, RANGES)
def test_what_is_missing_completes_the_range(many: list[Range], bounds: Range) -> None:
    ranges = RangeSet(many)
    ranges.update(ranges.missing(*bounds))
    assert ranges.covers(*bounds)


@given(MANY)
def test_a_set_is_the_same_as_one_of_its_ranges(many: list[Range]) -> None:
    ranges = RangeSet(many)
    assert RangeSet(ranges) == ranges
    assert ranges != RangeSet([*many, (END + 2, END + 3)])
