"""Scopes in a scope that end their part in a topic: they forward bundles of others until others carry these."""

from functools import partial
from typing import Any

import msgspec
import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Address
from quillcast.protocol.scopes.filters import NO_BUNDLE, Modulo
from quillcast.protocol.scopes.messages import Assignment, ChannelRequest, Registration, Role
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.k_ary import KAry
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.star import Star
from quillcast.protocol.scopes.policies.stripes import Stripes
from quillcast.protocol.scopes.policy import NoAnswer, ScopePolicy
from quillcast.protocol.scopes.records import decode
from quillcast.protocol.scopes.state import Entering
from quillcast.protocol.scopes.swaps import Phase
from tests.params import kind, rest_long
from tests.protocol.scopes.network import LEASE_S, Departure, Network, Tree, came, peer, published, scope, topic

T = topic("t")
CHANGED_S = 4 * LEASE_S  # as in `test_composition`
CAMPUS = {"P": "A", "Q": "C", "R": "E"}


def campus(network: Network, **config: Any) -> Network:
    """X chains P, Q and R, with one member each. A publishes, C and E subscribe. The configuration is Q's."""
    chain = {"policy": lambda of: Tree(1)}
    network.add_scope("X", **chain)
    for department, members in CAMPUS.items():
        network.add_scope(department, ["X"], **(chain | config if department == "Q" else chain))
        for name in members:
            network.add_peer(name, [department])
            network.role(name, T, None, publishes=name == "A", subscribes=name != "A")
            network.settle()
    network.passed(CHANGED_S)
    assert network.publish("A", T) == dict.fromkeys("CE", 1)
    return network


def on_its_way(network: Network, to: str = "C") -> bytes:
    """The record of a bundle of A that has just come to this peer."""
    at = network.peers[peer("A").id]
    (record,) = [each.record for each in published(at, T) if each.channel.spec.peer == peer(to).contact]
    return record


def passed_on(network: Network, record: bytes, at: str = "C") -> list[str]:
    """To whom a peer passes on a bundle that came to it with this record, all of its serials together."""
    arrived: list[Departure] = came(network.peers[peer(at).id], T, record)
    leaving = [each for each in arrived if each.channel.filter != NO_BUNDLE]
    return sorted({str(each.channel.spec.peer.address[0]) for each in leaving})


def forwards(network: Network, name: str) -> bool:
    assignment = network.peers[peer(name).id].membership.ordered_assignments().get(T)
    return assignment is not None and assignment.forwards


def check_gone(network: Network, *names: str) -> None:
    """Nothing is left of these scopes' parts in the topic."""
    for name in names:
        manager = network.managers[scope(name).id]
        assert T not in manager.state.topics
        assert T not in manager.membership.roles
        assert not any(T in parts for parts in manager.orders.parts.values())
    top = network.managers[scope("X").id]
    assert {*names}.isdisjoint(member.party.name for member in top.members.using(T))
    assert top.swaps.running == {}
    network.check()


def test_when_its_last_subscriber_ends_a_scope_forwards_until_others_do() -> None:
    network = campus(Network())
    record = on_its_way(network)
    network.role("C", T, None)
    assert forwards(network, "C"), "also before any manager has heard of it"
    network.settle()
    assert forwards(network, "C")
    assert passed_on(network, record) == ["E"]
    assert network.publish("A", T)["E"] > 0
    network.passed(CHANGED_S)
    assert not forwards(network, "C")
    assert network.publish("A", T) == {"E": 1}
    check_gone(network, "Q")


@pytest.mark.parametrize("seed", range(10))
def test_at_each_moment_a_bundle_gets_through(seed: int) -> None:
    """Messages arrive in any order."""
    network = campus(Network(seed))
    network.role("C", T, None)
    for _ in range(200):
        network.settle(1)
        assert network.publish("A", T)["E"] > 0
    network.passed(CHANGED_S)
    check_gone(network, "Q")


