"""The topics in which something passes with time, and the timer by which a peer looks them over."""

from quillcast.core.host import Host, Timer
from quillcast.protocol.topics.state.tree import Tree


class HousekeepingDue(Timer, frozen=True):
    """Look over leases, past terms and publishers."""


class DueTopics:
    """What the next round of housekeeping looks at. The round itself is in `housekeeping.py`."""

    def __init__(self, host: Host, housekeeping_s: float) -> None:
        self.host, self.housekeeping_s = host, housekeeping_s
        self.topics: dict[bytes, None] = {}
        self.last_round_at = host.now()
        self.timer_set = False

    def begin(self) -> None:
        """There is something to look over from time to time."""
        if not self.timer_set:
            self.last_round_at = self.host.now()
            self.again()

    def again(self) -> None:
        """Set the timer for the next round."""
        self.timer_set = True
        self.host.set_timer(HousekeepingDue(), self.housekeeping_s)

    def stop(self) -> None:
        """There is nothing to look over: no further round until there is."""
        self.timer_set = False

    def wake(self, tree: Tree) -> None:
        """Look the topic over in the next round, and for as long as time will change anything in it."""
        self.topics[tree.topic] = None

    def forget(self, topic: bytes) -> None:
        """Nothing in the topic changes with time any more."""
        self.topics.pop(topic, None)
        if not self.topics:
            self.topics = {}  # an emptied dict keeps the memory of all that it ever held
