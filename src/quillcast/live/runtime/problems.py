"""Problems of a node, as lines for people."""

from collections import deque
from collections.abc import Callable

PROBLEMS_MAX = 20  # kept for `status`


class Problems(deque[str]):
    """The latest problems, each once, for `status`. `listener` is called with each new one."""

    def __init__(self) -> None:
        super().__init__(maxlen=PROBLEMS_MAX)
        self.listener: Callable[[str], object] | None = None

    def keep(self, line: str) -> None:
        """Keep a line without calling the listener: peers come and go."""
        if line in self:
            self.remove(line)  # it happened again, so it is the latest
        super().append(line)

    def append(self, line: str, /) -> None:
        self.keep(line)
        if self.listener is not None:
            self.listener(line)
