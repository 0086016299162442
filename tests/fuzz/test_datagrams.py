"""Datagrams of a multicast group: any bytes, and what a member that has the key may send."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from quillcast.core.bundle import Bundle
from quillcast.core.errors import Malformed
from quillcast.core.multicast import UdpGroup
from quillcast.live.transport.datagrams import Cutter, Joiner
from tests.fuzz.bytes import ANY_BYTES, FUZZ, damaged
from tests.live.toys import bundle

GROUP, KEY = UdpGroup("239.1.2.3", 4000, 1, 600, 1_000_000), b"k" * 32


class Forged(Bundle):
    """What a member that means ill sends as a bundle."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def encode(self) -> bytes:
        return self.data


def cut(sent: Bundle) -> list[bytes]:
    return [*Cutter(GROUP, KEY, b"a" * 16, b"12345678", count()).cut(sent)]


def taken(datagrams: list[bytes]) -> None:
    joiner = Joiner(KEY, b"b" * 16)
    for each in datagrams:
        try:
            joiner.take(each)
        except Malformed:
            continue


@FUZZ
@given(st.lists(ANY_BYTES | damaged(st.sampled_from(cut(bundle(2_000)))), max_size=5))
def test_any_datagrams_are_bundles_or_malformed(datagrams: list[bytes]) -> None:
    taken(datagrams)


@FUZZ
@given(damaged(st.builds(lambda size: bundle(size).encode(), st.integers(1, 2_000))))
def test_whatever_a_member_sends_is_a_bundle_or_malformed(data: bytes) -> None:
    taken(cut(Forged(data)))
