"""Subscriptions: blocks wait in an inbox until the application reads them as events or payloads."""

import asyncio
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position
from quillcast.core.errors import LocalError, Malformed, NotJoined, QuillcastError
from quillcast.core.loss import Loss
from quillcast.live.edges.attributes import unpack
from quillcast.live.edges.peer import SubscribingPeer, node_ids, silent
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.forwarding.subscriber import Unread
from quillcast.protocol.security.access import Warrant

if TYPE_CHECKING:
    from quillcast.live.admission.credentials import Credentials

LOSSES_MAX = 1000  # reports kept for `Subscription.lost`; a guess
READ_BYTES_MAX = 4 << 20  # decoded events that a node keeps for its other subscriptions to a topic; a guess
TURN_EVENTS = 256  # after this many events, the event loop runs before the next block; a guess
_EVENT_BYTES = 192  # of an `Event` and the objects it refers to, without the bytes of its block

Item = TypeVar("Item")  # what a subscription yields: `Event`, or payloads as `bytes`
Handler = Callable[[Item], Awaitable[None] | None]
MakeItems = Callable[[str, Block, int, int], tuple[Iterator[Item], Iterator[Any]]]
"""Makes the items of events `skip` to before `stop` of a block, and an iterator whose `length_hint` says how many are
left. Raises `Malformed`."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event as a subscriber gets it.

    `sequence` counts a publisher's events in the topic from 0; `publisher` is new at every start of a publisher.
    `time_ns` is when the publisher sealed it, in nanoseconds since 1970 UTC by its own clock; the events of a batch
    share it. `recovered` is true if the event may have been reported lost (`Loss.uncertain`) but arrived after all.
    """

    topic: str
    payload: bytes
    key: bytes | None
    attributes: dict[str, Any] | None
    publisher: bytes
    sequence: int
    time_ns: int
    recovered: bool = False


_NO_BLOCKS: deque[tuple[Block, int, int, Position, bool]] = deque()  # shared by all inboxes that have been empty so far


class Losses(deque[Loss]):
    """The latest loss reports, and the number of lost events."""

    total = 0

    def __init__(self) -> None:
        super().__init__(maxlen=LOSSES_MAX)

    def add(self, loss: Loss) -> None:
        """Add a report."""
        self.append(loss)
        self.total += loss.count


_NO_LOSSES = Losses()
_NO_ITEMS: Iterator[Any] = iter(())


