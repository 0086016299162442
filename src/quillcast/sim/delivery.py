"""The promises of one topic, judged from the logs of its readers when a run is over (docs/delivery.md, *Guarantees*).

==================== ==========================================================================================
rights               a reader or writer fails only if a list excludes it, and stops once its peer knows that. A reader
                     receives nothing of a session whose list excludes it. In a root's session, nothing is admitted
                     of a writer that is not on the list
always               no event reaches a handler twice, none is invented, a writer's events arrive in order, and
                     skipped events were reported lost
losses are exact     an event is reported lost at most once and never arrives; a report names events that were owed,
                     and is merged with an adjacent one of the same reason; positions in uncertain reports were
                     assigned to events; an event that arrives after such a report of its position is marked as
                     recovered
owed and delivered   an event that was written after a reader's subscription was established, if the reader lives to
                     the end, and the writer does too, or knew that the event is stable, or a living peer still had
                     it; unless the reader was slow, its lease had ended, or a bound on what is kept was exceeded
reported             in those cases the event is delivered or reported lost (docs/decisions/judges.md)
never silent         both within a bounded time after the event was written or the last fault was over
best effort          what a reader skipped within a term was delivered or reported dropped, and never both
sessions             where a topic's guarantee changes, each event has that of the session in which it was admitted, and
                     an event of a later session comes after the writer's events of earlier ones
==================== ==========================================================================================
"""

from collections.abc import Iterator
from itertools import pairwise

from quillcast.core.envelope import Position, Term
from quillcast.core.ranges import RangeSet
from quillcast.core.trace import Dropped, Mark
from quillcast.protocol.forwarding.milestones import PRECISION
from quillcast.protocol.scopes.uses import Doing
from quillcast.protocol.security.access import AccessDenied
from quillcast.protocol.topics.descriptor import Descriptor
from quillcast.sim.admission_log import Admission
from quillcast.sim.applications import Event, Heard, Reader, Told, Writer, peer_of
from quillcast.sim.judges import cuts, told_of
from quillcast.sim.leases import MEET_S, Leases, bound_s
from quillcast.sim.observed import Observed
from quillcast.sim.owner import Credentials
from quillcast.sim.reach import Span
from quillcast.sim.scenario import TopicPlan
from quillcast.sim.world import Broken

START_S = 30.0  # by then a subscription is established; a guess: several times the longest repair
UNSURE_S = 2.0  # peers know at least this exactly when an event of a source came (`forwarding.milestones`)
UNSURE = 1 / 4  # ... and this exactly how long a term has been over, as a fraction
SETTLE_S = 20.0  # from the end of the last lease until everything must be stable; a guess


