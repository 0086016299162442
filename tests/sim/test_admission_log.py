"""The ledger of admissions: from events to positions and back."""

from quillcast.core.envelope import Position, Term
from quillcast.core.trace import Admitted
from quillcast.sim.admission_log import AdmissionLog

ANN, BOB = b"a" * 16, b"b" * 16
FIRST, SECOND = Term(1, bytes(16)), Term(2, bytes(16))


def ledger(*runs: tuple[bytes, int, int, Term, int]) -> AdmissionLog:
    made = AdmissionLog()
    for number, (publisher, first, count, term, index) in enumerate(runs):
        made.note(float(number), 0, Admitted(b"topic", publisher, first, count, term, index))
    return made


def test_an_event_that_was_admitted_again_has_a_position_in_each_term() -> None:
    made = ledger((ANN, 0, 3, FIRST, 0), (BOB, 0, 1, FIRST, 3), (ANN, 2, 2, SECOND, 0))
    assert list(made.positions(ANN, 2)) == [Position(FIRST, 2), Position(SECOND, 0)]
    assert list(made.positions(BOB, 0)) == [Position(FIRST, 3)]
    assert list(made.positions(BOB, 1)) == []
    assert list(made.positions(ANN, 2, by=1.0)) == [Position(FIRST, 2)]


def test_positions_tell_which_events_stood_there() -> None:
    made = ledger((ANN, 5, 3, FIRST, 0), (BOB, 0, 2, FIRST, 3), (ANN, 8, 4, FIRST, 5))
    assert list(made.events(FIRST, 2, 6)) == [(ANN, (7, 8)), (BOB, (0, 2)), (ANN, (8, 9))]
    assert list(made.events(FIRST, 9, 20)) == []
    assert list(made.events(SECOND, 0, 9)) == []