class LossTeller:
    """Reports losses to an application's `on_lost`: soon, and before the application gets any later event."""

    __slots__ = ("_on_lost", "_untold")

    def __init__(self, on_lost: Callable[[Loss], object]) -> None:
        self._on_lost, self._untold = on_lost, deque[Loss]()

    def add(self, loss: Loss) -> None:
        """Add a report."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self.tell)
        self._untold.append(loss)

    def tell(self) -> None:
        """Report all losses that have not been reported yet."""
        while self._untold:
            loss = self._untold.popleft()
            try:
                self._on_lost(loss)
            except Exception as problem:  # noqa: BLE001 - an error of the application
                context = {"message": f"on_lost failed at {loss}", "exception": problem}
                asyncio.get_running_loop().call_exception_handler(context)


class Inbox:
    """The peer's side of a subscription (`forwarding.subscriber.Subscriber`): takes blocks while it has room."""

    __slots__ = (
        "_waiting", "blocks", "closed", "current", "failure", "left", "loss_teller", "losses", "malformed_count",
        "name", "position", "size_bytes", "size_bytes_max", "subscription", "turned_at",
    )  # fmt: skip

    def __init__(self, size_bytes_max: int, name: str = "") -> None:
        self.name = name
        self.blocks = _NO_BLOCKS
        self.current: tuple[Block, int] | None = None  # the block that the application reads, and where it ends
        self.left = _NO_ITEMS  # its remaining items
        self.turned_at = 0.0  # when the application took that block or last read an event
        self.size_bytes, self.size_bytes_max = 0, size_bytes_max
        self.position: Position | None = None
        self.failure: QuillcastError | None = None
        self.losses = _NO_LOSSES
        self.malformed_count = 0
        self.loss_teller: LossTeller | None = None
        self.closed = False
        self.subscription: Subscription[Any] | None = None
        """Its subscription, while that is open."""
        self._waiting: tuple[Callable[[], None], ...] = ()  # to be called once at the next change

    def started(self, position: Position) -> None:
        self.position = position
        self._tell()

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        if self.blocks is _NO_BLOCKS:
            self.blocks = deque()
        self.blocks.append((block, skip, stop, position, recovered))
        self.size_bytes += block.size
        waiting, self._waiting = self._waiting, ()
        for wake in waiting:
            wake()

    def tell_losses(self, on_lost: Callable[[Loss], object] | None) -> None:
        """Call this function with every loss."""
        self.loss_teller = LossTeller(on_lost) if on_lost is not None else None

    def lost(self, loss: Loss) -> None:
        if self.losses is _NO_LOSSES:
            self.losses = Losses()
        self.losses.add(loss)
        if self.loss_teller is not None:
            self.loss_teller.add(loss)

    def failed(self, error: QuillcastError) -> None:
        self.failure = error
        self._tell()

    def room(self) -> int:
        return self.size_bytes_max - self.size_bytes

    def release(self, size_bytes: int) -> bool:
        """The application has finished a block. Whether the peer must be told that there is room again."""
        was_full = self.size_bytes >= self.size_bytes_max
        self.size_bytes -= size_bytes
        return was_full and self.size_bytes < self.size_bytes_max

    def unread(self) -> Unread:
        """The events that wait for the application or that it is reading (`protocol.forwarding.subscriber.Watched`)."""
        events = sum(stop - skip for _, skip, stop, *_ in self.blocks)
        if self.current is not None:
            events += length_hint(self.left) + 1  # one is being processed
        idle_s = time.monotonic() - self.turned_at
        return Unread(events, self.size_bytes, self._oldest_ns(), idle_s)

    def _oldest_ns(self) -> int | None:
        """When the oldest unfinished event was published."""
        if self.current is not None:
            block, stop = self.current
            return block.times()[max(0, stop - length_hint(self.left) - 1)]
        return self.blocks[0][0].times()[self.blocks[0][1]] if self.blocks else None

    def close(self) -> None:
        """No more blocks will come."""
        self.closed = True
        self._tell()

    async def changed(self) -> None:
        """Wait until something arrives, or the subscription starts or ends."""
        waiter = asyncio.get_running_loop().create_future()
        wake = partial(_wake, waiter)
        self.tell(wake)
        try:
            await waiter
        except BaseException:  # forget a caller that gives up
            self._waiting = tuple([other for other in self._waiting if other is not wake])
            raise

    def tell(self, wake: Callable[[], None]) -> None:
        """Call a function once, when something arrives, or the subscription starts or ends."""
        self._waiting = (*self._waiting, wake)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for wake in waiting:
            wake()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class DecodeCache:
    """Shared by all subscriptions of a node: the peer, and the events of recently decoded blocks.

    Subscriptions to one topic usually read a block in the same iteration of the event loop; a late one decodes it
    again. Applications may change attributes, so events with attributes are not shared.
    """

    pump: Pump
    peer: SubscribingPeer

    def __init__(self, join_timeout_s: float) -> None:
        self.join_timeout_s = join_timeout_s
        self.shared: dict[str, None] = {}
        """Topics with several subscriptions. Most topics have one subscription, which needs no cache."""
        self._read: deque[tuple[Block, MakeItems[Any], list[Any]]] = deque()
        self._bytes = 0

    def serve(self, pump: Pump, peer: SubscribingPeer) -> None:
        """Subscriptions are at this peer from now on. A node calls this before it makes the first one."""
        self.pump, self.peer = pump, peer

    def note(self, topic: str, handle: Any) -> None:
        """The subscriptions to a topic have changed."""
        if self.peer.subscriptions(handle) > 1:
            self.shared[topic] = None
        elif topic in self.shared:
            del self.shared[topic]
            self._read.clear()
            self._bytes = 0

    def read(
        self, make: MakeItems[Item], topic: str, block: Block, skip: int, stop: int
    ) -> tuple[Iterator[Item], Iterator[Any]]:
        """The items of events `skip` to `stop` of a block in a shared topic. Raises `Malformed`."""
        if make in (events, recovered_events) and block.has_attributes:
            return make(topic, block, skip, stop)
        for known, maker, items in self._read:
            if known is block and maker is make:
                return _counted(items, skip, stop)
        items = list(make(topic, block, 0, block.count)[0])
        self._read.appendleft((block, make, items))
        self._bytes += _size(block)
        while self._bytes > READ_BYTES_MAX and len(self._read) > 1:
            self._bytes -= _size(self._read.pop()[0])
        return _counted(items, skip, stop)


