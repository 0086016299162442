"""The scope manager: members and owners, senders and receivers (figure 7), epochs, silence, and crashes."""

from collections import Counter
from itertools import takewhile

import msgspec
import pytest
from msgspec.structs import replace

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Address, Ask, Multicast, Party, Rate
from quillcast.protocol.scopes.composition import Part
from quillcast.protocol.scopes.config import TopicRule
from quillcast.protocol.scopes.controller import LocalController
from quillcast.protocol.scopes.effects import Save, Send
from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.hierarchy import OVERLAY
from quillcast.protocol.scopes.labels import DEPTH_MAX, LABEL_MAX
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.measuring import AGAIN_S
from quillcast.protocol.scopes.membership import ScopeMembership, owners_of, readdressed, remembered
from quillcast.protocol.scopes.messages import (
    OTHERS_MAX,
    Alive,
    Assignment,
    ChannelAnswer,
    ChannelRequest,
    Measured,
    Orders,
    Registration,
    RegistrationRefused,
    Role,
    RootScope,
)
from quillcast.protocol.scopes.orders import OrderBook
from quillcast.protocol.scopes.policies.delay_optimised import DelayOptimised
from quillcast.protocol.scopes.policies.ip_multicast import IpMulticast
from quillcast.protocol.scopes.policy import WantedChannel
from quillcast.protocol.scopes.roundtrips import PROBES_MAX, RoundTripTable
from quillcast.protocol.scopes.state import Entering, MayLeave
from tests.protocol.scopes.network import LEASE_S, Network, Tree, peer, scope, topic

T, U = topic("t"), topic("u")


def campus(**config) -> Network:
    """Figure 15: X over P, Q and R; topic t is rooted at X. A publishes, B to E subscribe. The configuration is P's."""
    network, chain = Network(), {"policy": lambda of: Tree(1)}
    network.add_scope("X", **chain)
    for department, laptops in {"P": "BA", "Q": "CD", "R": "E"}.items():
        network.add_scope(department, ["X"], **(chain | config if department == "P" else chain))
        for laptop in laptops:
            network.add_peer(laptop, [department])
            network.role(laptop, T, "X", publishes=laptop == "A", subscribes=laptop != "A")
            network.settle()
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)
    return network


def manager(network: Network, name: str) -> ScopeManager:
    return network.managers[scope(name).id]


def assignment(network: Network, name: str, of: bytes = T):
    return network.peers[peer(name).id].membership.assignment(of)


def members(network: Network, name: str) -> dict[str, int]:
    return {each.party.name: label for label, each in manager(network, name).state.members.items()}


# ---- member and owner


def test_registrations_cascade_up_to_the_root_scope() -> None:
    network = campus()
    roles = {each.party.name: each.roles[T] for each in manager(network, "X").state.members.values()}
    assert roles == {
        "P": Role(T, scope("X").id, publishes=True, subscribes=True, head=peer("B").contact),
        "Q": Role(T, scope("X").id, publishes=False, subscribes=True, head=peer("C").contact),
        "R": Role(T, scope("X").id, publishes=False, subscribes=True, head=peer("E").contact),
    }
    assert not manager(network, "X").membership.roles
    assert assignment(network, "E").depth == 2


def test_a_topic_that_its_scope_is_the_root_of_goes_no_further() -> None:
    network = campus()
    network.role("A", U, "P", publishes=True)
    network.role("B", U, "P", subscribes=True)
    network.settle()
    assert U not in manager(network, "X").state.topics
    assert assignment(network, "B", U).depth == 1
    assert network.publish("A", U) == {"B": 1}


def test_the_last_member_that_leaves_a_topic_takes_its_scope_with_it() -> None:
    network = campus()
    network.role("E", T, "X")
    network.settle()
    assert "R" not in {each.party.name for each in manager(network, "X").state.members.values() if T in each.roles}
    assert T not in manager(network, "R").state.topics
    assert network.publish("A", T) == dict.fromkeys("BCD", 1)


def test_a_member_that_was_restarted_does_what_it_registers_for_even_if_its_first_word_was_lost() -> None:
    """It counts its registrations anew, and the first that comes may have the number of the last one of before."""
    network = Network()
    network.add_scope("P")
    network.add_peer("A", ["P"])
    network.role("A", T, "P", subscribes=True)
    network.settle()
    (before,) = manager(network, "P").state.members.values()
    serial = before.serial
    network.crash("A")
    network.loss = 1.0
    network.add_peer("A", ["P"])
    network.role("A", U, "P", subscribes=True)
    assert network.peers[peer("A").id].membership.owners[scope("P").id].serial == serial
    network.loss = 0.0
    network.passed(LEASE_S)
    assert assignment(network, "A", U).depth == 1
    assert list(manager(network, "P").state.topics) == [U]


def test_a_member_keeps_its_label_and_no_label_is_given_twice() -> None:
    network = campus()
    before = members(network, "Q")
    network.leave("D")
    network.settle()
    network.add_peer("F", ["Q"])
    network.settle()
    network.add_peer("D", ["Q"])
    network.settle()
    after = members(network, "Q")
    assert after["C"] == before["C"]
    assert len({before["D"], after["D"], after["F"]}) == 3


def test_a_scope_without_labels_left_refuses_members_and_says_what_to_do() -> None:
    network = campus()
    manager(network, "R").state.next_label = LABEL_MAX + 1
    network.add_peer("F", ["R"])
    network.role("F", T, "X", subscribes=True)
    network.settle()
    assert assignment(network, "F").why == (
        "scope R gave out all 2097151 labels of this epoch; restart its manager, which begins another epoch"
    )
    network.crash_manager("R")
    network.restore_manager("R")
    network.passed(LEASE_S)
    assert assignment(network, "F").depth == 2


def test_a_silent_member_is_removed_when_its_lease_ends() -> None:
    network = campus()
    network.crash("D")
    network.settle()
    assert network.publish("A", T) == dict.fromkeys("BC", 1)
    network.passed(LEASE_S / 2)
    assert "D" in members(network, "Q")
    network.passed(2 * LEASE_S)
    assert list(members(network, "Q")) == ["C"]
    assert network.publish("A", T) == dict.fromkeys("BCE", 1)


