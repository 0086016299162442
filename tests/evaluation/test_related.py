"""The systems that Scribe is compared with: each kernel against its slow twin, and what must hold of every tree."""

from collections import Counter
from collections.abc import Callable
from functools import cache
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quillcast.core.errors import LocalError
from quillcast.evaluation.network import Group, Topology, Tree
from quillcast.evaluation.peers import attach
from quillcast.evaluation.policies import bayeux, can, narada, overcast, parse, stripes
from quillcast.evaluation.policies.kernel import children_counts
from quillcast.evaluation.policies.members import GroupTooLarge
from quillcast.evaluation.routing.pastry import Tables, delay, root_of
from quillcast.evaluation.routing.preparing import tables
from quillcast.evaluation.topology import graphs
from quillcast.evaluation.topology.generator import transit_stub
from quillcast.evaluation.workload import creator
from tests.evaluation import naive_related as naive
from tests.params import rest_long

POLICIES = [
    "creator_rooted",
    "delay_optimised(3)",
    "star",
    "k_ary(3)",
    "k_ary(2, id)",
    "stripes(4)",
    "stripes(16)",
    "stripes(5, 6)",
    "bayeux",
    "overcast",
    "narada",
    "narada(256, 1)",
    "can",
    "can(2, 0)",
    "can(2, 4, 3)",
    "unicast",
]


@cache
def deployment(count: int, seed: int = 1, quality: str = "ideal") -> Tables:
    topology = transit_stub(seed, transit_domains=2, routers_per_transit=2, stubs_per_router=2, routers_per_stub=4)
    return tables(topology, attach(topology, count, seed), quality=quality)


@cache
def measured(count: int) -> Tables:
    """Peers at the rows of a matrix whose ways back take another time, and whose places are not at no distance."""
    chance = np.random.default_rng(count)
    places, none = 12, np.zeros((0, 0), np.float32)
    topology = Topology(
        delay_ms=chance.uniform(1, 100, (places, places)).astype(np.float32),
        coordinates=none,
        via=np.zeros((0, 0), np.uint16),
        link_ends=np.zeros((0, 2), np.int32),
        link_ms=np.zeros(0, np.float32),
        domain=np.arange(places, dtype=np.int32),
        attachable=np.arange(places, dtype=np.int32),
        access_ms=1.0,
        name="a matrix",
        place_names=[],
    )
    return tables(topology, attach(topology, count, 1))


@cache
def on_a_plane(count: int) -> Tables:
    """Peers at points of a plane."""
    points = np.random.default_rng(count).uniform(0, 100, (30, 2)).astype(np.float32)
    topology = Topology(
        delay_ms=np.zeros((0, 0), np.float32),
        coordinates=points,
        via=np.zeros((0, 0), np.uint16),
        link_ends=np.zeros((0, 2), np.int32),
        link_ms=np.zeros(0, np.float32),
        domain=np.zeros(30, np.int32),
        attachable=np.arange(30, dtype=np.int32),
        access_ms=1.0,
        name="a plane",
        place_names=[],
    )
    return tables(topology, attach(topology, count, 1))


Kind = Callable[[int], Tables]
KINDS: list[Kind] = [deployment, measured, on_a_plane]


def group(made: Tables, size: int, seed: int) -> Group:
    random = Random(seed)
    members = sorted(random.sample(range(len(made.ids)), size))
    return Group(seed % 1000, random.randrange(1 << 64), np.array(members, np.int32), seed)


def trees(policy: str, made: Tables, asked: Group) -> list[Tree]:
    return parse(policy).trees(made, asked)


def depths_ms(made: Tables, tree: Tree) -> np.ndarray:
    depths = np.zeros(len(tree.nodes))
    for at in range(1, len(depths)):
        above = tree.parent[at]
        depths[at] = depths[above] + delay(made, tree.nodes[above], tree.nodes[at])
    return depths


def non_zero(counts: dict[int, int]) -> dict[int, int]:
    return {peer: count for peer, count in counts.items() if count}


# --- whatever the policy


