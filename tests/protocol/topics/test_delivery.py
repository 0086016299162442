"""Delivery: starts, acknowledgements, retention, slowness, as docs/delivery.md lays down; on whole simulated peers."""

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.errors import EventTooLarge, LocalError
from quillcast.core.trace import Dropped, Named, Subscribed
from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.inspection import Walk
from quillcast.protocol.topics.messages import Join
from quillcast.protocol.topics.publishing.publisher import Publisher
from quillcast.sim.topology import Constant
from tests.protocol.recording import is_stable
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
TOPIC = described(NAME).topic


def other_than(village: Village, *peers: int) -> int:
    return next(peer for peer in village.alive() if peer not in peers)


def test_a_subscription_begins_at_the_frontier_and_gets_all_that_follows() -> None:
    village = Village(6)
    publisher = village.publisher(1, NAME)
    village.run(1)
    village.publish(1, publisher, b"before")
    village.run(1)
    reader = Reader()
    village.subscribe(2, NAME, reader)
    village.run(1)
    assert reader.start is not None
    assert reader.start.index == 1
    village.publish(1, publisher, b"after")
    village.run(1)
    assert reader.payloads == [b"after"]


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_first_event_of_a_new_topic_is_stable_within_a_second_for_three_subscribers(seed: int) -> None:
    """By the settings that programs get: nothing waits for orphans of a root that never was."""
    village = Village(4, seed=seed)
    village.act(0, lambda peer: peer.create("created", Settings(slow="wait"), lambda _: None))
    village.run(1)
    for topic in ("created", "first use"):
        for peer in range(3):
            village.subscribe(peer, topic, Reader())
        village.run(1)
        publisher = village.publisher(3, topic)
        village.publish(3, publisher, b"event")
        village.run(1)
        assert publisher.stable == 1
    assert village.peers[0].holders("created") >= 3, "most of four, or all"


def test_earliest_begins_at_what_the_buffer_still_holds() -> None:
    village = Village(8)
    stuck = Reader(room_bytes=0)  # has a lease, takes nothing: all must be kept for it
    village.subscribe(2, NAME, stuck)
    publisher = village.publisher(1, NAME)
    village.run(5)
    village.publish(1, publisher, b"a", b"b")
    village.run(5)
    readers = {peer: Reader() for peer in (2, 3, 4, village.root(NAME))}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader, start="earliest")
    village.run(2)
    village.publish(1, publisher, b"c")
    village.run(2)
    assert all(reader.payloads == [b"a", b"b", b"c"] for reader in readers.values())


def test_a_subscriber_to_the_earliest_events_learns_which_are_gone() -> None:
    village = Village(8)
    village.subscribe(2, NAME, Reader())
    publisher = village.publisher(1, NAME)
    village.run(5)
    for payload in (b"a", b"b", b"c"):
        village.publish(1, publisher, payload)
    village.run(5)
    assert publisher.stable == 3
    stuck = Reader(room_bytes=0)
    village.subscribe(3, NAME, stuck)
    village.run(2)
    village.publish(1, publisher, b"d", b"e")
    village.run(2)
    readers = {peer: Reader() for peer in (2, 3, 4, 5, village.root(NAME))}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader, start="earliest")
    village.run(2)
    for peer, reader in readers.items():
        assert reader.payloads == [b"d", b"e"], peer
        (loss,) = reader.losses
        assert (loss.first, loss.last, loss.why) == (0, 3, "start"), peer
        assert loss.publisher in (publisher.id, b""), "a peer that came later itself does not know whose they were"
    assert readers[village.root(NAME)].losses[0].publisher == readers[4].losses[0].publisher == publisher.id
    assert stuck.losses == []


