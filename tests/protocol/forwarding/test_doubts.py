"""Which events may have been at lost positions: what was noted, then which events are marked."""

from quillcast.protocol.forwarding.doubts import Doubts
from tests.protocol.recording import FIRST, PAUL, SECOND


def test_an_event_before_the_lost_positions_shows_that_earlier_ones_were_not_there() -> None:
    """Six events came under a later term. Then one came of the first term, from before all that was lost of it."""
    doubts = Doubts()
    doubts.note(FIRST, 12, 23, 6)
    assert doubts.may_be(PAUL, SECOND, 0, 6) == [(0, 6)]
    assert doubts.may_be(PAUL, FIRST, 6, 6) == []
    assert doubts.may_be(PAUL, SECOND, 6, 20) == [(0, 17)], "as many as there were before"
