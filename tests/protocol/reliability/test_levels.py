"""Agents of a domain, and of one around it: what nobody inside holds is sought there, and only then above."""

from collections.abc import Sequence

import pytest

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range
from quillcast.protocol.reliability.agents import Domain
from quillcast.protocol.reliability.domain import AgentContext, Findings, Holder, Silent, StreamId
from quillcast.protocol.reliability.group import Peers
from quillcast.protocol.reliability.messages import AgentWord, RingToken
from quillcast.protocol.reliability.protocols import BUILT_IN
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.reliability.protocols.suppression import Suppression
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, SECOND, WEATHER, block, down
from tests.protocol.reliability.test_groups import Circle, World

INNER, OUTER = b"inner scope.....", b"outer scope....."
DAVE = Contact(b"dave".ljust(16, b"."), "dave:1")
ERIN = Contact(b"erin".ljust(16, b"."), "erin:1")
STREAM = StreamId(WEATHER, FIRST)


class Says(Silent):
    """An agent that says what it was told to, and keeps what it was asked."""

    def __init__(self, context: AgentContext) -> None:
        self.context, self.known = context, Findings((), (), ())
        self.asked: list[tuple[list[Range], bool]] = []
        self.is_filled, self.heard, self.has_ended = False, 0, False

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        self.asked.append((lacks, at_border))
        return self.known

    def says(self, holders: dict[Contact, list[Range]], lacks: list[Range]) -> None:
        self.known = Findings([Holder(*each) for each in holders.items()], (), lacks)

    def filled(self, stream: StreamId) -> None:
        self.is_filled = True

    def received(self, sender: Contact, message: object) -> None:
        self.heard += 1

    def end(self) -> None:
        self.has_ended = True


class Nested(Circle):
    """Carol is in this peer's domain, and Dave in the one around it. Bob is above all."""

    def __init__(self) -> None:
        super().__init__()
        self.held = {BOB: (), CAROL: (), DAVE: ()}
        self.inside = [CAROL]

    def peers(self, term: Term) -> Peers:
        return Peers(self.inside, [BOB], [[DAVE]])


class TwoLevels(World):
    """A peer that is the head of its domain within another one."""

    def __init__(self) -> None:
        super().__init__()
        self.groups.circle = self.circle = Nested()
        self.circle.end = 5
        self.agents = self.recovery.agents
        self.agents.offer({"says": Says, "says otherwise": Says})
        self.agents.follow({WEATHER: (Domain(INNER, "says", ()), Domain(OUTER, "says", ()))})
        self.inner, self.outer = self.agent(INNER), self.agent(OUTER)

    def agent(self, scope: bytes) -> Says:
        agent = self.agents.agents[scope, "says"].agent
        assert isinstance(agent, Says)
        return agent

    def lacks_all_inside(self) -> None:
        """Nobody in the domain holds what is missing, and Carol says so, who is next to this peer."""
        self.inner.says({}, [(0, 5)])
        self.look()
        self.refuse(CAROL, FIRST, [(0, 5)])


def test_what_nobody_inside_holds_is_sought_in_the_domain_around_and_only_what_nobody_there_holds_above() -> None:
    world = TwoLevels()
    world.inner.says({CAROL: [(0, 2)]}, [(2, 5)])
    world.outer.says({DAVE: [(2, 3)]}, [(4, 5)])
    world.look()
    assert world.outer.asked == [], "Carol may have it, who is inside"
    assert world.asked == [(CAROL, [(0, 2)]), (CAROL, [(2, 5)])], "neighbours inside come first"
    world.refuse(CAROL, FIRST, [(2, 5)])
    assert world.outer.asked[-1] == ([(2, 5)], True), "not for what Carol holds"
    assert world.asked[2:] == [(DAVE, [(2, 3)]), (DAVE, [(4, 5)])], "the rest is being sought"
    world.refuse(DAVE, FIRST, [(4, 5)])
    assert world.asked[4:] == [(BOB, [(4, 5)])]
    assert world.groups.routed == []


