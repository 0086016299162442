"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2; DESIGN.md, section 4).

The tree is the union of the subscribers' routes to the topic's rendezvous point. What travels in it is the data
path's matter (`protocol.forwarding`); what its root does is `rendezvous.py`; what publishers do is `publishing.py`.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import msgspec

from quillcast.core.bundle import NO_TERM, Bundle, Kind, Position, Term
from quillcast.core.errors import Malformed, QuillcastError, UnknownTopic
from quillcast.core.host import Host
from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact, Message
from quillcast.core.sparing import NOTHING, shared
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
from quillcast.protocol.forwarding.edge import Edge, Subscriber
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.security.access import AccessDenied, Warrant, bearer, is_restricted
from quillcast.protocol.topics import claims
from quillcast.protocol.topics.changes import Changes
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, described
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.messages import (
    Accepted,
    Branch,
    Create,
    Created,
    Denied,
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
from quillcast.protocol.topics.repair import TreeRepair
from quillcast.protocol.topics.reports import Report, Reports
from quillcast.protocol.topics.tree import Child, Departed, Tree


class JoinTimeout(msgspec.Struct, frozen=True):
    """Has a parent accepted this peer meanwhile?"""

    topic: bytes
    attempt: int


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


class Wish(NamedTuple):
    """What a subscriber asks for; most ask for the same."""

    start: str
    delivery: str | None
    warrant: Warrant | None


class Subscription(Edge):
    """A local subscription and the channel to its subscriber, for `unsubscribe` and `drained`."""

    __slots__ = ("wish",)

    def __init__(self, host: Host, topic: bytes, subscriber: Subscriber, cursor: int, number: int, wish: Wish) -> None:
        super().__init__(host, topic, subscriber, cursor, ordered=True, number=number)
        self.wish = shared(wish)


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
        self.rivals: dict[bytes, Descriptor] = {}  # another owner's word on a topic that is known
        self.by_parent: dict[bytes, dict[bytes, None]] = {}
        self.by_child: dict[bytes, dict[bytes, None]] = {}
        self.subscriptions: dict[int, Subscription] = {}
        self.handlers: dict[bytes, Handlers] = {}
        self.left_behind: dict[bytes, dict[bytes, Departed]] = {}  # leases that go on, by topics that were forgotten
        self.unheard: dict[tuple[bytes, bytes], float] = {}  # topic and child that said nothing since it was entered
        self.leaving = False
        self.numbers = 0
        self.reports = Reports(self)
        self.repair = TreeRepair(self)
        self.inspection = Inspection(self)
        self.rendezvous = Rendezvous(self)
        self.publishing = Publishing(self)
        self.changes = Changes(self)
        self.pacing = Pacing(self)
        self.swept_at = host.now()
        self.sweep_set = False
        self.restless: dict[bytes, None] = {}  # topics in which something passes with time; no other is looked over
        self.gap_noticed: Callable[[bytes], None] = lambda topic: None  # the recovery above this layer

    # ---- the application's calls

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        descriptor = described(name)
        return self.descriptors.get(descriptor.topic, descriptor)

    def subscribe(
        self,
        name: str,
        subscriber: Subscriber,
        *,
        start: str = "now",
        delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Subscription:
        """Subscribe to a topic. `start` is now or earliest (as far back as the parent's buffer reaches).

        `warrant` says on whose behalf; whoever the topic does not let subscribe is told so by `Subscriber.failed`.
        A subscriber that asks for less than a reliable topic gives (`delivery` best_effort) is not held back by gaps.
        """
        descriptor = self.describe(name)
        tree = self.tree(descriptor)
        self.numbers += 1
        wish = Wish(start, delivery, warrant)
        subscription = Subscription(self.host, tree.topic, subscriber, tree.flow.log.end, self.numbers, wish)
        self.subscriptions[subscription.number] = subscription
        if tree.attached:
            self._start(tree, subscription)
        else:
            tree.begin_later(subscription)
            self.join(tree)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. A peer that has no more use for the topic leaves the tree once its parent is known."""
        if self.subscriptions.pop(subscription.number, None) is None:
            return
        tree = self.trees[subscription.topic]
        if tree.unstarted.pop(subscription.number, None) is None:
            tree.flow.close(subscription)
            self.host.trace(Unsubscribed(tree.topic, subscription.number))
        self.reports.touch(tree)
        self.leave_if_idle(tree)

    def drained(self, subscription: Subscription) -> None:
        """The application's queue has room again."""
        tree = self.trees.get(subscription.topic)
        if tree is not None and subscription in tree.flow.channels:
            subscription.advance(tree.flow.log)
            self.reports.touch(tree)

    def tree(self, descriptor: Descriptor) -> Tree:
        """The topic's tree at this peer, made if there is none."""
        topic = shared(descriptor.topic)
        tree = self.trees.get(topic)
        if tree is None:
            self.learn(descriptor)
            flow = self.table.open(topic, keeps=descriptor.settings.reliable)
            tree = self.trees[topic] = Tree(self.descriptors[topic], flow)
            tree.departed = self.left_behind.pop(topic, tree.departed)
            self.wake(tree)
            self.sweep_soon()
        return tree

    def learn(self, descriptor: Descriptor) -> None:
        """Adopt a descriptor if it supersedes what is known. Of a forged one nothing counts but the name."""
        topic = shared(descriptor.topic)
        known = self.descriptors.get(topic)
        if descriptor == known:
            return
        if not descriptor.genuine:
            self.host.trace(Mark("descriptor_forged"))
            descriptor = Descriptor(descriptor.name, creator=descriptor.creator)
        if not descriptor.supersedes(known):
            if known is not None and descriptor.rivals(known):
                self.rivals[descriptor.topic] = descriptor
            return
        delivery = descriptor.settings.delivery
        if known is None or known.settings.delivery != delivery:
            self.host.trace(Named(topic, descriptor.name, delivery, descriptor.version))
        self.descriptors[topic] = descriptor
        tree = self.trees.get(topic)
        if tree is not None:
            self._adapt(tree, descriptor)

    def _adapt(self, tree: Tree, descriptor: Descriptor) -> None:
        """Go by what is known of the topic now; its guarantee may be another than first use had assumed."""
        tree.descriptor = descriptor
        tree.flow.keeps = descriptor.settings.reliable
        if tree.root is not None:
            tree.root.descriptor = descriptor
        for number in tree.edges:
            self._set_order(tree, self.subscriptions[number])

    def _set_order(self, tree: Tree, subscription: Subscription) -> None:
        """Is it owed every event, so that a gap holds it up?"""
        subscription.ordered = tree.descriptor.settings.reliable and subscription.wish.delivery != "best_effort"

    def _start(self, tree: Tree, edge: Subscription) -> None:
        """A subscription begins at this peer's frontier, in every reign it knows: what is admitted after will come."""
        flow = tree.flow
        rule = self._denied(tree.descriptor, self.host.me, edge.wish.warrant)
        if rule is not None:
            del self.subscriptions[edge.number]
            edge.subscriber.failed(AccessDenied(rule))
            return
        first = flow.earliest if edge.wish.start == "earliest" else flow.frontier
        self._set_order(tree, edge)
        edge.begin(flow.term, first)
        for term, past in flow.past.items():
            edge.owe(term, past.end)
        edge.cursor = flow.log.first_over(first)
        flow.open(edge)
        owed = "reliable" if edge.ordered else "best_effort"
        self.host.trace(Subscribed(tree.topic, flow.term, first, edge.number, owed))
        edge.subscriber.started(shared(Position(flow.term, first)))
        edge.advance(flow.log)
        self.reports.touch(tree)

    def _denied(self, descriptor: Descriptor, node: bytes, warrant: Warrant | None) -> str | None:
        """The rule by which a peer may not subscribe; None: it may. Signatures are looked at where there is a list."""
        if not is_restricted(descriptor.access, "subscribe"):
            return None
        return descriptor.refusal("subscribe", bearer(warrant, node, descriptor.topic))

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
            self.overlay.route(self.join_message(tree, fault=fault), tree.topic)
        wait_s = min(self.config.join_timeout_s * 2 ** min(tree.attempt - 1, 4), self.config.join_timeout_max_s)
        self.expect_parent(tree, wait_s)

    def join_message(self, tree: Tree, *, fault: bool, whole: bool = True) -> Join:
        """What a peer says to become a child; `whole` adds the descriptor to its digest, for those on the way."""
        descriptor = tree.descriptor if whole else None
        earliest = any(self.subscriptions[key].wish.start == "earliest" for key in tree.unstarted)
        earliest = earliest or any(join.earliest for join in tree.waiting.values())
        keys = [*tree.edges, *tree.unstarted]
        warrant = next((one for key in keys if (one := self.subscriptions[key].wish.warrant) is not None), None)
        join = Join(
            tree.topic, self.host.contact, tree.have(), tree.descriptor.digest, descriptor, earliest, warrant=warrant
        )
        handlers = self.handlers.get(tree.topic)
        return handlers.fault_handler(join) if fault and handlers is not None else join

    def expect_parent(self, tree: Tree, wait_s: float) -> None:
        """Ask the overlay (again) unless some parent answered within about this time."""
        self.host.set_timer(JoinTimeout(tree.topic, tree.attempt), wait_s * (1 + self.host.random.random() / 4))

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
        if message.warrant is not None and (tree is None or not tree.attached):
            return message, next_hop  # where a list may say who subscribes, only those who do forward to others
        self.adopt(message)
        return None

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """Upcall of the overlay: this peer is the closest to the topic, and so its rendezvous point."""
        if self.leaving:
            return  # who sent it asks again, and then it goes to whoever is closest without this peer
        match message:
            case Join():
                self.deliver_join(message)
            case Create():
                self.rendezvous.create(message)
            case FindRoot():
                self.rendezvous.find(message)

    def deliver_join(self, join: Join) -> None:
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
        self.heard_of(tree, join.have.term if join.have else NO_TERM)
        if tree.root is None:
            self.rendezvous.become(tree, "took_over" if join.have is not None else "created")
        self.adopt(join)

    def adopt(self, join: Join) -> None:
        """Enter the child in the children table; a new forwarder joins the tree too (Scribe, membership management)."""
        descriptor = join.descriptor or self.descriptors.get(join.topic)
        if descriptor is None:
            self.host.send(join.child, Refused(join.topic, "describe"))
            return
        rule = self._denied(self.descriptors.get(join.topic, descriptor), join.child.node_id, join.warrant)
        if rule is not None and not self.rendezvous.took_over_from(join):
            self.host.trace(Mark("join_denied"))
            self.host.send(join.child, Refused(join.topic, "denied", rule=rule))
            return
        tree = self.tree(descriptor)
        child = join.child.node_id
        if child in tree.path or tree.parent == join.child:
            self.host.send(join.child, Refused(join.topic, "loop"))
            return
        if self.full(tree, child):
            self._shed(tree, join)
            return
        if join.have is not None:
            self.heard_of(tree, join.have.term)
        if tree.attached:
            self._accept(tree, join)
        else:
            tree.await_parent(join)
            if not tree.joining:
                self.join(tree)

    def full(self, tree: Tree, child: bytes) -> bool:
        members = tree.children.keys() | tree.waiting.keys()
        return len(members) >= self.config.children_per_topic_max and child not in members

    def _shed(self, tree: Tree, join: Join) -> None:
        """No more children than the bound: the newcomer joins through one of those that are (bottleneck remover)."""
        self.host.trace(Mark("shed"))
        siblings = tuple(child.contact for child in tree.children.values())
        self.host.send(join.child, Refused(join.topic, "full", siblings))

    def _accept(self, tree: Tree, join: Join) -> None:
        flow, contact = tree.flow, join.child
        start = self._start_for(flow, join)
        self._send_accepted(tree, contact, start, join.digest)
        child = self.enter(tree, contact, start)
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            for bundle in handlers.subscribe_handler(join):
                self.host.carry(contact, bundle)
        child.advance(flow.log)
        self.rendezvous.joined(tree, join)
        self.reports.touch(tree)

    def _start_for(self, flow: Flow, join: Join) -> int:
        """From which index on a child is owed the present term."""
        have = join.have
        if have is None:
            return flow.earliest if join.earliest else flow.frontier
        if have.term == flow.term:
            return have.frontier
        return 0  # it was here under an earlier root: this one's events are owed from the first

    def _send_accepted(self, tree: Tree, contact: Contact, start: int, digest: bytes) -> None:
        descriptor = None if digest == tree.descriptor.digest else tree.descriptor
        path = tree.path_here(self.host.me)
        past = tuple((term, reign.end) for term, reign in sorted(tree.flow.past.items()))
        fallbacks = self.fallbacks(tree)
        self.host.send(contact, Accepted(tree.topic, tree.flow.term, start, path, fallbacks, descriptor, past))

    def enter(self, tree: Tree, contact: Contact, start: int) -> Child:
        """Enter a child in the children table, to be served from an index of the present term on."""
        contact = shared(contact)
        node, flow = contact.node_id, tree.flow
        flow.start = min(flow.start, start)
        child = Child(self.host, contact, flow.log.first_over(start), flow.term, start)
        former = tree.children.get(node)  # its Join may come twice
        lease = tree.departed.pop(node, former)
        tree.enter(child)
        if lease is not None and lease.cover_term == flow.term:
            child.cover = min(start, lease.cover)  # what it has itself says nothing of those below it
        self.reports.take_up(child, tree.topic)
        self.unheard[tree.topic, node] = self.host.now()
        tree.waiting.pop(node, None)
        self._index(self.by_child, contact, tree.topic)
        self.streams.put(contact, tree.topic, claims.encode(tree.parent_claim(self.host.me, self.fallbacks(tree))))
        if former is None:
            self.host.trace(ChildAdded(tree.topic, node, len(tree.children)))
        return child

    def fallbacks(self, tree: Tree) -> tuple[Contact, ...]:
        """Whom a child may turn to should this peer die: the grandparent or the next root, then siblings with room."""
        if tree.root is not None:
            known = [contact for contact in self.overlay.closest(tree.topic, 2) if contact.node_id != self.host.me][:1]
        else:
            known = [tree.parent] if tree.parent is not None else []
        siblings = [child.contact for child in tree.children.values() if child.contact not in known]
        # Nearest to the topic first: so a root's topics name the same ones, whoever joined first, and claims are alike.
        siblings.sort(key=lambda sibling: ring_distance(sibling.node_id, tree.topic))
        return tuple([*known, *siblings][: self.config.fallbacks])

    def _accepted(self, parent: Contact, message: Accepted) -> None:
        tree = self.trees.get(message.topic)
        if tree is None or not tree.needed:
            owing = bool(self._leases_left(message.topic)) or (tree is not None and tree.root is not None)
            self.host.send(parent, Leave(message.topic, moved=owing))
            if tree is not None and tree.root is None:
                self.close(tree)
        elif tree.root is not None or self.host.me in message.path:
            self.host.trace(Mark("loop_refused"))
            self.host.send(parent, Leave(message.topic, moved=True))
        elif tree.parent is not None and tree.parent.node_id != parent.node_id:
            elsewhere = message.term != tree.flow.term  # two reigns: neither speaks for the other's leases
            self.host.send(parent, Leave(message.topic, moved=elsewhere))
        else:
            self._attach(tree, parent, message)

    def _attach(self, tree: Tree, parent: Contact, message: Accepted) -> None:
        if message.descriptor is not None:
            self.learn(message.descriptor)
        if parent.node_id in tree.children:
            self.remove(tree, parent.node_id, "moved", lease=False)
        how = "fallback" if tree.lost_parent and tree.attempt == 0 else "routed" if tree.lost_parent else "joined"
        new = tree.parent is None
        tree.parent, tree.fallbacks = shared(parent), shared(message.fallbacks)
        tree.follow_path(shared(message.path))
        tree.joining, tree.lost_parent, tree.attempt = False, b"", 0
        self._index(self.by_parent, parent, tree.topic)
        flow = tree.flow
        if message.term > flow.term:
            self.enter_term(tree, shared(message.term), message.start)
        elif message.term == flow.term:
            flow.start = min(flow.start, message.start)
        for term, end in message.past:
            self.recall(tree, term, end)
        self.heard_of(tree, shared(message.term))
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
            child.advance(tree.flow.log)
        unstarted, tree.unstarted, tree.waiting = tree.unstarted, NOTHING, tree.waiting or NOTHING
        for number in unstarted:
            self._start(tree, self.subscriptions[number])
        self.reports.touch(tree)

    def enter_term(self, tree: Tree, term: Term, start: int) -> None:
        """A new reign: its events are owed from `start` on to this peer and to its subscribers."""
        flow = tree.flow
        for edge in tree.edges.values():
            edge.turn(flow.log)
        flow.begin(term, start, self.host.now() + self.config.past_terms_s, tree.known_end)
        for edge in tree.edges.values():
            edge.begin(term, start)
        tree.parent_frontier = 0
        tree.heard = max(tree.heard, term)
        self.reports.touch(tree)

    def recall(self, tree: Tree, term: Term, end: int) -> None:
        """A past reign went up to `end`: who was subscribed before it is owed its events."""
        flow = tree.flow
        if flow.may_recall(term, end) and flow.recall(term, end, self.host.now() + self.config.past_terms_s):
            self.reports.touch(tree)  # neighbours on the other side may not know either
            for edge in tree.edges.values():
                edge.owe(term, end)

    def heard_of(self, tree: Tree, term: Term) -> None:
        """Terms only grow: a root that hears of a later one than its own begins one later still."""
        tree.heard = max(tree.heard, term)
        if tree.root is not None and tree.heard > tree.root.term:
            self.rendezvous.outdone(tree)

    # ---- leaving and losing

    def fail(self, tree: Tree, error: QuillcastError) -> None:
        """The topic cannot be had: tell the local subscribers and forget it."""
        for number, edge in {**tree.unstarted, **tree.edges}.items():
            self.subscriptions.pop(number, None)
            tree.flow.close(edge)
            edge.subscriber.failed(error)
        denied = isinstance(error, AccessDenied)
        why, rule = ("denied", str(error)) if denied else ("unknown", "")
        for join in tree.waiting.values():
            self.host.send(join.child, Refused(tree.topic, why, rule=rule))
        for node in list(tree.children) if denied else ():  # they have the right, and join without this peer
            self.host.send(tree.children[node].contact, Orphaned([tree.topic]))
            self.remove(tree, node, "refused", lease=True)
        tree.unstarted = tree.waiting = NOTHING
        tree.keeping_until = None
        self.leave_if_idle(tree)

    def detach(self, tree: Tree, why: str) -> None:
        """There is no parent any more."""
        if tree.parent is None:
            return
        parent = tree.parent
        self.host.trace(Detached(tree.topic, parent.node_id, why))
        tree.parent, tree.path, tree.attempt = None, (), 0
        tree.lost_parent = parent.node_id if why != "left" else b""
        self.streams.drop(parent, tree.topic)
        self._unindex(self.by_parent, parent.node_id, tree.topic)
        self.wake(tree)

    def drop_parent(self, tree: Tree, why: str) -> None:
        """Leave the parent for another, or to be root."""
        if tree.parent is not None:
            self.host.send(tree.parent, Leave(tree.topic, moved=True))
            self.detach(tree, why)

    def remove(self, tree: Tree, node: bytes, why: str, *, lease: bool) -> None:
        """Take a child out of the table; where a lease goes on, its last report still holds stability back."""
        child = tree.children.pop(node, None)
        tree.waiting.pop(node, None)
        if child is None:
            return
        tree.flow.close(child)
        self.streams.drop(child.contact, tree.topic)
        self._unindex(self.by_child, node, tree.topic)
        if lease:
            tree.depart(child, self.host.now() + self.config.lease_s)
        self.host.trace(ChildRemoved(tree.topic, node, why))
        self.reports.touch(tree)

    def _left(self, sender: Contact, message: Leave) -> None:
        tree = self.trees.get(message.topic)
        if tree is None:
            return
        self.remove(tree, sender.node_id, "moved" if message.moved else "left", lease=message.moved)
        self.leave_if_idle(tree)

    def leave_if_idle(self, tree: Tree) -> None:
        """Nothing here wants the topic: leave the parent, recursively up the tree (Scribe, figure 3, lines 9 to 12).

        Before the parent is known the unsubscribe is delayed: the answer to the join finds nothing needed.
        """
        if tree.needed or tree.root is not None:
            return
        if tree.parent is not None or not tree.joining:
            self.close(tree)

    def close(self, tree: Tree) -> None:
        """Forget a topic that nothing here needs, but for leases that go on: coming back, this peer speaks for them."""
        leases = self._leases_left(tree.topic)
        if leases:
            self.left_behind[tree.topic] = leases
        if tree.parent is not None:
            self.host.send(tree.parent, Leave(tree.topic, moved=bool(leases)))
            self.detach(tree, "left")
        elif tree.lost_parent:
            self.host.trace(Detached(tree.topic, tree.lost_parent, "left"))  # it lost one, and seeks no other any more
        self.trees.pop(tree.topic, None)
        self.restless.pop(tree.topic, None)
        self.reports.forget(tree)
        self.table.close(tree.topic)

    def _leases_left(self, topic: bytes) -> dict[bytes, Departed]:
        """Leases of lost children that this peer has not seen again and that go on."""
        tree, now = self.trees.get(topic), self.host.now()
        known = tree.departed if tree is not None else self.left_behind.get(topic, {})
        return {node: lease for node, lease in known.items() if lease.until > now}

    # ---- links

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector."""
        self.rendezvous.lost()
        self.repair.lost(contact)

    def recovered(self, contact: Contact) -> None:
        """Upcall of the failure detector. Nothing is believed of old: the link's streams tell anew what each holds."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: what a neighbour claims about a topic."""
        self.reports.changed(sender, key, value)

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

    # ---- the data path's control side

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle came: up to be admitted, or down to be moved on."""
        if bundle.envelope.kind is Kind.UP:
            self.rendezvous.up(sender, bundle)
            return
        tree = self.trees.get(bundle.topic)
        if tree is None or not (tree.attached or tree.flow.begun):  # nor is it known yet from where on it is owed
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "no_tree"))
            return
        if bundle.envelope.term > tree.flow.term:
            self.heard_of(tree, bundle.envelope.term)
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
                self.gap_noticed(tree.topic)
            if bundle.envelope.kind is Kind.REPAIR:
                self.host.trace(Repaired(tree.topic, "neighbour", bundle.count))
            tree.reported_bytes += bundle.size
            self.reports.touch(tree)
            if tree.reported_bytes >= self.config.report_bytes:
                self.reports.hurry(tree)

    def _deliver_past(self, tree: Tree, bundle: Bundle) -> None:
        """A repair of a past term goes to the local subscribers; neighbours that lack it will ask."""
        for edge in tree.edges.values():
            edge.take(bundle)

    def room(self, contact: Contact) -> None:
        """There is credit again towards a peer: its channels go on, and so do publishers whose root it is."""
        for topic in self.by_child.get(contact.node_id, ()):
            tree = self.trees[topic]
            tree.children[contact.node_id].advance(tree.flow.log)
        self.publishing.room(contact)

    # ---- timers

    def timer(self, timer: Any) -> None:
        """One of this layer's timers is due."""
        match timer:
            case JoinTimeout(topic, attempt):
                self._join_timeout(topic, attempt)
            case Report():
                self.reports.report()
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

    def wake(self, tree: Tree) -> None:
        """Look the topic over at the next sweep, and for as long as that finds something that time will change."""
        self.restless[tree.topic] = None

    def _sweep(self) -> None:
        now = self.host.now()
        if not (self.trees or self.publishing.busy):
            self.sweep_set = False
            return
        self.host.set_timer(Sweep(), self.config.sweep_s)
        paused = now - self.swept_at > 5 * self.config.sweep_s
        self.swept_at = now
        for topic in [topic for topic in self.left_behind if not self._leases_left(topic)]:
            del self.left_behind[topic]
        self._sweep_children(now, paused=paused)
        topics = list(self.trees if paused else self.restless)
        for topic in topics:
            self.gap_noticed(topic)
        for topic in topics:
            tree = self.trees.get(topic)
            if tree is None:
                continue
            self._sweep_tree(tree, now, paused=paused)
            if not tree.restless:
                self.restless.pop(topic, None)
        self.publishing.sweep(now)
        self.pacing.sweep(now)

    def _sweep_children(self, now: float, *, paused: bool) -> None:
        """Whoever never says a word as a child was taken in by another meanwhile, and its Leave was lost."""
        for (topic, node), entered_at in list(self.unheard.items()):
            tree = self.trees.get(topic)
            child = tree.children.get(node) if tree is not None else None
            if tree is None or child is None or topic in self.streams.told(node):
                del self.unheard[topic, node]
            elif paused:
                self.unheard[topic, node] = now
            elif now - entered_at > 2 * self.config.join_timeout_max_s:
                self.host.trace(Mark("child_never_spoke"))
                self.host.send(child.contact, Orphaned([topic]))
                self.remove(tree, node, "expired", lease=True)
                self.leave_if_idle(tree)

    def _sweep_tree(self, tree: Tree, now: float, *, paused: bool) -> None:
        if paused:  # this process stood still: nobody's lease ran out meanwhile, and stability waits for the news
            for lease in tree.departed.values():
                lease.until = max(lease.until, now + self.config.lease_s)
            self.rendezvous.hold(tree, now)
        for node in [node for node, lease in tree.departed.items() if lease.until <= now]:
            del tree.departed[node]
            self.reports.touch(tree)
        flow = tree.flow
        for term in flow.overdue(now):
            for edge in tree.edges.values():
                edge.skip(term, edge.lacking(term, flow.past[term]), "unavailable")
            flow.forget(term)
        for edge in tree.edges.values():
            edge.forget(lambda term: term == flow.term or term in flow.past or term in flow.forgotten)
            edge.give_up_holes(now - self.config.lease_s)
        if tree.root is not None and tree.root.stable < tree.root.index:
            self.reports.touch(tree)
        if not tree.attached and tree.needed and not tree.joining:
            self.join(tree)
        if tree.keeping_until is not None and tree.keeping_until <= now:
            tree.keeping_until = None
        if not flow.past:  # a topic that was handed over for nothing is let go, too
            self.leave_if_idle(tree)

    # ---- the rest

    def receive(self, sender: Contact, message: Any) -> None:
        """A message of this layer that came straight to this peer."""
        match message:
            case Accepted():
                self._accepted(sender, message)
            case Leave():
                self._left(sender, message)
            case Refused() | Rejoin() | Orphaned():
                self.repair.receive(sender, message)
            case Receipts() | RootIs() | NotRoot() | Created() | Denied():
                self.publishing.receive(sender, message)
            case HandOver() | Replicas():
                self.rendezvous.receive(sender, message)
            case Survey() | Branch() | Laggards() | Lagging():
                self.inspection.receive(sender, message)
            case _:
                raise Malformed(f"a {type(message).__name__} only makes sense when it is routed")

    def leaf_set_changed(self) -> None:
        """Upcall of the overlay: who is closest to a topic may have changed."""
        self.rendezvous.leaf_set_changed()
        for tree in list(self.trees.values()):
            if not tree.attached and tree.needed and not tree.joining:
                self.join(tree)

    def leave(self) -> None:
        """Leave all trees in good order: roots hand over, children are sent to their grandparent."""
        self.leaving = True
        for subscription in list(self.subscriptions.values()):
            self.unsubscribe(subscription)
        for tree in list(self.trees.values()):
            tree.keeping_until = None
            if tree.root is not None:
                self.rendezvous.resign(tree)
            above = tree.parent or self.rendezvous.moved_to.get(tree.topic)
            for node in list(tree.children):
                instead = (above,) if above is not None and above.node_id != node else ()
                self.host.send(tree.children[node].contact, Orphaned([tree.topic], instead))
            self.leave_if_idle(tree)

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
        restless = {tree.topic for tree in self.trees.values() if tree.restless}
        assert restless <= {*self.restless, *self.reports.dirty}, "time passes by a topic that waits for it"
        assert self.restless.keys() <= self.trees.keys()
        self.publishing.check()
        self.table.check()
