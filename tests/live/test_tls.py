"""Links of a network with a credential: TLS 1.3, both sides proven, and one clear line for whatever else comes."""

import asyncio
import gc
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from quillcast.core.errors import Unreachable
from quillcast.live.admission.authority import Authority
from quillcast.live.admission.keyring import CertifiedIdentity
from quillcast.live.config import LiveConfig
from quillcast.live.transport import hello
from quillcast.live.transport.framing import FrameType, frame
from quillcast.live.transport.hello import Hello
from quillcast.live.transport.tls import Tls
from tests.live.toys import NETWORK, ToyPeer, bundle, member, run, toy

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("way")]

SMALL = LiveConfig(window_bytes=64 << 10, write_bytes_max=32 << 10)
DAY_NS = 86400 * 10**9


@asynccontextmanager
async def pair(config: LiveConfig | None = None) -> AsyncIterator[tuple[ToyPeer, ToyPeer]]:
    async with (
        toy(membership=member(NETWORK), config=config) as alice,
        toy(membership=member(NETWORK), config=config) as bob,
    ):
        yield alice, bob


def test_members_talk_both_ways_over_one_encrypted_link() -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            alice.say(bob, "hello")
            await bob.until(lambda: bob.texts == ["hello"])
            bob.say(alice, "you too")
            await alice.until(lambda: alice.texts == ["you too"])
            assert (alice.ups, bob.ups) == ([bob.contact.node_id], [alice.contact.node_id])
            assert [*alice.links.problems, *bob.links.problems] == []

    run(scenario())


def test_two_members_that_open_at_once_keep_one_link_and_lose_nothing() -> None:
    async def scenario() -> None:
        for _ in range(10):
            async with pair() as (alice, bob):
                alice.say(bob, "from alice")
                bob.say(alice, "from bob")
                await alice.until(lambda alice=alice: alice.texts == ["from bob"])
                await bob.until(lambda bob=bob: bob.texts == ["from alice"])
                assert (alice.losses, bob.losses) == ([], [])

    run(scenario())


def test_bundles_of_all_sizes_arrive_whole_and_in_order() -> None:
    async def scenario() -> None:
        async with pair(LiveConfig(window_bytes=64 << 20)) as (alice, bob):
            sizes = [1, 100, 16_384, 65_536, 262_144, 1 << 20, 12 << 20, 7]
            for first, size in enumerate(sizes):
                alice.links.link(bob.contact).carry(bundle(size, first))
            await bob.until(lambda: len(bob.bundles) == len(sizes))
            assert [came.blocks[0].data for _, came in bob.bundles] == [
                bundle(size, first).blocks[0].data for first, size in enumerate(sizes)
            ]

    run(scenario())


def test_credit_comes_back_when_bytes_have_left_the_other_peer() -> None:
    async def scenario() -> None:
        async with pair(SMALL) as (alice, bob):
            numbers = count()
            while alice.links.room(bob.contact) > 0:
                alice.links.link(bob.contact).carry(bundle(10_000, next(numbers)))
            await bob.until(lambda: len(bob.bundles) == 7)
            for sender, came in bob.bundles:
                bob.links.release(sender, came.size)
            await alice.until(lambda: alice.rooms == [bob.contact.node_id])

    run(scenario())


def test_links_that_ended_take_no_memory() -> None:
    """A connection and its transport form a cycle, and the collector is in no hurry: what is large goes at once."""

    async def scenario() -> None:
        async with pair() as (alice, bob):
            kept = []
            for number in range(30):
                alice.say(bob, f"{number}")
                await bob.until(lambda number=number: bob.texts[-1:] == [f"{number}"])
                alice.links.links[bob.contact.node_id].connection.abort()
                await bob.until(lambda number=number: len(bob.losses) > number)
                await alice.until(lambda number=number: len(alice.losses) > number)
                kept.append(tracemalloc.get_traced_memory()[0])
            assert kept[-1] - kept[9] < 20 * 2 * 32 << 10  # less than an eighth of a connection's buffers

    gc.disable()
    tracemalloc.start()
    try:
        run(scenario())
    finally:
        tracemalloc.stop()
        gc.enable()


def test_two_peers_that_open_a_link_at_once_learn_each_others_identity() -> None:
    async def scenario() -> None:
        for _ in range(20):
            async with pair() as (alice, bob):
                bob.say(alice, "hello")
                assert await alice.links.greet(bob.contact.address) == bob.contact
                await alice.until(lambda alice=alice: alice.texts == ["hello"])

    run(scenario())


# --- who is refused, and what both sides say


async def refused(alice: ToyPeer, bob: ToyPeer, mine: str, theirs: str) -> None:
    """Alice greets bob in vain; her line has `mine` in it, and his log has a line with `theirs`."""
    with pytest.raises(Unreachable) as problem:
        await alice.links.greet(bob.contact.address)
    assert mine in str(problem.value)
    async with asyncio.timeout(10):
        while bob.links.unauthenticated_count or not bob.links.problems:  # noqa: ASYNC110 - he closes later
            await asyncio.sleep(0)
    assert theirs in bob.links.problems[-1]
    assert "\n" not in str(problem.value) + bob.links.problems[-1]


def test_a_member_of_another_network_is_refused_by_its_certificate() -> None:
    async def scenario() -> None:
        other = Authority.new("toys", time.time_ns())
        async with toy(membership=member(other)) as alice, toy(membership=member(NETWORK)) as bob:
            await refused(alice, bob, "its certificate is not of this network", "it belongs to another network")
            assert bob.links.counters["refused_unadmitted"] == 1

    run(scenario())


