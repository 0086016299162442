"""A seed gives one history, whatever ran before in its process, and in whatever process it runs."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from quillcast.sim.composed import composed
from quillcast.sim.hard import hard
from quillcast.sim.journal import Journal
from quillcast.sim.simulation import Simulation
from quillcast.sim.wild import wild

ROOT = Path(__file__).resolve().parents[2]
HISTORIES: dict[str, Callable[[], Simulation]] = {  # short ones
    "hard": lambda: simulation(hard(11), 11),
    "wild, by sources": lambda: simulation(wild(11).by_sources(), 11),
    "in scopes": lambda: simulation(hard(11).with_scopes("k_ary,ring,gossip", 2), 11),
    "composed": lambda: simulation(composed(hard(11), 11), 11),
}


def simulation(scenario: object, seed: int) -> Simulation:
    return Simulation(scenario, seed, journal=Journal())  # type: ignore[arg-type]


def digest(name: str) -> str:
    """Over all that the peers recorded, and the number of their steps."""
    history = HISTORIES[name]()
    history.run()
    world = history.world
    return hashlib.sha256(repr((world.steps, world.journal.records)).encode()).hexdigest()


def test_a_seed_gives_one_history_in_another_order_and_in_a_process_that_hashes_otherwise() -> None:
    """There a set of bytes has another order, and what the process still has of other histories is different."""
    here = {name: digest(name) for name in HISTORIES}
    assert len({*here.values()}) == len(HISTORIES)
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    code = f"from {__name__} import *; print({{name: digest(name) for name in reversed(HISTORIES)}})"
    there = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert there.stdout.strip() == str(dict(reversed(here.items()))), there.stderr
