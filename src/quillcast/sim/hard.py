"""Random hard histories: few peers, small bounds, short leases, and targeted faults.

The histories of `chance` are wide: many peers with default settings, and faults for anyone. The histories here are
narrow. Each puts one or two **shapes** on a network of 4 to 10 peers whose settings are random too: children tables for
one to three children, no fallbacks, one replica, buffers of a few kilobytes. A shape is a fault that is known to be
hard, with random details. All times are the defaults divided by about four, so a run takes less than a minute of
virtual time, and thousands of seeds take minutes of real time.
"""

from collections.abc import Callable
from random import Random

import msgspec

from quillcast.core.ids import topic_id
from quillcast.protocol.config import Config
from quillcast.protocol.neighbours.config import NeighbourConfig
from quillcast.protocol.overlay.config import OverlayConfig
from quillcast.protocol.topics.config import MIB, TopicConfig
from quillcast.sim import faults
from quillcast.sim.leases import bound_s
from quillcast.sim.scenario import (
    AnyTopology,
    Changing,
    Constant,
    Disturbance,
    Reading,
    Scenario,
    TopicPlan,
    Uniform,
    Writing,
)
from quillcast.sim.world import derived

PEERS_MIN, PEERS_MAX = 4, 10
JOIN_S = 1.5
LEASE_S = 8.0
FAULTS_FROM_S, FAULTS_UNTIL_S = 6.0, 12.0
TOPIC = "t0"
ANOTHER_TOPIC = 0.15  # of the histories have a second topic in addition to their shapes
SESSIONS = 0.1  # of those histories open sessions of the first topic: two thirds of these change its guarantee
CHANGED_SETTINGS = 0.05  # of the histories in which everybody may publish change how the first topic treats the slow
NEAR_DIGITS = 8  # hexadecimal digits that a peer arriving next to a topic's id shares with that id

Happening = list[faults.AnyFault]


class Draft:
    """A history while it is being drawn: shapes add faults and programs to it, and change settings that they need."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.peers = random.randint(PEERS_MIN, PEERS_MAX)
        self.happening: Happening = []
        self.slow = random.choice(["cut", "cut", "wait"])
        self.publishers: list[int] = []
        self.until_s = random.choice([12.0, 18.0])
        self.datagrams = False
        self.arrivals = 0
        self.writers = random.sample(range(self.peers), random.choice([1, 1, 2]))
        readers = random.sample(range(self.peers), random.randint(2, min(4, self.peers)))
        self.readers = [Reading(peer=peer, from_s=random.uniform(2.0, 4.0)) for peer in readers]
        self.more_topics: list[TopicPlan] = []
        self.changes: list[Changing] = []
        self.idle_until_s = 0.0
        self.intruders: dict[int, float] = {}  # peers that may not publish, and when they try

    def some_peer(self) -> int:
        """Any peer."""
        return self.random.randrange(self.peers)

    def some_reader(self) -> int:
        """A peer on which a program reads from early on."""
        return self.random.choice(self.readers).peer

    def arrival(self, at_s: float) -> None:
        """A peer arrives next to the topic's id."""
        self.arrivals += 1
        near = f"{topic_id(TOPIC).hex()[:NEAR_DIGITS]}{self.arrivals:x}"
        self.happening.append(faults.Arrive(at_s=at_s, id=near))

    def soon(self) -> float:
        """When a fault may begin."""
        return self.random.uniform(FAULTS_FROM_S, FAULTS_UNTIL_S)


def hard(seed: int) -> Scenario:
    """The hard history of a seed."""
    random = derived(seed, "hard scenario")
    draft = Draft(random)
    shapes = random.sample(SHAPES, random.choice([1, 1, 2]))
    if derived(seed, "another topic").random() < ANOTHER_TOPIC:
        shapes.append(_another_topic)
    for shape in shapes:
        shape(draft)
    _change_settings(derived(seed, "changed settings"), draft)
    _open_sessions(derived(seed, "sessions"), draft)
    topologies: list[AnyTopology] = [Constant(), Uniform(), Uniform(high_s=0.03)]
    config = _config(random)
    over_s = max([draft.until_s, *(faults.over_s(fault) for fault in draft.happening)])
    over_s = max([over_s, *(reading.from_s for reading in draft.readers)])
    return Scenario(
        name=f"hard, by seed {seed}: {', '.join(shape.__name__.strip('_') for shape in shapes)}",
        peers=draft.peers,
        join_s=JOIN_S,
        duration_s=over_s + bound_s(config) + 1.0,
        topology=random.choice(topologies),
        disturbance=_disturbance(random, draft),
        window_bytes=random.choice([1 << 12, 1 << 14, 1 << 20]),
        config=config,
        topics=[_topic(random, draft), *draft.more_topics],
        faults=sorted(draft.happening, key=lambda fault: fault.at_s),
        check_every=8,
    )


