"""Peers without their network's credential beside members: they take it on, or everybody is told."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast import LocalError, Node
from quillcast.live.admission import adoption
from quillcast.live.admission.adoption import STEPS, Adoption
from quillcast.live.admission.credentials import Credentials
from quillcast.live.admission.keyring import Keyring, user_folder
from quillcast.live.node import migration
from quillcast.protocol.topics.config import TopicConfig
from tests.cli.commands import Commands, commands
from tests.live.machines import machines

pytestmark = pytest.mark.live
QUICK = quillcast.Config()


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    quillcast.run(limited())


def make_credential(network: str = "n") -> str:
    """From now on the user's nodes are members of the network; its fingerprint."""
    keyring = Keyring(user_folder(network))
    return keyring.make_authority(network, time.time_ns()).fingerprint


@asynccontextmanager
async def plain(**options: Any) -> AsyncIterator[Node]:
    async with Node(network="n", config=QUICK, **options) as node:
        assert node.status().credential is None
        yield node


async def take(subscription: quillcast.Subscription[quillcast.Event], count: int) -> list[bytes]:
    async with asyncio.timeout(30):
        return [(await anext(subscription)).payload for _ in range(count)]


async def eventually(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)


def test_clients_of_a_peer_that_becomes_a_member_are_told_to_connect_again() -> None:
    async def scenario() -> None:
        async with plain() as host, quillcast.connect("n") as client:
            subscription = client.subscribe("t")
            await subscription.started()
            make_credential()
            async with Node(network="n", config=QUICK) as member:
                with pytest.raises(quillcast.Unreachable, match="connect again"):
                    await anext(subscription)
                async with quillcast.connect("n") as again:
                    assert again.contact in (host.contact, member.contact)
                    there = again.subscribe("t")
                    await there.started()
                    await member.publish("t", b"event", wait="stable")
                    assert (await anext(there)).payload == b"event"

    run(scenario())


def test_older_peers_become_members_and_lose_nothing() -> None:
    async def scenario() -> None:
        async with plain() as reader, plain() as writer:
            subscription = reader.subscribe("t")
            await subscription.started()
            publisher, former = writer.publisher("t"), reader.contact
            going_on = True

            async def publish() -> int:
                number = 0
                while going_on:
                    await publisher.publish(b"%d" % number)
                    number += 1
                    await asyncio.sleep(0.001)
                return number

            publishing = asyncio.create_task(publish())
            assert await take(subscription, 10) == [b"%d" % number for number in range(10)]
            fingerprint = make_credential()
            async with Node(network="n", config=QUICK) as member:
                assert member.admits
                assert member.notices == []
                for node in (reader, writer):
                    assert node.status().credential == fingerprint
                    assert "this peer has adopted the credential of network 'n'" in node.notices[0]
                assert reader.contact.node_id != former.node_id
                await asyncio.sleep(0.2)
                going_on = False
                count = await publishing
                await publisher.acknowledged("stable")
                assert await take(subscription, count - 10) == [b"%d" % number for number in range(10, count)]
                assert subscription.lost_count == 0
                await member.publish("t", b"from a member", wait="stable")
                assert await take(subscription, 1) == [b"from a member"]
                await writer.publish("t", b"again", wait="stable")
                assert await take(subscription, 1) == [b"again"]
                await eventually(lambda: len(list(member._startup.registry.entries())) == 3)

    run(scenario())


@asynccontextmanager
async def stalled(lease_s: float) -> AsyncIterator[asyncio.Task[None]]:
    """Somebody waits for an event to be stable that a lost subscriber holds back, while its node becomes a member."""
    config = quillcast.Config(topics=TopicConfig(lease_s=lease_s))
    async with Node(network="n", config=config) as writer, Node(network="n", config=config) as lost:
        subscription = lost.subscribe("t")
        await subscription.started()
        await writer.publish("t", b"before", wait="stable")
        lost.unplug()
        waiting = asyncio.create_task(writer.publish("t", b"held back", wait="stable", timeout_s=55))
        make_credential()
        async with Node(network="n", config=config):
            yield waiting


