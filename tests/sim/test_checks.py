"""The checks find what they are for: a sound run is tampered with, one promise at a time."""

import copy
from collections.abc import Iterator
from contextlib import nullcontext

import msgspec
import pytest

from quillcast.core.bundle import Block
from quillcast.core.envelope import NO_TERM, RELIABLE_STREAMS, Term
from quillcast.core.ids import NodeId
from quillcast.core.ranges import RangeSet
from quillcast.core.trace import Admitted, Delivered, Dropped, Mark, Repaired
from quillcast.protocol.topics.config import MIB
from quillcast.protocol.topics.descriptor import Settings, described
from quillcast.protocol.topics.state.sources import Sources, SourceState
from quillcast.sim import checks, delivery, judges, leases
from quillcast.sim.admission_log import AdmissionLog
from quillcast.sim.applications import Event, Heard, Reader, Told, peer_of
from quillcast.sim.leases import JOINED_S, MEET_S
from quillcast.sim.observed import AskedChange
from quillcast.sim.reach import Span
from quillcast.sim.scenario import Changing, Reading, Scenario, TopicPlan, Writing
from quillcast.sim.simulation import Simulation
from quillcast.sim.world import Broken, World

NEWS = TopicPlan(
    name="news",
    writers=[Writing(peer=1, from_s=8, until_s=20)],
    readers=[Reading(peer=peer, from_s=6) for peer in (2, 3, 4)],
)


@pytest.fixture(scope="module")
def finished() -> Simulation:
    simulation = Simulation(Scenario(peers=5, duration_s=100, topics=[NEWS]), seed=1)
    simulation.run()
    return simulation


@pytest.fixture
def sound(finished: Simulation) -> Iterator[Simulation]:
    """The finished run; what a test does to logs, troubles and ends is undone."""
    logs = [copy.copy(reader.log) for reader in finished.readers]
    records, reach = list(finished.world.journal.records), finished.reach
    yield finished
    for reader, log in zip(finished.readers, logs, strict=True):
        reader.log, reader.slow, reader.ended_at = log, [], None
    finished.world.journal.records[:] = records
    finished.reach = finished.judges.reach = reach


def check(simulation: Simulation, plan: TopicPlan = NEWS) -> None:
    delivery.Delivery(simulation, plan).check()


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
    """The uncertain report of the loss of an event of the only writer."""
    for _, _, record in simulation.world.journal.records:
        if isinstance(record, Admitted) and record.first <= number < record.first + record.count:
            index = record.index + number - record.first
            return Told(19.0, record.term, index, index + 1, why)
    raise AssertionError(f"event {number} was never admitted")


class Cuts:
    """A history of the network that a test makes up: who was apart when, whoever asks."""

    def __init__(self, world: World, spans: list[Span], *, pauses: bool = False, ended: set[int] | None = None) -> None:
        self.world, self.spans, self.pauses, self.ended = world, spans, pauses, ended

    def process_paused(self, _machine: int, _span: Span) -> bool:
        return self.pauses

    def apart(self, _a: int, _b: int, join_s: float) -> list[Span]:
        return self.spans

    def cut_off(self, _machine: int, _others: list[int], join_s: float) -> list[Span]:
        return self.spans

    def without_replicas(self, _topic: bytes, _count: int, join_s: float) -> list[Span]:
        return []

    def process_ended(self, machine: int, _span: Span) -> bool:
        return machine in (self.ended or ())

    def group(self, machine: int, at: float) -> list[int]:
        return [machine] if self.ended is None else [each.number for each in self.world.machines]

    def together(self, _a: int, _b: int, since: float) -> bool:
        return all(span.end < since for span in self.spans)


def apart(simulation: Simulation, start: float, end: float, *, pauses: bool = False) -> None:
    """As if the network had been cut between all readers and writers, or readers had been paused."""
    simulation.reach = Cuts(simulation.world, [Span(start, end)], pauses=pauses)  # type: ignore[assignment]


def sound_delivery(simulation: Simulation) -> delivery.Delivery:
    return delivery.Delivery(simulation, NEWS)


def test_a_sound_run_passes(sound: Simulation) -> None:
    assert len(sound.readers[0].log) == len(sound.writers[0].written) > 20
    checks.check_all(sound)


