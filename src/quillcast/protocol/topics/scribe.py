"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. `Scribe` passes each upcall to this
layer's parts (`parts.py`); `orders.py` carries out what they order from each other. What travels in the tree belongs to
the data path (`protocol.forwarding`).
"""

from typing import Any

from quillcast.core.errors import LocalError
from quillcast.core.messages import Contact, Message
from quillcast.protocol.topics.messages import Accepted, Join
from quillcast.protocol.topics.parts import Parts
from quillcast.protocol.topics.policy.channels import way_to
from quillcast.protocol.topics.root_messages import Created, RootIs
from quillcast.protocol.topics.state.link_reports import is_topic, stream_of

_ANSWERS = (Accepted, Created, RootIs)
"""Messages that arrive over the overlay if they could not be sent directly (`Answers.tell`)."""


class Scribe:
    """The upcalls of the layers below: one peer's part in the topic trees."""

    __slots__ = ("parts",)

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    # ---- topics

    def awaited(self, topic: bytes) -> list[Contact]:
        """Return the peers whose answer this peer waits for until it takes part in a topic.

        These are replicas if it is to be root; otherwise the peer that it asked for a parent, or the next one on the
        path to the root; before it is part of the network, the peer that it joins through.
        """
        parts = self.parts
        if not parts.overlay.active:
            return parts.overlay.joining.awaited
        tree = parts.trees.get(topic)
        direct = tree.next_parent if tree is not None else None
        way = [direct or parts.overlay.next_hop(topic)]
        return parts.replication.awaited(topic) or [contact for contact in way if contact is not None]

    # ---- upcalls of the overlay

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """Upcall of the overlay: a Join ends here on its path to the root if this peer adopts the child."""
        parts = self.parts
        if not parts.terms.believes(message) or parts.rendezvous.refuses_scope(message):
            return None
        if isinstance(message, Join) and message.child.node_id != parts.host.me and parts.interception.take(message):
            return None
        return message, next_hop

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """Upcall of the overlay: this peer is the topic's rendezvous point, or the message was routed to it."""
        parts = self.parts
        if parts.open_trees.leaving or not parts.terms.believes(message):
            return  # the sender asks again, and then reaches the closest of the other peers
        if parts.rendezvous.refuses_scope(message) or parts.rendezvous.refuses_for_room(message):
            return
        if not isinstance(message, _ANSWERS):
            parts.dispatch.routed(message)
        elif key == parts.host.me:  # else the peer that it was for is gone
            parts.dispatch.message(source, message)

    def root_scopes_changed(self) -> None:
        """Managers name other scopes as root scopes of topics, or other peers as their rendezvous points.

        The first time, this peer has sent nothing yet: requests of its applications follow the managers' orders.
        """
        parts = self.parts
        if parts.overlay.active:
            self.leaf_set_changed()
            return
        for tree in list(parts.trees.values()):
            try:
                parts.known.root_anew(tree)
            except LocalError as two:
                parts.membership.fail(tree, two)
        parts.publishing.root_anew()

    def leaf_set_changed(self) -> None:
        """Upcall of the overlay: the closest peer to a topic may have changed."""
        parts = self.parts
        parts.moving_roots.leaf_set_changed()
        parts.offers.pass_on()
        parts.replication.leaf_set_changed()
        parts.candidacies.leaf_set_changed()
        parts.membership.join_where_needed()

    # ---- upcalls of the links

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: one lost neighbour means all tree links to it are lost."""
        self.parts.children.lost(contact)
        self.parts.repair.lost(contact)

    def recovered(self, contact: Contact) -> None:
        """Upcall of the failure detector. Old reports do not count: the link's streams report again what each holds."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: a neighbour's report on a topic, or on a source's stream in one."""
        if is_topic(key):
            self.parts.reporting.changed(sender, key, value)
        else:
            self.parts.terms.check(stream_of(key)[1])
            self.parts.stream_reporting.changed(sender, key, value)

    def kept(self, key: bytes) -> bytes:
        """Return the topic's id as its tree stores it."""
        tree = self.parts.trees.get(key)
        return key if tree is None else tree.topic

    def room(self, contact: Contact) -> None:
        """Continue the channels to a peer that has credit again, in turn, and the publishers whose root it is."""
        if self.parts.trees:
            self._resume(contact)
        self.parts.publishing.room(contact)

    def _resume(self, contact: Contact) -> None:
        parts, node = self.parts, contact.node_id
        beside = (parts.trees[topic] for topic in parts.placement.leading_to(node) if topic in parts.trees)
        trees = dict.fromkeys([*parts.open_trees.linked(node), *beside])
        ways = [(tree.flow, channel) for tree in trees if (channel := way_to(tree, node)) is not None]
        parts.table.resume(contact, ways)
