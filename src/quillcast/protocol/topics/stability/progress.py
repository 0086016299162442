"""Progress of topics: link reports of this peer, stable positions, and receipts for publishers.

Reports travel on the links' change streams (docs/design.md, decision 4). They are made periodically, and at once when
many bytes wait for them.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.memory.flow_control import FlowControl
from quillcast.protocol.topics.memory.retention import acknowledged_position, catch_up, trim
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.root_messages import Confirmed, Receipts
from quillcast.protocol.topics.stability.scope_reports import PeriodOver, PeriodReport, ScopeReports
from quillcast.protocol.topics.stability.tree_reports import child_report, parent_report
from quillcast.protocol.topics.state import link_reports
from quillcast.protocol.topics.state.admitter import Admitter
from quillcast.protocol.topics.state.effects import AllStable, GapNoticed, LeaveIfIdle
from quillcast.protocol.topics.state.schedule import ReportDue, Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams


class Progress:
    """Reports to neighbours and publishers how far each topic is, and discards what nobody needs any longer."""

    __slots__ = (
        "dispatch", "flow_control", "host", "moves", "of_scope", "placement", "replica_set", "schedule",
        "source_streams", "streams", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, trees: Mapping[bytes, Tree], streams: Streams, placement: Placement,
        replica_set: ReplicaSet, flow_control: FlowControl, schedule: Schedule, source_streams: SourceStreams,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.streams, self.placement = host, trees, streams, placement
        self.replica_set, self.flow_control, self.schedule = replica_set, flow_control, schedule
        self.source_streams, self.dispatch = source_streams, dispatch
        self.of_scope = ScopeReports(host, schedule.config, streams, placement, flow_control.budget)
        self.moves = link_reports.MoveCount(host.me, host.incarnation)
        dispatch.on_alarm(ReportDue, self.report)
        dispatch.on_timer(PeriodOver, self._period_over)

    # ---- reports

    def report(self) -> None:
        """Report to tree neighbours what changed since the last report."""
        for topic in self.schedule.take():
            tree = self.trees.get(topic)
            if tree is not None:
                self.schedule.wake(tree)
                self.tell(tree)

    def moved(self, tree: Tree, size_bytes: int) -> None:
        """Note bytes that came, were taken here, or became stable. If they are many, report at once."""
        if self.schedule.moved(tree, size_bytes):
            self.hurry(tree)

    def hurry(self, tree: Tree) -> None:
        """Report to the neighbours now, ahead of any event that follows."""
        self.tell(tree)
        if tree.parent is not None:
            self.streams.hurry(tree.parent.node_id)
        for node in tree.leases.children:
            self.streams.hurry(node)

    def tell(self, tree: Tree) -> None:
        """Report to the parent and the children."""
        now = self.host.now()
        for subscription in tree.subscriptions:
            catch_up(tree, subscription, now)
        self.schedule.told(tree)
        self.schedule.note_came(tree, now)
        if tree.root is not None:
            if tree.descriptor.settings.slow == "wait":
                self.flow_control.hold_back_publishers(tree)
            if tree.topic in self.schedule.held_back and not tree.root.is_full:
                self.schedule.note_held_back(tree, held_back=tree.topic in self.flow_control.held_back)
            self.advance_stable(tree, now)
        else:
            self._trim(tree)
        if tree.sources.states:
            self.advance_streams(tree)
        self._tell_above(tree)
        if tree.leases.children and tree.attached:
            topic, report = tree.flow.topic, self._parent_report(tree)
            for child in tree.leases.children.values():
                self.streams.put(child.contact, topic, report)

    def _tell_above(self, tree: Tree) -> None:
        """Report to the parent, and on streams to the children too."""
        if tree.flow.topic not in self.placement.entered:
            if tree.sources.changed:
                self.source_streams.news.tell(tree)
            if tree.parent is not None:
                self.tell_parent(tree, tree.parent)
            return
        report = self._child_report(tree)
        # Leases above end for peers that a report names as arrived, so what they lack of streams is reported with it.
        names_nobody = tree.parent is None or self.of_scope.is_progress(tree, tree.parent, report)
        for term in () if names_nobody else self.of_scope.untold(tree):
            self.source_streams.news.moved(tree, term)
        self.source_streams.news.tell(tree, self.of_scope.puts_off_stream if names_nobody else None)
        settled = self.of_scope.settle(tree)
        if settled is not None:
            self._tell_outside(tree, settled)
        if settled is not None or tree.parent is None:
            return
        if not self.of_scope.puts_off(tree, tree.parent, report):
            self.streams.put(tree.parent, tree.topic, link_reports.encode(report))

    def came_to_scope(self, tree: Tree, bundle: Bundle) -> None:
        """Note that a bundle came to this peer, which is its scope's entry point."""
        for report in self.of_scope.note(tree, bundle):
            self._tell_outside(tree, report)

    def _period_over(self, timer: PeriodOver) -> None:
        tree = self.trees.get(timer.topic)
        if tree is None:
            return
        for report in self.of_scope.over(tree):
            self._tell_outside(tree, report)

    def _tell_outside(self, tree: Tree, report: PeriodReport) -> None:
        """Send a scope's report on a period. Streams come first: the topic's report may name peers that lack some."""
        if tree.parent is None:
            return
        for term in report.terms:
            if term in tree.sources.states:
                self.source_streams.news.tell_parent(tree, tree.parent, term)
        self.tell_parent(tree, tree.parent)

    def confirm(self, tree: Tree, term: Term, source: bytes) -> None:
        """Tell a neighbouring source how far its stream came. At the border of a scope, tell nothing else."""
        if tree.topic in self.placement.entered and tree.parent is not None and tree.parent.node_id == source:
            if not self.source_streams.news.tell_parent(tree, tree.parent, term, self.of_scope.puts_off_stream):
                self.host.send(tree.parent, Confirmed(tree.topic, term, tree.flow.front(term) or 0))
        else:
            self.source_streams.news.tell_one(tree, term, only=source)
        self.streams.hurry(source)

    def tell_parent(self, tree: Tree, parent: Contact) -> None:
        """Report to the parent."""
        self.streams.put(parent, tree.flow.topic, link_reports.encode(self._child_report(tree)))

    def _child_report(self, tree: Tree) -> link_reports.ChildReport:
        used_up = self.flow_control.shares.tell(tree)
        report = child_report(tree, self.host.me, self.host.now(), used_up=used_up)
        if tree.flow.topic in self.placement.entered:  # the scope's other members, and what they have, stay private
            return replace(report, leaf=False, reach=tree.flow.current.seen.end)
        return report

    def tell_child(self, tree: Tree, child: Contact) -> None:
        """Report to one child."""
        self.streams.put(child, tree.topic, self._parent_report(tree))

    def _parent_report(self, tree: Tree) -> bytes:
        held_back = tree.flow.topic in self.schedule.held_back
        stand_ins = self.placement.stand_ins(tree)
        return link_reports.encode(
            parent_report(
                tree, self.host.me, stand_ins, self.host.now(), lambda: self._arrived_above(tree), held_back=held_back
            )
        )

    def _arrived_above(self, tree: Tree) -> tuple[link_reports.Move, ...]:
        """Return the arrivals that the parent reports, and this peer's move. Called only if a child waits for any."""
        value = self.streams.told(tree.parent.node_id).get(tree.topic) if tree.parent is not None else None
        report = link_reports.decode(value) if value is not None else None
        told = report.arrivals if isinstance(report, link_reports.ParentReport) else ()
        return (self.moves.latest(tree.topic), *told)

    def child_says(self, tree: Tree, node: bytes, *, used_up: bool) -> None:
        """Note whether a child reports that the topic's share of buffers is used up at it or below."""
        if self.flow_control.shares.child_says(tree, node, used_up=used_up) and not used_up:
            self.flow_control.relieved()

    # ---- what is stable

    def stable_to(self, tree: Tree, stable: int) -> None:
        """Take over the stable position, which the parent passed on from the root."""
        if stable > tree.flow.current.stable:
            tree.flow.current.settle(stable)
            self.moved(tree, self._trim(tree))

    def advance_stable(self, tree: Tree, now: float) -> None:
        """At the root: advance the stable position to the minimum over all leases (`acknowledged_position`)."""
        root = tree.root
        if root is None:
            return
        moved = root.acknowledge_to(acknowledged_position(tree, now), now)
        if tree.flow.current.stable != root.stable:
            tree.flow.current.settle(root.stable)
        gone_bytes = self._trim(tree)
        if not moved:
            return
        if (admitter := tree.admitter) is not None:
            self.send_receipts(tree, admitter)
        self.moved(tree, gone_bytes)
        if root.closing and tree.is_flushed:
            self.dispatch.order(AllStable(tree.topic))

    def advance_streams(self, tree: Tree, some: Iterable[Term] | None = None) -> None:
        """Advance the stable positions of some or all streams of sources, and forget streams that are over.

        The root decides what is stable (`SourceStreams.advance`). A source tells its publishers what the root declared.
        """
        states = tree.sources.states
        terms = [term for term in (states if some is None else some) if term in states] if states else []
        if not terms:
            return
        if self.source_streams.advance(tree, terms):
            self._trim(tree, terms)
        own = tree.sources.own
        if own is not None:
            own.settled_to(tree.flow.others[own.term].stable)
            self.send_receipts(tree, own)
        over = self.source_streams.finished(tree, terms)
        for term, end in over:
            self.source_streams.conclude(tree, term, end)
        if over and tree.flow.undated():
            self.dispatch.order(GapNoticed(tree.topic))
        if self.source_streams.disown_passed_on(tree) or over:
            self.dispatch.order(LeaveIfIdle(tree.topic))
        if tree.root is not None and tree.root.closing and tree.is_flushed:
            self.dispatch.order(AllStable(tree.topic))

    def _trim(self, tree: Tree, some: Iterable[Term] | None = None) -> int:
        """Discard what nobody needs any longer of all or some live terms. Return how many bytes that was."""
        gone_bytes = trim(tree, self.host.now(), some) if tree.flow.log.size_bytes else 0
        if gone_bytes:
            self.flow_control.relieved()
        return gone_bytes

    # ---- receipts

    def send_receipts(self, tree: Tree, admitter: Admitter) -> None:
        """Tell publishers that are marked (`Admitter.marks`) what is admitted and stable, in one message per peer."""
        if not admitter.marks:
            return
        topic, term = tree.flow.topic, admitter.term
        partitioned = self.replica_set.partitioned(topic) if tree.root is not None else tree.sources.partitioned
        waits = partitioned and tree.descriptor.settings.partition == "wait"
        owed = admitter.requests() if waits else admitter.receipts()  # if it waits, receipts stay due
        settled, index = (admitter.stable, admitter.index) if admitter is tree.root else (0, 0)  # 0 for a source
        for contact, marks in owed.items():
            version = tree.descriptor.version
            message = Receipts(topic, term, marks, partitioned, version, settled, admitter.held_back, index)
            if contact.node_id == self.host.me:
                self.dispatch.message(contact, message)
            else:
                self.host.send(contact, message)
