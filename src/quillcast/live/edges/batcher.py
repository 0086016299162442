"""What the publishers of a node to one topic share: the open batch, and the peer's publisher that seals and keeps it.

An event that comes alone leaves in the call that publishes it; where a turn of the event loop brings more, they wait
for its end. Which it will be is told by those before: a burst behind lone events takes two blocks, not one.
Events gather in one batch, whoever publishes them; runs note where another publisher goes on. So a block, its way to
the root, its receipt and its place in memory are worth as many events as came in one turn of the event loop, be they of
one publisher or of thousands (docs/decisions/shared-blocks.md).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Literal, Protocol

from quillcast.core.bundle import RUN_BYTES, Block, Join, Run
from quillcast.core.errors import EventTooLarge, NotJoined, QuillcastError
from quillcast.live.edges.attributes import pack
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import Warrant

EXTRAS_BYTES_MAX = 64 << 10  # of an event's key and attributes together; a guess: they describe, payloads carry
LONE_BLOCKS = 2  # in a row with one event each, after which the next event is taken for a lone one; a guess
LONE_S = 1e-4  # a guess, some two turns of a busy event loop: what comes closer behind a lone event waits for its turn
EVENT_BYTES = 80  # what an event costs in a batch beside its payload; of 16 bytes a full one has 8,192

NO_PAYLOADS: list[bytes] = []  # of publishers without room
Wait = Literal["root", "stable"]


class TopicWriter(Protocol):
    """A publisher as its batcher sees it."""

    id: bytes
    timed: bool
    plain: bool
    """Its events may be payloads and nothing more: it is open, and not timed."""
    room: int
    """Bytes that it may add to `payloads` without a look at anything else; the batch's last publisher alone has any."""
    payloads: list[bytes]
    next: int
    """Its events that were sealed."""
    last: int
    """One past the last of them, as the batcher's publisher counts."""

    def discarded(self, first: int, last: int) -> None:
        """Its events [first, last) were discarded at a bound, and never count as stable."""
        ...

    def failed(self, error: QuillcastError) -> None:
        """The topic takes no more of its events."""
        ...

    def move(self, batcher: "Batcher", pump: Pump, peer: Peer) -> None:
        """Its events go by another batcher from now on."""
        ...


class Batch:
    """Events that are still to be sealed: their columns, and whose they are."""

    __slots__ = ("attributes", "keys", "left", "payloads", "plain", "runs", "times")

    def __init__(self, left: int) -> None:
        self.left = left  # bytes that it still takes
        self.plain = True  # payloads are all there is to its events
        self.payloads: list[bytes] = []
        self.keys: list[bytes] | None = None
        self.attributes: list[bytes] | None = None
        self.times: list[int] | None = None
        self.runs: list[tuple[TopicWriter, int]] = []  # whose events follow, from which place on

    def spans(self) -> list[tuple[TopicWriter, int, int]]:
        """The runs, each with its first place and the one past its last."""
        ends = [*(start for _, start in self.runs[1:]), len(self.payloads)]
        return [(writer, start, end) for (writer, start), end in zip(self.runs, ends, strict=True)]

    def add_extras(self, key: bytes | None, attributes: Mapping[str, Any] | None, *, timed: bool) -> None:
        """What there is to the next event beside its payload. Raises `EventTooLarge`, and `LocalError` (`pack`).

        A column begins with the first event that uses it; the events before have no key, no attributes, and this time.
        """
        packed = b"" if attributes is None else pack(attributes)
        size = len(key or b"") + len(packed)
        if size > EXTRAS_BYTES_MAX:
            raise EventTooLarge(
                f"key and attributes of {size} bytes are over {EXTRAS_BYTES_MAX}; put them in the payload"
            )
        before, now_ns = len(self.payloads), time.time_ns()
        if self.keys is None and key is not None:
            self.keys = [b""] * before
        if self.attributes is None and attributes is not None:
            self.attributes = [b""] * before
        if self.times is None and timed:
            self.times = [now_ns] * before
        for column, value in ((self.keys, key or b""), (self.attributes, packed), (self.times, now_ns)):
            if column is not None:
                column.append(value)  # type: ignore[arg-type]  # each its own
        self.plain = False
        self.left -= size

    def without(self, writers: Mapping[TopicWriter, Any]) -> "Batch":
        """The batch as it were without these publishers."""
        kept = Batch(self.left)
        spans = [span for span in self.spans() if span[0] not in writers]
        for writer, start, end in spans:
            kept.runs.append((writer, len(kept.payloads)))
            kept.payloads += self.payloads[start:end]
        for name in ("keys", "attributes", "times"):
            if (column := getattr(self, name)) is not None:
                setattr(kept, name, [value for _, start, end in spans for value in column[start:end]])
        return kept


