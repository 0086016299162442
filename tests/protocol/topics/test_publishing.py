"""What a peer keeps for its publishers, and a root of publishers: wake-ups, windows, and the end of both."""

from collections.abc import Collection

import pytest

from quillcast.core.envelope import NO_TERM
from quillcast.core.errors import QuillcastError
from quillcast.core.host import RESERVED_EIGHTHS
from quillcast.core.trace import Admitted
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.milestones import Came
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings, described
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.root_messages import NotRoot
from quillcast.protocol.topics.state.root import Root
from tests.protocol.topics.village import Reader, Village, Writer

NAME = "sport/tennis"
TOPIC = described(NAME).topic


def a_village(**config: float) -> tuple[Village, int, int]:
    """Six peers; the one that is the topic's root, and another."""
    village = Village(6, config=Config(topics=TopicConfig(**config)))
    root = next(peer for peer in range(6) if village.peers[peer].overlay.is_closest(TOPIC))
    return village, root, next(peer for peer in range(6) if peer != root)


def root_of(village: Village, peer: int) -> Root:
    tree = village.tree(peer, NAME)
    assert tree is not None
    assert tree.root is not None
    return tree.root


def test_a_publisher_is_woken_by_room_though_the_root_was_asked_for_before_there_was_one() -> None:
    village, root, writer = a_village()
    village.subscribe(root, NAME, Reader())
    village.run(1)
    told: list[Descriptor | QuillcastError] = []
    village.act(writer, lambda peer: peer.change(NAME, {"slow": "cut"}, told.append))
    village.run(1)
    assert told == [described(NAME)]
    publishing = village.peers[writer].topics.publishing
    assert not publishing.finder.roots, "nobody watches over a root's address where there are no publishers"
    publisher = village.publisher(writer, NAME)
    village.run(1)
    assert publishing.finder.watched == {village.world.machines[root].node_id: {TOPIC: None}}
    for _ in range(20):
        village.publish(writer, publisher, b"x" * village.world.window_bytes)
    village.run(1.5)
    assert publisher.sent == publisher.next


def test_who_was_root_says_for_each_bundle_that_it_is_not_and_the_root_is_asked_for_once() -> None:
    village, root, writer = a_village()
    publishing, contact = village.peers[writer].topics.publishing, village.world.machines[root].contact
    village.publisher(writer, NAME)
    village.run(1)
    asked: list[bytes] = []
    ask = publishing.finder.ask

    def note(topic: bytes, publishers: Collection[Publisher]) -> None:
        asked.append(topic)
        ask(topic, publishers)

    publishing.finder.ask = note  # type: ignore[method-assign]
    for _ in range(5):
        publishing.dispatch.message(contact, NotRoot(TOPIC, None))
    assert asked == [TOPIC]
    publishing.finder.asked_at[TOPIC] -= TopicConfig().receipt_timeout_s
    publishing.dispatch.message(contact, NotRoot(TOPIC, None))
    assert asked == [TOPIC, TOPIC], "the question may be lost"


def test_a_publisher_that_is_held_back_may_use_all_of_its_links_credit_for_what_it_sends_again() -> None:
    village, root, writer = a_village()
    publishing, contact = village.peers[writer].topics.publishing, village.world.machines[root].contact
    village.publisher(writer, NAME)
    village.run(1)
    window = village.world.window_bytes
    assert publishing.room_to(contact, TOPIC, False) == window - window * RESERVED_EIGHTHS[False] // 8
    assert publishing.room_to(contact, TOPIC, True) == window


def test_topics_that_found_no_room_are_the_first_when_there_is_some_again() -> None:
    village = Village(3, config=Config(topics=TopicConfig(bundle_bytes=1000)), window_bytes=1000)
    root, contact = 0, village.world.machines[0].contact
    publishers = [village.publisher(1, f"topic/{number}") for number in range(30)]
    village.run(3)
    mine = [publisher for publisher in publishers if publisher.root == contact]
    assert len(mine) > 2
    for publisher in mine:
        for _ in range(5):  # one at a time: each is more than the link takes
            village.publish(1, publisher, bytes(2000))
    village.run(10)
    admitted = [
        record.topic
        for _, machine, record in village.world.journal.records
        if isinstance(record, Admitted) and machine == root
    ]
    assert all(publisher.admitted == 5 for publisher in mine)
    assert set(admitted[: len(mine) + 1]) == {publisher.topic for publisher in mine}, "each had its turn"


