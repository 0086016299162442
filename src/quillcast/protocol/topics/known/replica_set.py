"""The replicas of a topic: the k peers closest to it, which keep its root state (Scribe, section 3.2)."""

import math
from collections.abc import Container, Iterable
from typing import NamedTuple, Protocol

from quillcast.core.host import Host
from quillcast.core.ids import closer, ring_distance
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig

NEAR_MAX = 6  # peers near a topic that may be a former root; a guess: one more than the replicas


class FailureDetector(Protocol):
    """Which neighbours the failure detector suspects."""

    def is_doubting(self) -> bool:
        """Whether any neighbour is suspected."""
        ...

    def suspected(self, node: bytes) -> bool:
        """Whether this neighbour is suspected."""
        ...


class TopicDoubt(NamedTuple):
    """A topic that seems new may have been used: most peers that would know (`lost`) were lost lately. Ends `until`."""

    until: float = 0.0
    lost: tuple[bytes, ...] = ()


class ReplicaSet:
    """The replicas of each topic, and how many of them this peer reaches."""

    def __init__(self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: FailureDetector) -> None:
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.began_at = host.now()

    @property
    def count(self) -> int:
        """The number of replicas (k). If the leaf set does not hold the whole ring, at most as many as all agree on."""
        return self._count_among(len(self.overlay.leaf_set))

    def _count_among(self, others: int) -> int:
        """Return k for a peer that knows so many others near it."""
        size = self.overlay.leaf_set.size
        return self.config.replicas if others < size else min(self.config.replicas, size // 2)

    @property
    def _lately(self) -> float:
        return self.host.now() - self.config.lease_s

    @property
    def majority(self) -> int:
        """The number of replicas that are a majority."""
        return self.count // 2 + 1

    def of(self, topic: bytes) -> list[Contact]:
        """Return the peers that keep a topic's state, as far as this one knows: the k closest to it."""
        return self.overlay.closest(topic, self.count)

    def candidates(self, topic: bytes) -> list[Contact]:
        """Return all peers that this one knows near the topic, including itself, the closest first."""
        return self.overlay.closest(topic, 1 + self.overlay.beside(topic))

    def is_near(self, topic: bytes, node: bytes) -> bool:
        """Whether this node may have been the topic's root: it is among the closest, including lately lost peers."""
        others = [c.node_id for c, _ in self.overlay.closest_lately(topic, NEAR_MAX, self._lately)]
        if node in others or self.overlay.has_seats(topic):
            return node in others
        return len(others) < NEAR_MAX or ring_distance(node, topic) < ring_distance(others[-1], topic)

    def has_closer(self, topic: bytes, node: bytes) -> bool:
        """Whether this peer knows another one that should be the topic's root instead of that node."""
        closest = self.overlay.closest(topic, 1)
        if not closest or closest[0].node_id in (self.host.me, node):
            return False
        return self.overlay.has_seats(topic) or closer(closest[0].node_id, node, topic)

    def recorders(self, topic: bytes) -> list[Contact]:
        """Return the other replicas, without suspected ones, which are to record something about a topic."""
        return self._reachable(self.of(topic))

    def informants(self, topic: bytes, joining: Container[bytes], *, in_doubt: bool) -> list[Contact]:
        """Return the other peers to ask about a topic: the k closest that may know it, if there are so many.

        For each that is suspected or joining, the next one is asked too. `in_doubt`: the topic may have been used, and
        most peers that would know are gone. Then all others nearby are asked, as one may have been in the topic's tree.
        """
        near = self._reachable(self.candidates(topic))
        there = [number for number, contact in enumerate(near, 1) if contact.node_id not in joining]
        if in_doubt or len(there) <= self.count:
            return near
        return near[: there[self.count - 1]]

    def _reachable(self, closest: Iterable[Contact]) -> list[Contact]:
        others = (contact for contact in closest if contact.node_id != self.host.me)
        return [contact for contact in others if not self.neighbours.suspected(contact.node_id)]

    def doubt(self, topic: bytes, asker: bytes, answered: Container[bytes] | None = None) -> TopicDoubt:
        """Return the doubt whether a topic was used that is new to all peers asked: most that would know may be gone.

        `answered`: the peers that answered, if this peer asks. Those that it suspects were not asked, and may soon
        count as lost. If another peer asks, this one's suspicions do not matter.

        A peer that asks may have been restarted, and a process that began within the last lease does not know what was
        before. If a root alone keeps its state, the asker's former process would know, too. k is the number from before
        others were lost: a leaf set that has lost members may reach around the ring although the full one did not. If
        there are fewer peers than k, each of them would know.
        """
        since = self._lately
        beside = self.overlay.beside(topic)
        count = self._count_among(beside + self.overlay.lost_lately(topic, since))
        before = self.began_at + self.config.lease_s if count == 1 and asker == self.host.me else 0.0
        closest = self.overlay.closest_lately(topic, 1 + beside + count, since)
        there = [(c, at) for c, at in closest if self._would_know(c, asker)]
        lately, now = there[:count], self.host.now()
        gone = [now if at is None and self._may_be_lost(c.node_id, answered) else at for c, at in lately]
        lost = [at for at in gone if at is not None]
        if not lost or len(lost) < min(count - count // 2, len(lately)):
            return TopicDoubt(before)
        names = [c.node_id for (c, _), at in zip(lately, gone, strict=True) if at is not None]
        return TopicDoubt(max(before, max(lost) + self.config.lease_s), tuple(names))

    def is_dispelled(self, doubt: TopicDoubt, answered: Container[bytes]) -> bool:
        """Whether another peer's doubt is unfounded: enough of the peers that it takes for lost answered here."""
        silent = sum(node not in answered for node in doubt.lost)
        return silent < min(self.count - self.count // 2, len(doubt.lost))

    def _would_know(self, contact: Contact, asker: bytes) -> bool:
        """Whether this peer can be asked, and would know a topic whose state it is to keep."""
        if contact.node_id == self.host.me:
            return self.began_at <= self._lately
        return contact.node_id != asker and not self.overlay.is_joining(contact)

    def absent(self, topic: bytes) -> dict[bytes, None]:
        """Return the peers near a topic that are suspected or were ever lost."""
        everybody = 1 + self.overlay.beside(topic) + self.overlay.lost_lately(topic, -math.inf)
        closest = self.overlay.closest_lately(topic, everybody, -math.inf)
        suspected = self.neighbours.suspected
        return {each.node_id: None for each, lost_at in closest if lost_at is not None or suspected(each.node_id)}

    def has_suspected(self, topic: bytes, answered: Container[bytes]) -> bool:
        """Whether any replica is suspected and has not answered."""
        return any(self._may_be_lost(contact.node_id, answered) for contact in self.of(topic))

    def _may_be_lost(self, node: bytes, answered: Container[bytes] | None) -> bool:
        return answered is not None and node not in answered and self.neighbours.suspected(node)

    def partitioned(self, topic: bytes) -> bool:
        """Whether this peer is cut off from most of the topic's replicas. Lost ones count for one lease.

        Peers that it only heard of do not count: if they never answered, they may have left long ago.
        """
        if not (self.neighbours.is_doubting() or self.overlay.may_have_lost(topic)):
            return False  # this runs for every receipt
        since = self._lately
        lately = self.overlay.closest_lately(topic, self.count, since, met=True)
        reached = [c for c, lost_at in lately if lost_at is None and not self.neighbours.suspected(c.node_id)]
        return 2 * len(reached) <= len(lately)

    def are_all(self, topic: bytes, answered: Container[bytes]) -> bool:
        """Whether these are all peers that would know of a later term, including those lost within a lease."""
        since = self._lately
        lately = self.overlay.closest_lately(topic, self.count + 1, since)
        return all(contact.node_id == self.host.me or contact.node_id in answered for contact, _ in lately)
