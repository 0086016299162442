"""The process in which a policy of another package runs: `python -m quillcast.live.scopes.child FD SECONDS BYTES`.

It reads orders from a socket and answers them one by one. It limits its own memory, writes no files, and ends when the
other end of the socket is closed or one order takes too long.
"""

import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from quillcast.core.errors import QuillcastError
from quillcast.live.scopes import orders
from quillcast.live.scopes.framing import encoded, receive
from quillcast.live.scopes.process import ProcessLimits
from quillcast.protocol.scopes.policies import first_line, made
from quillcast.protocol.scopes.policy import Group, RoundTrips, ScopePolicy, mechanism_of


class Child:
    """Makes one policy, and asks it."""

    def __init__(self, limits: ProcessLimits) -> None:
        self.limits, self.line = limits, limits.line
        self.policy: ScopePolicy
        self.package = ""

    def serve(self) -> None:
        """Answer orders until the other end closes the socket."""
        while True:
            try:
                order = receive(self.line, orders.ORDERS)
            except EOFError:
                return
            self.limits.begin()
            self.line.sendall(self._answered(order))
            self.limits.end()

    def _answered(self, order: orders.Order) -> bytes:
        try:
            return encoded(self._answer(order))
        except MemoryError:
            return encoded(orders.PolicyFailed("it exceeded its memory limit"))
        except Exception as error:  # noqa: BLE001  a policy may raise anything
            return encoded(orders.PolicyFailed(told(error, self.package)))

    def _answer(self, order: orders.Order) -> orders.OrderAnswer:
        match order:
            case orders.Make(name, reference, parameters, content):
                self.package = Path(reference.partition(":")[0].partition(".")[0]).stem
                self.policy = made(name, found(reference, content), parameters)
                return orders.Made(self.policy.delivery, first_line(self.policy), mechanism_of(self.policy))
            case orders.AskFanOut(group):
                return orders.FanOutIs(self.policy.fan_out_max(group))
            case orders.AskChannels(group, present):
                channels = tuple(self.policy.channels(group, present, self._round_trips(group)))
                return orders.ChannelsAre(channels, self.policy.fan_out_max(group))
            case orders.RoundTripsAre():
                raise ValueError("nobody asked for round trips")

    def _round_trips(self, group: Group) -> RoundTrips:
        """The round trips for a policy. Those of one member are fetched together."""
        rows: dict[int, dict[int, float | None]] = {}

        def round_trip(one: int, other: int) -> float | None:
            if one not in rows:
                self.line.sendall(encoded(orders.AskRoundTrips(one)))
                answer = receive(self.line, orders.ORDERS)
                assert isinstance(answer, orders.RoundTripsAre)
                rows[one] = dict(zip(group.members, answer.seconds, strict=True))
            return rows[one].get(other)

        return round_trip


def found(reference: str, content: bytes) -> Callable[..., Any]:
    """The class `module:Class`, or `FILE.py:Class` with the file's content."""
    where, _, name = reference.partition(":")
    if not content:
        sys.path.append(str(Path.cwd()))
        module = import_module(where)
    else:
        module = ModuleType(Path(where).stem)
        sys.modules[module.__name__] = module
        exec(compile(content, where, "exec"), module.__dict__)
    factory: Callable[..., Any] = attrgetter(name)(module)
    return factory


def told(error: Exception, package: str) -> str:
    """Describe an exception of a policy in one line, with the last line of its own package."""
    if isinstance(error, QuillcastError):
        return " ".join(str(error).split())
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if package in {file.stem, *file.parts}:
            where = f" ({file.name}, line {frame.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


if __name__ == "__main__":
    Child(ProcessLimits(sys.argv)).serve()
