"""A judge of the bounds of scopes: they hold, waiting programs are told so, and none waits while there is room.

A member continues its use of a topic while it is out of its manager's reach, and another may get its place meanwhile.
So this judges a bound among the members that have been in reach of the manager since they began.
"""

from collections.abc import Iterator
from typing import NamedTuple

from quillcast.protocol.scopes.uses import Doing
from quillcast.sim.applications import Reader, Writer
from quillcast.sim.observed import Observed
from quillcast.sim.scenario import ScopePlan
from quillcast.sim.world import Broken

REACH_S = 10.0  # by then a member and its manager have heard from each other again; a guess: two leases
SOON_S = 3.0  # from an action of a member until its manager takes it into account; a guess


class Use(NamedTuple):
    """A member publishes in a topic, or subscribes to it."""

    scope: str
    topic: str
    doing: Doing
    machine: int
    start: int
    """The number of the process on that machine."""


class ScopeBounds:
    """Judges the bounds of all scopes in a run."""

    def __init__(self, run: Observed) -> None:
        self.run = run
        self.plans = [each for each in run.scenario.scopes if each.publishers_max or each.subscribers_max]
        self.began: dict[Use, float] = {}

    def check(self) -> None:
        """Raise `Broken` if more members use a topic than its bound allows."""
        now = self.run.world.now
        self.began = {use: self.began.get(use, now) for plan in self.plans for use in self._uses(plan)}
        for plan in self.plans:
            for topic in self.run.topics:
                for doing, most in _bounds(plan):
                    near = [use.machine for use, since in self.began.items() if self._is_near(plan, use, since)
                            and (use.scope, use.topic, use.doing) == (plan.name, topic, doing)]  # fmt: skip
                    _holds(
                        len(near) <= most,
                        f"bounds: members {near} of scope {plan.name} use topic {topic} ({doing}), of at most {most}",
                        topic,
                    )

    def finish(self) -> None:
        """Raise `Broken` if at the end a program waits although there is room, or was not told why it waits."""
        for plan in self.run.scenario.scopes:
            self._finish_clients(plan)
            uses = [*self._uses(plan)]
            for number, topic, doing, why in self._waiting(plan):
                about = f"{_who(number, plan)}, which waits for topic {topic} ({doing})"
                _holds(bool(why), f"bounds: {about}, is not told why", topic)
                used = {use.machine for use in uses if (use.topic, use.doing) == (topic, doing)}
                most = dict(_bounds(plan)).get(doing, 0)
                if most and self._in_reach(plan, number, REACH_S):
                    _holds(len(used) >= most, f"bounds: {about}, though only {sorted(used)} use it: {why}", topic)

    def _finish_clients(self, plan: ScopePlan) -> None:
        clients = [each for each in self.run.clients if each.host.alive and not each.gone
                   and each.host.machine.number in plan.members]  # fmt: skip
        for client in clients:
            if not client.begun and self._in_reach(plan, client.host.machine.number, REACH_S):
                full = bool(plan.clients_max) and sum(each.begun for each in clients) >= plan.clients_max
                about = f"a client of {_who(client.host.machine.number, plan)} waits ({client.waits})"
                _holds(bool(client.waits), f"bounds: {about}, and is not told why", client.topic)
                _holds(full, f"bounds: {about}, though there is room for it", client.topic)

    def _uses(self, plan: ScopePlan) -> Iterator[Use]:
        for writer in self.run.writers:
            goes_on = writer.publisher.root is not None and not (writer.publisher.closed or writer.failures)
            if goes_on and writer.host.alive and writer.host.machine.number in plan.members:
                yield self._use(plan, writer, "publishes")
        for reader in self.run.readers:
            goes_on = reader.started_at is not None and reader.ended_at is None
            if goes_on and reader.host.alive and reader.host.machine.number in plan.members:
                yield self._use(plan, reader, "subscribes")

    def _use(self, plan: ScopePlan, program: Reader | Writer, doing: Doing) -> Use:
        machine = program.host.machine
        return Use(plan.name, program.topic, doing, machine.number, machine.starts)

    def _waiting(self, plan: ScopePlan) -> Iterator[tuple[int, str, Doing, str]]:
        """The programs on members that have not begun, and why."""
        now = self.run.world.now
        for writer in self.run.writers:
            waits = writer.host.alive and not (writer.publisher.closed or writer.failures or writer.publisher.admitted)
            number, written = writer.host.machine.number, writer.written
            if waits and written and now - written[0] > REACH_S and number in plan.members:
                yield number, writer.topic, "publishes", writer.waits
        for reader in self.run.readers:
            waits = reader.host.alive and reader.started_at is None and reader.ended_at is None
            if waits and now - reader.asked_at > REACH_S and reader.host.machine.number in plan.members:
                yield reader.host.machine.number, reader.topic, "subscribes", reader.waits

    def _is_near(self, plan: ScopePlan, use: Use, since: float) -> bool:
        return self.run.reach.together(use.machine, plan.manager, since - SOON_S)

    def _in_reach(self, plan: ScopePlan, number: int, for_s: float) -> bool:
        return self.run.reach.together(number, plan.manager, self.run.world.now - for_s)


def _bounds(plan: ScopePlan) -> Iterator[tuple[Doing, int]]:
    if plan.publishers_max:
        yield "publishes", plan.publishers_max
    if plan.subscribers_max:
        yield "subscribes", plan.subscribers_max


def _who(number: int, plan: ScopePlan) -> str:
    return f"peer {number} in scope {plan.name}"


def _holds(condition: bool, otherwise: str, topic: str) -> None:
    if not condition:
        raise Broken(otherwise, f"topic:{topic}")
