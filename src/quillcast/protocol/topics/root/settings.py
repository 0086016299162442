"""A topic's settings at its root: entered once most of the topic's replicas have recorded them."""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import follows, opens_session
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.root.replication import Replication, Round
from quillcast.protocol.topics.root_messages import Create, Created
from quillcast.protocol.topics.state.effects import AwaitRoot, LaterTermExists, OpenSession, SettingsEntered
from quillcast.protocol.topics.state.overlay import Answers, Overlay
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.tree import Tree


class RootSettings:
    """Enters the settings of topics rooted here."""

    __slots__ = ("answers", "dispatch", "known", "replication", "ring", "terms", "trees")

    def __init__(
        self, ring: Overlay, known: KnownTopics, trees: Mapping[bytes, Tree], terms: Terms, replication: Replication,
        answers: Answers, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.ring, self.known, self.trees, self.terms = ring, known, trees, terms
        self.replication, self.answers, self.dispatch = replication, answers, dispatch
        dispatch.on_routed(Create, self.create)

    def create(self, message: Create) -> None:
        """Enter the descriptor, or answer with the existing one, once most replicas have recorded it."""
        descriptor = message.descriptor
        tree = self.trees.get(descriptor.topic)
        if tree is None or tree.root is None or self._is_outdone(tree, message.term):
            self.dispatch.order(AwaitRoot(descriptor.topic, message))
            return
        known = tree.descriptor
        claims = known.version == 0 and known.settings == descriptor.settings
        takes_over = claims and not known.owner_key and descriptor.genuine
        lists = takes_over and is_restricted(descriptor.access, "publish")
        if known.upcoming is not None or opens_session(known, descriptor) or lists:
            self.dispatch.order(OpenSession(tree.topic, message))
            return
        if claims or follows(known, descriptor):
            self.known.learn(descriptor)
        self._answer(tree, message)

    def _is_outdone(self, tree: Tree, term: Term) -> bool:
        """Whether the creator's peer used the topic in a later term than this root's, which has then ended."""
        self.terms.was_used(tree, term)
        return tree.root is None

    def _answer(self, tree: Tree, message: Create) -> None:
        root = tree.root
        if root is None:  # these settings ended its term
            self.ring.route(message, tree.topic)
        elif tree.descriptor == root.noted:
            self._tell_created(root, message)
        else:
            self.replication.note(tree.descriptor, root.term, lambda _: self._created(tree, message))

    def _created(self, tree: Tree, message: Create) -> None:
        if tree.root is None or tree.descriptor != tree.root.noted:
            self.ring.route(message, tree.topic)
        else:
            self._tell_created(tree.root, message)

    def _tell_created(self, root: Root, message: Create) -> None:
        created = Created(root.noted, root.holders, message.number)
        self.answers.tell(message.creator, created, again=message.again)

    def learned(self, tree: Tree) -> None:
        """This peer applies other settings: as a root it tells the tree once most replicas have recorded them."""
        root = tree.root
        if root is None:
            return
        if tree.descriptor.guarantee != root.descriptor.guarantee or tree.flow.disowns(root.term):
            self.dispatch.order(LaterTermExists(tree.topic))  # another root began that session, or knew who may publish
        elif tree.descriptor != root.noted:
            self.replication.note(tree.descriptor, root.term, lambda round_: self._noted(tree, root, round_))

    def _noted(self, tree: Tree, root: Root, round_: Round) -> None:
        """Most replicas have recorded the settings, or one of them knew better."""
        for entry in round_.answers.values():
            if entry.descriptor is not None:
                self.known.learn(entry.descriptor)
            self.terms.heard_of(tree, entry.term)
        if tree.root is root and round_.note == (tree.descriptor, root.term):
            root.note_settings(tree.descriptor, round_.holders)
            self.dispatch.order(SettingsEntered(tree.topic))
