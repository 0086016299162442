"""Two hundred sources in one topic, of which fifty are killed during a split: every promise is judged."""

import pytest

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

PEERS, KILLED, READERS = 200, 50, 10
SPLIT_AT_S, SPLIT_S, LEASE_S = 14.0, 14.0, 6.0

pytestmark = pytest.mark.long


def scenario() -> Scenario:
    """Every peer publishes; a third of them is cut off, and a quarter of all is killed on both sides meanwhile."""
    step = PEERS // KILLED
    return Scenario(
        name="many sources killed during a split", peers=PEERS, duration_s=60.0, join_s=4.0, topology=Constant(),
        config=Config(topics=TopicConfig(lease_s=LEASE_S, past_terms_s=2 * LEASE_S)), check_every=50,
        topics=[
            TopicPlan(
                name="news", admission="source",
                writers=[
                    Writing(peer=peer, from_s=9.0 + peer / PEERS, until_s=36.0, every_s=3.0) for peer in range(PEERS)
                ],
                readers=[Reading(peer=1 + number * PEERS // READERS) for number in range(READERS)],
            )
        ],
        faults=[
            faults.Partition(at_s=SPLIT_AT_S, peers=[str(peer) for peer in range(PEERS // 3)], for_s=SPLIT_S),
            *(
                faults.Crash(at_s=SPLIT_AT_S + 1.0 + number / KILLED, peer=str(number * step), silent=number % 2 == 0)
                for number in range(KILLED)
            ),
        ],
    )  # fmt: skip


def test_fifty_of_two_hundred_sources_are_killed_during_a_split() -> None:
    simulation = Simulation(scenario(), 1)
    simulation.run()
    assert len(simulation.writers) == PEERS
    assert sum(not writer.lives for writer in simulation.writers) == KILLED
    marks = simulation.world.journal.marks
    assert min(marks["stream_ended"], marks["stream_over"], marks["stream_resumed"]) > 0
    living = next(tree for tree in simulation.trees("news").values() if tree.root is not None)
    assert len(living.sources.states) == PEERS - KILLED
