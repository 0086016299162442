"""Applications that are served past the peer of their machine (figure 21, left and center)."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quillcast
from quillcast import LiveConfig, Node
from quillcast.cli import scopeview
from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import UP, Envelope
from quillcast.core.ids import ring_distance, topic_id
from quillcast.core.status.peers import NodeStatus
from quillcast.live.clients import proxy
from quillcast.live.clients import visit as visiting
from quillcast.live.clients.client import Client
from quillcast.live.clients.messages import NOBODY, VERSION, Call, Connect, Directed
from quillcast.live.discovery import control
from quillcast.live.discovery.questions import (
    CreateQuestion,
    InviteClientQuestion,
    InviteQuestion,
    InviteToScopeQuestion,
    RevokeClientQuestion,
    StatusQuestion,
    TakeCredentialQuestion,
    TreeQuestion,
)
from quillcast.live.discovery.registry import PeerRegistry
from quillcast.live.transport.framing import FrameType, frame
from quillcast.live.transport.hello import Identity
from quillcast.protocol.topics.descriptor import described
from tests.cli.commands import topic_near
from tests.live.test_adoption import eventually, make_credential
from tests.live.test_clients import HELD, count_of, process, refused, until
from tests.live.test_node import run, take

pytestmark = pytest.mark.live

CALL = Call(VERSION, b"c" * 16, b"guess", Connect(1 << 20, bytes(8), b""))


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a short name: these tests connect to sockets below it, whose names are limited."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


CONTROLLER = """
import asyncio, quillcast, sys
from quillcast.live.transport.hello import Identity
async def main():
    identity = Identity.of_secret(bytes.fromhex(sys.argv[1]))
    async with quillcast.Node(identity=identity, scope=sys.argv[2] if sys.argv[2:] else None):
        print("ready", flush=True)
        await asyncio.sleep(1000)
quillcast.run(main())
"""


class Controller:
    """A peer in a process of its own, through which clients connect."""

    def __init__(self, made: asyncio.subprocess.Process, identity: Identity) -> None:
        self.made, self.identity = made, identity

    def stop(self) -> None:
        self.made.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Afterwards it takes nothing more, and nobody here has noticed yet."""
        self.made.kill()
        os.waitid(os.P_PID, self.made.pid, os.WEXITED | os.WNOWAIT)

    @property
    def control_path(self) -> Path:
        found = {entry.node_id: entry for entry in PeerRegistry("default").running()}
        return PeerRegistry("default").control_path(found[self.identity.node_id.hex()].contact)

    def connect(self, **options: Any) -> Client:
        """A client of it that is served directly."""
        return quillcast.connect(socket=self.control_path, **{"receive": "direct", "publish": "direct", **options})


@asynccontextmanager
async def controller(identity: Identity | None = None, *more: str) -> AsyncIterator[Controller]:
    identity = identity or Identity.new()
    arguments = [sys.executable, "-c", CONTROLLER, identity.secret.hex(), *more]
    made = await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE)
    assert made.stdout is not None
    assert await made.stdout.readline() == b"ready\n"
    try:
        yield Controller(made, identity)
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


@pytest.mark.parametrize("local_ipc", [True, False], ids=["local IPC", "TCP"])
def test_data_goes_on_both_ways_while_the_local_controller_is_stopped(local_ipc: bool) -> None:
    async def scenario() -> None:
        async with Node() as server, Node() as other, controller() as host:
            topic = topic_near(server.contact.node_id.hex())
            there = other.subscribe(topic, only_payloads=True)
            await there.started()
            async with host.connect(live=LiveConfig(local_ipc=local_ipc)) as client:
                here = client.subscribe(topic, only_payloads=True)
                await here.started()
                await client.publish(topic, b"before", wait="root")
                host.stop()
                for number in range(100):
                    await client.publish(topic, b"%d" % number * 1000, wait="root")
                    await other.publish(topic, b"%d" % number, wait="root")
                expected = {b"before", *(b"%d" % n * 1000 for n in range(100)), *(b"%d" % n for n in range(100))}
                for subscription in (here, there):
                    assert set(await take(subscription, 201)) == expected
                assert here.lost_count == 0
                assert count_of(server, topic) == (1, 1), "the server publishes and subscribes for the client"

    run(scenario())


SITE = """
name = "site"

[admission]
members = [{members}]
"""


