"""What went wrong at a node, in lines for people."""

from collections import deque
from collections.abc import Callable

PROBLEMS_MAX = 20  # kept for `status`


class Problems(deque[str]):
    """The last lines about what went wrong, for `status`; `listener` gets each when it comes."""

    def __init__(self) -> None:
        super().__init__(maxlen=PROBLEMS_MAX)
        self.listener: Callable[[str], object] | None = None

    def keep(self, line: str) -> None:
        """Keep a line that tells nothing new: peers come and go."""
        super().append(line)

    def append(self, line: str, /) -> None:
        super().append(line)
        if self.listener is not None:
            self.listener(line)
