"""What a member makes of its orders: filters of the links and channels of its flows."""

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import RELIABLE_STREAMS, Envelope, Kind, Term
from quillcast.core.multicast import parse
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.forwarding.answers import holding
from quillcast.protocol.forwarding.flow import Flow
from quillcast.protocol.forwarding.ordered import ChannelDecision
from quillcast.protocol.forwarding.table import ForwardingTable
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.filters import Custom, Modulo
from quillcast.protocol.scopes.installing import Installing
from quillcast.protocol.scopes.messages import Role
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policy import WantedChannel
from quillcast.protocol.scopes.records import Pair, Record, decode, encode
from quillcast.protocol.scopes.state import Entering
from tests.protocol.recording import PAUL, RecordingHost, block
from tests.protocol.scopes.network import LEASE_S, Network, peer, scope, topic
from tests.protocol.scopes.test_crossing import bundle

T = topic("t")
NOT_INSTALLED = "there is no filter 'other'; install the package that has it on this machine"
GROUP = str(parse(IpMulticast().mechanism)._replace(of=scope("X").id.hex()[:16]))
VERSION = 1  # of the channels of a ring or mesh whose members came one after the other


class Striped(Star):
    """A star that sends each other bundle only."""

    def channels(self, group, present, round_trips):
        return tuple(each._replace(filter=Modulo(2, (1,))) for each in super().channels(group, present, round_trips))


class Unknown(Star):
    def channels(self, group, present, round_trips):
        return tuple(each._replace(filter=Custom("other")) for each in super().channels(group, present, round_trips))


def site(policy, **config) -> Network:
    """Four members of a scope below the overlay; A is the entry point."""
    network = Network()
    network.add_scope("X", policy=lambda name: policy, **config)
    for name in "ABCD":
        network.add_peer(name, ["X"])
        network.role(name, T, None, subscribes=True)
        network.settle()
    network.passed(4 * LEASE_S)
    return network


def installed(network: Network, name: str) -> tuple[Installing, LocalController]:
    controller = network.peers[peer(name).id]
    installing = Installing(RecordingHost(peer(name).contact), {})
    installing.follow(controller)
    return installing, controller


def record(origin: int, current: int) -> bytes:
    return encode(Record(2, (Pair(origin, current, VERSION),)))


def given(data: bytes = b"", index: int = 0) -> Bundle:
    return bundle(index, data, T)


def ways(network: Network, name: str):
    return installed(network, name)[0].topics[T]


def test_where_the_tree_is_all_there_is_nothing_is_installed() -> None:
    installing, _ = installed(site(Star()), "A")
    assert installing.topics == {}


def test_a_topic_that_must_keep_to_its_tree_has_links_only() -> None:
    network = site(Ring())
    role = Role(T, subscribes=True, tree_only=True)
    network.carry_out(peer("C").id, network.peers[peer("C").id].take_part(role))
    network.settle()
    assert installed(network, "B")[0].topics == {}
    links = {
        (name, channel.spec.peer.node_id[:1].decode())
        for name in "ABCD"
        for channel in network.peers[peer(name).id].channels
        if not channel.constraints[0].beside
    }
    assert links == {("A", "B"), ("A", "D"), ("B", "C")}


def test_a_bundle_from_outside_begins_its_way_at_the_entry_point() -> None:
    ordered = ways(site(Ring()), "A")
    assert [node[:1] for node, way in ordered.ways.items() if way.enters(given()) is not None] == [b"B", b"D"]
    way = ordered.ways[peer("B").id]
    assert decode(way.enters(given()).envelope.record) == Record(2, (Pair(1, 2, VERSION),))
    assert decode(way.enters_link(given()).envelope.record) == Record(2, (Pair(1, 2, VERSION),))


def test_a_repair_moves_on_and_whole_to_children() -> None:
    way = ways(site(Striped()), "A").ways[peer("B").id]
    assert way.enters(given(index=0)) is None
    assert way.enters(given(index=1)) is not None
    network = site(Ring())
    way = ways(network, "B").ways[peer("C").id]
    assert decode(way.enters(given()).envelope.record) == Record(2, (Pair(2, 3, VERSION),))
    assert way.enters_link(given()).envelope.record == b""
    assert decode(way.enters_link(given(record(1, 2))).envelope.record) == Record(2, (Pair(1, 3, VERSION),))


