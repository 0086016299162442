"""Links: one connection per pair of peers, opened on demand by the first message or bundle.

If two peers connect to each other at the same time, both keep the connection that the smaller nodeId opened. A link
that breaks is reported to the peer and removed; the next message opens another.
"""

import asyncio
import errno
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import methodcaller

from quillcast.core.bundle import Bundle
from quillcast.core.errors import QuillcastError, RemoteError, Unreachable
from quillcast.core.messages import Contact, Message
from quillcast.core.multicast import SCHEME
from quillcast.live.config import LiveConfig
from quillcast.live.runtime.patience import Patience, within
from quillcast.live.runtime.problems import Problems
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport import addresses, local_ipc
from quillcast.live.transport.connection import Connection, ConnectionContext, Superseded
from quillcast.live.transport.framed import Framed, FrameMemoryFull
from quillcast.live.transport.framing import (
    NUMBER_BYTES,
    SHARED_BUNDLE,
    FramePool,
    FrameType,
    Unfinished,
)
from quillcast.live.transport.handshake import Handshake
from quillcast.live.transport.hello import HelloRefused, Identity
from quillcast.live.transport.link import ControlCodec, Link, LinkContext
from quillcast.live.transport.multicast import GroupSocket, MulticastGroups
from quillcast.live.transport.roundtrips import RoundTrips
from quillcast.live.transport.shared_memory import SharedMemory
from quillcast.live.transport.shared_transport import Sharing
from quillcast.live.transport.tls import Tls
from quillcast.live.transport.transport import TransportLost, connect, transport_of
from quillcast.protocol.security.members import Unadmitted

_MESSAGE_BYTES = 256  # memory of a waiting control message besides its content; a guess
_ENDING_S = 1.0  # a guess: a process ends within this time after the kernel began to close its links

_SHORTAGE = "cannot open more links: this process or machine has too many open files; raise the limit (ulimit -n)"


class PeerLink(Link):
    """The link to another peer, open or being opened."""

    connection: Connection | None

    def __init__(self, context: LinkContext, contact: Contact) -> None:
        super().__init__(context, contact)
        self.opening: asyncio.Task[None] | None = None
        self.established = asyncio.Event()
        self.measuring = False
        self.unsent_bytes = 0  # of control messages that wait until the link is open

    def take(self, connection: Connection) -> None:
        """Use this authenticated connection."""
        if self.opening is not None and not connection.opened_here:
            self.opening.cancel()
        self.adopt(connection, connection.peer.contact, connection.peer.window_bytes)
        self.established.set()


