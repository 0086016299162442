"""The messages that keep both ends of a change stream equal (tags 10-19)."""

from quillcast.core.messages import Message, Number


class Changes(Message, frozen=True, tag=10):
    """Apply these changes if the copy is at `after` or later, so that it is at `number`. Ask if it is behind.

    `changes` has an entry for every key that changed in between: the key and its value, or None for a removed key.
    """

    epoch: bytes
    after: Number
    number: Number
    changes: tuple[tuple[bytes, bytes | None], ...]


class Resend(Message, frozen=True, tag=11):
    """Send the changes that the sender's copy misses, and end with `Contents`.

    The copy is at `number` of `epoch`. `digests` are the digests of its buckets, 8 bytes each, little endian.
    """

    asked_at: float
    epoch: bytes
    number: Number
    digests: bytes


class Contents(Message, frozen=True, tag=12):
    """Make the copy equal to `entries` for all keys from `start` to before `end` that are in one of `buckets`.

    `end` is None in the last of several messages. If the copy then has the digest `digest`, it is at `number` of
    `epoch`. `asked_at` is that of the `Resend` that this message answers. `buckets` has a bit for each bucket.
    """

    asked_at: float
    epoch: bytes
    number: Number
    digest: int
    buckets: int
    start: bytes
    end: bytes | None
    entries: tuple[tuple[bytes, bytes], ...]


MESSAGES: tuple[type[Message], ...] = (Changes, Resend, Contents)
