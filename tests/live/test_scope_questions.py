"""A running scope is seen and changed at any peer of the network, wherever its manager runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quillcast.core.errors import LocalError, Unreachable
from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact
from quillcast.core.status.scopes import PolicyChange, ScopeMemory, ScopeStatus, ScopeView
from quillcast.live.admission.credentials import Credentials
from quillcast.live.discovery.questions import ChangeScopeQuestion, ScopeQuestion
from quillcast.live.node import scopequestions
from quillcast.live.node.node import Node
from quillcast.live.node.scopequestions import AT_ONCE, ScopeQuestions
from quillcast.live.node.scopestatus import OTHERS
from quillcast.live.transport.hello import Identity
from quillcast.protocol.scopes.hierarchy import scope_id
from quillcast.protocol.scopes.messages import AskScope, ScopeSays
from quillcast.protocol.scopes.operators import WantedChange

SITE = scope_id(b"site")
OPERATOR = Credentials.new()
FILE = """
name = "site"
operators = ["{operator}"]
[admission]
members = ["{member}"]
join_line = true
[[topics]]
pattern = "news/#"
policy = "chain"
publishers = {{ members = ["{member}"] }}
[[topics]]
pattern = "inner/#"
root = true
"""


class Network:
    """A manager's peer, a member, and a peer outside of the scope."""

    def __init__(self, manager: Node, member: Node, outside: Node) -> None:
        self.manager, self.member, self.outside = manager, member, outside

    async def view(self, asker: Node) -> ScopeView:
        view: ScopeView = await asker._answer(ScopeQuestion("site"))
        return view

    async def status(self, asker: Node) -> ScopeStatus:
        """The scope, once the peer closest to its id has heard of it."""
        async with asyncio.timeout(20):
            while (status := (await self.view(asker)).status) is None:  # noqa: ASYNC110 - its beat says so
                await asyncio.sleep(0.1)
        return status

    async def change(self, asker: Node, signed: object) -> Any:
        return await asker._answer(ChangeScopeQuestion("site", signed))

    async def set(self, asker: Node, policy: str, by: Credentials = OPERATOR, **how: Any) -> Any:
        arguments = {"pattern": "news/#", "policy": policy, "parameters": {}, "sha256": ""}
        challenge = how.get("challenge") or (await self.status(asker)).challenge
        text = msgspec.json.encode(WantedChange("set_policy", arguments, challenge)).decode()
        signed = by.change(SITE, how.get("node") or asker.contact.node_id, text)
        answer = await self.change(asker, signed)
        assert isinstance(answer, PolicyChange)
        return answer, signed


@asynccontextmanager
async def network(folder: Path, operator: str = OPERATOR.principal) -> AsyncIterator[Network]:
    """Each peer finds none of the others on its machine: it is told where one is."""
    identity, file = Identity.new(), folder / "site.toml"
    file.write_text(FILE.format(operator=operator, member=identity.node_id.hex()))
    async with Node(runtime_dir=folder / "1", data=folder / "data") as manager:
        await manager.manage_scope(file)
        scope = f"site@{manager.address}"
        async with (
            Node(runtime_dir=folder / "2", identity=identity, scope=scope) as member,
            Node(runtime_dir=folder / "3", contacts=manager.address) as outside,
        ):
            yield Network(manager, member, outside)


def test_any_peer_shows_a_scope_and_an_operator_changes_it_there_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            subscriptions = [net.member.subscribe(name) for name in ("news/today", "inner/today")]
            for subscription in subscriptions:
                await subscription.started()
            async with asyncio.timeout(20):
                while len(net.manager.scopes()[0].topics) < 2:  # noqa: ASYNC110 - members register with their beat
                    await asyncio.sleep(0.1)
            (full,) = net.manager.scopes()
            inside, outside = await net.status(net.member), await net.status(net.outside)
            assert [each.name for each in inside.topics] == ["inner/today", "news/today"]
            assert (inside.node_id, inside.address, inside.rules) == (full.node_id, full.address, full.rules)
            assert inside.withheld == 0
            assert [each.name for each in outside.topics] == ["news/today"]
            assert outside.withheld == 1
            assert [each.topics for each in outside.members] == [("news/today",)]
            assert inside.rules[0].rights
            assert [rule.rights for rule in outside.rules] == [()] * len(inside.rules)
            assert outside.about == (OTHERS,)
            changed, signed = await net.set(net.outside, "star")
            assert [(each.name, each.after.policy) for each in changed.topics] == [("news/today", "star")]
            assert net.manager.scopes()[0].rules[0].policy == "star"
            with pytest.raises(
                LocalError, match=r"^scope site was changed, or its manager started, after this change was"
            ):
                await net.change(net.outside, signed)
            assert any("scope site: refused a change that peer" in line for line in net.manager.status().problems)

    asyncio.run(main())


