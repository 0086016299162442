"""A policy of another package is asked beside the peer: questions wait in line, and answers are inputs."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quillcast.live.runtime.patience import Patience
from quillcast.live.scopes.beside import LastGood, PolicyBeside
from quillcast.live.scopes.confined import ConfinedPolicy
from quillcast.live.scopes.orders import Make
from quillcast.live.scopes.socketline import Surroundings
from quillcast.protocol.scopes.policies import Star
from quillcast.protocol.scopes.policy import AnswerComes, Group, PolicyStopped, WantedChannel

HERE = Path(__file__).parent
GROUP = Group((1, 2, 3), (2,), (1, 2, 3))
LARGER = Group((1, 2, 3, 4), (2,), (1, 2, 3, 4))
TOPIC, OTHER = b"t" * 16, b"o" * 16


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def unmeasured(_: int, __: int) -> float | None:
    return None


class Site:
    """A policy, and what a manager hears of it."""

    def __init__(self, policy: PolicyBeside, told: list[str]) -> None:
        self.policy, self.told = policy, told
        self.answered: asyncio.Queue[bytes] = asyncio.Queue()

    def serve(self) -> None:
        def hand(function: Any, *args: Any) -> None:
            function(*args)

        surroundings = Surroundings(hand, partial(Patience, asyncio.get_running_loop()))
        self.policy.serve(surroundings, self.answered.put_nowait)

    async def answer(self) -> bytes:
        async with asyncio.timeout(30.0):
            return await self.answered.get()


@asynccontextmanager
async def site(name: str, limit_s: float = 20.0, **parameters: Any) -> AsyncIterator[Site]:
    make, told = Make(name, f"policies_in_need:{name}", parameters), list[str]()
    confined = await asyncio.to_thread(ConfinedPolicy, make, answer_limit_s=limit_s)
    made = Site(PolicyBeside(confined, told.append, "named so"), told)
    made.serve()
    try:
        yield made
    finally:
        made.policy.close()


def ask(policy: LastGood, group: Group = GROUP, *present: WantedChannel) -> None:
    with pytest.raises(AnswerComes, match=f"an answer of policy {policy.policy.name}"):
        policy.channels(group, present, unmeasured)


def test_the_answer_is_that_of_the_policy_and_serves_until_something_changes() -> None:
    async def main() -> None:
        async with site("Good") as each:
            policy, expected = each.policy.of_topic(TOPIC), Star().channels(GROUP, (), unmeasured)
            ask(policy)
            assert await each.answer() == TOPIC
            assert policy.channels(GROUP, (), unmeasured) == expected
            assert policy.channels(GROUP, expected, unmeasured) == expected, "once they stand, it wants no others"
            assert not each.policy.waiting
            ask(policy, LARGER, *expected)
            assert await each.answer() == TOPIC
            assert policy.channels(LARGER, expected, unmeasured) == Star().channels(LARGER, expected, unmeasured)
            assert (repr(policy), policy.delivery, policy.fan_out_max(LARGER)) == ("named so", "tree", 4)
            assert each.told == []

    asyncio.run(main())


def test_topics_wait_in_line_each_with_its_latest_question() -> None:
    async def main() -> None:
        async with site("Good") as each:
            one, other = each.policy.of_topic(TOPIC), each.policy.of_topic(OTHER)
            assert each.policy.of_topic(TOPIC) is one
            ask(one)
            ask(other)
            ask(other, LARGER)
            ask(one)
            assert [question.group for question in each.policy.waiting.values()] == [LARGER]
            assert [await each.answer(), await each.answer()] == [TOPIC, OTHER]
            assert one.channels(GROUP, (), unmeasured) == Star().channels(GROUP, (), unmeasured)
            assert other.channels(LARGER, (), unmeasured) == Star().channels(LARGER, (), unmeasured)

    asyncio.run(main())


def test_a_question_is_another_one_when_round_trips_are_others() -> None:
    async def main() -> None:
        near = 1

        def round_trips(one: int, other: int) -> float | None:
            return abs(one - near) + abs(other - near)

        async with site("ByDistance") as each:
            policy, present = each.policy.of_topic(TOPIC), ()
            for near in (1, 3):
                with pytest.raises(AnswerComes):
                    policy.channels(GROUP, present, round_trips)
                assert await each.answer() == TOPIC
                present = policy.channels(GROUP, present, round_trips)
                assert {channel.source for channel in present} == {near}

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Raises", r"ZeroDivisionError: no way out \(policies_in_need.py, line \d+\)"),
        ("NamesStrangers", "names 99, which is not a member"),
        ("Exits", "its process ended with exit code 3"),
        ("AnswersNonsense", "it sent an invalid answer"),
        ("Loops", "it took longer than 0.5 s; make it faster, or the scope smaller"),
        ("AsksForever", "it took longer than 0.5 s; make it faster, or the scope smaller"),
    ],
)
def test_a_policy_that_goes_wrong_is_stopped_and_all_its_topics_hear_that(name: str, why: str) -> None:
    async def main() -> None:
        limit_s = 0.5 if "0.5 s" in why else 20.0
        async with site(name, limit_s) as each:
            one, other = each.policy.of_topic(TOPIC), each.policy.of_topic(OTHER)
            ask(one)
            ask(other)
            assert {await each.answer(), await each.answer()} == {TOPIC, OTHER}
            for policy in (one, other):
                with pytest.raises(PolicyStopped, match=f"^policy {name} was stopped: .*{why}"):
                    policy.channels(GROUP, (), unmeasured)
            (line,) = each.told
            assert line.endswith("; the last good channels stay")
            assert each.policy.policy.process.returncode is not None

    asyncio.run(main())


def test_a_group_that_is_too_large_to_be_told_stops_the_policy() -> None:
    async def main() -> None:
        async with site("Good") as each:
            policy, present = each.policy.of_topic(TOPIC), (WantedChannel(1, 2, None),) * (1 << 23)
            with pytest.raises(AnswerComes):
                policy.channels(GROUP, present, unmeasured)
            assert await each.answer() == TOPIC
            with pytest.raises(PolicyStopped, match=r"AskChannels has \d+ bytes; the most is 33554432"):
                policy.channels(GROUP, present, unmeasured)

    asyncio.run(main())
