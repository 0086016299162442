"""What the simulator does on machines whose topics are rooted at a scope."""

from quillcast.sim.faults import Crash, Partition
from quillcast.sim.scenario import Reading, Scenario, ScopePlan, TopicPlan, Writing
from quillcast.sim.simulation import Simulation


def test_programs_begin_when_all_scopes_of_their_peer_have_told_it_where_topics_are_rooted() -> None:
    """With the word of one scope only, they would have created another topic of that name in the overlay."""
    site = ScopePlan(name="site", members=[2, 3, 4], manager=1)
    room = ScopePlan(name="room", members=[4], manager=0, root=True)
    topic = TopicPlan(name="t0", writers=[Writing(peer=4, until_s=12.0)], readers=[Reading(peer=4)])
    cut = Partition(peers=["1", "4"], at_s=9.0, for_s=15.0)
    crash = Crash(peer="4", at_s=10.0, restart_s=1.0)
    scenario = Scenario(peers=5, duration_s=90.0, topics=[topic], scopes=[site, room], faults=[cut, crash])
    simulation = Simulation(scenario, 1)
    simulation.run()
    first, second = (reader.asked_at for reader in simulation.readers)
    assert first < 10.0
    assert second > 24.0, "when the partition was over"
