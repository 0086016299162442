"""Topics that were transferred to this peer, until it is their root or another peer is to be."""

from typing import NamedTuple

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.known.known import KnownTopics
from quillcast.protocol.topics.membership.membership import TreeMembership
from quillcast.protocol.topics.root.last_words import followed_by, numbered
from quillcast.protocol.topics.root.telling import PendingTransfer, Telling
from quillcast.protocol.topics.root_messages import TransferLeadership, Transferred, TransferRefused
from quillcast.protocol.topics.state.link_reports import reaches
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.trees import Trees


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
        return numbered(self.message)


class Offers:
    """The topics that were transferred to this peer and that it is not root of yet."""

    __slots__ = ("by_topic", "host", "known", "membership", "overlay", "source_streams", "telling", "trees")

    def __init__(
        self, host: Host, overlay: Pastry, known: KnownTopics, trees: Trees, source_streams: SourceStreams,
        membership: TreeMembership, telling: Telling,
    ) -> None:  # fmt: skip
        self.host, self.overlay, self.known, self.trees = host, overlay, known, trees
        self.source_streams, self.membership, self.telling = source_streams, membership, telling
        self.by_topic: dict[bytes, Offer] = {}
        known.spare(self.by_topic)

    def refuses(self, sender: Contact, message: TransferLeadership) -> bool:
        """Whether this peer is not to have the topic. The sender will tell another peer."""
        if self.overlay.outside and not message.descriptor.settings.root_scope:
            return True  # it was meant for a member of the ring, and the sender learns that this peer is none
        if self.trees.leaving:
            self.host.send(sender, TransferRefused(message.descriptor.topic, message.term))
            return True
        return bool(self.known.misplaced(message.descriptor) or self.known.crowded(message.descriptor.topic))

    def confirm(self, sender: Contact, message: TransferLeadership) -> None:
        """Tell the sender that this peer has its message."""
        self.host.send(sender, Transferred(message.descriptor.topic, message.term))

    def is_for_this_peer(self, topic: bytes) -> bool:
        """Whether this peer is to be the topic's root now."""
        return self.overlay.active and self.overlay.is_closest(topic)

    def keep(self, offer: Offer) -> None:
        """Keep an offer until this peer is root, unless a better one is known.

        What the root itself says is better than what others pass on, and a later term better than an earlier one.
        """
        topic = offer.message.descriptor.topic
        former = self.by_topic.get(topic)
        is_own = offer.root is not None and (former is None or former.term <= offer.term)
        if is_own or former is None or former.root is None or former.term < offer.term:
            is_same = former is not None and former.term == offer.term
            self.by_topic[topic] = offer._replace(noted=former.noted) if former is not None and is_same else offer

    def keep_own(self, message: TransferLeadership) -> None:
        """Keep what this peer tells itself, because it is to be the topic's next root, too."""
        hold_until = self.host.now() + message.hold_s
        self.by_topic[message.descriptor.topic] = Offer(message, hold_until, self.host.contact)

    def take(self, topic: bytes) -> Offer | None:
        """Take out a topic's offer: this peer becomes root."""
        return self.by_topic.pop(topic, None)

    def note_term(self, topic: bytes, term: Term) -> None:
        """Others know this term, in which this peer is to be root. If another takes the topic, it had no events."""
        if topic in self.by_topic:
            self.by_topic[topic] = self.by_topic[topic]._replace(noted=term)

    def leaf_set_changed(self) -> None:
        """Pass on topics that were transferred to this peer, if another one is now closer."""
        if not self.overlay.active:
            return
        for topic, offer in list(self.by_topic.items()):
            if not self.overlay.is_closest(topic) and (closest := self.overlay.closest(topic, 1)):
                del self.by_topic[topic]
                self.known.done_with(topic)
                self.telling.tell_transfer(closest[0], self._in_turn(offer))

    def leave(self) -> None:
        """Pass topics that were transferred to this peer, which is not root yet, to another peer, with the copies."""
        for topic, offer in list(self.by_topic.items()):
            del self.by_topic[topic]
            transfer = self._in_turn(offer)
            self.telling.pass_on(transfer, self._copies(offer.message))

    def _copies(self, message: TransferLeadership) -> list[Bundle]:
        """Return bundles of an ended term, and of those before it, that are kept here and may be needed."""
        tree = self.trees.by_topic.get(message.descriptor.topic)
        if tree is None:
            return []
        unstable = holding(tree.flow, message.term, [(message.stable, message.index)])
        return [*unstable, *self.membership.last_copies(tree)]

    def _in_turn(self, offer: Offer) -> PendingTransfer:
        """Return what this peer, which is not to become root, tells the one that is.

        If others know the term that this peer was to have, it speaks as that term's root: nothing was admitted in it.
        """
        if offer.root is None or offer.noted <= offer.term:
            return PendingTransfer(self._passed_on(offer), offer.root)
        topic, leases = offer.message.descriptor.topic, offer.leases
        named, numbers = self.telling.here(topic)
        leases |= dict(zip(named, numbers, strict=True))
        tree = self.trees.by_topic.get(topic)
        ends = {move.peer: move.number for move in tree.leases.ends} if tree is not None else {}
        leases = {node: each for node, each in leases.items() if node not in ends or not reaches(ends[node], each)}
        message = msgspec.structs.replace(
            followed_by(offer.message, offer.noted), hold_s=max(0.0, offer.hold_until - self.host.now()),
            leases=tuple(leases), lives=tuple(leases.values()), streams=self._passed_on(offer).streams,
        )  # fmt: skip
        return self.telling.vouch(message)

    def _passed_on(self, offer: Offer) -> TransferLeadership:
        """Return the former root's transfer for another peer, limited to what that peer accepts from this one."""
        tree = self.trees.by_topic.get(offer.message.descriptor.topic)
        streams = self.source_streams.ended(tree) if tree is not None else offer.message.streams
        return msgspec.structs.replace(
            offer.message, leases=(), lives=(), frontiers=(), ended=(), ended_by=(), streams=streams
        )
