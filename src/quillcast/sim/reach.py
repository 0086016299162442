"""Which machines could reach each other, and when: what the network and the processes allowed.

Two machines are **together** while both their processes run and data passes between them in both directions, directly
or through others. A paused process is together with no other, and neither is one outside the ring that is cut off from
its entry points.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from quillcast.core.ids import ring_distance
from quillcast.sim.world import World

Groups = dict[int, int | None]
"""For each machine whose process is alive, the smallest machine that it is together with; None while it is paused."""
Closed = frozenset[tuple[int, int]]
"""The pairs of running machines between which data does not pass directly in both directions, the smaller first."""


class Span(NamedTuple):
    """A span of time."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """Its duration."""
        return self.end - self.start


class Reach:
    """The history of one world. Call `note` after every change that may affect which machines are together."""

    def __init__(self, world: World, entries: Callable[[], Mapping[int, Sequence[int]]] = dict) -> None:
        """`entries` returns the entry points of each machine outside the ring."""
        self.world, self.entries = world, entries
        self._times: list[float] = []
        self._groups: list[Groups] = []
        self._closed: list[Closed] = []

    def note(self) -> None:
        """Record which machines are together from now on."""
        groups, closed = self._look(), self._look_for_closed()
        if self._groups and (self._groups[-1], self._closed[-1]) == (groups, closed):
            return
        if self._times and self._times[-1] == self.world.now:
            self._groups[-1], self._closed[-1] = groups, closed
        else:
            self._times.append(self.world.now)
            self._groups.append(groups)
            self._closed.append(closed)

    def together(self, a: int, b: int, since: float) -> bool:
        """Whether two machines were together all the time from then until now."""
        return all(_side_by_side(groups, a, b) for groups in self._groups_since(since))

    def now_with(self, a: int, b: int) -> bool:
        """Whether two machines are together now."""
        return _side_by_side(self._groups[-1], a, b)

    def apart(self, a: int, b: int, join_s: float) -> Iterator[Span]:
        """When two machines were apart although both were alive. Spans less than `join_s` apart are merged."""
        return self.cut_off(a, [b], join_s)

    def group(self, machine: int, at: float) -> list[int]:
        """The machines that were together with a machine at a time."""
        groups = next(each for since, each in self._latest_first() if since <= at)
        return [other for other in groups if _side_by_side(groups, machine, other)]

    def process_paused(self, machine: int, span: Span) -> bool:
        """Whether a process was paused at some time in a span."""
        return any(
            groups.get(machine, machine) is None
            for since, until, groups in self._spans()
            if since < span.end and until > span.start
        )

    def process_ended(self, machine: int, span: Span) -> bool:
        """Whether a process ended in a span, even if another has started since."""
        return any(
            machine not in groups for since, until, groups in self._spans() if since < span.end and until > span.start
        )

    def cut_off(self, machine: int, others: Sequence[int], join_s: float) -> Iterator[Span]:
        """When a machine was together with none of the others, although it and some of them were alive."""

        def is_cut_off(groups: Groups) -> bool:
            alive = machine in groups and any(other in groups for other in others)
            return alive and not any(_side_by_side(groups, machine, other) for other in others)

        return _merged((Span(since, until) for since, until, groups in self._spans() if is_cut_off(groups)), join_s)

    def without_replicas(self, topic: bytes, count: int, join_s: float) -> Iterator[Span]:
        """When the machine closest to a topic reached some of the next `count`, but each only through others."""
        inside = [machine for machine in self.world.machines if machine.number not in self.entries()]
        closest = [each.number for each in sorted(inside, key=lambda machine: ring_distance(machine.node_id, topic))]

        def is_alone(groups: Groups, closed: Closed) -> bool:
            first, *others = [number for number in closest if groups.get(number) is not None][: count + 1] or [0]
            beside = [other for other in others if (min(first, other), max(first, other)) not in closed]
            return not beside and _any_beside(groups, first, others)

        spans = zip(self._spans(), self._closed, strict=True)
        return _merged(
            (Span(since, until) for (since, until, groups), pairs in spans if is_alone(groups, pairs)), join_s
        )

    def _latest_first(self) -> Iterator[tuple[float, Groups]]:
        return zip(reversed(self._times), reversed(self._groups), strict=True)

    def _groups_since(self, since: float) -> Iterator[Groups]:
        for time, groups in self._latest_first():
            yield groups
            if time <= since:
                return

    def _spans(self) -> Iterator[tuple[float, float, Groups]]:
        ends = [*self._times[1:], self.world.now]
        yield from zip(self._times, ends, self._groups, strict=True)

    def _look(self) -> Groups:
        network = self.world.network
        groups: Groups = {machine.number: None for machine in self.world.machines if machine.host is not None}
        running = [number for number in groups if self._runs(number)]
        if not network.cuts:
            groups.update(dict.fromkeys(running, min(running, default=0)))
        for number in running:
            if groups[number] is None:
                self._spread(number, running, groups)
        stranded = [number for number, entries in self.entries().items() if not _any_beside(groups, number, entries)]
        return {**groups, **{number: None for number in stranded if number in groups}}

    def _look_for_closed(self) -> Closed:
        network = self.world.network
        if not network.cuts:
            return frozenset()
        running = [machine.number for machine in self.world.machines if self._runs(machine.number)]
        pairs = combinations(running, 2)
        return frozenset((a, b) for a, b in pairs if network.blocked(a, b) or network.blocked(b, a))

    def _spread(self, number: int, running: list[int], groups: Groups) -> None:
        """Record which machines one is together with, directly or through others."""
        blocked, found = self.world.network.blocked, [number]
        for here in found:
            groups[here] = number
            found += [
                there
                for there in running
                if there not in found and not blocked(here, there) and not blocked(there, here)
            ]

    def _runs(self, number: int) -> bool:
        host = self.world.machines[number].host
        return host is not None and host.backlog is None


def _merged(spans: Iterable[Span], join_s: float) -> Iterator[Span]:
    """Merge spans, given in order, that are less than `join_s` apart."""
    last: Span | None = None
    for span in spans:
        if last is not None and span.start - last.end > join_s:
            yield last
            last = None
        last = Span(span.start if last is None else last.start, span.end)
    if last is not None:
        yield last


def _any_beside(groups: Groups, number: int, others: Iterable[int]) -> bool:
    return any(_side_by_side(groups, number, other) for other in others)


def _side_by_side(groups: Groups, a: int, b: int) -> bool:
    return groups.get(a) is not None and groups[a] == groups.get(b)
