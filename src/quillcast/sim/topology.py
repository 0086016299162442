"""Distances between machines: one-way delays in seconds between machines numbered from 0."""

import csv
from collections.abc import Sequence
from importlib import resources
from math import dist, inf
from random import Random
from typing import NamedTuple, Protocol

AWS_REGIONS = "aws-21-regions-rtt.csv"


class Topology(Protocol):
    """The delays between machines."""

    def delay_s(self, a: int, b: int) -> float:
        """Undisturbed delay in seconds from machine `a` to machine `b`."""
        ...


class Constant:
    """All machines are equally far from each other."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def delay_s(self, a: int, b: int) -> float:
        return self._delay_s


class Uniform:
    """Each pair of machines has its own delay between two bounds, the same in both directions."""

    def __init__(self, low_s: float, high_s: float, seed: int) -> None:
        self._low_s, self._span_s, self._seed = low_s, high_s - low_s, seed

    def delay_s(self, a: int, b: int) -> float:
        return self._low_s + self._span_s * _fraction(self._seed, min(a, b), max(a, b))


class Matrix:
    """Machines at the sites of a measured matrix, assigned repeatedly in a shuffled order.

    `rtt_ms[i][j]` is the round trip in milliseconds from site `i` to site `j`; a delay is half of it.
    """

    def __init__(self, rtt_ms: Sequence[Sequence[float]], random: Random) -> None:
        self._delays_s = [[rtt / 2000 for rtt in row] for row in rtt_ms]
        self._sites = random.sample(range(len(rtt_ms)), len(rtt_ms))

    def delay_s(self, a: int, b: int) -> float:
        sites = self._sites
        return self._delays_s[sites[a % len(sites)]][sites[b % len(sites)]]


def aws_regions() -> list[list[float]]:
    """Round trips in milliseconds between 21 regions of a cloud (source: data/README.md)."""
    text = resources.files("quillcast.sim").joinpath("data", AWS_REGIONS).read_text(encoding="utf-8")
    return [[float(cell) for cell in row[1:]] for row in list(csv.reader(text.splitlines()))[1:]]


class Router(NamedTuple):
    """A router: number `number` in its stub domain, at distance `up` from the transit router `entry`.

    Transit routers have no stub, and are their own entry.
    """

    stub: int | None
    number: int
    entry: int
    up: float


class Stub(NamedTuple):
    """A stub domain: distances between its routers, and how its gateway (router 0) reaches the core."""

    distances: list[list[float]]
    transit: int
    uplink: float


class TransitStub:
    """The transit-stub model of the Georgia Tech generator, as in the evaluation of Scribe: about 5,050 routers.

    Domains and routers are points in a plane. The length of a link is its length in the plane, scaled to a mean delay.
    Each stub domain is attached to one transit router (no extra edges), so a shortest path has three parts, which are
    looked up. Machines are at routers drawn uniformly, behind a LAN link.

    Source: the Scribe multicast evaluation: 5,050 routers, end nodes on routers at random, each on a LAN link; 10
    transit domains of 5 routers on average, 10 stub domains per transit router, 10 routers per stub domain.
    """

    def __init__(
        self,
        machine_count: int,
        random: Random,
        *,
        transit_domains: int = 10,
        routers_per_transit: int = 5,
        stubs_per_router: int = 10,
        routers_per_stub: int = 10,
        core_link_s: float = 0.040,  # mean over the links of and between transit domains
        lan_link_s: float = 0.001,
    ) -> None:
        core = _Core(random, transit_domains, routers_per_transit)
        stubs = [
            _stub(random, transit, core.points[transit], routers_per_stub)
            for transit in range(len(core.points))
            for _ in range(_around(random, stubs_per_router))
        ]
        self._scale = core_link_s * len(core.graph) / sum(core.graph.values())
        self._lan_s = lan_link_s
        self._core, self._stubs = _shortest(core.graph), stubs
        routers = [Router(None, index, index, 0.0) for index in range(len(core.points))]
        for number, stub in enumerate(stubs):
            ways = [row[0] + stub.uplink for row in stub.distances]
            routers += [Router(number, index, stub.transit, way) for index, way in enumerate(ways)]
        self._routers = random.choices(routers, k=machine_count)

    def delay_s(self, a: int, b: int) -> float:
        stub, number, entry, up = self._routers[a]
        other_stub, other_number, exit_, down = self._routers[b]
        if stub is not None and stub == other_stub:
            way = self._stubs[stub].distances[number][other_number]
        else:
            way = up + self._core[entry][exit_] + down
        return 2 * self._lan_s + self._scale * way

    def stub(self, machine: int) -> int | None:
        """The stub domain that a machine is in; None: it is at a transit router."""
        return self._routers[machine].stub


Point = tuple[float, float]
Graph = dict[tuple[int, int], float]
"""Lengths of links between numbered routers, each link once."""

# Side lengths of the squares for a transit domain's routers, the stubs around one, and a stub's routers. Guesses, the
# same as in evaluations (docs/topologies.md says what other shapes do).
_DOMAIN, _OFFSET, _STUB = 0.25, 0.2, 0.05
_EDGE_CHANCE = 0.4  # a link beyond the spanning tree, for each pair in a domain; a guess near the generator's examples


class _Core:
    """The transit domains, each a cluster in a square of side 1, linked inside and to each other."""

    def __init__(self, random: Random, domains: int, routers: int) -> None:
        self.points: list[Point] = []
        self.graph: Graph = {}
        members: list[list[int]] = []
        for _ in range(domains):
            points = _cluster(random, (random.random(), random.random()), _DOMAIN, _around(random, routers))
            first = len(self.points)
            members.append(list(range(first, first + len(points))))
            self.points += points
            self.graph |= _connect(random, members[-1], self.points)
        for a, b in _connect(random, list(range(domains)), [self.points[group[0]] for group in members]):
            here, there = random.choice(members[a]), random.choice(members[b])
            self.graph[here, there] = dist(self.points[here], self.points[there])


def _stub(random: Random, transit: int, at: Point, routers: int) -> Stub:
    """A stub domain near its transit router."""
    points = _cluster(random, _cluster(random, at, _OFFSET, 1)[0], _STUB, _around(random, routers))
    graph = _connect(random, list(range(len(points))), points)
    return Stub(_shortest(graph, len(points)), transit, dist(points[0], at))


def _around(random: Random, mean: int) -> int:
    """A random integer with this mean, at least 1."""
    return random.randint(mean - mean // 2, mean + mean // 2)


def _cluster(random: Random, centre: Point, side: float, count: int) -> list[Point]:
    """Random points in a square."""
    x, y = centre[0] - side / 2, centre[1] - side / 2
    return [(x + side * random.random(), y + side * random.random()) for _ in range(count)]


def _connect(random: Random, members: list[int], points: Sequence[Point]) -> Graph:
    """A connected random graph: a random spanning tree, and each other pair with a probability."""
    order = random.sample(members, len(members))
    pairs = {(order[random.randrange(at)], order[at]): None for at in range(1, len(order))}
    for at, a in enumerate(members):
        for b in members[at + 1 :]:
            if (a, b) not in pairs and (b, a) not in pairs and random.random() < _EDGE_CHANCE:
                pairs[a, b] = None
    return {(a, b): dist(points[a], points[b]) for a, b in pairs}


def _shortest(graph: Graph, count: int = 0) -> list[list[float]]:
    """Shortest paths between all routers (Floyd and Warshall)."""
    count = max([count, *(max(pair) + 1 for pair in graph)])
    best = [[0.0 if a == b else inf for b in range(count)] for a in range(count)]
    for (a, b), length in graph.items():
        best[a][b] = best[b][a] = length
    for through in range(count):
        onward = best[through]
        for row in best:
            reach = row[through]
            row[:] = [
                way if (way := reach + rest) < direct else direct for direct, rest in zip(row, onward, strict=True)
            ]
    return best


def _fraction(seed: int, a: int, b: int) -> float:
    """A number in [0, 1) that depends only on the three arguments (the finaliser of SplitMix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + a * 0xBF58476D1CE4E5B9 + b * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ (mixed >> 31)) / 2**64