def test_a_member_that_was_taken_for_dead_registers_again() -> None:
    network = campus()
    network.cut = {peer("D").id}
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCE", 1)
    network.cut = set()
    network.passed(LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_a_second_root_scope_for_a_topic_is_refused_to_who_names_it() -> None:
    network = campus()
    network.role("B", U, "P", subscribes=True)
    network.settle()
    network.role("A", U, "X", publishes=True)
    network.settle()
    assert assignment(network, "A", U).depth is None
    assert "too: use another topic" in assignment(network, "A", U).why
    assert assignment(network, "B", U).depth == 1
    network.role("B", U, "P")
    network.settle()
    assert assignment(network, "A", U).depth == 2
    manager(network, "P").check()


def test_a_topic_that_no_superscope_leads_to_says_so() -> None:
    network = campus()
    network.role("E", U, "Q", subscribes=True)
    network.settle()
    assert "none of its superscopes is, or lies below, the root scope" in assignment(network, "E", U).why
    assert assignment(network, "E").depth == 2


def test_a_scope_cannot_be_a_member_below_itself() -> None:
    network = Network()
    network.add_scope("X", ["Z"])
    network.add_scope("Y", ["X"])
    network.settle()
    network.add_scope("Z", ["Y"])
    network.passed(4 * LEASE_S)
    refused = {
        name: owner.refused
        for name in "XYZ"
        for owner in manager(network, name).membership.owners.values()
        if owner.refused
    }
    assert refused
    assert all("lies below it; remove one of the memberships" in why for why in refused.values())
    assert all(scope(name).id not in manager(network, name).membership.above() for name in "XYZ")


def test_a_scope_whose_id_is_not_the_hash_of_its_name_is_not_admitted() -> None:
    network = campus()
    forged = Registration(scope("X").id, Party(scope("another").id, scope("R").contact, True, "R"), 1)
    (answer,) = manager(network, "X").received(forged, network.now)
    assert answer.message.why == "scope X does not admit scope R: its id is not the hash of its name"


def test_nobody_takes_the_place_of_a_member_scope_from_another_peer() -> None:
    network = campus()
    x, r = manager(network, "X"), scope("R")
    former = x.members.find(r.id)
    stranger = replace(r, contact=peer("F").contact)
    (answer,) = x.received(Registration(scope("X").id, stranger, 9), network.now)
    assert (answer.to, "does not prove that it took over" in answer.message.why) == (stranger, True)
    assert former is x.members.find(r.id)
    assert former is not None
    assert former.party == r
    moved = replace(r, contact=Contact(r.contact.node_id, "R:3"))
    x.received(Registration(scope("X").id, moved, 9), network.now)
    assert former.party == moved, "the same peer may have another address"


def test_members_that_would_lie_too_deep_are_told_so() -> None:
    network = Network()
    names = [f"s{depth}" for depth in range(DEPTH_MAX + 1)]
    for at, name in enumerate(names):
        network.add_scope(name, names[at - 1 : at] if at else [])
        network.add_peer(f"p{at}", [name])
        network.role(f"p{at}", T, "s0", publishes=at == 0, subscribes=at > 0)
        network.settle()
    assert assignment(network, f"p{DEPTH_MAX - 1}").depth == DEPTH_MAX
    assert "lies 15 levels below the topic's root scope" in assignment(network, f"p{DEPTH_MAX}").why
    assert network.publish("p0", T) == {f"p{at}": 1 for at in range(1, DEPTH_MAX)}


# ---- sender and receiver


def invited(network: Network, member: str, *, enters: bool = True) -> list[bytes]:
    """The topics in which a member of Q heeds an invitation from outside, if that `enters`, or from inside."""
    invitation = manager(network, "Q").state.invitation(peer(member).id, enters=enters)
    membership = network.peers[peer(member).id].membership
    return [topic for topic in (T,) if membership.invited_by(invitation, topic)]


def test_the_sender_asks_the_receiving_scopes_manager_for_the_channel() -> None:
    network = campus()
    (sender,) = manager(network, "Q").state.senders.values()
    assert sender.party == peer("B")
    asked = network.peers[peer("B").id].requests.asked[scope("Q").id]
    ((of, spec),) = asked.answer.specs
    invitation = manager(network, "Q").state.invitation(peer("C").id, enters=True)
    assert (of, [part.spec for part in spec.parts]) == (T, [Address(peer("C").contact, invitation)])


def test_a_receiver_renegotiates_when_its_entry_point_is_gone() -> None:
    network = campus()
    network.crash("C")
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BDE", 1)


def test_the_entry_point_is_the_member_nearest_to_the_sender() -> None:
    network = campus()
    assert assignment(network, "C").rank == 0
    assert invited(network, "C") == invited(network, "D", enters=False) == [T]
    assert invited(network, "C", enters=False) == invited(network, "D") == []
    network.leave("B")
    network.round_trips = {(peer(of).id, peer(to).id): 0.05 if of == "C" else 0.01 for of in "CD" for to in "AB"}
    network.settle()
    network.add_peer("B", ["P"])
    network.role("B", T, "X", subscribes=True)
    network.settle()
    assert (assignment(network, "D").rank, assignment(network, "C").rank) == (0, 1)
    assert invited(network, "C") == [], "who goes by older orders does not know that another is the entry point"
    assert invited(network, "D") == [T]
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_an_entry_point_stays_while_others_are_hardly_nearer() -> None:
    network = campus()
    for seconds, entry in ((0.0090, "C"), (0.0070, "D"), (0.0100, "D"), (0.0130, "C")):
        for name, trip in (("C", 0.0100), ("D", seconds)):
            measured = Measured(scope("Q").id, peer(name).id, peer("B").id, trip)
            network.carry_out(scope("Q").id, manager(network, "Q").received(measured, network.now))
        network.settle()
        assert assignment(network, entry).rank == 0
        assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_both_sides_agree_on_the_lower_rate() -> None:
    network = Network()
    network.add_scope("P")
    q = network.add_scope("Q", ["P"], entering=lambda topic: Entering(bytes_per_s=1000))
    network.add_peer("C", ["Q"])
    network.add_peer("S", ["P"])
    for name in "CS":
        network.role(name, T, "P", publishes=name == "S", subscribes=name == "C")
    network.settle()
    shown = (manager(network, "P").state.invitation(scope("Q").id, by=peer("S").id),)
    for most, granted in ((0, 1000), (500, 500), (2000, 1000)):
        rates = (Rate(scope("P").id, T, most),) if most else ()
        request = ChannelRequest(scope("Q").id, peer("S"), most + 9, (T,), rates, shown)
        sent = [each.message for each in q.received(request, 0.0) if isinstance(each, Send)]
        (told,) = [message for message in sent if isinstance(message, ChannelAnswer)]
        assert [part.rates for _, spec in told.specs for part in spec.parts] == [(Rate(q.state.scope.id, T, granted),)]


def publisher_outside() -> tuple[Network, ScopeManager]:
    """C in Q, a scope within P, subscribes to what A in P publishes. Returns Q's manager, too."""
    network = Network()
    network.add_scope("P")
    q = network.add_scope("Q", ["P"])
    network.add_peer("C", ["Q"])
    network.add_peer("A", ["P"])
    for name in "CA":
        network.role(name, T, "P", publishes=name == "A", subscribes=name == "C")
    return network, q


@pytest.mark.parametrize("invited", [True, False])
def test_a_request_that_comes_before_the_orders_that_invite_it_is_answered_with_them(*, invited: bool) -> None:
    network, q = publisher_outside()
    shown = manager(network, "P").state.invitation(scope("Q").id, by=peer("A" if invited else "S").id)
    assert q.received(ChannelRequest(scope("Q").id, peer("S"), 1, (T,), (), (shown,)), 0.0) == []
    assert list(q.receiver.early) == [peer("S").id]
    network.settle()
    assert (peer("S").id in q.state.senders) == invited
    assert list(q.receiver.early) == ([] if invited else [peer("S").id])


def test_a_request_that_waited_for_its_invitation_does_not_replace_a_later_one() -> None:
    network, q = publisher_outside()
    network.settle()
    invitation = manager(network, "P").state.invitation(scope("Q").id, by=peer("A").id)
    for serial, topics, shown in ((1, (T,), b"early"), (2, (T, topic("u")), invitation)):
        q.received(ChannelRequest(scope("Q").id, peer("S"), serial, topics, (), (shown,)), network.now)
    assert q.receiver.early == {}
    assert q.state.senders[peer("S").id].topics == (T, topic("u"))


def test_orders_of_an_owner_that_refuses_a_party_are_not_in_doubt() -> None:
    """Another owner decides its place by then."""
    network, refused = Network(), list[str]()
    network.add_scope("W", refusal=lambda party, attributes, token: "no" if party.name in refused else "")
    network.add_scope("V")
    network.add_peer("C", ["W", "V"])
    network.role("C", T, None, publishes=True, subscribes=True)
    network.settle()
    membership = network.peers[peer("C").id].membership
    network.crash_manager("W")
    network.passed(3 * LEASE_S)
    network.settle()
    refused.append("C")
    restored = network.restore_manager("W")
    network.carry_out(scope("W").id, restored.reconfigure(network.configs[scope("W").id]))
    network.passed(4 * LEASE_S)
    ordering = membership.ordering(T)
    assert ordering is not None
    assert (ordering.name, membership.doubted, membership.doubtful()) == ("V", {}, {})


def test_a_member_that_doubts_orders_asks_a_manager_again_that_restarted_before_it_could_answer() -> None:
    network = campus()
    membership = network.peers[peer("D").id].membership
    network.crash_manager("Q")
    membership.returned()
    network.carry_out(peer("D").id, network.peers[peer("D").id].passed(network.now))
    network.settle()
    assert membership.doubtful()
    network.restore_manager("Q")
    network.settle()
    assert not membership.doubtful(), "without another keep-alive"


def test_a_scope_that_takes_no_part_gets_no_role_in_a_topic_in_which_it_took_none_before() -> None:
    """Otherwise a scope without rights could say where other members' topics are rooted."""
    network = Network()
    top = network.add_scope("X")
    network.add_scope("Q", ["X"])
    network.settle()
    owner = manager(network, "Q")
    role = Role(T, scope("Nowhere").id, name="t")
    asks = Registration(scope("X").id, scope("Q"), 99, (role,), "", owner.succession)
    network.carry_out(scope("X").id, top.received(asks, network.now))
    assert top.state.topics == {}


def kept(network: Network, name: str) -> set[tuple[str, int]]:
    """The rates at which a peer sends, in bytes per second."""
    names = {scope(each).id: each for each in "PQ"}
    channels = network.peers[peer(name).id].channels
    rates = [rate for channel in channels for each in channel.constraints for rate in each.rates]
    return {(names[rate.scope], rate.bytes_per_s) for rate in rates}


@pytest.mark.parametrize("split", [False, True])
def test_a_sender_says_what_its_scope_lets_out_and_asks_again_when_that_changes(*, split: bool) -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("P", ["X"], replicas=2, split=split, leaving=lambda topic: MayLeave(400))
    network.add_scope("Q", ["X"], entry_points=2, entering=lambda topic: Entering(bytes_per_s=1000))
    for name, owner in (("A", "P"), ("B", "P"), ("C", "Q"), ("D", "Q")):
        network.add_peer(name, [owner])
        network.role(name, T, "X", publishes=owner == "P", subscribes=True)
    network.settle()
    assert [kept(network, name) for name in "AB"] == [{("P", 200), ("Q", 200)}] * 2
    network.configs[scope("P").id] = network.configs[scope("P").id]._replace(leaving=lambda topic: MayLeave(3000))
    network.crash_manager("P")
    network.restore_manager("P")
    network.settle()
    assert [kept(network, name) for name in "AB"] == [{("P", 1500), ("Q", 500)}] * 2


def test_members_that_send_out_of_a_scope_share_what_may_leave_in_all_topics() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("P", ["X"], out_of_all=MayLeave(400))
    network.add_scope("Q", ["X"])
    for name, owner in (("A", "P"), ("B", "P"), ("C", "Q")):
        network.add_peer(name, [owner])
    for name in "AC":
        network.role(name, T, "X", publishes=name == "A", subscribes=True)
    network.settle()
    own = [{rate for scope, rate in kept(network, name) if scope == "P"} for name in "AB"]
    assert own == [{400}, set()]
    for name in "BC":
        network.role(name, U, "X", publishes=name == "B", subscribes=True)
    network.settle()
    own = [{rate for scope, rate in kept(network, name) if scope == "P"} for name in "AB"]
    assert own == [{200}, {200}]


def test_a_sender_that_asks_no_more_is_forgotten() -> None:
    network = campus()
    network.role("E", T, "X")
    network.settle()
    assert not manager(network, "R").state.senders
    network.crash("B")
    network.passed(2 * LEASE_S)
    assert "B" not in {each.party.name for each in manager(network, "Q").state.senders.values()}


# ---- channels


def test_several_entry_points_share_the_bundles() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("Q", ["X"], entry_points=2)
    network.add_peer("A", ["X"])
    for name in "CD":
        network.add_peer(name, ["Q"])
        network.role(name, T, "X", subscribes=True)
    network.role("A", T, "X", publishes=True)
    network.settle()
    ways = {channel.label.target: channel.filter for channel in network.peers[peer("A").id].channels}
    assert list(ways.values()) == [Modulo(2, (0,)), Modulo(2, (1,))]
    for serial in range(4):
        assert network.publish("A", T, serial) == {"C": 1, "D": 1}


def test_who_passes_a_channel_on_receives_what_all_members_publish() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("P", ["X"])
    network.add_peer("E", ["X"])
    network.role("E", T, "X", subscribes=True)
    for name in "ABC":
        network.add_peer(name, ["P"])
        network.role(name, T, "X", publishes=True)
        network.settle()
    assert [network.publish(name, T)["E"] for name in "ABC"] == [1, 1, 1]


def test_replicas_halve_what_leaves_a_scope_through_each() -> None:
    network = campus(replicas=2)
    network.role("A", T, "X", publishes=True, subscribes=True)
    network.settle()
    leaving = {
        name: [each.filter for each in network.peers[peer(name).id].channels if len(each.label.source) == 2]
        for name in "AB"
    }
    assert leaving == {"B": [Modulo(2, (0,))] * len(leaving["B"]), "A": [Modulo(2, (1,))] * len(leaving["A"])}
    for serial in range(4):
        assert network.publish("A", T, serial) == dict.fromkeys("BCDE", 1)


def test_subchannels_are_delegated_one_by_one() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("P", ["X"], replicas=2, split=True)
    network.settle()
    network.add_scope("Q", ["X"], entry_points=2)
    for name, owner in {"A": "P", "B": "P", "C": "Q", "D": "Q"}.items():
        network.add_peer(name, [owner])
        network.role(name, T, "X", publishes=name == "A", subscribes=True)
        network.settle()
    sources = {str(each.label) for name in "AB" for each in network.peers[peer(name).id].channels if each.filter}
    assert sources == {"1:1-2:1", "1:2-2:2"}
    for serial in range(4):
        assert network.publish("A", T, serial) == dict.fromkeys("BCD", 1)


def test_an_external_multicast_mechanism_reaches_all_members() -> None:
    network = Network()
    network.add_scope("X")
    q = network.add_scope("Q", ["X"], multicast=True, policy=lambda of: IpMulticast())
    network.add_peer("A", ["X"])
    for name in "CDE":
        network.add_peer(name, ["Q"])
        network.role(name, T, "X", subscribes=True)
        network.settle()
    network.role("A", T, "X", publishes=True)
    network.settle()
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("CDE", 1)

    def group() -> Multicast:
        (found,) = {each.spec for each in network.peers[peer("A").id].channels if isinstance(each.spec, Multicast)}
        return found

    before, keys = group(), network.peers[peer("C").id].membership.groups()
    assert keys[before.mechanism] == before.key
    assert len({*keys.values()}) == 2, "senders cannot read what members send to each other"
    assert not any(isinstance(each.spec, Multicast) for name in "CDE" for each in network.peers[peer(name).id].channels)
    network.leave("E")
    network.settle()
    assert group().key != before.key, "who left has the key of before"
    assert network.publish("A", T) == dict.fromkeys("CD", 1)
    network.configs[scope("Q").id] = network.configs[scope("Q").id]._replace(multicast=False)
    network.carry_out(scope("Q").id, q.reconfigure(network.configs[scope("Q").id]))
    network.settle()
    assert network.publish("A", T) == dict.fromkeys("CD", 1)
    assert [isinstance(each.spec, Multicast) for each in network.peers[peer("A").id].channels] == [False]


def test_a_sender_that_ends_does_not_have_the_next_key_of_the_group_of_what_comes_in() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("Q", ["X"], multicast=True, policy=lambda of: IpMulticast())
    for name, owner in (("A", "X"), ("B", "X"), ("C", "Q"), ("D", "Q")):
        network.add_peer(name, [owner])
        network.role(name, T, "X", publishes=owner == "X", subscribes=owner == "Q")
        network.settle()
    network.passed(2 * LEASE_S)

    def keys() -> set[bytes]:
        """Those that the senders have."""
        specs = [
            each.spec for name in "AB" if peer(name).id in network.peers for each in network.installed[peer(name).id]
        ]
        return {spec.key for spec in specs if isinstance(spec, Multicast)}

    (before,) = keys()
    network.leave("B")
    network.settle()
    network.passed(2 * LEASE_S)
    (after,) = keys()
    assert after != before
    assert after in network.peers[peer("C").id].membership.groups().values()
    assert network.publish("A", T) == dict.fromkeys("CD", 1)


@pytest.mark.parametrize("below", [False, True])
def test_the_invitation_of_a_sender_ends_with_its_channel(*, below: bool) -> None:
    """What A knew leads to no answer, and so neither to the group's next key nor to a share of the rates."""
    network = Network()
    network.add_scope("X")
    network.add_scope("Q", ["X"])
    q = network.add_scope("L", ["Q"]) if below else manager(network, "Q")
    for name, owner in (("A", "X"), ("B", "X"), ("C", "L" if below else "Q")):
        network.add_peer(name, [owner])
        network.role(name, T, "X", publishes=owner == "X", subscribes=owner != "X")
        network.settle()
    network.passed(2 * LEASE_S)
    shown = {name: network.peers[peer(name).id].requests.asked[q.state.scope.id].invitations for name in "AB"}
    network.role("A", T, "X")
    network.passed(4 * LEASE_S)
    assert q.state.senders.keys() == {peer("B").id}
    for name, is_answered in (("A", False), ("B", True)):
        asks = ChannelRequest(q.state.scope.id, peer(name), 99, (T,), (), shown[name])
        told = [each.message for each in q.received(asks, network.now) if isinstance(each, Send)]
        assert any(isinstance(each, ChannelAnswer) for each in told) == is_answered
    assert q.state.senders.keys() == {peer("B").id}


def test_where_a_member_is_a_scope_the_entry_point_passes_on_what_comes_in() -> None:
    network = Network()
    network.add_scope("X")
    network.add_scope("Q", ["X"], multicast=True, policy=lambda of: IpMulticast())
    network.add_scope("L", ["Q"])
    for name, owner in (("A", "X"), ("C", "Q"), ("D", "Q"), ("E", "L")):
        network.add_peer(name, [owner])
        network.role(name, T, "X", publishes=name == "A", subscribes=name != "A")
        network.settle()
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("CDE", 1)


def test_two_topics_between_the_same_two_members_have_one_channel() -> None:
    network = campus()
    for name in "AB":
        network.role(name, U, "P", publishes=name == "A", subscribes=name == "B")
    network.settle()
    (channel,) = network.peers[peer("A").id].channels
    assert {each.topic: each.depth for each in channel.constraints} == {T: 2, U: 1}


def test_a_policy_connects_nobody_who_has_no_part_in_the_topic() -> None:
    class ToStrangers(Tree):
        def channels(self, group, present, round_trips):
            return (*super().channels(group, present, round_trips), WantedChannel(group.members[0], 99, None))

    network = Network()
    network.add_scope("X", policy=lambda of: ToStrangers())
    for name in "AB":
        network.add_peer(name, ["X"])
        network.role(name, T, "X", publishes=name == "A", subscribes=name == "B")
    network.settle()
    assert network.publish("A", T) == {"B": 1}


def test_in_the_overlay_a_scope_is_one_member_with_two_stand_bys() -> None:
    network = Network()
    network.add_scope("X")
    for name, owner in {"A": "X", "B": "X", "C": "X", "D": "Q", "E": "X"}.items():
        if owner == "Q":
            network.add_scope("Q", ["X"])
        network.add_peer(name, [owner])
        network.role(name, T, None, publishes=name == "E", subscribes=True)
        network.settle()
    assert manager(network, "X").state.topics[T].root == OVERLAY
    assert [assignment(network, name).ring for name in "ABCDE"] == [0, 1, 2, None, None]
    assert assignment(network, "A").depth == 2
    assert network.publish("A", T).keys() == {*"BCDE"}, "while members come, perhaps more than once"
    network.passed(4 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)
    assert network.publish("E", T) == dict.fromkeys("ABCD", 1)


def test_in_the_overlay_the_nearest_of_three_to_the_parent_outside_is_the_entry_point() -> None:
    network, root = Network(), peer("Z")
    network.add_scope("X")
    for name in "ABCD":
        network.add_peer(name, ["X"])
        network.role(name, T, None, publishes=name == "A", subscribes=True)
        network.settle()
    network.round_trips = {(peer(of).id, root.id): trip for of, trip in {"A": 0.05, "B": 0.01, "C": 0.03}.items()}
    assert assignment(network, "D").entry is None, "Joins reach the entry point first"
    for name in "DA":  # of a member that is not the entry point, its parent is nobody's business
        network.carry_out(peer(name).id, network.peers[peer(name).id].outer_parent(T, root.contact))
        network.settle()
    assert sorted(network.measured) == [(name, "Z") for name in "ABC"]
    assert [assignment(network, name).ring for name in "ABCD"] == [2, 0, 1, None]
    assert all(assignment(network, name).entry == peer("B").contact for name in "ABCD")
    assert network.publish("A", T) == dict.fromkeys("BCD", 1)
    network.crash_manager("X")
    network.restore_manager("X")
    network.settle()
    assert assignment(network, "B").ring == 0, "it stays chosen"


def test_members_measure_again_after_a_while_because_ways_change() -> None:
    network, root = Network(), peer("Z")
    network.add_scope("X")
    for name in "ABC":
        network.add_peer(name, ["X"])
        network.role(name, T, None, subscribes=True)
        network.settle()
    network.round_trips = {(peer(name).id, root.id): 0.05 for name in "ABC"}
    network.carry_out(peer("A").id, network.peers[peer("A").id].outer_parent(T, root.contact))
    network.settle()
    network.passed(AGAIN_S / 2)
    assert len(network.measured) == 3
    network.round_trips[peer("B").id, root.id] = 0.01
    network.passed(AGAIN_S)
    assert len(network.measured) == 6
    assert assignment(network, "B").ring == 0


# ---- epochs, crashes, silence


def test_after_a_crash_it_is_the_same_manager_with_a_higher_epoch() -> None:
    network = campus()
    before, channels = members(network, "Q"), network.peers[peer("C").id].channels
    network.crash_manager("Q")
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)
    restored = network.restore_manager("Q")
    network.settle()
    assert restored.state.epoch == 2
    assert members(network, "Q") == before
    assert network.peers[peer("C").id].membership.owners[scope("Q").id].orders.epoch == 2
    assert network.peers[peer("C").id].channels == channels
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_a_scope_that_is_full_refuses_members_until_one_leaves() -> None:
    network = campus(members_max=2)
    full = network.add_peer("F", ["P"])
    network.settle()
    why = "scope P is full, with 2 of at most 2 members: wait until one leaves, or raise members_max"
    assert full.membership.is_refused
    assert full.membership.obstacle().startswith(why)
    network.leave("B")
    network.passed(LEASE_S)
    assert full.membership.obstacle() == ""
    assert "F" in members(network, "P")


