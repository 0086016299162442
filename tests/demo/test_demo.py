"""The demo itself, small: eight processes, real events, kills, and the audit on Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quillcast.core.errors import LocalError
from quillcast.demo.performance import Performance, judged, plan
from quillcast.demo.sites import CHANGED, MEMBERS, NEXT_POLICY, SITES, STRUCK
from quillcast.pipeline.findings import Findings
from quillcast.pipeline.run import Run

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.spark]

KEYS = ["peers", "topics", "published", "expected", "delivered", "duplicates", "lost", "kills", "repair_s", "delay_ms"]


def demo(folder: Path, *options: str) -> tuple[int, Mapping[str, Any], str]:
    """Run the demo: exit code, what it says as JSON, and what it told people."""
    ran = subprocess.run(
        [sys.executable, "-m", "quillcast", "demo", "--json", "--output", str(folder / "demo"), *options],
        check=False, capture_output=True, text=True, timeout=240, env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )  # fmt: skip
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout.splitlines()[-1]), ran.stderr


@pytest.mark.long
def test_peers_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    code, told, words = demo(tmp_path, "--peers", "8", "--limit", "800", "--rate", "100")
    assert list(told) == [*KEYS, "report", "seconds"]
    assert (code, told["lost"], told["duplicates"]) == (0, 0, 0), words
    assert (told["peers"], told["topics"], told["published"]) == (8, 3, 800)
    assert told["delivered"] == told["expected"] > 800
    assert told["kills"] == len(told["repair_s"]) == words.count("SIGKILL") >= 1
    assert all(seconds >= 0 for seconds in told["repair_s"])
    assert "b = 1, l = 4" in words
    said = words.count("so none is killed")
    assert told["kills"] + said == 3 or "the stream ended before a" in words, words  # every kill left out has a reason
    page = Path(told["report"]).read_text()
    assert "<svg" in page
    assert 'src="http' not in page
    assert not (tmp_path / "quillcast").exists() or not any((tmp_path / "quillcast").iterdir())


@pytest.mark.long
def test_sites_lose_an_entry_point_and_a_manager_and_change_a_policy(tmp_path: Path) -> None:
    code, told, words = demo(tmp_path, "--scopes", "--rate", "100")
    steps = ["sites", "killed", "returned", "changed", "trace", "failures"]
    assert list(told) == [*KEYS, "report", "seconds", *steps]
    assert (code, told["lost"], told["duplicates"], told["kills"], told["failures"]) == (0, 0, 0, 2, []), words
    assert told["delivered"] == told["expected"] > 500
    assert [(site["site"], site["policy"]) for site in told["sites"]] == list(SITES.items())
    assert told["killed"]["site"] == told["returned"]["site"] == STRUCK
    assert (told["returned"]["epoch"], told["returned"]["members"]) == (2, MEMBERS - 1)
    assert (told["changed"]["site"], told["changed"]["to"], told["changed"]["done"]) == (CHANGED, NEXT_POLICY, True)
    assert told["trace"]["subscriptions"] == len(SITES) * MEMBERS - 1
    assert all(f"scope {name} (" in words for name in SITES)
    assert words.rstrip().splitlines()[-1].startswith("✓ Every promise held")


def test_sites_are_always_the_same(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "quillcast", "demo", "--scopes", "--peers", "8"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--scopes always runs the same three sites; leave out --peers" in ran.stderr


def test_the_judgement_names_what_was_broken() -> None:
    assert "Every promise held" in judged(found(), [])
    assert "A promise was broken: nothing lost. 8 of 10 deliveries: 2 lost, 0 repeated" in judged(found(lost=2), [])
    assert "A promise was broken: porto lacks events for 30 s." in judged(found(), ["porto lacks events for 30 s"])


def found(lost: int = 0) -> Findings:
    """What an audit finds of ten deliveries."""
    fate = {"lived": True, "expected": 10, "delivered": 10 - lost, "lost": lost, "dropped": 0, "duplicated": 0}
    verdicts = [{"verdict": "nothing repeated", "holds": True}, {"verdict": "nothing lost", "holds": not lost}]
    empty: list[dict[str, Any]] = []
    return Findings(
        Run(), empty, [fate], empty, empty, {"p50_ms": 1.0, "p99_ms": 2.0}, empty, empty, empty, empty, empty, empty,
        verdicts, {}, 0.0,
    )  # fmt: skip


def test_people_are_told_that_the_audit_waits_for_spark(tmp_path: Path) -> None:
    console = Console(record=True, width=80)
    performance = Performance(plan(2, 1.0, None, 1, 1, tmp_path / "demo", kill=False, stay=False), console)
    performance._spark.set_exception(LocalError("no Java machine"))
    with pytest.raises(LocalError, match="no Java machine"):
        performance.prove(Run())
    assert console.export_text() == "audit: waiting for Spark\n"
