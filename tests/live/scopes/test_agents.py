"""Recovery agents of other packages: how they are loaded, checked, and stopped when they do what no agent may."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from quillcast.core.envelope import Term
from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.core.trace import Mark
from quillcast.live.runtime.patience import Patience
from quillcast.live.scopes import agents
from quillcast.live.scopes.agentchild import AgentChild
from quillcast.live.scopes.agentorders import FROM_AGENT, TO_AGENT, Begin, FromAgent, ToAgent
from quillcast.live.scopes.agents import QUESTIONS_MAX, TIMERS_MAX, WORDS_MAX, AgentLine, ConfinedAgent, LineListener
from quillcast.live.scopes.plugins import InstalledRecoveries, agent_line, check_recovery, protocol_class
from quillcast.live.scopes.process import ANSWER_LIMIT_S, START_LIMIT_S
from quillcast.live.scopes.socketline import SocketLine, Surroundings
from quillcast.protocol.reliability.conformance import TIMES, check
from quillcast.protocol.reliability.domain import AgentContext, Findings, Holder, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord
from tests.protocol.recording import ALICE, BOB, CAROL

PACKAGE = Path(__file__).parents[3] / "examples" / "recovery" / "by_entry_point"
SCOPE, STREAM = b"s" * 16, StreamId(bytes(16), Term(1, bytes(16)))
LACKS = [(0, 3)]
ALONG_TREE = Findings((), (CAROL,), LACKS)
SOUGHT = Findings([], (), [])
MODULE = "agents_in_need"
NOBODY = Surroundings(print, lambda time_s, function: Never())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's package as pip installs it."""
    told = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "roll_call-1.0.dist-info"
    info.mkdir()
    shutil.copy(PACKAGE / "roll_call.py", tmp_path)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {told['version']}\n")
    entries = told["entry-points"]["quillcast.recovery_protocols"].items()
    lines = ["[quillcast.recovery_protocols]", *(f"{name} = {value}" for name, value in entries)]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    offered.cache_clear()
    yield
    offered.cache_clear()
    sys.modules.pop("roll_call", None)


def test_the_tests_of_the_example_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PACKAGE), str(PACKAGE)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE), *sys.path])}
    ended = subprocess.run(command, cwd=PACKAGE, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.usefixtures("site")
def test_an_installed_package_offers_a_recovery_protocol_by_name() -> None:
    recoveries = InstalledRecoveries(print, NOBODY)
    assert list(recoveries) == ["roll_call"]
    check_recovery("roll_call")
    assert check(protocol_class("roll_call"), whole=True, sizes=(1, 3, 6)).messages > 0


def test_a_protocol_that_nobody_offers_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LocalError, match=r"no recovery protocol 'rink' \(did you mean ring\?\); known: tree, gossip"):
        check_recovery("rink")
    with pytest.raises(KeyError):
        protocol_class("rink")
    assert InstalledRecoveries(print, NOBODY).get("rink") is None


class Never:
    """A time-out that is never over."""

    def end(self) -> None: ...


class Direct:
    """A line to an agent in this process, which carries out orders when it is told to `run`."""

    def __init__(self, listener: LineListener) -> None:
        self.listener = listener
        self.orders, self.answers = deque[Begin](), deque[ToAgent]()
        self.child = AgentChild(self._say, self.answers.popleft)
        self.waits: list[tuple[float, Callable[[], object]]] = []
        self.is_closed = False

    def send(self, message: msgspec.Struct) -> None:
        came = TO_AGENT.decode(msgspec.msgpack.encode(message))
        if isinstance(came, Begin):
            self.orders.append(came)
        else:
            self.answers.append(came)

    def _say(self, message: msgspec.Struct) -> None:
        came: FromAgent = FROM_AGENT.decode(msgspec.msgpack.encode(message))
        self.listener.came(came)

    def wait(self, time_s: float, function: Callable[[], object]) -> Never:
        self.waits.append((time_s, function))
        return Never()

    def close(self) -> None:
        self.is_closed = True

    def run(self) -> None:
        while self.orders and not self.is_closed:
            self.child.carry_out(self.orders.popleft())


