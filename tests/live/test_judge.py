"""The judge of chaos sees every kind of broken promise, in diaries written by hand, and none where all is well.

Alice publishes in the topic `t`, an event a second; bob and carol read; dave has a subscription, too, and nothing else.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.chaos import diary as entry
from tests.live.chaos.diary import Diary, Entry, entries
from tests.live.chaos.history import History
from tests.live.chaos.judge import Bounds, silence, violations
from tests.live.chaos.report import Verdict

COUNT = 10
FROM_S, FINISHING_S, SETTLED_S = 100.0, 200.0, 210.0
BOUNDS = Bounds(lease_s=10.0, silent_s=5.0, report_s=5.0)


class Notes:
    """Diaries to be tampered with: `published`, `acknowledged`, `stable` by number, `came` by reader and number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.published = {number: FROM_S + number for number in range(COUNT)}
        self.acknowledged = {number: at + 0.1 for number, at in self.published.items()}
        self.stable = {number: at + 0.3 for number, at in self.published.items() if number % 3 == 0}
        self.came = {who: {n: at + 0.2 for n, at in self.published.items()} for who in ("bob", "carol")}
        self.started = dict.fromkeys(self.came, 2.0)
        self.closed: dict[str, float] = {}
        self.more: list[tuple[str, Entry]] = []
        self.slow: tuple[str, ...] = ()
        self.topic = entry.Topic(0.0, "t", "reliable", "cut")

    def add(self, who: str, *lines: Entry) -> None:
        """Further entries of a process or the conductor."""
        self.more += [(who, line) for line in lines]

    def lose(self, who: str, first: int, last: int, publisher: str = "aa", at: float = 150.0) -> None:
        """A report of what the reader did not get."""
        for number in range(first, last):
            self.came[who].pop(number, None)
        self.add(who, entry.Lost(at, who, publisher, first, last, "cut"))

    def stop(self, who: str, since: float, until: float) -> None:
        self.add("conductor", entry.Stopped(since, who, 1), entry.Resumed(until, who, 1))

    def kill(self, who: str, at: float) -> None:
        self.add("conductor", entry.Killed(at, who, 1), entry.Ended(at, who, 1, -9))

    def history(self) -> History:
        self._write()
        return History.read(self.folder)

    def kinds(self, bounds: Bounds = BOUNDS) -> list[str]:
        """The kinds of violations that are found."""
        return sorted({violation.kind for violation in violations(self.history(), bounds)})

    def _write(self) -> None:
        diaries: dict[str, list[Entry]] = {
            "conductor": [self.topic, entry.Finishing(FINISHING_S), entry.Settled(SETTLED_S)],
            "alice": [entry.Opened(1.0, "a", "t", "aa")],
        }
        diaries["alice"] += [entry.Published(at, "a", number) for number, at in self.published.items()]
        diaries["alice"] += [entry.Acknowledged(at, "a", n, "root") for n, at in self.acknowledged.items()]
        diaries["alice"] += [entry.Acknowledged(at, "a", number, "stable") for number, at in self.stable.items()]
        for who, came in self.came.items():
            started = entry.Started(self.started.get(who, 2.0), who)
            diaries[who] = [entry.Subscribing(1.0, who, "t", who in self.slow), started]
            diaries[who] += [entry.Delivered(at, who, "a", number, number, True) for number, at in came.items()]
        for who, line in self.more:
            diaries.setdefault(who, []).append(line)
        for who, lines in diaries.items():
            began = [] if who == "conductor" else [entry.Began(0.5, who, 1)]
            stands = [line for line in lines if isinstance(line, entry.Topic | entry.Opened | entry.Subscribing)]
            later = sorted((line for line in lines if line not in stands), key=lambda line: line.at)
            write(self.folder / f"{who}.diary", [*began, *stands, *later])


def write(path: Path, lines: list[Entry]) -> None:
    """What `Diary.note` writes, at times of our own."""
    path.write_bytes(b"".join(entry.encode(line) + b"\n" for line in lines))


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


def test_a_run_in_which_all_is_well_has_no_violation(notes: Notes) -> None:
    assert notes.kinds() == []


