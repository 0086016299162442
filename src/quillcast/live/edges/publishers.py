"""The publishers of a node, and the batchers that they share: one for each topic and principal."""

import asyncio
import contextlib
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from quillcast.core.bundle import Join
from quillcast.core.errors import QuillcastError
from quillcast.live.admission.credentials import Credentials
from quillcast.live.edges import choices
from quillcast.live.edges.batcher import Batcher
from quillcast.live.edges.peer import Causes, PublishingPeer
from quillcast.live.edges.publisher import Publisher
from quillcast.live.runtime.pump import Pump
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.publishing.publisher import Publisher as PeerPublisher


class Backend(Protocol):
    """A peer to publish through, and what belongs to it."""

    @property
    def pump(self) -> Pump:
        """Passes calls to the peer."""
        ...

    @property
    def peer(self) -> PublishingPeer:
        """The peer itself."""
        ...

    @property
    def join(self) -> Join:
        """Joins the pieces of a block, in shared memory if that is used."""
        ...

    def warrant(self, topic: str, credentials: Credentials | None) -> Warrant | None:
        """Make the warrant for the principal for whom the peer acts. Raises `LocalError` for a bad name."""
        ...

    def find_causes(self, publisher: PeerPublisher, last: int, /) -> AbstractContextManager[Causes]:
        """Find out which peers hold up a publisher's events before `last`."""
        ...


class Publishers:
    """Makes publishers. When the node changes to another network, moves them there."""

    def __init__(self, current: Callable[[], Backend], publish_bytes: int) -> None:
        """`current` returns the current peer."""
        self._current, self._publish_bytes = current, publish_bytes
        self.batchers: dict[str, Batcher] = {}
        self._credentials: dict[str, Credentials | None] = {}  # of the principals that the batchers belong to
        self._running: dict[Publisher, None] = {}
        self._moved: list[Batcher] = []  # batchers of the former peer
        self._held = False

    def make(self, topic: str, credentials: Credentials | None, *, timed: bool = False) -> Publisher:
        """A new publisher for a topic."""
        who = choices.publisher_key(credentials, topic)
        batcher = self.batchers.get(who)
        if batcher is None or batcher.failure is not None:
            warrant = self._current().warrant(topic, credentials)
            batcher = self._make_batcher(who, topic, warrant)
            self.batchers[who], self._credentials[who] = batcher, credentials
        return Publisher(batcher, self._running, timed=timed)

    def close(self) -> None:
        """Close all publishers."""
        for publisher in list(self._running):
            publisher.close()

    def close_for(self, error: QuillcastError, of: Container[PeerPublisher]) -> None:
        """Reject new events of the publishers on these, for this reason; published events are still acknowledged."""
        for batcher in self.batchers.values():
            if batcher.inner in of:
                batcher.close_for(error)

    def failed(self, error: QuillcastError) -> None:
        """Fail all publishers."""
        for batcher in list(self.batchers.values()):
            batcher.failed(error)

    def hold(self) -> None:
        """Make publishers that are created from now on wait until `move`."""
        self._held = True

    async def move(self, former: Backend, timeout_s: float) -> None:
        """Wait until everything published through the former peer is safe, then publish through the current one."""
        batchers = {who: batcher for who, batcher in self.batchers.items() if batcher.peer is former.peer}
        for batcher in batchers.values():
            batcher.pause()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await former.pump.until(lambda: all(batcher.safe for batcher in batchers.values()))
        self._held = False
        current = self._current()
        for who, batcher in batchers.items():
            if self.batchers.get(who) is batcher and batcher.failure is None:
                warrant = current.warrant(batcher.topic, self._credentials[who])
                self.batchers[who] = successor = self._make_batcher(who, batcher.topic, warrant)
                batcher.move_to(successor)
                self._moved.append(batcher)
        for batcher in self.batchers.values():
            batcher.go_on()

    async def moved_are_safe(self, former: Backend, timeout_s: float) -> None:
        """Wait until everything published through the former peer is safe, for at most this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await former.pump.until(lambda: all(batcher.safe for batcher in self._moved))

    def end_moved(self) -> None:
        """The node left the former network: stop waiting for acknowledgements from there."""
        for batcher in self._moved:
            if not batcher.safe:
                batcher.end()
        self._moved.clear()

    def _make_batcher(self, who: str, topic: str, warrant: Warrant | None) -> Batcher:
        backend = self._current()
        batcher = Batcher(
            topic, backend.pump, backend.peer, self._publish_bytes, backend.join, warrant, backend.find_causes,
            partial(self._ended, who),
        )  # fmt: skip
        if self._held:
            batcher.pause()
        return batcher

    def _ended(self, who: str, batcher: Batcher) -> None:
        """The last publisher of a batcher closed. After a failure, another batcher may have replaced it."""
        if self.batchers.get(who) is batcher:
            del self.batchers[who], self._credentials[who]
