"""Members of a scope that come and go while events flow: with recovery switched off, nobody misses anything."""

from collections.abc import Callable

import pytest

from quillcast.protocol.reliability.recovery import Recovery
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import ScopePolicy
from quillcast.protocol.topics.descriptor import described
from quillcast.sim.topology import Uniform
from tests.protocol.test_scoping import LEASE_S, Site, by_sources
from tests.protocol.topics.village import Reader

CHANGED_S = 2 * LEASE_S  # a change is over by then, and so is one that waited for it


class Load:
    """A site under load: the events so far, and who has to get them all."""

    def __init__(self, policy: ScopePolicy, *, by: tuple[int, ...] = ()) -> None:
        """Bundles have records from the start, as after a change of the policy. `by`: members that number events."""
        self.site = Site(10, Mesh(), topology=Uniform(0.001, 0.06, 3))
        members = [self.site.members[at] for at in by]
        self.publish = by_sources(self.site, 0, *members) if by else self._publisher()
        self.readers = self.site.subscribe(self.site.members[:7])
        self.site.policy = policy
        self.site.village.act(1, lambda peer: peer.scoping.policies_changed(self.site.party.id))
        self.site.village.run(CHANGED_S)
        self.sent: list[bytes] = []

    def _publisher(self) -> Callable[[bytes], list[bytes]]:
        publisher = self.site.village.publisher(0, self.site.name)

        def publish(payload: bytes) -> list[bytes]:
            self.site.village.publish(0, publisher, payload)
            self.site.village.run(0.003)
            return [payload]

        return publish

    def flow(self, seconds: float = 0.0) -> None:
        """Events flow: densely, and then more thinly for as long as this."""
        until = self.site.village.world.now + seconds
        for _ in range(40):
            self.sent += self.publish(b"%d" % len(self.sent))
        while self.site.village.world.now < until:
            self.sent += self.publish(b"%d" % len(self.sent))
            self.site.village.run(0.03)

    def join(self, number: int) -> Reader:
        reader = Reader()
        self.site.village.subscribe(number, self.site.name, reader)
        return reader

    def unsubscribe(self, number: int) -> None:
        del self.readers[number]
        topic = described(self.site.name).topic
        self.site.village.act(
            number,
            lambda peer: [peer.unsubscribe(each) for each in peer.topics.trees[topic].subscriptions],
        )

    def leave(self, number: int) -> None:
        del self.readers[number]
        self.site.village.act(number, lambda peer: peer.leave())

    @property
    def manager(self) -> ScopeManager:
        manager: ScopeManager = self.site.village.peers[1].scoping.managers[self.site.party.id][0]
        return manager

    def check(self) -> None:
        """Those that were there all the time have everything, without asking for it."""
        self.site.village.run(0.3)
        assert all(sorted(reader.payloads) == sorted(self.sent) for reader in self.readers.values())
        assert "asked_for_range" not in self.site.village.world.journal.marks
        assert self.site.village.dropped("misrouted") == 0

    def check_changed(self) -> None:
        """No change goes on, and no channel is left over."""
        assert self.manager.swaps.running == {}
        assert [topic.surplus for topic in self.manager.state.topics.values()] == [()]


@pytest.fixture(autouse=True)
def _no_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recovery, "_look", lambda recovery, timer: None)  # it notices nothing that is missing


POLICIES = [Stripes(stripes=3), Ring(), Mesh(), Chain(), KAry(fan_out=2)]
SOURCES = (4, 9)
CASES = [
    *(
        pytest.param(policy, (), id=type(policy).__name__, marks=[pytest.mark.long] * (place > 1))
        for place, policy in enumerate(POLICIES)
    ),
    *(
        pytest.param(policy, SOURCES, id=f"{type(policy).__name__} of sources", marks=pytest.mark.long)
        for policy in (Stripes(stripes=3), Chain())
    ),
]


@pytest.mark.parametrize(("policy", "by"), CASES)
def test_members_that_join_and_leave_take_nothing_from_others(policy: ScopePolicy, by: tuple[int, ...]) -> None:
    load = Load(policy, by=by)
    load.flow()
    joined = []
    for number in load.site.members[7:9]:
        joined.append(load.join(number))
        load.flow()
    load.flow(CHANGED_S)
    load.check()
    for number in (load.site.members[2], load.site.members[5]):
        load.unsubscribe(number)
        load.flow()
    load.flow(CHANGED_S)
    load.check()
    for number in (load.site.members[3], load.site.members[6]):
        load.leave(number)
        load.flow()
    load.flow(CHANGED_S)
    load.site.village.run(CHANGED_S)
    load.check()
    load.check_changed()
    for reader in joined:
        for stream in streams(reader.payloads):
            of_all = next(each for each in streams(load.sent) if each[-1] == stream[-1])
            assert stream == of_all[-len(stream) :], "all from where it began"


def streams(payloads: list[bytes]) -> list[list[bytes]]:
    """The events of each source, or of the root."""
    by = [payload.split()[0] if b" " in payload else b"" for payload in payloads]
    return [[each for each, of in zip(payloads, by, strict=True) if of == one] for one in dict.fromkeys(by)]
