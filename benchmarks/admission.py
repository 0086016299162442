"""Topics whose root numbers the events, beside topics in which each source numbers its own.

Live: 16 publishers on 16 peers of this machine, and a subscriber on another. First as fast as they go, then at a rate,
for the delays from publish to handler.

Simulated: a network on a transit-stub topology. Topics get subscribers at random peers, and a publisher at a random
peer. The figure is the median, over all deliveries, of the delay from publish to delivery over that of the direct way.
"""

import sys
from random import Random
from typing import Any

from actors import ask_all, running
from head import Row, median, parser, tell
from simulate import PATIENCE_S, SEED, Audience, Writer, join_all, peer_at, run_until

from quillcast.core.bundle import Block
from quillcast.core.envelope import Position
from quillcast.protocol.config import Config
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.descriptor import Settings
from quillcast.sim.journal import Journal
from quillcast.sim.network import Network
from quillcast.sim.topology import TransitStub
from quillcast.sim.world import World, derived

KINDS = ("root", "source")
PEERS, SIZE_BYTES, RATE = 16, 100, 50  # events a second and publisher, for delays
ROUNDS, EVENTS, TIMED = 3, 160_000, 16_000
QUICK_ROUNDS, QUICK_EVENTS, QUICK_TIMED = 1, 16_000, 1600
SIMULATED, QUICK_SIMULATED = 5000, 500
TOPICS, SUBSCRIBERS = 20, 50


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, events, timed, peers = (
        (QUICK_ROUNDS, QUICK_EVENTS, QUICK_TIMED, QUICK_SIMULATED)
        if options.quick
        else (ROUNDS, EVENTS, TIMED, SIMULATED)
    )
    runs = {kind: list[Row]() for kind in KINDS}
    for number in range(1, rounds + 1):
        for kind in KINDS:
            runs[kind].append(measure(kind, events, timed))
            print(f"round {number} of {rounds}: admission = {kind}", file=sys.stderr, flush=True)
    rows: list[Row] = [
        {
            "admission": kind,
            **{name: median(each, name) for name in ("events_per_s", "p50_us", "p99_us")},
            "lost": max(run["lost"] for run in each),
            "peers": PEERS + 1,
        }
        for kind, each in runs.items()
    ]
    tell("admission", rows + simulated(peers), options)


def measure(kind: str, events: int, timed: int) -> Row:
    """One round on processes of this machine."""
    roles = [f"peer {number}" for number in range(1, PEERS + 1)]
    with running("quillcast", ["subscriber", *roles], middle=False) as system:
        subscriber, publishing = system.actors["subscriber"], [system.actors[role] for role in roles]
        topic = system.topic(f"admission/{kind}")
        subscriber.ask("create", topic=topic, settings={"admission": kind})
        subscriber.ask("subscribe", topics=[topic])
        ask_all(publishing, "open", topic=topic)
        ask_all(publishing, "publish", size_bytes=SIZE_BYTES, count=1)
        subscriber.ask("collect", count=PEERS)
        fast = _run(subscriber, publishing, events // PEERS, None)
        slow = _run(subscriber, publishing, timed // PEERS, RATE)
    return {
        "events_per_s": 1e9 * fast["count"] / (fast["last_ns"] - fast["first_ns"]),
        "p50_us": slow["p50_us"],
        "p99_us": slow["p99_us"],
        "lost": events + timed - fast["count"] - slow["count"],
    }


def _run(subscriber: Any, publishing: list[Any], each: int, rate: float | None) -> Row:
    subscriber.ask("reset")
    for actor in publishing:
        actor.order("publish", size_bytes=SIZE_BYTES, count=each, rate=rate)
    took: Row = subscriber.ask("collect", count=each * len(publishing))
    for actor in publishing:
        actor.answer()
    return took


# --- simulated


class Timed(Audience):
    """The subscribers of a topic at one peer, who note when its event came."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.at = world, 0.0

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        super().deliver(block, skip, stop, position, recovered)
        self.at = self.world.now


def simulated(peers: int) -> list[Row]:
    """The delays of both kinds in one simulated network."""
    network = Network(TransitStub(peers, derived(SEED, "transit-stub")), derived(SEED, "network"))
    config, journal = Config(), Journal(keep=frozenset())
    world = World(SEED, network, lambda host: Peer(host, config), None, share_bundles=True, journal=journal)
    join_all(world, peers)
    chance = derived(SEED, "topics")
    rows: list[Row] = []
    for kind in KINDS:
        ratios = [ratio for number in range(TOPICS) for ratio in delays(world, peers, f"{kind}/{number}", kind, chance)]
        ratios.sort()
        rows.append({"admission": kind, "delay_over_unicast": round(ratios[len(ratios) // 2], 3), "peers": peers})
    return rows


def delays(world: World, peers: int, topic: str, kind: str, chance: Random) -> list[float]:
    """One topic and one event: the delays of its subscribers over those of the direct way."""
    created = list[Any]()
    peer_at(world, 0).create(topic, Settings(admission=kind), created.append)
    run_until(world, lambda: bool(created), "heard of the topic")
    audience = {number: Timed(world) for number in chance.sample(range(peers), SUBSCRIBERS)}
    for number, each in audience.items():
        peer_at(world, number).subscribe(topic, each)
    run_until(world, lambda: all(each.started_count for each in audience.values()), "subscribed")
    source = chance.choice([number for number in range(peers) if number not in audience])
    publisher = peer_at(world, source).publisher(topic, Writer())
    world.run(world.now + PATIENCE_S / 10)  # it finds the root, or its place in the tree
    began = world.now
    publisher.offer([b"the one event of this topic"])
    run_until(world, lambda: all(each.delivered for each in audience.values()), "got the event")
    return [(each.at - began) / world.network.delay_s(source, number) for number, each in audience.items()]


if __name__ == "__main__":
    main()
