"""Keeps events that arrived before earlier ones of their publisher, so that only the earlier ones are sent again."""

from bisect import bisect_left
from itertools import pairwise
from operator import attrgetter

from quillcast.core.bundle import Block
from quillcast.core.interning import EMPTY
from quillcast.core.ranges import Range

_FIRST = attrgetter("first")


class EarlyBlocks:
    """The early events of all publishers whose events this peer numbers, in all topics, up to a bound.

    Blocks that are never taken, because their publisher is gone or another peer is root, make room for others.
    """

    __slots__ = ("max_bytes", "used_bytes", "waiting")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.used_bytes = max_bytes, 0
        self.waiting: dict[tuple[bytes, bytes], list[Block]] = EMPTY  # by topic and publisher: in sequence

    def keep(self, topic: bytes, block: Block) -> None:
        """Keep a block, if necessary in place of others' oldest ones. Drop it if its publisher's fill the bound."""
        blocks = self.waiting.get((topic, block.publisher), [])
        at = bisect_left(blocks, block.first, key=_FIRST)
        if blocks[at : at + 1] and blocks[at].first == block.first:
            return
        if not self._make_room(blocks, block.size):
            return
        blocks.insert(at, block)
        self.waiting = self.waiting or {}
        self.waiting[topic, block.publisher] = blocks
        self.used_bytes += block.size

    def _make_room(self, blocks: list[Block], size_bytes: int) -> bool:
        """Discard the oldest blocks of others if necessary. False, and none is, if even that would not be enough."""
        if self.used_bytes + size_bytes <= self.max_bytes:
            return True
        if sum(kept.size for kept in blocks) + size_bytes > self.max_bytes:
            return False
        while self.used_bytes + size_bytes > self.max_bytes:
            oldest = next(each for each, others in self.waiting.items() if others is not blocks)
            self.used_bytes -= sum(kept.size for kept in self.waiting.pop(oldest))
        return True

    def take(self, topic: bytes, publisher: bytes, sequence: int) -> list[Block]:
        """Take out the blocks that continue a publisher's events from a sequence without a gap. Drop earlier ones."""
        blocks = self.waiting.get((topic, publisher), [])
        taken: list[Block] = []
        passed = 0
        for block in blocks:
            if block.first > sequence:
                break
            passed += 1
            self.used_bytes -= block.size
            if block.last > sequence:
                taken.append(block)
                sequence = block.last
        del blocks[:passed]
        if passed and not blocks:
            del self.waiting[topic, publisher]
        return taken

    def missing(self, topic: bytes, publisher: bytes, first: int, last: int) -> list[Range]:
        """Return the ranges of a publisher's events in [first, last) that are not here, in order."""
        blocks = self.waiting.get((topic, publisher), [])
        missing: list[Range] = []
        for block in blocks[max(bisect_left(blocks, first, key=_FIRST) - 1, 0) : bisect_left(blocks, last, key=_FIRST)]:
            if first < block.first:
                missing.append((first, block.first))
            first = max(first, block.last)
        if first < last:
            missing.append((first, last))
        return missing

    def check(self) -> None:
        """Raise AssertionError unless blocks are in order, and their bytes are counted and bounded."""
        assert all(self.waiting.values())
        sizes = [block.size for blocks in self.waiting.values() for block in blocks]
        assert self.used_bytes == sum(sizes) <= self.max_bytes
        for blocks in self.waiting.values():
            assert all(a.first < b.first for a, b in pairwise(blocks))