def test_a_former_network_is_left_when_what_was_published_there_is_stable() -> None:
    async def scenario() -> None:
        async with stalled(lease_s=6) as waiting:
            await waiting

    run(scenario())


def test_a_publisher_that_waits_in_a_former_network_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with stalled(lease_s=30) as waiting:
            with pytest.raises(quillcast.NotJoined, match="what it published to 't' was not acknowledged"):
                await waiting

    monkeypatch.setattr(migration, "_SAFE_S", -29.0)
    run(scenario())


def test_settings_handlers_and_access_lists_go_along() -> None:
    async def scenario() -> None:
        owner, guest = Credentials.new(), Credentials.new()
        async with plain() as reader, plain() as writer:
            await writer.create(
                "guests", credentials=owner, publishers=[guest.principal], subscribers=[guest.principal], slow="wait"
            )
            got: list[bytes] = []
            subscription = reader.subscribe(
                "guests", handler=lambda event: got.append(event.payload), credentials=guest
            )
            await subscription.started()
            await writer.publish("guests", b"before", credentials=guest, wait="stable")
            make_credential()
            async with Node(network="n", config=QUICK) as member:
                await subscription.started()
                await writer.publish("guests", b"after", credentials=guest, wait="stable")
                await eventually(lambda: len(got) == 2)
                assert got == [b"before", b"after"]
                with pytest.raises(quillcast.AccessDenied):
                    await member.publish("guests", b"nobody's", wait="root")

    run(scenario())


def test_a_subscription_closed_meanwhile_stays_closed_and_a_full_one_continues() -> None:
    async def scenario() -> None:
        small = quillcast.LiveConfig(subscription_bytes=2000)
        async with plain(live=small) as reader, plain() as writer:
            full, closed = reader.subscribe("t"), reader.subscribe("t")
            await full.started()
            await closed.started()
            for number in range(20):
                await writer.publish("t", b"%d" % number + bytes(500))
            make_credential()
            async with Node(network="n", config=QUICK):
                await closed.close()
                payloads = await take(full, 20)
                assert [int(payload.rstrip(b"\0")) for payload in payloads] == list(range(20))
                assert [event async for event in closed] == []
                await writer.publish("t", b"after", wait="root")
                assert await take(full, 1) == [b"after"]

    run(scenario())


def test_a_node_that_cannot_become_a_member_fails_and_both_sides_name_the_other(tmp_path: Path) -> None:
    """The member's identity is its data folder's alone: the user was not admitted."""

    async def scenario() -> None:
        Keyring(tmp_path / "data").make_authority("n", time.time_ns())
        told: list[str] = []
        async with plain(on_problem=told.append) as node:
            subscription, publisher = node.subscribe("t"), node.publisher("t")
            await subscription.started()
            await publisher.publish(b"before", wait="root")
            async with Node(network="n", config=QUICK, data=tmp_path / "data") as member:
                (notice,) = member.notices
                assert "is in network 'n' without its credential, and unreachable from here" in notice
                assert await take(subscription, 1) == [b"before"]
                with pytest.raises(LocalError, match=r"process \d+ of this machine has the credential of network 'n'"):
                    await anext(subscription)
                with pytest.raises(LocalError, match="this user was not admitted to it; start it again with --join"):
                    await publisher.publish(b"after")
            await eventually(lambda: told)
            async with Node(network="n", config=QUICK, data=tmp_path / "data"):
                with pytest.raises(LocalError, match="this peer is not: use --join"):
                    await Node(network="n", config=QUICK).start()

    run(scenario())


def test_members_of_two_networks_of_one_name_name_each_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        for name in ("one", "two"):
            Keyring(tmp_path / name).make_authority("n", time.time_ns())
        async with Node(network="n", data=tmp_path / "one") as older, Node(network="n", data=tmp_path / "two") as newer:
            (notice,) = newer.notices
            assert f"in network 'n' with another credential ({older.status().credential}), and unreachable" in notice
            await eventually(lambda: "certificate" in str(older.status().problems))

    run(scenario())


