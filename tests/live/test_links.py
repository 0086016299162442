"""Links between peers over real sockets: who is let in, what overtakes what, and what stays bounded."""

import asyncio
import gc
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.admission.authority import Authority
from quillcast.live.config import LiveConfig
from quillcast.live.transport import hello
from quillcast.live.transport.connection import Connection
from quillcast.live.transport.framing import FRAME_BYTES_MAX, FrameType, frame, header
from quillcast.live.transport.hello import Hello, Identity
from quillcast.live.transport.transport import Transport
from tests.calls import counted
from tests.live.toys import NETWORK, Said, ToyPeer, bundle, fill_socket, member, run, toy

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("way")]

SMALL = LiveConfig(window_bytes=64 << 10, write_bytes_max=32 << 10)


def test_the_first_message_opens_a_link_and_the_answer_comes_back_on_it() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            bob.say(alice, "you too")
            await alice.until(lambda: alice.texts == ["you too"])
            assert (alice.ups, bob.ups) == ([bob.contact.node_id], [alice.contact.node_id])

    run(scenario())


def test_two_peers_that_open_at_once_keep_one_link_and_lose_nothing() -> None:
    async def scenario() -> None:
        for _ in range(20):
            async with toy() as alice, toy() as bob:
                alice.say(bob, "from alice")
                bob.say(alice, "from bob")
                await alice.until(lambda alice=alice: alice.texts == ["from bob"])
                await bob.until(lambda bob=bob: bob.texts == ["from alice"])
                assert (alice.losses, bob.losses) == ([], [])
                assert (len(alice.ups), len(bob.ups)) == (1, 1)

    run(scenario())


def test_a_message_costs_the_same_beside_200_links_as_beside_20() -> None:
    async def cost(others: int) -> int:
        async with AsyncExitStack() as stack, toy() as hub:
            peers = [await stack.enter_async_context(toy()) for _ in range(others)]
            for peer in peers:
                peer.say(hub, "hello")
            await hub.until(lambda: len(hub.texts) == others)
            hub.links._flush()
            with counted() as calls:
                hub.say(peers[0], "you first")
                hub.links._flush()
            await peers[0].until(lambda: peers[0].texts == ["you first"])
            assert sorted(hub.ups) == sorted(peer.contact.node_id for peer in peers)
            assert hub.losses == []
            return calls.count

    async def scenario() -> None:
        assert await cost(200) <= 1.1 * await cost(20)

    run(scenario())


def test_many_peers_that_all_talk_at_once_have_one_link_per_pair() -> None:
    async def scenario() -> None:
        async with toy() as a, toy() as b, toy() as c, toy() as d, toy() as e:
            peers = [a, b, c, d, e]
            for one in peers:
                for other in peers:
                    if one is not other:
                        one.say(other, "hello")
            for peer in peers:
                await peer.until(lambda peer=peer: len(peer.texts) == 4)
                assert peer.losses == []
                assert len(peer.links.links) == 4

    run(scenario())


def test_control_overtakes_bundles_that_wait() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            link = alice.links.link(bob.contact)
            for first in range(3):
                link.carry(bundle(first=first))
            alice.say(bob, "urgent")
            await bob.until(lambda: len(bob.order) == 4)
            assert bob.order == ["message", "bundle", "bundle", "bundle"]

    run(scenario())


def test_there_is_room_again_only_when_the_bytes_have_left_the_other_peer() -> None:
    async def scenario() -> None:
        async with toy(config=SMALL) as alice, toy(config=SMALL) as bob:
            numbers = count()
            while alice.links.room(bob.contact) > 0:
                alice.links.link(bob.contact).carry(bundle(10_000, next(numbers)))
            await bob.until(lambda: len(bob.bundles) == 7)
            assert alice.rooms == []
            for sender, came in bob.bundles:
                bob.links.release(sender, came.size)
            await alice.until(lambda: alice.rooms == [bob.contact.node_id])
            assert alice.links.room(bob.contact) > 0

    run(scenario())


