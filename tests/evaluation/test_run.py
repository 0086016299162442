"""Whole runs: what they leave, that they go on after a kill, and on any master alike.

What is stopped runs in processes of its own; what follows a run goes on in this one, with the session of all tests.
"""

import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from quillcast.evaluation import experiment, stages
from quillcast.evaluation.compare import compare
from quillcast.evaluation.progress import Lines
from quillcast.evaluation.run import evaluate

EXPERIMENT = """
title = "Small"
topology = "transit-stub(2,2,2,3)"
peers = 300
seed = 5
policies = ["scribe", "scribe+remover(8)"]

[workload]
groups = 20

[[published]]
policy = "scribe"
figure = "entries.mean"
value = 6.2
source = "somebody"
"""
TABLES = ("places", "links", "peers", "groups", "trees", "delays", "stress", "histograms")

pytestmark = pytest.mark.spark


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A run of the experiment, as the leader of a process group."""
    path = folder / "small.toml"
    path.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "quillcast", "evaluate", str(path), "--json", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=folder
    )


def run(folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Its result, and what it said."""
    process = start(folder, *arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), err


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table, in an order that does not depend on how they were written."""
    told = {}
    for name in TABLES:
        table = pq.read_table(folder / "tables" / name)
        if name == "trees":
            told[name] = sorted(table.to_pylist(), key=lambda row: (row["policy"], row["group"], row["tree"]))
            continue
        if "policy" in table.column_names:
            table = table.set_column(table.column_names.index("policy"), "policy", table["policy"].cast("string"))
        told[name] = table.sort_by([(column, "ascending") for column in table.column_names]).to_pylist()
    return told


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    result, said = run(folder, "--output", "run", "--master", "local[2]")
    return folder / "run", result, said


def test_the_result_is_as_documented(whole: tuple[Path, dict[str, Any], str]) -> None:
    folder, result, said = whole
    assert list(result) == ["experiment", "nodes", "groups", "seed", "seconds", "peak_rss_bytes", "report", "policies"]
    assert (result["experiment"], result["nodes"], result["groups"], result["seed"]) == ("small", 300, 20, 5)
    assert list(result["policies"]) == ["scribe", "scribe+remover(8)"]
    scribe = result["policies"]["scribe"]
    assert {name: sorted(value) if isinstance(value, dict) else "number" for name, value in scribe.items()} == {
        "rad": ["max", "median"],
        "rmd": ["max", "median"],
        "rad_from_root": ["max", "median"],
        "rmd_from_root": ["max", "median"],
        "tables": ["max", "mean", "median"],
        "entries": ["max", "mean", "median"],
        "state": ["max", "mean", "median"],
        "children_per_group_max": "number",
        "messages": "number",
        "messages_over_ip": "number",
        "link_max": "number",
        "link_max_over_ip": "number",
        "core_link_max_over_ip": "number",
    }
    assert result["seconds"]["total"] >= sum(s for name, s in result["seconds"].items() if name != "total") / 2
    assert result["peak_rss_bytes"] > 300e6  # Java's alone
    assert re.search(r"^trees of scribe: \d+\.\d s$", said, re.MULTILINE)
    assert json.loads((folder / "result.json").read_text()) == result


def test_figures_agree_with_the_tables(whole: tuple[Path, dict[str, Any], str]) -> None:
    folder, result, _ = whole
    trees = pq.read_table(folder / "tables" / "trees").to_pylist()
    for policy, figures in result["policies"].items():
        messages = sum(len(row["nodes"]) - 1 for row in trees if row["policy"] == policy)
        assert figures["entries"]["mean"] == pytest.approx(messages / 300)
        rads = sorted(row["rad"] for row in tables(folder)["delays"] if row["policy"] == policy)
        assert figures["rad"]["max"] == rads[-1]
        assert figures["rad"]["median"] == pytest.approx(statistics.median(rads))


def test_the_report_is_self_contained(whole: tuple[Path, dict[str, Any], str]) -> None:
    _, result, _ = whole
    page = Path(result["report"]).read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert page.count('<svg class="plot"') == 5
    assert '<svg class="tree"' in page
    for told in ("Comparison with published", "somebody", "scribe+remover(8)", "transit-stub(2,2,2,3)", "numba"):
        assert told in page


@pytest.fixture
def here(spark: Any) -> Iterator["Here"]:
    before = {name: spark.conf.get(name) for name in stages.SETTINGS}
    for name, value in stages.SETTINGS.items():
        spark.conf.set(name, value)
    yield Here()
    spark.sparkContext.setLogLevel("ERROR")
    for name, value in before.items():
        spark.conf.set(name, value)


class Here:
    """Runs of the experiment in this process, on the session of all tests."""

    def run(self, folder: Path, **changes: Any) -> tuple[dict[str, Any], str]:
        """Its result, and what it said."""
        asked = experiment.parse(EXPERIMENT, "small.toml").with_(**changes)
        said = io.StringIO()
        result = evaluate(asked, folder, Lines(Console(file=said)), master="local[2]")
        return result, said.getvalue()


def test_a_finished_run_is_not_computed_again(whole: tuple[Path, dict[str, Any], str], here: Here) -> None:
    folder, first, _ = whole
    again, said = here.run(folder)
    assert again["policies"] == first["policies"]
    assert "trees of scribe: was there" in said


def test_compare_puts_runs_side_by_side(whole: tuple[Path, dict[str, Any], str], here: Here, tmp_path: Path) -> None:
    folder, first, _ = whole
    second, _ = here.run(tmp_path / "other", seed=6, policies=("scribe",))
    rows = {(row["policy"], row["figure"]): row for row in compare([folder, tmp_path / "other"])["figures"]}
    both = [result["policies"]["scribe"]["messages"] for result in (first, second)]
    assert rows["scribe", "messages"]["values"] == both
    assert rows["scribe", "messages"]["over_first"] == [1.0, both[1] / both[0]]
    assert rows["scribe+remover(8)", "messages"]["values"][1] is None


ON_OTHER_MASTERS = """
import json, os, sys
from pathlib import Path
from rich.console import Console
from quillcast.evaluation import run
from quillcast.evaluation.experiment import load
from quillcast.evaluation.progress import Lines

