"""Farewells: how a leaving peer without parent says which of the leases that it speaks for continue.

A peer that leaves tells its parent (`Leave`). But a root has none, and if a peer and its parent leave at the same time,
the child is sent away before it can say anything. Others wait for both by name. So such a peer sends a `Farewell` to
another one in the tree, as soon as the peers below it have found other parents. A former root tells the next root;
others tell the peers to which their children were sent, or the peers closest to the topic, one after another.
"""

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import BESIDE_ROOT, TreeMembership
from quillcast.protocol.topics.messages import Farewell, FarewellHeard, Refused
from quillcast.protocol.topics.state.link_reports import MoveCount
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees


class FarewellDue(Timer, frozen=True):
    """Has the peer that was told answered?"""

    topic: bytes
    to: bytes


class Farewells:
    """Sends this peer's farewells, and receives those of others."""

    __slots__ = ("children", "config", "host", "membership", "moves", "ring", "told", "trees")

    def __init__(
        self, host: Host, config: TopicConfig, ring: Overlay, trees: Trees, moves: MoveCount, children: ChildrenTables,
        membership: TreeMembership, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.ring, self.trees = host, config, ring, trees
        self.moves, self.children, self.membership = moves, children, membership
        self.told: dict[bytes, dict[bytes, None]] = {}  # by topic: peers told; the last one has not answered yet
        dispatch.on_message(Farewell, self._farewell)
        dispatch.on_message(FarewellHeard, self._heard)
        dispatch.on_timer(FarewellDue, self._due)

    def say(self, tree: Tree) -> None:
        """Tell the next of the peers that may know this one, unless one has still to answer."""
        if tree.topic not in self.told:
            self._tell_next(tree)

    def _tell_next(self, tree: Tree) -> None:
        told = self.told.setdefault(tree.topic, {})
        others = (*tree.fallbacks, *self.ring.closest(tree.topic, BESIDE_ROOT))
        to = next((each for each in others if each.node_id not in (self.host.me, *told)), None)
        if to is None:
            self._end(tree)
            return
        told[to.node_id] = None
        word, number = self.membership.last_word(tree.topic), self.moves.of(tree.topic)
        self.host.send(to, Farewell(tree.topic, word.moved, word.leases, word.lives, word.left_s, number))
        self.host.set_timer(FarewellDue(tree.topic, to.node_id), self.config.join_timeout_s)

    def _end(self, tree: Tree) -> None:
        del self.told[tree.topic]
        self.membership.close(tree)

    def _due(self, timer: FarewellDue) -> None:
        self._does_not_hear(timer.topic, timer.to)

    def refused(self, tree: Tree, sender: Contact) -> None:
        """A peer that was told has no connection to the tree."""
        self._does_not_hear(tree.topic, sender.node_id)

    def link_lost(self, contact: Contact) -> None:
        """A peer that was told may have left before."""
        for topic in list(self.told):
            self._does_not_hear(topic, contact.node_id)

    def _does_not_hear(self, topic: bytes, node: bytes) -> None:
        tree = self.trees.by_topic.get(topic)  # it may have found a parent meanwhile that received its Leave
        if tree is not None and next(reversed(self.told.get(topic, {})), b"") == node:
            self._tell_next(tree)

    def _heard(self, sender: Contact, message: FarewellHeard) -> None:
        tree = self.trees.by_topic.get(message.topic)
        if tree is not None and sender.node_id in self.told.get(message.topic, {}):
            self._end(tree)

    def _farewell(self, sender: Contact, message: Farewell) -> None:
        """A peer has left: name it to the peers above. The leases that it spoke for continue here."""
        tree = self.trees.by_topic.get(message.topic)
        if tree is None or self.trees.leaving or not self._counts(tree):
            self.host.send(sender, Refused(message.topic, "orphan"))
            return
        self.children.parted(tree, sender, message)
        self.host.send(sender, FarewellHeard(message.topic))

    def _counts(self, tree: Tree) -> bool:
        """Whether leases here hold stability back. The parent of a peer that only publishes ignores them."""
        return tree.served if tree.attached else tree.needed or self.ring.is_closest(tree.topic)
