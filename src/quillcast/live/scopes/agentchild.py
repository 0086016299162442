"""The process in which a recovery agent of another package runs (`agents.ConfinedAgent`).

It runs as `python -m quillcast.live.scopes.agentchild FD SECONDS BYTES`, carries out orders from a socket one by one,
and keeps to `process.ProcessLimits`.
"""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from quillcast.core.host import Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.core.trace import Mark, Record
from quillcast.live.scopes import agentorders
from quillcast.live.scopes.child import found, told
from quillcast.live.scopes.framing import encoded, receive
from quillcast.live.scopes.process import ProcessLimits
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, Findings, Holder, RecoveryProtocol, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord

A = TypeVar("A")


class AgentChild:
    """Makes one agent, and acts as its host and as its member's state: questions and messages go to the peer.

    `say` sends to the peer, `answer` waits for its answer.
    """

    me: NodeId
    contact: Contact
    random: Random
    agent: RecoveryProtocol

    def __init__(self, say: Callable[[msgspec.Struct], None], answer: Callable[[], agentorders.ToAgent]) -> None:
        self.say, self.answer = say, answer
        self.now_s = 0.0
        self.scope, self.name, self.package = b"", "", ""
        self.timers: dict[int, Any] = {}
        self.numbers = count()

    def carry_out(self, order: agentorders.Begin) -> None:
        """Carry out an order, and report that it is done."""
        self.now_s = order.now_s
        try:
            self._carry_out(order.task)
            self.say(agentorders.Done())
        except MemoryError:
            self.say(agentorders.AgentFailed("it exceeded its memory limit"))
        except agentorders.Misbehaved as fault:
            self.say(agentorders.AgentFailed(str(fault)))
        except Exception as error:  # noqa: BLE001  another package's code may raise anything
            self.say(agentorders.AgentFailed(f"it raised {told(error, self.package)}"))

    def _carry_out(self, task: agentorders.Task) -> None:
        match task:
            case agentorders.MakeAgent():
                self._make(task)
            case agentorders.Follow(others):
                self.agent.follow(others)
            case agentorders.Find(stream, lacks, neighbours, at_border):
                findings: Any = self.agent.find(stream, lacks, neighbours, at_border=at_border)
                self.say(agentorders.FindingsAre(_plain(findings)))
            case agentorders.Filled(stream):
                self.agent.filled(stream)
            case agentorders.Heard(sender, body):
                self.agent.received(sender, AgentWord(self.scope, self.name, body))
            case agentorders.Due(number):
                if number in self.timers:
                    self.agent.due(self.timers.pop(number))
            case agentorders.LinkLost(node):
                self.agent.link_lost(node)

    def _make(self, order: agentorders.MakeAgent) -> None:
        self.me, self.contact, self.random = NodeId(order.member.node_id), order.member, Random(order.seed)
        self.scope, self.name = order.scope, order.name
        self.numbers = count(self.random.getrandbits(31))  # timers of an earlier agent have other numbers
        self.package = Path(order.reference.partition(":")[0].partition(".")[0]).stem
        self.agent = found(order.reference, b"")(AgentContext(self, order.times, order.scope, self))

    # ---- the agent's host

    def now(self) -> float:
        return self.now_s

    def send(self, to: Contact, message: Message) -> None:
        if not isinstance(message, AgentWord):
            raise agentorders.Misbehaved(f"it sends a {type(message).__name__} instead of an AgentWord")
        if len(message.body) > WORD_BYTES_MAX:
            raise agentorders.Misbehaved(
                f"it sends {len(message.body)} bytes in one word; at most {WORD_BYTES_MAX} are allowed"
            )
        self.say(agentorders.Say(to, message.body))

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        if not isinstance(timer, AgentDue):
            raise agentorders.Misbehaved(f"it sets a {type(timer).__name__} instead of an AgentDue")
        number = next(self.numbers)
        self.timers[number] = timer.what
        self.say(agentorders.SetTimer(number, delay_s))

    def proximity(self, node: bytes) -> float | None:
        return self._asked(agentorders.AskRoundTrip(node), agentorders.RoundTripIs).seconds

    def trace(self, record: Record) -> None:
        if not isinstance(record, Mark):
            raise agentorders.Misbehaved(f"it records a {type(record).__name__} instead of a Mark")
        self.say(agentorders.MarkIt(record.name))

    # ---- the bottom interface

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return self._asked(agentorders.AskHolds(stream, [*among]), agentorders.RangesAre).ranges

    def lacks(self, stream: StreamId) -> list[Range]:
        return self._asked(agentorders.AskLacks(stream), agentorders.RangesAre).ranges

    def found(self, stream: StreamId) -> None:
        self.say(agentorders.Found(stream))

    def _asked(self, question: msgspec.Struct, kind: type[A]) -> A:
        self.say(question)
        answer = self.answer()
        assert isinstance(answer, kind)
        return answer


def _plain(findings: Any) -> Findings:
    """Convert findings to types that can be sent. Raises `Misbehaved` if they are something else."""
    if not isinstance(findings, Findings):
        raise agentorders.Misbehaved(f"its answer is a {type(findings).__name__} instead of Findings")
    holders = tuple(Holder(contact, [*ranges]) for contact, ranges in findings.holders)
    return Findings(holders, tuple(findings.neighbours), [*findings.lacks])


def serve(limits: ProcessLimits) -> None:
    """Carry out orders until the other end closes the socket."""
    line = limits.line
    child = AgentChild(lambda message: line.sendall(encoded(message)), lambda: receive(line, agentorders.TO_AGENT))
    while True:
        try:
            order = receive(line, agentorders.TO_AGENT)
        except EOFError:
            return
        assert isinstance(order, agentorders.Begin)
        limits.begin()
        child.carry_out(order)
        limits.end()


if __name__ == "__main__":
    serve(ProcessLimits(sys.argv))
