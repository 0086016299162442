"""A run of every policy among 3,000 peers, and each of its figures computed a second time (`oracle`)."""

import io
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quillcast.evaluation import experiment, stages
from quillcast.evaluation import policies as known
from quillcast.evaluation.plugins import split
from quillcast.evaluation.progress import Lines
from quillcast.evaluation.report.figures import figure, names
from quillcast.evaluation.run import evaluate
from tests.evaluation.oracle import Network, Oracle, Row, read

POLICIES = (*experiment.load("policies").policies, "can(6, 4, 4)", "narada(256, 1)")
GROUPS, PEERS, MEMBERS_MAX = 50, 3_000, 256
EXPERIMENT = f"""
topology = "transit-stub(5,4,5,4)"
peers = {PEERS}
seed = 11
policies = {list(POLICIES)}

[workload]
groups = {GROUPS}
"""
NEAR = {"rel": 2e-6, "abs": 2e-6}  # the kernels reckon delays in single precision; sums are rounded to six decimals

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Run:
    """A finished run: its tables by policy, and an oracle for each."""

    def __init__(self, folder: Path, result: dict[str, Any]) -> None:
        self.folder, self.result = folder, result["policies"]
        self.network = Network(folder)
        self.sizes = {row["group"]: row["members"] for row in read(folder, "groups")}
        self.publishers: dict[int, list[int]] = defaultdict(list)
        for row in self.table("delays", "scribe"):
            self.publishers[row["group"]].append(row["source"])

    def table(self, name: str, policy: str) -> list[Row]:
        return read(self.folder, name, policy)

    @cache  # noqa: B019 (as long as the tests)
    def oracle(self, policy: str) -> Oracle:
        return Oracle(self.network, self.table("trees", policy), self.publishers)


@pytest.fixture(scope="module")
def folder(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = {name: spark.conf.get(name) for name in stages.SETTINGS}
    for name, value in stages.SETTINGS.items():
        spark.conf.set(name, value)
    yield tmp_path_factory.mktemp("oracle") / "run"
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    asked = experiment.parse(EXPERIMENT, "oracle.toml")
    return Run(folder, evaluate(asked, folder, Lines(Console(file=io.StringIO())), master="local[2]"))


def test_every_policy_and_modifier_is_in_the_run() -> None:
    parts = {part.partition("(")[0] for policy in POLICIES for part in split(policy, "+")}
    assert parts == {*known.POLICIES.built_in, *known.MODIFIERS.built_in}


@pytest.mark.parametrize("policy", POLICIES)
def test_all_policies_serve_the_same_members_from_the_same_publishers(run: Run, policy: str) -> None:
    most = MEMBERS_MAX if policy.startswith("narada") else PEERS
    groups = {group for group, size in run.sizes.items() if size <= most}
    oracle, scribe = run.oracle(policy), run.oracle("scribe")
    assert set(oracle.trees) == groups
    assert run.result[policy].get("groups_left_out", 0) == GROUPS - len(groups)
    for group in groups:
        members = scribe.trees[group][0].members
        assert len(members) == run.sizes[group]
        assert set(run.publishers[group]) <= members
        assert len(set(run.publishers[group])) == len(run.publishers[group]) == min(4, len(members))
        for source in run.publishers[group]:
            carrying = oracle.carrying(group, source)
            assert sum(tree.weight for tree in carrying) == pytest.approx(1)
            assert all(tree.members == members for tree in carrying)


@pytest.mark.parametrize("policy", POLICIES)
def test_delays_are_what_the_oracle_says(run: Run, policy: str) -> None:
    rows = run.table("delays", policy)
    ours = {(row["group"], row["source"]): row for row in rows}
    theirs = {(row["group"], row["source"]): row for row in run.oracle(policy).delays}
    assert len(rows) == len(theirs)
    for at, row in theirs.items():
        assert {name: ours[at][name] for name in row} == pytest.approx(row, **NEAR, nan_ok=True)


@pytest.mark.parametrize("policy", POLICIES)
def test_loads_and_their_histograms_are_what_the_oracle_says(run: Run, policy: str) -> None:
    loads = run.oracle(policy).loads
    counts: dict[tuple[str, str], dict[float, int]] = defaultdict(lambda: defaultdict(int))
    figures = {"peer": loads["peer"].keys() | {"tables", "entries"}, "link": {"messages", "ip_messages"}}
    for row in run.table("stress", policy):
        for name in figures[row["kind"]]:
            assert row[name] == pytest.approx(loads[row["kind"]][name][row["number"]], **NEAR), (row, name)
            counts[row["kind"], name][row[name]] += 1
    for row in run.table("histograms", policy):
        if (row["kind"], row["figure"]) in counts:
            assert counts[row["kind"], row["figure"]].pop(row["value"]) == row["count"]
    assert not any(counts.values())


@pytest.mark.parametrize("policy", POLICIES)
def test_the_result_is_what_the_oracle_says(run: Run, policy: str) -> None:
    ours, links = run.result[policy], len(set(run.network.link.values()))
    theirs = run.oracle(policy).figures(PEERS, links)
    assert set(names([ours])) - {"groups_left_out"} == set(theirs)
    assert {name: figure(ours, name) for name in theirs} == pytest.approx(theirs, **NEAR)
    for mine, other in zip(ours["by_size"], run.oracle(policy).by_size(), strict=True):
        assert {name: figure(mine, name) for name in names([mine])} == pytest.approx(
            {name: figure(other, name) for name in names([other])}, **NEAR
        )
