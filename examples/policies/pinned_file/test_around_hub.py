"""The policy keeps the rules for policies, and its hub is near the others."""

from around_hub import AroundHub

from quillcast.protocol.scopes.conformance import check
from quillcast.protocol.scopes.policy import Group


def test_it_keeps_the_rules() -> None:
    assert check(AroundHub(), AroundHub()).delivery == "tree"


def test_the_hub_is_the_nearest_member() -> None:
    group = Group((1, 2, 3), (1,), (1, 2, 3))
    channels = AroundHub().channels(group, (), lambda one, other: abs(one - 2) + abs(other - 2.0))
    assert [(each.source, each.target) for each in channels] == [(1, 2), (2, 3)]
