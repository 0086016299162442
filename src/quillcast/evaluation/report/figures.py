"""The figures of a policy, from its groups' delays and loads; and the comparison with published figures."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

from quillcast.evaluation.experiment import Published

Figures = dict[str, Any]
Counts = Sequence[tuple[float, int]]
"""How often each value occurs, by ascending value."""

RATIOS = ("rad", "rmd", "rad_from_root", "rmd_from_root")
SUMMED = ("tables", "entries", "state")
KIND_PEER, KIND_LINK = "peer", "link"


class Comparison(NamedTuple):
    """A published figure with ours."""

    policy: str
    figure: str
    published: float
    ours: float
    source: str


def summary(
    delays: Mapping[str, Sequence[float]],
    histograms: Mapping[tuple[str, str], Counts],
    metrics: Sequence[str] = (),
) -> Figures:
    """The figures of a policy, from columns of `schemas.DELAYS`, and histograms by kind and figure.

    `metrics` are further columns of `delays`. Unknown figures are None, such as those of core links if the topology is
    not a graph.
    """

    def greatest(figure: str, *kinds: str) -> float:
        return max((counts[-1][0] for kind in kinds if (counts := histograms.get((kind, figure)))), default=0.0)

    def total(figure: str) -> float:
        return sum(
            value * count for kind in (KIND_PEER, KIND_LINK) for value, count in histograms.get((kind, figure), ())
        )

    links = _moments(on_links(histograms, "messages"))
    messages, ip_messages = total("messages"), total("ip_messages")
    link_max, ip_link_max = (greatest(figure, KIND_PEER, KIND_LINK) for figure in ("messages", "ip_messages"))
    core_max, ip_core_max = (greatest(figure, KIND_LINK) for figure in ("messages", "ip_messages"))
    return {
        **{name: _spread(delays[name]) for name in (*RATIOS, *metrics)},
        "by_size": by_size(delays),
        **{name: _moments(histograms[KIND_PEER, name]) for name in SUMMED},
        "children_per_group_max": int(max(delays["children_max"], default=0)),
        "messages": messages,
        "messages_over_ip": _over(messages, ip_messages),
        "link_mean": links["mean"],
        "link_p99": links["p99"],
        "link_max": link_max,
        "link_max_over_ip": _over(link_max, ip_link_max),
        "core_link_max_over_ip": _over(core_max, ip_core_max),
    }


def of_churn(repairs: Mapping[str, Sequence[float]]) -> Figures:
    """The figures of churn, from columns of `schemas.CHURN`.

    Sums over groups; the messages of a mean orphan; the median and the maximum over groups of the longest wait.
    """
    orphans = sum(repairs["orphans"])
    waits = _spread([ms for ms, count in zip(repairs["max_ms"], repairs["orphans"], strict=True) if count])
    return {
        "killed": sum(repairs["killed"]),
        "cut_off": sum(repairs["cut_off"]),
        "orphans": orphans,
        "messages_per_orphan": _over(sum(repairs["messages"]), orphans),
        "repair_ms_median": waits["median"],
        "repair_ms_max": waits["max"],
    }


def label(policy: str, figures: Figures) -> str:
    """The policy's label in tables, with the number of groups that it was not evaluated for, if there are any."""
    left_out = figures.get("groups_left_out", 0)
    told = f"{left_out:,.1f}".removesuffix(".0")  # the mean of several seeds
    return f"{policy}, without the {told} largest groups" if left_out else policy


def _spread(values: Sequence[float]) -> Figures:
    """Median, percentiles and maximum. Groups with no member but the source have no ratio and are ignored."""
    known = sorted(value for value in values if not math.isnan(value))
    if not known:
        return dict.fromkeys(("median", "p90", "p99", "max"))
    return {
        "median": median(known),
        "p90": percentile(known, 90),
        "p99": percentile(known, 99),
        "max": known[-1],
    }


def percentile(known: Sequence[float], share: float) -> float:
    """The smallest of these ascending values that is at least as large as this percentage of them."""
    return known[max(0, math.ceil(len(known) * share / 100) - 1)]


def by_size(delays: Mapping[str, Sequence[float]]) -> list[Figures]:
    """The delay penalty by group size: of the groups from 2 to 3 members, from 4 to 7, and so on by powers of two."""
    rows = zip(delays["members"], delays["rad"], delays["rmd"], strict=True)
    classes: dict[int, list[tuple[float, float]]] = {}
    for members, rad, rmd in rows:
        if not math.isnan(rad):
            classes.setdefault(int(members).bit_length() - 1, []).append((rad, rmd))
    return [
        {"members_min": 1 << step, "members_max": (2 << step) - 1, "events": len(classes[step])}
        | {name: _spread(column) for name, column in zip(("rad", "rmd"), zip(*classes[step], strict=True), strict=True)}
        for step in sorted(classes)
    ]


def on_links(histograms: Mapping[tuple[str, str], Counts], figure: str) -> Counts:
    """How often each number of messages occurs on a physical link, whether a peer's or one between routers."""
    counts: Counter[float] = Counter()
    for kind in (KIND_PEER, KIND_LINK):
        for value, count in histograms.get((kind, figure), ()):
            counts[value] += count
    return sorted(counts.items())


def _moments(counts: Counts) -> Figures:
    count = sum(each for _, each in counts)
    return {
        "mean": sum(value * each for value, each in counts) / count,
        "median": (_ranked(counts, (count - 1) // 2) + _ranked(counts, count // 2)) / 2,
        "p99": _ranked(counts, max(0, math.ceil(count * 0.99) - 1)),
        "max": counts[-1][0],
    }


def _ranked(counts: Counts, rank: int) -> float:
    """The value at this rank; the smallest has rank 0."""
    before = accumulate(count for _, count in counts)
    return next(value for (value, _), until in zip(counts, before, strict=True) if rank < until)


def _over(ours: float, ip: float) -> float | None:
    return ours / ip if ip else None


def figure(figures: Figures, name: str) -> float | None:
    """A figure by its name, such as `entries.mean`; None if it is unknown."""
    value: Any = figures
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) else None


def names(columns: Iterable[Figures]) -> list[str]:
    """The names of all figures in any of these."""
    return list(
        dict.fromkeys(
            place
            for figures in columns
            for name, value in figures.items()
            if not isinstance(value, list)
            for place in ([f"{name}.{part}" for part in value] if isinstance(value, dict) else [name])
        )
    )


def beside_published(policies: Mapping[str, Figures], published: Sequence[Published]) -> list[Comparison]:
    """The published figures of these policies, with ours."""
    rows = []
    for each in published:
        if each.policy not in policies or (each.over and each.over not in policies):
            continue
        ours = figure(policies[each.policy], each.figure)
        under = figure(policies[each.over], each.figure) if each.over else 1.0
        if ours is not None and under:
            name = f"{each.figure} over that of {each.over}" if each.over else each.figure
            rows.append(Comparison(each.policy, name, each.value, ours / under, each.source))
    return rows


def number(value: float | None) -> str:
    """A figure for people: three significant digits, no decimals above a hundred, separated thousands."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
