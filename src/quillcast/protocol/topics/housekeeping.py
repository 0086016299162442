"""What passes with time, looked over from time to time, and only in topics in which something may."""

from typing import TYPE_CHECKING

from quillcast.core.envelope import Term
from quillcast.core.host import Timer
from quillcast.core.interning import EMPTY
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


PAUSE_ROUNDS = 5  # so many sweeps that did not come mean that this process stood still; a guess, far below a lease


class HousekeepingDue(Timer, frozen=True):
    """Look over leases, past terms and publishers."""


class Housekeeping:
    """A peer's look at what time has changed."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config = scribe, scribe.host, scribe.config
        self.due: dict[bytes, None] = {}  # topics in which something passes with time; no other is looked over
        self.last_round_at = scribe.host.now()
        self.timer_set = False
        self.publishers_at = scribe.host.now()
        scribe.dispatch.on_timer(HousekeepingDue, lambda _: self.housekeep())

    def begin(self) -> None:
        """There is something to look over from time to time."""
        if not self.timer_set:
            self.timer_set = True
            self.last_round_at = self.host.now()
            self.host.set_timer(HousekeepingDue(), self.config.housekeeping_s)

    def wake(self, tree: Tree) -> None:
        """Look the topic over at the next sweep, and for as long as that finds something that time will change."""
        self.due[tree.topic] = None

    def forget(self, tree: Tree) -> None:
        """The tree is no more."""
        self.due.pop(tree.topic, None)

    def housekeep(self) -> None:
        """Look over what may have changed, and come again while there is any topic or publisher."""
        scribe, now = self.scribe, self.host.now()
        if not (scribe.trees or scribe.publishing.busy or scribe.membership.left_behind):
            self.timer_set = False
            return
        self.host.set_timer(HousekeepingDue(), self.config.housekeeping_s)
        self._look_over(now)

    def notice(self) -> None:
        """An input comes. If this process stood still until now, no lease is judged before all have been prolonged."""
        now = self.host.now()
        if self.timer_set and self._stood_still(now):
            self._look_over(now)

    def _stood_still(self, now: float) -> bool:
        return now - self.last_round_at > PAUSE_ROUNDS * self.config.housekeeping_s

    def _look_over(self, now: float) -> None:
        scribe, paused = self.scribe, self._stood_still(now)
        self.last_round_at = now
        scribe.membership.housekeep(now, paused=paused)
        scribe.children.housekeep(now, paused=paused)
        topics = list(scribe.trees if paused else self.due)
        for topic in topics:
            scribe.gap_noticed(topic)
        for topic in topics:
            tree = scribe.trees.get(topic)
            if tree is None:
                continue
            self._check_tree(tree, now, paused=paused)
            if not tree.is_due:
                self.due.pop(topic, None)
        self.due = self.due or {}  # one that was emptied keeps the memory of all that it ever held
        self._forget_publishers(now)
        scribe.publishing.housekeep(now)
        scribe.flow_control.housekeep(now, paused=paused)

    def _check_tree(self, tree: Tree, now: float, *, paused: bool) -> None:
        scribe = self.scribe
        self._end_leases(tree, now, paused=paused)
        self._discard_past_terms(tree, now)
        if tree.root is not None and tree.root.stable < tree.root.index:
            scribe.reporting.touch(tree)
        if not tree.attached and tree.needed and not tree.joining:
            scribe.membership.join(tree)
        if tree.keeping_until is not None and tree.keeping_until <= now:
            tree.keeping_until = None
        if not tree.past:  # a topic that was handed over for nothing is let go, too
            scribe.membership.leave_if_idle(tree)

    def _end_leases(self, tree: Tree, now: float, *, paused: bool) -> None:
        if paused:  # this process stood still: nobody's lease ran out meanwhile, and stability waits for the news
            for lease in tree.orphaned_leases.values():
                lease.until = max(lease.until, now + self.config.lease_s)
            self.scribe.rendezvous.hold(tree, now)
        for node in [node for node, lease in tree.orphaned_leases.items() if lease.until <= now]:
            del tree.orphaned_leases[node]
            self.scribe.reporting.touch(tree)
        for child in tree.children.values():
            if 0.0 < child.named_until <= now:
                child.named_until = 0.0
                self.scribe.reporting.touch(tree)
        if tree.ended:
            tree.ended = {node: until for node, until in tree.ended.items() if until > now} or EMPTY

    def _discard_past_terms(self, tree: Tree, now: float) -> None:
        for term in tree.overdue(now):
            for edge in tree.edges.values():
                if lacking := edge.lacking(term, tree.past[term]):
                    edge.skip(term, lacking, "unavailable", tree.runs(term, lacking), tree.later_runs(term))
            if self._may_forget(tree, term):
                tree.forget(term)
            self.scribe.reporting.touch(tree)  # what waited for it covers more now
        for edge in tree.edges.values():
            edge.forget(lambda term: term == tree.term or term in tree.past or term in tree.forgotten)
            waits = any(edge.lacking(term, past) for term, past in tree.past.items())  # for what may fill a hole
            if not waits and edge.give_up_holes(now - self.config.lease_s, tree.log):
                self.scribe.reporting.touch(tree)

    def _may_forget(self, tree: Tree, term: Term) -> bool:
        """A subscriber that publishers wait for has it still to take."""
        return tree.descriptor.settings.slow == "cut" or not tree.waits_for(term)

    def _forget_publishers(self, now: float) -> None:
        """Publishers that are gone for good are forgotten; they keep what is not stable for `retain_s` at most."""
        if now - self.publishers_at < self.config.retain_s + self.config.lease_s:
            return
        self.publishers_at = now
        for tree in self.scribe.trees.values():
            if tree.descriptor.settings.slow == "cut" or tree.stable >= tree.frontier:
                for edge in tree.edges.values():
                    edge.forget_publishers()
