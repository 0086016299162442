"""Compare finished runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quillcast.evaluation.command import console_for, plain_table
from quillcast.evaluation.folder import read_result
from quillcast.evaluation.report.figures import figure, names, number

OF_RUN = ("nodes", "groups", "seed")


def compare(runs: Sequence[Path]) -> dict[str, Any]:
    """The results of the runs in these folders, and the ratio of each figure that several have to the first run's.

    Returns `runs`, a list of results with their `folder`; and `figures`, rows of `policy`, `figure`, `values` (one for
    each run, None if missing) and `over_first`. Raises `LocalError` for a folder without a finished run.
    """
    results = [read_result(path) | {"folder": str(path)} for path in runs]
    policies = dict.fromkeys(policy for result in results for policy in result["policies"])
    rows = [row for policy in policies for row in _rows(policy, [result["policies"].get(policy) for result in results])]
    return {"runs": results, "figures": rows}


def _rows(policy: str, of_runs: Sequence[Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    rows = []
    for name in names([dict(figures) for figures in of_runs if figures is not None]):
        values = [figure(dict(figures), name) if figures is not None else None for figures in of_runs]
        first = values[0]
        over = [value / first if value is not None and first else None for value in values]
        rows.append({"policy": policy, "figure": name, "values": values, "over_first": over})
    return rows


def compare_command(runs: Sequence[Path], *, as_json: bool) -> dict[str, Any]:
    """Compare runs and print the comparison."""
    compared = compare(runs)
    table = plain_table("policy", "figure", *[path.name or str(path) for path in runs], words={0, 1})
    results = compared["runs"]
    for name in OF_RUN:
        table.add_row("", name, *[number(result[name]) for result in results])
    table.add_row("", "seconds", *[number(result["seconds"]["total"]) for result in results])
    last = ""
    for row in compared["figures"]:
        cells = [number(row["values"][0])]
        for value, over in zip(row["values"][1:], row["over_first"][1:], strict=True):
            cells.append(number(value) + (f" ({over:.2f} x)" if over is not None else ""))
        table.add_row(row["policy"] if row["policy"] != last else "", row["figure"], *cells)
        last = row["policy"]
    console_for(as_json=as_json).print(table)
    return compared
