"""Routes with perfect tables, for comparison with actual routes."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from quillcast.core.ids import ID_BITS, RING, number

SAMPLES = 20_000  # the standard error of the mean is then below 0.01
WALKS = 3000  # for the length of routes, it is then about 0.01
Pick = Callable[[int, int, int], int]
"""Chooses the peer in a cell. Arguments: the ring place of the table's owner, and the range of ring places, from the
second to before the third, of the peers that fit the cell."""


def ideal_hops(ids: Sequence[bytes], b: int, l: int, *, samples: int = SAMPLES, seed: int = 0) -> float:  # noqa: E741
    """Mean hops of a route from a random peer to a random key, if leaf sets are right and no cell is needlessly empty.

    Computed with global knowledge over sampled routes (Pastry, section 2; Scribe, section 2.1). `b` is bits per digit,
    `l` the size of the leaf set. Any of the peers that fit a cell may be in it, because proximity is independent of
    ids.
    """
    ring = sorted(map(number, ids))
    random = Random(seed)

    def any_fits(_: int, low: int, high: int) -> int:
        return random.randrange(low, high)

    starts = ((random.randrange(len(ring)), random.randrange(RING)) for _ in range(samples))
    return sum(len(_route(ring, b, l, at, key, any_fits)) - 1 for at, key in starts) / samples


def ideal_stretch(
    ids: Sequence[bytes],
    b: int,
    l: int,  # noqa: E741
    delay_s: Callable[[int, int], float],
    *,
    samples: int = WALKS,
    seed: int = 0,
) -> float:
    """Length of routes relative to the direct path, if every cell holds the nearest of all peers that fit it.

    `delay_s` is the delay between two peers, given by their places in `ids`. Real tables cannot be better than this
    (Pastry, section 2.5; Castro et al., 2003).
    """
    places = sorted(range(len(ids)), key=ids.__getitem__)
    ring = [number(ids[place]) for place in places]

    def nearest(at: int, low: int, high: int) -> int:
        return min(range(low, high), key=lambda there: delay_s(places[at], places[there]))

    random = Random(seed)
    route_s = direct_s = 0.0
    for _ in range(samples):
        way = [places[at] for at in _route(ring, b, l, random.randrange(len(ring)), random.randrange(RING), nearest)]
        route_s += sum(delay_s(here, there) for here, there in pairwise(way))
        direct_s += delay_s(way[0], way[-1]) if len(way) > 1 else 0.0
    return route_s / direct_s


def _route(ring: list[int], b: int, l: int, at: int, key: int, pick: Pick) -> list[int]:  # noqa: E741
    """The ring places that a message passes, including the first and the last."""
    way, closest = [at], _closest(ring, key)
    while at != closest:
        at = closest if _ring_places(at, closest, len(ring)) <= l // 2 else _next(ring, b, l, at, key, pick)
        way.append(at)
    return way


def _next(ring: list[int], b: int, l: int, at: int, key: int, pick: Pick) -> int:  # noqa: E741
    """The ring place of the next hop: a peer that shares one more digit with the key, else the nearest known peer."""
    row = (ID_BITS - (ring[at] ^ key).bit_length()) // b
    shift = ID_BITS - b * (row + 1)
    longer = _cell(ring, at, key >> shift, shift, pick)
    if longer is not None:
        return longer
    cells = (_cell(ring, at, key >> shift ^ other, shift, pick) for other in range(1, 1 << b))
    members = ((at + step) % len(ring) for step in range(-(l // 2), l // 2 + 1))
    known = [place for place in (*cells, *members) if place is not None]
    return min(known, key=lambda place: _distance(ring[place], key))


def _cell(ring: list[int], at: int, prefix: int, shift: int, pick: Pick) -> int | None:
    """The peer with this prefix in the table of the peer at a ring place; None if there is none."""
    low, high = bisect_left(ring, prefix << shift), bisect_left(ring, (prefix + 1) << shift)
    return pick(at, low, high) if low < high else None


def _closest(ring: list[int], key: int) -> int:
    above = bisect_left(ring, key)
    return min((above - 1) % len(ring), above % len(ring), key=lambda place: (_distance(ring[place], key), ring[place]))


def _ring_places(a: int, b: int, count: int) -> int:
    return min((a - b) % count, (b - a) % count)


def _distance(a: int, b: int) -> int:
    return min((a - b) % RING, (b - a) % RING)
