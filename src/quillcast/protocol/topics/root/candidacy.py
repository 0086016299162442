"""How a peer becomes the root of a topic (docs/delivery.md, *Roots that move*).

A candidate asks the peers that keep the topic's state what they know: a topic is new only if most of them say so. It
adopts what any of them knows. If one of them is the root, it is about to transfer the topic, and the candidate waits
for that. Then most of them record the term, so that no other peer, nor this one after a restart, assigns positions
under it. Then the term begins. Joins, publishers' queries and creates that arrive meanwhile wait, and are answered
then.
"""

from collections.abc import Iterable

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import interned
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.scopes.hierarchy import TwoRootScopes
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, unknown_topic
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.replication import Replication, Round
from quillcast.protocol.topics.root.root_terms import RootTerms
from quillcast.protocol.topics.root_messages import Create, FindRoot, TransferLeadership
from quillcast.protocol.topics.state.effects import BecomeRoot, RefuseRequest, Resign, TellNextRoot, TermChosen
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees

WAITING_MAX = 1024  # messages for a peer that is not root yet, per topic; further ones are sent again later. A guess
RootRequest = Join | FindRoot | Create


class RootCheckDue(Timer, frozen=True):
    """Another peer was root of this topic when asked: is it still?"""

    topic: bytes
    began_at: float


class Candidacy:
    """A topic whose root this peer is about to become."""

    def __init__(self, topic: bytes, how: str, began_at: float) -> None:
        self.topic, self.how, self.began_at = topic, how, began_at
        self.noting = False  # whether all answers are in, and the term is being recorded
        self.term = NO_TERM  # its term as root
        self.after = NO_TERM  # the latest known term of another root before
        self.doubtful_until = 0.0  # a topic that is new to all peers asked may have been in use until then
        self.requests: dict[tuple[type, bytes, bool], RootRequest] = {}
        """The latest by kind, peer, and whether it names a term: it does to publish, but not to change settings."""
        self.came_at: dict[tuple[type, bytes, bool], float] = {}
        self.publishers: dict[Contact, None] = {}  # of a former term
        self.between: dict[Contact, None] = {}  # peers that know another peer that may be root

    def enter(self, request: RootRequest, now: float) -> None:
        """Enter a request for the root."""
        key = type(request), _asker(request).node_id, _heard(request) != NO_TERM
        self.requests[key], self.came_at[key] = request, now

    def aged_requests(self, now: float) -> list[RootRequest]:
        """Return the requests, aged by the time they waited."""
        return [request.aged(now - self.came_at[key]) for key, request in self.requests.items()]


