"""Stages as functions from tables to tables, against the kernels called one by one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quillcast.core.errors import LocalError
from quillcast.evaluation import deployment, metrics, policies, schemas, stages, stored, sums, tasks, treetable
from quillcast.evaluation.experiment import Experiment, Publishers, Workload
from tests.evaluation import naive
from tests.evaluation.naive import Overlay, parents_of
from tests.params import rest_long

ASKED = Experiment(
    peers=300,
    policies=("scribe",),
    topology="transit-stub(2,2,2,3)",
    seed=5,
    workload=Workload(groups=20, publishers="root"),
)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> deployment.Deployment:
    folder = tmp_path_factory.mktemp("arrays")
    for part, make in deployment.MAKERS.items():
        make(ASKED, folder, folder / part)
    return deployment.Deployment(deployment.Shipped(str(folder)), ASKED.seed)


def built(deployed: deployment.Deployment, policy: str = "scribe") -> dict[int, Any]:
    """Each group's trees, without Spark."""
    maker, arrays = policies.parse(policy), deployed.arrays()
    return {number: maker.trees(arrays.tables, deployed.group(number)) for number in range(len(arrays.workload))}


def rows_of(deployed: deployment.Deployment, policy: str = "scribe") -> list[pa.RecordBatch]:
    return list(stages.build_trees(range(len(deployed.arrays().workload)), deployed, policy))


# --- without Spark


def test_tasks_are_whole_groups_the_largest_first() -> None:
    sizes = np.array([900_000, 160_000, 150_000, 30_000, 30_000, 10_000, 10], np.int32)
    assert tasks.tasks(sizes, 900_000).tolist() == [0, 1, 2, 3, 3, 3, 3]
    assert tasks.tasks(sizes, 90_000_000).tolist() == [0] * 7, "adding up over all peers costs too"
    assert tasks.tasks(np.full(1000, 11, np.int32), 11_000).max() == 0


def test_a_member_of_a_small_group_costs_more() -> None:
    whole, tenth, ten = tasks.costs(np.array([1_000_000, 100_000, 10], np.int32), 1_000_000).tolist()
    assert whole == 1_000_000
    assert whole / 10 < tenth < whole / 2
    assert 10 < ten / 10 < 20, "some four steps, each of them dearer"


def test_only_giants_are_split() -> None:
    alone = np.array([10_000_000, 2], np.int32)
    assert tasks.pieces(alone, 10_000_000).tolist() == [tasks.TASK_PEERS, 1]
    law = np.floor(1_000_000 * np.arange(1, 15_001) ** -1.25 + 0.5).astype(np.int32)
    assert tasks.pieces(law, 1_000_000).max() == 1, "of the papers' law the largest costs a sixteenth of all"


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_trees_come_back_from_rows_however_these_are_cut(deployed: deployment.Deployment, rows: int) -> None:
    cut = [
        piece
        for batch in rows_of(deployed)
        for at in range(0, batch.num_rows, rows)
        for piece in [batch.slice(at, rows)]
    ]
    back = {number: tree for number, _, tree in treetable.whole_trees(iter(cut), ASKED.peers)}
    for number, (tree,) in built(deployed).items():
        for ours, theirs in zip(tree, back[number], strict=True):
            assert np.array_equal(ours, theirs)


def test_redundant_messages_and_several_trees_come_back_too(deployed: deployment.Deployment) -> None:
    (tree,) = built(deployed)[3]
    other = tree._replace(weight=0.25, extra=np.array([[4, 5], [6, 7]], np.int32))
    batches = treetable.tree_rows([(3, 0, tree), (3, 1, other), (4, 0, tree)])
    told = [(number, at, back.weight, back.extra.tolist()) for number, at, back in treetable.whole_trees(batches, 300)]
    assert told == [(3, 0, 1.0, []), (3, 1, 0.25, [[4, 5], [6, 7]]), (4, 0, 1.0, [])]


def test_what_nodes_keep_comes_back_where_it_is_not_one_for_each_child(deployed: deployment.Deployment) -> None:
    (tree,) = built(deployed)[3]
    other = tree._replace(state=tree.state + np.int32(1))
    (batch,) = treetable.tree_rows([(3, 0, tree), (4, 0, other)])
    assert [kept is None for kept in batch["state"].to_pylist()] == [True, False]
    for back, ours in zip(treetable.whole_trees(iter([batch]), 300), (tree, other), strict=True):
        assert np.array_equal(back[2].state, ours.state)
        assert np.array_equal(back[2].joins, ours.joins)