@pytest.mark.parametrize("policy", rest_long(POLICIES, 6))
@settings(max_examples=25, deadline=None)
@given(
    count=st.sampled_from([1, 2, 3, 7, 40, 150]),
    share=st.floats(0, 1),
    seed=st.integers(0, 1 << 62),
    quality=st.sampled_from(["ideal", "sampled(2)"]),
)
def test_every_member_is_reached_once_by_a_tree_whose_parents_come_first(
    policy: str, count: int, share: float, seed: int, quality: str
) -> None:
    made = deployment(count, quality=quality)
    asked = group(made, max(1, round(share * count)), seed)
    made_trees = trees(policy, made, asked)
    assert sum(tree.weight for tree in made_trees) == pytest.approx(1)
    for tree in made_trees:
        nodes = len(tree.nodes)
        assert len(np.unique(tree.nodes)) == nodes
        assert np.array_equal(np.sort(tree.nodes[tree.member]), asked.members)
        assert tree.parent[0] == -1
        assert np.all(tree.parent[1:] >= 0)
        assert np.all(tree.parent < np.arange(nodes))
        assert np.isin(tree.extra, tree.nodes).all()
        for array in (tree.nodes, tree.parent, tree.extra, tree.state, tree.joins):
            assert array.dtype == np.int32
        assert tree.extra.shape[1:] == (2,)
        assert tree.state.shape == tree.joins.shape == (nodes,)
        assert np.all(tree.state >= 0)
        assert np.all(tree.joins >= 0)


@pytest.mark.parametrize(("policy", "most"), [("delay_optimised(3)", 3), ("delay_optimised(1)", 1), ("k_ary(2)", 2)])
@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 60), seed=st.integers(0, 1 << 62))
def test_caps_on_children_are_kept(policy: str, most: int, size: int, seed: int) -> None:
    (tree,) = trees(policy, deployment(60), group(deployment(60), size, seed))
    assert children_counts(tree).max(initial=0) <= most


@pytest.mark.parametrize(("policy", "most"), [("stripes(4)", 4), ("stripes(16)", 16), ("stripes(3, 5)", 5)])
@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 150), seed=st.integers(0, 1 << 62))
def test_a_node_has_no_more_children_in_all_stripes_together_than_its_cap(
    policy: str, most: int, size: int, seed: int
) -> None:
    made = deployment(150)
    total: Counter[int] = Counter()
    for tree in trees(policy, made, group(made, size, seed)):
        total.update(naive.by_peer(tree, children_counts(tree)))
    assert max(total.values()) <= most


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_group_gives_the_same_trees(policy: str) -> None:
    made = deployment(150)
    asked = group(made, 50, 5)
    for once, again in zip(trees(policy, made, asked), trees(policy, made, asked), strict=True):
        for field in ("nodes", "parent", "member", "extra", "state", "joins"):
            assert np.array_equal(getattr(once, field), getattr(again, field))


@pytest.mark.parametrize(
    "policy",
    [
        "k_ary(0)",
        "k_ary(x)",
        "k_ary(2, up)",
        "delay_optimised(0)",
        "narada(0)",
        "stripes(0)",
        "stripes(4, 0)",
        "can(0)",
        "can(2, 9)",
        "can(2, 4, 0)",
    ],
)
def test_invalid_arguments_of_a_policy_are_rejected_with_the_valid_ones(policy: str) -> None:
    with pytest.raises(LocalError, match="must be"):
        parse(policy)


# --- plain trees


@pytest.mark.parametrize("size", [1, 2, 40])
def test_star_and_unicast_reach_everybody_straight_from_the_root_or_the_creator(size: int) -> None:
    made = deployment(60)
    asked = group(made, size, 7)
    for policy, root in (("star", int(root_of(made, np.uint64(asked.key)))), ("unicast", creator(asked))):
        (tree,) = trees(policy, made, asked)
        others: naive.Parents = {int(member): root for member in asked.members if member != root}
        assert naive.parents_of(tree) == {root: None, **others}
        assert tree.state[0] == tree.joins[0] == len(others)


@pytest.mark.parametrize("seed", range(4))
def test_the_creator_s_tree_is_that_of_routes_to_its_own_id(seed: int) -> None:
    made = deployment(150)
    asked = group(made, 40, seed)
    (tree,) = trees("creator_rooted", made, asked)
    assert naive.parents_of(tree) == naive.creator_rooted(made, asked)
    assert tree.nodes[0] == naive.creator(asked)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_k_ary_tree_fills_each_level_before_the_next(k: int) -> None:
    asked = group(deployment(60), 31, 3)
    by_chance = naive.in_random_order(asked, naive.creator(asked))
    by_id = [by_chance[0], *sorted(by_chance[1:])]
    for policy, order in ((f"k_ary({k})", by_chance), (f"k_ary({k}, id)", by_id)):
        (tree,) = trees(policy, deployment(60), asked)
        assert naive.parents_of(tree) == naive.k_ary(order, k)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_compact_tree_agrees_with_trying_all_pairs(kind: Kind, most: int, seed: int) -> None:
    made = kind(60)
    asked = group(made, 24, seed)
    (tree,) = trees(f"delay_optimised({most})", made, asked)
    assert naive.parents_of(tree) == naive.compact(made, asked, most)


