"""Has a plan happen: starts the processes, kills, stops and cuts them off, starts them again, and lets all settle.

It writes down what it does to whom. What came of it is for the judge.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

import quillcast
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.topics.config import TopicConfig
from tests.live.chaos import diary as entry
from tests.live.chaos import judge
from tests.live.chaos.diary import Diary
from tests.live.chaos.history import History
from tests.live.chaos.plan import Fault, Part, Plan
from tests.live.chaos.worker import Orders
from tests.live.stage import PATIENCE_S, ROOT, SMALL_RING, Wires

LOOK_S = 0.5  # between two looks at the diaries,
LOOK_SHARE = 3  # and so many times what a look takes
MIB = 1 << 20

Settings = TypeVar("Settings", bound=msgspec.Struct)


@dataclass(frozen=True)
class Terms:
    """How a run goes: what its nodes may keep and how long they wait, and how long it may take to settle."""

    lease_s: float = 30.0
    settle_s: float = 60.0
    """After the last fault: everything has come, or is reported lost, and each writer's last event is stable."""
    budget_bytes: int = 32 * MIB
    """Enough for all that is published while one root after the other holds it for a lease's time."""
    slow_budget_bytes: int = 8 * MIB
    """Of a process with slow readers: these are cut."""
    bounds: judge.Bounds = field(default_factory=judge.Bounds)

    def of(self, part: Part) -> "Terms":
        """The terms of one process."""
        slow = any(reading.pause_s for reading in part.reads)
        return replace(self, budget_bytes=self.slow_budget_bytes) if slow else self

    def config(self) -> quillcast.Config:
        """Small rings and few children, so that trees have forwarders; and the budget.

        With the lease all other times are shorter than by default, so that a loss is noticed and repaired within the
        same share of it; but a busy machine is given the time that it takes to answer.
        """
        pace = self.lease_s / TopicConfig().lease_s
        topics = msgspec.structs.replace(
            _at_pace(TopicConfig(), pace),
            budget_bytes=self.budget_bytes,
            retain_bytes=self.budget_bytes,
            window_bytes=self.budget_bytes // 16,
            children_per_topic_max=3,
        )
        neighbours = msgspec.structs.replace(
            _at_pace(NeighbourConfig(), pace), timeout_min_s=NeighbourConfig().timeout_min_s
        )
        ring = msgspec.convert(SMALL_RING, quillcast.Config)
        return msgspec.structs.replace(ring, topics=topics, neighbours=neighbours)

    def live(self) -> quillcast.LiveConfig:
        return quillcast.LiveConfig(window_bytes=self.budget_bytes // 16, subscription_bytes=self.budget_bytes // 8)


def terms(lease_s: float, settle_s: float) -> Terms:
    """Terms whose judge knows of the lease."""
    return Terms(lease_s, settle_s, bounds=replace(judge.Bounds(), lease_s=lease_s))


def _at_pace(settings: Settings, pace: float) -> Settings:
    """Settings whose times are all multiplied by a number."""
    times = {name: pace * getattr(settings, name) for name in settings.__struct_fields__ if name.endswith("_s")}
    return msgspec.structs.replace(settings, **times)


class Player:
    """A process of the run, over its lives."""

    def __init__(self, orders: Orders, folder: Path, log: Diary, namespace: str | None) -> None:
        self.name, self.life, self.namespace = orders.part.name, 0, namespace
        self._orders, self._folder, self._log = orders, folder, log
        self._process: asyncio.subprocess.Process
        self._watching: asyncio.Task[None] | None = None  # while it runs
        self._said: dict[str, asyncio.Event] = {}
        self.busy = asyncio.Lock()
        """Held while a fault befalls it, or it starts again: the next one waits."""

    async def start(self) -> None:
        """Begin a life; it reads and writes when this returns."""
        self.life += 1
        self._said = {word: asyncio.Event() for word in ("ready", "finished")}
        orders = msgspec.structs.replace(self._orders, life=self.life)
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        errors = self._errors.open("wb")
        with errors:
            self._process = await asyncio.create_subprocess_exec(
                *inside, sys.executable, "-m", "tests.live.chaos.worker", msgspec.json.encode(orders).decode(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors, cwd=ROOT,
                env={
                    **os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                    "XDG_RUNTIME_DIR": str(self._folder / "runtime"), "XDG_CONFIG_HOME": str(self._folder / "config"),
                },
            )  # fmt: skip
        self._watching = asyncio.create_task(self._watch())
        await self._hear("ready", PATIENCE_S)

    async def kill(self) -> None:
        if self._watching is not None:
            self._note(entry.Killed)
            self._process.send_signal(signal.SIGKILL)
            await self._watching

    async def leave(self) -> None:
        """Have it leave in good order."""
        if self._watching is not None:
            self._note(entry.Leaving)
            self._order("leave")
            _, staying = await asyncio.wait([self._watching], timeout=PATIENCE_S)
            if staying:
                self._log.note(entry.Complained, self.name, self.life, f"did not leave within {PATIENCE_S:g} s")

    def stop(self) -> None:
        if self._watching is not None:
            self._note(entry.Stopped)
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self._watching is not None:
            self._process.send_signal(signal.SIGCONT)
            self._note(entry.Resumed)

    async def finish(self, within_s: float) -> None:
        """Have it publish the last events; returns when these are acknowledged, or will not be."""
        if self._watching is not None:
            self._order("finish")
            await self._hear("finished", within_s)

    @property
    def _errors(self) -> Path:
        return self._folder / f"{self.name}.{self.life}.err"

    def _note(self, kind: type[entry.Entry]) -> None:
        self._log.note(kind, self.name, self.life)

    def _order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")

    async def _hear(self, word: str, within_s: float) -> None:
        """Wait for a word, or the end of the process, or of patience: the judge sees what is missing then."""
        assert self._watching is not None
        heard = asyncio.create_task(self._said[word].wait())
        await asyncio.wait([heard, self._watching], timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()

    async def _watch(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._said[line.decode().strip()].set()
        status = await self._process.wait()
        self._watching = None
        self._log.note(entry.Ended, self.name, self.life, status)
        if text := self._errors.read_text(errors="replace"):
            self._log.note(entry.Complained, self.name, self.life, text)


class Conductor:
    """A run."""

    def __init__(self, plan: Plan, terms: Terms, folder: Path, wires: Wires | None = None) -> None:
        self._plan, self._terms, self._folder, self._wires = plan, terms, folder, wires
        (folder / "runtime").mkdir(parents=True, exist_ok=True)
        self._log = Diary(folder / "conductor.diary")
        self._players = {part.name: self._player(part) for part in plan.parts}

    async def run(self) -> None:
        """From the first process's start to the last one's end."""
        try:
            for setting in self._plan.settings:
                self._log.note(entry.Topic, setting.topic, "reliable", setting.slow)
            first, *others = self._players.values()
            await first.start()
            await asyncio.gather(*(player.start() for player in others))
            await self._let_happen()
            await self._settle()
            await asyncio.gather(*(player.leave() for player in self._players.values()))
        finally:
            for player in self._players.values():
                await player.kill()

    def _player(self, part: Part) -> Player:
        namespace, listen = self._wires.host() if self._wires else (None, "127.0.0.1:0")
        first, own = part is self._plan.parts[0], self._terms.of(part)
        orders = Orders(
            part=part,
            life=0,
            seed=self._plan.seed,
            diary=str(self._folder / f"{part.name}.diary"),
            node={"network": "chaos", "listen": listen, "data": str(self._folder / "data" / part.name)},
            config=own.config(),
            live=own.live(),
            settings=self._plan.settings if first else (),
            finish_s=self._terms.settle_s,
        )
        return Player(orders, self._folder, self._log, namespace)

    # --- faults

    async def _let_happen(self) -> None:
        """The plan's faults, each at its time."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as faults:
            for fault in self._plan.faults:
                await asyncio.sleep(began + fault.at_s - asyncio.get_running_loop().time())
                faults.create_task(self._befall(fault))

    async def _befall(self, fault: Fault) -> None:
        players = [self._players[name] for name in fault.names]
        async with contextlib.AsyncExitStack() as stack:
            for player in players:  # always in this order
                await stack.enter_async_context(player.busy)
            match fault.do:
                case "kill":
                    await asyncio.gather(*(self._gone(player, player.kill, fault.for_s) for player in players))
                case "leave":
                    await asyncio.gather(*(self._gone(player, player.leave, fault.for_s) for player in players))
                case "stop":
                    await self._stop(players, fault.for_s)
                case "partition":
                    await self._partition(players, fault.for_s)

    async def _gone(self, player: Player, end: Callable[[], Awaitable[None]], for_s: float) -> None:
        await end()
        await asyncio.sleep(for_s)
        await player.start()

    async def _stop(self, players: list[Player], for_s: float) -> None:
        for player in players:
            player.stop()
        await asyncio.sleep(for_s)
        for player in players:
            player.go_on()

    async def _partition(self, players: list[Player], for_s: float) -> None:
        assert self._wires is not None
        names = tuple(player.name for player in players)
        hosts = [player.namespace for player in players if player.namespace]
        self._log.note(entry.Partitioned, names)
        self._wires.partition(hosts)
        await asyncio.sleep(for_s)
        for host in hosts:
            self._wires.heal(host)
        self._log.note(entry.Healed, names)

    # --- the end

    async def _settle(self) -> None:
        """Until nothing is missing, or everything has had its time."""
        self._log.note(entry.Finishing)
        by = time.monotonic() + self._terms.settle_s
        await asyncio.gather(*(player.finish(self._terms.settle_s + PATIENCE_S) for player in self._players.values()))
        while True:
            began = time.monotonic()
            if began > by or not any(judge.missing(History.read(self._folder), self._terms.bounds)):
                break
            await asyncio.sleep(max(LOOK_S, LOOK_SHARE * (time.monotonic() - began)))
        self._log.note(entry.Settled)
