"""What the peers on a bundle's way told, as one status."""

from quillcast.core.messages import Contact
from quillcast.core.status.base import PeerContact
from quillcast.live.node.tracestatus import is_traced, trace_status
from quillcast.protocol.scopes.records import Pair, Record, encode
from quillcast.protocol.topics.query_messages import Branch, Hop, Lease, WayOut
from tests.protocol.recording import ALICE, BOB, CAROL, FIRST, SECOND, WEATHER

DAVE = Contact(b"d" * 16, "127.0.0.1:4")


def hop(at_ms: int, *ways: WayOut, **more: object) -> Hop:
    fields = {"topic": WEATHER, "number": 1, "term": FIRST, "first": 5, "count": 2, "size_bytes": 90, **more}
    return Hop(at_ns=at_ms * 10**6, published_ns=0, ways=ways, **fields)  # type: ignore[arg-type]


def branch(parent: bytes, *children: Contact, root: bool = False, leases: tuple[Lease, ...] = ()) -> Branch:
    return Branch(WEATHER, 1, parent, list(children), 1, FIRST, 7, root=root, leases=leases)


BRANCHES = {
    ALICE.node_id: branch(b"", BOB, CAROL, root=True),
    BOB.node_id: branch(ALICE.node_id),
    CAROL.node_id: branch(ALICE.node_id),
}
BEGUN = (ALICE, hop(3, WayOut(BOB), WayOut(CAROL, "its filter", "1-3", "repairs only"), publisher=DAVE))
AT_BOB = (BOB, hop(4, WayOut(CAROL, record=encode(Record(1, (Pair(1, 3),)))), sender=ALICE.node_id, taken=1))
AT_CAROL = (CAROL, hop(6, sender=BOB.node_id, taken=1, record=encode(Record(1, (Pair(1, 3),)))))


def test_a_bundle_is_traced_when_all_have_told_of_it() -> None:
    assert not is_traced([BEGUN, AT_BOB], BRANCHES)
    assert not is_traced([BEGUN, AT_BOB, (CAROL, hop(6, sender=BOB.node_id, waiting=1))], BRANCHES)
    assert not is_traced([BEGUN, AT_BOB, AT_CAROL], {ALICE.node_id: BRANCHES[ALICE.node_id]})
    told = [AT_CAROL, BEGUN, AT_BOB]
    assert is_traced(told, BRANCHES)
    trace = trace_status("weather", told, BRANCHES, {})
    assert (trace.known, trace.complete, trace.first, trace.events) == (True, True, 5, 2)
    assert trace.publisher == PeerContact(DAVE.node_id.hex(), DAVE.address)
    assert [(hop.address, hop.at_ms) for hop in trace.hops] == [
        (ALICE.address, 3),
        (BOB.address, 4),
        (CAROL.address, 6),
    ]
    assert [(way.why, way.filter, way.record) for way in (*trace.hops[0].ways, *trace.hops[1].ways)] == [
        ("", "", ""), ("its filter", "repairs only", ""), ("", "", "1-3"),
    ]  # fmt: skip
    assert trace.hops[2].record == "1-3"


def test_who_is_silent_and_who_is_not_reached_is_named() -> None:
    trace = trace_status("weather", [BEGUN], BRANCHES | {ALICE.node_id: branch(b"", BOB, DAVE, root=True)}, {})
    assert not trace.complete
    assert [peer.node_id for peer in trace.unresponsive] == [BOB.node_id.hex(), DAVE.node_id.hex()]
    assert [peer.node_id for peer in trace.not_reached] == [CAROL.node_id.hex()]


def test_of_several_bundles_the_first_that_is_told_of_is_followed() -> None:
    other = (DAVE, hop(1, term=SECOND))
    assert [hop.address for hop in trace_status("weather", [BEGUN, other], BRANCHES, {}).hops] == [ALICE.address]


def test_without_a_bundle_it_says_whether_there_is_a_topic_and_who_is_silent() -> None:
    none = trace_status("weather", [], BRANCHES | {ALICE.node_id: branch(b"", DAVE, root=True)}, {})
    assert (none.known, none.complete, none.hops) == (True, False, ())
    assert none.unresponsive == (PeerContact(DAVE.node_id.hex(), DAVE.address),)
    assert trace_status("weather", [], {}, {}).known
    unknown = Branch(WEATHER, 1, b"", [], 0, FIRST._replace(counter=0, node=bytes(16)), 0)
    assert is_traced([], {BOB.node_id: unknown})
    assert not trace_status("weather", [], {BOB.node_id: unknown}, {}).known
