"""What the trees need from the overlay: routes to keys, and the peers closest to them."""

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
        """Whether this peer has joined, so that it can route."""
        ...

    @property
    def awaits_invitation(self) -> bool:
        """Whether other members of this peer's scope invite it into the trees of topics."""
        ...

    def route(self, message: Message, key: bytes) -> None:
        """Send a message to the peer that is closest to the key."""
        ...

    def is_closest(self, key: bytes) -> bool:
        """Whether this peer is the closest to the key, as far as it knows."""
        ...

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return the peers closest to the key, the closest first; this peer may be one."""
        ...

    def has_seats(self, topic: bytes) -> bool:
        """Whether the topic's rendezvous point is in a managed scope. Then none of its messages use the overlay."""
        ...


Answer = Accepted | Created | NotRoot | RootIs
"""Answers that may come over the overlay if they did not come directly."""


def _topic(message: Answer) -> bytes:
    return message.topic if isinstance(message, Accepted | NotRoot) else message.descriptor.topic


class Answers:
    """Answers requests that came over the overlay or directly."""

    __slots__ = ("dispatch", "host", "ring")

    def __init__(self, host: Host, ring: Overlay, dispatch: Dispatch) -> None:
        self.host, self.ring, self.dispatch = host, ring, dispatch

    def tell(self, to: Contact, message: Answer, *, again: bool) -> None:
        """Answer a peer; also over the overlay if it asks `again`, because a direct answer may not have reached it.

        Only the overlay reaches a peer that this one cannot reach directly. It does not reach peers outside the ring.
        """
        if to.node_id == self.host.me:
            self.dispatch.message(to, message)
            return
        if again and self.ring.active and not self.ring.has_seats(_topic(message)):
            self.ring.route(message, to.node_id)
        self.host.send(to, message)
