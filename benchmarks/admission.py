"""Compare topics whose root numbers the events with topics in which each source numbers its own.

Live: 16 publishers on 16 peers of this machine, and a subscriber on another. First at full speed, then at a fixed rate,
for the delays from publish to handler.

Simulated: a network on a transit-stub topology. Each topic gets subscribers and a publisher at random peers, all at the
same time. The figure is the median, over all deliveries, of the delay from publish to delivery divided by that of the
direct path.
"""

import gc
import statistics
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
TOPICS, SUBSCRIBERS = 100, 50  # of each kind; with 20 the median differs by 0.2 from seed to seed


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
    """A subscriber that records when its event arrived."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.at = world, 0.0

    def deliver(self, block: Block, skip: int, stop: int, position: Position, recovered: bool = False) -> None:
        super().deliver(block, skip, stop, position, recovered)
        self.at = self.world.now


def simulated(peers: int) -> list[Row]:
    """The delays of both kinds in one simulated network."""
    gc.disable()  # peers live as long as the run; garbage collection would double its time
    network = Network(TransitStub(peers, derived(SEED, "transit-stub")), derived(SEED, "network"))
    config, journal = Config(), Journal(keep=frozenset())
    world = World(SEED, network, lambda host: Peer(host, config), None, journal=journal)
    join_all(world, peers)
    chance = derived(SEED, "topics")
    topics = [Topic(world, kind, f"{kind}/{number}", peers, chance) for kind in KINDS for number in range(TOPICS)]
    run_until(world, lambda: all(topic.created for topic in topics), "heard of its topic")
    subscribers = [each for topic in topics for each in topic.subscribe()]
    run_until(world, lambda: all(each.started_count for each in subscribers), "subscribed")
    publishers = [peer_at(world, topic.source).publisher(topic.name, Writer()) for topic in topics]
    world.run(world.now + PATIENCE_S / 10)  # until they find the root, or their place in the tree
    began = world.now
    for publisher in publishers:
        publisher.offer([b"the one event of this topic"])
    run_until(world, lambda: all(each.delivered for each in subscribers), "got the event")
    return [
        {"admission": kind, "delay_over_unicast": round(median_of(topics, kind, began), 3), "peers": peers}
        for kind in KINDS
    ]


class Topic:
    """A topic with its subscribers and its source, by the numbers of their peers."""

    def __init__(self, world: World, kind: str, name: str, peers: int, chance: Random) -> None:
        self.world, self.kind, self.name = world, kind, name
        self.source, *others = chance.sample(range(peers), 1 + SUBSCRIBERS)
        self.audience = {number: Timed(world) for number in others}
        self.created = list[Any]()
        peer_at(world, 0).create(name, Settings(admission=kind), self.created.append)

    def subscribe(self) -> list[Timed]:
        """Subscribe the topic's subscribers, and return them."""
        for number, each in self.audience.items():
            peer_at(self.world, number).subscribe(self.name, each)
        return list(self.audience.values())

    def delays(self, began: float) -> list[float]:
        """The delays of its subscribers, divided by those of the direct path."""
        delay_s = self.world.network.delay_s
        return [(each.at - began) / delay_s(self.source, number) for number, each in self.audience.items()]


def median_of(topics: list[Topic], kind: str, began: float) -> float:
    """The median over all deliveries in topics of one kind."""
    return statistics.median([ratio for topic in topics if topic.kind == kind for ratio in topic.delays(began)])


if __name__ == "__main__":
    main()
