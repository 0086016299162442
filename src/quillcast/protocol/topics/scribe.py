"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. Three classes pass upcalls of the
layers below to the parts that handle them (`parts.py`): `Scribe` those of the overlay, `LinkUpcalls` those of the
links, and `Resumption` new credit. `orders.py` carries out what the parts order from each other. What travels in the
tree belongs to the data path (`protocol.forwarding`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.interception import Interception
from quillcast.protocol.topics.membership.repair import TreeRepair
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.messages import Accepted, Join
from quillcast.protocol.topics.policy.channels import way_to
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root_messages import Created, RootIs
from quillcast.protocol.topics.state.effects import RoomTowards
from quillcast.protocol.topics.state.link_reports import is_topic, stream_of
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees

_ANSWERS = (Accepted, Created, RootIs)
"""Messages that arrive over the overlay if they could not be sent directly (`Answers.tell`)."""


class DependsOnLeafSet(Protocol):
    """A part whose state depends on which peer is the closest to a topic."""

    def leaf_set_changed(self) -> None:
        """The closest peer to a topic may have changed."""
        ...


class Scribe:
    """The upcalls of the overlay: one peer's part in the topic trees."""

    __slots__ = ("dispatch", "interception", "me", "parts", "rendezvous", "terms", "trees")

    def __init__(
        self, me: bytes, trees: Trees, terms: Terms, interception: Interception, rendezvous: Rendezvous,
        parts: Sequence[DependsOnLeafSet], dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`parts` are told, in this order, that the leaf set changed."""
        self.me, self.trees, self.terms, self.interception = me, trees, terms, interception
        self.rendezvous, self.parts, self.dispatch = rendezvous, parts, dispatch

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """Upcall of the overlay: a Join ends here on its path to the root if this peer adopts the child."""
        if not self.terms.believes(message) or self.rendezvous.refuses_scope(message):
            return None
        if isinstance(message, Join) and message.child.node_id != self.me and self.interception.take(message):
            return None
        return message, next_hop

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """Upcall of the overlay: this peer is the topic's rendezvous point, or the message was routed to it."""
        if self.trees.leaving or not self.terms.believes(message):
            return  # the sender asks again, and then reaches the closest of the other peers
        if self.rendezvous.refuses_scope(message) or self.rendezvous.refuses_for_room(message):
            return
        if not isinstance(message, _ANSWERS):
            self.dispatch.routed(message)
        elif key == self.me:  # else the peer that it was for is gone
            self.dispatch.message(source, message)

    def leaf_set_changed(self) -> None:
        """Upcall of the overlay: the closest peer to a topic may have changed."""
        for part in self.parts:
            part.leaf_set_changed()


class LinkUpcalls:
    """The upcalls of the links: neighbours that are lost, and what neighbours report."""

    __slots__ = ("children", "repair", "reporting", "stream_reporting", "terms", "trees")

    def __init__(
        self, trees: Mapping[bytes, Tree], terms: Terms, children: ChildrenTables, repair: TreeRepair,
        reporting: Reporting, stream_reporting: StreamReporting,
    ) -> None:  # fmt: skip
        self.trees, self.terms, self.children, self.repair = trees, terms, children, repair
        self.reporting, self.stream_reporting = reporting, stream_reporting

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: one lost neighbour means all tree links to it are lost."""
        self.children.lost(contact)
        self.repair.lost(contact)

    def recovered(self, contact: Contact) -> None:
        """Upcall of the failure detector. Old reports do not count: the link's streams report again what each holds."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: a neighbour's report on a topic, or on a source's stream in one."""
        if is_topic(key):
            self.reporting.changed(sender, key, value)
        else:
            self.terms.check(stream_of(key)[1])
            self.stream_reporting.changed(sender, key, value)

    def kept(self, key: bytes) -> bytes:
        """Return the topic's id as its tree stores it."""
        tree = self.trees.get(key)
        return key if tree is None else tree.topic


class Resumption:
    """Continues what waited for room towards a peer."""

    __slots__ = ("placement", "publishing", "table", "trees")

    def __init__(
        self, trees: Trees, placement: Placement, table: ForwardingTable, publishing: Publishing, dispatch: Dispatch
    ) -> None:
        self.trees, self.placement, self.table, self.publishing = trees, placement, table, publishing
        dispatch.on_orders((RoomTowards,), self._room)

    def room(self, contact: Contact) -> None:
        """Continue the channels to a peer that has credit again, in turn, and the publishers whose root it is."""
        if self.trees.by_topic:
            self._resume(contact)
        self.publishing.room(contact)

    def _resume(self, contact: Contact) -> None:
        node, by_topic = contact.node_id, self.trees.by_topic
        beside = (by_topic[topic] for topic in self.placement.leading_to(node) if topic in by_topic)
        trees = dict.fromkeys([*self.trees.linked(node), *beside])
        ways = [(tree.flow, channel) for tree in trees if (channel := way_to(tree, node)) is not None]
        self.table.resume(contact, ways)

    def _room(self, order: RoomTowards) -> None:
        self.room(order.contact)
