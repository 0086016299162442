"""Filters decide per bundle from its envelope, alike at every peer, and travel as values."""

from collections.abc import Callable
from functools import reduce

import msgspec
import pytest

from quillcast.core.bundle import Block, Bundle
from quillcast.core.envelope import DOWN, SERIALS, Envelope, Term
from quillcast.core.errors import LocalError, Malformed
from quillcast.core.messages import decoded
from quillcast.protocol.scopes.filters import (
    PARTS_MAX,
    TAGS_BYTES_MAX,
    AddTag,
    Custom,
    CustomFilter,
    Either,
    Every,
    Except,
    Filter,
    Larger,
    Modulo,
    Sample,
    Senders,
    Tagged,
    Topics,
    UnknownFilter,
    compiled,
    on_bundles,
    with_tag,
    worded,
)

WEATHER, TENNIS = b"weather".ljust(16), b"tennis".ljust(16)
ALICE, BOB = b"alice".ljust(16), b"bob".ljust(16)


def envelope(serial: int = 0, *, topic: bytes = WEATHER, node: bytes = ALICE, tags: bytes = b"") -> Envelope:
    return Envelope(topic, DOWN, Term(1, node[:8] + bytes(8)), 64 * serial, serial=serial, tags=tags)


def admitted(filter_: Filter, count: int = 12) -> list[int]:
    decide = compiled(filter_, {})
    return [serial for serial in range(count) if decide(envelope(serial)) is not None]


def test_modulo_divides_bundles_by_their_number_and_not_by_the_positions_of_their_events() -> None:
    assert admitted(Modulo(3, (1,))) == [1, 4, 7, 10]
    assert admitted(Modulo(4, (1,))) == [1, 5, 9], "each bundle has 64 events: their positions modulo 4 are equal"
    assert admitted(Modulo(3, (0, 2))) == [0, 2, 3, 5, 6, 8, 9, 11]


def test_modulo_filters_of_all_remainders_let_each_bundle_pass_once() -> None:
    assert sorted(admitted(Modulo(2, (0,))) + admitted(Modulo(2, (1,)))) == list(range(12))


def test_topics_and_senders_are_told_apart_by_the_envelope() -> None:
    of_topic, of_sender = compiled(Topics((WEATHER,)), {}), compiled(Senders((ALICE,)), {})
    assert of_topic(envelope()) is not None
    assert of_topic(envelope(topic=TENNIS)) is None
    assert of_sender(envelope()) is not None
    assert of_sender(envelope(node=BOB)) is None


def test_a_sample_is_the_same_everywhere_and_about_as_large_as_asked() -> None:
    chosen = admitted(Sample(0.25), 4000)
    assert chosen == admitted(Sample(0.25), 4000)
    assert 900 < len(chosen) < 1100
    assert chosen[:8] == [0, 2, 4, 8, 9, 12, 14, 15], "other versions of Python choose the same"
    assert admitted(Sample(0.0)) == []
    assert admitted(Sample(1.0)) == list(range(12))


def test_samples_with_different_salts_are_independent() -> None:
    both = set(admitted(Sample(0.5, "a"), 4000)) & set(admitted(Sample(0.5, "b"), 4000))
    assert 900 < len(both) < 1100


def test_a_tag_that_one_filter_notes_is_seen_by_the_next() -> None:
    decide = compiled(Every((AddTag("north"), Tagged("north"))), {})
    entering = decide(envelope())
    assert entering is not None
    assert entering.tags == b"north"
    assert compiled(Tagged("north"), {})(envelope()) is None
    assert compiled(Tagged("nor"), {})(entering) is None


def test_a_tag_is_noted_once_and_as_long_as_there_is_room() -> None:
    tagged = reduce(with_tag, ["north", "south", "north"], envelope())
    assert tagged.tags == b"north,south"
    full = reduce(with_tag, [f"{number:032}" for number in range(100)], envelope())
    assert len(full.tags) <= TAGS_BYTES_MAX
    assert full.tags.count(b",") + 1 == TAGS_BYTES_MAX // 33


def test_filters_compose() -> None:
    even, thirds = Modulo(2, (0,)), Modulo(3, (0,))
    assert admitted(Every((even, thirds))) == [0, 6]
    assert admitted(Either((even, thirds))) == [0, 2, 3, 4, 6, 8, 9, 10]
    assert admitted(Except(even)) == [1, 3, 5, 7, 9, 11]
    assert admitted(Every(())) == list(range(12))
    assert admitted(Either(())) == []
    assert compiled(Except(AddTag("north")), {})(envelope()) is None


