"""Scopes within a campus that end their part in a topic while events flow: with recovery switched off, nothing is lost.

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
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.sim.topology import Uniform
from tests.params import kind, rest_long
from tests.protocol.test_nested_scoping import TOPIC, Campus

CHANGED_S = 8.0
"""A change is over by then in the site, and in the campus."""
ID = described(TOPIC).topic


class Load:
    """A campus under load: the events so far, and who has to get them all."""

    def __init__(self, policy: ScopePolicy, *, by_sources: bool) -> None:
        """Sources publish outside, at a member of the campus, and at one of each site; a root numbers those of one."""
        self.campus = Campus(policy, Chain(), peers=3, topology=Uniform(0.001, 0.06, 3))
        self.village, members = self.campus.village, self.campus.members
        if by_sources:
            self.village.act(0, lambda peer: peer.create(TOPIC, Settings(admission="source"), lambda answer: None))
            self.village.run(2)
        self.readers = self.campus.subscribe([*members["campus"], *members["north"][:3], *members["south"][:3]])
        sources = [members["campus"][1], members["north"][1], members["south"][1]] if by_sources else []
        self.publishers = {number: self.village.publisher(number, TOPIC) for number in (0, *sources)}
        self.village.run(10)
        self.sent: list[bytes] = []
        self.flow()

    def flow(self, seconds: float = 0.0) -> None:
        """Events flow: densely, and then more thinly for as long as this."""
        until, dense = self.village.world.now + seconds, 40
        while dense or self.village.world.now < until:
            for number, publisher in self.publishers.items():
                self.sent.append(b"%d of %d" % (len(self.sent), number))
                self.village.publish(number, publisher, self.sent[-1])
            self.village.run(0.003 if dense else 0.05)
            dense = max(0, dense - 1)

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
        del self.readers[number]
        self.publishers.pop(number, None)
        self.village.act(number, Peer.leave)

    def acting(self, scope: str) -> int:
        """Of those that still take part: the member that sends out of a scope, or else the one where bundles enter."""
        state = self.manager(scope).state
        acting = [state.members[label].party.id for label in (*state.topics[ID].delegates, *state.topics[ID].entries)]
        machines = {self.village.world.machines[each].node_id: each for each in self.campus.members[scope]}
        return next(machines[id_] for id_ in acting if machines[id_] in self.readers)

    def manager(self, scope: str) -> ScopeManager:
        manager: ScopeManager = self.village.peers[1].scoping.managers[self.campus.party(scope).id][0]
        return manager

    def check(self) -> None:
        """Those that were there all the time have everything, without asking for it."""
        self.village.run(1)
        assert all(sorted(reader.payloads) == sorted(self.sent) for reader in self.readers.values())
        assert "asked_for_range" not in self.village.world.journal.marks
        assert self.village.dropped("misrouted") == 0


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
    """Its members end theirs one after another: those that send out of the scope first, while others remain."""
    load = Load(policy, by_sources=by_sources)
    for scope in ("north", "south"):
        for pause_s in (CHANGED_S, 0.0, CHANGED_S):
            end(load, load.acting(scope))
            load.flow(pause_s)
        load.check()
    load.village.run(60)
    for scope in ("north", "south"):
        assert ID not in load.manager(scope).state.topics
        stayed = [number for number in load.campus.members[scope] if number in load.village.alive()]
        assert all(load.village.tree(number, TOPIC) is None for number in stayed)
    campus = load.manager("campus")
    assert [member.party.name for member in campus.members.using(ID)] == ["", "", ""]
    assert campus.swaps.running == {}
