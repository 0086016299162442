"""What topics that wait for their slow subscribers may keep of each peer's buffers (docs/delivery.md, *Slowness*).

Such a topic keeps its events until the slow subscriber has them, and would fill the buffers of every peer on the way to
it, which then have no room for other topics. So it has a share: it may keep as much as the budget has left (the dynamic
threshold of shared-memory switches: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998, with a factor of 1). One topic takes
half of the budget at most, two a third each, and there is always room for topics that are not slow. What it keeps of
past terms counts: what publishers send again of these is taken though they are held back. Topics that keep little are
not held back, as far as they keep little together: else a small one would wait for what a large one keeps.

The share holds at each peer of the tree and not only at the root: a peer may pass on many topics whose roots are others
and have room. A child tells its parent when the share is used up at itself or below, and the root holds back the
topic's publishers for as long as it is told so.
"""

from collections.abc import Mapping

from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.small_topics import SmallTopics
from quillcast.protocol.topics.state.tree import Tree


class Shares:
    """The shares of topics at this peer, and what its children say of theirs."""

    def __init__(self, trees: Mapping[bytes, Tree], budget: Budget, schedule: Schedule, small: SmallTopics) -> None:
        self.trees, self.budget, self.schedule, self.small = trees, budget, schedule, small
        self.below: dict[bytes, dict[bytes, None]] = {}  # by topic: children that said that theirs is used up
        self.told: dict[bytes, None] = {}  # topics of which the parent was told so

    def is_used_up(self, tree: Tree) -> bool:
        """May nothing more be published in this topic for now, for want of room here or below?"""
        if tree.descriptor.settings.slow != "wait":  # `Tree.waits`, inline: this runs for every report
            return False
        return self._keeps_share(tree) or self._is_below(tree)

    def _keeps_share(self, tree: Tree) -> bool:
        """Does it keep more than the budget has left, and more than little?"""
        if tree.flow.kept_bytes <= self.budget.limit_bytes - self.budget.used_bytes:
            return False
        if self.small.is_due:
            self.small.look()
        return tree.flow.kept_bytes > self.small.bound_bytes or not self.small.goes_on(tree.topic)

    def _is_below(self, tree: Tree) -> bool:
        return any(node in tree.leases.children for node in self.below.get(tree.topic, ()))

    def child_says(self, tree: Tree, node: bytes, *, used_up: bool) -> bool:
        """A child reports whether the topic's share is used up at it or below. Was that news?"""
        nodes = self.below.get(tree.flow.topic, {})
        if used_up == (node in nodes):
            return False
        if used_up:
            self.below.setdefault(tree.topic, nodes)[node] = None
        else:
            del nodes[node]
            if not nodes:
                del self.below[tree.topic]
        self.schedule.touch(tree)
        return True

    def tell(self, tree: Tree) -> bool:
        """What to tell the parent now."""
        used_up = self.is_used_up(tree)
        if used_up:
            self.told[tree.topic] = None
        elif self.told:
            self.told.pop(tree.topic, None)
        return used_up

    def recheck(self) -> None:
        """The buffers have shrunk: parents are told of topics that have room again."""
        for tree in [self.trees[topic] for topic in self.told if topic in self.trees]:
            if not self.is_used_up(tree):
                self.schedule.touch(tree)

    def housekeep(self) -> None:
        """Forget topics that this peer has no part in, and children that went elsewhere."""
        self.told = {topic: None for topic in self.told if topic in self.trees}
        self.below = {topic: here for topic in self.below if (here := self._still_children(topic))}
        self.recheck()

    def _still_children(self, topic: bytes) -> dict[bytes, None]:
        tree = self.trees.get(topic)
        return {node: None for node in self.below[topic] if tree is not None and node in tree.leases.children}
