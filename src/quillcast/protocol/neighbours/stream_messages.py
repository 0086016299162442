"""How the two ends of a link keep what one tells the other (tags 10-19)."""

from quillcast.core.messages import Message, Number


class Changes(Message, frozen=True, tag=10):
    """Apply these to the copy if it stands at `after` or later: that brings it to `number`. Ask if it stands before.

    `changes` holds a key and its value, None for a key that is told no more, for every key that changed in between.
    """

    epoch: bytes
    after: Number
    number: Number
    changes: tuple[tuple[bytes, bytes | None], ...]


class Resend(Message, frozen=True, tag=11):
    """Send what the sender's copy lacks, and end with `Contents`.

    The copy stands at `number` of `epoch`; `digests` are those of its buckets, 8 bytes each, little endian.
    """

    asked_at: float
    epoch: bytes
    number: Number
    digests: bytes


class Contents(Message, frozen=True, tag=12):
    """Make the copy hold exactly `entries` where their keys are from `start` to before `end` and in one of `buckets`.

    `end` is None in the last of several. If the copy's digest then is `digest`, it stands at `number` of `epoch`.
    `asked_at` is from the `Resend` that this answers; `buckets` has a bit set for each.
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