class Member:
    """What an agent is given: Alice and her state, and what it orders of her."""

    me, contact, random = ALICE.node_id, ALICE, Random(1)

    def __init__(self) -> None:
        self.time = 0.0
        self.lacking: list[Range] = LACKS
        self.sent: list[tuple[Contact, Message]] = []
        self.timers: list[Any] = []
        self.told: list[str] = []
        self.marks: list[object] = []
        self.repaired: list[Findings] = []
        self.came = asyncio.Event()
        self.line: Direct

    def now(self) -> float:
        return self.time

    def send(self, to: Contact, message: Message) -> None:
        self.sent.append((to, message))

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.timers.append(timer)

    def proximity(self, node: bytes) -> float | None:
        return 0.25

    def trace(self, record: object) -> None:
        self.marks.append(record)

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return [(0, 1)]

    def lacks(self, stream: StreamId) -> list[Range]:
        return self.lacking

    def found(self, stream: StreamId) -> None:
        """Repairs go on with what was found."""
        self.repaired.append(self.finds())

    def hand(self, function: Callable[..., object], *args: Any) -> None:
        """An input from the agent's process."""
        function(*args)
        self.came.set()

    async def after_an_input(self) -> None:
        self.came.clear()
        await self.came.wait()

    def agent(self, name: str, open_line: Callable[[LineListener], AgentLine] | None = None) -> ConfinedAgent:
        """An agent whose domain has Bob in it, besides Alice."""
        context = AgentContext(self, TIMES, SCOPE, self)
        self.asked = ConfinedAgent("odd", f"{MODULE}:{name}", context, open_line or self._direct, self.told.append)
        self.asked.follow((BOB,))
        return self.asked

    def _direct(self, listener: LineListener) -> Direct:
        self.line = Direct(listener)
        return self.line

    def finds(self) -> Findings:
        return self.asked.find(STREAM, self.lacking, (CAROL,), at_border=False)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package with the odd agents, here and in processes."""
    folder = str(Path(__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, *sys.path]))


@pytest.mark.usefixtures("package")
def test_what_an_agent_found_is_an_input_of_its_own() -> None:
    member = Member()
    agent = member.agent("Speaks")
    assert member.finds() == ALONG_TREE, "its process has not started"
    member.line.run()
    assert member.finds() == SOUGHT
    member.line.run()
    found = Findings([Holder(BOB, [(0, 1)])], [BOB], [(2, 3)])
    assert member.repaired == [found]
    assert member.sent == [(BOB, AgentWord(SCOPE, "odd", b"hello"))], "it speaks under the name of its own protocol"
    assert member.marks == [Mark("spoke")]
    (timer,) = member.timers
    assert (timer.scope, timer.protocol) == (SCOPE, "odd")
    member.lacking = [(1, 3)]
    agent.due(timer.what)
    member.line.run()
    assert member.repaired[1:] == [Findings([], [BOB], [(2, 3)])], "what is lacking no more is left out"
    member.lacking = []
    agent.filled(STREAM)
    member.line.run()
    agent.end()
    assert (member.told, member.line.is_closed) == ([], True)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("CannotBeMade", r"it raised ZeroDivisionError: division by zero \(agents_in_need.py, line \d+\)"),
        ("Raises", r"it raised RuntimeError: out of luck \(agents_in_need.py, line \d+\)"),
        ("Floods", f"it sends more than {WORDS_MAX} words in 0.5 s"),
        ("NeverRests", f"it sets more than {TIMERS_MAX} timers in 0.5 s"),
        ("AsksOnAndOn", f"it sends more than {QUESTIONS_MAX} questions and answers in 0.5 s"),
        ("WritesToStrangers", "it names 127.0.0.1:99, which is not a member of its domain"),
        ("WritesTooMuch", f"it sends {WORD_BYTES_MAX + 1} bytes in one word; at most {WORD_BYTES_MAX} are allowed"),
        ("Forges", "it records a Stopped instead of a Mark"),
        ("NamesStrangers", "it names 127.0.0.1:99, which is not a member of its domain"),
        ("SeeksMore", r"it seeks \(3, 9\), which its member does not lack"),
        ("Babbles", "its answer is a str instead of Findings"),
    ],
)
def test_an_agent_that_does_what_none_may_is_stopped_and_the_tree_repairs(odd: str, why: str) -> None:
    member = Member()
    member.agent(odd)
    member.line.run()
    member.finds()
    member.line.run()
    assert member.finds() == ALONG_TREE
    (line,) = member.told
    assert re.fullmatch(f"recovery protocol odd was stopped: {why}; members repair along the tree", line)
    assert member.line.is_closed
    assert len(member.sent) <= WORDS_MAX


@pytest.mark.usefixtures("package")
def test_an_agent_has_one_order_at_a_time_and_a_limit_for_each() -> None:
    member = Member()
    agent = member.agent("Odd")
    for _ in range(2 * WORDS_MAX):
        agent.received(BOB, AgentWord(SCOPE, "odd", b"hello"))
    assert len(member.line.orders) == 1
    assert len(agent.waiting) == WORDS_MAX, "further words are lost"
    member.line.run()
    assert [time_s for time_s, _ in member.line.waits] == [START_LIMIT_S, *[ANSWER_LIMIT_S] * WORDS_MAX]
    member.finds()
    member.line.waits[-1][1]()
    why = "it took longer than 2 s for a call"
    assert member.told == [f"recovery protocol odd was stopped: {why}; members repair along the tree"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ("Speaks", ""),
        ("NeverEnds", "it took longer than 0.2 s for a call"),
        ("Exits", "its process ended with exit code 3"),
        ("TakesMemory", "it exceeded its memory limit"),
    ],
)
def test_an_agent_runs_in_a_process_that_can_be_killed(odd: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        member, loop = Member(), asyncio.get_running_loop()
        surroundings = Surroundings(member.hand, partial(Patience, loop))
        monkeypatch.setattr(agents, "START_LIMIT_S", 30.0)
        agent = member.agent(odd, partial(agent_line, surroundings))
        assert isinstance(agent.line, SocketLine)
        try:
            async with asyncio.timeout(30.0):
                while not agent.is_made:
                    await member.after_an_input()
                monkeypatch.setattr(agents, "ANSWER_LIMIT_S", 0.2 if odd == "NeverEnds" else 10.0)
                member.finds()
                while not member.repaired and not member.told:
                    await member.after_an_input()
            assert [line.partition(": ")[2].partition(";")[0] for line in member.told] == ([told] if told else [])
            assert member.finds() == (ALONG_TREE if told else member.repaired[0])
        finally:
            agent.end()
        assert agent.line.process.returncode is not None

    asyncio.run(main())
