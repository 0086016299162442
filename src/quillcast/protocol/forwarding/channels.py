"""Channels: everything that happens to a bundle. A channel is a cursor into a flow's log, moved while there is room."""

from collections.abc import Callable

from quillcast.core.bundle import Bundle
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.log import Log

Filter = Callable[[Bundle], bool]
"""Decides per bundle, by its envelope alone, whether it goes down a channel."""


class Channel:
    """One way out of a flow, at its own pace: a slow one never holds up the others."""

    __slots__ = ("cursor", "filters")

    def __init__(self, cursor: int, filters: tuple[Filter, ...] = ()) -> None:
        self.cursor = cursor
        self.filters = filters

    def room(self) -> int:
        """Bytes this channel takes now; nothing is given to it while that is not positive."""
        raise AssertionError("a channel says how much room it has")

    def take(self, bundle: Bundle) -> None:
        """Carry the bundle out: the same bytes, by reference."""
        raise AssertionError("a channel takes bundles")

    def admits(self, bundle: Bundle) -> bool:
        """Do all filters let the bundle pass?"""
        return all(passes(bundle) for passes in self.filters)

    def advance(self, log: Log) -> None:
        """Take what waits in the log, as far as there is room."""
        kept = log.kept
        while self.cursor < log.end and self.room() > 0:
            behind = log.end - self.cursor
            self.cursor += 1
            if behind <= len(kept) and (not self.filters or self.admits(kept[-behind])):  # else it is kept no more
                self.take(kept[-behind])


class LinkChannel(Channel):
    """A channel to another peer: a child in a topic's tree."""

    __slots__ = ("contact", "host")

    def __init__(self, host: Host, contact: Contact, cursor: int, filters: tuple[Filter, ...] = ()) -> None:
        super().__init__(cursor, filters)
        self.host, self.contact = host, contact

    def room(self) -> int:
        return self.host.room(self.contact)

    def take(self, bundle: Bundle) -> None:
        self.host.carry(self.contact, bundle)
