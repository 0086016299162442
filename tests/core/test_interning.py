"""Nobody can write to a shared empty container."""

import pytest

from quillcast.core.interning import EMPTY, INTERNED_MAX, interned
from quillcast.core.ranges import NO_RANGES


def test_the_shared_empty_dict_cannot_be_changed() -> None:
    assert (dict(EMPTY), EMPTY.pop("key", 1), EMPTY.get("key")) == ({}, 1, None)
    with pytest.raises(TypeError, match="cannot add 'key'"):
        EMPTY["key"] = 1
    with pytest.raises(TypeError, match="cannot add 'key'"):
        EMPTY.setdefault("key", 1)
    with pytest.raises(TypeError, match="update"):
        EMPTY.update(key=1)
    shared = EMPTY
    with pytest.raises(TypeError):
        shared |= {"key": 1}
    assert not EMPTY


def test_the_shared_empty_set_cannot_be_changed() -> None:
    with pytest.raises(TypeError, match=r"cannot add \[1, 2\)"):
        NO_RANGES.add(1, 2)
    with pytest.raises(TypeError, match=r"cannot add \[1, 2\)"):
        NO_RANGES.update([(1, 2)])
    assert not NO_RANGES
    assert NO_RANGES.missing(0, 3) == [(0, 3)]


def test_interning_returns_one_object_for_equal_values() -> None:
    first = bytes(bytearray(b"a value that others hold"))
    assert interned(bytes(bytearray(first))) is interned(bytes(bytearray(first)))


def test_the_number_of_interned_values_is_bounded() -> None:
    first = interned(bytes(bytearray(b"the first")))
    for number in range(2 * INTERNED_MAX):
        assert interned(number.to_bytes(8, "big")) == number.to_bytes(8, "big")
    assert interned(bytes(bytearray(b"the first"))) is not first