def test_without_a_cap_the_compact_tree_is_as_fast_as_unicast() -> None:
    made = deployment(150)
    asked = group(made, 100, 2)
    (tree,) = trees("delay_optimised(1000)", made, asked)
    (straight,) = trees("unicast", made, asked)
    assert depths_ms(made, tree).max() == depths_ms(made, straight).max()


# --- Bayeux (Zhuang et al. 2001), section 3


@pytest.mark.parametrize("quality", ["ideal", "sampled(2)"])
@pytest.mark.parametrize("seed", range(8))
def test_bayeux_agrees_with_its_twin(seed: int, quality: str) -> None:
    made = deployment(150, quality=quality)
    asked = group(made, 30, seed)
    (tree,) = trees("bayeux", made, asked)
    parents, kept, handled = naive.bayeux(made, asked)
    assert naive.parents_of(tree) == parents
    assert non_zero(naive.by_peer(tree, tree.state)) == non_zero(kept)
    assert naive.by_peer(tree, tree.joins) == {node: handled[node] for node in parents}


def test_a_key_has_one_surrogate_wherever_its_search_begins() -> None:
    made = deployment(150)
    for number in range(20):
        key = Random(number).randrange(1 << 64)
        ends = {naive.tapestry_route(made, start, key)[-1] for start in range(0, 150, 7)}
        assert ends == {bayeux.surrogate(made, np.uint64(key))}


def test_the_root_of_bayeux_keeps_every_member_and_hears_of_each_join() -> None:
    made = deployment(150)
    asked = group(made, 60, 9)
    (tree,) = trees("bayeux", made, asked)
    others = 60 - int(tree.member[0])
    assert tree.state[0] == others
    assert tree.joins[0] == 2 * others  # JOIN comes, TREE goes
    assert trees("scribe", made, asked)[0].joins.max() < others  # Scribe, section 4: joins are handled on their way


# --- Overcast (Jannotti et al. 2000), section 4.2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_overcast_agrees_with_its_twin(kind: Kind, seed: int) -> None:
    made = kind(60)
    asked = group(made, 40, seed)
    (tree,) = trees("overcast", made, asked)
    parents, handled = naive.overcast(made, asked, overcast.ROUNDS)
    assert naive.parents_of(tree) == parents
    assert naive.by_peer(tree, tree.joins) == {node: handled[node] for node in parents}


def test_overcast_s_nodes_keep_all_that_are_below_them() -> None:
    (tree,) = trees("overcast", deployment(150), group(deployment(150), 100, 4))
    parents = naive.parents_of(tree)
    below: Counter[int] = Counter()
    for node in parents:
        above = parents[node]
        while above is not None:
            below[above] += 1
            above = parents[above]
    assert non_zero(naive.by_peer(tree, tree.state)) == below


# --- Narada (Chu et al. 2000), section 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_narada_agrees_with_its_twin(kind: Kind, seed: int) -> None:
    made = kind(60)
    asked = group(made, 20, seed)
    asked = asked._replace(publishers=asked.members[[3, 8]])
    made_trees = trees("narada(256, 2)", made, asked)
    for tree, source in zip(made_trees, asked.publishers.tolist(), strict=True):
        parents, handled, mesh = naive.narada(made, asked, narada.ROUNDS, narada.ADD, narada.DROP, source)
        assert tree.source == source
        assert naive.parents_of(tree) == parents
        assert Counter(map(tuple, tree.extra.tolist())) == dict.fromkeys(mesh, 2)
    assert naive.by_peer(made_trees[0], made_trees[0].joins) == dict(handled)
    assert not made_trees[1].state.any()
    assert not made_trees[1].joins.any()


@pytest.mark.parametrize("policy", ["narada", "can(2, 2)"])
def test_each_publisher_sends_over_the_same_mesh_or_space_straight_away(policy: str) -> None:
    """Both systems let any member send; nobody's events take the way to the creator first."""
    made = deployment(60)
    asked = group(made, 20, 1)
    sources = asked.members[[3, 11, 19]]
    mine = parse(policy).trees(made, asked._replace(publishers=sources))
    assert [tree.source for tree in mine] == sources.tolist()
    for tree in mine:
        twin = (
            naive.narada(made, asked, narada.ROUNDS, narada.ADD, narada.DROP, tree.source)
            if policy == "narada"
            else naive.can(made, asked, 2, 2, tree.source)
        )
        assert naive.parents_of(tree) == twin[0]
    (alone,) = parse(policy).trees(made, asked)
    assert sum(int(tree.state.sum()) for tree in mine) == alone.state.sum(), "kept once, however many publish"
    (shared,) = parse(policy).trees(made, asked._replace(publishers=np.array([59 if 59 not in asked.members else 58])))
    assert shared.source == -1, "who is no member sends to the creator"