def test_a_diary_is_read_up_to_an_incomplete_line(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "one")
    diary.note(entry.Began, "bob", 2)
    diary.note(entry.Delivered, "b", "a", 3, 3, True)
    with (tmp_path / "one").open("ab") as file:
        file.write(b'["Delivered",1.0,"b","a"')
    began, delivered = entries(tmp_path / "one")
    assert began == entry.Began(began.at, "bob", 2)
    assert delivered == entry.Delivered(delivered.at, "b", "a", 3, 3, True)
    assert began.at <= delivered.at


# --- what comes


def test_an_event_that_comes_twice(notes: Notes) -> None:
    notes.add("bob", entry.Delivered(109.5, "bob", "a", 9, 9, True))
    assert notes.kinds() == ["repeated"]


def test_an_event_that_comes_behind_a_later_one(notes: Notes) -> None:
    notes.came["bob"][3] = 104.3
    assert notes.kinds() == ["misordered"]


def test_an_event_of_an_unordered_or_unreliable_topic_may_come_behind_or_not_at_all(notes: Notes) -> None:
    notes.topic = entry.Topic(0.0, "t", "best_effort", "cut")
    notes.came["bob"][3] = 104.3
    del notes.came["carol"][5]
    assert notes.kinds() == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (entry.Delivered(109.5, "dave", "a", 9, 9, False), "corrupt"),
        (entry.Delivered(109.5, "dave", "a", 9, 8, True), "of another sequence"),
        (entry.Delivered(109.5, "dave", "a", 10, 10, True), "never published"),
        (entry.Delivered(109.5, "dave", "nobody", 9, 9, True), "never published"),
    ],
)
def test_an_event_that_is_not_what_was_published(notes: Notes, line: Entry, kind: str) -> None:
    notes.add("dave", entry.Subscribing(1.0, "dave", "t", False), line)
    assert notes.kinds() == [kind]


# --- what is owed


def test_an_acknowledged_event_that_never_comes(notes: Notes) -> None:
    del notes.came["bob"][9]
    assert "neither came nor was reported lost" in notes.kinds()


def test_an_event_between_two_that_came(notes: Notes) -> None:
    notes.acknowledged = notes.stable = {}
    del notes.came["bob"][5]
    assert notes.kinds() == ["neither came nor was reported lost"]


def test_an_event_between_two_that_came_to_a_reader_that_closed_later(notes: Notes) -> None:
    notes.stable = {}
    for number in (5, 7, 8, 9):
        del notes.came["carol"][number]
    notes.add("carol", entry.Closed(106.2 + BOUNDS.report_s + 0.1, "carol"))
    assert notes.kinds() == ["neither came nor was reported lost"]


def test_an_event_between_two_that_came_just_before_the_reader_closed_may_not_be_reported_yet(notes: Notes) -> None:
    for number in (5, 7, 8, 9):
        del notes.came["carol"][number]
    notes.add("carol", entry.Closed(106.4, "carol"))
    assert notes.kinds() == []


def test_events_before_the_subscription_was_established_are_not_owed(notes: Notes) -> None:
    notes.came["dave"] = {}
    notes.add("dave", entry.Started(FROM_S + COUNT, "dave"))
    assert notes.kinds() == []


def test_unacknowledged_events_are_not_owed(notes: Notes) -> None:
    del notes.acknowledged[9], notes.stable[9]
    del notes.came["bob"][9]
    notes.kill("alice", 109.3)
    assert notes.kinds() == []


def test_a_killed_reader_is_owed_nothing_later(notes: Notes) -> None:
    notes.kill("carol", 105.0)
    for number in range(5, COUNT):
        del notes.came["carol"][number]
    assert notes.kinds() == []


def test_uncertain_positions_count_as_so_many_events(notes: Notes) -> None:
    notes.stop("carol", 103.5, 106.5)
    notes.lose("carol", 4, 6)
    notes.more.pop()
    notes.add("carol", entry.Lost(150.0, "carol", "", 4, 5, "unavailable"))
    assert notes.kinds() == ["neither came nor was reported lost"]
    notes.add("carol", entry.Lost(150.0, "carol", "", 5, 6, "unavailable"))
    assert notes.kinds() == []


# --- stable


