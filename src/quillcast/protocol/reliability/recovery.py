"""Repair by ranges: a peer that misses a range asks any member of its group that has it (docs/delivery.md).

Link reports say what neighbours have. Missing events of the current term are requested from the parent, then from
children, siblings and the grandparent, and then from the root, whose answer decides. A range is given up when the
parent reports that it will not get it again, which it knows from its own parent and so on up to the root, and when
no other peer has it either.

Past terms have no root. A peer requests what its neighbours report to keep, both up and down the tree, so the last
copy is found wherever it is and passed on to all. What a subscriber here is owed but no peer keeps is given up after
the time of a lease.

A refusal names the runs of events that were at the positions, if they are known (`forwarding.ledger`), so that a loss
is reported exactly.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import Contact
from quillcast.core.ranges import NO_RANGES, Range, RangeSet, beyond, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.answers import holding, verdict
from quillcast.protocol.forwarding.discarding import lose, pass_had
from quillcast.protocol.forwarding.event_places import admitted_again, learn_runs, may_be_readmitted, runs_at
from quillcast.protocol.forwarding.ledger import Run, within
from quillcast.protocol.reliability.agents import NO_NEWS, Agents, News
from quillcast.protocol.reliability.domain import Findings, RecoveryTimes, StreamId, held_by
from quillcast.protocol.reliability.gaps import Gap
from quillcast.protocol.reliability.group import Buffers, Groups, PeerGroup, Peers
from quillcast.protocol.reliability.messages import Fetch, FetchFromRoot, FetchFromSource, Unavailable

ROOT = b"root"
"""Stands for the root among the repairers. The overlay finds it."""
SOURCE = b"source"
"""Stands for the source that numbers a term's events. The group's members pass questions on to it."""
SEARCH_CHECKS = 2  # checks for gaps that a search takes: without a search, a request waits as long


class Look(Timer, frozen=True):
    """Check the gaps."""


class Recovery:
    """The repairs of one peer."""

    def __init__(self, host: Host, times: RecoveryTimes, groups: Groups, buffers: Buffers, dispatch: Dispatch) -> None:
        self.host, self.times, self.groups, self.buffers = host, times, groups, buffers
        self.agents = Agents(host, times, self, dispatch)
        self.gaps: dict[tuple[bytes, Term], Gap] = {}
        self.askers: dict[tuple[bytes, Term], dict[Contact, RangeSet]] = {}  # for what this peer lacks of ended terms
        self.suspects: dict[bytes, None] = {}  # topics that may miss something; only these are checked
        self.set = False
        self.losses_until = 0.0  # bundles came as datagrams lately, of which some are always lost
        self.unsent: dict[bytes, dict[tuple[bytes, Term], list[Range]]] = {}  # by peer: ranges that wait for credit
        self.sent_without_credit: dict[bytes, int] = EMPTY  # by peer: the room left after the last time
        dispatch.on_message(Fetch, self._asked)
        dispatch.on_message(Unavailable, self._refused)
        dispatch.on_message(FetchFromSource, self._for_source)
        dispatch.on_routed(FetchFromRoot, self._routed)
        dispatch.on_timer(Look, self._look)

    def expect_losses(self) -> None:
        """A bundle came as a datagram, and some of these are always lost: for a while, request them sooner."""
        self.losses_until = self.host.now() + self.times.lease_s

    @property
    def gap_s(self) -> float:
        """How long events are missing before they are requested."""
        return self.times.datagram_gap_s if self.host.now() < self.losses_until else self.times.gap_s

    def housekeep(self, now: float, *, paused: bool) -> None:
        """After a pause of this process nothing is given up because of the time that passed meanwhile."""
        if paused:
            for gap in self.gaps.values():
                gap.start_anew(now)

    def look_soon(self, topic: bytes) -> None:
        """Check the topic soon, because it may miss something."""
        self.suspects[topic] = None
        if not self.set:
            self.set = True
            self.host.set_timer(Look(), self.gap_s)

    def _look(self, timer: Look) -> None:
        """Check the topics that may miss something, and check again while any does."""
        self.set = False
        suspects, self.suspects = self.suspects, {}
        confirmed: dict[tuple[bytes, Term], Gap] = {}
        for topic in suspects:
            group = self.groups.find(topic)
            if group is not None and group.flow.begun:
                confirmed.update(self._look_over(group))
        for topic, term in [each for each in self.gaps if each not in confirmed]:
            self.agents.filled(StreamId(topic, term))
        self.gaps = confirmed
        self.askers = {stream: askers for stream, askers in self.askers.items() if self._has_ended(*stream)}
        for topic, _ in confirmed:
            self.look_soon(topic)

    def _look_over(self, group: PeerGroup) -> Iterator[tuple[tuple[bytes, Term], Gap]]:
        self._learn_past_terms(group)
        flow = group.flow
        for term in flow.live_terms():
            if missing := self._missing(group, term):
                gap = self._look_at(flow.topic, term, missing)
                self._fill_present(group, term, gap)
                yield (flow.topic, term), gap
        for term, missed in flow.undated().items():
            self._ask_source(group, term, missed, age=True)
            self.look_soon(flow.topic)
        for term in sorted(flow.past):
            if pass_had(flow, term):
                self.groups.gave_up(group)
            if wanted := self._wanted(group, term):
                gap = self._look_at(flow.topic, term, wanted.ranges())
                self._fill_past(group, term, gap)
                yield (flow.topic, term), gap

    def _has_ended(self, topic: bytes, term: Term) -> bool:
        group = self.groups.find(topic)
        return group is not None and term in group.flow.past

    # ---- the bottom interface of agents

    def holds(self, stream: StreamId, among: list[Range]) -> list[Range]:
        """What is kept here of these ranges."""
        group = self.groups.find(stream.topic)
        kept = holding(group.flow, stream.term, among) if group is not None else ()
        return intersection(among, RangeSet((bundle.envelope.first, bundle.last) for bundle in kept))

    def lacks(self, stream: StreamId) -> list[Range]:
        """What this peer misses, or others want of it and it does not have."""
        group = self.groups.find(stream.topic)
        if group is None:
            return []
        if stream.term in group.flow.past:
            return self._wanted(group, stream.term).ranges()
        return self._missing(group, stream.term)

    def found(self, stream: StreamId) -> None:
        """The agent's findings changed: request missing events from the holders they name."""
        group, gap = self.groups.find(stream.topic), self.gaps.get(stream)
        if group is not None and gap is not None:
            self._fill(group, stream.term, gap)

    # ---- gaps

    def _look_at(self, topic: bytes, term: Term, missing: list[Range]) -> Gap:
        now = self.host.now()
        gap = self.gaps.get((topic, term)) or Gap(now, 2 * self.gap_s)
        gap.look(missing, now)
        if self.buffers.is_pressed:
            gap.excuse_silence(now, self.times.lease_s)
        return gap

    def _missing(self, group: PeerGroup, term: Term) -> list[Range]:
        stream = group.flow.live(term)
        if stream is None or not group.flow.is_reliable(term) or group.flow.disowns(term):
            return []  # a best-effort session keeps nothing, and a root that learns of a list ends its term
        return stream.missing(group.reach.known_end(term))

    # ---- live terms

    def _fill_present(self, group: PeerGroup, term: Term, gap: Gap) -> None:
        """Request what was already missing at the last check, from one repairer after another, or give it up."""
        upstream = group.upper.upstream(term)
        missing = intersection(gap.confirmed, self._missing(group, term))
        if not missing or (upstream is None and not group.upper.decides(term)):
            return
        peers, now = group.repairers.peers(term), self.host.now()
        news = self._news(group, term, gap, missing, upstream)
        found = self._find(group, term, gap, missing, peers, upstream, news)
        repairers = [*_inside(*found), *peers.above]
        last = [*([ROOT] if group.upper.root is not None else []), *([SOURCE] if term.of_source and upstream else [])]
        gap.ask_among([*(contact.node_id for contact in repairers), *last], now)
        only_above = news.for_long if upstream in peers.above else NO_RANGES
        silent, levels = self._silent(gap, repairers), self._levels(gap, found, peers, only_above)
        for level in levels:
            self._ask_holders(group, term, gap, level, silent)
            for contact in _inside(level):
                if contact not in silent:
                    self._ask(contact, group, term, gap.to_ask(contact.node_id, level.lacks, now))
        if ROOT in gap.repairers:
            self._ask_root(group, term, gap.to_ask(ROOT, levels[-1].lacks, now))
        for level in levels:
            for contact in _inside(level):
                if contact in silent:
                    self._ask(contact, group, term, gap.to_ask(contact.node_id, level.lacks, now))
        if upstream is not None:
            if SOURCE in gap.repairers:
                self._ask_source(group, term, gap.to_ask(SOURCE, levels[-1].lacks, now))
            authority = SOURCE if term.of_source else upstream.node_id
            final, for_s = intersection(missing, gap.repairers[authority].released), 0.0
        else:
            final, for_s = missing, self.times.lease_s
        gone = gap.nobody_has(final, self.host.now(), for_s, self.times.give_up_s)
        self._give_up(group, term, gap, gone)
        self._press(group, term, gap, repairers)

    def _news(
        self, group: PeerGroup, term: Term, gap: Gap, missing: list[Range], upstream: Contact | None
    ) -> News:  # fmt: skip
        """The missing events that can have reached no member yet, and that the deciding peer has not given up."""
        if upstream is None or not self.agents.seeks(group.flow.topic):
            return NO_NEWS
        gone = gap.released_by(SOURCE if term.of_source else upstream.node_id)
        new = difference(beyond(missing, group.reach.reached(term)), gone)
        awaited = beyond(new, group.reach.reached_upstream(term))
        return News(new, gap.new_for(new, SEARCH_CHECKS * self.times.gap_s, self.host.now()), awaited)

    def _find(
        self, group: PeerGroup, term: Term, gap: Gap, lacks: list[Range], peers: Peers, upstream: Contact | None,
        news: News = NO_NEWS,
    ) -> list[Findings]:  # fmt: skip
        """Where ranges are, as agents know, from this peer's own domain outwards."""
        stream, near = StreamId(group.flow.topic, term), (peers.inside, *peers.around)
        found: list[Findings] = []
        for each in self.agents.find(stream, lacks, near, upstream, lambda each: self._beyond(gap, each), news):
            for contact, ranges in each.holders:
                gap.named(contact.node_id, ranges)
            found.append(each)
        return found

    def _beyond(self, gap: Gap, findings: Findings) -> list[Range]:
        """What no member of a domain is about to send: no holder, and no neighbour that has not refused it yet."""
        now, silent_s, lacks = self.host.now(), self.times.give_up_s, [*findings.lacks]
        for contact in findings.neighbours:
            lacks = difference(lacks, RangeSet(gap.may_send(contact.node_id, lacks, now, silent_s)))
        return [*lacks, *self._unsent(gap, findings)]

    def _unsent(self, gap: Gap, findings: Findings) -> list[Range]:
        """What members are said to hold, but do not send."""
        now, silent_s, may_come = self.host.now(), self.times.give_up_s, RangeSet()
        for contact, ranges in findings.holders:
            may_come.update(gap.may_send(contact.node_id, ranges, now, silent_s))
        return difference(held_by(findings.holders), may_come)

    def _levels(
        self, gap: Gap, found: Iterable[Findings], peers: Peers, only_above: RangeSet = NO_RANGES
    ) -> list[Findings]:  # fmt: skip
        """Which peers to ask for which ranges, level by level: a domain also lacks what its holders do not send.

        The peers above are the last level. They are asked for what the outermost domain lacks, or cannot have.
        """
        levels = [each._replace(lacks=RangeSet([*each.lacks, *self._unsent(gap, each)]).ranges()) for each in found]
        return [*levels, Findings((), peers.above, RangeSet([*levels[-1].lacks, *only_above]).ranges())]

    def _silent(self, gap: Gap, repairers: Iterable[Contact]) -> dict[Contact, None]:
        """The peers that do not answer: they are asked after all others."""
        now, silent_s = self.host.now(), self.times.give_up_s
        return {contact: None for contact in repairers if gap.is_silent(contact.node_id, now, silent_s)}

    def _ask_holders(
        self, group: PeerGroup, term: Term, gap: Gap, findings: Findings, silent: Mapping[Contact, None]
    ) -> None:
        """Request what members hold."""
        now = self.host.now()
        for contact, ranges in findings.holders:
            if contact not in silent:
                self._ask(contact, group, term, gap.to_ask(contact.node_id, ranges, now))

    def _ask_root(self, group: PeerGroup, term: Term, ranges: list[Range], *, due: bool = False) -> None:
        if ranges:
            self.host.trace(Mark("asked_root"))
            me, warrant = self.host.contact, group.access.warrant
            self.groups.ask_root(group, FetchFromRoot(group.flow.topic, term, ranges, me, warrant, due))

    def _ask_source(
        self, group: PeerGroup, term: Term, ranges: list[Range], *, due: bool = False, age: bool = False
    ) -> None:
        """Ask the source itself for what its neighbours discarded: it has what is not stable.

        `age`: only for how long these events have been there.
        """
        upstream = group.upper.upstream(term)
        if ranges and upstream is not None:
            self.host.trace(Mark("asked_source"))
            me, warrant = self.host.contact, group.access.warrant
            self.host.send(upstream, FetchFromSource(group.flow.topic, term, ranges, me, warrant, due, age))

    def _give_up(self, group: PeerGroup, term: Term, gap: Gap, ranges: list[Range]) -> None:
        """Nobody has these ranges: continue without them, and report the loss to every local subscriber."""
        if not ranges:
            return
        self.host.trace(Mark("gap_given_up"))
        gap.give_up(ranges)
        lose(group.flow, term, ranges)
        self.groups.gave_up(group)

    # ---- ended terms

    def _learn_past_terms(self, group: PeerGroup) -> None:
        """Record terms that this peer missed: subscribers from before them are owed their events."""
        for member in group.repairers.holders():
            for term, end, _, stable, there_ms in member.held:
                self.groups.learned(group, term, end, stable, there_ms)

    def _reported_ranges(self, group: PeerGroup, term: Term) -> dict[Contact, list[Range]]:
        """What each member reports to hold of an ended term, and this peer misses."""
        seen = group.flow.past[term].seen
        return {
            member.contact: difference(ranges, seen)
            for member in group.repairers.holders()
            for held_term, _, ranges, *_ in member.held
            if held_term == term
        }

    def _wanted(self, group: PeerGroup, term: Term) -> RangeSet:
        """What local subscribers are owed, other peers requested, or members hold and this peer misses."""
        wanted = group.flow.owed(term)
        for ranges in self._reported_ranges(group, term).values():
            wanted.update(ranges)
        return wanted

    def _fill_past(self, group: PeerGroup, term: Term, gap: Gap) -> None:
        """Request from each member what it reports to hold, and from all of them what is owed here.

        Peers outside of a domain are asked for what they report after all peers inside.
        """
        now = self.host.now()
        reported, owed = self._reported_ranges(group, term), group.flow.owed(term)
        peers, wanted = group.repairers.peers(term), self._wanted(group, term).ranges()
        found = self._find(group, term, gap, wanted, peers, group.upper.upstream(group.flow.term))
        contacts = [*_inside(*found), *peers.above]
        gap.ask_among([contact.node_id for contact in contacts], now, group.flow.term)
        for contact, ranges in reported.items():
            gap.offered(contact.node_id, ranges)
        silent, within, sought = self._silent(gap, contacts), dict[Contact, None](), RangeSet(wanted)
        last = list[tuple[dict[Contact, list[Range]], list[Range]]]()
        for level in self._levels(gap, found, peers):
            self._ask_holders(group, term, gap, level, silent)
            asked, lacks = _inside(level), RangeSet(level.lacks)
            within |= dict.fromkeys(asked)
            further = [each for contact, ranges in reported.items() if contact not in within for each in ranges]
            wishes = intersection(RangeSet([*owed, *further]), lacks)
            offers = {each: intersection(reported.get(each, ()), sought) for each in asked if each not in silent}
            self._ask_past(group, term, gap, offers, wishes)
            offers = {each: intersection(reported.get(each, ()), lacks) for each in asked if each in silent}
            last.append((offers, wishes))
            sought = lacks
        for offers, wishes in last:
            self._ask_past(group, term, gap, offers, wishes)
        settled = self._settled(group, term)
        gone = gap.nobody_has(owed, now, self.times.lease_s, self.times.give_up_s, settled)
        self._give_up(group, term, gap, difference(gone, self._may_be_readmitted(group, term, gone)))
        self._press(group, term, gap, contacts)

    def _ask_past(
        self, group: PeerGroup, term: Term, gap: Gap, offers: Mapping[Contact, list[Range]], wishes: list[Range]
    ) -> None:
        """Request from peers what they report to hold of an ended term, and then what others are to get."""
        now = self.host.now()
        for contact, ranges in offers.items():
            if asked := gap.to_ask(contact.node_id, ranges, now):
                self.host.trace(Mark("asked_past_term"))
                self._ask(contact, group, term, asked)
        for contact in offers:
            self._ask(contact, group, term, gap.to_ask(contact.node_id, wishes, now))

    def _settled(self, group: PeerGroup, term: Term) -> list[Range]:
        """Known events of an ended term that were declared stable: all peers that had them may have discarded them.

        If the events are unknown, a peer further away may still say which they were.
        """
        stable = group.flow.past[term].stable
        return [(run.at, run.at + run.events) for run in runs_at(group.flow, term, [(0, stable)])] if stable else []

    def _may_be_readmitted(self, group: PeerGroup, term: Term, gone: list[Range]) -> RangeSet:
        """Those of these positions, which no peer has, whose events may be admitted again.

        If the events at a position are unknown, they may be among the missing events of the current term, or their
        publishers may be held back.
        """
        flow = group.flow
        awaited, present = may_be_readmitted(flow, term, gone), self.gaps.get((flow.topic, flow.term))
        incomplete = present is not None and bool(intersection(present.confirmed, self._missing(group, flow.term)))
        if incomplete or group.upper.may_be_late(self.times.lease_s):
            known = RangeSet((run.at, run.at + run.events) for run in runs_at(flow, term, gone))
            awaited.update(difference(gone, known))
        return awaited

    # ---- full buffers

    def _press(self, group: PeerGroup, term: Term, gap: Gap, repairers: Iterable[Contact]) -> None:
        """While buffers are over budget, repairers lack credit: have one send the first event without credit."""
        front = group.flow.front(term)
        if front is None or not (self.buffers.is_pressed and self.buffers.takes_repairs):
            return
        first = [(front, front + 1)]
        asked = next((name for name, each in gap.repairers.items() if each.in_transit(first)), None)
        *before, at = gap.pressed
        if asked is None or (before == [front, asked] and self.host.now() < at + self.times.gap_s):
            return  # others refuse, too, and each of their answers leads here
        gap.press(front, asked, self.host.now())
        self.host.trace(Mark("pressed"))
        if asked == ROOT:
            self._ask_root(group, term, first, due=True)
        elif asked == SOURCE:
            self._ask_source(group, term, first, due=True)
        else:
            contact = next(each for each in repairers if each.node_id == asked)
            self.host.send(contact, Fetch(group.flow.topic, term, first, True, group.access.warrant))

    def front_filled(self, topic: bytes, term: Term) -> None:
        """The first missing event of a term arrived. While buffers are over budget, request the next one at once."""
        group, gap = self.groups.find(topic), self.gaps.get((topic, term))
        if group is not None and gap is not None and self.buffers.is_pressed:
            self._fill(group, term, gap)

    def _fill(self, group: PeerGroup, term: Term, gap: Gap) -> None:
        if group.flow.live(term) is not None:
            self._fill_present(group, term, gap)
        elif term in group.flow.past:
            self._fill_past(group, term, gap)

    # ---- asking and answering

    def _ask(self, repairer: Contact, group: PeerGroup, term: Term, ranges: list[Range]) -> None:
        if ranges:
            self.host.trace(Mark("asked_for_range"))
            self.host.send(repairer, Fetch(group.flow.topic, term, ranges, warrant=group.access.warrant))

    def _asked(self, sender: Contact, message: Fetch) -> None:
        """A neighbour requests missing ranges."""
        if self._may_have(sender, message):
            self._answer(sender, message.topic, message.term, message.ranges, due=message.due)

    def _routed(self, message: FetchFromRoot) -> None:
        """This peer, as the root, is asked by a peer whose neighbours do not have what it misses."""
        if self._may_have(message.asker, message):
            self._answer(message.asker, message.topic, message.term, message.ranges, due=message.due)

    def _may_have(self, asker: Contact, message: Fetch | FetchFromRoot | FetchFromSource) -> bool:
        """Does the topic let the asker have events? If not, it gets none, and does not learn which they were."""
        group = self.groups.find(message.topic)
        if group is None or group.access.may_have(asker.node_id, message.warrant):
            return True
        self.host.trace(Mark("fetch_denied"))
        final = message.term.of_source and self._speaks_for_source(group, message.term)
        denied = Unavailable(message.topic, message.term, message.ranges, tuple(message.ranges), final=final)
        self.host.send(asker, denied)
        return False

    def _speaks_for_source(self, group: PeerGroup, term: Term) -> bool:
        return group.upper.is_source(term) or group.upper.has_ended(term)

    def _for_source(self, sender: Contact, message: FetchFromSource) -> None:
        """A question to the source of a term: pass it on, or answer."""
        group = self.groups.find(message.topic)
        if group is None:
            return  # it will be asked again
        if group.upper.is_source(message.term) or group.upper.decides(message.term):
            if not self._may_have(message.asker, message):
                return
            final = self._speaks_for_source(group, message.term)
            if message.age:
                self._tell_age(group, message, final=final)
            else:
                self._answer(message.asker, message.topic, message.term, message.ranges, due=message.due, final=final)
            return
        onwards = group.upper.upstream(
            message.term
        )  # none, if this peer has just lost its parent: it will be asked again
        if onwards is not None and onwards.node_id != sender.node_id:
            self.host.send(onwards, message)

    def _tell_age(self, group: PeerGroup, message: FetchFromSource, *, final: bool) -> None:
        """Say for how long events have existed, but not who has them."""
        asked = RangeSet(message.ranges)
        milestones = group.reach.milestones(message.term, (asked.start, asked.end))
        self.host.send(message.asker, Unavailable(message.topic, message.term, [], (), (), final, milestones))

    def _refused(self, sender: Contact, message: Unavailable) -> None:
        """A repairer does not have what was requested: ask the next one at once."""
        group, gap = self.groups.find(message.topic), self.gaps.get((message.topic, message.term))
        if group is None:
            return
        is_source = message.term.of_source and message.term.is_of(sender.node_id)
        above = group.upper.upstream(group.flow.term)
        root = group.upper.root or (above.node_id if above is not None else b"")
        speaks = message.final and (is_source or sender.node_id == root)
        if speaks and not message.ranges and message.term in group.flow.undated():  # `_tell_age`
            self.groups.dated(group, message.term, message.milestones, None)
        if gap is None:
            return
        if news := learn_runs(group.flow, message.term, message.runs):
            self._pass_on_runs(group, message.term, news, sender)
        asked = is_source or sender.node_id in gap.repairers or sender.node_id == root
        if message.milestones and asked:
            self.groups.dated(group, message.term, message.milestones, sender.node_id)
        gap.refused(sender.node_id, message.ranges, message.released)
        if speaks:
            gap.refused(SOURCE, message.ranges, message.released)
        if group.upper.root == sender.node_id:
            gap.refused(ROOT, message.ranges, message.released)
        if asked:  # otherwise that is no news, and another question gets the same answer at once
            self._fill(group, message.term, gap)

    def _answer(
        self, to: Contact, topic: bytes, term: Term, ranges: list[Range], *, due: bool = False, final: bool = False
    ) -> None:
        group = self.groups.find(topic)
        if group is None:
            self.host.send(to, Unavailable(topic, term, ranges))
            return
        answer = verdict(group.flow, term, ranges)
        first = answer.held[:1] if due else []
        for bundle in first:
            self._send_without_credit(to, group, bundle)
        self._send(to, group, term, answer.held[len(first) :])
        released, missing = answer.released, answer.missing
        if again := admitted_again(group.flow, term, released).ranges() if released and not term.of_source else []:
            released = difference(released, RangeSet(again))  # not lost to an asker that knows of no later term yet
        if within_reach := self._kept_beyond(group, term, released, to):
            released, missing = difference(released, RangeSet(within_reach)), [*missing, *within_reach]
        if absent := RangeSet([*released, *missing, *again]).ranges():
            runs = tuple(runs_at(group.flow, term, absent))
            milestones = group.reach.milestones(term, (absent[0][0], absent[-1][1]))
            self.host.send(to, Unavailable(topic, term, absent, tuple(released), runs, final, milestones))
        if missing and self.groups.asked_for(group, term, missing, to.node_id):
            self.look_soon(topic)
            if term in group.flow.past:
                self.askers.setdefault((topic, term), {}).setdefault(to, RangeSet()).update(missing)

    def _kept_beyond(self, group: PeerGroup, term: Term, released: list[Range], asker: Contact) -> list[Range]:
        """What this peer discarded of an ended term and another member holds: it gets it again, to pass it on."""
        if not released or term not in group.flow.past or group.flow.waits_for(term):
            return []
        reports = (member.held for member in group.repairers.holders() if member.contact != asker)
        kept = RangeSet(r for held in reports for held_term, _, ranges, *_ in held if held_term == term for r in ranges)
        return intersection(released, kept)

    def restored(self, bundle: Bundle, sender: bytes) -> None:
        """A repair of an ended term came: pass it on to peers that asked for it here, unless they report keeping it.

        If each waited until it asks again, that would take longer than a lease over a few hops.
        """
        topic, term, first, last = bundle.topic, bundle.envelope.term, bundle.envelope.first, bundle.last
        group, askers = self.groups.find(topic), self.askers.get((topic, term), {})
        if group is None or not askers:
            return
        kept = {
            member.contact: RangeSet(r for each, _, ranges, *_ in member.held if each == term for r in ranges)
            for member in group.repairers.holders()
        }
        for contact, wanted in askers.items():
            has = contact.node_id == sender or (contact in kept and kept[contact].covers(first, last))
            if wanted.within(first, last) and not has and group.access.may_have(contact.node_id, None):
                self._send(contact, group, term, holding(group.flow, term, [(first, last)]))
            wanted.discard(first, last)

    def _pass_on_runs(self, group: PeerGroup, term: Term, runs: list[Run], teller: Contact) -> None:
        """A neighbour said which events were at lost positions: tell the peers that asked for them here."""
        topic = group.flow.topic
        for contact, wanted in self.askers.get((topic, term), {}).items():
            told = within(runs, wanted) if contact != teller and group.access.may_have(contact.node_id, None) else []
            if told:
                ranges = RangeSet((run.at, run.at + run.events) for run in told).ranges()
                self.host.send(contact, Unavailable(topic, term, ranges, runs=tuple(told)))

    def _carry(self, to: Contact, group: PeerGroup, bundle: Bundle) -> None:
        group.repairers.repaired(to.node_id, bundle)
        self.host.carry(to, bundle)

    def _send_without_credit(self, to: Contact, group: PeerGroup, bundle: Bundle) -> None:
        """Send a bundle even without credit, but only one at a time, until some credit has been returned."""
        room = self.host.room(to)
        if room > 0:
            self._carry(to, group, bundle)
        elif room > self.sent_without_credit.get(to.node_id, -sys.maxsize):
            self._carry(to, group, bundle)
            self.sent_without_credit = self.sent_without_credit or {}
            self.sent_without_credit[to.node_id] = self.host.room(to)

    def _send(self, to: Contact, group: PeerGroup, term: Term, bundles: list[Bundle]) -> None:
        """Send what was requested while there is credit, and the rest when there is credit again."""
        for number, bundle in enumerate(bundles):
            if self.buffers.room_for_repairs(to, group.flow.topic) <= 0:
                topic = group.flow.topic
                rest = [(each.envelope.first, each.last) for each in bundles[number:]]
                asked = self.unsent.setdefault(to.node_id, {})
                asked[topic, term] = RangeSet([*asked.get((topic, term), ()), *rest]).ranges()
                return
            self._carry(to, group, bundle)

    def room(self, contact: Contact) -> None:
        """There is credit for a peer again: send what it requested before new events."""
        self.sent_without_credit.pop(contact.node_id, None)
        for (topic, term), ranges in self.unsent.pop(contact.node_id, {}).items():
            self._answer(contact, topic, term, ranges)  # some of it may have been discarded by now

    def link_lost(self, contact: Contact) -> None:
        """The link to a peer is gone: it will request again what it asked for over that link."""
        self.unsent.pop(contact.node_id, None)
        self.sent_without_credit.pop(contact.node_id, None)
        for askers in self.askers.values():
            askers.pop(contact, None)
        self.agents.link_lost(contact.node_id)


def _inside(*found: Findings) -> list[Contact]:
    """The members to ask, in order: in each domain, those that hold something first."""
    named = (contact for each in found for contact in (*(holder.contact for holder in each.holders), *each.neighbours))
    return [*dict.fromkeys(named)]
