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
    FirstState,
    Introduced,
    JoinThrough,
    MembersChanged,
    OverlayEffect,
    SearchRing,
    Settled,
)
from quillcast.protocol.overlay.entry import EntryPoints
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
    Joined,
    JoinReply,
    JoinRequest,
    LeafSetDigest,
    LeafSetProbe,
    LeafSetReply,
    Leaving,
    MemberLost,
    Relay,
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
from quillcast.protocol.overlay.routes import Routes
from quillcast.protocol.overlay.routingtable import RoutingTable
from quillcast.protocol.overlay.seats import Seats
from quillcast.protocol.overlay.tables import Tables

_COMPANY = 8  # peers asked at once by a peer that lost all its members; a guess
_ACQUAINTANCES_MAX = 32  # a guess: two leaf sets


_HANDLERS: dict[type[Message], Callable[["Pastry"], Callable[[Contact, Any], Iterable[OverlayEffect] | None]]] = {
    Routed: attrgetter("router.accept"),
    RoutedAck: attrgetter("router.acknowledged"),
    Direct: attrgetter("router.arrived"),
    LeafSetProbe: attrgetter("agreement.probed"),
    LeafSetReply: attrgetter("agreement.replied"),
    LeafSetDigest: attrgetter("agreement.compared"),
    Joined: attrgetter("agreement.member_joined"),
    MemberLost: attrgetter("agreement.loss_reported"),
    Leaving: attrgetter("member_leaves"),
    StateRequest: attrgetter("join_help.requested"),
    State: attrgetter("joining.state"),
    JoinReply: attrgetter("joining.reply"),
    Announce: attrgetter("maintenance.announced"),
    RowRequest: attrgetter("maintenance.requested"),
    Row: attrgetter("maintenance.row"),
}
_TIMERS: dict[type[Timer], Callable[["Pastry"], Callable[[Any], Iterable[OverlayEffect] | None]]] = {
    AckDue: attrgetter("router.ack_due"),
    ProbesDue: attrgetter("agreement.due"),
    MaintenanceDue: attrgetter("maintain"),
    ProbeLost: attrgetter("lost_peers.due"),
    JoinLate: attrgetter("joining.late"),
}


TIMERS: tuple[type[Timer], ...] = tuple(_TIMERS)
"""The timers of this layer."""


