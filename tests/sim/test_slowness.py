"""Topics that wait for a slow subscriber hold up no others (docs/delivery.md, *Slowness*)."""

from itertools import pairwise

from msgspec.structs import replace

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.applications import Heard
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation

BUDGET_BYTES = 1 << 20
PEERS, STOPPED = 8, 7


def a_network_with_topics_that_wait(count: int) -> Scenario:
    """All peers read `count` topics that wait, and one that does not. One peer is stopped for most of its lease.

    The topics have several roots. The root of c0 is the root of others too, to which its writer writes over one link.
    """
    everywhere = [Reading(peer=peer, from_s=8.0) for peer in range(PEERS)]
    often = Writing(peer=0, from_s=12.0, until_s=45.0, every_s=0.1, events=2, payload_bytes=8000)
    waiting = [
        TopicPlan(name=f"w{number}", slow="wait", writers=[replace(often, peer=number % 3)], readers=everywhere)
        for number in range(count)
    ]
    other = TopicPlan(
        name="c0", writers=[replace(often, peer=2, events=1, payload_bytes=500)], readers=everywhere[:STOPPED]
    )
    topics = replace(
        TopicConfig(), budget_bytes=BUDGET_BYTES, retain_bytes=BUDGET_BYTES, window_bytes=BUDGET_BYTES // 16,
        children_per_topic_max=2,
    )  # fmt: skip
    return Scenario(
        peers=PEERS, duration_s=70.0, topology=Constant(delay_s=0.005), window_bytes=BUDGET_BYTES // 16,
        config=replace(Config(), topics=topics), topics=[*waiting, other], check_every=1000,
        faults=[faults.Pause(peer=str(STOPPED), for_s=20.0, at_s=20.0)],
    )  # fmt: skip


def test_a_stopped_reader_of_topics_that_wait_delays_no_reader_of_another_topic() -> None:
    run = Simulation(a_network_with_topics_that_wait(8), 2)
    run.run()
    assert run.world.journal.marks["topic_blocked"]
    for reader in run.readers:
        if reader.topic == "c0":
            times = [entry.at for entry in reader.log if isinstance(entry, Heard)]
            assert max(later - earlier for earlier, later in pairwise(times)) < 1.0, reader.name
