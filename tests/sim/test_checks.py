"""The checks find what they are for: a sound run is tampered with, one promise at a time."""

import copy
from collections.abc import Iterator

import pytest

from quillcast.core.envelope import Term
from quillcast.core.ids import NodeId
from quillcast.core.trace import Admitted
from quillcast.sim import checks
from quillcast.sim.applications import Event, Heard, Reader, Told
from quillcast.sim.scenario import Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation, Trouble, peer_of
from quillcast.sim.world import Broken

NEWS = TopicPlan(
    name="news",
    writers=[Writing(peer=1, from_s=8, until_s=20)],
    readers=[Reading(peer=peer, from_s=6) for peer in (2, 3, 4)],
)


@pytest.fixture(scope="module")
def finished() -> Simulation:
    simulation = Simulation(Scenario(peers=5, duration_s=90, topics=[NEWS]), seed=1)
    simulation.run()
    return simulation


@pytest.fixture
def sound(finished: Simulation) -> Iterator[Simulation]:
    """The finished run; what a test does to logs, troubles and ends is undone."""
    logs = [copy.copy(reader.log) for reader in finished.readers]
    records, troubles = list(finished.world.journal.records), list(finished.troubles)
    yield finished
    for reader, log in zip(finished.readers, logs, strict=True):
        reader.log, reader.slow, reader.ended_at = log, [], None
    finished.world.journal.records[:] = records
    finished.troubles[:] = troubles


def check(simulation: Simulation, plan: TopicPlan = NEWS) -> None:
    checks.Delivery(simulation, plan).check()


def reader_on(simulation: Simulation, machine: int) -> Reader:
    return next(reader for reader in simulation.readers if reader.host.machine.number == machine)


def forget(reader: Reader, number: int) -> Heard:
    """Take an event out of a reader's log."""
    place = next(at for at, entry in enumerate(reader.log) if isinstance(entry, Heard) and entry.event.number == number)
    entry = reader.log.pop(place)
    assert isinstance(entry, Heard)
    return entry


def forget_the_last(simulation: Simulation) -> Reader:
    """Take the last event out of a reader's log, on machine 2, as if it never came."""
    reader = reader_on(simulation, 2)
    forget(reader, len(simulation.writers[0].written) - 1)
    return reader


def told_of(simulation: Simulation, number: int, why: str = "cut") -> Told:
    """What a reader is told of the loss of an event of the one writer, by its position."""
    for _, _, record in simulation.world.journal.records:
        if isinstance(record, Admitted) and record.first <= number < record.first + record.count:
            index = record.index + number - record.first
            return Told(19.0, record.term, index, index + 1, why)
    raise AssertionError(f"event {number} was never admitted")


def test_a_sound_run_passes(sound: Simulation) -> None:
    assert len(sound.readers[0].log) == len(sound.writers[0].written) > 20
    checks.check_all(sound)


