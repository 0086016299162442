"""Counts the calls of functions: what a test can bound where times would depend on what else the machine does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """How many functions were called."""

    count = 0

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls of functions in this block."""
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
