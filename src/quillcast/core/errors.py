"""The errors of quillcast. Each says whose fault it is, which value is wrong, and what to do."""

import errno
from collections.abc import Sequence
from typing import Literal

QUOTED_MAX = 80  # characters of an invalid value in an error message; a guess


def quoted(text: str) -> str:
    """Quote an invalid value for an error message, shortened if it is long."""
    return repr(text) if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]!r}... ({len(text)} characters)"


class QuillcastError(Exception):
    """Base of all errors of quillcast. The text is one line for people."""

    exit_code = 1
    """The exit code of a command that ends with this error."""


class LocalError(QuillcastError):
    """Invalid request; the text names the value and the remedy."""

    exit_code = 2


class RemoteError(QuillcastError):
    """Another peer broke the protocol: the link is closed and counted, and this peer keeps running."""

    exit_code = 3


class Malformed(RemoteError):
    """Bytes from the network that are not a valid frame, bundle or message."""


class EventTooLarge(LocalError):
    """The event exceeds the topic's size limit; the publisher rejects it."""


class Implausible(RemoteError):
    """A statement of a peer is impossible or premature. It is ignored, because the peer may only have passed it on."""


class UnknownTopic(LocalError):
    """The topic does not exist, and the network does not create topics on first use."""


class TopicExists(LocalError):
    """The topic exists with other settings."""


class NotDone(QuillcastError):
    """Other peers did not do something in time; the text and `peers` name them."""

    def __init__(self, text: str, peers: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.peers = tuple(peers)
        """NodeIds of the peers that did not answer in time, in hexadecimal, as far as known."""


class NotJoined(NotDone):
    """The network or a topic's root did not admit the peer in time; the text names the peers that did not answer."""

    exit_code = 4


class Unreachable(QuillcastError):
    """No contact answered, or it belongs to another network or version."""

    exit_code = 4


class Leaving(Unreachable):
    """The peer is leaving its network and no longer answers queries."""


class NotAdmitted(NotDone):
    """The topic's root did not admit the event in time; the text says what holds it up."""

    exit_code = 5


class NotStable(NotDone):
    """Not every live subscriber is known to have the event; `reason` says why.

    `late`: the waiting time is over. The text names the subscribers without the event; it may still become stable.
    `dropped`: it will never be stable. The publisher's bounds (`retain_bytes`, `retain_s`) made it discard the event
    before it was stable, or the topic was best-effort meanwhile.
    """

    exit_code = 5

    def __init__(self, text: str, reason: Literal["late", "dropped"] = "late", peers: Sequence[str] = ()) -> None:
        super().__init__(text, peers)
        self.reason = reason


FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""Errors of the disk itself, not of a request."""


class DiskFailed(QuillcastError):
    """The disk rejected a write (full, or failing); earlier promises still hold."""

    exit_code = 6
