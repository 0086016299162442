"""Planned transfer of a topic to the peer that is closer to it (docs/delivery.md, *Roots that move*).

Stable events keep their positions, and the next root learns which peers are below
(docs/decisions/leadership-transfer.md).
"""

from collections.abc import Iterable
from itertools import chain, repeat
from typing import NamedTuple

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host, Timer
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import Mark, ResignedRoot
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.known.successors import TOPICS_MAX
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.messages import NEWCOMERS_MAX
from quillcast.protocol.topics.root.intake import Intake
from quillcast.protocol.topics.root_messages import (
    FOLLOWED_MAX,
    AnotherFollows,
    TransferLeadership,
    Transferred,
    TransferRefused,
)
from quillcast.protocol.topics.state.effects import BecomeRoot, LaterTermExists
from quillcast.protocol.topics.state.holders import Ended
from quillcast.protocol.topics.state.link_reports import Move, reaches
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.session import SessionState
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.trees import Trees

FRONTIERS_MAX = 4096  # publishers named in a transfer, the latest; a guess: 100 kB. Events of others arrive again


class TransferDue(Timer, frozen=True):
    """This term's events had time to become stable: transfer the topic."""

    topic: bytes
    term: Term


class LookAgain(Timer, frozen=True):
    """The peer that is to follow this term was still joining, or suspected: is it still?"""

    topic: bytes
    term: Term


class Offer(NamedTuple):
    """A topic that was transferred, and what the root of that term knew."""

    message: TransferLeadership
    hold_until: float  # that root would have declared nothing stable until then
    root: Contact | None  # that root, if it sent this itself; otherwise only what is known of past terms counts
    noted: Term = NO_TERM  # this peer's term as the next root, which others know of

    @property
    def term(self) -> Term:
        """The ended term."""
        return self.message.term

    @property
    def leases(self) -> dict[bytes, int]:
        """The peers to wait for, with the known numbers of their last moves."""
        return _numbered(self.message)


class PendingTransfer:
    """What a peer told others of a topic. If it leaves, one of them must confirm that, and get the bundles."""

    def __init__(self, message: TransferLeadership, root: Contact | None = None) -> None:
        """`root`: the root that said it, if that is another peer."""
        self.message, self.root = message, root
        self.told: dict[bytes, None] = {}
        self.told_at = 0.0  # when the last of them was told
        self.to: Contact | None = None  # the peer that has confirmed
        self.bundles: list[Bundle] = []
        self.handed = 0  # how many of them that peer was sent


