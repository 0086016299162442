"""A peer: the composed layers. Only this file knows how the layers are stacked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from quillcast.core.bundle import Block, Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import UP
from quillcast.core.errors import LocalError
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.trace import Started, Stopped
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.forwarding.subscriber import Subscriber
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours import messages as neighbour_messages
from quillcast.protocol.neighbours import neighbours as neighbours_layer
from quillcast.protocol.neighbours import stream_messages
from quillcast.protocol.neighbours import streams as streams_layer
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay import messages as overlay_messages
from quillcast.protocol.overlay import pastry as overlay_layer
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.reliability.agents import Protocols
from quillcast.protocol.scopes.filters import Customs
from quillcast.protocol.scoping.scoping import Scoping
from quillcast.protocol.security.access import Warrant
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.known.plausible import FREE_COUNT, check_of
from quillcast.protocol.topics.parts import Parts
from quillcast.protocol.topics.policy.scribe_tree import ScribeTree
from quillcast.protocol.topics.publishing.creating import CreateDone
from quillcast.protocol.topics.publishing.publisher import Publisher, PublisherListener
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.wire import WireCodec

LEAVE_STEP_S = 0.05  # how often a leaving peer checks whether it may go; a guess


class LeaveStep(Timer, frozen=True):
    """Check whether this peer may go."""


class Peer:
    """The protocols of a peer on top of a host, which passes its inputs to this class (`core.host.Inputs`)."""

    def __init__(
        self, host: Host, config: Config | None = None, *, policy: ForwardingPolicy | None = None,
        customs: Customs | None = None, recoveries: Protocols | None = None,
    ) -> None:  # fmt: skip
        """`policy` decides who forwards a topic's bundles to whom; Scribe's tree if there is none.

        `customs` are filters of other packages, which policies of scopes may use; `recoveries` are recovery protocols
        of other packages.
        """
        self.host = host
        self.config = config or Config()
        topics = self.config.topics
        self.streams = Streams(host, self.config.streams)
        self.neighbours = Neighbours(host, self.config.neighbours, self.streams)
        self.overlay = Pastry(host, self.config.overlay, self.neighbours, WireCodec())
        self.table = ForwardingTable(host, topics.budget_bytes)
        self.dispatch = Dispatch()
        self.topics = Parts(
            host, topics, self.overlay, self.neighbours, self.streams, self.table,
            policy or ScribeTree(topics.children_per_topic_max, topics.fallbacks), self.dispatch,
        )  # fmt: skip
        self.recovery, self._schedule = self.topics.recovery, self.topics.schedule
        self._lost, self._seats = self.overlay.lost_peers.peers, self.overlay.seats  # read for every message
        self.recovery.agents.offer(recoveries or EMPTY)
        self.scoping = Scoping(
            host, self.overlay, self.topics.subscribing, self.topics.publishing, self.topics.placement, self.table,
            self.recovery.agents, customs or EMPTY, self.dispatch,
        )  # fmt: skip
        self.topics.tracing.show_scopes(self.scoping.shown())
        self.streams.report_to(self.topics.links, self.neighbours.watches)
        self.overlay.serve(self.topics.scribe)
        self.neighbours.tell(self.overlay, self.topics.links)
        self.left = False
        self._leave_by: float | None = None
        self._linger_by: float | None = None
        self._register_layers_below()
        self.dispatch.on_timer(LeaveStep, self._leave_step)
        self.dispatch.share()
        host.trace(Started(host.contact.address))

    def _register_layers_below(self) -> None:
        """Register the layers that dispatch their own messages and timers, and do not need a peer."""
        dispatch = self.dispatch
        dispatch.on_messages(neighbour_messages.MESSAGES, self.neighbours.receive)
        dispatch.on_messages(stream_messages.MESSAGES, self.streams.receive)
        dispatch.on_messages(overlay_messages.MESSAGES, self.overlay.receive)
        dispatch.on_timers(neighbours_layer.TIMERS, self.neighbours.timer)
        dispatch.on_timers(streams_layer.TIMERS, self.streams.timer)
        dispatch.on_timers(overlay_layer.TIMERS, self.overlay.timer)

    # ---- calls

    @property
    def active(self) -> bool:
        """Whether this peer is part of the overlay."""
        return self.overlay.active

    @property
    def has_entered(self) -> bool:
        """Whether it is part of the overlay, and knows what all its scopes order for topics."""
        return self.active and not self.scoping.obstacle()

    def join(self, contacts: Sequence[Contact], *, may_be_first: bool = False) -> None:
        """Join the network of these contacts. Without contacts, be the first peer of a new network (`Pastry.join`)."""
        self.overlay.join(contacts, may_be_first=may_be_first)

    def enter(self, contacts: Sequence[Contact]) -> None:
        """Take part through these members of the ring, without a place in it (`Pastry.enter`)."""
        self.overlay.enter(contacts)

    def create(
        self, name: str, settings: Settings, done: CreateDone, own: Callable[[Descriptor], Descriptor] | None = None
    ) -> None:
        """Create a topic. `done` gets the descriptor in force, or the error. Raises `LocalError` for invalid settings.

        `own` adds an owner and an access list to the descriptor, and signs it.
        """
        descriptor = self.topics.known.rooted(described(name, settings))
        descriptor = own(descriptor) if own is not None else descriptor
        if why := self.topics.known.misplaced(descriptor):
            raise LocalError(why)
        self.scoping.used(descriptor)
        self.topics.creating.create(descriptor, done)

    def holders(self, name: str) -> int:
        """Return how many peers held the state of a topic when this peer had created it; 0 if it did not."""
        return self.topics.creating.holders.get(described(name).topic, 0)

    def change(
        self, name: str, wanted: Mapping[str, Any], done: CreateDone,
        sign: Callable[[Descriptor], Descriptor] | None = None,
    ) -> None:  # fmt: skip
        """Change settings of an existing topic. `done` gets its descriptor or the error. Raises `LocalError`.

        `sign` signs for the topic's owner, if it has one.
        """
        self.topics.changes.ask(name, wanted, done, sign)

    def subscribe(
        self, name: str, subscriber: Subscriber, *, start: str = "now", delivery: str | None = None,
        warrant: Warrant | None = None,
    ) -> Subscription:  # fmt: skip
        """Subscribe to a topic (`Subscribing.subscribe`). Raises `LocalError` for an invalid name."""
        self.topics.housekeeping.notice()
        subscription = self.topics.subscribing.subscribe(
            name, subscriber, start=start, delivery=delivery, warrant=warrant
        )  # fmt: skip
        self.scoping.used(described(name))
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        self.topics.subscribing.unsubscribe(subscription)

    def subscriptions(self, subscription: Subscription) -> int:
        """Return how many subscriptions this peer has to the topic of this subscription."""
        return self.topics.subscribing.count(subscription.topic)

    def subscribers(self) -> Iterator[Subscriber]:
        """Yield the subscribers of all local subscriptions."""
        return (subscription.subscriber for subscription in self.topics.subscribing.all())

    def drained(self, subscription: Subscription) -> None:
        """Continue a subscription whose queue has room again."""
        self.topics.subscribing.drained(subscription)

    def publisher(
        self, name: str, listener: PublisherListener, warrant: Warrant | None = None, id_: bytes = b"", first: int = 0
    ) -> Publisher:
        """Open or continue a publisher of a topic (`Publishing.open`). Raises `LocalError` for an invalid name."""
        publisher = self.topics.publishing.open(name, listener, warrant, id_, first)
        self.scoping.used(described(name))
        return publisher

    def new_publisher_id(self) -> bytes:
        """Return a PublisherId that no other publisher of this peer has or had."""
        return self.topics.publishing.new_id()

    def awaited(self, name: str) -> list[Contact]:
        """Return the peers that were asked to let this one take part in a topic, and have not answered yet."""
        return self.awaited_for(described(name).topic)

    def awaited_for(self, topic: bytes) -> list[Contact]:
        """Return the same peers, for a topicId.

        These are replicas if this peer is to be root; otherwise the peer that it asked for a parent, or the next one on
        the path to the root; before it is part of the network, the peer that it joins through.
        """
        if not self.active:
            return self.overlay.joining.awaited
        tree = self.topics.trees.get(topic)
        way = (tree.next_parent if tree is not None else None) or self.overlay.next_hop(topic)
        return self.topics.replication.awaited(topic) or ([] if way is None else [way])

    def has_publisher(self, id_: bytes) -> bool:
        """Whether there is a publisher here with this PublisherId, whose application is not gone."""
        known = (publishers.get(id_) for publishers in self.topics.publishing.publishers.values())
        return any(publisher is not None and not publisher.is_orphaned for publisher in known)

    def bound(self, topic: bytes) -> str:
        """Return why publishers here wait because their topic has as many as it may have; empty if they do not."""
        return self.topics.publishing.bound(topic)

    def close_publisher(self, publisher: Publisher) -> None:
        """Close a publisher. Its events are kept until they are stable."""
        self.topics.publishing.close(publisher)

    def orphan_publisher(self, publisher: Publisher) -> None:
        """Close a publisher whose application is gone, and may return (`Publishing.orphan`)."""
        self.topics.publishing.orphan(publisher)

    def handle(self, name: str, handlers: Handlers) -> None:
        """Set the paper's upcalls for a topic at this peer (Scribe, section 3.2)."""
        self.topics.open_trees.handle(described(name).topic, handlers)

    # ---- queries

    def subscriptions_here(self) -> list[Subscription]:
        """Return all local subscriptions."""
        return list(self.topics.subscribing.all())

    def descriptors(self) -> list[Descriptor]:
        """Return the settings of all topics that this peer knows."""
        return list(self.topics.descriptors.values())

    def learn(self, descriptor: Descriptor) -> None:
        """Take over a topic's settings, unless it knows later ones."""
        self.topics.known.learn(descriptor)

    def runs_managers(self) -> bool:
        """Return whether managers of scopes run at this peer."""
        return bool(self.scoping.managers)

    def who_lags(self, publisher: Publisher, last: int) -> tuple[int, Walk]:
        """Ask who holds up a publisher's events before `last`. Return a number for `end_walk`, and the answers."""
        number = self.topics.inspection.who_lags(publisher, last)
        return number, self.topics.inspection.walks[number]

    def end_walk(self, number: int) -> None:
        """Discard the answers."""
        self.topics.inspection.end_walk(number)

    def room_for(self, topic: bytes) -> int:
        """Return how many bytes this peer, as the root of a topic, accepts from its own publishers now."""
        return self.topics.flow_control.room_for(topic)

    def lost_peers(self, since: float | None = None) -> list[Contact]:
        """Return the peers that are lost, or those that were lost after a time, the latest last."""
        lost = self.overlay.lost_peers
        return list(lost) if since is None else [contact for contact, _ in lost.since(since)]

    def early_blocks(self) -> Iterator[Block]:
        """Yield the blocks of publishers that came to this root too early, and wait for earlier ones."""
        return chain.from_iterable(self.topics.intake.early.waiting.values())

    # ---- leaving

    def leave(self, within_s: float | None = None) -> None:
        """Leave: wait a limited time until local events are safe, transfer topics, go. Then `left` is true."""
        if self._leave_by is None:
            leave_s = self.config.topics.leave_s
            self._leave_by = self.host.now() + (leave_s if within_s is None else min(within_s, leave_s))
            self._leave_step(LeaveStep())

    def _leave_step(self, timer: LeaveStep) -> None:
        now, by = self.host.now(), self._leave_by
        assert by is not None
        if not self.topics.open_trees.leaving and (now >= by or self._safe_to_leave(now, by)):
            self.scoping.leave()
            self.topics.leaving.begin()
            self.overlay.leave()  # children are served until they have moved
        telling = self.topics.telling
        telling.tell_others()
        if self.topics.open_trees.leaving and (not (self.topics.trees or telling.pending) or now >= by):
            self.topics.leaving.end()
            self.left = True
            self.host.trace(Stopped())
            return
        self.host.set_timer(timer, LEAVE_STEP_S)

    def _safe_to_leave(self, now: float, by: float) -> bool:
        """Whether all local events are admitted and stable, or out of time, and no bundles pass through."""
        publishing = self.topics.publishing
        if publishing.unadmitted:
            return False
        if self._linger_by is None:
            self._linger_by = now + self.config.topics.linger_s
            self.topics.moving_roots.close()
        if now < self._linger_by and (publishing.unstable or not self.topics.intake.all_stable(now)):
            return False
        return self.scoping.withdraw() or now >= by - self.config.topics.linger_s

    # ---- inputs

    def message(self, sender: Contact, message: Any) -> None:
        """A control message arrived."""
        self._heard(sender)
        kind: Any = type(message)
        check = check_of(kind)  # as in `believes`, inlined: this runs for every message
        if check is None or check(message, self.host.wall_ns) or self.topics.terms.believes(message):
            self.dispatch.message(sender, message)

    def _heard(self, sender: Contact) -> None:
        """Note that another peer is alive, and that this process may have been paused until now."""
        now = self.host.now()
        if now > self._schedule.paused_from:
            self.topics.housekeeping.notice()
        self.neighbours.heard(sender, now)
        if self._lost or self._seats.scopes:
            self.overlay.heard(sender)

    def bundle(self, sender: Contact, bundle: Bundle) -> None:
        """A bundle arrived."""
        clock = self.host.now  # Python calls a variable faster than an attribute
        now = clock()  # `_heard`, inlined: this runs for every bundle
        if now > self._schedule.paused_from:
            self.topics.housekeeping.notice()
        self.neighbours.heard(sender, now)
        if self._lost or self._seats.scopes:
            self.overlay.heard(sender)
        envelope = bundle.envelope
        if envelope.term.counter > FREE_COUNT and not self.topics.terms.believes(envelope.term):
            self.host.release(sender.node_id, bundle.size)
        elif envelope.kind is UP:
            self.topics.intake.up(sender, bundle)
        elif envelope.tags:
            self.topics.tracing.arrive(sender, bundle)
        else:
            self.table.arrive(sender, bundle)

    def datagram(self, group: Contact, bundle: Bundle) -> None:
        """A bundle arrived over a multicast mechanism."""
        self.topics.housekeeping.notice()
        entering = self.scoping.datagram(group, bundle)
        if entering is None:
            self.host.release(group.node_id, bundle.size)
            return
        self.recovery.expect_losses()
        if entering.envelope.tags:
            self.topics.tracing.arrive(group, entering)
        else:
            self.table.arrive(group, entering)

    def timer(self, timer: Timer) -> None:
        """A timer is due."""
        clock = self.host.now
        if clock() > self._schedule.paused_from:
            self.topics.housekeeping.notice()
        self.dispatch.timer(timer)

    def link_up(self, contact: Contact) -> None:
        """A link to this peer is up (again), with its full credit."""
        self.topics.housekeeping.notice()
        self.neighbours.link_up(contact)
        self.topics.publishing.link_up(contact)
        self.topics.resumption.room(contact)

    def link_lost(self, contact: Contact) -> None:
        """A link broke or could not be opened."""
        self.topics.housekeeping.notice()
        self.neighbours.link_lost(contact)
        self.overlay.link_lost(contact)
        self.topics.root_finder.link_lost(contact)
        self.topics.farewells.link_lost(contact)
        self.topics.telling.link_lost(contact)
        self.recovery.link_lost(contact)
        self.scoping.link_lost(contact)
        self.table.link_lost(contact)

    def died(self, contact: Contact) -> None:
        """This peer has ended for certain."""
        self.topics.housekeeping.notice()
        self.topics.children.died(contact)
        self.neighbours.died(contact)

    def room(self, contact: Contact) -> None:
        """Continue sending to a peer that has credit again."""
        self.topics.housekeeping.notice()
        self.recovery.room(contact)
        self.topics.resumption.room(contact)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """The answer to `Host.measure`."""
        self.overlay.measured(contact, proximity)
        self.topics.climbing.measured(contact, proximity)
        self.scoping.measured(contact, proximity)

    def disk_done(self, token: Any, result: Any) -> None:
        """The answer to an order to the disk. So far, the token is always a callback."""
        token(result)

    def check(self) -> None:
        """Raise AssertionError unless every layer is consistent."""
        self.neighbours.check()
        self.streams.check()
        self.overlay.check()
        self.topics.check()
        self.scoping.check()
