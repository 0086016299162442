"""Reports of losses: merged where they touch, and told before what follows them."""

from quillcast.core.envelope import NO_TERM
from quillcast.core.loss import Loss
from quillcast.protocol.forwarding.loss_reports import TELL_LOSSES_S, LossReports, TellLosses
from tests.protocol.recording import FIRST, PAUL, PAULA, SECOND, WEATHER, Notes, RecordingHost


def reports() -> tuple[LossReports, Notes, RecordingHost]:
    host, notes = RecordingHost(), Notes()
    return LossReports(host, WEATHER, notes, 3), notes, host


def ranges_told(notes: Notes) -> list[tuple[int, int]]:
    return [(first, last) for _, first, last, _ in notes.told]


def by_name(first: int, last: int, publisher: bytes = PAUL) -> Loss:
    return Loss(NO_TERM, first, last, "void", publisher)


def test_losses_are_told_in_a_moment_as_ranges_that_do_not_touch() -> None:
    losses, notes, host = reports()
    for first, last in ((0, 2), (5, 6), (2, 4)):
        losses.add(by_name(first, last))
    assert ranges_told(notes) == []
    assert host.timers == [(TellLosses(WEATHER, 3), TELL_LOSSES_S)]
    losses.tell_all()
    assert ranges_told(notes) == [(0, 4), (5, 6)]


def test_losses_for_different_reasons_are_told_apart() -> None:
    losses, notes, _ = reports()
    for first, last, why in ((0, 2, "cut"), (2, 3, "unavailable"), (3, 4, "cut")):
        losses.add(Loss(NO_TERM, first, last, why, PAUL))
    losses.tell_all()
    assert [told[1:] for told in notes.told] == [(0, 2, "cut"), (3, 4, "cut"), (2, 3, "unavailable")]


def test_before_an_event_only_the_earlier_losses_of_its_publisher_are_told() -> None:
    losses, notes, _ = reports()
    losses.add(by_name(0, 2))
    losses.add(by_name(0, 3, PAULA))
    losses.tell_before(PAUL, 0, FIRST, 9)
    assert ranges_told(notes) == []
    losses.tell_before(PAUL, 2, FIRST, 9)
    assert ranges_told(notes) == [(0, 2)]


def test_positions_are_told_before_a_later_position_of_their_term() -> None:
    losses, notes, _ = reports()
    losses.add(Loss(FIRST, 4, 6, "unavailable"))
    losses.tell_before(PAUL, 9, SECOND, 7)
    assert ranges_told(notes) == []
    losses.tell_before(PAUL, 9, FIRST, 7)
    assert ranges_told(notes) == [(4, 6)]


def test_uncertain_losses_can_be_told_alone() -> None:
    losses, notes, _ = reports()
    losses.add(by_name(0, 2))
    losses.add(Loss(FIRST, 4, 6, "unavailable"))
    losses.tell_uncertain()
    assert ranges_told(notes) == [(4, 6)]
