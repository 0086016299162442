"""Networks as tables: matrices of round trips, lines of pings, and lists of links."""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Ints
from quillcast.evaluation.textfile import Table, UnknownLayout, table_of
from quillcast.evaluation.topology.clusters import numbered
from quillcast.evaluation.topology.graphs import KM, LENGTHS, MS, RTT, SECONDS, Attributes, Graph, Map, one, plain
from quillcast.evaluation.topology.measured import MISSING, RoundTrips, pinged

SOURCES = {"source", "src", "from", "origin", "node1", "city1", "sourceid", "fromid"}
TARGETS = {"target", "dst", "dest", "destination", "to", "node2", "city2", "targetid", "toid"}
PINGS = ("rttms", "rtt", "rttavg", "avgrtt", "roundtrip", "avg", "mean", "median", "pingms", "ping", "min", "rtts")
"""Columns with round trips, the best first."""

NO_NAME = "weight"  # of lengths without a header: they have no unit
DENSE = 0.5  # of all pairs: delays between so many are measured, and not links; a guess
DENSE_PLACES_MIN = 4
RELATIONS = {"-1", "0", "1", "2"}  # between autonomous systems (CAIDA), instead of lengths
EDGES = "links"
PARTS = {"", MS, SECONDS, KM, RTT, EDGES}


def table(text: str, stem: str, part: str) -> RoundTrips | Map:
    """The network in a table. `part` is a unit, or says what pairs are: `rtt` or `links`. Raises ValueError."""
    if part not in PARTS:
        raise LocalError(f"numbers of {stem} are in s, ms or km, and pairs are rtt or links, not {part!r}")
    made = table_of(text)
    if part not in {RTT, EDGES} and (matrix := _matrix(made, stem, part)):
        return matrix
    if len({len(row) for row in made.rows}) == 1 and len(made.rows[0]) > 1:
        return _pairs(made, stem, part)
    raise UnknownLayout(f"it is {made}, which is neither a square matrix nor pairs: {_uneven(made)}")


def _uneven(made: Table) -> str:
    """Why a table is neither a matrix nor pairs."""
    usual = len(made.rows[min(1, len(made.rows) - 1)])
    for number, row in enumerate(made.rows, start=1):
        if len(row) != usual:
            return f"line {number} has {len(row)} columns, line 2 has {usual}"
    return f"it has {usual} columns"


# Matrices


def _matrix(made: Table, stem: str, unit: str) -> RoundTrips | None:
    """A square matrix: of numbers, with names in the first line, or in the first line and column; None if it is not."""
    rows = [row[:-1] for row in made.rows] if _ends_empty(made) else made.rows
    header, body = rows[0], rows[1:]
    names = [row[0] for row in body]
    if len(rows) == len(header) > 1 and _is_body(made, rows) and not _may_be_links(made, rows) and _has_no_header(rows):
        return RoundTrips(_cells(made, rows), stem, unit=unit)
    if len(header) == len(body) > 1 and not _is_body(made, [header]) and _is_body(made, body):
        return RoundTrips(_cells(made, body), stem, header, _regions(header), unit or MS)
    header = header if len(header) == len(body) else header[1:]
    if len(header) < 2 or names != header:
        named = not made.is_number(rows[0][0]) and _is_body(made, [row[1:] for row in body])
        if named and len(header) == len(body) > 1:
            raise ValueError("its first column and its first row name different places")
        return None
    return RoundTrips(_cells(made, [row[1:] for row in body]), stem, names, _regions(names), unit or MS)


def _has_no_header(rows: list[list[str]]) -> bool:
    """Whether the first of these lines of numbers belongs to the matrix, and is not a header.

    A header's corner is empty. A matrix's corner is on the diagonal, which is empty as a whole or not at all.
    """
    return rows[0][0] != "" or all(row[at] == "" for at, row in enumerate(rows))


def _ends_empty(made: Table) -> bool:
    """Whether every line ends with a separator (WonderProxy)."""
    return bool(made.separator) and len(made.rows[0]) > 2 and all(row[-1] == "" for row in made.rows)