def test_a_policy_that_was_set_takes_effect_and_is_saved() -> None:
    rules, one, two = list[TopicRule](), Tree(1), Tree(2)
    network = campus(policy=lambda of: two if rules else one)
    for laptop in "FGH":
        network.add_peer(laptop, ["P"])
        network.role(laptop, T, "X", subscribes=True)
    network.settle()
    rules.append(TopicRule(pattern="#", policy="tree of two"))
    effects = manager(network, "P").set_policies(tuple(rules))
    assert effects[0] == Save()
    network.carry_out(scope("P").id, effects)
    network.settle()
    network.passed(LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCDEFGH", 1)
    assert max(Counter(each.source for each in manager(network, "P").state.topics[T].channels).values()) > 1
    network.crash_manager("P")
    assert network.restore_manager("P").state.settings == tuple(rules)


def test_a_scope_with_other_superscopes_tells_the_former_one_again_for_a_lease() -> None:
    network = campus()
    network.add_scope("Y")
    network.crash_manager("Q")
    network.cut.add(scope("X").id)
    q = scope("Q").id
    restored = ScopeManager.restored(network.disks[q], network.configs[q], owners=[scope("Y")])
    network.managers[q] = restored
    network.carry_out(q, restored.begin(network.now))
    network.settle()
    network.cut.clear()
    network.passed(LEASE_S / 3)
    assert "Q" not in members(network, "X")
    network.passed(LEASE_S)
    network.sent.clear()
    network.passed(LEASE_S)
    assert (q, scope("X").id) not in network.sent


def test_an_old_manager_is_not_obeyed_and_ends() -> None:
    network = campus()
    old = manager(network, "Q")
    network.restore_manager("Q")
    network.settle()
    new, network.managers[scope("Q").id] = manager(network, "Q"), old
    network.leave("D")
    network.settle()
    owner = network.peers[peer("C").id].membership.owners[scope("Q").id]
    assert owner.orders.epoch == 2
    network.carry_out(scope("Q").id, old.received(Alive(scope("Q").id, peer("C"), 99, 1), network.now))
    assert network.superseded == [], "a member may tell what it likes"
    forged = msgspec.structs.replace(owner.proof, epoch=99)
    network.carry_out(scope("Q").id, old.received(forged, network.now))
    assert network.superseded == []
    network.carry_out(scope("Q").id, old.received(owner.proof, network.now))
    assert network.superseded == [scope("Q").id]
    assert old.received(Registration(scope("Q").id, peer("F"), 1), network.now) == []
    network.managers[scope("Q").id] = new
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCE", 1)


def test_the_state_is_saved_before_anything_is_ordered() -> None:
    network = campus()
    first, *others = manager(network, "Q").received(Registration(scope("Q").id, peer("F"), 1), network.now)
    assert first == Save()
    assert all(isinstance(each, Send) for each in others)
    assert Save() not in manager(network, "Q").passed(network.now)


def test_while_a_superscopes_manager_is_silent_data_goes_on_and_new_topics_wait() -> None:
    network = campus()
    network.crash_manager("X")
    network.passed(2 * LEASE_S)
    network.role("A", U, "X", publishes=True)
    network.role("B", U, "X", subscribes=True)
    network.settle()
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)
    why = "scope X is silent; the registration waits for its manager"
    assert [manager(network, "P").assignment(topic_).why for topic_ in (T, U)] == ["", why]
    assert assignment(network, "B", U).why == why
    assert network.publish("A", U) == {}

    network.restore_manager("X")
    network.passed(LEASE_S)
    assert manager(network, "P").assignment(U).depth is not None
    assert network.publish("A", U) == {"B": 1}


