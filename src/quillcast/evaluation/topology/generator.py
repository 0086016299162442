"""Transit-stub topologies after the Georgia Tech model ("How to model an internetwork", Zegura et al., 1996).

Transit domains carry traffic between stub domains. A stub domain is attached to one transit router and carries only its
own traffic. So a path has three parts, and all pairs are composed from shortest paths inside small domains.
"""

from collections.abc import Iterable
from itertools import combinations
from math import dist
from random import Random
from typing import NamedTuple

import numpy as np
from numba import njit

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ints, Topology
from quillcast.evaluation.topology.paths import NARROW_LINKS_MAX

Point = tuple[float, float]

# The probability of a link between two nodes of the same level, before a disconnected graph is drawn again. Guesses:
# dense enough to connect most graphs at the first draw.
BETWEEN_DOMAINS, IN_TRANSIT, IN_STUB = 0.4, 0.6, 0.42

ROUTERS_MAX = 20_000  # all pairs of this many take 2.4 GB


class Domain(NamedTuple):
    """Places `first` to `last` (exclusive), whose traffic with others passes `gateway`, over `uplink`, to `entry`."""

    first: int
    last: int
    gateway: int
    uplink: int
    entry: int


class Shape(NamedTuple):
    """Side lengths of nested squares, relative to the world's side. The length of a link is its length in this plane.

    Guesses: links between transit domains are the longest by far, then links inside them, links to stubs, links in
    stubs. docs/topologies.md says how other shapes change the figures.

    Args:
        domain: of the square with a transit domain's routers.
        offset: of the square around a transit router with its stubs' centres.
        stub: of the square with a stub's routers.
    """

    domain: float = 0.25
    offset: float = 0.2
    stub: float = 0.05


EVEN = Shape(0.4, 0.4, 0.4)
"""Links of all kinds are about equally long, except those between transit domains, which are three times as long."""


class Sizes(NamedTuple):
    """The numbers of transit domains, routers in each, stubs at each of these, and routers in each stub."""

    transit_domains: int
    routers_per_transit: int
    stubs_per_router: int
    routers_per_stub: int

    def __str__(self) -> str:
        return f"transit-stub({','.join(map(str, self))})"


def transit_stub(
    seed: int,
    transit_domains: int = 10,
    routers_per_transit: int = 5,
    stubs_per_router: int = 10,
    routers_per_stub: int = 10,
    *,
    core_ms: float = 40.0,
    access_ms: float = 1.0,
    shape: Shape = Shape(),  # noqa: B008
) -> Topology:
    """A random transit-stub network. The defaults give the one of the evaluation of Scribe: 5,050 routers.

    Args:
        seed: equal seeds give equal networks.
        transit_domains: their number, at least 1.
        routers_per_transit: the mean over transit domains; their sum is exact.
        stubs_per_router: the mean over transit routers; their sum is exact.
        routers_per_stub: the mean over stub domains; their sum is exact.
        core_ms: mean one-way delay of the links between routers (the papers: 40.7).
        access_ms: one-way delay of the LAN link between a peer and its router (the papers: 1).
        shape: the relative lengths of the kinds of links.

    Transit routers come first, then stubs in the order of their transit routers. Peers may attach to every router.
    `domain` numbers the transit domains, then the stub domains.
    Raises `LocalError` for a size below 1, or for too many routers to store all pairs.
    """
    sizes = Sizes(transit_domains, routers_per_transit, stubs_per_router, routers_per_stub)
    routers = transit_domains * routers_per_transit * (1 + stubs_per_router * routers_per_stub)
    if min(sizes) < 1 or routers > ROUTERS_MAX:
        raise LocalError(
            f"{sizes} makes {routers:,} routers; use sizes of at least 1 that make at most {ROUTERS_MAX:,}"
        )
    plan = _Plan(Random(seed), sizes, shape)
    if len(plan.links) > NARROW_LINKS_MAX:
        raise LocalError(f"{sizes} makes {len(plan.links):,} links; use sizes that make at most {NARROW_LINKS_MAX:,}")
    lengths = np.array(plan.lengths)
    link_ms = (lengths * (core_ms / lengths.mean())).astype(np.float32)
    link_ends = np.array(plan.links, np.int32).reshape(-1, 2)
    domains = np.array([plan.core, *plan.stubs], np.int32)
    delay_ms, via = compose(link_ends, link_ms, domains)
    return Topology(
        delay_ms=delay_ms,
        coordinates=np.zeros((0, 0), np.float32),
        via=via,
        link_ends=link_ends,
        link_ms=link_ms,
        domain=np.array(plan.domain, np.int32),
        attachable=np.arange(routers, dtype=np.int32),
        access_ms=access_ms,
        name=f"transit-stub, {routers:,} routers, seed {seed}",
        place_names=[],
    )


def transit_stub_even(
    seed: int,
    transit_domains: int = 10,
    routers_per_transit: int = 5,
    stubs_per_router: int = 10,
    routers_per_stub: int = 10,
) -> Topology:
    """The same with links of about equal length; the arguments are those of `transit_stub`."""
    return transit_stub(seed, transit_domains, routers_per_transit, stubs_per_router, routers_per_stub, shape=EVEN)