def test_a_large_tree_is_several_rows(deployed: deployment.Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treetable, "PART_NODES", 40)
    extra = np.arange(2 * 95, dtype=np.int32).reshape(95, 2)
    (tree,) = built(deployed)[3]
    told = [(3, 0, tree._replace(extra=extra)), (4, 0, tree), (5, 0, tree._replace(extra=extra[:5]))]
    batches = list(treetable.tree_rows(told))
    sizes = [size for batch in batches for size in batch["nodes"].value_lengths().to_pylist()]
    assert max(sizes) <= 40 < len(tree.nodes)
    back = list(treetable.whole_trees(iter(batches), ASKED.peers))
    for ours, theirs in zip(told, back, strict=True):
        assert ours[:2] == theirs[:2]
        assert all(np.array_equal(a, b) for a, b in zip(ours[2], theirs[2], strict=True))


@pytest.mark.parametrize("kept", [slice(1, None), slice(0, 1)])
def test_half_a_tree_is_rejected(deployed: deployment.Deployment, monkeypatch: pytest.MonkeyPatch, kept: slice) -> None:
    monkeypatch.setattr(treetable, "PART_NODES", 40)
    (batch,) = treetable.tree_rows([(3, 0, built(deployed)[3][0])])
    assert batch.num_rows > 1
    rows = batch.take(list(range(batch.num_rows))[kept])
    with pytest.raises(ValueError, match="a tree was cut in two; read the table whole, with Spark's settings"):
        list(treetable.whole_trees(iter([rows]), ASKED.peers))


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("policy", ["scribe", "creator_rooted", "scribe+collapse+improve(4)"])
def test_a_group_that_is_split_has_the_same_tree(deployed: deployment.Deployment, policy: str, pieces: int) -> None:
    tables, maker = deployed.arrays().tables, policies.parse(policy)
    assert maker.splittable
    for number in range(3):
        group = deployed.group(number)
        parts = [maker.splittable.routes(tables, group, part) for part in np.array_split(group.members, pieces)]
        nodes, parents = (np.concatenate(column) for column in zip(*parts, strict=True))
        (ours,), (theirs,) = maker.joined(tables, group, nodes, parents), maker.trees(tables, group)
        assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_policies_that_know_the_whole_group_are_not_split(deployed: deployment.Deployment) -> None:
    nothing = np.empty(0, np.int32)
    assert policies.parse("overcast").splittable is None
    with pytest.raises(ValueError, match="overcast cannot split groups"):
        policies.parse("overcast").joined(deployed.arrays().tables, deployed.group(0), nothing, nothing)


@pytest.mark.parametrize("values", [[0, 255], [0, 256], [0, 70_000], [0, 1 << 33], [0, 0.5], [0, 0]])
def test_sums_are_packed_without_loss(values: list[float]) -> None:
    figures = [np.array(values), np.array([3, 0], np.int32)]
    (batch,) = sums.partials("peer", figures, 0)
    numbers, back = sums.unpacked(batch.to_pylist()[0])
    assert [sum_.tolist() for sum_ in back] == [figure[numbers].tolist() for figure in figures]
    assert numbers.tolist() == [at for at in (0, 1) if values[at] or not at]


KINDS: list[Publishers] = ["root", "creator", "members"]