# --- settings


def _config(random: Random) -> Config:
    small = [8_000, 16_000, 40_000, 64 * MIB]
    return Config(
        neighbours=NeighbourConfig(timeout_max_s=1.0, digest_every_s=8.0),
        overlay=OverlayConfig(
            digit_bits=random.choice([1, 2, 4]),
            leaf_set_size=random.choice([8, 16]),  # with 4, two deaths at once may break the ring
            keep_alive_s=2.0,
            maintenance_s=20.0,
        ),
        topics=TopicConfig(
            lease_s=LEASE_S,
            past_terms_s=2 * LEASE_S,
            replicas=random.choice([1, 2, 2, 5]),
            tree_heartbeat_s=1.0,
            join_timeout_s=0.5,
            join_timeout_max_s=2.0,
            report_s=random.choice([0.05, 0.1, 0.5]),
            budget_bytes=random.choice(small),
            patience_s=1.0,
            window_bytes=random.choice([4_000, 16_000, 4 * MIB]),
            retain_bytes=random.choice(small),
            retain_s=random.choice([LEASE_S / 2, 2 * LEASE_S, 4 * LEASE_S]),
            receipt_timeout_s=1.0,
            remind_s=3.0,
            bundle_bytes=random.choice([1_000, 256 * 1024]),
            fallbacks=random.choice([0, 0, 1, 3]),
            children_per_topic_max=random.choice([1, 2, 3, 16]),
            leave_s=3.0,
            linger_s=0.5,
            gap_s=random.choice([0.1, 0.25, 1.0]),
            give_up_s=2.0,
        ),
    )


def _disturbance(random: Random, draft: Draft) -> Disturbance:
    if draft.datagrams:
        return Disturbance(datagrams=True, loss=random.choice([0.0, 0.02]), jitter=0.3)
    return random.choice([Disturbance(), Disturbance(), Disturbance(jitter=0.4)])


def _topic(random: Random, draft: Draft) -> TopicPlan:
    writings = [
        Writing(
            peer=peer,
            from_s=max(random.uniform(3.0, 5.0), draft.intruders.get(peer, draft.idle_until_s)),
            until_s=draft.until_s,
            every_s=random.choice([0.2, 0.4]),
            events=random.randint(1, 3),
            payload_bytes=random.choice([32, 200, 500]),
        )
        for peer in [*draft.writers, *draft.intruders]
    ]
    return TopicPlan(
        name=TOPIC, slow=draft.slow, writers=writings, readers=draft.readers, publishers=sorted(set(draft.publishers)),
        changes=draft.changes,
    )  # fmt: skip


def _change_settings(random: Random, draft: Draft) -> None:
    """Programs change the topic's settings, perhaps two at the same time. With a list, only its owner could."""
    if draft.publishers or random.random() >= CHANGED_SETTINGS:
        return
    for _ in range(random.randint(1, 3)):
        peer, at_s = random.randrange(draft.peers), random.uniform(4.0, draft.until_s)
        times = random.choice([1, 2])
        draft.changes += [Changing(peer=peer, at_s=at_s, slow=random.choice(["cut", "wait"])) for _ in range(times)]


def _open_sessions(random: Random, draft: Draft) -> None:
    """Programs change the topic's guarantee, perhaps two at the same time."""
    if not draft.publishers and random.random() < SESSIONS:
        draft.changes += session_changes(random, draft.peers, draft.until_s)


def session_changes(random: Random, peers: int, until_s: float) -> list[Changing]:
    """One of the first topic's promises changes, up to four times."""
    kind, changes = random.choice(["partition", "delivery", "delivery"]), list[Changing]()
    waiting, best_effort = {"partition": "wait"}, {"delivery": "best_effort", "slow": "cut"}
    values = {"partition": [waiting, {"partition": "go_on"}], "delivery": [best_effort, {"delivery": "reliable"}]}[kind]
    at_s = random.uniform(4.0, until_s)
    for number in range(random.randint(1, 4)):
        for _ in range(random.choice([1, 1, 2])):
            asked = Changing(peer=random.randrange(peers), at_s=at_s)
            changes.append(msgspec.structs.replace(asked, **values[number % 2]))
        at_s += random.choice([0.3, 1.0, 3.0])
    return changes


# --- shapes