def test_a_topic_with_an_access_list_is_shown_to_members_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            await net.member.create("news/secret", credentials=OPERATOR, subscribers=[OPERATOR.principal])
            for name in ("news/secret", "news/today"):
                await net.member.subscribe(name, credentials=OPERATOR).started()
            async with asyncio.timeout(20):
                while len(net.manager.scopes()[0].topics) < 2:  # noqa: ASYNC110 - members register with their beat
                    await asyncio.sleep(0.1)
            inside, outside = await net.status(net.member), await net.status(net.outside)
            assert [each.name for each in inside.topics] == ["news/secret", "news/today"]
            assert ([each.name for each in outside.topics], outside.withheld) == (["news/today"], 1)
            assert "secret" not in str(outside)

    asyncio.run(main())


def test_a_peer_answers_a_bounded_number_of_questions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopequestions, "ASK_S", 30.0)

    async def main() -> None:
        async with network(tmp_path) as net:
            await net.status(net.outside)
            goes_on, body = asyncio.Event(), ScopeQuestions._body

            async def waiting(questions: ScopeQuestions, asker: Contact, message: AskScope) -> bytes:
                await goes_on.wait()
                return await body(questions, asker, message)

            monkeypatch.setattr(ScopeQuestions, "_body", waiting)
            asking = [asyncio.ensure_future(net.view(net.outside)) for _ in range(AT_ONCE + 2)]
            waits, done = set(asking), list[asyncio.Future[ScopeView]]()
            async with asyncio.timeout(20):
                while len(done) < 2:
                    answered, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    done += answered
            assert [view.result().problem for view in done] == [f"{AT_ONCE} others ask this peer now: ask again"] * 2
            goes_on.set()
            assert [(await each).status is not None for each in waits] == [True] * AT_ONCE

    asyncio.run(main())


def test_what_an_unknown_credential_or_another_peer_signed_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            stranger = Credentials.new()
            with pytest.raises(
                LocalError, match=f"^scope site takes no changes from the credentials {stranger.principal}"
            ):
                await net.set(net.outside, "star", stranger)
            line = f"scope site: refused a change that peer {net.outside.contact.node_id.hex()[:8]} at "
            assert [each.startswith(line) for each in net.manager.status().problems] == [True]
            with pytest.raises(
                LocalError, match=r"^scope site: this change was not signed for the peer that passes it on"
            ):
                await net.set(net.outside, "star", node=net.member.contact.node_id)
            with pytest.raises(LocalError, match=r"run the command again$"):
                await net.set(net.outside, "star", challenge="0" * 32)
            with pytest.raises(LocalError, match="there is no policy 'nothing'"):
                await net.set(net.member, "nothing")
            assert [rule.policy for rule in net.manager.scopes()[0].rules] == ["chain", "k_ary"]
            text = WantedChange("invite_to_scope", {}, (await net.status(net.outside)).challenge)
            signed = OPERATOR.change(SITE, net.outside.contact.node_id, msgspec.json.encode(text).decode())
            line = await net.change(net.outside, signed)
            assert line.startswith(f"site@{net.manager.address}?token=")

    asyncio.run(main())


@pytest.mark.parametrize("body", [b'{"x":' + 30_000 * b"[", b'{"change":"\xff"}', b"", b"[]"])
def test_what_is_no_change_is_refused_in_a_sentence(tmp_path: Path, body: bytes) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            asker = net.outside._presence.scope_questions
            with pytest.raises(LocalError, match=r"JSON|UTF-8|utf-8|recursion|Input data|Expected"):
                await asker._ask(net.manager.contact, "site", SITE, "change", body)

    asyncio.run(main())


