"""The runs of events whose bundles were discarded. Kept longer than the events, so that loss reports are exact."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import AnyTerm, Term, new_tuple
from quillcast.core.messages import Number, WireId
from quillcast.core.ranges import Range, RangeSet

RUNS_MAX = 1024  # per term; a guess: 100 kB. The publishers of older events are then unknown


class Run(NamedTuple):
    """Consecutive events of one publisher: index of the first in a term, publisher, first sequence, and count."""

    at: Number
    publisher: WireId
    first: Number
    events: Number


RunsByTerm = Mapping[Term, Iterable[Run]]
"""The runs of events that terms after some term hold or held."""


class Gone(NamedTuple):
    """Positions of a term that are no longer kept, and the runs of events there, as far as they are known.

    `again`: may its events be admitted again in a later term? So if it is live, or ended recently.
    """

    term: AnyTerm
    ranges: tuple[Range, ...]
    runs: tuple[Run, ...]
    again: bool = True


_NO_RUN = Run(0, b"", 0, 0)


class Ledger:
    """The runs of a term's discarded bundles, in the order in which they were discarded."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def add(self, runs: Iterable[Run]) -> None:
        """Add runs, each merged with the last one if possible. Beyond the bound, the oldest runs are forgotten."""
        kept = self._runs
        start, whose, sequence, count = kept.pop() if kept else _NO_RUN
        for run in runs:
            at, publisher, first, events = run
            if publisher == whose and at == start + count and first == sequence + count:
                count += events
                continue
            if count:
                kept.append(new_tuple(Run, (start, whose, sequence, count)))
            start, whose, sequence, count = run
        if count:
            kept.append(new_tuple(Run, (start, whose, sequence, count)))
        if len(kept) > RUNS_MAX:
            del kept[: max(RUNS_MAX // 8, len(kept) - RUNS_MAX)]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)


NO_LEDGER: Final = Ledger()
"""The shared empty ledger of flows that have discarded nothing. It is never added to."""


def runs_of(*bundles: Bundle) -> list[Run]:
    """The runs of events in bundles. A run that continues the one before it is part of that one."""
    runs = list[Run]()
    start, whose, sequence, end, last = 0, b"", 0, 0, 0  # of the run, and one past it in the term and its sequences
    for bundle in bundles:
        at = bundle.envelope.first
        for block in bundle.blocks:
            if at != end or block.first != last or block.publisher != whose:
                if end > start:
                    runs.append(new_tuple(Run, (start, whose, sequence, end - start)))
                start, whose, sequence = at, block.publisher, block.first
            at = end = at + block.count
            last = block.last
    if end > start:
        runs.append(new_tuple(Run, (start, whose, sequence, end - start)))
    return runs


def sequences_of(runs: Iterable[Run]) -> dict[bytes, RangeSet]:
    """The sequences of runs, by publisher."""
    found: dict[bytes, RangeSet] = {}
    for run in runs:
        found.setdefault(run.publisher, RangeSet()).add(run.first, run.first + run.events)
    return found


def within(runs: Iterable[Run], ranges: Iterable[Range]) -> list[Run]:
    """The parts of runs that lie in ranges of positions."""
    wanted = list(ranges)
    return [
        Run(start, run.publisher, run.first + start - run.at, end - start)
        for run in runs
        for first, last in wanted
        if (start := max(run.at, first)) < (end := min(run.at + run.events, last))
    ]
