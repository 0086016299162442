"""Fault simulations: whatever goes wrong, the promises of DELIVERY.md hold. `make sim` runs many more seeds."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from quillcast.sim.chance import FAULTS_MIN, PEERS_MAX, PEERS_MIN, drawn
from quillcast.sim.simulation import Simulation

SEEDS = range(1000, 1025)
PEERS = 12  # at most, so that all of it stays well under a minute
MARKS: Counter[str] = Counter()

TRACE = """
import hashlib, sys, msgspec
from quillcast.sim.chance import drawn
from quillcast.sim.simulation import Simulation
simulation = Simulation(drawn(int(sys.argv[1]), 12), int(sys.argv[1]))
simulation.world.run(60)
records = [(at, machine, record) for at, machine, record in simulation.world.journal.records]
print(simulation.world.steps, len(records), hashlib.sha256(msgspec.msgpack.encode(records)).hexdigest())
"""


@pytest.mark.parametrize("seed", SEEDS)
def test_the_promises_hold_whatever_goes_wrong(seed: int) -> None:
    simulation = Simulation(drawn(seed, PEERS), seed)
    simulation.run()
    MARKS.update(simulation.world.journal.marks)


def test_every_seed_draws_what_was_promised() -> None:
    for seed in range(500):
        scenario = drawn(seed)
        scenario.validate()
        assert PEERS_MIN <= scenario.peers <= PEERS_MAX
        assert len(scenario.faults) >= FAULTS_MIN
        assert scenario.duration_s >= 60
        assert scenario == drawn(seed)
    assert drawn(1) != drawn(2)


def test_the_same_seed_leaves_the_same_trace_in_every_process() -> None:
    def trace(seed: int, hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = [sys.executable, "-c", TRACE, str(seed)]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout

    assert trace(1003, "1") == trace(1003, "2")
    assert trace(1003, "1") != trace(1004, "1")
