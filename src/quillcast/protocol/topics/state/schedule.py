"""The topics that have news for the neighbours in their trees, those in which something passes with time, and when."""

from collections.abc import Sized

from quillcast.core.host import Host, Timer
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.state.held_back import HeldBack
from quillcast.protocol.topics.state.tree import Tree

PAUSE_ROUNDS = 5  # after so many missed rounds this process was paused; a guess, far below a lease


class ReportDue(Timer, frozen=True):
    """Tell the neighbours in trees what changed since the last report."""


class HousekeepingDue(Timer, frozen=True):
    """Look over leases, past terms and publishers."""


class Schedule:
    """Marks topics dirty, to be reported on, or due, to be looked over; one timer for all of each.

    What is reported is in `progress.py`, what is looked over in `housekeeping.py`.
    """

    def __init__(self, host: Host, config: TopicConfig) -> None:
        self.host, self.config = host, config
        self.dirty: dict[bytes, int] = {}  # and how many bytes came, were taken or became stable since the last report
        self.report_set = False
        self.reported_at = float("-inf")
        self.held_back = HeldBack(host)
        self.due: dict[bytes, None] = {}
        self.round_set = False
        self._pause_s = PAUSE_ROUNDS * config.housekeeping_s  # a longer time between two rounds was a pause
        self.sent_by = host.now()  # until then others sent to this process while it was paused
        self.read_by = self.sent_by  # and by then it has read that, also as a root
        self.paused_from = self.sent_by + self._pause_s
        """This process was paused, if no round began until then."""
        self.work: list[Sized] = []

    # ---- reports

    def touch(self, tree: Tree) -> None:
        """Something about the tree is to be told to its neighbours in the next report."""
        self.dirty.setdefault(tree.flow.topic, 0)
        if not self.report_set:
            self.report_set = True
            due = self.reported_at + self.config.report_s - self.host.now()
            self.host.set_timer(ReportDue(), max(0.0, due))  # after a quiet time at once

    def moved(self, tree: Tree, size_bytes: int) -> bool:
        """So many more bytes are to be told of. Are those so many that the next report is not to be waited for?"""
        dirty, topic = self.dirty, tree.flow.topic
        if topic not in dirty:
            self.touch(tree)
        dirty[topic] = bytes_ = dirty[topic] + size_bytes
        return bytes_ >= self.config.report_bytes

    def told(self, tree: Tree) -> None:
        """The neighbours have just been told, before the next report is due."""
        topic = tree.flow.topic
        if topic in self.dirty:
            self.dirty[topic] = 0

    def note_held_back(self, tree: Tree, *, held_back: bool) -> None:
        """The root holds publishers back, or does so no more: those below are told, if that is news."""
        if self.held_back.note(tree.flow.topic, held_back=held_back):
            self.touch(tree)

    def take(self) -> list[bytes]:
        """The report is made now: the topics that it is about."""
        self.report_set = False
        self.reported_at = self.host.now()
        topics, self.dirty = self.dirty, {}
        return list(topics)

    def note_came(self, tree: Tree, now: float) -> bool:
        """What is known of the topic's current term is there by now. False if that is to be noted later.

        After a pause of this process it may have waited to be read. If the parent has lost this peer meanwhile, that
        was soon after the pause began, and nothing was sent any more. Until that is known, there is nothing to note.
        Publishers have lost a root as well, and what it admits at first they may have sent again to the next one.
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
        """There is something to look over from time to time."""
        if not self.round_set:
            self.note_round(self.host.now())
            self.again()

    def note_pause(self) -> None:
        """This process was paused: by now, a peer that says nothing is lost to its neighbours."""
        self.sent_by = self.paused_from

    def read_until(self, at: float) -> None:
        """By then, what waited to be read after a pause has been read."""
        self.read_by = at

    def note_round(self, now: float) -> None:
        """A round begins."""
        self.paused_from = now + self._pause_s

    def serve(self, table: Sized) -> None:
        """Rounds go on while this table has entries."""
        self.work.append(table)

    @property
    def has_work(self) -> bool:
        """Is there anything to look over from time to time?"""
        return any(self.work)

    def again(self) -> None:
        """Set the timer for the next round."""
        self.round_set = True
        self.host.set_timer(HousekeepingDue(), self.config.housekeeping_s)

    def stop(self) -> None:
        """There is nothing to look over: no further round until there is."""
        self.round_set = False

    def wake(self, tree: Tree) -> None:
        """Look the topic over in the next round, and for as long as time will change anything in it."""
        self.due[tree.flow.topic] = None

    def rest(self, topic: bytes) -> None:
        """Nothing in the topic changes with time any more."""
        self.due.pop(topic, None)
        if not self.due:
            self.due = {}  # an emptied dict keeps the memory of all that it ever held

    # ---- the end

    def forget(self, tree: Tree) -> None:
        """The tree is gone."""
        self.rest(tree.topic)
        self.dirty.pop(tree.topic, None)
        self.held_back.forget(tree.topic)
