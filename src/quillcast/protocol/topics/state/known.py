"""What a peer knows of topics: their descriptors, and the terms that their roots had.

It has learned some because it uses them; of others it keeps the state for their roots (Scribe, section 3.2).
"""

from collections.abc import Mapping

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.trace import Mark, Named
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.messages import TopicEntry
from quillcast.protocol.topics.state.comparing import Comparing
from quillcast.protocol.topics.state.effects import CarryOut, SettingsLearned
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.records import TopicRecords
from quillcast.protocol.topics.state.tree import Tree


class KnownTopics:
    """The descriptors and terms that this peer knows. All of them are learned here."""

    def __init__(
        self, host: Host, records: TopicRecords, trees: Mapping[bytes, Tree], comparing: Comparing,
        forgetting: Forgetting, carry_out: CarryOut,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.comparing, self.forgetting = host, trees, comparing, forgetting
        self.carry_out = carry_out
        self.descriptors, self.rivals, self.terms = records.descriptors, records.rivals, records.terms

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        descriptor = described(name)
        return self.descriptors.get(descriptor.topic, descriptor)

    def learn(self, descriptor: Descriptor) -> None:
        """Adopt a descriptor if it supersedes what is known. Of a forged one nothing counts but the name."""
        topic = interned(descriptor.topic)
        known = self.descriptors.get(topic)
        if descriptor == known:
            return
        if not descriptor.genuine:
            self.host.trace(Mark("descriptor_forged"))
            descriptor = Descriptor(descriptor.name, creator=descriptor.creator)
        if not descriptor.supersedes(known):
            if known is not None and descriptor.rivals(known):
                self.rivals[descriptor.topic] = descriptor
                self.comparing.changed(topic)
            return
        delivery = descriptor.settings.delivery
        if known is None or known.settings.delivery != delivery:
            self.host.trace(Named(topic, descriptor.name, delivery, descriptor.version))
        descriptor = self.descriptors[topic] = descriptor.interned()
        self.comparing.changed(topic)
        if known is None:
            self.forgetting.note(topic)
        tree = self.trees.get(topic)
        if tree is not None:
            tree.adapt(descriptor)
        if known is not None:
            self.carry_out(SettingsLearned(descriptor))

    def enter(self, topic: bytes, term: Term) -> None:
        """Keep a term of the topic, even if this peer is in no tree of it."""
        topic = interned(topic)
        if term > self.terms.get(topic, NO_TERM):
            self.terms[topic] = interned(term)
            self.comparing.changed(topic)

    def entry(self, topic: bytes) -> TopicEntry:
        """What this peer knows of a topic. What it only assumes, because somebody asked for it, does not count."""
        tree, term = self.trees.get(topic), self.terms.get(topic, NO_TERM)
        if tree is not None:
            term = max(term, tree.heard, tree.term)
        descriptor = self.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and term == NO_TERM:
            descriptor = None
        return TopicEntry(topic, descriptor, term, tree is not None and tree.root is not None)