def test_a_repair_moves_on_under_the_last_record_of_its_stream() -> None:
    network = site(Ring())
    installing, controller = installed(network, "B")
    way = installing.topics[T].ways[peer("C").id]
    assert installing.arrived(controller, given(record(4, 2))) is not None
    for enters in (way.enters, way.enters_link):
        assert decode(enters(given()).envelope.record) == Record(2, (Pair(4, 3, VERSION),))
    assert (
        installing.arrived(controller, given(encode(Record(1, (Pair(9, 8, VERSION), Pair(1, 2, VERSION)))))) is not None
    )
    assert installing.arrived(controller, given(record(4, 2))) is not None, "it lacks a level"
    assert decode(way.enters(given()).envelope.record) == Record(1, (Pair(9, 8, VERSION), Pair(1, 3, VERSION)))


SOURCE, OTHER = Term(RELIABLE_STREAMS + 1, peer("D").id), Term(RELIABLE_STREAMS + 1, b"z" * 16)


def of_source(term: Term, data: bytes = b"", kind: Kind = Kind.DOWN) -> Bundle:
    return Bundle(Envelope(T, kind, term, 0, record=data, serial=0), [block(PAUL, 0)])


def sourced(*publishing: str) -> Network:
    """A ring whose entry point is A, of which some number their own events."""
    network = site(Ring())
    for name in publishing:
        network.role(name, T, None, publishes=True, subscribes=True)
        network.settle()
    return network


def test_what_a_member_numbers_begins_there() -> None:
    installing, _ = installed(sourced("D"), "D")
    way = installing.topics[T].ways[peer("C").id]
    for enters in (way.enters, way.enters_link):
        assert decode(enters(of_source(SOURCE)).envelope.record) == Record(2, (Pair(4, 3, VERSION),))
    assert installing.topics[T].within(of_source(SOURCE)) is None, "channels carry it"


def test_what_a_member_numbers_whom_no_channel_expects_to_goes_over_the_tree() -> None:
    network = Network()
    network.add_scope("X", policy=lambda name: Star())
    network.add_scope("Y", ["X"], policy=lambda name: Star())  # with scopes in it, a star has records
    for name, owner in zip("ABCD", "XXXY", strict=True):
        network.add_peer(name, [owner])
        network.role(name, T, None, subscribes=True)
        network.settle()
    installing, _ = installed(network, "B")
    link = installing.topics[T].within
    mine = Term(RELIABLE_STREAMS + 1, peer("B").id)
    assert link(of_source(mine)) is not None
    network.role("B", T, None, publishes=True, subscribes=True)
    network.settle()
    installing.follow(network.peers[peer("B").id])
    assert installing.topics[T].within(of_source(mine)) is None


def test_each_stream_moves_on_under_its_own_last_record_at_the_entry_point_too() -> None:
    installing, controller = installed(sourced("D"), "A")
    way = installing.topics[T].ways[peer("B").id]
    assert installing.arrived(controller, of_source(SOURCE, record(4, 1))) is not None
    for enters in (way.enters, way.enters_link):
        repair, new = of_source(SOURCE, kind=Kind.REPAIR), of_source(SOURCE)
        assert decode(enters(repair).envelope.record) == Record(2, (Pair(4, 2, VERSION),))
        assert decode(enters(new).envelope.record) == Record(2, (Pair(1, 2, VERSION),)), "it comes from outside"
        assert decode(enters(given()).envelope.record) == Record(2, (Pair(1, 2, VERSION),))
    assert decode(way.enters(of_source(OTHER)).envelope.record) == Record(2, (Pair(1, 2, VERSION),))
    assert way.enters_link(of_source(OTHER, kind=Kind.REPAIR)).envelope.record == b"", "a child may need it"


def test_what_goes_up_leaves_the_scope_without_its_record_and_inside_takes_channels() -> None:
    installing, _ = installed(sourced("D"), "B")
    ordered, (a, c, z) = installing.topics[T], (peer("A").id, peer("C").id, b"z" * 16)
    bundle_, repair = of_source(SOURCE, record(4, 2)), of_source(SOURCE)
    assert ordered.to_parent(c, (a,)) == ordered.ways[c].enters_link
    inside, outside = (ordered._replace(heads=frozenset([a])).to_parent(z, path) for path in ((z, a), (z,)))
    assert inside(bundle_) is None
    assert inside(repair) is repair
    assert outside(bundle_).envelope.record == b""
    assert ordered._replace(heads=None).to_parent(z, (z,)) == ordered.within, "all of a topic rooted here are inside"


