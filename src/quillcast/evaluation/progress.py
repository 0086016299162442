"""The progress of a run: a bar per stage in a terminal, a line per stage elsewhere."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from quillcast.core.errors import LocalError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

POLL_S = 0.3
WORKERS_TELL_S, WORKERS_MAX_S = 10.0, 120.0  # without any worker of a cluster; guesses


class Display(Protocol):
    """Where a run reports its progress. A context manager that tidies up at its end."""

    def __enter__(self) -> "Display": ...

    def __exit__(self, *error: object) -> None: ...

    def begin(self, what: str) -> None:
        """This stage begins."""
        ...

    def tasks(self, done: int, known: int) -> None:
        """The number of finished and of known tasks of this stage."""
        ...

    def tell(self, what: str) -> None:
        """A notice for people."""
        ...

    def end(self, what: str, seconds: float, *, was_there: bool = False) -> None:
        """The stage is finished, or its result already existed."""
        ...


def display(console: Console) -> Display:
    """The display that suits the console."""
    return Bars(console) if console.is_terminal else Lines(console)


class Lines:
    """Prints a line per stage."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *error: object) -> None: ...

    def begin(self, what: str) -> None: ...

    def tasks(self, done: int, known: int) -> None: ...

    def tell(self, what: str) -> None:
        self._console.print(what, highlight=False, markup=False, soft_wrap=True)

    def end(self, what: str, seconds: float, *, was_there: bool = False) -> None:
        how = "was there" if was_there else f"{seconds:.1f} s"
        self._console.print(f"{what}: {how}", highlight=False, markup=False, soft_wrap=True)


class Bars:
    """Shows a bar per stage, which stays when the stage is done."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}", markup=False), BarColumn(24))
        self._progress = Progress(*columns, TextColumn("{task.fields[told]}"), TimeElapsedColumn(), console=console)
        self._bar: TaskID | None = None

    def __enter__(self) -> "Bars":
        self._progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.__exit__(None, None, None)

    def begin(self, what: str) -> None:
        self._bar = self._progress.add_task(what, total=None, told="")

    def tasks(self, done: int, known: int) -> None:
        if self._bar is not None:
            self._progress.update(self._bar, total=known, completed=done, told=f"{done} of {known} tasks")

    def tell(self, what: str) -> None:
        self._progress.console.print(what, highlight=False, markup=False, soft_wrap=True)

    def end(self, what: str, seconds: float, *, was_there: bool = False) -> None:
        if self._bar is None or was_there:
            self._bar = self._progress.add_task(what, total=None, told="")
        self._progress.update(self._bar, total=1, completed=1, told="was there" if was_there else "")
        self._bar = None


class NoWorkers(LocalError):
    """A cluster has given no worker to this run."""


@contextmanager
def watched(spark: "SparkSession", shown: Display, what: str) -> Iterator[None]:
    """Report the tasks of the Spark jobs in this block. With Spark Connect they are unknown, so nothing is reported.

    Raises `NoWorkers` if a cluster has no worker for them during `WORKERS_MAX_S`; Spark itself would wait forever.
    """
    if not hasattr(spark, "_jvm"):
        yield
        return
    context = spark.sparkContext
    group = f"quillcast-{time.monotonic_ns()}"
    context.setJobGroup(group, what)
    over, gave_up = threading.Event(), threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        worked_s, told = time.monotonic(), False
        while not over.wait(POLL_S):
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            known = [stage for stage in stages if stage]
            if known:
                shown.tasks(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))
            waited_s = time.monotonic() - worked_s
            if _has_workers(context):
                worked_s, told = time.monotonic(), False
            elif waited_s > WORKERS_TELL_S and not told:
                shown.tell(f"no worker of {context.master} has begun; waiting for one, {WORKERS_MAX_S:.0f} s at most")
                told = True
            elif waited_s > WORKERS_MAX_S:
                gave_up.set()
                context.cancelJobGroup(group)  # repeatedly, because the next job of the block may be about to begin

    looking = threading.Thread(target=look, name="progress", daemon=True)
    looking.start()
    try:
        yield
    except Exception as error:
        if gave_up.is_set():
            raise NoWorkers(
                f"no worker of {context.master} was free for {WORKERS_MAX_S:.0f} s; start one with a core and 1 GB of "
                "memory to spare, end other applications, or use --master local[*]"
            ) from error
        raise
    finally:
        over.set()
        looking.join()


def _has_workers(context: "SparkContext") -> bool:
    """Whether tasks can run: on the driver itself without a cluster, otherwise on an executor."""
    return re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None or _executors(context) > 0


def _executors(context: "SparkContext") -> int:
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # there is no public way; the driver is listed
