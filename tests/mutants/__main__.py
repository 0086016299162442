"""Break the protocol on purpose, one subtle break at a time, and see that something notices each.

Unit tests look first, then 100 drawn histories and the experiments of scenarios/. A mutant that survives them asks for
a test, or stands in code that does nothing. With --only, the one test that the catalogue names for the mutant looks,
if it names one. Exit code 1: one survived.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.trial import UNITS, Caught, asked, broken_in_the_original, histories, units


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if all were caught, 1 if one survived, 2 where none could be tried."""
    options = _options(arguments)
    mutants = [mutant for mutant in MUTANTS if options.only in (None, mutant.name)]
    if not mutants:
        _say(f"no mutant is called {options.only!r}; there are: {', '.join(mutant.name for mutant in MUTANTS)}")
        return 2
    began = time.perf_counter()
    caught = dict.fromkeys(mutants, Caught("", 0.0))
    if not options.histories:
        alone = asked(mutants[0]) if options.only else [UNITS]
        if failing := units(None, alone).by:
            _say(f"{failing} fails without any mutant; make it pass first")
            return 2
        tests = (lambda _: alone) if options.only else lambda mutant: [*asked(mutant), UNITS]
        caught = _try_all(mutants, lambda mutant: units(mutant, tests(mutant)), options.jobs, "units")
    is_named = options.only and mutants[0].seen_by and not options.histories
    if left := [mutant for mutant in mutants if not (caught[mutant].by or is_named)]:
        broken = broken_in_the_original()
        _say(f"histories that break without any mutant, and do not count: {'; '.join(broken) or 'none'}")
        seen = _try_all(left, lambda mutant: histories(mutant, broken), options.jobs, "histories")
        caught |= {mutant: Caught(late.by, caught[mutant].seconds + late.seconds) for mutant, late in seen.items()}
    survivors = [mutant.name for mutant in mutants if not caught[mutant].by]
    _say(_table(mutants, caught))
    _say(f"{len(mutants) - len(survivors)} of {len(mutants)} caught in {time.perf_counter() - began:.0f} s")
    if options.json:
        results = [{"mutant": m.name, "caught_by": caught[m].by, "seconds": caught[m].seconds} for m in mutants]
        _say(json.dumps({"mutants": results, "survivors": survivors}))
    return 1 if survivors else 0


def _try_all(
    mutants: Iterable[Mutant], look: Callable[[Mutant], Caught], jobs: int, where: str
) -> dict[Mutant, Caught]:
    """Put all on trial, so many side by side; a line for each as it ends."""
    caught: dict[Mutant, Caught] = {}
    with ThreadPoolExecutor(jobs) as pool:
        trials = {pool.submit(look, mutant): mutant for mutant in mutants}
        try:
            for trial in as_completed(trials):
                mutant, seen = trials[trial], trial.result()
                caught[mutant] = seen
                by = seen.by or "not seen"
                _say(f"{len(caught)} of {len(trials)} {where}, {seen.seconds:.0f} s: {mutant.name}: {by}")
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C those that run end, and no other begins
    return caught


def _table(mutants: list[Mutant], caught: dict[Mutant, Caught]) -> str:
    rows = [("mutant", "caught by", "seconds")]
    rows += [(m.name, caught[m].by or f"EMPTY: {m.promise}", f"{caught[m].seconds:.1f}") for m in mutants]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:{wide[0]}}  {by:{wide[1]}}  {seconds:>7}" for name, by, seconds in rows)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="this mutant only, and the test that should notice it")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials side by side (1)")
    parser.add_argument(
        "--histories", action="store_true", help="ask no unit tests: what would the simulator see alone?"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
