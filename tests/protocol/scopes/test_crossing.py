"""Channels of scopes in the data path: an ordinary flow carries the campus example."""

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Envelope, Kind, Term
from quillcast.protocol.forwarding.channels import Channel, PeerSink
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.scopes.channels import Address
from quillcast.protocol.scopes.crossing import crossing
from quillcast.protocol.scopes.filters import AddTag, Every, Modulo
from quillcast.protocol.scopes.records import Pair, Record, decode, encode, originated
from tests.protocol.recording import PAUL, RecordingHost, block
from tests.protocol.scopes.network import beginning, peer
from tests.protocol.scopes.test_channels import T, channel
from tests.protocol.scopes.test_manager import T as CAMPUS_TOPIC
from tests.protocol.scopes.test_manager import campus

TERM = Term(1, b"x" * 16)
HERE = encode(originated(1, 1))


def bundle(index: int = 0, record: bytes = b"", topic: bytes = T) -> Bundle:
    return Bundle(Envelope(topic, Kind.DOWN, TERM, index, record=record, serial=index), [block(PAUL, index)])


def cross(order, given: Bundle) -> Bundle | None:
    return crossing(order, lambda topic: HERE, {})(given)


def test_a_bundle_that_is_published_here_gets_a_record_on_its_way_out() -> None:
    given = bundle()
    crossed = cross(channel(Address(peer("A").contact)), given)
    assert decode(crossed.envelope.record) == Record(1, (Pair(1, 2),))
    assert crossed.blocks[0] is given.blocks[0]
    assert given.envelope.record == b""


def test_a_bundle_of_another_origin_or_topic_does_not_cross() -> None:
    order = channel(Address(peer("A").contact))
    assert cross(order, bundle(record=encode(Record(1, (Pair(3, 1),))))) is None
    assert cross(order, bundle(topic=b"u" * 16)) is None


def test_the_filter_decides_too_and_may_tag() -> None:
    order = channel(Address(peer("A").contact), filter_=Every((Modulo(2, (1,)), AddTag("odd"))))
    assert cross(order, bundle(0)) is None
    assert cross(order, bundle(1)).envelope.tags == b"odd"


def test_flows_carry_the_campus_example() -> None:
    network = campus()
    hosts, tables = {}, {}
    for id_, controller in network.peers.items():
        host = hosts[id_] = RecordingHost()
        table = tables[id_] = ForwardingTable(host, 1 << 20)
        flow = table.open(Flow(CAMPUS_TOPIC, table.budget))
        flow.begin(TERM, 0, until=60.0)
        for order in controller.channels:
            filter_ = crossing(order, lambda envelope, at=controller: beginning(at, envelope.topic), {})
            flow.open(Channel(PeerSink(host, order.spec.peer), 0, filter_))
    seen = list[bytes]()
    moving = [(peer("A").id, bundle(index, topic=CAMPUS_TOPIC)) for index in range(2)]
    while moving:
        at, given = moving.pop()
        assert network.peers[at].admits(CAMPUS_TOPIC, decode(given.envelope.record))
        assert tables[at].move(tables[at].flows[CAMPUS_TOPIC], given)
        seen.append(at[:1])
        moving += [(to.node_id, carried) for to, carried in hosts[at].carried]
        hosts[at].carried.clear()
    assert sorted(seen) == [b"A", b"A", b"B", b"B", b"C", b"C", b"D", b"D", b"E", b"E"]


def test_records_that_are_malformed_or_say_elsewhere_are_counted_and_not_admitted() -> None:
    c = campus().peers[peer("C").id]
    assert c.read(b"\0\1") is None
    assert not c.admits(CAMPUS_TOPIC, Record(1, (Pair(1, 2), Pair(1, 9))))
    assert (c.malformed, c.misrouted) == (1, 1)
    assert c.admits(b"another".ljust(16), Record(1, (Pair(1, 2), Pair(1, 9))))
