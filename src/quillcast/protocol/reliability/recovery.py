"""Repair is by ranges, not by parenthood (DELIVERY.md): who misses a range asks any neighbour that has it.

Claims on tree links tell what neighbours have. In the present term a gap that stands is asked of the parent, then of
siblings and children, then of the root. Of past terms exactly what a neighbour claims to keep is asked of it, up and
down alike, so the last copy is found wherever it is and passed on to all.
"""

from collections.abc import Iterator
from typing import Any

from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.core.ranges import Range, RangeSet
from quillcast.core.trace import Mark
from quillcast.protocol.reliability.messages import Ask, Unavailable
from quillcast.protocol.topics.claims import Held
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.scribe import Scribe
from quillcast.protocol.topics.tree import Tree

RANGES_MAX = 64  # ranges in one Ask; the rest follows when these are filled
WAIT_S_MAX = 16.0  # longest wait before the same is asked for again; a guess


class Look(Timer, frozen=True):
    """Look over the gaps that stand."""


class Gap:
    """What lacks of one term of one topic, who had none of it, and what was asked for.

    What was asked for is on its way as long as less and less lacks: it is asked for again only when that has stood
    still for `wait_s`, which doubles each time. Else a slow link would fill up with answers to the same question.
    """

    __slots__ = ("asked", "lacking", "moved_at", "refused", "since", "stood", "wait_s")

    def __init__(self, now: float, wait_s: float) -> None:
        self.since = self.moved_at = now
        self.stood: RangeSet = RangeSet()
        self.refused: dict[bytes, RangeSet] = {}
        self.asked: dict[bytes, RangeSet] = {}
        self.lacking = 0
        self.wait_s = wait_s

    def look(self, lacking: int, now: float) -> None:
        """So many events lack now."""
        if lacking < self.lacking:
            self.moved_at = now
        elif self.asked and now - self.moved_at >= self.wait_s:
            self.asked.clear()
            self.moved_at, self.wait_s = now, min(2 * self.wait_s, WAIT_S_MAX)
        self.lacking = lacking

    def unasked(self, source: bytes, ranges: list[Range]) -> list[Range]:
        """What of the ranges is to be asked of a source now; from then on it counts as asked for."""
        asked = self.asked.setdefault(source, RangeSet())
        fresh = [piece for first, last in ranges for piece in asked.missing(first, last)][:RANGES_MAX]
        asked.update(fresh)
        return fresh