def test_a_stable_event_that_came_too_late(notes: Notes) -> None:
    notes.stable = {9: 109.15}
    notes.came["bob"][9] = 109.15 + BOUNDS.stable_s + 0.1
    assert notes.kinds() == ["was not there when it was said to be stable"]


def test_a_stable_event_at_a_slow_or_paused_handler(notes: Notes) -> None:
    notes.stable = {9: 109.15}
    notes.slow = ("bob",)
    notes.came["bob"][9] = notes.came["carol"][9] = 118.0
    notes.stop("carol", 109.2, 117.0)
    assert notes.kinds() == []


def test_an_event_that_was_stable_without_a_reader_that_was_away_for_less_than_a_lease(notes: Notes) -> None:
    notes.stable = {9: 112.0}
    notes.came["carol"][9] = 119.0
    notes.stop("carol", 108.0, 115.0)
    assert notes.kinds() == []  # it may have been in the peer already
    notes.came["carol"][9] = 115.0 + BOUNDS.stable_s + 0.1
    notes.stable = {9: 116.0 - BOUNDS.stable_s}
    assert notes.kinds() == ["was not there when it was said to be stable"]


def test_a_reader_that_ends_before_it_learns_that_it_was_cut_during_a_pause(notes: Notes) -> None:
    notes.stable = {9: 112.0}
    notes.came["carol"] = {number: at for number, at in notes.came["carol"].items() if number < 9}
    notes.stop("carol", 108.5, 116.0)
    notes.add("carol", entry.Closed(116.0 + BOUNDS.report_s - 0.1, "carol"))
    assert notes.kinds() == []


def test_a_paused_reader_that_stays_learns_what_was_stable_without_it(notes: Notes) -> None:
    notes.stable = {9: 112.0}
    notes.came["carol"] = {number: at for number, at in notes.came["carol"].items() if number < 9}
    notes.stop("carol", 108.5, 116.0)
    notes.add("carol", entry.Closed(116.0 + BOUNDS.report_s + 0.1, "carol"))
    assert notes.kinds() == ["was not there when it was said to be stable"]


def test_an_event_is_stable_without_those_whose_lease_has_ended(notes: Notes) -> None:
    notes.stop("carol", 108.5, 130.0)
    notes.stable = {9: 108.5 + BOUNDS.lease_s + 1.0}
    notes.lose("carol", 9, COUNT)
    assert notes.kinds() == []


def test_a_reader_that_goes_away_again_before_it_is_back_was_away_all_the_time(notes: Notes) -> None:
    notes.stop("carol", 108.5, 118.0)
    notes.stop("carol", 118.0 + BOUNDS.report_s - 0.5, 130.0)
    notes.stable = {9: 128.0}
    notes.came["carol"][9] = 139.0
    assert "was not there when it was said to be stable" not in notes.kinds()


@pytest.mark.parametrize(("began_at", "kinds"), [(104.5, []), (101.0, ["neither came nor was reported lost"])])
def test_a_subscription_from_beyond_a_partition_is_owed_events_after_it_healed(
    notes: Notes, began_at: float, kinds: list[str]
) -> None:
    notes.add("conductor", entry.Partitioned(103.0, ("dave",)), entry.Healed(106.0, ("dave",)))
    notes.add("dave", entry.Subscribing(1.0, "dave", "t", False), entry.Started(began_at, "dave"))
    notes.acknowledged = {n: at for n, at in notes.acknowledged.items() if n < 9}
    notes.stable = {}
    assert [kind for kind in notes.kinds() if "neither" in kind] == kinds


@pytest.mark.parametrize(("began_at", "kinds"), [(104.5, []), (101.0, ["was not there when it was said to be stable"])])
def test_an_event_is_stable_without_a_subscription_that_began_beyond_a_partition(
    notes: Notes, began_at: float, kinds: list[str]
) -> None:
    notes.add("conductor", entry.Partitioned(103.0, ("dave",)), entry.Healed(111.0, ("dave",)))
    notes.add("dave", entry.Subscribing(1.0, "dave", "t", False), entry.Started(began_at, "dave"))
    assert [kind for kind in notes.kinds() if "stable" in kind] == kinds


