"""A run as one HTML page, with its pictures inside and as files beside it."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from quillcast.evaluation.experiment import Experiment
from quillcast.evaluation.folder import PICTURES, of_policy
from quillcast.evaluation.report import charts
from quillcast.evaluation.report.charts import Histograms, Picture
from quillcast.evaluation.report.figures import RATIOS, Comparison, Figures, label, number
from quillcast.evaluation.report.tables import tables
from quillcast.evaluation.report.worst import Worst
from quillcast.pipeline import pictures

PACKAGES = ("quillcast", "pyspark", "numba", "numpy", "pyarrow", "matplotlib")
OF_DEPLOYMENT = ("places", "links", "peers", "groups")
OF_POLICY = ("trees", "delays", "stress", "histograms")


class Outcome(NamedTuple):
    """Everything that the page shows.

    `network` describes the topology and what was repaired in it; `comparisons` are published figures beside ours;
    `delays` are columns of `schemas.DELAYS`, with those of the experiment's metrics; `worst` is the tree to draw.
    """

    experiment: Experiment
    network: str
    result: Mapping[str, Any]
    comparisons: Sequence[Comparison]
    delays: Mapping[str, Mapping[str, Sequence[float]]]
    histograms: Mapping[str, Histograms]
    worst: Worst | None


def render(outcome: Outcome) -> dict[str, str]:
    """The page and its pictures: the name of each file, with its text. The page's own name is empty."""
    policies: Mapping[str, Figures] = outcome.result["policies"]
    labels = {policy: label(policy, each) for policy, each in policies.items()}
    worst, drawn = outcome.worst, list(_pictures(outcome, labels))
    page = fill(
        "page.html.j2",
        experiment=outcome.experiment,
        network=outcome.network,
        result=outcome.result,
        comparisons=outcome.comparisons,
        policies=policies,
        tables=tables({labels[policy]: each for policy, each in policies.items()}),
        pictures=drawn,
        deployment_tables=OF_DEPLOYMENT,
        policy_tables=[
            (policy, [(name, quote(of_policy(f"tables/{name}", policy))) for name in OF_POLICY]) for policy in policies
        ],
        parameters=list(_flat(msgspec.to_builtins(outcome.experiment))),
        versions=versions(),
        worst=worst,
        worst_picture=pictures.tree(worst.rows, subscribers=worst.subscribers) if worst else "",
    )
    return {"": page, **files_of(drawn)}


def fill(template: str, **values: Any) -> str:
    """A page from its template."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("quillcast.evaluation.report", ""),
    )
    environment.filters.update({"number": number, "spaced": _spaced})
    return environment.get_template(template).render(**values)


def _spaced(name: str) -> str:
    """The name of a figure as a heading."""
    return " ".join(word.upper() if word in {"ip", "rad", "rmd"} else word for word in name.split("_"))


def files_of(drawn: Sequence[Picture]) -> dict[str, str]:
    """The files of pictures: each as SVG, and its data as CSV."""
    return {
        f"{PICTURES}/{picture.name}.{kind}": text
        for picture in drawn
        for kind, text in (("svg", pictures.standalone(picture.svg)), ("csv", picture.csv))
    }


def _pictures(outcome: Outcome, labels: Mapping[str, str]) -> Iterator[Picture]:
    titles = {"rad": "Delay penalty: average", "rmd": "Delay penalty: maximum"}
    further = [name for name in next(iter(outcome.delays.values())) if name not in _NO_METRIC]
    for name in ("rad", "rmd", *further):
        of_policies = {labels[policy]: columns[name] for policy, columns in outcome.delays.items()}
        yield charts.shares(of_policies, name, titles.get(name, name[0].upper() + name[1:]))
        if name == "rmd":
            yield charts.penalty_by_size({labels[policy]: each for policy, each in outcome.result["policies"].items()})
    histograms = {labels[policy]: each for policy, each in outcome.histograms.items()}
    yield charts.node_stress(histograms, "tables", "children tables of a peer")
    yield charts.node_stress(histograms, "entries", "entries in a peer's children tables")
    yield charts.link_stress(histograms)


_NO_METRIC = {*RATIOS, "children_max", "members", "depth"}


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
