"""The peer that serves this process, as the process's publishers and subscriptions see it.

A publisher here is the protocol's own, whose root is that peer. It keeps its blocks until the peer says that they are
stable, and sends only as much as the peer's publisher of the same id has room for.
"""

import asyncio
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Position
from quillcast.core.errors import Leaving, Malformed, QuillcastError, RemoteError, Unreachable
from quillcast.core.ids import publisher_id, short
from quillcast.core.messages import Contact
from quillcast.core.trace import Record
from quillcast.live.admission.credentials import Credentials
from quillcast.live.clients.connection import ClientConnection, ClientLink
from quillcast.live.clients.messages import (
    Answered,
    Ask,
    ClosePublisher,
    Codec,
    Connect,
    Delivery,
    Directed,
    Discarded,
    EndDirect,
    Ending,
    HeldUp,
    Lost,
    OpenPublisher,
    Progress,
    PublisherFailed,
    SeekServer,
    Started,
    Subscribe,
    SubscriptionFailed,
    Taken,
    UnexpectedMessage,
    Unsubscribe,
    Welcome,
)
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.questions import HoldUpsQuestion, PeerQuestion
from quillcast.live.edges import choices
from quillcast.live.edges.subscription import Inbox
from quillcast.live.runtime.patience import Patience
from quillcast.live.runtime.pump import Pump
from quillcast.live.runtime.yielding import Yielding
from quillcast.live.transport import local_ipc
from quillcast.live.transport.framed import FramedContext
from quillcast.live.transport.framing import FramePool, FrameType, Unfinished, frame
from quillcast.live.transport.link import Link, LinkContext
from quillcast.live.transport.shared_memory import SharedMemory
from quillcast.live.transport.shared_transport import Sharing
from quillcast.live.transport.transport import transport_of
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher, PublisherListener, Uplink

T = TypeVar("T")

_INCARNATION_BYTES = 8
_PING_EVERY_S = 2.0  # of a peer that serves this process directly
_PINGS_MAX = 3  # that it leaves unanswered; it is then given up as soon as a silent neighbour
_TAKEN_PARTS = 8  # what was read is reported in eighths of a subscription's window ...
_TAKEN_S = 0.1  # ... or after this time, so that the peer does not mistake a reader for a slow one; a guess


class Handle:
    """A subscription at the peer."""

    __slots__ = ("inbox", "number", "topic", "wish")

    def __init__(
        self, number: int, topic: bytes, inbox: "RemoteInbox", wish: tuple[str, str | None, Warrant | None]
    ) -> None:
        self.number, self.topic, self.inbox, self.wish = number, topic, inbox, wish


class RemoteInbox(Inbox):
    """An inbox that tells its peer what the application has read, so that the peer sends more."""

    __slots__ = ("handle", "owed", "told_soon")

    def __init__(self, size_bytes_max: int, name: str) -> None:
        super().__init__(size_bytes_max, name)
        self.handle: Handle | None = None
        self.owed = 0  # read, and the peer was not told
        self.told_soon: Callable[[], None] | None = None

    def release(self, size_bytes: int) -> bool:
        self.size_bytes -= size_bytes
        if not self.owed and self.told_soon is not None:
            self.told_soon()
        self.owed += size_bytes
        return self.owed * _TAKEN_PARTS >= self.size_bytes_max


