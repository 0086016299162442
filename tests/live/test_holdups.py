"""Acknowledgements that do not come: who holds them up is named, in the time that was allowed."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import quillcast
from quillcast import Config, LiveConfig, Node, NotAdmitted, NotStable, Publisher, Subscription
from quillcast.core.ids import ring_distance, short, topic_id
from quillcast.core.messages import Contact
from quillcast.live.edges.holdups import HoldUps
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings
from quillcast.protocol.topics.state.holders import UNKNOWN_PEER
from tests.live.test_adoption import eventually
from tests.live.test_node import run, take
from tests.protocol.topics.village import Reader, Village

pytestmark = pytest.mark.live

NAME = "sport/tennis"
SMALL = LiveConfig(publish_bytes=20_000)
SLOW = LiveConfig(publish_bytes=20_000, subscription_bytes=10_000)  # a reader that takes nothing is behind soon


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@asynccontextmanager
async def slow_reader(slow: str = "cut", **topics: float) -> AsyncIterator[tuple[Node, Node, Publisher, Subscription]]:
    """A root and publisher, a subscriber with a small queue, the publisher, and the subscription."""
    config = Config(topics=TopicConfig(**topics))
    async with Node(config=config, live=SMALL) as alice, Node(config=config, live=SLOW) as bob:
        names = (f"topic/{number}" for number in range(1000))
        here, there = alice.contact.node_id, bob.contact.node_id
        topic = next(name for name in names if _is_root(here, there, name))
        await alice.create(topic, slow=slow)
        subscription = bob.subscribe(topic)
        await subscription.started()
        yield alice, bob, alice.publisher(topic), subscription


def _is_root(me: bytes, other: bytes, name: str) -> bool:
    return ring_distance(me, topic_id(name)) < ring_distance(other, topic_id(name))


async def fill(publisher: Publisher, count: int = 30) -> None:
    """More than the reader's queue takes, in one block each."""
    for _ in range(count):
        await publisher.publish(bytes(1000), wait="root")


async def a_second_later() -> float:
    await asyncio.sleep(1.0)
    return time.monotonic()


def test_a_slow_subscriber_is_named_within_the_time_that_was_allowed() -> None:
    async def scenario() -> None:
        async with slow_reader() as (_, bob, publisher, _):
            await fill(publisher)
            allowed = asyncio.create_task(a_second_later())  # as late as any timer here
            with pytest.raises(NotStable) as error:
                await publisher.publish(b"last", wait="stable", timeout_s=1.0)
            now = time.monotonic()
            assert now - await allowed < 0.5
            assert (error.value.reason, error.value.peers) == ("late", (bob.contact.node_id.hex(),))
            assert re.match(r"\d+ events in '.*' are admitted, but not known to be held", str(error.value))
            assert f"{short(bob.contact.node_id)} ({bob.address}) does not have it yet" in str(error.value)

    run(scenario())


def test_what_was_dropped_before_it_was_stable_fails_at_once_and_for_good() -> None:
    async def scenario() -> None:
        async with slow_reader(retain_s=1.0) as (alice, _, publisher, subscription):
            await publisher.publish(b"first", wait="stable")
            await fill(publisher)
            with pytest.raises(NotStable, match="discarded before every subscriber held them") as error:
                await publisher.publish(b"dropped", wait="stable", timeout_s=30.0)
            assert error.value.reason == "dropped"
            assert 0 < publisher.dropped < publisher.sequence
            (shown,) = alice.status().topics
            assert shown.never_stable == publisher.dropped
            with pytest.raises(NotStable, match="Publish again what matters"):
                await publisher.acknowledged("stable")
            other = alice.publisher(publisher.topic)
            await take(subscription, publisher.sequence)
            await asyncio.gather(*(one.publish(b"later", wait="stable") for one in (publisher, other)))
            assert (other.stable, other.dropped) == (1, 0)
            assert publisher.stable == publisher.sequence - publisher.dropped
            await other.acknowledged("stable")
            with pytest.raises(NotStable):
                await publisher.acknowledged("stable")

    run(scenario())


