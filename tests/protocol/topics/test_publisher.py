"""A publisher: windows, retention, roots that change."""

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import NO_TERM
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.publisher import Publisher
from tests.protocol.recording import BOB, CAROL, FIRST, PAUL, SECOND, RecordingHost


class Listener:
    def progressed(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


def a_publisher(**config: float) -> tuple[Publisher, list[Bundle], RecordingHost]:
    host = RecordingHost()
    carried: list[Bundle] = []
    publisher = Publisher(
        host, TopicConfig(**config), Descriptor("weather"), PAUL, Listener(), lambda _, bundle: carried.append(bundle)
    )
    return publisher, carried, host


def sequences(bundles: list[Bundle]) -> list[tuple[int, int]]:
    return [(block.first, block.last) for bundle in bundles for block in bundle.blocks]


def test_what_is_offered_before_the_root_is_known_goes_out_when_it_is() -> None:
    publisher, carried, _ = a_publisher()
    publisher.offer([b"a"])
    publisher.offer([b"b", b"c"])
    assert not carried
    publisher.root_is(BOB, FIRST)
    assert sequences(carried) == [(0, 1), (1, 3)]


def test_a_new_root_gets_everything_again_that_is_not_stable() -> None:
    publisher, carried, _ = a_publisher()
    publisher.root_is(BOB, FIRST)
    for payload in (b"a", b"b", b"c"):
        publisher.offer([payload])
    publisher.receipt(FIRST, 3, 1, again=False)
    carried.clear()
    publisher.root_is(CAROL, SECOND)
    assert sequences(carried) == [(1, 2), (2, 3)]
    assert carried[0].envelope.first == 1, "the floor says from where on the new root must have it"


def test_a_root_whose_reign_is_over_frees_nothing() -> None:
    publisher, _, _ = a_publisher()
    publisher.root_is(CAROL, SECOND)
    publisher.offer([b"a"])
    publisher.receipt(FIRST, 1, 1, again=False)
    assert (publisher.admitted, publisher.stable) == (0, 0)
    assert publisher.retained_bytes > 0


def test_room_is_what_the_window_leaves_and_comes_back_with_the_receipt() -> None:
    publisher, _, _ = a_publisher(window_bytes=1000)
    publisher.root_is(BOB, NO_TERM)
    publisher.offer([b"x" * 900])
    assert publisher.room() < 100
    publisher.receipt(NO_TERM, 1, 0, again=False)
    assert publisher.room() == 1000


def test_a_publisher_asks_after_events_that_stay_unstable() -> None:
    publisher, carried, host = a_publisher()
    publisher.root_is(BOB, FIRST)
    publisher.offer([b"a"])
    publisher.offer([b"b"])
    publisher.receipt(FIRST, 2, 0, again=False)
    carried.clear()
    host.time = 11.0
    publisher.remind(11.0)
    assert sequences(carried) == [(1, 2)]
