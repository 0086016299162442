"""The observable state of a run. Judges and checks use nothing else."""

from collections.abc import Iterator, Mapping, Sequence

from quillcast.core.errors import QuillcastError
from quillcast.core.ids import topic_id
from quillcast.core.trace import Record
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.protocol.topics.state.tree import Tree
from quillcast.sim import faults
from quillcast.sim.admission_log import AdmissionLog
from quillcast.sim.applications import Event, Reader, Writer, peer_of
from quillcast.sim.clients import SimClient
from quillcast.sim.crowding import Crowding
from quillcast.sim.host import Machine, SimHost
from quillcast.sim.reach import Reach
from quillcast.sim.scenario import Scenario
from quillcast.sim.world import World


class AskedChange:
    """A request of a program on a host to change a topic's settings."""

    def __init__(self, host: SimHost, topic: str, at: float) -> None:
        self.host, self.topic, self.at = host, topic, at
        self.answers: list[Descriptor | QuillcastError] = []


class Observed:
    """A run of a scenario under a seed, as seen from outside. `Simulation` drives it."""

    def __init__(self, scenario: Scenario, seed: int, world: World) -> None:
        self.scenario, self.seed, self.world = scenario, seed, world
        self.readers: list[Reader] = []
        self.writers: list[Writer] = []
        self.happened: list[tuple[float, str]] = []
        self.created: dict[str, Descriptor] = {}  # topics created by programs, with their settings
        self.asked_changes: list[AskedChange] = []
        self.topics = {plan.name: topic_id(plan.name) for plan in scenario.topics}
        self.ledgers = {plan.name: AdmissionLog() for plan in scenario.topics}
        self.ledgers_by_id: dict[bytes, AdmissionLog] = {
            self.topics[name]: ledger for name, ledger in self.ledgers.items()
        }
        self.reach = Reach(world, self._entries)
        self.vouched: dict[Event, list[int]] = {}  # events of sources that are stable: the roots that declared it
        self.clients: list[SimClient] = []
        self.crowding = Crowding(scenario.config)
        self.half_full = Crowding(scenario.config, 1 / 2)  # more than a topic that waits may keep (`memory/shares.py`)
        self._calm_at = 0.0

    def vouch(self, events: Mapping[Event, list[int]]) -> None:
        """Events of sources were declared stable by these roots."""
        self.vouched.update(events)

    def agreed(self, topic: str) -> list[Descriptor]:
        """The descriptors of a topic that programs were told are in force."""
        answers = [answer for asked in self.asked_changes if asked.topic == topic for answer in asked.answers]
        made = [self.created[topic]] if topic in self.created else []
        return [*made, *(answer for answer in answers if isinstance(answer, Descriptor))]

    def running(self) -> Iterator[tuple[Machine, Peer]]:
        """The machines whose process runs (or is paused), with their peers."""
        for machine in self.world.machines:
            if machine.host is not None:
                yield machine, peer_of(machine.host)

    def members(self) -> Iterator[tuple[Machine, Peer]]:
        """The running peers that have a place in the ring, or will have one."""
        outside = self.scenario.outside
        return ((m, peer) for m, peer in self.running() if m.number not in outside and not peer.overlay.outside)

    def candidates(self) -> Iterator[tuple[Machine, Peer]]:
        """Peers that may be rendezvous points: members of the ring, or those with a seat in the topics' root scope."""
        root = next((plan for plan in self.scenario.scopes if plan.root), None)
        if root is None:
            return self.members()
        managing = (manager for _, peer in self.running() for manager, _ in peer.scoping.managers.values())
        seats = {
            seat for manager in managing if manager.state.scope.name == root.name for seat in manager.state.seats()
        }
        return ((machine, peer) for machine, peer in self.running() if machine.contact in seats)

    def _entries(self) -> dict[int, list[int]]:
        """The entry points of the members of scopes that have no place in the ring."""
        scoped = {number for plan in self.scenario.scopes for number in plan.members}
        found = ((m.number, peer.overlay.entries) for m, peer in self.running() if m.number in scoped)
        return {
            number: [self.world.number_at(each.address) for each in entries] for number, entries in found if entries
        }

    def trees(self, topic: str) -> dict[int, Tree]:
        """A topic's trees by machine, for every process that takes part in it."""
        id_ = self.topics[topic]
        return {machine.number: peer.topics.trees[id_] for machine, peer in self.running() if id_ in peer.topics.trees}

    def calm_at(self) -> float:
        """When the last fault was over."""
        slow = [end for reader in self.readers for _, end in reader.slow]
        return min(max(self._calm_at, *slow, 0.0), self.world.now)

    def traced(self, since: float) -> Iterator[tuple[int, Record]]:
        """The trace records of peers since then, with their machines, the latest first."""
        for at, machine, record in reversed(self.world.journal.records):
            if at < since:
                return
            yield machine, record

    def readers_on(self, machine: int) -> list[Reader]:
        """The readers in a machine's present process."""
        host = self.world.machines[machine].host
        return [reader for reader in self.readers if reader.host is host and reader.ended_at is None]

    def select(self, selectors: Sequence[str]) -> list[int]:
        """The machines that selectors name (see `faults`)."""
        return faults.select(selectors, self._named)

    def _ranked(self, topic: str) -> Iterator[tuple[int, set[bool]]]:
        """The members that are entry points for a topic (True) or stand-bys (False), by their managers' orders."""
        for machine, peer in self.running():
            controller = peer.scoping.controller
            orders = controller.membership.ordered_assignments() if controller is not None else {}
            mine = orders.get(self.topics[topic])
            if mine is not None:
                yield machine.number, {rank == 0 for rank in (mine.rank, mine.ring) if rank is not None}

    def _named(self, selector: str) -> list[int]:
        kind, _, topic = selector.partition(":")
        if kind.isdecimal():
            return [int(kind)]
        if kind == "all":
            return [machine.number for machine, _ in self.running()]
        if kind in ("readers", "writers"):
            users: Sequence[Reader | Writer] = self.readers if kind == "readers" else self.writers
            return list(dict.fromkeys(u.host.machine.number for u in users if u.topic == topic and u.host.alive))
        if kind in ("entry-points", "stand-bys"):
            return [number for number, leads in self._ranked(topic) if (kind == "entry-points") in leads]
        trees = self.trees(topic)
        roots = sorted((n for n, tree in trees.items() if tree.root is not None), key=lambda n: _term(trees[n]))[-1:]
        match kind:
            case "root":
                return roots
            case "forwarders":
                return [number for number, tree in trees.items() if tree.leases.children and number not in roots]
            case "children":
                nodes = [node for root in roots for node in trees[root].leases.children]
                return [machine.number for machine, _ in self.running() if machine.node_id in nodes]
            case _:  # leaves
                return [
                    number for number, tree in trees.items() if not tree.leases.children and tree.parent is not None
                ]


def _term(tree: Tree) -> tuple[int, bytes]:
    return tree.root.term if tree.root is not None else (0, b"")
