"""How long this peer, as the root of topics, remembers publishers (DELIVERY.md, *Ids*).

A publisher's state goes when all its events are stable and it has closed, which its peer says (`Closed`), or its peer
has been lost for a lease's time. Of a peer that sent nothing for so long a root asks a sign of life, one question for
all of its publishers, so that whoever died in silence is missed too. A publisher that lives stays however long it is
silent, as long as there is room (`admissions_max`).
"""

from typing import TYPE_CHECKING

from quillcast.protocol.topics.root import Root

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Admissions:
    """Looks over the publishers of all topics that are rooted here, once per lease."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config = scribe, scribe.host, scribe.config
        self.looked_at = self.host.now()

    def closed(self, publishers: list[tuple[bytes, bytes]]) -> None:
        """Publishers of some topics say that they publish no more."""
        for topic, publisher in publishers:
            tree = self.scribe.trees.get(topic)
            if tree is not None and tree.root is not None:
                tree.root.close(publisher)

    def lost(self, node: bytes) -> None:
        """A peer is out of reach."""
        for root in self._roots():
            root.lost(node)

    def sweep(self, now: float) -> None:
        """Forget publishers that are gone; ask the peers of silent ones for a sign of life."""
        if now - self.looked_at < self.config.lease_s:
            return
        self.looked_at = now
        silent = {contact.node_id: contact for root in self._roots() for contact in root.sweep(now)}
        silent.pop(self.host.me, None)
        for contact in silent.values():
            self.scribe.neighbours.probe(contact)

    def _roots(self) -> list[Root]:
        return [tree.root for tree in self.scribe.trees.values() if tree.root is not None]
