"""For people: a topic's live tree, how far its subscriptions are, and who does not cover a position.

A question changes nothing, here or elsewhere. Where this peer has no part in the topic's tree the question itself is
routed to the topic, and whoever is closest answers: as its root, or that there is none. To ask for the root first, as
publishers do, would make one.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.messages import Contact
from quillcast.protocol.topics import lag
from quillcast.protocol.topics.messages import Branch, Laggards, Lagging, Survey
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Inspection:
    """Walks along a topic's tree, and gathers what its peers answer."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host = scribe, scribe.host
        self.surveys: dict[int, dict[bytes, Branch]] = {}
        self.lagging: dict[bytes, dict[bytes, None]] = {}
        self.numbers = 0

    def survey(self, name: str) -> int:
        """Ask every peer of a topic's tree for its place; the answers gather in `surveys[number]`, by peer."""
        self.numbers += 1
        self.surveys[self.numbers] = {}
        topic = self.scribe.describe(name).topic
        message = Survey(topic, self.host.contact, self.numbers)
        tree = self.scribe.trees.get(topic)
        if tree is not None and tree.attached:
            self._survey(message)
        else:
            self._to_root(message)
        return self.numbers

    def who_lags(self, name: str, term: Term, index: int) -> None:
        """Ask down the tree who does not cover a position; the answers gather in `lagging`, by topic."""
        topic = self.scribe.describe(name).topic
        self.lagging[topic] = {}
        self._to_root(Laggards(topic, term, index, self.host.contact))

    def _to_root(self, message: Survey | Laggards) -> None:
        """To the root where it is known, else to whoever is closest to the topic."""
        topic = message.topic
        tree, root = self.scribe.trees.get(topic), self.scribe.publishing.roots.get(topic)
        if tree is not None and tree.root is not None:
            self.receive(self.host.contact, message)
        elif root is not None and root.node_id != self.host.me:
            self.host.send(root, message)
        elif self.scribe.overlay.active:
            self.scribe.overlay.route(message, topic)

    def arrived(self, message: Survey | Laggards) -> None:
        """A question came by the overlay, and this peer is the closest to its topic."""
        tree = self.scribe.trees.get(message.topic)
        if isinstance(message, Survey) and (tree is None or not tree.attached):
            known = self.scribe.descriptors.get(message.topic)
            self._answer(message.asker, Branch(message.topic, message.number, b"", [], 0, NO_TERM, 0, descriptor=known))
        else:
            self.receive(self.host.contact, message)

    def receive(self, sender: Contact, message: Any) -> None:
        """A walk reached this peer, or an answer came back."""
        match message:
            case Survey():
                self._survey(message)
            case Branch(number=number):
                if number in self.surveys:
                    self.surveys[number][sender.node_id] = message
            case Laggards():
                self._name_laggards(message)
            case Lagging(topic, _, peers):
                self.lagging.setdefault(topic, {}).update(dict.fromkeys(peers))

    def _survey(self, message: Survey) -> None:
        tree = self.scribe.trees.get(message.topic)
        if tree is None:
            if not message.down and self.scribe.overlay.active:
                self.scribe.overlay.route(message, message.topic)  # whoever asked took this peer for the root
            return
        if tree.parent is not None and not message.down:
            self.host.send(tree.parent, message)
            return
        branch = self._branch(tree, message.number)
        self._answer(message.asker, branch)
        for child in branch.children:
            self.host.send(child, msgspec.structs.replace(message, down=True))

    def _branch(self, tree: Tree, number: int) -> Branch:
        """This peer's place in a tree."""
        reigns = tree.root is not None
        return Branch(
            tree.topic,
            number,
            tree.parent.node_id if tree.parent is not None else b"",
            [child.contact for child in tree.children.values()],
            len(tree.edges),
            tree.term,
            tree.frontier,
            root=reigns,
            readers=tuple(lag.readers(tree, self.host)[: lag.READERS_MAX]),
            leases=tuple(lag.leases(tree, self.host.now())),
            events=lag.events(tree),
            descriptor=tree.descriptor if reigns else None,
        )

    def _name_laggards(self, message: Laggards) -> None:
        """Name who does not cover the position here, and walk on below (DELIVERY.md, *Guarantees*)."""
        tree = self.scribe.trees.get(message.topic)
        if tree is None:
            return
        behind = tree.laggards(message.term, message.index, self.host.now())
        if behind:
            self._answer(message.asker, Lagging(message.topic, message.index, [n or self.host.me for n in behind]))
        for child in tree.children.values():
            if (child.cover_term, child.cover) < (message.term, message.index):
                self.host.send(child.contact, message)

    def _answer(self, to: Contact, message: Branch | Lagging) -> None:
        if to.node_id == self.host.me:
            self.receive(self.host.contact, message)
        else:
            self.host.send(to, message)
