"""Applications that use a running peer (`quillcast.connect`): what they get, and what they cannot do to others."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import quillcast
from quillcast import Config, LiveConfig, Node
from quillcast.cli.status import _lines as lines
from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import UP, Envelope
from quillcast.core.messages import Message
from quillcast.live.clients.client import Client
from quillcast.live.clients.messages import (
    VERSION,
    Ask,
    ClosePublisher,
    Codec,
    Connect,
    OpenPublisher,
    Subscribe,
    Taken,
    Unsubscribe,
    Welcome,
)
from quillcast.live.clients.proxy import Proxy, Sending
from quillcast.live.clients.session import RemotePublisher
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import PeerQuestion
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.transport.framing import FrameType, frame, header
from quillcast.live.transport.shared_transport import SharedMemoryTransport
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.publishing.publisher import Publisher
from tests.cli.commands import topic_near
from tests.live.test_adoption import eventually
from tests.live.test_node import run, take, try_to_read_beside_a_handler
from tests.protocol.recording import BOB, FIRST, PAUL, is_stable
from tests.protocol.topics.test_publisher import a_publisher

pytestmark = pytest.mark.live

ME = b"m" * 16


class ConnectAsNeverBefore(PeerQuestion, frozen=True, tag="connect_as_never_before"):
    """A question of another version."""


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name: these tests connect to sockets below it, whose names are limited."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@asynccontextmanager
async def hosting(clients: int = 1, **options: Any) -> AsyncIterator[tuple[Any, ...]]:
    """A node, and clients of it."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(**options))
        yield node, *[await stack.enter_async_context(quillcast.connect()) for _ in range(clients)]


def count_of(node: Node, topic: str) -> tuple[int, int]:
    """A topic's publishers and subscriptions at a node."""
    found = [each for each in node.status().topics if each.name == topic]
    return sum(each.publishers for each in found), sum(each.subscriptions for each in found)


def refused(node: Node) -> dict[str, int]:
    """What a node refused, and why. Peers of other networks do not count: other tests may have used its port before."""
    return {why: count for why, count in node.status().counters.refused.items() if why != "network"}


# --- what a client can do


def test_reading_a_clients_subscription_that_has_a_handler_fails_at_once() -> None:
    async def scenario() -> None:
        async with hosting() as (_, client):
            await try_to_read_beside_a_handler(client)

    run(scenario())


def test_what_a_client_publishes_reaches_clients_and_nodes_alike() -> None:
    async def scenario() -> None:
        async with hosting(2) as (node, client, other):
            there, here = other.subscribe("t"), node.subscribe("t")
            await there.started()
            await here.started()
            await client.publish("t", b"one", key=b"k", attributes={"a": 1}, wait="stable")
            await node.publish("t", b"two", wait="root")
            events = await take(there, 2)
            assert events == await take(here, 2)
            assert [(event.topic, event.payload, event.key, event.attributes) for event in events] == [
                ("t", b"one", b"k", {"a": 1}),
                ("t", b"two", None, None),
            ]

    run(scenario())


def test_clients_of_a_machine_share_the_place_of_their_peer_in_the_tree() -> None:
    async def scenario() -> None:
        async with hosting(2) as (node, client, other), Node() as far:
            subscriptions = [each.subscribe("t", name=f"of {number}") for number, each in enumerate((client, other))]
            for subscription in subscriptions:
                await subscription.started()
            await far.publish("t", b"event", wait="stable")
            assert [(await anext(each)).payload for each in subscriptions] == [b"event"] * 2
            tree = await client.tree("t")
            names = {lag.name for peer in tree.peers for lag in peer.lags}
            assert names == {"of 0", "of 1"}
            assert {peer.node_id for peer in tree.peers if peer.lags} == {node.contact.node_id.hex()}
            status = await client.status()
            assert (status.pid, status.clients) == (os.getpid(), 2)
            assert list(lines(status, 1))[1].endswith("; 1 peer of this network on this machine; 2 clients")
            tracing = asyncio.create_task(client.trace("t"))
            while not tracing.done():
                await far.publish("t", b"event", wait="root")
            assert sum(hop.subscriptions for hop in (await tracing).hops) == 2

    run(scenario())


