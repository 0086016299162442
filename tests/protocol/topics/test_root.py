"""The root: admission in sequence, sealing, stability and receipts."""

from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.root import Root
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, PAULA, RecordingHost, block, up


def a_root(settings: Settings = Settings()) -> Root:  # noqa: B008  it has no state
    return Root(RecordingHost(), TopicConfig(), Descriptor("weather", settings), FIRST, hold_until=0.0)


def test_events_of_many_publishers_are_sealed_into_one_bundle_with_positions_in_a_row() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0, b"a", b"b")))
    root.admit(CAROL, up(0, block(PAULA, 0, b"c")))
    (bundle,) = root.seal()
    assert (bundle.envelope.first, bundle.last, bundle.envelope.term) == (0, 3, FIRST)
    assert [b.publisher for b in bundle.blocks] == [PAUL, PAULA]
    assert root.receipts() == {BOB: [(PAUL, 2, 0, False)], CAROL: [(PAULA, 1, 0, False)]}


def test_a_publisher_is_admitted_in_sequence_and_sent_back_to_where_it_left_off() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0)))
    root.admit(BOB, up(0, block(PAUL, 2)))
    assert root.receipts() == {BOB: [(PAUL, 1, 0, True)]}
    root.admit(BOB, up(0, block(PAUL, 1), block(PAUL, 2)))
    root.admit(BOB, up(0, block(PAUL, 1)))
    assert root.index == 3
    assert root.receipts() == {BOB: [(PAUL, 3, 0, False)]}


def test_a_new_root_takes_a_publishers_floor_for_where_to_begin() -> None:
    root = a_root()
    root.admit(BOB, up(7, block(PAUL, 9)))
    assert root.receipts() == {BOB: [(PAUL, 7, 7, True)]}
    root.admit(BOB, up(7, block(PAUL, 7), block(PAUL, 8), block(PAUL, 9)))
    assert root.index == 3


def test_what_all_leases_cover_is_stable_once_the_root_holds_it_back_no_more() -> None:
    root = a_root()
    root.admit(BOB, up(0, block(PAUL, 0), block(PAUL, 1)))
    root.receipts()
    root.hold_until = 10.0
    assert not root.covered(2, now=9.0)
    assert root.covered(1, now=11.0)
    assert root.receipts() == {BOB: [(PAUL, 2, 1, False)]}
    assert not root.covered(1, now=12.0)


def test_a_best_effort_root_asks_nobody_back() -> None:
    root = a_root(Settings(delivery="best_effort"))
    root.admit(BOB, up(0, block(PAUL, 5)))
    assert root.receipts() == {BOB: [(PAUL, 6, 0, False)]}
