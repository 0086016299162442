"""A batcher: shared by all publishers of a node to one topic. It collects their events in the open batch.

A lone event leaves in the call that publishes it. If an iteration of the event loop brings several, they leave together
at its end. The batcher guesses from previous events: a burst after lone events takes two blocks instead of one. All
publishers share the batch; runs say which events belong to which publisher. So all events of one iteration share the
cost of a block and its receipt, whether they come from one publisher or from thousands
(docs/decisions/shared-blocks.md).
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
from quillcast.live.edges.peer import FindCauses, PublishingPeer
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.security.access import Warrant

EXTRAS_BYTES_MAX = 64 << 10  # of an event's key and attributes together; a guess: data belongs in the payload
LONE_BLOCKS = 2  # after this many one-event blocks in a row, the next event counts as a lone one; a guess
LONE_S = 1e-4  # a guess, two iterations of a busy loop: an event that follows a lone one sooner joins a batch
EVENT_BYTES = 80  # cost of an event in a batch beside its payload; a full batch has 8,192 events of 16 bytes

NO_PAYLOADS: list[bytes] = []  # of publishers without room
AckLevel = Literal["root", "stable"]


class TopicWriter(Protocol):
    """A publisher as its batcher sees it."""

    id: bytes
    timed: bool
    plain: bool
    """Its events can be bare payloads: it is open, and not timed."""
    room: int
    """Bytes that it may add to `payloads` without further checks; only the batch's last publisher has any."""
    payloads: list[bytes]
    next: int
    """How many of its events were sealed."""
    last: int
    """One past the last of them, in the numbering of the batcher's publisher."""
    unkept: int
    """The first of its events that may have been published in the latest best-effort session."""

    def discarded(self, first: int, last: int) -> None:
        """Its events [first, last) will never count as stable. Some may be reported again."""
        ...

    def failed(self, error: QuillcastError) -> None:
        """The topic no longer accepts its events."""
        ...

    def move(self, batcher: "Batcher") -> None:
        """From now on it publishes through another batcher."""
        ...