def test_those_above_are_asked_for_nothing_that_is_being_sought_at_any_level() -> None:
    world = TwoLevels()
    world.outer.says({}, [])
    world.inner.says({}, [])
    world.look()
    assert world.outer.asked == [], "the inner agent seeks all of it"
    world.inner.says({}, [(0, 5)])
    world.recovery.found(STREAM)
    world.refuse(CAROL, FIRST, [(0, 5)])
    assert world.outer.asked[-1][0] == [(0, 5)]
    assert [to for to, _ in world.asked] == [CAROL]


def test_what_a_member_says_that_it_holds_and_does_not_send_is_sought_around() -> None:
    world = TwoLevels()
    world.inner.says({CAROL: [(0, 5)]}, [])
    world.look()
    assert world.outer.asked == []
    world.refuse(CAROL, FIRST, [(1, 5)])
    assert world.outer.asked[-1][0] == [(1, 5)]


def test_an_outer_agent_sees_a_domain_as_it_would_see_a_peer() -> None:
    world = TwoLevels()
    flow = world.circle.flow
    flow.move(down(FIRST, 4, block(PAUL, 0)), flow.current)
    bottom = world.outer.context.bottom
    assert bottom.lacks(STREAM) == [], "nothing is known to be lacking in the domain"
    world.inner.says({CAROL: [(0, 2)]}, [(2, 4)])
    world.look()
    assert bottom.lacks(STREAM) == [], "Carol was asked, who is inside"
    world.refuse(CAROL, FIRST, [(2, 4)])
    assert bottom.lacks(STREAM) == [(2, 4)]
    assert world.inner.context.bottom.lacks(STREAM) == [(0, 4)]
    assert bottom.holds(STREAM, [(0, 5)]) == world.inner.context.bottom.holds(STREAM, [(0, 5)]) == [(4, 5)]
    world.outer.says({DAVE: [(2, 4)]}, [])
    bottom.found(STREAM)
    assert world.asked[-1] == (DAVE, [(2, 4)])


def test_an_outer_agent_hears_when_nothing_is_lacking_in_its_domain_any_more() -> None:
    world = TwoLevels()
    world.lacks_all_inside()
    world.outer.is_filled = False
    world.inner.says({ERIN: [(0, 5)]}, [])
    world.look(times=1)
    assert (world.inner.is_filled, world.outer.is_filled) == (False, True)
    assert world.outer.context.bottom.lacks(STREAM) == []


def test_an_outer_agent_hears_it_too_if_this_peer_is_not_the_head_for_that_topic_any_more() -> None:
    world = TwoLevels()
    both = (Domain(INNER, "says", ()), Domain(OUTER, "says", ()))
    world.lacks_all_inside()
    outer = world.agents.agents[OUTER, "says"]
    assert outer.within is not None
    assert STREAM in outer.within.lacking
    world.agents.follow({WEATHER: both[:1], b"another topic...": both})
    assert world.outer is outer.agent
    world.circle.end = 0
    world.look()
    assert world.outer.is_filled
    assert outer.within.lacking == {}


@pytest.mark.parametrize(("above", "borders"), [(CAROL, (False, False)), (DAVE, (True, False)), (BOB, (True, True))])
def test_the_peer_upstream_decides_in_which_domains_this_one_is_at_the_border(
    above: Contact, borders: tuple[bool, bool]
) -> None:
    world = TwoLevels()
    world.circle.above = above
    world.lacks_all_inside()
    assert (world.inner.asked[-1][1], world.outer.asked[-1][1]) == borders


def test_of_an_ended_term_too_those_around_are_asked_for_what_nobody_inside_holds() -> None:
    world = TwoLevels()
    world.circle.end = 0
    world.circle.flow.begin(SECOND, 0, until=60.0)
    world.circle.held |= {BOB: ((FIRST, 9, ((1, 9),), 0, None),), DAVE: ((FIRST, 9, ((3, 7),), 0, None),)}
    world.inner.says({CAROL: [(1, 4)]}, [(4, 9)])
    world.outer.says({}, [(5, 9)])
    world.look()
    world.refuse(CAROL, FIRST, [(4, 9)])
    assert world.asked == [(CAROL, [(1, 4)]), (CAROL, [(4, 9)]), (DAVE, [(4, 7)]), (DAVE, [(7, 9)])]
    world.refuse(DAVE, FIRST, [(7, 9)])
    assert world.asked[4:] == [(BOB, [(7, 9)])]


