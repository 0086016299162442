"""The parts of the topics layer, made from the bottom up.

A part knows only the parts made before it, and a folder only the folders before it. From the bottom up:

- `state/`: one topic at this peer (`tree.py`), and when to report (`schedule.py`);
- `known/`: what is known of topics (`known.py`) and the terms of their roots (`terms.py`);
- `memory/`: what is kept (`retention.py`), and how much (`flow_control.py`);
- `trees.py`: the trees here;
- `policy/`: the forwarding policy at this peer's place (`placement.py`);
- `streams/`: the streams of sources (`source_streams.py`);
- `stability/`: what is stable, and what to report (`progress.py`);
- `membership/`: local subscriptions (`subscribing.py`), this peer as a parent (`joins.py`, `children.py`) and as a
  child (`membership.py`), reports of neighbours (`reporting.py`), what follows a loss (`repair.py`);
- `root/`: this peer as a root: its state at replicas (`replication.py`), publishers' events (`intake.py`,
  `sealing.py`), requests of others (`rendezvous.py`, `settings.py`), and how it becomes root and resigns
  (`candidacy.py`, `root_terms.py`, `resigning.py`), what it tells the next one, and what it is told (`last_words.py`,
  `telling.py`, `offers.py`, `next_root.py`), and what it does after a pause (`paused_roots.py`);
- `publishing/`: its own publishers (`publishing.py`), their roots (`root_finder.py`), its streams as a source
  (`own_streams.py`), the topics that it creates and changes (`creating.py`, `changes.py`);
- periodic checks (`housekeeping.py`), and queries (`inspection.py`);
- what the layers below call (`scribe.py`), and which parts carry out what others order (`orders.py`).
"""

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.protocol.forwarding.policy import ForwardingPolicy
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.reliability.domain import RecoveryTimes
from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.groups import TreeGroups
from quillcast.protocol.topics.housekeeping import Housekeeping
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.known.comparing import Comparing
from quillcast.protocol.topics.known.forgetting import Forgetting
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.records import TopicRecords
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.leaving import LeavingTrees
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.climbing import Climbing
from quillcast.protocol.topics.membership.farewells import Farewells
from quillcast.protocol.topics.membership.interception import Interception
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.repair import TreeRepair
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.rights import Rights
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.membership.whereabouts import Whereabouts
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.orders import (
    ArrivalOrders,
    ChildOrders,
    GapOrders,
    LossOrders,
    PlaceOrders,
    RootOrders,
    RootScopeOrders,
    SessionOrders,
    SettingsOrders,
    TransferOrders,
    TreeSettings,
)
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.creating import Creating
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.publishing.root_finder import RootFinder
from quillcast.protocol.topics.root.admissions import Admissions
from quillcast.protocol.topics.root.candidacy import Candidacies
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.last_words import LastWords
from quillcast.protocol.topics.root.next_root import InheritedTerms, NextRoot, TakingOver
from quillcast.protocol.topics.root.offers import Offers
from quillcast.protocol.topics.root.paused_roots import PausedRoots
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root.replication import Replication
from quillcast.protocol.topics.root.resigning import MovingRoots, NextSessions, Resigning
from quillcast.protocol.topics.root.root_terms import RootTerms
from quillcast.protocol.topics.root.sealing import Sealing
from quillcast.protocol.topics.root.sessions import Sessions
from quillcast.protocol.topics.root.settings import RootSettings
from quillcast.protocol.topics.root.telling import Telling
from quillcast.protocol.topics.scribe import LinkUpcalls, Resumption, Scribe
from quillcast.protocol.topics.stability.arrivals import Arrivals
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.tracing import Tracing
from quillcast.protocol.topics.trees import Trees

GAPS_PER_PATIENCE = 4
"""A lost datagram is asked for at the second check, when half of the patience with a slow subscriber is left."""


