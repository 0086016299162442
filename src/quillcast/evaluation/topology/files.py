"""Networks in files: recognise the format by the content, and read it (docs/topologies.md).

Every reader takes a file in its original format, plain or gzipped. The topology's name says what was assumed,
repaired or left out.
"""

import ast
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import Any

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Topology
from quillcast.evaluation.textfile import UnknownLayout, read_text
from quillcast.evaluation.topology.graphs import KM, MS, SECONDS, Attributes, Graph, Map, inet, one, several
from quillcast.evaluation.topology.measured import Places, Points, RoundTrips, nested, square
from quillcast.evaluation.topology.tables import table
from quillcast.pipeline import extras

EXPECTED = (
    "expected: round trips (a matrix, or lines of source, target, rtt_ms), links (lines of source, target, length), "
    "GraphML, GML or node-link JSON; docs/topologies.md shows them"
)

UNITS = {MS, SECONDS, KM}

_KNOWN = {
    "Graphviz DOT": r"(strict\s+)?(di)?graph\b[^\[]*\{",
    "Pajek": r"\*vertices\b",
    "GEXF": r"(<\?xml.*?\?>\s*)?(<!--.*?-->\s*)*<gexf\b",
    "KML": r"(<\?xml.*?\?>\s*)?(<!--.*?-->\s*)*<kml\b",
    "a graph of BRITE": r"Topology: \(",
    "a graph of GT-ITM (Stanford GraphBase)": r"\* GraphBase graph",
    "SNDlib's format": r"\?SNDlib|(<\?xml.*?\?>\s*)?(<!--.*?-->\s*)*<network\b",
}
"""Formats that are recognised but not read, by their first characters."""

_GRAPHML = re.compile(r"\s*(<\?xml.*?\?>\s*)?(<!--.*?-->\s*)*<graphml\b", re.DOTALL)
_GML = re.compile(r"^\s*graph\s*\[", re.MULTILINE)
_INET = re.compile(r"\s*\d+\s+\d+\s*\n\s*[A-Z]")
_DATA_LINE = re.compile(r"(\S+)\s+(\S+)\s+(\{.*\})")  # networkx.write_edgelist


def read(path: Path, part: str = "") -> Topology:
    """The network in a file.

    Args:
        path: the file, plain or gzipped. Its content decides what it is.
        part: of several networks, the name of one (all joined, if empty); for numbers without a unit in the file, `s`,
    `ms` or `km`; for a table of pairs that may be either, `rtt` or `links`.

    Raises `LocalError` if the file cannot be read, has another format, or cannot be repaired.
    """
    return places(path, part).topology()


def places(path: Path, part: str = "") -> Places | Map:
    """The content of a file, before paths and domains are computed. Arguments as for `read`."""
    text = read_text(path, "topology", "name another file")
    stem = path.name.removesuffix(".gz").rpartition(".")[0] or path.name
    try:
        return _recognised(text, stem, part)
    except UnknownLayout as error:
        raise LocalError(f"topology {path}: {error}; {EXPECTED}") from error
    except (KeyError, TypeError, ValueError, ET.ParseError) as error:
        raise LocalError(f"topology {path} is damaged: {_reason(error)}; repair it or name another file") from error


def _reason(error: Exception) -> str:
    told = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return told.partition("\n")[0].rstrip(".")


def _recognised(text: str, stem: str, part: str) -> Places | Map:
    for name, beginning in _KNOWN.items():
        if re.match(r"\s*" + beginning, text, re.IGNORECASE | re.DOTALL):
            raise UnknownLayout(f"this is {name}, which is not supported; convert it")
    if text.lstrip().startswith(("{", "[")):
        return _of_json(text, stem, part)
    if _GRAPHML.match(text):
        return _of_networkx("GraphML", text, stem, part)
    if _GML.search(text):
        return _of_networkx("GML", text, stem, part)
    if text.lstrip().startswith("<"):
        _without_part(stem, part)
        return _of_xml(text, stem)
    if _INET.match(text):
        _without_part(stem, part)
        return inet(text, stem)
    if _DATA_LINE.match(text):
        return one(_edge_list_with_data(text, stem, _unit(stem, part)))
    return table(text, stem, part)


def _unit(stem: str, part: str) -> str:
    if part and part not in UNITS:
        raise LocalError(f"lengths of {stem} are in s, ms or km, not in {part!r}")
    return part


def _without_part(stem: str, part: str) -> None:
    if part:
        raise LocalError(f"topology {stem} is one network, in a known unit; leave out #{part}")


