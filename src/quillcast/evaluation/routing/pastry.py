"""Pastry's routing as compiled functions over arrays: cells of routing tables, and next hops.

Peers are in the order of their nodeIds, so those with a given prefix are a range. A cell of an ideal table holds the
nearest peer with the cell's prefix. It is computed on demand, from the asking peer's place and the prefix. If several
peers are at the nearest place, each asking peer chooses one by a hash, so that the load is spread.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit

from quillcast.evaluation.chance import below, mix
from quillcast.evaluation.network import Floats, Ids, Ints

P = ParamSpec("P")
T = TypeVar("T")
_NJIT: Any = njit  # its types do not know `_nrt`
Whole = Any  # scalars of kernels, whose types numba infers: int32 for peers and places, int64
Word = Any  # uint64: an id, a key, or leading bits of one
Ms = Any  # float32
Truth = Any  # bool

ID_BITS = 64  # of the 128: enough to tell peers apart
IDEAL, STORED = 0, -1


class Tables(NamedTuple):
    """What a kernel needs to route: peers, delays between places, and the data for cells of routing tables.

    Every array is read-only and C-contiguous, so that kernels are compiled once.

    Args:
        ids: uint64 [peers], ascending.
        place: int32 [peers].
        domain: int32 [peers].
        region: the first place outside its domain on the path to elsewhere, int32 [places]; for a place whose paths
    diverge, its domain's number and `routers`.
        delay_ms: one-way delays between places, float32 [places, places]; [0, 0] if there are coordinates.
        coordinates: float32 [places, dimensions]; [0, 0] if there is a matrix.
        symmetric: 1 if every delay is the same both ways.
        places: the number of places.
        routers: the number of places, and of routers that have no peers.
        access_ms: one-way delay between a peer and its place.
        digit_bits: b.
        half: l / 2, the leaf set's members on either side.
        quality: 0 for ideal tables, k > 0 for the nearest of k random peers in each cell, -1 for `cells`.
        seed: of the choice among equals.
        start_bits: the number of leading bits in `starts`.
        starts: the first peer with each prefix of this many bits, int32 [2**start_bits + 1].
        levels: the number of top rows whose nearest peers are in `nearest`.
        level_starts: where each of these rows begins in `nearest`, int64 [levels + 1].
        nearest: by (prefix, place): where in `order` the peers at the nearest place with a peer begin, and their
    number, int32 [any, 2].
        firsts: for these rows by prefix: the first peer with it, int32 [any]; each row ends with the number of peers.
        order: for each of these rows the peers by (prefix, place, id), int32 [levels, peers].
        cells: given routing tables, int32 [peers, rows, 2**b] with -1 for an empty cell; else [0, 0, 0].
    """

    ids: Ids
    place: Ints
    domain: Ints
    region: Ints
    delay_ms: Floats
    coordinates: Floats
    symmetric: int
    places: int
    routers: int
    access_ms: float
    digit_bits: int
    half: int
    quality: int
    seed: int
    start_bits: int
    starts: Ints
    levels: int
    level_starts: npt.NDArray[np.int64]
    nearest: Ints
    firsts: Ints
    order: Ints
    cells: Ints


def inner(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function that kernels call often and that allocates nothing.

    Without this, numba counts references to each array of `Tables` at each call, which takes forty times as long as the
    rest of a call.
    """
    return cast(Callable[P, T], _NJIT(cache=True, _nrt=False)(function))


def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a function and inline it, because passing `Tables` would cost more than its short body."""
    return cast(Callable[P, T], _NJIT(cache=True, _nrt=False, inline="always")(function))


# --- used by kernels


@inner
def root_of(tables: Tables, key: Word) -> Whole:
    """The peer numerically closest to the key; of two equally close, the one with the smaller nodeId."""
    key = np.uint64(key)
    count = len(tables.ids)
    if tables.start_bits:
        bucket = np.int64(key >> np.uint64(ID_BITS - tables.start_bits))
        above = _lower_bound(tables.ids, key, tables.starts[bucket], tables.starts[bucket + 1])
    else:
        above = _lower_bound(tables.ids, key, 0, count)
    a, b = (above - 1) % count, above % count
    return np.int32(a if _closer(tables.ids[a], tables.ids[b], key) else b)


@inner
def next_hop(tables: Tables, peer: Whole, key: Word) -> Whole:
    """The next hop of a message to the key; -1 if it has arrived (Scribe, section 2; `Pastry.hop`)."""
    key = np.uint64(key)
    if _covers(tables, peer, key):
        root = root_of(tables, key)
        return np.int32(-1) if root == peer else root
    row = shared_digits(tables.ids[peer], key, tables.digit_bits)
    if (row + 1) * tables.digit_bits <= ID_BITS:
        hop = cell(tables, peer, row, digit(key, row, tables.digit_bits))
        if hop >= 0:
            return hop
    return _best_known(tables, peer, key, row)


@inner
def cell(tables: Tables, peer: Whole, row: Whole, digit: Whole) -> Whole:
    """The peer in a cell of a peer's routing table; -1 if it is empty."""
    if tables.quality == STORED:
        return tables.cells[peer, row, digit] if row < tables.cells.shape[1] else np.int32(-1)
    prefix = _prefix(tables.ids[peer], row, tables.digit_bits) << np.uint64(tables.digit_bits) | np.uint64(digit)
    if row < tables.levels:
        at = tables.level_starts[row] + np.int64(prefix) * tables.places + tables.place[peer]
        count = tables.nearest[at, 1]
        if count == 0:
            return np.int32(-1)
        low = tables.firsts[first_of_row(row, tables.digit_bits) + np.int64(prefix)]
        return tables.order[row, tables.nearest[at, 0] + _choice(tables, peer, low, count)]
    low, high = prefix_range(tables, prefix, (row + 1) * tables.digit_bits)
    if low == high:
        return np.int32(-1)
    if tables.quality > 0 and high - low > tables.quality:
        return _sampled(tables, peer, low, high)
    return _nearest(tables, peer, low, high)


