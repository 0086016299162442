"""`quillcast pub` ends within its --timeout, and starts with whoever answers."""

import signal
import time
from pathlib import Path

import pytest

from quillcast.cli import pub
from quillcast.cli.app import run
from quillcast.live.config import LiveConfig
from tests.cli.commands import Commands


@pytest.mark.parametrize(
    ("timeout_s", "connect_s", "join_s"), [(45.0, 5.0, 30.0), (10.0, 5.0, 10.0), (2.0, 2.0, 2.0), (0.0, 1.0, 1.0)]
)
def test_joining_the_network_takes_no_longer_than_the_time_to_wait(
    timeout_s: float, connect_s: float, join_s: float
) -> None:
    bounds = pub._within(timeout_s)
    assert (bounds.connect_timeout_s, bounds.join_timeout_s) == (connect_s, join_s)
    assert pub._within(45.0) == LiveConfig()


@pytest.mark.parametrize(("timeout_s", "took_s", "left_s"), [(45.0, 5.0, 40.0), (2.0, 9.0, 0.5), (0.0, 1.0, 0.0)])
def test_the_time_that_joining_took_is_subtracted_from_the_wait(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, took_s: float, left_s: float
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0 + took_s)
    assert timeout_s - pub._waited(timeout_s, began=100.0) == pytest.approx(left_s)


@pytest.mark.live
def test_a_stopped_peer_of_this_machine_does_not_block_publishing(quillcast: Commands) -> None:
    stopped, hears = quillcast.subscribed("t"), quillcast.subscribed("t", "--count", "1")
    stopped.signal(signal.SIGSTOP)
    try:
        assert quillcast.run("pub", "t", "heard")[0] == 0
        assert hears.end()[:2] == (0, "heard\n")
    finally:
        stopped.signal(signal.SIGCONT)


def test_empty_input_is_told_and_is_no_error(quillcast: Commands, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.touch()
    for arguments, name in ([], "the input"), (["--file", str(file)], str(file)):
        assert quillcast.run("pub", "t", *arguments) == (0, "", f"quillcast: nothing was published: {name} is empty\n")


@pytest.mark.parametrize("arguments", [[], ["--whole"]], ids=["lines", "whole"])
def test_a_closed_standard_input_is_refused_before_the_node_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as Python finds it after `<&-`
    assert run(["pub", "t", *arguments]) == 2
    err = capsys.readouterr().err
    assert err == "quillcast: standard input is closed; give a MESSAGE or --file (quillcast pub --help)\n"
