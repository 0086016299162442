"""Repair of the trees: fallbacks known beforehand, one message per lost link (docs/design.md, section 4)."""

from collections.abc import Iterable
from typing import Protocol

from quillcast.core.dispatch import Dispatch
from quillcast.core.errors import LocalError
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.security.access import AccessDenied, key_of
from quillcast.protocol.topics.descriptor import unknown_topic
from quillcast.protocol.topics.membership.joins import Joins
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.membership.subscribing import subscribed
from quillcast.protocol.topics.messages import Join, Orphaned, Refused, Rejoin
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.state.effects import FarewellRefused, NeighbourLost, WarrantRefused
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees


class RepairOverlay(Protocol):
    """What tree repair needs from the overlay, and from this peer's scope in it; `Pastry` is one."""

    @property
    def active(self) -> bool:
        """Whether this peer has joined, so that it can route."""
        ...

    def is_closest(self, key: bytes) -> bool:
        """Whether this peer is the closest to the key, as far as it knows."""
        ...

    def takes(self, topic: bytes, root_scope: str) -> bool:
        """Whether this peer can take part in a topic rooted at this scope, or at the overlay if that is empty."""
        ...

    def heir(self, lost: bytes) -> Contact | None:
        """Return the peer that takes over from a lost entry point of this peer's scope. None: it was not one."""
        ...


