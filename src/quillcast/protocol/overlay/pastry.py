"""One peer's part in the ring: messages are routed to the live peer closest to a key (Pastry; Scribe, section 2)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from quillcast.core.errors import Malformed
from quillcast.core.host import Host, Timer
from quillcast.core.ids import number, ring_distance
from quillcast.core.messages import Codec, Contact, Message
from quillcast.core.trace import Activated, Mark
from quillcast.protocol.neighbours.neighbours import Neighbours
from quillcast.protocol.overlay.agreement import Agreement, ProbesDue
from quillcast.protocol.overlay.application import Application
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.effects import (
    Activate,
    Effect,
    FirstState,
    Introduced,
    JoinThrough,
    MembersChanged,
    SearchRing,
    Settled,
)
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.joinhelp import JoinHelp
from quillcast.protocol.overlay.joining import JoinLate, OverlayJoin, look_up
from quillcast.protocol.overlay.lazyrepair import LazyRepair
from quillcast.protocol.overlay.leafset import LeafSet
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.lostpeers import LostPeers, ProbeLost
from quillcast.protocol.overlay.maintenance import Maintenance, MaintenanceDue
from quillcast.protocol.overlay.messages import (
    Announce,
    Direct,
    JoinReply,
    JoinRequest,
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
from quillcast.protocol.overlay.nexthop import NextHop
from quillcast.protocol.overlay.router import AckDue, Router
from quillcast.protocol.overlay.routingtable import RoutingTable

_COMPANY = 8  # peers asked at once by one that lost all its members; a guess


_HANDLERS: dict[type[Message], Callable[["Pastry"], Callable[[Contact, Any], Iterable[Effect] | None]]] = {
    Routed: attrgetter("router.accept"),
    RoutedAck: attrgetter("router.acknowledged"),
    Direct: attrgetter("router.arrived"),
    LeafSetProbe: attrgetter("agreement.probed"),
    LeafSetReply: attrgetter("agreement.replied"),
    LeafSetDigest: attrgetter("agreement.compared"),
    MemberLost: attrgetter("agreement.told_lost"),
    Leaving: attrgetter("member_leaves"),
    StateRequest: attrgetter("join_help.requested"),
    State: attrgetter("joining.state"),
    JoinReply: attrgetter("joining.reply"),
    Announce: attrgetter("maintenance.announced"),
    RowRequest: attrgetter("maintenance.requested"),
    Row: attrgetter("maintenance.row"),
}
_TIMERS: dict[type[Timer], Callable[["Pastry"], Callable[[Any], Iterable[Effect] | None]]] = {
    AckDue: attrgetter("router.ack_due"),
    ProbesDue: attrgetter("agreement.due"),
    MaintenanceDue: attrgetter("maintain"),
    ProbeLost: attrgetter("lost_peers.due"),
    JoinLate: attrgetter("joining.late"),
}


TIMERS: tuple[type[Timer], ...] = tuple(_TIMERS)
"""What this layer tells itself later."""


class Pastry:
    """Routes messages to the closest live peer; what it knows stands in its three tables.

    The parts that keep these right each have a file: agreement, joining, joinhelp, router, maintenance, lostpeers. They
    do not know each other by way of this class: what one of them wants of another it yields as an effect, which is
    carried out here at once.
    """

    def __init__(self, host: Host, config: OverlayConfig, neighbours: Neighbours, codec: Codec) -> None:
        """`codec` encodes the messages that travel inside `Routed`: every layer's, and this one's `JoinRequest`."""
        self.host, self.config, self.codec = host, config, codec
        self.lifecycle = lifecycle = Lifecycle()
        self.leaf_set = leaf_set = LeafSet(host.me, config.leaf_set_size)
        self.routing_table = table = RoutingTable(host.me, config.digit_bits)
        self.neighbourhood = around = NeighbourhoodSet(config.neighbourhood_size)
        self.acquaintances: dict[bytes, Contact] = {}  # who spoke to this layer, those that did last come last
        self.goodbyes: dict[bytes, None] = {}  # who left in good order, and has not spoken since
        self.links = links = IdleLinks(neighbours)
        self.distances = distances = Distances(host, neighbours, table)
        repair = LazyRepair(host, table)
        self.lost_peers = lost = LostPeers(host, config, lifecycle, leaf_set)
        self.agreement = Agreement(host, config, neighbours, leaf_set, table, around, lost, distances, lifecycle)
        self.maintenance = Maintenance(host, config, lifecycle, leaf_set, table, around, lost, distances, repair, links)
        self.joining = OverlayJoin(host, config, lifecycle, leaf_set, distances, links, self.acquaintances)
        self.join_help = JoinHelp(host, lifecycle, leaf_set, table, around, links, self.joining)
        self.hops = NextHop(host.contact, config.digit_bits, leaf_set, table, around, neighbours.suspected)
        self.router = Router(host, config, codec, lifecycle, self.hops, distances, repair, links, self.join_help)

    @property
    def active(self) -> bool:
        """Is this peer part of the ring?"""
        return self.lifecycle.active

    @property
    def application(self) -> Application:
        """The layer above."""
        return self.router.application

    @application.setter
    def application(self, application: Application) -> None:
        self.router.application = application

    # What applications and the peer call

    def join(self, contacts: Sequence[Contact]) -> None:
        """Enter the ring through the nearest of these peers; without contacts, be its first peer.

        After a restart, give it what `remembered` said before.
        """
        self._carry_out(self.joining.start(contacts))

    def leave(self) -> None:
        """Tell the leaf set goodbye. This peer answers nobody from then on."""
        self.agreement.leave()
        self.router.leave()
        self.lifecycle.leave()

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
        return self.hops.closest(key, count)

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
        return self.hops.to(key)

    def proximity(self, node_id: bytes) -> float:
        """Seconds of round trip to a peer; `UNKNOWN` if nobody measured it."""
        return self.distances.to(node_id)

    # What the peer hands in

    def heard(self, sender: Contact) -> None:
        """Some layer's message came: a peer that counted as lost lives."""
        if sender.node_id in self.lost_peers:
            self.recovered(sender)

    def receive(self, sender: Contact, message: Any) -> None:
        """A message of this layer arrived; one that left in good order answers nobody."""
        if self.lifecycle.left:
            return
        self.links.visited(sender.node_id)
        self._meet(sender)
        handle = _HANDLERS.get(type(message))
        if handle is None:
            raise Malformed(f"a {type(message).__name__} is valid only as a routed message")
        self._carry_out(handle(self)(sender, message))

    def _meet(self, contact: Contact) -> None:
        """Remember who spoke last, be it in no table any more: it may be all that a lonely peer can reach."""
        self.goodbyes.pop(contact.node_id, None)
        self.acquaintances.pop(contact.node_id, None)
        self.acquaintances[contact.node_id] = contact
        if len(self.acquaintances) > self.config.remembered_max:
            del self.acquaintances[next(iter(self.acquaintances))]

    def timer(self, timer: Any) -> None:
        if self.lifecycle.left:
            return
        self._carry_out(_TIMERS[type(timer)](self)(timer))

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """A measurement that this layer, or another, had asked for is done."""
        if self.lifecycle.left:
            return
        if self.active or self.joining.replied:
            self.maintenance.measured(contact, proximity)
        self._carry_out(self.joining.measured(contact))

    def lost(self, contact: Contact) -> None:
        """A neighbour is silent for good (NeighbourListener)."""
        if self.lifecycle.left:
            return
        if contact.node_id in self.leaf_set or contact.node_id in self.routing_table:
            self.lost_peers.remember(contact, met=contact.node_id not in self.goodbyes)
        self.maintenance.lost(contact)
        self._carry_out(self.agreement.lost(contact))
        self.router.lost(contact.node_id)

    def recovered(self, contact: Contact) -> None:
        """A lost peer spoke (NeighbourListener): a split may have healed, so look for everything beyond it."""
        if self.lifecycle.left or not self.lost_peers.forget(contact.node_id):
            return
        self.host.trace(Mark("ring_merge"))
        if self.leaf_set.fits(contact.node_id):
            self.agreement.probe(contact)
        elif self.active:
            self._look_up(contact)
        self.lost_peers.ask_all()

    def member_leaves(self, sender: Contact, leaving: Leaving) -> None:
        """A peer said goodbye. Others may still name it: it is not lost then, if it does not answer."""
        self.goodbyes[sender.node_id] = None
        if len(self.goodbyes) > self.config.remembered_max:
            del self.goodbyes[next(iter(self.goodbyes))]
        self.maintenance.lost(sender)
        self.lost_peers.forget(sender.node_id)
        self._carry_out(self.agreement.left(sender, leaving))
        self.router.lost(sender.node_id)

    # What its parts ask of it

    def _carry_out(self, effects: Iterable[Effect] | None) -> None:
        """Do what a part asks, one by one, each before the part goes on."""
        for effect in effects or ():
            match effect:
                case MembersChanged():
                    if self.active:
                        self.application.leaf_set_changed()
                case Settled():
                    self._settle()
                case SearchRing():
                    self._search_ring()
                case JoinThrough(contact, request):
                    self._request(contact, request)
                case FirstState(leaf_set, others):
                    self.agreement.consider(leaf_set)
                    self.maintenance.meet(others)
                    self._settle()
                case Introduced(contacts):
                    self.agreement.consider(contacts)
                case Activate():
                    self._activate()

    def _settle(self) -> None:
        """Become active once the closest peer has answered and, after it, every member of the leaf set."""
        if not self.active and self.joining.replied and self.agreement.settled and len(self.leaf_set):
            self._activate()

    def _activate(self) -> None:
        """The leaf set agrees: this peer is part of the ring, and answers for its keys from now on."""
        self.lifecycle.activate()
        self.host.trace(Activated(len(self.leaf_set)))
        for silent in self.joining.done():
            if silent.node_id not in self.leaf_set:
                self.lost_peers.remember(silent, met=False)
        self.maintenance.start()
        self.application.leaf_set_changed()
        self.router.release_held()

    def maintain(self, timer: MaintenanceDue) -> None:
        """One round: the right-hand neighbour compares leaf sets, other rings are looked for, tables are kept near."""
        self.agreement.send_digest()
        self._search_other_rings()
        self.maintenance.maintain(timer)

    def _search_other_rings(self) -> None:
        """A leaf set that is not full holds everybody: somebody else who is known is gone, or part of another ring."""
        members = self.leaf_set.members
        if not members:
            self._search_ring()
        elif len(members) < self.leaf_set.size:
            known = (c for c in self.remembered() if c.node_id not in members and c.node_id not in self.lost_peers)
            others = [contact for contact in known if contact.node_id != self.host.me]
            if others:
                self._look_up(self.host.random.choice(others))

    def _search_ring(self) -> None:
        """All members on a side were lost: look for this peer's place through some of those it ever knew."""
        known = self.remembered()
        for contact in self.host.random.sample(known, min(len(known), _COMPANY)):
            self.host.trace(Mark("ring_searched"))
            self._look_up(contact)

    def _look_up(self, contact: Contact) -> None:
        """Find this active peer's place in the ring that `contact` is part of."""
        self._request(contact, look_up(self.host.contact))

    def _request(self, contact: Contact, request: JoinRequest) -> None:
        self.host.send(contact, self.router.wrap(request, self.host.me))

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
