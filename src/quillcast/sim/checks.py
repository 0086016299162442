"""What must hold across peers, looked at when a run is over and everything had time to settle.

The readers' own logs are the truth about delivery; trace records and peers' state say why something is missing. No
check here may be weakened to let a seed pass: what is allowed stands in DELIVERY.md.

==================== ==========================================================================================
always               no event reaches a handler twice, none is invented, a writer's events come in order, and one
                     that is passed over was told lost
owed and delivered   an event that was written after a reader's subscription stood, if the reader lives to the end,
                     and the writer does too, or knew the event to be stable, or a peer that lives still had it;
                     unless the reader was slow, or one of the two was cut off for longer than a lease, or the
                     subscription began on one side of a cut and the event was admitted under a lower term
told                 in those cases: delivered, or told lost; but for a reign that began beyond a cut and is lower than
                     the one that the subscription began in (docs/decisions/checks.md)
best effort          what a reader came past within a term was handed over or told dropped, and never both
==================== ==========================================================================================
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from quillcast.core.envelope import Position, Term
from quillcast.core.ids import ring_distance, short
from quillcast.core.trace import Admitted
from quillcast.sim.applications import Event, Heard, Reader, Told, Writer
from quillcast.sim.world import Broken

if TYPE_CHECKING:
    from quillcast.sim.scenario import TopicPlan
    from quillcast.sim.simulation import Simulation

DOUBT_S = 10.0  # outages this close together count as one, and a lease may be up so much before its end
START_S = 30.0  # a subscription stands after so long; a guess: several times the longest repair
SETTLE_S = 20.0  # from the end of the last lease to when everything must be stable; a guess


def check_all(simulation: "Simulation") -> None:
    """Raise `Broken` with the first thing that does not hold at the end of a run."""
    for machine, peer in simulation.running():
        _holds(peer.active, f"overlay: peer {machine.number} runs and is not active")
        peer.check()
    check_leaf_sets(simulation)
    for plan in simulation.scenario.topics:
        check_tree(simulation, plan.name)
        Delivery(simulation, plan).check()
    check_credit(simulation)
    missing = [name for name in simulation.scenario.marks if name not in simulation.world.journal.marks]
    _holds(not missing, f"marks: {missing} never showed up, so the scenario did not test what it is for")


def check_leaf_sets(simulation: "Simulation") -> None:
    """Every leaf set holds the l/2 closest running peers on either side."""
    truth = sorted(machine.node_id for machine, _ in simulation.running())
    at = {node: index for index, node in enumerate(truth)}
    for machine, peer in simulation.running():
        half, here = peer.config.overlay.leaf_set_size // 2, at[machine.node_id]
        if len(truth) <= 2 * half + 1:
            wanted = set(truth)
        else:
            wanted = {truth[(here + step) % len(truth)] for step in range(-half, half + 1)}
        found = {contact.node_id for contact in peer.overlay.leaf_set} | {machine.node_id}
        lacking, extra = [short(n) for n in sorted(wanted - found)], [short(n) for n in sorted(found - wanted)]
        _holds(
            found == wanted,
            f"leaf set: peer {machine.number} ({short(machine.node_id)}) lacks {lacking} and should not have {extra}",
        )


def check_tree(simulation: "Simulation", topic: str) -> None:
    """A topic with readers has one root, the peer closest to its id, and one tree that both ends of each edge know."""
    trees, what = simulation.trees(topic), f"tree of topic {topic}"
    numbers: dict[bytes, int] = {machine.node_id: machine.number for machine, _ in simulation.running()}
    roots = [number for number, tree in trees.items() if tree.root is not None]
    readers = {n for n, tree in trees.items() if tree.edges or tree.unstarted}
    if readers:
        id_ = simulation.topics[topic]
        closest = numbers[min(numbers, key=lambda node: (ring_distance(node, id_), node))]
        _holds(roots == [closest], f"{what}: its roots are {roots}, the peer closest to its id is {closest}")
    for number, tree in trees.items():
        me = simulation.world.machines[number].node_id
        for node in tree.children:
            child = trees.get(numbers.get(node, -1))
            knows = child is not None and child.parent is not None and child.parent.node_id == me
            _holds(knows, f"{what}: peer {number} has a child {short(node)} that does not know it as parent")
        if tree.parent is not None:
            parent = trees.get(numbers.get(tree.parent.node_id, -1))
            knows = parent is not None and me in parent.children
            above = short(tree.parent.node_id)
            _holds(knows, f"{what}: peer {number} has a parent {above} that does not know it as child")
    for number in sorted(readers):
        way = [number]
        while (parent_contact := trees[way[-1]].parent) is not None:
            way.append(numbers[parent_contact.node_id])
            _holds(
                len(way) <= len(numbers),
                f"{what}: the way from peer {number} goes in a circle: {way[:9]}",
            )
        _holds(way[-1] in roots, f"{what}: the way from reader {number} ends at {way[-1]}, which is no root")


def check_credit(simulation: "Simulation") -> None:
    """Every bundle's bytes were released in the end: no link loses its credit bit by bit."""
    for machine, _ in simulation.running():
        assert machine.host is not None
        for node, charged in machine.host.charged.items():
            _holds(
                charged == 0, f"credit: peer {machine.number} never released {charged} bytes that {short(node)} sent"
            )


