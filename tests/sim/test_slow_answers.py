"""Peers whose answers are slow ask again, and nobody waits for a lease because of what comes twice."""

import pytest
from msgspec.structs import replace

from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.sim import faults
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

PEERS, TOPICS = 16, 8
SLOW_FROM_S, SLOW_UNTIL_S = 9.5, 24.5


def a_busy_network() -> Scenario:
    """Topics begin while every message takes 0.3 to 1.5 s, as where processes have to wait for a processor.

    So Joins are sent again before the first one is answered, and come to several peers on the way to the root.
    """
    topics = [
        TopicPlan(
            name=f"t{number}", writers=[Writing(peer=number * 13 % PEERS, from_s=11.0, until_s=12.0)],
            readers=[Reading(peer=(number * 7 + each * 11) % PEERS, from_s=10.0) for each in range(3)],
        )
        for number in range(TOPICS)
    ]  # fmt: skip
    slow = faults.Disturb(
        at_s=SLOW_FROM_S, peers=["all"], for_s=SLOW_UNTIL_S - SLOW_FROM_S, slow_s=0.3, jitter=120.0
    )  # fmt: skip
    return Scenario(
        peers=PEERS, duration_s=60.0, topology=Constant(delay_s=0.01), topics=topics, check_every=1000, faults=[slow],
        config=replace(Config(), overlay=OverlayConfig(digit_bits=1, leaf_set_size=4)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", [2, 7])
def test_what_was_asked_twice_leaves_no_lease_behind_that_all_wait_for(seed: int) -> None:
    run = Simulation(a_busy_network(), seed)
    run.world.run(SLOW_UNTIL_S + 8.0)  # much less than a lease
    assert [writer.topic for writer in run.writers if writer.unsettled] == []
    run.run()
    assert run.world.journal.marks["join_retried"]
