"""Periodic checks of what time alone changes, only in topics where something may have changed."""

from collections.abc import Sequence
from typing import Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.ranges import RangeSet, difference
from quillcast.protocol.forwarding.discarding import discard_past, forget, give_up_owed
from quillcast.protocol.forwarding.event_places import may_be_readmitted, runs_at
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.state.effects import FindParent, GapNoticed, LeaveIfIdle, ProcessPaused
from quillcast.protocol.topics.state.owing import owe_late
from quillcast.protocol.topics.state.schedule import HousekeepingDue, Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees


class Housekept(Protocol):
    """A part that does housekeeping for its own state."""

    def housekeep(self, now: float, *, paused: bool) -> None:
        """Check what time has changed. `paused`: this process was paused, and no lease ended during that time."""
        ...


class Housekeeping:
    """A peer's periodic check of what time has changed."""

    __slots__ = (
        "after", "before", "config", "dispatch", "host", "publishers_at", "schedule", "source_streams", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, trees: Trees, schedule: Schedule, source_streams: SourceStreams,
        before: Sequence[Housekept], after: Sequence[Housekept], dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`before` and `after` are parts whose own housekeeping comes before and after that of the trees."""
        self.host, self.config, self.trees, self.schedule = host, config, trees, schedule
        self.source_streams, self.before, self.after, self.dispatch = source_streams, before, after, dispatch
        self.publishers_at = host.now()
        dispatch.on_alarm(HousekeepingDue, self.housekeep)

    def housekeep(self) -> None:
        """Check what may have changed, and set the timer again while there is any topic or publisher."""
        if not self.schedule.has_work:
            self.schedule.stop()
            return
        self.schedule.again()
        self._look_over(self.host.now())

    def notice(self) -> None:
        """Note that an input arrives. If this process was paused until now, prolong all leases before judging any."""
        now = self.host.now()
        if now > self.schedule.paused_from:
            self._look_over(now)

    def _look_over(self, now: float) -> None:
        paused = now > self.schedule.paused_from
        if paused:
            self.schedule.note_pause()
        self.schedule.note_round(now)
        for part in self.before:
            part.housekeep(now, paused=paused)
        topics = list(self.trees.by_topic if paused else self.schedule.due)
        for topic in topics:
            self.dispatch.order(GapNoticed(topic))
        for topic in topics:
            tree = self.trees.by_topic.get(topic)
            if tree is None:
                continue
            self._check_tree(tree, now, paused=paused)
            if not tree.is_due:
                self.schedule.rest(topic)
        self._forget_publishers(now)
        for part in self.after:
            part.housekeep(now, paused=paused)

    def _check_tree(self, tree: Tree, now: float, *, paused: bool) -> None:
        self._end_leases(tree, now, paused=paused)
        self._discard_past_terms(tree, now)
        if tree.root is not None and tree.root.stable < tree.root.index:
            self.schedule.touch(tree)
        self.source_streams.dismiss_denied(tree)
        self.source_streams.news.touch(tree)
        if not tree.attached and tree.needed and not tree.joining:
            self.dispatch.order(FindParent(tree.topic))
        if tree.keeping_until is not None and tree.keeping_until <= now:
            tree.keep_no_longer()
            if self.trees.must_leave(tree):
                self.dispatch.order(LeaveIfIdle(tree.topic, anyway=True))
        if not tree.flow.past:  # also a topic that was transferred here and is not used
            self.dispatch.order(LeaveIfIdle(tree.topic, anyway=True))

    def _end_leases(self, tree: Tree, now: float, *, paused: bool) -> None:
        if paused:  # no lease ended meanwhile, and stability waits for the replicas
            tree.prolong(now + self.config.lease_s, stays=not self.trees.must_leave(tree))
            self.dispatch.order(ProcessPaused(tree.topic))
        if tree.leases.expire(now):
            self.schedule.touch(tree)

    def _discard_past_terms(self, tree: Tree, now: float) -> None:
        flow = tree.flow
        for term in flow.past.overdue(now):
            if self._may_come_again(tree, term, now):
                if not flow.waits_for(term):
                    discard_past(flow, term)  # nobody here waits for events kept of it
                continue
            for subscription in tree.subscriptions:
                owe_late(tree, subscription, flow.past[term], at_last=True)
            give_up_owed(flow, term)
            if self._may_forget(tree, term):
                forget(flow, term)
            self.schedule.touch(tree)  # what waited for it can proceed now
        for edge in tree.subscriptions:
            edge.forget(flow.knows)
            waits = any(edge.lacking(term, past.seen, past.end) for term, past in flow.past.items())
            before = now - self.config.lease_s - self._late_s(tree)
            if not waits and edge.give_up_holes(before, edge.channel.untaken(flow.log)):
                self.schedule.touch(tree)

    def _may_come_again(self, tree: Tree, term: Term, now: float) -> bool:
        """Whether held-back publishers may, for one more lease, still resend events that a subscriber here lacks.

        What others kept of the term may have filled the root's buffers until now. A root does not wait: what it keeps
        itself may be the reason why publishers are held back.
        """
        flow = tree.flow
        past = flow.past[term]
        if tree.descriptor.settings.slow != "wait" or tree.root is not None:
            return False
        if not past.until <= now < past.until + self.config.lease_s:
            return False
        lacking = [lost for edge in tree.subscriptions for lost in edge.lacking(term, past.seen, past.end)]
        known = RangeSet((run.at, run.at + run.events) for run in runs_at(flow, term, lacking))
        unknown = difference(lacking, known) if self._late_s(tree) else []
        return bool(unknown or may_be_readmitted(flow, term, lacking))

    def _late_s(self, tree: Tree) -> float:
        """Return how much longer to wait for events, if publishers are held back or were until a lease ago."""
        is_late = self.schedule.held_back.lately(tree.topic, self.config.lease_s)
        return self.config.lease_s if is_late else 0.0

    def _may_forget(self, tree: Tree, term: Term) -> bool:
        """Whether the term can be forgotten: no subscriber that publishers wait for has still to take its events."""
        return tree.descriptor.settings.slow == "cut" or not tree.flow.waits_for(term)

    def _forget_publishers(self, now: float) -> None:
        """Forget publishers that are gone for good: they keep unstable events for `retain_s` at most."""
        if now - self.publishers_at < self.config.retain_s + self.config.lease_s:
            return
        self.publishers_at = now
        for tree in self.trees.by_topic.values():
            if tree.descriptor.settings.slow == "cut" or tree.flow.current.stable >= tree.frontier:
                for edge in tree.subscriptions:
                    edge.forget_publishers()
