"""Ids at chosen places of the ring."""

from quillcast.core.ids import ID_BYTES, RING


def from_number(value: int) -> bytes:
    """The id of a number, modulo the size of the ring."""
    return (value % RING).to_bytes(ID_BYTES, "big")
