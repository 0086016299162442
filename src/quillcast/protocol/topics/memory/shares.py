"""The share of each peer's buffers for a topic that waits for its slow subscribers (docs/delivery.md, *Slowness*).

Such a topic keeps its events until the slow subscriber has them. It would fill the buffers of every peer on the path to
it, and leave no room for other topics. So it has a share: it may keep as much as the budget has left (the dynamic
threshold of shared-memory switches: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998, with a factor of 1). One topic takes
at most half of the budget, two take a third each, and there is always room for topics that are not slow. Events of past
terms count too, because repeats of these are accepted even from publishers that are held back. Topics that keep little,
even together, are not held back: otherwise a small one would wait for what a large one keeps.

The share applies at each peer of the tree, not only at the root: a peer may forward many topics whose roots are other
peers and have room. A child tells its parent when the share is used up at itself or below, and the root holds back the
topic's publishers as long as it is told so.
"""

from collections.abc import Mapping

from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.memory.small_topics import SmallTopics
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree


class Shares:
    """The shares of topics at this peer, and what its children report about theirs."""

    def __init__(self, trees: Mapping[bytes, Tree], budget: Budget, schedule: Schedule, small: SmallTopics) -> None:
        self.trees, self.budget, self.schedule, self.small = trees, budget, schedule, small
        self.below: dict[bytes, dict[bytes, None]] = {}  # by topic: children whose share is used up
        self.told: dict[bytes, None] = {}  # topics whose share was reported to the parent as used up

    def is_used_up(self, tree: Tree) -> bool:
        """Whether nothing more may be published in this topic for now, because there is no room here or below."""
        if tree.descriptor.settings.slow != "wait":  # `Tree.waits`, inline: this runs for every report
            return False
        return self._keeps_share(tree) or self._is_below(tree)

    def _keeps_share(self, tree: Tree) -> bool:
        """Whether it keeps more than the budget has left, and is not a topic that keeps little."""
        if tree.flow.kept_bytes <= self.budget.limit_bytes - self.budget.used_bytes:
            return False
        if self.small.is_due:
            self.small.look()
        return tree.flow.kept_bytes > self.small.bound_bytes or not self.small.goes_on(tree.topic)

    def _is_below(self, tree: Tree) -> bool:
        return any(node in tree.leases.children for node in self.below.get(tree.topic, ()))

    def child_says(self, tree: Tree, node: bytes, *, used_up: bool) -> bool:
        """Note whether a child reports that the topic's share is used up. Return whether that is news."""
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
        """Return whether to report to the parent that the share is used up."""
        used_up = self.is_used_up(tree)
        if used_up:
            self.told[tree.topic] = None
        elif self.told:
            self.told.pop(tree.topic, None)
        return used_up

    def recheck(self) -> None:
        """Report topics that have room again to parents, after the buffers have shrunk."""
        for tree in [self.trees[topic] for topic in self.told if topic in self.trees]:
            if not self.is_used_up(tree):
                self.schedule.touch(tree)

    def housekeep(self) -> None:
        """Forget topics that this peer has left, and children that moved."""
        self.told = {topic: None for topic in self.told if topic in self.trees}
        self.below = {topic: here for topic in self.below if (here := self._still_children(topic))}
        self.recheck()

    def _still_children(self, topic: bytes) -> dict[bytes, None]:
        tree = self.trees.get(topic)
        return {node: None for node in self.below[topic] if tree is not None and node in tree.leases.children}
