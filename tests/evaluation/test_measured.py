"""Measured networks: what is in the box, what is repaired and counted, and what is refused with one clear line."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Topology
from quillcast.evaluation.topology import load
from quillcast.evaluation.topology.measured import FIBRE_KM_PER_MS, LINK_MS_MIN, of_links, read, repair
from tests.evaluation import naive_places as naive

NAN = float("nan")


def between(topology: Topology) -> Any:
    return topology.delay_ms[~np.eye(topology.places, dtype=bool)]


# In the box


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
    with pytest.raises(LocalError, match="are in s or ms, not in 'minutes'"):
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


def test_networks_meet_where_they_are_near_and_the_latest_state_counts(tmp_path: Path) -> None:
    def network(name: str, *latitudes: float) -> str:
        nodes = [{"id": str(at), "name": f"{name}{at}", "pos": [0, y]} for at, y in enumerate(latitudes)]
        edges = [{"source": str(at), "target": str(at + 1), "dist": 100.0} for at in range(len(latitudes) - 1)]
        return json.dumps({"graph": {"name": name}, "nodes": nodes, "edges": edges})

    path = tmp_path / "some.jsonl"
    path.write_text(
        "\n".join([network("net2001", 60), network("net2009", 0, 1), network("b", 1.1, 2), network("c", 9)])
    )
    topology = read(path)
    assert topology.place_names == ["b0", "b1", "c0", "net20090", "net20091"]
    assert topology.domain.tolist() == [0, 0, 1, 2, 2]
    joined = {tuple(sorted(topology.place_names[end] for end in ends)) for ends in topology.link_ends}
    assert joined == {("b0", "b1"), ("net20090", "net20091"), ("b0", "net20091"), ("b1", "c0")}


def test_a_disconnected_graph_is_refused() -> None:
    with pytest.raises(LocalError, match="islands is disconnected: router 0 reaches 2 of 4 routers"):
        of_links(np.array([[0, 1], [2, 3]], np.int32), np.ones(2, np.float32), "islands", routers=4)


def test_a_graph_too_large_for_all_pairs_is_refused() -> None:
    with pytest.raises(LocalError, match="has 5,001 routers"):
        of_links(np.array([[0, 1]], np.int32), np.ones(1, np.float32), "huge", routers=5_001)


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


# Bad input


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", ",a,b\na,0,1\nc,1,0\n", "its first column and its first row name different places"),
        ("x.csv", ",a,b\na,0,1\nb,1\n", "row 2 of the matrix has 1 values, but there are 2 rows"),
        ("x.csv", ",a,b\na,0,one\nb,1,0\n", "could not convert string to float: 'one'"),
        ("x.txt", "0 1\n", "row 1 of the matrix has 2 values, but there are 1 rows"),
        ("x.txt", "", "it is not a matrix"),
        ("x.txt", "2 2\nR 0 0 0\nR 1 3 4\n0 1 5\n", "its first line says 2 links, but there are 1"),
        ("x.txt", "2 1\nR 0 0 0\nR 1 3 4\n0 7 5\n", "ends at a router that is not listed"),
        ("x.xml", "<nodelist><node></node></nodelist>", "its nodes have no coordinates"),
        ("x.xml", "<nodelist>", "no element found"),
        ("x.json", "{}", "there is no 'nodes'"),
        ("x.json", "[1, 2", "Expecting ',' delimiter"),
        ("x.json", json.dumps(world(edges=[{"source": 7, "target": 99, "dist": 1}])), "there is no 99"),
        ("x.json", json.dumps(world(edges=[])), "is disconnected: router 0 reaches 1 of 3 routers"),
        ("x.toml", "", "is neither .csv, .txt, .xml, .json nor .jsonl"),
        ("x.csv.gz", "no gzip", "cannot read topology .*x.csv.gz: Not a gzipped file"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
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
