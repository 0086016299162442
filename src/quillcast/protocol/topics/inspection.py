"""For people: a topic's live tree, and who does not cover a position."""

from typing import TYPE_CHECKING, Any

import msgspec

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.protocol.topics.messages import Branch, Laggards, Lagging, Survey

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
        descriptor = self.scribe.describe(name)
        message = Survey(descriptor.topic, self.host.contact, self.numbers)
        tree = self.scribe.trees.get(descriptor.topic)
        if tree is not None and tree.attached:
            self._survey(message)
        else:
            self.scribe.publishing.with_root(descriptor, lambda root: self._to_root(root, message))
        return self.numbers

    def who_lags(self, name: str, term: Term, index: int) -> None:
        """Ask down the tree who does not cover a position; the answers gather in `lagging`, by topic."""
        descriptor = self.scribe.describe(name)
        self.lagging[descriptor.topic] = {}
        message = Laggards(descriptor.topic, term, index, self.host.contact)
        self.scribe.publishing.with_root(descriptor, lambda root: self._to_root(root, message))

    def _to_root(self, root: Contact, message: Survey | Laggards) -> None:
        if root.node_id == self.host.me:
            self.receive(root, message)
        else:
            self.host.send(root, message)

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
            return
        if tree.parent is not None and not message.down:
            self.host.send(tree.parent, message)
            return
        children = [child.contact for child in tree.children.values()]
        parent = tree.parent.node_id if tree.parent is not None else b""
        branch = Branch(message.topic, message.number, parent, children, len(tree.edges), tree.term, tree.frontier)
        self._answer(message.asker, branch)
        for child in children:
            self.host.send(child, msgspec.structs.replace(message, down=True))

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
