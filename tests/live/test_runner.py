"""The process of a program that `run` runs, and of one that it does not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import quillcast

pytestmark = pytest.mark.live

_PROGRAM = """
import asyncio, gc, quillcast

async def main():
    before = gc.get_threshold()
    async with quillcast.Node():
        first = gc.get_freeze_count()
        async with quillcast.Node():
            print(first > 10_000, gc.get_freeze_count() <= first, gc.get_threshold() == before)

before = gc.get_threshold()
{}(main())
assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before), "what follows is not the program's"
"""


@pytest.mark.parametrize(
    ("run", "said"), [("quillcast.run", "True True False\n"), ("asyncio.run", "False True True\n")]
)
def test_start_up_objects_are_frozen_if_the_process_is_the_programs(run: str, said: str, tmp_path: Path) -> None:
    program, environment = (
        [sys.executable, "-c", _PROGRAM.format(run)],
        {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    ran = subprocess.run(program, check=True, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.stdout == said


_WAITING = """
import asyncio, signal, sys, quillcast

async def main():
    async with quillcast.Node() as node:
        subscription = node.subscribe("t", start="earliest")
        await subscription.started()
        print("started", flush=True)
        async for event in subscription:
            pass

before = signal.getsignal(signal.SIGTERM)
try:
    quillcast.run(main())
except BaseException as ended:
    assert signal.getsignal(signal.SIGTERM) is before, "what follows is not the program's"
    assert isinstance(ended, KeyboardInterrupt) == (ended.code == 130)
    print(type(ended).__name__, ended.code)
    raise
"""


@contextmanager
def waiting(runtime: Path, begin: str = "") -> Iterator[subprocess.Popen[str]]:
    """A program whose subscription stands; `begin` comes before it."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    with subprocess.Popen(
        [sys.executable, "-c", begin + _WAITING],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    ) as program:  # fmt: skip
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "started\n"
            yield program
        finally:
            if program.poll() is None:
                program.kill()


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "EndedByCtrlC 130"), (signal.SIGTERM, "SystemExit 143"), (signal.SIGHUP, "SystemExit 129")],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else "",
)
def test_whatever_ends_a_program_its_node_leaves_in_good_order(
    number: signal.Signals, said: str, tmp_path: Path
) -> None:
    with waiting(tmp_path) as program:
        assert len(list(tmp_path.rglob("*.json"))) == 1
        program.send_signal(number)
        assert program.communicate(timeout=60) == (f"{said}\n", "")
        assert program.returncode == 128 + number
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_peer_ended_by_any_signal_holds_nothing_back(
    ended_by: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber that just dies holds its lease, and the topic's buffers with it, for half a minute more."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with quillcast.BlockingNode() as node, waiting(tmp_path) as program:
        node.publish("t", b"before", wait="stable")
        program.send_signal(ended_by)
        program.communicate(timeout=60)
        node.publish("t", b"while it is away", wait="stable", timeout_s=10)


def test_a_program_keeps_its_own_signal_handlers(tmp_path: Path) -> None:
    own = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    with waiting(tmp_path, own) as program:
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=60)
        assert program.returncode == 7


def test_a_function_in_place_of_a_coroutine_is_a_clear_error() -> None:
    with pytest.raises(quillcast.LocalError, match=r"run takes a coroutine, not function; .*quillcast.run\(main\(\)\)"):
        quillcast.run(waiting)  # type: ignore[arg-type]
