"""How a peer begins a term as root, and when it begins another (docs/delivery.md, *Roots that move*).

Safety rests on terms. A new root never relies on what an earlier one admitted: publishers send unstable events again,
and subscribers recognise repeats by sequence. Orphans may still be looking for a parent, and nothing must be declared
stable without them. So a root that took over holds stability for as long as their leases last; a root to which the
topic was transferred, until the peers that the former root names have joined (docs/decisions/leadership-transfer.md).
"""

import math

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import interned
from quillcast.core.trace import BecameRoot, Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.root.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.root.replication import Replication, Round
from quillcast.protocol.topics.state.effects import BecomeRoot, LeaseEnded, Resign, RootHere
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree

DOUBT_ROUNDS = 2.5  # heartbeats in which a parent notices that it lost a paused child; a guess


class DoubtOver(Timer, frozen=True):
    """After a pause: a peer that still has its parent has its place in the tree."""

    paused_at: float


class RootTerms:
    """Begins the terms of the topics rooted here, and ends those that a later one replaces."""

    def __init__(
        self, host: Host, config: TopicConfig, ring: Overlay, known: KnownTopics, terms: Terms,
        replication: Replication, membership: TreeMembership, transfer: LeadershipTransfer,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.ring, self.known = host, config, ring, known
        self.terms, self.replication, self.membership = terms, replication, membership
        self.intake, self.transfer, self.dispatch = transfer.intake, transfer, dispatch
        self.paused_at = -math.inf  # when this process last resumed after a pause
        dispatch.on_timer(DoubtOver, self._doubt_over)

    def next_term(self, tree: Tree) -> Term:
        """Return a term above all known terms, in the topic's present session."""
        tree.hear_of(self.known.latest(tree))
        session, reliable = tree.descriptor.guarantee
        if tree.heard.session > session:  # two own the name, and this is the session of the other
            session, reliable = tree.heard.session, tree.descriptor.settings.reliable
        lowest = session * SESSION_TERMS + (RELIABLE_TERMS if reliable else 0)
        counter = max(tree.heard.counter, lowest) + 1
        term = Term(counter, self.host.me[:8] + self.host.incarnation)
        return interned(term.noting(owned=bool(tree.descriptor.owner_key)))

    def become(
        self, tree: Tree, how: str, term: Term, holders: int = 1, doubtful_until: float = 0.0, after: Term = NO_TERM
    ) -> None:
        """Begin a term that most of the topic's replicas have recorded (`candidacy.py`).

        A topic that is new to them may have been in use until `doubtful_until`. `after` was the latest term when this
        peer chose its own; its own terms since then never began.
        """
        topic = tree.topic
        if not (tree.heard > after and tree.heard.shares_root(term)):
            after = tree.heard
        offer = self.transfer.take_offer(tree)
        if offer is not None and offer.root is not None and offer.term == after:
            how = "transferred"
        else:
            offer = None  # there was another term since
        self.membership.drop_parent(tree, "closer_root")
        root = Root(
            self.host, self.config, tree.descriptor, term, self._hold(how, doubtful_until), holders=holders,
            after=None if how == "created" else after, outbids=how == "merged", early=self.intake.early,
        )  # fmt: skip
        tree.begin_root(root)
        if offer is not None:
            self.transfer.take_over(tree, root, offer)
        self.host.trace(BecameRoot(topic, term, how))
        self.terms.enter(tree, term, 0, here=True)
        self.membership.settled(tree)
        self.dispatch.order(RootHere(tree.topic))
        self.transfer.watch_closer(tree)

    def _hold(self, how: str, doubtful_until: float) -> float:
        """Return until when nothing is declared stable: orphans of an earlier root may be looking for a parent.

        A topic that is new, according to most peers that would know, has no orphans.
        """
        if how == "created":
            return doubtful_until
        return self.host.now() + self.config.lease_s

    def hold(self, tree: Tree, now: float) -> None:
        """This process was paused, and another peer may be root by now: declare nothing stable until that is known.

        No subscription begins in the term either: it would get events of a later term from before it began.
        """
        root = tree.root
        tree.doubt()
        if self.paused_at != now:
            self.paused_at = now
            doubt_s = DOUBT_ROUNDS * self.config.tree_heartbeat_s
            self.terms.schedule.read_until(now + doubt_s)
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
            for tree in list(self.membership.trees.by_topic.values()):
                if tree.doubted and tree.parent is not None:
                    self.membership.settled(tree)

    def outdone(self, tree: Tree) -> None:
        """A later term than this root's exists: the closest peer begins an even later one."""
        if self.ring.is_closest(tree.topic):
            self.host.trace(Mark("root_outdone"))
            publishers = self.intake.forget_term(tree)
            self.dispatch.order(BecomeRoot(tree.topic, "merged", publishers))
        else:
            self.dispatch.order(Resign(tree.topic))