# JSON


def _of_json(text: str, stem: str, part: str) -> Places | Map:
    told = _documents(text)
    if _all(list, told):
        return RoundTrips(square(told), stem, unit=part)
    if len(told) > 1:
        return several([_node_link(each, f"network {at}") for at, each in enumerate(told, start=1)], stem, part)
    single = told[0] if told else None
    if isinstance(single, dict) and "elements" not in single and _all(dict, single.values()):
        return nested(single, stem, part)
    return one(_node_link(single, stem, _unit(stem, part)))


def _all(kind: type, values: Collection[Any]) -> bool:
    """Whether there are values, and all are of one kind."""
    return bool(values) and all(isinstance(value, kind) for value in values)


def _documents(text: str) -> list[Any]:
    """The elements of a JSON array, the objects of JSON lines, or the only object."""
    try:
        told = json.loads(text)
    except json.JSONDecodeError:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
            raise
        return [json.loads(line) for line in lines]
    return told if isinstance(told, list) else [told]


def _node_link(told: Any, name: str, unit: str = "") -> Graph:
    """A node-link graph: of networkx, d3 or topohub."""
    if not isinstance(told, dict):
        raise UnknownLayout(f"it is JSON, but {name} is not a node-link graph")
    if "elements" in told or "adjacency" in told:
        kind = "Cytoscape's" if "elements" in told else "networkx's adjacency"
        raise UnknownLayout(f"this is {kind} JSON, which is not supported; save it with networkx.node_link_data")
    edges = told["edges"] if "edges" in told else told.get("links")
    if not isinstance(told.get("nodes"), list) or not isinstance(edges, list):
        raise UnknownLayout(f"it is JSON, but {name} has no lists `nodes` and `edges` (or `links`)")
    graph = told.get("graph")
    named = graph.get("name") if isinstance(graph, dict) else None
    routers: dict[Hashable, Attributes] = {}
    for at, router in enumerate(told["nodes"]):
        key = _key(router.get("id", router.get("name", at)))
        if key in routers:
            raise ValueError(f"two routers of {name} have the id {key}")
        routers[key] = router
    links = [(_key(edge["source"]), _key(edge["target"]), edge) for edge in edges]
    if links and not any(a in routers for a, _, _ in links):  # d3 and old versions of networkx count the routers
        order = list(routers)
        links = [(order[int(str(a))], order[int(str(b))], given) for a, b, given in links]
    return Graph(str(named or name), routers, links, bool(told.get("directed")), lengths=unit)


def _key(router: Any) -> Hashable:
    return router if isinstance(router, (int, str)) else json.dumps(router)


# XML, GML and other text


def _of_networkx(kind: str, text: str, stem: str, part: str) -> Map:
    """GraphML or GML, read by networkx."""
    extras.require(f"a topology in {kind}", "networkx")
    import networkx as nx

    unit = _unit(stem, part)
    try:
        if kind == "GraphML":
            graph = nx.parse_graphml(text)
        else:
            several_links = text if "multigraph" in text else _GML.sub("graph [\n  multigraph 1", text, count=1)
            graph = nx.parse_gml(several_links.splitlines(), label="id")
    except (nx.NetworkXError, AttributeError, IndexError) as error:
        raise ValueError(f"this is {kind} that networkx cannot read: {_reason(error)}") from error
    links = list(graph.edges(data=True))
    return one(Graph(stem, dict(graph.nodes(data=True)), links, graph.is_directed(), lengths=unit))


def _of_xml(text: str, stem: str) -> Points:
    """Hosts of OverSim: the distance between two is the one-way delay in ms (its SimpleUnderlay)."""
    root = ET.fromstring(text)
    if root.tag != "nodelist":
        raise UnknownLayout(f"it is XML with <{root.tag}>, which is not known")
    nodes = [[float(axis.text or "") for axis in node.findall("coord")] for node in root.findall("node")]
    return Points(nodes, stem)


def _edge_list_with_data(text: str, stem: str, unit: str) -> Graph:
    """Links of `networkx.write_edgelist`, with a dictionary at the end of each line."""
    links: list[tuple[Hashable, Hashable, Attributes]] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            found = _DATA_LINE.fullmatch(line.strip())
            if not found:
                raise ValueError(f"it begins as networkx's edge list, but has the line {line!r}")
            links.append((found[1], found[2], ast.literal_eval(found[3])))
    routers: dict[Hashable, Attributes] = {end: {} for link in links for end in link[:2]}
    return Graph(stem, routers, links, lengths=unit)