def test_a_scope_through_which_nothing_passes_ends_at_once() -> None:
    network = campus(Network())
    network.role("E", T, None)
    network.settle()
    assert network.managers[scope("Q").id].swaps.running == {}
    check_gone(network, "R")


def test_a_scope_whose_last_member_leaves_it_or_crashes_forwards_nothing() -> None:
    network = campus(Network())
    network.leave("C")
    network.settle()
    assert network.publish("A", T) == {"E": 1}
    network.passed(CHANGED_S)
    check_gone(network, "Q")


def test_a_scope_in_a_scope_that_ends_its_part_with_it_forwards_as_well() -> None:
    network, chain = Network(), {"policy": lambda of: Tree(1)}
    network.add_scope("X", **chain)
    for name, owner, members in (("P", "X", "A"), ("Q", "X", ""), ("L", "Q", "C"), ("R", "X", "E")):
        network.add_scope(name, [owner], **chain)
        for each in members:
            network.add_peer(each, [name])
            network.role(each, T, None, publishes=each == "A", subscribes=each != "A")
            network.settle()
    network.passed(CHANGED_S)
    record = on_its_way(network)
    network.role("C", T, None)
    network.settle()
    assert passed_on(network, record) == ["E"]
    network.passed(CHANGED_S)
    assert network.publish("A", T) == {"E": 1}
    check_gone(network, "L", "Q")


@pytest.mark.parametrize("restarted", ["Q", "X"])
def test_a_manager_that_restarts_meanwhile_goes_on_with_that(restarted: str) -> None:
    network = campus(Network())
    record = on_its_way(network)
    network.role("C", T, None)
    network.settle()
    network.crash_manager(restarted)
    network.settle()
    manager = network.restore_manager(restarted)
    manager.check()
    network.settle()
    if restarted == "Q":
        assert not manager.membership.roles[T].takes_part
    assert passed_on(network, record) == ["E"]
    network.passed(2 * CHANGED_S)
    assert network.publish("A", T) == {"E": 1}
    check_gone(network, "Q")


def test_a_manager_that_restarts_after_others_took_over_keeps_nothing() -> None:
    network = campus(Network())
    network.role("C", T, None)
    network.settle()
    network.crash_manager("Q")
    network.passed(CHANGED_S)
    network.restore_manager("Q")
    network.settle()
    check_gone(network, "Q")


def test_a_scope_that_takes_part_again_meanwhile_goes_on() -> None:
    network = campus(Network())
    network.role("C", T, None)
    network.settle()
    network.role("C", T, None, subscribes=True)
    network.settle()
    assert network.publish("A", T).keys() == {"C", "E"}
    network.passed(2 * CHANGED_S)
    assert network.publish("A", T) == dict.fromkeys("CE", 1)
    network.check()


def test_so_does_one_with_another_member() -> None:
    network = campus(Network())
    network.add_peer("D", ["Q"])
    network.settle()
    network.role("C", T, None)
    network.settle()
    network.role("D", T, None, subscribes=True)
    network.settle()
    assert network.publish("A", T).keys() >= {"D", "E"}
    network.passed(2 * CHANGED_S)
    assert network.publish("A", T) == dict.fromkeys("DE", 1)
    network.check()


@pytest.mark.parametrize("below", [False, True])
def test_a_member_that_only_has_publishers_is_no_reason_to_forward(*, below: bool) -> None:
    """Their events begin at the topic's root. The scope takes part in no channels."""
    network = Network()
    network.add_scope("X")
    manager = network.add_scope("Q", ["X"] if below else [])
    network.add_peer("C", ["Q"])
    network.settle()
    role = Role(T, name="t", has_publishers=True)
    network.carry_out(peer("C").id, network.peers[peer("C").id].take_part(role))
    network.settle()
    network.passed(LEASE_S)
    assert not forwards(network, "C")
    network.carry_out(peer("C").id, network.peers[peer("C").id].take_part(Role(T)))
    network.settle()
    assert T not in manager.state.topics
    network.check()


