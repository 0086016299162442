"""A local subscription: what its subscriber asked for, and the channel to it."""

from math import floor
from typing import NamedTuple

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.protocol.forwarding.channels import Channel
from quillcast.protocol.forwarding.cursors import TermCursor
from quillcast.protocol.forwarding.edge import Edge
from quillcast.protocol.forwarding.owed_terms import Readmits
from quillcast.protocol.forwarding.subscriber import Subscriber
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.state.cut import Cut

BEGAN_S = 0.25  # the precision of the time when a subscription began


class Wish(NamedTuple):
    """What a subscriber asked for. Most subscribers share one such value."""

    start: str
    delivery: str | None
    warrant: Warrant | None


class Subscription(Edge):
    """A local subscription, for `unsubscribe` and `drained`, with the channel that leads to its subscriber."""

    __slots__ = ("began_at", "channel", "cut", "wish")

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, number: int, wish: Wish) -> None:
        super().__init__(host, topic, subscriber, ordered=True, number=number)
        self.channel = Channel(self, 0)
        self.cut: Cut | None = None
        self.wish = interned(wish)
        self.began_at = 0.0

    def begin_now(self) -> None:
        """Begin to be owed events. The noted time is a little earlier, so that subscriptions share it."""
        self.began_at = interned(floor(self.host.now() / BEGAN_S) * BEGAN_S)

    def adapt(self, descriptor: Descriptor) -> None:
        """Derive from the settings whether gaps delay events, and whether events may come again in another term.

        Events that a root numbered are still owed after sources took over, and may come again.
        """
        reliable, by_source = descriptor.settings.reliable, descriptor.settings.by_source
        if reliable and by_source and self.readmits and self.since is not None:
            self.expect_again()
        if reliable and not by_source and any(each.term.of_source for each in self.term_cursors()):
            self.expect_streams_again()
        if self.readmits < Readmits.FOR_GOOD:
            self.readmits = Readmits.BY_SETTINGS if reliable and not by_source else Readmits.NO
        self._order(reliable and self.wish.delivery != "best_effort")

    def _order(self, ordered: bool) -> None:
        """Set whether gaps delay later events from now on."""
        if self.ordered and not ordered:
            self.void_holes()
            self.note_delivered()
        elif ordered and not self.ordered:
            self.note_passed_over()
        self.ordered = ordered

    def expect_again(self) -> None:
        """Expect that some of the events that it is owed come again, whatever the settings are."""
        self.readmits = max(self.readmits, Readmits.FOR_GOOD)

    def expect_streams_again(self) -> None:
        """Expect that a root admits events again that sources had numbered because they did not know its settings."""
        self.readmits = Readmits.STREAMS_TOO

    def begin_session(self, descriptor: Descriptor, *, streams_ended: bool) -> None:
        """Adapt to a session that begins with the next term. Events of earlier terms are still owed.

        `streams_ended`: sources ended reliable streams for this session. Their events that were not stable come again.
        """
        if self.readmits or streams_ended:
            self.expect_again()
        self.adapt(descriptor)

    @property
    def begins_now(self) -> bool:  # type: ignore[override]
        return self.wish.start != "earliest"

    def waits_in(self, term_cursor: TermCursor) -> bool:
        return bool(self.readmits) and term_cursor.owed and self.wish.delivery != "best_effort"

    def cut_off(self, cut: Cut | None) -> None:
        """End its lease, because it cannot keep up. None: it keeps up again."""
        self.cut = cut

    @property
    def is_cut(self) -> bool:
        return self.cut is not None

    def needed_from(self, term: Term) -> int:
        return self.frontier(term)

    def kept_from(self, term: Term, *, at_root: bool) -> int:
        return self.frontier(term)

    def is_stalled(self, now: float) -> bool:
        """Return True: only its position counts for a local subscriber."""
        return True
