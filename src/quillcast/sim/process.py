"""One run of a program on a machine: it handles inputs one at a time, may be paused, and ends."""

from collections.abc import Callable
from typing import Any

from quillcast.core.host import Inputs
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact
from quillcast.sim.clock import Action
from quillcast.sim.surroundings import Surroundings


class Process:
    """While it is paused, `backlog` collects its inputs."""

    __slots__ = ("alive", "backlog", "charged", "contact", "ended_at", "inputs", "me", "number", "stepped", "world")

    def __init__(self, world: Surroundings, number: int, contact: Contact) -> None:
        """`number` is that of its machine."""
        self.world, self.number, self.contact = world, number, contact
        self.me = NodeId(contact.node_id)
        self.charged: dict[bytes, int] = {}  # bytes of bundles from a peer that were not released
        self.alive = True
        self.ended_at: float | None = None
        self.backlog: list[tuple[Action, Any]] | None = None
        self.stepped: Callable[[], None] | None = None
        self.inputs: Inputs
        """What handles the peer's inputs: usually the peer."""

    def after_step(self, look: Callable[[], None]) -> None:
        """Call `look` after every step of the peer from now on."""
        self.stepped = look

    # --- inputs

    def hand_in(self, handler: Any, *arguments: Any) -> None:
        """Run one step of the peer."""
        self.world.count_step()
        handler(*arguments)
        if self.stepped is not None:
            self.stepped()

    def act(self, call: Any) -> None:
        """Run `call()` as the application in this process."""
        if self.runs(self.act, call):
            self.hand_in(call)

    def charge(self, sender: bytes, size_bytes: int) -> None:
        """Charge a bundle to its sender until `release`."""
        self.charged[sender] = self.charged.get(sender, 0) + size_bytes

    def waits(self, action: Action, argument: Any) -> bool:
        """Whether the process is paused. Then it does this when it continues."""
        if self.backlog is None:
            return False
        self.backlog.append((action, argument))
        return True

    def fire(self, timer: Any) -> None:
        """Handle a timer that is due."""
        if not self.alive:
            return
        if self.waits(self.fire, timer):
            return
        self.world.count_step()
        self.inputs.timer(timer)
        if self.stepped is not None:
            self.stepped()

    def disk_done(self, answer: tuple[Any, Any]) -> None:
        """Handle the disk's answer to an order."""
        if self.runs(self.disk_done, answer):
            self.hand_in(self.inputs.disk_done, *answer)

    def runs(self, action: Action, argument: Any) -> bool:
        """Whether the process can handle this now. A paused process handles it later, a dead one never."""
        return self.alive and not self.waits(action, argument)

    # --- lifecycle

    def pause(self) -> None:
        """Pause it, as SIGSTOP does."""
        if self.backlog is None:
            self.backlog = []

    def resume(self) -> None:
        """Resume it. Timers come first, as libuv's loop runs them before it polls, then arrivals in order."""
        if self.backlog is None:
            return
        backlog, self.backlog = self.backlog, None
        for action, argument in sorted(backlog, key=lambda entry: entry[0] != self.fire):
            self.world.at(self.world.now, action, argument)

    def end(self) -> None:
        """Stop handling inputs."""
        self.alive, self.backlog, self.ended_at = False, None, self.world.now