class Admission(NamedTuple):
    """A root's word on a run of a publisher's events."""

    at: float
    machine: int
    first: int
    last: int
    term: Term
    position: int


class Delivery:
    """The promises of one topic in one finished run (DELIVERY.md)."""

    def __init__(self, simulation: "Simulation", plan: "TopicPlan") -> None:
        self.simulation, self.plan = simulation, plan
        self.lease_s = simulation.scenario.config.topics.lease_s
        self.end = simulation.world.now
        self.readers = [reader for reader in simulation.readers if reader.topic == plan.name]
        self.writers = {writer.name: writer for writer in simulation.writers if writer.topic == plan.name}
        self.outages = _outages(simulation, at_least_s=self.lease_s - DOUBT_S)
        self.admissions: dict[bytes, list[Admission]] = {}
        for at, machine, record in simulation.world.journal.records:
            match record:
                case Admitted(topic, publisher, first, count, term, index) if topic == simulation.topics[plan.name]:
                    admission = Admission(at, machine, first, first + count, term, index)
                    self.admissions.setdefault(publisher, []).append(admission)
        self.heard_by = {reader.name: _heard(reader) for reader in self.readers}

    def check(self) -> None:
        """Raise `Broken` with the first promise that was not kept."""
        for reader in self.readers:
            _holds(not reader.failures, f"{self._who(reader)} failed: {reader.failures[:1]}")
            self._check_log(reader)
        if self.plan.delivery == "reliable":
            for reader in self.readers:
                self._check_passed_over(reader)
            for reader in self.readers:
                self._check_owed(reader)
            for writer in self.writers.values():
                self._check_stable(writer)
        else:
            for reader in self.readers:
                self._check_drops(reader)

    # --- always

    def _check_log(self, reader: Reader) -> None:
        last: dict[str, int] = {}
        seen: dict[Event, float] = {}
        for entry in reader.log:
            if isinstance(entry, Told):
                continue
            at, event = entry
            who = f"{self._who(reader)} was given {self._what(event)}"
            writer = self.writers.get(event.writer)
            _holds(writer is not None and event.number < len(writer.written), f"{who} at {at:.3f} s; nobody wrote that")
            _holds(event not in seen, f"{who} twice: at {seen.get(event, 0):.3f} s and at {at:.3f} s")
            if self.plan.order == "publisher" and self.plan.delivery == "reliable":
                before = last.get(event.writer, -1)
                _holds(event.number > before, f"{who} at {at:.3f} s, after number {before}")
            seen[event] = at
            last[event.writer] = event.number

    def _check_passed_over(self, reader: Reader) -> None:
        """Between two of a writer's events in a log nothing is missing that was not told lost."""
        places: dict[str, list[int]] = {}
        for place, entry in enumerate(reader.log):
            if isinstance(entry, Heard):
                places.setdefault(entry.event.writer, []).append(place)
        for writer, its_places in places.items():
            for here, there in pairwise(its_places):
                before, after = reader.log[here], reader.log[there]
                assert isinstance(before, Heard)
                assert isinstance(after, Heard)
                for number in range(before.event.number + 1, after.event.number):
                    _holds(
                        bool(self._told(reader, Event(writer, number))),
                        f"{self._who(reader)} was given {self._what(after.event)} at {after.at:.3f} s after number "
                        f"{before.event.number}, and never told that it lost number {number}",
                    )

    # --- best effort

    def _check_drops(self, reader: Reader) -> None:
        """What a reader came past within a term was handed over or told dropped, and never both."""
        if reader.start is None:
            return
        heard = self.heard_by[reader.name]
        places = {event: list(self._positions(event)) for event in self._events()}
        reach: dict[Term, int] = {}
        for event in heard:
            for term, index in places[event]:
                reach[term] = max(reach.get(term, 0), index)
        for event, positions in places.items():
            told = self._told(reader, event)
            if event in heard:
                _holds(not told, f"{self._who(reader)} was given {self._what(event)} and told that it lost it ({told})")
            elif any(reader.start <= place and place.index < reach.get(place.term, 0) for place in positions):
                _holds(
                    bool(told),
                    f"{self._who(reader)} was given an event that came after {self._what(event)}, "
                    "and never told that it lost that one",
                )

    def _events(self) -> Iterator[Event]:
        for writer in self.writers.values():
            yield from (Event(writer.name, number) for number in range(len(writer.written)))

    def _positions(self, event: Event) -> Iterator[Position]:
        for admission in self._admitted(self.writers[event.writer], event):
            yield Position(admission.term, admission.position + event.number - admission.first)

    # --- owed

    def _check_owed(self, reader: Reader) -> None:
        if reader.ended_at is not None or not reader.host.alive:
            return
        if reader.started_at is None:
            calm = max([reader.asked_at, *(t.end for t in self.simulation.troubles)])
            _holds(
                self.end - calm < START_S,
                f"{self._who(reader)} subscribed at {reader.asked_at:.3f} s and never started",
            )
            return
        for writer in self.writers.values():
            for number, at in enumerate(writer.written):
                event = Event(writer.name, number)
                if at > reader.started_at and event not in self.heard_by[reader.name]:
                    self._check_missing(reader, writer, event, at)

    def _check_missing(self, reader: Reader, writer: Writer, event: Event, at: float) -> None:
        why_kept = self._kept(writer, event)
        if why_kept is None:
            return  # it died with its writer
        told = self._told(reader, event)
        story = (
            f"{self._who(reader)}, whose subscription stood at {reader.started_at:.3f} s, never got {self._what(event)}"
        )
        story += f", written at {at:.3f} s, though {why_kept}"
        excuse = self._excuse(reader, writer, at)
        if excuse is None and self._before_its_start(reader, writer, event):
            excuse = self._began_apart(reader, at)
        if excuse is not None and self._unknown_at_its_start(reader, writer, event):
            return
        if excuse is None:
            _holds(False, f"{story}; it was {f'told so ({told})' if told else 'not told so either'}")
        _holds(bool(told), f"{story}; {excuse}, but it was not told that it lost it")

    def _kept(self, writer: Writer, event: Event) -> str | None:
        """Why an event cannot have died with its writer; None if it may have."""
        if writer.lives:
            return "its writer lives"
        if writer.publisher.is_stable(event.number):
            return "it was called stable"
        for admission in self._admitted(writer, event):
            machine = self.simulation.world.machines[admission.machine]
            if machine.host is not None and machine.started_at <= admission.at:
                return f"peer {admission.machine}, which lives, admitted it"
        for reader in self.readers:
            if reader.host.alive and event in self.heard_by[reader.name]:
                return f"peer {reader.host.machine.number}, which lives, delivered it to {reader.name}"
        return None

    def _excuse(self, reader: Reader, writer: Writer, at: float) -> str | None:
        """Why a reader may lack an event if it was told."""
        if self.plan.slow == "cut" and any(start - self.lease_s < at < end + DOUBT_S for start, end in reader.slow):
            return "the reader was slow"
        for machine in (reader.host.machine.number, writer.host.machine.number):
            for start, end in self.outages.get(machine, []):
                if start - self.lease_s < at < end + self.lease_s:
                    return f"peer {machine} was out of reach from {start:.1f} to {end:.1f} s"
        return None

    def _began_apart(self, reader: Reader, at: float) -> str | None:
        """Did the subscription begin on one side of a cut, and was the event written before that was surely mended?

        Until then the other side knows of no lease (DELIVERY.md: who has a live one gets what is admitted after its
        start), and what all leases there cover is let go.
        """
        began = reader.started_at
        assert began is not None
        for start, end in self._cuts(reader):
            if start < began < end and at < end + DOUBT_S:
                return f"its subscription began beyond a cut that lasted from {start:.1f} to {end:.1f} s"
        return None

    def _cuts(self, reader: Reader) -> list[tuple[float, float]]:
        machine, troubles = reader.host.machine.number, self.simulation.troubles
        return [(t.start, t.end) for t in troubles if t.machine == machine and t.what == "cut off"]

    def _before_its_start(self, reader: Reader, writer: Writer, event: Event) -> bool:
        """Was the event only ever admitted under terms below the one that the subscription started in?"""
        terms = [admission.term for admission in self._admitted(writer, event)]
        return reader.start is not None and bool(terms) and max(terms) < reader.start.term

    def _unknown_at_its_start(self, reader: Reader, writer: Writer, event: Event) -> bool:
        """Was it admitted only by reigns, below the one of the subscription, that its peer knew nothing of then?

        The peer hears of such a reign when the cut is mended, and cannot tell what of it came after the start.
        """
        return self._before_its_start(reader, writer, event) and not any(
            admission.term in reader.knew for admission in self._admitted(writer, event)
        )

    def _check_stable(self, writer: Writer) -> None:
        """Everything that a living writer wrote long ago is stable."""
        publisher = writer.publisher
        slow = [end for reader in self.readers for _, end in reader.slow]
        last = max([*writer.written[-1:], *slow, *(trouble.end for trouble in self.simulation.troubles)], default=0.0)
        if writer.lives and self.end - last > self.lease_s + SETTLE_S:
            marks = f"{publisher.admitted} are admitted and {publisher.stable} stable"
            _holds(
                publisher.stable == publisher.next,
                f"topic {self.plan.name}: of {publisher.next} events of {writer.name} {marks} at the end, "
                f"{self.end - last:.0f} s after the last one or the last trouble",
            )

    # --- helpers

    def _admitted(self, writer: Writer, event: Event) -> Iterator[Admission]:
        for admission in self.admissions.get(writer.publisher.id, []):
            if admission.first <= event.number < admission.last:
                yield admission

    def _told(self, reader: Reader, event: Event) -> str:
        """What a reader was told of an event's loss: its position, or a void hole around it; empty if nothing."""
        for term, index in self._positions(event):
            for entry in reader.log:
                if isinstance(entry, Told) and entry.term == term and entry.first <= index < entry.last:
                    return f"{entry.why} at {entry.at:.3f} s"
        return _void_around(reader, event)

    def _who(self, reader: Reader) -> str:
        return f"topic {self.plan.name}: reader {reader.name}"

    def _what(self, event: Event) -> str:
        return f"event {event.number} of {event.writer}"