class Batcher:
    """The way of a node's publishers into one topic; the listener of the peer's publisher, `inner`."""

    __slots__ = (
        "_batch",
        "_batch_bytes",
        "_ended",
        "_holder",
        "_join",
        "_lone_at",
        "_lone_blocks",
        "_named",
        "_opened",
        "_paused",
        "_pump",
        "_queue",
        "_tickets",
        "_waiting",
        "_writers",
        "failure",
        "inner",
        "limit",
        "peer",
        "stopped",
        "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, pump: Pump, peer: Peer, batch_bytes: int, join: Join, warrant: Warrant | None,
        ended: Callable[["Batcher"], None],
    ) -> None:  # fmt: skip
        """Open it; `ended` hears when the last publisher left. Raises `LocalError` for a name that is no topic's."""
        self.topic = topic
        self.limit = 0
        """Bytes that one event may have; 0 while the topic is not known."""
        self.stopped = True
        """Publishers have to look: the topic is not known yet, there is no room, others wait for it, or it failed."""
        self.failure: QuillcastError | None = None
        self._pump, self.peer, self._batch_bytes, self._join = pump, peer, batch_bytes, join
        self._batch: Batch | None = None  # the open one
        self._holder: TopicWriter | None = None  # whose the batch's last events are
        self._lone_blocks = 0  # with one event each, up to the last one
        self._lone_at = 0.0  # when an event last left at once
        self._writers: dict[TopicWriter, None] = {}
        self._named = False  # the blocks' PublisherId is somebody's
        self._queue: OrderedDict[asyncio.Event, None] = OrderedDict()  # calls that wait for room, the oldest first
        self._waiting: dict[Wait, list[tuple[int, int, asyncio.Future[None]]]] = {"root": [], "stable": []}
        self._tickets = count()
        self._ended = ended
        self._opened = self._paused = False
        self.inner = pump.call(peer.publisher, topic, self, warrant)
        self._opened = True
        self.progressed()

    def enter(self, writer: TopicWriter) -> bytes:
        """One more publisher; its PublisherId. The first is named like the blocks, which need no runs for it."""
        self._writers[writer] = None
        self.inner.writers_count = len(self._writers)
        own, self._named = not self._named, True
        return self.inner.id if own else self.peer.scribe.publishing.new_id()

    def leave(self, writer: TopicWriter) -> None:
        """A publisher closes. After the last one the peer keeps what is not stable until it is."""
        self.flush()
        self._writers.pop(writer, None)
        if self._writers:
            self.inner.writers_count = len(self._writers)
        else:
            self._pump.call(self.peer.close_publisher, self.inner)
            self._ended(self)
        self._tell()

    def end(self) -> None:
        """The node has left: who waits for an acknowledgement waits in vain."""
        if self.failure is None:
            self.failed(NotJoined(f"the node has left; what it published to {self.topic!r} was not acknowledged"))

    # --- moving to another peer of the node

    def pause(self) -> None:
        """Seal what waits, and take no more: publishers wait."""
        self.flush()
        self._paused = self.stopped = True

    def go_on(self) -> None:
        """End a pause."""
        self._paused = False
        self.progressed()

    @property
    def safe(self) -> bool:
        """Is everything acknowledged that will be?"""
        return self.failure is not None or self._mark("stable" if self.inner.reliable else "root") >= self.inner.next

    def move_to(self, successor: "Batcher", pump: Pump, peer: Peer) -> None:
        """The publishers continue at another peer's batcher, and their sequences begin anew there."""
        for writer in list(self._writers):
            writer.move(successor, pump, peer)
        self._writers.clear()
        self._pump.call(self.peer.close_publisher, self.inner)
        successor._queue.update(self._queue)
        self._queue.clear()
        successor.stopped = successor._full or bool(successor._queue)
        successor._tell()

    # --- the open batch

    def add(self, writer: TopicWriter, payload: bytes) -> bool:
        """Take an event that is a payload only; False if it needs a closer look or a pause."""
        if self.stopped or not writer.plain:
            return False
        if self._lone_blocks >= LONE_BLOCKS and self._batch is None and not self._pump.stepping:
            now = self._pump.monotonic()
            if now - self._lone_at >= LONE_S:
                self._lone_at = now
                return self._send_at_once(writer, payload)
            self._lone_blocks = 0
        batch, size = self._batch or self._open(), len(payload)
        if size > self.limit or size + EVENT_BYTES + RUN_BYTES >= self._left(batch) or not batch.plain:
            return False
        self._append(batch, writer, payload)
        return True

    def append(
        self, writer: TopicWriter, payload: bytes, key: bytes | None, attributes: Mapping[str, Any] | None
    ) -> bool:
        """Take an event. True if the batch is full now: it is to be flushed. Raises as `Batch.add_extras`."""
        batch = self._batch or self._open()
        self._left(batch)
        if key is not None or attributes is not None or writer.timed or not batch.plain:
            batch.add_extras(key, attributes, timed=writer.timed)
        self._append(batch, writer, payload)
        return batch.left <= 0

    def _open(self) -> Batch:
        batch = self._batch = Batch(self._batch_bytes)
        self._pump.soon(self._turn_over)
        return batch

    def _send_at_once(self, writer: TopicWriter, payload: bytes) -> bool:
        """An event that is likely its turn's only one: it does not wait for others. False if it is too large."""
        inner = self.inner
        if len(payload) > inner.descriptor.settings.event_bytes_max:
            return False
        first = writer.next
        writer.next = first + 1
        if writer.id == inner.id and first == inner.next:
            writer.last = self._pump.call(inner.offer_lone, payload)
        else:
            writer.last = self._pump.call(partial(inner.offer, (payload,), runs=[(writer.id, first, 1)]))
        self.stopped = self.stopped or inner.room() <= 0
        return True

    def _turn_over(self) -> None:
        batch = self._batch
        alone = batch is not None and len(batch.payloads) == 1
        self._lone_blocks = self._lone_blocks + 1 if alone else 0
        self.flush()

    def _append(self, batch: Batch, writer: TopicWriter, payload: bytes) -> None:
        if self._holder is not writer:
            self._holder, writer.payloads = writer, batch.payloads
            batch.runs.append((writer, len(batch.payloads)))
            batch.left -= RUN_BYTES
        batch.payloads.append(payload)
        batch.left -= len(payload) + EVENT_BYTES
        if batch.plain and self.limit >= self._batch_bytes and batch.left > 0 and not self.stopped:
            writer.room = batch.left

    def _left(self, batch: Batch) -> int:
        """Bytes that the batch still takes, once its holder has given back what it may not have used."""
        holder = self._holder
        if holder is not None and holder.room:
            batch.left, holder.room = holder.room, 0
        return batch.left

    def waiting(self, writer: TopicWriter) -> int:
        """Events of a publisher in the open batch."""
        return sum(end - start for each, start, end in self._batch.spans() if each is writer) if self._batch else 0

    def flush(self) -> None:
        """Seal the batch."""
        batch = self._batch
        if batch is None:
            return
        used = self._batch_bytes - self._left(batch)
        self._batch = self._holder = None
        limit = self.inner.descriptor.settings.event_bytes_max
        if used > limit:
            batch = self._without_larger(batch, limit)
        if batch.payloads and self.failure is None:
            self._seal(batch)

    def _seal(self, batch: Batch) -> None:
        runs = self._runs(batch)
        offer = partial(
            self.inner.offer, batch.payloads, times=batch.times, keys=batch.keys, attributes=batch.attributes,
            runs=runs, join=self._join,
        )  # fmt: skip
        last = self._pump.call(offer)
        for writer, _ in batch.runs:
            writer.last, writer.payloads = last, NO_PAYLOADS
        self.stopped = self.stopped or self.inner.room() <= 0

    def _runs(self, batch: Batch) -> list[Run] | None:
        """Whose the batch's events are, now that they get their sequences; None where they are those of the block."""
        first, inner = batch.runs[0][0], self.inner
        if len(batch.runs) == 1 and first.id == inner.id and first.next == inner.next:
            first.next += len(batch.payloads)
            return None
        runs: list[Run] = []
        for writer, start, end in batch.spans():
            runs.append((writer.id, writer.next, end - start))
            writer.next += end - start
        return runs

    def _without_larger(self, batch: Batch, limit: int) -> Batch:
        """The topic's limit may have been lowered since events were taken: their publishers fail, and no others."""
        sizes = {writer: max(map(len, batch.payloads[start:end])) for writer, start, end in batch.spans()}
        larger = {writer: size for writer, size in sizes.items() if size > limit}
        for writer, size in larger.items():
            writer.failed(too_large(size, limit, self.topic))
        return batch.without(larger) if larger else batch

    # --- waiting

    def queue_up(self) -> asyncio.Event:
        """Take a place in the queue for room. Set when it is worth a look whether it `is_turn_of` the place.

        While anybody waits, publishers are `stopped`: calls are served in the order in which they were made.
        """
        place = asyncio.Event()
        self._queue[place] = None
        self.stopped = True
        return place

    def is_turn_of(self, place: asyncio.Event) -> bool:
        """Is there room, and nobody before this place?"""
        return not self._full and next(iter(self._queue)) is place

    def leave_queue(self, place: asyncio.Event) -> None:
        """This place's call was served, or given up: the next one's turn."""
        self._queue.pop(place, None)
        self.stopped = self._full or bool(self._queue)
        if self._queue and not self._full:
            next(iter(self._queue)).set()

    @property
    def _full(self) -> bool:
        """Are no events taken now?"""
        return self.limit <= 0 or self.failure is not None or self._paused or self.inner.room() <= 0

    async def sealed(self) -> None:
        """Let the present batch be sealed, at the end of this turn of the loop, with what others publish in it."""
        batch = self._batch
        if batch is not None:
            await asyncio.sleep(0)  # what the batch's first event put off comes before this goes on
            if batch is self._batch:
                self.flush()

    async def acknowledged(self, wait: Wait, last: int, in_vain: Callable[[], bool]) -> None:
        """Wait until all blocks before a number are acknowledged, or it is `in_vain` to wait for their stability.

        Raises what made the topic fail.
        """
        while self._mark(wait) < last and not (wait == "stable" and in_vain()):
            if self.failure is not None:
                raise self.failure
            waiting, place = self._waiting[wait], (last, next(self._tickets), self._pump.loop.create_future())
            heappush(waiting, place)
            try:
                await place[2]
            except asyncio.CancelledError:
                if place in waiting:
                    waiting.remove(place)
                    heapify(waiting)
                raise

    def _mark(self, wait: Wait) -> int:
        return self.inner.admitted if wait == "root" else self.inner.stable

    def _tell(self) -> None:
        """There is room, or no hope of it: whoever waits looks, in the order of the queue."""
        for place in self._queue:
            place.set()

    def _tell_reached(self) -> None:
        """Go on those who wait for an acknowledgement that came, or that will not come."""
        for wait, waiting in self._waiting.items():
            while waiting and (waiting[0][0] <= self._mark(wait) or self.failure is not None):
                heard = heappop(waiting)[2]
                if not heard.done():
                    heard.set_result(None)

    # --- the peer's side (`protocol.topics.publisher.PublisherListener`)

    def dropped(self, block: Block) -> None:
        writers = {writer.id: writer for writer in self._writers}
        for publisher, first, count_ in block.runs():
            if publisher in writers:
                writers[publisher].discarded(first, first + count_)
        waiting = self._waiting["stable"]
        for _, _, heard in waiting:  # each looks whether that was its own
            if not heard.done():
                heard.set_result(None)
        waiting.clear()

    def progressed(self) -> None:
        if not self._opened:
            return
        inner = self.inner
        known = inner.root is not None or self.limit > 0
        self.limit = inner.descriptor.settings.event_bytes_max if known else 0
        full = self._full
        self.stopped = full or bool(self._queue)
        if not full:
            self._tell()
        elif self._batch is not None:
            self._left(self._batch)
        self._tell_reached()

    def failed(self, error: QuillcastError) -> None:
        self.failure, self.stopped = error, True
        for writer in list(self._writers):
            writer.failed(error)
        if self._opened:
            self._tell_reached()
        self._tell()


def too_large(size: int, limit: int, topic: str) -> EventTooLarge:
    """The error for an event over its topic's limit."""
    return EventTooLarge(
        f"an event of {size} bytes is over the limit of {limit} of topic {topic!r}; split it, "
        "or create the topic with a larger event_bytes_max"
    )