@pytest.mark.parametrize("publishers", rest_long(KINDS, 1))
@pytest.mark.parametrize("policy", ["scribe", "k_ary", "stripes(4)", "unicast", "scoped+improve+source"])
def test_all_policies_have_the_same_publishers_and_the_whole_way_counts(
    deployed: deployment.Deployment, policy: str, publishers: Publishers
) -> None:
    asked = replace(deployed, publishers=publishers)
    topology, attached, _, _ = asked.arrays()
    overlay = Overlay(topology, attached)
    rows = rows_of(asked, policy)
    (delays,) = (batch.to_pylist() for batch in stages.measure(iter(rows), asked))
    messages = {"peer": np.zeros((2, ASKED.peers)), "link": np.zeros((2, len(topology.link_ends)))}
    for number, trees in built(asked, policy).items():
        mine = [row for row in delays if row["group"] == number]
        group = asked.group(number)
        assert [row["source"] for row in mine] == group.publishers.tolist()
        for row in mine:
            carried = [tree for tree in trees if tree.source in (-1, row["source"])]
            sent = sum(tree.weight * (len(tree.nodes) - int(tree.nodes[0] == row["source"])) for tree in carried)
            assert row["messages"] == pytest.approx(sent)
            late = naive.delays(overlay, parents_of(carried[-1]), row["source"])
            assert row["max_ms"] >= max(late[int(peer)] for peer in group.members if peer != row["source"]) * 0.9999
            for tree in carried:
                pairs = [(above, node) for node, above in parents_of(tree).items() if above >= 0]
                pairs += [(row["source"], int(tree.nodes[0]))] if row["source"] != tree.nodes[0] else []
                for pair in pairs:
                    messages["peer"][0, list(pair)] += tree.weight / len(mine)
                    links = naive.way(topology, *(int(attached.place[peer]) for peer in pair))
                    messages["link"][0, links] += tree.weight / len(mine)
            members = [int(peer) for peer in group.members if peer != row["source"]]
            messages["peer"][1, [*members, row["source"]]] += 1 / len(mine)
            messages["link"][1, list(naive.ip_links(overlay, row["source"], members))] += 1 / len(mine)
    added = {kind: np.zeros_like(sums_of) for kind, sums_of in messages.items()}
    for batch in stages.burden(iter(rows), asked):
        for row in batch.to_pylist():
            numbers, figures = sums.unpacked(row)
            added[row["kind"]][:, numbers] += figures[-2:]
    for kind, expected in messages.items():
        np.testing.assert_allclose(added[kind], expected, atol=1e-9)


def test_a_policy_that_must_know_all_groups_asks_for_their_load(deployed: deployment.Deployment) -> None:
    with pytest.raises(LocalError, match=r"scribe\+remover\(4\) needs the load of all groups"):
        stages.trees(None, deployed, "scribe+remover(4)")  # type: ignore[arg-type]


def test_a_missing_folder_is_a_clear_error() -> None:
    with pytest.raises(LocalError, match="cannot access /no/such/folder"):
        deployment.Shipped("/no/such/folder").here()


# --- on Spark


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    before = {name: spark.conf.get(name) for name in stages.SETTINGS}
    for name, value in stages.SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.mark.spark
