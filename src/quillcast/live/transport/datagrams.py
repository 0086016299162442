"""Bundles as datagrams: split, encrypted, and reassembled.

Each datagram is encrypted with ChaCha20-Poly1305 under a key of its sender, which is derived from the key that a
scope's manager gives to the members of a group. So it proves that a member sent it, but not which one: as on links,
members trust each other to forward correctly. A sender numbers its datagrams, and no number is used twice as a nonce.

====== ====== ================================================
offset size   what
====== ====== ================================================
0      4      the format, and the group's key in use
4      16     nodeId of the sender
20     8      its incarnation
28     8      number of the datagram
36     2      fragment of the bundle, from 0
38     2      how many fragments the bundle has
40     ...    encrypted: a fragment
...    16     proof (Poly1305) over this and the head
====== ====== ================================================
"""

import hashlib
import struct
from collections.abc import Iterator
from itertools import count

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.core.multicast import FRAGMENTS_MAX, OVERHEAD_BYTES, UdpGroup

_HEAD = struct.Struct("!4s16s8sQHH")
_NONCE = struct.Struct("!4xQ")
_PROOF_BYTES = 16
assert _HEAD.size + _PROOF_BYTES <= OVERHEAD_BYTES
SENDERS_MAX = 256  # with cached keys; a guess
UNFINISHED_MAX = 64  # bundles of which some fragments are missing, over all senders; a guess


class Unproven(Malformed):
    """A datagram that no member sent, or that was changed in transit."""


def _mark(key: bytes) -> bytes:
    """The mark of datagrams with this format and key."""
    return hashlib.blake2b(b"quillcast datagram 1", key=key, digest_size=4).digest()


def _cipher(key: bytes, sender: bytes, incarnation: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(hashlib.blake2b(sender + incarnation, key=key, digest_size=32).digest())


class Cutter:
    """Splits bundles into datagrams."""

    def __init__(self, group: UdpGroup, key: bytes, sender: bytes, incarnation: bytes, numbers: "count[int]") -> None:
        """`numbers` counts the sender's datagrams under all keys, in this incarnation."""
        self._group, self._numbers = group, numbers
        self._who, self._cipher = (_mark(key), sender, incarnation), _cipher(key, sender, incarnation)

    def cut(self, bundle: Bundle) -> Iterator[bytes]:
        """The datagrams of a bundle; none if it is too large."""
        data, size = bundle.encode(), self._group.fragment_bytes
        fragments = -(-len(data) // size)
        for at in range(fragments) if fragments <= FRAGMENTS_MAX else ():
            number = next(self._numbers)
            head = _HEAD.pack(*self._who, number, at, fragments)
            yield head + self._cipher.encrypt(_NONCE.pack(number), data[at * size : (at + 1) * size], head)


class Joiner:
    """Reassembles bundles from datagrams in any order. Incomplete ones are bounded: the oldest is dropped first."""

    def __init__(self, key: bytes, me: bytes) -> None:
        self._key, self._mark, self._me = key, _mark(key), me
        self._ciphers: dict[tuple[bytes, bytes], ChaCha20Poly1305] = {}
        self._unfinished: dict[tuple[bytes, bytes, int, int], dict[int, bytes]] = {}

    def take(self, datagram: bytes) -> Bundle | None:
        """Return the bundle that a datagram completes. This peer's own, and those of other keys, are ignored.

        Raises `Unproven`, or `Malformed` if a member sent something else.
        """
        if len(datagram) < _HEAD.size + _PROOF_BYTES:
            raise Malformed(f"a datagram of {len(datagram)} bytes is shorter than its head and proof")
        mark, sender, incarnation, number, at, fragments = _HEAD.unpack_from(datagram)
        if mark != self._mark or sender == self._me:
            return None
        head, encrypted = datagram[: _HEAD.size], datagram[_HEAD.size :]
        cipher = self._ciphers.get((sender, incarnation)) or _cipher(self._key, sender, incarnation)
        try:
            fragment = cipher.decrypt(_NONCE.pack(number), encrypted, head)
        except InvalidTag:
            raise Unproven(f"a datagram that claims to be of peer {sender.hex()[:8]} has no valid proof") from None
        self._keep(sender, incarnation, cipher)
        if not (at < fragments <= FRAGMENTS_MAX and at <= number):
            raise Malformed(f"datagram {number} is fragment {at} of {fragments}")
        if fragments == 1:
            return Bundle.decode(fragment)
        return self._joined((sender, incarnation, number - at, fragments), at, fragment)

    def _joined(self, which: tuple[bytes, bytes, int, int], at: int, fragment: bytes) -> Bundle | None:
        parts = self._unfinished.setdefault(which, {})
        parts[at] = fragment
        if len(parts) == which[-1]:
            del self._unfinished[which]
            return Bundle.decode(b"".join([parts[at] for at in range(which[-1])]))
        if len(self._unfinished) > UNFINISHED_MAX:
            del self._unfinished[next(iter(self._unfinished))]
        return None

    def _keep(self, sender: bytes, incarnation: bytes, cipher: ChaCha20Poly1305) -> None:
        self._ciphers[sender, incarnation] = cipher
        if len(self._ciphers) > SENDERS_MAX:
            del self._ciphers[next(iter(self._ciphers))]
