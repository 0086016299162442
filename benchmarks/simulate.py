"""The speed of simulating a large network, and the quality of its routes.

Peers join through random others on a transit-stub topology, twice as many in every period. Then 100 topics get 100
subscribers and one event each, and the run ends with the last delivery. Timers are those of live peers. Messages and
bundles are immutable and passed by reference; with --bytes they travel as bytes, as in all tests. Each size runs in a
process of its own.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from random import Random
from typing import Any

from ideal import ideal_hops, ideal_stretch

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position
from quillcast.core.errors import QuillcastError
from quillcast.core.ids import ID_BYTES
from quillcast.core.loss import Loss
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.wire import WireCodec
from quillcast.sim.applications import peer_of
from quillcast.sim.host import Machine
from quillcast.sim.journal import Journal
from quillcast.sim.network import Network
from quillcast.sim.topology import TransitStub
from quillcast.sim.world import World, derived

SEED = 1
FIRST_PEERS, DOUBLING_S = 16, 5.0  # the network doubles in this many seconds
SETTLE_S = 30.0  # from the last join to the subscriptions, if all peers are active by then
JOIN_S_MAX = 120.0
SUBSCRIBE_S = 10.0  # subscriptions begin within this
PATIENCE_S = 30.0  # by then all subscriptions must be established, or every subscriber must have its event
STEP_S = 0.5  # between two checks for completion
TOPICS, SUBSCRIBERS = 100, 100
ROUTES = 5000  # walked for the means
# Each step runs another peer, anywhere in memory. Pages of 2 MiB, which glibc can request, save a sixth to a quarter of
# the time.
LARGE_PAGES = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Audience:
    """All subscribers of one topic: counts their deliveries."""

    def __init__(self) -> None:
        self.started_count = self.delivered = 0

    def started(self, position: Position) -> None:
        self.started_count += 1

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        self.delivered += stop - skip

    def lost(self, loss: Loss) -> None:
        raise AssertionError(f"a subscriber got a loss report: {loss}")

    def failed(self, error: QuillcastError) -> None:
        raise error

    def room(self) -> int:
        return 1 << 20


class Writer:
    """A publisher that waits for nothing."""

    def progressed(self) -> None: ...

    def dropped(self, block: Block) -> None: ...

    def stops_keeping(self) -> None: ...

    def was_best_effort(self, first: int, last: int) -> None: ...

    def failed(self, error: QuillcastError) -> None:
        raise error


def join_all(world: World, peers: int) -> None:
    """Let peers join, each through a random one that began before it, twice as many in every period."""
    chance = derived(SEED, "joins")

    def start(machine: Machine) -> None:
        known = world.machines[chance.randrange(machine.number)].contact if machine.number else None
        peer_of(world.start(machine)).join([known] if known is not None else [])

    begin_all(world, [world.add() for _ in range(peers)], start)


def begin_all(world: World, machines: Sequence[Machine], start: Callable[[Machine], None]) -> None:
    """Start peers, twice as many in every period, and wait until all are active."""
    began = world.now
    for number, machine in enumerate(machines):
        batch = max(FIRST_PEERS, (1 << number.bit_length()) // 2)
        world.at(began, start, machine)
        began += DOUBLING_S / batch if number else 0.5
    world.run(began + SETTLE_S)
    while idle := [machine.number for machine in machines if not peer_at(world, machine.number).active]:
        assert world.now < began + JOIN_S_MAX, f"peers {idle} are not active {JOIN_S_MAX:g} s after the last began"
        world.run(world.now + 1.0)


def peer_at(world: World, number: int) -> Peer:
    host = world.machines[number].host
    assert host is not None
    return peer_of(host)


def publish_all(world: World, peers: int, topics: int, subscribers: int) -> None:
    """Give every topic its subscribers, a publisher and one event, which must be delivered to all of them."""
    chance = derived(SEED, "topics")
    audiences = [Audience() for _ in range(topics)]
    begin = world.now
    for number, audience in enumerate(audiences):
        for subscriber in chance.sample(range(peers), subscribers):
            at = begin + chance.uniform(0, SUBSCRIBE_S)
            peer = peer_at(world, subscriber)
            world.at(at, lambda given: given[0].subscribe(f"topic/{given[1]}", given[2]), (peer, number, audience))
    world.run(begin + SUBSCRIBE_S)
    run_until(world, lambda: all(audience.started_count == subscribers for audience in audiences), "subscribed")
    for number in range(topics):
        publisher = peer_at(world, chance.randrange(peers)).publisher(f"topic/{number}", Writer())
        publisher.offer([b"the one event of this topic"])
    run_until(world, lambda: all(audience.delivered == subscribers for audience in audiences), "got the event")


def run_until(world: World, done: Callable[[], bool], what: str) -> None:
    """Run the world until this is done."""
    began = world.now
    while not done():
        assert world.now < began + PATIENCE_S, f"after {PATIENCE_S:g} s not every subscriber {what}"
        world.run(world.now + STEP_S)


def routes(world: World, peers: int, b: int, l: int) -> dict[str, float]:  # noqa: E741
    """Routes from random peers to random keys: mean hops, and length over the direct path; also with ideal tables."""
    chance = Random(SEED)
    number_of: dict[bytes, int] = {machine.node_id: machine.number for machine in world.machines}
    hops, route_s, direct_s = 0, 0.0, 0.0
    for _ in range(ROUTES):
        key, way = chance.randbytes(ID_BYTES), [chance.randrange(peers)]
        while (hop := peer_at(world, way[-1]).overlay.next_hop(key)) is not None:
            way.append(number_of[hop.node_id])
        hops += len(way) - 1
        route_s += sum(world.network.delay_s(here, there) for here, there in pairwise(way))
        direct_s += world.network.delay_s(way[0], way[-1]) if len(way) > 1 else 0.0
    ids = [machine.node_id for machine in world.machines]
    return {
        "mean_hops": hops / ROUTES,
        "ideal_hops": ideal_hops(ids, b, l),
        "route_over_direct": route_s / direct_s,
        "ideal_route_over_direct": ideal_stretch(ids, b, l, world.network.delay_s),
    }


def peak_rss_bytes() -> int:
    """The peak memory of this program. `getrusage` would return that of the process that started it, if it was more."""
    with open("/proc/self/status") as status:  # noqa: PTH123 - one line, and no folder
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def measure(peers: int, topics: int, subscribers: int, *, as_bytes: bool) -> dict[str, Any]:
    """One size, from nothing to the last delivery."""
    gc.disable()  # peers live as long as the run; garbage collection would double its time
    config = Config()
    network = Network(TransitStub(peers, derived(SEED, "transit-stub")), derived(SEED, "network"))
    world = World(
        SEED,
        network,
        lambda host: Peer(host, config),
        WireCodec() if as_bytes else None,
        journal=Journal(keep=frozenset()),
    )
    began = time.perf_counter()
    join_all(world, peers)
    joined_s = time.perf_counter() - began
    publish_all(world, peers, topics, subscribers)
    wall_s = time.perf_counter() - began
    row = {
        "system": "quillcast",
        "peers": peers,
        "wall_s": round(wall_s, 3),
        "steps_per_s": round(world.steps / wall_s),
        "cpu_s": round(time.process_time(), 3),
        "peak_rss_bytes": peak_rss_bytes(),
        **routes(world, peers, config.overlay.digit_bits, config.overlay.leaf_set_size),
    }
    return row | {"joined_s": round(joined_s, 3), "steps": world.steps, "simulated_s": round(world.now, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="small sizes only, in under a minute")
    parser.add_argument("--peers", type=int, nargs="*", help="sizes (default: 2000 10000)")
    parser.add_argument("--bytes", action="store_true", help="let messages and bundles travel as bytes")
    options = parser.parse_args()
    sizes = options.peers or ([500, 1000] if options.quick else [2000, 10_000])
    rows = []
    os.environ.update(LARGE_PAGES)  # which a process takes up when it starts
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for peers in sizes:
            row = pool.submit(measure, peers, TOPICS, min(SUBSCRIBERS, peers // 2), as_bytes=options.bytes).result()
            rows.append(row)
            print(
                f"{row['peers']:6} peers: {row['wall_s']:.1f} s ({row['joined_s']:.1f} s until all had joined) for "
                f"{row['simulated_s']:.0f} simulated, {row['cpu_s']:.1f} s of CPU, {row['steps_per_s']:,} steps/s, "
                f"{row['peak_rss_bytes'] / 1e6:.0f} MB; hops {row['mean_hops']:.3f}, ideal {row['ideal_hops']:.3f}; "
                f"route over direct delay {row['route_over_direct']:.3f}, ideal {row['ideal_route_over_direct']:.3f}",
                file=sys.stderr if options.json else sys.stdout,
                flush=True,
            )
    if options.json:
        print(json.dumps({"benchmark": "simulate", "cores": os.cpu_count(), "results": rows}))


if __name__ == "__main__":
    main()
