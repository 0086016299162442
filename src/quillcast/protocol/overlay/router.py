"""Routing hop by hop: forward, acknowledge, bypass silent hops, deliver once (Pastry; Scribe, section 2.3)."""

from collections.abc import Collection
from typing import Any

import msgspec

from quillcast.core import trace
from quillcast.core.errors import NotJoined, RemoteError
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Codec, Contact, Message
from quillcast.protocol.overlay.application import Application, NoApplication
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.distances import Distances
from quillcast.protocol.overlay.idlelinks import IdleLinks
from quillcast.protocol.overlay.joinhelp import JoinHelp
from quillcast.protocol.overlay.lazyrepair import LazyRepair
from quillcast.protocol.overlay.lifecycle import Lifecycle
from quillcast.protocol.overlay.messages import Direct, JoinRequest, Relay, Routed, RoutedAck
from quillcast.protocol.overlay.routes import Routes

RoutedId = bytes
"""The peer that routed a message, and its number: one value, because tens of thousands are remembered."""

"""The identity of a routed message: the peer that first routed it, and its number there."""

_DELIVERED = 1 << 62  # takes the place of the hops of a message delivered here; no copy can have as many


class AckDue(Timer, frozen=True):
    """The next hop should have acknowledged this transmission by now."""

    source: bytes
    number: int
    tries: int


class Pending:
    """A message whose next hop has not acknowledged it."""

    __slots__ = ("hop", "joiner", "routed", "sent", "silent", "since", "tries")

    def __init__(self, routed: Routed, hop: Contact, joiner: bytes | None, now: float) -> None:
        self.routed, self.hop = routed, hop
        self.joiner = joiner  # the joiner of a join request, which must not be routed through the joiner itself
        self.silent: dict[bytes, None] = {}  # hops that did not acknowledge it
        self.tries = 0
        self.since = self.sent = now