def test_a_little_credit_waits_for_more_whatever_else_is_written() -> None:
    async def scenario() -> None:
        async with toy(config=SMALL) as alice, toy(config=SMALL) as bob:
            for number, size_bytes, text in ((0, 100, "a lone event"), (1, 2000, "and more")):
                alice.links.link(bob.contact).carry(bundle(size_bytes, number))
                await bob.until(lambda number=number: len(bob.bundles) == number + 1)
                bob.links.release(alice.contact.node_id, bob.bundles[number][1].size)
                bob.say(alice, text)
                await alice.until(lambda text=text: alice.texts[-1:] == [text])
                owed = bob.bundles[0][1].size if number == 0 else 0
                assert alice.links.room(bob.contact) == SMALL.window_bytes - owed

    run(scenario())


def test_credit_is_that_of_the_other_side_whose_window_may_be_larger() -> None:
    async def scenario() -> None:
        larger = LiveConfig(window_bytes=8 * SMALL.window_bytes, write_bytes_max=SMALL.write_bytes_max)
        async with toy(config=SMALL) as alice, toy(config=larger) as bob:
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            assert alice.links.room(bob.contact) == larger.window_bytes
            sent = 0
            while alice.links.room(bob.contact) > 0:
                alice.links.link(bob.contact).carry(bundle(10_000, sent))
                sent += 1
            await bob.until(lambda: len(bob.bundles) == sent)
            for sender, came in bob.bundles:
                bob.links.release(sender, came.size)
            await alice.until(lambda: alice.links.room(bob.contact) == larger.window_bytes)

    run(scenario())


def test_a_peer_that_overdraws_its_credit_is_cut_off_and_counted() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            for first in range(60):
                alice.links.link(bob.contact).carry(bundle(512 << 10, first))
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.links.counters["refused_malformed"] == 1
            assert sum(came.size for _, came in bob.bundles) <= bob.links.config.window_bytes + FRAME_BYTES_MAX

    run(scenario())


def test_bytes_of_a_lost_link_give_the_next_one_no_credit() -> None:
    async def scenario() -> None:
        async with toy(config=SMALL) as alice, toy(config=SMALL) as bob:
            alice.links.link(bob.contact).carry(bundle(40_000))
            await bob.until(lambda: len(bob.bundles) == 1)
            bob.links.links[alice.contact.node_id].connection.abort()
            await alice.until(lambda: alice.losses != [])
            alice.links.link(bob.contact).carry(bundle(40_000))
            await bob.until(lambda: len(bob.bundles) == 2)
            link = bob.links.links[alice.contact.node_id]
            bob.links.release(alice.contact.node_id, bob.bundles[0][1].size)
            assert (link.charged, link.owed) == (bob.bundles[1][1].size, 0)

    run(scenario())


@pytest.mark.parametrize("network", [None, NETWORK], ids=["plain", "TLS"])
def test_a_socket_that_takes_no_more_means_no_room_and_bounded_memory(network: Authority | None) -> None:
    async def scenario() -> None:
        config = LiveConfig(window_bytes=64 << 20, write_bytes_max=256 << 10)
        async with (
            toy(config=config, membership=network and member(network)) as alice,
            toy(config=config, membership=network and member(network)) as bob,
        ):
            await fill_socket(alice, bob, 60 << 10)  # what is larger may be shared

    run(scenario())


def test_a_lost_link_is_reported_to_both_and_reopens_with_the_next_message() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.say(bob, "one")
            await bob.until(lambda: bob.texts == ["one"])
            alice.links.links[bob.contact.node_id].connection.abort()
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            alice.say(bob, "two")
            await bob.until(lambda: bob.texts == ["one", "two"])

    run(scenario())