def test_members_come_and_go_while_the_superscopes_manager_is_silent() -> None:
    network = campus()
    network.crash_manager("X")
    network.add_peer("F", ["Q"])
    network.role("F", T, "X", subscribes=True)
    network.leave("C")
    network.passed(2 * LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BDEF", 1)


def test_a_registration_that_has_no_answer_yet_says_whom_it_waits_for() -> None:
    network = Network()
    network.add_peer("A", ["X"])
    network.role("A", T, "X", subscribes=True)
    assert assignment(network, "A").why == "the registration waits for an answer from scope X"
    network.passed(2 * LEASE_S)
    assert assignment(network, "A").why == "scope X is silent; the registration waits for its manager"


def test_orders_and_answers_of_an_old_epoch_change_nothing() -> None:
    network = campus()
    network.restore_manager("Q")
    network.settle()
    sender, member = network.peers[peer("B").id], network.peers[peer("C").id]
    answer = msgspec.structs.replace(sender.requests.asked[scope("Q").id].answer, epoch=1, number=99, specs=())
    orders = msgspec.structs.replace(member.membership.owners[scope("Q").id].orders, epoch=1, number=99, channels=())
    assert sender.received(answer, 0.0) == member.received(orders, 0.0) == []
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_lost_orders_are_told_again() -> None:
    network = campus()
    network.cut = {peer("B").id}
    for name in "CD":
        network.role(name, T, "X")
    network.settle()
    network.cut = set()
    assert network.publish("A", T) == {"B": 1, "C": 1}  # B still sends to Q, where nobody forwards
    network.passed(LEASE_S / 3)
    assert network.publish("A", T) == {"B": 1, "E": 1}


def test_lost_messages_are_made_up_for() -> None:
    network = campus()
    network.cut = {scope("Q").id}
    network.role("D", T, "X")
    network.role("D", U, "Q", subscribes=True)
    network.role("C", U, "Q", publishes=True)
    network.settle()
    network.cut = set()
    network.passed(LEASE_S)
    assert network.publish("C", U) == {"D": 1}
    assert network.publish("A", T) == dict.fromkeys("BCE", 1)


def test_a_member_that_comes_or_goes_causes_no_message_outside_its_scope() -> None:
    network = campus()
    for name in "FG":
        network.add_peer(name, ["Q"])
        network.role(name, T, "X", subscribes=True)
        network.settle()
    inside = {scope("Q").id, *(peer(name).id for name in "CDFGH")}
    network.sent.clear()
    network.add_peer("H", ["Q"])
    network.role("H", T, "X", subscribes=True)
    network.settle()
    network.leave("G")
    network.settle()
    assert network.sent
    assert {party for link in network.sent for party in link} <= inside
    assert network.publish("A", T) == dict.fromkeys("BCDEFH", 1)


def test_same_inputs_same_effects() -> None:
    first, second = campus(), campus()
    assert first.disks == second.disks
    assert first.installed == second.installed


def test_a_scope_asks_nobody_for_a_channel_that_its_members_ask_for() -> None:
    network = campus()
    assert manager(network, "P").state.asked == {}
    assert isinstance(manager(network, "P").state.owners[scope("X").id].orders.channels[0].spec, Ask)


def test_members_measure_each_other_once_where_the_policy_goes_by_round_trips() -> None:
    network = Network()
    trips = {"AB": 0.1, "AC": 0.1, "AD": 0.4, "BC": 0.1, "BD": 0.01, "CD": 0.4}
    both = {*trips.items(), *((pair[::-1], trip) for pair, trip in trips.items())}
    network.round_trips = {(peer(one).id, peer(other).id): trip for (one, other), trip in both}
    network.add_scope("X", policy=lambda topic: DelayOptimised())
    for name in "ABCD":
        network.add_peer(name, ["X"])
        network.role(name, T, "X", subscribes=True, publishes=name == "A")
    network.passed(LEASE_S)
    state = manager(network, "X").state
    names = {label: member.party.name for label, member in state.members.items()}
    links = {names[each.source] + names[each.target] for each in state.topics[T].channels}
    assert links == {"AB", "AC", "BD"}, "D is reached soonest through B"
    assert sorted("".join(sorted(pair)) for pair in network.measured) == sorted(trips), "each pair is measured once"


def far(network: Network, trips: dict[str, float]) -> None:
    """The round trips between some peers, both ways."""
    for (one, other), trip in trips.items():
        network.round_trips |= {(peer(a).id, peer(b).id): trip for a, b in ((one, other), (other, one))}


def test_the_heads_of_scopes_measure_each_other_for_the_scope_around_and_again_when_one_changes() -> None:
    network = Network()
    far(network, {"AC": 0.1, "AE": 0.4, "CE": 0.02, "AD": 0.4, "DE": 0.4, "AB": 0.01, "CD": 0.01, "BC": 0.1})
    network.add_scope("X", policy=lambda topic: DelayOptimised())
    for name, members in (("P", "AB"), ("Q", "CD"), ("R", "E")):
        network.add_scope(name, ["X"])
        for member in members:
            network.add_peer(member, [name])
            network.role(member, T, "X", subscribes=True, publishes=member == "A")
            network.settle()
    network.passed(2 * LEASE_S)

    def pairs() -> set[str]:
        return {"".join(sorted(pair)) for pair in network.measured}

    def links() -> set[str]:
        state = manager(network, "X").state
        names = {label: member.party.name for label, member in state.members.items()}
        return {names[each.source] + names[each.target] for each in state.topics[T].channels}

    assert links() == {"PQ", "QR"}, "R is reached soonest through Q"
    assert pairs() >= {"AC", "AE", "CE"}
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)
    network.measured.clear()
    network.leave("C")
    network.passed(2 * LEASE_S)
    assert links() == {"PQ", "PR"}, "from D it is further than from C"
    assert pairs() >= {"AD", "DE"}
    assert network.publish("A", T) == dict.fromkeys("BDE", 1)
    network.measured.clear()
    far(network, {"DE": 0.01, "AD": 0.1})
    network.passed(AGAIN_S + 6 * LEASE_S)
    assert links() == {"PQ", "QR"}, "they measure again from time to time"
    assert "C" not in {name for pair in network.measured for name in pair}