def test_two_devices_of_a_scope_receive_directly_while_their_controllers_are_stopped(runtime: Path) -> None:
    async def scenario() -> None:
        entry, *devices = identities = [Identity.new() for _ in range(3)]
        file = runtime / "site.toml"
        file.write_text(SITE.format(members=", ".join(f'"{each.node_id.hex()}"' for each in identities)))
        async with Node(data=runtime / "data") as manager, Node() as outside:
            await manager.manage_scope(file)
            scope, topic = f"site@{manager.address}", topic_near(outside.contact.node_id.hex())
            async with (
                Node(identity=entry, scope=scope) as server,
                controller(devices[0], scope) as first,
                controller(devices[1], scope) as second,
                first.connect(name="first", publish="proxy") as one,
                second.connect(name="second", publish="proxy") as two,
            ):
                readers = [each.subscribe(topic, only_payloads=True) for each in (one, two)]
                for reader in readers:
                    await reader.started()
                assert count_of(server, topic) == (0, 2), "the manager names the scope's entry point"
                ((status,), names) = manager.scopes(), {"first", "second"}
                assert {client.name for client in status.clients if client.topics == (topic,)} == names
                assert {(client.receives, client.publishes) for client in status.clients} == {("direct", "")}
                assert " direct    -          " in "\n".join(scopeview.members(status))
                for device in (first, second):
                    device.stop()
                for number in range(10):
                    await outside.publish(topic, b"%d" % number, wait="root")
                for reader in readers:
                    assert await take(reader, 10) == [b"%d" % number for number in range(10)]

    run(scenario())


def test_devices_of_a_scope_share_one_controller_and_receive_and_publish_directly_while_it_is_stopped(
    runtime: Path,
) -> None:
    """The library is a member of a scope: one local controller for several controlled elements."""

    async def scenario() -> None:
        entry, shared = identities = [Identity.new() for _ in range(2)]
        file = runtime / "site.toml"
        file.write_text(SITE.format(members=", ".join(f'"{each.node_id.hex()}"' for each in identities)))
        async with Node(data=runtime / "data") as manager, Node() as outside:
            await manager.manage_scope(file)
            scope, topic = f"site@{manager.address}", topic_near(outside.contact.node_id.hex())
            async with Node(identity=entry, scope=scope) as server, controller(shared, scope) as library:
                line = control.ask(library.control_path, InviteClientQuestion(), str)
                direct = {"line": line, "receive": "direct", "publish": "direct", "live": LiveConfig(local_ipc=False)}
                async with (
                    quillcast.connect(name="one", **direct) as one,
                    quillcast.connect(name="two", **direct) as two,
                    quillcast.connect(name="three", **direct) as three,
                ):
                    readers = [each.subscribe(topic, only_payloads=True) for each in (one, two)]
                    for reader in readers:
                        await reader.started()
                    await three.publish(topic, b"before", wait="root")
                    assert count_of(server, topic) == (1, 2), "the manager names the scope's entry point"
                    ((status,), host) = manager.scopes(), shared.node_id.hex()
                    patterns = {each.name: (each.host, each.receives, each.publishes) for each in status.clients}
                    reads = (host, "direct", "")
                    assert patterns == {"one": reads, "two": reads, "three": (host, "", "direct")}
                    library.stop()
                    await three.publish(topic, b"from a device", wait="root")
                    await outside.publish(topic, b"from outside", wait="root")
                    for reader in readers:
                        assert set(await take(reader, 3)) == {b"before", b"from a device", b"from outside"}

    run(scenario())


def test_devices_without_a_peer_of_their_own_receive_directly_while_the_one_they_share_is_stopped() -> None:
    """The library's server and the laptops of the paper."""

    async def scenario() -> None:
        async with Node() as server, controller() as library:
            line = control.ask(library.control_path, InviteClientQuestion(), str)
            direct = {"line": line, "receive": "direct", "live": LiveConfig(local_ipc=False)}
            async with quillcast.connect(**direct) as laptop, quillcast.connect(**direct) as other:
                topic = topic_near(server.contact.node_id.hex())
                readers = [each.subscribe(topic, only_payloads=True) for each in (laptop, other)]
                for reader in readers:
                    await reader.started()
                assert laptop.contact.node_id == library.identity.node_id
                assert (await laptop.status()).clients == 2
                await laptop.publish(topic, b"through the library", wait="root")
                library.stop()
                await server.publish(topic, b"directly", wait="root")
                for reader in readers:
                    assert await take(reader, 2) == [b"through the library", b"directly"]

    run(scenario())


