"""Errors say whose fault it is, with which value, and what to do."""

from collections.abc import Sequence
from typing import Literal

QUOTED_MAX = 80  # letters of what was given that an error repeats; a guess


def quoted(text: str) -> str:
    """What was given, for an error: in quotation marks, and not all of what is long."""
    return repr(text) if len(text) <= QUOTED_MAX else f"{text[:QUOTED_MAX]!r}... ({len(text)} letters)"


class QuillcastError(Exception):
    """Anything quillcast raises on purpose. Its text is one clear line for a person."""

    exit_code = 1
    """What a command ends with when this error reaches it."""


class LocalError(QuillcastError):
    """Our caller asked for what cannot be; the text names the value and the remedy."""

    exit_code = 2


class RemoteError(QuillcastError):
    """A peer broke the protocol: the host closes the link, counts it, and this peer stays sound."""

    exit_code = 3


class Malformed(RemoteError):
    """Bytes from a network that are no frame, bundle or message of ours."""


class EventTooLarge(LocalError):
    """An event over the topic's size limit; refused at the publisher."""


class UnknownTopic(LocalError):
    """The topic does not exist and the network does not create topics on first use."""


class TopicExists(LocalError):
    """The topic exists with other settings."""


class NotJoined(QuillcastError):
    """The peer is not (yet) part of the overlay, and the time to wait for it has passed."""

    exit_code = 4


class Unreachable(QuillcastError):
    """No contact answered, or it is of another network or version."""

    exit_code = 4


class NotAdmitted(QuillcastError):
    """The time to wait passed before the topic's root took the event; what holds it up is named."""

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
    """The disk refused a write (full, or failing); what was promised before stays."""

    exit_code = 6
