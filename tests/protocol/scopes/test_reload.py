"""A running scope goes by another configuration: what members, clients and senders hear of it."""

from typing import Any

from quillcast.core.ids import topic_id
from quillcast.protocol.scopes.channels import Party, Rate
from quillcast.protocol.scopes.clients import client_id
from quillcast.protocol.scopes.effects import NotEntitled, Save, ScopeEffect, Send
from quillcast.protocol.scopes.manager import ScopeManager
from quillcast.protocol.scopes.messages import Alive, Bounds, Orders, Registration, Role, TopicBounds
from quillcast.protocol.scopes.state import Entering, MayLeave
from tests.protocol.scopes.network import LEASE_S, Network, Tree, peer, scope, topic

T, NEWS = topic("t"), topic_id("news")


def reload(network: Network, name: str, **config: Any) -> list[ScopeEffect]:
    """The scope's file says this now."""
    id_ = scope(name).id
    network.configs[id_] = network.configs[id_]._replace(**config)
    effects = manager(network, name).reconfigure(network.configs[id_])
    network.carry_out(id_, effects)
    network.settle()
    return effects


def manager(network: Network, name: str) -> ScopeManager:
    return network.managers[scope(name).id]


def two_sites() -> Network:
    """A and B, in P, publish to C and D, in Q. Both scopes are members of X, at which the topic is rooted."""
    network = Network()
    network.add_scope("X")
    for site, members in {"P": "AB", "Q": "CD"}.items():
        network.add_scope(site, ["X"])
        for name in members:
            network.add_peer(name, [site])
            network.role(name, T, "X", publishes=site == "P", subscribes=True)
            network.settle()
    return network


def sending(network: Network, name: str) -> set[Rate]:
    channels = network.peers[peer(name).id].channels
    return {rate for channel in channels for each in channel.constraints for rate in each.rates}


def news(network: Network, name: str) -> None:
    """This member asks to publish and subscribe."""
    role = Role(NEWS, scope("Q").id, has_publishers=True, subscribes=True, name="news")
    network.carry_out(peer(name).id, network.peers[peer(name).id].take_part(role))
    network.settle()


def refused(network: Network, name: str) -> list[str]:
    return [doing for doing, _ in network.peers[peer(name).id].membership.refusals(NEWS)]


def test_both_sides_agree_on_another_rate_when_either_file_changes() -> None:
    network, (p, q) = two_sites(), (scope("P").id, scope("Q").id)
    assert sending(network, "B") == set()
    reload(network, "P", leaving=lambda topic: MayLeave(400))
    assert sending(network, "B") == {Rate(p, T, 400, leaves=True), Rate(q, T, 400)}
    reload(network, "Q", entering=lambda topic: Entering(bytes_per_s=300))
    assert sending(network, "B") == {Rate(p, T, 400, leaves=True), Rate(q, T, 300)}
    reload(network, "P", leaving=lambda topic: MayLeave())
    reload(network, "Q", entering=lambda topic: Entering(bytes_per_s=700), in_all=Entering(bundles_per_s=9))
    assert sending(network, "B") == {Rate(q, T, 700), Rate(q, None, 0, 9)}
    network.check()


def test_bundles_enter_by_another_number_of_members_and_leave_by_another() -> None:
    network = two_sites()
    reload(network, "Q", entry_points=2)
    reload(network, "P", replicas=2)
    network.passed(LEASE_S)
    crossing = {
        (label.source[1:], label.target[1:])
        for each in "AB"
        for label in (channel.label for channel in network.peers[peer(each).id].channels)
        if len(label.target) > 1
    }
    assert len(crossing) == 4, "each of two members of P leads to each of two of Q"
    for serial in range(4):
        assert network.publish("A", T, serial) == dict.fromkeys("BCD", 1)
    reload(network, "Q", entry_points=1)
    network.passed(LEASE_S)
    assert network.publish("A", T) == dict.fromkeys("BCD", 1)
    network.check()


