"""For how long the events of sources' streams have been there, so that nobody is owed what came before they began."""

from collections.abc import Callable, Sequence

from quillcast.core.envelope import Term
from quillcast.core.host import Host
from quillcast.core.messages import NUMBER_MAX, Contact
from quillcast.core.ranges import Range
from quillcast.core.trace import StreamOwed
from quillcast.protocol.forwarding.forgotten import ENDS_TOLD_MAX
from quillcast.protocol.forwarding.milestones import MILESTONES_MAX, Milestones, ToldMilestones
from quillcast.protocol.topics.state.stream_ways import is_mine, known_end, sources_of, there
from quillcast.protocol.topics.state.subscription import Subscription
from quillcast.protocol.topics.state.tree import Tree

JOIN_MILESTONES_MAX = 512  # in one message, or two per stream: 7 kB, or 28 kB for 1,024 streams


class StreamDates:
    """What this peer knows of when events of streams came, in all topics."""

    __slots__ = ("host", "news")

    def __init__(self, host: Host, news: Callable[[Tree, Term], None]) -> None:
        """`news`: something is to be told of a stream."""
        self.host, self.news = host, news

    def milestones(self, tree: Tree, term: Term, missing: Range, most: int = MILESTONES_MAX) -> ToldMilestones:
        """How long the events in a range of a stream have been there, as far as this peer knows."""
        stream = tree.flow.others.get(term)
        known = stream.milestones if stream is not None else tree.sources.milestones.get(term)
        return known.told(missing, self.host.now(), most) if known is not None else ()

    def milestones_known(self, tree: Tree, streams: Sequence[tuple[Term, int, int]]) -> tuple[ToldMilestones, ...]:
        """How long ago each stream had come how far here, for a child or a parent that may learn of it now."""
        most = share_of_each(len(streams))
        joins = tree.aged_joins(self.host.now())
        below = {term: told for each in joins for (term, *_), told in zip(each.streams, each.milestones, strict=False)}
        return tuple(
            self.milestones(tree, term, (0, NUMBER_MAX), most) or below.get(term, ())[-most:] for term, *_ in streams
        )

    def note_told(self, tree: Tree, term: Term, told: ToldMilestones, sender: Contact) -> None:
        """A neighbour that comes says this of a stream. If that is over here, it may yet go on (`told_before`)."""
        if term in tree.flow.past.forgotten and told:
            milestones = Milestones()
            milestones.learn(told, self.host.now(), NUMBER_MAX)
            sources_of(tree).note_told(term, sender.node_id, milestones, ENDS_TOLD_MAX)

    def note_early(self, tree: Tree, term: Term, reach: int, sender: Contact) -> None:
        """A peer that is no neighbour yet says how far a stream has come. It may become one (`told_before`)."""
        sources = sources_of(tree)
        milestones = sources.take_told(term, sender.node_id) or Milestones()
        milestones.note(reach, self.host.now())
        sources.note_told(term, sender.node_id, milestones, ENDS_TOLD_MAX)

    def told_before(self, tree: Tree, term: Term, sender: Contact) -> ToldMilestones:
        """What a neighbour said of a stream before it was one, or when that was over here."""
        milestones = tree.sources.take_told(term, sender.node_id)
        return milestones.told((0, NUMBER_MAX), self.host.now()) if milestones is not None else ()

    def learn_milestones(self, tree: Tree, term: Term, told: ToldMilestones, *, near: bool = True) -> None:
        """A peer says how long events have been there that are missing here: subscriptions may have begun later.

        `near`: it is believed about events that did not come here. Another might make up later ones.
        """
        stream = tree.flow.others.get(term)
        if stream is None:
            return
        stream.milestones.learn(told, self.host.now(), known_end(tree, term) if near else there(tree, term))
        for subscription in tree.subscriptions:
            if self.pass_by(tree, term, subscription):
                self.news(tree, term)

    def date(self, tree: Tree, term: Term, told: ToldMilestones) -> None:
        """Its source says how long events of a stream have been there, or the root if the stream is over.

        An answer to another question may say nothing of those that a subscription missed.
        """
        milestones = Milestones()
        milestones.learn(told, self.host.now(), NUMBER_MAX)
        for subscription in tree.subscriptions:
            if term in subscription.undated and subscription.undated[term][0][1] <= milestones.end:
                subscription.date(term, milestones.before(subscription.began_at))

    def pass_by(self, tree: Tree, term: Term, subscription: Subscription) -> bool:
        """What came of a stream before a subscription began is not owed to it, unless it asked for that.

        True if that is news.
        """
        start = self.came_before(tree, term, subscription.began_at)
        if subscription.wish.start == "earliest" or not subscription.pass_by(term, start):
            return False
        self.host.trace(StreamOwed(tree.topic, term, start, subscription.number))
        return True

    def note_over(self, tree: Tree, term: Term, milestones: Milestones) -> None:
        """Those of a stream that is over are remembered for as long as its end."""
        sources, ends = sources_of(tree), tree.flow.past.forgotten
        milestones.thin(self.host.now(), share_of_each(len(sources.milestones)))
        sources.remember(term, milestones, ends, len(ends))

    def came_before(self, tree: Tree, term: Term, at: float) -> int:
        """What had come of a stream by a time, if it is known to have gone so far.

        All of one that a former process of this peer numbered had, before this process began.
        """
        if term.is_of(self.host.me) and not is_mine(self.host, term):
            return known_end(tree, term)
        return min(known_end(tree, term), tree.flow.others[term].milestones.before(at))


def share_of_each(streams: int) -> int:
    """How many milestones of each of some streams are told in one message, or kept where they are over."""
    return max(2, min(MILESTONES_MAX, JOIN_MILESTONES_MAX // max(1, streams)))
