"""A virtual clock: what will happen, in order of time."""

from bisect import bisect_left
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

Action = Callable[[Any], None]
Entry = tuple[float, Action, Any]
"""When, what to do, with what."""
_when = itemgetter(0)

SLOTS_PER_S = 100  # below most delays of a network, so that entries seldom join the slot that is being worked off


class Clock:
    """Time goes from one thing that happens to the next; what falls on one time happens in the order it was asked for.

    Entries wait unsorted in slots of time, and a slot is sorted when its turn comes: with a hundred thousand timers
    waiting that is a third cheaper than one heap for all.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.happening: Action | None = None
        """What happens now, or happened last."""
        self._slots: dict[int, list[Entry]] = {}
        self._numbers: list[int] = []  # of the slots, as a heap
        self._number = -1  # of the slot that is being worked off
        self._due: list[Entry] = []  # what is left of it, the next last

    def at(self, at: float, action: Action, argument: Any) -> None:
        """Do this at a time, seconds since the beginning; a time past is now."""
        number = int(at * SLOTS_PER_S)
        if number <= self._number:
            self._due.insert(bisect_left(self._due, -at, key=_sooner), (at, action, argument))
            return
        slot = self._slots.get(number)
        if slot is not None:
            slot.append((at, action, argument))
        else:
            self._slots[number] = [(at, action, argument)]
            heappush(self._numbers, number)

    def after(self, delay_s: float, action: Action, argument: Any) -> None:
        """Do this some seconds from now."""
        self.at(self.now + delay_s, action, argument)

    def run(self, until_s: float) -> None:
        """Let everything happen up to a time, that time included."""
        while self._open_slot(until_s):
            due = self._due
            while due:
                at, action, argument = entry = due.pop()
                if at > until_s:
                    due.append(entry)
                    self.now = max(self.now, until_s)
                    return
                if at > self.now:
                    self.now = at
                self.happening = action
                action(argument)
        self.now = max(self.now, until_s)

    def _open_slot(self, until_s: float) -> bool:
        """Is there a slot with something left in it, up to this time? Sorts the next one when its turn comes."""
        if self._due:
            return True
        if not self._numbers or self._numbers[0] > until_s * SLOTS_PER_S:
            return False
        self._number = heappop(self._numbers)
        self._due = self._slots.pop(self._number)
        self._due.sort(key=_when)  # which keeps the order of what falls on one time
        self._due.reverse()
        return True


def _sooner(entry: Entry) -> float:
    return -entry[0]
