"""The pictures of a run, as SVG in the page's text colour, each with the table of its data."""

import csv
import io
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from quillcast.evaluation.report.figures import KIND_PEER, Counts, Figures, number, on_links, percentile
from quillcast.pipeline.pictures import INK, new_figure, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Histograms = Mapping[tuple[str, str], Counts]

POINTS_MAX = 200  # of a curve; more are not visible
CUT, CUT_POLICIES = 99, 85  # an axis of delays shows this percentage of the events, for this percentage of the policies
WIDTH, HEIGHT = 9.6, 3.8  # inches
LABEL_SIGNS, LABEL_HEIGHT = 28, 0.2  # of a line of a label, in inches
COLOURS = ("#3b82c4", "#e0903a", "#5aa469", "#a371c9", "#c7656f", "#8a8f98", "#2fa6a0", "#a67c52")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (4, 1.5, 1, 1.5, 1, 1.5)))
WORDS = {
    "rad": "RAD: average over average delay of IP multicast",
    "rmd": "RMD: maximum over maximum delay of IP multicast",
    "hops": "hops: messages one after another to a member, on average",
}


class Picture(NamedTuple):
    """A picture with its data.

    `name` is that of its files; `header` and `rows` are the table of its points; `note` names what it leaves out.
    """

    name: str
    title: str
    svg: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    @property
    def csv(self) -> str:
        """The table as CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()


def shares(policies: Mapping[str, Sequence[float]], name: str, title: str) -> Picture:
    """The distribution of a figure of events, such as `rad`, for each policy. A few outliers are left out."""
    known = {policy: np.sort(np.array(values, float)) for policy, values in policies.items()}
    known = {policy: values[~np.isnan(values)] for policy, values in known.items()}
    most, told = _end({policy: percentile(values.tolist(), CUT) for policy, values in known.items() if len(values)})
    figure, axes = new_figure(WIDTH, max(HEIGHT, LABEL_HEIGHT * len(policies) + 0.6))
    rows = []
    for at, (policy, values) in enumerate(known.items()):
        kept = np.unique(np.linspace(0, len(values) - 1, POINTS_MAX).astype(int))[: len(values)].tolist()
        points = [(float(values[rank]), 100 * (rank + 1) / len(values)) for rank in kept]
        rows += [(policy, *point) for point in points]
        inside = sum(x <= most for x, _ in points)
        axes.step(*_columns(points[: inside + 1]), where="post", label=policy, **style(at))
    axes.set_xlim(min([1.0, *(float(values[0]) for values in known.values() if len(values))]), most * 1.02)
    axes.set_ylim(0, 101)
    axes.set_xlabel(WORDS.get(name, name))
    axes.set_ylabel("events, %")
    beyond = {policy: values[values > most] for policy, values in known.items()}
    beyond_it = [
        f"{policy}: {number(100 * len(values) / len(known[policy]))} %, up to {number(float(values[-1]))}"
        for policy, values in beyond.items()
        if len(values)
    ]
    note = f"{told} {CUT} % of the events are within. Beyond it: {'; '.join(beyond_it)}." if beyond_it else ""
    return Picture(name, title, _finished(figure, axes, name), ("policy", name, "percent"), rows, note)


def _end(ends: Mapping[str, float]) -> tuple[float, str]:
    """The end of an axis for policies with different ends, and a note about it. A few outlying policies are cut off."""
    most = percentile(sorted(ends.values()), CUT_POLICIES) if ends else 1.0
    count = sum(end <= most for end in ends.values())
    return most, f"The axis ends at {number(most)}: for {count} of {len(ends)} policies,"


def penalty_by_size(policies: Mapping[str, Figures]) -> Picture:
    """The median penalty by group size, for each policy. A few outliers are left out."""
    rows = [
        (policy, each["members_min"], each["members_max"], each["events"], *each["rad"].values())
        for policy, figures in policies.items()
        for each in figures["by_size"]
    ]
    most, told = _end({policy: max([row[4] for row in rows if row[0] == policy], default=1.0) for policy in policies})
    figure, axes = new_figure(WIDTH, max(HEIGHT, LABEL_HEIGHT * len(policies) + 0.6))
    for at, policy in enumerate(policies):
        points = [((row[1] * row[2]) ** 0.5, row[4]) for row in rows if row[0] == policy and row[4] <= most]
        axes.plot(*_columns(points), label=policy, marker="o", markersize=3, **style(at))
    axes.set_xscale("log")
    axes.set_ylim(None, most * 1.03)
    axes.set_xlabel("members of the group")
    axes.set_ylabel("median RAD")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    beyond = [f"{row[0]}, {row[1]:,} to {row[2]:,} members: {number(row[4])}" for row in rows if row[4] > most]
    note = f"{told} all points are within. Beyond it: {'; '.join(beyond)}."
    header = ("policy", "members_min", "members_max", "events", "rad_median", "rad_p90", "rad_p99", "rad_max")
    svg = _finished(figure, axes, "rad_by_size")
    return Picture("rad_by_size", "Delay penalty by group size", svg, header, rows, note if beyond else "")


def node_stress(policies: Mapping[str, Histograms], name: str, what: str) -> Picture:
    """The number of peers with at least a load (`tables` or `entries`), for each policy. `what` labels the axis."""
    figure, axes = new_figure(WIDTH, max(HEIGHT, LABEL_HEIGHT * len(policies) + 0.6))
    rows: list[tuple[str, float, int]] = []
    for at, (policy, histograms) in enumerate(policies.items()):
        points = _at_least(histograms[KIND_PEER, name])
        rows += [(policy, *point) for point in points]
        axes.step(*_columns(points), where="pre", label=policy, **style(at))
    _log(axes)
    axes.set_xlabel(f"{what}: at least")
    axes.set_ylabel("peers")
    title = f"{what[0].upper()}{what[1:]}"
    return Picture(name, title, _finished(figure, axes, name), ("policy", f"{name}_at_least", "peers"), rows)


def link_stress(policies: Mapping[str, Histograms]) -> Picture:
    """The number of physical links with at least a number of messages, for each policy and for IP multicast."""
    figure, axes = new_figure(WIDTH, max(HEIGHT, LABEL_HEIGHT * len(policies) + 0.6))
    curves = {policy: on_links(histograms, "messages") for policy, histograms in policies.items()}
    rows: list[tuple[str, float, int]] = []
    for at, (policy, counts) in enumerate(curves.items()):
        points = _at_least(counts)
        rows += [(policy, *point) for point in points]
        axes.step(*_columns(points), where="pre", label=policy, **style(at))
    points = _at_least(on_links(next(iter(policies.values())), "ip_messages"))
    rows += [("IP multicast", *point) for point in points]
    axes.step(*_columns(points), where="pre", label="IP multicast", color=INK, linewidth=1.2, alpha=0.7)
    _log(axes)
    axes.set_xlabel("messages: at least")
    axes.set_ylabel("physical links")
    svg = _finished(figure, axes, "links")
    return Picture("links", "Messages on physical links", svg, ("policy", "messages_at_least", "links"), rows)


class Mark(NamedTuple):
    """A figure of a policy in one run, with its interval if there is one."""

    run: str
    policy: str
    value: float
    low: float | None
    high: float | None


def side_by_side(marks: Sequence[Mark], name: str, title: str) -> Picture:
    """A figure of several runs, policies below each other."""
    policies, runs = (
        list(dict.fromkeys(column)) for column in ([mark.policy for mark in marks], [mark.run for mark in marks])
    )
    figure, axes = new_figure(WIDTH, 0.9 + len(policies) * max(0.24, 0.1 * (1 + len(runs))))
    for at, run in enumerate(runs):
        mine = [mark for mark in marks if mark.run == run]
        heights = [policies.index(mark.policy) + (at + 1) / (len(runs) + 1) - 0.5 for mark in mine]
        colour = COLOURS[at % len(COLOURS)]
        for mark, height in zip(mine, heights, strict=True):
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [height, height], color=colour, linewidth=2, alpha=0.6)
        axes.plot([mark.value for mark in mine], heights, "o", color=colour, markersize=5, label=run)
    values = [mark.value for mark in marks if mark.value > 0]
    if values and max(values) > 20 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.set_yticks(range(len(policies)), policies)
    axes.set_ylim(len(policies) - 0.4, -0.6)
    axes.set_xlabel(title)
    svg = _finished(figure, axes, name, legend=len(runs) > 1)
    return Picture(name, title, svg, ("run", "policy", name, "low", "high"), list(marks))


def _at_least(counts: Counts) -> list[tuple[float, int]]:
    """For each value above zero, how many have at least that much. Of many values, only the visible ones."""
    values = [value for value, count in counts if value > 0]
    from_end = np.cumsum([count for value, count in reversed(counts) if value > 0])[::-1].tolist()
    kept: Sequence[int] = range(len(values))
    if len(values) > POINTS_MAX:  # values at even distances on a logarithmic axis
        wanted = np.geomspace(values[0], values[-1], POINTS_MAX)
        kept = np.unique(np.searchsorted(values, wanted, side="right") - 1).tolist()
    return [(values[at], from_end[at]) for at in kept]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _log(axes: "Axes") -> None:
    """Logarithmic axes for counts."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.8, None)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def style(at: int) -> dict[str, Any]:
    """The style of a line. The next one differs in colour and dashes; lines of the same colour differ in dashes."""
    colour, dash = COLOURS[at % len(COLOURS)], DASHES[(at + at // len(COLOURS)) % len(DASHES)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.8}


def _finished(figure: "Figure", axes: "Axes", name: str, *, legend: bool = True) -> str:
    """The picture, with the names of its lines beside it."""
    if legend:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "borderaxespad": 0}
        handles, names = axes.get_legend_handles_labels()
        labels = [fill(each, LABEL_SIGNS, break_long_words=False, break_on_hyphens=False) for each in names]
        axes.legend(handles, labels, **place, frameon=False, labelcolor=INK, fontsize=8.5, handlelength=3.2)
    return svg_of(figure, name)
