"""Applies the forwarding policy to this peer's place in each topic."""

from collections.abc import Collection, Container, Mapping
from typing import NamedTuple

from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ordered import NO_ORDERS, Ordered
from quillcast.protocol.forwarding.policy import ForwardingPolicy, Place
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.policy.channels import install
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.tree import Tree


class Stand(NamedTuple):
    """A peer's part in the recovery domains of a topic, which are numbered outwards from its own scope's, from 0."""

    domains: int
    """The number of domains with an agent here: its scope's, and outer ones where it is the head of the inner one."""
    upstream: int
    """The domain that contains the peer upstream. Equal to `domains`: none does."""


IN_ONE = Stand(1, 0)


class Placement:
    """Asks the forwarding policy, and installs the channels that it wants."""

    __slots__ = (
        "entered", "entry_points", "expected", "fellows", "me", "members", "ordered", "policy", "ring", "stands",
    )  # fmt: skip

    def __init__(self, me: bytes, ring: Overlay, policy: ForwardingPolicy) -> None:
        self.me, self.ring, self.policy = me, ring, policy
        self.ordered: Mapping[bytes, Ordered] = EMPTY  # by topic: the channels that managers of scopes order
        self.expected: Mapping[bytes, Collection[Contact]] = EMPTY  # by topic: peers that are to become children here
        self.members: Mapping[bytes, Mapping[Contact, int]] = EMPTY
        """By topic: the peers that these and the tree's links lead to, and the recovery domain shared with each."""
        self.fellows: Mapping[bytes, Collection[bytes]] = EMPTY  # by topic: all others in this peer's domain, if known
        self.stands: Mapping[bytes, Stand] = EMPTY  # by topic where this peer is the head of its scope in another
        self.entry_points: Mapping[bytes, Contact] = EMPTY  # by topic: the scope's, if Joins reach another member first
        self.entered: Collection[bytes] = ()  # topics in which this peer is the entry point of its scope

    def order(
        self, channels: Mapping[bytes, Ordered], members: Mapping[bytes, Mapping[Contact, int]],
        entry_points: Mapping[bytes, Contact],
    ) -> None:  # fmt: skip
        """Set what the managers of scopes order now (see the attributes)."""
        self.ordered, self.members, self.entry_points = channels, members, entry_points

    def expect(self, children: Mapping[bytes, Collection[Contact]]) -> None:
        """Set, by topic, the peers that are to become children here."""
        self.expected = children

    def stand(self, stands: Mapping[bytes, Stand]) -> None:
        """Set the topics for which this peer is the head of its scope in another."""
        self.stands = stands

    def know(self, fellows: Mapping[bytes, Collection[bytes]]) -> None:
        """Set, by topic, all others in this peer's domain."""
        self.fellows = fellows

    def enter(self, topics: Collection[bytes]) -> Collection[bytes]:
        """Set the topics for which this peer is the entry point of its scope. Return the former ones."""
        former, self.entered = self.entered, topics
        return former

    def intercepts(self, tree: Tree | None) -> bool:
        """Whether a Join routed to the root ends at this peer."""
        return self.policy.intercepts(None if tree is None else self._place(tree, _members(tree)))

    def refer(self, tree: Tree, newcomer: Contact, unresponsive: Container[bytes] = ()) -> tuple[Contact, ...]:
        """Return the peers that a newcomer can join instead of this one, if any. They may get the topic's events."""
        instead = self.policy.refer(self._place(tree, _members(tree)), newcomer, unresponsive)
        if not is_restricted(tree.descriptor.access, "subscribe"):
            return instead
        return tuple([contact for contact in instead if _may_forward(tree, contact)])

    def has_room(self, tree: Tree, newcomer: Contact) -> bool:
        """Whether there is room for a newcomer that need not come, besides all peers that are to become children."""
        below = tuple(dict.fromkeys((*_members(tree), *self.expected.get(tree.topic, ()))))
        return not self.policy.refer(self._place(tree, below), newcomer)

    def only_forwards(self, tree: Tree) -> bool:
        """Whether this peer is in the tree only for its children, and in no scope that takes part."""
        return tree.root is None and not (tree.subscriptions or tree.sources.mine or tree.topic in self.members)

    def entry_instead(self, tree: Tree | None, join: Join) -> Contact | None:
        """Return the entry point of this peer's scope that is to accept a newcomer if this peer is not in the tree."""
        entry = self.entry_points.get(join.topic)
        if entry is None or (tree is not None and (tree.attached or tree.leases.children)):
            return None
        return entry if entry.node_id not in (self.me, join.child.node_id, *join.unresponsive) else None

    def stand_ins(self, tree: Tree) -> tuple[Contact, ...]:
        """Return the fallbacks that this peer names to its children."""
        return self.policy.stand_ins(self._place(tree, _children(tree)))

    def install(self, tree: Tree) -> None:
        """Open and close channels as the policy wants. Other channels are unchanged."""
        ordered = self.ordered.get(tree.topic, NO_ORDERS) if may_have_others(tree.descriptor) else NO_ORDERS
        install(tree, self.policy.channels(self._place(tree, _receivers(tree))), ordered)

    def leading_to(self, node: bytes) -> list[bytes]:
        """Return the topics in which a scope's manager ordered a channel to a peer."""
        return [topic for topic, ordered in self.ordered.items() if node in ordered.ways]

    def _place(self, tree: Tree, below: tuple[Contact, ...]) -> Place:
        topic, above = tree.flow.topic, tree.parent
        if tree.root is not None:
            for each in self.ring.closest(topic, 2):
                if each.node_id != self.me:
                    above = each
                    break
        return Place(topic, above, below)


def _may_forward(tree: Tree, contact: Contact) -> bool:
    """Whether a child may have the topic's events. A child that only publishes need not be on the list."""
    child = tree.leases.children.get(contact.node_id)
    return child is None or not (child.barred or child.sends_only)


def may_have_others(descriptor: Descriptor) -> bool:
    """Whether channels may bypass the tree. Only peers that asked for a topic's events have shown a right to them."""
    return not is_restricted(descriptor.access, "subscribe")


def _children(tree: Tree) -> tuple[Contact, ...]:
    return tuple([child.contact for child in tree.leases.children.values()])


def _receivers(tree: Tree) -> tuple[Contact, ...]:
    return tuple([child.contact for child in tree.leases.children.values() if not child.sends_only])


def _members(tree: Tree) -> tuple[Contact, ...]:
    waiting = [each.join.child for node, each in tree.waiting.items() if node not in tree.leases.children]
    return (*_children(tree), *waiting)