def test_a_policy_that_no_file_could_hold_is_refused_before_it_is_saved(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            for how in ({"sha256": "ABC"}, {"pattern": "x" * 256}, {"parameters": ["a"]}, {"pattern": 5}):
                rule: dict[str, Any] = {"pattern": "news/#", "policy": "star", "parameters": {}, "sha256": "", **how}
                text = WantedChange("set_policy", rule, (await net.status(net.outside)).challenge)
                signed = OPERATOR.change(SITE, net.outside.contact.node_id, msgspec.json.encode(text).decode())
                with pytest.raises(LocalError, match=r"^this policy cannot be set: "):
                    await net.change(net.outside, signed)
            assert [rule.policy for rule in net.manager.scopes()[0].rules] == ["chain", "k_ary"]

    asyncio.run(main())


def test_a_scope_that_nobody_knows(tmp_path: Path) -> None:
    async def main() -> None:
        async with Node(runtime_dir=tmp_path) as node:
            view = await node._answer(ScopeQuestion("nowhere"))
            assert view == ScopeView(problem="no peer of the network knows a scope 'nowhere'", unknown=True)

    asyncio.run(main())


def test_a_second_manager_of_one_name_is_refused_and_takes_over_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(tmp_path) as net:
            before = await net.status(net.outside)
            where = {"runtime_dir": tmp_path / "4", "contacts": net.manager.address}
            async with Node(**where, identity=_further(net.manager), data=tmp_path / "second") as second:
                with pytest.raises(
                    LocalError, match=f"^scope 'site' has a manager already, .* {net.manager.address}: "
                ):
                    await second.manage_scope(tmp_path / "site.toml")
                assert second.scopes() == ()
            assert (await net.status(net.outside)).node_id == before.node_id

    asyncio.run(main())


def _further(node: Node) -> Identity:
    """Further from the scope's id than a peer: the closest one may have to hear of the manager first."""
    far = ring_distance(node.contact.node_id, SITE)
    return next(new for new in iter(Identity.new, None) if ring_distance(new.node_id, SITE) > far)


def test_a_silent_manager_is_named_and_a_member_says_what_it_last_knew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopequestions, "ASK_S", 0.3)

    async def main() -> None:
        async with network(tmp_path) as net:
            await net.status(net.outside)
            manager = net.manager.contact
            net.manager._peer.scoping.questions.answer = lambda asker, message: None
            for asker in (net.member, net.outside):
                view = await net.view(asker)
                assert view.status is None
                assert view.problem == (
                    f"peer {manager.node_id.hex()[:8]} at {manager.address}, which runs the manager of scope site, "
                    "does not answer within 0.3 s"
                )
                assert isinstance(view.memory, ScopeMemory)
                assert (view.memory.name, view.memory.epoch, view.memory.address) == ("site", 1, manager.address)
                assert view.memory.told_by.node_id == net.member.contact.node_id.hex()
                assert [each.node_id for each in view.memory.ring] == [net.member.contact.node_id.hex()]
            with pytest.raises(Unreachable, match="does not answer within"):
                await net.change(net.outside, OPERATOR.change(SITE, net.outside.contact.node_id, "{}"))

    asyncio.run(main())


def test_an_answer_that_is_none_of_this_version_or_too_large_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopequestions, "KEPT_S", 0.0)

    async def main() -> None:
        async with network(tmp_path) as net:
            await net.status(net.outside)
            questions = net.manager._peer.scoping.questions
            proper = questions.answer
            for body, why in (
                (b"no zlib", "cannot be unpacked"),
                (scopequestions._packed(b'{"name": 1}', "site"), "another version of quillcast"),
                (scopequestions._packed(b"{}" * 1000, "site")[:-4], "is incomplete"),
            ):

                def answer(asker: Any, message: Any, body: bytes = body) -> None:
                    net.manager._peer.host.send(asker, ScopeSays(message.number, body))

                questions.answer = answer
                with pytest.raises(Exception, match=why):
                    await net.view(net.outside)
            questions.answer = proper
            monkeypatch.setattr(scopequestions, "ANSWER_MAX", 10)
            view = await net.view(net.outside)
            assert view.problem.startswith("scope site is too large to be shown from another machine")

    asyncio.run(main())
