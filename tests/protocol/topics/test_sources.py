"""Topics whose events are numbered by their sources, on networks of whole peers."""

from typing import Any

import pytest

from quillcast.core.envelope import Term
from quillcast.core.errors import LocalError
from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.publishing.publisher import Publisher
from tests.protocol.topics.village import Reader, Village

BY_SOURCE = Settings(admission="source")
NARROW = Config(topics=TopicConfig(children_per_topic_max=2))


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


def streams(village: Village, number: int) -> dict[Term, tuple[int, int]]:
    """The streams that go on at a peer: how far each came, and below where it is stable."""
    tree = village.tree(number, "news")
    return {} if tree is None else {term: (each.frontier, each.stable) for term, each in tree.flow.others.items()}


def test_a_peer_that_only_publishes_is_sent_no_events_until_it_subscribes() -> None:
    village, (reader,) = a_village(6, 0)
    source, other = next((a, b) for a in range(1, 6) for b in range(1, 6) if a != b and not rooted(village, a, b))
    first, second = publishers(village, source, other)
    village.publish(source, first, b"one")
    village.publish(other, second, b"two")
    village.run(2)
    assert sorted(reader.payloads) == [b"one", b"two"]
    assert list(streams(village, source)) == [first.term]
    late = Reader()
    village.subscribe(source, "news", late)
    village.run(2)
    village.publish(other, second, b"three")
    village.publish(source, first, b"four")
    village.run(2)
    assert sorted(late.payloads) == [b"four", b"three"]
    assert not late.losses
    assert first.stable == 2


def rooted(village: Village, *numbers: int) -> bool:
    return village.root("news") in numbers


def test_no_event_goes_back_where_it_came_from() -> None:
    village, _ = a_village(8, *range(8))
    for number, publisher in enumerate(publishers(village, *range(8))):
        village.publish(number, publisher, b"from %d" % number)
    village.run(3)
    assert [peer.table.repeats for peer in village.peers.values()] == [0] * 8


def test_an_event_is_admitted_when_a_second_peer_has_it() -> None:
    village, _ = a_village(5, 0, 1)
    source = next(number for number in range(2, 5) if not rooted(village, number))
    (publisher,) = publishers(village, source)
    cut = village.world.cut(lambda a, b: a == source)
    village.publish(source, publisher, b"held back")
    village.run(1)
    assert publisher.admitted == 0
    village.world.heal(cut)
    village.run(5)
    assert (publisher.admitted, publisher.stable) == (1, 1)


def test_streams_outlive_their_root() -> None:
    village, readers = a_village(8, *range(8))
    root = village.root("news")
    source = (root + 1) % 8
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"before")
    village.run(1)
    term = publisher.term
    village.kill(root)
    village.publish(source, publisher, b"meanwhile")
    village.run(10)
    village.publish(source, publisher, b"after")
    village.run(40)
    assert publisher.term == term
    assert publisher.stable == 3
    for number, reader in enumerate(readers):
        if number != root:
            assert reader.payloads == [b"before", b"meanwhile", b"after"]
            assert not reader.losses


def test_a_parent_that_dies_costs_no_event_in_either_direction() -> None:
    village, readers = a_village(10, *range(10), config=NARROW)
    inner = next(n for n in village.alive() if village.tree(n, "news").children and not rooted(village, n))  # type: ignore[union-attr]
    others = [number for number in range(10) if number != inner]
    sources = publishers(village, *others)
    for turn in range(20):
        if turn == 5:
            village.kill(inner)
        for number, publisher in zip(others, sources, strict=True):
            village.publish(number, publisher, b"%d of %d" % (turn, number))
        village.run(0.3)
    village.run(15)
    for number in others:
        assert len(readers[number].payloads) == 20 * len(others)
        assert not readers[number].losses


def test_the_stream_of_a_source_that_died_ends_after_its_lease_and_is_forgotten() -> None:
    village, (reader,) = a_village(6, 0)
    source = next(number for number in range(1, 6) if not rooted(village, number))
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"last words")
    village.run(1)
    village.kill(source)
    village.run(20)
    assert publisher.term in streams(village, 0), "its lease goes on"
    village.run(20)
    for number in village.alive():
        assert not streams(village, number)
    assert reader.payloads == [b"last words"]
    assert not reader.losses


