"""Problems of a node, as lines for people."""

import time
from collections.abc import Callable, Sequence
from typing import overload

PROBLEMS_MAX = 20  # kept for `status`
RECENT_S = 600.0  # a problem that has not recurred for this long is over, and `check peer` is OK again; a guess


class Problems(Sequence[str]):
    """The latest problems of the last minutes, for `status`, without repetitions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._listener: Callable[[str], object] | None = None
        self._clock = clock
        self._at: dict[str, float] = {}  # when each line last happened, in this order

    def tell(self, listener: Callable[[str], object]) -> None:
        """Call this function with each new problem."""
        self._listener = listener

    def keep(self, line: str) -> None:
        """Keep a line without telling the listener: peers come and go."""
        self._at.pop(line, None)
        self._at[line] = self._clock()
        if len(self._at) > PROBLEMS_MAX:
            del self._at[next(iter(self._at))]

    def append(self, line: str) -> None:
        self.keep(line)
        self.tell_only(line)

    def tell_only(self, line: str) -> None:
        """Pass a line to the listener without keeping it: it is no problem, or is shown elsewhere while it lasts."""
        if self._listener is not None:
            self._listener(line)

    @property
    def recent(self) -> list[str]:
        """The lines that occurred within `RECENT_S`, latest last."""
        begin = self._clock() - RECENT_S
        return [line for line, at in self._at.items() if at >= begin]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.recent[index]

    def __len__(self) -> int:
        return len(self.recent)
