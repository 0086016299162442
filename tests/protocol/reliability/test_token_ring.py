"""One member of a token ring: what it enters, reads and passes on."""

from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.reliability.domain import AgentDue
from quillcast.protocol.reliability.messages import Lacking, RingToken
from quillcast.protocol.reliability.protocols.token_ring import TokenRing
from tests.protocol.recording import ALICE, BOB, CAROL
from tests.protocol.reliability.member import SITE, STREAM, TIMES, DomainMember

DAVE = Contact(b"d" * 16, "127.0.0.1:4")


class Member(DomainMember):
    """What it passes on."""

    def __init__(self) -> None:
        super().__init__(TokenRing)

    def look(self) -> tuple[list[tuple[Contact, list[Range]]], list[Range]]:
        """Look for what is missing, and let due timers run."""
        found = super().look()
        timers, self.host.timers = self.host.timers, []
        for timer, _ in timers:
            assert isinstance(timer, AgentDue)
            self.agent.due(timer.what)
        return found

    def comes(self, starter: Contact, serial: int, *lacking: Lacking) -> None:
        self.agent.received(ALICE, RingToken(SITE, starter.node_id, serial, lacking))

    @property
    def passed_on(self) -> list[tuple[Contact, tuple[Lacking, ...]]]:
        return [(to, message.lacking) for to, message in self.host.sent if isinstance(message, RingToken)]


def lacking(*ranges: Range, **holders: tuple[Range, ...]) -> Lacking:
    contacts = {"alice": ALICE, "bob": BOB, "carol": CAROL, "dave": DAVE}
    return Lacking(*STREAM, ranges, tuple((contacts[name], held) for name, held in holders.items()))


def test_a_member_that_lacks_something_starts_a_token_that_asks_for_it() -> None:
    member = Member()
    member.missing = [(0, 2)]
    assert member.look() == ([], []), "it is being sought"
    assert member.passed_on == [(CAROL, (lacking((0, 2)),))]
    member.look()
    assert len(member.passed_on) == 1, "one token goes round"


def test_a_member_enters_what_it_holds_and_what_it_lacks() -> None:
    member = Member()
    member.held, member.missing = RangeSet([(0, 1)]), [(5, 6)]
    member.look()
    member.host.sent = []
    member.comes(ALICE, 1, lacking((0, 3)))
    assert member.passed_on == [(CAROL, (lacking((0, 3), (5, 6), bob=((0, 1),)),))]


def test_a_member_that_lacks_nothing_passes_the_token_on_twice_and_no_more() -> None:
    member = Member()
    for _ in range(3):
        member.comes(ALICE, 1, lacking((0, 3)))
    assert member.passed_on == [(CAROL, (lacking((0, 3)),))] * 2


def test_what_members_entered_is_requested_of_the_nearest_before_and_the_rest_above_after_two_laps() -> None:
    member = Member()
    member.missing = [(0, 3)]
    member.look()
    member.comes(BOB, member.agent.serial, lacking((0, 3), dave=((0, 1),), alice=((0, 2),)))
    assert STREAM in member.told
    assert member.look() == ([(ALICE, [(0, 2)]), (DAVE, [(0, 1)])], [(2, 3)])


def test_a_member_within_the_domain_seeks_twice_before_it_asks_those_above() -> None:
    member = Member()
    member.missing, member.at_border = [(0, 1)], False
    member.look()
    member.comes(BOB, member.agent.serial, lacking((0, 1)))
    assert member.look() == ([], []), "who is next to those above may bring it"
    member.host.time += 2 * TIMES.gap_s
    member.look()
    member.comes(BOB, member.agent.serial, lacking((0, 1)))
    assert member.look() == ([], [(0, 1)])


def test_of_two_tokens_the_one_of_the_lower_starter_goes_on() -> None:
    member = Member()
    member.missing = [(0, 1)]
    member.look()
    member.comes(CAROL, 1)
    assert len(member.passed_on) == 1, "Bob's own goes on"
    member.comes(ALICE, 1)
    assert member.passed_on[1:] == [(CAROL, (lacking((0, 1)),))], "it has what Bob lacks"


def test_after_a_lost_token_the_domain_is_asked_no_more_and_another_token_starts() -> None:
    member = Member()
    member.missing = [(0, 1)]
    member.look()
    member.host.time += TIMES.give_up_s + 0.1
    assert member.look() == ([], [(0, 1)])
    assert len(member.passed_on) == 2


def test_a_member_that_cannot_be_reached_is_left_out() -> None:
    member = Member()
    member.agent.link_lost(CAROL.node_id)
    member.comes(ALICE, 1)
    assert [to for to, _ in member.passed_on] == [ALICE]


def test_two_holders_are_enough() -> None:
    member = Member()
    member.held = RangeSet([(0, 5)])
    member.comes(ALICE, 1, lacking((0, 5), carol=((0, 2),), dave=((0, 1),)))
    assert member.passed_on == [(CAROL, (lacking((0, 5), carol=((0, 2),), dave=((0, 1),), bob=((1, 5),)),))]


def test_alone_in_its_domain_a_member_asks_those_above_at_once() -> None:
    member = Member()
    member.agent.follow(())
    member.missing = [(0, 1)]
    assert member.look() == ([], [(0, 1)])
    assert member.passed_on == []