@inner
def first_of_row(row: Whole, digit_bits: Whole) -> Whole:
    """Where a row begins in `Tables.firsts`: each row before it has a number for each prefix, and one for its end."""
    at = 0
    for above in range(row):
        at += (1 << (digit_bits * (above + 1))) + 1
    return at


@inner
def prefix_range(tables: Tables, prefix: Word, bits: Whole) -> tuple[Whole, Whole]:
    """The first peer whose id begins with these bits, and the one after the last."""
    if bits <= tables.start_bits:
        spare = tables.start_bits - bits
        low = np.int64(prefix) << spare
        return tables.starts[low], tables.starts[low + (1 << spare)]
    bucket = np.int64(prefix >> np.uint64(bits - tables.start_bits)) if tables.start_bits else 0
    spare_bits = np.uint64(ID_BITS - bits)
    first = np.uint64(prefix) << spare_bits
    last = first | ((np.uint64(1) << spare_bits) - np.uint64(1))
    low = _lower_bound(tables.ids, first, tables.starts[bucket], tables.starts[bucket + 1])
    high = low
    while high < len(tables.ids) and tables.ids[high] <= last:
        high += 1
    return np.int32(low), np.int32(high)


@inlined
def way_ms(tables: Tables, source: Whole, target: Whole) -> Ms:
    """One-way delay between two places."""
    if tables.coordinates.shape[0] == 0:
        return tables.delay_ms[source, target]
    squares = np.float32(0)
    for dimension in range(tables.coordinates.shape[1]):
        apart = tables.coordinates[source, dimension] - tables.coordinates[target, dimension]
        squares += apart * apart
    return np.sqrt(squares)


@inlined
def delay(tables: Tables, a: Whole, b: Whole) -> Ms:
    """One-way delay in ms between two peers, over the access links of both."""
    if a == b:
        return np.float32(0)
    return np.float32(way_ms(tables, tables.place[a], tables.place[b]) + np.float32(2 * tables.access_ms))


@inlined
def proximity(tables: Tables, source: Whole, target: Whole) -> Ms:
    """The distance of two places as peers measure it: half of the round trip."""
    if tables.symmetric:
        return way_ms(tables, source, target)
    return (way_ms(tables, source, target) + way_ms(tables, target, source)) * np.float32(0.5)


@njit(cache=True)
def route(tables: Tables, peer: Whole, key: Word) -> Ints:
    """The peers that a message to the key visits: this peer first, the root last."""
    visited = np.empty(len(tables.ids), np.int32) if len(tables.ids) < 256 else np.empty(256, np.int32)
    count, hop = 0, np.int32(peer)
    while hop >= 0:
        visited[count] = hop
        count += 1
        hop = next_hop(tables, hop, key)
    return visited[:count].copy()


@inner
def shared_digits(a: Word, b: Word, digit_bits: Whole) -> Whole:
    """The number of leading digits that two ids share."""
    apart = a ^ b
    row = 0
    while (row + 1) * digit_bits <= ID_BITS and apart >> np.uint64(ID_BITS - (row + 1) * digit_bits) == 0:
        row += 1
    return row


@inner
def digit(id_: Word, index: Whole, digit_bits: Whole) -> Whole:
    """The `index`-th digit, most significant first."""
    return np.int64((id_ >> np.uint64(ID_BITS - (index + 1) * digit_bits)) & np.uint64((1 << digit_bits) - 1))


# --- internals


@inner
def _prefix(id_: Word, digits: Whole, digit_bits: Whole) -> Word:
    """An id's leading digits as a number."""
    return np.uint64(0) if digits == 0 else id_ >> np.uint64(ID_BITS - digits * digit_bits)


