"""Publishers of a node that share a way into a topic: one batch, one line of blocks, and a line of sequences each."""

import asyncio
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

import quillcast
from quillcast import Event, LiveConfig, Node
from quillcast.core.errors import EventTooLarge
from quillcast.core.ids import ring_distance, topic_id
from quillcast.live.edges.batcher import LONE_S, Batch
from quillcast.live.edges.publisher import Publisher
from quillcast.protocol.topics.config import TopicConfig
from tests.live.test_node import QUICK, pair, refused, run, take

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def by_publisher(events: list[Event]) -> dict[bytes, list[Event]]:
    found: dict[bytes, list[Event]] = {}
    for event in events:
        found.setdefault(event.publisher, []).append(event)
    return found


def test_many_publishers_each_keep_a_line_of_sequences_and_their_order() -> None:
    async def scenario() -> None:
        random = Random(1)
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            publishers = [alice.publisher("t", timed=number == 7) for number in range(20)]
            for number in range(3000):
                publisher = random.choice(publishers)
                key = b"k" if random.random() < 0.01 else None
                attributes = {"n": number} if random.random() < 0.01 else None
                await publisher.publish(b"%d" % number, key, attributes)
                if random.random() < 0.02:
                    await asyncio.sleep(0)
            events = await take(subscription, 3000)
            assert [event.payload for event in events] == [b"%d" % number for number in range(3000)]
            assert all(event.attributes in (None, {"n": int(event.payload)}) for event in events)
            for publisher in publishers:
                own = by_publisher(events)[publisher.id]
                assert [event.sequence for event in own] == list(range(publisher.sequence))

    run(scenario())


def test_events_of_many_publishers_in_one_turn_are_one_block() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            topic = rooted_at(bob, alice)
            subscription = bob.subscribe(topic)
            await subscription.started()
            publishers = [alice.publisher(topic) for _ in range(100)]
            await publishers[0].publish(b"first", wait="stable")
            for publisher in publishers:
                await publisher.publish(b"x")
            batcher = publishers[0]._batcher
            batcher.flush()
            assert all(publisher.payloads == [] for publisher in publishers), "what was sealed is held once"
            (block,) = batcher.inner.retained
            assert block.count == len(block.runs()) == 100
            assert len(await take(subscription, 101)) == 101
            (shown,) = alice._inspector.topics()
            assert shown.publishers == 100

    run(scenario())


def test_blocks_of_a_single_publisher_name_only_that_one() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            publisher = node.publisher("t")
            for _ in range(3):
                await publisher.publish(b"x")
            await asyncio.sleep(0)
            inner = publisher._batcher.inner
            assert [block.shared for block in inner.retained] == [False]
            other = node.publisher("t")
            await other.publish(b"y")
            other.close()
            await publisher.publish(b"z", wait="root")
            assert [block.shared for block in inner.retained][1:] == [True, True], "its sequences are its own by now"
            assert (publisher.sequence, other.sequence) == (4, 1)

    run(scenario())


def test_a_lone_event_leaves_in_the_call_and_what_comes_close_behind_waits_for_the_turn_to_end() -> None:
    clock = SimpleNamespace(now=1.0)

    async def scenario() -> None:
        async with pair() as (alice, bob):
            alice._pump.monotonic = lambda: clock.now
            topic = rooted_at(bob, alice)
            subscription = bob.subscribe(topic)
            await subscription.started()
            first, second = alice.publisher(topic), alice.publisher(topic)
            await first.publish(b"0", wait="stable")
            inner = first._batcher.inner
            await first.publish(b"1")
            assert inner.next == 1, "one turn with one event is no rule yet"
            await asyncio.sleep(0)
            assert (inner.next, inner.sent) == (2, 2)
            await second.publish(b"2")
            assert (inner.next, inner.sent) == (3, 3)
            clock.now += 2 * LONE_S
            await second.publish(b"3")
            assert (inner.next, inner.sent) == (4, 4), "the one before left long ago"
            clock.now += LONE_S / 2
            await first.publish(b"4")
            clock.now += 2 * LONE_S
            await first.publish(b"5", b"key")
            await second.publish(b"6")
            assert inner.next == 4
            await asyncio.sleep(0)
            assert (inner.next, len(inner.retained)) == (7, 4)
            await first.publish(b"7")
            assert inner.next == 7, "the turn before brought more than one"
            events = await take(subscription, 8)
            assert [event.payload for event in events] == [b"%d" % number for number in range(8)]
            assert [event.sequence for event in events] == [0, 1, 0, 1, 2, 3, 2, 4]

    run(scenario())


