"""Ids on the ring (Pastry, section 2)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quillcast.core import ids
from tests.ids import from_number

IDS = st.binary(min_size=16, max_size=16)
BITS = st.sampled_from([1, 2, 4, 8])


def id_(hexadecimal: str) -> bytes:
    """An id by its first digits."""
    return bytes.fromhex(hexadecimal.ljust(32, "0"))


def test_a_node_id_is_the_leading_half_of_the_keys_hash() -> None:
    assert ids.node_id(b"key") == hashlib.sha256(b"key").digest()[:16]


def test_ids_are_computed_identically_by_every_peer() -> None:
    """Peers agree on ids because all compute them alike: a change here would split the network."""
    assert ids.topic_id("sport/tennis").hex() == "95719f1c467cedbc3234cf348c2ebe2c"
    assert ids.topic_id("sport/tennis", "ann").hex() == "b8a55cc4cd07260a763f5d401ae7d9b0"
    assert ids.publisher_id(ids.node_id(b"key"), b"12345678").hex() == "f2f34ab72eadd1b923f8b18f9ebec0ad"


def test_topics_of_different_creators_differ() -> None:
    assert len({ids.topic_id("a"), ids.topic_id("a", "b"), ids.topic_id("b"), ids.topic_id("", "a")}) == 4


def test_a_topic_of_a_peer_is_next_to_it_on_the_ring() -> None:
    peer = ids.node_id(b"key")
    topics = [ids.topic_id(name, peer.hex()) for name in ("a", "b")]
    assert [topic[:8] for topic in topics] == [peer[:8]] * 2
    assert topics[0] != topics[1]
    assert ids.topic_id("a", peer.hex()[:-1])[:8] != peer[:8], "that is a name like any other"


def test_publisher_ids_differ_by_publisher_and_incarnation() -> None:
    node = ids.node_id(b"key")
    made = [ids.publisher_id(node, life, number) for life in (b"a" * 8, b"b" * 8) for number in range(3)]
    assert len(set(made)) == 6


@given(IDS)
def test_an_id_converts_to_a_number_and_back(value: bytes) -> None:
    assert from_number(ids.number(value)) == value
    assert from_number(ids.number(value) + ids.RING) == value
    assert from_number(ids.number(value) - ids.RING) == value


@given(IDS, IDS)
def test_ids_compare_like_their_numbers(a: bytes, b: bytes) -> None:
    assert (a < b) == (ids.number(a) < ids.number(b))


@pytest.mark.parametrize(
    ("bits", "digits"), [(1, [1, 0, 1, 0, 0, 1, 0, 1]), (2, [2, 2, 1, 1]), (4, [0xA, 0x5]), (8, [0xA5, 0x3C])]
)
def test_digits_begin_with_the_most_significant(bits: int, digits: list[int]) -> None:
    assert [ids.digit(id_("a53c"), index, bits) for index in range(len(digits))] == digits


def test_the_last_digit_is_padded_if_bits_do_not_divide_the_id() -> None:
    assert ids.digit(b"\xff" * 16, 42, 3) == 0b110


@given(IDS, BITS)
def test_the_digits_together_are_the_id(value: bytes, bits: int) -> None:
    number = 0
    for index in range(128 // bits):
        number = number << bits | ids.digit(value, index, bits)
    assert number == ids.number(value)


@given(IDS, IDS, BITS)
def test_shared_digits_counts_equal_leading_digits(a: bytes, b: bytes, bits: int) -> None:
    shared = ids.shared_digits(a, b, bits)
    assert all(ids.digit(a, index, bits) == ids.digit(b, index, bits) for index in range(shared))
    assert shared == 128 // bits or ids.digit(a, shared, bits) != ids.digit(b, shared, bits)
    assert ids.shared_digits(a, a, bits) == 128 // bits


@given(IDS, IDS)
def test_distance_is_measured_in_the_shorter_direction(a: bytes, b: bytes) -> None:
    distance = ids.ring_distance(a, b)
    assert distance == ids.ring_distance(b, a) <= ids.RING // 2
    assert distance == min(ids.clockwise(a, b), ids.clockwise(b, a))
    assert b in (from_number(ids.number(a) + distance), from_number(ids.number(a) - distance))


def test_numbers_wrap_around_the_ring() -> None:
    assert ids.ring_distance(id_(""), b"\xff" * 16) == 1
    assert ids.clockwise(b"\xff" * 16, id_("")) == 1
    assert ids.clockwise(id_(""), b"\xff" * 16) == ids.RING - 1
    assert ids.clockwise(id_("5"), id_("5")) == 0


@given(IDS, IDS, IDS)
def test_all_peers_agree_on_who_is_closer(a: bytes, b: bytes, key: bytes) -> None:
    assert ids.closer(a, b, key) + ids.closer(b, a, key) == (a != b)


def test_the_smaller_id_wins_a_tie_of_distance() -> None:
    assert ids.closer(id_("4"), id_("6"), id_("5"))
    assert not ids.closer(id_("6"), id_("4"), id_("5"))


def test_a_short_id_has_eight_digits() -> None:
    assert ids.short(id_("0123456789")) == "01234567"
