"""The report of events that a subscriber will not receive (docs/delivery.md, *Guarantees*: loss reports are exact)."""

import msgspec

from quillcast.core.envelope import Term


class Loss(msgspec.Struct, frozen=True):
    """Events that will not arrive. Each is reported once.

    With a `publisher`, the range [first, last) counts that publisher's events by sequence, and the report is exact.
    Without one (`uncertain`), it counts positions of `term`: no reachable peer knows which events they held. If such an
    event arrives after all, it is marked (`Event.recovered`); some marked events may not have been in the range.

    If a process has one publisher in the topic, `publisher` and the sequences are those of its events
    (`Event.publisher`, `Event.sequence`). Several publishers of one process share blocks, which have the id of the
    first publisher and count the events of all of them in order of publication. Only the blocks name the publisher of
    each event, and they are gone with the events. Then `count` is exact, and gaps in each publisher's sequence show
    whose events are lost.

    `why`: cut, unavailable, late, void, dropped, overtaken, malformed; start: the subscription was to begin with the
    earliest event, and these are no longer kept.
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
        """The number of lost events; an upper bound if the report is uncertain."""
        return self.last - self.first
