"""What a root does after a pause of its process: another peer may have become root meanwhile."""

import math

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host, Timer
from quillcast.core.trace import Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.root.replication import Replication, Round
from quillcast.protocol.topics.state.effects import LeaseEnded
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree

DOUBT_ROUNDS = 2.5  # heartbeats in which a parent notices that it lost a paused child; a guess


class DoubtOver(Timer, frozen=True):
    """After a pause: a peer that still has its parent has its place in the tree."""

    paused_at: float


class PausedRoots:
    """Holds the roots at this peer after a pause, until their replicas confirm that no later term began."""

    __slots__ = ("config", "dispatch", "host", "known", "membership", "paused_at", "replication", "schedule", "terms")

    def __init__(
        self, host: Host, config: TopicConfig, known: KnownTopics, terms: Terms, schedule: Schedule,
        replication: Replication, membership: TreeMembership, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.known, self.terms = host, config, known, terms
        self.schedule, self.replication = schedule, replication
        self.membership, self.dispatch = membership, dispatch
        self.paused_at = -math.inf  # when this process last resumed after a pause
        dispatch.on_timer(DoubtOver, self._doubt_over)

    def hold(self, tree: Tree, now: float) -> None:
        """This process was paused, and another peer may be root by now: declare nothing stable until that is known.

        No subscription begins in the term either: it would get events of a later term from before it began.
        """
        root = tree.root
        tree.doubt()
        if self.paused_at != now:
            self.paused_at = now
            doubt_s = DOUBT_ROUNDS * self.config.tree_heartbeat_s
            self.schedule.read_until(now + doubt_s)
            self.host.set_timer(DoubtOver(now), doubt_s)
        if root is not None:
            self.host.trace(Mark("root_paused"))
            root.pause(now + self.config.lease_s)
            self.replication.ask(tree.topic, lambda round_: self._heard_after_pause(tree, root, round_), anew=True)

    def _heard_after_pause(self, tree: Tree, root: Root, round_: Round) -> None:
        """Handle the replicas' answers: a later term, or, if all of them agree, that there is none.

        A root that followed this one is among the peers closest to the topic, and others of them recorded its term.
        """
        for entry in round_.answers.values():
            if entry.descriptor is not None:
                self.known.learn(entry.descriptor)
            self.terms.heard_of(tree, entry.term)
        if tree.root is not root:
            return
        if self.replication.has_answers_of_all(round_):
            root.go_on_after_pause()
            self.dispatch.order(LeaseEnded(tree.topic))
        if tree.doubted:
            self.membership.settled(tree)

    def _doubt_over(self, timer: DoubtOver) -> None:
        """Settle in trees with a parent: one that had lost this peer would have said so by now."""
        if timer.paused_at == self.paused_at:
            self.membership.end_doubts()