def test_a_repair_has_no_record() -> None:
    table = ForwardingTable(RecordingHost(), 1 << 20)
    flow = table.open(Flow(T, table.budget))
    kept = given(record(1, 2))
    flow.begin(kept.envelope.term, 0, until=60.0)
    table.move(flow, kept)
    (repair,) = holding(flow, kept.envelope.term, [(0, 1)])
    assert repair.envelope.record == b""


def test_a_bundle_leaves_the_scope_without_its_record() -> None:
    others = ways(site(Ring()), "B").others
    assert others(given(record(1, 2))).envelope.record == b""
    untouched = given()
    assert others(untouched) is untouched


def test_over_multicast_the_entry_point_sends_once_and_links_carry_what_is_too_large() -> None:
    network = site(IpMulticast(datagram_bytes=512))
    limit = parse(IpMulticast(datagram_bytes=512).mechanism).bundle_bytes_max
    small = given()
    large = Bundle(small.envelope, (block(PAUL, 0, bytes(limit)),))
    ordered = ways(network, "A").ways
    (group,) = (way for way in ordered.values() if way.sink.contact.address.startswith("udp://239.255.81.67:8167?"))
    assert [way.enters(small) for way in ordered.values() if way is not group] == [None] * 3
    version = 2
    assert decode(group.enters(small).envelope.record) == Record(2, (Pair(1, 1, version),))
    assert group.enters(large) is None
    assert decode(ordered[peer("B").id].enters(large).envelope.record) == Record(2, (Pair(1, 2, version),))
    assert [*ways(network, "B").ways] == []


def test_a_member_notes_that_a_bundle_from_the_group_is_there_now() -> None:
    network = site(IpMulticast())
    installing, controller = installed(network, "B")
    came = installing.came_to_all(controller, GROUP, given(record(1, 1)))
    assert decode(came.envelope.record) == Record(2, (Pair(1, 2, VERSION),))
    stray = [given(), given(b"\0\1"), given(record(2, 1)), given(encode(Record(3, (Pair(1, 1, VERSION),))))]
    assert [installing.came_to_all(controller, GROUP, each) for each in stray] == [None] * 4
    assert installing.came_to_all(controller, IpMulticast().mechanism, given(record(1, 1))) is None, "another scope's"
    assert installing.came_to_all(*installed(network, "A")[1:], GROUP, given(record(1, 1))) is None, "its own"
    assert installed(site(Star()), "B")[0].came_to_all(controller, GROUP, given(record(1, 1))) is None


def test_a_bundle_that_should_be_elsewhere_is_dropped_and_counted() -> None:
    installing, controller = installed(site(Ring()), "B")
    assert installing.arrived(controller, given(record(1, 2))) is not None
    assert installing.arrived(controller, given(record(1, 3))) is None
    assert installing.arrived(controller, given(b"\0\1")) is None
    assert (controller.misrouted, controller.malformed) == (1, 1)
    assert [each.name for each in installing.host.records] == ["record_malformed"]


def test_a_member_from_which_no_channel_begins_drops_what_should_be_elsewhere_too() -> None:
    installing, controller = installed(site(IpMulticast()), "B")
    assert [*installing.topics[T].ways] == []
    elsewhere = [record(1, 3), encode(Record(1, (Pair(9, 2),))), encode(Record(3, (Pair(1, 2),)))]
    assert [installing.arrived(controller, given(each)) for each in elsewhere] == [None] * 3
    assert controller.misrouted == 3
    assert installing.arrived(controller, given(record(1, 2))) is not None
    assert installing.arrived(controller, given(record(9, 2))) is not None, "it may be a leaf for any origin"


def test_a_malformed_record_in_a_datagram_is_counted_as_elsewhere() -> None:
    installing, controller = installed(site(IpMulticast()), "B")
    assert installing.came_to_all(controller, GROUP, given(b"\0\1")) is None
    assert installing.came_to_all(controller, GROUP, given(record(2, 1))) is None, "its own, which is no mistake"
    assert (controller.misrouted, controller.malformed) == (0, 1)
    assert installing.host.records == [Mark("record_malformed"), Dropped(T, 1, "misrouted")]


