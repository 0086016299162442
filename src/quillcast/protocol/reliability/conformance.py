"""What a recovery protocol must do, checked in domains of all sizes on a clock of their own.

`check` deals out the events of a stream to the members at random and lets their agents work. It raises `RepairsWrongly`
for the first broken rule:

- while nobody lacks anything, agents are silent;
- each member gets what any member holds, and nothing of that is requested of those above;
- what nobody holds is requested of them, and the search for it ends, whatever is lost;
- the same agents do the same again.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from quillcast.core.envelope import Term
from quillcast.core.errors import LocalError
from quillcast.core.host import Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.core.trace import Record
from quillcast.protocol.reliability.domain import AgentContext, AgentDue, RecoveryProtocol, RecoveryTimes, StreamId

SIZES = (1, 2, 3, 6, 17, 30)
EVENTS = 24
TIMES = RecoveryTimes(gap_s=0.5, give_up_s=5.0, lease_s=30.0, datagram_gap_s=0.25)
LIMIT_S = 4 * TIMES.give_up_s
"""By when everything has to be found or requested of those above."""
_ABOVE_S = 0.2  # until those above have answered
_TOLD_OF = 16  # others that a member is told of
_STREAM = StreamId(bytes(16), Term(1, bytes(16)))
_SCOPE = b"s" * 16


class RepairsWrongly(LocalError):
    """A recovery protocol broke a rule; the text says which one, and where."""


class RecoveryReport(NamedTuple):
    """What `check` saw of a protocol that keeps the rules."""

    domains: int
    messages: int
    """That agents sent each other."""
    requests: int
    """Of members to members."""


def check(
    protocol: Callable[[AgentContext], RecoveryProtocol], *, whole: bool, sizes: Iterable[int] = SIZES
) -> RecoveryReport:
    """Check a protocol, as the module says. Raises `RepairsWrongly`.

    `whole`: does it find what any member holds, and not only those whose neighbour the member is in the tree?
    """
    report = RecoveryReport(0, 0, 0)
    for size in sizes:
        for seed in range(2):
            runs = [_Domain(protocol, size, f"{size} {seed}", whole=whole, loses=False) for _ in range(2)]
            for run in runs:
                run.run()
                run.check_repaired()
            if runs[0].sent != runs[1].sent:
                raise RepairsWrongly(f"the same members sent something else the second time ({runs[0]})")
            mute = _Domain(protocol, size, f"{size} {seed}", whole=whole, loses=True)
            mute.run()
            mute.check_bounded()
            report = RecoveryReport(
                report.domains + 3, report.messages + len(runs[0].sent), report.requests + runs[0].requests
            )
    return report


class _Member:
    """A member and its state: the host and the bottom interface of its agent."""

    def __init__(self, domain: "_Domain", number: int) -> None:
        self.domain, self.number = domain, number
        self.me = NodeId(number.to_bytes(16, "big"))
        self.contact = Contact(self.me, f"member:{number}")
        self.random = Random(f"{domain.seed} {number}")
        self.held, self.asked_above = RangeSet(), RangeSet()
        self.agent: RecoveryProtocol

    def now(self) -> float:
        return self.domain.now

    def send(self, to: Contact, message: Message) -> None:
        self.domain.send(self, to, message)

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        assert isinstance(timer, AgentDue)
        self.domain.after(delay_s, lambda: self.agent.due(timer.what))

    def proximity(self, node: bytes) -> float | None:
        return self.domain.distance_s(self.number, int.from_bytes(node, "big"))

    def trace(self, record: Record) -> None: ...

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return intersection(among, self.held)

    def lacks(self, stream: StreamId) -> list[Range]:
        return self.held.missing(0, EVENTS)

    def found(self, stream: StreamId) -> None:
        """Request what is lacking as `Recovery` does."""
        if not (lacks := self.lacks(stream)):
            return
        findings = self.agent.find(stream, lacks, self.domain.neighbours(self.number), at_border=self.number == 0)
        for contact, ranges in findings.holders:
            self.domain.request(self, contact, ranges)
        left = [*findings.lacks]
        for contact in findings.neighbours:
            left = difference(left, RangeSet(self.domain.request(self, contact, left)))
        if left := difference(left, self.asked_above):
            self.asked_above.update(left)
            self.domain.request_above(self, left)

    def look(self) -> None:
        """Look for what is missing, from time to time."""
        self.found(_STREAM)
        if not self.lacks(_STREAM):
            self.agent.filled(_STREAM)
        elif not self.domain.loses or self.domain.sought(self):
            self.domain.after(TIMES.gap_s, self.look)


class _Domain:
    """Members in a circle, and their clock."""

    def __init__(
        self, protocol: Callable[[AgentContext], RecoveryProtocol], size: int, seed: str, *, whole: bool, loses: bool
    ) -> None:
        """`loses`: nothing that agents or members say arrives."""
        self.seed, self.whole, self.loses, self.now = seed, whole, loses, 0.0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers, self.requests = count(), 0
        self.sent: list[tuple[float, int, bytes, Message]] = []
        self.members = [_Member(self, number) for number in range(size)]
        self.places = [Random(f"{seed} place {number}").uniform(0.0, 0.04) for number in range(size)]
        circle = [member.contact for member in self.members]
        for at, member in enumerate(self.members):
            member.agent = protocol(AgentContext(member, TIMES, _SCOPE, member))
            member.agent.follow(tuple((*circle[at + 1 :], *circle[:at])[:_TOLD_OF]))
        dice = Random(f"{seed} events")
        for event in range(EVENTS):
            for member in dice.sample(self.members, dice.randint(0, min(3, size))):
                member.held.add(event, event + 1)
        self.held = RangeSet(each for member in self.members for each in member.held)

    def __repr__(self) -> str:
        return f"{len(self.members)} members, seed {self.seed!r}"

    def distance_s(self, a: int, b: int) -> float:
        return 0.001 + abs(self.places[a] - self.places[b])

    def neighbours(self, number: int) -> Sequence[Contact]:
        """The neighbours in the tree: all, for a protocol that knows no others."""
        others = [member.contact for member in self.members if member.number != number]
        return others[:1] if self.whole else others

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heappush(self.queue, (self.now + delay_s, next(self.numbers), act))

    def send(self, sender: _Member, to: Contact, message: Message) -> None:
        self.sent.append((self.now, sender.number, to.node_id, message))
        other = self.members[int.from_bytes(to.node_id, "big")]
        if not self.loses:
            delay_s = self.distance_s(sender.number, other.number) / 2
            self.after(delay_s, lambda: other.agent.received(sender.contact, message))

    def request(self, asker: _Member, to: Contact, ranges: Sequence[Range]) -> list[Range]:
        """Ask a member for ranges; it returns those that it holds, which arrive later."""
        other = self.members[int.from_bytes(to.node_id, "big")]
        held = intersection(ranges, other.held)
        self.requests += bool(held)
        if held and not self.loses:
            self.after(self.distance_s(asker.number, other.number), lambda: asker.held.update(held))
        return held

    def request_above(self, asker: _Member, ranges: list[Range]) -> None:
        """The peers above have everything."""
        if not self.loses:
            self.after(_ABOVE_S, lambda: asker.held.update(ranges))

    def sought(self, member: _Member) -> list[Range]:
        """What a member lacks and requested neither of those above nor of anybody who holds it."""
        return difference(member.lacks(_STREAM), RangeSet([*member.asked_above, *self.held]))

    def run(self) -> None:
        for member in self.members:
            self.after(0.1 * member.random.random(), member.look)
        while self.queue and self.queue[0][0] <= LIMIT_S:
            self.now, _, act = heappop(self.queue)
            act()

    def check_repaired(self) -> None:
        """Everybody got what anybody had; those above were asked for the rest, and for nothing else."""
        for member in self.members:
            if wrongly := intersection(member.asked_above, self.held):
                raise RepairsWrongly(f"{wrongly} were requested from above, although a member holds them ({self})")
            if missed := difference(self.held, member.held):
                raise RepairsWrongly(f"member {member.number} never found {missed}, which another one holds ({self})")
        self.check_bounded()
        self.queue, before = [each for each in self.queue if each[0] > LIMIT_S], len(self.sent)
        while self.queue and self.queue[0][0] <= 2 * LIMIT_S:
            self.now, _, act = heappop(self.queue)
            act()
        late = [at for at, *_ in self.sent[before:] if at > LIMIT_S + TIMES.give_up_s]
        if late:
            raise RepairsWrongly(f"agents keep sending although nobody lacks anything ({self})")

    def check_bounded(self) -> None:
        """What is lacking was requested of those above, or of somebody who holds it."""
        for member in self.members:
            if left := self.sought(member):
                raise RepairsWrongly(f"member {member.number} seeks {left} for more than {LIMIT_S:g} s ({self})")
