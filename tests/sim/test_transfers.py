"""Roots that do not hear each other: one whose word comes late, and two that are out of each other's reach."""

import pytest

from quillcast.core.trace import BecameRoot
from quillcast.protocol.topics.descriptor import described
from quillcast.sim import faults
from quillcast.sim.scenario import AnyFault, Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

TOPIC, SPACE = "news", 1 << 32
ROOT, NEXT, BYSTANDER = 1, 2, 7
DISTANCES = (1 << 30, 1, 1 << 8, 1 << 16, 1 << 20, 1 << 24, 3 << 28, 5 << 28)
"""Of the peers from the topic's id: `ROOT` is the closest, then `NEXT`."""
SLOW = faults.Disturb(at_s=19.95, peers=[str(NEXT)], for_s=5.0, slow_s=0.8)
"""More than a root that leaves waits for the next one to confirm (`TopicConfig.ask_s`)."""


def leave(peer: int, at_s: float) -> faults.Leave:
    return faults.Leave(at_s=at_s, peer=str(peer))


def a_root_leaves(*others: AnyFault) -> Scenario:
    place = int.from_bytes(described(TOPIC).topic[:4], "big")
    topic = TopicPlan(
        name=TOPIC, writers=[Writing(peer=0, from_s=10.0, until_s=30.0)],
        readers=[Reading(peer=peer, from_s=8.0) for peer in (0, NEXT, 4, 5, 6)],
    )  # fmt: skip
    return Scenario(
        peers=len(DISTANCES), ids=[f"{(place + each) % SPACE:08x}" for each in DISTANCES], duration_s=70.0,
        topology=Constant(delay_s=0.01), topics=[topic], faults=[leave(ROOT, 20.0), *others],
    )  # fmt: skip


@pytest.mark.parametrize(
    "others",
    [
        (SLOW, leave(BYSTANDER, 20.7)),
        (SLOW, leave(NEXT, 21.0)),
        (leave(NEXT, 20.02),),
        (faults.Drop(at_s=19.9, from_=[str(ROOT)], to=[str(NEXT)], for_s=3.0),),
    ],
    ids=["its answer is slow, and another passes the topic on", "its answer is slow, and it leaves as well",
         "it leaves before it is root", "it took over before it was told"],
)  # fmt: skip
def test_nobody_waits_for_a_lease_because_the_next_root_is_slow(others: tuple[AnyFault, ...]) -> None:
    run = Simulation(a_root_leaves(*others), 1)
    run.world.run(36.0)  # a lease after the root left ends at 50
    assert [writer.unsettled for writer in run.writers] == [[]]
    run.run()


def two_roots_know_of_each_other() -> Scenario:
    """For 20 s, less than a lease. No peer reaches both, but those that reach one reach those that reach the other."""
    apart = [(0, 1), (1, 2), (1, 3), (0, 4), (0, 5), (0, 6), (1, 7)]
    drops = [
        faults.Drop(at_s=5.0, from_=[str(a)], to=[str(b)], for_s=20.0) for pair in apart for a, b in (pair, pair[::-1])
    ]
    place = int.from_bytes(described(TOPIC).topic[:4], "big")
    topic = TopicPlan(
        name=TOPIC, writers=[Writing(peer=peer, from_s=3.0, until_s=35.0, every_s=0.5) for peer in (3, 6)],
        readers=[Reading(peer=peer, from_s=2.0) for peer in (0, 1, 3, 4, 5, 7)],
    )  # fmt: skip
    return Scenario(
        peers=8, ids=[f"{(place + (1 << 3 + 2 * each)) % SPACE:08x}" for each in range(8)], duration_s=150.0,
        topology=Constant(delay_s=0.02), topics=[topic], faults=drops,
    )  # fmt: skip


def test_two_roots_that_only_others_reach_do_not_outbid_each_other_all_the_time() -> None:
    """Terms of which peers kept no more than the latest: what had come in the others was lost."""
    run = Simulation(two_roots_know_of_each_other(), 77)
    run.run()
    terms = [record for _, _, record in run.world.journal.records if isinstance(record, BecameRoot)]
    assert 2 < len(terms) < 9
