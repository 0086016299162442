"""Faults for peers: the demo itself kills two inner forwarders and the root; people may cause more.

A peer is killed (SIGKILL), cut off from all others for a while, or slowed down (stopped and resumed in turns). The
journals show the repair: when the last child has a parent again, and when the peer has the events that it missed.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from quillcast.core.journal import Entry
from quillcast.demo import roles
from quillcast.demo.answers import Strike
from quillcast.demo.display import Display
from quillcast.demo.orders import Unplug
from quillcast.demo.processes import PeerFailed, PeerProcess
from quillcast.demo.repair import Repair, counted
from quillcast.demo.state import State
from quillcast.demo.watch import TopicView
from quillcast.pipeline.run import Kill

FROM, EVERY = 0.15, 0.2  # of the stream's length: until the first kill, and from a repair to the next kill
REPAIR_BOUND_S = 15.0  # the next kill waits this long for the previous repair; a guess
BACK_BOUND_S = 60.0  # until a peer that was cut off or slow has caught up; a guess: two leases
STOP_S, RUN_S = 0.4, 0.1  # a slow peer is stopped and runs in turns: a fifth of its speed, too short for a suspicion


class Kills:
    """Chooses victims from the live tree, strikes them, and watches the repairs."""

    def __init__(self, state: State, display: Display, processes: Mapping[bytes, PeerProcess]) -> None:
        self.state, self.display, self.processes = state, display, processes
        self.done: list[Kill] = []
        self.over = asyncio.Event()
        """Set when the stream has ended: peers that are cut off or slow are restored."""
        self._turn = asyncio.Lock()  # only one repair is watched at a time
        self._repair: Repair | None = None
        self._lasting: dict[asyncio.Task[None], None] = {}

    def note(self, kill: Kill) -> None:
        """Record a kill."""
        self.done.append(kill)

    async def perform(self, spare: Sequence[bytes], length_s: float) -> None:
        """Kill two forwarders and the root among the `spare` peers, spread over a stream of `length_s` seconds.

        The second one forwards in the topic of sources, if one of them does.
        """
        pause_s, busiest = FROM * length_s, self.state.busiest
        for what, topics in (
            ("forwarder", (busiest,)),
            ("forwarder", (self.state.by_source, busiest)),
            ("root", (busiest,)),
        ):
            await asyncio.sleep(pause_s)
            async with self._turn:
                victim, topic = self._choose(what, topics, [peer for peer in spare if peer not in self.state.unwell])
                if not self.state.streaming:
                    self.display.note(f"the stream ended before a {what} could be killed")
                    return
                if victim is not None:
                    await self._kill(victim, what, topic)
            if victim is None:
                self.display.note(f"every {what} of {topic} has a role, so none is killed")
            pause_s = EVERY * length_s if victim is not None else 0.0

    def take(self, entries: Sequence[Entry]) -> None:
        """Record which peers found a parent again."""
        if self._repair is not None:
            self._repair.take(entries)

    # --- commands from other terminals

    async def kill(self, victim: bytes) -> Strike:
        """Kill a peer, whatever its role."""
        async with self._turn:
            self._check(victim)
            return await self._kill(victim, self.role(victim), self.state.busiest)

    async def partition(self, victim: bytes, seconds: float) -> Strike:
        """Cut a peer off from all others for some seconds."""
        async with self._turn:
            self._check(victim)
            repair = self._struck(victim, time.time_ns())
            await self.processes[victim].order(Unplug(yes=True))
            self.state.cut_off(victim)
            self._last(self._reconnect(victim, seconds))
            return await self._watch(f"cut off for {seconds:g} s: {self._named(victim)}", repair, self.state.view)

    async def slow(self, victim: bytes, seconds: float) -> Strike:
        """Let a peer run only a fifth of the time for some seconds."""
        async with self._turn:
            self._check(victim)
            struck = self._struck(victim, time.time_ns())
            self.state.slow_down(victim)
            self._last(self._throttle(victim, seconds))
            text = f"slowed down to a fifth for {seconds:g} s: {self._named(victim)}"
            self.display.note(text)
            return Strike(text, struck.children, struck.trees, None, "")

    async def end(self) -> None:
        """Restore peers that are cut off or slow, and wait until they are restored."""
        self.over.set()
        await asyncio.gather(*self._lasting)

    def role(self, peer: bytes) -> str:
        """A peer's role in the busiest topic."""
        view = self.state.view
        parents = view.parents(self.state.dead)
        if peer in parents and parents[peer] is None:
            return "root"
        if roles.children_of(parents).get(peer):
            return "forwarder"
        return "subscriber" if peer in view.subscribers else "peer"

    # --- internals

    def _check(self, victim: bytes) -> None:
        """Raise `PeerFailed` for a peer that is already affected."""
        state = self.state
        for words, those in (("was killed", state.dead), ("is cut off", state.away), ("is slow already", state.slow)):
            if victim in those:
                raise PeerFailed(f"{state.name(victim)} {words}; choose another")

    def _choose(self, what: str, topics: Sequence[str], spare: Sequence[bytes]) -> tuple[bytes | None, str]:
        """Choose the root, or the forwarder with most children, of the first live tree that has one; also its topic."""
        for topic in topics:
            parents = self.state.watch.topic(topic).parents(self.state.dead)
            found = roles.forwarders(parents, spare) if what == "forwarder" else roles.roots(parents)
            if victim := next((peer for peer in found if peer in spare), None):
                return victim, topic
        return None, topics[-1]

    async def _kill(self, victim: bytes, what: str, topic: str) -> Strike:
        at_ns, part = self.processes[victim].kill(), f"{what} of {topic}"
        repair = self._struck(victim, at_ns)
        self.done.append(Kill(victim, at_ns, part))
        self.state.kill(victim)
        return await self._watch(f"SIGKILL {self.state.name(victim)}, {part}", repair, self.state.watch.topic(topic))

    def _struck(self, victim: bytes, at_ns: int) -> Repair:
        """Start to record the repair of this strike."""
        self._repair = Repair(self.state.watch, victim, self.state.dead, at_ns)
        return self._repair

    async def _watch(self, text: str, repair: Repair, view: TopicView) -> Strike:
        """Wait until every child of the victim has a parent again, and report how they got one in a topic."""
        state, display = self.state, self.display
        lose = "loses its" if repair.children == 1 else "lose their"
        display.note(f"{text}: {counted(repair.children, repair.trees)} {lose} parent")
        repaired = await state.until(lambda: repair.repaired, REPAIR_BOUND_S)
        how, lasted_s = repair.how(view, state.name), repair.lasted_s
        if lasted_s is not None:
            display.note(f"repaired after {1000 * lasted_s:.0f} ms: {how or 'in other trees'}")
        if not repaired:
            lack = f"children without a parent: {repair.orphans}, trees without a root: {repair.rootless}"
            display.note(f"not repaired after {REPAIR_BOUND_S:g} s: {lack}")
        return Strike(text, repair.children, repair.trees, lasted_s if repaired else None, how)

    def _named(self, victim: bytes) -> str:
        return f"{self.state.name(victim)}, {self.role(victim)} of {self.state.busiest}"

    def _last(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._lasting[task] = None
        task.add_done_callback(self._lasting.pop)

    async def _reconnect(self, victim: bytes, seconds: float) -> None:
        """After some seconds let the peer reach the others again, and watch it catch up."""
        await self._pause(seconds)
        await self.processes[victim].order(Unplug(yes=False))
        self.display.note(f"{self.state.name(victim)} is connected again")
        await self._catch_up(victim, lambda: victim not in self.state.watch.lonely())
        self.state.reconnect(victim)

    async def _throttle(self, victim: bytes, seconds: float) -> None:
        """Alternately stop and resume the process."""
        process, until = self.processes[victim], time.monotonic() + seconds
        try:
            while time.monotonic() < until and not self.over.is_set():
                process.pause()
                await asyncio.sleep(STOP_S)
                process.resume()
                await asyncio.sleep(RUN_S)
        finally:
            process.resume()
        await self._catch_up(victim, lambda: True)
        self.state.speed_up(victim)

    async def _catch_up(self, victim: bytes, well: Callable[[], bool]) -> None:
        """Wait until the peer has a parent and has everything published until now."""
        state, began = self.state, time.monotonic()
        goals = {topic: view.published for topic, view in state.watch.topics.items() if victim in view.subscribers}

        def caught_up() -> bool:
            topics = state.watch.topics
            return well() and all(topics[topic].delivered[victim] >= goal for topic, goal in goals.items())

        if await state.until(caught_up, BACK_BOUND_S):
            what = "has everything" if goals else "has its place"
            self.display.note(f"{state.name(victim)} {what} again after {time.monotonic() - began:.1f} s")
        else:
            self.display.note(f"{state.name(victim)} has not caught up after {BACK_BOUND_S:g} s")

    async def _pause(self, seconds: float) -> None:
        """Wait for some seconds, or for the end of the stream."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
