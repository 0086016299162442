"""Two roots that do not reach each other, and peers that reach both (docs/delivery.md, *Roots that move*)."""

import pytest

from quillcast.protocol.config import Config
from quillcast.protocol.topics.config import TopicConfig
from quillcast.sim.network import one_way
from tests.protocol.topics.test_terms import NAME, by_distance
from tests.protocol.topics.village import Reader, Village

LEASE_S = 8.0


@pytest.mark.parametrize("publishes", [True, False])
def test_a_peer_that_two_roots_reach_tells_each_of_the_other(publishes: bool) -> None:
    village = Village(5, config=Config(topics=TopicConfig(replicas=2, lease_s=LEASE_S)))
    first, second, third, *others = by_distance(village)
    between, fourth = others
    readers = {peer: Reader() for peer in (first, third)}
    for peer, reader in readers.items():
        village.subscribe(peer, NAME, reader)
    publisher = village.publisher(between if publishes else first, NAME)
    if not publishes:
        village.subscribe(between, NAME, Reader())
    village.run(5)
    assert village.root(NAME) == first
    sides = [first, second], [third, fourth]
    cuts = [village.world.cut(one_way(*ways)) for ways in (sides, sides[::-1])]
    for _ in range(30):
        village.run(1)
        village.publish(between if publishes else first, publisher, b"event")
    for cut in cuts:
        village.world.heal(cut)
    village.run(20)
    assert publisher.stable == 30
    assert [(len(reader.payloads), reader.losses) for reader in readers.values()] == [(30, [])] * 2
