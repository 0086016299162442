"""A subscriber's places: in each term, by index, and in the events of each publisher, by sequence."""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import ClassVar

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Position, Term
from quillcast.core.ranges import NO_RANGES, Range, RangeSet

DELIVERED_RANGES_MAX = 64  # gaps that are remembered per publisher; a guess: terms overlap for seconds


class Waiting(dict[int, Bundle]):
    """Bundles beyond a gap, by their first index; `firsts` is a heap of these.

    `sequences` holds a heap for each publisher, of the first sequences of its blocks, each with the first index of the
    block's bundle. It exists from the first call of `lowest` until nothing waits here.
    """

    __slots__ = ("firsts", "sequences")

    def __init__(self) -> None:
        super().__init__()
        self.firsts: list[int] = []
        self.sequences: dict[bytes, list[tuple[int, int]]] | None = None

    def add(self, bundle: Bundle) -> None:
        """Keep a bundle. A later one from the same index replaces it."""
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
        """The lowest sequence at which a block of a publisher begins here, without looking at all that waits."""
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

    `owed`: missing events are sought even after the term has ended. Below `old`, events are older than the
    subscription, although one of them came.
    """

    owed: ClassVar[bool] = True

    term: Term
    next: int
    given_up: RangeSet = NO_RANGES
    waiting: Waiting = msgspec.field(default_factory=lambda: _NONE_WAIT)
    start: int = 0
    old: int = 0

    def begin_at(self, index: int) -> None:
        """It is owed from an index on, and none of its events arrived yet."""
        self.start = self.next = index

    def go_on(self, index: int) -> None:
        """All before an index has been delivered."""
        self.next = index

    def note_old(self, index: int) -> None:
        """Events below an index are older than the subscription."""
        self.old = max(self.old, index)

    def keep(self, bundle: Bundle) -> None:
        """A bundle waits behind a gap."""
        self.waiting = self.waiting or Waiting()
        self.waiting.add(bundle)

    def give_up(self, ranges: Iterable[Range]) -> None:
        """Stop waiting for these indexes."""
        self.given_up = self.given_up or RangeSet()
        self.given_up.update(ranges)

    def pass_given_up(self) -> None:
        """Continue after what was given up."""
        self.next = self.given_up.contiguous_from(self.next)

    def forget_given_up(self) -> None:
        """What was given up before the next index cannot come late."""
        self.given_up.discard(0, self.next)
        self.given_up = self.given_up or NO_RANGES


class BestEffortCursor(TermCursor, gc=False, eq=False):
    """The cursor of a term of a best-effort session."""

    owed: ClassVar[bool] = False


class EarlierTermCursor(TermCursor, gc=False, eq=False):
    """The cursor of a term from before the subscription. Its root declared it stable below `stable`."""

    stable: int = 0

    def settle(self, stable: int) -> None:
        """Its root declared it stable below an index."""
        self.stable = max(self.stable, stable)


class PublisherCursor:
    """A subscriber's place in the events of one publisher."""

    __slots__ = (
        "awaited", "before", "began", "delivered", "held", "index", "looked_at_next", "lost", "next", "owed_from",
        "passed_over", "term",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next: int | None = None  # one past the last sequence that was delivered or reported lost
        self.lost = NO_RANGES  # later sequences that were reported lost
        self.awaited = NO_RANGES  # sequences lost in one term that another one brings or loses
        self.passed_over = NO_RANGES  # earlier sequences that seemed not to be owed (`Edge._expect`)
        self.before = NO_RANGES  # sequences before its first event here that were reported lost
        self.owed_from: int | None = None  # the first one reported lost of a term from `Edge.owed_in_part` on
        self.looked_at_next: int | None = -1  # `next` at the last check (`forget_publishers`)
        self.term: Term | None = None  # of its last event
        self.index = 0  # one past that event's index
        self.began: tuple[Term, int] | None = None  # term and sequence of its first event here
        self.delivered: RangeSet | None = None  # sequences delivered or reported lost, if gaps delay nothing
        self.held: list[tuple[Block, Position]] = []  # waiting behind a hole

    def begin(self, term: Term, first: int) -> None:
        """Record its first delivered event. Losses reported so far lie before it."""
        self.began = (term, first)
        if self.lost:
            self.before = RangeSet(self.lost.within(0, first))

    def note_place(self, term: Term, index: int) -> None:
        """Its last event stood before an index of a term."""
        self.term, self.index = term, index

    def expect(self, sequence: int | None) -> None:
        """Expect this event as its next one; None: any event."""
        self.next = sequence

    def lose(self, first: int, last: int) -> None:
        """Sequences were reported lost, or are not owed."""
        self.lost = self.lost or RangeSet()
        self.lost.add(first, last)

    def lose_before(self, first: int, last: int) -> None:
        """Sequences before its first event here were reported lost."""
        self.before = self.before or RangeSet()
        self.before.add(first, last)

    def owe_from(self, first: int) -> None:
        """A sequence was reported lost that was owed."""
        self.owed_from = first if self.owed_from is None else min(first, self.owed_from)

    def await_again(self, ranges: Iterable[Range]) -> None:
        """Sequences that were lost in one term arrive in another one."""
        self.awaited = RangeSet([*self.awaited, *ranges]) or NO_RANGES

    def pass_over(self, ranges: Iterable[Range]) -> None:
        """Earlier sequences seem not to be owed."""
        self.passed_over = RangeSet([*self.passed_over, *ranges]) or NO_RANGES

    def pass_over_no_more(self, first: int, last: int) -> None:
        """Sequences that seemed not to be owed were reported lost."""
        if self.passed_over:
            self.passed_over.discard(first, last)

    def hold(self, block: Block, position: Position) -> None:
        """A block waits behind a hole."""
        self.held.append((block, position))

    def take_held(self) -> list[tuple[Block, Position]]:
        """Take what waited behind a hole that was filled or given up."""
        held, self.held = self.held, []
        return held

    def look_over(self) -> None:
        """Remember its place, and forget what was awaited before."""
        self.looked_at_next = self.next
        if self.delivered is None and self.awaited.end <= (self.next or 0):  # out of order, they may still be lost
            self.awaited = NO_RANGES

    def delay_nothing(self) -> None:
        """Stop waiting for gaps. Earlier events arrived in order, except those skipped."""
        if self.began is not None and self.next is not None:
            self.delivered = RangeSet(self.passed_over.missing(self.began[1], self.next))
            self.passed_over = NO_RANGES

    def keep_order(self) -> None:
        """Keep the order from now on. Events that have not arrived may still be owed."""
        if self.delivered is not None and self.began is not None and self.next is not None:
            self.pass_over(self.delivered.missing(self.began[1], self.next))
            self.delivered = None

    def pass_lost(self, at: int) -> None:
        """Expect the event at a sequence, or the first one after it that is not lost."""
        self.next = self.lost.contiguous_from(at)
        if self.lost and self.lost.end <= self.next and self.began is not None:
            self.lost = NO_RANGES

    def note_delivered(self, first: int, last: int) -> None:
        """Record sequences that were delivered or reported lost, if gaps delay nothing."""
        if self.delivered is None:  # until now it may have waited for gaps to be filled
            self.delivered = RangeSet([(self.began[1], self.next or 0)] if self.began is not None else [])
        self.delivered.add(first, last)
        if len(self.delivered) > DELIVERED_RANGES_MAX:
            self.delivered.join_first()
