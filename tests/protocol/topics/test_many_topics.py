"""Ten thousand topics cost memory, and nothing else while nothing happens in them (docs/design.md, decision 4)."""

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import NamedTuple

from quillcast.core.messages import Contact, Message
from quillcast.live.edges.subscription import Inbox
from quillcast.protocol.wire import encode
from quillcast.sim.host import SimHost
from tests.protocol.topics.village import Reader, Village

PEERS = 4
LINKS = PEERS * (PEERS - 1) / 2


class Idle(NamedTuple):
    """What happens in a minute without any activity."""

    messages: int
    size_bytes: int
    steps: int


def village_with(topics: int) -> Village:
    """All peers subscribe to all topics, and everything has come to rest."""
    village = Village(PEERS)
    for number in range(topics):
        for peer in range(PEERS):
            village.subscribe(peer, f"many/{number}", Reader())
    village.run(20)
    return village


def idle(village: Village) -> Idle:
    """Count everything that is sent and done."""
    sent: list[int] = []
    send = SimHost.send

    def counted(self: SimHost, to: Contact, message: Message) -> None:
        sent.append(len(encode(message)))
        send(self, to, message)

    steps = village.world.steps
    SimHost.send = counted  # type: ignore[method-assign]
    try:
        village.run(60)
    finally:
        SimHost.send = send  # type: ignore[method-assign]
    return Idle(len(sent), sum(sent), village.world.steps - steps)


def test_links_at_rest_carry_the_same_for_one_topic_as_for_a_thousand() -> None:
    one, thousand = idle(village_with(1)), idle(village_with(1000))
    assert one.messages / LINKS / 60 > 1
    assert thousand.messages <= 1.1 * one.messages
    assert thousand.size_bytes <= 1.1 * one.size_bytes
    assert thousand.steps <= 1.25 * one.steps, "timers are steps, too; those of links come in other groups"


def test_housekeeping_skips_idle_topics() -> None:
    village = village_with(20)
    assert [len(village.peers[peer].topics.trees) for peer in village.alive()] == [20] * PEERS
    assert not any(village.peers[peer].topics.schedule.due for peer in village.alive())
    assert not any(village.peers[peer].recovery.suspects for peer in village.alive())


def test_a_topic_and_peer_take_less_than_two_kilobytes() -> None:
    """Peers of one process share a little that those of several do not; `benchmarks/links.py` has the whole.

    Measured in a process of its own, where nothing is left of other tests.
    """
    program = f"from {__name__} import bytes_per_topic_and_peer; print(bytes_per_topic_and_peer())"
    root = Path(__file__).parents[3]
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert float(run.stdout) < 2000


def bytes_per_topic_and_peer() -> float:
    topics = 300
    village = village_with(1)
    gc.collect()
    tracemalloc.start()
    for number in range(topics):
        for peer in range(PEERS):
            village.act(peer, lambda one, name=f"more/{number}": one.subscribe(name, Inbox(1 << 20)))
    village.run(20)
    village.world.journal.records.clear()
    gc.collect()
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used_bytes / topics / PEERS


def test_housekeeping_skips_publishers_that_wait_for_nothing() -> None:
    village = village_with(3)
    publishers = [village.publisher(1, f"many/{number}") for number in range(3)]
    village.run(5)
    for publisher in publishers:
        village.publish(1, publisher, b"one")
    assert len(village.peers[1].topics.publishing.due) == 3
    village.run(60)
    assert all(publisher.stable == 1 for publisher in publishers)
    assert not village.peers[1].topics.publishing.due
    assert not any(village.peers[peer].topics.schedule.due for peer in village.alive())


def test_equal_link_reports_are_one_object() -> None:
    """All topics of a root in which nothing happened say the same on a link, and it is kept once."""
    village = village_with(12)
    nodes = [village.world.machines[peer].node_id for peer in village.alive()]
    streams = [village.peers[peer].streams for peer in village.alive()]
    reports = [report for each in streams for node in nodes for report in each.telling(node).values()]
    assert len(reports) == 2 * 12 * (PEERS - 1), "parent and child tell each other of each topic"
    assert len({id(report) for report in reports}) == len(set(reports)) < len(reports) / 2


def test_what_neighbours_tell_of_a_topic_is_kept_under_the_id_that_is_there_already() -> None:
    """Their messages bring a copy of it each time."""
    village = village_with(12)
    nodes = [village.world.machines[peer].node_id for peer in village.alive()]
    for peer in village.alive():
        streams, trees = village.peers[peer].streams, village.peers[peer].topics.trees
        told = [topic for node in nodes for topic in (*streams.told(node), *streams.telling(node))]
        assert len(told) >= 2 * 12
        assert all(topic is trees[topic].topic for topic in told)
