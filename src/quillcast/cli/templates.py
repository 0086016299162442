"""Placeholders in payloads published from the command line: `{{count}}`, `{{time}}` and others."""

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

_NAMES = re.compile(rb"\{\{ *(count|time|time_ns|random) *\}\}")


class Template:
    """Replaces the known placeholders if `filled`, and leaves all other text unchanged."""

    def __init__(self, *, filled: bool) -> None:
        self._filled = filled
        self._count = 0

    def next(self) -> None:
        """Start the next event."""
        self._count += 1

    def fill(self, text: bytes) -> bytes:
        """The text for this event."""
        return _NAMES.sub(self._value, text) if self._filled and b"{{" in text else text

    def _value(self, found: re.Match[bytes]) -> bytes:
        return str(self._count).encode() if found[1] == b"count" else _VALUES[found[1]]().encode()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_VALUES: dict[bytes, Callable[[], str]] = {
    b"time": _now,
    b"time_ns": lambda: str(time.time_ns()),
    b"random": lambda: os.urandom(8).hex(),
}
