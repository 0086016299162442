"""The terms of a topic that have ended."""

import pytest

from quillcast.core.envelope import Term
from quillcast.core.ranges import RangeSet
from quillcast.protocol.forwarding import forgotten, past_terms
from quillcast.protocol.forwarding.past_terms import PastTerms
from quillcast.protocol.forwarding.stream import EndedStream, Stream
from tests.protocol.recording import CAROL, FIRST, PAUL, PAULA, SECOND, block, down


def one_ended(*, until: float = 60.0) -> PastTerms:
    """The first term went up to 5, and its first three events are kept."""
    past, bundle = PastTerms(), down(FIRST, 0, block(PAUL, 7, b"7", b"8", b"9"))
    past.add(EndedStream.of(Stream(FIRST, seen=RangeSet([(0, 3)])), 5, [bundle], until))
    return past


def test_a_term_that_is_recalled_went_on_or_is_new_or_is_known() -> None:
    past = one_ended()
    assert (past.recall(FIRST, 5, 70.0), past[FIRST].end, past[FIRST].until) == (False, 5, 60.0)
    assert (past.recall(FIRST, 6, 70.0), past[FIRST].end, past[FIRST].until) == (True, 6, 70.0)
    assert (past.recall(SECOND, 2, 70.0), past[SECOND].kept()) == (True, [])


def test_of_a_discarded_term_that_went_further_only_the_rest_is_wanted() -> None:
    past = one_ended()
    past.forget(FIRST, 2)
    assert (dict(past), past.forgotten, past.readmitted) == ({}, {FIRST: 5}, 2)
    assert past.recall(FIRST, 8, 70.0)
    assert (past.forgotten, past[FIRST].missing(8)) == ({}, [(5, 8)])


def test_terms_are_overdue_by_their_time_or_because_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    past = one_ended()
    past.recall(SECOND, 2, 70.0)
    assert (past.overdue(59.0), past.overdue(60.0)) == ([], [FIRST])
    monkeypatch.setattr(past_terms, "TERMS_KEPT_MAX", 1)
    assert past.overdue(0.0) == [FIRST]


def test_it_holds_events_whose_bundles_are_kept() -> None:
    past = one_ended()
    assert past.holds([block(PAUL, 8, b"8", b"9")])
    assert not past.holds([block(PAUL, 9, b"9", b"10")])
    assert not past.holds([block(PAULA, 7, b"7")])


def test_others_are_offered_what_is_kept_of_terms_that_this_peer_does_not_disown() -> None:
    past = one_ended()
    assert past.held(0.0, lambda term: False) == ((FIRST, 5, ((0, 3),), 0, None),)
    assert past.held(0.0, lambda term: True) == ((FIRST, 5, (), 0, None),)


def test_others_are_told_of_the_terms_that_were_forgotten_last_and_more_of_them_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past_terms, "ENDS_TOLD_MAX", 2)
    monkeypatch.setattr(forgotten, "FORGOTTEN_MAX", 4)
    past = PastTerms()
    for counter in (7, 3, 8, 4, 6):
        past.note_over(Term(counter, FIRST.node), 1)
    past.note_forgotten([(Term(5, FIRST.node), 1, 3), (Term(2, FIRST.node), 1, None)], 10.0)
    assert [term.counter for term in past.forgotten] == [3, 8, 4, 6], "what others forgot is older"
    assert [term.counter for term, _ in past.forgotten_lately()] == [4, 6]


def test_of_a_term_that_was_forgotten_others_are_told_for_how_long_its_events_have_been_there() -> None:
    past, carols = one_ended(), SECOND._replace(node=CAROL.node_id)
    past.note_forgotten([(SECOND, 4, 8000), (carols, 4, None)], 10.0)
    past[FIRST].learn_came(5, 2.0)
    past.forget(FIRST, 0)
    told = {(term, end): there_ms for term, end, there_ms in past.aged(past.ends(), 12.0)}
    assert told == {(FIRST, 5): 10_000, (SECOND, 4): 10_000, (carols, 4): None}
    past.recall(FIRST, 6, 60.0)
    assert past.aged([(FIRST, 6)], 12.0) == ((FIRST, 6, None),), "it went on"
