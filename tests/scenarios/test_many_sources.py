"""Many sources in one topic, of which a quarter is killed during a split: every promise is judged."""

from typing import NamedTuple

import pytest

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

LEASE_S = 6.0


class Times(NamedTuple):
    """When things happen, in seconds. The split outlasts the leases of those that are killed at its beginning."""

    first: float = 9.0
    split: float = 14.0
    heal: float = 28.0
    last: float = 36.0
    end: float = 60.0


def scenario(peers: int, killed: int, readers: int, times: Times) -> Scenario:
    """Every peer publishes; a third of them is cut off, and some are killed on both sides meanwhile."""
    return Scenario(
        name="many sources killed during a split", peers=peers, duration_s=times.end, join_s=4.0, topology=Constant(),
        config=Config(topics=TopicConfig(lease_s=LEASE_S, past_terms_s=2 * LEASE_S)), check_every=50,
        topics=[
            TopicPlan(
                name="news", admission="source",
                writers=[
                    Writing(peer=peer, from_s=times.first + peer / peers, until_s=times.last, every_s=3.0)
                    for peer in range(peers)
                ],
                readers=[Reading(peer=1 + number * peers // readers) for number in range(readers)],
            )
        ],
        faults=[
            faults.Partition(
                at_s=times.split, peers=[str(peer) for peer in range(peers // 3)], for_s=times.heal - times.split
            ),
            *(
                faults.Crash(
                    at_s=times.split + 1.0 + number / killed, peer=str(number * peers // killed), silent=number % 2 == 0
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


@pytest.mark.parametrize(
    ("peers", "killed", "readers", "seed"), [pytest.param(60, 15, 6, 1, marks=pytest.mark.long), (48, 12, 8, 6)]
)
def test_some_of_many_sources_are_killed_during_a_split(peers: int, killed: int, readers: int, seed: int) -> None:
    """In the first a Join from before a peer subscribed came late; in the second nobody decided about a hole."""
    check(scenario(peers, killed, readers, Times()), killed, seed)


@pytest.mark.long
def test_fifty_of_two_hundred_sources_are_killed_during_a_split() -> None:
    check(scenario(200, 50, 10, Times(first=6.0, split=8.0, heal=17.0, last=20.0, end=38.0)), 50, seed=3)