def rooted_at(node: Node, other: Node) -> str:
    """A topic whose root is the one and not the other."""
    me, it = node.contact.node_id, other.contact.node_id
    names = (f"topic/{number}" for number in range(1000))
    return next(name for name in names if ring_distance(me, topic_id(name)) < ring_distance(it, topic_id(name)))


def test_each_publisher_learns_about_its_own_events() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            topic = rooted_at(bob, alice)
            subscription = bob.subscribe(topic)
            await subscription.started()
            first, second = alice.publisher(topic), alice.publisher(topic)
            await first.publish(b"1", wait="stable")
            await asyncio.gather(*(one.publish(b"2", wait="root") for one in (first, second)))
            assert (first.admitted, second.admitted) == (2, 1)
            await second.acknowledged("stable")
            assert (first.stable, second.stable) == (2, 1)
            assert first.admitted == first.sequence == 2
            await second.publish(b"3")
            second._batcher.flush()
            assert (second.sequence, second.admitted, second.stable) == (2, 1, 1)
            assert (first.sequence, first.admitted, first.stable) == (2, 2, 2)

    run(scenario())


def test_closing_a_publisher_does_not_affect_the_others() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            first, second = alice.publisher("t"), alice.publisher("t")
            for publisher in (first, second):
                await publisher.publish(b"x")
            first.close()
            text = await refused(quillcast.LocalError, first.publish(b"y"))
            assert "is closed" in text
            await second.publish(b"y", wait="stable")
            second.close()
            assert not alice._publishing.batchers
            third = alice.publisher("t")
            await third.publish(b"z")
            events = await take(subscription, 4)
            assert [event.payload for event in events] == [b"x", b"x", b"y", b"z"]
            assert [event.sequence for event in events] == [0, 0, 1, 0]
            assert len({event.publisher for event in events}) == 3

    run(scenario())


def test_a_lowered_limit_fails_only_publishers_of_larger_events() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            subscription = node.subscribe("t")
            await subscription.started()
            small, large = node.publisher("t"), node.publisher("t")
            await small.publish(b"first", wait="root")
            await node.change("t", event_bytes_max=1000)
            batcher = large._batcher
            batcher.limit = 1 << 20  # as it was before the word came
            for size in (2000, 2000, 1):
                await large.publish(bytes(size))
                await small.publish(b"x")
            await small.acknowledged("root")
            assert [event.payload for event in await take(subscription, 4)] == [b"first", b"x", b"x", b"x"]
            assert (small.sequence, large.sequence) == (4, 0)
            with pytest.raises(EventTooLarge, match="2000 bytes is over the limit of 1000"):
                await large.acknowledged("root")
            with pytest.raises(EventTooLarge):
                await large.publish(b"small, but too late")
            await small.publish(b"y", wait="root")

    run(scenario())


def test_a_topic_that_fails_fails_all_its_publishers_and_a_new_one_tries_again() -> None:
    async def scenario() -> None:
        owner, stranger = quillcast.Credentials.new(), quillcast.Credentials.new()
        async with pair() as (alice, bob):
            await alice.create("mine", credentials=owner, publishers=[owner.principal])
            publishers = [bob.publisher("mine", credentials=stranger) for _ in range(2)]
            for publisher in publishers:
                await refused(quillcast.AccessDenied, publisher.publish(b"x"))
            again = bob.publisher("mine", credentials=stranger)
            await refused(quillcast.AccessDenied, again.publish(b"x"))
            welcome = bob.publisher("mine", credentials=owner)
            await welcome.publish(b"x", wait="root")
            assert welcome._batcher is not again._batcher, "who publishes on another's behalf shares nothing with it"

    run(scenario())


def test_nothing_is_kept_of_events_that_a_topic_did_not_take() -> None:
    async def scenario() -> None:
        owner = quillcast.Credentials.new()
        async with pair() as (alice, bob):
            await alice.create("mine", credentials=owner, publishers=[owner.principal])
            for _ in range(3):
                await refused(quillcast.AccessDenied, bob.publish("mine", b"x"))
            assert len(bob._publishing._running) == len(bob._publishing.batchers) == 1, "the last one"

    run(scenario())


def test_waiting_publishers_continue_together_when_there_is_room() -> None:
    async def scenario() -> None:
        config = quillcast.Config(topics=TopicConfig(window_bytes=4000))
        async with pair(config) as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()

            async def publish(publisher: Publisher) -> None:
                for number in range(100):
                    await publisher.publish(b"%d" % number)

            publishers = [alice.publisher("t") for _ in range(30)]
            await asyncio.gather(*map(publish, publishers))
            owned = by_publisher(await take(subscription, 3000))
            for publisher in publishers:
                assert [int(event.payload) for event in owned[publisher.id]] == list(range(100))

    run(scenario())


