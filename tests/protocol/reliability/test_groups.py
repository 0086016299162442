"""Recovery among the members of a group, whatever formed it: no tree, no Scribe and no peer."""

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import RELIABLE_STREAMS, Kind, Term
from quillcast.core.messages import NUMBER_MAX, Contact, Message
from quillcast.core.ranges import Range
from quillcast.protocol.forwarding.discarding import lose
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.forwarding.milestones import ToldMilestones
from quillcast.protocol.forwarding.stream import HeldTerms, SourceStream
from quillcast.protocol.reliability.agents import Level
from quillcast.protocol.reliability.domain import Findings, Holder, RecoveryTimes, Silent, StreamId
from quillcast.protocol.reliability.gaps import WAIT_S_MAX
from quillcast.protocol.reliability.group import GroupMember, PeerGroup, Peers
from quillcast.protocol.reliability.messages import Fetch, FetchFromRoot, FetchFromSource, Unavailable
from quillcast.protocol.reliability.protocols.along_tree import AlongTree
from quillcast.protocol.reliability.protocols.anti_entropy import AntiEntropy
from quillcast.protocol.reliability.recovery import Look, Recovery
from quillcast.protocol.security.access import Warrant
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, SECOND, WEATHER, RecordingHost, block, down

TIMES = RecoveryTimes(gap_s=0.5, give_up_s=4.0, lease_s=30.0, datagram_gap_s=0.25)


class Circle:
    """Bob passes the topic on to this peer, and Carol may have it as well."""

    def __init__(self) -> None:
        self.flow = Flow(WEATHER, Budget(1 << 20))
        self.flow.begin(FIRST, 0, until=60.0)
        self.end = 0
        self.came = self.came_upstream = NUMBER_MAX
        self.root: bytes | None = None
        self.above: Contact | None = BOB
        self.last_word = self.mine = self.over = False
        self.outside = list[Contact]()
        self.held: dict[Contact, HeldTerms] = {BOB: (), CAROL: ()}
        self.known: ToldMilestones = ()
        self.repairs = list[tuple[bytes, int]]()

    def known_end(self, term: Term) -> int:
        return self.end

    def reached(self, term: Term) -> int:
        return self.came

    def reached_upstream(self, term: Term) -> int:
        return self.came_upstream

    def holders(self) -> Iterator[GroupMember]:
        return (GroupMember(contact, held) for contact, held in self.held.items())

    warrant = None

    def may_have(self, node: bytes, warrant: Warrant | None) -> bool:
        return True

    def repaired(self, node: bytes, bundle: Bundle) -> None:
        self.repairs.append((node, bundle.count))

    def may_be_late(self, within_s: float) -> bool:
        return False

    def upstream(self, term: Term) -> Contact | None:
        return self.above

    def is_source(self, term: Term) -> bool:
        return self.mine

    def milestones(self, term: Term, missing: Range) -> ToldMilestones:
        return self.known

    def decides(self, term: Term) -> bool:
        return self.last_word

    def has_ended(self, term: Term) -> bool:
        return self.over

    def peers(self, term: Term) -> Peers:
        return Peers([each for each in self.held if each not in self.outside], self.outside)


class Circles:
    """The only group of this peer, and what it learned."""

    def __init__(self, circle: Circle) -> None:
        self.circle, self.learned_, self.given_up = circle, dict[Term, tuple[int, int, int | None]](), 0
        self.milestones = list[ToldMilestones]()
        self.routed = list[Message]()

    def find(self, topic: bytes) -> PeerGroup | None:
        circle = self.circle
        return PeerGroup(circle.flow, circle, circle, circle, circle) if topic == WEATHER else None

    def learned(self, group: PeerGroup, term: Term, end: int, stable: int, there_ms: int | None) -> None:
        self.learned_[term] = end, stable, there_ms
        group.flow.open_past().recall(term, end, until=60.0)

    def dated(self, group: PeerGroup, term: Term, milestones: ToldMilestones, by: bytes | None) -> None:
        self.milestones.append(milestones)

    def gave_up(self, group: PeerGroup) -> None:
        self.given_up += 1

    def asked_for(self, group: PeerGroup, term: Term, ranges: list[Range], asker: bytes) -> bool:
        return False

    def ask_root(self, group: PeerGroup, message: Message) -> None:
        self.routed.append(message)


class Room:
    """The room for repairs: always some here, and on links as much as the host says."""

    takes_repairs = True

    def __init__(self, host: RecordingHost) -> None:
        self.host, self.is_pressed, self.reserved_bytes = host, False, 0

    def room_for_repairs(self, to: Contact, topic: bytes) -> int:
        return self.host.room(to) - self.reserved_bytes


