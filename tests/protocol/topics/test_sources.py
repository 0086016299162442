"""Topics whose events are numbered by their sources, on networks of whole peers."""

from typing import Any

from quillcast.protocol.topics.descriptor import Settings
from quillcast.protocol.topics.publishing.publisher import Publisher
from tests.protocol.topics.village import Reader, Village

BY_SOURCE = Settings(admission="source")


def a_village(count: int, *readers: int, settings: Settings = BY_SOURCE, **world: Any) -> tuple[Village, list[Reader]]:
    """A village with a topic whose events are numbered by their sources, and subscribers."""
    village = Village(count, **world)
    village.act(0, lambda peer: peer.create("news", settings, lambda answer: None))
    village.run(3)
    found = []
    for number in readers:
        found.append(Reader())
        village.subscribe(number, "news", found[-1])
    village.run(3)
    return village, found


def publishers(village: Village, *numbers: int) -> list[Publisher]:
    """Publishers that know their topic's root."""
    found = [village.publisher(number, "news") for number in numbers]
    village.run(2)
    return found


def test_every_source_numbers_its_own_events_and_all_subscribers_get_them() -> None:
    village, readers = a_village(8, *range(0, 8, 2))
    sources = publishers(village, 1, 2, 5)
    for turn in range(5):
        for number, publisher in zip((1, 2, 5), sources, strict=True):
            village.publish(number, publisher, b"%d of %d" % (turn, number))
        village.run(0.3)
    village.run(2)
    for reader in readers:
        assert sorted(reader.payloads) == sorted(b"%d of %d" % (t, n) for t in range(5) for n in (1, 2, 5))
        assert not reader.losses
    assert [publisher.admitted for publisher in sources] == [5, 5, 5]
    assert [publisher.stable for publisher in sources] == [5, 5, 5]
