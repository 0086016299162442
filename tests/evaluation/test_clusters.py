"""Domains found from delays: equal to a plain merging of clusters, and to the truth where there is one."""

import numpy as np
import numpy.typing as npt
import pytest

from quillcast.evaluation.peers import attach, clusters
from quillcast.evaluation.topology import clusters as clustering
from quillcast.evaluation.topology import load
from quillcast.evaluation.topology.clusters import clusters_of, numbered
from quillcast.evaluation.topology.generator import transit_stub
from tests.evaluation import naive_places as naive

NOWHERE = np.zeros((0, 0), np.float32)


def parts(labels: npt.NDArray[np.int32]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@pytest.mark.parametrize("count", [1, 3, 7, 29, 30])
def test_merging_along_chains_finds_what_merging_the_nearest_finds(count: int) -> None:
    points = np.random.default_rng(4).uniform(0, 100, (30, 2)).astype(np.float32)
    apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)).astype(np.float32)
    found = clusters_of(apart, NOWHERE, count)
    assert parts(found) == naive.clusters(apart, count)
    assert parts(clusters_of(NOWHERE, points, count)) == parts(found)


def test_labels_are_numbered_as_they_appear() -> None:
    assert numbered(np.array(["b", "a", "b", "c"])).tolist() == [0, 1, 0, 2]
    found = clusters_of(NOWHERE, np.array([[9.0], [1.0], [9.1], [0.9]], np.float32), 2)
    assert found.tolist() == [0, 1, 0, 1]
    assert found.dtype == np.int32


def test_most_stubs_are_found_from_their_delays() -> None:
    topology = transit_stub(1, 4, 4, 5, 8)  # 656 routers, 84 domains
    found = parts(clusters_of(topology.delay_ms, NOWHERE, 84))
    stubs = {stub for stub in parts(topology.domain) if len(stub) > 1 and min(stub) >= 16}
    assert len(stubs & found) > 0.7 * len(stubs)


def test_places_beyond_those_measured_join_the_nearest_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "MEASURED_MAX", 50)
    points = np.concatenate([np.random.default_rng(5).normal(at, 1, (200, 2)) for at in (0, 100, 200)])
    found = clusters_of(NOWHERE, points.astype(np.float32), 3)
    assert found.tolist() == [0] * 200 + [1] * 200 + [2] * 200


def test_peers_get_found_domains_and_keep_the_rest() -> None:
    topology = load("wonderproxy", 1)
    peers = attach(topology, 2_000, 1)
    found = clusters(topology, peers, count=5)
    assert np.array_equal(found.ids, peers.ids)
    assert np.array_equal(found.place, peers.place)
    assert set(found.domain.tolist()) == set(range(5))
    for place in range(topology.places):
        assert len(set(found.domain[peers.place == place].tolist())) <= 1


def test_one_place_is_one_cluster() -> None:
    assert clusters_of(np.zeros((1, 1), np.float32), NOWHERE).tolist() == [0]
