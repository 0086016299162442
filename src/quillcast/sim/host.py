"""Machines, and the `Host` of one simulated process on a machine (core/host.py)."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.host import Disk, Inputs
from quillcast.core.ids import NodeId, short
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact, Message
from quillcast.core.multicast import UdpGroup, contact, parse
from quillcast.core.trace import Record
from quillcast.sim.links import Exchange, Links
from quillcast.sim.network import UNDISTURBED
from quillcast.sim.process import Process
from quillcast.sim.store import Files, SimDisk
from quillcast.sim.surroundings import Surroundings

ADDRESS = "sim:"
DATAGRAM_LOSS = 0.02  # of multicast datagrams at the least; a guess: harsher than a switch
MEASURE_TIMEOUT_S = 5.0  # how long a measurement waits for its answer, as in the live host; a guess
WALL_START_NS = 1_700_000_000_000_000_000  # the start of wall clocks: a day in November 2023


class Machine:
    """A machine runs a peer's processes one after another. It holds what outlives them."""

    __slots__ = (
        "clock_origin_s", "contact", "files", "host", "node_id", "number", "off_by", "stale_files", "started_at",
        "starts", "wall_skew_s",
    )  # fmt: skip

    def __init__(self, number: int, node_id: NodeId, clock_origin_s: float, wall_skew_s: float) -> None:
        self.number, self.node_id = number, node_id
        self.contact = Contact(node_id, f"{ADDRESS}{number}")
        self.clock_origin_s, self.wall_skew_s = clock_origin_s, wall_skew_s
        self.files, self.stale_files = Files(), Files()
        self.host: SimHost | None = None
        self.starts = 0
        self.started_at = 0.0
        self.off_by: int | None = None
        """The cut that represents a machine without power."""

    def __repr__(self) -> str:
        return f"Machine({self.number}, {short(self.node_id)})"

    def count_start(self, now: float) -> None:
        """Count a process start, and save the disk's content as its old copy."""
        self.starts += 1
        self.started_at = now
        self.stale_files = self.files.copy()

    def run(self, host: "SimHost") -> None:
        """Run this process here from now on."""
        self.host = host

    def stop(self) -> None:
        """Note that nothing runs here now."""
        self.host = None

    def switch_off(self, cut: int | None) -> None:
        """Note that the machine has no power, and that this cut isolates it. None: it has power again."""
        self.off_by = cut

    def replace_disk(self, files: Files) -> None:
        """Give the machine another disk."""
        self.files = files


