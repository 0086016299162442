"""A site of live peers: its manager runs in a node, and the members take part as it orders."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import quillcast
from quillcast.cli import scopeview
from quillcast.cli.tree import draw
from quillcast.core.errors import DiskFailed, LocalError, NotAdmitted, NotJoined
from quillcast.core.ids import ring_distance
from quillcast.core.status.base import TopicScope
from quillcast.core.status.scopes import ScopeSender, SenderRate
from quillcast.core.status.trees import TreeStatus
from quillcast.live.admission.keyring import Keyring
from quillcast.live.config import LiveConfig
from quillcast.live.discovery.questions import ScopeQuestion
from quillcast.live.node.node import Node
from quillcast.live.node.scopeexport import export_scope
from quillcast.live.storage.store import Store
from quillcast.live.transport.hello import Identity
from quillcast.protocol.scopes.channels import Address, ChannelOrder
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.descriptor import described

EXAMPLES = Path(__file__).parents[2] / "examples" / "scopes"
FILE = """
name = "site"

[admission]
members = [{members}]

[[topics]]
pattern = "news/#"
policy = "chain"
"""


def scope_file(folder: Path, members: list[Identity], policy: str = "chain") -> Path:
    file = folder / "site.toml"
    listed = ", ".join(f'"{member.node_id.hex()}"' for member in members)
    file.write_text(FILE.format(members=listed).replace('"chain"', f'"{policy}"'))
    return file


def named_file(folder: Path, name: str, above: str, members: Iterable[str], rules: str = "") -> Path:
    file = folder / f"{name}.toml"
    listed = ", ".join(f'"{member}"' for member in members)
    file.write_text(f'name = "{name}"\n{above}\n[admission]\nmembers = [{listed}]\n{rules}')
    return file


def in_ring(node: Node) -> bool:
    return not node._peer.overlay.outside


@pytest.mark.parametrize("policy", ["chain", "ring", "stripes"])
def test_members_of_a_site_publish_and_subscribe_and_three_of_them_are_in_the_ring(tmp_path: Path, policy: str) -> None:
    async def main() -> None:
        identities = [Identity.new() for _ in range(5)]
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=tmp_path / "run", data=tmp_path / "data"))
            assert await manager.manage_scope(scope_file(tmp_path, identities, policy)) == "site"
            scope = f"site@{manager.address}"
            members = [
                await stack.enter_async_context(Node(runtime_dir=tmp_path / "run", identity=identity, scope=scope))
                for identity in identities
            ]
            assert [in_ring(member) for member in members] == [True, True, True, False, False]
            subscriptions = [member.subscribe("news/today") for member in members]
            for subscription in subscriptions:
                await subscription.started()
            for number in range(3):
                await members[4].publish("news/today", b"%d" % number, wait="stable")
            for subscription in subscriptions:
                got = [(await anext(subscription)).payload for _ in range(3)]
                assert got == [b"0", b"1", b"2"]

    asyncio.run(main())


def test_the_manager_is_the_same_after_a_restart_and_data_goes_on_without_it(tmp_path: Path) -> None:
    async def main() -> None:
        identities = [Identity.new() for _ in range(4)]
        file, run = scope_file(tmp_path, identities), tmp_path / "run"
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(Node(runtime_dir=run))
            manager = Node(runtime_dir=run, data=tmp_path / "data")
            await manager.start()
            await manager.manage_scope(file)
            address = manager.address
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=f"site@{address}"))
                for each in identities
            ]
            subscription = members[3].subscribe("news/today")
            await subscription.started()
            await manager.leave()
            await other.publish("news/today", b"without the manager", wait="stable")
            assert (await anext(subscription)).payload == b"without the manager"
            again = Node(runtime_dir=run, data=tmp_path / "data", listen=address)
            await stack.enter_async_context(again)
            await again.manage_scope(file)
            state = again._peer.scoping.managers
            ((restored, _),) = state.values()
            assert restored.state.epoch == 2
            assert len(restored.state.members) == 4
            controller = members[3]._peer.scoping.controller
            assert controller is not None
            async with asyncio.timeout(20.0):
                await members[3]._pump.until(
                    lambda: all(owner.stamp[0] == 2 for owner in controller.membership.owners.values())
                )

    asyncio.run(main())


def test_a_manager_goes_on_at_another_peer_with_its_exported_state(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run, exported = [Identity.new() for _ in range(4)], tmp_path / "run", tmp_path / "site.state"
        file = scope_file(tmp_path, identities)
        async with AsyncExitStack() as stack:
            other = await stack.enter_async_context(Node(runtime_dir=run))
            async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
                await manager.manage_scope(file)
                scope = f"site@{manager.address}"
                members = [
                    await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=scope))
                    for each in identities
                ]
                subscription = members[3].subscribe("news/today")
                await subscription.started()
            export_scope("site", tmp_path / "data", exported)
            again = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "elsewhere"))
            await again.manage_scope(file, state=exported)
            async with asyncio.timeout(20.0):
                ((restored, _),) = again._peer.scoping.managers.values()
                await again._pump.until(lambda: not restored.members.unheard)
            assert [member.status().memberships[0].address for member in members] == [again.address] * 4
            assert [each.epoch for each in again.scopes()] == [2]
            await other.publish("news/today", b"with another manager", wait="stable")
            assert (await anext(subscription)).payload == b"with another manager"
            with pytest.raises(LocalError, match="the data folder already has the state of scope site"):
                await again.manage_scope(file, state=exported)

    asyncio.run(main())


def test_whom_the_file_does_not_list_is_not_admitted_and_hears_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with Node(runtime_dir=tmp_path / "run", data=tmp_path / "data") as manager:
            await manager.manage_scope(scope_file(tmp_path, [Identity.new()]))
            stranger = Node(
                runtime_dir=tmp_path / "run", scope=f"site@{manager.address}", live=LiveConfig(join_timeout_s=2.0)
            )
            with pytest.raises(
                NotJoined, match=r"scope site does not admit this peer: add its nodeId [0-9a-f]{32} to members"
            ):
                await stranger.start()

    asyncio.run(main())


def test_a_join_line_lets_one_more_peer_in(tmp_path: Path) -> None:
    async def main() -> None:
        file, run, config = scope_file(tmp_path, []), tmp_path / "run", LiveConfig(join_timeout_s=2.0)
        file.write_text(file.read_text().replace("members = []", "join_line = true"))
        async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
            await manager.manage_scope(file)
            line = manager.invite_to_scope("site")
            async with Node(runtime_dir=run, scope=line):
                assert len(manager.scopes()[0].members) == 1
            with pytest.raises(NotJoined, match="each token works only once; print a new line: quillcast scope invite"):
                await Node(runtime_dir=run, scope=line, live=config).start()

    asyncio.run(main())


def test_a_certificate_of_the_network_admits_one_peer_and_another_certificate_does_not(tmp_path: Path) -> None:
    file = scope_file(tmp_path, [])
    file.write_text(file.read_text().replace("members = []", 'certificate = { organization = "North" }'))
    Keyring(tmp_path / "manager").make_authority("n", time.time_ns())

    def node(name: str, **options: Any) -> Node:
        return Node(network="n", data=tmp_path / name, runtime_dir=tmp_path / f"run-{name}", **options)

    async def main() -> None:
        async with node("manager") as manager:
            await manager.manage_scope(file)
            north, south = (manager.invite({"organization": name}) for name in ("North", "South"))
            scope = f"site@{manager.address}"
            async with node("north", join=north, scope=scope) as member:
                subscription = member.subscribe("news/today")
                await subscription.started()
                await manager.publish("news/today", b"a", wait="stable")
                assert (await anext(subscription)).payload == b"a"
                assert len(manager.scopes()[0].members) == 1
            with pytest.raises(NotJoined, match="join the network with a certificate that has organization = North"):
                await node("south", join=south, scope=scope, live=LiveConfig(join_timeout_s=2.0)).start()

    asyncio.run(main())


def test_an_application_takes_part_in_a_scope_through_its_peer_and_the_manager_knows_it(tmp_path: Path) -> None:
    async def main() -> None:
        identity = Identity.new()
        async with Node(runtime_dir=tmp_path / "manager", data=tmp_path / "data") as manager:
            await manager.manage_scope(scope_file(tmp_path, [identity]))
            scope, place = f"site@{manager.address}", tmp_path / "member"
            async with (
                Node(runtime_dir=place, identity=identity, scope=scope),
                quillcast.connect(runtime_dir=place, name="board") as application,
            ):
                subscription = application.subscribe("news/today")
                await subscription.started()
                await manager.publish("news/today", b"a", wait="stable")
                assert (await anext(subscription)).payload == b"a"
                async with asyncio.timeout(10):
                    await manager._pump.until(lambda: bool(manager.scopes()[0].clients))
                (scope_,) = manager.scopes()
                assert [(each.node_id, each.clients) for each in scope_.members] == [(identity.node_id.hex(), 1)]
                (client,) = scope_.clients
                assert (client.name, client.host, client.topics) == ("board", identity.node_id.hex(), ("news/today",))
                assert list(scopeview.members(scope_))[-1].split()[:2] == ["board", identity.node_id.hex()[:8]]

    asyncio.run(main())


def test_a_certificate_gives_the_right_to_publish_and_applications_of_others_hear_what_to_do(tmp_path: Path) -> None:
    file = scope_file(tmp_path, [])
    who = 'publishers = { certificate = { organization = "North" } }'
    file.write_text(file.read_text().replace("members = []", "join_line = true") + who)
    Keyring(tmp_path / "manager").make_authority("n", time.time_ns())

    def node(name: str, **options: Any) -> Node:
        return Node(network="n", data=tmp_path / name, runtime_dir=tmp_path / f"run-{name}", **options)

    async def main() -> None:
        lines = list[str]()
        async with node("manager", on_problem=lines.append) as manager:
            await manager.manage_scope(file)
            north, south = (manager.invite({"organization": name}) for name in ("North", "South"))
            async with (
                node("north", join=north, scope=manager.invite_to_scope("site")) as first,
                node("south", join=south, scope=manager.invite_to_scope("site")) as second,
                quillcast.connect(network="n", runtime_dir=tmp_path / "run-south") as application,
            ):
                subscription = second.subscribe("news/today")
                await subscription.started()
                for each in (second, application):
                    with pytest.raises(AccessDenied, match="a certificate that has organization = North"):
                        await each.publish("news/today", b"no", wait="root")
                await first.publish("news/today", b"yes", wait="stable")
                assert (await anext(subscription)).payload == b"yes"
                (told,) = lines
                (status,) = manager.scopes()
                assert [each.refused for each in status.members] == [(), (told,)]
                assert f"  refused: {told}" in scopeview.members(status)
                assert second.contact.node_id.hex() in told

    asyncio.run(main())


def test_a_virtual_room_has_members_of_two_places_and_its_topics_go_nowhere_else(tmp_path: Path) -> None:
    """The cafeteria, the library and a room of figure 5: `examples/scopes`."""
    files = [EXAMPLES / f"{name}.toml" for name in ("cafeteria", "library", "room")]

    async def main() -> None:
        run, config = tmp_path / "run", LiveConfig(join_timeout_s=20.0)
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            for file in files:
                await manager.manage_scope(file)

            async def enter(*scopes: str) -> Node:
                lines = [manager.invite_to_scope(scope) for scope in scopes]
                return await stack.enter_async_context(Node(runtime_dir=run, scope=lines, live=config))

            alice, bob = await enter("cafeteria", "room"), await enter("cafeteria")
            charlie, dave = await enter("library", "room"), await enter("library")
            talk, news = charlie.subscribe("room/talk"), [each.subscribe("news") for each in (bob, dave)]
            for subscription in (talk, *news):
                await subscription.started()
            await alice.publish("room/talk", b"to the room", wait="stable")
            await alice.publish("news", b"to all", wait="stable")
            assert (await anext(talk)).payload == b"to the room"
            assert [(await anext(each)).payload for each in news] == [b"to all"] * 2
            async with asyncio.timeout(20):
                await manager._pump.until(lambda: all(status.topics for status in manager.scopes()))
            statuses = {status.name: status for status in manager.scopes()}
            nodes = {each.contact.node_id.hex() for each in (alice, charlie)}
            assert {member.node_id for member in statuses["room"].members} == nodes
            assert [[topic.name for topic in statuses[name].topics] for name in ("cafeteria", "library", "room")] == [
                ["news"], ["news"], ["room/talk"]
            ]  # fmt: skip
            assert [place.scope for place in charlie.status().memberships] == ["library", "room"]
            assert all(described("room/talk").topic not in each._peer.topics.trees for each in (bob, dave, manager))

    asyncio.run(main())


def test_a_node_is_told_which_of_its_scopes_does_not_admit_it(tmp_path: Path) -> None:
    async def main() -> None:
        run, config = tmp_path / "run", LiveConfig(join_timeout_s=2.0)
        async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
            for name in ("cafeteria", "room"):
                await manager.manage_scope(EXAMPLES / f"{name}.toml")
            line, stranger = manager.invite_to_scope("cafeteria"), f"room@{manager.address}"
            with pytest.raises(NotJoined, match="scope room does not admit this peer: add its nodeId"):
                await Node(runtime_dir=run, scope=[line, stranger], live=config).start()
            missing = f"hall@{manager.address}"
            with pytest.raises(
                NotJoined, match=r"scope hall: the peer at .* does not run its manager; it runs those of"
            ):
                await Node(runtime_dir=run, scope=[manager.invite_to_scope("room"), missing], live=config).start()
        with pytest.raises(LocalError, match="scope room is named twice; name it once"):
            Node(scope=[stranger, stranger])

    asyncio.run(main())


def test_a_scope_that_nobody_manages_there_and_bad_names_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(LocalError, match="'The Site' is not a scope: write NAME, or NAME@HOST:PORT"):
            Node(scope="The Site")
        why = r"scope site: cannot reach 127.0.0.1:1: .*; start its manager there .*, or correct the address"
        with pytest.raises(NotJoined, match=why):
            await Node(runtime_dir=tmp_path / "run", scope="site@127.0.0.1:1", wait_for_network=0.2).start()
        async with Node(runtime_dir=tmp_path / "run", network="other") as stranger:
            with pytest.raises(NotJoined, match=r"scope site: cannot link with .*: it belongs to the network 'other'"):
                await Node(runtime_dir=tmp_path / "run", scope=f"site@{stranger.address}").start()
        async with Node(runtime_dir=tmp_path / "run") as nobody:
            lines = list[str]()
            why = f"scope site: the peer at {nobody.address} does not run its manager; it runs those of: none"
            with pytest.raises(NotJoined, match=why):
                await Node(
                    runtime_dir=tmp_path / "run", scope=f"site@{nobody.address}", on_problem=lines.append
                ).start()
            assert lines == [f"waiting to take part in the scope: {why}"]

    asyncio.run(main())


def test_a_member_finds_the_manager_of_a_scope_by_its_name_through_the_network(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(2)], tmp_path / "run"
        async with (
            Node(runtime_dir=run) as other,
            Node(runtime_dir=tmp_path / "there", contacts=other.address, data=tmp_path / "data") as manager,
        ):
            await manager.manage_scope(scope_file(tmp_path, identities))
            by_name = Node(runtime_dir=run, identity=identities[0], scope="site", wait_for_network=20.0)
            by_contact = Node(
                runtime_dir=tmp_path / "elsewhere", contacts=other.address, identity=identities[1], scope="site",
                wait_for_network=20.0,
            )  # fmt: skip
            async with by_name, by_contact:
                (status,) = manager.scopes()
                assert {each.node_id for each in status.members} == {each.node_id.hex() for each in identities}
            unknown = Node(runtime_dir=run, scope="attic", wait_for_network=0.5)
            with pytest.raises(
                NotJoined, match=r"scope attic: no peer .* knows a scope 'attic'; .* write attic@HOST:PORT"
            ):
                await unknown.start()
        with pytest.raises(
            NotJoined, match=r"scope site: no peer of the network .* runs on this machine; .* write site@"
        ):
            await Node(runtime_dir=run, scope="site", wait_for_network=0.5).start()

    asyncio.run(main())


class Waiting:
    """A member that starts while its manager does not answer."""

    def __init__(self, **options: Any) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.node = Node(on_problem=self.lines.put_nowait, **options)

    async def __aenter__(self) -> "Waiting":
        self._start = asyncio.create_task(self.node.start())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._start.cancel()
        await asyncio.gather(self._start, return_exceptions=True)
        await self.node.leave()

    async def line(self) -> str:
        """The next line that it prints; what ended its start, if that comes first."""
        line = asyncio.ensure_future(self.lines.get())
        async with asyncio.timeout(20.0):
            await asyncio.wait([line, self._start], return_when=asyncio.FIRST_COMPLETED)
            if not line.done():
                await self._start
            return await line

    async def started(self) -> None:
        async with asyncio.timeout(20.0):
            await self._start


def test_a_member_waits_for_its_manager_visibly_and_takes_part_when_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        identity, run = Identity.new(), tmp_path / "run"
        file = scope_file(tmp_path, [identity])
        async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
            await manager.manage_scope(file)
            address = manager.address
        async with Waiting(runtime_dir=run, identity=identity, scope=f"site@{address}") as waiting:
            node, line = waiting.node, await waiting.line()
            assert line.startswith(f"waiting to take part in the scope: scope site: cannot reach {address}: ")
            status = node.status()
            (membership,) = status.memberships
            assert (membership.scope, membership.address, status.active) == ("site", address, False)
            assert line == f"waiting to take part in the scope: {membership.obstacle}"
            assert line in status.problems
            with pytest.raises(NotJoined, match=f"scope site: cannot reach {address}"):
                await node._answer(ScopeQuestion("site"))
            async with Node(runtime_dir=run, data=tmp_path / "data", listen=address) as again:
                await again.manage_scope(file)
                await waiting.started()
                assert await waiting.line() == "takes part in the scope: site"
                subscription = node.subscribe("news/today")
                await subscription.started()
                await again.publish("news/today", b"a", wait="stable")
                assert (await anext(subscription)).payload == b"a"
                assert node.status().problems == ()

    asyncio.run(main())


def test_a_member_returns_from_its_data_folder_while_its_manager_is_down_and_events_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        run, file = tmp_path / "run", scope_file(tmp_path, [])
        bounded = '[[topics]]\npattern = "prices/#"\npublishers_max = 1\n'
        file.write_text(file.read_text().replace("members = []", "join_line = true") + bounded)
        async with AsyncExitStack() as stack:
            manager = Node(runtime_dir=run, data=tmp_path / "data")
            await manager.start()
            await manager.manage_scope(file)
            address = manager.address
            members = [
                await stack.enter_async_context(
                    Node(runtime_dir=run, data=tmp_path / f"m{number}", scope=manager.invite_to_scope("site"))
                )
                for number in range(4)
            ]
            assert [in_ring(member) for member in members] == [True, True, True, False]
            subscription = members[0].subscribe("news/today")
            await subscription.started()
            await members.pop().leave()
            await manager.leave()
            waiting = Waiting(runtime_dir=run, data=tmp_path / "m3", scope=f"site@{address}")
            node = (await stack.enter_async_context(waiting)).node
            assert (await waiting.line()).startswith("waiting to take part in the scope: scope site: cannot reach ")
            await waiting.started()
            silent = f"the manager of scope site at {address} does not respond: channels stay as they are"
            assert await waiting.line() == f"takes part in the scope: site, as before its restart: {silent}"
            (membership,) = node.status().memberships
            assert (membership.epoch, membership.unresponsive, membership.obstacle) == (1, True, "")
            assert not in_ring(node)
            others = node.subscribe("news/today")
            await others.started()
            await node.publish("news/today", b"without the manager", wait="stable")
            assert [(await anext(each)).payload for each in (subscription, others)] == [b"without the manager"] * 2
            why = "nothing was published within 0.3 s: scope site is silent; the registration waits for its manager"
            with pytest.raises(NotAdmitted, match=why):
                await node.publish("prices/gold", b"1", timeout_s=0.3)
            again = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data", listen=address))
            await again.manage_scope(file)
            await node.publish("prices/gold", b"2", wait="root")
            assert [each.epoch for each in node.status().memberships] == [2]

    asyncio.run(main())


def test_a_superscope_without_an_address_whose_manager_is_not_there_is_named_with_its_line(tmp_path: Path) -> None:
    line = 'superscopes = ["campus"]'
    why = "site.toml:2: this peer does not run the manager of superscope campus: write campus@"

    async def main() -> None:
        file = scope_file(tmp_path, [Identity.new()])
        text = file.read_text().strip()
        file.write_text(text.replace('name = "site"\n', f'name = "site"\n{line}\n'))
        async with Node(runtime_dir=tmp_path / "run", data=tmp_path / "data") as node:
            with pytest.raises(LocalError, match=why):
                await node.manage_scope(file)

    asyncio.run(main())


def test_a_manager_waits_for_its_superscopes_visibly_and_registers_when_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        identity, run, lines = Identity.new(), tmp_path / "run", asyncio.Queue[str]()
        campus_file = named_file(tmp_path, "campus", "", ["north"], '[[topics]]\npattern = "#"\n')
        async with Node(runtime_dir=run, data=tmp_path / "data") as campus:
            address = campus.address
        file = named_file(tmp_path, "north", f'superscopes = ["campus@{address}"]', [identity.node_id.hex()])
        for _ in range(2):  # also after a restart, when the folder has a state in which it was not found either
            async with Node(runtime_dir=run, data=tmp_path / "north", on_problem=lines.put_nowait) as manager:
                await manager.manage_scope(file)
                line = await asyncio.wait_for(lines.get(), 20.0)
                assert line.startswith(f"scope north is not a member of scope campus: cannot reach {address}: ")
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(
                Node(runtime_dir=run, data=tmp_path / "north", on_problem=lines.put_nowait)
            )
            await manager.manage_scope(file)
            assert await asyncio.wait_for(lines.get(), 20.0) == line
            (scope,) = manager.scopes()[0].superscopes
            assert line == f"scope north is not a member of scope campus: {scope.obstacle}"
            member = Waiting(runtime_dir=run, identity=identity, scope=f"north@{manager.address}")
            await stack.enter_async_context(member)
            why = "scope north waits for its superscope's manager, and its members with it: quillcast scope show north"
            assert await member.line() == f"waiting to take part in the scope: {why}"
            assert [each.obstacle for each in member.node.status().memberships] == [why]
            assert [each.node_id for each in manager.scopes()[0].members] == [identity.node_id.hex()]
            campus = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data", listen=address))
            await campus.manage_scope(campus_file)
            assert await asyncio.wait_for(lines.get(), 20.0) == "scope north is a member of scope campus"
            await member.started()
            subscription = member.node.subscribe("news/today")
            await subscription.started()
            await campus.publish("news/today", b"a", wait="stable")
            assert (await anext(subscription)).payload == b"a"
            (scope,) = manager.scopes()[0].superscopes
            assert (scope.obstacle, scope.address, scope.epoch) == ("", address, 1)

    asyncio.run(main())


STARS = '[[topics]]\npattern = "#"\npolicy = "star"\n'
BOUNDED = f"[limits]\nbytes_per_s = 1_000_000\n{STARS}bundles_per_s = 500\n"


@pytest.mark.parametrize(("around", "inside"), [("", ""), (STARS, BOUNDED)])
def test_scopes_are_members_of_a_scope_whose_manager_runs_elsewhere(tmp_path: Path, around: str, inside: str) -> None:
    async def main() -> None:
        run, sites = tmp_path / "run", {name: [Identity.new() for _ in range(3)] for name in ("north", "south")}
        campus_file = named_file(tmp_path, "campus", "", sites, around)
        async with AsyncExitStack() as stack:
            campus = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await campus.manage_scope(campus_file)
            above = f'superscopes = ["campus@{campus.address}"]'
            members, managers = [], []
            for name, identities in sites.items():
                manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / name))
                listed = [identity.node_id.hex() for identity in identities]
                await manager.manage_scope(named_file(tmp_path, name, above, listed, inside))
                managers.append(manager)
                for each in identities:
                    node = Node(runtime_dir=run, identity=each, scope=f"{name}@{manager.address}")
                    members.append(await stack.enter_async_context(node))
            subscriptions = [member.subscribe("news/today") for member in members]
            for subscription in subscriptions:
                await subscription.started()
            async with asyncio.timeout(20.0):
                await campus._pump.until(lambda: sum(parent_in(member, members) for member in members) == 5)
            for number in range(3):
                await members[4].publish("news/today", b"%d" % number, wait="stable")
            for subscription in subscriptions:
                assert [(await anext(subscription)).payload for _ in range(3)] == [b"0", b"1", b"2"]
            (status,) = campus.scopes()
            assert [member.scope for member in status.members] == ["north", "south"]
            (status,) = manager.scopes()
            assert [(above.name, above.epoch, above.unresponsive, above.obstacle) for above in status.superscopes] == [
                ("campus", 1, False, "")
            ]
            if inside:  # the tree's root is in one site, and the entry point of that one sends into the other
                async with asyncio.timeout(20.0):
                    await campus._pump.until(lambda: len(senders(managers)) == 1)
                (sender,) = senders(managers)
                assert sender.node_id in {identity.node_id.hex() for pair in sites.values() for identity in pair}
                assert sender.topics == ("news/today",)
                assert sender.rates == (SenderRate("news/today", None, 500), SenderRate("", 1_000_000, None))

    asyncio.run(main())


BORDER = """
[channels]
entry_points = 2
replicas = 2
split = true
"""


def test_two_members_of_each_site_share_what_crosses_its_border(tmp_path: Path) -> None:
    async def main() -> None:
        run, sites = tmp_path / "run", {name: [Identity.new() for _ in range(3)] for name in ("north", "south")}
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.manage_scope(named_file(tmp_path, "campus", "", sites, STARS))
            members = dict[str, Node]()
            for name, identities in sites.items():
                listed = [identity.node_id.hex() for identity in identities]
                await manager.manage_scope(
                    named_file(tmp_path, name, 'superscopes = ["campus"]', listed, BORDER + STARS)
                )
                for each in identities:
                    node = Node(runtime_dir=run, identity=each, scope=f"{name}@{manager.address}")
                    members[each.node_id.hex()] = await stack.enter_async_context(node)
            subscriptions = [member.subscribe("news/today") for member in members.values()]
            for subscription in subscriptions:
                await subscription.started()

            north = {identity.node_id.hex() for identity in sites["north"]}

            def crossing() -> set[tuple[str, str]]:
                """From which members of one site to which of the other channels lead."""
                specs = ((each, order.spec) for each, member in members.items() for order in channels_of(member))
                ends = {(each, spec.peer.node_id.hex()) for each, spec in specs if isinstance(spec, Address)}
                return {(one, other) for one, other in ends if (one in north) != (other in north)}

            async with asyncio.timeout(20.0):
                await manager._pump.until(lambda: len(crossing()) == 2)
            assert [len({*ends}) for ends in zip(*crossing(), strict=True)] == [2, 2], (
                "each has a sender and a receiver"
            )
            for number in range(20):
                await manager.publish("news/today", b"%d" % number, wait="stable")
            for subscription in subscriptions:
                assert [(await anext(subscription)).payload for _ in range(20)] == [b"%d" % each for each in range(20)]

    asyncio.run(main())


def channels_of(member: Node) -> tuple[ChannelOrder, ...]:
    """The channels that begin at a member."""
    controller = member._peer.scoping.controller
    assert controller is not None
    return controller.channels


def senders(managers: list[Node]) -> list[ScopeSender]:
    """Who sends into the scopes of these managers."""
    return [sender for manager in managers for status in manager.scopes() for sender in status.senders]


def parent_in(node: Node, others: list[Node], topic: str = "news/today") -> bool:
    """Is one of the others the parent of this one?"""
    tree = node._peer.topics.trees.get(described(topic).topic)
    return (
        tree is not None and tree.parent is not None and tree.parent.node_id in {each._peer.host.me for each in others}
    )


def test_a_manager_without_a_data_folder_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with Node(runtime_dir=tmp_path / "run") as node:
            with pytest.raises(LocalError, match="the manager of scope site needs a folder for its state: data="):
                await node.manage_scope(scope_file(tmp_path, [Identity.new()]))

    asyncio.run(main())


def test_a_manager_that_cannot_save_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(store: Store, name: str, state: bytes) -> None:
        raise DiskFailed("no space left")

    async def main() -> None:
        async with Node(runtime_dir=tmp_path / "run", data=tmp_path / "data") as node:
            monkeypatch.setattr(Store, "keep_scope", fail)
            await node.manage_scope(scope_file(tmp_path, [Identity.new()]))
            await node._pump.until(lambda: bool(node._presence.links.problems))
            assert not node._peer.scoping.managers
            assert "the manager of scope site ends" in node._presence.links.problems[-1]

    asyncio.run(main())


def is_ring(tree: TreeStatus) -> bool:
    """Do the channels that carry bundles lead around, both ways, between four members?"""
    ways = {(peer.node_id, way.node_id) for peer in tree.peers for way in peer.channels if not way.filter}
    leaving, entering = Counter(source for source, _ in ways), Counter(target for _, target in ways)
    return set(leaving.values()) == set(entering.values()) == {2} and len(leaving) == len(entering) == 4


def test_a_policy_that_is_set_changes_the_channels_and_status_shows_it(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(4)], tmp_path / "run"
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.manage_scope(scope_file(tmp_path, identities))
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=f"site@{manager.address}"))
                for each in identities
            ]
            subscriptions = [member.subscribe("news/today") for member in members]
            for subscription in subscriptions:
                await subscription.started()

            def ends() -> list[tuple[str, str]]:
                return [(each.source, each.target) for topic in manager.scopes()[0].topics for each in topic.channels]

            def is_chain() -> bool:
                sources = [source for source, _ in ends()]
                return len(sources) == 3 and len({*sources}) == 3

            def is_star() -> bool:
                return len(ends()) == 3 and any(all(hub in pair for pair in ends()) for hub in ends()[0])

            async with asyncio.timeout(20.0):
                await manager._pump.until(is_chain)
            changed = await manager.set_policy("site", "news/#", "star")
            assert [(each.name, each.before.policy, each.after.policy) for each in changed.topics] == [
                ("news/today", "chain", "star")
            ]
            async with asyncio.timeout(20.0):  # members install the new channels, then the old ones go
                await manager._pump.until(is_star)
            await members[1].publish("news/today", b"after the change", wait="root")
            for subscription in subscriptions:
                assert (await anext(subscription)).payload == b"after the change"
            (scope,) = manager.scopes()
            assert [(topic.subscribers, topic.waits_for) for topic in scope.topics] == [(4, "")]
            assert [rule.is_set for rule in scope.rules] == [True, False]
            assert sum(member.in_ring for member in scope.members) == 3
            assert [each.scope for each in members[3].status().memberships] == ["site"]
            assert not members[3].status().memberships[0].in_ring
            scopes = {each.node_id: each.scope for each in (await manager.tree("news/today")).peers}
            assert [scopes[member.status().node_id] for member in members] == ["site"] * 4
            tracing = asyncio.create_task(manager.trace("news/today"))
            while not tracing.done():
                await members[1].publish("news/today", b"traced", wait="root")
            trace = await tracing
            assert trace.complete
            assert trace.publisher is not None
            assert trace.publisher.node_id == members[1].status().node_id
            assert sum(hop.subscriptions for hop in trace.hops if not hop.stopped) == 4
            assert sum(bool(way.channel) for hop in trace.hops for way in hop.ways if not way.why) >= 3
            await manager.set_policy("site", "news/#", "ring")
            async with asyncio.timeout(20.0):
                while not is_ring(tree := await manager.tree("news/today")):
                    await members[1].publish("news/today", b"during the change", wait="root")
            assert {each.scopes for each in tree.peers if each.scope} == {(TopicScope("site", "ring"),)}
            shown = "\n".join(draw(tree))
            assert "┌─ scope site (ring) ─" in shown
            assert "also to " in shown
            assert manager.unset_policy("site", "news/#").topics[0].after.policy == "chain"
            with pytest.raises(LocalError, match="it runs those of: site"):
                manager.unset_policy("other", "#")

    asyncio.run(main())


def test_a_full_scope_refuses_one_more_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(2)], tmp_path / "run"
        file = scope_file(tmp_path, identities)
        file.write_text(file.read_text() + "[limits]\nmembers_max = 1\n")
        async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
            await manager.manage_scope(file)
            scope = f"site@{manager.address}"
            async with Node(runtime_dir=run, identity=identities[0], scope=scope):
                with pytest.raises(NotJoined, match="scope site is full, with 1 of at most 1 members"):
                    await Node(runtime_dir=run, identity=identities[1], scope=scope).start()
            async with Node(runtime_dir=run, identity=identities[1], scope=scope):
                assert manager.scopes()[0].members_max == 1

    asyncio.run(main())


ROOTED = """
name = "site"

