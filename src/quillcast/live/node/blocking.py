"""The blocking façade: a node for notebooks and scripts that have no event loop of their own.

The node's event loop runs in a thread, so that it forwards, answers heartbeats and keeps leases while the program does
something else. Calls wait for their result and raise what the asynchronous ones raise.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from itertools import chain
from typing import Any, TypeVar

from quillcast.core.errors import LocalError
from quillcast.core.loss import Loss
from quillcast.core.messages import Contact
from quillcast.core.status.peers import NodeStatus
from quillcast.core.status.traces import TraceStatus
from quillcast.core.status.trees import TreeStatus
from quillcast.live import arguments
from quillcast.live.admission.credentials import Credentials
from quillcast.live.edges.batcher import AckLevel
from quillcast.live.edges.publisher import TIMEOUT_S, Publisher
from quillcast.live.edges.subscription import Event, Subscription
from quillcast.live.node.node import Node
from quillcast.live.runtime.runner import loop_factory
from quillcast.protocol.topics.descriptor import Descriptor

T = TypeVar("T")


class BlockingNode:
    """A peer of a network, for programs without an event loop: `with BlockingNode() as node`.

    In a notebook, call `start()` and `leave()` instead of using a `with` block. A node that is still running when
    Python exits leaves then. Calls may come from any thread, except from callbacks of this node.

    Args:
        options: those of `Node`.
    """

    def __init__(self, **options: Any) -> None:
        self._node = Node(**options)
        self._loop = _LoopThread()
        self._leaving = threading.Lock()

    def __enter__(self) -> "BlockingNode":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def start(self) -> None:
        """Find the network and join it; `with` does this. Raises the same errors as `Node`."""
        self._loop.start()
        try:
            self._loop.call(self._node.start())
        except BaseException:
            self._loop.stop()
            raise
        atexit.register(self.leave)

    def leave(self) -> None:
        """Leave in good order; `with` does this. Does nothing if the node has left or never started."""
        with self._leaving:
            if not self._loop.running:
                return
            try:
                self._loop.call(self._node.leave())
            finally:
                self._loop.stop()
                atexit.unregister(self.leave)

    @property
    def network(self) -> str:
        """The network's name."""
        return self._node.network

    @property
    def contact(self) -> Contact:
        """The node's id, and the address where it listens."""
        return self._node.contact

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._node.address

    @property
    def looked_in(self) -> str:
        """Where it looked for peers of this machine; see `Node.looked_in`."""
        return self._node.looked_in

    def create(self, name: str, *, timeout_s: float = TIMEOUT_S, **settings: Any) -> Descriptor:
        """Create a topic; see `Node.create`."""
        return self._loop.call(self._node.create(name, timeout_s=timeout_s, **settings))

    def change(self, name: str, *, timeout_s: float = TIMEOUT_S, **settings: Any) -> Descriptor:
        """Change the settings of an existing topic; see `Node.change`."""
        return self._loop.call(self._node.change(name, timeout_s=timeout_s, **settings))

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        attributes: Mapping[str, Any] | None = None,
        wait: AckLevel | None = None,
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
    ) -> None:
        """Publish an event; see `Node.publish`. For many events, a `publisher` with `publish_many` is faster."""
        options: dict[str, Any] = {"key": key, "attributes": attributes, "wait": wait, "timeout_s": timeout_s}

        async def publish() -> None:
            await self._node.publish(topic, payload, credentials=credentials, **options)

        self._loop.call(publish())

    def publisher(
        self, topic: str, *, timed: bool = False, credentials: Credentials | None = None
    ) -> "BlockingPublisher":
        """A publisher for one topic, see `Node.publisher`: `with node.publisher("sport/tennis") as publisher`.

        `timed`: each event has its own time of publication, and not that of its block.
        """
        publisher = self._loop.run(self._node.publisher, topic, timed=timed, credentials=credentials)
        return BlockingPublisher(self._loop, publisher)

    def subscribe(
        self,
        topic: str,
        *,
        start: str = "now",
        delivery: str | None = None,
        on_lost: Callable[[Loss], object] | None = None,
        credentials: Credentials | None = None,
        name: str = "",
    ) -> "BlockingSubscription":
        """Subscribe to a topic, and wait until the subscription has started.

        Args:
            topic: the topic's name.
            start: "now", or "earliest": as far back as the tree's buffers reach. Earlier events that are no longer kept
                are reported as lost (`Loss.why` is "start") when the subscription has started.
            delivery: "best_effort" to not wait for gaps in a reliable topic.
            on_lost: called with every `Loss`, in the node's thread; it must not block or call the node.
            credentials: needed if the topic has an access list.
            name: name of the subscription in `status`, `top` and `check topic`.

        Raises `LocalError` for an invalid topic name, `UnknownTopic`, `NotJoined`.
        """
        subscription = self._loop.run(
            self._node.subscribe,
            topic,
            start=start,
            delivery=delivery,
            on_lost=on_lost,
            credentials=credentials,
            name=name,
        )
        made = BlockingSubscription(self._loop, subscription)
        try:
            self._loop.call(subscription.started())
        except BaseException:
            made.close()
            raise
        return made

    def status(self) -> NodeStatus:
        """The state of this peer; see `Node.status`."""
        return self._loop.run(self._node.status)

    def tree(self, topic: str, *, timeout_s: float = 2.0) -> TreeStatus:
        """The topic's live tree; see `Node.tree`."""
        return self._loop.call(self._node.tree(topic, timeout_s=timeout_s))

    def trace(self, topic: str, *, timeout_s: float = 10.0) -> TraceStatus:
        """Follow the topic's next bundle; see `Node.trace`."""
        return self._loop.call(self._node.trace(topic, timeout_s=timeout_s))


