"""Topics whose events are numbered by their sources keep the promises that others keep (docs/delivery.md)."""

from typing import Literal

import pytest

from quillcast.core.ids import topic_id
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding import forgotten, past_terms
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim import faults
from quillcast.sim.applications import Heard
from quillcast.sim.scenario import Constant, Reading, Scenario, TopicPlan, Uniform, Writing
from quillcast.sim.simulation import Simulation

NEXT_TO_TOPIC = topic_id("t0").hex()[:10]  # of the first peer: it is the root
BUDGET_BYTES = 256_000
Admission = Literal["root", "source"]
both = pytest.mark.parametrize("admission", ["root", "source"])


def scenario(duration_s: float, config: TopicConfig, topic: TopicPlan, *happening: faults.AnyFault) -> Scenario:
    return Scenario(
        peers=6, duration_s=duration_s, ids=[NEXT_TO_TOPIC], join_s=1.0, topology=Constant(delay_s=0.01),
        window_bytes=BUDGET_BYTES // 4, config=Config(topics=config), topics=[topic], faults=list(happening),
    )  # fmt: skip


def peers(simulation: Simulation) -> list[Peer]:
    return [machine.host.peer for machine in simulation.world.machines if machine.host is not None]


@both
def test_an_event_is_not_stable_while_a_forwarder_that_was_restarted_and_lost_held_a_lease(
    admission: Admission,
) -> None:
    """The lease of a paused reader, whose parent came back without it and went again."""
    topic = TopicPlan(
        name="t0", admission=admission, writers=[Writing(peer=0, from_s=10, until_s=40, every_s=0.5)],
        readers=[Reading(peer=1, from_s=5.0), Reading(peer=2, from_s=7.0)],
    )  # fmt: skip
    paused, restarted = faults.Pause(at_s=15.0, peer="2", for_s=22.0), faults.Crash(at_s=15.1, peer="1", restart_s=1.0)
    lost = faults.Crash(at_s=30.0, peer="1")
    Simulation(scenario(60.0, TopicConfig(children_per_topic_max=1), topic, paused, restarted, lost), 1).run()


@both
@pytest.mark.parametrize("payload_bytes", [32, 3000])
def test_what_a_publisher_sends_before_it_closes_leaves_even_if_nothing_is_kept(
    admission: Admission, payload_bytes: int
) -> None:
    """Each publishes and closes in one turn, as commands do; the larger events fill a window."""
    writers = [
        Writing(peer=1, from_s=at, until_s=at + 0.01, every_s=0.5, events=3, payload_bytes=payload_bytes, closes=True)
        for at in (10, 14, 18)
    ]
    readers = [Reading(peer=2, from_s=5.0), Reading(peer=3, from_s=5.0)]
    topic = TopicPlan(name="t0", admission=admission, delivery="best_effort", writers=writers, readers=readers)
    simulation = Simulation(scenario(30.0, TopicConfig(window_bytes=4000), topic), 1)
    simulation.run()
    assert [sum(isinstance(each, Heard) for each in reader.log) for reader in simulation.readers] == [9, 9]
    taken = [peer.topics.flow_control.taken for peer in peers(simulation)]
    assert not any(taken), "the credit has gone back"