def test_an_identity_that_was_given_cannot_be_a_members() -> None:
    async def scenario() -> None:
        from quillcast.live.transport.hello import Identity

        async with plain(identity=Identity.new()) as node:
            subscription = node.subscribe("t")
            await subscription.started()
            make_credential()
            async with Node(network="n", config=QUICK):
                with pytest.raises(LocalError, match="identity is for networks without a credential"):
                    await anext(subscription)

    run(scenario())


def test_a_peer_that_starts_while_the_credential_is_made_becomes_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """It found none when it looked, and a member when it entered itself among the peers of the machine."""

    async def scenario() -> None:
        newcomer = Node(network="n", config=QUICK)
        find = newcomer._startup.resolver.find
        async with _Later() as later:

            async def found_none(timeout_s: float) -> Any:
                monkeypatch.setattr(newcomer._startup.resolver, "find", find)
                make_credential()
                later.member = Node(network="n", config=QUICK)
                await later.member.start()

            monkeypatch.setattr(newcomer._startup.resolver, "find", found_none)
            async with newcomer:
                assert newcomer.status().credential is not None

    run(scenario())


class _Later:
    """A node that begins in the midst of something."""

    member: Node

    async def __aenter__(self) -> "_Later":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.member.leave()


@pytest.mark.parametrize("asked", STEPS[:2])
def test_steps_continue_after_the_other_side_stops_asking(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        taken: list[str] = []
        tasks: list[asyncio.Task[None]] = []

        def step(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
            async def take_it() -> None:
                taken.append(name)

            return take_it

        going = Adoption({name: step(name) for name in STEPS}, lambda work: tasks.append(asyncio.create_task(work)))
        await going.take(asked)
        await going.take("join")
        assert taken == list(STEPS[: STEPS.index(asked) + 1])
        await asyncio.gather(*tasks)
        assert taken == list(STEPS)
        with pytest.raises(LocalError, match="'jump' is not a step"):
            await going.take("jump")

    monkeypatch.setattr(adoption, "STEP_S", 0.001)
    run(scenario())


@pytest.fixture
def here(tmp_path: Path) -> Any:
    with commands(tmp_path / "runtime") as made:
        yield made


def test_commands_that_cannot_become_members_end_with_an_error(here: Commands, tmp_path: Path) -> None:
    Keyring(tmp_path / "data").make_authority("test", time.time_ns())
    subscriber, publisher = here.subscribed("t"), here.start("pub", "t")
    publisher.write("one\n")
    assert subscriber.line() == "one"
    node = here.start("node", "--data", str(tmp_path / "data"))
    assert f"process {node.process.pid} of this machine has the credential" in subscriber.end()[2]
    assert subscriber.process.returncode == 2
    publisher.write("two\n")
    assert publisher.end()[0] == 2
    code, _, err = here.run("pub", "t", "x")
    assert (code, err.count("\n")) == (2, 1)
    assert f"process {node.process.pid} is a member" in err


@pytest.mark.slow
def test_the_readmes_order_loses_no_subscriber(tmp_path: Path) -> None:
    """A subscriber, then the credential, then a publisher; and one on a second machine."""
    with machines(tmp_path) as net:
        first, second = net.make(), net.make()
        older = first.start("sub", "sport/tennis")
        assert "alone so far" in older.line(2)
        node = first.start("node", "--listen", f"{first.host}:0")
        node.line()
        line = node.line().split('"')[1]
        assert first.run("pub", "sport/tennis", "hello") == (0, "", "")
        assert older.line() == "hello"
        assert second.run("pub", "sport/tennis", "from afar", "--join", line)[0] == 0
        assert older.line() == "from afar"
        plain_there = second.start("sub", "sport/tennis", "--count", "1")
        plain_there.line(2)
        assert first.run("pub", "sport/tennis", "to both")[0] == 0
        assert plain_there.end()[:2] == (0, "to both\n")
        assert older.line() == "to both"
        older.signal(signal.SIGINT)
        assert older.end()[0] in (130, -signal.SIGINT)
