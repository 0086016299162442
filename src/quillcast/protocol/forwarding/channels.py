"""Channels: everything that happens to a bundle. A channel is a cursor into a flow's log, moved while there is room."""

from collections.abc import Callable, Iterable

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.forwarding.log import Log

Filter = Callable[[Bundle], bool]
"""Decides per bundle, by its envelope alone, whether it goes down a channel."""


CATCH_UP_S = 1.0  # who is behind by less than this keeps up again; a guess: several reports


class Cut:
    """The lease of whoever a channel leads to was ended, for it could not keep up; it has one again when it does.

    It keeps up when it reaches what was there at one time soon after that time.
    """

    __slots__ = ("at", "mark", "within_s")

    def __init__(self, mark: int, at: float, within_s: float = CATCH_UP_S) -> None:
        self.mark, self.at, self.within_s = mark, at, within_s

    def is_over(self, position: int, frontier: int, now: float) -> bool:
        """It has come to a position, and the term to `frontier` here: does it keep up again?"""
        if position < self.mark:
            return False
        if position >= frontier or now - self.at <= self.within_s:
            return True
        self.mark, self.at = frontier, now
        return False


class Channel:
    """One way out of a flow, at its own pace: a slow one never holds up the others."""

    __slots__ = ("cursor", "cut")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.cut: Cut | None = None

    def advance(self, log: Log) -> None:
        """Carry out what waits in the log, as far as there is room: the same bytes, by reference."""
        raise AssertionError("a channel says how it advances")

    def pass_over(self, term: Term, gone: list[Bundle]) -> None:
        """The log has let go of these bundles, which this channel had not taken; the cursor is past them already."""

    def settle(self, term: Term, stable: int) -> None:
        """The root of a past term called it stable below an index."""

    def discard_past(self, term: Term, gone: list[Bundle], runs: Iterable[Run], later: Iterable[Run]) -> None:
        """These bundles of a past term are kept no more: they may not wait here.

        `runs` say what stood in the term, and `later` what stands in later ones.
        """


class LinkChannel(Channel):
    """A channel to another peer: a child in a topic's tree.

    What it passes over the child finds out by its ranges, asks for, and is told who had it (`reliability.recovery`).
    """

    __slots__ = ("contact", "filters", "host")

    def __init__(self, host: Host, contact: Contact, cursor: int, filters: tuple[Filter, ...] = ()) -> None:
        super().__init__(cursor)
        self.host, self.contact, self.filters = host, contact, filters

    def admits(self, bundle: Bundle) -> bool:
        """Do all filters let the bundle pass?"""
        return all(passes(bundle) for passes in self.filters)

    def advance(self, log: Log) -> None:
        self.carry(log, log.end)

    def carry(self, log: Log, end: int) -> None:
        """Carry out what waits in the log up to a serial, as far as there is room."""
        host, contact = self.host, self.contact
        while self.cursor < end and host.room(contact) > 0:
            bundle = log.at(self.cursor)
            self.cursor += 1
            if bundle is not None and (not self.filters or self.admits(bundle)):
                host.carry(contact, bundle)