class World:
    def __init__(self) -> None:
        self.host, self.dispatch, self.circle = RecordingHost(), Dispatch(), Circle()
        self.groups, self.buffers = Circles(self.circle), Room(self.host)
        self.recovery = Recovery(self.host, TIMES, self.groups, self.buffers, self.dispatch)

    def look(self, times: int = 2) -> None:
        """The topic may miss something: time passes, and the gaps are checked."""
        self.recovery.look_soon(WEATHER)
        for _ in range(times):
            self.host.time += TIMES.gap_s
            self.dispatch.timer(Look())

    def refuse(self, sender: Contact, term: Term, ranges: list[Range], *, for_good: bool = False) -> None:
        released = tuple(ranges) if for_good else ()
        self.dispatch.message(sender, Unavailable(WEATHER, term, ranges, released))

    @property
    def asked(self) -> list[tuple[Contact, list[Range]]]:
        return [(to, message.ranges) for to, message in self.host.sent if isinstance(message, Fetch)]


def test_what_is_missing_at_two_checks_is_requested_from_one_member_after_another() -> None:
    world = World()
    world.circle.end = 3
    world.look(times=1)
    assert world.asked == [], "it may be on its way"
    world.look(times=1)
    assert world.asked == [(BOB, [(0, 3)])]
    world.refuse(BOB, FIRST, [(0, 3)])
    assert world.asked[1:] == [(CAROL, [(0, 3)])]


def test_a_peer_to_which_bundles_come_as_datagrams_looks_for_gaps_sooner() -> None:
    world = World()
    world.recovery.look_soon(WEATHER)
    world.recovery.expect_losses()
    world.look(times=1)
    world.recovery.look_soon(WEATHER)
    assert [delay_s for timer, delay_s in world.host.timers] == [TIMES.gap_s, TIMES.datagram_gap_s]


def test_a_range_is_given_up_once_upstream_released_it_and_no_peer_has_it() -> None:
    world = World()
    world.circle.end = 3
    world.look()
    world.refuse(BOB, FIRST, [(0, 3)], for_good=True)
    assert world.groups.given_up == 0, "Carol may have it"
    world.refuse(CAROL, FIRST, [(0, 3)])
    assert (world.groups.given_up, world.circle.flow.frontier) == (1, 3)


def test_what_a_member_holds_of_an_ended_term_is_requested_from_it() -> None:
    world = World()
    world.circle.flow.begin(SECOND, 0, until=60.0)
    world.circle.held[CAROL] = ((FIRST, 4, ((1, 4),), 1, 7),)
    world.look()
    assert world.groups.learned_ == {FIRST: (4, 1, 7)}
    assert world.asked == [(CAROL, [(1, 4)])]


def test_a_peer_answers_with_what_it_holds_and_refuses_the_rest() -> None:
    world = World()
    flow = world.circle.flow
    flow.move(down(FIRST, 0, block(PAUL, 0)), flow.current)
    world.dispatch.message(CAROL, Fetch(WEATHER, FIRST, [(0, 2)]))
    assert [(to, bundle.envelope.kind, bundle.envelope.first) for to, bundle in world.host.carried] == [
        (CAROL, Kind.REPAIR, 0)
    ]
    assert world.host.sent == [(CAROL, Unavailable(WEATHER, FIRST, [(1, 2)]))]
    assert world.circle.repairs == [(CAROL.node_id, 1)]


def test_a_due_repair_for_which_there_was_credit_does_not_count_as_one_without() -> None:
    """It may be lost on its way, and by the time it is asked for again there may be no credit."""
    world = World()
    flow = world.circle.flow
    flow.move(down(FIRST, 0, block(PAUL, 0)), flow.current)
    for room in (10_000, -1):
        world.host.rooms[CAROL.node_id] = room
        world.dispatch.message(CAROL, Fetch(WEATHER, FIRST, [(0, 1)], due=True))
    assert len(world.host.carried) == len(world.circle.repairs) == 2


def test_repairs_leave_the_part_of_the_credit_that_is_reserved_for_other_topics() -> None:
    world = World()
    flow = world.circle.flow
    flow.move(down(FIRST, 0, block(PAUL, 0)), flow.current)
    world.buffers.reserved_bytes = world.host.rooms[CAROL.node_id] = 10_000
    world.dispatch.message(CAROL, Fetch(WEATHER, FIRST, [(0, 1)]))
    assert world.host.carried == []
    world.host.rooms[CAROL.node_id] = 10_001
    world.recovery.room(CAROL)
    assert [to for to, _ in world.host.carried] == [CAROL]


