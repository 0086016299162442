"""What each process of a run writes down: a line per entry, in a file of its own that outlives it.

A line is written by one call of the kernel, so that a process that is killed leaves whole lines. All processes of a
machine share the monotonic clock, so that entries of different files can be put in order.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Entry(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Something that happened `at` a time."""

    at: float


# --- what a worker writes


class Began(Entry):
    """A process began: the `life`th of this name."""

    name: str
    life: int


class Opened(Entry):
    """A writer has opened: a publisher, whose events carry its name and count from 0."""

    writer: str
    topic: str
    publisher: str


class Published(Entry):
    """The writer is about to publish."""

    writer: str
    number: int


class Acknowledged(Entry):
    writer: str
    number: int
    wait: str


class Refused(Entry):
    """An acknowledgement did not come."""

    writer: str
    number: int
    wait: str
    why: str


class Subscribing(Entry):
    """A reader is about to subscribe; a slow one takes its time for each event."""

    reader: str
    topic: str
    slow: bool


class Started(Entry):
    """The subscription stands: what is published from now on is due."""

    reader: str


class NotStarted(Entry):
    reader: str
    why: str


class Delivered(Entry):
    """The handler was called; `whole` says whether the payload is as it was made."""

    reader: str
    writer: str
    number: int
    sequence: int
    whole: bool
    recovered: bool = False


class Lost(Entry):
    """A loss report: sequences of a publisher, or, without one, positions in a term that nobody knows more of."""

    reader: str
    publisher: str
    first: int
    last: int
    why: str
    term: str = ""


class Closed(Entry):
    """The subscription is about to be closed."""

    reader: str


class Weighed(Entry):
    rss_bytes: int
    links_opened: int = 0
    """Since the node started."""


class Problem(Entry):
    """A line of the node's `on_problem`."""

    text: str


# --- what the conductor writes


class Topic(Entry):
    """A topic of the run and its settings."""

    topic: str
    delivery: str
    slow: str


class Killed(Entry):
    name: str
    life: int


class Stopped(Entry):
    """The process is paused from now on."""

    name: str
    life: int


class Resumed(Entry):
    name: str
    life: int


class Leaving(Entry):
    """The process is about to be told to leave."""

    name: str
    life: int


class Ended(Entry):
    """The process is gone, with an exit status."""

    name: str
    life: int
    status: int


class Complained(Entry):
    """What the process wrote to its standard error."""

    name: str
    life: int
    text: str


class Partitioned(Entry):
    """From now on nothing passes between these and the others."""

    names: tuple[str, ...]


class Healed(Entry):
    names: tuple[str, ...]


class Finishing(Entry):
    """The last fault is over, and no events follow but each writer's last one."""


class Settled(Entry):
    """Everything had its time; what is missing now will never arrive."""


Line = (
    Began | Opened | Published | Acknowledged | Refused | Subscribing | Started | NotStarted | Delivered | Lost | Closed
    | Weighed | Problem | Topic | Killed | Stopped | Resumed | Leaving | Ended | Complained | Partitioned | Healed
    | Finishing | Settled
)  # fmt: skip

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


class Diary:
    """Appends entries to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: type[Entry], *values: object) -> None:
        """Write an entry of what happens now."""
        os.write(self._file, encode(kind(time.monotonic(), *values)) + b"\n")


def entries(path: Path) -> Iterator[Line]:
    """What a diary says; a last line that is being written does not count yet."""
    written, _, _ = path.read_bytes().rpartition(b"\n")
    for line in written.splitlines():
        yield _decode(line)
