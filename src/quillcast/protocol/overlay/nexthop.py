"""The next hop of a message, from what a peer knows (Pastry; Scribe, section 2)."""

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Protocol

from quillcast.core.ids import number, ring_distance, shared_digits
from quillcast.core.messages import Contact, by_distance
from quillcast.protocol.overlay.tables import Tables


class Hops(Protocol):
    """Decides where a message goes from here."""

    def covers(self, key: bytes) -> bool:
        """Whether the peer closest to the key is known here."""
        ...

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return the peers closest to the key, among this peer and those that answer for keys beside it."""
        ...

    def to(self, key: bytes, but: Collection[bytes] = ()) -> Contact | None:
        """Return the next hop, except for the peers in `but`; None if the message has arrived."""
        ...

    def around(self, key: bytes, silent: Collection[bytes]) -> Contact | None:
        """Return a next hop that avoids the silent peers."""
        ...


class NextHop:
    """Chooses from the three tables, and avoids peers that the failure detector suspects."""

    __slots__ = ("_asked", "_closest", "digit_bits", "leaf_set", "me", "neighbourhood", "routing_table", "suspected")

    def __init__(self, me: Contact, digit_bits: int, tables: Tables, suspected: Callable[[bytes], bool]) -> None:
        self.me, self.digit_bits, self.suspected = me, digit_bits, suspected
        self.leaf_set, self.routing_table, self.neighbourhood = tables
        self._asked: tuple[bytes, int, int] | None = None
        self._closest: list[Contact] = []

    def covers(self, key: bytes) -> bool:
        """Whether the peer closest to the key is this one, or in its leaf set."""
        return self.leaf_set.covers(number(key))

    def closest(self, key: bytes, count: int) -> list[Contact]:
        """Return the `count` peers closest to the key among the leaf set and this peer, closest first."""
        asked = key, count, self.leaf_set.version
        if self._asked != asked:  # each report of a busy topic asks the same
            self._asked, self._closest = asked, by_distance([self.me, *self.leaf_set], key)[:count]
        return self._closest[:]

    def to(self, key: bytes, but: Collection[bytes] = ()) -> Contact | None:
        """Return the next hop, except for the peers in `but`; None if the message has arrived (Scribe, section 2).

        First the leaf set decides; then the table's peer with a longer prefix; then any known peer with as long a
        prefix that is closer.
        """
        value = number(key)
        if self.leaf_set.covers(value):
            return self.leaf_set.closest(value, but)
        entry = self.routing_table.lookup(value)
        if entry is None or entry.contact.node_id in but:
            return self._best(key, chain(self.leaf_set, self.routing_table), but)
        if self.suspected(entry.contact.node_id):
            return self.around(key, but) or entry.contact
        return entry.contact

    def around(self, key: bytes, silent: Collection[bytes]) -> Contact | None:
        """Return a next hop that avoids the silent peers, from all known peers."""
        return self._best(key, chain(self.leaf_set, self.routing_table, self.neighbourhood), silent)

    def _best(self, key: bytes, known: Iterable[Contact], but: Collection[bytes]) -> Contact | None:
        """Return the known peer closest to the key that shares a longer prefix, or an equal one and is closer."""
        value, me = number(key), self.me.node_id
        mine = self.routing_table.shared(value)
        best: tuple[int, int, bytes] = (-mine, ring_distance(me, key), me)
        contact = None
        for peer in known:
            node_id = peer.node_id
            rank = (-shared_digits(node_id, key, self.digit_bits), ring_distance(node_id, key), node_id)
            if rank < best and node_id not in but and not self.suspected(node_id):
                best, contact = rank, peer
        return contact
