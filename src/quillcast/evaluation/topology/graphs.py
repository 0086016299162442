"""Graphs of routers: link delays from lengths, positions or defaults, and networks joined into one."""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import mix
from quillcast.evaluation.network import Floats, Ints, Topology
from quillcast.evaluation.topology.clusters import clusters_of
from quillcast.evaluation.topology.paths import paths, sources_max

ACCESS_MS = 1.0  # a LAN, as in the evaluation of Scribe
FIBRE_KM_PER_MS = 200.0  # light in glass: two thirds of its speed in a vacuum
LINK_MS_MIN = 0.1  # a guess for switching and the city's fibre, if two routers have the same position
LINK_MS_MEAN = 40.0  # for graphs whose lengths have no unit; as in the evaluation of Scribe
EXCHANGE_KM = 50.0  # a guess: operators with routers this near to each other exchange traffic there
EARTH_KM = 6371.0
NAMES_SHOWN = 5

MS, RTT, SECONDS, KM, NO_UNIT = "ms", "rtt", "s", "km", ""
LENGTHS = {
    **dict.fromkeys(("delayms", "latencyms", "ms", "delay", "latency"), MS),
    **dict.fromkeys(("rttms", "rtt", "roundtrip", "ping"), RTT),
    **dict.fromkeys(("distkm", "lengthkm", "distancekm", "km", "dist", "distance", "length"), KM),
    **dict.fromkeys(("weight", "cost", "metric"), NO_UNIT),
}
"""Attributes with the length of a link, the best first, in lower case and without `_` and `-`; and their units."""

LONGITUDES, LATITUDES = ("longitude", "lon", "lng"), ("latitude", "lat")

_NONE = np.zeros((0, 0), np.float32)
_STATE = re.compile(r"(.*[a-z])((?:19|20)\d\d\d{0,2})")  # geant2001, garr201201: a network's name and a date

Attributes = Mapping[str, Any]


def plain(name: str) -> str:
    """A name of a column or attribute in the form of `LENGTHS`."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True)
class Graph:
    """Routers with their attributes, in order, and links as pairs of routers with attributes, as in a file.

    `directed`: both directions of a link are listed.
    """

    name: str
    routers: Mapping[Hashable, Attributes]
    links: Sequence[tuple[Hashable, Hashable, Attributes]]
    directed: bool = False
    lengths: str = field(default="", kw_only=True)
    """The unit of the lengths, if it is known: `ms`, `s` or `km`."""


class Lengths(NamedTuple):
    """The length of each link of a graph, their unit, and a description of their origin."""

    values: list[float]
    unit: str
    origin: str


def of_links(
    link_ends: Ints,
    link_ms: Floats,
    name: str,
    *,
    domain: Ints | None = None,
    attachable: Ints | None = None,
    place_names: Sequence[str] = (),
    notes: Sequence[str] = (),
    routers: int,
) -> Topology:
    """A topology from links, int32 [links, 2], and their one-way delays; traffic takes shortest paths.

    Without `domain`, the domains are clusters of routers near each other. Without `attachable`, peers attach to all
    routers; to a random part of them if there are too many to store all paths, which the name then says, as it has
    the `notes`. Raises `LocalError` if the graph is disconnected, has no links, or a delay is not above 0.
    """
    if not len(link_ends):
        raise LocalError(f"{name} has no links; add them")
    if not (np.isfinite(link_ms) & (link_ms > 0)).all():
        worst = int(np.argmin(np.where(np.isfinite(link_ms), link_ms, -np.inf)))
        a, b = (str(place_names[end]) if place_names else str(end) for end in link_ends[worst])
        raise LocalError(f"{name}: the link from {a} to {b} has the delay {link_ms[worst]:g} ms; it must be above 0")
    attachable = np.arange(routers, dtype=np.int32) if attachable is None else attachable
    sources = sources_max(routers, len(link_ends))
    described = f"{name}, {routers:,} routers, {len(link_ends):,} links"
    if sources < routers:
        attachable, order = _some(attachable, routers, sources)
        number = np.argsort(order).astype(np.int32)
        link_ends, sources = number[link_ends], len(attachable)
        domain = None if domain is None else domain[order]
        place_names = [place_names[router] for router in order] if place_names else place_names
        notes = [*notes, f"peers attach to {sources:,} of them"]
    found = paths(link_ends, link_ms, routers, sources, name)
    return Topology(
        delay_ms=found.delay_ms,
        coordinates=_NONE,
        via=found.via,
        link_ends=link_ends,
        link_ms=link_ms,
        domain=clusters_of(found.delay_ms, _NONE)[found.nearest] if domain is None else domain,
        attachable=attachable,
        access_ms=ACCESS_MS,
        name="; ".join([described, *notes]),
        place_names=list(place_names),
    )


def _some(attachable: Ints, routers: int, count: int) -> tuple[Ints, Ints]:
    """Choose random attachable routers, and number these first. Returns them, and the new order of the routers."""
    ranks = np.array([mix(0, routers, int(router)) for router in attachable], np.uint64)
    chosen = np.sort(attachable[np.argsort(ranks)[:count]])
    others = np.setdiff1d(np.arange(routers, dtype=np.int32), chosen)
    return np.arange(len(chosen), dtype=np.int32), np.concatenate([chosen, others])


def inet(text: str, stem: str) -> "Map":
    """A graph of the Inet 3.0 generator. Lengths are distances in its plane, without a unit. Raises ValueError."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    routers, count = int(lines[0][0]), int(lines[0][1])
    rows = lines[1 + routers :]
    if len(rows) != count:
        raise ValueError(f"its first line says {count} links, but there are {len(rows)}")
    nodes: dict[Hashable, Attributes] = {str(number): {} for number in range(routers)}
    links = [(row[0], row[1], {"weight": row[2]}) for row in rows]
    return Map([Graph(stem, nodes, links)], stem)


