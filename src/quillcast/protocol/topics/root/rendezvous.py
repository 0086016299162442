"""The rendezvous point: how a peer becomes, is and ceases to be a topic's root (docs/delivery.md, *Roots that move*).

Safety rests on terms. A new root never relies on what an earlier one admitted: publishers send again what is not
stable, and subscribers tell by sequence what they had. So that nothing is called stable behind the back of orphans
on their way, a root that took over holds stability for as long as their leases last; one that was handed the topic,
until those whom the root before names have come (docs/decisions/leadership-transfer.md).
"""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import BEST_EFFORT_TERMS, NO_TERM, SESSION_TERMS, Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.trace import BecameRoot, Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, follows, opens_session
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.messages import (
    Create,
    Created,
    FindRoot,
    Join,
    NotRoot,
    Refused,
    RootIs,
)
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.leadership_transfer import LeadershipTransfer
from quillcast.protocol.topics.root.replication import Replication, Round
from quillcast.protocol.topics.state.effects import (
    AwaitRoot,
    BecomeRoot,
    CarryOut,
    OpenSession,
    Outdone,
    Resign,
    RootHere,
    SettingsEntered,
)
from quillcast.protocol.topics.state.known import KnownTopics
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.replica_set import ReplicaSet
from quillcast.protocol.topics.state.ring import Answers, Ring
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.terms import Terms
from quillcast.protocol.topics.state.tree import Tree


