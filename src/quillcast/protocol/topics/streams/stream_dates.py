"""The age of events in sources' streams, so that no subscription is owed events from before it began."""

from collections.abc import Sequence

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.ranges import Range
from quillcast.core.trace import StreamOwed
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.forwarding.milestones import MILESTONES_MAX, Milestones, ToldMilestones
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree
from quillcast.protocol.topics.streams.stream_news import StreamNews
from quillcast.protocol.topics.streams.stream_ways import is_mine, known_end, sources_of, there

JOIN_MILESTONES_MAX = 512  # in one message, or two per stream: 7 kB, or 28 kB for 1,024 streams


class StreamDates:
    """What this peer knows about when events of streams came, in all topics."""

    __slots__ = ("host", "news")

    def __init__(self, host: Host, news: StreamNews) -> None:
        self.host, self.news = host, news

    def milestones(self, tree: Tree, term: Term, missing: Range, most: int = MILESTONES_MAX) -> ToldMilestones:
        """Return how long the events in a range of a stream have existed, as far as this peer knows."""
        stream = tree.flow.others.get(term)
        known = stream.milestones if stream is not None else tree.sources.milestones.get(term)
        return known.told(missing, self.host.now(), most) if known is not None else ()

    def milestones_known(self, tree: Tree, streams: Sequence[tuple[Term, int, int]]) -> tuple[ToldMilestones, ...]:
        """Return the milestones of each stream, for a child or a parent that may be new to it."""
        if not streams:
            return ()
        most = share_of_each(len(streams))
        joins = tree.aged_joins(self.host.now())
        below = {term: told for each in joins for (term, *_), told in zip(each.streams, each.milestones, strict=False)}
        return tuple(
            self.milestones(tree, term, (0, NUMBER_MAX), most) or below.get(term, ())[-most:] for term, *_ in streams
        )

    def note_told(self, tree: Tree, term: Term, told: ToldMilestones, sender: Contact) -> None:
        """Keep a new neighbour's milestones of a stream that is over here, because it may resume (`told_before`)."""
        if term in tree.flow.past.forgotten and told:
            milestones = Milestones()
            milestones.learn(told, self.host.now(), NUMBER_MAX)
            sources_of(tree).note_told(term, sender.node_id, milestones, ENDS_TOLD_MAX)

    def note_early(self, tree: Tree, term: Term, reach: int, sender: Contact) -> None:
        """Note how far a stream has come at a peer that is not a neighbour yet, but may become one (`told_before`)."""
        sources = sources_of(tree)
        milestones = sources.take_told(term, sender.node_id) or Milestones()
        milestones.note(reach, self.host.now())
        sources.note_told(term, sender.node_id, milestones, ENDS_TOLD_MAX)

    def told_before(self, tree: Tree, term: Term, sender: Contact) -> ToldMilestones:
        """Take out what a neighbour said about a stream before it was a neighbour, or when the stream was over here."""
        milestones = tree.sources.take_told(term, sender.node_id)
        return milestones.told((0, NUMBER_MAX), self.host.now()) if milestones is not None else ()

    def learn_milestones(self, tree: Tree, term: Term, told: ToldMilestones, *, near: bool = True) -> None:
        """Learn from a peer how long missing events have existed: subscriptions may have begun later.

        `near`: the peer is also believed about events that did not come here. Others might invent some.
        """
        stream = tree.flow.others.get(term)
        if stream is None:
            return
        stream.milestones.learn(told, self.host.now(), known_end(tree, term) if near else there(tree, term))
        for subscription in tree.subscriptions:
            if self.pass_by(tree, term, subscription):
                self.news.note(tree, term)

    def date(self, tree: Tree, term: Term, told: ToldMilestones) -> None:
        """Learn from its source how long events of a stream have existed, or from the root if the stream is over.

        An answer to another question may not cover the events that a subscription missed.
        """
        milestones = Milestones()
        milestones.learn(told, self.host.now(), NUMBER_MAX)
        for subscription in tree.subscriptions:
            if term in subscription.undated and subscription.undated[term][0][1] <= milestones.end:
                subscription.date(term, milestones.before(subscription.began_at))

    def pass_by(self, tree: Tree, term: Term, subscription: Subscription) -> bool:
        """Let a subscription not be owed events of a stream from before it began, unless it asked for them.

        Return whether that is news.
        """
        start = self.came_before(tree, term, subscription.began_at)
        if subscription.wish.start == "earliest" or not subscription.pass_by(term, start):
            return False
        self.host.trace(StreamOwed(tree.topic, term, start, subscription.number))
        return True

    def note_over(self, tree: Tree, term: Term, milestones: Milestones) -> None:
        """Keep the milestones of a stream that is over as long as its end."""
        sources, ends = sources_of(tree), tree.flow.past.forgotten
        milestones.thin(self.host.now(), share_of_each(len(sources.milestones)))
        sources.remember(term, milestones, ends, len(ends))

    def came_before(self, tree: Tree, term: Term, at: float) -> int:
        """Return the index that a stream is known to have reached by a time.

        A stream that a former process of this peer numbered was complete before this process began.
        """
        if term.is_of(self.host.me) and not is_mine(self.host, term):
            return known_end(tree, term)
        return min(known_end(tree, term), tree.flow.others[term].milestones.before(at))


def share_of_each(streams: int) -> int:
    """Return how many milestones per stream fit into one message, or are kept when streams are over."""
    return max(2, min(MILESTONES_MAX, JOIN_MILESTONES_MAX // max(1, streams)))
