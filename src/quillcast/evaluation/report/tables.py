"""The tables of a page: a row for each policy, and as many figures in each table as fit."""

from collections.abc import Mapping
from typing import NamedTuple

from quillcast.evaluation.report.figures import Figures, figure, names

TITLES = {
    "Delay penalty, from the publisher to each member": ("rad", "rmd"),
    "Delay penalty from the root": ("rad_from_root", "rmd_from_root"),
    "Load of peers": ("tables", "entries", "state"),
}
MESSAGES, CHURN, FURTHER = "Messages", "Churn", "Further figures of events"


class Table(NamedTuple):
    """A table of figures. `groups` are the headings over columns, each with its width; `rows` begin with a policy."""

    title: str
    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[tuple[str, list[float | None]]]


def tables(policies: Mapping[str, Figures]) -> list[Table]:
    """All figures of all policies."""
    of_heading: dict[str, list[str]] = {}
    for name in names(policies.values()):
        first, dot, _ = name.partition(".")
        of_heading.setdefault(first if dot else "", []).append(name)
    titles: dict[str, list[str]] = {title: [] for title in (*TITLES, FURTHER, MESSAGES, CHURN)}
    for heading in of_heading:
        known = next((title for title, headings in TITLES.items() if heading in headings), FURTHER)
        titles[{"": MESSAGES, "churn": CHURN}.get(heading, known)].append(heading)
    return [
        _table(title, {heading: of_heading[heading] for heading in headings}, policies)
        for title, headings in titles.items()
        if headings
    ]


def _table(title: str, of_heading: Mapping[str, list[str]], policies: Mapping[str, Figures]) -> Table:
    places = [name for named in of_heading.values() for name in named]
    return Table(
        title,
        [(heading, len(named)) for heading, named in of_heading.items()],
        [name.rpartition(".")[2] for name in places],
        [(policy, [figure(figures, name) for name in places]) for policy, figures in policies.items()],
    )
