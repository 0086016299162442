"""What waits at a peer for a subscription of a client: blocks that exceed its window, and losses to report.

A client delays nobody: its subscriptions always have room, so the peer counts events as delivered when they arrive
here. Unread events wait up to a bound that all subscriptions of the client share (`Bounded`). Beyond it the oldest
events of the longest queue are dropped, and reported as lost.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import DOWN, Envelope, Position
from quillcast.core.errors import Malformed, QuillcastError
from quillcast.core.loss import Loss
from quillcast.core.messages import Message
from quillcast.live.clients.messages import Delivery, Lost, Started, Subscribe
from quillcast.protocol.forwarding.subscriber import Unread

LOSSES_MAX = 10_000  # reports that wait for a client that does not read; a guess
_PLENTY = 1 << 30  # of room, whatever waits
_TOLD_MAX = 500  # losses in one message


class Waiting(NamedTuple):
    """Events of a block that wait to be sent."""

    block: Block
    skip: int
    stop: int
    position: Position
    recovered: bool


class Sent(NamedTuple):
    """A block that the application has not finished."""

    size_bytes: int
    events: int
    time_ns: int


class OutboxSession(Protocol):
    """What an outbox needs of the session that it belongs to."""

    def send(self, message: Message, /) -> None:
        """Send a message."""
        ...

    def grew(self, outbox: "Outbox", size_bytes: int, /) -> None:
        """This many more bytes wait, or there are losses to report."""
        ...

    def failed(self, outbox: "Outbox", error: QuillcastError, /) -> None:
        """The subscription has ended, or never began."""
        ...


class Outbox:
    """A subscription of a client (`protocol.forwarding.subscriber.Subscriber`)."""

    __slots__ = (
        "_cut", "_done_bytes", "_losses", "_sent", "_sent_bytes", "_session", "_taken_at", "_window_bytes",
        "handle", "name", "number", "queue", "queued_bytes", "wish",
    )  # fmt: skip

    def __init__(self, session: OutboxSession, wish: Subscribe) -> None:
        self._session, self.wish = session, wish
        self.number, self.name, self._window_bytes = wish.number, wish.name, wish.window_bytes
        self.handle: Any = None  # the peer's
        self.queue: deque[Waiting] = deque()
        self.queued_bytes = 0
        self._sent: deque[Sent] = deque()
        self._sent_bytes = 0
        self._done_bytes = 0  # of the oldest of them
        self._taken_at = time.monotonic()
        self._losses: list[Loss] = []
        self._cut: dict[bytes, Loss] = {}  # what was dropped here, by publisher: the latest range of each

    def begin(self, handle: Any) -> None:
        """The subscription has begun; the peer knows it by this."""
        self.handle = handle

    # --- the peer's side

    def started(self, position: Position) -> None:
        self._session.send(Started(self.number, position))

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        self.queue.append(Waiting(block, skip, stop, position, recovered))
        self.queued_bytes += block.size
        self._session.grew(self, block.size)

    def lost(self, loss: Loss) -> None:
        self._losses.append(loss)
        self._session.grew(self, 0)

    def failed(self, error: QuillcastError) -> None:
        self._session.failed(self, error)

    def room(self) -> int:
        return _PLENTY

    def unread(self) -> Unread:
        """What the application has not finished, and what it was not sent yet."""
        events = sum(sent.events for sent in self._sent) + sum(each.stop - each.skip for each in self.queue)
        oldest_ns = self._sent[0].time_ns if self._sent else None
        if oldest_ns is None and self.queue:
            oldest_ns = self.queue[0].block.time_ns
        idle_s = time.monotonic() - self._taken_at
        return Unread(events, self._sent_bytes + self.queued_bytes, oldest_ns, idle_s)

    # --- the client's side

    def next_bundle(self) -> Bundle | None:
        """The next block to send, if the application's window has room for it."""
        if not self.queue or self._sent_bytes >= self._window_bytes:
            return None
        if self._losses or self._cut:
            self.tell_losses()  # before the events that follow them
        block, skip, stop, (term, index), recovered = self.queue.popleft()
        self.queued_bytes -= block.size
        if not self._sent:
            self._taken_at = time.monotonic()
        self._sent.append(Sent(block.size, stop - skip, block.time_ns))
        self._sent_bytes += block.size
        place = Delivery(self.number, skip, stop, recovered).encode()
        return Bundle(Envelope(place, DOWN, term, index), (block,))

    def taken(self, size_bytes: int) -> None:
        """The application has finished this many more bytes. Raises `Malformed`."""
        if size_bytes > self._sent_bytes:
            raise Malformed(f"{size_bytes} bytes were finished of a subscription that was sent {self._sent_bytes}")
        self._taken_at = time.monotonic()
        self._sent_bytes -= size_bytes
        self._done_bytes += size_bytes
        while self._sent and self._done_bytes >= self._sent[0].size_bytes:
            self._done_bytes -= self._sent.popleft().size_bytes

    def drop(self) -> int:
        """Drop the oldest waiting events, and report them as lost; returns the freed bytes."""
        block, skip, stop, position, recovered = self.queue.popleft()
        self.queued_bytes -= block.size
        if not recovered:  # those were reported before
            loss = Loss(position.term, block.first + skip, block.first + stop, "cut", block.publisher)
            before = self._cut.get(block.publisher)
            if before is not None and (before.term, before.last) == (loss.term, loss.first):
                loss = msgspec.structs.replace(before, last=loss.last)
            elif before is not None:
                self._losses.append(before)
            self._cut[block.publisher] = loss
        return block.size

    @property
    def untold(self) -> int:
        """The number of losses that were not reported yet."""
        return len(self._losses) + len(self._cut)

    def tell_losses(self) -> None:
        """Report them."""
        losses = [*self._losses, *self._cut.values()]
        self._losses.clear()
        self._cut.clear()
        for first in range(0, len(losses), _TOLD_MAX):
            self._session.send(Lost(self.number, losses[first : first + _TOLD_MAX]))


class Bounded:
    """The queues of a client's outboxes, which together have at most `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._queues: dict[Outbox, None] = {}  # those that are not empty

    def grew(self, outbox: Outbox, size_bytes: int) -> list[Outbox]:
        """This many more bytes wait in a queue; returns the queues that had to drop events."""
        self._bytes += size_bytes
        self._queues[outbox] = None
        shrunk: dict[Outbox, None] = {}
        while self._bytes > self._bytes_max:
            longest = max(self._queues, key=_queued)
            self._bytes -= longest.drop()
            shrunk[longest] = None
        return list(shrunk)

    def forget(self, outbox: Outbox) -> None:
        """The subscription has ended."""
        self._bytes -= outbox.queued_bytes
        self._queues.pop(outbox, None)

    def send(self, carry: Callable[[Bundle], None], has_room: Callable[[], bool]) -> None:
        """Send what fits into the applications' windows, a block of each subscription in turn, while there is room."""
        waiting = list(self._queues)
        while waiting and has_room():
            for outbox in list(waiting):
                bundle = outbox.next_bundle() if has_room() else None
                if bundle is None:
                    waiting.remove(outbox)
                else:
                    self._bytes -= bundle.blocks[0].size
                    carry(bundle)
                if not outbox.queue:
                    self._queues.pop(outbox, None)


def _queued(outbox: Outbox) -> int:
    return outbox.queued_bytes
