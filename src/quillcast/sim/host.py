"""The `Host` of one simulated process, on the world's clock (core/host.py)."""

from random import Random
from typing import TYPE_CHECKING, Any

from quillcast.core.bundle import Bundle
from quillcast.core.host import Disk, Inputs
from quillcast.core.ids import NodeId
from quillcast.core.messages import Contact, Message
from quillcast.core.trace import Record
from quillcast.sim.clock import Action
from quillcast.sim.links import End
from quillcast.sim.store import SimDisk

if TYPE_CHECKING:
    from quillcast.sim.world import Machine, World

MEASURE_TIMEOUT_S = 5.0  # how long a measurement waits for its answer, as the live host does; a guess
WALL_START_NS = 1_700_000_000_000_000_000  # where wall clocks begin: some day in November 2023


class SimHost:
    """One run of a peer's process on a machine: orders go into the world's queue, inputs come out of it.

    While the process is paused `backlog` collects what would have been handed in.
    """

    __slots__ = (
        "alive", "backlog", "charged", "clock_origin_s", "contact", "disk", "ended_at", "incarnation", "inputs",
        "links", "machine", "me", "peer", "proximities", "random", "world",
    )  # fmt: skip

    def __init__(self, world: "World", machine: "Machine", random: Random) -> None:
        self.world, self.machine, self.random = world, machine, random
        self.me: NodeId = machine.node_id
        self.contact, self.clock_origin_s = machine.contact, machine.clock_origin_s
        self.incarnation = random.randbytes(8)
        self.disk: Disk = SimDisk(self, machine.files)
        self.links: dict[bytes, End] = {}
        self.proximities: dict[bytes, float] = {}
        self.charged: dict[bytes, int] = {}  # bytes of bundles that came from a peer and were not released
        self.alive = True
        self.ended_at: float | None = None
        self.backlog: list[tuple[Action, Any]] | None = None
        self.peer: Inputs
        self.inputs: Inputs
        """Who is handed the peer's inputs: mostly the peer."""

    # --- orders

    def now(self) -> float:
        return self.world.now + self.clock_origin_s

    def wall_ns(self) -> int:
        return WALL_START_NS + int((self.world.now + self.machine.wall_skew_s) * 1e9)

    def send(self, to: Contact, message: Message) -> None:
        wire = self.world.encode(message)
        if to.node_id == self.me:
            self.world.at(self.world.now, self._to_itself, wire)
            return
        end = self.links.get(to.node_id)
        if end is None:
            self._open(to).send(wire)
        elif end.far is None or end.troubled or end.quality is not None:
            end.send(wire)
        else:  # the same, written out: it is most of what happens
            end.unneeded = False
            world = self.world
            at = world.now + end.delay_s
            if at < end.last_at:
                at = end.last_at
            end.last_at = at
            world.at(at, end.far.receive, wire)

    def carry(self, to: Contact, bundle: Bundle) -> None:
        wire = self.world.pack(bundle)
        if to.node_id == self.me:
            self.world.at(self.world.now, self._bundle_to_itself, wire)
            return
        (self.links.get(to.node_id) or self._open(to)).carry(wire, bundle.size)

    def room(self, to: Contact) -> int:
        end = self.links.get(to.node_id)
        return self.world.window_bytes if end is None else end.room

    def window(self, to: Contact) -> int:
        return self.world.window_bytes

    def release(self, sender: bytes, size_bytes: int) -> None:
        self.charged[sender] -= size_bytes
        assert self.charged[sender] >= 0, f"{-self.charged[sender]} bytes more were released than came"
        end = self.links.get(sender)
        if end is not None:
            end.release(size_bytes)

    def set_timer(self, timer: Any, delay_s: float) -> None:
        self.world.at(self.world.now + delay_s, self.fire, timer)

    def proximity(self, node: bytes) -> float | None:
        return self.proximities.get(node)

    def measure(self, to: Contact) -> None:
        world, here = self.world, self.machine.number
        there, network = world.number_at(to.address), world.network
        round_trip_s = network.delay_s(here, there) + network.delay_s(there, here)
        if not network.calm:
            for quality in (network.quality(here, there), network.quality(there, here)):
                round_trip_s += quality.slow_s if quality is not None else 0.0
        world.at(world.now + round_trip_s, self._echo, (to, there, round_trip_s))

    def disconnect(self, node: bytes) -> None:
        end = self.links.get(node)
        if end is not None:
            end.bye()

    def trace(self, record: Record) -> None:
        self.world.journal.note(self.world.now, self.machine.number, record)

    # --- inputs

    def hand_in(self, handler: Any, *arguments: Any) -> None:
        """One step of the peer."""
        self.world.steps += 1
        handler(*arguments)
        if self.world.after_step is not None:
            self.world.after_step(self)

    def act(self, call: Any) -> None:
        """The application in this process does something: `call()`."""
        if self._runs(self.act, call):
            self.hand_in(call)

    def charge(self, sender: bytes, size_bytes: int) -> None:
        """A bundle came, and is charged to its sender until `release`."""
        self.charged[sender] = self.charged.get(sender, 0) + size_bytes

    def fire(self, timer: Any) -> None:
        """A timer is due."""
        if not self.alive:
            return
        if self.backlog is not None:
            self.backlog.append((self.fire, timer))
            return
        world = self.world
        world.steps += 1
        self.inputs.timer(timer)
        if world.after_step is not None:
            world.after_step(self)

    def disk_done(self, answer: tuple[Any, Any]) -> None:
        """An order to the disk was carried out."""
        if self._runs(self.disk_done, answer):
            self.hand_in(self.inputs.disk_done, *answer)

    def accept(self, caller: End) -> None:
        """Another host calls. If both call at once, the smaller nodeId's call stands."""
        if not self._runs(self.accept, caller) or not caller.open:
            return
        node = caller.host.me
        mine = self.links.get(node)
        waiting = mine.waiting if mine is not None else None
        if mine is not None and not mine.up and self.me < node:
            caller.unanswered()
            return
        if mine is not None:
            mine.open = False
        end = self.links[node] = End(self, caller.host.contact)
        end.far, end.up = caller, True
        end.accept()
        if mine is not None and mine.up:  # the other side has forgotten the old link
            self.hand_in(self.inputs.link_lost, end.contact)
        self.hand_in(self.inputs.link_up, end.contact)
        end.send_waiting(waiting)

    def lost(self, end: End) -> None:
        """A link broke, or could not be made."""
        self.forget(end)
        self.hand_in(self.inputs.link_lost, end.contact)

    def forget(self, end: End) -> None:
        """An end of this host is closed."""
        if self.links.get(end.contact.node_id) is end:
            del self.links[end.contact.node_id]

    # --- the life of the process

    def pause(self) -> None:
        """Stop it, as SIGSTOP does."""
        if self.backlog is None:
            self.backlog = []

    def resume(self) -> None:
        """Let it go on: timers come first, as libuv's loop runs them before it polls, then what arrived, in order."""
        if self.backlog is None:
            return
        backlog, self.backlog = self.backlog, None
        for action, argument in sorted(backlog, key=lambda entry: entry[0] != self.fire):
            self.world.at(self.world.now, action, argument)

    def die(self, *, silently: bool) -> None:
        """End it. The kernel closes its links, unless the machine itself goes (`silently`)."""
        self.alive, self.backlog, self.ended_at = False, None, self.world.now
        for end in self.links.values():
            if silently:
                end.open = False
            else:
                end.close()

    # --- helpers

    def _open(self, to: Contact) -> End:
        end = self.links[to.node_id] = End(self, to)
        end.call()
        return end

    def _to_itself(self, wire: Any) -> None:
        if self._runs(self._to_itself, wire):
            self.hand_in(self.inputs.message, self.contact, self.world.decode(wire))

    def _bundle_to_itself(self, wire: Any) -> None:
        if self._runs(self._bundle_to_itself, wire):
            bundle = self.world.unpack(wire)
            self.charge(self.me, bundle.size)
            self.hand_in(self.inputs.bundle, self.contact, bundle)

    def _runs(self, action: Action, argument: Any) -> bool:
        """Can the process take this now? If it is paused it will later, if it is dead never."""
        if self.alive and self.backlog is not None:
            self.backlog.append((action, argument))
            return False
        return self.alive

    def _echo(self, asked: tuple[Contact, int, float]) -> None:
        """A measurement's answer is back, or will never be."""
        to, there, round_trip_s = asked
        answer = self.world.echo(to, self.machine.number, there)
        if answer is None:
            self.world.after(max(0.0, MEASURE_TIMEOUT_S - round_trip_s), self._measured, (to, None))
        else:
            self._measured((to, round_trip_s if answer else None))

    def _measured(self, answer: tuple[Contact, float | None]) -> None:
        if not self._runs(self._measured, answer):
            return
        to, round_trip_s = answer
        if round_trip_s is not None:
            self.proximities[to.node_id] = round_trip_s
        self.hand_in(self.inputs.measured, to, round_trip_s)
