"""Settings that change while a topic stands: tree and publishers learn them, and no event is lost."""

import msgspec
import pytest

from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import EventTooLarge, LocalError, TopicExists, UnknownTopic
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.root_messages import Created, RecordState
from tests.protocol.topics.village import Reader, Village

NAME = "market/prices"
DEEP = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))


def change(village: Village, peer: int, **wanted: object) -> object:
    answers: list[object] = []
    village.act(peer, lambda one: one.change(NAME, wanted, answers.append))
    village.run(3)
    [answer] = answers
    return answer


def settings_at(village: Village, peer: int) -> Settings:
    return village.peers[peer].topics.descriptors[described(NAME).topic].settings


def test_a_change_reaches_the_whole_tree_and_the_publishers_while_events_flow() -> None:
    village = Village(16, seed=3, config=DEEP)
    readers = {peer: Reader() for peer in range(12)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(5)
    publisher = village.publisher(15, NAME)
    village.run(1)
    for index in range(20):
        village.publish(15, publisher, b"%d" % index)
        village.run(0.1)
        if index == 10:
            answer = change(village, 14, slow="wait", event_bytes_max=5)
            assert isinstance(answer, Descriptor)
            assert (answer.version, answer.settings) == (2, Settings(slow="wait", event_bytes_max=5))
    village.run(5)
    assert all(settings_at(village, peer).slow == "wait" for peer in readers)
    assert all(reader.payloads == [b"%d" % index for index in range(20)] for reader in readers.values())
    with pytest.raises(EventTooLarge, match="over the limit of 5"):
        village.publish(15, publisher, b"six...")


def test_a_change_reaches_publishers_that_have_published_nothing() -> None:
    village = Village(16, seed=3, config=DEEP)
    village.subscribe(0, NAME, Reader())
    publishers = [village.publisher(peer, NAME) for peer in range(16)]
    village.run(3)
    change(village, 14, slow="wait")
    assert [publisher.descriptor.settings.slow for publisher in publishers] == ["wait"] * 16


def test_a_change_outlives_the_root() -> None:
    village = Village(8, seed=2)
    village.subscribe(0, NAME, Reader())
    village.run(3)
    change(village, 1, slow="wait")
    root = village.root(NAME)
    village.kill(root)
    village.run(30)
    heir = village.root(NAME)
    assert heir != root
    assert settings_at(village, heir).slow == "wait"


def test_changes_follow_each_other_and_equal_settings_are_no_new_version() -> None:
    village = Village(6)
    village.act(0, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda answer: None))
    village.run(2)
    versions = [change(village, peer, event_bytes_max=size) for peer, size in ((1, 10), (2, 20), (3, 20))]
    assert [answer.version for answer in versions if isinstance(answer, Descriptor)] == [2, 3, 3]
    assert versions[-1].settings == Settings(slow="wait", event_bytes_max=20)  # type: ignore[attr-defined]


def test_a_topic_that_nobody_created_cannot_be_changed() -> None:
    village = Village(4)
    answer = change(village, 1, slow="wait")
    assert isinstance(answer, UnknownTopic)
    assert "quillcast topic create market/prices" in str(answer)


def test_no_change_makes_a_topic_promise_to_wait_for_best_effort_subscribers() -> None:
    village, answers = Village(4), list[object]()
    for name, settings, wanted in (
        ("loose", Settings(delivery="best_effort"), {"slow": "wait"}),
        ("patient", Settings(slow="wait"), {"delivery": "best_effort"}),
    ):
        village.act(0, lambda peer, name=name, settings=settings: peer.create(name, settings, lambda answer: None))
        village.run(2)
        village.act(1, lambda peer, name=name, wanted=wanted: peer.change(name, wanted, answers.append))
        village.run(2)
    for answer in answers:
        assert isinstance(answer, LocalError)
        assert str(answer).startswith("slow = 'wait' needs delivery = 'reliable'")
    assert len(answers) == 2


def test_what_one_peer_asks_for_at_once_is_done_one_after_another_and_each_is_answered() -> None:
    village = Village(6)
    created: list[object] = []
    changed: list[object] = []
    for slow in ("cut", "wait", "cut"):
        village.act(1, lambda peer, slow=slow: peer.create(NAME, Settings(slow=slow), created.append))
    village.run(3)
    assert [type(answer) for answer in created] == [Descriptor, TopicExists, Descriptor]
    for wanted in ({"slow": "wait"}, {"order": "none"}, {"event_bytes_max": 10}):
        village.act(1, lambda peer, wanted=wanted: peer.change(NAME, wanted, changed.append))
    village.run(3)
    assert [type(answer) for answer in changed] == [Descriptor, LocalError, Descriptor]
    assert settings_at(village, village.root(NAME)) == Settings(slow="wait", event_bytes_max=10)


def test_word_of_an_earlier_change_is_no_answer_to_a_later_one() -> None:
    village = Village(6)
    answers: list[object] = []
    village.act(1, lambda peer: peer.create(NAME, Settings(), answers.append))
    village.run(3)
    theirs, mine = (
        msgspec.structs.replace(answers[0], version=version, settings=Settings(event_bytes_max=size))  # type: ignore[type-var]
        for version, size in ((2, 10), (3, 20))
    )
    village.act(1, lambda peer: peer.topics.creating.create(mine, answers.append))
    village.act(1, lambda peer: peer.message(village.world.machines[3].contact, Created(theirs)))
    village.run(3)
    assert answers[1:] == [mine]


def test_settings_that_a_root_learns_from_a_replica_reach_the_whole_tree_and_the_publishers() -> None:
    village = Village(16, seed=3, config=DEEP)
    for peer in range(12):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    publisher = village.publisher(15, NAME)
    village.run(1)
    village.publish(15, publisher, b"one")
    root, replica = village.root(NAME), village.world.machines[14].contact
    known = change(village, 14, slow="wait")
    assert isinstance(known, Descriptor)
    later = msgspec.structs.replace(known, version=3, settings=Settings(event_bytes_max=5))
    village.act(root, lambda peer: peer.message(replica, RecordState([(later, NO_TERM)])))
    village.run(3)
    assert {settings_at(village, peer) for peer in range(12)} == {later.settings}
    assert publisher.descriptor == later


def test_a_publisher_that_missed_the_word_of_a_change_learns_it_with_its_next_receipt() -> None:
    village = Village(6)
    village.subscribe(0, NAME, Reader())
    publisher = village.publisher(1, NAME)
    village.run(3)
    assignment = publisher.descriptor
    changed = change(village, 2, event_bytes_max=5)
    village.peers[1].topics.descriptors[described(NAME).topic] = assignment
    publisher.adapt(assignment)
    village.publish(1, publisher, b"one")
    village.run(1)
    assert publisher.descriptor == changed


def test_an_idle_publisher_that_missed_the_word_of_a_change_learns_it_when_it_is_asked_for() -> None:
    village = Village(6)
    village.subscribe(0, NAME, Reader())
    publisher = village.publisher(3, NAME)
    village.publish(3, publisher, b"one")
    village.run(3)
    assignment = publisher.descriptor
    changed = change(village, 2, event_bytes_max=5)
    village.peers[3].topics.descriptors[described(NAME).topic] = assignment
    publisher.adapt(assignment)
    village.run(4 * Config().topics.lease_s)
    assert publisher.descriptor == changed
