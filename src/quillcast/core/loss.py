"""The report of events that a subscriber will not get (docs/delivery.md, *Guarantees*: loss reports are exact)."""

import msgspec

from quillcast.core.envelope import Term


class Loss(msgspec.Struct, frozen=True):
    """Events that will not come; each is reported once.

    With a `publisher` the range [first, last) counts that publisher's events by their sequence, and the report is
    exact. Without one (`uncertain`) it counts positions of `term`: nobody who could be reached knows which events
    stood there. One that comes after all is marked (`Event.recovered`), and so may be some that did not stand there.

    `publisher` and the sequences are those of the events (`Event.publisher`, `Event.sequence`) where a process has one
    publisher in the topic. Several of one process share a line of blocks, which has the id of the first of them and
    counts the events of all in the order in which they were published. Only the blocks say whose each event was, and
    those are gone with the events: then `count` is exact, and whose they were shows in the gaps of each one's sequence.

    `why`: cut, unavailable, late, void, dropped, overtaken, malformed; start: the subscription was to begin with the
    earliest event, and these are not kept any more.
    """

    term: Term
    first: int
    last: int
    why: str
    publisher: bytes = b""

    @property
    def uncertain(self) -> bool:
        """Is it unknown which events these are?"""
        return not self.publisher

    @property
    def count(self) -> int:
        """How many events are lost, at most where the report is uncertain."""
        return self.last - self.first
