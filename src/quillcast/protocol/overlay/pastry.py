"""One peer's part in the ring: messages are routed to the live peer closest to a key (Pastry; Scribe, section 2)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol

from quillcast.core.errors import Malformed
from quillcast.core.host import Host
from quillcast.core.ids import NodeId, number, ring_distance, shared_digits
from quillcast.core.messages import Codec, Contact, Message
from quillcast.core.trace import Activated, Mark
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.agreement import Agreement, ProbesDue
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.joining import Joining, JoinLate
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lostpeers import LostPeers, ProbeLost
from quillcast.protocol.overlay.messages import (
    Announce,
    Direct,
    JoinReply,
    LeafSetDigest,
    LeafSetProbe,
    LeafSetReply,
    Leaving,
    MemberLost,
    Routed,
    RoutedAck,
    Row,
    RowRequest,
    State,
    StateRequest,
)
from quillcast.protocol.overlay.neighbourhood import NeighbourhoodSet
from quillcast.protocol.overlay.router import AckDue, Router
from quillcast.protocol.overlay.routingtable import UNKNOWN, RoutingTable
from quillcast.protocol.overlay.upkeep import Maintain, Upkeep

_COMPANY = 8  # peers asked at once by one that lost all its members; a guess


_HANDLERS: dict[type[Message], Callable[["Pastry"], Callable[[Contact, Any], None]]] = {
    Routed: attrgetter("router.accept"),
    RoutedAck: attrgetter("router.acknowledged"),
    Direct: attrgetter("router.arrived"),
    LeafSetProbe: attrgetter("agreement.probed"),
    LeafSetReply: attrgetter("agreement.replied"),
    LeafSetDigest: attrgetter("agreement.compared"),
    MemberLost: attrgetter("agreement.told_lost"),
    Leaving: attrgetter("member_leaves"),
    StateRequest: attrgetter("joining.requested"),
    State: attrgetter("joining.state"),
    JoinReply: attrgetter("joining.reply"),
    Announce: attrgetter("upkeep.announced"),
    RowRequest: attrgetter("upkeep.requested"),
    Row: attrgetter("upkeep.row"),
}
_TIMERS: dict[type, Callable[["Pastry"], Callable[[Any], None]]] = {
    AckDue: attrgetter("router.ack_due"),
    ProbesDue: attrgetter("agreement.due"),
    Maintain: attrgetter("upkeep.maintain"),
    ProbeLost: attrgetter("lost_peers.due"),
    JoinLate: attrgetter("joining.late"),
}


class Application(Protocol):
    """What Pastry calls (Scribe, section 2.3)."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None:
        """No live peer is closer to the key; or the message was sent here by address, and `key` is this peer's id."""
        ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        """The message is about to go on to `next_hop`: change it, redirect it, or stop it with None."""
        ...

    def leaf_set_changed(self) -> None:
        """A peer entered or left the leaf set of this active peer, or it became active."""
        ...


class NoApplication:
    """Lets every message pass, and what arrives ends here."""

    def deliver(self, message: Any, key: bytes, source: Contact) -> None: ...

    def forward(self, message: Any, key: bytes, next_hop: Contact, source: Contact) -> tuple[Message, Contact] | None:
        return message, next_hop

    def leaf_set_changed(self) -> None: ...


