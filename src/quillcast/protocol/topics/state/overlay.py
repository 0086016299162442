"""What the trees need of the overlay: routes to keys, and who is closest to them."""

from typing import Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message


class Overlay(Protocol):
    """The overlay as the topics use it; `Pastry` is one."""

    @property
    def entry_points(self) -> tuple[Contact, ...]:
        """The members of this peer's scope that have a place in the ring. Empty: it is in none."""
        ...

    @property
    def active(self) -> bool:
        """Has this peer joined, so that it can route?"""
        ...

    def route(self, message: Message, key: bytes) -> None:
        """Send a message to the peer that is closest to the key."""
        ...

    def is_closest(self, key: bytes) -> bool:
        """Is this peer the closest to the key, as far as it knows?"""
        ...

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """The peers that are closest to the key, the closest first; this peer may be one."""
        ...

    def heir(self, lost: bytes) -> Contact | None:
        """Who takes over from a lost entry point of this peer's scope, if it was one; that may be this peer."""
        ...


class Answers:
    """Answers to requests that came over the overlay or straight."""

    def __init__(self, host: Host, ring: Overlay, dispatch: Dispatch) -> None:
        self.host, self.ring, self.dispatch = host, ring, dispatch

    def tell(self, to: Contact, message: Message, *, again: bool) -> None:
        """Answer a peer; also over the overlay if it asks `again`, because a direct answer may not have reached it.

        That is the only way to a peer that this one cannot reach, and no way to one without a place in the ring.
        """
        if to.node_id == self.host.me:
            self.dispatch.message(to, message)
            return
        if again and self.ring.active:
            self.ring.route(message, to.node_id)
        self.host.send(to, message)
