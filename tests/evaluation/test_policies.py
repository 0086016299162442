"""Scribe's trees, the modifiers and scopes: against naive twins, and what must hold of every tree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quillcast.core.errors import LocalError
from quillcast.evaluation import metrics
from quillcast.evaluation.chance import mix
from quillcast.evaluation.network import Group, Peers, Tree, frozen
from quillcast.evaluation.peers import attach
from quillcast.evaluation.policies import parse
from quillcast.evaluation.policies.kernel import Load, children_counts
from quillcast.evaluation.policies.remover import allowances, shed_farthest
from quillcast.evaluation.routing import pastry, preparing
from quillcast.evaluation.topology.generator import transit_stub
from tests.evaluation import naive
from tests.evaluation.naive import Overlay, parents_of
from tests.evaluation.naive_scopes import Improving, Scopes, regions, scoped

TOPOLOGY = transit_stub(1, transit_domains=3, routers_per_transit=2, stubs_per_router=3, routers_per_stub=4)
PEERS = attach(TOPOLOGY, 400, 1)
TABLES = preparing.tables(TOPOLOGY, PEERS)
OVERLAY = Overlay(TOPOLOGY, PEERS)
POLICIES = [
    "scribe",
    "scribe+remover(8)",
    "scribe+collapse",
    "scribe+improve(4)",
    "scribe+collapse+remover(12)+improve(6)",
    "scoped",
    "scoped(8)+improve(8)",
]


def group(number: int, size: int) -> Group:
    """A group of so many random peers."""
    members = np.random.default_rng([number, size]).choice(len(PEERS), size, replace=False)
    return Group(number, int(mix(1, 77, number)), frozen(np.sort(members), np.int32), 1)


GROUPS = [group(number, max(1, 400 // (number + 1))) for number in range(60)]


def trees(policy: str, groups: list[Group]) -> list[Tree]:
    parsed = parse(policy)
    load = parsed.load(TABLES, groups) if parsed.needs_load else None
    return [tree for asked in groups for tree in parsed.trees(TABLES, asked, load)]


@pytest.mark.parametrize("size", [1, 2, 11, 60, 400])
def test_scribe_is_the_union_of_routes(size: int) -> None:
    asked = group(size, size)
    (tree,) = trees("scribe", [asked])
    assert parents_of(tree) == naive.scribe(OVERLAY, asked.key, asked.members.tolist())


@pytest.mark.parametrize("policy", POLICIES)
def test_every_tree_holds_its_members_once_and_parents_first(policy: str) -> None:
    for asked, tree in zip(GROUPS, trees(policy, GROUPS), strict=True):
        assert tree.parent[0] == -1
        assert (tree.parent[1:] >= 0).all()
        assert (tree.parent[1:] < np.arange(1, len(tree.nodes))).all()
        assert len(np.unique(tree.nodes)) == len(tree.nodes)
        assert sorted(tree.nodes[tree.member].tolist()) == asked.members.tolist()
        assert tree.nodes[0] == pastry.root_of(TABLES, np.uint64(asked.key))
        np.testing.assert_array_equal(tree.state, children_counts(tree))


@pytest.mark.parametrize("policy", POLICIES)
def test_trees_depend_only_on_the_group(policy: str) -> None:
    parsed = parse(policy)
    load = parsed.load(TABLES, GROUPS) if parsed.needs_load else None
    forwards = [parsed.trees(TABLES, asked, load)[0] for asked in GROUPS]
    backwards = [parse(policy).trees(TABLES, asked, load)[0] for asked in reversed(GROUPS)]
    for one, other in zip(forwards, reversed(backwards), strict=True):
        assert parents_of(one) == parents_of(other)


@given(st.integers(0, 1000), st.integers(2, 120), st.data())
@settings(max_examples=30, deadline=None)
def test_shedding_follows_the_remover(number: int, size: int, data: st.DataObject) -> None:
    asked = group(number, size)
    (tree,) = trees("scribe", [asked])
    room = data.draw(st.lists(st.integers(0, 4), min_size=len(tree.nodes), max_size=len(tree.nodes)))
    parent, _ = shed_farthest(TABLES, tree.nodes, tree.parent, np.array(room, np.int32))
    places = {int(node): place for place, node in enumerate(tree.nodes)}
    expected = naive.shed(OVERLAY, parents_of(tree), {node: room[at] for node, at in places.items()}, places)
    assert parents_of(tree._replace(parent=parent)) == expected


@pytest.mark.parametrize("limit", [16, 64])
def test_the_remover_bounds_entries_over_all_groups(limit: int) -> None:
    """Scribe, section 5.3: with a limit of 64 no node has more entries."""
    before, after = (np.zeros(len(PEERS), np.int64) for _ in range(2))
    tables_before = np.zeros(len(PEERS), np.int64)
    for policy, entries in (("scribe", before), (f"scribe+remover({limit})", after)):
        for tree in trees(policy, GROUPS):
            np.add.at(entries, tree.nodes, children_counts(tree))
            if policy == "scribe":
                np.add.at(tables_before, tree.nodes, children_counts(tree) > 0)
    assert before.max() > limit, "nothing to remove"
    assert after[tables_before <= limit].max() <= limit
    assert after.sum() == before.sum()


def test_allowances_add_up_to_the_limit_and_cut_the_largest_table_first() -> None:
    def fan(children: int) -> Tree:
        nodes = np.arange(children + 1, dtype=np.int32)
        parent = np.zeros(children + 1, np.int32)
        parent[0] = -1
        nothing = np.zeros(children + 1, np.int32)
        return Tree(nodes, parent, nothing > 0, 1.0, np.empty((0, 2), np.int32), nothing, nothing)

    load = Load.none(50)
    costly, cheap = fan(40), fan(5)
    for tree in (costly, cheap):
        load.add(tree)
    room = [int(allowances(tree, load, 20)[0]) for tree in (costly, cheap)]
    assert sum(room) <= 20
    assert 5 <= room[1] < room[0]


@pytest.mark.parametrize("size", [1, 11, 60])
def test_collapse_removes_nodes_that_only_forward(size: int) -> None:
    asked = group(size, size)
    (tree,) = trees("scribe", [asked])
    (collapsed,) = trees("scribe+collapse", [asked])
    assert parents_of(collapsed) == naive.collapse(parents_of(tree), set(asked.members.tolist()))


@pytest.fixture(scope="module")
def scopes() -> Scopes:
    return Scopes(TOPOLOGY, PEERS)


def test_regions_are_where_all_traffic_of_a_place_leaves_its_domain() -> None:
    assert TABLES.region.tolist() == regions(TOPOLOGY)
    assert min(TABLES.region) < TOPOLOGY.places <= max(TABLES.region), "transit routers have several ways out"


@pytest.mark.parametrize("size", [1, 2, 11, 60, 400])
@pytest.mark.parametrize("cap", [8, 16])
def test_scoped_is_scopes_that_join_one_after_another(scopes: Scopes, size: int, cap: int) -> None:
    asked = group(size, size)
    (tree,) = trees(f"scoped({cap}, 30)", [asked])
    assert parents_of(tree) == scoped(OVERLAY, scopes, asked.key, asked.members.tolist(), cap, 1.3)


@pytest.mark.parametrize("size", [2, 11, 39, 40, 120])
@pytest.mark.parametrize(
    "policy",
    [
        "scoped(8)+improve(8, 100, 125, 20, 135)",
        "scribe+improve(99, 60, 110, 40, 999)",
        "scribe+improve(99, 90, 999, 5, 120)",
    ],
)
def test_improving_is_moving_to_better_relatives(scopes: Scopes, policy: str, size: int) -> None:
    base, _, told = policy.partition("+")
    cap, *percents = (int(number) for number in told.removeprefix("improve(").rstrip(")").split(","))
    asked = group(size, size)
    (before,), (after,) = trees(base, [asked]), trees(policy, [asked])
    twin = Improving(OVERLAY, scopes, before.nodes.tolist(), parents_of(before), set(asked.members.tolist()))
    late, reach, large, mean = (percent / 100 for percent in percents)
    assert parents_of(after) == twin.rounds(8, cap, late if size < 40 else large, late, reach, mean)
    assert size < 11 or parents_of(after) != parents_of(before)


@pytest.mark.parametrize("policy", ["scoped(8)", "scoped(16)", "scribe+improve(8)", "scoped(12)+improve(9)"])
def test_no_node_has_more_children_than_the_cap(policy: str) -> None:
    cap = int(policy.rpartition("(")[2].rstrip(")"))
    assert max(int(children_counts(tree).max()) for tree in trees(policy, GROUPS)) <= cap


@pytest.mark.parametrize("policy", ["scoped", "scoped+improve"])
def test_a_domain_joins_once(policy: str) -> None:
    """However many of its peers subscribe, one copy of an event enters a domain."""
    for asked, tree in zip(GROUPS, trees(policy, GROUPS), strict=True):
        domains = set(PEERS.domain[asked.members].tolist()) - {int(PEERS.domain[tree.nodes[0]])}
        assert metrics.crossings(TABLES, tree) == len(domains)


@pytest.mark.parametrize("policy", ["scoped", "scoped+improve"])
def test_an_event_enters_a_place_once(policy: str) -> None:
    for tree in trees(policy, GROUPS):
        place = PEERS.place[tree.nodes]
        entered = place[1:][place[1:] != place[tree.parent[1:]]]
        assert len(set(entered.tolist())) == len(entered)


def test_a_tree_per_publisher_has_its_root_there_and_is_built_alike() -> None:
    asked = GROUPS[3]._replace(publishers=GROUPS[3].members[:3])
    mine = parse("scoped+improve+source").trees(TABLES, asked)
    assert [tree.source for tree in mine] == [int(tree.nodes[0]) for tree in mine] == asked.publishers.tolist()
    for tree in mine:
        alike = asked._replace(key=int(PEERS.ids[tree.source]))
        (other,) = parse("scoped+improve").trees(TABLES, alike)
        assert parents_of(tree) == parents_of(other)
        assert tree.member.all()
    assert [parents_of(tree) for tree in parse("scoped+source+improve").trees(TABLES, asked)] == list(
        map(parents_of, mine)
    )
    assert parse("scribe+source").splittable is None


@pytest.mark.parametrize("policy", ["scribe", "creator_rooted", "bayeux", "k_ary", "delay_optimised", "overcast"])
def test_each_publisher_is_the_root_of_its_own_tree_under_any_policy_with_one_tree(policy: str) -> None:
    stranger = next(peer for peer in range(len(PEERS)) if peer not in GROUPS[3].members)
    asked = GROUPS[3]._replace(publishers=np.array([*GROUPS[3].members[:2], stranger], np.int32))
    mine = parse(f"{policy}+source").trees(TABLES, asked)
    assert [int(tree.nodes[0]) for tree in mine] == asked.publishers.tolist()
    assert all(sorted(tree.nodes[tree.member].tolist()) == asked.members.tolist() for tree in mine)


def test_stripes_have_roots_of_their_own() -> None:
    with pytest.raises(LocalError, match=r"\+source needs a policy whose tree has its root at the group's key or its"):
        parse("stripes(4)+source").trees(TABLES, GROUPS[3]._replace(publishers=GROUPS[3].members[:3]))


def test_unicast_goes_from_each_publisher_straight_to_the_members() -> None:
    asked = GROUPS[5]
    stranger = next(peer for peer in range(len(PEERS)) if peer not in asked.members)
    publishers = [int(asked.members[2]), stranger]
    mine = parse("unicast").trees(TABLES, asked._replace(publishers=np.array(publishers, np.int32)))
    assert [tree.source for tree in mine] == publishers
    for tree in mine:
        assert set(parents_of(tree).values()) == {-1, tree.source}
        assert sorted(tree.nodes[tree.member].tolist()) == asked.members.tolist()
        assert metrics.ratios(TABLES, [tree], tree.source).rad == pytest.approx(1)


def test_improvement_never_ends_over_its_reach_if_it_began_below() -> None:
    for asked in GROUPS[:20]:
        (plain,) = trees("scoped", [asked])
        (improved,) = trees("scoped+improve(16, 100, 125)", [asked])
        direct = max((OVERLAY.delay(int(plain.nodes[0]), int(member)) for member in asked.members), default=0.0)
        before = max(metrics.delays_ms(TABLES, plain))
        after = max(metrics.delays_ms(TABLES, improved))
        assert after <= max(before, 1.25 * direct) * 1.0001


def test_domains_may_be_clusters_that_places_do_not_follow() -> None:
    clusters = (np.arange(len(PEERS)) % 3).astype(np.int32)
    mixed = preparing.tables(TOPOLOGY, Peers(PEERS.ids, PEERS.place, clusters))
    for asked in GROUPS[:10]:
        for policy in ("scoped", "scoped+improve"):
            (tree,) = parse(policy).trees(mixed, asked)
            assert sorted(tree.nodes[tree.member].tolist()) == asked.members.tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scrib", "did you mean scribe"),
        ("scribe+remove(64)", "did you mean remover"),
        ("scribe+remover", "remover takes limit"),
        ("scribe+remover(0)", "at least 1"),
        ("scribe(3)", "scribe takes nothing"),
        ("scribe++collapse", "no modifier ''"),
        ("scoped(2)", "scoped"),
        ("collapse", "no policy 'collapse'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(text: str, words: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse(text)
    assert words in str(caught.value)


def test_a_policy_that_needs_the_load_says_so() -> None:
    with pytest.raises(ValueError, match="needs the load"):
        parse("scribe+remover(64)").trees(TABLES, GROUPS[0])
