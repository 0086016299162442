"""Shortest paths between the routers of a graph."""

from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ints

BYTES_MAX = 2_400_000_000  # of the paths that are stored: all pairs of 20,000 routers
STEPS_MAX = 1_200_000_000  # sources times routers and links: about a minute
NARROW_LINKS_MAX = 1 << 16  # identified by 16 bits; more need 32


class Paths(NamedTuple):
    """The paths from the first routers of a graph, the sources, to all.

    Args:
        delay_ms: between sources, float32 [sources, sources].
        via: the last link of each path, uint16 or int32 [sources, routers].
        nearest: the source nearest to each router, int32 [routers].
    """

    delay_ms: Floats
    via: npt.NDArray[Any]
    nearest: Ints


def sources_max(routers: int, links: int) -> int:
    """The number of routers from which paths to all can be found within `BYTES_MAX` and `STEPS_MAX`."""
    row = routers * (2 if links <= NARROW_LINKS_MAX else 4)
    fit = (isqrt(row * row + 16 * BYTES_MAX) - row) // 8  # the most for which sources * row + sources ** 2 * 4 fits
    return max(1, min(routers, fit, STEPS_MAX // (routers + links)))


def paths(link_ends: Ints, link_ms: Floats, routers: int, sources: int, name: str) -> Paths:
    """The shortest paths from the first `sources` routers to all.

    `link_ends` is int32 [links, 2], `link_ms` the one-way delay of each, the same both ways; errors have the graph's
    name. Raises `LocalError` if the graph is disconnected.
    """
    ends = np.concatenate([link_ends[:, 0], link_ends[:, 1]])
    order = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[order], np.arange(routers + 1))
    other = np.concatenate([link_ends[:, 1], link_ends[:, 0]])[order]
    via = np.zeros((sources, routers), np.uint16 if len(link_ends) <= NARROW_LINKS_MAX else np.int32)
    delay_ms, nearest, reached = _dijkstra(first, other, order % len(link_ends), link_ms.astype(np.float64), via)
    if reached < routers:
        raise LocalError(
            f"{name} is disconnected: router 0 reaches {reached:,} of {routers:,} routers; add the missing links"
        )
    return Paths(delay_ms, via, nearest)


@njit(cache=True)
def _dijkstra(first: Any, other: Any, link: Any, link_ms: Any, via: Any) -> tuple[Floats, Ints, int]:
    """Dijkstra's algorithm from each source in turn. The links of router r are `first[r]` to `first[r + 1]`.

    Fills `via`, and stops if the first source does not reach every router; the last result is how many it reaches.
    """
    sources, routers = via.shape
    delay_ms = np.full((sources, sources), np.float32(np.inf), np.float32)
    way_ms = np.empty(routers, np.float64)
    least_ms, nearest = np.full(routers, np.inf, np.float64), np.zeros(routers, np.int32)
    heap_ms, heap_at = np.empty(len(other) + 1, np.float64), np.empty(len(other) + 1, np.int32)
    for source in range(sources):
        way_ms[:] = np.inf
        way_ms[source] = 0.0
        heap_ms[0], heap_at[0], size = 0.0, source, 1
        reached = 0
        while size:
            ms, at = heap_ms[0], heap_at[0]
            size -= 1
            _sink(heap_ms, heap_at, size)
            if ms > way_ms[at]:
                continue  # a shorter path was found since
            reached += 1
            if at < sources:
                delay_ms[source, at] = ms
            if ms < least_ms[at]:
                least_ms[at], nearest[at] = ms, source
            for edge in range(first[at], first[at + 1]):
                further = ms + link_ms[link[edge]]
                if further < way_ms[other[edge]]:
                    way_ms[other[edge]] = further
                    via[source, other[edge]] = link[edge]
                    _rise(heap_ms, heap_at, size, further, other[edge])
                    size += 1
        if reached < routers:
            return delay_ms, nearest, reached
    for s in range(sources):
        for t in range(s):
            delay_ms[t, s] = delay_ms[s, t]  # sums in another order may differ in the last bit
    return delay_ms, nearest, routers


@njit(cache=True)
def _rise(heap_ms: Any, heap_at: Any, place: Any, ms: Any, at: Any) -> None:
    """Append an entry to the heap, and move it up to its place."""
    while place > 0:
        above = (place - 1) // 2
        if heap_ms[above] <= ms:
            break
        heap_ms[place], heap_at[place] = heap_ms[above], heap_at[above]
        place = above
    heap_ms[place], heap_at[place] = ms, at


@njit(cache=True)
def _sink(heap_ms: Any, heap_at: Any, size: Any) -> None:
    """Move the entry behind the heap's end to the top, and then down to its place."""
    ms, at = heap_ms[size], heap_at[size]
    place = 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and heap_ms[below + 1] < heap_ms[below]:
            below += 1
        if heap_ms[below] >= ms:
            break
        heap_ms[place], heap_at[place] = heap_ms[below], heap_at[below]
        place = below
    heap_ms[place], heap_at[place] = ms, at
