"""The public API, with all nodes in this process, over real sockets."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import pytest

import quillcast
from quillcast import Config, Event, LiveConfig, Node
from quillcast.core.status.base import PeerContact
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.topics import TopicStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import PeerQuestion, StatusQuestion, TopicsQuestion, TreeQuestion
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.transport import addresses
from quillcast.protocol.topics.config import TopicConfig

pytestmark = pytest.mark.live

T = TypeVar("T")

QUICK = Config()
REFUSED_NAME = r"is not a topic name|is a pattern|name is text such as"
NO_AUTO = Config(topics=TopicConfig(auto_create=False))


class Nonsense(PeerQuestion, frozen=True, tag="nonsense"):
    """What no peer answers."""


class TreeWithoutTopic(PeerQuestion, frozen=True, tag="tree"):
    """A malformed question."""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    quillcast.run(bounded())


@asynccontextmanager
async def pair(config: Config = QUICK, **options: Any) -> AsyncIterator[tuple[Node, Node]]:
    async with Node(config=config, **options) as alice, Node(config=config, **options) as bob:
        yield alice, bob


async def take(subscription: quillcast.Subscription[T], count: int) -> list[T]:
    items = []
    async for item in subscription:
        items.append(item)
        if len(items) == count:
            break
    return items


# --- publishing and subscribing


def test_an_event_arrives_with_all_it_was_published_with() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("sport/tennis")
            await subscription.started()
            await alice.publish("sport/tennis", b"plain")
            await alice.publish("sport/tennis", b"rich", key=b"court 1", attributes={"set": 3, "players": ["a", "b"]})
            plain, rich = await take(subscription, 2)
            assert (plain.topic, plain.payload, plain.key, plain.attributes) == ("sport/tennis", b"plain", None, None)
            assert (rich.payload, rich.key) == (b"rich", b"court 1")
            assert rich.attributes == {"set": 3, "players": ["a", "b"]}
            assert (plain.sequence, rich.sequence, plain.publisher) == (0, 1, rich.publisher)

    run(scenario())


def test_a_publisher_hears_itself_and_a_handler_is_called_in_order() -> None:
    async def scenario() -> None:
        async with Node() as alone:
            sync_got: list[bytes] = []
            async_got: list[bytes] = []
            done = asyncio.Event()

            async def handler(event: Event) -> None:
                await asyncio.sleep(0)
                async_got.append(event.payload)
                if len(async_got) == 1000:
                    done.set()

            await alone.subscribe("here", handler=lambda event: sync_got.append(event.payload)).started()
            await alone.subscribe("here", handler=handler).started()
            for number in range(1000):
                await alone.publish("here", b"%d" % number)
            await done.wait()
            assert sync_got == async_got == [b"%d" % number for number in range(1000)]

    run(scenario())


def test_payloads_alone_come_as_bytes_to_loops_handlers_and_in_batches() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            handled: list[bytes] = []
            done = asyncio.Event()

            def handler(payload: bytes) -> None:
                handled.append(payload)
                if len(handled) == 1000:
                    done.set()

            looped, batched = (bob.subscribe("t", only_payloads=True) for _ in range(2))
            called = bob.subscribe("t", only_payloads=True, handler=handler)
            with_attributes = bob.subscribe("t")
            for subscription in (looped, batched, called, with_attributes):
                await subscription.started()
            payloads = [b"%d" % number for number in range(1000)]
            for payload in payloads:
                await alice.publish("t", payload, attributes={"n": 1} if payload.endswith(b"7") else None)
            assert await take(looped, 1000) == payloads
            got = await batched.batch()
            while len(got) < 1000:
                got += await batched.batch()
            await done.wait()
            assert got == handled == payloads
            assert [event.payload for event in await take(with_attributes, 1000)] == payloads

    run(scenario())


def test_subscriptions_of_a_node_to_a_topic_share_its_events_but_for_those_with_attributes() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscriptions = [bob.subscribe("t") for _ in range(3)]
            for subscription in subscriptions:
                await subscription.started()
            await alice.publish("t", b"plain")
            await alice.publish("t", b"again", wait="root")
            got = [await take(subscription, 2) for subscription in subscriptions]
            assert all(mine is other for mine, other in zip(got[0], got[1], strict=True))
            await alice.publish("t", b"rich", attributes={"n": 1})
            first, second, third = [(await take(subscription, 1))[0] for subscription in subscriptions]
            assert first == second == third
            assert first.attributes is not second.attributes
            await subscriptions[0].close()
            await subscriptions[1].close()
            await alice.publish("t", b"last")
            assert [event.payload for event in await take(subscriptions[2], 1)] == [b"last"]

    run(scenario())


def test_leaving_a_loop_and_resuming_it_loses_nothing() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            for number in range(100):
                await alice.publish("t", b"%d" % number)
            events = [*await take(subscription, 3), *await take(subscription, 97)]
            assert [event.sequence for event in events] == list(range(100))

    run(scenario())


def test_acknowledgements_mean_what_they_say() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            subscription = bob.subscribe("t")
            await subscription.started()
            publisher = alice.publisher("t")
            await publisher.publish(b"1", wait="root")
            assert publisher.admitted == publisher.sequence == 1
            await publisher.publish(b"2", wait="stable")
            assert publisher.stable == 2
            assert len(await take(subscription, 2)) == 2

    run(scenario())


def test_two_publishers_of_a_node_each_have_a_line_of_sequences() -> None:
    async def scenario() -> None:
        async with Node() as node:
            subscription = node.subscribe("t")
            await subscription.started()
            for publisher in (node.publisher("t"), node.publisher("t")):
                await publisher.publish(b"x")
                publisher.close()
            first, second = await take(subscription, 2)
            assert (first.sequence, second.sequence) == (0, 0)
            assert first.publisher != second.publisher

    run(scenario())


def test_events_of_a_batch_share_a_time_unless_each_is_to_have_its_own() -> None:
    async def scenario() -> None:
        async with Node() as node:
            subscription = node.subscribe("t")
            await subscription.started()
            for timed in (False, True):
                publisher = node.publisher("t", timed=timed)
                for _ in range(4):
                    await publisher.publish(b"x")
                times = [event.time_ns for event in await take(subscription, 4)]
                assert len(set(times)) == (4 if timed else 1)
                assert times == sorted(times)

    run(scenario())


def test_what_needs_no_pause_is_published_without_one_and_the_rest_is_said_not_to_be() -> None:
    async def scenario() -> None:
        async with Node() as node:
            subscription = node.subscribe("t", only_payloads=True)
            publisher = node.publisher("t")
            await subscription.started()
            await publisher.publish(b"first", wait="root")
            assert publisher.publish_nowait(b"at once")
            assert publisher.publish_nowait(b"in the batch")
            assert not publisher.publish_nowait(bytes(2 << 20))  # `publish` says why
            assert not publisher.publish_nowait("text")  # type: ignore[arg-type]
            assert await take(subscription, 3) == [b"first", b"at once", b"in the batch"]

            taken = 0
            while publisher.publish_nowait(bytes(1000)):
                taken += 1
            assert taken * 1000 < LiveConfig().publish_bytes  # so the event loop runs
            await publisher.publish(b"last")
            assert (await take(subscription, taken + 1))[-1] == b"last"
            publisher.close()
            assert not publisher.publish_nowait(b"closed")

    run(scenario())


def test_a_handler_that_waits_now_and_then_is_waited_for_and_order_stays() -> None:
    async def scenario() -> None:
        got: list[bytes] = []
        go_on, finished = asyncio.Event(), asyncio.Event()

        async def later(payload: bytes) -> None:
            await go_on.wait()
            got.append(payload)

        def handler(payload: bytes) -> Awaitable[None] | None:
            if payload == b"six":
                finished.set()
            if payload.startswith(b"wait"):
                return later(payload)
            got.append(payload)
            return None

        async with Node() as node:
            await node.subscribe("t", handler=handler, only_payloads=True).started()
            sent = [b"one", b"two", b"wait three", b"four", b"wait five", b"six"]
            for payload in sent:
                await node.publish("t", payload, wait="stable")
            assert got == sent[:2]
            go_on.set()
            async with asyncio.timeout(10):
                await finished.wait()
            assert got == sent

    run(scenario())


def test_a_cancelled_wait_for_events_is_forgotten() -> None:
    async def scenario() -> None:
        async with Node() as node:
            subscription = node.subscribe("t")
            await subscription.started()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.001):
                        await subscription.batch()
            assert subscription._inbox._waiting == ()  # memory that only grows is seen nowhere else
            await node.publish("t", b"here")
            assert [event.payload for event in await subscription.batch()] == [b"here"]

    run(scenario())


def test_a_closed_subscription_ends_its_loop_and_a_leaving_node_ends_all() -> None:
    async def scenario() -> None:
        async with Node() as node:
            closed, running = node.subscribe("t"), node.subscribe("t")
            await running.started()
            await closed.close()
            assert [event async for event in closed] == []
            await node.publish("t", b"last", wait="root")
        assert [event.payload async for event in running] == [b"last"]

    run(scenario())


def test_an_error_in_a_handler_is_reported_and_the_next_event_is_delivered() -> None:
    async def scenario() -> None:
        reports: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        async with Node() as node:
            got: list[bytes] = []
            done = asyncio.Event()

            def handler(event: Event) -> None:
                if event.payload == b"bad":
                    raise ValueError("no")
                got.append(event.payload)
                if event.payload == b"2":
                    done.set()

            await node.subscribe("t", handler=handler).started()
            for payload in (b"1", b"bad", b"2"):
                await node.publish("t", payload, wait="root")
            await done.wait()
            assert got == [b"1", b"2"]
            assert reports[0].startswith("the handler of 't' failed at Event(")

    run(scenario())


def test_what_handlers_publish_to_each_other_goes_round_without_end_and_without_depth() -> None:
    async def scenario() -> None:
        hops = sys.getrecursionlimit()
        async with Node() as node:
            arrived = asyncio.get_running_loop().create_future()
            publishers = [node.publisher(topic) for topic in ("ping", "pong")]
            for publisher in publishers:
                await publisher.publish(b"0", wait="root")

            def pass_on(event: Event) -> None:
                count = int(event.payload) + 1
                if count <= hops:
                    assert publishers[event.topic == "ping"].publish_nowait(b"%d" % count)
                else:
                    arrived.set_result(count)

            for publisher in publishers:
                await node.subscribe(publisher.topic, handler=pass_on).started()
            await publishers[0].publish(b"1")
            assert await arrived == hops + 1

    run(scenario())


def test_a_subscription_with_a_handler_that_fails_says_why() -> None:
    async def scenario() -> None:
        reports: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        async with Node(config=quillcast.Config(topics=TopicConfig(auto_create=False))) as node:
            subscription = node.subscribe("nowhere", handler=lambda event: None)
            with pytest.raises(quillcast.UnknownTopic):
                await subscription.started()
            await asyncio.sleep(0)
            (report,) = reports
            assert report["message"] == "the subscription to 'nowhere' failed"
            assert isinstance(report["exception"], quillcast.UnknownTopic)

    run(scenario())


def test_back_pressure_is_waiting_and_never_loss() -> None:
    async def scenario() -> None:
        async with pair(live=LiveConfig(window_bytes=64 << 10, subscription_bytes=64 << 10)) as (alice, bob):
            await alice.create("t", slow="wait")
            subscription = bob.subscribe("t")
            await subscription.started()
            task = asyncio.create_task(publish_many(alice, "t", 2000, bytes(10_000)))
            events = await take(subscription, 2000)
            await task
            assert [event.sequence for event in events] == list(range(2000))
            assert subscription.lost_count == 0

    run(scenario())


async def publish_many(node: Node, topic: str, count: int, payload: bytes) -> None:
    for _ in range(count):
        await node.publish(topic, payload)


# --- what cannot be


async def refused(kind: type[quillcast.QuillcastError], work: Any) -> str:
    with pytest.raises(kind) as error:
        await work
    return str(error.value)


def test_an_event_over_the_limit_is_refused_at_the_publisher_and_the_others_arrive() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            await alice.create("small", event_bytes_max=100)
            subscription = bob.subscribe("small")
            await subscription.started()
            await alice.publish("small", b"before")
            text = await refused(quillcast.EventTooLarge, alice.publish("small", bytes(101)))
            assert text.startswith("an event of 101 bytes is over the limit of 100 of topic 'small'; split it")
            await alice.publish("small", b"after")
            assert [event.payload for event in await take(subscription, 2)] == [b"before", b"after"]
            text = await refused(quillcast.EventTooLarge, bob.publish("default", bytes((1 << 20) + 1)))
            assert "over the limit of 1048576" in text
            text = await refused(quillcast.EventTooLarge, bob.publish("default", b"", key=bytes(1 << 20)))
            assert text.startswith("key and attributes take 1048576 bytes, more than")

    run(scenario())


def test_a_payload_other_than_bytes_is_rejected() -> None:
    async def scenario() -> None:
        async with Node() as node:
            text = await refused(quillcast.LocalError, node.publish("t", "text"))  # type: ignore[arg-type]
            assert text == "a payload is bytes, not str; encode it first"
            await node.publish("t", bytearray(b"fine"), wait="root")  # type: ignore[arg-type]

    run(scenario())


class NotAMapping(msgspec.Struct, frozen=True):
    """MessagePack makes a map of it, which hashes to nothing where it comes back."""

    name: str = "x"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key": "court 1"}, "a key is bytes, not str; encode it first"),
        ({"attributes": 3}, "attributes are a mapping, not int; use attributes={name: value}"),
        ({"attributes": {3: "set"}}, "attributes must map text to values that MessagePack can encode: "),
        ({"attributes": {"set": object()}}, "Encoding objects of type object is unsupported"),
        ({"attributes": {"set": 1 << 64}}, "attributes must map text to values that MessagePack can encode: "),
        ({"attributes": {"set": {NotAMapping(): 3}}}, "map keys must be hashable"),
        ({"attributes": {"set": "\ud800"}}, "surrogates not allowed"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_extras_that_no_subscriber_could_read_are_refused_and_take_no_other_event_along(
    wrong: dict[str, Any], text: str
) -> None:
    async def scenario() -> None:
        async with Node() as node:
            subscription = node.subscribe("t")
            await subscription.started()
            publisher = node.publisher("t")
            await publisher.publish(b"first")
            await publisher.publish(b"before", b"key", {"n": 1})
            assert text in await refused(quillcast.LocalError, publisher.publish(b"wrong", **wrong))
            await publisher.publish(b"after", bytearray(b"key"), MappingProxyType({"n": 2}))  # type: ignore[arg-type]
            await publisher.acknowledged("stable")
            events = await take(subscription, 3)
            assert [(event.payload, event.sequence) for event in events] == [
                (b"first", 0),
                (b"before", 1),
                (b"after", 2),
            ]
            assert [event.attributes for event in events] == [None, {"n": 1}, {"n": 2}]
            assert (subscription.malformed_count, subscription.lost_count) == (0, 0)

    run(scenario())


def test_an_unknown_topic_is_an_error_if_first_use_creates_none() -> None:
    async def scenario() -> None:
        async with pair(NO_AUTO) as (alice, bob):
            for node in (alice, bob):
                text = await refused(quillcast.UnknownTopic, node.publish("nowhere", b"x"))
                assert text.startswith("there is no topic 'nowhere'")
                await refused(quillcast.UnknownTopic, node.subscribe("nowhere").started())
            await alice.create("somewhere")
            await bob.publish("somewhere", b"x", wait="root")
            await alice.create("nowhere")
            await alice.publish("nowhere", b"x", wait="root")

    run(scenario())


def test_a_topic_that_exists_with_other_settings_is_an_error_that_names_them() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            await alice.create("t", slow="wait")
            await bob.create("t", slow="wait")
            text = await refused(quillcast.TopicExists, bob.create("t", slow="cut"))
            assert "topic 't' exists with other settings" in text
            assert "slow = wait" in text

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"delivry": "reliable"}, "delivry is not a setting of topics; use: delivery, order, slow, event_bytes_max, "),
        ({"delivery": "durable"}, "delivery = 'durable' is not valid; use one of: best_effort, reliable"),
        ({"event_bytes_max": "big"}, "do not fit: Expected `int`, got `str`"),
        ({"event_bytes_max": 0}, "event_bytes_max = 0 must lie between"),
        ({"slow": object()}, "do not fit: Encoding objects of type object is unsupported"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], text: str) -> None:
    async def scenario() -> None:
        async with Node() as node:
            assert text in await refused(quillcast.LocalError, node.create("t", **settings))

    run(scenario())


@pytest.mark.parametrize("name", ["", "a//b", "a/+/b", "#", "\udcff", "x" * 256, b"a/b", 3])
def test_an_invalid_topic_name_is_rejected(name: Any) -> None:
    async def scenario() -> None:
        async with Node() as node:
            with pytest.raises(quillcast.LocalError, match=REFUSED_NAME):
                node.publish(name, b"x")
            with pytest.raises(quillcast.LocalError, match=REFUSED_NAME):
                node.subscribe(name)
            await refused(quillcast.LocalError, node.create(name))
            await refused(quillcast.LocalError, node.tree(name))

    run(scenario())


def test_a_handler_that_is_not_callable_is_rejected_by_subscribe() -> None:
    async def scenario() -> None:
        async with Node() as node:
            with pytest.raises(quillcast.LocalError, match="a handler is a function of an event, not list"):
                node.subscribe("t", handler=[])  # type: ignore[call-overload]
            assert node.status().topics == ()

    run(scenario())


async def try_to_read_beside_a_handler(endpoint: Node | quillcast.Client) -> None:
    """Each way to read a subscription fails at once if a handler takes its events, and the handler still gets them."""
    got: asyncio.Queue[bytes] = asyncio.Queue()
    handled = endpoint.subscribe("t", handler=got.put_nowait, only_payloads=True)
    await handled.started()
    for open_ in (True, False):
        with pytest.raises(quillcast.LocalError, match=r"subscription to 't' has a handler, .* subscribe without one"):
            async for _ in handled:
                pass
        await refused(quillcast.LocalError, anext(handled))
        await refused(quillcast.LocalError, handled.batch())
        if open_:
            await endpoint.publish("t", b"x")
            assert await got.get() == b"x"
        await handled.close()


def test_reading_a_subscription_that_has_a_handler_fails_at_once() -> None:
    async def scenario() -> None:
        async with Node() as node:
            await try_to_read_beside_a_handler(node)

    run(scenario())


def test_two_loops_over_one_subscription_share_its_events_and_both_end_when_it_is_closed() -> None:
    async def scenario() -> None:
        async with Node() as node, asyncio.TaskGroup() as loops:
            subscription = node.subscribe("t", only_payloads=True)
            await subscription.started()
            got: list[bytes] = []

            async def read() -> None:
                async for payload in subscription:
                    got.append(payload)
                    await asyncio.sleep(0)
                    if len(got) == 100:
                        await subscription.close()

            first, second = (loops.create_task(read()) for _ in range(2))
            await asyncio.sleep(0)  # both wait
            for number in range(100):
                await node.publish("t", b"%d" % number)
            await asyncio.wait([first, second])
            assert got == [b"%d" % number for number in range(100)]
            assert [payload async for payload in subscription] == []
            assert await subscription.batch() == []

    run(scenario())


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "much"])
def test_a_size_limit_too_small_for_any_event_is_rejected(wrong: Any) -> None:
    with pytest.raises(quillcast.LocalError, match=r"live\.window_bytes is .*; use a whole number above 0"):
        LiveConfig(window_bytes=wrong)


def test_buffers_that_hold_less_than_two_batches_of_a_publisher_are_rejected() -> None:
    small, live = Config(topics=TopicConfig(budget_bytes=19_999)), LiveConfig(publish_bytes=10_000)
    with pytest.raises(
        quillcast.LocalError, match=r"budget_bytes is 19999; use at least 20000, 2 times live\.publish_"
    ):
        Node(config=small, live=live)
    Node(config=Config(topics=TopicConfig(budget_bytes=20_000)), live=live)


def test_a_single_contact_needs_no_list() -> None:
    async def scenario() -> None:
        async with Node() as first, Node(contacts=first.address) as second:
            await second.publish("t", b"x", wait="root")

    run(scenario())


def test_waiting_for_an_acknowledgement_that_a_topic_does_not_give_publishes_nothing() -> None:
    async def scenario() -> None:
        async with Node() as node:
            publisher = node.publisher("t")
            text = await refused(quillcast.LocalError, publisher.publish(b"x", wait="stored"))  # type: ignore[arg-type]
            assert "'stored' comes with durable topics" in text
            assert publisher.sequence == 0
            await node.create("loose", delivery="best_effort")
            text = await refused(quillcast.LocalError, node.publish("loose", b"x", wait="root"))
            assert "is best_effort and acknowledges nothing" in text
            publisher = node.publisher("loose")
            await refused(quillcast.LocalError, publisher.opened("stable"))
            assert publisher.publish_nowait(b"x")
            await refused(quillcast.LocalError, publisher.acknowledged("root"))

    run(scenario())


def test_a_node_that_is_not_entered_or_has_left_says_so() -> None:
    async def scenario() -> None:
        node = Node()
        with pytest.raises(quillcast.LocalError, match="use it inside `async with Node"):
            node.publish("t", b"x")
        async with node:
            pass
        with pytest.raises(quillcast.LocalError, match="has left its network"):
            node.subscribe("t")
        with pytest.raises(quillcast.LocalError, match="starts once"):
            await node.start()

    run(scenario())


# --- starting


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.7:4000", "[::]:0", "example.org:1"])
def test_listening_off_loopback_is_refused_with_what_it_takes(listen: str) -> None:
    with pytest.raises(quillcast.LocalError, match=r"not on this machine's loopback.*network credentials"):
        Node(listen=listen)


def test_a_port_in_use_is_named() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            text = await refused(quillcast.LocalError, Node(listen=f"127.0.0.1:{port}").start())
            assert text == f"port {port} of 127.0.0.1 is in use; choose another, or 0 for any"

    run(scenario())


def test_contacts_that_cannot_be_reached_are_named_with_the_reason(runtime: Path) -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{unused.getsockname()[1]}"
            async with Node(network="red") as red:
                text = await refused(
                    quillcast.Unreachable, Node(network="blue", contacts=[nobody, red.address]).start()
                )
                assert f"cannot reach {nobody}: nobody listens there" in text
                assert f"cannot link with {red.address}: it belongs to the network 'red', this peer to 'blue'" in text
        assert list((runtime / "quillcast" / "blue").glob("*.*")) == []  # nothing is left behind

    run(scenario())


def test_a_problem_callback_may_call_the_node_and_raise() -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        failed = asyncio.Event()

        def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            failures.append(context["exception"])
            failed.set()

        def on_problem(line: str) -> None:
            assert node.publisher("problems").publish_nowait(line.encode())
            raise ZeroDivisionError("the program's own mistake")

        asyncio.get_running_loop().set_exception_handler(report)
        async with Node(config=QUICK, on_problem=on_problem) as node:
            problems = node.subscribe("problems")
            await node.publisher("problems").publish(b"none yet")
            _, writer = await asyncio.open_connection(*addresses.parse(node.address))
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            await failed.wait()
            assert [type(failure) for failure in failures] == [ZeroDivisionError]
            assert "it is not a quillcast peer" in str((await take(problems, 2))[1].payload)
            writer.close()

    run(scenario())


def test_one_contact_that_answers_is_enough() -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{unused.getsockname()[1]}"
            async with Node() as first, Node(contacts=[nobody, first.address]) as second:
                assert second.status().leaf_set == (PeerContact(first.contact.node_id.hex(), first.address),)

    run(scenario())


def test_a_publish_before_the_node_has_joined_waits_for_it() -> None:
    async def scenario() -> None:
        async with Node() as first:
            subscription = first.subscribe("t")
            second = Node()
            starting = asyncio.create_task(second.start())
            publishing = await early(lambda: second.publish("t", b"early"))
            assert not starting.done()
            await publishing
            assert [event.payload for event in await take(subscription, 1)] == [b"early"]
            await starting
            await second.leave()

    run(scenario())


def test_others_of_the_machine_are_told_whether_a_peer_has_joined() -> None:
    async def scenario() -> None:
        place = PeerRegistry("default")
        async with silent_peer() as address:
            looking = Node(contacts=[address], live=LiveConfig(connect_timeout_s=0.1))
            starting = asyncio.create_task(looking.start())
            await early(looking.status)
            assert [entry.joined for entry in place.entries()] == [False]
            with pytest.raises(quillcast.Unreachable):
                await starting
        async with Node():
            assert [entry.joined for entry in place.entries()] == [True]

    run(scenario())


def test_a_publish_where_no_root_answers_waits_a_bounded_time() -> None:
    async def scenario() -> None:
        async with silent_peer() as address:
            second = Node(contacts=[address], live=LiveConfig(connect_timeout_s=2.0))
            starting = asyncio.create_task(second.start())
            publishing = await early(lambda: second.publish("t", b"x", timeout_s=0.2))
            text = await refused(quillcast.NotJoined, publishing)
            silent = "no peer is known yet that could be asked"
            assert text == f"no root of 't' answered within 0.2 s: {silent}; nothing was published"
            with pytest.raises(quillcast.Unreachable):
                await starting

    run(scenario())


def test_the_next_root_waits_for_those_below_a_root_that_left_and_not_for_a_lease() -> None:
    """Leases last far longer here than this test may."""

    async def scenario() -> None:
        patient = Config(topics=TopicConfig(lease_s=600.0))
        async with pair(patient) as (alice, bob), Node(config=patient) as carol, Node(config=patient) as dave:
            nodes = [alice, bob, carol, dave]
            subscriptions = [node.subscribe("t") for node in nodes]
            for subscription in subscriptions:
                await subscription.started()
            await alice.publish("t", b"before", wait="stable")
            root = (await alice.tree("t")).root
            (leaving,) = [node for node in nodes if node.contact.node_id.hex() == root]
            stayed = [node for node in nodes if node is not leaving]
            await leaving.leave()
            await stayed[0].publish("t", b"after", wait="stable")
            for node, subscription in zip(nodes, subscriptions, strict=True):
                if node is not leaving:
                    assert [event.payload for event in await take(subscription, 2)] == [b"before", b"after"]

    run(scenario())


async def early(call: Callable[[], T]) -> T:
    """The call as soon as the node has opened, and before it is part of the network."""
    while True:
        try:
            return call()
        except quillcast.LocalError:
            await asyncio.sleep(0)


@asynccontextmanager
async def silent_peer() -> AsyncIterator[str]:
    """Something that takes connections and says nothing."""
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in connections:
            writer.close()


# --- looking


def test_status_and_tree_say_what_is_there() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            await bob.subscribe("t").started()
            await alice.subscribe("t").started()
            tree = await alice.tree("t")
            assert tree.complete
            assert {peer.node_id for peer in tree.peers} == {node.contact.node_id.hex() for node in (alice, bob)}
            status = bob.status()
            assert status.active
            assert [link.node_id for link in status.neighbours] == [alice.contact.node_id.hex()]
            assert [(topic.name, topic.subscriptions) for topic in status.topics] == [("t", 1)]

    run(scenario())


def test_commands_ask_a_running_node_through_its_control_socket(runtime: Path) -> None:
    async def scenario() -> None:
        async with Node(network="n") as node:
            await node.subscribe("t").started()
            place = PeerRegistry("n")
            (entry,) = place.entries()
            path = place.control_path(entry.contact)
            assert entry.pid == os.getpid()
            status = await asyncio.to_thread(control.ask, path, StatusQuestion(), NodeStatus)
            assert status.node_id == node.contact.node_id.hex()
            [shown] = await asyncio.to_thread(control.ask, path, TopicsQuestion(), tuple[TopicStatus, ...])
            assert shown.name == "t"
            assert await asyncio.to_thread(control.ask, path, TreeQuestion("t"), TreeStatus) == await node.tree("t")
            with pytest.raises(quillcast.LocalError, match="'nonsense' is not a question; ask one of: status"):
                await asyncio.to_thread(control.ask, path, Nonsense(), object)
            with pytest.raises(quillcast.LocalError, match="topic"):
                await asyncio.to_thread(control.ask, path, TreeWithoutTopic(), TreeStatus)
        with pytest.raises(quillcast.Unreachable, match="does it still run"):
            control.ask(path, StatusQuestion(), NodeStatus)
        assert list(place.folder.iterdir()) == []

    run(scenario())