def test_what_was_published_in_a_best_effort_session_fails_for_who_asks_later() -> None:
    async def scenario() -> None:
        async with Node() as alice:
            await alice.create("t")
            publisher, other = alice.publisher("t"), alice.publisher("t")

            async def change(delivery: str) -> None:
                await alice.change("t", delivery=delivery)
                await eventually(lambda: publisher.reliable == (delivery == "reliable"))

            await asyncio.gather(*(one.publish(b"reliable", wait="stable") for one in (publisher, other)))
            await change("best_effort")
            for number in range(6):
                await (publisher if number % 3 else other).publish(b"best effort")
                await publisher._batcher.sealed()
            late = alice.publisher("t")
            await late.publish(b"best effort")
            await late._batcher.sealed()  # else it may leave when the next session has begun
            await change("reliable")
            assert [(one.stable, one.dropped) for one in (publisher, other, late)] == [(1, 4), (1, 2), (0, 1)]
            for one in (publisher, other, late):
                with pytest.raises(NotStable, match="published while the topic was best_effort") as error:
                    await one.acknowledged("stable")
                assert error.value.reason == "dropped"
            for one in (publisher, other, late, newest := alice.publisher("t")):
                await one.publish(b"reliable again", wait="stable")
            assert [(one.stable, one.dropped) for one in (publisher, other, late)] == [(2, 4), (2, 2), (1, 1)]
            await newest.acknowledged("stable")

    run(scenario())


def test_a_call_that_waits_for_a_stable_event_fails_at_once_if_the_topic_is_best_effort_when_it_leaves() -> None:
    async def scenario() -> None:
        async with Node() as alice:
            publisher = alice.publisher("t")
            await publisher.publish(b"first", wait="stable")
            late = asyncio.create_task(publisher.publish(b"late", wait="stable", timeout_s=30.0))
            await asyncio.sleep(0)
            inner = publisher._batcher.inner
            assert (publisher.sequence, inner.next) == (2, 1), "it is in the open batch"
            inner.follow_session(1, reliable=False)
            with pytest.raises(NotStable, match="'t' is best_effort now") as error:
                await late
            assert error.value.reason == "dropped"

    run(scenario())


def test_a_publisher_that_waits_too_long_learns_which_subscribers_its_topic_waits_for() -> None:
    async def scenario() -> None:
        async with slow_reader("wait", budget_bytes=100_000, window_bytes=20_000) as (_, bob, publisher, subscription):
            with pytest.raises(NotAdmitted) as error:
                await fill(publisher, 1000)
            assert error.value.peers == (bob.contact.node_id.hex(),)
            waits = f"the topic waits for its slow subscribers (slow = wait): {short(bob.contact.node_id)} ("
            assert waits in str(error.value)
            while not publisher._batcher.stopped:
                await publisher.publish(bytes(1000))
            with pytest.raises(NotAdmitted, match="had no room for the event"):
                await publisher.publish(b"no room", wait="root", timeout_s=0.5)
            await take(subscription, publisher.sequence)
            await publisher.acknowledged("stable")

    run(scenario())


def test_a_root_that_was_paused_is_named_with_the_time_for_which_it_declares_nothing_stable() -> None:
    async def scenario() -> None:
        async with slow_reader() as (alice, _, publisher, _):
            await publisher.publish(b"first", wait="stable")
            root = alice._peer.topics.trees[publisher._batcher.inner.topic].root
            assert root is not None
            root.paused_until = alice._peer.host.now() + 20
            expected = (
                rf"the root {short(alice.contact.node_id)} \(this peer\) was paused a short time ago, and declares "
                r"nothing stable for up to \d+ s"
            )
            with pytest.raises(NotStable, match=expected) as error:
                await publisher.publish(b"second", wait="stable", timeout_s=0.6)
            assert error.value.peers == (alice.contact.node_id.hex(),)

    run(scenario())


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_healthy_root_is_not_blamed_for_waiting_for_the_subscribers_of_the_former_one(admission: str) -> None:
    """Nor is a peer in whose place an unknown one is waited for."""

    async def scenario() -> None:
        async with Node() as alice:
            await alice.create("t", slow="wait", admission=admission)
            publisher = alice.publisher("t")
            await publisher.publish(b"first", wait="root")
            root = alice._peer.topics.trees[publisher._batcher.inner.topic].root
            assert root is not None
            root.hold_until, root.awaited = alice._peer.host.now() + 20, {UNKNOWN_PEER: 0}
            expected = r"the topic changed its root \d+ s ago; subscribers of the former root have \d+ s to come back"
            with pytest.raises((NotAdmitted, NotStable), match=expected) as error:
                await publisher.publish(b"second", wait="stable", timeout_s=0.6)
            assert error.value.peers == ()
            assert "is gone" not in str(error.value)

    run(scenario())


