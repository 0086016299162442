"""Several runs, or several seeds, as one HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quillcast.evaluation.report import charts
from quillcast.evaluation.report.charts import Mark, Picture
from quillcast.evaluation.report.figures import figure
from quillcast.evaluation.report.page import files_of, fill

SHOWN = {
    "rad.median": "median RAD",
    "rad.p99": "RAD, percentile 99",
    "rmd.median": "median RMD",
    "hops.median": "median hops",
    "entries.max": "most entries in a peer's children tables",
    "messages_over_ip": "messages over those of IP multicast",
    "link_max_over_ip": "busiest link over that of IP multicast",
}
"""The figures that are drawn, with their titles."""


class Run(NamedTuple):
    """A finished run. `result` is its printed result; `link` leads to its page, if that is near."""

    name: str
    result: Mapping[str, Any]
    link: str = ""


class Content(NamedTuple):
    """The content of a page: the figures of `drawn` runs as pictures, links to the `listed` ones, and a table.

    `rows` are those of each policy: a figure, and a cell for each of the `columns`.
    """

    title: str
    subtitle: str
    drawn: Sequence[Run]
    listed: Sequence[Run]
    columns: Sequence[str]
    rows: Mapping[str, Sequence[tuple[str, Sequence[str]]]]


def render(content: Content) -> dict[str, str]:
    """The page and its pictures, as `page.render`."""
    drawn = [picture for name, words in SHOWN.items() if (picture := _picture(content.drawn, name, words))]
    told = [
        {
            "name": run.name,
            "link": run.link,
            "nodes": run.result["nodes"],
            "groups": run.result["groups"],
            "seeds": seeds_of(run.result),
            "seconds": run.result["seconds"]["total"],
        }
        for run in content.listed
    ]
    return {"": fill("comparison.html.j2", content=content, runs=told, pictures=drawn), **files_of(drawn)}


def seeds_of(result: Mapping[str, Any]) -> str:
    """The seeds of a run, for people."""
    seeds = result.get("seeds", [result.get("seed")])
    whole = len(seeds) > 2 and list(seeds) == [*range(seeds[0], seeds[-1] + 1)]
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))


def _picture(runs: Sequence[Run], name: str, words: str) -> Picture | None:
    marks = []
    for run in runs:
        for policy, figures in run.result["policies"].items():
            known = run.result.get("intervals", {}).get(policy, {}).get(name, {})
            if (value := figure(figures, name)) is not None:
                marks.append(Mark(run.name, policy, value, known.get("low"), known.get("high")))
    return charts.side_by_side(marks, name.replace(".", "_"), words[0].upper() + words[1:]) if marks else None
