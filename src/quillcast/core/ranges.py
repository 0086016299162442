"""Sets of events as ranges, whose cost depends on the number of gaps (docs/design.md, decision 3)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from quillcast.core.messages import Number

Range = tuple[Number, Number]
"""A half-open range: [first, last)."""


_NO_BOUNDS: list[int] = []  # shared by all empty sets, because many stay empty


class RangeSet:
    """A set of non-negative integers, stored as sorted, disjoint, non-adjacent half-open ranges.

    The common case, adding right after the last range, takes constant time.
    """

    __slots__ = ("_ends", "starts")

    starts: list[int]
    """The first member of each range, in order. Read-only for others."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.starts = self._ends = _NO_BOUNDS
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> bool:
        """Add [first, last). True if any of it is new."""
        if first >= last:
            return False
        starts, ends = self.starts, self._ends
        if not ends:
            self.starts, self._ends = [first], [last]
            return True
        if ends[-1] == first:  # the common case: a stream in order
            ends[-1] = last
            return True
        left = bisect_left(ends, first)
        right = bisect_right(starts, last)
        if left == right:
            starts.insert(left, first)
            ends.insert(left, last)
            return True
        if right - left == 1 and starts[left] <= first and last <= ends[left]:
            return False
        starts[left:right] = [min(first, starts[left])]
        ends[left:right] = [max(last, ends[right - 1])]
        return True

    def update(self, other: Iterable[Range]) -> None:
        """Add every range of `other`."""
        for first, last in other:
            self.add(first, last)

    def discard(self, first: int, last: int) -> None:
        """Remove [first, last)."""
        if first >= last:
            return
        starts, ends = self.starts, self._ends
        left = bisect_right(ends, first)
        right = bisect_left(starts, last)
        if left >= right:
            return
        keep = [(starts[left], first)] if starts[left] < first else []
        if ends[right - 1] > last:
            keep.append((last, ends[right - 1]))
        starts[left:right] = [start for start, _ in keep]
        ends[left:right] = [end for _, end in keep]

    def join_closest(self) -> None:
        """Merge the two ranges that are closest to each other, including the gap between them."""
        if len(self.starts) > 1:
            gaps = zip(self._ends, self.starts[1:], strict=False)
            self.add(*min(gaps, key=lambda gap: gap[1] - gap[0]))

    def join_first(self) -> None:
        """Merge the first two ranges, including the gap between them."""
        if len(self.starts) > 1:
            self.add(self._ends[0], self.starts[1])

    def covers(self, first: int, last: int) -> bool:
        """Whether all of [first, last) is in the set."""
        if first >= last:
            return True
        at = bisect_right(self.starts, first) - 1
        return at >= 0 and last <= self._ends[at]

    def __contains__(self, value: int) -> bool:
        return self.covers(value, value + 1)

    def missing(self, first: int, last: int) -> list[Range]:
        """The parts of [first, last) that are not in the set, in order."""
        gaps, at = [], first
        for index in range(bisect_right(self._ends, first), len(self.starts)):
            start, end = self.starts[index], self._ends[index]
            if start >= last:
                break
            if start > at:
                gaps.append((at, start))
            at = max(at, end)
        if at < last:
            gaps.append((at, last))
        return gaps

    def within(self, first: int, last: int) -> list[Range]:
        """The parts of [first, last) that are in the set, in order."""
        found: list[Range] = []
        if first >= last:
            return found
        for index in range(bisect_right(self._ends, first), len(self.starts)):
            start, end = self.starts[index], self._ends[index]
            if start >= last:
                break
            found.append((max(start, first), min(end, last)))
        return found

    def contiguous_from(self, first: int) -> int:
        """The end of the contiguous run that begins at `first`, or `first` itself if that is not in the set."""
        at = bisect_right(self.starts, first) - 1
        return max(first, self._ends[at]) if at >= 0 else first

    @property
    def end(self) -> int:
        """One past the largest member; 0 when empty."""
        return self._ends[-1] if self._ends else 0

    @property
    def start(self) -> int:
        """The smallest member; 0 when empty."""
        return self.starts[0] if self.starts else 0

    @property
    def count(self) -> int:
        """The number of integers in the set."""
        return sum(self._ends) - sum(self.starts)

    def ranges(self) -> list[Range]:
        """The ranges in order."""
        return list(zip(self.starts, self._ends, strict=True))

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges())

    def __len__(self) -> int:
        """The number of ranges (not integers), which determines the set's cost."""
        return len(self.starts)

    def __bool__(self) -> bool:
        return bool(self.starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self.starts == other.starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()})"

    def check(self) -> None:
        """Raise AssertionError unless the ranges are sorted, disjoint, not adjacent and not empty."""
        bounds = [bound for pair in self.ranges() for bound in pair]
        assert all(low < high for low, high in pairwise(bounds)), self


class _NoRanges(RangeSet):
    """The empty set that many objects share until they need their own."""

    __slots__ = ()

    def add(self, first: int, last: int) -> bool:
        raise TypeError(f"cannot add [{first}, {last}) to the shared empty set; create a set of your own first")


NO_RANGES: Final[RangeSet] = _NoRanges()


def intersection(ranges: Iterable[Range], others: RangeSet | Iterable[Range]) -> list[Range]:
    """The parts of the ranges that are in the set."""
    among = others if isinstance(others, RangeSet) else RangeSet(others)
    return [piece for first, last in ranges for piece in among.within(first, last)]


def difference(ranges: Iterable[Range], among: RangeSet) -> list[Range]:
    """The parts of the ranges that are not in the set."""
    return [piece for first, last in ranges for piece in among.missing(first, last)]


def beyond(ranges: Iterable[Range], index: int) -> list[Range]:
    """The parts of the ranges from an index on."""
    return [(max(first, index), last) for first, last in ranges if last > index]