def test_a_peer_that_lost_its_link_in_silence_can_open_another() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.say(bob, "one")
            await bob.until(lambda: bob.texts == ["one"])
            alice.links.links[bob.contact.node_id].connection.proven_at -= 60  # not one of two opened at once
            del bob.links.links[alice.contact.node_id]  # as if the way had been cut and bob had given up
            bob.say(alice, "two")
            await alice.until(lambda: alice.texts == ["two"])
            assert alice.losses == [bob.contact.node_id]

    run(scenario())


@pytest.mark.parametrize("keeps", [0, 1], ids=["smaller", "larger"])
def test_a_link_that_is_replaced_is_replaced_once_whatever_is_sent_because_of_that(keeps: int) -> None:
    async def scenario() -> None:
        one, other = sorted((Identity.new(), Identity.new()), key=lambda each: each.node_id)
        async with toy(identity=(one, other)[keeps]) as alice, toy(identity=(other, one)[keeps]) as bob:
            for peer, far in ((alice, bob), (bob, alice)):
                peer.when_lost = partial(peer.say, far, "are you there?")  # as a failure detector does
            alice.say(bob, "one")
            await bob.until(lambda: bob.texts == ["one"])
            alice.links.links[bob.contact.node_id].connection.proven_at -= 60  # not one of two opened at once
            del bob.links.links[alice.contact.node_id]  # as if the way had been cut and bob had given up
            bob.say(alice, "two")
            await bob.until(lambda: "are you there?" in bob.texts)
            for _ in range(20):  # whatever was opened because of that would be up by now
                await alice.links.greet(bob.contact.address)
            assert (alice.links.counters["links_opened"], bob.links.counters["links_opened"]) == (2, 2)
            assert (alice.losses, bob.losses) == ([bob.contact.node_id], [])
            assert alice.texts == ["two"]

    run(scenario())


@pytest.mark.parametrize("network", [None, NETWORK], ids=["plain", "TLS"])
def test_a_link_that_neither_side_needs_closes_without_a_report(network: Authority | None) -> None:
    async def scenario() -> None:
        async with (
            toy(membership=network and member(network)) as alice,
            toy(membership=network and member(network)) as bob,
        ):
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            alice.links.disconnect(bob.contact.node_id)
            alice.say(bob, "no, stay")
            await bob.until(lambda: len(bob.texts) == 2)
            ended = alice.links.links[bob.contact.node_id].connection.ended
            alice.links.disconnect(bob.contact.node_id)
            bob.links.disconnect(alice.contact.node_id)
            await asyncio.wait_for(ended, 10)
            assert (alice.losses, alice.links.links) == ([], {})

    run(scenario())


def test_what_is_sent_while_an_idle_link_closes_arrives_all_the_same() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            for number in range(50):
                for one, other in ((alice, bob), (bob, alice)):
                    one.say(other, f"{number}")
                for one, other in ((alice, bob), (bob, alice)):
                    await one.until(lambda one=one, number=number: one.texts[-1:] == [f"{number}"])
                    one.links.disconnect(other.contact.node_id)
                for _ in range(number % 5):
                    await asyncio.sleep(0)
            assert alice.texts == bob.texts == [f"{number}" for number in range(50)]
            assert (alice.losses, bob.losses) == ([], [])
            assert len(alice.ups) > 1  # it did close in between

    run(scenario())


def test_a_measurement_answers_with_the_round_trip_and_opens_the_link_it_needs() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.links.measure(bob.contact)
            await alice.until(lambda: alice.measures != [])
            assert alice.measures == [alice.links.round_trips.best(bob.contact.node_id)]
            assert 0 < alice.measures[0] < 10

    run(scenario())


def test_messages_for_a_peer_that_cannot_be_reached_are_bounded() -> None:
    async def scenario() -> None:
        config = LiveConfig(unread_bytes_max=4096)
        async with toy(config=config) as alice, silent_listener() as address:
            nobody = Contact(Identity.new().node_id, address)
            alice.links.send(nobody, Said("x" * 2000))
            alice.links.send(nobody, Said("x" * 1000))
            await asyncio.sleep(0)
            assert [*alice.links.links] == [nobody.node_id]
            alice.links.send(nobody, Said("x" * 1000))
            await alice.until(lambda: alice.losses == [nobody.node_id])
            assert alice.links.links == {}

    run(scenario())


