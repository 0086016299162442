"""Compare finished runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quillcast.core.errors import LocalError
from quillcast.evaluation.command import console_for, plain_table
from quillcast.evaluation.folder import PICTURES, REPORT, read_result, write
from quillcast.evaluation.report.comparison import Content, Run, render, seeds_of
from quillcast.evaluation.report.figures import figure, names, number


def compare(runs: Sequence[Path]) -> dict[str, Any]:
    """Return the results of the runs in these folders, and the ratio of each shared figure to the first run's.

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


def _cells(row: Mapping[str, Any]) -> list[str]:
    """The values of a row for people: the first run's, and those of others with their ratio to it."""
    ratios = [None, *row["over_first"][1:]]
    return [
        number(value) + (f" ({over:.2f} x)" if over is not None else "")
        for value, over in zip(row["values"], ratios, strict=True)
    ]


def _names(runs: Sequence[Path]) -> list[str]:
    """Short names of runs: the last parts of their folders, if those differ."""
    short = [path.absolute().name for path in runs]
    return short if len(set(short)) == len(short) else [str(path) for path in runs]


def write_page(compared: Mapping[str, Any], runs: Sequence[Path], output: Path) -> Path:
    """Write the comparison as a page with pictures into a folder of its own. Returns its path."""
    if output.exists() and any(each.name not in {REPORT, PICTURES} for each in output.iterdir()):
        raise LocalError(f"{output} is not empty; name another folder with --output")
    told = [
        Run(name, result, (path.absolute() / REPORT).as_uri())
        for name, path, result in zip(_names(runs), runs, compared["runs"], strict=True)
    ]
    rows: dict[str, list[tuple[str, list[str]]]] = {}
    for row in compared["figures"]:
        rows.setdefault(row["policy"], []).append((row["figure"], _cells(row)))
    subtitle = f"{len(runs)} runs side by side; in parentheses, the ratio to {told[0].name}."
    content = Content("A comparison of evaluations", subtitle, told, told, [run.name for run in told], rows)
    for name, text in render(content).items():
        write(output, name or REPORT, text.encode())
    return output / REPORT


def compare_command(runs: Sequence[Path], output: Path | None, *, as_json: bool) -> dict[str, Any]:
    """Compare runs and print the comparison. With `output`, also write it there as a page."""
    compared = compare(runs)
    table = plain_table("policy", "figure", *_names(runs), words={0, 1})
    results = compared["runs"]
    for name in ("nodes", "groups"):
        table.add_row("", name, *[number(result[name]) for result in results])
    table.add_row("", "seeds", *map(seeds_of, results))
    table.add_row("", "seconds", *[number(result["seconds"]["total"]) for result in results])
    last = ""
    for row in compared["figures"]:
        table.add_row(row["policy"] if row["policy"] != last else "", row["figure"], *_cells(row))
        last = row["policy"]
    console = console_for(as_json=as_json)
    console.print(table)
    if output is not None:
        compared["report"] = str(write_page(compared, runs, output.absolute()))
        console.print(f"The page is {compared['report']}", soft_wrap=True, highlight=False)
    return compared
