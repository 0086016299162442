"""The policy keeps the rules for policies, and the filter selects and tags the right bundles."""

from two_level import TwoLevel, first_of

from quillcast.core.envelope import DOWN, Envelope
from quillcast.protocol.scopes.conformance import check
from quillcast.protocol.scopes.filters import Custom, compiled
from quillcast.protocol.scopes.policy import Group, WantedChannel


def test_it_keeps_the_rules() -> None:
    assert check(TwoLevel(), TwoLevel()).delivery == "tree"
    assert check(TwoLevel(helpers=1)).delivery == "tree"


def test_helpers_share_the_others() -> None:
    group = Group((1, 2, 3, 4, 5), (1,), (1, 2, 3, 4, 5))
    assert TwoLevel(helpers=2).channels(group, (), lambda one, other: None) == (
        WantedChannel(1, 2, 1),
        WantedChannel(1, 3, 1),
        WantedChannel(2, 4, 1),
        WantedChannel(3, 5, 1),
    )


def test_the_filter_tags_what_it_lets_through() -> None:
    decide = compiled(Custom("first_of", (("n", 3),)), {"first_of": first_of})
    entering = [decide(Envelope(bytes(16), DOWN, serial=serial)) for serial in range(4)]
    assert [None if each is None else each.tags for each in entering] == [b"first", None, None, b"first"]
