"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. `Scribe` passes each input to this
layer's parts (`parts.py`), and carries out what they order of each other (`state/effects.py`). What travels in the tree
is the data path's matter (`protocol.forwarding`).
"""

from collections import Counter
from typing import Any, get_args

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import LocalError
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Accepted, Join
from quillcast.protocol.topics.parts import Parts
from quillcast.protocol.topics.root_messages import Created, RootIs
from quillcast.protocol.topics.state import effects
from quillcast.protocol.topics.state.channels import way_to
from quillcast.protocol.topics.state.link_reports import is_topic, stream_of
from quillcast.protocol.topics.state.tree import Tree

_ANSWERS = (Accepted, Created, RootIs)
"""What comes over the overlay where it did not come straight (`Answers.tell`)."""


class Scribe(Parts):
    """One peer's part in the topic trees."""

    __slots__ = ()

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: Neighbours, streams: Streams,
        table: ForwardingTable, policy: ForwardingPolicy, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        super().__init__(host, config, overlay, neighbours, streams, table, policy, dispatch)
        dispatch.on_orders(get_args(effects.PlaceEffect), self._at_place)
        dispatch.on_orders(get_args(effects.ArrivalEffect), self._at_arrival)
        dispatch.on_orders(get_args(effects.RootEffect), self._at_root)
        dispatch.on_orders(get_args(effects.GapEffect), self._at_gap)
        dispatch.on_orders(get_args(effects.RequestEffect), self._at_request)
        dispatch.on_orders(get_args(effects.LinkEffect), self._at_link)

    # ---- what parts order of others: done at once, before the part goes on

    def _at_place(self, effect: effects.PlaceEffect) -> None:
        """This peer's place in a tree, or the neighbours in it, change."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.FindParent(_, fault):
                self.membership.join(tree, fault=fault)
            case effects.LeaveIfIdle(_, anyway):
                self.membership.leave_if_idle(tree, anyway=anyway)
            case effects.SayFarewell():
                self.farewells.say(tree)
            case effects.FarewellRefused(_, sender):
                self.farewells.refused(tree, sender)
            case effects.ParentAccepted(_, parent):
                self.reporting.take_up_parent(tree, parent)
                self.stream_reporting.take_up(tree, parent)
                self.intake.attached(tree)
            case effects.ChildIsParent(_, node):
                self.children.remove(tree, node, "moved", lease=False)
            case effects.NobodyAnswers():
                self.children.send_away(tree)
            case effects.PlaceTaken(_, gone):
                self.joins.accept_waiting(tree, gone)
                self.subscribing.start_waiting(tree, gone)
            case effects.TopicFailed(_, error):
                self.subscribing.fail(tree, error)
                self.children.fail(tree, error)

    def _at_arrival(self, effect: effects.ArrivalEffect) -> None:
        """Children and words of what they have came."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.ChildEntered(_, child):
                self.stream_reporting.take_up(tree, child)
            case effects.StreamsBegin():
                self.joins.dismiss_mistaken(tree)
            case effects.LeaseEnded():
                self.progress.advance_stable(tree, self.host.now())
            case effects.AllStable() if tree.root is not None:
                self.leadership_transfer.all_stable(tree.root)
                self.sessions.all_stable(tree)
            case effects.RoomAgain():
                self.intake.room_again(tree)

    def _at_root(self, effect: effects.RootEffect) -> None:
        """A topic gets another root, or other settings, or needs them."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case effects.BecomeRoot(_, how, publishers):
                self.candidacies.begin(tree, how, publishers)
            case effects.RootHere():
                self.publishing.root_here(tree)
                self.sessions.root_here(tree)
            case effects.ProcessPaused():
                self.root_terms.hold(tree, self.host.now())
            case effects.Outdone():
                self.root_terms.outdone(tree)
            case effects.RivalKnown(_, term):
                self.replication.heard_of_rival(tree.topic, term)
            case effects.Resign():
                self.leadership_transfer.resign(tree)
            case effects.SettingsEntered():
                self.schedule.touch(tree)
                self.changes.entered(tree)
                self.sessions.recorded(tree)
            case effects.OpenSession(_, request):
                self.sessions.asked(tree, request)

    def _at_gap(self, effect: effects.GapEffect) -> None:
        """Bundles are missing, or came."""
        match effect:
            case effects.GapNoticed(topic):  # the first, as it comes with many reports
                self.recovery.look_soon(topic)
            case effects.FrontFilled(topic, term):
                self.recovery.front_filled(topic, term)
            case effects.Restored(bundle, sender):
                self.recovery.restored(bundle, sender)
            case effects.CameFromSource(topic, term, source):
                self.stream_reporting.came(topic, term, source)

    def _at_request(self, effect: effects.RequestEffect) -> None:
        """Somebody wants something of a topic, or it has other settings: it may have no tree here."""
        match effect:
            case effects.AwaitRoot(topic, request):
                self.candidacies.wait(topic, request)
            case effects.RefuseRequest(request, why):
                self.rendezvous.refuse(request, why)
            case effects.SettingsLearned(descriptor, lists, first):
                self.changes.learned(descriptor)
                self._learned(descriptor, lists=lists, first=first)
                self.publishing.settings_learned(descriptor, lists=lists)
            case effects.RivalLearned(topic):
                if topic in self.trees:
                    self.table.take_held(self.trees[topic].flow)

    def _at_link(self, effect: effects.LinkEffect) -> None:
        """Neighbours, and the orders of scopes, change what several topics go by."""
        match effect:
            case effects.Invited(topics, parent):
                self.membership.move(topics, parent, whole=True)
            case effects.NeighbourLost(node):
                self.admissions.lost(node)
                self.publishing.lost(node)
            case effects.SeekNearerParent(topic):
                self.climbing.begin(topic)
            case effects.RoomTowards(contact):
                self.room(contact)
            case effects.RootScopesChanged():
                self._root_scopes_changed()

    def _learned(self, descriptor: Descriptor, *, lists: bool, first: bool) -> None:
        """If the topic has a tree here, that goes by its settings. Those who may not have its events go first."""
        topic = descriptor.topic
        if topic in self.trees:
            self.publishing.own_streams.settings_learned(self.trees[topic])
        if topic in self.trees and lists:
            self.rights.learned(self.trees[topic], first=first)
        if topic in self.trees:
            self.table.take_held(self.trees[topic].flow)
            self.joins.dismiss_mistaken(self.trees[topic])
            self.schedule.touch(self.trees[topic])
            self.root_settings.learned(self.trees[topic])

    # ---- topics

    def awaited(self, topic: bytes) -> list[Contact]:
        """Whose answer this peer waits for until it takes part in a topic.

        Replicas if it is to be root, else the peer that it asked itself for a parent, or the next one on the way to
        the root. Until it is part of the network, whom it joins that through.
        """
        if not self.overlay.active:
            return self.overlay.joining.awaited
        tree = self.trees.get(topic)
        direct = tree.next_parent if tree is not None else None
        way = [direct or self.overlay.next_hop(topic)]
        return self.replication.awaited(topic) or [contact for contact in way if contact is not None]

    # ---- upcalls of the overlay

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """A Join on its way to the root ends here, for this peer takes the child in."""
        if not self.terms.believes(message) or self.rendezvous.refuses_scope(message):
            return None
        if isinstance(message, Join) and message.child.node_id != self.host.me and self.interception.take(message):
            return None
        return message, next_hop

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """This peer is the closest to the topic, and so its rendezvous point; or it is told something by this way."""
        if self.open_trees.leaving or not self.terms.believes(message):
            return  # the sender asks again, and then it reaches the closest of the other peers
        if self.rendezvous.refuses_scope(message) or self.rendezvous.refuses_for_room(message):
            return
        if not isinstance(message, _ANSWERS):
            self.dispatch.routed(message)
        elif key == self.host.me:  # else whom it was for is gone
            self.dispatch.message(source, message)

    def _root_scopes_changed(self) -> None:
        """Managers name other scopes as root scopes of topics, or other peers as their rendezvous points.

        The first time, nothing has left this peer yet: what its applications asked for goes by what they say.
        """
        if self.overlay.active:
            self.leaf_set_changed()
            return
        for tree in list(self.trees.values()):
            try:
                self.known.root_anew(tree)
            except LocalError as two:
                self.membership.fail(tree, two)
        self.publishing.root_anew()

    def leaf_set_changed(self) -> None:
        """The closest peer to a topic may have changed."""
        self.leadership_transfer.leaf_set_changed()
        self.replication.leaf_set_changed()
        self.candidacies.leaf_set_changed()
        self.membership.join_where_needed()

    # ---- upcalls of the links

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: one neighbour lost means every tree link to it."""
        self.children.lost(contact)
        self.repair.lost(contact)

    def recovered(self, contact: Contact) -> None:
        """Upcall of the failure detector. Nothing is believed of old: the link's streams tell anew what each holds."""

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: what a neighbour reports on a topic, or on a source's stream in one."""
        if is_topic(key):
            self.reporting.changed(sender, key, value)
        else:
            self.terms.check(stream_of(key)[1])
            self.stream_reporting.changed(sender, key, value)

    def kept(self, key: bytes) -> bytes:
        """The topic's id as its tree has it."""
        tree = self.trees.get(key)
        return key if tree is None else tree.topic

    def room(self, contact: Contact) -> None:
        """There is credit again towards a peer: its channels go on in turn, and so do publishers whose root it is."""
        node = contact.node_id
        beside = (self.trees[topic] for topic in self.placement.leading_to(node) if topic in self.trees)
        trees = dict.fromkeys([*self.open_trees.linked(node), *beside])
        ways = [(tree.flow, channel) for tree in trees if (channel := way_to(tree, node)) is not None]
        self.table.resume(contact, ways)
        self.publishing.room(contact)

    def check(self) -> None:
        """Raise AssertionError unless every tree is sound and the indexes by link agree with them."""
        trees = self.trees.values()
        for tree in trees:
            tree.check_place(self.host.me)
        parents = [(tree.parent.node_id, tree) for tree in trees if tree.parent is not None]
        children = [(node, tree) for tree in trees for node in tree.leases.children]
        assert self.membership.parents.counts == Counter([node for node, _ in parents])
        assert self.children.links.counts == Counter([node for node, _ in children])
        linked: dict[bytes, set[Tree]] = {}
        for node, tree in parents + children:
            linked.setdefault(node, set()).add(tree)
        for node, its in linked.items():
            assert {*self.open_trees.linked(node)} == its
        waiting = {tree.topic for tree in trees if tree.is_due}
        assert waiting <= {*self.schedule.due, *self.schedule.dirty}, "time passes by a topic that waits for it"
        assert self.schedule.due.keys() <= self.trees.keys()
        self.publishing.check()
        self.candidacies.check()
        self.forgetting.check()
        assert self.trees.keys() <= self.known.descriptors.keys()
        assert {topic: tree.flow for topic, tree in self.trees.items()} == self.table.flows
        self.table.check()
