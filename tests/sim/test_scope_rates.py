"""A judge of rates, from outside: what peers send over channels of scopes, against the rates that these agreed on."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partialmethod

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import DOWN
from quillcast.core.messages import Contact
from quillcast.core.multicast import contact
from quillcast.protocol.scopes.channels import Address, Multicast, Rate, Spec
from quillcast.protocol.scopes.rate_limits import BURST_S, TICK_S
from quillcast.sim.host import SimHost
from quillcast.sim.simulation import Simulation
from quillcast.sim.sweep import Plan

Limit = tuple[int, bytes, bytes | None, bool]
"""A process, and what it has a rate for."""


class RateJudge:
    """Counts each bundle once for each rate of a process, as the network sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.carry = SimHost.carry
        self.seen: dict[Limit, set[tuple[object, ...]]] = defaultdict(set)
        self.over: dict[Limit, tuple[float, float]] = {}  # bytes beyond what the rate has let pass since, and when
        self.ends: dict[Limit, dict[bytes, int]] = defaultdict(dict)  # where bundles went, and the largest
        self.most: dict[Limit, int] = {}  # the highest rate so far: sides agree anew at different times
        self.broken: list[str] = []
        monkeypatch.setattr(SimHost, "carry", partialmethod(_carried, self))

    def carried(self, host: SimHost, to: Contact, bundle: Bundle) -> None:
        if bundle.envelope.kind is DOWN:
            for rate in {*self._rates(host, to, bundle.topic)}:
                self._count(host, to, bundle, rate)
        self.carry(host, to, bundle)

    def _rates(self, host: SimHost, to: Contact, topic: bytes) -> Iterator[Rate]:
        controller = host.peer.scoping.controller
        for channel in controller.channels if controller is not None else ():
            if _end(channel.spec) == to.node_id:
                yield from (rate for each in channel.constraints if each.topic == topic for rate in each.rates)

    def _count(self, host: SimHost, to: Contact, bundle: Bundle, rate: Rate) -> None:
        limit, now = (id(host), rate.scope, rate.topic, rate.leaves), host.world.now
        which = bundle.topic, bundle.envelope.term, bundle.envelope.first
        if which in self.seen[limit]:
            return
        self.seen[limit].add(which)
        over, at = self.over.get(limit, (0.0, now))
        most = self.most[limit] = max(rate.bytes_per_s, self.most.get(limit, 0))
        over = max(0.0, over - most * (now - at))
        ends = self.ends[limit]
        ends[to.node_id] = max(bundle.size, ends.get(to.node_id, 0))
        allowed = most * (BURST_S + 2 * TICK_S) + sum(ends.values())  # one for each channel
        self.over[limit] = over + bundle.size, now
        if over + bundle.size > allowed:
            self.broken.append(f"{now:.3f} s: peer {host.number} sent {over + bundle.size:.0f} of {allowed:.0f} bytes")


def _carried(host: SimHost, judge: RateJudge, to: Contact, bundle: Bundle) -> None:
    judge.carried(host, to, bundle)


def _end(spec: Spec) -> bytes | None:
    match spec:
        case Address(peer):
            return peer.node_id
        case Multicast(mechanism):
            return contact(mechanism).node_id
    return None


@pytest.mark.parametrize("seed", [91013, 91021, 91028, 91032])
def test_peers_keep_to_the_rates_of_scopes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several entry points, policies and ways over borders, and agreements that change while bundles wait."""
    monkeypatch.setattr("quillcast.sim.composed.RATED", 0.8)
    judge = RateJudge(monkeypatch)
    Simulation(Plan(hard=True, composed=True).scenario(seed), seed).run()
    assert judge.seen, "there are rates"
    assert judge.broken == []