def one(graph: Graph) -> "Map":
    """One network. If routers have a kind, peers attach to cities."""
    made = Map([graph], graph.name)
    cities = [at for at, router in enumerate(graph.routers.values()) if router.get("type") == "City"]
    made.attachable = np.array(cities, np.int32) if cities else None
    return made


def several(graphs: list[Graph], stem: str, part: str) -> "Map":
    """The network named `part`; or all, joined where routers of two are near each other.

    Of a network in several states, named by their dates, the last one counts; the name says how many were left out.
    Raises ValueError if two have the same name.
    """
    named = {graph.name: graph for graph in sorted(graphs, key=lambda graph: graph.name)}
    if len(named) < len(graphs):
        name = Counter(graph.name for graph in graphs).most_common(1)[0][0]
        raise ValueError(f"two networks are called {name!r}")
    if part:
        if part not in named:
            names = get_close_matches(part, named, NAMES_SHOWN) or list(named)[:NAMES_SHOWN]
            raise LocalError(
                f"{stem} has no network {part!r}; of its {len(named)} choose one such as {', '.join(names)}"
            )
        return one(named[part])
    last = _last_states(named)
    made = Map(last, f"{stem}, {len(last)} networks")
    if len(last) < len(named):
        made.notes.append(f"{len(named) - len(last)} earlier states left out")
    made.join()
    return made


def _last_states(named: dict[str, Graph]) -> list[Graph]:
    """Leave out earlier states of a network: those whose name differs in the date only, and that share a router."""
    states: defaultdict[str, list[Graph]] = defaultdict(list)
    for name, graph in named.items():
        found = _STATE.fullmatch(name)
        states[found[1] if found else name].append(graph)
    kept = set()
    for several_states in states.values():
        last = several_states[-1]
        routers = set(_names(last))
        kept |= {graph.name for graph in several_states if graph is last or routers.isdisjoint(_names(graph))}
    return [graph for name, graph in named.items() if name in kept]


