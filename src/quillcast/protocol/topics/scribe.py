"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2; DESIGN.md, section 4).

The tree is the union of the subscribers' routes to the topic's rendezvous point. What travels in it is the data
path's matter (`protocol.forwarding`); what its root does is `rendezvous.py`; what publishers do is `publishing.py`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from quillcast.core.bundle import NO_TERM, Bundle, Kind, Position, Term
from quillcast.core.errors import Malformed, QuillcastError, UnknownTopic
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import (
    Attached,
    ChildAdded,
    ChildRemoved,
    Detached,
    Dropped,
    Mark,
    Named,
    Repaired,
    Subscribed,
    Unsubscribed,
)
from quillcast.protocol.forwarding.channels import LinkChannel
from quillcast.protocol.forwarding.edge import Edge, Subscriber
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics import claims
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.messages import (
    Accepted,
    Branch,
    Create,
    Created,
    Describe,
    Described,
    FindRoot,
    HandOver,
    Join,
    Laggards,
    Lagging,
    Leave,
    NotRoot,
    Orphaned,
    Receipts,
    Refused,
    Rejoin,
    Replicas,
    RootIs,
    Survey,
)
from quillcast.protocol.topics.pacing import Pacing
from quillcast.protocol.topics.publishing import Publishing
from quillcast.protocol.topics.rendezvous import Rendezvous
from quillcast.protocol.topics.tree import Child, Departed, Tree

FALLBACKS_MAX = 3  # parents named to children for the case that theirs dies; a guess


class JoinTimeout(msgspec.Struct, frozen=True):
    """Has a parent accepted this peer meanwhile?"""

    topic: bytes
    attempt: int


class Report(msgspec.Struct, frozen=True):
    """Tell the neighbours in trees what changed since the last report."""


class Sweep(msgspec.Struct, frozen=True):
    """Look over leases, past terms and publishers."""


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


class Subscription:
    """A local subscription, for `unsubscribe` and `drained`."""

    __slots__ = ("edge", "key", "start", "topic")

    def __init__(self, topic: bytes, key: bytes, edge: Edge, start: str) -> None:
        self.topic, self.key, self.edge, self.start = topic, key, edge, start


