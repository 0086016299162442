"""Kernels of routing against their naive twin, and against what Scribe's section 2 says of Pastry."""

from math import log
from pathlib import Path

import numpy as np
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation.chance import mix
from quillcast.evaluation.network import Peers, Topology
from quillcast.evaluation.peers import attach
from quillcast.evaluation.routing import pastry, preparing
from quillcast.evaluation.topology.generator import transit_stub
from tests.evaluation.naive import Overlay

KEYS = [int(mix(7, 7, number)) for number in range(40)]


def plane(places: int, *, matrix: bool, symmetric: bool = True) -> Topology:
    """Places in a plane, said by coordinates or by a matrix of whole milliseconds, so that many are as far."""
    random = np.random.default_rng(5)
    coordinates = random.integers(0, 9, (places, 2)).astype(np.float32)
    apart = np.linalg.norm(coordinates[:, None] - coordinates[None], axis=2)
    delay_ms = np.rint(apart if symmetric else apart + random.integers(0, 3, apart.shape) * (apart > 0))
    none = np.empty((0, 0), np.float32)
    return Topology(
        delay_ms=delay_ms.astype(np.float32) if matrix else none,
        coordinates=none if matrix else coordinates,
        via=np.empty((0, 0), np.int32),
        link_ends=np.empty((0, 2), np.int32),
        link_ms=np.empty(0, np.float32),
        domain=(np.arange(places) // 10).astype(np.int32),
        attachable=np.arange(places, dtype=np.int32),
        access_ms=0.5,
        name="plane",
        place_names=[],
    )


SMALL = [
    pytest.param(plane(30, matrix=True), 300, {}, id="matrix"),
    pytest.param(plane(30, matrix=True), 1200, {}, id="ranges long enough for nearest-by-prefix tables"),
    pytest.param(plane(30, matrix=True, symmetric=False), 300, {}, id="asymmetric"),
    pytest.param(plane(30, matrix=False), 300, {}, id="coordinates"),
    pytest.param(plane(30, matrix=True), 300, {"b": 2, "l": 4}, id="figure 1: b = 2"),
    pytest.param(plane(30, matrix=True), 300, {"k": 3}, id="sampled"),
    pytest.param(plane(30, matrix=True), 12, {}, id="fewer peers than a leaf set"),
    pytest.param(plane(30, matrix=True), 1, {}, id="alone"),
]


def both(topology: Topology, count: int, options: dict[str, int]) -> tuple[pastry.Tables, Overlay]:
    peers = attach(topology, count, 3)
    quality = f"sampled({options['k']})" if "k" in options else "ideal"
    made = preparing.tables(topology, peers, options.get("b", 4), options.get("l", 16), quality, seed=9)
    return made, Overlay(topology, peers, seed=9, **options)


@pytest.mark.parametrize(("topology", "count", "options"), SMALL)
def test_next_hops_are_those_of_the_definition(topology: Topology, count: int, options: dict[str, int]) -> None:
    tables, naive = both(topology, count, options)
    for key in KEYS:
        assert pastry.root_of(tables, np.uint64(key)) == naive.root_of(key)
        for peer in range(0, count, max(1, count // 12)):
            assert pastry.next_hop(tables, peer, np.uint64(key)) == naive.next_hop(peer, key)


@pytest.mark.parametrize(("topology", "count", "options"), SMALL)
def test_cells_hold_the_nearest_peer_with_the_prefix(topology: Topology, count: int, options: dict[str, int]) -> None:
    tables, naive = both(topology, count, options)
    for peer in range(0, count, max(1, count // 6)):
        for row in range(3):
            for digit in range(1 << naive.b):
                if digit != naive.digits(naive.ids[peer])[row]:
                    assert pastry.cell(tables, peer, row, digit) == naive.cell(peer, row, digit)


def test_given_tables_are_followed() -> None:
    topology = plane(30, matrix=True)
    peers = attach(topology, 200, 3)
    cells = np.full((200, 3, 16), -1, np.int32)
    naive = Overlay(topology, peers)
    ideal = preparing.tables(topology, peers, seed=4)
    naive.given = {}
    for peer in range(200):
        for row in range(3):
            for digit in range(16):
                there = pastry.cell(ideal, peer, row, digit) if mix(1, peer, row * 16 + digit) % 3 else -1
                if digit != naive.digits(naive.ids[peer])[row] and there >= 0:
                    cells[peer, row, digit] = naive.given[peer, row, digit] = there
    tables = preparing.tables(topology, peers, quality=cells)
    for key in KEYS:
        for peer in range(0, 200, 7):
            assert pastry.next_hop(tables, peer, np.uint64(key)) == naive.next_hop(peer, key)


def test_routes_take_less_than_log_16_n_hops_and_end_at_the_closest_peer() -> None:
    """Scribe, section 2: "The expected number of hops is less than log_2^b N"."""
    topology = transit_stub(1, transit_domains=3, routers_per_transit=3, stubs_per_router=3, routers_per_stub=5)
    tables = preparing.tables(topology, attach(topology, 20_000, 1))
    hops = []
    for number in range(2000):
        key = np.uint64(mix(3, 3, number))
        way = pastry.route(tables, number * 10, key)
        assert way[-1] == pastry.root_of(tables, key)
        hops.append(len(way) - 1)
    assert np.mean(hops) < log(20_000, 16)


def test_peers_at_equally_near_ones_do_not_crowd() -> None:
    topology = plane(2, matrix=True)
    tables = preparing.tables(topology, attach(topology, 4096, 1))
    low, high = pastry.prefix_range(tables, np.uint64(0xA), 4)
    asked = [pastry.cell(tables, peer, 0, 0xA) for peer in range(4096) if not low <= peer < high]
    assert np.bincount(asked).max() < 4 * len(asked) / (high - low)


def test_joining_fills_cells_with_near_peers_but_not_always_the_nearest() -> None:
    """Scribe, section 2.2: entries are near "among all the live nodes with appropriate nodeId prefixes", about."""
    topology = transit_stub(1, transit_domains=3, routers_per_transit=3, stubs_per_router=3, routers_per_stub=5)
    peers = attach(topology, 1500, 1)
    found, again = (preparing.tables(topology, peers, quality="join") for _ in range(2))
    np.testing.assert_array_equal(found.cells, again.cells)
    ideal, naive = preparing.tables(topology, peers), Overlay(topology, peers)
    filled, found_ms, ideal_ms, any_ms = [], [], [], []
    for peer in range(0, 1500, 50):
        for row in range(2):
            for digit in range(16):
                best, there = pastry.cell(ideal, peer, row, digit), pastry.cell(found, peer, row, digit)
                if digit == naive.digits(naive.ids[peer])[row]:
                    assert there == -1
                elif best >= 0:
                    filled.append(there >= 0)
                    ideal_ms.append(naive.delay(peer, best))
                    any_ms.append(naive.delay(peer, int(mix(1, peer, digit)) % 1500))
                    if there >= 0:
                        found_ms.append(naive.delay(peer, there))
                        assert naive.shared(naive.ids[peer], naive.ids[there]) == row
                        assert naive.digits(naive.ids[there])[row] == digit
    assert np.mean(filled) > 0.95
    assert np.mean(ideal_ms) < np.mean(found_ms) < np.mean(any_ms) / 2


def test_tables_are_the_same_when_they_are_mapped(tmp_path: Path) -> None:
    topology = plane(30, matrix=True)
    topology.save(tmp_path / "topology")
    attach(topology, 3000, 3).save(tmp_path / "peers")
    made = preparing.tables(Topology.open(tmp_path / "topology"), Peers.open(tmp_path / "peers"))
    preparing.save(tmp_path / "tables", made)
    mapped = preparing.load(tmp_path / "tables", Topology.open(tmp_path / "topology"), Peers.open(tmp_path / "peers"))
    for name, one, other in zip(made._fields, made, mapped, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert type(one) is type(other)
    assert not mapped.nearest.flags.writeable


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"digit_bits": 5}, "5 bits"),
        ({"leaf_set_size": 7}, "leaf set of 7"),
        ({"quality": "perfect"}, "'perfect'"),
        ({"quality": "sampled(0)"}, r"sampled\(0\)"),
    ],
)
def test_numbers_that_allow_no_tables_are_named(options: dict[str, int], words: str) -> None:
    topology = plane(10, matrix=True)
    with pytest.raises(LocalError, match=words):
        preparing.tables(topology, attach(topology, 10, 1), **options)  # type: ignore[arg-type]