def _names(graph: Graph) -> list[str]:
    return [str(router.get("name") or router.get("label") or key) for key, router in graph.routers.items()]


class Map:
    """Routers in networks, with their links' delays."""

    has_links = True

    def __init__(self, graphs: Iterable[Graph], name: str) -> None:
        self.name, self.notes = name, list[str]()
        self.names: list[str] = []
        self.links: list[tuple[int, int]] = []
        self.link_ms: list[float] = []
        self.attachable: Ints | None = None
        positions: list[tuple[float, float] | None] = []
        network: list[int] = []
        origins: dict[str, None] = {}
        loops = 0
        for number, graph in enumerate(graphs):
            places = {key: len(network) + at for at, key in enumerate(graph.routers)}
            links = [link for link in graph.links if link[0] != link[1]]
            loops += len(graph.links) - len(links)
            found = _lengths(graph, links)
            origins[found.origin] = None
            if missing := [end for link in links for end in link[:2] if end not in places]:
                raise ValueError(f"a link of {graph.name} ends at {missing[0]}, which is not among its routers")
            ends = [(places[a], places[b]) for a, b, _ in links]
            ends, delays = _undirected(ends, _ms(found), directed=graph.directed)
            self.links += ends
            self.link_ms += delays
            positions += [_position(router) for router in graph.routers.values()]
            self.names += _names(graph)
            network += [number] * len(graph.routers)
        self.network = np.array(network, np.int32)
        self.notes += [origin for origin in origins if origin]
        if loops:
            self.notes.append(f"{loops:,} links from a router to itself left out")
        self._positions = positions

    def join(self) -> None:
        """Link the nearest routers of each two networks, if within `EXCHANGE_KM` or not connected (Kruskal)."""
        if unknown := [name for name, position in zip(self.names, self._positions, strict=True) if not position]:
            raise ValueError(f"router {unknown[0]} has no longitude and latitude, which are needed to join networks")
        longitude, latitude = np.radians(np.array(self._positions)).T
        globe = np.column_stack(
            [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
        )
        nearest = self._nearest(globe)
        part = list(range(int(self.network[-1]) + 1))
        for km, a, b in nearest:
            here, there = part[self.network[a]], part[self.network[b]]
            if km <= EXCHANGE_KM or here != there:
                self.links.append((a, b))
                self.link_ms.append(km / FIBRE_KM_PER_MS)
                part = [here if member == there else member for member in part]

    def _nearest(self, globe: npt.NDArray[np.float64]) -> list[tuple[float, int, int]]:
        """The nearest routers of each two networks: km and both, nearest first."""
        first = np.searchsorted(self.network, np.arange(self.network[-1] + 2))
        pairs = []
        for here in range(len(first) - 2):
            cosines = globe[first[here] : first[here + 1]] @ globe[first[here + 1] :].T
            for other in range(here + 1, len(first) - 1):
                block = cosines[:, first[other] - first[here + 1] : first[other + 1] - first[here + 1]]
                a, b = np.unravel_index(int(block.argmax()), block.shape)
                km = EARTH_KM * float(np.arccos(np.clip(block[a, b], -1, 1)))
                pairs.append((km, int(first[here] + a), int(first[other] + b)))
        return sorted(pairs)

    def topology(self) -> Topology:
        """The map as a topology. Several networks are its domains."""
        delays = np.array(self.link_ms)
        short = int((delays < LINK_MS_MIN).sum())
        if short:
            self.notes.append(f"{short:,} links below {LINK_MS_MIN:g} ms lengthened to it")
        return of_links(
            np.array(self.links, np.int32).reshape(-1, 2),
            np.maximum(delays, LINK_MS_MIN).astype(np.float32),
            self.name,
            notes=self.notes,
            domain=self.network if len(self.network) and self.network[-1] else None,
            attachable=self.attachable,
            place_names=self.names,
            routers=len(self.names),
        )


def _lengths(graph: Graph, links: Sequence[tuple[Hashable, Hashable, Attributes]]) -> Lengths:
    """The lengths of a graph's links: an attribute, else the distance of positions, else all equal."""
    attributes = [{plain(name): value for name, value in given.items()} for _, _, given in links]
    known = [name for name in LENGTHS if any(name in given for given in attributes)]
    if known:
        unit = graph.lengths or LENGTHS[known[0]]
        values = [_length(link, given, known[0]) for link, given in zip(links, attributes, strict=True)]
        return Lengths(values, unit, "" if unit == KM and not graph.lengths else f"{known[0]} {_UNITS[unit]}")
    positions = {key: _position(router, on_globe=True) for key, router in graph.routers.items()}
    if not links:
        return Lengths([], NO_UNIT, "")
    if all(positions.values()):
        return Lengths([_km(positions[a], positions[b]) for a, b, _ in links], KM, "link lengths from positions")
    return Lengths([1.0] * len(links), NO_UNIT, f"links of {LINK_MS_MEAN:g} ms, because their lengths are unknown")


_UNITS = {
    MS: "in ms",
    RTT: "halved, in ms",
    SECONDS: "in s",
    KM: "in km",
    NO_UNIT: f"scaled to a mean of {LINK_MS_MEAN:g} ms",
}


def _length(link: tuple[Hashable, Hashable, Attributes], given: Attributes, name: str) -> float:
    try:
        value = float(given[name])
    except KeyError:
        raise ValueError(f"the link from {link[0]} to {link[1]} has no {name}, which others have; add it") from None
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value) or value < 0:
        raise ValueError(
            f"the link from {link[0]} to {link[1]} has {name} {given[name]!r}; it must be a number of at least 0"
        )
    return value


