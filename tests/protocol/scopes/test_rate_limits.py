"""Rates: what is counted, and when channels go on."""

import pytest
from msgspec.structs import replace

from quillcast.core.envelope import Term
from quillcast.core.messages import Contact
from quillcast.protocol.scopes.channels import Rate
from quillcast.protocol.scopes.rate_limits import COUNTED_MAX, TICK_S, RateLimits, RatesDue
from tests.protocol.recording import RecordingHost
from tests.protocol.scopes.test_crossing import bundle

SCOPE, T = b"s" * 16, b"t" * 16
BOB, CAROL = (Contact(name * 16, "h:1") for name in (b"b", b"c"))
RATE = Rate(SCOPE, T, bundles_per_s=8)


def given(index: int):
    return bundle(index, b"", T)


def test_a_bundle_counts_once_however_many_channels_it_takes() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    to_bob, to_carol = (limits.sink([RATE], contact) for contact in (BOB, CAROL))
    for index in range(3):  # a quarter of a second's, and one more
        assert to_bob.room(given(index)) > 0
        to_bob.take(given(index))
    assert to_bob.room(given(3)) == 0
    for index in range(3):
        assert to_carol.room(given(index)) > 0, "they were counted"
        to_carol.take(given(index))
    assert to_carol.room(given(3)) == 0


def test_a_channel_that_is_behind_waits_before_what_was_not_counted() -> None:
    """Another one may have begun later, or its filter may have left these bundles to this one."""
    limits = RateLimits(RecordingHost())
    limits.keep([RATE])
    to_bob, to_carol = (limits.sink([RATE], contact) for contact in (BOB, CAROL))
    for index in (1, 3, 5):
        to_bob.take(given(index))
    assert [to_carol.room(given(index)) > 0 for index in range(6)] == [False, True] * 3


def test_channels_that_wait_take_turns() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    sinks = {contact: limits.sink([RATE], contact) for contact in (BOB, CAROL)}
    next_ = {BOB: 0, CAROL: 1000}  # filters divide bundles among them
    took, over = list[Contact](), [BOB, CAROL]
    for _ in range(8):
        for contact in over:
            while sinks[contact].room(given(next_[contact])) > 0:
                sinks[contact].take(given(next_[contact]))
                next_[contact] += 1
                took.append(contact)
        timer, _ = host.timers[-1]
        host.time = timer.at
        over = limits.due(timer)
    assert took[2:] == [BOB, *[CAROL, BOB] * 3, CAROL][: len(took) - 2]
    assert len(took) == 10


@pytest.mark.parametrize("late_ms", [0, 1, 5])
def test_a_channel_with_few_bundles_gets_its_turn_beside_a_busy_one_though_timers_are_late(late_ms: int) -> None:
    host = RecordingHost()
    limits, rate = RateLimits(host), Rate(SCOPE, None, bundles_per_s=100)
    limits.keep([rate])
    busy, quiet = [], []
    logs = {BOB: (limits.sink([rate], BOB), busy), CAROL: (limits.sink([rate], CAROL), quiet)}

    def advance(contact: Contact) -> None:
        sink, log = logs[contact]
        while log and sink.room(log[0]) > 0:
            sink.take(log.pop(0))

    for ms in range(5000):
        host.time = ms / 1000
        while limits.due_at + late_ms / 1000 <= host.time:
            for contact in limits.due(RatesDue(limits.due_at)):
                advance(contact)
        busy.append(given(ms))
        advance(BOB)
        if ms % 500 == 7:
            assert not quiet, "at most half a second passes before the last one goes"
            quiet.append(given(100_000 + ms))
            advance(CAROL)
    assert len(busy) < 5000 - 0.9 * 5 * 100, "the rate is used"


@pytest.mark.parametrize("rate", [RATE, RATE.share(2)])
def test_a_channel_that_is_made_anew_or_at_another_rate_owes_what_it_owed(rate: Rate) -> None:
    limits = RateLimits(RecordingHost())
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    for index in range(3):
        sink.take(given(index))
    limits.keep([rate])
    assert limits.sink([rate], BOB).room(given(3)) == 0
    assert limits.sink([rate], CAROL).room(given(2)) > 0, "it was counted"


