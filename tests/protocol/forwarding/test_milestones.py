"""How far a stream had come by when: never earlier than it had, and not much later."""

from quillcast.protocol.forwarding.milestones import MILESTONES_MAX, PRECISION, SPACING_S, Milestones


def a_stream(until: int) -> Milestones:
    """An event each half second, counted from 1 at 0.5 s."""
    milestones = Milestones()
    for index in range(1, 2 * until + 1):
        milestones.note(index, index / 2)
    return milestones


def test_what_came_before_a_time_is_known_to_the_second() -> None:
    milestones = a_stream(20)
    assert [milestones.before(at) for at in (0.0, 1.0, 12.3, 20.0, 99.0)] == [0, 2, 24, 40, 40]


def test_the_latest_is_always_known() -> None:
    milestones = Milestones()
    for index, at in ((1, 0.0), (2, 0.1), (3, 0.2)):
        milestones.note(index, at)
    assert milestones.before(0.2) == 3


def test_in_an_hour_few_are_kept_and_the_younger_they_are_the_more_exactly() -> None:
    milestones = a_stream(3600)
    assert len(milestones.times) <= MILESTONES_MAX
    for ago_s in (2.0, 10.0, 60.0, 120.0):
        behind_s = 3600 - ago_s - milestones.before(3600 - ago_s) / 2
        assert 0 <= behind_s <= SPACING_S + 2 * ago_s / PRECISION, ago_s


def test_who_misses_a_range_is_told_of_it_alone_and_takes_its_events_for_younger_than_they_are() -> None:
    told = a_stream(20).told((10, 20), now=30.0)
    assert (told[0], told[-1]) == ((11, 24.5), (20, 20.0))
    learned = Milestones()
    learned.learn(told, now=105.0, end=20)  # by another clock, and some time later
    assert [learned.before(at) for at in (80.0, 81.0, 82.4, 85.0)] == [0, 12, 14, 20]


def test_what_two_peers_know_is_united() -> None:
    milestones = Milestones()
    milestones.learn([(4, 10.0), (9, 6.0)], now=20.0, end=9)
    milestones.learn([(6, 5.0), (7, 8.0)], now=20.0, end=9)
    assert [milestones.before(at) for at in (10.0, 12.0, 14.0, 15.0)] == [4, 7, 9, 9]


def test_what_is_said_of_events_that_there_cannot_be_yet_is_not_believed() -> None:
    """Else nothing could be noted beyond, and whoever begins later would wait for those events."""
    milestones = Milestones()
    milestones.learn([(1 << 62, 7.0)], now=20.0, end=5)
    assert milestones.before(13.0) == 5
    milestones.note(6, 21.0)
    assert [milestones.before(at) for at in (20.9, 21.0)] == [5, 6]
    assert milestones.told((0, 9), 22.0) == ((5, 9.0), (6, 1.0))


def test_however_many_ranges_are_missing_a_peer_is_told_each_milestone_once() -> None:
    milestones = a_stream(3600)
    assert len(milestones.told((0, 7200), now=3600.0)) == len(milestones.times) <= MILESTONES_MAX
    assert milestones.told((7200, 7300), now=3600.0) == ()


def test_of_however_many_two_can_be_kept() -> None:
    milestones = a_stream(20)
    assert milestones.told((0, 40), now=20.0, most=2) == ((1, 19.5), (40, 0.0))
    assert len(milestones.told((0, 40), now=20.0)) > 2
