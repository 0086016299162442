"""Topics whose events are numbered by their sources, on networks of whole peers."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import RELIABLE_STREAMS, Term
from quillcast.core.ids import topic_id
from quillcast.core.messages import Contact
from quillcast.live.admission.credentials import Credentials
from quillcast.protocol.config import Config
from quillcast.protocol.security.access import AccessDenied, Warrant, entry
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Descriptor, Settings
from quillcast.protocol.topics.memory.retention import shed
from quillcast.protocol.topics.messages import Farewell, FarewellHeard, Join, Refused
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.protocol.topics.state.sources import SourceState
from quillcast.sim.network import partition
from tests.protocol.topics.village import Reader, Village, Writer

BY_SOURCE = Settings(admission="source")
TOPIC = topic_id("news")
OWNER, FRIEND, STRANGER = (Credentials.new() for _ in range(3))
MAY_PUBLISH = entry("publish", FRIEND.principal)
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


def a_leaf(village: Village) -> int:
    """A peer without children."""
    trees = {number: village.tree(number, "news") for number in village.alive()}
    return next(
        number for number, tree in trees.items() if tree is not None and not tree.leases.children and not tree.root
    )


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
    inner = next(n for n in village.alive() if village.tree(n, "news").leases.children and not rooted(village, n))  # type: ignore[union-attr]
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


@pytest.mark.parametrize("heard", [True, False], ids=["the others heard it", "nobody heard it"])
def test_where_a_root_dies_the_next_one_learns_from_its_children_what_is_stable_and_where_streams_ended(
    *, heard: bool
) -> None:
    """The replicas keep descriptors and terms, and nothing of streams."""
    village, readers = a_village(8, *range(6))
    root = village.root("news")
    source, slow = [number for number in range(5, -1, -1) if number != root][:2]
    others = [number for number in range(8) if number not in (root, source)]
    (publisher,) = publishers(village, source)
    village.publish(source, publisher, b"stable")
    village.run(5)
    subscription = village.tree(slow, "news").subscriptions[0]  # type: ignore[union-attr]
    readers[slow].room_bytes = 0
    village.publish(source, publisher, b"not stable")
    village.run(2)
    term = publisher.term
    village.kill(source)
    ended = village.tree(root, "news").sources.states[term]  # type: ignore[union-attr]
    while ended.end is None:
        village.run(0.01)
    if heard:
        village.run(2)
    known = {number: village.tree(number, "news") for number in others}
    ends = {tree.sources.states[term].end for tree in known.values() if tree is not None}
    assert ends == ({2} if heard else {None})
    village.kill(root)
    for _ in range(80):
        village.run(1)
        assert {stable for number in others for _, stable in streams(village, number).values()} <= {1}
    assert village.root("news") != root
    assert village.tree(village.root("news"), "news").sources.states[term].end == 2  # type: ignore[union-attr]
    readers[slow].room_bytes = 1 << 20
    village.act(slow, lambda peer: peer.drained(subscription))
    village.run(5)
    assert not any(streams(village, number) for number in others)
    for number in {*others} & {*range(6)}:
        assert readers[number].payloads == [b"stable", b"not stable"]
        assert not readers[number].losses


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


def test_a_source_that_knows_of_no_other_is_told_that_it_is_one_too_many() -> None:
    village, (reader,) = a_village(6, 0, config=Config(topics=TopicConfig(streams_max=2)))
    first, second, third = [number for number in range(1, 6) if not rooted(village, number)][:3]
    opened = publishers(village, first, second)
    (late,) = publishers(village, third)
    village.publish(third, late, b"late")
    village.run(5)
    assert TOPIC in village.peers[third].topics.publishing.own_streams.crowded
    assert not reader.payloads
    village.act(first, lambda peer: peer.close_publisher(opened[0]))
    village.run(10)
    assert reader.payloads == [b"late"]
    assert not reader.losses
    assert late.stable == 1
    assert TOPIC not in village.peers[third].topics.publishing.own_streams.crowded


def test_more_sources_than_a_topic_has_room_for_wait_and_say_so_until_others_have_ended() -> None:
    """By default it has room for 1,024. All of these but one have died, and their leases end."""
    village, (reader,) = a_village(6, 0)
    most = village.config.topics.streams_max
    first, *others = (number for number in range(1, 6) if not rooted(village, number))
    (early,) = publishers(village, first)
    village.publish(first, early, b"early")
    village.run(1)
    root, tree = village.root("news"), village.tree(village.root("news"), "news")
    dead = [Term(RELIABLE_STREAMS + 1, number.to_bytes(16)) for number in range(1, most)]
    village.act(root, lambda peer: [peer.topics.source_streams.begin(tree, term, 0, None) for term in dead])
    village.run(5)
    assert (most, len(streams(village, root)), len(streams(village, 0))) == (1024, 1024, 1024)
    waiting = {number: village.publisher(number, "news") for number in (0, root, *others)}
    for number, publisher in waiting.items():
        village.publish(number, publisher, b"of %d" % number)
    village.publish(first, early, b"goes on")
    village.run(5)
    assert reader.payloads == [b"early", b"goes on"]
    why = "topic news has as many sources as it may have (streams_max"
    assert all(village.peers[number].bound(TOPIC).startswith(why) for number in waiting)
    assert not village.peers[first].bound(TOPIC)
    village.run(40)
    assert sorted(reader.payloads[2:]) == sorted(b"of %d" % number for number in waiting)
    assert [publisher.stable for publisher in waiting.values()] == [1] * len(waiting)
    assert not any(village.peers[number].bound(TOPIC) for number in waiting)
    assert not reader.losses


def a_listed_village(count: int, *readers: int, entries: tuple[str, ...], **world: Any) -> tuple[Village, list[Reader]]:
    """A village with a topic whose list says who publishes or subscribes."""
    village = Village(count, **world)
    village.act(0, lambda peer: peer.create("news", BY_SOURCE, lambda answer: None, listing(*entries)))
    village.run(3)
    found = [Reader() for _ in readers]
    for number, reader in zip(readers, found, strict=True):
        village.subscribe(number, "news", reader, warrant=warrant(village, number, OWNER))
    village.run(3)
    return village, found


def listing(*entries: str) -> Callable[[Descriptor], Descriptor]:
    return lambda descriptor: OWNER.own(msgspec.structs.replace(descriptor, access=entries))


def warrant(village: Village, number: int, who: Credentials) -> Warrant:
    return who.warrant(village.world.machines[number].node_id, TOPIC)


def open_publisher(village: Village, number: int, who: Credentials | None) -> tuple[Publisher, Writer]:
    writer, shown = Writer(), None if who is None else warrant(village, number, who)
    publisher = village.act(number, lambda peer: peer.publisher("news", writer, shown))
    village.run(2)
    return publisher, writer


def test_a_list_says_who_may_be_a_source_and_every_peer_that_passes_a_stream_on_looks() -> None:
    village, readers = a_listed_village(12, *range(12), entries=(MAY_PUBLISH,), config=NARROW)
    friends = [open_publisher(village, number, FRIEND)[0] for number in (1, 4, 7, village.root("news"))]
    late = Reader()
    for turn in range(4):
        for number, publisher in zip((1, 4, 7, village.root("news")), friends, strict=True):
            village.publish(number, publisher, b"%d of %d" % (turn, number))
        village.run(1)
        if turn == 1:
            village.subscribe(3, "news", late, warrant=warrant(village, 3, OWNER))
            village.run(1)
    village.run(2)
    for reader in readers:
        assert len(reader.payloads) == 16
        assert not reader.losses
    assert len(late.payloads) == 8
    assert not late.losses
    assert "stream_denied" not in village.marks
    assert not any(peer.table.dropped for peer in village.peers.values()), "warrants go ahead of events"
    assert [publisher.stable for publisher in friends] == [4] * 4


@pytest.mark.parametrize("who", [STRANGER, None])
def test_a_source_that_the_list_does_not_name_is_refused_at_its_publisher(who: Credentials | None) -> None:
    village, (reader,) = a_listed_village(6, 0, entries=(MAY_PUBLISH,))
    _, writer = open_publisher(village, 3, who)
    assert isinstance(writer.error, AccessDenied)
    assert FRIEND.principal[:8] in str(writer.error)
    assert not reader.payloads
    tree = village.tree(3, "news")
    assert tree is None or not tree.sources.mine


@pytest.mark.parametrize("place", ["leaf", "root"])
def test_neighbours_take_nothing_from_a_source_that_does_not_look_at_the_list_itself(place: str) -> None:
    village, readers = a_listed_village(8, *range(8), entries=(MAY_PUBLISH,), config=NARROW)
    cheat = village.root("news") if place == "root" else a_leaf(village)
    village.peers[cheat].topics.publishing._denied = lambda publisher: None  # type: ignore[method-assign]
    publisher, _ = open_publisher(village, cheat, STRANGER)
    for _ in range(5):
        village.publish(cheat, publisher, b"forged")
        village.run(1)
    assert village.marks["stream_denied"]
    for number in set(range(8)) - {cheat}:
        assert not streams(village, number)
        assert not readers[number].payloads
        assert not readers[number].losses
    friend, _ = open_publisher(village, 5, FRIEND)
    village.publish(5, friend, b"genuine")
    village.run(2)
    assert all(b"genuine" in reader.payloads for reader in readers)


def test_a_stream_is_over_where_a_list_that_forbids_it_comes_to_be_known_later() -> None:
    village, readers = a_village(6, 0, 1)
    source = next(number for number in range(2, 6) if not rooted(village, number))
    publisher, writer = open_publisher(village, source, STRANGER)
    village.publish(source, publisher, b"before there was a list")
    village.run(2)
    owned = listing(MAY_PUBLISH)(Descriptor("news", BY_SOURCE, version=1))
    for number in village.alive():
        village.act(number, lambda peer: peer.topics.known.learn(owned))
    village.run(3)
    village.publish(source, publisher, b"after")
    village.run(10)
    assert isinstance(writer.error, AccessDenied)
    for number in village.alive():
        assert not streams(village, number)
    assert [reader.payloads for reader in readers] == [[b"before there was a list"]] * 2


def test_who_may_publish_and_not_subscribe_is_a_source_and_gets_nothing() -> None:
    village, (reader,) = a_listed_village(8, 0, entries=(entry("subscribe", OWNER.principal), MAY_PUBLISH))
    source = next(number for number in range(1, 8) if not rooted(village, number))
    publisher, writer = open_publisher(village, source, FRIEND)
    village.publish(source, publisher, b"one way")
    village.run(2)
    assert writer.error is None
    assert reader.payloads == [b"one way"]
    assert publisher.stable == 1
    curious = Reader()
    village.subscribe(source, "news", curious, warrant=warrant(village, source, FRIEND))
    village.run(3)
    assert isinstance(curious.error, AccessDenied)
    village.publish(source, publisher, b"still one way")
    village.run(2)
    assert reader.payloads == [b"one way", b"still one way"]


def test_a_source_that_ends_its_subscription_is_sent_no_more_events() -> None:
    village, readers = a_village(8, *range(8), config=NARROW)
    source = a_leaf(village)
    other = next(n for n in range(8) if n != source)
    first, second = publishers(village, source, other)
    subscription = village.tree(source, "news").subscriptions[0]  # type: ignore[union-attr]
    village.publish(other, second, b"one")
    village.run(2)
    village.act(source, lambda peer: peer.unsubscribe(subscription))
    village.run(2)
    assert list(streams(village, source)) == [first.term]
    village.publish(other, second, b"two")
    village.publish(source, first, b"three")
    village.run(2)
    assert list(streams(village, source)) == [first.term], "nothing of other sources comes here"
    assert (first.stable, second.stable) == (1, 2)
    again = Reader()
    village.subscribe(source, "news", again)
    village.run(2)
    village.publish(other, second, b"four")
    village.publish(source, first, b"five")
    village.run(2)
    assert sorted(again.payloads) == [b"five", b"four"]
    assert not again.losses
    assert readers[source].payloads == [b"one"]
    for number in set(range(8)) - {source}:
        assert len(readers[number].payloads) == 5


def test_an_old_join_of_a_source_that_subscribes_by_now_costs_nothing() -> None:
    village, readers = a_village(8, *range(8), config=NARROW)
    source = a_leaf(village)
    (publisher,) = publishers(village, source)
    child, me = village.tree(source, "news"), village.world.machines[source].contact
    assert child is not None
    assert child.parent is not None
    above = child.parent.node_id
    parent = next(number for number in range(8) if village.world.machines[number].node_id == above)
    tree = village.tree(parent, "news")
    assert tree is not None
    village.act(parent, lambda peer: peer.topics.joins.adopt(Join(TOPIC, me, sends_only=True)))
    assert me.node_id in tree.leases.orphaned, "its lease goes on"
    village.publish(source, publisher, b"an event")
    village.run(0.005)
    have = child.have()
    assert have is not None
    village.run(2)
    assert not tree.leases.orphaned
    assert not tree.leases.children[me.node_id].sends_only
    assert all(reader.payloads == [b"an event"] for reader in readers)
    assert publisher.stable == 1


def test_a_subscriber_to_the_earliest_events_learns_which_of_each_stream_are_gone() -> None:
    village, _ = a_village(8, 0)
    numbers = [number for number in range(1, 8) if not rooted(village, number)][:2]
    sources = publishers(village, *numbers)
    for number, publisher in zip(numbers, sources, strict=True):
        village.publish(number, publisher, b"stable 1", b"stable 2")
    village.run(3)
    assert [publisher.stable for publisher in sources] == [2, 2]
    late = Reader()
    newcomer = next(n for n in range(1, 8) if n not in numbers and not rooted(village, n))
    village.subscribe(newcomer, "news", late, start="earliest")
    village.run(3)
    for number, publisher in zip(numbers, sources, strict=True):
        village.publish(number, publisher, b"new")
    village.run(3)
    assert late.payloads == [b"new", b"new"]
    lost = {(loss.publisher, loss.first, loss.last, loss.why) for loss in late.losses}
    assert lost == {(publisher.id, 0, 2, "start") for publisher in sources}


def test_a_source_that_subscribes_to_the_earliest_events_learns_what_it_keeps_no_more_itself() -> None:
    """It goes on publishing while it asks its parent, which knows of fewer events."""
    village, _ = a_village(4, 0, settings=Settings(admission="source", delivery="best_effort"))
    source = next(number for number in range(1, 4) if not rooted(village, number))
    (publisher,), late = publishers(village, source), Reader()
    village.publish(source, publisher, b"before")
    village.run(1)
    village.subscribe(source, "news", late, start="earliest")
    village.publish(source, publisher, b"while it asks")
    village.run(1)
    village.publish(source, publisher, b"after")
    village.run(1)
    assert late.payloads == [b"after"]
    assert [(loss.first, loss.last, loss.why) for loss in late.losses] == [(0, 2, "start")]


@pytest.mark.parametrize("delivery", ["reliable", "best_effort"])
def test_the_earliest_events_of_a_stream_come_or_are_reported_where_a_peer_is_ahead_of_its_parent(
    delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some datagrams to the parent are lost."""
    village, _ = a_village(10, *range(10), settings=Settings(admission="source", delivery=delivery), config=NARROW)
    parents = {number: tree.parent for number in range(10) if (tree := village.tree(number, "news")) is not None}
    numbers = {village.world.machines[number].contact: number for number in range(10)}
    source, above = next(
        (number, numbers[parent]) for number, parent in parents.items() if parent and parents[numbers[parent]]
    )
    (publisher,), late = publishers(village, source), Reader()
    parent = parents[above]
    assert parent is not None
    peer = village.peers[numbers[parent]]
    take = peer.bundle

    def bundle(sender: Contact, bundle: Bundle) -> None:
        if 20 <= bundle.envelope.first < 32:
            peer.host.release(sender.node_id, bundle.size)
        else:
            take(sender, bundle)

    monkeypatch.setattr(peer, "bundle", bundle)
    for number in range(60):
        if number == 30:
            village.subscribe(above, "news", late, start="earliest")
        village.publish(source, publisher, b"%d" % number)
        village.run(0.002)
    village.run(5)
    assert late.payloads == [b"%d" % number for number in range(60 - len(late.payloads), 60)]
    told = [sequence for loss in late.losses for sequence in range(loss.first, loss.last)]
    assert sorted(told) == [*range(60 - len(late.payloads))]


