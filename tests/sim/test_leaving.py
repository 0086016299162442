"""Peers that leave in good order cost nobody the time of a lease, whichever of them leave together, and when."""

import random

import pytest
from msgspec.structs import replace

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import described
from quillcast.sim import faults
from quillcast.sim.applications import Heard
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Uniform, Writing
from quillcast.sim.simulation import Simulation
from tests.params import rest_long

TOPIC, SPACE, STAYS = "news", 1 << 32, 0
LEFT_S, SETTLED_S = 20.0, 34.0
"""When peers begin to leave, and when all is stable: long before a lease ends that began then."""


def near(distance: int) -> str:
    """The first digits of an id at this distance from the topic's."""
    place = int.from_bytes(described(TOPIC).topic[:4], "big")
    return f"{(place + distance) % SPACE:08x}"


def peers_leave_at_once(seed: int) -> Scenario:
    """Some of a few peers leave nearly at once. The tree is wide or deep, and the writer's peer is the farthest."""
    rng = random.Random(f"leaving {seed}")
    peers = rng.randint(7, 12)
    distances = [1 << 30, *[1 << rng.randint(2, 28) for _ in range(peers - 1)]]
    stay = {STAYS, rng.randrange(1, peers)}
    closest = sorted(set(range(1, peers)) - stay, key=lambda peer: distances[peer] + peer)
    others = rng.sample(closest, len(closest))
    leavers = list(dict.fromkeys([*closest[: rng.randint(0, 3)], *others]))[: rng.randint(2, 5)]
    delay_s, spread_s = rng.choice([0.005, 0.02, 0.05, 0.1]), rng.choice([0.0, 0.03, 0.1, 0.5, 2.0])
    topology = rng.choice([Constant(delay_s=delay_s), Uniform(low_s=delay_s / 4, high_s=2 * delay_s)])
    topics = replace(TopicConfig(), children_per_topic_max=rng.choice([1, 2, 2, 3, 16]))
    plan = TopicPlan(
        name=TOPIC, writers=[Writing(peer=STAYS, from_s=10.0, until_s=30.0, every_s=0.2)],
        readers=[Reading(peer=peer, from_s=8.0) for peer in range(peers) if peer in stay or rng.random() < 0.8],
    )  # fmt: skip
    return Scenario(
        peers=peers, ids=[near(each + at) for at, each in enumerate(distances)], duration_s=60.0, topology=topology,
        topics=[plan], config=replace(Config(), topics=topics), check_every=50,
        faults=[faults.Leave(at_s=LEFT_S + rng.random() * spread_s, peer=str(peer)) for peer in leavers],
    )  # fmt: skip


@pytest.mark.parametrize("seed", rest_long(range(40), 10))
def test_whichever_peers_leave_at_once_nobody_waits_for_a_lease(seed: int) -> None:
    run = Simulation(peers_leave_at_once(seed), seed)
    run.world.run(SETTLED_S)
    assert [writer.unsettled for writer in run.writers] == [[]]
    run.run()


ROOT, NEXT, WRITER = 1, 2, 3
EVENTS, WINDOW_BYTES = 40, 1 << 14


def a_root_leaves_with_the_only_copies(readers: tuple[int, ...] = (0, 4, 5)) -> Scenario:
    """The writer has died, and readers did not reach the root. The next root's link takes a fifth of what is left."""
    plan = TopicPlan(
        name=TOPIC, writers=[Writing(peer=WRITER, from_s=19.0, until_s=19.79, every_s=0.02, payload_bytes=2000)],
        readers=[Reading(peer=peer, from_s=8.0) for peer in readers],
    )  # fmt: skip
    return Scenario(
        peers=6, ids=[near(1 << distance) for distance in (30, 1, 8, 28, 24, 26)], duration_s=70.0,
        topology=Constant(delay_s=0.02), window_bytes=WINDOW_BYTES, topics=[plan],
        faults=[
            faults.Drop(from_=[str(ROOT)], to=[str(reader) for reader in readers], at_s=18.5, for_s=12.0),
            faults.Crash(peer=str(WRITER), at_s=19.9), faults.Leave(peer=str(ROOT), at_s=20.0),
        ],
    )  # fmt: skip


def test_a_root_that_leaves_transfers_the_only_copies_whatever_room_the_link_has() -> None:
    run = Simulation(a_root_leaves_with_the_only_copies(), 1)
    run.run()
    (written,) = [len(writer.written) for writer in run.writers]
    assert written == EVENTS
    assert {len([each for each in reader.log if isinstance(each, Heard)]) for reader in run.readers} == {EVENTS}


@pytest.mark.parametrize("left_s", [21.04, 21.06, 21.1])
def test_a_root_that_leaves_hands_the_copies_to_another_if_the_next_one_leaves_before_it_is_root(left_s: float) -> None:
    """The next root has confirmed, and got a part of the copies, or has yet to get them."""
    scenario = a_root_leaves_with_the_only_copies(readers=(0, 5))
    happening = [*scenario.faults, faults.Leave(peer=str(NEXT), at_s=left_s)]
    run = Simulation(replace(scenario, faults=happening), 1)
    run.run()
    assert {len([each for each in reader.log if isinstance(each, Heard)]) for reader in run.readers} == {EVENTS}
