"""Rates that a scope's file sets, kept by the peers that send into the scope.

Such a peer counts each bundle once, however many of its channels lead into the scope. While it has sent too much, these
channels have no room for a bundle that was not counted, as if the peers at their ends had given no credit. So the
bundles wait in the topic's log, and the rules for slow subscribers apply. The channel that has waited for longest since
it was counted last continues first. Repairs count each time. They do not wait: new bundles wait longer after them.
"""

from collections.abc import Iterable, Sequence
from math import inf

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.channels import PeerSink
from quillcast.protocol.scopes.channels import Rate

BURST_S = 0.25  # a guess: bundles that came together may leave together
TICK_S = 0.001  # the least that a channel waits; those that may continue within this time do so together; a guess
COUNTED_MAX = 4096  # bundles that are known to have been counted; earlier ones would count again; a guess
Counted = tuple[bytes, Term, int]
"""A bundle: its topic, term and first position."""
Purpose = tuple[bytes, bytes | None, bool]
"""What a rate is for: its scope and topic, and whether it is for what leaves."""


class RatesDue(Timer, frozen=True):
    """A rate allows more to be sent over channels to some peers, unless another is due before."""

    at: float


class TokenBucket:
    """A token bucket for a rate per second: it may be overdrawn by one bundle."""

    __slots__ = ("at", "left", "per_s")

    def __init__(self, per_s: int, now: float) -> None:
        self.per_s, self.left, self.at = per_s, per_s * BURST_S, now

    def wait_s(self, now: float) -> float:
        """The seconds until something may be sent; 0: now."""
        self.left = min(self.per_s * BURST_S, self.left + (now - self.at) * self.per_s)
        self.at = now
        return max(0.0, -self.left / self.per_s)

    def is_full(self, now: float) -> bool:
        """Whether all that was sent is made up for."""
        self.wait_s(now)
        return self.left == self.per_s * BURST_S

    def pay(self, amount: int, now: float) -> None:
        """This much is sent."""
        self.wait_s(now)
        self.left -= amount