def test_a_repeat_is_found(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    reader.log.append(reader.log[3])
    with pytest.raises(Broken, match=r"reader 2\.1\.r0 received event 3 of 1\.1\.w0 twice"):
        check(sound)


def test_a_wrong_order_is_found(sound: Simulation) -> None:
    log = sound.readers[1].log
    log[4], log[5] = log[5], log[4]
    with pytest.raises(Broken, match=r"event 4 of 1\.1\.w0 at .* s, after number 5"):
        check(sound)


def test_an_invented_event_is_found(sound: Simulation) -> None:
    reader_on(sound, 2).log.append(Heard(50.0, Event("1.1.w0", 10_000)))
    with pytest.raises(Broken, match="nobody wrote it"):
        check(sound)


def test_a_skipped_event_is_found_unless_it_was_reported(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    forget(reader, 7)
    reader.ended_at = 60.0  # it is not owed everything any more, yet nothing may be left out
    with pytest.raises(Broken, match="got no report of losing number 7"):
        check(sound)
    reader.log.insert(7, told_of(sound, 7))
    check(sound)


def test_a_best_effort_reader_may_miss_events_and_gets_reports_of_those_it_skipped(sound: Simulation) -> None:
    plan = TopicPlan(name="news", delivery="best_effort")
    reader = forget_the_last(sound)
    check(sound, plan)  # nothing came after it: nobody knows
    forget(reader, 7)
    with pytest.raises(Broken, match=r"received an event after event 7 .*, and got no report of losing that one"):
        check(sound, plan)
    reader.log.insert(7, told_of(sound, 7, "dropped"))
    check(sound, plan)
    reader.log.append(told_of(sound, 9, "dropped"))
    with pytest.raises(Broken, match=r"received event 9 .* and a report that it was lost"):
        check(sound, plan)
    reader.log.pop()
    reader.log.append(reader.log[3])
    with pytest.raises(Broken, match="twice"):
        check(sound, plan)


def test_an_event_that_never_arrived_is_found_even_if_it_was_reported(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    with pytest.raises(
        Broken, match=r"never received event .* though its writer is alive; the loss was not reported either"
    ):
        check(sound)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    with pytest.raises(Broken, match=r"though its writer is alive; the loss was reported \(cut at 19\.000 s\)"):
        check(sound)


def test_a_slow_reader_may_be_told_and_may_not_be_left_in_the_dark(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    reader.slow.append((15.0, 40.0))
    with pytest.raises(Broken, match="the loss was not reported either"):
        check(sound)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    check(sound)
    reader.slow[:] = [(1.0, 2.0)]
    with pytest.raises(Broken, match=r"the loss was reported .* but its lease was live"):
        check(sound)  # slow long before


def test_only_an_outage_of_about_a_lease_is_an_excuse(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    written = sound.writers[0].written[-1]
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1))
    apart(sound, 12.0, 30.0)
    with pytest.raises(Broken, match="never received event"):
        check(sound)
    apart(sound, 12.0, 45.0)
    check(sound)
    apart(sound, 12.0, 36.0)
    with pytest.raises(Broken, match="never received event"):
        check(sound)
    apart(sound, 12.0, 36.0, pauses=True)
    check(sound)
    apart(sound, written - leases.JOINED_S - 32.0, written - leases.JOINED_S - 1.0)
    with pytest.raises(Broken, match="never received event"):
        check(sound)  # it had had time to take a lease anew


def test_an_outage_between_a_subscriber_and_the_root_that_called_a_sources_event_stable_is_one_too(
    sound: Simulation,
) -> None:
    reader, writer = forget_the_last(sound), sound.writers[0]
    number = len(writer.written) - 1
    reader.log.append(told_of(sound, number))
    admitted = {each.machine for each in sound.ledgers["news"].admitted(writer.publisher.id, number)}
    other = next(machine for machine in range(5) if machine not in {1, 2, *admitted})
    apart(sound, 12.0, 45.0)
    cuts = sound.reach
    cuts.apart = lambda a, b, join_s: [Span(12.0, 45.0)] if other in (a, b) else []  # type: ignore[method-assign]
    cuts.cut_off = lambda machine, others, join_s: []  # type: ignore[assignment,method-assign,misc]
    with pytest.raises(Broken, match="never received event"):
        check(sound)
    sound.vouched[Event(writer.name, number)] = [other]
    try:
        check(sound)
    finally:
        sound.vouched.clear()


def test_a_subscription_that_begins_beyond_a_cut_learns_of_events_of_lower_terms(sound: Simulation) -> None:
    reader = forget_the_last(sound)
    start, began, written = reader.start, reader.started_at, sound.writers[0].written[-1]
    assert start is not None
    assert began is not None
    told = told_of(sound, len(sound.writers[0].written) - 1)
    apart(sound, began - 0.1, written)
    try:
        with pytest.raises(Broken, match="the loss was not reported either"):
            check(sound)
        reader.log.append(told)
        check(sound)
        apart(sound, began + 0.1, written)
        with pytest.raises(Broken, match="never received event"):
            check(sound)  # it began before the cut
        reader.log.remove(told)
        reader.start = start._replace(term=Term(start.term.counter + 1, start.term.node))
        with pytest.raises(Broken, match="the loss was not reported either"):
            check(sound)  # though its peer knew nothing of that term
        reader.log.append(told)
        check(sound)  # it had no lease there
        reader.start = start._replace(term=Term(start.term.counter, bytes(16)))
        check(sound)  # nor of a root whose term has the same number
        reader.start = start._replace(term=Term(start.term.counter - 1, start.term.node))
        with pytest.raises(Broken, match="its lease was live"):
            check(sound)  # that root follows its own
        reader.start = start._replace(term=Term(start.term.counter, bytes(16)))
        reader.knew = {start.term: 0}
        with pytest.raises(Broken, match="its lease was live"):
            check(sound)
    finally:
        reader.start, reader.knew = start, {}


@pytest.mark.parametrize("between", [True, False])
def test_a_report_of_an_earlier_term_that_was_over_when_the_subscription_began_is_found(
    sound: Simulation, *, between: bool
) -> None:
    """Even if its peer knew the term, but not how far it went.

    But what lies between two events that came is owed wherever it was admitted.
    """
    reader, (writer, *_) = reader_on(sound, 2), sound.writers
    start, began, last = reader.start, reader.started_at, len(writer.written) - 1
    assert start is not None
    forget(reader, last)
    for number in () if between else range(last):
        forget(reader, number)
    reader.log.append(exactly(sound, last, last + 1, at=60.0)._replace(term=start.term))
    reader.start = start._replace(term=Term(start.term.counter + 1, start.term.node))
    try:
        for began_s, is_over in ((0.0, False), (9.0, False), (13.0, True), (14.0, True)):
            reader.started_at, reader.knew = writer.written[last] + began_s, {start.term: 0} if began_s > 13 else {}
            judge = sound_delivery(sound)
            with pytest.raises(Broken, match="is older than") if is_over and not between else nullcontext():
                judge.check_reports(reader)
    finally:
        reader.start, reader.started_at, reader.knew = start, began, {}


@pytest.mark.parametrize("ended", [True, False])
def test_a_peer_that_ended_tells_nobody_when_a_term_was_over(sound: Simulation, *, ended: bool) -> None:
    """The root that admitted its last event ended, too, and a third peer had that event later."""
    last = len(sound.writers[0].written) - 1
    admitted = next(sound.ledgers["news"].admitted(sound.writers[0].publisher.id, last))
    first, late, reader = sorted(sound.readers, key=lambda each: each.host.machine.number == admitted.machine)
    start, began = reader.start, reader.started_at
    assert start is not None
    for number in range(last + 1):
        forget(reader, number)
    came = forget(late, last)
    late.log.append(came._replace(at=came.at + 5.0))
    gone = {admitted.machine, *([first.host.machine.number] if ended else [])}
    sound.reach = Cuts(sound.world, [], ended=gone)  # type: ignore[assignment]
    reader.log.append(exactly(sound, last, last + 1, at=came.at + 8.0)._replace(term=start.term))
    reader.start = start._replace(term=Term(start.term.counter + 1, start.term.node))
    reader.started_at, reader.knew = came.at + 5.0, {}
    try:
        with nullcontext() if ended else pytest.raises(Broken, match="is older than"):
            sound_delivery(sound).check_reports(reader)
    finally:
        reader.start, reader.started_at, reader.knew = start, began, {}


# --- reports


def exactly(simulation: Simulation, first: int, last: int, at: float = 19.0) -> Told:
    """A report that names the one writer's events."""
    return Told(at, NO_TERM, first, last, "unavailable", simulation.writers[0].publisher.id)


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ([(7, 7)], "which is empty"),
        ([(6, 8)], "and number 6 arrived"),
        ([(7, 8), (7, 8)], r"and \[\(7, 8\)\] had been reported before"),
        ([(7, 8), (8, 9)], "this must be one report"),
        ([(7, 9), (5000, 5001)], "nobody wrote it"),
    ],
)
def test_a_report_that_is_not_exact_is_found(sound: Simulation, reports: list[tuple[int, int]], says: str) -> None:
    reader = reader_on(sound, 2)
    for number in (7, 8):
        forget(reader, number)
    reader.ended_at = 60.0
    reader.log.append(exactly(sound, 7, 9))
    check(sound)
    reader.log.pop()
    reader.log[:0] = [exactly(sound, 7, 9, at=1.0)] if says == "and number 6 arrived" else []
    reader.log += [exactly(sound, *report) for report in reports]
    if says == "and number 6 arrived":
        del reader.log[0]
    with pytest.raises(Broken, match=says):
        sound_delivery(sound).check_reports(reader)


def test_a_loss_that_showed_when_an_event_was_delivered_may_be_told_by_itself(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    forget(reader, 7)
    forget(reader, 9)
    between = forget(reader, 6)._replace(at=19.0)
    reader.log += [exactly(sound, 7, 8), between]
    forget(reader, 8)
    reader.ended_at = 60.0
    sound_delivery(sound).check_reports(reader)
    reader.log.append(exactly(sound, 8, 10))
    sound_delivery(sound).check_reports(reader)
    reader.log.remove(between)
    reader.log.insert(0, between)
    with pytest.raises(Broken, match="this must be one report"):
        sound_delivery(sound).check_reports(reader)


def test_a_report_of_what_came_before_the_subscription_is_found(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    start = reader.start
    assert start is not None
    for number in range(3):
        forget(reader, number)
    reader.log.append(exactly(sound, 0, 3))
    sound_delivery(sound).check_reports(reader)
    reader.start = start._replace(index=start.index + 2)
    try:
        with pytest.raises(Broken, match="number 0 is older than its subscription"):
            sound_delivery(sound).check_reports(reader)
    finally:
        reader.start = start


@pytest.mark.parametrize("named", [True, False])
def test_a_report_of_what_a_source_admitted_long_before_the_subscription_is_found(
    sound: Simulation, *, named: bool
) -> None:
    """It has no position in a stream that it learned of late, and may take what came shortly before it for later."""
    reader, writer, source = reader_on(sound, 2), sound.writers[0], Term(RELIABLE_STREAMS, bytes(16))
    for number in range(3):
        forget(reader, number)
    judge, began, reader.started_at = sound_delivery(sound), reader.started_at, 10.5
    told = exactly(sound, 0, 3, at=18.5)._replace(term=source, publisher=writer.publisher.id if named else b"")
    reader.log.append(told)
    try:
        for admitted_at, holds in ((7.6, True), (7.4, False)):  # 2 s and an eighth of 8 s before 10.5 s
            judge.ledger = AdmissionLog()
            judge.ledger.note(admitted_at, 1, Admitted(sound.topics["news"], writer.publisher.id, 0, 3, source, 0))
            with nullcontext() if holds else pytest.raises(Broken, match=r"number 0 .*is older than its subscription"):
                judge.check_reports(reader)
    finally:
        reader.started_at = began


CHANGED = msgspec.structs.replace(NEWS, changes=[Changing(peer=0, at_s=12.0, admission="root")])


@pytest.mark.parametrize("beyond", [True, False])
def test_where_streams_end_with_sessions_a_report_of_older_events_needs_a_partition(
    sound: Simulation, *, beyond: bool
) -> None:
    reader, writer, source = reader_on(sound, 2), sound.writers[0], Term(RELIABLE_STREAMS, bytes(16))
    forget(reader, 0)
    apart(sound, 8.0, 11.0 if beyond else 9.0)
    judge, began, reader.started_at = delivery.Delivery(sound, CHANGED), reader.started_at, 30.0 - 10.5 * beyond
    judge.ledger = AdmissionLog()
    judge.ledger.note(7.0, 1, Admitted(sound.topics["news"], writer.publisher.id, 0, 1, source, 0))
    reader.log.append(exactly(sound, 0, 1, at=31.0)._replace(term=source))
    try:
        with nullcontext() if beyond else pytest.raises(Broken, match=r"number 0 is older than its subscription"):
            judge.check_reports(reader)
    finally:
        reader.started_at = began


@pytest.mark.parametrize("again", [True, False])
def test_a_report_of_a_position_whose_event_came_is_found_unless_it_stands_in_another_term(
    sound: Simulation, *, again: bool
) -> None:
    reader, writer, source = reader_on(sound, 2), sound.writers[0], Term(RELIABLE_STREAMS, bytes(16))
    judge = delivery.Delivery(sound, CHANGED)
    judge.ledger = AdmissionLog()
    for term in (source, Term(1, bytes(16))) if again else (source,):
        judge.ledger.note(20.0, 1, Admitted(sound.topics["news"], writer.publisher.id, 0, 1, term, 0))
    reader.log.append(exactly(sound, 0, 1, at=31.0)._replace(term=source, publisher=b""))
    with nullcontext() if again else pytest.raises(Broken, match=r"where numbers \[0\] .* had arrived"):
        judge.check_reports(reader)


def test_an_uncertain_report_of_positions_that_were_never_given_is_found(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    reader.log.append(told_of(sound, len(sound.writers[0].written) - 1)._replace(last=10_000))
    with pytest.raises(Broken, match="only 1 of these positions were assigned"):
        sound_delivery(sound).check_reports(reader)


def test_an_event_that_comes_after_an_uncertain_report_of_its_position_is_marked(sound: Simulation) -> None:
    reader = reader_on(sound, 2)
    sound_delivery(sound).check_marks(reader)
    heard = reader.log[7]
    assert isinstance(heard, Heard)
    reader.log[7] = heard._replace(recovered=True)
    with pytest.raises(Broken, match=r"received event 7 .* as recovered, although no loss had been reported"):
        sound_delivery(sound).check_marks(reader)
    reader.log.insert(3, told_of(sound, 7))
    sound_delivery(sound).check_marks(reader)
    reader.log[8] = heard
    with pytest.raises(Broken, match=r"received event 7 .* and is not marked as recovered"):
        sound_delivery(sound).check_marks(reader)


def test_an_event_that_comes_long_after_the_last_fault_is_found(sound: Simulation) -> None:
    reader, writer = reader_on(sound, 2), sound.writers[0]
    last = reader.log.pop()
    assert isinstance(last, Heard)
    late = writer.written[last.event.number] + leases.bound_s(sound.scenario.config)
    reader.log.append(last._replace(at=late - 0.1))
    check(sound)
    reader.log[-1] = last._replace(at=late + 0.1)
    with pytest.raises(Broken, match=r"silence: .* heard nothing of event"):
        check(sound)


def test_the_time_that_a_share_of_half_full_buffers_held_the_publisher_back_does_not_count(sound: Simulation) -> None:
    reader, writer, waits = reader_on(sound, 2), sound.writers[0], msgspec.structs.replace(NEWS, slow="wait")
    last = reader.log.pop()
    assert isinstance(last, Heard)
    written = writer.written[last.event.number]
    (admission,) = sound.ledgers["news"].admitted(writer.publisher.id, last.event.number)
    assert admission.at > written
    reader.log.append(last._replace(at=admission.at + leases.bound_s(sound.scenario.config)))
    with pytest.raises(Broken, match=r"silence: .* heard nothing of event"):
        check(sound, waits)
    sound.half_full.spans.append(Span(written, admission.at))
    check(sound, waits)
    sound.half_full.spans.clear()


# --- judges that look on


def test_an_event_that_is_called_stable_too_soon_is_found(sound: Simulation) -> None:
    reader, writer = reader_on(sound, 2), sound.writers[0]
    sound.judges.told_stable(writer, 0)
    event = Event(writer.name, 7)
    reader.heard.remove(event)
    try:
        with pytest.raises(Broken, match=r"event 7 .* is stable, and reader 2\.1\.r0 has a live lease .* not given it"):
            sound.judges.told_stable(writer, 0)
        reader.log.append(exactly(sound, 7, 8))
        with pytest.raises(Broken, match="was told that it lost it"):
            sound.judges.told_stable(writer, 0)
        sound.crowding.spans.append(Span(1.0, writer.written[7] - leases.MEET_S + 0.1))
        sound.judges.told_stable(writer, 0)  # a budget had run out, and it was cut
        reader.log.pop()
        sound.crowding.spans[:] = [Span(1.0, writer.written[-1] - leases.MEET_S - 0.1)]
        with pytest.raises(Broken, match="was not given it"):
            sound.judges.told_stable(writer, 0)  # it had caught up since
        sound.crowding.spans.append(Span(5.0, writer.written[-1]))
        sound.judges.told_stable(writer, 0)  # its lease went first, and it will be told
        sound.crowding.spans.clear()
        records = sound.world.journal.records
        records.append((sound.world.now, 3, Dropped(sound.topics["news"], 1, "budget")))
        sound.judges.told_stable(writer, 0)  # the peer on the way to it cannot keep up
    finally:
        reader.heard.add(event)
        sound.crowding.spans.clear()


def test_a_loss_that_could_have_been_avoided_is_found(sound: Simulation) -> None:
    reader, writer = reader_on(sound, 2), sound.writers[0]
    event, told = Event(writer.name, 7), exactly(sound, 7, 8)
    reader.heard.remove(event)
    payload = Event(writer.name, 7).payload(32)
    try:
        sound.judges.told_lost(reader, told)  # all discarded it long ago
        writer.publisher.retained.append(Block.seal(writer.publisher.id, 7, [payload], time_ns=0))
        with pytest.raises(Broken, match=r"was told that it lost event 7 .* and peer 1, .* holds it"):
            sound.judges.told_lost(reader, told)
        repaired, records = Repaired(sound.topics["news"], "neighbour", 1), sound.world.journal.records
        records.append((sound.world.now - judges.SPREAD_S + 0.1, 1, repaired))
        sound.judges.told_lost(reader, told)  # it came there too late for the reader's peer to know
        records[-1] = (sound.world.now - judges.SPREAD_S - 0.1, 1, repaired)
        with pytest.raises(Broken, match="holds it"):
            sound.judges.told_lost(reader, told)
        records.pop()
        sound.reach = Cuts(sound.world, [Span(80.0, 99.0)])  # type: ignore[assignment]
        sound.judges.reach = sound.reach
        sound.judges.told_lost(reader, told)
    finally:
        reader.heard.add(event)
        writer.publisher.retained.clear()


def test_a_report_of_what_was_stable_when_the_subscriber_asked_is_found(sound: Simulation) -> None:
    reader, writer = reader_on(sound, 2), sound.writers[0]
    told = told_of(sound, 7)._replace(first=7, last=8, publisher=writer.publisher.id)
    sound.judges.told_lost(reader, told)
    reader.asked_at, began = sound.world.now, reader.asked_at
    try:
        with pytest.raises(Broken, match=r"was told that it lost event 7 .* which was stable when it asked"):
            sound.judges.told_lost(reader, told)
        reader.earliest = True
        sound.judges.told_lost(reader, told)
    finally:
        reader.asked_at, reader.earliest = began, False


def test_an_uncertain_report_of_what_a_reachable_peer_knows_is_found(
    sound: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, told = reader_on(sound, 2), told_of(sound, 7, "dropped")
    monkeypatch.setattr(judges.holdings, "positions", lambda *_: RangeSet([(told.first, told.last)]))
    with pytest.raises(Broken, match=r"peer \d, which it could reach, knows what stood at"):
        sound.judges.told_lost(reader, told)
    monkeypatch.setattr(reader, "waits_for_nothing_in", told.term)
    sound.judges.told_lost(reader, told)  # it began there although a best-effort session was known
    later = told._replace(term=Term(told.term.counter + 1, told.term.node))
    for other in (later, told._replace(why="unavailable")):
        with pytest.raises(Broken, match="knows what stood at"):
            sound.judges.told_lost(reader, other)


def test_bytes_beyond_the_bound_are_found(sound: Simulation) -> None:
    peer = peer_of(sound.world.machines[1].host)  # type: ignore[arg-type]
    publisher = sound.writers[0].publisher
    sound.judges.within_bounds(peer, 0)
    with pytest.raises(Broken, match="bounds: peer 1 keeps 0 bytes"):
        sound.judges.within_bounds(peer, -200 * MIB)
    publisher.retained.append(Block.seal(publisher.id, 7, [b""], time_ns=0))
    publisher.retained_bytes = 100 * MIB
    try:
        with pytest.raises(Broken, match="a publisher on peer 1 retains"):
            sound.judges.within_bounds(peer, 0)
    finally:
        publisher.retained.clear()
        publisher.retained_bytes = 0


def test_a_lease_that_is_held_though_the_child_speaks_elsewhere_is_found(sound: Simulation) -> None:
    trees, held = sound.trees("news"), sound.held_leases
    (root,) = [tree for tree in trees.values() if tree.root is not None]
    children = root.leases.children
    holder, former = [machine.node_id for machine in sound.world.machines if machine.node_id in children][:2]
    tree = trees[sound.world.number_at(root.leases.children[holder].contact.address)]
    tree.open_leases().orphan(root.leases.children[former], sound.world.now + 30.0, [former])
    lease = tree.leases.orphaned[former]
    try:
        held.check()
        assert held.since == {}, "it covers all that there is"
        lease.acknowledged = 0
        held.check()
        held.since = {key: at - JOINED_S - 1.0 for key, at in held.since.items()}
        with pytest.raises(Broken, match="holds back topic news for its former child"):
            held.check()
    finally:
        tree.leases.orphaned, held.since = {}, {}


def test_a_root_that_forgot_a_topics_settings_is_found(sound: Simulation) -> None:
    topic = sound.topics["news"]
    knows, forgot = (peer_of(sound.world.machines[number].host).topics.descriptors for number in (3, 0))  # type: ignore[arg-type]
    created = knows[topic]
    sound.created["news"] = created
    record = Admitted(topic, bytes(16), 0, 1, NO_TERM, 0)
    try:
        sound.judges.admitted(0, record)
        knows[topic] = described("news", Settings(slow="wait"))
        sound.judges.admitted(0, record)  # it may have come to know them just now
        sound.judges.known_since = {who: at - MEET_S for who, at in sound.judges.known_since.items()}
        with pytest.raises(Broken, match=r"peer 0 admits .* by default settings, and peer 3, .* knows those"):
            sound.judges.admitted(0, record)
        forgot[topic] = knows[topic]
        sound.judges.admitted(0, record)
    finally:
        knows[topic] = forgot[topic] = created
        sound.created.clear()


def test_events_of_writers_that_are_not_on_the_list_are_found(
    sound: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, writer = sound.topics["news"], sound.writers[0]
    source = Term(RELIABLE_STREAMS, bytes(16))
    admitted = Admitted(topic, writer.publisher.id, 0, 1, NO_TERM, 0)
    delivered = Delivered(topic, writer.publisher.id, 0, 1, 0, source, 0)
    known = {0: described("news", Settings(slow="wait"))}
    monkeypatch.setitem(sound.created, "news", known[0])
    monkeypatch.setitem(sound.judges.plans, topic, msgspec.structs.replace(NEWS, publishers=[1]))
    monkeypatch.setitem(peer_of(sound.world.machines[0].host).topics.descriptors, topic, known[0])  # type: ignore[arg-type]
    sound.judges.admitted(0, admitted)
    sound.judges.delivered(0, delivered)
    monkeypatch.setattr(writer, "listed", True)
    with pytest.raises(Broken, match=r"access: peer 0 admits events of .*, which is not on the list"):
        sound.judges.admitted(0, admitted)
    with pytest.raises(Broken, match=r"access: peer 0 delivers events of .*, which is not on the list"):
        sound.judges.delivered(0, delivered)
    admission = next(sound.ledgers["news"].admitted(writer.publisher.id, 0))
    across = Delivered(topic, writer.publisher.id, 0, 1, 0, admission.term, admission.position)
    sound.judges.delivered(0, across)
    monkeypatch.setattr(sound.judges.reach, "group", lambda machine, at: [])  # its process was paused
    sound.judges.delivered(0, across)
    monkeypatch.setattr(sound.judges.reach, "group", lambda machine, at: [machine])
    with pytest.raises(Broken, match=r"access: peer 0 delivers events of .*, which is not on the list"):
        sound.judges.delivered(0, across)


def test_an_event_may_die_with_its_writer_if_all_who_had_it_have_unsubscribed(sound: Simulation) -> None:
    forget_the_last(sound)
    host, publisher = sound.writers[0].host, sound.writers[0].publisher
    stable, publisher.stable, host.alive = publisher.stable, 0, False
    judge = sound_delivery(sound)
    judge.ledger = AdmissionLog()  # no peer that admitted anything is alive
    try:
        for machine in (3, 4):
            reader_on(sound, machine).ended_at = sound.world.now
        judge.check()
    finally:
        publisher.stable, host.alive = stable, True


def test_what_is_remembered_of_a_publisher_that_is_gone_is_found(sound: Simulation) -> None:
    writer, trees = sound.writers[0], sound.trees("news")
    host, publisher = writer.host, writer.publisher.id
    (root,) = [tree.root for tree in trees.values() if tree.root is not None]
    host.alive, host.ended_at = False, 15.0
    known = dict(root.admissions)
    root.admissions.clear()
    try:
        checks.check_tables(sound)
        root.admissions[publisher] = object()  # type: ignore[assignment]
        with pytest.raises(Broken, match=r"tables: peer \d, the root of topic news, .* publishers .*1\.1\.w0"):
            checks.check_tables(sound)
    finally:
        host.alive, host.ended_at = True, None
        root.admissions.clear()
        root.admissions.update(known)
    checks.check_tables(sound)


def test_a_stream_that_goes_on_without_its_source_is_found(sound: Simulation) -> None:
    tree, term = next(iter(sound.trees("news").values())), Term(RELIABLE_STREAMS, bytes(16))
    tree.flow.begin_beside(term, 0)
    sources, tree.sources = tree.sources, Sources()
    tree.sources.states[term] = SourceState()
    try:
        with pytest.raises(Broken, match=r"tables: peer \d keeps the stream of a source that is gone, of topic news"):
            checks.check_tables(sound)
    finally:
        tree.flow.drop(term)
        tree.sources = sources
    checks.check_tables(sound)


def test_former_parents_that_are_remembered_for_too_long_are_found(sound: Simulation) -> None:
    peer = next(peer for _, peer in sound.running() if sound.topics["news"] in peer.topics.trees)
    former = peer.topics.membership.former
    former[sound.topics["news"]] = {bytes(16): peer.host.now() + 1.0}
    try:
        checks.check_tables(sound)
        former[sound.topics["news"]] = {bytes(16): peer.host.now() - 10.0}
        with pytest.raises(Broken, match=r"tables: peer \d remembers 1 former parents in topic"):
            checks.check_tables(sound)
    finally:
        former.clear()


@pytest.mark.parametrize("where", ["still knows leases of topic news", "remembers leases of a tree that it left"])
def test_leases_that_are_kept_for_too_long_are_found(sound: Simulation, where: str) -> None:
    (root,) = [number for number, tree in sound.trees("news").items() if tree.root is not None]
    peer, tree = peer_of(sound.world.machines[root].host), sound.trees("news")[root]  # type: ignore[arg-type]
    now = peer.host.now()
    tree.open_leases().orphan(next(iter(tree.leases.children.values())), now - 1.0, [bytes(16)])
    (lease,), left_behind = tree.leases.orphaned.values(), peer.topics.open_trees.left_behind
    if where.startswith("remembers"):
        left_behind[bytes(16)], tree.leases.orphaned = tree.leases.orphaned, {}
    try:
        for until in (now - 1.0, now + 30.0):
            lease.until = until
            checks.check_tables(sound)
        for until in (now - 10.0, now + 31.0, float("inf")):
            lease.until = until
            with pytest.raises(Broken, match=rf"tables: peer \d {where}"):
                checks.check_tables(sound)
    finally:
        left_behind.clear()
        tree.leases.orphaned = {}
    checks.check_tables(sound)


def test_topics_that_nobody_needs_and_that_are_known_beyond_the_bound_are_found(sound: Simulation) -> None:
    _, peer = next(iter(sound.running()))
    known, bound = dict(peer.topics.descriptors), peer.config.topics.idle_topics_max
    for number in range(2 * bound):
        other = described(f"other/{number}")
        peer.topics.descriptors[other.topic] = other
    try:
        with pytest.raises(AssertionError, match="topics are known that nobody here needs"):
            checks.check_all(sound)
    finally:
        peer.topics.descriptors.clear()
        peer.topics.descriptors.update(known)
    checks.check_all(sound)


def test_an_event_may_die_with_its_writer_only_if_nobody_had_it(sound: Simulation) -> None:
    forget_the_last(sound)
    host = sound.writers[0].host
    host.alive = False
    try:
        with pytest.raises(Broken, match="though it was declared stable"):
            check(sound)
    finally:
        host.alive = True


def test_an_event_may_die_with_its_root_if_the_others_discarded_their_copies(sound: Simulation) -> None:
    forget_the_last(sound)
    host, publisher = sound.writers[0].host, sound.writers[0].publisher
    stable, publisher.stable, host.alive = publisher.stable, 0, False
    judge = sound_delivery(sound)
    judge.ledger = AdmissionLog()  # no peer that admitted anything is alive
    try:
        with pytest.raises(Broken, match="which is alive, delivered it"):
            judge.check()
        sound.world.journal.records.extend((sound.world.now, machine, Mark("shed_copies")) for machine in (2, 3, 4))
        judge.check()
    finally:
        publisher.stable, host.alive = stable, True


def test_a_subscription_that_never_starts_is_found(sound: Simulation) -> None:
    reader = sound.readers[2]
    started_at, reader.started_at = reader.started_at, None
    try:
        with pytest.raises(Broken, match="never established"):
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


def test_a_missing_peer_in_a_leaf_set_is_found(sound: Simulation) -> None:
    leaf_set = peer_of(sound.world.machines[3].host).overlay.leaf_set  # type: ignore[arg-type]
    gone = leaf_set.remove(sound.world.machines[0].node_id)
    assert gone is not None
    try:
        with pytest.raises(Broken, match=rf"peer 3 .* misses \['{gone.node_id[:4].hex()}'\]"):
            checks.check_leaf_sets(sound)
    finally:
        leaf_set.add(gone)


def test_a_child_that_its_parent_does_not_know_is_found(sound: Simulation) -> None:
    trees = sound.trees("news")
    (root,) = [tree for tree in trees.values() if tree.root is not None]
    node, child = next(iter(root.leases.children.items()))
    del root.leases.children[node]
    try:
        with pytest.raises(Broken, match="does not know it as child"):
            checks.check_tree(sound, "news")
    finally:
        root.leases.children[node] = child


def test_a_peer_that_goes_by_other_settings_than_the_rest_of_its_tree_is_found(
    sound: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = next(iter(sound.trees("news").values()))
    monkeypatch.setattr(tree, "descriptor", msgspec.structs.replace(tree.descriptor, version=7))
    with pytest.raises(Broken, match="settings of topic news: peers go by different ones"):
        checks.check_settings(sound, "news")


def test_a_program_whose_change_of_settings_was_never_answered_is_found(
    sound: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = sound.world.machines[1].host
    assert host is not None
    monkeypatch.setattr(sound, "asked_changes", [AskedChange(host, "news", 9.0)])
    with pytest.raises(Broken, match=r"a program asked at 9.000 s to change them, and got \[\]"):
        checks.check_settings(sound, "news")


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
