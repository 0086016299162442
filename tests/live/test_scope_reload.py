"""A running scope goes by its changed file while events flow."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from quillcast import Event
from quillcast.cli import scopeview
from quillcast.core.errors import LocalError
from quillcast.live.edges.subscription import Subscription
from quillcast.live.node.node import Node
from quillcast.live.transport.hello import Identity
from quillcast.protocol.scopes.config import ScopeFileWrong
from quillcast.protocol.security.access import AccessDenied

TOPIC = "news/today"
RULE = '[[topics]]\npattern = "news/#"\n'
MINE = """
from quillcast.protocol.scopes.policies import Star

class Mine(Star):
    pass
"""


def write(folder: Path, name: str, members: list[str], text: str, above: str = "") -> Path:
    file, listed = folder / f"{name}.toml", ", ".join(f'"{each}"' for each in members)
    file.write_text(f'name = "{name}"\n{above}\n[admission]\nmembers = [{listed}]\n{text}')
    return file


async def until(node: Node, condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30.0):
        await node._pump.until(condition)


class Load:
    """One member publishes without a pause, and others note what arrives."""

    def __init__(self, publisher: Node, subscriptions: list[Subscription]) -> None:
        self.ended = asyncio.Event()
        self.publishing = asyncio.create_task(self._publish(publisher))
        self.receiving = [asyncio.create_task(self._receive(each)) for each in subscriptions]

    async def _publish(self, node: Node) -> int:
        for number in count():
            last = self.ended.is_set()
            await node.publish(TOPIC, b"last" if last else b"%d" % number, wait="root")
            if last:
                return number
        raise AssertionError

    async def _receive(self, subscription: Subscription) -> list[bytes]:
        got = [event.payload async for event in _until_last(subscription)]
        assert subscription.lost_count == 0
        return got

    async def check(self) -> int:
        """End, and see that all events arrived, each once and in order: their number."""
        self.ended.set()
        async with asyncio.timeout(30.0):
            number = await self.publishing
            for received in self.receiving:
                assert await received == [b"%d" % each for each in range(number)]
        return number


async def _until_last(subscription: Subscription) -> AsyncIterator[Event]:
    async for event in subscription:
        if event.payload == b"last":
            return
        yield event


def test_a_scope_under_load_goes_by_its_changed_file_and_no_event_is_lost_or_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        run, sites = tmp_path / "run", {name: [Identity.new() for _ in range(2)] for name in ("north", "south")}
        async with AsyncExitStack() as stack:
            campus = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await campus.manage_scope(write(tmp_path, "campus", [*sites], '[[topics]]\npattern = "#"\n'))
            above, managers, members = f'superscopes = ["campus@{campus.address}"]', dict[str, Node](), list[Node]()
            listed = {name: [each.node_id.hex() for each in identities] for name, identities in sites.items()}
            for name, identities in sites.items():
                manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / name))
                await manager.manage_scope(write(tmp_path, name, listed[name], RULE, above))
                managers[name] = manager
                for each in identities:
                    node = Node(runtime_dir=run, identity=each, scope=f"{name}@{manager.address}")
                    members.append(await stack.enter_async_context(node))
            subscriptions = [member.subscribe(TOPIC) for member in members]
            for subscription in subscriptions:
                await subscription.started()
            load = Load(members[0], subscriptions)

            def settled(name: str, policy: str) -> bool:
                topics = managers[name].scopes()[0].topics
                now = [(each.rule and each.rule.policy, each.subscribers, each.change) for each in topics]
                return now == [(policy, 2, "")]

            for name, manager in managers.items():
                await until(manager, lambda name=name: settled(name, "k_ary"))

            limits = "[limits]\nbundles_per_s = 5000\n[channels]\nentry_points = 2\n"
            rules = f'{RULE}policy = "ring"\nrecovery = "srm"\nfilter = {{ add_tag = "south" }}\n'
            write(tmp_path, "south", listed["south"], limits + rules, above)
            reloaded = await managers["south"].reload_scope("south")
            assert "At most 5,000 bundles a second enter the scope in total; above that, senders wait." in reloaded.now
            assert "news/#: Topics that match news/# use policy k_ary." in reloaded.before
            ((name, before, after),) = [(each.name, each.before, each.after) for each in reloaded.topics]
            assert (name, before and before.policy, after and after.policy) == (TOPIC, "k_ary", "ring")
            await until(managers["south"], lambda: settled("south", "ring"))

            write(tmp_path, "south", listed["south"], '[[topics]]\npattern = "news/#"\npolicy = "rings"\n', above)
            with pytest.raises(ScopeFileWrong, match=r"south.toml:7: .*'rings'"):
                await managers["south"].reload_scope("south")
            assert settled("south", "ring")
            assert managers["south"].scopes()[0].rules[0].lets_in == ("The filter tags bundles south.",)

            write(tmp_path, "south", listed["south"], RULE, above)
            write(tmp_path, "north", listed["north"], f'{RULE}policy = "chain"\n', above)
            await managers["north"].reload_scope("north")
            await managers["south"].reload_scope("south")
            await until(managers["south"], lambda: settled("south", "k_ary"))
            await until(managers["north"], lambda: settled("north", "chain"))
            assert await load.check() > 0
            unchanged = await managers["south"].reload_scope("south")
            assert [*scopeview.reloaded(unchanged)][1:] == ["  nothing differs"]

    asyncio.run(main())


def test_members_and_rights_follow_the_file_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        run, identities = tmp_path / "run", [Identity.new() for _ in range(3)]
        ids = [each.node_id.hex() for each in identities]
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.manage_scope(write(tmp_path, "site", ids[:2], RULE))
            first, second = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=f"site@{manager.address}"))
                for each in identities[:2]
            ]
            publishers = [each.publisher(TOPIC) for each in (first, second)]
            for publisher in publishers:
                await publisher.publish(b"all may", wait="root")
            write(tmp_path, "site", ids, f'{RULE}publishers = {{ members = ["{ids[0]}"] }}\n')
            await manager.reload_scope("site")
            with pytest.raises(AccessDenied, match="and run: quillcast scope reload site"):  # noqa: PT012
                async with asyncio.timeout(20.0):
                    while True:
                        await publishers[1].publish(b"not any more", wait="root")
            await publishers[0].publish(b"still", wait="root")
            third = Node(runtime_dir=run, identity=identities[2], scope=f"site@{manager.address}")
            await stack.enter_async_context(third)

            write(tmp_path, "site", [ids[0], ids[2]], RULE)
            reloaded = await manager.reload_scope("site")
            assert reloaded.dismissed == (ids[1],)
            assert f"  no longer a member: {ids[1]}" in scopeview.reloaded(reloaded)
            assert [each.node_id for each in manager.scopes()[0].members] == [ids[0], ids[2]]
            why = f"scope site does not admit this peer: add its nodeId {ids[1]} to members in the scope's file"
            await until(second, lambda: second.status().memberships[0].obstacle == why)
            write(tmp_path, "site", ids, RULE)
            await manager.reload_scope("site")
            await until(second, lambda: not second.status().memberships[0].obstacle)
            await second.publish(TOPIC, b"again", wait="root")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'name = "other"\n[admission]\njoin_line = true\n',
            "site.toml:1: this file described scope site, whose manager",
        ),
        (
            'name = "site"\nsuperscopes = ["campus@127.0.0.1:9"]\n[admission]\njoin_line = true\n',
            "site.toml:2: superscopes cannot change while the manager runs: undo that, or stop the manager",
        ),
        (
            'name = "site"\n[admission]\njoin_line = true\n[limits]\nmembers_mx = 3\n',
            "site.toml:5: unknown key members_mx",
        ),
        (
            'name = "site"\n[admission]\njoin_line = true\n[[topics]]\npattern = "lab/a"\nroot = true\n',
            "site.toml:6: topics of lab/a would have two root scopes, site and lab",
        ),
    ],
)
def test_what_cannot_change_is_refused_with_its_line_and_everything_stays(tmp_path: Path, text: str, why: str) -> None:
    async def main() -> None:
        file, lab = tmp_path / "site.toml", tmp_path / "lab.toml"
        file.write_text('name = "site"\n[admission]\njoin_line = true\n[limits]\nmembers_max = 2\n')
        lab.write_text('name = "lab"\n[admission]\njoin_line = true\n[[topics]]\npattern = "lab/#"\nroot = true\n')
        async with Node(runtime_dir=tmp_path / "run", data=tmp_path / "data") as node:
            for each in (file, lab):
                await node.manage_scope(each)
            before = node.scopes()[0]
            file.write_text(text)
            with pytest.raises(LocalError, match=why):
                await node.reload_scope("site")
            file.unlink()
            with pytest.raises(LocalError, match="cannot read the scope file"):
                await node.reload_scope("site")
            assert node.scopes()[0] == before
            assert node.invite_to_scope("site")
            with pytest.raises(LocalError, match="it runs those of: site, lab"):
                await node.reload_scope("elsewhere")

    asyncio.run(main())


def test_a_policy_of_another_package_keeps_its_process_until_it_is_stopped_or_the_file_names_another(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        (tmp_path / "mine.py").write_text(MINE)
        pinned = f'policy = "mine.py:Mine"\nsha256 = "{hashlib.sha256(MINE.encode()).hexdigest()}"\n'
        file = write(tmp_path, "site", ["lab"], RULE + pinned)
        async with Node(runtime_dir=tmp_path / "run", data=tmp_path / "data") as node:
            await node.manage_scope(file)
            rules = node._presence.managing.rules
            beside = rules("site").policy(TOPIC)
            write(tmp_path, "site", ["lab"], f"{RULE}{pinned}bytes_per_s = 1000\n")
            await node.reload_scope("site")
            assert rules("site").policy(TOPIC) is beside
            beside._stop("it was tired")
            await node.reload_scope("site")
            assert rules("site").policy(TOPIC) is not beside
            beside = rules("site").policy(TOPIC)
            await node.set_policy("site", "news/#", "star")
            write(tmp_path, "site", ["lab"], f'{RULE}policy = "chain"\n')
            await node.reload_scope("site")
            assert [each.policy for each in node.scopes()[0].rules] == ["star", "chain"]
            processes = [each.beside for each in rules("site")._dropped]
            assert processes[-1] is beside, "a change in progress may still ask it"

    asyncio.run(main())
