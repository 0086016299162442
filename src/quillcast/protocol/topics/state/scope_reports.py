"""What a scope's entry point reports upwards: one report for each time that events came, whatever members do.

A scope is one member of a topic's tree, and what its members do is nobody's business outside. But what they have is
reported upwards, and a member that repairs, moves or is waited for would divide that into other portions. So at the
entry point **periods** decide, which depend on nothing but the events that come. A period begins when events come,
`report_s` or `report_bytes` after the last one began at the earliest. It has one report:

- as soon as everybody below has what had come when the period began, or
- when the next period begins, if somebody still lacks something. What that one lacks is for the reports after it.

Whatever else a report says is told at once, as by any peer: terms, moves, leases, the ends of streams, and how far a
stream goes whose source is below. So is progress where buffers fill up, because peers that cut leases have to know who
keeps up. A source that is the parent waits for word that a second peer has its events, and gets that in a message of
its own (`Confirmed`).
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.state.link_reports import (
    ChildReport,
    StreamUp,
    decode,
    decode_stream,
    stream_key,
)
from quillcast.protocol.topics.state.placement import Placement
from quillcast.protocol.topics.state.retention import acknowledged_position
from quillcast.protocol.topics.state.stream_ways import comes_from
from quillcast.protocol.topics.state.tree import Tree

CROWDED = 4
"""Where a fourth of the budget is used up, progress is told at once; a guess: leases are cut when all of it is."""


LESS_S = 1.0
"""How long those who came to the scope have to say that they have what is reported for all; a guess: some reports."""


_TICK_S = 0.001  # sums of floats are not more precise: a timer may seem to come this much early


class PeriodOver(Timer, frozen=True):
    """The next period begins, if events came soon after the last one did. Or its report is not to be waited for."""

    topic: bytes


class Period:
    """The events of one topic that are reported on next, and those after them.

    `ends`: how far they go, by term; `coming`: the same for those that came since.
    """

    __slots__ = ("began_at", "coming", "coming_bytes", "ends", "less_since", "owed", "untold")

    def __init__(self) -> None:
        self.began_at = float("-inf")
        self.ends: dict[Term, int] = {}
        self.owed = False  # is the report still to be made?
        self.untold: dict[Term, None] = {}  # streams of which it will tell
        self.less_since: float | None = None  # somebody below may not have what was reported
        self.coming: dict[Term, int] = {}
        self.coming_bytes = 0

    def note(self, bundle: Bundle) -> bool:
        """Events came. Are they the first of the next period?"""
        term, first = bundle.envelope.term, not self.coming
        self.coming[term] = max(self.coming.get(term, 0), bundle.last)
        self.coming_bytes += bundle.size
        return first

    def begin(self, now: float) -> None:
        """What came since the last one began is reported on next, and what somebody still lacks of that one."""
        self.ends = {**self.ends, **self.coming} if self.owed else self.coming
        self.began_at, self.owed = now, True
        self.coming, self.coming_bytes = {}, 0

    def is_complete(self, tree: Tree, now: float) -> bool:
        """Has everybody below what had come when it began?"""
        live = dict.fromkeys(tree.flow.live_terms())
        return all(acknowledged_position(tree, now, term) >= end for term, end in self.ends.items() if term in live)

    def take_untold(self) -> list[Term]:
        """The report is made now: the streams of which it tells."""
        self.owed, self.less_since = False, None
        untold, self.untold = self.untold, {}
        return [*untold]


class ScopeReports:
    """The periods of the topics in which this peer is the entry point of its scope."""

    __slots__ = ("budget", "config", "host", "periods", "placement", "report", "streams", "trees")

    def __init__(
        self, host: Host, config: TopicConfig, trees: Mapping[bytes, Tree], streams: Streams, placement: Placement,
        budget: Budget, report: Callable[[Tree, Contact, Iterable[Term]], None], dispatch: Dispatch,
    ) -> None:  # fmt: skip
        """`report` tells a parent of the topic and of some streams of sources."""
        self.host, self.config, self.trees, self.streams = host, config, trees, streams
        self.placement, self.budget, self.report = placement, budget, report
        self.periods: dict[bytes, Period] = {}
        dispatch.on_timer(PeriodOver, self._over)

    def note(self, tree: Tree, bundle: Bundle) -> None:
        """Events came: a period begins with them, or they are for the next one."""
        if tree.parent is None or not tree.flow.keeps:
            return
        period = self._period(tree.topic)
        first = period.note(bundle)
        due_s = period.began_at + self.config.report_s - self.host.now()
        if due_s <= 0 or period.coming_bytes >= self.config.report_bytes:
            self._begin(tree, period)
        elif first:
            self.host.set_timer(PeriodOver(tree.topic), due_s)

    def _period(self, topic: bytes) -> Period:
        if topic not in self.periods:
            entered = self.placement.entered
            self.periods = {each: period for each, period in self.periods.items() if each in entered}
            self.periods[topic] = Period()
        return self.periods[topic]

    def _over(self, timer: PeriodOver) -> None:
        tree, period = self.trees.get(timer.topic), self.periods.get(timer.topic)
        if tree is None or period is None:
            return
        now = self.host.now() + _TICK_S
        if period.coming and now >= period.began_at + self.config.report_s:
            self._begin(tree, period)
        elif period.less_since is not None and now >= period.less_since + LESS_S:
            self._make(tree, period)

    def _begin(self, tree: Tree, period: Period) -> None:
        if period.owed:
            self._make(tree, period)
        period.begin(self.host.now())
        self.settle(tree)  # everybody may have it by now, and nothing else would ask for the report

    def _make(self, tree: Tree, period: Period) -> None:
        untold = period.take_untold()
        if tree.parent is not None:
            self.report(tree, tree.parent, untold)

    def settle(self, tree: Tree) -> bool:
        """Make the report if everybody below has what it is about; was it?"""
        period = self.periods.get(tree.topic)
        if period is None or not period.owed or not period.is_complete(tree, self.host.now()):
            return False
        self._make(tree, period)
        return True

    def puts_off(self, tree: Tree, parent: Contact, report: ChildReport) -> bool:
        """Is that for the report of a period?"""
        period, former = self._open(tree.topic), self._told(tree, parent)
        if period is None or former is None or not self.is_progress(tree, parent, report):
            return False
        return self._waits(tree, period, less=report.acknowledged < former.acknowledged)

    def is_progress(self, tree: Tree, parent: Contact, report: ChildReport) -> bool:
        """Does it say no more than the last one but how far the topic came?"""
        former = self._told(tree, parent)
        if former is None:
            return False
        progress = replace(former, acknowledged=report.acknowledged, frontier=report.frontier, reach=report.reach)
        return progress == report

    def _told(self, tree: Tree, parent: Contact) -> ChildReport | None:
        told = self.streams.telling(parent.node_id).get(tree.topic)
        former = decode(told) if told is not None else None
        return former if isinstance(former, ChildReport) else None

    def puts_off_stream(self, tree: Tree, parent: Contact, term: Term, report: StreamUp) -> bool:
        """The same for the stream of a source. The parent knows how far that goes which comes from there."""
        period, told = self._open(tree.topic), self.streams.telling(parent.node_id).get(stream_key(tree.topic, term))
        former = decode_stream(told) if told is not None else None
        if period is None or not isinstance(former, StreamUp):
            return False
        reach = report.reach if comes_from(tree, term, parent) else former.reach
        progress = replace(former, acknowledged=report.acknowledged, frontier=report.frontier, reach=reach)
        if progress != report or not self._waits(tree, period, less=report.acknowledged < former.acknowledged):
            return False
        period.untold[term] = None
        return True

    def untold(self, tree: Tree) -> Iterable[Term]:
        """The streams of which the report on a period is to tell."""
        period = self.periods.get(tree.topic)
        return () if period is None else (*period.untold,)

    def _open(self, topic: bytes) -> Period | None:
        """The period of which a report is to be made, if progress waits for that."""
        period = self.periods.get(topic)
        is_crowded = self.budget.used_bytes * CROWDED > self.budget.limit_bytes
        return period if period is not None and not is_crowded and (period.owed or period.coming) else None

    def _waits(self, tree: Tree, period: Period, *, less: bool) -> bool:
        """Does a report that differs so wait for that of the period?

        `less`: somebody came here of whom it is not known that it has what was reported. Those who moved here have it,
        and say so within a moment; others may never get it.
        """
        if not less:
            return True
        if period.less_since is None:
            period.less_since = self.host.now()
            self.host.set_timer(PeriodOver(tree.topic), LESS_S)
        return self.host.now() - period.less_since < LESS_S
