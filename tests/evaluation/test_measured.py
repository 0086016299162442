"""Measured networks: what is in the box, what is repaired and counted, and what is refused with one clear line."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Topology
from quillcast.evaluation.topology import has_links, load, paths
from quillcast.evaluation.topology.files import read
from quillcast.evaluation.topology.graphs import FIBRE_KM_PER_MS, LINK_MS_MIN, of_links
from quillcast.evaluation.topology.measured import repair
from quillcast.pipeline import extras
from tests.evaluation import naive_places as naive

NAN = float("nan")


def between(topology: Topology) -> Any:
    return topology.delay_ms[~np.eye(topology.places, dtype=bool)]


# In the box


@pytest.mark.parametrize("name", ["transit-stub", "transit-stub-even", "aws", "wonderproxy", "topology-zoo"])
def test_documented_delays_are_those_between_places_where_peers_are(name: str) -> None:
    table = (Path(__file__).parents[2] / "docs" / "topologies.md").read_text()
    told = re.search(rf"^\| `{name}` \| [^|]+ \| ([\d, ]+)", table, re.MULTILINE)
    assert told is not None
    topology = load(name, 1)
    delays = topology.delay_ms[np.ix_(topology.attachable, topology.attachable)]
    found = np.quantile(delays[~np.eye(len(delays), dtype=bool)], [0.05, 0.5, 0.95, 1])
    assert [int(value) for value in told[1].split(",")] == pytest.approx(found.tolist(), abs=0.51)


def test_aws_has_regions_as_domains_and_half_a_round_trip_as_delay() -> None:
    aws = load("aws", 1)
    at = {name: place for place, name in enumerate(aws.place_names)}
    paris, frankfurt = at["EU (Paris) eu-west-3"], at["EU (Frankfurt) eu-central-1"]
    assert aws.places == 21
    assert len(np.unique(aws.domain)) == 8  # Africa, Asia Pacific, Canada, EU, Middle East, SA, US East, US West
    assert aws.domain[paris] == aws.domain[frankfurt]
    assert 2 < aws.delay_ms[paris, frankfurt] == aws.delay_ms[frankfurt, paris] < 10
    assert bool((aws.delay_ms.diagonal() > 0).all())  # the file has delays inside a region
    assert "208 pairs averaged" in aws.name
    assert not aws.has_links


def test_wonderproxy_has_cities_that_are_near_each_other_in_a_domain() -> None:
    cities = load("wonderproxy", 1)
    at = {name: place for place, name in enumerate(cities.place_names)}
    assert cities.places == 217
    assert bool((between(cities) > 0).all())
    assert "4 holes or zeros filled" in cities.name
    assert cities.domain[at["Brussels"]] == cities.domain[at["Antwerp"]] != cities.domain[at["Sydney"]]


def test_the_topology_zoo_is_one_federation_of_labelled_networks() -> None:
    zoo = load("topology-zoo", 1)
    assert zoo.places == len(zoo.domain) == 3496
    assert len(np.unique(zoo.domain)) == 143
    assert bool(np.isfinite(zoo.delay_ms).all())
    assert bool((zoo.link_ms >= np.float32(LINK_MS_MIN)).all())
    inside = zoo.domain[zoo.link_ends[:, 0]] == zoo.domain[zoo.link_ends[:, 1]]
    assert int(inside.sum()) == 4428  # as many as the file has
    for target in (0, 1000, 3000):
        length = sum(zoo.link_ms[link] for link in naive.way(zoo, 2000, target))
        assert length == pytest.approx(zoo.delay_ms[2000, target], rel=1e-5)


def test_one_network_of_the_zoo_has_the_ways_of_a_plain_dijkstra() -> None:
    geant = load("topology-zoo#geant2012", 1)
    assert (geant.places, len(geant.link_ends)) == (37, 58)
    for source in range(geant.places):
        assert geant.delay_ms[source] == pytest.approx(naive.dijkstra(geant, source), rel=1e-5, abs=1e-5)
        for target in range(geant.places):
            length = sum(geant.link_ms[link] for link in naive.way(geant, source, target))
            assert length == pytest.approx(geant.delay_ms[source, target], rel=1e-5)


def test_what_is_read_twice_is_equal() -> None:
    one, same = load("topology-zoo#uunet", 1), load("topology-zoo#uunet", 2)
    for name in ("delay_ms", "via", "domain"):
        assert np.array_equal(getattr(one, name), getattr(same, name)), name


# Matrices


def test_holes_come_from_the_other_direction_or_the_shortest_detour() -> None:
    rtt_ms = np.array([[0, 10, NAN, 40], [10, 0, 0, 30], [25, -1, 0, 5], [40, 30, 5, 0]])
    repaired, notes = repair(rtt_ms, "these")
    assert repaired[0, 2] == repaired[2, 0] == 25
    assert repaired[1, 2] == repaired[2, 1] == min(10 + 25, 30 + 5)
    assert notes == ["3 holes or zeros filled", "2 of them by detours"]


def test_many_holes_are_filled_as_one_by_one() -> None:
    random = np.random.default_rng(6)
    rtt_ms = np.triu(random.uniform(1, 100, (40, 40)), 1)
    rtt_ms += rtt_ms.T
    holes = [(int(a), int(b)) for a, b in random.integers(40, size=(300, 2)) if a < b]
    holed = rtt_ms.copy()
    for a, b in holes:
        holed[a, b] = holed[b, a] = NAN
    repaired, _ = repair(holed, "these")
    for a, b in holes:
        assert (
            repaired[a, b]
            == repaired[b, a]
            == np.nanmin([holed[a, c] + holed[c, b] for c in range(40) if c not in (a, b)])
        )


def test_two_directions_are_averaged_and_counted() -> None:
    repaired, notes = repair(np.array([[0.0, 10.0], [20.0, 0.0]]), "these")
    assert repaired.tolist() == [[0, 15], [15, 0]]
    assert notes == ["1 pairs averaged"]


def test_a_place_is_no_farther_from_itself_than_from_another() -> None:
    repaired, notes = repair(np.array([[2.0, 10.0], [10.0, 450.0]]), "these")
    assert repaired.tolist() == [[2, 10], [10, 10]]
    assert notes == ["1 diagonal entries shortened"]


def test_a_sound_matrix_needs_no_repair() -> None:
    rtt_ms = np.array([[0.0, 10.0], [10.0, 0.0]])
    repaired, notes = repair(rtt_ms, "these")
    assert np.array_equal(repaired, rtt_ms)
    assert notes == []


def test_a_place_without_any_measurement_is_refused() -> None:
    with pytest.raises(LocalError, match="these has no measurement between places 0 and 2"):
        repair(np.array([[0, 10, NAN], [10, 0, NAN], [NAN, NAN, 0]]), "these")


def test_a_matrix_of_seconds_is_noticed_and_the_unit_can_be_said(tmp_path: Path) -> None:
    """NetLatency-Data gives PlanetLab in ms and Seattle in seconds, without a word in the files."""
    path = tmp_path / "seattle.txt"
    path.write_text("0\t0.2\t0.4\n0.2\t0\t0.6\n0.4\t0.6\t0\n")
    assert read(path).delay_ms[0, 1] == pytest.approx(100)
    assert "(in s)" in read(path).name
    assert load(f"{path}#ms", 1).delay_ms[0, 1] == pytest.approx(0.1)
    with pytest.raises(LocalError, match="are in s, ms or km, and pairs are rtt or links, not 'minutes'"):
        read(path, "minutes")


def test_csv_with_an_empty_last_column(tmp_path: Path) -> None:
    path = tmp_path / "cities.csv.gz"
    path.write_bytes(gzip.compress(b",Rome,Oslo,\nRome,0,50,\nOslo,50,0,\n"))
    topology = read(path)
    assert topology.place_names == ["Rome", "Oslo"]
    assert topology.delay_ms.tolist() == [[0, 25], [25, 0]]


# Points


def test_points_lie_where_the_file_places_them(tmp_path: Path) -> None:
    path = tmp_path / "nodes.xml"
    nodes = "".join(f'<node isroot="0"><coord> {x} </coord><coord> {y} </coord></node>' for x, y in [(0, 0), (3, 4)])
    path.write_text(f'<nodelist dimensions="2" rootnodes="1">{nodes}</nodelist>')
    topology = read(path)
    assert topology.coordinates.tolist() == [[0, 0], [3, 4]]


# Graphs


def test_an_inet_graph_has_its_lengths_scaled_to_the_papers_mean(tmp_path: Path) -> None:
    path = tmp_path / "inet.txt"
    path.write_text("3 3\nR\t0\t0\t0\nR\t1\t3\t4\nN\t2\t6\t8\n0\t1\t5\n1\t2\t5\n0\t2\t20\n")
    topology = read(path)
    assert topology.link_ms.tolist() == [20, 20, 80]
    assert topology.delay_ms.tolist() == [[0, 20, 40], [20, 0, 20], [40, 20, 0]]
    assert naive.way(topology, 0, 2) == [0, 1]


def world(**changes: Any) -> dict[str, Any]:
    graph: dict[str, Any] = {
        "graph": {"name": "world"},
        "nodes": [
            {"id": 7, "name": "A", "pos": [0, 0], "type": "City"},
            {"id": 8, "pos": [0, 1], "type": "Seacable Waypoint"},
            {"id": 9, "name": "B", "pos": [0, 2], "type": "City"},
        ],
        "edges": [{"source": 7, "target": 8, "dist": 111.0}, {"source": 8, "target": 9, "dist": 1.0}],
    }
    return graph | changes


def test_peers_attach_to_cities_and_light_takes_its_time(tmp_path: Path) -> None:
    path = tmp_path / "world.json"
    path.write_text(json.dumps(world()))
    topology = read(path)
    assert topology.attachable.tolist() == [0, 2]
    assert topology.delay_ms[0, 1] == pytest.approx(111 / FIBRE_KM_PER_MS)
    assert topology.delay_ms[1, 2] == pytest.approx(LINK_MS_MIN)
    assert "1 links below 0.1 ms lengthened" in topology.name


def network(name: str, **latitudes: float) -> dict[str, Any]:
    nodes = [{"id": at, "name": router, "pos": [0, y]} for at, (router, y) in enumerate(latitudes.items())]
    edges = [{"source": at, "target": at + 1, "dist": 100.0} for at in range(len(latitudes) - 1)]
    return {"graph": {"name": name}, "nodes": nodes, "edges": edges}


def lines(path: Path, *networks: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, networks)))
    return path


def test_networks_meet_where_they_are_near_and_the_latest_state_counts(tmp_path: Path) -> None:
    net2001, net2009 = network("net2001", n=60, o=61), network("net2009", m=0, n=1)
    path = lines(tmp_path / "some.jsonl", net2001, net2009, network("b", b=1.1, d=2), network("c", c=9))
    topology = read(path)
    assert topology.place_names == ["b", "d", "c", "m", "n"]
    assert topology.domain.tolist() == [0, 0, 1, 2, 2]
    joined = {tuple(sorted(topology.place_names[end] for end in ends)) for ends in topology.link_ends}
    assert joined == {("b", "d"), ("m", "n"), ("b", "n"), ("c", "d")}
    assert "3 networks, 5 routers, 4 links; 1 earlier states left out" in topology.name
    assert read(path, "net2001").place_names == ["n", "o"]


def test_networks_with_numbers_for_names_are_all_kept(tmp_path: Path) -> None:
    """Of an AS topology: neither 702 nor AS2012 is a state of another, for they share no router."""
    names = [*map(str, range(701, 720)), "AS2001", "AS2012", "2001", "2009"]
    path = lines(tmp_path / "as.jsonl", *(network(name, **{f"r{name}": at}) for at, name in enumerate(names)))
    topology = read(path)
    assert (topology.places, len(set(topology.domain.tolist()))) == (23, 23)
    assert topology.name.startswith("as, 23 networks, 23 routers, ")
    path.write_text(f"[{','.join(path.read_text().splitlines())}]")
    assert read(path).places == 23, "as an array"


def test_two_networks_of_one_name_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "as.jsonl", network("701", a=1), network("702", b=2), network("701", c=3))
    with pytest.raises(LocalError, match="two networks are called '701'"):
        read(path)


def test_networks_without_positions_are_not_joined_at_random(tmp_path: Path) -> None:
    here, nowhere = network("701", a=1), network("702", b=2)
    del nowhere["nodes"][0]["pos"]
    with pytest.raises(LocalError, match="router b has no longitude and latitude, which are needed to join networks"):
        read(lines(tmp_path / "as.jsonl", here, nowhere))


def test_a_disconnected_graph_is_refused() -> None:
    with pytest.raises(LocalError, match="islands is disconnected: router 0 reaches 2 of 4 routers"):
        of_links(np.array([[0, 1], [2, 3]], np.int32), np.ones(2, np.float32), "islands", routers=4)


@pytest.mark.parametrize("bound", [{"BYTES_MAX": 20_000}, {"STEPS_MAX": 3_000}])
def test_peers_attach_to_some_routers_of_a_graph_too_large_for_all_pairs(
    bound: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    ends = np.array([(int(random.integers(at)), at) for at in range(1, 150)], np.int32)
    domain = np.arange(150, dtype=np.int32)
    names = [f"r{at}" for at in range(150)]
    delays = random.uniform(1, 9, len(ends)).astype(np.float32)
    whole = of_links(ends, delays, "large", routers=150, place_names=names, domain=domain)
    monkeypatch.setattr(paths, next(iter(bound)), next(iter(bound.values())))
    part = of_links(ends, delays, "large", routers=150, place_names=names, domain=domain)
    assert 9 < part.places < 60
    assert (part.routers, part.via.shape) == (150, (part.places, 150))
    assert part.name == f"large, 150 routers, 149 links; peers attach to {part.places} of them"
    assert part.attachable.tolist() == list(range(part.places))
    first = [names.index(name) for name in part.place_names[: part.places]]
    assert np.array_equal(part.delay_ms, whole.delay_ms[np.ix_(first, first)])
    assert [f"r{number}" for number in part.domain] == part.place_names
    for target in range(part.places):
        assert naive.way(part, 0, target) == naive.way(whole, first[0], first[target]), "links keep their numbers"
    found = of_links(ends, delays, "large", routers=150)
    assert found.domain.shape == (150,), "routers without peers are in the domain of the nearest place"


def test_more_links_than_16_bits_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "NARROW_LINKS_MAX", 2)
    topology = of_links(np.array([[0, 1], [1, 2], [2, 3]], np.int32), np.ones(3, np.float32), "line", routers=4)
    assert topology.via.dtype == np.int32
    assert naive.way(topology, 0, 3) == [0, 1, 2]


@pytest.mark.parametrize("ms", [-5.0, 0.0, NAN])
def test_a_link_without_a_delay_is_refused(ms: float) -> None:
    with pytest.raises(LocalError, match=r"the link from 1 to 2 has the delay .* ms; it must be above 0"):
        of_links(np.array([[0, 1], [1, 2]], np.int32), np.array([1, ms], np.float32), "line", routers=3)


def test_random_graphs_have_the_ways_of_a_plain_dijkstra() -> None:
    random = np.random.default_rng(3)
    for _ in range(5):
        tree = [(int(random.integers(at)), at) for at in range(1, 60)]
        more = [(int(a), int(b)) for a, b in random.integers(60, size=(60, 2)) if a != b]
        ends = np.array(tree + more, np.int32)
        topology = of_links(ends, random.uniform(1, 9, len(ends)).astype(np.float32), "random", routers=60)
        assert np.array_equal(topology.delay_ms, topology.delay_ms.T)
        for source in range(60):
            assert topology.delay_ms[source] == pytest.approx(naive.dijkstra(topology, source), rel=1e-5, abs=1e-5)
            for target in range(60):
                length = sum(topology.link_ms[link] for link in naive.way(topology, source, target))
                assert length == pytest.approx(topology.delay_ms[source, target], rel=1e-5)


# Formats

CITIES = ("Rome", "Oslo", "Bern", "Kyiv", "Nice")
RTT_MS = [[0 if a == b else 10 + 7.5 * abs(a - b) for b in range(5)] for a in range(5)]
PINGS = [(CITIES[a], CITIES[b], RTT_MS[a][b]) for a in range(5) for b in range(5) if a != b]


def rows(separator: str, *, header: bool, names: bool, corner: bool = True, decimal: str = ".") -> str:
    """The matrix as a table."""
    body = [[str(cell).replace(".", decimal) for cell in row] for row in RTT_MS]
    body = [[city, *row] for city, row in zip(CITIES, body, strict=True)] if names else body
    first = [["", *CITIES] if names and corner else [*CITIES]] if header else []
    return "".join(f"{separator.join(row)}\n" for row in first + body)


@pytest.mark.parametrize(
    "content",
    [
        rows(",", header=True, names=True),
        rows(";", header=True, names=True, decimal=","),
        rows("\t", header=True, names=True),
        rows("\t", header=True, names=True, corner=False),
        rows(",", header=True, names=False),
        "\ufeff# measured\n" + rows(";", header=True, names=True),
        rows(",", header=True, names=True).replace("\n", ",\n"),
        "source,target,rtt_ms\n" + "\n".join(f"{a},{b},{ms}" for a, b, ms in PINGS),
        "time;to;from;avg_rtt\n" + "\n".join(f"9;{b};{a};{str(ms).replace('.', ',')}" for a, b, ms in PINGS),
        "city1\tcity2\tlatency\n" + "\n".join(f"{a}\t{b}\t{ms}" for a, b, ms in PINGS if a < b),
        "from,to,rtt\n" + "\n".join(f"{a},{b},{ms / 1000}" for a, b, ms in PINGS),
        json.dumps({a: {b: ms for source, b, ms in PINGS if source == a} for a in CITIES}),
    ],
)
def test_round_trips_in_any_table(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cities.any"
    path.write_text(content)
    topology = read(path)
    order = [topology.place_names.index(city) for city in CITIES]
    assert topology.delay_ms[np.ix_(order, order)] == pytest.approx(np.array(RTT_MS) / 2)
    assert not has_links(str(path), 1)


def test_a_path_with_a_colon_is_no_plug_in(tmp_path: Path) -> None:
    path = tmp_path / "pings of 10:00.csv"
    path.write_text(rows(",", header=True, names=True))
    assert load(str(path), 1).places == 5


@pytest.mark.parametrize(
    "content",
    [*(rows(separator, header=False, names=False) for separator in (",", ";", "\t", " ")), json.dumps(RTT_MS)],
)
def test_matrices_without_names(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text(content)
    assert read(path).delay_ms == pytest.approx(np.array(RTT_MS) / 2)


def test_of_several_pings_the_median_counts_and_failures_are_told(tmp_path: Path) -> None:
    path = tmp_path / "pings.csv"
    path.write_text("source,target,rtt\na,b,10\na,b,90\na,b,20\nb,a,\nb,a,20\na,a,7\n")
    topology = read(path)
    assert topology.delay_ms.tolist() == [[3.5, 10], [10, 0]]
    assert topology.name == "pings (2 repeated measurements: medians; 1 failed measurements), 2 places"


TRIANGLE = [("a", "b", 5), ("b", "c", 5), ("a", "c", 20)]


def node_link(edges: str = "edges", **attributes: float) -> str:
    return json.dumps(
        {
            "nodes": [{"id": name} for name in "abc"],
            edges: [{"source": a, "target": b, "delay": ms} | attributes for a, b, ms in TRIANGLE],
        }
    )


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("".join(f"{a} {b} {ms}\n" for a, b, ms in TRIANGLE), "ms"),
        ("# a comment\n" + "".join(f"{a}\t{b}\t{ms / 1000}\n" for a, b, ms in TRIANGLE), "s"),
        ("".join(f"{a};{b};{ms * 200}\n" for a, b, ms in TRIANGLE), "km"),
        ("from,to,delay_ms\n" + "".join(f"{a},{b},{ms}\n" for a, b, ms in TRIANGLE), ""),
        ("from,to,length\n" + "".join(f"{a},{b},{ms * 200}\n" for a, b, ms in TRIANGLE), ""),
        ("from,to,latency\n" + "".join(f"{a},{b},{ms}\n{b},{a},{ms}\n" for a, b, ms in TRIANGLE), ""),
        ("".join(f"{a} {b} {{'latency': {ms}}}\n" for a, b, ms in TRIANGLE), ""),
        (node_link(), ""),
        (node_link("links"), ""),
        (node_link(weight=3), ""),
    ],
)
def test_links_in_any_list(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "graph.any"
    path.write_text(content)
    topology = read(path, part)
    assert topology.place_names == ["a", "b", "c"]
    assert topology.link_ms == pytest.approx([5, 5, 20])
    assert topology.delay_ms.tolist() == [[0, 5, 10], [5, 0, 5], [10, 5, 0]]
    assert has_links(str(path), 1)


@pytest.mark.parametrize(
    ("content", "ms", "told"),
    [
        ("a b\nb c\n", [40, 40], "links of 40 ms, because their lengths are unknown"),
        ("a b 1\nb c 3\n", [20, 60], "weight scaled to a mean of 40 ms"),
        ("# CAIDA\n1|2|-1|bgp\n2|3|0|bgp\n", [40, 40], "links of 40 ms"),
        ("a b\nb c\nb b\n", [40, 40], "1 links from a router to itself left out"),
        ("source,target,rtt\n", [], ""),
    ],
)
def test_what_is_assumed_about_links_is_told(tmp_path: Path, content: str, ms: list[float], told: str) -> None:
    path = tmp_path / "graph.edges"
    path.write_text(content)
    if not ms:
        with pytest.raises(LocalError, match="graph has no round trip between two places"):
            read(path)
        return
    topology = read(path)
    assert topology.link_ms.tolist() == ms
    assert told in topology.name


GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" attr.type="string" for="node" id="d0"/>
<key attr.name="delay" attr.type="double" for="edge" id="d1"/>
<graph edgedefault="undirected">
  <node id="0"><data key="d0">a</data></node><node id="1"><data key="d0">b</data></node><node id="2"/>
  <edge source="0" target="1"><data key="d1">5.0</data></edge><edge source="1" target="2"><data key="d1">5</data></edge>
  <edge source="0" target="2"><data key="d1">20</data></edge><edge source="0" target="2"><data key="d1">30</data></edge>
</graph></graphml>
"""
GML = """Creator "somebody"
graph [
  node [ id 0 label "a" ]
  node [ id 1 label "b" ]
  node [ id 2 label "2" ]
  edge [ source 0 target 1 delay 5.0 ]
  edge [ source 1 target 2 delay 5 ]
  edge [ source 0 target 2 delay 20 ]
  edge [ source 0 target 2 delay 30 ]
]
"""