def test_calls_that_wait_for_room_are_served_in_the_order_in_which_they_were_made() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            first, second = alice.publisher("t"), alice.publisher("t")
            await first.publish(b"begin", wait="root")
            batcher = first._batcher
            batcher.pause()
            calls = [
                asyncio.create_task((first if number % 3 else second).publish(b"%d" % number)) for number in range(10)
            ]
            too_long = asyncio.create_task(first.publish(b"too long", wait="root", timeout_s=0.01))
            calls += [asyncio.create_task(first.publish(b"%d" % number, b"key")) for number in range(10, 20)]
            await refused(quillcast.NotAdmitted, too_long)
            for number in (0, 4):
                calls[number].cancel()
                assert (await asyncio.gather(calls[number], return_exceptions=True))[0] is not None
            batcher.go_on()
            calls[1].cancel()  # its turn has come, and it does not know yet
            assert not second.publish_nowait(b"overtakes")
            await refused(EventTooLarge, first.publish(bytes(batcher.limit + 1)))
            await first.publish(b"20")
            await asyncio.gather(*calls, return_exceptions=True)
            assert not batcher.stopped, "nobody waits any more"
            assert second.publish_nowait(b"21")
            events = await take(subscription, 20)
            assert [event.payload for event in events[1:]] == [b"%d" % n for n in range(22) if n not in (0, 1, 4)]

    run(scenario())


def test_calls_are_served_in_order_where_there_is_room_for_a_few_at_a_time() -> None:
    async def scenario() -> None:
        config = quillcast.Config(topics=TopicConfig(window_bytes=4000))
        random = Random(1)
        async with pair(config, live=LiveConfig(publish_bytes=2000)) as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            publisher = alice.publisher("t")
            async with asyncio.TaskGroup() as calls:
                for number in range(1000):
                    payload = b"%d " % number + bytes(random.choice((0, 0, 0, 900)))
                    calls.create_task(publisher.publish(payload))
                    if random.random() < 0.1:
                        await asyncio.sleep(random.choice((0.0, 0.0, 0.001)))
            events = await take(subscription, 1000)
            assert [int(event.payload.split()[0]) for event in events] == list(range(1000))

    run(scenario())


def test_calls_that_wait_keep_their_order_when_their_publisher_moves_to_another_peer() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            publisher = alice.publisher("t")
            await publisher.publish(b"begin", wait="stable")
            batcher = publisher._batcher
            batcher.pause()
            calls = [asyncio.create_task(publisher.publish(b"%d" % number)) for number in range(10)]
            await asyncio.sleep(0)
            successor = alice._publishing._make_batcher("", "t", None)
            successor.pause()
            batcher.move_to(successor)
            await asyncio.sleep(0)
            successor.go_on()
            await publisher.publish(b"10")
            await asyncio.gather(*calls)
            events = await take(subscription, 12)
            assert [event.payload for event in events[1:]] == [b"%d" % number for number in range(11)]

    run(scenario())


def test_closing_a_publisher_fails_calls_that_wait_for_room() -> None:
    async def scenario() -> None:
        async with Node(config=QUICK) as node:
            first, second = node.publisher("t"), node.publisher("t")
            await first.publish(b"begin", wait="root")
            first._batcher.pause()
            calls = [asyncio.create_task(publisher.publish(b"x")) for publisher in (first, second)]
            await asyncio.sleep(0)
            first.close()
            await refused(quillcast.LocalError, calls[0])
            second._batcher.go_on()
            await calls[1]

    run(scenario())


class Somebody:
    """A publisher that nobody opened."""


def test_a_batch_without_some_publishers_keeps_the_others_columns() -> None:
    batch, (first, second) = Batch(1000), (Somebody(), Somebody())
    for number, writer in enumerate((first, second, first, second)):
        if number >= 2:
            batch.add_extras(b"k%d" % number, None, timed=False)
        batch.runs.append((writer, len(batch.payloads)))  # type: ignore[arg-type]
        batch.payloads.append(b"%d" % number)
    kept = batch.without({first: None})  # type: ignore[dict-item]
    assert (kept.payloads, kept.keys, kept.attributes) == ([b"1", b"3"], [b"", b"k3"], None)
    assert kept.spans() == [(second, 0, 1), (second, 1, 2)]