def test_a_peer_that_is_in_no_group_of_the_topic_has_nothing() -> None:
    world = World()
    world.dispatch.message(CAROL, Fetch(b"x" * 16, FIRST, [(0, 2)]))
    assert world.host.sent == [(CAROL, Unavailable(b"x" * 16, FIRST, [(0, 2)]))]


def test_a_gap_in_any_live_term_is_requested() -> None:
    world = World()
    flow = world.circle.flow
    flow.begin_beside(SECOND, 0)
    for index in (0, 5):
        stream = flow.live(FIRST)
        assert stream is not None
        flow.move(down(FIRST, index, block(PAUL, index)), stream)
    world.look()
    assert world.asked == [(BOB, [(1, 5)])]


# ---- terms of sources

PAULS = Contact(b"s" * 16, "127.0.0.1:4")
THEIRS = Term(RELIABLE_STREAMS + 1, PAULS.node_id)


def missing_of_a_source(world: World) -> SourceStream:
    """This peer misses an event of a source's stream, and has the next."""
    flow = world.circle.flow
    stream = flow.begin_beside(THEIRS, 0)
    flow.move(down(THEIRS, 1, block(PAUL, 1)), stream)
    world.circle.end = 2
    return stream


def test_what_all_members_discarded_is_asked_of_the_source_and_its_word_is_final() -> None:
    world = World()
    stream = missing_of_a_source(world)
    world.look()
    for member in (BOB, CAROL):
        world.refuse(member, THEIRS, [(0, 1)], for_good=True)
    assert (BOB, FetchFromSource(WEATHER, THEIRS, [(0, 1)], world.host.contact)) in world.host.sent
    world.look(times=int(TIMES.give_up_s / TIMES.gap_s) + 2)
    assert stream.frontier == 0, "the source may have it, and has not answered"
    world.dispatch.message(CAROL, Unavailable(WEATHER, THEIRS, [(0, 1)], ((0, 1),), final=True))
    assert stream.frontier == 0, "nor does anybody else speak for it"
    world.dispatch.message(PAULS, Unavailable(WEATHER, THEIRS, [(0, 1)], ((0, 1),), final=True))
    assert (world.groups.given_up, stream.frontier) == (1, 2)


def test_while_buffers_are_full_the_source_too_is_to_send_the_first_event_without_credit() -> None:
    world = World()
    missing_of_a_source(world)
    world.buffers.is_pressed = True
    world.look()
    for member in (BOB, CAROL):
        world.refuse(member, THEIRS, [(0, 1)], for_good=True)
    assert world.host.sent[-1] == (BOB, FetchFromSource(WEATHER, THEIRS, [(0, 1)], world.host.contact, due=True))


def test_while_buffers_are_full_the_first_event_is_asked_for_once_however_many_refuse() -> None:
    world = World()
    missing_of_a_source(world)
    world.buffers.is_pressed = True
    world.look()
    for member in (BOB, CAROL, BOB, CAROL, BOB):
        world.refuse(member, THEIRS, [(0, 1)], for_good=True)
    due = [message for _, message in world.host.sent if isinstance(message, FetchFromSource) and message.due]
    assert len(due) == 1


def test_while_buffers_are_full_the_root_too_is_to_send_the_first_event_without_credit() -> None:
    world = World()
    world.circle.end, world.circle.root = 3, PAULS.node_id
    world.buffers.is_pressed = True
    world.look()
    for member in (BOB, CAROL):
        world.refuse(member, FIRST, [(0, 3)])
    assert world.groups.routed[-1] == FetchFromRoot(WEATHER, FIRST, [(0, 1)], world.host.contact, due=True)


def test_a_refusal_of_somebody_who_is_not_the_root_any_more_is_no_reason_to_ask_the_root_once_more() -> None:
    """The overlay may take the question to this very peer, which answers it at once."""
    world = World()
    world.circle.end, world.circle.root = 3, PAULS.node_id
    world.buffers.is_pressed = True
    world.look()
    for member in (BOB, CAROL, Contact(b"x" * 16, "127.0.0.1:5")):
        before = len(world.groups.routed)
        world.refuse(member, FIRST, [(0, 3)])
    assert len(world.groups.routed) == before


