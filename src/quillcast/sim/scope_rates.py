"""A judge of the rates of scopes: what peers send over the network, against the rates that both sides agreed on.

A peer may send at once what the rate lets through in `BURST_S`, and one bundle more. It counts each bundle once per
rate, wherever it goes. Repairs do not wait, so the judge leaves them out.
"""

from collections import defaultdict
from collections.abc import Iterator

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN, Term
from quillcast.core.messages import Contact
from quillcast.core.multicast import contact
from quillcast.protocol.scopes.channels import Address, Multicast, Rate, Spec
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.rate_limits import BURST_S
from quillcast.sim.applications import peer_of
from quillcast.sim.host import SimHost
from quillcast.sim.observed import Observed
from quillcast.sim.scenario import ScopePlan
from quillcast.sim.world import Broken

ROUNDING = 1e-6
Purpose = tuple[bytes, bytes | None, bool]
"""What a rate is for: its scope and topic, and whether it is for what leaves."""


class Sent:
    """What a process sent of one kind (bytes or bundles) for one purpose."""

    def __init__(self) -> None:
        self.over, self.at, self.most, self.largest = 0.0, 0.0, 0, 0

    def add(self, amount: int, per_s: int, now: float) -> float:
        """Add a bundle. Returns by how much this is too much; the highest rate so far counts."""
        self.most, self.largest = max(self.most, per_s), max(self.largest, amount)
        self.over = max(0.0, self.over - self.most * (now - self.at)) + amount
        self.at = now
        return self.over - self.most * BURST_S - self.largest


class ScopeRates:
    """Judges the rates of all scopes in a run."""

    def __init__(self, run: Observed) -> None:
        self.run = run
        self.seen: dict[tuple[SimHost, Purpose], set[tuple[bytes, Term, int]]] = defaultdict(set)
        self.sent: dict[tuple[SimHost, Purpose, str], Sent] = defaultdict(Sent)

    def carried(self, host: SimHost, to: Contact, bundle: Bundle) -> None:
        """A process sends a bundle. Raises `Broken` if that is more than a rate lets pass."""
        controller = peer_of(host).scoping.controller
        if bundle.envelope.kind is not DOWN or controller is None:
            return
        which = bundle.topic, bundle.envelope.term, bundle.envelope.first
        rates = {(rate.scope, rate.topic, rate.leaves): rate for rate in _rates(controller, to, bundle.topic)}
        for purpose, rate in rates.items():
            seen = self.seen[host, purpose]
            if which not in seen:
                seen.add(which)
                self._count(host, bundle, purpose, rate)

    def _count(self, host: SimHost, bundle: Bundle, purpose: Purpose, rate: Rate) -> None:
        limits = {"bytes": (bundle.size, rate.bytes_per_s), "bundles": (1, rate.bundles_per_s)}
        for kind, (amount, per_s) in limits.items():
            if not per_s:
                continue
            too_much = self.sent[host, purpose, kind].add(amount, per_s, self.run.world.now)
            if too_much > ROUNDING:
                where = f"{'out of' if rate.leaves else 'into'} {self._name(rate)}"
                what = f"peer {host.number} sent {too_much:.3g} {kind} too many {where}, at {per_s} per second"
                raise Broken(f"rates: {what}", f"peer:{host.number}")

    def finish(self) -> None:
        """Raise `Broken` if the rates that senders keep at the end add up to more than a scope's limit.

        Each sender may send one byte and one bundle a second, however many there are.
        """
        for plan in self.run.scenario.scopes:
            enter, leave = (
                (plan.bytes_per_s, plan.bundles_per_s),
                (plan.leaving_bytes_per_s, plan.leaving_bundles_per_s),
            )
            for topic, leaves, senders, *together in self._together(plan):
                for kind, sum_, most in zip(("bytes", "bundles"), together, leave if leaves else enter, strict=True):
                    if most and sum_ > max(most, senders):
                        where = f"{'out of' if leaves else 'into'} scope {plan.name}"
                        raise Broken(f"rates: {sum_} {kind} per second may go {where}, instead of {most}", topic)

    def _together(self, plan: ScopePlan) -> Iterator[tuple[str, bool, int, int, int]]:
        """The number of senders for each purpose, and the sums of their rates.

        Peers outside send what enters, members what leaves.
        """
        below, id_ = self.run.scenario.below(plan), scope_id(plan.name.encode())
        kept: dict[Purpose, list[Rate]] = defaultdict(list)
        for machine, peer in self.run.running():
            for rate in dict.fromkeys(_all_rates(peer.scoping.controller)):
                if rate.scope == id_ and (machine.number in below) == rate.leaves:
                    kept[rate.scope, rate.topic, rate.leaves].append(rate)
        for (_, topic, leaves), rates in kept.items():
            names = [name for name, each in self.run.topics.items() if each == topic]
            bytes_, bundles = sum(each.bytes_per_s for each in rates), sum(each.bundles_per_s for each in rates)
            yield f"topic:{(names or [*self.run.topics])[0]}", leaves, len(rates), bytes_, bundles

    def _name(self, rate: Rate) -> str:
        names = (plan.name for plan in self.run.scenario.scopes if scope_id(plan.name.encode()) == rate.scope)
        return f"scope {next(names)}, {'one topic' if rate.topic is not None else 'all topics'}"


def _rates(controller: LocalController, to: Contact, topic: bytes) -> Iterator[Rate]:
    """The rates of the channels to a peer; where there are none, of what leaves up the overlay's tree."""
    concerned = [
        each for channel in controller.channels if _end(channel.spec) == to.node_id
        for each in channel.constraints if each.topic == topic
    ]  # fmt: skip
    for each in concerned:
        yield from each.rates
    assignment = controller.membership.recorded().get(topic)
    if not concerned and assignment is not None:
        yield from assignment.leaving


def _all_rates(controller: LocalController | None) -> Iterator[Rate]:
    if controller is not None:
        yield from (rate for channel in controller.channels for each in channel.constraints for rate in each.rates)
        yield from (rate for each in controller.membership.recorded().values() for rate in each.leaving)


def _end(spec: Spec) -> bytes | None:
    match spec:
        case Address(peer):
            return peer.node_id
        case Multicast(mechanism):
            return contact(mechanism).node_id
    return None
