"""Checks for settings that are numbers: finite, and not below a sensible minimum."""

import sys
from collections.abc import Collection
from typing import Any

import msgspec

from quillcast.core.errors import LocalError


def check_numbers(settings: msgspec.Struct, table: str, may_be_zero: Collection[str] = ()) -> None:
    """Raise `LocalError` for the first setting of a table that is not a finite number above 0.

    Settings in `may_be_zero` may also be 0. If the default is a boolean, the setting must be one. Other types are not
    checked.
    """
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(field.default, bool):
            wanted, fits = "True or False", isinstance(value, bool)
        elif isinstance(field.default, int | float):
            whole, least = isinstance(field.default, int), "from 0 on" if field.name in may_be_zero else "above 0"
            wanted = f"a {'whole' if whole else 'finite'} number {least}"
            fits = is_number(value, whole=whole) and (value > 0 or (value == 0 and field.name in may_be_zero))
        else:
            continue
        if not fits:
            raise LocalError(f"{table}.{field.name} is {value!r}; use {wanted}")


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether it is a finite number, and not a boolean."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return abs(value) <= sys.float_info.max  # larger integers cannot be converted to a float
