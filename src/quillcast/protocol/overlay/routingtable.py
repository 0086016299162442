"""Peers by the length of the prefix they share with this one and by the next digit (Pastry; Scribe, section 2)."""

from collections.abc import Iterator

from quillcast.core.ids import ID_BITS, number
from quillcast.core.messages import Contact

UNKNOWN = float("inf")
"""The proximity of a peer that was not measured. Any other peer for its cell is preferred."""


class Entry:
    """A peer in the routing table, and its proximity (round-trip time in seconds)."""

    __slots__ = ("contact", "proximity")

    def __init__(self, contact: Contact, proximity: float) -> None:
        self.contact, self.proximity = contact, proximity


class RoutingTable:
    """Row n holds peers that share n digits with this one, with a cell per next digit for the nearest known peer."""

    __slots__ = ("_bits", "_entries", "_mask", "_number", "_rows")

    def __init__(self, me: bytes, digit_bits: int) -> None:
        """Digits have base 2**`digit_bits`, which must divide 128."""
        self._bits = digit_bits
        self._mask = (1 << digit_bits) - 1
        self._number = number(me)
        self._rows: list[list[Entry | None]] = []  # only populated rows
        self._entries: dict[bytes, Entry] = {}

    def place(self, key: int) -> tuple[int, int]:
        """Return the row and cell of a number other than this peer's own."""
        row = self.shared(key)
        return row, (key >> (ID_BITS - self._bits * (row + 1))) & self._mask

    def shared(self, key: int) -> int:
        """Return the number of leading digits that this number shares with this peer's id."""
        return (ID_BITS - (key ^ self._number).bit_length()) // self._bits

    def lookup(self, key: int) -> Entry | None:
        """Return the peer that shares at least one more digit with this number than this peer does."""
        if key == self._number:
            return None
        row, cell = self.place(key)
        return self._rows[row][cell] if row < len(self._rows) else None

    def consider(self, contact: Contact, proximity: float) -> bool:
        """Add a peer if its cell is empty or holds a farther one. True if it is new in the table."""
        known = self._entries.get(contact.node_id)
        if known is not None:
            known.proximity = proximity if proximity < UNKNOWN else known.proximity
            return False
        value = number(contact.node_id)
        if value == self._number:
            return False
        row, cell = self.place(value)
        while len(self._rows) <= row:
            self._rows.append([None] * (self._mask + 1))
        there = self._rows[row][cell]
        if there is not None:
            if there.proximity <= proximity:
                return False
            del self._entries[there.contact.node_id]
        self._rows[row][cell] = self._entries[contact.node_id] = Entry(contact, proximity)
        return True

    def readdress(self, contact: Contact) -> None:
        """A peer announced its new address."""
        entry = self._entries.get(contact.node_id)
        if entry is not None:
            entry.contact = contact

    def remove(self, node_id: bytes) -> int | None:
        """Remove a peer. Returns its row, or None if it was not in the table."""
        entry = self._entries.pop(node_id, None)
        if entry is None:
            return None
        row, cell = self.place(number(node_id))
        self._rows[row][cell] = None
        while self._rows and not any(self._rows[-1]):
            self._rows.pop()
        return row

    def reported_proximity(self, node_id: bytes) -> float | None:
        """Return the proximity of a peer in the table, measured here or reported; None if unknown."""
        entry = self._entries.get(node_id)
        return None if entry is None or entry.proximity == UNKNOWN else entry.proximity

    def row(self, index: int) -> list[Contact]:
        """Return the peers of one row."""
        if not 0 <= index < len(self._rows):
            return []
        return [entry.contact for entry in self._rows[index] if entry is not None]

    def nearest(self, index: int) -> Contact | None:
        """Return the nearest peer of one row."""
        row = self._rows[index] if index < len(self._rows) else ()
        entries = [entry for entry in row if entry is not None]
        return min(entries, key=lambda entry: entry.proximity).contact if entries else None

    @property
    def depth(self) -> int:
        """Return the number of rows in use."""
        return len(self._rows)

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, in order of insertion."""
        return iter(self._entries.values())

    def __contains__(self, node_id: bytes) -> bool:
        return node_id in self._entries

    def __iter__(self) -> Iterator[Contact]:
        return (entry.contact for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def check(self) -> None:
        """Raise AssertionError unless every peer is in its own cell, once."""
        assert sum(len(row) - row.count(None) for row in self._rows) == len(self._entries), len(self._entries)
        for node_id, entry in self._entries.items():
            row, cell = self.place(number(node_id))
            assert entry.contact.node_id == node_id, entry.contact
            assert self._rows[row][cell] is entry, f"{node_id.hex()} is not in row {row}, cell {cell}"