def test_nor_does_it_end_a_scope_that_still_forwards() -> None:
    """The last subscriber of Q ends, and one that has publishers stays."""
    network = campus(Network())
    network.add_peer("D", ["Q"])
    network.settle()
    role = Role(T, has_publishers=True)
    network.carry_out(peer("D").id, network.peers[peer("D").id].take_part(role))
    network.settle()
    record = on_its_way(network)
    network.role("C", T, None)
    network.settle()
    assert passed_on(network, record) == ["E"]
    network.passed(CHANGED_S)
    assert network.publish("A", T) == {"E": 1}
    assert not forwards(network, "C")
    network.check()


@pytest.mark.parametrize("root", ["X", "R"])
def test_a_peer_cannot_have_a_role_in_which_it_takes_no_part(root: str) -> None:
    network = campus(Network())
    manager = network.managers[scope("Q").id]
    network.add_peer("D", ["Q"])
    network.settle()
    empty = Role(topic("u"), scope(root).id, name="u")
    used = msgspec.structs.replace(empty, subscribes=True)
    for serial, role in enumerate((empty, used, empty), 9):
        manager.received(Registration(scope("Q").id, peer("D"), serial, (role,)), network.now)
        member = manager.members.find(peer("D").id)
        assert member is not None
        assert (topic("u") in member.roles) == role.takes_part
        manager.check()


def test_a_scope_that_turned_to_another_superscope_forwards_nothing_for_the_former_one() -> None:
    """A bundle that came to its former place would keep the copy for its new one from being passed on."""
    network, chain, why = Network(), {"policy": lambda of: Tree(1)}, ["not yet"]
    network.add_scope("X", **chain)
    network.add_scope("V", ["X"], refusal=lambda party, attributes, token: why[0], **chain)
    former = network.add_scope("W", ["X"], **chain)
    membership = network.add_scope("Q", ["V", "W"], **chain).membership
    for name, owner in {"A": "W", "C": "Q", "E": "W"}.items():
        network.add_peer(name, [owner])
        network.role(name, T, None, publishes=name == "A", subscribes=name != "A")
        network.settle()
    network.passed(CHANGED_S)
    assert membership.ordering(T) == scope("W")
    assert former.orders.parts[former.members.labels[scope("Q").id]][T].assignment.forwards
    why.clear()
    why.append("")
    while membership.ordering(T) != scope("V"):
        network.passed(LEASE_S / 3)
    assert T not in former.orders.parts[former.members.labels[scope("Q").id]]
    for _ in range(20):
        assert network.publish("A", T).keys() == {"C", "E"}
    network.passed(CHANGED_S)
    assert network.publish("A", T) == dict.fromkeys("CE", 1)


def test_a_scope_whose_only_member_turned_to_another_one_passes_nothing_on_by_its_former_place() -> None:
    network, chain, why = Network(), {"policy": lambda of: Tree(1)}, ["not yet"]
    network.add_scope("X", **chain)
    for name in ("P", "Q", "R"):
        network.add_scope(name, ["X"], **chain)
    network.add_scope("S", ["X"], refusal=lambda party, attributes, token: why[0], **chain)
    for name, owners in {"A": ["P"], "C": ["S", "Q"], "E": ["R"]}.items():
        network.add_peer(name, owners)
        network.role(name, T, None, publishes=name == "A", subscribes=name != "A")
        network.settle()
    network.passed(CHANGED_S)
    membership = network.peers[peer("C").id].membership
    assert membership.ordering(T) == scope("Q")
    why.clear()
    why.append("")
    for _ in range(30):
        network.passed(LEASE_S / 3)
        assert network.publish("A", T).keys() >= {"C", "E"}
    assert membership.ordering(T) == scope("S")
    assert network.publish("A", T) == dict.fromkeys("CE", 1)
    assert T not in network.managers[scope("Q").id].state.topics