[admission]
members = [{members}]

[[topics]]
pattern = "news/#"
root = true
"""


def test_a_topic_that_is_rooted_at_a_scope_stays_there_and_outlives_its_rendezvous_point(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(4)], tmp_path / "run"
        file = tmp_path / "site.toml"
        file.write_text(ROOTED.format(members=", ".join(f'"{each.node_id.hex()}"' for each in identities)))
        async with AsyncExitStack() as stack:
            manager = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data"))
            await manager.manage_scope(file)
            scope = f"site@{manager.address}"
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=scope))
                for each in identities
            ]
            subscriptions = [member.subscribe("news/today") for member in members]
            for subscription in subscriptions:
                await subscription.started()
            await members[0].publish("news/today", b"before", wait="stable")
            key = described("news/today").topic
            first = min(members, key=lambda member: ring_distance(member._peer.host.me, key))
            assert [member._peer.topics.trees[key].root is not None for member in members] == [
                member is first for member in members
            ]
            assert key not in manager._peer.topics.descriptors
            with pytest.raises(LocalError, match="is rooted at scope site, and only members of that scope can use it"):
                await anext(manager.subscribe("news/today"))
            with pytest.raises(LocalError, match="is rooted at scope site, and cannot be rooted at scope attic too"):
                await first.create("news/tomorrow", root_scope="attic")
            others = [(each, got) for each, got in zip(members, subscriptions, strict=True) if each is not first]
            await first.leave()
            await others[0][0].publish("news/today", b"after", wait="stable")
            for _, subscription in others:
                assert [(await anext(subscription)).payload for _ in range(2)] == [b"before", b"after"]

    asyncio.run(main())


def test_a_publisher_that_is_one_too_many_is_told_so_and_so_is_the_operator(tmp_path: Path) -> None:
    async def main() -> None:
        identities, run = [Identity.new() for _ in range(2)], tmp_path / "run"
        file = scope_file(tmp_path, identities)
        file.write_text(file.read_text() + "publishers_max = 1\n")
        async with Node(runtime_dir=run, data=tmp_path / "data") as manager:
            await manager.manage_scope(file)
            one, two = (Node(runtime_dir=run, identity=each, scope=f"site@{manager.address}") for each in identities)
            async with one, two:
                first = one.publisher("news/today")
                await first.publish(b"a", wait="root")
                why = "topic news/today has 1 of at most 1 publishers in scope site"
                with pytest.raises(NotAdmitted, match=f"nothing was published within 0.3 s: {why}"):
                    await two.publish("news/today", b"b", timeout_s=0.3)
                second = two.publisher("news/today")
                await manager._pump.until(lambda: manager.scopes()[0].topics[0].publishers == 2)
                (topic,) = manager.scopes()[0].topics
                assert topic.waits_for.startswith(why)
                assert two.status().problems[0].startswith(f"publishers here wait: {why}")
                first.close()
                await second.publish(b"c", wait="root")

    asyncio.run(main())


def test_clients_are_told_what_the_file_does_not_let_them_do_and_how_many_there_may_be(tmp_path: Path) -> None:
    async def main() -> None:
        identity = Identity.new()
        file = scope_file(tmp_path, [identity])
        file.write_text(file.read_text() + 'clients = "subscribe"\n[limits]\nclients_max = 1\n')
        async with Node(runtime_dir=tmp_path / "manager", data=tmp_path / "data") as manager:
            await manager.manage_scope(file)
            scope, place = f"site@{manager.address}", tmp_path / "member"
            async with Node(runtime_dir=place, identity=identity, scope=scope) as member:
                async with quillcast.connect(runtime_dir=place) as one, quillcast.connect(runtime_dir=place) as two:
                    subscription = one.subscribe("news/today")
                    await subscription.started()
                    await member.publish("news/today", b"a", wait="root")
                    assert (await anext(subscription)).payload == b"a"
                    with pytest.raises(AccessDenied, match="clients may only subscribe in topic news/today"):
                        await one.publish("news/today", b"b")
                    with pytest.raises(AccessDenied, match="scope site has 1 of at most 1 clients"):
                        await two.subscribe("news/today").started()
                    await two.publish("elsewhere", b"c", wait="root")
                await manager._pump.until(lambda: not manager.scopes()[0].clients)

    asyncio.run(main())


def test_a_client_that_dies_is_gone_at_the_manager(tmp_path: Path) -> None:
    program = """
import asyncio, quillcast, sys

async def main():
    async with quillcast.connect(runtime_dir=sys.argv[1], name="x") as client:
        await client.subscribe("news/today").started()
        print(flush=True)
        await asyncio.Event().wait()

quillcast.run(main())
"""

    async def main() -> None:
        identity = Identity.new()
        async with Node(runtime_dir=tmp_path / "manager", data=tmp_path / "data") as manager:
            await manager.manage_scope(scope_file(tmp_path, [identity]))
            scope, place = f"site@{manager.address}", tmp_path / "member"
            async with Node(runtime_dir=place, identity=identity, scope=scope):
                client = await asyncio.create_subprocess_exec(sys.executable, "-c", program, place, stdout=PIPE)
                assert client.stdout is not None
                await client.stdout.readline()
                await manager._pump.until(lambda: [each.name for each in manager.scopes()[0].clients] == ["x"])
                client.kill()
                await client.wait()
                await manager._pump.until(lambda: not manager.scopes()[0].clients)

    asyncio.run(main())
