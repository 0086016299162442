"""What the links of a tree carry per topic: claims of parents and children, reported as changes (decision 4)."""

from typing import TYPE_CHECKING

from quillcast.core.host import Timer
from quillcast.core.interning import interned
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics import link_reports
from quillcast.protocol.topics.messages import Orphaned
from quillcast.protocol.topics.tree import BEFORE, NEVER, Child, Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class ReportDue(Timer, frozen=True):
    """Tell the neighbours in trees what changed since the last report."""


class Reporting:
    """What this peer claims in its trees, and what it makes of its neighbours' claims."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.streams = scribe, scribe.host, scribe.config, scribe.streams
        self.dirty: dict[bytes, None] = {}
        self.report_set = False
        self.reported_at = float("-inf")
        scribe.dispatch.on_timer(ReportDue, lambda _: self.report())

    def touch(self, tree: Tree) -> None:
        """Something about the tree is to be told to its neighbours at the next report."""
        self.dirty[tree.topic] = None
        if not self.report_set:
            self.report_set = True
            due = self.reported_at + self.config.report_s - self.host.now()
            self.host.set_timer(ReportDue(), max(0.0, due))  # after a quiet time at once

    def forget(self, tree: Tree) -> None:
        """The tree is no more: nothing is to be told about it."""
        self.dirty.pop(tree.topic, None)

    def report(self) -> None:
        self.report_set = False
        self.reported_at = self.host.now()
        topics, self.dirty = self.dirty, {}
        for topic in topics:
            tree = self.scribe.trees.get(topic)
            if tree is not None:
                self.scribe.housekeeping.wake(tree)
                self.tell(tree)

    def moved(self, tree: Tree, size_bytes: int) -> None:
        """So many bytes came, were taken here, or became stable. When that is much, all wait for the word of it."""
        tree.reported_bytes += size_bytes
        if tree.topic not in self.dirty:
            self.touch(tree)
        if tree.reported_bytes >= self.config.report_bytes:
            self._hurry(tree)

    def _hurry(self, tree: Tree) -> None:
        self.tell(tree)
        for contact in tree.neighbours():
            self.streams.hurry(contact.node_id)

    def tell(self, tree: Tree) -> None:
        now = self.host.now()
        tree.reported_bytes = 0
        if tree.root is not None:
            self.scribe.rendezvous.advance_stable(tree, now)
        else:
            self._trim(tree)
        if tree.parent is not None:
            self.streams.put(tree.parent, tree.topic, link_reports.encode(tree.child_report(now)))
        if tree.children and tree.attached:
            claim = link_reports.encode(tree.parent_report(self.host.me, self.scribe.children.fallbacks(tree)))
            for child in tree.children.values():
                self.streams.put(child.contact, tree.topic, claim)

    # ---- what neighbours claim

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: what a neighbour says about a topic."""
        tree = self.scribe.trees.get(key)
        if tree is not None:
            self.scribe.housekeeping.wake(tree)
        if value is None:
            self._report_dropped(tree, sender)
            return
        match link_reports.decode(value):
            case link_reports.ChildReport() as claim:
                self._child_says(tree, sender, key, claim)
            case link_reports.ParentReport() as claim:
                self._parent_says(tree, sender, key, claim)

    def _report_dropped(self, tree: Tree | None, sender: Contact) -> None:
        if tree is None:
            return
        child = tree.children.get(sender.node_id)
        if child is not None and child.spoken == BEFORE:  # it left and came again before this word of it came
            child.spoken = NEVER
            self.scribe.children.await_word(tree, child)
        elif child is not None:
            self.scribe.children.remove(tree, sender.node_id, "moved", lease=True)
            self.scribe.membership.leave_if_idle(tree)
        elif tree.parent is not None and tree.parent.node_id == sender.node_id:
            self.host.trace(Mark("parent_forgot_child"))
            self.scribe.membership.detach(tree, "refused")
            if tree.needed:
                self.scribe.membership.join(tree)
            else:
                self.scribe.membership.close(tree)

    def _child_says(self, tree: Tree | None, sender: Contact, topic: bytes, claim: link_reports.ChildReport) -> None:
        if tree is None or sender.node_id not in tree.children:
            self._unknown_child_says(tree, sender, topic, claim)
            return
        child = tree.children[sender.node_id]
        if (
            child.acknowledged_term != claim.term
            or child.acknowledged != claim.acknowledged
            or child.newcomers != claim.newcomers
        ):
            self.touch(tree)  # what it needs no more may be let go, and is told on
        first = not child.spoken
        child.note_report(claim)
        tree.speaks_here(sender.node_id)
        if claim.term == tree.term:
            tree.catch_up(child, claim.acknowledged, self.host.now())
        if first or claim.newcomers:
            self.scribe.children.heard_from(tree, child)
        self.scribe.terms.heard_of(tree, claim.heard)
        if tree.root is not None:
            self.scribe.rendezvous.advance_stable(tree, self.host.now())  # publishers wait for this word

    def take_up(self, child: Child, topic: bytes) -> None:
        """A child that is entered again may have claimed already what it would claim now: it will not repeat it.

        Or it left meanwhile, and has yet to take that claim back.
        """
        claim = self._told(child.contact, topic)
        if isinstance(claim, link_reports.ChildReport):
            child.note_report(claim)
            child.spoken = BEFORE

    def is_leaf(self, tree: Tree, child: Contact) -> bool:
        """Has a child nobody below it, as it claims?"""
        claim = self._told(child, tree.topic)
        return isinstance(claim, link_reports.ChildReport) and claim.leaf

    def take_up_parent(self, tree: Tree, parent: Contact) -> None:
        """A new parent's claim may have come before its answer to the Join; it will not repeat it either."""
        claim = self._told(parent, tree.topic)
        if isinstance(claim, link_reports.ParentReport) and self.host.me not in claim.path:
            self._parent_says(tree, parent, tree.topic, claim)

    def _told(self, neighbour: Contact, topic: bytes) -> link_reports.ChildReport | link_reports.ParentReport | None:
        told = self.streams.told(neighbour.node_id).get(topic)
        return link_reports.decode(told) if told is not None else None

    def _unknown_child_says(
        self, tree: Tree | None, sender: Contact, topic: bytes, claim: link_reports.ChildReport
    ) -> None:
        """A peer believes to be a child here and is not in the table: a pause or a lost message. Set it right."""
        children = self.scribe.children
        if tree is None or not tree.attached or sender.node_id in tree.path or children.full(tree, sender.node_id):
            self.host.send(sender, Orphaned([topic], tuple(tree.fallbacks) if tree is not None else ()))
            return
        self.host.trace(Mark("child_readopted"))
        start = claim.acknowledged if claim.term == tree.term else 0
        child = children.enter(tree, sender, start)
        child.note_report(claim)
        self.scribe.children.heard_from(tree, child)
        self.scribe.terms.heard_of(tree, claim.heard)
        child.advance(tree.log)
        self.touch(tree)

    def _parent_says(self, tree: Tree | None, sender: Contact, topic: bytes, claim: link_reports.ParentReport) -> None:
        if tree is not None and tree.joining and not tree.attached:
            return  # its answer to the join is on its way, or the join will be sent again
        if tree is None or tree.parent is None or tree.parent.node_id != sender.node_id:
            self.scribe.membership.refuse(sender, topic, claim.term)
            return
        if self.host.me in claim.path:
            self.host.trace(Mark("loop_left"))
            self.scribe.membership.drop_parent(tree, "loop")
            self.scribe.membership.join(tree)
            return
        term = interned(claim.term)
        if claim.path != tree.path:
            self.touch(tree)
        tree.follow_path(interned(claim.path))
        tree.fallbacks, tree.parent_held = interned(claim.fallbacks), claim.held
        self.scribe.terms.heard_of(tree, term)
        if term > tree.term:
            self.scribe.terms.enter(tree, term, 0)
        if term == tree.term:
            tree.parent_frontier = claim.frontier
            if claim.frontier > tree.frontier:
                self.scribe.gap_noticed(topic)
            self._stable(tree, claim.stable)

    def _stable(self, tree: Tree, stable: int) -> None:
        if stable > tree.stable:
            tree.stable = stable
            self.moved(tree, self._trim(tree))

    def _trim(self, tree: Tree) -> int:
        """Let go of what nobody needs any more; how many bytes that was."""
        gone_bytes = tree.trim(self.host.now()) if len(tree.log) else 0
        if gone_bytes:
            self.scribe.flow_control.relieved()
        return gone_bytes