class Sending:
    """A publisher of this process, and how much of its data the peer has not passed on."""

    publisher: Publisher
    """Set when it is made."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.via: Proxy | None = None
        """The peer that it publishes through, once that is known."""
        self.number = self._window_bytes = 0
        self.taken = 0  # the peer has its events before this
        self.bound = ""  # why it waits for a place among the topic's publishers
        self.close_told = False
        self._in_transit: deque[tuple[int, int]] = deque()  # one past the last event, and bytes, of bundles
        self._in_transit_bytes = 0

    def begin(self, via: "Proxy", number: int, first: int) -> None:
        """Publish through this peer from now on, under this number and from this event on."""
        self.via, self.number, self._window_bytes = via, number, via.welcome.topics.window_bytes
        self.taken, self.close_told = first, False
        self._in_transit.clear()
        self._in_transit_bytes = 0
        self.publisher.root_lost()

    def release(self) -> None:
        """Its peer has ended."""
        self.via = None

    def room_to(self, root: Contact, topic: bytes, held_back: bool) -> int:
        """Bytes that the peer accepts now."""
        return min(self.via.room(root), self._window_bytes - self._in_transit_bytes) if self.via is not None else 0

    def carry(self, publisher: Publisher, bundle: Bundle) -> None:
        """Send one of its bundles to the peer."""
        assert self.via is not None
        self._in_transit.append((bundle.blocks[-1].last, bundle.size))
        self._in_transit_bytes += bundle.size
        self.via.carry(bundle)

    def progressed(self, message: Progress) -> None:
        """The peer says how far it is."""
        self.taken, self.bound = message.taken, message.bound
        while self._in_transit and self._in_transit[0][0] <= message.admitted:
            self._in_transit_bytes -= self._in_transit.popleft()[1]


class Inquiry:
    """Asks the peer who holds up a publisher's events (`live.edges.peer.Causes`)."""

    def __init__(self, asked: "asyncio.Future[HeldUp]", named: str) -> None:
        self._asked, self._named = asked, named

    def __enter__(self) -> "Inquiry":
        return self

    def __exit__(self, *error: object) -> None:
        self._asked.cancel()
        if not self._asked.cancelled():
            self._asked.exception()  # if nobody asked for the causes, nobody need know

    @property
    def peers(self) -> list[str]:
        """NodeIds of the peers that hold it up, in hexadecimal."""
        return self._found.peers

    def lagging(self) -> str:
        """Why admitted events are not stable."""
        return self._found.lagging

    def held_back(self) -> str:
        """Why the root admits no events now."""
        return self._found.held_back

    @property
    def _found(self) -> HeldUp:
        if self._asked.done() and not self._asked.cancelled() and self._asked.exception() is None:
            return self._asked.result()
        silent = f"{self._named} did not answer"
        return HeldUp([], silent, silent)


class Process:
    """What all connections of this process share; `connect` is its introduction, `name` its name."""

    def __init__(self, live: LiveConfig, name: str) -> None:
        self.live, self.counters = live, Counter[str]()
        self.pump = Pump(asyncio.get_running_loop(), Yielding(live.yield_cpu))
        incarnation = secrets.token_bytes(_INCARNATION_BYTES)
        self.sharing = Sharing(SharedMemory(), incarnation, live, self.counters)
        self.plain = partial(transport_of, config=live)
        self.shared = FramedContext(self.pump, self.plain, FramePool(), Unfinished(live.unfinished_bytes_max))
        self.connect = Connect(live.window_bytes, incarnation, self.sharing.sample_place, name)
        self.proxies: dict[Proxy, None] = {}
        self.pump.write_by(self._flush)

    def _flush(self) -> bool:
        """Have the connections write what waits. Were there events?"""
        carried = False
        for proxy in tuple(self.proxies):
            carried = proxy.flush() or carried
        return carried