def test_every_member_of_narada_knows_all_others_and_hears_of_every_join() -> None:
    (tree,) = trees("narada", deployment(150), group(deployment(150), 80, 1))
    assert np.all(tree.state == 79)
    assert np.all(tree.joins >= 79 - np.arange(80).max())
    assert tree.joins.sum() >= 80 * 79 // 2


def test_a_mesh_that_improves_is_faster_than_its_random_beginning() -> None:
    made = deployment(150)
    nodes = np.array(naive.in_random_order(group(made, 100, 1), 0), np.int32)
    latency = narada._latencies(made, nodes)

    def mean_ms(rounds: int) -> float:
        hop, _, _ = narada._mesh(np.uint64(1), latency, rounds)
        total = 0.0
        for start in range(1, len(nodes)):
            node = start
            while node:
                total += latency[hop[node, 0], node]
                node = hop[node, 0]
        return total / (len(nodes) - 1)

    assert mean_ms(narada.ROUNDS) < mean_ms(0)


def test_a_group_too_large_for_narada_is_named() -> None:
    with pytest.raises(GroupTooLarge, match=r"group 3 has 50 members, and narada\(20\) is evaluated for at most 20"):
        trees("narada(20)", deployment(60), group(deployment(60), 50, 3))


@pytest.mark.parametrize("policy", ["narada", "can"])
def test_a_publisher_that_is_no_member_sends_to_the_creator(policy: str) -> None:
    made = deployment(60)
    asked = group(made, 20, 1)
    outsider = np.setdiff1d(np.arange(60, dtype=np.int32), asked.members)[:1]
    (tree,) = trees(policy, made, asked._replace(publishers=outsider))
    assert (tree.nodes[0], tree.source) == (creator(asked), -1)


# --- CAN multicast (Ratnasamy et al. 2001), section 3


