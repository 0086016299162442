"""Topics whose roots hold back publishers: because buffers are full, or there is no place for a publisher.

Only topics with `slow = wait` are held back because of full buffers.
"""

from math import inf

from quillcast.core.host import Host


class HeldBack:
    """The topics that are held back, as this peer knows as their root or from a parent."""

    __slots__ = ("_until", "host")

    def __init__(self, host: Host) -> None:
        self.host = host
        self._until: dict[bytes, float] = {}  # `inf` while they are held back

    def note(self, topic: bytes, *, held_back: bool) -> bool:
        """Note whether the root holds publishers back. Return whether that is news."""
        if held_back == (self._until.get(topic) == inf):
            return False
        self._until[topic] = inf if held_back else self.host.now()
        return True

    def __contains__(self, topic: bytes) -> bool:
        return self._until.get(topic) == inf

    def lately(self, topic: bytes, within_s: float) -> bool:
        """Whether publishers are held back, or were until lately, so that their events may come late."""
        return self.host.now() < self._until.get(topic, -inf) + within_s

    def forget(self, topic: bytes) -> None:
        """Forget a topic that this peer no longer takes part in."""
        self._until.pop(topic, None)
