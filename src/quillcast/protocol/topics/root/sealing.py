"""Sealing: events admitted at this peer leave down the tree in bundles; then publishers get their answers."""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.tracing import Tracing


class Seal(Timer, frozen=True):
    """Seal what publishers sent since the last time into one bundle, and send it down the tree."""

    topic: bytes


class Acknowledge(Timer, frozen=True):
    """What was sealed is in transit: publishers get their receipts, and senders their credit."""

    topic: bytes


class Sealing:
    """Seals once per turn, after all input of it. Credit returns when the bundles have left."""

    __slots__ = ("flow_control", "host", "progress", "schedule", "table", "tracing", "trees", "unsealed")

    def __init__(
        self, host: Host, table: ForwardingTable, trees: Mapping[bytes, Tree], progress: Progress,
        flow_control: FlowControl, schedule: Schedule, tracing: Tracing, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.table, self.trees = host, table, trees
        self.progress, self.flow_control = progress, flow_control
        self.schedule, self.tracing = schedule, tracing
        self.unsealed: dict[bytes, list[tuple[bytes, int]]] = EMPTY  # credit to return once it is sent, by topic
        dispatch.on_timer(Seal, self.seal)
        dispatch.on_timer(Acknowledge, self.acknowledge)

    def admitted(self, tree: Tree, admitter: Admitter, sender: bytes, size_bytes: int) -> None:
        """A peer's bundle was admitted. All of a turn is sealed together, so a lone event leaves at once."""
        topic = tree.flow.topic
        self.unsealed = self.unsealed or {}
        self.unsealed.setdefault(topic, []).append((sender, size_bytes))
        if not admitter.sealing:
            admitter.begin_sealing()
            self.schedule.wake(tree)
            self.host.set_timer(Seal(topic), 0.0)

    def seal(self, timer: Seal) -> None:
        """Seal: the turn in which events were admitted is over."""
        tree = self.trees.get(timer.topic)
        admitter = tree.admitter if tree is not None else None
        if tree is not None and admitter is not None and admitter.sealing:
            sealed = admitter.seal()
            if self.tracing.marks:
                sealed = self.tracing.marked(sealed)
            for bundle in sealed:
                self.table.move(tree.flow, bundle)
                if bundle.envelope.tags:
                    self.tracing.began(tree, bundle)
            self.host.set_timer(Acknowledge(timer.topic), 0.0)
        else:  # the stream that admitted it has ended
            self.acknowledge(Acknowledge(timer.topic))

    def acknowledge(self, timer: Acknowledge) -> None:
        """Return credit for what was sealed, even if nobody numbers the topic's events here now."""
        tree = self.trees.get(timer.topic)
        if tree is not None:
            self._answer(tree, tree.admitter)
        else:
            self.flow_control.release_admitted(self.unsealed.pop(timer.topic, ()), timer.topic)

    def finish(self, tree: Tree, admitter: Admitter) -> None:
        """Send what was admitted before the root's term or the source's stream ends here."""
        for bundle in admitter.seal():
            self.table.move(tree.flow, bundle)
        self._answer(tree, tree.admitter)

    def pass_marks_on(self, topic: bytes, to: Contact) -> None:
        """Another peer seals from now on: have it mark the next bundle for peers that trace one."""
        self.tracing.pass_on(topic, to)

    def _answer(self, tree: Tree, admitter: Admitter | None) -> None:
        if tree.descriptor.settings.slow == "wait":
            self.flow_control.hold_back_publishers(tree)
        if admitter is not None:
            self.progress.send_receipts(tree, admitter)
        topic = tree.flow.topic
        self.flow_control.release_admitted(self.unsealed.pop(topic, ()), topic)
