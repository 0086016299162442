"""Which topics have news for the neighbours in their trees, and when the neighbours are told."""

from quillcast.core.host import Host, Timer
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.tree import Tree


class ReportDue(Timer, frozen=True):
    """Tell the neighbours in trees what changed since the last report."""


class Reports:
    """Marks topics dirty, and sets one timer for all of them. What is told is in `progress.py`."""

    def __init__(self, host: Host, report_s: float) -> None:
        self.host, self.report_s = host, report_s
        self.dirty: dict[bytes, int] = {}  # and how many bytes came, were taken or became stable since the last report
        self.timer_set = False
        self.reported_at = float("-inf")
        self.held_back = HeldBack(host)

    def touch(self, tree: Tree) -> None:
        """Something about the tree is to be told to its neighbours in the next report."""
        self.dirty.setdefault(tree.topic, 0)
        if not self.timer_set:
            self.timer_set = True
            due = self.reported_at + self.report_s - self.host.now()
            self.host.set_timer(ReportDue(), max(0.0, due))  # after a quiet time at once

    def moved(self, tree: Tree, size_bytes: int) -> int:
        """So many more bytes are to be told of. Returns how many those are."""
        if tree.topic not in self.dirty:
            self.touch(tree)
        self.dirty[tree.topic] = bytes_ = self.dirty[tree.topic] + size_bytes
        return bytes_

    def told(self, tree: Tree) -> None:
        """The neighbours have just been told, before the next report is due."""
        if tree.topic in self.dirty:
            self.dirty[tree.topic] = 0

    def note_held_back(self, tree: Tree, *, held_back: bool) -> None:
        """The root holds publishers back, or does so no more: those below are told, if that is news."""
        if self.held_back.note(tree.topic, held_back=held_back):
            self.touch(tree)

    def forget(self, tree: Tree) -> None:
        """The tree is gone: there is nothing to tell about it."""
        self.dirty.pop(tree.topic, None)
        self.held_back.forget(tree.topic)

    def take(self) -> list[bytes]:
        """The report is made now: the topics that it covers."""
        self.timer_set = False
        self.reported_at = self.host.now()
        topics, self.dirty = self.dirty, {}
        return list(topics)
