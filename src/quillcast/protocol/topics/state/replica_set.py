"""The peers that keep a topic's root state: the k closest to it (Scribe, section 3.2)."""

import math
from collections.abc import Container, Iterable
from typing import NamedTuple, Protocol

from quillcast.core.host import Host
from quillcast.core.ids import closer, ring_distance
from quillcast.core.messages import Contact
from quillcast.protocol.overlay.pastry import Pastry
from quillcast.protocol.topics.config import TopicConfig

NEAR_MAX = 6  # peers near a topic among which a former root is looked for; a guess: as many as keep its state, and one


class FailureDetector(Protocol):
    """Which neighbours the failure detector suspects."""

    def is_doubting(self) -> bool:
        """Is any neighbour suspected?"""
        ...

    def suspected(self, node: bytes) -> bool:
        """Is this one suspected?"""
        ...


class TopicDoubt(NamedTuple):
    """A topic that seems new may have been in use until then: most who would know were lost lately, namely these."""

    until: float = 0.0
    lost: tuple[bytes, ...] = ()


class ReplicaSet:
    """The replicas of each topic, and how many of them this peer reaches."""

    def __init__(self, host: Host, config: TopicConfig, overlay: Pastry, neighbours: FailureDetector) -> None:
        self.host, self.config, self.overlay, self.neighbours = host, config, overlay, neighbours
        self.began_at = host.now()

    @property
    def count(self) -> int:
        """How many (k): where the leaf set does not hold the whole ring, no more than all of these peers agree on."""
        return self._count_among(len(self.overlay.leaf_set))

    def _count_among(self, others: int) -> int:
        """How many, for a peer that knows so many others near it."""
        size = self.overlay.leaf_set.size
        return self.config.replicas if others < size else min(self.config.replicas, size // 2)

    @property
    def _lately(self) -> float:
        return self.host.now() - self.config.lease_s

    @property
    def majority(self) -> int:
        """So many of k are most of them."""
        return self.count // 2 + 1

    def of(self, topic: bytes) -> list[Contact]:
        """The peers that keep a topic's state, as far as this one knows: the k closest to it."""
        return self.overlay.closest(topic, self.count)

    def candidates(self, topic: bytes) -> list[Contact]:
        """All whom this peer knows near the topic, itself among them, the closest first."""
        return self.overlay.closest(topic, 1 + self.overlay.beside(topic))

    def is_near(self, topic: bytes, node: bytes) -> bool:
        """Can this one have been the topic's root: is it one of the closest, with those that were lost lately?"""
        others = [c.node_id for c, _ in self.overlay.closest_lately(topic, NEAR_MAX, self._lately)]
        if node in others or self.overlay.has_seats(topic):
            return node in others
        return len(others) < NEAR_MAX or ring_distance(node, topic) < ring_distance(others[-1], topic)

    def has_closer(self, topic: bytes, node: bytes) -> bool:
        """Does this peer know another one that is to be the topic's root rather than that node?"""
        closest = self.overlay.closest(topic, 1)
        if not closest or closest[0].node_id in (self.host.me, node):
            return False
        return self.overlay.has_seats(topic) or closer(closest[0].node_id, node, topic)

    def recorders(self, topic: bytes) -> list[Contact]:
        """The others that are to record something of a topic, without those that are suspected."""
        return self._reachable(self.of(topic))

    def informants(self, topic: bytes, joining: Container[bytes], *, in_doubt: bool) -> list[Contact]:
        """The others that are asked what they know of a topic: the k closest that may know, if there are so many.

        Where one is suspected or joining, the next one is asked as well. If the topic may have been in use, and most
        who would know are gone, this is `in_doubt`. Then all others that are near are asked: one of them may have been
        in the topic's tree.
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
        """Whether a topic that is new to all who were asked may have been in use: most who would know are gone.

        `answered`: by whom, if this peer asks. Those that it suspects were not asked, and may soon count as lost. Where
        another one asks, it does not matter whom this one suspects.
        Another peer that asks may have been restarted, and a process that began within a lease knows nothing of what
        was before. If a root alone keeps its state, the asker's process before this one would know, too. The state was
        kept by as many as there were to keep it before others were lost: a leaf set that has lost members may reach
        around the ring, and the full one did not. Where there are fewer than keep a state, each of them would know.
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
        """Another peer's doubt: did so many of those answer here whom it takes for lost that most would know?"""
        silent = sum(node not in answered for node in doubt.lost)
        return silent < min(self.count - self.count // 2, len(doubt.lost))

    def _would_know(self, contact: Contact, asker: bytes) -> bool:
        """Would this one know a topic whose state it is to keep, if it can be asked?"""
        if contact.node_id == self.host.me:
            return self.began_at <= self._lately
        return contact.node_id != asker and not self.overlay.is_joining(contact)

    def absent(self, topic: bytes) -> dict[bytes, None]:
        """The peers near a topic that seems new and that are suspected, or lost, however long ago."""
        everybody = 1 + self.overlay.beside(topic) + self.overlay.lost_lately(topic, -math.inf)
        closest = self.overlay.closest_lately(topic, everybody, -math.inf)
        suspected = self.neighbours.suspected
        return {each.node_id: None for each, lost_at in closest if lost_at is not None or suspected(each.node_id)}

    def has_suspected(self, topic: bytes, answered: Container[bytes]) -> bool:
        """Are any of those who keep a topic's state suspected, and have not answered?"""
        return any(self._may_be_lost(contact.node_id, answered) for contact in self.of(topic))

    def _may_be_lost(self, node: bytes, answered: Container[bytes] | None) -> bool:
        return answered is not None and node not in answered and self.neighbours.suspected(node)

    def partitioned(self, topic: bytes) -> bool:
        """Is this peer cut off from most of the topic's replicas? Lost ones count for as long as a lease.

        A peer that it only heard of, and that never answered, may have left long ago.
        """
        if not (self.neighbours.is_doubting() or self.overlay.may_have_lost(topic)):
            return False  # this runs for every receipt
        since = self._lately
        lately = self.overlay.closest_lately(topic, self.count, since, met=True)
        reached = [c for c, lost_at in lately if lost_at is None and not self.neighbours.suspected(c.node_id)]
        return 2 * len(reached) <= len(lately)

    def are_all(self, topic: bytes, answered: Container[bytes]) -> bool:
        """Are these all who would know of a later term, with those that were lost within a lease's time?"""
        since = self._lately
        lately = self.overlay.closest_lately(topic, self.count + 1, since)
        return all(contact.node_id == self.host.me or contact.node_id in answered for contact, _ in lately)
