"""Repair of the trees: fallbacks known beforehand, one message per lost link (docs/design.md, section 4)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quillcast.core.interning import interned
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.messages import Join, Orphaned, Refused, Rejoin
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class TreeRepair:
    """What a peer does when a parent is lost, refuses it or sends it away, and for those who turn to it then."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        scribe.dispatch.on_message(Refused, self._refused)
        scribe.dispatch.on_message(Rejoin, self._rejoin)
        scribe.dispatch.on_message(Orphaned, self._orphaned)

    def lost(self, contact: Contact) -> None:
        """Upcall of the failure detector: one neighbour lost means every tree link to it."""
        node = contact.node_id
        linked = self.scribe.linked(node)
        orphaned = [tree for tree in linked if tree.parent is not None and tree.parent.node_id == node]
        for tree in [tree for tree in linked if node in tree.children]:
            self.scribe.children.remove(tree, node, "lost", lease=True)
        self.scribe.streams.forget(node)
        self.scribe.publishing.lost(node)
        groups: dict[Contact, list[Tree]] = {}
        for tree in orphaned:
            self.scribe.membership.detach(tree, "lost")
            fallback = self._fallback(tree, node)
            if not tree.needed:
                self.scribe.membership.close(tree)
            elif fallback is None or (self.overlay.active and self.overlay.is_closest(tree.topic)):
                self.scribe.membership.join(tree, fault=True)
            else:
                groups.setdefault(fallback, []).append(tree)
        for fallback, trees in groups.items():
            self._turn_to(fallback, trees, node)

    def died(self, contact: Contact) -> None:
        """A peer has ended, and its leases with it, but not those of peers below it: they join elsewhere."""
        node, children = contact.node_id, self.scribe.children
        for tree in [tree for tree in self.scribe.linked(node) if node in tree.children]:
            if self.scribe.reporting.is_leaf(tree, contact):
                children.remove(tree, node, "died", lease=False)
        for tree in self.scribe.trees.values():
            lease = tree.orphaned_leases.get(node) if tree.orphaned_leases else None
            if lease is not None and lease.leaf:
                tree.heard_from((node,))
                self.scribe.reporting.touch(tree)

    def _fallback(self, tree: Tree, lost: bytes) -> Contact | None:
        for contact in tree.fallbacks:
            if (
                contact.node_id != lost
                and not self.scribe.neighbours.suspected(contact.node_id)
                and (contact.node_id not in tree.children)
            ):
                return contact
        return None

    def _turn_to(self, fallback: Contact, trees: list[Tree], lost: bytes) -> None:
        if fallback.node_id == self.host.me:  # this peer was named as the next root
            for tree in trees:
                self.scribe.membership.join(tree, fault=True)
            return
        self.host.trace(Mark("fallback_parent"))
        for tree in trees:
            tree.lost_parent = lost
        self._join_directly(trees, fallback, lost)

    def _join_directly(self, trees: list[Tree], to: Contact, lost: bytes) -> None:
        """One message to a parent known beforehand, naming all these topics."""
        joins = []
        for tree in trees:
            tree.joining, tree.fallbacks = True, interned((to,))
            joins.append(self.scribe.membership.join_message(tree, fault=bool(lost), whole=False))
            self.scribe.membership.expect_parent(tree, self.config.join_timeout_s)
        self.host.send(to, Rejoin(self.host.contact, lost, joins))

    def _rejoin(self, sender: Contact, message: Rejoin) -> None:
        """Orphans of a common loss wait for nobody who waits as they do; all others are taken in."""
        for join in message.joins:
            tree = self.scribe.trees.get(join.topic)
            fellow = tree is not None and not tree.attached and tree.lost_parent == message.lost != b""
            if self.scribe.leaving or fellow:
                self.host.send(message.child, Refused(join.topic, "orphan"))
                continue
            if tree is None or not tree.attached:
                self._adopt_orphan(join)
            else:
                self.scribe.children.adopt(join)

    def _adopt_orphan(self, join: Join) -> None:
        """The next root is asked before it knows that it is root."""
        if self.overlay.active and self.overlay.is_closest(join.topic):
            self.scribe.rendezvous.join(join)
        else:
            self.scribe.children.adopt(join)

    def _refused(self, sender: Contact, message: Refused) -> None:
        tree = self.scribe.trees.get(message.topic)
        if tree is None or tree.attached:
            return
        match message.why:
            case "full" if message.instead:
                self._join_directly([tree], self._nearest(message.instead), lost=b"")
            case "unknown":
                self.scribe.membership.fail(tree, self.scribe.rendezvous.unknown(tree.descriptor.name))
            case "denied":
                self.scribe.membership.fail(tree, AccessDenied(message.rule))
            case _:
                self.scribe.membership.join(tree)

    def _nearest(self, contacts: Iterable[Contact]) -> Contact:
        """The nearest by proximity; whoever is not measured yet comes last, spread by chance."""
        far = float("inf")
        return min(
            (contact for contact in contacts),
            key=lambda contact: (self.host.proximity(contact.node_id) or far, self.host.random.random()),
        )

    def follow(self, tree: Tree, root: Contact) -> None:
        """Become a child of the peer that this one handed its topic over to."""
        tree.moved = True
        self._join_directly([tree], root, lost=b"")

    def _orphaned(self, sender: Contact, message: Orphaned) -> None:
        trees = []
        for topic in message.topics:
            tree = self.scribe.trees.get(topic)
            if tree is not None and tree.parent is not None and tree.parent.node_id == sender.node_id:
                self.scribe.membership.detach(tree, "refused")
                tree.moved = True
                trees.append(tree)
        instead = [contact for contact in message.instead if contact.node_id != self.host.me]
        if instead:
            self._join_directly(trees, instead[0], lost=b"")
        else:
            for tree in trees:
                self.scribe.membership.join(tree)