def test_a_line_for_clients_gives_what_applications_need_and_no_more() -> None:
    async def scenario() -> None:
        async with Node() as node:
            line = node.invite_client()
            async with quillcast.connect(line=line) as client:
                assert (await client.create("t")).name == "t"
                subscription = client.subscribe("t")
                await subscription.started()
                await client.publish("t", b"event", wait="stable")
                assert (await anext(subscription)).payload == b"event"
                for question in (
                    InviteQuestion({}), InviteClientQuestion(), RevokeClientQuestion("all"), InviteToScopeQuestion("s"),
                    TakeCredentialQuestion("", "", 0),
                ):  # fmt: skip
                    with pytest.raises(quillcast.LocalError, match="is not a question"):
                        await client._control.ask(question, object, 5.0)
        with pytest.raises(quillcast.Unreachable, match=rf"cannot reach the peer at {node.address} .* nobody listens"):
            await quillcast.connect(line=line).start()

    run(scenario())


def test_the_command_prints_a_line_for_clients() -> None:
    async def scenario() -> None:
        async with Node() as node:
            command = [sys.executable, "-m", "quillcast", "node", "--invite-client", "--json"]
            ran = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
            said, _ = await ran.communicate()
            async with quillcast.connect(line=msgspec.json.decode(said)["line"]) as client:
                assert client.contact == node.contact

    run(scenario())


ADDRESS = "127.0.0.1:1/" + "ab" * 16


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("quillcast://127.0.0.1:1/abc", "that is not a line for clients; it looks like quillcast-client://HOST:PORT"),
        (f"quillcast-client://{ADDRESS}", "the line has no secret; copy the whole line"),
        (f"quillcast-client://{ADDRESS}?secret=s&token=t", "'token' is not part of a line for clients"),
        ("quillcast-client://127.0.0.1:1/abc?secret=s", "'abc' has not 32 hexadecimal digits; copy the whole line"),
        (f"quillcast-client://{ADDRESS}?secret=s&authority=12", "'12' has not 64 hexadecimal digits"),
        (f"quillcast-client://nowhere/{'ab' * 16}?secret=s", "'nowhere' is not an address"),
        (5, "line = 5 is int; use the line that `quillcast node --invite-client` prints"),
    ],
)
def test_a_line_with_a_mistake_says_which(line: Any, why: str) -> None:
    with pytest.raises(quillcast.LocalError) as refused:
        quillcast.connect(line=line)
    assert why in str(refused.value)


def test_a_line_of_a_peer_that_was_started_again_is_refused() -> None:
    async def scenario() -> None:
        identity = Identity.new()
        async with Node(identity=identity) as node:
            address, line = node.address, node.invite_client()
        async with Node(identity=identity, listen=address) as node:
            with pytest.raises(quillcast.Unreachable, match="or this peer was restarted; get another line"):
                await quillcast.connect(line=line).start()
            assert refused(node) == {"client": 1}

    run(scenario())


@pytest.mark.parametrize("pattern", ["proxy", "direct"])
def test_a_line_that_is_revoked_lets_nobody_in_and_disconnects_its_clients_everywhere(pattern: str) -> None:
    async def scenario() -> None:
        async with Node() as host, Node() as server:
            revoked, kept = host.invite_client(), host.invite_client()
            how = {"receive": pattern, "publish": pattern}
            async with quillcast.connect(line=revoked, **how) as one, quillcast.connect(line=kept, **how) as other:
                subscriptions = [client.subscribe("t") for client in (one, other)]
                for subscription in subscriptions:
                    await subscription.started()
                publisher = one.publisher("t")
                await publisher.publish(b"before", wait="root")
                assert host.revoke_client(revoked) == 1
                await until(host, lambda: host.status().clients == 1)
                await until(server, lambda: server.status().clients == (pattern == "direct"))
                await server.publish("t", b"after", wait="root")
                assert [event.payload for event in await take(subscriptions[1], 2)] == [b"before", b"after"]
                assert (await anext(subscriptions[0])).payload == b"before"
                for call in (anext(subscriptions[0]), publisher.publish(b"late", wait="root"), one.status()):
                    with pytest.raises(quillcast.Unreachable, match="the line with which it connected was revoked"):
                        await call
            with pytest.raises(
                quillcast.Unreachable,
                match=r"does not serve this client: .* it was revoked",
            ):
                await quillcast.connect(line=revoked).start()
            with pytest.raises(quillcast.LocalError, match="not valid here: it was revoked, or"):
                host.revoke_client(revoked)
            assert not host.status().problems[:-1]

    run(scenario())


