"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. Here is what its parts share, and the
way of a message, a bundle and a timer to them: local subscriptions (`subscribing.py`), this peer as a child
(`membership.py`), as a parent (`children.py`) and as a root (`candidacy.py`, `rendezvous.py`, `leadership_transfer.py`,
`replication.py`, `admissions.py`), its publishers (`publishing.py`), the terms of roots (`terms.py`), what links lost
(`repair.py`) or
carry (`reporting.py`), and what time brings (`housekeeping.py`). What travels in the tree is the data path's matter
(`protocol.forwarding`).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, REPAIR, UP, Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Dropped, Mark, Named, Repaired
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.admissions import Admissions
from quillcast.protocol.topics.candidacy import Candidacies
from quillcast.protocol.topics.changes import SettingsChanges
from quillcast.protocol.topics.children import ChildrenTables
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.flow_control import FlowControl
from quillcast.protocol.topics.forgetting import Forgetting
from quillcast.protocol.topics.housekeeping import Housekeeping
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.membership import TreeMembership
from quillcast.protocol.topics.messages import Accepted, Created, Join, RootIs
from quillcast.protocol.topics.publishing import Publishing
from quillcast.protocol.topics.rendezvous import Rendezvous
from quillcast.protocol.topics.repair import TreeRepair
from quillcast.protocol.topics.replication import Replication
from quillcast.protocol.topics.reporting import Reporting
from quillcast.protocol.topics.subscribing import Subscribing
from quillcast.protocol.topics.terms import Terms
from quillcast.protocol.topics.tree import Tree

_ANSWERS = (Accepted, Created, RootIs)
"""What comes over the overlay where it did not come straight (`Scribe.tell`)."""


class Handlers(Protocol):
    """The paper's upcalls, for guarantees built on top of a topic (Scribe, section 3.2)."""

    def forward_handler(self, bundle: Bundle, *, is_root: bool) -> Bundle | None:
        """Before a bundle goes to the children: return it, changed or not, or None to stop it."""
        ...

    def subscribe_handler(self, join: Join) -> Iterable[Bundle]:
        """A new child was added to the children table; what is returned is sent to it alone."""
        ...

    def fault_handler(self, join: Join) -> Join:
        """The parent is suspected; return the join that repairs the tree, with a note added to it or not."""
        ...


