"""Recovery agents that go wrong, each in its own way, for `test_agents.py`."""

import os
from collections.abc import Sequence
from typing import Any

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet
from quillcast.core.trace import Mark, Stopped
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, Findings, Holder, Silent, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord

BOB = Contact(b"b" * 16, "127.0.0.1:2")
STRANGER = Contact(b"z" * 16, "127.0.0.1:99")
STREAM = StreamId(bytes(16), Term(1, bytes(16)))


class Odd(Silent):
    """It does one odd thing when it is asked."""

    def __init__(self, context: AgentContext) -> None:
        self.host, self.bottom = context.host, context.bottom

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Any:
        return self.act() or Findings((), (), ())

    def act(self) -> Any: ...


class Speaks(Odd):
    """Nothing of this is odd."""

    def act(self) -> Any:
        self.host.send(BOB, AgentWord(b"x" * 16, "another", b"hello"))
        self.host.set_timer(AgentDue(b"x" * 16, "another", (7, "seven")), 1.0)
        self.host.trace(Mark("spoke"))
        held = self.bottom.holds(STREAM, [(0, 9)])
        assert self.host.proximity(BOB.node_id) == 0.25
        return Findings((Holder(BOB, RangeSet(held)),), (BOB,), [(2, 3)])

    def due(self, what: Any) -> None:
        assert what == (7, "seven"), "it comes back as it was set"
        self.bottom.found(STREAM)

    def filled(self, stream: StreamId) -> None:
        assert self.bottom.lacks(stream) == []


class CannotBeMade(Odd):
    def __init__(self, context: AgentContext) -> None:
        raise ZeroDivisionError("division by zero")


class Raises(Odd):
    def act(self) -> Any:
        raise RuntimeError("out of\nluck")


class Floods(Odd):
    def act(self) -> Any:
        for _ in range(1000):
            self.host.send(BOB, AgentWord(b"x" * 16, "odd", b""))


class NeverRests(Odd):
    def act(self) -> Any:
        for _ in range(1000):
            self.host.set_timer(AgentDue(b"x" * 16, "odd"), 0.0)


class AsksOnAndOn(Odd):
    def act(self) -> Any:
        for _ in range(20_000):
            self.bottom.found(STREAM)


class WritesToStrangers(Odd):
    def act(self) -> Any:
        self.host.send(STRANGER, AgentWord(b"x" * 16, "odd", b""))


class WritesTooMuch(Odd):
    def act(self) -> Any:
        self.host.send(BOB, AgentWord(b"x" * 16, "odd", bytes(WORD_BYTES_MAX + 1)))


class Forges(Odd):
    def act(self) -> Any:
        self.host.trace(Stopped())


class NamesStrangers(Odd):
    def act(self) -> Any:
        return Findings((), (STRANGER,), ())


class SeeksMore(Odd):
    def act(self) -> Any:
        return Findings((), (), [(0, 9)])


class Babbles(Odd):
    def act(self) -> Any:
        return "nowhere"


class NeverEnds(Odd):
    def act(self) -> Any:
        while True:
            pass


class Exits(Odd):
    def act(self) -> Any:
        os._exit(3)


class TakesMemory(Odd):
    def act(self) -> Any:
        return bytearray(1 << 30)
