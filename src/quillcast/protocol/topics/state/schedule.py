"""When to report to tree neighbours and when to do housekeeping, and in which topics."""

from collections.abc import Sized

from quillcast.core.host import Host, Timer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.tree import Tree

PAUSE_ROUNDS = 5  # missed rounds after which this process counts as paused; a guess, far below a lease


class ReportDue(Timer, frozen=True):
    """Report to tree neighbours what changed since the last report."""


class HousekeepingDue(Timer, frozen=True):
    """Look over leases, past terms and publishers."""


class Schedule:
    """Marks topics dirty (to report on) or due (for housekeeping). One timer each serves all topics.

    `progress.py` makes the reports, `housekeeping.py` does the housekeeping.
    """

    __slots__ = (
        "_pause_s", "config", "dirty", "due", "held_back", "host", "paused_from", "read_by", "report_set",
        "reported_at", "round_set", "sent_by", "work",
    )  # fmt: skip

    def __init__(self, host: Host, config: TopicConfig) -> None:
        self.host, self.config = host, config
        self.dirty: dict[bytes, int] = {}  # bytes that came, were taken or became stable since the last report
        self.report_set = False
        self.reported_at = float("-inf")
        self.held_back = HeldBack(host)
        self.due: dict[bytes, None] = {}
        self.round_set = False
        self._pause_s = PAUSE_ROUNDS * config.housekeeping_s  # a longer time between two rounds was a pause
        self.sent_by = host.now()  # others may have sent until then to this process while it was paused
        self.read_by = self.sent_by  # by then it has read that, also as a root
        self.paused_from = float("inf")
        """If no round begins before this time, this process was paused. Never, while there are no rounds."""
        self.work: list[Sized] = []

    # ---- reports

    def touch(self, tree: Tree) -> None:
        """Mark the tree for the next report to its neighbours."""
        self.dirty.setdefault(tree.flow.topic, 0)
        if not self.report_set:
            self.report_set = True
            due = self.reported_at + self.config.report_s - self.host.now()
            self.host.set_timer(ReportDue(), max(0.0, due))  # after a quiet time at once

    def moved(self, tree: Tree, size_bytes: int) -> bool:
        """Note more bytes to report on. Return whether they are too many to wait for the next report."""
        dirty, topic = self.dirty, tree.flow.topic
        if topic not in dirty:
            self.touch(tree)
        dirty[topic] = bytes_ = dirty[topic] + size_bytes
        return bytes_ >= self.config.report_bytes

    def told(self, tree: Tree) -> None:
        """Note that the neighbours have just been told, before the next report is due."""
        topic = tree.flow.topic
        if topic in self.dirty:
            self.dirty[topic] = 0

    def note_held_back(self, tree: Tree, *, held_back: bool) -> None:
        """Note whether the root holds publishers back. If that is news, peers below are told."""
        if self.held_back.note(tree.flow.topic, held_back=held_back):
            self.touch(tree)

    def take(self) -> list[bytes]:
        """Take out the dirty topics, to report on them now."""
        self.report_set = False
        self.reported_at = self.host.now()
        topics, self.dirty = self.dirty, {}
        return list(topics)

    def note_came(self, tree: Tree, now: float) -> bool:
        """Note that the known events of the topic's current term exist by now. False if it is too early to tell.

        After a pause of this process, events may have waited to be read. If the parent has lost this peer in the
        meantime, it did so soon after the pause began, and sent nothing afterwards. Until that is known, nothing is
        noted. A root may be lost to its publishers too: what it admits at first they may have sent again to the next.
        """
        if not tree.doubted or (tree.root is not None and now >= self.read_by):
            tree.flow.note_came(now)
        elif tree.parent is None:
            tree.flow.note_came(self.sent_by)
        else:
            return False
        return True

    # ---- rounds of housekeeping

    def begin(self) -> None:
        """Begin rounds of housekeeping, if there are none."""
        if not self.round_set:
            self.note_round(self.host.now())
            self.again()

    def note_pause(self) -> None:
        """Note that this process was paused for so long that its neighbours may have lost it."""
        self.sent_by = self.paused_from

    def read_until(self, at: float) -> None:
        """Set when everything that waited during a pause will have been read."""
        self.read_by = at

    def note_round(self, now: float) -> None:
        """Begin a round."""
        self.paused_from = now + self._pause_s

    def serve(self, table: Sized) -> None:
        """Continue rounds while this table has entries."""
        self.work.append(table)

    @property
    def has_work(self) -> bool:
        """Whether there is anything to look over in rounds."""
        return any(self.work)

    def again(self) -> None:
        """Set the timer for the next round."""
        self.round_set = True
        self.host.set_timer(HousekeepingDue(), self.config.housekeeping_s)

    def stop(self) -> None:
        """Stop rounds, because there is nothing to look over."""
        self.round_set = False
        self.paused_from = float("inf")

    def wake(self, tree: Tree) -> None:
        """Look the topic over in the next round, and as long as time alone can change anything in it."""
        self.due[tree.flow.topic] = None

    def rest(self, topic: bytes) -> None:
        """Stop looking the topic over, because time alone changes nothing in it any longer."""
        self.due.pop(topic, None)
        if not self.due:
            self.due = {}  # an emptied dict keeps the memory of all that it ever held

    # ---- the end

    def forget(self, tree: Tree) -> None:
        """Forget a tree that is gone."""
        self.rest(tree.topic)
        self.dirty.pop(tree.topic, None)
        self.held_back.forget(tree.topic)
