"""Judges that check a run while it lasts: each compares what a program is told with the state of the world then.

======== ==============================================================================================================
stable   when a writer is told that an event is stable, every subscriber that was owed it and has a live lease has
         received it
loss     when a subscriber is told that it lost an event, no live peer that it could have reached for long enough holds
         it; a subscriber to new events is told of none that was stable when it asked; if the report is uncertain,
         none of those peers knows what the event was, unless buffers were full
bounds   at every checked step, a peer keeps no more than its settings allow
storm    no peer sends another one 300 control messages in a second, whatever has failed
access   no peer admits events by default settings while a peer that it could reach has known better ones for 5 s;
         one that knows who may publish admits no events of others, and delivers none of them that others numbered,
         or a root beyond a partition
======== ==============================================================================================================

docs/decisions/judges.md says which text of docs/delivery.md each judge checks, and how it was read.
"""

from collections.abc import Iterator

from quillcast.core.envelope import Position, Term
from quillcast.core.ids import short
from quillcast.core.trace import Admitted, Delivered, Dropped, Repaired
from quillcast.protocol.peer import Peer
from quillcast.protocol.topics.memory.small_topics import LITTLE_PARTS
from quillcast.sim import holdings
from quillcast.sim.applications import Event, Reader, Told, Writer, peer_of
from quillcast.sim.leases import JOINED_S, MEET_S, Leases
from quillcast.sim.observed import Observed
from quillcast.sim.owner import Credentials
from quillcast.sim.scenario import TopicPlan
from quillcast.sim.world import Broken

SPREAD_S = 1.0  # until all peers that look for an event know that another has got it; ten reports
MESSAGES_MAX = 300  # control messages from one peer to another in a second; twice the most in 1,000 histories