def _heard(reader: Reader) -> set[Event]:
    return {entry.event for entry in reader.log if isinstance(entry, Heard)}


def _void_around(reader: Reader, event: Event) -> str:
    """Was the reader told of a void hole between what it was given before and after an event of the same writer?"""
    void = ""
    for entry in reader.log:
        if isinstance(entry, Told):
            void = void or (f"void at {entry.at:.3f} s" if entry.why == "void" else "")
        elif entry.event.writer == event.writer and entry.event.number < event.number:
            void = ""
        elif entry.event.writer == event.writer:
            return void
    return ""


def _outages(simulation: "Simulation", at_least_s: float) -> dict[int, list[tuple[float, float]]]:
    """When machines were out of reach for long: troubles that follow one another closely count as one."""
    merged: dict[int, list[tuple[float, float]]] = {}
    for trouble in sorted(simulation.troubles, key=lambda trouble: trouble.start):
        mine = merged.setdefault(trouble.machine, [])
        if mine and trouble.start - mine[-1][1] < DOUBT_S:
            mine[-1] = (mine[-1][0], max(mine[-1][1], trouble.end))
        else:
            mine.append((trouble.start, trouble.end))
    return {
        machine: [(start, end) for start, end in spans if end - start >= at_least_s]
        for machine, spans in merged.items()
    }


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        about = re.search(r"\b(topic|peer) (\w[\w/]*)", otherwise)
        raise Broken(otherwise, ":".join(about.groups()) if about else "")