def test_the_command_revokes_a_line_or_all_of_them() -> None:
    async def scenario() -> None:
        async with Node() as node:

            async def revoke(line: str, *more: str) -> tuple[int | None, str]:
                command = [sys.executable, "-m", "quillcast", "node", "--revoke-client", line, *more]
                made = await asyncio.create_subprocess_exec(
                    *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
                )
                said, _ = await made.communicate()
                return made.returncode, said.decode().strip()

            one, two = node.invite_client(), node.invite_client()
            async with quillcast.connect(line=two):
                assert await revoke(one) == (0, "the line is revoked; disconnected clients: 0")
                code, said = await revoke(one)
                assert (code != 0, "not valid here: it was revoked" in said, one not in said) == (True, True, True)
                assert await revoke("all", "--json") == (0, '{"disconnected":1}')

    run(scenario())


def test_in_a_network_with_a_credential_the_server_shows_its_certificate() -> None:
    async def scenario() -> None:
        make_credential()
        async with Node(network="n") as host, Node(network="n") as server:
            live = LiveConfig(local_ipc=False)
            async with quillcast.connect(
                line=host.invite_client(), receive="direct", publish="direct", live=live
            ) as client:
                assert client.contact == host.contact
                here, there = client.subscribe("t"), server.subscribe("t")
                await here.started()
                await there.started()
                await client.publish("t", b"one", wait="stable")
                await server.publish("t", b"two", wait="stable")
                for subscription in (here, there):
                    assert [event.payload for event in await take(subscription, 2)] == [b"one", b"two"]
                assert (host.status().clients, server.status().clients) == (1, 1)

    run(scenario())


def test_topics_with_access_lists_are_for_direct_clients_with_credentials_too() -> None:
    async def scenario() -> None:
        owner = quillcast.Credentials.new()
        async with Node() as host, Node(), quillcast.connect(receive="direct", publish="direct") as client:
            assert client.contact == host.contact
            await client.create("t", credentials=owner, publishers=[owner.principal], subscribers=[owner.principal])
            subscription = client.subscribe("t", credentials=owner)
            await subscription.started()
            await client.publish("t", b"mine", credentials=owner, wait="root")
            assert (await anext(subscription)).payload == b"mine"
            for call in (client.publish("t", b"not mine", wait="root"), client.subscribe("t").started()):
                with pytest.raises(quillcast.AccessDenied):
                    await call

    run(scenario())


def test_a_topic_that_is_rooted_at_its_creator_is_used_directly_too() -> None:
    async def scenario() -> None:
        async with Node(), Node() as other, quillcast.connect(receive="direct", publish="direct") as client:
            topic = f"{other.contact.node_id.hex()}:t"
            subscription = client.subscribe(topic)
            await subscription.started()
            await client.publish(topic, b"event", wait="stable")
            assert (await anext(subscription)).payload == b"event"

    run(scenario())


def test_what_only_some_need_is_imported_when_a_server_is_visited() -> None:
    told = "import sys, quillcast.live.clients.direct; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    assert "quillcast.live.clients.continued" in imported
    assert not {"cryptography.x509", "quillcast.protocol.scopes.clients"} & {*imported}


# --- ends


def identity_between(topic: str, root: Node, other: Node) -> Identity:
    """One that is further from the topic than its root is, and closer than another peer."""
    root_at, other_at = sorted(ring_distance(each.contact.node_id, topic_id(topic)) for each in (root, other))
    identities = (Identity.new() for _ in count())
    return next(each for each in identities if root_at < ring_distance(each.node_id, topic_id(topic)) < other_at)


