"""A local subscription: what its subscriber asks for, and the channel to it."""

from typing import NamedTuple

from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.protocol.forwarding.edge import Edge, Subscriber
from quillcast.protocol.security.access import Warrant


class Wish(NamedTuple):
    """What a subscriber asks for; most ask for the same."""

    start: str
    delivery: str | None
    warrant: Warrant | None


class Subscription(Edge):
    """A local subscription and the channel to its subscriber, for `unsubscribe` and `drained`."""

    __slots__ = ("wish",)

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, cursor: int, number: int, wish: Wish) -> None:
        super().__init__(host, topic, subscriber, cursor, ordered=True, number=number)
        self.wish = interned(wish)

    def adapt(self, *, reliable: bool) -> None:
        """Is it owed every event, so that a gap holds it up? And may an event come again under another term?"""
        self.readmits = reliable
        self.ordered = reliable and self.wish.delivery != "best_effort"
