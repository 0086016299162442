"""The pictures of a run, as SVG in the page's text colour."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from quillcast.evaluation.report.figures import KIND_LINK, KIND_PEER, Counts
from quillcast.pipeline.pictures import COLOURS, INK, new_figure, svg_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Histograms = Mapping[tuple[str, str], Counts]

POINTS_MAX = 400  # of a curve; more are not visible
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))  # line styles for colours that are used again
WORDS = {"rad": "average over average delay of IP multicast", "rmd": "maximum over maximum delay of IP multicast"}


def ratios(policies: Mapping[str, Sequence[float]], name: str) -> str:
    """The share of groups by their ratio of delays (`rad` or `rmd`), for each policy."""
    figure, axes = new_figure(5.6, 3.4)
    for at, (policy, values) in enumerate(policies.items()):
        known = np.sort(np.array(values)[~np.isnan(np.array(values))])
        if len(known):
            kept = np.unique(np.linspace(0, len(known) - 1, POINTS_MAX).astype(int))
            shares = 100 * (kept + 1) / len(known)
            axes.step(known[kept], shares, where="post", label=policy, **_style(at))  # type: ignore[arg-type]
    axes.set_ylim(0, 101)
    axes.set_xlabel(f"{name.upper()}: {WORDS[name]}")
    axes.set_ylabel("groups, %")
    _legend(axes, len(policies))
    return svg_of(figure, name)


def node_stress(policies: Mapping[str, Histograms], name: str, what: str) -> str:
    """The number of peers by load (`tables` or `entries`), for each policy. `what` labels the axis."""
    figure, axes = new_figure(5.6, 3.4)
    for at, (policy, histograms) in enumerate(policies.items()):
        counts = histograms[KIND_PEER, name]
        values, peers = _binned(counts)
        axes.plot(values, peers, label=policy, marker="o", markersize=2.5, **_style(at))  # type: ignore[arg-type]
    axes.set_yscale("log")
    if max(histograms[KIND_PEER, name][-1][0] for histograms in policies.values()) > 100:
        axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel(what)
    axes.set_ylabel("peers")
    _legend(axes, len(policies))
    return svg_of(figure, name)


def link_stress(policies: Mapping[str, Histograms]) -> str:
    """Messages on each physical link, the busiest first; for each policy, and for IP multicast."""
    figure, axes = new_figure(9.6, 3.6)
    for at, (policy, histograms) in enumerate(policies.items()):
        axes.plot(*_by_rank(histograms, "messages"), label=policy, **_style(at))  # type: ignore[arg-type]
    baseline = next(iter(policies.values()))
    axes.plot(*_by_rank(baseline, "ip_messages"), label="IP multicast", color=INK, linewidth=1.2, alpha=0.7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("physical links, by rank")
    axes.set_ylabel("messages")
    _legend(axes, len(policies) + 1)
    return svg_of(figure, "links")


def _by_rank(histograms: Histograms, name: str) -> tuple[list[float], list[float]]:
    """Ranks, and the messages at each; links without messages are left out."""
    pairs = [pair for kind in (KIND_PEER, KIND_LINK) for pair in histograms.get((kind, name), ()) if pair[0] > 0]
    ranks: list[float] = []
    messages: list[float] = []
    rank = 1
    for value, count in sorted(pairs, reverse=True):
        ranks += [rank, rank + count - 1]
        messages += [value, value]
        rank += count
    step = max(1, len(ranks) // POINTS_MAX)
    return ranks[::step], messages[::step]


def _binned(counts: Counts) -> tuple[list[float], list[float]]:
    """Values and their frequencies; if there are many values, means over bins of increasing size."""
    if len(counts) <= POINTS_MAX // 4:
        return [value for value, _ in counts], [count for _, count in counts]
    values, peers = (np.array(column, float) for column in zip(*counts, strict=True))
    edges = np.unique(np.concatenate([np.arange(20), np.geomspace(20, values[-1] + 1, 40)]))
    bins = np.digitize(values, edges)
    used = np.unique(bins)
    widths = np.diff(np.append(edges, edges[-1] + 1))
    return (
        [float(values[bins == each].mean()) for each in used],
        [float(peers[bins == each].sum() / max(1.0, widths[each - 1])) for each in used],
    )


def _style(at: int) -> dict[str, object]:
    colour, dash = COLOURS[at % len(COLOURS)], DASHES[at // len(COLOURS) % len(DASHES)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.8}


def _legend(axes: "Axes", count: int) -> None:
    columns = 2 if count > 1 else 1
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, frameon=False, labelcolor=INK, fontsize=8
    )