class Parts:
    """This layer's parts at one peer."""

    __slots__ = (
        "admissions", "answers", "candidacies", "changes", "children", "climbing", "comparing", "config", "creating",
        "descriptors", "dispatch", "farewells", "flow_control", "forgetting", "host", "housekeeping", "inspection",
        "intake", "interception", "joins", "known", "last_words", "leaving", "links", "membership", "moving_roots",
        "neighbours", "next_root", "next_sessions", "offers", "open_trees", "overlay", "paused_roots", "placement",
        "policy", "progress", "publishing", "recovery", "rendezvous", "repair", "replica_set", "replication",
        "reporting", "resigning", "resumption", "rights", "rivals", "root_finder", "root_settings", "root_terms",
        "schedule", "scribe", "sealing", "sessions", "source_streams", "stream_reporting", "streams", "subscribing",
        "table", "telling", "terms", "tracing", "trees", "whereabouts",
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
        self._make_upcalls()

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
            trees, self.neighbours, self.overlay, self.terms, self.schedule, self.source_streams, self.placement
        )  # fmt: skip
        times = RecoveryTimes(
            config.gap_s, config.give_up_s, config.lease_s, min(config.gap_s, config.patience_s / GAPS_PER_PATIENCE)
        )
        self.recovery = Recovery(host, times, groups, self.flow_control, dispatch)
        GapOrders(self.recovery, dispatch)

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
        self.interception = Interception(trees, self.placement, self.neighbours, self.forgetting, self.joins)
        self.membership = TreeMembership(
            host, config, self.overlay, parents, trees, self.terms, self.schedule, self.progress, dispatch
        )  # fmt: skip
        self.climbing = Climbing(
            host, self.overlay, self.neighbours, self.known, self.trees, self.placement, self.membership, dispatch
        )  # fmt: skip
        self.stream_reporting = StreamReporting(
            host, self.streams, self.trees, self.schedule, self.source_streams, self.progress, dispatch
        )  # fmt: skip
        self.rights = Rights(
            host, self.trees, self.source_streams, self.children, self.membership, self.subscribing,
            self.stream_reporting, dispatch,
        )  # fmt: skip
        self.reporting = Reporting(
            host, self.known, self.trees, self.terms, self.children, self.membership, self.progress, self.schedule,
            dispatch,
        )  # fmt: skip
        self.repair = TreeRepair(
            host, self.overlay, self.neighbours, trees, self.placement, self.joins, self.membership, dispatch
        )  # fmt: skip

        self.farewells = Farewells(
            host, config, self.overlay, trees, self.progress.moves, self.children, self.membership, dispatch
        )  # fmt: skip
        self.whereabouts = Whereabouts(
            host, config.tree_heartbeat_s, self.trees, self.progress.moves, self.children, self.membership,
            self.schedule, dispatch,
        )  # fmt: skip
        PlaceOrders(self.trees, self.membership, self.farewells, self.climbing, dispatch)
        ChildOrders(self.trees, self.children, self.joins, self.subscribing, dispatch)

    def _make_roots(self) -> None:
        host, config, dispatch, overlay, trees = self.host, self.config, self.dispatch, self.overlay, self.open_trees
        self.replication = Replication(
            host, config, overlay, self.replica_set, self.known, self.trees, self.terms, self.comparing, dispatch
        )  # fmt: skip
        self.sealing = Sealing(
            host, self.table, self.trees, self.progress, self.flow_control, self.schedule, self.tracing, dispatch
        )  # fmt: skip
        self.intake = Intake(
            host, config, overlay, trees, self.terms, self.progress, self.flow_control, self.schedule, self.sealing
        )  # fmt: skip
        self._make_transfer()
        self.root_terms = RootTerms(
            host, config, self.terms, self.membership, self.next_root, self.intake.early, dispatch
        )  # fmt: skip
        self.paused_roots = PausedRoots(
            host, config, self.known, self.terms, self.schedule, self.replication, self.membership, dispatch
        )  # fmt: skip
        self.root_settings = RootSettings(
            overlay, self.known, self.trees, self.terms, self.replication, self.answers, dispatch
        )  # fmt: skip
        self.rendezvous = Rendezvous(
            host, config, self.known, self.trees, self.terms, self.joins, self.intake.bearers, self.answers, dispatch
        )  # fmt: skip
        self.sessions = Sessions(
            host, config, overlay, self.known, trees, self.flow_control, self.progress, self.next_sessions, dispatch
        )  # fmt: skip
        self.candidacies = Candidacies(
            host, config, overlay, self.known, trees, self.replication, self.membership, self.intake, self.root_terms,
            dispatch,
        )  # fmt: skip
        ArrivalOrders(
            host, self.trees, self.reporting, self.stream_reporting, self.progress, self.intake, dispatch
        )  # fmt: skip
        RootOrders(
            host, self.trees, self.replication, self.paused_roots, self.rendezvous, self.candidacies, dispatch
        )  # fmt: skip

    def _make_transfer(self) -> None:
        host, config, dispatch, overlay, trees = self.host, self.config, self.dispatch, self.overlay, self.open_trees
        moves, intake = self.progress.moves, self.intake
        self.last_words = LastWords(host, self.known, trees, moves, self.source_streams)
        self.telling = Telling(host, config, overlay, trees, moves, intake.successors, dispatch)
        self.offers = Offers(host, overlay, self.known, trees, self.source_streams, self.membership, self.telling)
        inherited = InheritedTerms(host, config.leave_s, self.terms, self.schedule, self.source_streams)
        taking_over = TakingOver(
            host, config, self.replica_set, moves, self.schedule, self.telling, dispatch
        )  # fmt: skip
        self.next_root = NextRoot(
            self.known, trees, self.offers, intake.successors, inherited, taking_over, dispatch
        )  # fmt: skip
        self.resigning = Resigning(host, overlay, trees, self.membership, intake, self.last_words, self.telling)
        self.next_sessions = NextSessions(host, intake, self.last_words, self.offers, dispatch)
        self.moving_roots = MovingRoots(host, config, overlay, trees, intake, self.resigning, dispatch)
        TransferOrders(self.trees, self.resigning, self.telling, self.offers, dispatch)

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
        SessionOrders(
            self.trees, self.schedule, self.sessions, self.moving_roots, self.changes, self.publishing, dispatch
        )  # fmt: skip
        settings = TreeSettings(
            self.trees, self.table, self.schedule, self.joins, self.rights, self.root_settings, dispatch
        )  # fmt: skip
        SettingsOrders(self.trees, settings, self.changes, own_streams, self.publishing, dispatch)
        LossOrders(self.streams, self.admissions, self.publishing, dispatch)
        self.housekeeping = Housekeeping(
            host, config, self.open_trees, self.schedule, self.source_streams,
            (self.recovery, self.membership, self.children, self.whereabouts),
            (self.creating, self.changes, self.admissions, self.publishing, self.flow_control), dispatch,
        )  # fmt: skip
        self.leaving = LeavingTrees(
            self.open_trees, self.comparing, self.progress, self.subscribing, self.children, self.offers,
            self.intake.successors, own_streams, dispatch,
        )  # fmt: skip
        self.inspection = Inspection(
            host, config.past_terms_s, overlay, self.known, self.trees, self.publishing,
            self.tracing, dispatch,
        )  # fmt: skip

    def _make_upcalls(self) -> None:
        dispatch, trees, publishing = self.dispatch, self.open_trees, self.publishing
        self.scribe = Scribe(
            self.host.me, trees, self.terms, self.interception, self.rendezvous,
            (self.moving_roots, self.offers, self.replication, self.candidacies, self.membership), dispatch,
        )  # fmt: skip
        self.links = LinkUpcalls(
            self.trees, self.terms, self.children, self.repair, self.reporting, self.stream_reporting
        )  # fmt: skip
        self.resumption = Resumption(trees, self.placement, self.table, publishing, dispatch)
        RootScopeOrders(
            self.overlay, self.scribe, self.trees, self.known, self.membership, publishing, dispatch
        )  # fmt: skip

    def check(self) -> None:
        """Raise AssertionError unless every tree is consistent and the indexes by link agree with them."""
        trees = self.trees.values()
        for tree in trees:
            tree.check_place(self.host.me)
        parents = [(tree.parent.node_id, tree) for tree in trees if tree.parent is not None]
        children = [(node, tree) for tree in trees for node in tree.leases.children]
        for counts, links in ((self.membership.parents.counts, parents), (self.children.links.counts, children)):
            nodes = [node for node, _ in links]
            assert counts == {node: nodes.count(node) for node in {*nodes}}
        linked: dict[bytes, set[Tree]] = {}
        for node, tree in parents + children:
            linked.setdefault(node, set()).add(tree)
        for node, its in linked.items():
            assert {*self.open_trees.linked(node)} == its
        waiting = {tree.topic for tree in trees if tree.is_due}
        assert waiting <= {*self.schedule.due, *self.schedule.dirty}, "time passes by a topic that waits for it"
        assert self.schedule.due.keys() <= self.trees.keys()
        self.publishing.check()
        self.intake.early.check()
        self.candidacies.check()
        self.forgetting.check()
        assert self.trees.keys() <= self.known.descriptors.keys()
        assert {topic: tree.flow for topic, tree in self.trees.items()} == self.table.flows
        self.table.check()
