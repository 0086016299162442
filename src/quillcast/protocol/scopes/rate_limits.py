"""Rates that a scope's file sets, kept by the peers that send into the scope.

Such a peer counts each bundle once, however many of its channels lead into the scope. While it has sent too much, these
channels have no room, as if the peers at their ends had given no credit. So the bundles wait in the topic's log, and
what happens to a subscriber that is slow happens here.
"""

from collections.abc import Iterable

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM, Position
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import PeerSink
from quillcast.protocol.scopes.channels import Rate

BURST_S = 0.25  # a guess: bundles that came together may go together


class RatesDue(Timer, frozen=True):
    """A rate allows more to be sent over channels to some peers."""


class TokenBucket:
    """What may be sent at a rate per second (a token bucket): it may be overdrawn by one bundle."""

    __slots__ = ("at", "left", "per_s")

    def __init__(self, per_s: int, now: float) -> None:
        self.per_s, self.left, self.at = per_s, per_s * BURST_S, now

    def wait_s(self, now: float) -> float:
        """The seconds until something may be sent; 0: now."""
        self.left = min(self.per_s * BURST_S, self.left + (now - self.at) * self.per_s)
        self.at = now
        return max(0.0, -self.left / self.per_s)

    def pay(self, amount: int, now: float) -> None:
        """This much is sent."""
        self.wait_s(now)
        self.left -= amount


class Gate:
    """One rate, for all channels of this peer that name it."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self.bytes_ = TokenBucket(rate.bytes_per_s, now) if rate.bytes_per_s else None
        self.bundles = TokenBucket(rate.bundles_per_s, now) if rate.bundles_per_s else None
        self.paid: dict[bytes, Position] = {}  # by topic: the latest bundle that was counted

    def wait_s(self, now: float) -> float:
        """The seconds until another bundle may pass; 0: now."""
        return max((each.wait_s(now) for each in (self.bytes_, self.bundles) if each is not None), default=0.0)

    def count(self, bundle: Bundle, now: float) -> None:
        """A bundle passes on one of the channels; on others it may have passed before."""
        at = Position(bundle.envelope.term, bundle.envelope.first)
        if at <= self.paid.get(bundle.topic, Position(NO_TERM, -1)):
            return
        self.paid[bundle.topic] = at
        for bucket, amount in ((self.bytes_, bundle.size), (self.bundles, 1)):
            if bucket is not None:
                bucket.pay(amount, now)


class RateLimits:
    """The rates that one peer keeps to."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.gates: dict[tuple[bytes, bytes | None], Gate] = {}
        self.waiting: dict[Contact, None] = {}

    def keep(self, rates: Iterable[Rate]) -> None:
        """Keep to these rates from now on, and to no others. One that stays goes on with what it has counted."""
        known, now = self.gates, self.host.now()
        self.gates = {}
        for rate in rates:
            key = rate.scope, rate.topic
            gate = known.get(key)
            self.gates[key] = gate if gate is not None and gate.rate == rate else Gate(rate, now)

    def sink(self, topic: bytes, contact: Contact, rates: Iterable[Rate]) -> PeerSink:
        """The end of a channel that keeps to these rates, which are among those to be kept."""
        gates = [self.gates[rate.scope, rate.topic] for rate in dict.fromkeys(rates)]
        return LimitedSink(self, topic, contact, gates) if gates else PeerSink(self.host, contact)

    def wait(self, contact: Contact, seconds: float) -> None:
        """A channel to a peer waits this long."""
        if not self.waiting:
            self.host.set_timer(RatesDue(), seconds)
        self.waiting[contact] = None

    def due(self) -> list[Contact]:
        """The time is over: the peers to which channels may go on, or wait again."""
        waiting, self.waiting = self.waiting, {}
        return [*waiting]


class LimitedSink(PeerSink):
    """Another peer, to which a channel leads that keeps to rates."""

    __slots__ = ("at", "gates", "limits", "topic")

    def __init__(self, limits: RateLimits, topic: bytes, contact: Contact, gates: list[Gate]) -> None:
        super().__init__(limits.host, contact)
        self.limits, self.topic, self.gates = limits, topic, gates
        self.at = Position(NO_TERM, -1)  # the latest bundle that passed here

    def room(self) -> int:
        room, now = super().room(), self.host.now()
        waits_s = max((gate.wait_s(now) for gate in self.gates if self._is_level(gate)), default=0.0)
        if room > 0 and waits_s > 0:
            self.limits.wait(self.contact, waits_s)
            return 0
        return room

    def take(self, bundle: Bundle) -> None:
        self.at = max(self.at, Position(bundle.envelope.term, bundle.envelope.first))
        for gate in self.gates:
            gate.count(bundle, self.host.now())
        super().take(bundle)

    def plain(self) -> PeerSink:
        return PeerSink(self.host, self.contact)

    def _is_level(self, gate: Gate) -> bool:
        """Has this channel taken all that was counted? What comes next is counted, then."""
        return self.at >= gate.paid.get(self.topic, self.at)
