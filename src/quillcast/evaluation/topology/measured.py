"""Measured networks: round trips between hosts, hosts as points, and graphs of routers (docs/topologies.md).

Every loader reads a file in its original format, plain or gzipped. The topology's name says what was repaired.
"""

import csv
import gzip
import json
import re
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Floats, Ints, Topology
from quillcast.evaluation.topology.clusters import clusters_of, numbered
from quillcast.evaluation.topology.paths import all_pairs

Matrix = npt.NDArray[np.float64]

ACCESS_MS = 1.0  # a LAN, as in the evaluation of Scribe
FIBRE_KM_PER_MS = 200.0  # light in glass: two thirds of its speed in a vacuum
LINK_MS_MIN = 0.1  # a guess for switching and the city's fibre, if two routers have the same position
LINK_MS_MEAN = 40.0  # for graphs whose lengths have no unit; as in the evaluation of Scribe
EXCHANGE_KM = 50.0  # a guess: operators with routers this near to each other exchange traffic there
SECONDS_BELOW = 2.0  # a smaller median round trip must be in seconds, unless the caller says otherwise
EARTH_KM = 6371.0

_NONE = np.zeros((0, 0), np.float32)

_MISSING = {"", "-", "nan", "na", "null", "none", "inf"}


def read(path: Path, part: str = "") -> Topology:
    """The network in a file.

    Args:
        path: .csv: round trips in ms with a header and names; .txt: round trips as a matrix of numbers, or a graph of
    the Inet generator; .xml: OverSim's points; .json: a node-link graph; .jsonl: one on each line. Each may end in .gz.
        part: for a .jsonl, the network (all joined, if empty); for a matrix in .txt, its unit `s` or `ms` (guessed, if
    empty).

    Raises `LocalError` if the file cannot be read, has another format, or cannot be repaired.
    """
    name = path.name.removesuffix(".gz")
    stem, _, kind = name.rpartition(".")
    try:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text("utf-8")
        return _read(text, kind, stem, part)
    except (OSError, EOFError, zlib.error) as error:
        raise LocalError(
            f"cannot read topology {path}: {getattr(error, 'strerror', None) or error}; name another file"
        ) from error
    except UnicodeDecodeError as error:
        raise LocalError(f"topology {path} is not text in UTF-8; convert it") from error
    except (KeyError, IndexError, TypeError, ValueError, csv.Error, ET.ParseError) as error:
        raise LocalError(f"topology {path} is damaged: {_reason(error)}; repair it or name another file") from error


