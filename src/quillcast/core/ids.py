"""128-bit ids on the ring, and their digits (Pastry, section 2).

Ids are 16 ``bytes`` everywhere: MessagePack integers have at most 64 bits, and bytes of equal length compare like the
numbers that they encode. Arithmetic on the ring uses `int.from_bytes`.
"""

import hashlib
import re
from functools import lru_cache
from typing import NewType

ID_BYTES = 16
ID_BITS = 8 * ID_BYTES
RING = 1 << ID_BITS

NodeId = NewType("NodeId", bytes)
TopicId = NewType("TopicId", bytes)
PublisherId = NewType("PublisherId", bytes)

NETWORK_CREATOR = ""
"""The creator of a topic with a plain name: the network's own namespace (docs/delivery.md, *Ids*)."""


_NODE = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}")  # a nodeId in hexadecimal


def node_id(public_key: bytes) -> NodeId:
    """The leading 128 bits of the SHA-256 of the peer's public key (docs/design.md, section 3)."""
    return NodeId(hashlib.sha256(public_key).digest()[:ID_BYTES])


@lru_cache(maxsize=1024)  # called for each bundle
def topic_id(name: str, creator: str = NETWORK_CREATOR) -> TopicId:
    """The hash of the topic's name and its creator's name (Scribe, section 3.1, topic management).

    If the creator is a nodeId, half of that and half of the hash: its peer is then the topic's root while it lives.
    """
    hashed = hashlib.sha256(f"topic\0{creator}\0{name}".encode()).digest()[:ID_BYTES]
    if not _NODE.fullmatch(creator):
        return TopicId(hashed)
    return TopicId(bytes.fromhex(creator)[: ID_BYTES // 2] + hashed[: ID_BYTES // 2])


def topic_called(name: str) -> TopicId:
    """The id of the topic that applications call this: a plain name, or `CREATOR:name`."""
    creator, _, bare = name.rpartition(":")
    return topic_id(bare, creator)


def publisher_id(node: NodeId, incarnation: bytes, number: int = 0) -> PublisherId:
    """The hash of nodeId and incarnation: new at each start, so that no sequence is reused.

    `number` distinguishes the publishers of one peer.
    """
    return PublisherId(
        hashlib.sha256(b"publisher\0" + node + incarnation + number.to_bytes(8, "big")).digest()[:ID_BYTES]
    )


def number(id_: bytes) -> int:
    """The id as a number on the ring, 0 <= number < 2**128."""
    return int.from_bytes(id_, "big")


def digit(id_: bytes, index: int, bits: int) -> int:
    """The digit at `index` in base 2**`bits`, with the most significant digit first."""
    shift = ID_BITS - bits * (index + 1)
    value = number(id_)
    return (value >> shift if shift >= 0 else value << -shift) & ((1 << bits) - 1)


def shared_digits(a: bytes, b: bytes, bits: int) -> int:
    """The number of leading digits of base 2**`bits` that the two ids share."""
    return (ID_BITS - (number(a) ^ number(b)).bit_length()) // bits


def ring_distance(a: bytes, b: bytes) -> int:
    """The distance on the ring, in the shorter direction."""
    clockwise = (number(a) - number(b)) % RING
    return min(clockwise, RING - clockwise)


def clockwise(start: bytes, end: bytes) -> int:
    """The distance from `start` to `end` in ascending direction on the ring."""
    return (number(end) - number(start)) % RING


def closer(a: bytes, b: bytes, key: bytes) -> bool:
    """Whether `a` is numerically closer to `key` than `b`. The smaller id wins a tie, so that all peers agree."""
    return (ring_distance(a, key), a) < (ring_distance(b, key), b)


def short(id_: bytes) -> str:
    """The first 8 hexadecimal digits, for people."""
    return id_[:4].hex()
