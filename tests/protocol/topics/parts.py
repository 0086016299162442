"""Parts of the topics layer without `Scribe` and `Peer`: each is given those below it, and a list takes its orders."""

from functools import cached_property
from typing import Any, get_args

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import RELIABLE_STREAMS, Term
from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.config import NeighbourConfig, StreamConfig
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.housekeeping import Housekeeping
from quillcast.protocol.topics.inspection import Inspection
from quillcast.protocol.topics.leaving import LeavingTrees
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.climbing import Climbing
from quillcast.protocol.topics.membership.interception import Interception
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.membership.links import TreeLinks
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.repair import TreeRepair
from quillcast.protocol.topics.membership.reporting import Reporting
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.membership.whereabouts import Whereabouts
from quillcast.protocol.topics.publishing.changes import SettingsChanges
from quillcast.protocol.topics.publishing.creating import Creating
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.publishing.publishing import Publishing
from quillcast.protocol.topics.publishing.root_finder import RootFinder
from quillcast.protocol.topics.root.candidacy import Candidacies
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.root.rendezvous import Rendezvous
from quillcast.protocol.topics.root.replication import Replication
from quillcast.protocol.topics.root.root_terms import RootTerms
from quillcast.protocol.topics.root.sealing import Sealing
from quillcast.protocol.topics.root.sessions import Sessions
from quillcast.protocol.topics.root.settings import RootSettings
from quillcast.protocol.topics.state.admitter import PublisherState
from quillcast.protocol.topics.state.arrivals import Arrivals
from quillcast.protocol.topics.state.comparing import Comparing
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.effects import Effect
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.holders import Child
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.link_reports import COUNT_BITS
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.records import TopicRecords
from quillcast.protocol.topics.state.replica_set import ReplicaSet
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.scribe_tree import ScribeTree
from quillcast.protocol.topics.state.source_streams import SourceStreams
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tracing import Tracing
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.state.trees import Trees
from tests.protocol.overlay.world import CODEC
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, RecordingHost

CONFIG = TopicConfig()
DESCRIPTOR = described("weather")
BY_SOURCE = described("weather", Settings(admission="source"))
STREAM = Term(RELIABLE_STREAMS + 1, bytes(16))


class Line:
    """A ring on which peers stand in a fixed order for every key; what is routed is noted."""

    def __init__(self, *contacts: Contact, active: bool = True) -> None:
        self.contacts, self.active, self.entry_points = list(contacts), active, ()
        self.routed: list[tuple[Message, bytes]] = []
        self.seats: dict[bytes, None] = {}  # topics that are rooted at scopes

    def route(self, message: Message, key: bytes) -> None:
        self.routed.append((message, key))

    def is_closest(self, key: bytes) -> bool:
        return self.contacts[0] == ALICE

    def closest(self, key: bytes, count: int) -> list[Contact]:
        return self.contacts[:count]

    def has_seats(self, topic: bytes) -> bool:
        return topic in self.seats

    def heir(self, lost: bytes) -> None: ...


class Application:
    """Above the overlay: takes every upcall, and does nothing."""

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact]:
        return message, next_hop

    def deliver(self, message: Any, key: bytes, source: Contact) -> None: ...
    def leaf_set_changed(self) -> None: ...