def _reason(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def _read(text: str, kind: str, stem: str, part: str) -> Topology:
    graph_of_inet = re.match(r"\s*\d+\s+\d+\s*\n\s*[A-Z]", text) is not None
    if part and (kind not in {"txt", "jsonl"} or graph_of_inet):
        raise LocalError(f"topology {stem}.{kind} is one network, in a known unit; leave out #{part}")
    match kind:
        case "csv":
            return _named_matrix(text, stem)
        case "txt" if graph_of_inet:
            return _inet(text, stem)
        case "txt":
            return _matrix(text, stem, part)
        case "xml":
            return _points(text, stem)
        case "json":
            return _network(json.loads(text), stem)
        case "jsonl":
            return _networks([json.loads(line) for line in text.splitlines() if line.strip()], stem, part)
        case _:
            raise LocalError(f"topology {stem}.{kind} is neither .csv, .txt, .xml, .json nor .jsonl (nor .gz of one)")


# Matrices of round trips


def _named_matrix(text: str, stem: str) -> Topology:
    header, *rows = [row for row in csv.reader(text.splitlines()) if row]
    names = [row[0] for row in rows]
    if names != header[1 : len(rows) + 1]:
        raise ValueError("its first column and its first row name different places")
    rtt_ms = _square([row[1 : len(rows) + 1] for row in rows])
    regions = [name.partition(" (")[0] for name in names]  # `EU (Paris) eu-west-3`
    domain = numbered(regions) if regions != names else None
    return of_round_trips(rtt_ms, stem, place_names=names, domain=domain)


def _matrix(text: str, stem: str, unit: str) -> Topology:
    if unit not in {"", "s", "ms"}:
        raise LocalError(f"round trips of {stem} are in s or ms, not in {unit!r}")
    rtt = _square([re.split(r"[\s,;]+", line.strip()) for line in text.splitlines() if line.strip()])
    others = rtt[~np.eye(len(rtt), dtype=bool)]
    in_seconds = unit == "s" or (not unit and float(np.nanmedian(others)) < SECONDS_BELOW)
    return of_round_trips(rtt * 1000 if in_seconds else rtt, stem + (" (in s)" if in_seconds else ""))


def _square(cells: list[list[str]]) -> Matrix:
    for number, row in enumerate(cells, start=1):
        if len(row) != len(cells):
            raise ValueError(f"row {number} of the matrix has {len(row)} values, but there are {len(cells)} rows")
    if len(cells) < 2:
        raise ValueError("it is not a matrix")
    return np.array([[np.nan if cell.strip().lower() in _MISSING else float(cell) for cell in row] for row in cells])


def of_round_trips(
    rtt_ms: Matrix, name: str, *, place_names: list[str] | None = None, domain: Ints | None = None
) -> Topology:
    """A topology from measured round trips, float64 [places, places]; a one-way delay is half of one.

    NaN, a negative number or, between two places, zero means not measured; repairs are added to the name. Without
    `domain`, the domains are clusters of places near each other. Raises `LocalError` if a place has no measurement that
    connects it to the others.
    """
    repaired, notes = repair(rtt_ms, name)
    described = "; ".join([f"{name}, {len(repaired):,} places", *notes])
    return _without_links((repaired / 2).astype(np.float32), _NONE, described, domain, place_names)


def _without_links(
    delay_ms: Floats, coordinates: Floats, name: str, domain: Ints | None = None, place_names: list[str] | None = None
) -> Topology:
    return Topology(
        delay_ms=delay_ms,
        coordinates=coordinates,
        via=np.zeros((0, 0), np.uint16),
        link_ends=np.zeros((0, 2), np.int32),
        link_ms=np.zeros(0, np.float32),
        domain=clusters_of(delay_ms, coordinates) if domain is None else domain,
        attachable=np.arange(len(delay_ms) or len(coordinates), dtype=np.int32),
        access_ms=ACCESS_MS,
        name=name,
        place_names=place_names or [],
    )


def repair(rtt_ms: Matrix, name: str) -> tuple[Matrix, list[str]]:
    """Round trips that are symmetric and above zero between places; and the repairs, with counts.

    - Not measured (NaN, negative, zero between two places): use the other direction; if that is missing too, the
      shortest detour over one other place.
    - Two directions differ: use the mean, because a round trip has both directions.
    - The diagonal, from a place to itself: if it is longer than to another place, or missing, that or zero instead.
    """
    rtt_ms = np.array(rtt_ms, np.float64)
    between = ~np.eye(len(rtt_ms), dtype=bool)
    known = np.isfinite(rtt_ms) & (rtt_ms > 0)
    holes = int((between & ~known).sum())
    one_way = known ^ known.T
    both = between & known & known.T & (rtt_ms != rtt_ms.T)
    itself = np.where(np.isfinite(rtt_ms.diagonal()), np.maximum(rtt_ms.diagonal(), 0), 0)
    found = np.where(known, rtt_ms, np.inf)
    np.fill_diagonal(found, np.inf)
    mean = np.where(one_way, np.minimum(found, found.T), (found + found.T) / 2)
    missing = np.isinf(mean) & between
    repaired = mean.copy()
    for place in np.flatnonzero(missing.any(axis=1)):
        repaired[place, missing[place]] = (mean[place][:, None] + mean[:, missing[place]]).min(axis=0)
    if not np.isfinite(repaired[between]).all():
        a, b = np.argwhere(np.isinf(repaired) & between)[0]
        raise LocalError(f"{name} has no measurement between places {a} and {b}, nor a detour over one other place")
    nearest = repaired.min(axis=1)
    np.fill_diagonal(repaired, np.minimum(itself, nearest))
    counts = {
        "holes or zeros filled": holes,
        "of them by detours": int(missing.sum()),
        "pairs averaged": int(both.sum()) // 2,
        "diagonal entries shortened": int((itself > nearest).sum()),
    }
    return repaired, [f"{count:,} {what}" for what, count in counts.items() if count]


# Points


def _points(text: str, stem: str) -> Topology:
    """Hosts of OverSim: the distance between two is the one-way delay in ms (its SimpleUnderlay)."""
    nodes = ET.fromstring(text).findall("node")
    coordinates = np.array([[float(axis.text or "") for axis in node.findall("coord")] for node in nodes], np.float32)
    if coordinates.ndim != 2 or not coordinates.size:
        raise ValueError("its nodes have no coordinates")
    return _without_links(_NONE, coordinates, f"{stem}, {len(coordinates):,} points")


# Graphs of routers


def of_links(
    link_ends: Ints,
    link_ms: Floats,
    name: str,
    *,
    domain: Ints | None = None,
    attachable: Ints | None = None,
    place_names: list[str] | None = None,
    routers: int,
) -> Topology:
    """A topology from links, int32 [links, 2], and their one-way delays; traffic takes shortest paths.

    Without `domain`, the domains are clusters of routers near each other. Without `attachable`, peers attach to all
    routers. Raises `LocalError` if the graph is disconnected or too large.
    """
    delay_ms, via = all_pairs(link_ends, link_ms, routers, name)
    return Topology(
        delay_ms=delay_ms,
        coordinates=_NONE,
        via=via,
        link_ends=link_ends,
        link_ms=link_ms,
        domain=clusters_of(delay_ms, _NONE) if domain is None else domain,
        attachable=np.arange(routers, dtype=np.int32) if attachable is None else attachable,
        access_ms=ACCESS_MS,
        name=f"{name}, {routers:,} routers, {len(link_ends):,} links",
        place_names=place_names or [],
    )


def _inet(text: str, stem: str) -> Topology:
    """A graph of the Inet 3.0 generator. Lengths are distances in its plane, scaled to `LINK_MS_MEAN`."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    routers, count = int(lines[0][0]), int(lines[0][1])
    rows = lines[1 + routers :]
    if len(rows) != count:
        raise ValueError(f"its first line says {count} links, but there are {len(rows)}")
    link_ends = np.array([row[:2] for row in rows], np.int32)
    lengths = np.array([row[2] for row in rows], np.float64)
    if link_ends.min() < 0 or link_ends.max() >= routers or lengths.min() <= 0:
        raise ValueError("a link has no length above zero, or ends at a router that is not listed")
    link_ms = (lengths * (LINK_MS_MEAN / lengths.mean())).astype(np.float32)
    return of_links(link_ends, link_ms, stem, routers=routers)


def _network(graph: dict[str, Any], stem: str) -> Topology:
    """One node-link graph with kilometres. Peers attach to cities if nodes have a kind."""
    plan = _Map([graph])
    cities = [at for at, node in enumerate(graph["nodes"]) if node.get("type") == "City"]
    attachable = np.array(cities, np.int32) if cities else None
    return plan.topology(graph.get("graph", {}).get("name") or stem, domain=None, attachable=attachable)


def _networks(graphs: list[dict[str, Any]], stem: str, part: str) -> Topology:
    """The network with this name; or the latest of each operator, joined where routers of two are near each other."""
    named = {str(graph["graph"]["name"]): graph for graph in graphs}
    if part:
        if part not in named:
            raise LocalError(f"{stem} has no network {part!r}; it has {', '.join(sorted(named))}")
        return _network(named[part], stem)
    latest = {re.sub(r"\d+$", "", name): named[name] for name in sorted(named)}  # geant2001, geant2009, geant2012
    plan = _Map(list(latest.values()))
    plan.join()
    return plan.topology(f"{stem}, {len(latest)} networks", domain=plan.network, attachable=None)


class _Map:
    """Routers on the globe, in networks, and their links in km."""

    def __init__(self, graphs: Iterable[dict[str, Any]]) -> None:
        self.names: list[str] = []
        self.links: list[tuple[int, int]] = []
        self.km: list[float] = []
        positions: list[tuple[float, float]] = []
        network: list[int] = []
        for number, graph in enumerate(graphs):
            places = {node["id"]: len(positions) + at for at, node in enumerate(graph["nodes"])}
            for node in graph["nodes"]:
                positions.append((float(node["pos"][0]), float(node["pos"][1])))
                self.names.append(str(node.get("name") or node["id"]))
                network.append(number)
            for edge in graph["edges"]:
                self.links.append((places[edge["source"]], places[edge["target"]]))
                self.km.append(float(edge["dist"]))
        self.network = np.array(network, np.int32)
        longitude, latitude = np.radians(np.array(positions)).T
        self._globe = np.column_stack(
            [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
        )

    def join(self) -> None:
        """Link the nearest routers of each two networks, if within `EXCHANGE_KM` or not connected (Kruskal)."""
        nearest = self._nearest()
        part = list(range(int(self.network[-1]) + 1))
        for km, a, b in nearest:
            here, there = part[self.network[a]], part[self.network[b]]
            if km <= EXCHANGE_KM or here != there:
                self.links.append((a, b))
                self.km.append(km)
                part = [here if member == there else member for member in part]

    def _nearest(self) -> list[tuple[float, int, int]]:
        """The nearest routers of each two networks: km and both, nearest first."""
        first = np.searchsorted(self.network, np.arange(self.network[-1] + 2))
        pairs = []
        for one in range(len(first) - 2):
            cosines = self._globe[first[one] : first[one + 1]] @ self._globe[first[one + 1] :].T
            for other in range(one + 1, len(first) - 1):
                block = cosines[:, first[other] - first[one + 1] : first[other + 1] - first[one + 1]]
                a, b = np.unravel_index(int(block.argmax()), block.shape)
                km = EARTH_KM * float(np.arccos(np.clip(block[a, b], -1, 1)))
                pairs.append((km, int(first[one] + a), int(first[other] + b)))
        return sorted(pairs)

    def topology(self, name: str, *, domain: Ints | None, attachable: Ints | None) -> Topology:
        """The map as a topology, with the delays of light in fibre."""
        link_ms = np.array(self.km) / FIBRE_KM_PER_MS
        short = int((link_ms < LINK_MS_MIN).sum())
        topology_name = f"{name}; {short:,} links below {LINK_MS_MIN:g} ms lengthened to it" if short else name
        return of_links(
            np.array(self.links, np.int32).reshape(-1, 2),
            np.maximum(link_ms, LINK_MS_MIN).astype(np.float32),
            topology_name,
            domain=domain,
            attachable=attachable,
            place_names=self.names,
            routers=len(self.names),
        )
