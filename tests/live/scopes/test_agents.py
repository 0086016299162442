"""Recovery agents of other packages: how they are loaded, checked, and stopped when they do what no agent may."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quillcast.core.envelope import Term
from quillcast.core.errors import LocalError
from quillcast.core.extensions import offered
from quillcast.core.messages import Contact, Message
from quillcast.core.ranges import Range
from quillcast.live.scopes.agents import CALL_LIMIT_S, TIMERS_MAX, WORDS_MAX, GuardedAgent
from quillcast.live.scopes.plugins import InstalledRecoveries, check_recovery, protocol_class
from quillcast.protocol.reliability.conformance import TIMES, check
from quillcast.protocol.reliability.domain import AgentDue, Findings, Post, Silent, StreamId
from quillcast.protocol.reliability.messages import WORD_BYTES_MAX, AgentWord
from tests.protocol.recording import ALICE, BOB, CAROL

PACKAGE = Path(__file__).parents[3] / "examples" / "recovery" / "by_entry_point"
SCOPE, STREAM = b"s" * 16, StreamId(bytes(16), Term(1, bytes(16)))
LACKS = [(0, 3)]


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
    told = list[str]()
    recoveries = InstalledRecoveries(told.append)
    assert list(recoveries) == ["roll_call"]
    check_recovery("roll_call")
    assert check(recoveries["roll_call"], whole=True, sizes=(1, 3, 6)).messages > 0
    assert told == []


def test_a_protocol_that_nobody_offers_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(LocalError, match=r"no recovery protocol 'rink' \(did you mean ring\?\); known: tree, gossip"):
        check_recovery("rink")
    with pytest.raises(KeyError):
        protocol_class("rink")
    assert InstalledRecoveries(print).get("rink") is None


class Member:
    """What an agent is given: Alice and her state, and what it orders of her."""

    me, contact, random = ALICE.node_id, ALICE, Random(1)

    def __init__(self) -> None:
        self.time = 0.0
        self.sent: list[tuple[Contact, Message]] = []
        self.timers: list[Any] = []
        self.told: list[str] = []

    def now(self) -> float:
        return self.time

    def send(self, to: Contact, message: Message) -> None:
        self.sent.append((to, message))

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.timers.append(timer)

    def proximity(self, node: bytes) -> float | None:
        return None

    def trace(self, record: object) -> None: ...
    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        return []

    def lacks(self, stream: StreamId) -> list[Range]:
        return LACKS

    def found(self, stream: StreamId) -> None: ...

    def agent(self, make: Callable[[Post], Any], clock: Callable[[], float] = lambda: 0.0) -> GuardedAgent:
        """An agent whose domain has Bob in it, besides Alice."""
        agent = GuardedAgent("odd", make, Post(self, TIMES, SCOPE, self), self.told.append, clock)
        agent.follow((BOB,))
        return agent

    def finds(self, agent: GuardedAgent) -> Findings:
        return agent.find(STREAM, LACKS, (CAROL,), at_border=False)


class Odd(Silent):
    """It does one odd thing when it is asked."""

    def __init__(self, post: Post) -> None:
        self.host = post.host

    def find(self, stream: StreamId, lacks: list[Range], neighbours: Sequence[Contact], *, at_border: bool) -> Any:
        return self.act() or Findings((), (), ())

    def act(self) -> Any: ...


class Speaks(Odd):
    def act(self) -> Any:
        self.host.send(BOB, AgentWord(b"x" * 16, "another", b"hello"))
        self.host.set_timer(AgentDue(b"x" * 16, "another", 7), 1.0)


class Raises(Odd):
    def act(self) -> Any:
        raise RuntimeError("out of\nluck")


class Floods(Odd):
    def act(self) -> Any:
        for _ in range(WORDS_MAX + 1):
            self.host.send(BOB, AgentWord(SCOPE, "odd", b""))


class NeverRests(Odd):
    def act(self) -> Any:
        for _ in range(TIMERS_MAX + 1):
            self.host.set_timer(AgentDue(SCOPE, "odd"), 0.0)


class Swallows(Odd):
    """It goes on although it was told to stop."""

    def act(self) -> Any:
        for _ in range(2 * WORDS_MAX):
            try:
                self.host.send(BOB, AgentWord(SCOPE, "odd", b""))
            except Exception:  # noqa: BLE001
                continue


class WritesToStrangers(Odd):
    def act(self) -> Any:
        self.host.send(Contact(b"z" * 16, "127.0.0.1:99"), AgentWord(SCOPE, "odd", b""))


class WritesTooMuch(Odd):
    def act(self) -> Any:
        self.host.send(BOB, AgentWord(SCOPE, "odd", bytes(WORD_BYTES_MAX + 1)))


class NamesStrangers(Odd):
    def act(self) -> Any:
        return Findings((), (Contact(b"z" * 16, "127.0.0.1:99"),), ())


class SeeksMore(Odd):
    def act(self) -> Any:
        return Findings((), (), [(0, 9)])


class Babbles(Odd):
    def act(self) -> Any:
        return "nowhere"


def test_an_agent_speaks_under_the_name_of_its_own_protocol() -> None:
    member = Member()
    assert member.finds(member.agent(Speaks)) == Findings((), (), ())
    assert member.sent == [(BOB, AgentWord(SCOPE, "odd", b"hello"))]
    assert member.timers == [AgentDue(SCOPE, "odd", 7)]
    assert member.told == []


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (Raises, "it raised RuntimeError: out of luck"),
        (Floods, f"it sends more than {WORDS_MAX} words in 0.5 s"),
        (Swallows, f"it sends more than {WORDS_MAX} words in 0.5 s"),
        (NeverRests, f"it sets more than {TIMERS_MAX} timers in 0.5 s"),
        (WritesToStrangers, "it names 127.0.0.1:99, which is no member of its domain"),
        (WritesTooMuch, f"it sends {WORD_BYTES_MAX + 1} bytes in one word; at most {WORD_BYTES_MAX} are allowed"),
        (NamesStrangers, "it names 127.0.0.1:99, which is no member of its domain"),
        (SeeksMore, "it seeks (3, 9), which its member does not lack"),
        (Babbles, "its answer is a str instead of Findings"),
    ],
)
def test_an_agent_that_does_what_none_may_is_stopped_and_the_tree_repairs(odd: Callable[[Post], Any], why: str) -> None:
    member = Member()
    agent = member.agent(odd)
    along_tree = Findings((), (CAROL,), LACKS)
    assert member.finds(agent) == along_tree
    assert member.told == [f"recovery protocol odd was stopped: {why}; members repair along the tree"]
    member.time += 1.0
    assert member.finds(agent) == along_tree
    assert len(member.sent) <= WORDS_MAX
    assert len(member.told) == 1


def test_an_agent_that_cannot_be_made_or_takes_too_long_is_stopped() -> None:
    member, times = Member(), iter([0.0, 0.0, 1.0, 1.0, 2.0, 2.0 + 2 * CALL_LIMIT_S])
    assert member.finds(member.agent(lambda post: 1 / 0)).neighbours == (CAROL,)
    member.finds(member.agent(Odd, lambda: next(times)))
    assert [line.partition(": ")[2].partition(";")[0] for line in member.told] == [
        "it raised ZeroDivisionError: division by zero",
        "a call took 0.5 s, longer than 0.25 s",
    ]
