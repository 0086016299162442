"""The experiments of scenarios/: each holds under its seeds, and some did what their names say."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quillcast.core.trace import Admitted, Attached, BecameRoot, Dropped, ResignedRoot
from quillcast.sim.applications import Heard, Reader, Told
from quillcast.sim.scenario import load
from quillcast.sim.simulation import Simulation
from tests.protocol.recording import is_stable

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.toml"))


def of(name: str, seed: int = 1, *marks: pytest.MarkDecorator) -> Any:
    """A scenario and a seed, as a parameter. All tests of one follow each other, and look at one simulation."""
    return pytest.param((name, seed), id=f"{name}-{seed}", marks=marks)


@pytest.fixture(scope="module")
def simulation(request: pytest.FixtureRequest) -> Simulation:
    name, seed = request.param
    made = Simulation(load(FOLDER / f"{name}.toml"), seed)
    made.run()
    return made


shown_by = partial(pytest.mark.parametrize, "simulation", indirect=True)


def when(simulation: Simulation, what: str) -> float:
    """When a fault struck for the first time."""
    return next(at for at, happened in simulation.happened if what in happened)


def heard(reader: Reader) -> dict[tuple[str, int], float]:
    """The events that a reader got, and when."""
    return {entry.event: entry.at for entry in reader.log if isinstance(entry, Heard)}


def told(reader: Reader) -> list[Told]:
    return [entry for entry in reader.log if isinstance(entry, Told)]


def written_between(simulation: Simulation, start: float, end: float) -> list[tuple[str, int]]:
    return [(w.name, number) for w in simulation.writers for number, at in enumerate(w.written) if start < at < end]


def who_had(simulation: Simulation, event: tuple[str, int], by: float) -> list[int]:
    """The peers whose reader was given an event by some time."""
    return [reader.host.machine.number for reader in simulation.readers if heard(reader).get(event, by) < by]


def admitted_by(simulation: Simulation, event: tuple[str, int]) -> dict[int, float]:
    """The roots that gave an event a position, and when each first did."""
    publisher = next(writer.publisher.id for writer in simulation.writers if writer.name == event[0])
    return {
        machine: at
        for at, machine, record in reversed(simulation.world.journal.records)
        if isinstance(record, Admitted)
        and record.publisher == publisher
        and record.first <= event[1] < record.first + record.count
    }


SEEDS = [
    of(file.stem, seed, *([pytest.mark.long] if place else []))
    for file in FILES
    for place, seed in enumerate(load(file).seeds)
]


@shown_by(SEEDS)
def test_it_holds_under_its_seeds(simulation: Simulation) -> None:
    assert simulation.scenario.about


@shown_by([of("root-killed-after-acknowledging")])
def test_what_the_dead_root_had_acknowledged_comes_from_the_writer(simulation: Simulation) -> None:
    killed_at = when(simulation, "peer 11 is without power")
    acknowledged = [e for e in written_between(simulation, 20.0, killed_at) if 11 in admitted_by(simulation, e)]
    assert acknowledged
    for event in acknowledged:
        assert who_had(simulation, event, killed_at + 1.0) == []
        assert len(who_had(simulation, event, 100.0)) == len(simulation.readers)


@shown_by([of("forwarder-killed-before-passing-on")])
def test_what_a_dead_forwarder_had_comes_from_others(simulation: Simulation) -> None:
    killed_at = when(simulation, "peer 8 is without power")
    below = {machine for _, machine, record in simulation.world.journal.records
             if isinstance(record, Attached) and record.parent == simulation.world.machines[8].node_id}  # fmt: skip
    held = [
        event
        for event in written_between(simulation, 20.0, killed_at)
        if 9 in who_had(simulation, event, killed_at) and not below & set(who_had(simulation, event, killed_at))
    ]
    assert len(below) > 2
    assert held
    for event in held:
        assert len(who_had(simulation, event, 100.0)) == len(simulation.readers)


@shown_by([of("publisher-restarted-with-stale-state")])
def test_a_writer_that_starts_again_on_whatever_disk_is_another_publisher_and_loses_nothing_it_kept(
    simulation: Simulation,
) -> None:
    assert [disk for disk in ("kept", "stale", "lost") if when(simulation, f"starts again, its disk {disk}")] == [
        "kept", "stale", "lost",
    ]  # fmt: skip
    assert len(simulation.writers) == len({writer.publisher.id for writer in simulation.writers}) == 4
    assert [writer.lives for writer in simulation.writers] == [False, False, False, True]
    for writer in simulation.writers:
        assert len(writer.written) > 5
        stable = writer.publisher.next if writer.lives else writer.publisher.stable
        for reader in simulation.readers:
            assert {number for name, number in heard(reader) if name == writer.name} >= set(range(stable))


@shown_by([of("last-copy-in-one-leaf"), of("forwarder-killed-above-the-only-copy")])
def test_the_last_copy_is_found_wherever_it_is(simulation: Simulation) -> None:
    leaf = {"last-copy-in-one-leaf": 9, "forwarder-killed-above-the-only-copy": 3}[simulation.scenario.name]
    killed_at = when(simulation, "peer 11 is without power")
    event = written_between(simulation, 20.0, killed_at)[0]
    assert who_had(simulation, event, killed_at + 1.0) == [leaf]
    assert len(who_had(simulation, event, 100.0)) == len(simulation.readers)


@shown_by([of("partition-with-two-roots")])
def test_a_partitioned_topic_has_two_roots_and_then_one(simulation: Simulation) -> None:
    partitioned_at, healed_at = when(simulation, "nothing passes"), when(simulation, "the cut has healed")
    roots: set[int] = set()
    most = 0
    for at, machine, record in simulation.world.journal.records:
        if isinstance(record, BecameRoot):
            roots.add(machine)
        elif isinstance(record, ResignedRoot | Attached):
            roots.discard(machine)
        if partitioned_at < at < healed_at:
            most = max(most, len(roots))
    assert most == 2
    assert len(roots) == 1
    during = written_between(simulation, partitioned_at + 6.0, healed_at - 1.0)
    roots = {event: {root for root, at in admitted_by(simulation, event).items() if at < healed_at} for event in during}
    assert set.union(*roots.values()) == {11, 15}, "events are admitted on both sides"
    for event in during:
        assert 0 < len(who_had(simulation, event, healed_at)) < len(simulation.readers)
        assert len(who_had(simulation, event, 100.0)) == len(simulation.readers)


@shown_by([of("root-paused")])
def test_another_root_takes_over_from_the_paused_one_and_nothing_is_lost(simulation: Simulation) -> None:
    paused_at, resumed_at = when(simulation, "is paused"), when(simulation, "is resumed")
    records = simulation.world.journal.records
    took_over = [m for at, m, record in records if isinstance(record, BecameRoot) and paused_at < at < resumed_at]
    assert took_over == [12]  # the next closest to the topic's id
    assert not any(told(reader) for reader in simulation.readers)
    resigned = [
        (at, m) for at, m, record in records if isinstance(record, ResignedRoot | BecameRoot) and at > resumed_at
    ]
    assert resigned, "it woke up as root, and there are two"
    meanwhile = written_between(simulation, paused_at + 8.0, resumed_at - 1.0)
    assert meanwhile
    for event in meanwhile:
        assert len(who_had(simulation, event, resumed_at)) == len(simulation.readers), "nobody waited for it"


@shown_by([of("root-killed-beside-a-slow-reader")])
def test_only_the_slow_reader_waits_when_the_root_dies(simulation: Simulation) -> None:
    (writer,) = simulation.writers
    for reader in simulation.readers:
        late = [number for (_, number), at in heard(reader).items() if at - writer.written[number] > 15.0]
        assert bool(late) == (reader.host.machine.number == 3)


@shown_by([of("slow-reader-cut")])
def test_a_cut_reader_learns_exactly_what_it_lost(simulation: Simulation) -> None:
    (writer,) = simulation.writers
    for reader in simulation.readers:
        missing = len(writer.written) - len(heard(reader))
        assert sum(entry.last - entry.first for entry in told(reader)) == missing
        assert (missing > 0) == (reader.host.machine.number == 3)


@shown_by([of("slow-reader-waited-for")])
def test_writers_wait_for_a_slow_reader_where_the_topic_says_so(simulation: Simulation) -> None:
    (writer,) = simulation.writers
    assert writer.held_back > 0
    assert all(len(heard(reader)) == len(writer.written) for reader in simulation.readers)


@shown_by([of("newcomer-above-a-slow-reader")])
def test_a_reader_below_a_newcomer_gets_what_the_newcomer_never_needed(simulation: Simulation) -> None:
    for reader in simulation.readers:
        (writer,) = [writer for writer in simulation.writers if writer.topic == reader.topic]
        assert reader.started_at is not None
        owed = {(writer.name, number) for number, at in enumerate(writer.written) if at > reader.started_at}
        assert owed <= heard(reader).keys()
        assert not told(reader)


@shown_by([of("publisher-discards-before-the-root-dies")])
def test_events_that_a_publisher_discarded_never_count_as_stable(simulation: Simulation) -> None:
    (writer,) = simulation.writers
    slow = next(reader for reader in simulation.readers if reader.host.machine.number == 3)
    assert writer.never_stable.count > 0
    for entry in told(slow):
        assert not any(writer.knows_stable(number) for number in range(entry.first, entry.last))


@shown_by([of("publisher-discards-beyond-a-cut", 2)])
def test_what_only_its_publisher_knows_of_when_the_root_dies_is_reported_and_no_more_than_that(
    simulation: Simulation,
) -> None:
    """It discards the last of them after it asked for the next root."""
    (writer,), (reader,) = simulation.writers, simulation.readers
    assert writer.publisher.dropped.within(0, 12) == [(0, 12)]
    assert [(entry.first, entry.last, entry.why) for entry in told(reader)] == [
        (0, 12, "unavailable"), (12, 13, "unavailable"),
    ]  # fmt: skip
    assert sorted(number for _, number in heard(reader)) == list(range(13, len(writer.written)))


@shown_by([of("best-effort-past-a-slow-link")])
def test_events_that_a_best_effort_topic_drops_are_counted_and_reported(simulation: Simulation) -> None:
    (writer,) = simulation.writers
    dropped = {}
    for reader in simulation.readers:
        assert {entry.why for entry in told(reader)} <= {"dropped"}
        dropped[reader.host.machine.number] = sum(entry.last - entry.first for entry in told(reader))
        assert len(heard(reader)) + dropped[reader.host.machine.number] == len(writer.written)
    assert dropped[3] > 0
    assert dropped[9] == 0, "a slow link is nobody else's matter"
    records = [record for _, _, record in simulation.world.journal.records]
    assert sum(record.count for record in records if isinstance(record, Dropped)) >= dropped[3]


@shown_by([of("rivals-meet-after-a-partition", seed, *[pytest.mark.long] * (seed > 1)) for seed in (1, 2, 3)])
def test_rivals_meet_within_five_seconds_and_from_then_on_every_event_comes_to_everybody(
    simulation: Simulation,
) -> None:
    healed_at = when(simulation, "the cut has healed")
    became_root = [at for at, _, record in simulation.world.journal.records if isinstance(record, BecameRoot)]
    assert max(became_root) < healed_at + 5.0
    after = written_between(simulation, healed_at + 5.0, 110.0)
    assert {event[0] for event in after} == {writer.name for writer in simulation.writers}
    for event in after:
        assert len(who_had(simulation, event, 150.0)) == len(simulation.readers)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_new_topic_is_given_is_stable_within_a_second(seed: int) -> None:
    simulation = Simulation(load(FOLDER / "fresh-topic-after-a-common-start.toml"), seed)
    for written_by in (10.0, 14.0):
        simulation.world.run(written_by + 1.0)
        writer = simulation.writers[-1]
        assert len(writer.written) > 2
        assert writer.publisher.stable == len([at for at in writer.written if at < written_by])
    hows = [record.how for _, _, record in simulation.world.journal.records if isinstance(record, BecameRoot)]
    assert {*hows} <= {"created", "transferred"}
    simulation.run()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_no_root_goes_by_default_settings_however_often_it_starts_anew(seed: int) -> None:
    simulation = Simulation(load(FOLDER / "root-restarted-with-a-known-identity.toml"), seed)
    became_root = 0
    for tenth in range(60, 1100):
        simulation.world.run(tenth / 10)
        for tree in simulation.trees("news").values():
            if tree.root is not None:
                became_root += 1
                assert tree.descriptor.settings.slow == tree.root.descriptor.settings.slow == "wait"
    assert became_root > 800
    simulation.run()


@shown_by([of("publisher-discards-before-stable")])
def test_what_a_writer_discarded_never_counts_as_stable_and_what_does_every_reader_was_given(
    simulation: Simulation,
) -> None:
    [writer] = simulation.writers
    publisher, heard_by = writer.publisher, [heard(reader) for reader in simulation.readers]
    numbers = range(publisher.next)
    stable = [number for number in numbers if is_stable(publisher, number)]
    assert 0 < publisher.dropped.count == len(numbers) - len(stable)
    assert all((writer.name, number) in given for given in heard_by for number in stable)


@shown_by([of("publisher-crosses-over-in-a-partition")])
def test_events_of_a_publisher_that_crosses_a_partition_are_lost_to_no_reader_it_left(simulation: Simulation) -> None:
    left_behind = [reader for reader in simulation.readers if reader.host.machine.number in (1, 2)]
    for reader in left_behind:
        assert told(reader) == []
        assert set(written_between(simulation, 10.0, 100.0)) <= heard(reader).keys()


@shown_by([of("topic-first-used-beyond-a-partition")])
def test_what_a_topic_had_beyond_a_partition_is_reported_to_those_who_subscribed_before(simulation: Simulation) -> None:
    """By the number of its term it came earlier, but it was published later."""
    lost = {
        reader.host.machine.number: [(told_.first, told_.last) for told_ in told(reader)]
        for reader in simulation.readers
    }
    assert lost == {1: [(0, 20)], 2: [(0, 20)], 3: []}
