"""What happens in a run, drawn from a seed: which processes read and write what, and which faults hit them.

A third of the processes is steady: no fault befalls them, so that there is somebody whom the others' faults must not
touch. Two of their readers are slow, which is nobody's fault and has to stay their own trouble.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Do = Literal["kill", "leave", "stop", "partition"]

STEADY_SHARE = 3  # one in so many processes is steady
ABSENT_SHARE = 4  # at most one in so many is away at a time: what all replicas of something hold may be lost
RECOVERY_S = 4.0  # between two faults of one process; a guess: it is back among the others by then
FAULTS_EVERY_S = (0.5, 4.0)
SIZES = (*[40] * 10, *[4000] * 4, 100_000)
WAITS = ("root", "", "stable", "", "")  # of a writer's events in turns; most wait for nothing
PER_S = 6.0
PAUSE_S = {"cut": 0.4, "wait": 0.05}  # of a slow reader after each event: a cut topic's cannot keep up


@dataclass(frozen=True)
class Setting:
    """A topic."""

    topic: str
    slow: str


@dataclass(frozen=True)
class Reading:
    """A subscription; one that comes and goes is opened and closed all the time."""

    topic: str
    pause_s: float = 0.0
    comes_and_goes: bool = False

    def __str__(self) -> str:
        return self.topic + (" (slow)" if self.pause_s else "") + (" (comes and goes)" if self.comes_and_goes else "")


@dataclass(frozen=True)
class Part:
    """What one process does."""

    name: str
    reads: tuple[Reading, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Fault:
    """Something that befalls processes `at_s`, and is over after `for_s`: those killed or gone are started again."""

    at_s: float
    do: Do
    names: tuple[str, ...]
    for_s: float

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s  {self.do} {', '.join(self.names)} for {self.for_s:.1f} s"


@dataclass(frozen=True)
class Plan:
    """A run."""

    seed: int
    settings: tuple[Setting, ...]
    parts: tuple[Part, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        roles = [
            f"{part.name} reads {', '.join(map(str, part.reads))}; writes {', '.join(part.writes)}"
            for part in self.parts
        ]
        return "\n".join([f"seed {self.seed}", *roles, *map(str, self.faults)])


def draw(seed: int, *, peers: int, seconds: float, lease_s: float, partitions: bool = False) -> Plan:
    """The plan of a seed: faults begin and end within so many seconds."""
    rng = random.Random(seed)
    names = [f"p{number:02}" for number in range(peers)]
    steady = peers // STEADY_SHARE
    settings = [
        Setting(f"chaos/{slow}/{number}", slow) for slow, count in (("cut", 4), ("wait", 2)) for number in range(count)
    ]
    parts = [Part(name, _reads(rng, settings, settings), _writes(rng, settings)) for name in names[steady:]]
    faults = _Faults(rng, names[steady:], seconds, lease_s, partitions=partitions).draw()
    return Plan(seed, tuple(settings), (*_steady(rng, names[:steady], settings), *parts), tuple(faults))


def _steady(rng: random.Random, names: list[str], settings: list[Setting]) -> Iterator[Part]:
    """Every topic has a steady writer and a steady reader; the last of these processes has the slow readers besides."""
    for number, name in enumerate(names):
        own = settings[number :: len(names)]
        reads = _reads(rng, own, settings)
        if number == len(names) - 1:
            reads += tuple(Reading(one.topic, PAUSE_S[one.slow]) for one in (settings[0], settings[-1]))
        yield Part(name, reads, tuple(one.topic for one in own))


def _reads(rng: random.Random, always: list[Setting], settings: list[Setting]) -> tuple[Reading, ...]:
    """Subscriptions that stay, and one that comes and goes."""
    count = max(len(settings) // 2, 1)
    chosen = always if len(always) < len(settings) else rng.sample(settings, count)
    comes = rng.choice(settings)
    return (*[Reading(one.topic) for one in chosen], Reading(comes.topic, comes_and_goes=True))


def _writes(rng: random.Random, settings: list[Setting]) -> tuple[str, ...]:
    return tuple(one.topic for one in rng.sample(settings, rng.choice((1, 1, 2))))


class _Faults:
    """Draws one fault after the other; none befalls a process that is away, or was just now."""

    def __init__(
        self, rng: random.Random, names: list[str], seconds: float, lease_s: float, *, partitions: bool
    ) -> None:
        self._rng, self._names, self._seconds, self._lease_s = rng, names, seconds, lease_s
        self._choices: list[Do] = [
            "kill",
            "kill",
            "stop",
            "stop",
            "stop",
            "leave",
            *(["partition"] * 2 if partitions else []),
        ]
        self._busy_until = dict.fromkeys(names, 0.0)
        self._away_until: dict[str, float] = {}

    def draw(self) -> Iterator[Fault]:
        at_s = 1.0
        while at_s < self._seconds:
            fault = self._fault(at_s)
            if fault is not None:
                yield fault
            at_s += self._rng.uniform(*FAULTS_EVERY_S)

    def _fault(self, at_s: float) -> Fault | None:
        do = self._rng.choice(self._choices)
        for_s = self._duration(do)
        free = [name for name in self._names if self._busy_until[name] <= at_s]
        away = sum(until > at_s for until in self._away_until.values())
        spare = (len(self._names) * STEADY_SHARE // (STEADY_SHARE - 1)) // ABSENT_SHARE - away
        count = self._rng.randint(1, 2) if do != "partition" else 3
        if at_s + for_s > self._seconds or spare < 1 or not free:
            return None
        names = tuple(sorted(self._rng.sample(free, min(count, spare, len(free)))))
        for name in names:
            self._away_until[name] = at_s + for_s
            self._busy_until[name] = at_s + for_s + RECOVERY_S
        return Fault(at_s, do, names, for_s)

    def _duration(self, do: Do) -> float:
        if do in ("kill", "leave"):
            return self._rng.uniform(0.0, 3.0)
        if self._rng.random() < 0.5:
            return self._rng.uniform(0.2, 0.8) * self._lease_s
        return self._rng.uniform(1.2, 1.6) * self._lease_s