def test_a_peer_without_admission_and_one_that_wants_it_name_each_other() -> None:
    async def scenario() -> None:
        async with toy() as plain, toy(membership=member(NETWORK)) as admitted:
            await refused(plain, admitted, "it speaks TLS, so its network has a credential", "it does not use TLS")
            assert admitted.links.counters["refused_plain"] == 1
        async with toy() as plain, toy(membership=member(NETWORK)) as admitted:
            await refused(admitted, plain, "it does not use TLS", "it speaks TLS, so its network has a credential")
            assert plain.links.counters["refused_encrypted"] == 1

    run(scenario())


def test_clocks_a_day_apart_are_named_on_both_sides() -> None:
    async def scenario() -> None:
        def behind() -> int:
            return time.time_ns() - DAY_NS

        late = member(NETWORK, behind())
        async with toy(membership=late, wall_ns=behind) as alice, toy(membership=member(NETWORK)) as bob:
            await refused(alice, bob, "its clock is 1 day ahead of this machine's", "its clock is 1 day behind")
            assert bob.links.counters["refused_clock"] == 1

    run(scenario())


def test_a_certificate_of_former_times_is_refused() -> None:
    async def scenario() -> None:
        def in_ten_years() -> int:
            return time.time_ns() + 3660 * DAY_NS

        old, new = member(NETWORK), member(NETWORK, in_ten_years())
        async with toy(membership=old, wall_ns=in_ten_years) as alice, toy(membership=new, wall_ns=in_ten_years) as bob:
            await refused(alice, bob, 'it refused this peer: "its certificate ended 10 days ago', "10 days ago")
            assert bob.links.counters["refused_expired"] == 1

    run(scenario())


def test_an_admitted_peer_with_anothers_node_id_is_refused() -> None:
    async def scenario() -> None:
        carol = member(NETWORK)
        async with pair() as (alice, bob):
            alice.links.handshake.identity = (
                carol.identity
            )  # her hello and her proofs are carol's, her certificate is not
            await refused(alice, bob, "it claims to be the peer", "it claims to be the peer")
            assert carol.identity.node_id[:4].hex() in bob.links.problems[-1]
            assert bob.links.counters["refused_identity"] == 1
            assert bob.ups == []

    run(scenario())


def test_an_identity_without_the_key_of_its_certificate_cannot_even_begin() -> None:
    thief, victim = member(NETWORK), member(NETWORK)
    with pytest.raises(ssl.SSLError, match=r"KEY_VALUES_MISMATCH|key values mismatch"):
        Tls(thief.identity, victim.certificate, NETWORK.certificate)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it is not a quillcast peer"),
        (bytes(range(256)) * 20, "it is not a quillcast peer"),
        (b"\x16\x03\x01" + bytes(range(200)), "it is not a quillcast peer"),
        (
            frame(FrameType.HELLO, hello.encode(Hello("toys", b"k" * 32, "a:1", b"n" * 32, b"i" * 8, 1))),
            "it does not use TLS",
        ),
    ],
    ids=["http", "random", "half a handshake", "plain peer"],
)
def test_bytes_that_are_not_tls_get_one_line_and_do_no_harm(words: bytes, line: str) -> None:
    async def scenario() -> None:
        async with pair() as (alice, bob):
            reader, writer = await asyncio.open_connection(*bob.contact.address.split(":"))
            writer.write(words)
            await asyncio.wait_for(read_all(reader), 10)
            writer.close()
            assert line in bob.links.problems[-1]
            assert sum(count for name, count in bob.links.counters.items() if name.startswith("refused_")) == 1
            alice.say(bob, "still here")
            await bob.until(lambda: bob.texts == ["still here"])

    run(scenario())


@pytest.mark.parametrize(
    ("words", "counter"),
    [
        (lambda: b"GET / HTTP/1.1\r\n\r\n", "refused_not_quillcast"),
        (lambda: b"", "refused_silence"),
        (
            lambda: frame(FrameType.HELLO, hello.encode(_claim(member(NETWORK)))),
            "refused_unadmitted",
        ),
    ],
    ids=["http", "silent", "a peer's hello"],
)
def test_a_tls_client_that_is_not_a_member_is_refused(words: Callable[[], bytes], counter: str) -> None:
    async def scenario() -> None:
        async with toy(membership=member(NETWORK), config=LiveConfig(connect_timeout_s=0.5)) as bob:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection(*bob.contact.address.split(":"), ssl=context)
            writer.write(words())
            await asyncio.wait_for(read_all(reader), 10)
            writer.close()
            assert bob.links.counters[counter] == 1
            assert bob.ups == []

    run(scenario())


def _claim(one: CertifiedIdentity) -> Hello:
    """A hello as the member's own would be."""
    said = Hello("toys", one.identity.public_key, "127.0.0.1:1", hello.nonce(), b"i" * 8, 1 << 20)
    return Hello(
        *(getattr(said, name) for name in Hello.__struct_fields__[:6]),
        issuer_nonce=one.identity.issuer_nonce,
        authority_key=NETWORK.public_key,
        clock_ns=time.time_ns(),
    )


def test_half_open_connections_are_bounded_and_the_oldest_go_first() -> None:
    async def scenario() -> None:
        async with toy(membership=member(NETWORK), config=LiveConfig(unauthenticated_max=50)) as bob:
            opened = [await asyncio.open_connection(*bob.contact.address.split(":")) for _ in range(200)]
            for reader, _ in opened[:150]:
                await asyncio.wait_for(read_all(reader), 10)
            assert bob.links.counters["unauthenticated_refused"] == 150
            assert bob.links.unauthenticated_count == 50
            async with toy(membership=member(NETWORK)) as alice:
                alice.say(bob, "through the crowd")
                await bob.until(lambda: bob.texts == ["through the crowd"])
            for _, writer in opened:
                writer.close()

    run(scenario())


async def read_all(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except (ConnectionResetError, ssl.SSLError):
        return