class Scribe:
    """One peer's part in the topic trees."""

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: Neighbours, streams: Streams,
        table: ForwardingTable[Tree], dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.streams, self.table, self.dispatch = streams, table, dispatch
        self.trees = table.flows
        self.descriptors: dict[bytes, Descriptor] = {}
        self.rivals: dict[bytes, Descriptor] = {}  # another owner's word on a topic that is known
        self.handlers: dict[bytes, Handlers] = {}
        self.leaving = False
        self.turn = 0  # which of the channels to a neighbour comes first when it has room again: each in its turn
        self.subscribing = Subscribing(self)
        self.membership = TreeMembership(self)
        self.children = ChildrenTables(self)
        self.terms = Terms(self)
        self.reporting = Reporting(self)
        self.repair = TreeRepair(self)
        self.inspection = Inspection(self)
        self.rendezvous = Rendezvous(self)
        self.leadership_transfer = LeadershipTransfer(self)
        self.replication = Replication(self)
        self.candidacies = Candidacies(self)
        self.publishing = Publishing(self)
        self.admissions = Admissions(self)
        self.changes = SettingsChanges(self)
        self.flow_control = FlowControl(self)
        self.housekeeping = Housekeeping(self)
        self.forgetting = Forgetting(
            self.descriptors, self.replication,
            used=(
                self.trees, self.handlers, self.membership.left_behind, self.leadership_transfer.offers,
                self.candidacies.by_topic, self.changes.asked, self.publishing.publishers, self.publishing.creating,
            ),
            beside=(self.rivals, self.publishing.holders),
            idle_topics_max=config.idle_topics_max,
        )  # fmt: skip
        self.gap_noticed: Callable[[bytes], None] = lambda topic: None  # the recovery above this layer
        self.front_filled: Callable[[Tree, Term], None] = lambda tree, term: None  # it, too

    # ---- topics

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
                self.replication.comparing.changed(topic)
            return
        delivery = descriptor.settings.delivery
        if known is None or known.settings.delivery != delivery:
            self.host.trace(Named(topic, descriptor.name, delivery, descriptor.version))
        descriptor = self.descriptors[topic] = descriptor.interned()
        self.replication.comparing.changed(topic)
        if known is None:
            self.forgetting.note(topic)
        tree = self.trees.get(topic)
        if tree is not None:
            tree.adapt(descriptor)
            self.subscribing.adapt(tree)

    def tree(self, descriptor: Descriptor) -> Tree:
        """The topic's tree at this peer, made if there is none."""
        topic = interned(descriptor.topic)
        tree = self.trees.get(topic)
        if tree is None:
            self.learn(descriptor)
            tree = self.table.open(Tree(topic, self.descriptors[topic], self.table.budget))
            tree.orphaned_leases = self.membership.left_behind.pop(topic, tree.orphaned_leases)
            self.housekeeping.wake(tree)
            self.housekeeping.begin()
        return tree

    def forget(self, tree: Tree) -> None:
        """The topic has no tree here any more."""
        self.housekeeping.forget(tree)
        self.reporting.forget(tree)
        self.leadership_transfer.ends.pop(tree.topic, None)
        self.table.close(tree.topic)
        self.forgetting.note(tree.topic)
        self.flow_control.relieved()

    def leave(self) -> None:
        """Leave all trees in good order: roots hand over, children are sent to their grandparent."""
        self.leaving = True
        for subscription in list(self.subscribing.all()):
            self.subscribing.unsubscribe(subscription)
        for tree in list(self.trees.values()):
            tree.keeping_until = None
            if tree.root is not None:
                self.leadership_transfer.resign(tree)
            self.children.dismiss(tree)
            self.membership.leave_if_idle(tree)

    # ---- upcalls of the overlay

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """A Join on its way to the root ends here, for this peer takes the child in."""
        if not isinstance(message, Join) or message.child.node_id == self.host.me or self.leaving:
            return message, next_hop
        tree = self.trees.get(message.topic)
        if tree is not None and (message.child.node_id in tree.path or tree.parent == message.child):
            return message, next_hop  # a descendant of the child cannot be its parent
        if message.warrant is not None and (tree is None or not tree.attached):
            return message, next_hop  # where a list may say who subscribes, only those who do forward to others
        self.children.adopt(message)
        return None

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """This peer is the closest to the topic, and so its rendezvous point; or it is told something by this way."""
        if self.leaving:
            return  # who sent it asks again, and then it goes to whoever is closest without this peer
        if not isinstance(message, _ANSWERS):
            self.dispatch.routed(message)
        elif key == self.host.me:  # else whom it was for is gone
            self.dispatch.message(source, message)

    def tell(self, to: Contact, message: Message, *, again: bool) -> None:
        """Answer a peer; over the overlay, if an answer did not come straight to it."""
        if to.node_id == self.host.me:
            self.dispatch.message(to, message)
        elif again and self.overlay.active:
            self.overlay.route(message, to.node_id)
        else:
            self.host.send(to, message)

    def leaf_set_changed(self) -> None:
        """Who is closest to a topic may have changed."""
        self.rendezvous.leaf_set_changed()
        self.replication.leaf_set_changed()
        self.candidacies.leaf_set_changed()
        self.membership.join_where_needed()

    # ---- upcalls of the links

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector."""
        self.repair.lost(contact)

    def recovered(self, contact: Contact) -> None:
        """Upcall of the failure detector. Nothing is believed of old: the link's streams tell anew what each holds."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: what a neighbour claims about a topic."""
        self.reporting.changed(sender, key, value)

    def kept(self, key: bytes) -> bytes:
        """The topic's id as its tree has it."""
        tree = self.trees.get(key)
        return key if tree is None else tree.topic

    def linked(self, node: bytes) -> list[Tree]:
        """The trees in which a neighbour is the parent or a child: it is told something of each."""
        return [self.trees[topic] for topic in self.streams.telling(node)]

    def room(self, contact: Contact) -> None:
        """There is credit again towards a peer: its channels go on in turn, and so do publishers whose root it is."""
        trees = [tree for tree in self.linked(contact.node_id) if contact.node_id in tree.children]
        waiting = [tree for tree in trees if tree.children[contact.node_id].cursor < tree.log.end]
        first = self.turn % len(waiting) if waiting else 0
        self.turn += 1
        for tree in (*waiting[first:], *waiting[:first]):
            tree.children[contact.node_id].advance(tree.log)
            if self.host.room(contact) <= 0:
                break
        self.publishing.room(contact)

    # ---- the way of a bundle

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle came: up to be admitted, or down to be moved on."""
        if bundle.envelope.kind is UP:
            self.rendezvous.up(sender, bundle)
            return
        tree = self.trees.get(bundle.topic)
        if tree is None or (tree.term == NO_TERM and not tree.attached):  # nor is it known yet from where on it is owed
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "no_tree"))
            return
        if bundle.envelope.term > tree.term:
            self.terms.heard_of(tree, bundle.envelope.term)
            if tree.root is None:
                self.terms.enter(tree, bundle.envelope.term, 0)
        front = tree.front(bundle.envelope.term) if bundle.envelope.kind is REPAIR else None
        fills_front = front is not None and bundle.envelope.first <= front < bundle.last
        is_new = self.move(tree, bundle)
        if not is_new or (fills_front and self.flow_control.takes_repairs):  # a repeat takes no room
            self.host.release(sender.node_id, bundle.size)
        else:
            self.flow_control.release(sender.node_id, bundle.size)
        if fills_front and is_new:
            self.front_filled(tree, bundle.envelope.term)

    def move(self, tree: Tree, bundle: Bundle) -> bool:
        """Hand a bundle to the forwarding table, past the topic's forward handler where there is one. Was it new?"""
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            changed = handlers.forward_handler(bundle, is_root=tree.root is not None)
            if changed is None:
                return False
            bundle = changed
        is_new = self.table.move(bundle)
        if is_new:
            if bundle.envelope.term != tree.term:
                _deliver_past(tree, bundle)
            elif len(tree.seen.starts) > 1:
                self.gap_noticed(tree.topic)
            if bundle.envelope.kind is REPAIR:
                self.host.trace(Repaired(tree.topic, "neighbour", bundle.count))
            self.reporting.moved(tree, bundle.size)
        return is_new

    def check(self) -> None:
        """Raise AssertionError unless every tree is sound and the indexes by link agree with them."""
        trees = self.trees.values()
        for tree in trees:
            tree.check_place(self.host.me)
        parents = [(tree.parent.node_id, tree) for tree in trees if tree.parent is not None]
        children = [(node, tree) for tree in trees for node in tree.children]
        assert self.membership.parents.counts == Counter([node for node, _ in parents])
        assert self.children.links.counts == Counter([node for node, _ in children])
        for node in dict.fromkeys(node for node, _ in parents + children):
            assert {*self.linked(node)} == {tree for other, tree in parents + children if other == node}
        restless = {tree.topic for tree in trees if tree.is_due}
        assert restless <= {*self.housekeeping.due, *self.reporting.dirty}, "time passes by a topic that waits for it"
        assert self.housekeeping.due.keys() <= self.trees.keys()
        self.publishing.check()
        self.candidacies.check()
        self.forgetting.check()
        assert self.trees.keys() <= self.descriptors.keys()
        self.table.check()


def _deliver_past(tree: Tree, bundle: Bundle) -> None:
    """A repair of a past term goes to the local subscribers; neighbours that lack it will ask."""
    for edge in tree.edges.values():
        edge.take(bundle)
