"""What many objects share must not be written to by any."""

import pytest

from quillcast.core.interning import EMPTY, INTERNED_MAX, interned
from quillcast.core.ranges import NO_RANGES


def test_nothing_is_a_dict_that_takes_nothing() -> None:
    assert (dict(EMPTY), EMPTY.pop("key", 1), EMPTY.get("key")) == ({}, 1, None)
    with pytest.raises(TypeError, match="'key' was to be entered"):
        EMPTY["key"] = 1
    with pytest.raises(TypeError, match="'key' was to be entered"):
        EMPTY.setdefault("key", 1)
    with pytest.raises(TypeError, match="updated"):
        EMPTY.update(key=1)
    assert not EMPTY


def test_no_ranges_take_none() -> None:
    with pytest.raises(TypeError, match=r"\[1, 2\) was to be added"):
        NO_RANGES.add(1, 2)
    with pytest.raises(TypeError, match=r"\[1, 2\) was to be added"):
        NO_RANGES.update([(1, 2)])
    assert not NO_RANGES
    assert NO_RANGES.missing(0, 3) == [(0, 3)]


def test_what_is_equal_is_the_same() -> None:
    first = bytes(bytearray(b"a value that others hold"))
    assert interned(bytes(bytearray(first))) is interned(bytes(bytearray(first)))


def test_what_is_looked_for_is_bounded() -> None:
    first = interned(bytes(bytearray(b"the first")))
    for number in range(2 * INTERNED_MAX):
        assert interned(number.to_bytes(8, "big")) == number.to_bytes(8, "big")
    assert interned(bytes(bytearray(b"the first"))) is not first
