"""Whole runs, in processes of their own: what they leave, that they go on after a kill, and on any master alike."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from quillcast.pipeline.evaluate.compare import compare

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
        "tables": ["max", "mean", "median"],
        "entries": ["max", "mean", "median"],
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
        messages = sum(row["policy"] == policy and row["parent"] >= 0 for row in trees)
        assert figures["entries"]["mean"] == pytest.approx(messages / 300)
        rads = sorted(row["rad"] for row in tables(folder)["delays"] if row["policy"] == policy)
        assert figures["rad"]["max"] == rads[-1]
        assert figures["rad"]["median"] == pytest.approx((rads[9] + rads[10]) / 2)


def test_the_report_needs_nothing_but_itself(whole: tuple[Path, dict[str, Any], str]) -> None:
    _, result, _ = whole
    page = Path(result["report"]).read_text()
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert page.count('<svg class="plot"') == 5
    assert '<svg class="tree"' in page
    for told in ("Beside the published figures", "somebody", "scribe+remover(8)", "transit-stub(2,2,2,3)", "numba"):
        assert told in page


@pytest.mark.slow
def test_a_finished_run_is_only_told_again(whole: tuple[Path, dict[str, Any], str]) -> None:
    folder, first, _ = whole
    again, said = run(folder.parent, "--output", "run", "--master", "local[2]")
    assert again["policies"] == first["policies"]
    assert "trees of scribe: was there" in said


@pytest.mark.slow
def test_compare_puts_runs_side_by_side(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    folder, first, _ = whole
    second, _ = run(tmp_path, "--output", "other", "--master", "local[2]", "--seed", "6", "--policies", "scribe")
    rows = {(row["policy"], row["figure"]): row for row in compare([folder, tmp_path / "other"])["figures"]}
    both = [result["policies"]["scribe"]["messages"] for result in (first, second)]
    assert rows["scribe", "messages"]["values"] == both
    assert rows["scribe", "messages"]["over_first"] == [1.0, both[1] / both[0]]
    assert rows["scribe+remover(8)", "messages"]["values"][1] is None


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[1]", "local-cluster[2,1,2048]"])
def test_tables_are_the_same_on_every_master(
    whole: tuple[Path, dict[str, Any], str], tmp_path: Path, master: str
) -> None:
    folder, first, _ = whole
    result, _ = run(tmp_path, "--output", "run", "--master", master)
    assert result["policies"] == first["policies"]
    assert tables(tmp_path / "run") == tables(folder)


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_goes_on_and_leaves_equal_tables(
    whole: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    """Kills as soon as a line says that something is done: between stages, or in the next one if that has begun."""
    folder, first, _ = whole
    said: list[str] = []
    for done in ("routing", "table of groups", "trees of scribe", "stress of scribe+remover(8)"):
        said = killed_after(done, tmp_path, said)
    result, last = run(tmp_path, "--output", "run", "--master", "local[2]")
    assert result["policies"] == first["policies"]
    assert tables(tmp_path / "run") == tables(folder)
    assert "stress of scribe+remover(8): was there" in last
    assert not list((tmp_path / "run").glob("unfinished/*"))


def killed_after(done: str, folder: Path, before: Sequence[str]) -> list[str]:
    """Run until a line says that this is done, and kill all processes; what was done. Nothing was done twice."""
    process = start(folder, "--output", "run", "--master", "local[2]")
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        what, _, how = line.rstrip("\n").rpartition(": ")
        if what in before and what not in ("Spark", "kernels"):  # each process has its own
            assert how == "was there", line
        said.append(what)
        if what == done:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert said[-1] == done, said
    return said


@pytest.mark.slow
def test_ctrl_c_leaves_what_is_done_and_says_how_to_go_on(tmp_path: Path) -> None:
    process = start(tmp_path, "--output", "run", "--master", "local[2]")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("table of peers: "):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; what is done stays: go on with --output run"
    assert "Traceback" not in err
    assert (tmp_path / "run" / "tables" / "peers").is_dir()