def test_many_events_of_every_size_arrive_in_order() -> None:
    async def scenario() -> None:
        async with hosting(2) as (_, client, other):
            subscription = other.subscribe("t", only_payloads=True)
            await subscription.started()
            publisher = client.publisher("t")
            sent = [bytes([number % 256]) * (1 << number % 20) for number in range(100)]
            for payload in sent:
                await publisher.publish(payload)
            await publisher.acknowledged("stable")
            assert await take(subscription, len(sent)) == sent
            assert (publisher.admitted, publisher.stable, subscription.lost_count) == (100, 100, 0)

    run(scenario())


def test_large_events_stay_in_shared_memory_both_ways() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            subscription = client.subscribe("t", only_payloads=True)
            await subscription.started()
            for number in range(20):
                await client.publish("t", bytes([number]) * 500_000, wait="root")
            assert [each[:1] for each in await take(subscription, 20)] == [bytes([number]) for number in range(20)]
            (session,) = node._presence.clients._sessions
            for link in (client._backend._link, session.link):
                assert link.connection is not None
                transport = link.connection.transport
                assert isinstance(transport, SharedMemoryTransport)
                assert (transport.imports, transport.exports) == (True, True)

    run(scenario())


def test_a_best_effort_topic_is_published_to_at_full_speed() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            await client.create("t", delivery="best_effort")
            publisher = client.publisher("t")
            for _ in range(200_000):
                await publisher.publish(b"x" * 100)
            await client.leave()
            assert refused(node) == {}
            assert not node.status().problems

    run(scenario())


def test_handlers_and_batches_work_as_at_a_node() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            handled: list[bytes] = []
            done = asyncio.Event()

            async def handle(event: quillcast.Event) -> None:
                handled.append(event.payload)
                if len(handled) == 3:
                    done.set()

            await client.subscribe("t", handler=handle).started()
            batches = client.subscribe("t", only_payloads=True)
            await batches.started()
            for payload in (b"1", b"2", b"3"):
                await node.publish("t", payload)
            await done.wait()
            got: list[bytes] = []
            while len(got) < 3:
                got += await batches.batch()
            assert handled == got == [b"1", b"2", b"3"]

    run(scenario())


def test_a_subscription_may_start_with_the_earliest_events() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            keeper = node.subscribe("t")  # which does not read, and so has the tree keep events
            await keeper.started()
            for number in range(5):
                await node.publish("t", b"%d" % number, wait="root")
            subscription = client.subscribe("t", start="earliest", only_payloads=True)
            await subscription.started()
            await node.publish("t", b"last")
            got = await take(subscription, 6 - subscription.lost_count)
            assert got[-1] == b"last"
            assert len(got) + subscription.lost_count == 6

    run(scenario())


def test_topics_are_created_and_changed_through_the_peer() -> None:
    async def scenario() -> None:
        config = Config(topics=TopicConfig(auto_create=False))
        async with hosting(config=config) as (_, client):
            with pytest.raises(quillcast.UnknownTopic):
                await client.subscribe("t").started()
            made = await client.create("t", slow="wait")
            assert (made.settings.slow, client.holders("t")) == ("wait", 1)
            assert await client.create("t", slow="wait") == made
            with pytest.raises(quillcast.TopicExists):
                await client.create("t", delivery="best_effort")
            changed = await client.change("t", event_bytes_max=1000)
            assert changed.settings.event_bytes_max == 1000
            with pytest.raises(quillcast.UnknownTopic):
                await client.change("absent", slow="wait")
            with pytest.raises(quillcast.EventTooLarge):
                await client.publish("t", b"x" * 1001)
            await client.publish("t", b"x" * 1000, wait="root")

    run(scenario())


def remote_publisher() -> tuple[Publisher, Publisher, Callable[[bytes], None], Callable[[], None]]:
    """A client's publisher at its peer and at the client, and how an event gets there, and news back."""
    at_peer, _, _ = a_publisher()
    there = RemotePublisher(OpenPublisher(1, "weather", PAUL, None), lambda _: None)
    at_peer.listener = there
    there.begin(at_peer)
    publisher, carried, _ = a_publisher()
    sending, proxy = Sending("weather"), object.__new__(Proxy)
    sending.publisher, proxy.contact, proxy._sending = publisher, BOB, {1: sending}

    def send(payload: bytes) -> None:
        publisher.offer([payload])
        there.take(carried.pop().blocks[0])

    def tell() -> None:
        for message in there.news(""):
            proxy._progressed(sending, message)

    return at_peer, publisher, send, tell


