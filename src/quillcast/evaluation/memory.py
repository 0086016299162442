"""Measure the memory of a run: a process and its descendants, which are Spark's Java machine and its workers."""

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.2
COST = 0.02  # the largest share of a core for measuring, because the kernel counts all pages of a process
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident(ancestor: int) -> Counter[str]:
    """Resident bytes of a process and its descendants, by the names of programs.

    A page that n processes map counts as 1 / n in each, so that a sum counts it once.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    names = {}
    for number, parent, name in _processes():
        names[number] = name
        children.setdefault(parent, []).append((number, name))
    bytes_: Counter[str] = Counter()
    waiting = [(ancestor, names.get(ancestor, ""))]
    while waiting:
        number, name = waiting.pop()
        waiting += children.get(number, [])
        with suppress(OSError):  # it has ended meanwhile
            bytes_[name] += _of_process(number)
    return bytes_


def _of_process(number: int) -> int:
    """A process's share of resident memory; all that it maps if the kernel does not report shares."""
    with suppress(OSError):
        share = re.search(rb"^Pss: *(\d+) kB", Path(f"/proc/{number}/smaps_rollup").read_bytes(), re.MULTILINE)
        return 1024 * int(share[1]) if share else 0
    return _PAGE_BYTES * int(Path(f"/proc/{number}/statm").read_bytes().split()[1])


def _processes() -> Iterator[tuple[int, int, str]]:
    """All processes with their parents and the names of their programs."""
    for number in os.listdir("/proc"):  # noqa: PTH208 (every fifth of a second: no object per entry)
        if number.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                before, _, after = Path(f"/proc/{number}/stat").read_bytes().rpartition(b")")
                yield int(number), int(after.split()[1]), before.partition(b"(")[2].decode(errors="replace")


class Watch:
    """Records the greatest sum seen, of this process and its descendants, or of another's.

    A context manager: it measures every `EVERY_S` until its end, or less often if that takes more than `COST`.

    Args:
        ancestor: the number of the other process.
    """

    def __init__(self, ancestor: int | None = None) -> None:
        self.peak_bytes = 0
        self.peak: Counter[str] = Counter()
        """The greatest sum, by the names of programs."""
        self._ancestor = os.getpid() if ancestor is None else ancestor
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            began_s = time.thread_time()
            found = resident(self._ancestor)
            if found.total() > self.peak_bytes:
                self.peak, self.peak_bytes = found, found.total()
            if self._over.wait(max(EVERY_S, (time.thread_time() - began_s) / COST)):
                return
