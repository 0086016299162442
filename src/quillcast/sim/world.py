"""The world: a virtual clock, a queue of what will happen, and the machines it happens on.

One seed drives everything; the same seed gives the same steps in the same order.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from quillcast.core.bundle import Bundle
from quillcast.core.host import Inputs
from quillcast.core.ids import ID_BYTES, NodeId, short
from quillcast.core.messages import Codec, Contact, Message
from quillcast.core.trace import Mark, Record
from quillcast.sim.clock import Clock
from quillcast.sim.host import SimHost
from quillcast.sim.links import End
from quillcast.sim.network import Cut, Network, Quality, isolated
from quillcast.sim.store import DiskFaults, Files

WINDOW_BYTES = 1 << 20  # credit of an ordered pair of peers
ADDRESS = "sim:"


class Broken(AssertionError):
    """Something that must hold does not: the first broken invariant of a run. `about` is whose story to ask for."""

    def __init__(self, what: str, about: str = "") -> None:
        super().__init__(what)
        self.about = about


class Journal:
    """What peers did: records with the time and the number of the machine. `keep` limits which kinds are kept."""

    def __init__(self, keep: frozenset[type[Record]] | None = None) -> None:
        self.records: list[tuple[float, int, Record]] = []
        self.marks: dict[str, int] = {}
        self.listeners: list[Callable[[float, int, Record], None]] = []
        self._keep = keep

    def note(self, at: float, machine: int, record: Record) -> None:
        """Take a record down and pass it on to whoever listens."""
        if isinstance(record, Mark):
            self.marks[record.name] = self.marks.get(record.name, 0) + 1
        if self._keep is None or type(record) in self._keep:
            self.records.append((at, machine, record))
        for listener in self.listeners:
            listener(at, machine, record)


class Machine:
    """Where a peer's processes run, one after another: what outlives them."""

    def __init__(self, number: int, node_id: NodeId, clock_origin_s: float, wall_skew_s: float) -> None:
        self.number, self.node_id = number, node_id
        self.contact = Contact(node_id, f"{ADDRESS}{number}")
        self.clock_origin_s, self.wall_skew_s = clock_origin_s, wall_skew_s
        self.files, self.stale_files = Files(), Files()
        self.host: SimHost | None = None
        self.starts = 0
        self.started_at = 0.0
        self.off_by: int | None = None
        """The cut that stands for a machine without power."""

    def __repr__(self) -> str:
        return f"Machine({self.number}, {short(self.node_id)})"