@pytest.mark.parametrize(
    ("admission", "is_root"), [("root", True), ("root", False), ("source", False)], ids=["the root", "root", "source"]
)
def test_a_server_that_dies_is_replaced_and_nothing_is_lost_or_repeated(admission: str, is_root: bool) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as running:
            host, other = [await running.enter_async_context(Node()) for _ in range(2)]
            topic = topic_near(host.contact.node_id.hex())
            third = await running.enter_async_context(
                controller(None if is_root else identity_between(topic, host, other))
            )
            if is_root:
                topic = topic_near(third.identity.node_id.hex())
            await other.create(topic, admission=admission)
            there = other.subscribe(topic, only_payloads=True)
            await there.started()
            async with quillcast.connect(receive="direct", publish="direct") as client:
                assert client.contact == host.contact
                here, publisher = client.subscribe(topic, only_payloads=True), client.publisher(topic)
                started = await here.started()
                own, others = [[b"%s %d" % (who, number) for number in range(2000)] for who in (b"own", b"other")]
                for number, (mine, theirs) in enumerate(zip(own, others, strict=True)):
                    await publisher.publish(mine)
                    await other.publish(topic, theirs)
                    if number == 1000:  # what the server has and the client has not may be lost (docs/clients.md)
                        before = await take(here, 2 * number + 2)
                        third.kill()
                    if number % 50 == 0:
                        await asyncio.sleep(0.001)
                await publisher.acknowledged("root", timeout_s=10)
                for subscription, first in ((here, before), (there, [])):
                    came = first + await take(subscription, 4000 - len(first))
                    assert [each for each in came if each.startswith(b"own")] == own
                    assert [each for each in came if each.startswith(b"other")] == others
                    assert subscription.lost == []
                assert await here.started() == started
                assert count_of(other, topic) == (2, 2)

    run(scenario())


def test_a_server_that_is_stopped_is_replaced_and_when_it_wakes_nothing_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with Node() as host, Node() as other:
            topic = topic_near(host.contact.node_id.hex())
            there = other.subscribe(topic, only_payloads=True)
            await there.started()
            async with (
                controller(identity_between(topic, host, other)) as third,
                quillcast.connect(receive="direct", publish="direct") as client,
            ):
                here, publisher = client.subscribe(topic, only_payloads=True), client.publisher(topic)
                await here.started()
                await publisher.publish(b"before", wait="root")
                third.stop()
                expected = [b"before", *(b"%d" % number for number in range(200))]
                for payload in expected[1:]:
                    await publisher.publish(payload)
                await publisher.acknowledged("root", timeout_s=20)
                assert count_of(other, topic) == (1, 2)
                third.made.send_signal(signal.SIGCONT)
                await eventually(lambda: not control.ask(third.control_path, StatusQuestion(), NodeStatus).clients)
                await publisher.publish(b"after", wait="root")
                for subscription in (here, there):
                    assert await take(subscription, 202) == [*expected, b"after"]
                    assert subscription.lost == []

    monkeypatch.setattr(proxy, "_PING_EVERY_S", 0.3)
    run(scenario())


def test_a_server_that_the_client_cannot_reach_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Node() as host, Node() as one, Node() as two:
            topic = topic_near(one.contact.node_id.hex())
            refused: list[bytes] = []

            async def visit(directed: Directed, *more: Any) -> None:
                if directed.server == one.contact:
                    refused.append(directed.server.node_id)
                    raise quillcast.Unreachable(f"cannot reach the peer at {one.address}")
                await visit_really(directed, *more)

            visit_really = visiting.visit
            monkeypatch.setattr(visiting, "visit", visit)
            async with quillcast.connect(receive="direct", publish="direct") as client:
                assert client.contact == host.contact
                subscription = client.subscribe(topic)
                await subscription.started()
                await client.publish(topic, b"event", wait="stable")
                assert (await anext(subscription)).payload == b"event"
                assert count_of(two, topic) == (1, 1)
                assert len(refused) == 2
                await two.leave()
                why = rf"leaves its network; .* directly: .* cannot reach {re.escape(one.address)}"
                with pytest.raises(quillcast.Unreachable, match=why):
                    await anext(subscription)

    run(scenario())


def test_a_server_that_leaves_is_replaced_before_it_ends() -> None:
    async def scenario() -> None:
        async with Node() as host, Node() as other, Node() as server:
            topic = topic_near(server.contact.node_id.hex())
            there = other.subscribe(topic, only_payloads=True)
            await there.started()
            async with quillcast.connect(receive="direct", publish="direct") as client:
                assert client.contact == host.contact
                here, publisher = client.subscribe(topic, only_payloads=True), client.publisher(topic)
                await here.started()
                await publisher.publish(b"0")
                leaving = asyncio.create_task(server.leave())
                for number in range(1, 1000):
                    await publisher.publish(b"%d" % number)
                    if number % 50 == 0:
                        await asyncio.sleep(0)
                await leaving
                await publisher.acknowledged("root", timeout_s=10)
                for subscription in (here, there):
                    assert await take(subscription, 1000) == [b"%d" % number for number in range(1000)]
                    assert subscription.lost == []

    run(scenario())


