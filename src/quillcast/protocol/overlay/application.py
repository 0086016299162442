"""What Pastry calls (Scribe, section 2.3)."""

from typing import Any, Protocol

from quillcast.core.messages import Contact, Message


class Application(Protocol):
    """The layer above: it is told what arrives, and may change what passes."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """No live peer is closer to the key; or the message was sent here by address, and `key` is this peer's id."""
        ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """The message is about to go on to `next_hop`: change it, redirect it, or stop it with None."""
        ...

    def leaf_set_changed(self) -> None:
        """A peer entered or left the leaf set of this active peer, or it became active."""
        ...


class NoApplication:
    """Lets every message pass, and what arrives ends here."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None: ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        return message, next_hop

    def leaf_set_changed(self) -> None: ...