class Judges:
    """The judges of one run. Each raises `Broken` at the moment a promise is broken."""

    def __init__(self, run: Observed) -> None:
        self.run, self.reach, self.config = run, run.reach, run.scenario.config
        self.leases = Leases(run.reach, self.config, run.topics)
        self.known_since: dict[tuple[int, bytes, bytes], float] = {}  # when a process learned a topic's settings
        self.plans: dict[bytes, TopicPlan] = {run.topics[plan.name]: plan for plan in run.scenario.topics}

    # --- stable

    def told_stable(self, writer: Writer, before: int) -> None:
        """Check that events from number `before` on are stable, as a writer was told."""
        plan = self.plans[self.run.topics[writer.topic]]
        if writer.publisher.term.of_source:
            root = self._term(writer)
            roots = [each.number for each in self.run.world.machines if root.is_of(each.node_id)]
            self.run.vouch({Event(writer.name, at): roots for at in range(before, writer.publisher.stable)})
        for reader in self.run.readers:
            if reader.topic == writer.topic and reader.ended_at is None and reader.host.alive:
                for number in range(before, writer.publisher.stable):
                    if writer.knows_stable(number):
                        self._has(plan, reader, writer, number)

    def _has(self, plan: TopicPlan, reader: Reader, writer: Writer, number: int) -> None:
        event, written = Event(writer.name, number), writer.written[number]
        if event in reader.heard or reader.started_at is None or written <= reader.started_at:
            return
        admitted = self.run.ledgers[writer.topic].admitted(writer.publisher.id, number)
        places = {writer.host.machine.number, *(each.machine for each in admitted), *self.run.vouched.get(event, ())}
        if any(self.leases.ended(reader, place, written) for place in places) or self._elsewhere(reader, writer):
            return
        if self._began_under_a_rival(reader, writer, written):
            return
        told, now = told_of(self.run, reader, event), self.run.world.now
        slow = self.leases.slow(reader, written, now) or self._may_be_cut(reader, writer, written if told else None)
        if cuts(self.run, plan) and slow:
            return  # its lease ended first
        raise Broken(
            f"stable: {writer.name} was told that event {number} of topic {plan.name} is stable, and reader "
            f"{reader.name} has a live lease since {reader.started_at:.3f} s and "
            + (f"was told that it lost it ({told})" if told else "was not given it"),
            f"topic:{plan.name}",
        )

    def _elsewhere(self, reader: Reader, writer: Writer) -> bool:
        """Whether the acknowledgement was for one side of a partition, and the reader is on another."""
        here, there = writer.host.machine.number, reader.host.machine.number
        return writer.publisher.partitioned and not self.reach.together(here, there, self.run.world.now)

    def _began_under_a_rival(self, reader: Reader, writer: Writer, written: float) -> bool:
        """Whether its subscription began under another root so recently that the two roots need not have met."""
        assert reader.started_at is not None
        assert reader.start is not None
        return written - reader.started_at < MEET_S and reader.start.term != self._term(writer)

    def _term(self, writer: Writer) -> Term:
        """The term of the root under which it publishes, even if that does not number its events."""
        term = writer.publisher.term
        return peer_of(writer.host).topics.trees[self.run.topics[writer.topic]].term if term.of_source else term

    def _may_be_cut(self, reader: Reader, writer: Writer, lost: float | None) -> bool:
        """Whether a budget ran out since the reader was up to date, or shortly before: its lease may then be cut.

        It has a lease again when it has caught up and has had time to report so. `lost`: when the lost event was
        written. If none is lost, one may be late because a peer on its path was full and discarded it.
        """
        given = (writer.written[event.number] for event in reader.heard if event.writer == writer.name)
        since = max(given, default=0.0) if lost is None else lost
        if self.run.crowding.between(since - MEET_S, self.run.world.now):
            return True
        topic = self.run.topics[writer.topic]
        dropped = (record for _, record in self.run.traced(since - MEET_S) if isinstance(record, Dropped))
        return lost is None and any(record.topic == topic and record.why == "budget" for record in dropped)

    # --- loss

    def told_lost(self, reader: Reader, told: Told) -> None:
        """Check that a loss that a reader was told of was unavoidable."""
        topic = self.run.topics[reader.topic]
        plan = self.plans[topic]
        if plan.delivery != "reliable" or reader.started_at is None:
            return
        now = self.run.world.now
        overtaken = plan.guarantees_change and told.why == "overtaken"  # no order would bring it back
        passed = told.why == "dropped" and told.term == reader.waits_for_nothing_in
        if overtaken or passed or told.term in self.run.ledgers[reader.topic].best_effort:
            return
        if cuts(self.run, plan) and self.leases.slow(reader, now, now):
            return
        near = dict(self._reachable(reader.host.machine.number))
        near = {number: peer for number, peer in near.items() if not self._struck_off(plan, told.term, number, peer)}
        for number in self._just_repaired(topic) - {reader.host.machine.number}:
            near.pop(number, None)
        if told.why == "start":  # only the parent was asked for events from before a start, some time ago
            self._kept_above(reader, told)
            near = {number: peer for number, peer in near.items() if number == reader.host.machine.number}
        if not told.publisher:  # its events may still arrive under another term
            self._unknown(reader, told, near)
            return
        if told.why == "late":  # the event exists, but order forbids it: its publisher had discarded it
            return
        writer = self.writer(told.publisher)
        self._before_it_asked(reader, writer, told)
        for number, peer in near.items():
            for begin, end in holdings.held(peer, topic, told.publisher).within(told.first, told.last):
                self._avoidable(reader, writer, told, number, begin, end)

    def _before_it_asked(self, reader: Reader, writer: Writer, told: Told) -> None:
        """A subscriber to new events is not told of losing events that were stable when it asked."""
        assert reader.start is not None
        stable = writer.never_stable.missing(told.first, min(told.last, writer.stable_by(reader.asked_at)))
        if reader.earliest or told.term != reader.start.term or not stable:
            return
        raise Broken(
            f"old loss: reader {reader.name} of topic {reader.topic} was told that it lost event {stable[0][0]} of "
            f"{writer.name} ({told.why}), which was stable when it asked for what comes from now on",
            f"topic:{reader.topic}",
        )

    def _just_repaired(self, topic: bytes) -> set[int]:
        """Peers that got missing events so recently that others may not know it, and give these up."""
        lately = self.run.traced(self.run.world.now - SPREAD_S)
        return {machine for machine, record in lately if isinstance(record, Repaired) and record.topic == topic}

    def _kept_above(self, reader: Reader, told: Told) -> None:
        """An `earliest` start reaches back as far as the parent's buffer, if that goes back further than the peer's."""
        topic, peer = self.run.topics[reader.topic], peer_of(reader.host)
        parent = peer.topics.trees[topic].parent
        running = {each.host.contact: each for _, each in self.run.running()}
        above = running[parent].topics.trees.get(topic) if parent in running else None
        if above is None:
            return
        subscription = next(each for each in peer.topics.trees[topic].subscriptions if each.subscriber is reader)
        for term, index in self._places(reader, told):
            live = above.flow.live(term) is not None and not term.is_of(reader.host.me)  # its own events do not return
            cursor = subscription.term_cursor(term) if live else None
            if cursor is not None and above.flow.kept_before(term, cursor.start) <= index < cursor.start:
                raise Broken(
                    f"start: reader {reader.name} of topic {reader.topic} was told that it lost position {index} of "
                    f"{term}, which came before it began, and its peer's parent keeps it",
                    f"topic:{reader.topic}",
                )

    def _places(self, reader: Reader, told: Told) -> Iterator[Position]:
        """The positions of the events that a report names."""
        for number in range(told.first, told.last):
            if told.publisher:
                yield from self.run.ledgers[reader.topic].positions(told.publisher, number)
            else:
                yield Position(told.term, number)

    def _struck_off(self, plan: TopicPlan, term: Term, number: int, peer: Peer) -> bool:
        """Whether this peer is a stream's source and was taken off the list: then nobody asks it for events."""
        if not (plan.lists_of_writers and term.of_source and term.is_of(peer.host.me)):
            return False
        known = peer.topics.descriptors.get(self.run.topics[plan.name])
        return known is not None and known.refusal("publish", Credentials.of(number).principal) is not None

    def _avoidable(self, reader: Reader, writer: Writer, told: Told, holder: int, first: int, last: int) -> None:
        for number in range(first, last):
            written = writer.written[number]
            if Event(writer.name, number) in reader.heard or self._not_owed(reader, writer, number, written):
                continue
            if self._disowned(writer, number):
                continue
            raise Broken(
                f"avoidable loss: reader {reader.name} was told that it lost event {number} of {writer.name} in topic "
                f"{reader.topic} ({told.why}), and peer {holder}, which it could reach, holds it",
                f"topic:{reader.topic}",
            )

    def _disowned(self, writer: Writer, number: int) -> bool:
        """Whether an event's writer is on no list, and only roots that knew no owner of the topic admitted it."""
        admitted = self.run.ledgers[writer.topic].admitted(writer.publisher.id, number)
        return not (writer.may_publish or any(each.term.owned or each.term.of_source for each in admitted))

    def _not_owed(self, reader: Reader, writer: Writer, number: int, written: float) -> bool:
        """Whether it was written before the subscription, or the lease had ended, by time or by a cut."""
        assert reader.started_at is not None
        if written <= reader.started_at:
            return True
        plan = self.plans[self.run.topics[reader.topic]]
        if cuts(self.run, plan) and self._may_be_cut(reader, writer, written):
            return True
        return bool(self.leases.ended(reader, writer.host.machine.number, written))

    def _unknown(self, reader: Reader, told: Told, near: dict[int, Peer]) -> None:
        """An uncertain report means that no reachable peer knows the events, if buffers had room for an answer."""
        topic, now = self.run.topics[reader.topic], self.run.world.now
        if self.run.crowding.between(now - MEET_S, now) or self._ended_beyond(reader, told):
            return
        for number, peer in near.items():
            known = holdings.positions(peer, topic, told.term).within(told.first, told.last)
            if known:
                raise Broken(
                    f"uncertain: reader {reader.name} of topic {reader.topic} was told that it may have lost positions "
                    f"{told.first} to {told.last} ({told.why}), and peer {number}, which it could reach, knows what "
                    f"stood at {known}",
                    f"topic:{reader.topic}",
                )

    def _ended_beyond(self, reader: Reader, told: Told) -> bool:
        """Whether a stream ended with its session while the reader had no lease: nobody is asked for its events."""
        session = peer_of(reader.host).topics.trees[self.run.topics[reader.topic]].session
        if not (told.term.of_source and told.term.session < session) or self._goes_on(reader.topic, told.term):
            return False
        events = self.run.ledgers[reader.topic].events(told.term, told.first, told.last)
        return all(
            self._not_owed(reader, self.writer(publisher), number, self.writer(publisher).written[number])
            for publisher, (first, last) in events
            for number in range(first, last)
        )

    def _goes_on(self, topic: str, stream: Term) -> bool:
        """Whether a stream's source still numbers events in it."""
        own = (tree.sources.own for tree in self.run.trees(topic).values())
        return any(each is not None and each.term == stream and not each.closing for each in own)

    def _reachable(self, machine: int) -> Iterator[tuple[int, Peer]]:
        """Peers that this one could reach for long enough to join a tree and ask all peers there for an event."""
        since = self.run.world.now - self.config.topics.give_up_s - JOINED_S
        for other, peer in self.run.running():
            if self.reach.together(machine, other.number, since):
                yield other.number, peer

    # --- bounds

    def within_bounds(self, peer: Peer, charged_bytes: int) -> None:
        """Check that a peer keeps no more than its settings allow. Bytes charged to senders still hold these back."""
        number = self._number(peer)
        topics = self.run.scenario.config_of(number).topics
        mine = [each for group in peer.topics.publishing.publishers.values() for each in group.values()]
        little_bytes = min(topics.window_bytes, topics.budget_bytes // LITTLE_PARTS)
        passing_bytes = topics.window_bytes + 2 * little_bytes  # of repairs, for which full buffers wait, and others
        passing_bytes += topics.window_bytes  # of events that came before earlier ones of their publisher
        bound = topics.budget_bytes + charged_bytes + len(mine) * topics.window_bytes + passing_bytes
        kept, largest = holdings.kept_bytes(peer)
        bound += largest  # the one that exceeded a bound
        about = f"peer:{number}"
        if kept > bound:
            raise Broken(
                f"bounds: peer {number} keeps {kept} bytes of bundles, {peer.table.budget.used_bytes} of "
                f"them within its budget, and may keep {bound}: {topics.budget_bytes} and what it holds its senders "
                "back for",
                about,
            )
        for publisher in mine:
            waits = publisher.waiting_bytes if publisher.session else 0  # in a best-effort session the window bounds it
            kept = max(publisher.retained_bytes - waits, 0)
            if publisher.retained and kept - publisher.retained[-1].size >= topics.retain_bytes:
                raise Broken(
                    f"bounds: a publisher on peer {number} retains {publisher.retained_bytes} bytes, and "
                    f"may retain {topics.retain_bytes} and one block",
                    about,
                )

    def _number(self, peer: Peer) -> int:
        return next(machine.number for machine, each in self.run.running() if each is peer)

    # --- storms

    def no_storm(self) -> None:
        """Check once a second that no peer sends too many messages, as peers that answer each other endlessly would.

        Simulated networks are small, with a few events a second. A faster network would need far more messages.
        """
        for machine, _ in self.run.running():
            for node, sent in machine.host.take_sent().items() if machine.host is not None else ():
                if sent > MESSAGES_MAX:
                    raise Broken(
                        f"storm: peer {machine.number} sent {short(node)} {sent} messages in a second",
                        f"peer:{machine.number}",
                    )

    # --- access

    def admitted(self, machine: int, record: Admitted) -> None:
        """Check that a root that admits events uses the settings that the topic was created with."""
        plan = self.plans.get(record.topic)
        if plan is None or plan.name not in self.run.created:
            return
        peer = next(each for other, each in self.run.running() if other.number == machine)
        if peer.topics.descriptors[record.topic].version:
            self._listed(plan, record.publisher, f"peer {machine} admits")
            return
        for number, other in self._reachable(machine):
            known = other.topics.descriptors.get(record.topic)
            if known is None or not known.version:
                continue
            now = self.run.world.now
            if now - self.known_since.setdefault((number, other.host.incarnation, record.topic), now) >= MEET_S:
                raise Broken(
                    f"access: peer {machine} admits events of topic {plan.name} by default settings, and peer "
                    f"{number}, which it could reach, knows those that it was created with",
                    f"topic:{plan.name}",
                )

    def delivered(self, machine: int, record: Delivered) -> None:
        """Check that a publisher may publish when a peer delivers its events from a source or another side's root."""
        plan = self.plans[record.topic]
        if plan.publishers and (record.term.of_source or self._came_across(machine, record, plan.name)):
            peer = next(each for other, each in self.run.running() if other.number == machine)
            if peer.topics.descriptors[record.topic].version:
                self._listed(plan, record.publisher, f"peer {machine} delivers")

    def _came_across(self, machine: int, record: Delivered, topic: str) -> bool:
        """Whether a peer could not reach the root that admitted the events when it admitted them."""
        admitted = (each for each in self.run.ledgers[topic].admitted(record.publisher, record.first))
        groups = ((each.machine, self.reach.group(machine, each.at)) for each in admitted if each.term == record.term)
        return any(group and root not in group for root, group in groups)  # an empty group: its process was paused

    def _listed(self, plan: TopicPlan, publisher: bytes, who: str) -> None:
        if plan.publishers and not (writer := self.writer(publisher)).may_publish:
            raise Broken(
                f"access: {who} events of {writer.name}, which is not on the list of topic {plan.name}",
                f"topic:{plan.name}",
            )

    # --- helpers

    def writer(self, publisher: bytes) -> Writer:
        """The writer with this publisher."""
        return next(writer for writer in self.run.writers if writer.publisher.id == publisher)


def cuts(run: Observed, plan: TopicPlan) -> bool:
    """Whether slow subscribers may be cut: by the plan or a change, or by default settings that a peer still uses."""
    if plan.changes:
        return True
    topic = run.topics[plan.name]
    trees = (peer.topics.trees.get(topic) for _, peer in run.running())
    current = (tree.descriptor for tree in trees if tree is not None and tree.root is not None)
    return plan.slow == "cut" or any(not each.version and each.settings.slow == "cut" for each in current)


def told_of(run: Observed, reader: Reader, event: Event) -> str:
    """The report of an event's loss to a reader, by name or by one of its positions; empty if there is none."""
    of_topic = (writer for writer in run.writers if writer.topic == reader.topic)
    publisher = next(writer.publisher.id for writer in of_topic if writer.name == event.writer)
    positions = list(run.ledgers[reader.topic].positions(publisher, event.number))
    for entry in [entry for entry in reader.log if type(entry) is Told]:
        if entry.publisher:
            named = entry.publisher == publisher and entry.first <= event.number < entry.last
        else:
            named = any(term == entry.term and entry.first <= index < entry.last for term, index in positions)
        if named:
            return f"{entry.why} at {entry.at:.3f} s"
    return ""
