"""How long this peer, as the root of topics, remembers publishers (docs/delivery.md, *Ids*).

A publisher's state is removed when all its events are stable and it has closed, which its peer reports (`Closed`), or
its peer has been lost for a lease's time. If a peer's publishers sent nothing for that long, the root asks for a sign
of life, and which of them its process still has: it may have restarted since. So publishers that died silently are
noticed too. A live publisher stays however long it is silent, as long as there is room (`admissions_max`).

As often, a peer that was told who is root, and whose publishers sent nothing in this term, is told of changed settings.
"""

from collections.abc import Mapping
from typing import Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.records import pages
from quillcast.protocol.topics.root_messages import Closed, StillOpen
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree

ASKED_MAX = 1024  # publishers in one question; a guess: 36 kB


class OwnPublishers(Protocol):
    """The publishers of this peer."""

    def not_here(self, publishers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return those of these publishers, each with its topic, that this process does not have."""
        ...


class Prober(Protocol):
    """Finds out which peers are alive."""

    def probe(self, contact: Contact) -> None:
        """Ask for a sign of life."""
        ...


class Admissions:
    """Checks the publishers of all topics rooted here, once per lease and when a lost one's lease ends."""

    __slots__ = ("config", "host", "look_at", "neighbours", "own", "trees")

    def __init__(
        self, host: Host, config: TopicConfig, trees: Mapping[bytes, Tree], own: OwnPublishers, neighbours: Prober,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.trees, self.own, self.neighbours = host, config, trees, own, neighbours
        self.look_at = self.host.now() + self.config.lease_s
        dispatch.on_anonymous(Closed, self._closed)

    def _closed(self, message: Closed) -> None:
        self.closed(message.publishers)

    def closed(self, publishers: list[tuple[bytes, bytes]]) -> None:
        """Remove publishers of some topics that have closed."""
        for topic, publisher in publishers:
            tree = self.trees.get(topic)
            for admitter in (tree.root, tree.sources.own) if tree is not None else ():
                if admitter is not None:  # after a change between root and sources, the other one admitted earlier ones
                    admitter.close(publisher)

    def lost(self, node: bytes) -> None:
        """Note that a peer is out of reach."""
        for root in self._roots():
            root.lost(node)

    def housekeep(self, now: float, *, paused: bool = False) -> None:
        """Forget publishers that are gone; ask the peers of silent ones for a sign of life."""
        if now < self.look_at:
            return
        silent: dict[Contact, list[tuple[bytes, bytes]]] = {}
        idle: dict[Contact, list[tuple[bytes, int]]] = {}
        for root in self._roots():
            for contact, publishers in root.housekeep(now).items():
                silent.setdefault(contact, []).extend((root.topic, publisher) for publisher in publishers)
            for contact in root.idle_peers() if self._version(root.topic) else ():
                idle.setdefault(contact, []).append((root.topic, self._version(root.topic)))
        for contact, topics in idle.items():
            for page in pages(topics):
                self.host.send(contact, StillOpen([], tuple(page)))
        self.look_at = min([now, *(gone_at for root in self._roots() for gone_at in root.gone())]) + self.config.lease_s
        for contact, named in silent.items():
            if contact.node_id == self.host.me:
                self.closed(self.own.not_here(named))
                continue
            self.neighbours.probe(contact)
            for start in range(0, len(named), ASKED_MAX):
                some = named[start : start + ASKED_MAX]
                versions = {topic: self._version(topic) for topic, _ in some}
                changed = tuple((topic, version) for topic, version in versions.items() if version)
                self.host.send(contact, StillOpen(some, changed))

    def _version(self, topic: bytes) -> int:
        return self.trees[topic].descriptor.version

    def _roots(self) -> list[Root]:
        return [tree.root for tree in self.trees.values() if tree.root is not None]
