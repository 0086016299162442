"""The way of a bundle that comes down a tree, past the topic's own handler and into the forwarding table."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import REPAIR
from quillcast.core.host import Host
from quillcast.core.trace import Repaired
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.state.effects import CarryOut, GapNoticed
from quillcast.protocol.topics.state.progress import Progress
from quillcast.protocol.topics.state.tree import Tree


class Handlers(Protocol):
    """The paper's upcalls, for guarantees built on top of a topic (Scribe, section 3.2)."""

    def forward_handler(self, bundle: Bundle, *, is_root: bool) -> Bundle | None:
        """Before a bundle goes to the children: return it, changed or not, or None to stop it."""
        ...

    def subscribe_handler(self, join: Join) -> Iterable[Bundle]:
        """A new child was added to the children table; what is returned is sent to it alone."""
        ...

    def fault_handler(self, join: Join) -> Join:
        """The parent is suspected; return the join that repairs the tree, with a note added to it or not."""
        ...


class Movement:
    """Hands bundles on, and notes what that changes in their trees."""

    def __init__(
        self, host: Host, table: ForwardingTable[Tree], handlers: Mapping[bytes, Handlers], progress: Progress,
        carry_out: CarryOut,
    ) -> None:  # fmt: skip
        self.host, self.table, self.handlers, self.progress = host, table, handlers, progress
        self.carry_out = carry_out

    def move(self, tree: Tree, bundle: Bundle) -> bool:
        """Hand a bundle to the forwarding table, past the topic's forward handler where there is one. Was it new?"""
        handlers = self.handlers.get(tree.topic)
        if handlers is not None:
            changed = handlers.forward_handler(bundle, is_root=tree.root is not None)
            if changed is None:
                return False
            bundle = changed
        is_new = self.table.move(bundle)
        if is_new:
            if bundle.envelope.term != tree.term:
                _deliver_past(tree, bundle)
            elif len(tree.seen.starts) > 1:
                self.carry_out(GapNoticed(tree.topic))
            if bundle.envelope.kind is REPAIR:
                self.host.trace(Repaired(tree.topic, "neighbour", bundle.count))
            self.progress.moved(tree, bundle.size)
        return is_new


def _deliver_past(tree: Tree, bundle: Bundle) -> None:
    """A repair of a past term goes to the local subscribers; neighbours that lack it will ask."""
    for edge in tree.edges.values():
        edge.take(bundle)