class Recovery:
    """One peer's repairs."""

    def __init__(self, host: Host, config: TopicConfig, scribe: Scribe) -> None:
        self.host, self.config, self.scribe = host, config, scribe
        self.gaps: dict[tuple[bytes, Term], Gap] = {}
        self.suspects: dict[bytes, None] = {}  # topics in which something may lack; no other is looked over
        self.set = False

    def look_soon(self, topic: bytes) -> None:
        """Something may lack in the topic."""
        self.suspects[topic] = None
        if not self.set:
            self.set = True
            self.host.set_timer(Look(), self.config.gap_s)

    def timer(self, timer: Look) -> None:
        """Look over the topics in which something may lack, and come again while anything does."""
        self.set = False
        suspects, self.suspects = self.suspects, {}
        standing: dict[tuple[bytes, Term], Gap] = {}
        for topic in suspects:
            tree = self.scribe.trees.get(topic)
            if tree is not None and tree.begun and tree.descriptor.settings.reliable:
                standing.update(self._look_over(tree))
        self.gaps = standing
        for topic, _ in standing:
            self.look_soon(topic)

    def _look_over(self, tree: Tree) -> Iterator[tuple[tuple[bytes, Term], Gap]]:
        self._learn_past_terms(tree)
        term = tree.term
        lacking = tree.lacking(tree.known_end)
        if lacking:
            gap = self._gap(tree, term)
            self._fill_present(tree, gap, lacking)
            yield (tree.topic, term), gap
        for past in sorted(tree.past):
            gap = self._gap(tree, past)
            if self._fill_past(tree, past, gap):
                yield (tree.topic, past), gap

    def _gap(self, tree: Tree, term: Term) -> Gap:
        return self.gaps.get((tree.topic, term)) or Gap(self.host.now(), 2 * self.config.gap_s)

    # ---- the present term

    def _fill_present(self, tree: Tree, gap: Gap, lacking: list[Range]) -> None:
        """Ask for what lacked at the last look already; the rest may be on its way."""
        now = self.host.now()
        stood = [r for first, last in lacking for r in gap.stood.within(first, last)]
        gap.stood = RangeSet(lacking)
        gap.look(sum(last - first for first, last in lacking), now)
        if not stood:
            gap.since = now
            return
        sources = self._sources(tree)
        source = next((s for s in sources if not self._refused(gap, s, stood[:1])), None)
        if source is not None:
            self._ask(source, tree.topic, tree.term, gap.unasked(source.node_id, stood))
        elif now - gap.since > self._patience_s(tree, stood[0]):
            self._give_up(tree, tree.term, stood[:1], gap)
        else:
            gap.refused.clear()  # ask round once more before giving up

    def _patience_s(self, tree: Tree, gap: Range) -> float:
        """What is stable is let go everywhere; the rest is still kept at the root, and the way there may be broken."""
        return self.config.give_up_s if gap[1] <= tree.stable else self.config.lease_s

    def _sources(self, tree: Tree) -> list[Contact]:
        """Parent, children that cover more, siblings or the grandparent: whom to ask, in this order."""
        frontier = tree.frontier
        sources = [tree.parent] if tree.parent is not None else []
        ahead = (c for c in tree.children.values() if c.cover_term == tree.term and c.cover > frontier)
        sources += [child.contact for child in ahead]
        known = {contact.node_id for contact in sources} | {self.host.me}
        return sources + [contact for contact in tree.fallbacks if contact.node_id not in known]

    def _refused(self, gap: Gap, source: Contact, ranges: list[Range]) -> bool:
        refused = gap.refused.get(source.node_id)
        return refused is not None and all(refused.covers(first, last) for first, last in ranges)

    def _give_up(self, tree: Tree, term: Term, ranges: list[Range], gap: Gap) -> None:
        """Nobody has it: go on, and tell every subscriber here what it lost."""
        self.host.trace(Mark("gap_given_up"))
        tree.give_up(term, ranges)
        for edge in tree.edges.values():
            edge.skip(term, ranges, "unavailable")
        gap.since = self.host.now()
        self.scribe.reports.touch(tree)

    # ---- past terms

    def _learn_past_terms(self, tree: Tree) -> None:
        """A reign this peer slept through: who was subscribed before it is owed its events."""
        for _, held in self._claims(tree):
            for term, end, _ in held:
                self.scribe.reigns.recall(tree, term, end)

    def _claims(self, tree: Tree) -> Iterator[tuple[Contact, Held]]:
        if tree.parent is not None:
            yield tree.parent, tree.parent_held
        for child in tree.children.values():
            yield child.contact, child.held

    def _fill_past(self, tree: Tree, term: Term, gap: Gap) -> bool:
        """Ask each neighbour for what it alone was found to keep; True while anything stands."""
        past = tree.past[term]
        wanted = RangeSet()
        gap.look(past.end - past.seen.count, self.host.now())
        for contact, held in self._claims(tree):
            kept = next((ranges for held_term, _, ranges in held if held_term == term), ())
            ask = [piece for first, last in kept for piece in past.seen.missing(first, last)]
            ask = [piece for first, last in ask for piece in wanted.missing(first, last)]
            if ask and not self._refused(gap, contact, ask):
                wanted.update(ask)
                self.host.trace(Mark("asked_past_term"))
                self._ask(contact, tree.topic, term, gap.unasked(contact.node_id, ask))
        lacking = RangeSet(hole for edge in tree.edges.values() for hole in edge.lacking(term, past))
        if wanted:
            gap.since = self.host.now()
        elif lacking and self.host.now() - gap.since > self.config.lease_s:
            self._give_up(tree, term, lacking.ranges(), gap)
        return bool(wanted or lacking)

    # ---- asking and answering

    def _ask(self, source: Contact, topic: bytes, term: Term, ranges: list[Range]) -> None:
        if ranges:
            self.host.trace(Mark("asked_for_range"))
            self.host.send(source, Ask(topic, term, ranges))

    def receive(self, sender: Contact, message: Any) -> None:
        """A neighbour asks, or had nothing."""
        match message:
            case Ask(topic, term, ranges):
                self._answer(sender, topic, term, ranges)
            case Unavailable(topic, term, ranges):
                gap = self.gaps.get((topic, term))
                if gap is not None:
                    gap.refused.setdefault(sender.node_id, RangeSet()).update(ranges)

    def _answer(self, to: Contact, topic: bytes, term: Term, ranges: list[Range]) -> None:
        tree = self.scribe.trees.get(topic)
        found = tree.holding(term, ranges) if tree is not None else []
        for bundle in found:
            if self.host.room(to) <= 0:
                break  # it asks again for the rest
            self.host.carry(to, bundle)
        held = RangeSet((bundle.envelope.first, bundle.last) for bundle in found)
        lacking = [piece for first, last in ranges for piece in held.missing(first, last)]
        if lacking:
            self.host.send(to, Unavailable(topic, term, lacking))
