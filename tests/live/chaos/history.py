"""What happened in a run, according to its diaries: processes, their writers and readers, and the faults."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf
from pathlib import Path

from tests.live.chaos import diary as entry

Span = tuple[float, float]  # from when to when


@dataclass
class Life:
    """A process from its start to its end."""

    name: str
    number: int
    began_at: float = 0.0
    ended_at: float = inf
    killed: bool = False
    left: bool = False
    """Was it told to leave?"""
    weights: list[int] = field(default_factory=list)
    links_opened: list[int] = field(default_factory=list)
    """Its resident memory, bytes, every second."""


@dataclass
class Writer:
    """A publisher: when each of its events was published and acknowledged."""

    name: str
    topic: str
    publisher: str
    life: Life
    published: dict[int, float] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)
    stable: dict[int, float] = field(default_factory=dict)
    refused: list[entry.Refused] = field(default_factory=list)


@dataclass
class Reader:
    """A subscription: what its handlers were called with, in order."""

    name: str
    topic: str
    slow: bool
    life: Life
    started_at: float = inf
    closed_at: float = inf
    failure: str = ""
    deliveries: list[entry.Delivered] = field(default_factory=list)
    losses: list[entry.Lost] = field(default_factory=list)

    @property
    def ended_at(self) -> float:
        return min(self.closed_at, self.life.ended_at)

    @cached_property
    def got(self) -> dict[tuple[str, int], float]:
        """Each event that it got, by writer and number, and when for the first time."""
        return {event: self.deliveries[place].at for event, place in self.first.items()}

    @cached_property
    def first(self) -> dict[tuple[str, int], int]:
        """Where in `deliveries` each event came for the first time."""
        places: dict[tuple[str, int], int] = {}
        for place, one in enumerate(self.deliveries):
            places.setdefault((one.writer, one.number), place)
        return places

    @cached_property
    def numbers(self) -> dict[str, list[int]]:
        """Which events of each writer came, in order."""
        came = defaultdict(list)
        for writer, number in sorted(self.first):
            came[writer].append(number)
        return came

    @cached_property
    def told(self) -> Counter[tuple[str, int]]:
        """How often each event was reported lost, by publisher and sequence."""
        return Counter(
            (loss.publisher, n) for loss in self.losses if loss.publisher for n in range(loss.first, loss.last)
        )

    @property
    def uncertain(self) -> int:
        """Positions that were reported lost without saying whose events stood there."""
        return sum(loss.last - loss.first for loss in self.losses if not loss.publisher)


@dataclass
class History:
    """A run, as its diaries tell it."""

    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    readers: dict[str, Reader] = field(default_factory=dict)
    topics: dict[str, entry.Topic] = field(default_factory=dict)
    befallen: dict[str, float] = field(default_factory=dict)
    """Names of processes that anything befell, and when for the first time."""
    stopped: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    """When processes were paused."""
    partitioned: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))
    """When processes were cut off from those that were not."""
    statuses: list[entry.Ended] = field(default_factory=list)
    complaints: list[entry.Complained] = field(default_factory=list)
    problems: list[entry.Problem] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    finishing_at: float = inf
    settled_at: float = inf
    last_at: float = 0.0

    @classmethod
    def read(cls, folder: Path) -> "History":
        """The history in a folder of diaries; the conductor's is read first, for it knows what befell whom."""
        history = cls()
        paths = sorted(folder.glob("*.diary"), key=lambda path: (path.name != "conductor.diary", path.name))
        for path in paths:
            _Reading(history).read(entry.entries(path))
        return history

    def life(self, name: str, number: int) -> Life:
        return self.lives.setdefault((name, number), Life(name, number))

    @property
    def troubled_at(self) -> float:
        """When the first fault began: before, none made a topic change its root."""
        return min(self.befallen.values(), default=inf)

    def healthy(self, one: Writer | Reader) -> bool:
        """Did nothing ever befall its process, and does it take what comes?"""
        return one.life.name not in self.befallen and not (isinstance(one, Reader) and one.slow)

    def reliable(self, reader: Reader) -> bool:
        return self.topics[reader.topic].delivery == "reliable"

    def lives_on(self, reader: Reader) -> bool:
        """Is it there when everything has had its time?"""
        return reader.ended_at >= self.settled_at

    def of(self, topic: str) -> list[Writer]:
        """The writers of a topic."""
        return self._writers[topic]

    def read_by(self, topic: str) -> list[Reader]:
        """The readers of a topic."""
        return self._readers[topic]

    def apart(self, one: Life, other: Life) -> list[Span]:
        """When two processes could not reach each other, for one of them was cut off.

        Or one of them began while the other was cut off, and they did not know each other's addresses: those that are
        cut off reach each other, but only peers outside could tell them.
        """
        mine, theirs = self.partitioned[one.name], self.partitioned[other.name]
        began = max(one.began_at, other.began_at)
        met = _both_outside(began, mine, theirs) if one is not other else began
        edges = sorted({edge for span in (*mine, *theirs) for edge in span} | ({began, met} if met > began else set()))
        found: list[Span] = []
        for since, until in pairwise(edges):
            if began <= since < met or _within(since, mine) != _within(since, theirs):
                joined = found.pop()[0] if found and found[-1][1] == since else since
                found.append((joined, until))
        return found

    @cached_property
    def _writers(self) -> dict[str, list[Writer]]:
        found = defaultdict(list)
        for writer in self.writers.values():
            found[writer.topic].append(writer)
        return found

    @cached_property
    def _readers(self) -> dict[str, list[Reader]]:
        found = defaultdict(list)
        for reader in self.readers.values():
            found[reader.topic].append(reader)
        return found

    @cached_property
    def by_publisher(self) -> dict[str, Writer]:
        return {writer.publisher: writer for writer in self.writers.values()}


