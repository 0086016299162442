"""What a peer remembers of topics that it has no part in: bounded, and never less than it must keep as a replica."""

import pytest

from quillcast.core.errors import LocalError
from quillcast.core.ids import ring_distance
from quillcast.protocol.config import Config
from quillcast.protocol.neighbours.config import StreamConfig
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings, described
from tests.protocol.topics.village import Reader, Village, Writer

BOUND = 4
CONFIG = Config(topics=TopicConfig(replicas=2, idle_topics_max=BOUND))
NAMES = [f"topic/{number}" for number in range(40)]


def replicas(village: Village, name: str) -> list[int]:
    """The peers that are to keep a topic's state."""
    topic = described(name).topic
    return sorted(village.alive(), key=lambda peer: ring_distance(village.world.machines[peer].node_id, topic))[:2]


def known(peer: Peer) -> set[bytes]:
    return {*peer.topics.descriptors}


def idle_room(peer: Peer) -> int:
    return BOUND + peer.topics.forgetting.slack


def test_topics_that_a_subscriber_has_left_are_forgotten_beyond_a_bound_and_their_settings_stand() -> None:
    village = Village(8, config=CONFIG)
    village.run(5)
    for name in NAMES:
        village.act(3, lambda peer, name=name: peer.create(name, Settings(slow="wait"), lambda answer: None))
        village.run(1)
        for peer in (3, 4):
            subscription = village.subscribe(peer, name, Reader())
            village.act(peer, lambda peer, s=subscription: peer.unsubscribe(s))
        village.run(1)
    village.run(70)  # who was root, or forwarded, stays for a while
    for number in village.alive():
        peer = village.peers[number]
        kept = {described(name).topic for name in NAMES if number in replicas(village, name)}
        assert kept <= known(peer), "what it is to keep for others it does not forget"
        assert len(known(peer) - kept) <= idle_room(peer)
        assert peer.topics.creating.holders.keys() <= known(peer)
        peer.check()
    for name in NAMES[:3]:
        village.subscribe(4, name, Reader())
        village.run(2)
        tree = village.tree(4, name)
        assert tree is not None
        assert tree.descriptor.settings.slow == "wait", "the replicas know"


def test_topics_that_a_publisher_has_closed_are_forgotten_beyond_a_bound() -> None:
    village = Village(8, config=CONFIG)
    village.run(5)
    for name in NAMES:
        publisher = village.publisher(5, name)
        village.publish(5, publisher, b"event")
        village.run(1)
        village.act(5, lambda peer, p=publisher: peer.close_publisher(p))
        village.run(1)
    village.run(70)
    peer = village.peers[5]
    kept = {described(name).topic for name in NAMES if 5 in replicas(village, name)}
    assert len(known(peer) - kept) <= idle_room(peer)
    peer.check()


def test_topics_in_use_are_not_forgotten_however_many_there_are() -> None:
    village = Village(8, config=CONFIG)
    village.run(5)
    for name in NAMES:
        village.subscribe(6, name, Reader())
    village.run(5)
    assert {described(name).topic for name in NAMES} <= known(village.peers[6])


def test_a_former_replica_forgets_topics_once_others_keep_them() -> None:
    village = Village(4, config=CONFIG)
    village.run(5)
    for name in NAMES:
        village.act(0, lambda peer, name=name: peer.create(name, Settings(slow="wait"), lambda answer: None))
        village.run(0.5)
    village.run(5)
    for _ in range(12):
        village.add()
        village.run(3)
    village.run(120)
    for number in village.alive():
        peer = village.peers[number]
        kept = {described(name).topic for name in NAMES if number in replicas(village, name)}
        assert kept <= peer.topics.known.terms.keys()
        assert len(peer.topics.known.terms.keys() - kept) <= idle_room(peer)
        assert peer.topics.known.terms.keys() <= known(peer)
        peer.check()


def test_a_topic_that_is_known_and_not_kept_track_of_is_found() -> None:
    village = Village(2, config=CONFIG)
    village.run(2)
    topics = village.peers[0].topics
    topics.creating.holders[described("nobody/knows").topic] = 1
    with pytest.raises(AssertionError):
        topics.forgetting.check()
    topics.creating.holders.clear()
    for name in NAMES:
        topics.descriptors[described(name).topic] = described(name)
    with pytest.raises(AssertionError, match="40 topics are known that nobody here needs"):
        topics.forgetting.check()


def test_a_topic_too_many_is_refused_with_the_bound_and_nobody_takes_more_than_half() -> None:
    village = Village(3, config=Config(topics=TopicConfig(replicas=2, topics_max=10)))
    village.run(2)
    names = iter([name for name in map("topic/{}".format, range(200)) if replicas(village, name)[0] == 0])

    def subscribe(peer: int) -> str:
        reader = Reader()
        village.subscribe(peer, next(names), reader)
        village.run(3)
        assert reader.error is None or reader.start is None
        return str(reader.error or "")

    assert [subscribe(1) for _ in range(5)] == [""] * 5
    assert subscribe(1) == "one peer is another's child in at most 5 topics (half of topics.topics_max)"
    assert [subscribe(2) for _ in range(5)] == [""] * 5
    root, answers, writer = village.peers[0], list[object](), Writer()
    village.act(2, lambda peer: peer.create(next(names), Settings(), answers.append))
    village.act(2, lambda peer: peer.publisher(next(names), writer))
    village.run(3)
    for refused in (*answers, writer.error):
        assert isinstance(refused, LocalError)
        assert "knows 10 topics, the most that it may learn from other peers (topics.topics_max)" in str(refused)
    assert len(known(root)) == 10
    village.subscribe(0, next(names), Reader())
    village.run(3)
    assert len(known(root)) == 11, "its own applications are never refused"
    root.check()


def test_a_topic_too_many_for_the_reports_of_two_peers_is_refused() -> None:
    village = Village(3, config=Config(topics=TopicConfig(replicas=2), streams=StreamConfig(map_bytes_max=1_000)))
    village.run(2)
    names = iter([name for name in map("topic/{}".format, range(200)) if replicas(village, name)[0] == 0])
    errors = list[str]()
    for _ in range(8):
        reader = Reader()
        village.subscribe(1, next(names), reader)
        village.run(3)
        errors += [str(reader.error)] if reader.error is not None else []
    assert 2 <= len(errors) <= 5
    assert set(errors) == {"what two peers tell each other of topics takes at most half of streams.map_bytes_max"}
    assert "reports_full" not in village.marks
    reader = Reader()
    village.subscribe(2, next(names), reader)
    village.run(3)
    assert reader.start is not None, "others have room of their own"
