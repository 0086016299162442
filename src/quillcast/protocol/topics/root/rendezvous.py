"""The rendezvous point: requests to a topic's root (Scribe, section 3.1)."""

from collections.abc import Mapping
from typing import Any

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.trace import Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.messages import Join, Refused
from quillcast.protocol.topics.root.bearers import Bearers
from quillcast.protocol.topics.root_messages import Create, FindRoot, NotRoot, RootIs
from quillcast.protocol.topics.state.effects import AwaitRoot, BecomeRoot, LaterTermExists
from quillcast.protocol.topics.state.overlay import Answers
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree


class Rendezvous:
    """Answers peers that look for the roots at this peer."""

    __slots__ = ("answers", "bearers", "config", "dispatch", "host", "joins", "known", "terms", "trees")

    def __init__(
        self, host: Host, config: TopicConfig, known: KnownTopics, trees: Mapping[bytes, Tree], terms: Terms,
        joins: Joins, bearers: Bearers, answers: Answers, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.known, self.trees, self.terms = host, config, known, trees, terms
        self.joins, self.bearers, self.answers, self.dispatch = joins, bearers, answers, dispatch
        dispatch.on_routed(Join, self.join)
        dispatch.on_routed(FindRoot, self.find)

    def _if_root(self, request: Join | FindRoot) -> Tree | None:
        """Return the tree of a topic rooted here; if this peer is still to become root, the request waits for that."""
        tree = self.trees.get(request.topic)
        if tree is None or tree.root is None:
            self.dispatch.order(AwaitRoot(request.topic, request))
            return None
        self.known.offered(request.topic, request.descriptor, creates=self.config.auto_create)
        return tree

    def join(self, message: Join) -> None:
        """Adopt the child."""
        if message.child.node_id == self.host.me:
            tree = self.trees.get(message.topic)
            if tree is not None and not tree.attached and tree.needed:
                self.dispatch.order(BecomeRoot(tree.topic, "took_over"))
            return
        tree = self._if_root(message)
        if tree is None:
            return
        self.terms.was_used(tree, message.have.term if message.have else NO_TERM)
        self.joins.adopt(message)

    def find(self, message: FindRoot) -> None:
        """Answer a publisher's peer that looks for the root."""
        tree = self._if_root(message)
        if tree is None or tree.root is None:
            return
        self.terms.note(tree, message.term)
        if self._is_over(tree):
            self.dispatch.routed(message)
            return
        if message.spoke_s is not None:
            self._rival_spoke(tree.root, message.term, self.host.now() - message.spoke_s)
        tree.root.was_used(message.term)
        for term, index, there_ms in (*message.settled, *message.dropped):
            self.terms.recall(tree, term, index, there_ms)
        for term, index, _ in message.settled:
            tree.flow.settle(term, index)
        tree.root.note_asked(message.publisher)
        self.bearers.note(tree.topic, tree.descriptor, message.publisher.node_id, message.warrants)
        answer = RootIs(tree.root.term, tree.descriptor, tree.root.held_back)
        self.answers.tell(message.publisher, answer, again=message.again)

    def _is_over(self, tree: Tree) -> bool:
        """Whether a message ended this root's term, because its descriptor or its term is later."""
        if tree.root is not None and tree.heard > tree.root.term:
            self.dispatch.order(LaterTermExists(tree.topic))
        return tree.root is None

    def _rival_spoke(self, root: Root, term: Term, at: float) -> None:
        """A root of an earlier term was heard by a publisher: was it root at the same time, across a partition?

        Then that publisher came from the other side, where subscribers have leases that are unknown here. Nothing is
        declared stable until these have ended, so that no event of the publisher is lost if the partition heals. A root
        to which the topic was transferred also stands for those before it, which may have been root at the same time as
        that one.
        """
        beside = at > root.began_at + self.config.receipt_timeout_s  # last messages of the former root may arrive late
        own = term in (NO_TERM, root.term, *root.followed) or term.shares_root(root.term)
        until = at + self.config.lease_s
        if not own and (beside or root.followed) and until > self.host.now():
            self.host.trace(Mark("rival_spoke"))
            root.hold(until)

    def refuses_scope(self, message: Any) -> bool:
        """Whether it is about a topic that has another root scope here. Then tell the asker."""
        match message:
            case FindRoot(topic, descriptor=None, root_scope=root_scope):
                why = self.known.hidden(topic, root_scope)
            case Join() | FindRoot() | Create() if message.descriptor is not None:
                why = self.known.misplaced(message.descriptor)
            case _:
                return False
        if not why:
            return False
        self.host.trace(Mark("other_root_scope"))
        self.refuse(message, why)
        return True

    def refuses_for_room(self, message: Any) -> bool:
        """Whether it would exceed the number of topics that this peer may have. Then tell the asker."""
        match message:
            case Join(topic, child):
                why = self.joins.children.crowded(topic, child.node_id)
            case FindRoot(topic):
                why = self.known.crowded(topic)
            case Create(descriptor):
                why = self.known.crowded(descriptor.topic)
            case _:
                return False
        if why:
            self.refuse(message, why)
        return bool(why)

    def refuse(self, request: Join | FindRoot | Create, why: str = "") -> None:
        """Refuse: nobody created the topic, and none is created on first use; or it cannot be used: `why`."""
        match request:
            case Join() if why:
                self.host.send(request.child, Refused(request.topic, "unusable", rule=why))
            case FindRoot(publisher=asker) | Create(creator=asker) if why:
                topic = request.topic if isinstance(request, FindRoot) else request.descriptor.topic
                self.answers.tell(asker, NotRoot(topic, None, why=why), again=False)
            case Join(descriptor=descriptor):
                why = "unknown" if descriptor is not None else "describe"
                self.host.send(request.child, Refused(request.topic, why))
            case FindRoot():
                self.answers.tell(request.publisher, NotRoot(request.topic, None, unknown=True), again=False)
