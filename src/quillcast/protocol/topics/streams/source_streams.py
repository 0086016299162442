"""The streams of sources at a peer: how they begin and end, what is stable, and what neighbours are told.

docs/sources.md describes the whole life of a stream. Topics whose root numbers the events have streams of sources only
if the root took over from sources, so hardly anything here depends on the kind of topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from quillcast.core.envelope import HALF_BYTES, Term
from quillcast.core.host import Host
from quillcast.core.interning import interned
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.trace import Mark
from quillcast.protocol.forwarding.channels import Channel, PeerSink
from quillcast.protocol.forwarding.event_places import runs_at
from quillcast.protocol.forwarding.milestones import Milestone, Milestones, ToldMilestones
from quillcast.protocol.forwarding.stream import SourceStream, Stream
from quillcast.protocol.neighbours.streams import Streams
from quillcast.protocol.security.access import SourceWarrant, Warrant, is_restricted
from quillcast.protocol.topics.config import TopicConfig
from quillcast.protocol.topics.known.replica_set import ReplicaSet
from quillcast.protocol.topics.memory.retention import acknowledged_position
from quillcast.protocol.topics.messages import StreamEnd, StreamsEnded
from quillcast.protocol.topics.policy.placement import Placement
from quillcast.protocol.topics.state.holders import Child, SourcesChild
from quillcast.protocol.topics.state.link_reports import (
    StreamDown,
    StreamUp,
    decode_stream,
    encode,
    is_topic,
    stream_key,
)
from quillcast.protocol.topics.state.schedule import Schedule
from quillcast.protocol.topics.state.source import Source, source_term
from quillcast.protocol.topics.state.sources import Right, SourceState
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.source_rights import right_of, shown_by_source
from quillcast.protocol.topics.streams.stream_dates import StreamDates, share_of_each
from quillcast.protocol.topics.streams.stream_news import StreamNews
from quillcast.protocol.topics.streams.stream_ways import (
    forget_report,
    is_alive,
    is_mine,
    is_root_itself,
    known_end,
    known_to,
    sources_of,
)

FROM_BELOW, FROM_ABOVE = 2, 4
"""Multiples of `streams_max` up to which a peer accepts a stream that others hold, from a child or from the parent.

Two sides of a partition may have `streams_max` each. A peer may hold twice that many which its parent does not accept
yet. If it accepted nothing from the parent then, the events of neither would ever become stable, and no stream would be
forgotten.
"""
CLOSED_MAX = 1024  # own ended streams that a peer remembers: as many as it reports in a topic


class OwnEnded(NamedTuple):
    """The end of one of this peer's own streams, remembered even if this peer leaves the tree and comes back."""

    topic: bytes
    end: int
    milestones: Milestones


Starts = Sequence[tuple[Term, int, int]]
"""Streams, the index from which a child is owed each, and how far its parent has each."""