def test_another_package_decides_and_may_tag() -> None:
    def above(limit: int) -> CustomFilter:
        return lambda envelope: "high" if envelope.serial > limit else False

    decide = compiled(Custom("above", (("limit", 3),)), {"above": above})
    assert decide(envelope(3)) is None
    entering = decide(envelope(4))
    assert entering is not None
    assert entering.tags == b"high"


def test_a_custom_filter_that_is_not_installed_is_named() -> None:
    with pytest.raises(UnknownFilter, match="there is no filter 'above'; install the package"):
        compiled(Every((Custom("above"),)), {})


def test_in_the_data_path_a_bundle_that_enters_untagged_is_the_same_object() -> None:
    bundle = Bundle(envelope(2), (Block.seal(bytes(16), 0, [b"x"], time_ns=0),))
    assert on_bundles(Modulo(2, (0,)), {})(bundle) is bundle
    assert on_bundles(Modulo(2, (1,)), {})(bundle) is None
    tagged = on_bundles(AddTag("north"), {})(bundle)
    assert tagged is not None
    assert tagged.envelope.tags == b"north"
    assert tagged.blocks is bundle.blocks


def test_a_filter_by_size_goes_with_others_that_a_bundle_has_to_pass_too() -> None:
    small, large = (
        Bundle(envelope(serial), (Block.seal(bytes(16), 0, [bytes(size)], time_ns=0),))
        for serial, size in ((2, 10), (2, 1000))
    )
    other = large.under(envelope(3))
    enters = on_bundles(Every((Every((Larger(500), Modulo(2, (0,)))), AddTag("big"))), {})
    assert [enters(small), enters(other)] == [None, None]
    assert enters(large).envelope.tags == b"big"
    with pytest.raises(LocalError, match="can be part of Every alone"):
        on_bundles(Except(Larger(500)), {})


FILTERS = (
    Modulo(3, (0, 2)),
    Topics((WEATHER,)),
    Senders((ALICE, BOB)),
    Sample(0.25, "a"),
    Tagged("north"),
    AddTag("south"),
    Custom("above", (("limit", 3), ("name", "x"), ("open", True), ("share", 0.5))),
    Either((Every((Modulo(2, (1,)), AddTag("odd"))), Except(Tagged("odd")))),
)


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda each: type(each).__name__)
def test_a_filter_travels(filter_: Filter) -> None:
    decoder: msgspec.msgpack.Decoder[Filter] = msgspec.msgpack.Decoder(Filter)
    again = decoder.decode(msgspec.msgpack.encode(filter_))
    assert again == filter_
    assert hash(again) == hash(filter_)


def nested(depth: int) -> bytes:
    return b"\x92\x0a" * depth + msgspec.msgpack.encode([5, "north"])  # arrays of 10 and the next


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode([1, 0, [0]]),
        msgspec.msgpack.encode([1, 2, [2]]),
        msgspec.msgpack.encode([1, 2, []]),
        msgspec.msgpack.encode([1, SERIALS + 1, [0]]),
        msgspec.msgpack.encode([2, [b"short"]]),
        msgspec.msgpack.encode([4, float("nan")]),
        msgspec.msgpack.encode([4, 1.5]),
        msgspec.msgpack.encode([5, "a,b"]),
        msgspec.msgpack.encode([8, [[5, "a"]] * PARTS_MAX]),
        msgspec.msgpack.encode([99]),
        nested(PARTS_MAX),
        nested(100_000),
    ],
)
def test_a_malformed_filter_from_the_network_is_refused(data: bytes) -> None:
    decoder: msgspec.msgpack.Decoder[Filter] = msgspec.msgpack.Decoder(Filter)
    with pytest.raises(Malformed):
        decoded(decoder, data, "filter")


@pytest.mark.parametrize("make", [lambda: Modulo(0, (0,)), lambda: Modulo(2, (2,)), lambda: Sample(-0.1)])
def test_a_filter_that_cannot_work_is_refused_where_it_is_made(make: Callable[[], Filter]) -> None:
    with pytest.raises(ValueError, match=r"Modulo|Sample"):
        make()


@pytest.mark.parametrize(
    ("filter_", "words"),
    [
        (Every((Modulo(4, (0, 2)), AddTag("half"))), "serial modulo 4 = 0 or 2 and adds tag half"),
        (Either((Sample(0.5), Tagged("a"))), "(a sample of 0.5 or has tag a)"),
        (Except(Topics((b"t" * 16,))), "not (one of 1 topics)"),
        (Senders((b"\xab" * 16,)), "from abababab"),
        (Sample(0), "repairs only"),
        (Custom("mine", (("n", 3),)), "mine(n = 3)"),
    ],
)
def test_a_filter_in_words(filter_: Filter, words: str) -> None:
    assert worded(filter_) == words
