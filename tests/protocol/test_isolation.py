"""Isolation: what members of a scope do concerns nobody outside, as long as others of it take part in the same topics.

Each run is compared with one of the same seed in which nothing happens: as many messages and bundles of each kind cross
the scope's border, between the same peers. Up to what happens, the runs of a topic's way through the scope are one.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import cache
from typing import NamedTuple

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.messages import Contact, Message
from quillcast.protocol.peer import Peer
from quillcast.protocol.scopes.channels import KEY_BYTES, Party
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.gossip import Gossip
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scopes.state import ScopeConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.sim.host import SimHost
from tests.branches import branch
from tests.params import rest_long
from tests.protocol.test_scoping import LEASE_S, Corners, Site
from tests.protocol.topics.village import Reader

OUTSIDE = 2  # machines; the next one runs the manager, inside
READERS = 10
STEPS = 80
GROUP = -1  # the receiver of what goes to a multicast group
SETTLED_S = 3.0  # until what came last is reported
Crossing = tuple[int, int, str]
"""Sender, receiver and kind."""
Happening = Callable[[Site], None]


class WithinCampus(Site):
    """A site in a campus with three peers of its own. The first machine runs the manager of the campus."""

    def owners(self) -> Sequence[Party]:
        campus = Party(scope_id(b"campus"), self.village.world.machines[0].contact, managed=True, name="campus")
        manager = ScopeManager.new(campus, (), ScopeConfig(lambda topic: Chain(), LEASE_S))
        manager.state.secret = bytes(KEY_BYTES)
        self.village.act(0, lambda peer: peer.scoping.manage(manager, lambda state: True))
        self.around = [self.add_to(campus) for _ in range(3)]
        return (campus,)


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

    def observed(self) -> "Observed":
        numbers = {machine.node_id: machine.number for machine in self.site.village.world.machines}
        ends = {(sender, numbers.get(to, GROUP), kind): count for (sender, to, kind), count in self.counts.items()}
        return Observed(Counter(ends), self.site.around)


class Observed(NamedTuple):
    """What a run shows."""

    sent: Counter[Crossing]
    """All messages and bundles, those inside, too."""
    around: list[int]
    """Peers of scopes around the site."""

    @property
    def elsewhere(self) -> frozenset[int]:
        """The machines outside."""
        return frozenset((*range(OUTSIDE), *self.around))

    def of_border(self) -> Counter[Crossing]:
        """How much crossed the border, but for heartbeats: one more or less may be just before the end."""
        there = self.elsewhere
        single = {each: count for each, count in self.sent.items() if each[1] != GROUP}
        crossings = {each: count for each, count in single.items() if (each[0] in there) != (each[1] in there)}
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
    """A member that is none of the three, with members below it if there is one."""
    readers, parents = others(site), site.parents().values()
    return next((number for number in readers if number in parents), readers[0])


def others(site: Site) -> list[int]:
    """The readers without the topic's entry point and its stand-bys, and without the members that come first."""
    manager, _ = site.village.peers[site.outside].scoping.managers[site.party.id]
    three = manager.state.topics[described(site.name).topic].entries
    nodes = {manager.state.members[label].party.id for label in three}
    return [each for each in site.members[3:READERS] if site.village.world.machines[each].node_id not in nodes]


class Way(NamedTuple):
    """How the topic goes in the scope."""

    policy: ScopePolicy
    recovery: RecoveryName = "tree"
    busy: bool = False
    """Whether events flow."""
    lossy: bool = False
    """Whether its source numbers the events, and every fourth bundle to a member is lost on its way from another."""
    nested: bool = False
    """Whether the scope is in another one."""

    def __str__(self) -> str:
        return f"{type(self.policy).__name__}-{self.recovery}" + ("-nested" if self.nested else "")


@cache
def settled(way: Way) -> tuple[Site, Publisher]:
    """The site before anything happens."""
    kind = WithinCampus if way.nested else Site
    site = kind(READERS + 1, way.policy, outside=OUTSIDE, recovery=way.recovery)
    if way.lossy:
        site.village.act(0, lambda peer: peer.create(site.name, Settings(admission="source"), lambda answer: None))
        site.village.run(5)
    site.subscribe(site.members[:READERS])
    publisher = site.village.publisher(0, site.name)
    site.village.run(30)
    return site, publisher


