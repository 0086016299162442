"""The publisher's edge: events gather in a batch while the event loop is busy, and leave as one block.

A lone event leaves in the same turn of the event loop. While tasks publish without a pause the batch grows to
`publish_bytes`; then it is sealed and the task that filled it lets the event loop run, so that links are written,
receipts are read and heartbeats are answered. All publishers of a node to a topic share the batch (`live.outlet`).
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from quillcast.core.bundle import Block
from quillcast.core.errors import LocalError, NotJoined, NotStable, QuillcastError
from quillcast.core.ids import short
from quillcast.live.outlet import EVENT_BYTES, NO_PAYLOADS, Outlet, Wait, too_large
from quillcast.live.pump import Pump
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.messages import Branch

TIMEOUT_S = 45.0  # longer than a lease: a subscriber that died holds nobody up beyond it
_WALK_S = 1.0  # how long peers have to name who is not stable; a guess: a few round trips per level of the tree


class Publisher:
    """Publishes to one topic; made by `Node.publisher`. Its events have one line of sequence numbers, from 0.

    It keeps what it published until every subscriber with a live lease has it.
    """

    def __init__(
        self, outlet: Outlet, pump: Pump, peer: Peer, running: dict["Publisher", None], *, timed: bool = False
    ) -> None:
        self.topic, self.timed = outlet.topic, timed
        self._outlet, self._pump, self._peer, self._running = outlet, pump, peer, running
        self.plain, self.room = not timed, 0
        self.payloads = NO_PAYLOADS
        self.next = self.last = 0
        self._stable = 0
        self._before: tuple[Outlet, int] | None = None  # where it published before, and how far, if that is not safe
        self.failure: QuillcastError | None = None
        """Why the topic takes no more events of this publisher."""
        self._closed = False
        self.id = outlet.enter(self)
        """Its PublisherId: that of its events."""
        running[self] = None
        if outlet.failure is not None:
            self.failed(outlet.failure)

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
            room = self.room - len(payload) - EVENT_BYTES
            if room > 0:
                self.room = room
                self.payloads.append(payload)
                return
            if self._outlet.add(self, payload):
                return
        await self._publish(payload, key, attributes, wait, timeout_s)

    def publish_nowait(self, payload: bytes) -> bool:
        """Publish an event if that takes no pause; False if it was not taken, and `await publish(payload)` has to.

        That is so while there is no room, before the topic's root is known, and once in `LiveConfig.publish_bytes`, so
        that the event loop runs. What is wrong with an event, or with the publisher, is for `publish` to say: here it
        is just not taken. At half the price of `publish`, for those who publish hundreds of thousands a second.
        """
        if type(payload) is not bytes:
            return False
        room = self.room - len(payload) - EVENT_BYTES
        if room > 0:
            self.room = room
            self.payloads.append(payload)
            return True
        return self._outlet.add(self, payload)

    async def _publish(
        self,
        payload: bytes,
        key: bytes | None,
        attributes: Mapping[str, Any] | None,
        wait: Wait | None,
        timeout_s: float,
    ) -> None:
        """Publish an event that opens or fills a batch, or has more to it than a payload."""
        outlet = self._outlet
        if outlet.stopped or self._closed or self.failure is not None:
            await self._until_open(timeout_s)
            outlet = self._outlet
        if wait is not None:
            self._check_wait(wait)
        payload, key = _as_bytes("payload", payload), None if key is None else _as_bytes("key", key)
        if len(payload) > outlet.limit:
            raise too_large(len(payload), outlet.limit, self.topic)
        if outlet.append(self, payload, key, attributes):
            outlet.flush()
            await asyncio.sleep(0)
        if wait is not None:
            await self.acknowledged(wait, timeout_s)

    async def acknowledged(self, wait: Wait, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all that was published so far is acknowledged; arguments and errors are those of `publish`."""
        self._check_wait(wait)
        await self._outlet.sealed()
        if self.failure is not None and self.failure is not self._outlet.failure:
            raise self.failure  # some of it was never sealed
        last = self.last
        try:
            async with asyncio.timeout(timeout_s):
                if self._before is not None:
                    await self._before[0].acknowledged(wait, self._before[1])
                await self._outlet.acknowledged(wait, last)
        except TimeoutError as problem:
            raise await self._unacknowledged(last, timeout_s) from problem

    @property
    def sequence(self) -> int:
        """The sequence that the next event will get."""
        return self.next + self._outlet.waiting(self)

    @property
    def reliable(self) -> bool:
        """Does the topic acknowledge events? A topic that is not known yet counts as reliable."""
        return self._outlet.inner.reliable

    @property
    def admitted(self) -> int:
        """Events that the root admitted."""
        inner = self._outlet.inner
        return self._events_before(inner.admitted, inner.waiting)

    @property
    def stable(self) -> int:
        """Events that every subscriber with a live lease holds."""
        inner = self._outlet.inner
        kept = inner.retained
        if inner.stable >= self.last or (kept and kept[0].first <= inner.stable):
            self._stable = self._events_before(inner.stable, kept)
        return self._stable  # where blocks were let go before they were stable: what was known until then

    def _events_before(self, mark: int, blocks: Iterable[Block]) -> int:
        """Events of this publisher before a mark, where these are the outlet's blocks beyond it."""
        if mark < self.last:
            for block in blocks:
                for publisher, first, _ in block.runs() if block.last > mark else ():
                    if publisher == self.id:
                        return first
        return self.next

    def close(self) -> None:
        """Send what waits, and publish no more. The peer keeps what is not stable until it is."""
        if not self._closed:
            self._closed, self.plain = True, False
            self._outlet.leave(self)
        self._running.pop(self, None)

    # --- the outlet's side (`live.outlet.Sharer`)

    def failed(self, error: QuillcastError) -> None:
        self.failure, self.plain, self.room = error, False, 0

    def move(self, outlet: Outlet, pump: Pump, peer: Peer) -> None:
        if not self._outlet.safe:
            self._before = self._outlet, self.last
        self._outlet, self._pump, self._peer = outlet, pump, peer
        self.payloads, self.room = NO_PAYLOADS, 0
        self.next = self.last = self._stable = 0
        self.id = outlet.enter(self)

    # --- within

    async def _until_open(self, timeout_s: float) -> None:
        """Wait for the topic's root at first, and later for room."""
        try:
            async with asyncio.timeout(timeout_s) as patience:
                while True:
                    if self.failure is not None:
                        raise self.failure
                    if self._closed:
                        raise LocalError(f"the publisher of {self.topic!r} is closed; open another")
                    if not self._outlet.stopped:
                        return
                    if self._outlet.limit > 0:
                        patience.reschedule(None)  # the topic stands; back-pressure is waited for
                    await self._outlet.changed()
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
        if self._outlet.inner.admitted < last:
            return NotJoined(f"no root of {self.topic!r} admitted the event within {timeout_s:g} s; it is still tried")
        laggards = await self._laggards()
        named = ", ".join(short(node) for node in laggards) or "nobody answered for them"
        return NotStable(
            f"the event in {self.topic!r} is admitted, but not every subscriber held it within {timeout_s:g} s: {named}"
        )

    async def _laggards(self) -> list[bytes]:
        """Who does not cover what the root has admitted by now, by walking down the tree, and who does not answer."""
        inspection, topic = self._peer.scribe.inspection, self._outlet.inner.topic
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


def silent(branches: Mapping[bytes, Branch]) -> list[bytes]:
    """Peers of a tree that others name as their parent or child, and that did not answer themselves."""
    named = {child.node_id: None for branch in branches.values() for child in branch.children}
    named.update(dict.fromkeys(branch.parent for branch in branches.values() if branch.parent))
    return sorted(named.keys() - branches.keys())


def _as_bytes(what: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise LocalError(f"a {what} is bytes, not {type(value).__name__}; encode it first")
