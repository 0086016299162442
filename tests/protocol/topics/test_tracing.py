"""One bundle is followed through all peers of a topic, and nothing else changes."""

from collections.abc import Collection

import msgspec

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import DOWN, Envelope
from quillcast.core.messages import Contact
from quillcast.protocol.config import Config
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.query_messages import Hop, Survey
from quillcast.protocol.topics.tracing import (
    HOPS_MAX,
    MARK,
    MARKS_MAX,
    WAIT_S_MAX,
    Follower,
    MarksDue,
    Tracing,
    followers,
)  # fmt: skip
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, PAUL, WEATHER, RecordingHost, block
from tests.protocol.topics.test_sources import a_village, publishers
from tests.protocol.topics.village import Reader, Village

NAME = "sport/tennis"
DEEP = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))


def ask(village: Village, number: int, name: str = NAME, seconds: float = 10.0) -> Collection[tuple[Contact, Hop]]:
    """Ask for a trace; what peers tell gathers in what this returns."""
    asked = village.act(number, lambda peer: peer.topics.inspection.survey(name, seconds))
    village.run(1)
    return village.peers[number].topics.tracing.hops[asked].values()


def a_tree() -> Village:
    village = Village(12, config=DEEP)
    for number in range(4, 12):
        village.subscribe(number, NAME, Reader())
    village.run(10)
    return village


def no_marks(village: Village) -> bool:
    return not any(village.peers[number].topics.tracing.marks for number in village.alive())


def test_every_peer_of_the_tree_tells_of_the_next_bundle_and_of_no_other() -> None:
    village = a_tree()
    publisher = village.publisher(4, NAME)
    village.run(1)
    village.publish(4, publisher, b"before")
    village.run(1)
    for asker in (0, 4, village.root(NAME)):
        told = ask(village, asker)
        assert not told
        for _ in range(3):
            village.publish(4, publisher, b"event")
            village.run(1)
        [begun] = [hop for _, hop in told if not hop.sender]
        assert begun.publisher == village.world.machines[4].contact
        assert {(hop.term, hop.first) for _, hop in told} == {(begun.term, begun.first)}
        assert sum(hop.taken for _, hop in told) == 8
        went = [(contact.node_id, way.to.node_id) for contact, hop in told for way in hop.ways]
        assert sorted(went) == sorted((hop.sender, contact.node_id) for contact, hop in told if hop.sender)
        at_ns = {contact.node_id: hop.at_ns for contact, hop in told}
        assert len(at_ns) == len(told)
        village.run(10)
        assert no_marks(village)


def test_several_ask_at_once_and_each_is_told() -> None:
    village = a_tree()
    publisher = village.publisher(4, NAME)
    village.run(1)
    first, second = ask(village, 0), ask(village, 5)
    village.publish(4, publisher, b"event")
    village.run(1)
    assert len(first) == len(second) > 8


def test_a_peer_that_becomes_root_meanwhile_marks_its_first_bundle() -> None:
    village = a_tree()
    topic = village.peers[0].topics.known.describe(NAME).topic
    told, root = ask(village, 0), village.root(NAME)
    newcomer = village.add(topic).number  # nobody is closer to the topic
    village.run(5)
    assert village.root(NAME) == newcomer != root
    publisher = village.publisher(newcomer, NAME)
    village.publish(newcomer, publisher, b"event")
    village.run(1)
    [begun] = [contact for contact, hop in told if not hop.sender]
    assert begun == village.world.machines[newcomer].contact
    assert sum(hop.taken for _, hop in told) == 8


def test_nobody_is_told_after_the_time_that_the_asker_waits() -> None:
    village = a_tree()
    publisher = village.publisher(4, NAME)
    village.run(1)
    told = ask(village, 0, seconds=5.0)
    village.run(10)
    assert no_marks(village)
    village.publish(4, publisher, b"event")
    village.run(1)
    assert not told


def test_marks_do_not_wait_for_ever_whatever_the_asker_says() -> None:
    village = Village(2)
    village.subscribe(1, NAME, Reader())
    village.run(5)
    ask(village, 0, seconds=float("inf"))
    assert not no_marks(village)
    village.run(WAIT_S_MAX + 60)
    assert no_marks(village)


def test_one_timer_serves_all_marks_however_many_are_asked_for_and_taken() -> None:
    host = RecordingHost()
    tracing = Tracing(host, ForwardingTable(host, 1 << 20), {}, Dispatch())
    for number in range(100):
        tracing.ask(Survey(WEATHER, BOB, number, trace_s=3600.0))
        bundle = Bundle(Envelope(WEATHER, DOWN, FIRST, number), (block(PAUL, number),))
        [marked] = tracing.marked([bundle])
        assert [follower.number for follower in followers(marked.envelope.tags)] == [number]
    assert [timer for timer, _ in host.timers] == [MarksDue()]


