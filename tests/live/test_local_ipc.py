"""Peers of one machine are linked by a Unix socket, and by TCP where that cannot be."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from quillcast.live.config import LiveConfig
from quillcast.live.node.host import new_incarnation
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport import addresses, local_ipc
from quillcast.live.transport import links as live_links
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from tests.live import toys
from tests.live.conftest import MODEST_BYTES
from tests.live.toys import ToyPeer, run, toy

pytestmark = pytest.mark.live

NOBODY = 65534


@pytest.fixture(autouse=True)
def modest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old kernels grant little unless told otherwise; these tests are about the rest."""
    monkeypatch.setattr(local_ipc, "BUFFER_BYTES", MODEST_BYTES)


def family(peer: ToyPeer, other: ToyPeer) -> int:
    """By what kind of socket a peer is linked with another."""
    connection = peer.links.links[other.contact.node_id].connection
    assert connection is not None
    own: socket.socket = connection.transport.stream.get_extra_info("socket")
    return own.family


async def exchange(alice: ToyPeer, bob: ToyPeer) -> int:
    """Have a link made and used both ways; its kind at either end."""
    alice.say(bob, "hello")
    await bob.until(lambda: bob.texts == ["hello"])
    bob.say(alice, "you too")
    await alice.until(lambda: alice.texts == ["you too"])
    assert family(alice, bob) == family(bob, alice)
    return family(alice, bob)


def test_peers_of_one_machine_are_linked_by_a_unix_socket() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            assert await exchange(alice, bob) == socket.AF_UNIX

    run(scenario())


def test_a_peer_without_a_local_socket_is_reached_by_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice:
            monkeypatch.setattr(toys, "LOCAL_IPC", False)
            async with toy() as bob:
                assert await exchange(alice, bob) == socket.AF_INET
            async with toy() as bob:
                bob.say(alice, "hello")
                await alice.until(lambda: alice.texts[-1] == "hello")
                assert family(alice, bob) == socket.AF_INET

    run(scenario())


def test_a_name_that_is_taken_is_said_and_peers_come_by_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(local_ipc, "_name", lambda address: f"\0quillcast test {os.getpid()}")
        async with toy() as alice, toy() as bob:
            assert not alice.links.problems
            assert list(bob.links.problems) == [
                f"peers of this machine connect by TCP: Address already in use: {bob.contact.address}"
            ]
            monkeypatch.setattr(local_ipc, "_name", lambda address: "\0nobody's")
            assert await exchange(alice, bob) == socket.AF_INET

    run(scenario())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user for a moment")
def test_a_name_that_another_user_took_is_no_peer_s() -> None:
    address = f"of the test process {os.getpid()}"
    with local_ipc.listener(address) as thief:
        os.seteuid(NOBODY)
        try:
            thief.listen()
        finally:
            os.seteuid(0)
        assert local_ipc.connected(address) is None
        thief.listen()
        own = local_ipc.connected(address)
        assert own is not None
        assert local_ipc.process(own) == (os.getpid(), 0)
        own.close()


def test_a_peer_behind_a_forwarded_port_is_reached_through_it() -> None:
    """A tunnel may count, hold up or cut what goes through it: peers of this machine go through it too."""

    async def scenario() -> None:
        links = Links(
            Pump(asyncio.get_running_loop()), Identity.new(), "toys", new_incarnation(), toys.ToyCodec, LiveConfig()
        )
        with socket.create_server(("127.0.0.1", 0)) as tunnel:
            port = tunnel.getsockname()[1]
            await links.serve(addresses.listener("127.0.0.1", 0), reached_at=("127.0.0.1", port))
            assert links.contact.address == f"127.0.0.1:{port}"
            assert local_ipc.connected(links.contact.address) is None
        await links.close()

    run(scenario())


def test_a_kernel_that_grants_too_little_memory_leaves_it_to_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            monkeypatch.setattr(local_ipc, "BUFFER_BYTES", 1 << 30)
            assert await exchange(alice, bob) == socket.AF_INET

    run(scenario())


def test_a_refused_peer_of_this_machine_is_named_by_its_process() -> None:
    async def scenario() -> None:
        async with toy("blue") as alice, toy("red") as bob:
            alice.say(bob, "hello")
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            line = f"closed the link with process {os.getpid()} of this machine: it belongs to the network 'blue'"
            assert bob.links.problems[-1].startswith(line)

    run(scenario())


class Hasty(asyncio.Protocol):
    """It ends as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_ends_as_it_is_made_closes_its_descriptor_once(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        own, other = socket.socketpair()
        number = own.fileno()
        await local_ipc.serve(asyncio.get_running_loop(), Hasty, own)
        other.settimeout(10)
        assert await asyncio.to_thread(other.recv, 1) == b""
        taken = os.open(os.devnull, os.O_RDONLY)
        assert taken == number, "the descriptor is another file's now"
        del own
        gc.collect()
        os.close(taken)  # raises if it was closed with the socket
        other.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


def test_a_process_has_ended_once_its_parent_may_learn_of_it_and_not_before() -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    async def scenario() -> None:
        assert not await local_ipc.has_ended(program.pid, 0.01)
        looking = asyncio.create_task(local_ipc.has_ended(program.pid, 30))
        program.kill()
        assert await looking
        assert await local_ipc.has_ended(program.pid, 30)
        program.communicate()
        assert await local_ipc.has_ended(program.pid, 30), "nobody has this number any more"

    run(scenario())


def test_a_process_that_closes_its_link_and_lives_has_not_died(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            await exchange(alice, bob)
            monkeypatch.setattr(live_links, "os", Elsewhere)
            bob.links.unplug()
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            assert await asyncio.gather(*alice.links._death_watches) == [None]
            assert "died" not in alice.order

    run(scenario())


class Elsewhere:
    """The observing process is not one of those observed."""

    @staticmethod
    def getpid() -> int:
        return 1