@pytest.mark.parametrize(("name", "content"), [("x.graphml", GRAPHML), ("x.xml", GRAPHML), ("x.gml", GML)])
def test_graphml_and_gml_keep_names_lengths_and_parallel_links(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    topology = read(path)
    assert topology.place_names == ["a", "b", "2"]
    assert sorted(topology.link_ms.tolist()) == [5, 5, 20, 30]
    assert topology.delay_ms.tolist() == [[0, 5, 10], [5, 0, 5], [10, 5, 0]]
    path.write_text(content[:-20])
    with pytest.raises(LocalError, match=r"x\.\w+ is damaged: ") as raised:
        read(path)
    assert "\n" not in str(raised.value)


def test_without_networkx_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_missing", lambda name: name == "networkx")
    (tmp_path / "x.gml").write_text(GML)
    with pytest.raises(LocalError, match="a topology in GML needs networkx; run: pip install"):
        read(tmp_path / "x.gml")


def test_pairs_are_what_the_user_says(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{a}\t{b}\t{ms}\n" for a, b, ms in PINGS))
    assert has_links(str(path), 1)
    assert not has_links(f"{path}#rtt", 1)
    assert load(f"{path}#rtt", 1).delay_ms[0, 1] == pytest.approx(RTT_MS[0][1] / 2)
    path.write_text("from\tto\tlatency\n" + path.read_text())
    assert not has_links(str(path), 1), "between so many pairs they are measured"
    assert has_links(f"{path}#links", 1)


def test_routers_with_positions_have_links_as_long_as_these_say(tmp_path: Path) -> None:
    path = tmp_path / "cities.json"
    nodes = [{"id": 0, "Longitude": 0, "Latitude": 0}, {"id": 1, "Longitude": 90, "Latitude": 0}]
    path.write_text(json.dumps({"nodes": nodes, "links": [{"source": 0, "target": 1}]}))
    topology = read(path)
    assert topology.link_ms[0] == pytest.approx(6371 * np.pi / 2 / FIBRE_KM_PER_MS, rel=1e-4)
    assert "link lengths from positions" in topology.name


# Bad input

EDGES = world()["edges"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", ",a,b\na,0,1\nc,1,0\n", "its first column and its first row name different places"),
        ("x.csv", ",a,b\na,0,1\nb,1\n", "row 2 of the matrix has 1 values, but there are 2 rows"),
        ("x.csv", ",a,b\na,0,one\nb,1,0\n", "is damaged: 'one' is not a number; repair it"),
        ("x.txt", "1\n", "it is a table of 1 lines and 1 columns separated by blanks, .*; expected: round trips"),
        ("x.txt", "", "it is empty; expected:"),
        ("x.txt", "some words\nthat are no table\n", "a table of 2 lines and 2 to 4 columns separated by blanks"),
        ("x.csv", "a,b,c,d\n1,2,3,4\n", "its first line names no source and target; expected:"),
        ("x.txt", "2 2\nR 0 0 0\nR 1 3 4\n0 1 5\n", "its first line says 2 links, but there are 1"),
        ("x.txt", "2 1\nR 0 0 0\nR 1 3 4\n0 7 5\n", "a link of x ends at 7, which is not among its routers"),
        ("x.txt", "2 1\nR 0 0 0\nR 1 3 4\n0 1 -5\n", "the link from 0 to 1 has weight '-5'; it must be a number of"),
        ("x.csv", "source,target,delay\na,b,3\nb,c,-2\n", "the link from b to c has delay -2.0; it must be"),
        ("x.csv", "source,target,delay\na,b,3\nb,c,\n", "the link from b to c has delay nan; it must be"),
        ("x.csv", "source,target,delay\na,b,3\nb,c,far\n", "from b to c, 'far' is not a number"),
        ("x.xml", "<nodelist><node></node></nodelist>", "all nodes of x need coordinates"),
        ("x.xml", "<nodelist>", "no element found"),
        ("x.xml", "<gpx></gpx>", "it is XML with <gpx>, which is not known; expected:"),
        ("x.json", "{}", "it is JSON, but x has no lists `nodes` and `edges`"),
        ("x.json", "[1, 2", "Expecting ',' delimiter"),
        ("x.json", "[1, 2]", "it is JSON, but network 1 is not a node-link graph"),
        ("x.json", '{"elements": {"nodes": [], "edges": []}}', "this is Cytoscape's JSON, which is not supported"),
        ("x.json", '{"nodes": [], "adjacency": []}', "this is networkx's adjacency JSON, which is not supported"),
        ("x.json", json.dumps(world(edges=[{"source": 7, "target": 99, "dist": 1}])), "a link of world ends at 99"),
        ("x.json", json.dumps(world(edges=[EDGES[0] | {"dist": -1}])), "from 7 to 8 has dist -1; it must"),
        ("x.json", json.dumps(world(edges=[{"source": 7, "target": 8}, *EDGES])), "has no dist, which others have"),
        ("x.json", json.dumps(world(nodes=[{"id": 7}, {"id": 7}])), "two routers of x have the id 7"),
        ("x.json", json.dumps(world(edges=[])), "world has no links; add them"),
        ("x.json", json.dumps(world(edges=EDGES[:1])), "is disconnected: router 0 reaches 2 of 3 routers"),
        ("x.gv", "digraph G { a -> b }", "this is Graphviz DOT, which is not supported; convert it; expected:"),
        ("x.net", "*Vertices 3\n", "this is Pajek"),
        ("x.gexf", '<?xml version="1.0"?>\n<gexf></gexf>', "this is GEXF"),
        ("x.brite", "Topology: ( 10 Nodes, 20 Edges )\n", "this is a graph of BRITE"),
        ("x.csv.gz", "no gzip", "cannot read topology .*x.csv.gz: Not a gzipped file"),
    ],
)  # fmt: skip
def test_damaged_and_unknown_files_are_refused_in_one_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LocalError, match=message) as raised:
        read(path)
    assert "\n" not in str(raised.value)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(LocalError, match=r"no topology or file is called 'wonder-proxy'; did you mean wonderproxy\?"):
        load("wonder-proxy", 1)
    with pytest.raises(
        LocalError, match="there are transit-stub, transit-stub-even, aws, wonderproxy, topology-zoo, or give the path"
    ):
        load("zzz", 1)
    with pytest.raises(LocalError, match="has no network 'geant'"):
        load("topology-zoo#geant", 1)
    with pytest.raises(LocalError, match="is one network, in a known unit; leave out #s"):
        load("aws#s", 1)
