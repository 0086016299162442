"""The benchmark programs measure what they say, and name what they cannot."""

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


DOCS = BENCHMARKS.parent / "docs"


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture
def clients(benchmarks: Callable[[str], ModuleType]) -> ModuleType:
    return benchmarks("clients")


@pytest.mark.live
@pytest.mark.long
def test_rows_tell_speed_processor_time_and_memory_of_every_process(clients: ModuleType) -> None:
    own = ["quillcast", "quillcast, batch", "quillcast, awaited", "quillcast, TLS"]
    others = ["zenoh, router", "pyzmq, forwarder", "cyclonedds", "iceoryx2", "iceoryx2, polling"]
    systems = [*own, *(name for name in others if clients.missing(name) is None)]
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
        middle = clients.SYSTEMS[row["system"]].middle
        roles = {"publisher", "subscriber", *([middle] if middle else [])}
        assert roles == set(row["peak_rss_bytes"]) == set(row["cpu_s_per_million_by_role"])
        assert min(row["peak_rss_bytes"].values()) > 1 << 20


@pytest.mark.live
@pytest.mark.long
def test_clients_of_a_peer_are_measured_beside_nodes() -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "connect.py", "--json", "--quick"], capture_output=True, text=True, check=True
    )
    rows = json.loads(ran.stdout.splitlines()[-1])["results"]
    systems = ["node", "client", "receives directly", "publishes directly"]
    assert [(row["row"], row["system"]) for row in rows] == [
        (row, system) for row in ("rate", "rate", "start") for system in systems
    ]
    assert all(row["ratio"] > 0 for row in rows if row["row"] == "rate")


@pytest.mark.long
def test_what_members_of_scopes_ask_outside_is_counted_for_each_recovery_protocol() -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "recovery.py", "--json", "--quick"], capture_output=True, text=True, check=True
    )
    rows = json.loads(ran.stdout.splitlines()[-1])["results"]
    assert [row["scopes"] for row in rows] == ["one"] * 4 + ["three"] * 3
    for row in rows:
        assert row["requests"] >= row["into_others"] + row["outside"] > 0
        assert row["into_others"] + row["outside"] >= row["held_inside"] >= row["without_orders"]


@pytest.mark.live
@pytest.mark.long
def test_a_forwarder_between_two_levels_of_scopes_is_measured_beside_one_in_a_tree() -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "levels.py", "--json", "--quick"], capture_output=True, text=True, check=True
    )
    rows = json.loads(ran.stdout.splitlines()[-1])["results"]
    assert [(row["system"], row["lost"]) for row in rows] == [("tree", 0), ("two levels", 0)]
    assert all(row["ratio"] > 0 for row in rows)