class SourceStreams:
    """Manages the streams of sources in all topics."""

    __slots__ = (
        "closed", "config", "count", "dates", "host", "news", "placement", "replica_set", "schedule", "streams",
    )  # fmt: skip

    def __init__(
        self, host: Host, config: TopicConfig, streams: Streams, replica_set: ReplicaSet, schedule: Schedule,
        placement: Placement,
    ) -> None:  # fmt: skip
        self.host, self.config, self.streams, self.replica_set = host, config, streams, replica_set
        self.schedule, self.placement = schedule, placement
        self.news = StreamNews(host, streams, schedule)
        self.dates = StreamDates(host, self.news)
        self.count = 0  # this peer's own streams, in all topics
        self.closed: dict[Term, OwnEnded] = {}  # those that ended, the latest last

    # ---- beginning

    def open(self, tree: Tree, warrant: Warrant | None) -> Source | None:
        """Return this peer's own stream in a topic; begin it if there is none. None if the topic has too many streams.

        `warrant` says on whose behalf this peer publishes.
        """
        sources, shown = sources_of(tree), None
        if warrant is not None and is_restricted(tree.descriptor.access, "publish"):
            shown = SourceWarrant(self.host.me, warrant)
        if sources.own is None and not self._full(tree):
            self.count += 1
            term = source_term(
                self.host, self.count, tree.descriptor.session, reliable=tree.descriptor.settings.reliable
            )
            sources.begin_own(Source(self.host, self.config, tree.descriptor, term))
            self.begin(tree, term, 0, shown, here=True).come_from(self.host.me)
            self.show_warrant(tree, term)
        elif sources.own is not None and shown is not None:
            self.show_right(tree, sources.own.term, shown)  # the list became known after its first events
        return sources.own

    def withdraw(self, tree: Tree) -> bool:
        """Withdraw this peer's stream because a neighbour has no room for it. False if another peer has some of it."""
        own = tree.sources.own
        if own is None or own.held or own.stable:
            return False
        self._dismiss(tree, own.term)
        return True

    def finish(self, tree: Tree) -> None:
        """End this peer's stream, because in the next session a root numbers the events.

        Publishers are still told what becomes stable of it.
        """
        own = tree.sources.own
        if own is not None:
            own.stop()
            tree.sources.states[own.term].close(own.index)
            self.closed[own.term] = OwnEnded(tree.topic, own.index, tree.flow.others[own.term].milestones)
            if len(self.closed) > CLOSED_MAX:
                del self.closed[next(iter(self.closed))]
            self.news.note(tree, own.term)

    def close(self, tree: Tree) -> None:
        """End this peer's stream, because it no longer publishes in the topic."""
        self.finish(tree)
        if tree.sources.own is not None:
            tree.sources.close_own()
            self.dismiss_denied(tree)

    def _full(self, tree: Tree, times: int = 1) -> bool:
        """Whether there are `times` the bound of streams, or a neighbour's change stream is full."""
        untold = any(self.streams.full(each.node_id) for each in tree.neighbours())
        if len(tree.flow.others) < times * self.config.streams_max and not untold:
            return False
        self.host.trace(Mark("streams_full"))
        return True

    def note_left_out(self, tree: Tree, term: Term, sender: Contact, *, held: bool) -> None:
        """Note that there is no room for a stream that a neighbour names, if its source cannot wait (`learn`)."""
        if self._times(tree, term, sender, held=held) > 1:
            sources_of(tree).note_left_out(self.host.now())

    def bound(self, tree: Tree) -> str:
        """Return why streams of sources wait or are left out here, in a sentence; empty if none are."""
        count, most, left_out_at = len(tree.flow.others), self.config.streams_max, tree.sources.left_out_at
        has = f"topic {tree.descriptor.name} has {count} streams of sources here (streams_max is {most})"
        if self.host.now() - left_out_at < self.config.lease_s:
            return f"{has}, and no room for others: events of these do not come here"
        return f"{has}: further sources wait until some have ended" if count > most else ""

    def _times(self, tree: Tree, term: Term, sender: Contact | None, *, held: bool) -> int:
        """Return the multiple of the bound for a stream that a neighbour names: 1 if its source can still wait."""
        if sender is None:
            return 1
        if tree.parent is not None and tree.parent.node_id == sender.node_id:
            return FROM_ABOVE
        return FROM_BELOW if held or not term.is_of(sender.node_id) else 1

    def begin(
        self, tree: Tree, term: Term, start: int, warrant: SourceWarrant | None, *, here: bool = False
    ) -> SourceStream:
        """Begin a stream here, or resume one that was taken for ended. It is owed from an index on.

        `here`: it is this peer's own.
        """
        sources, term = sources_of(tree), interned(term)
        stream = tree.flow.begin_beside(term, start, here=here)
        sources.enter(term, SourceState(warrant, self.host.now(), right_of(tree, term, warrant)))
        for subscription in tree.subscriptions:
            self._owe(tree, term, start, subscription)
        self.news.note(tree, term)
        return stream

    def _owe(self, tree: Tree, term: Term, start: int, subscription: Subscription) -> None:
        """Let a subscription be owed a stream from an index on. If a root now numbers the events, some come again."""
        subscription.begin(term, start, owed=tree.flow.is_reliable(term))
        if tree.flow.is_reliable(term) and not tree.flow.keeps:
            subscription.expect_again()
        if not tree.descriptor.settings.by_source and tree.descriptor.settings.reliable:
            subscription.expect_streams_again()

    def show_warrant(self, tree: Tree, term: Term) -> None:
        """Send a source's warrant ahead of its events: neighbours accept none before they have seen it."""
        if tree.sources.states[term].warrant is None:
            return
        self.news.tell_one(tree, term)
        for contact in tree.neighbours():
            self.streams.hurry(contact.node_id)

    def show_right(self, tree: Tree, term: Term, warrant: SourceWarrant) -> None:
        """Use another warrant of a source, if it lets the source publish and the known one does not."""
        state = tree.sources.states[term]
        if warrant == state.warrant or (state.warrant is not None and state.right is Right.MAY):
            return
        if right_of(tree, term, warrant) is Right.MAY:
            state.show(warrant)
            self._take_from_source(tree, term, is_barred=False)
            self.show_warrant(tree, term)

    def learn(
        self, tree: Tree, term: Term, start: int, warrant: SourceWarrant | None = None,
        sender: Contact | None = None, *, held: bool = False,
    ) -> Stream | None:  # fmt: skip
        """Return the stream that a neighbour names; begin it if it is new. Without a `sender`, only an event came.

        `held`: it has ended, or others have some of it, so its source can no longer wait. None: it is over here, its
        source may not publish, or there are too many.
        """
        stream, times = tree.flow.others.get(term), self._times(tree, term, sender, held=held)
        if stream is None and term.of_source and term not in tree.flow.past.forgotten and not self._full(tree, times):
            stream = self.begin(tree, term, start, warrant) if self.may_take(tree, term, warrant, sender) else None
        return stream

    def resume(
        self, tree: Tree, term: Term, warrant: SourceWarrant | None, reach: int = NUMBER_MAX,
        sender: Contact | None = None,
    ) -> None:  # fmt: skip
        """Resume a stream that was over here: its source had been out of reach, or the root still waits for it.

        If the source has only reached `reach`, a known end beyond that was invented. A stream of this peer's own does
        not grow.
        """
        if self._full(tree, self._times(tree, term, sender, held=True)):
            return
        self.host.trace(Mark("stream_resumed"))
        end = tree.flow.past.take_forgotten(term)
        end = end if end <= reach else 0
        stream = self.begin(tree, term, end, warrant)
        stream.give_up([(0, end)] if end else [])  # this peer will not get it again
        stream.resume(tree.sources.resume(term, end))
        for child in tree.leases.children.values():
            if isinstance(child, SourcesChild) and not child.sends_only and term not in child.streams:
                child.note_stream(term, StreamUp(end, end, end))  # it was over there, too
        if is_mine(self.host, term):
            tree.sources.states[term].close(end)

    # ---- who may publish

    def may_take(self, tree: Tree, term: Term, warrant: SourceWarrant | None, sender: Contact | None) -> bool:
        """Whether the topic's access list, if any, lets this peer accept a stream that a neighbour names.

        Every peer that learns of the stream checks this, so peers that pass streams on need not be trusted. What a
        source published while it could is accepted from others, from a root, and for one lease from the source itself.
        By then a source that obeys the list has ended its stream.
        """
        right = right_of(tree, term, warrant)
        if right is not Right.COULD or sender is None:
            return right is Right.MAY
        if not term.is_of(sender.node_id) or is_root_itself(tree, term):
            return True
        return self.host.now() < tree.sources.listed_at + self.config.lease_s

    def note_denied(self, tree: Tree) -> None:
        """Note that a neighbour named a stream that the topic's list denies. Another list may allow it."""
        sources_of(tree).note_denied()

    def list_learned(self, tree: Tree) -> None:
        """Judge all sources by a list that became known."""
        if not tree.by_source:
            return
        sources_of(tree).list_learned(self.host.now())
        for term, state in tree.sources.states.items():
            state.judge(right_of(tree, term, state.warrant))
            self._take_from_source(tree, term, is_barred=False)
        self.news.touch(tree)

    def _take_from_source(self, tree: Tree, term: Term, *, is_barred: bool) -> None:
        if tree.flow.others[term].bar(barred=is_barred):
            self.news.note(tree, term)

    def dismiss_denied(self, tree: Tree) -> None:
        """Dismiss streams of sources that never might publish. Formerly allowed ones get one lease to end theirs.

        After that, nothing is accepted from the source itself, and its stream ends like that of a lost source.
        """
        for term in [term for term, state in tree.sources.states.items() if state.right is Right.NEVER]:
            self._dismiss(tree, term)
        self._bar(tree)

    def _bar(self, tree: Tree) -> None:
        if self.host.now() < tree.sources.listed_at + self.config.lease_s:
            return
        for term, state in tree.sources.states.items():
            if state.right is Right.COULD and not is_mine(self.host, term):
                self._take_from_source(tree, term, is_barred=not is_root_itself(tree, term))

    def _dismiss(self, tree: Tree, term: Term) -> None:
        end = known_end(tree, term)
        for subscription in tree.subscriptions:
            self.dates.pass_by(tree, term, subscription)
            if (front := subscription.frontier(term)) < end:
                subscription.skip(term, [(front, end)], "unavailable", runs_at(tree.flow, term, [(front, end)]))
        tree.flow.drop(term)
        self._forget(tree, term, end)

    # ---- ends that became known beyond a partition

    def ended(self, tree: Tree) -> tuple[StreamEnd, ...]:
        """Return the streams that are over here and ended last."""
        if not (self.closed or tree.flow.past.forgotten):
            return ()
        self._recall_closed(tree)
        ends = [(term, end) for term, end in tree.flow.past.forgotten_lately() if term.of_source]
        most = share_of_each(len(ends))
        return tuple((term, end, self.dates.milestones(tree, term, (0, end), most)) for term, end in ends)

    def learn_ends(self, tree: Tree, ends: Sequence[StreamEnd], sender: Contact, *, owed: bool = True) -> None:
        """Learn where streams ended that are over at a neighbour, and pass on ends that are later than known here.

        `owed`: subscriptions here are owed the events beyond the known end, except those from before they began, but no
        peer keeps them any longer. If a stream continues here without its source, only the root or the parent decides
        on its end, and what children say is passed up. Otherwise a child could end a stream that comes from elsewhere.
        """
        if not (ends or self.closed):
            return
        self._recall_closed(tree)
        parent, news, unjudged = tree.parent, list[StreamEnd](), list[StreamEnd]()
        may_judge = parent is None or parent.node_id == sender.node_id
        for each in ends:
            term, end, told = interned(each[0]), *each[1:]
            if not term.of_source or self._knows_best(tree, term) or not self._is_news(tree, term, end):
                continue
            if term not in tree.sources.states:
                self._lose_beyond(tree, term, end, told, owed=owed)
            elif may_judge:  # it reached this end
                tree.sources.states[term].went_to(end)
                self.news.came(tree, term)
                self.dates.learn_milestones(tree, term, told)
                self.news.note(tree, term)
            (news if may_judge or term not in tree.sources.states else unjudged).append((term, end, told))
        for contact in tree.neighbours() if news and owed else ():
            if contact.node_id != sender.node_id or tree.root is not None:  # peers on the path wait for the root
                self.host.send(contact, StreamsEnded(tree.topic, tuple(news)))
        if unjudged and parent is not None:
            self.host.send(parent, StreamsEnded(tree.topic, tuple(unjudged)))

    def _recall_closed(self, tree: Tree) -> None:
        """Restore the ends of this peer's former streams, which the tree forgot if this peer left it in between."""
        flow = tree.flow
        unknown = [term for term, own in self.closed.items() if own.topic == tree.topic and not flow.knows(term)]
        if unknown:
            flow.open_past().note_over_before([(term, self.closed[term].end) for term in unknown])
        for term in unknown:
            if flow.knows(term):
                self.dates.note_over(tree, term, self.closed[term].milestones)

    def _knows_best(self, tree: Tree, term: Term) -> bool:
        """Whether it is a stream of this process, and either remembered here or not begun yet."""
        return is_mine(self.host, term) and (tree.flow.knows(term) or term.number > self.count)

    def _is_news(self, tree: Tree, term: Term, end: int) -> bool:
        if term in tree.sources.states:
            return not is_alive(tree, term) and end > known_end(tree, term)
        return end > tree.flow.past.forgotten.get(term, 0)

    def _lose_beyond(self, tree: Tree, term: Term, end: int, told: Iterable[Milestone], *, owed: bool) -> None:
        known, milestones = tree.flow.past.forgotten.get(term, 0), Milestones()
        tree.flow.open_past().note_over(term, end)
        milestones.learn(told, self.host.now(), end)
        self.dates.note_over(tree, term, milestones)
        for subscription in tree.subscriptions if owed else ():
            start = max(known, min(end, milestones.before(subscription.began_at)))
            if start < end or subscription.was_given(term):
                self._owe(tree, term, known, subscription)
                subscription.pass_by(term, start)
                subscription.skip(term, [(known, end)], "unavailable")

    # ---- neighbours

    def attached(
        self, tree: Tree, parent: Contact, starts: Starts, warrants: Iterable[SourceWarrant],
        milestones: Iterable[ToldMilestones], *, whole: bool, served: bool,
    ) -> None:  # fmt: skip
        """Begin to use a parent. It sends this peer the topic's events unless this peer only publishes (`served`).

        `whole`: this peer was in the tree before, and is owed all of each stream that is new to it.
        """
        if served and not (tree.by_source or starts):
            if not tree.served:
                tree.sources.note_served(served=True)  # this peer only published while sources numbered the events
            return
        sources, above, shown = sources_of(tree), dict[Term, int](), shown_by_source(warrants)
        sources.note_served(served=served)
        self._bar(tree)  # the parent may be the root
        for (term, start, frontier), told in zip(starts, chain(milestones, repeat(())), strict=False):
            if self.learn(tree, term, 0 if whole else start, shown.get(term.node[:HALF_BYTES]), parent) is not None:
                above[term] = frontier
                sources.states[term].join_above(StreamDown(frontier, known_to(told, frontier), 0))
                self.dates.learn_milestones(tree, term, told)
            self.dates.note_told(tree, term, told, parent)
        up = sources.up
        if up is None:
            up = Channel(PeerSink(self.host, parent, waits=tree.waits), tree.flow.first_beyond(above))
            sources.connect(up)
            tree.flow.open(up)
            self.placement.install(tree)
        self.news.touch(tree)
        tree.flow.serve(up)

    def detached(self, tree: Tree, parent: Contact) -> None:
        """Stop using a former parent."""
        sources = tree.sources
        if sources.up is not None:
            tree.flow.close(sources.up)
            sources.disconnect()
            self.placement.install(tree)
        for state in sources.states.values():
            state.hear_above(None)
        self.parted(tree, parent)

    def joined(
        self, tree: Tree, child: Child, starts: Starts, known: Mapping[Term, ToldMilestones], ended: Iterable[StreamEnd]
    ) -> None:
        """Note from where a new child in the table is owed each stream that has not ended there.

        What it has of streams that it knew says nothing about peers below it: until it reports, only what is stable
        counts as acknowledged.
        """
        if not isinstance(child, SourcesChild):
            return
        owed = {term: start for term, start, _ in starts}
        streams = {
            term: StreamUp(
                min(start, tree.flow.others[term].stable) if term in known else start, start,
                known_to(known.get(term, ()), start),
            )
            for term, start in owed.items()
        }  # fmt: skip
        child.begin_streams(streams | {term: StreamUp(end, end, end) for term, end, _ in ended if term in owed})
        child.channel.begin_at(max(tree.flow.log.base, tree.flow.first_beyond(owed)))
        self.news.touch(tree)

    def parted(self, tree: Tree, neighbour: Contact) -> None:
        """Note that a neighbour has left the topic's tree: nothing is reported to it, and nothing comes from it."""
        for key in [key for key in self.streams.telling(neighbour.node_id) if _is_of(key, tree.topic)]:
            self.streams.drop(neighbour, key)
        for stream in tree.flow.others.values():
            if stream.via == neighbour.node_id:
                stream.come_from(b"")
        self.news.touch(tree)

    def known(self, tree: Tree) -> tuple[tuple[Term, int, int], ...]:
        """Return what a joining peer has of each stream. A new forwarder asks for what its first children need."""
        found = {term: (tree.flow.front(term) or 0, stream.stable) for term, stream in tree.flow.others.items()}
        for join, _ in tree.waiting.values():
            for term, frontier, stable in join.streams:
                found[term] = min((frontier, stable), found.get(term, (frontier, stable)))
        return tuple((term, *place) for term, place in found.items())

    def starts(self, tree: Tree, has: Mapping[Term, int], *, new: bool, earliest: bool) -> list[tuple[Term, int, int]]:
        """Return from where a child is owed each stream. `new`: it begins now, and is not owed earlier events."""
        return [
            (term, tree.flow.kept_before(term, start) if earliest else start, front)
            for term in tree.flow.others
            for front in (tree.flow.front(term) or 0,)
            for start in (has.get(term, front if new else 0),)
        ]

    def begin_at(self, tree: Tree, *, earliest: bool) -> list[tuple[Term, int]]:
        """Return where a local subscription begins in each stream: after the events known to be older."""
        return [
            (term, start if earliest else max(start, self._known_before(tree, term)))
            for term, start, _ in self.starts(tree, {}, new=True, earliest=earliest)
        ]

    def _known_before(self, tree: Tree, term: Term) -> int:
        """Return the index below which events have existed for a while, or reached the parent without a gap."""
        above = tree.sources.states[term].above
        return max(above.frontier if above is not None else 0, self.dates.came_before(tree, term, self.host.now()))

    def cease(self, tree: Tree) -> None:
        """Keep only this peer's own streams, because nothing here or below needs the topic's events any longer."""
        tree.sources.note_served(served=False)
        for term in [term for term in tree.sources.states if term not in tree.sources.mine]:
            tree.sources.drop(term)
            tree.flow.drop(term)
            if tree.parent is not None:
                self.streams.drop(tree.parent, stream_key(tree.topic, term))

    # ---- what is stable, and the end

    def advance(self, tree: Tree, terms: Iterable[Term]) -> bool:
        """At the root: declare stable what all leases acknowledged, and end streams of lost sources.

        Return whether a stable position moved.
        """
        root, now, moved = tree.root, self.host.now(), False
        if root is None:
            return False
        tree.sources.note_served(served=True)
        partitioned = self.replica_set.partitioned(tree.topic)
        if tree.sources.note_partitioned(partitioned=partitioned):
            self.news.touch(tree)
        silent = now < root.held_until or (partitioned and tree.descriptor.settings.partition == "wait")
        for term in terms:
            self._look_after(tree, term, now)
            stable = 0 if silent else acknowledged_position(tree, now, term)
            moved |= self.stable_to(tree, term, stable)
        return moved

    def _look_after(self, tree: Tree, term: Term, now: float) -> None:
        """End a stream with the last known event, one lease after its source was lost.

        The peer that knew this event may have left: nobody stays to pass it on if a best-effort session follows. If a
        later event becomes known before the stream is over, the end moves one lease later, as the source may be back.
        """
        state, root = tree.sources.states[term], tree.root
        assert root is not None
        if state.closed:
            return
        if is_alive(tree, term):
            if state.is_back():
                self.news.note(tree, term)
            return
        gone_since = state.miss(now)
        end = max(known_end(tree, term), tree.flow.others[term].milestones.end)
        if now >= max(gone_since, root.began_at, state.came_at) + self.config.lease_s and state.end != end:
            state.end_at(end)
            self.host.trace(Mark("stream_ended"))
            self.news.note(tree, term)

    def stable_to(self, tree: Tree, term: Term, stable: int) -> bool:
        """Note that the root declared a stream stable below an index. Return whether that is news."""
        stream = tree.flow.others[term]
        if stable <= stream.stable:
            return False
        stream.settle(stable)
        self.news.note(tree, term)
        return True

    def finished(self, tree: Tree, terms: Iterable[Term]) -> list[tuple[Term, int]]:
        """Return the streams that are over here: the root knows their ends, and all that is owed of them was taken."""
        return [
            (term, state.end)
            for term, state in ((term, tree.sources.states[term]) for term in terms)
            if state.end is not None and self._is_over(tree, term, state, state.end)
        ]

    def _is_over(self, tree: Tree, term: Term, state: SourceState, end: int) -> bool:
        if not tree.flow.others[term].keeps:
            return tree.root is not None or (state.above is not None and state.above.end is not None)
        told = tree.root is not None or (
            state.above is not None and state.above.end is not None and state.above.stable >= state.above.end
        )
        taken = min([tree.flow.front(term) or 0, *(each.frontier(term) for each in tree.subscriptions)])
        stream = tree.flow.others[term]
        known = stream.seen.end if state.closed else known_end(tree, term)
        goes_on = known > end  # the source is back, or later events exist, and the root does not know yet
        return told and not goes_on and stream.stable >= end and taken >= end

    def disown_passed_on(self, tree: Tree) -> bool:
        """Disown ended streams that the parent has, with their ends. Return whether any: then this peer may leave."""
        known = [term for term in tree.sources.mine if self._parent_has(tree.sources.states[term])]
        for term in known:
            tree.sources.disown(term)
        return bool(known)

    def _parent_has(self, state: SourceState) -> bool:
        above = state.above
        return state.closed and above is not None and above.closed and above.frontier >= (state.end or 0)

    def conclude(self, tree: Tree, term: Term, end: int) -> None:
        """Forget a stream that is over. Neighbours that do not know that are told when they report on it."""
        milestones, now = tree.flow.others[term].milestones, self.host.now()
        milestones.learn([(end, now - tree.sources.states[term].came_at)], now, end)
        tree.flow.conclude(term, end)
        self.dates.note_over(tree, term, milestones)
        self._forget(tree, term, end)
        self.host.trace(Mark("stream_over"))

    def _forget(self, tree: Tree, term: Term, end: int) -> None:
        state = tree.sources.conclude(term, end)
        for subscription in tree.subscriptions:
            subscription.end(term, end)
        key = stream_key(tree.topic, term)
        if tree.parent is not None and tree.root is None:
            self.streams.drop(tree.parent, key)
        for child in tree.leases.children.values():
            knows_less = self._knows_less(child, term, key, end)
            speaks = forget_report(child, term) and key in self.streams.told(child.contact.node_id)
            if speaks or knows_less:
                self.streams.put(child.contact, key, encode(_over(end, closed=state.closed)))
            else:
                self.streams.drop(child.contact, key)
            if knows_less:
                self.streams.hurry(child.contact.node_id)  # the child's own last report may cross this (`let_go`)

    def _knows_less(self, child: Child, term: Term, key: bytes, end: int) -> bool:
        """Whether a child may take a stream for over too early: it reported or heard of an earlier end."""
        report, told = child.streams.get(term), self._told_end(child, key)
        return (report is not None and report.reach < end) or (told is not None and told < end)

    def _told_end(self, child: Child, key: bytes) -> int | None:
        told = self.streams.telling(child.contact.node_id).get(key)
        report = decode_stream(told) if told is not None else None
        return report.end if isinstance(report, StreamDown) else None

    def let_go(self, tree: Tree, child: SourcesChild, term: Term) -> None:
        """Note that a child no longer reports on a stream: it is over there, up to the end that the child was told.

        The child may not have heard yet that the end moved, but it heard that all was stable up to the end it knew.
        """
        key, report = stream_key(tree.topic, term), child.streams.get(term)
        if term not in tree.sources.states:
            forget_report(child, term)
            self.streams.drop(child.contact, key)
        elif report is not None and (end := self._told_end(child, key)) is not None:
            if tree.flow.is_reliable(term):
                end = min(end, max(report.frontier, tree.flow.others[term].stable))
            child.note_stream(term, StreamUp(end, end, end))
        else:
            forget_report(child, term)

    def answer(self, tree: Tree, child: Contact, term: Term) -> None:
        """Answer a child that reports on a stream that is over here."""
        end = tree.flow.past.forgotten[term]
        self.streams.put(child, stream_key(tree.topic, term), encode(_over(end, closed=False)))


def _over(end: int, *, closed: bool) -> StreamDown:
    return StreamDown(end, end, end, end, closed)


def _is_of(key: bytes, topic: bytes) -> bool:
    """Whether this is the key of a stream in a topic."""
    return not is_topic(key) and key.startswith(topic)
