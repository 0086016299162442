"""What many objects share must not be written to by any."""

import pytest

from quillcast.core.ranges import NO_RANGES
from quillcast.core.sparing import NOTHING, SHARED_MAX, shared


def test_nothing_is_a_dict_that_takes_nothing() -> None:
    assert (dict(NOTHING), NOTHING.pop("key", 1), NOTHING.get("key")) == ({}, 1, None)
    with pytest.raises(TypeError, match="'key' was to be entered"):
        NOTHING["key"] = 1
    with pytest.raises(TypeError, match="'key' was to be entered"):
        NOTHING.setdefault("key", 1)
    with pytest.raises(TypeError, match="updated"):
        NOTHING.update(key=1)
    assert not NOTHING


def test_no_ranges_take_none() -> None:
    with pytest.raises(TypeError, match=r"\[1, 2\) was to be added"):
        NO_RANGES.add(1, 2)
    with pytest.raises(TypeError, match=r"\[1, 2\) was to be added"):
        NO_RANGES.update([(1, 2)])
    assert not NO_RANGES
    assert NO_RANGES.missing(0, 3) == [(0, 3)]


def test_what_is_equal_is_the_same() -> None:
    first = bytes(bytearray(b"a value that others hold"))
    assert shared(bytes(bytearray(first))) is shared(bytes(bytearray(first)))


def test_what_is_looked_for_is_bounded() -> None:
    first = shared(bytes(bytearray(b"the first")))
    for number in range(2 * SHARED_MAX):
        assert shared(number.to_bytes(8, "big")) == number.to_bytes(8, "big")
    assert shared(bytes(bytearray(b"the first"))) is not first
