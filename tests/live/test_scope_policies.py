"""Scopes of live peers whose policy is a file of somebody else: one that is slow, and one that is stopped."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from quillcast.cli import scopeview
from quillcast.cli.judging import State, of_scope
from quillcast.core.extensions import offered
from quillcast.core.ids import ring_distance, topic_id
from quillcast.live.edges.subscription import Subscription
from quillcast.live.node.node import Node
from quillcast.live.transport.hello import Identity

SLEEP_S = 1.5
SLOW = f"""
import time
from quillcast.protocol.scopes.policies import Star

class Mine(Star):
    def channels(self, group, present, round_trips):
        time.sleep({SLEEP_S})
        return super().channels(group, present, round_trips)
"""
FOR_THREE = """
from quillcast.protocol.scopes.policies import Ring

class Mine(Ring):
    def channels(self, group, present, round_trips):
        if len(group.members) > 3:
            raise ValueError("this is too many for me")
        return super().channels(group, present, round_trips)
"""


def scope_file(folder: Path, members: list[Identity], policy: str) -> Path:
    (folder / "mine.py").write_text(policy)
    file, listed = folder / "site.toml", ", ".join(f'"{member.node_id.hex()}"' for member in members)
    rule = f'pattern = "#"\npolicy = "mine.py:Mine"\nsha256 = "{hashlib.sha256(policy.encode()).hexdigest()}"'
    file.write_text(f'name = "site"\n[admission]\nmembers = [{listed}]\n[[topics]]\n{rule}\n')
    return file


def channels(manager: Node) -> dict[str, int]:
    return {topic.name: len(topic.channels) for topic in manager.scopes()[0].topics}


def story(manager: Node) -> str:
    return "".join(topic.change + topic.stopped for topic in manager.scopes()[0].topics)


async def arrives(publisher: Node, subscriptions: list[Subscription], payload: bytes) -> None:
    """An event gets to all subscribers, once their peers have their orders."""

    async def received(subscription: Subscription) -> None:
        async for event in subscription:
            if event.payload == payload:
                return

    async with asyncio.timeout(20.0):
        waiting = {asyncio.create_task(received(each)) for each in subscriptions}
        while waiting:
            await publisher.publish("news", payload)
            _, waiting = await asyncio.wait(waiting, timeout=0.1)


async def until(node: Node, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60.0):
        await node._pump.until(condition)


def test_a_manager_goes_on_while_its_policy_takes_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(2)], tmp_path / "run"
        names = [f"topic {number}" for number in range(6)]
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.manage_scope(scope_file(tmp_path, identities, SLOW))
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=f"site@{manager.address}"))
                for each in identities
            ]
            steps, call = [0.0], manager._pump.call

            def timed(function: Callable[..., Any], *args: Any) -> Any:
                begun = time.monotonic()
                try:
                    return call(function, *args)
                finally:
                    steps.append(time.monotonic() - begun)

            monkeypatch.setattr(manager._pump, "call", timed)
            subscriptions = [member.subscribe(name) for member in members for name in names]
            for subscription in subscriptions:
                await subscription.started()
            await until(manager, lambda: channels(manager) == dict.fromkeys(names, 1))
            assert max(steps) < SLEEP_S / 2, "no input of the manager's peer waits for the policy"
            await members[0].publish(names[-1], b"all is well", wait="stable")
            assert [(await anext(subscriptions[at])).payload for at in (5, 11)] == [b"all is well"] * 2
            assert (story(manager), manager.status().problems) == ("", ())

    asyncio.run(main())


def test_a_newcomer_gets_everything_although_the_policy_was_stopped_and_the_scope_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(4)], tmp_path / "run"
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.create("news", delivery="best_effort")  # what does not come at once never comes
            await manager.manage_scope(scope_file(tmp_path, identities, FOR_THREE))
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=f"site@{manager.address}"))
                for each in identities
            ]
            subscriptions = [member.subscribe("news") for member in members[:3]]
            for subscription in subscriptions:
                await subscription.started()
            await until(manager, lambda: channels(manager) == {"news": 6} and not story(manager))
            subscriptions.append(members[3].subscribe("news"))
            await subscriptions[3].started()
            why = "policy mine.py:Mine was stopped: ValueError: this is too many for me (mine.py, line 7)"
            await until(manager, lambda: story(manager).startswith(why))
            assert story(manager) == manager.scopes()[0].topics[0].stopped
            assert "are served along the topic's tree; to continue, set a policy" in story(manager)
            finding = of_scope("test", manager.scopes()[0])
            assert (finding.state, finding.text) == (State.WARNING, f"scope site: topic news: {story(manager)}")
            assert any(story(manager) in line for line in scopeview.topics(manager.scopes()[0]))
            assert any(line.startswith(why) for line in manager.status().problems)
            assert channels(manager) == {"news": 6}
            await arrives(members[0], subscriptions, b"for all four")
            await manager.set_policy("site", "news", "ring")
            await until(manager, lambda: channels(manager) == {"news": 8} and not story(manager))
            await arrives(members[0], subscriptions, b"and again")

    asyncio.run(main())


def test_a_filter_that_a_member_lacks_lets_nothing_in_and_both_sides_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    info = package / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quillcast.scope_filters]\nmine = builtins:bool\n")
    monkeypatch.syspath_prepend(package)

    async def main() -> None:
        run, pair = tmp_path / "run", [Identity.new(), Identity.new()]
        root, identity = sorted(pair, key=lambda each: ring_distance(each.node_id, topic_id("news")))
        file = scope_file(tmp_path, [identity], FOR_THREE)
        file.write_text(file.read_text() + 'filter = { custom = { name = "mine" } }\n')
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data", identity=root))
            await manager.create("news", delivery="best_effort")
            offered.cache_clear()
            await manager.manage_scope(file)
            (info / "entry_points.txt").unlink()
            offered.cache_clear()
            member = await stack.enter_async_context(
                Node(runtime_dir=run, identity=identity, scope=f"site@{manager.address}")
            )
            await member.subscribe("news").started()
            why = "there is no filter 'mine'; install the package that has it on this machine"
            await until(member, lambda: f"topic news: {why}" in member.status().problems)
            told = f"member {identity.node_id.hex()[:8]}: {why}"
            await until(manager, lambda: [each.waits_for for each in manager.scopes()[0].topics] == [told])
            dropped = member._peer.table.dropped
            dropping = asyncio.create_task(until(member, lambda: member._peer.table.dropped > dropped))
            while not dropping.done():
                await manager.publish("news", b"not for you")
                await asyncio.wait({dropping}, timeout=0.1)
            await dropping

    try:
        asyncio.run(main())
    finally:
        offered.cache_clear()
