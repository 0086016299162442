"""Subscriptions and publishers of a client whose data does not pass its own peer (figure 21, left and center).

The client's own peer says which peer serves it in a topic, and the client connects to that one. It talks to that peer
as to its own: each is a `Proxy`. So several peers serve an application at a time, and its data continues while its own
peer is stopped.

A server that ends, or cannot be reached, is replaced by the next one that the client's own peer names. Publishers
resend there what is not stable, under the same PublisherId, so that repeats are recognised as after a change of root.
Subscriptions begin there as far back as buffers reach, and skip what came before (`ContinuedInbox`). The former
server delivers until the subscription has started at the next one, if it can.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from typing import Any

from quillcast.core.envelope import Position
from quillcast.core.errors import QuillcastError, Unreachable
from quillcast.core.messages import Contact
from quillcast.live.admission.credentials import Credentials
from quillcast.live.clients.continued import ContinuedInbox, Successor
from quillcast.live.clients.messages import Directed
from quillcast.live.clients.proxy import Handle, Process, Proxy, RemoteInbox, Sending
from quillcast.live.edges.peer import Causes
from quillcast.protocol.scopes.uses import SECRETS_MAX, UNREACHABLE_MAX, Doing, digest
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher, PublisherListener

_SECRET_BYTES = 32
_AVOIDED_S = 30.0  # how long a server that ended is not used again; a guess: it may have what a publisher sent there
_REMEDY = "no other peer can serve this client"


class Use:
    """What this process does in a topic through another peer."""

    def __init__(self, number: int, topic: str, doing: Doing) -> None:
        self.number, self.topic_name, self.doing = number, topic, doing
        self.seeking: asyncio.Task[None] | None = None
        self.avoided: dict[bytes, float] = {}  # nodeIds of servers that ended or cannot be reached, and when that was
        self.why = ""  # the last of them failed, in a sentence

    @property
    def is_sought(self) -> bool:
        """Is a search for a server in progress?"""
        return self.seeking is not None and not self.seeking.done()


class DirectHandle(Use):
    """A subscription at the peer that serves it, once that is known."""

    def __init__(self, number: int, topic: str, inbox: ContinuedInbox, wish: Mapping[str, Any]) -> None:
        super().__init__(number, topic, "subscribes")
        self.topic, self.inbox, self.wish = described(topic).topic, inbox, wish
        self.at: tuple[Proxy, Handle] | None = None
        self.coming: tuple[Proxy, Handle] | None = None
        """Where it is to start, and has not started yet."""


class DirectPublisher(Use):
    """A publisher, and the peer that serves it, once that is known (`Sending.via`)."""

    def __init__(self, number: int, sending: Sending) -> None:
        super().__init__(number, sending.topic, "publishes")
        self.sending = sending


class Direct:
    """Peers that serve this process (`live.edges.peer`, `live.edges.publishers.Backend`).

    What it does not do directly goes through its own peer, `control`. `ending` is told which publishers a peer that
    will end serves, if no other takes them over, and why.
    """

    def __init__(
        self, control: Proxy, process: Process, doing: Iterable[Doing],
        ending: Callable[[QuillcastError, Sequence[Publisher]], None],
    ) -> None:  # fmt: skip
        self.control, self._process, self._doing, self._ending = control, process, frozenset(doing), ending
        self.pump, self.join = control.pump, control.join
        self._numbers = count(1)
        self._asking = asyncio.Semaphore(SECRETS_MAX)
        self._servers: dict[bytes, asyncio.Task[Proxy]] = {}
        self._leaving: dict[Proxy, None] = {}  # servers that will end
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._handles: dict[DirectHandle, None] = {}
        self._by_topic: Counter[bytes] = Counter()
        self._publishers: dict[bytes, DirectPublisher] = {}  # by PublisherId
        self._signers: dict[Warrant, Credentials] = {}

    @property
    def peer(self) -> "Direct":
        """The peer to publish through: this."""
        return self

    def proxies(self) -> list[Proxy]:
        """The peers that serve this process now."""
        servers = [each.result() for each in self._servers.values() if _is_connected(each)]
        return [self.control, *servers, *self._leaving]

    @property
    def has_all(self) -> bool:
        """Do the peers have everything that was published?"""
        sendings = [each.sending for each in self._publishers.values()]
        waiting = any(sending.via is None and sending.publisher.next for sending in sendings)
        return not waiting and all(proxy.has_all for proxy in self.proxies())

    def make_inbox(self, size_bytes_max: int, name: str) -> RemoteInbox:
        """An inbox for a new subscription."""
        kind = ContinuedInbox if "subscribes" in self._doing else RemoteInbox
        return kind(size_bytes_max, name)

    def inboxes(self) -> list[RemoteInbox]:
        """The inboxes of all subscriptions."""
        return [*self.control.inboxes(), *(handle.inbox for handle in self._handles)]

    async def close(self) -> None:
        """Close the connections when the peers have what was sent."""
        for task in [*self._tasks, *self._servers.values()]:
            if not _is_connected(task):
                task.cancel()
        await asyncio.gather(*(proxy.close() for proxy in self.proxies()))

    # --- for subscriptions

    def subscribe(
        self, name: str, subscriber: Any, *, start: str = "now", delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Handle | DirectHandle:  # fmt: skip
        """Subscribe to a topic. Raises `LocalError` for an invalid name."""
        if "subscribes" not in self._doing:
            return self.control.subscribe(name, subscriber, start=start, delivery=delivery, warrant=warrant)
        wish = {"start": start, "delivery": delivery, "warrant": warrant}
        assert isinstance(subscriber, ContinuedInbox)
        handle = DirectHandle(next(self._numbers), name, subscriber, wish)
        self._handles[handle] = None
        self._by_topic[handle.topic] += 1
        self._seek_for(handle)
        return handle

    def _seek_for(self, handle: DirectHandle) -> None:
        handle.seeking = self._run(partial(self._begin_subscription, handle), partial(self._fail_subscription, handle))

    async def _begin_subscription(self, handle: DirectHandle) -> None:
        proxy = await self._served(handle)
        wish = {**handle.wish, "warrant": self._warrant_at(proxy, handle.topic_name, handle.wish["warrant"])}
        if handle.inbox.position is not None:
            wish["start"] = "earliest"
        place = Successor(handle.inbox, partial(self._started, handle), partial(self._fail_subscription, handle))
        handle.coming = proxy, self.pump.call(partial(proxy.subscribe, **wish), handle.topic_name, place)

    def _started(self, handle: DirectHandle, position: Position) -> None:
        """A subscription has started at a peer: accept no more from the former one."""
        assert handle.coming is not None
        former, handle.at, handle.coming = handle.at, handle.coming, None
        if former is not None:
            former[0].unsubscribe(former[1])
        proxy, inner = handle.at
        proxy.attach(inner, handle.inbox)
        handle.inbox.continue_from(position)

    def _fail_subscription(self, handle: DirectHandle, problem: QuillcastError) -> None:
        """It cannot continue, unless a peer that will end still delivers."""
        handle.coming = None
        if handle in self._handles and (handle.at is None or handle.at[0].failure is not None):
            self.unsubscribe(handle)
            handle.inbox.failed(problem)

    def unsubscribe(self, handle: Handle | DirectHandle) -> None:
        """End a subscription."""
        if isinstance(handle, Handle):
            self.control.unsubscribe(handle)
        elif handle in self._handles:
            del self._handles[handle]
            self._by_topic[handle.topic] -= 1
            for proxy, inner in filter(None, (handle.at, handle.coming)):
                proxy.unsubscribe(inner)
            if handle.seeking is not None and handle.seeking is not asyncio.current_task():
                handle.seeking.cancel()
            self.control.end_direct(handle.number)

    def subscriptions(self, handle: Handle | DirectHandle) -> int:
        """The number of subscriptions of this process to the topic of this one."""
        return self._by_topic[handle.topic] if isinstance(handle, DirectHandle) else self.control.subscriptions(handle)

    def drained(self, handle: Handle | DirectHandle) -> None:
        """The application has read something."""
        if isinstance(handle, Handle):
            self.control.drained(handle)
        elif handle.at is not None:
            proxy, inner = handle.at
            proxy.drained(inner)

    # --- for publishers

    def publisher(self, name: str, listener: PublisherListener, warrant: Warrant | None = None) -> Publisher:
        """A new publisher of a topic. Raises `LocalError` for an invalid name."""
        if "publishes" not in self._doing:
            return self.control.publisher(name, listener, warrant)
        return self._take_in(self.control.prepare(name, listener, warrant)).sending.publisher

    def _take_in(self, sending: Sending) -> DirectPublisher:
        """Find a peer for a publisher."""
        publisher = self._publishers[sending.publisher.id] = DirectPublisher(next(self._numbers), sending)
        self._seek_to_publish(publisher)
        return publisher

    def _seek_to_publish(self, publisher: DirectPublisher) -> None:
        publisher.seeking = self._run(
            partial(self._begin_publisher, publisher), partial(self._fail_publisher, publisher)
        )

    async def _begin_publisher(self, own: DirectPublisher) -> None:
        sending, publisher = own.sending, own.sending.publisher
        proxy = await self._served(own)
        publisher.show(self._warrant_at(proxy, sending.topic, publisher.warrant))
        if sending.via is not None:
            sending.via.give_up(sending)
        self.pump.call(proxy.begin, sending)
        if publisher.closed:
            self.pump.call(proxy.close_publisher, publisher)
            self._forget_publisher(publisher)

    def _fail_publisher(self, own: DirectPublisher, problem: QuillcastError) -> None:
        """It cannot continue. A peer that will end may still acknowledge what it has."""
        publisher, via = own.sending.publisher, own.sending.via
        if via is not None and via.failure is None:
            self._ending(problem, [publisher])
            if publisher.closed:
                self.close_publisher(publisher)
        else:
            self._forget_publisher(publisher)
            publisher.listener.failed(problem)

    def new_publisher_id(self) -> bytes:
        """A PublisherId that no other publisher has or had."""
        return self.control.new_publisher_id()

    def close_publisher(self, publisher: Publisher) -> None:
        """Close a publisher. The peer keeps its events until they are stable."""
        publisher.close()
        own = self._publishers.get(publisher.id)
        if own is None:
            self.control.close_publisher(publisher)
        elif own.sending.via is not None and not own.is_sought:
            own.sending.via.close_publisher(publisher)
            self._forget_publisher(publisher)

    def _forget_publisher(self, publisher: Publisher) -> None:
        own = self._publishers.pop(publisher.id, None)
        if own is not None:
            self.control.end_direct(own.number)

    def bound(self, topic: bytes) -> str:
        """Why publishers wait for a place in their topic, in a sentence; empty: they do not."""
        return next((why for proxy in self.proxies() if (why := proxy.bound(topic))), "")

    def awaited(self, name: str) -> list[Contact]:
        """The peers that were asked to take part in the topic."""
        return [proxy.contact for proxy in self.proxies()]

    def warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """Shows on whose behalf the process acts. It is signed anew for the peer that serves it."""
        warrant = self.control.warrant(topic, credentials)
        if warrant is not None and credentials is not None:
            self._signers[warrant] = credentials
        return warrant

    def _warrant_at(self, proxy: Proxy, topic: str, warrant: Warrant | None) -> Warrant | None:
        if warrant is None:
            return None
        credentials = self._signers[warrant]
        signed = proxy.warrant(topic, credentials)
        assert signed is not None
        self._signers[signed] = credentials  # a publisher may continue at yet another peer
        return signed

    def find_causes(self, publisher: Publisher, last: int) -> AbstractContextManager[Causes]:
        """Find out who holds up a publisher's events before `last`."""
        own = self._publishers.get(publisher.id)
        return ((own.sending.via if own is not None else None) or self.control).find_causes(publisher, last)

    # --- the peers that serve this process

    async def _served(self, use: Use) -> Proxy:
        """The peer that serves a use of a topic: the first reachable one of those that the client's own peer names."""
        while True:
            secret, now = secrets.token_bytes(_SECRET_BYTES), self.pump.monotonic()
            use.avoided = {node: at for node, at in use.avoided.items() if now - at < _AVOIDED_S}
            async with self._asking:
                try:
                    avoided = tuple(use.avoided)[-UNREACHABLE_MAX:]
                    directed = await self.control.seek_server(
                        use.number, use.topic_name, use.doing, digest(secret), avoided
                    )
                except Unreachable as problem:
                    if not use.why:
                        raise
                    raise Unreachable(f"{use.why}; {problem}") from problem
                node = directed.server.node_id
                server = self._servers.get(node)
                if server is None:
                    server = self.pump.loop.create_task(self._visit(directed, secret))
                    self._servers[node] = server
                    server.add_done_callback(partial(self._visited, node))
                try:
                    proxy = await asyncio.shield(server)
                except QuillcastError as problem:
                    self._avoid(use, node, problem)
                else:
                    if proxy.failure is None:
                        return proxy
                    self._avoid(use, node, proxy.failure)

    def _avoid(self, use: Use, node: bytes, why: QuillcastError) -> None:
        """This server cannot be used (any longer); find another."""
        use.avoided[node], use.why = self.pump.monotonic(), str(why)
        self.control.end_direct(use.number)
        use.number = next(self._numbers)

    async def _visit(self, directed: Directed, secret: bytes) -> Proxy:
        from quillcast.live.clients.visit import visit  # a client is connected before it needs TLS

        proxy = Proxy(
            directed.server, self._process, _REMEDY, lambda reason: self._will_end(proxy, reason),
            lambda reason: self._has_ended(proxy, reason),
        )  # fmt: skip
        await visit(directed, secret, self._process, proxy)
        proxy.watch()
        return proxy

    def _visited(self, node: bytes, server: "asyncio.Task[Proxy]") -> None:
        if not _is_connected(server) and self._servers.get(node) is server:
            del self._servers[node]
            if not server.cancelled():
                server.exception()  # those that wait for it raise it

    def _will_end(self, proxy: Proxy, reason: QuillcastError) -> None:
        """A peer that serves this process accepts nothing new: others take over while it still serves."""
        if proxy.failure is None:
            self._leaving[proxy] = None
            self._replace(proxy, reason)

    def _has_ended(self, proxy: Proxy, reason: QuillcastError) -> None:
        """A peer that served this process has ended: others take over what it has not finished."""
        self._leaving.pop(proxy, None)
        for sending in proxy.release():
            sending.release()
            if sending.publisher.id not in self._publishers:  # it was closed
                self._take_in(sending)
        self._replace(proxy, reason)

    def _replace(self, proxy: Proxy, reason: QuillcastError) -> None:
        node = proxy.contact.node_id
        self._servers.pop(node, None)
        for handle in list(self._handles):
            if handle.coming is not None and handle.coming[0] is proxy:
                handle.coming = None
            elif handle.at is None or handle.at[0] is not proxy:
                continue
            if handle.coming is None and not handle.is_sought:
                self._avoid(handle, node, reason)
                self._seek_for(handle)
        for publisher in list(self._publishers.values()):
            if publisher.sending.via in (proxy, None) and not publisher.is_sought:
                self._avoid(publisher, node, reason)
                self._seek_to_publish(publisher)

    # --- within

    def _run(self, work: Callable[[], Awaitable[None]], failed: Callable[[QuillcastError], None]) -> asyncio.Task[None]:
        async def until_done() -> None:
            try:
                await work()
            except QuillcastError as problem:
                failed(problem)

        task = self.pump.loop.create_task(until_done())
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _is_connected(task: "asyncio.Task[Any]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