@pytest.mark.parametrize("policy", [Star(), KAry(fan_out=2), Chain()], ids=kind)
def test_a_second_entry_point_that_ends_its_part_does_not_become_the_first(policy: ScopePolicy) -> None:
    network = campus(Network(), policy=lambda of: policy, entry_points=2)
    for name in "DFG":
        network.add_peer(name, ["Q"])
        network.role(name, T, None, subscribes=True)
        network.settle()
    network.passed(CHANGED_S)
    kept = network.managers[scope("Q").id].state.topics[T]
    first, second, *_ = kept.entries
    named = {member.label: member.party.name for member in network.managers[scope("Q").id].state.members.values()}
    network.role(named[second], T, None)
    network.settle()
    assert kept.entries[0] == first
    network.passed(CHANGED_S)
    assert kept.entries[0] == first
    assert second not in kept.entries
    (answer,) = network.managers[scope("Q").id].receiver.answers.values()
    assert [part.filter for _, spec in answer.specs for part in spec.parts] == [Modulo(2, (0,)), Modulo(2, (1,))]


class Slow:
    """A policy that gives no answer any more once it is told so."""

    delivery, answers = "tree", True

    def fan_out_max(self, group: Any) -> int:
        return 16

    def channels(self, *args: Any) -> Any:
        if not self.answers:
            raise NoAnswer("busy")
        return Star().channels(*args)


def test_members_that_go_while_the_policy_gives_no_answer_leave_no_links_to_nobody() -> None:
    policy = Slow()
    network = campus(Network(), policy=lambda of: policy)
    network.add_peer("D", ["Q"])
    network.role("D", T, None, subscribes=True)
    network.settle()
    policy.answers = False
    for name in "FG":
        network.add_peer(name, ["Q"])
        network.role(name, T, None, subscribes=True)
        network.settle()
    for name in "CDFG":
        network.role(name, T, None)
        network.settle()
    for name in "GFDC":
        network.leave(name)
        network.settle()
        network.check()
    network.passed(CHANGED_S)
    check_gone(network, "Q")


DEPARTMENTS = [
    {"policy": partial(lambda policy, of: policy, policy), **config}
    for policy in (Tree(1), Star(), KAry(fan_out=2), Mesh(), Stripes(stripes=2))
    for config in ({}, {"replicas": 2}, {"entry_points": 2}, {"entry_points": 2, "replicas": 2}, {"split": True})
]


def department(seed: int, **config: Any) -> Network:
    """The campus with three more subscribers in Q."""
    network = campus(Network(seed), **config)
    for name in "DFG":
        network.add_peer(name, ["Q"])
        network.role(name, T, None, subscribes=True)
        network.settle()
    network.passed(CHANGED_S)
    return network


@pytest.mark.parametrize("leaving", ["C", "D", "CD"])
@pytest.mark.parametrize("config", rest_long(DEPARTMENTS, 1))
def test_at_each_moment_bundles_get_through_a_scope_some_members_of_which_end_their_part(
    config: dict[str, Any], leaving: str
) -> None:
    """C is the entry point, or the first one, and the delegate. D may be the next in both.

    A new delegate passes bundles on to E as soon as R has told it where to.
    """
    network, staying = department(0, **config), {*"CDEFG"} - {*leaving}
    for name in leaving:
        network.role(name, T, None)
    while any(network.links.values()):
        network.settle(1)
        asked = [each for member in network.peers.values() for each in member.requests.asked.values()]
        waiting = {"E"} if any(each.answer is None for each in asked) else set()
        for serial in range(2):
            assert network.publish("A", T, serial).keys() >= staying - waiting
    network.passed(2 * CHANGED_S)
    for serial in range(2):
        assert network.publish("A", T, serial).keys() == {*"CDEFG"} - {*leaving}
    assert not any(forwards(network, name) for name in leaving)
    assert network.managers[scope("Q").id].state.topics[T].former_delegates == ()
    network.check()


