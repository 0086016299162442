"""The parts of the topics layer without `Scribe` and `Peer`: a list takes their orders, and a line is their ring."""

from collections.abc import Callable, Iterable
from typing import Any

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import RELIABLE_STREAMS, Term
from quillcast.core.messages import Contact, Message
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.table import FlowListener, ForwardingTable
from quillcast.protocol.neighbours.config import NeighbourConfig, StreamConfig
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics import parts
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.policy.scribe_tree import ScribeTree
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.state.admitter import PublisherState
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.holders import Child
from quillcast.protocol.topics.state.link_reports import COUNT_BITS
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree
from tests.protocol.overlay.world import CODEC
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, RecordingHost

CONFIG = TopicConfig()
DESCRIPTOR = described("weather")
BY_SOURCE = described("weather", Settings(admission="source"))
STREAM = Term(RELIABLE_STREAMS + 1, bytes(16))


class Line(Pastry):
    """A ring on which peers stand in a fixed order for every key; what is routed is noted.

    Once it is `open`, keys count, and peers of the leaf set.
    """

    active, awaits_invitation = True, False

    def __init__(self, host: RecordingHost, neighbours: Neighbours, contacts: tuple[Contact, ...]) -> None:
        super().__init__(host, OverlayConfig(), neighbours, CODEC)
        self.contacts = contacts
        self.routed: list[tuple[Message, bytes]] = []

    def route(self, message: Message, key: bytes) -> None:
        self.routed.append((message, key))

    def is_closest(self, key: bytes) -> bool:
        return self.contacts[0] == ALICE if self.contacts else super().is_closest(key)

    def closest(self, key: bytes, count: int) -> list[Contact]:
        return list(self.contacts[:count]) or super().closest(key, count)


class Application:
    """Above the overlay: takes every upcall, and does nothing."""

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact]:
        return message, next_hop

    def deliver(self, message: Any, key: bytes, source: Contact) -> None: ...
    def leaf_set_changed(self) -> None: ...


class Orders(Dispatch):
    """Notes the orders, and has none carried out but those of the test itself."""

    def __init__(self) -> None:
        super().__init__()
        self.ordered: list[object] = []
        self.routed_kinds: set[type] = set()

    def on_orders(self, kinds: Iterable[type], handle: Callable[[Any], None]) -> None:
        self.routed_kinds.update(kinds)
        super().on_orders(kinds, handle)

    def order(self, order: object) -> None:
        self.ordered.append(order)

    def carry_out(self, order: object) -> None:
        """Have the parts carry out an order of the test."""
        super().order(order)


class Parts(parts.Parts):
    """The parts of one peer. `ordered` is what they order of each other."""

    def __init__(self, *line: Contact, me: Contact = ALICE) -> None:
        host = RecordingHost(me)
        self.orders = dispatch = Orders()
        self.ordered = dispatch.ordered
        streams = Streams(host, StreamConfig())
        neighbours = Neighbours(host, NeighbourConfig(), streams)
        self.ring = Line(host, neighbours, line or (BOB, ALICE, CAROL))
        table, policy = ForwardingTable(host, 1 << 20), ScribeTree(CONFIG.children_per_topic_max, CONFIG.fallbacks)
        super().__init__(host, CONFIG, self.ring, neighbours, streams, table, policy, dispatch)

    # ---- what a test puts there and looks at

    @property
    def budget(self) -> Budget:
        """The bytes that all logs may hold."""
        return self.table.budget

    @property
    def arrivals(self) -> FlowListener:
        """What the data path tells of bundles."""
        return self.table.listener

    @property
    def own_streams(self) -> OwnStreams:
        """This peer as a source."""
        return self.publishing.own_streams

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
        self.ring.contacts = ()
        self.overlay.serve(Application())
        self.overlay.join([])
        del self.host.timers[:], self.host.sent[:]

    def tree(self, descriptor: Descriptor = DESCRIPTOR) -> Tree:
        """A tree in which this peer has no place yet."""
        self.descriptors[descriptor.topic] = descriptor
        tree = self.trees[descriptor.topic] = Tree(descriptor.topic, descriptor, self.budget)
        self.table.open(tree.flow)
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


def settled(contact: Contact) -> PublisherState:
    """A publisher of whom all is stable."""
    return PublisherState(contact, 0, 0.0)


def next_life(number: int) -> int:
    """From which number on a peer counts that does not speak any more for all those that were below it."""
    return (number >> COUNT_BITS) + 1 << COUNT_BITS