def test_a_peer_that_ended_is_counted_and_no_problem() -> None:
    async def scenario() -> None:
        async with toy() as alice:
            async with toy() as bob:
                gone = bob.contact
            alice.links.send(gone, Said("are you there?"))
            await alice.until(lambda: alice.losses == [gone.node_id])
            assert (alice.links.counters["links_failed"], list(alice.links.problems)) == (1, [])

    run(scenario())


def test_a_hello_says_which_peer_is_there() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            assert await alice.links.greet(bob.contact.address) == bob.contact
            assert (alice.ups, bob.ups) == ([], [])

    run(scenario())


async def refusal(alice: ToyPeer, address: str) -> str:
    with pytest.raises(Unreachable) as error:
        await alice.links.greet(address)
    return str(error.value)


def test_an_address_without_a_listener_is_named() -> None:
    async def scenario() -> None:
        async with toy() as alice:
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                address = f"127.0.0.1:{unused.getsockname()[1]}"
                assert await refusal(alice, address) == f"cannot reach {address}: nobody listens there"

    run(scenario())


def test_a_peer_of_another_network_is_named_on_both_sides() -> None:
    async def scenario() -> None:
        async with toy("blue") as alice, toy("red") as bob:
            text = await refusal(alice, bob.contact.address)
            assert "it belongs to the network 'red', this peer to 'blue'" in text
            alice.say(bob, "hello")
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            assert bob.links.counters["refused_network"] >= 1
            assert "'blue', this peer to 'red'" in bob.links.problems[-1]

    run(scenario())


def test_a_peer_of_another_version_is_named() -> None:
    async def scenario() -> None:
        async with toy() as alice, speaker(lambda: stranger_hello(version=2)) as address:
            assert "it speaks version 2 of the protocol, this peer version 1" in await refusal(alice, address)

    run(scenario())


