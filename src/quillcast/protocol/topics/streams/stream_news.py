"""Reports to neighbours on the streams of sources that changed (`link_reports.py`)."""

from collections.abc import Callable

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import Contact
from quillcast.protocol.forwarding.stream import SourceStream
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.state.link_reports import StreamDown, StreamUp, encode, stream_key
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.sources import Right, SourceState
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.stream_ways import is_alive, is_mine, reach, there

CLOSED_MILESTONES_MAX = 8  # in each report of a source on a stream that it closed; its neighbours have their own
PutsOff = Callable[[Tree, Contact, Term, StreamUp], bool]
"""Whether a report to the parent is put off."""


class StreamNews:
    """Reports streams to this peer's neighbours, in all topics."""

    __slots__ = ("host", "schedule", "streams")

    def __init__(self, host: Host, streams: Streams, schedule: Schedule) -> None:
        self.host, self.streams, self.schedule = host, streams, schedule

    def moved(self, tree: Tree, term: Term) -> None:
        """Mark a stream about which something changed, for the next report to neighbours."""
        tree.sources.note_changed(term)

    def came(self, tree: Tree, term: Term) -> None:
        """Note that events of a stream came, or a report of events to come.

        Their time is noted now, because the next report may be late, for instance after a pause of this process.
        """
        state = tree.sources.states.get(term)
        if state is not None:
            now, stream = self.host.now(), tree.flow.others[term]
            state.came(now)
            stream.milestones.note(stream.seen.end, now)
            self.moved(tree, term)

    def heard_of(self, tree: Tree, term: Term, reach: int) -> None:
        """Note that a neighbour knows events up to an index. It repeats that in each of its reports."""
        if tree.sources.states[term].is_news(reach):
            self.came(tree, term)
        tree.flow.others[term].milestones.note(there(tree, term), self.host.now())

    def note(self, tree: Tree, term: Term) -> None:
        self.moved(tree, term)
        self.schedule.touch(tree)
        self.schedule.wake(tree)

    def touch(self, tree: Tree) -> None:
        """Mark all streams for the next report, because something that affects all of them changed."""
        if tree.sources.states:
            tree.sources.touch()
            self.schedule.touch(tree)

    def tell(self, tree: Tree, puts_off: PutsOff | None = None) -> None:
        """Report what changed to the parent and the children. `puts_off` decides whether the parent is told later."""
        if not tree.sources.changed:
            return
        now = self.host.now()
        for term in tree.sources.take_changed():
            if term in tree.sources.states:
                tree.flow.others[term].milestones.note(there(tree, term), now)
                self.tell_one(tree, term, puts_off=puts_off)

    def tell_one(self, tree: Tree, term: Term, only: bytes | None = None, puts_off: PutsOff | None = None) -> None:
        """Report on one stream, to all neighbours or to one."""
        if tree.parent is not None and only in (None, tree.parent.node_id):
            self.tell_parent(tree, tree.parent, term, puts_off)
        children = tree.leases.children
        if only is not None:
            children = {only: children[only]} if only in children else {}
        if not (children and tree.attached):
            return
        key, stream, state = stream_key(tree.topic, term), tree.flow.others[term], tree.sources.states[term]
        last_word = state.closed and state.right is Right.COULD and is_mine(self.host, term)
        report = encode(
            StreamDown(
                tree.flow.front(term) or 0, there(tree, term), stream.stable, state.end, state.closed,
                tree.sources.partitioned, state.warrant,
                stream.milestones.told((0, state.end or 0), self.host.now()) if last_word else (),
            )
        )  # fmt: skip
        for child in children.values():
            if not child.sends_only or term in child.streams:
                self.streams.put(child.contact, key, report)

    def tell_parent(self, tree: Tree, parent: Contact, term: Term, puts_off: PutsOff | None = None) -> bool:
        """Report on one stream to the parent. False if the report is put off."""
        report = self._up(tree, tree.flow.others[term], tree.sources.states[term])
        if puts_off is not None and puts_off(tree, parent, term, report):
            return False
        self.streams.put(parent, stream_key(tree.topic, term), encode(report))
        return True

    def _up(self, tree: Tree, stream: SourceStream, state: SourceState) -> StreamUp:
        term, now, closed = stream.term, self.host.now(), state.end if state.closed else None
        last = closed if term in tree.sources.mine else None
        if state.right is Right.COULD and term.is_of(self.host.me):
            last = reach(tree, term)  # others may accept nothing of it from this peer (`may_take`)
        return StreamUp(
            acknowledged_position(tree, now, term), tree.flow.front(term) or 0, reach(tree, term),
            is_alive(tree, term), closed, state.warrant,
            () if last is None else stream.milestones.told((0, last), now, CLOSED_MILESTONES_MAX),
        )  # fmt: skip
