"""Root state on the k closest peers: descriptors and terms, for whoever is root next (Scribe, section 3.2)."""

from typing import TYPE_CHECKING

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.messages import Contact
from quillcast.core.sparing import shared
from quillcast.core.trace import Mark
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Replicas
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Replication:
    """What this peer keeps for other roots, and what others keep for it."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        self.terms: dict[bytes, Term] = {}
        self.kept_for: dict[bytes, bytes] = {}  # by topic, the closest peer that has what is kept here

    def replicate(self, trees: list[Tree], *, anew: bool = False) -> None:
        """Descriptors and terms go to the k closest peers, gathered per peer (Scribe, section 3.2)."""
        batches: dict[Contact, list[tuple[Descriptor, Term]]] = {}
        for tree in trees:
            root = tree.root
            if root is None:
                continue
            closest = self.overlay.closest(tree.topic, self.config.replicas)
            holders = {contact.node_id: contact for contact in closest if contact.node_id != self.host.me}
            for node, contact in holders.items():
                if anew or node not in root.replicas:
                    batches.setdefault(contact, []).append((tree.descriptor, root.term))
            root.replicas = shared(tuple(holders))
        for contact, entries in batches.items():
            self.host.send(contact, Replicas(entries))

    def pass_on(self) -> None:
        """A newcomer takes over from a root that is gone: the peer next to it gives it what it keeps."""
        batches: dict[Contact, list[tuple[Descriptor, Term]]] = {}
        for topic, term in self.terms.items():
            closest = self.overlay.closest(topic, 2)
            if len(closest) < 2 or closest[1].node_id != self.host.me or self.kept_for.get(topic) == closest[0].node_id:
                continue
            self.kept_for[topic] = closest[0].node_id
            batches.setdefault(closest[0], []).append((self.scribe.descriptors[topic], term))
        for contact, entries in batches.items():
            self.host.trace(Mark("replicas_passed_on"))
            self.host.send(contact, Replicas(entries))

    def keep(self, sender: Contact, message: Replicas) -> None:
        """Keep these, as one of the closest to their topics."""
        for descriptor, term in message.entries:
            self.scribe.learn(descriptor)
            topic = shared(descriptor.topic)
            self.note(topic, shared(term))
            self.kept_for[topic] = shared(sender).node_id

    def note(self, topic: bytes, term: Term) -> None:
        """A reign of the topic that this peer knows of, be it in no tree of it."""
        self.terms[topic] = max(self.terms.get(topic, NO_TERM), term)
