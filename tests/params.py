"""Parameters of tests that prove the same for many cases."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def kind(value: object) -> str:
    """A case goes by the name of its class."""
    return type(value).__name__


def rest_long(values: Iterable[Any], first: int, name: Callable[[Any], str] | None = None) -> list[Any]:
    """The cases after the first so many are left to `make test-all`. `name`: what a case is called in the output."""
    return [
        pytest.param(value, marks=[pytest.mark.long] * (place >= first), id=None if name is None else name(value))
        for place, value in enumerate(values)
    ]
