"""How a peer in a tree follows its roots: the present term, and those before it (docs/delivery.md)."""

from typing import TYPE_CHECKING

from quillcast.core.envelope import Term
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Terms:
    """What this peer knows of the terms of its topics."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config = scribe, scribe.host, scribe.config

    def enter(self, tree: Tree, term: Term, start: int) -> None:
        """A new term: its events are owed from `start` on to this peer and to its subscribers."""
        for edge in tree.edges.values():
            edge.turn(tree.log)
        end = max(tree.arrived_below, self.scribe.leadership_transfer.end_of(tree))
        tree.begin(term, start, self.host.now() + self.config.past_terms_s, end)
        for edge in tree.edges.values():
            edge.begin(term, start)
        tree.parent_frontier = 0
        tree.heard = max(tree.heard, term)
        self.scribe.reporting.touch(tree)

    def recall(self, tree: Tree, term: Term, end: int) -> None:
        """A past term went up to `end`: who was subscribed before it is owed its events."""
        if tree.may_recall(term, end) and tree.recall(term, end, self.host.now() + self.config.past_terms_s):
            self.scribe.reporting.touch(tree)  # neighbours on the other side may not know either
            for edge in tree.edges.values():
                edge.owe(term, end, tree.past[term].stable)

    def keep(self, tree: Tree) -> None:
        """Stay in the tree for as long as others may lack what this peer knows of a term that is over."""
        tree.keeping_until = self.host.now() + self.config.past_terms_s
        self.scribe.housekeeping.wake(tree)

    def heard_of(self, tree: Tree, term: Term) -> None:
        """Terms only grow: a root that hears of a later one than its own begins one later still."""
        tree.heard = max(tree.heard, term)
        if tree.root is not None and tree.heard > tree.root.term:
            self.scribe.rendezvous.outdone(tree)
