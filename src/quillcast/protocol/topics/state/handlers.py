"""The paper's upcalls, for guarantees built on top of a topic (Scribe, section 3.2)."""

from collections.abc import Iterable
from typing import Protocol

from quillcast.core.bundle import Bundle
from quillcast.protocol.topics.messages import Join


class Handlers(Protocol):
    """What an application sets for a topic at a peer (`Peer.handle`)."""

    def forward_handler(self, bundle: Bundle, *, is_root: bool) -> Bundle | None:
        """Called before a bundle goes to the children: return it, changed or not, or None to stop it."""
        ...

    def subscribe_handler(self, join: Join) -> Iterable[Bundle]:
        """Called when a child was added to the children table: return bundles to send to it alone."""
        ...

    def fault_handler(self, join: Join) -> Join:
        """Called when the parent is suspected: return the Join that repairs the tree, with a note added or not."""
        ...