def test_members_measure_nobody_where_the_policy_asks_for_no_round_trips() -> None:
    network = campus()
    network.passed(LEASE_S)
    assert not {*network.measured} & {("C", "D"), ("D", "C")}, "the members of Q"


def test_a_member_of_a_large_group_measures_the_entry_point_and_some_others() -> None:
    table, group = RoundTripTable(), {label: bytes([label]) for label in range(1, 101)}
    told = {label: table.unmeasured_among(label, group, [100]) for label in group}
    assert max(map(len, told.values())) == PROBES_MAX
    assert all(told[label][0] == group[100] for label in range(1, 100))
    pairs = [frozenset((group[label], to)) for label, others in told.items() for to in others]
    assert len({*pairs}) == len(pairs), "a pair is measured by one of the two"
    assert not any(table.unmeasured_among(label, group, [100]) for label in group if len(told[label]) == PROBES_MAX)


# ---- recovery domains


def domains(network: Network, name: str) -> dict[str, tuple[str, ...]]:
    """By scope, outwards: the peers that this one is told come next after it in the recovery domain."""
    circles = network.peers[peer(name).id].membership.domains()[T]
    names = {scope(each).id: each for each in "XPQRL"}
    return {names[each.scope]: tuple(c.node_id.decode().rstrip(".") for c in each.others) for each in circles}