def test_channels_go_on_when_time_allows_it() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    for index in range(3):  # one more than there is room for
        sink.take(given(index))
    assert sink.room(given(3)) == 0
    ((timer, delay_s),) = host.timers
    assert (timer, round(delay_s, 3)) == (RatesDue(delay_s), 0.125)
    host.time += 0.126
    assert limits.due(timer) == [BOB]
    assert sink.room(given(3)) > 0


def test_time_passes_before_a_channel_that_waits_is_looked_at_again() -> None:
    """Else a moment that the clock cannot tell from now would never be over."""
    host = RecordingHost()
    RateLimits(host).wait(BOB, 1e-17)
    assert [delay_s for _, delay_s in host.timers] == [TICK_S]


def test_who_waits_for_a_high_rate_does_not_wait_for_a_low_one() -> None:
    host, low = RecordingHost(), Rate(SCOPE, T, bundles_per_s=1)
    limits = RateLimits(host)
    limits.keep([RATE, low])
    slow, fast = limits.sink([low], BOB), limits.sink([RATE], CAROL)
    for index in range(3):
        slow.take(given(index))
        fast.take(given(index))
    assert (slow.room(given(3)), fast.room(given(3)), slow.room(given(3))) == (0, 0, 0)
    (first, _), (second, delay_s) = host.timers
    assert (second, delay_s) == (RatesDue(0.125), 0.125)
    host.time = 0.125
    assert limits.due(second) == [CAROL]
    assert fast.room(given(3)) > 0
    assert host.timers[2:] == [(RatesDue(2.75), 2.625)]
    host.time = 2.75
    assert (limits.due(first), limits.due(first)) == ([BOB], []), "it was set twice"
    assert limits.waiting == {}


def test_a_rate_that_stays_goes_on_with_what_it_counted_and_others_end() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    for index in range(3):
        sink.take(given(index))
    limits.keep([RATE, Rate(SCOPE, None, bytes_per_s=1000)])
    assert sink.room(given(3)) == 0
    assert type(sink.plain()) is type(limits.sink([], BOB))


def test_a_rate_that_ends_and_comes_again_owes_what_it_owed_until_time_has_made_up_for_it() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    for index in range(3):
        limits.sink([RATE], BOB).take(given(index))
    limits.keep([])
    limits.keep([RATE])
    assert limits.sink([RATE], BOB).room(given(3)) == 0
    limits.keep([])
    host.time = 1.0
    limits.keep([])
    assert limits.ended == {}


def test_bundles_of_several_sources_count_whatever_order_their_terms_have() -> None:
    limits = RateLimits(RecordingHost())
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    late = bundle(0, b"", T)
    early = late.under(replace(late.envelope, term=Term(0, bytes(16))))
    for each in (late, early, early.under(replace(early.envelope, first=1))):
        assert sink.room(each) > 0
        sink.take(each)
    assert sink.room(given(3)) == 0


def test_repairs_count_each_time_and_what_is_new_waits_for_them() -> None:
    limits = RateLimits(RecordingHost())
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    for _ in range(3):
        assert sink.room(given(0)) > 0
        sink.count(given(0))
    assert sink.room(given(3)) == 0


def test_what_leaves_a_scope_has_a_rate_apart_from_what_enters_it() -> None:
    limits, out = RateLimits(RecordingHost()), Rate(SCOPE, T, bundles_per_s=8, leaves=True)
    limits.keep([RATE, out])
    enters, leaves = limits.sink([RATE], BOB), limits.sink([out], CAROL)
    for index in range(3):
        enters.take(given(index))
    assert (enters.room(given(3)), leaves.room(given(3)) > 0) == (0, True)


def test_few_of_the_bundles_that_were_counted_are_remembered() -> None:
    host = RecordingHost()
    limits = RateLimits(host)
    limits.keep([RATE])
    sink = limits.sink([RATE], BOB)
    for index in range(COUNTED_MAX + 10):
        sink.take(given(index))
    (gate,) = limits.gates.values()
    assert len(gate.counted) == COUNTED_MAX
    assert sink.room(given(9)) == 0, "it counts again"
    assert sink.room(given(10)) > 0