def test_a_resumed_writer_reads_what_was_sent_during_its_pause(notes: Notes) -> None:
    notes.stop("carol", 108.5, 120.0)
    notes.stop("alice", 110.0, 140.0)
    notes.stable = {9: 140.1}  # for some time before, carol was away for longer than a lease
    notes.came["carol"] = {number: at for number, at in notes.came["carol"].items() if number < 9}
    assert "was not there when it was said to be stable" not in notes.kinds()
    notes.stable = {9: 140.0 + BOUNDS.stable_s + 0.1}
    assert "was not there when it was said to be stable" in notes.kinds()


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("carol",), []),
        (("alice", "bob"), []),
        (("alice", "bob", "carol"), ["was not there when it was said to be stable"]),
        (("dave",), ["was not there when it was said to be stable"]),
    ],
)
def test_an_event_is_stable_without_readers_unreachable_for_a_lease(
    notes: Notes, names: tuple[str, ...], kinds: list[str]
) -> None:
    notes.stable = {9: 125.0}
    notes.came["carol"][9] = 128.0
    notes.add("conductor", entry.Partitioned(108.0, names), entry.Healed(127.5, names))
    assert [kind for kind in notes.kinds() if "stable" in kind] == kinds


def test_events_published_while_cut_off_may_be_lost_to_healthy_readers(notes: Notes) -> None:
    notes.stable = {}
    notes.lose("bob", 4, 6)
    notes.add("conductor", entry.Partitioned(103.5, ("alice",)), entry.Healed(120.0, ("alice",)))
    assert notes.kinds() == []
    notes.lose("bob", 3, 4)
    assert notes.kinds() == ["was reported lost to a healthy reader"]


def test_and_so_may_events_that_no_root_had_admitted_before(notes: Notes) -> None:
    notes.stable = {}
    notes.acknowledged = {4: 104.05, 5: 112.0, 9: 112.5}
    notes.lose("bob", 5, 6)  # published at 105
    notes.add("conductor", entry.Partitioned(110.0, ("alice",)), entry.Healed(120.0, ("alice",)))
    assert notes.kinds() == []
    notes.lose("bob", 4, 5)
    assert notes.kinds() == ["was reported lost to a healthy reader"], "it was acknowledged before"


def test_and_what_it_published_before_the_roots_on_both_sides_met(notes: Notes) -> None:
    notes.stable = {}
    notes.lose("bob", 8, 9)  # published at 108
    notes.add("conductor", entry.Partitioned(90.0, ("alice",)), entry.Healed(108.1 - BOUNDS.rivals_s, ("alice",)))
    assert notes.kinds() == []
    notes.lose("bob", 9, 10)
    assert notes.kinds() == ["was reported lost to a healthy reader"]


@pytest.mark.parametrize("apart", [True, False])
def test_a_subscription_that_began_beyond_a_partition_may_be_told_of_what_was_published_before(
    notes: Notes, *, apart: bool
) -> None:
    """The other side admitted it again in a later term, and nobody can tell when it was published."""
    notes.stable, notes.started["bob"] = {}, 105.5
    for number in range(6):
        del notes.came["bob"][number]
    notes.lose("bob", 3, 4)
    if apart:
        notes.add("conductor", entry.Partitioned(103.5, ("alice",)), entry.Healed(106.5, ("alice",)))
    assert notes.kinds() == ([] if apart else ["was reported lost to a healthy reader"])


def test_spans_apart_are_those_in_which_one_of_two_was_cut_off(notes: Notes) -> None:
    for who, since, until in (("bob", 10.0, 40.0), ("carol", 20.0, 50.0), ("bob", 60.0, 70.0), ("dave", 61.0, 62.0)):
        notes.add("conductor", entry.Partitioned(since, (who,)), entry.Healed(until, (who,)))
    notes.more.sort(key=lambda written: written[1].at)
    history = notes.history()
    bob, carol = history.readers["bob"].life, history.readers["carol"].life
    assert history.apart(bob, carol) == [(10.0, 20.0), (40.0, 50.0), (60.0, 70.0)]
    assert history.apart(bob, bob) == []