def test_a_subscriber_to_the_earliest_events_gets_what_its_parent_keeps_though_its_own_peer_is_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had to discard what its parent keeps, for a subscriber that is gone. Then the parent returns no credit."""
    village, _ = a_village(10, *range(10), settings=BY_SOURCE, config=NARROW)
    numbers = {village.world.machines[number].contact: number for number in range(10)}
    parents = {
        number: numbers[tree.parent]
        for number in range(10)
        if (tree := village.tree(number, "news")) is not None and tree.parent is not None
    }
    source, above = next((number, parent) for number, parent in parents.items() if parent in parents)
    top = parents[above]
    (publisher,), late = publishers(village, source), Reader()
    leaves = [number for number in parents if number not in parents.values() and parents[number] != above]
    village.kill(leaves[0], silently=True)
    village.publish(source, publisher, b"1", b"2", b"3")
    village.run(3)
    tree, peer = village.tree(above, "news"), village.peers[top]
    assert tree is not None
    shed(tree, village.peers[above].host.now(), 0, publisher.term)
    take, waiting = peer.bundle, list[tuple[Contact, Bundle]]()
    monkeypatch.setattr(peer, "bundle", lambda sender, bundle: waiting.append((sender, bundle)))
    village.publish(source, publisher, b"4")
    village.run(0.1)
    assert (len(waiting), tree.flow.front(publisher.term), tree.flow.kept_from(publisher.term)) == (1, 4, 3)
    village.subscribe(above, "news", late, start="earliest")
    village.run(0.5)
    monkeypatch.setattr(peer, "bundle", take)
    for sender, bundle in waiting:
        take(sender, bundle)
    village.run(5)
    assert (late.payloads, late.losses) == ([b"1", b"2", b"3", b"4"], [])


def test_a_best_effort_subscriber_did_not_lose_what_a_source_published_before_it_began() -> None:
    """The source is beyond a cut when it begins."""
    village, _ = a_village(6, 0, settings=Settings(admission="source", delivery="best_effort"))
    source, other = [number for number in range(1, 6) if not rooted(village, number)][:2]
    (publisher,) = publishers(village, source)
    cut, late = village.world.cut(partition([source])), Reader()
    village.publish(source, publisher, *[b"before"] * 5)
    village.run(20)
    village.subscribe(other, "news", late)
    village.run(20)
    village.publish(source, publisher, *[b"missed"] * 3)
    village.run(1)
    village.world.heal(cut)
    village.run(20)
    village.publish(source, publisher, b"came")
    village.run(5)
    assert late.payloads == [b"came"]
    assert [(loss.first, loss.last, loss.why) for loss in late.losses] == [(5, 8, "dropped")]


def test_a_source_says_once_how_old_missed_events_are_and_sends_none_to_a_best_effort_subscriber(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subscriber elsewhere takes nothing, so that the source keeps all it has published."""
    village, _ = a_village(6)
    source, other, stuck = [number for number in range(6) if not rooted(village, number)][:3]
    reader, came = Reader(), list[Bundle]()
    village.subscribe(other, "news", reader, delivery="best_effort")
    village.subscribe(stuck, "news", Reader(room_bytes=0))
    (publisher,) = publishers(village, source)
    peer = village.peers[other]
    take, lose = peer.bundle, True

    def bundle(sender: Contact, bundle: Bundle) -> None:
        came.append(bundle)
        if lose:
            peer.host.release(sender.node_id, bundle.size)
        else:
            take(sender, bundle)

    monkeypatch.setattr(peer, "bundle", bundle)
    village.publish(source, publisher, *[b"missed"] * 5)
    village.run(0.2)
    lose = False
    village.publish(source, publisher, b"came")
    village.run(10)
    assert publisher.stable == 0
    assert reader.payloads == [b"came"]
    assert [(loss.first, loss.last, loss.why) for loss in reader.losses] == [(0, 5, "dropped")]
    assert len(came) == 3, "the lost bundle, the next one, and one repair"
    assert village.marks["asked_source"] == 1


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


