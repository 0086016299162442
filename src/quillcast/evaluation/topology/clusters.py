"""Domains found from delays, for topologies without labels."""

from typing import Any

import numpy as np
from numba import njit

from quillcast.evaluation.chance import mix
from quillcast.evaluation.network import Floats, Ints

PLACES_PER_CLUSTER = 10  # on average, like routers in the stub domains of the papers' network
MEASURED_MAX = 6_000  # places measured against each other; others join the cluster of the nearest of these


def clusters_of(delay_ms: Floats, coordinates: Floats, count: int | None = None) -> Ints:
    """A cluster for each place, numbered from 0 in the order of their first places; int32 [places].

    Repeatedly merges the two clusters whose farthest places are nearest, until there are `count` (complete linkage,
    which keeps clusters narrow). Of more than `MEASURED_MAX` places, only a sample is clustered.

    Args:
        delay_ms: float32 [places, places]; [0, 0] if there are coordinates.
        coordinates: float32 [places, dimensions].
        count: the number of clusters; by default a tenth of the places.
    """
    places = len(delay_ms) or len(coordinates)
    count = min(places, count or max(1, places // PLACES_PER_CLUSTER))
    order = np.argsort(np.array([mix(0, places, place) for place in range(places)], np.uint64))
    measured = np.sort(order[:MEASURED_MAX]).astype(np.int64)
    between = _between(delay_ms, coordinates, measured, measured)
    heads = _merged(np.ascontiguousarray((between + between.T) / np.float32(2)), min(count, len(measured)))
    nearest = np.empty(places, np.int64)
    for first in range(0, places, MEASURED_MAX):
        some = np.arange(first, min(first + MEASURED_MAX, places))
        nearest[some] = _between(delay_ms, coordinates, some, measured).argmin(axis=1)
    nearest[measured] = np.arange(len(measured))
    return numbered(heads[nearest])


def numbered(labels: Any) -> Ints:
    """The same labels as numbers from 0, in the order of first appearance; int32."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(len(first), np.int32)
    ranks[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return ranks[inverse]


def _between(delay_ms: Floats, coordinates: Floats, sources: Any, targets: Any) -> Floats:
    if len(delay_ms):
        return delay_ms[np.ix_(sources, targets)]
    apart = np.zeros((len(sources), len(targets)), np.float32)
    for axis in coordinates.T:
        apart += (axis[sources][:, None] - axis[targets][None, :]) ** 2
    return np.sqrt(apart)


def _merged(apart: Floats, count: int) -> Any:
    """For each place, the representative of its cluster, after merging to `count` clusters."""
    heights, pairs = _chain(apart)
    head = list(range(len(apart)))

    def find(place: int) -> int:
        while head[place] != place:
            head[place] = head[head[place]]
            place = head[place]
        return place

    for merge in np.argsort(heights, kind="stable")[: len(apart) - count]:
        a, b = pairs[merge]
        head[find(int(b))] = find(int(a))
    return np.array([find(place) for place in range(len(apart))], np.int64)


@njit(cache=True)
def _chain(apart: Any) -> tuple[Any, Any]:
    """All merges with their heights, not in order, by following chains of nearest neighbours; spoils `apart`.

    Source: Murtagh, "A survey of recent advances in hierarchical clustering algorithms", 1983: quadratic time.
    """
    places = len(apart)
    alive = np.ones(places, np.bool_)
    heights = np.empty(places - 1, np.float32)
    pairs = np.empty((places - 1, 2), np.int32)
    chain = np.empty(places, np.int32)
    length, lowest = 0, 0
    for merge in range(places - 1):
        if length == 0:
            while not alive[lowest]:
                lowest += 1
            chain[0], length = lowest, 1
        while True:
            at = chain[length - 1]
            before = chain[length - 2] if length > 1 else np.int32(-1)
            nearest, least = before, apart[at, before] if length > 1 else np.float32(np.inf)
            for other in range(places):
                if alive[other] and other != at and (apart[at, other] < least or nearest < 0):
                    nearest, least = np.int32(other), apart[at, other]
            if nearest == before and length > 1:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        heights[merge], pairs[merge, 0], pairs[merge, 1] = least, before, at
        for other in range(places):
            if alive[other] and other != at and other != before:
                apart[before, other] = apart[other, before] = max(apart[before, other], apart[at, other])
        alive[at] = False
    return heights, pairs