@pytest.mark.parametrize("due", [False, True])
def test_the_source_and_the_root_send_what_is_due_without_credit(due: bool) -> None:
    for question in (FetchFromSource, FetchFromRoot):
        world = World()
        missing_of_a_source(world)
        world.circle.mine, world.host.rooms[CAROL.node_id] = True, 0
        asked = question(WEATHER, THEIRS, [(1, 2)], CAROL, due=due)
        if isinstance(asked, FetchFromSource):
            world.dispatch.message(BOB, asked)
        else:
            world.dispatch.routed(asked)
        assert [to for to, _ in world.host.carried] == [CAROL] * due


def test_a_question_to_a_source_is_passed_on_in_its_direction_and_answered_there() -> None:
    world = World()
    missing_of_a_source(world)
    question = FetchFromSource(WEATHER, THEIRS, [(0, 2)], CAROL)
    world.dispatch.message(CAROL, question)
    assert world.host.sent == [(BOB, question)]
    world.dispatch.message(BOB, question)
    assert len(world.host.sent) == 1, "it does not go back"
    world.circle.mine = True
    world.dispatch.message(BOB, question)
    assert [to for to, _ in world.host.carried] == [CAROL]
    assert world.host.sent[1:] == [(CAROL, Unavailable(WEATHER, THEIRS, [(0, 1)], final=True))]


def test_the_word_of_a_root_on_a_source_that_is_gone_is_final_once_it_has_ended_the_stream() -> None:
    """It has discarded its copy. The source may have it, and come back within a lease."""
    world = World()
    missing_of_a_source(world)
    lose(world.circle.flow, THEIRS, [(0, 1)])
    world.circle.above, world.circle.last_word = None, True
    for world.circle.over in (False, True):
        world.dispatch.message(CAROL, FetchFromSource(WEATHER, THEIRS, [(0, 1)], CAROL))
        answer = Unavailable(WEATHER, THEIRS, [(0, 1)], ((0, 1),), final=world.circle.over)
        assert world.host.sent[-1] == (CAROL, answer)


def test_a_peer_on_the_way_to_a_source_that_has_just_lost_its_parent_does_not_speak_for_the_source() -> None:
    """It has discarded its copy, which the source may still keep."""
    world = World()
    missing_of_a_source(world)
    lose(world.circle.flow, THEIRS, [(0, 1)])
    world.circle.above = None
    question = FetchFromSource(WEATHER, THEIRS, [(0, 1)], CAROL)
    world.dispatch.message(CAROL, question)
    assert world.host.sent == []
    world.circle.last_word = world.circle.over = True
    world.dispatch.message(CAROL, question)
    assert world.host.sent == [(CAROL, Unavailable(WEATHER, THEIRS, [(0, 1)], ((0, 1),), final=True))]


def test_a_refusal_says_how_long_the_events_have_been_there_and_only_who_was_asked_is_believed() -> None:
    world = World()
    missing_of_a_source(world)
    world.circle.known = ((1, 7.0),)
    world.dispatch.message(CAROL, Fetch(WEATHER, THEIRS, [(0, 1)]))
    assert world.host.sent == [(CAROL, Unavailable(WEATHER, THEIRS, [(0, 1)], milestones=((1, 7.0),)))]
    world.look()
    for sender in (Contact(b"x" * 16, "127.0.0.1:5"), BOB, PAULS):
        said = ((1, float(sender.node_id[0])),)
        world.dispatch.message(sender, Unavailable(WEATHER, THEIRS, [(0, 1)], milestones=said))
    assert world.groups.milestones == [((1, float(asked.node_id[0])),) for asked in (BOB, PAULS)]


def test_a_root_gives_up_after_a_lease_what_nobody_has_of_a_source_that_is_gone() -> None:
    world = World()
    stream = missing_of_a_source(world)
    world.circle.above, world.circle.last_word = None, True
    world.look()
    for member in (BOB, CAROL):
        world.refuse(member, THEIRS, [(0, 1)])
    world.look(times=int(TIMES.lease_s / TIMES.gap_s) - 1)
    assert stream.frontier == 0
    world.look(times=8)
    assert (world.groups.given_up, stream.frontier) == (1, 2)


class CarolSays(Silent):
    """A recovery protocol in which Carol said that she holds something, and nobody knows of the rest yet."""

    holds: list[Range]
    lacks: list[Range]

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Findings:
        return Findings([Holder(CAROL, self.holds)], [BOB], self.lacks)