def test_who_has_a_source_below_it_takes_back_that_its_stream_ended() -> None:
    state = SourceState()
    state.take_end(7, is_alive=False)
    assert state.end == 7
    state.take_end(7, is_alive=True)
    assert state.end is None, "the root does not know yet that the source is back"
    state.close(9)
    state.take_end(None, is_alive=True)
    assert state.end == 9, "the source said so itself"


def test_children_of_a_root_that_learns_that_sources_number_the_events_are_its_children_still() -> None:
    """As after a partition, on one side of which the topic was created, and on the other used by default settings."""
    village = Village(6)
    readers = [Reader() for _ in range(3)]
    for number, reader in enumerate(readers):
        village.subscribe(number, "news", reader)
    sources = publishers(village, 1, 4)
    village.publish(1, sources[0], b"by the root")
    village.run(3)
    root = next(number for number in range(6) if rooted(village, number))
    known = Descriptor("news", BY_SOURCE, version=1)
    village.act(root, lambda peer: peer.topics.known.learn(known))
    village.run(10)
    for number, publisher in zip((1, 4), sources, strict=True):
        village.publish(number, publisher, b"by %d" % number)
    village.run(5)
    for reader in readers:
        assert sorted(reader.payloads) == [b"by 1", b"by 4", b"by the root"]
    assert [publisher.stable for publisher in sources] == [2, 1]