class World(Clock):
    """Everything there is: the queue, the clock, the network, the machines.

    Args:
        seed: drives every chance in this world.
        network: delays and disturbances between machines.
        start: makes a peer for a process that starts.
        codec: how messages travel; None shares the message objects themselves, which is faster and less true.
        window_bytes: credit for bundles of each ordered pair of peers.
        share_bundles: pass bundles by reference instead of as bytes.
        journal: where trace records go.
        after_step: called after every step of a peer.
    """

    def __init__(
        self,
        seed: int,
        network: Network,
        start: Callable[[SimHost], Inputs],
        codec: Codec | None,
        *,
        window_bytes: int = WINDOW_BYTES,
        share_bundles: bool = False,
        journal: Journal | None = None,
        after_step: Callable[[SimHost], None] | None = None,
    ) -> None:
        super().__init__()
        self.seed, self.network, self.after_step = seed, network, after_step
        self.window_bytes = window_bytes
        self.journal = journal if journal is not None else Journal()
        self.machines: list[Machine] = []
        self._at_address: dict[str, int] = {}
        self.steps = 0
        self.encode: Callable[[Message], Any] = codec.encode if codec is not None else _same
        self.decode: Callable[[Any], Any] = codec.decode if codec is not None else _same
        self.pack: Callable[[Bundle], Any] = _same if share_bundles else Bundle.encode
        self.unpack: Callable[[Any], Bundle] = _same if share_bundles else Bundle.decode
        self._start = start
        self._ids, self._clocks = derived(seed, "ids"), derived(seed, "clocks")

    def run(self, until_s: float) -> None:
        """Let everything happen up to a time, that time included. Raises `Broken` for whatever a peer raises."""
        try:
            super().run(until_s)
        except Broken:
            raise
        except Exception as error:
            culprit = self._culprit()
            what = f"at {self.now:.6f} s {culprit}: {type(error).__name__}: {error}"
            raise Broken(what, culprit.replace(" ", ":")) from error

    # --- machines and their processes

    def add(self, node_id: NodeId | None = None) -> Machine:
        """A new machine, on which nothing runs yet. Its clocks are its own."""
        machine = Machine(
            len(self.machines),
            node_id if node_id is not None else NodeId(self._ids.randbytes(ID_BYTES)),
            clock_origin_s=self._clocks.uniform(0, 100_000),
            wall_skew_s=self._clocks.uniform(-2, 2),
        )
        self._at_address[machine.contact.address] = machine.number
        self.machines.append(machine)
        return machine

    def start(self, machine: Machine) -> SimHost:
        """Start a process, with a new incarnation."""
        assert machine.host is None, f"{machine} runs already"
        if machine.off_by is not None:
            self.mend(machine.off_by)
            machine.off_by = None
        machine.starts += 1
        machine.started_at = self.now
        machine.stale_files = machine.files.copy()
        machine.host = host = SimHost(self, machine, derived(self.seed, f"peer {machine.number} {machine.starts}"))
        host.peer = host.inputs = self._start(host)
        return host

    def stop(self, machine: Machine, *, silently: bool = False, faults: DiskFaults | None = None) -> None:
        """End the process: killed, or with the power of its machine (`silently`), which its disk may feel."""
        host = machine.host
        if host is None:
            return
        machine.host = None
        host.die(silently=silently)
        if silently:
            machine.off_by = self.cut(isolated(machine.number))
            machine.files.power_lost(
                derived(self.seed, f"disk {machine.number} {machine.starts}"), faults or DiskFaults()
            )

    def number_at(self, address: str) -> int:
        """The number of the machine at an address; one past the last for an address where none is."""
        return self._at_address.get(address, len(self.machines))

    def host_at(self, number: int, contact: Contact) -> SimHost | None:
        """The process on a machine, if it runs and is the one that the contact means."""
        host = self.machines[number].host if number < len(self.machines) else None
        return host if host is not None and host.me == contact.node_id else None

    def echo(self, contact: Contact, here: int, there: int) -> bool | None:
        """Would machine `there` answer a question from `here`: yes, with a refusal, or (None) not at all?"""
        if self.network.blocked(here, there) or self.network.blocked(there, here):
            return None
        host = self.host_at(there, contact)
        return host is not None if host is None or host.backlog is None else None

    def knock(self, caller: End) -> None:
        """A call arrives at a machine."""
        host = self.host_at(caller.there, caller.contact)
        if host is None:
            self.refuse(caller)
            return
        if host.backlog is not None:
            caller.unanswered()
        host.accept(caller)

    def refuse(self, end: End) -> None:
        """Tell this end that there is nothing at the other side, if the network lets that through."""
        here, there = end.there, end.host.machine.number
        if self.network.blocked(here, there):
            end.unanswered()
        else:
            self.after(self.network.delay_s(here, there), end.reset, None)

    # --- the network

    def cut(self, cut: Cut) -> int:
        """Drop everything that `cut` says, from now on; returns the number to `mend` it by."""
        number = self.network.cut(cut)
        self._look()
        return number

    def mend(self, number: int) -> None:
        """Take a cut back."""
        self.network.mend(number)
        self._look()

    def disturb(self, ways: Sequence[tuple[int, int]], quality: Quality | None) -> None:
        """Give the ways from one machine to another a quality of their own, or with None the usual one again."""
        for a, b in ways:
            self.network.disturb(a, b, quality)
        self._look()

    def _culprit(self) -> str:
        """Whose step it was that went wrong, for people."""
        owner = getattr(self.happening, "__self__", None)
        host = getattr(owner, "host", owner)
        return f"peer {host.machine.number}" if isinstance(host, SimHost) else "the world"

    def _look(self) -> None:
        for machine in self.machines:
            if machine.host is not None:
                for end in machine.host.links.values():
                    end.look()


def derived(seed: int, purpose: str) -> Random:
    """The random numbers of one purpose: no purpose disturbs another's."""
    return Random(f"{seed}/{purpose}")


def _same(thing: Any) -> Any:
    return thing
