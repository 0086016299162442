"""A judge of the rights of members: those without a right cannot publish or receive, and only they are told so."""

from collections.abc import Iterator

from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.security.access import AccessDenied
from quillcast.sim.applications import Reader, Writer
from quillcast.sim.observed import Observed
from quillcast.sim.scenario import ScopePlan
from quillcast.sim.scope_bounds import REACH_S
from quillcast.sim.world import Broken


class ScopeRights:
    """Judges what members of all scopes did in a finished run."""

    def __init__(self, run: Observed) -> None:
        self.run = run

    def finish(self) -> None:
        """Raise `Broken` if a program did what it has no right to, was not told, or was refused what it may do."""
        for program, doing in self._programs():
            number, topic = program.host.machine.number, program.topic
            who = f"rights: {program.name}, on peer {number}, which {doing} topic {topic}"
            against = [plan for plan in self.run.scenario.scopes if not plan.lets(number, doing)]
            denied = [failure for failure in program.failures if isinstance(failure, AccessDenied)]
            if not against:
                by_scope = [failure for failure in denied if str(failure).startswith("scope ")]  # not by a topic's list
                _holds(not by_scope, f"{who} with the right to it, was refused: {by_scope[:1]}", topic)
                continue
            used = [*self._used(program)]
            _holds(not used, f"{who} without the right to it, did so: {used[:3]}", topic)
            if program.host.alive and any(self._is_told(plan, program) for plan in against):
                _holds(bool(denied) or self._has_ended(program), f"{who} without the right to it, was not told", topic)

    def _programs(self) -> Iterator[tuple[Reader | Writer, Doing]]:
        for reader in self.run.readers:
            yield reader, "subscribes"
        for writer in self.run.writers:
            yield writer, "publishes"

    def _used(self, program: Reader | Writer) -> Iterator[object]:
        """The events that a reader received, or those of a writer that were admitted."""
        if isinstance(program, Reader):
            yield from sorted(program.heard)
        else:
            admitted = self.run.ledgers[program.topic].admitted
            yield from (at for at in range(len(program.written)) if any(admitted(program.publisher.id, at)))

    def _is_told(self, plan: ScopePlan, program: Reader | Writer) -> bool:
        """Whether the manager was in reach of a member for long enough since its program began."""
        number, since = program.host.machine.number, self.run.world.now - REACH_S
        began = program.asked_at if isinstance(program, Reader) else min(program.written, default=self.run.world.now)
        return began < since and self.run.reach.together(number, plan.manager, since)

    def _has_ended(self, program: Reader | Writer) -> bool:
        return program.ended_at is not None if isinstance(program, Reader) else program.publisher.closed


def _holds(condition: bool, otherwise: str, topic: str) -> None:
    if not condition:
        raise Broken(otherwise, f"topic:{topic}")
