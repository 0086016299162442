"""Whom a child may turn to if its parent dies (docs/design.md, section 4)."""

from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact
from quillcast.protocol.topics.state.ring import Ring
from quillcast.protocol.topics.state.tree import Tree


class Fallbacks:
    """The peers that this one names to its children."""

    def __init__(self, me: bytes, ring: Ring, count: int) -> None:
        self.me, self.ring, self.count = me, ring, count

    def of(self, tree: Tree) -> tuple[Contact, ...]:
        """The grandparent, or at the root the peer that would be root next; then siblings with room."""
        if tree.root is not None:
            closest = self.ring.closest(tree.topic, 2)
            known = [contact for contact in closest if contact.node_id != self.me][:1]
        else:
            known = [tree.parent] if tree.parent is not None else []
        siblings = [child.contact for child in tree.children.values() if child.contact not in known]
        # Nearest to the topic first: so a root's topics name the same ones, whoever joined first, and reports are
        # alike.
        siblings.sort(key=lambda sibling: ring_distance(sibling.node_id, tree.topic))
        return tuple([*known, *siblings][: self.count])
