"""One member of a recovery domain: what it holds and lacks are values."""

from collections.abc import Callable
from typing import Any

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet, intersection
from quillcast.protocol.reliability.domain import AgentContext, RecoveryTimes, StreamId
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, WEATHER, RecordingHost

TIMES = RecoveryTimes(gap_s=0.5, give_up_s=4.0, lease_s=30.0, datagram_gap_s=0.25)
SITE = b"s" * 16
STREAM = StreamId(WEATHER, FIRST)


class DomainMember:
    """Bob, after whom Carol and Alice come."""

    def __init__(self, agent: Callable[[AgentContext], Any]) -> None:
        self.host = RecordingHost(BOB)
        self.held, self.missing = RangeSet(), list[Range]()
        self.told = list[StreamId]()
        self.at_border = True
        self.agent = agent(AgentContext(self.host, TIMES, SITE, self))
        self.agent.follow((CAROL, ALICE))

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return intersection(among, self.held)

    def lacks(self, stream: StreamId) -> list[Range]:
        return self.missing

    def found(self, stream: StreamId) -> None:
        self.told.append(stream)

    def look(self) -> tuple[list[tuple[Contact, list[Range]]], list[Range]]:
        """Look for what is missing: the holders, and what the domain lacks."""
        found = self.agent.find(STREAM, self.missing, [ALICE], at_border=self.at_border)
        return [(contact, [*ranges]) for contact, ranges in found.holders], [*found.lacks]
