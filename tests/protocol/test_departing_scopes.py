"""Scopes in a campus that end their part in a topic while events flow: with recovery switched off, nothing is lost.

Each site may be on the way of events to another one: the campus chains its members.
"""

from collections.abc import Callable

import pytest

from quillcast.protocol.peer import Peer
from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.scoping.scoping import BEATS
from quillcast.protocol.topics.descriptor import Settings, described
from tests.params import kind, rest_long
from tests.protocol.test_nested_scoping import TOPIC, Campus
from tests.protocol.test_scoping import LEASE_S

CHANGED_S = 12.0
"""A change is over by then in the campus."""
ID = described(TOPIC).topic


class SlowSites:
    """Bundles take long from scope to scope. The orders of the managers, all at machine 1, overtake them."""

    def delay_s(self, a: int, b: int) -> float:
        return 0.002 if 1 in (a, b) else 0.1


class Load:
    """A campus under load: the events so far, and who has to get them all. One member of each site takes part."""

    def __init__(self, policy: ScopePolicy, *, by_sources: bool, laboratory: ScopePolicy | None = None) -> None:
        """Sources publish outside, at a member of the campus, and at those of the sites; or a root numbers events."""
        self.campus = Campus(policy, Chain(), laboratory, peers=2, topology=SlowSites())
        self.village, members = self.campus.village, self.campus.members
        if by_sources:
            self.village.act(0, lambda peer: peer.create(TOPIC, Settings(admission="source"), lambda answer: None))
            self.village.run(2)
        north = members["laboratory" if laboratory is not None else "north"][1]
        self.sites = {"south": members["south"][1], "north": north}
        self.village.run(1)
        readers = [members["campus"][0], *self.sites.values(), members["campus"][1]]
        self.readers = self.campus.subscribe(readers)
        sources = [members["campus"][1], *self.sites.values()] if by_sources else []
        self.publishers = {number: self.village.publisher(number, TOPIC) for number in (0, *sources)}
        self.village.run(10)
        self.sent: list[bytes] = []
        self.flow(1)

    def flow(self, seconds: float) -> None:
        """Events flow: densely while managers hear of what changes, and then more thinly for as long as this."""
        now = self.village.world.now
        while (passed_s := self.village.world.now - now) < seconds:
            for number, publisher in self.publishers.items():
                self.sent.append(b"%d of %d" % (len(self.sent), number))
                self.village.publish(number, publisher, self.sent[-1])
            self.village.run(0.005 if passed_s < 2 * LEASE_S / BEATS else 0.05)

    def unsubscribe(self, number: int) -> None:
        """It publishes no more either."""
        del self.readers[number]
        publisher = self.publishers.pop(number, None)

        def end(peer: Peer) -> None:
            for subscription in peer.topics.trees[ID].subscriptions[:]:
                peer.unsubscribe(subscription)
            if publisher is not None:
                peer.close_publisher(publisher)

        self.village.act(number, end)

    def leave(self, number: int) -> None:
        """It leaves the network, too: when nothing passes through it any more, or when its time is over."""
        del self.readers[number]
        self.publishers.pop(number, None)
        self.village.act(number, Peer.leave)

    def manager(self, scope: str) -> ScopeManager:
        manager: ScopeManager = self.village.peers[1].scoping.managers[self.campus.party(scope).id][0]
        return manager

    def check(self) -> None:
        """Those that were there all the time have everything, without asking for it."""
        self.village.run(1)
        assert all(sorted(reader.payloads) == sorted(self.sent) for reader in self.readers.values())
        assert "asked_for_range" not in self.village.world.journal.marks
        assert self.village.dropped("misrouted") == 0

    def check_ended(self, scope: str) -> None:
        """The scope has no part in the topic any more, and no peer in it forwards."""
        assert ID not in self.manager(scope).state.topics
        stayed = [number for number in self.campus.members[scope] if number in self.village.alive()]
        assert not any(tree.forwards for number in stayed if (tree := self.village.tree(number, TOPIC)) is not None)
        assert self.manager("campus").swaps.running == {}


@pytest.fixture(autouse=True)
def _no_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_look", lambda recovery, timer: None)  # it notices nothing that is missing


POLICIES = [Chain(), KAry(fan_out=2), Stripes(stripes=3), Mesh()]


@pytest.mark.parametrize("end", [Load.unsubscribe, Load.leave])
@pytest.mark.parametrize("by_sources", rest_long([True, False], 1))
@pytest.mark.parametrize("policy", rest_long(POLICIES, 1, kind))
def test_a_scope_that_ends_its_part_takes_nothing_from_others(
    policy: ScopePolicy, *, by_sources: bool, end: Callable[[Load, int], None]
) -> None:
    load = Load(policy, by_sources=by_sources)
    for scope, last in load.sites.items():
        end(load, last)
        load.flow(CHANGED_S)
        load.check()
        load.check_ended(scope)


def test_nor_does_a_scope_that_ends_its_part_with_the_only_scope_in_it() -> None:
    load = Load(Chain(), by_sources=True, laboratory=Chain())
    load.unsubscribe(load.sites["north"])
    load.flow(CHANGED_S)
    load.check()
    for scope in ("north", "laboratory"):
        load.check_ended(scope)


def test_a_source_that_was_closed_takes_part_until_its_events_are_stable() -> None:
    """Otherwise its scope would end its part while they are on their way to others."""
    load = Load(Chain(), by_sources=True)
    village, source = load.village, load.sites["south"]
    publisher = load.publishers[source]
    village.publish(source, publisher, b"last")
    village.act(source, lambda peer: peer.close_publisher(publisher))
    while publisher.admitted < publisher.next:
        village.run(0.01)
    topics = village.peers[source].topics.publishing.topics
    assert publisher.stable < publisher.next
    assert ID in topics()
    village.run(5)
    assert ID not in topics()
