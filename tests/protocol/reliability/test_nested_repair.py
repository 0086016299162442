"""Sites in a campus repair by any protocols at the two levels: no tree, no managers and no engine, only agents."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count, product
from random import Random

import pytest

from quillcast.core.dispatch import Dispatch
from quillcast.core.host import Timer
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.core.trace import Record
from quillcast.protocol.reliability.agents import Agents, Domain
from quillcast.protocol.reliability.domain import RecoveryTimes, StreamId
from quillcast.protocol.reliability.protocols import BUILT_IN
from tests.protocol.recording import FIRST, WEATHER

TIMES = RecoveryTimes(gap_s=0.5, give_up_s=5.0, lease_s=30.0, datagram_gap_s=0.25)
STREAM, EVENTS, END_S = StreamId(WEATHER, FIRST), 24, 30.0
CAMPUS = b"campus".ljust(16, b".")


class Member:
    """A peer: the host of its agents, and what the innermost of them sees of it."""

    def __init__(self, campus: "Campus", number: int, site: int) -> None:
        self.campus, self.site = campus, site
        self.me = NodeId(number.to_bytes(16, "big"))
        self.contact = Contact(self.me, f"member:{number}")
        self.random = Random(f"{campus.seed} {number}")
        self.held, self.asked_above, self.dispatch = RangeSet(), RangeSet(), Dispatch()
        self.agents = Agents(self, TIMES, self, self.dispatch)  # type: ignore[arg-type]

    def now(self) -> float:
        return self.campus.now

    def send(self, to: Contact, message: Message) -> None:
        self.campus.sent += 1
        self.campus.after(0.01, lambda: self.campus.at(to).dispatch.message(self.contact, message))

    def set_timer(self, timer: Timer, delay_s: float) -> None:
        self.campus.after(delay_s, lambda: self.dispatch.timer(timer))

    def proximity(self, node: bytes) -> float | None:
        return 0.02

    def trace(self, record: Record) -> None: ...

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return intersection(among, self.held)

    def lacks(self, stream: StreamId) -> list[Range]:
        return self.held.missing(0, EVENTS)

    def found(self, stream: StreamId) -> None:
        """Request what is lacking, level by level. Those above are asked by the head of the campus, for all."""
        if not (lacks := self.lacks(stream)):
            return
        neighbours, left, coming = self.campus.neighbours(self), list[Range](), RangeSet()
        upstream = next((near[0] for near in reversed(neighbours) if near and self is not self.campus.members[0]), None)
        for found in self.agents.find(stream, lacks, neighbours, upstream, lambda each: difference(each.lacks, coming)):
            for contact, ranges in found.holders:
                coming.update(self.campus.request(self, contact, ranges))
            for contact in found.neighbours:
                coming.update(self.campus.request(self, contact, difference(found.lacks, coming)))
            left = difference(found.lacks, coming)
        if left and self is self.campus.members[0]:
            self.asked_above.update(left)
            self.campus.after(0.2, lambda: self.held.update(left))

    def look(self) -> None:
        self.found(STREAM)
        if self.lacks(STREAM):
            self.campus.after(TIMES.gap_s, self.look)
        else:
            self.agents.filled(STREAM)


class Campus:
    """Sites, of which each is a circle of members with the first as its head, and a circle of these heads."""

    def __init__(self, inner: str, outer: str, sizes: Sequence[int]) -> None:
        self.seed, self.now, self.sent, self.numbers = f"{inner} {outer} {sizes}", 0.0, 0, count()
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        places = [site for site, size in enumerate(sizes) for _ in range(size)]
        self.members = [Member(self, number, site) for number, site in enumerate(places)]
        self.sites = [[each for each in self.members if each.site == site] for site in range(len(sizes))]
        self.heads = [site[0] for site in self.sites]
        dice = Random(self.seed)
        for event in range(EVENTS):
            for member in dice.sample(self.members, dice.randint(0, 2)):
                member.held.add(event, event + 1)
        for member in self.members:
            domains = [Domain(bytes([member.site]) * 16, inner, _after(member, self.sites[member.site]))]
            domains += [Domain(CAMPUS, outer, _after(member, self.heads))] if member in self.heads else []
            member.agents.follow({WEATHER: domains})

    def at(self, contact: Contact) -> Member:
        return self.members[int.from_bytes(contact.node_id, "big")]

    def neighbours(self, member: Member) -> list[list[Contact]]:
        """In the tree: the members of a site form a chain that begins at its head, and so do the heads."""
        inside = _beside(member, self.sites[member.site])
        return [inside, _beside(member, self.heads)] if member in self.heads else [inside]

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heappush(self.queue, (self.now + delay_s, next(self.numbers), act))

    def request(self, asker: Member, to: Contact, ranges: Sequence[Range]) -> list[Range]:
        held = intersection(ranges, self.at(to).held)
        self.after(0.02, lambda: asker.held.update(held))
        return held

    def run(self, until_s: float) -> None:
        while self.queue and self.queue[0][0] <= until_s:
            self.now, _, act = heappop(self.queue)
            act()


def _beside(member: Member, chain: Sequence[Member]) -> list[Contact]:
    """Who is next to a member, the one before it first."""
    at = chain.index(member)
    return [each.contact for each in (*chain[max(0, at - 1) : at], *chain[at + 1 : at + 2])]


def _after(member: Member, circle: Sequence[Member]) -> tuple[Contact, ...]:
    at = circle.index(member)
    return tuple(each.contact for each in (*circle[at + 1 :], *circle[:at]))


@pytest.mark.parametrize(("inner", "outer"), [*product(BUILT_IN, BUILT_IN)])
def test_any_protocol_repairs_at_any_level(inner: str, outer: str) -> None:
    """All get all, and those above are asked for nothing that the head's own site or another head holds."""
    for sizes in ((1, 1), (3, 1, 2), (1, 4, 3, 2), (6, 5)):
        campus = Campus(inner, outer, sizes)
        first = campus.heads[0]
        known = RangeSet(each for member in (*campus.sites[0], *campus.heads) for each in member.held)
        for member in campus.members:
            campus.after(0.1 * member.random.random(), member.look)
        campus.run(END_S)
        assert [member.lacks(STREAM) for member in campus.members] == [[]] * len(campus.members), campus.seed
        assert intersection(first.asked_above, known) == [], campus.seed
        assert first.asked_above, "there was something to ask for"
        said = campus.sent
        campus.run(2 * END_S)
        assert campus.sent == said, "nobody lacks anything"