class Delivery:
    """The promises of one topic in one finished run."""

    def __init__(self, run: Observed, plan: TopicPlan) -> None:
        self.run, self.plan = run, plan
        self.config = run.scenario.config
        self.leases = Leases(run.reach, self.config, run.topics)
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
            self._check_rights(reader)
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

    # --- rights

    def _check_rights(self, reader: Reader) -> None:
        """It fails only if a list excludes it. Then it stops, and has received nothing of that list's session."""
        machine, who = reader.host.machine.number, f"access: {self._who(reader)}"
        for failure in reader.failures:
            may = _on_all(self.plan.lists_of_readers, machine) and self._has_right(machine, "subscribes")
            denied = isinstance(failure, AccessDenied) and not may
            self._holds(denied, f"{self._who(reader)} failed: {failure}")
        if self.plan.lists_of_readers:
            mine = Credentials.of(machine).principal
            for session, (at, known_session) in reader.sessions.items():
                if known_session > session:
                    continue  # it is on a later list, and its peer may not know this one
                lists = [each for each in self.run.agreed(self.plan.name) if each.session == session > 0]
                allowed = not lists or any(each.refusal("subscribe", mine) is None for each in lists)
                self._holds(allowed, f"{who} received events of session {session} at {at:.3f} s, not being on its list")
        if (
            self.plan.lists_of_readers
            and reader.started_at is not None
            and reader.ended_at is None
            and reader.host.alive
        ):
            rule = self._latest_in_use().refusal("subscribe", mine)
            self._holds(rule is None, f"{who} goes on at the end, though a peer of the topic's tree knows that {rule}")

    def _latest_in_use(self) -> Descriptor:
        """The topic's latest settings that any peer of its tree knows. Peers outside the tree pass on no settings."""
        topic = self.run.topics[self.plan.name]
        trees = [peer.topics.trees for _, peer in self.run.running()]
        return max((its[topic].descriptor for its in trees if topic in its), key=lambda each: each.version)

    # --- always

    def _check_log(self, reader: Reader) -> None:
        last: dict[str, int] = {}
        seen: dict[Event, float] = {}
        for entry in reader.log:
            if isinstance(entry, Told):
                continue
            at, event, _ = entry
            who = f"{self._who(reader)} received {self._what(event)}"
            writer = self.writers.get(event.writer)
            written = writer is not None and event.number < len(writer.written)
            self._holds(written, f"{who} at {at:.3f} s; nobody wrote it")
            self._holds(event not in seen, f"{who} twice: at {seen.get(event, 0):.3f} s and at {at:.3f} s")
            if self.plan.order == "publisher" and self.plan.delivery == "reliable":
                before = last.get(event.writer, -1)
                strict = self._reliable(event) or self._reliable(Event(event.writer, before))
                self._holds(event.number > before or not strict, f"{who} at {at:.3f} s, after number {before}")
            seen[event] = at
            last[event.writer] = event.number

    def _check_passed_over(self, reader: Reader) -> None:
        """Between two events of a writer in a log, every missing event was reported lost."""
        given: dict[str, list[Heard]] = {}
        for entry in reader.log:
            if isinstance(entry, Heard):
                given.setdefault(entry.event.writer, []).append(entry)
        for writer, entries in given.items():
            for before, after in pairwise(entries):
                for number in range(before.event.number + 1, after.event.number):
                    event = Event(writer, number)
                    self._holds(
                        bool(self._told(reader, event))
                        or not self._owed(reader, self.writers[writer], number)
                        or self._came_before(reader, self.writers[writer], number)
                        or self._may_be_gone(reader, self.writers[writer], event),
                        f"{self._who(reader)} received {self._what(after.event)} at {after.at:.3f} s after number "
                        f"{before.event.number}, and got no report of losing number {number}",
                    )

    def _may_be_gone(self, reader: Reader, writer: Writer, event: Event) -> bool:
        """Whether an event may be unknown: it is of a best-effort session, or every peer that had it died."""
        if not self.plan.guarantees_change:
            return False
        return not self._reliable(event) or self._kept(reader, writer, event, writer.written[event.number]) is None

    # --- losses are exact

    def check_reports(self, reader: Reader) -> None:
        """Each report names events that were owed and never arrived, each once. Adjacent ones in a row are merged."""
        named: dict[bytes, RangeSet] = {}
        ends: dict[tuple[bytes, str, float], tuple[int, int]] = {}
        positions: dict[Term, RangeSet] = {}
        came: set[Event] = set()
        for entry in reader.log:
            if isinstance(entry, Heard):
                came.add(entry.event)
                ends = {}  # an event between two reports may have revealed the second loss
                continue
            who = f"reports: {self._who(reader)} learned at {entry.at:.3f} s that it lost {self._range(entry)}"
            self._holds(entry.first < entry.last, f"{who}, which is empty")
            seen = named.setdefault(entry.publisher, RangeSet()) if entry.publisher else None
            if seen is None:
                seen = positions.setdefault(entry.term, RangeSet())
            again = seen.within(entry.first, entry.last)
            self._holds(not again, f"{who}, and {again} had been reported before")
            seen.add(entry.first, entry.last)
            if entry.publisher:
                self._check_exact(reader, entry, who)
            else:
                self._check_uncertain(reader, entry, who)
                self._check_not_given(entry, came, who)
            first, last = ends.get((entry.publisher, entry.why, entry.at), (-1, -1))
            beside = bool(entry.publisher) and (last == entry.first or entry.last == first)
            self._holds(not beside, f"{who}, and at the same time {(first, last)}: this must be one report")
            ends[entry.publisher, entry.why, entry.at] = (entry.first, entry.last)

    def check_marks(self, reader: Reader) -> None:
        """An event that arrives after an uncertain report of its position is marked as recovered; no other event is."""
        doubted: dict[Term, RangeSet] = {}
        for entry in reader.log:
            if isinstance(entry, Told):
                if not entry.publisher:
                    doubted.setdefault(entry.term, RangeSet()).add(entry.first, entry.last)
                continue
            who = f"marks: {self._who(reader)} received {self._what(entry.event)} at {entry.at:.3f} s"
            self._holds(bool(doubted) or not entry.recovered, f"{who} as recovered, although no loss had been reported")
            publisher = self.writers[entry.event.writer].publisher.id
            places = self.ledger.positions(publisher, entry.event.number) if doubted and not entry.recovered else ()
            told = any(index in doubted[term] for term, index in places if term in doubted)
            told = told and self._reliable(entry.event)
            self._holds(not told, f"{who}, which may have been reported lost, and is not marked as recovered")

    def _check_exact(self, reader: Reader, told: Told, who: str) -> None:
        writer = self.by_publisher.get(told.publisher)
        self._holds(writer is not None and told.last <= len(writer.written), f"{who}; nobody wrote it")
        assert writer is not None
        for number in range(told.first, told.last):
            event = Event(writer.name, number)
            self._holds(event not in self.heard_by[reader.name], f"{who}, and number {number} arrived")
            between = any(each.writer == writer.name and each.number < number for each in self.heard_by[reader.name])
            owed = reader.earliest or between
            owed = owed or self._owed(reader, writer, number) or self._owed(reader, writer, told.first)
            owed = owed and (between or not self._came_long_before(reader, told, writer, number))
            owed = owed and (between or reader.earliest or not self._was_long_over(reader, told))
            self._holds(owed, f"{who}; number {number} is older than its subscription")

    def _check_uncertain(self, reader: Reader, told: Told, who: str) -> None:
        """An uncertain report names only positions that a root or source assigned."""
        count = 0
        for publisher, (first, last) in self.ledger.events(told.term, told.first, told.last):
            count += last - first
            writer = self.by_publisher[publisher]
            between = any(each.writer == writer.name and each.number < first for each in self.heard_by[reader.name])
            old = self._came_long_before(reader, told, writer, first) or self._was_long_over(reader, told)
            old = old and not (between or reader.earliest)
            self._holds(not old, f"{who}; number {first} of {writer.name} is older than its subscription")
        self._holds(count == told.last - told.first, f"{who}; only {count} of these positions were assigned")

    def _check_not_given(self, told: Told, came: set[Event], who: str) -> None:
        """No reported position in a source's stream has an event that came, unless that has other positions, too."""
        for publisher, (first, last) in self.ledger.events(told.term, told.first, told.last):
            if not told.term.of_source:
                return
            writer = self.by_publisher[publisher].name
            here = (n for n in range(first, last) if len([*self.ledger.admitted(publisher, n)]) == 1)
            given = [number for number in here if Event(writer, number) in came]
            self._holds(not given, f"{who}, where numbers {given} of {writer} stand, which had arrived")

    def _came_long_before(self, reader: Reader, told: Told, writer: Writer, number: int) -> bool:
        """Whether its source admitted an event so long before the reader began that peers must know it."""
        if not told.term.of_source or reader.started_at is None or reader.earliest:
            return False
        source = next(each.machine for each in self.ledger.by_term[told.term])
        if self.plan.streams_end and self.leases.out_of_reach_of_some(source, reader.started_at):
            return False  # the stream may have ended beyond a cut, before its source told anybody there how old it is
        known_from = reader.started_at - UNSURE_S - (told.at - reader.started_at) / PRECISION
        admitted = self.ledger.admitted(writer.publisher.id, number)
        return any(each.at < known_from for each in admitted if each.term == told.term)

    def _was_long_over(self, reader: Reader, told: Told) -> bool:
        """Whether it was an earlier term that ended so long before the reader began that peers must know it."""
        admitted = self.ledger.by_term.get(told.term)
        if reader.start is None or reader.started_at is None or not (admitted and told.term < reader.start.term):
            return False
        over_at = self._over_at(reader, told, admitted[-1])
        known_at = over_at + UNSURE_S + (told.at - over_at) * UNSURE
        return known_at < reader.started_at

    def _over_at(self, reader: Reader, told: Told, last: Admission) -> float:
        """When the last event of a term existed, as known to a peer that the reader's peer could ask.

        If the root that admitted it has ended or is out of reach, living peers in reach know only when the event
        reached them.
        """
        reach = self.leases.reach
        in_reach = reach.group(reader.host.machine.number, told.at)

        def can_say(machine: int, since: float) -> bool:
            return machine in in_reach and not reach.process_ended(machine, Span(since, told.at))

        if can_say(last.machine, last.at):
            return last.at
        event = Event(self.by_publisher[last.publisher].name, last.last - 1)
        came = (
            entry.at
            for other in self.readers
            for entry in other.log
            if isinstance(entry, Heard) and entry.event == event and can_say(other.host.machine.number, entry.at)
        )
        return min(came, default=last.at)

    def _owed(self, reader: Reader, writer: Writer, number: int) -> bool:
        """Whether the reader may be owed the event: it was admitted between the reader's start and end, or never."""
        admitted = list(self.ledger.admitted(writer.publisher.id, number))
        ended_at = self.end if reader.ended_at is None else reader.ended_at
        return not admitted or any(
            each.position + number - each.first >= reader.owed_from(each.term)
            for each in admitted
            if each.at <= ended_at
        )

    def _came_before(self, reader: Reader, writer: Writer, number: int) -> bool:
        """Whether the term in which the subscription began had the event before its start.

        A former term that reaches further than the reader's peer knew may hold the event, too. No peer need know that.
        """
        places = self.ledger.positions(writer.publisher.id, number)
        return reader.start is not None and any(
            place < reader.start for place in places if place.term == reader.start.term
        )

    def _range(self, told: Told) -> str:
        """The content of a report, in words."""
        writer = self.by_publisher.get(told.publisher)
        if not told.publisher:
            return f"positions {told.first} to {told.last} of term {told.term.counter} ({told.why})"
        return f"events {told.first} to {told.last} of {writer.name if writer is not None else '?'} ({told.why})"

    # --- best effort

    def _check_drops(self, reader: Reader) -> None:
        """What a reader skipped within a term was delivered or reported dropped, and never both."""
        if reader.start is None:
            return
        for entry in reader.log:
            if isinstance(entry, Told):
                self._check_not_older(reader, entry)
        heard = self.heard_by[reader.name]
        ended_at = self.end if reader.ended_at is None else reader.ended_at
        places = {
            event: list(self.ledger.positions(self.writers[event.writer].publisher.id, event.number, ended_at))
            for event in self._events()
        }
        reach: dict[Term, int] = {}
        for event in heard:
            for term, index in places[event]:
                reach[term] = max(reach.get(term, 0), index)
        unsettled = self._unsettled(reader, places)
        for event, positions in places.items():
            told = self._told(reader, event)
            if event in heard:
                again = len(positions) > 1 and not self._named(reader, event)  # by default settings, in another term
                self._holds(
                    again or not told,
                    f"{self._who(reader)} received {self._what(event)} and a report that it was lost ({told})",
                )
            elif not self._is_older(reader, event) and any(
                self._began_by(reader, place) and place.index < reach.get(place.term, 0) and place.term not in unsettled
                for place in positions
            ):
                self._holds(
                    bool(told),
                    f"{self._who(reader)} received an event after {self._what(event)}, "
                    "and got no report of losing that one",
                )

    def _unsettled(self, reader: Reader, places: dict[Event, list[Position]]) -> set[Term]:
        """The streams whose first event reached a reader so late that drops before it may not be reported by its end.

        Such a report may take a lease.
        """
        first: dict[Term, float] = {}
        for entry in reader.log:
            for term, _ in places[entry.event] if isinstance(entry, Heard) else ():
                first.setdefault(term, entry.at)
        ended_at = self.end if reader.ended_at is None else reader.ended_at
        return {term for term, at in first.items() if term.of_source and ended_at - at < self.config.topics.lease_s}

    def _check_not_older(self, reader: Reader, told: Told) -> None:
        """No report of drops in a source's stream names events from long before the subscription.

        If the source has gone, no peer need know their age.
        """
        who = f"reports: {self._who(reader)} learned at {told.at:.3f} s that it lost {self._range(told)}"
        events = self.ledger.events(told.term, told.first, told.last) if told.term.of_source else ()
        for publisher, (first, _) in events:
            writer = self.by_publisher[publisher]
            between = any(each.writer == writer.name and each.number < first for each in self.heard_by[reader.name])
            known = writer.lives and not self.leases.ended(reader, writer.host.machine.number, told.at)
            old = known and not between and self._came_long_before(reader, told, writer, first)
            self._holds(not old, f"{who}; number {first} of {writer.name} is older than its subscription")

    def _named(self, reader: Reader, event: Event) -> bool:
        """Whether a report of a loss named the event."""
        publisher = self.writers[event.writer].publisher.id
        told = (entry for entry in reader.log if isinstance(entry, Told) and entry.publisher == publisher)
        return any(entry.first <= event.number < entry.last for entry in told)

    def _began_by(self, reader: Reader, place: Position) -> bool:
        """Whether the subscription had begun when the event got this position."""
        assert reader.start is not None
        if place.term.of_source:
            return place.index >= reader.owed_from(place.term)
        return reader.start <= place

    def _is_older(self, reader: Reader, event: Event) -> bool:
        """Whether an event existed before the reader began: in its first term, or in a stream it may learn of later."""
        writer = self.writers[event.writer]
        admitted = self.ledger.admitted(writer.publisher.id, event.number)
        in_stream = any(each.term.of_source and each.at <= (reader.started_at or 0.0) for each in admitted)
        return in_stream or self._came_before(reader, writer, event.number)

    def _events(self) -> Iterator[Event]:
        for writer in self.writers.values():
            yield from (Event(writer.name, number) for number in range(len(writer.written)))

    # --- owed

    def _check_owed(self, reader: Reader) -> None:
        if reader.ended_at is not None or not reader.host.alive:
            return
        if reader.started_at is None and reader.waits:
            return
        if reader.started_at is None:
            calm = max(reader.asked_at, self.calm_at)
            self._holds(
                self.end - calm < START_S,
                f"{self._who(reader)} subscribed at {reader.asked_at:.3f} s and was never established",
            )
            return
        came = {entry.event: entry.at for entry in reader.log if isinstance(entry, Heard)}
        for writer in self.writers.values():
            for number, at in enumerate(writer.written if writer.may_publish else ()):
                if at > reader.started_at and not self._refused(writer, number):
                    event = Event(writer.name, number)
                    if not self._reliable(event):
                        continue
                    if event not in came:
                        self._check_missing(reader, writer, event, at)
                    self._check_silence(reader, event, at, came.get(event, self.end))

    def _refused(self, writer: Writer, number: int) -> bool:
        """Whether a list or bound excluded the writer, which was told so, before the event had a position."""
        return bool(writer.failures or writer.waits) and not any(self.ledger.admitted(writer.publisher.id, number))

    def _blocked_until(self, event: Event, written: float, came: float) -> float:
        """When a topic with slow = wait, for some time at least, last admitted the event: a full share delays it."""
        waits = not self.cuts or "wait" in {self.plan.slow, *(change.slow for change in self.plan.changes)}
        if not waits or not self.run.half_full.between(written, came):
            return written
        admitted = self.ledger.admitted(self.writers[event.writer].publisher.id, event.number)
        return max((admission.at for admission in admitted), default=written)

    def _check_silence(self, reader: Reader, event: Event, written: float, came: float) -> None:
        """An event that arrived did so in time. Other checks find events that neither arrived nor were reported."""
        slow_until = max((end for _, end in reader.slow), default=0.0)
        by = max(written, self.calm_at, slow_until, self._blocked_until(event, written, came)) + bound_s(self.config)
        told = self._told(reader, event) if came > by else ""
        self._holds(
            came <= by or bool(told) or came == self.end,
            f"silence: {self._who(reader)} heard nothing of {self._what(event)}, written at {written:.3f} s, until it "
            f"arrived at {came:.3f} s; the last fault was over at {self.calm_at:.3f} s",
        )

    def _check_missing(self, reader: Reader, writer: Writer, event: Event, at: float) -> None:
        why_kept = self._kept(reader, writer, event, at)
        if why_kept is None:
            return  # it died with its writer
        told = self._told(reader, event)
        story = f"{self._who(reader)}, subscribed since {reader.started_at:.3f} s, never received {self._what(event)}"
        story += f", written at {at:.3f} s, though {why_kept}"
        self._holds(bool(told), f"{story}; the loss was not reported either")
        excuse = self._beside(reader, writer, event) or self._excuse(reader, writer, event, at)
        excuse = excuse or self._overtaken(reader, writer, event)
        self._holds(bool(excuse), f"{story}; the loss was reported ({told}), but its lease was live")

    def _kept(self, reader: Reader, writer: Writer, event: Event, at: float) -> str | None:
        """Why an event cannot have died with its writer; None if it may have."""
        let_go = bool(writer.failures) and self.plan.admission == "source"  # no later root could be told
        if writer.lives and not let_go and not self._refused(writer, event.number):
            return "its writer is alive"
        if writer.knows_stable(event.number) and not self._excuse(reader, writer, event, at):
            return "it was declared stable"
        for admission in self.ledger.admitted(writer.publisher.id, event.number):
            machine = self.run.world.machines[admission.machine]
            if machine.host is not None and machine.started_at <= admission.at:
                return f"peer {admission.machine}, which is alive, admitted it"
        if self.run.crowding.between(at, self.end):
            return None  # full buffers discard copies that only become the last ones when a root dies
        for reader in self.readers:
            if self._has_and_keeps(reader, event, at):
                return f"peer {reader.host.machine.number}, which is alive, delivered it to {reader.name}"
        return None

    def _has_and_keeps(self, reader: Reader, event: Event, at: float) -> bool:
        """Whether it received the event, and its peer has kept it: it neither left the tree nor discarded copies."""
        subscribed = reader.host.alive and reader.ended_at is None
        return subscribed and event in self.heard_by[reader.name] and not self._shed_copies(reader, at)

    def _shed_copies(self, reader: Reader, since: float) -> bool:
        """Whether the reader's peer discarded copies: it does so at once when its buffers are full."""
        machine = reader.host.machine.number
        return (machine, Mark("shed_copies")) in self.run.traced(since)

    def _excuse(self, reader: Reader, writer: Writer, event: Event, at: float) -> str:
        """Why a loss report to a reader is excused; empty if it is not."""
        if self.cuts and self.leases.slow(reader, at, self.end):
            return "it was slow, or was catching up"
        places = {writer.host.machine.number: None}
        places |= {each.machine: None for each in self.ledger.admitted(writer.publisher.id, event.number)}
        places |= dict.fromkeys(self.run.vouched.get(event, ()))
        for machine in places:
            ended = self.leases.ended(reader, machine, at)
            if ended:
                return ended
        if self._roots_had_not_met(reader, event, at):
            return "the root under which it began and the one that called it stable had not met yet"
        holders = [other for other in self.readers if other.host.alive and event in self.heard_by[other.name]]
        if not writer.lives and holders:
            out_of_reach = [self.leases.ended(reader, other.host.machine.number, at) for other in holders]
            if all(out_of_reach):
                return f"of those that had it, {out_of_reach[0]}"
        return self._bound_exceeded(reader, writer, event, at)

    def _roots_had_not_met(self, reader: Reader, event: Event, at: float) -> bool:
        """Whether its root had not yet met any of the roots that declared an event of a source stable."""
        vouched = [self.run.world.machines[number].node_id for number in self.run.vouched.get(event, ())]
        if reader.start is None or reader.started_at is None or not vouched or at - reader.started_at >= MEET_S:
            return False
        return not any(reader.start.term.is_of(node) for node in vouched)

    def _beside(self, reader: Reader, writer: Writer, event: Event) -> str:
        """Why the reader's lease does not cover an event; empty if it does.

        Only roots beside its own admitted the event, and its peer knew none of them. Their publishers do not send
        again what was stable there. A root that follows another has a higher counter: roots whose terms have equal
        counters did not know of each other.
        """
        terms = {admission.term for admission in self.ledger.admitted(writer.publisher.id, event.number)}
        if reader.start is None or not terms or terms & {reader.start.term, *reader.knew}:
            return ""
        if max(terms).counter > reader.start.term.counter:
            return ""
        return "it had no lease of the roots that admitted it"

    def _overtaken(self, reader: Reader, writer: Writer, event: Event) -> str:
        """Why order forbids an event: a later one of a best-effort session came first, from beyond a partition.

        In such a session peers do not wait for missing events (docs/sessions.md, *What can go wrong*).
        """
        if not self.plan.guarantees_change:
            return ""
        machines = {each.machine for each in self.ledger.admitted(writer.publisher.id, event.number)}
        for entry in reader.log:
            if isinstance(entry, Told):
                if entry.publisher == writer.publisher.id and event.number < entry.last:
                    return ""
            elif entry.event.writer == event.writer and entry.event > event and not self._reliable(entry.event):
                met = any(self.leases.just_met(reader, machine, entry.at) for machine in machines)
                return f"event {entry.event.number} came from beyond a partition before it" if met else ""
        return ""

    def _bound_exceeded(self, reader: Reader, writer: Writer, event: Event, at: float) -> str:
        """How a bound explains a loss: a budget ran out since the reader was up to date, or its publisher dropped it.

        This does not excuse a run without faults: then publishers are held back, and no healthy subscriber is
        affected.
        """
        if not self.cuts or at > self.calm_at + self.config.topics.lease_s:
            return ""
        before = [each.number for each in self.heard_by[reader.name] if each < event and each.writer == event.writer]
        since = writer.written[max(before)] if before else at
        if self.run.crowding.between(since - MEET_S, self.end):
            return "a peer's budget was exhausted"
        topic, machine = self.run.topics[self.plan.name], writer.host.machine.number
        for when, where, record in self.run.world.journal.records:
            match record:
                case Dropped(topic=of, why="retained_too_long") if of == topic and where == machine and when >= at:
                    return f"its publisher dropped it at {when:.1f} s"
        return ""

    def _check_writer(self, writer: Writer) -> None:
        """All older events of a living writer are stable or dropped, and no writer that may publish was refused."""
        publisher = writer.publisher
        machine = writer.host.machine.number
        if _on_all(self.plan.lists_of_writers, machine) and self._has_right(machine, "publishes"):
            self._holds(
                not writer.failures,
                f"access: {writer.name} may publish in topic {self.plan.name} and was refused: {writer.failures[:1]}",
            )
        elif len(self.plan.lists_of_writers) > bool(self.plan.publishers):
            self._check_list_of_writers(writer)
        elif not writer.failures and writer.lives:
            return  # it gets no receipts, and none of its events are admitted
        slow = [end for reader in self.readers for _, end in reader.slow]
        last = max([*writer.written[-1:], *slow, self.calm_at])
        wait_s = self.config.topics.lease_s + SETTLE_S
        if writer.lives and not (writer.failures or writer.waits) and self.end - last > wait_s:
            marks = f"{publisher.admitted} are admitted and {publisher.stable} stable"
            self._holds(
                not any(self._reliable(Event(writer.name, number)) for number in writer.unsettled),
                f"topic {self.plan.name}: of {publisher.next} events of {writer.name} {marks} at the end, "
                f"{self.end - last:.0f} s after the last one or the last trouble",
            )

    def _has_right(self, machine: int, doing: Doing) -> bool:
        """Whether the scopes of a machine let it do this."""
        return all(plan.lets(machine, doing) for plan in self.run.scenario.scopes)

    def _check_list_of_writers(self, writer: Writer) -> None:
        """It stops if the list that its peer knows excludes it, and no session admitted events against its own list."""
        mine = Credentials.of(writer.host.machine.number).principal
        if writer.lives and not writer.failures and not writer.publisher.closed:
            rule = peer_of(writer.host).topics.descriptors[self.run.topics[self.plan.name]].refusal("publish", mine)
            self._holds(rule is None, f"access: {writer.name} goes on at the end, and its peer knows that {rule}")
        agreed = self.run.agreed(self.plan.name)
        for number in range(len(writer.written)):
            for admission in self.ledger.admitted(writer.publisher.id, number):
                session = 0 if admission.term.of_source else admission.term.session
                lists = [each for each in agreed if each.session == session > 0]
                allowed = not lists or any(each.refusal("publish", mine) is None for each in lists)
                self._holds(allowed, f"access: session {session} admitted event {number} of {writer.name}")

    # --- helpers

    def _reliable(self, event: Event) -> bool:
        """Whether it was admitted only in reliable sessions."""
        if not self.plan.guarantees_change or event.number < 0:
            return self.plan.delivery == "reliable"
        return self.ledger.is_reliable(self.writers[event.writer].publisher.id, event.number)

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


def _on_all(lists: list[list[int]], machine: int) -> bool:
    return all(machine in each for each in lists)
