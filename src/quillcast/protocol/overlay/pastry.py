"""One peer's part in the ring (Pastry; Scribe, section 2)."""

from collections.abc import Sequence
from typing import Any, Protocol

from quillcast.core.host import Host
from quillcast.core.messages import Codec, Contact, Message
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.config import OverlayConfig


class Application(Protocol):
    """What Pastry calls (Scribe, section 2.3)."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """No live peer is closer to the key; or the message was sent here by address (`key` is then this peer's id)."""
        ...

    def forward(
        self, message: Any, key: bytes, next_hop: Contact, source: Contact
    ) -> tuple[Message, Contact] | None:
        """The message is about to go on to `next_hop`: change it, redirect it, or stop it with None."""
        ...

    def leaf_set_changed(self) -> None:
        """A peer entered or left the leaf set, or this peer became active."""
        ...


class Pastry:
    """Routes messages to the closest live peer."""

    active: bool
    application: Application

    def __init__(self, host: Host, config: OverlayConfig, neighbours: Neighbours, codec: Codec) -> None:
        """`codec` encodes the messages that travel inside `Routed`: every layer's, and this one's `JoinRequest`."""
        raise NotImplementedError

    def join(self, contacts: Sequence[Contact]) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def remembered(self) -> list[Contact]:
        raise NotImplementedError

    def route(self, message: Message, key: bytes) -> None:
        raise NotImplementedError

    def send(self, message: Message, to: Contact) -> None:
        raise NotImplementedError

    def is_closest(self, key: bytes) -> bool:
        raise NotImplementedError

    def closest(self, key: bytes, count: int) -> list[Contact]:
        raise NotImplementedError

    def next_hop(self, key: bytes) -> Contact | None:
        raise NotImplementedError

    def receive(self, sender: Contact, message: Message) -> None:
        raise NotImplementedError

    def timer(self, timer: Any) -> None:
        raise NotImplementedError

    def measured(self, contact: Contact, proximity: float | None) -> None:
        raise NotImplementedError

    def lost(self, contact: Contact) -> None:
        raise NotImplementedError

    def recovered(self, contact: Contact) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError
