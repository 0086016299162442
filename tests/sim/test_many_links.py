"""A peer with 200 links does what one with 20 does, at the same cost: only what is done per link grows with them.

Work is counted in calls of functions and in messages, not in time: the machine that runs this may be busy.
"""

from collections.abc import Callable
from typing import Any

from quillcast.protocol.peer import Peer
from tests.calls import counted
from tests.protocol.topics.village import Reader, Village

HUB, PARTNER = 0, 1
FEW, MANY = 20, 200


class Fair(Village):
    """A hub, which is the root of a topic for each of its visitors, so that it has a link to each, and a partner."""

    def __init__(self, visitors: int) -> None:
        super().__init__(2)
        for number in range(PARTNER + 1, PARTNER + 1 + visitors):
            self.world.start(self.world.add())
            if number % 20 == 0:
                self.run(0.5)
        self.run(3)
        hub = self.world.machines[HUB].node_id.hex()
        for number in range(PARTNER + 1, PARTNER + 1 + visitors):
            self.subscribe(number, f"{hub}:{number}", Reader())
        self.run(3)
        assert self.links >= visitors

    @property
    def links(self) -> int:
        """How many peers the hub exchanges heartbeats with."""
        return sum(map(self.peers[HUB].neighbours.watches, [machine.node_id for machine in self.world.machines]))

    def use(self, topic: str) -> list[int]:
        """Subscribe and publish at the hub and its partner; returns the calls that each step of the hub took."""
        readers = [Reader(), Reader()]
        took = [self.calls(lambda peer: peer.subscribe(topic, readers[HUB]))]
        self.subscribe(PARTNER, topic, readers[PARTNER])
        self.run(1)
        publisher = self.publisher(HUB, topic)
        self.run(1)
        for event in (b"first", b"second"):
            took.append(self.calls(lambda _, event=event: publisher.offer([event])))
            self.run(1)
        assert [reader.payloads for reader in readers] == [[b"first", b"second"]] * 2
        assert publisher.stable == 2
        return took

    def calls(self, step: Callable[[Peer], Any]) -> int:
        """The calls of functions that a step takes at the hub."""
        with counted() as calls:
            self.act(HUB, step)
        return calls.count


def test_a_peer_with_200_links_subscribes_publishes_and_starts_again_like_one_with_20() -> None:
    few, many = Fair(FEW), Fair(MANY)
    assert all(more <= 1.1 * less for less, more in zip(few.use("t"), many.use("t"), strict=True))
    with counted() as keeping_few:
        few.run(3)
    with counted() as keeping_many:
        many.run(3)
    assert keeping_many.count <= 1.1 * MANY / FEW * keeping_few.count, "a link costs the same, whatever their number"
    for fair in (few, many):
        fair.kill(HUB)
        fair.world.start(fair.world.machines[HUB])
        fair.run(5)
        assert fair.peers[HUB].active
    assert all(more <= 1.1 * less for less, more in zip(few.use("u"), many.use("u"), strict=True))
