"""Measure the memory of a run: this process and its descendants, which are Spark's Java machine and its workers."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(ancestor: int) -> int:
    """Resident memory of a process and its descendants. Pages mapped by several of them count several times."""
    children: dict[int, list[int]] = {}
    for number, parent in _processes():
        children.setdefault(parent, []).append(number)
    total, waiting = 0, [ancestor]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, [])
        with suppress(OSError):  # it has ended meanwhile
            total += _PAGE_BYTES * int(Path(f"/proc/{number}/statm").read_bytes().split()[1])
    return total


def _processes() -> Iterator[tuple[int, int]]:
    """All processes with their parents."""
    for name in os.listdir("/proc"):  # noqa: PTH208 (every fifth of a second: no object per entry)
        if name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                after_name = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2]
                yield int(name), int(after_name.split()[1])


class Watch:
    """Records the greatest sum seen. A context manager: it checks every `EVERY_S` until its end."""

    def __init__(self) -> None:
        self.peak_bytes = 0
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
            self.peak_bytes = max(self.peak_bytes, resident_bytes(os.getpid()))
            if self._over.wait(EVERY_S):
                return
