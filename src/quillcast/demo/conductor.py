"""The conductor: starts the network, assigns the roles, publishes the events, and waits until all are delivered."""

import asyncio
import itertools
import math
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from quillcast.core.errors import LocalError
from quillcast.core.ids import number
from quillcast.core.journal import Entry
from quillcast.data import Event
from quillcast.demo import roles
from quillcast.demo.answers import (
    QUESTIONS,
    EndQuestion,
    KillQuestion,
    PartitionQuestion,
    PeerShown,
    PeersQuestion,
    SlowQuestion,
)
from quillcast.demo.display import Display
from quillcast.demo.kills import Kills
from quillcast.demo.network import HOW_TO, control_path
from quillcast.demo.orders import Create, Publish, Subscribe, Unsubscribe
from quillcast.demo.peer import Setting
from quillcast.demo.processes import PeerFailed, PeerProcess
from quillcast.demo.roles import Roles, assign_roles
from quillcast.demo.state import State
from quillcast.live.discovery.control import ControlServer
from quillcast.live.discovery.questions import PeerQuestion, name_of
from quillcast.pipeline.run import Run
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig

CONFIG = Config(overlay=OverlayConfig(digit_bits=1, leaf_set_size=4))
"""With b = 4 and l = 16 sixteen peers all know each other and every tree is a star. These settings give deeper
trees."""

STARTED_AT_ONCE = 4
JOIN_BOUND_S = 30.0  # until all peers have joined and their leaf sets are right; a guess, like those below
ROLES_BOUND_S = 15.0  # until the trees match the assigned roles
SETTLE_BOUND_S = 30.0  # until every subscriber has all published events


class Plan(NamedTuple):
    """The options of the demo."""

    network: str
    folder: Path
    peers: int
    rate: float
    seed: int
    kill: bool
    events: Sequence[Event]
    stay: bool = False
    """Publish the events in a loop until the demo is told to end."""
    scopes: bool = False
    """Run three sites (`sites`). Their events, too, are published in a loop until the story is over."""

    @property
    def journals(self) -> Path:
        """The folder for the peers' journals."""
        return self.folder / "journals"

    @property
    def length_s(self) -> float:
        """For how long events are published."""
        return len(self.events) / self.rate


