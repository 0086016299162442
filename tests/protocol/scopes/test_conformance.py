"""The suite passes the policies that are built in, and notices those that break a rule."""

import random
from itertools import count, pairwise, permutations
from typing import ClassVar

import msgspec
import pytest

from quillcast.protocol.scopes.conformance import Nonconforming, check, check_channels, fan_out
from quillcast.protocol.scopes.filters import AddTag, Every, Modulo, Sample, Tagged
from quillcast.protocol.scopes.policies import BUILT_IN, Chain, DelayOptimised, Gossip, KAry, Mesh, Star, Stripes
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, ScopePolicy, WantedChannel

Channels = tuple[WantedChannel, ...]


@pytest.mark.parametrize(
    "policy",
    [*(policy() for policy in BUILT_IN.values()), DelayOptimised(2, per_origin=True), KAry(2), Mesh(2), Stripes(7)],
    ids=repr,
)
def test_built_in_policies_keep_the_rules(policy: ScopePolicy) -> None:
    report = check(policy, msgspec.structs.replace(policy))
    assert report.delivery == policy.delivery
    assert report.groups > 500


class Mutant:
    """A star, and what a subclass makes of it."""

    delivery: ClassVar[Delivery] = "tree"

    def fan_out_max(self, group: Group) -> int:
        return Star().fan_out_max(group)

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return self.changed(Star().channels(group, (), round_trips), group)

    def changed(self, channels: Channels, group: Group) -> Channels:
        raise NotImplementedError


class ForgetsTheLastReceiver(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each for each in channels if len(group.receivers) < 3 or each.target != group.receivers[-1])


class ForgetsASender(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each for each in channels if each.origin != group.senders[-1])


class MakesACycle(Mutant):
    def fan_out_max(self, group: Group) -> int:
        return len(group.members)

    def changed(self, channels: Channels, group: Group) -> Channels:
        known = {each[:3] for each in channels}
        back = (WantedChannel(each.target, each.source, each.origin) for each in channels[:1])
        return channels + tuple(each for each in back if each[:3] not in known)


class ReachesAReceiverTwice(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        leaves = [each.target for each in channels if each.source == each.origin == group.senders[0]]
        return *channels, *(WantedChannel(one, other, group.senders[0]) for one, other in pairwise(leaves[:2]))


class ExceedsItsFanOut(Mutant):
    def fan_out_max(self, group: Group) -> int:
        return 3

    def changed(self, channels: Channels, group: Group) -> Channels:
        return channels


class NamesAStranger(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each._replace(target=max(group.members) + 1) for each in channels)


class NamesAnOriginThatLeft(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return *channels, *(each._replace(origin=0) for each in channels[:1])


class SendsToItself(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return *channels, *(WantedChannel(label, label, label) for label in group.members[:1])


class WantsAChannelTwice(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return channels + channels[:1]


class RollsDice(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(random.sample(channels, len(channels)))


class KeepsState(Mutant):
    asked: ClassVar = count()

    def changed(self, channels: Channels, group: Group) -> Channels:
        return channels if next(self.asked) % 100 else channels[::-1]


class DependsOnTheOrderOfStandingChannels(Mutant):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        channels = Star().channels(group, present, round_trips)
        return channels[::-1] if present and present[0].source > present[-1].source else channels


class NeverSettles(Mutant):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        orders = tuple(permutations(group.receivers))[:2]
        flipped = Chain().channels(group._replace(receivers=orders[-1]), (), round_trips) if orders else ()
        return Chain().channels(group, (), round_trips) if set(present) == set(flipped) else flipped

    def fan_out_max(self, group: Group) -> int:
        return 2


class LosesEveryThirdBundle(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each._replace(filter=Modulo(3, (0, 1))) for each in channels)


class SamplesAndCallsItATree(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each._replace(filter=Sample(0.5)) for each in channels)


class WantsATagThatNobodyNotes(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return tuple(each._replace(filter=Tagged("north")) for each in channels)


class AnswersWithAList(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return list(channels)  # type: ignore[return-value]


class ClaimsToBeRedundant(ForgetsTheLastReceiver):
    delivery = "redundant"


class ClaimsToBeLossy(ForgetsTheLastReceiver):
    delivery = "lossy"


class HasNoClass(Mutant):
    delivery = "some"  # type: ignore[assignment]


class IsMissing(Mutant):
    def changed(self, channels: Channels, group: Group) -> Channels:
        return ()


MUTANTS = {
    ForgetsTheLastReceiver: "gets no copy",
    ForgetsASender: "gets no copy",
    MakesACycle: "comes back to it",
    ReachesAReceiverTwice: "gets 2 copies",
    ExceedsItsFanOut: "is number 4 of its source for one origin; fan_out_max says 3",
    NamesAStranger: "which is not a member",
    NamesAnOriginThatLeft: "names 0, which is not a member",
    SendsToItself: "from a member to itself",
    WantsAChannelTwice: "is wanted twice",
    RollsDice: "asked again|in another order|although nothing else changed",
    KeepsState: "asked again|in another order|although nothing else changed",
    DependsOnTheOrderOfStandingChannels: "in another order|although nothing else changed",
    NeverSettles: "although nothing else changed",
    LosesEveryThirdBundle: "gets no copy",
    SamplesAndCallsItATree: "gets no copy",
    WantsATagThatNobodyNotes: "gets no copy",
    AnswersWithAList: "tuple of WantedChannel",
    ClaimsToBeRedundant: "gets no copy",
    ClaimsToBeLossy: "gets none of 1 bundles",
    HasNoClass: "delivery is 'some'; choose one of tree, redundant, lossy",
    IsMissing: "gets no copy",
}


@pytest.mark.parametrize(("mutant", "text"), MUTANTS.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_policy_that_breaks_a_rule_is_noticed(mutant: type[Mutant], text: str) -> None:
    with pytest.raises(Nonconforming, match=text):
        check(mutant())


def test_another_instance_that_answers_something_else_is_noticed() -> None:
    with pytest.raises(Nonconforming, match="asked again"):
        check(KAry(2), KAry(3))


def test_the_group_that_shows_the_fault_is_told() -> None:
    with pytest.raises(Nonconforming, match=r"\(members 26; senders 26; receivers 26\)"):
        check(SendsToItself())


def test_tags_travel_with_a_bundle() -> None:
    class TagsOnTheWay(Mutant):
        """Hubs take only what a sender has tagged."""

        def changed(self, channels: Channels, group: Group) -> Channels:
            return tuple(
                each._replace(filter=AddTag("sent") if each.source == each.origin else Every((Tagged("sent"),)))
                for each in channels
            )

    assert check(TagsOnTheWay()).groups > 500


def test_fan_out_counts_what_carries_bundles_of_one_origin() -> None:
    channels = [WantedChannel(1, 2, None), WantedChannel(1, 3, 7), WantedChannel(1, 4, 8), WantedChannel(1, 5, 8)]
    assert fan_out(channels) == 3
    assert fan_out(reversed(channels)) == 3
    group = Group((1, 2, 3, 4, 5, 7, 8), (7, 8), (1, 2, 3, 4, 5))
    check_channels(group, channels, 3)
    with pytest.raises(Nonconforming, match="fan_out_max says 2"):
        check_channels(group, channels, 2)


def test_gossip_may_lose_what_others_may_not() -> None:
    assert check(Gossip(fan_out=2, view=12)).groups > 500