class Gate:
    """One rate, for all channels of this peer that name it."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.bytes_ = TokenBucket(rate.bytes_per_s, now) if rate.bytes_per_s else None
        self.bundles = TokenBucket(rate.bundles_per_s, now) if rate.bundles_per_s else None
        self.counted: dict[Counted, None] = {}  # the latest bundles that passed

    def replace(self, former: "Gate", now: float) -> None:
        """Both sides agreed on another rate than before: what was sent too much stays so."""
        self.counted = former.counted
        for bucket, before in ((self.bytes_, former.bytes_), (self.bundles, former.bundles)):
            if bucket is not None and before is not None:
                before.wait_s(now)
                bucket.left = min(bucket.left, before.left)

    def wait_s(self, bundle: Bundle, now: float) -> float:
        """The seconds until this bundle may pass; 0: now, as it does if it passed before."""
        if _key(bundle) in self.counted:
            return 0.0
        return max((each.wait_s(now) for each in (self.bytes_, self.bundles) if each is not None), default=0.0)

    def count(self, bundle: Bundle, now: float) -> bool:
        """A bundle passes on one of the channels. False if it passed on others before."""
        key = _key(bundle)
        if key in self.counted:
            return False
        self.counted[key] = None
        if len(self.counted) > COUNTED_MAX:
            del self.counted[next(iter(self.counted))]
        self.pay(bundle, now)
        return True

    def is_full(self, now: float) -> bool:
        """Whether all that passed is made up for."""
        return all(each.is_full(now) for each in (self.bytes_, self.bundles) if each is not None)

    def pay(self, bundle: Bundle, now: float) -> None:
        """A bundle passes: count it, even if it passed before."""
        for bucket, amount in ((self.bytes_, bundle.size), (self.bundles, 1)):
            if bucket is not None:
                bucket.pay(amount, now)


class RateLimits:
    """The rates that one peer keeps."""

    __slots__ = ("due_at", "ended", "gates", "host", "last", "waiting")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.gates: dict[Rate, Gate] = EMPTY
        self.ended: dict[Purpose, Gate] = EMPTY  # not to be kept at present, and overdrawn: they may come again
        self.last: dict[Contact, float] = EMPTY  # when a bundle on a channel to each peer was counted last
        self.waiting: dict[Contact, float] = {}  # until when channels to each peer wait, at least
        self.due_at = inf

    def keep(self, rates: Iterable[Rate]) -> None:
        """Keep these rates from now on, and no others. A rate that stays keeps its count."""
        known, now, self.last = self.gates, self.host.now(), {}
        former = {**self.ended, **{_purpose(rate): gate for rate, gate in known.items()}}
        self.gates = {rate: known[rate] if rate in known else Gate(rate, now) for rate in rates}
        for rate, gate in self.gates.items():
            if rate not in known and _purpose(rate) in former:
                gate.replace(former[_purpose(rate)], now)
        kept = {_purpose(rate) for rate in self.gates}
        self.ended = {each: gate for each, gate in former.items() if each not in kept and not gate.is_full(now)}

    def sink(self, rates: Iterable[Rate], contact: Contact) -> PeerSink:
        """The sink of a channel with these rates, which are among those to be kept."""
        kept = tuple(dict.fromkeys(rates))
        return LimitedSink(self, contact, [self.gates[rate] for rate in kept]) if kept else PeerSink(self.host, contact)

    def counted(self, contact: Contact, now: float) -> None:
        """A bundle on a channel to a peer was counted: others go first next time."""
        self.last[contact] = now

    def wait(self, contact: Contact, seconds: float) -> None:
        """A channel to a peer waits this long, or for a tick: a moment too short for the clock would never be over."""
        at = self.host.now() + max(seconds, TICK_S)
        self.waiting[contact] = min(at, self.waiting.get(contact, inf))
        self._expect(at)

    def is_turn_of(self, contact: Contact, now: float) -> bool:
        """Whether no other peer comes first, because its wait is over and the last bundle to it is longer ago.

        A timer may be late. Meanwhile a busy channel would take whatever the rate allows.
        """
        last = self.last.get(contact, -inf)
        return not any(at <= now and self.last.get(other, -inf) < last for other, at in self.waiting.items())

    def due(self, timer: RatesDue) -> list[Contact]:
        """The time is over: the peers to which channels may continue, or wait again. The one counted last is last."""
        if timer.at != self.due_at:
            return []
        self.due_at, by = inf, self.host.now() + TICK_S
        over = [contact for contact, at in self.waiting.items() if at <= by]
        over.sort(key=lambda contact: self.last.get(contact, -inf))
        for contact in over:
            del self.waiting[contact]
        if self.waiting:
            self._expect(min(self.waiting.values()))
        return over

    def _expect(self, at: float) -> None:
        if at < self.due_at - TICK_S:
            self.due_at = at
            self.host.set_timer(RatesDue(at), max(0.0, at - self.host.now()))


class LimitedSink(PeerSink):
    """Another peer, at the end of a channel with rates."""

    __slots__ = ("gates", "limits")

    def __init__(self, limits: RateLimits, contact: Contact, gates: Sequence[Gate]) -> None:
        super().__init__(limits.host, contact)
        self.limits, self.gates = limits, gates

    def room(self, bundle: Bundle) -> int:
        room, now = super().room(bundle), self.host.now()
        waits_s = max(gate.wait_s(bundle, now) for gate in self.gates)
        if room > 0 and (waits_s > 0 or not (self._was_counted(bundle) or self.limits.is_turn_of(self.contact, now))):
            self.limits.wait(self.contact, waits_s)
            return 0
        return room

    def _was_counted(self, bundle: Bundle) -> bool:
        return all(_key(bundle) in gate.counted for gate in self.gates)

    def take(self, bundle: Bundle) -> None:
        now = self.host.now()
        for gate in self.gates:
            if gate.count(bundle, now):
                self.limits.counted(self.contact, now)
        super().take(bundle)

    def count(self, bundle: Bundle) -> None:
        for gate in self.gates:
            gate.pay(bundle, self.host.now())

    def plain(self) -> PeerSink:
        return PeerSink(self.host, self.contact)


def _key(bundle: Bundle) -> Counted:
    return bundle.topic, bundle.envelope.term, bundle.envelope.first


def _purpose(rate: Rate) -> Purpose:
    return rate.scope, rate.topic, rate.leaves
