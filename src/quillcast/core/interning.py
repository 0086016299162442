"""Shared copies of values that exist ten thousand times: empty containers, and equal immutable values."""

from collections.abc import Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T", bound=Hashable)

INTERNED_MAX = 2048  # values that are remembered; older ones live on where they are used. A guess


class EmptyDict(dict[Any, Any]):
    """An empty dict that many objects share until they have something to store. Writing to it is an error."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(f"cannot add {key!r} to the shared empty dict; create a dict of your own first")

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        """Always raises `TypeError`."""
        raise TypeError("cannot update the shared empty dict; create a dict of your own first")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Always raises `TypeError`."""
        self[key] = default

    def update(self, *entries: Any, **more: Any) -> None:
        """Always raises `TypeError`."""
        raise TypeError("cannot update the shared empty dict; create a dict of your own first")


EMPTY: Final = EmptyDict()

_interned: dict[Any, Any] = {}


def interned(value: T) -> T:
    """Return an equal value that was interned recently, or else this one. For immutable values only.

    Never for numbers that may be of two types: 1, 1.0 and True are equal.
    """
    found: T = _interned.setdefault(value, value)
    if len(_interned) > INTERNED_MAX:
        _interned.clear()
    return found
