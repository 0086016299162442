"""The report's pictures, as SVG in the page's text colour, so they work on light and dark backgrounds."""

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

COLOURS = ("#3b82c4", "#e0903a", "#5aa469", "#a371c9", "#c7656f", "#8a8f98")  # distinguishable by colour-blind readers
KILLED = "#d64545"
INK = "#010203"  # replaced by the page's text colour in the finished picture
_POINTS_MAX = 400  # points of a curve; more are not visible


def delay_distribution(delays: Sequence[Row], percentiles: Row) -> str:
    """The share of deliveries by their delay (cumulative distribution, logarithmic time)."""
    figure, axes = new_figure(5.6, 3.2)
    total = sum(row["count"] for row in delays)
    shares = [100 * count / total for count in accumulate(row["count"] for row in delays)]
    times = [max(row["delay_ms"], 0.01) for row in delays]
    step = max(1, len(times) // _POINTS_MAX)
    kept = [*range(0, len(times) - 1, step), len(times) - 1]
    axes.step([times[n] for n in kept], [shares[n] for n in kept], where="post", color=COLOURS[0], linewidth=2)
    for name, share in (("p50_ms", 50), ("p99_ms", 99)):
        at = max(percentiles[name], 0.01)
        axes.plot([at, at], [0, share], color=INK, linewidth=0.8, linestyle=(0, (2, 3)), alpha=0.6)
        axes.plot([at], [share], "o", color=COLOURS[0], markersize=5)
        label = f"p{share}  {milliseconds(percentiles[name])}"
        axes.annotate(label, (at, share), (8, -12), textcoords="offset points", color=INK)
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    axes.set_xlabel("milliseconds from publish to delivery")
    axes.set_ylabel("deliveries, %")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    return svg_of(figure, "delays")


def deliveries_over_time(rates: Sequence[Row], repairs: Sequence[Row]) -> str:
    """Deliveries per second, stacked by topic, with each kill and the duration of its repair."""
    figure, axes = new_figure(9.6, 3.2)
    width_ns = rates[0]["width_ns"]
    start_ns = min(row["bucket_ns"] for row in rates)
    buckets = 1 + (max(row["bucket_ns"] for row in rates) - start_ns) // width_ns
    series: dict[str, list[float]] = {topic: [0.0] * buckets for topic in _busiest(rates)}
    for row in rates:
        topic = row["topic"] if row["topic"] in series else "others"
        series[topic][(row["bucket_ns"] - start_ns) // width_ns] += row["delivered"] * 1e9 / width_ns
    seconds = [n * width_ns / 1e9 for n in range(buckets)]
    axes.stackplot(seconds, list(series.values()), labels=list(series), colors=COLOURS, step="post", linewidth=0)
    top = max(map(sum, zip(*series.values(), strict=True)))
    for row in repairs:
        at = (row["kill_ns"] - start_ns) / 1e9
        if row["repair_s"]:
            axes.axvspan(at, at + row["repair_s"], color=KILLED, alpha=0.25, linewidth=0)
        axes.axvline(at, color=KILLED, linewidth=1.2)
        axes.annotate(
            f"kill {row['kill']}", (at, top * 1.04), (4, 0), textcoords="offset points", color=KILLED, va="bottom"
        )
    axes.set_xlim(0, seconds[-1] or 1)
    axes.set_ylim(0, top * 1.18)
    axes.set_xlabel("seconds")
    axes.set_ylabel("deliveries per second")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace(",", "\u202f"))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(series), frameon=False, labelcolor=INK)
    return svg_of(figure, "rates")


def _busiest(rates: Iterable[Row]) -> list[str]:
    """The topics with the most deliveries, as many as there are colours; the last place is for all others."""
    totals: dict[str, int] = {}
    for row in rates:
        totals[row["topic"]] = totals.get(row["topic"], 0) + row["delivered"]
    names = sorted(totals, key=lambda topic: (-totals[topic], topic))
    return names if len(names) <= len(COLOURS) else [*names[: len(COLOURS) - 1], "others"]


class Node(NamedTuple):
    """A peer's place in a drawn tree."""

    peer: str
    depth: int
    line: float


