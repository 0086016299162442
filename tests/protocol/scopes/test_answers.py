"""A policy that answers later, or not any more: what its manager orders meanwhile."""

import pytest

from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.policies.chain import Chain
from quillcast.protocol.scopes.policies.mesh import Mesh
from quillcast.protocol.scopes.policies.ring import Ring
from quillcast.protocol.scopes.policy import (
    ALL,
    AnswerComes,
    Group,
    NoAnswer,
    PolicyStopped,
    RoundTrips,
    ScopePolicy,
    WantedChannel,
    of_topic,
)
from quillcast.protocol.scopes.reach import carried, unreached
from quillcast.protocol.scopes.swaps import Phase
from tests.protocol.scopes.network import LEASE_S, topic
from tests.protocol.scopes.test_swaps import Site

T = topic("t")
COMES, STOPPED = AnswerComes("an answer of policy mine"), PolicyStopped("policy mine was stopped: it sleeps")


class Later:
    """A policy that gives no answer while `why` says why."""

    def __init__(self, policy: ScopePolicy, why: NoAnswer | None = None) -> None:
        self.policy, self.why = policy, why
        self.delivery = policy.delivery

    def fan_out_max(self, group: Group) -> int:
        return self.policy.fan_out_max(group)

    def channels(
        self, group: Group, present: tuple[WantedChannel, ...], round_trips: RoundTrips
    ) -> tuple[WantedChannel, ...]:
        if self.why is not None:
            raise self.why
        return self.policy.channels(group, present, round_trips)


def answer(site: Site, policy: Later, why: NoAnswer | None = None) -> None:
    """It answers, or was stopped."""
    policy.why = why
    site.network.carry_out(site.manager.state.scope.id, site.manager.policy_answered(T))
    site.network.settle()


def wanted(site: Site) -> set[tuple[int, int]]:
    return {each[:2] for each in site.manager.state.topics[T].channels}


@pytest.mark.parametrize("kind", [Chain, Ring, Mesh])
def test_members_are_served_before_the_policy_has_answered_and_by_its_channels_afterwards(
    kind: type[ScopePolicy],
) -> None:
    policy = Later(kind(), COMES)
    site = Site(policy)
    assert wanted(site) == set()
    assert site.received() == dict.fromkeys("BCD", 1)
    answer(site, policy)
    assert wanted(site) == wanted(Site(kind()))
    assert site.received().keys() == {*"BCD"}
    site.network.passed(4 * LEASE_S)
    assert site.manager.state.topics[T].bridges == ()
    copies, expected = site.received().values(), Site(kind()).received().values()
    assert sum(copies) == sum(expected), "nothing goes beside the policy's channels any more"


@pytest.mark.parametrize("kind", [Chain, Ring, Mesh])
def test_a_newcomer_is_served_while_a_policy_answers_and_after_it_was_stopped(kind: type[ScopePolicy]) -> None:
    policy = Later(kind())
    site = Site(policy)
    site.network.passed(4 * LEASE_S)
    before = wanted(site)
    policy.why = COMES
    site.join("E")
    assert wanted(site) == before
    assert site.received().keys() == {*"BCDE"}
    assert site.manager.stopped == {}
    answer(site, policy, STOPPED)
    site.network.passed(8 * LEASE_S)
    assert wanted(site) == before
    assert site.received().keys() == {*"BCDE"}
    assert site.received()["E"] == 1
    assert site.manager.stopped[T] == (
        "policy mine was stopped: it sleeps; the last good channels stay, and members that they do not lead to are "
        "served along the topic's tree; to continue, set a policy (quillcast scope policy set)"
    )


def test_those_below_a_member_that_is_gone_are_served_after_the_policy_was_stopped() -> None:
    policy = Later(Chain())
    site = Site(policy)
    answer(site, policy, STOPPED)
    assert site.received() == dict.fromkeys("BCD", 1)
    site.leave("B")
    site.network.passed(8 * LEASE_S)
    assert site.received() == dict.fromkeys("CD", 1)


