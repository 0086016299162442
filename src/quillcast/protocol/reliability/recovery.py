"""Repair by ranges: a peer that misses a range asks any neighbour that has it (docs/delivery.md).

Link reports tell what neighbours have. Missing events of the current term are requested from the parent, then from
children, siblings and the grandparent, and then from the root, whose answer decides. A range is given up when the
parent reports that it will not have it again, which it knows from its own parent and so on up to the root, and when
nobody else has it either.

Past terms have no root. A peer requests what its neighbours report to keep, both up and down the tree, so that the last
copy is found wherever it is and passed on to all. What a subscriber here is owed and nobody keeps is given up after the
time of a lease.

A refusal names the runs of events that were at the positions, if they are known (`forwarding.ledger`), so that a loss
is reported exactly.
"""

import sys
from collections.abc import Iterable, Iterator

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet, difference, intersection
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.gaps import Gap
from quillcast.protocol.reliability.messages import Fetch, FetchFromRoot, Unavailable
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.scribe import Scribe
from quillcast.protocol.topics.state.link_reports import Held
from quillcast.protocol.topics.state.tree import Tree

ROOT = b"root"
"""Stands for the root among the sources. The overlay finds it."""


class Look(Timer, frozen=True):
    """Check the gaps."""


class Recovery:
    """The repairs of one peer."""

    def __init__(self, host: Host, config: TopicConfig, scribe: Scribe, dispatch: Dispatch) -> None:
        self.host, self.config, self.scribe = host, config, scribe
        self.gaps: dict[tuple[bytes, Term], Gap] = {}
        self.suspects: dict[bytes, None] = {}  # topics that may miss something; only these are checked
        self.set = False
        self.unsent: dict[bytes, dict[tuple[bytes, Term], list[Range]]] = {}  # by peer: ranges that wait for credit
        self.sent_without_credit: dict[bytes, int] = {}  # by peer: the room left after the last time
        dispatch.on_message(Fetch, self._asked)
        dispatch.on_message(Unavailable, self._refused)
        dispatch.on_routed(FetchFromRoot, self._routed)
        dispatch.on_timer(Look, self._look)

    def look_soon(self, topic: bytes) -> None:
        """Check the topic soon, because it may miss something."""
        self.suspects[topic] = None
        if not self.set:
            self.set = True
            self.host.set_timer(Look(), self.config.gap_s)

    def _look(self, timer: Look) -> None:
        """Check the topics that may miss something, and check again while any does."""
        self.set = False
        suspects, self.suspects = self.suspects, {}
        confirmed: dict[tuple[bytes, Term], Gap] = {}
        for topic in suspects:
            tree = self.scribe.trees.get(topic)
            if tree is not None and tree.begun and tree.descriptor.settings.reliable:
                confirmed.update(self._look_over(tree))
        self.gaps = confirmed
        for topic, _ in confirmed:
            self.look_soon(topic)

    def _look_over(self, tree: Tree) -> Iterator[tuple[tuple[bytes, Term], Gap]]:
        self._learn_past_terms(tree)
        if missing := tree.missing(tree.known_end):
            gap = self._gap(tree, tree.term)
            gap.look(missing, self.host.now())
            self._fill_present(tree, gap)
            yield (tree.topic, tree.term), gap
        for term in sorted(tree.past):
            if wanted := self._wanted(tree, term):
                gap = self._gap(tree, term)
                gap.look(wanted.ranges(), self.host.now())
                self._fill_past(tree, term, gap)
                yield (tree.topic, term), gap

    def _gap(self, tree: Tree, term: Term) -> Gap:
        return self.gaps.get((tree.topic, term)) or Gap(self.host.now(), 2 * self.config.gap_s)

    # ---- the current term

    def _fill_present(self, tree: Tree, gap: Gap) -> None:
        """Request what was already missing at the last check, from one source after another, or give it up."""
        missing = intersection(gap.confirmed, tree.missing(tree.known_end))
        if not missing or tree.parent is None:
            return
        sources = self._sources(tree)
        gap.ask_among([*(contact.node_id for contact in sources), *([ROOT] if len(tree.path) > 1 else [])])
        for contact in sources:
            self._ask(contact, tree.topic, tree.term, gap.to_ask(contact.node_id, missing, self.host.now()))
        if ROOT in gap.sources:
            self._ask_root(tree, gap.to_ask(ROOT, missing, self.host.now()))
        final = intersection(missing, gap.sources[tree.parent.node_id].released)
        gone = gap.nobody_has(final, self.host.now(), 0.0, self.config.give_up_s)
        self._give_up(tree, tree.term, gap, gone)
        self._press(tree, tree.term, gap, sources)

    def _sources(self, tree: Tree) -> list[Contact]:
        """The sources in the order to ask: the parent, children that are ahead, siblings or the grandparent."""
        frontier = tree.frontier
        sources = [tree.parent] if tree.parent is not None else []
        ahead = (c for c in tree.children.values() if c.acknowledged_term == tree.term and c.frontier > frontier)
        return self._with_fallbacks(tree, [*sources, *(child.contact for child in ahead)])

    def _with_fallbacks(self, tree: Tree, sources: list[Contact]) -> list[Contact]:
        known = {contact.node_id for contact in sources} | {self.host.me}
        suspected = self.scribe.neighbours.suspected
        others = (c for c in tree.fallbacks if c.node_id not in known and not suspected(c.node_id))
        return [*sources, *others]

    def _ask_root(self, tree: Tree, ranges: list[Range]) -> None:
        if ranges:
            self.host.trace(Mark("asked_root"))
            message = FetchFromRoot(tree.topic, tree.term, ranges, self.host.contact)
            self.scribe.overlay.route(message, tree.topic)

    def _give_up(self, tree: Tree, term: Term, gap: Gap, ranges: list[Range]) -> None:
        """Nobody has these ranges: continue without them, and report the loss to every local subscriber."""
        if not ranges:
            return
        self.host.trace(Mark("gap_given_up"))
        runs, later = tree.runs(term, ranges), tree.later_runs(term)
        gap.give_up(ranges)
        tree.give_up(term, ranges)
        for edge in tree.edges.values():
            edge.skip(term, ranges, "unavailable", runs, later)
        self.scribe.reports.touch(tree)

    # ---- past terms

    def _learn_past_terms(self, tree: Tree) -> None:
        """Record terms that this peer missed: subscribers from before them are owed their events."""
        for _, held in self._reported(tree):
            for term, end, _, stable in held:
                self.scribe.terms.recall(tree, term, end)
                if tree.settle(term, stable):
                    self.scribe.reports.touch(tree)

    def _reported(self, tree: Tree) -> Iterator[tuple[Contact, Held]]:
        if tree.parent is not None:
            yield tree.parent, tree.parent_held
        for child in tree.children.values():
            yield child.contact, child.held

    def _reported_ranges(self, tree: Tree, term: Term) -> dict[Contact, list[Range]]:
        """What each neighbour reports to keep of a past term and this peer misses."""
        seen = tree.past[term].seen
        return {
            contact: difference(ranges, seen)
            for contact, held in self._reported(tree)
            for held_term, _, ranges, _ in held
            if held_term == term
        }

    def _owed(self, tree: Tree, term: Term) -> RangeSet:
        """What local subscribers are owed of a past term, or neighbours requested, and never arrived."""
        past = tree.past[term]
        owed = RangeSet(past.wanted())
        for edge in tree.edges.values():
            owed.update(edge.lacking(term, past))
        return owed

    def _wanted(self, tree: Tree, term: Term) -> RangeSet:
        """What is owed to local subscribers, or neighbours have."""
        wanted = self._owed(tree, term)
        for ranges in self._reported_ranges(tree, term).values():
            wanted.update(ranges)
        return wanted

    def _fill_past(self, tree: Tree, term: Term, gap: Gap) -> None:
        """Request from each neighbour what it reports to keep, and from all of them what is owed here."""
        now, reported, owed = self.host.now(), self._reported_ranges(tree, term), self._owed(tree, term)
        contacts = self._with_fallbacks(tree, tree.neighbours())
        gap.ask_among([contact.node_id for contact in contacts])
        for contact, ranges in reported.items():
            gap.offered(contact.node_id, ranges)
            if asked := gap.to_ask(contact.node_id, ranges, now):
                self.host.trace(Mark("asked_past_term"))
                self._ask(contact, tree.topic, term, asked)
        for contact in contacts:
            self._ask(contact, tree.topic, term, gap.to_ask(contact.node_id, owed, now))
        gone = gap.nobody_has(owed, now, self.config.lease_s, self.config.give_up_s)
        self._give_up(tree, term, gap, difference(gone, self._may_be_readmitted(tree, term, gone)))
        self._press(tree, term, gap, contacts)

    def _may_be_readmitted(self, tree: Tree, term: Term, gone: list[Range]) -> RangeSet:
        """The positions, of those that nobody has, whose events may be admitted again.

        If the events at a position are unknown, they may be among the missing events of the current term, or their
        publishers may be held back.
        """
        awaited, present = tree.may_be_readmitted(term, gone), self.gaps.get((tree.topic, tree.term))
        incomplete = present is not None and bool(intersection(present.confirmed, tree.missing(tree.known_end)))
        if incomplete or tree.may_be_late(self.host.now(), self.config.lease_s):
            known = RangeSet((run.at, run.at + run.events) for run in tree.runs(term, gone))
            awaited.update(difference(gone, known))
        return awaited

    # ---- full buffers

    def _press(self, tree: Tree, term: Term, gap: Gap, sources: Iterable[Contact]) -> None:
        """While buffers are over budget, sources have no credit: ask one to send the first missing event without it."""
        flow_control, front = self.scribe.flow_control, tree.front(term)
        if front is None or not (flow_control.budget.over and flow_control.takes_repairs):
            return
        for contact in sources:
            if gap.sources[contact.node_id].in_transit([(front, front + 1)]):
                self.host.trace(Mark("pressed"))
                self.host.send(contact, Fetch(tree.topic, term, [(front, front + 1)], due=True))
                return

    def front_filled(self, tree: Tree, term: Term) -> None:
        """The first missing event of a term arrived. While buffers are over budget, request the next one at once."""
        gap = self.gaps.get((tree.topic, term))
        if gap is None or not self.scribe.flow_control.budget.over:
            return
        if term == tree.term:
            self._fill_present(tree, gap)
        elif term in tree.past:
            self._fill_past(tree, term, gap)

    # ---- asking and answering

    def _ask(self, source: Contact, topic: bytes, term: Term, ranges: list[Range]) -> None:
        if ranges:
            self.host.trace(Mark("asked_for_range"))
            self.host.send(source, Fetch(topic, term, ranges))

    def _asked(self, sender: Contact, message: Fetch) -> None:
        """A neighbour requests missing ranges."""
        self._answer(sender, message.topic, message.term, message.ranges, due=message.due)

    def _routed(self, message: FetchFromRoot) -> None:
        """This peer, as the root, is asked by a peer whose neighbours do not have what it misses."""
        self._answer(message.asker, message.topic, message.term, message.ranges)

    def _refused(self, sender: Contact, message: Unavailable) -> None:
        """A source does not have what it was asked for: ask the next one at once."""
        tree, gap = self.scribe.trees.get(message.topic), self.gaps.get((message.topic, message.term))
        if tree is None or gap is None:
            return
        tree.learn_runs(message.term, message.runs)
        gap.refused(sender.node_id, message.ranges, message.released)
        if tree.path[:1] == (sender.node_id,):
            gap.refused(ROOT, message.ranges, message.released)
        if message.term == tree.term:
            self._fill_present(tree, gap)
        elif message.term in tree.past:
            self._fill_past(tree, message.term, gap)

    def _answer(self, to: Contact, topic: bytes, term: Term, ranges: list[Range], *, due: bool = False) -> None:
        tree = self.scribe.trees.get(topic)
        if tree is None:
            self.host.send(to, Unavailable(topic, term, ranges))
            return
        found, released, missing = tree.verdict(term, ranges)
        if due and found:
            self._send_without_credit(to, found.pop(0))
        self._send(to, topic, term, found)
        if within_reach := self._kept_beyond(tree, term, released, to):
            released, missing = difference(released, RangeSet(within_reach)), [*missing, *within_reach]
        if released or missing:
            absent = RangeSet([*released, *missing]).ranges()
            self.host.send(to, Unavailable(topic, term, absent, tuple(released), tuple(tree.runs(term, absent))))
        if missing and tree.note_wanted(term, missing, to.node_id):
            self.look_soon(topic)

    def _kept_beyond(self, tree: Tree, term: Term, released: list[Range], asker: Contact) -> list[Range]:
        """What this peer discarded of a past term, and another neighbour keeps: it gets it again, to pass it on."""
        if not released or term not in tree.past or tree.waits_for(term):
            return []
        reports = (held for contact, held in self._reported(tree) if contact != asker)
        kept = RangeSet(r for held in reports for held_term, _, ranges, _ in held if held_term == term for r in ranges)
        return intersection(released, kept)

    def _send_without_credit(self, to: Contact, bundle: Bundle) -> None:
        """Send a bundle even without credit, but only one at a time, until some credit has been returned."""
        if self.host.room(to) > self.sent_without_credit.get(to.node_id, -sys.maxsize):
            self.host.carry(to, bundle)
            self.sent_without_credit[to.node_id] = self.host.room(to)

    def _send(self, to: Contact, topic: bytes, term: Term, bundles: list[Bundle]) -> None:
        """Send what was requested while there is credit, and the rest when there is credit again."""
        for number, bundle in enumerate(bundles):
            if self.host.room(to) <= 0:
                rest = [(each.envelope.first, each.last) for each in bundles[number:]]
                asked = self.unsent.setdefault(to.node_id, {})
                asked[topic, term] = RangeSet([*asked.get((topic, term), ()), *rest]).ranges()
                return
            self.host.carry(to, bundle)

    def room(self, contact: Contact) -> None:
        """There is credit for a peer again: what it requested goes before new events."""
        self.sent_without_credit.pop(contact.node_id, None)
        for (topic, term), ranges in self.unsent.pop(contact.node_id, {}).items():
            self._answer(contact, topic, term, ranges)  # some of it may have been discarded by now

    def link_lost(self, contact: Contact) -> None:
        """The link to a peer is gone: it will request again what it asked for over that link."""
        self.unsent.pop(contact.node_id, None)
        self.sent_without_credit.pop(contact.node_id, None)
