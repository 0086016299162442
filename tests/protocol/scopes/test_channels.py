"""Channels: specifications, superimposition, delegation and replication (figures 10 to 14)."""

from itertools import islice

import msgspec
import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import (
    Address,
    Ask,
    ChannelOrder,
    Constraint,
    Multicast,
    Party,
    Subchannel,
    Subchannels,
    aside,
    both,
    delegated,
    for_topic,
    leaves,
    replicated,
    superimposed,
    to_party,
)
from quillcast.protocol.scopes.controller import GROUPS_MAX, LEAVES_MAX, LocalController
from quillcast.protocol.scopes.filters import NO_BUNDLE, Every, Modulo
from quillcast.protocol.scopes.labels import DEPTH_MAX, ChannelLabel
from quillcast.protocol.scopes.messages import Orders
from quillcast.protocol.scopes.records import Pair, Record, originated

T, U = b"t" * 16, b"u" * 16
LIBRARY = Party(b"L" * 16, Contact(b"m" * 16, "manager:1"), managed=True, name="library")
ALICE = Party(b"a" * 16, Contact(b"a" * 16, "alice:1"))
BOB = Party(b"b" * 16, Contact(b"b" * 16, "bob:1"))
EVEN, ODD = Modulo(2, (0,)), Modulo(2, (1,))


def channel(spec, *constraints, source=(1,), target=(2,), filter_=None):
    return ChannelOrder(ChannelLabel(source, target), spec, constraints or (Constraint(T, 1, 1),), filter_)


def nothing(scope, topic):
    return None


def test_a_peer_is_an_address_and_a_scope_is_asked() -> None:
    assert to_party(ALICE) == Address(ALICE.contact)
    assert to_party(LIBRARY) == Ask(LIBRARY)


def test_channels_of_many_topics_between_the_same_two_members_are_one() -> None:
    one, other = channel(Address(ALICE.contact)), channel(Address(ALICE.contact), Constraint(U, 2, None))
    assert superimposed([one, other, one]) == (
        channel(Address(ALICE.contact), Constraint(T, 1, 1), Constraint(U, 2, None)),
    )
    assert for_topic(superimposed([one, other])[0], U) == other


def test_with_another_filter_it_is_another_channel() -> None:
    one, other = channel(Address(ALICE.contact)), channel(Address(ALICE.contact), filter_=EVEN)
    assert superimposed([one, other]) == (one, other)


def test_a_scope_delegates_a_channel_down_to_a_peer() -> None:
    label = delegated(delegated(channel(Ask(LIBRARY)), 5), 6).label
    assert label == ChannelLabel((1, 5, 6), (2,))
    assert str(label) == "1:5:6-2"


def test_replicas_share_the_bundles_among_them() -> None:
    (one, first), (other, second) = replicated(channel(Ask(LIBRARY)), (5, 6))
    assert (one, first.label.source, first.filter) == (5, (1, 5), EVEN)
    assert (other, second.label.source, second.filter) == (6, (1, 6), ODD)
    ((_, lone),) = replicated(channel(Ask(LIBRARY)), (5,))
    assert lone.filter is None


def test_a_specification_is_resolved_down_to_addresses() -> None:
    tree = Subchannels((Subchannel(7, Address(ALICE.contact), EVEN), Subchannel(8, Ask(LIBRARY), ODD)))
    first, second = leaves(channel(tree, filter_=EVEN), nothing)
    assert first == channel(Address(ALICE.contact), target=(2, 7), filter_=Every((EVEN, EVEN)))
    assert second == aside(channel(Ask(LIBRARY), target=(2, 8), filter_=Every((EVEN, ODD)))), "one is the tree's link"

    inside = Subchannels((Subchannel(9, Address(BOB.contact)),))
    _, resolved = leaves(channel(tree), lambda ask, topic: inside if ask.scope == LIBRARY else None)
    assert resolved == aside(channel(Address(BOB.contact), target=(2, 8, 9), filter_=ODD))


def test_an_external_multicast_mechanism_ends_a_channel_at_the_scope() -> None:
    order = channel(Ask(LIBRARY))
    assert [*leaves(order, lambda scope, topic: Multicast("udp://239.0.0.1:7"))] == [
        channel(Multicast("udp://239.0.0.1:7"))
    ]


