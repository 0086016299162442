"""The benchmark programs measure what they say, and name what they cannot."""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("clients")


@pytest.mark.live
@pytest.mark.long
def test_rows_tell_speed_processor_time_and_memory_of_every_process() -> None:
    systems = ["quillcast", "quillcast, TLS", "zenoh, router", "pyzmq, forwarder"]
    options = ["--json", "--sizes", "16", "--rounds", "1", "--seconds", "0.1", "--systems", *systems]
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "throughput.py", *options], capture_output=True, text=True, check=True
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["benchmark"] == "throughput"
    assert [row["system"] for row in told["results"]] == systems
    for row in told["results"]:
        assert (row["size_bytes"], row["lost"], row["rounds"]) == (16, 0, 1)
        assert row["events_per_s"] > 0
        assert {"publisher", "subscriber"} < set(row["peak_rss_bytes"]) == set(row["cpu_s_per_million_by_role"])
        assert min(row["peak_rss_bytes"].values()) > 1 << 20


@pytest.mark.live
@pytest.mark.long
def test_rows_tell_what_a_faulty_subscriber_does_to_the_others() -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "stalls.py", "--json", "--quick", "--systems", "quillcast"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["benchmark"] == "stalls"
    assert [(row["system"], row["fault"]) for row in told["results"]] == [("quillcast", "stop"), ("quillcast", "kill")]
    for row in told["results"]:
        assert 0 <= row["longest_wait_s"] < 60
        assert 1000 < row["sent"] <= 12_001  # the first falls due at once, and one at the end
        assert row["lost_at_healthy"] == 0
    assert [row["lost_at_faulty"] is None for row in told["results"]] == [False, True]


def test_a_server_that_is_not_here_is_named_with_what_would_help(
    clients: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "program", lambda name: None)
    assert clients.missing("nats-py") == "no nats-server; as root: apt-get install nats-server"
    assert clients.missing("quillcast") is None


@pytest.mark.parametrize(("expected", "lost"), [(3, 0), (5, 2)])
def test_what_was_expected_and_never_came_is_counted(
    clients: ModuleType, monkeypatch: pytest.MonkeyPatch, expected: int, lost: int
) -> None:
    monkeypatch.setattr(clients, "PATIENCE_S", 0.1)
    counter = clients.Counter()

    async def scenario() -> int:
        counter.take(b"before anything is expected")
        counter.expect(expected)
        taken = asyncio.ensure_future(counter.taken())
        await asyncio.sleep(0)
        for payload in (b"one", b"two", b"", b"three"):  # an empty one is a mark
            counter.take(payload)
        told: dict[str, int] = await taken
        return told["lost"]

    assert asyncio.run(scenario()) == lost