def test_and_until_both_were_outside_if_one_of_them_began_while_the_other_was_cut_off(notes: Notes) -> None:
    """Bob does not know where carol is: once he is cut off too, he cannot find her."""
    for who, since, until in (("carol", 0.2, 30.0), ("bob", 20.0, 40.0)):
        notes.add("conductor", entry.Partitioned(since, (who,)), entry.Healed(until, (who,)))
    notes.more.sort(key=lambda written: written[1].at)
    history = notes.history()
    bob, carol = history.readers["bob"].life, history.readers["carol"].life
    assert history.apart(bob, carol) == [(0.2, 40.0)]
    assert history.apart(bob, bob) == []


def test_a_stable_event_reported_lost_to_a_healthy_reader(notes: Notes) -> None:
    notes.stable = {6: 106.4}
    notes.lose("bob", 6, 7)
    assert notes.kinds() == [
        "was not there when it was said to be stable", "was reported lost to a healthy reader"
    ]  # fmt: skip


# --- loss reports


def test_a_paused_reader_may_get_loss_reports(notes: Notes) -> None:
    notes.stop("carol", 103.5, 120.0)
    notes.stable = {}
    notes.lose("carol", 4, 7)
    assert notes.kinds() == []


def stopped(notes: Notes) -> None:
    notes.stop("carol", 103.5, 120.0)
    notes.stable = {}
    notes.lose("carol", 4, 7)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (entry.Lost(150.0, "carol", "aa", 7, 7, "cut"), "an empty range was reported lost"),
        (entry.Lost(150.0, "carol", "", 7, 7, "cut"), "an empty range was reported lost"),
        (entry.Lost(150.0, "carol", "aa", 6, 7, "cut"), "was reported lost more than once"),
        (entry.Lost(150.0, "carol", "aa", 7, 8, "cut"), "was reported lost and came"),
        (entry.Lost(150.0, "carol", "aa", COUNT, COUNT + 1, "cut"), "was reported lost and never published"),
        (entry.Lost(150.0, "carol", "bb", 0, 1, "cut"), "was reported lost and never published"),
        (entry.Lost(150.0, "carol", "", 8, 12, "cut"), "more was reported lost than is missing"),
    ],
)
def test_a_report_that_is_not_exact(notes: Notes, loss: entry.Lost, kind: str) -> None:
    stopped(notes)
    notes.add("carol", loss)
    assert notes.kinds() == [kind]


def test_an_event_may_arrive_after_an_uncertain_report(notes: Notes) -> None:
    notes.stop("carol", 103.5, 120.0)
    notes.stable = {}
    for number in range(4, COUNT):
        notes.came["carol"][number] = 151.0 + number / 10
    notes.add("carol", entry.Lost(150.0, "carol", "", 4, COUNT, "unavailable"))
    assert notes.kinds() == []


def uncertain(first: int, last: int, term: str, at: float = 150.0) -> entry.Lost:
    return entry.Lost(at, "carol", "", first, last, "unavailable", term)


@pytest.mark.parametrize(
    ("losses", "kinds"),
    [
        ([uncertain(4, 8, "1:aa")], []),
        ([uncertain(4, 8, "1:aa"), uncertain(4, 8, "2:bb")], []),
        ([uncertain(2, 9, "1:aa")], ["more was reported lost than is missing"]),
        ([uncertain(2, 6, "1:aa"), uncertain(6, 9, "1:aa", at=160.0)], ["more was reported lost than is missing"]),
        ([uncertain(8, 11, "1:aa")], ["more was reported lost than is missing"]),
        ([uncertain(4, 6, "1:aa"), uncertain(5, 7, "1:aa")], ["was reported lost more than once"]),
    ],
    ids=["came by another term", "stood in two terms", "stood in one term only", "in several reports",
         "more than were published", "twice"],
)  # fmt: skip
def test_events_of_uncertain_reports_may_have_come_by_another_term(
    notes: Notes, losses: list[entry.Lost], kinds: list[str]
) -> None:
    """All ten came to carol; four of them were stable before anything befell anybody."""
    notes.stop("carol", 103.9, 120.0)
    notes.stable = {3: 103.3}
    notes.add("carol", *losses)
    assert notes.kinds() == kinds


@pytest.mark.parametrize(
    ("at", "kinds"), [(106.5, []), (109.5, ["was marked as recovered, and not reported lost before"])]
)
def test_only_what_was_reported_lost_is_marked_as_recovered(notes: Notes, at: float, kinds: list[str]) -> None:
    notes.stop("carol", 103.5, 106.0)
    notes.stable = {}
    del notes.came["carol"][7]
    notes.add("carol", uncertain(5, 6, "1:aa", at), entry.Delivered(107.2, "carol", "a", 7, 7, True, recovered=True))
    assert notes.kinds() == kinds


