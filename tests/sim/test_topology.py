"""Delays between machines are what their model says."""

from random import Random
from statistics import mean

import pytest

from quillcast.sim.topology import Matrix, TransitStub, Uniform, aws_regions


def test_uniform_delays_lie_between_their_bounds_and_depend_on_the_pair_alone() -> None:
    topology = Uniform(0.01, 0.03, seed=5)
    delays = [topology.delay_s(a, b) for a in range(40) for b in range(40) if a != b]
    assert all(0.01 <= delay_s < 0.03 for delay_s in delays)
    assert mean(delays) == pytest.approx(0.02, rel=0.05)
    assert topology.delay_s(3, 7) == topology.delay_s(7, 3) == Uniform(0.01, 0.03, seed=5).delay_s(3, 7)
    assert topology.delay_s(3, 7) != Uniform(0.01, 0.03, seed=6).delay_s(3, 7)


def test_the_shipped_matrix_is_whole_and_halves_round_trips() -> None:
    rtt_ms = aws_regions()
    assert len(rtt_ms) == 21
    assert all(len(row) == 21 for row in rtt_ms)
    topology = Matrix(rtt_ms, Random(1))
    delays_ms = sorted(2000 * topology.delay_s(a, b) for a in range(21) for b in range(21))
    assert delays_ms == pytest.approx(sorted(cell for row in rtt_ms for cell in row))
    assert topology.delay_s(0, 1) == topology.delay_s(21, 22)


def test_the_transit_stub_model_has_the_routers_and_links_of_the_evaluation() -> None:
    topologies = [TransitStub(500, Random(seed)) for seed in range(8)]
    router_counts = [len(each._core) + sum(len(stub.distances) for stub in each._stubs) for each in topologies]
    assert mean(router_counts) == pytest.approx(5050, rel=0.15)
    for topology in topologies:
        delays = [topology.delay_s(a, b) for a in range(0, 500, 10) for b in range(0, 500, 10) if a != b]
        assert min(delays) >= 0.002  # two LAN links
        assert 0.1 < mean(delays) < 1.0


def test_a_detour_between_routers_is_never_shorter_than_the_way() -> None:
    topology = TransitStub(60, Random(3))
    for a in range(60):
        for b in range(60):
            via = (a * 7 + b * 3) % 60
            if via not in (a, b):
                assert topology.delay_s(a, b) == pytest.approx(topology.delay_s(b, a))
                assert topology.delay_s(a, b) <= topology.delay_s(a, via) + topology.delay_s(via, b) + 1e-12
