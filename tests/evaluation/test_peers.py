"""Peers at random places: unique sorted ids, even places, the same for the same seed."""

from pathlib import Path

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Peers, Topology
from quillcast.evaluation.peers import attach
from quillcast.evaluation.topology.generator import transit_stub
from tests.evaluation import naive_places as naive


@pytest.fixture(scope="module")
def topology() -> Topology:
    return transit_stub(1, 2, 3, 2, 4)


def test_ids_ascend_strictly_and_arrays_have_their_types(topology: Topology) -> None:
    peers = attach(topology, 100_000, 1)
    assert len(peers) == 100_000
    assert bool((np.diff(peers.ids) > 0).all())
    assert (peers.ids.dtype, peers.place.dtype, peers.domain.dtype) == (np.uint64, np.int32, np.int32)
    assert np.array_equal(peers.domain, topology.domain[peers.place])


def test_ids_and_places_are_those_of_plain_integers(topology: Topology) -> None:
    peers = attach(topology, 500, 7)
    assert peers.ids.tolist() == sorted(naive.mix(7, 1, number) for number in range(500))
    assert peers.place.tolist() == [(naive.mix(7, 2, number) >> 32) * topology.places >> 32 for number in range(500)]


def test_peers_are_spread_evenly_over_routers_and_ids(topology: Topology) -> None:
    """Evaluation: end nodes are "randomly assigned to routers with uniform probability"."""
    peers = attach(topology, 54_000, 3)
    places = np.bincount(peers.place, minlength=54)
    assert float(((places - 1000) ** 2 / 1000).sum()) < 95  # 53 degrees of freedom: exceeded once in 3,000 seeds
    digits = np.bincount((peers.ids >> np.uint64(60)).astype(np.int64), minlength=16)
    assert float(((digits - 3375) ** 2 / 3375).sum()) < 42  # 15 degrees of freedom: once in 4,000


def test_peers_are_at_attachable_places_only(topology: Topology) -> None:
    some = Topology(
        **{name: getattr(topology, name) for name in topology.__slots__} | {"attachable": np.array([3, 5], np.int32)}
    )
    assert set(attach(some, 100, 1).place.tolist()) == {3, 5}


def test_equal_seeds_give_equal_peers_and_others_do_not(topology: Topology) -> None:
    one, same, other = attach(topology, 1000, 1), attach(topology, 1000, 1), attach(topology, 1000, 2)
    assert np.array_equal(one.ids, same.ids)
    assert np.array_equal(one.place, same.place)
    assert not np.isin(one.ids, other.ids).any()


def test_saved_and_mapped_they_are_the_same(topology: Topology, tmp_path: Path) -> None:
    peers = attach(topology, 1000, 1)
    peers.save(tmp_path / "peers")
    topology.save(tmp_path / "topology")
    mapped = Peers.open(tmp_path / "peers")
    assert np.array_equal(mapped.ids, peers.ids)
    assert np.array_equal(attach(Topology.open(tmp_path / "topology"), 1000, 1).place, mapped.place)


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_an_invalid_count_is_rejected(topology: Topology, count: int) -> None:
    with pytest.raises(LocalError, match="use a number from 1 to 2,147,483,647"):
        attach(topology, count, 1)
