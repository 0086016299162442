"""Random scenarios, one for each seed, with faults that the promises must survive."""

from random import Random

from quillcast.protocol.config import Config
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.sim import faults
from quillcast.sim.scenario import (
    AnyTopology,
    Constant,
    Disturbance,
    Reading,
    Regions,
    Scenario,
    TopicPlan,
    TransitStub,
    Uniform,
    Writing,
)
from quillcast.sim.world import derived

PEERS_MIN, PEERS_MAX = 5, 50
FAULTS_MIN, FAULTS_MAX = 5, 10
FAULTS_FROM_S, FAULTS_UNTIL_S = 15.0, 55.0
WRITERS_UNTIL_S = (40.0, 65.0, 110.0)  # while faults happen, about when they end, and at the very end
QUIET_S = 65.0  # from the end of the last fault to the end: a lease, and time to settle
FEW_LEAVES_APART_S = 15.0  # between deaths, if two neighbours dying at once may break the ring (l = 4)


def drawn(seed: int, peers_max: int = PEERS_MAX) -> Scenario:
    """The scenario of a seed. A lower `peers_max` gives a different scenario for the same seed."""
    random = derived(seed, "scenario")
    peers = round(PEERS_MIN * (peers_max / PEERS_MIN) ** random.random())
    overlay = OverlayConfig(digit_bits=random.choice([1, 2, 4]), leaf_set_size=random.choice([4, 8, 16]))
    until_s = random.choice(WRITERS_UNTIL_S)
    topics = [_topic(random, number, peers, until_s) for number in range(random.choice([1, 1, 2, 3]))]
    topologies: tuple[AnyTopology, ...] = (
        Constant(),
        Uniform(),
        Uniform(high_s=0.3),
        Regions(),
        TransitStub(core_link_s=0.01),
    )
    happening = _faults(random, peers, topics, apart_s=FEW_LEAVES_APART_S if overlay.leaf_set_size == 4 else 0.0)
    return Scenario(
        name=f"drawn by seed {seed}",
        peers=peers,
        duration_s=max([until_s, *(faults.over_s(fault) for fault in happening)]) + QUIET_S,
        topology=random.choice(topologies),
        disturbance=_disturbance(random),
        window_bytes=random.choice([1 << 15, 1 << 17, 1 << 20]),  # the smallest still carries all writers
        config=Config(overlay=overlay),
        topics=topics,
        faults=happening,
        check_every=1 + peers // 5,
    )


def _disturbance(random: Random) -> Disturbance:
    return random.choice(
        [
            Disturbance(),
            Disturbance(jitter=0.2),
            Disturbance(jitter=0.5, loss=0.01),
            Disturbance(datagrams=True, jitter=0.3, loss=0.01, duplication=0.01, reordering=0.05),
        ]
    )


def _topic(random: Random, number: int, peers: int, until_s: float) -> TopicPlan:
    readers = random.sample(range(peers), random.randint(2, min(10, peers)))
    writers = random.sample(range(peers), random.randint(1, 3))
    kind = random.random()
    return TopicPlan(
        name=f"t{number}",
        delivery="best_effort" if kind > 0.92 else "reliable",
        order="none" if kind > 0.96 else "publisher",
        slow="wait" if kind < 0.2 else "cut",
        writers=[
            Writing(
                peer=peer,
                from_s=random.uniform(8, 20),
                until_s=until_s,
                every_s=random.choice([0.1, 0.3, 0.7]),
                events=random.randint(1, 4),
                payload_bytes=random.choice([32, 200]),
            )
            for peer in writers
        ],
        readers=[reading for peer in readers for reading in _readings(random, peer)],
    )


def _readings(random: Random, peer: int) -> list[Reading]:
    """A subscriber that stays, one that ends, or one that ends and starts again."""
    kind = random.random()
    first = random.uniform(6, 12)
    if kind < 0.6:
        return [Reading(peer=peer, from_s=first)]
    gone = random.uniform(20, 50)
    going = Reading(peer=peer, from_s=first, until_s=gone)
    return [going] if kind < 0.8 else [going, Reading(peer=peer, from_s=random.uniform(gone, 60))]


def _faults(random: Random, peers: int, topics: list[TopicPlan], apart_s: float) -> list[faults.AnyFault]:
    happening: list[faults.AnyFault] = []
    died_at: list[float] = []
    for _ in range(random.randint(FAULTS_MIN, FAULTS_MAX)):
        at_s = random.uniform(FAULTS_FROM_S, FAULTS_UNTIL_S)
        deadly = all(abs(at_s - other) > apart_s for other in died_at) and len(died_at) < peers // 2
        fault = _fault(random, at_s, peers, topics, deadly=deadly)
        if isinstance(fault, faults.Crash | faults.Leave):
            died_at.append(at_s)
        happening.append(fault)
    return sorted(happening, key=lambda fault: fault.at_s)


def _fault(random: Random, at_s: float, peers: int, topics: list[TopicPlan], *, deadly: bool) -> faults.AnyFault:
    topic = random.choice(topics).name
    placed = [f"root:{topic}", f"forwarders:{topic}", f"leaves:{topic}"]
    peer = random.choice([*[str(random.randrange(peers))] * 3, *placed])
    some = [str(number) for number in random.sample(range(peers), random.randint(1, max(1, peers // 2)))]
    others = ["all", *(f"-{one}" for one in some)]
    again_s = random.choice([None, random.uniform(1, 5), random.uniform(5, 20)])
    disk = random.choice(["kept", "kept", "stale", "lost"])
    for_s = random.uniform(3, 12)
    kinds = ["crash", "silent crash", "leave"] * 2 if deadly else []
    kinds += ["pause", "partition", "one way", "loss", "slow ways", "slow readers", "arrive"]
    match random.choice(kinds):
        case "crash":
            return faults.Crash(at_s=at_s, peer=peer, restart_s=again_s, disk=disk)
        case "silent crash":
            return faults.Crash(at_s=at_s, peer=peer, silent=True, restart_s=again_s, disk=disk)
        case "leave":
            return faults.Leave(at_s=at_s, peer=peer, restart_s=again_s)
        case "pause":
            return faults.Pause(at_s=at_s, peer=peer, for_s=random.choice([0.5, 3, 8, 20]))
        case "partition":
            return faults.Partition(at_s=at_s, peers=some, for_s=random.choice([2, 8, 18, 40]))
        case "one way":
            return faults.Drop(at_s=at_s, from_=some, to=others, for_s=random.choice([2, 8]))
        case "loss":
            lost, doubled = random.uniform(0.05, 0.3), random.uniform(0, 0.1)
            return faults.Disturb(at_s=at_s, peers=some, for_s=for_s, loss=lost, duplication=doubled)
        case "slow ways":
            slow_s, bytes_per_s = random.uniform(0.05, 0.5), random.choice([0, 2000, 20_000])
            return faults.Disturb(at_s=at_s, peers=[peer], for_s=for_s, slow_s=slow_s, bytes_per_s=bytes_per_s)
        case "slow readers":
            reader, bytes_per_s = f"leaves:{topic}", random.choice([0, 0, 500])
            return faults.SlowReaders(at_s=at_s, peer=reader, for_s=random.choice([2, 8, 15]), bytes_per_s=bytes_per_s)
        case _:
            return faults.Arrive(at_s=at_s)