class LeadershipTransfer:
    """A peer's part in leadership transfers, as the old root and as the new one."""

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, replica_set: ReplicaSet, known: KnownTopics,
        trees: Trees, terms: Terms, membership: TreeMembership, intake: Intake, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.known, self.trees = host, config, overlay, known, trees
        self.replica_set = replica_set
        self.terms, self.membership, self.intake, self.dispatch = terms, membership, intake, dispatch
        self.offers: dict[bytes, Offer] = {}  # transferred topics that this peer is not root of yet
        self.pending: dict[bytes, PendingTransfer] = {}
        self.vouched: dict[bytes, PendingTransfer] = {}  # what this peer last told about its own ended terms
        known.spare(self.offers)
        dispatch.on_message(TransferLeadership, self._transferred)
        dispatch.on_message(AnotherFollows, self._another_follows)
        dispatch.on_message(Transferred, self.confirmed)
        dispatch.on_message(TransferRefused, self._refused)
        dispatch.on_timer(TransferDue, self.due)
        dispatch.on_timer(LookAgain, self.look_again)

    # ---- the root that goes

    def leaf_set_changed(self) -> None:
        """Transfer topics that another peer is now closer to."""
        if not self.overlay.active:
            return
        for tree in [tree for tree in self.trees.by_topic.values() if tree.root is not None]:
            self.move(tree)
        self.pass_on()

    def move(self, tree: Tree) -> None:
        """Transfer the topic if another peer is closer, once admitted events are stable (or had `linger_s` for it).

        Stable events keep their positions, because the next root need not admit them again.
        """
        root, now = tree.root, self.host.now()
        if root is None:
            return
        if self.overlay.is_closest(tree.topic):
            self._reopen(tree, root)
        elif not (closest := self.overlay.closest(tree.topic, 1)):
            return  # a scope named its seats, and names none now
        elif self.overlay.is_joining(closest[0]):
            self.host.set_timer(LookAgain(tree.topic, root.term), self.config.ask_s)  # else there would be no root
        elif root.stable == root.index or not root.descriptor.settings.reliable:
            self.resign(tree)
        elif root.held_until > now + self.config.linger_s:
            self.resign(tree)  # nothing becomes stable that soon
        elif not root.closing:
            root.stop()
            self.host.set_timer(TransferDue(tree.topic, root.term), self.config.linger_s)

    def watch_closer(self, tree: Tree) -> None:
        """Check again later: this peer became root although a suspected peer, which gets no messages, is closer."""
        if tree.root is not None and not self.overlay.is_closest(tree.topic):
            self.host.set_timer(LookAgain(tree.topic, tree.root.term), self.config.ask_s)

    def look_again(self, timer: LookAgain) -> None:
        """Transfer the topic once the next root has answered that it has joined, or is no longer suspected."""
        tree = self.trees.by_topic.get(timer.topic)
        if tree is None or tree.root is None or tree.root.term != timer.term:
            return
        if self.overlay.next_hop(tree.topic) is None:
            self.watch_closer(tree)
            return
        closest = self.overlay.closest(tree.topic, 1)[0]
        if self.overlay.is_joining(closest):
            self.overlay.agreement.probe(closest)
        self.move(tree)

    def _reopen(self, tree: Tree, root: Root) -> None:
        if root.closing and not self.trees.closing and root.session_state is not SessionState.FLUSHING:
            self.intake.reopen(tree, root)

    def all_stable(self, root: Root) -> None:
        """All events that a closing root admitted are stable: transfer the topic at once."""
        if not self.trees.closing:
            self.host.set_timer(TransferDue(root.descriptor.topic, root.term), 0.0)

    def due(self, timer: TransferDue) -> None:
        """Transfer the topic: that term's time for it has come."""
        tree = self.trees.by_topic.get(timer.topic)
        root = tree.root if tree is not None else None
        if tree is None or root is None or root.term != timer.term or not root.closing or self.trees.closing:
            return  # leaving has its own time
        if self.overlay.is_closest(timer.topic):
            self._reopen(tree, root)
        else:
            self.resign(tree)

    def close(self) -> None:
        """Admit nothing more, as this peer is about to leave, so that admitted events have time to become stable."""
        self.trees.prepare_to_leave()
        for tree in self.trees.by_topic.values():
            if tree.root is not None and tree.descriptor.settings.reliable:
                tree.root.stop()

    def resign(self, tree: Tree) -> None:
        """Transfer the topic to the closest other peer, and become its child (docs/delivery.md, *Roots that move*)."""
        root = tree.root
        others = [c for c in self.overlay.closest(tree.topic, 2) if c.node_id != self.host.me]
        if root is None:
            return
        if not others:  # this is the only peer: when it leaves, the topic ends
            if self.trees.leaving:
                self.intake.forget_term(tree)
                self.membership.leave_if_idle(tree)  # children that leave as well may still be here
            return
        to = others[0]
        publishers = self.intake.forget_term(tree)
        comes, unstable = self._follows(tree, root), holding(tree.flow, tree.term, [(root.stable, root.index)])
        self.host.trace(ResignedRoot(tree.topic, to.node_id))
        self.tell(to, self._last_words(tree, root), [*unstable, *self.membership.last_copies(tree)])
        self.intake.sealing.pass_marks_on(tree.topic, to)
        self.intake.successors.note(tree.topic, to)
        self.intake.tell_publishers(tree, publishers)
        if not self.trees.leaving:
            self._carry(to, unstable)  # the new root asks for the rest by ranges
        if comes and self.trees.leaving:
            self.membership.await_next_root(tree, to)
        elif tree.needed and not self.trees.leaving:
            self.host.trace(Mark("root_transferred"))
            self.membership.follow(tree, to)
        elif not tree.needed:
            self.membership.close(tree)

    def _carry(self, to: Contact, bundles: list[Bundle]) -> list[Bundle]:
        """Send as many bundles as there is room for. Return the rest."""
        for at, bundle in enumerate(bundles):
            if self.host.room(to) <= 0:
                return bundles[at:]
            self.host.carry(to, bundle)
        return []

    def begin_session(self, tree: Tree, root: Root, session: Descriptor) -> None:
        """Begin the topic's next session: this root transfers the topic to itself, so to speak."""
        message, turned_away = _without(self.host.contact, self._last_words(tree, root)), root.turned_away.values()
        publishers = dict.fromkeys((*self.intake.forget_term(tree), *turned_away))
        self.offers[tree.topic] = Offer(message, self.host.now() + message.hold_s, self.host.contact)
        self.dispatch.order(BecomeRoot(tree.topic, "transferred", tuple(publishers), session))

    # ---- a peer that leaves

    def leave(self) -> None:
        """Pass topics that were transferred to this peer, which is not root yet, to another peer, with the copies."""
        for topic, offer in list(self.offers.items()):
            del self.offers[topic]
            transfer = self._in_turn(offer)
            if self._is_to_be_heard(transfer.message):
                self.pending[topic] = transfer
                transfer.bundles = self._copies(offer.message)
                self._tell_next(transfer)

    def _copies(self, message: TransferLeadership) -> list[Bundle]:
        """Return bundles of an ended term, and of those before it, that are kept here and may be needed."""
        tree = self.trees.by_topic.get(message.descriptor.topic)
        if tree is None:
            return []
        unstable = holding(tree.flow, message.term, [(message.stable, message.index)])
        return [*unstable, *self.membership.last_copies(tree)]

    def tell(self, to: Contact, message: TransferLeadership, bundles: Iterable[Bundle] = ()) -> None:
        """Tell the next root what this one knows.

        If this peer leaves, it stays until the next root has confirmed that, and has received these bundles.
        """
        transfer = self._vouch(message)
        if self.trees.leaving and self._is_to_be_heard(message):
            self.pending[message.descriptor.topic] = transfer
            transfer.bundles = [*bundles]
        self._tell(to, transfer)

    def _vouch(self, message: TransferLeadership) -> PendingTransfer:
        self._forget_old()
        transfer = self.vouched[message.descriptor.topic] = PendingTransfer(message)
        return transfer

    def _is_to_be_heard(self, message: TransferLeadership) -> bool:
        """Whether the topic had any events, or this peer has still to say farewell."""
        return bool(message.index or message.past or self.host.me in message.leases)

    def _tell(self, to: Contact, transfer: PendingTransfer) -> None:
        topic = transfer.message.descriptor.topic
        if self.vouched.get(topic) is transfer:
            self.vouched[topic] = self.vouched.pop(topic)
        transfer.told[to.node_id], transfer.told_at = None, self.host.now()
        transfer.to, transfer.handed = None, 0
        self._say(to, transfer.message, transfer.root)

    def _say(self, to: Contact, message: TransferLeadership, root: Contact | None) -> None:
        """Send a root's transfer to another peer. Only the root itself is believed, so it is asked to send it too.

        It does not know the peers that follow in this peer's place, so they are named to it.
        """
        if root is not None:
            topic = message.descriptor.topic
            self.host.send(root, AnotherFollows(topic, message.term, to, *self._here(topic)))
        self.host.send(to, _without(to, message))

    def _here(self, topic: bytes) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """Return what to wait for in this peer's place, for `AnotherFollows`: itself with all below it, if any."""
        tree = self.trees.by_topic.get(topic)
        if tree is None or not (tree.receives or tree.leases.orphaned):
            return (), ()
        return (self.host.me,), (self.membership.moves.of(topic),)

    def _another_follows(self, sender: Contact, message: AnotherFollows) -> None:
        """The next root leaves before it is root, or knows a closer peer: tell that one instead."""
        transfer = self.vouched.get(message.topic)
        if transfer is None or transfer.message.term != message.term or sender.node_id not in transfer.told:
            return
        said = transfer.message
        leases = _numbered(said)
        leases.pop(sender.node_id, None)
        leases |= _numbered(message)
        transfer.message = msgspec.structs.replace(said, leases=tuple(leases), lives=tuple(leases.values()))
        tree = self.trees.by_topic.get(message.topic)
        if tree is not None and self.trees.leaving:
            tree.may_turn_to((message.root,))
        if message.root.node_id != self.host.me:
            self.intake.successors.note(message.topic, message.root)
            self._tell(message.root, transfer)

    def _forget_old(self) -> None:
        """Forget transfers of a lease ago: they no longer matter."""
        before = self.host.now() - self.config.lease_s
        for topic, transfer in list(self.vouched.items()):
            if transfer.told_at > before and len(self.vouched) < TOPICS_MAX:
                break
            del self.vouched[topic]

    def tell_others(self) -> None:
        """Transfer to the next closest peer, if any: a successor that does not confirm may have left as well."""
        for transfer in list(self.pending.values()):
            if transfer.to is not None:
                self._hand_over_more(transfer, transfer.to)
            elif self.host.now() - transfer.told_at >= self.config.ask_s:
                self._tell_next(transfer)

    def _tell_next(self, transfer: PendingTransfer) -> None:
        topic = transfer.message.descriptor.topic
        closest = self.overlay.closest(topic, 1 + self.overlay.beside(topic))
        told = {self.host.me, *transfer.told}
        to = next((contact for contact in closest if contact.node_id not in told), None)
        if to is None:
            del self.pending[topic]
            self._part(topic, ())
            return
        self.intake.successors.note(topic, to)
        self._tell(to, transfer)

    def confirmed(self, sender: Contact, message: Transferred) -> None:
        """Another peer has confirmed that it knows this peer's state of a topic, if it was told."""
        transfer = self.pending.get(message.topic)
        is_told = transfer is not None and sender.node_id in transfer.told
        if transfer is not None and is_told and transfer.message.term == message.term and transfer.to is None:
            transfer.to = sender
            self._hand_over_more(transfer, sender)
            self._part(message.topic, (sender,))

    def _hand_over_more(self, transfer: PendingTransfer, to: Contact) -> None:
        rest = self._carry(to, transfer.bundles[transfer.handed :])
        transfer.handed = len(transfer.bundles) - len(rest)
        if not rest:
            del self.pending[transfer.message.descriptor.topic]

    def link_lost(self, contact: Contact) -> None:
        """The peer that confirmed left before it had all the copies: send them to another."""
        for transfer in list(self.pending.values()):
            if transfer.to is not None and transfer.to.node_id == contact.node_id:
                self._tell_next(transfer)

    def _refused(self, sender: Contact, message: TransferRefused) -> None:
        """The next root leaves as well: tell another peer."""
        transfer = self.pending.get(message.topic)
        is_last = transfer is not None and next(reversed(transfer.told)) == sender.node_id
        if transfer is not None and is_last and transfer.message.term == message.term and transfer.to is None:
            self._tell_next(transfer)

    def _part(self, topic: bytes, successors: tuple[Contact, ...]) -> None:
        """The topic has another root, or no peer is left for it: leave once the peers below have gone."""
        tree = self.trees.by_topic.get(topic)
        if tree is not None and not tree.attached:
            tree.stop_joining()
            tree.may_turn_to(successors)
            self.membership.leave_if_idle(tree)

    def _last_words(self, tree: Tree, root: Root) -> TransferLeadership:
        now, past = self.host.now(), tree.flow.past
        hold_until = max(root.awaited_until if root.awaited else root.hold_until, root.paused_until)
        leases = dict(root.awaited)
        if self._follows(tree, root):  # it moves too, and speaks for the peers below it
            leases[self.host.me] = self.membership.moves.of(tree.topic)
        frontiers = tuple(root.stable_frontiers().items())[-FRONTIERS_MAX:]
        ends = tree.leases.ends[-NEWCOMERS_MAX:]
        return TransferLeadership(
            tree.descriptor, root.term, root.index, root.stable, self.known.latest(tree), max(0.0, hold_until - now),
            tuple(leases), frontiers, tuple([move.peer for move in ends]),
            past.aged(past.ends(), now), past.aged(past.forgotten_lately(), now),
            self.membership.source_streams.ended(tree),
            self.known.outliving(tree.topic), root.followed, tuple(leases.values()), tree.flow.there_for(now),
            tuple([move.number for move in ends]),
        )  # fmt: skip

    def _follows(self, tree: Tree, root: Root) -> bool:
        """Whether this peer will be a child of the next root, or, if it leaves, say farewell to it."""
        if self.trees.leaving:
            return bool(tree.leases.children or tree.leases.orphaned)
        return tree.needed or root.index > 0

    # ---- the root that comes

    def _transferred(self, sender: Contact, message: TransferLeadership) -> None:
        if self.overlay.outside and not message.descriptor.settings.root_scope:
            return  # it was meant for a member of the ring, and the sender learns that this peer is none
        if self.trees.leaving:
            self.host.send(sender, TransferRefused(message.descriptor.topic, message.term))
            return
        if self.known.misplaced(message.descriptor):
            return  # the sender will tell another peer
        if self.known.crowded(message.descriptor.topic):
            return
        self.received(sender, message)
        self.host.send(sender, Transferred(message.descriptor.topic, message.term))

    def received(self, sender: Contact, message: TransferLeadership) -> None:
        """A topic was transferred to this peer: become its root, or keep the last root's state for another."""
        self.known.learn(message.descriptor)
        if message.rival is not None:
            self.known.learn(message.rival)
        tree = self.trees.open(self.known.descriptors[message.descriptor.topic])
        topic = tree.topic
        self.terms.note(tree, message.term, message.heard)
        offer = self._offer(tree, sender, message)
        if offer.root is not None:
            self._note_ended(tree, offer.root, message)
        if tree.leases.ended:  # it may have ended leases, and is remembered for a while
            self.terms.schedule.touch(tree)
            self.terms.schedule.wake(tree)
        self.known.enter(topic, tree.heard)
        if tree.root is None:
            former = self.offers.get(topic)
            is_own = offer.root is not None and (former is None or former.term <= message.term)
            if is_own or former is None or former.root is None or former.term < message.term:
                is_same = former is not None and former.term == offer.term
                self.offers[topic] = offer._replace(noted=former.noted) if former is not None and is_same else offer
            self._enter_term(tree, message)
        for term, end, there_ms in message.past:
            self.terms.recall(tree, term, end, there_ms)
        tree.flow.note_forgotten(message.forgotten, self.host.now())
        self.membership.source_streams.learn_ends(tree, message.streams, sender)
        if tree.root is not None:
            self.host.trace(Mark("roots_merged"))
            if message.leases:
                tree.root.was_used(message.term)
            if tree.heard > tree.root.term:
                self.dispatch.order(LaterTermExists(tree.topic))
            else:
                self._hear_late(tree, tree.root, offer)
        elif self.overlay.active and self.overlay.is_closest(topic):
            self.dispatch.order(BecomeRoot(tree.topic, "transferred" if offer.root is not None else "took_over"))
        self.terms.recall(tree, message.term, message.index, message.there_ms)
        if not tree.attached and tree.needed and not tree.joining:
            self.membership.join(tree)

    def _note_ended(self, tree: Tree, root: Contact, message: TransferLeadership) -> None:
        """Note peers that left lately. This peer or that root may be among them, and have restarted since.

        That root may also have left after it sent this, if others send it later, or it arrives late by a slow path.
        """
        until = self.host.now() + 2 * self.config.leave_s
        for node, last in zip(message.ended, chain(message.ended_by, repeat(0)), strict=False):
            if node != self.host.me and node not in message.leases:
                tree.open_leases().note_ended(node, Ended(until, Move(node, last) if last else None))
        number, ended = _numbered(message).get(root.node_id), tree.leases.ended.get(root.node_id)
        has_left = ended is not None and ended.move is not None and ended.move.follows(Move(root.node_id, number or 0))
        if number is not None and not has_left:
            tree.leases.is_back(root.node_id)

    def _offer(self, tree: Tree, sender: Contact, message: TransferLeadership) -> Offer:
        """Return a transfer as an offer; only the term's own root, as sender, is believed about peers to wait for.

        A peer that is far from the topic cannot have been its root.
        """
        own = self.vouched.get(tree.topic)
        if own is not None and own.message.term == message.term:
            sender, message = self.host.contact, _without(self.host.contact, own.message)  # the topic comes back
        vouched = message.term.is_of(sender.node_id) and self.replica_set.is_near(tree.topic, sender.node_id)
        if not vouched:
            self.host.trace(Mark("transfer_passed_on"))
        hold_s = self.config.lease_s if not vouched or _has_rival(tree, message) else message.hold_s
        return Offer(message, self.host.now() + min(hold_s, self.config.lease_s), sender if vouched else None)

    def _hear_late(self, tree: Tree, root: Root, offer: Offer) -> None:
        """This peer took over before the former root's transfer arrived: wait for the peers that it names.

        The former root may name others later, in place of a peer that was to follow it.
        """
        if offer.root is None or _has_rival(tree, offer.message):
            return
        again = bool(root.awaited) and root.followed[-1:] == (offer.term,)
        is_next = root.after == offer.term and (offer.message.heard <= offer.term or offer.message.heard == root.term)
        if again or (is_next and offer.term not in root.followed):
            self.host.trace(Mark("transfer_came_late"))
            self._wait_for_named(tree, root, offer)
            self.terms.schedule.touch(tree)

    def pass_on(self) -> None:
        """Pass on topics that were transferred to this peer, if another one is now closer."""
        for topic, offer in list(self.offers.items()):
            if not self.overlay.is_closest(topic) and (closest := self.overlay.closest(topic, 1)):
                del self.offers[topic]
                self.known.done_with(topic)
                self._tell(closest[0], self._in_turn(offer))

    def _in_turn(self, offer: Offer) -> PendingTransfer:
        """Return what this peer, which is not to become root, tells the one that is.

        If others know the term that this peer was to have, it speaks as that term's root: nothing was admitted in it.
        """
        if offer.root is None or offer.noted <= offer.term:
            return PendingTransfer(self._passed_on(offer), offer.root)
        topic, leases = offer.message.descriptor.topic, offer.leases
        named, numbers = self._here(topic)
        leases |= dict(zip(named, numbers, strict=True))
        tree = self.trees.by_topic.get(topic)
        ends = {move.peer: move.number for move in tree.leases.ends} if tree is not None else {}
        leases = {node: each for node, each in leases.items() if node not in ends or not reaches(ends[node], each)}
        message = msgspec.structs.replace(
            _followed_by(offer.message, offer.noted), hold_s=max(0.0, offer.hold_until - self.host.now()),
            leases=tuple(leases), lives=tuple(leases.values()), streams=self._passed_on(offer).streams,
        )  # fmt: skip
        return self._vouch(message)

    def _passed_on(self, offer: Offer) -> TransferLeadership:
        """Return the former root's transfer for another peer, limited to what that peer accepts from this one."""
        tree = self.trees.by_topic.get(offer.message.descriptor.topic)
        streams = self.membership.source_streams.ended(tree) if tree is not None else offer.message.streams
        return msgspec.structs.replace(
            offer.message, leases=(), lives=(), frontiers=(), ended=(), ended_by=(), streams=streams
        )

    def _enter_term(self, tree: Tree, message: TransferLeadership) -> None:
        """Keep the ended term, whose buffer follows: it may be the last copy, whether this peer is root or not."""
        if message.index or message.past:
            self.terms.keep(tree)
        begins = message.term > tree.term
        if begins:
            self.terms.enter(tree, message.term, 0)
        if message.term == tree.term:
            tree.inherit(message.term, message.index, whole=begins)

    def note_term(self, topic: bytes, term: Term) -> None:
        """Others know this term, in which this peer is to be root. If another takes the topic, it had no events."""
        if topic in self.offers:
            self.offers[topic] = self.offers[topic]._replace(noted=term)

    def take_offer(self, tree: Tree) -> Offer | None:
        """Return what was transferred to this peer, which becomes the topic's root.

        If the peer that was to follow left or died first, that is what this peer itself said as the former root.
        """
        self.intake.successors.forget(tree.topic)
        offer, own = self.offers.pop(tree.topic, None), self.vouched.pop(tree.topic, None)
        if offer is None and own is not None and own.told_at > self.host.now() - self.config.lease_s:
            offer = self._offer(tree, self.host.contact, _without(self.host.contact, own.message))
        return offer

    def take_over(self, tree: Tree, root: Root, offer: Offer) -> None:
        """Continue from what the former root knew."""
        self._wait_for_named(tree, root, offer)
        root.take_frontiers(dict(offer.message.frontiers))

    def _wait_for_named(self, tree: Tree, root: Root, offer: Offer) -> None:
        speak = [move for child in tree.leases.children.values() for move in child.speaks_for]
        send = [Move(node, child.number) for node, child in tree.leases.children.items() if child.sends_only]
        arrived = [
            move for child in tree.leases.children.values() for move in (child.move, *child.word.arrivals) if move
        ]
        root.follow((*offer.message.followed, offer.term)[-FOLLOWED_MAX:])
        latest = self.membership.moves.latest(tree.topic)
        root.wait_for(offer.leases, offer.hold_until, (latest, *tree.leases.ends, *speak, *send), (latest, *arrived))


