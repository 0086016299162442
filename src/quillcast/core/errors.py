"""Errors say whose fault it is, with which value, and what to do."""

from collections.abc import Sequence
from typing import Literal

QUOTED_MAX = 80  # letters of what was given that an error repeats; a guess


def quoted(text: str) -> str:
    """What was given, for an error: in quotation marks, and not all of what is long."""
    return repr(text) if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]!r}... ({len(text)} letters)"


class QuillcastError(Exception):
    """Base of all errors of quillcast. The text is one line for people."""

    exit_code = 1
    """What a command ends with when this error reaches it."""


class LocalError(QuillcastError):
    """Invalid request; the text names the value and the remedy."""

    exit_code = 2


class RemoteError(QuillcastError):
    """Another peer broke the protocol: the link is closed and counted, and this peer keeps running."""

    exit_code = 3


class Malformed(RemoteError):
    """Bytes from a network that are no frame, bundle or message of ours."""


class EventTooLarge(LocalError):
    """The event exceeds the topic's size limit; the publisher rejects it."""


class UnknownTopic(LocalError):
    """The topic does not exist, and the network does not create topics on first use."""


class TopicExists(LocalError):
    """The topic exists with other settings."""


class NotJoined(QuillcastError):
    """The peer did not become part of the overlay in time."""

    exit_code = 4


class Unreachable(QuillcastError):
    """No contact answered, or it belongs to another network or version."""

    exit_code = 4


class NotAdmitted(QuillcastError):
    """The topic's root did not admit the event in time; the text says what holds it up."""

    exit_code = 5

    def __init__(self, text: str, peers: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.peers = tuple(peers)
        """NodeIds of the peers that hold it up, in hexadecimal, as far as they are known."""


class NotStable(QuillcastError):
    """Not every live subscriber is known to hold the event; `reason` says why.

    `late`: the time to wait passed; who does not hold it yet is named, and it may become stable later. `dropped`: the
    publisher's bounds (`retain_bytes`, `retain_s`) made it discard the event before it was stable; it never is.
    """

    exit_code = 5

    def __init__(self, text: str, reason: Literal["late", "dropped"] = "late", peers: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.reason = reason
        self.peers = tuple(peers)
        """NodeIds of the peers that hold it up, in hexadecimal, as far as they are known."""


class DiskFailed(QuillcastError):
    """The disk rejected a write (full, or failing); earlier promises still hold."""

    exit_code = 6
