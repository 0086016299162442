"""What publishers and subscriptions need of a peer: one in this process, or one that serves this process as its client.

These are protocols for type checkers, so that an application without its own peer need not import one.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from quillcast.core.ids import short
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.subscriber import Subscriber
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.publishing.publisher import Publisher, PublisherListener

NAMED_MAX = 10  # peers that are named in one text; a guess


class TopicMember(Protocol):
    """A peer that joins topics on behalf of an application (`protocol.peer.Peer`)."""

    def awaited(self, name: str) -> Sequence[Contact]:
        """The peers that were asked to let this peer take part in a topic and have not answered yet."""
        ...


class SubscribingPeer(TopicMember, Protocol):
    """A peer, as subscriptions see it. Handles are opaque to them."""

    def subscribe(
        self, name: str, subscriber: Subscriber, *, start: str = "now", delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Any:  # fmt: skip
        """Subscribe to a topic; returns a handle. Raises `LocalError` for an invalid name."""
        ...

    def unsubscribe(self, subscription: Any, /) -> None:
        """End a subscription."""
        ...

    def subscriptions(self, subscription: Any, /) -> int:
        """The number of subscriptions of this peer to the topic of this one."""
        ...

    def drained(self, subscription: Any, /) -> None:
        """The subscriber's queue has room again."""
        ...


class PublishingPeer(TopicMember, Protocol):
    """A peer, as publishers see it."""

    def publisher(self, name: str, listener: PublisherListener, warrant: Warrant | None = None) -> Publisher:
        """A new publisher of a topic. Raises `LocalError` for an invalid name."""
        ...

    def new_publisher_id(self) -> bytes:
        """A new, unique PublisherId."""
        ...

    def close_publisher(self, publisher: Publisher) -> None:
        """Close a publisher. Its events are kept until they are stable."""
        ...

    def bound(self, topic: bytes) -> str:
        """Why publishers wait because the topic has its maximum of publishers, in a sentence; empty if they do not."""
        ...


def silent(contacts: Sequence[Contact]) -> str:
    """Name the peers that were asked and have not answered, in a sentence."""
    if not contacts:
        return "no peer is known yet that could be asked"
    named = [f"{short(each.node_id)} ({each.address})" for each in contacts[:NAMED_MAX]]
    named += [f"{len(contacts) - NAMED_MAX} others"] if len(contacts) > NAMED_MAX else []
    return f"{', '.join(named)} {'was' if len(contacts) == 1 else 'were'} asked and did not answer"


def node_ids(contacts: Sequence[Contact]) -> list[str]:
    """The nodeIds of peers in hexadecimal."""
    return [each.node_id.hex() for each in contacts]


class Causes(Protocol):
    """The peers that hold up an acknowledgement, as far as known (`live.edges.holdups.HoldUps`)."""

    @property
    def peers(self) -> list[str]:
        """NodeIds of the peers that hold it up, in hexadecimal."""
        ...

    def lagging(self) -> str:
        """Why admitted events are not stable."""
        ...

    def held_back(self) -> str:
        """Why the root admits no events now."""
        ...


class FindCauses(Protocol):
    """Finds out which peers hold up a publisher's events before `last`, while its `with` block lasts."""

    def __call__(self, publisher: Publisher, last: int, /) -> AbstractContextManager[Causes]:
        """Start asking."""
        ...
