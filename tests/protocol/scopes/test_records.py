"""Routing records: matching, rewriting, and their bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.protocol.scopes.labels import DEPTH_MAX, LABEL_MAX, ChannelLabel, MalformedRecord
from quillcast.protocol.scopes.records import (
    NO_RECORD,
    VERSIONS,
    Pair,
    Record,
    arrived,
    decode,
    encode,
    forwarded,
    matches,
    misroutes,
    originated,
)
from tests.fuzz.bytes import ANY_BYTES, FUZZ

LABELS = st.integers(1, LABEL_MAX)
PAIRS = st.builds(Pair, LABELS, LABELS, st.just(0) | st.integers(0, VERSIONS - 1))


@st.composite
def records(draw: st.DrawFn) -> Record:
    top = draw(st.integers(1, DEPTH_MAX))
    return Record(top, tuple(draw(st.lists(PAIRS, min_size=1, max_size=DEPTH_MAX + 1 - top))))


def test_a_new_record_is_where_it_originated() -> None:
    assert originated(2, 7) == Record(2, (Pair(7, 7),))


def test_a_channel_takes_bundles_of_its_origin_that_are_at_its_source() -> None:
    record = Record(1, (Pair(1, 2), Pair(5, 6)))
    assert matches(record, ChannelLabel((2, 6), (3,)), depth=1, origin=1)
    assert not matches(record, ChannelLabel((2, 6), (3,)), depth=1, origin=2)
    assert matches(record, ChannelLabel((2, 6), (3,)), depth=1, origin=None)
    assert matches(record, ChannelLabel((6,), (7,)), depth=2, origin=5)


def test_without_a_pair_for_its_level_a_channel_takes_what_originated_at_its_source() -> None:
    record = originated(3, 9)
    assert matches(record, ChannelLabel((2, 4, 9), (3,)), depth=1, origin=2)
    assert matches(record, ChannelLabel((2, 4, 9), (3,)), depth=1, origin=None)
    assert not matches(record, ChannelLabel((2, 4, 9), (3,)), depth=1, origin=3)
    assert not misroutes(record, ChannelLabel((2, 4, 9), (3,)), depth=1)


def test_a_bundle_that_is_elsewhere_is_misrouted_and_matches_nothing() -> None:
    record, channel = Record(1, (Pair(1, 2),)), ChannelLabel((3,), (4,))
    assert misroutes(record, channel, depth=1)
    assert not matches(record, channel, depth=1, origin=None)


def test_a_bundle_never_returns_to_where_it_originated() -> None:
    assert not matches(Record(1, (Pair(1, 2),)), ChannelLabel((2,), (1,)), depth=1, origin=None)


def test_a_record_that_ends_above_a_channels_level_does_not_match_it() -> None:
    """An external multicast mechanism reached all members at once: there is nothing to do inside."""
    assert not matches(Record(1, (Pair(1, 2),)), ChannelLabel((5,), (6,)), depth=2, origin=None)


def test_forwarding_extends_the_record_and_replaces_what_is_inside() -> None:
    assert forwarded(originated(3, 9), ChannelLabel((2, 4, 9), (3, 8)), depth=1) == Record(1, (Pair(2, 3), Pair(8, 8)))
    deep = Record(1, (Pair(1, 2), Pair(5, 6), Pair(7, 7)))
    assert forwarded(deep, ChannelLabel((6, 7), (4,)), depth=2) == Record(1, (Pair(1, 2), Pair(5, 4)))
    assert forwarded(deep, ChannelLabel((2, 6, 7), (3, 8)), depth=1) == Record(1, (Pair(1, 3), Pair(8, 8)))


def test_a_bundle_on_its_way_keeps_to_channels_of_one_version() -> None:
    onwards, there = Record(1, (Pair(1, 2, 5),)), ChannelLabel((2,), (3,))
    assert matches(onwards, there, 1, None, 5, begins=False)
    assert not matches(onwards, there, 1, None, 6, begins=True)
    assert forwarded(onwards, there, 1, 5) == Record(1, (Pair(1, 3, 5),))


def test_a_bundle_begins_its_way_on_the_channels_that_are_for_that() -> None:
    first = ChannelLabel((1,), (2,))
    for begun in (originated(1, 1), originated(2, 7)):
        channel = first if begun.top == 1 else ChannelLabel((1, 7), (2,))
        assert matches(begun, channel, 1, None, 6, begins=True)
        assert not matches(begun, channel, 1, None, 5, begins=False)
    assert forwarded(originated(1, 1), first, 1, 6) == Record(1, (Pair(1, 2, 6),))


def test_a_bundle_in_no_scope_has_an_empty_record() -> None:
    assert decode(encode(NO_RECORD)) == NO_RECORD
    assert encode(NO_RECORD) == b""


@FUZZ
@given(records())
def test_a_record_survives_its_bytes(record: Record) -> None:
    data = encode(record)
    assert decode(data) == record
    assert len(data) <= 2 + 7 * len(record.pairs)


@FUZZ
@given(
    ANY_BYTES
    | st.binary(max_size=8).map(lambda rest: b"\0\1" + rest)
    | st.binary(max_size=8).map(lambda rest: b"\1\1" + rest)
)
def test_bytes_are_a_record_in_its_only_form_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedRecord):
        assert encode(decode(data)) == data


def test_a_record_that_came_over_a_multicast_mechanism_is_of_the_level_of_its_last_pair() -> None:
    """Who is a member of a scope and of its superscope gets the bundles of both."""
    inner = Record(1, (Pair(1, 5), Pair(2, 2)))
    assert arrived(inner, 2, 3) == Record(1, (Pair(1, 5), Pair(2, 3)))
    assert arrived(inner, 1, 3) is None
    assert arrived(Record(1, (Pair(1, 5),)), 1, 3) == Record(1, (Pair(1, 3),))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0", "1 bytes are not a routing record"),
        (b"\2\1\1\1", "of a known format"),
        (b"\1\1\1\1\1", "none but 0"),
        (b"\1\1\1\1\x80\1", "version 127"),
        (b"\0\1", "has 0 pairs"),
        (b"\0\0\1\1", "begins at depth 0"),
        (b"\0\1\1", "no end"),
        (b"\0\1\1\0", "is 0"),
        (b"\0\1\1\x81\0", "more bytes than it needs"),
        (b"\0\1\1\x81\x81\x81\1", "no end within 3 bytes"),
        (b"\0\x0f\1\1\1\1", "deeper than 15"),
    ],
)
def test_malformed_bytes_say_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(MalformedRecord, match=why):
        decode(data)
