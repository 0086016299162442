"""Whatever the order of joins, leaves, crashes, restarts, pauses and splits: one ring in the end, and keys find it.

The names of the marks at the end are the repair paths; every one has to be taken by some run.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quillcast.protocol.overlay.config import OverlayConfig
from tests.protocol.overlay.world import TestPeer, World

seeds = st.integers(0, 1 << 30)
SIZES = [(4, 16), (2, 8), (1, 4), (1, 2)]
LAST_S = 240.0  # what a split of a minute, back-off and slow rounds may take to be over
WAYS = [
    "cold_start", "digests_differ", "join_retry", "lazy_repair", "leaf_repair", "member_left", "neighbour_lost",
    "probe_given_up", "rerouted", "ring_merge", "row_maintenance", "row_repair", "ring_searched", "process_paused",
]  # fmt: skip


class Turmoil:
    """One world and what befalls it, all drawn from one random generator. The first peer never dies: it is everybody's
    contact, so that whoever can reach the ring knows a way."""

    def __init__(self, random: Random, *, kinds: tuple[str, ...]) -> None:
        self.random, self.kinds = random, kinds
        digit_bits, leaf_set_size = random.choice(SIZES)
        config = OverlayConfig(digit_bits=digit_bits, leaf_set_size=leaf_set_size)
        self.world = World(random.randrange(1 << 30), config, loss=random.choice([0.0, 0.0, 0.02, 0.05]))
        self.first = self.world.join(contacts=[])

    def run(self, steps: int) -> World:
        for _ in range(steps):
            getattr(self, self.random.choice(self.kinds))()
            self.world.run(self.random.choice([0.0, 0.05, 0.3, 2.0, 10.0]))
        self.world.loss = 0.0
        self.world.run(LAST_S)
        return self.world

    def join(self) -> None:
        active = [peer.contact for peer in self.world.alive() if peer.overlay.active]
        some = self.random.sample(active, min(2, len(active)))
        self.world.join(contacts=[self.first.contact, *some])

    def crash(self) -> None:
        peer = self._victim()
        if peer is not None and self.world.config.leaf_set_size > 2:  # with l = 2 one death may part a ring for long
            self.world.crash(peer)

    def leave(self) -> None:
        peer = self._victim()
        if peer is not None:
            peer.overlay.leave()
            self.world.run(0.2)
            self.world.crash(peer)

    def restart(self) -> None:
        peer = self._victim()
        if peer is not None:
            remembered = [*peer.overlay.remembered(), self.first.contact]
            self.world.restart(peer, remembered, down_s=self.random.choice([0.0, 1.0, 20.0]))

    def pause(self) -> None:
        peer = self.random.choice(self.world.alive())
        peer.paused_until = self.world.now + self.random.choice([1.0, 20.0])

    def split(self) -> None:
        share = self.random.random()
        there = {peer.me for peer in self.world.alive() if self.random.random() < share}
        self.world.side = lambda node_id: node_id in there
        self.world.run(self.random.choice([1.0, 15.0, 60.0]))
        self.world.side = lambda node_id: 0

    def _victim(self) -> TestPeer | None:
        others = [peer for peer in self.world.alive() if peer is not self.first]
        return self.random.choice(others) if len(others) > 2 else None


def arrives(world: World, random: Random, count: int = 20) -> None:
    """Every message is delivered once, by the peer closest to its key."""
    for index in range(count):
        key = random.choice([random.randbytes(16), random.choice(world.alive()).me])
        world.route(random.choice(world.alive()), key, f"last {index}")
        world.run(3)  # a table may hold a dead peer, which shows when it is used
        assert world.receivers(f"last {index}") == [world.closest(key)]


def connected(world: World) -> None:
    """Following the next larger member from anywhere visits everybody."""
    ring, at, seen = world.alive(), world.alive()[0], 1
    while len(ring) > 1 and (at := world.peers[at.overlay.leaf_set.right[0].node_id]) is not ring[0]:
        seen += 1
        assert seen <= len(ring), "a loop without some peers"
    assert seen == len(ring)


@settings(max_examples=40)
@given(seeds, st.integers(5, 30))
def test_the_ring_is_right_after_any_turmoil(seed: int, steps: int) -> None:
    random = Random(seed)
    kinds = ("join", "join", "join", "crash", "leave", "restart", "pause", "split")
    world = Turmoil(random, kinds=kinds).run(steps)
    assert world.wrong() == []
    connected(world)
    arrives(world, random)


@settings(max_examples=15)
@given(seeds, st.integers(10, 40))
def test_the_ring_is_right_after_any_joins_and_departures(seed: int, steps: int) -> None:
    random = Random(seed)
    world = Turmoil(random, kinds=("join", "join", "leave", "crash")).run(steps)
    assert world.wrong() == []
    connected(world)
    arrives(world, random)


@pytest.mark.long
@settings(max_examples=15)
@given(seeds, st.integers(2, 6))
def test_partitions_merge(seed: int, splits: int) -> None:
    random = Random(seed)
    turmoil = Turmoil(random, kinds=("split", "join"))
    for _ in range(random.randint(3, 25)):
        turmoil.join()
        turmoil.world.run(0.5)
    world = turmoil.run(splits)
    assert world.wrong() == []
    connected(world)
    arrives(world, random)


@settings(max_examples=15)
@given(seeds)
def test_only_the_closest_peer_delivers_while_peers_join_and_leave_in_good_order(seed: int) -> None:
    """Nobody is falsely suspected here, so an active closer peer is never passed over."""
    random = Random(seed)
    world = World(random.randrange(1 << 30), OverlayConfig(digit_bits=2, leaf_set_size=8))
    first = world.join(contacts=[])
    for _ in range(12):
        world.join()
        world.run(1)
    sent = 0
    for _ in range(30):
        peers = [peer for peer in world.alive() if peer.overlay.active]
        if random.random() < 0.6 or len(peers) < 10:
            world.join(contacts=[first.contact, random.choice(peers).contact])
        else:
            leaver = random.choice([peer for peer in peers if peer is not first])
            leaver.overlay.leave()
            world.run(0.3)
            world.crash(leaver)
        for _ in range(3):
            active = [peer for peer in world.alive() if peer.overlay.active]
            world.route(random.choice(active), random.randbytes(16), str(sent))
            sent += 1
            world.run(random.choice([0.0, 0.02, 0.1, 1.0]))
    world.run(30)
    assert world.wrong() == []
    assert world.misplaced == []
    assert len({text for text in world.arrived if text.isdigit()}) == sent, "some were lost"


def test_every_repair_path_is_taken() -> None:
    """A fixed set of worlds takes every one of the paths."""
    taken: dict[str, int] = {}
    kinds = ("join", "join", "join", "crash", "leave", "restart", "pause", "split")
    for seed in range(12):
        random = Random(seed)
        turmoil = Turmoil(random, kinds=kinds)
        turmoil.world.checked = False
        world = turmoil.run(30)
        assert world.wrong() == [], seed
        arrives(world, random, 5)
        for name, count in world.marks.items():
            taken[name] = taken.get(name, 0) + count
    everybody_anew = World(1)
    peers = [everybody_anew.add() for _ in range(3)]
    for peer in peers:
        peer.overlay.join([other.contact for other in peers])
    everybody_anew.run(60)
    taken |= everybody_anew.marks
    assert [name for name in WAYS if not taken.get(name)] == []
