"""Live members of a scope that miss events get them from other members, by the protocol that the scope's file names."""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from quillcast import Config
from quillcast.core.bundle import Bundle
from quillcast.core.envelope import UP
from quillcast.core.extensions import offered
from quillcast.core.ids import ring_distance
from quillcast.core.messages import Contact, Message
from quillcast.live.node.host import LiveHost
from quillcast.live.node.node import Node
from quillcast.live.scopes import agents
from quillcast.live.scopes.agents import ConfinedAgent
from quillcast.live.transport.hello import Identity
from quillcast.protocol.reliability.messages import AgentWord, Fetch, Offered, RingToken, Sought
from quillcast.protocol.reliability.protocols.suppression import Suppression
from quillcast.protocol.reliability.protocols.token_ring import TokenRing
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.descriptor import described
from tests.live.test_scope import parent_in

LOST = 3
QUICK = Config(topics=TopicConfig(gap_s=0.05))
FILE = """
name = "site"
[admission]
members = [{members}]
[[topics]]
pattern = "#"
policy = "star"
recovery = "{by}"
"""


class Wire:
    """What nodes of this process send. The first events to one of them are lost, once there is one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[bytes, bytes, Message]] = []
        self.victim, self.lost = b"", 0
        send, carry = LiveHost.send, LiveHost.carry

        def note(host: LiveHost, to: Contact, message: Message) -> None:
            self.sent.append((host.me, to.node_id, message))
            send(host, to, message)

        def lose(host: LiveHost, to: Contact, bundle: Bundle) -> None:
            if to.node_id == self.victim and bundle.envelope.kind is not UP and self.lost < LOST:
                self.lost += 1
            else:
                carry(host, to, bundle)

        monkeypatch.setattr(LiveHost, "send", note)
        monkeypatch.setattr(LiveHost, "carry", lose)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with two recovery protocols: the example, and one whose agents loop when asked."""
    info = tmp_path / "site" / "agents-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agents\nVersion: 1.0\n")
    entries = "never_ends = agents_in_need:NeverEnds\nroll_call = roll_call:RollCall\n"
    (info / "entry_points.txt").write_text(f"[quillcast.recovery_protocols]\n{entries}")
    folders = [Path(__file__).parent / "scopes", Path(__file__).parents[2] / "examples" / "recovery" / "by_entry_point"]
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, folders), *sys.path]))
    monkeypatch.setattr(agents, "START_LIMIT_S", 60.0)
    offered.cache_clear()
    yield
    offered.cache_clear()


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("recovery", "words"), [("ring", {RingToken}), ("srm", {Sought, Offered}), ("roll_call", {AgentWord})]
)
def test_a_member_gets_what_it_misses_from_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovery: str, words: set[type[Message]]
) -> None:
    wire, inside, _ = repaired(tmp_path, monkeypatch, recovery)
    assert words <= {type(message) for _, _, message in wire.sent}
    asked = [to for sender, to, message in wire.sent if isinstance(message, Fetch) and sender in inside]
    assert asked
    assert {*asked} <= inside


@pytest.mark.usefixtures("site")
def test_a_member_gets_what_it_misses_though_its_agent_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "ANSWER_LIMIT_S", 0.2)
    _, _, problems = repaired(tmp_path, monkeypatch, "never_ends")
    why = "it took longer than 0.2 s for a call; members repair along the tree"
    assert f"recovery protocol never_ends was stopped: {why}" in problems


def repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovery: str) -> tuple["Wire", set[bytes], list[str]]:
    """A member of three gets what was lost on the way to it. Returns what was sent, the members, and its problems."""
    wire, problems = Wire(monkeypatch), list[str]()
    identities = [Identity.new() for _ in range(3)]
    inside = {identity.node_id for identity in identities}

    async def main() -> None:
        run, file = tmp_path / "run", tmp_path / "site.toml"
        file.write_text(FILE.format(members=", ".join(f'"{node.hex()}"' for node in inside), by=recovery))
        async with AsyncExitStack() as stack:
            outside = await stack.enter_async_context(Node(runtime_dir=run, data=tmp_path / "data", config=QUICK))
            await outside.manage_scope(file)
            scope = f"site@{outside.address}"
            members = [
                await stack.enter_async_context(Node(runtime_dir=run, identity=each, scope=scope, config=QUICK))
                for each in identities
            ]
            name = rooted_at(outside._peer.host.me, inside)
            subscriptions = [member.subscribe(name) for member in members]
            for subscription in subscriptions:
                await subscription.started()
            await outside.publish(name, b"before", wait="stable")
            async with asyncio.timeout(60.0):
                await outside._pump.until(lambda: sum(parent_in(each, members, name) for each in members) == 2)
                victim = next(member for member in members if parent_in(member, members, name))
                await victim._pump.until(lambda: knows_all(victim, name))
            wire.sent.clear()
            wire.victim = victim._peer.host.me
            for number in range(2 * LOST):
                await outside.publish(name, b"%d" % number, wait="root")
            async with asyncio.timeout(60.0):
                for subscription in subscriptions:
                    got = [(await anext(subscription)).payload for _ in range(1 + 2 * LOST)]
                    assert got == [b"before", *(b"%d" % number for number in range(2 * LOST))]
            problems.extend(victim._presence.links.problems.recent)
        assert wire.lost == LOST

    asyncio.run(main())
    return wire, inside, problems


def knows_all(member: Node, topic: str) -> bool:
    """Does its agent know the two other members?"""
    agent = member._peer.recovery.agents.of(described(topic).topic)[0][0].agent
    if isinstance(agent, ConfinedAgent):
        return agent.is_made and len(agent.gate.others) == 2
    return isinstance(agent, TokenRing | Suppression) and len(agent.others) == 2


def rooted_at(node: bytes, others: set[bytes]) -> str:
    """A topic whose root is this node."""
    names = (f"news/{number}" for number in count())
    return next(name for name in names if min((node, *others), key=lambda each: distance(each, name)) == node)


def distance(node: bytes, name: str) -> int:
    return ring_distance(node, described(name).topic)
