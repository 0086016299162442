"""Checks the arguments of public calls: each mistake is one `LocalError` that names the value."""

from collections.abc import Sequence
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, TypeVar

from quillcast.core.errors import LocalError, quoted
from quillcast.core.numbers import is_number

T = TypeVar("T")

LABEL_BYTES_MAX = 64  # of a subscription's name: it is shown in a column


def seconds(name: str, value: Any) -> float:
    """A waiting time, limited to what threads support. Raises `LocalError` unless it is finite and at least 0."""
    if not is_number(value) or value < 0:
        raise LocalError(f"{name} = {value!r} is not a valid time to wait; use a finite number of seconds from 0 on")
    return float(min(value, TIMEOUT_MAX))


def bound_s(name: str, value: Any) -> float | None:
    """A maximum waiting time, or None. Raises `LocalError` as `seconds` does."""
    return None if value is None else seconds(name, value)


def instance(name: str, value: Any, kind: type[T], wanted: str) -> T | None:
    """The value if it is of that kind, or None. Raises `LocalError` that says what is `wanted` instead."""
    if value is not None and (isinstance(value, type) or not isinstance(value, kind)):
        raise LocalError(f"{name} = {value!r} is {type(value).__name__}; use {wanted}")
    return value


def function(name: str, value: Any) -> None:
    """Raise `LocalError` unless it is None or callable."""
    if value is not None and not callable(value):
        raise LocalError(f"{name} is a function, not {type(value).__name__}")


def path(name: str, value: Any) -> Path | None:
    """A file or folder, or None. Raises `LocalError` for a blank name; an empty one would mean the current folder."""
    if value is None:
        return None
    if not isinstance(value, str | Path):
        raise LocalError(f"{name} = {value!r} is {type(value).__name__}; use a path, as text or a Path")
    if not str(value).strip():
        raise LocalError(f"{name} is an empty path; name a folder, or '.' for the current one")
    return Path(value)


def names(name: str, value: Any) -> Sequence[str]:
    """A list of texts. Raises `LocalError` for anything else, including a single text."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise LocalError(f"{name} = {value!r} is {type(value).__name__}; use a list of texts")
    for each in value:
        instance(name, each, str, "a list of texts")
    return value


def label(value: Any) -> str:
    """The name of a subscription, for people. Raises `LocalError` if it is too long for a column."""
    if not isinstance(value, str):
        raise LocalError(f"a subscription's name is text, not {type(value).__name__}")
    if len(value.encode(errors="replace")) > LABEL_BYTES_MAX or not value.isprintable() or value.isspace():
        raise LocalError(
            f"{quoted(value)} is not a valid subscription name; "
            f"use up to {LABEL_BYTES_MAX} bytes on one line, not only spaces"
        )
    return value