def test_a_listener_that_is_not_quillcast_is_named() -> None:
    async def scenario() -> None:
        async with toy() as alice, speaker(lambda: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
            assert await refusal(alice, address) == f"cannot link with {address}: it is not a quillcast peer"

    run(scenario())


def test_a_contact_that_became_another_peer_is_a_lost_link() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            former = Contact(Identity.new().node_id, bob.contact.address)
            alice.links.link(former)
            await alice.until(lambda: alice.losses == [former.node_id])
            assert f"it is now the peer {bob.contact.node_id[:4].hex()}" in alice.links.problems[-1]

    run(scenario())


def test_a_peer_that_cannot_prove_its_key_is_refused_and_no_link_is_disturbed() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            as_alice = Hello(
                "toys", alice.links.handshake.identity.public_key, "127.0.0.1:1", hello.nonce(), b"i" * 8, 1 << 20
            )
            reader, writer = await asyncio.open_connection(*bob.contact.address.split(":"))
            writer.write(frame(FrameType.HELLO, hello.encode(as_alice)) + frame(FrameType.PROOF, bytes(64)))
            await reader.read()  # until bob closes it
            writer.close()
            assert bob.links.counters["refused_identity"] == 1
            alice.say(bob, "still here")
            await bob.until(lambda: bob.texts == ["hello", "still here"])
            assert bob.losses == []

    run(scenario())


@pytest.mark.parametrize(
    "bad",
    [
        header(FRAME_BYTES_MAX + 1, FrameType.BUNDLE),
        frame(FrameType.BUNDLE, b"no bundle"),
        frame(FrameType.CONTROL, b"\xc1"),
        frame(FrameType.CREDIT, b"short"),
        frame(FrameType.HELLO),
        b"\0\0\0\0\xff\0\0\0",
    ],
    ids=["oversized", "bundle", "control", "credit", "hello", "type"],
)
def test_a_malformed_frame_closes_the_link_is_counted_and_the_peer_lives(bad: bytes) -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob, toy() as carol:
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            alice.links.links[bob.contact.node_id].connection.transport.write([bad])
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.links.counters["refused_malformed"] == 1
            carol.say(bob, "and you?")
            await bob.until(lambda: bob.texts == ["hello", "and you?"])

    run(scenario())


def test_incomplete_frames_are_discarded_when_their_link_closes() -> None:
    part = header(16 << 20, FrameType.BUNDLE) + bytes((16 << 20) - 100)

    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            resident = []
            for number in range(50):
                alice.say(bob, f"{number}")
                await bob.until(lambda number=number: bob.texts[-1:] == [f"{number}"])
                transport = alice.links.links[bob.contact.node_id].connection.transport
                transport.write([part])
                transport.close()  # when all is sent
                await bob.until(lambda number=number: len(bob.losses) > number)
                await alice.until(lambda number=number: len(alice.losses) > number)
                assert bob.links.unfinished.bytes == 0
                resident.append(resident_bytes())
            assert resident[-1] - resident[4] < 64 << 20

    gc.disable()  # a peer's collector of cycles is in no hurry either
    try:
        run(scenario())
    finally:
        gc.enable()


def test_a_part_of_a_bundle_counts_as_what_came_on_credit() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            for first in range(16):
                alice.links.link(bob.contact).carry(bundle(512 << 10, first))
            await bob.until(lambda: len(bob.bundles) == 16)
            part = header(16 << 20, FrameType.BUNDLE) + bytes((16 << 20) - 100)
            alice.links.links[bob.contact.node_id].connection.transport.write([part])
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert "bytes came, and" in bob.links.problems[-1]
            assert (bob.links.counters["refused_malformed"], bob.links.unfinished.bytes) == (1, 0)

    run(scenario())


def test_where_parts_of_frames_take_too_much_the_link_that_waits_longest_closes() -> None:
    async def scenario() -> None:
        config = LiveConfig(unfinished_bytes_max=24 << 20)
        async with toy() as alice, toy(config=config) as bob, toy() as carol:
            for peer in (alice, carol):
                peer.say(bob, "hello")
            await bob.until(lambda: len(bob.texts) == 2)
            whole = b"".join(parts_of(bundle(16 << 20)))
            for peer in (alice, carol):
                peer.links.links[bob.contact.node_id].connection.transport.write([whole[:-100]])
                while bob.links.unfinished.bytes < 16 << 20 and bob.losses == []:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # no input of bob's tells
            await bob.until(lambda: bob.losses == [alice.contact.node_id])
            assert bob.links.counters["crowded_out"] == 1
            assert "live.unfinished_bytes_max" in bob.links.problems[-1]
            carol.links.links[bob.contact.node_id].connection.transport.write([whole[-100:]])
            await bob.until(lambda: len(bob.bundles) == 1)
            assert bob.links.unfinished.bytes == 0

    run(scenario())


def test_a_link_with_a_write_error_ends_alone_and_is_reported_once() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob, toy() as carol, toy() as dave:
            others = [bob, carol, dave]
            for peer in others:
                alice.say(peer, "hello")
                await peer.until(lambda peer=peer: peer.texts == ["hello"])
            connection = alice.links.links[bob.contact.node_id].connection
            connection.transport = Transport(Broken(connection.transport.stream), connection.end)
            for number in range(3):
                for peer in others:
                    alice.say(peer, f"{number}")
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            for peer in (carol, dave):
                await peer.until(lambda peer=peer: len(peer.texts) == 4)
            assert [line for line in alice.links.problems if "the handler is closed" in line] == [
                alice.links.problems[-1]
            ]
            assert alice.links.counters["links_broken"] == 1
            alice.say(bob, "again")
            await bob.until(lambda: bob.texts == ["hello", "again"])

    run(scenario())


class Broken:
    """A stream that closed and does not say so."""

    def __init__(self, stream: asyncio.Transport) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def writelines(self, parts: list[bytes]) -> None:
        raise RuntimeError("the handler is closed")

    def abort(self) -> None:
        pass


def test_messages_that_waited_for_a_lost_link_are_discarded() -> None:
    async def scenario() -> None:
        async with toy() as alice, toy() as bob:
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            link = alice.links.links[bob.contact.node_id]
            link.connection.abort()
            waiting = bundle(1000)
            link.carry(waiting)
            held = sys.getrefcount(waiting)
            await alice.until(lambda: alice.losses == [bob.contact.node_id])
            assert sys.getrefcount(waiting) == held - 1
            assert link.connection is None

    run(scenario())


def test_a_link_outlives_the_wait_for_its_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is busy tells late that a transport was made, and closes it if nobody waits for that any more."""
    never = asyncio.Event()

    async def late(work: Coroutine[Any, Any, Any], connection: Connection) -> None:
        await work
        try:
            await never.wait()
        except asyncio.CancelledError:
            connection.transport.stream.abort()
            raise

    made_by = Connection.made_by
    monkeypatch.setattr(Connection, "made_by", lambda self, work: made_by(self, late(work, self)))

    async def scenario() -> None:
        config = LiveConfig(connect_timeout_s=0.3)
        async with toy(config=config) as alice, toy(config=config) as bob:
            opening = alice.links.link(bob.contact).opening
            assert opening is not None
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            await asyncio.wait([opening])
            alice.say(bob, "still here")
            await bob.until(lambda: bob.texts == ["hello", "still here"])
            assert (alice.losses, bob.losses) == ([], [])

    run(scenario())


def test_silent_unauthenticated_connections_are_bounded_and_closed() -> None:
    async def scenario() -> None:
        config = LiveConfig(unauthenticated_max=3, connect_timeout_s=0.3)
        async with toy(config=config) as bob:
            opened = [await asyncio.open_connection(*bob.contact.address.split(":")) for _ in range(5)]
            for reader, writer in opened:
                await asyncio.wait_for(read_all(reader), 10)
                writer.close()
            assert bob.links.counters["unauthenticated_refused"] == 2
            assert bob.links.counters["refused_silence"] == 3

    run(scenario())


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", "127.0.0.1:70000", ":1"])
def test_an_invalid_address_is_a_clear_error(address: str) -> None:
    async def scenario() -> None:
        async with toy() as alice:
            with pytest.raises(LocalError, match="is not an address; write host:port"):
                await alice.links.greet(address)

    run(scenario())


def test_an_address_off_loopback_is_refused_with_what_it_takes() -> None:
    async def scenario() -> None:
        async with toy() as alice:
            with pytest.raises(LocalError, match="quillcast node --invite"):
                await alice.links.greet("192.0.2.1:4000")

    run(scenario())


# --- other things that listen


def stranger_hello(version: int) -> bytes:
    said = Hello("toys", Identity.new().public_key, "127.0.0.1:1", hello.nonce(), b"i" * 8, 1 << 20)
    return frame(FrameType.HELLO, hello.encode(said, version))


def parts_of(whole: Bundle) -> list[bytes | memoryview]:
    """A bundle's frame."""
    content = [whole.head, *[block.data for block in whole.blocks]]
    return [header(sum(map(len, content)), FrameType.BUNDLE), *content]


def resident_bytes() -> int:
    """What this process has of the machine's memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def read_all(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionResetError:
        return


class speaker:  # noqa: N801
    """A listener that says something to whoever connects."""

    def __init__(self, words) -> None:
        self.words = words

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self.speak, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.words())
        await read_all(reader)
        writer.close()


def silent_listener() -> speaker:
    return speaker(lambda: b"")
