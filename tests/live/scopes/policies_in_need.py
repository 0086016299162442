"""Policies that go wrong, each in its own way, for `test_confined.py`."""

import os
import sys
from itertools import count
from typing import ClassVar

import msgspec

from quillcast.protocol.scopes.policies import Chain, KAry, Star
from quillcast.protocol.scopes.policy import Delivery, Group, RoundTrips, WantedChannel

Channels = tuple[WantedChannel, ...]


class Good(msgspec.Struct, frozen=True):
    """A star, or a chain."""

    delivery: ClassVar[Delivery] = "tree"
    chain: bool = False

    def fan_out_max(self, group: Group) -> int:
        return len(group.members)

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return (Chain() if self.chain else Star()).channels(group, present, round_trips)


class Plain:
    """No struct: its parameters are those of `__init__`."""

    delivery: ClassVar[Delivery] = "tree"

    def __init__(self, fan_out: int) -> None:
        self.fan_out = fan_out

    def fan_out_max(self, group: Group) -> int:
        return KAry(self.fan_out).fan_out_max(group)

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        sys.stdout.write("printing does no harm\n")
        return KAry(self.fan_out).channels(group, present, round_trips)


class ByDistance(Good):
    """A star around whoever is nearest to all others."""

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        def far(one: int) -> float:
            return sum(round_trips(one, other) or 0.0 for other in group.members)

        hub = min(group.members, key=far)
        return tuple(WantedChannel(hub, each, hub) for each in group.receivers if each != hub)


class Raises(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        raise ZeroDivisionError("no way\nout")


class Loops(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        while True:
            pass


class Floods(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return (WantedChannel(1, 2, 10**9),) * (1 << 22)


class NeverEnds(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        held = []
        while True:
            held.append(bytes(1 << 20))


class NamesStrangers(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return (WantedChannel(group.members[0], 99, None),)


class Exits(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        os._exit(3)


class Quits(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        sys.exit()


class Crashes(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        os.abort()


class AnswersNonsense(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return ("nonsense",)  # type: ignore[return-value]


class AnswersObjects(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return (object(),)  # type: ignore[return-value]


class AnswersNothing(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        return None  # type: ignore[return-value]


class UsesTheOrderOfASet(Good):
    """The order of words in a set differs from process to process."""

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        words = {f"member {each}" for each in group.receivers}
        hub = int(next(iter(words)).removeprefix("member ")) if words else 0
        return tuple(WantedChannel(hub, each, hub) for each in group.receivers if each != hub and hub in group.senders)


class WritesAFile(Good):
    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        with open("flood", "w") as file:  # noqa: PTH123
            file.write("x" * 1000)
        return ()


class CannotBeMade:
    def __init__(self) -> None:
        raise RuntimeError("not today")


class AsksForever(Good):
    """Each question is answered in less than the time limit."""

    def channels(self, group: Group, present: Channels, round_trips: RoundTrips) -> Channels:
        for stranger in count(1000):
            round_trips(stranger, 1)
        return ()