class Pastry:
    """Routes messages to the closest live peer; what it knows stands in its three tables.

    The parts that keep these right each have a file: agreement, joining, router, upkeep, lostpeers.
    """

    def __init__(self, host: Host, config: OverlayConfig, neighbours: Neighbours, codec: Codec) -> None:
        """`codec` encodes the messages that travel inside `Routed`: every layer's, and this one's `JoinRequest`."""
        self.host, self.config, self.neighbours, self.codec = host, config, neighbours, codec
        self.application: Application = NoApplication()
        self.active = self.left = False
        self.leaf_set = LeafSet(host.me, config.leaf_set_size)
        self.routing_table = RoutingTable(host.me, config.digit_bits)
        self.neighbourhood = NeighbourhoodSet(config.neighbourhood_size)
        self.acquaintances: dict[bytes, Contact] = {}  # who spoke to this layer, those that did last come last
        self.goodbyes: dict[bytes, None] = {}  # who left in good order, and has not spoken since
        self.lost_peers = LostPeers(self)
        self.agreement = Agreement(self)
        self.upkeep = Upkeep(self)
        self.joining = Joining(self)
        self.router = Router(self)

    # What applications and the peer call

    def join(self, contacts: Sequence[Contact]) -> None:
        """Enter the ring through the nearest of these peers; without contacts, be its first peer.

        After a restart, give it what `remembered` said before.
        """
        self.joining.start(contacts)

    def leave(self) -> None:
        """Tell the leaf set goodbye. This peer answers nobody from then on."""
        self.agreement.leave()
        self.router.leave()
        self.active, self.left = False, True

    def remembered(self) -> list[Contact]:
        """Whom to join through after a restart: the leaf set, then other peers, at most `remembered_max`."""
        # A peer that never became active keeps what it was given.
        tables = (self.leaf_set, self.neighbourhood, self.routing_table, self.lost_peers, self.joining)
        everybody = (*tables, self.acquaintances.values())
        known = {contact.node_id: contact for contact in chain.from_iterable(everybody)}
        return list(known.values())[: self.config.remembered_max]

    def route(self, message: Message, key: bytes) -> None:
        """Bring a message to the live peer closest to the key, which may be this one: then it is delivered at once.

        Before this peer is active the message waits. Raises `NotJoined` if too many wait.
        """
        self.router.route(message, key)

    def send(self, message: Message, to: Contact) -> None:
        """Bring a message to one peer, if it lives; its application's `deliver` gets it (Scribe, section 2.3)."""
        self.host.send(to, Direct(self.codec.encode(message)))

    def is_closest(self, key: bytes) -> bool:
        """Is no live leaf-set member closer to the key than this active peer?"""
        return self.active and self.leaf_set.closest(number(key)) is None

    def is_joining(self, contact: Contact) -> bool:
        """Does a member of the leaf set answer for no keys yet? What is routed to it waits until it does."""
        return contact.node_id in self.agreement.joining

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Out of the leaf set and this peer, the `count` closest to the key, closest first."""
        known = [self.host.contact, *self.leaf_set]
        return sorted(known, key=lambda contact: (ring_distance(contact.node_id, key), contact.node_id))[:count]

    def closest_lately(
        self, key: bytes, count: int, since: float, *, met: bool = False
    ) -> list[tuple[Contact, float | None]]:
        """The `count` that are closest to the key, or were: those lost since a time are among them, with that time.

        `met`: but for those that were never there.
        """
        known: list[tuple[Contact, float | None]] = [(contact, None) for contact in (self.host.contact, *self.leaf_set)]
        known += self.lost_peers.since(since, met=met)
        return sorted(known, key=lambda peer: (ring_distance(peer[0].node_id, key), peer[0].node_id))[:count]

    def introduce(self, contact: Contact) -> None:
        """A peer is heard of: if it belongs in the leaf set it is asked, and enters once it answers."""
        if self.active:
            self.agreement.consider((contact,))

    def next_hop(self, key: bytes) -> Contact | None:
        """Where a message to this key goes from here; None if it has arrived."""
        return self.hop(key)

    # What the peer hands in

    def heard(self, sender: Contact) -> None:
        """Some layer's message came: a peer that counted as lost lives."""
        if sender.node_id in self.lost_peers:
            self.recovered(sender)

    def receive(self, sender: Contact, message: Any) -> None:
        """A message of this layer arrived; one that left in good order answers nobody."""
        if self.left:
            return
        self.upkeep.visited(sender.node_id)
        self._meet(sender)
        handle = _HANDLERS.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} only makes sense when it is routed")
        handle(self)(sender, message)

    def _meet(self, contact: Contact) -> None:
        """Remember who spoke last, be it in no table any more: it may be all that a lonely peer can reach."""
        self.goodbyes.pop(contact.node_id, None)
        self.acquaintances.pop(contact.node_id, None)
        self.acquaintances[contact.node_id] = contact
        if len(self.acquaintances) > self.config.remembered_max:
            del self.acquaintances[next(iter(self.acquaintances))]

    def timer(self, timer: Any) -> None:
        if self.left:
            return
        _TIMERS[type(timer)](self)(timer)

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """A measurement that this layer, or another, had asked for is done."""
        if self.left:
            return
        if self.active or self.joining.replied:
            self.upkeep.measured(contact, proximity)
        self.joining.measured(contact)

    def lost(self, contact: Contact) -> None:
        """A neighbour is silent for good (NeighbourListener)."""
        if self.left:
            return
        if contact.node_id in self.leaf_set or contact.node_id in self.routing_table:
            self.lost_peers.remember(contact, met=contact.node_id not in self.goodbyes)
        self.upkeep.lost(contact)
        self.agreement.lost(contact)
        self.router.lost(contact.node_id)

    def recovered(self, contact: Contact) -> None:
        """A lost peer spoke (NeighbourListener): a split may have healed, so look for everything beyond it."""
        if self.left or not self.lost_peers.forget(contact.node_id):
            return
        self.host.trace(Mark("ring_merge"))
        if self.leaf_set.fits(contact.node_id):
            self.agreement.probe(contact)
        elif self.active:
            self.joining.look_up(contact)
        self.lost_peers.ask_all()

    def member_leaves(self, sender: Contact, leaving: Leaving) -> None:
        """A peer said goodbye. Others may still name it: it is not lost then, if it does not answer."""
        self.goodbyes[sender.node_id] = None
        if len(self.goodbyes) > self.config.remembered_max:
            del self.goodbyes[next(iter(self.goodbyes))]
        self.upkeep.lost(sender)
        self.lost_peers.forget(sender.node_id)
        self.agreement.left(sender, leaving)
        self.router.lost(sender.node_id)

    # What its parts ask of each other

    def activate(self) -> None:
        """The leaf set agrees: this peer is part of the ring, and answers for its keys from now on."""
        self.active = True
        self.host.trace(Activated(len(self.leaf_set)))
        self.joining.done()
        self.upkeep.start()
        self.application.leaf_set_changed()
        self.router.release_held()

    def settle(self) -> None:
        """Become active once the closest peer has answered and, after it, every member of the leaf set."""
        if not self.active and self.joining.replied and self.agreement.settled and len(self.leaf_set):
            self.activate()

    def changed(self) -> None:
        """A peer entered or left the leaf set."""
        if self.active:
            self.application.leaf_set_changed()

    def seek_company(self) -> None:
        """All members on a side were lost: look for this peer's place through some of those it ever knew."""
        known = self.remembered()
        for contact in self.host.random.sample(known, min(len(known), _COMPANY)):
            self.host.trace(Mark("sought_company"))
            self.joining.look_up(contact)

    def readdress(self, contact: Contact) -> None:
        """A peer is reached elsewhere now."""
        self.routing_table.readdress(contact)
        self.neighbourhood.readdress(contact)

    def proximity(self, node_id: bytes) -> float:
        """Seconds of round trip to a peer, as measured by the host or by the failure detector; else `UNKNOWN`."""
        measured = self.host.proximity(NodeId(node_id))
        if measured is None:
            measured = self.neighbours.round_trip(node_id)
        return UNKNOWN if measured is None else measured

    def doubt(self, contact: Contact) -> None:
        """Ask a peer for a sign of life, with the patience that its distance takes, measured here or told."""
        self.neighbours.probe(contact, self.routing_table.told(contact.node_id))

    def covers(self, key: bytes) -> bool:
        """Is the closest peer to the key this one, or in its leaf set?"""
        return self.leaf_set.covers(number(key))

    def hop(self, key: bytes, but: Collection[bytes] = ()) -> Contact | None:
        """The next hop `but` for some peers; None if the message has arrived (Scribe, section 2).

        First the leaf set; else the table's peer with a longer prefix; else any known with as long a prefix and closer.
        """
        value = number(key)
        if self.leaf_set.covers(value):
            return self.leaf_set.closest(value, but)
        entry = self.routing_table.lookup(value)
        if entry is None or entry.contact.node_id in but:
            return self._best(key, chain(self.leaf_set, self.routing_table), but)
        if self.neighbours.suspected(entry.contact.node_id):
            return self.around(key, but) or entry.contact
        return entry.contact

    def around(self, key: bytes, silent: Collection[bytes]) -> Contact | None:
        """Another way than over the silent peers, by anybody known at all."""
        return self._best(key, chain(self.leaf_set, self.routing_table, self.neighbourhood), silent)

    def _best(self, key: bytes, known: Iterable[Contact], but: Collection[bytes]) -> Contact | None:
        """Out of those with a longer prefix of the key, or as long a prefix and closer, who is farthest on the way."""
        value = number(key)
        mine = self.routing_table.shared(value)
        best: tuple[int, int, bytes] = (-mine, ring_distance(self.host.me, key), self.host.me)
        contact = None
        for peer in known:
            node_id = peer.node_id
            rank = (-shared_digits(node_id, key, self.config.digit_bits), ring_distance(node_id, key), node_id)
            if rank < best and node_id not in but and not self.neighbours.suspected(node_id):
                best, contact = rank, peer
        return contact

    def check(self) -> None:
        """Raise AssertionError if something is not as it must be inside this layer."""
        for part in (
            self.leaf_set,
            self.routing_table,
            self.neighbourhood,
            self.lost_peers,
            self.agreement,
            self.router,
        ):
            part.check()