def test_another_policy_takes_effect_in_two_phases_and_no_bundle_is_lost() -> None:
    network = Network()
    network.add_scope("P")
    for name in "ABCDEF":
        network.add_peer(name, ["P"])
        network.role(name, T, "P", publishes=name == "A", subscribes=name != "A")
    network.settle()
    effects = reload(network, "P", policy=lambda topic: Tree(1))
    assert effects[0] == Save()
    assert manager(network, "P").swaps.story(T).startswith("changing the policy: ")
    assert network.publish("A", T) == dict.fromkeys("BCDEF", 1)
    for _ in range(12):
        network.passed(LEASE_S / 3)
        assert network.publish("A", T) == dict.fromkeys("BCDEF", 1)
    assert manager(network, "P").swaps.story(T) == ""
    sources = [each.source for each in manager(network, "P").state.topics[T].channels]
    assert len({*sources}) == len(sources) == 5


def test_members_hear_of_bounds_although_no_topic_of_theirs_changes() -> None:
    network, bounds = two_sites(), (TopicBounds("news", True, False, False),)
    reload(network, "Q", bounds=bounds)
    for name, told in (("C", (Bounds(bounds),)), ("A", ())):
        assert network.peers[peer(name).id].membership.bounds() == told


def test_a_right_that_is_taken_away_ends_what_began_with_it_and_comes_back_with_the_file() -> None:
    network, who = two_sites(), list[str]()
    news(network, "C")
    assert refused(network, "C") == []

    def why(party: Party, attributes: object, topic: str, doing: str) -> str:
        return "" if doing == "subscribes" or party.name in who else f"{party.name} may not"

    bounds = (TopicBounds("news", True, False, False),)
    told = NotEntitled("C may not")
    assert reload(network, "Q", rights=why, bounds=bounds).count(told) == 1
    assert refused(network, "C") == ["publishes"]
    assert network.peers[peer("C").id].membership.answer(NEWS).subscribes
    assert told in reload(network, "Q"), "the operator hears again of what is still refused"
    who.append("C")
    assert told not in reload(network, "Q")
    assert refused(network, "C") == []
    assert not manager(network, "Q").rights.told


def test_a_member_that_is_no_longer_admitted_is_dismissed_and_returns_when_it_is() -> None:
    network = two_sites()

    def only_d(party: Party, attributes: object, token: str) -> str:
        return "" if party.name == "D" else f"{party.name} is not listed"

    reload(network, "Q", refusal=only_d)
    assert [each.party.name for each in manager(network, "Q").state.members.values()] == ["D"]
    assert network.peers[peer("C").id].membership.obstacle() == "C is not listed"
    assert network.publish("A", T) == dict.fromkeys("BD", 1)
    reload(network, "Q", refusal=lambda party, attributes, token: "")
    network.passed(LEASE_S)
    assert network.peers[peer("C").id].membership.obstacle() == ""
    assert network.publish("A", T) == dict.fromkeys("BCD", 1)
    network.check()


def test_clients_hear_what_they_may_do_now_with_the_next_keep_alive() -> None:
    network = two_sites()
    host, id_ = peer("C"), client_id(peer("C").id, 1)
    client = Party(id_, host.contact, name="app")
    role = Role(NEWS, scope("Q").id, publishes=True, subscribes=True, name="news")
    registered = manager(network, "Q").received(Registration(scope("Q").id, client, 1, (role,)), 0.0)

    def told(effects: list[ScopeEffect]) -> Orders:
        (orders,) = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Orders)]
        return orders

    first = told(registered)
    assert first.assignments[0].publishes
    reload(network, "Q", clients=lambda topic: "subscribe")
    second = told(manager(network, "Q").received(Alive(scope("Q").id, client, first.epoch, first.number), 0.0))
    assert (second.assignments[0].publishes, second.assignments[0].subscribes) == (False, True)
    assert second.serial == 1


def test_a_manager_that_another_one_followed_changes_nothing() -> None:
    network = two_sites()
    manager(network, "Q").superseded = True
    assert reload(network, "Q", entry_points=2) == []
    assert manager(network, "Q").config.entry_points == 1
