"""The report of events that a subscriber will not get (DELIVERY.md, *Guarantees*: loss reports are exact)."""

import msgspec

from quillcast.core.envelope import Term


class Loss(msgspec.Struct, frozen=True):
    """Events that will not come; each is reported once.

    With a `publisher` the range [first, last) counts that publisher's events by their sequence, and the report is
    exact. Without one (`uncertain`) it counts positions of `term`: nobody who could be reached knows which events
    stood there. One that comes after all is marked (`Event.recovered`), and so may be some that did not stand there.

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
