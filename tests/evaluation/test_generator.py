"""Transit-stub networks: the sizes of the papers, and ways equal to those of a plain Dijkstra."""

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Topology
from quillcast.evaluation.topology import load
from quillcast.evaluation.topology.generator import Shape, transit_stub
from tests.evaluation import naive_places as naive

SMALL = (3, 4, 2, 4)  # 108 routers


@pytest.fixture(scope="module")
def papers() -> Topology:
    return load("transit-stub", 1)


@pytest.fixture(scope="module")
def small() -> Topology:
    return transit_stub(5, *SMALL)


def test_it_has_the_routers_and_links_of_the_evaluation(papers: Topology) -> None:
    """Evaluation, slide "Experimental Evaluation": 5,050 routers; with 100,000 LAN links about 110,000 links in all."""
    assert papers.places == 5050
    assert np.array_equal(papers.attachable, np.arange(5050))
    assert len(np.unique(papers.domain)) == 10 + 500
    assert 9_000 < len(papers.link_ends) < 13_000
    assert float(papers.link_ms.mean(dtype=np.float64)) == pytest.approx(40.0, abs=0.001)
    assert papers.access_ms == 1.0


def test_links_between_transit_domains_are_the_longest_and_links_in_stubs_the_shortest(papers: Topology) -> None:
    transit = papers.link_ends < 50
    same = papers.domain[papers.link_ends[:, 0]] == papers.domain[papers.link_ends[:, 1]]
    kinds = [transit.all(axis=1) & ~same, transit.all(axis=1) & same, transit.sum(axis=1) == 1, ~transit.any(axis=1)]
    means = [float(papers.link_ms[kind].mean()) for kind in kinds]
    assert means == sorted(means, reverse=True)
    assert [int(kind.sum()) for kind in kinds][2] == 500  # one link from each stub to its transit router
    assert bool(same[kinds[3]].all())  # none from stub to stub


def test_delays_are_symmetric_and_finite(papers: Topology) -> None:
    assert bool(np.isfinite(papers.delay_ms).all())
    assert np.array_equal(papers.delay_ms, papers.delay_ms.T)
    assert not papers.delay_ms.diagonal().any()


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_composed_ways_are_the_shortest(seed: int) -> None:
    """A stub hangs off one router, so no way can gain by crossing another stub: policy costs nothing in this model."""
    topology = transit_stub(seed, *SMALL)
    for source in range(topology.places):
        assert topology.delay_ms[source] == pytest.approx(naive.dijkstra(topology, source), rel=1e-5, abs=1e-4)


def test_ways_are_made_of_adjoining_links_and_as_long_as_the_delay(small: Topology) -> None:
    for source in range(0, small.places, 7):
        for target in range(small.places):
            at = source
            for link in naive.way(small, source, target):
                assert at in small.link_ends[link]
                at = int(small.link_ends[link].sum()) - at
            assert at == target
            length = sum(small.link_ms[link] for link in naive.way(small, source, target))
            assert length == pytest.approx(small.delay_ms[source, target], rel=1e-5)


def test_traffic_of_a_stub_crosses_no_other_stub(small: Topology) -> None:
    transit_domains = SMALL[0]
    for source in range(0, small.places, 5):
        for target in range(small.places):
            crossed = {
                int(small.domain[end]) for link in naive.way(small, source, target) for end in small.link_ends[link]
            }
            stubs = {domain for domain in crossed if domain >= transit_domains}
            assert stubs <= {int(small.domain[source]), int(small.domain[target])}


def test_equal_seeds_give_equal_networks_and_others_do_not() -> None:
    one, same, other = transit_stub(1, *SMALL), transit_stub(1, *SMALL), transit_stub(2, *SMALL)
    for name in ("delay_ms", "via", "link_ends", "link_ms", "domain"):
        assert np.array_equal(getattr(one, name), getattr(same, name)), name
    assert one.delay_ms.sum() != other.delay_ms.sum()


def test_arrays_are_read_only_as_when_mapped(small: Topology) -> None:
    with pytest.raises(ValueError, match="read-only"):
        small.delay_ms[0, 0] = 1


def test_other_sizes_shapes_and_delays() -> None:
    named = load("transit-stub(2,3,2,4)", 9)
    assert named.places == 2 * 3 * (1 + 2 * 4)
    assert np.array_equal(named.delay_ms, transit_stub(9, 2, 3, 2, 4).delay_ms)
    assert float(transit_stub(9, 2, 3, 2, 4, core_ms=5.0).link_ms.mean()) == pytest.approx(5.0, rel=1e-5)
    assert transit_stub(9, 2, 3, 2, 4, shape=Shape(stub=0.5)).delay_ms.sum() != named.delay_ms.sum()
    assert transit_stub(9, 1, 1, 1, 1).delay_ms.tolist() == [[0, 40], [40, 0]]


def test_in_the_even_shape_links_to_and_in_stubs_are_as_long_as_in_transit_domains() -> None:
    even = load("transit-stub-even", 1)
    in_stub, transit = (even.link_ends >= 50).all(axis=1), (even.link_ends < 50).all(axis=1)
    inside = even.domain[even.link_ends[:, 0]] == even.domain[even.link_ends[:, 1]]
    means = [float(even.link_ms[kind].mean()) for kind in (in_stub, ~in_stub & ~transit, transit & inside)]
    assert max(means) < 1.1 * min(means)
    assert float(even.link_ms[transit & ~inside].mean()) > 2 * max(means)


@pytest.mark.parametrize("sizes", [(0, 5, 10, 10), (10, 5, 10, 0), (100, 50, 10, 10)])
def test_invalid_sizes_are_rejected_by_name(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(LocalError, match=rf"transit-stub\({','.join(map(str, sizes))}\) makes [\d,]+ routers"):
        transit_stub(1, *sizes)


def test_more_links_than_can_be_numbered_are_rejected() -> None:
    with pytest.raises(LocalError, match=r"makes \d\d,\d\d\d links; use sizes that make at most 65,536"):
        transit_stub(1, 1, 1, 10, 200)
