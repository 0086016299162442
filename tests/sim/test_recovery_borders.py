"""What leaves a recovery domain: a judge of the questions that heads of scopes send into the domain around theirs."""

from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod
from typing import Any

import msgspec
import pytest

from quillcast.core.host import Host
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, beyond, difference
from quillcast.protocol.reliability.agents import Agents
from quillcast.protocol.reliability.domain import Findings, StreamId
from quillcast.protocol.reliability.messages import RingToken, Sought, Unavailable
from quillcast.protocol.scopes.messages import RecoveryName
from quillcast.sim.applications import peer_of
from quillcast.sim.hard import hard
from quillcast.sim.host import SimHost
from quillcast.sim.scenario import Scenario
from quillcast.sim.simulation import Simulation

HISTORIES = [(8_900_012, 1), (8_900_021, 1), (8_900_033, 1), (8_900_021, 2)]
"""Seeds, and into how many sites most peers are divided: here heads have something to ask for."""


class Borders:
    """Notes each question that leaves a domain, and what of it a neighbour inside is about to send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.too_early = 0, list[str]()
        self.sought: dict[tuple[SimHost, bytes, StreamId], RangeSet] = {}
        self.refused: dict[tuple[bytes, bytes, StreamId], RangeSet] = {}  # by who lacks it and who refused it
        self.near: dict[tuple[Host, StreamId], list[Contact]] = {}  # who was a neighbour inside at the last check
        self._send, self._find = SimHost.send, Agents.find
        monkeypatch.setattr(SimHost, "send", partialmethod(_swapped, self.send))
        monkeypatch.setattr(Agents, "find", partialmethod(_swapped, self.find))

    def send(self, host: SimHost, to: Contact, message: Message) -> None:
        match message:
            case Unavailable(topic, term, ranges):
                refused = self.refused.setdefault((to.node_id, host.me, StreamId(topic, term)), RangeSet())
                refused.update(ranges)
            case Sought(scope, by, topic, term, ranges) if by.node_id == host.me:
                self._look(host, scope, StreamId(topic, term), ranges)
            case RingToken(scope, starter) if starter == host.me:
                for each in message.lacking:
                    self._look(host, scope, StreamId(each.topic, each.term), each.ranges)
        self._send(host, to, message)

    def find(
        self, agents: Agents, stream: StreamId, lacks: list[Range], neighbours: Sequence[Sequence[Contact]], *rest: Any
    ) -> Iterator[Findings]:
        self.near[agents.host, stream] = [*neighbours[0]]
        return self._find(agents, stream, lacks, neighbours, *rest)

    def _look(self, host: SimHost, scope: bytes, stream: StreamId, ranges: tuple[Range, ...]) -> None:
        """`ranges` are sought in a scope's domain. What was sought there before may still be."""
        recovery = peer_of(host).recovery
        levels = [level for domain in recovery.agents.of(stream.topic) for level in domain]
        outer = [level for level in levels[1:] if getattr(level.agent, "scope", b"") == scope]
        if not outer or stream not in recovery.gaps:
            return
        new = difference(ranges, self.sought.setdefault((host, scope, stream), RangeSet()))
        own = outer[0].seeks(stream, new)  # a token also names what others lack
        self.left += bool(own)
        self.sought[host, scope, stream].update(ranges)
        gap, group = recovery.gaps[stream], recovery.groups.find(stream.topic)
        assert group is not None
        inside = group.repairers.peers(stream.term).inside
        if group.upper.upstream(stream.term) not in inside:  # then nobody inside has what is beyond the domain's report
            own = difference(own, RangeSet(beyond(own, group.reach.reached(stream.term))))
        near = self.near[host, stream]  # an agent asks a moment after it set out to: others may have come since
        for contact in (each for each in inside if each in near):
            refused = self.refused.get((host.me, contact.node_id, stream), RangeSet())
            may_come = gap.may_send(contact.node_id, difference(own, refused), host.now(), recovery.times.give_up_s)
            if may_come:
                self.too_early.append(f"{host.now():.3f}: {may_come} of {stream}, which {contact} may send")


def _swapped(self: object, method: Callable[..., Any], *args: object) -> Any:
    return method(self, *args)


def nested(seed: int, sites: int, inside: RecoveryName, around: RecoveryName) -> Scenario:
    """A hard history in sites of a campus, which repair by one protocol, and the campus by another."""
    scenario = hard(seed).with_scopes("mesh", sites, "chain")
    scopes = [msgspec.structs.replace(each, recovery=inside if each.within else around) for each in scenario.scopes]
    return msgspec.structs.replace(scenario, scopes=scopes)


@pytest.mark.parametrize(
    ("inside", "around"),
    [
        ("tree", "ring"),
        ("gossip", "srm"),
        pytest.param("tree", "srm", marks=pytest.mark.long),
        pytest.param("gossip", "ring", marks=pytest.mark.long),
    ],
)
def test_no_question_leaves_a_domain_for_what_a_neighbour_inside_is_about_to_send(
    inside: RecoveryName, around: RecoveryName, monkeypatch: pytest.MonkeyPatch
) -> None:
    borders = Borders(monkeypatch)
    for seed, sites in HISTORIES:
        Simulation(nested(seed, sites, inside, around), seed).run()
    assert borders.left, "some questions have to leave"
    assert borders.too_early == []