@pytest.mark.parametrize(("dimensions", "marks", "realities"), [(2, 0, 1), (1, 2, 2), (2, 4, 3), (6, 4, 1)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_flooding_a_can_agrees_with_its_twin(
    kind: Kind, size: int, dimensions: int, marks: int, realities: int
) -> None:
    made, seed = kind(60), size
    asked = group(made, size, seed)
    asked = asked._replace(publishers=asked.members[[0, -1]])
    made_trees = trees(f"can({dimensions}, {marks}, {realities})", made, asked)
    for tree, source in zip(made_trees, asked.publishers.tolist(), strict=True):
        parents, later, degree, handled = naive.can(made, asked, dimensions, marks, source, realities)
        assert tree.source == source
        assert naive.parents_of(tree) == parents
        assert Counter(map(tuple, tree.extra.tolist())) == Counter(later)
    tree, again = made_trees
    assert naive.by_peer(tree, tree.state) == {node: degree[node] for node in parents}
    assert naive.by_peer(tree, tree.joins) == {node: handled[node] for node in parents}
    assert not again.state.any()
    assert not again.joins.any()


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("dimensions", rest_long([2, 1, 5], 1))
def test_the_zones_of_a_can_fill_its_torus_and_do_not_overlap(dimensions: int, uniform: bool) -> None:
    points = np.random.default_rng(11).integers(0, can.SPAN, (300, dimensions))
    zones = can._settle(points, uniform)
    plain, handled = naive.can_zones(points.tolist(), uniform=uniform)
    assert [
        tuple(zip(*zone, strict=True)) for zone in zip(zones.low.tolist(), zones.size.tolist(), strict=True)
    ] == plain
    assert zones.handled.tolist() == [handled[zone] for zone in range(300)]
    assert sum(prod(map(int, size)) for size in zones.size) == can.SPAN**dimensions
    for corner in zones.low.tolist():
        assert (
            sum(all(low <= at < low + size for at, (low, size) in zip(corner, zone, strict=True)) for zone in plain)
            == 1
        )


def test_members_with_the_same_order_of_landmarks_enter_the_same_portion() -> None:
    made = deployment(150)
    nodes = np.arange(150, dtype=np.int32)
    marks = can._landmarks(made, 3)
    portions: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for node, (x, y) in zip(nodes, can._points(made, nodes, np.uint64(1), 2, marks, 0).tolist(), strict=True):
        order = sorted(range(3), key=lambda mark, node=node: (delay(made, node, marks[mark]), mark))  # type: ignore[misc]
        portions.setdefault(tuple(order), set()).add((x * 3 // can.SPAN, y * 2 // can.SPAN))
    assert len(portions) > 1
    assert all(len(found) == 1 for found in portions.values())


def test_most_copies_of_a_directed_flood_deliver() -> None:
    """Ratnasamy et al., section 3.2: the rules leave few duplicates; naive flooding would send about one per border."""
    made = deployment(150)
    (tree,) = trees("can", made, group(made, 150, 1))
    assert 0 < len(tree.extra) < 149 / 2
    assert int(tree.state.sum()) > 3 * (149 + len(tree.extra)) / 2


# --- SplitStream (Castro et al. 2003), section 3


@pytest.mark.parametrize(
    ("policy", "n", "most"), [("stripes(4)", 4, 4), ("stripes(16)", 16, 16), ("stripes(6, 2)", 6, 2)]
)
@pytest.mark.parametrize("size", [3, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_stripes_agree_with_their_twin(kind: Kind, policy: str, n: int, most: int, size: int) -> None:
    made = kind(60)
    asked = group(made, size, 2)
    twin = naive.Forest(made, asked, [int(key) for key in stripes.stripe_keys(asked.key, n, 4)], most)
    for number, tree in enumerate(trees(policy, made, asked)):
        assert naive.parents_of(tree) == twin.parents[number]
        assert non_zero(naive.by_peer(tree, tree.joins)) == non_zero(twin.handled[number])


def test_keys_of_stripes_differ_in_the_first_digit_alone() -> None:
    keys = stripes.stripe_keys(0xA123456789ABCDEF, 16, 4)
    assert {int(key) >> 60 for key in keys} == set(range(16))
    assert {int(key) & ((1 << 60) - 1) for key in keys} == {0x123456789ABCDEF}


def test_more_stripes_than_digits_are_refused() -> None:
    with pytest.raises(LocalError, match="17 stripes differ in the first digit"):
        trees("stripes(17)", deployment(60), group(deployment(60), 5, 1))


def test_without_a_cap_no_node_is_inside_two_stripes_trees() -> None:
    """SplitStream, section 3.1: inner nodes of a stripe's tree begin with the digit of its key."""
    made = deployment(2000)
    asked = group(made, 2000, 1)
    inside: Counter[int] = Counter()
    for key, tree in zip(stripes.stripe_keys(asked.key, 16, 4), trees("stripes(16, 2000)", made, asked), strict=True):
        inner = tree.nodes[children_counts(tree) > 0]
        assert np.all(made.ids[inner] >> np.uint64(60) == key >> np.uint64(60))
        inside.update(inner.tolist())
    assert max(inside.values()) == 1


def test_the_less_capacity_is_to_spare_the_more_trees_a_node_is_inside() -> None:
    """SplitStream, section 5, configurations 16 x 16, 16 x 32 and without a bound."""
    made = deployment(2000)
    asked = group(made, 2000, 1)

    def inside(policy: str) -> float:
        return sum(np.count_nonzero(children_counts(tree)) for tree in trees(policy, made, asked)) / 2000

    assert 1 == inside("stripes(16, 2000)") < inside("stripes(16, 32)") < 2 < inside("stripes(16, 16)") < 4


def test_no_peer_forwards_much_more_than_it_receives() -> None:
    """SplitStream, section 1: each peer gives about as much as it takes, where Scribe's inner nodes give it all."""
    made = deployment(150)
    asked = group(made, 150, 1)
    given_: Counter[int] = Counter()
    for tree in trees("stripes(16)", made, asked):
        given_.update(naive.by_peer(tree, children_counts(tree)))
    assert max(given_.values()) / 16 <= 1
    assert children_counts(trees("scribe", made, asked)[0]).max() > 4


def test_the_only_exit_of_a_domain_may_be_a_router_without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of routers: 0 and 1, 2 and 3, 4 and 5 are domains; peers attach to all but 3."""
    monkeypatch.setattr(graphs, "sources_max", lambda routers, links: 5)
    ends = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]], np.int32)
    homes, domain = np.array([0, 1, 2, 4, 5], np.int32), np.array([0, 0, 1, 1, 2, 2], np.int32)
    line = graphs.of_links(ends, np.ones(5, np.float32), "line", domain=domain, attachable=homes, routers=6)
    made = tables(line, attach(line, 40, 1))
    _, mbit = overcast._domains(made, np.arange(40, dtype=np.int32))
    assert mbit.tolist() == [overcast.STUB_MBIT, overcast.TRANSIT_MBIT, overcast.STUB_MBIT]
