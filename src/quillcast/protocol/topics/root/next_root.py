"""How a peer becomes the root of topics that were transferred to it, with what their former roots knew."""

from itertools import chain, repeat

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import Mark
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.known.successors import Successors
from quillcast.protocol.topics.known.terms import Terms
from quillcast.protocol.topics.root.last_words import numbered, without
from quillcast.protocol.topics.root.offers import Offer, Offers
from quillcast.protocol.topics.root.telling import Telling
from quillcast.protocol.topics.root_messages import FOLLOWED_MAX, TransferLeadership
from quillcast.protocol.topics.state.effects import BecomeRoot, FindParent, LaterTermExists
from quillcast.protocol.topics.state.holders import Ended
from quillcast.protocol.topics.state.link_reports import Move, MoveCount
from quillcast.protocol.topics.state.root import Root
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees


class NextRoot:
    """Takes topics that other peers transfer to this one."""

    __slots__ = ("dispatch", "inherited", "known", "offers", "successors", "taking_over", "trees")

    def __init__(
        self, known: KnownTopics, trees: Trees, offers: Offers, successors: Successors, inherited: "InheritedTerms",
        taking_over: "TakingOver", dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.known, self.trees, self.offers, self.successors = known, trees, offers, successors
        self.inherited, self.taking_over, self.dispatch = inherited, taking_over, dispatch
        dispatch.on_message(TransferLeadership, self._transferred)

    def take_offer(self, tree: Tree) -> Offer | None:
        """Return what was transferred to this peer, which becomes the topic's root.

        If the peer that was to follow left or died first, that is what this peer itself said as the former root.
        """
        self.successors.forget(tree.topic)
        return self.taking_over.or_own(tree, self.offers.take(tree.topic))

    def take_over(self, tree: Tree, root: Root, offer: Offer) -> None:
        """Continue from what the former root knew."""
        self.taking_over.take_over(tree, root, offer)

    def _transferred(self, sender: Contact, message: TransferLeadership) -> None:
        if not self.offers.refuses(sender, message):
            self.received(sender, message)
            self.offers.confirm(sender, message)

    def received(self, sender: Contact, message: TransferLeadership) -> None:
        """A topic was transferred to this peer: become its root, or keep the last root's state for another."""
        self.known.learn(message.descriptor)
        if message.rival is not None:
            self.known.learn(message.rival)
        tree = self.trees.open(self.known.descriptors[message.descriptor.topic])
        self.inherited.note(tree, message)
        offer = self.taking_over.offer(tree, sender, message)
        self.inherited.note_ended(tree, offer.root, message)
        self.known.enter(tree.topic, tree.heard)
        if tree.root is None:
            self.offers.keep(offer)
            self.inherited.enter(tree, message)
        self.inherited.recall_past(tree, sender, message)
        if tree.root is not None:
            self.taking_over.merge(tree, tree.root, offer, message)
        elif self.offers.is_for_this_peer(tree.topic):
            self.dispatch.order(BecomeRoot(tree.topic, "transferred" if offer.root is not None else "took_over"))
        self.inherited.recall(tree, message)
        if not tree.attached and tree.needed and not tree.joining:
            self.dispatch.order(FindParent(tree.topic))


class InheritedTerms:
    """Enters what a former root knew of the topic's terms, streams and peers into the tree."""

    __slots__ = ("host", "leave_s", "schedule", "source_streams", "terms")

    def __init__(
        self, host: Host, leave_s: float, terms: Terms, schedule: Schedule, source_streams: SourceStreams
    ) -> None:
        self.host, self.leave_s, self.terms = host, leave_s, terms
        self.schedule, self.source_streams = schedule, source_streams

    def note(self, tree: Tree, message: TransferLeadership) -> None:
        """Note the terms that the former root had heard of."""
        self.terms.note(tree, message.term, message.heard)

    def note_ended(self, tree: Tree, root: Contact | None, message: TransferLeadership) -> None:
        """Note peers that left lately, if the former root itself names them. The tree is remembered for a while."""
        if root is not None:
            self._note_ended(tree, root, message)
        if tree.leases.ended:
            self.schedule.touch(tree)
            self.schedule.wake(tree)

    def _note_ended(self, tree: Tree, root: Contact, message: TransferLeadership) -> None:
        """Note peers that left lately. This peer or that root may be among them, and have restarted since.

        That root may also have left after it sent this, if others send it later, or it arrives late by a slow path.
        """
        until = self.host.now() + 2 * self.leave_s
        for node, last in zip(message.ended, chain(message.ended_by, repeat(0)), strict=False):
            if node != self.host.me and node not in message.leases:
                tree.open_leases().note_ended(node, Ended(until, Move(node, last) if last else None))
        number, ended = numbered(message).get(root.node_id), tree.leases.ended.get(root.node_id)
        has_left = ended is not None and ended.move is not None and ended.move.follows(Move(root.node_id, number or 0))
        if number is not None and not has_left:
            tree.leases.is_back(root.node_id)

    def enter(self, tree: Tree, message: TransferLeadership) -> None:
        """Keep the ended term, whose buffer follows: it may be the last copy, whether this peer is root or not."""
        if message.index or message.past:
            self.terms.keep(tree)
        begins = message.term > tree.term
        if begins:
            self.terms.enter(tree, message.term, 0)
        if message.term == tree.term:
            tree.inherit(message.term, message.index, whole=begins)

    def recall_past(self, tree: Tree, sender: Contact, message: TransferLeadership) -> None:
        """Note how far earlier terms and streams went."""
        for term, end, there_ms in message.past:
            self.terms.recall(tree, term, end, there_ms)
        tree.flow.note_forgotten(message.forgotten, self.host.now())
        self.source_streams.learn_ends(tree, message.streams, sender)

    def recall(self, tree: Tree, message: TransferLeadership) -> None:
        """Note how far the term went that ended."""
        self.terms.recall(tree, message.term, message.index, message.there_ms)


class TakingOver:
    """Judges what former roots say, and continues as root from that."""

    __slots__ = ("config", "dispatch", "host", "moves", "replica_set", "schedule", "telling")

    def __init__(
        self, host: Host, config: TopicConfig, replica_set: ReplicaSet, moves: MoveCount, schedule: Schedule,
        telling: Telling, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.replica_set, self.moves = host, config, replica_set, moves
        self.schedule, self.telling, self.dispatch = schedule, telling, dispatch

    def offer(self, tree: Tree, sender: Contact, message: TransferLeadership) -> Offer:
        """Return a transfer as an offer; only the term's own root, as sender, is believed about peers to wait for.

        A peer that is far from the topic cannot have been its root.
        """
        own = self.telling.vouched.get(tree.topic)
        if own is not None and own.message.term == message.term:
            sender, message = self.host.contact, without(self.host.contact, own.message)  # the topic comes back
        vouched = message.term.is_of(sender.node_id) and self.replica_set.is_near(tree.topic, sender.node_id)
        if not vouched:
            self.host.trace(Mark("transfer_passed_on"))
        hold_s = self.config.lease_s if not vouched or _has_rival(tree, message) else message.hold_s
        return Offer(message, self.host.now() + min(hold_s, self.config.lease_s), sender if vouched else None)

    def or_own(self, tree: Tree, offer: Offer | None) -> Offer | None:
        """Return this offer; if there is none, what this peer itself said as the former root."""
        own = self.telling.take_vouched(tree.topic)
        if offer is not None or own is None:
            return offer
        return self.offer(tree, self.host.contact, without(self.host.contact, own))

    def merge(self, tree: Tree, root: Root, offer: Offer, message: TransferLeadership) -> None:
        """This peer is root already."""
        self.host.trace(Mark("roots_merged"))
        if message.leases:
            root.was_used(message.term)
        if tree.heard > root.term:
            self.dispatch.order(LaterTermExists(tree.topic))
        else:
            self._hear_late(tree, root, offer)

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
            self.schedule.touch(tree)

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
        latest = self.moves.latest(tree.topic)
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