def test_messages_of_each_domain_reach_the_agent_there_and_agents_of_domains_that_are_over_end() -> None:
    world = TwoLevels()
    world.dispatch.message(CAROL, AgentWord(OUTER, "says", b""))
    assert (world.inner.heard, world.outer.heard) == (0, 1)
    inner, outer = world.inner, world.outer
    world.agents.follow({WEATHER: (Domain(INNER, "says", ()),)})
    assert (inner.has_ended, outer.has_ended) == (False, True)
    ((own, search),) = world.agents.of(WEATHER)
    assert own.agent is inner
    assert isinstance(search.agent, Suppression)
    world.dispatch.message(DAVE, AgentWord(OUTER, "says", b""))
    assert outer.heard == 1


@pytest.mark.parametrize("inside", BUILT_IN)
def test_around_a_domain_nothing_is_sought_that_a_neighbour_inside_may_send(inside: str) -> None:
    world = TwoLevels()
    world.agents.follow({WEATHER: (Domain(INNER, inside, ()), Domain(OUTER, "ring", ()))})
    world.look()
    outer = world.agents.agents[OUTER, "ring"].within
    assert outer is not None
    assert outer.lacking == {}
    assert world.asked == [(CAROL, [(0, 5)])]
    world.refuse(CAROL, FIRST, [(0, 3)])
    assert outer.lacking == {STREAM: [(0, 3)]}
    assert world.asked[1:] == [(DAVE, [(0, 3)])]


def test_what_a_silent_neighbour_inside_may_send_is_sought_around_after_a_while() -> None:
    world = TwoLevels()
    world.agents.follow({WEATHER: (Domain(INNER, "tree", ()), Domain(OUTER, "says", ()))})
    world.look()
    assert world.outer.asked == []
    for _ in range(int(world.recovery.times.give_up_s / world.recovery.times.gap_s) + 2):
        world.look(times=1)
    assert world.outer.asked[-1][0] == [(0, 5)]


def test_what_is_sought_around_is_until_it_is_found_whoever_is_inside_by_then() -> None:
    world = TwoLevels()
    world.lacks_all_inside()
    world.circle.inside = [CAROL, ERIN]
    world.look(times=1)
    world.refuse(CAROL, FIRST, [(0, 5)])
    assert world.asked[-1] == (ERIN, [(0, 5)]), "who may send it"
    assert world.outer.asked[-1][0] == [(0, 5)]
    world.inner.says({ERIN: [(0, 5)]}, [])
    world.look(times=1)
    assert world.outer.is_filled


def test_what_an_agent_had_nobody_to_ask_for_it_does_not_look_for_once_a_neighbour_inside_may_send_it() -> None:
    world = TwoLevels()
    world.outer.says({}, [(0, 5)])
    world.lacks_all_inside()
    world.circle.inside = [CAROL, ERIN]
    world.outer.asked.clear()
    world.look(times=1)
    assert world.asked[-1] == (CAROL, [(0, 5)])
    assert (world.outer.asked, world.outer.is_filled) == ([], True)


def test_a_domain_whose_protocol_is_not_known_here_leaves_the_one_around_it_its_agent() -> None:
    world = TwoLevels()
    world.agents.follow({WEATHER: (Domain(INNER, "unheard of", ()), Domain(OUTER, "ring", (DAVE,)))})
    own, search = world.agents.of(WEATHER)[0]
    assert isinstance(own.agent, AlongTree)
    assert isinstance(search.agent, Suppression)
    world.look()
    world.refuse(CAROL, FIRST, [(0, 5)])
    world.dispatch.timer(next(timer for timer, _ in world.host.timers if getattr(timer, "scope", None) == OUTER))
    (token,) = [message for _, message in world.host.sent if isinstance(message, RingToken)]
    assert token.lacking[0].ranges == ((0, 5),), "nobody inside holds it, as far as is known"
