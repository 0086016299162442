"""How a peer begins a term as root (docs/delivery.md, *Roots that move*).

Safety rests on terms. A new root never relies on what an earlier one admitted: publishers send unstable events again,
and subscribers recognise repeats by sequence. Orphans may still be looking for a parent, and nothing must be declared
stable without them. So a root that took over holds stability for as long as their leases last; a root to which the
topic was transferred, until the peers that the former root names have joined (docs/decisions/leadership-transfer.md).
"""

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.trace import BecameRoot
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.root.next_root import NextRoot
from quillcast.protocol.topics.state.early import EarlyBlocks
from quillcast.protocol.topics.state.effects import RootHere
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree


class RootTerms:
    """Begins the terms of the topics rooted here."""

    __slots__ = ("config", "dispatch", "early", "host", "membership", "next_root", "terms")

    def __init__(
        self, host: Host, config: TopicConfig, terms: Terms, membership: TreeMembership,
        next_root: NextRoot, early: EarlyBlocks, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.terms = host, config, terms
        self.membership, self.next_root, self.early, self.dispatch = membership, next_root, early, dispatch

    def hear_of(self, tree: Tree, *terms: Term) -> None:
        """Note terms that the next one must exceed."""
        self.terms.note(tree, *terms)

    def next_term(self, tree: Tree, latest: Term) -> Term:
        """Return a term above the latest known one, in the topic's present session."""
        tree.hear_of(latest)
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
        offer = self.next_root.take_offer(tree)
        if offer is not None and offer.root is not None and offer.term == after:
            how = "transferred"
        else:
            offer = None  # there was another term since
        self.membership.drop_parent(tree, "closer_root")
        root = Root(
            self.host, self.config, tree.descriptor, term, self._hold(how, doubtful_until), holders=holders,
            after=None if how == "created" else after, outbids=how == "merged", early=self.early,
        )  # fmt: skip
        tree.begin_root(root)
        if offer is not None:
            self.next_root.take_over(tree, root, offer)
        self.host.trace(BecameRoot(topic, term, how))
        self.terms.enter(tree, term, 0, here=True)
        self.membership.settled(tree)
        self.dispatch.order(RootHere(tree.topic))

    def _hold(self, how: str, doubtful_until: float) -> float:
        """Return until when nothing is declared stable: orphans of an earlier root may be looking for a parent.

        A topic that is new, according to most peers that would know, has no orphans.
        """
        if how == "created":
            return doubtful_until
        return self.host.now() + self.config.lease_s