def test_publishers_in_the_roots_own_process_are_held_back_like_others() -> None:
    """A topic that waits for a slow reader takes of them what a link's window would, and goes on when it may."""
    village, root, other = a_village(budget_bytes=40_000, window_bytes=10_000)
    peer = village.peers[root]
    reader = Reader(room_bytes=0)
    subscription = village.subscribe(other, NAME, reader)
    village.run(3)
    publisher = village.publisher(root, NAME)
    village.run(1)
    for _ in range(200):
        if publisher.room() > 0:
            village.publish(root, publisher, b"x" * 1000)
        village.run(0.01)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.flow.log.size_bytes < 40_000 + 3 * 10_000
    assert publisher.sent < publisher.next, "the rest waits at the publisher"
    assert publisher.room() <= 0
    reader.room_bytes = 1 << 20
    village.act(other, lambda p: p.drained(subscription))
    village.run(5)
    assert publisher.sent == publisher.admitted == publisher.stable == publisher.next
    assert not peer.topics.flow_control.taken


def test_a_topic_that_waits_holds_up_no_publisher_of_another_one_on_the_same_link() -> None:
    village, root, other = a_village(budget_bytes=40_000, window_bytes=10_000)
    village.act(root, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda answer: None))
    village.subscribe(other, NAME, Reader(room_bytes=0))
    village.run(3)
    waits = village.publisher(other, NAME)
    names = (f"another/{number}" for number in range(1000))
    name = next(name for name in names if village.peers[root].overlay.is_closest(described(name).topic))
    free = village.publisher(other, name)
    village.run(1)
    for _ in range(30):
        village.publish(other, waits, b"x" * 1000)
    village.run(1)
    assert village.peers[root].topics.flow_control.held_back.keys() == {TOPIC}
    assert waits.held_back
    village.publish(other, free, b"event")
    village.run(1)
    assert free.admitted == 1


def closed(village: Village, peer: int) -> Publisher:
    """A publisher that closed when its event was not stable yet."""
    publisher = village.publisher(peer, NAME)
    village.publish(peer, publisher, b"event")
    village.act(peer, lambda p: p.close_publisher(publisher))
    return publisher


def test_roots_and_peers_forget_closed_publishers() -> None:
    village, root, writer = a_village()
    for peer in (root, writer):
        publishers = [closed(village, peer) for _ in range(5)]
        assert village.peers[peer].topics.publishing.publishers
        village.run(5)
        assert all(publisher.stable == 1 for publisher in publishers)
        publishing = village.peers[peer].topics.publishing
        assert len(publishing.publishers[TOPIC]) == 1  # the last one stays, in case that the root ends soon
        village.run(village.config.topics.lease_s)
        finder = publishing.finder
        assert (publishing.publishers, publishing.closed) == ({}, {})
        assert (finder.roots, finder.watched, finder.asked_at, finder.settled) == ({}, {}, {}, {})
    assert not root_of(village, root).admissions


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_publisher_whose_application_comes_back_goes_on_and_nothing_is_repeated(admission: str) -> None:
    village, root, writer = a_village()
    village.act(root, lambda peer: peer.create(NAME, Settings(admission=admission), lambda told: None))
    village.run(1)
    reader = Reader()
    village.subscribe(next(peer for peer in range(6) if peer not in (root, writer)), NAME, reader)
    village.run(1)
    publisher = village.publisher(writer, NAME)
    village.publish(writer, publisher, b"1")
    village.act(writer, lambda peer: peer.orphan_publisher(publisher))
    assert not village.peers[writer].has_publisher(publisher.id)
    village.run(0.1)
    again = village.act(writer, lambda peer: peer.publisher(NAME, Writer(), None, publisher.id, 0))
    assert again is publisher
    assert village.peers[writer].has_publisher(publisher.id)
    village.publish(writer, again, b"2")
    village.run(5)
    assert reader.payloads == [b"1", b"2"]
    assert (again.stable, reader.losses) == (2, [])


def test_a_new_root_learns_from_publishers_how_far_the_term_before_was_stable() -> None:
    village, root, writer = a_village()
    publisher = closed(village, writer)
    village.run(5)
    assert publisher.stable == 1
    term = root_of(village, root).term
    village.kill(root)
    village.run(5)
    follower = village.tree(village.root(NAME), NAME)
    assert follower is not None
    assert dict(follower.flow.past.ends()) == {term: 1}, "nobody else is left who knows"


