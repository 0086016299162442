"""What neighbours say to each other to stay known as live (tags 1-19; the streams' messages have their own list)."""

from quillcast.core.messages import Message, Number


class Heartbeat(Message, frozen=True, tag=1):
    """Asks for a `HeartbeatAnswer` with the same `sent_at`. Doubles as the sender's own sign of life.

    `change` and `digest` are the sender's mark on this link's stream of changes; the receiver compares.
    """

    sent_at: float
    change: Number = 0
    digest: bytes = b""


class HeartbeatAnswer(Message, frozen=True, tag=2):
    """Ends the sender's doubt about this peer, and measures the round trip."""

    sent_at: float
    change: Number = 0
    digest: bytes = b""


MESSAGES: tuple[type[Message], ...] = (Heartbeat, HeartbeatAnswer)
