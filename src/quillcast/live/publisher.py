"""The publisher's edge: events gather in a batch while the event loop is busy, and leave as one block.

A lone event leaves in the same turn of the event loop. While a task publishes without a pause the batch grows to
`publish_bytes`; then it is sealed and the task lets the event loop run, so that links are written, receipts are read
and heartbeats are answered.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from quillcast.core.errors import EventTooLarge, LocalError, NotJoined, NotStable, QuillcastError
from quillcast.core.ids import short
from quillcast.live.config import LiveConfig
from quillcast.live.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.messages import Branch
from quillcast.protocol.topics.publisher import Publisher as PeerPublisher

EXTRAS_BYTES_MAX = 64 << 10  # of an event's key and attributes together; a guess: they describe, payloads carry
EVENT_BYTES = 32  # what an event costs in a batch beside its payload, which bounds the events of a batch
TIMEOUT_S = 30.0
_WALK_S = 1.0  # how long peers have to name who is not stable; a guess: a few round trips per level of the tree

Wait = Literal["root", "stable"]


class Publisher:
    """Publishes to one topic; made by `Node.publisher`. Its events have one line of sequence numbers, from 0.

    It keeps what it published until every subscriber with a live lease has it.
    """

    def __init__(
        self, topic: str, pump: Pump, config: LiveConfig, running: dict["Publisher", None], *, timed: bool = False
    ) -> None:
        self.topic, self._timed = topic, timed
        self._pump, self._running = pump, running
        self._bytes_max = config.publish_bytes
        self._payloads: list[bytes] = []
        self._left = 0  # bytes that the open batch still takes
        self._room = 0  # ... without a look at anything else
        self._keys: list[bytes] | None = None
        self._attributes: list[bytes] | None = None
        self._times: list[int] = []
        self._extras = timed  # the batch has keys, attributes or times
        self._limit = 0  # bytes that one event may have; 0 while the topic is not known
        self._stopped = True  # publish has to look: not open yet, no room, or failed
        self.failure: QuillcastError | None = None
        """Why the topic takes no more events of this publisher."""
        self._closed = False
        self._changed: asyncio.Future[None] | None = None
        self._peer: Peer
        self._inner: PeerPublisher | None = None

    async def publish(
        self,
        payload: bytes,
        key: bytes | None = None,  # by position too: keywords alone would cost each call another tenth
        attributes: Mapping[str, Any] | None = None,
        wait: Wait | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Publish an event.

        Returns when the event is on its way, which takes no pause while there is room; back-pressure is felt as
        waiting.

        Args:
            payload: what to publish.
            key: what the event is about, for those who keep the latest of each; with attributes at most 64 KiB.
            attributes: more about the event; values are what MessagePack knows.
            wait: "root" waits until the topic's root admitted the event, "stable" until every subscriber with a live
                lease holds it.
            timeout_s: seconds that the first event waits for the topic's root, and `wait` for its acknowledgement.

        Raises:
            EventTooLarge: the payload is over the topic's limit.
            UnknownTopic: the topic does not exist, and the network creates none on first use.
            AccessDenied: the topic's access list does not let these credentials publish; the text has the rule.
            NotJoined: no root was found within `timeout_s`; or, with `wait`, none acknowledged.
            NotStable: with "stable", some subscribers did not hold the event in time; they are named.
        """
        if type(payload) is bytes and key is None and attributes is None and wait is None:
            room = self._room - len(payload) - EVENT_BYTES
            if room > 0:
                self._room = room
                self._payloads.append(payload)
                return
        await self._publish(payload, key, attributes, wait, timeout_s)

    async def _publish(
        self,
        payload: bytes,
        key: bytes | None,
        attributes: Mapping[str, Any] | None,
        wait: Wait | None,
        timeout_s: float,
    ) -> None:
        """Publish an event that opens or fills a batch, or has more to it than a payload."""
        if self._stopped:
            await self._until_open(timeout_s)
        if wait is not None:
            self._check_wait(wait)
        payload = _as_bytes(payload)
        if len(payload) > self._limit:
            raise self._too_large(len(payload))
        self._add(payload, key, attributes)
        if self._left <= 0:
            self._flush()
            await asyncio.sleep(0)
        if wait is not None:
            await self.acknowledged(wait, timeout_s)

    def _add(self, payload: bytes, key: bytes | None, attributes: Mapping[str, Any] | None) -> None:
        """Add an event to the batch, and see whether the next ones may follow without a look at anything else."""
        if not self._payloads:
            self._pump.soon(self._flush)
            self._left = self._bytes_max
        elif self._room:
            self._left = self._room
        if key is not None or attributes is not None or self._extras:
            self._left -= self._add_extras(key, attributes)
        self._payloads.append(payload)
        self._left -= len(payload) + EVENT_BYTES
        self._room = 0 if self._extras or self._limit < self._bytes_max else max(0, self._left)

    async def acknowledged(self, wait: Wait, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all that was published so far is acknowledged; arguments and errors are those of `publish`."""
        inner = self._inner
        assert inner is not None
        self._check_wait(wait)
        self._flush()
        last = inner.next
        try:
            async with asyncio.timeout(timeout_s):
                while (inner.admitted if wait == "root" else inner.stable) < last:
                    if self.failure is not None:
                        raise self.failure
                    await self._change()
        except TimeoutError as problem:
            raise await self._unacknowledged(last, timeout_s) from problem

    @property
    def sequence(self) -> int:
        """The sequence that the next event will get."""
        return (self._inner.next if self._inner is not None else 0) + len(self._payloads)

    @property
    def reliable(self) -> bool:
        """Does the topic acknowledge events? A topic that is not known yet counts as reliable."""
        return self._inner is None or self._inner.reliable

    @property
    def admitted(self) -> int:
        """Events that the root admitted."""
        return self._inner.admitted if self._inner is not None else 0

    @property
    def stable(self) -> int:
        """Events that every subscriber with a live lease holds."""
        return self._inner.stable if self._inner is not None else 0

    def close(self) -> None:
        """Send what waits, and publish no more. The peer keeps what is not stable until it is."""
        if not self._closed and self._inner is not None:
            self._flush()
            self._pump.call(self._peer.close_publisher, self._inner)
        self._closed = self._stopped = True
        self._room = 0
        self._running.pop(self, None)
        self._tell()

    # --- the peer's side (`protocol.topics.publisher.PublisherListener`)

    def open(self, peer: Peer, warrant: Warrant | None = None) -> None:
        """Make the peer's publisher. Raises `LocalError` for a name that is no topic's."""
        self._peer = peer
        self._inner = self._pump.call(peer.publisher, self.topic, self, warrant)
        self._running[self] = None
        self.progressed()

    def progressed(self) -> None:
        inner = self._inner
        if inner is not None and self.failure is None and not self._closed:
            known = inner.root is not None or self._limit > 0
            self._limit = inner.descriptor.settings.event_bytes_max if known else 0
            self._stopped = not known or inner.room() <= 0
            self._room = 0 if self._stopped else self._room
        self._tell()

    def failed(self, error: QuillcastError) -> None:
        self.failure, self._stopped, self._room = error, True, 0
        self._tell()

    # --- within

    def _flush(self) -> None:
        """Seal the batch."""
        payloads, keys, attributes, times = self._payloads, self._keys, self._attributes, self._times or None
        if not payloads or self._inner is None:
            return
        self._payloads, self._keys, self._attributes, self._times = [], None, None, []
        self._room, self._extras = 0, self._timed
        try:
            self._pump.call(self._inner.offer, payloads, times=times, keys=keys, attributes=attributes)
        except EventTooLarge as problem:  # the topic's limit was lowered meanwhile
            self.failed(problem)
        self.progressed()

    async def _until_open(self, timeout_s: float) -> None:
        """Wait for the topic's root at first, and later for room."""
        try:
            async with asyncio.timeout(timeout_s) as patience:
                while self._stopped:
                    if self.failure is not None:
                        raise self.failure
                    if self._closed:
                        raise LocalError(f"the publisher of {self.topic!r} is closed; open another")
                    if self._limit > 0:
                        patience.reschedule(None)  # the topic stands; back-pressure is waited for
                    await self._change()
        except TimeoutError as problem:
            raise NotJoined(
                f"no root of {self.topic!r} answered within {timeout_s:g} s; nothing was published"
            ) from problem

    def _check_wait(self, wait: str) -> None:
        if wait not in ("root", "stable"):
            raise LocalError(
                f"wait = {wait!r} is not a choice; use 'root' or 'stable' ('stored' comes with durable topics)"
            )
        if not self.reliable:
            raise LocalError(f"topic {self.topic!r} is best_effort and acknowledges nothing; publish without wait")

    async def _unacknowledged(self, last: int, timeout_s: float) -> QuillcastError:
        inner = self._inner
        assert inner is not None
        if inner.admitted < last:
            return NotJoined(f"no root of {self.topic!r} admitted the event within {timeout_s:g} s; it is still tried")
        laggards = await self._laggards()
        named = ", ".join(short(node) for node in laggards) or "nobody answered for them"
        return NotStable(
            f"the event in {self.topic!r} is admitted, but not every subscriber held it within {timeout_s:g} s: {named}"
        )

    async def _laggards(self) -> list[bytes]:
        """Who does not cover what the root has admitted by now, by walking down the tree, and who does not answer."""
        inspection, topic = self._peer.scribe.inspection, self._inner.topic if self._inner else b""
        branches = await self._survey()
        roots = [(branch.term, branch.frontier) for branch in branches.values() if not branch.parent]
        if not roots:
            return []
        self._pump.call(inspection.who_lags, self.topic, *max(roots))
        await asyncio.sleep(_WALK_S)
        return sorted({**inspection.lagging.get(topic, {}), **dict.fromkeys(silent(branches))})

    async def _survey(self) -> dict[bytes, Branch]:
        """The places of those peers of the topic's tree that answer in time."""
        inspection = self._peer.scribe.inspection
        number = self._pump.call(inspection.survey, self.topic)
        branches = inspection.surveys[number]
        try:
            async with asyncio.timeout(_WALK_S):
                await self._pump.until(lambda: bool(branches) and not silent(branches))
        except TimeoutError:
            pass  # whoever has not answered is named
        finally:
            del inspection.surveys[number]
        return branches

    def _add_extras(self, key: bytes | None, attributes: Mapping[str, Any] | None) -> int:
        """Columns begin with the first event that uses them; the events before it have none. Times have all or none.

        Returns how many bytes were added.
        """
        packed = b"" if attributes is None else msgspec.msgpack.encode(attributes)
        size = len(key or b"") + len(packed)
        if size > EXTRAS_BYTES_MAX:
            raise EventTooLarge(
                f"key and attributes of {size} bytes are over {EXTRAS_BYTES_MAX}; put them in the payload"
            )
        self._extras = True
        count = len(self._payloads)
        if self._keys is None and key is not None:
            self._keys = [b""] * count
        if self._attributes is None and attributes is not None:
            self._attributes = [b""] * count
        if self._keys is not None:
            self._keys.append(key or b"")
        if self._attributes is not None:
            self._attributes.append(packed)
        if self._timed:
            self._times.append(time.time_ns())
        return size

    def _too_large(self, size: int) -> EventTooLarge:
        return EventTooLarge(
            f"an event of {size} bytes is over the limit of {self._limit} of topic {self.topic!r}; split it, "
            "or create the topic with a larger event_bytes_max"
        )

    async def _change(self) -> None:
        """Wait for word from the peer."""
        if self._changed is None or self._changed.done():
            self._changed = self._pump.loop.create_future()
        await asyncio.shield(self._changed)

    def _tell(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def silent(branches: Mapping[bytes, Branch]) -> list[bytes]:
    """Peers of a tree that others name as their parent or child, and that did not answer themselves."""
    named = {child.node_id: None for branch in branches.values() for child in branch.children}
    named.update(dict.fromkeys(branch.parent for branch in branches.values() if branch.parent))
    return sorted(named.keys() - branches.keys())


def _as_bytes(payload: Any) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise LocalError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