def test_a_client_that_hears_late_of_discarded_events_counts_those_before_as_stable() -> None:
    at_peer, publisher, send, tell = remote_publisher()
    at_peer.root_is(BOB, FIRST)
    tell()
    for payload in (b"stable", b"discarded", b"stable later", b"discarded later", b"kept"):
        send(payload)
    at_peer.receipt(FIRST, 5, 1)
    at_peer.drop()
    at_peer.receipt(FIRST, 5, 3)
    at_peer.drop()
    tell()
    assert [is_stable(publisher, event) for event in range(5)] == [True, False, True, False, False]
    assert (publisher.dropped, publisher.retained_bytes) == (at_peer.dropped, at_peer.retained_bytes)
    publisher.check()


@pytest.mark.parametrize("hears", [False, True], ids=["never hears of it", "hears of it"])
def test_a_client_counts_nothing_of_a_best_effort_session_of_its_peer_as_stable(hears: bool) -> None:
    at_peer, publisher, send, tell = remote_publisher()
    at_peer.root_is(BOB, FIRST)
    tell()
    send(b"stable")
    at_peer.receipt(FIRST, 1, 1)
    tell()
    at_peer.follow_session(1, reliable=False)
    if hears:
        tell()
    send(b"best effort")
    if hears:
        tell()
    at_peer.follow_session(2, reliable=True)
    send(b"reliable again")
    at_peer.receipt(FIRST, 3, 3)
    tell()
    publisher.check()
    assert [is_stable(publisher, event) for event in range(2)] == [True, False]
    assert is_stable(publisher, 2) is not hears, "it was sent as that of a best-effort session"
    send(b"kept")
    at_peer.receipt(FIRST, 4, 4)
    tell()
    assert is_stable(publisher, 3)


@pytest.mark.parametrize("is_open", [False, True], ids=["opens it later", "has a publisher"])
@pytest.mark.parametrize("delivery", ["reliable", "best_effort"])
def test_a_client_publishes_by_the_guarantee_of_the_session(delivery: str, is_open: bool) -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            await node.create("t", delivery="reliable" if delivery == "best_effort" else "best_effort")
            subscription = node.subscribe("t")
            await subscription.started()
            if is_open:
                await client.publish("t", b"before")
                assert (await anext(subscription)).payload == b"before"
            assert (await node.change("t", delivery=delivery)).session == 1
            publisher = client.publisher("t")
            await publisher.opened()
            await eventually(lambda: publisher.reliable == (delivery == "reliable"))
            if publisher.reliable:
                await publisher.publish(b"after", wait="stable")
            else:
                await publisher.publish(b"after")
                with pytest.raises(quillcast.LocalError, match="acknowledges nothing"):
                    await publisher.acknowledged("stable")
            assert (await anext(subscription)).payload == b"after"

    run(scenario())


def test_owners_and_access_lists_work_as_at_a_node() -> None:
    async def scenario() -> None:
        owner, reader, stranger = (quillcast.Credentials.new() for _ in range(3))
        async with hosting(2) as (_, client, other):
            await client.create("t", credentials=owner, subscribers=[reader.principal], publishers=[owner.principal])
            subscription = other.subscribe("t", credentials=reader)
            await subscription.started()
            with pytest.raises(quillcast.AccessDenied):
                await other.subscribe("t", credentials=stranger).started()
            with pytest.raises(quillcast.AccessDenied):
                await other.publish("t", b"no", credentials=stranger, timeout_s=5)
            await client.publish("t", b"yes", credentials=owner, wait="stable")
            assert (await anext(subscription)).payload == b"yes"
            for credentials in (None, stranger):
                with pytest.raises(quillcast.AccessDenied):
                    await other.change("t", credentials=credentials, slow="wait")
            changed = await other.change("t", credentials=owner, slow="wait")
            assert (changed.settings.slow, changed.genuine) == ("wait", True)
            listed = await other.change("t", credentials=owner, publishers=[stranger.principal])
            assert (listed.session, listed.genuine) == (1, True)
            await client.publish("t", b"now", credentials=stranger, wait="stable")
            assert (await anext(subscription)).payload == b"now"

    run(scenario())


