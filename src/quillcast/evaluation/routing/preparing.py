"""Routing tables: built once for a deployment, saved, and opened by all processes that route.

Nothing of the size peers times table rows is stored. For an ideal table's top rows, which have long ranges of peers,
the nearest peers are stored by (prefix, place). Lower rows are scanned on demand (`routing`).
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ids, Ints, Peers, Topology, frozen
from quillcast.evaluation.routing.joining import joined
from quillcast.evaluation.routing.pastry import (
    ID_BITS,
    IDEAL,
    STORED,
    Tables,
    Whole,
    inner,
    preferred,
    prefix_range,
    proximity,
)

_START_BITS_MAX = 22  # the index of prefixes takes 16 MB at most
_LEVEL_ENTRIES_MAX = 1 << 25  # of the nearest-by-(prefix, place) table of one row
_CHUNK = 512  # places whose distances to all others are sorted at once
_WAYS = 64  # paths of a place that show whether all its traffic leaves through the same router; a guess
_SCAN_MAX = 64  # a range of at most this many peers is scanned on demand


def tables(
    topology: Topology,
    peers: Peers,
    digit_bits: int = 4,
    leaf_set_size: int = 16,
    quality: str | Ints = "ideal",
    seed: int = 0,
) -> Tables:
    """Leaf sets and routing tables of all peers.

    Args:
        topology: delays between places.
        peers: the peers and their places.
        digit_bits: b, which divides 64.
        leaf_set_size: l, even.
        quality: the content of cells: `ideal`, the nearest peer with the prefix; `sampled(k)`, the nearest of k random
    ones; `join`, what joining finds (`joining`); or given tables, int32 [peers, rows, 2**b] with -1 for an empty cell.
        seed: of the choice among equally near peers, and of samples.

    Raises `LocalError` for impossible numbers, or an unknown quality.
    """
    if digit_bits < 1 or ID_BITS % digit_bits:
        raise LocalError(f"digits of {digit_bits} bits: use 1, 2, 4 or 8, which divide the id's {ID_BITS}")
    if leaf_set_size < 2 or leaf_set_size % 2:
        raise LocalError(f"a leaf set of {leaf_set_size}: its two sides are equal, so use an even number of at least 2")
    if len(peers) == 0:
        raise LocalError("no peers: routing needs at least one")
    cells = np.empty((0, 0, 0), np.int32) if isinstance(quality, str) else quality
    code = _quality(quality) if isinstance(quality, str) else STORED
    start_bits = min(_START_BITS_MAX, max(1, len(peers).bit_length() - 1))
    none = np.empty(0, np.int32)
    bare = Tables(
        ids=frozen(peers.ids, np.uint64),
        place=frozen(peers.place, np.int32),
        domain=frozen(peers.domain, np.int32),
        region=frozen(_regions(topology), np.int32),
        delay_ms=frozen(topology.delay_ms, np.float32),
        coordinates=frozen(topology.coordinates, np.float32),
        symmetric=int(len(topology.coordinates) > 0 or _symmetric(topology.delay_ms)),
        places=topology.places,
        routers=topology.routers,
        access_ms=float(topology.access_ms),
        digit_bits=digit_bits,
        half=leaf_set_size // 2,
        quality=code,
        seed=seed,
        start_bits=start_bits,
        starts=frozen(_starts(peers.ids, start_bits), np.int32),
        levels=0,
        level_starts=frozen(np.zeros(1, np.int64), np.int64),
        nearest=frozen(none.reshape(0, 2), np.int32),
        firsts=frozen(none, np.int32),
        order=frozen(none.reshape(0, 0), np.int32),
        cells=frozen(cells, np.int32),
    )
    if isinstance(quality, str) and quality == "join":
        return bare._replace(cells=frozen(joined(bare), np.int32))
    return _with_levels(bare) if code == IDEAL else bare


def save(folder: Path, made: Tables) -> None:
    """Write the arrays that do not belong to the topology or the peers to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _OWN:
        np.save(folder / f"{name}.npy", np.asarray(getattr(made, name)))


def load(folder: Path, topology: Topology, peers: Peers) -> Tables:
    """Open saved tables. All processes that load them share their pages."""
    own: dict[str, Any] = {}
    for name in _OWN:
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
        own[name] = frozen(array, array.dtype) if array.ndim else array.item()
    return Tables(
        ids=frozen(peers.ids, np.uint64),
        place=frozen(peers.place, np.int32),
        domain=frozen(peers.domain, np.int32),
        delay_ms=frozen(topology.delay_ms, np.float32),
        coordinates=frozen(topology.coordinates, np.float32),
        **own,
    )


_NOT_OWN = {"ids", "place", "domain", "delay_ms", "coordinates"}
_OWN = [name for name in Tables._fields if name not in _NOT_OWN]


def _quality(text: str) -> int:
    if text == "join":
        return STORED
    if text == "ideal":
        return IDEAL
    match = re.fullmatch(r"sampled\((\d+)\)", text)
    if match is None or int(match[1]) < 1:
        raise LocalError(f"quality = {text!r} is unknown: use ideal, sampled(k) with k of at least 1, or join")
    return int(match[1])


def _regions(topology: Topology) -> Ints:
    if not topology.has_links:
        return topology.places + topology.domain
    via, ends = frozen(topology.via, topology.via.dtype), frozen(topology.link_ends, np.int32)
    return _ways_out(via, ends, frozen(topology.domain, np.int32))


