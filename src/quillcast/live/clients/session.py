"""A client, as its peer sees it: subscriptions, publishers and questions, until the socket closes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import UP
from quillcast.core.errors import LocalError, Malformed, QuillcastError, Unreachable
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import RangeSet
from quillcast.live import arguments
from quillcast.live.clients.connection import ClientConnection, ClientLink
from quillcast.live.clients.line import Invitation
from quillcast.live.clients.messages import (
    ASKED_MAX,
    Answered,
    Ask,
    ClosePublisher,
    Connect,
    Directed,
    Discarded,
    EndDirect,
    Ending,
    HeldUp,
    OpenPublisher,
    Problem,
    Progress,
    PublisherFailed,
    SeekServer,
    Subscribe,
    SubscriptionFailed,
    Taken,
    UnexpectedMessage,
    Unsubscribe,
)
from quillcast.live.clients.outbox import LOSSES_MAX, Bounded, Outbox
from quillcast.live.discovery.questions import (
    OF_CLIENTS,
    OF_NODES,
    OF_OTHER_DEVICES,
    Answerer,
    HoldUpsQuestion,
    PeerQuestion,
    understood,
)
from quillcast.live.edges.batcher import too_large
from quillcast.live.edges.holdups import HoldUps
from quillcast.live.runtime.pump import Pump
from quillcast.live.transport.link import LinkContext
from quillcast.live.transport.shared_transport import Sharing
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.direct import Guest
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher

HANDLES_MAX = 1 << 14  # subscriptions and publishers of a client; a guess
_TELL_S = 0.1  # losses are reported this long after the first, or with the next event; a guess: ranges merge
_WALK_S = 0.25  # how long peers are asked what holds up a client's events; a guess: its call waits twice as long


class RemotePublisher:
    """A publisher of a client; the listener of the peer's publisher, `inner`, which has the same PublisherId."""

    def __init__(self, wish: OpenPublisher, changed: Callable[["RemotePublisher"], None]) -> None:
        self.wish, self._changed = wish, changed
        self.inner: Publisher | None = None
        self.close_at: int | None = None  # it closes when the events before that have arrived
        self.discarded = RangeSet()  # events that never count as stable, which its client does not know yet
        self._known = 0  # its events before this arrived on a former connection of its client
        self.failure: QuillcastError | None = None
        self._told: Any = None  # the descriptor that the client knows

    def progressed(self) -> None:
        self._changed(self)

    def dropped(self, block: Block) -> None:
        stable = self.inner.stable if self.inner is not None else 0
        self.discarded.add(max(block.first, stable), block.last)
        self._changed(self)

    def stops_keeping(self) -> None:
        self._changed(self)

    def was_best_effort(self, first: int, last: int) -> None:
        self.discarded.add(first, last)
        self._changed(self)

    def failed(self, error: QuillcastError) -> None:
        self.failure = error
        self._changed(self)

    def begin(self, inner: Publisher) -> None:
        """The peer has a publisher for it: a new one, or its former one if the client was disconnected."""
        self.inner, self._known = inner, inner.next
        self.discarded = RangeSet(inner.dropped)
        self._changed(self)

    def take(self, block: Block) -> None:
        """A block arrived. Raises `Malformed` if the publisher may not send it now."""
        inner = self.inner
        if inner is None:
            raise Malformed("a block came before its publisher had begun")
        if block.publisher == inner.id and block.last <= self._known:
            self._changed(self)  # announces the publisher
            return
        if (block.publisher, block.first) != (inner.id, inner.next) or inner.closed:
            raise Malformed(f"a block of events from {block.first} came, but {inner.next} is next")
        if inner.room() <= 0:
            raise Malformed("a block came beyond the publisher's window")
        limit = inner.descriptor.settings.event_bytes_max
        if block.size > limit and (size := max(map(len, block.payloads()))) > limit:
            self.failed(too_large(size, limit, inner.descriptor.name))
        if self.failure is None:
            inner.publish(block)
            self._changed(self)

    def news(self, bound: str) -> list[Message]:
        """The news that the client does not know yet."""
        inner, number = self.inner, self.wish.number
        if self.failure is not None:
            return [PublisherFailed(number, Problem.of(self.failure))]
        if inner is None:
            return [Progress(number, 0, 0, 0, False, False, bound, None, 0, True)]
        descriptor = None if self._told is inner.descriptor else inner.descriptor
        self._told = inner.descriptor
        said: list[Message] = [Discarded(number, first, last) for first, last in self.discarded]
        self.discarded = RangeSet()
        rooted = inner.root is not None
        return [*said, Progress(number, inner.next, inner.admitted, inner.stable, inner.partitioned, rooted,
                                bound, descriptor, inner.session, inner.reliable)]  # fmt: skip