class Proxy:
    """Stands for the peer that serves this process (`live.edges.peer`, `live.edges.publishers.Backend`).

    `ending` is called when that peer says that it will end, `ended` when the connection is closed, each with why.
    """

    welcome: Welcome
    """What that peer said of itself when the connection was made."""

    def __init__(
        self,
        contact: Contact,
        process: Process,
        remedy: str,
        ending: Callable[[QuillcastError], None],
        ended: Callable[[QuillcastError], None],
    ) -> None:
        """`remedy` says what to do when that peer ends, for users."""
        self.contact, self._process, self._remedy = contact, process, remedy
        self._tell_ending, self._tell_ended = ending, ended
        self.pump, self.join = process.pump, process.sharing.join
        context = LinkContext(self.pump, process.live, Codec(), process.counters, self._mark_dirty)
        self._link = ClientLink(context, contact, self._fill)
        self._dirty = False
        self._numbers = self._ids = 0
        self._handles: dict[int, Handle] = {}
        self._by_topic: Counter[bytes] = Counter()
        self._sending: dict[int, Sending] = {}
        self._asked: dict[int, tuple[asyncio.Future[Any], type]] = {}
        self._reason: QuillcastError | None = None
        self.failure: QuillcastError | None = None
        """Why the connection is closed."""
        self._connection: ClientConnection | None = None

    def greet(self, welcome: Welcome) -> None:
        """The peer has accepted the connection."""
        self.welcome = welcome

    async def open(self, own: socket.socket, welcome: Welcome) -> None:
        """Use a connected socket, on which the peer has accepted the connection."""
        self.greet(welcome)
        first = frame(FrameType.CONTROL, Codec.encode_all([self._process.connect]))
        theirs = Connect(welcome.window_bytes, welcome.incarnation, welcome.shared_memory)
        connection = ClientConnection(self._process.shared, first, self.connected, self.lost, theirs)
        await local_ipc.serve(self.pump.loop, lambda: connection, own)

    def connected(self, connection: ClientConnection, theirs: Connect) -> None:
        """The peer accepts frames on this connection. `lost` is called when that ends."""
        self._connection = connection
        self._process.proxies[self] = None
        self._link.serve(connection, self._process.sharing, theirs, self._bundle, self._message)

    def watch(self) -> None:
        """Give up the connection when the peer does not answer."""
        if self.failure is not None or self._connection is None:
            return
        if self._link.unanswered >= _PINGS_MAX:
            silent_s = _PINGS_MAX * _PING_EVERY_S
            self._connection.break_off(Unreachable(f"it did not answer for {silent_s:g} s; is it stopped?"))
            return
        self._link.ping()
        Patience(self.pump.loop, _PING_EVERY_S, self.watch)

    async def close(self) -> None:
        """Close the connection when the peer has what was sent."""
        if self._connection is not None and self.failure is None:
            self._link.close()
            await asyncio.wait([self._connection.ended], timeout=self._process.live.close_timeout_s)
            self._connection.abort()

    @property
    def named(self) -> str:
        """The peer, as messages name it."""
        contact = self.contact
        return f"the peer {short(contact.node_id)} at {contact.address} (process {self.welcome.pid})"

    @property
    def has_all(self) -> bool:
        """Does the peer have everything that was published, or is it gone?"""
        return self.failure is not None or all(each.taken >= each.publisher.next for each in self._sending.values())

    @property
    def peer(self) -> "Proxy":
        """The peer to publish through: this."""
        return self

    def inboxes(self) -> list[RemoteInbox]:
        """The inboxes of all subscriptions."""
        return [handle.inbox for handle in self._handles.values()]

    # --- for subscriptions

    def subscribe(
        self, name: str, subscriber: Any, *, start: str = "now", delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Handle:  # fmt: skip
        """Subscribe to a topic. Raises `LocalError` for an invalid name."""
        inbox, topic = subscriber, described(name).topic
        assert isinstance(inbox, RemoteInbox)
        handle = Handle(self._next_number(), topic, inbox, (start, delivery, warrant))
        self._handles[handle.number] = handle
        self.attach(handle, inbox)
        self._by_topic[topic] += 1
        self._link.send(
            Subscribe(handle.number, name, start, delivery, warrant, inbox.name, max(1, inbox.size_bytes_max))
        )
        return handle

    def attach(self, handle: Handle, inbox: RemoteInbox) -> None:
        """Deliver a subscription's events into this inbox."""
        handle.inbox, inbox.handle = inbox, handle
        inbox.told_soon = partial(self.pump.later, _TAKEN_S, self.drained, handle)

    def unsubscribe(self, handle: Handle) -> None:
        """End a subscription."""
        if self._handles.pop(handle.number, None) is not None:
            self._by_topic[handle.topic] -= 1
            self._link.send(Unsubscribe(handle.number))

    def subscriptions(self, handle: Handle) -> int:
        """The number of subscriptions of this process to the topic of this one."""
        return self._by_topic[handle.topic]

    def drained(self, handle: Handle) -> None:
        """The application has read something."""
        if handle.inbox.handle is not handle:
            return  # another peer fills it by now
        owed, handle.inbox.owed = handle.inbox.owed, 0
        if owed and handle.number in self._handles:
            self._link.send(Taken(handle.number, owed))

    # --- for publishers

    def publisher(self, name: str, listener: PublisherListener, warrant: Warrant | None = None) -> Publisher:
        """A new publisher of a topic. Raises `LocalError` for an invalid name."""
        sending = self.prepare(name, listener, warrant)
        self.begin(sending)
        return sending.publisher

    def prepare(self, name: str, listener: PublisherListener, warrant: Warrant | None) -> Sending:
        """A new publisher, which sends nothing before it begins, here or at another peer."""
        sending, descriptor = Sending(name), described(name)
        sending.publisher = Publisher(
            self, self.welcome.topics, descriptor, self.new_publisher_id(), listener,
            Uplink(sending.carry, sending.room_to, wake=lambda topic: None), warrant,
        )  # fmt: skip
        return sending

    def begin(self, sending: Sending) -> None:
        """Have a publisher publish through this peer, whose limits it keeps from now on."""
        publisher, number = sending.publisher, self._next_number()
        first = publisher.retained[0].first if publisher.retained else publisher.next
        sending.begin(self, number, first)
        publisher.keep_limits(self.welcome.topics)
        self._sending[number] = sending
        self._link.send(OpenPublisher(number, sending.topic, publisher.id, publisher.warrant, first))

    def give_up(self, sending: Sending) -> None:
        """A publisher continues at another peer."""
        self._sending.pop(sending.number, None)

    def release(self) -> list[Sending]:
        """Other peers serve this process from now on: end the subscriptions here, and return the publishers."""
        self._handles.clear()
        self._by_topic.clear()
        sendings, self._sending = list(self._sending.values()), {}
        return sendings

    def new_publisher_id(self) -> bytes:
        """A PublisherId that no other publisher has or had."""
        self._ids += 1
        return publisher_id(self.contact.node_id, self._process.connect.incarnation, self._ids)  # type: ignore[arg-type]

    def close_publisher(self, publisher: Publisher) -> None:
        """Close a publisher. The peer keeps its events until they are stable."""
        publisher.close()
        for sending in list(self._sending.values()):
            if sending.publisher is publisher and not sending.close_told:
                sending.close_told = True
                self._link.send(ClosePublisher(sending.number, publisher.next))
                self._forget_if_done(sending)

    def bound(self, topic: bytes) -> str:
        """Why publishers wait for a place in their topic, in a sentence; empty: they do not."""
        return next((each.bound for each in self._sending.values() if each.publisher.topic == topic and each.bound), "")

    def publishers(self) -> list[Publisher]:
        """Those that publish through this peer."""
        return [sending.publisher for sending in self._sending.values()]

    def awaited(self, name: str) -> list[Contact]:
        """The peer that serves this process: it was asked to take part in the topic."""
        return [self.contact]

    def warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """Shows a topic's root on whose behalf the peer acts. Raises `LocalError` for a bad name."""
        return choices.warrant(credentials, self.contact.node_id, topic)

    def find_causes(self, publisher: Publisher, last: int) -> Inquiry:
        """Find out who holds up a publisher's events before `last`."""
        number = next((each.number for each in self._sending.values() if each.publisher is publisher), 0)
        return Inquiry(self.question(HoldUpsQuestion(number, last), HeldUp), self.named)

    def carry(self, bundle: Bundle) -> None:
        """Send a bundle of a publisher to the peer."""
        self._link.carry(bundle)

    # what a publisher needs of its host

    now = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)

    def room(self, to: Contact) -> int:
        """Bytes of credit left towards the peer."""
        return self._link.room

    def trace(self, record: Record) -> None:
        """The peer writes the journal."""

    # --- questions

    async def ask(self, question: PeerQuestion, kind: type[T], timeout_s: float) -> T:
        """Ask the peer. Raises its error, or `Unreachable` if it does not answer in time."""
        try:
            return await asyncio.wait_for(self.question(question, kind), timeout_s)
        except TimeoutError as problem:
            raise Unreachable(f"{self.named} did not answer within {timeout_s:g} s; is it stopped?") from problem

    def question(self, question: PeerQuestion, kind: type[T]) -> "asyncio.Future[T]":
        """Ask the peer: the future answer, or its error."""
        number, answered = self._answer(kind)
        if self.failure is None:
            self._link.send(Ask(number, msgspec.msgpack.encode(question)))
        return answered

    def seek_server(
        self, number: int, topic: str, doing: Doing, digest: bytes, unreachable: tuple[bytes, ...]
    ) -> "asyncio.Future[Directed]":
        """Ask the peer for another one that serves this process in a topic."""
        asked, answered = self._answer(Directed)
        if self.failure is None:
            self._link.send(SeekServer(number, asked, topic, doing, digest, unreachable))
        return answered

    def end_direct(self, number: int) -> None:
        """Tell the peer that a use of a topic for which it sought another one has ended."""
        if self.failure is None:
            self._link.send(EndDirect(number))

    def _answer(self, kind: type[T]) -> "tuple[int, asyncio.Future[T]]":
        """The number of a new question, and its future answer."""
        answered: asyncio.Future[T] = self.pump.loop.create_future()
        number = self._next_number()
        if self.failure is not None:
            answered.set_exception(self.failure)
            answered.exception()  # the waiting call raises it
        else:
            self._asked[number] = (answered, kind)
            answered.add_done_callback(lambda _: self._asked.pop(number, None))
        return number, answered

    # --- what comes from the peer

    def _bundle(self, bundle: Bundle) -> None:
        number, skip, stop, recovered = Delivery.decode(bundle.topic)
        block = bundle.blocks[0]
        if len(bundle.blocks) != 1 or not skip < stop <= block.count:
            raise Malformed(f"events {skip} to {stop} of a bundle of {bundle.count} were delivered")
        handle = self._handles.get(number)
        if handle is not None:  # else it was closed meanwhile
            position = Position(bundle.envelope.term, bundle.envelope.first)
            self.pump.call(handle.inbox.deliver, block, skip, stop, position, recovered)

    def _message(self, message: Any) -> None:
        self.pump.call(self._take, message)

    def _take(self, message: Any) -> None:
        match message:
            case Started() | Lost() | SubscriptionFailed():
                if (handle := self._handles.get(message.number)) is not None:  # else it was closed meanwhile
                    self._tell(handle, message)
            case Progress() | Discarded() | PublisherFailed():
                if (sending := self._sending.get(message.number)) is not None:
                    self._progressed(sending, message)
            case Answered():
                self._answered(message)
            case Ending(reason):
                self._reason = Leaving(f"{reason}; {self._remedy}")
                self.pump.loop.call_soon(self._tell_ending, self._reason)
            case _:
                raise UnexpectedMessage(message)

    def _tell(self, handle: Handle, message: Started | Lost | SubscriptionFailed) -> None:
        match message:
            case Started(_, position):
                handle.inbox.started(position)
            case Lost(_, losses):
                for loss in losses:
                    handle.inbox.lost(loss)
            case SubscriptionFailed(number, problem):
                del self._handles[number]
                self._by_topic[handle.topic] -= 1
                handle.inbox.failed(problem.error)

    def _progressed(self, sending: Sending, message: Progress | Discarded | PublisherFailed) -> None:
        publisher = sending.publisher
        match message:
            case Progress():
                sending.progressed(message)
                if message.descriptor is not None:
                    publisher.adapt(message.descriptor)
                if message.rooted:
                    publisher.follow_session(message.session, reliable=message.reliable)
                if message.rooted and publisher.root is None:
                    publisher.root_is(self.contact, NO_TERM)
                partitioned = message.partitioned
                publisher.receipt(NO_TERM, message.admitted, message.stable, partitioned=partitioned)
                publisher.listener.progressed()
                self._forget_if_done(sending)
            case Discarded(_, first, last):
                publisher.follow_discarded(first, last)
                publisher.listener.progressed()
            case PublisherFailed(number, problem):
                del self._sending[number]
                publisher.listener.failed(problem.error)

    def _forget_if_done(self, sending: Sending) -> None:
        publisher = sending.publisher
        if publisher.closed and not publisher.retained and sending.taken >= publisher.next:
            self._sending.pop(sending.number, None)

    def _answered(self, message: Answered) -> None:
        asked, kind = self._asked.pop(message.number, (None, object))
        if asked is None or asked.done():
            return
        if message.problem is not None:
            asked.set_exception(message.problem.error)
            return
        try:
            asked.set_result(msgspec.msgpack.decode(message.answer, type=kind))
        except msgspec.MsgspecError as problem:
            asked.set_exception(RemoteError(f"{self.named} sent an invalid answer: {problem}"))

    def lost(self, problem: Exception) -> None:
        """The connection has ended."""
        if self.failure is not None:
            return
        if self._connection is not None:
            self._link.lost(self._connection)
        if self._reason is not None:
            self.failure = self._reason
        elif isinstance(problem, QuillcastError):
            self.failure = Unreachable(f"the connection to {self.named} was closed: {problem}; {self._remedy}")
        else:
            self.failure = Unreachable(f"{self.named} has ended, or closed the connection ({problem}); {self._remedy}")
        for asked, _ in list(self._asked.values()):
            if not asked.done():
                asked.set_exception(self.failure)
                asked.exception()  # there may be no waiter
        self._process.proxies.pop(self, None)
        self._tell_ended(self.failure)
        for handle in list(self._handles.values()):
            handle.inbox.failed(self.failure)
        self._handles.clear()
        for publisher in self.publishers():
            publisher.listener.failed(self.failure)
        self.pump.call(lambda: None)  # wakes those who wait for `has_all`

    # --- within

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _fill(self) -> None:
        """Publishers send when there is room again."""
        for sending in self._sending.values():
            publisher = sending.publisher
            if publisher.sent < publisher.next and publisher.root is not None:
                publisher.push()

    def _mark_dirty(self, link: Link) -> None:
        if not self.pump.turning:
            self.pump.loop.call_soon(self.flush)
        self._dirty = True

    def flush(self) -> bool:
        """Write what waits. Were there events?"""
        if not self._dirty:
            return False
        self._dirty = False
        return self._link.flush()