def _newcomer(draft: Draft) -> None:
    """A slow reader's peer is paused while a newcomer takes its place in the tree."""
    random, at_s, slow = draft.random, draft.soon(), draft.some_reader()
    draft.happening += [
        faults.SlowReaders(at_s=at_s, peer=str(slow), for_s=random.uniform(3, 9), bytes_per_s=random.choice([0, 500])),
        faults.Pause(at_s=at_s + random.uniform(0.2, 2), peer=str(slow), for_s=random.uniform(2, 6)),
    ]
    others = [peer for peer in range(draft.peers) if peer not in {reading.peer for reading in draft.readers}]
    for peer in random.sample(others, min(len(others), random.randint(1, 2))):
        draft.readers.append(Reading(peer=peer, from_s=at_s + random.uniform(1, 6)))


def _beside_the_root(draft: Draft) -> None:
    """Peers arrive next to the topic's id while its root is paused, crashes or leaves."""
    random, at_s = draft.random, draft.soon()
    root = f"root:{TOPIC}"
    choices: Happening = [
        faults.Pause(at_s=at_s, peer=root, for_s=random.uniform(1, 7)),
        faults.Crash(at_s=at_s, peer=root, silent=random.random() < 0.5, restart_s=_again(random)),
        faults.Leave(at_s=at_s, peer=root, restart_s=_again(random)),
    ]
    draft.happening.append(random.choice(choices))
    for _ in range(random.randint(1, 2)):
        draft.arrival(at_s + random.uniform(-0.5, 4))


def _three_ways(draft: Draft) -> None:
    """The network is partitioned into three parts, which come together one after another."""
    random, at_s = draft.random, draft.soon()
    peers = random.sample(range(draft.peers), draft.peers)
    cut = sorted(random.sample(range(1, draft.peers), 2))
    for side in (peers[: cut[0]], peers[cut[0] : cut[1]]):
        for_s = random.choice([2.0, LEASE_S / 2, 1.5 * LEASE_S])
        draft.happening.append(faults.Partition(at_s=at_s, peers=[str(peer) for peer in side], for_s=for_s))


def _long_split(draft: Draft) -> None:
    """The network is partitioned for longer than a lease, and programs continue after it has healed."""
    random, at_s = draft.random, draft.soon()
    side = random.sample(range(draft.peers), random.randint(1, draft.peers - 1))
    for_s = random.uniform(1.1, 1.8) * LEASE_S
    draft.happening.append(faults.Partition(at_s=at_s, peers=[str(peer) for peer in side], for_s=for_s))
    draft.until_s = max(draft.until_s, at_s + for_s + random.choice([0.0, 8.0]))


def _timing_out(draft: Draft) -> None:
    """A reader processes nothing until publishers no longer keep the events, and then the root dies."""
    random, at_s = draft.random, FAULTS_FROM_S
    for_s = random.uniform(10, 16)
    draft.happening.append(faults.SlowReaders(at_s=at_s, peer=str(draft.some_reader()), for_s=for_s))
    if random.random() < 0.7:
        draft.happening.append(
            faults.Crash(at_s=at_s + random.uniform(5, for_s), peer=f"root:{TOPIC}", silent=random.random() < 0.5)
        )
    draft.until_s = at_s + for_s


def _again(random: Random) -> float | None:
    return random.choice([None, random.uniform(0.3, 2), random.uniform(2, 1.2 * LEASE_S)])


def _known_again(draft: Draft) -> None:
    """Peers die or leave, and come back with the same identity, some of them with empty disks."""
    random = draft.random
    for _ in range(random.randint(2, 3)):
        peer = random.choice([f"root:{TOPIC}", f"forwarders:{TOPIC}", str(draft.some_peer())])
        at_s, restart_s = draft.soon(), random.uniform(0.3, 1.2 * LEASE_S)
        if random.random() < 0.7:
            disk, silent = random.choice(["kept", "stale", "lost"]), random.random() < 0.5
            draft.happening.append(faults.Crash(at_s=at_s, peer=peer, silent=silent, restart_s=restart_s, disk=disk))
        else:
            draft.happening.append(faults.Leave(at_s=at_s, peer=peer, restart_s=restart_s))


