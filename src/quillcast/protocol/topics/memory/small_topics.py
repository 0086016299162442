"""Topics that keep little at a peer: they continue while others fill its buffers (docs/decisions/flow-control.md)."""

from collections.abc import Mapping

from quillcast.core.host import Clock
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.state.tree import Tree

LITTLE_PARTS = 16  # a topic keeps little if it takes at most this part of the budget, and at most a window; a guess


class SmallTopics:
    """The topics that keep little here. Together they may keep no more than one of them may."""

    __slots__ = ("budget", "config", "host", "kept_bytes", "look_again_at", "trees")

    def __init__(self, host: Clock, config: TopicConfig, trees: Mapping[bytes, Tree], budget: Budget) -> None:
        self.host, self.config, self.trees, self.budget = host, config, trees, budget
        self.kept_bytes = 0  # together at the last look, plus what came since
        self.look_again_at = 0.0

    @property
    def bound_bytes(self) -> int:
        """The bound up to which a topic keeps little."""
        return min(self.config.window_bytes, self.budget.limit_bytes // LITTLE_PARTS)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again at what they keep."""
        return self.host.now() >= self.look_again_at

    def look(self) -> None:
        """Look at what they keep."""
        self.look_again_at = self.host.now() + self.config.report_s
        kept, bound_bytes = (tree.flow.log.size_bytes for tree in self.trees.values()), self.bound_bytes
        self.kept_bytes = sum(size_bytes for size_bytes in kept if size_bytes <= bound_bytes)

    def keep(self, size_bytes: int) -> None:
        """Count bytes that came since the last look."""
        self.kept_bytes += size_bytes

    def goes_on(self, topic: bytes) -> bool:
        """Whether a topic keeps little, and so do all such topics together."""
        tree, bound_bytes = self.trees.get(topic), self.bound_bytes
        return (tree is None or tree.flow.log.size_bytes <= bound_bytes) and self.kept_bytes <= bound_bytes
