"""The nearest peers by proximity, anywhere on the ring (Pastry; Scribe, section 2, figure 1)."""

from bisect import insort
from collections.abc import Iterator

from quillcast.core.messages import Contact

Near = tuple[float, bytes, Contact]
"""Proximity (round-trip time in seconds), nodeId and contact of a peer. The first two define the order of peers."""


class NeighbourhoodSet:
    """Not used for routing, but when peers join and when routing tables are refilled after a failure."""

    __slots__ = ("_known", "_nearest", "size")

    def __init__(self, size: int) -> None:
        """Keep the `size` nearest."""
        self.size = size
        self._nearest: list[Near] = []  # nearest first
        self._known: dict[bytes, Near] = {}

    def consider(self, contact: Contact, proximity: float) -> None:
        """Add a peer with a round-trip time of `proximity` seconds, if it is among the nearest."""
        known = self._known.get(contact.node_id)
        if known is not None:
            if known[0] == proximity:
                return
            contact = known[2]
            self.remove(contact.node_id)
        elif len(self._nearest) >= self.size and proximity >= self._nearest[-1][0]:
            return
        near = self._known[contact.node_id] = (proximity, contact.node_id, contact)
        insort(self._nearest, near)
        if len(self._nearest) > self.size:
            del self._known[self._nearest.pop()[1]]

    def readdress(self, contact: Contact) -> None:
        """A peer announced its new address."""
        known = self._known.get(contact.node_id)
        if known is not None:
            near = self._known[contact.node_id] = (known[0], contact.node_id, contact)
            self._nearest[self._nearest.index(known)] = near

    def remove(self, node_id: bytes) -> None:
        """Forget a peer."""
        known = self._known.pop(node_id, None)
        if known is not None:
            self._nearest.remove(known)

    def by_proximity(self) -> list[tuple[float, Contact]]:
        """Every peer with its proximity, nearest first."""
        return [(proximity, contact) for proximity, _, contact in self._nearest]

    def __iter__(self) -> Iterator[Contact]:
        """Nearest first."""
        return (contact for _, _, contact in self._nearest)

    def __contains__(self, node_id: bytes) -> bool:
        return node_id in self._known

    def __len__(self) -> int:
        return len(self._nearest)

    def check(self) -> None:
        """Raise AssertionError unless the peers are in order and at most `size`."""
        assert self._nearest == sorted(self._known.values())
        assert all(node_id == contact.node_id for _, node_id, contact in self._nearest)
        assert len(self._nearest) <= self.size, len(self._nearest)
