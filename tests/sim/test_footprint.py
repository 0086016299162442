"""What a peer without topics costs: a simulation has thousands of them."""

import tracemalloc

from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.sim.network import Network
from quillcast.sim.topology import Constant
from quillcast.sim.world import World, derived

PEERS = 200
PEER_BYTES_MAX = 27_000


def world_of(peers: int) -> World:
    """A world in which these peers have started, and nothing else has happened."""
    config = Config()
    world = World(1, Network(Constant(0.01), derived(1, "network")), lambda host: Peer(host, config), None)
    for machine in [world.add() for _ in range(peers)]:
        world.start(machine)
    return world


def test_a_peer_that_has_only_started_is_small() -> None:
    world_of(2)  # what all peers share
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        world = world_of(PEERS)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(world.machines) == PEERS
    assert (after - before) / PEERS < PEER_BYTES_MAX, f"{(after - before) / PEERS:,.0f} bytes"
