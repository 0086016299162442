"""Bundles as datagrams: cut to size, encrypted, and put together again.

Each datagram is encrypted with ChaCha20-Poly1305 under a key of its sender, derived from the key that a scope's manager
gives to the members of a group. So it proves that a member sent it, and not which one: members trust each other to pass
on what they get, over links too. A sender counts its datagrams, and no number serves twice as a nonce.

====== ====== ================================================
offset size   what
====== ====== ================================================
0      4      the format, and which key of the group it is under
4      16     nodeId of the sender
20     8      its incarnation
28     8      number of the datagram
36     2      fragment of the bundle, from 0
38     2      how many fragments the bundle has
40     ...    encrypted: a fragment
...    16     proof (Poly1305) over all of it, and the head
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
SENDERS_MAX = 256  # whose keys are kept; a guess
UNFINISHED_MAX = 64  # bundles of which some fragments are missing, over all senders; a guess


class Unproven(Malformed):
    """A datagram that no member sent, or that was changed on the way."""


def _mark(key: bytes) -> bytes:
    """What tells datagrams of one format and key from others."""
    return hashlib.blake2b(b"quillcast datagram 1", key=key, digest_size=4).digest()


def _cipher(key: bytes, sender: bytes, incarnation: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(hashlib.blake2b(sender + incarnation, key=key, digest_size=32).digest())


class Cutter:
    """Makes datagrams of bundles."""

    def __init__(self, group: UdpGroup, key: bytes, sender: bytes, incarnation: bytes, numbers: "count[int]") -> None:
        """`numbers` are those of the sender's datagrams under any key, in this incarnation."""
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
    """Makes bundles of datagrams, in whatever order they come. What is incomplete is bounded: the oldest goes first."""

    def __init__(self, key: bytes, me: bytes) -> None:
        self._key, self._mark, self._me = key, _mark(key), me
        self._ciphers: dict[tuple[bytes, bytes], ChaCha20Poly1305] = {}
        self._unfinished: dict[tuple[bytes, bytes, int, int], dict[int, bytes]] = {}

    def take(self, datagram: bytes) -> Bundle | None:
        """A datagram came: the bundle that it completes, if any. This peer's own, and those of other keys, end here.

        Raises `Unproven`, or `Malformed` if a member sent what is no bundle.
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