def test_a_server_that_is_stopped_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Node(), controller() as server, quillcast.connect(receive="direct") as client:
            topic = topic_near(server.identity.node_id.hex())
            subscription = client.subscribe(topic)
            await subscription.started()
            assert client._direct is not None
            _, at = client._direct.proxies()
            at.watch()
            await eventually(lambda: at._link.unanswered == 0)
            server.stop()
            monkeypatch.setattr(proxy, "_PING_EVERY_S", 0.01)
            at.watch()
            silent = (
                r"was closed: it did not answer for 0\.03 s; is it stopped\?; no other peer can serve this client; "
            )
            with pytest.raises(quillcast.Unreachable, match=silent):
                await anext(subscription)

    run(scenario())


def test_a_server_that_leaves_says_so_and_has_what_was_published() -> None:
    async def scenario() -> None:
        async with Node(), Node() as other, quillcast.connect(receive="direct", publish="direct") as client:
            subscription, publisher = client.subscribe("t"), client.publisher("t")
            await subscription.started()
            await publisher.publish(b"last", wait="stable")
            await other.leave()
            assert (await anext(subscription)).payload == b"last"
            for call in (anext(subscription), publisher.publish(b"late")):
                with pytest.raises(
                    quillcast.Unreachable, match="leaves its network; no other peer can serve this client; "
                ):
                    await call

    run(scenario())


def test_data_goes_on_when_the_local_controller_dies_and_what_is_new_fails() -> None:
    async def scenario() -> None:
        async with Node() as server, Node() as other, controller() as host, host.connect() as client:
            topic = topic_near(server.contact.node_id.hex())
            subscription = client.subscribe(topic)
            await subscription.started()
            publisher = client.publisher(topic)
            await publisher.publish(b"before", wait="root")
            host.made.kill()
            await other.publish(topic, b"during", wait="root")
            await publisher.publish(b"after", wait="root")
            assert [event.payload for event in await take(subscription, 3)] == [b"before", b"during", b"after"]
            with pytest.raises(quillcast.Unreachable, match="connect again"):
                await client.subscribe("another").started()

    run(scenario())


def test_a_direct_client_that_dies_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        direct = HELD.replace("connect()", "connect(receive='direct', publish='direct')")
        async with Node() as host, Node() as server, process(direct) as held:
            assert (count_of(server, "t"), count_of(server, "t/mine")) == ((0, 1), (1, 0))
            held.kill()
            await held.wait()
            for node in (host, server):
                await until(node, lambda node=node: not node.status().clients)
                assert (count_of(node, "t"), count_of(node, "t/mine")) == ((0, 0), (0, 0))
                assert not node.status().problems
            assert not any(guest.connections for guest in server._peer.scoping.direct.guests.known.values())

    run(scenario())


def test_a_subscription_that_is_closed_is_forgotten_by_both_peers() -> None:
    async def scenario() -> None:
        async with Node() as host, Node() as server, quillcast.connect(receive="direct") as client:
            for number in range(300):
                async with client.subscribe(f"t/{number}") as subscription:
                    if number % 2:
                        await subscription.started()
            (session,) = host._presence.clients._sessions
            await eventually(lambda: not session._directed)
            await eventually(lambda: not any(each.subscriptions for each in server.status().topics))
            assert client._direct is not None
            assert (client._direct._handles, +client._direct._by_topic) == ({}, {})

    run(scenario())


# --- what a direct client may not do, and what it costs


def test_a_direct_client_that_is_stopped_delays_nobody() -> None:
    async def scenario() -> None:
        direct = HELD.replace("connect()", "connect(receive='direct', publish='direct')")
        live = LiveConfig(client_bytes=1 << 20)
        async with Node(live=live) as host, Node(live=live), process(direct) as held:
            held.send_signal(signal.SIGSTOP)
            publisher = host.publisher("t")
            for _ in range(200):
                await publisher.publish(bytes(100_000))
            await publisher.acknowledged("root", timeout_s=10)

    run(scenario())