class TreeRepair:
    """What a peer does when a parent is lost, refuses it or sends it away, and for peers that then turn to it."""

    __slots__ = ("dispatch", "host", "joins", "membership", "neighbours", "overlay", "placement", "trees")

    def __init__(
        self, host: Host, overlay: RepairOverlay, neighbours: Neighbours, trees: Trees, placement: Placement,
        joins: Joins, membership: TreeMembership, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.overlay, self.neighbours, self.trees = host, overlay, neighbours, trees
        self.placement, self.joins = placement, joins
        self.membership, self.dispatch = membership, dispatch
        dispatch.on_message(Refused, self._refused)
        dispatch.on_message(Rejoin, self._rejoin)
        dispatch.on_message(Orphaned, self._orphaned)

    def lost(self, contact: Contact) -> None:
        """Replace a lost parent: `Neighbours` noticed the death, and `LinkUpcalls.lost` calls this.

        One lost neighbour means that all tree links to it are lost. The usual way is to turn to a fallback.
        """
        node = contact.node_id
        linked = self.trees.linked(node)
        orphaned = [tree for tree in linked if tree.parent is not None and tree.parent.node_id == node]
        self.dispatch.order(NeighbourLost(node))
        groups: dict[Contact, list[Tree]] = {}
        inherited: dict[Contact, list[Tree]] = {}
        first_heir = self.overlay.heir(node)
        for tree in orphaned:
            self.membership.detach(tree, "lost")
            fallback = self._fallback(tree, node)
            self.membership.leave_if_idle(tree)
            if not tree.needed:
                continue
            if fallback is None or (self.overlay.active and self.overlay.is_closest(tree.topic)):
                self.membership.join(tree, fault=True)
            elif (heir := self._heir(tree, node, first_heir)) is None:
                groups.setdefault(fallback, []).append(tree)
            else:
                inherited.setdefault(heir, []).append(tree)
        for fallback, trees in groups.items():
            self._turn_to(fallback, trees, node)
        for heir, trees in inherited.items():
            self._gather(trees, heir)

    def _heir(self, tree: Tree, lost: bytes, heir: Contact | None) -> Contact | None:
        """Return the successor of a scope's lost entry point, unless that is here or below.

        It is the entry point of this topic, if that was another than the lost peer.
        """
        if heir is None:
            return None
        entry = self.placement.entry_points.get(tree.topic)
        if entry is not None and entry.node_id != lost and not self.neighbours.suspected(entry.node_id):
            heir = entry
        return heir if heir.node_id != self.host.me and heir.node_id not in tree.leases.children else None

    def _fallback(self, tree: Tree, lost: bytes) -> Contact | None:
        for contact in tree.fallbacks:
            if (
                contact.node_id != lost
                and not self.neighbours.suspected(contact.node_id)
                and (contact.node_id not in tree.leases.children)
            ):
                return contact
        return None

    def _turn_to(self, fallback: Contact, trees: list[Tree], lost: bytes) -> None:
        """Ask a fallback to take this peer in, in one message for all trees."""
        if fallback.node_id == self.host.me:  # this peer was named as the next root
            for tree in trees:
                self.membership.join(tree, fault=True)
            return
        self.host.trace(Mark("fallback_parent"))
        for tree in trees:
            tree.lose(lost)
        self.membership.join_directly(trees, fallback, lost)

    def _gather(self, trees: list[Tree], heir: Contact) -> None:
        """A scope's entry point is lost: turn to the peer that replaces it, so that one edge leads out of the scope.

        The other fallbacks remain in case the new entry point is below this peer.
        """
        self.host.trace(Mark("entry_point_succeeded"))
        others = [tree.fallbacks for tree in trees]
        self.membership.join_directly(trees, heir, lost=b"", whole=True)  # it may not know the topic
        for tree, fallbacks in zip(trees, others, strict=True):
            tree.may_turn_to((heir, *(each for each in fallbacks if each.node_id != heir.node_id)))

    def _rejoin(self, sender: Contact, message: Rejoin) -> None:
        """Adopt orphans. Those that lost the same parent do not wait for each other.

        Each peer joins for itself: with a Join in its name, another peer could change what a child must receive.
        """
        for join in message.joins if message.child.node_id == sender.node_id else ():
            if join.child.node_id != sender.node_id:
                continue
            tree = self.trees.by_topic.get(join.topic)
            fellow = tree is not None and not tree.attached and tree.lost_parent == message.lost != b""
            if self.trees.leaving or fellow or not self._can_serve(join):
                self.host.send(message.child, Refused(join.topic, "orphan"))
                continue
            if tree is None or not tree.attached:
                self._adopt_orphan(join)
            else:
                self.joins.adopt(join, direct=True)

    def _can_serve(self, join: Join) -> bool:
        """Whether this peer is below the topic's root scope. The next entry point of another scope may not be."""
        return join.descriptor is None or self.overlay.takes(join.topic, join.descriptor.settings.root_scope)

    def _adopt_orphan(self, join: Join) -> None:
        """Adopt an orphan, or become root for it: the next root may be asked before it knows that it is root."""
        if self.overlay.active and self.overlay.is_closest(join.topic):
            self.dispatch.routed(join)
        else:
            self.joins.adopt(join)

    def _refused(self, sender: Contact, message: Refused) -> None:
        tree = self.trees.by_topic.get(message.topic)
        self.membership.declined(message.topic, sender)
        if tree is None or (tree.attached and (tree.served or message.why != "denied")):
            return
        if self.trees.leaving:
            self.dispatch.order(FarewellRefused(tree.topic, sender))
            return
        match message.why:
            case "full" if message.instead:
                self.membership.turn_to(tree, self._nearest(message.instead))
            case "loop" if tree.fallbacks and tree.fallbacks[0].node_id == sender.node_id:
                other = self._fallback(tree, sender.node_id)
                if other is not None and other.node_id != self.host.me:
                    self.membership.turn_to(tree, other)
                else:
                    self.membership.join_again(tree)
            case "unknown":
                self.membership.fail(tree, unknown_topic(tree.descriptor.name))
            case "denied" if any(key_of(each.wish.warrant) != message.key for each in subscribed(tree)):
                self.dispatch.order(WarrantRefused(tree.topic, message.key, AccessDenied(message.rule)))
                self.membership.join_again(tree)  # on behalf of the others here
            case "denied":
                self.membership.fail(tree, AccessDenied(message.rule))
            case "unusable":
                self.membership.fail(tree, LocalError(message.rule))
            case _:
                self.membership.join_again(tree)

    def _nearest(self, contacts: Iterable[Contact]) -> Contact:
        """Return the nearest by proximity; peers without a measurement come last, in random order."""
        far = float("inf")
        return min(
            (contact for contact in contacts),
            key=lambda contact: (self.host.proximity(contact.node_id) or far, self.host.random.random()),
        )

    def _orphaned(self, sender: Contact, message: Orphaned) -> None:
        trees = []
        for topic in message.topics:
            tree = self.trees.by_topic.get(topic)
            if tree is not None and tree.parent is not None and tree.parent.node_id == sender.node_id:
                self.membership.sent_away(tree)
                trees.append(tree)
        instead = [contact for contact in message.instead if contact.node_id != self.host.me]
        if self.trees.leaving:
            for tree in trees:
                tree.may_turn_to(instead)
                self.membership.leave_if_idle(tree)
        elif instead:
            self.membership.join_directly(trees, instead[0], lost=b"")
        else:
            for tree in trees:
                self.membership.join(tree)
