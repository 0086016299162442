"""A run as one self-contained HTML page."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from typing import Any, NamedTuple

import msgspec

from quillcast.evaluation.experiment import Experiment
from quillcast.evaluation.report import charts
from quillcast.evaluation.report.charts import Histograms
from quillcast.evaluation.report.figures import Comparison, Figures, figure, label, names, number
from quillcast.evaluation.report.worst import Worst
from quillcast.pipeline import pictures

PACKAGES = ("quillcast", "pyspark", "numba", "numpy", "pyarrow", "matplotlib")


class Outcome(NamedTuple):
    """Everything that the page shows.

    `network` describes the topology and what was repaired in it; `comparisons` are published figures beside ours;
    `delays` are columns of `schemas.DELAYS`; `worst` is the tree to draw.
    """

    experiment: Experiment
    network: str
    result: Mapping[str, Any]
    comparisons: Sequence[Comparison]
    delays: Mapping[str, Mapping[str, Sequence[float]]]
    histograms: Mapping[str, Histograms]
    worst: Worst | None


def render(outcome: Outcome) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": number}
    entry = resources.files("quillcast.evaluation.report") / "page.html.j2"
    policies: Mapping[str, Figures] = outcome.result["policies"]
    places = names(policies.values())
    worst = outcome.worst
    labels = {policy: label(policy, each) for policy, each in policies.items()}
    return environment.from_string(entry.read_text("utf-8")).render(
        experiment=outcome.experiment,
        network=outcome.network,
        result=outcome.result,
        comparisons=outcome.comparisons,
        policies=policies,
        labels=labels,
        rows=[(name, [figure(policies[policy], name) for policy in policies]) for name in places],
        parameters=list(_flat(msgspec.to_builtins(outcome.experiment))),
        versions=versions(),
        rad_picture=charts.ratios({labels[policy]: each["rad"] for policy, each in outcome.delays.items()}, "rad"),
        rmd_picture=charts.ratios({labels[policy]: each["rmd"] for policy, each in outcome.delays.items()}, "rmd"),
        tables_picture=charts.node_stress(outcome.histograms, "tables", "children tables of a peer"),
        entries_picture=charts.node_stress(outcome.histograms, "entries", "entries in a peer's children tables"),
        link_picture=charts.link_stress(outcome.histograms),
        worst=worst,
        worst_picture=pictures.tree(worst.rows, subscribers=worst.subscribers) if worst else "",
    )


def versions() -> dict[str, str]:
    """The versions of the libraries that an evaluation uses."""
    return {package: metadata.version(package) for package in PACKAGES} | {"python": platform.python_version()}


def _flat(values: Mapping[str, Any], table: str = "") -> Any:
    """Settings with the names of their tables, without the published figures."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{table}{key}.")
        elif key not in {"published", "title"}:
            yield f"{table}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
