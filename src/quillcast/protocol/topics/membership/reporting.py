"""How a peer handles reports of its parents and children, per topic (docs/design.md, decision 4).

Its own reports are in `progress.py`.
"""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.memory.retention import catch_up
from quillcast.protocol.topics.messages import CutLeases, Orphaned
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state import link_reports
from quillcast.protocol.topics.state.cut import CATCH_UP_S
from quillcast.protocol.topics.state.effects import GapNoticed, RivalKnown
from quillcast.protocol.topics.state.holders import SINCE, Child
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class Reporting:
    """Handles reports of parents and children, and corrects peers that wrongly believe they are one."""

    __slots__ = ("children", "dispatch", "host", "known", "membership", "progress", "schedule", "terms", "trees")

    def __init__(
        self, host: Host, known: KnownTopics, trees: Mapping[bytes, Tree], terms: Terms, children: ChildrenTables,
        membership: TreeMembership, progress: Progress, schedule: Schedule, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.known, self.trees, self.terms = host, known, trees, terms
        self.children, self.membership, self.progress = children, membership, progress
        self.schedule, self.dispatch = schedule, dispatch

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: a neighbour's report on a topic."""
        tree = self.trees.get(key)
        if tree is not None:
            self.schedule.wake(tree)
        if value is None:
            self._report_dropped(tree, sender)
            return
        report = link_reports.decode(value)
        self.terms.check(report)
        match report:
            case link_reports.ChildReport():
                if tree is not None:
                    self.terms.check_settings(tree, sender, report.term, report.heard)
                self._child_says(tree, sender, key, report)
            case link_reports.ParentReport():
                self._parent_says(tree, sender, key, report)
                if tree is not None and tree.keeping_until is not None:
                    self.membership.leave_if_idle(tree)

    def _report_dropped(self, tree: Tree | None, sender: Contact) -> None:
        if tree is None:
            return
        child = tree.leases.children.get(sender.node_id)
        if child is not None:
            self.children.remove(tree, sender.node_id, "moved", lease=True)
            self.membership.leave_if_idle(tree)
        elif tree.parent is not None and tree.parent.node_id == sender.node_id:
            self.membership.forgotten(tree)

    def _child_says(self, tree: Tree | None, sender: Contact, topic: bytes, report: link_reports.ChildReport) -> None:
        if tree is None or sender.node_id not in tree.leases.children:
            self._unknown_child_says(tree, sender, topic, report)
            return
        child = tree.leases.children[sender.node_id]
        former = child.acknowledged_term, child.acknowledged, child.others
        first = child.spoken != SINCE
        child.note_report(report)
        if former != (child.acknowledged_term, child.acknowledged, child.others):
            self.schedule.touch(tree)  # what it no longer needs may be discarded, and is reported upwards
        self.progress.child_says(tree, sender.node_id, used_up=report.used_up)
        tree.leases.speaks_here(sender.node_id)
        if report.term == tree.flow.current.term:
            catch_up(tree, child, self.host.now())
            cut_below(self.host, tree, child)
        if first or report.newcomers or report.arrivals:
            self.children.heard_from(tree, child)
        if tree.root is not None and tree.root.outbids and report.heard > tree.root.term:
            self.dispatch.order(RivalKnown(tree.topic, report.heard))
        else:
            self.terms.heard_of(tree, report.heard)
        if report.term == tree.term and tree.came_to(report.reach):
            self.schedule.touch(tree)
        if tree.root is not None:
            self.progress.advance_stable(tree, self.host.now())  # publishers wait for this

    def take_up_parent(self, tree: Tree, parent: Contact) -> None:
        """Handle a new parent's report that came before its answer to the Join: it is not repeated."""
        report = self.membership.parents.told(parent.node_id, tree.topic)
        if isinstance(report, link_reports.ParentReport) and self.host.me not in report.path:
            self._parent_says(tree, parent, tree.topic, report)

    def _unknown_child_says(
        self, tree: Tree | None, sender: Contact, topic: bytes, report: link_reports.ChildReport
    ) -> None:
        """Correct a peer that believes it is a child here and is not in the table: after a pause or a lost message."""
        if tree is None or not self._may_take_back(tree, sender):
            self.host.send(sender, Orphaned([topic], tuple(tree.fallbacks) if tree is not None else ()))
            return
        self.host.trace(Mark("child_readopted"))
        start = report.acknowledged if report.term == tree.term else 0
        tree.tell_settings()  # its Join named the settings it knew, and that was long ago
        child = self.children.enter(tree, sender, start)
        child.note_report(report)
        self.progress.child_says(tree, sender.node_id, used_up=report.used_up)
        self.children.heard_from(tree, child)
        self.terms.heard_of(tree, report.heard)
        tree.came_to(report.reach if report.term == tree.term else 0)
        tree.flow.serve(child.channel)

    def _may_take_back(self, tree: Tree, sender: Contact) -> bool:
        """Whether a peer can be this one's child again without a Join. A topic with sources needs one."""
        if tree.by_source or not tree.attached:
            return False
        if is_restricted(tree.descriptor.access, "subscribe"):
            return False  # its Join has the warrant
        return not tree.is_below(sender.node_id) and not self.children.refers(tree, sender)

    def _parent_says(self, tree: Tree | None, sender: Contact, topic: bytes, report: link_reports.ParentReport) -> None:
        if tree is not None and tree.parent is None and tree.joining and not tree.attached:
            if report.descriptor is not None and report.descriptor.topic == topic:
                self.known.learn(report.descriptor)  # by the time it joins, there may be another
            return  # its answer to the join is in transit, or the join will be sent again
        if tree is None or tree.parent is None or tree.parent.node_id != sender.node_id:
            self.membership.refuse(sender, topic, report.term)
            return
        if self.host.me in report.path or len(report.path) >= link_reports.PATH_MAX:
            self.host.trace(Mark("loop_left"))
            self.membership.drop_parent(tree, "loop")
            self.membership.join(tree)
            return
        if report.descriptor is not None and report.descriptor.topic == topic:
            self.known.learn(report.descriptor)
        self.terms.check_settings(tree, sender, report.term)
        term = report.term
        if tree.follow_path(report.path):
            self.schedule.touch(tree)
        tree.note_report(report.fallbacks, report.held)
        self.schedule.note_held_back(tree, held_back=report.held_back)
        if report.arrivals:
            self._arrived(tree, report)
        self.terms.heard_of(tree, term)
        if term > tree.flow.current.term:
            guarantee = tree.guarantee
            self.terms.enter(tree, term, 0)
            if tree.guarantee != guarantee:
                self.progress.hurry(tree)  # news of a session goes ahead of its events
        if term == tree.flow.current.term:
            tree.parent_has(report.frontier)
            if report.frontier > tree.flow.frontier:
                self.dispatch.order(GapNoticed(topic))
            self.progress.stable_to(tree, report.stable)

    def _arrived(self, tree: Tree, report: link_reports.ParentReport) -> None:
        """Peers that moved away have joined elsewhere: end their leases here, and tell the peers below."""
        ended = tree.leases.note_arrived(report.arrivals)
        if ended:
            self.host.trace(Mark("lease_moved"))
        if ended or any(child.others.departures for child in tree.leases.children.values()):
            self.schedule.touch(tree)


def cut_below(host: Host, tree: Tree, child: Child) -> None:
    """A child whose lease was cut has caught up itself: cut only those below it that have not.

    Until they are cut, its reports lead here again.
    """
    mark = child.cut.mark if child.cut is not None else 0
    acknowledged, frontier = child.progress
    request = child.cut_request
    asked = request is not None and request.to >= mark and host.now() - request.at < CATCH_UP_S
    if acknowledged < mark <= frontier and not asked:
        child.request_cut(mark)
        host.send(child.contact, CutLeases(tree.topic, tree.term, mark))
