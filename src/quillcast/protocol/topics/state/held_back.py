"""Topics whose publishers are held back by their roots: for want of room in buffers, or of a place for a publisher.

Only topics with `slow = wait` are held back for want of room.
"""

from math import inf

from quillcast.core.host import Host


class HeldBack:
    """What this peer knows of them: as their root, or from a parent."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._until: dict[bytes, float] = {}  # `inf` while it goes on

    def note(self, topic: bytes, *, held_back: bool) -> bool:
        """The root holds publishers back, or does so no more. True if that is news."""
        if held_back == (self._until.get(topic) == inf):
            return False
        self._until[topic] = inf if held_back else self.host.now()
        return True

    def __contains__(self, topic: bytes) -> bool:
        return self._until.get(topic) == inf

    def lately(self, topic: bytes, within_s: float) -> bool:
        """Are publishers held back, or were they until a while ago? What they keep may come late."""
        return self.host.now() < self._until.get(topic, -inf) + within_s

    def forget(self, topic: bytes) -> None:
        """This peer is no part of the topic any more."""
        self._until.pop(topic, None)