class Pastry:
    """Routes messages to the closest live peer, with the help of three tables.

    The parts that maintain the tables have files of their own: agreement, joining, joinhelp, router, maintenance and
    lostpeers. They do not refer to each other through this class. A part requests something of another by yielding an
    effect, which this class carries out at once.
    """

    def __init__(self, host: Host, config: OverlayConfig, neighbours: Neighbours, codec: Codec) -> None:
        """`codec` encodes the messages inside `Routed`: those of every layer, and this layer's `JoinRequest`."""
        self.host, self.config, self.codec = host, config, codec
        self.entry_points: tuple[Contact, ...] = ()  # of this peer's scope (`stand_by`)
        self.is_invited = False  # (`stand_by`)
        self.lifecycle = lifecycle = Lifecycle()
        self.leaf_set = leaf_set = LeafSet(host.me, config.leaf_set_size)
        self.routing_table = table = RoutingTable(host.me, config.digit_bits)
        self.neighbourhood = around = NeighbourhoodSet(config.neighbourhood_size)
        self.acquaintances: dict[str, Contact] = {}  # by address: who sent messages of this layer, the most recent last
        self.links = links = IdleLinks(neighbours)
        self.distances = distances = Distances(host, neighbours, table)
        repair = LazyRepair(host, table)
        self.lost_peers = lost = LostPeers(host, config, lifecycle, leaf_set)
        tables = Tables(leaf_set, table, around)
        self.agreement = Agreement(host, config, neighbours, tables, lost, distances, lifecycle)
        self.maintenance = Maintenance(host, config, lifecycle, tables, lost, distances, repair, links)
        self.joining = OverlayJoin(host, config, lifecycle, leaf_set, distances, links, self.acquaintances)
        self.join_help = JoinHelp(host, lifecycle, tables, links, self.joining)
        self._tables = NextHop(host.contact, config.digit_bits, tables, neighbours.suspected)
        self.seats = seats = Seats(host, neighbours, config.keep_alive_s)
        self.routes = routes = Routes(self._tables, seats)
        self.router = Router(host, config, codec, lifecycle, routes, distances, repair, links, self.join_help)

    @property
    def active(self) -> bool:
        """Whether this peer is part of the ring, or has entry points to it, so that it can route."""
        return self.lifecycle.active

    @property
    def outside(self) -> bool:
        """Whether this peer takes part without a place in the ring."""
        return self.lifecycle.outside

    @property
    def entries(self) -> tuple[Contact, ...]:
        """The entry points of a peer outside the ring; none if it has a place, or waits for entry points."""
        return hops.contacts if isinstance(hops := self.routes.hops, EntryPoints) else ()

    def heir(self, lost: bytes) -> Contact | None:
        """Return the entry point of this peer's scope that replaces a lost one; it may be this peer."""
        if all(each.node_id != lost for each in self.entry_points):
            return None
        others = (each for each in self.entry_points if each.node_id != lost)
        return next((each for each in others if not self._tables.suspected(each.node_id)), None)

    @property
    def application(self) -> Application:
        """The layer above."""
        return self.router.application

    def serve(self, application: Application) -> None:
        """Set the layer above."""
        self.router.serve(application)

    @property
    def awaits_invitation(self) -> bool:
        """Whether other members of this peer's scope invite it into the trees of topics."""
        return self.is_invited and self.outside

    def stand_by(self, entry_points: tuple[Contact, ...], *, invited: bool = False) -> None:
        """Set the entry points of this peer's scope: the one in charge, then the stand-bys.

        `invited`: they are in a scope around it, and other members will invite this peer into the trees of topics.
        """
        self.entry_points, self.is_invited = entry_points, invited

    # Calls of applications and of the peer

    def join(self, contacts: Sequence[Contact], *, may_be_first: bool = False) -> None:
        """Join the ring through the nearest of these peers. Without contacts, become its first peer.

        With `may_be_first`, become that also if all of them are outside the ring and know nobody in it. After a
        restart, pass what `remembered` returned before. A peer outside the ring gets a place in it by this call.
        """
        if self.outside:
            self.lifecycle.come_in()
            self.routes.go_by(self._tables)
        self._carry_out(self.joining.start(contacts, may_be_first=may_be_first))

    def stay_outside(self) -> None:
        """Have no place in the ring, wait for entry points, and correct peers that take this one for a ring member."""
        self.lifecycle.stay_outside()

    def enter(self, contacts: Sequence[Contact], *, had_place: bool = False) -> None:
        """Take part through these members of the ring, without a place in it: the first, or the others if it fails.

        Call it again with other entry points. `had_place`: this peer may have had a place before it was restarted, and
        tells its former neighbours that it no longer does. Raises `ValueError` if there are no contacts, or if this
        peer is in the ring.
        """
        if not contacts or (self.active and not self.outside):
            raise ValueError(f"{len(contacts)} entry points for a peer {'in' if self.active else 'outside'} the ring")
        self.routes.go_by(EntryPoints(contacts, self._tables.suspected))
        if not self.active:
            self.lifecycle.enter()
            self.host.trace(Activated(0))
            self.application.leaf_set_changed()
            self.router.release_held()
            if had_place:
                self.router.route(look_up(self.host.contact), self.host.me)

    def leave(self) -> None:
        """Tell the leaf set, and other peers with a seat, that this peer leaves. It answers no peer from then on."""
        for seat in self.seats.others():  # first, so that nobody passes on to this peer what it just transferred
            self.host.send(seat, Leaving((), seat=True))
        self.agreement.leave()
        self.router.leave()
        self.lifecycle.leave()

    def remembered(self) -> list[Contact]:
        """The peers to join through after a restart: the leaf set, then other peers, at most `remembered_max`."""
        # A peer that never became active keeps the contacts that it was given.
        tables = (self.entries, self.leaf_set, self.neighbourhood, self.routing_table, self.lost_peers, self.joining)
        everybody = (*tables, self.acquaintances.values())
        known = {contact.node_id: contact for contact in chain.from_iterable(everybody)}
        return list(known.values())[: self.config.remembered_max]

    def route(self, message: Message, key: bytes) -> None:
        """Route a message to the live peer closest to a key. If this peer is the closest, it is delivered at once.

        While this peer is not active, the message waits. Raises `NotJoined` if too many wait.
        """
        self.router.route(message, key)

    def send(self, message: Message, to: Contact) -> None:
        """Send a message to one peer. If alive, its application's `deliver` receives it (Scribe, section 2.3)."""
        self.host.send(to, Direct(self.codec.encode(message)))

    def is_closest(self, key: bytes) -> bool:
        """Whether this peer is active, and no live peer that may be the key's rendezvous point is closer."""
        if (seats := self.seats.of(key)) is not None:
            return self.active and seats[:1] == [self.host.contact]
        return self.active and not self.outside and self.leaf_set.closest(number(key)) is None

    def is_joining(self, contact: Contact) -> bool:
        """Whether this member of the leaf set is still joining. Messages routed to it wait until it is active."""
        return contact.node_id in self.agreement.joining

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return the `count` peers closest to the key, closest first: of the leaf set and this peer, or of seats."""
        return self.routes.closest(key, count)

    def has_seats(self, topic: bytes) -> bool:
        """Whether the topic has its rendezvous point in a managed scope."""
        return bool(self.seats.scope(topic))

    def takes(self, topic: bytes, root_scope: str) -> bool:
        """Whether this peer can have a place in a topic rooted at this scope: it must know the seats there."""
        return not root_scope or self.seats.takes(topic, root_scope)

    def beside(self, key: bytes) -> int:
        """Return how many other peers `closest` chooses from."""
        seats = self.seats.of(key)
        return len(self.leaf_set) if seats is None else len(seats) - (self.host.contact in seats)

    def may_have_lost(self, key: bytes) -> bool:
        """Whether any of those may be lost. A quick check, for frequent calls."""
        return bool(self.lost_peers.peers) or key in self.seats.topics

    def lost_lately(self, key: bytes, since: float) -> int:
        """Return how many of those were lost from `since` on."""
        seats = self.seats.lately(key, since)
        return len(self.lost_peers.since(since)) if seats is None else sum(at is not None for _, at in seats)

    def closest_lately(
        self, key: bytes, count: int, since: float, *, met: bool = False
    ) -> list[tuple[Contact, float | None]]:
        """Return the `count` peers closest to the key, including those lost from `since` on, with the times of loss.

        If `met`, without peers that were never met.
        """
        if (seats := self.seats.lately(key, since)) is not None:
            return seats[:count]
        known: list[tuple[Contact, float | None]] = [(contact, None) for contact in (self.host.contact, *self.leaf_set)]
        known += self.lost_peers.since(since, met=met)
        return sorted(known, key=lambda peer: (ring_distance(peer[0].node_id, key), peer[0].node_id))[:count]

    def introduce(self, contact: Contact) -> None:
        """Probe a newly known peer if it belongs in the leaf set. It is added when it answers."""
        if self.active and not self.outside:
            self.agreement.consider((contact,))

    def next_hop(self, key: bytes) -> Contact | None:
        """Return the next hop from here for a message to this key; None if it has arrived."""
        return self.routes.to(key, self.seats.scope(key))

    def proximity(self, node_id: bytes) -> float:
        """Return the round-trip time to a peer in seconds; `UNKNOWN` if it was not measured."""
        return self.distances.to(node_id)

    # Inputs from the peer

    def heard(self, sender: Contact) -> None:
        """Note that a lost peer that sent any message is alive. Call this while any peer counts as lost."""
        if sender.node_id in self.lost_peers.peers:
            self.recovered(sender)
        if self.seats.scopes and self.seats.heard(sender.node_id) and self.active:
            self.application.leaf_set_changed()

    def receive(self, sender: Contact, message: Any) -> None:
        """Handle a message of this layer. A peer that has left answers no peer."""
        kind, lifecycle = type(message), self.lifecycle
        if lifecycle.left:
            if kind is Leaving and not message.seat:
                self.agreement.remove(sender.node_id)  # what is transferred goes to others
            return
        if kind is Relay:
            self.router.relay(sender, message)
            return
        if kind is Leaving and message.seat:
            if self.seats.left(sender.node_id) and self.active:
                self.application.leaf_set_changed()
            return
        if lifecycle.outside and kind not in (RoutedAck, Direct):
            self._decline(sender, message)
            return
        self.links.visited(sender.node_id)
        self._meet(sender)
        handle = _HANDLERS.get(kind)
        if handle is None:
            raise Malformed(f"a {kind.__name__} must be routed")
        effects = handle(self)(sender, message)
        if effects is not None:
            self._carry_out(effects)

    def _decline(self, sender: Contact, message: Message) -> None:
        """Tell peers that take this one for a ring member, perhaps from before a restart, that it is none."""
        if isinstance(message, StateRequest):
            self.host.send(sender, State(False, self.entries, (), (), outside=True))
        elif isinstance(message, JoinReply):
            for contact in message.leaf_set:
                self.host.send(contact, Leaving(()))
        elif not isinstance(message, Leaving):
            self.host.send(sender, Leaving(()))

    def _meet(self, contact: Contact) -> None:
        """Remember the latest senders, even if they are in no table: a peer without members may reach no others.

        A peer at the address of a former one takes its place, because the former one is gone for good.
        """
        self.lost_peers.spoke(contact.node_id)
        known = self.acquaintances
        known.pop(contact.address, None)
        known[contact.address] = contact
        if len(known) > _ACQUAINTANCES_MAX:
            del known[next(iter(known))]

    def timer(self, timer: Any) -> None:
        if self.lifecycle.stands_apart and not (self.outside and isinstance(timer, AckDue)):
            return
        self._carry_out(_TIMERS[type(timer)](self)(timer) or ())

    def measured(self, contact: Contact, proximity: float | None) -> None:
        """Handle a measurement that this or another layer requested."""
        if self.lifecycle.stands_apart:
            return
        if self.active or self.joining.replied:
            self.maintenance.measured(contact, proximity)
        if not self.active:
            self._carry_out(self.joining.measured(contact))

    def lost(self, contact: Contact) -> None:
        """A neighbour was lost (NeighbourListener)."""
        if self.lifecycle.left:
            return
        had_seat = self.seats.lost(contact.node_id)
        if not self.outside:
            self._lost_in_ring(contact)
        self.router.lost(contact.node_id)
        if had_seat and self.active:
            self.application.leaf_set_changed()

    def _lost_in_ring(self, contact: Contact) -> None:
        if contact.node_id in self.leaf_set or contact.node_id in self.routing_table:
            self.lost_peers.remember(contact)
        self.maintenance.lost(contact)
        self._carry_out(self.agreement.lost(contact))

    def link_lost(self, contact: Contact) -> None:
        """A link broke or could not be opened."""
        self.joining.link_lost(contact)

    def recovered(self, contact: Contact) -> None:
        """A lost peer sent something (NeighbourListener): a partition may have healed, so probe all lost peers."""
        if self.lifecycle.stands_apart or not self.lost_peers.forget(contact.node_id):
            return
        self.host.trace(Mark("ring_merge"))
        if self.leaf_set.fits(contact.node_id):
            self.agreement.probe(contact)
        elif self.active:
            self._look_up(contact)
        self.lost_peers.ask_all()

    def member_leaves(self, sender: Contact, leaving: Leaving) -> None:
        """A peer leaves. If others still name it later and it does not answer, it does not count as lost."""
        self.lost_peers.note_left(sender.node_id)
        self.maintenance.lost(sender)
        self._carry_out(self.agreement.left(sender, leaving))
        self.router.lost(sender.node_id)

    # Effects of the parts

    def _carry_out(self, effects: Iterable[OverlayEffect]) -> None:
        """Carry out the effects of a part one by one, each before the part continues."""
        for effect in effects:
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
        """Become active once the closest peer and then every member of the leaf set have answered."""
        if not self.active and self.joining.replied and self.agreement.settled and len(self.leaf_set):
            self._activate()

    def _activate(self) -> None:
        """The leaf sets agree: this peer is part of the ring and answers for its keys from now on."""
        self.lifecycle.activate()
        self.host.trace(Activated(len(self.leaf_set)))
        for silent in self.joining.done():
            if silent.node_id not in self.leaf_set:
                self.lost_peers.remember(silent, met=False)
        self.agreement.activate()
        self.maintenance.start()
        self.application.leaf_set_changed()
        self.router.release_held()

    def maintain(self, timer: MaintenanceDue) -> None:
        """Run a round: compare leaf sets with the right-hand neighbour, look for other rings, keep the tables near."""
        self.agreement.send_digest()
        self.agreement.consider_table()
        self._search_other_rings()
        self.maintenance.maintain(timer)

    def _search_other_rings(self) -> None:
        """A leaf set that is not full contains the whole ring: other known peers are gone, or part of another ring."""
        members = self.leaf_set.members
        if not members:
            self._search_ring()
        elif len(members) < self.leaf_set.size:
            known = (
                c for c in self.remembered() if c.node_id not in members and not self.lost_peers.is_gone(c.node_id)
            )
            others = [contact for contact in known if contact.node_id != self.host.me]
            if others:
                self._look_up(self.host.random.choice(others))

    def _search_ring(self) -> None:
        """All members on one side were lost: look for this peer's place through some of the peers it ever knew."""
        known = [contact for contact in self.remembered() if not self.lost_peers.has_left(contact.node_id)]
        for contact in self.host.random.sample(known, min(len(known), _COMPANY)):
            self.host.trace(Mark("ring_searched"))
            self._look_up(contact)

    def _look_up(self, contact: Contact) -> None:
        """Find this active peer's place in the ring of `contact`."""
        self._request(contact, look_up(self.host.contact))

    def _request(self, contact: Contact, request: JoinRequest) -> None:
        self.host.send(contact, self.router.wrap(request, self.host.me))

    def check(self) -> None:
        """Raise AssertionError if the state of this layer is inconsistent."""
        for part in (
            self.leaf_set,
            self.routing_table,
            self.neighbourhood,
            self.lost_peers,
            self.agreement,
            self.router,
        ):
            part.check()
