"""What the trees need of the overlay: routes to keys, and who is closest to them."""

from typing import Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.protocol.topics.messages import Accepted
from quillcast.protocol.topics.root_messages import Created, NotRoot, RootIs


class Overlay(Protocol):
    """The overlay as the topics use it; `Pastry` is one."""

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

    def has_seats(self, topic: bytes) -> bool:
        """Has the topic its rendezvous point in a managed scope? Then nothing of it goes over the overlay."""
        ...


class ScopeEntries(Protocol):
    """The entry points of this peer's scope, as the topics use them; `Pastry` knows them."""

    @property
    def entry_points(self) -> tuple[Contact, ...]:
        """The members of this peer's scope that have a place in the ring. Empty: it is in none."""
        ...

    def takes(self, topic: bytes, root_scope: str) -> bool:
        """Can this peer have a place in a topic that is rooted at this scope; or at the overlay, if there is none?"""
        ...

    def heir(self, lost: bytes) -> Contact | None:
        """Who takes over from a lost entry point of this peer's scope, if it was one; that may be this peer."""
        ...


Answer = Accepted | Created | NotRoot | RootIs
"""What may come over the overlay where it did not come straight."""


def _topic(message: Answer) -> bytes:
    return message.topic if isinstance(message, Accepted | NotRoot) else message.descriptor.topic


class Answers:
    """Answers to requests that came over the overlay or straight."""

    def __init__(self, host: Host, ring: Overlay, dispatch: Dispatch) -> None:
        self.host, self.ring, self.dispatch = host, ring, dispatch

    def tell(self, to: Contact, message: Answer, *, again: bool) -> None:
        """Answer a peer; also over the overlay if it asks `again`, because a direct answer may not have reached it.

        That is the only way to a peer that this one cannot reach, and no way to one without a place in the ring.
        """
        if to.node_id == self.host.me:
            self.dispatch.message(to, message)
            return
        if again and self.ring.active and not self.ring.has_seats(_topic(message)):
            self.ring.route(message, to.node_id)
        self.host.send(to, message)
