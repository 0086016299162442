"""The two ends of a change stream: the map that a peer sends a neighbour, and the copy of it there (`streams.py`)."""

from array import array
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from zlib import crc32

from quillcast.core.interning import EMPTY, interned
from quillcast.core.messages import Contact

BUCKETS = 64
DIGEST_BYTES = 8
LIFE_BYTES = 8  # host.incarnation
SIGN_BYTES = 4
NEVER = float("-inf")
REMOVED_MAX = 1024  # removed keys that are kept while a copy is asked for; a guess


class DigestedMap:
    """A map with a digest: the XOR of a hash per entry, so that a change takes constant time.

    Entries are hashed when the digest is requested, once for all changes since the last request: heartbeats request it,
    and reports change many times between two of them. The digests of buckets are maintained once there are as many
    entries as buckets, and before that computed on request.
    """

    __slots__ = ("_buckets", "_digest", "_stamp", "_undigested", "entries", "epoch", "number", "size_bytes")

    def __init__(self, epoch: bytes) -> None:
        self.epoch, self.number = epoch, 0
        self.entries: dict[bytes, bytes] = {}
        self._buckets: array[int] | None = None
        self._stamp: bytes | None = None  # epoch and digest, once requested
        self._undigested: dict[bytes, bytes | None] = EMPTY  # changed keys, with the values that the digest covers
        self._digest = self.size_bytes = 0

    @property
    def digest(self) -> int:
        """The XOR of the hashes of all entries."""
        self._digest_changes()
        return self._digest

    def _digest_changes(self) -> None:
        for key, before in self._undigested.items():
            change = _hash(key, before) ^ _hash(key, self.entries.get(key))
            self._digest ^= change
            if self._buckets is not None:
                self._buckets[bucket_of(key)] ^= change
        self._undigested = EMPTY

    @property
    def buckets(self) -> "array[int]":
        """The digest of each bucket."""
        self._digest_changes()  # if the digests below are kept, a remaining change would count again
        if self._buckets is not None:
            return self._buckets
        buckets = array("Q", bytes(8 * BUCKETS))
        for key, value in self.entries.items():
            buckets[bucket_of(key)] ^= _hash(key, value)
        if len(self.entries) >= BUCKETS:
            self._buckets = buckets
        return buckets

    def set(self, key: bytes, value: bytes | None) -> bool:
        """Set a value, or remove the key if the value is None. True if that changed the map."""
        old = self.entries.get(key)
        if old == value:
            return False
        self._undigested = self._undigested or {}
        self._undigested.setdefault(key, old)
        if old is not None:
            self.size_bytes -= len(key) + len(old)
        if value is None:
            del self.entries[key]
        else:
            self.size_bytes += len(key) + len(value)
            self.entries[key] = interned(value)
        self._stamp = None
        return True

    def follow(self, epoch: bytes, number: int) -> None:
        """The map is now in the state after that change of that epoch."""
        self.epoch, self.number, self._stamp = epoch, number, None

    def between(self, start: bytes, end: bytes | None, buckets: int) -> list[bytes]:
        """Return the keys from `start` to before `end` in these buckets."""
        if not buckets:
            return []
        within = (key for key in self.entries if start <= key and (end is None or key < end))
        return [key for key in within if buckets >> bucket_of(key) & 1]

    def mark(self) -> tuple[int, bytes]:
        """Return the number of the last change, and bytes that identify the epoch and the contents."""
        if self._stamp is None:
            self._stamp = sign(self.epoch) + self.digest.to_bytes(DIGEST_BYTES, "big")
        return self.number, self._stamp

    def check(self) -> None:
        digest = size_bytes = 0
        buckets = None if self._buckets is None else array("Q", bytes(8 * BUCKETS))
        for key, value in self.entries.items():
            entry = _known_hash(key, value)
            digest ^= entry
            size_bytes += len(key) + len(value)
            if buckets is not None:
                buckets[bucket_of(key)] ^= entry
        assert (digest, buckets, size_bytes) == (self.digest, self._buckets, self.size_bytes), (
            f"the digest {self.digest:016x} of {len(self.entries)} entries should be {digest:016x}"
        )