def others(network: Network, name: str) -> tuple[str, ...]:
    """The members that a peer is told come next after it in the domain of its own scope."""
    return next(iter(domains(network, name).values()))


def test_members_are_told_who_comes_next_in_their_recovery_domain() -> None:
    network = campus(recovery=lambda of: "ring")
    (circle,) = network.peers[peer("A").id].membership.domains()[T]
    assert (circle.scope, circle.recovery) == (scope("P").id, "ring")
    assert (others(network, "B"), others(network, "A")) == (("A",), ("B",))
    network.add_peer("F", ["P"])
    network.role("F", T, "X", subscribes=True)
    network.settle()
    assert (others(network, "B"), others(network, "A"), others(network, "F")) == (("A", "F"), ("F", "B"), ("B", "A"))
    network.leave("A")
    network.settle()
    assert (others(network, "B"), others(network, "F")) == (("F",), ("B",))


def test_members_of_a_large_domain_are_told_of_some_others_and_only_those_concerned_hear_of_a_newcomer() -> None:
    network = Network()
    network.add_scope("P", policy=lambda of: Tree(1), recovery=lambda of: "srm")
    names = [chr(ord("a") + number) for number in range(OTHERS_MAX + 6)]
    for name in names:
        network.add_peer(name, ["P"])
        network.role(name, T, "P", subscribes=True)
        network.settle()
    assert others(network, "a") == tuple(names[1 : OTHERS_MAX + 1])
    assert others(network, names[-1]) == tuple(names[:OTHERS_MAX])
    numbers = {name: manager(network, "P").orders.told[label].number for name, label in members(network, "P").items()}
    network.add_peer("z", ["P"])
    network.role("z", T, "P", subscribes=True)
    network.settle()
    told = {name: manager(network, "P").orders.told[label].number for name, label in members(network, "P").items()}
    assert all(told[name] == numbers[name] for name in names[3:5]), "the newcomer is not next to these"
    assert others(network, names[-1])[0] == "z"


def test_a_head_of_many_scopes_counts_once_among_those_that_come_next() -> None:
    network = Network()
    network.add_scope("P", recovery=lambda of: "srm")
    network.add_peer("a", ["P"])
    network.role("a", T, "P", subscribes=True)
    network.settle()
    book, (label,) = manager(network, "P").orders, members(network, "P").values()
    contacts = [Contact(bytes([number]) * 16, str(number)) for number in range(OTHERS_MAX + 1)]
    shared, others = contacts[0], contacts[1:]
    book.circle |= {label + 1 + number: (shared,) for number in range(OTHERS_MAX)}
    book.circle |= {label + 100 + number: (other,) for number, other in enumerate(others)}
    book.circle_order = [*book.circle]
    assert book._others(label) == (shared, *others[: OTHERS_MAX - 1])


@pytest.mark.parametrize(("heads", "peers"), [(2 * OTHERS_MAX + 4, 3), (3, 2 * OTHERS_MAX + 4), (20, 20)])
def test_a_question_of_any_member_of_a_large_domain_reaches_all_others_also_from_heads_of_one_scope(
    heads: int, peers: int
) -> None:
    """The entry points of one scope for many topics are that many members of the domain around it."""
    network = Network()
    network.add_scope("X", policy=lambda of: Tree(1), recovery=lambda of: "srm")
    network.settle()
    network.add_scope("S", ["X"], policy=lambda of: Tree(1))
    network.settle()
    for owner, topics in (("S", [topic(f"t{number}") for number in range(heads)]), ("X", [topic("t0")] * peers)):
        for number, of in enumerate(topics):
            network.add_peer(f"{owner}{number}", [owner])
            network.role(f"{owner}{number}", of, "X", subscribes=True)
            network.settle()
    circle = {
        member.me.contact: each.others
        for member in network.peers.values()
        for circles in member.membership.domains().values()
        for each in circles
        if each.scope == scope("X").id
    }
    assert len(circle) == heads + peers
    assert max(map(len, circle.values())) == OTHERS_MAX
    for first in circle:
        heard = [first]
        while to := [*takewhile(first.__ne__, circle[heard[-1]])]:  # as `Suppression` passes messages on
            heard += to
        assert sorted(heard) == sorted(circle), "each hears it once"