def test_peers_outside_the_domain_are_asked_for_what_nobody_inside_has_and_in_no_case_before() -> None:
    world = World()
    world.circle.outside, world.circle.end = [BOB], 3
    world.look()
    assert world.asked == [(CAROL, [(0, 3)])], "although Bob is upstream"
    world.refuse(CAROL, FIRST, [(1, 3)])
    assert world.asked[1:] == [(BOB, [(1, 3)])]


def test_what_a_member_says_that_it_holds_is_asked_of_it_and_what_is_being_sought_of_nobody() -> None:
    world, agent = World(), CarolSays()
    world.recovery.agents.of_topics, world.circle.end = {WEATHER: ((Level(agent),),)}, 5
    agent.holds, agent.lacks = [(0, 2)], []
    world.look()
    assert world.asked == [(CAROL, [(0, 2)])], "who passes the topic on is not asked"
    agent.lacks = [(2, 5)]
    world.recovery.found(StreamId(WEATHER, FIRST))
    assert world.asked[1:] == [(CAROL, [(2, 5)])], "she has come to hold more, perhaps"
    world.refuse(CAROL, FIRST, [(2, 5)])
    assert world.asked[2:] == [(BOB, [(2, 5)])]


def test_what_came_to_nobody_below_is_asked_of_the_peer_outside_and_sought_inside_only_if_that_gives_it_up() -> None:
    world = World()
    world.recovery.agents.of_topics, world.circle.end = {WEATHER: ((Level(AlongTree()),),)}, 5
    world.circle.outside, world.circle.came = [BOB], 2
    world.look()
    assert world.asked == [(CAROL, [(0, 2)])]
    world.refuse(CAROL, FIRST, [(0, 2)])
    assert world.asked[1:] == [(BOB, [(0, 2)])]
    assert (BOB, [(2, 5)]) not in world.asked, "as late as if it had been sought"
    world.look()
    assert (BOB, [(2, 5)]) in world.asked
    world.refuse(BOB, FIRST, [(2, 5)])
    world.look()
    assert (CAROL, [(2, 5)]) not in world.asked, "he is going to have it"
    world.refuse(BOB, FIRST, [(2, 5)], for_good=True)
    assert world.asked[-1] == (CAROL, [(2, 5)])


def test_what_the_peer_upstream_awaits_is_asked_of_nobody_while_the_source_is_there() -> None:
    world = World()
    world.recovery.agents.of_topics, world.circle.end = {WEATHER: ((Level(AlongTree()),),)}, 5
    world.circle.came, world.circle.came_upstream = 0, 2
    world.look(times=6)
    assert {each for _, ranges in world.asked for each in ranges} == {(0, 2)}
    world.circle.came_upstream = 5
    world.look(times=2)
    assert world.asked[-1] == (BOB, [(0, 5)])


@pytest.mark.parametrize("refuses", [True, False])
def test_what_a_member_does_not_have_after_all_is_asked_of_others(refuses: bool) -> None:
    world, agent = World(), CarolSays()
    world.recovery.agents.of_topics, world.circle.end = {WEATHER: ((Level(agent),),)}, 2
    agent.holds, agent.lacks = [(0, 2)], []
    world.look()
    if refuses:
        world.refuse(CAROL, FIRST, [(0, 2)])
    else:
        world.look(times=int((TIMES.give_up_s + WAIT_S_MAX) / TIMES.gap_s))
    assert (BOB, [(0, 2)]) in world.asked


@pytest.mark.parametrize("term", [FIRST, SECOND])
def test_a_member_that_does_not_answer_is_asked_after_the_others(term: Term) -> None:
    world = World()
    flow = world.circle.flow
    world.circle.end = 3
    if term == SECOND:
        flow.end(FIRST, 60.0, 3)
        flow.begin(SECOND, 0, 60.0)
        flow.past[FIRST].ask([(0, 3)])
        world.circle.end = 0
    world.look(times=int((TIMES.give_up_s + WAIT_S_MAX) / TIMES.gap_s))
    assert world.asked[0] == (BOB, [(0, 3)])
    assert world.asked[-1] == (CAROL, [(0, 3)])
    world.refuse(CAROL, FIRST, [(0, 3)])
    assert world.asked[-1] == (BOB, [(0, 3)]), "and again"


def test_gossip_asks_members_at_random() -> None:
    agent, stream = AntiEntropy(Random(1)), StreamId(WEATHER, FIRST)
    found = {tuple(agent.find(stream, [(0, 1)], [BOB, CAROL], at_border=True).neighbours) for _ in range(20)}
    assert found == {(BOB, CAROL), (CAROL, BOB)}