class Stranger:
    """Somebody who calls a peer and says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def told(self, content: bytes) -> bytes:
        """All that the peer says to this."""
        self.writer.write(frame(FrameType.CALL, content))
        said = await self.reader.read()
        self.writer.close()
        return said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"nonsense", "call of a client"),
        (msgspec.msgpack.encode(CALL), "this peer was not asked"),
        (msgspec.msgpack.encode(msgspec.structs.replace(CALL, client=NOBODY)), "its line is not valid here"),
        (msgspec.msgpack.encode(msgspec.structs.replace(CALL, version=99)), "speaks version 99"),
        (msgspec.msgpack.encode(msgspec.structs.replace(CALL, connect=Connect(1, bytes(8), b"", "a\nb"))), "one line"),
    ],
    ids=["no call", "a guess", "no line", "another version", "a bad name"],
)  # fmt: skip
def test_nobody_is_served_whom_no_peer_has_announced(content: bytes, why: str) -> None:
    async def scenario() -> None:
        async with Node(live=LiveConfig(local_ipc=False)) as node:
            host, port = node.address.split(":")
            said = await Stranger(*await asyncio.open_connection(host, int(port))).told(content)
            assert why in said.decode(errors="replace")
            (problem,) = node.status().problems
            assert why in problem
            assert (node.status().clients, node._presence.links.unauthenticated_count) == (0, 0)

    run(scenario())


def test_a_direct_client_that_breaks_the_protocol_is_disconnected_and_others_are_not() -> None:
    async def scenario() -> None:
        direct = {"receive": "direct", "publish": "direct"}
        async with Node(), Node() as server, quillcast.connect(**direct) as wild, quillcast.connect(**direct) as tame:
            subscriptions = [each.subscribe("t") for each in (wild, tame)]
            for subscription in subscriptions:
                await subscription.started()
            publisher = wild.publisher("t")
            await publisher.publish(b"event", wait="root")
            assert wild._direct is not None
            _, at = wild._direct.proxies()
            for number in range(5, 1000):
                block = Block.seal(publisher.id, number, [b"beyond the next"], time_ns=0)
                at.carry(Bundle(Envelope(bytes(16), UP), (block,)))
            assert [event.payload for event in await take(subscriptions[0], 1)] == [b"event"]
            with pytest.raises(quillcast.Unreachable, match="has ended, or closed the connection"):
                await anext(subscriptions[0])
            await tame.publish("t", b"tame", wait="root")
            assert [event.payload for event in await take(subscriptions[1], 2)] == [b"event", b"tame"]
            status = server.status()
            assert (status.clients, refused(server)) == (1, {"client": 1})
            assert "events from 5 came, but 1 is next" in status.problems[0]

    run(scenario())


def test_a_client_that_asks_for_thousands_of_servers_at_once_gets_them_in_turn() -> None:
    async def scenario() -> None:
        async with Node(), Node() as server, quillcast.connect(receive="direct") as client:
            subscriptions = [client.subscribe(f"t/{number % 100}") for number in range(2000)]
            for subscription in subscriptions:
                await subscription.started()
            assert sum(each.subscriptions for each in server.status().topics) == 2000

    run(scenario())


def test_a_guest_does_only_what_its_host_announced() -> None:
    async def scenario() -> None:
        async with Node(), Node() as server, quillcast.connect(receive="direct") as client:
            subscription = client.subscribe("t")
            await subscription.started()
            assert client._direct is not None
            _, proxy = client._direct.proxies()
            assert proxy.contact == server.contact
            for question in (CreateQuestion(described("t"), 1.0), StatusQuestion(), TreeQuestion("t")):
                with pytest.raises(quillcast.LocalError, match="is not a question"):
                    await proxy.ask(question, object, 5.0)
            inbox = client._make_inbox("")
            client._direct.pump.call(proxy.subscribe, "another", inbox)
            while inbox.failure is None:
                await inbox.changed()
            assert str(inbox.failure) == "its own peer has not asked to serve it in topic another"
            assert isinstance(inbox.failure, quillcast.AccessDenied)

    run(scenario())


def test_a_peer_that_is_alone_serves_its_clients_itself_or_not_at_all() -> None:
    async def scenario() -> None:
        async with Node() as node, quillcast.connect(receive="direct", publish="direct") as client:
            for call in (client.subscribe("t").started(), client.publish("t", b"x")):
                with pytest.raises(quillcast.Unreachable, match=rf"the peer at {node.address} knows no other peer"):
                    await call
        for option in ("receive", "publish"):
            with pytest.raises(quillcast.LocalError, match=f"{option} = 'directly' is not valid; use one of: proxy, d"):
                quillcast.connect(**{option: "directly"})

    run(scenario())
