"""The rendezvous point: how a peer becomes, is and ceases to be a topic's root (docs/delivery.md, *Roots that move*).

Safety rests on terms. A new root never relies on what an earlier one admitted: publishers send again what is not
stable, and subscribers tell by sequence what they had. So that nothing is called stable behind the back of orphans
on their way, a root that took over holds stability for as long as their leases last; one that was handed the topic,
until those whom the root before names have come (docs/decisions/leadership-transfer.md).
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
from quillcast.protocol.topics.replication import Round
from quillcast.protocol.topics.root import Root
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class Seal(Timer, frozen=True):
    """What publishers sent since the last one goes down the tree as one bundle."""

    topic: bytes


class Acknowledge(Timer, frozen=True):
    """What was sealed is on its way: publishers get their receipts, and those who sent it their credit."""

    topic: bytes


class Rendezvous:
    """A peer's part as root of some topics."""

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config, self.overlay = scribe, scribe.host, scribe.config, scribe.overlay
        self.bearers: dict[bytes, dict[bytes, dict[str, None]]] = {}  # by topic and peer, on whose behalf it publishes
        self.unsealed: dict[bytes, list[tuple[bytes, int]]] = {}  # credit to give back once it is sent, by topic
        scribe.dispatch.on_routed(Join, self.join)
        scribe.dispatch.on_routed(FindRoot, self.find)
        scribe.dispatch.on_routed(Create, self.create)
        scribe.dispatch.on_timer(Seal, self.seal)
        scribe.dispatch.on_timer(Acknowledge, self.acknowledge)

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

    def next_term(self, tree: Tree) -> Term:
        """A term above all that were heard of."""
        tree.heard = max(tree.heard, tree.term, self.scribe.replication.terms.get(tree.topic, NO_TERM))
        return Term(tree.heard.counter + 1, self.host.me[:8] + self.host.incarnation)

    def become(self, tree: Tree, how: str, term: Term, holders: int = 1, doubtful_until: float = 0.0) -> None:
        """Begin a term under a term that is noted with most of those who keep the topic's state (`candidacy.py`).

        A topic that is new to them may have been in use until a time.
        """
        scribe, topic = self.scribe, tree.topic
        offer = scribe.leadership_transfer.offers.pop(topic, None)
        if offer is not None and offer.term == tree.heard:
            how = "transferred"
        else:
            offer = None  # there was another term since
        scribe.membership.drop_parent(tree, "closer_root")
        tree.root = Root(self.host, self.config, tree.descriptor, term, self._hold(how, doubtful_until))
        tree.root.holders = holders
        if offer is not None:
            scribe.leadership_transfer.take_over(tree, tree.root, offer)
        tree.path = ()
        self.host.trace(BecameRoot(topic, term, how))
        scribe.terms.enter(tree, term, 0)
        scribe.leadership_transfer.moved_to.pop(topic, None)
        scribe.membership.settled(tree)
        scribe.publishing.root_here(tree)

    def _hold(self, how: str, doubtful_until: float) -> float:
        """Until when nothing is called stable: orphans of an earlier root may be on their way.

        A topic that is new, as most say who would know, has none.
        """
        if how == "created":
            return doubtful_until
        return self.host.now() + self.config.lease_s

    def hold(self, tree: Tree, now: float) -> None:
        """This process stood still; another may be root by now: call nothing stable until that is known."""
        root = tree.root
        if root is not None:
            self.host.trace(Mark("root_paused"))
            root.paused_until = now + self.config.lease_s
            self.scribe.replication.ask(tree.topic, lambda round_: self._heard_after_pause(tree, root, round_))

    def _heard_after_pause(self, tree: Tree, root: Root, round_: Round) -> None:
        """What the keepers know: a later term, or, if all of them say so, that there is none.

        Whoever followed this root is one of those closest to the topic, and had its term noted by others of them.
        """
        for entry in round_.answers.values():
            self.scribe.terms.heard_of(tree, entry.term)
        if tree.root is root and self.scribe.replication.all_answered(round_):
            root.paused_until = 0.0
            self.advance_stable(tree, self.host.now())

    def outdone(self, tree: Tree) -> None:
        """A later term exists than this root's: the closest peer begins one later still."""
        if self.overlay.is_closest(tree.topic):
            self.host.trace(Mark("root_outdone"))
            publishers = self.forget_term(tree)
            self.scribe.candidacies.begin(tree, "merged", publishers)
        else:
            self.scribe.leadership_transfer.resign(tree)

    def heard_from(self, tree: Tree, nodes: Iterable[bytes]) -> None:
        """These are below this peer. Once all have come that the root before named, its own hold is what remains."""
        root = tree.root
        if root is None or not root.awaited:
            return
        for node in nodes:
            root.awaited.pop(node, None)
        if not root.awaited:
            root.hold_until = root.awaited_until

    def forget_term(self, tree: Tree) -> dict[Contact, None]:
        """This peer is root no more. Returns those who published to it.

        It stays in the tree for as long as others may lack what it knows of terms that are over.
        """
        root = tree.root
        if root is None:
            return {}
        for bundle in root.seal():
            self.scribe.move(tree, bundle)
        self._acknowledge(tree)
        tree.root = None
        if not self.overlay.is_closest(tree.topic):
            self.bearers.pop(tree.topic, None)  # who publishes here again shows its warrants again
        if (root.index or any(past.end for past in tree.past.values())) and not self.scribe.leaving:
            self.scribe.terms.keep(tree)
        self.scribe.flow_control.relieved()
        self.scribe.housekeeping.wake(tree)
        return {admission.contact: None for admission in root.admissions.values()}

    def tell_publishers(self, tree: Tree, publishers: dict[Contact, None]) -> None:
        """Tell those who published here who is root now, as far as that is known."""
        for contact in publishers:
            if tree.root is not None:
                self.host.send(contact, RootIs(tree.root.term, tree.descriptor))
            else:
                self.host.send(contact, NotRoot(tree.topic, self.scribe.leadership_transfer.moved_to.get(tree.topic)))

    # ---- whoever is closest

    def leaf_set_changed(self) -> None:
        """Topics that another peer is closer to by now are handed over; replicas follow the leaf set."""
        if not self.overlay.active:
            return
        for tree in [tree for tree in self.scribe.trees.values() if tree.root is not None]:
            self.scribe.leadership_transfer.move(tree)
        self.scribe.leadership_transfer.pass_on()

    # ---- admission

    def up(self, sender: Contact, bundle: Bundle) -> None:
        """A publisher's events: admit them, or say who is root."""
        tree = self.scribe.trees.get(bundle.topic)
        if tree is None or tree.root is None:
            self.host.release(sender.node_id, bundle.size)
            self.host.trace(Dropped(bundle.topic, bundle.count, "not_root"))
            self.host.send(sender, NotRoot(bundle.topic, self.scribe.leadership_transfer.moved_to.get(bundle.topic)))
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
                shown = self.bearers.setdefault(tree.topic, {})
                shown.setdefault(node, {})[who] = None
                if len(shown) > self.config.admissions_max:
                    del shown[next(iter(shown))]  # it shows its warrant again when it is denied

    def took_over_from(self, join: Join) -> bool:
        """Is this the root that handed the topic over? It had all there is, and hands its children over one by one."""
        tree = self.scribe.trees.get(join.topic)
        return tree is not None and tree.root is not None and join.child.node_id in tree.root.awaited

    def publish_here(self, tree: Tree, bundle: Bundle) -> None:
        """A publisher of this very peer: no link lies between."""
        if tree.root is None:
            moved_to = self.scribe.leadership_transfer.moved_to.get(bundle.topic)
            self.host.send(self.host.contact, NotRoot(bundle.topic, moved_to))
            return
        if (
            tree.root.closing and not self.scribe.leadership_transfer.closed
        ):  # who leaves has its own admitted to the last
            tree.root.turn_away(self.host.contact, bundle)
            return
        self.unsealed.setdefault(bundle.topic, []).append((self.host.me, bundle.size))
        self.scribe.flow_control.taken_here(bundle.topic, bundle.size)
        tree.root.admit(self.host.contact, bundle)
        self._seal_soon(tree)

    def _seal_soon(self, tree: Tree) -> None:
        """All that came in one turn of the host is sealed together: a lone event leaves at once."""
        root = tree.root
        if root is not None and not root.sealing:
            root.sealing = True
            self.scribe.housekeeping.wake(tree)
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
            self.scribe.flow_control.sealed(tree, node, size)

    def send_receipts(self, tree: Tree) -> None:
        """Tell publishers what was admitted and what is stable, one message per peer."""
        root = tree.root
        if root is None:
            return
        if not root.marks:
            return
        partitioned = self.scribe.replication.partitioned(tree.topic)
        if partitioned and tree.descriptor.settings.partition == "wait":
            return  # what is owed to publishers stays owed
        for contact, marks in root.receipts().items():
            message = Receipts(tree.topic, root.term, marks, partitioned)
            if contact.node_id == self.host.me:
                self.scribe.publishing.receipts(message)
            else:
                self.host.send(contact, message)

    def advance_stable(self, tree: Tree, now: float) -> None:
        """The root's minimum over all leases is the stable position."""
        root = tree.root
        if root is None:
            return
        moved = root.acknowledge_to(tree.acknowledged_position(now), now)
        tree.stable = root.stable
        gone_bytes = tree.trim(now) if len(tree.log) else 0
        if gone_bytes:
            self.scribe.flow_control.relieved()
        if not moved:
            return
        self.send_receipts(tree)
        self.scribe.reporting.moved(tree, gone_bytes)
        self.scribe.leadership_transfer.stable_moved(root)

    # ---- joining, creating and finding

    def all_stable(self, now: float) -> bool:
        """Do all leases cover what this peer admitted as root?"""
        rooted = [tree for tree in self.scribe.trees.values() if tree.root is not None]
        return all(tree.acknowledged_position(now) >= tree.root.index for tree in rooted if tree.root is not None)

    def _if_root(self, topic: bytes, request: Join | FindRoot | Create) -> Tree | None:
        """The tree of a topic that this peer is the root of; if it is to be first, the request waits for that."""
        tree = self.scribe.trees.get(topic)
        if tree is not None and tree.root is not None:
            return tree
        self.scribe.candidacies.wait(topic, request)
        return None

    def create(self, message: Create) -> None:
        """Enter the descriptor, or answer with the one that stands, once most keepers have noted it."""
        descriptor = message.descriptor
        tree = self._if_root(descriptor.topic, message)
        if tree is None or tree.root is None:
            return
        known = tree.descriptor
        if changes.follows(known, descriptor) or (known.version == 0 and known.settings == descriptor.settings):
            self.scribe.learn(descriptor)
        if tree.descriptor == tree.root.noted:
            self.scribe.tell(message.creator, Created(tree.descriptor, tree.root.holders), again=message.again)
        else:
            self.scribe.replication.note(
                tree.descriptor, tree.root.term, lambda round_: self._noted(tree, message, round_)
            )

    def _noted(self, tree: Tree, message: Create, round_: Round) -> None:
        """Most keepers have noted what was entered."""
        if tree.root is None or round_.note != (tree.descriptor, tree.root.term):
            self.overlay.route(message, tree.topic)
            return
        tree.root.noted, tree.root.holders = tree.descriptor, round_.holders
        self.scribe.changes.entered(tree)
        self.scribe.tell(message.creator, Created(tree.descriptor, round_.holders), again=message.again)

    def join(self, message: Join) -> None:
        """Take the child in."""
        scribe = self.scribe
        if message.child.node_id == self.host.me:
            tree = scribe.trees.get(message.topic)
            if tree is not None and not tree.attached and tree.needed:
                scribe.candidacies.begin(tree, "took_over")
            return
        if self._if_root(message.topic, message) is None:
            return
        self.known(message.topic, message.descriptor)
        tree = scribe.trees[message.topic]
        scribe.terms.heard_of(tree, message.have.term if message.have else NO_TERM)
        scribe.children.adopt(message)

    def find(self, message: FindRoot) -> None:
        """A publisher's peer looks for the root."""
        tree = self._if_root(message.topic, message)
        if tree is None or tree.root is None:
            return
        self.known(message.topic, message.descriptor)
        tree.heard = max(tree.heard, message.term)
        if tree.heard > tree.root.term:
            self.outdone(tree)
            self.scribe.dispatch.routed(message)
            return
        if message.spoke_s is not None:
            self._rival_spoke(tree.root, message.term, self.host.now() - message.spoke_s)
        self._note_bearers(tree, message)
        self.scribe.tell(message.publisher, RootIs(tree.root.term, tree.descriptor), again=message.again)

    def _rival_spoke(self, root: Root, term: Term, at: float) -> None:
        """A root spoke to a publisher under an earlier term: was it root beside this one, as on both sides of a split?

        Then that publisher has come from the other side. There subscribers have leases of which nobody here knows, so
        nothing is called stable while these go on: what the publisher has is not lost if the sides meet by then.
        """
        beside = at > root.began_at + self.config.receipt_timeout_s  # the last words of the one before may come late
        if term not in (NO_TERM, root.term, root.followed) and term.node != root.term.node and beside:
            self.host.trace(Mark("rival_spoke"))
            root.hold(at + self.config.lease_s)

    def refuse(self, request: Join | FindRoot | Create) -> None:
        """Nobody created the topic, and this network creates none on first use."""
        match request:
            case Join(descriptor=descriptor):
                why = "unknown" if descriptor is not None else "describe"
                self.host.send(request.child, Refused(request.topic, why))
            case FindRoot():
                self.scribe.tell(request.publisher, NotRoot(request.topic, None, unknown=True), again=False)
