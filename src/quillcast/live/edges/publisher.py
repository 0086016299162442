"""The publisher's edge: events collect in a batch while the event loop is busy, and leave as one block.

A lone event leaves in the same turn of the event loop. While tasks publish without a pause, the batch grows to
`publish_bytes`. Then it is sealed, and the task that filled it lets the event loop run, so that links are written,
receipts are read and heartbeats are answered. All publishers of a node to a topic share the batch
(`live.edges.batcher`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quillcast.core.bundle import Block
from quillcast.core.errors import LocalError, NotAdmitted, NotJoined, NotStable, QuillcastError
from quillcast.core.ranges import Range, RangeSet
from quillcast.live import arguments
from quillcast.live.edges.batcher import EVENT_BYTES, NO_PAYLOADS, AckLevel, Batcher, too_large
from quillcast.live.edges.peer import Causes, node_ids, silent
from quillcast.protocol.topics.publishing.publisher import DROPPED_RANGES_MAX

TIMEOUT_S = 45.0  # longer than a lease: a dead subscriber delays nobody for longer
_WALK_S = 0.5  # of the end of a wait, to ask peers who holds it up; a guess: a few round trips per level of the tree


class Publisher:
    """Publishes to one topic; created by `Node.publisher`. Its events have sequence numbers from 0.

    It keeps events until every subscriber with a live lease has them.
    """

    def __init__(self, batcher: Batcher, running: dict["Publisher", None], *, timed: bool = False) -> None:
        self.topic, self.timed = batcher.topic, timed
        self._batcher, self._running = batcher, running
        self.plain, self.room = not timed, 0
        self.payloads = NO_PAYLOADS
        self.next = self.last = self.unkept = 0
        self.dropped = 0
        """Events that never count as stable.

        They were discarded at `retain_bytes` or `retain_s`, or were not yet stable when a best-effort session began, or
        were published in one that has ended.
        """
        self._dropped = RangeSet()
        self._dropped_before = 0  # how many of those it published before it moved to another batcher
        self._before: tuple[Batcher, int] | None = None  # where and how far it published before, until that is safe
        self.failure: QuillcastError | None = None
        """Why the topic accepts no more events of this publisher."""
        self._closed = False
        self.id = batcher.enter(self)
        """Its PublisherId, which its events carry."""
        running[self] = None
        if batcher.failure is not None:
            self.failed(batcher.failure)

    async def publish(
        self,
        payload: bytes,
        key: bytes | None = None,  # by position too: as a keyword only, it would cost each call another tenth
        attributes: Mapping[str, Any] | None = None,
        wait: AckLevel | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Publish an event.

        Returns when the event has been accepted. It waits only if there is no room (back-pressure). Concurrent calls
        are served in order.

        Args:
            payload: what to publish.
            key: what the event is about; with attributes at most 64 KiB.
            attributes: further data about the event; values that MessagePack supports.
            wait: "root" waits until the topic's root has admitted the event, "stable" until every subscriber with a
                live lease has it.
            timeout_s: seconds that the first event waits for the topic's root, and with `wait` the whole call; at least
                half a second, to find out which peers hold it up.

        Raises:
            EventTooLarge: the payload is over the topic's limit.
            UnknownTopic: the topic does not exist, and the network creates none on first use.
            AccessDenied: the topic's access list does not let these credentials publish; the text names the rule.
            NotJoined: no root was found within `timeout_s`.
            NotAdmitted: with `wait`, the root did not admit the event in time; the text says what holds it up.
            NotStable: with "stable", some subscribers did not have the event in time; the text names them. Or this
                publisher had to discard it (`reason`).
        """
        if type(payload) is bytes and key is None and attributes is None and wait is None:
            if timeout_s is not TIMEOUT_S:
                arguments.seconds("timeout_s", timeout_s)
            room = self.room - len(payload) - EVENT_BYTES
            if room > 0:
                self.room = room
                self.payloads.append(payload)
                return
            if self._batcher.add(self, payload):
                return
        await self._publish(payload, key, attributes, wait, timeout_s)

    def publish_nowait(self, payload: bytes) -> bool:
        """Publish an event if that needs no pause. If this returns False, call `await publish(payload)` instead.

        It returns False while there is no room, before the topic's root is known, and once per
        `LiveConfig.publish_bytes`, so that the event loop runs. It also returns False for invalid events, for which
        `publish` raises the error. It costs half of `publish`.
        """
        if type(payload) is not bytes:
            return False
        room = self.room - len(payload) - EVENT_BYTES
        if room > 0:
            self.room = room
            self.payloads.append(payload)
            return True
        return self._batcher.add(self, payload)

    async def _publish(
        self,
        payload: bytes,
        key: bytes | None,
        attributes: Mapping[str, Any] | None,
        wait: AckLevel | None,
        timeout_s: float,
    ) -> None:
        """Publish an event that opens or fills a batch, or that has more than a payload."""
        if timeout_s is not TIMEOUT_S:
            timeout_s = arguments.seconds("timeout_s", timeout_s)
        deadline, place = self._batcher.pump.monotonic() + timeout_s, None
        if self._batcher.stopped or self._closed or self.failure is not None:
            place = await self._until_open(timeout_s, wait)
        try:
            if wait is not None:
                self._check_wait(wait)
            sequence, dropped = 0 if wait is None else self.sequence, self._dropped
            is_full = self._append(payload, key, attributes)
        finally:
            if place is not None:
                self._batcher.leave_queue(place)
        if is_full:
            await asyncio.sleep(0)
        if wait is not None:
            left_s = deadline - self._batcher.pump.monotonic()
            await self._wait_for(wait, left_s, timeout_s, lambda: sequence in dropped)

    def _append(self, payload: bytes, key: bytes | None, attributes: Mapping[str, Any] | None) -> bool:
        """Check an event and add it to the batch; True if that filled the batch, which was then sealed."""
        batcher = self._batcher
        payload = _as_bytes("payload", payload)
        if key is not None and not (key := _as_bytes("key", key)):
            raise LocalError("the key is empty; leave it out for an event without one")
        if len(payload) > batcher.limit:
            raise too_large(len(payload), batcher.limit, self.topic)
        is_full = batcher.append(self, payload, key, attributes)
        if is_full:
            batcher.flush()
        return is_full

    async def opened(self, wait: AckLevel | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the topic's root is known. The first `publish` does this too.

        With `wait`, it raises `LocalError` if the topic does not acknowledge events that way. Use it before publishing
        without `wait` and calling `acknowledged` at the end.
        """
        timeout_s = arguments.seconds("timeout_s", timeout_s)
        self._check_open()
        if self._batcher.limit <= 0:
            self._batcher.leave_queue(await self._until_open(timeout_s, wait))
        if wait is not None:
            self._check_wait(wait)

    async def acknowledged(self, wait: AckLevel, timeout_s: float = TIMEOUT_S, *, waited_s: float = 0.0) -> None:
        """Wait until everything published so far is acknowledged; arguments and errors as for `publish`.

        With "stable", this fails if any event was discarded, or published in a best-effort session. `waited_s` is the
        part of `timeout_s` that has already passed, for example to join the network.
        """
        self._check_wait(wait)
        timeout_s, waited_s = arguments.seconds("timeout_s", timeout_s), arguments.seconds("waited_s", waited_s)
        await self._wait_for(wait, timeout_s - waited_s, timeout_s, lambda: self.dropped > 0)

    async def _wait_for(self, wait: AckLevel, left_s: float, timeout_s: float, in_vain: Callable[[], bool]) -> None:
        """Wait for the acknowledgement of the events published so far; `left_s` remains of the allowed `timeout_s`.

        During the last part of that time, other peers are asked which peers hold it up.
        """
        await self._batcher.sealed()
        batcher = self._batcher
        if self.failure is not None and self.failure is not batcher.failure:
            raise self.failure  # some events were never sealed
        last, inner = self.last, batcher.inner

        def is_never() -> bool:
            return in_vain() or (inner.stable < last and not inner.reliable)

        try:
            async with asyncio.timeout(left_s - _WALK_S):
                await self._reached(batcher, wait, last, is_never)
        except TimeoutError:
            with batcher.find_causes(inner, last) as causes:
                try:
                    async with asyncio.timeout(_WALK_S):
                        await self._reached(batcher, wait, last, is_never)
                except TimeoutError as problem:
                    raise self._unacknowledged(batcher, last, timeout_s, causes) from problem
        if wait == "stable" and is_never():
            raise self._never_stable()

    async def _reached(self, batcher: Batcher, wait: AckLevel, last: int, in_vain: Callable[[], bool]) -> None:
        """Wait for the acknowledgement of a batcher, and of the batcher before it."""
        if self._before is not None:
            await self._before[0].acknowledged(wait, self._before[1], in_vain)
        await batcher.acknowledged(wait, last, in_vain)

    @property
    def sequence(self) -> int:
        """The sequence that the next event will get."""
        return self.next + self._batcher.waiting(self)

    @property
    def reliable(self) -> bool:
        """Whether the topic acknowledges events. A topic that is not known yet counts as reliable."""
        return self._batcher.inner.reliable

    @property
    def admitted(self) -> int:
        """How many events the root admitted."""
        inner = self._batcher.inner
        return self._events_before(inner.admitted, inner.waiting)

    @property
    def stable(self) -> int:
        """How many events every subscriber with a live lease has, according to the root."""
        inner = self._batcher.inner
        if not inner.reliable:
            return 0
        kept = inner.retained
        settled = kept[0].first if kept else inner.next  # all events before that are stable or were dropped
        last = self._events_before(max(settled, inner.stable), kept)
        return last - (self.dropped - self._dropped_before - _count(self._dropped.within(last, self.next)))

    @property
    def partitioned(self) -> bool:
        """Whether the last acknowledgement came from a root that cannot reach most of its replicas.

        It is then valid on the root's side of the partition only.
        """
        return self._batcher.inner.partitioned

    def _events_before(self, mark: int, blocks: Iterable[Block]) -> int:
        """This publisher's events before a mark, given the batcher's blocks beyond it."""
        if mark < self.last:
            for block in blocks:
                for publisher, first, _ in block.runs() if block.last > mark else ():
                    if publisher == self.id:
                        return first
        return self.next

    def close(self) -> None:
        """Send waiting events, and stop publishing. The peer keeps events until they are stable."""
        if not self._closed:
            self._closed, self.plain = True, False
            self._batcher.leave(self)
        self._running.pop(self, None)

    # --- the batcher's side (`live.edges.batcher.TopicWriter`)

    def failed(self, error: QuillcastError) -> None:
        self.failure, self.plain, self.room = error, False, 0

    def discarded(self, first: int, last: int) -> None:
        self.dropped += _count(self._dropped.missing(first, last))
        self._dropped.add(first, last)
        if len(self._dropped) > DROPPED_RANGES_MAX:
            self._dropped.join_closest()

    def move(self, batcher: Batcher) -> None:
        if not self._batcher.safe:
            self._before = self._batcher, self.last
        self._batcher = batcher
        self.payloads, self.room = NO_PAYLOADS, 0
        self.next = self.last = self.unkept = 0
        self._dropped, self._dropped_before = RangeSet(), self.dropped
        self.id = batcher.enter(self)
        if batcher.failure is not None:
            self.failed(batcher.failure)

    # --- within

    async def _until_open(self, timeout_s: float, wait: AckLevel | None) -> asyncio.Event:
        """Wait for the topic's root at first, and later for room: without limit, or with `wait` until its time-out.

        Returns the place in the batcher's queue whose turn it is; the caller must leave it.
        """
        self._check_open()
        place = self._batcher.queue_up()
        try:
            await self._until_turn(place, timeout_s, wait)
        except BaseException as problem:
            self._batcher.leave_queue(place)
            if not isinstance(problem, TimeoutError):
                raise
            if self._batcher.limit > 0:
                raise await self._no_room(timeout_s) from problem
            if bound := self._batcher.bound:
                raise NotAdmitted(f"nothing was published within {timeout_s:g} s: {bound}") from problem
            awaited = self._batcher.peer.awaited(self.topic)
            raise NotJoined(
                f"no root of {self.topic!r} answered within {timeout_s:g} s: {silent(awaited)}; nothing was published",
                node_ids(awaited),
            ) from problem
        return place

    async def _until_turn(self, place: asyncio.Event, timeout_s: float, wait: AckLevel | None) -> None:
        async with asyncio.timeout(timeout_s) as patience:
            while not self._batcher.is_turn_of(place):
                if self._batcher.limit > 0 and wait is None:
                    patience.reschedule(None)  # the topic exists; wait for room without limit
                place.clear()
                await place.wait()
                self._check_open()

    def _check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._closed:
            raise LocalError(f"the publisher of {self.topic!r} is closed; open another")

    async def _no_room(self, timeout_s: float) -> QuillcastError:
        inner = self._batcher.inner
        with self._batcher.find_causes(inner, max(inner.stable, inner.admitted) + 1) as causes:
            await asyncio.sleep(_WALK_S)
            return NotAdmitted(
                f"the publisher of {self.topic!r} had no room for the event within {timeout_s:g} s, and did not "
                f"publish it: {causes.held_back()}", causes.peers
            )  # fmt: skip

    def _check_wait(self, wait: str) -> None:
        if wait not in ("root", "stable"):
            raise LocalError(
                f"wait = {wait!r} is not valid; use 'root' or 'stable' ('stored' comes with durable topics)"
            )
        if not self.reliable:
            raise LocalError(f"topic {self.topic!r} is best_effort and acknowledges nothing; publish without wait")

    def _unacknowledged(self, batcher: Batcher, last: int, timeout_s: float, causes: Causes) -> QuillcastError:
        inner = batcher.inner
        waiting, unheld = self.next - self.admitted, self.admitted - self.stable - self.dropped
        if inner.admitted < last and (bound := batcher.bound):
            return NotAdmitted(f"no peer took {_events(waiting)} within {timeout_s:g} s: {bound}")
        if inner.admitted < last and inner.root is None:
            return NotJoined(f"no root of {self.topic!r} was found within {timeout_s:g} s to admit {_events(waiting)}: "
                             f"{causes.held_back()}; it is still being tried", causes.peers)  # fmt: skip
        if inner.admitted < last:
            failed = f"the root of {self.topic!r} did not admit {_events(waiting)}"
            if inner.descriptor.settings.by_source:
                failed = f"{_events(waiting)} in {self.topic!r} {'was' if waiting < 2 else 'were'} not admitted"
            return NotAdmitted(
                f"{failed} within {timeout_s:g} s: {causes.held_back()}; it is still being tried", causes.peers
            )
        return NotStable(
            f"{_events(unheld)} in {self.topic!r} {'is' if unheld < 2 else 'are'} admitted, but not known to be held "
            f"by every subscriber within {timeout_s:g} s: {causes.lagging()}", peers=causes.peers
        )  # fmt: skip

    def _never_stable(self) -> NotStable:
        if not self.reliable:
            return NotStable(
                f"topic {self.topic!r} is best_effort now: what was not stable before never counts as stable", "dropped"
            )
        config = self._batcher.inner.config
        return NotStable(
            f"{self.dropped} of the events published to {self.topic!r} never count as stable: they were discarded "
            f"before every subscriber held them, or published while the topic was best_effort. The publisher keeps at "
            f"most {config.retain_bytes} bytes (retain_bytes), for {config.retain_s:g} s (retain_s). Publish again "
            "what matters, raise these bounds, or have publishers wait for slow subscribers: quillcast topic set "
            f"{self.topic} --slow wait", "dropped"
        )  # fmt: skip


def _count(ranges: Iterable[Range]) -> int:
    return sum(last - first for first, last in ranges)


def _events(count: int) -> str:
    return "the event" if count < 2 else f"{count} events"


def _as_bytes(what: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise LocalError(f"a {what} is bytes, not {type(value).__name__}; encode it first")