def test_members_that_repair_along_the_tree_are_told_of_others_too_to_seek_what_no_neighbour_holds() -> None:
    network = campus()
    assert {name: domains(network, name) for name in "BAC"} == {
        "B": {"P": ("A",), "X": ("C", "E")}, "A": {"P": ("B",)}, "C": {"Q": ("D",), "X": ("E", "B")},
    }  # fmt: skip


def test_clients_and_members_without_a_part_in_a_topic_are_in_no_recovery_domain() -> None:
    state = manager(nested("ring"), "X").state
    book, (label, *_) = OrderBook(state), state.members
    assert book.update(T, {label: Part(Assignment(T, depth=1))})
    assert book.circle == {}
    assert book.update(T, {label: Part(Assignment(T, depth=1, recovery="tree"))})
    assert [*book.circle] == [label]


def nested(x: str, p: str = "tree", laboratory: str = "tree") -> Network:
    """X over P, Q and the peer Z; P over the laboratory L and the peer B. X, P and L repair by these protocols."""
    network = Network()
    for name, owners, recovery in (("X", "", x), ("P", "X", p), ("Q", "X", "tree"), ("L", "P", laboratory)):
        network.add_scope(name, owners, policy=lambda of: Tree(1), recovery=lambda of, recovery=recovery: recovery)
        network.settle()
    for name, owner in (("D", "L"), ("E", "L"), ("B", "P"), ("C", "Q"), ("F", "Q"), ("Z", "X")):
        network.add_peer(name, [owner])
        network.role(name, T, "X", subscribes=True)
        network.settle()
    return network


def test_the_entry_points_of_scopes_in_a_scope_are_told_who_comes_next_in_the_domain_around_theirs() -> None:
    network = nested("ring")
    assert domains(network, "D") == {"L": ("E",), "P": ("B",), "X": ("C", "Z")}, "through two scopes"
    assert domains(network, "C") == {"Q": ("F",), "X": ("Z", "D")}
    assert domains(network, "Z") == {"X": ("D", "C")}
    assert [domains(network, name) for name in "EBF"] == [{"L": ("D",)}, {"P": ("D",)}, {"Q": ("C",)}], "no heads"


def test_each_domain_around_has_a_protocol_of_its_own() -> None:
    network = nested("srm", "ring", "gossip")
    circles = network.peers[peer("D").id].membership.domains()[T]
    assert [(each.scope, each.recovery) for each in circles] == [
        (scope("L").id, "gossip"), (scope("P").id, "ring"), (scope("X").id, "srm"),
    ]  # fmt: skip
    assert domains(network, "D") == {"L": ("E",), "P": ("B",), "X": ("C", "Z")}


def test_when_another_peer_becomes_an_entry_point_the_members_of_the_domains_around_hear_of_it() -> None:
    network = nested("ring")
    network.leave("D")
    network.settle()
    assert domains(network, "E") == {"L": (), "P": ("B",), "X": ("C", "Z")}
    assert domains(network, "C") == {"Q": ("F",), "X": ("Z", "E")}
    assert domains(network, "Z") == {"X": ("E", "C")}
    network.leave("E")
    network.settle()
    assert domains(network, "B") == {"P": (), "X": ("C", "Z")}
    assert domains(network, "Z") == {"X": ("B", "C")}


def test_nothing_about_heads_is_said_while_they_stay_the_same() -> None:
    network = nested("ring")
    for name in "HI":
        network.sent.clear()
        network.add_peer(name, ["Q"])
        network.role(name, T, "X", subscribes=True)
        network.settle()
    assert {to for _, to in network.sent} & {scope("X").id, scope("P").id, peer("Z").id, peer("D").id} == set()


def test_a_scope_is_the_head_of_a_domain_for_topics_in_common_at_once() -> None:
    """Of many topics, orders name each domain around with its circle once."""
    network = nested("ring")
    for number in range(5):
        for name in "DCZ":
            network.role(name, topic(f"u{number}"), "X", subscribes=True)
    network.settle()
    (owner,) = network.peers[peer("D").id].membership.owners.values()
    assert owner.orders is not None
    assert [(each.circle.scope, len(each.topics)) for each in owner.orders.around] == [
        (scope("P").id, 6), (scope("X").id, 6),
    ]  # fmt: skip


def test_who_may_take_part_does_not_wait_while_the_superscope_hears_of_another_head() -> None:
    network = nested("ring")
    membership = manager(network, "Q").membership
    assert membership.answer(T) is not None
    role = membership.roles[T]
    membership.set_role(T, replace(role, head=peer("F").contact))
    assert membership.answer(T) is not None
    membership.set_role(T, replace(role, publishes=True))
    assert membership.answer(T) is None


def test_what_an_owner_answered_to_a_party_before_it_restarted_is_no_answer_to_its_present_roles() -> None:
    owner, role = scope("P"), Role(T, scope("P").id, publishes=True)
    member = ScopeMembership(peer("A"), owners_of([owner]), LEASE_S)
    member.begin(0.0)
    member.set_role(T, role)
    (registration,) = [send.message for send in member.settle()]
    may = (Assignment(T, depth=1, publishes=True),)
    member.ordered(Orders(owner, 1, 70, registration.serial + 1, 1, assignments=may), 0.0)
    assert member.answer(T) is None, "that was asked in the life before"
    member.ordered(Orders(owner, 1, 71, registration.serial, 1, assignments=may), 0.0)
    assert member.answer(T) == may[0]


def test_who_has_an_agent_is_looked_up_only_where_that_changed() -> None:
    """It depends on all topics of a member, so that would cost topics times topics."""
    state = manager(nested("ring"), "X").state
    book, looked = OrderBook(state), list[int]()
    book._with_agents = lambda label: looked.append(label) or ()
    first, second = (label for label, member in state.members.items() if member.party.managed)
    parts = {first: Part(Assignment(T, depth=1)), second: Part(Assignment(T, depth=1, recovery="ring"))}
    assert book.update(T, parts)
    assert not book.update(T, parts)
    assert looked == [second], "the first one is in no domain"
    state.members[second].roles[T] = replace(state.members[second].roles[T], head=peer("F").contact)
    assert not book.update(T, parts)
    assert looked == [second] * 2, "it has another head"
    assert book.update(T, {first: parts[first]})
    assert looked == [second] * 3
    book.check()


# ---- root scopes with seats


def test_members_are_told_who_may_be_the_rendezvous_point_of_topics_that_are_rooted_above_them() -> None:
    network = Network()
    network.add_scope("X", roots=(("t#", True),))
    network.add_scope("P", ["X"], roots=())
    network.add_peer("A", ["P"])
    network.add_peer("B", ["X"])
    network.settle()
    (told,) = network.peers[peer("A").id].membership.roots()
    assert (told.name, told.rules, told.seats) == ("X", (("t#", True),), (peer("B").contact, peer("A").contact))
    assert network.peers[peer("B").id].membership.roots() == (told,)
    network.leave("A")
    network.settle()
    (told,) = network.peers[peer("B").id].membership.roots()
    assert told.seats == (peer("B").contact,)


def test_bundles_begin_at_the_member_whose_id_is_closest_to_the_topic_even_if_it_does_not_subscribe() -> None:
    network = Network()
    network.add_scope("X", roots=(("#", True),))
    for name in "ABC":
        network.add_peer(name, ["X"])
    for name in "AB":
        network.role(name, T, "X", subscribes=True)
    network.settle()
    assert [assignment(network, name).begins for name in "AB"] == [False, False]
    assert network.peers[peer("C").id].membership.ordered_assignments()[T].begins, "t is closest to C"
    network.leave("C")
    network.settle()
    assert [assignment(network, name).begins for name in "AB"] == [False, True]


