"""Scribe: children tables, reverse-path trees, and their repair (Scribe, sections 3.1 and 3.2).

The tree is the union of the subscribers' routes to the topic's rendezvous point. `Scribe` makes this layer's parts,
passes each input to them, and carries out what they order of parts above them (`state/effects.py`). A part knows only
those that are made before it, and a folder only those before it. From the bottom up:

- `state/`: what is known of topics (`known.py`), the trees here (`trees.py`), the terms of roots (`terms.py`), what to
  report (`reports.py`, `progress.py`) and how much to keep (`flow_control.py`);
- `membership/`: local subscriptions (`subscribing.py`), this peer as a parent (`children.py`) and as a child
  (`membership.py`), what neighbours report (`reporting.py`), what follows a loss (`repair.py`);
- `root/`: this peer as a root: its state elsewhere (`replication.py`), publishers' events (`intake.py`), and how it
  becomes, is and ceases to be root (`candidacy.py`, `rendezvous.py`, `leadership_transfer.py`);
- `publishing/`: its own publishers (`publishing.py`), and changes of a topic's settings (`changes.py`);
- what time brings (`housekeeping.py`), and what others may ask (`inspection.py`).

What travels in the tree is the data path's matter (`protocol.forwarding`).
"""

from collections import Counter
from typing import Any

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.reliability.recovery import Recovery, RecoveryTimes
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.groups import TreeGroups
from quillcast.protocol.topics.housekeeping import Housekeeping
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.repair import TreeRepair
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.messages import Accepted, Created, Join, RootIs
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.root.admissions import Admissions
from quillcast.protocol.topics.root.candidacy import Candidacies
from quillcast.protocol.topics.root.intake import Intake, Seal
from quillcast.protocol.topics.root.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root.replication import Replication
from quillcast.protocol.topics.root.sessions import Sessions
from quillcast.protocol.topics.state.arrivals import Arrivals
from quillcast.protocol.topics.state.comparing import Comparing
from quillcast.protocol.topics.state.due import DueTopics
from quillcast.protocol.topics.state.effects import (
    AllStable,
    AwaitRoot,
    BecomeRoot,
    CameFromSource,
    ChildEntered,
    Effect,
    FindParent,
    FrontFilled,
    GapNoticed,
    LeaseEnded,
    LeaveIfIdle,
    NeighbourLost,
    OpenSession,
    Outdone,
    ParentAccepted,
    Resign,
    RootEffect,
    RootHere,
    SettingsEntered,
    SettingsLearned,
)
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.link_reports import is_topic
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.records import TopicRecords
from quillcast.protocol.topics.state.replica_set import ReplicaSet
from quillcast.protocol.topics.state.reports import Reports
from quillcast.protocol.topics.state.ring import Answers
from quillcast.protocol.topics.state.source_streams import SourceStreams
from quillcast.protocol.topics.state.successors import Successors
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tracing import Tracing
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.state.trees import Trees, linked

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
        "comparing",
        "config",
        "descriptors",
        "dispatch",
        "due",
        "flow_control",
        "forgetting",
        "handlers",
        "host",
        "housekeeping",
        "inspection",
        "intake",
        "known",
        "leadership_transfer",
        "membership",
        "neighbours",
        "open_trees",
        "overlay",
        "placement",
        "policy",
        "progress",
        "publishers",
        "publishing",
        "recovery",
        "rendezvous",
        "repair",
        "replica_set",
        "replication",
        "reporting",
        "reports",
        "rivals",
        "sessions",
        "source_streams",
        "stream_reporting",
        "streams",
        "subscribing",
        "successors",
        "table",
        "terms",
        "tracing",
        "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: Neighbours, streams: Streams,
        table: ForwardingTable, policy: ForwardingPolicy, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.streams, self.table, self.policy, self.dispatch = streams, table, policy, dispatch
        self.trees: dict[bytes, Tree] = {}
        self.handlers: dict[bytes, Handlers] = {}
        self.answers = Answers(host, overlay, dispatch)
        self.successors = Successors()
        self._make_state()
        self._make_membership()
        self._make_roots()
        self._make_publishing()

    # ---- the parts, from the bottom up

    def _make_state(self) -> None:
        host, config, dispatch, trees = self.host, self.config, self.dispatch, self.trees
        records = TopicRecords()
        self.forgetting = Forgetting(records.descriptors, config.idle_topics_max)
        self.replica_set = ReplicaSet(host, config, self.overlay, self.neighbours)
        self.comparing = Comparing(host, config, self.overlay, self.replica_set, records, self.forgetting, dispatch)
        self.known = KnownTopics(host, records, trees, self.comparing, self.forgetting, self.carry_out)
        self.descriptors, self.rivals = records.descriptors, records.rivals
        self.forgetting.keep_for_others(self.comparing)
        self.forgetting.spare(self.handlers)
        self.forgetting.forget_too(records.rivals)
        self.due = DueTopics(host, config.housekeeping_s)
        self.reports = Reports(host, config.report_s)
        self.terms = Terms(host, config.past_terms_s, self.reports, self.due, self.carry_out)
        self.flow_control = FlowControl(
            host, config, trees, self.table.budget, self.reports, dispatch, self.carry_out
        )  # fmt: skip
        self.open_trees = Trees(
            trees, self.table, self.known, self.due, self.reports, self.flow_control, self.forgetting,
            self.handlers,
        )  # fmt: skip
        self.placement = Placement(host.me, self.overlay, self.policy)
        self.source_streams = SourceStreams(host, config, self.streams, self.replica_set, self.reports, self.due)
        self.progress = Progress(
            host, config, trees, self.streams, self.placement, self.replica_set, self.flow_control, self.reports,
            self.due, self.source_streams, dispatch, self.carry_out,
        )  # fmt: skip
        self.table.listener = Arrivals(
            host, trees, self.terms, self.source_streams, self.progress, self.flow_control, self.carry_out
        )  # fmt: skip
        self.tracing = Tracing(host, self.table, trees, dispatch)
        groups = TreeGroups(
            trees, self.neighbours, self.overlay, self.terms, self.reports, self.flow_control, self.source_streams,
            host.me,
        )  # fmt: skip
        times = RecoveryTimes(config.gap_s, config.give_up_s, config.lease_s)
        self.recovery = Recovery(host, times, groups, dispatch)

    def _make_membership(self) -> None:
        host, config, dispatch, streams = self.host, self.config, self.dispatch, self.streams
        self.subscribing = Subscribing(
            host, self.known, self.open_trees, self.reports, self.source_streams, self.progress, dispatch,
            self.carry_out,
        )  # fmt: skip
        self.children = ChildrenTables(
            host, config, self.neighbours, streams, self.known, self.open_trees, self.terms, self.placement,
            self.reports, self.source_streams, self.progress, self.answers, self.handlers, self.successors, dispatch,
            self.carry_out,
        )  # fmt: skip
        self.membership = TreeMembership(
            host, config, self.overlay, self.neighbours, streams, self.known, self.open_trees, self.terms,
            self.children, self.subscribing, self.reports, self.source_streams, self.progress, self.due, self.handlers,
            dispatch, self.carry_out,
        )  # fmt: skip
        self.stream_reporting = StreamReporting(
            host, streams, self.trees, self.source_streams, self.progress, dispatch, self.carry_out
        )  # fmt: skip
        self.reporting = Reporting(
            host, streams, self.trees, self.terms, self.children, self.membership, self.progress, self.reports,
            self.due, self.carry_out,
        )  # fmt: skip
        self.repair = TreeRepair(
            host, config, self.overlay, self.neighbours, streams, self.open_trees, self.children, self.membership,
            self.reports, dispatch, self.carry_out,
        )  # fmt: skip

    def _make_roots(self) -> None:
        host, config, dispatch, overlay = self.host, self.config, self.dispatch, self.overlay
        self.replication = Replication(
            host, config, overlay, self.replica_set, self.known, self.trees, self.terms, self.comparing, dispatch
        )  # fmt: skip
        self.intake = Intake(
            host, config, overlay, self.open_trees, self.terms, self.table, self.progress, self.flow_control,
            self.due, self.successors, self.tracing, dispatch,
        )  # fmt: skip
        self.leadership_transfer = LeadershipTransfer(
            host, config, overlay, self.known, self.open_trees, self.terms, self.membership, self.repair,
            self.progress, self.intake, self.successors, self.forgetting, dispatch, self.carry_out,
        )  # fmt: skip
        self.rendezvous = Rendezvous(
            host, config, overlay, self.known, self.trees, self.terms, self.replica_set, self.replication,
            self.membership, self.children, self.progress, self.intake, self.leadership_transfer, self.answers,
            dispatch, self.carry_out,
        )  # fmt: skip
        self.sessions = Sessions(
            host, config, overlay, self.known, self.open_trees, self.progress, self.leadership_transfer, dispatch,
            self.carry_out,
        )  # fmt: skip
        self.candidacies = Candidacies(
            host, config, overlay, self.replica_set, self.known, self.open_trees, self.replication, self.rendezvous,
            self.leadership_transfer, self.intake, self.membership, self.forgetting, dispatch,
        )  # fmt: skip

    def _make_publishing(self) -> None:
        host, config, dispatch, overlay = self.host, self.config, self.dispatch, self.overlay
        self.publishers: dict[bytes, dict[bytes, Publisher]] = {}
        self.changes = SettingsChanges(
            host, config.receipt_timeout_s, overlay, self.trees, self.publishers, self.due, self.forgetting
        )  # fmt: skip
        self.publishing = Publishing(
            host, config, overlay, self.neighbours, self.known, self.open_trees, self.publishers, self.intake,
            self.flow_control, self.source_streams, self.changes, self.due, self.forgetting, dispatch, self.carry_out,
        )  # fmt: skip
        self.admissions = Admissions(host, config, self.trees, self.publishing, self.neighbours, dispatch)
        self.housekeeping = Housekeeping(
            host, config, self.open_trees, self.due, self.membership, self.children, self.rendezvous, self.admissions,
            self.publishing, self.changes, self.flow_control, self.source_streams, self.reports, dispatch,
            self.carry_out,
        )  # fmt: skip
        self.inspection = Inspection(
            host, config.past_terms_s, overlay, self.known, self.trees, self.publishing.roots,
            self.flow_control.withheld_by_topic, self.tracing, dispatch,
        )  # fmt: skip

    def carry_out(self, effect: Effect) -> None:
        """A part orders something of one above it: do it now, before the part goes on."""
        match effect:
            case FindParent(tree, fault):
                self.membership.join(tree, fault=fault)
            case LeaveIfIdle(tree):
                self.membership.leave_if_idle(tree)
            case LeaseEnded(tree):
                self.progress.advance_stable(tree, self.host.now())
            case ParentAccepted(tree, parent):
                self.reporting.take_up_parent(tree, parent)
                self.stream_reporting.take_up(tree, parent)
            case ChildEntered(tree, child):
                self.stream_reporting.take_up(tree, child)
            case NeighbourLost(node):
                self.admissions.lost(node)
                self.publishing.lost(node)
            case GapNoticed(topic):
                self.recovery.look_soon(topic)
            case FrontFilled(topic, term):
                self.recovery.front_filled(topic, term)
            case CameFromSource(topic, term, source):
                self.stream_reporting.came(topic, term, source)
            case _:
                self._carry_out_at_root(effect)

    def _carry_out_at_root(self, effect: RootEffect) -> None:
        """The same, for what becomes of roots."""
        match effect:
            case BecomeRoot(tree, how, publishers):
                self.candidacies.begin(tree, how, publishers)
            case AwaitRoot(topic, request):
                self.candidacies.wait(topic, request)
            case RootHere(tree):
                self.publishing.root_here(tree)
                self.sessions.root_here(tree)
            case SettingsLearned(descriptor):
                self.changes.learned(descriptor)
                if descriptor.topic in self.trees:
                    self.table.take_held(self.trees[descriptor.topic].flow)
                    self.reports.touch(self.trees[descriptor.topic])
                    self.rendezvous.settings_learned(self.trees[descriptor.topic])
            case SettingsEntered(tree):
                self.reports.touch(tree)
                self.changes.entered(tree)
                self.sessions.recorded(tree)
            case OpenSession(tree, request):
                self.sessions.asked(tree, request)
            case Outdone(tree):
                self.rendezvous.outdone(tree)
            case Resign(tree):
                self.leadership_transfer.resign(tree)
            case AllStable(tree) if tree.root is not None:
                self.leadership_transfer.all_stable(tree.root)
                self.sessions.all_stable(tree)

    # ---- topics

    def describe(self, name: str) -> Descriptor:
        """The descriptor of a topic by name: the known one, or what first use would create. Raises `LocalError`."""
        return self.known.describe(name)

    def learn(self, descriptor: Descriptor) -> None:
        """Adopt a descriptor if it supersedes what is known (`KnownTopics.learn`)."""
        self.known.learn(descriptor)

    def handle(self, topic: bytes, handlers: Handlers) -> None:
        """Set the paper's upcalls for a topic at this peer."""
        self.handlers[topic] = handlers
        if topic in self.trees:
            self.open_trees.handle(self.trees[topic], handlers)

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
            tree.keeping_until = None
            if tree.root is not None:
                self.leadership_transfer.resign(tree)
            self.children.dismiss(tree)
            self.membership.leave_if_idle(tree)
        self.leadership_transfer.leave()

    def _end_stream(self, tree: Tree) -> None:
        """This peer publishes no more: its stream ends, and the parent is told where."""
        self.intake.seal(Seal(tree.topic))
        self.source_streams.close(tree)
        if tree.sources.mine:
            self.progress.tell(tree)
            for contact in tree.neighbours():
                self.streams.hurry(contact.node_id)

    # ---- upcalls of the overlay

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """A Join on its way to the root ends here, for this peer takes the child in."""
        if not isinstance(message, Join) or message.child.node_id == self.host.me or self.leaving:
            return message, next_hop
        tree = self.trees.get(message.topic)
        if tree is not None and (message.child.node_id in tree.path or tree.parent == message.child):
            return message, next_hop  # a descendant of the child cannot be its parent
        if not self.placement.intercepts(tree):
            return message, next_hop
        if message.sends_only and (tree is None or not tree.attached or not tree.served):
            return message, next_hop  # it needs a peer of the tree, and nobody need become one for it
        if message.warrant is not None and (tree is None or not tree.attached or not tree.served):
            return message, next_hop  # where a list may say who subscribes, only those who do forward to others
        self.children.adopt(message)
        return None

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """This peer is the closest to the topic, and so its rendezvous point; or it is told something by this way."""
        if self.leaving:
            return  # the sender asks again, and then it reaches the closest of the other peers
        if not isinstance(message, _ANSWERS):
            self.dispatch.routed(message)
        elif key == self.host.me:  # else whom it was for is gone
            self.dispatch.message(source, message)

    def leaf_set_changed(self) -> None:
        """The closest peer to a topic may have changed."""
        self.leadership_transfer.leaf_set_changed()
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
        """Upcall of the link's stream: what a neighbour reports on a topic, or on a source's stream in one."""
        if is_topic(key):
            self.reporting.changed(sender, key, value)
        else:
            self.stream_reporting.changed(sender, key, value)

    def kept(self, key: bytes) -> bytes:
        """The topic's id as its tree has it."""
        tree = self.trees.get(key)
        return key if tree is None else tree.topic

    def room(self, contact: Contact) -> None:
        """There is credit again towards a peer: its channels go on in turn, and so do publishers whose root it is."""
        node = contact.node_id
        beside = (self.trees[topic] for topic in self.placement.leading_to(node) if topic in self.trees)
        trees = dict.fromkeys([*linked(self.streams, self.trees, node), *beside])
        ways = [(tree.flow, channel) for tree in trees if (channel := tree.way_to(node)) is not None]
        self.table.resume(contact, ways)
        self.publishing.room(contact)

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
            assert {*linked(self.streams, self.trees, node)} == {
                tree for other, tree in parents + children if other == node
            }
        waiting = {tree.topic for tree in trees if tree.is_due}
        assert waiting <= {*self.due.topics, *self.reports.dirty}, "time passes by a topic that waits for it"
        assert self.due.topics.keys() <= self.trees.keys()
        self.publishing.check()
        self.candidacies.check()
        self.forgetting.check()
        assert self.trees.keys() <= self.known.descriptors.keys()
        assert {topic: tree.flow for topic, tree in self.trees.items()} == self.table.flows
        self.table.check()
