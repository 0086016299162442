"""Policies, topologies, workloads and metrics of another package, and what is said of those that cannot be used."""

import io
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered
from quillcast.evaluation import experiment, plugins, policies, stages
from quillcast.evaluation.command import folder_of
from quillcast.evaluation.folder import Folder
from quillcast.evaluation.measures import METRICS, Measured
from quillcast.evaluation.network import Group
from quillcast.evaluation.peers import attach
from quillcast.evaluation.policies.kernel import tree_of
from quillcast.evaluation.progress import Lines
from quillcast.evaluation.routing.preparing import tables
from quillcast.evaluation.run import evaluate, inputs_of
from quillcast.evaluation.topology import load
from quillcast.evaluation.workload import WORKLOADS, given, group

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "evaluate_policy"

MINE = """
import numpy as np
from quillcast.evaluation.policies.kernel import PolicyKernel, tree_of
from quillcast.evaluation.policies.star import Star

class Late(PolicyKernel):
    def __init__(self, least: int = 0):
        super().__init__()
        self.least = least

    def trees(self, tables, group, load):
        if len(group.members) > self.least:
            return 1 / 0
        return Star().trees(tables, group, load)

class Unfinished(PolicyKernel):
    pass

class Nothing(Star):
    def __init__(self):
        raise RuntimeError("no licence\\nfor this machine")

class Bad(PolicyKernel):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def trees(self, tables, group, load):
        (tree,) = Star().trees(tables, group, load)
        return {
            "none": None,
            "empty": [],
            "order": [tree._replace(parent=tree.parent[::-1].copy())],
            "type": [tree._replace(nodes=tree.nodes.astype(np.int64))],
            "peers": [tree._replace(nodes=tree.nodes + np.int32(10_000))],
            "members": [tree._replace(member=np.zeros(len(tree.nodes), np.bool_))],
            "weight": [tree, tree],
        }[self.how]

def star():
    return Star()

text = "no class"
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with modules of somebody's own, where the command was started."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("import json\n\njson.loads('')\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in {"mine", "broken", "by_domain"} & (set(sys.modules) - before):
        del sys.modules[name]


def test_a_class_or_function_of_another_module_is_a_policy(elsewhere: Path) -> None:
    policy = policies.parse("mine:star+remover(4)")
    assert [type(part).__name__ for part in policy.parts] == ["Star", "Remover"]
    assert policies.portable("mine:star+remover(4)") == "mine:star+remover(4)"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere:Star", "there is no module nowhere; install the package that has it, or start where nowhere.py is"),
        ("mine.deeper:Star", "there is no module mine.deeper; install the package that has it, or start where mine.py"),
        ("mine:Stars", "policy mine:Stars cannot be imported: module 'mine' has no attribute 'Stars'; correct the"),
        ("mine:text", "policy mine:text is a str, which cannot be called; name a class or a function"),
        ("broken:Star", "policy broken:Star cannot be imported: JSONDecodeError: Expecting value: line 1 column 1"),
        (
            "mine:Nothing",
            "policy mine:Nothing cannot be made: RuntimeError: no licence for this machine (mine.py, line",
        ),
        ("mine:Unfinished", "policy mine:Unfinished cannot be made: TypeError: Can't instantiate abstract class"),
        ("collections:Counter", "is not a policy: it makes a Counter and not a quillcast.evaluation.policies.kernel."),
        ("quillcast.evaluation.policies.collapse:Collapse", "is not a policy: it makes a Collapse and not a"),
        ("mine:Late(1, 2)", "'mine:Late(1, 2)': mine:Late takes least: int = 0 in parentheses"),
        ("mine:Late+mine:Late", "mine:Late is not a modifier: it makes a Late and not a"),
        ("scrib", "there is no policy 'scrib'; did you mean scribe?"),
        ("star+", "'star+': there is no modifier ''"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_remedy(elsewhere: Path, name: str, told: str) -> None:
    with pytest.raises(LocalError) as refused:
        policies.parse(name)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


EVERYWHERE = """
topology = "by_domain:ring"
peers = 60
policies = ["scribe", "mine:star+improve(2)"]
metrics = ["hops", "by_domain:Inside"]
[workload]
groups = 5
members = "by_domain:neighbours"
"""


def test_results_of_other_code_are_not_taken_over(elsewhere: Path) -> None:
    """Neither in a folder that is named, nor in that of a stopped run."""
    (elsewhere / "by_domain.py").write_bytes((EXAMPLE / "by_domain.py").read_bytes())
    asked = experiment.parse(EVERYWHERE, "mine.toml")
    code = inputs_of(asked)
    assert list(code) == ["by_domain", "mine"], "that of a function too, which returns a class of ours"
    Folder(elsewhere / "run", asked, code).close()
    stopped = folder_of(asked)
    Folder(stopped, asked, code).close()
    assert folder_of(asked) == stopped

    (elsewhere / "mine.py").write_text(MINE + "\n# changed\n")
    assert folder_of(asked) == stopped.with_name(f"{stopped.name}-2")
    with pytest.raises(LocalError, match=r"run was made before these changed: mine; name another folder"):
        Folder(elsewhere / "run", asked, inputs_of(asked))
    ours = asked.with_(policies=("scribe",))
    Folder(elsewhere / "run", ours, inputs_of(ours)).close()

    (elsewhere / "mine.py").write_text(MINE)
    Folder(elsewhere / "run", asked, inputs_of(asked)).close()


def test_a_changed_file_is_another_input(elsewhere: Path) -> None:
    (elsewhere / "members.tsv").write_text("g\ta\ng\tb\n")
    asked = experiment.Experiment(
        peers=60, policies=("scribe",), workload=experiment.Workload(groups=5, members="members.tsv")
    )
    Folder(elsewhere / "run", asked, inputs_of(asked)).close()
    (elsewhere / "members.tsv").write_text("g\ta\ng\tc\n")
    with pytest.raises(LocalError, match=r"run was made before these changed: members\.tsv; name another folder"):
        Folder(elsewhere / "run", asked, inputs_of(asked))


def test_several_seeds_are_resumed_by_the_same_code_only(elsewhere: Path) -> None:
    asked = experiment.parse(EVERYWHERE.replace("by_domain:ring", "aws").replace(', "by_domain:Inside"', ""), "x.toml")
    asked = msgspec.structs.replace(asked, workload=experiment.Workload(groups=5))
    stopped = folder_of(asked, [1, 2])
    Folder(stopped / "seed-1", asked, inputs_of(asked)).close()
    assert folder_of(asked, [1, 2]) == stopped
    (elsewhere / "mine.py").write_text(MINE + "\n# changed\n")
    assert folder_of(asked, [1, 2]) == stopped.with_name(f"{stopped.name}-2")


def small() -> tuple[Any, Group]:
    topology = load("transit-stub(1,2,2,3)", 1)
    peers = attach(topology, 60, 1)
    return tables(topology, peers), group(given([range(3, 20)], "one"), 0, peers, 1)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("none", "it must return a list of Tree"),
        ("empty", "it must return a list of Tree, and with at least one"),
        ("order", "parent must be -1 for the root, the first node, and for others the index of an earlier node"),
        ("type", "nodes must be an array of int32, one for each node"),
        ("peers", "nodes must be different peers, numbers from 0 to 59"),
        ("members", "member must be true for each of the group's members"),
        ("weight", "the weights of the trees that carry a source's events must add"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_group(elsewhere: Path, how: str, told: str) -> None:
    with pytest.raises(plugins.PluginFailed) as refused:
        policies.parse(f"mine:Bad({how})").trees(*small())
    assert str(refused.value).startswith(f"mine:Bad({how}) failed on group 0 of 17 members: ValueError: {told}")


def test_a_fault_of_our_own_is_not_blamed_on_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policies.parse("star")
    monkeypatch.setattr(policy.kernel, "trees", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        policy.trees(*small())


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(LocalError, match="two figures have the same name"):
        Measured(["quillcast.evaluation.measures:Hops", "quillcast.evaluation.measures:Hops()"])


def test_hops_are_counted_from_the_source() -> None:
    arrays, made = small()
    nodes = np.array([5, 6, 7, 8], np.int32)
    chain = tree_of(nodes, np.array([-1, 0, 1, 2], np.int32), np.ones(4, np.bool_))
    hops = METRICS.make("hops")
    assert hops.measure(arrays, made, [chain], 5) == (1 + 2 + 3) / 3
    assert hops.measure(arrays, made, [chain], 8) == (1 + 2 + 3) / 3, "the way to the root is one of them"


@pytest.mark.long
def test_the_example_passes_its_own_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]
    ended = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def installed(folder: Path) -> Path:
    """The example, as an installer leaves it there."""
    told = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = folder / "by_domain-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "by_domain.py").write_bytes((EXAMPLE / "by_domain.py").read_bytes())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n")
    lines = [
        f"[{kind}]\n" + "".join(f"{name} = {reference}\n" for name, reference in offered.items())
        for kind, offered in told["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def test_an_installed_package_offers_its_names(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(installed(elsewhere / "site"))
    monkeypatch.setattr(plugins, "offered", offered.__wrapped__)
    assert {"by_domain", "scribe"} <= set(policies.POLICIES.names())
    assert policies.portable("by_domain+improve(4)") == "by_domain:ByDomain+improve(4)"
    assert load("ring(8, 40)", 1).places == 8
    assert WORKLOADS.names() == ["clustered", "neighbours", "rust-teams", "uniform"]
    assert METRICS.names() == ["hops", "inside"]
    with pytest.raises(LocalError, match="there is no policy 'by_domian'; did you mean by_domain"):
        policies.parse("by_domian")


@pytest.mark.parametrize("name", ["aws", "transit-stub"])
def test_names_of_our_own_cannot_be_taken(name: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "offered", lambda group: {name: EntryPoint(name, "mine:star", group)})
    assert load(name, 1).places > 20
    assert inputs_of(experiment.Experiment(peers=60, policies=("scribe",), topology=name)) == {}


@pytest.fixture
def session(spark: Any) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in stages.SETTINGS}
    yield
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in before.items():
        spark.conf.set(name, value)


def run(asked: experiment.Experiment, folder: Path) -> dict[str, Any]:
    return evaluate(asked, folder, Lines(Console(file=io.StringIO())), master="local[2]")


@pytest.mark.spark
@pytest.mark.long
def test_an_experiment_of_plug_ins_runs_where_spark_works(
    elsewhere: Path, session: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's workers run already, and do not know the folder."""
    monkeypatch.chdir(EXAMPLE)
    result = run(experiment.load("experiment.toml"), elsewhere / "run")
    assert list(result["policies"]) == ["by_domain:ByDomain", "by_domain:ByDomain+improve(4)", "scribe"]
    assert result["policies"]["by_domain:ByDomain+improve(4)"]["children_per_group_max"] == 4
    rows = pq.read_table(elsewhere / "run" / "tables" / "delays").to_pylist()
    assert len(rows) == 3 * 30 * 4, "a row for each of four publishers"
    assert all(row["members"] == 25 and row["hops"] >= 1 and 0 <= row["Inside"] <= 1 for row in rows)


