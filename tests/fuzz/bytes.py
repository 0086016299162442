"""What the fuzzers throw at decoders: any bytes, and damaged valid ones; and for how long."""

import enum
import functools
import os
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from quillcast.protocol.scopes.filters import Filter, Modulo

EXAMPLES = "QUILLCAST_FUZZ_EXAMPLES"
"""Environment variable: examples per property, for a long run; fifty, within seconds, if it is not set."""

FUZZ = settings(max_examples=int(os.environ.get(EXAMPLES, "50")))

ANY_BYTES = st.binary(max_size=300)
PLACE = st.integers(0, 1 << 20)


def _flip(data: bytes, place: int, extra: bytes) -> bytes:
    """One bit is another."""
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ 1 << place % 8]) + data[at + 1 :]


def _overwrite(data: bytes, place: int, extra: bytes) -> bytes:
    at = place % len(data)
    return data[:at] + extra + data[at + len(extra) :]


def _insert(data: bytes, place: int, extra: bytes) -> bytes:
    at = place % len(data)
    return data[:at] + extra + data[at:]


def _truncate(data: bytes, place: int, extra: bytes) -> bytes:
    return data[: place % len(data)]


def _extreme(data: bytes, place: int, extra: bytes) -> bytes:
    """A number of 4 or 8 bytes is the largest or the smallest that there is."""
    value = [b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8, b"\xff" * 7 + b"\x7f"][place % 4]
    return _overwrite(data, place, value)[: len(data)]


def _repeat(data: bytes, place: int, extra: bytes) -> bytes:
    """A part comes twice."""
    at = place % len(data)
    return data[:at] + data[at : at + 16] + data[at:]


Damage = Callable[[bytes, int, bytes], bytes]
DAMAGES = st.sampled_from([_flip, _overwrite, _insert, _truncate, _extreme, _repeat])


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes with a few faults, or the head of some spliced to the tail of others."""
    data = draw(valid)
    if draw(st.booleans()):
        other = draw(valid)
        data = data[: draw(PLACE) % (len(data) + 1)] + other[draw(PLACE) % (len(other) + 1) :]
    for _ in range(draw(st.integers(1, 4))):
        if data:
            data = draw(DAMAGES)(data, draw(PLACE), draw(st.binary(min_size=1, max_size=8)))
    return data


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of an annotated type, as far as they can travel: integers of 64 bits, floats that equal themselves."""
    plain = {
        bytes: st.binary(max_size=20) | st.binary(min_size=16, max_size=16),
        str: st.text(max_size=10),
        bool: st.booleans(),
        int: st.integers(-(2**63), 2**64 - 1) | st.integers(0, 100),
        float: st.floats(allow_nan=False),
        type(None): st.none(),
    }
    return plain[hint] if hint in plain else _composed(hint)


def _composed(hint: Any) -> st.SearchStrategy[Any]:
    parts = typing.get_args(hint)
    match typing.get_origin(hint):
        case typing.Annotated:
            return _bounded(parts[0], *parts[1:])
        case typing.Literal:
            return st.sampled_from(parts)
        case typing.Union | types.UnionType:
            return st.one_of([values(part) for part in parts])
        case origin if origin is list:
            return st.lists(values(parts[0]), max_size=4)
        case origin if origin is dict:
            return st.dictionaries(values(parts[0]), values(parts[1]), max_size=3)
        case origin if origin is tuple and parts[-1] is ...:
            return st.lists(values(parts[0]), max_size=4).map(tuple)
        case origin if origin is tuple:
            return st.tuples(*map(values, parts))
    if issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return _built(hint)


_MODULO = st.integers(1, 8).map(lambda n: Modulo(n, (n - 1,)))
PARTICULAR: dict[type, st.SearchStrategy[Any]] = dict.fromkeys(typing.get_args(Filter), _MODULO)
"""Values of classes whose fields do not vary freely. Tests of filters know the others."""


@functools.cache  # a class may contain itself
def _built(kind: type) -> st.SearchStrategy[Any]:
    if kind in PARTICULAR:
        return PARTICULAR[kind]
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in msgspec.structs.fields(kind)] if issubclass(kind, msgspec.Struct) else hints
    return st.deferred(lambda: st.builds(kind, **{name: values(hints[name]) for name in names}))


def _bounded(hint: Any, meta: msgspec.Meta, *more: msgspec.Meta) -> st.SearchStrategy[Any]:
    if hint is bytes:
        return st.binary(min_size=meta.min_length or 0, max_size=meta.max_length)
    if typing.get_origin(hint) is tuple and meta.max_length is not None:
        least = max(each.min_length or 0 for each in (meta, *more))
        return st.lists(values(typing.get_args(hint)[0]), min_size=least, max_size=min(4, meta.max_length)).map(tuple)
    if hint is float:
        return st.floats(meta.ge, meta.le, allow_nan=False)
    if hint is not int:
        return values(hint)
    return st.integers(meta.ge, meta.le) | st.integers(meta.ge, 100 if meta.le is None else min(100, meta.le))
