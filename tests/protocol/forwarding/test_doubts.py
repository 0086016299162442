"""Which events may have been at lost positions: what was noted, then which events are marked."""

import pytest

from quillcast.core.envelope import RELIABLE_STREAMS, SESSION_TERMS, Position, Term
from quillcast.protocol.forwarding.doubts import Doubts
from tests.protocol.recording import FIRST, PAUL, PAULA, SECOND


def test_an_event_before_the_lost_positions_shows_that_earlier_ones_were_not_there() -> None:
    """Six events came under a later term. Then one came of the first term, from before all that was lost of it."""
    doubts = Doubts()
    doubts.note(FIRST, 12, 23, 6)
    assert doubts.may_be(PAUL, SECOND, 0, 6) == [(0, 6)]
    assert doubts.may_be(PAUL, FIRST, 6, 6) == []
    assert doubts.may_be(PAUL, SECOND, 6, 20) == [(0, 17)], "as many as there were before"


def test_another_term_brings_what_stood_before_the_start_ahead_of_what_stood_at_lost_positions() -> None:
    """A root took over from sources. So that came before the first event of a publisher, if any of its events did."""
    doubts = Doubts()
    doubts.note(FIRST, 21, 24, 21, start=21, begun=[PAULA])
    assert doubts.may_be(PAUL, SECOND, 0, 33) == [(0, 24)]
    assert doubts.may_be(PAULA, SECOND, 33, 33) == [(0, 3)]


STREAM, BESIDE = Term(RELIABLE_STREAMS + 1, b"s" * 16), Term(RELIABLE_STREAMS + 1, b"t" * 16)
LATER = [Term(SESSION_TERMS + 1, bytes(16)), Term(RELIABLE_STREAMS + SESSION_TERMS + 1, b"t" * 16)]


@pytest.mark.parametrize("later", LATER)
def test_events_of_a_stream_come_again_in_a_later_session(later: Term) -> None:
    doubts = Doubts()
    doubts.note(STREAM, 0, 2, 0)
    assert doubts.may_be(PAUL, later, 0, 3) == [(0, 2)]
    assert doubts.may_be(PAUL, later, 3, 3) == [], "it admitted the publisher's events in order"


@pytest.mark.parametrize(("stream", "beside"), [(STREAM, BESIDE), (BESIDE, STREAM)])
def test_a_publisher_that_was_numbered_in_a_stream_may_bring_its_events_to_another_one(
    stream: Term, beside: Term
) -> None:
    doubts = Doubts()
    doubts.note(stream, 1, 3, 1, numbered=[PAUL])
    assert doubts.may_be(PAULA, beside, 0, 3) == []
    assert doubts.may_be(PAUL, beside, 3, 1) == [(0, 1)]
    assert doubts.may_be(PAUL, beside, 4, 3) == [(0, 1)]
    assert doubts.may_be(PAUL, beside, 7, 1) == []


def test_what_a_publisher_did_not_bring_to_its_next_stream_was_reported_by_its_positions() -> None:
    doubts = Doubts()
    doubts.note(BESIDE, 1, 3, 1, numbered=[PAUL])
    assert not doubts.account_for(PAULA, (1, 2), Position(STREAM, 0))
    assert not doubts.account_for(PAUL, (1, 4), Position(STREAM, 0))
    assert doubts.account_for(PAUL, (1, 3), Position(STREAM, 0))
    assert not doubts.account_for(PAUL, (1, 2), Position(STREAM, 0))


def test_one_source_never_brings_what_another_one_numbered() -> None:
    doubts = Doubts()
    doubts.note(STREAM, 0, 2, 0)
    assert doubts.may_be(PAUL, BESIDE, 0, 3) == []
    assert not doubts.account_for(PAUL, (0, 1), Position(BESIDE, 0))
    assert not doubts.account_for(PAUL, (0, 1), Position(LATER[1], 0)), "of no session"