@pytest.mark.live
@pytest.mark.long
def test_a_policy_is_swapped_under_load_and_no_event_is_lost_or_repeated() -> None:
    ran = subprocess.run(
        [sys.executable, BENCHMARKS / "policy_swap.py", "--json", "--quick"], capture_output=True, text=True, check=True
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["benchmark"] == "policy_swap"
    swaps = [(row["policy_from"], row["policy_to"]) for row in told["results"]]
    assert swaps == [("k_ary", "ring"), ("ring", "stripes"), ("stripes", "mesh")]
    for row in told["results"]:
        assert row["lost"] + row["told"] == row["repeated"] == 0
        assert row["events_per_s"] > 0
        assert {"pause_ms", "still_ms"} < row.keys()


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


@pytest.mark.parametrize(
    ("program", "answer_s", "error"),
    [
        ("input(); input()", 0.1, "did not answer to 'taken' within 0.1 s, .*; use a machine with less to do"),
        ("input(); import os; os.kill(os.getpid(), 9)", 60.0, "ended with -9 at 'taken'"),
        ("import os; input(); os.write(1, b'{'); os.kill(os.getpid(), 9)", 60.0, "ended with -9 at 'taken'"),
        ("pass", 60.0, "ended with 0 at 'taken'"),  # before the order
    ],
)
def test_a_process_that_hangs_or_dies_is_named_with_its_order(
    benchmarks: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, program: str, answer_s: float, error: str
) -> None:
    actors = benchmarks("actors")
    monkeypatch.setattr(actors, "ANSWER_S", answer_s)
    process = actors.Process("a subscriber", ["-c", program])
    if program == "pass":
        process.process.wait()
    try:
        with pytest.raises(SystemExit, match=f"a subscriber {error}"):
            process.ask("taken")
    finally:
        process.process.kill()
        process.process.communicate()


@pytest.mark.parametrize(("expected", "lost"), [(3, 0), (5, 2)])
def test_what_was_expected_and_never_came_is_counted(clients: ModuleType, expected: int, lost: int) -> None:
    counter = clients.Counter(patience_s=0.1)

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


def test_tables_and_picture_of_the_page_are_those_of_its_results(benchmarks: Callable[[str], ModuleType]) -> None:
    results = json.loads((DOCS / "benchmarks.json").read_text())
    page = (DOCS / "benchmarks.md").read_text()
    assert benchmarks("page").filled(page, results) == page
    assert benchmarks("chart").drawn(results) == (DOCS / "benchmarks.svg").read_text()


def results(systems: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Results in which each system has so many events a second at 16 bytes, and so long a delay."""
    rates = [
        {"system": name, "size_bytes": 16, "events_per_s": rate, "peak_rss_bytes": {"publisher": 1, "subscriber": 2}}
        for name, (rate, _) in systems.items()
    ]
    delays = [{"system": name, "p50_us": delay, "p99_us": 2 * delay} for name, (_, delay) in systems.items()]
    return {"throughput": {"results": rates}, "latency": {"results": delays}}


def test_the_page_names_every_system_that_is_ahead(benchmarks: Callable[[str], ModuleType]) -> None:
    systems = {"quillcast": (1000, 90), "zenoh": (1500, 60), "pyzmq": (900, 100), "redis": (2000, 30)}
    assert benchmarks("page").ahead(results(systems)) == [
        "- **16 bytes.** Times quillcast's events a second: redis 2.00, zenoh 1.50.",
        "- **Lone events.** Times faster than quillcast (p50): redis 3.00, zenoh 1.50.",
    ]
    assert benchmarks("page").ahead(results({"quillcast": (1000, 90), "zenoh": (900, 91)})) == [
        "- In none of these columns is another system ahead."
    ]


def test_systems_are_compared_on_the_same_kind_of_path(benchmarks: Callable[[str], ModuleType]) -> None:
    systems = {"quillcast": (1000, 90), "quillcast, two peers": (2000, 60), "zenoh": (1500, 61), "redis": (1500, 61)}
    assert benchmarks("page").ahead(results(systems)) == [
        "- **16 bytes.** Times quillcast's events a second: redis 1.50.",
        "- **Lone events.** Times faster than quillcast (p50): redis 1.48.",
    ]


def test_figures_that_were_not_measured_again_keep_their_rows(benchmarks: Callable[[str], ModuleType]) -> None:
    old, new = {"figure": "delay", "new_commit": "a"}, {"figure": "delay", "new_commit": "b"}
    other = {"figure": "memory", "new_commit": "a"}
    assert benchmarks("compare").published([new], [old, other]) == [new, other]


def test_two_trees_are_compared_round_by_round(benchmarks: Callable[[str], ModuleType]) -> None:
    base = [{"events/s": value} for value in (100.0, 200.0, 100.0)]  # the machine was faster in the second round
    new = [{"events/s": value} for value in (110.0, 220.0, 120.0)]
    (row,) = benchmarks("compare").compared(base, new)
    assert (row["base"], row["new"], row["ratio"]) == (100.0, 120.0, pytest.approx(1.1))
    assert row["lower"] <= row["ratio"] <= row["upper"]


def test_delays_of_both_kinds_of_admission_are_simulated(
    benchmarks: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = benchmarks("admission")
    monkeypatch.setattr(admission, "TOPICS", 4)
    monkeypatch.setattr(admission, "SUBSCRIBERS", 10)
    monkeypatch.setattr(admission.gc, "disable", lambda: None)
    root, source = admission.simulated(60)
    assert [(row["admission"], row["peers"]) for row in (root, source)] == [("root", 60), ("source", 60)]
    assert min(root["delay_over_unicast"], source["delay_over_unicast"]) >= 1.0


def test_domains_with_and_without_scopes_are_simulated(
    benchmarks: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes = benchmarks("scopes")
    monkeypatch.setattr(scopes.gc, "disable", lambda: None)
    overlay, scoped = (scopes.measure(system, scopes.Size(60, 4, 2, 1, 3), 1) for system in scopes.SYSTEMS)
    assert (overlay["system"], scoped["system"]) == ("overlay", "scoped")
    assert scoped["border_in"] <= overlay["border_in"]
    assert scoped["children_max"] <= 16
