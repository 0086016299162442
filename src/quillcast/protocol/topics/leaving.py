"""How this peer leaves all trees: in good order, or because its time to leave is over."""

from quillcast.core.dispatch import Dispatch
from quillcast.protocol.topics.known.comparing import Comparing
from quillcast.protocol.topics.known.successors import Successors
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.subscribing import Subscribing
from quillcast.protocol.topics.publishing.own_streams import OwnStreams
from quillcast.protocol.topics.root.offers import Offers
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import LeaveIfIdle, Resign
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees


class LeavingTrees:
    """Ends this peer's part in every tree."""

    __slots__ = (
        "children", "comparing", "dispatch", "offers", "own_streams", "progress", "subscribing", "successors", "trees",
    )  # fmt: skip

    def __init__(
        self, trees: Trees, comparing: Comparing, progress: Progress, subscribing: Subscribing,
        children: ChildrenTables, offers: Offers, successors: Successors, own_streams: OwnStreams, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.trees, self.comparing, self.progress, self.subscribing = trees, comparing, progress, subscribing
        self.children, self.offers, self.successors = children, offers, successors
        self.own_streams, self.dispatch = own_streams, dispatch

    def begin(self) -> None:
        """Begin to leave in good order: transfer leadership where root, and send children to their grandparent."""
        self.trees.leave()
        self.comparing.stop()
        for subscription in list(self.subscribing.all()):
            self.subscribing.unsubscribe(subscription)
        for tree in list(self.trees.by_topic.values()):
            self._end_stream(tree)
            tree.keep_no_longer()
            if tree.root is not None:
                self.dispatch.order(Resign(tree.topic))
            elif tree.moved and not tree.attached:
                tree.stop_joining()
            self.children.dismiss(tree, self.successors.of(tree.topic))
            self.dispatch.order(LeaveIfIdle(tree.topic))
        self.offers.leave()

    def end(self) -> None:
        """Leave the remaining trees when the time to leave is over. Tell parents, even if they lack events kept here.

        Name the children that have not found other parents yet.
        """
        for tree in list(self.trees.by_topic.values()):
            tree.stop_joining()
            tree.keep_no_longer()
            for node in list(tree.leases.children):
                self.children.remove(tree, node, "moved", lease=True)
            self.dispatch.order(LeaveIfIdle(tree.topic, anyway=True))

    def _end_stream(self, tree: Tree) -> None:
        """End this peer's stream, as it publishes no more, and tell its neighbours where."""
        self.own_streams.close(tree)
        if tree.sources.mine:
            self.progress.hurry(tree)