class Batch:
    """Events that wait to be sealed: their columns, and their publishers."""

    __slots__ = ("attributes", "keys", "left", "payloads", "plain", "runs", "times")

    def __init__(self, left: int) -> None:
        self.left = left  # bytes that still fit
        self.plain = True  # its events are bare payloads
        self.payloads: list[bytes] = []
        self.keys: list[bytes] | None = None
        self.attributes: list[bytes] | None = None
        self.times: list[int] | None = None
        self.runs: list[tuple[TopicWriter, int]] = []  # publishers and the places of their first events

    def spans(self) -> list[tuple[TopicWriter, int, int]]:
        """The runs, each with its first place and one past its last."""
        ends = [*(start for _, start in self.runs[1:]), len(self.payloads)]
        return [(writer, start, end) for (writer, start), end in zip(self.runs, ends, strict=True)]

    def add_extras(self, key: bytes | None, attributes: Mapping[str, Any] | None, *, timed: bool) -> None:
        """Add the key, attributes and time of the next event. Raises `EventTooLarge`, and `LocalError` as `pack` does.

        A column begins with the first event that uses it; earlier events have no key, no attributes, and this time.
        """
        packed = b"" if attributes is None else pack(attributes)
        size = len(key or b"") + len(packed)
        if size > EXTRAS_BYTES_MAX:
            raise EventTooLarge(
                f"key and attributes take {size} bytes, more than {EXTRAS_BYTES_MAX}; move data to the payload"
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
                column.append(value)  # type: ignore[arg-type]  # each has its own
        self.plain = False
        self.left -= size

    def without(self, writers: Mapping[TopicWriter, Any]) -> "Batch":
        """The batch without the events of these publishers."""
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
    """Batches the events of a node's publishers to one topic. It is the listener of the peer's publisher, `inner`."""

    __slots__ = (
        "_batch", "_batch_bytes", "_ended", "_holder", "_join", "_lone_at", "_lone_blocks", "_named", "_opened",
        "_paused", "_queue", "_tickets", "_waiting", "_writers", "failure", "find_causes", "inner", "limit", "peer",
        "pump", "stopped", "topic",
    )  # fmt: skip

    def __init__(
        self, topic: str, pump: Pump, peer: PublishingPeer, batch_bytes: int, join: Join, warrant: Warrant | None,
        find_causes: FindCauses, ended: Callable[["Batcher"], None],
    ) -> None:  # fmt: skip
        """Open it. Raises `LocalError` for an invalid name.

        `find_causes` finds out which peers hold up events; `ended` is called when the last publisher has left.
        """
        self.topic = topic
        self.limit = 0
        """The size limit of an event; 0 while the topic is not known."""
        self.stopped = True
        """Publishers must use the slow path: the topic is unknown or failed, there is no room, or other calls wait."""
        self.failure: QuillcastError | None = None
        self.pump, self.peer, self._batch_bytes, self._join = pump, peer, batch_bytes, join
        self.find_causes = find_causes
        self._batch: Batch | None = None  # the open one
        self._holder: TopicWriter | None = None  # the publisher of the batch's last events
        self._lone_blocks = 0  # blocks in a row with one event each
        self._lone_at = 0.0  # when an event last left at once
        self._writers: dict[TopicWriter, None] = {}
        self._named = False  # a publisher has the blocks' PublisherId
        self._queue: OrderedDict[asyncio.Event, None] = OrderedDict()  # calls that wait for room, oldest first
        self._waiting: dict[AckLevel, list[tuple[int, int, asyncio.Future[None]]]] = {"root": [], "stable": []}
        self._tickets = count()
        self._ended = ended
        self._opened = self._paused = False
        self.inner = pump.call(peer.publisher, topic, self, warrant)
        self._opened = True
        self.progressed()

    def enter(self, writer: TopicWriter) -> bytes:
        """Add a publisher; returns its PublisherId. The first gets the blocks' id; then they need no runs."""
        self._writers[writer] = None
        self.inner.count_writers(len(self._writers))
        own, self._named = not self._named, True
        return self.inner.id if own else self.peer.new_publisher_id()

    def leave(self, writer: TopicWriter) -> None:
        """A publisher closes. After the last one, the peer keeps unstable events until they are stable."""
        self.flush()
        self._writers.pop(writer, None)
        if self._writers:
            self.inner.count_writers(len(self._writers))
        else:
            self.pump.call(self.peer.close_publisher, self.inner)
            self._ended(self)
        self._tell()

    def end(self) -> None:
        """The node has left: fail all calls that wait for an acknowledgement."""
        if self.failure is None:
            self.failed(NotJoined(f"the node has left; what it published to {self.topic!r} was not acknowledged"))

    @property
    def bound(self) -> str:
        """Why publishers wait because the topic has its maximum of publishers, in a sentence; empty if they do not."""
        return self.peer.bound(self.inner.topic)

    # --- moving to another peer of the node

    def pause(self) -> None:
        """Seal the open batch and make publishers wait."""
        self.flush()
        self._paused = self.stopped = True

    def go_on(self) -> None:
        """End a pause."""
        self._paused = False
        self.progressed()

    @property
    def safe(self) -> bool:
        """Whether every acknowledgement that can still arrive has arrived."""
        return self.failure is not None or self._mark("stable" if self.inner.reliable else "root") >= self.inner.next

    def move_to(self, successor: "Batcher") -> None:
        """Move the publishers to another peer's batcher, where their sequences start again."""
        for writer in list(self._writers):
            writer.move(successor)
        self._writers.clear()
        self.pump.call(self.peer.close_publisher, self.inner)
        successor._queue.update(self._queue)
        self._queue.clear()
        successor.stopped = successor._is_full() or bool(successor._queue)
        successor._tell()

    # --- the open batch

    def add(self, writer: TopicWriter, payload: bytes) -> bool:
        """Add a bare payload; False if the event needs further checks or a pause."""
        if self.stopped or not writer.plain:
            return False
        if self._lone_blocks >= LONE_BLOCKS and self._batch is None and not self.pump.stepping:
            now = self.pump.monotonic()
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
        """Add an event; True if the batch is now full and must be flushed. Raises as `Batch.add_extras` does."""
        batch = self._batch or self._open()
        self._left(batch)
        if key is not None or attributes is not None or writer.timed or not batch.plain:
            batch.add_extras(key, attributes, timed=writer.timed)
        self._append(batch, writer, payload)
        return batch.left <= 0

    def _open(self) -> Batch:
        batch = self._batch = Batch(self._batch_bytes)
        self.pump.soon(self._turn_over)
        return batch

    def _send_at_once(self, writer: TopicWriter, payload: bytes) -> bool:
        """Send an event that is probably alone, without waiting for more. False if it is too large."""
        inner = self.inner
        if len(payload) > inner.descriptor.settings.event_bytes_max:
            return False
        first = writer.next
        writer.next = first + 1
        if writer.id == inner.id and first == inner.next:
            writer.last = self.pump.call(inner.offer_lone, payload)
        else:
            writer.last = self.pump.call(partial(inner.offer, (payload,), runs=[(writer.id, first, 1)]))
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
        """Bytes that still fit into the batch, including what its holder has not used."""
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
        last = self.pump.call(offer)
        for writer, _ in batch.runs:
            writer.last, writer.payloads = last, NO_PAYLOADS
        self.stopped = self.stopped or self.inner.room() <= 0

    def _runs(self, batch: Batch) -> list[Run] | None:
        """Give the batch's events their sequences; returns the runs, None if the block's own publisher sent all."""
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
        """Without the publishers whose events exceed the topic's limit, if it was lowered meanwhile; only they fail."""
        sizes = [(writer, max(map(len, batch.payloads[start:end]))) for writer, start, end in batch.spans()]
        larger = {writer: size for writer, size in sizes if size > limit}
        for writer, size in larger.items():
            writer.failed(too_large(size, limit, self.topic))
        return batch.without(larger) if larger else batch

    # --- waiting

    def queue_up(self) -> asyncio.Event:
        """Enter the queue for room. The place is set when the caller should check `is_turn_of`.

        While calls wait, publishers are `stopped`: calls are served in the order in which they were made.
        """
        place = asyncio.Event()
        self._queue[place] = None
        self.stopped = True
        return place

    def is_turn_of(self, place: asyncio.Event) -> bool:
        """Whether there is room and this place is the first."""
        return not self._is_full() and next(iter(self._queue)) is place

    def leave_queue(self, place: asyncio.Event) -> None:
        """This call was served or has given up: the next one is first now."""
        self._queue.pop(place, None)
        self.stopped = self._is_full() or bool(self._queue)
        if self._queue and not self._is_full():
            next(iter(self._queue)).set()

    def _is_full(self) -> bool:
        """Whether no events can be added now."""
        return self.limit <= 0 or self.failure is not None or self._paused or self.inner.room() <= 0

    async def sealed(self) -> None:
        """Wait until the open batch is sealed, at the end of this iteration, with the events of other publishers."""
        batch = self._batch
        if batch is not None:
            await asyncio.sleep(0)  # the sealing that the batch's first event scheduled comes before this continues
            if batch is self._batch:
                self.flush()

    async def acknowledged(self, wait: AckLevel, last: int, in_vain: Callable[[], bool]) -> None:
        """Wait until all blocks before a number are acknowledged, or until that is impossible (`in_vain`).

        Raises the error that made the topic fail.
        """
        while self._mark(wait) < last and not (wait == "stable" and in_vain()):
            if self.failure is not None:
                raise self.failure
            waiting, place = self._waiting[wait], (last, next(self._tickets), self.pump.loop.create_future())
            heappush(waiting, place)
            try:
                await place[2]
            except asyncio.CancelledError:
                if place in waiting:
                    waiting.remove(place)
                    heapify(waiting)
                raise

    def _mark(self, wait: AckLevel) -> int:
        return self.inner.admitted if wait == "root" else self.inner.stable

    def _tell(self) -> None:
        """Wake the calls in the queue, in order: there is room, or the topic failed."""
        for place in self._queue:
            place.set()

    def _tell_reached(self) -> None:
        """Wake the calls whose acknowledgement has arrived or can no longer arrive."""
        for wait, waiting in self._waiting.items():
            while waiting and (waiting[0][0] <= self._mark(wait) or self.failure is not None):
                heard = heappop(waiting)[2]
                if not heard.done():
                    heard.set_result(None)

    def _tell_in_vain(self) -> None:
        """Wake the calls that wait for stable events: each checks whether its own can still become stable."""
        waiting = self._waiting["stable"]
        for _, _, heard in waiting:
            if not heard.done():
                heard.set_result(None)
        waiting.clear()

    # --- the peer's side (`protocol.topics.publishing.publisher.PublisherListener`)

    def dropped(self, block: Block) -> None:
        writers = {writer.id: writer for writer in self._writers}
        for publisher, first, count_ in block.runs():
            if publisher in writers:
                writers[publisher].discarded(first, first + count_)
        self._tell_in_vain()

    def stops_keeping(self) -> None:
        for writer in self._writers:
            writer.unkept = writer.next
        self._tell_in_vain()

    def was_best_effort(self, first: int, last: int) -> None:
        kept: dict[bytes, int] = {}
        for block in self.inner.retained if self._writers else ():
            for publisher, start, _ in block.runs() if block.first >= last else ():
                kept.setdefault(publisher, start)
        for writer in self._writers:
            writer.discarded(writer.unkept, kept.get(writer.id, writer.next))
        self._tell_in_vain()

    def progressed(self) -> None:
        if not self._opened:
            return
        inner = self.inner
        known = inner.root is not None or self.limit > 0
        self.limit = inner.descriptor.settings.event_bytes_max if known else 0
        full = self._is_full()
        self.stopped = full or bool(self._queue)
        if full and self._batch is not None:
            self._left(self._batch)
        elif self._queue and not full:
            self._tell()
        if any(self._waiting.values()):
            self._tell_reached()

    def close_for(self, error: QuillcastError) -> None:
        """Reject new events of its publishers, for this reason; published events are still acknowledged."""
        for writer in list(self._writers):
            writer.failed(error)

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
        "or give the topic a larger event_bytes_max (quillcast topic set, Node.change)"
    )
