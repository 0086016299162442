"""The cost and delay of trees, against naive twins and by hand."""

from collections import Counter

import numpy as np
import pytest

from quillcast.evaluation import metrics
from quillcast.evaluation.chance import mix
from quillcast.evaluation.network import Group, Ints, Peers, Topology, Tree, frozen
from quillcast.evaluation.peers import attach
from quillcast.evaluation.policies import parse
from quillcast.evaluation.policies.kernel import tree_of
from quillcast.evaluation.routing import pastry, preparing
from quillcast.evaluation.topology.generator import transit_stub
from tests.evaluation import naive
from tests.evaluation.naive import Overlay, parents_of

TOPOLOGY = transit_stub(2, transit_domains=3, routers_per_transit=2, stubs_per_router=3, routers_per_stub=4)
PEERS = attach(TOPOLOGY, 300, 2)
TABLES = preparing.tables(TOPOLOGY, PEERS)
OVERLAY = Overlay(TOPOLOGY, PEERS)


def group(number: int, size: int) -> Group:
    members = np.random.default_rng([number, size]).choice(len(PEERS), size, replace=False)
    return Group(number, int(mix(1, 77, number)), frozen(np.sort(members), np.int32), 1)


def scribe(asked: Group) -> Tree:
    (tree,) = parse("scribe").trees(TABLES, asked)
    return tree


@pytest.mark.parametrize("size", [1, 2, 11, 100, 300])
def test_delays_add_up_along_the_tree(size: int) -> None:
    asked = group(size, size)
    tree = scribe(asked)
    for source in (-1, int(asked.members[0])):
        late = naive.delays(OVERLAY, parents_of(tree), None if source < 0 else source)
        expected = [late[int(node)] for node in tree.nodes]
        np.testing.assert_allclose(metrics.delays_ms(TABLES, tree, source), expected, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 11, 100])
@pytest.mark.parametrize("publisher", ["root", "member", "stranger"])
def test_ratios_are_maximum_over_maximum_and_average_over_average(size: int, publisher: str) -> None:
    """Scribe, section 6.1 (the slides slip once: RAD is average over average)."""
    asked = group(size, size)
    tree = scribe(asked)
    strangers = sorted(set(range(300)) - set(asked.members.tolist()))
    source = {"root": -1, "member": int(asked.members[1]), "stranger": strangers[0]}[publisher]
    origin = int(tree.nodes[0]) if source < 0 else source
    late = naive.delays(OVERLAY, parents_of(tree), None if source < 0 else source)
    receivers = [int(member) for member in asked.members if member != origin]
    direct = [OVERLAY.delay(origin, member) for member in receivers]
    through = [late[member] for member in receivers]
    result = metrics.ratios(TABLES, [tree], source)
    assert result.rmd == pytest.approx(max(through) / max(direct), rel=1e-5)
    assert result.rad == pytest.approx(np.mean(through) / np.mean(direct), rel=1e-5)
    assert result.ip_max_ms == pytest.approx(max(direct), rel=1e-6)


def test_a_group_without_receivers_has_no_ratios() -> None:
    alone = group(0, 1)
    (tree,) = parse("star").trees(TABLES, alone)
    assert np.isnan(metrics.ratios(TABLES, [tree], int(alone.members[0])).rad)


def test_shares_of_stripes_are_weighed() -> None:
    asked = group(3, 20)
    tree = scribe(asked)
    halves = [tree._replace(weight=0.5), tree._replace(weight=0.5)]
    assert metrics.ratios(TABLES, halves) == pytest.approx(metrics.ratios(TABLES, [tree]))


@pytest.mark.parametrize("size", [2, 11, 100])
@pytest.mark.parametrize("publisher", ["each stripe's root", "the first stripe's root", "member"])
def test_stripes_are_compared_with_ip_multicast_from_where_they_start(size: int, publisher: str) -> None:
    asked = group(size, size)
    stripes = parse("stripes(4)").trees(TABLES, asked)
    roots = [int(stripe.nodes[0]) for stripe in stripes]
    assert len(set(roots)) > 1
    source = {"member": int(asked.members[1]), "the first stripe's root": roots[0]}.get(publisher)
    through, direct = [], []
    for stripe, root in zip(stripes, roots, strict=True):
        origin = root if source is None else source
        late = naive.delays(OVERLAY, parents_of(stripe), source)
        receivers = [int(member) for member in asked.members if member != origin]
        through += [late[member] for member in receivers]
        direct += [OVERLAY.delay(origin, member) for member in receivers]
    result = metrics.ratios(TABLES, stripes, -1 if source is None else source)
    assert result.rad == pytest.approx(sum(through) / sum(direct), rel=1e-5)
    assert result.rmd == pytest.approx(max(through) / max(direct), rel=1e-5)
    assert result.mean_ms == pytest.approx(np.mean(through), rel=1e-5)


