"""What a peer knows about topics: their descriptors, and the terms of their roots.

It uses some of these topics, and keeps the state of others for their roots (Scribe, section 3.2).
"""

from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.ids import short
from quillcast.core.interning import interned
from quillcast.core.trace import Mark, Named
from quillcast.protocol.overlay.seats import Seats
from quillcast.protocol.scopes.hierarchy import NoRootScope, TwoRootScopes
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.known.comparing import Comparing
from quillcast.protocol.topics.known.forgetting import Forgetting
from quillcast.protocol.topics.known.permissions import Permissions
from quillcast.protocol.topics.known.records import TopicRecords
from quillcast.protocol.topics.root_messages import TopicEntry
from quillcast.protocol.topics.state.effects import RivalLearned, SettingsLearned
from quillcast.protocol.topics.state.tree import Tree


class KnownTopics:
    """The descriptors and terms that this peer knows. All are learned here."""

    def __init__(
        self, host: Host, records: TopicRecords, trees: Mapping[bytes, Tree], comparing: Comparing,
        forgetting: Forgetting, seats: Seats, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.comparing, self.forgetting = host, trees, comparing, forgetting
        self.seats, self.dispatch = seats, dispatch
        self.descriptors, self.rivals, self.terms = records.descriptors, records.rivals, records.terms
        self.followed: dict[bytes, Term] = {}  # of topics with publishers here: the term of their root
        self.permissions = Permissions()

    def describe(self, name: str) -> Descriptor:
        """Return a topic's descriptor by name: the known one, or what first use would create. Raises `LocalError`."""
        first = self.rooted(described(name))
        known = self.descriptors.get(first.topic)
        if known is None or (known.version == 0 and first.topic not in self.trees):
            return first
        if first.settings.root_scope not in ("", known.settings.root_scope):
            raise TwoRootScopes(known.name, known.settings.root_scope, first.settings.root_scope)
        return known

    def rooted(self, descriptor: Descriptor) -> Descriptor:
        """Return the descriptor with the root scope from the scope files. Raises `LocalError` if it has another.

        A topic with a creator has its rendezvous point near that peer, in the overlay.
        """
        named = descriptor.settings.root_scope
        expected = "" if descriptor.creator else self.seats.root_scope(descriptor.name)
        if named and named != expected:
            raise TwoRootScopes(descriptor.name, expected, named) if expected else NoRootScope(descriptor.name, named)
        if not expected:
            return descriptor
        self.seats.note(descriptor.topic, expected)
        settings = interned(msgspec.structs.replace(descriptor.settings, root_scope=expected))
        return msgspec.structs.replace(descriptor, settings=settings)

    def misplaced(self, descriptor: Descriptor) -> str:
        """Return why others cannot use a topic with this descriptor here, in a sentence; empty if they can.

        A peer that knows no scope claiming the topic may just not know it yet. By now, files may say another root scope
        than a topic in use has.
        """
        name, root = descriptor.name, descriptor.settings.root_scope
        if descriptor.creator:
            return ""
        if self.seats.is_disputed(descriptor.topic, root):
            return self.seats.refusal(name, root) or str(TwoRootScopes(name, self.seats.scope(descriptor.topic), root))
        return self.seats.refusal(name, root)

    def hidden(self, topic: bytes, root_scope: str) -> str:
        """Return why a peer that gives the topic this root scope is told nothing about it, in a sentence; else empty.

        A topic rooted at a scope belongs to that scope. Peers outside may have another topic of that name.
        """
        known = self.descriptors.get(topic)
        if known is None or known.settings.root_scope in ("", root_scope):
            return ""
        return str(TwoRootScopes(known.name, known.settings.root_scope, root_scope))

    def crowded(self, topic: bytes) -> str:
        """Return why this peer does nothing for others in a topic new to it, in a sentence; empty if it does."""
        if self.forgetting.has_room(topic):
            return ""
        self.host.trace(Mark("topics_full"))
        return (
            f"peer {short(self.host.me)} at {self.host.contact.address} knows {self.forgetting.topics_max} topics, the "
            "most that it may learn from other peers (topics.topics_max)"
        )

    def placed(self, descriptor: Descriptor) -> TopicEntry:
        """Return an answer to peers whose descriptor of a topic is misplaced, with the root scope that it has here."""
        root_scope = self.seats.claiming(descriptor.name)[0]
        settings = msgspec.structs.replace(descriptor.settings, root_scope=root_scope)
        return TopicEntry(descriptor.topic, Descriptor(descriptor.name, settings), NO_TERM)

    def root_anew(self, tree: Tree) -> None:
        """Apply the first root scopes that became known to a topic with no other settings. Raises `TwoRootScopes`."""
        if tree.descriptor.version == 0:
            descriptor = self.descriptors[tree.topic] = self.rooted(tree.descriptor)
            tree.adapt(descriptor)

    def learn(self, descriptor: Descriptor, *, joining: bool = False) -> None:
        """Adopt a descriptor if it supersedes what is known. Only the name of a forged one counts.

        `joining`: this peer has not yet sent any request of its applications, so it can still accept a root scope.
        """
        topic = interned(descriptor.topic)
        known = self.descriptors.get(topic)
        if descriptor == known:
            return
        if not descriptor.genuine:
            self.host.trace(Mark("descriptor_forged"))
            descriptor = Descriptor(descriptor.name, creator=descriptor.creator)
        in_use = topic in self.trees and not joining
        if known is not None and known.elsewhere(descriptor) and (known.version or in_use):
            self.host.trace(Mark("other_root_scope"))
            return
        if not descriptor.supersedes(known) and not (known is not None and known.elsewhere(descriptor)):
            if known is not None and (descriptor.rivals(known) or descriptor.outlives(known)):
                self._note_rival(topic, descriptor)
                self.dispatch.order(RivalLearned(topic))
            return
        if known is not None and known.outlives(descriptor):
            self._note_rival(topic, known)
        self.seats.note(topic, descriptor.settings.root_scope)
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
            before, after = (is_restricted(each.access, "subscribe") for each in (known, descriptor))
            lists = descriptor.access != known.access
            self.dispatch.order(SettingsLearned(descriptor, lists=lists, first=after and not before))

    def _note_rival(self, topic: bytes, other: Descriptor) -> None:
        """Note another descriptor of the same name: terms may belong to its sessions."""
        self.rivals[topic] = other
        self.comparing.changed(topic)

    def spare(self, table: Mapping[bytes, Any]) -> None:
        """Do not forget topics in this table, because they are in use."""
        self.forgetting.spare(table)

    def forget_too(self, table: MutableMapping[bytes, Any]) -> None:
        """Delete the entry of a forgotten topic from this table too."""
        self.forgetting.forget_too(table)

    def done_with(self, topic: bytes) -> None:
        """Note that one use of a topic here ended. The topic may be forgotten if there is no other."""
        self.forgetting.note(topic)

    def offered(self, topic: bytes, offered: Descriptor | None, *, creates: bool) -> Descriptor | None:
        """Return the topic's descriptor: the known one, or the one offered if first use `creates` a topic."""
        if offered is not None and (topic in self.descriptors or creates or offered.version > 0):
            self.learn(offered)
        descriptor = self.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and not creates:
            return None  # an application here asked for it in vain
        return descriptor

    def follow(self, topic: bytes, term: Term) -> None:
        """Note the term of the root that answers publishers here. Rival roots that ask this peer are told of it."""
        self.followed[interned(topic)] = interned(term)

    def follow_no_more(self, topic: bytes) -> None:
        """Note that nothing here publishes in the topic any longer."""
        self.followed.pop(topic, None)

    def enter(self, topic: bytes, term: Term) -> None:
        """Record a term of the topic, even outside its tree, unless the settings of its session are unknown."""
        topic, descriptor = interned(topic), self.descriptors.get(topic)
        known = [each.session for each in (descriptor, self.rivals.get(topic)) if each is not None]
        if term.session > max(known, default=0):
            return
        if term > self.terms.get(topic, NO_TERM):
            self.terms[topic] = interned(term)
            self.comparing.changed(topic)

    def latest(self, tree: Tree) -> Term:
        """Return the latest term of a topic that this peer has heard of."""
        return max(tree.heard, tree.term, self.terms.get(tree.topic, NO_TERM))

    def used(self, topic: bytes) -> Term:
        """Return the latest term under which this peer was in the topic's tree, or published."""
        tree, followed = self.trees.get(topic), self.followed.get(topic, NO_TERM)
        return followed if tree is None else max(followed, tree.term)

    def entry(self, topic: bytes) -> TopicEntry:
        """Return what this peer knows about a topic. Settings that it only assumes, after a request, do not count."""
        tree, term = self.trees.get(topic), max(self.terms.get(topic, NO_TERM), self.followed.get(topic, NO_TERM))
        if tree is not None:
            term = max(term, tree.heard, tree.term)
        descriptor = self.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and term == NO_TERM:
            descriptor = None
        is_root = tree is not None and tree.root is not None
        return TopicEntry(topic, descriptor, term, is_root, rival=self.outliving(topic))

    def outliving(self, topic: bytes) -> Descriptor | None:
        """Return a descriptor of a later session that does not apply: it has no owner, and the known one has."""
        rival, known = self.rivals.get(topic), self.descriptors.get(topic)
        return rival if rival is not None and known is not None and rival.outlives(known) else None