@pytest.mark.spark
@pytest.mark.long
def test_what_a_policy_raises_in_a_task_is_told_in_one_line(elsewhere: Path, session: None) -> None:
    asked = experiment.parse(
        'topology = "transit-stub(1,2,2,3)"\npeers = 60\npolicies = ["mine:Late(30)"]\n[workload]\ngroups = 5', "x"
    )
    with pytest.raises(LocalError) as refused:
        run(asked, elsewhere / "run")
    told = r"mine:Late\(30\) failed on group 0 of 60 members: ZeroDivisionError: division by zero \(mine.py, line \d+\)"
    assert re.match(told, str(refused.value))
    assert "\n" not in str(refused.value)


ON_A_CLUSTER = """
import json, os, sys
from pathlib import Path
from rich.console import Console
sys.path.insert(0, sys.argv[1])
from quillcast.evaluation import run
from quillcast.evaluation.experiment import load
from quillcast.evaluation.progress import Lines

os.environ["SPARK_HOME"] = run.spark_home()
asked = load(sys.argv[2]).with_(policies=("by_domain+improve(4)",))
result = run.evaluate(asked, Path("run"), Lines(Console(stderr=True)), master="local-cluster[2,1,1024]")
print(json.dumps(result["policies"]))
"""


@pytest.mark.spark
@pytest.mark.long
def test_executors_get_packages_that_only_the_driver_has(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ON_A_CLUSTER, str(installed(tmp_path / "site")), str(EXAMPLE / "experiment.toml")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["by_domain+improve(4)"]["children_per_group_max"] == 4


def test_groups_may_be_given_as_peers() -> None:
    made = given([[4, 2], [9]], "two")
    assert (made.sizes.tolist(), made.users.tolist()) == ([2, 1], [2, 4, 9])
    for wrong in ([], [[]], [[1, 1]], [[-1]]):
        with pytest.raises(ValueError, match="the members of a group must be different peers"):
            given(wrong, "wrong")
