"""The protocol in the simulator and the `scribe` kernel make the same trees, given the same tables."""

import numpy as np
import pytest

from quillcast.core.ids import number, topic_id
from quillcast.core.messages import Contact
from quillcast.evaluation.network import Group, Peers, Topology, frozen
from quillcast.evaluation.policies import parse
from quillcast.evaluation.routing import pastry, preparing
from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.overlay.router import Pending, Router
from quillcast.protocol.overlay.routingtable import RoutingTable
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim.scenario import Reading, Scenario, TopicPlan, TransitStub
from quillcast.sim.simulation import Simulation
from tests.evaluation.naive import parents_of

NO_BOUND = 1_000_000  # the bound on children is the remover's; the kernel has it as a policy of its own
SETTLED_S, SUBSCRIBED_S = 20.0, 10.0
KEEP_ALIVE_S = 60.0  # nobody dies, so nobody need be asked for a sign of life meanwhile


@pytest.mark.parametrize(
    ("count", "digit_bits"),
    [(120, 2), *(pytest.param(count, 4, marks=pytest.mark.long) for count in (40, 400))],
)
def test_protocol_and_kernel_make_the_same_trees(count: int, digit_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers join by the protocol; what is in their tables when readers come is what the kernel routes by.

    Among 400, tables of hexadecimal digits have a third row.
    """
    sizes = {"all": count, "half": count // 2, "few": 11}
    step = {name: count // size for name, size in sizes.items()}
    join_s = max(5.0, count / 40)
    start_s = join_s + SETTLED_S
    plans = [
        TopicPlan(name=name, readers=[Reading(peer=at * step[name], from_s=start_s) for at in range(size)])
        for name, size in sizes.items()
    ]
    overlay = OverlayConfig(digit_bits=digit_bits, keep_alive_s=KEEP_ALIVE_S)
    config = Config(overlay=overlay, topics=TopicConfig(children_per_topic_max=NO_BOUND))
    scenario = Scenario(
        peers=count, duration_s=start_s + SUBSCRIBED_S, join_s=join_s, topology=TransitStub(), config=config,
        topics=plans, check_every=NO_BOUND,
    )  # fmt: skip
    simulation = Simulation(scenario, 5, codec=None)
    simulation.world.run(start_s)
    machines, tables = extracted(simulation, digit_bits)
    monkeypatch.setattr(RoutingTable, "consider", _no_change)  # those who visit would enter tables while readers come
    monkeypatch.setattr(Router, "_reroute", _same_way)  # nobody is dead: a late answer sends no Join another way
    simulation.world.run(start_s + SUBSCRIBED_S)
    assert extracted(simulation, digit_bits)[1].cells.tolist() == tables.cells.tolist(), "tables changed meanwhile"
    for name, size in sizes.items():
        members = np.sort([machines.index(at * step[name]) for at in range(size)]).astype(np.int32)
        group = Group(0, number(topic_id(name)) >> 64, frozen(members, np.int32), 0)
        (made,) = parse("scribe").trees(tables, group)
        assert parents_of(made) == simulated(simulation, name, machines)
        assert size == 11 or len(set(parents_of(made).values())) > 2, "a tree of some depth"


def _no_change(table: RoutingTable, contact: Contact, proximity: float) -> bool:
    return False


def _same_way(router: Router, pending: Pending) -> None:
    router._transmit(pending, pending.hop)


def extracted(simulation: Simulation, digit_bits: int) -> tuple[list[int], pastry.Tables]:
    """Machines in the order of their nodeIds, and what is in their peers' routing tables. Leaf sets are right."""
    running = sorted(simulation.running(), key=lambda pair: pair[0].node_id)
    ids = [machine.node_id for machine, _ in running]
    at = {id_: place for place, id_ in enumerate(ids)}
    cells = np.full((len(ids), 128 // digit_bits, 1 << digit_bits), -1, np.int32)
    for here, (_, peer) in enumerate(running):
        table = peer.overlay.routing_table
        around = [ids[(here + step) % len(ids)] for step in range(-8, 9) if step]
        assert set(around) - {ids[here]} == set(peer.overlay.leaf_set.members), "a leaf set is wrong"
        for entry in table.entries():
            cells[(here, *table.place(number(entry.contact.node_id)))] = at[entry.contact.node_id]
    used = 1 + int(np.flatnonzero((cells >= 0).any(axis=(0, 2)))[-1])
    return [machine.number for machine, _ in running], preparing.tables(
        nowhere(), everybody(ids), digit_bits, 16, np.ascontiguousarray(cells[:, :used])
    )


def everybody(ids: list[bytes]) -> Peers:
    prefixes = np.array([number(id_) >> 64 for id_ in ids], np.uint64)
    nothing = np.zeros(len(ids), np.int32)
    return Peers(ids=prefixes, place=nothing, domain=nothing)


def nowhere() -> Topology:
    """One place: given tables need no delays."""
    return Topology(
        delay_ms=np.zeros((1, 1), np.float32),
        coordinates=np.empty((0, 0), np.float32),
        via=np.empty((0, 0), np.int32),
        link_ends=np.empty((0, 2), np.int32),
        link_ms=np.empty(0, np.float32),
        domain=np.zeros(1, np.int32),
        attachable=np.zeros(1, np.int32),
        access_ms=1.0,
        name="nowhere",
        place_names=[],
    )


def simulated(simulation: Simulation, topic: str, machines: list[int]) -> dict[int, int]:
    """The parent of each peer in the protocol's tree, as places in the order of nodeIds; the root's is -1."""
    place = {machine.node_id: machines.index(machine.number) for machine, _ in simulation.running()}
    trees = simulation.trees(topic)
    for at, tree in trees.items():
        assert tree.attached, f"machine {at} has no parent yet"
    return {machines.index(at): -1 if tree.parent is None else place[tree.parent.node_id] for at, tree in trees.items()}
