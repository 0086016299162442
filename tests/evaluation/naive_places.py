"""Slow, obvious twins of the kernels that make topologies and groups; for tests only."""

from collections import defaultdict
from itertools import combinations
from math import inf

import numpy as np
import numpy.typing as npt

from quillcast.evaluation.network import Topology

BITS_64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def finalise(word: int) -> int:
    """SplitMix64's finaliser, in Python's integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & BITS_64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & BITS_64
    return word ^ (word >> 31)


def mix(seed: int, a: int, b: int) -> int:
    word = 0
    for part in (seed, a, b):
        word = finalise((word + part + GAMMA) & BITS_64)
    return word


def permutation(count: int, seed: int) -> list[int]:
    """All of the numbers under `count`, sent through the Feistel network one by one."""
    bits = max(2, (count - 1).bit_length())
    left, right = bits // 2, bits - bits // 2
    keys = [mix(seed, 0, turn) for turn in range(4)]
    places = []
    for number in range(count):
        place = number
        while True:
            upper, lower = place >> right, place & ((1 << right) - 1)
            for turn in (0, 2):
                upper ^= finalise((keys[turn] + lower) & BITS_64) & ((1 << left) - 1)
                lower ^= finalise((keys[turn + 1] + upper) & BITS_64) & ((1 << right) - 1)
            place = (upper << right) | lower
            if place < count:
                break
        places.append(place)
    return places


def dijkstra(topology: Topology, source: int) -> list[float]:
    """Shortest ways over the topology's links, by looking through all routers for the nearest one, each time."""
    neighbours: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for (a, b), ms in zip(topology.link_ends.tolist(), topology.link_ms.tolist(), strict=True):
        neighbours[a].append((b, ms))
        neighbours[b].append((a, ms))
    ways = [inf] * topology.places
    ways[source] = 0.0
    waiting = set(range(topology.places))
    while waiting:
        nearest = min(waiting, key=lambda router: (ways[router], router))
        waiting.remove(nearest)
        for router, ms in neighbours[nearest]:
            ways[router] = min(ways[router], ways[nearest] + ms)
    return ways


def way(topology: Topology, source: int, target: int) -> list[int]:
    """The links from source to target, read backwards from `via`."""
    links = []
    while target != source:
        link = int(topology.via[source, target])
        links.append(link)
        target = int(topology.link_ends[link].sum()) - target
    return links[::-1]


def clusters(apart: npt.NDArray[np.float32], count: int) -> set[frozenset[int]]:
    """Merge the two clusters whose farthest members are nearest, until `count` are left."""
    found = [frozenset([place]) for place in range(len(apart))]
    while len(found) > count:
        one, other = min(combinations(found, 2), key=lambda pair: max(apart[a, b] for a in pair[0] for b in pair[1]))
        found = [cluster for cluster in found if cluster not in (one, other)] + [one | other]
    return set(found)