def _is_body(made: Table, rows: list[list[str]]) -> bool:
    """Whether these lines have nothing but numbers."""
    return all(cell.lower() in MISSING or made.is_number(cell) for row in rows for cell in row)


def _may_be_links(made: Table, rows: list[list[str]]) -> bool:
    """Whether two or three lines with as many columns may be links: a place is not nearest to itself."""
    if len(rows) > 3:
        return False
    numbers = [[made.number(cell) for cell in row if cell.lower() not in MISSING] for row in rows]
    return any(len(row) == len(rows) and row[at] > min(row) for at, row in enumerate(numbers))


def _cells(made: Table, rows: list[list[str]]) -> list[list[float]]:
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows):
            raise ValueError(f"row {number} of the matrix has {len(row)} values, but there are {len(rows)} rows")
    return [[np.nan if cell.lower() in MISSING else made.number(cell) for cell in row] for row in rows]


def _regions(names: list[str]) -> Ints | None:
    regions = [name.partition(" (")[0] for name in names]  # `EU (Paris) eu-west-3`
    return numbered(regions) if regions != names else None


# Pairs


class Columns(NamedTuple):
    """The columns of places, and of the length or round trip, in a table of pairs; -1 and an empty name if missing."""

    source: int
    target: int
    value: int
    name: str


def _pairs(made: Table, stem: str, part: str) -> RoundTrips | Map:
    """Lines of two places, with or without a length or a round trip between them."""
    columns, rows = _columns(made)
    found = [(row[columns.source], row[columns.target], _value(made, row, columns)) for row in rows]
    if part != EDGES and columns.value >= 0:
        measured = columns.name in PINGS or (columns.name != NO_NAME and _dense([(a, b) for a, b, _ in found]))
        if part == RTT or measured:
            return pinged(found, stem, _unit(columns.name, part))
    name = columns.name if columns.name in LENGTHS else NO_NAME
    links = [(a, b, {name: value} if columns.value >= 0 else {}) for a, b, value in found]
    routers: dict[Hashable, Attributes] = {end: {} for link in links for end in link[:2]}
    return one(Graph(stem, routers, links, lengths=part if part in {MS, SECONDS, KM} else ""))


def _columns(made: Table) -> tuple[Columns, list[list[str]]]:
    """The columns of a table of pairs, and its lines without the header."""
    header, rest = [plain(cell) for cell in made.rows[0]], made.rows[1:]
    sources, targets = ([at for at, name in enumerate(header) if name in names] for names in (SOURCES, TARGETS))
    if sources and targets:
        value = next((header.index(name) for name in (*PINGS, *LENGTHS) if name in header), -1)
        return Columns(sources[0], targets[0], value, header[value] if value >= 0 else ""), rest
    if made.separator == "|" and all(row[2] in RELATIONS for row in made.rows if len(row) > 2):
        return Columns(0, 1, -1, ""), made.rows
    if len(header) > 3:
        raise UnknownLayout(f"it is {made}: not a square matrix, and its first line names no source and target")
    if len(header) == 2:
        return Columns(0, 1, -1, ""), made.rows
    if rest and not made.is_number(made.rows[0][2]) and made.is_number(rest[0][2]):
        return Columns(0, 1, 2, header[2]), rest
    return Columns(0, 1, 2, NO_NAME), made.rows


def _value(made: Table, row: list[str], columns: Columns) -> float:
    if columns.value < 0:
        return np.nan
    cell = row[columns.value]
    try:
        return np.nan if cell.lower() in MISSING else made.number(cell)
    except ValueError as error:
        raise ValueError(f"from {row[columns.source]} to {row[columns.target]}, {error}") from None


def _unit(name: str, part: str) -> str:
    """The unit of round trips, if it is known."""
    return part if part in {MS, SECONDS} else MS if name.endswith("ms") else ""


def _dense(pairs: list[tuple[str, str]]) -> bool:
    """Whether delays are known between so many places that they are measurements, not links."""
    places = len({end for pair in pairs for end in pair})
    known = len({frozenset(pair) for pair in pairs if pair[0] != pair[1]})
    return places >= DENSE_PLACES_MIN and known >= DENSE * places * (places - 1) / 2
