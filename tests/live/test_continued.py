"""The inbox of a subscription that goes on at another peer: it passes over repeats, and reports gaps."""

import pytest

from quillcast.core.bundle import Block
from quillcast.core.envelope import RELIABLE_STREAMS, Position, Term
from quillcast.core.loss import Loss
from quillcast.live.clients.continued import ContinuedInbox

OLD, NEW, SOURCE = Term(1, b"a" * 16), Term(2, b"b" * 16), Term(RELIABLE_STREAMS, b"c" * 16)
ANN, BEN = b"ann." * 6, b"ben." * 6


def block(first: int, count: int, publisher: bytes = ANN) -> Block:
    return Block.seal(publisher, first, [b"%d" % number for number in range(first, first + count)], time_ns=0)


class Reader:
    """An inbox to which a first peer has delivered events 5 to 9 of a publisher, at positions 100 to 104."""

    def __init__(self, term: Term = OLD) -> None:
        self.inbox = ContinuedInbox(1 << 20, "reader")
        self.inbox.told_soon = lambda: None
        self.inbox.continue_from(Position(OLD, 100))
        self.inbox.deliver(block(5, 5), 0, 5, Position(term, 100))

    def came(self, publisher: bytes = ANN) -> list[int]:
        blocks = self.inbox.blocks
        return [each.first + at for each, skip, stop, *_ in blocks if each.publisher == publisher
                for at in range(skip, stop)]  # fmt: skip

    @property
    def lost(self) -> list[Loss]:
        return list(self.inbox.losses)


def test_events_that_come_again_are_passed_over_and_others_keep_their_positions() -> None:
    reader = Reader()
    reader.inbox.continue_from(Position(OLD, 98))
    reader.inbox.deliver(block(3, 5), 2, 5, Position(OLD, 100))
    reader.inbox.deliver(block(8, 4), 0, 4, Position(OLD, 103))
    assert (reader.came(), reader.lost) == ([5, 6, 7, 8, 9, 10, 11], [])
    assert reader.inbox.blocks[-1][1:4] == (2, 4, Position(OLD, 105))
    assert reader.inbox.position == Position(OLD, 100), "it began there"


def test_what_is_kept_nowhere_is_reported_by_position_while_the_root_is_the_same() -> None:
    reader = Reader()
    reader.inbox.continue_from(Position(OLD, 110))
    assert reader.lost == [Loss(OLD, 105, 110, "unavailable")]
    reader.inbox.lost(Loss(OLD, 0, 110, "start"))
    reader.inbox.lost(Loss(OLD, 0, 15, "start", ANN))
    reader.inbox.deliver(block(15, 1), 0, 1, Position(OLD, 110))
    assert reader.lost == [Loss(OLD, 105, 110, "unavailable")], "each is reported once"


@pytest.mark.parametrize("term", [OLD, SOURCE], ids=["another root", "sources"])
def test_otherwise_it_is_reported_by_the_sequences_of_publishers_known_before(term: Term) -> None:
    reader = Reader(term)
    reader.inbox.continue_from(Position(NEW, 7))
    reader.inbox.deliver(block(4, 2, BEN), 0, 2, Position(NEW, 7))
    reader.inbox.deliver(block(12, 2), 0, 2, Position(NEW, 9))
    reader.inbox.deliver(block(20, 2), 0, 2, Position(NEW, 11))
    assert reader.lost == [Loss(NEW, 10, 12, "unavailable", ANN)], "later gaps are for the peer to report"


def test_what_a_new_peer_does_not_keep_is_lost_only_as_far_as_it_did_not_come() -> None:
    reader = Reader()
    reader.inbox.continue_from(Position(NEW, 0))
    for loss in (
        Loss(OLD, 0, 8, "start", ANN), Loss(OLD, 0, 12, "start", ANN), Loss(OLD, 0, 12, "start", BEN),
        Loss(OLD, 90, 107, "start"), Loss(SOURCE, 0, 9, "start"),
    ):  # fmt: skip
        reader.inbox.lost(loss)
    assert reader.lost == [Loss(OLD, 10, 12, "unavailable", ANN), Loss(OLD, 105, 107, "unavailable")]
    reader.inbox.deliver(block(8, 5), 0, 5, Position(NEW, 0))
    assert reader.came() == [5, 6, 7, 8, 9, 12]


def test_losses_that_a_new_peer_reports_leave_out_what_came() -> None:
    reader = Reader()
    reader.inbox.lost(Loss(OLD, 10, 11, "void", ANN))
    reader.inbox.continue_from(Position(OLD, 0))
    for loss in (
        Loss(OLD, 0, 13, "cut", ANN), Loss(OLD, 3, 5, "late", BEN), Loss(OLD, 100, 106, "late"), Loss(NEW, 0, 2, "late")
    ):  # fmt: skip
        reader.inbox.lost(loss)
    assert reader.lost == [
        Loss(OLD, 10, 11, "void", ANN), Loss(OLD, 0, 5, "cut", ANN), Loss(OLD, 11, 13, "cut", ANN),
        Loss(OLD, 3, 5, "late", BEN), Loss(OLD, 105, 106, "late"), Loss(NEW, 0, 2, "late"),
    ]  # fmt: skip


def test_a_new_peer_is_told_of_no_more_bytes_than_it_sent() -> None:
    reader = Reader()
    inbox, size_bytes = reader.inbox, reader.inbox.size_bytes
    inbox.continue_from(Position(NEW, 0))
    again = block(5, 5)
    inbox.deliver(again, 0, 5, Position(NEW, 0))
    assert (inbox.size_bytes, inbox.owed) == (size_bytes, 0), "it is done with, but what the first peer sent is not"
    inbox.release(size_bytes)
    assert (inbox.size_bytes, inbox.owed) == (0, again.size)
    holes = Reader().inbox
    holes.deliver(block(12, 2), 0, 2, Position(OLD, 107))
    taken_bytes = holes.size_bytes
    holes.release(taken_bytes)
    holes.continue_from(Position(NEW, 0))
    holes.deliver(whole := block(3, 12), 0, 12, Position(NEW, 0))
    assert [(skip, stop) for _, skip, stop, *_ in holes.blocks][2:] == [(0, 2), (7, 9), (11, 12)]
    for _ in range(3):
        holes.release(whole.size)
    assert (holes.size_bytes, holes.owed) == (0, whole.size)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound, few in (("PUBLISHERS_MAX", 3), ("_RANGES_MAX", 2)):
        monkeypatch.setattr(f"quillcast.live.clients.continued.{bound}", few)
    reader = Reader()
    for number in range(5):
        reader.inbox.deliver(block(0, 1, b"%06d" % number * 4), 0, 1, Position(Term(number, ANN[:16]), 0))
        reader.inbox.deliver(block(10 * number, 1, BEN), 0, 1, Position(OLD, number))
    remembered = reader.inbox
    assert [*map(len, (remembered._came, remembered._cursors))] == [3, 3]
    assert len(remembered._came[BEN]) == 2
