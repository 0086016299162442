"""Rates that a scope's file sets, kept by the peers that send into the scope.

Such a peer counts each bundle once, however many of its channels lead into the scope. While it has sent too much, these
channels have no room, as if the peers at their ends had given no credit. So the bundles wait in the topic's log, and
the rules for slow subscribers apply. A channel that is behind another does not wait, so each may be one bundle ahead
of the rate. Repairs count each time. They do not wait: new bundles wait longer after them.
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
COUNTED_MAX = 4096  # bundles that are known to have been counted; a guess: no channel is further behind another
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

    def pay(self, amount: int, now: float) -> None:
        """This much is sent."""
        self.wait_s(now)
        self.left -= amount


class Gate:
    """One rate, for all channels of this peer that name it."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.bytes_ = TokenBucket(rate.bytes_per_s, now) if rate.bytes_per_s else None
        self.bundles = TokenBucket(rate.bundles_per_s, now) if rate.bundles_per_s else None
        self.met: dict[Counted, int] = {}  # the latest bundles that came to one of the channels, with their numbers
        self.uncounted: dict[Counted, None] = {}  # those that took none of them yet
        self.latest: dict[bytes, int] = {}  # by topic: the number of the latest that was counted
        self.number = 0

    def replace(self, former: "Gate", now: float) -> None:
        """Both sides agreed on another rate than before: what was sent too much stays so."""
        self.met, self.uncounted = dict(former.met), dict(former.uncounted)
        self.latest, self.number = dict(former.latest), former.number
        for bucket, before in ((self.bytes_, former.bytes_), (self.bundles, former.bundles)):
            if bucket is not None and before is not None:
                before.wait_s(now)
                bucket.left = min(bucket.left, before.left)

    def wait_s(self, now: float) -> float:
        """The seconds until another bundle may pass; 0: now."""
        return max((each.wait_s(now) for each in (self.bytes_, self.bundles) if each is not None), default=0.0)

    def meet(self, bundle: Bundle) -> int:
        """A bundle comes to one of the channels, whose filter may stop it. Returns its number."""
        key = _key(bundle)
        if key not in self.met:
            self.number += 1
            self.met[key] = self.number
            self.uncounted[key] = None
            if len(self.met) > COUNTED_MAX:
                self.latest = {topic: at for topic, at in self.latest.items() if at > self.number - COUNTED_MAX}
                oldest = next(iter(self.met))
                del self.met[oldest]
                self.uncounted.pop(oldest, None)
        return self.met[key]

    def count(self, bundle: Bundle, now: float) -> int:
        """A bundle passes on one of the channels; it may have passed on others before. Returns its number."""
        at, key = self.meet(bundle), _key(bundle)
        if key in self.uncounted:
            del self.uncounted[key]
            self.pay(bundle, now)
            self.latest[bundle.topic] = max(at, self.latest.get(bundle.topic, 0))
        return at

    def pay(self, bundle: Bundle, now: float) -> None:
        """A bundle passes: count it, even if it passed before."""
        for bucket, amount in ((self.bytes_, bundle.size), (self.bundles, 1)):
            if bucket is not None:
                bucket.pay(amount, now)


class RateLimits:
    """The rates that one peer keeps."""

    __slots__ = ("due_at", "former", "gates", "host", "sinks", "waiting")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.gates: dict[Rate, Gate] = EMPTY
        self.sinks: dict[tuple[bytes, Contact], LimitedSink] = {}  # by topic and peer
        self.former = self.sinks  # those from before these rates were to be kept
        self.waiting: dict[Contact, float] = {}  # until when channels to each peer wait, at least
        self.due_at = inf

    def keep(self, rates: Iterable[Rate]) -> None:
        """Keep these rates from now on, and no others. A rate that stays keeps its count."""
        known, now, self.former, self.sinks = self.gates, self.host.now(), self.sinks, {}
        former = {_purpose(rate): gate for rate, gate in known.items()}
        self.gates = {rate: known[rate] if rate in known else Gate(rate, now) for rate in rates}
        for rate, gate in self.gates.items():
            if rate not in known and _purpose(rate) in former:
                gate.replace(former[_purpose(rate)], now)

    def sink(self, topic: bytes, rates: Iterable[Rate], contact: Contact) -> PeerSink:
        """The sink of a channel with these rates, which are among those to be kept."""
        if not (kept := tuple(dict.fromkeys(rates))):
            return PeerSink(self.host, contact)
        sink = LimitedSink(self, topic, contact, kept, self.former.get((topic, contact)))
        self.sinks[topic, contact] = sink
        return sink

    def wait(self, contact: Contact, seconds: float) -> None:
        """A channel to a peer waits this long, or for a tick: a moment too short for the clock would never be over."""
        at = self.host.now() + max(seconds, TICK_S)
        self.waiting[contact] = min(at, self.waiting.get(contact, inf))
        self._expect(at)

    def due(self, timer: RatesDue) -> list[Contact]:
        """The time is over: the peers to which channels may continue, or wait again."""
        if timer.at != self.due_at:
            return []
        self.due_at, by = inf, self.host.now() + TICK_S
        over = [contact for contact, at in self.waiting.items() if at <= by]
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

    __slots__ = ("at", "gates", "limits", "purposes", "topic")

    def __init__(
        self, limits: RateLimits, topic: bytes, contact: Contact, rates: Sequence[Rate], former: "LimitedSink | None"
    ) -> None:
        """`former`: it leads to the same peer, and this one continues where it was."""
        super().__init__(limits.host, contact)
        self.limits, self.topic = limits, topic
        self.gates, self.purposes = [limits.gates[rate] for rate in rates], [*map(_purpose, rates)]
        before: dict[Purpose, int] = dict(zip(former.purposes, former.at, strict=True)) if former is not None else {}
        self.at: list[int] = [before.get(purpose, 0) for purpose in self.purposes]
        """The numbers of the latest bundles that passed here, or that a filter stopped."""

    def room(self) -> int:
        room, now = super().room(), self.host.now()
        level = (gate for gate, at in zip(self.gates, self.at, strict=True) if at >= gate.latest.get(self.topic, 0))
        waits_s = max((gate.wait_s(now) for gate in level), default=0.0)  # what comes next is counted there
        if room > 0 and waits_s > 0:
            self.limits.wait(self.contact, waits_s)
            return 0
        return room

    def take(self, bundle: Bundle) -> None:
        now = self.host.now()
        self.at = [max(at, gate.count(bundle, now)) for gate, at in zip(self.gates, self.at, strict=True)]
        super().take(bundle)

    def exclude(self, bundle: Bundle) -> None:
        """It is not behind a channel that takes the bundle instead, such as one to another entry point."""
        self.at = [max(at, gate.meet(bundle)) for gate, at in zip(self.gates, self.at, strict=True)]

    def count(self, bundle: Bundle) -> None:
        for gate in self.gates:
            gate.pay(bundle, self.host.now())

    def plain(self) -> PeerSink:
        return PeerSink(self.host, self.contact)


def _key(bundle: Bundle) -> Counted:
    return bundle.topic, bundle.envelope.term, bundle.envelope.first


def _purpose(rate: Rate) -> Purpose:
    return rate.scope, rate.topic, rate.leaves
