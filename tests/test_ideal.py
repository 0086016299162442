"""The yardstick for routes: known figures, and small rings worked out by hand."""

from random import Random

import pytest

from benchmarks.ideal import ideal_hops, ideal_stretch
from quillcast.core.ids import ID_BYTES
from quillcast.sim.topology import TransitStub


def test_large_rings_take_about_log_16_n_hops() -> None:
    random = Random(1)
    ids = [random.randbytes(ID_BYTES) for _ in range(2000)]
    assert ideal_hops(ids, 4, 16) == pytest.approx(2.68, rel=0.02)


def test_in_a_ring_no_larger_than_a_leaf_set_every_other_peer_is_one_hop_away() -> None:
    ids = [bytes([16 * index]) + bytes(15) for index in range(16)]
    assert ideal_hops(ids, 4, 16) == pytest.approx(15 / 16, abs=0.01)


def test_one_digit_per_hop_beyond_the_leaf_set() -> None:
    ids = [bytes([16 * index]) + bytes(15) for index in range(16)]
    hops = ideal_hops(ids, 1, 2)  # b = 1: a key's four bits are set right one by one, but for the last next door
    assert 1.5 < hops < 2.0


def test_a_lone_peer_needs_no_hop() -> None:
    assert ideal_hops([bytes(16)], 4, 16) == 0


def test_routes_are_as_long_as_they_have_hops_where_all_peers_are_as_far() -> None:
    random = Random(1)
    ids = [random.randbytes(ID_BYTES) for _ in range(500)]
    assert ideal_stretch(ids, 4, 16, lambda a, b: 0.1) == pytest.approx(ideal_hops(ids, 4, 16), rel=0.1)


def test_near_peers_in_the_tables_make_routes_shorter_than_their_hops() -> None:
    random = Random(1)
    ids = [random.randbytes(ID_BYTES) for _ in range(500)]
    topology = TransitStub(len(ids), random)
    assert 1.2 < ideal_stretch(ids, 4, 16, topology.delay_s) < 0.8 * ideal_hops(ids, 4, 16)


def test_the_only_way_is_the_direct_one_in_a_ring_no_larger_than_a_leaf_set() -> None:
    ids = [bytes([16 * index]) + bytes(15) for index in range(16)]
    assert ideal_stretch(ids, 4, 16, lambda a, b: 1.0 + abs(a - b)) == pytest.approx(1.0)