def test_a_repeat_is_found(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    reader.log.append(reader.log[3])
    with pytest.raises(Broken, match=r"reader 2\.1\.r0 was given event 3 of 1\.1\.w0 twice"):
        check(sound)


def test_a_wrong_order_is_found(sound: Simulation) -> None:
    log = sound.readers[1].log
    log[4], log[5] = log[5], log[4]
    with pytest.raises(Broken, match=r"event 4 of 1\.1\.w0 at .* s, after number 5"):
        check(sound)


def test_an_invented_event_is_found(sound: Simulation) -> None:
    reader_on(sound, 2).log.append(Heard(50.0, Event("1.1.w0", 10_000)))
    with pytest.raises(Broken, match="nobody wrote that"):
        check(sound)


def test_an_event_that_was_passed_over_is_found_unless_it_was_told(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    forget(reader, 7)
    reader.ended_at = 60.0  # it is not owed everything any more, yet nothing may be left out
    with pytest.raises(Broken, match="never told that it lost number 7"):
        check(sound)
    reader.log.insert(7, told_of(sound, 7))
    check(sound)


def test_a_best_effort_reader_may_miss_events_and_is_told_of_those_that_it_came_past(sound: Simulation) -> None:
    plan = TopicPlan(name="news", delivery="best_effort")
    reader = forget_the_last(sound)
    check(sound, plan)  # nothing came after it: nobody knows
    forget(reader, 7)
    with pytest.raises(
        Broken, match=r"given an event that came after event 7 .*, and never told that it lost that one"
    ):
        check(sound, plan)
    reader.log.insert(7, told_of(sound, 7, "dropped"))
    check(sound, plan)
    reader.log.append(told_of(sound, 9, "dropped"))
    with pytest.raises(Broken, match=r"was given event 9 .* and told that it lost it"):
        check(sound, plan)
    reader.log.pop()
    reader.log.append(reader.log[3])
    with pytest.raises(Broken, match="twice"):
        check(sound, plan)


def test_a_void_hole_is_a_word_about_what_lies_in_it_only(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    forget(reader, 7)
    reader.ended_at = 60.0
    reader.log.insert(2, Told(9.0, Term(1, bytes(16)), 2, 2, "void"))
    with pytest.raises(Broken, match="never told that it lost number 7"):
        check(sound)
    reader.log.insert(8, Told(12.0, Term(1, bytes(16)), 7, 7, "void"))
    check(sound)


def test_an_event_that_never_came_is_found_even_if_it_was_told(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    with pytest.raises(Broken, match=r"never got event .* though its writer lives; it was not told so either"):
        check(sound)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    with pytest.raises(Broken, match=r"though its writer lives; it was told so \(cut at 19\.000 s\)"):
        check(sound)


def test_a_slow_reader_may_be_told_and_may_not_be_left_in_the_dark(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    reader.slow.append((15.0, 40.0))
    with pytest.raises(Broken, match="the reader was slow, but it was not told that it lost it"):
        check(sound)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    check(sound)


def test_only_an_outage_of_about_a_lease_is_an_excuse(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    sound.troubles.append(Trouble(2, 12.0, 20.0, "cut off"))
    with pytest.raises(Broken, match="never got event"):
        check(sound)
    sound.troubles.append(Trouble(2, 22.0, 45.0, "cut off"))  # follows closely: together they are one
    check(sound)


def test_a_subscription_that_begins_beyond_a_cut_is_told_of_what_lower_terms_admit(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    start, began, written = reader.start, reader.started_at, sound.writers[0].written[-1]
    assert start is not None
    assert began is not None
    before = began - 0.1
    sound.troubles.append(Trouble(2, before, written - 1.0, "cut off"))
    try:
        with pytest.raises(Broken, match="never got event"):
            check(sound)  # admitted under the term that it began in
        reader.start = start._replace(term=Term(start.term.counter + 1, start.term.node))
        reader.knew = frozenset({start.term})
        with pytest.raises(Broken, match=r"its subscription began beyond a cut .* but it was not told"):
            check(sound)
        told = told_of(sound, len(sound.writers[0].written) - 1)
        reader.log.append(told)
        check(sound)
        sound.troubles[-1] = Trouble(2, before, written - checks.DOUBT_S - 1.0, "cut off")
        with pytest.raises(Broken, match="never got event"):
            check(sound)  # written long after the cut
        sound.troubles[-1] = Trouble(2, began + 0.1, written, "cut off")
        with pytest.raises(Broken, match="never got event"):
            check(sound)  # it began before the cut
        reader.log.remove(told)
        sound.troubles[-1] = Trouble(2, before, written, "cut off")
        reader.knew = frozenset()
        check(sound)  # its peer knew nothing of that reign
    finally:
        reader.start = start


def test_an_event_may_die_with_its_writer_only_if_nobody_had_it(sound: Simulation) -> None:
    forget_the_last(sound)
    host = sound.writers[0].host
    host.alive = False
    try:
        with pytest.raises(Broken, match="though it was called stable"):
            check(sound)
    finally:
        host.alive = True


def test_a_subscription_that_never_starts_is_found(sound: Simulation) -> None:
    reader = sound.readers[2]
    started_at, reader.started_at = reader.started_at, None
    try:
        with pytest.raises(Broken, match="never started"):
            check(sound)
    finally:
        reader.started_at = started_at


def test_what_never_becomes_stable_is_found(sound: Simulation) -> None:
    publisher = sound.writers[0].publisher
    publisher.stable -= 1
    try:
        with pytest.raises(Broken, match="stable at the end"):
            check(sound)
    finally:
        publisher.stable += 1


def test_a_leaf_set_that_lacks_a_peer_is_found(sound: Simulation) -> None:
    leaf_set = peer_of(sound.world.machines[3].host).overlay.leaf_set  # type: ignore[arg-type]
    gone = leaf_set.remove(sound.world.machines[0].node_id)
    assert gone is not None
    try:
        with pytest.raises(Broken, match=rf"peer 3 .* lacks \['{gone.node_id[:4].hex()}'\]"):
            checks.check_leaf_sets(sound)
    finally:
        leaf_set.add(gone)


def test_a_child_that_its_parent_does_not_know_is_found(sound: Simulation) -> None:
    trees = sound.trees("news")
    (root,) = [tree for tree in trees.values() if tree.root is not None]
    node, child = next(iter(root.children.items()))
    del root.children[node]
    try:
        with pytest.raises(Broken, match="does not know it as child"):
            checks.check_tree(sound, "news")
    finally:
        root.children[node] = child


def test_two_roots_are_found(sound: Simulation) -> None:
    trees = sound.trees("news")
    (root,) = [tree.root for tree in trees.values() if tree.root is not None]
    other = next(tree for tree in trees.values() if tree.root is None)
    other.root = root
    try:
        with pytest.raises(Broken, match="its roots are"):
            checks.check_tree(sound, "news")
    finally:
        other.root = None


def test_credit_that_is_never_given_back_is_found(sound: Simulation) -> None:
    host = sound.world.machines[2].host
    assert host is not None
    host.charge(NodeId(bytes(16)), 100)
    try:
        with pytest.raises(Broken, match="peer 2 never released 100 bytes"):
            checks.check_credit(sound)
    finally:
        host.charged.clear()