class Subscription(Generic[Item]):
    """A running subscription: `async for event in subscription`. Created by `Node.subscribe`.

    It yields events (`Subscription[Event]`) or payloads (`Subscription[bytes]`): each event after its start, once, in
    its publisher's order. Several readers share the events: each event goes to one of them. A subscription with a
    handler has no other readers. Losses are reported in `lost` and to `on_lost`. If a reader falls behind by
    `LiveConfig.subscription_bytes`, the topic's `slow` setting applies. The subscription runs until it is closed, even
    if nobody reads it: `async with node.subscribe(topic) as subscription` closes it.
    """

    __slots__ = (
        "_decode_cache", "_handle", "_has_handler", "_inbox", "_items", "_make", "_taken_bytes", "_turn_events",
        "credentials", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        make: MakeItems[Item],
        inbox: Inbox,
        decode_cache: DecodeCache,
        credentials: "Credentials | None" = None,
    ) -> None:
        self.topic, self._make, self._inbox, self._decode_cache = topic, make, inbox, decode_cache
        self.credentials = credentials
        self._items: Iterator[Item] = _NO_ITEMS
        self._taken_bytes = 0  # of the block that is being read
        self._turn_events = 0  # yielded since the event loop last ran
        self._handle: Any = None
        self._has_handler = False

    # --- the application's side

    async def __aenter__(self) -> "Subscription[Item]":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        self._check_readable()
        return self._stream()  # resuming a generator is faster than starting `__anext__`

    async def _stream(self) -> AsyncIterator[Item]:
        while True:
            items = self._items
            for event in items:
                yield event
            if not await self._more(items):
                return

    async def __anext__(self) -> Item:
        self._check_readable()
        for event in self._items:
            return event
        return await self._next()

    async def batch(self) -> list[Item]:
        """All available events, waiting for at least one; an empty list if the subscription has ended."""
        self._check_readable()
        items = self._items
        events = list(items)
        while not events and await self._more(items):
            items = self._items
            events = list(items)
        return events

    async def started(self) -> Position:
        """Wait until the subscription has started; returns the position of the first event that it will get.

        Raises `UnknownTopic`, `AccessDenied` with the rule that rejected it, or `NotJoined` if nobody accepted the
        subscription in time.
        """
        try:
            async with asyncio.timeout(self._decode_cache.join_timeout_s):
                while self._inbox.position is None and self._inbox.failure is None:
                    await self._inbox.changed()
        except TimeoutError as problem:
            awaited = self._decode_cache.peer.awaited(self.topic)
            raise NotJoined(
                f"no peer accepted the subscription to {self.topic!r} within {self._decode_cache.join_timeout_s:g} s: "
                f"{silent(awaited)}; it is still being tried", node_ids(awaited)
            ) from problem  # fmt: skip
        if self._inbox.position is None:
            assert self._inbox.failure is not None
            raise self._inbox.failure
        return self._inbox.position

    @property
    def lost(self) -> list[Loss]:
        """The latest loss reports in order of arrival; `lost_count` counts all lost events.

        A later report may concern earlier events: cuts are known at once, events that no peer has
        only after a search.
        """
        return list(self._inbox.losses)

    @property
    def lost_count(self) -> int:
        """How many events were reported lost to this subscription."""
        return self._inbox.losses.total

    @property
    def malformed_count(self) -> int:
        """How many malformed blocks were dropped; their publisher is at fault."""
        return self._inbox.malformed_count

    @property
    def waiting_bytes(self) -> int:
        """Bytes of blocks that arrived and have not been read."""
        return self._inbox.size_bytes

    async def close(self) -> None:
        """End the subscription. Unread events are dropped, and `async for` ends."""
        self._inbox.close()
        self._inbox.blocks.clear()
        deque(self._items, maxlen=0)  # a reader in the middle of them gets no more events
        decode_cache, handle = self._decode_cache, self._handle
        if handle is not None:
            decode_cache.pump.call(decode_cache.peer.unsubscribe, handle)
            decode_cache.note(self.topic, handle)
            self._handle = self._inbox.subscription = None

    # --- the node's side

    def open(self, *, start: str, delivery: str | None, warrant: Warrant | None = None) -> None:
        """Subscribe at the peer."""
        decode_cache = self._decode_cache
        subscribe = partial(decode_cache.peer.subscribe, start=start, delivery=delivery, warrant=warrant)
        self._inbox.subscription = self
        self._handle = decode_cache.pump.call(subscribe, self.topic, self._inbox)
        decode_cache.note(self.topic, self._handle)

    def move(self, warrant: Warrant | None) -> None:
        """Subscribe at the node's new peer with the same options. The former peer still delivers."""
        if self._handle is not None and self._inbox.failure is None:
            wish = self._handle.wish
            self._inbox.position = None  # the new network has its own positions
            self.open(start=wish.start, delivery=wish.delivery, warrant=warrant)

    def serve(self, handler: Handler[Item], run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Call the handler with every event, one after the other, until the subscription ends.

        A plain function is called at the end of the turn in which the event arrived, a coroutine function in a task. An
        error in a handler is reported to the event loop's exception handler, and the next event follows.
        """
        self._has_handler = True
        Dispatcher(self, handler, self._decode_cache.pump, run).go_on_soon()

    def _check_readable(self) -> None:
        """Raise `LocalError` if a handler takes all events: any other reader would wait forever."""
        if self._has_handler:
            raise LocalError(
                f"the subscription to {self.topic!r} has a handler, which gets all events; "
                "to read them, subscribe without one"
            )

    async def _next(self) -> Item:
        items = self._items
        while await self._more(items):
            items = self._items
            for event in items:
                return event
        raise StopAsyncIteration

    async def _more(self, taken: Iterator[Item]) -> bool:
        """Decode the next block when this one has been read; False at the end of the subscription.

        Another reader may have done so meanwhile. From time to time the event loop runs in between.
        """
        if self._pause_due():
            await asyncio.sleep(0)
        while self._items is taken and not self._turn_to_next():
            if self._ended():
                return False
            await self._inbox.changed()
        return True

    def _pause_due(self) -> bool:
        """Whether the event loop must run before the next block."""
        due = self._turn_events >= TURN_EVENTS and bool(self._inbox.blocks)
        if due:
            self._turn_events = 0
        return due

    def _ended(self) -> bool:
        """Whether the subscription has ended. Raises the error if it failed."""
        if self._inbox.failure is not None:
            raise self._inbox.failure
        return self._inbox.closed

    def _turn_to_next(self) -> bool:
        """Decode the next block; False if there is none."""
        inbox = self._inbox
        if self._taken_bytes:
            self._release(inbox)
        inbox.current = None
        if inbox.loss_teller is not None:
            inbox.loss_teller.tell()  # before any later event
        if not inbox.blocks:
            self._turn_events = 0
            return False
        block, skip, stop, position, recovered = inbox.blocks.popleft()
        make: MakeItems[Any] = recovered_events if recovered and self._make is events else self._make
        self._taken_bytes = block.size
        self._turn_events += stop - skip
        inbox.turned_at = time.monotonic()
        try:
            if self.topic in self._decode_cache.shared:
                self._items, inbox.left = self._decode_cache.read(make, self.topic, block, skip, stop)
            else:
                self._items, inbox.left = make(self.topic, block, skip, stop)
            inbox.current = (block, stop)
        except Malformed:
            inbox.malformed_count += 1
            inbox.lost(Loss(position.term, block.first + skip, block.first + stop, "malformed", block.publisher))
        return True

    def _release(self, inbox: Inbox) -> None:
        """All events of the last block have been read."""
        taken_bytes, self._taken_bytes = self._taken_bytes, 0
        if inbox.release(taken_bytes) and self._handle is not None:
            self._decode_cache.pump.call(self._decode_cache.peer.drained, self._handle)


class Dispatcher(Generic[Item]):
    """Calls a handler with each event, at the end of the turn in which it arrived.

    A plain function gets events without another iteration of the event loop. Once the handler returns an awaitable, it
    is called in a task from then on.
    """

    __slots__ = ("_handler", "_pump", "_run", "_subscription", "go_on_soon")

    def __init__(
        self, subscription: Subscription[Item], handler: Handler[Item], pump: Pump,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:  # fmt: skip
        self._subscription, self._handler, self._pump, self._run = subscription, handler, pump, run
        self.go_on_soon = partial(pump.after, self._go_on)
        """Call the handler with the waiting events at the end of this turn, and from then on with each new one."""

    def _go_on(self) -> None:
        subscription = self._subscription
        try:
            while subscription._turn_to_next():
                called = self._call()
                if called is not None:
                    self._run(self._await_each(*called))
                    return
                if subscription._pause_due():
                    self._pump.loop.call_soon(self._go_on)
                    return
            if not subscription._ended():
                subscription._inbox.tell(self.go_on_soon)
        except Exception as problem:  # noqa: BLE001 - otherwise the delivering code fails
            self._report(f"the subscription to {subscription.topic!r} failed", problem)

    async def _await_each(self, event: Item, awaited: Awaitable[None]) -> None:
        called: tuple[Item, Awaitable[None]] | None = (event, awaited)
        inbox = self._subscription._inbox
        while called is not None:
            inbox.turned_at = time.monotonic()
            try:
                await called[1]
            except asyncio.CancelledError as problem:
                if _is_cancelled():
                    raise  # the node has left
                self._failed(called[0], problem)
            except Exception as problem:  # noqa: BLE001 - an error of the application
                self._failed(called[0], problem)
            subscription = self._subscription
            while (called := self._call()) is None and await subscription._more(subscription._items):
                pass

    def _call(self) -> tuple[Item, Awaitable[None]] | None:
        """Call the handler with the rest of the block, or until it returns an awaitable."""
        for event in self._subscription._items:
            try:
                result = self._handler(event)
            except (Exception, asyncio.CancelledError) as problem:  # noqa: BLE001 - an error of the application
                self._failed(event, problem)
            else:
                if result is not None and inspect.isawaitable(result):
                    return event, result
        return None

    def _failed(self, event: Item, problem: BaseException) -> None:
        self._report(f"the handler of {self._subscription.topic!r} failed at {event}", problem)

    def _report(self, message: str, problem: BaseException) -> None:
        self._pump.loop.call_exception_handler({"message": message, "exception": problem})


def _is_cancelled() -> bool:
    """Whether this task itself is cancelled, and not only what its handler waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _counted(items: list[Item], skip: int, stop: int) -> tuple[Iterator[Item], Iterator[Any]]:
    """Items `skip` to `stop`; the same iterator twice, because a list's iterator knows how many are left."""
    iterator = iter(items if skip == 0 and stop == len(items) else items[skip:stop])
    return iterator, iterator


def payloads(topic: str, block: Block, skip: int, stop: int) -> tuple[Iterator[bytes], Iterator[Any]]:
    """The payloads of a block's events `skip` to `stop`. Raises `Malformed`."""
    items = block.payloads()
    iterator = iter(items if stop - skip == block.count else items[skip:stop])  # `_counted`, inlined: hot path
    return iterator, iterator


def events(topic: str, block: Block, skip: int, stop: int) -> tuple[Iterator[Event], Iterator[Any]]:
    """Events `skip` to `stop` of a block, made on demand. Raises `Malformed`."""
    taken, left = _counted(block.payloads(), skip, stop)
    keys, attributes = block.keys(), block.attributes()
    publishers: Iterable[bytes] = repeat(block.publisher)
    sequences: Iterable[int] = range(block.first + skip, block.first + stop)
    if block.shared:
        ids, numbers = block.publishers()
        publishers, sequences = ids[skip:stop], numbers[skip:stop]
    made = map(
        Event,
        repeat(topic),
        taken,
        repeat(None) if keys is None else [key or None for key in keys[skip:stop]],
        repeat(None) if attributes is None else _maps(attributes[skip:stop]),
        publishers,
        sequences,
        block.times()[skip:stop],
    )
    return made, left


def recovered_events(topic: str, block: Block, skip: int, stop: int) -> tuple[Iterator[Event], Iterator[Any]]:
    """The same as `events`, marked as recovered. Raises `Malformed`."""
    made, left = events(topic, block, skip, stop)
    return map(partial(msgspec.structs.replace, recovered=True), made), left


def _size(block: Block) -> int:
    """Bytes of a block's events."""
    size: int = block.size + block.count * _EVENT_BYTES
    return size


def _maps(attributes: Iterable[bytes]) -> list[dict[str, Any] | None]:
    return [unpack(one) if one else None for one in attributes]
