"""Those who read a subscription: several at once, those that stop in the midst, handlers that fail or end things."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast import Config, Event, Node, Publisher, Subscription
from quillcast.core.bundle import Block
from quillcast.core.envelope import NO_TERM, Position
from quillcast.protocol.topics.config import TopicConfig
from tests.cli.commands import topic_near
from tests.live.test_node import QUICK, run, take

pytestmark = pytest.mark.live

BLOCKS, EVENTS = 6, 5  # so many blocks of so many events
ALL = [b"%d" % number for number in range(BLOCKS * EVENTS)]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@asynccontextmanager
async def reading(**options: Any) -> AsyncIterator[tuple[Node, Publisher, Subscription[Event]]]:
    async with Node(config=QUICK) as node:
        subscription = node.subscribe("t", **options)
        await subscription.started()
        yield node, node.publisher("t"), subscription


async def publish(publisher: Publisher) -> None:
    """All of them, in blocks."""
    for payload in ALL:
        await publisher.publish(payload)
        if publisher.sequence % EVENTS == 0:
            await publisher.acknowledged("root")


def test_one_event_may_be_asked_for_while_all_are_walked_through() -> None:
    async def scenario() -> None:
        async with reading() as (_, publisher, subscription):
            await publish(publisher)
            got = []
            async for event in subscription:  # a head, and a body
                got += [event.payload, (await anext(subscription)).payload]
                if len(got) == len(ALL):
                    break
            assert got == ALL

    run(scenario())


def test_concurrent_readers_share_the_events_and_lose_none() -> None:
    async def scenario() -> None:
        got: list[bytes] = []
        done = asyncio.Event()

        def note(payload: bytes) -> None:
            got.append(payload)
            if len(got) == len(ALL):
                done.set()

        async with reading() as (_, publisher, subscription):

            async def one_by_one() -> None:
                while True:
                    note((await anext(subscription)).payload)

            async def all_of_them() -> None:
                async for event in subscription:
                    note(event.payload)
                    await asyncio.sleep(0)

            async def in_batches() -> None:
                while True:
                    for event in await subscription.batch():
                        note(event.payload)
                    await asyncio.sleep(0)

            ways = [one_by_one, one_by_one, one_by_one, all_of_them, all_of_them, in_batches]
            readers = [asyncio.ensure_future(way()) for way in ways]
            await publish(publisher)
            await done.wait()
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        assert sorted(got, key=int) == ALL

    run(scenario())


def test_closing_a_subscription_in_a_loop_ends_it() -> None:
    async def scenario() -> None:
        async with reading() as (_, publisher, subscription):
            await publish(publisher)
            got = []
            async for event in subscription:
                got.append(event.payload)
                if len(got) == 2:
                    await subscription.close()
            assert got == ALL[:2]

    run(scenario())


def test_a_subscription_is_a_context_that_closes_it() -> None:
    async def scenario() -> None:
        async with reading() as (node, publisher, subscription):
            async with subscription as events:
                await publish(publisher)
                assert (await anext(events)).payload == ALL[0]
            assert [event async for event in subscription] == []
            assert node.status().topics[0].subscriptions == 0

    run(scenario())


async def cancelled_inside(payload: bytes) -> None:
    """Other code may cancel what a handler awaits."""
    if payload in ALL[1:3]:
        waiting = asyncio.ensure_future(asyncio.sleep(60))
        waiting.cancel()
        await waiting


def raising(payload: bytes) -> None:
    if payload in ALL[1:3]:
        raise asyncio.CancelledError


@pytest.mark.parametrize("fails", [cancelled_inside, raising])
def test_a_handler_that_fails_by_a_cancellation_gets_the_next_event(fails: Any) -> None:
    async def scenario() -> None:
        got: list[bytes] = []
        done, told = asyncio.Event(), []

        def handler(payload: bytes) -> Any:
            got.append(payload)
            if len(got) == len(ALL):
                done.set()
            return fails(payload)

        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        async with reading(only_payloads=True, handler=handler) as (_, publisher, _):
            await publish(publisher)
            await done.wait()
        assert got == ALL
        assert ["failed at b'1'" in told[0], "failed at b'2'" in told[1]] == [True, True]
        assert len(told) == 2

    run(scenario())


def test_a_handler_may_have_its_node_leave() -> None:
    async def scenario() -> None:
        async with Node() as node:
            left = asyncio.Event()

            async def handler(_: Event) -> None:
                await node.leave()
                left.set()

            await node.subscribe("orders", handler=handler).started()
            await node.publish("orders", b"stop")
            await left.wait()
            with pytest.raises(quillcast.LocalError, match="is closed"):
                await node.publish("orders", b"go on")

    run(scenario())


def test_leaving_ends_waits_for_acknowledgements() -> None:
    async def scenario() -> None:
        little = quillcast.LiveConfig(subscription_bytes=1 << 16)  # so that not all is taken before the node has left
        async with Node(live=little) as other, Node() as node:
            await other.create("slow", slow="wait")
            reader = other.subscribe("slow")  # which reads nothing
            await reader.started()
            publisher = node.publisher("slow")
            payload = bytes(100_000)
            await publisher.publish(payload, wait="root")
            publishing = [asyncio.ensure_future(publisher.publish(payload, wait="stable")) for _ in range(100)]
            await asyncio.sleep(0)
            await node.leave()
            outcomes = await asyncio.gather(*publishing, return_exceptions=True)
            waited = [outcome for outcome in outcomes if isinstance(outcome, quillcast.NotJoined)]
            refused = [outcome for outcome in outcomes if isinstance(outcome, quillcast.LocalError)]
            assert "the node has left" in str(waited[0])
            assert all("is closed" in str(outcome) for outcome in refused)
            assert len(waited) + len(refused) == len(outcomes)

    run(scenario())


def test_events_that_a_leaving_node_could_not_get_admitted_are_reported() -> None:
    async def scenario() -> None:
        hasty, problems = Config(topics=TopicConfig(leave_s=0.2)), list[str]()
        async with Node(config=hasty) as other:
            slow = topic_near(other.contact.node_id.hex())  # whose root is not the one that leaves
            await other.create(slow, slow="wait")
            reader = other.subscribe(slow)  # which reads nothing
            await reader.started()
            node = Node(config=hasty, on_problem=problems.append)
            await node.start()
            publisher = node.publisher(slow)
            payload, full = bytes(100_000), False
            while not full:
                try:
                    await asyncio.wait_for(publisher.publish(payload), 1.0)
                except TimeoutError:
                    full = True
            lacking = publisher.sequence - publisher.admitted
            await node.leave()
            await asyncio.sleep(0)
            assert f"left with {lacking} events that no root had admitted: they are lost" in problems

    run(scenario())


def test_events_that_may_have_been_reported_lost_are_marked_for_that_subscription_only() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            doubting, other = node.subscribe("t"), node.subscribe("t")
            payloads = node.subscribe("t", only_payloads=True)
            await payloads.started()
            block = Block.seal(b"p" * 16, 5, (b"5", b"6"), time_ns=1)
            position = Position(NO_TERM, 9)
            for subscription in (doubting, other, payloads):
                subscription._inbox.deliver(block, 0, 1, position, recovered=subscription is not other)
                subscription._inbox.deliver(block, 1, 2, position)
            assert [(event.sequence, event.recovered) for event in await take(doubting, 2)] == [(5, True), (6, False)]
            assert [(event.sequence, event.recovered) for event in await take(other, 2)] == [(5, False), (6, False)]
            assert await take(payloads, 2) == [b"5", b"6"]

    run(scenario())
