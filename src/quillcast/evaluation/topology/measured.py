"""Measured networks: round trips between places, and hosts as points."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ints, Topology
from quillcast.evaluation.topology.clusters import clusters_of
from quillcast.evaluation.topology.graphs import ACCESS_MS

Matrix = npt.NDArray[np.float64]

SECONDS_BELOW = 2.0  # a smaller median round trip must be in seconds, unless the caller says otherwise
MISSING = {"", "-", "nan", "na", "null", "none", "inf"}
"""The contents of cells without a measurement, in lower case."""

_NONE = np.zeros((0, 0), np.float32)


class RoundTrips(NamedTuple):
    """Round trips between all places, as in a file.

    Without `place_names`, places are numbered; without `domain`, domains are found; without `unit` (`ms` or `s`), it is
    guessed.
    """

    rtt: Sequence[Sequence[float]] | Matrix
    name: str
    place_names: list[str] | None = None
    domain: Ints | None = None
    unit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def has_links(self) -> bool:
        """Whether it is a graph: no."""
        return False

    def topology(self) -> Topology:
        """The places. Raises `LocalError` if they cannot be repaired."""
        if self.unit not in {"", "s", "ms"}:
            raise LocalError(f"round trips of {self.name} are in s or ms, not in {self.unit!r}")
        rtt = np.array(self.rtt, np.float64)
        others = rtt[~np.eye(len(rtt), dtype=bool)]
        known = others[np.isfinite(others)]
        if not len(known):
            raise LocalError(f"{self.name} has no round trip between two places; name another file")
        in_seconds = self.unit == "s" or (not self.unit and float(np.median(known)) < SECONDS_BELOW)
        notes = [*(["in s"] if in_seconds else []), *self.notes]
        name = f"{self.name} ({'; '.join(notes)})" if notes else self.name
        scale = 1000 if in_seconds else 1
        return of_round_trips(rtt * scale, name, place_names=self.place_names, domain=self.domain)


class Points(NamedTuple):
    """Hosts in a space: the distance of two is the one-way delay in ms."""

    coordinates: list[list[float]]
    name: str

    @property
    def has_links(self) -> bool:
        """Whether it is a graph: no."""
        return False

    def topology(self) -> Topology:
        """The hosts. Raises `LocalError` if they have no coordinates, or not all as many."""
        dimensions = {len(point) for point in self.coordinates}
        if len(dimensions) != 1 or dimensions == {0}:
            raise LocalError(f"all nodes of {self.name} need coordinates, in the same number of dimensions; add them")
        coordinates = np.array(self.coordinates, np.float32)
        return _without_links(_NONE, coordinates, f"{self.name}, {len(coordinates):,} points")


Places = RoundTrips | Points


def square(cells: Sequence[Sequence[Any]]) -> Matrix:
    """A matrix of round trips. Raises ValueError if it is not square, or a cell is neither a number nor None."""
    for number, row in enumerate(cells, start=1):
        if len(row) != len(cells):
            raise ValueError(f"row {number} of the matrix has {len(row)} values, but there are {len(cells)} rows")
    if len(cells) < 2:
        raise ValueError("a matrix needs at least two places")
    return np.array([[np.nan if cell is None else float(cell) for cell in row] for row in cells], np.float64)


def nested(rows: Mapping[str, Mapping[str, Any]], name: str, unit: str = "") -> RoundTrips:
    """Round trips as objects in an object: from each place to others. Raises ValueError."""
    found = [(a, b, square([[value] * 2] * 2)[0, 0]) for a, row in rows.items() for b, value in row.items()]
    return pinged(found, name, unit)


def pinged(pings: Sequence[tuple[str, str, float]], name: str, unit: str = "") -> RoundTrips:
    """Round trips from a list of measurements; of several between two places the median counts."""
    places = list(dict.fromkeys(end for ping in pings for end in ping[:2]))
    number = {place: at for at, place in enumerate(places)}
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for a, b, value in pings:
        if np.isfinite(value) and value > 0:
            found[number[a], number[b]].append(value)
    rtt = np.full((len(places), len(places)), np.nan)
    for (a_number, b_number), values in found.items():
        rtt[a_number, b_number] = np.median(values)
        if (b_number, a_number) not in found:
            rtt[b_number, a_number] = rtt[a_number, b_number]
    repeated = sum(len(values) - 1 for values in found.values())
    failed = sum(1 for ping in pings if not (np.isfinite(ping[2]) and ping[2] > 0) and ping[0] != ping[1])
    counts = {"repeated measurements: medians": repeated, "failed measurements": failed}
    notes = tuple(f"{count:,} {what}" for what, count in counts.items() if count)
    return RoundTrips(rtt, name, places, None, unit, notes)


def of_round_trips(
    rtt_ms: Matrix, name: str, *, place_names: list[str] | None = None, domain: Ints | None = None
) -> Topology:
    """A topology from measured round trips, float64 [places, places]; a one-way delay is half of one.

    NaN, a negative number or, between two places, zero means not measured; repairs are added to the name. Without
    `domain`, the domains are clusters of places near each other. Raises `LocalError` if a place has no measurement that
    connects it to the others.
    """
    repaired, notes = repair(rtt_ms, name)
    described = "; ".join([f"{name}, {len(repaired):,} places", *notes])
    return _without_links((repaired / 2).astype(np.float32), _NONE, described, domain, place_names)


def _without_links(
    delay_ms: Floats, coordinates: Floats, name: str, domain: Ints | None = None, place_names: list[str] | None = None
) -> Topology:
    return Topology(
        delay_ms=delay_ms,
        coordinates=coordinates,
        via=np.zeros((0, 0), np.uint16),
        link_ends=np.zeros((0, 2), np.int32),
        link_ms=np.zeros(0, np.float32),
        domain=clusters_of(delay_ms, coordinates) if domain is None else domain,
        attachable=np.arange(len(delay_ms) or len(coordinates), dtype=np.int32),
        access_ms=ACCESS_MS,
        name=name,
        place_names=place_names or [],
    )


def repair(rtt_ms: Matrix, name: str) -> tuple[Matrix, list[str]]:
    """Round trips that are symmetric and above zero between places; and the repairs, with counts.

    - Not measured (NaN, negative, zero between two places): use the other direction; if that is missing too, the
      shortest detour over one other place.
    - Two directions differ: use the mean, because a round trip has both directions.
    - The diagonal, from a place to itself: if it is longer than to another place, or missing, that or zero instead.
    """
    rtt_ms = np.array(rtt_ms, np.float64)
    between = ~np.eye(len(rtt_ms), dtype=bool)
    known = np.isfinite(rtt_ms) & (rtt_ms > 0)
    holes = int((between & ~known).sum())
    one_way = known ^ known.T
    both = between & known & known.T & (rtt_ms != rtt_ms.T)
    itself = np.where(np.isfinite(rtt_ms.diagonal()), np.maximum(rtt_ms.diagonal(), 0), 0)
    found = np.where(known, rtt_ms, np.inf)
    np.fill_diagonal(found, np.inf)
    mean = np.where(one_way, np.minimum(found, found.T), (found + found.T) / 2)
    missing = np.isinf(mean) & between
    repaired = mean.copy()
    for place in np.flatnonzero(missing.any(axis=1)):
        repaired[place, missing[place]] = (mean[place][:, None] + mean[:, missing[place]]).min(axis=0)
    if not np.isfinite(repaired[between]).all():
        a, b = np.argwhere(np.isinf(repaired) & between)[0]
        raise LocalError(f"{name} has no measurement between places {a} and {b}, nor a detour over one other place")
    nearest = repaired.min(axis=1)
    np.fill_diagonal(repaired, np.minimum(itself, nearest))
    counts = {
        "holes or zeros filled": holes,
        "of them by detours": int(missing.sum()),
        "pairs averaged": int(both.sum()) // 2,
        "diagonal entries shortened": int((itself > nearest).sum()),
    }
    return repaired, [f"{count:,} {what}" for what, count in counts.items() if count]
