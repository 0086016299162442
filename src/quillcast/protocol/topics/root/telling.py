"""What a peer told the next roots of its topics: if it leaves, one of them must confirm that, and get the bundles.

A next root that leaves before it is root, or knows a closer peer, is followed by another one, which is told instead.
"""

from collections.abc import Iterable

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.successors import TOPICS_MAX, Successors
from quillcast.protocol.topics.root.last_words import numbered, without
from quillcast.protocol.topics.root_messages import (
    AnotherFollows,
    TransferLeadership,
    Transferred,
    TransferRefused,
)
from quillcast.protocol.topics.state.effects import LeaveIfIdle
from quillcast.protocol.topics.state.link_reports import MoveCount
from quillcast.protocol.topics.trees import Trees


class PendingTransfer:
    """What a peer told others of a topic. If it leaves, one of them must confirm that, and get the bundles."""

    def __init__(self, message: TransferLeadership, root: Contact | None = None) -> None:
        """`root`: the root that said it, if that is another peer."""
        self.message, self.root = message, root
        self.told: dict[bytes, None] = {}
        self.told_at = 0.0  # when the last of them was told
        self.to: Contact | None = None  # the peer that has confirmed
        self.bundles: list[Bundle] = []
        self.carried = 0  # how many of them that peer was sent


class Telling:
    """Tells next roots what this peer knows of the topics that it transfers to them."""

    __slots__ = ("config", "dispatch", "host", "moves", "overlay", "pending", "successors", "trees", "vouched")

    def __init__(
        self, host: Host, config: TopicConfig, overlay: Pastry, trees: Trees, moves: MoveCount, successors: Successors,
        dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.config, self.overlay, self.trees = host, config, overlay, trees
        self.moves, self.successors, self.dispatch = moves, successors, dispatch
        self.pending: dict[bytes, PendingTransfer] = {}
        self.vouched: dict[bytes, PendingTransfer] = {}  # what this peer last told about its own ended terms
        dispatch.on_message(AnotherFollows, self._another_follows)
        dispatch.on_message(Transferred, self.confirmed)
        dispatch.on_message(TransferRefused, self._refused)

    def tell(self, to: Contact, message: TransferLeadership, bundles: Iterable[Bundle] = ()) -> None:
        """Tell the next root what this one knows.

        If this peer leaves, it stays until the next root has confirmed that, and has received these bundles.
        """
        transfer = self.vouch(message)
        if self.trees.leaving and self.is_to_be_heard(message):
            self.pending[message.descriptor.topic] = transfer
            transfer.bundles = [*bundles]
        self.tell_transfer(to, transfer)

    def pass_on(self, transfer: PendingTransfer, bundles: Iterable[Bundle]) -> None:
        """Tell another peer what was told to this one, which leaves before it is root, with the copies."""
        if self.is_to_be_heard(transfer.message):
            self.pending[transfer.message.descriptor.topic] = transfer
            transfer.bundles = [*bundles]
            self._tell_next(transfer)

    def vouch(self, message: TransferLeadership) -> PendingTransfer:
        """Note what this peer tells about a term of its own."""
        self._forget_old()
        transfer = self.vouched[message.descriptor.topic] = PendingTransfer(message)
        return transfer

    def is_to_be_heard(self, message: TransferLeadership) -> bool:
        """Whether the topic had any events, or this peer has still to say farewell."""
        return bool(message.index or message.past or self.host.me in message.leases)

    def tell_transfer(self, to: Contact, transfer: PendingTransfer) -> None:
        """Tell this to a peer, which is to be the next root."""
        topic = transfer.message.descriptor.topic
        if self.vouched.get(topic) is transfer:
            self.vouched[topic] = self.vouched.pop(topic)
        transfer.told[to.node_id], transfer.told_at = None, self.host.now()
        transfer.to, transfer.carried = None, 0
        self._say(to, transfer.message, transfer.root)

    def _say(self, to: Contact, message: TransferLeadership, root: Contact | None) -> None:
        """Send a root's transfer to another peer. Only the root itself is believed, so it is asked to send it too.

        It does not know the peers that follow in this peer's place, so they are named to it.
        """
        if root is not None:
            topic = message.descriptor.topic
            self.host.send(root, AnotherFollows(topic, message.term, to, *self.here(topic)))
        self.host.send(to, without(to, message))

    def here(self, topic: bytes) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
        """Return what to wait for in this peer's place, for `AnotherFollows`: itself with all below it, if any."""
        tree = self.trees.by_topic.get(topic)
        if tree is None or not (tree.receives or tree.leases.orphaned):
            return (), ()
        return (self.host.me,), (self.moves.of(topic),)

    def _another_follows(self, sender: Contact, message: AnotherFollows) -> None:
        """The next root leaves before it is root, or knows a closer peer: tell that one instead."""
        transfer = self.vouched.get(message.topic)
        if transfer is None or transfer.message.term != message.term or sender.node_id not in transfer.told:
            return
        said = transfer.message
        leases = numbered(said)
        leases.pop(sender.node_id, None)
        leases |= numbered(message)
        transfer.message = msgspec.structs.replace(said, leases=tuple(leases), lives=tuple(leases.values()))
        tree = self.trees.by_topic.get(message.topic)
        if tree is not None and self.trees.leaving:
            tree.may_turn_to((message.root,))
        if message.root.node_id != self.host.me:
            self.successors.note(message.topic, message.root)
            self.tell_transfer(message.root, transfer)

    def _forget_old(self) -> None:
        """Forget transfers of a lease ago: they no longer matter."""
        before = self.host.now() - self.config.lease_s
        for topic, transfer in list(self.vouched.items()):
            if transfer.told_at > before and len(self.vouched) < TOPICS_MAX:
                break
            del self.vouched[topic]

    def take_vouched(self, topic: bytes) -> TransferLeadership | None:
        """Take out what this peer itself told as the former root, unless that no longer matters."""
        own = self.vouched.pop(topic, None)
        return own.message if own is not None and own.told_at > self.host.now() - self.config.lease_s else None

    def tell_others(self) -> None:
        """Transfer to the next closest peer, if any: a successor that does not confirm may have left as well."""
        for transfer in list(self.pending.values()):
            if transfer.to is not None:
                self._carry_more(transfer, transfer.to)
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
        self.successors.note(topic, to)
        self.tell_transfer(to, transfer)

    def confirmed(self, sender: Contact, message: Transferred) -> None:
        """Another peer has confirmed that it knows this peer's state of a topic, if it was told."""
        transfer = self.pending.get(message.topic)
        is_told = transfer is not None and sender.node_id in transfer.told
        if transfer is not None and is_told and transfer.message.term == message.term and transfer.to is None:
            transfer.to = sender
            self._carry_more(transfer, sender)
            self._part(message.topic, (sender,))

    def _carry_more(self, transfer: PendingTransfer, to: Contact) -> None:
        rest = carry(self.host, to, transfer.bundles[transfer.carried :])
        transfer.carried = len(transfer.bundles) - len(rest)
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
            self.dispatch.order(LeaveIfIdle(topic))


def carry(host: Host, to: Contact, bundles: list[Bundle]) -> list[Bundle]:
    """Send as many bundles as there is room for. Return the rest."""
    for at, bundle in enumerate(bundles):
        if host.room(to) <= 0:
            return bundles[at:]
        host.carry(to, bundle)
    return []
