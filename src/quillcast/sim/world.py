"""The world: a virtual clock, a queue of future actions, and the machines.

One seed drives everything; the same seed gives the same steps in the same order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from quillcast.core.host import Inputs
from quillcast.core.ids import ID_BYTES, NodeId
from quillcast.core.messages import Codec
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.journal import Journal
from quillcast.sim.links import Exchange
from quillcast.sim.network import Cut, Network, Quality, isolated
from quillcast.sim.store import DiskFaults
from quillcast.sim.surroundings import WINDOW_BYTES, Surroundings


class Broken(AssertionError):
    """The first broken invariant of a run. `about` is the subject for its story."""

    def __init__(self, what: str, about: str = "") -> None:
        super().__init__(what)
        self.about = about


class World(Surroundings):
    """Everything in a simulation: the queue, the clock, the network, the machines.

    `seed` determines all random choices, `start` creates a peer for a process that starts, and `after_step` is called
    after every step of a peer. The others are those of `Surroundings`.
    """

    def __init__(
        self,
        seed: int,
        network: Network,
        start: Callable[[SimHost], Inputs],
        codec: Codec | None,
        *,
        window_bytes: int = WINDOW_BYTES,
        journal: Journal | None = None,
        after_step: Callable[[SimHost], None] | None = None,
    ) -> None:
        super().__init__(network, codec, window_bytes=window_bytes, journal=journal)
        self.seed = seed
        self.machines: list[Machine] = []
        self._exchange = Exchange()
        self._start, self._after_step = start, after_step
        self._ids, self._clocks = derived(seed, "ids"), derived(seed, "clocks")

    def run(self, until_s: float) -> None:
        """Run up to and including a time. Raises `Broken` for any error of a peer."""
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
        """A new machine, on which nothing runs yet. It has its own clocks."""
        machine = Machine(
            len(self.machines),
            node_id if node_id is not None else NodeId(self._ids.randbytes(ID_BYTES)),
            clock_origin_s=self._clocks.uniform(0, 100_000),
            wall_skew_s=self._clocks.uniform(-2, 2),
        )
        self.addresses[machine.contact.address] = machine.number
        self.machines.append(machine)
        return machine

    def start(self, machine: Machine) -> SimHost:
        """Start a process, with a new incarnation."""
        assert machine.host is None, f"{machine} is already running"
        if machine.off_by is not None:
            self.heal(machine.off_by)
            machine.switch_off(None)
        machine.count_start(self.now)
        chance = derived(self.seed, f"peer {machine.number} {machine.starts}")
        host = SimHost(self, self._exchange, machine, chance)
        machine.run(host)
        if self._after_step is not None:
            host.after_step(partial(self._after_step, host))
        self._exchange.open(host.table)
        host.serve(self._start(host))
        return host

    def stop(self, machine: Machine, *, silently: bool = False, faults: DiskFaults | None = None) -> None:
        """End the process: killed, or by power loss of its machine (`silently`), which may damage its disk."""
        host = machine.host
        if host is None:
            return
        machine.stop()
        self._exchange.close(machine.number)
        host.die(silently=silently)
        if silently:
            machine.switch_off(self.cut(isolated(machine.number)))
            machine.files.power_lost(
                derived(self.seed, f"disk {machine.number} {machine.starts}"), faults or DiskFaults()
            )

    # --- the network

    def cut(self, cut: Cut) -> int:
        """Drop everything that `cut` selects, from now on. Returns the number for `heal`."""
        number = self.network.cut(cut)
        self._look()
        return number

    def heal(self, number: int) -> None:
        """Remove a cut."""
        self.network.heal(number)
        self._look()

    def disturb(self, ways: Sequence[tuple[int, int]], quality: Quality | None) -> None:
        """Set the quality of network paths; None restores the default."""
        for a, b in ways:
            self.network.disturb(a, b, quality)
        self._look()

    def _culprit(self) -> str:
        """The process whose step failed, in words."""
        owner = getattr(self.happening, "__self__", None)
        host = getattr(owner, "host", owner)
        return f"peer {host.machine.number}" if isinstance(host, SimHost) else "the world"

    def _look(self) -> None:
        for machine in self.machines:
            if machine.host is not None:
                machine.host.table.look()


def derived(seed: int, purpose: str) -> Random:
    """The random numbers for one purpose. Purposes do not affect each other."""
    return Random(f"{seed}/{purpose}")
