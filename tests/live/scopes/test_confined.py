"""A policy of another package runs in its own process, and is stopped when it goes wrong."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.orders import Make
from quillcast.protocol.scopes.conformance import Nonconforming, check
from quillcast.protocol.scopes.policies import Chain, KAry, Star
from quillcast.protocol.scopes.policy import Group, PolicyStopped, WantedChannel

HERE = Path(__file__).parent
MODULE = "policies_in_need"
GROUP = Group((1, 2, 3, 4, 5), (2, 4), (1, 2, 3, 5))


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def confined(
    name: str, *, limit_s: float = 20.0, memory_mib: int = 512, seed: int = 0, **parameters: Any
) -> ConfinedPolicy:
    make = Make(name, f"{MODULE}:{name}", parameters)
    return ConfinedPolicy(make, answer_limit_s=limit_s, memory_bytes_max=memory_mib << 20, hash_seed=seed)


def unmeasured(_: int, __: int) -> float | None:
    return None


@pytest.fixture
def star() -> Iterator[ConfinedPolicy]:
    with confined("Good") as policy:
        yield policy


def test_it_answers_like_the_same_policy_in_this_process(star: ConfinedPolicy) -> None:
    expected = Star().channels(GROUP, (), unmeasured)
    assert star.channels(GROUP, (), unmeasured) == expected
    assert star.channels(GROUP, expected, unmeasured) == expected
    assert star.fan_out_max(GROUP) == 5
    assert star.delivery == "tree"


def test_parameters_reach_structs_and_plain_classes() -> None:
    with confined("Good", chain=True) as chain, confined("Plain", fan_out=2) as plain:
        assert chain.channels(GROUP, (), unmeasured) == Chain().channels(GROUP, (), unmeasured)
        assert plain.channels(GROUP, (), unmeasured) == KAry(2).channels(GROUP, (), unmeasured)


def test_a_file_with_a_pinned_content_needs_no_place_on_disk() -> None:
    content = (HERE / f"{MODULE}.py").read_bytes()
    with ConfinedPolicy(Make("mine", "mine.py:Good", {"chain": True}, content)) as policy:
        assert policy.channels(GROUP, (), unmeasured) == Chain().channels(GROUP, (), unmeasured)


def test_round_trips_are_asked_for_one_member_at_a_time() -> None:
    asked = list[tuple[int, int]]()

    def round_trips(one: int, other: int) -> float | None:
        asked.append((one, other))
        return None if other == 1 else abs(one - 3) + abs(other - 3.0)

    with confined("ByDistance") as policy:
        channels = policy.channels(GROUP, (), round_trips)
    assert {each.source for each in channels} == {3}
    assert sorted(asked) == [(one, other) for one in GROUP.members for other in GROUP.members]


def test_a_policy_that_keeps_the_rules_passes_the_suite_from_outside(star: ConfinedPolicy) -> None:
    with confined("Good", seed=1) as twin:
        assert check(star, twin, sizes=(1, 3, 6)).delivery == "tree"


def test_the_order_of_sets_is_noticed_by_a_process_with_another_hash_seed() -> None:
    with confined("UsesTheOrderOfASet") as policy, confined("UsesTheOrderOfASet", seed=1) as twin:
        members = (1, 2, 3)
        group = Group(members, members, members)
        assert policy.channels(group, (), unmeasured) == policy.channels(group, (), unmeasured)
        with pytest.raises(Nonconforming):
            check(policy, twin, sizes=(4,))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Raises", r"ZeroDivisionError: no way out \(policies_in_need.py, line \d+\)"),
        ("Floods", r"ChannelsAre has \d+ bytes; the most is 33554432|exceeded its memory limit"),
        ("NeverEnds", "it exceeded its memory limit"),
        ("NamesStrangers", "the channel from 1 to 99 for bundles of any member names 99, which is not a member"),
        ("Exits", "its process ended with exit code 3"),
        ("Quits", "its process ended with exit code 0"),
        ("Crashes", "its process ended with SIGABRT"),
        ("AnswersNonsense", "it sent an invalid answer"),
        ("AnswersObjects", "TypeError: Encoding objects of type object is unsupported"),
        ("AnswersNothing", "TypeError: 'NoneType' object is not iterable"),
        ("WritesAFile", r"SIGXFSZ|File too large"),
    ],
)
def test_a_policy_that_goes_wrong_is_stopped_with_one_line(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with confined(name) as policy:
        with pytest.raises(PolicyStopped, match=f"policy {name} was stopped: .*({text})") as stopped:
            policy.channels(GROUP, (), unmeasured)
        assert "\n" not in str(stopped.value)
        with pytest.raises(PolicyStopped, match="was stopped"):
            policy.fan_out_max(GROUP)


@pytest.mark.parametrize("name", ["Loops", "AsksForever"])
def test_a_policy_that_loops_is_killed(name: str) -> None:
    with confined(name, limit_s=0.2) as policy:
        with pytest.raises(PolicyStopped, match=f"policy {name} was stopped: it took longer than 0.2 s"):
            policy.channels(GROUP, (), unmeasured)
        assert policy.process.returncode == -9


@pytest.mark.parametrize(
    ("name", "parameters", "text"),
    [
        ("Good", {"chian": True}, r"policy Good has no parameter chian \(did you mean chain\?\); it has: chain"),
        ("Good", {"chain": 1}, "^policy Good: chain: expected bool, got int"),
        ("Plain", {"depth": 1}, "TypeError: .*unexpected keyword argument 'depth'"),
        (
            "CannotBeMade",
            {},
            r"^policy CannotBeMade cannot be made: RuntimeError: not today \(policies_in_need.py, line \d+\)",
        ),
        ("Missing", {}, "has no attribute 'Missing'"),
    ],
)
def test_a_policy_that_cannot_be_made_is_told(name: str, parameters: dict[str, object], text: str) -> None:
    with pytest.raises(PolicyStopped, match=text):
        confined(name, **parameters)


def test_a_group_that_is_too_large_to_be_told_stops_the_policy(star: ConfinedPolicy) -> None:
    present = (WantedChannel(1, 2, None),) * (1 << 23)
    with pytest.raises(PolicyStopped, match=r"AskChannels has \d+ bytes; the most is 33554432"):
        star.channels(GROUP, present, unmeasured)