@pytest.mark.parametrize("kind", [Chain, Ring])
@pytest.mark.parametrize("gone", ["A", "B"])
def test_so_are_those_between_two_publishers(kind: type[ScopePolicy], gone: str) -> None:
    policy = Later(kind())
    site = Site(policy)
    for name in "CD":
        site.network.role(name, T, "X", publishes=True, subscribes=True)
        site.network.settle()
    site.network.passed(4 * LEASE_S)
    answer(site, policy, STOPPED)
    site.leave(gone)
    site.network.passed(8 * LEASE_S)
    left = {*"ABCD"} - {gone}
    for publisher in "CD":
        assert site.network.publish(publisher, T).keys() >= left - {publisher}


def test_a_policy_that_is_set_takes_the_place_of_one_that_was_stopped() -> None:
    policy = Later(Ring())
    site = Site(policy)
    site.network.passed(4 * LEASE_S)
    answer(site, policy, STOPPED)
    site.join("E")
    site.change(Chain())
    site.network.passed(8 * LEASE_S)
    assert site.manager.stopped == {}
    assert site.manager.state.topics[T].bridges == ()
    assert site.received() == dict.fromkeys("BCDE", 1)


def test_nothing_changes_to_a_policy_before_it_has_answered() -> None:
    site, policy = Site(Chain()), Later(Mesh(), COMES)
    before = wanted(site)
    site.change(policy)
    site.network.passed(3 * LEASE_S)
    assert site.phase() is Phase.INSTALLING
    assert site.manager.swaps.story(T) == (
        "changing the policy: new channels are being installed, waiting for an answer of policy mine"
    )
    assert wanted(site) == before
    answer(site, policy)
    site.network.passed(4 * LEASE_S)
    assert site.phase() is None
    assert wanted(site) == wanted(Site(Mesh()))


def test_nor_to_one_that_was_stopped() -> None:
    site, policy = Site(Chain()), Later(Mesh(), COMES)
    before = wanted(site)
    site.change(policy)
    answer(site, policy, STOPPED)
    assert site.manager.swaps.story(T) == "the policy stays as it was: policy mine was stopped: it sleeps"
    site.network.passed(3 * LEASE_S)
    assert site.phase() is None
    assert wanted(site) == before
    assert site.received() == dict.fromkeys("BCD", 1)


def test_a_policy_may_be_another_object_in_each_topic() -> None:
    class Beside(Later):
        def of_topic(self, topic: bytes) -> tuple[str, bytes]:
            return "in", topic

    assert repr(of_topic(Beside(Chain()), T)) == repr(("in", T))
    assert of_topic(chain := Chain(), T) is chain


GROUP = Group((1, 2, 3), (1, 3), (1, 2, 3))


def test_channels_reach_whom_they_lead_to_from_each_sender() -> None:
    to_all = (WantedChannel(1, ALL, None), WantedChannel(3, 1, 3), WantedChannel(3, 2, 3))
    assert unreached("tree", GROUP, to_all, (1, 3)) == frozenset()
    assert unreached("tree", GROUP, to_all[:2], (1, 3)) == frozenset(), "1 passes on what comes from anywhere"
    assert unreached("tree", GROUP, to_all[1:], (1, 3)) == {2, 3}
    assert unreached("tree", GROUP, (), (1,)) == {2, 3}
    assert unreached("tree", GROUP, (), ()) == frozenset()


def test_each_share_of_divided_bundles_has_to_come_unless_recovery_fills_gaps() -> None:
    halves = [Modulo(2, (0,)), Modulo(2, (1,))]
    channels = tuple(WantedChannel(1, to, None, half) for to in (2, 3) for half in halves)
    assert unreached("tree", GROUP, channels, (1,)) == frozenset()
    assert unreached("tree", GROUP, channels[:-1], (1,)) == {3}
    assert unreached("lossy", GROUP, channels[:-1], (1,)) == frozenset()


def test_bundles_of_those_without_channels_take_the_tree() -> None:
    channels = (WantedChannel(1, 2, 1), WantedChannel(2, 3, 1))
    assert carried(GROUP, channels, (1,)) == (1,)
    assert carried(GROUP, (*channels, WantedChannel(3, 2, None)), (1,)) == (1, 3)
