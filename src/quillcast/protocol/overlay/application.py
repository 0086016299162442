"""The upcalls of Pastry (Scribe, section 2.3)."""

from typing import Any, Protocol

from quillcast.core.messages import Contact, Message


class Application(Protocol):
    """The layer above. It receives messages, and may change messages that pass."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """A message arrived: no live peer is closer to `key`, or it was sent by address (`key` is this peer's id)."""
        ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """A message is about to be sent to `next_hop`. Change it, redirect it, or return None to stop it."""
        ...

    def leaf_set_changed(self) -> None:
        """A peer was added to or removed from the leaf set of this active peer, or this peer became active."""
        ...


class NoApplication:
    """Forwards every message unchanged and ignores what arrives."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None: ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        return message, next_hop

    def leaf_set_changed(self) -> None: ...
