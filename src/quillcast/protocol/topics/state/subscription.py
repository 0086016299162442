"""A local subscription: what its subscriber asks for, and the channel to it."""

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

BEGAN_S = 0.25  # how exactly a subscription knows when it began


class Wish(NamedTuple):
    """What a subscriber asks for; most ask for the same."""

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
        """What comes from now on is owed. The time is a little earlier, so that subscriptions share it."""
        self.began_at = interned(floor(self.host.now() / BEGAN_S) * BEGAN_S)

    def adapt(self, descriptor: Descriptor) -> None:
        """Is it owed every event, so that a gap holds it up? And may an event come again under another term?

        What a root numbered is owed, and may come again, after the sources took over.
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
        """From now on, gaps delay what follows, or nothing."""
        if self.ordered and not ordered:
            self.void_holes()
            self.note_delivered()
        elif ordered and not self.ordered:
            self.note_passed_over()
        self.ordered = ordered

    def expect_again(self) -> None:
        """Some of the events that it is owed may come again, whatever the settings are."""
        self.readmits = max(self.readmits, Readmits.FOR_GOOD)

    def expect_streams_again(self) -> None:
        """A root numbers the topic's events, also some that sources had numbered where its settings were not known."""
        self.readmits = Readmits.STREAMS_TOO

    def begin_session(self, descriptor: Descriptor, *, streams_ended: bool) -> None:
        """The same, from the term on that begins next. What is owed of the terms before stays so.

        `streams_ended`: sources ended reliable streams for this session. What was not stable there comes again.
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
        """Its lease ends, because it cannot keep up; None: it keeps up again."""
        self.cut = cut

    @property
    def is_cut(self) -> bool:
        return self.cut is not None

    def needed_from(self, term: Term) -> int:
        return self.frontier(term)

    def kept_from(self, term: Term, *, at_root: bool) -> int:
        return self.frontier(term)

    def is_stalled(self, now: float) -> bool:
        """A local subscriber is judged by its position alone."""
        return True
