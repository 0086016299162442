"""A subscription while its topic's guarantee changes: what was owed of earlier sessions stays owed, or is reported."""

from msgspec.structs import replace

from quillcast.core.envelope import RELIABLE_TERMS, SESSION_TERMS, Term
from quillcast.core.ranges import RangeSet
from quillcast.protocol.forwarding.ledger import Run
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.state.subscription import Subscription, Wish
from tests.protocol.recording import ALICE, FIRST, PAUL, PAULA, WEATHER, Notes, RecordingHost, block, down

RELIABLE = Descriptor("weather")
BEST_EFFORT = Descriptor("weather", Settings(delivery="best_effort"), session=1)


def of_session(session: int) -> Term:
    """A term of a session: those with odd numbers are best-effort here."""
    return Term(session * SESSION_TERMS + (session + 1) % 2 * RELIABLE_TERMS + 1, ALICE.node_id)


def a_subscription() -> tuple[Subscription, Notes]:
    notes = Notes()
    subscription = Subscription(RecordingHost(), WEATHER, notes, 1, Wish("next", None, None))
    notes.turn_over = subscription.tell_losses
    subscription.adapt(RELIABLE)
    subscription.begin(FIRST, 0)
    subscription.take(down(FIRST, 0, block(PAUL, 0)))
    return subscription, notes


def change(subscription: Subscription, descriptor: Descriptor) -> None:
    subscription.begin_session(descriptor, streams_ended=False)
    subscription.begin(of_session(descriptor.session), 0)


def test_what_is_missing_of_a_reliable_session_is_owed_also_after_more_news_of_a_best_effort_one() -> None:
    subscription, _ = a_subscription()
    change(subscription, BEST_EFFORT)
    subscription.adapt(replace(BEST_EFFORT, version=2))
    assert subscription.lacking(FIRST, RangeSet([(0, 1)]), 3) == [(1, 3)]


def test_what_a_best_effort_session_overtook_is_reported_when_it_comes_in_a_later_reliable_session() -> None:
    subscription, notes = a_subscription()
    change(subscription, BEST_EFFORT)
    subscription.take(down(of_session(1), 0, block(PAUL, 3)))
    for session in (2, 3, 4):
        change(subscription, replace(RELIABLE if session % 2 == 0 else BEST_EFFORT, session=session))
    subscription.take(down(FIRST, 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"3"]
    assert notes.lost_ == [(FIRST.counter, 1, 2, "late")]
    subscription.skip(FIRST, [(2, 3)], "unavailable", [Run(2, PAUL, 2, 1)])
    assert notes.lost_[1:] == [(FIRST.counter, 2, 3, "unavailable")]


def test_what_a_reliable_session_skipped_is_reported_also_if_its_events_wait_for_room_until_the_next_session() -> None:
    """Its publisher discarded it, and the slow subscriber takes what comes after it in a best-effort session."""
    subscription, notes = a_subscription()
    change(subscription, BEST_EFFORT)
    subscription.take(down(FIRST, 1, block(PAUL, 3)))
    subscription.tell_losses()
    assert (notes.got, notes.lost_) == ([b"0", b"3"], [(FIRST.counter, 1, 3, "void")])
    subscription.take(down(of_session(1), 0, block(PAUL, 5)))
    assert notes.got == [b"0", b"3", b"5"], "here, nothing is owed"


def test_what_a_publisher_sent_before_its_first_event_here_is_reported_when_it_comes_in_a_best_effort_session() -> None:
    """It was admitted beyond a partition, in the reliable session, and comes when the two sides have met."""
    subscription, notes = a_subscription()
    subscription.begin(Term(2, ALICE.node_id), 0)
    change(subscription, BEST_EFFORT)
    subscription.take(down(of_session(1), 0, block(PAULA, 5)))
    subscription.take(down(Term(2, ALICE.node_id), 0, block(PAULA, 3), block(PAULA, 4)))
    assert notes.lost_ == [(2, 3, 5, "late")]


def test_what_comes_late_of_a_best_effort_session_waits_for_nothing_in_a_reliable_one() -> None:
    subscription, notes = a_subscription()
    change(subscription, BEST_EFFORT)
    change(subscription, replace(RELIABLE, session=2))
    subscription.take(down(of_session(1), 1, block(PAUL, 1)))
    assert notes.got == [b"0", b"1"]
    assert notes.lost_ == [(of_session(1).counter, 0, 1, "dropped")]


def test_a_subscription_that_hears_of_a_best_effort_session_late_knows_it_by_its_term() -> None:
    subscription, notes = a_subscription()
    subscription.begin(of_session(1), 0)
    subscription.take(down(of_session(1), 0, block(PAUL, 2)))
    assert notes.got == [b"0", b"2"], "nothing of it waits for a hole"
    assert subscription.lacking(of_session(1), RangeSet([(0, 1)]), 3) == []