def test_a_topic_that_the_file_does_not_root_at_the_scope_is_not_carried_as_if_it_did() -> None:
    network = Network()
    network.add_scope("X", roots=(("other", True),))
    network.add_peer("A", ["X"])
    network.role("A", T, "X", subscribes=True)
    network.settle()
    assert "cannot be rooted at scope X" in assignment(network, "A").why


def test_a_member_that_asks_where_no_manager_runs_waits_and_knows_it() -> None:
    network = campus()
    network.crash_manager("Q")
    late = network.add_peer("L", ["Q"])
    owner, known = scope("Q"), network.peers[peer("C").id]
    for controller in (late, known):
        controller.received(RegistrationRefused(owner.id, 0, "it is not here"), network.now)
    assert (late.membership.is_refused, late.membership.is_waiting) == (False, True)
    assert late.membership.obstacle() == "scope Q: it is not here"
    assert known.membership.obstacle() == "", "it has orders, and keeps them"
    network.restore_manager("Q")
    network.settle()
    network.passed(LEASE_S)
    assert late.membership.obstacle() == ""


def test_a_manager_registers_with_a_superscope_that_it_did_not_reach_once_it_is_found() -> None:
    network = Network()
    q = ScopeManager.new(scope("Q"), [awaited("X")], network.add_scope("Q").config)
    q.state.draw_secret(b"secret")
    network.managers[scope("Q").id] = q
    network.carry_out(scope("Q").id, q.begin(network.now))
    member = network.add_peer("C", ["Q"])
    network.role("C", T, "X", subscribes=True)
    q.membership.not_found(scope("X").id, "nobody answers there")
    network.passed(2 * LEASE_S)
    assert (q.membership.obstacles(), q.membership.admitted()) == ({"X": "nobody answers there"}, [])
    idle = network.add_peer("D", ["Q"])
    network.settle()
    assert list(members(network, "Q")) == ["C", "D"]
    for each in (member, idle):
        assert each.membership.obstacle().startswith("scope Q waits for its superscope's manager")
    x = network.add_scope("X")
    effects = q.found(scope("X"))
    assert effects[0] == Save()
    network.carry_out(scope("Q").id, effects)
    network.settle()
    assert list(members(network, "X")) == ["Q"]
    assert (q.membership.obstacles(), q.membership.admitted(), member.membership.obstacle()) == ({}, ["X"], "")
    assert (idle.membership.obstacle(), idle.membership.ring()) == ("", (peer("C").contact, peer("D").contact))
    assert x.state.topics.keys() == {T}


def restarted(network: Network, name: str, *, owner: Party) -> LocalController:
    """A member starts again, and knows the address of its manager and what that ordered before."""
    known = network.peers[peer(name).id].membership.owners[owner.id].orders
    assert known is not None
    before = {owner.id: readdressed(remembered(known), peer(name).contact)}
    controller = network.peers[peer(name).id] = LocalController(peer(name), [owner], LEASE_S, before=before)
    network.installed[peer(name).id] = []
    network.carry_out(peer(name).id, controller.begin(network.now))
    return controller


def awaited(name: str) -> Party:
    """A scope whose manager is not found yet."""
    return replace(scope(name), contact=Contact(b"", scope(name).contact.address))


def test_a_member_that_starts_again_waits_a_lease_for_its_manager_and_then_goes_by_what_it_ordered_before() -> None:
    network = campus()
    ring = network.peers[peer("C").id].membership.ring()
    network.crash_manager("Q")
    member = restarted(network, "C", owner=awaited("Q"))
    member.membership.not_found(scope("Q").id, "nobody answers there")
    assert (member.membership.obstacle(), member.membership.ring()) == ("scope Q: nobody answers there", ())
    network.passed(2 * LEASE_S)
    assert (member.membership.obstacle(), member.membership.ring()) == ("", ring)
    assert member.membership.ordered_assignments() == {}, "topics went on without it"
    network.role("C", T, "X", subscribes=True)
    assert "scope Q is silent" in assignment(network, "C").why
    network.restore_manager("Q")
    network.passed(LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_a_member_that_starts_again_obeys_the_orders_of_a_manager_that_has_not_changed() -> None:
    network = campus()
    member = restarted(network, "C", owner=awaited("Q"))
    network.role("C", T, "X", subscribes=True)
    assert member.membership.ring() == ()
    network.passed(2 * LEASE_S)
    assert member.membership.silent == {}, "it asks where the manager was before"
    assert network.publish("A", T) == dict.fromkeys("BCDE", 1)


def test_a_member_that_starts_again_forgets_a_manager_where_another_peer_answers() -> None:
    member = restarted(campus(), "C", owner=awaited("Q"))
    other = replace(scope("Q"), contact=Contact(b"another".ljust(16, b"."), "another:2"))
    member.found(other)
    owner = member.membership.owners[other.id]
    assert (owner.party, owner.remembered, owner.proof) == (other, None, None)


def test_an_owner_that_will_not_be_found_refuses_for_good() -> None:
    member = LocalController(peer("C"), [awaited("Q")], LEASE_S)
    member.begin(0.0)
    member.membership.not_found(scope("Q").id, "it is of another network", for_good=True)
    assert member.membership.is_refused
    assert member.leave() == member.passed(LEASE_S) == [], "nobody can be told anything"


def test_what_a_member_remembers_of_orders_has_its_own_new_address_and_nothing_of_topics() -> None:
    root = RootScope(scope("X").id, "X", (("#", True),), (peer("A").contact, peer("C").contact))
    known = campus().peers[peer("C").id].membership.owners[scope("Q").id].orders
    assert known is not None
    assert known.channels
    moved = Contact(peer("C").id, "elsewhere:1")
    kept = readdressed(remembered(replace(known, roots=(root,))), moved)
    assert (kept.assignments, kept.channels, kept.number) == ((), (), 0)
    assert kept.succession == known.succession
    assert kept.ring == tuple(moved if each.node_id == moved.node_id else each for each in known.ring)
    assert kept.roots[0].seats == (peer("A").contact, moved)


def test_a_party_with_several_owners_waits_for_the_one_that_it_prefers_before_it_goes_to_the_ring_through_another() -> (
    None
):
    owners = [scope(name) for name in ("place", "room")]
    membership = ScopeMembership(peer("A"), owners_of(owners), LEASE_S)
    membership.begin(0.0)
    entries = {owner.id: (peer(f"entry of {owner.name[0]}").contact,) for owner in owners}

    def answer(owner: Party) -> None:
        membership.ordered(Orders(owner, 1, 1, 1, 1, ring=entries[owner.id]), 1.0)

    answer(owners[1])
    assert membership.is_waiting
    assert (membership.ring(), membership.obstacle()) == ((), "the registration waits for an answer from scope place")
    membership.passed(2 * LEASE_S)
    assert membership.ring() == entries[owners[1].id], "the other one is silent"
    answer(owners[0])
    assert (membership.ring(), membership.obstacle()) == (entries[owners[0].id], "")
    membership.refused(RegistrationRefused(owners[0].id, 1, "no"), 2.0)
    assert (membership.ring(), membership.obstacle()) == (entries[owners[1].id], "no")


def test_a_client_registers_with_the_owner_that_its_host_has_for_the_topic() -> None:
    place, room = scope("place"), scope("room")
    membership = ScopeMembership(peer("A"), owners_of([place, room]), LEASE_S)
    membership.begin(0.0)
    membership.ordered(Orders(place, 1, 1, 1, 1), 1.0)
    root = RootScope(room.id, "room", (("room/#", True),))
    membership.ordered(Orders(room, 1, 1, 1, 1, roots=(root,)), 1.0)
    assert membership.asks_for("room/talk") == room.id
    assert membership.asks_for("news") == OVERLAY, "which leads to the first"
