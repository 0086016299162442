"""Shortest paths between all routers of a graph."""

from typing import Any

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ints

ROUTERS_MAX = 5_000  # all pairs of more take a minute, and 6 bytes each
LINKS_MAX = 65_536  # a link is identified by 16 bits


def all_pairs(link_ends: Ints, link_ms: Floats, routers: int, name: str) -> tuple[Floats, Any]:
    """Delays between all routers, and the last link of each path: float32 and uint16 [routers, routers].

    `link_ends` is int32 [links, 2], `link_ms` the one-way delay of each, the same both ways; errors have the graph's
    name. Raises `LocalError` if there are more routers than `ROUTERS_MAX`, more links than `LINKS_MAX`, or the graph is
    disconnected.
    """
    if routers > ROUTERS_MAX or len(link_ends) > LINKS_MAX:
        raise LocalError(
            f"{name} has {routers:,} routers and {len(link_ends):,} links; "
            f"shortest paths are for at most {ROUTERS_MAX:,} and {LINKS_MAX:,}: name a smaller graph"
        )
    ends = np.concatenate([link_ends[:, 0], link_ends[:, 1]])
    order = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[order], np.arange(routers + 1))
    other = np.concatenate([link_ends[:, 1], link_ends[:, 0]])[order]
    delay_ms, via = _dijkstra(first, other, order % len(link_ends), link_ms.astype(np.float64))
    reached = int(np.isfinite(delay_ms[0]).sum())
    if reached < routers:
        raise LocalError(
            f"{name} is disconnected: router 0 reaches {reached:,} of {routers:,} routers; add the missing links"
        )
    return delay_ms, via


@njit(cache=True)
def _dijkstra(first: Any, other: Any, link: Any, link_ms: Any) -> tuple[Any, Any]:
    """From each router in turn; the links of router r are those from `first[r]` to `first[r + 1]`."""
    routers = len(first) - 1
    delay_ms = np.full((routers, routers), np.float32(np.inf), np.float32)
    via = np.zeros((routers, routers), np.uint16)
    way_ms = np.empty(routers, np.float64)
    heap_ms, heap_at = np.empty(len(other) + 1, np.float64), np.empty(len(other) + 1, np.int32)
    for source in range(routers):
        way_ms[:] = np.inf
        way_ms[source] = 0.0
        heap_ms[0], heap_at[0], size = 0.0, source, 1
        while size:
            ms, at = heap_ms[0], heap_at[0]
            size -= 1
            _sink(heap_ms, heap_at, size)
            if ms > way_ms[at]:
                continue  # a shorter path was found since
            delay_ms[source, at] = ms
            for edge in range(first[at], first[at + 1]):
                further = ms + link_ms[link[edge]]
                if further < way_ms[other[edge]]:
                    way_ms[other[edge]] = further
                    via[source, other[edge]] = link[edge]
                    _rise(heap_ms, heap_at, size, further, other[edge])
                    size += 1
    for s in range(routers):
        for t in range(s):
            delay_ms[t, s] = delay_ms[s, t]  # sums in another order may differ in the last bit
    return delay_ms, via


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
