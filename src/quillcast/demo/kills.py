"""The kills: two inner forwarders of the busiest topic and then its root, each while events flow."""

import asyncio
from collections.abc import Mapping, Sequence

from quillcast.core.journal import Entry
from quillcast.core.trace import Attached, BecameRoot
from quillcast.demo import roles
from quillcast.demo.display import Display
from quillcast.demo.processes import PeerProcess
from quillcast.demo.state import State
from quillcast.pipeline.run import Kill

FROM, EVERY = 0.15, 0.2  # of the stream's length: until the first kill, and from a repair to the next kill
REPAIR_BOUND_S = 15.0  # for which the next kill waits, if the repair of the one before takes so long; a guess


class Kills:
    """Chooses victims from the live tree, kills them, and watches the repairs."""

    def __init__(self, state: State, display: Display, processes: Mapping[bytes, PeerProcess]) -> None:
        self.state, self.display, self.processes = state, display, processes
        self.done: list[Kill] = []
        self._orphans: dict[tuple[bytes, bytes], None] = {}
        self._found: dict[tuple[bytes, bytes], Entry] = {}

    async def perform(self, spare: Sequence[bytes], length_s: float) -> None:
        """Kill two forwarders and the root out of the `spare` peers, spread over a stream of `length_s` seconds."""
        pause_s = FROM * length_s
        for what in ("forwarder", "forwarder", "root"):
            await asyncio.sleep(pause_s)
            victim = self._choose(what, [peer for peer in spare if peer not in self.state.dead])
            if not self.state.streaming:
                self.display.note(f"the stream ended before a {what} could be killed")
                return
            if victim is None:
                self.display.note(f"no {what} of {self.state.busiest} is without a part, and so none is killed")
                pause_s = 0.0
                continue
            await self._kill(victim, what)
            pause_s = EVERY * length_s

    def take(self, entries: Sequence[Entry]) -> None:
        """Note who found a parent again."""
        for entry in entries:
            match entry.record:
                case Attached(topic=topic) | BecameRoot(topic=topic) if (topic, entry.peer) in self._orphans:
                    if self.done and entry.at_ns > self.done[-1].at_ns:
                        self._found.setdefault((topic, entry.peer), entry)

    def _choose(self, what: str, spare: Sequence[bytes]) -> bytes | None:
        """The victim for this part in the busiest topic's live tree; the forwarder with most children."""
        parents = self.state.view.parents(self.state.dead)
        found = roles.forwarders(parents, spare) if what == "forwarder" else roles.roots(parents)
        return next((peer for peer in found if peer in spare), None)

    async def _kill(self, victim: bytes, what: str) -> None:
        state, part = self.state, f"{what} of {self.state.busiest}"
        below = {topic: view.children(victim, state.dead) for topic, view in state.watch.topics.items()}
        self._orphans = {(topic, peer): None for topic, children in below.items() for peer in children}
        self._found = {}
        self.done.append(Kill(victim, self.processes[victim].kill(), part))
        state.dead[victim] = None
        self.display.note(
            f"SIGKILL {state.name(victim)}, {part}: {len(self._orphans)} children "
            f"in {sum(map(bool, below.values()))} trees lose their parent"
        )
        mended = await state.until(lambda: not state.watch.orphans(state.dead), REPAIR_BOUND_S)
        self._tell_repair(mended)

    def _tell_repair(self, mended: bool) -> None:
        found = sorted(self._found.values(), key=lambda entry: entry.at_ns)
        if found:
            last_ms = (found[-1].at_ns - self.done[-1].at_ns) / 1e6
            self.display.note(f"mended after {last_ms:.0f} ms: {self._how(found) or 'in other trees'}")
        if not mended:
            count = self.state.watch.orphans(self.state.dead)
            self.display.note(f"{count} still look for a parent after {REPAIR_BOUND_S:g} s")

    def _how(self, found: Sequence[Entry]) -> str:
        """Who found whom in the busiest topic's tree, by parent."""
        words: dict[str, list[bytes]] = {}
        for entry in found:
            match entry.record:
                case Attached(topic=topic, parent=parent, how=how) if self._is_busiest(topic):
                    words.setdefault(f"under {self.state.name(parent)} ({how})", []).append(entry.peer)
                case BecameRoot(topic=topic) if self._is_busiest(topic):
                    words["is the new root"] = [entry.peer]
        return "; ".join(f"{self.state.names_of(peers)} {where}" for where, peers in words.items())

    def _is_busiest(self, topic: bytes) -> bool:
        return self.state.watch.topics[topic] is self.state.view
