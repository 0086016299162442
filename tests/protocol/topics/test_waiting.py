"""Peers that ask each other for a place in a tree, because none of them reaches the root."""

import heapq
from collections import Counter
from itertools import count
from random import Random

import pytest

from quillcast.core.messages import Contact
from quillcast.protocol.topics.membership.membership import JoinTimeout
from tests.protocol.recording import Notes
from tests.protocol.topics.parts import DESCRIPTOR, Parts

ROOT = Contact(bytes(16), "127.0.0.1:99")  # answers nobody
SUBSCRIBED_S = 20.0


class Peers:
    """Peers beside a root that answers nobody. Messages between them take no time.

    `passing`: by peer, the one that Joins pass on their way to the root.
    """

    def __init__(self, number: int, seed: int = 0, passing: dict[int, int] | None = None, *, beside: bool) -> None:
        self.contacts = [Contact(bytes([at]) * 16, f"127.0.0.1:{at}") for at in range(1, number + 1)]
        ring = (ROOT, *self.contacts) if beside else (ROOT,)
        self.peers = {each: Parts(*ring, me=each) for each in self.contacts}
        self.passing = {self.contacts[by]: self.contacts[via] for by, via in (passing or {}).items()}
        self.sent: Counter[str] = Counter()
        self.now, self.timers, self.serial = 0.0, list[tuple[float, int, Contact, JoinTimeout]](), count()
        for contact, peer in self.peers.items():
            peer.host.random = Random(f"{contact.address} {seed}")
            peer.orders.order = peer.orders.carry_out  # type: ignore[method-assign]
            peer.ring.is_closest = lambda key: False  # type: ignore[method-assign]

    def run(self, until: float) -> None:
        self.deliver()
        while self.timers and self.timers[0][0] <= until:
            self.now, _, contact, timer = heapq.heappop(self.timers)
            for peer in self.peers.values():
                peer.host.time = self.now
            self.peers[contact].dispatch.timer(timer)
            self.deliver()

    def deliver(self) -> None:
        while any(self._deliver_from(contact, peer) for contact, peer in self.peers.items()):
            pass

    def _deliver_from(self, sender: Contact, peer: Parts) -> bool:
        for timer, delay in peer.host.timers:
            if isinstance(timer, JoinTimeout):
                heapq.heappush(self.timers, (self.now + delay, next(self.serial), sender, timer))
        sent, routed = list(peer.host.sent), list(peer.ring.routed)
        for notes in (peer.host.timers, peer.host.sent, peer.ring.routed):
            notes.clear()
        for to, message in sent:
            self.sent[type(message).__name__] += 1
            if to in self.peers:
                self.peers[to].dispatch.message(sender, message)
        for join, _ in routed:
            if sender in self.passing:
                self.peers[self.passing[sender]].interception.take(join)
        return bool(sent or routed)

    def subscribe_for_a_while(self) -> None:
        first = self.peers[self.contacts[0]]
        subscription = first.subscribing.subscribe("weather", Notes())
        self.run(SUBSCRIBED_S)
        assert len(self.have_topic) > 1, "others have the topic for the first one"
        first.subscribing.unsubscribe(subscription)
        self.run(2 * SUBSCRIBED_S)

    @property
    def have_topic(self) -> list[Contact]:
        return [contact for contact, peer in self.peers.items() if DESCRIPTOR.topic in peer.trees]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("number", [2, 3, 5])
def test_peers_that_cannot_reach_the_root_forget_a_topic_that_nobody_needs(number: int, seed: int) -> None:
    peers = Peers(number, seed, beside=True)
    peers.subscribe_for_a_while()
    assert (peers.have_topic, peers.timers) == ([], [])
    assert peers.sent["JoinWithdrawn"] <= peers.sent["Rejoin"], "each of them is told once"


def test_a_peer_forgets_one_that_waited_by_a_routed_join_and_has_gone() -> None:
    peers = Peers(2, passing={0: 1}, beside=False)
    peers.subscribe_for_a_while()
    assert (peers.have_topic, peers.timers) == ([], [])