os.environ["SPARK_HOME"] = run.spark_home()  # read once, when the Java machine starts
for name, master in json.loads(sys.argv[1]).items():
    result = run.evaluate(load("small.toml"), Path(name), Lines(Console(stderr=True)), master=master)
    run.session(load("small.toml"), master, None).stop()
    print(json.dumps(result["policies"]))
"""


@pytest.mark.long
def test_tables_are_the_same_on_every_master(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    """One Java machine, in which a session follows the other."""
    folder, first, _ = whole
    masters = {"cluster": "local-cluster[2,1,2048]", "one": "local[1]"}
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    command = [sys.executable, "-c", ON_OTHER_MASTERS, json.dumps(masters)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [first["policies"]] * 2
    for name in masters:
        assert tables(tmp_path / name) == tables(folder)


@pytest.mark.long
def test_a_run_that_is_stopped_repeatedly_resumes_and_leaves_equal_tables(
    whole: tuple[Path, dict[str, Any], str], here: Here, tmp_path: Path
) -> None:
    """Stopped as soon as a line says that something is done: between stages, or in the next one if that has begun."""
    folder, first, _ = whole
    said = stopped_after("routing", signal.SIGKILL, tmp_path, [])
    said = stopped_after("table of groups", signal.SIGINT, tmp_path, said)
    said = stopped_after("trees of scribe+remover(8)", signal.SIGKILL, tmp_path, said)
    result, last = here.run(tmp_path / "run")
    assert result["policies"] == first["policies"]
    assert tables(tmp_path / "run") == tables(folder)
    assert "trees of scribe+remover(8): was there" in last
    assert not list((tmp_path / "run").glob("unfinished/*"))


def stopped_after(done: str, how: signal.Signals, folder: Path, before: Sequence[str]) -> list[str]:
    """Run until a line says that this is done, and kill all processes, or press Ctrl-C; what was done.

    Nothing was done twice. After Ctrl-C a line says how to go on.
    """
    process = start(folder, "--output", "run", "--master", "local[2]")
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        what, _, told = line.rstrip("\n").rpartition(": ")
        if what in before and what not in ("Spark", "kernels", "network"):  # each process has its own
            assert told == "was there", line
        said.append(what)
        if what == done:
            break
    assert said[-1] == done, said
    if how == signal.SIGKILL:
        os.killpg(process.pid, how)
        process.communicate()
        return said
    process.send_signal(how)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; finished parts are kept: resume with --output run"
    assert "Traceback" not in err
    return said
