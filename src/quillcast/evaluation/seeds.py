"""A run for each of several seeds, and their figures as means with intervals."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import msgspec

from quillcast.core.errors import LocalError
from quillcast.evaluation.experiment import Experiment
from quillcast.evaluation.folder import PICTURES, REPORT, RESULT, write
from quillcast.evaluation.progress import Display
from quillcast.evaluation.report.comparison import Content, Run, render
from quillcast.evaluation.report.figures import Figures, figure, names, number
from quillcast.evaluation.run import evaluate

SEEDS_MAX = 1000
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for 95 % on both sides, from one degree of freedom on."""


class Interval(NamedTuple):
    """The mean of a figure over seeds, its 95 % confidence interval (None from one seed), and the extremes."""

    mean: float
    low: float | None
    high: float | None
    least: float
    most: float


def parse_seeds(text: str) -> list[int]:
    """The seeds in a text such as `1-10,17`. Raises `LocalError`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= last - first < SEEDS_MAX:
            raise LocalError(f"seeds {text!r}: use numbers and ranges such as 1-10,17, at most {SEEDS_MAX} of them")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise LocalError(f"seeds {text!r} name one twice")
    return seeds


def evaluate_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    path: Path,
    show: Callable[[], Display],
    *,
    master: str = "local[*]",
    remote: str | None = None,
) -> dict[str, Any]:
    """Run an experiment with each seed, in folders of `path`; or the missing runs and parts of runs.

    Arguments, result and errors as for `evaluate`, but figures are means, with `intervals`.
    """
    others = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if any(name not in {RESULT, REPORT, PICTURES} and not name.startswith("seed-") for name in others):
        raise LocalError(f"{path} is not empty and does not hold runs with several seeds; name another with --output")
    results = []
    for seed in seeds:
        told = show()
        told.tell(f"seed {seed}")
        results.append(evaluate(experiment.with_(seed=seed), path / f"seed-{seed}", told, master=master, remote=remote))
    of_policies = {policy: combined([each["policies"][policy] for each in results]) for policy in experiment.policies}
    result = {
        "experiment": experiment.name,
        "nodes": experiment.peers,
        "groups": max(each["groups"] for each in results),
        "seeds": list(seeds),
        "seconds": {"total": round(sum(each["seconds"]["total"] for each in results), 3)},
        "peak_rss_bytes": max(each["peak_rss_bytes"] for each in results),
        "report": str(path.absolute() / REPORT),
        "runs": [str(Path(each["report"]).parent) for each in results],
        "policies": {policy: means for policy, (means, _) in of_policies.items()},
        "intervals": {policy: intervals for policy, (_, intervals) in of_policies.items()},
    }
    listed = [Run(f"seed {each['seed']}", each, f"seed-{each['seed']}/{REPORT}") for each in results]
    for name, text in render(_page(experiment, result, listed)).items():
        write(path, name or REPORT, text.encode())
    write(path, RESULT, msgspec.json.format(msgspec.json.encode(result), indent=2))
    return result


def _page(experiment: Experiment, result: dict[str, Any], listed: Sequence[Run]) -> Content:
    rows = {
        policy: [
            (
                name,
                [
                    number(figure(result["policies"][policy], name)),
                    "–" if known["low"] is None else f"{number(known['low'])} to {number(known['high'])}",
                    f"{number(known['min'])} to {number(known['max'])}",
                ],
            )
            for name, known in intervals.items()
        ]
        for policy, intervals in result["intervals"].items()
    }
    subtitle = f"{len(listed)} seeds: means, with 95 % confidence intervals as bars (Student's t)."
    columns = ["mean", "95 % interval", "all seeds"]
    return Content(experiment.title or experiment.name, subtitle, [Run("mean", result)], listed, columns, rows)


def combined(results: Sequence[Figures]) -> tuple[Figures, dict[str, dict[str, float | None]]]:
    """The means of figures, in the form of one run's, and their intervals by name. Unknown figures are None."""
    means: Figures = {}
    intervals = {}
    for name in names(results):
        values = [value for each in results if (value := figure(each, name)) is not None]
        of_all = interval(values) if len(values) == len(results) else None
        first, _, last = name.partition(".")
        (means.setdefault(first, {}) if last else means)[last or first] = of_all.mean if of_all else None
        if of_all:
            intervals[name] = {"low": of_all.low, "high": of_all.high, "min": of_all.least, "max": of_all.most}
    return means, intervals


def interval(values: Sequence[float]) -> Interval:
    """The interval of a mean, by Student's t."""
    mean, free = fmean(values), len(values) - 1
    if not free:
        return Interval(mean, None, None, mean, mean)
    t = T_95[free - 1] if free <= len(T_95) else 1.96 + 2.5 / free  # the last within a thousandth
    half = t * stdev(values) / (free + 1) ** 0.5
    return Interval(mean, mean - half, mean + half, min(values), max(values))