@pytest.mark.parametrize("seconds", [0, 3, 10])
@pytest.mark.parametrize("admission", ["root", "source"])
def test_earliest_begins_at_what_the_parent_holds_also_beside_another_subscription(
    seconds: float, admission: str
) -> None:
    """Its peer has asked for a place before, or is in the tree and never had these events, or has discarded them."""
    village = Village(6)
    village.act(0, lambda peer: peer.create(NAME, Settings(admission=admission), lambda answer: None))
    village.run(2)
    writer = other_than(village, village.root(NAME))
    peer = other_than(village, village.root(NAME), writer)
    village.subscribe(writer, NAME, Reader(room_bytes=0))  # has a lease, takes nothing: all must be kept for it
    publisher = village.publisher(writer, NAME)
    village.run(5)
    beside, earliest = Reader(), Reader()
    village.world.at(village.world.now + 10 - seconds, lambda _: village.subscribe(peer, NAME, beside), None)
    village.run(5)
    village.publish(writer, publisher, b"a", b"b")
    village.run(5)
    village.subscribe(peer, NAME, earliest, start="earliest")
    village.run(5)
    village.publish(writer, publisher, b"c")
    village.run(5)
    assert (earliest.payloads, earliest.losses) == ([b"a", b"b", b"c"], [])
    assert (beside.payloads, beside.losses) == ([b"a", b"b", b"c"] if seconds == 10 else [b"c"], [])


def test_a_returning_subscriber_learns_which_events_of_earlier_terms_are_gone() -> None:
    village = Village(8)
    village.subscribe(2, NAME, Reader())
    publisher = village.publisher(1, NAME)
    village.run(5)
    village.publish(1, publisher, b"a", b"b")
    village.run(5)
    stuck = Reader(room_bytes=0)
    village.subscribe(3, NAME, stuck)
    village.run(2)
    village.publish(1, publisher, b"c", b"d")
    village.run(1)
    village.kill(village.root(NAME))
    village.run(10)
    reader = Reader()
    village.subscribe(next(n for n in village.alive() if n > 3), NAME, reader, start="earliest")
    village.run(5)
    assert reader.payloads == [b"c", b"d"], "the next root admitted again what was not stable"
    assert sum(loss.count for loss in reader.losses if loss.why == "start") == 2
    assert all((loss.publisher, loss.first, loss.last) in ((publisher.id, 0, 2), (b"", 0, 2)) for loss in reader.losses)


def test_a_subscriber_that_misses_nothing_gets_no_loss_report() -> None:
    village = Village(6)
    first, now = Reader(), Reader()
    village.subscribe(2, NAME, first, start="earliest")
    publisher = village.publisher(1, NAME)
    village.run(2)
    village.publish(1, publisher, b"a", b"b")
    village.run(5)
    village.subscribe(3, NAME, now)
    village.run(2)
    village.publish(1, publisher, b"c")
    village.run(2)
    assert (first.payloads, first.losses) == ([b"a", b"b", b"c"], [])
    assert (now.payloads, now.losses) == ([b"c"], [])


