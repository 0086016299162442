"""What the forwarding policy makes of this peer's place in each topic."""

from collections.abc import Collection, Container, Mapping
from typing import NamedTuple

from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.ordered import NOTHING_ORDERED, Ordered
from quillcast.protocol.forwarding.policy import ForwardingPolicy, Place
from quillcast.protocol.security.access import is_restricted
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.state.channels import install
from quillcast.protocol.topics.state.overlay import Overlay
from quillcast.protocol.topics.state.tree import Tree


class Stand(NamedTuple):
    """How a peer stands in the recovery domains of a topic, which are counted from its own scope's outwards, from 0."""

    domains: int
    """In how many it has an agent: its own scope's, and those around in which it is the head of the one within."""
    upstream: int
    """In which of them the peer upstream is; as many as there are: in none."""


IN_ONE = Stand(1, 0)


class Placement:
    """Asks the policy, and installs the channels that it wants."""

    def __init__(self, me: bytes, ring: Overlay, policy: ForwardingPolicy) -> None:
        self.me, self.ring, self.policy = me, ring, policy
        self.ordered: Mapping[bytes, Ordered] = {}  # by topic: the channels that managers of scopes order
        self.expected: Mapping[bytes, Collection[Contact]] = {}  # by topic: those that are to be children here
        self.members: Mapping[bytes, Mapping[Contact, int]] = {}
        """By topic: to whom these and the tree's links lead, and in which recovery domain they are with this peer."""
        self.fellows: Mapping[bytes, Collection[bytes]] = {}  # by topic: all others in this peer's domain, if it knows
        self.stands: Mapping[bytes, Stand] = {}  # by topic in which this peer is the head of its scope within another
        self.entry_points: Mapping[bytes, Contact] = {}  # by topic: the scope's, where Joins reach another member first
        self.entered: Collection[bytes] = ()  # topics in which this peer is the entry point of its scope

    def order(
        self, channels: Mapping[bytes, Ordered], members: Mapping[bytes, Mapping[Contact, int]],
        entry_points: Mapping[bytes, Contact],
    ) -> None:  # fmt: skip
        """This is what the managers of scopes order by now (see the attributes)."""
        self.ordered, self.members, self.entry_points = channels, members, entry_points

    def expect(self, children: Mapping[bytes, Collection[Contact]]) -> None:
        """By topic: these are to be children here, and are not yet."""
        self.expected = children

    def stand(self, stands: Mapping[bytes, Stand]) -> None:
        """By topic: this peer is the head of its scope within another."""
        self.stands = stands

    def know(self, fellows: Mapping[bytes, Collection[bytes]]) -> None:
        """By topic: these are all others in this peer's domain."""
        self.fellows = fellows

    def enter(self, topics: Collection[bytes]) -> Collection[bytes]:
        """This peer is the entry point of its scope in these topics. Returns those in which it was."""
        former, self.entered = self.entered, topics
        return former

    def intercepts(self, tree: Tree | None) -> bool:
        """Does a Join on its way to the root end at this peer?"""
        return self.policy.intercepts(None if tree is None else self._place(tree, _members(tree)))

    def refer(self, tree: Tree, newcomer: Contact, unresponsive: Container[bytes] = ()) -> tuple[Contact, ...]:
        """The peer that a newcomer is to join instead of this one, if any. It may have the topic's events itself."""
        instead = self.policy.refer(self._place(tree, _members(tree)), newcomer, unresponsive)
        if not is_restricted(tree.descriptor.access, "subscribe"):
            return instead
        return tuple([contact for contact in instead if _may_forward(tree, contact)])

    def has_room(self, tree: Tree, newcomer: Contact) -> bool:
        """Is there room for a newcomer that need not come, next to all those that this peer is to take in?"""
        below = tuple(dict.fromkeys((*_members(tree), *self.expected.get(tree.topic, ()))))
        return not self.policy.refer(self._place(tree, below), newcomer)

    def only_forwards(self, tree: Tree) -> bool:
        """Is this peer in the tree for its children only, and in no scope that takes part?"""
        return tree.root is None and not (tree.subscriptions or tree.sources.mine or tree.topic in self.members)

    def entry_instead(self, tree: Tree | None, join: Join) -> Contact | None:
        """The entry point of this peer's scope that is to take a newcomer in, as this peer has no place in the tree."""
        entry = self.entry_points.get(join.topic)
        if entry is None or (tree is not None and (tree.attached or tree.leases.children)):
            return None
        return entry if entry.node_id not in (self.me, join.child.node_id, *join.unresponsive) else None

    def stand_ins(self, tree: Tree) -> tuple[Contact, ...]:
        """The peers that this one names to its children, should it be lost."""
        return self.policy.stand_ins(self._place(tree, _children(tree)))

    def install(self, tree: Tree) -> None:
        """Open and close channels, so that those that the policy wants stand. Others are left as they are."""
        ordered = self.ordered.get(tree.topic, NOTHING_ORDERED) if may_have_others(tree.descriptor) else NOTHING_ORDERED
        install(tree, self.policy.channels(self._place(tree, _receivers(tree))), ordered)

    def leading_to(self, node: bytes) -> list[bytes]:
        """The topics in which a scope's manager ordered a channel to a peer."""
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
    """May a child have the topic's events? One that only publishes need not be on the list."""
    child = tree.leases.children.get(contact.node_id)
    return child is None or not (child.barred or child.sends_only)


def may_have_others(descriptor: Descriptor) -> bool:
    """May channels lead past the tree? Only those that asked for the events of a topic have shown a right to them."""
    return not is_restricted(descriptor.access, "subscribe")


def _children(tree: Tree) -> tuple[Contact, ...]:
    return tuple([child.contact for child in tree.leases.children.values()])


def _receivers(tree: Tree) -> tuple[Contact, ...]:
    return tuple([child.contact for child in tree.leases.children.values() if not child.sends_only])


def _members(tree: Tree) -> tuple[Contact, ...]:
    waiting = [each.join.child for node, each in tree.waiting.items() if node not in tree.leases.children]
    return (*_children(tree), *waiting)
