"""One member of a domain in which members ask and offer to all: what it says, and what it leaves to others."""

from collections.abc import Callable

import pytest

from quillcast.core.errors import Malformed
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range, RangeSet
from quillcast.protocol.reliability.domain import AgentDue
from quillcast.protocol.reliability.messages import RELAYS_MAX, Offered, Sought
from quillcast.protocol.reliability.protocols.suppression import Suppression
from quillcast.protocol.wire import decode, encode
from tests.protocol.recording import ALICE, BOB, CAROL
from tests.protocol.reliability.member import SITE, STREAM, TIMES, DomainMember


class Member(DomainMember):
    """What it says, and when."""

    def __init__(self) -> None:
        super().__init__(Suppression)

    def wait(self) -> None:
        """The waits before questions and offers are over."""
        timers, self.host.timers = self.host.timers, []
        for timer, delay_s in timers:
            assert isinstance(timer, AgentDue)
            assert 0 < delay_s <= TIMES.gap_s / 2
            self.agent.due(timer.what)

    def hears(self, message: Message) -> None:
        self.agent.received(ALICE, message)

    @property
    def said(self) -> list[tuple[Contact, Message]]:
        said, self.host.sent = self.host.sent, []
        return said


def sought(by: Contact, *ranges: Range, relays: int = 0) -> Sought:
    return Sought(SITE, by, *STREAM, ranges, relays)


def offered(by: Contact, *ranges: Range, relays: int = 0) -> Offered:
    return Offered(SITE, by, *STREAM, ranges, relays)


def test_a_member_asks_all_others_after_a_wait() -> None:
    member = Member()
    member.missing = [(0, 2)]
    assert member.look() == ([], [])
    assert member.said == []
    member.wait()
    assert member.said == [
        (CAROL, sought(BOB, (0, 2))),
        (ALICE, sought(BOB, (0, 2), relays=RELAYS_MAX - 1)),
    ]
    member.look()
    member.wait()
    assert member.said == [], "offers may still come"


def test_a_question_is_suppressed_by_another_for_the_same() -> None:
    member = Member()
    member.missing = [(0, 2)]
    member.look()
    member.hears(sought(ALICE, (0, 5)))
    member.wait()
    assert member.said == []


def test_a_member_offers_what_it_holds_after_a_wait() -> None:
    member = Member()
    member.held = RangeSet([(1, 9)])
    member.hears(sought(ALICE, (0, 3)))
    assert member.said == []
    member.wait()
    assert member.said == [
        (CAROL, offered(BOB, (1, 3))),
        (ALICE, offered(BOB, (1, 3), relays=RELAYS_MAX - 1)),
    ]


def test_an_offer_is_suppressed_by_another_of_the_same() -> None:
    member = Member()
    member.held = RangeSet([(1, 9)])
    member.hears(sought(ALICE, (0, 3)))
    member.hears(offered(CAROL, (0, 2)))
    member.wait()
    assert next(message for _, message in member.said) == offered(BOB, (2, 3)), "the rest is still to be offered"
    member.hears(sought(ALICE, (0, 3)))
    member.hears(offered(CAROL, (0, 3)))
    member.wait()
    assert member.said == []


def test_an_agent_offers_nothing_when_a_wait_is_over_that_one_before_it_began() -> None:
    before, member = Member(), Member()
    before.held = member.held = RangeSet([(1, 9)])
    before.hears(sought(ALICE, (0, 3)))
    member.host.timers = before.host.timers
    member.wait()
    assert member.said == []


def test_what_was_offered_is_requested_and_what_nobody_offers_in_time_is_asked_for_above() -> None:
    member = Member()
    member.missing = [(0, 3)]
    member.look()
    member.wait()
    member.hears(offered(CAROL, (0, 2)))
    assert member.told == [STREAM]
    assert member.look() == ([(CAROL, [(0, 2)])], [])
    member.host.time += 2 * TIMES.gap_s
    assert member.look() == ([(CAROL, [(0, 2)])], [(2, 3)])


def test_a_member_within_the_domain_seeks_twice_before_it_asks_those_above() -> None:
    member = Member()
    member.missing, member.at_border = [(0, 1)], False
    for _ in range(2):
        assert member.look() == ([], []), "who is next to those above may bring it"
        member.wait()
        assert member.said != []
        member.host.time += 2 * TIMES.gap_s
    assert member.look() == ([], [(0, 1)])


def test_what_nobody_had_is_sought_again_after_a_while() -> None:
    member = Member()
    member.missing = [(0, 1)]
    member.look()
    member.wait()
    member.host.time += TIMES.give_up_s
    assert member.look() == ([], [(0, 1)])
    member.host.sent = []
    member.wait()
    assert member.said != []


def test_the_last_member_that_is_told_passes_on_to_those_after_it_up_to_where_it_came_from() -> None:
    member = Member()
    member.hears(sought(ALICE, (0, 3), relays=5))
    assert member.said == [(CAROL, sought(ALICE, (0, 3), relays=4))]
    member.hears(sought(CAROL, (0, 3), relays=5))
    assert member.said == []


@pytest.mark.parametrize("say", [sought, offered])
def test_no_message_is_passed_on_more_often_than_the_longest_circle_takes(say: Callable[..., Message]) -> None:
    """If `by` is no member, it would come to nobody before whom it stops, and go round for ever."""
    decode(encode(say(BOB, (0, 3), relays=RELAYS_MAX)))
    with pytest.raises(Malformed, match=f"<= {RELAYS_MAX}"):
        decode(encode(say(BOB, (0, 3), relays=RELAYS_MAX + 1)))


def test_alone_in_its_domain_a_member_asks_those_above_at_once() -> None:
    member = Member()
    member.agent.follow(())
    member.missing = [(0, 1)]
    assert member.look() == ([], [(0, 1)])
    assert member.host.timers == []
