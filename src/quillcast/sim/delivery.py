"""The promises of one topic, judged from the logs of its readers when a run is over (docs/delivery.md, *Guarantees*).

==================== ==========================================================================================
always               no event reaches a handler twice, none is invented, a writer's events come in order, and one
                     that is passed over was told lost
losses are exact     an event is reported lost once at most and never came, a report names events that were owed and
                     is merged with the one beside it, and positions in uncertain reports were given to events; an
                     event that comes after such a report of its position is marked as recovered
owed and delivered   an event that was written after a reader's subscription stood, if the reader lives to the end,
                     and the writer does too, or knew the event to be stable, or a peer that lives still had it;
                     unless the reader was slow, its lease had ended, or a bound on what is kept was exceeded
told                 in those cases: delivered, or told lost; but for a term that began beyond a cut and is lower than
                     the one that the subscription began in (docs/decisions/judges.md)
never silent         both within a bounded time after the event was written or the last fault was over
best effort          what a reader came past within a term was handed over or told dropped, and never both
==================== ==========================================================================================
"""

from collections.abc import Iterator
from itertools import pairwise

from quillcast.core.envelope import Term
from quillcast.core.ranges import RangeSet
from quillcast.core.trace import Dropped
from quillcast.sim.applications import Event, Heard, Reader, Told, Writer
from quillcast.sim.judges import cuts, told_of
from quillcast.sim.leases import MEET_S, Leases, bound_s
from quillcast.sim.observed import Observed
from quillcast.sim.scenario import TopicPlan
from quillcast.sim.world import Broken

START_S = 30.0  # a subscription stands after so long; a guess: several times the longest repair
SETTLE_S = 20.0  # from the end of the last lease to when everything must be stable; a guess