@njit(cache=True)
def _ways_out(via: npt.NDArray[Any], link_ends: Ints, domain: Ints) -> Ints:
    """The first router outside each place's domain on its paths to elsewhere; if they diverge, its domain's number."""
    count, routers = len(via), len(domain)
    region = np.empty(count, np.int32)
    for place in range(count):
        region[place] = -1
        for step in range(_WAYS):
            far = step * count // _WAYS
            out, here = np.int32(-1), far
            while here != place:
                if domain[here] != domain[place]:
                    out = np.int32(here)
                link = via[place, here]
                here = link_ends[link, 0] + link_ends[link, 1] - here
            if out >= 0 and region[place] >= 0 and region[place] != out:
                region[place] = -1
                break
            region[place] = max(region[place], out)
        if region[place] < 0:
            region[place] = routers + domain[place]
    return region


def _symmetric(delay_ms: Floats) -> bool:
    step = 512
    return all(
        np.array_equal(delay_ms[at : at + step], delay_ms[:, at : at + step].T) for at in range(0, len(delay_ms), step)
    )


def _starts(ids: Ids, bits: int) -> Ints:
    firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(ID_BITS - bits)
    return np.append(np.searchsorted(ids, firsts), len(ids)).astype(np.int32)


def _with_levels(bare: Tables) -> Tables:
    """Ideal tables with precomputed top rows, whose ranges are too long to scan."""
    levels, entries = 0, [0]
    while True:
        prefixes = 1 << (bare.digit_bits * (levels + 1))
        if prefixes * bare.places > _LEVEL_ENTRIES_MAX or len(bare.ids) / prefixes < _SCAN_MAX:
            break
        entries.append(prefixes * bare.places)
        levels += 1
    level_starts = np.cumsum(entries).astype(np.int64)
    nearest = np.zeros((level_starts[-1], 2), np.int32)
    order = np.empty((levels, len(bare.ids)), np.int32)
    firsts = [np.empty(0, np.int32)]
    for level in range(levels):
        part, bits = slice(level_starts[level], level_starts[level + 1]), (level + 1) * bare.digit_bits
        _sort_level(bare, bits, nearest[part], order[level])
        firsts.append(_starts(bare.ids, bits))
    own = nearest.copy()
    for first in range(0, bare.places if levels else 0, _CHUNK):
        apart = _proximities(bare, first, min(first + _CHUNK, bare.places))
        by_distance = np.argsort(apart, axis=1, kind="stable").astype(np.int32)
        _fill_levels(bare, first, apart, by_distance, own, nearest)
    return bare._replace(
        levels=levels,
        level_starts=frozen(level_starts, np.int64),
        nearest=frozen(nearest, np.int32),
        firsts=frozen(np.concatenate(firsts), np.int32),
        order=frozen(order, np.int32),
    )


@njit(cache=True)
def _sort_level(tables: Tables, bits: Whole, nearest: Ints, order: Ints) -> None:
    """Sort the peers of each prefix of this length by place; record where each place's begin, and their number."""
    starts = np.empty(tables.places + 1, np.int32)
    for prefix in range(1 << bits):
        low, high = prefix_range(tables, np.uint64(prefix), bits)
        if low < high:
            _sort_by_place(tables, low, high, starts, order)
            for place in range(tables.places):
                at = prefix * tables.places + place
                nearest[at, 0], nearest[at, 1] = starts[place], starts[place + 1] - starts[place]


@njit(cache=True)
def _proximities(tables: Tables, first: Whole, last: Whole) -> Floats:
    """The distances from some places to all, float32 [last - first, places]."""
    apart = np.empty((last - first, tables.places), np.float32)
    for home in range(first, last):
        for there in range(tables.places):
            apart[home - first, there] = proximity(tables, home, there)
    return apart


@njit(cache=True)
def _fill_levels(
    tables: Tables,
    first: Whole,
    apart: Floats,
    by_distance: Ints,
    own: Ints,
    nearest: Ints,
) -> None:
    """For some places and every prefix, find the nearest place that has a peer with the prefix."""
    for row in range(len(apart)):
        home = first + row
        for prefix in range(len(own) // tables.places):
            base = prefix * tables.places
            if own[base + home, 1] > 0 and apart[row, home] == 0:
                continue
            best: Whole = np.int32(-1)
            for there in by_distance[row]:
                if best >= 0 and apart[row, there] > apart[row, best]:
                    break
                if own[base + there, 1] > 0 and (best < 0 or preferred(tables, home, there, best)):
                    best = there
            if best >= 0:
                nearest[base + home, 0], nearest[base + home, 1] = own[base + best, 0], own[base + best, 1]


@inner
def _sort_by_place(tables: Tables, low: Whole, high: Whole, starts: Ints, order: Ints) -> None:
    """Order a range of peers by place. Afterwards `starts` has the start of each place in `order`."""
    starts[:] = 0
    for peer in range(low, high):
        starts[tables.place[peer] + 1] += 1
    starts[0] = low
    for place in range(tables.places):
        starts[place + 1] += starts[place]
    for peer in range(high - 1, low - 1, -1):
        place = tables.place[peer]
        starts[place + 1] -= 1
        order[starts[place + 1]] = peer
    for place in range(tables.places):
        starts[place] = starts[place + 1]
    starts[tables.places] = high