def tree(
    members: Sequence[Row], *, killed: str = "", moved: Collection[str] = (), subscribers: Collection[str] = ()
) -> str:
    """A topic's tree, root at the left. Filled peers subscribe; the killed peer and its orphans are highlighted."""
    nodes = place(members)
    level = max([_LEVEL, *(_SIGN * len(node.peer) + _MARGIN for node in nodes)])
    at = {node.peer: (_MARGIN + node.depth * level, _MARGIN + node.line * _LINE) for node in nodes}
    parents = {row["peer"]: row["parent"] for row in members if row["parent"] in at}
    edges = [
        _edge(at[parent], at[peer], "lost" if killed in (peer, parent) else "moved" if peer in moved else "")
        for peer, parent in parents.items()
    ]
    inner = set(parents.values())
    circles = []
    for row in members:
        peer = row["peer"]
        is_so = {"killed": peer == killed, "moved": peer in moved, "root": row["is_root"]}
        kinds = [kind for kind, holds in (is_so | {"subscriber": peer in subscribers}).items() if holds]
        circles.append(_circle(at[peer], f"✕ {peer}" if peer == killed else peer, kinds, above=peer in inner))
    width = 2 * _MARGIN + max((node.depth for node in nodes), default=0) * level + max(_LABEL, level)
    height = 2 * _MARGIN + max((node.line for node in nodes), default=0) * _LINE
    content = "".join(edges + circles)
    return f'<svg class="tree" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">{content}</svg>'


_MARGIN, _LEVEL, _LINE, _LABEL = 24, 112, 30, 90  # pixels of a drawn tree
_SIGN = 6.6  # of a label's characters on average


def _edge(parent: tuple[float, float], child: tuple[float, float], kind: str) -> str:
    (from_x, from_y), (x, y) = parent, child
    middle = (from_x + x) / 2
    return f'<path class="edge {kind}" d="M{from_x:g},{from_y:g} C{middle:g},{from_y:g} {middle:g},{y:g} {x:g},{y:g}"/>'


def _circle(at: tuple[float, float], label: str, kinds: Sequence[str], *, above: bool) -> str:
    x, y = at
    place = f'x="{x - 7:g}" y="{y - 11:g}"' if above else f'x="{x + 11:g}" y="{y + 4:g}"'
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="{7 if "root" in kinds else 5}"/>'
    return f'<g class="node {" ".join(kinds)}">{circle}<text {place}>{escape(label)}</text></g>'


def place(members: Sequence[Row]) -> list[Node]:
    """The place of each peer: a leaf has its own line, a parent is in the middle of its children.

    Peers without a path to a root come last, each on its own line, like roots.
    """
    children: dict[str | None, list[str]] = {}
    for row in sorted(members, key=lambda row: row["peer"]):
        if row["depth"]:
            children.setdefault(row["parent"], []).append(row["peer"])
    nodes: list[Node] = []
    line = 0

    def walk(peer: str, depth: int) -> float:
        nonlocal line
        below = [walk(child, depth + 1) for child in children.get(peer, [])]
        at = (below[0] + below[-1]) / 2 if below else float(line)
        line += not below
        nodes.append(Node(peer, depth, at))
        return at

    placed: set[str] = set()
    for row in sorted(members, key=lambda row: (not row["is_root"], row["peer"])):
        if row["peer"] not in placed:
            walk(row["peer"], 0)
            placed = {node.peer for node in nodes}
    return nodes


def milliseconds(value: float | None) -> str:
    """A time for people, with three significant digits."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value / 1000:.3g} s" if abs(value) < 1e6 else f"{value / 1000:,.0f} s"
    return f"{value:.3g} ms"


def new_figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """An empty figure with axes in the page's text colour. The size is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=3)
    axes.grid(color=INK, alpha=0.12, linewidth=0.7)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_alpha(0.4)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    return figure, axes


def svg_of(figure: "Figure", name: str) -> str:
    """The figure as an SVG element: text stays text, the background is transparent, and equal data give equal bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}):
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor").replace("<svg ", '<svg class="plot" ', 1)


def standalone(svg: str) -> str:
    """A picture for a file of its own, with the colour of text that it has on a bright page."""
    return svg.replace("currentColor", "#1c2430")