@pytest.mark.parametrize("size", [2, 11, 100])
def test_node_stress_counts_children(size: int) -> None:
    tree = scribe(group(size, size))
    tables_count, entries_count = np.zeros(300, np.int32), np.zeros(300, np.int32)
    forwarded = np.zeros(300)
    for _ in range(2):
        metrics.add_node_stress(tree, tables_count, entries_count, forwarded)
    children = naive.children_of(parents_of(tree))
    for peer in range(300):
        assert tables_count[peer] == 2 * bool(children[peer])
        assert entries_count[peer] == forwarded[peer] == 2 * len(children[peer])


@pytest.mark.parametrize("size", [2, 11, 100])
def test_link_stress_counts_every_copy_on_every_link(size: int) -> None:
    asked = group(size, size)
    tree = scribe(asked)
    stranger = next(peer for peer in range(300) if peer not in asked.members and peer != tree.nodes[0])
    core, access = np.zeros(len(TOPOLOGY.link_ms)), np.zeros(300)
    metrics.add_link_stress(TOPOLOGY, PEERS, tree, core, access, [stranger])
    pairs = [(above, node) for node, above in parents_of(tree).items() if above >= 0]
    pairs.append((stranger, int(tree.nodes[0])))
    links = Counter(link for a, b in pairs for link in naive.way(TOPOLOGY, PEERS.place[a], PEERS.place[b]))
    ends = Counter(peer for pair in pairs for peer in pair)
    assert {link: count for link, count in enumerate(core) if count} == links
    assert {peer: count for peer, count in enumerate(access) if count} == ends


@pytest.mark.parametrize("size", [1, 2, 11, 100])
def test_ip_multicast_uses_each_link_of_the_merged_ways_once(size: int) -> None:
    asked = group(size, size)
    source = int(asked.members[0])
    core, access = np.zeros(len(TOPOLOGY.link_ms)), np.zeros(300)
    metrics.ip_link_stress(TOPOLOGY, PEERS, source, asked.members, core, access)
    assert set(np.flatnonzero(core)) == naive.ip_links(OVERLAY, source, asked.members.tolist())
    assert core.max(initial=0) <= 1
    assert set(np.flatnonzero(access)) == (set(asked.members.tolist()) if size > 1 else set())


def test_a_matrix_knows_access_links_only() -> None:
    none, no_links = np.empty((0, 0), np.int32), np.empty((0, 2), np.int32)
    measured = Topology(
        TOPOLOGY.delay_ms, TOPOLOGY.coordinates, none, no_links, np.empty(0, np.float32), TOPOLOGY.domain,
        TOPOLOGY.attachable, 1.0, "matrix", [],
    )  # fmt: skip
    tree = scribe(group(11, 11))
    core, access = np.zeros(0), np.zeros(300)
    metrics.add_link_stress(measured, PEERS, tree, core, access)
    assert access.sum() == 2 * (len(tree.nodes) - 1)


def chain(peers: list[int]) -> Tree:
    count = len(peers)
    nodes = np.array(peers, np.int32)
    return tree_of(nodes, np.arange(-1, count - 1, dtype=np.int32), np.ones(count, np.bool_))


def domains(labels: list[int]) -> pastry.Tables:
    some = Peers(PEERS.ids[: len(labels)], PEERS.place[: len(labels)], np.array(labels, np.int32))
    return preparing.tables(TOPOLOGY, some)


def test_copies_that_cross_a_border_are_counted() -> None:
    tree = chain([0, 1, 2, 3])
    extra: Ints = np.array([[0, 3], [0, 1]], np.int32)
    tables = domains([7, 7, 8, 7])
    assert metrics.crossings(tables, tree) == 2
    assert metrics.crossings(tables, tree._replace(extra=np.concatenate([extra, extra[:1] * 0 + [[0, 2]]]))) == 3
