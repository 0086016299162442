"""What roots really admitted: the positions of a topic's events, whether or not a peer remembers them."""

from bisect import bisect_right
from collections.abc import Iterator
from math import inf
from operator import attrgetter
from typing import NamedTuple

from quillcast.core.envelope import Position, Term
from quillcast.core.ranges import Range
from quillcast.core.trace import Admitted


class Admission(NamedTuple):
    """A root assigned a run [first, last) of a publisher's events the positions from `position` on."""

    at: float
    machine: int
    publisher: bytes
    first: int
    last: int
    term: Term
    position: int


_first = attrgetter("first")  # within a term, a publisher's admissions continue each other


class AdmissionLog:
    """One topic's admissions, by publisher and by term."""

    def __init__(self) -> None:
        self.by_publisher: dict[bytes, dict[Term, list[Admission]]] = {}
        self.by_term: dict[Term, list[Admission]] = {}
        self.best_effort: set[Term] = set()  # the terms of best-effort sessions

    def note(self, at: float, machine: int, record: Admitted, *, reliable: bool = True) -> None:
        """A root admitted a run of events, in a reliable session or not."""
        if not reliable:
            self.best_effort.add(record.term)
        last = record.first + record.count
        admission = Admission(at, machine, record.publisher, record.first, last, record.term, record.index)
        self.by_publisher.setdefault(record.publisher, {}).setdefault(record.term, []).append(admission)
        self.by_term.setdefault(record.term, []).append(admission)

    def admitted(self, publisher: bytes, sequence: int) -> Iterator[Admission]:
        """Every admission of an event. Each term assigns it another position."""
        for line in self.by_publisher.get(publisher, {}).values():
            at = bisect_right(line, sequence, key=_first) - 1
            if at >= 0 and sequence < line[at].last:
                yield line[at]

    def is_reliable(self, publisher: bytes, sequence: int) -> bool:
        """Whether an event was admitted, and only in reliable sessions."""
        terms = {each.term for each in self.admitted(publisher, sequence)}
        return bool(terms) and not terms & self.best_effort

    def positions(self, publisher: bytes, sequence: int, by: float = inf) -> Iterator[Position]:
        """The positions that an event had by a time."""
        for admission in self.admitted(publisher, sequence):
            if admission.at <= by:
                yield Position(admission.term, admission.position + sequence - admission.first)

    def events(self, term: Term, first: int, last: int) -> Iterator[tuple[bytes, Range]]:
        """The events at positions [first, last) of a term, as runs of a publisher's sequences."""
        line = self.by_term.get(term, [])
        start = max(0, bisect_right(line, first, key=lambda each: each.position) - 1)
        for each in line[start:]:
            if each.position >= last:
                return
            shift = each.first - each.position
            begin, end = max(first + shift, each.first), min(last + shift, each.last)
            if begin < end:
                yield each.publisher, (begin, end)