class Delivery:
    """The promises of one topic in one finished run."""

    def __init__(self, run: Observed, plan: TopicPlan) -> None:
        self.run, self.plan = run, plan
        self.config = run.scenario.config
        self.leases = Leases(run.reach, self.config)
        self.ledger = run.ledgers[plan.name]
        self.end = run.world.now
        self.calm_at = run.calm_at()
        self.cuts = cuts(run, plan)
        self.readers = [reader for reader in run.readers if reader.topic == plan.name]
        self.writers = {writer.name: writer for writer in run.writers if writer.topic == plan.name}
        self.by_publisher = {writer.publisher.id: writer for writer in self.writers.values()}
        self.heard_by = {reader.name: _heard(reader) for reader in self.readers}

    def check(self) -> None:
        """Raise `Broken` with the first promise that was not kept."""
        for reader in self.readers:
            self._holds(not reader.failures, f"{self._who(reader)} failed: {reader.failures[:1]}")
            self._check_log(reader)
        if self.plan.delivery != "reliable":
            for reader in self.readers:
                self._check_drops(reader)
            return
        for check in (self._check_passed_over, self.check_reports, self.check_marks, self._check_owed):
            for reader in self.readers:
                check(reader)
        for writer in self.writers.values():
            self._check_writer(writer)

    # --- always

    def _check_log(self, reader: Reader) -> None:
        last: dict[str, int] = {}
        seen: dict[Event, float] = {}
        for entry in reader.log:
            if isinstance(entry, Told):
                continue
            at, event, _ = entry
            who = f"{self._who(reader)} was given {self._what(event)}"
            writer = self.writers.get(event.writer)
            written = writer is not None and event.number < len(writer.written)
            self._holds(written, f"{who} at {at:.3f} s; nobody wrote that")
            self._holds(event not in seen, f"{who} twice: at {seen.get(event, 0):.3f} s and at {at:.3f} s")
            if self.plan.order == "publisher" and self.plan.delivery == "reliable":
                before = last.get(event.writer, -1)
                self._holds(event.number > before, f"{who} at {at:.3f} s, after number {before}")
            seen[event] = at
            last[event.writer] = event.number

    def _check_passed_over(self, reader: Reader) -> None:
        """Between two of a writer's events in a log nothing is missing that was not told lost."""
        given: dict[str, list[Heard]] = {}
        for entry in reader.log:
            if isinstance(entry, Heard):
                given.setdefault(entry.event.writer, []).append(entry)
        for writer, entries in given.items():
            for before, after in pairwise(entries):
                for number in range(before.event.number + 1, after.event.number):
                    self._holds(
                        bool(self._told(reader, Event(writer, number)))
                        or not self._owed(reader, self.writers[writer], number),
                        f"{self._who(reader)} was given {self._what(after.event)} at {after.at:.3f} s after number "
                        f"{before.event.number}, and never told that it lost number {number}",
                    )

    # --- losses are exact

    def check_reports(self, reader: Reader) -> None:
        """Each report names events that were owed and never came, once; reports that lie side by side are one."""
        named: dict[bytes, RangeSet] = {}
        ends: dict[tuple[bytes, float], tuple[int, int]] = {}
        positions: dict[Term, RangeSet] = {}
        for entry in reader.log:
            if isinstance(entry, Heard):
                continue
            who = f"reports: {self._who(reader)} was told at {entry.at:.3f} s that it lost {self._range(entry)}"
            self._holds(entry.first < entry.last, f"{who}, which is nothing")
            seen = named.setdefault(entry.publisher, RangeSet()) if entry.publisher else None
            if seen is None:
                seen = positions.setdefault(entry.term, RangeSet())
            again = seen.within(entry.first, entry.last)
            self._holds(not again, f"{who}, and had been told of {again} before")
            seen.add(entry.first, entry.last)
            if entry.publisher:
                self._check_exact(reader, entry, who)
            else:
                self._check_uncertain(entry, who)
            first, last = ends.get((entry.publisher, entry.at), (-1, -1))
            beside = bool(entry.publisher) and (last == entry.first or entry.last == first)
            self._holds(not beside, f"{who}, and at the same time of {(first, last)}: that is one report")
            ends[entry.publisher, entry.at] = (entry.first, entry.last)

    def check_marks(self, reader: Reader) -> None:
        """What came after an uncertain report of its position is marked as recovered, and nothing before any report."""
        doubted: dict[Term, RangeSet] = {}
        for entry in reader.log:
            if isinstance(entry, Told):
                if not entry.publisher:
                    doubted.setdefault(entry.term, RangeSet()).add(entry.first, entry.last)
                continue
            who = f"marks: {self._who(reader)} was given {self._what(entry.event)} at {entry.at:.3f} s"
            self._holds(bool(doubted) or not entry.recovered, f"{who} as recovered, and had not been told of any loss")
            publisher = self.writers[entry.event.writer].publisher.id
            places = self.ledger.positions(publisher, entry.event.number) if doubted and not entry.recovered else ()
            told = any(index in doubted[term] for term, index in places if term in doubted)
            self._holds(not told, f"{who}, which had been reported as perhaps lost, and it was not marked as recovered")

    def _check_exact(self, reader: Reader, told: Told, who: str) -> None:
        writer = self.by_publisher.get(told.publisher)
        self._holds(writer is not None and told.last <= len(writer.written), f"{who}; nobody wrote that")
        assert writer is not None
        for number in range(told.first, told.last):
            event = Event(writer.name, number)
            self._holds(event not in self.heard_by[reader.name], f"{who}, and number {number} came")
            between = any(each.writer == writer.name and each.number < number for each in self.heard_by[reader.name])
            owed = between or self._owed(reader, writer, number) or self._owed(reader, writer, told.first)
            self._holds(owed, f"{who}; number {number} came before its subscription")

    def _check_uncertain(self, told: Told, who: str) -> None:
        """Positions that no root gave are no events."""
        count = sum(last - first for _, (first, last) in self.ledger.events(told.term, told.first, told.last))
        self._holds(count == told.last - told.first, f"{who}; only {count} of these positions were given to events")

    def _owed(self, reader: Reader, writer: Writer, number: int) -> bool:
        """May the reader be owed the event: was it never admitted, or at some position after its start?"""
        places = list(self.ledger.positions(writer.publisher.id, number))
        start = reader.start
        assert start is not None
        for term, index in places:
            from_index = reader.knew.get(term, 0) if term < start.term else start.index if term == start.term else 0
            if index >= from_index:
                return True
        return not places

    def _range(self, told: Told) -> str:
        """What a report names, for people."""
        writer = self.by_publisher.get(told.publisher)
        if not told.publisher:
            return f"positions {told.first} to {told.last} of term {told.term.counter} ({told.why})"
        return f"events {told.first} to {told.last} of {writer.name if writer is not None else '?'} ({told.why})"

    # --- best effort

    def _check_drops(self, reader: Reader) -> None:
        """What a reader came past within a term was handed over or told dropped, and never both."""
        if reader.start is None:
            return
        heard = self.heard_by[reader.name]
        places = {
            event: list(self.ledger.positions(self.writers[event.writer].publisher.id, event.number))
            for event in self._events()
        }
        reach: dict[Term, int] = {}
        for event in heard:
            for term, index in places[event]:
                reach[term] = max(reach.get(term, 0), index)
        for event, positions in places.items():
            told = self._told(reader, event)
            if event in heard:
                self._holds(
                    not told, f"{self._who(reader)} was given {self._what(event)} and told that it lost it ({told})"
                )
            elif any(reader.start <= place and place.index < reach.get(place.term, 0) for place in positions):
                self._holds(
                    bool(told),
                    f"{self._who(reader)} was given an event that came after {self._what(event)}, "
                    "and never told that it lost that one",
                )

    def _events(self) -> Iterator[Event]:
        for writer in self.writers.values():
            yield from (Event(writer.name, number) for number in range(len(writer.written)))

    # --- owed

    def _check_owed(self, reader: Reader) -> None:
        if reader.ended_at is not None or not reader.host.alive:
            return
        if reader.started_at is None:
            calm = max(reader.asked_at, self.calm_at)
            self._holds(
                self.end - calm < START_S,
                f"{self._who(reader)} subscribed at {reader.asked_at:.3f} s and never started",
            )
            return
        came = {entry.event: entry.at for entry in reader.log if isinstance(entry, Heard)}
        for writer in self.writers.values():
            for number, at in enumerate(writer.written if writer.may_publish else ()):
                if at > reader.started_at:
                    event = Event(writer.name, number)
                    if event not in came:
                        self._check_missing(reader, writer, event, at)
                    self._check_silence(reader, event, at, came.get(event, self.end))

    def _paced_until(self, event: Event, written: float, came: float) -> float:
        """A topic that waits holds its publishers back while buffers are full: when was the event admitted last?"""
        if self.cuts or not self.run.crowding.between(written, came):
            return written
        admitted = self.ledger.admitted(self.writers[event.writer].publisher.id, event.number)
        return max((admission.at for admission in admitted), default=written)

    def _check_silence(self, reader: Reader, event: Event, written: float, came: float) -> None:
        """An event that came did so in time; what did not come and was not told is found elsewhere."""
        slow_until = max((end for _, end in reader.slow), default=0.0)
        by = max(written, self.calm_at, slow_until, self._paced_until(event, written, came)) + bound_s(self.config)
        told = self._told(reader, event) if came > by else ""
        self._holds(
            came <= by or bool(told) or came == self.end,
            f"silence: {self._who(reader)} heard nothing of {self._what(event)}, written at {written:.3f} s, until it "
            f"came at {came:.3f} s; the last fault was over at {self.calm_at:.3f} s",
        )

    def _check_missing(self, reader: Reader, writer: Writer, event: Event, at: float) -> None:
        why_kept = self._kept(reader, writer, event, at)
        if why_kept is None:
            return  # it died with its writer
        told = self._told(reader, event)
        story = (
            f"{self._who(reader)}, whose subscription stood at {reader.started_at:.3f} s, never got {self._what(event)}"
        )
        story += f", written at {at:.3f} s, though {why_kept}"
        if self._unknown_at_its_start(reader, writer, event):
            return
        self._holds(bool(told), f"{story}; it was not told so either")
        excuse = self._excuse(reader, writer, event, at)
        self._holds(bool(excuse), f"{story}; it was told so ({told}), and had a live lease")

    def _kept(self, reader: Reader, writer: Writer, event: Event, at: float) -> str | None:
        """Why an event cannot have died with its writer; None if it may have."""
        if writer.lives:
            return "its writer lives"
        if writer.knows_stable(event.number) and not self._excuse(reader, writer, event, at):
            return "it was called stable"
        for admission in self.ledger.admitted(writer.publisher.id, event.number):
            machine = self.run.world.machines[admission.machine]
            if machine.host is not None and machine.started_at <= admission.at:
                return f"peer {admission.machine}, which lives, admitted it"
        if self.run.crowding.between(at, self.end):
            return None  # full buffers let go of copies that only a root's death makes the last ones
        for reader in self.readers:
            if reader.host.alive and event in self.heard_by[reader.name]:
                return f"peer {reader.host.machine.number}, which lives, delivered it to {reader.name}"
        return None

    def _excuse(self, reader: Reader, writer: Writer, event: Event, at: float) -> str:
        """Why a reader may lack an event if it was told; empty: it may not."""
        if self.cuts and self.leases.slow(reader, at, self.end):
            return "it was slow, or had to take what waited meanwhile"
        places = {writer.host.machine.number: None}
        places |= {each.machine: None for each in self.ledger.admitted(writer.publisher.id, event.number)}
        for machine in places:
            ended = self.leases.ended(reader, machine, at)
            if ended:
                return ended
        return self._bound_exceeded(reader, writer, event, at)

    def _bound_exceeded(self, reader: Reader, writer: Writer, event: Event, at: float) -> str:
        """Did a budget run out since the reader was up to date, or did the publisher keep its events no longer?

        That is no excuse while nothing goes wrong: publishers feel back-pressure then, and no healthy subscriber does.
        """
        if not self.cuts or at > self.calm_at + self.config.topics.lease_s:
            return ""
        before = [each.number for each in self.heard_by[reader.name] if each < event and each.writer == event.writer]
        since = writer.written[max(before)] if before else at
        if self.run.crowding.between(since - MEET_S, self.end):
            return "a peer's budget had run out"
        topic, machine = self.run.topics[self.plan.name], writer.host.machine.number
        for when, where, record in self.run.world.journal.records:
            match record:
                case Dropped(topic=of, why="retained_too_long") if of == topic and where == machine and when >= at:
                    return f"its publisher kept it no longer at {when:.1f} s"
        return ""

    def _unknown_at_its_start(self, reader: Reader, writer: Writer, event: Event) -> bool:
        """Was it admitted only in terms, below the one of the subscription, that its peer knew nothing of then?

        The peer hears of such a term when the cut is mended, and cannot tell what of it came after the start.
        """
        terms = [admission.term for admission in self.ledger.admitted(writer.publisher.id, event.number)]
        if reader.start is None or not terms:
            return False
        return max(terms) < reader.start.term and not any(term in reader.knew for term in terms)

    def _check_writer(self, writer: Writer) -> None:
        """All that a living writer wrote long ago is stable or dropped, and no writer was refused that may publish."""
        publisher = writer.publisher
        if writer.may_publish:
            self._holds(
                not writer.failures,
                f"access: {writer.name} may publish in topic {self.plan.name} and was refused: {writer.failures[:1]}",
            )
        elif not writer.failures and writer.lives:
            return  # it is not told, and nothing of it is admitted
        slow = [end for reader in self.readers for _, end in reader.slow]
        last = max([*writer.written[-1:], *slow, self.calm_at])
        wait_s = self.config.topics.lease_s + SETTLE_S
        if writer.lives and not writer.failures and self.end - last > wait_s:
            marks = f"{publisher.admitted} are admitted and {publisher.stable} stable"
            self._holds(
                writer.unsettled == 0,
                f"topic {self.plan.name}: of {publisher.next} events of {writer.name} {marks} at the end, "
                f"{self.end - last:.0f} s after the last one or the last trouble",
            )

    # --- helpers

    def _told(self, reader: Reader, event: Event) -> str:
        return told_of(self.run, reader, event)

    def _who(self, reader: Reader) -> str:
        return f"topic {self.plan.name}: reader {reader.name}"

    def _what(self, event: Event) -> str:
        return f"event {event.number} of {event.writer}"

    def _holds(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise Broken(otherwise, f"topic:{self.plan.name}")


def _heard(reader: Reader) -> set[Event]:
    return {entry.event for entry in reader.log if isinstance(entry, Heard)}
