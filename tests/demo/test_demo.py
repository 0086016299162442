"""The demo itself, small: eight processes, real events, kills, and the audit on Spark."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

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


def test_peers_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    code, told, words = demo(tmp_path, "--peers", "8", "--limit", "800", "--rate", "100")
    assert list(told) == [*KEYS, "report", "seconds"]
    assert (code, told["lost"], told["duplicates"]) == (0, 0, 0), words
    assert (told["peers"], told["topics"], told["published"]) == (8, 3, 800)
    assert told["delivered"] == told["expected"] > 800
    assert told["kills"] == len(told["repair_s"]) == words.count("SIGKILL") >= 1
    assert all(seconds >= 0 for seconds in told["repair_s"])
    assert "b = 1, l = 4" in words
    assert told["kills"] == 3 or "fewer will be killed" in words
    page = Path(told["report"]).read_text()
    assert "<svg" in page
    assert 'src="http' not in page
    assert not (tmp_path / "quillcast").exists() or not any((tmp_path / "quillcast").iterdir())
