"""Many sources in one topic, of which a quarter is killed during a split: every promise is judged."""

import pytest

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

SPLIT_AT_S, SPLIT_S, LEASE_S = 14.0, 14.0, 6.0


def scenario(peers: int, killed: int, readers: int) -> Scenario:
    """Every peer publishes; a third of them is cut off, and some are killed on both sides meanwhile."""
    return Scenario(
        name="many sources killed during a split", peers=peers, duration_s=60.0, join_s=4.0, topology=Constant(),
        config=Config(topics=TopicConfig(lease_s=LEASE_S, past_terms_s=2 * LEASE_S)), check_every=50,
        topics=[
            TopicPlan(
                name="news", admission="source",
                writers=[
                    Writing(peer=peer, from_s=9.0 + peer / peers, until_s=36.0, every_s=3.0) for peer in range(peers)
                ],
                readers=[Reading(peer=1 + number * peers // readers) for number in range(readers)],
            )
        ],
        faults=[
            faults.Partition(at_s=SPLIT_AT_S, peers=[str(peer) for peer in range(peers // 3)], for_s=SPLIT_S),
            *(
                faults.Crash(
                    at_s=SPLIT_AT_S + 1.0 + number / killed, peer=str(number * peers // killed), silent=number % 2 == 0
                )
                for number in range(killed)
            ),
        ],
    )  # fmt: skip


def check(plan: Scenario, killed: int, seed: int) -> None:
    simulation = Simulation(plan, seed)
    simulation.run()
    assert len(simulation.writers) == plan.peers
    assert sum(not writer.lives for writer in simulation.writers) == killed
    marks = simulation.world.journal.marks
    assert min(marks["stream_ended"], marks["stream_over"], marks["stream_resumed"]) > 0
    root = next(tree for tree in simulation.trees("news").values() if tree.root is not None)
    assert len(root.sources.states) == plan.peers - killed, "the streams of the dead are over, and no others"


@pytest.mark.parametrize(("peers", "killed", "readers", "seed"), [(60, 15, 6, 1), (48, 12, 8, 6)])
def test_some_of_many_sources_are_killed_during_a_split(peers: int, killed: int, readers: int, seed: int) -> None:
    """In the first a Join from before a peer subscribed came late; in the second nobody decided about a hole."""
    check(scenario(peers, killed, readers), killed, seed)


@pytest.mark.long
def test_fifty_of_two_hundred_sources_are_killed_during_a_split() -> None:
    """Children concluded a stream at an end that was corrected later."""
    check(scenario(200, 50, 10), 50, seed=3)
