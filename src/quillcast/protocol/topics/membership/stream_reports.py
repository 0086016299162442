"""How a peer handles reports of its parents and children on the streams of sources."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from quillcast.core.dispatch import Dispatch
from quillcast.core.envelope import Term
from quillcast.core.errors import Implausible
from quillcast.core.host import Host, Timer
from quillcast.core.interning import EMPTY
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import Mark
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.membership.reporting import cut_below
from quillcast.protocol.topics.memory.retention import catch_up, reached
from quillcast.protocol.topics.messages import Denied, StreamsEnded
from quillcast.protocol.topics.root_messages import Confirmed
from quillcast.protocol.topics.stability.progress import Progress
from quillcast.protocol.topics.state.effects import GapNoticed, LeaveIfIdle, StreamsBegin
from quillcast.protocol.topics.state.holders import Child, SourcesChild
from quillcast.protocol.topics.state.link_reports import (
    StreamDown,
    StreamReport,
    StreamUp,
    decode_stream,
    is_topic,
    stream_key,
    stream_of,
)
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.sources import Right, SourceState
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_rights import could_publish
from quillcast.protocol.topics.streams.source_streams import SourceStreams
from quillcast.protocol.topics.streams.stream_ways import is_alive, is_mine, may_end

AnyReport = TypeVar("AnyReport", StreamUp, StreamDown)


class TurnOver(Timer, frozen=True):
    """What arrived in this turn is passed on before anything is concluded from it."""


class ConcludeTurn(Timer, frozen=True):
    """Confirm to neighbouring sources what they sent in this turn, and check how far children have come."""


class StreamReporting:
    """Handles the reports of parents and children on streams, and draws the conclusions."""

    __slots__ = (
        "dispatch", "host", "progress", "schedule", "source_streams", "streams", "trees", "unconfirmed", "unjudged",
    )  # fmt: skip

    def __init__(
        self, host: Host, streams: Streams, trees: Mapping[bytes, Tree], schedule: Schedule,
        source_streams: SourceStreams, progress: Progress, dispatch: Dispatch,
    ) -> None:  # fmt: skip
        self.host, self.streams, self.trees, self.source_streams = host, streams, trees, source_streams
        self.schedule, self.progress, self.dispatch = schedule, progress, dispatch
        self.unconfirmed: dict[tuple[bytes, Term], bytes] = EMPTY  # streams that came directly from their sources
        self.unjudged: dict[tuple[bytes, bytes], None] = EMPTY  # topics, and children that reported on streams
        dispatch.on_alarm(TurnOver, self._conclude_soon)
        dispatch.on_alarm(ConcludeTurn, self.conclude_turn)
        dispatch.on_message(StreamsEnded, self._ended)
        dispatch.on_message(Confirmed, self._confirmed)

    def changed(self, sender: Contact, key: bytes, value: bytes | None) -> None:
        """Upcall of the link's stream: a neighbour's report on a stream."""
        topic, term = stream_of(key)
        tree = self.trees.get(topic)
        if tree is None or not term.of_source:
            return
        report = decode_stream(value) if value is not None else None
        child, by_source = tree.leases.children.get(sender.node_id), tree.by_source
        if isinstance(child, SourcesChild):
            self._child_says(tree, child, term, report if isinstance(report, StreamUp) else None)
        elif child is not None:
            if isinstance(report, StreamUp) and not by_source:
                self._first_stream(tree, child, term, report)
            return
        elif tree.parent is not None and tree.parent.node_id == sender.node_id and isinstance(report, StreamDown):
            self._parent_says(tree, tree.parent, term, report)
        elif isinstance(report, StreamUp):
            self.source_streams.dates.note_early(tree, term, max(report.frontier, report.reach), sender)
        if tree.by_source and not by_source:  # it is the first one known here, or had ended
            self.dispatch.order(StreamsBegin(tree.topic))

    def _first_stream(self, tree: Tree, child: Child, term: Term, report: StreamUp) -> None:
        """Peers came below a child from where sources number the events: have children join again, with streams."""
        if self._is_over(tree, term, report):
            self.source_streams.answer(tree, child.contact, term)
        elif tree.attached and self._known(tree, child.contact, term, report) is not None:
            self.dispatch.order(StreamsBegin(tree.topic))

    def _is_over(self, tree: Tree, term: Term, report: StreamUp) -> bool:
        """Whether a stream ended here where a child reports it to end, or later."""
        end = tree.flow.past.forgotten.get(term)
        return end is not None and not report.alive and report.reach <= end

    def _ended(self, sender: Contact, message: StreamsEnded) -> None:
        tree = self.trees.get(message.topic)
        if tree is not None and sender.node_id in {contact.node_id for contact in tree.neighbours()}:
            self.source_streams.learn_ends(tree, message.ends, sender)

    def take_up(self, tree: Tree, neighbour: Contact) -> None:
        """Handle earlier reports of a new parent or child, or after a new list: they are not repeated."""
        if not (tree.by_source or tree.sources.denied):
            return
        for key, value in list(self.streams.told(neighbour.node_id).items()):
            if not is_topic(key) and key.startswith(tree.topic):
                try:
                    self.changed(neighbour, key, value)
                except Implausible:
                    self.streams.doubt(neighbour.node_id, key)

    def _child_says(self, tree: Tree, child: SourcesChild, term: Term, report: StreamUp | None) -> None:
        if report is None:
            self.source_streams.let_go(tree, child, term)
        elif self._is_over(tree, term, report):
            self.source_streams.answer(tree, child.contact, term)
            return
        elif self._known(tree, child.contact, term, report) is not None:
            report = _as_far_as_taken(tree, child.contact, term, report)
            ends = may_end(tree, child, term)
            child.note_stream(term, report)
            if told := self.source_streams.dates.told_before(tree, term, child.contact):
                self.source_streams.dates.learn_milestones(tree, term, told, near=False)
            if not child.sends_only:
                self._await_turn()
                self.unjudged[tree.topic, child.contact.node_id] = None
            state = tree.sources.states[term]
            if report.end is not None and ends:
                state.close(report.end)
                if term.is_of(child.contact.node_id):
                    self.source_streams.dates.learn_milestones(tree, term, report.milestones)
            elif report.alive and not tree.flow.others[term].barred:
                state.take_end(None, is_alive=True)
            if report.alive and (stream := tree.flow.others.get(term)) is not None and not stream.via:
                stream.come_from(child.contact.node_id)
            self._heard_of(tree, term, max(report.frontier, report.reach), report.frontier)
        self._news(tree, term)

    def _note_progress(self, tree: Tree, child: SourcesChild) -> None:
        """Add up the events that a child and all below it have of all streams: is its lease to be cut, or no longer?"""
        fronts = {term: report.frontier for term, report in child.streams.items()}
        child.note_streams(reached(tree, child.needed_from), reached(tree, fronts.get))
        catch_up(tree, child, self.host.now())
        cut_below(self.host, tree, child)

    def _known(self, tree: Tree, sender: Contact, term: Term, report: StreamReport) -> SourceState | None:
        """Return what is known of a live stream; None if its source may not publish, or there is no room for it."""
        if term in tree.sources.states:
            if report.warrant is not None:
                self.source_streams.show_right(tree, term, report.warrant)
            if tree.flow.others[term].barred:
                self._deny(tree, sender, term, report, full=False)
            return tree.sources.states[term]
        if not self.source_streams.may_take(tree, term, report.warrant, sender):
            self._deny(tree, sender, term, report, full=False)
            self._report_what_ended(tree, sender, term, report)
            if not self._holds_up(tree, term, report):
                return None
        if term in tree.flow.past.forgotten:
            is_here = isinstance(report, StreamUp) and report.alive
            reach = max(report.frontier, report.reach) if is_here else NUMBER_MAX
            if self._may_go_on(tree, term, report):
                self.source_streams.resume(tree, term, report.warrant, reach, sender)
                self._hear_again(tree, term, sender)
        else:
            self.source_streams.learn(tree, term, 0, report.warrant, sender, held=report.end is not None)
        if term in tree.sources.states:
            self.source_streams.show_warrant(tree, term)
        else:
            self._deny(tree, sender, term, report, full=True)
            self.source_streams.note_left_out(tree, term, sender, held=report.end is not None)
            raise Implausible(f"{sender.address} names one more source's stream, for which there is no room yet")
        return tree.sources.states[term]

    def _hear_again(self, tree: Tree, term: Term, sender: Contact) -> None:
        """Handle earlier reports of other children on a stream that continues: they are not repeated."""
        key = stream_key(tree.topic, term)
        for child in [each for each in tree.leases.children.values() if each.contact.node_id != sender.node_id]:
            told = self.streams.told(child.contact.node_id).get(key)
            if told is not None and term in tree.sources.states:
                self.changed(child.contact, key, told)

    def _report_what_ended(self, tree: Tree, sender: Contact, term: Term, report: StreamReport) -> None:
        """A source lost its right and ended its stream, from which nothing is accepted: its events are lost.

        Either it was out of reach while the list changed, and only it has its events. Or it was restarted since, and
        has them from others.
        """
        end = report.end
        if end is None and isinstance(report, StreamUp) and not report.alive:
            end = max(report.frontier, report.reach)
        if end is None or not could_publish(tree, term, report.warrant):
            return
        self.source_streams.learn_ends(tree, [(term, end, report.milestones)], sender)
        if term not in tree.flow.past.forgotten:
            tree.flow.open_past().note_over(term, end)  # there was nothing to lose
        if isinstance(report, StreamUp) and self._is_over(tree, term, report):
            self.source_streams.answer(tree, sender, term)

    def _holds_up(self, tree: Tree, term: Term, report: StreamReport) -> bool:
        """Whether a parent waits for this peer's report on its own stream, which is not accepted and has ended here."""
        over = tree.flow.past.forgotten.get(term)
        return isinstance(report, StreamDown) and over is not None and max(report.reach, report.end or 0) <= over

    def _may_go_on(self, tree: Tree, term: Term, report: StreamReport) -> bool:
        """Whether a stream that ended here is resumed. A stream of this peer, only for a parent that waits for it."""
        if not is_mine(self.host, term):
            return True
        return isinstance(report, StreamDown) and max(report.end or 0, report.reach) <= tree.flow.past.forgotten[term]

    def _deny(self, tree: Tree, sender: Contact, term: Term, report: StreamReport, *, full: bool) -> None:
        """Reject a stream, and do not pass it on. Tell its source, if that is the neighbour that reported it."""
        if not full:
            self.source_streams.note_denied(tree)
            self.host.trace(Mark("stream_denied"))
        if report.end is None and term.is_of(sender.node_id):
            self.host.send(sender, Denied(tree.descriptor, full))

    def _parent_says(self, tree: Tree, parent: Contact, term: Term, report: StreamDown) -> None:
        if not tree.attached or self._is_known(tree, term, report):
            return
        if not tree.served and term not in tree.sources.states:
            return
        state = self._known(tree, parent, term, report)
        if state is None:
            return
        report = _as_far_as_taken(tree, parent, term, report)
        state.hear_above(report)
        if told := self.source_streams.dates.told_before(tree, term, parent):
            self.source_streams.dates.learn_milestones(tree, term, told)
        tree.sources.note_partitioned(partitioned=report.partitioned)
        if state.right is Right.COULD and state.closed and is_mine(self.host, term):
            pass  # this peer decides where the list ended it, and the others how much of that they accept
        elif report.closed and report.end is not None and not is_alive(tree, term):
            state.close(report.end)
        else:
            state.take_end(report.end, is_alive=is_alive(tree, term))
        self.source_streams.stable_to(tree, term, report.stable)
        self._heard_of(tree, term, report.reach, report.frontier)
        self._news(tree, term)
        if tree.keeping_until is not None:
            self.dispatch.order(LeaveIfIdle(tree.topic))  # the parent may have what this peer stays for

    def _is_known(self, tree: Tree, term: Term, report: StreamDown) -> bool:
        """Whether a stream has ended here, and the parent has no news of it.

        If the root, which may be another by now, does not know yet that everybody has it, the stream is resumed.
        """
        over = tree.flow.past.forgotten.get(term)
        if over is None or report.end is None:
            return False
        return max(report.end, report.reach) <= over and report.end <= report.stable

    def _heard_of(self, tree: Tree, term: Term, reach: int, held: int) -> None:
        """A neighbour knows events up to an index, and has them up to another."""
        own = tree.sources.own
        if own is not None and own.term == term:
            own.held_to(min(held, own.index))
        if reach > (tree.flow.front(term) or 0):
            self.source_streams.news.heard_of(tree, term, reach)
            self.dispatch.order(GapNoticed(tree.topic))

    def _news(self, tree: Tree, term: Term) -> None:
        self.source_streams.news.moved(tree, term)
        self.schedule.touch(tree)
        self.progress.advance_streams(tree, (term,))

    # ---- sources next to this peer

    def came(self, topic: bytes, term: Term, source: bytes) -> None:
        """Note that a bundle came directly from its source."""
        self._await_turn()
        self.unconfirmed[topic, term] = source

    def _await_turn(self) -> None:
        if self.unconfirmed is EMPTY:
            self.host.set_timer(TurnOver(), 0.0)
            self.unconfirmed, self.unjudged = {}, {}

    def _conclude_soon(self) -> None:
        self.host.set_timer(ConcludeTurn(), 0.0)

    def conclude_turn(self) -> None:
        """Confirm to neighbouring sources how far this peer has their streams, and check that children keep up."""
        unconfirmed, unjudged, self.unconfirmed, self.unjudged = self.unconfirmed, self.unjudged, EMPTY, EMPTY
        for topic, node in unjudged:
            tree = self.trees.get(topic)
            child = tree.leases.children.get(node) if tree is not None else None
            if tree is not None and isinstance(child, SourcesChild):
                self._note_progress(tree, child)
        for (topic, term), sender in unconfirmed.items():
            tree = self.trees.get(topic)
            if tree is not None and term in tree.sources.states:
                self.progress.confirm(tree, term, sender)

    def _confirmed(self, sender: Contact, message: Confirmed) -> None:
        tree = self.trees.get(message.topic)
        if tree is None or sender.node_id not in tree.leases.children:
            return
        own = tree.sources.own
        if own is not None and own.term == message.term:
            own.held_to(min(message.front, own.index))
            self.progress.advance_streams(tree, (message.term,))


def _as_far_as_taken(tree: Tree, sender: Contact, term: Term, report: AnyReport) -> AnyReport:
    """Return a neighbour's report without what is not accepted from it: nobody is to wait for that, or request it."""
    stream = tree.flow.others[term]
    if not (stream.barred and term.is_of(sender.node_id)):
        return report
    frontier, reach = min(report.frontier, stream.frontier), min(report.reach, stream.seen.end)
    end = None if report.end is None else min(report.end, stream.seen.end)
    return msgspec.structs.replace(report, frontier=frontier, reach=reach, end=end)