def test_a_source_whose_publishers_closed_leaves_the_tree_and_its_stream_is_forgotten() -> None:
    village, (reader,) = a_village(6, 0)
    source = next(number for number in range(1, 6) if not rooted(village, number))
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"all")
    village.run(2)
    village.act(source, lambda peer: peer.close_publisher(publisher))
    village.run(5)
    for number in village.alive():
        assert not streams(village, number)
    tree = village.tree(source, "news")
    assert tree is None or not tree.sources.mine
    (again,) = publishers(village, source)
    assert again.term != publisher.term
    village.publish(source, again, b"more")
    village.run(2)
    assert reader.payloads == [b"all", b"more"]


def test_a_source_that_leaves_says_where_its_stream_ends() -> None:
    village, (reader,) = a_village(6, 0)
    source = next(number for number in range(1, 6) if not rooted(village, number))
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"good-bye")
    village.act(source, lambda peer: peer.leave())
    village.run(3)
    assert village.peers[source].left
    village.kill(source)
    village.run(5)
    assert reader.payloads == [b"good-bye"]
    assert not streams(village, 0), "nobody waits for its lease"


def test_a_stream_that_was_taken_for_ended_goes_on_when_a_split_is_over() -> None:
    village, readers = a_village(8, *range(8))
    root = village.root("news")
    here = {root, (root + 1) % 8, (root + 2) % 8}
    source = (root + 4) % 8
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"before")
    village.run(2)
    cut = village.world.cut(lambda a, b: (a in here) != (b in here))
    village.run(60)
    assert publisher.term not in streams(village, root), "a lease has passed"
    village.publish(source, publisher, b"during")
    village.run(1)
    village.world.heal(cut)
    village.run(40)
    village.publish(source, publisher, b"after")
    village.run(40)
    for reader in readers:
        assert reader.payloads[0] == b"before"
        assert reader.payloads[-1] == b"after"
        assert len(reader.payloads) + len(reader.losses) == 3


def test_a_source_that_is_one_too_many_waits_until_another_ends() -> None:
    village, (reader,) = a_village(6, 0, config=Config(topics=TopicConfig(streams_max=2)))
    numbers = [number for number in range(1, 6) if not rooted(village, number)][:2]
    here = village.root("news")
    village.subscribe(here, "news", Reader())
    first, *_ = publishers(village, *numbers)
    (third,) = publishers(village, here)
    village.publish(here, third, b"late")
    village.run(5)
    assert village.marks["streams_full"]
    assert b"late" not in reader.payloads
    village.act(numbers[0], lambda peer: peer.close_publisher(first))
    village.run(10)
    assert b"late" in reader.payloads


def test_who_publishes_cannot_be_limited_yet() -> None:
    with pytest.raises(LocalError, match="cannot limit who publishes"):
        Descriptor("news", BY_SOURCE, access=("publish:somebody",)).check()


def test_a_subscriber_that_cannot_keep_up_is_cut_and_delays_nobody_else() -> None:
    config = Config(topics=TopicConfig(budget_bytes=20_000, patience_s=1.0, window_bytes=4000))
    village, (healthy, slow) = a_village(6, 0, 1, config=config)
    source = next(number for number in range(2, 6) if not rooted(village, number))
    (publisher,) = publishers(village, source)
    slow.room_bytes = 0
    sent = 0
    for _ in range(60):
        if publisher.room() > 0:
            village.publish(source, publisher, b"%d" % sent + bytes(1000))
            sent += 1
        village.run(0.5)
    village.run(10)
    assert sent > 40, "the source was not held up for long"
    assert len(healthy.payloads) == sent
    assert not healthy.losses
    assert village.marks["lease_cut"]
    assert publisher.stable == sent


def test_the_creators_peer_is_the_root_of_its_topic_while_it_lives() -> None:
    village = Village(8)
    creator = 5
    name = f"{village.world.machines[creator].node_id.hex()}:room"
    village.act(2, lambda peer: peer.create(name, BY_SOURCE, lambda answer: None))
    reader = Reader()
    village.subscribe(1, name, reader)
    village.run(3)
    assert village.root(name) == creator
    publisher = village.publisher(3, name)
    village.run(2)
    village.publish(3, publisher, b"to the creator's room")
    village.run(1)
    village.kill(creator)
    village.run(10)
    assert village.root(name) != creator
    village.publish(3, publisher, b"still there")
    village.run(2)
    assert reader.payloads == [b"to the creator's room", b"still there"]
