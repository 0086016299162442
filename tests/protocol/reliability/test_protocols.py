"""The suite passes the recovery protocols that are built in, and notices those that break a rule."""

from collections.abc import Callable, Sequence
from typing import get_args

import pytest

from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.conformance import RepairsWrongly, check
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, Findings, RecoveryProtocol, Silent, StreamId
from quillcast.protocol.reliability.messages import RingToken
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.scopes.messages import RecoveryName

SMALL = (1, 2, 3, 6)


def test_scope_files_name_the_protocols_that_there_are() -> None:
    assert get_args(RecoveryName) == tuple(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_protocols_keep_the_rules(name: str) -> None:
    report = check(BUILT_IN[name], whole=name in ("ring", "srm"))
    assert report.domains == 36
    assert (report.messages > 0) == (name in ("ring", "srm"))


class Mutant(Silent):
    def __init__(self, context: AgentContext) -> None:
        self.context = context

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        return AlongTree().find(stream, lacks, neighbours, at_border=at_border)


class SeeksForEver(Mutant):
    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        return Findings((), neighbours, ())


class AsksNoMember(Mutant):
    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        return Findings((), (), lacks)


class Chatters(Mutant):
    def follow(self, others: tuple[Contact, ...]) -> None:
        self.others = others
        self.context.host.set_timer(AgentDue(self.context.scope, "mutant"), 1.0)

    def due(self, what: object) -> None:
        for other in self.others:
            self.context.host.send(other, RingToken(self.context.scope, self.context.host.me, 0))
        self.context.host.set_timer(AgentDue(self.context.scope, "mutant"), 1.0)

    def received(self, sender: Contact, message: Message) -> None: ...


class IsMoody(Chatters):
    moods = 0

    def due(self, what: object) -> None:
        IsMoody.moods += 1
        for other in self.others:
            self.context.host.send(other, RingToken(self.context.scope, self.context.host.me, IsMoody.moods))


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (SeeksForEver, "never found|seeks"),
        (AsksNoMember, "requested from above"),
        (Chatters, "agents keep sending"),
        (IsMoody, "something else the second time"),
    ],
)
def test_a_protocol_that_breaks_a_rule_is_told_which(
    mutant: Callable[[AgentContext], RecoveryProtocol], why: str
) -> None:
    with pytest.raises(RepairsWrongly, match=why):
        check(mutant, whole=False, sizes=SMALL)
