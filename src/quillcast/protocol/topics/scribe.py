"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. `Scribe` makes this layer's parts,
passes each input to them, and carries out what they order of each other (`state/effects.py`). A part knows only those
that are made before it, and a folder only those before it. From the bottom up:

- `state/`: what is known of topics (`known.py`), the trees here (`trees.py`), the terms of roots (`terms.py`), what to
  report (`progress.py`) and when (`schedule.py`), and how much to keep (`flow_control.py`);
- `membership/`: local subscriptions (`subscribing.py`), this peer as a parent (`joins.py`, `children.py`) and as a
  child (`membership.py`), what neighbours report (`reporting.py`), what follows a loss (`repair.py`);
- `root/`: this peer as a root: its state elsewhere (`replication.py`), publishers' events (`intake.py`,
  `sealing.py`), what others ask of it (`rendezvous.py`, `settings.py`), and how it becomes root and ceases to be it
  (`candidacy.py`, `root_terms.py`, `leadership_transfer.py`);
- `publishing/`: its own publishers (`publishing.py`), their roots (`root_finder.py`), its streams as a source
  (`own_streams.py`), the topics that it creates and changes (`creating.py`, `changes.py`);
- what time brings (`housekeeping.py`), and what others may ask (`inspection.py`).

What travels in the tree is the data path's matter (`protocol.forwarding`).
"""

from collections import Counter
from typing import Any, get_args

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import LocalError
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.reliability.domain import RecoveryTimes
from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.groups import TreeGroups
from quillcast.protocol.topics.housekeeping import Housekeeping
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.climbing import Climbing
from quillcast.protocol.topics.membership.farewells import Farewells
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.repair import TreeRepair
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.rights import Rights
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.membership.whereabouts import Whereabouts
from quillcast.protocol.topics.messages import Accepted, Join
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.creating import Creating
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.publishing.root_finder import RootFinder
from quillcast.protocol.topics.root.admissions import Admissions
from quillcast.protocol.topics.root.candidacy import Candidacies
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root.replication import Replication
from quillcast.protocol.topics.root.root_terms import RootTerms
from quillcast.protocol.topics.root.sealing import Seal, Sealing
from quillcast.protocol.topics.root.sessions import Sessions
from quillcast.protocol.topics.root.settings import RootSettings
from quillcast.protocol.topics.root_messages import Create, Created, FindRoot, RootIs
from quillcast.protocol.topics.state.arrivals import Arrivals
from quillcast.protocol.topics.state.channels import way_to
from quillcast.protocol.topics.state.comparing import Comparing
from quillcast.protocol.topics.state.effects import (
    AllStable,
    ArrivalEffect,
    AwaitRoot,
    BecomeRoot,
    CameFromSource,
    ChildEntered,
    ChildIsParent,
    FarewellRefused,
    FindParent,
    FrontFilled,
    GapEffect,
    GapNoticed,
    Invited,
    LeaseEnded,
    LeaveIfIdle,
    LinkEffect,
    NeighbourLost,
    NobodyAnswers,
    OpenSession,
    Outdone,
    ParentAccepted,
    PlaceEffect,
    PlaceTaken,
    ProcessPaused,
    RefuseRequest,
    RequestEffect,
    Resign,
    Restored,
    RivalKnown,
    RivalLearned,
    RoomAgain,
    RoomTowards,
    RootEffect,
    RootHere,
    RootScopesChanged,
    SayFarewell,
    SeekNearerParent,
    SettingsEntered,
    SettingsLearned,
    StreamsBegin,
    TopicFailed,
)
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.link_reports import is_topic, stream_of
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.records import TopicRecords
from quillcast.protocol.topics.state.replica_set import ReplicaSet
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.source_streams import SourceStreams
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tracing import Tracing
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.state.trees import Trees

GAPS_PER_PATIENCE = 4
"""A lost datagram is asked for at the second check, when half of the patience with a slow subscriber is left."""
_ANSWERS = (Accepted, Created, RootIs)
"""What comes over the overlay where it did not come straight (`Answers.tell`)."""


class Scribe:
    """One peer's part in the topic trees."""

    __slots__ = (
        "admissions",
        "answers",
        "candidacies",
        "changes",
        "children",
        "climbing",
        "comparing",
        "config",
        "creating",
        "descriptors",
        "dispatch",
        "farewells",
        "flow_control",
        "forgetting",
        "host",
        "housekeeping",
        "inspection",
        "intake",
        "joins",
        "known",
        "leadership_transfer",
        "membership",
        "neighbours",
        "open_trees",
        "overlay",
        "placement",
        "policy",
        "progress",
        "publishing",
        "recovery",
        "rendezvous",
        "repair",
        "replica_set",
        "replication",
        "reporting",
        "rights",
        "rivals",
        "root_finder",
        "root_settings",
        "root_terms",
        "schedule",
        "sealing",
        "sessions",
        "source_streams",
        "stream_reporting",
        "streams",
        "subscribing",
        "table",
        "terms",
        "tracing",
        "trees",
        "whereabouts",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: Neighbours, streams: Streams,
        table: ForwardingTable, policy: ForwardingPolicy, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.streams, self.table, self.policy, self.dispatch = streams, table, policy, dispatch
        self.trees: dict[bytes, Tree] = {}
        self.answers = Answers(host, overlay, dispatch)
        self._make_state()
        self._make_membership()
        self._make_roots()
        self._make_publishing()
        dispatch.on_orders(get_args(PlaceEffect), self._at_place)
        dispatch.on_orders(get_args(ArrivalEffect), self._at_arrival)
        dispatch.on_orders(get_args(RootEffect), self._at_root)
        dispatch.on_orders(get_args(GapEffect), self._at_gap)
        dispatch.on_orders(get_args(RequestEffect), self._at_request)
        dispatch.on_orders(get_args(LinkEffect), self._at_link)

    # ---- the parts, from the bottom up

    def _make_state(self) -> None:
        host, config, dispatch, trees = self.host, self.config, self.dispatch, self.trees
        records = TopicRecords()
        self.forgetting = Forgetting(records.descriptors, config.idle_topics_max, config.topics_max)
        self.replica_set = ReplicaSet(host, config, self.overlay, self.neighbours)
        self.comparing = Comparing(host, config, self.overlay, self.replica_set, records, self.forgetting, dispatch)
        self.known = KnownTopics(
            host, records, trees, self.comparing, self.forgetting, self.overlay.seats, dispatch
        )  # fmt: skip
        self.descriptors, self.rivals = records.descriptors, records.rivals
        self.forgetting.keep_for_others(self.comparing)
        self.forgetting.forget_too(records.rivals)
        self.forgetting.keep_for_others(self.overlay.seats)
        self.schedule = Schedule(host, config)
        self.terms = Terms(host, config.past_terms_s, records.rivals, self.schedule, dispatch)
        self.flow_control = FlowControl(host, config, trees, self.table.budget, self.schedule, dispatch)
        self.open_trees = Trees(trees, self.table, self.streams, self.known, self.schedule, self.flow_control)
        self.placement = Placement(host.me, self.overlay, self.policy)
        self.source_streams = SourceStreams(
            host, config, self.streams, self.replica_set, self.schedule, self.placement
        )  # fmt: skip
        self.progress = Progress(
            host, trees, self.streams, self.placement, self.replica_set, self.flow_control, self.schedule,
            self.source_streams, dispatch,
        )  # fmt: skip
        self.table.tell(
            Arrivals(host, trees, self.terms, self.source_streams, self.progress, self.flow_control, dispatch)
        )
        self.tracing = Tracing(host, self.table, trees, dispatch)
        groups = TreeGroups(
            trees, self.neighbours, self.overlay, self.overlay, self.terms, self.schedule, self.source_streams,
            self.placement, host.me,
        )  # fmt: skip
        times = RecoveryTimes(
            config.gap_s, config.give_up_s, config.lease_s, min(config.gap_s, config.patience_s / GAPS_PER_PATIENCE)
        )
        self.recovery = Recovery(host, times, groups, self.flow_control, dispatch)

    def _make_membership(self) -> None:
        host, config, dispatch, trees = self.host, self.config, self.dispatch, self.open_trees
        children, parents = (
            TreeLinks(self.neighbours, self.streams, user, config.tree_heartbeat_s) for user in ("child", "parent")
        )
        self.subscribing = Subscribing(
            host, self.known, trees, self.schedule, self.source_streams, self.progress, dispatch
        )  # fmt: skip
        self.children = ChildrenTables(
            host, config, children, trees, self.placement, self.schedule, self.source_streams, self.progress, dispatch
        )  # fmt: skip
        self.joins = Joins(
            host, trees, self.terms, self.placement, self.source_streams, self.progress, self.children, self.answers,
            dispatch,
        )  # fmt: skip
        self.membership = TreeMembership(
            host, config, self.overlay, parents, trees, self.terms, self.schedule, self.progress, dispatch
        )  # fmt: skip
        self.climbing = Climbing(
            host, self.overlay, self.neighbours, trees, self.placement, self.membership, dispatch
        )  # fmt: skip
        self.stream_reporting = StreamReporting(
            host, self.streams, self.trees, self.source_streams, self.progress, dispatch
        )  # fmt: skip
        self.rights = Rights(
            host, self.children, self.membership, self.subscribing, self.stream_reporting, dispatch
        )  # fmt: skip
        self.reporting = Reporting(
            host, self.trees, self.terms, self.children, self.membership, self.progress, self.schedule, dispatch
        )  # fmt: skip
        self.repair = TreeRepair(
            host, self.overlay, self.overlay, self.neighbours, self.streams, trees, self.joins, self.membership,
            dispatch,
        )  # fmt: skip

        self.farewells = Farewells(
            host, config, self.overlay, self.trees, self.children, self.membership, dispatch
        )  # fmt: skip
        self.whereabouts = Whereabouts(
            host, config.tree_heartbeat_s, self.trees, self.children, self.membership, self.schedule, dispatch
        )  # fmt: skip

    def _make_roots(self) -> None:
        host, config, dispatch, overlay, trees = self.host, self.config, self.dispatch, self.overlay, self.open_trees
        self.replication = Replication(
            host, config, overlay, self.replica_set, self.known, self.trees, self.terms, self.comparing, dispatch
        )  # fmt: skip
        self.sealing = Sealing(
            host, trees, self.progress, self.flow_control, self.schedule, self.tracing, dispatch
        )  # fmt: skip
        self.intake = Intake(
            host, config, overlay, trees, self.terms, self.progress, self.flow_control, self.schedule, self.sealing
        )  # fmt: skip
        self.leadership_transfer = LeadershipTransfer(
            host, config, overlay, self.replica_set, self.known, trees, self.terms, self.membership, self.intake,
            dispatch,
        )  # fmt: skip
        self.root_terms = RootTerms(
            host, config, overlay, self.known, self.terms, self.replication, self.membership,
            self.leadership_transfer, dispatch,
        )  # fmt: skip
        self.root_settings = RootSettings(
            overlay, self.known, self.trees, self.terms, self.replication, self.answers, dispatch
        )  # fmt: skip
        self.rendezvous = Rendezvous(
            host, config, self.known, self.trees, self.terms, self.joins, self.intake, self.answers, dispatch
        )  # fmt: skip
        self.sessions = Sessions(
            host, config, overlay, self.known, trees, self.progress, self.leadership_transfer, dispatch
        )  # fmt: skip
        self.candidacies = Candidacies(
            host, config, overlay, self.known, self.replication, self.membership, self.intake, self.root_terms, dispatch
        )  # fmt: skip

    def _make_publishing(self) -> None:
        host, config, dispatch, overlay = self.host, self.config, self.dispatch, self.overlay
        self.creating = Creating(host, config.receipt_timeout_s, overlay, self.known, self.schedule, dispatch)
        self.changes = SettingsChanges(
            host, config.receipt_timeout_s, overlay, self.known, self.creating, self.schedule
        )  # fmt: skip
        self.root_finder = RootFinder(host, config, overlay, self.neighbours)
        own_streams = OwnStreams(self.open_trees, self.source_streams, self.sealing, dispatch)
        self.publishing = Publishing(
            host, config, self.known, self.intake, self.root_finder, own_streams, self.changes, self.schedule, dispatch
        )  # fmt: skip
        self.admissions = Admissions(host, config, self.trees, self.publishing, self.neighbours, dispatch)
        self.housekeeping = Housekeeping(
            host, config, self.open_trees, self.schedule, self.source_streams,
            (self.recovery, self.membership, self.children, self.whereabouts),
            (self.creating, self.changes, self.admissions, self.publishing, self.flow_control), dispatch,
        )  # fmt: skip
        self.inspection = Inspection(
            host, config.past_terms_s, overlay, self.known, self.trees, self.publishing,
            self.tracing, dispatch,
        )  # fmt: skip

    # ---- what parts order of others: done at once, before the part goes on

    def _at_place(self, effect: PlaceEffect) -> None:
        """This peer's place in a tree, or the neighbours in it, change."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case FindParent(_, fault):
                self.membership.join(tree, fault=fault)
            case LeaveIfIdle(_, anyway):
                self.membership.leave_if_idle(tree, anyway=anyway)
            case SayFarewell():
                self.farewells.say(tree)
            case FarewellRefused(_, sender):
                self.farewells.refused(tree, sender)
            case ParentAccepted(_, parent):
                self.reporting.take_up_parent(tree, parent)
                self.stream_reporting.take_up(tree, parent)
                self.intake.attached(tree)
            case ChildIsParent(_, node):
                self.children.remove(tree, node, "moved", lease=False)
            case NobodyAnswers():
                self.children.send_away(tree)
            case PlaceTaken(_, gone):
                self.joins.accept_waiting(tree, gone)
                self.subscribing.start_waiting(tree, gone)
            case TopicFailed(_, error):
                self.subscribing.fail(tree, error)
                self.children.fail(tree, error)

    def _at_arrival(self, effect: ArrivalEffect) -> None:
        """Children and words of what they have came."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case ChildEntered(_, child):
                self.stream_reporting.take_up(tree, child)
            case StreamsBegin():
                self.joins.dismiss_mistaken(tree)
            case LeaseEnded():
                self.progress.advance_stable(tree, self.host.now())
            case AllStable() if tree.root is not None:
                self.leadership_transfer.all_stable(tree.root)
                self.sessions.all_stable(tree)
            case RoomAgain():
                self.intake.room_again(tree)

    def _at_root(self, effect: RootEffect) -> None:
        """A topic gets another root, or other settings, or needs them."""
        tree = self.trees.get(effect.topic)
        if tree is None:
            return  # it was left before
        match effect:
            case BecomeRoot(_, how, publishers):
                self.candidacies.begin(tree, how, publishers)
            case RootHere():
                self.publishing.root_here(tree)
                self.sessions.root_here(tree)
            case ProcessPaused():
                self.root_terms.hold(tree, self.host.now())
            case Outdone():
                self.root_terms.outdone(tree)
            case RivalKnown(_, term):
                self.replication.heard_of_rival(tree.topic, term)
            case Resign():
                self.leadership_transfer.resign(tree)
            case SettingsEntered():
                self.schedule.touch(tree)
                self.changes.entered(tree)
                self.sessions.recorded(tree)
            case OpenSession(_, request):
                self.sessions.asked(tree, request)

    def _at_gap(self, effect: GapEffect) -> None:
        """Bundles are missing, or came."""
        match effect:
            case GapNoticed(topic):  # the first, as it comes with many reports
                self.recovery.look_soon(topic)
            case FrontFilled(topic, term):
                self.recovery.front_filled(topic, term)
            case Restored(bundle, sender):
                self.recovery.restored(bundle, sender)
            case CameFromSource(topic, term, source):
                self.stream_reporting.came(topic, term, source)

    def _at_request(self, effect: RequestEffect) -> None:
        """Somebody wants something of a topic, or it has other settings: it may have no tree here."""
        match effect:
            case AwaitRoot(topic, request):
                self.candidacies.wait(topic, request)
            case RefuseRequest(request, why):
                self.rendezvous.refuse(request, why)
            case SettingsLearned(descriptor, lists, first):
                self.changes.learned(descriptor)
                self._learned(descriptor, lists=lists, first=first)
                self.publishing.settings_learned(descriptor, lists=lists)
            case RivalLearned(topic):
                if topic in self.trees:
                    self.table.take_held(self.trees[topic].flow)

    def _at_link(self, effect: LinkEffect) -> None:
        """Neighbours, and the orders of scopes, change what several topics go by."""
        match effect:
            case Invited(topics, parent):
                self.membership.move(topics, parent, whole=True)
            case NeighbourLost(node):
                self.admissions.lost(node)
                self.publishing.lost(node)
            case SeekNearerParent(topic):
                self.climbing.begin(topic)
            case RoomTowards(contact):
                self.room(contact)
            case RootScopesChanged():
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

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        return self.known.describe(name)

    def learn(self, descriptor: Descriptor) -> None:
        """Adopt a descriptor if it supersedes what is known (`KnownTopics.learn`)."""
        self.known.learn(descriptor)

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

    def handle(self, topic: bytes, handlers: Handlers) -> None:
        """Set the paper's upcalls for a topic at this peer."""
        self.open_trees.handle(topic, handlers)

    # ---- leaving

    @property
    def leaving(self) -> bool:
        """Does this peer leave, and take nobody in any more?"""
        return self.open_trees.leaving

    def leave(self) -> None:
        """Leave all trees in good order: transfer leadership as root, and send children to their grandparent."""
        self.open_trees.leave()
        self.comparing.stop()
        for subscription in list(self.subscribing.all()):
            self.subscribing.unsubscribe(subscription)
        for tree in list(self.trees.values()):
            self._end_stream(tree)
            tree.keep_no_longer()
            if tree.root is not None:
                self.leadership_transfer.resign(tree)
            elif tree.moved and not tree.attached:
                tree.stop_joining()
            self.children.dismiss(tree, self.intake.successors.of(tree.topic))
            self.membership.leave_if_idle(tree)
        self.leadership_transfer.leave()

    def leave_anyway(self) -> None:
        """The time to leave is over: parents are told, also those that have not all that is kept here.

        Children that have not found others yet are named.
        """
        for tree in list(self.trees.values()):
            tree.stop_joining()
            tree.keep_no_longer()
            for node in list(tree.leases.children):
                self.children.remove(tree, node, "moved", lease=True)
            self.membership.leave_if_idle(tree, anyway=True)

    def _end_stream(self, tree: Tree) -> None:
        """This peer publishes no more: its stream ends, and the parent is told where."""
        self.sealing.seal(Seal(tree.topic))
        self.source_streams.close(tree)
        if tree.sources.mine:
            self.progress.tell(tree)
            for contact in tree.neighbours():
                self.streams.hurry(contact.node_id)

    # ---- upcalls of the overlay

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """A Join on its way to the root ends here, for this peer takes the child in."""
        if not self.terms.believes(message) or self._is_misplaced(message):
            return None
        if not isinstance(message, Join) or message.child.node_id == self.host.me or self.leaving:
            return message, next_hop
        tree = self.trees.get(message.topic)
        if tree is not None and tree.is_below(message.child.node_id):
            return message, next_hop  # a descendant of the child cannot be its parent
        if not self.placement.intercepts(tree) or not self.forgetting.has_room(message.topic):
            return message, next_hop
        if message.sends_only and (tree is None or not tree.attached or not tree.served):
            return message, next_hop  # it needs a peer of the tree, and nobody need become one for it
        if message.warrant is not None and (tree is None or not tree.attached or not tree.served or tree.barred):
            return message, next_hop  # where a list may say who subscribes, only those who do forward to others
        entry = self.placement.entry_instead(tree, message)
        if entry is None or self.neighbours.suspected(entry.node_id) or not self.joins.send_on(message, entry):
            self.joins.adopt(message)
        return None

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """This peer is the closest to the topic, and so its rendezvous point; or it is told something by this way."""
        if self.leaving or not self.terms.believes(message):
            return  # the sender asks again, and then it reaches the closest of the other peers
        if self._is_misplaced(message) or self._is_crowded(message):
            return
        if not isinstance(message, _ANSWERS):
            self.dispatch.routed(message)
        elif key == self.host.me:  # else whom it was for is gone
            self.dispatch.message(source, message)

    def _is_misplaced(self, message: Any) -> bool:
        """Is it about a topic that has another root scope here? Then who asks is told."""
        match message:
            case FindRoot(topic, descriptor=None, root_scope=root_scope):
                why = self.known.hidden(topic, root_scope)
            case Join() | FindRoot() | Create() if message.descriptor is not None:
                why = self.known.misplaced(message.descriptor)
            case _:
                return False
        if not why:
            return False
        self.host.trace(Mark("other_root_scope"))
        self.rendezvous.refuse(message, why)
        return True

    def _is_crowded(self, message: Any) -> bool:
        """Would it have this peer begin with one topic too many? Then who asks is told."""
        match message:
            case Join(topic, child):
                why = self.children.crowded(topic, child.node_id)
            case FindRoot(topic):
                why = self.known.crowded(topic)
            case Create(descriptor):
                why = self.known.crowded(descriptor.topic)
            case _:
                return False
        if why:
            self.rendezvous.refuse(message, why)
        return bool(why)

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