@pytest.mark.parametrize("restarted", ["", "Q"])
@pytest.mark.parametrize("policy", [Tree(1), Star(), Stripes(stripes=2)], ids=kind)
def test_an_entry_point_that_ended_its_part_forwards_what_is_on_its_way_to_it(
    policy: ScopePolicy, restarted: str
) -> None:
    """Both into its scope and out of it: it is the delegate, too."""
    network = department(0, policy=lambda of: policy)
    record = on_its_way(network)
    to = passed_on(network, record)
    network.role("C", T, None)
    network.settle()
    kept = network.managers[scope("Q").id].state.topics[T]
    assert network.managers[scope("Q").id].swaps.running[T].phase is Phase.DRAINING
    if restarted:
        network.crash_manager(restarted)
        network.settle()
        kept = network.restore_manager(restarted).state.topics[T]
        network.settle()
    assert {*passed_on(network, record)} >= {*to}
    assert network.managers[scope("Q").id].state.members[kept.entries[0]].party.name != "C"
    network.passed(CHANGED_S)
    assert passed_on(network, record) == []
    assert network.publish("A", T) == dict.fromkeys("DEFG", 1)


def test_a_record_names_the_scope_until_it_is_released() -> None:
    """It is no stranger: what comes to it by the old channels is admitted there, and is not counted as misrouted."""
    network = campus(Network())
    record = on_its_way(network)
    network.role("C", T, None)
    network.settle()
    controller = network.peers[peer("C").id]
    assert controller.admits(T, decode(record))
    ordered: Assignment = controller.membership.ordered_assignments()[T]
    assert (ordered.rank, ordered.records) == (0, True)


def test_a_scope_misses_bundles_as_long_as_a_member_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its superscope's old channels stay until then."""
    network = campus(Network())
    member = network.peers[peer("C").id]
    network.role("C", T, None)
    with monkeypatch.context() as context:
        context.setattr(member, "passed", partial(member.passed, behind=True))
        network.passed(CHANGED_S)
    assert network.managers[scope("X").id].swaps.story(T).endswith("old channels are draining, waiting for Q")
    assert forwards(network, "C")
    network.passed(LEASE_S)
    check_gone(network, "Q")


@pytest.mark.parametrize("entry_points", [1, 2])
def test_channels_of_former_and_present_delegates_share_the_rate_that_was_agreed(entry_points: int) -> None:
    network, tree = Network(0), {"policy": lambda of: Tree(1)}
    network.add_scope("X", **tree)
    for name, config in (("P", {}), ("Q", {"split": True}), ("R", {"entry_points": entry_points})):
        network.add_scope(name, ["X"], entering=lambda topic: Entering(bytes_per_s=1000), **tree, **config)
    for name, owner in (("A", "P"), ("C", "Q"), ("E", "R"), ("H", "R"), ("D", "Q"), ("F", "Q"), ("G", "Q")):
        network.add_peer(name, [owner])
        network.role(name, T, None, publishes=name == "A", subscribes=name != "A")
        network.settle()
    network.passed(CHANGED_S)
    inside = {peer(name).contact for name in "EH"}
    network.role("C", T, None)
    network.settle()
    assert network.managers[scope("Q").id].state.topics[T].former_delegates
    rates = {
        (name, rate)
        for name in "CDFG"
        for channel in network.peers[peer(name).id].channels
        if isinstance(channel.spec, Address) and channel.spec.peer in inside
        for constraint in channel.constraints
        for rate in constraint.rates
    }
    assert len({name for name, _ in rates}) > 1
    assert sum(rate.bytes_per_s for _, rate in rates if rate.scope == scope("R").id) <= 1000


def test_only_the_peer_that_asked_for_a_channel_or_an_invited_one_ends_it() -> None:
    network = department(0, policy=lambda of: Tree(1), split=True)
    receiver = network.managers[scope("R").id]
    asked = receiver.state.senders[scope("Q").id]
    stranger = msgspec.structs.replace(asked.party, contact=Contact(b"stranger".ljust(16), "s:1"))
    network.carry_out(scope("R").id, receiver.received(ChannelRequest(scope("R").id, stranger, 1), network.now))
    assert scope("Q").id in receiver.state.senders
    network.carry_out(scope("R").id, receiver.received(ChannelRequest(scope("R").id, asked.party, 1), network.now))
    assert scope("Q").id not in receiver.state.senders
