"""What a peer knows of topics: their descriptors, and the terms that their roots had.

It has learned some because it uses them; of others it keeps the state for their roots (Scribe, section 3.2).
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
from quillcast.protocol.topics.root_messages import TopicEntry
from quillcast.protocol.topics.state.comparing import Comparing
from quillcast.protocol.topics.state.effects import RivalLearned, SettingsLearned
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.permissions import Permissions
from quillcast.protocol.topics.state.records import TopicRecords
from quillcast.protocol.topics.state.tree import Tree


class KnownTopics:
    """The descriptors and terms that this peer knows. All of them are learned here."""

    def __init__(
        self, host: Host, records: TopicRecords, trees: Mapping[bytes, Tree], comparing: Comparing,
        forgetting: Forgetting, seats: Seats, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.comparing, self.forgetting = host, trees, comparing, forgetting
        self.seats, self.dispatch = seats, dispatch
        self.descriptors, self.rivals, self.terms = records.descriptors, records.rivals, records.terms
        self.followed: dict[bytes, Term] = {}  # of topics with publishers here: the term of the root that answers them
        self.permissions = Permissions()

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        first = self.rooted(described(name))
        known = self.descriptors.get(first.topic)
        if known is None or (known.version == 0 and first.topic not in self.trees):
            return first
        if first.settings.root_scope not in ("", known.settings.root_scope):
            raise TwoRootScopes(known.name, known.settings.root_scope, first.settings.root_scope)
        return known

    def rooted(self, descriptor: Descriptor) -> Descriptor:
        """The same with the root scope that the files of scopes give the topic. Raises `LocalError` if it has another.

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
        """Why others cannot use a topic with this descriptor here, in a sentence; empty if they can.

        A peer that no scope claims the topic of may just not know yet.
        """
        return "" if descriptor.creator else self.seats.refusal(descriptor.name, descriptor.settings.root_scope)

    def hidden(self, topic: bytes, root_scope: str) -> str:
        """Why those for whom the topic has this root scope are told nothing of it, in a sentence; empty if they are.

        What is rooted at a scope is that scope's own. Those outside have another topic of that name, if any.
        """
        known = self.descriptors.get(topic)
        if known is None or known.settings.root_scope in ("", root_scope):
            return ""
        return str(TwoRootScopes(known.name, known.settings.root_scope, root_scope))

    def crowded(self, topic: bytes) -> str:
        """Why this peer does nothing for others in a topic that is new to it, in a sentence; empty if it does."""
        if self.forgetting.has_room(topic):
            return ""
        self.host.trace(Mark("topics_full"))
        return (
            f"peer {short(self.host.me)} at {self.host.contact.address} knows {self.forgetting.topics_max} topics, as "
            "many as it may at the word of others (topics.topics_max)"
        )

    def placed(self, descriptor: Descriptor) -> TopicEntry:
        """A word to others whose descriptor of a topic is misplaced: the root scope that it has here."""
        root_scope = self.seats.claiming(descriptor.name)[0]
        settings = msgspec.structs.replace(descriptor.settings, root_scope=root_scope)
        return TopicEntry(descriptor.topic, Descriptor(descriptor.name, settings), NO_TERM)

    def root_anew(self, tree: Tree) -> None:
        """The first word of the scopes came: a topic of which nothing is known goes by it. Raises `TwoRootScopes`."""
        if tree.descriptor.version == 0:
            descriptor = self.descriptors[tree.topic] = self.rooted(tree.descriptor)
            tree.adapt(descriptor)

    def learn(self, descriptor: Descriptor, *, joining: bool = False) -> None:
        """Adopt a descriptor if it supersedes what is known. Of a forged one nothing counts but the name.

        `joining`: nothing has left this peer yet of what its applications ask for, so that a root scope is news to it.
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
        """Terms may be of the sessions of another descriptor of the same name."""
        self.rivals[topic] = other
        self.comparing.changed(topic)

    def spare(self, table: Mapping[bytes, Any]) -> None:
        """Topics in this table are in use: they are not forgotten."""
        self.forgetting.spare(table)

    def forget_too(self, table: MutableMapping[bytes, Any]) -> None:
        """When a topic is forgotten, its entry in this table is as well."""
        self.forgetting.forget_too(table)

    def done_with(self, topic: bytes) -> None:
        """This peer has done with one part that it had in a topic, which may be forgotten if it has no other."""
        self.forgetting.note(topic)

    def offered(self, topic: bytes, offered: Descriptor | None, *, creates: bool) -> Descriptor | None:
        """The topic's descriptor: what is known here, or what is offered, where first use `creates` a topic."""
        if offered is not None and (topic in self.descriptors or creates or offered.version > 0):
            self.learn(offered)
        descriptor = self.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and not creates:
            return None  # somebody here asked for it in vain
        return descriptor

    def follow(self, topic: bytes, term: Term) -> None:
        """A root answers publishers here under this term. Rivals that ask this peer to keep theirs hear of it."""
        self.followed[interned(topic)] = interned(term)

    def follow_no_more(self, topic: bytes) -> None:
        """Nobody publishes in the topic here any more."""
        self.followed.pop(topic, None)

    def enter(self, topic: bytes, term: Term) -> None:
        """Keep a term of the topic, even if this peer is in no tree of it; not of a session without settings."""
        topic, descriptor = interned(topic), self.descriptors.get(topic)
        known = [each.session for each in (descriptor, self.rivals.get(topic)) if each is not None]
        if term.session > max(known, default=0):
            return
        if term > self.terms.get(topic, NO_TERM):
            self.terms[topic] = interned(term)
            self.comparing.changed(topic)

    def latest(self, tree: Tree) -> Term:
        """The latest term of a topic that this peer has heard of."""
        return max(tree.heard, tree.term, self.terms.get(tree.topic, NO_TERM))

    def used(self, topic: bytes) -> Term:
        """The latest term under which this peer was in the topic's tree, or published."""
        tree, followed = self.trees.get(topic), self.followed.get(topic, NO_TERM)
        return followed if tree is None else max(followed, tree.term)

    def entry(self, topic: bytes) -> TopicEntry:
        """What this peer knows of a topic. What it only assumes, because somebody asked for it, does not count."""
        tree, term = self.trees.get(topic), max(self.terms.get(topic, NO_TERM), self.followed.get(topic, NO_TERM))
        if tree is not None:
            term = max(term, tree.heard, tree.term)
        descriptor = self.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and term == NO_TERM:
            descriptor = None
        is_root = tree is not None and tree.root is not None
        return TopicEntry(topic, descriptor, term, is_root, rival=self.outliving(topic))

    def outliving(self, topic: bytes) -> Descriptor | None:
        """The descriptor of a later session that does not stand, because it has no owner and another one has."""
        rival, known = self.rivals.get(topic), self.descriptors.get(topic)
        return rival if rival is not None and known is not None and rival.outlives(known) else None
