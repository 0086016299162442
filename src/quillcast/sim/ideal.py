"""What routes would be with perfect tables: the yardstick for routes as they are."""

from bisect import bisect_left
from collections.abc import Sequence
from random import Random

from quillcast.core.ids import ID_BITS, RING, number

SAMPLES = 20_000  # the mean's standard error is then below 0.01


def ideal_hops(ids: Sequence[bytes], b: int, l: int, *, samples: int = SAMPLES, seed: int = 0) -> float:  # noqa: E741
    """Mean hops of a route from a random peer to a random key, if leaf sets are right and no fillable cell is empty.

    Computed with global knowledge over sampled routes (Pastry, section 2; Scribe, section 2.1). `b` is bits per digit,
    `l` the size of the leaf set. Of the peers that fit a cell any may be in it, for proximity knows nothing of ids.
    """
    ring = sorted(map(number, ids))
    random = Random(seed)
    hops = sum(_hops(ring, b, l, random.randrange(len(ring)), random.randrange(RING), random) for _ in range(samples))
    return hops / samples


def _hops(ring: list[int], b: int, l: int, at: int, key: int, random: Random) -> int:  # noqa: E741
    hops = 0
    while True:
        closest = _closest(ring, key)
        if at == closest:
            return hops
        if _ring_places(at, closest, len(ring)) <= l // 2:
            return hops + 1
        at = _next(ring, b, l, at, key, random)
        hops += 1


def _next(ring: list[int], b: int, l: int, at: int, key: int, random: Random) -> int:  # noqa: E741
    """The next hop's place on the ring: a peer that shares one more digit with the key, else the nearest known one."""
    row = (ID_BITS - (ring[at] ^ key).bit_length()) // b
    shift = ID_BITS - b * (row + 1)
    longer = _cell(ring, key >> shift, shift, random)
    if longer is not None:
        return longer
    cells = (_cell(ring, key >> shift ^ other, shift, random) for other in range(1, 1 << b))
    members = ((at + step) % len(ring) for step in range(-(l // 2), l // 2 + 1))
    known = [place for place in (*cells, *members) if place is not None]
    return min(known, key=lambda place: _distance(ring[place], key))


def _cell(ring: list[int], prefix: int, shift: int, random: Random) -> int | None:
    """Some peer with this prefix; None if there is none."""
    low, high = bisect_left(ring, prefix << shift), bisect_left(ring, (prefix + 1) << shift)
    return random.randrange(low, high) if low < high else None


def _closest(ring: list[int], key: int) -> int:
    above = bisect_left(ring, key)
    return min((above - 1) % len(ring), above % len(ring), key=lambda place: (_distance(ring[place], key), ring[place]))


def _ring_places(a: int, b: int, count: int) -> int:
    return min((a - b) % count, (b - a) % count)


def _distance(a: int, b: int) -> int:
    return min((a - b) % RING, (b - a) % RING)
