"""What a scope's entry point reports upwards: one report per period, whatever its members do.

A scope is one member of a topic's tree, and peers outside must not see what its members do. But reports upwards say
what the members have, and a member that repairs, moves or is late would change when and in which portions. So at the
entry point **periods** decide, which depend only on the events that arrive. A period begins when events arrive, at the
earliest `report_s` or `report_bytes` after the last one began. It has one report:

- as soon as all peers below have what had arrived when the period began, or
- when the next period begins, if a peer still lacks something. Later reports cover what that peer lacks.

Everything else in a report is sent at once, as by any peer: terms, moves, leases, the ends of streams, and how far a
stream goes whose source is below. Progress is too when buffers fill up, because peers that cut leases have to know who
keeps up. If the parent is a source, it waits until a second peer has its events, and is told so in a separate message
(`Confirmed`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from quillcast.core.bundle import Bundle
from quillcast.core.envelope import Term
from quillcast.core.host import Host, Timer
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.log import Budget
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.state.link_reports import (
    ChildReport,
    StreamUp,
    decode,
    decode_stream,
    stream_key,
)
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.stream_ways import comes_from

CROWDED = 4
"""Progress is reported at once when a fourth of the budget is used; a guess: leases are cut when all of it is."""


LESS_S = 1.0
"""The time for newcomers of the scope to say that they have what is reported for all; a guess: some reports."""


_TICK_S = 0.001  # sums of floats are imprecise: a timer may seem to be this much early


class PeriodOver(Timer, frozen=True):
    """Begin the next period, if events came soon after the last one began. Or stop waiting to make its report."""

    topic: bytes


class PeriodReport(NamedTuple):
    """Report on a period to the parent: on the topic, and on these streams of sources."""

    terms: tuple[Term, ...]


class Period:
    """The events of one topic that the next report covers, and those after them.

    `ends`: how far the former go, by term. `coming`: how far the latter go.
    """

    __slots__ = ("began_at", "coming", "coming_bytes", "ends", "less_since", "owed", "untold")

    def __init__(self) -> None:
        self.began_at = float("-inf")
        self.ends: dict[Term, int] = {}
        self.owed = False  # the report is still to be made
        self.untold: dict[Term, None] = {}  # streams that the report will cover
        self.less_since: float | None = None  # since when a peer below may lack what was reported
        self.coming: dict[Term, int] = {}
        self.coming_bytes = 0

    def note(self, bundle: Bundle) -> bool:
        """Note a bundle that arrived. Return whether it is the first of the next period."""
        term, first = bundle.envelope.term, not self.coming
        self.coming[term] = max(self.coming.get(term, 0), bundle.last)
        self.coming_bytes += bundle.size
        return first

    def begin(self, now: float) -> None:
        """Begin a period: the next report covers what came since the last one began, and what that left unreported."""
        self.ends = {**self.ends, **self.coming} if self.owed else self.coming
        self.began_at, self.owed = now, True
        self.coming, self.coming_bytes = {}, 0

    def is_complete(self, tree: Tree, now: float) -> bool:
        """Whether all peers below have what had arrived when it began."""
        live = dict.fromkeys(tree.flow.live_terms())
        return all(acknowledged_position(tree, now, term) >= end for term, end in self.ends.items() if term in live)

    def report(self) -> PeriodReport:
        """Return the report, which is made now."""
        self.owed, self.less_since = False, None
        untold, self.untold = self.untold, {}
        return PeriodReport((*untold,))


class ScopeReports:
    """The periods of the topics for which this peer is the entry point of its scope.

    It says which reports are to be made. Make each one before taking the next.
    """

    __slots__ = ("budget", "config", "host", "periods", "placement", "streams")

    def __init__(self, host: Host, config: TopicConfig, streams: Streams, placement: Placement, budget: Budget) -> None:
        self.host, self.config, self.streams = host, config, streams
        self.placement, self.budget = placement, budget
        self.periods: dict[bytes, Period] = {}

    def note(self, tree: Tree, bundle: Bundle) -> Iterator[PeriodReport]:
        """Note a bundle that arrived: it begins a period, or belongs to the next one."""
        if tree.parent is None or not tree.flow.keeps:
            return
        period = self._period(tree.topic)
        first = period.note(bundle)
        due_s = period.began_at + self.config.report_s - self.host.now()
        if due_s <= 0 or period.coming_bytes >= self.config.report_bytes:
            yield from self._begin(tree, period)
        elif first:
            self.host.set_timer(PeriodOver(tree.topic), due_s)

    def _period(self, topic: bytes) -> Period:
        if topic not in self.periods:
            entered = self.placement.entered
            self.periods = {each: period for each, period in self.periods.items() if each in entered}
            self.periods[topic] = Period()
        return self.periods[topic]

    def over(self, tree: Tree) -> Iterator[PeriodReport]:
        """Begin the next period if its time has come, or stop waiting (`PeriodOver`)."""
        period = self.periods.get(tree.topic)
        if period is None:
            return
        now = self.host.now() + _TICK_S
        if period.coming and now >= period.began_at + self.config.report_s:
            yield from self._begin(tree, period)
        elif period.less_since is not None and now >= period.less_since + LESS_S:
            yield period.report()

    def _begin(self, tree: Tree, period: Period) -> Iterator[PeriodReport]:
        if period.owed:
            yield period.report()
        period.begin(self.host.now())
        report = self.settle(tree)  # all peers may have it by now, and nothing else would trigger the report
        if report is not None:
            yield report

    def settle(self, tree: Tree) -> PeriodReport | None:
        """Return the report if all peers below have what it covers."""
        period = self.periods.get(tree.topic)
        if period is None or not period.owed or not period.is_complete(tree, self.host.now()):
            return None
        return period.report()

    def puts_off(self, tree: Tree, parent: Contact, report: ChildReport) -> bool:
        """Whether this report waits for that of a period."""
        period, former = self._open(tree.topic), self._told(tree, parent)
        if period is None or former is None or not self.is_progress(tree, parent, report):
            return False
        return self._waits(tree, period, less=report.acknowledged < former.acknowledged)

    def is_progress(self, tree: Tree, parent: Contact, report: ChildReport) -> bool:
        """Whether the report differs from the last one only in how far the topic came."""
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
        """Whether this report on a stream waits for that of a period.

        A change of `reach` waits only if the stream comes from the parent, which knows how far it goes.
        """
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
        """Return the streams that the report on a period is to cover."""
        period = self.periods.get(tree.topic)
        return () if period is None else (*period.untold,)

    def _open(self, topic: bytes) -> Period | None:
        """Return the period whose report progress waits for, if any."""
        period = self.periods.get(topic)
        is_crowded = self.budget.used_bytes * CROWDED > self.budget.limit_bytes
        return period if period is not None and not is_crowded and (period.owed or period.coming) else None

    def _waits(self, tree: Tree, period: Period, *, less: bool) -> bool:
        """Whether a report that differs only in progress waits for that of the period.

        `less`: a peer came here that may lack what was reported. A peer that moved here has it, and says so within a
        moment. Others may never get it.
        """
        if not less:
            return True
        if period.less_since is None:
            period.less_since = self.host.now()
            self.host.set_timer(PeriodOver(tree.topic), LESS_S)
        return self.host.now() - period.less_since < LESS_S
