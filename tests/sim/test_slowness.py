"""Topics that wait for a slow subscriber hold up no others (docs/delivery.md, *Slowness*)."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.applications import Heard, Reader, Told
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


STOPPED_READER = 2
WAITING, OTHER = ("w4", "w5"), "c3"
"""Two topics whose ids begin with 6, and one whose id begins with e."""


def a_root_with_small_buffers_that_meets_a_rival() -> Scenario:
    """Peer 3 has small buffers, and is the root of two topics that wait, until and after a partition: then it has both
    sides' events to keep for as long as the lease lasts of a reader that is stopped. It reads a third topic besides.
    """
    writing = Writing(peer=0, from_s=12.0, until_s=75.0, every_s=1 / 6, payload_bytes=8000)
    waiting = [
        TopicPlan(
            name=name, slow="wait", readers=[Reading(peer=peer, from_s=8.0) for peer in range(7)],
            writers=[replace(writing, peer=peer, from_s=12.0 + peer / 100) for peer in (0, 1, 4, 5)],
        )
        for name in WAITING
    ]  # fmt: skip
    other = TopicPlan(
        name=OTHER, writers=[replace(writing, peer=peer, from_s=12.0 + peer / 100) for peer in (0, 1)],
        readers=[Reading(peer=peer, from_s=8.0) for peer in (0, 3, 7)],
    )  # fmt: skip
    topics = replace(
        TopicConfig(), budget_bytes=4 * BUDGET_BYTES, retain_bytes=4 * BUDGET_BYTES, window_bytes=BUDGET_BYTES // 16,
        children_per_topic_max=3,
    )  # fmt: skip
    return Scenario(
        peers=PEERS, ids=["0", "2", "4", "6", "8", "a", "c", "e"], duration_s=110.0, topology=Constant(delay_s=0.002),
        window_bytes=BUDGET_BYTES // 16, config=replace(Config(), topics=topics), budgets={3: BUDGET_BYTES},
        topics=[*waiting, other], check_every=200,
        faults=[
            faults.Partition(peers=["4", "5", "6"], for_s=36.0, at_s=20.0),
            faults.Pause(peer=str(STOPPED_READER), for_s=25.0, at_s=50.0),
        ],
    )  # fmt: skip


def longest_wait_s(reader: Reader) -> float:
    """The longest time between two events."""
    times = [entry.at for entry in reader.log if isinstance(entry, Heard)]
    return max(later - earlier for earlier, later in pairwise(times))


def test_a_stopped_reader_of_topics_that_wait_delays_no_reader_of_another_topic() -> None:
    run = Simulation(a_network_with_topics_that_wait(8), 2)
    run.run()
    assert run.world.journal.marks["topic_blocked"]
    for reader in run.readers:
        if reader.topic == "c0":
            assert longest_wait_s(reader) < 1.0, reader.name


@pytest.mark.parametrize("seed", [2, 6])
def test_a_root_that_meets_a_rival_in_topics_that_wait_holds_up_no_reader_of_another_topic(seed: int) -> None:
    """With seed 6, the peer that is stopped has children before, which find other parents meanwhile."""
    run = Simulation(a_root_with_small_buffers_that_meets_a_rival(), seed)
    run.run()
    assert run.world.journal.marks["topic_blocked"]
    topics = run.scenario.config.topics
    for reader in run.readers:
        if reader.topic == OTHER:
            assert longest_wait_s(reader) < topics.patience_s + topics.housekeeping_s, reader.name
            assert not any(isinstance(entry, Told) for entry in reader.log), reader.name
        elif reader.host.number != STOPPED_READER:
            assert longest_wait_s(reader) < topics.lease_s + 5.0, reader.name


SLOW_READER, OTHER_SLOW_READER = 1, 4
BYTES_PER_S = 200_000
WRITTEN = "c2"
"""Its id begins with 7, so that of five peers the fourth is its root, and that of those which wait."""


def a_slow_reader(speed: float, others: list[TopicPlan], budgets: dict[int, int]) -> Scenario:
    """Of the readers of a topic that does not wait, one reads at a part of the speed of its writer.

    Another peer can read next to nothing, if there are other topics, and these wait for it.
    """
    topics = replace(
        TopicConfig(), budget_bytes=BUDGET_BYTES, retain_bytes=64 * BUDGET_BYTES, window_bytes=BUDGET_BYTES // 16
    )
    slow = faults.SlowReaders(at_s=15.0, peer=str(SLOW_READER), for_s=75.0, bytes_per_s=speed * BYTES_PER_S)
    slower = faults.SlowReaders(at_s=13.0, peer=str(OTHER_SLOW_READER), for_s=77.0, bytes_per_s=2000)
    return Scenario(
        peers=5, ids=["0", "2", "4", "6", "8"], duration_s=90.0, topology=Constant(delay_s=0.005),
        window_bytes=BUDGET_BYTES // 16, config=replace(Config(), topics=topics), check_every=5000, budgets=budgets,
        topics=[being_written(WRITTEN, 2, SLOW_READER, 2, 3), *others], faults=[slow, slower],
    )  # fmt: skip


def being_written(name: str, writer: int, *readers: int, slow: str = "cut") -> TopicPlan:
    writing = Writing(
        peer=writer, from_s=12.0, until_s=85.0, every_s=0.1, events=2, payload_bytes=BYTES_PER_S // 20
    )  # fmt: skip
    return TopicPlan(
        name=name, slow=slow, writers=[writing], readers=[Reading(peer=peer, from_s=8.0) for peer in readers]
    )


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            a_slow_reader(0.9, [being_written(WAITING[0], 0, OTHER_SLOW_READER, slow="wait")], {}),
            id="whose root keeps much of a topic that waits",
        ),
        pytest.param(
            a_slow_reader(0.5, [], {SLOW_READER: 8 * BUDGET_BYTES}), id="with a larger buffer than the root's"
        ),
    ],
)
def test_a_slow_reader_is_waited_for_once(scenario: Scenario) -> None:
    """It is as slow as before when it has what came before its lease ended, however much room there is at its peer."""
    run = Simulation(scenario, 2)
    run.run()
    assert run.world.journal.marks["lease_cut"] == 1
    for reader in run.readers:
        if reader.topic == WRITTEN and reader.host.number != SLOW_READER:
            assert longest_wait_s(reader) < 0.9, reader.name