# --- who is healthy


def test_a_healthy_reader_gets_no_loss_report(notes: Notes) -> None:
    notes.stable = {}
    notes.lose("bob", 4, 7)
    assert notes.kinds() == ["was reported lost to a healthy reader"]


@pytest.mark.parametrize(("until", "excused"), [(108.0, True), (100.0, False), (0.0, False)])
def test_a_subscription_that_began_during_a_pause_may_be_told_of_what_waited_to_be_read_meanwhile(
    notes: Notes, until: float, *, excused: bool
) -> None:
    notes.stable, notes.started["bob"] = {}, 105.5
    for number in range(6):
        del notes.came["bob"][number]
    if until:
        notes.stop("carol", until - 5.0, until)
    notes.lose("bob", 3, 5)
    assert notes.kinds() == ([] if excused else ["was reported lost to a healthy reader"])
    notes.lose("bob", 7, 8)  # published after it began
    assert notes.kinds() == ["was reported lost to a healthy reader"]


def test_a_healthy_reader_gets_no_uncertain_report_either(notes: Notes) -> None:
    notes.stable = {}
    del notes.came["bob"][4]
    notes.add("bob", entry.Lost(150.0, "bob", "", 4, 5, "unavailable"))
    assert notes.kinds() == ["was reported lost to a healthy reader"]


def killed(notes: Notes, at: float) -> None:
    """Alice is killed after her seventh event, and nobody got the last two."""
    notes.stable = {}
    for numbers in (notes.published, notes.acknowledged, notes.came["carol"], notes.came["bob"]):
        for number in range(8, COUNT):
            del numbers[number]
    for number in (6, 7):
        del notes.came["bob"][number], notes.came["carol"][number]
    notes.kill("alice", at)


def test_events_that_died_with_their_writer_may_be_reported_lost(notes: Notes) -> None:
    killed(notes, 107.5)
    assert notes.kinds() == []
    notes.lose("bob", 6, 8)
    assert notes.kinds() == []


def test_events_published_long_before_the_writer_was_killed_must_arrive(notes: Notes) -> None:
    killed(notes, 106.0 + BOUNDS.survival_s + 0.1)
    assert notes.kinds() == ["neither came nor was reported lost"]
    notes.lose("bob", 6, 8)
    notes.lose("carol", 6, 8)
    assert notes.kinds() == ["was reported lost to a healthy reader"]


def test_events_that_a_living_reader_has_must_arrive(notes: Notes) -> None:
    killed(notes, 107.5)
    notes.came["carol"] |= {6: 106.2, 7: 107.2}
    assert notes.kinds() == ["neither came nor was reported lost"]
    notes.kill("carol", 108.5)
    assert notes.kinds() == []


def test_a_healthy_reader_that_is_left_waiting(notes: Notes) -> None:
    for number in range(3, COUNT):
        notes.came["bob"][number] = 103.0 + BOUNDS.silent_s + 0.1 + number / 100
    notes.stable = {}
    assert notes.kinds() == ["a healthy reader was left waiting"]
    notes.topic = entry.Topic(0.0, "t", "reliable", "wait")
    assert notes.kinds() == []


def test_silence_begins_when_a_writer_has_published_something(notes: Notes) -> None:
    notes.came["bob"][5] = 105.7
    longest_s, until = silence(notes.history(), notes.history().readers["bob"])
    assert (round(longest_s, 3), until) == (0.7, 105.7)


def test_a_reader_that_gets_nothing_more_is_silent_to_the_end(notes: Notes) -> None:
    for number in range(3, COUNT):
        del notes.came["bob"][number]
    longest_s, until = silence(notes.history(), notes.history().readers["bob"])
    assert (longest_s, until) == (SETTLED_S - 103.0, SETTLED_S)


def test_a_healthy_writers_event_that_no_root_admits(notes: Notes) -> None:
    notes.add("alice", entry.Refused(140.0, "a", 5, "root", "NotJoined: no root"))
    assert notes.kinds() == ["a healthy writer's event was not acknowledged"]
    notes.topic = entry.Topic(0.0, "t", "reliable", "wait")
    assert notes.kinds() == []


