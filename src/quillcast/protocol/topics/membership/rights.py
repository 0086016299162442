"""What a peer does when a topic's access list changes with a session (docs/sessions.md).

A peer that learns the list ends its own subscriptions that the list does not allow, and stops sending to children that
it does not allow, both before any event of the session can arrive. These peers learn the list too, from their parents.
Such a peer sends its other children away, which join without it. It leaves the tree when those that are not allowed
either have left: so no lease of a peer without a right continues. A root stays root.
"""

from collections.abc import Mapping

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.protocol.topics.membership.children import ChildrenTables
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.stream_reports import StreamReporting
from quillcast.protocol.topics.membership.subscribing import ListChanged, Subscribing, denied, shown_warrant
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams


class Rights:
    """A peer's part in a change of who may subscribe and publish."""

    def __init__(
        self, host: Host, trees: Mapping[bytes, Tree], source_streams: SourceStreams, children: ChildrenTables,
        membership: TreeMembership, subscribing: Subscribing, stream_reporting: StreamReporting, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.trees, self.source_streams = host, trees, source_streams
        self.children, self.membership = children, membership
        self.subscribing, self.stream_reporting = subscribing, stream_reporting
        dispatch.on_timer(ListChanged, self._changed)

    def learned(self, tree: Tree, *, first: bool) -> None:
        """Apply a new list. `first`: everybody could subscribe before, and nobody had to show a right."""
        revoked = self.subscribing.revoke(tree) or self._is_revoked(tree) or (first and not self._has_shown(tree))
        self.children.bar(tree)
        self.source_streams.list_learned(tree)
        self.host.set_timer(ListChanged(tree.topic, revoked), 0.0)  # not now: the caller may still use the tree

    def _is_revoked(self, tree: Tree) -> bool:
        """Whether the right that this peer showed its parent was revoked. Other subscribers here may still have one."""
        shown = self.membership.shown.get(tree.topic)
        return shown is not None and denied(tree.descriptor, self.host.me, shown) is not None

    def _has_shown(self, tree: Tree) -> bool:
        """Whether the parent knows on whose behalf this peer subscribes. Not if it joined before that was required."""
        return self.membership.shown.get(tree.topic) == shown_warrant(tree, self.host.me)

    def _changed(self, timer: ListChanged) -> None:
        tree = self.trees.get(timer.topic)
        if tree is None:
            return
        for neighbour in tree.neighbours():  # it may have reported sources that might not publish before
            self.stream_reporting.take_up(tree, neighbour)
        if tree.root is not None or tree.parent is None:
            return
        tree.note_denied(denied=denied(tree.descriptor, self.host.me, shown_warrant(tree, self.host.me)) is not None)
        if tree.barred:
            self.children.send_allowed_away(tree, tree.parent)
            self.membership.leave_if_idle(tree)
        elif timer.revoked and tree.receives:
            self._show_other_right(tree)
        elif timer.revoked:
            self.membership.leave_if_idle(tree, anyway=True)

    def _show_other_right(self, tree: Tree) -> None:
        """Join again: the parent knows this peer by a right that is gone, and others here have one."""
        self.membership.drop_parent(tree, "refused")
        self.membership.join(tree)
