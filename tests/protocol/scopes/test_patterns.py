"""Patterns of topic names: what they cover, and which of them share topics."""

from itertools import product

import pytest

from quillcast.core.errors import LocalError
from quillcast.protocol.scopes.patterns import check, covers, overlap

PARTS = ("a", "b", "+", "#")
PATTERNS = [
    "/".join(parts)
    for length in (1, 2, 3)
    for parts in product(PARTS, repeat=length)
    if "#" not in parts[:-1]
]  # fmt: skip
NAMES = ["/".join(parts) for length in (1, 2, 3, 4) for parts in product(("a", "b", "c"), repeat=length)]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("sport/tennis", "sport/tennis", True),
        ("sport/+", "sport/tennis", True),
        ("sport/+", "sport/tennis/open", False),
        ("sport/#", "sport/tennis/open", True),
        ("sport/#", "sport", True),
        ("sport/#", "sports", False),
        ("+/tennis", "sport/tennis", True),
        ("#", "sport", True),
    ],
)
def test_what_a_pattern_covers(pattern: str, name: str, expected: bool) -> None:
    assert covers(pattern, name) == expected


def test_covering_and_overlapping_agree_with_a_list_of_names() -> None:
    matching = {pattern: {name for name in NAMES if covers(pattern, name)} for pattern in PATTERNS}
    for one, other in product(PATTERNS, repeat=2):
        assert overlap(one, other) == bool(matching[one] & matching[other]), (one, other)
        assert covers(one, other) == (matching[other] <= matching[one]), (one, other)


@pytest.mark.parametrize("pattern", ["sport/#/open", "sport/ten+", "#a"])
def test_a_misplaced_wildcard_is_refused(pattern: str) -> None:
    with pytest.raises(LocalError, match=r"is not the last part|mixes a wildcard with a name"):
        check(pattern)


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(LocalError, match="the pattern is empty; name a topic, or use # for all topics"):
        check("")


def test_patterns_and_names_are_accepted() -> None:
    for pattern in (*PATTERNS, *NAMES):
        check(pattern)
