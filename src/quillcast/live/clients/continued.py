"""The inbox of a subscription that continues at another peer when the one that serves it ends.

A subscription starts at the next peer as far back as buffers reach. So some events come again, and some may be gone:
those that every subscriber with a lease had, while this client had not been sent them. The inbox knows what
it was given, by publisher and sequence. It skips repeats, and reports the gaps between.

Gaps show by position while the topic's root is the same. Otherwise they show by sequence, for publishers whose events
came before and after. Gaps of other publishers do not show.
"""

from collections.abc import Callable

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position, Term
from quillcast.core.errors import QuillcastError
from quillcast.core.loss import Loss
from quillcast.core.ranges import RangeSet
from quillcast.live.clients.proxy import RemoteInbox

PUBLISHERS_MAX = 1 << 12  # whose last events are remembered; a guess
_RANGES_MAX = 256  # of a publisher; beyond, the closest become one with what lies between


class ContinuedInbox(RemoteInbox):
    """An inbox that one peer after the other fills."""

    __slots__ = ("_came", "_continues", "_cursors", "_forgiven_bytes", "_joins")

    def __init__(self, size_bytes_max: int, name: str) -> None:
        super().__init__(size_bytes_max, name)
        self._came: dict[bytes, RangeSet] = {}  # by publisher, the latest last: sequences that came or were lost
        self._cursors: dict[Term, int] = {}  # one past the last position that came
        self._continues = False  # is it a later peer than the first?
        self._joins: dict[bytes, None] = {}  # publishers from which the present peer sent nothing yet
        self._forgiven_bytes = 0  # what is read next came from former peers, or again

    def continue_from(self, position: Position) -> None:
        """The subscription has started at a peer, at this position."""
        if self.position is None:
            self.started(position)
            return
        self._continues, self._joins = True, dict.fromkeys(self._came)
        self._forgiven_bytes, self.owed = self.size_bytes, 0
        if (cursor := self._cursors.get(position.term)) is not None:
            self._joins.clear()
            if position.index > cursor:
                super().lost(Loss(position.term, cursor, position.index, "unavailable"))
                self._cursors[position.term] = position.index

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        first, last = block.first + skip, block.first + stop
        came = self._came.pop(block.publisher, None) or RangeSet()
        pieces = [(first, last)]
        if self._continues:
            if block.publisher in self._joins:
                self._close_gap(block.publisher, came, first, position.term)
            pieces = came.missing(first, last)
        for start, end in pieces:
            place = Position(position.term, position.index + start - first)
            super().deliver(block, start - block.first, end - block.first, place, recovered)
        if not pieces:
            self.size_bytes += block.size
            self.release(block.size)
        self._forgiven_bytes += max(0, len(pieces) - 1) * block.size
        came.add(first, last)
        self._note(block.publisher, came)
        self._cursors[position.term] = max(self._cursors.get(position.term, 0), position.index + stop - skip)
        if len(self._cursors) > PUBLISHERS_MAX:
            del self._cursors[next(iter(self._cursors))]

    def lost(self, loss: Loss) -> None:
        if not self._continues:
            super().lost(loss)
        elif loss.uncertain:
            self._lose_positions(loss)
        elif loss.why != "start" or loss.publisher in self._joins:
            self._lose_events(loss)
        if not loss.uncertain:
            came = self._came.pop(loss.publisher, None) or RangeSet()
            came.add(loss.first, loss.last)
            self._note(loss.publisher, came)

    def release(self, size_bytes: int) -> bool:
        forgiven_bytes = min(self._forgiven_bytes, size_bytes)
        self._forgiven_bytes -= forgiven_bytes
        self.size_bytes -= forgiven_bytes
        return size_bytes > forgiven_bytes and super().release(size_bytes - forgiven_bytes)

    def _lose_positions(self, loss: Loss) -> None:
        """Report what did not come. If a new peer does not keep it, nothing before the first event is owed."""
        first = self._cursors.get(loss.term, loss.last if loss.why == "start" else 0)
        if (first := max(first, loss.first)) < loss.last:
            super().lost(Loss(loss.term, first, loss.last, _why(loss)))

    def _lose_events(self, loss: Loss) -> None:
        came = self._came.get(loss.publisher) or RangeSet()
        begin = came.starts[0] if came.starts and loss.why == "start" else 0
        for first, last in came.missing(max(begin, loss.first), loss.last):
            super().lost(Loss(loss.term, first, last, _why(loss), loss.publisher))

    def _close_gap(self, publisher: bytes, came: RangeSet, first: int, term: Term) -> None:
        """The first events of a publisher from another peer: report what is missing before them, if order is kept."""
        del self._joins[publisher]
        if len(came.starts) == 1:
            for start, end in came.missing(came.starts[0], first):
                super().lost(Loss(term, start, end, "unavailable", publisher))
                came.add(start, end)

    def _note(self, publisher: bytes, came: RangeSet) -> None:
        if len(came) > _RANGES_MAX:
            came.join_closest()
        self._came[publisher] = came
        if len(self._came) > PUBLISHERS_MAX:
            del self._came[next(iter(self._came))]


class Successor(RemoteInbox):
    """Takes the place of a subscription's inbox at a peer until the subscription has started there."""

    __slots__ = ("_begun", "_refused")

    def __init__(
        self, inbox: RemoteInbox, begun: Callable[[Position], None], refused: Callable[[QuillcastError], None]
    ) -> None:
        super().__init__(inbox.size_bytes_max, inbox.name)
        self._begun, self._refused = begun, refused

    def started(self, position: Position) -> None:
        self._begun(position)

    def failed(self, error: QuillcastError) -> None:
        self._refused(error)


def _why(loss: Loss) -> str:
    return "unavailable" if loss.why == "start" else loss.why
