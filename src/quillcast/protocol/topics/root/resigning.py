"""How a root transfers its topic to the peer that is closer to it (docs/delivery.md, *Roots that move*).

Stable events keep their positions, and the next root learns which peers are below
(docs/decisions/leadership-transfer.md).
"""

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.trace import Mark, ResignedRoot
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root.last_words import LastWords, without
from quillcast.protocol.topics.root.offers import Offers
from quillcast.protocol.topics.root.telling import Telling, carry
from quillcast.protocol.topics.state.effects import BecomeRoot
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.session import SessionState
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees


class TransferDue(Timer, frozen=True):
    """This term's events had time to become stable: transfer the topic."""

    topic: bytes
    term: Term


class LookAgain(Timer, frozen=True):
    """The peer that is to follow this term was still joining, or suspected: is it still?"""

    topic: bytes
    term: Term


class Resigning:
    """Ends this peer's terms as root, and tells the next roots what it knows."""

    __slots__ = ("host", "intake", "last_words", "membership", "overlay", "telling", "trees")

    def __init__(
        self, host: Host, overlay: Pastry, trees: Trees, membership: TreeMembership, intake: Intake,
        last_words: LastWords, telling: Telling,
    ) -> None:  # fmt: skip
        self.host, self.overlay, self.trees, self.membership = host, overlay, trees, membership
        self.intake, self.last_words, self.telling = intake, last_words, telling

    def resign(self, tree: Tree) -> None:
        """Transfer the topic to the closest other peer, and become its child (docs/delivery.md, *Roots that move*)."""
        root = tree.root
        others = [c for c in self.overlay.closest(tree.topic, 2) if c.node_id != self.host.me]
        if root is None:
            return
        if not others:  # this is the only peer: when it leaves, the topic ends
            if self.trees.leaving:
                self.intake.forget_term(tree)
                self.membership.leave_if_idle(tree)  # children that leave as well may still be here
            return
        to = others[0]
        publishers = self.intake.forget_term(tree)
        comes, unstable = (
            self.last_words.follows(tree, root),
            holding(tree.flow, tree.term, [(root.stable, root.index)]),
        )
        self.host.trace(ResignedRoot(tree.topic, to.node_id))
        self.telling.tell(to, self.last_words.of(tree, root), [*unstable, *self.membership.last_copies(tree)])
        self.intake.sealing.pass_marks_on(tree.topic, to)
        self.intake.successors.note(tree.topic, to)
        self.intake.tell_publishers(tree, publishers)
        if not self.trees.leaving:
            carry(self.host, to, unstable)  # the new root asks for the rest by ranges
        if comes and self.trees.leaving:
            self.membership.await_next_root(tree, to)
        elif tree.needed and not self.trees.leaving:
            self.host.trace(Mark("root_transferred"))
            self.membership.follow(tree, to)
        elif not tree.needed:
            self.membership.close(tree)


class NextSessions:
    """Begins the topic's next session: this root transfers the topic to itself, so to speak."""

    __slots__ = ("dispatch", "host", "intake", "last_words", "offers")

    def __init__(
        self, host: Host, intake: Intake, last_words: LastWords, offers: Offers, dispatch: Dispatch
    ) -> None:  # fmt: skip
        self.host, self.intake, self.last_words, self.offers, self.dispatch = host, intake, last_words, offers, dispatch

    def begin(self, tree: Tree, root: Root, session: Descriptor) -> None:
        """End this root's term, and become root for the session."""
        message, turned_away = without(self.host.contact, self.last_words.of(tree, root)), root.turned_away.values()
        publishers = dict.fromkeys((*self.intake.forget_term(tree), *turned_away))
        self.offers.keep_own(message)
        self.dispatch.order(BecomeRoot(tree.topic, "transferred", tuple(publishers), session))

    def call_off(self, tree: Tree, root: Root) -> None:
        """Stay in this session: admit events again."""
        root.call_off_session()
        self.intake.reopen(tree, root)


class MovingRoots:
    """Decides when this peer's topics move to closer peers."""

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, trees: Trees, intake: Intake, resigning: Resigning,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay = host, config, overlay
        self.trees, self.intake, self.resigning = trees, intake, resigning
        dispatch.on_timer(TransferDue, self.due)
        dispatch.on_timer(LookAgain, self.look_again)

    def leaf_set_changed(self) -> None:
        """Transfer topics that another peer is now closer to."""
        if not self.overlay.active:
            return
        for tree in [tree for tree in self.trees.by_topic.values() if tree.root is not None]:
            self.move(tree)

    def move(self, tree: Tree) -> None:
        """Transfer the topic if another peer is closer, once admitted events are stable (or had `linger_s` for it).

        Stable events keep their positions, because the next root need not admit them again.
        """
        root, now = tree.root, self.host.now()
        if root is None:
            return
        if self.overlay.is_closest(tree.topic):
            self._reopen(tree, root)
        elif not (closest := self.overlay.closest(tree.topic, 1)):
            return  # a scope named its seats, and names none now
        elif self.overlay.is_joining(closest[0]):
            self.host.set_timer(LookAgain(tree.topic, root.term), self.config.ask_s)  # else there would be no root
        elif root.stable == root.index or not root.descriptor.settings.reliable:
            self.resigning.resign(tree)
        elif root.held_until > now + self.config.linger_s:
            self.resigning.resign(tree)  # nothing becomes stable that soon
        elif not root.closing:
            root.stop()
            self.host.set_timer(TransferDue(tree.topic, root.term), self.config.linger_s)

    def watch_closer(self, tree: Tree) -> None:
        """Check again later: this peer became root although a suspected peer, which gets no messages, is closer."""
        if tree.root is not None and not self.overlay.is_closest(tree.topic):
            self.host.set_timer(LookAgain(tree.topic, tree.root.term), self.config.ask_s)

    def look_again(self, timer: LookAgain) -> None:
        """Transfer the topic once the next root has answered that it has joined, or is no longer suspected."""
        tree = self.trees.by_topic.get(timer.topic)
        if tree is None or tree.root is None or tree.root.term != timer.term:
            return
        if self.overlay.next_hop(tree.topic) is None:
            self.watch_closer(tree)
            return
        closest = self.overlay.closest(tree.topic, 1)[0]
        if self.overlay.is_joining(closest):
            self.overlay.agreement.probe(closest)
        self.move(tree)

    def _reopen(self, tree: Tree, root: Root) -> None:
        if root.closing and not self.trees.closing and root.session_state is not SessionState.FLUSHING:
            self.intake.reopen(tree, root)

    def all_stable(self, root: Root) -> None:
        """All events that a closing root admitted are stable: transfer the topic at once."""
        if not self.trees.closing:
            self.host.set_timer(TransferDue(root.descriptor.topic, root.term), 0.0)

    def due(self, timer: TransferDue) -> None:
        """Transfer the topic: that term's time for it has come."""
        tree = self.trees.by_topic.get(timer.topic)
        root = tree.root if tree is not None else None
        if tree is None or root is None or root.term != timer.term or not root.closing or self.trees.closing:
            return  # leaving has its own time
        if self.overlay.is_closest(timer.topic):
            self._reopen(tree, root)
        else:
            self.resigning.resign(tree)

    def close(self) -> None:
        """Admit nothing more, as this peer is about to leave, so that admitted events have time to become stable."""
        self.trees.prepare_to_leave()
        for tree in self.trees.by_topic.values():
            if tree.root is not None and tree.descriptor.settings.reliable:
                tree.root.stop()