@both
@pytest.mark.parametrize("closing", [False, True], ids=["one publisher", "many that close"])
def test_publishers_of_a_topic_that_waits_leave_half_of_the_buffers_to_others(
    admission: Admission, closing: bool
) -> None:
    """A reader is stopped for longer than publishers wait before they look for the root again."""
    one = [Writing(peer=3, from_s=10, until_s=60.0, every_s=0.1, payload_bytes=1000)]
    many = [
        Writing(peer=3, from_s=at, until_s=at + 0.01, every_s=0.1, events=4, payload_bytes=1000, closes=True)
        for at in [10 + number * 0.4 for number in range(120)]
    ]
    readers = [Reading(peer=1, from_s=5.0), Reading(peer=2, from_s=5.0)]
    topic = TopicPlan(name="t0", admission=admission, slow="wait", writers=many if closing else one, readers=readers)
    config = TopicConfig(budget_bytes=BUDGET_BYTES, window_bytes=BUDGET_BYTES // 8, retain_bytes=4 * BUDGET_BYTES)
    stopped = faults.SlowReaders(at_s=12.0, peer="1", for_s=50.0)
    simulation = Simulation(scenario(90.0, config, topic, stopped), 1)
    used = list[int]()
    for at_s in range(20, 62, 3):
        simulation.world.at(
            at_s, lambda _: used.extend(peer.table.budget.used_bytes for peer in peers(simulation)), None
        )
    simulation.run()
    assert max(used) <= 0.55 * BUDGET_BYTES, "its share, and what is in transit"


def test_a_stream_whose_end_a_peer_has_forgotten_is_not_reported_lost_because_another_tells_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams end at about the same time, so that peers forget them in other orders, and then many find new parents."""
    monkeypatch.setattr(past_terms, "ENDS_TOLD_MAX", 3)
    monkeypatch.setattr(forgotten, "FORGOTTEN_MAX", 6)
    times = [8.0 + 4.0 * (number // 4) for number in range(20)]
    writers = [
        Writing(peer=number % 8, from_s=at, until_s=at + 0.6, every_s=0.3, closes=True)
        for number, at in enumerate(times)
    ]
    readers = [Reading(peer=peer, from_s=5.0) for peer in range(1, 8)]
    plan = Scenario(
        peers=8, duration_s=80.0, ids=[NEXT_TO_TOPIC], join_s=2.0, topology=Uniform(),
        config=Config(topics=TopicConfig(children_per_topic_max=2)),
        topics=[TopicPlan(name="t0", admission="source", writers=writers, readers=readers)],
        faults=[faults.Crash(at_s=40.0, peer="forwarders:t0", restart_s=2.0)], check_every=1000,
    )  # fmt: skip
    simulation = Simulation(plan, 5)
    simulation.run()
    assert all(isinstance(entry, Heard) for reader in simulation.readers for entry in reader.log)


@pytest.mark.parametrize(
    ("sides", "bound", "until_s"),
    [
        pytest.param(2, 2, 16.0, id="two sides, closed during the partition"),
        pytest.param(2, 2, 26.0, id="two sides, closed after it"),
        pytest.param(4, 1, 16.0, id="four sides"),
    ],
)
def test_sides_of_a_partition_that_had_more_sources_in_sum_than_may_begin_go_on_together(
    sides: int, bound: int, until_s: float
) -> None:
    """Their events come to all, or are reported lost. Then a source that waited gets its turn."""
    each = [range(first, first + bound + 1) for first in range(0, sides * (bound + 1), bound + 1)]
    sources = [peer for side in each for peer in side[:bound]]
    writers = [Writing(peer=peer, from_s=12.0, until_s=until_s, every_s=0.5, closes=True) for peer in sources]
    writers.append(Writing(peer=each[0][-1], from_s=until_s + 1.0, until_s=until_s + 2.0, closes=True))
    readers = [Reading(peer=side[-1], from_s=5.0) for side in each]
    plan = Scenario(
        peers=sides * (bound + 1), duration_s=until_s + 40.0, join_s=1.0, topology=Uniform(),
        config=Config(
            topics=TopicConfig(lease_s=8.0, past_terms_s=16.0, streams_max=bound, children_per_topic_max=2)
        ),
        topics=[TopicPlan(name="t0", admission="source", writers=writers, readers=readers)],
        faults=[faults.Partition(at_s=10.0, peers=[str(peer) for peer in side], for_s=10.0) for side in each[1:]],
    )  # fmt: skip
    simulation = Simulation(plan, 2)
    simulation.run()
    for writer in simulation.writers:
        assert writer.publisher.stable == len(writer.written) > 0, writer.name
    trees = [tree for peer in peers(simulation) for tree in peer.topics.trees.values()]
    assert trees
    assert not any(tree.sources.states for tree in trees)
