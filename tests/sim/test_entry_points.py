"""Faults that hit the entry points of scopes."""

from quillcast.sim.hard import TOPIC, hard
from quillcast.sim.simulation import Simulation


def test_faults_find_the_entry_point_and_stand_bys_of_a_topic() -> None:
    scenario = hard(3).with_scopes("k_ary")
    simulation = Simulation(scenario, 3)
    simulation.world.run(6.0)
    entries, stand_bys = (simulation.select([f"{kind}:{TOPIC}"]) for kind in ("entry-points", "stand-bys"))
    assert len(entries) == 1
    assert stand_bys
    assert {*entries}.isdisjoint(stand_bys)
    assert {*entries, *stand_bys} <= {*scenario.scopes[0].members}
