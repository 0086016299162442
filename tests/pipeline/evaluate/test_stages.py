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
from quillcast.pipeline.evaluate import deployment, metrics, policies, schemas, stages
from quillcast.pipeline.evaluate.experiment import Experiment, Workload

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


def grown(deployed: deployment.Deployment, policy: str = "scribe") -> dict[int, Any]:
    """Each group's trees, without Spark."""
    maker, arrays = policies.parse(policy), deployed.arrays()
    return {number: maker.trees(arrays.tables, deployed.group(number)) for number in range(len(arrays.workload))}


def rows_of(deployed: deployment.Deployment, policy: str = "scribe") -> list[pa.RecordBatch]:
    return list(stages.grow(range(len(deployed.arrays().workload)), deployed, policy))


# --- without Spark


def test_tasks_are_whole_groups_the_largest_first() -> None:
    sizes = np.array([900_000, 60_000, 50_000, 30_000, 30_000, 10_000, 10], np.int32)
    assert stages.tasks(sizes).tolist() == [0, 1, 2, 3, 4, 4, 4]
    assert stages.tasks(np.full(1000, 11, np.int32)).max() == 0


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_trees_come_back_from_rows_however_these_are_cut(deployed: deployment.Deployment, rows: int) -> None:
    cut = [
        piece
        for batch in rows_of(deployed)
        for at in range(0, batch.num_rows, rows)
        for piece in [batch.slice(at, rows)]
    ]
    back = {number: tree for number, _, tree in stages.whole_trees(iter(cut), ASKED.peers)}
    for number, (tree,) in grown(deployed).items():
        for ours, theirs in zip(tree, back[number], strict=True):
            assert np.array_equal(ours, theirs)


def test_redundant_messages_and_several_trees_come_back_too(deployed: deployment.Deployment) -> None:
    (tree,) = grown(deployed)[3]
    other = tree._replace(weight=0.25, extra=np.array([[4, 5], [6, 7]], np.int32))
    batches = [*stages.tree_rows(3, 0, tree), *stages.tree_rows(3, 1, other), *stages.tree_rows(4, 0, tree)]
    told = [
        (number, at, back.weight, back.extra.tolist()) for number, at, back in stages.whole_trees(iter(batches), 300)
    ]
    assert told == [(3, 0, 1.0, []), (3, 1, 0.25, [[4, 5], [6, 7]]), (4, 0, 1.0, [])]


def test_half_a_tree_is_refused(deployed: deployment.Deployment) -> None:
    batch = rows_of(deployed)[0]
    with pytest.raises(ValueError, match="a tree was cut in two; read the table whole, with Spark's settings"):
        list(stages.whole_trees(iter([batch.slice(3)]), ASKED.peers))


def test_a_policy_that_must_know_all_groups_asks_for_their_load(deployed: deployment.Deployment) -> None:
    with pytest.raises(LocalError, match=r"scribe\+remover\(4\) needs the load of all groups"):
        stages.trees(None, deployed, "scribe+remover(4)")  # type: ignore[arg-type]


def test_a_folder_that_is_nowhere_says_so() -> None:
    with pytest.raises(LocalError, match="does not see /no/such/folder"):
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
        expected = grown(deployed)
        assert trees.count() == sum(len(tree.nodes) for (tree,) in expected.values())
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

    def test_arrays_are_brought_to_machines_that_do_not_see_them(
        self, session: Any, deployed: deployment.Deployment, tmp_path: Path
    ) -> None:
        shipped = deployment.ship(session, Path(deployed.shipped.folder), tmp_path / "arrays.tar")
        afar = deployment.Deployment(replace(shipped, folder="/no/such/folder"), deployed.seed)
        near = stages.trees(stages.groups(session, deployed), deployed, "scribe").toArrow()
        assert stages.trees(stages.groups(session, deployed), afar, "scribe").toArrow().equals(near)