def test_records_of_other_scopes_mean_nothing() -> None:
    installing, controller = installed(site(Star()), "B")
    assert installing.arrived(controller, given(record(1, 3))).envelope.record == b""


def test_a_filter_that_is_not_installed_here_leaves_the_tree_as_it_is() -> None:
    host = RecordingHost(peer("A").contact)
    installing = Installing(host, {})
    installing.follow(site(Unknown()).peers[peer("A").id])
    assert installing.topics[T].ways == {}
    assert [each.name for each in host.records] == ["filter_unusable"] * 3
    assert installing.unusable == {T: NOT_INSTALLED}


def test_a_border_whose_filter_is_not_installed_lets_nothing_in() -> None:
    guarded = site(Star(), entering=lambda topic: Entering(Custom("other")))
    installing, _ = installed(guarded, "A")
    assert installing.borders[T](given()) is None
    assert installing.unusable == {T: NOT_INSTALLED}
    assert installed(guarded, "D")[0].unusable == {}, "it is no border"
    knowing = Installing(RecordingHost(peer("A").contact), {"other": lambda: lambda envelope: True})
    knowing.follow(guarded.peers[peer("A").id])
    assert knowing.borders[T](given()) == given()
    assert knowing.unusable == {}


def test_filters_of_other_packages_decide_too() -> None:
    def odd():
        return lambda envelope: envelope.serial % 2 == 1

    installing = Installing(RecordingHost(peer("A").contact), {"other": odd})
    installing.follow(site(Unknown()).peers[peer("A").id])
    way = installing.topics[T].ways[peer("B").id]
    assert [way.enters(given(index=index)) is not None for index in range(2)] == [False, True]


def test_orders_are_compared_with_those_before() -> None:
    network = site(Ring())
    installing, controller = installed(network, "A")
    assert installing.follow(controller) == []
    network.leave("B")
    network.now += 60
    network.settle()
    assert installing.follow(controller) == [T]
    assert installing.follow(None) == [T]
    assert installing.topics == {}


def test_two_channels_to_one_peer_are_one_way_that_takes_what_either_takes() -> None:
    class Twice(Ring):
        def channels(self, group, present, round_trips):
            first, second = group.members[0], group.members[-1]
            filters = {first: Modulo(2, (0,)), second: Modulo(2, (1,))}
            return tuple(
                WantedChannel(first, second, origin, each) for origin, each in filters.items() if first != second
            )

    way = ways(site(Twice()), "A").ways[peer("D").id]
    assert [way.enters(given(record(1, 1), index)) is not None for index in range(2)] == [True, False]
    assert [way.enters(given(index=index)) is not None for index in range(2)] == [True, False]


def test_the_table_drops_what_is_misrouted_and_returns_its_credit() -> None:
    host = RecordingHost(peer("B").contact)
    table = ForwardingTable(host, 1 << 20)
    installing, controller = installed(site(Ring()), "B")
    table.recorded = lambda arrived: installing.arrived(controller, arrived)
    flow = table.open(Flow(T, table.budget))
    wrong = given(record(1, 3))
    flow.begin(wrong.envelope.term, 0, until=60.0)
    table.arrive(peer("A").contact, wrong)
    assert (table.dropped, host.released) == (1, [(peer("A").id, wrong.size)])
    table.arrive(peer("A").contact, given(record(1, 2)))
    assert flow.frontier == 1


def test_it_says_which_channel_takes_a_bundle_and_what_stops_it_at_another() -> None:
    installing, _ = installed(site(Striped()), "A")
    b, c = peer("B").id, peer("C").id
    assert installing.explain(b, given(index=1)) == ChannelDecision("1-2", "serial modulo 2 = 1")
    assert installing.explain(b, given(index=0)) == ChannelDecision("1-2", "serial modulo 2 = 1", "its filter")
    assert installing.explain(b, given(record(2, 1), index=1)).why == "it originated there"
    assert installing.explain(peer("A").id, given()) == ChannelDecision()
    ring, _ = installed(site(Ring()), "B")
    assert ring.explain(c, given(record(1, 2))) == ChannelDecision("2-3")