def _has_rival(tree: Tree, message: TransferLeadership) -> bool:
    """Whether this peer was in the tree of another root, whose leases the transferring root did not know.

    A root knows how far terms before its own went, and its own counter is higher by at least one.
    """
    told = {**{term: end for term, end, _ in (*message.forgotten, *message.past)}, message.term: NUMBER_MAX}
    here = dict(tree.flow.past.ends())
    if tree.flow.begun and tree.root is None:
        here[tree.term] = max(tree.known_end, here.get(tree.term, 0))
    return any(
        end > told.get(term, 0) or (term.counter == message.term.counter and term not in told)
        for term, end in here.items()
        if not term.of_source
    )


def _numbered(message: TransferLeadership | AnotherFollows) -> dict[bytes, int]:
    """Return the peers to wait for that a message names, with the known numbers of their last moves."""
    return dict(zip(message.leases, (*message.lives, *[0] * len(message.leases)), strict=False))


def _without(to: Contact, message: TransferLeadership) -> TransferLeadership:
    """Return the message for the next root, which does not wait for itself."""
    leases = _numbered(message)
    leases.pop(to.node_id, None)
    return msgspec.structs.replace(message, leases=tuple(leases), lives=tuple(leases.values()))


def _followed_by(message: TransferLeadership, term: Term) -> TransferLeadership:
    """Return what the root of a later term without events would say."""
    last = (message.term, message.index, message.there_ms)
    past = (*message.past[1 - 2 * ENDS_TOLD_MAX :], last) if message.index else message.past
    followed = (*message.followed, message.term)[-FOLLOWED_MAX:]
    return msgspec.structs.replace(message, term=term, index=0, stable=0, past=past, followed=followed, there_ms=0)