def run(way: Way, happen: Happening) -> Observed:
    """Let something happen. Only in a fork: it changes the settled site."""
    site, publisher = settled(way)
    with pytest.MonkeyPatch.context() as patch:
        crossings = Crossings(site, patch)
        if way.lossy:
            lose(site, patch)
        for step in range(STEPS // 2 if way.lossy else STEPS):
            if step == 5:
                happen(site)
            if way.busy:
                site.village.publish(0, publisher, b"%d" % step)
            site.village.run(0.5)
        site.village.run(SETTLED_S)
    return crossings.observed()


@cache
def observed(way: Way, happen: Happening = nothing) -> Observed:
    settled(way)
    return branch(run, way, happen)


def lose(site: Site, patch: pytest.MonkeyPatch) -> None:
    """Lose every fourth event on its way from another member to one that stays, the first time that it is sent."""
    machines, number = site.village.world.machines, forwarder(site)
    victim = machines[next(each for each in others(site) if each != number)].node_id
    sent, carry = set[int](), SimHost.carry

    def carry_some(host: SimHost, to: Contact, bundle: Bundle) -> None:
        first = bundle.envelope.first
        if to.node_id != victim or first % 4 != 3 or first in sent:
            carry(host, to, bundle)
        else:
            sent.add(first)

    patch.setattr(SimHost, "carry", carry_some)


JOINS = [join, join_from_elsewhere]
ANYTHING = [*JOINS, leave, unsubscribe, crash, fall_silent]
WAYS = [Way(KAry(fan_out=2)), Way(Chain()), Way(Mesh()), Way(KAry(fan_out=2), nested=True)]
OTHERS = [Star(), Ring(), Gossip(), Stripes(), DelayOptimised(), IpMulticast()]
MORE = [*map(Way, OTHERS), *(Way(policy, nested=True) for policy in (Chain(), Mesh(), *OTHERS))]
ALL_WAYS = [*WAYS, *(pytest.param(way, marks=pytest.mark.long) for way in MORE)]
BUSY = [
    Way(KAry(fan_out=2), "ring", True), Way(Chain(), "tree", True), Way(Mesh(), "srm", True),
    Way(Chain(), "tree", True, nested=True),
]  # fmt: skip
LOSSY = [
    Way(KAry(fan_out=2), "ring", True, True), Way(KAry(fan_out=2), "srm", True, True), Way(Mesh(), "tree", True, True),
    Way(KAry(fan_out=2), "gossip", True, True),
]  # fmt: skip


@pytest.mark.parametrize("happen", rest_long(ANYTHING, 3))
@pytest.mark.parametrize("way", ALL_WAYS, ids=str)
def test_what_one_member_does_sends_no_message_outside(way: Way, happen: Happening) -> None:
    assert observed(way, happen).of_border() == observed(way).of_border()


def sent_out(crossings: Counter[Crossing], elsewhere: Container[int]) -> Counter[Crossing]:
    """What members sent outside."""
    return Counter({each: count for each, count in crossings.items() if each[0] not in elsewhere})


@pytest.mark.parametrize("happen", rest_long([join, leave, unsubscribe], 1))
@pytest.mark.parametrize("way", BUSY + LOSSY, ids=str)
def test_nor_does_it_while_events_flow(way: Way, happen: Happening) -> None:
    before, shown = observed(way).of_border(), observed(way, happen)
    now, elsewhere = shown.of_border(), shown.elsewhere
    assert sum(before.values()) > 100
    assert sent_out(now, elsewhere) == sent_out(before, elsewhere)
    assert now - before == Counter()
    if way.lossy:
        words = {"ring": {"RingToken"}, "srm": {"Sought"}}.get(way.recovery, set())
        lost = {"Fetch"} if way.recovery != "tree" else set()  # else other channels bring what one lost
        assert lost | words <= {kind for _, _, kind in shown.sent}


@pytest.mark.parametrize("way", BUSY + LOSSY, ids=str)
def test_a_member_that_dies_while_events_flow_is_no_matter_outside_either(way: Way) -> None:
    """There is less to say: while its lease goes on, nothing becomes stable."""
    assert observed(way, crash).of_border() - observed(way).of_border() == Counter()


@pytest.mark.parametrize("happens", [False, True])
def test_an_entry_point_does_not_tell_whether_there_are_other_members(
    happens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(5, Chain(), outside=OUTSIDE)
    site.subscribe(site.members[:1])
    site.village.run(30)
    crossings = Crossings(site, monkeypatch)
    if happens:
        site.village.subscribe(site.members[4], site.name, Reader())
        site.village.run(10)
        site.village.kill(site.members[4])
    site.village.run(40)
    border = crossings.observed().of_border()
    assert not {kind for _, _, kind in border} & {"Changes", "Join", "Rejoin", "Leave"}


@pytest.mark.parametrize("happen", [join, join_from_elsewhere])
def test_a_member_joins_inside_where_the_topics_entry_point_is_not_the_first_of_the_three(
    happen: Happening, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(READERS + 1, KAry(fan_out=2), outside=OUTSIDE, topology=Corners())
    site.subscribe(site.members[3:READERS])
    site.village.run(30)
    crossings = Crossings(site, monkeypatch)
    happen(site)
    site.village.run(10)
    assert [number for number, parent in site.parents().items() if parent in range(OUTSIDE)] == [site.members[1]]
    border = crossings.observed().of_border()
    assert not {kind for _, _, kind in border} & {"Changes", "Join", "Rejoin", "Leave", "Routed"}