def test_who_made_a_topic_one_of_sources_is_told_of_what_a_root_called_stable_beyond_a_partition() -> None:
    village, (near, far) = Village(6), (Reader(), Reader())
    cut = village.world.cut(lambda a, b: (a < 3) != (b < 3))
    village.act(0, lambda peer: peer.create("news", BY_SOURCE, lambda answer: None))
    village.run(3)
    village.subscribe(1, "news", near)
    village.subscribe(4, "news", far)
    (publisher,) = publishers(village, 5)
    for payload in (b"first", b"second"):
        village.publish(5, publisher, payload)
    village.run(40)
    assert publisher.stable == 2, "at those whom the root of that side knows"
    village.world.heal(cut)
    village.run(40)
    village.publish(5, publisher, b"by its source")
    village.run(5)
    assert publisher.term.of_source
    assert far.payloads == [b"first", b"second", b"by its source"]
    assert near.payloads == [b"by its source"]
    assert [(loss.publisher, loss.first, loss.last) for loss in near.losses] == [(publisher.id, 0, 2)]


@pytest.mark.parametrize("why", ["owner", "session"])
def test_a_root_takes_over_from_sources_where_the_other_side_of_a_partition_has_an_owner_or_a_session(why: str) -> None:
    village, (near, far) = Village(6), (Reader(), Reader())
    cut = village.world.cut(lambda a, b: (a < 3) != (b < 3))
    own = OWNER.own if why == "owner" else None
    village.act(0, lambda peer: peer.create("news", BY_SOURCE, lambda answer: None))
    village.act(5, lambda peer: peer.create("news", Settings(slow="wait"), lambda answer: None, own))
    village.run(3)
    if why == "session":
        village.act(5, lambda peer: peer.change("news", {"partition": "wait"}, lambda answer: None))
    village.subscribe(1, "news", near)
    village.subscribe(4, "news", far)
    (source,) = publishers(village, 2)
    for payload in (b"first", b"second"):
        village.publish(2, source, payload)
        village.run(1)
    assert source.term.of_source
    village.world.heal(cut)
    village.run(60)
    village.publish(2, source, b"by the root")
    village.run(5)
    assert not source.term.of_source
    assert source.stable == 3
    assert near.payloads == [b"first", b"second", b"by the root"]
    lost = sum(loss.last - loss.first for loss in far.losses)
    assert lost + len(far.payloads) == 3
    assert far.payloads[-1] == b"by the root"
    assert all(not tree.sources.states for number in range(6) if (tree := village.tree(number, "news")) is not None)


def test_a_peer_that_only_publishes_hears_no_farewell() -> None:
    """Its parent reckons with no lease that it holds: another peer has to be told."""
    village, _ = a_village(9, *range(6), config=NARROW)
    writers = publishers(village, 7, 8)
    for number, publisher in zip((7, 8), writers, strict=True):
        village.publish(number, publisher, b"event")
    village.run(3)
    answers: list[object] = []
    encode = village.world.encode
    village.world.encode = lambda message: (answers.append(message), encode(message))[1]
    for number in (7, 8):
        tree, to = village.tree(number, "news"), village.world.machines[number].contact
        assert tree is not None
        assert (tree.attached, tree.served) == (True, False)
        word = Farewell(tree.topic, True, (b"c" * 16,), (5,), (), 1)
        village.act(6, lambda peer, to=to, word=word: peer.host.send(to, word))
        village.run(0.5)
    assert [type(answer) for answer in answers if isinstance(answer, Refused | FarewellHeard)] == [Refused, Refused]