def test_a_former_root_that_was_stopped_is_named_where_a_topic_waits_for_it() -> None:
    village = Village(4, config=Config(topics=TopicConfig(window_bytes=20_000, budget_bytes=100_000)))
    village.act(0, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda _: None))
    village.run(2)
    stopped = village.root(NAME)
    village.subscribe(stopped, NAME, Reader())
    writer = next(peer for peer in village.alive() if peer != stopped)
    publisher = village.publisher(writer, NAME)
    village.run(2)
    host = village.world.machines[stopped].host
    assert host is not None
    host.pause()
    village.run(10)
    while publisher.room() > 0:
        village.publish(writer, publisher, bytes(1000))
        village.run(0.1)
    pump = SimpleNamespace(call=lambda call, *given: village.act(writer, lambda _: call(*given)))
    with HoldUps(cast(Pump, pump), village.peers[writer], publisher, publisher.admitted + 1) as causes:
        village.run(0.5)
        contact = village.world.machines[stopped].contact
        assert causes.peers == [contact.node_id.hex()]
        waits = "the topic waits for its slow subscribers (slow = wait): the topic changed its root"
        assert causes.held_back().startswith(waits)
        assert f"subscribers of the former root {short(contact.node_id)} ({contact.address})" in causes.held_back()


def test_a_subscriber_that_is_stopped_while_the_root_restarts_is_named_as_one_that_may_have_a_lease() -> None:
    """The new root knows no lease of it: the former one did, which is the publisher's own peer in another life."""
    village = Village(4)
    village.subscribe(0, NAME, Reader())
    village.run(2)
    root = village.root(NAME)
    stopped = next(peer for peer in village.alive() if peer != root)
    village.subscribe(stopped, NAME, Reader())
    village.run(2)
    host, contact = village.world.machines[stopped].host, village.world.machines[stopped].contact
    assert host is not None
    host.pause()
    village.run(1)
    village.kill(root)
    village.run(1)
    village.world.start(village.world.machines[root])
    village.run(5)
    publisher = village.publisher(root, NAME)
    village.publish(root, publisher, b"x")
    village.run(5)
    pump = SimpleNamespace(call=lambda call, *given: village.act(root, lambda _: call(*given)))
    with HoldUps(cast(Pump, pump), village.peers[root], publisher, publisher.next) as causes:
        village.run(0.5)
        assert causes.peers == [contact.node_id.hex()]
        expected = f"{short(contact.node_id)} ({contact.address}) may be one of them, and does not answer"
        assert causes.lagging().endswith(f"s to come back; {expected}")


def test_a_root_that_is_lost_is_said_to_be() -> None:
    async def scenario() -> None:
        async with slow_reader() as (_, _, publisher, _):
            await publisher.publish(b"first", wait="stable")
            publisher._batcher.inner.root_lost()
            with pytest.raises(
                quillcast.NotJoined, match=r"was found within 0.6 s .*: the topic's root is lost or not found"
            ):
                await publisher.publish(b"second", wait="stable", timeout_s=0.6)

    run(scenario())


def test_who_does_not_let_a_peer_take_part_in_a_topic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bob = Contact(b"b" * 16, "127.0.0.1:1")
    monkeypatch.setattr(Peer, "awaited", lambda self, topic: [bob])
    monkeypatch.setattr(Peer, "subscribe", lambda *_, **choices: None)
    monkeypatch.setattr(Peer, "subscriptions", lambda *_: 0)

    async def scenario() -> None:
        async with Node(live=LiveConfig(join_timeout_s=0.01)) as alice:
            asking = alice._presence.settled(lambda *_: None, "t", {}, 0.01, None)
            for waiting in (asking, alice.subscribe("t").started()):
                with pytest.raises(quillcast.NotJoined) as error:
                    await waiting
                assert error.value.peers == (bob.node_id.hex(),)
                assert f"{short(bob.node_id)} (127.0.0.1:1) was asked and did not answer" in str(error.value)

    run(scenario())


def test_a_peer_that_has_just_become_root_is_named() -> None:
    """It was not known yet when the question was to be asked, or another one was asked that is gone."""

    async def scenario() -> None:
        async with slow_reader() as (alice, bob, publisher, _):
            await publisher.publish(b"first", wait="stable")
            inner, peer = publisher._batcher.inner, alice._peer
            for before in (None, bob.contact):
                inner.root = before
                with HoldUps(alice._pump, peer, inner, 1) as causes:
                    inner.root = alice.contact
                    assert causes.lagging().startswith(f"{short(peer.host.me)} (this peer) has just become ")
                    assert causes.peers == [peer.host.me.hex()]

    run(scenario())
