"""How a peer comes to reign over a topic (docs/delivery.md, *Roots that move*).

It asks the peers that keep the topic's state what they know: a topic is new only if most of them say so. What any of
them knows is adopted. If one of them is the root, the topic is about to be handed over, and that is waited for. Then
the term is noted with most of them, so that no other peer, nor this one after a restart, gives positions under it. Then
the reign begins. Joins, publishers' questions and creates that arrive meanwhile wait, and are answered then.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Timer
from quillcast.core.messages import Contact
from quillcast.core.sparing import shared
from quillcast.core.trace import Mark
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Create, FindRoot, Join
from quillcast.protocol.topics.replication import Round
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe

WAITING_MAX = 1024  # messages for a root that does not reign yet, per topic; those beyond are sent again. A guess
Request = Join | FindRoot | Create


class AskAgain(Timer, frozen=True):
    """Another peer was root of this topic when it was asked: is it still?"""

    topic: bytes
    began_at: float


class Accession:
    """A topic that this peer is about to reign over."""

    def __init__(self, topic: bytes, how: str, began_at: float) -> None:
        self.topic, self.how, self.began_at = topic, how, began_at
        self.noting = False  # everybody was asked
        self.term = NO_TERM  # the one under which it will reign
        self.doubtful_until = 0.0  # a topic that is new to all who were asked may have been in use until then
        self.requests: dict[tuple[type, bytes], Request] = {}
        self.publishers: dict[Contact, None] = {}  # of a reign that is over


class Accessions:
    """Those of one peer, by topic."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        self.replication, self.rendezvous = scribe.replication, scribe.rendezvous
        self.by_topic: dict[bytes, Accession] = {}
        scribe.dispatch.on_timer(AskAgain, self.ask_again)

    # ---- what begins it

    def claim(self, tree: Tree, how: str, publishers: Iterable[Contact] = ()) -> None:
        """This peer is the closest: reign over the topic. `publishers` are told who is root once that is settled."""
        tree.joining = True
        accession = self.by_topic.get(tree.topic)
        if accession is None:
            accession = Accession(tree.topic, how, self.host.now())
            accession.publishers |= dict.fromkeys(publishers)
            self._begin(accession)
            return
        accession.publishers |= dict.fromkeys(publishers)
        if accession.how == "created":
            accession.how = how
        if how == "handed_over" and not accession.noting:
            self._note(accession)

    def wait(self, topic: bytes, request: Request) -> None:
        """Somebody asked for the root, and this peer is to be it: answer once it is."""
        accession = self.by_topic.get(topic)
        new = accession is None
        if accession is None:
            accession = Accession(shared(topic), "created", self.host.now())
        if len(accession.requests) < WAITING_MAX:
            accession.requests[type(request), _asker(request).node_id] = request
        if new:
            self._begin(accession)

    # ---- its steps

    def _begin(self, accession: Accession) -> None:
        self.by_topic[accession.topic] = accession
        if accession.how == "handed_over":
            self._note(accession)
        else:
            self.replication.ask(accession.topic, lambda round_: self._asked(accession, round_))

    def ask_again(self, timer: AskAgain) -> None:
        """The root has had some more time to hand the topic over."""
        accession = self.by_topic.get(timer.topic)
        if accession is not None and accession.began_at == timer.began_at and not accession.noting:
            self.replication.ask(accession.topic, lambda round_: self._asked(accession, round_))

    def _asked(self, accession: Accession, round_: Round) -> None:
        """The keepers said what they know. The latest reign's word on the topic comes first."""
        if self._is_over(accession) or accession.noting:
            return
        entries = sorted(round_.answers.values(), key=lambda entry: entry.term, reverse=True)
        for entry in entries:
            if entry.descriptor is not None:
                self.scribe.learn(entry.descriptor)
            if entry.term != NO_TERM:
                self.replication.enter(accession.topic, entry.term)
        mine = self.replication.doubtful_until(accession.topic, self.host.me)
        accession.doubtful_until = max(accession.doubtful_until, round_.doubtful_until, mine)
        waited_s = self.host.now() - accession.began_at
        if any(entry.reigns for entry in entries) and waited_s < self.config.hand_over_s:
            self.host.set_timer(AskAgain(accession.topic, accession.began_at), self.config.ask_s)
        else:
            self._note(accession)

    def _note(self, accession: Accession) -> None:
        """Have the term noted under which this peer will reign: it is above all that were heard of."""
        accession.noting = True
        descriptor = self._descriptor(accession)
        if descriptor is None:
            self._refuse(accession)
            return
        tree = self.scribe.tree(descriptor)
        tree.joining = True
        tree.heard = max([tree.heard, *map(_heard, accession.requests.values())])
        if accession.how == "created" and self._highest(tree) != NO_TERM:
            accession.how = "took_over"
        accession.term = self.rendezvous.next_term(tree)
        self.replication.note(tree.descriptor, accession.term, lambda round_: self._noted(accession, round_))

    def _noted(self, accession: Accession, round_: Round) -> None:
        """The term is noted, unless somebody knew better or something changed meanwhile."""
        assert round_.note is not None
        if self._is_over(accession) or round_.note[1] != accession.term:
            return
        for entry in round_.answers.values():
            if entry.descriptor is not None:
                self.scribe.learn(entry.descriptor)
            self.replication.enter(accession.topic, entry.term)
        tree = self.scribe.tree(self.scribe.descriptors[accession.topic])
        if self._highest(tree) > accession.term or tree.descriptor != round_.note[0]:
            self.host.trace(Mark("noted_anew"))
            self._note(accession)
            return
        del self.by_topic[accession.topic]
        self.rendezvous.become(tree, accession.how, accession.term, round_.holders, accession.doubtful_until)
        self.rendezvous.tell_publishers(tree, accession.publishers)
        for request in accession.requests.values():
            self.scribe.dispatch.routed(request)

    def _highest(self, tree: Tree) -> Term:
        return max(tree.heard, tree.term, self.replication.terms.get(tree.topic, NO_TERM))

    def _descriptor(self, accession: Accession) -> Descriptor | None:
        """By what to reign: what is known, or what was asked for where the topic is new; None if that creates none."""
        topic, requests = accession.topic, accession.requests.values()
        new = self.replication.known(topic).descriptor is None
        for request in requests:
            if isinstance(request, Create) and new:
                self.scribe.learn(request.descriptor)
                new = False
        offered = [request.descriptor for request in requests if not isinstance(request, Create)]
        for descriptor in offered:
            self.rendezvous.known(topic, descriptor)
        tree = self.scribe.trees.get(topic)
        if new and not any(offered) and (tree is None or not tree.needed):
            return None  # somebody asked about the topic, and nobody for it
        return self.rendezvous.known(topic, None)

    # ---- where it ends otherwise

    def _is_over(self, accession: Accession) -> bool:
        """Did another peer turn out to be closer, or did this one take over already?

        A closer one that is suspected, so that nothing is routed to it, does not count.
        """
        topic = accession.topic
        if self.by_topic.get(topic) is not accession:
            return True
        if self.overlay.is_closest(topic) or (self.overlay.active and self.overlay.next_hop(topic) is None):
            return False
        self._abandon(accession)
        return True

    def leaf_set_changed(self) -> None:
        """Another peer may be closer to these topics now."""
        for accession in list(self.by_topic.values()):
            self._is_over(accession)

    def _abandon(self, accession: Accession) -> None:
        """Another peer is closer: it is asked instead."""
        topic = accession.topic
        del self.by_topic[topic]
        self.host.trace(Mark("accession_abandoned"))
        tree = self.scribe.trees.get(topic)
        if self.overlay.active:
            for request in accession.requests.values():
                self.overlay.route(request, topic)
        self.scribe.forgetting.note(topic)
        if tree is None:
            return
        tree.joining = False
        if accession.how == "created" and accession.term != NO_TERM:
            self.scribe.handing_over.renounce(tree, accession.term, accession.doubtful_until)
        self.rendezvous.tell_publishers(tree, accession.publishers)
        self.scribe.joining.join(tree)
        self.scribe.joining.leave_if_idle(tree)

    def _refuse(self, accession: Accession) -> None:
        """Nobody created the topic, and this network creates none on first use."""
        del self.by_topic[accession.topic]
        self.scribe.forgetting.note(accession.topic)
        for request in accession.requests.values():
            self.rendezvous.refuse(request)
        tree = self.scribe.trees.get(accession.topic)
        if tree is not None:
            tree.joining = False
            self.scribe.joining.fail(tree, self.rendezvous.unknown(tree.descriptor.name))

    def check(self) -> None:
        """Raise AssertionError if a bound is broken, or a root is about to reign."""
        for topic, accession in self.by_topic.items():
            assert len(accession.requests) <= WAITING_MAX
            tree = self.scribe.trees.get(topic)
            assert tree is None or tree.root is None, "a root is about to be root"


def _asker(request: Request) -> Contact:
    match request:
        case Join(child=contact) | FindRoot(publisher=contact) | Create(creator=contact):
            return contact


def _heard(request: Request) -> Term:
    """The highest term that whoever asks has heard of."""
    match request:
        case Join(have=have) if have is not None:
            return have.term
        case FindRoot(term=term):
            return term
        case _:
            return NO_TERM
