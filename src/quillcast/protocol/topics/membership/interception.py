"""Which Joins end here on their path to the root (Scribe, section 3.1: `forward`)."""

from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.topics.known.forgetting import Forgetting
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.trees import Trees


class Interception:
    """Adopts children whose Joins pass by, or sends them to the entry point of their part of the tree."""

    __slots__ = ("forgetting", "joins", "neighbours", "placement", "trees")

    def __init__(
        self, trees: Trees, placement: Placement, neighbours: Neighbours, forgetting: Forgetting, joins: Joins
    ) -> None:
        self.trees, self.placement, self.neighbours = trees, placement, neighbours
        self.forgetting, self.joins = forgetting, joins

    def take(self, join: Join) -> bool:
        """Adopt the child if this peer may be its parent. False: forward the Join."""
        if self.trees.leaving or not self._may_take(join):
            return False
        entry = self.placement.entry_instead(self.trees.by_topic.get(join.topic), join)
        if entry is None or self.neighbours.suspected(entry.node_id) or not self.joins.send_on(join, entry):
            self.joins.adopt(join)
        return True

    def _may_take(self, join: Join) -> bool:
        tree = self.trees.by_topic.get(join.topic)
        if tree is not None and tree.is_below(join.child.node_id):
            return False  # a descendant of the child cannot be its parent
        if not self.placement.intercepts(tree) or not self.forgetting.has_room(join.topic):
            return False
        if tree is None or not (tree.attached and tree.served):
            # a child that only sends needs a peer of the tree, and no peer joins for it; and if a list may limit who
            # subscribes, only subscribers forward to others
            return not join.sends_only and join.warrant is None
        return join.warrant is None or not tree.barred