class SimHost(Process):
    """One run of a peer's process on a machine: orders go into the world's queue, inputs come from it."""

    __slots__ = (
        "carried", "clock_origin_s", "disk", "exchange", "groups", "incarnation", "links", "machine", "peer",
        "proximities", "random", "sent", "table",
    )  # fmt: skip

    def __init__(self, world: Surroundings, exchange: Exchange, machine: Machine, random: Random) -> None:
        super().__init__(world, machine.number, machine.contact)
        self.machine, self.random, self.exchange = machine, random, exchange
        self.clock_origin_s = machine.clock_origin_s
        self.incarnation = random.randbytes(8)
        self.disk: Disk = SimDisk(self, machine.files)
        self.table = Links(self, exchange)
        self.links = self.table.ends
        self.proximities: dict[bytes, float] = {}
        self.sent: dict[bytes, int] | None = None  # control messages since `take_sent`, by recipient, if counted
        self.carried: Callable[[Contact, Bundle], None] | None = None  # is shown each bundle that is sent
        self.groups: dict[bytes, tuple[UdpGroup, bytes]] = EMPTY  # multicast groups by the ids of their contacts
        self.peer: Inputs

    def serve(self, peer: Inputs) -> None:
        """Set the peer that runs here."""
        self.peer = self.inputs = peer

    def pass_inputs_to(self, first: Inputs) -> None:
        """Let something else handle the inputs, which passes them on to the peer."""
        self.inputs = first

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
        if self.sent is not None:
            self.sent[to.node_id] = self.sent.get(to.node_id, 0) + 1
        end = self.links.get(to.node_id)
        if end is None:
            self.table.call(to).send(wire)
        elif end.far is None or end.troubled or end.quality is not None:
            end.send(wire)
        else:
            end.send_calm(wire)

    def count_sent(self) -> None:
        """Count the control messages that are sent from now on. That takes 3 kB per peer."""
        self.sent = {}

    def take_sent(self) -> dict[bytes, int]:
        """Return the number of control messages since the last call, by recipient; none unless counted."""
        if self.sent is None:
            return {}
        sent, self.sent = self.sent, {}
        return sent

    def show_carried(self, carried: Callable[[Contact, Bundle], None]) -> None:
        """Show each bundle that is sent from now on, before it is."""
        self.carried = carried

    def carry(self, to: Contact, bundle: Bundle) -> None:
        if self.carried is not None:
            self.carried(to, bundle)
        wire = self.world.pack(bundle)
        if to.node_id == self.me:
            self.world.at(self.world.now, self._bundle_to_itself, wire)
            return
        if to.node_id in self.groups:
            self._carry_to_group(to, wire, bundle.size)
            return
        (self.links.get(to.node_id) or self.table.call(to)).carry(wire, bundle.size)

    def multicast(self, groups: Mapping[str, bytes]) -> None:
        self.groups = {contact(mechanism).node_id: (parse(mechanism), key) for mechanism, key in groups.items()}

    def room(self, to: Contact, reserved_eighths: int = 0) -> int:
        end, window = self.links.get(to.node_id), self.world.window_bytes
        return (window if end is None else end.room) - window * reserved_eighths // 8

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
        world, here = self.world, self.number
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
        self.world.journal.note(self.world.now, self.number, record)

    def die(self, *, silently: bool) -> None:
        """End the process. The kernel closes its links, unless the machine itself fails (`silently`)."""
        self.end()
        self.table.close(silently=silently)

    # --- helpers

    def _carry_to_group(self, group: Contact, wire: Any, size_bytes: int) -> None:
        """Send a bundle to all members with the same key. Each receives it independently, whole or not at all."""
        network, here, known = self.world.network, self.number, self.groups[group.node_id]
        datagrams = -(-size_bytes // known[0].fragment_bytes)
        for links in self.exchange.others(self.number):
            there = links.host
            assert isinstance(there, SimHost)
            if there.groups.get(group.node_id) != known or network.blocked(here, there.number):
                continue
            quality = network.quality(here, there.number) or UNDISTURBED
            arrives = 1 - max(quality.loss, DATAGRAM_LOSS)
            quality = quality._replace(loss=1 - arrives**datagrams)
            for delay_s in network.delays(network.delay_s(here, there.number), quality):
                self.world.after(delay_s, there.datagram, (group, wire))

    def datagram(self, arrived: tuple[Contact, Any]) -> None:
        """Receive a bundle from a multicast group."""
        group, wire = arrived
        if self.runs(self.datagram, arrived) and group.node_id in self.groups:
            bundle = self.world.unpack(wire)
            self.charge(group.node_id, bundle.size)
            self.hand_in(self.inputs.datagram, group, bundle)

    def _to_itself(self, wire: Any) -> None:
        if self.runs(self._to_itself, wire):
            self.hand_in(self.inputs.message, self.contact, self.world.decode(wire))

    def _bundle_to_itself(self, wire: Any) -> None:
        if self.runs(self._bundle_to_itself, wire):
            bundle = self.world.unpack(wire)
            self.charge(self.me, bundle.size)
            self.hand_in(self.inputs.bundle, self.contact, bundle)

    def _echo(self, asked: tuple[Contact, int, float]) -> None:
        """End a measurement: its answer has arrived, or will not."""
        to, there, round_trip_s = asked
        answer = self.exchange.echo(self, there, to)
        if answer is None:
            self.world.after(max(0.0, MEASURE_TIMEOUT_S - round_trip_s), self._measured, (to, None))
        elif answer:
            self._measured((self.exchange.contact_at(there), round_trip_s))
        else:
            self._measured((to, None))

    def _measured(self, answer: tuple[Contact, float | None]) -> None:
        if not self.runs(self._measured, answer):
            return
        to, round_trip_s = answer
        if round_trip_s is not None:
            self.proximities[to.node_id] = round_trip_s
        self.hand_in(self.inputs.measured, to, round_trip_s)
