"""Losses that are reported in a moment: one report for ranges that touch, and before the events that follow."""

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.loss import Loss
from quillcast.core.ranges import Range, RangeSet
from quillcast.core.trace import Lost
from quillcast.protocol.forwarding.subscriber import Subscriber

TELL_LOSSES_S = 0.01  # what a loss leads to has happened by then; a guess: several turns of a busy event loop


class TellLosses(Timer, frozen=True):
    """Tell a subscriber what it lost a moment ago."""

    topic: bytes
    number: int


class LossReports:
    """The losses that a subscriber has not been told of yet.

    They are reported before the events that follow, and otherwise in a moment. One loss may lead to the next: buffers
    with room again take more events, which may fill them up at once.
    """

    __slots__ = ("host", "number", "pending", "subscriber", "topic", "undated")

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, number: int) -> None:
        self.host, self.topic, self.subscriber, self.number = host, topic, subscriber, number
        self.pending: dict[tuple[bytes | Term, str], tuple[Loss, RangeSet]] = {}  # each with the first of its losses
        self.undated: dict[Term, tuple[Range, float]] = {}  # missed first events, and since when (`Edge.date`)

    def add(self, loss: Loss) -> None:
        """Report a loss before the events that follow it, and otherwise in a moment."""
        if not self.pending:
            self.host.set_timer(TellLosses(self.topic, self.number), TELL_LOSSES_S)
        place = loss.publisher or loss.term, loss.why
        _, ranges = self.pending.setdefault(place, (loss, RangeSet()))
        ranges.add(loss.first, loss.last)

    def note_undated(self, term: Term, missed: Range) -> None:
        """A stream's first events did not arrive, and may be older than the subscription."""
        self.undated[term] = missed, self.host.now()

    def take_undated(self, term: Term) -> Range | None:
        """Take out a stream's first events that did not arrive, if any: it is known now how old they are."""
        missed = self.undated.pop(term, None)
        return missed[0] if missed is not None else None

    def tell_all(self) -> None:
        """Report every pending loss."""
        pending, self.pending = self.pending, {}
        for loss, ranges in pending.values():
            self._tell(loss, ranges)

    def tell_before(self, publisher: bytes, sequence: int, term: Term, index: int) -> None:
        """Report losses before an event that is delivered now: of its publisher, and at positions of its term."""
        for place, (loss, ranges) in list(self.pending.items()):
            follows = sequence if loss.publisher == publisher else index if loss.term == term and loss.uncertain else 0
            if ranges.start < follows:
                del self.pending[place]
                self._tell(loss, ranges)

    def tell_uncertain(self) -> None:
        """Report uncertain losses before an event is delivered that may be one of them."""
        for place, (loss, ranges) in list(self.pending.items()):
            if loss.uncertain:
                del self.pending[place]
                self._tell(loss, ranges)

    def _tell(self, loss: Loss, ranges: RangeSet) -> None:
        for first, last in ranges:
            self.host.trace(Lost(self.topic, loss.term, first, last, loss.why, self.number, loss.publisher))
            self.subscriber.lost(msgspec.structs.replace(loss, first=first, last=last))