class Parts:
    """Each part as it is asked for, and with it those below it. `ordered` is what is ordered of parts above."""

    def __init__(self, *ring: Contact) -> None:
        self.host, self.ring, self.dispatch = RecordingHost(), Line(*(ring or (BOB, ALICE, CAROL))), Dispatch()
        self.ordered: list[Effect] = []
        self.dispatch.on_orders(get_args(Effect), self._note)
        self.table, self.trees = ForwardingTable(self.host, 1 << 20), dict[bytes, Tree]()
        self.budget, self.records = self.table.budget, TopicRecords()
        self.tracing = Tracing(self.host, self.table, self.trees, self.dispatch)
        self.schedule = Schedule(self.host, CONFIG)
        self.forgetting = Forgetting(self.records.descriptors, CONFIG.idle_topics_max, CONFIG.topics_max)
        self.streams = Streams(self.host, StreamConfig())
        self.neighbours = Neighbours(self.host, NeighbourConfig(), self.streams)
        self.overlay = Pastry(self.host, OverlayConfig(), self.neighbours, CODEC)
        self.answers = Answers(self.host, self.ring, self.dispatch)
        self.placement = Placement(self.host.me, self.ring, ScribeTree(CONFIG.children_per_topic_max, CONFIG.fallbacks))

    def _note(self, order: Effect) -> None:
        self.ordered.append(order)

    # ---- what a test puts there and looks at

    @property
    def timers(self) -> list[Any]:
        """The timers that were set."""
        return [timer for timer, _ in self.host.timers]

    @property
    def sent(self) -> list[tuple[Contact, str]]:
        """The kinds of the messages that were sent, and to whom."""
        return [(to, type(message).__name__) for to, message in self.host.sent]

    def alone(self) -> None:
        """This peer is the first of its ring."""
        self.overlay.serve(Application())
        self.overlay.join([])
        del self.host.timers[:], self.host.sent[:]

    def tree(self, descriptor: Descriptor = DESCRIPTOR) -> Tree:
        """A tree in which this peer has no place yet."""
        self.records.descriptors[descriptor.topic] = descriptor
        tree = self.trees[descriptor.topic] = Tree(descriptor.topic, descriptor, self.budget)
        self.table.open(tree.flow)
        self.table.listener = self.arrivals
        return tree

    def root(self, descriptor: Descriptor = DESCRIPTOR) -> Tree:
        """A tree whose root is here."""
        tree = self.tree(descriptor)
        tree.root = Root(self.host, CONFIG, descriptor, FIRST, 0.0, early=EarlyBlocks(CONFIG.window_bytes))
        tree.flow.begin(FIRST, 0, 0.0, 0)
        return tree

    def child(self, tree: Tree, contact: Contact, acknowledged: int = 0) -> Child:
        """An entry of the tree's children table."""
        child = Child(self.host, contact, 0, tree.term, acknowledged)
        tree.enter(child)
        self.placement.install(tree)
        return child

    # ---- the parts, from the bottom up

    @cached_property
    def terms(self) -> Terms:
        return Terms(self.host, CONFIG.past_terms_s, self.records.rivals, self.schedule, self.dispatch)

    @cached_property
    def flow_control(self) -> FlowControl:
        return FlowControl(self.host, CONFIG, self.trees, self.budget, self.schedule, self.dispatch)

    @cached_property
    def replica_set(self) -> ReplicaSet:
        return ReplicaSet(self.host, CONFIG, self.overlay, self.neighbours)

    @cached_property
    def comparing(self) -> Comparing:
        return Comparing(
            self.host, CONFIG, self.overlay, self.replica_set, self.records, self.forgetting, self.dispatch
        )  # fmt: skip

    @cached_property
    def known(self) -> KnownTopics:
        return KnownTopics(
            self.host, self.records, self.trees, self.comparing, self.forgetting, self.overlay.seats, self.dispatch
        )  # fmt: skip

    @cached_property
    def open_trees(self) -> Trees:
        return Trees(self.trees, self.table, self.streams, self.known, self.schedule, self.flow_control)

    @cached_property
    def source_streams(self) -> SourceStreams:
        return SourceStreams(
            self.host, CONFIG, self.streams, self.replica_set, self.schedule, self.placement
        )  # fmt: skip

    @cached_property
    def progress(self) -> Progress:
        return Progress(
            self.host, self.trees, self.streams, self.placement, self.replica_set, self.flow_control, self.schedule,
            self.source_streams, self.dispatch,
        )  # fmt: skip

    @cached_property
    def arrivals(self) -> Arrivals:
        return Arrivals(
            self.host, self.trees, self.terms, self.source_streams, self.progress, self.flow_control, self.dispatch
        )  # fmt: skip

    @cached_property
    def subscribing(self) -> Subscribing:
        return Subscribing(
            self.host, self.known, self.open_trees, self.schedule, self.source_streams, self.progress, self.dispatch
        )  # fmt: skip

    @cached_property
    def children(self) -> ChildrenTables:
        return ChildrenTables(
            self.host, CONFIG, self._links("child"), self.open_trees, self.placement, self.schedule,
            self.source_streams, self.progress, self.dispatch,
        )  # fmt: skip

    def _links(self, user: str) -> TreeLinks:
        return TreeLinks(self.neighbours, self.streams, user, CONFIG.tree_heartbeat_s)

    @cached_property
    def joins(self) -> Joins:
        return Joins(
            self.host, self.open_trees, self.terms, self.placement, self.source_streams, self.progress, self.children,
            self.answers, self.dispatch,
        )  # fmt: skip

    @cached_property
    def interception(self) -> Interception:
        return Interception(self.open_trees, self.placement, self.neighbours, self.forgetting, self.joins)

    @cached_property
    def leaving(self) -> LeavingTrees:
        return LeavingTrees(
            self.open_trees, self.comparing, self.progress, self.subscribing, self.children, self.membership,
            self.transfer, self.own_streams,
        )  # fmt: skip

    @cached_property
    def membership(self) -> TreeMembership:
        return TreeMembership(
            self.host, CONFIG, self.ring, self._links("parent"), self.open_trees, self.terms, self.schedule,
            self.progress, self.dispatch,
        )  # fmt: skip

    @cached_property
    def climbing(self) -> Climbing:
        return Climbing(
            self.host, self.ring, self.neighbours, self.open_trees, self.placement, self.membership, self.dispatch
        )  # fmt: skip

    @cached_property
    def reporting(self) -> Reporting:
        return Reporting(
            self.host, self.trees, self.terms, self.children, self.membership, self.progress, self.schedule,
            self.dispatch,
        )  # fmt: skip

    @cached_property
    def stream_reporting(self) -> StreamReporting:
        return StreamReporting(
            self.host, self.streams, self.trees, self.source_streams, self.progress, self.dispatch
        )  # fmt: skip

    @cached_property
    def repair(self) -> TreeRepair:
        return TreeRepair(
            self.host, self.ring, self.ring, self.neighbours, self.streams, self.open_trees, self.joins,
            self.membership, self.dispatch,
        )  # fmt: skip

    @cached_property
    def whereabouts(self) -> Whereabouts:
        return Whereabouts(
            self.host, CONFIG.tree_heartbeat_s, self.trees, self.children, self.membership, self.schedule, self.dispatch
        )  # fmt: skip

    @cached_property
    def replication(self) -> Replication:
        return Replication(
            self.host, CONFIG, self.overlay, self.replica_set, self.known, self.trees, self.terms, self.comparing,
            self.dispatch,
        )  # fmt: skip

    @cached_property
    def sealing(self) -> Sealing:
        return Sealing(
            self.host, self.open_trees, self.progress, self.flow_control, self.schedule, self.tracing, self.dispatch
        )  # fmt: skip

    @cached_property
    def intake(self) -> Intake:
        return Intake(
            self.host, CONFIG, self.ring, self.open_trees, self.terms, self.progress, self.flow_control,
            self.schedule, self.sealing,
        )  # fmt: skip

    @cached_property
    def transfer(self) -> LeadershipTransfer:
        return LeadershipTransfer(
            self.host, CONFIG, self.overlay, self.replica_set, self.known, self.open_trees, self.terms, self.membership,
            self.intake, self.dispatch,
        )  # fmt: skip

    @cached_property
    def root_terms(self) -> RootTerms:
        return RootTerms(
            self.host, CONFIG, self.ring, self.known, self.terms, self.replication, self.membership,
            self.transfer, self.dispatch,
        )  # fmt: skip

    @cached_property
    def root_settings(self) -> RootSettings:
        return RootSettings(
            self.ring, self.known, self.trees, self.terms, self.replication, self.answers, self.dispatch
        )  # fmt: skip

    @cached_property
    def sessions(self) -> Sessions:
        return Sessions(
            self.host, CONFIG, self.ring, self.known, self.open_trees, self.progress, self.transfer, self.dispatch
        )  # fmt: skip

    @cached_property
    def rendezvous(self) -> Rendezvous:
        return Rendezvous(
            self.host, CONFIG, self.known, self.trees, self.terms, self.joins, self.intake, self.answers, self.dispatch
        )  # fmt: skip

    @cached_property
    def candidacies(self) -> Candidacies:
        return Candidacies(
            self.host, CONFIG, self.overlay, self.known, self.replication, self.membership, self.intake,
            self.root_terms, self.dispatch,
        )  # fmt: skip

    @cached_property
    def creating(self) -> Creating:
        return Creating(self.host, CONFIG.receipt_timeout_s, self.ring, self.known, self.schedule, self.dispatch)

    @cached_property
    def changes(self) -> SettingsChanges:
        return SettingsChanges(
            self.host, CONFIG.receipt_timeout_s, self.ring, self.known, self.creating, self.schedule
        )  # fmt: skip

    @cached_property
    def root_finder(self) -> RootFinder:
        return RootFinder(self.host, CONFIG, self.ring, self.neighbours)

    @cached_property
    def own_streams(self) -> OwnStreams:
        return OwnStreams(self.open_trees, self.source_streams, self.sealing, self.dispatch)

    @cached_property
    def publishing(self) -> Publishing:
        return Publishing(
            self.host, CONFIG, self.known, self.intake, self.root_finder, self.own_streams, self.changes,
            self.schedule, self.dispatch,
        )  # fmt: skip

    @cached_property
    def housekeeping(self) -> Housekeeping:
        return Housekeeping(
            self.host, CONFIG, self.open_trees, self.schedule, self.source_streams, (self.membership, self.children),
            (self.changes, self.publishing, self.flow_control), self.dispatch,
        )  # fmt: skip

    @cached_property
    def inspection(self) -> Inspection:
        return Inspection(
            self.host, CONFIG.past_terms_s, self.ring, self.known, self.trees, self.publishing,
            self.tracing, self.dispatch,
        )  # fmt: skip


def settled(contact: Contact) -> PublisherState:
    """A publisher of whom all is stable."""
    return PublisherState(contact, 0, 0.0)


def next_life(number: int) -> int:
    """From which number on a peer counts that does not speak any more for all those that were below it."""
    return (number >> COUNT_BITS) + 1 << COUNT_BITS