def _ms(lengths: Lengths) -> list[float]:
    """One-way delays in ms."""
    match lengths.unit:
        case "ms":
            return lengths.values
        case "rtt":
            return [value / 2 for value in lengths.values]
        case "s":
            return [value * 1000 for value in lengths.values]
        case "km":
            return [value / FIBRE_KM_PER_MS for value in lengths.values]
        case _:
            mean = sum(lengths.values) / max(1, len(lengths.values)) or 1.0
            return [value * (LINK_MS_MEAN / mean) for value in lengths.values]


def _undirected(
    ends: list[tuple[int, int]], delays: list[float], *, directed: bool
) -> tuple[list[tuple[int, int]], list[float]]:
    """The links of a graph that lists both directions of each: one, with the mean of their delays."""
    both = Counter(ends)
    if not directed and not all((b, a) in both for a, b in ends):
        return ends, delays
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for (a, b), ms in zip(ends, delays, strict=True):
        found[min(a, b), max(a, b)].append(ms)
    return list(found), [sum(given) / len(given) for given in found.values()]


def _position(router: Attributes, *, on_globe: bool = False) -> tuple[float, float] | None:
    """Longitude and latitude of a router, if they are known.

    `pos` may be a position in a plane instead: it is left out with `on_globe`.
    """
    given = {plain(name): value for name, value in router.items()}
    found: list[Any] = [
        next((given[name] for name in names if name in given), None) for names in (LONGITUDES, LATITUDES)
    ]
    if None in found and not on_globe:
        found = given.get("pos", found)
    try:
        longitude, latitude = (float(value) for value in found)
    except (TypeError, ValueError):
        return None
    return longitude, latitude


def _km(one_end: tuple[float, float] | None, other: tuple[float, float] | None) -> float:
    """The distance of two positions on the globe."""
    (a, b), (c, d) = (np.radians(end) for end in (one_end, other) if end)
    half: npt.NDArray[Any] = np.sin((d - b) / 2) ** 2 + np.cos(b) * np.cos(d) * np.sin((c - a) / 2) ** 2
    return float(2 * EARTH_KM * np.arcsin(np.sqrt(np.minimum(half, 1))))