class _Reading:
    """Reads one diary into the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._life = Life("", 0)
        self._away: dict[str, float] = {}  # names, and since when

    def read(self, lines: Iterable[entry.Line]) -> None:
        for line in lines:
            self._history.last_at = max(self._history.last_at, line.at)
            self._note(line)

    def _note(self, line: entry.Line) -> None:
        history = self._history
        match line:
            case entry.Began(name=name, life=life):
                self._life = history.life(name, life)
                self._life.began_at = line.at
            case entry.Weighed():
                self._life.weights.append(line.rss_bytes)
                self._life.links_opened.append(line.links_opened)
            case entry.Problem():
                history.problems.append(line)
            case entry.Opened() | entry.Published() | entry.Acknowledged() | entry.Refused():
                self._note_writer(line)
            case (
                entry.Subscribing() | entry.Started() | entry.NotStarted() | entry.Delivered() | entry.Lost()
                | entry.Closed()
            ):  # fmt: skip
                self._note_reader(line)
            case _:
                self._note_fault(line)

    def _note_writer(self, line: entry.Opened | entry.Published | entry.Acknowledged | entry.Refused) -> None:
        writers = self._history.writers
        match line:
            case entry.Opened():
                writers[line.writer] = Writer(line.writer, line.topic, line.publisher, self._life)
            case entry.Published():
                writers[line.writer].published[line.number] = line.at
            case entry.Acknowledged():
                writers[line.writer].acknowledged[line.number] = line.at
                if line.wait == "stable":
                    writers[line.writer].stable[line.number] = line.at
            case entry.Refused():
                writers[line.writer].refused.append(line)

    def _note_reader(
        self,
        line: entry.Subscribing | entry.Started | entry.NotStarted | entry.Delivered | entry.Lost | entry.Closed,
    ) -> None:
        readers = self._history.readers
        match line:
            case entry.Subscribing():
                readers[line.reader] = Reader(line.reader, line.topic, line.slow, self._life)
            case entry.Started():
                readers[line.reader].started_at = line.at
            case entry.NotStarted():
                readers[line.reader].failure = line.why
            case entry.Delivered():
                readers[line.reader].deliveries.append(line)
            case entry.Lost():
                readers[line.reader].losses.append(line)
            case entry.Closed():
                readers[line.reader].closed_at = line.at

    def _note_fault(self, line: entry.Line) -> None:
        history = self._history
        match line:
            case entry.Topic():
                history.topics[line.topic] = line
            case entry.Killed() | entry.Leaving():
                life = history.life(line.name, line.life)
                life.ended_at = line.at
                life.killed, life.left = isinstance(line, entry.Killed), isinstance(line, entry.Leaving)
                if line.at < history.settled_at:  # afterwards all leave
                    history.befallen.setdefault(line.name, line.at)
                    history.faults[type(line).__name__] += 1
            case entry.Ended():
                history.statuses.append(line)
                life = history.life(line.name, line.life)
                life.ended_at = min(life.ended_at, line.at)
            case entry.Complained():
                history.complaints.append(line)
            case entry.Stopped() | entry.Partitioned():
                history.faults[type(line).__name__] += 1
                for name in _names(line):
                    history.befallen.setdefault(name, line.at)
                    self._away[name] = line.at
            case entry.Resumed() | entry.Healed():
                spans = history.partitioned if isinstance(line, entry.Healed) else history.stopped
                for name in _names(line):
                    spans[name].append((self._away.pop(name), line.at))
            case entry.Finishing():
                history.finishing_at = line.at
            case entry.Settled():
                history.settled_at = line.at


def _both_outside(began: float, mine: list[Span], theirs: list[Span]) -> float:
    """The first time from `began` on at which neither of two was cut off."""
    times = [began, *sorted(until for _, until in (*mine, *theirs) if until > began)]
    return next((at for at in times if not _within(at, mine) and not _within(at, theirs)), inf)


def _within(at: float, spans: list[Span]) -> bool:
    return any(since <= at < until for since, until in spans)


def _names(line: entry.Stopped | entry.Resumed | entry.Partitioned | entry.Healed) -> tuple[str, ...]:
    return line.names if isinstance(line, entry.Partitioned | entry.Healed) else (line.name,)
