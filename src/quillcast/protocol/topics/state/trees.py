"""The trees that this peer has a part in: how they are opened and forgotten."""

from collections.abc import Mapping

from quillcast.core.interning import interned
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.state.due import DueTopics
from quillcast.protocol.topics.state.flow_control import FlowControl
from quillcast.protocol.topics.state.forgetting import Forgetting
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.holders import OrphanedLease
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.link_reports import is_topic
from quillcast.protocol.topics.state.reports import Reports
from quillcast.protocol.topics.state.tree import Tree


def linked(streams: Streams, trees: Mapping[bytes, Tree], node: bytes) -> list[Tree]:
    """The trees in which a neighbour is the parent or a child: it is told something of each."""
    return [trees[key] for key in streams.telling(node) if is_topic(key)]


class Trees:
    """One tree per topic, and the leases that go on in topics that were forgotten."""

    def __init__(
        self, by_topic: dict[bytes, Tree], table: ForwardingTable, known: KnownTopics, due: DueTopics,
        reports: Reports, flow_control: FlowControl, forgetting: Forgetting, handlers: Mapping[bytes, Handlers],
    ) -> None:  # fmt: skip
        self.by_topic, self.table, self.known, self.due, self.reports = by_topic, table, known, due, reports
        self.flow_control, self.forgetting, self.handlers = flow_control, forgetting, handlers
        self.left_behind: dict[bytes, dict[bytes, OrphanedLease]] = {}
        self.closing = False  # this peer is about to leave
        self.leaving = False
        forgetting.spare(self.by_topic, self.left_behind)

    def open(self, descriptor: Descriptor) -> Tree:
        """The topic's tree at this peer, made if there is none."""
        topic = interned(descriptor.topic)
        tree = self.by_topic.get(topic)
        if tree is None:
            self.known.learn(descriptor)
            tree = Tree(topic, self.known.descriptors[topic], self.table.budget)
            self.by_topic[topic] = tree
            self.table.open(tree.flow)
            if topic in self.handlers:
                self.handle(tree, self.handlers[topic])
            tree.orphaned_leases = self.left_behind.pop(topic, tree.orphaned_leases)
            self.due.wake(tree)
            self.due.begin()
        return tree

    def handle(self, tree: Tree, handlers: Handlers) -> None:
        """Bundles of the topic pass its own forward handler first."""
        self.table.entrances[tree.topic] = lambda bundle: handlers.forward_handler(
            bundle, is_root=tree.root is not None
        )

    def forget(self, tree: Tree) -> None:
        """The topic has no tree here any more."""
        self.due.forget(tree.topic)
        self.reports.forget(tree)
        self.table.close(tree.topic)
        self.by_topic.pop(tree.topic, None)
        self.forgetting.note(tree.topic)
        self.flow_control.relieved()

    def prepare_to_leave(self) -> None:
        """This peer is about to leave: its roots admit events of its own publishers only."""
        self.closing = True

    def leave(self) -> None:
        """This peer leaves: it takes nobody in any more."""
        self.leaving = True

    # ---- leases in topics that were forgotten

    def leave_behind(self, topic: bytes, leases: dict[bytes, OrphanedLease]) -> None:
        """Leases go on in a topic that is about to be forgotten."""
        self.left_behind[topic] = leases

    def leases_left(self, topic: bytes, now: float) -> dict[bytes, OrphanedLease]:
        """Leases of lost children that this peer has not seen again and that go on."""
        tree = self.by_topic.get(topic)
        known = tree.orphaned_leases if tree is not None else self.left_behind.get(topic, {})
        return {node: lease for node, lease in known.items() if lease.until > now}

    def end_leases(self, now: float) -> None:
        """Forget those that have ended."""
        for topic in [topic for topic in self.left_behind if not self.leases_left(topic, now)]:
            del self.left_behind[topic]
            self.forgetting.note(topic)

    def prolong_leases(self, until: float) -> None:
        """This process was paused, and none of them ran out meanwhile."""
        for leases in self.left_behind.values():
            for lease in leases.values():
                lease.until = max(lease.until, until)