def _with_a_list(draft: Draft) -> None:
    """The topic's owner lets some peers publish, and others try, while peers come and go next to the topic's id."""
    random = draft.random
    draft.publishers = list(draft.writers)
    others = [peer for peer in range(draft.peers) if peer not in draft.writers]
    for intruder in random.sample(others, min(len(others), random.randint(1, 3))):
        draft.intruders[intruder] = random.uniform(3.0, draft.until_s - 1.0)
    if random.random() < 0.7:  # the topic exists for a while, and nobody uses it
        draft.idle_until_s = random.uniform(5, draft.until_s - 3)
        draft.readers = [msgspec.structs.replace(each, from_s=draft.idle_until_s) for each in draft.readers]
    for _ in range(random.randint(1, 4)):
        at_s, restart_s = random.uniform(JOIN_S, FAULTS_UNTIL_S), random.uniform(0.3, 4)
        peer = random.choice([f"root:{TOPIC}", "0", str(draft.some_peer())])
        kind = random.random()
        if kind < 0.4:
            draft.arrival(at_s)
        elif kind < 0.7:
            draft.happening.append(faults.Crash(at_s=at_s, peer=peer, restart_s=restart_s, disk="lost"))
        else:
            draft.happening.append(faults.Leave(at_s=at_s, peer=peer, restart_s=restart_s))


def _lossy(draft: Draft) -> None:
    """Messages and bundles are datagrams. For a while up to three in ten are lost, and many arrive out of order."""
    random = draft.random
    draft.datagrams = True
    draft.happening.append(
        faults.Disturb(
            at_s=FAULTS_FROM_S - 1.0, peers=["all"], for_s=random.uniform(4, 10), loss=random.choice([0.1, 0.2, 0.3]),
            reordering=random.uniform(0, 0.3), duplication=random.choice([0.0, 0.05]), jitter=0.3,
        )
    )  # fmt: skip
    if random.random() < 0.5:
        draft.happening.append(faults.Crash(at_s=draft.soon(), peer=_placed(draft), restart_s=_again(draft.random)))


def _crowded(draft: Draft) -> None:
    """Slow readers, slow network paths and paused peers at the same time."""
    random = draft.random
    for _ in range(random.randint(2, 4)):
        at_s, for_s = draft.soon(), random.uniform(2, LEASE_S)
        kind = random.random()
        if kind < 0.4:
            draft.happening.append(
                faults.SlowReaders(
                    at_s=at_s, peer=str(draft.some_reader()), for_s=for_s, bytes_per_s=random.choice([0, 300, 2000])
                )
            )
        elif kind < 0.7:
            peer, rate = _placed(draft), random.choice([500, 2000])
            draft.happening.append(faults.Disturb(at_s=at_s, peers=[peer], for_s=for_s, bytes_per_s=rate))
        else:
            draft.happening.append(faults.Pause(at_s=at_s, peer=_placed(draft), for_s=for_s))


def _deaths(draft: Draft) -> None:
    """Peers of the tree die, leave and are paused in quick succession."""
    random = draft.random
    for _ in range(random.randint(1, 3)):
        at_s, peer = draft.soon(), _placed(draft)
        choices: Happening = [
            faults.Crash(at_s=at_s, peer=peer, silent=random.random() < 0.5, restart_s=_again(random)),
            faults.Leave(at_s=at_s, peer=peer, restart_s=_again(random)),
            faults.Pause(at_s=at_s, peer=peer, for_s=random.choice([0.5, 3.0, 1.3 * LEASE_S])),
            faults.Drop(at_s=at_s, from_=[peer], to=["all", f"-{draft.some_peer()}"], for_s=3.0),
        ]
        draft.happening.append(random.choice(choices))


def _another_topic(draft: Draft) -> None:
    """A second topic shares the buffers. Its slow readers must not affect the first topic."""
    random = draft.random
    readers = random.sample(range(draft.peers), random.randint(1, min(3, draft.peers)))
    writing = Writing(
        peer=draft.some_peer(),
        from_s=4.0,
        until_s=draft.until_s,
        every_s=0.3,
        events=random.randint(1, 3),
        payload_bytes=200,
    )
    plan = TopicPlan(
        name="t1",
        slow=random.choice(["cut", "wait"]),
        writers=[writing],
        readers=[Reading(peer=peer, from_s=random.uniform(2.0, 4.0)) for peer in readers],
    )
    draft.more_topics.append(plan)
    at_s, for_s = draft.soon(), random.uniform(3, LEASE_S)
    if random.random() < 0.5:
        draft.happening.append(faults.Pause(at_s=at_s, peer=str(readers[0]), for_s=for_s))
    else:
        draft.happening.append(faults.SlowReaders(at_s=at_s, peer=str(readers[0]), for_s=for_s))


def _placed(draft: Draft) -> str:
    places = [f"root:{TOPIC}", f"forwarders:{TOPIC}", f"leaves:{TOPIC}", f"children:{TOPIC}"]
    return draft.random.choice([*places, str(draft.some_peer())])


SHAPES: list[Callable[[Draft], None]] = [
    _newcomer, _beside_the_root, _three_ways, _long_split, _timing_out, _known_again, _with_a_list, _lossy, _crowded,
    _deaths,
]  # fmt: skip