def test_a_bundle_takes_no_mark_whose_asker_waits_no_longer() -> None:
    host = RecordingHost()
    tracing = Tracing(host, ForwardingTable(host, 1 << 20), {}, Dispatch())
    tracing.ask(Survey(WEATHER, BOB, 1, trace_s=5.0))
    tracing.ask(Survey(WEATHER, CAROL, 2, trace_s=50.0))
    host.time = 6.0
    [marked] = tracing.marked([Bundle(Envelope(WEATHER, DOWN, FIRST, 0), (block(PAUL, 0),))])
    assert [follower.asker for follower in followers(marked.envelope.tags)] == [CAROL]


def test_what_is_told_of_a_trace_is_bounded() -> None:
    host, dispatch = RecordingHost(), Dispatch()
    tracing = Tracing(host, ForwardingTable(host, 1 << 20), {}, dispatch)
    tracing.hops[7] = {}
    for first in range(HOPS_MAX + 10):
        dispatch.message(BOB, Hop(WEATHER, 7, FIRST, first, 1, 1, 0, 0, ()))
    dispatch.message(BOB, Hop(WEATHER, 7, FIRST, 0, 1, 1, 5, 0, ()))
    dispatch.message(BOB, Hop(WEATHER, 8, FIRST, 0, 1, 1, 0, 0, ()))
    assert tracing.hops.keys() == {7}
    assert len(tracing.hops[7]) == HOPS_MAX
    assert next(iter(tracing.hops[7].values()))[1].at_ns == 5, "it was told again"


def test_a_subscriber_without_room_is_told_to_wait() -> None:
    village = Village(4)
    village.subscribe(2, NAME, Reader(room_bytes=0))
    village.subscribe(2, NAME, Reader())
    village.run(5)
    publisher = village.publisher(1, NAME)
    village.run(1)
    told = ask(village, 0)
    village.publish(1, publisher, b"event")
    village.run(1)
    [hop] = [hop for contact, hop in told if contact.node_id == village.world.machines[2].node_id]
    assert (hop.taken, hop.waiting) == (1, 1)


def test_what_a_subscription_takes_later_is_told_later() -> None:
    village = Village(3)
    reader = Reader(room_bytes=0)
    subscription = village.subscribe(2, NAME, reader)
    village.run(5)
    publisher = village.publisher(1, NAME)
    village.run(1)
    told = ask(village, 0)
    village.publish(1, publisher, b"event")
    village.run(0.2)
    before = list(told)
    reader.room_bytes = 1 << 20
    village.act(2, lambda peer: peer.drained(subscription))
    village.run(1)
    assert len(told) == len(before)
    [(earlier, later)] = [(was[1], now[1]) for was, now in zip(before, told, strict=True) if was != now]
    assert (earlier.taken, earlier.waiting, later.taken, later.waiting) == (0, 1, 1, 0)
    assert (earlier.at_ns, earlier.ways) == (later.at_ns, later.ways)


def test_a_bundle_of_a_source_is_followed_up_and_down_the_tree() -> None:
    village, _ = a_village(12, *range(6), config=DEEP)
    (publisher,) = publishers(village, 9)
    told = ask(village, 1, "news")
    village.publish(9, publisher, b"event")
    village.run(1)
    [(contact, begun)] = [(contact, hop) for contact, hop in told if not hop.sender]
    assert contact == begun.publisher == village.world.machines[9].contact
    assert sum(hop.taken for _, hop in told) == 6
    back = [way for _, hop in told for way in hop.ways if way.why]
    assert {way.why for way in back} <= {"came from there"}
    assert village.root("news") in {m.number for m in village.world.machines for to, _ in told if m.contact == to}


def test_marks_are_few_and_what_is_no_mark_says_nothing() -> None:
    follower = Follower(ALICE, 7)
    assert list(followers(b",".join((tag(follower), b"half", MARK + b"zz", MARK + b"00", MARK, b"\xff")))) == [follower]
    assert len(list(followers(b",".join([tag(follower)] * 9)))) == MARKS_MAX


def test_where_a_bundle_is_dropped_the_reason_is_told() -> None:
    village = Village(2)
    here, there = (machine.contact for machine in village.world.machines)
    told = village.peers[0].topics.tracing.hops.setdefault(7, {}).values()
    bundle = Bundle(Envelope(WEATHER, DOWN, FIRST, 0, tags=tag(Follower(here, 7))), (block(PAUL, 0),))
    village.act(0, lambda peer: peer.host.carry(there, bundle))
    village.run(1)
    [(contact, hop)] = told
    assert (contact, hop.sender, hop.stopped, hop.ways) == (there, here.node_id, "no_flow", ())


def tag(follower: Follower) -> bytes:
    return MARK + msgspec.msgpack.encode(follower).hex().encode()
