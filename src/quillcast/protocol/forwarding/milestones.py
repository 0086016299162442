"""How far a stream had come at which times: so a subscriber of a stream that is learned late is owed the right part.

A peer may hear of a source only long after it began, and then it has lost all earlier events. A subscription of
this peer is told of that loss, but not of events that it was never owed: those published before it began. No clock can
be compared with that of another peer, but durations can. So each peer remembers for each stream up to which index it
had come by which times, and tells peers that miss events how long ago that was (`reliability.messages.Unavailable`).
A message takes a while, so events seem younger to the receiver than they are. It never mistakes an event for older
than a subscription.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from quillcast.core.messages import Number
from quillcast.core.ranges import Range

MILESTONES_MAX = 64  # per stream: 1 kB
SPACING_S = 1.0  # between two milestones, at least; a guess: nobody begins that often
PRECISION = 8  # two milestones are at most an eighth of their age apart, until there are too many

Milestone = tuple[Number, Annotated[float, msgspec.Meta(ge=0)]]
"""An index, and for how many seconds all events below it have been there."""
ToldMilestones = Annotated[tuple[Milestone, ...], msgspec.Meta(max_length=MILESTONES_MAX)]
"""What one peer says of a stream, the oldest first."""


def older(told: ToldMilestones, by_s: float) -> ToldMilestones:
    """What a peer said so many seconds ago."""
    return tuple((index, ago_s + by_s) for index, ago_s in told)


class Came(NamedTuple):
    """All events of a term below `end` existed at a time, by this peer's clock."""

    end: int
    at: float


NO_ARRIVAL = Came(0, 0.0)


class Milestones:
    """The indexes up to which a stream had come by which times of this peer's clock. Both grow."""

    __slots__ = ("indexes", "times")

    def __init__(self) -> None:
        self.indexes, self.times = array("Q"), array("d")

    def note(self, index: int, at: float) -> None:
        """All events below an index exist now."""
        if self.indexes and index <= self.indexes[-1]:
            return
        if len(self.times) > 1 and at - self.times[-2] < SPACING_S:
            self.indexes[-1], self.times[-1] = index, at
            return
        self.indexes.append(index)
        self.times.append(at)
        if len(self.times) > MILESTONES_MAX:
            self.thin(at, MILESTONES_MAX * 3 // 4)

    @property
    def end(self) -> int:
        """One past the last event that is known to exist."""
        return self.indexes[-1] if self.indexes else 0

    def before(self, at: float) -> int:
        """All events below this index existed by a time."""
        found = bisect_right(self.times, at)
        return self.indexes[found - 1] if found else 0

    def learn(self, told: Iterable[Milestone], now: float, end: int) -> None:
        """Another peer reports this of the stream, which is known up to `end`: as yet there is nothing beyond."""
        said = ((now - ago_s, min(index, end)) for index, ago_s in told)
        known = [*zip(self.times, self.indexes, strict=True), *said]
        self.indexes, self.times = array("Q"), array("d")
        for at, index in sorted(known):
            if not self.indexes or index > self.indexes[-1]:
                self.indexes.append(index)
                self.times.append(at)
        self.thin(now, MILESTONES_MAX)

    def told(self, missing: Range, now: float, most: int = MILESTONES_MAX) -> ToldMilestones:
        """The milestones in a range, at most so many, for a peer that misses events of it."""
        first, last = missing
        begin, end = bisect_right(self.indexes, first), bisect_left(self.indexes, last) + 1
        part = Milestones()
        part.indexes, part.times = self.indexes[begin:end], self.times[begin:end]
        part.thin(now, most)
        return tuple((min(index, last), max(0.0, now - at)) for index, at in zip(part.indexes, part.times, strict=True))

    def thin(self, now: float, most: int) -> None:
        """Keep at most so many (two at least), closer together the younger they are."""
        part: float = PRECISION
        while len(self.times) > most:
            kept = [len(self.times) - 1]
            for place in range(len(self.times) - 2, 0, -1):
                latest = self.times[kept[-1]]
                if latest - self.times[place - 1] > max(SPACING_S, max(SPACING_S, now - latest) / part):
                    kept.append(place)
            kept.append(0)
            kept.reverse()
            self.indexes = array("Q", [self.indexes[place] for place in kept])
            self.times = array("d", [self.times[place] for place in kept])
            part /= 2
