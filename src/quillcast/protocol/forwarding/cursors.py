"""A subscriber's places: in each term, by index, and in the events of each publisher, by sequence."""

from heapq import heappop, heappush
from typing import ClassVar

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Position, Term
from quillcast.core.ranges import NO_RANGES, RangeSet

DELIVERED_RANGES_MAX = 64  # gaps that are remembered per publisher; a guess: terms overlap for seconds


class Waiting(dict[int, Bundle]):
    """Bundles beyond a gap, by their first index; `firsts` is a heap of these.

    `sequences` holds a heap for each publisher, of the first sequences of its blocks, each with the first index of the
    block's bundle. It exists from the first question for the lowest one until nothing waits here.
    """

    __slots__ = ("firsts", "sequences")

    def __init__(self) -> None:
        super().__init__()
        self.firsts: list[int] = []
        self.sequences: dict[bytes, list[tuple[int, int]]] | None = None

    def add(self, bundle: Bundle) -> None:
        """Keep a bundle. A later one from the same index takes its place."""
        first = bundle.envelope.first
        if first not in self:
            heappush(self.firsts, first)
        self[first] = bundle
        if self.sequences is not None:
            _note_sequences(self.sequences, bundle)

    def take_next(self, index: int) -> Bundle | None:
        """Take the first bundle out, if it begins at an index or before."""
        if not self.firsts or self.firsts[0] > index:
            return None
        bundle = self.pop(heappop(self.firsts))
        self.sequences = self.sequences if self else None
        return bundle

    def lowest(self, publisher: bytes) -> int | None:
        """The lowest sequence at which a block of a publisher begins here, without a look at all that waits."""
        if self.sequences is None:
            self.sequences = {}
            for bundle in self.values():
                _note_sequences(self.sequences, bundle)
        heap = self.sequences.get(publisher)
        while heap and heap[0][1] not in self:
            heappop(heap)
        return heap[0][0] if heap else None


def _note_sequences(sequences: dict[bytes, list[tuple[int, int]]], bundle: Bundle) -> None:
    for block in bundle.blocks:
        heappush(sequences.setdefault(block.publisher, []), (block.first, bundle.envelope.first))


_NONE_WAIT = Waiting()  # shared by all cursors without a gap


class TermCursor(msgspec.Struct, gc=False, eq=False):
    """A subscriber's place in one term: the next index, and what arrived beyond a gap. Owed from `start` on.

    `owed`: what is missing here is looked for after the term has ended, too. Below `old`, events are older than the
    subscription, although one of them came.
    """

    owed: ClassVar[bool] = True

    term: Term
    next: int
    given_up: RangeSet = NO_RANGES
    waiting: Waiting = msgspec.field(default_factory=lambda: _NONE_WAIT)
    start: int = 0
    old: int = 0


class BestEffortCursor(TermCursor, gc=False, eq=False):
    """The cursor of a term of a best-effort session."""

    owed: ClassVar[bool] = False


class EarlierTermCursor(TermCursor, gc=False, eq=False):
    """The cursor of a term from before the subscription. Its root declared it stable below `stable`."""

    stable: int = 0


class PublisherCursor:
    """A subscriber's place in the events of one publisher."""

    __slots__ = (
        "awaited", "before", "began", "delivered", "held", "index", "looked_at_next", "lost", "next", "owed_from",
        "passed_over", "term",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next: int | None = None  # one past the last sequence that was delivered or reported lost
        self.lost = NO_RANGES  # later sequences that were reported lost
        self.awaited = NO_RANGES  # sequences lost with one term that arrive with a later one
        self.passed_over = NO_RANGES  # earlier sequences that seemed not to be owed (`Edge._expect`)
        self.before = NO_RANGES  # sequences before its first event here that were reported lost
        self.owed_from: int | None = None  # the first one reported lost of a term from `Edge.owed_in_part` on
        self.looked_at_next: int | None = -1  # `next` at the last check (`forget_publishers`)
        self.term: Term | None = None  # of its last event
        self.index = 0  # one past that event's index
        self.began: tuple[Term, int] | None = None  # term and sequence of its first event here
        self.delivered: RangeSet | None = None  # sequences delivered or reported lost, where gaps delay nothing
        self.held: list[tuple[Block, Position]] = []  # waiting behind a hole

    def begin(self, term: Term, first: int) -> None:
        """Record its first delivered event. Losses reported so far lie before it."""
        self.began = (term, first)
        if self.lost:
            self.before = RangeSet(self.lost.within(0, first))

    def pass_lost(self, at: int) -> None:
        """Set the next event to the one at a sequence, or to the first after it that is not lost."""
        self.next = self.lost.contiguous_from(at)
        if self.lost and self.lost.end <= self.next and self.began is not None:
            self.lost = NO_RANGES

    def note_delivered(self, first: int, last: int) -> None:
        """Record sequences that were delivered or reported lost, where gaps delay nothing."""
        if self.delivered is None:  # until now it may have waited for gaps to be filled
            self.delivered = RangeSet([(self.began[1], self.next or 0)] if self.began is not None else [])
        self.delivered.add(first, last)
        if len(self.delivered) > DELIVERED_RANGES_MAX:
            self.delivered.join_first()
