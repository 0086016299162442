"""Histories in which files of scopes say which members publish and subscribe, and their judge."""

import pytest

from quillcast.sim.simulation import Simulation
from quillcast.sim.wild import wild
from quillcast.sim.world import Broken

SEEDS = [100, 101, 102, 103]


def entitled(seed: int, *, sources: bool = False) -> Simulation:
    scenario = wild(seed, ["entitled"])
    return Simulation(scenario.by_sources() if sources else scenario, seed)


def what_breaks() -> list[str]:
    """What the judges say of each history that breaks."""
    broken = list[str]()
    for seed in SEEDS:
        try:
            entitled(seed).run()
        except Broken as error:
            broken.append(str(error))
    return broken


@pytest.mark.parametrize("sources", [False, True])
def test_members_do_what_they_have_a_right_to_and_nothing_else(*, sources: bool) -> None:
    refused = list[object]()
    for seed in SEEDS:
        run = entitled(seed, sources=sources)
        run.run()
        refused += [failure for program in (*run.readers, *run.writers) for failure in program.failures]
    assert refused, "some programs have no right"


def test_a_manager_that_lets_everybody_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_no_right", lambda *_: "")
    broken = what_breaks()
    assert any("without the right to it, did so" in each for each in broken), broken


def test_a_manager_that_lets_nobody_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_no_right", lambda *_: "nobody may")
    broken = what_breaks()
    assert any("with the right to it, was refused" in each or "failed" in each for each in broken), broken
