"""The demo's state. The conductor updates it, the display shows it."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from quillcast.core.journal import Entry
from quillcast.demo.watch import TopicView, Watch

LOOK_S = 0.1  # how often journals are read; a guess: feels immediate to people


class State:
    """What is known about the running demo.

    By nodeId: `dead` are the peers that were killed, `away` those that are cut off, `slow` those that are slowed down.
    """

    def __init__(self, title: str, journals: Path) -> None:
        self.title = title
        self.watch = Watch(journals)
        self.names: dict[bytes, str] = {}
        self.dead: dict[bytes, None] = {}
        self.away: dict[bytes, None] = {}
        self.slow: dict[bytes, None] = {}
        self.busiest = ""
        self.by_source = ""  # the topic whose events are numbered by their sources; empty if there is one topic only
        self.streaming = False
        self.began = time.monotonic()
        self._looked = asyncio.Event()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self.began

    @property
    def view(self) -> TopicView:
        """The view of the busiest topic."""
        return self.watch.topic(self.busiest)

    @property
    def unwell(self) -> dict[bytes, None]:
        """Peers that are killed, cut off or slowed down."""
        return {**self.dead, **self.away, **self.slow}

    def meet(self, peer: bytes, name: str) -> None:
        """A peer has joined."""
        self.names[peer] = name

    def choose(self, busiest: str, by_source: str = "") -> None:
        """The topics to watch."""
        self.busiest, self.by_source = busiest, by_source

    def stream(self, *, flows: bool) -> None:
        """Events begin or cease to flow."""
        self.streaming = flows

    def kill(self, peer: bytes) -> None:
        """A peer was killed."""
        self.dead[peer] = None

    def revive(self, peer: bytes) -> None:
        """A killed peer starts again."""
        del self.dead[peer]

    def cut_off(self, peer: bytes) -> None:
        """A peer cannot reach any other."""
        self.away[peer] = None

    def reconnect(self, peer: bytes) -> None:
        """A peer that was cut off can reach the others again."""
        del self.away[peer]

    def slow_down(self, peer: bytes) -> None:
        """A peer runs only some of the time."""
        self.slow[peer] = None

    def speed_up(self, peer: bytes) -> None:
        """A peer that was slow is as fast as the others again."""
        del self.slow[peer]

    def name(self, peer: bytes) -> str:
        """A peer's name for people."""
        return self.names.get(peer, peer[:4].hex())

    def names_of(self, peers: list[bytes]) -> str:
        """The names of some peers."""
        return ", ".join(sorted(map(self.name, peers))) or "nobody"

    async def follow(self, tell: Callable[[list[Entry]], None]) -> None:
        """Read the journals repeatedly, and call `tell` with the new records."""
        while True:
            tell(self.watch.look())
            self._looked.set()
            self._looked.clear()
            await asyncio.sleep(LOOK_S)

    async def next_look(self) -> None:
        """Wait until the journals have been looked at again."""
        await self._looked.wait()

    async def until(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Wait until `condition` holds after a look at the journals. Returns False after `bound_s`."""
        until = time.monotonic() + bound_s
        while not condition():
            if time.monotonic() >= until:
                return False
            await self.next_look()
        return True