class Candidacies:
    """The candidacies of one peer, by topic."""

    __slots__ = (
        "by_topic", "config", "dispatch", "host", "intake", "known", "membership", "overlay", "replication",
        "root_terms", "trees",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, known: KnownTopics, trees: Trees,
        replication: Replication, membership: TreeMembership, intake: Intake, root_terms: RootTerms,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.known = host, config, overlay, known
        self.trees, self.replication, self.membership, self.intake = trees, replication, membership, intake
        self.root_terms, self.dispatch = root_terms, dispatch
        self.by_topic: dict[bytes, Candidacy] = {}
        known.spare(self.by_topic)
        dispatch.on_timer(RootCheckDue, self.ask_again)

    # ---- what begins it

    def begin(
        self, tree: Tree, how: str, publishers: Iterable[Contact] = (), session: Descriptor | None = None
    ) -> None:
        """Become the topic's root, as the closest peer. `publishers` are told who is root once that is settled.

        The term may belong to the next `session`. Publishers here that learn of that look for the root, and wait for
        this one.
        """
        tree.await_root()
        known = self.by_topic.get(tree.topic)
        candidacy = self.by_topic[tree.topic] = known or Candidacy(tree.topic, how, self.host.now())
        candidacy.publishers |= dict.fromkeys(publishers)
        if session is not None:
            self.known.learn(session)
        if known is None:
            self._start(candidacy)
            return
        if candidacy.how == "created":
            candidacy.how = how
        if how == "transferred" and not candidacy.noting:
            self._note(candidacy)

    def wait(self, topic: bytes, request: RootRequest) -> None:
        """Enter a request for the root that this peer is to be: it is answered then."""
        candidacy = self.by_topic.get(topic)
        new = candidacy is None
        if candidacy is None:
            candidacy = Candidacy(interned(topic), "created", self.host.now())
        if len(candidacy.requests) < WAITING_MAX:
            candidacy.enter(request, self.host.now())
        if new:
            self._start(candidacy)

    def outdone(self, tree: Tree) -> None:
        """A later term than this root's exists: the closest peer begins an even later one."""
        if self.overlay.is_closest(tree.topic):
            self.host.trace(Mark("root_outdone"))
            publishers = self.intake.forget_term(tree)
            self.dispatch.order(BecomeRoot(tree.topic, "merged", publishers))
        else:
            self.dispatch.order(Resign(tree.topic))

    # ---- its steps

    def _start(self, candidacy: Candidacy) -> None:
        self.by_topic[candidacy.topic] = candidacy
        if candidacy.how == "transferred":
            self._note(candidacy)
        else:
            self.replication.ask(candidacy.topic, lambda round_: self._asked(candidacy, round_))

    def ask_again(self, timer: RootCheckDue) -> None:
        """Ask again: the root has had some more time to transfer the topic."""
        candidacy = self.by_topic.get(timer.topic)
        if candidacy is not None and candidacy.began_at == timer.began_at and not candidacy.noting:
            self.replication.ask(candidacy.topic, lambda round_: self._asked(candidacy, round_))

    def _asked(self, candidacy: Candidacy, round_: Round) -> None:
        """Handle the replicas' answers. The state of the latest term takes precedence."""
        if self._is_over(candidacy) or candidacy.noting:
            return
        if self._is_rooted_elsewhere(candidacy, round_):
            return
        entries = sorted(round_.answers.values(), key=lambda entry: entry.term, reverse=True)
        for entry in entries:
            if entry.descriptor is not None:
                self.known.learn(entry.descriptor)
            if entry.term != NO_TERM:
                self.known.enter(candidacy.topic, entry.term)
        waited_s = self.host.now() - candidacy.began_at
        may_learn = self._may_learn(candidacy, round_) or any(entry.is_root for entry in entries)
        if may_learn and waited_s < self.config.transfer_s:
            self.host.set_timer(RootCheckDue(candidacy.topic, candidacy.began_at), self.config.ask_s)
            return
        candidacy.doubtful_until = max(candidacy.doubtful_until, self.replication.doubtful_until(round_))
        candidacy.between = round_.between
        self._note(candidacy)

    def _may_learn(self, candidacy: Candidacy, round_: Round) -> bool:
        """Whether a topic seems new while peers that would know are suspected. If only slow, they may still answer."""
        is_new = self.known.terms.get(candidacy.topic, NO_TERM) == NO_TERM
        return is_new and self.replication.has_suspected(round_)

    def _note(self, candidacy: Candidacy) -> None:
        """Have this peer's term as root recorded: it is above all known terms."""
        candidacy.noting = True
        descriptor = self._descriptor(candidacy)
        if descriptor is None:
            self._refuse(candidacy)
            return
        tree = self.trees.open(descriptor)
        tree.await_root()
        self.root_terms.hear_of(tree, *map(_heard, candidacy.requests.values()))
        if candidacy.how == "created" and self.known.latest(tree) != NO_TERM:
            candidacy.how = "took_over"
        if (highest := self.known.latest(tree)) != candidacy.term:
            candidacy.after = highest
        candidacy.term = self.root_terms.next_term(tree, highest)
        self.dispatch.order(TermChosen(candidacy.topic, candidacy.term))
        self.replication.note(
            tree.descriptor, candidacy.term, lambda round_: self._noted(candidacy, round_), candidacy.between
        )

    def _noted(self, candidacy: Candidacy, round_: Round) -> None:
        """Begin the term once it is recorded, unless a replica knew better or something changed meanwhile."""
        assert round_.note is not None
        if self._is_over(candidacy) or round_.note[1] != candidacy.term:
            return
        if self._is_rooted_elsewhere(candidacy, round_):
            return
        for entry in round_.answers.values():
            if entry.descriptor is not None:
                self.known.learn(entry.descriptor)
            self.known.enter(candidacy.topic, entry.term)
        tree = self.trees.open(self.known.descriptors[candidacy.topic])
        if self.known.latest(tree) > candidacy.term or tree.descriptor != round_.note[0]:
            self.host.trace(Mark("noted_anew"))
            self._note(candidacy)
            return
        del self.by_topic[candidacy.topic]
        self.root_terms.become(
            tree, candidacy.how, candidacy.term, round_.holders, candidacy.doubtful_until, candidacy.after
        )
        if candidacy.how == "created":
            self.replication.took_for_new(candidacy.topic)
        self.intake.tell_publishers(tree, candidacy.publishers)
        for request in candidacy.aged_requests(self.host.now()):
            self.dispatch.routed(request)

    def _descriptor(self, candidacy: Candidacy) -> Descriptor | None:
        """Return the known descriptor, or for a new topic the requested one; None if that creates no topic."""
        topic, requests, creates = candidacy.topic, candidacy.requests.values(), self.config.auto_create
        new = self.known.entry(topic).descriptor is None
        for request in requests:
            if isinstance(request, Create) and new:
                self.known.learn(request.descriptor)
                new = False
        offered = [request.descriptor for request in requests if not isinstance(request, Create)]
        for descriptor in offered:
            self.known.offered(topic, descriptor, creates=creates)
        tree = self.trees.by_topic.get(topic)
        if new and not any(offered) and (tree is None or not tree.needed):
            return None  # requests only ask about the topic, and none needs it
        return self.known.offered(topic, None, creates=creates)

    def paused(self, topic: bytes) -> None:
        """This process was paused, and another peer may be root by now: earlier records prove nothing.

        Old answers may be read only now. So have a later term recorded, and peers that know better say so.
        """
        candidacy = self.by_topic.get(topic)
        if candidacy is not None and candidacy.noting:
            self.host.trace(Mark("noted_anew"))
            self._note(candidacy)

    # ---- where it ends otherwise

    def _is_over(self, candidacy: Candidacy) -> bool:
        """Whether another peer turned out to be closer, or this one has already taken over.

        A closer peer that is suspected, so that nothing is routed to it, does not count.
        """
        topic = candidacy.topic
        if self.by_topic.get(topic) is not candidacy:
            return True
        if self.overlay.is_closest(topic) or (self.overlay.active and self.overlay.next_hop(topic) is None):
            return False
        self._abandon(candidacy)
        return True

    def leaf_set_changed(self) -> None:
        """Another peer may now be closer to these topics."""
        for candidacy in list(self.by_topic.values()):
            self._is_over(candidacy)

    def _abandon(self, candidacy: Candidacy) -> None:
        """Give up, and ask the closer peer instead."""
        topic = candidacy.topic
        del self.by_topic[topic]
        self.host.trace(Mark("candidacy_abandoned"))
        tree = self.trees.by_topic.get(topic)
        if self.overlay.active:
            for request in candidacy.aged_requests(self.host.now()):
                self.overlay.route(request, topic)
        self.known.done_with(topic)
        if tree is None:
            return
        tree.stop_joining()
        if candidacy.how == "created" and candidacy.term != NO_TERM:
            self._renounce(tree, candidacy.term, candidacy.doubtful_until)
        self.intake.tell_publishers(tree, candidacy.publishers)
        self.membership.join(tree)
        self.membership.leave_if_idle(tree)

    def _renounce(self, tree: Tree, term: Term, doubtful_until: float) -> None:
        """Tell a closer peer that joined about a new topic's recorded first term: nobody waits for that term."""
        hold_s = max(0.0, doubtful_until - self.host.now())
        for closest in self.overlay.closest(tree.topic, 1):
            if closest.node_id != self.host.me:
                last_words = TransferLeadership(tree.descriptor, term, 0, 0, tree.heard, hold_s)
                self.dispatch.order(TellNextRoot(tree.topic, closest, last_words))

    def _is_rooted_elsewhere(self, candidacy: Candidacy, round_: Round) -> bool:
        """Whether others say that the topic has another root scope. Then no peer that asked here can use it."""
        tree = self.trees.by_topic.get(candidacy.topic)
        requests = map(_root_scope, candidacy.requests.values())
        asked = [tree.descriptor.settings.root_scope] if tree is not None else requests
        mine = next((root_scope for root_scope in asked if root_scope is not None), None)
        told = (entry.descriptor for entry in round_.answers.values() if entry.descriptor is not None)
        other = next((each for each in told if each.settings.root_scope != mine), None)
        if mine is None or other is None:
            return False
        self._refuse(candidacy, TwoRootScopes(other.name, other.settings.root_scope, mine))
        return True

    def _refuse(self, candidacy: Candidacy, two: TwoRootScopes | None = None) -> None:
        """Refuse all requests: the topic does not exist and is not created on first use; or it has two root scopes."""
        del self.by_topic[candidacy.topic]
        self.known.done_with(candidacy.topic)
        for request in candidacy.requests.values():
            self.dispatch.order(RefuseRequest(request, str(two or "")))
        tree = self.trees.by_topic.get(candidacy.topic)
        if tree is not None:
            tree.stop_joining()
            self.membership.fail(tree, two or unknown_topic(tree.descriptor.name))

    def check(self) -> None:
        """Raise AssertionError if a bound is broken, or a root is about to become one again."""
        for topic, candidacy in self.by_topic.items():
            assert len(candidacy.requests) <= WAITING_MAX
            tree = self.trees.by_topic.get(topic)
            assert tree is None or tree.root is None, "a root is about to be root"


def _asker(request: RootRequest) -> Contact:
    match request:
        case Join(child=contact) | FindRoot(publisher=contact) | Create(creator=contact):
            return contact


def _root_scope(request: RootRequest) -> str | None:
    """Return the topic's root scope as the asker knows it; None if the request does not say."""
    match request:
        case FindRoot(root_scope=root_scope):
            return root_scope
        case Join(descriptor=descriptor) | Create(descriptor=descriptor):
            return descriptor.settings.root_scope if descriptor is not None else None


def _heard(request: RootRequest) -> Term:
    """Return the highest term that the asker knows of."""
    match request:
        case Join(have=have) if have is not None:
            return have.term
        case FindRoot(term=term) | Create(term=term):
            return term
        case _:
            return NO_TERM
