"""Who could reach whom, and when: the history of what the network and the processes allowed, whatever peers knew of it.

Two machines are **together** while both their processes run and things pass between them in both directions, straight
or over others. A process that stands still is with nobody.
"""

from collections.abc import Iterator
from typing import NamedTuple

from quillcast.sim.world import Machine, World


class Span(NamedTuple):
    """From one time to another."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """How long it lasts."""
        return self.end - self.start


class Reach:
    """The history of one world. `note` is called after everything that may change who is together."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._times: list[float] = []
        self._groups: list[dict[int, int]] = []  # by machine, the least machine that it is together with

    def note(self) -> None:
        """Something changed: look who is together from now on."""
        groups = self._look()
        if self._groups and self._groups[-1] == groups:
            return
        if self._times and self._times[-1] == self.world.now:
            self._groups[-1] = groups
        else:
            self._times.append(self.world.now)
            self._groups.append(groups)

    def together(self, a: int, b: int, since: float) -> bool:
        """Were these two together all the time from then until now?"""
        for groups in self._groups_since(since):
            if a not in groups or groups[a] != groups.get(b):
                return False
        return True

    def apart(self, a: int, b: int, join_s: float) -> Iterator[Span]:
        """When these two were not together; what is less than `join_s` apart counts as one."""
        start: float | None = None
        end = 0.0
        for since, until, groups in self._spans():
            if a in groups and groups[a] == groups.get(b):
                continue
            if start is not None and since - end > join_s:
                yield Span(start, end)
                start = None
            start, end = since if start is None else start, until
        if start is not None:
            yield Span(start, end)

    def _groups_since(self, since: float) -> Iterator[dict[int, int]]:
        for time, groups in zip(reversed(self._times), reversed(self._groups), strict=True):
            yield groups
            if time <= since:
                return

    def _spans(self) -> Iterator[tuple[float, float, dict[int, int]]]:
        ends = [*self._times[1:], self.world.now]
        yield from zip(self._times, ends, self._groups, strict=True)

    def _look(self) -> dict[int, int]:
        running = [machine.number for machine in self.world.machines if _runs(machine)]
        network = self.world.network
        if not network.cuts:
            return dict.fromkeys(running, running[0]) if running else {}
        groups: dict[int, int] = {}
        for number in running:
            if number in groups:
                continue
            found = [number]
            for here in found:
                groups[here] = number
                found += [
                    there
                    for there in running
                    if there not in groups
                    and there not in found
                    and not network.blocked(here, there)
                    and not network.blocked(there, here)
                ]
        return groups


def _runs(machine: Machine) -> bool:
    return machine.host is not None and machine.host.backlog is None
