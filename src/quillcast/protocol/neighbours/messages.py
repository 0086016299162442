"""The messages of the failure detector (tags 1-9; the messages of the change streams are in `stream_messages.py`)."""

from quillcast.core.messages import Message, Number


class Heartbeat(Message, frozen=True, tag=1):
    """Requests a `HeartbeatAnswer` with the same `sent_at`. Also proves that the sender is alive.

    `change` and `digest` are the sender's mark of this link's change stream, which the receiver compares.
    """

    sent_at: float
    change: Number = 0
    digest: bytes = b""


class HeartbeatAnswer(Message, frozen=True, tag=2):
    """Proves that this peer is alive, and measures the round-trip time."""

    sent_at: float
    change: Number = 0
    digest: bytes = b""


MESSAGES: tuple[type[Message], ...] = (Heartbeat, HeartbeatAnswer)
