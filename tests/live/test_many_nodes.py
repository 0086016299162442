"""Many nodes in one process: a busy event loop, and links made by the hundred, often from both sides at once."""

import asyncio
import gc
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast import Config, Event, Node
from quillcast.protocol.topics.config import TopicConfig

pytestmark = pytest.mark.live

LEASE_S = 3600.0  # nothing here should wait for one, however long the machine takes
SETTINGS = Config(
    topics=TopicConfig(leave_s=0.5, lease_s=LEASE_S)
)  # all leave at once, and wait for each other so long
NODES, TOPICS, SUBSCRIBERS, EVENTS = 30, 60, 3, 5


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_thirty_nodes_of_one_process_start_publish_and_leave() -> None:
    errors: list[dict[str, Any]] = []
    before = sockets()

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(LEASE_S / 20):
            await scenario()

    quillcast.run(bounded())
    assert errors == []
    assert sockets() - before == set(), "who holds the number of a descriptor that is closed may close another's"


async def scenario() -> None:
    nodes = [Node(network="many", config=SETTINGS) for _ in range(NODES)]
    for first in range(0, NODES, 10):
        await asyncio.gather(*(node.start() for node in nodes[first : first + 10]))
    got: Counter[tuple[int, str]] = Counter()
    whole = asyncio.Event()

    def note(number: int, event: Event) -> None:
        got[number, event.topic] += 1
        if len(got) == TOPICS * SUBSCRIBERS and min(got.values()) == EVENTS:
            whole.set()

    subscriptions = [
        nodes[number].subscribe(f"t/{topic}", handler=lambda event, number=number: note(number, event))
        for topic in range(TOPICS)
        for number in subscribers(topic)
    ]
    await asyncio.gather(*(subscription.started() for subscription in subscriptions))
    await asyncio.gather(*(publish(nodes[topic * 13 % NODES], f"t/{topic}") for topic in range(TOPICS)))
    await whole.wait()
    traffic = [node.traffic() for node in nodes]
    assert max(each.links for each in traffic) < NODES
    assert [each for each in traffic if each.counters.links_broken] == []
    await asyncio.gather(*(node.leave() for node in nodes))


async def publish(node: Node, topic: str) -> None:
    for number in range(EVENTS):
        await node.publish(topic, b"%d" % number, wait="root" if number < EVENTS - 1 else "stable")


def subscribers(topic: int) -> list[int]:
    """The numbers of the nodes that subscribe to a topic."""
    return [(topic * 7 + number * 11) % NODES for number in range(SUBSCRIBERS)]


def sockets() -> set[int]:
    """Descriptors that socket objects of this process take for theirs."""
    gc.collect()
    return {one.fileno() for one in gc.get_objects() if issubclass(type(one), socket.socket) and one.fileno() >= 0}
