"""Whole runs: what they leave, that they go on after a kill, and on any master alike.

What is stopped runs in processes of its own; what follows a run goes on in this one, with the session of all tests.
"""

import csv
import io
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pyspark
import pytest
from rich.console import Console

from quillcast.core.errors import LocalError
from quillcast.evaluation import experiment, stages
from quillcast.evaluation.compare import compare, write_page
from quillcast.evaluation.progress import Lines
from quillcast.evaluation.run import evaluate, reason
from quillcast.evaluation.seeds import evaluate_seeds
from quillcast.pipeline.java import java_home
from quillcast.pipeline.session import SHORT_JOB_OPTIONS

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
    rows = {name: value[0] if isinstance(value, list) else value for name, value in scribe.items()}
    assert {name: sorted(value) if isinstance(value, dict) else "number" for name, value in rows.items()} == {
        "rad": ["max", "median", "p90", "p99"],
        "rmd": ["max", "median", "p90", "p99"],
        "rad_from_root": ["max", "median", "p90", "p99"],
        "rmd_from_root": ["max", "median", "p90", "p99"],
        "depth": ["max", "median", "p90", "p99"],
        "hops": ["max", "median", "p90", "p99"],
        "by_size": ["events", "members_max", "members_min", "rad", "rmd"],
        "tables": ["max", "mean", "median", "p99"],
        "entries": ["max", "mean", "median", "p99"],
        "state": ["max", "mean", "median", "p99"],
        "children_per_group_max": "number",
        "messages": "number",
        "messages_over_ip": "number",
        "link_mean": "number",
        "link_p99": "number",
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


def test_the_report_needs_nothing_but_its_own_folder(whole: tuple[Path, dict[str, Any], str]) -> None:
    folder, result, _ = whole
    page = Path(result["report"]).read_text()
    links = set(re.findall(r"href=\"(?!#)([^\"]*)\"", page))
    assert not re.search(r"\ssrc=", page)
    assert [link for link in links if not (folder / unquote(link)).exists()] == []
    assert {"tables/peers/", "tables/delays/policy%3Dscribe%2Bremover%288%29/", "figures/rad.csv"} <= links
    assert page.count('<svg class="plot"') == 7
    pictures = sorted(path.name for path in (folder / "figures").iterdir())
    assert pictures == sorted(
        f"{name}.{kind}"
        for name in ("rad", "rmd", "rad_by_size", "hops", "tables", "entries", "links")
        for kind in ("svg", "csv")
    )
    rows = list(csv.DictReader((folder / "figures" / "rad.csv").read_text().splitlines()))
    assert float(rows[-1]["percent"]) == 100
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


@pytest.mark.long
def test_runs_with_several_seeds_give_means_and_intervals(here: Here, tmp_path: Path) -> None:
    asked = experiment.parse(EXPERIMENT, "small.toml").with_(policies=("scribe",))

    def lines() -> Lines:
        return Lines(Console(file=io.StringIO()))

    result = evaluate_seeds(asked, [5, 6, 7], tmp_path / "run", lines, master="local[2]")
    assert result["seeds"] == [5, 6, 7]
    ones = [json.loads((tmp_path / "run" / f"seed-{seed}" / "result.json").read_text()) for seed in (5, 6, 7)]
    medians = [each["policies"]["scribe"]["rad"]["median"] for each in ones]
    known = result["intervals"]["scribe"]["rad.median"]
    assert result["policies"]["scribe"]["rad"]["median"] == pytest.approx(sum(medians) / 3)
    assert (known["min"], known["max"]) == (min(medians), max(medians))
    assert known["low"] < sum(medians) / 3 < known["high"]
    assert 'href="seed-6/report.html"' in (tmp_path / "run" / "report.html").read_text()
    compared = compare([tmp_path / "run", tmp_path / "run" / "seed-6"])
    page = write_page(compared, [tmp_path / "run", tmp_path / "run" / "seed-6"], tmp_path / "compared")
    assert page.read_text().count('<svg class="plot"') == 7
    assert (tmp_path / "compared" / "figures" / "rad_median.csv").read_text().startswith("run,policy,rad_median,low,")
    with pytest.raises(LocalError, match="is not empty; name another folder"):
        write_page(compared, [tmp_path / "run"], tmp_path / "run")


@pytest.mark.long
def test_tables_are_the_same_on_one_core(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    folder, first, _ = whole
    result, _ = run(tmp_path, "--output", "run", "--master", "local[1]")
    assert result["policies"] == first["policies"]
    assert tables(tmp_path / "run") == tables(folder)


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[str]:
    """A standalone cluster, whose workers have folders of their own; its address."""
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": SHORT_JOB_OPTIONS,
        "SPARK_LOG_DIR": str(folder),
    }
    spark_class = Path(pyspark.__path__[0]) / "bin" / "spark-class"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as processes:

        def begin(*arguments: str) -> subprocess.Popen[str]:
            command = [spark_class, *arguments]
            process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.PIPE, text=True)
            processes.callback(process.wait)
            processes.callback(process.terminate)
            return process

        master = begin(f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        address = said_by(master, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = str(folder / f"worker{number}")
            limits = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", work]
            said_by(begin(f"{deploy}.worker.Worker", *limits, address), "Successfully registered with master")
        yield address


def said_by(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line of a process that has this, and what it has in parentheses. Its further lines are read too."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(pattern, line):
            threading.Thread(target=process.stderr.read, daemon=True).start()  # it never waits for a reader
            return found[found.re.groups]
    raise AssertionError(f"it ended without {pattern}")


@pytest.mark.long
def test_tables_are_the_same_on_a_cluster_of_two_workers_without_a_shared_disk(
    whole: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    """`/proc/self/cwd` is the driver's folder here, and another one in each executor."""
    folder, first, _ = whole
    with standalone(tmp_path, 2) as address:
        result, _ = run(tmp_path, "--output", "/proc/self/cwd/run", "--master", address)
    assert result["policies"] == first["policies"]
    assert tables(tmp_path / "run") == tables(folder)
    executors = {log.parent.name for log in tmp_path.glob("worker*/app-*/*/stderr")}
    assert len(executors) == 2


WITHOUT_WORKERS = """
import sys
from pathlib import Path
from rich.console import Console
from quillcast.core.errors import LocalError
from quillcast.evaluation import progress, run
from quillcast.evaluation.experiment import load

progress.WORKERS_TELL_S, progress.WORKERS_MAX_S = 1, 3
try:
    run.evaluate(load("small.toml"), Path("run"), progress.Lines(Console(stderr=True)), master=sys.argv[1])
except LocalError as error:
    print(error)
"""


@pytest.mark.long
def test_a_cluster_without_free_workers_is_waited_for_in_words_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(EXPERIMENT)
    with standalone(tmp_path, 0) as address:
        command = [sys.executable, "-c", WITHOUT_WORKERS, address]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout == (
        f"no worker of {address} was free for 3 s; start one with a core and 1 GB of memory to spare, end other "
        "applications, or use --master local[*]\n"
    )
    assert f"no worker of {address} has begun; waiting for one, 3 s at most" in ended.stderr.splitlines()
    assert "Exception" not in ended.stderr


@pytest.mark.parametrize(
    ("master", "told"),
    [
        (
            "spark://127.0.0.1:9",
            "no Spark master answers at spark://127.0.0.1:9: Connection refused; start it, or",
        ),
        ("spark://", "'spark://' is not a Spark master; use local[2], spark://HOST:PORT, yarn or k8s://"),
        ("spark://127.0.0.1:{mute}", ": timed out; start it, or check --master"),
        ("lokal", "'lokal' is not a Spark master; use local[2]"),
    ],
)
def test_a_master_that_cannot_be_reached_is_told_in_a_line(tmp_path: Path, master: str, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began_s = time.monotonic()
        process = start(tmp_path, "--output", "run", "--master", master.format(mute=mute.getsockname()[1]))
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert told in err.splitlines()[-1]
    assert "Exception" not in err
    assert time.monotonic() - began_s < 60, "twenty on a machine that is not busy"


def test_of_an_error_of_grpc_the_details_are_told() -> None:
    assert (
        reason('<_InactiveRpcError of RPC that ended with:\n\tstatus = 12\n\tdetails = "No method"\n>') == "No method"
    )
    assert reason("[NO_SESSION] There is none.\n\tat somewhere") == "[NO_SESSION] There is none."


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
        if what in before and what not in ("Spark", "kernels", "network", "groups"):  # each process has its own
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
