"""Bundles as datagrams: who has the key joins them in any order, and nobody else reads or makes them."""

from itertools import count
from random import Random

import pytest

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.core.multicast import FRAGMENTS_MAX, UdpGroup
from quillcast.live.transport.datagrams import UNFINISHED_MAX, Cutter, Joiner, Unproven
from tests.live.toys import bundle

GROUP = UdpGroup("239.1.2.3", 4000, 1, 600, 1_000_000)
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ALICE, BOB = b"a" * 16, b"b" * 16


def cutter(key: bytes = KEY, sender: bytes = ALICE) -> Cutter:
    return Cutter(GROUP, key, sender, b"12345678", count())


def joined(joiner: Joiner, datagrams: list[bytes]) -> list[Bundle]:
    return [found for each in datagrams if (found := joiner.take(each)) is not None]


@pytest.mark.parametrize("size", [1, 400, 5_000, GROUP.bundle_bytes_max - 500])
def test_a_bundle_is_cut_to_size_and_joined_in_any_order(size: int) -> None:
    sent = bundle(size)
    datagrams = [*cutter().cut(sent)]
    assert max(map(len, datagrams)) <= GROUP.datagram_bytes
    assert len(datagrams) == -(-len(sent.encode()) // GROUP.fragment_bytes)
    Random(1).shuffle(datagrams)
    assert joined(Joiner(KEY, BOB), [*datagrams, datagrams[0]]) == [sent] * (2 if len(datagrams) == 1 else 1)


def test_fragments_of_several_bundles_come_mixed() -> None:
    made = cutter()
    sent = [bundle(2_000, first) for first in range(5)]
    datagrams = [datagram for each in sent for datagram in made.cut(each)]
    Random(1).shuffle(datagrams)
    assert sorted(each.envelope.first for each in joined(Joiner(KEY, BOB), datagrams)) == [0, 1, 2, 3, 4]


def test_what_is_incomplete_is_bounded() -> None:
    made, joiner = cutter(), Joiner(KEY, BOB)
    first, *rest = made.cut(bundle(1_000))
    assert joiner.take(first) is None
    for _ in range(UNFINISHED_MAX):
        assert joiner.take(next(made.cut(bundle(1_000)))) is None
    assert joined(joiner, rest) == [], "the oldest is forgotten"


def test_a_bundle_of_too_many_fragments_is_not_sent() -> None:
    assert [*cutter().cut(bundle(FRAGMENTS_MAX * GROUP.fragment_bytes))] == []


def test_own_datagrams_and_those_of_other_keys_end_here() -> None:
    (datagram,) = cutter().cut(bundle())
    assert Joiner(KEY, ALICE).take(datagram) is None
    assert Joiner(OTHER_KEY, BOB).take(datagram) is None


def test_each_bit_is_proven() -> None:
    (datagram,) = cutter().cut(bundle())
    joiner = Joiner(KEY, BOB)
    for at in range(4, len(datagram)):
        with pytest.raises(Unproven, match="has no valid proof"):
            joiner.take(datagram[:at] + bytes([datagram[at] ^ 1]) + datagram[at + 1 :])
    assert joiner.take(datagram) == bundle()


def test_datagrams_show_nothing_of_their_bundle_and_never_the_same_twice() -> None:
    made = cutter()
    first, second = (next(made.cut(bundle())) for _ in range(2))
    assert first != second
    assert bytes(32) not in first
    assert bundle().envelope.topic not in first


def test_what_is_too_short_is_malformed() -> None:
    with pytest.raises(Malformed, match="a datagram of 55 bytes is shorter"):
        Joiner(KEY, BOB).take(bytes(55))