class Links:
    """All links of one peer. What arrives on them becomes input of the pump.

    `contact` names this peer to others; `codec` is `protocol.wire`. With `tls`, every link is encrypted, and only
    members of its network get one. `wall_ns` is the clock for checking certificates, nanoseconds since 1970 UTC.
    """

    def __init__(
        self, pump: Pump, identity: Identity, network: str, incarnation: bytes, codec: ControlCodec, config: LiveConfig,
        *, tls: Tls | None = None, wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.pump, self.loop, self.codec, self.config = pump, pump.loop, codec, config
        pump.write_by(self._flush)
        self.contact = Contact(identity.node_id, "")
        self.links: dict[bytes, PeerLink] = {}
        self.counters: Counter[str] = Counter()
        self.problems = Problems()
        self.handshake = Handshake(
            identity, network, incarnation, self.counters, self.problems, tls=tls, wall_ns=wall_ns
        )
        self._unauthenticated: dict[Connection, None] = {}
        self._served: dict[Connection, PeerLink] = {}  # every open, authenticated connection
        self._ending: dict[Connection, None] = {}  # nothing more is sent on them, but something may still arrive
        self._debts: dict[bytes, int] = {}  # unreleased bytes of bundles from closed links
        self._dirty: list[Link] = []
        self.unfinished = Unfinished(config.unfinished_bytes_max)
        self.round_trips = RoundTrips(pump, config.measure_timeout_s)
        self.shared_memory = SharedMemory()
        self.sharing = Sharing(self.shared_memory, incarnation, config, self.counters)
        self.join = self.sharing.join
        self.multicast = MulticastGroups(pump, identity.node_id, incarnation, self.counters, self.problems)
        self._serve_client: Callable[[bytes], Framed] | None = None
        self._servers: list[asyncio.Server] = []
        self._death_watches: set[asyncio.Task[None]] = set()  # check if a process whose link closed has ended
        self._closing = False
        self._unplugged = False
        self._plain = partial(transport_of, config=config)
        self._links = LinkContext(pump, config, codec, self.counters, self.mark_dirty)
        self._connections = ConnectionContext(pump, self._plain, FramePool(), self.unfinished, self, self.handshake)

    # --- orders -------------------------------------------------------------------------------------------------

    async def serve(self, listener: socket.socket, *, reached_at: tuple[str, int] | None = None) -> None:
        """Accept links on a listening socket, which is closed along with the links.

        `reached_at` is the address that others get, if it differs; its port 0 means the same port.
        """
        server = await self.loop.create_server(self._accept, sock=listener)
        self._servers.append(server)
        bound = addresses.bound(server)
        self.multicast.send_from(bound[0])
        host, port = reached_at or bound
        self.contact = Contact(self.handshake.identity.node_id, addresses.written(host, port or bound[1]))
        if self.config.local_ipc and port in (0, bound[1]):
            await self._listen_local()

    def serve_clients(self, serve: Callable[[bytes], Framed]) -> None:
        """Use this function to make the connections of other peers' clients that call here. It raises `RemoteError`."""
        self._serve_client = serve

    async def _listen_local(self) -> None:
        """Accept links from peers of this machine at the same address. If that fails, they use TCP."""
        try:
            own = local_ipc.listener(self.contact.address)
        except OSError as problem:
            self.problems.append(f"peers of this machine connect by TCP: {problem.strerror}: {self.contact.address}")
        else:
            self._servers.append(await self.loop.create_unix_server(self._accept, sock=own))

    def _accept(self) -> asyncio.BaseProtocol:
        return self._protocol(self._connection(None, opened_here=False))

    async def greet(self, address: str) -> Contact:
        """Ask which peer listens at an address. Raises `Unreachable` with the reason."""
        try:
            connection = await within(self.config.connect_timeout_s, self._connect(address, None, curious=True))
        except (OSError, TimeoutError, RemoteError) as problem:
            raise _unreachable(address, problem) from problem
        return connection.peer.contact

    def certificate(self, node: bytes) -> bytes | None:
        """The certificate of this peer, or the one with which a linked peer proved its identity.

        None without a link or without a network credential.
        """
        if node == self.contact.node_id:
            return self.handshake.tls.certificate if self.handshake.tls is not None else None
        link = self.links.get(node)
        return link.connection.certificate if link is not None and link.connection is not None else None

    def link(self, to: Contact) -> PeerLink:
        """The link to a peer, which is opened if necessary."""
        link = self.links.get(to.node_id)
        if link is None:
            link = self.links[to.node_id] = PeerLink(self._links, to)
            link.opening = self.loop.create_task(self._open(link))
        return link

    def way(self, to: Contact) -> PeerLink | GroupSocket:
        """The multicast group or the link to a peer."""
        return self.multicast.groups.get(to.node_id) or self.link(to)

    def send(self, to: Contact, message: Message) -> None:
        """Send a control message to a peer. While a link cannot be opened, waiting messages are bounded."""
        link = self.links.get(to.node_id) or self.link(to)
        link.send(message)
        if link.connection is None:
            link.unsent_bytes += _MESSAGE_BYTES + len(self.codec.encode_all([message]))
            if link.unsent_bytes > self.config.unread_bytes_max:
                self.give_up(link, Unreachable(f"{link.waiting_messages} messages wait for {to.address}"))

    @property
    def unauthenticated_count(self) -> int:
        """Number of connections that are not authenticated."""
        return len(self._unauthenticated)

    def room(self, to: Contact, reserved_eighths: int = 0) -> int:
        """Bytes of credit left towards a peer beyond the reserved part, or bytes that a multicast group accepts now."""
        link = self.links.get(to.node_id)
        if link is None:
            room_bytes = self.multicast.room(to) if to.address.startswith(SCHEME) else self.config.window_bytes
            return room_bytes - self.config.window_bytes * reserved_eighths // 8
        # `Link.room`, inlined: this runs for every bundle
        return (0 if link.paused else link.credit) - (link.window * reserved_eighths // 8 if reserved_eighths else 0)

    def release(self, sender: bytes, size_bytes: int) -> None:
        """Return credit. Bytes that arrived over a closed link are settled first."""
        if self._debts:
            debt = self._debts.pop(sender, 0)
            if debt > size_bytes:
                self._debts[sender] = debt - size_bytes
                return
            size_bytes -= debt
        link = self.links.get(sender)
        if link is not None:
            link.release(size_bytes)

    def measure(self, to: Contact) -> None:
        """Measure the round trip over the link, as soon as it is open."""
        link = self.link(to)
        if link.connection is None:
            link.measuring = True
        else:
            self._ping(link)

    def disconnect(self, node: bytes) -> None:
        """This side no longer needs the link."""
        link = self.links.get(node)
        if link is not None and not link.idle_here:
            link.leave()

    def mark_dirty(self, link: Link) -> None:
        """Make the link write at the end of this turn, or if outside of a turn, in this iteration of the event loop."""
        if not (self._dirty or self.pump.turning):
            self.loop.call_soon(self._flush)
        self._dirty.append(link)

    def write(self, link: Link) -> None:
        """Make a link write its queues now."""
        self._flush([link])

    def give_up(self, link: PeerLink, problem: Exception) -> None:
        """The link could not be opened."""
        if self.links.get(link.contact.node_id) is link and link.connection is None:
            self.counters["links_failed"] += 1
            if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
                if _SHORTAGE not in self.problems:
                    self.problems.append(_SHORTAGE)
            elif not isinstance(problem, ConnectionRefusedError):  # that peer has ended, which is normal
                gone = isinstance(problem, HelloRefused) and problem.why == "identity"
                note = (
                    self.problems.keep if gone or isinstance(problem, OSError | TimeoutError) else self.problems.append
                )
                note(str(_unreachable(link.contact.address, problem)))
            if link.opening is not None:
                link.opening.cancel()
            self._remove(link)

    def unplug(self) -> None:
        """Simulate a pulled cable: all links break, and none can be opened until `plug_in`."""
        self._unplugged = True
        for connection in [*self._unauthenticated, *self._ending, *[link.connection for link in self.links.values()]]:
            if connection is not None:
                connection.abort()

    def plug_in(self) -> None:
        """Undo `unplug`."""
        self._unplugged = False

    async def close(self, timeout_s: float | None = None) -> None:
        """Write all queues, close every link and accept no new ones, within `close_timeout_s` or less."""
        self._closing = True
        self.multicast.take_part({})
        for server in self._servers:
            server.close()
        self._flush()
        open_ = [link.connection for link in self.links.values() if link.connection is not None]
        tasks = [*self._death_watches, *(link.opening for link in self.links.values() if link.opening is not None)]
        for task in tasks:
            task.cancel()
        for connection in [*open_, *self._unauthenticated, *self._ending]:
            self._served.get(connection, connection).close()
        open_ += self._ending
        await asyncio.gather(*tasks, return_exceptions=True)
        if open_:
            wait_s = min(self.config.close_timeout_s, math.inf if timeout_s is None else timeout_s)
            await asyncio.wait([connection.ended for connection in open_], timeout=wait_s)
        for connection in open_:
            connection.abort()

    # --- called by connections ----------------------------------------------------------------------------------

    def end(self, link: PeerLink) -> None:
        """Neither side needs the link. Close it when everything that the other side sent meanwhile has arrived."""
        assert link.connection is not None
        self._ending[link.connection] = None
        self._forget(link)
        link.finish()
        self.write(link)

    def opened(self, connection: Connection) -> None:
        """Accept a connection that is not yet authenticated."""
        if self._closing or self._unplugged:
            connection.abort()
            return
        if len(self._unauthenticated) >= self.config.unauthenticated_max:
            oldest = next(iter(self._unauthenticated))  # it has had the most time
            del self._unauthenticated[oldest]
            self.counters["unauthenticated_refused"] += 1
            oldest.abort()
        self._unauthenticated[connection] = None
        Patience(self.loop, self.config.connect_timeout_s, partial(self._expire, connection))

    def called(self, connection: Connection, content: bytes) -> None:
        """The other side is a client of another peer: give it a connection of its own kind."""
        if self._closing or self._serve_client is None:
            raise HelloRefused("client", "this peer serves no clients now")
        protocol = self._serve_client(content)
        self._unauthenticated.pop(connection, None)
        connection.hand_over(protocol)

    def is_welcome(self, connection: Connection) -> bool:
        """If both sides connected at the same time, both keep the connection that the smaller nodeId opened."""
        link = self.links.get(connection.peer.contact.node_id)
        if link is None:
            return True
        smaller = min(self.contact.node_id, link.contact.node_id)
        if link.connection is None:
            return connection.opened_here or link.opening is None or connection.opener == smaller
        stands = link.connection
        at_once = self.loop.time() - stands.proven_at < self.config.connect_timeout_s
        same_run = stands.peer.incarnation == connection.peer.incarnation
        return connection.opener == smaller or stands.opener != smaller or not (at_once and same_run)

    def proved(self, connection: Connection) -> None:
        """A connection is authenticated: make it serve its link, unless another one is kept."""
        self._unauthenticated.pop(connection, None)
        if self._closing or not self.is_welcome(connection):
            connection.supersede()
            return
        contact = connection.peer.contact
        link = replaced = self.links.get(contact.node_id)
        if link is not None and link.connection is not None:
            link.connection.supersede()
            self._forget(link)
            link = None
        if link is None:
            link = self.links[contact.node_id] = PeerLink(self._links, contact)
        self.counters["links_opened"] += 1
        self._served[connection] = link
        transport = self.sharing.over(connection.transport, connection.peer.shared_memory, connection.peer.incarnation)
        connection.serve(link, transport, self.bundle_came, self.frame_came)
        link.take(connection)
        if replaced is not None and replaced is not link:
            self._report_lost(replaced)  # what the peer then sends uses the new link and opens no other
        self.pump.hand(self.pump.inputs.link_up, link.contact)
        if link.measuring:
            link.measuring = False
            self._ping(link)

    def refused_client(self, problem: Exception) -> None:
        """The connection of a client was closed because of its fault."""
        self.counters["refused_client"] += 1
        self.problems.append(f"closed the connection of a client: {problem}")

    def bundle_came(self, link: PeerLink, bundle: Bundle) -> None:
        """A bundle arrived. Raises `Malformed` if the other side overdrew its credit."""
        self.counters["bundles_in"] += 1
        self.counters["bytes_in"] += bundle.size
        link.came(bundle.size)
        if self.links.get(link.contact.node_id) is not link:
            self._owe(link.contact.node_id, bundle.size)
        if not self.pump.closed:
            self.pump.call(self.pump.inputs.bundle, link.contact, bundle)

    def frame_came(self, link: PeerLink, type_: FrameType, content: bytes) -> None:
        """A frame other than a bundle arrived."""
        if type_ is SHARED_BUNDLE:  # most frames of a busy link
            self._transport_frame_came(link, type_, content)
            return
        match type_:
            case FrameType.CONTROL:
                link.note_idle_there(idle=False)
                for message in self.codec.decode_all(content):
                    self.counters["messages_in"] += 1
                    if not self.pump.closed:
                        self.pump.call(self.pump.inputs.message, link.contact, message)
            case FrameType.CREDIT if len(content) == NUMBER_BYTES:
                link.credited(int.from_bytes(content, "little"))
            case FrameType.PING if len(content) == NUMBER_BYTES:
                link.say(FrameType.PONG, content)
            case FrameType.PONG if len(content) == NUMBER_BYTES:
                self.round_trips.answered(int.from_bytes(content, "little"))
            case FrameType.IDLE:
                link.note_idle_there(idle=True)
                self.write(link)
            case FrameType.DONE:
                self._done(link)
            case FrameType.SUPERSEDED:
                pass  # it is closing now
            case _:
                self._transport_frame_came(link, type_, content)

    def closed(self, connection: Connection) -> None:
        """A connection ended."""
        self._unauthenticated.pop(connection, None)
        self._ending.pop(connection, None)
        link = self._served.pop(connection, None)
        if link is None:
            return
        if self.links.get(link.contact.node_id) is link:
            self._remove(link)
            if connection.end.pid not in (0, os.getpid()) and not connection.closing and not self._closing:
                task = self.loop.create_task(self._see_if_ended(link.contact, connection.end.pid))
                self._death_watches.add(task)
                task.add_done_callback(self._death_watches.discard)
        link.lost(connection)

    def refused(self, connection: Connection, problem: RemoteError | FrameMemoryFull) -> None:
        """A connection is closed because of what arrived on it."""
        match problem:
            case FrameMemoryFull():
                self.counters["crowded_out"] += 1
            case Unadmitted(why=why):
                self.counters[f"refused_{why}"] += 1
            case _:
                self.counters["refused_malformed"] += 1
        self.problems.append(f"closed the link with {connection.end.name}: {problem}")

    # --- within -------------------------------------------------------------------------------------------------

    def _transport_frame_came(self, link: PeerLink, type_: FrameType, content: bytes) -> None:
        """A frame arrived that only the transport may understand. Raises `Malformed` if it does not."""
        connection = link.connection
        assert connection is not None
        try:
            bundle = connection.transport.unpack(type_, content)
        except TransportLost as problem:  # as if the link had broken earlier
            self.problems.keep(f"lost the link with {connection.end.name}: {problem}")
            connection.abort()
        else:
            if bundle is not None:
                self.bundle_came(link, bundle)

    async def _see_if_ended(self, contact: Contact, pid: int) -> None:
        """A process closed its link. If it has ended, report the peer as dead at once."""
        if not await local_ipc.has_ended(pid, _ENDING_S):
            return
        link = self.links.get(contact.node_id)
        if link is None or link.connection is None:  # otherwise it has restarted
            self.pump.hand(self.pump.inputs.died, contact)

    async def _open(self, link: PeerLink) -> None:
        try:
            await within(self.config.connect_timeout_s, self._connect_link(link))
        except (OSError, TimeoutError, QuillcastError) as problem:
            link.opening = None
            self.give_up(link, problem)
        finally:
            link.opening = None

    async def _connect_link(self, link: PeerLink) -> None:
        try:
            await self._connect(link.contact.address, link.contact.node_id)
        except Superseded:
            await link.established.wait()

    def _connection(self, wanted: bytes | None, *, opened_here: bool, curious: bool = False) -> Connection:
        mine = self.handshake.hello(self.contact.address, self.config.window_bytes, self.sharing.sample_place)
        return Connection(self._connections, mine, wanted, opened_here=opened_here, curious=curious)

    def _ping(self, link: PeerLink) -> None:
        link.say(FrameType.PING, self.round_trips.ask(link.contact).to_bytes(NUMBER_BYTES, "little"))

    def _round_trips_lost(self, link: PeerLink) -> None:
        self.round_trips.lost(link.contact.node_id)
        if link.measuring:
            self.pump.hand(self.pump.inputs.measured, link.contact, None)

    async def _connect(self, address: str, wanted: bytes | None, *, curious: bool = False) -> Connection:
        members_only = self.handshake.members_only
        host, port = addresses.parse(address) if members_only else addresses.parse_loopback(address)
        if self._unplugged:
            raise OSError(errno.ENETUNREACH, "unplugged on purpose (a drill)")
        connection = self._connection(wanted, opened_here=True, curious=curious)
        await connection.made_by(
            connect(self.loop, lambda: self._protocol(connection), host, port, local=self.config.local_ipc)
        )
        try:
            await (connection.proven if members_only or not curious else connection.greeted)
        except Superseded:
            if not curious:
                raise  # otherwise it is a member that is opening a link to this peer
        except BaseException:
            if connection.receiver is None:
                connection.abort()
            raise
        return connection

    def _protocol(self, connection: Connection) -> asyncio.BaseProtocol:
        """The protocol of the connection's socket."""
        return connection if self.handshake.tls is None else self.handshake.tls.transport(connection, self._plain)

    def _expire(self, connection: Connection) -> None:
        if connection in self._unauthenticated:
            connection.refuse(
                HelloRefused("silence", f"it did not say hello within {self.config.connect_timeout_s:g} s")
            )

    def _remove(self, link: PeerLink) -> None:
        """Remove a link and everything that waits for it."""
        self._forget(link)
        if not self._closing:
            self._report_lost(link)

    def _report_lost(self, link: PeerLink) -> None:
        self.pump.hand(self.pump.inputs.link_lost, link.contact)
        self._round_trips_lost(link)

    def _done(self, link: PeerLink) -> None:
        """The other side sends nothing more: send what waits, and close. The next message opens another link."""
        if self.links.get(link.contact.node_id) is link:
            self._forget(link)
            self.write(link)
            self._round_trips_lost(link)
        assert link.connection is not None
        self._ending[link.connection] = None
        link.close()

    def _forget(self, link: PeerLink) -> None:
        del self.links[link.contact.node_id]
        self._owe(link.contact.node_id, link.charged)

    def _owe(self, node: bytes, size_bytes: int) -> None:
        """These bytes of bundles are still to be released, but there is no link to return credit on."""
        if size_bytes:
            self._debts[node] = self._debts.get(node, 0) + size_bytes

    def _flush(self, links: list[Link] | None = None) -> bool:
        """Make these links, or all that have something to write, write their queues; returns whether there were events.

        An error closes only the link where it occurs.
        """
        if links is None:
            if not self._dirty:
                return False
            links, self._dirty = self._dirty, []
        if len(links) > 1:
            links.sort(key=methodcaller("is_idle"))  # receipts and credit can wait for a system call, events should not
        carried = False
        for link in links:
            connection = link.connection
            try:
                carried = link.flush() or carried
                if link.idle_here and link.idle_there and link.is_open and isinstance(link, PeerLink):
                    self.end(link)
            except Exception as problem:  # noqa: BLE001 - an error of one link must not affect the others
                assert connection is not None
                self._broke(connection, problem)
        return carried

    def _broke(self, connection: Framed, problem: Exception) -> None:
        """The queues of a link cannot be written: end it and discard what waits. No other link is affected."""
        self.counters["links_broken"] += 1
        self.problems.append(f"closed the link with {connection.end.name}: nothing can be written to it: {problem!r}")
        connection.abort()
        self.loop.call_soon(connection.lost, problem)  # a broken transport may not report that it closed


def _unreachable(address: str, problem: Exception) -> Unreachable:
    """Explain in one line why there is no link to an address."""
    if isinstance(problem, Unreachable):
        return problem
    verb = "reach" if isinstance(problem, OSError) else "link with"
    return Unreachable(f"cannot {verb} {address}: {addresses.why(problem)}")