class BlockingPublisher:
    """Publishes to one topic; made by `BlockingNode.publisher`."""

    def __init__(self, loop: "_LoopThread", publisher: Publisher) -> None:
        self._loop, self._publisher = loop, publisher

    def __enter__(self) -> "BlockingPublisher":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def publish(
        self,
        payload: bytes,
        *,
        key: bytes | None = None,
        attributes: Mapping[str, Any] | None = None,
        wait: AckLevel | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Publish an event; see `Publisher.publish`."""
        self._loop.call(
            self._publisher.publish(payload, key=key, attributes=attributes, wait=wait, timeout_s=timeout_s)
        )

    def publish_many(
        self, payloads: Iterable[bytes], *, wait: AckLevel | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Publish an event for each payload, in order, in one call into the node; returns how many.

        `payloads` are read in the node's thread, so use a list or a fast iterable. With `wait` the call returns when
        all of them are acknowledged. Raises the same errors as `Publisher.publish`.
        """

        async def publish() -> int:
            count = 0
            for payload in payloads:
                if wait is not None and not count:
                    await self._publisher.opened(wait, timeout_s)
                await self._publisher.publish(payload, timeout_s=timeout_s)
                count += 1
            if wait is not None and count:
                await self._publisher.acknowledged(wait, timeout_s)
            return count

        return self._loop.call(publish())

    def acknowledged(self, wait: AckLevel, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until everything published so far is acknowledged; see `Publisher.publish` for the errors."""
        self._loop.call(self._publisher.acknowledged(wait, timeout_s))

    @property
    def sequence(self) -> int:
        """The sequence that the next event will get."""
        return self._publisher.sequence

    def close(self) -> None:
        """Send waiting events, and stop publishing. The node keeps events until they are stable."""
        if self._loop.running:
            self._loop.run(self._publisher.close)


class BlockingSubscription:
    """A running subscription: `for event in subscription`. Created by `BlockingNode.subscribe`; `with` closes it.

    Events wait in the node until they are read; an interrupted or timed-out call loses none. Use it from one thread.
    """

    def __init__(self, loop: "_LoopThread", subscription: Subscription[Event]) -> None:
        self._loop, self._subscription = loop, subscription
        self._events: Iterator[Event] = iter(())
        self._next: Future[list[Event]] | None = None  # continues after a call gave up waiting for it

    def __enter__(self) -> "BlockingSubscription":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self._take(None)
        if event is None:
            raise StopIteration
        return event

    def get(self, timeout_s: float | None = None) -> Event:
        """The next event.

        Raises `TimeoutError` if none arrived within `timeout_s` seconds, `LocalError` if the subscription has ended,
        and the errors of asynchronous iteration.
        """
        event = self._take(arguments.bound_s("timeout_s", timeout_s))
        if event is None:
            raise LocalError(f"the subscription to {self.topic!r} has ended; subscribe again")
        return event

    def take(self, count: int, timeout_s: float | None = None) -> list[Event]:
        """The next `count` events; fewer if none arrived for `timeout_s` seconds, or the subscription ended."""
        timeout_s = arguments.bound_s("timeout_s", timeout_s)
        events: list[Event] = []
        try:
            while len(events) < count and (event := self._take(timeout_s)) is not None:
                events.append(event)
        except TimeoutError:
            pass  # the events so far are the answer
        except BaseException:
            self._events = chain(events, self._events)
            raise
        return events

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._subscription.topic

    @property
    def lost(self) -> list[Loss]:
        """The latest loss reports in order of arrival; `lost_count` counts all lost events.

        A later report may concern earlier events: cuts are known at once, events that no peer has
        only after a search.
        """
        return self._subscription.lost

    @property
    def lost_count(self) -> int:
        """How many events were reported lost to this subscription."""
        return self._subscription.lost_count

    def close(self) -> None:
        """End the subscription. Unread events are dropped."""
        self._events = iter(())
        if self._loop.running:
            self._loop.call(self._subscription.close())

    def _take(self, timeout_s: float | None) -> Event | None:
        """The next event; None at the end."""
        for event in self._events:
            return event
        if self._next is None:
            self._next = self._loop.begin(self._subscription.batch())
        if timeout_s is not None and timeout_s <= 0 and self._loop.running:
            self._loop.run(_nothing)  # events that have already arrived need a turn of the node
        try:
            events = self._next.result(timeout_s)
        except CancelledError:  # the node has left
            return None
        except TimeoutError as problem:
            if self._next.done():
                raise
            raise TimeoutError(f"no event of {self.topic!r} came within {timeout_s:g} s") from problem
        self._next = None
        self._events = iter(events)
        return next(self._events, None)


class _LoopThread:
    """An event loop in a daemon thread, and calls into it from others."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()

    @property
    def running(self) -> bool:
        return self._loop is not None and self._process == os.getpid()

    def start(self) -> None:
        if self._thread is not None:
            raise LocalError("a node starts once; create another one")
        self._process = os.getpid()
        began = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(began,), name="quillcast", daemon=True)
        self._thread.start()
        began.wait()

    def stop(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine in the loop. Raises `LocalError` where it would never end."""
        problem = None
        if self._process != os.getpid():
            problem = "the node runs in the process that this one was forked from; make one here"
        elif self._thread is None:
            problem = "the node is not started; use it inside `with BlockingNode(...) as node`"
        elif self._loop is None:
            problem = "the node has left its network; create another one"
        elif threading.current_thread() is self._thread:
            problem = "a callback of a blocking node must not call it: pass the event to another thread"
        if problem is not None or self._loop is None:
            work.close()
            raise LocalError(problem)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return its result; Ctrl-C cancels it."""
        future = self.begin(work)
        try:
            return future.result()
        except CancelledError as problem:
            raise LocalError("the node has left its network meanwhile; create another one") from problem
        except BaseException:
            future.cancel()
            raise

    def run(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function in the loop's thread and return its result."""

        async def call() -> T:
            return function(*args, **options)

        return self.call(call())

    def _work(self, began: threading.Event) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            self._loop = loop = runner.get_loop()
            began.set()
            loop.run_forever()


def _nothing() -> None:
    pass