def test_admitted_means_the_root_and_stable_means_every_subscriber() -> None:
    village = Village(8)
    readers = {peer: Reader() for peer in range(2, 8)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(10)
    publisher = village.publisher(0, NAME)
    village.run(1)
    village.publish(0, publisher, b"event")
    village.run(3)
    assert publisher.admitted == 1
    assert publisher.stable == 1
    assert publisher.retained_bytes == 0
    assert all(reader.payloads == [b"event"] for reader in readers.values())


def with_six_subscribers() -> tuple[Village, Publisher, int]:
    """A village, one publisher in it, and a subscriber's peer that is not the root."""
    village = Village(8)
    for peer in range(2, 8):
        village.subscribe(peer, NAME, Reader())
    village.run(10)
    publisher = village.publisher(0, NAME)
    village.run(1)
    root = village.root(NAME)
    return village, publisher, next(peer for peer in range(2, 8) if peer != root)


def test_stability_waits_for_a_silent_lease_and_names_it() -> None:
    village, publisher, silent = with_six_subscribers()
    host = village.world.machines[silent].host
    assert host is not None
    host.pause()
    village.publish(0, publisher, b"event")
    village.run(1)
    assert (publisher.admitted, publisher.stable) == (1, 0)
    walk = who_lags(village, 0, publisher)
    assert walk.unresponsive == [village.world.machines[silent].contact]
    assert (walk.behind, walk.orphaned_leases, walk.hold_s) == ([], {}, 0.0)
    village.run(10)
    walk = who_lags(village, 0, publisher)
    assert list(walk.orphaned_leases) == [village.world.machines[silent].node_id], "its lease goes on"
    assert 10 < walk.orphaned_leases[village.world.machines[silent].node_id] < 30
    assert (walk.behind, walk.unresponsive) == ([], [])
    village.run(30)  # the lease ends
    assert publisher.stable == 1


@pytest.mark.parametrize("after_s", [0, 20])
def test_a_dead_subscriber_holds_nothing_back_even_if_it_was_lost_before(after_s: float) -> None:
    village, publisher, dead = with_six_subscribers()
    village.kill(dead, silently=True)
    village.publish(0, publisher, b"event")
    village.run(after_s)
    assert publisher.stable == 0
    village.tell_of_death(dead)
    village.run(1)
    assert publisher.stable == 1


def who_lags(village: Village, peer: int, publisher: Publisher, sequence: int = 1) -> Walk:
    """The peers that hold up events before a sequence, as answered within a second."""
    inspection = village.peers[peer].topics.inspection
    number = village.act(peer, lambda _: inspection.who_lags(publisher, sequence))
    village.run(1)
    return inspection.walks.pop(number)


def test_a_peer_that_has_the_event_is_not_named_even_if_its_parent_does_not_know() -> None:
    village = Village(6)
    readers = {peer: Reader() for peer in range(1, 6)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(5)
    publisher = village.publisher(0, NAME)
    village.run(1)
    root = village.tree(village.root(NAME), NAME)
    assert root is not None
    village.publish(0, publisher, b"event")
    village.run(3)
    for child in root.leases.children.values():
        child.acknowledged = 0  # as if their word was still on its way
    walk = who_lags(village, 0, publisher)
    assert walk.answered.keys() >= root.leases.children.keys()
    assert (walk.behind, walk.unresponsive, walk.orphaned_leases) == ([], [], {})


def test_a_slow_subscriber_and_a_root_that_holds_stability_back_are_distinguished() -> None:
    village = Village(6)
    for peer in range(1, 6):
        village.subscribe(peer, NAME, Reader())
    village.run(5)
    old = village.root(NAME)
    writer, slow, *_ = [peer for peer in range(6) if peer != old]
    stuck = Reader(room_bytes=0)
    village.subscribe(slow, NAME, stuck)
    publisher = village.publisher(writer, NAME)
    village.publish(writer, publisher, b"1")
    village.run(3)
    walk = who_lags(village, writer, publisher)
    assert walk.behind == [village.world.machines[slow].contact]
    assert (walk.unresponsive, walk.hold_s) == ([], 0.0)
    village.kill(old)
    village.run(10)
    walk = who_lags(village, writer, publisher)
    assert walk.root.node_id == village.world.machines[village.root(NAME)].node_id
    assert 15 < walk.hold_s < 25
    assert walk.hold is not None
    assert not walk.hold.paused
    assert walk.hold.former.is_of(village.world.machines[old].node_id)
    assert 5 < walk.hold.began_s <= 10


def test_events_that_a_publisher_dropped_before_they_were_stable_are_never_called_stable() -> None:
    """A new root takes the publisher's floor for where to begin: it says nothing of what is stable."""
    village = Village(6, config=Config(topics=TopicConfig(retain_s=45.0)))
    reader = Reader()
    old = next(peer for peer in range(6) if village.peers[peer].overlay.is_closest(TOPIC))
    writer, slow, *_ = (peer for peer in range(6) if peer != old)
    subscription = village.subscribe(slow, NAME, reader)
    village.run(5)
    assert village.root(NAME) == old
    publisher = village.publisher(writer, NAME)
    village.publish(writer, publisher, b"held by all")
    village.run(3)
    assert publisher.stable == 1
    reader.room_bytes = 0
    village.publish(writer, publisher, b"dropped")
    village.run(50)
    village.publish(writer, publisher, b"kept")
    village.run(1)
    assert publisher.dropped.ranges() == [(1, 2)]
    assert (publisher.stable, publisher.unsettled) == (1, 1)
    village.kill(old)
    village.run(5)
    assert (publisher.admitted, publisher.stable) == (3, 1)
    reader.room_bytes = 1 << 20
    village.act(slow, lambda peer: peer.drained(subscription))
    village.run(45)
    assert publisher.stable == 3
    assert [is_stable(publisher, sequence) for sequence in range(4)] == [True, False, True, False]
    assert publisher.unsettled == 0


def test_an_event_over_the_limit_is_refused_at_the_publisher_and_loses_nothing() -> None:
    village = Village(4)
    reader = Reader()
    village.subscribe(2, NAME, reader)
    publisher = village.publisher(1, NAME)
    village.run(2)
    with pytest.raises(EventTooLarge, match="1048577 bytes is over the limit of 1048576"):
        village.publish(1, publisher, b"x" * ((1 << 20) + 1))
    village.publish(1, publisher, b"fits")
    village.run(1)
    assert reader.payloads == [b"fits"]


def test_settings_that_do_not_exist_are_refused_with_those_that_do() -> None:
    with pytest.raises(LocalError, match="use one of: cut, wait"):
        Settings(slow="drop").validate()


def small_buffers(budget_bytes: int = 64 * 1024) -> Config:
    return Config(topics=TopicConfig(budget_bytes=budget_bytes, window_bytes=32 * 1024, retain_bytes=64 * 1024))


def flood(village: Village, writer: int, seconds: float, publisher) -> int:
    """Publish 1 kB events as fast as the publisher has room for; how many."""
    before = publisher.next
    for _ in range(int(seconds / 0.02)):
        while publisher.room() > 0:
            village.publish(writer, publisher, b"%09d" % publisher.next + b"x" * 1000)
        village.run(0.02)
    return publisher.next - before


class Slowness:
    """A network with small buffers, a publisher that writes all it can, and two subscribers, of which one is stuck."""

    def __init__(self, settings: Settings | None = None, window_bytes: int = 32 * 1024) -> None:
        self.village = village = Village(5, config=small_buffers(), window_bytes=window_bytes)
        if settings is not None:
            village.act(1, lambda peer: peer.create(NAME, settings, lambda answer: None))
            village.run(2)
        self.good, self.stuck = Reader(), Reader()
        village.subscribe(2, NAME, self.good)
        village.subscribe(3, NAME, self.stuck)
        village.run(10)
        self.writer = other_than(village, 2, 3, village.root(NAME))
        self.publisher = village.publisher(self.writer, NAME)
        village.run(1)
        self.stuck.room_bytes = 0

    def flood(self, seconds: float) -> int:
        return flood(self.village, self.writer, seconds, self.publisher)

    def go_on(self) -> None:
        """The stuck subscriber takes events again."""
        self.stuck.room_bytes = 1 << 20
        subscription = next(s for s in self.village.peers[3].topics.subscribing.all() if s.subscriber is self.stuck)
        self.village.act(3, lambda peer: peer.drained(subscription))


def test_a_subscriber_that_cannot_keep_up_is_cut_and_learns_which_positions_it_lost() -> None:
    slowness = Slowness()
    good, stuck = slowness.good, slowness.stuck
    count = slowness.flood(20)
    slowness.go_on()
    slowness.village.run(60)
    assert good.payloads == sorted(good.payloads)
    assert len(good.payloads) == count, "siblings never wait for long"
    told = sum(last - first for _, first, last, why in stuck.gone)
    assert told > 0
    assert len(stuck.payloads) + told == count
    assert stuck.payloads == sorted(set(stuck.payloads))


def test_a_topic_that_waits_blocks_its_publishers_and_loses_nothing() -> None:
    slowness = Slowness(Settings(slow="wait"))
    village, publisher = slowness.village, slowness.publisher
    slowness.flood(15)
    held = publisher.next
    slowness.flood(5)
    assert publisher.next - held < 40, "the publisher is held back while a lease lags"
    used = max(peer.table.budget.used_bytes for peer in village.peers.values())
    assert used < 200 * 1024, "buffers stay near their budget"
    slowness.go_on()
    slowness.flood(2)
    village.run(40)
    assert publisher.next > held
    assert not slowness.stuck.gone
    assert len(slowness.stuck.payloads) == len(slowness.good.payloads) == publisher.next


def test_a_topic_that_waits_fills_half_of_its_roots_buffers_and_holds_up_no_other_topic() -> None:
    """Its publisher is held back before the budget is used up (docs/delivery.md, *Slowness*)."""
    budget_bytes, window_bytes = 256 * 1024, 16 * 1024
    config = Config(topics=TopicConfig(budget_bytes=budget_bytes, retain_bytes=1 << 20, window_bytes=32 * 1024))
    village = Village(6, config=config, window_bytes=window_bytes)
    village.act(1, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda answer: None))
    village.run(2)
    root = village.root(NAME)
    names = [f"other/{number}" for number in range(100)]
    other = next(name for name in names if village.peers[root].overlay.is_closest(described(name).topic))
    stuck, good = Reader(), Reader()
    reader, writer, busy, audience, *_ = [peer for peer in range(6) if peer != root]
    village.subscribe(reader, NAME, stuck)
    village.subscribe(audience, other, good)
    village.run(5)
    slow, quick = village.publisher(writer, NAME), village.publisher(busy, other)
    village.run(1)
    assert village.root(other) == root
    stuck.room_bytes = 0
    flood(village, writer, 10, slow)
    held = slow.next
    flood(village, writer, 5, slow)
    assert slow.next == held, "its publisher waits"
    budget = village.peers[root].table.budget
    assert budget_bytes // 2 < budget.used_bytes < budget_bytes // 2 + 2 * window_bytes
    assert flood(village, busy, 5, quick) > 1000
    village.run(1)
    assert len(good.payloads) == quick.next
    stuck.room_bytes = 1 << 20
    for subscription in village.peers[reader].topics.subscribing.all():
        village.act(reader, lambda peer, s=subscription: peer.drained(s))
    flood(village, writer, 2, slow)
    village.run(20)
    assert slow.next > held
    assert len(stuck.payloads) == slow.next
    assert not stuck.gone


def test_a_publisher_that_is_held_back_leaves_half_of_its_link_to_what_goes_down_the_trees() -> None:
    """Credit is a link's, not a topic's: what a root holds back of one topic must not stop the others."""
    config = Config(topics=TopicConfig(budget_bytes=256 * 1024, retain_bytes=1 << 20, window_bytes=32 * 1024))
    village = Village(6, config=config, window_bytes=16 * 1024)
    village.act(1, lambda peer: peer.create(NAME, Settings(slow="wait"), lambda answer: None))
    village.run(2)
    root = village.root(NAME)
    writer, reader, *_ = [peer for peer in village.alive() if peer != root]
    names = [f"other/{number}" for number in range(200)]
    other = next(name for name in names if village.peers[writer].overlay.is_closest(described(name).topic))
    stuck, good = Reader(), Reader()
    village.subscribe(reader, NAME, stuck)
    village.subscribe(root, other, good)
    village.run(5)
    assert village.root(other) == writer
    throttled, down = village.publisher(writer, NAME), village.publisher(writer, other)
    village.run(1)
    stuck.room_bytes = 0
    flood(village, writer, 15, throttled)
    assert flood(village, writer, 5, down) > 1000
    village.run(1)
    assert len(good.payloads) == down.next
    stuck.room_bytes = 1 << 20
    held = throttled.next
    for subscription in village.peers[reader].topics.subscribing.all():
        village.act(reader, lambda peer, s=subscription: peer.drained(s))
    flood(village, writer, 20, throttled)
    village.run(20)
    assert throttled.next > held + 1000
    assert len(stuck.payloads) == throttled.next


def test_best_effort_keeps_nothing_repeats_nothing_and_counts_what_it_drops() -> None:
    slowness = Slowness(Settings(delivery="best_effort"), window_bytes=16 * 1024)
    village, writer, publisher = slowness.village, slowness.writer, slowness.publisher
    good, stuck = slowness.good, slowness.stuck
    count = slowness.flood(2)
    stuck.room_bytes = 1 << 20
    for _ in range(20):
        village.publish(writer, publisher, b"%09d" % publisher.next)
        village.run(0.1)
    village.run(2)
    assert len(good.payloads) == len(set(good.payloads)) <= count + 20
    assert stuck.payloads[-20:] == good.payloads[-20:]
    assert [record for _, _, record in village.world.journal.records if isinstance(record, Dropped)]
    assert all(peer.table.budget.used_bytes == 0 for peer in village.peers.values())


def test_a_best_effort_root_waits_for_nobody_who_missed_the_last_event() -> None:
    village = Village(3)
    village.act(1, lambda peer: peer.create(NAME, Settings(delivery="best_effort"), lambda answer: None))
    village.run(2)
    root = village.root(NAME)
    reader, writer = (peer for peer in range(3) if peer != root)
    notes = Reader()
    village.subscribe(reader, NAME, notes)
    publisher = village.publisher(writer, NAME)
    village.run(2)
    notes.room_bytes = 0
    cut = village.world.cut(lambda a, b: (a, b) == (root, reader))
    village.publish(writer, publisher, b"lost")
    village.run(1)
    village.world.heal(cut)
    tree = village.tree(root, NAME)
    assert tree is not None
    assert tree.root is not None
    assert tree.root.stable == tree.root.index == 1


class Stopping:
    """A forward handler that stops the bundles of one payload."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload

    def forward_handler(self, bundle: Bundle, *, is_root: bool) -> Bundle | None:
        return None if bundle.blocks[0].payloads() == [self.payload] else bundle

    def subscribe_handler(self, join: Join) -> list[Bundle]:
        return []

    def fault_handler(self, join: Join) -> Join:
        return join


@pytest.mark.parametrize("admission", ["root", "source"])
def test_a_slow_best_effort_subscription_to_a_reliable_topic_holds_nobody_back(admission: str) -> None:
    village = Village(6)
    village.act(1, lambda peer: peer.create(NAME, Settings(admission=admission, slow="wait"), lambda answer: None))
    village.run(2)
    slow, reader, publisher = Reader(room_bytes=0), Reader(), village.publisher(1, NAME)
    subscription = village.subscribe(2, NAME, slow, delivery="best_effort")
    village.subscribe(3, NAME, reader)
    village.run(5)
    village.publish(1, publisher, b"a", b"b")
    village.run(5)
    assert (reader.payloads, publisher.stable) == ([b"a", b"b"], 2)
    slow.room_bytes = 1 << 20
    village.act(2, lambda peer: peer.drained(subscription))
    village.publish(1, publisher, b"c")
    village.run(5)
    assert (slow.payloads, [(loss.first, loss.last, loss.why) for loss in slow.losses]) == ([b"c"], [(0, 2, "cut")])


def test_best_effort_continues_past_a_gap_even_if_the_topic_was_believed_reliable() -> None:
    village = Village(12)
    village.act(1, lambda peer: peer.create(NAME, Settings(delivery="best_effort"), lambda answer: None))
    village.run(2)
    unaware = [peer for peer in range(12) if village.unaware(peer, NAME)]
    readers = {peer: Reader() for peer in unaware}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    village.run(10)
    publisher = village.publisher(1, NAME)
    village.run(2)
    village.act(village.root(NAME), lambda peer: peer.handle(NAME, Stopping(b"stopped")))
    for payload in (b"a", b"stopped", b"c"):
        village.publish(1, publisher, payload)
        village.run(1)
    assert len(unaware) > 3
    for reader in readers.values():
        assert reader.payloads == [b"a", b"c"]
        assert [gone[1:] for gone in reader.gone] == [(1, 2, "dropped")]
    late = Reader()
    village.subscribe(village.root(NAME), NAME, late)
    village.publish(1, publisher, b"d")
    village.run(1)
    assert (late.payloads, late.gone) == ([b"d"], []), "what was dropped before its start is none of its matter"


def test_peers_record_the_known_guarantee_and_what_each_subscription_is_owed() -> None:
    village = Village(12)
    village.act(1, lambda peer: peer.create(NAME, Settings(), lambda answer: None))
    village.act(1, lambda peer: peer.create("news", Settings(delivery="best_effort"), lambda answer: None))
    village.run(2)
    unaware = next(peer for peer in range(12) if village.unaware(peer, "news"))
    for name, asked in ((NAME, None), (NAME, "best_effort"), ("news", None)):
        village.subscribe(unaware, name, Reader(), delivery=asked)
        village.run(2)
    noted = [record for _, peer, record in village.world.journal.records if peer == unaware]
    assert [r.delivery for r in noted if isinstance(r, Subscribed)] == ["reliable", "best_effort", "best_effort"]
    named = [(r.delivery, r.version) for r in noted if isinstance(r, Named) and r.name == "news"]
    assert named == [("reliable", 0), ("best_effort", 1)]


def test_acknowledgements_follow_the_bytes_that_moved_so_that_buffers_stay_small() -> None:
    village = Village(4, config=Config(topics=TopicConfig(report_s=30.0)), topology=Constant(0.001))
    village.subscribe(1, NAME, Reader(room_bytes=1 << 30))
    village.run(2)
    root = village.root(NAME)
    writer = next(peer for peer in village.alive() if peer not in (1, root))
    publisher = village.publisher(writer, NAME)
    village.run(2)
    kept = []
    for _ in range(64):  # 16 MiB within less than half a second
        village.publish(writer, publisher, bytes(1 << 18))
        village.run(0.005)
        kept.append(max(publisher.retained_bytes, *[kept_by(village, peer) for peer in village.alive()]))
    assert publisher.next == 64
    assert max(kept) <= village.config.topics.report_bytes + (1 << 20)


def test_buffers_that_the_last_bundle_fills_are_reported_full_at_once() -> None:
    """They take nothing more that would tell of it; the next report of its own accord is half a minute off."""
    limits = TopicConfig(
        report_s=30.0, report_bytes=1 << 18, budget_bytes=1 << 20, window_bytes=1 << 18, retain_bytes=8 << 20
    )
    village = Village(4, config=Config(topics=limits), topology=Constant(0.001), window_bytes=1 << 18)
    reader = Reader(room_bytes=1 << 30)
    village.subscribe(1, NAME, reader)
    village.run(2)
    writer = other_than(village, 1, village.root(NAME))
    publisher = village.publisher(writer, NAME)
    village.run(2)
    reader.room_bytes = 0
    for _ in range(160):
        if publisher.room() > 0:
            village.publish(writer, publisher, bytes(1 << 14))
        village.run(0.005)
    assert village.peers[1].table.budget.over
    held = publisher.next
    reader.room_bytes = 1 << 30
    [subscription] = village.peers[1].topics.subscribing.all()
    village.act(1, lambda peer: peer.drained(subscription))
    village.run(0.1)
    assert not village.peers[1].table.budget.over
    for _ in range(160):
        if publisher.room() > 0:
            village.publish(writer, publisher, bytes(1 << 14))
        village.run(0.005)
    village.run(0.1)
    assert publisher.next > held
    assert len(reader.payloads) == publisher.next


def kept_by(village: Village, peer: int) -> int:
    tree = village.tree(peer, NAME)
    return tree.flow.log.size_bytes if tree is not None else 0