class Scribe:
    """One peer's part in the topic trees."""

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: Neighbours, streams: Streams,
        table: ForwardingTable,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.streams, self.table = streams, table
        self.trees: dict[bytes, Tree] = {}
        self.descriptors: dict[bytes, Descriptor] = {}
        self.by_parent: dict[bytes, dict[bytes, None]] = {}
        self.by_child: dict[bytes, dict[bytes, None]] = {}
        self.subscriptions: dict[bytes, Subscription] = {}
        self.handlers: dict[bytes, Handlers] = {}
        self.dirty: dict[bytes, None] = {}
        self.report_set = False
        self.leaving = False
        self.numbers = 0
        self.surveys: dict[int, list[Branch]] = {}
        self.lagging: dict[bytes, dict[bytes, None]] = {}
        self.rendezvous = Rendezvous(self)
        self.publishing = Publishing(self)
        self.pacing = Pacing(self)
        self.swept_at = host.now()
        self.sweep_set = False
        self.gap_noticed: Callable[[], None] = lambda: None  # the recovery above this layer

    # ---- the application's calls

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        descriptor = described(name)
        return self.descriptors.get(descriptor.topic, descriptor)

    def subscribe(
        self, name: str, subscriber: Subscriber, *, start: str = "now", delivery: str | None = None
    ) -> Subscription:
        """Subscribe to a topic. `start` is now or earliest (as far back as the parent's buffer reaches).

        A subscriber that asks for less than a reliable topic gives (`delivery` best_effort) is not held back by gaps.
        """
        descriptor = self.describe(name)
        tree = self.tree(descriptor)
        ordered = descriptor.settings.reliable and delivery != "best_effort"
        self.numbers += 1
        key = b"edge" + self.numbers.to_bytes(8, "big")
        edge = Edge(self.host, tree.topic, subscriber, tree.flow.log.end, ordered=ordered)
        subscription = self.subscriptions[key] = Subscription(tree.topic, key, edge, start)
        if tree.attached:
            self._start(tree, key, edge)
        else:
            tree.unstarted[key] = edge
            self.join(tree)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. A peer that has no more use for the topic leaves the tree once its parent is known."""
        if self.subscriptions.pop(subscription.key, None) is None:
            return
        tree = self.trees[subscription.topic]
        tree.unstarted.pop(subscription.key, None)
        if tree.edges.pop(subscription.key, None) is not None:
            del tree.flow.channels[subscription.key]
            self.host.trace(Unsubscribed(tree.topic))
        self.touch(tree)
        self._leave_if_idle(tree)

    def drained(self, subscription: Subscription) -> None:
        """The application's queue has room again."""
        tree = self.trees.get(subscription.topic)
        if tree is not None and subscription.key in tree.edges:
            tree.flow.advance(subscription.key)
            self.touch(tree)

    def tree(self, descriptor: Descriptor) -> Tree:
        """The topic's tree at this peer, made if there is none."""
        topic = descriptor.topic
        tree = self.trees.get(topic)
        if tree is None:
            self.learn(descriptor)
            flow = self.table.open(topic, keeps=descriptor.settings.reliable)
            tree = self.trees[topic] = Tree(self.descriptors[topic], flow)
            self.sweep_soon()
        return tree

    def learn(self, descriptor: Descriptor) -> None:
        """Adopt a descriptor if it supersedes what is known."""
        known = self.descriptors.get(descriptor.topic)
        if known is None:
            self.host.trace(Named(descriptor.topic, descriptor.name))
        if descriptor.supersedes(known):
            self.descriptors[descriptor.topic] = descriptor
            tree = self.trees.get(descriptor.topic)
            if tree is not None:
                tree.descriptor = descriptor
                tree.flow.keeps = descriptor.settings.reliable
                if tree.root is not None:
                    tree.root.descriptor = descriptor

    def _start(self, tree: Tree, key: bytes, edge: Edge) -> None:
        """A subscription begins at this peer's frontier: what is admitted after this will come."""
        flow = tree.flow
        earliest = self.subscriptions[key].start == "earliest" and len(flow.log) > 0
        kept = flow.log.at(flow.log.base) if earliest else None
        first = kept.envelope.first if kept is not None else flow.frontier
        edge.begin(flow.term, first)
        edge.cursor = flow.log.first_over(first)
        tree.edges[key] = edge
        flow.channels[key] = edge
        self.host.trace(Subscribed(tree.topic, flow.term, first))
        edge.subscriber.started(Position(flow.term, first))
        edge.advance(flow.log)
        self.touch(tree)

    # ---- joining

    def join(self, tree: Tree, *, fault: bool = False) -> None:
        """Ask the overlay for a parent: route a Join to the topic (Scribe, figure 2, line 6)."""
        if tree.attached or not tree.needed:
            return
        tree.joining = True
        tree.attempt += 1
        if self.overlay.active:
            if self.overlay.is_closest(tree.topic):
                self.rendezvous.become(tree, "took_over" if tree.heard != NO_TERM or tree.flow.begun else "created")
                return
            self.overlay.route(self._join_message(tree, fault=fault), tree.topic)
        self._expect_parent(tree)

    def _join_message(self, tree: Tree, *, fault: bool) -> Join:
        sure = tree.attempt > 2 or tree.descriptor.version > 0
        join = Join(tree.topic, self.host.contact, tree.have(), tree.descriptor.digest,
                    tree.descriptor if sure or tree.edges or tree.unstarted else None, tree.attempt)  # fmt: skip
        handlers = self.handlers.get(tree.topic)
        return handlers.fault_handler(join) if fault and handlers is not None else join

    def _expect_parent(self, tree: Tree) -> None:
        wait = min(self.config.join_timeout_s * 2 ** min(tree.attempt - 1, 4), self.config.join_timeout_max_s)
        self.host.set_timer(JoinTimeout(tree.topic, tree.attempt), wait * (1 + self.host.random.random() / 4))

    def _join_timeout(self, topic: bytes, attempt: int) -> None:
        tree = self.trees.get(topic)
        if tree is None or tree.attached or tree.attempt != attempt:
            return
        if not tree.needed:
            self.close(tree)
            return
        self.host.trace(Mark("join_retried"))
        self.join(tree)

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """Upcall of the overlay: a Join on its way to the root ends here, for this peer takes the child in."""
        if not isinstance(message, Join) or message.child.node_id == self.host.me or self.leaving:
            return message, next_hop
        tree = self.trees.get(message.topic)
        if tree is not None and (message.child.node_id in tree.path or tree.parent == message.child):
            return message, next_hop  # a descendant of the child cannot be its parent
        if tree is None and message.descriptor is None and message.topic not in self.descriptors:
            return message, next_hop  # nothing is known of the topic: let the root decide
        self.adopt(message)
        return None

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """Upcall of the overlay: this peer is the closest to the topic, and so its rendezvous point."""
        match message:
            case Join():
                self._deliver_join(message)
            case Create():
                self.rendezvous.create(message)
            case FindRoot():
                self.rendezvous.find(message)

    def _deliver_join(self, join: Join) -> None:
        if join.child.node_id == self.host.me:
            tree = self.trees.get(join.topic)
            if tree is not None and not tree.attached and tree.needed:
                self.rendezvous.become(tree, "took_over")
            return
        descriptor = self.rendezvous.known(join.topic, join.descriptor)
        if descriptor is None:
            why = "unknown" if join.descriptor is not None else "describe"
            self.host.send(join.child, Refused(join.topic, why))
            return
        tree = self.tree(descriptor)
        self._heard(tree, join.have.term if join.have else NO_TERM)
        if tree.root is None:
            self.rendezvous.become(tree, "took_over" if join.have is not None else "created")
        self.adopt(join)

    def adopt(self, join: Join) -> None:
        """Enter the child in the children table; a new forwarder joins the tree too (Scribe, membership management)."""
        descriptor = join.descriptor or self.descriptors.get(join.topic)
        if descriptor is None:
            self.host.send(join.child, Refused(join.topic, "describe"))
            return
        tree = self.tree(descriptor)
        child = join.child.node_id
        if child in tree.path or tree.parent == join.child:
            self.host.send(join.child, Refused(join.topic, "loop"))
            return
        if self._full(tree, child):
            self._shed(tree, join)
            return
        if join.have is not None:
            self._heard(tree, join.have.term)
        if tree.attached:
            self._accept(tree, join)
        else:
            tree.waiting[child] = join
            if not tree.joining:
                self.join(tree)

    def _full(self, tree: Tree, child: bytes) -> bool:
        members = tree.children.keys() | tree.waiting.keys()
        return len(members) >= self.config.children_per_topic_max and child not in members

    def _shed(self, tree: Tree, join: Join) -> None:
        """No more children than the bound: the newcomer joins through one of those that are (bottleneck remover)."""
        self.host.trace(Mark("shed"))
        siblings = [child.contact for child in tree.children.values()]
        self.host.send(join.child, Refused(join.topic, "full", siblings))

    def _accept(self, tree: Tree, join: Join) -> None:
        flow, contact = tree.flow, join.child
        have = join.have
        if have is None:
            start = flow.frontier
        elif have.term == flow.term:
            start = have.frontier
        else:
            start = 0  # it was here under an earlier root: this one's events are owed from the first
        flow.start = min(flow.start, start)
        child = tree.children.get(contact.node_id)
        cursor = flow.log.first_over(start)
        if child is None:
            child = Child(contact, LinkChannel(self.host, contact, cursor), flow.term, start)
            self._enter(tree, child)
        child.channel.cursor = cursor
        child.cover_term, child.cover = flow.term, start
        self._send_accepted(tree, contact, start, join.digest)
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            for bundle in handlers.subscribe_handler(join):
                self.host.carry(contact, bundle)
        child.channel.advance(flow.log)
        self.rendezvous.joined(tree, join)
        self.touch(tree)

    def _send_accepted(self, tree: Tree, contact: Contact, start: int, digest: bytes) -> None:
        descriptor = None if digest == tree.descriptor.digest else tree.descriptor
        path = tree.path_here(self.host.me)
        self.host.send(contact, Accepted(tree.topic, tree.flow.term, start, path, self.fallbacks(tree), descriptor))

    def _enter(self, tree: Tree, child: Child) -> None:
        node = child.contact.node_id
        tree.children[node] = child
        tree.departed.pop(node, None)
        tree.waiting.pop(node, None)
        tree.flow.channels[node] = child.channel
        self._index(self.by_child, child.contact, tree.topic)
        self.streams.put(
            child.contact, tree.topic, claims.encode(tree.parent_claim(self.host.me, self.fallbacks(tree)))
        )
        self.host.trace(ChildAdded(tree.topic, node, len(tree.children)))

    def fallbacks(self, tree: Tree) -> list[Contact]:
        """Whom a child may turn to should this peer die: the grandparent or the next root, then siblings with room."""
        if tree.root is not None:
            known = [contact for contact in self.overlay.closest(tree.topic, 2) if contact.node_id != self.host.me][:1]
        else:
            known = [tree.parent] if tree.parent is not None else []
        siblings = [child.contact for child in tree.children.values() if child.contact not in known]
        return [*known, *siblings][:FALLBACKS_MAX]

    def _accepted(self, parent: Contact, message: Accepted) -> None:
        tree = self.trees.get(message.topic)
        if tree is None or tree.root is not None or not tree.needed:
            self.host.send(parent, Leave(message.topic))
            if tree is not None and tree.root is None:
                self.close(tree)
            return
        if self.host.me in message.path:
            self.host.trace(Mark("loop_refused"))
            self.host.send(parent, Leave(message.topic, moved=True))
            return
        if tree.parent is not None and tree.parent.node_id != parent.node_id:
            self.host.send(parent, Leave(message.topic, moved=True))
            return
        self._attach(tree, parent, message)

    def _attach(self, tree: Tree, parent: Contact, message: Accepted) -> None:
        if message.descriptor is not None:
            self.learn(message.descriptor)
        if parent.node_id in tree.children:
            self._remove(tree, parent.node_id, "moved", lease=True)
        how = "fallback" if tree.lost_parent and tree.attempt == 0 else "routed" if tree.lost_parent else "joined"
        new = tree.parent is None
        tree.parent, tree.path, tree.fallbacks = parent, message.path, message.fallbacks
        tree.joining, tree.lost_parent, tree.attempt = False, b"", 0
        self._index(self.by_parent, parent, tree.topic)
        flow = tree.flow
        if message.term > flow.term:
            self.enter_term(tree, message.term, message.start)
        elif message.term == flow.term:
            flow.start = min(flow.start, message.start)
        self._heard(tree, message.term)
        if new:
            self.host.trace(Attached(tree.topic, parent.node_id, how, len(tree.path)))
        self.streams.put(parent, tree.topic, claims.encode(tree.child_claim(self.host.now())))
        self.settled(tree)

    def settled(self, tree: Tree) -> None:
        """This peer has a parent or is root: whom it took in meanwhile, and local subscriptions, begin."""
        tree.joining = False
        for join in list(tree.waiting.values()):
            del tree.waiting[join.child.node_id]
            if join.child.node_id in tree.path:
                self.host.send(join.child, Refused(tree.topic, "loop"))
            else:
                self._accept(tree, join)
        for child in tree.children.values():
            child.channel.advance(tree.flow.log)
        for key, edge in list(tree.unstarted.items()):
            del tree.unstarted[key]
            self._start(tree, key, edge)
        self.touch(tree)

    def enter_term(self, tree: Tree, term: Term, start: int) -> None:
        """A new reign: its events are owed from `start` on to this peer and to its subscribers."""
        flow = tree.flow
        for edge in tree.edges.values():
            edge.turn(flow.log)
        flow.begin(term, start, self.host.now() + self.config.past_terms_s)
        for edge in tree.edges.values():
            edge.begin(term, start)
        tree.parent_frontier = 0
        tree.heard = max(tree.heard, term)
        self.touch(tree)

    def _heard(self, tree: Tree, term: Term) -> None:
        """Terms only grow: a root that hears of a later one than its own begins one later still."""
        tree.heard = max(tree.heard, term)
        if tree.root is not None and tree.heard > tree.root.term:
            self.rendezvous.outdone(tree)

    # ---- leaving and losing

    def _refused(self, sender: Contact, message: Refused) -> None:
        tree = self.trees.get(message.topic)
        if tree is None or tree.attached:
            return
        match message.why:
            case "full" if message.instead:
                self._join_directly([tree], self._nearest(message.instead), lost=b"")
            case "unknown":
                self.fail(tree, self.rendezvous.unknown(tree.descriptor.name))
            case "describe":
                self.host.send(sender, Described([tree.descriptor]))
                self.overlay.route(msgspec.structs.replace(self._join_message(tree, fault=False),
                                                           descriptor=tree.descriptor), tree.topic)  # fmt: skip
            case _:
                self.join(tree)

    def _nearest(self, contacts: list[Contact]) -> Contact:
        """The nearest by proximity; whoever is not measured yet comes last, spread by chance."""
        far = float("inf")
        return min(
            (contact for contact in contacts),
            key=lambda contact: (self.host.proximity(contact.node_id) or far, self.host.random.random()),
        )

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """The topic cannot be had: tell the local subscribers and forget it."""
        for key, edge in [*tree.unstarted.items(), *tree.edges.items()]:
            self.subscriptions.pop(key, None)
            edge.subscriber.failed(error)
        for join in tree.waiting.values():
            self.host.send(join.child, Refused(tree.topic, "unknown"))
        tree.unstarted.clear()
        tree.waiting.clear()
        self._leave_if_idle(tree)

    def _join_directly(self, trees: list[Tree], to: Contact, lost: bytes) -> None:
        """One message to a parent known beforehand, naming all these topics."""
        joins = []
        for tree in trees:
            tree.joining = True
            joins.append(self._join_message(tree, fault=bool(lost)))
            self._expect_parent_soon(tree)
        self.host.send(to, Rejoin(self.host.contact, lost, joins))

    def _expect_parent_soon(self, tree: Tree) -> None:
        self.host.set_timer(JoinTimeout(tree.topic, tree.attempt), self.config.join_timeout_s)

    def _rejoin(self, sender: Contact, message: Rejoin) -> None:
        """Orphans of a common loss wait for nobody who waits as they do; all others are taken in."""
        for join in message.joins:
            tree = self.trees.get(join.topic)
            fellow = tree is not None and not tree.attached and tree.lost_parent == message.lost != b""
            if self.leaving or fellow:
                self.host.send(sender, Refused(join.topic, "orphan"))
                continue
            if tree is None or not tree.attached:
                self._adopt_orphan(join)
            else:
                self.adopt(join)

    def _adopt_orphan(self, join: Join) -> None:
        """The next root is asked before it knows that it is root."""
        if self.overlay.active and self.overlay.is_closest(join.topic):
            self._deliver_join(join)
        else:
            self.adopt(join)

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: one neighbour lost means every tree link to it."""
        node = contact.node_id
        orphaned = [self.trees[topic] for topic in list(self.by_parent.get(node, ())) if topic in self.trees]
        for topic in list(self.by_child.get(node, ())):
            self._remove(self.trees[topic], node, "lost", lease=True)
        self.streams.forget(node)
        self.publishing.lost(node)
        groups: dict[Contact, list[Tree]] = {}
        for tree in orphaned:
            self._detach(tree, "lost")
            fallback = self._fallback(tree, node)
            if not tree.needed:
                self.close(tree)
            elif fallback is None:
                self.join(tree, fault=True)
            else:
                groups.setdefault(fallback, []).append(tree)
        for fallback, trees in groups.items():
            self._turn_to(fallback, trees, node)

    def _fallback(self, tree: Tree, lost: bytes) -> Contact | None:
        for contact in tree.fallbacks:
            if (
                contact.node_id != lost
                and not self.neighbours.suspected(contact.node_id)
                and (contact.node_id not in tree.children)
            ):
                return contact
        return None

    def _turn_to(self, fallback: Contact, trees: list[Tree], lost: bytes) -> None:
        if fallback.node_id == self.host.me:  # this peer was named as the next root
            for tree in trees:
                self.join(tree, fault=True)
            return
        self.host.trace(Mark("fallback_parent"))
        for tree in trees:
            tree.lost_parent = lost
        self._join_directly(trees, fallback, lost)

    def _detach(self, tree: Tree, why: str) -> None:
        if tree.parent is None:
            return
        parent = tree.parent
        self.host.trace(Detached(tree.topic, parent.node_id, why))
        tree.parent, tree.path, tree.attempt = None, [], 0
        tree.lost_parent = parent.node_id
        self.streams.drop(parent, tree.topic)
        self._unindex(self.by_parent, parent.node_id, tree.topic)

    def drop_parent(self, tree: Tree, why: str) -> None:
        """Leave the parent for another, or to be root."""
        if tree.parent is not None:
            self.host.send(tree.parent, Leave(tree.topic, moved=True))
            self._detach(tree, why)

    def _remove(self, tree: Tree, node: bytes, why: str, *, lease: bool) -> None:
        """Take a child out of the table; where a lease goes on, its last report still holds stability back."""
        child = tree.children.pop(node, None)
        tree.waiting.pop(node, None)
        if child is None:
            return
        del tree.flow.channels[node]
        self.streams.drop(child.contact, tree.topic)
        self._unindex(self.by_child, node, tree.topic)
        if lease:
            tree.departed[node] = Departed(child, self.host.now() + self.config.lease_s)
        self.host.trace(ChildRemoved(tree.topic, node, why))
        self.touch(tree)

    def _left(self, sender: Contact, message: Leave) -> None:
        tree = self.trees.get(message.topic)
        if tree is None:
            return
        self._remove(tree, sender.node_id, "moved" if message.moved else "left", lease=message.moved)
        self._leave_if_idle(tree)

    def _leave_if_idle(self, tree: Tree) -> None:
        """Nothing here wants the topic: leave the parent, recursively up the tree (Scribe, figure 3, lines 9 to 12).

        Before the parent is known the unsubscribe is delayed: the answer to the join finds nothing needed.
        """
        if tree.needed or tree.root is not None:
            return
        if tree.parent is not None:
            departed = any(lease.until > self.host.now() for lease in tree.departed.values())
            self.host.send(tree.parent, Leave(tree.topic, moved=departed))
            self._detach(tree, "left")
            self.close(tree)
        elif not tree.joining:
            self.close(tree)

    def follow(self, tree: Tree, root: Contact) -> None:
        """Become a child of the peer that this one handed its topic over to."""
        self._join_directly([tree], root, lost=b"")

    def close(self, tree: Tree) -> None:
        """Forget a topic that nothing here needs."""
        self.trees.pop(tree.topic, None)
        self.dirty.pop(tree.topic, None)
        self.table.close(tree.topic)

    def _orphaned(self, sender: Contact, message: Orphaned) -> None:
        trees = []
        for topic in message.topics:
            tree = self.trees.get(topic)
            if tree is not None and tree.parent is not None and tree.parent.node_id == sender.node_id:
                self._detach(tree, "refused")
                trees.append(tree)
        instead = [contact for contact in message.instead if contact.node_id != self.host.me]
        if instead:
            self._join_directly(trees, instead[0], lost=b"")
        else:
            for tree in trees:
                self.join(tree)

    # ---- links

    def _index(self, index: dict[bytes, dict[bytes, None]], contact: Contact, topic: bytes) -> None:
        if contact.node_id not in index:
            index[contact.node_id] = {}
            user = "parent" if index is self.by_parent else "child"
            self.neighbours.watch(contact, user, self.config.tree_heartbeat_s)
        index[contact.node_id][topic] = None

    def _unindex(self, index: dict[bytes, dict[bytes, None]], node: bytes, topic: bytes) -> None:
        topics = index.get(node)
        if topics is None:
            return
        topics.pop(topic, None)
        if not topics:
            del index[node]
            self.neighbours.unwatch(node, "parent" if index is self.by_parent else "child")

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: what a neighbour says about a topic."""
        tree = self.trees.get(key)
        if value is None:
            self._claim_dropped(tree, sender)
            return
        match claims.decode(value):
            case claims.ChildClaim() as claim:
                self._child_says(tree, sender, key, claim)
            case claims.ParentClaim() as claim:
                self._parent_says(tree, sender, key, claim)

    def _claim_dropped(self, tree: Tree | None, sender: Contact) -> None:
        if tree is None:
            return
        if sender.node_id in tree.children:
            self._remove(tree, sender.node_id, "moved", lease=True)
            self._leave_if_idle(tree)
        elif tree.parent is not None and tree.parent.node_id == sender.node_id:
            self.host.trace(Mark("parent_forgot_child"))
            self._detach(tree, "refused")
            if tree.needed:
                self.join(tree)
            else:
                self.close(tree)

    def _child_says(self, tree: Tree | None, sender: Contact, topic: bytes, claim: claims.ChildClaim) -> None:
        if tree is None or sender.node_id not in tree.children:
            self._stranger_says(tree, sender, topic, claim)
            return
        child = tree.children[sender.node_id]
        if child.cover_term != claim.term or child.cover != claim.cover:
            self.touch(tree)
        child.cover_term, child.cover, child.held = claim.term, claim.cover, claim.held
        self._heard(tree, claim.heard)

    def _stranger_says(self, tree: Tree | None, sender: Contact, topic: bytes, claim: claims.ChildClaim) -> None:
        """A peer believes to be a child here and is not in the table: a pause or a lost message. Set it right."""
        if tree is None or not tree.attached or sender.node_id in tree.path or self._full(tree, sender.node_id):
            self.host.send(sender, Orphaned([topic], tree.fallbacks if tree is not None else []))
            return
        self.host.trace(Mark("child_readopted"))
        child = Child(sender, LinkChannel(self.host, sender, 0), claim.term, claim.cover)
        start = claim.cover if claim.term == tree.flow.term else 0
        tree.flow.start = min(tree.flow.start, start)
        child.channel.cursor = tree.flow.log.first_over(start)
        child.held = claim.held
        self._enter(tree, child)
        self._heard(tree, claim.heard)
        child.channel.advance(tree.flow.log)
        self.touch(tree)

    def _parent_says(self, tree: Tree | None, sender: Contact, topic: bytes, claim: claims.ParentClaim) -> None:
        if tree is None or tree.parent is None or tree.parent.node_id != sender.node_id:
            self.host.send(sender, Leave(topic, moved=tree is not None and tree.needed))
            return
        if self.host.me in claim.path:
            self.host.trace(Mark("loop_left"))
            self.drop_parent(tree, "loop")
            self.join(tree)
            return
        flow = tree.flow
        if claim.path != tree.path:
            tree.path = claim.path
            self.touch(tree)
        tree.fallbacks, tree.parent_held = claim.fallbacks, claim.held
        self._heard(tree, claim.term)
        if claim.term > flow.term:
            self.enter_term(tree, claim.term, 0)
        if claim.term == flow.term:
            tree.parent_frontier = claim.frontier
            if claim.frontier > flow.frontier:
                self.gap_noticed()
            self._stable(tree, claim.stable)

    def _stable(self, tree: Tree, stable: int) -> None:
        flow = tree.flow
        if stable > flow.stable:
            flow.stable = stable
            flow.log.trim(stable)
            self.pacing.eased()
            self.touch(tree)

    # ---- the data path's control side

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle came: up to be admitted, or down to be moved on."""
        if bundle.envelope.kind is Kind.UP:
            self.rendezvous.up(sender, bundle)
            return
        tree = self.trees.get(bundle.topic)
        if tree is None:
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "no_tree"))
            return
        if bundle.envelope.term > tree.flow.term:
            self._heard(tree, bundle.envelope.term)
            if tree.root is None:
                self.enter_term(tree, bundle.envelope.term, 0)
        self.move(tree, bundle)
        self.pacing.release(sender.node_id, bundle.size)

    def move(self, tree: Tree, bundle: Bundle) -> None:
        """Hand a bundle to the forwarding table, past the topic's forward handler where there is one."""
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            changed = handlers.forward_handler(bundle, is_root=tree.root is not None)
            if changed is None:
                return
            bundle = changed
        if self.table.move(bundle):
            if bundle.envelope.term != tree.flow.term:
                self._deliver_past(tree, bundle)
            elif len(tree.flow.seen) > 1:
                self.gap_noticed()
            if bundle.envelope.kind is Kind.REPAIR:
                self.host.trace(Repaired(tree.topic, "neighbour", bundle.count))
            tree.reported_bytes += bundle.size
            self.touch(tree)
            if tree.reported_bytes >= self.config.report_bytes:
                self._report_one(tree)

    def _deliver_past(self, tree: Tree, bundle: Bundle) -> None:
        """A repair of a past term goes to the local subscribers; neighbours that lack it will ask."""
        for edge in tree.edges.values():
            edge.take(bundle)

    def room(self, contact: Contact) -> None:
        """There is credit again towards a peer: its channels go on, and so do publishers whose root it is."""
        for topic in self.by_child.get(contact.node_id, ()):
            self.trees[topic].flow.advance(contact.node_id)
        self.publishing.room(contact)

    # ---- reports

    def touch(self, tree: Tree) -> None:
        """Something about the tree is to be told to its neighbours at the next report."""
        self.dirty[tree.topic] = None
        if not self.report_set:
            self.report_set = True
            self.host.set_timer(Report(), self.config.report_s)

    def _report(self) -> None:
        self.report_set = False
        topics, self.dirty = self.dirty, {}
        for topic in topics:
            tree = self.trees.get(topic)
            if tree is not None:
                self._report_one(tree)

    def _report_one(self, tree: Tree) -> None:
        now = self.host.now()
        tree.reported_bytes = 0
        if tree.root is not None:
            self.rendezvous.cover(tree, now)
        elif tree.parent is not None:
            self.streams.put(tree.parent, tree.topic, claims.encode(tree.child_claim(now)))
        if tree.children and tree.attached:
            claim = claims.encode(tree.parent_claim(self.host.me, self.fallbacks(tree)))
            for child in tree.children.values():
                self.streams.put(child.contact, tree.topic, claim)

    # ---- timers

    def timer(self, timer: Any) -> None:
        """One of this layer's timers is due."""
        match timer:
            case JoinTimeout(topic, attempt):
                self._join_timeout(topic, attempt)
            case Report():
                self._report()
            case Sweep():
                self._sweep()
            case _:
                self.rendezvous.timer(timer)

    def sweep_soon(self) -> None:
        """There is something to look over from time to time."""
        if not self.sweep_set:
            self.sweep_set = True
            self.swept_at = self.host.now()
            self.host.set_timer(Sweep(), self.config.sweep_s)

    def _sweep(self) -> None:
        now = self.host.now()
        if not (self.trees or self.publishing.busy):
            self.sweep_set = False
            return
        self.host.set_timer(Sweep(), self.config.sweep_s)
        self.gap_noticed()
        paused = now - self.swept_at > 5 * self.config.sweep_s
        self.swept_at = now
        for tree in list(self.trees.values()):
            self._sweep_tree(tree, now, paused=paused)
        self.publishing.sweep(now)
        self.pacing.sweep(now)

    def _sweep_tree(self, tree: Tree, now: float, *, paused: bool) -> None:
        if paused:  # this process stood still: nobody's lease ran out meanwhile, and stability waits for the news
            for lease in tree.departed.values():
                lease.until = max(lease.until, now + self.config.lease_s)
            self.rendezvous.hold(tree, now)
        for node in [node for node, lease in tree.departed.items() if lease.until <= now]:
            del tree.departed[node]
            self.touch(tree)
        for term in [term for term, past in tree.flow.past.items() if past.until <= now]:
            tree.flow.forget(term)
        for edge in tree.edges.values():
            edge.forget(lambda term: term == tree.flow.term or term in tree.flow.past)
            edge.give_up_holes(now - self.config.lease_s)
        if tree.root is not None and tree.root.stable < tree.root.index:
            self.touch(tree)
        if not tree.attached and tree.needed and not tree.joining:
            self.join(tree)

    # ---- the rest

    def receive(self, sender: Contact, message: Any) -> None:
        """A message of this layer that came straight to this peer."""
        match message:
            case Accepted():
                self._accepted(sender, message)
            case Refused():
                self._refused(sender, message)
            case Leave():
                self._left(sender, message)
            case Orphaned():
                self._orphaned(sender, message)
            case Rejoin():
                self._rejoin(sender, message)
            case Receipts() | RootIs() | NotRoot() | Created():
                self.publishing.receive(sender, message)
            case HandOver() | Replicas():
                self.rendezvous.receive(sender, message)
            case Describe(topics):
                known = [self.descriptors[topic] for topic in topics if topic in self.descriptors]
                self.host.send(sender, Described(known))
            case Described(descriptors):
                for descriptor in descriptors:
                    self.learn(descriptor)
            case Laggards():
                self._laggards(message)
            case Lagging(topic, _, peers):
                self.lagging.setdefault(topic, {}).update(dict.fromkeys(peers))
            case Survey():
                self._survey(message)
            case Branch(number=number):
                if number in self.surveys:
                    self.surveys[number].append(message)
            case _:
                raise Malformed(f"a {type(message).__name__} only makes sense when it is routed")

    def leaf_set_changed(self) -> None:
        """Upcall of the overlay: who is closest to a topic may have changed."""
        self.rendezvous.leaf_set_changed()
        for tree in list(self.trees.values()):
            if not tree.attached and tree.needed and not tree.joining:
                self.join(tree)

    def _laggards(self, message: Laggards) -> None:
        """Walk down: name who does not cover the position, here and below (DELIVERY.md, *Guarantees*)."""
        tree = self.trees.get(message.topic)
        if tree is None:
            return
        behind = [node or self.host.me for node in tree.laggards(message.term, message.index, self.host.now())]
        if behind:
            self.host.send(message.asker, Lagging(message.topic, message.index, behind))
        for child in tree.children.values():
            if (child.cover_term, child.cover) < (message.term, message.index):
                self.host.send(child.contact, message)

    def survey(self, name: str) -> int:
        """Ask every peer of a topic's tree for its place; the answers gather in `surveys[number]`."""
        self.numbers += 1
        self.surveys[self.numbers] = []
        tree = self.trees.get(self.describe(name).topic)
        message = Survey(self.describe(name).topic, self.host.contact, self.numbers)
        if tree is not None and tree.attached:
            self._survey(message)
        else:
            self.publishing.with_root(self.describe(name), lambda root: self.host.send(root, message))
        return self.numbers

    def _survey(self, message: Survey) -> None:
        tree = self.trees.get(message.topic)
        if tree is None:
            return
        if tree.parent is not None and not message.down:
            self.host.send(tree.parent, message)
            return
        down = msgspec.structs.replace(message, down=True)
        children = [child.contact for child in tree.children.values()]
        branch = Branch(message.topic, message.number, tree.parent.node_id if tree.parent else b"", children,
                        len(tree.edges), tree.flow.term, tree.flow.frontier)  # fmt: skip
        self.host.send(message.asker, branch)
        for child in children:
            self.host.send(child, down)

    def leave(self) -> None:
        """Leave all trees in good order: roots hand over, children are sent to their grandparent."""
        self.leaving = True
        for subscription in list(self.subscriptions.values()):
            self.unsubscribe(subscription)
        for tree in list(self.trees.values()):
            if tree.root is not None:
                self.rendezvous.resign(tree)
            for node in list(tree.children):
                instead = [tree.parent] if tree.parent is not None else self.fallbacks(tree)
                self.host.send(tree.children[node].contact, Orphaned([tree.topic], instead))
            self._leave_if_idle(tree)

    def unknown(self, name: str) -> UnknownTopic:
        """The error for a topic that nobody created."""
        return self.rendezvous.unknown(name)

    def check(self) -> None:
        """Raise AssertionError unless every tree is sound and the indexes by link agree with them."""
        for tree in self.trees.values():
            tree.check(self.host.me)
        parents = {(t.parent.node_id, t.topic) for t in self.trees.values() if t.parent is not None}
        assert parents == {(node, topic) for node, topics in self.by_parent.items() for topic in topics}
        children = {(node, t.topic) for t in self.trees.values() for node in t.children}
        assert children == {(node, topic) for node, topics in self.by_child.items() for topic in topics}
        self.table.check()
