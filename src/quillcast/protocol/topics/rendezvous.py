"""The rendezvous point: how a peer becomes, is and ceases to be a topic's root (DELIVERY.md, *Roots that move*).

Safety rests on terms. A new root never relies on what an earlier one admitted: publishers send again what is not
stable, and subscribers tell by sequence what they had. So that nothing is called stable behind the back of orphans
on their way, a root that took over holds stability for as long as their leases last; one that was handed the topic,
until those whom the root before names have come (docs/decisions/hand-over.md).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.errors import UnknownTopic
from quillcast.core.host import Timer
from quillcast.core.messages import Contact
from quillcast.core.trace import BecameRoot, Dropped, Mark
from quillcast.protocol.security.access import bearer
from quillcast.protocol.topics import changes
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.messages import (
    Create,
    Created,
    Denied,
    FindRoot,
    Join,
    NotRoot,
    Receipts,
    Refused,
    RootIs,
)
from quillcast.protocol.topics.root import Root
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe

FRONTIERS_MAX = 4096  # publishers that a hand-over tells of, the latest; a guess: 100 kB. Others' events come again


class Seal(Timer, frozen=True):
    """What publishers sent since the last one goes down the tree as one bundle."""

    topic: bytes


class Acknowledge(Timer, frozen=True):
    """What was sealed is on its way: publishers get their receipts, and those who sent it their credit."""

    topic: bytes


class CreateLater(Timer, frozen=True):
    """Enter the topic now, unless it was handed over meanwhile."""

    message: Create


class Rendezvous:
    """A peer's part as root of some topics."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        self.leaf_set_changed_at = self.host.now()
        self.lost_at = float("-inf")
        self.bearers: dict[bytes, dict[bytes, dict[str, None]]] = {}  # by topic and peer, on whose behalf it publishes
        self.unsealed: dict[bytes, list[tuple[bytes, int]]] = {}  # credit to give back once it is sent, by topic

    # ---- becoming root

    def known(self, topic: bytes, offered: Descriptor | None) -> Descriptor | None:
        """The topic's descriptor: what is known here, or what is offered where first use creates a topic."""
        descriptor = self.scribe.descriptors.get(topic)
        if offered is not None and (descriptor is not None or self.config.auto_create or offered.version > 0):
            self.scribe.learn(offered)
        descriptor = self.scribe.descriptors.get(topic)
        if descriptor is not None and descriptor.version == 0 and not self.config.auto_create:
            return None  # somebody here asked for it in vain
        return descriptor

    def unknown(self, name: str) -> UnknownTopic:
        """The error for a topic that nobody created in a network that does not create on first use."""
        return UnknownTopic(f"there is no topic {name!r}, and this network creates none on first use; run: "
                            f"quillcast topic create {name}")  # fmt: skip

    def become(self, tree: Tree, how: str) -> None:
        """Begin a reign, under a term above all that was heard of."""
        scribe, topic = self.scribe, tree.topic
        offer = scribe.handing_over.offers.pop(topic, None)
        heard = max(tree.heard, tree.term, scribe.replication.terms.get(topic, NO_TERM))
        if offer is not None and offer.term == heard:
            how = "handed_over"
        else:
            offer = None  # there was another reign since
        if how == "created" and not self.config.auto_create and tree.descriptor.version == 0:
            scribe.joining.fail(tree, self.unknown(tree.descriptor.name))
            return
        if how == "created" and heard != NO_TERM:
            how = "took_over"
        scribe.joining.drop_parent(tree, "closer_root")
        term = Term(heard.counter + 1, self.host.me[:8] + self.host.incarnation)
        tree.root = Root(self.host, self.config, tree.descriptor, term, self._hold(how))
        if offer is not None:
            scribe.handing_over.take_over(tree, tree.root, offer)
        tree.path = ()
        self.host.trace(BecameRoot(topic, term, how))
        scribe.reigns.enter(tree, term, 0)
        scribe.handing_over.moved_to.pop(topic, None)
        scribe.replication.replicate([tree])
        scribe.joining.settled(tree)
        scribe.publishing.root_here(tree)

    def _hold(self, how: str) -> float:
        """Until when nothing is called stable: orphans of an earlier root may be on their way.

        Whom this peer lost within a lease's time may have had part in a topic that it believes to be new.
        """
        if how == "created":
            settled = self.leaf_set_changed_at + self.config.settle_s if self._has_company() else 0.0
            return max(settled, self.lost_at + self.config.lease_s)
        return self.host.now() + self.config.lease_s

    def lost(self) -> None:
        """Upcall of the failure detector: somebody is out of reach."""
        self.lost_at = self.host.now()

    def _has_company(self) -> bool:
        return len(self.overlay.closest(self.host.me, 2)) > 1

    def hold(self, tree: Tree, now: float) -> None:
        """This process stood still; another may reign by now: call nothing stable for a lease's time."""
        if tree.root is not None:
            self.host.trace(Mark("root_paused"))
            tree.root.hold_until = max(tree.root.hold_until, now + self.config.lease_s)

    def outdone(self, tree: Tree) -> None:
        """A later term exists than this root's: the closest peer begins one later still."""
        if self.overlay.is_closest(tree.topic):
            self.host.trace(Mark("root_outdone"))
            publishers = self.forget_reign(tree)
            self.become(tree, "merged")
            self.tell_publishers(tree, publishers)
        else:
            self.scribe.handing_over.resign(tree)

    def came(self, tree: Tree, nodes: Iterable[bytes]) -> None:
        """These are below this peer. Once all have come that the root before named, its own hold is what remains."""
        root = tree.root
        if root is None or not root.awaited:
            return
        for node in nodes:
            root.awaited.pop(node, None)
        if not root.awaited:
            root.hold_until = root.awaited_until

    def forget_reign(self, tree: Tree) -> dict[Contact, None]:
        """This peer is root no more. Returns those who published to it."""
        root = tree.root
        if root is None:
            return {}
        for bundle in root.seal():
            self.scribe.move(tree, bundle)
        self._acknowledge(tree)
        tree.root = None
        self.scribe.pacing.eased()
        self.scribe.sweeping.wake(tree)
        return {admission.contact: None for admission in root.admissions.values()}

    def tell_publishers(self, tree: Tree, publishers: dict[Contact, None]) -> None:
        """Tell those who published here who is root now, as far as that is known."""
        for contact in publishers:
            if tree.root is not None:
                self.host.send(contact, RootIs(tree.root.term, tree.descriptor))
            else:
                self.host.send(contact, NotRoot(tree.topic, self.scribe.handing_over.moved_to.get(tree.topic)))

    # ---- whoever is closest

    def leaf_set_changed(self) -> None:
        """Topics that another peer is closer to by now are handed over; replicas follow the leaf set."""
        self.leaf_set_changed_at = self.host.now()
        if not self.overlay.active:
            return
        rooted = [tree for tree in self.scribe.trees.values() if tree.root is not None]
        for tree in rooted:
            self.scribe.handing_over.move(tree)
        self.scribe.replication.replicate([tree for tree in rooted if tree.root is not None])
        self.scribe.replication.pass_on()

    # ---- admission

    def up(self, sender: Contact, bundle: Bundle) -> None:
        """A publisher's events: admit them, or say who is root."""
        tree = self.scribe.trees.get(bundle.topic)
        if tree is None or tree.root is None:
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "not_root"))
            self.host.send(sender, NotRoot(bundle.topic, self.scribe.handing_over.moved_to.get(bundle.topic)))
            return
        if tree.descriptor.access and not self._may_publish(tree, sender):
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "denied"))
            self.host.send(sender, Denied(tree.descriptor))
            return
        if tree.root.closing:
            self.host.release(sender.node_id, bundle.size)
            tree.root.turn_away(sender, bundle)
            return
        self.unsealed.setdefault(bundle.topic, []).append((sender.node_id, bundle.size))
        tree.root.admit(sender, bundle)
        self._seal_soon(tree)

    def _may_publish(self, tree: Tree, sender: Contact) -> bool:
        """Has a peer shown, since this one is root, that it acts for somebody who may?"""
        who = self.bearers.get(tree.topic, {}).get(sender.node_id, {})
        return any(tree.descriptor.refusal("publish", one) is None for one in who or {"": None})

    def _note_bearers(self, tree: Tree, message: FindRoot) -> None:
        """On whose behalf a peer publishes, where the topic has a list and they are on it."""
        node = message.publisher.node_id
        for warrant in message.warrants if tree.descriptor.access else ():
            who = bearer(warrant, node, tree.topic)
            if who and tree.descriptor.refusal("publish", who) is None:
                self.bearers.setdefault(tree.topic, {}).setdefault(node, {})[who] = None

    def took_over_from(self, join: Join) -> bool:
        """Is this the root that handed the topic over? It had all there is, and hands its children over one by one."""
        tree = self.scribe.trees.get(join.topic)
        return tree is not None and tree.root is not None and join.child.node_id in tree.root.awaited

    def publish_here(self, tree: Tree, bundle: Bundle) -> None:
        """A publisher of this very peer: no link lies between."""
        if tree.root is None:
            moved_to = self.scribe.handing_over.moved_to.get(bundle.topic)
            self.host.send(self.host.contact, NotRoot(bundle.topic, moved_to))
            return
        if tree.root.closing and not self.scribe.handing_over.closed:  # who leaves has its own admitted to the last
            tree.root.turn_away(self.host.contact, bundle)
            return
        self.unsealed.setdefault(bundle.topic, []).append((self.host.me, bundle.size))
        self.scribe.pacing.taken_here(bundle.topic, bundle.size)
        tree.root.admit(self.host.contact, bundle)
        self._seal_soon(tree)

    def _seal_soon(self, tree: Tree) -> None:
        """All that came in one turn of the host is sealed together: a lone event leaves at once."""
        root = tree.root
        if root is not None and not root.sealing:
            root.sealing = True
            self.scribe.sweeping.wake(tree)
            self.host.set_timer(Seal(tree.topic), 0.0)

    def seal(self, timer: Seal) -> None:
        """The turn in which events were admitted is over."""
        tree = self.scribe.trees.get(timer.topic)
        if tree is not None and tree.root is not None and tree.root.sealing:
            for bundle in tree.root.seal():
                self.scribe.move(tree, bundle)
            self.host.set_timer(Acknowledge(timer.topic), 0.0)

    def acknowledge(self, timer: Acknowledge) -> None:
        """What was sealed is on its way."""
        tree = self.scribe.trees.get(timer.topic)
        if tree is not None and tree.root is not None:
            self._acknowledge(tree)

    def _acknowledge(self, tree: Tree) -> None:
        self.send_receipts(tree)
        for node, size in self.unsealed.pop(tree.topic, ()):
            self.scribe.pacing.sealed(tree, node, size)

    def send_receipts(self, tree: Tree) -> None:
        """Tell publishers what was admitted and what is stable, one message per peer."""
        root = tree.root
        if root is None:
            return
        for contact, marks in root.receipts().items():
            message = Receipts(tree.topic, root.term, marks)
            if contact.node_id == self.host.me:
                self.scribe.publishing.receive(contact, message)
            else:
                self.host.send(contact, message)

    def cover(self, tree: Tree, now: float) -> None:
        """The root's minimum over all leases is the stable position."""
        root = tree.root
        if root is None:
            return
        moved = root.covered(tree.cover(now), now)
        tree.stable = root.stable
        gone_bytes = tree.trim(now) if len(tree.log) else 0
        if gone_bytes:
            self.scribe.pacing.eased()
        if not moved:
            return
        self.send_receipts(tree)
        self.scribe.reports.moved(tree, gone_bytes)
        self.scribe.handing_over.covered(root)

    # ---- joining, creating and finding

    def covered(self, now: float) -> bool:
        """Do all leases cover what this peer admitted as root?"""
        rooted = [tree for tree in self.scribe.trees.values() if tree.root is not None]
        return all(tree.cover(now) >= tree.root.index for tree in rooted if tree.root is not None)

    def create(self, message: Create) -> None:
        """A Create reached the rendezvous point: enter the descriptor, or answer with the one that stands.

        A peer that is new in its neighbourhood waits a moment: the topic may be about to be handed over to it.
        """
        descriptor = message.descriptor
        fresh = self.host.now() - self.leaf_set_changed_at < self.config.newcomer_s
        if descriptor.topic not in self.scribe.descriptors and fresh and self._has_company():
            self.host.set_timer(CreateLater(message), self.config.newcomer_s)
            return
        known = self.scribe.descriptors.get(descriptor.topic)
        if known is None or (known.version == 0 and known.settings == descriptor.settings):
            self.scribe.learn(descriptor)
        tree = self.scribe.tree(self.scribe.descriptors[descriptor.topic])
        if tree.root is None:
            self.become(tree, "created")
        else:
            if changes.follows(tree.descriptor, descriptor):
                self.scribe.learn(descriptor)
                self.scribe.changes.entered(tree)
            self.scribe.replication.replicate([tree], anew=True)
        self._answer(message.creator, Created(tree.descriptor))

    def join(self, message: Join) -> None:
        """A Join reached the rendezvous point: take the child in."""
        scribe = self.scribe
        if message.child.node_id == self.host.me:
            tree = scribe.trees.get(message.topic)
            if tree is not None and not tree.attached and tree.needed:
                self.become(tree, "took_over")
            return
        descriptor = self.known(message.topic, message.descriptor)
        if descriptor is None:
            why = "unknown" if message.descriptor is not None else "describe"
            self.host.send(message.child, Refused(message.topic, why))
            return
        tree = scribe.tree(descriptor)
        scribe.reigns.heard_of(tree, message.have.term if message.have else NO_TERM)
        if tree.root is None:
            self.become(tree, "took_over" if message.have is not None else "created")
        scribe.children.adopt(message)

    def find(self, message: FindRoot) -> None:
        """A publisher's peer looks for the root, and it is this peer."""
        descriptor = self.known(message.topic, message.descriptor)
        if message.descriptor is None and descriptor is not None and not self._stands(descriptor):
            descriptor = None
        if descriptor is None:
            self._answer(message.publisher, NotRoot(message.topic, None, unknown=True))
            return
        tree = self.scribe.tree(descriptor)
        tree.heard = max(tree.heard, message.term)
        if tree.root is None:
            self.become(tree, "created" if message.term == NO_TERM else "took_over")
        elif tree.heard > tree.root.term:
            self.outdone(tree)
        if tree.root is not None:
            self._note_bearers(tree, message)
            self._answer(message.publisher, RootIs(tree.root.term, tree.descriptor))

    def _stands(self, descriptor: Descriptor) -> bool:
        """Was the topic created, or has or had it a root? Else first use made it once, and it is no more."""
        topic, scribe = descriptor.topic, self.scribe
        return descriptor.version > 0 or topic in scribe.trees or topic in scribe.replication.terms

    def _answer(self, to: Contact, message: Created | RootIs | NotRoot) -> None:
        if to.node_id == self.host.me:
            self.scribe.publishing.receive(to, message)
        else:
            self.host.send(to, message)

    def timer(self, timer: CreateLater) -> None:
        """Time to create what waited."""
        self.create(timer.message)
