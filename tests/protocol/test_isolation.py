"""Isolation: what members of a scope do concerns nobody outside, as long as others of it take part in the same topics.

Each run is compared with one of the same seed in which nothing happens: as many messages and bundles of each kind cross
the scope's border, between the same peers.
"""

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact, Message
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.sim.host import SimHost
from tests.protocol.test_scoping import Site
from tests.protocol.topics.village import Reader

OUTSIDE = 2  # machines; the next one runs the manager, inside
READERS = 10
Crossing = tuple[int, int, str]
"""Sender, receiver and kind."""
Happening = Callable[[Site], None]


class Crossings:
    """Counts what members and others send each other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[tuple[int, bytes, str]] = Counter()
        send, carry = SimHost.send, SimHost.carry
        monkeypatch.setattr(SimHost, "send", lambda host, to, message: self._count(host, to, message, send))
        monkeypatch.setattr(SimHost, "carry", lambda host, to, bundle: self._count(host, to, bundle, carry))

    def _count(self, host: SimHost, to: Contact, what: Message | Bundle, go_on: Callable[..., None]) -> None:
        self.counts[host.machine.number, to.node_id, type(what).__name__] += 1
        go_on(host, to, what)

    def of_border(self, site: Site) -> Counter[Crossing]:
        """How much crossed the border, but for heartbeats: one more or less may be just before the end."""
        numbers = {machine.node_id: machine.number for machine in site.village.world.machines}
        ends = {(sender, numbers[to], kind): count for (sender, to, kind), count in self.counts.items()}
        crossings = {each: count for each, count in ends.items() if (each[0] < OUTSIDE) != (each[1] < OUTSIDE)}
        return Counter({each: count for each, count in crossings.items() if not each[2].startswith("Heartbeat")})


def nothing(site: Site) -> None: ...


def join(site: Site) -> None:
    site.village.subscribe(site.members[READERS], site.name, Reader())


def join_from_elsewhere(site: Site) -> None:
    site.village.subscribe(site.add(), site.name, Reader())


def leave(site: Site) -> None:
    site.village.act(forwarder(site), Peer.leave)


def unsubscribe(site: Site) -> None:
    tree = site.village.tree(number := forwarder(site), site.name)
    assert tree is not None
    site.village.act(number, lambda peer: peer.unsubscribe(tree.subscriptions[0]))


def crash(site: Site) -> None:
    site.village.kill(forwarder(site))


def fall_silent(site: Site) -> None:
    site.village.kill(forwarder(site), silently=True)


def forwarder(site: Site) -> int:
    """A member outside the ring, with members below it if there is one."""
    readers, parents = site.members[3:READERS], site.parents().values()
    return next((number for number in readers if number in parents), readers[0])


@cache
def crossed_without(policy: ScopePolicy, *, busy: bool) -> Counter[Crossing]:
    """What crosses the border while nothing happens inside."""
    with pytest.MonkeyPatch.context() as patch:
        return crossed(policy, nothing, patch, busy=busy)


def crossed(policy: ScopePolicy, happen: Happening, patch: pytest.MonkeyPatch, *, busy: bool) -> Counter[Crossing]:
    site = Site(READERS + 1, policy, outside=OUTSIDE)
    site.subscribe(site.members[:READERS])
    publisher = site.village.publisher(0, site.name)
    site.village.run(30)
    crossings = Crossings(patch)
    for step in range(80):
        if step == 5:
            happen(site)
        if busy:
            site.village.publish(0, publisher, b"%d" % step)
        site.village.run(0.5)
    return crossings.of_border(site)


ANYTHING = [join, join_from_elsewhere, leave, unsubscribe, crash, fall_silent]
POLICIES = [KAry(fan_out=2), Chain(), Mesh()]


@pytest.mark.parametrize("happen", ANYTHING)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: type(each).__name__)
def test_what_one_member_does_sends_no_message_outside(
    policy: ScopePolicy, happen: Happening, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = crossed_without(policy, busy=False)
    assert crossed(policy, happen, monkeypatch, busy=False) == before


@pytest.mark.parametrize("happen", [join, leave, crash])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda each: type(each).__name__)
def test_nor_does_it_while_events_flow(policy: ScopePolicy, happen: Happening, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be less to say: while a lease goes on, nothing becomes stable."""
    before = crossed_without(policy, busy=True)
    now = crossed(policy, happen, monkeypatch, busy=True)
    assert sum(before.values()) > 100
    assert now - before == Counter()
