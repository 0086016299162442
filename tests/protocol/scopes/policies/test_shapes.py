"""What each policy makes of a group."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from statistics import mean
from typing import Any

import msgspec
import pytest

from quillcast.core.multicast import UdpGroup, parse
from quillcast.protocol.scopes.filters import Modulo
from quillcast.protocol.scopes.policies import (
    BUILT_IN,
    Chain,
    DelayOptimised,
    Gossip,
    IpMulticast,
    KAry,
    Mesh,
    Ring,
    Star,
    Stripes,
)
from quillcast.protocol.scopes.policy import ALL, Group, ScopePolicy, WantedChannel

Channels = tuple[WantedChannel, ...]


def unmeasured(_: int, __: int) -> float | None:
    return None


def round_trips(one: int, other: int) -> float:
    """Members scattered over a square: a round trip takes a second per step along both axes."""
    return float(abs(one * 37 % 101 - other * 37 % 101) + abs(one * 61 % 97 - other * 61 % 97))


def everybody(count: int, senders: int = 1) -> Group:
    members = tuple(range(1, count + 1))
    return Group(members, members[:senders], members)


def parents(channels: Channels, origin: int) -> dict[int, int]:
    return {each.target: each.source for each in channels if each.origin in (None, origin)}


def depths(parents: Mapping[int, int], origin: int) -> dict[int, int]:
    def depth(member: int) -> int:
        return 0 if member == origin else 1 + depth(parents[member])

    return {member: depth(member) for member in parents}


def ends(channels: Channels) -> set[tuple[int, int, int | None]]:
    return {each[:3] for each in channels}


def test_a_star_has_the_first_sender_in_its_middle() -> None:
    group = Group((1, 2, 3, 4), (3, 1), (2, 3, 4))
    assert ends(Star().channels(group, (), unmeasured)) == {
        (3, 2, 3), (3, 4, 3), (1, 3, 1), (3, 2, 1), (3, 4, 1)
    }  # fmt: skip


def test_a_star_keeps_its_middle_when_an_earlier_sender_comes() -> None:
    present = Star().channels(Group((1, 2, 3, 4), (3,), (2, 3, 4)), (), unmeasured)
    after = Star().channels(Group((1, 2, 3, 4), (2, 3), (2, 3, 4)), present, unmeasured)
    assert set(present) < set(after)


def test_a_stars_middle_moves_to_the_member_that_alone_sends() -> None:
    """So it does when the entry point moves, through which all bundles come."""
    present = Star().channels(Group((1, 2, 3, 4), (1,), (1, 2, 3, 4)), (), unmeasured)
    after = Star().channels(Group((1, 2, 3, 4), (2,), (1, 2, 3, 4)), present, unmeasured)
    assert ends(after) == {(2, 1, 2), (2, 3, 2), (2, 4, 2)}


def test_a_chain_goes_both_ways_from_where_a_bundle_begins() -> None:
    channels = Chain().channels(Group((1, 2, 3, 4), (3,), (1, 2, 3, 4)), (), unmeasured)
    assert ends(channels) == {(3, 2, 3), (2, 1, 3), (3, 4, 3)}


def test_a_k_ary_tree_is_as_shallow_as_it_can_be() -> None:
    channels = KAry(3).channels(everybody(40), (), unmeasured)
    deep = depths(parents(channels, 1), 1)
    assert Counter(deep.values()) == {1: 3, 2: 9, 3: 27}


def test_all_origins_use_the_links_of_one_tree() -> None:
    channels = KAry(3).channels(everybody(40, senders=8), (), unmeasured)
    links = {frozenset(each[:2]) for each in channels}
    assert len(links) == 39
    assert len(channels) == 8 * 39


def test_a_k_ary_tree_stays_shallow_through_many_changes() -> None:
    policy, group = KAry(2), everybody(31)
    channels = policy.channels(group, (), unmeasured)
    for label in range(100, 200):
        gone = group.receivers[1 + label % 29]
        members = (*(each for each in group.members if each != gone), label)
        group = Group(members, (1,), members)
        channels = policy.channels(group, channels, unmeasured)
        assert max(depths(parents(channels, 1), 1).values()) <= 6, "two more than the best"


def test_a_ring_goes_both_ways_and_takes_in_those_that_only_send() -> None:
    channels = Ring().channels(Group((1, 2, 3, 4, 5), (3, 5), (1, 2, 4, 5)), (), unmeasured)
    around = [(1, 2), (2, 4), (4, 5), (5, 1)]
    both = {(one, other, None) for one, other in around} | {(other, one, None) for one, other in around}
    assert ends(channels) == both | {(3, 4, 3), (3, 2, 3)}


@pytest.mark.parametrize(("policy", "lost"), [(Ring(), 1), (Mesh(4), 3), (Mesh(6), 5)], ids=repr)
def test_redundant_policies_reach_all_others_when_some_are_lost(policy: ScopePolicy, lost: int) -> None:
    channels = policy.channels(everybody(50), (), unmeasured)
    for first in range(2, 50 - lost):
        gone = set(range(first, first + lost))
        reached = {1}
        for _ in range(50):
            reached |= {each.target for each in channels if each.source in reached and each.target not in gone}
        assert len(reached) == 50 - lost


def test_gossip_reaches_about_as_many_as_theory_says() -> None:
    """A share x of all gets a bundle, where 1 - x = e^(-f x): 98 % with a fan-out of 4."""
    policy = Gossip(fan_out=4, view=12)
    channels = policy.channels(everybody(200, senders=20), (), unmeasured)
    reached = [len(spread_of(channels, origin, serial)) / 200 for origin in range(1, 21) for serial in range(12)]
    assert 0.96 < mean(reached) < 0.995


def test_gossip_sends_each_bundle_to_as_many_others_as_its_fan_out() -> None:
    channels = Gossip(fan_out=4, view=12).channels(everybody(1000), (), unmeasured)
    for serial in range(24):
        sent = Counter(each.source for each in channels if passes(each, serial))
        assert max(sent.values()) == 4
        assert min(sent.values()) >= 3, "two rings may lead to the same member"


def passes(channel: WantedChannel, serial: int) -> bool:
    assert isinstance(channel.filter, Modulo)
    return serial % channel.filter.n in channel.filter.k


def spread_of(channels: Channels, origin: int, serial: int) -> set[int]:
    outgoing: dict[int, list[int]] = {}
    for each in channels:
        if each.origin in (None, origin) and (each.filter is None or passes(each, serial)):
            outgoing.setdefault(each.source, []).append(each.target)
    reached, around = {origin}, [origin]
    for at in around:
        new = [each for each in outgoing.get(at, ()) if each not in reached]
        reached.update(new)
        around += new
    return reached


def test_stripes_are_interior_disjoint_and_share_the_work() -> None:
    channels = Stripes(4).channels(everybody(40), (), unmeasured)
    forwarders = [{each.source for each in channels if passes(each, stripe)} - {1} for stripe in range(4)]
    assert sum(map(len, forwarders)) == len(set[int]().union(*forwarders))
    work = Counter(each.source for each in channels for stripe in range(4) if passes(each, stripe))
    assert max(work.values()) <= 2 * 4, "at most twice what a member receives"
    for stripe in range(4):
        assert len(spread_of(channels, 1, stripe)) == 40


def test_delay_optimised_trees_are_near_the_best_that_the_fan_out_allows() -> None:
    group = everybody(100)
    tree = parents(DelayOptimised(fan_out=4).channels(group, (), round_trips), 1)
    blind = parents(KAry(4).channels(group, (), round_trips), 1)
    assert mean_delay(tree, 1) < 1.2 * mean(round_trips(1, each) / 2 for each in group.members[1:])
    assert mean_delay(tree, 1) < 0.8 * mean_delay(blind, 1)


def mean_delay(parents: Mapping[int, int], origin: int) -> float:
    def delay(member: int) -> float:
        return 0 if member == origin else delay(parents[member]) + round_trips(member, parents[member]) / 2

    return mean(map(delay, parents))


def test_one_tree_per_origin_is_faster_than_one_for_all() -> None:
    group = everybody(60, senders=60)
    shared = DelayOptimised(fan_out=4).channels(group, (), round_trips)
    own = DelayOptimised(fan_out=4, per_origin=True).channels(group, (), round_trips)

    def over_all(channels: Channels) -> float:
        return mean(mean_delay(parents(channels, origin), origin) for origin in group.senders)

    assert over_all(own) < 0.95 * over_all(shared)
    assert len({frozenset(each[:2]) for each in shared}) < len({frozenset(each[:2]) for each in own})


def test_a_delay_optimised_tree_stands_until_another_is_much_better() -> None:
    policy, group = DelayOptimised(fan_out=4), everybody(50)
    stands = policy.channels(group, (), round_trips)
    assert policy.channels(group, stands, lambda a, b: round_trips(a, b) * (1 + (a * b % 7) / 100)) == stands
    turned = policy.channels(group, stands, lambda a, b: round_trips(a * 37 % 101, b * 37 % 101))
    assert len(set(turned) & set(stands)) < len(stands) / 4


def test_pairs_that_nobody_measured_count_as_far_apart() -> None:
    measured = dict.fromkeys([(1, 2), (2, 1), (2, 3), (3, 2), (1, 3), (3, 1)], 0.01)
    channels = DelayOptimised(fan_out=2).channels(
        Group((1, 4, 2, 3), (1,), (1, 4, 2, 3)),
        (),
        lambda a, b: measured.get((a, b)),
    )
    assert ends(channels) == {(1, 2, 1), (1, 3, 1), (2, 4, 1)}


# The channels that a join, and a leave of the oldest member, change at most in the mean: of 64 members with one sender.
FEW: dict[str, tuple[float, float]] = {
    "star": (1, 1),
    "k_ary": (1, 8),
    "chain": (1, 3),
    "ring": (6, 6),
    "mesh": (12, 12),
    "gossip": (37, 37),
    "stripes": (4, 22),
    "delay_optimised": (1, 6),
    "ip_multicast": (0, 0),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_small_change_of_the_group_changes_few_channels(name: str) -> None:
    policy = BUILT_IN[name]()
    joined, left = [], []
    before = everybody(64)
    present = policy.channels(before, (), round_trips)
    for label, gone in zip(range(65, 125), range(2, 62), strict=True):
        members = (*before.members, label)
        more = policy.channels(Group(members, (1,), members), present, round_trips)
        members = tuple(each for each in members if each != gone)
        before = Group(members, (1,), members)
        fewer = policy.channels(before, more, round_trips)
        joined.append(len(set(more) ^ set(present)))
        left.append(len(set(fewer) ^ set(more)))
        present = fewer
    assert mean(joined) <= FEW[name][0]
    assert mean(left) <= FEW[name][1]


@pytest.mark.parametrize(
    ("policy", "parameters", "text"),
    [
        (KAry, {"fan_out": 1}, r"Expected `int` >= 2 - at `\$.fan_out`"),
        (KAry, {"fan_out": "4"}, r"Expected `int`, got `str` - at `\$.fan_out`"),
        (KAry, {"fanout": 4}, r"unknown field `fanout`"),
        (Mesh, {"degree": 3}, r"multiple of 2"),
        (Gossip, {"fan_out": 8, "view": 4}, r"fan_out = 8 is larger than view = 4; choose a larger view"),
        (Star, {"fan_out": 4}, r"unknown field `fan_out`"),
        (IpMulticast, {"group": "10.0.0.1:8167"}, r'group = "10.0.0.1:8167" is not a multicast group; write an'),
        (IpMulticast, {"group": "[ff02::1]:8167"}, r"is not a multicast group; write an address"),
        (IpMulticast, {"group": "ff15::5143:8167"}, r"or \[ff15::5143\]:8167"),
        (IpMulticast, {"group": "[ff15::x]:8167"}, r"is not a multicast group"),
        (IpMulticast, {"group": "224.0.0.1:8167"}, r"is not a multicast group"),
        (IpMulticast, {"group": "239.0.0.1"}, r"is not a multicast group"),
        (IpMulticast, {"hops": 0}, r"Expected `int` >= 1 - at `\$.hops`"),
    ],
)
def test_parameters_are_checked(policy: type[Any], parameters: dict[str, object], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        msgspec.convert(parameters, policy)


@pytest.mark.parametrize("policy", [policy() for policy in BUILT_IN.values()], ids=repr)
@pytest.mark.parametrize(
    "group",
    [
        Group((), (), ()),
        Group((1,), (1,), (1,)),
        Group((1, 2), (), (1, 2)),
        Group((1, 2), (1, 2), ()),
    ],
    ids=["nobody", "alone", "no sender", "no receiver"],
)
def test_where_there_is_nothing_to_carry_there_are_no_channels(policy: ScopePolicy, group: Group) -> None:
    assert policy.channels(group, (), unmeasured) == ()


def test_members_that_do_nothing_in_the_topic_are_left_alone() -> None:
    group = Group(tuple(range(1, 9)), (2,), (2, 4, 6))
    for policy in BUILT_IN.values():
        if policy is not IpMulticast:  # which names nobody but the senders
            named = {label for each in policy().channels(group, (), unmeasured) for label in each[:2]}
            assert named == {2, 4, 6}


def test_ip_multicast_has_one_channel_to_all_for_each_sender() -> None:
    group = Group((1, 2, 3), (3, 1), (2, 3))
    assert IpMulticast().channels(group, (), unmeasured) == (WantedChannel(1, ALL, 1), WantedChannel(3, ALL, 3))
    assert IpMulticast().channels(Group((1, 2), (1,), (1,)), (), unmeasured) == ()
    assert parse(IpMulticast().mechanism) == UdpGroup("239.255.81.67", 8167, 1, 1400, 12_500_000)
    ipv6 = IpMulticast(group="[FF15:0::5143]:8167")
    assert ipv6.mechanism.startswith("udp://[ff15::5143]:8167?hops=1&")
    assert parse(ipv6.mechanism) == UdpGroup("ff15::5143", 8167, 1, 1400, 12_500_000)


def test_a_chain_is_a_line() -> None:
    channels = Chain().channels(everybody(6), (), unmeasured)
    assert ends(channels) == {(one, other, 1) for one, other in pairwise(range(1, 7))}
