"""The peers next to this one on the ring (Pastry; Scribe, section 2)."""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from hashlib import blake2b

from quillcast.core.ids import RING, number
from quillcast.core.messages import Contact


class LeafSet:
    """The l/2 closest larger and the l/2 closest smaller nodeIds.

    A single list, clockwise from this peer, holds both sides: the first l/2 members are the larger ids, the last l/2
    the smaller ones. A member that is displaced into the middle of a full list belongs to neither side. With fewer than
    l other peers on the ring, the sides overlap; in a ring of two, the other peer is on both sides.
    """

    __slots__ = ("_contacts", "_half", "_me", "_number", "_steps", "members", "size", "version")

    def __init__(self, me: bytes, size: int) -> None:
        """`size` is l, an even number of members."""
        self.size = size
        self._half = size // 2
        self._me, self._number = me, number(me)
        self._steps: list[int] = []  # clockwise distances from me, ascending
        self._contacts: list[Contact] = []  # in the same order
        self.members: dict[bytes, Contact] = {}
        """The members by nodeId."""
        self.version = 0
        """How often they, or their addresses, have changed."""

    def add(self, contact: Contact) -> Contact | None:
        """Add a peer, or update its address.

        Returns the peer that is displaced: none (None), a member, or the peer itself if it is not close enough.
        """
        if contact.node_id == self._me:
            return contact
        steps = self._clockwise(contact.node_id)
        at = bisect_left(self._steps, steps)
        if contact.node_id in self.members:
            self._contacts[at] = self.members[contact.node_id] = contact
            self.version += 1
            return None
        if not self._fits(at):
            return contact
        self.version += 1
        self._steps.insert(at, steps)
        self._contacts.insert(at, contact)
        self.members[contact.node_id] = contact
        if len(self._steps) <= self.size:
            return None
        del self._steps[self._half]
        gone = self._contacts.pop(self._half)
        del self.members[gone.node_id]
        return gone

    def remove(self, node_id: bytes) -> Contact | None:
        """Remove a member. Returns None if it was not a member."""
        contact = self.members.pop(node_id, None)
        if contact is not None:
            self.version += 1
            at = bisect_left(self._steps, self._clockwise(node_id))
            del self._steps[at], self._contacts[at]
        return contact

    def fits(self, node_id: bytes) -> bool:
        """Would this peer, which is not a member, become one?"""
        if node_id == self._me or node_id in self.members:
            return False
        steps = (number(node_id) - self._number) % RING  # `_clockwise` and `_fits`, inlined: this runs most of all
        return len(self._steps) < self.size or bisect_left(self._steps, steps) != self._half

    def copy(self) -> "LeafSet":
        """A new set with the same members."""
        twin = LeafSet(self._me, self.size)
        twin._steps, twin._contacts, twin.members = self._steps[:], self._contacts[:], self.members.copy()
        return twin

    @property
    def right(self) -> list[Contact]:
        """The closest larger nodeIds, nearest first."""
        return self._contacts[: self._half]

    @property
    def left(self) -> list[Contact]:
        """The closest smaller nodeIds, nearest first."""
        return self._contacts[: -self._half - 1 : -1]

    def covers(self, key: int) -> bool:
        """Is this number between the farthest members of both sides, so that the closest peer to it is known here?"""
        if len(self._steps) < self.size:
            return True  # as far as known, the ring is not larger
        steps = (key - self._number) % RING
        return steps <= self._steps[self._half - 1] or steps >= self._steps[self._half]

    def closest(self, key: int, but: Collection[bytes] = ()) -> Contact | None:
        """The member numerically closest to this number, without those in `but`. None if this peer is closest."""
        steps = (key - self._number) % RING
        at = bisect_left(self._steps, steps)
        below = (steps - (self._steps[at - 1] if at else 0), at - 1)
        above = ((self._steps[at] if at < len(self._steps) else RING) - steps, at)
        _, nearest = min(below, above, key=lambda side: (side[0], self._id(side[1])))  # as `ids.closer` decides
        closest = self._contacts[nearest] if 0 <= nearest < len(self._contacts) else None
        if closest is None or closest.node_id not in but:
            return closest
        others = self.copy()
        for node_id in but:
            others.remove(node_id)
        return others.closest(key)

    def digest(self, without: Contact | None) -> bytes:
        """Eight bytes that identify this peer and its members (without one of them if the set is full)."""
        ids = [self._me, *self.members]
        if without is not None and len(self._steps) == self.size:
            ids.remove(without.node_id)
        return blake2b(b"".join(sorted(ids)), digest_size=8).digest()

    def _fits(self, at: int) -> bool:
        return len(self._steps) < self.size or at != self._half

    def _clockwise(self, node_id: bytes) -> int:
        return (number(node_id) - self._number) % RING

    def _id(self, at: int) -> bytes:
        return self._contacts[at].node_id if 0 <= at < len(self._contacts) else self._me

    def __contains__(self, node_id: bytes) -> bool:
        return node_id in self.members

    def __iter__(self) -> Iterator[Contact]:
        """The members clockwise from this peer."""
        return iter(self._contacts)

    def __len__(self) -> int:
        return len(self._contacts)

    def check(self) -> None:
        """Raise AssertionError unless members are in order, without repeats, and at most l."""
        assert self._steps == sorted(set(self._steps)), self._steps
        steps = [(number(contact.node_id) - self._number) % RING for contact in self._contacts]
        assert self._steps == steps, self._contacts
        assert {contact.node_id: contact for contact in self._contacts} == self.members, self.members
        assert len(self._contacts) <= self.size, len(self._contacts)
        assert self._me not in self.members, "a peer must not be a member of its own leaf set"