class TestOnSpark:
    def test_the_deployment_as_tables(self, session: Any, deployed: deployment.Deployment) -> None:
        topology, attached, _, load = deployed.arrays()
        places = stages.places(session, deployed).toArrow()
        assert places.column_names == schemas.columns(schemas.PLACES)
        assert places.num_rows == topology.places
        links = stages.links(session, deployed).toArrow().sort_by("link")
        assert links["to_place"].to_pylist() == topology.link_ends[:, 1].tolist()
        peers = stages.peers(session, deployed).toArrow().sort_by("peer")
        assert peers["id"].to_numpy().view(np.uint64).tolist() == attached.ids.tolist()
        groups = stages.groups(session, deployed).toArrow()
        assert groups["members"].to_pylist() == sorted(load.sizes.tolist(), reverse=True)

    def test_trees_and_what_they_cost(self, session: Any, deployed: deployment.Deployment, tmp_path: Path) -> None:
        path = str(tmp_path / "trees")
        stages.trees(stages.groups(session, deployed), deployed, "scribe").write.parquet(path)
        trees = session.read.parquet(path)
        expected = built(deployed)
        assert trees.count() == len(expected)
        edges = Counter((row["group"], row["node"], row["parent"]) for row in stages.edges(trees).collect())
        assert edges == Counter(
            (number, int(node), int(tree.nodes[above]) if above >= 0 else -1)
            for number, (tree,) in expected.items()
            for node, above in zip(tree.nodes, tree.parent, strict=True)
        )
        self.check_delays(stages.delays(trees, deployed).toArrow().to_pylist(), expected, deployed)
        stress = stages.stress(trees, deployed)
        self.check_stress(stress.toArrow().to_pylist(), expected, deployed)
        histograms = stages.histograms(stress).toArrow().to_pylist()
        entries = {row["value"]: row["count"] for row in histograms if row["figure"] == "entries"}
        told = Counter(row["entries"] for row in stress.where("kind = 'peer'").toArrow().to_pylist())
        assert entries == told
        assert sum(entries.values()) == ASKED.peers

    def check_delays(
        self, rows: list[dict[str, Any]], expected: dict[int, Any], deployed: deployment.Deployment
    ) -> None:
        tables = deployed.arrays().tables
        assert sorted(row["group"] for row in rows) == sorted(expected)
        for row in rows:
            (tree,) = expected[row["group"]]
            assert row["rad"] == np.float32(metrics.ratios(tables, [tree]).rad)
            children = Counter(tree.parent[1:].tolist())
            assert row["children_max"] == max(children.values(), default=0)
            assert row["messages"] == len(tree.nodes) - 1
            assert row["members"] == np.count_nonzero(tree.member)

    def check_stress(
        self, rows: list[dict[str, Any]], expected: dict[int, Any], deployed: deployment.Deployment
    ) -> None:
        topology, attached, _, _ = deployed.arrays()
        core, access = np.zeros(len(topology.link_ends)), np.zeros(ASKED.peers)
        entries: Counter[int] = Counter()
        for (tree,) in expected.values():
            metrics.add_link_stress(topology, attached, tree, core, access)
            entries.update(tree.nodes[tree.parent[1:]].tolist())
        by_kind = {
            kind: sorted((row for row in rows if row["kind"] == kind), key=lambda row: row["number"])
            for kind in ("peer", "link")
        }
        assert [row["messages"] for row in by_kind["link"]] == core.tolist()
        assert [row["messages"] for row in by_kind["peer"]] == access.tolist()
        assert [row["entries"] for row in by_kind["peer"]] == [entries[peer] for peer in range(ASKED.peers)]

    def test_loads_are_those_of_all_groups(self, session: Any, deployed: deployment.Deployment, tmp_path: Path) -> None:
        policy = policies.parse("scribe+remover(4)")
        assert policy.needs_load
        arrays = deployed.arrays()
        expected = policy.load(arrays.tables, [deployed.group(number) for number in range(len(arrays.workload))])
        groups = stages.groups(session, deployed)
        stages.loads(groups, deployed, policy.name).write.parquet(str(tmp_path / "loads"))
        stages.save_load(tmp_path / "loads", ASKED.peers, tmp_path / "arrays")
        for ours, theirs in zip(stages.open_load(tmp_path / "arrays"), expected, strict=True):
            assert np.array_equal(ours, theirs)
        load = deployment.Shipped(str(tmp_path / "arrays"))
        delays = stages.delays(stages.trees(groups, deployed, policy.name, load), deployed)
        assert delays.count() == len(arrays.workload)

    def test_giant_groups_are_split_and_have_the_same_trees(
        self, session: Any, deployed: deployment.Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        whole = stages.trees(stages.groups(session, deployed), deployed, "scribe+collapse").toArrow()
        monkeypatch.setattr(tasks, "TASK_COST_MIN", 30)
        monkeypatch.setattr(tasks, "TASK_PEERS", 6)
        monkeypatch.setattr(tasks, "SPLIT", 1)
        groups = stages.groups(session, deployed)
        assert [row["pieces"] for row in groups.select("pieces").head(3)] == [5, 2, 2]
        order = [("group", "ascending"), ("part", "ascending")]
        into = tmp_path / "groups"
        stages.groups(session, deployed, into).collect()
        for given in (groups, stored.files(session, into)):
            split = stages.trees(given, deployed, "scribe+collapse").toArrow()
            assert split.sort_by(order).equals(whole.sort_by(order))

    def test_arrays_are_brought_to_machines_that_do_not_see_them(
        self, session: Any, deployed: deployment.Deployment, tmp_path: Path
    ) -> None:
        shipped = deployment.ship(session, Path(deployed.shipped.folder), tmp_path / "arrays.tar")
        afar = deployment.Deployment(replace(shipped, folder="/no/such/folder"), deployed.seed)
        near = stages.trees(stages.groups(session, deployed), deployed, "scribe").toArrow()
        assert stages.trees(stages.groups(session, deployed), afar, "scribe").toArrow().equals(near)