class Outgoing(DigestedMap):
    """The map that this peer sends to a neighbour.

    `pending` are the keys that changed since the last flush. `log` has the keys of the last numbered changes; its last
    item is the key of change `number`.
    """

    __slots__ = ("contact", "flush_set", "flushed_at", "log", "pending")

    def __init__(self, contact: Contact, epoch: bytes) -> None:
        super().__init__(epoch)
        self.contact = contact
        self.log: list[bytes] = []
        self.pending: dict[bytes, None] = EMPTY
        self.flushed_at, self.flush_set = NEVER, False

    def move_to(self, contact: Contact) -> None:
        """Note the neighbour's present address."""
        self.contact = contact

    def set_flush(self, is_set: bool) -> None:
        """Note that a timer for the next flush is set, or has run out."""
        self.flush_set = is_set

    def change(self, key: bytes, value: bytes | None) -> bool:
        """Set a value, or with None, remove it; the next flush sends it. False if nothing changed."""
        if not self.set(key, value):
            return False
        self.pending = self.pending or {}
        self.pending.pop(key, None)  # in order of their last change, because a change may rely on earlier ones
        self.pending[key] = None
        return True

    def number_pending(self, log_max: int, now: float) -> list[bytes]:
        """Number the changes that were not sent yet. Return their keys. A log over `log_max` is halved."""
        keys, self.pending = list(self.pending), EMPTY
        self.number += len(keys)
        self.log += keys
        if len(self.log) > log_max:
            del self.log[: len(self.log) - log_max // 2]
        self.flushed_at = now
        return keys


class Incoming(DigestedMap):
    """The copy of the map that a neighbour sends.

    `asked_since` is the time of the first open request, and `answered_at` of the last part of an answer. `removed` are
    keys that the neighbour removed meanwhile, and that are not in the copy.
    """

    __slots__ = ("answered", "answered_at", "asked_at", "asked_since", "removed", "requests")

    def __init__(self) -> None:
        super().__init__(b"")
        self.asked_since: float | None = None
        self.asked_at, self.requests, self.answered, self.answered_at = NEVER, 0, False, NEVER
        self.removed: dict[bytes, None] = EMPTY

    def advance(self, number: int) -> None:
        """Note that the copy is in the state of this change."""
        self.number = number

    def open_request(self, now: float) -> None:
        """Note that the copy is behind or wrong, and that a request for what it lacks is open."""
        self.asked_since, self.requests = now, 0

    def note_removed(self, keys: Iterable[bytes]) -> None:
        """Note keys that the neighbour removed while a request for earlier changes is open."""
        unknown = (key for key in keys if key not in self.entries)
        self.removed = self.removed or {}
        self.removed.update(dict.fromkeys(islice(unknown, REMOVED_MAX - len(self.removed))))

    def take_removed(self) -> list[bytes]:
        """Return the keys that the neighbour removed while a request was open, and did not set again."""
        removed, self.removed = self.removed, EMPTY
        return [key for key in removed if key not in self.entries]

    def note_request(self, now: float) -> None:
        """Note that the request was sent once more."""
        self.asked_at, self.answered = now, False
        self.requests += 1

    def note_answer(self, now: float) -> None:
        """Note that a part of an answer arrived."""
        self.answered, self.answered_at = True, now

    def take_answered(self) -> bool:
        """Return whether a part of an answer arrived since the request, or since the last call."""
        answered, self.answered = self.answered, False
        return answered

    def close_request(self) -> None:
        """Close the request: nothing more is asked for until a mark differs."""
        self.asked_since = None

    def passed(self, epoch: bytes, number: int) -> bool:
        """Whether the copy is at a later change, in the same incarnation of the sender."""
        return epoch[:LIFE_BYTES] == self.epoch[:LIFE_BYTES] and (epoch, number) < (self.epoch, self.number)


def sign(epoch: bytes) -> bytes:
    """Return the first bytes of a mark: a short hash of the epoch."""
    return blake2b(epoch, digest_size=SIGN_BYTES).digest()


def bucket_of(key: bytes) -> int:
    """Return the bucket that contains a key."""
    return crc32(key) % BUCKETS


def _hash(key: bytes, value: bytes | None) -> int:
    """Return a 64-bit hash of one entry; 0 if there is none."""
    if value is None:
        return 0
    entry = len(key).to_bytes(4, "big") + key + value
    return int.from_bytes(blake2b(entry, digest_size=DIGEST_BYTES).digest(), "big")


_known_hash = lru_cache(4096)(_hash)
"""For `DigestedMap.check`, which computes the hashes of the same entries again and again."""
