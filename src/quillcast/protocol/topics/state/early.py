"""Keeps events that arrived before earlier ones of their publisher, so that only the earlier ones are sent again."""

from bisect import bisect_left
from itertools import pairwise
from operator import attrgetter

from quillcast.core.bundle import Block
from quillcast.core.ranges import Range

_FIRST = attrgetter("first")


class EarlyBlocks:
    """The early events of all publishers whose events this peer numbers, in all topics, up to a bound.

    A line that is never taken, because its publisher is gone or another peer is root, makes room for others.
    """

    __slots__ = ("lines", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.used_bytes = max_bytes, 0
        self.lines: dict[tuple[bytes, bytes], list[Block]] = {}  # by topic and publisher: in sequence

    def keep(self, topic: bytes, block: Block) -> None:
        """Keep a block, if necessary in place of others' oldest lines. Drop it if its own line fills the bound."""
        line = self.lines.get((topic, block.publisher), [])
        at = bisect_left(line, block.first, key=_FIRST)
        if line[at : at + 1] and line[at].first == block.first:
            return
        if not self._make_room(line, block.size):
            return
        line.insert(at, block)
        self.lines[topic, block.publisher] = line
        self.used_bytes += block.size

    def _make_room(self, line: list[Block], size_bytes: int) -> bool:
        """Discard the oldest lines of others if necessary. False, and none is, if even that would not be enough."""
        if self.used_bytes + size_bytes <= self.max_bytes:
            return True
        if sum(kept.size for kept in line) + size_bytes > self.max_bytes:
            return False
        while self.used_bytes + size_bytes > self.max_bytes:
            oldest = next(each for each, blocks in self.lines.items() if blocks is not line)
            self.used_bytes -= sum(kept.size for kept in self.lines.pop(oldest))
        return True

    def take(self, topic: bytes, publisher: bytes, sequence: int) -> list[Block]:
        """Take out the blocks that continue a publisher's events from a sequence without a gap. Drop earlier ones."""
        line = self.lines.get((topic, publisher), [])
        taken: list[Block] = []
        passed = 0
        for block in line:
            if block.first > sequence:
                break
            passed += 1
            self.used_bytes -= block.size
            if block.last > sequence:
                taken.append(block)
                sequence = block.last
        del line[:passed]
        if passed and not line:
            del self.lines[topic, publisher]
        return taken

    def missing(self, topic: bytes, publisher: bytes, first: int, last: int) -> list[Range]:
        """Return the ranges of a publisher's events in [first, last) that are not here, in order."""
        line = self.lines.get((topic, publisher), [])
        missing: list[Range] = []
        for block in line[max(bisect_left(line, first, key=_FIRST) - 1, 0) : bisect_left(line, last, key=_FIRST)]:
            if first < block.first:
                missing.append((first, block.first))
            first = max(first, block.last)
        if first < last:
            missing.append((first, last))
        return missing

    def check(self) -> None:
        """Raise AssertionError unless lines are in order, and their bytes are counted and bounded."""
        assert all(self.lines.values())
        assert self.used_bytes == sum(block.size for line in self.lines.values() for block in line) <= self.max_bytes
        for line in self.lines.values():
            assert all(a.first < b.first for a, b in pairwise(line))
