"""Run many seeds, one after another or in parallel."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from quillcast.sim.chance import PEERS_MAX, drawn
from quillcast.sim.composed import composed, varied
from quillcast.sim.hard import hard
from quillcast.sim.scenario import Scenario, load
from quillcast.sim.simulation import Simulation
from quillcast.sim.wild import wild, with_late_readers
from quillcast.sim.world import Broken

BATCH = 4  # seeds that a process runs at a time


class Outcome(NamedTuple):
    """The outcome of one seed."""

    seed: int
    broken: str
    about: str
    peers: int
    steps: int
    delivered: int
    simulated_s: float
    wall_s: float
    marks: dict[str, int]


class Plan(NamedTuple):
    """The scenario of each seed: from a file, or random: wide (with a maximum of peers), hard or wild."""

    file: Path | None = None
    peers_max: int = PEERS_MAX
    hard: bool = False
    wild: tuple[str, ...] | None = None
    """The twists of wild histories; empty for random ones."""
    sources: bool = False
    """Whether sources number the events of all topics."""
    outside: bool = False
    """Whether a third of the peers has no place in the ring."""
    scope: str = ""
    """The policies of the scopes that most peers are members of, separated by commas; empty: there are none."""
    scopes: int = 1
    """The number of scopes with those policies."""
    within: str = ""
    """The policies of a superscope of those; empty: there is none."""
    recovery: str = "tree"
    """The recovery protocol of all scopes."""
    composed: bool = False
    """Whether each seed draws a composition of scopes, policies, borders, admissions and more (`composed`)."""
    rooted: bool = False
    """Whether all topics are rooted at the first scope."""
    cluster: str = ""
    """The policies of a virtual cluster of their members, at which topics are rooted; empty: there is none."""

    def scenario(self, seed: int) -> Scenario:
        """The scenario that a seed runs. Raises `LocalError` if the file is not a scenario."""
        scenario = self._drawn(seed)
        scenario = self._by_sources(scenario, seed) if self.sources else scenario
        scenario = scenario.with_outsiders() if self.outside else scenario
        scenario = varied(composed(scenario, seed), seed) if self.composed else scenario
        if not self.scope:
            return scenario
        scenario = scenario.with_scopes(self.scope, self.scopes, self.within, self.recovery)
        scenario = scenario.clustered(self.cluster) if self.cluster else scenario
        return scenario.rooted() if self.rooted else scenario

    def _by_sources(self, scenario: Scenario, seed: int) -> Scenario:
        late = self.hard or self.wild is not None
        return (with_late_readers(scenario, seed) if late else scenario).by_sources()

    def _drawn(self, seed: int) -> Scenario:
        if self.file is not None:
            return load(self.file)
        if self.wild is not None:
            return wild(seed, self.wild)
        return hard(seed) if self.hard else drawn(seed, self.peers_max)


def run_seed(seed: int, plan: Plan) -> Outcome:
    """Run one seed to its end, or until something breaks."""
    began = time.perf_counter()
    simulation = Simulation(plan.scenario(seed), seed)
    broken = about = ""
    try:
        simulation.run()
    except Broken as error:
        broken, about = str(error), error.about
    world = simulation.world
    delivered = sum(len(reader.log) for reader in simulation.readers)
    wall_s = time.perf_counter() - began
    return Outcome(
        seed, broken, about, len(world.machines), world.steps, delivered, world.now, wall_s, world.journal.marks
    )


def run_batch(seeds: list[int], plan: Plan) -> list[Outcome]:
    """Run some seeds in this process. Garbage is collected only between them, which makes them twice as fast."""
    gc.disable()
    outcomes = []
    for seed in seeds:
        outcomes.append(run_seed(seed, plan))
        gc.collect()
    return outcomes


def outcomes(seeds: list[int], plan: Plan, jobs: int) -> Iterator[Outcome]:
    """The outcomes of all seeds, in order of completion."""
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    if jobs <= 1:
        for batch in batches:
            yield from run_batch(batch, plan)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        try:
            for future in as_completed([pool.submit(run_batch, batch, plan) for batch in batches]):
                yield from future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C no other batch starts