def test_the_search_through_managers_that_refer_to_each_other_often_can_be_bounded() -> None:
    circle = Subchannels(tuple(Subchannel(at, Ask(LIBRARY)) for at in range(1, 1000)))
    asked = list[Ask]()

    def answer(ask: Ask, topic: bytes) -> Subchannels:
        asked.append(ask)
        return circle

    assert len([*islice(leaves(channel(Ask(LIBRARY)), answer), 100)]) == 100
    assert len(asked) < 100 + DEPTH_MAX


def test_managers_that_refer_to_each_other_lead_nowhere() -> None:
    circle = Subchannels((Subchannel(1, Ask(LIBRARY)),))
    (found,) = leaves(channel(Ask(LIBRARY)), lambda scope, topic: circle)
    assert found.spec == circle, "no address"
    assert [*leaves(channel(Ask(LIBRARY)), lambda scope, topic: Ask(LIBRARY))] == [channel(Ask(LIBRARY))]


def test_a_bundle_takes_a_channel_once_whatever_the_number_of_its_constraints() -> None:
    order = channel(Address(ALICE.contact), Constraint(T, 1, 1), Constraint(T, 1, None), Constraint(U, 2, 1))
    assert order.route(T, originated(1, 1)) == Record(1, (Pair(1, 2),))
    assert order.route(U, originated(2, 1)) == Record(2, (Pair(1, 2),))
    assert order.route(b"v" * 16, originated(1, 1)) is None
    assert order.route(T, Record(1, (Pair(1, 3),))) is None
    assert order.misroutes(T, Record(1, (Pair(1, 3),)))
    assert not order.misroutes(T, Record(1, (Pair(3, 1),)))


def test_a_channel_begins_at_some_member() -> None:
    decoder = msgspec.msgpack.Decoder(ChannelOrder)
    order = channel(Address(ALICE.contact))
    assert decoder.decode(msgspec.msgpack.encode(order)) == order
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(msgspec.msgpack.encode(channel(Address(ALICE.contact), source=())))


def test_filters_are_passed_one_after_the_other() -> None:
    assert both(None, None) is None
    assert both(EVEN, None) == both(None, EVEN) == EVEN
    assert both(EVEN, ODD) == Every((EVEN, ODD))


def test_filters_of_several_scopes_that_are_too_many_together_let_nothing_pass() -> None:
    half = Every((EVEN,) * 40)
    assert both(half, half) == NO_BUNDLE
    (nested,) = leaves(
        channel(Subchannels((Subchannel(7, Address(ALICE.contact), half),)), filter_=half), lambda ask, topic: None
    )
    assert nested.filter == NO_BUNDLE


def test_a_peer_sends_to_so_many_groups_of_other_scopes_and_no_more() -> None:
    parts = tuple(Subchannel(n, Multicast(f"udp://239.0.1.{n}:7", bytes(32))) for n in range(1, GROUPS_MAX + 3))
    own = channel(Multicast("udp://239.0.0.1:7"))
    controller = LocalController(ALICE, [LIBRARY], 5.0)
    controller.begin(0.0)
    controller.received(Orders(LIBRARY, 1, 1, 1, 1, channels=(channel(Subchannels(parts)), own)), 0.0)
    assert len(controller.channels) == GROUPS_MAX + 1
    assert (own in controller.channels, controller.groups_refused) == (True, 2)


@pytest.mark.parametrize("excess", [0, 1])
def test_a_channel_leads_to_so_many_addresses_and_no_more(excess: int) -> None:
    specs = [Address(Contact(b"%16d" % n, f"peer:{n}")) for n in range(1, LEAVES_MAX + excess + 1)]
    parts = tuple(Subchannel(n, spec) for n, spec in enumerate(specs, 1))
    controller = LocalController(ALICE, [LIBRARY], 5.0)
    controller.begin(0.0)
    controller.received(Orders(LIBRARY, 1, 1, 1, 1, channels=(channel(Subchannels(parts)),)), 0.0)
    assert (len(controller.channels), controller.channels_cut) == (LEAVES_MAX, excess)