def test_nothing_is_kept_of_subscriptions_that_failed() -> None:
    async def scenario() -> None:
        owner, stranger = quillcast.Credentials.new(), quillcast.Credentials.new()
        async with hosting() as (node, client):
            await client.create("t", credentials=owner, subscribers=[owner.principal, stranger.principal])
            listed = client.subscribe("t", credentials=stranger)
            await listed.started()
            await client.change("t", credentials=owner, subscribers=[owner.principal])
            with pytest.raises(quillcast.AccessDenied):
                await anext(listed)
            with pytest.raises(quillcast.AccessDenied):
                await client.subscribe("t", credentials=stranger).started()
            (session,) = node._presence.clients._sessions
            (hosted,) = node._presence.peer.scoping.hosting.clients.values()
            await eventually(lambda: not (session._outboxes or hosted.uses))
            allowed = client.subscribe("t", credentials=owner)
            await allowed.started()
            assert len(session._outboxes) == sum(hosted.uses.values()) == 1

    run(scenario())


def test_an_acknowledgement_that_does_not_come_names_who_holds_it_up() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client), Node() as far:
            topic = topic_near(node.contact.node_id.hex())
            await far.subscribe(topic).started()
            await client.publish(topic, b"one", wait="stable")
            far.unplug()
            with pytest.raises(quillcast.NotStable) as caught:
                await client.publish(topic, b"two", wait="stable", timeout_s=1.0)
            assert caught.value.peers == (far.contact.node_id.hex(),)
            far.plug_in()

    run(scenario())


def test_a_client_publishes_to_topics_whose_sources_number_their_events() -> None:
    async def scenario() -> None:
        config = Config(topics=TopicConfig(streams_max=1))
        async with hosting(config=config) as (_, client), Node(config=config) as far, Node(config=config) as third:
            await client.create("prices", admission="source")
            subscription = far.subscribe("prices", only_payloads=True)
            await subscription.started()
            await client.publish("prices", b"first", wait="stable")
            assert await anext(subscription) == b"first"
            await far.create("others", admission="source")
            await third.subscribe("others").started()
            await far.publish("others", b"second", wait="stable")
            with pytest.raises(quillcast.NotAdmitted, match="as many sources as it may have"):
                await client.publish("others", b"third", wait="root", timeout_s=2.0)

    run(scenario())


def test_what_was_published_reaches_the_peer_before_a_client_leaves() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            subscription = node.subscribe("t", only_payloads=True)
            await subscription.started()
            for number in range(20_000):
                await client.publish("t", b"%d" % number)
            await client.leave()
            assert await take(subscription, 20_000) == [b"%d" % number for number in range(20_000)]
            await until(node, lambda: count_of(node, "t") == (0, 1))
            with pytest.raises(quillcast.LocalError, match="connect again"):
                await client.publish("t", b"more")

    run(scenario())


# --- a client holds nobody up


@pytest.mark.parametrize("slow", ["cut", "wait"])
def test_a_client_that_does_not_read_holds_nobody_up_and_hears_what_it_lost(slow: str) -> None:
    async def scenario() -> None:
        live = LiveConfig(client_bytes=256 << 10)
        async with Node(live=live) as node, quillcast.connect(live=LiveConfig(subscription_bytes=64 << 10)) as client:
            await node.create("t", slow=slow)
            subscription, busy = client.subscribe("t"), client.subscribe("t/busy")
            await subscription.started()
            await busy.started()
            for number in range(2000):
                await node.publish("t", b"%d" % number + bytes(1000), wait="root" if number % 100 else "stable")
            await node.publish("t/busy", b"event", wait="stable")
            assert (await anext(busy)).payload == b"event"
            got: list[int] = []
            while len(got) + subscription.lost_count < 2000:
                got += [event.sequence for event in await subscription.batch()]
            lost = [sequence for loss in subscription.lost for sequence in range(loss.first, loss.last)]
            assert {loss.why for loss in subscription.lost} == {"cut"}
            assert sorted(got + lost) == list(range(2000))
            assert got == sorted(got)
            assert got[-1] == 1999

    run(scenario())


HELD = """
import asyncio, quillcast, sys
async def main():
    async with quillcast.connect() as client:
        await client.subscribe("t").started()
        await client.publish("t/mine", b"event", wait="stable")
        print("ready", flush=True)
        await asyncio.sleep(1000)
quillcast.run(main())
"""