def test_a_closed_publisher_goes_though_its_events_were_discarded_before_they_were_stable() -> None:
    village, _, writer = a_village(retain_s=10.0)
    stuck = next(peer for peer in range(6) if peer != writer)
    village.subscribe(stuck, NAME, Reader(room_bytes=0))
    village.run(3)
    publisher = closed(village, writer)
    village.run(5)
    assert village.peers[writer].topics.publishing.publishers
    village.run(10)
    assert publisher.dropped.ranges() == [(0, 1)]
    assert village.peers[writer].topics.publishing.publishers, "in case that the root ends soon"
    village.run(village.config.topics.lease_s)
    finder = village.peers[writer].topics.publishing.finder
    assert not village.peers[writer].topics.publishing.publishers
    assert (finder.dropped, finder.untold) == ({}, {})


@pytest.mark.parametrize("here", [True, False])
def test_a_root_learns_how_far_a_term_went_whose_events_were_dropped_after_it_was_found(here: bool) -> None:
    """So does a publisher's peer that becomes root itself, and asked nobody for the root."""
    village, root, writer = a_village()
    writer = root if here else writer
    publishing = village.peers[writer].topics.publishing
    publisher = village.publisher(writer, NAME)
    village.run(2)
    tree = village.tree(root, NAME)
    assert tree is not None
    term, came = NO_TERM._replace(counter=1), Came(5, village.peers[writer].host.now())
    publishing.finder.note_dropped(TOPIC, term, came, now=NO_TERM if here else publisher.term)
    if here:
        village.act(root, lambda _: publishing.root_here(tree))
    else:
        village.publish(writer, publisher, b"event")
    village.run(2)
    assert dict(tree.flow.past.ends()) == {term: 5}
    assert not publishing.finder.untold


def test_a_root_learns_how_far_a_term_went_from_whoever_may_publish_no_more_and_discards_what_was_admitted() -> None:
    village, root, writer = a_village()
    village.subscribe(root, NAME, Reader(room_bytes=0))
    publisher = village.publisher(writer, NAME)
    village.run(2)
    village.publish(writer, publisher, b"event")
    village.run(2)
    publishing, term = village.peers[writer].topics.publishing, publisher.term
    assert (publisher.admitted, publisher.stable) == (1, 0)
    village.act(writer, lambda _: publishing._fail(publisher, AccessDenied("taken off")))
    assert isinstance(publisher.listener.error, AccessDenied)
    village.kill(root)
    village.run(10)
    follower = village.tree(village.root(NAME), NAME)
    assert follower is not None
    assert dict(follower.flow.past.ends()) == {term: 1}, "nobody else is left who knows"
    village.run(village.config.topics.lease_s + 5)
    assert not publishing.publishers


def test_a_root_forgets_lost_publishers_when_their_lease_ends() -> None:
    village, root, writer = a_village()
    village.publish(writer, village.publisher(writer, NAME), b"event")
    village.run(37)
    village.kill(writer)
    village.run(28)
    assert root_of(village, root).admissions
    village.run(5)
    assert not root_of(village, root).admissions


def test_a_root_forgets_publishers_whose_peer_died_in_silence_and_no_others() -> None:
    village, root, writer = a_village()
    other = next(peer for peer in range(6) if peer not in (root, writer))
    publishers = [village.publisher(peer, NAME) for peer in (root, writer, other)]
    for peer, publisher in zip((root, writer, other), publishers, strict=True):
        village.publish(peer, publisher, b"event")
    village.run(3)
    assert len(root_of(village, root).admissions) == 3
    village.kill(writer, silently=True)
    village.run(130)
    assert sorted(root_of(village, root).admissions) == sorted([publishers[0].id, publishers[2].id])


def test_an_idle_publisher_tells_a_root_that_comes_back_at_once_what_it_knew() -> None:
    village = Village(6, config=Config(topics=TopicConfig(replicas=1)))
    root = next(peer for peer in range(6) if village.peers[peer].overlay.is_closest(TOPIC))
    writer = next(peer for peer in range(6) if peer != root)
    village.act(root, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda answer: None))
    village.run(2)
    village.publisher(writer, NAME)
    village.run(2)
    village.kill(root, silently=True)
    village.run(0.1)
    village.world.start(village.world.machines[root])
    village.run(5)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.descriptor.settings == Settings(slow="wait")
