"""For what there is by the ten thousand: what is empty, or the same in many places, takes no room of its own."""

from collections.abc import Hashable
from typing import Any, Final, TypeVar, cast

T = TypeVar("T", bound=Hashable)

INTERNED_MAX = 2048  # values that are looked for; those before go on living where they are used. A guess


class EmptyDict(dict[Any, Any]):
    """An empty dict that many objects share until they have something to keep: writing to it is a mistake."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(f"{key!r} was to be entered in a dict that others share: give its owner one of its own")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Refused as well."""
        self[key] = default

    def update(self, *entries: Any, **more: Any) -> None:
        """Refused, whatever it is."""
        raise TypeError("a dict that others share was to be updated: give its owner one of its own")


EMPTY: Final = EmptyDict()

_interned: dict[Hashable, Hashable] = {}


def interned(value: T) -> T:
    """An equal value that others hold already, if there was one lately; values that never change only."""
    found = _interned.setdefault(value, value)
    if len(_interned) > INTERNED_MAX:
        _interned.clear()
    return cast("T", found)
