"""Links: one TCP connection per pair of peers, opened on demand, with credit for bundles and none for control.

A link keeps what waits in three queues: small frames (credit, pings), control messages, bundles; once per turn of the
event loop it writes what waits in one call, in this order, so that control overtakes data. It hands the socket no more
than `write_bytes_max` ahead; what the kernel does not take stays with the sender, who is told that there is no room.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable
from typing import Any, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed, QuillcastError, RemoteError, Unreachable
from quillcast.core.messages import Contact, Message
from quillcast.live import addresses, hello
from quillcast.live.config import LiveConfig
from quillcast.live.connection import Connection, Superseded
from quillcast.live.framing import FRAME_BYTES_MAX, FrameType, frame, header
from quillcast.live.hello import Hello, HelloRefused, Identity
from quillcast.live.pump import Pump

_JOINED_BYTES_MAX = 64 << 10  # less than that is written as one piece; measured: copying it costs less than a vector
_CREDIT_PARTS = 8  # credit goes back in eighths of the window, or along with anything else
_NODES_MEASURED_MAX = 4096
_NUMBER_BYTES = 8


class ControlCodec(Protocol):
    """The content of a control frame; `protocol.wire` is it."""

    def encode_all(self, messages: list[Message], /) -> bytes:
        """The messages as bytes."""
        ...

    def decode_all(self, data: bytes, /) -> list[Any]:
        """The messages of these bytes. Raises `Malformed`."""
        ...


class Link:
    """What stands between this peer and one other, connected or being connected."""

    def __init__(self, links: "Links", contact: Contact) -> None:
        self.links, self.contact = links, contact
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.stands = asyncio.Event()
        self.credit = links.config.window_bytes
        self.charged = 0  # bytes of bundles that came and were not released
        self.owed = 0  # bytes released and not yet given back as credit
        self.paused = False
        self.starved = False  # there was no room, and nobody was told yet that there is again
        self.idle_here = self.idle_there = False
        self.measuring = False
        self._dirty = False
        self._frames: list[bytes] = []
        self._messages: list[Message] = []
        self._bundles: deque[Bundle] = deque()

    @property
    def room(self) -> int:
        """Bytes of bundles that may be handed over."""
        return 0 if self.paused else self.credit

    @property
    def waiting_bytes(self) -> int:
        """Bytes of bundles and of the socket's queue that wait in this process."""
        queued = self.connection.transport.get_write_buffer_size() if self.connection else 0
        return queued + sum(bundle.size for bundle in self._bundles)

    def send(self, message: Message) -> None:
        """Queue a control message."""
        self.idle_here = False
        self._messages.append(message)
        if self.connection is None and len(self._messages) > self.links.config.messages_waiting_max:
            self.links.give_up(self, Unreachable(f"{len(self._messages)} messages wait for {self.contact.address}"))
        else:
            self._soil()

    def carry(self, bundle: Bundle) -> None:
        """Queue a bundle, at the cost of credit."""
        self.idle_here = False
        self._bundles.append(bundle)
        self.credit -= bundle.size
        self.starved = self.starved or self.room <= 0
        self._soil()

    def say(self, type_: FrameType, content: bytes = b"") -> None:
        """Queue a small frame."""
        self._frames.append(frame(type_, content))
        self._soil()

    def release(self, size_bytes: int) -> None:
        """A bundle's bytes have left this peer: the other side may send as many again."""
        self.charged -= size_bytes
        self.owed += size_bytes
        if self.owed * _CREDIT_PARTS >= self.links.config.window_bytes:
            self._soil()

    def charge(self, size_bytes: int) -> None:
        """A bundle came. Raises `Malformed` when the other side overdrew its credit."""
        self.idle_there = False
        self.charged += size_bytes
        if self.charged > self.links.config.window_bytes + FRAME_BYTES_MAX:
            raise Malformed(f"{self.charged} bytes came on a window of {self.links.config.window_bytes}")

    def credited(self, size_bytes: int) -> None:
        """Credit came back."""
        self.credit = min(self.credit + size_bytes, self.links.config.window_bytes)
        self._quench()

    def pause(self) -> None:
        """The socket takes no more for now."""
        self.paused = self.starved = True

    def resume(self) -> None:
        """The socket takes more again."""
        self.paused = False
        self._soil()
        self._quench()

    def adopt(self, connection: Connection) -> None:
        """Serve on this connection: it is proven."""
        if self.opening is not None and not connection.opened_here:
            self.opening.cancel()
        self.connection, self.contact = connection, connection.peer.contact
        self.credit += connection.peer.window_bytes - self.links.config.window_bytes
        connection.serve(self)
        self.stands.set()
        self._soil()

    def flush(self) -> None:
        """Write what waits, in one call."""
        self._dirty = False
        if self.connection is None or self.connection.transport.is_closing():
            return
        transport = self.connection.transport
        parts = self._small_parts()
        parts += self._bundle_parts()
        if sum(map(len, parts)) <= _JOINED_BYTES_MAX:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)
        self.links.counters["bytes_out"] += sum(map(len, parts))
        if self._bundles and not self.paused:
            self._soil()
        if transport.get_write_buffer_size() > self.links.config.unread_bytes_max:
            self.connection.abort()
        elif self.idle_here and self.idle_there:
            self.connection.close()

    def _small_parts(self) -> list[bytes]:
        """Everything but bundles."""
        parts, self._frames = self._frames, []
        if self.owed:
            parts.append(frame(FrameType.CREDIT, self.owed.to_bytes(_NUMBER_BYTES, "little")))
            self.owed = 0
        if self._messages:
            messages, self._messages = self._messages, []
            parts += self._control_frames(messages)
        return parts

    def _control_frames(self, messages: list[Message]) -> list[bytes]:
        content = self.links.codec.encode_all(messages)
        if len(content) <= FRAME_BYTES_MAX:
            return [frame(FrameType.CONTROL, content)]
        half = len(messages) // 2
        if half == 0:
            raise ValueError(f"a {type(messages[0]).__name__} of {len(content)} bytes is larger than any frame")
        return self._control_frames(messages[:half]) + self._control_frames(messages[half:])

    def _bundle_parts(self) -> list[bytes]:
        """Bundles, up to what the socket is handed ahead; the blocks by reference."""
        parts: list[bytes] = []
        size = 0
        while self._bundles and not self.paused and size < self.links.config.write_bytes_max:
            bundle = self._bundles.popleft()
            head = bundle.head
            blocks = [block.data for block in bundle.blocks]
            size += sum(map(len, blocks))
            parts.append(header(FrameType.BUNDLE, len(head) + sum(map(len, blocks))) + head)
            parts += blocks
        return parts

    def _soil(self) -> None:
        if not self._dirty:
            self._dirty = True
            self.links.flush_soon(self)

    def _quench(self) -> None:
        if self.starved and self.room > 0:
            self.starved = False
            self.links.pump.hand(self.links.pump.inputs.room, self.contact)


