"""The command `quillcast evaluate EXPERIMENT`, and the tables printed at its end."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from quillcast.evaluation.experiment import Experiment
from quillcast.evaluation.folder import RESULT, changed_inputs, next_folder, read_experiment
from quillcast.evaluation.progress import display
from quillcast.evaluation.report.comparison import seeds_of
from quillcast.evaluation.report.figures import beside_published, figure, label, names, number
from quillcast.evaluation.run import evaluate, inputs_of
from quillcast.evaluation.seeds import evaluate_seeds

FOLDER = Path("quillcast-evaluate")
WIDTH = 140  # of tables that go to a file or a pipe
COLUMNS_MAX = 4  # policies side by side
MAIN = {
    "rad.median": "RAD",
    "rad.max": "worst",
    "rad_from_root.median": "from root",
    "rmd.median": "RMD",
    "rmd.max": "worst ",
    "tables.mean": "tables",
    "entries.mean": "entries",
    "entries.max": "most",
    "children_per_group_max": "children",
    "messages_over_ip": "messages/IP",
    "core_link_max_over_ip": "core link/IP",
}
"""The figures that are shown when there are many policies, and their column titles."""


def evaluate_command(
    experiment: Experiment,
    output: Path | None,
    seeds: Sequence[int] = (),
    *,
    master: str,
    remote: str | None,
    as_json: bool,
) -> dict[str, Any]:
    """Run an experiment, with each of the `seeds` if there are any; show progress and results; return the result.

    Without `output`, the run's folder is named after the experiment, or is that of a stopped run. With `as_json`,
    everything for people goes to standard error.
    """
    path = output or folder_of(experiment, seeds)
    progress, console = Console(stderr=True), console_for(as_json=as_json)
    try:
        if seeds:
            show = partial(display, progress)
            result = evaluate_seeds(experiment, seeds, path, show, master=master, remote=remote)
        else:
            result = evaluate(experiment, path, display(progress), master=master, remote=remote)
    except KeyboardInterrupt:
        progress.print(f"stopped; finished parts are kept: resume with --output {path}", soft_wrap=True)
        raise
    print_result(experiment, result, console)
    return result


def folder_of(experiment: Experiment, seeds: Sequence[int] = ()) -> Path:
    """The folder of a stopped run to resume, made with the same inputs; else a new folder."""
    inputs = inputs_of(experiment)
    if seeds:
        name = f"{experiment.name}-{experiment.with_(seed=seeds[0]).identity}-{len(seeds)}-seeds"

        def unfinished(path: Path) -> bool:
            return not (path / RESULT).exists() and not any(changed_inputs(run, inputs) for run in path.glob("seed-*"))

        return next_folder(FOLDER / name, unfinished)

    def stopped(path: Path) -> bool:
        if (path / RESULT).exists() or changed_inputs(path, inputs):
            return False
        return not any(path.iterdir()) or read_experiment(path).identity == experiment.identity

    return next_folder(FOLDER / f"{experiment.name}-{experiment.identity}", stopped)


def console_for(*, as_json: bool) -> Console:
    """The console for tables."""
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def print_result(experiment: Experiment, result: dict[str, Any], console: Console) -> None:
    """Print the figures of each policy, with the published ones."""
    policies = result["policies"]
    console.print(table_of(policies, result.get("intervals", {})))
    comparisons = beside_published(policies, experiment.published)
    if comparisons:
        table = plain_table("policy", "figure", "published", "here", "meaning", words={0, 1, 4})
        for row in comparisons:
            table.add_row(row.policy, row.figure, number(row.published), number(row.ours), f"[dim]{row.source}[/]")
        console.print(table)
    seconds, memory = result["seconds"]["total"], result["peak_rss_bytes"] / 1e9
    size = f"{result['nodes']:,} peers, {result['groups']:,} groups, {'seeds' if 'seeds' in result else 'seed'}"
    told = f"{size} {seeds_of(result)} in {seconds:.1f} s and {memory:.2f} GB"
    console.print(told, highlight=False)
    console.print(f"The report is {result['report']}", soft_wrap=True, highlight=False)


def table_of(columns: dict[str, Any], intervals: Mapping[str, Any]) -> Table:
    """The main figures, a row for each policy; with few policies all figures but percentiles, a column for each.

    Figures of several seeds have `intervals`.
    """
    if len(columns) > COLUMNS_MAX:
        table = plain_table("policy", *MAIN.values(), words={0})
        for policy, figures in columns.items():
            table.add_row(label(policy, figures), *[number(figure(figures, name)) for name in MAIN])
        return table
    table = plain_table("", *map(label, columns, columns.values()), words={0})
    for name in names(columns.values()):
        if not name.endswith((".p90", ".p99")):
            known = [intervals.get(policy, {}).get(name) for policy in columns]
            values = [number(figure(figures, name)) for figures in columns.values()]
            table.add_row(name, *[value + _interval(each) for value, each in zip(values, known, strict=True)])
    return table


def _interval(known: Mapping[str, float] | None) -> str:
    return f" ({number(known['low'])} to {number(known['high'])})" if known and known["low"] is not None else ""


def plain_table(*columns: str, words: set[int]) -> Table:
    """A table without lines. All columns are numbers except those in `words`."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place in words else "right")
    return table