class DirectUse:
    """A client's use of a topic through another peer, or its wish for one."""

    def __init__(self, wish: SeekServer, answer: Callable[["DirectUse", Contact | QuillcastError], None]) -> None:
        self.wish, self.answer = wish, answer
        self.is_answered = False

    def decided(self, why_not: str) -> None:
        """The scope's manager allows it, or says why not."""
        if why_not:
            self.answer(self, AccessDenied(why_not))

    def found(self, server: Contact | None, why: str) -> None:
        """A peer serves the client, or no peer does."""
        self.answer(self, server or Unreachable(why))


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What all sessions of a peer share."""

    peer: Peer
    pump: Pump
    links: LinkContext
    sharing: Sharing
    answer: Answerer
    client_bytes: int
    network: tuple[str, bytes]
    """Its name, and the key of its credential; empty if it has none."""
    ended: Callable[["Session", Exception], None]


class Session:
    """One client. When its socket closes, everything that it had ends."""

    def __init__(
        self, context: SessionContext, guest: Guest | None = None, invitation: Invitation | None = None
    ) -> None:
        """`guest`: it is the client of another peer, and is served here directly (`protocol.scopes.direct`).

        `invitation`: it connected with this line from another device. All others belong to the peer's own user, as
        the kernel says, and may ask more.
        """
        self._context, self._peer, self._pump, self._guest = context, context.peer, context.pump, guest
        self._invitation = invitation
        self.connection: ClientConnection | None = None
        self.link = ClientLink(context.links, Contact(bytes(16), "a client"), self._fill)
        self._outboxes: dict[int, Outbox] = {}
        self._queues = Bounded(context.client_bytes)
        self._losing: dict[Outbox, None] = {}  # subscriptions with losses to report
        self._losses_due = False
        self._publishers: dict[int, RemotePublisher] = {}
        self._by_id: dict[bytes, RemotePublisher] = {}
        self._changed: dict[RemotePublisher, None] = {}
        self._asked: dict[asyncio.Task[None], None] = {}
        self._directed: dict[int, DirectUse] = {}  # uses for which another peer serves it, or should
        self._id = b""  # as a client of the peer's scopes

    # --- its life

    def connected(self, connection: ClientConnection, message: Connect) -> None:
        """The client is connected."""
        check("client", message.name)
        self.connection = connection
        if self._guest is None:
            self._id = self._peer.scoping.hosting.enter(message.name)
        if self._invitation is not None:
            self._invitation.note(self._id)
        self.link.serve(connection, self._context.sharing, message, self._bundle, self._message)

    def leave(self, reason: str) -> None:
        """The peer will end: accept nothing new."""
        self.send(Ending(reason))

    def came_by(self, right: Guest | Invitation) -> bool:
        """Is this why it is served?"""
        return right in (self._guest, self._invitation)

    def turn_out(self, reason: str) -> None:
        """It may do nothing further: close its socket at once."""
        if self.connection is not None:
            self.leave(reason)
            self.link.flush()
            self.connection.abort()

    def close(self) -> None:
        """Close its socket when it has read what was written."""
        if self.connection is not None:
            self.link.close()

    def ended(self, problem: Exception) -> None:
        """Its socket has closed: end its subscriptions and publishers, and answer nothing."""
        self._context.ended(self, problem)
        if self.connection is not None:
            self.link.lost(self.connection)
        for task in self._asked:
            task.cancel()
        for outbox in self._outboxes.values():
            if outbox.handle is not None:
                self._pump.call(self._peer.unsubscribe, outbox.handle)
        for publisher in self._publishers.values():
            if publisher.inner is not None:
                self._pump.call(self._peer.orphan_publisher, publisher.inner)
        self._outboxes.clear()
        self._publishers.clear()
        self._directed.clear()
        if self._id:
            self._pump.call(self._peer.scoping.client_left, self._id)
            self._id = b""
        if self._guest is not None:
            self._peer.scoping.direct.guests.leave(self._guest)

    # --- what its outboxes and publishers call, within steps of the peer

    def send(self, message: Message) -> None:
        """Send a message."""
        self.link.send(message)

    def grew(self, outbox: Outbox, size_bytes: int) -> None:
        """This many more bytes wait, or there are losses to report."""
        for each in self._queues.grew(outbox, size_bytes) if size_bytes else [outbox]:
            if not self._losing:
                self._pump.later(_TELL_S, self._tell_soon)
            self._losing[each] = None
            if each.untold > LOSSES_MAX and self.connection is not None:
                self.connection.break_off(LocalError(f"it does not read, and {each.untold} loss reports are waiting"))
        self.link.mark_dirty()

    def failed(self, outbox: Outbox, error: QuillcastError) -> None:
        """A subscription has ended, or never began. It is forgotten after this step of the peer."""
        self.send(SubscriptionFailed(outbox.number, Problem.of(error)))
        self._pump.loop.call_soon(self._forget_outbox, outbox)

    def _tell_soon(self) -> None:
        self._losses_due = True
        self.link.mark_dirty()

    def _progressed(self, publisher: RemotePublisher) -> None:
        self._changed[publisher] = None
        self.link.mark_dirty()

    def _fill(self) -> None:
        """Add what waits to what the link writes now, unless the client does not read."""
        if self.link.paused:
            return
        if self._losses_due:
            for outbox in self._losing:
                outbox.tell_losses()
            self._losing.clear()
            self._losses_due = False
        for publisher in self._changed:
            self._tell(publisher)
        self._changed.clear()
        self._queues.send(self.link.carry, lambda: self.link.room > 0)

    def _tell(self, publisher: RemotePublisher) -> None:
        inner = publisher.inner
        if self._publishers.get(publisher.wish.number) is not publisher:
            return
        bound = self._peer.bound(inner.topic) if inner is not None else self._obstacle()
        for message in publisher.news(bound):
            self.send(message)
        if publisher.failure is not None or (inner is not None and inner.closed and not inner.retained):
            self._forget_publisher(publisher)
            if publisher.failure is not None and inner is not None:
                self._pump.loop.call_soon(self._pump.call, self._peer.close_publisher, inner)

    def _obstacle(self) -> str:
        """What the client waits for before it may publish, in a sentence."""
        return self._peer.scoping.hosting.obstacle(self._id) if self._id else ""

    # --- what comes from the client

    def _message(self, message: Any) -> None:
        match message:
            case Subscribe():
                self._subscribe(message)
            case Unsubscribe(number):
                self._unsubscribe(number)
            case Taken(number, size_bytes):
                if number in self._outboxes:  # otherwise it has just failed
                    self._outboxes[number].taken(size_bytes)
                    self.link.mark_dirty()
            case OpenPublisher():
                self._open_publisher(message)
            case ClosePublisher(number, last):
                if number in self._publishers:
                    self._publishers[number].close_at = last
                    self._close_if_done(self._publishers[number])
            case SeekServer() if self._guest is None:
                self._seek_server(message)
            case EndDirect(number):
                self._end_direct(number)
            case Ask():
                self._ask(message)
            case _:
                raise UnexpectedMessage(message)

    def _bundle(self, bundle: Bundle) -> None:
        publisher = self._by_id.get(bundle.blocks[0].publisher)
        if bundle.envelope.kind is not UP:
            raise Malformed(f"a bundle of kind {bundle.envelope.kind.name} came from a client")
        if publisher is None or self._peer.left:
            return  # it has failed, or this is too late
        for block in bundle.blocks:
            self._pump.call(publisher.take, block)
        self._close_if_done(publisher)

    def _subscribe(self, wish: Subscribe) -> None:
        self._check_new(wish.number, self._outboxes)
        check(wish.topic, wish.name)
        outbox = self._outboxes[wish.number] = Outbox(self, wish)
        self._begin(wish.topic, "subscribes", outbox, partial(self._open, outbox))

    def _begin(self, topic: str, doing: Doing, use: Outbox | RemotePublisher, go_on: Callable[[str], None]) -> bool:
        """Continue when the scope's manager allows this, or says why not. False: its answer is still awaited.

        A guest may do what its own peer has announced.
        """
        at_once: list[str] = []
        if (guest := self._guest) is not None:
            why_not = "" if guest.may(topic, doing) else f"its own peer has not asked to serve it in topic {topic}"
            self._pump.call(go_on, why_not)
            return True

        def decided(why_not: str) -> None:
            if is_asking:
                at_once.append(why_not)
            else:  # this runs within a step of the peer
                self._pump.loop.call_soon(self._pump.call, go_on, why_not)

        is_asking = True
        self._pump.call(self._peer.scoping.client_begins, self._id, topic, doing, use, decided)
        is_asking = False
        for why_not in at_once:
            self._pump.call(go_on, why_not)
        return bool(at_once)

    def _open(self, outbox: Outbox, why_not: str) -> None:
        wish = outbox.wish
        if self._outboxes.get(wish.number) is not outbox:
            return  # it has ended meanwhile
        try:
            if why_not:
                raise AccessDenied(why_not)
            outbox.begin(
                self._peer.subscribe(wish.topic, outbox, start=wish.start, delivery=wish.delivery, warrant=wish.warrant)
            )
        except LocalError as problem:
            outbox.failed(problem)

    def _end(self, topic: str, doing: Doing, use: "Outbox | RemotePublisher | DirectUse") -> None:
        if self._id:
            self._peer.scoping.hosting.end(self._id, topic, doing, use)

    def _unsubscribe(self, number: int) -> None:
        if (outbox := self._outboxes.get(number)) is not None:
            self._forget_outbox(outbox)

    def _forget_outbox(self, outbox: Outbox) -> None:
        if self._outboxes.get(outbox.number) is not outbox:
            return  # it was closed before
        del self._outboxes[outbox.number]
        self._queues.forget(outbox)
        self._losing.pop(outbox, None)
        self._end(outbox.wish.topic, "subscribes", outbox)
        if outbox.handle is not None:
            self._pump.call(self._peer.unsubscribe, outbox.handle)

    def _open_publisher(self, wish: OpenPublisher) -> None:
        self._check_new(wish.number, self._publishers)
        check(wish.topic)
        if wish.id in self._by_id or self._peer.has_publisher(wish.id):
            raise Malformed("a publisher was opened with the PublisherId of another")
        publisher = self._publishers[wish.number] = RemotePublisher(wish, self._progressed)
        self._by_id[wish.id] = publisher
        if not self._begin(wish.topic, "publishes", publisher, partial(self._make_publisher, publisher)):
            self._progressed(publisher)

    def _make_publisher(self, publisher: RemotePublisher, why_not: str) -> None:
        wish = publisher.wish
        if self._publishers.get(wish.number) is not publisher:
            return  # it has ended meanwhile
        try:
            if why_not:
                raise AccessDenied(why_not)
            publisher.begin(self._peer.publisher(wish.topic, publisher, wish.warrant, wish.id, wish.first))
        except LocalError as problem:
            publisher.failed(problem)

    def _forget_publisher(self, publisher: RemotePublisher) -> None:
        wish = publisher.wish
        del self._publishers[wish.number], self._by_id[wish.id]
        self._end(wish.topic, "publishes", publisher)

    def _close_if_done(self, publisher: RemotePublisher) -> None:
        inner = publisher.inner
        if inner is None:
            self._forget_publisher(publisher)  # it failed
        elif publisher.close_at is not None and inner.next >= publisher.close_at and not inner.closed:
            self._pump.call(self._peer.close_publisher, inner)
            self._progressed(publisher)

    def _check_new(self, number: int, known: Mapping[int, Any]) -> None:
        count = len(self._outboxes) + len(self._publishers) + len(self._directed)
        if number in known or count >= HANDLES_MAX:
            raise Malformed(f"number {number} is taken, or there are {HANDLES_MAX} subscriptions and publishers")

    # --- other peers that serve it

    def _seek_server(self, wish: SeekServer) -> None:
        """Find another peer that serves the client in a topic."""
        self._check_new(wish.number, self._directed)
        check(wish.topic)
        use = self._directed[wish.number] = DirectUse(wish, self._sought)
        directs = self._peer.scoping.client_directs
        self._pump.call(
            directs, self._id, wish.topic, wish.doing, use, wish.digest, wish.unreachable, use.decided, use.found
        )

    def _sought(self, use: DirectUse, server: Contact | QuillcastError) -> None:
        """A peer serves the client, or no peer does, or that no longer matters."""
        if use.is_answered:
            return
        use.is_answered, asked = True, use.wish.asked
        if isinstance(server, Contact):
            directed = Directed(self._id, server, *self._context.network)
            self.send(Answered(asked, msgspec.msgpack.encode(directed), None))
        else:
            self.send(Answered(asked, b"", Problem.of(server)))
            self._end_direct(use.wish.number)

    def _end_direct(self, number: int) -> None:
        """The client no longer uses a topic, or could not."""
        use = self._directed.pop(number, None)
        if use is not None:
            self._end(use.wish.topic, use.wish.doing, use)
            self._sought(use, LocalError(f"this use of topic {use.wish.topic} has ended"))

    # --- questions

    def _ask(self, message: Ask) -> None:
        if len(self._asked) >= ASKED_MAX:
            raise Malformed(f"it asked more than {ASKED_MAX} questions at the same time")
        task = self._pump.loop.create_task(self._answer(message))
        self._asked[task] = None
        task.add_done_callback(self._asked.pop)

    async def _answer(self, message: Ask) -> None:
        answer, problem = b"", None
        try:
            question = understood(message.question, self._may_ask(), msgspec.msgpack)
            if isinstance(question, HoldUpsQuestion):
                told: Any = await self._hold_ups(question)
            else:
                told = await self._context.answer(question)
            answer = msgspec.msgpack.encode(told)
        except QuillcastError as error:
            problem = Problem.of(error)
        self.send(Answered(message.number, answer, problem))

    def _may_ask(self) -> tuple[type[PeerQuestion], ...]:
        """The questions that this client may ask. Guests may not ask about the peer itself."""
        if self._guest is not None:
            return (HoldUpsQuestion,)
        others = (*OF_NODES, *OF_CLIENTS) if self._invitation is None else OF_OTHER_DEVICES
        return (HoldUpsQuestion, *others)

    async def _hold_ups(self, question: HoldUpsQuestion) -> HeldUp:
        """Which peers hold up a publisher's events, in words."""
        publisher = self._publishers.get(question.number)
        if publisher is None or publisher.inner is None:
            raise LocalError(f"{question.number} is not the number of an open publisher")
        with HoldUps(self._pump, self._peer, publisher.inner, question.last) as causes:
            await asyncio.sleep(_WALK_S)
            return HeldUp(causes.peers, causes.lagging(), causes.held_back())


def check(topic: str, name: str = "") -> None:
    """Raise `Malformed` for an invalid name, because clients check names first."""
    try:
        described(topic)
        arguments.label(name)
    except LocalError as problem:
        raise Malformed(str(problem)) from problem
