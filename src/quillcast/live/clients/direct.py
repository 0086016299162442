"""Subscriptions and publishers of a client whose data does not pass its own peer (figure 21, left and center).

The client's own peer says which peer serves it in a topic, and the client connects to that one. What it says to that
peer, and hears of it, is what it would say to its own: each is a `Proxy`. So an application is served by several peers
at a time, and its data goes on while its own peer is stopped. When a peer that serves it ends, what went through that
one fails, with an error that says so; the next subscription or publisher gets another peer.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from typing import Any

from quillcast.core.errors import QuillcastError
from quillcast.core.messages import Contact
from quillcast.live.admission.credentials import Credentials
from quillcast.live.clients.messages import Directed
from quillcast.live.clients.proxy import Handle, Process, Proxy, RemoteInbox, Sending
from quillcast.live.clients.visit import visit
from quillcast.live.edges.peer import Causes
from quillcast.protocol.scopes.direct import SECRETS_MAX, digest
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import described
from quillcast.protocol.topics.publishing.publisher import Publisher, PublisherListener

_SECRET_BYTES = 32
_REMEDY = "subscribe or publish again, and another peer serves you"


class DirectHandle:
    """A subscription at the peer that serves it, once that is known."""

    def __init__(self, number: int, topic: str, inbox: RemoteInbox, wish: Mapping[str, Any]) -> None:
        self.number, self.name, self.topic, self.inbox, self.wish = number, topic, described(topic).topic, inbox, wish
        self.at: tuple[Proxy, Handle] | None = None
        self.seeking: asyncio.Task[None] | None = None


class Direct:
    """Peers that serve this process (`live.edges.peer.EdgePeer`, `live.edges.publishers.Backend`).

    What it does not do directly goes through its own peer, `control`. `ending` hears which publishers a peer that will
    end serves, and why.
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
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._handles: dict[DirectHandle, None] = {}
        self._by_topic: Counter[bytes] = Counter()
        self._sending: dict[bytes, tuple[int, Sending]] = {}  # by PublisherId, with the number of the use
        self._signers: dict[Warrant, Credentials] = {}

    @property
    def peer(self) -> "Direct":
        """The peer to publish through: this."""
        return self

    def proxies(self) -> list[Proxy]:
        """The peers that serve this process now."""
        return [self.control, *(each.result() for each in self._servers.values() if _is_connected(each))]

    @property
    def has_all(self) -> bool:
        """Have the peers everything that was published?"""
        waiting = any(sending.via is None and sending.publisher.next for _, sending in self._sending.values())
        return not waiting and all(proxy.has_all for proxy in self.proxies())

    def inboxes(self) -> list[RemoteInbox]:
        """Those of all subscriptions."""
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
        assert isinstance(subscriber, RemoteInbox)
        handle = DirectHandle(next(self._numbers), name, subscriber, wish)
        self._handles[handle] = None
        self._by_topic[handle.topic] += 1
        handle.seeking = self._run(partial(self._begin_subscription, handle), subscriber.failed)
        return handle

    async def _begin_subscription(self, handle: DirectHandle) -> None:
        proxy = await self._served(handle.number, handle.name, "subscribes")
        warrant = self._warrant_at(proxy, handle.name, handle.wish["warrant"])
        subscribe = partial(proxy.subscribe, **{**handle.wish, "warrant": warrant})
        handle.at = proxy, self.pump.call(subscribe, handle.name, handle.inbox)

    def unsubscribe(self, handle: Handle | DirectHandle) -> None:
        """End a subscription."""
        if isinstance(handle, Handle):
            self.control.unsubscribe(handle)
        elif handle in self._handles:
            del self._handles[handle]
            self._by_topic[handle.topic] -= 1
            if handle.at is not None:
                proxy, inner = handle.at
                proxy.unsubscribe(inner)
            elif handle.seeking is not None:
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
        sending, number = self.control.prepare(name, listener, warrant), next(self._numbers)
        self._sending[sending.publisher.id] = number, sending
        self._run(partial(self._begin_publisher, sending, number), partial(self._fail_publisher, sending))
        return sending.publisher

    async def _begin_publisher(self, sending: Sending, number: int) -> None:
        publisher = sending.publisher
        proxy = await self._served(number, sending.topic, "publishes")
        publisher.warrant = self._warrant_at(proxy, sending.topic, publisher.warrant)
        self.pump.call(proxy.begin, sending)
        if publisher.closed:
            self.pump.call(proxy.close_publisher, publisher)
            self._forget_publisher(publisher)

    def _fail_publisher(self, sending: Sending, problem: QuillcastError) -> None:
        self._forget_publisher(sending.publisher)
        sending.publisher.listener.failed(problem)

    def new_publisher_id(self) -> bytes:
        """A PublisherId that nobody else has or had."""
        return self.control.new_publisher_id()

    def close_publisher(self, publisher: Publisher) -> None:
        """Close a publisher. The peer keeps its events until they are stable."""
        publisher.closed = True
        _, sending = self._sending.get(publisher.id, (0, None))
        if sending is None:
            self.control.close_publisher(publisher)
        elif sending.via is not None:
            sending.via.close_publisher(publisher)
            self._forget_publisher(publisher)

    def _forget_publisher(self, publisher: Publisher) -> None:
        number, sending = self._sending.pop(publisher.id, (0, None))
        if sending is not None:
            self.control.end_direct(number)

    def bound(self, topic: bytes) -> str:
        """Why publishers wait because their topic has as many as it may have, in a sentence; empty: they do not."""
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
        return None if warrant is None else proxy.warrant(topic, self._signers[warrant])

    def find_causes(self, publisher: Publisher, last: int) -> AbstractContextManager[Causes]:
        """Find out who holds up a publisher's events before `last`."""
        _, sending = self._sending.get(publisher.id, (0, None))
        return ((sending.via if sending is not None else None) or self.control).find_causes(publisher, last)

    # --- the peers that serve this process

    async def _served(self, number: int, topic: str, doing: Doing) -> Proxy:
        """The peer that serves a use of a topic, as the client's own peer says."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        async with self._asking:
            directed = await self.control.seek_server(number, topic, doing, digest(secret))
            server = self._servers.get(directed.server.node_id)
            if server is None:
                server = self.pump.loop.create_task(self._visit(directed, secret))
                self._servers[directed.server.node_id] = server
                server.add_done_callback(partial(self._visited, directed.server.node_id))
            proxy = await asyncio.shield(server)
        if proxy.failure is not None:
            raise proxy.failure
        return proxy

    async def _visit(self, directed: Directed, secret: bytes) -> Proxy:
        proxy = Proxy(
            directed.server, self._process, _REMEDY, lambda reason: self._ending(reason, proxy.publishers()),
            lambda reason: self._ended(proxy),
        )  # fmt: skip
        await visit(directed, secret, self._process, proxy)
        proxy.watch()
        return proxy

    def _visited(self, node: bytes, server: "asyncio.Task[Proxy]") -> None:
        if not _is_connected(server) and self._servers.get(node) is server:
            del self._servers[node]
            if not server.cancelled():
                server.exception()  # those who wait for it raise it

    def _ended(self, proxy: Proxy) -> None:
        """A peer that served this process has ended; what went through it has failed."""
        self._servers.pop(proxy.contact.node_id, None)
        for handle in [each for each in self._handles if each.at is not None and each.at[0] is proxy]:
            self.unsubscribe(handle)
        for _, sending in list(self._sending.values()):
            if sending.via is proxy:
                self._forget_publisher(sending.publisher)

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
