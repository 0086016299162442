"""What bundles that pass the forwarding table change in the topics' trees."""

from collections.abc import Mapping

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.stream import BESIDE
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import CameFromSource, FrontFilled, GapNoticed, Restored
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams


class Arrivals:
    """The listener of the forwarding table (`forwarding.table.FlowListener`)."""

    __slots__ = (
        "dispatch", "flow_control", "host", "placement", "progress", "schedule", "source_streams", "terms", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, trees: Mapping[bytes, Tree], terms: Terms, source_streams: SourceStreams, progress: Progress,
        flow_control: FlowControl, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.terms, self.progress, self.flow_control = host, trees, terms, progress, flow_control
        self.schedule, self.placement = progress.schedule, progress.placement
        self.source_streams = source_streams
        self.dispatch = dispatch

    def holds(self, flow: Flow, session: int) -> bool:
        """Whether the settings of a session are unknown here: if messages are lost, events may overtake them."""
        return not self.terms.knows_session(self.trees[flow.topic], session)

    def new_term(self, flow: Flow, term: Term) -> None:
        """Enter the term, unless this peer is a root, which takes a later one, or does not know yet where it begins."""
        tree = self.trees[flow.topic]
        if term.of_source:
            if tree.attached and tree.served and tree.by_source:
                self.source_streams.learn(tree, term, 0)
            return
        if term < flow.term or (not flow.begun and not tree.attached) or not self.terms.has_settings(tree, term):
            return
        self.terms.heard_of(tree, term)
        if tree.root is None and flow.topic in self.trees:
            self.terms.enter(tree, term, 0)

    def moved(self, flow: Flow, bundle: Bundle) -> None:
        """Mark a topic that advanced, to report to neighbours."""
        tree = self.trees[bundle.topic]
        if flow.others:
            self._moved_stream(tree, bundle.envelope.term)
        if bundle.topic in self.placement.entered:
            self.progress.came_to_scope(tree, bundle)
        if self.schedule.moved(tree, bundle.size):  # `Progress.moved`, inline: this runs for every bundle
            self.progress.hurry(tree)

    def _moved_stream(self, tree: Tree, term: Term) -> None:
        self.source_streams.news.came(tree, term)
        stream = tree.flow.others.get(term)
        if stream is None or stream.numbered_here:
            return
        if stream.seen.start > stream.start and tree.flow.undated():
            self.gap(tree.flow)
        near = (contact.node_id for contact in tree.neighbours()) if stream.via == BESIDE else (stream.via,)
        if (source := next((node for node in near if term.is_of(node)), None)) is not None:
            self.dispatch.order(CameFromSource(tree.topic, term, source))

    def gap(self, flow: Flow) -> None:
        """Order a search for missing events."""
        self.dispatch.order(GapNoticed(flow.topic))

    def front_filled(self, flow: Flow, term: Term) -> None:
        """Order a search for the next missing events."""
        self.dispatch.order(FrontFilled(flow.topic, term))

    def taken(self, flow: Flow, sender: bytes, bundle: Bundle, *, is_due: bool) -> None:
        """Pass on bundles of ended terms that others asked for. Return credit at once if full buffers wait for this."""
        if flow.past and bundle.envelope.term in flow.past:
            self.dispatch.order(Restored(bundle, sender))
        if is_due and self.flow_control.takes_repairs:
            self.host.release(sender, bundle.size)
            self.flow_control.hold_back()
        else:
            self.flow_control.release(sender, bundle.size, flow.topic)