class Router:
    """The messages in transit through this peer."""

    __slots__ = (
        "_held", "_next_number", "_pending", "_seen", "application", "codec", "config", "distances", "host",
        "join_help", "lifecycle", "links", "repair", "routes",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        config: OverlayConfig,
        codec: Codec,
        lifecycle: Lifecycle,
        routes: Routes,
        distances: Distances,
        repair: LazyRepair,
        links: IdleLinks,
        join_help: JoinHelp,
    ) -> None:
        self.host, self.config, self.codec, self.lifecycle = host, config, codec, lifecycle
        self.routes, self.distances, self.repair, self.links = routes, distances, repair, links
        self.join_help = join_help
        self.application: Application = NoApplication()
        self._next_number = int.from_bytes(host.incarnation[:3], "big") << 32  # new numbers at each start
        self._pending: dict[RoutedId, Pending] = {}
        self._seen: dict[RoutedId, int] = {}
        self._held: list[tuple[Contact, Routed, float]] = []  # with their arrival times

    def serve(self, application: Application) -> None:
        """Set the layer above, which receives messages and may change those that pass."""
        self.application = application

    def route(self, message: Message, key: bytes) -> None:
        """Route a message of this peer. Raises `NotJoined` if too many messages wait until this peer is active."""
        routed = self.wrap(message, key)
        if not self._knows_seats(routed):
            return  # a sender that needs an answer asks again
        if self.lifecycle.active:
            self._step(routed, message)
        elif len(self._held) < self.config.held_max:
            self._held.append((self.host.contact, routed, self.host.now()))
        else:
            raise NotJoined(
                f"{len(self._held)} messages already wait for this peer to join; connect it before sending more"
            )

    def wrap(self, message: Message, key: bytes) -> Routed:
        """Return a new routed message from this peer."""
        self._next_number += 1
        payload, scope = self.codec.encode(message), self.routes.seats.scope(key)
        return Routed(key, self.host.contact, self._next_number, 0, payload, scope)

    def release_held(self) -> None:
        """Handle the messages that waited until this peer is active."""
        held, self._held = self._held, []
        for sender, routed, came_at in held:
            self.accept(sender, self._aged(routed, self.host.now() - came_at))

    def accept(self, sender: Contact, routed: Routed) -> None:
        """Acknowledge a message, unless this peer cannot answer for it yet, and handle it once."""
        inner = self.codec.decode(routed.payload)
        if not self.lifecycle.active:
            if len(self._held) < self.config.held_max and not isinstance(inner, JoinRequest):
                # join requests are not held: two joining peers would wait for each other's answer
                self._held.append((sender, routed, self.host.now()))
            return
        if not self._knows_seats(routed):
            return  # the sender follows old orders, and tries again
        name = _name(routed.source.node_id, routed.number)
        if sender.node_id != self.host.me:
            self.host.send(sender, RoutedAck(routed.source.node_id, routed.number))
        if self._seen.get(name, -1) >= routed.hops:
            return  # a repeat, because the acknowledgement was lost or late
        self._note(name, routed.hops)
        try:
            self._step(routed, inner)
        except RemoteError:  # the fault of its source, not of the peer that passed it on
            self.host.trace(trace.Mark("routed_malformed"))

    def _aged(self, routed: Routed, by_s: float) -> Routed:
        """Return a message, aged by the time that it waited here."""
        inner = self.codec.decode(routed.payload)
        aged = inner.aged(by_s)
        return routed if aged is inner else msgspec.structs.replace(routed, payload=self.codec.encode(aged))

    def _knows_seats(self, routed: Routed) -> bool:
        """Whether it can be forwarded, or has arrived. A topic's rendezvous point is a seat of its root scope."""
        if not routed.scope or self.routes.seats.takes(routed.key, routed.scope) or self._is_disputed(routed):
            return True
        self.host.trace(trace.Mark("no_seats_known"))
        return False

    def _is_disputed(self, routed: Routed) -> bool:
        """Whether this peer roots the topic at another scope. Then nothing happens here but that the source is told."""
        return bool(routed.scope) and self.routes.seats.is_disputed(routed.key, routed.scope)

    def relay(self, sender: Contact, relay: Relay) -> None:
        """Route a message for a peer that has no place in the ring."""
        routed = Routed(relay.key, relay.source, relay.number, relay.hops, relay.payload, relay.scope)
        self.accept(sender, routed)

    def acknowledged(self, sender: Contact, ack: RoutedAck) -> None:
        """The next hop accepted the message. The time it took adjusts the time-out."""
        pending = self._pending.pop(_name(ack.source, ack.number), None)
        if pending is not None and pending.tries == 1 and pending.hop.node_id == sender.node_id:
            self.distances.answered(sender.node_id, self.host.now() - pending.sent)

    def arrived(self, sender: Contact, direct: Direct) -> None:
        """A message arrived that was sent to this peer by address."""
        if self.lifecycle.active:
            self.application.deliver(self.codec.decode(direct.payload), self.host.me, sender)

    # One step

    def _step(self, routed: Routed, inner: Any) -> None:
        """Forward or deliver."""
        joiner = inner.joiner.node_id if isinstance(inner, JoinRequest) else None
        hop = self._hop(routed, () if joiner is None else (joiner,))
        if hop is None:
            self._deliver(routed, inner)
            return
        if routed.hops >= self.config.hops_max:
            self.host.trace(trace.Mark("hop_limit"))
            return
        if not (routed.scope or self.routes.hops.covers(routed.key)):
            self.repair.request_row(routed.key, hop)
        if isinstance(inner, JoinRequest):
            inner = self.join_help.with_rows(inner)
            routed = msgspec.structs.replace(routed, payload=self.codec.encode(inner))
        elif routed.source.node_id != self.host.me or routed.hops:
            changed = self.application.forward(inner, routed.key, hop, routed.source)
            if changed is None:
                return
            if changed[0] is not inner:
                routed = msgspec.structs.replace(routed, payload=self.codec.encode(changed[0]))
            hop = changed[1]
            if self._is_disputed(routed):
                return  # another peer of both scopes would send it back
        self._send_on(msgspec.structs.replace(routed, hops=routed.hops + 1), hop, joiner)

    def _hop(self, routed: Routed, but: Collection[bytes] = ()) -> Contact | None:
        """Return the next hop of a message; None if it has arrived."""
        return self.routes.to(routed.key, routed.scope, but)

    def _deliver(self, routed: Routed, inner: Any) -> None:
        name = _name(routed.source.node_id, routed.number)
        if self._seen.get(name) == _DELIVERED:
            return
        self._note(name, _DELIVERED)
        self.host.trace(trace.Routed(routed.key, type(inner).__name__, routed.hops))
        if isinstance(inner, JoinRequest):
            self.join_help.answer(inner)
        else:
            self.application.deliver(inner, routed.key, routed.source)

    def _note(self, name: RoutedId, hops: int) -> None:
        if name not in self._seen and len(self._seen) >= self.config.seen_max:
            del self._seen[next(iter(self._seen))]
        self._seen[name] = hops

    # Acknowledgements

    def _send_on(self, routed: Routed, hop: Contact, joiner: bytes | None) -> None:
        if len(self._pending) >= self.config.pending_max:
            self.host.trace(trace.Mark("pending_full"))
            self._send(hop, routed)
            return
        pending = Pending(routed, hop, joiner, self.host.now())
        self._pending[_name(routed.source.node_id, routed.number)] = pending
        self._transmit(pending, hop)

    def _transmit(self, pending: Pending, hop: Contact) -> None:
        routed, pending.hop, pending.sent = pending.routed, hop, self.host.now()
        backoff = 2**pending.tries if hop.node_id in pending.silent else 1
        timeout_s = self.distances.timeout(hop.node_id) * backoff
        pending.tries += 1
        self.links.visited(hop.node_id)
        self._send(hop, routed)
        self.host.set_timer(
            AckDue(routed.source.node_id, routed.number, pending.tries),
            min(timeout_s, self.config.route_timeout_max_s),
        )

    def _send(self, hop: Contact, routed: Routed) -> None:
        if self.lifecycle.outside or routed.scope:
            relay = Relay(routed.key, routed.source, routed.number, routed.hops, routed.payload, routed.scope)
            self.host.send(hop, relay)
        else:
            self.host.send(hop, routed)

    def ack_due(self, timer: AckDue) -> None:
        """If this transmission was not acknowledged, probe the hop and try another path."""
        pending = self._pending.get(_name(timer.source, timer.number))
        if pending is None or pending.tries != timer.tries:
            return
        self.distances.doubt(pending.hop)
        if self.host.now() - pending.since > self.config.route_patience_s:
            self.host.trace(trace.Mark("route_given_up"))
            del self._pending[_name(timer.source, timer.number)]
        else:
            pending.silent[pending.hop.node_id] = None
            self._reroute(pending)

    def lost(self, node_id: bytes) -> None:
        """A peer was lost: send every message that waits for it by another path at once."""
        for pending in [pending for pending in self._pending.values() if pending.hop.node_id == node_id]:
            pending.silent[node_id] = None
            self._reroute(pending)

    def _reroute(self, pending: Pending) -> None:
        """Send a message again, around the silent hops, or to the same hop if it may still be the closest to the key.

        Silent peers are bypassed on the path, but not as the destination: until such a peer is known to be dead, no
        other peer may take itself for the closest. Join requests bypass it, because the next closest peer can answer as
        well.
        """
        routed = pending.routed = self._aged(pending.routed, self.host.now() - pending.sent)
        if pending.joiner is not None:
            hop = self._hop(routed, (pending.joiner, *pending.silent))
        elif routed.scope:
            hop = self._hop(routed)
        else:
            hop = self.routes.hops.to(routed.key)
            if hop is not None and hop.node_id in pending.silent and not self.routes.hops.covers(routed.key):
                hop = self.routes.hops.around(routed.key, tuple(pending.silent)) or hop
        if hop is None:
            del self._pending[_name(routed.source.node_id, routed.number)]
            self._deliver(routed, self.codec.decode(routed.payload))
            return
        if hop.node_id != pending.hop.node_id:
            self.host.trace(trace.Rerouted(routed.key, pending.hop.node_id))
            self.host.trace(trace.Mark("rerouted"))
        self._transmit(pending, hop)

    def leave(self) -> None:
        """Send unacknowledged messages by another path, because this peer cannot retry after this."""
        for pending in self._pending.values():
            key, but = pending.routed.key, (self.host.me, pending.hop.node_id, pending.joiner)
            closest = self.routes.seats.of(key) if pending.routed.scope else self.routes.hops.closest(key, 1 + len(but))
            others = [contact for contact in closest or () if contact.node_id not in but]
            if others:
                self._send(others[0], pending.routed)
        self._pending.clear()
        self._held.clear()

    def check(self) -> None:
        """Raise AssertionError if a bound is exceeded, or an active peer holds messages back."""
        assert len(self._pending) <= self.config.pending_max, len(self._pending)
        assert len(self._seen) <= self.config.seen_max, len(self._seen)
        assert len(self._held) <= self.config.held_max, len(self._held)
        assert not (self.lifecycle.active and self._held), "an active peer holds messages back"


def _name(source: bytes, number: int) -> RoutedId:
    return source + number.to_bytes(8)
