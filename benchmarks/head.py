"""The common parts of benchmark programs: options, systems that take turns, and the output of rows."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from clients import SYSTEMS, missing

Row = dict[str, Any]
Run = TypeVar("Run")
"""The result of one round of a system, usually a row."""


def parser(doc: str | None, systems: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Make the options of a program that measures these systems by default."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="one short round, in about a minute")
    made.add_argument("--json", action="store_true", help="print one object on the last line")
    chosen = list(systems)
    if chosen:
        made.add_argument(
            "--systems", nargs="+", choices=list(SYSTEMS), default=chosen, metavar="NAME", help=str(chosen)
        )
    return made


def in_turns(systems: list[str], rounds: int, measure: Callable[[str], Run]) -> dict[str, list[Run]]:
    """Measure every installed system once in every round. Progress goes to standard error."""
    runs: dict[str, list[Run]] = {system: [] for system in systems if missing(system) is None}
    for number in range(1, rounds + 1):
        for system, made in runs.items():
            began_s = time.monotonic()
            made.append(measure(system))
            print(
                f"round {number} of {rounds}: {system}, {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True
            )
    return runs


def missing_rows(systems: list[str]) -> list[Row]:
    """A row for each system that cannot be measured here, with the reason."""
    return [{"system": system, "missing": why} for system in systems if (why := missing(system)) is not None]


def median(runs: list[Row], name: str, digits: int | None = None) -> Any:
    """The median of a figure over the rounds."""
    return round(statistics.median(run[name] for run in runs), digits)


def costs(runs: list[Row]) -> Row:
    """The costs and losses of runs, and their number."""
    return {
        "cpu_s_per_million": median(runs, "cpu_s_per_million", 2),
        "peak_rss_bytes": peaks(run["used"] for run in runs),
        "lost": max(run["lost"] for run in runs),
        "rounds": len(runs),
    }


def peaks(used: Iterable[dict[str, dict[str, float]]]) -> dict[str, int]:
    """The peak of resident memory of each process over all rounds, bytes; for `peer 1`, `peer 2`... the largest."""
    found: dict[str, int] = {}
    for each in used:
        for role, figures in each.items():
            kind = role.partition(" ")[0]
            found[kind] = max(found.get(kind, 0), int(figures["peak_rss_bytes"]))
    return found


def tell(name: str, rows: list[Row], options: argparse.Namespace) -> None:
    """Print the rows as a table, and on request as one object on the last line."""
    columns = [each for each in dict.fromkeys(column for row in rows for column in row) if each != "settings"]
    lines = [columns, *([_cell(column, row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for system, settings in {row["system"]: row["settings"] for row in rows if "settings" in row}.items():
        print(f"{system}: {_cell('', settings)}")
    if options.json:
        print(json.dumps({"benchmark": name, "results": rows}))


def _cell(column: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case dict() if column == "peak_rss_bytes":
            return ", ".join(f"{role} {bytes_ / 2**20:.0f} MiB" for role, bytes_ in value.items())
        case dict():
            return ", ".join(f"{key} {_cell('', each)}" for key, each in value.items())
        case bool() | str():
            return str(value)
        case _:
            return f"{value:,}"
