"""Links without protocols: a peer that notes its inputs, over real sockets of this process."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import uvloop

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import Envelope, Kind
from quillcast.core.errors import Malformed
from quillcast.core.messages import Contact, Message
from quillcast.live.admission.authority import Authority
from quillcast.live.admission.keyring import CertifiedIdentity
from quillcast.live.config import LiveConfig
from quillcast.live.node.host import new_incarnation
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport import addresses
from quillcast.live.transport.hello import Identity
from quillcast.live.transport.links import Links
from quillcast.live.transport.tls import Tls
from quillcast.protocol.security.members import NONCE_BYTES

NETWORK = Authority.new("toys", time.time_ns())
TOPIC = b"t" * 16
PATIENCE_S = 60.0  # nothing here takes so long on a machine that works
LOCAL_IPC = True  # toys are linked as peers of one machine are; the fixture `way` changes that


class Said(Message, frozen=True, tag=1):
    text: str


class ToyCodec:
    @staticmethod
    def encode_all(messages: list[Message], /) -> bytes:
        return msgspec.msgpack.encode(messages)

    @staticmethod
    def decode_all(data: bytes, /) -> list[Any]:
        try:
            return msgspec.msgpack.decode(data, type=list[Said])
        except msgspec.MsgspecError as problem:
            raise Malformed(str(problem)) from problem


class ToyPeer:
    """`Inputs` that notes what comes; bundles are released when the test says so."""

    def __init__(self, links: Links) -> None:
        self.links, self.pump = links, links.pump
        self.texts: list[str] = []
        self.bundles: list[tuple[bytes, Bundle]] = []
        self.ups: list[bytes] = []
        self.losses: list[bytes] = []
        self.when_lost: Callable[[], None] = lambda: None
        self.rooms: list[bytes] = []
        self.measures: list[float | None] = []
        self.answers: list[tuple[Any, Any]] = []
        self.order: list[str] = []

    @property
    def contact(self) -> Contact:
        return self.links.contact

    def message(self, sender: Contact, message: Any) -> None:
        self.texts.append(message.text)
        self.order.append("message")

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        self.bundles.append((sender.node_id, bundle))
        self.order.append("bundle")

    def datagram(self, group: Contact, bundle: Bundle) -> None:
        self.bundles.append((group.node_id, bundle))

    def timer(self, timer: Any) -> None:
        self.answers.append(("timer", timer))

    def link_up(self, contact: Contact) -> None:
        self.ups.append(contact.node_id)

    def link_lost(self, contact: Contact) -> None:
        self.losses.append(contact.node_id)
        self.when_lost()

    def died(self, contact: Contact) -> None:
        self.order.append("died")

    def room(self, contact: Contact) -> None:
        self.rooms.append(contact.node_id)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        self.measures.append(proximity)

    def disk_done(self, token: Any, result: Any) -> None:
        self.answers.append((token, result))

    def say(self, to: "ToyPeer", text: str) -> None:
        self.links.send(to.contact, Said(text))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.pump.until(condition)


@asynccontextmanager
async def toy(
    network: str = "toys",
    config: LiveConfig | None = None,
    identity: Identity | None = None,
    port: int = 0,
    membership: CertifiedIdentity | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
) -> AsyncIterator[ToyPeer]:
    """A peer that listens on loopback, with TLS if it is a member of a network with a credential."""
    pump = Pump(asyncio.get_running_loop())
    tls = membership and Tls(membership.identity, membership.certificate, membership.authority)
    identity = membership.identity if membership else identity or Identity.new()
    config = msgspec.structs.replace(config or LiveConfig(), local_ipc=LOCAL_IPC)
    links = Links(pump, identity, network, new_incarnation(), ToyCodec, config, tls=tls, wall_ns=wall_ns)
    await links.serve(addresses.listener("127.0.0.1", port))
    peer = pump.inputs = ToyPeer(links)
    try:
        yield peer
    finally:
        await links.close()


def member(authority: Authority, now_ns: int | None = None) -> CertifiedIdentity:
    """A new identity, admitted by a network's credential."""
    identity, nonce = Identity.new(), secrets.token_bytes(NONCE_BYTES)
    certificate = authority.admit(identity.public_key, time.time_ns() if now_ns is None else now_ns, nonce)
    return CertifiedIdentity(Identity.of_secret(identity.secret, nonce), certificate, authority.certificate)


async def fill_socket(alice: ToyPeer, bob: ToyPeer, size_bytes: int) -> None:
    """Bob reads nothing, so that Alice's link to him pauses within bounds, and goes on when he reads again."""
    alice.say(bob, "hello")
    await bob.until(lambda: bob.texts == ["hello"])
    reading = bob.links.links[alice.contact.node_id].connection.transport.stream
    reading.pause_reading()
    link = alice.links.link(bob.contact)
    for first in range(1000):
        if link.room <= 0:
            break
        link.carry(bundle(size_bytes, first))
        await asyncio.sleep(0)
    assert link.paused
    assert link.waiting_bytes < 1 << 20
    reading.resume_reading()
    await alice.until(lambda: alice.rooms == [bob.contact.node_id])


def bundle(size_bytes: int = 100, first: int = 0) -> Bundle:
    return Bundle(
        Envelope(TOPIC, Kind.DOWN, first=first), (Block.seal(b"p" * 16, first, [bytes(size_bytes)], time_ns=0),)
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine on the event loop that peers use."""
    uvloop.run(work)
