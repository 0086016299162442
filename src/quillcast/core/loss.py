"""The report of events that a subscriber will not receive (docs/delivery.md, *Guarantees*: loss reports are exact)."""

import msgspec

from quillcast.core.envelope import Term


class Loss(msgspec.Struct, frozen=True):
    """Events that this subscription will never get. Each is reported once.

    With a `publisher`, [first, last) is a range of that publisher's sequences, and the report is exact. Without one
    (`uncertain`), it is a range of positions in `term`, because no reachable peer knows which events had them. If one
    of the events arrives after all, it is marked (`Event.recovered`); a few others may be marked too.

    If a process has one publisher in the topic, `publisher` and the sequences are those of its events
    (`Event.publisher`, `Event.sequence`). If it has several, they share blocks, which have the id of the first one and
    count the events of all. `count` is then exact, and gaps in each publisher's `Event.sequence` show whose events were
    lost.

    `why`: cut, unavailable, late, void, dropped, overtaken, malformed; start: the subscription asked for the earliest
    events, and these are no longer kept.
    """

    term: Term
    first: int
    last: int
    why: str
    publisher: bytes = b""

    @property
    def uncertain(self) -> bool:
        """Whether it is unknown which events these are."""
        return not self.publisher

    @property
    def count(self) -> int:
        """How many events are lost; an upper bound if the report is uncertain."""
        return self.last - self.first