class Links:
    """Every link of one peer. What comes in on them is handed to the pump's inputs.

    `contact` names this peer to others; `codec` is `protocol.wire`.
    """

    def __init__(
        self, pump: Pump, identity: Identity, network: str, incarnation: bytes, codec: ControlCodec, config: LiveConfig
    ) -> None:
        self.pump, self.loop, self.identity, self.codec, self.config = pump, pump.loop, identity, codec, config
        self.network, self.incarnation = network, incarnation
        self.contact = Contact(identity.node_id, "")
        self.links: dict[bytes, Link] = {}
        self.counters: Counter[str] = Counter()
        self.problems: deque[str] = deque(maxlen=20)
        self._strangers: dict[Connection, None] = {}
        self._debts: dict[bytes, int] = {}  # bytes of bundles of links that are gone, not yet released
        self._dirty: list[Link] = []
        self._pings: dict[int, tuple[Contact, float]] = {}
        self._ping_count = 0
        self._round_trips: dict[bytes, float] = {}
        self._server: asyncio.Server | None = None
        self._closing = False

    # --- orders -------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        """Accept links at this address; port 0 takes any. Raises `OSError`."""
        self._server = await self.loop.create_server(lambda: Connection(self, None, opened_here=False), host, port)
        bound = self._server.sockets[0].getsockname()
        self.contact = Contact(self.identity.node_id, addresses.written(bound[0], bound[1]))

    async def greet(self, address: str) -> Contact:
        """Ask who is at an address. Raises `Unreachable`, which says why."""
        try:
            connection: Connection = await self._within_time(self._connect(address, None, curious=True))
        except (OSError, TimeoutError, RemoteError) as problem:
            raise _unreachable(address, problem) from problem
        return connection.peer.contact

    def link(self, to: Contact) -> Link:
        """The link to a peer, opened if need be."""
        link = self.links.get(to.node_id)
        if link is None:
            link = self.links[to.node_id] = Link(self, to)
            link.opening = self.loop.create_task(self._open(link))
        return link

    def room(self, to: Contact) -> int:
        """Bytes of credit left towards a peer."""
        link = self.links.get(to.node_id)
        return self.config.window_bytes if link is None else link.room

    def release(self, sender: bytes, size_bytes: int) -> None:
        """Give credit back; bytes that came over a link that is gone are paid off first."""
        debt = self._debts.pop(sender, 0)
        if debt > size_bytes:
            self._debts[sender] = debt - size_bytes
            return
        link = self.links.get(sender)
        if link is not None:
            link.release(size_bytes - debt)

    def round_trip(self, node: bytes) -> float | None:
        """The smallest round trip measured to a peer, in seconds."""
        return self._round_trips.get(node)

    def measure(self, to: Contact) -> None:
        """Measure the round trip over the link, once it stands."""
        link = self.link(to)
        if link.connection is None:
            link.measuring = True
        else:
            self._ping(link)

    def disconnect(self, node: bytes) -> None:
        """This side needs the link no more."""
        link = self.links.get(node)
        if link is not None and not link.idle_here:
            link.idle_here = True
            link.say(FrameType.IDLE)

    def flush_soon(self, link: Link) -> None:
        """Have the link write in this turn of the event loop."""
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(link)

    def give_up(self, link: Link, problem: Exception) -> None:
        """The link could not be made."""
        if self.links.get(link.contact.node_id) is link and link.connection is None:
            self.counters["links_failed"] += 1
            self.problems.append(str(_unreachable(link.contact.address, problem)))
            if link.opening is not None:
                link.opening.cancel()
            self._remove(link)

    async def close(self) -> None:
        """Write what waits, close every link and accept no more."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        self._flush()
        open_ = [link.connection for link in self.links.values() if link.connection is not None]
        tasks = [link.opening for link in self.links.values() if link.opening is not None]
        for task in tasks:
            task.cancel()
        for connection in [*open_, *self._strangers]:
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if open_:
            await asyncio.wait([connection.ended for connection in open_], timeout=self.config.close_timeout_s)
        for connection in open_:
            connection.abort()

    # --- what connections tell ----------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """What a new connection says first."""
        return Hello(
            self.network, self.identity.public_key, self.contact.address, hello.nonce(), self.incarnation,
            self.config.window_bytes,
        )  # fmt: skip

    def opened(self, stranger: Connection) -> None:
        """Somebody connected, and nobody knows yet who."""
        if self._closing or len(self._strangers) >= self.config.strangers_max:
            self.counters["strangers_refused"] += 1
            stranger.abort()
            return
        self._strangers[stranger] = None
        self.loop.call_later(self.config.connect_timeout_s, self._expire, stranger)

    def is_welcome(self, stranger: Connection) -> bool:
        """Of two connections that both sides opened at once, both keep the one that the smaller nodeId opened."""
        link = self.links.get(stranger.peer.contact.node_id)
        if link is None:
            return True
        smaller = min(self.contact.node_id, link.contact.node_id)
        if link.connection is None:
            return stranger.opened_here or link.opening is None or stranger.opener == smaller
        stands = link.connection
        at_once = self.loop.time() - stands.proven_at < self.config.connect_timeout_s
        same_run = stands.peer.incarnation == stranger.peer.incarnation
        return stranger.opener == smaller or stands.opener != smaller or not (at_once and same_run)

    def proved(self, stranger: Connection) -> None:
        """A stranger is who it says: the connection serves its link, unless another one is to."""
        self._strangers.pop(stranger, None)
        if self._closing or not self.is_welcome(stranger):
            stranger.supersede()
            return
        contact = stranger.peer.contact
        link = self.links.get(contact.node_id)
        if link is not None and link.connection is not None:
            link.connection.supersede()
            self._remove(link)
            link = None
        if link is None:
            link = self.links[contact.node_id] = Link(self, contact)
        link.adopt(stranger)
        self.pump.hand(self.pump.inputs.link_up, link.contact)
        if link.measuring:
            link.measuring = False
            self._ping(link)

    def bundle_came(self, link: Link, bundle: Bundle) -> None:
        """A bundle arrived."""
        self.counters["bundles_in"] += 1
        self.counters["bytes_in"] += bundle.size
        link.charge(bundle.size)
        self.pump.hand(self.pump.inputs.bundle, link.contact, bundle)

    def frame_came(self, link: Link, type_: FrameType, content: bytes) -> None:
        """A frame other than a bundle arrived."""
        match type_:
            case FrameType.CONTROL:
                link.idle_there = False
                for message in self.codec.decode_all(content):
                    self.counters["messages_in"] += 1
                    self.pump.hand(self.pump.inputs.message, link.contact, message)
            case FrameType.CREDIT if len(content) == _NUMBER_BYTES:
                link.credited(int.from_bytes(content, "little"))
            case FrameType.PING if len(content) == _NUMBER_BYTES:
                link.say(FrameType.PONG, content)
            case FrameType.PONG if len(content) == _NUMBER_BYTES:
                self._pong(int.from_bytes(content, "little"))
            case FrameType.IDLE:
                link.idle_there = True
                link.flush()
            case FrameType.SUPERSEDED:
                pass  # it closes now, and says so
            case _:
                raise Malformed(f"a {type_.name} frame of {len(content)} bytes came out of turn")

    def closed(self, connection: Connection) -> None:
        """A connection ended."""
        self._strangers.pop(connection, None)
        link = connection.link
        if link is not None and self.links.get(link.contact.node_id) is link:
            self._remove(link)

    def count_refusal(self, connection: Connection, problem: RemoteError) -> None:
        """A connection is closed for what came on it."""
        why = problem.why if isinstance(problem, HelloRefused) else "malformed"
        self.counters[f"refused_{why}"] += 1
        host, port = connection.transport.get_extra_info("peername")[:2]
        self.problems.append(f"closed the link with {addresses.written(host, port)}: {problem}")

    # --- within -------------------------------------------------------------------------------------------------

    async def _open(self, link: Link) -> None:
        try:
            await self._within_time(self._connect_link(link))
        except (OSError, TimeoutError, QuillcastError) as problem:
            link.opening = None
            self.give_up(link, problem)
        finally:
            link.opening = None

    async def _connect_link(self, link: Link) -> None:
        try:
            await self._connect(link.contact.address, link.contact.node_id)
        except Superseded:
            await link.stands.wait()

    async def _connect(self, address: str, wanted: bytes | None, *, curious: bool = False) -> Connection:
        host, port = addresses.parse_loopback(address)
        _, connection = await self.loop.create_connection(
            lambda: Connection(self, wanted, opened_here=True, curious=curious), host, port
        )
        try:
            await (connection.greeted if curious else connection.proven)
        except BaseException:
            if connection.link is None:
                connection.abort()
            raise
        return connection

    async def _within_time(self, work: Awaitable[Any]) -> Any:
        async with asyncio.timeout(self.config.connect_timeout_s):
            return await work

    def _expire(self, stranger: Connection) -> None:
        if stranger in self._strangers:
            stranger.refuse(HelloRefused("silence", f"it did not say hello within {self.config.connect_timeout_s:g} s"))

    def _remove(self, link: Link) -> None:
        """The link is no more; what waited on it is gone."""
        del self.links[link.contact.node_id]
        if link.charged:
            self._debts[link.contact.node_id] = self._debts.get(link.contact.node_id, 0) + link.charged
        if self._closing:
            return
        if not (link.idle_here and link.idle_there):
            self.pump.hand(self.pump.inputs.link_lost, link.contact)
        for ping in [ping for ping, (contact, _) in self._pings.items() if contact.node_id == link.contact.node_id]:
            self._unanswered(ping)
        if link.measuring:
            self.pump.hand(self.pump.inputs.measured, link.contact, None)

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            link.flush()

    def _ping(self, link: Link) -> None:
        self._ping_count += 1
        self._pings[self._ping_count] = (link.contact, time.perf_counter())
        link.say(FrameType.PING, self._ping_count.to_bytes(_NUMBER_BYTES, "little"))
        self.loop.call_later(self.config.measure_timeout_s, self._unanswered, self._ping_count)

    def _pong(self, ping: int) -> None:
        contact, sent_at = self._pings.pop(ping, (None, 0.0))
        if contact is None:
            return  # too late, or never asked
        node, round_trip = contact.node_id, time.perf_counter() - sent_at
        best = self._round_trips[node] = min(round_trip, self._round_trips.pop(node, round_trip))
        if len(self._round_trips) > _NODES_MEASURED_MAX:
            del self._round_trips[next(iter(self._round_trips))]
        self.pump.hand(self.pump.inputs.measured, contact, best)

    def _unanswered(self, ping: int) -> None:
        contact, _ = self._pings.pop(ping, (None, 0.0))
        if contact is not None:
            self.pump.hand(self.pump.inputs.measured, contact, None)


def _unreachable(address: str, problem: Exception) -> Unreachable:
    """Why there is no link to an address, in one line."""
    match problem:
        case Unreachable():
            return problem
        case ConnectionRefusedError():
            return Unreachable(f"cannot reach {address}: nobody listens there")
        case TimeoutError():
            return Unreachable(f"cannot reach {address}: no answer in time")
        case OSError():
            return Unreachable(f"cannot reach {address}: {problem.strerror or problem}")
        case _:
            return Unreachable(f"cannot link with {address}: {problem}")
