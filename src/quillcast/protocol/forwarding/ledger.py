"""What stood at positions whose bundles are gone: kept longer than the events, so that reports of losses are exact."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.messages import Number, WireId
from quillcast.core.ranges import Range, RangeSet

RUNS_MAX = 1024  # of one term; a guess: 100 kB. Of older ones it is not known any more whose events they were


class Run(NamedTuple):
    """A publisher's events that follow one another: the first one's index in a term and sequence, and how many."""

    at: Number
    publisher: WireId
    first: Number
    events: Number


class Gone(NamedTuple):
    """Positions of a term of which nothing is kept any more, and whose events stood there, as far as is known."""

    term: Term
    ranges: tuple[Range, ...]
    runs: tuple[Run, ...]


class Ledger:
    """The runs of a term's bundles that are gone, in the order in which these went."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def note(self, bundle: Bundle) -> None:
        """A bundle is gone."""
        for run in runs_of(bundle):
            self.add(run)

    def add(self, run: Run) -> None:
        """Keep a run, as a part of the last one if it goes on from there; beyond the bound the oldest is forgotten."""
        runs = self._runs
        if runs:
            at, publisher, first, events = runs[-1]
            if publisher == run.publisher and at + events == run.at and first + events == run.first:
                runs[-1] = Run(at, publisher, first, events + run.events)
                return
        runs.append(run)
        if len(runs) > RUNS_MAX:
            del runs[: RUNS_MAX // 8]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)


NO_LEDGER: Final = Ledger()
"""Of all flows of which nothing is gone yet; never added to."""


def runs_of(bundle: Bundle) -> Iterator[Run]:
    """Whose events a bundle's positions are."""
    at = bundle.envelope.first
    for block in bundle.blocks:
        yield Run(at, block.publisher, block.first, block.count)
        at += block.count


def sequences_of(runs: Iterable[Run]) -> dict[bytes, RangeSet]:
    """The sequences in runs, by publisher."""
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