class Conductor:
    """Runs the network from start to end. Calls `on_stream` when publishing begins."""

    def __init__(self, plan: Plan, state: State, display: Display, on_stream: Callable[[], object]) -> None:
        self.plan, self.state, self.display, self.on_stream = plan, state, display, on_stream
        self.processes: dict[bytes, PeerProcess] = {}
        self.kills = Kills(state, display, self.processes)
        self._started: list[PeerProcess] = []
        self._enough = asyncio.Event()

    def enough(self) -> None:
        """End the stream, and then end the demo in good order."""
        self._enough.set()

    async def perform(self) -> Run:
        """Run the demo to its end. Raises `PeerFailed` if a process ends that nobody killed."""
        following = asyncio.create_task(self.state.follow(self._tell))
        try:
            await self._start_network()
            assigned = await self._assign_roles()
            async with ControlServer(control_path(self.plan.network), partial(self._answer, assigned), QUESTIONS):
                await self._stream(assigned)
            await self._settle()
            end_ns = time.time_ns()
            await self._leave()
            return self._run(end_ns)
        finally:
            following.cancel()
            for process in self._started:
                process.end()

    # --- the network

    async def _start_network(self) -> None:
        self.display.phase(f"starting {self.plan.peers} processes")
        first, *others = [self._setting(index) for index in range(self.plan.peers)]
        gate = asyncio.Semaphore(STARTED_AT_ONCE)
        await self._start(first, gate)
        await asyncio.gather(*[self._start(setting, gate) for setting in others])
        self.display.phase("joining: waiting until every leaf set is right")
        if not await self.state.until(self._is_complete, JOIN_BOUND_S):
            raise PeerFailed(
                f"the overlay is not complete after {JOIN_BOUND_S:g} s: "
                f"{len(self.state.watch.active)} of {self.plan.peers} peers have joined"
            )
        self.display.note(
            f"the overlay is complete: {self.plan.peers} peers, and each knows its neighbours on the ring"
        )

    def _setting(self, index: int) -> Setting:
        name = f"p{index:02}"
        return Setting(
            name=name,
            network=self.plan.network,
            journal=self.plan.journals,
            log=self.plan.folder / "peers" / f"{name}.log",
            config=CONFIG,
            secret=Random(f"quillcast demo {self.plan.seed} {index}").randbytes(32),
        )

    async def _start(self, setting: Setting, gate: asyncio.Semaphore) -> None:
        async with gate:
            process = PeerProcess(setting)
            self._started.append(process)
            await process.ready()
            self.processes[process.node_id] = process
            self.state.meet(process.node_id, process.name)

    def _is_complete(self) -> bool:
        """Whether every peer has joined and knows its neighbours on the ring."""
        watch, ring = self.state.watch, sorted(self.processes, key=number)
        half = min(CONFIG.overlay.leaf_set_size, len(ring) - 1) // 2
        return len(watch.active) == len(ring) and all(
            ring[(place + step) % len(ring)] in watch.leaf_sets.get(peer, ())
            for place, peer in enumerate(ring)
            for step in (*range(-half, 0), *range(1, half + 1))
        )

    # --- roles

    async def _assign_roles(self) -> Roles:
        """Let all peers join the busiest topic's tree on trial. Then free its root and two forwarders of any role.

        The next busiest topic's events are numbered by their sources, and those of all others by the root.
        """
        state, weights = self.state, Counter(event.topic for event in self.plan.events)
        busiest, *others = sorted(weights, key=lambda topic: (weights[topic], topic), reverse=True)
        state.choose(busiest, next(iter(others), ""))
        self.display.phase(f"a trial tree: all subscribe to {busiest}")
        await self._order_all(list(self.processes), Subscribe(busiest))
        await state.until(lambda: len(state.view.parents()) == self.plan.peers, ROLES_BOUND_S)
        assigned = assign_roles(state.view.parents(), self.plan.seed)
        self.display.phase("assigning the roles")
        await self._order_all([*assigned.spare, *assigned.publishers], Unsubscribe(busiest))
        if state.by_source:
            await self._order_all(assigned.publishers[:1], Create(state.by_source, "source"))
        random = Random(self.plan.seed)
        for topic in sorted(others):
            await self._order_all(
                random.sample(assigned.subscribers, (len(assigned.subscribers) + 1) // 2), Subscribe(topic)
            )
        await state.until(lambda: self._is_pruned(assigned), ROLES_BOUND_S)
        self._report_roles(assigned)
        return assigned

    async def _order_all(self, peers: Sequence[bytes], order: Create | Subscribe | Unsubscribe) -> None:
        await asyncio.gather(*[self.processes[peer].order(order) for peer in peers])

    def _is_pruned(self, assigned: Roles) -> bool:
        """Whether everyone in the busiest topic's tree is needed there, and every subscription is established."""
        view = self.state.view
        parents = view.parents()
        needed = {*assigned.subscribers, *roles.children_of(parents), *roles.roots(parents)}
        return set(view.subscribers) == set(assigned.subscribers) and parents.keys() <= needed

    def _report_roles(self, assigned: Roles) -> None:
        name = self.state.names_of
        self.display.note(f"publishers {name(assigned.publishers)}; subscribers {name(assigned.subscribers)}")
        if self.state.by_source:
            self.display.note(f"sources number the events of {self.state.by_source} (admission = source)")
        self.display.note(f"without a role, so these may be killed: {name(assigned.spare)}")
        self.display.note(
            f"look inside from another terminal: quillcast tree {self.state.busiest} --network {self.plan.network}"
        )
        self.display.note(f"or kill peers yourself and watch the repair: {HOW_TO}")
        offered = len(roles.forwarders(self.state.view.parents(), assigned.spare))
        if self.plan.kill and offered < 2:
            few = "only one inner forwarder is" if offered else "no inner forwarder is"
            self.display.note(f"{few} without a role, so fewer than three peers may be killed")

    # --- events

    async def _stream(self, assigned: Roles) -> None:
        """Publish everything, and kill peers meanwhile."""
        self.display.phase("events flow")
        self.on_stream()
        self.state.stream(flows=True)
        killing = (
            asyncio.create_task(self.kills.perform(assigned.spare, self.plan.length_s)) if self.plan.kill else None
        )
        try:
            await self._publish(assigned.publishers)
            self.state.stream(flows=False)
            await self.kills.end()
            if killing is not None:
                await killing
        finally:
            if killing is not None:
                killing.cancel()

    async def _publish(self, publishers: Sequence[bytes]) -> None:
        """Publish the events at the plan's rate, assigned to publishers by their content."""
        began, published, events = time.monotonic(), 0, self.plan.events
        goal = math.inf if self.plan.stay or self.plan.scopes else len(events)
        while published < goal and not self._enough.is_set():
            due = min(int((time.monotonic() - began) * self.plan.rate) + 1, goal)
            batch = [events[number % len(events)] for number in range(published, int(due))]
            well = [peer for peer in publishers if peer not in self.state.dead | self.state.slow]
            if not well:
                self.display.note("no publisher is left, so the stream ends")
                return
            await asyncio.gather(*[self._publish_at(peer, order) for peer, order in _orders(batch, well)])
            published += len(batch)
            await self.state.next_look()

    async def _publish_at(self, peer: bytes, order: Publish) -> None:
        """Have a peer publish. A peer that is killed meanwhile loses its events."""
        try:
            await self.processes[peer].order(order)
        except PeerFailed:
            if peer not in self.state.dead:
                raise

    # --- commands from other terminals

    async def _answer(self, assigned: Roles, question: PeerQuestion) -> Any:
        """Carry out `quillcast demo kill` and the other commands."""
        match question:
            case KillQuestion(peer):
                return await self.kills.kill(self._find(peer))
            case PartitionQuestion(peer, seconds):
                return await self.kills.partition(self._find(peer), seconds)
            case SlowQuestion(peer, seconds):
                return await self.kills.slow(self._find(peer), seconds)
            case PeersQuestion():
                return [self._shown(process, assigned) for process in self._started]
            case EndQuestion():
                return self.enough()
        raise LocalError(f"{name_of(type(question))!r} is not a question of the demo")

    def _find(self, name: str) -> bytes:
        """Find a peer by its name, or by the start of its id. Raises `LocalError`."""
        for node, process in self.processes.items():
            if name == process.name or (name and node.hex().startswith(name.lower())):
                return node
        known = ", ".join(process.name for process in self._started)
        raise LocalError(f"{name!r} is not a peer of the demo; there are: {known}")

    def _shown(self, process: PeerProcess, assigned: Roles) -> PeerShown:
        state, node = self.state, process.node_id
        conditions = {"killed": state.dead, "cut off": state.away, "slow": state.slow}
        return PeerShown(
            name=process.name,
            node_id=node.hex(),
            role=self.kills.role(node),
            publishes=node in assigned.publishers,
            children=len(state.view.children(node, state.dead)),
            state=next((words for words, those in conditions.items() if node in those), "healthy"),
        )

    # --- the end

    async def _settle(self) -> None:
        self.display.phase("the stream has ended; waiting until every subscriber has everything")
        watch, dead = self.state.watch, self.state.dead
        if not await self.state.until(lambda: not watch.behind(dead), SETTLE_BOUND_S):
            self.display.note(f"{watch.behind(dead)} deliveries are still due after {SETTLE_BOUND_S:g} s")

    async def _leave(self) -> None:
        self.display.phase("all leave")
        living = [process for peer, process in self.processes.items() if peer not in self.state.dead]
        left = await asyncio.gather(*[process.leave() for process in living])
        if not all(left):
            self.display.note(f"{left.count(False)} peers did not leave in time and were killed")

    def _run(self, end_ns: int) -> Run:
        plan, overlay = self.plan, CONFIG.overlay
        asked = {"peers": plan.peers, "events": len(plan.events), "rate": plan.rate, "seed": plan.seed}
        return Run(
            tuple(self.kills.done),
            end_ns,
            {**asked, "b": overlay.digit_bits, "l": overlay.leaf_set_size},
            dict(self.state.names),
        )

    def _tell(self, entries: list[Entry]) -> None:
        self.kills.take(entries)
        self.display.tick()


def _orders(batch: Sequence[Event], publishers: Sequence[bytes]) -> Iterator[tuple[bytes, Publish]]:
    """The batch as orders: for each publisher and topic, the payloads in order."""
    runs: dict[tuple[bytes, str], list[bytes]] = {}
    for event in batch:
        publisher = publishers[zlib.crc32(event.payload) % len(publishers)]
        runs.setdefault((publisher, event.topic), []).append(event.payload)
    return itertools.starmap(lambda key, payloads: (key[0], Publish(key[1], payloads)), runs.items())
