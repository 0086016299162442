"""Isolation: what members of a scope do concerns nobody outside, as long as others of it take part in the same topics.

Each run is compared with one of the same seed in which nothing happens: as many messages and bundles of each kind cross
the scope's border, between the same peers.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact, Message
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.topics.descriptor import Settings
from quillcast.sim.host import SimHost
from tests.protocol.test_scoping import Site
from tests.protocol.topics.village import Reader

OUTSIDE = 2  # machines; the next one runs the manager, inside
READERS = 10
STEPS = 80
Crossing = tuple[int, int, str]
"""Sender, receiver and kind."""
Happening = Callable[[Site], None]


class Crossings:
    """Counts what members and others send each other."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = site
        self.counts: Counter[tuple[int, bytes, str]] = Counter()
        send, carry = SimHost.send, SimHost.carry
        monkeypatch.setattr(SimHost, "send", lambda host, to, message: self._count(host, to, message, send))
        monkeypatch.setattr(SimHost, "carry", lambda host, to, bundle: self._count(host, to, bundle, carry))

    def _count(self, host: SimHost, to: Contact, what: Message | Bundle, go_on: Callable[..., None]) -> None:
        self.counts[host.machine.number, to.node_id, type(what).__name__] += 1
        go_on(host, to, what)

    def of_border(self) -> Counter[Crossing]:
        """How much crossed the border, but for heartbeats: one more or less may be just before the end."""
        numbers = {machine.node_id: machine.number for machine in self.site.village.world.machines}
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


class Way(NamedTuple):
    """How the topic goes in the scope."""

    policy: ScopePolicy
    recovery: RecoveryName = "tree"
    busy: bool = False
    """Whether events flow."""
    lossy: bool = False
    """Whether its source numbers the events, and every fourth bundle to a member is lost on its way from another."""

    def __str__(self) -> str:
        return f"{type(self.policy).__name__}-{self.recovery}"


@cache
def crossed_without(way: Way) -> Counter[Crossing]:
    """What crosses the border while nothing happens inside."""
    with pytest.MonkeyPatch.context() as patch:
        return crossed(way, nothing, patch).of_border()


def crossed(way: Way, happen: Happening, patch: pytest.MonkeyPatch) -> Crossings:
    site = Site(READERS + 1, way.policy, outside=OUTSIDE, recovery=way.recovery)
    if way.lossy:
        site.village.act(0, lambda peer: peer.create(site.name, Settings(admission="source"), lambda answer: None))
        site.village.run(5)
    site.subscribe(site.members[:READERS])
    publisher = site.village.publisher(0, site.name)
    site.village.run(30)
    crossings = Crossings(site, patch)
    if way.lossy:
        lose(site, patch)
    for step in range(STEPS // 2 if way.lossy else STEPS):
        if step == 5:
            happen(site)
        if way.busy:
            site.village.publish(0, publisher, b"%d" % step)
        site.village.run(0.5)
    return crossings


def lose(site: Site, patch: pytest.MonkeyPatch) -> None:
    """Lose every fourth bundle on its way from members to one that stays."""
    numbers = {machine.node_id: machine.number for machine in site.village.world.machines}
    victim = next(number for number in site.members[3:READERS] if number != forwarder(site))
    count, carry = itertools.count(), SimHost.carry

    def carry_some(host: SimHost, to: Contact, bundle: Bundle) -> None:
        between_members = numbers[to.node_id] == victim and host.machine.number in site.members
        if not (between_members and next(count) % 4 == 3):
            carry(host, to, bundle)

    patch.setattr(SimHost, "carry", carry_some)


ANYTHING = [join, join_from_elsewhere, leave, unsubscribe, crash, fall_silent]
WAYS = [Way(KAry(fan_out=2)), Way(Chain()), Way(Mesh())]
BUSY = [Way(KAry(fan_out=2), "ring", True), Way(Chain(), "tree", True), Way(Mesh(), "srm", True)]
LOSSY = [Way(KAry(fan_out=2), "ring", True, True), Way(KAry(fan_out=2), "srm", True, True)]


@pytest.mark.parametrize("happen", ANYTHING)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_one_member_does_sends_no_message_outside(
    way: Way, happen: Happening, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert crossed(way, happen, monkeypatch).of_border() == crossed_without(way)


@pytest.mark.parametrize("happen", [join, leave, crash])
@pytest.mark.parametrize("way", BUSY, ids=str)
def test_nor_does_it_while_events_flow(way: Way, happen: Happening, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be less to say: while a lease goes on, nothing becomes stable."""
    before = crossed_without(way)
    now = crossed(way, happen, monkeypatch).of_border()
    assert sum(before.values()) > 100
    assert now - before == Counter()


@pytest.mark.parametrize("happen", [join, leave, crash])
@pytest.mark.parametrize("way", LOSSY, ids=str)
def test_while_members_repair_events_of_sources_it_only_divides_reports_otherwise(
    way: Way, happen: Happening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What members have reaches the entry point in other portions. Nobody is asked for events across the border."""
    before, crossings = crossed_without(way), crossed(way, happen, monkeypatch)
    now = crossings.of_border()
    assert {kind for _, _, kind in now - before} <= {"Changes"}
    assert (now - before).total() < before.total() / 20
    assert not {kind for _, _, kind in now} & {"Fetch", "FetchFromRoot", "FetchFromSource", "Routed"}
    assert {"Fetch", "RingToken" if way.recovery == "ring" else "Sought"} <= {kind for _, _, kind in crossings.counts}
