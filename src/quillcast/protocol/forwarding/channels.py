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

    __slots__ = ("cursor",)

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor

    def advance(self, log: Log) -> None:
        """Carry out what waits in the log, as far as there is room: the same bytes, by reference."""
        raise AssertionError("a channel says how it advances")


class LinkChannel(Channel):
    """A channel to another peer: a child in a topic's tree."""

    __slots__ = ("contact", "filters", "host")

    def __init__(self, host: Host, contact: Contact, cursor: int, filters: tuple[Filter, ...] = ()) -> None:
        super().__init__(cursor)
        self.host, self.contact, self.filters = host, contact, filters

    def admits(self, bundle: Bundle) -> bool:
        """Do all filters let the bundle pass?"""
        return all(passes(bundle) for passes in self.filters)

    def advance(self, log: Log) -> None:
        host, contact = self.host, self.contact
        while self.cursor < log.end and host.room(contact) > 0:
            bundle = log.at(self.cursor)
            self.cursor += 1
            if bundle is not None and (not self.filters or self.admits(bundle)):
                host.carry(contact, bundle)