@asynccontextmanager
async def process(program: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a process of its own, when it is ready."""
    made = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert made.stdout is not None
    assert await made.stdout.readline() == b"ready\n"
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def until(node: Node, condition: Callable[[], object]) -> None:
    await node._pump.until(condition)


def test_what_a_client_had_ends_when_its_process_dies() -> None:
    async def scenario() -> None:
        async with Node() as node, process(HELD) as held:
            assert (count_of(node, "t"), count_of(node, "t/mine")) == ((0, 1), (1, 0))
            held.send_signal(signal.SIGKILL)
            await held.wait()
            await until(node, lambda: not node.status().clients)
            assert (count_of(node, "t"), count_of(node, "t/mine")) == ((0, 0), (0, 0))
            assert not node.status().problems

    run(scenario())


def test_a_client_that_is_stopped_delays_neither_publishers_nor_other_clients() -> None:
    async def scenario() -> None:
        live = LiveConfig(client_bytes=1 << 20)
        async with Node(live=live) as node, quillcast.connect() as client, process(HELD) as held:
            subscription = client.subscribe("t", only_payloads=True)
            await subscription.started()
            held.send_signal(signal.SIGSTOP)
            publisher = client.publisher("t")
            for _ in range(50):
                for _ in range(10):
                    await publisher.publish(bytes(100_000))
                await publisher.acknowledged("stable", timeout_s=10)
                assert len(await take(subscription, 10)) == 10
            assert node.status().clients == 2
            held.send_signal(signal.SIGCONT)

    run(scenario())


# --- the peer's end, and none at all


def test_clients_hear_that_their_peer_leaves() -> None:
    async def scenario() -> None:
        client = quillcast.connect()
        async with Node():
            await client.start()
            subscription = client.subscribe("t", only_payloads=True)
            await subscription.started()
            await client.publish("t", b"last", wait="stable")
        assert await anext(subscription) == b"last"
        for call in (
            subscription.batch,
            partial(client.publish, "t", b"more"),
            partial(client.create, "u"),
            client.status,
        ):
            with pytest.raises(quillcast.Unreachable, match=r"leaves its network; connect again"):
                await call()
        await client.leave()

    run(scenario())


HOST = """
import asyncio, quillcast
async def main():
    async with quillcast.Node():
        print("ready", flush=True)
        await asyncio.sleep(1000)
quillcast.run(main())
"""


def test_clients_hear_that_their_peer_was_killed() -> None:
    async def scenario() -> None:
        async with process(HOST) as host, quillcast.connect() as client:
            subscription = client.subscribe("t")
            await subscription.started()
            await client.publish("t", b"one", wait="stable")
            assert (await anext(subscription)).payload == b"one"
            host.send_signal(signal.SIGSTOP)
            waiting = asyncio.create_task(client.publish("t", b"two", wait="stable"))
            asked = asyncio.create_task(client.tree("t"))
            await asyncio.sleep(0)
            host.send_signal(signal.SIGKILL)
            for call in (anext(subscription), waiting, asked, client.publish("t", b"three")):
                with pytest.raises(quillcast.Unreachable, match=rf"process {host.pid}\) has ended"):
                    await call

    run(scenario())


def test_without_a_peer_the_error_says_what_to_start() -> None:
    async def scenario() -> None:
        with pytest.raises(quillcast.Unreachable, match="start one with: quillcast node"):
            await quillcast.connect().start()
        with pytest.raises(quillcast.LocalError, match="inside `async with"):
            await quillcast.connect().publish("t", b"")

    run(scenario())


def test_the_network_of_the_environment_is_that_of_programs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUILLCAST_NETWORK", "office")

    async def scenario() -> None:
        async with Node() as node, quillcast.connect():
            assert node.network == "office"
            with pytest.raises(quillcast.Unreachable, match=r"peers of: office \(--network, or network= in Python\)"):
                await quillcast.connect("attic").start()

    run(scenario())


def test_a_silent_peer_is_named() -> None:
    async def scenario() -> None:
        async with process(HOST) as host:
            host.send_signal(signal.SIGSTOP)
            with pytest.raises(quillcast.Unreachable, match=rf"process {host.pid}\) does not answer; is it stopped"):
                await quillcast.connect(live=LiveConfig(connect_timeout_s=0.2)).start()

    run(scenario())


def test_a_certain_peer_is_named_by_its_socket_or_folder(runtime: Path) -> None:
    async def scenario() -> None:
        async with Node(runtime_dir=runtime / "a"), Node(runtime_dir=runtime / "b") as other:
            path = PeerRegistry("default", runtime / "b").control_path(other.contact)
            for client in (quillcast.connect(socket=path), quillcast.connect(runtime_dir=runtime / "b")):
                async with client:
                    assert client.contact == other.contact
            with pytest.raises(quillcast.Unreachable, match="does it still run"):
                await quillcast.connect(socket=runtime / "absent" / "x.sock").start()

    run(scenario())


# --- what a client may not do


class Raw:
    """A client that says what it likes."""

    def __init__(self, node: Node, version: Any = VERSION) -> None:
        path = PeerRegistry("default").control_path(node.contact)
        self.own = socket.socket(socket.AF_UNIX)
        self.own.settimeout(10)
        self.own.connect(str(path))
        self.say(msgspec.json.encode({"ask": "connect", "version": version}) + b"\n")

    def say(self, data: bytes) -> None:
        self.own.sendall(data)

    def tell(self, *messages: Message) -> None:
        self.say(frame(FrameType.CONTROL, Codec.encode_all(list(messages))))

    async def line(self) -> control.Answer:
        loop = asyncio.get_running_loop()
        received = await loop.run_in_executor(None, self.own.recv, 1 << 16)
        return msgspec.json.decode(received, type=control.Answer)

    async def closed(self) -> None:
        """Wait until the peer closes the socket."""
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, _received, self.own):
            pass


def _received(own: socket.socket) -> bytes:
    try:
        return own.recv(1 << 16)
    except ConnectionError:
        return b""


def up(block: Block) -> bytes:
    bundle = Bundle(Envelope(bytes(16), UP), (block,))
    return frame(FrameType.BUNDLE, bundle.encode())


CONNECT = Connect(1 << 20, b"12345678", b"")
OPEN = OpenPublisher(1, "t", ME, None)
BLOCK = Block.seal(ME, 0, [b"event"], time_ns=0)
SUBSCRIBE = Subscribe(1, "t", "now", None, None, "", 1 << 16)


def control_frame(*messages: Message) -> bytes:
    return frame(FrameType.CONTROL, Codec.encode_all(list(messages)))


WRONG = {
    "garbage": b"\xff" * 100,
    "a frame that is too large at first": header(1 << 20, FrameType.CONTROL),
    "a bundle at first": up(BLOCK),
    "another message at first": control_frame(SUBSCRIBE),
    "two hellos": control_frame(CONNECT) + control_frame(CONNECT),
    "a frame that is too large": control_frame(CONNECT) + header(1 << 30, FrameType.BUNDLE),
    "no messages": control_frame(CONNECT) + frame(FrameType.CONTROL, b"\xc1\xc1"),
    "a peer's message": control_frame(CONNECT) + control_frame(ClosePublisher(1, 1 << 61)) + header(1, FrameType.HELLO)
    + b"x",
    "a block beyond the next": control_frame(CONNECT, OPEN) + up(Block.seal(ME, 5, [b"event"], time_ns=0)),
    "a publisher twice": control_frame(CONNECT) + control_frame(OPEN, OPEN),
    "a PublisherId twice": control_frame(CONNECT) + control_frame(OPEN, OpenPublisher(2, "t", ME, None)),
    "an invalid topic": control_frame(CONNECT) + control_frame(OpenPublisher(1, "a//b", ME, None)),
    "more taken than was sent": control_frame(CONNECT) + control_frame(SUBSCRIBE, Taken(1, 1)),
    "a subscription twice": control_frame(CONNECT) + control_frame(SUBSCRIBE, SUBSCRIBE),
    "a place in shared memory": control_frame(CONNECT) + frame(FrameType.SHARED_BUNDLE, bytes(200)),
}  # fmt: skip


def test_a_client_that_breaks_the_protocol_is_closed_and_the_peer_goes_on() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            subscription = client.subscribe("t")
            await subscription.started()
            for number, wrong in enumerate(WRONG.values()):
                raw = Raw(node)
                assert (await raw.line()).error is None
                raw.say(wrong)
                await raw.closed()
                await client.publish("t", b"%d" % number, wait="stable", timeout_s=5)
                assert (await anext(subscription)).payload == b"%d" % number
            status = node.status()
            assert status.clients == 1
            assert refused(node) == {"client": len(WRONG)}
            assert any("closed the connection of a client" in problem for problem in status.problems)

    run(scenario())


def any_bytes(chance: Random) -> bytes:
    """What a client may say: messages in any order, with numbers that fit and that do not, and bundles."""
    number, many = chance.randrange(3), chance.choice((0, 1, 5, 1 << 20, 1 << 62))
    topic = chance.choice(("t", "t/u", "", "a//b", "x" * 300))
    who = chance.choice((ME, b"o" * 16))
    warrant = chance.choice((None, Warrant(b"k" * 32, b"s" * 64)))
    messages = (
        Subscribe(
            number, topic, chance.choice(("now", "earliest", "")), None, warrant, "n" * chance.randrange(90), many
        ),
        Unsubscribe(number),
        Taken(number, many),
        OpenPublisher(number, topic, who, warrant),
        ClosePublisher(number, many),
        Ask(number, chance.choice((b"", b"\xc1", msgspec.msgpack.encode({"ask": "status"})))),
        CONNECT,
    )
    block = Block.seal(who, chance.randrange(3), [b"x"] * (1 + chance.randrange(3)), time_ns=0)
    return chance.choice(
        (control_frame(*chance.choices(messages, k=3)), control_frame(chance.choice(messages)), up(block))
    )


def test_whatever_clients_say_the_peer_goes_on() -> None:
    async def scenario() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, problem: problems.append(problem))
        async with hosting() as (node, client):
            subscription = client.subscribe("t", only_payloads=True)
            await subscription.started()
            for seed in range(150):
                chance, raw = Random(seed), Raw(node)
                assert (await raw.line()).error is None
                with suppress(OSError):  # it may be closed already
                    raw.tell(CONNECT)
                    for _ in range(8):
                        raw.say(any_bytes(chance))
                        await asyncio.sleep(0)
                raw.own.close()
            await until(node, lambda: node.status().clients == 1)
            await client.publish("t", b"last", wait="stable")
            async for payload in subscription:
                if payload == b"last":
                    break
            await until(node, lambda: count_of(node, "t") == (1, 1))
            assert problems == []

    run(scenario())


def test_a_client_that_floods_beyond_its_window_is_closed() -> None:
    async def scenario() -> None:
        config = Config(topics=TopicConfig(window_bytes=64 << 10, retain_bytes=64 << 10))
        async with hosting(config=config) as (node, client), Node(config=config) as far:
            await client.create("t", slow="wait")
            stuck = far.subscribe("t")  # it does not read
            await stuck.started()
            raw = Raw(node)
            await raw.line()
            raw.tell(CONNECT)
            raw.tell(OPEN)
            raw.say(b"".join(up(Block.seal(ME, number, [bytes(10_000)], time_ns=0)) for number in range(20)))
            await raw.closed()
            await until(node, lambda: node.status().clients == 1)
            assert "beyond the publisher's window" in " ".join(node.status().problems)

    run(scenario())


def test_a_client_that_comes_back_to_a_peer_that_still_has_its_publisher_goes_on() -> None:
    """So does a direct client whose server it took for dead."""

    async def scenario() -> None:
        async with hosting() as (node, client):
            subscription = client.subscribe("t", only_payloads=True)
            await subscription.started()
            for blocks in ([BLOCK], [BLOCK, Block.seal(ME, 1, [b"more"], time_ns=0)]):
                raw = Raw(node)
                await raw.line()
                raw.tell(CONNECT)
                raw.tell(OPEN)
                raw.say(b"".join(map(up, blocks)))
                assert await anext(subscription) == blocks[-1].payloads()[0]
                raw.own.close()
                await until(node, lambda: node.status().clients == 1)
                assert any(ME in each for each in node._peer.topics.publishing.publishers.values())
            assert refused(node) == {}

    run(scenario())


def test_a_subscription_may_end_before_it_has_started_and_twice() -> None:
    async def scenario() -> None:
        async with hosting() as (node, _):
            raw = Raw(node)
            await raw.line()
            raw.tell(CONNECT)
            raw.tell(SUBSCRIBE, Unsubscribe(1), Unsubscribe(1), Taken(1, 5), ClosePublisher(7, 0))
            raw.tell(OPEN, ClosePublisher(1, 0))
            await until(node, lambda: node.status().clients == 2)
            raw.own.close()
            await until(node, lambda: node.status().clients == 1)
            assert refused(node) == {}

    run(scenario())


def test_questions_that_make_no_sense_are_answered_so() -> None:
    async def scenario() -> None:
        async with hosting() as (node, client):
            questions: list[tuple[str, dict[str, Any]]] = [
                ("absent", {}),
                ("tree", {}),
                ("tree", {"topic": 5}),
                ("create", {"descriptor": ["t", ["reliable", "none"]], "timeout_s": 1.0}),
                ("create", {"descriptor": "t", "timeout_s": 1.0}),
                ("create", {"descriptor": ["a//b"], "timeout_s": 1.0}),
                ("change", {"name": "t", "wanted": {"absent": 1}, "timeout_s": 1.0, "signs": False, "signed": None}),
                ("change", {"name": "t", "wanted": {"slow": 1}, "timeout_s": 1.0, "signs": False, "signed": None}),
                ("change", {"name": 1, "wanted": {}, "timeout_s": "soon", "signs": False, "signed": None}),
                ("hold_ups", {"number": 99, "last": 1}),
            ]
            await client.create("t", slow="wait")
            for question, arguments in questions:
                malformed: Any = {"ask": question, **arguments}
                with pytest.raises(quillcast.QuillcastError):
                    await client._backend.ask(malformed, object, 5.0)
            await client.change("t", slow="cut")
            assert not node.status().problems

    run(scenario())


def test_one_that_never_says_hello_is_forgotten() -> None:
    async def scenario() -> None:
        async with hosting(0, live=LiveConfig(connect_timeout_s=0.1)) as (node,):
            raw = Raw(node)
            assert (await raw.line()).error is None
            assert node.status().clients == 1
            await raw.closed()
            assert node.status().clients == 0

    run(scenario())


@pytest.mark.parametrize("version", [99, None, "one"])
def test_a_client_of_another_version_is_told_so(version: Any) -> None:
    async def scenario() -> None:
        async with hosting(0) as (node,):
            answer = await Raw(node, version=version).line()
            assert f"version {version} of the clients' protocol" in (answer.error or "")
            assert node.status().clients == 0

    run(scenario())


def test_a_peer_of_a_version_without_clients_is_named() -> None:
    async def scenario() -> None:
        async with hosting(0) as (node,):
            path = PeerRegistry("default").control_path(node.contact)
            with pytest.raises(quillcast.LocalError, match="is not a question"):
                await control.connected(path, ConnectAsNeverBefore(), Welcome, timeout_s=5)

    run(scenario())


def test_other_users_cannot_connect(runtime: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("takes root, to be another user")
    runtime.chmod(0o755)

    async def scenario() -> None:
        async with hosting(0) as (node,):
            path = PeerRegistry("default").control_path(node.contact)
            for folder in (path.parent, *path.parent.parents[:2]):
                folder.chmod(0o755)
            program = f"import socket; socket.socket(socket.AF_UNIX).connect({str(path)!r})"
            asked = await asyncio.to_thread(
                subprocess.run, ["/usr/bin/env", "python3", "-c", program], user=65534, stderr=subprocess.PIPE
            )
            assert b"PermissionError" in asked.stderr

    run(scenario())


def test_a_client_imports_no_peer_and_no_cryptography() -> None:
    program = "import sys, quillcast; quillcast.connect; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "quillcast.live.clients.client" in loaded
    heavy = {"quillcast.protocol.peer", "quillcast.live.node.node", "quillcast.protocol.scopes.messages"}
    heavy |= {"cryptography", "tempfile", "uvloop"}
    assert loaded & heavy == set()


def test_calls_before_and_after_a_connection_say_so() -> None:
    async def scenario() -> None:
        async with hosting(0):
            client: Client = quillcast.connect()
            with pytest.raises(quillcast.LocalError, match="not connected"):
                _ = client.contact
            await client.start()
            with pytest.raises(quillcast.LocalError, match="a client can connect only once"):
                await client.start()
            await client.leave()
            await client.leave()
            with pytest.raises(quillcast.LocalError, match="has disconnected"):
                client.subscribe("t")

    run(scenario())
