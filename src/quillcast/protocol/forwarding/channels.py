"""Channels: the ways out of a flow. A channel is a cursor into the flow's log, which advances while there is room."""

from collections.abc import Callable, Iterable

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.forwarding.log import Log

Filter = Callable[[Bundle], bool]
"""Decides from the envelope of a bundle whether the bundle enters a channel."""


CATCH_UP_S = 1.0  # a receiver that is behind by less than this has caught up; a guess: several reports


class Cut:
    """A channel whose lease was cut because the receiver could not keep up. Ends when the receiver catches up.

    The receiver has caught up when it reaches what was in the log at some time soon after that time.
    """

    __slots__ = ("at", "mark", "within_s")

    def __init__(self, mark: int, at: float, within_s: float = CATCH_UP_S) -> None:
        self.mark, self.at, self.within_s = mark, at, within_s

    def is_over(self, position: int, frontier: int, now: float) -> bool:
        """Given the receiver's position and the frontier of the term here: has the receiver caught up?"""
        if position < self.mark:
            return False
        if position >= frontier or now - self.at <= self.within_s:
            return True
        self.mark, self.at = frontier, now
        return False


class Channel:
    """One way out of a flow. Each channel advances at its own pace, so that a slow one never delays the others."""

    __slots__ = ("cursor", "cut")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.cut: Cut | None = None

    def advance(self, log: Log) -> None:
        """Send what waits in the log, as far as there is room: the same bytes, by reference."""
        raise AssertionError("each kind of channel defines how it advances")

    def pass_over(self, term: Term, gone: list[Bundle]) -> None:
        """The log discarded these bundles before this channel took them. The cursor is past them already."""

    def settle(self, term: Term, stable: int) -> None:
        """The root of a past term declared it stable below an index."""

    def discard_past(self, term: Term, gone: list[Bundle], runs: Iterable[Run], later: Iterable[Run]) -> None:
        """These bundles of a past term were discarded. They must not wait here.

        `runs` tell which events the term held, and `later` which events later terms hold.
        """


class LinkChannel(Channel):
    """A channel to another peer: a child in a topic's tree.

    If it passes over bundles, the child detects the gap by its ranges, and repairs it (`reliability.recovery`).
    """

    __slots__ = ("contact", "filters", "host")

    def __init__(self, host: Host, contact: Contact, cursor: int, filters: tuple[Filter, ...] = ()) -> None:
        super().__init__(cursor)
        self.host, self.contact, self.filters = host, contact, filters

    def admits(self, bundle: Bundle) -> bool:
        """Do all filters admit the bundle?"""
        return all(passes(bundle) for passes in self.filters)

    def advance(self, log: Log) -> None:
        self.carry(log, log.end)

    def carry(self, log: Log, end: int) -> None:
        """Send what waits in the log up to a serial, as far as there is room."""
        host, contact = self.host, self.contact
        while self.cursor < end and host.room(contact) > 0:
            bundle = log.at(self.cursor)
            self.cursor += 1
            if bundle is not None and (not self.filters or self.admits(bundle)):
                host.carry(contact, bundle)
