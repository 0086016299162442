"""How far a subscription is behind, as `status` and `tree` tell: until its application is done with an event."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast import Event, Node
from quillcast.core.status.topics import SubscriberLag
from tests.live.test_node import QUICK, run

pytestmark = pytest.mark.live

COUNT = 12


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def told(node: Node) -> list[SubscriberLag]:
    """What `status` tells of the node's subscriptions."""
    return [lag for topic in node.status().topics for lag in topic.lags]


async def seen(node: Node) -> SubscriberLag:
    """The one subscription in the tree of the topic."""
    [lag] = (await node.tree("t")).lags
    return lag


async def publish(node: Node, count: int = COUNT) -> None:
    for number in range(count):
        await node.publish("t", b"%d" % number)
    await node.publish("t", b"last", wait="root")


async def until(condition: Callable[[], Any]) -> None:
    """Let the event loop run until something holds."""
    while not condition():  # noqa: ASYNC110 - what others do has no event to wait for
        await asyncio.sleep(0)


def test_events_that_a_handler_has_not_done_with_count_as_behind_and_the_one_it_is_at_too() -> None:
    async def scenario() -> None:
        gate = asyncio.Semaphore(0)
        at: list[bytes] = []

        async def slow(event: Event) -> None:
            at.append(event.payload)
            await gate.acquire()

        async with Node(config=QUICK) as alice, Node(config=QUICK) as bob:
            await alice.subscribe("t", handler=slow, name="archive").started()
            await publish(bob)
            await until(lambda: at)
            [reader] = told(alice)
            assert (reader.name, reader.behind_events) == ("archive", COUNT + 1)
            assert (await seen(bob)).behind_events == COUNT + 1
            for _ in range(4):
                gate.release()
            await until(lambda: len(at) == 5)
            assert (await seen(bob)).behind_events == COUNT - 3
            [before] = told(alice)
            await asyncio.sleep(0.05)  # time passes, and nothing else
            [after] = told(alice)
            assert round(1000 * (after.stalled_s - before.stalled_s)) >= 49  # both are told in whole milliseconds
            assert after.behind_s >= after.stalled_s
            for _ in range(COUNT):
                gate.release()
            await until(lambda: told(alice)[0].behind_events == 0)
            [reader] = told(alice)
            assert (reader.behind_s, reader.stalled_s, reader.waiting_bytes) == (0, 0, 0)

    run(scenario())


@pytest.mark.parametrize("options", [{}, {"only_payloads": True}], ids=str)
def test_a_reader_is_behind_by_what_it_did_not_come_for(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as alice, Node(config=QUICK) as bob:
            subscription: quillcast.Subscription[Any] = alice.subscribe("t", **options)
            await subscription.started()
            await publish(bob)
            await until(lambda: told(alice)[0].waiting_events == COUNT + 1)
            await anext(subscription)
            await anext(subscription)
            [reader] = told(alice)
            assert reader.behind_events == COUNT  # it may still be at the second
            await subscription.batch()
            while told(alice)[0].behind_events > 1:
                await subscription.batch()
            waiting = asyncio.ensure_future(anext(subscription))
            await until(lambda: told(alice)[0].behind_events == 0)
            waiting.cancel()

    run(scenario())


def test_several_subscriptions_to_a_topic_are_distinguished() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as alice, Node(config=QUICK) as bob:
            names = ["", "archive", "screen"]
            subscriptions = [alice.subscribe("t", name=name) for name in names]
            for subscription in subscriptions:
                await subscription.started()
            await publish(bob)
            await until(lambda: all(reader.waiting_events == COUNT + 1 for reader in told(alice)))
            reading = asyncio.ensure_future(_all(subscriptions[1]))
            await until(lambda: any(reader.behind_events == 0 for reader in told(alice)))
            behind = {reader.name: reader.behind_events for reader in told(alice)}
            assert behind == {"": COUNT + 1, "archive": 0, "screen": COUNT + 1}
            assert [reader.name for reader in told(alice)] == ["", "screen", "archive"]  # the furthest behind first
            reading.cancel()

    run(scenario())


async def _all(subscription: quillcast.Subscription[Event]) -> None:
    async for _ in subscription:
        pass


def test_a_topic_has_had_the_events_of_its_former_roots_too() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as alice:
            subscription = alice.subscribe("t")
            await subscription.started()
            async with Node(config=QUICK) as bob, Node(config=QUICK) as carol:
                for node in (alice, bob, carol):
                    await publish(node)
            async with Node(config=QUICK) as dave:
                await dave.publish("t", b"one more", wait="stable")
                tree = await dave.tree("t")
                assert tree.events == 3 * (COUNT + 1) + 1
            [topic] = alice.status().topics
            assert topic.events == 3 * (COUNT + 1) + 1

    run(scenario())


@pytest.mark.parametrize("name", [3, None, "two\nlines", "x" * 65], ids=str)
def test_a_name_that_fits_into_no_column_is_refused(name: Any) -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            with pytest.raises(quillcast.LocalError, match="name"):
                node.subscribe("t", name=name)
            assert node.status().topics == ()

    run(scenario())