class _Plan:
    """The positions of routers, and their links."""

    def __init__(self, random: Random, sizes: Sizes, shape: Shape) -> None:
        self.random, self.shape = random, shape
        self.points: list[Point] = []
        self.domain: list[int] = []
        self.links: list[tuple[int, int]] = []
        self.lengths: list[float] = []
        centres = self._scatter((0.5, 0.5), 1.0, sizes.transit_domains)
        transit_sizes = self._sizes(sizes.transit_domains, sizes.routers_per_transit)
        members = [self._domain(at, size) for at, size in zip(centres, transit_sizes, strict=True)]
        for a, b in self._graph(range(sizes.transit_domains), BETWEEN_DOMAINS):
            self._link(random.choice(members[a]), random.choice(members[b]))
        self.core = Domain(0, len(self.points), 0, -1, -1)
        stub_counts = self._sizes(self.core.last, sizes.stubs_per_router)
        entries = [entry for entry, count in enumerate(stub_counts) for _ in range(count)]
        stub_sizes = self._sizes(len(entries), sizes.routers_per_stub)
        self.stubs = [self._stub(entry, size) for entry, size in zip(entries, stub_sizes, strict=True)]

    def _domain(self, centre: Point, size: int) -> range:
        return self._place(self._scatter(centre, self.shape.domain, size), IN_TRANSIT)

    def _stub(self, entry: int, size: int) -> Domain:
        centre = self._scatter(self.points[entry], self.shape.offset, 1)[0]
        members = self._place(self._scatter(centre, self.shape.stub, size), IN_STUB)
        gateway = self.random.choice(members)
        self._link(entry, gateway)
        return Domain(members[0], members[-1] + 1, gateway, len(self.links) - 1, entry)

    def _place(self, points: list[Point], chance: float) -> range:
        """A new domain at these points."""
        members = range(len(self.points), len(self.points) + len(points))
        self.domain += [self.domain[-1] + 1 if self.domain else 0] * len(points)
        self.points += points
        for a, b in self._graph(members, chance):
            self._link(a, b)
        return members

    def _link(self, a: int, b: int) -> None:
        self.links.append((a, b))
        self.lengths.append(dist(self.points[a], self.points[b]))

    def _scatter(self, centre: Point, side: float, count: int) -> list[Point]:
        """Random points in a square."""
        x, y = centre
        draw = self.random.random
        return [(x + side * (draw() - 0.5), y + side * (draw() - 0.5)) for _ in range(count)]

    def _sizes(self, count: int, mean: int) -> list[int]:
        """Integers from half the mean to one and a half, uniform, adjusted in single steps to the exact mean."""
        low, high = mean - mean // 2, mean + mean // 2
        sizes = [self.random.randint(low, high) for _ in range(count)]
        while missing := count * mean - sum(sizes):
            at, step = self.random.randrange(count), 1 if missing > 0 else -1
            if low <= sizes[at] + step <= high:
                sizes[at] += step
        return sizes

    def _graph(self, members: range, chance: float) -> list[tuple[int, int]]:
        """Link each pair with this probability. Repeat until the graph is connected, as the generator does."""
        while True:
            pairs = [pair for pair in combinations(members, 2) if self.random.random() < chance]
            if _connected(members, pairs):
                return pairs


def _connected(members: range, pairs: Iterable[tuple[int, int]]) -> bool:
    group = {member: member for member in members}

    def head(member: int) -> int:
        while group[member] != member:
            member = group[member]
        return member

    for a, b in pairs:
        group[head(a)] = head(b)
    return len({head(member) for member in members}) == 1


@njit(cache=True)
def compose(link_ends: Ints, link_ms: Floats, domains: Ints) -> tuple[Floats, Ints]:
    """Delays between all routers, and the last link of each path.

    Args:
        link_ends: the routers at the ends of each link, int32 [links, 2].
        link_ms: its one-way delay, float32 [links].
        domains: rows of `Domain`, int32 [domains, 5]: the core first, then stubs; together all routers, in order.

    Returns: float32 and uint16 [routers, routers].
    """
    routers = domains[-1, 1]
    delay_ms = np.full((routers, routers), np.float32(np.inf), np.float32)
    via = np.zeros((routers, routers), np.uint16)
    for link in range(len(link_ends)):
        a, b = link_ends[link]
        delay_ms[a, b] = delay_ms[b, a] = link_ms[link]
        via[a, b] = via[b, a] = link
    up_ms = np.zeros(routers, np.float32)
    entry = np.arange(routers).astype(np.int32)
    home = np.zeros(routers, np.int32)
    last_link = np.zeros(routers, np.uint16)  # of paths from outside
    for number in range(len(domains)):
        first, last, gateway, uplink, transit = domains[number]
        shortest(delay_ms, via, first, last)
        for at in range(first, last):
            home[at] = number
            if number:
                up_ms[at] = delay_ms[gateway, at] + link_ms[uplink]
                entry[at] = transit
                last_link[at] = via[gateway, at] if at != gateway else uplink
    for s in range(routers):
        core_ms, core_via = delay_ms[entry[s]], via[entry[s]]
        for t in range(routers):
            if home[t] == home[s]:
                continue
            delay_ms[s, t] = (up_ms[s] + up_ms[t]) + core_ms[entry[t]]
            if home[t]:
                via[s, t] = last_link[t]
            elif t == entry[s]:
                via[s, t] = domains[home[s], 3]
            else:
                via[s, t] = core_via[t]
    return delay_ms, via


@njit(cache=True)
def shortest(delay_ms: Floats, via: Ints, first: int, last: int) -> None:
    """Shortest paths inside a domain (Floyd and Warshall), from the links' delays, infinite if there is no link."""
    for at in range(first, last):
        delay_ms[at, at] = 0
    for through in range(first, last):
        for s in range(first, last):
            for t in range(first, last):
                way = delay_ms[s, through] + delay_ms[through, t]
                if way < delay_ms[s, t]:
                    delay_ms[s, t] = way
                    via[s, t] = via[through, t]