class Rendezvous:
    """A peer's part as root of some topics."""

    def __init__(
        self, host: Host, config: TopicConfig, ring: Ring, known: KnownTopics, trees: Mapping[bytes, Tree],
        terms: Terms, replica_set: ReplicaSet, replication: Replication, membership: TreeMembership,
        children: ChildrenTables, progress: Progress, intake: Intake, transfer: LeadershipTransfer,
        answers: Answers, dispatch: Dispatch, carry_out: CarryOut,
    ) -> None:  # fmt: skip
        self.host, self.config, self.ring, self.known, self.trees = host, config, ring, known, trees
        self.terms, self.replica_set, self.replication = terms, replica_set, replication
        self.membership, self.children, self.progress = membership, children, progress
        self.intake, self.transfer = intake, transfer
        self.answers, self.dispatch, self.carry_out = answers, dispatch, carry_out
        dispatch.on_routed(Join, self.join)
        dispatch.on_routed(FindRoot, self.find)
        dispatch.on_routed(Create, self.create)

    # ---- becoming root

    def descriptor(self, topic: bytes, offered: Descriptor | None) -> Descriptor | None:
        """The topic's descriptor: what is known here, or what is offered where first use creates a topic."""
        descriptor = self.known.descriptors.get(topic)
        if offered is not None and (descriptor is not None or self.config.auto_create or offered.version > 0):
            self.known.learn(offered)
        descriptor = self.known.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and not self.config.auto_create:
            return None  # somebody here asked for it in vain
        return descriptor

    def next_term(self, tree: Tree) -> Term:
        """A term above all that were heard of, in the topic's present session."""
        tree.heard = max(tree.heard, tree.term, self.known.terms.get(tree.topic, NO_TERM))
        session, settings = tree.descriptor.session, tree.descriptor.settings
        lowest = session * SESSION_TERMS + (BEST_EFFORT_TERMS if session and not settings.reliable else 0)
        counter = max(tree.heard.counter, lowest) + 1
        return interned(Term(counter, self.host.me[:8] + self.host.incarnation))

    def become(self, tree: Tree, how: str, term: Term, holders: int = 1, doubtful_until: float = 0.0) -> None:
        """Begin a term under a term that is noted with most of those who keep the topic's state (`candidacy.py`).

        A topic that is new to them may have been in use until a time.
        """
        topic = tree.topic
        offer = self.transfer.take_offer(topic)
        if offer is not None and (tree.heard == offer.term or (how == "transferred" and tree.heard == term)):
            how = "transferred"
        else:
            offer = None  # there was another term since
        self.membership.drop_parent(tree, "closer_root")
        tree.root = Root(self.host, self.config, tree.descriptor, term, self._hold(how, doubtful_until))
        tree.root.holders = holders
        if offer is not None:
            self.transfer.take_over(tree, tree.root, offer)
        tree.path = ()
        self.host.trace(BecameRoot(topic, term, how))
        self.terms.enter(tree, term, 0)
        self.membership.settled(tree)
        self.carry_out(RootHere(tree))

    def _hold(self, how: str, doubtful_until: float) -> float:
        """Until when nothing is called stable: orphans of an earlier root may be on their way.

        A topic that is new, as most say who would know, has none.
        """
        if how == "created":
            return doubtful_until
        return self.host.now() + self.config.lease_s

    def hold(self, tree: Tree, now: float) -> None:
        """This process was paused, and another may be root by now: declare nothing stable until that is known."""
        root = tree.root
        if root is not None:
            self.host.trace(Mark("root_paused"))
            root.paused_until = now + self.config.lease_s
            self.replication.ask(tree.topic, lambda round_: self._heard_after_pause(tree, root, round_))

    def _heard_after_pause(self, tree: Tree, root: Root, round_: Round) -> None:
        """The replicas' answers: a later term, or, if all of them agree, that there is none.

        A root that followed this one is among the peers closest to the topic, and others of them recorded its term.
        """
        for entry in round_.answers.values():
            self.terms.heard_of(tree, entry.term)
        if tree.root is root and self.replica_set.are_all(round_.topic, round_.answers):
            root.paused_until = 0.0
            self.progress.advance_stable(tree, self.host.now())

    def outdone(self, tree: Tree) -> None:
        """A later term exists than this root's: the closest peer begins one later still."""
        if self.ring.is_closest(tree.topic):
            self.host.trace(Mark("root_outdone"))
            publishers = self.intake.forget_term(tree)
            self.carry_out(BecomeRoot(tree, "merged", publishers))
        else:
            self.carry_out(Resign(tree))

    # ---- joining, creating and finding

    def _if_root(self, topic: bytes, request: Join | FindRoot | Create) -> Tree | None:
        """The tree of a topic that this peer is the root of; if it is to be first, the request waits for that."""
        tree = self.trees.get(topic)
        if tree is not None and tree.root is not None:
            return tree
        self.carry_out(AwaitRoot(topic, request))
        return None

    def create(self, message: Create) -> None:
        """Enter the descriptor, or answer with the existing one, once most replicas have recorded it."""
        descriptor = message.descriptor
        tree = self._if_root(descriptor.topic, message)
        if tree is None or tree.root is None:
            return
        known = tree.descriptor
        if known.upcoming is not None or opens_session(known, descriptor):
            self.carry_out(OpenSession(tree, message))
            return
        if follows(known, descriptor) or (known.version == 0 and known.settings == descriptor.settings):
            self.known.learn(descriptor)
        if tree.descriptor == tree.root.noted:
            self._tell_created(tree.root, message)
        else:
            self.replication.note(tree.descriptor, tree.root.term, lambda _: self._created(tree, message))

    def _created(self, tree: Tree, message: Create) -> None:
        if tree.root is None or tree.descriptor != tree.root.noted:
            self.ring.route(message, tree.topic)
        else:
            self._tell_created(tree.root, message)

    def settings_learned(self, tree: Tree) -> None:
        """This peer goes by other settings: as a root it tells the tree once most replicas have recorded them."""
        root = tree.root
        if root is not None and tree.descriptor.session != root.session:
            self.carry_out(Outdone(tree))  # another root began that session
        elif root is not None and tree.descriptor != root.noted:
            self.replication.note(tree.descriptor, root.term, lambda round_: self._noted(tree, root, round_))

    def _noted(self, tree: Tree, root: Root, round_: Round) -> None:
        """Most replicas have recorded the settings, or one of them knew better."""
        for entry in round_.answers.values():
            if entry.descriptor is not None:
                self.known.learn(entry.descriptor)
            self.terms.heard_of(tree, entry.term)
        if tree.root is root and round_.note == (tree.descriptor, root.term):
            root.noted, root.holders = tree.descriptor, round_.holders
            self.carry_out(SettingsEntered(tree))

    def _tell_created(self, root: Root, message: Create) -> None:
        created = Created(root.noted, root.holders, message.number)
        self.answers.tell(message.creator, created, again=message.again)

    def join(self, message: Join) -> None:
        """Take the child in."""
        if message.child.node_id == self.host.me:
            tree = self.trees.get(message.topic)
            if tree is not None and not tree.attached and tree.needed:
                self.carry_out(BecomeRoot(tree, "took_over"))
            return
        if self._if_root(message.topic, message) is None:
            return
        self.descriptor(message.topic, message.descriptor)
        tree = self.trees[message.topic]
        self.terms.heard_of(tree, message.have.term if message.have else NO_TERM)
        self.children.adopt(message)

    def find(self, message: FindRoot) -> None:
        """A publisher's peer looks for the root."""
        tree = self._if_root(message.topic, message)
        if tree is None or tree.root is None:
            return
        self.descriptor(message.topic, message.descriptor)
        tree.heard = max(tree.heard, message.term)
        if self._is_over(tree):
            self.dispatch.routed(message)
            return
        if message.spoke_s is not None:
            self._rival_spoke(tree.root, message.term, self.host.now() - message.spoke_s)
        for term, index in message.settled:
            self.terms.recall(tree, term, index)
            tree.flow.settle(term, index)
        tree.root.note_asked(message.publisher)
        self.intake.note_bearers(tree, message)
        self.answers.tell(message.publisher, RootIs(tree.root.term, tree.descriptor), again=message.again)

    def _is_over(self, tree: Tree) -> bool:
        """Did what a message said end this root's term? Its descriptor or its term may be later ones."""
        if tree.root is not None and tree.heard > tree.root.term:
            self.outdone(tree)
        return tree.root is None

    def _rival_spoke(self, root: Root, term: Term, at: float) -> None:
        """A root spoke to a publisher under an earlier term: was it root beside this one, beyond a partition?

        Then that publisher has come from the other side, where subscribers have leases that are unknown here. Nothing
        is declared stable until these have ended, so that no event of the publisher is lost if the partition heals.
        """
        beside = at > root.began_at + self.config.receipt_timeout_s  # the last words of the one before may come late
        if term not in (NO_TERM, root.term, root.followed) and term.node != root.term.node and beside:
            self.host.trace(Mark("rival_spoke"))
            root.hold(at + self.config.lease_s)

    def refuse(self, request: Join | FindRoot | Create) -> None:
        """Nobody created the topic, and this network creates none on first use."""
        match request:
            case Join(descriptor=descriptor):
                why = "unknown" if descriptor is not None else "describe"
                self.host.send(request.child, Refused(request.topic, why))
            case FindRoot():
                self.answers.tell(request.publisher, NotRoot(request.topic, None, unknown=True), again=False)
