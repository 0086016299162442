"""Back-pressure: credit goes back to senders while the buffers are within the budget (DELIVERY.md, *Slowness*).

A topic that waits for its slow subscribers would fill the budget, and hold up all others. So its root holds back its
publishers' credit before: while the topic keeps more than the budget has left (the dynamic threshold of shared-memory
switches: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998, with a factor of 1). One topic takes half of the budget at most,
two a third each, and there is always room for those that are not slow.
"""

from collections import deque
from typing import TYPE_CHECKING

from quillcast.core.bundle import Bundle
from quillcast.core.host import Timer
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.topics.tree import Tree

if TYPE_CHECKING:
    from quillcast.protocol.topics.scribe import Scribe


class RoomHere(Timer, frozen=True):
    """This peer, as a root, takes events of its own publishers again."""


class Pacing:
    """Holds senders' credit back while this peer's buffers are over their budget, for `patience_s` before a cut.

    That of publishers to a topic that waits it holds back sooner, where this peer is the root.
    """

    def __init__(self, scribe: "Scribe") -> None:
        self.scribe, self.host, self.config = scribe, scribe.host, scribe.config
        self.budget = scribe.table.budget
        self.owed: deque[tuple[bytes, int, bytes]] = deque()  # sender, bytes, topic
        self.held: dict[bytes, deque[tuple[bytes, int]]] = {}  # by topics that have their share of the budget
        self.over_since: float | None = None
        self.taken: dict[bytes, int] = {}  # bytes of this peer's own publishers whose credit is held back, by topic

    # ---- this peer's own publishers, where it is the root: no link's credit lies between

    def room_for(self, topic: bytes) -> int:
        """Bytes that this peer, as the topic's root, takes of its own publishers now: a window as over a link."""
        return self.config.window_bytes - self.taken.get(topic, 0)

    def taken_here(self, topic: bytes, size_bytes: int) -> None:
        """A bundle of this peer's own publishers came to it as the root."""
        self.taken[topic] = self.taken.get(topic, 0) + size_bytes

    def _give_back(self, sender: bytes, size_bytes: int, topic: bytes) -> None:
        if sender != self.host.me:
            self.host.release(sender, size_bytes)
            return
        was_full = self.room_for(topic) <= 0
        self.taken[topic] -= size_bytes
        if was_full and self.room_for(topic) > 0:
            self.host.set_timer(RoomHere(), 0.0)
        if not self.taken[topic]:
            del self.taken[topic]

    # ---- all senders

    @property
    def waiting(self) -> list[bytes]:
        """Topics whose publishers this root holds back, because they wait for slow subscribers."""
        return list(self.held)

    def release(self, sender: bytes, size_bytes: int, topic: bytes = b"") -> None:
        """A bundle has been moved: its credit goes back now, or when there is room again."""
        if self.owed or self.budget.used_bytes > self.budget.limit_bytes:  # `over`, for every bundle
            self.owed.append((sender, size_bytes, topic))
            self._note_over()
        else:
            self._give_back(sender, size_bytes, topic)

    def sealed(self, tree: Tree, sender: bytes, size_bytes: int) -> None:
        """What a publisher sent to this root is in the buffer: its credit goes back, unless the topic has its share."""
        if tree.topic in self.held or self._has_its_share(tree):
            if tree.topic not in self.held:
                self.held[tree.topic] = deque()
                self.host.trace(Mark("topic_paced"))
            self.held[tree.topic].append((sender, size_bytes))
        else:
            self.release(sender, size_bytes, tree.topic)

    def _has_its_share(self, tree: Tree) -> bool:
        left_bytes = self.budget.limit_bytes - self.budget.used_bytes
        return tree.descriptor.settings.slow == "wait" and tree.log.size_bytes > left_bytes

    def _ease_topics(self) -> None:
        """Topics that are below their share again, or of which this peer is root no more, hold up nobody."""
        for topic in list(self.held):
            tree = self.scribe.trees.get(topic)
            if tree is None or tree.root is None or not self._has_its_share(tree):
                for sender, size_bytes in self.held.pop(topic):
                    self.release(sender, size_bytes, topic)

    def _note_over(self) -> None:
        if self.over_since is None and self.budget.over:
            self.over_since = self.host.now()
            self.host.trace(Mark("paced"))

    def eased(self) -> None:
        """The buffers may have shrunk."""
        if self.held:
            self._ease_topics()
        if self.budget.over:
            return
        self.over_since = None
        while self.owed:
            self._give_back(*self.owed.popleft())

    def sweep(self, now: float) -> None:
        """After `patience_s` over the budget, the oldest of the busiest topic goes, unless its owner chose to wait."""
        self._note_over()
        self._ease_topics()
        if self.over_since is None or now - self.over_since < self.config.patience_s:
            return
        self.cut(self.budget.limit_bytes * 7 // 8)
        self.eased()

    def _tell_edges(self, tree: Tree, gone: Bundle) -> None:
        """Subscribers here that had not taken it lost it; children find out by asking."""
        for edge in tree.edges.values():
            if edge.cursor < tree.log.base:
                edge.cursor = tree.log.base
                edge.skip(tree.term, [(gone.envelope.first, gone.last)], "cut")

    def cut(self, goal_bytes: int) -> None:
        """Let go of past terms first, then of the oldest bundles of the busiest topics that may be cut."""
        trees = self.scribe.trees.values()
        for tree in trees:
            for term in list(tree.past):
                if self.budget.used_bytes > goal_bytes:
                    tree.thin(term)
        cuttable = [tree for tree in trees if tree.descriptor.settings.slow == "cut"]
        while self.budget.used_bytes > goal_bytes and cuttable:
            busiest = max(cuttable, key=lambda tree: (tree.log.size_bytes, tree.topic))
            gone = busiest.log.drop(1)
            if not gone:
                return
            self.host.trace(Mark("cut"))
            self.host.trace(Dropped(busiest.topic, gone[0].count, "budget"))
            self._tell_edges(busiest, gone[0])