@inner
def _lower_bound(ids: Ids, key: Word, low: Whole, high: Whole) -> Whole:
    """The first index from low to high whose id is not below the key; high if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _ring_distance(a: Word, b: Word) -> Word:
    clockwise = np.uint64(a - b)
    return min(clockwise, np.uint64(b - a))


@inner
def _closer(a: Word, b: Word, key: Word) -> Truth:
    """Whether `a` is numerically closer to the key (`core.ids.closer`)."""
    from_a, from_b = _ring_distance(a, key), _ring_distance(b, key)
    return from_a < from_b or (from_a == from_b and a < b)


@inner
def _covers(tables: Tables, peer: Whole, key: Word) -> Truth:
    """Whether the key is between the farthest members of both sides of the leaf set (`LeafSet.covers`)."""
    count, here = len(tables.ids), tables.ids[peer]
    if count - 1 < 2 * tables.half:
        return True
    steps = key - here
    farthest_right = tables.ids[(peer + tables.half) % count] - here
    farthest_left = tables.ids[(peer - tables.half) % count] - here
    return steps <= farthest_right or steps >= farthest_left


@inner
def _best_known(tables: Tables, peer: Whole, key: Word, row: Whole) -> Whole:
    """If no peer has the longer prefix: the farthest along the route from the leaf set and table (`Pastry._best`)."""
    count, bits = len(tables.ids), tables.digit_bits
    best = np.int32(peer)
    for step in range(-tables.half, tables.half + 1):
        best = _farther(tables, best, np.int32((peer + step) % count), key)
    rows = tables.cells.shape[1] if tables.quality == STORED else ID_BITS // bits
    for deeper in range(row, rows):
        if tables.quality != STORED and _alone(tables, peer, deeper):
            break
        for other in range(1 << bits):
            if other != digit(tables.ids[peer], deeper, bits):
                best = _farther(tables, best, cell(tables, peer, deeper, other), key)
    return np.int32(-1) if best == peer else best


@inner
def _alone(tables: Tables, peer: Whole, row: Whole) -> Truth:
    """Whether this peer is the only one with its first `row` digits."""
    neighbours = False
    for step in (-1, 1):
        other = peer + step
        if 0 <= other < len(tables.ids):
            neighbours |= shared_digits(tables.ids[peer], tables.ids[other], tables.digit_bits) >= row
    return not neighbours


@inner
def _farther(tables: Tables, best: Whole, other: Whole, key: Word) -> Whole:
    """The peer that is farther along the route: by the length of the prefix, then by the distance to the key."""
    if other < 0:
        return best
    prefix = shared_digits(tables.ids[other], key, tables.digit_bits)
    best_prefix = shared_digits(tables.ids[best], key, tables.digit_bits)
    if prefix != best_prefix:
        return other if prefix > best_prefix else best
    return other if _closer(tables.ids[other], tables.ids[best], key) else best


@inner
def _choice(tables: Tables, peer: Whole, low: Whole, count: Whole) -> Whole:
    """The index of this peer's choice among `count` equally near peers; `low` identifies the cell."""
    return np.int64(below(mix(tables.seed, peer, low), count))


@inner
def preferred(tables: Tables, home: Whole, there: Whole, best_place: Whole) -> Truth:
    """Whether a place that is as near as the best so far precedes it: `home` is first, then the smallest hash."""
    if best_place == home or there == home:
        return there == home
    return mix(tables.seed, home, there) < mix(tables.seed, home, best_place)


@inner
def _nearest(tables: Tables, peer: Whole, low: Whole, high: Whole) -> Whole:
    """The nearest peer of a range: one of those at the nearest place."""
    home, best_place, best, count = tables.place[peer], np.int32(-1), np.float32(np.inf), 0
    for other in range(low, high):
        there = tables.place[other]
        if there == best_place:
            count += 1
            continue
        apart = proximity(tables, home, there)
        if apart < best or (apart == best and preferred(tables, home, there, best_place)):
            best, best_place, count = apart, there, 1
    chosen = _choice(tables, peer, low, count)
    for other in range(low, high):
        if tables.place[other] == best_place:
            if chosen == 0:
                return np.int32(other)
            chosen -= 1
    return np.int32(-1)


@inner
def _sampled(tables: Tables, peer: Whole, low: Whole, high: Whole) -> Whole:
    """The nearest of k random peers of a range."""
    home, chosen, best = tables.place[peer], np.int32(-1), np.float32(np.inf)
    draw = mix(tables.seed, peer, low)
    for sample in range(tables.quality):
        draw = mix(draw, sample, low)
        other = np.int32(low + np.int64(below(draw, high - low)))
        apart = proximity(tables, home, tables.place[other])
        if apart < best or chosen < 0:
            best, chosen = apart, other
    return chosen
