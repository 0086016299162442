"""How a peer in a tree follows its roots: the present term, and those before it (docs/delivery.md)."""

from typing import Any

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.errors import Implausible
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.trace import Mark
from quillcast.protocol.topics.state import plausible
from quillcast.protocol.topics.state.effects import Outdone
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class Terms:
    """What this peer knows of the terms of its topics."""

    def __init__(self, host: Host, past_terms_s: float, schedule: Schedule, dispatch: Dispatch) -> None:
        self.host, self.past_terms_s, self.schedule, self.dispatch = host, past_terms_s, schedule, dispatch

    def check(self, said: Any) -> None:
        """Raise `Implausible` if what another peer says names a term or version that there cannot be yet."""
        if not self.believes(said):
            raise Implausible(f"a {type(said).__name__} names a term or version that there cannot be yet")

    def believes(self, said: Any) -> bool:
        """Can there be all the terms and versions that another peer's message, or term, names?"""
        for claim in plausible.claims(said):
            if not plausible.is_plausible(claim, self.host.wall_ns):
                self.host.trace(Mark("implausible"))
                return False
        return True

    def enter(self, tree: Tree, term: Term, start: int) -> None:
        """A new term: its events are owed from `start` on to this peer and to its subscribers."""
        end = max(tree.arrived_below, tree.inherited.index if tree.inherited.term == tree.term else 0)
        ended = tree.flow.begin(term, start, self.host.now() + self.past_terms_s, end)
        if ended is not None:
            for subscription in tree.subscriptions:
                tree.owe(subscription, ended)
        tree.begin_session(term)
        tree.forgive_cuts()
        for subscription in tree.subscriptions:
            subscription.begin(term, start, owed=tree.flow.keeps)
        tree.parent_frontier = 0
        tree.heard = interned(max(tree.heard, term))
        self.schedule.touch(tree)

    def recall(self, tree: Tree, term: Term, end: int) -> None:
        """A past term went up to `end`: subscribers from before it are owed its events."""
        flow = tree.flow
        if tree.root is not None and end:
            tree.root.was_used(term)
        if flow.may_recall(term, end) and flow.recall(term, end, self.host.now() + self.past_terms_s):
            self.schedule.touch(tree)  # neighbours on the other side may not know either
            for subscription in tree.subscriptions:
                tree.owe(subscription, flow.past[term])

    def keep(self, tree: Tree) -> None:
        """Stay in the tree for as long as others may need what this peer knows of a term that is over."""
        tree.keeping_until = self.host.now() + self.past_terms_s
        self.schedule.wake(tree)

    def was_used(self, tree: Tree, term: Term) -> None:
        """A peer was in the topic's tree under this term, or published under it."""
        if tree.root is not None:
            tree.root.was_used(term)
        self.heard_of(tree, term)

    def heard_of(self, tree: Tree, term: Term) -> None:
        """Terms only grow: a root that hears of a later one than its own begins one later still."""
        tree.heard = max(tree.heard, term)
        if tree.root is not None and tree.heard > tree.root.term:
            self.dispatch.order(Outdone(tree))