def test_only_the_last_event_has_to_be_stable_in_time(notes: Notes) -> None:
    notes.add("alice", entry.Refused(140.0, "a", 5, "stable", "NotStable: carol"))
    assert notes.kinds() == []
    notes.add("alice", entry.Refused(205.0, "a", 9, "stable", "NotStable: carol"))
    assert notes.kinds() == ["a healthy writer's event was not acknowledged"]


def test_a_healthy_readers_subscription_that_does_not_start(notes: Notes) -> None:
    notes.add("dave", entry.Subscribing(1.0, "dave", "t", False), entry.NotStarted(31.0, "dave", "NotJoined: nobody"))
    assert notes.kinds() == ["a healthy reader's subscription did not start"]


@pytest.mark.parametrize("how", ["slow", "stopped", "killed", "partition"])
def test_unhealthy_readers_may_wait_and_get_loss_reports(notes: Notes, how: str) -> None:
    befalls: dict[str, Callable[[], None]] = {
        "slow": lambda: setattr(notes, "slow", ("bob",)),
        "stopped": lambda: notes.stop("bob", 103.0, 104.0),
        "killed": lambda: notes.kill("bob", 130.0),
        "partition": lambda: notes.add("conductor", entry.Partitioned(103.0, ("bob",)), entry.Healed(104.0, ("bob",))),
    }
    befalls[how]()
    notes.stable = {}
    notes.lose("bob", 4, 6)
    for number in range(6, COUNT):
        notes.came["bob"][number] = 120.0 + number / 100
    assert notes.kinds() == []


# --- processes


def test_memory_that_grows(notes: Notes) -> None:
    grown = 50_000_000 + BOUNDS.grown_bytes_max
    notes.add("bob", *(entry.Weighed(3.0 + second, bytes_) for second, bytes_ in enumerate((50_000_000, grown, 0))))
    assert notes.kinds() == []
    assert notes.kinds(replace(BOUNDS, grown_bytes_max=BOUNDS.grown_bytes_max - 1)) == ["memory grew"]


def test_links_that_come_up_again_and_again(notes: Notes) -> None:
    opened = (5, 5 + BOUNDS.links_opened_max, 5 + BOUNDS.links_opened_max)
    notes.add("bob", *(entry.Weighed(3.0 + second, 50_000_000, count) for second, count in enumerate(opened)))
    assert notes.kinds() == []
    assert notes.kinds(replace(BOUNDS, links_opened_max=BOUNDS.links_opened_max - 1)) == [
        "links came up again and again"
    ]


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ([entry.Ended(120.0, "dave", 1, 1)], ["a process ended"]),
        ([entry.Ended(120.0, "dave", 1, 0)], ["a process ended"]),
        ([entry.Leaving(119.0, "dave", 1), entry.Ended(120.0, "dave", 1, 1)], ["a process ended"]),
        ([entry.Leaving(119.0, "dave", 1), entry.Ended(120.0, "dave", 1, 0)], []),
        ([entry.Killed(119.0, "dave", 1), entry.Ended(120.0, "dave", 1, -9)], []),
        ([entry.Complained(120.0, "dave", 1, "Traceback")], ["a process complained"]),
    ],
)
def test_a_process_that_ends_by_itself_or_complains(notes: Notes, lines: list[Entry], kinds: list[str]) -> None:
    notes.add("conductor", *lines)
    notes.add("dave")
    assert notes.kinds() == kinds


def test_the_verdict_tells_figures_and_each_violation_in_one_line(notes: Notes) -> None:
    notes.lose("bob", 4, 7)
    told = str(Verdict.of(notes.history() and notes.folder, BOUNDS)).splitlines()
    assert told[0].startswith("published 10, acknowledged 10, stable 4, refused {}, subscriptions 2, deliveries 17,")
    assert told[1] == "was not there when it was said to be stable: bob: 1: a 6"
    assert told[2] == "was reported lost to a healthy reader: bob: 3: a 4, a 5, a 6"
    assert told[3].startswith("violations: was not there when it was said to be stable (1), ")
