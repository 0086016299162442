"""The trees that this peer takes part in: opening and forgetting them."""

from quillcast.core.interning import interned
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.state.handlers import Handlers
from quillcast.protocol.topics.state.holders import OrphanedLease
from quillcast.protocol.topics.state.link_reports import is_topic
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class Trees:
    """One tree per topic, and the leases that continue in topics that were forgotten."""

    def __init__(
        self, by_topic: dict[bytes, Tree], table: ForwardingTable, streams: Streams, known: KnownTopics,
        schedule: Schedule, flow_control: FlowControl,
    ) -> None:  # fmt: skip
        self.by_topic, self.table, self.streams, self.known = by_topic, table, streams, known
        self.schedule, self.flow_control = schedule, flow_control
        self.handlers: dict[bytes, Handlers] = {}
        self.left_behind: dict[bytes, dict[bytes, OrphanedLease]] = {}
        self.closing = False  # this peer is about to leave
        self.leaving = False
        for table_ in (self.by_topic, self.left_behind, self.handlers):
            known.spare(table_)
        for work in (self.by_topic, self.left_behind):
            schedule.serve(work)

    def open(self, descriptor: Descriptor) -> Tree:
        """Return the topic's tree at this peer; create it if there is none."""
        topic = interned(descriptor.topic)
        tree = self.by_topic.get(topic)
        if tree is None:
            self.known.learn(descriptor)
            tree = Tree(topic, self.known.descriptors[topic], self.table.budget)
            self.by_topic[topic] = tree
            self.table.open(tree.flow)
            if topic in self.handlers:
                self._pass_handler(tree, self.handlers[topic])
            if topic in self.left_behind:
                tree.open_leases().resume(self.left_behind.pop(topic))
            self.schedule.wake(tree)
            self.schedule.begin()
        return tree

    def linked(self, node: bytes) -> list[Tree]:
        """Return the trees in which a neighbour is the parent or a child. It gets link reports on each of them."""
        return [self.by_topic[key] for key in self.streams.telling(node) if is_topic(key)]

    def handle(self, topic: bytes, handlers: Handlers) -> None:
        """Set the paper's upcalls for a topic at this peer."""
        self.handlers[topic] = handlers
        if topic in self.by_topic:
            self._pass_handler(self.by_topic[topic], handlers)

    def _pass_handler(self, tree: Tree, handlers: Handlers) -> None:
        """Let bundles of the topic pass its forward handler first."""
        self.table.enter_by(tree.topic, lambda bundle: handlers.forward_handler(bundle, is_root=tree.root is not None))

    def forget(self, tree: Tree) -> None:
        """Forget the topic's tree."""
        self.schedule.forget(tree)
        self.table.close(tree.topic)
        self.by_topic.pop(tree.topic, None)
        self.known.done_with(tree.topic)
        self.flow_control.relieved()

    def prepare_to_leave(self) -> None:
        """Prepare to leave: from now on, this peer's roots only admit events of its own publishers."""
        self.closing = True

    def leave(self) -> None:
        """Begin to leave: this peer accepts no more children."""
        self.leaving = True

    def must_leave(self, tree: Tree) -> bool:
        """Whether this peer leaves the tree even if something here needs the topic."""
        return self.leaving or tree.barred

    # ---- leases in topics that were forgotten

    def leave_behind(self, topic: bytes, leases: dict[bytes, OrphanedLease]) -> None:
        """Keep the leases that continue in a topic that is about to be forgotten."""
        self.left_behind[topic] = leases

    def leases_left(self, topic: bytes, now: float) -> dict[bytes, OrphanedLease]:
        """Return the leases that continue of lost children that have not come back."""
        tree = self.by_topic.get(topic)
        known = tree.leases.orphaned if tree is not None else self.left_behind.get(topic, {})
        return {node: lease for node, lease in known.items() if lease.until > now}

    def end_leases(self, now: float) -> None:
        """Forget leases that have ended."""
        for topic in [topic for topic in self.left_behind if not self.leases_left(topic, now)]:
            del self.left_behind[topic]
            self.known.done_with(topic)

    def prolong_leases(self, until: float) -> None:
        """Prolong these leases after a pause of this process."""
        for leases in self.left_behind.values():
            for lease in leases.values():
                lease.prolong(until)
